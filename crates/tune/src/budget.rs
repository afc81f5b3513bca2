//! Which task gets the next trial.
//!
//! Owns an estimate of what a trial promises: the share of the model that the
//! task has, how far it is from what the machine allows, how long ago trials
//! last improved it, and what a trial costs. Pure: equal standings give equal
//! choices.

use crate::machine::Limits;

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

/// Candidates that a task is asked for, at most, while others have no measurement: every task has
/// its first before any has its tenth.
const FIRST_ASKS: u64 = 9;

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
    /// Whether there is nothing left to ask for.
    pub exhausted: bool,
}

/// Nanoseconds that `flops` operations on `bytes` of operands take at least.
pub fn bound_ns(flops: f64, bytes: f64, inexact: bool, limits: &Limits, threads: u32) -> f64 {
    let threads = f64::from(threads);
    let saved = if inexact { INEXACT_SAVES } else { 1.0 };
    let compute = flops / (limits.peak_gflops * threads * saved);
    compute.max(bytes / (limits.read_gb_per_s * threads))
}

impl Standing {
    /// Whether the task has no measurement, and has not had its fair number of tries.
    fn is_open(&self) -> bool {
        self.best_ns.is_none() && self.asked < FIRST_ASKS && !self.exhausted
    }
}

/// Tasks that have no measurement, and have not had their fair number of tries.
pub fn unmeasured(tasks: &[Standing]) -> usize {
    tasks.iter().filter(|t| t.is_open()).count()
}

/// Candidates that a task may be asked for next, at most, of so many.
pub fn turn(tasks: &[Standing], task: usize, size: usize) -> usize {
    match unmeasured(tasks) {
        0 => size,
        _ => size.min(FIRST_ASKS.saturating_sub(tasks[task].asked).max(1) as usize),
    }
}

/// The task whose next trial promises most. One that had its first ones waits for those that
/// have no measurement, the least tried of which comes next.
pub fn next(tasks: &[Standing]) -> Option<usize> {
    let by_promise = |a: &usize, b: &usize| promise(&tasks[*a]).total_cmp(&promise(&tasks[*b]));
    let all = || 0..tasks.len();
    let best = all().filter(|i| !tasks[*i].exhausted).max_by(by_promise)?;
    if tasks[best].asked < FIRST_ASKS {
        return Some(best);
    }
    let least_tried = |a: &usize, b: &usize| tasks[*a].asked.cmp(&tasks[*b].asked);
    let open = all().filter(|i| tasks[*i].is_open());
    open.min_by(|a, b| least_tried(a, b).then(by_promise(b, a)))
        .or(Some(best))
}

/// Nanoseconds of an inference that a nanosecond of trials is expected to save;
/// only comparisons mean anything.
fn promise(s: &Standing) -> f64 {
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
        exhausted: false,
    };

    /// Trials that each task gets of `n`, when nothing ever improves.
    fn shares<const N: usize>(mut tasks: [Standing; N], n: u64) -> [u64; N] {
        let mut got = [0; N];
        for _ in 0..n {
            let next = next(&tasks).expect("none is exhausted");
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
    fn every_task_has_its_first_measurement_before_any_has_its_tenth() {
        let tiny = Standing {
            guess_ns: 1.0,
            bound_ns: 1.0,
            ..START
        };
        let many = Standing {
            sketches: 100,
            ..START
        };
        assert_eq!(shares([tiny, many, tiny], 9), [0, 9, 0]);
        assert_eq!(shares([tiny, many, tiny], 11), [1, 9, 1]);
        let costly = [many, many, many, tiny, tiny];
        assert_eq!(shares(costly, 30)[3..], [1, 1], "one each, not nine");
        assert_eq!(turn(&[tiny, many], 1, 64), 9);
        assert_eq!(turn(&[tiny, Standing { asked: 8, ..many }], 1, 64), 1);
        let measured = Standing {
            best_ns: Some(2.0),
            ..tiny
        };
        assert_eq!(turn(&[measured, measured], 1, 64), 64);
        assert_eq!(shares([tiny, many, tiny], 30), [1, 28, 1]);
        // What never gives a measurement, or nothing to measure, holds up nobody.
        let mut tasks = [many, tiny];
        tasks[0] = Standing { asked: 9, ..many };
        assert_eq!(next(&tasks), Some(1));
        tasks[1].asked = 9;
        assert_eq!(next(&tasks), Some(0));
        tasks[1] = Standing {
            exhausted: true,
            ..tiny
        };
        assert_eq!(next(&tasks), Some(0));
        tasks[0].exhausted = true;
        assert_eq!(next(&tasks), None);
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
