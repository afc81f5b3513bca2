//! One policy, once, on the candidates of a task, and the finals of all.
//!
//! Owns the way of candidates through a policy: built before or meanwhile,
//! measured in batches, and the best of them ranked alone.

use super::field::{Ahead, Field};
use super::measured::StudyOptions;
use super::row::{Related, Row, Times, mean};
use super::sweep::Variant;
use ir::Target;
use measure::{
    Dispatch, KernelBatch, Measured, MeasuredBatch, Policy, Protocol, Ranking, Spent, TaskState,
};
use plan::Task;
use runtime::BuiltKernel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tune::Host;
use tune::Result;
use tune::compile::Builders;
use tune::{MeasureSettings, code_hash, ranked};

/// Where candidates are measured.
pub struct Scene<'a> {
    pub program: &'a str,
    pub task: &'a Task,
    pub uses: usize,
    pub field: &'a Field,
    pub host: &'a Host,
    pub target: &'a Target,
    pub options: &'a StudyOptions,
    /// What building all candidates takes on the wall and of builders.
    pub build: (f64, Spent),
}

/// Turns of a ranking.
const TURNS: u32 = 15;
/// How often finals are measured, so that they tell their own uncertainty.
const FINALS: usize = 2;

impl Scene<'_> {
    fn protocol(&self, samples: Option<u32>) -> Protocol {
        let o = self.options;
        let mut p = Protocol::new(self.target.threads(), self.target.llc_bytes());
        p.tolerance = o.tolerance;
        p.lose = o.measure.lose;
        p.limit_ns = o.limit.as_nanos() as u64;
        if let Some(n) = samples {
            (p.min_samples, p.max_samples) = (n, n);
            p.max_ns = p.limit_ns;
        }
        p
    }

    fn settings(&self, v: &Variant) -> MeasureSettings {
        MeasureSettings {
            policy: v.policy,
            constants: v.constants,
            ..self.options.measure.clone()
        }
    }

    /// Has all candidates measured by a variant and the best of them ranked;
    /// `meanwhile` builds them while earlier ones are measured.
    ///
    /// # Errors
    /// If no runner can be set up.
    pub fn cell(
        &self,
        variant: &Variant,
        repetition: usize,
        meanwhile: Option<&mut Builders>,
    ) -> Result<Row> {
        let protocol = self.protocol(variant.samples);
        let mut devices = self.settings(variant).open(self.host, self.target)?;
        let overlap = meanwhile.is_some();
        let (done, times) = self.measure(variant, &protocol, &mut *devices, meanwhile);
        let figures: Vec<Option<u64>> = done
            .outcomes
            .iter()
            .map(|m| m.outcome.median_ns())
            .collect();
        let entrants = select(&figures, variant.rank);
        let began = Instant::now();
        let ranked = self.rank(&mut *devices, &entrants, &protocol);
        let rank_s = began.elapsed().as_secs_f64();
        let best = winner(&entrants, &ranked);
        let code = |b: usize| code_hash(&self.field.built[b].kernel);
        Ok(Row {
            at_once: devices.capacity() * devices.devices() as u32,
            cpus: tune::threads::cpus().len().max(1) as u32,
            overlap,
            repetition,
            times: Times {
                rank_s,
                total_s: times.built_before_s + times.wall_s + rank_s,
                ..times
            },
            ranked: entrants.len(),
            changed: best != entrants.first().copied(),
            best,
            best_code: best.map(code),
            figures,
            ..self.row(variant, &done)
        })
    }

    /// All candidates by a variant, in batches.
    fn measure(
        &self,
        variant: &Variant,
        protocol: &Protocol,
        devices: &mut dyn Dispatch<KernelBatch>,
        meanwhile: Option<&mut Builders>,
    ) -> (MeasuredBatch, Times) {
        let all: Vec<usize> = (0..self.field.built.len()).collect();
        let kernels = self.kernels(&all);
        let overlap = meanwhile.is_some();
        let data = Arc::new(self.field.data.clone());
        let batch = |kernels: &[Arc<BuiltKernel>], best_ns| KernelBatch {
            task: data.clone(),
            kernels: kernels.to_vec(),
            protocol: protocol.clone(),
            best_ns,
            overlap,
        };
        // Starting runners is what a run does once.
        devices.prepare(&batch(&kernels, None));
        let settings = self.settings(variant);
        let size = settings.batch();
        let mut ahead = meanwhile.map(|b| {
            // As far as `tune` has its builders run ahead.
            let depth = (2 * size).max(self.options.builders + 2);
            Ahead::new(self.field, b, depth)
        });
        let measurer = settings.measurer(self.options.limit);
        let mut state = TaskState::new(&measurer.constants, self.options.seed);
        let (mut done, mut measure_s) = (MeasuredBatch::default(), 0.0);
        let begin = Instant::now();
        for (i, some) in kernels.chunks(size).enumerate() {
            if let Some(a) = &mut ahead {
                a.wait(i * size, i * size + some.len());
            }
            let mut quiet = |on: bool| match (&mut ahead, on) {
                (Some(a), true) => a.builders.pool.pause(),
                (Some(a), false) => a.builders.pool.resume(),
                (None, _) => {}
            };
            let batch = batch(some, incumbent(protocol.lose, &done.outcomes));
            let began = Instant::now();
            let more = measurer.measure(devices, &batch, some.len(), &mut state, &mut quiet);
            measure_s += began.elapsed().as_secs_f64();
            done.outcomes.extend(more.outcomes);
            done.rounds.extend(more.rounds);
        }
        let times = Times {
            built_before_s: if overlap { 0.0 } else { self.build.0 },
            wall_s: begin.elapsed().as_secs_f64(),
            measure_s,
            ..sums(&done, ahead.map_or(self.build.1, |a| a.spent))
        };
        (done, times)
    }

    /// What outcomes and rounds tell; the rest is empty.
    fn row(&self, variant: &Variant, done: &MeasuredBatch) -> Row {
        let mut failures = BTreeMap::new();
        for m in &done.outcomes {
            if m.outcome.median_ns().is_none() {
                *failures.entry(m.outcome.label().to_string()).or_default() += 1;
            }
        }
        let rounds = &done.rounds;
        let known = rounds.iter().flat_map(|r| &r.delta).flatten();
        let left = || rounds.iter().filter_map(|r| r.residual_errors);
        // One at a time, nothing is measured again.
        let beside = rounds.iter().filter(|r| r.candidates > 1);
        Row {
            program: self.program.into(),
            task: self.task.title(),
            key: self.task.key.clone(),
            tasks: 1,
            uses: self.uses,
            overlap: false,
            policy: variant.policy,
            swept: variant.swept.clone(),
            repetition: 0,
            candidates: done.outcomes.len(),
            failures,
            at_once: 1,
            cpus: 1,
            builders: self.options.builders as u32,
            times: Times::default(),
            sampled: rounds.iter().map(|r| r.sampled).sum(),
            failed_again: beside.map(|r| r.failed).sum(),
            recovered: rounds.iter().map(|r| r.recovered).sum(),
            mean_dp: mean(rounds.iter().map(|r| f64::from(r.dp))),
            delta: mean(known.copied()),
            left_uniform: mean(left().map(|l| l.uniform)),
            left_signed: mean(left().map(|l| l.signed)),
            left_per_candidate: mean(left().map(|l| l.per_candidate)),
            ranked: 0,
            changed: false,
            best: None,
            best_code: None,
            best_ns: None,
            best_apart_ns: None,
            related: Related::default(),
            rounds: rounds.clone(),
            figures: vec![],
        }
    }

    /// The code of candidates, by their positions.
    fn kernels(&self, positions: &[usize]) -> Vec<Arc<BuiltKernel>> {
        let kernel = |i: &usize| Arc::new(self.field.built[*i].kernel.clone());
        positions.iter().map(kernel).collect()
    }

    /// Medians of candidates that are measured alone, in turns, by the host's clock.
    fn rank(
        &self,
        devices: &mut dyn Dispatch<KernelBatch>,
        entrants: &[usize],
        protocol: &Protocol,
    ) -> Vec<Option<u64>> {
        let batch = KernelBatch {
            task: Arc::new(self.field.data.clone()),
            kernels: self.kernels(entrants),
            protocol: protocol.clone(),
            best_ns: None,
            overlap: false,
        };
        let ranking = Ranking {
            turns: TURNS,
            each: self.options.limit,
        };
        let all: Vec<usize> = (0..entrants.len()).collect();
        let measured = devices.rank(&batch, &all, &ranking);
        measured.iter().map(|m| m.outcome.median_ns()).collect()
    }

    /// Measures candidates, the bests of all rows, in turns and more than once.
    ///
    /// # Errors
    /// If no runner can be set up.
    pub fn finals(&self, entrants: &[usize]) -> Result<Finals> {
        let settings = MeasureSettings {
            policy: Policy::Serial,
            ..self.options.measure.clone()
        };
        let mut devices = settings.open(self.host, self.target)?;
        let protocol = self.protocol(None);
        let mut times: Vec<(usize, Vec<u64>)> = entrants.iter().map(|i| (*i, vec![])).collect();
        for _ in 0..FINALS {
            let medians = self.rank(&mut *devices, entrants, &protocol);
            for ((_, all), ns) in times.iter_mut().zip(medians) {
                all.extend(ns);
            }
        }
        Ok(Finals {
            program: self.program.into(),
            key: self.task.key.clone(),
            times,
        })
    }
}

