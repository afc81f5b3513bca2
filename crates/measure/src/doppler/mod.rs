//! DOPpler: candidates side by side, as many as the figures bear.
//!
//! Owns the loop of a round: measure side by side, measure what failed and a
//! sample again alone, learn from both how wrong the figures are, correct the
//! others, and choose the next degree of parallelism (DOPpler, Algorithm 2).
//! Promises one outcome a candidate, in their order, and that a record says
//! under which degree of parallelism its samples were taken. What a device is
//! and how it measures is behind [`Dispatch`].

mod calibrate;
mod constants;
mod react;
mod timeout;

pub use calibrate::{CalibratorConstants, PairHistory, ResidualErrors};
pub use constants::{CONSTANTS, Constant, Constants};
pub use react::{React, ReactConstants};
pub use timeout::TimeoutConstants;

use crate::dispatch::{Assignment, Dispatch, Round};
use crate::measured::Measured;
use crate::policy::Policy;
use calibrate::{Pair, Parallel, delta, factor, residual_errors, sample, scale};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use react::Evidence;
use serde::{Deserialize, Serialize};
use store::{Cache, Outcome};

/// What is known of one task; kept across batches, and with the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskState {
    pub react: React,
    /// What rounds have shown; stored as `known`.
    #[serde(rename = "known")]
    pub history: PairHistory,
    /// Rounds so far, which with the seed make the next round's random choices.
    pub rounds: u64,
    pub seed: u64,
}

impl TaskState {
    pub fn new(constants: &Constants, seed: u64) -> TaskState {
        TaskState {
            react: React::new(&constants.react),
            history: PairHistory::default(),
            rounds: 0,
            seed,
        }
    }
}

/// What happened in a round, for the log of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundReport {
    pub dp: u32,
    pub candidates: usize,
    pub limit_ms: u64,
    /// Candidates without a time in the round, those out of time among them, and
    /// those that had one when alone.
    pub failed: usize,
    pub timed_out: usize,
    pub recovered: usize,
    /// Good results that were measured again.
    pub sampled: usize,
    /// Of each device, where it is known.
    pub delta: Vec<Option<f64>>,
    /// What corrections leave of the errors of the latest pairs, where enough of
    /// them tell; stored as `left`.
    #[serde(rename = "left")]
    pub residual_errors: Option<ResidualErrors>,
    pub next: React,
    /// What measuring side by side and measuring again took.
    pub parallel_ns: u64,
    pub alone_ns: u64,
}

/// What the loop needs beside a task's state.
pub(crate) struct Doppler<'a, B: ?Sized, D: ?Sized> {
    pub dispatch: &'a mut D,
    pub batch: &'a B,
    pub constants: &'a Constants,
    /// Silences (`true`) what else the tuner runs on the devices, and ends that.
    pub quiet: &'a mut dyn FnMut(bool),
}

/// What is measured again alone, by position in the round.
#[derive(Default)]
struct Remeasurement {
    failed: Vec<usize>,
    sampled: Vec<usize>,
}

