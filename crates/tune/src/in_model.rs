//! The last choice among near-best candidates: by the latency of the whole model.
//!
//! A kernel's neighbours decide what is in the caches when it starts, which no
//! measurement of the kernel alone shows. Candidates of the costly tasks become
//! alternatives of one assembled model; runs of it differ only in which they
//! select. Layouts are no alternatives of one model: see [`crate::layouts`].

use crate::compile::assemble_alternatives;
use crate::error::Result;
use crate::factorial::{FactorChoice, decide};
use crate::finalists::FINAL_FACTOR;
use crate::latency::{MAX_PAIRS, MIN_PAIRS, fill_inputs, latency_ns, paired};
use crate::observer::Observer;
use crate::record;
use crate::run::Run;
use crate::search::Subject;
use crate::stretches::Stretched;
use ir::Role;
use runtime::{BuiltKernel, FixedSelector, Model};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Extra, InModel, InModelDecision, InModelTotal, Paired, Tried};

/// Candidates of one task that are compared, its best alone included.
const MOST_CANDIDATES: usize = 3;
/// Most bytes of constants that alternatives prepare in addition.
const MOST_CONSTANT_BYTES: u64 = 512 << 20;
/// Runs of a model before its time is believed.
const WARM_UPS: usize = 2;
/// A task whose choice is open.
struct Contest {
    /// Of the task.
    search: usize,
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

/// Chooses a level of each contest, and compares all choices together with the best alone:
/// where they do not hold what each promised, none is taken.
fn choose(
    levels: &[usize],
    pairs: usize,
    seed: u64,
    run: &mut impl FnMut(&[usize]) -> Result<u64>,
) -> Result<(Vec<FactorChoice>, Option<Paired>)> {
    let mut decisions = decide(levels, pairs, seed, run)?;
    let chosen: Vec<usize> = decisions.iter().map(|d| d.level).collect();
    if chosen.iter().all(|l| *l == 0) {
        return Ok((decisions, None));
    }
    let choices = [vec![0; chosen.len()], chosen];
    let total = paired(pairs, |which| run(&choices[which]))?;
    if total.latency_percent >= 0.0 {
        decisions.iter_mut().for_each(|d| d.level = 0);
    }
    Ok((decisions, Some(total)))
}

impl Run<'_> {
    /// The candidates near the best of a task, other algorithms first; nothing
    /// if there is one only.
    fn contest(&self, search: usize) -> Option<Contest> {
        let s = &self.searches[search];
        let best = s.best.first()?;
        let near = |i: &usize| s.best[*i].cost <= FINAL_FACTOR * best.cost;
        let mut left: Vec<usize> = (1..s.best.len()).filter(near).collect();
        let mut candidates = vec![0];
        while candidates.len() < MOST_CANDIDATES && !left.is_empty() {
            let name = |i: usize| s.best[i].algorithm();
            let new = |i: &usize| candidates.iter().all(|c| name(*c) != name(*i));
            let at = left.iter().position(new).unwrap_or(0);
            candidates.push(left.remove(at));
        }
        (candidates.len() > 1).then_some(Contest { search, candidates })
    }

    /// The open choices of a model, the costliest tasks first.
    fn contests(&self, job: usize) -> Vec<Contest> {
        let order = self.costly(job);
        let mut room = MOST_CONSTANT_BYTES;
        let fits = |c: &Contest| {
            let s = &self.searches[c.search];
            let Some(Subject { program, .. }) = &s.subject else {
                return false;
            };
            let constants = program.params.iter().map(|p| program.buffer(*p));
            let bytes: u64 = constants
                .filter(|b| b.role == Role::Constant)
                .map(|b| b.shape.iter().product::<i64>() as u64 * b.dtype.size() as u64)
                .sum();
            let more = bytes * (s.uses * (c.candidates.len() - 1)) as u64;
            let fits = more <= room;
            room -= if fits { more } else { 0 };
            fits
        };
        let of_steps = self.jobs[job].searches.iter().filter(|t| t.uses > 0);
        let of_steps: Vec<usize> = of_steps.map(|t| t.search).collect();
        let order = order.into_iter().filter(|i| of_steps.contains(i));
        let open = order.filter_map(|i| self.contest(i));
        open.filter(fits).collect()
    }

