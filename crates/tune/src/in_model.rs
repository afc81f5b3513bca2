//! The last choice among near-best candidates: by the latency of the whole model.
//!
//! A kernel's neighbours decide what is in the caches when it starts, which no
//! measurement of the kernel alone shows. Candidates of the costly tasks become
//! alternatives of one assembled model; runs of it differ only in which they
//! select. Layouts are no alternatives of one model: see [`crate::layouts`].

use crate::compile::assemble_alternatives;
use crate::default_model::Making;
use crate::error::Result;
use crate::factorial::{Decision, decide};
use crate::finalists::{FINAL_FACTOR, FINAL_SHARE};
use crate::latency::{MAX_PAIRS, MIN_PAIRS, fill_inputs, latency_ns, paired};
use crate::observer::Observer;
use crate::record;
use crate::session::Session;
use build::Built;
use ir::Role;
use runtime::{BuiltKernel, FixedSelector, Model};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Extra, InModel, InModelDecision, InModelTotal, Tried};

/// Candidates of one task that are compared, its best alone included.
const MOST_CANDIDATES: usize = 3;
/// Most bytes of constants that alternatives prepare in addition.
const MOST_CONSTANT_BYTES: u64 = 512 << 20;
/// Runs of a model before its time is believed.
const WARM_UPS: usize = 2;
/// A task whose choice is open.
struct Contest {
    task: usize,
    /// Positions in the task's best list; the best alone comes first.
    candidates: Vec<usize>,
}

/// A model with alternatives, and which steps belong to which contest.
struct Arena {
    model: Model,
    /// For each step the contest it takes part in.
    contest_of: Vec<Option<usize>>,
}

impl Arena {
    fn run(&mut self, levels: &[usize]) -> Result<u64> {
        let alternatives = self.contest_of.iter().map(|c| c.map_or(0, |c| levels[c]));
        let selector = FixedSelector {
            alternatives: alternatives.collect(),
        };
        self.model.set_selector(Some(Box::new(selector)));
        latency_ns(&mut self.model)
    }
}

/// Inferences that a choice takes: at least, and at most.
pub const LEAST_RUNS: u32 = 2 * 2 * MIN_PAIRS as u32;
pub const MOST_RUNS: u32 = 2 * MAX_PAIRS as u32 * MOST_CANDIDATES as u32;

/// How the time is spent: challengers that every incumbent meets, and pairs of
/// runs for each; nothing if the time does not suffice for one.
fn rounds(challengers: usize, run_ns: u64, limit: Duration) -> Option<(usize, usize)> {
    let pairs = (limit.as_nanos() / (2 * u128::from(run_ns.max(1)))) as usize;
    // One more round compares all choices with the best alone.
    let possible = |c: &usize| pairs / (c + 1) >= MIN_PAIRS;
    let challengers = (1..=challengers).rev().find(possible)?;
    Some((challengers, (pairs / (challengers + 1)).min(MAX_PAIRS)))
}