impl<B: ?Sized, D: Dispatch<B> + ?Sized> Doppler<'_, B, D> {
    /// Measures the candidates `0..candidates` of the batch; also what happened in each
    /// round.
    pub fn measure(
        &mut self,
        candidates: usize,
        state: &mut TaskState,
    ) -> (Vec<Measured>, Vec<RoundReport>) {
        let (mut outcomes, mut rounds) = (Vec::new(), Vec::new());
        state.react.dp = state.react.dp.clamp(1, self.max_dp());
        while outcomes.len() < candidates {
            let most = state.react.dp as usize * self.dispatch.devices();
            let first = outcomes.len();
            let (more, report) = self.round(first, most.min(candidates - first), state);
            outcomes.extend(more);
            rounds.push(report);
        }
        (outcomes, rounds)
    }

    /// Where nothing runs beside another candidate, nothing is gained.
    fn max_dp(&self) -> u32 {
        if self.dispatch.capacity() > 1 {
            self.constants.max_dp
        } else {
            1
        }
    }

    fn round(
        &mut self,
        first: usize,
        candidates: usize,
        state: &mut TaskState,
    ) -> (Vec<Measured>, RoundReport) {
        let (c, dp, devices) = (self.constants, state.react.dp, self.dispatch.devices());
        let assign = |i: usize| Assignment {
            candidate: first + i,
            device: i % devices,
        };
        let assignments: Vec<Assignment> = (0..candidates).map(assign).collect();
        let limit = c.timeout.round(dp, devices as u32);
        let began = self.dispatch.now();
        let mut outcomes = self.dispatch.round(
            self.batch,
            &assignments,
            &Round {
                dp,
                limit,
                each: limit,
                quiet: false,
                fresh: false,
                host_clock: false,
                // A device that has but one to measure again has nothing to measure it by.
                retry: candidates / devices < 2,
                slower: self.slower(candidates, state),
                measurer: Policy::Doppler,
            },
        );
        let parallel_ns = (self.dispatch.now() - began).as_nanos() as u64;
        let chosen: Vec<Remeasurement> = (0..devices)
            .map(|d| self.choose(&assignments, &outcomes, d, state))
            .collect();
        let began = self.dispatch.now();
        let alone = self.measure_again(&assignments, &chosen);
        let alone_ns = (self.dispatch.now() - began).as_nanos() as u64;
        let count = |of: fn(&Outcome) -> bool| outcomes.iter().filter(|m| of(&m.outcome)).count();
        let mut report = RoundReport {
            dp,
            candidates,
            limit_ms: limit.as_millis() as u64,
            failed: count(|o| o.median_ns().is_none()),
            timed_out: count(|o| matches!(o, Outcome::TimedOut { .. })),
            recovered: 0,
            sampled: chosen.iter().map(|a| a.sampled.len()).sum(),
            delta: vec![],
            residual_errors: None,
            next: state.react,
            parallel_ns,
            alone_ns,
        };
        self.learn(
            &assignments,
            &chosen,
            &mut outcomes,
            alone,
            state,
            &mut report,
        );
        (outcomes, report)
    }

    /// Learns from what was measured again, corrects the rest, and chooses the
    /// next degree of parallelism.
    fn learn(
        &self,
        assignments: &[Assignment],
        chosen: &[Remeasurement],
        outcomes: &mut [Measured],
        mut alone: Vec<Option<Measured>>,
        state: &mut TaskState,
        report: &mut RoundReport,
    ) {
        let c = self.constants;
        let mut evidence = Vec::new();
        for (device, own_choice) in chosen.iter().enumerate() {
            let of_device = |i: &usize| assignments[*i].device == device;
            let own: Vec<usize> = (0..assignments.len()).filter(of_device).collect();
            if own.is_empty() {
                continue;
            }
            let width = own.len() as u32;
            let pairs = pairs(own_choice, outcomes, &alone);
            pairs.iter().for_each(|p| state.history.add(*p));
            let delta = delta(&pairs);
            report.residual_errors = residual_errors(state.history.pairs(), &c.calibrator);
            let judged = report.residual_errors.filter(|_| c.calibrator.corrected);
            let e = Evidence {
                width,
                delta: delta.map(|d| judged.map_or(d, |l| l.by(&c.calibrator))),
                parallel_failures: recovered(own_choice, &alone),
            };
            report.recovered += e.parallel_failures as usize;
            report.delta.push(delta);
            evidence.push(e);
            for i in own {
                let factor = correction(&outcomes[i].outcome, &state.history, delta, &c.calibrator);
                let factor = factor.filter(|_| width > 1);
                settle(&mut outcomes[i], alone[i].take(), report.dp, delta, factor);
            }
        }
        state.react = state.react.update(&evidence, &c.react, self.max_dp());
        state.rounds += 1;
        report.next = state.react;
    }

    /// What one device measures again. A candidate that had the device to itself
    /// has nothing to be compared with.
    fn choose(
        &self,
        assignments: &[Assignment],
        outcomes: &[Measured],
        device: usize,
        state: &TaskState,
    ) -> Remeasurement {
        let own: Vec<usize> = (0..assignments.len())
            .filter(|i| assignments[*i].device == device)
            .collect();
        if own.len() < 2 {
            return Remeasurement::default();
        }
        let failed = |i: &usize| {
            let outcome = &outcomes[*i].outcome;
            outcome.median_ns().is_none() && !matches!(outcome, Outcome::Unanswered { .. })
        };
        let (mut good, mut figures) = (Vec::new(), Vec::new());
        for i in &own {
            if let Some(p) = parallel(&outcomes[*i].outcome) {
                good.push(*i);
                figures.push(p);
            }
        }
        let c = &self.constants.calibrator;
        let missing = state.history.missing(c.precision);
        let mut rng = Pcg64Mcg::seed_from_u64(
            state.seed ^ state.rounds.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ device as u64,
        );
        let sampled = sample(&figures, c, missing, &mut rng);
        Remeasurement {
            failed: own.iter().copied().filter(failed).collect(),
            sampled: sampled.into_iter().map(|s| good[s]).collect(),
        }
    }

    /// How many times as long as alone a candidate takes in the next round, by what
    /// rounds of the task have shown: the incumbent's time is that alone, or corrected
    /// to it. Unknown or beyond correction, nothing is given up early by it.
    fn slower(&self, candidates: usize, state: &TaskState) -> Option<f64> {
        if candidates <= self.dispatch.devices() {
            return Some(1.0);
        }
        let factor = scale(delta(state.history.pairs()), &self.constants.calibrator)?;
        (factor > 0.0).then_some(1.0 / factor)
    }

    /// Measures what was chosen alone, one device after the other if they disturb
    /// each other; by position in the round.
    fn measure_again(
        &mut self,
        assignments: &[Assignment],
        chosen: &[Remeasurement],
    ) -> Vec<Option<Measured>> {
        let mut alone: Vec<Option<Measured>> = assignments.iter().map(|_| None).collect();
        let of_device = |a: &Remeasurement| -> Vec<usize> {
            a.failed.iter().chain(&a.sampled).copied().collect()
        };
        let mut rounds: Vec<Vec<usize>> = chosen.iter().map(of_device).collect();
        if self.dispatch.independent() {
            rounds = vec![rounds.concat()];
        }
        rounds.retain(|positions| !positions.is_empty());
        if rounds.is_empty() {
            return alone;
        }
        let each = self.constants.timeout.round(1, 1);
        (self.quiet)(true);
        for positions in rounds {
            let again: Vec<Assignment> = positions.iter().map(|i| assignments[*i]).collect();
            let outcomes = self.dispatch.round(
                self.batch,
                &again,
                &Round {
                    dp: 1,
                    limit: each * again.len() as u32,
                    each,
                    quiet: true,
                    fresh: false,
                    host_clock: false,
                    retry: true,
                    slower: Some(1.0),
                    measurer: Policy::Doppler,
                },
            );
            for (i, outcome) in positions.into_iter().zip(outcomes) {
                alone[i] = Some(outcome);
            }
        }
        (self.quiet)(false);
        alone
    }
}

