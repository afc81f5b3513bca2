//! The last choice among the best candidates of a task: alone, in turns, by the
//! host's clock and on fresh data.
//!
//! Owns who takes part, and what becomes of the ranks. How kernels take turns is
//! `measure`'s.

use crate::error::Result;
use crate::evaluator::Batch;
use crate::observer::Observer;
use crate::run::{Run, TaskSearch};
use crate::search::{Ranked, Search};
use crate::trial::Answer;
use measure::{Spent, TaskData};
use std::sync::Arc;
use std::time::Duration;
use store::Outcome;

/// A finalist is within this factor of the best.
pub const FINAL_FACTOR: f64 = 1.10;
/// Tasks below this share of the model keep their best without a final ranking:
/// they can gain little, and fresh data takes as long to make as for others.
pub const FINAL_SHARE: f64 = 0.01;
/// Turns of a ranking, at least and at most; between them, as many as fit a
/// kernel's share of the time.
const TURNS: (u64, u64) = (9, 15);
const TURNS_NS: u64 = 50_000_000;
/// Time for building and timing the finalists of a task that has scores only, if a run has so
/// much.
const TIMING: Duration = Duration::from_secs(600);
/// Makes the seed of fresh data.
const FRESH: u64 = 0x5eed;

/// How many of so many measured candidates are ranked: DOPpler, section 5.3.
pub fn ranked(share: f64, measured: usize) -> usize {
    // 7% of 100 is 7, though not in binary.
    let k = (share * measured as f64 - 1e-9).ceil();
    (k as usize).max(1)
}

fn turns(best_ns: u64) -> u32 {
    let (least, most) = TURNS;
    (TURNS_NS / best_ns.max(1)).clamp(least, most) as u32
}

/// Positions of a task's finalists among its best, and what one of them takes.
fn entrants(s: &Search) -> (Vec<usize>, u64) {
    let best = s.best_cost().unwrap_or(0.0);
    let near = |b: &Ranked| b.cost <= FINAL_FACTOR * best;
    let first = s.finalists();
    let all = 0..s.best.len();
    let entrants = all.filter(|c| *c < first || near(&s.best[*c]));
    (entrants.collect(), best as u64)
}

/// What ranking a task takes, about: making other data, a first run, and the turns.
fn ranking(s: &Search) -> Duration {
    let (entrants, best) = entrants(s);
    let runs = entrants.len() as u64 * (u64::from(turns(best)) + 2);
    s.setup.unwrap_or_default() + Duration::from_nanos(runs * best)
}

