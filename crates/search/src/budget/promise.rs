//! The search whose next trial promises most comes next.
//!
//! Owns an estimate of what a trial promises: the share of the model that the
//! task has, how far the task is from what the machine allows, how long ago
//! trials last improved it, and what a trial takes.

use super::{Budget, FIRST_ASKS, Standing, Turn, lively, untried};

/// A task at its bound may still improve by this share; the bound is an estimate.
const LEAST_GAP: f64 = 0.03;
/// The gap of a task that was not measured.
const UNKNOWN_GAP: f64 = 0.5;
/// Trials without improvement after which the promise has fallen by a factor of e.
const PATIENCE: f64 = 40.0;
const LEAST_HOPE: f64 = 0.02;
/// How much more than another trial the default of a sketch promises.
const DEFAULTS: f64 = 4.0;
/// Candidates of a search's first turn, where the search is not alone.
const FIRST_TURN: usize = 8;

/// Gives each turn to the search whose next trial promises most.
///
/// A search's next turn is as long as all its turns so far, up to a batch. So every task is
/// tried before any task gets a full batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promise;

impl Budget for Promise {
    fn turn(&mut self, searches: &[Standing], batches: &[usize]) -> Option<Turn> {
        let search = next(searches)?;
        let asks = asks(searches, search, batches[search]).max(1);
        Some(Turn { search, asks })
    }

    fn compares_costs(&self) -> bool {
        true
    }
}

/// Candidates that a search is asked for in its turn, of a batch.
fn asks(searches: &[Standing], search: usize, batch: usize) -> usize {
    if searches.len() == 1 {
        return batch;
    }
    let s = &searches[search];
    let asks = batch.min((s.trials as usize).max(FIRST_TURN));
    match untried(searches) {
        0 => asks,
        _ => asks.min(FIRST_ASKS.saturating_sub(s.asked).max(1) as usize),
    }
}

/// The search whose next trial promises most. One that had its first asks waits for those that
/// have no measurement, the least tried of which comes next, and one that is flat for all others.
fn next(searches: &[Standing]) -> Option<usize> {
    let promised = |i: &usize| promise(&searches[*i]);
    let by_promise = |a: &usize, b: &usize| promised(a).total_cmp(&promised(b));
    let best = lively(searches).max_by(by_promise)?;
    if searches[best].asked < FIRST_ASKS {
        return Some(best);
    }
    let least_tried = |a: &usize, b: &usize| searches[*a].asked.cmp(&searches[*b].asked);
    let untried = (0..searches.len()).filter(|i| searches[*i].is_untried());
    untried
        .min_by(|a, b| least_tried(a, b).then(by_promise(b, a)))
        .or(Some(best))
}

/// Share of its model's inference that a nanosecond of trials is expected to save; only
/// comparisons mean anything.
fn promise(s: &Standing) -> f64 {
    let gap = s.best.map_or(UNKNOWN_GAP, |cost| {
        (1.0 - s.bound / cost.max(1.0)).max(LEAST_GAP)
    });
    let hope = (-(s.since_best as f64) / PATIENCE).exp().max(LEAST_HOPE);
    let known = (s.asked as f64 + 4.0).sqrt();
    let default = (s.asked < s.sketches as u64).then_some(DEFAULTS);
    let cost = s.best.unwrap_or(s.guess) * s.uses as f64 * s.weight;
    cost * gap * hope * default.unwrap_or(1.0) / known / s.trial_ns.max(1.0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const START: Standing = Standing {
        best: None,
        guess: 1e6,
        bound: 5e5,
        uses: 1,
        weight: 1.0,
        operations: 0.0,
        family: 0,
        asked: 0,
        trials: 0,
        sketches: 4,
        since_best: 0,
        trial_ns: 1e8,
        open: true,
    };

    /// Trials that each task gets of `n`, when nothing ever improves.
    fn shares<const N: usize>(mut tasks: [Standing; N], n: u64) -> [u64; N] {
        let mut got = [0; N];
        for _ in 0..n {
            let next = next(&tasks).expect("none is exhausted");
            let t = &mut tasks[next];
            got[next] += 1;
            t.asked += 1;
            t.since_best += u64::from(t.best.is_some());
            t.best.get_or_insert(t.guess);
        }
        got
    }

    #[test]
    fn a_costly_task_has_the_defaults_of_all_its_sketches_tried_first() {
        let small = Standing {
            guess: 1e4,
            bound: 5e3,
            ..START
        };
        assert_eq!(shares([START, small], 4), [4, 0]);
        let [costly, cheap] = shares([START, small], 400);
        assert!(cheap >= 4 && costly > 5 * cheap, "{costly} {cheap}");
    }

    #[test]
    fn every_task_has_its_first_measurement_before_any_has_its_tenth() {
        let tiny = Standing {
            guess: 1.0,
            bound: 1.0,
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
        assert_eq!(asks(&[tiny, many], 1, 64), 8, "the first turn");
        let tried = Standing { trials: 30, ..many };
        assert_eq!(asks(&[tiny, tried], 1, 64), 9);
        assert_eq!(asks(&[tiny, Standing { asked: 8, ..many }], 1, 64), 1);
        let measured = Standing {
            best: Some(2.0),
            ..tiny
        };
        let run = |trials| Standing { trials, ..measured };
        assert_eq!(
            asks(&[measured, run(30)], 1, 64),
            30,
            "as long as all before"
        );
        assert_eq!(asks(&[measured, run(99)], 1, 64), 64);
        assert_eq!(asks(&[measured], 0, 64), 64, "alone");
        assert_eq!(shares([tiny, many, tiny], 30), [1, 28, 1]);
        // What never gives a measurement, or nothing to measure, holds up nobody.
        let mut tasks = [many, tiny];
        tasks[0] = Standing { asked: 9, ..many };
        assert_eq!(next(&tasks), Some(1));
        tasks[1].asked = 9;
        assert_eq!(next(&tasks), Some(0));
        tasks[1] = Standing {
            open: false,
            ..tiny
        };
        assert_eq!(next(&tasks), Some(0));
        tasks[0].open = false;
        assert_eq!(next(&tasks), None);
    }

    #[test]
    fn a_task_at_its_bound_gets_few_trials() {
        let done = Standing {
            best: Some(1e6),
            bound: 0.99e6,
            asked: 4,
            ..START
        };
        let open = Standing {
            bound: 0.5e6,
            ..done
        };
        let [at_bound, with_gap] = shares([done, open], 60);
        assert!(with_gap > 5 * at_bound, "{with_gap} {at_bound}");
    }

    #[test]
    fn a_small_model_is_tuned_beside_one_at_its_bound() {
        let done = Standing {
            best: Some(1e9),
            bound: 1e9,
            asked: 9,
            ..START
        };
        let small = Standing {
            best: Some(1e4),
            bound: 1e3,
            ..done
        };
        let own_model = Standing {
            weight: 1e5,
            ..small
        };
        let [at_bound, alone] = shares([done, own_model], 200);
        assert!(alone > at_bound, "{alone} {at_bound}");
        // A hundred-thousandth of one model is worth no trial.
        assert_eq!(shares([done, small], 200), [200, 0]);
    }

    #[test]
    fn uses_hope_and_the_cost_of_trials_count() {
        let base = promise(&START);
        let of = |s: Standing| promise(&s) / base;
        let times = |n: usize| Standing { uses: n, ..START };
        assert!((of(times(3)) - 3.0).abs() < 1e-9);
        let weighty = Standing {
            weight: 3.0,
            ..START
        };
        assert!((of(weighty) - 3.0).abs() < 1e-9);
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
}