/// What the device and its host say of a candidate, if it was timed.
fn parallel(outcome: &Outcome) -> Option<Parallel> {
    let Outcome::Timed { conditions: c, .. } = outcome else {
        return None;
    };
    let (latency, span) = (c.latency_ns?, c.span_ns?);
    let host_ns = span as f64 / c.launches.filter(|n| *n > 0)? as f64;
    Some(Parallel {
        latency_ns: latency as f64,
        host_ns: host_ns.max(1.0),
    })
}

/// What was in the caches of a timed candidate, and its median.
fn figure(m: &Measured) -> Option<(&Cache, f64)> {
    let Outcome::Timed { conditions, .. } = &m.outcome else {
        return None;
    };
    Some((&conditions.cache, m.outcome.median_ns()? as f64))
}

/// The sample of one device, where both times are known.
fn pairs(chosen: &Remeasurement, outcomes: &[Measured], alone: &[Option<Measured>]) -> Vec<Pair> {
    let pair = |i: &usize| {
        let (cache, parallel_ns) = figure(&outcomes[*i])?;
        let (cache_alone, alone_ns) = figure(alone[*i].as_ref()?)?;
        // One that was given up early the one time and not the other had other
        // constants in its caches.
        (cache == cache_alone).then_some(Pair {
            ratio: parallel(&outcomes[*i].outcome)?.ratio(),
            parallel_ns,
            alone_ns,
        })
    };
    chosen.sampled.iter().filter_map(pair).collect()
}

/// Candidates that failed in the round and not alone.
fn recovered(chosen: &Remeasurement, alone: &[Option<Measured>]) -> u32 {
    let timed = |i: &&usize| alone[**i].as_ref().is_some_and(|m| figure(m).is_some());
    chosen.failed.iter().filter(timed).count() as u32
}

/// The factor for a candidate that was not measured again.
fn correction(
    outcome: &Outcome,
    history: &PairHistory,
    delta: Option<f64>,
    c: &CalibratorConstants,
) -> Option<f64> {
    let uniform = scale(delta, c)?;
    let own = || factor(history.pairs(), parallel(outcome)?.ratio());
    Some(c.per_candidate.then(own).flatten().unwrap_or(uniform))
}

/// Makes the last outcome of a candidate from that of the round, that alone if
/// there is one, and the factor of the round otherwise.
fn settle(
    outcome: &mut Measured,
    alone: Option<Measured>,
    dp: u32,
    delta: Option<f64>,
    factor: Option<f64>,
) {
    let measured_again = alone.is_some();
    let parallel_ns = outcome.outcome.median_ns();
    if let Some(alone) = alone {
        outcome.retried(alone);
    }
    if let Outcome::Timed { conditions, .. } = &mut outcome.outcome {
        conditions.round_dp = Some(dp);
        conditions.delta = delta;
        if measured_again {
            conditions.parallel_ns = parallel_ns;
        } else {
            conditions.scale = factor;
        }
    }
}