/// What the bests of a task took when they were measured together, each more
/// than once; by position among the candidates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finals {
    pub program: String,
    pub key: String,
    pub times: Vec<(usize, Vec<u64>)>,
}

/// The best figure so far, against which later candidates may lose, if any may.
fn incumbent(lose: f64, before: &[Measured]) -> Option<u64> {
    let figures = before.iter().filter_map(|m| m.outcome.median_ns());
    figures.min().filter(|_| lose > 0.0)
}

/// Sums over candidates.
fn sums(done: &MeasuredBatch, build: Spent) -> Times {
    let s = |ns: u64| ns as f64 / 1e9;
    let seconds = |of: fn(&Measured) -> u64| s(done.outcomes.iter().map(of).sum());
    Times {
        build_s: s(build.wall_ns),
        build_cpu_s: s(build.cpu_ns),
        load_s: seconds(|m| m.parts.load.wall_ns),
        check_s: seconds(|m| m.parts.check.wall_ns),
        run_s: seconds(|m| m.parts.run.wall_ns),
        measure_cpu_s: seconds(|m| m.whole.cpu_ns),
        alone_s: s(done.rounds.iter().map(|r| r.alone_ns).sum()),
        ..Times::default()
    }
}

/// The candidates to rank: `share` of the measured ones, at least one, the best
/// by their figures first.
fn select(figures: &[Option<u64>], share: f64) -> Vec<usize> {
    let mut timed: Vec<usize> = (0..figures.len())
        .filter(|i| figures[*i].is_some())
        .collect();
    timed.sort_by_key(|i| (figures[*i], *i));
    timed.truncate(ranked(share, figures.len()));
    timed
}

