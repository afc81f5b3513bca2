//! The last choice among the best candidates of a task: alone, in turns, by the
//! host's clock and on fresh data.
//!
//! Owns who takes part, and what becomes of the ranks. How kernels take turns is
//! `measure`'s.

use crate::error::Result;
use crate::observer::Observer;
use crate::record;
use crate::session::{Pending, Session};
use crate::task_search::{Ranked, Search};
use measure::{Batch, Measured, Ranking, Spent};
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
    let best = s.best.first().map_or(0, |b| b.ns);
    let near = |b: &Ranked| b.ns as f64 <= FINAL_FACTOR * best as f64;
    let first = s.finalists();
    let all = 0..s.best.len();
    let entrants = all.filter(|c| *c < first || near(&s.best[*c]));
    (entrants.collect(), best)
}

/// What ranking a task takes, about: making other data, a first run, and the turns.
fn ranking(s: &Search) -> Duration {
    let (entrants, best) = entrants(s);
    let runs = entrants.len() as u64 * (u64::from(turns(best)) + 2);
    s.setting_up.unwrap_or_default() + Duration::from_nanos(runs * best)
}

impl Session<'_> {
    /// Tasks that are ranked, the costliest first.
    fn to_rank(&self) -> Vec<usize> {
        let total = self.kernels_ns();
        let cost = |i: usize| {
            let s = &self.searches[i];
            s.best.first().map_or(0.0, |b| b.ns as f64 * s.uses as f64)
        };
        let mut tasks: Vec<usize> = (0..self.searches.len())
            .filter(|i| cost(*i) > 0.0 && cost(*i) >= FINAL_SHARE * total)
            .collect();
        tasks.sort_by(|a, b| cost(*b).total_cmp(&cost(*a)));
        tasks
    }

    /// What ranking all finalists takes, about.
    pub fn ranking(&self) -> Duration {
        let tasks = self.to_rank();
        tasks.iter().map(|i| ranking(&self.searches[*i])).sum()
    }

    /// Ranks the finalists of the costly tasks, as far as time suffices.
    pub fn rank_finalists(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let aside = self.after_ranking();
        self.measure_until(self.clock.end(aside));
        for i in self.to_rank() {
            let s = &self.searches[i];
            if ranking(s) > self.clock.left(aside) {
                continue;
            }
            observer.stage(&format!("ranking the finalists alone: {}", s.title));
            let (entrants, best) = entrants(s);
            let measured = self.rank(i, &entrants, turns(best));
            self.note_disturbances(&measured)?;
            for (c, m) in entrants.into_iter().zip(measured) {
                self.take_rank(i, c, &m)?;
            }
            let s = &mut self.searches[i];
            s.best.retain(|b| b.ns != u64::MAX);
            // As the store orders them.
            s.best
                .sort_by_key(|b| (!b.alone, b.ns, b.built.kernel.code_hash()));
        }
        self.measure_until(None);
        Ok(())
    }

    /// Candidates of a task in turns, by their position among its best.
    fn rank(&mut self, task: usize, entrants: &[usize], turns: u32) -> Vec<Measured> {
        let s = &self.searches[task];
        let data = s.data(FRESH).expect("what was measured has its oracle");
        let kernel = |c: &usize| Arc::new(s.best[*c].built.kernel.clone());
        let batch = Batch {
            task: Arc::new(data),
            kernels: entrants.iter().map(kernel).collect(),
            protocol: self.protocol.clone(),
            best_ns: None,
            overlap: false,
        };
        let ranking = Ranking {
            turns,
            each: self.options.run_limit,
        };
        let all: Vec<usize> = (0..entrants.len()).collect();
        self.devices.rank(&batch, &all, &ranking)
    }

    /// Records what the ranking said of a candidate. Where it could not be ranked,
    /// for no fault of its own, its earlier figure stays; one that failed is out.
    fn take_rank(&mut self, task: usize, candidate: usize, m: &Measured) -> Result<()> {
        let b = &self.searches[task].best[candidate];
        let p = Pending {
            task,
            trial: b.trial,
            point: b.point.clone(),
            candidate: b.candidate.clone(),
            trace: schedule::print(&b.candidate.trace),
            search: Spent::default(),
        };
        let build = record::time_spent(Spent::default());
        let r = self.record(&p, Some(&b.built), m.outcome.clone(), build, Some(m), true);
        self.store.append(&[r], &[])?;
        self.worker_cpu_ns += m.whole.cpu_ns;
        if !matches!(m.outcome, Outcome::Unanswered { .. }) {
            let b = &mut self.searches[task].best[candidate];
            (b.ns, b.alone) = (m.outcome.median_ns().unwrap_or(u64::MAX), true);
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