impl Run<'_> {
    /// Searches of a model whose tasks take a share of it, the costliest first.
    pub fn costly(&self, job: usize) -> Vec<usize> {
        let total = self.kernels_ns(job);
        let cost = |t: &TaskSearch| {
            let s = &self.searches[t.search];
            (t.search, s.best_cost().unwrap_or(0.0) * t.weight())
        };
        let all = self.jobs[job].searches.iter().map(cost);
        let mut costly: Vec<(usize, f64)> = all
            .filter(|(_, cost)| *cost > 0.0 && *cost >= FINAL_SHARE * total)
            .collect();
        costly.sort_by(|a, b| b.1.total_cmp(&a.1));
        costly.into_iter().map(|(search, _)| search).collect()
    }

    /// What ranking all finalists of a model takes, about.
    pub fn ranking(&self, job: usize) -> Duration {
        if !self.is_timed(job) {
            // Scores do not say what it takes.
            return TIMING * self.jobs[job].searches.len() as u32;
        }
        let costly = self.costly(job);
        let open = costly.iter().filter(|i| !self.ranked.contains(i));
        open.map(|i| ranking(&self.searches[*i])).sum()
    }

    /// Ranks the finalists of a model's costly tasks, as far as time suffices.
    pub fn rank_finalists(&mut self, job: usize, observer: &mut dyn Observer) -> Result<()> {
        let aside = self.after_ranking_of(job);
        self.evaluate_until(self.clock.end(aside));
        for i in self.costly(job) {
            let s = &self.searches[i];
            if self.ranked.contains(&i) || ranking(s) > self.clock.left(aside) {
                continue;
            }
            self.ranked.insert(i);
            observer.stage(&format!("ranking the finalists alone: {}", s.title));
            self.rank(i)?;
        }
        self.evaluate_until(None);
        Ok(())
    }

    /// Ranks all of the best of a task whose costs so far are not to be believed; those that
    /// are not ranked are out.
    pub fn rank_all(&mut self, search: usize) -> Result<()> {
        let best = &mut self.searches[search].best;
        best.iter_mut().for_each(|b| b.cost = f64::INFINITY);
        let entrants = (0..best.len()).collect();
        self.rank_among(search, entrants, TURNS.0 as u32)
    }

    /// Has the finalists of a task ranked.
    fn rank(&mut self, search: usize) -> Result<()> {
        let (entrants, best) = entrants(&self.searches[search]);
        self.rank_among(search, entrants, turns(best))
    }

    /// Has candidates of a task ranked on fresh data, and puts the best first.
    fn rank_among(&mut self, search: usize, entrants: Vec<usize>, turns: u32) -> Result<()> {
        if entrants.is_empty() {
            return Ok(());
        }
        let s = &self.searches[search];
        let subject = s.subject.as_ref();
        let data = subject.and_then(|s| s.data.as_ref()).map(|data| TaskData {
            seed: data.seed ^ FRESH,
            ..TaskData::clone(data)
        });
        let trials = entrants.iter().map(|c| {
            let mut trial = s.best[*c].trial.clone();
            // What they took is in the records of the search.
            (trial.asking, trial.building) = (Spent::default(), Spent::default());
            trial
        });
        let batch = Batch {
            data: data.map(Arc::new),
            ..self.batch(search, trials.collect(), Duration::ZERO)
        };
        let evaluator = s.evaluator;
        let Some(reply) = self.evaluators[evaluator].rank(batch, turns) else {
            return Ok(());
        };
        let setup = &mut self.searches[search].setup;
        *setup = setup.or(reply.setup);
        self.note_warnings(evaluator);
        self.note_drift(search, reply.answers.iter().map(|a| &a.outcome))?;
        for (c, answer) in entrants.into_iter().zip(reply.answers) {
            self.take_rank(search, c, &answer)?;
        }
        let best = &mut self.searches[search].best;
        best.retain(|b| b.cost.is_finite());
        // As the store orders them.
        best.sort_by(|a, b| {
            let order = (!a.alone).cmp(&!b.alone).then(a.cost.total_cmp(&b.cost));
            let hash = |r: &Ranked| r.trial.kernel.as_ref().map(|k| k.code_hash());
            order.then_with(|| hash(a).cmp(&hash(b)))
        });
        Ok(())
    }

    /// Records what the ranking said of a candidate. Where it could not be ranked,
    /// for no fault of its own, its earlier figure stays; one that failed is out.
    fn take_rank(&mut self, search: usize, candidate: usize, answer: &Answer) -> Result<()> {
        let name = self.evaluators[self.searches[search].evaluator].name();
        let record = self.record(answer, name, true);
        self.log.append(&[record], &[])?;
        self.worker_cpu_ns += answer.spent.cpu_ns;
        if !matches!(answer.outcome, Outcome::Unanswered { .. }) {
            let b = &mut self.searches[search].best[candidate];
            let cost = answer.outcome.cost();
            (b.cost, b.alone) = (cost.map_or(f64::INFINITY, |c| c.value()), true);
            b.rel_l2 = b.rel_l2.or(answer.outcome.rel_l2());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_what_was_measured_is_ranked_and_one_at_least() {
        let of = |share| [0, 1, 100, 101, 500].map(|n| ranked(share, n));
        assert_eq!(of(0.01), [1, 1, 1, 2, 5]);
        assert_eq!(of(0.07)[2], 7);
        assert_eq!(of(0.0), [1; 5]);
    }

    #[test]
    fn long_kernels_have_fewer_turns() {
        let of = [1, 1_000_000, 5_000_000, 40_000_000].map(turns);
        assert_eq!(of, [15, 15, 10, 9]);
    }
}
