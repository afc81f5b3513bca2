//! The measurer: has a batch measured by a policy.
//!
//! Owns what the policies but DOPpler ask of devices. All policies share runners,
//! protocol and outcomes, and differ in what they ask of [`Dispatch`] only. So a
//! difference between the figures of two policies comes from the policies.

use crate::dispatch::{Assignment, Dispatch, Round};
use crate::doppler::{Constants, Doppler, RoundReport, TaskState};
use crate::measured::Measured;
use crate::policy::Policy;
use std::time::Duration;

/// What became of a batch.
#[derive(Debug, Default)]
pub struct MeasuredBatch {
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
        dispatch: &mut (impl Dispatch<B> + ?Sized),
        batch: &B,
        candidates: usize,
        state: &mut TaskState,
        quiet: &mut dyn FnMut(bool),
    ) -> MeasuredBatch {
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
                let (outcomes, rounds) = doppler.measure(candidates, state);
                return MeasuredBatch { outcomes, rounds };
            }
        };
        let devices = dispatch.devices();
        let assign = |candidate: usize| Assignment {
            candidate,
            device: candidate % devices,
        };
        let assignments: Vec<Assignment> = (0..candidates).map(assign).collect();
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
        MeasuredBatch {
            outcomes: dispatch.round(batch, &assignments, &round),
            rounds: vec![],
        }
    }
}