    fn arena(
        &self,
        job: usize,
        contests: &[Contest],
        otherwise: &[Arc<BuiltKernel>],
    ) -> Result<Arena> {
        let of = &self.jobs[job];
        let task = |c: &Contest| {
            let at = of.searches.iter().position(|t| t.search == c.search);
            at.expect("a contest is of a task of the model")
        };
        let best = self.best_kernels(job, otherwise);
        let mut kernels: Vec<Vec<Arc<BuiltKernel>>> =
            best.into_iter().map(|kernel| vec![kernel]).collect();
        for c in contests {
            let best = &self.searches[c.search].best;
            let own = c.candidates.iter().map(|i| best[*i].kernel());
            kernels[task(c)] = own.cloned().collect();
        }
        let making = &of.making;
        let (target, pool) = (making.target, making.pool);
        let (accuracy, none) = (making.allowed.accuracy, Stretched::default());
        let compiled = assemble_alternatives(of.plan, &kernels, &none, target, accuracy, pool)?;
        let mut model = Model::new(Arc::new(compiled), pool.clone())?;
        fill_inputs(&mut model, making.seed);
        let contest = |at| contests.iter().position(|c| task(c) == at);
        Ok(Arena {
            model,
            contest_of: of.plan.steps.iter().map(|s| contest(s.task)).collect(),
        })
    }

    /// Decides the open choices by whole-model latency within the options'
    /// time, and what the run has left; the chosen candidates are first in their tasks' lists
    /// afterwards.
    pub fn decide_in_model(
        &mut self,
        job: usize,
        otherwise: &[Arc<BuiltKernel>],
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
        let mut contests = self.contests(job);
        if self.jobs[job].plan.steps.len() < 2
            || contests.is_empty()
            || self.options.in_model.is_zero()
        {
            return Ok(report);
        }
        let too_long = |ns: f64| {
            let (pairs, ms) = (2 * MIN_PAIRS, ns / 1e6);
            Some(format!(
                "{pairs} pairs of inferences of {ms:.0} ms exceed the time for it"
            ))
        };
        // Not worth a model of its own if there is no doubt.
        let kernels_ns = self.kernels_ns(job);
        let aside = self.finishing(job);
        let time = |aside| self.options.in_model.min(self.clock.left(aside));
        let first = time(aside + self.jobs[job].size.assembling);
        if rounds(1, (0.8 * kernels_ns) as u64, first).is_none() {
            report.skipped = too_long(kernels_ns);
            return Ok(report);
        }
        observer.stage("choosing finalists inside the model");
        let mut arena = self.arena(job, &contests, otherwise)?;
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
        let clock = self.clock.clone();
        let mut run = |levels: &[usize]| {
            clock.goes_on()?;
            arena.run(levels)
        };
        let (decisions, total) = match choose(&levels, pairs, self.options.seed, &mut run) {
            Err(_) if clock.is_stopped() => {
                report.skipped = Some("the run was stopped".into());
                return Ok(report);
            }
            chosen => chosen?,
        };
        report.total = total;
        report.tasks = contests.len();
        report.changed = decisions.iter().filter(|d| d.level != 0).count();
        report.time_s = start.elapsed().as_secs_f64();
        self.keep_decisions(job, &contests, &decisions, &report)?;
        Ok(report)
    }

    /// Stores the decisions and puts the chosen candidates first.
    fn keep_decisions(
        &mut self,
        job: usize,
        contests: &[Contest],
        decisions: &[FactorChoice],
        report: &InModelTotal,
    ) -> Result<()> {
        let mut events = Vec::new();
        for (c, d) in contests.iter().zip(decisions) {
            let s = &mut self.searches[c.search];
            let alone = |level: usize| s.best[c.candidates[level]].cost / s.best[0].cost;
            let tried = d.effects.iter().map(|(level, paired)| Tried {
                algorithm: s.best[c.candidates[*level]].algorithm().to_string(),
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
                chosen: chosen.trial.number,
                target: s.place.target.clone(),
                machine: s.place.machine.clone(),
                decision: decision.clone(),
                extra: Extra::new(),
            };
            events.push(record::event(&s.run_id, &s.key, in_model));
            s.best.insert(0, chosen);
            s.in_model = Some(decision);
        }
        events.push(record::run_event(&self.jobs[job].run_id, report.clone()));
        self.log.append(&[], &events)
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