impl Session<'_> {
    /// The candidates near the best of a task, other algorithms first; nothing
    /// if there is one only.
    fn contest(&self, task: usize) -> Option<Contest> {
        let s = &self.searches[task];
        let best = s.best.first()?;
        let near = |i: &usize| s.best[*i].ns as f64 <= FINAL_FACTOR * best.ns as f64;
        let mut left: Vec<usize> = (1..s.best.len()).filter(near).collect();
        let mut candidates = vec![0];
        while candidates.len() < MOST_CANDIDATES && !left.is_empty() {
            let name = |i: usize| &s.best[i].candidate.algorithm;
            let new = |i: &usize| candidates.iter().all(|c| name(*c) != name(*i));
            let at = left.iter().position(new).unwrap_or(0);
            candidates.push(left.remove(at));
        }
        (candidates.len() > 1).then_some(Contest { task, candidates })
    }

    /// The open choices, the costliest tasks first.
    fn contests(&self) -> Vec<Contest> {
        let cost = |i: usize| {
            let s = &self.searches[i];
            s.best.first().map_or(0.0, |b| b.ns as f64 * s.uses as f64)
        };
        let total = self.kernels_ns();
        let mut order: Vec<usize> = (0..self.searches.len())
            .filter(|i| cost(*i) >= FINAL_SHARE * total)
            .collect();
        order.sort_by(|a, b| cost(*b).total_cmp(&cost(*a)));
        let mut room = MOST_CONSTANT_BYTES;
        let fits = |c: &Contest| {
            let program = &self.searches[c.task].program;
            let constants = program.params.iter().map(|p| program.buffer(*p));
            let bytes: u64 = constants
                .filter(|b| b.role == Role::Constant)
                .map(|b| b.shape.iter().product::<i64>() as u64 * b.dtype.size() as u64)
                .sum();
            let more = bytes * (self.searches[c.task].uses * (c.candidates.len() - 1)) as u64;
            let fits = more <= room;
            room -= if fits { more } else { 0 };
            fits
        };
        let open = order.into_iter().filter_map(|i| self.contest(i));
        open.filter(fits).collect()
    }

    fn arena(
        &self,
        contests: &[Contest],
        otherwise: &[Built],
        making: &Making<'_>,
    ) -> Result<Arena> {
        let best = self.best_kernels(otherwise);
        let mut kernels: Vec<Vec<BuiltKernel>> =
            best.iter().map(|b| vec![b.kernel.clone()]).collect();
        for c in contests {
            let best = &self.searches[c.task].best;
            let own = c.candidates.iter().map(|i| best[*i].built.kernel.clone());
            kernels[c.task] = own.collect();
        }
        let kernels: Vec<&[BuiltKernel]> = kernels.iter().map(Vec::as_slice).collect();
        let Making {
            target,
            accuracy,
            seed,
            pool,
        } = *making;
        let compiled = assemble_alternatives(self.plan, &kernels, target, accuracy, pool)?;
        let mut model = Model::new(Arc::new(compiled), pool.clone())?;
        fill_inputs(&mut model, seed);
        let of = |task| contests.iter().position(|c| c.task == task);
        Ok(Arena {
            model,
            contest_of: self.plan.steps.iter().map(|s| of(s.task)).collect(),
        })
    }

    /// Decides the open choices by whole-model latency within the options'
    /// time, and what the run has left; the chosen candidates are first in their tasks' lists
    /// afterwards.
    pub fn decide_in_model(
        &mut self,
        otherwise: &[Built],
        making: &Making<'_>,
        observer: &mut dyn Observer,
    ) -> Result<InModelTotal> {
        let start = Instant::now();
        let mut report = InModelTotal {
            tasks: 0,
            changed: 0,
            total: None,
            time_s: 0.0,
            skipped: None,
            extra: Extra::new(),
        };
        let mut contests = self.contests();
        if self.plan.steps.len() < 2 || contests.is_empty() || self.options.in_model.is_zero() {
            return Ok(report);
        }
        let too_long = |ns: f64| {
            let (pairs, ms) = (2 * MIN_PAIRS, ns / 1e6);
            Some(format!(
                "{pairs} pairs of inferences of {ms:.0} ms exceed the time for it"
            ))
        };
        // Not worth a model of its own if there is no doubt.
        let kernels_ns = self.kernels_ns();
        let aside = self.finishing();
        let time = |aside| self.options.in_model.min(self.clock.left(aside));
        let first = time(aside + self.size.assembling);
        if rounds(1, (0.8 * kernels_ns) as u64, first).is_none() {
            report.skipped = too_long(kernels_ns);
            return Ok(report);
        }
        observer.stage("choosing finalists inside the model");
        let mut arena = self.arena(&contests, otherwise, making)?;
        let most = contests.iter().map(|c| c.candidates.len()).max();
        let most = most.expect("some choice is open");
        let mut run_ns = u64::MAX;
        for level in (0..most).chain(std::iter::repeat_n(0, WARM_UPS)) {
            let levels = contests.iter().map(|c| level.min(c.candidates.len() - 1));
            run_ns = run_ns.min(arena.run(&levels.collect::<Vec<_>>())?);
        }
        let Some((challengers, pairs)) = rounds(most - 1, run_ns, time(aside)) else {
            report.skipped = too_long(run_ns as f64);
            return Ok(report);
        };
        for c in &mut contests {
            c.candidates.truncate(challengers + 1);
        }
        let levels: Vec<usize> = contests.iter().map(|c| c.candidates.len()).collect();
        let mut run = |levels: &[usize]| arena.run(levels);
        let mut decisions = decide(&levels, pairs, self.options.seed, &mut run)?;
        let chosen: Vec<usize> = decisions.iter().map(|d| d.level).collect();
        if chosen.iter().any(|l| *l != 0) {
            let choices = [vec![0; chosen.len()], chosen];
            let total = paired(pairs, |which| run(&choices[which]))?;
            if total.latency_percent >= 0.0 {
                // Together they do not hold what each promised.
                decisions.iter_mut().for_each(|d| d.level = 0);
            }
            report.total = Some(total);
        }
        report.tasks = contests.len();
        report.changed = decisions.iter().filter(|d| d.level != 0).count();
        report.time_s = start.elapsed().as_secs_f64();
        self.keep_decisions(&contests, &decisions, &report)?;
        Ok(report)
    }

    /// Stores the decisions and puts the chosen candidates first.
    fn keep_decisions(
        &mut self,
        contests: &[Contest],
        decisions: &[Decision],
        report: &InModelTotal,
    ) -> Result<()> {
        let mut events = Vec::new();
        for (c, d) in contests.iter().zip(decisions) {
            let s = &mut self.searches[c.task];
            let alone = |level: usize| s.best[c.candidates[level]].ns as f64 / s.best[0].ns as f64;
            let tried = d.effects.iter().map(|(level, paired)| Tried {
                algorithm: s.best[c.candidates[*level]].candidate.algorithm.clone(),
                alone: alone(*level),
                paired: *paired,
            });
            let decision = InModelDecision {
                candidates: c.candidates.len(),
                changed: d.level != 0,
                tried: tried.collect(),
            };
            let chosen = s.best.remove(c.candidates[d.level]);
            let in_model = InModel {
                chosen: chosen.trial,
                target: self.target_text.clone(),
                machine: self.machine.clone(),
                decision: decision.clone(),
                extra: Extra::new(),
            };
            events.push(record::event(&self.run_id, &s.key, in_model));
            s.best.insert(0, chosen);
            s.in_model = Some(decision);
        }
        events.push(record::run_event(&self.run_id, report.clone()));
        self.store.append(&[], &events)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_by_the_rounds_and_their_confirmation() {
        let of = |challengers, run_ms: u64, s| {
            rounds(challengers, run_ms * 1_000_000, Duration::from_secs(s))
        };
        assert_eq!(of(2, 10, 6), Some((2, 100)));
        assert_eq!(of(2, 1, 600), Some((2, MAX_PAIRS)));
        assert_eq!(of(2, 100, 5), Some((1, 12)), "not enough for two");
        assert_eq!(of(1, 700, 20), None);
        assert_eq!(of(0, 1, 20), None);
    }
}
