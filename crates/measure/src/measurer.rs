//! Measurers: how the candidates of a batch are handed to devices.
//!
//! Owns the policies. They share runners, protocol and outcomes, and differ in
//! what they ask of [`Dispatch`] only, so that what one gains over another is
//! the policy's.

use crate::dispatch::{Assignment, Dispatch, Round};
use crate::doppler::{Constants, Doppler, NAME, RoundReport, TaskState};
use crate::serial::Measured;
use serde::{Deserialize, Serialize};
use std::time::Duration;

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
            Policy::Doppler => NAME,
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

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Done {
    /// One a candidate, in the order of the batch.
    pub outcomes: Vec<Measured>,
    /// What DOPpler did; the other policies have nothing to tell.
    pub rounds: Vec<RoundReport>,
}

/// A policy with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurer {
    pub policy: Policy,
    /// DOPpler's.
    pub constants: Constants,
    /// Candidates at once of the naive policy.
    pub naive_dp: u32,
    /// Time that one candidate may take, where the policy does not adapt it.
    pub limit: Duration,
}

impl Measurer {
    /// Measures the candidates `0..candidates` of a batch. `quiet(true)` silences
    /// what else the tuner runs on the devices, `quiet(false)` ends that.
    pub fn measure<B: ?Sized>(
        &self,
        dispatch: &mut impl Dispatch<B>,
        batch: &B,
        candidates: usize,
        state: &mut TaskState,
        quiet: &mut dyn FnMut(bool),
    ) -> Done {
        let dp = match self.policy {
            Policy::Serial | Policy::SerialSpawn => 1,
            Policy::Naive => self.naive_dp.max(1),
            Policy::Doppler => {
                let mut doppler = Doppler {
                    dispatch,
                    batch,
                    constants: &self.constants,
                    quiet,
                };
                return doppler.measure(candidates, state);
            }
        };
        let devices = dispatch.devices();
        let assign = |candidate: usize| Assignment {
            candidate,
            device: candidate % devices,
        };
        let jobs: Vec<Assignment> = (0..candidates).map(assign).collect();
        let round = Round {
            dp,
            limit: self.limit.saturating_mul(candidates as u32),
            each: self.limit,
            quiet: false,
            fresh: self.policy == Policy::SerialSpawn,
            host_clock: self.policy == Policy::Naive,
            retry: true,
            // Its figures are those of rounds like this.
            slower: Some(1.0),
            measurer: self.policy,
        };
        Done {
            outcomes: dispatch.round(batch, &jobs, &round),
            rounds: vec![],
        }
    }
}

/// Replaces an outcome by that of another try; what both took is added.
pub(crate) fn again(first: &mut Measured, other: Measured) {
    first.outcome = other.outcome;
    first.whole += other.whole;
    first.parts += other.parts;
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
