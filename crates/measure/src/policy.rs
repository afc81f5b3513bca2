//! The policies: names for the ways in which candidates of a batch share devices.
//!
//! Owns their names in flags and records. What each of them asks of devices belongs
//! to `measurer` and `doppler`.

use serde::{Deserialize, Serialize};

/// How candidates are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// One at a time, in a process that stays.
    Serial,
    /// One at a time, each in a process of its own.
    SerialSpawn,
    /// Several at once, by the host's clock.
    Naive,
    /// As many at once as the device's clock bears.
    Doppler,
}

impl Policy {
    pub const ALL: [Policy; 4] = [
        Policy::Serial,
        Policy::SerialSpawn,
        Policy::Naive,
        Policy::Doppler,
    ];

    /// As flags and records have it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Serial => "serial",
            Policy::SerialSpawn => "serial-spawn",
            Policy::Naive => "naive",
            Policy::Doppler => "doppler",
        }
    }

    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Whether a batch gains anything over one candidate after the other.
    pub fn is_parallel(self) -> bool {
        matches!(self, Policy::Naive | Policy::Doppler)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_the_names_that_they_are_stored_by() {
        for p in Policy::ALL {
            assert_eq!(Policy::named(p.name()), Some(p));
        }
        assert_eq!(Policy::named("parallel"), None);
    }
}
