//! Which task gets the next trial.
//!
//! Owns an estimate of what a trial promises: the share of the model that the
//! task has, how far it is from what the machine allows, how long ago trials
//! last improved it, and what a trial costs. Pure: equal standings give equal
//! choices.

use crate::doctor::Limits;

/// Multiply-adds that inexact algorithms save, at most: F(6x6, 3x3) does 8 * 8 for 6 * 6 * 3 * 3.
const INEXACT_SAVES: f64 = 324.0 / 64.0;
/// A task at its bound may still improve by this share; the bound is an estimate.
const LEAST_GAP: f64 = 0.03;
/// The gap of a task that was not measured.
const UNKNOWN_GAP: f64 = 0.5;
/// Trials without improvement after which the promise has fallen by a factor of e.
const PATIENCE: f64 = 40.0;
const LEAST_HOPE: f64 = 0.02;
/// How much more than another trial the default of a sketch promises.
const DEFAULTS: f64 = 4.0;

/// What is known of a task.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Of one call, the best so far; nothing before the first time.
    pub best_ns: Option<f64>,
    /// Of one call, before anything is known.
    pub guess_ns: f64,
    /// No schedule takes less.
    pub bound_ns: f64,
    /// Calls in one inference.
    pub uses: usize,
    /// Candidates asked for, those on their way included.
    pub asked: u64,
    pub sketches: usize,
    /// Times told since the best improved.
    pub since_best: u64,
    /// Mean time of a trial.
    pub trial_ns: f64,
}

/// Nanoseconds that `flops` operations on `bytes` of operands take at least.
pub fn bound_ns(flops: f64, bytes: f64, inexact: bool, limits: &Limits, threads: u32) -> f64 {
    let threads = f64::from(threads);
    let saved = if inexact { INEXACT_SAVES } else { 1.0 };
    let compute = flops / (limits.peak_gflops * threads * saved);
    compute.max(bytes / (limits.read_gb_per_s * threads))
}

/// Nanoseconds of an inference that a nanosecond of trials is expected to save;
/// only comparisons mean anything.
pub fn promise(s: &Standing) -> f64 {
    let gap = s.best_ns.map_or(UNKNOWN_GAP, |ns| {
        (1.0 - s.bound_ns / ns.max(1.0)).max(LEAST_GAP)
    });
    let hope = (-(s.since_best as f64) / PATIENCE).exp().max(LEAST_HOPE);
    let known = (s.asked as f64 + 4.0).sqrt();
    let default = (s.asked < s.sketches as u64).then_some(DEFAULTS);
    let ns = s.best_ns.unwrap_or(s.guess_ns) * s.uses as f64;
    ns * gap * hope * default.unwrap_or(1.0) / known / s.trial_ns.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Standing = Standing {
        best_ns: None,
        guess_ns: 1e6,
        bound_ns: 5e5,
        uses: 1,
        asked: 0,
        sketches: 4,
        since_best: 0,
        trial_ns: 1e8,
    };

    /// Trials that each of two tasks gets of `n`, when nothing ever improves.
    fn shares(mut tasks: [Standing; 2], n: u64) -> [u64; 2] {
        let mut got = [0; 2];
        for _ in 0..n {
            let next = usize::from(promise(&tasks[1]) > promise(&tasks[0]));
            let t = &mut tasks[next];
            got[next] += 1;
            t.asked += 1;
            t.since_best += u64::from(t.best_ns.is_some());
            t.best_ns.get_or_insert(t.guess_ns);
        }
        got
    }

    #[test]
    fn a_costly_task_has_the_defaults_of_all_its_sketches_tried_first() {
        let small = Standing {
            guess_ns: 1e4,
            bound_ns: 5e3,
            ..START
        };
        assert_eq!(shares([START, small], 4), [4, 0]);
        let [costly, cheap] = shares([START, small], 400);
        assert!(cheap >= 4 && costly > 5 * cheap, "{costly} {cheap}");
    }

    #[test]
    fn a_task_at_its_bound_gets_few_trials() {
        let done = Standing {
            best_ns: Some(1e6),
            bound_ns: 0.99e6,
            asked: 4,
            ..START
        };
        let open = Standing {
            bound_ns: 0.5e6,
            ..done
        };
        let [at_bound, with_gap] = shares([done, open], 60);
        assert!(with_gap > 5 * at_bound, "{with_gap} {at_bound}");
    }

    #[test]
    fn uses_hope_and_the_cost_of_trials_count() {
        let base = promise(&START);
        let of = |s: Standing| promise(&s) / base;
        let times = |n: usize| Standing { uses: n, ..START };
        assert!((of(times(3)) - 3.0).abs() < 1e-9);
        let slow = Standing {
            trial_ns: 4e8,
            ..START
        };
        assert!((of(slow) - 0.25).abs() < 1e-9);
        let stale = Standing {
            since_best: 80,
            ..START
        };
        assert!(of(stale) < 0.2 && of(stale) > 0.0);
    }

    #[test]
    fn the_bound_is_the_larger_of_compute_and_memory() {
        let limits = Limits {
            peak_gflops: 100.0,
            read_gb_per_s: 20.0,
        };
        assert_eq!(bound_ns(1e6, 1e3, false, &limits, 1), 1e4);
        assert_eq!(bound_ns(1e6, 1e3, false, &limits, 2), 5e3);
        assert_eq!(bound_ns(1e6, 1e3, true, &limits, 1), 1e4 / INEXACT_SAVES);
        assert_eq!(bound_ns(1e6, 1e6, true, &limits, 1), 5e4);
    }
}
