//! Who writes the sketches of a space: templates, rules, or both.

use crate::accuracy::Accuracy;
use std::fmt;
use std::str::FromStr;

/// Who writes the sketches of a space. The general nest is in every kind, for programs of
/// which nothing else has a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// Rules alone.
    Rules,
    /// Templates alone.
    Templates,
    /// Templates, and behind them rules.
    All,
}

impl SpaceKind {
    pub const ALL: [SpaceKind; 3] = [SpaceKind::Rules, SpaceKind::Templates, SpaceKind::All];

    pub fn name(self) -> &'static str {
        match self {
            SpaceKind::Rules => "rules",
            SpaceKind::Templates => "templates",
            SpaceKind::All => "all",
        }
    }
}

impl fmt::Display for SpaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names are those that [`SpaceKind::name`] gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no space `{0}`; use rules, templates or all")]
pub struct UnknownSpaceKind(String);

impl FromStr for SpaceKind {
    type Err = UnknownSpaceKind;

    fn from_str(text: &str) -> Result<SpaceKind, UnknownSpaceKind> {
        let found = SpaceKind::ALL.into_iter().find(|k| k.name() == text);
        found.ok_or_else(|| UnknownSpaceKind(text.into()))
    }
}

/// Which candidates a space may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allowed {
    pub accuracy: Accuracy,
    pub space: SpaceKind,
}

/// All that are so exact.
impl From<Accuracy> for Allowed {
    fn from(accuracy: Accuracy) -> Allowed {
        Allowed {
            accuracy,
            space: SpaceKind::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_refused() {
        for k in SpaceKind::ALL {
            assert_eq!(k.to_string().parse(), Ok(k));
        }
        assert!("Rules".parse::<SpaceKind>().is_err());
    }
}