/// The best of a ranking; of equals the one that was drawn first. Without any
/// time the first entrant: its figure is all there is.
fn winner(entrants: &[usize], ranked: &[Option<u64>]) -> Option<usize> {
    let timed = entrants
        .iter()
        .zip(ranked)
        .filter_map(|(i, ns)| Some(((*ns)?, *i)));
    timed.min().map(|(_, i)| i).or(entrants.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_measured_candidates_is_ranked() {
        let figures: Vec<Option<u64>> = (0..500).map(|i| (i % 3 > 0).then_some(1000 - i)).collect();
        let five = select(&figures, 0.01);
        assert_eq!(five, [499, 497, 496, 494, 493]);
        assert_eq!(select(&figures, 0.011).len(), 6);
        assert_eq!(select(&figures[..100], 0.07).len(), 7);
        assert_eq!(select(&figures, 0.0).len(), 1);
        assert!(select(&[None, None], 0.5).is_empty());
    }

    #[test]
    fn candidates_lose_against_the_best_before_them_if_they_may() {
        let timed = |ns| Measured {
            outcome: store::Outcome::Timed {
                samples_ns: vec![ns],
                clock: store::Clock::ThreadCpu,
                conditions: store::Conditions::unproven(1, 1),
            },
            whole: Spent::default(),
            parts: measure::PartTimes::default(),
        };
        let failed = Measured {
            outcome: store::Outcome::Unanswered { reason: "x".into() },
            ..timed(0)
        };
        let before = [timed(30), failed, timed(20), timed(25)];
        assert_eq!(incumbent(0.01, &before), Some(20));
        assert_eq!(incumbent(0.0, &before), None);
        assert_eq!(incumbent(0.01, &[]), None);
    }

    #[test]
    fn the_truly_faster_of_two_near_best_wins() {
        // The figures of candidate 0 flatter it; alone it is slower than 2.
        let figures = [Some(98), Some(150), Some(100), Some(400)];
        let entrants = select(&figures, 0.5);
        assert_eq!(entrants, [0, 2]);
        assert_eq!(winner(&entrants, &[Some(110), Some(101)]), Some(2));
        assert_eq!(winner(&entrants, &[Some(101), Some(101)]), Some(0));
        assert_eq!(winner(&entrants, &[None, Some(200)]), Some(2));
        assert_eq!(winner(&entrants, &[None, None]), Some(0));
        assert_eq!(winner(&[], &[]), None);
    }
}
