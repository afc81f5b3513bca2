//! A run that is cut off and begun again.

use crate::fakes::{FakeEvaluator, cost_ns, crashed, scored, timed};
use crate::setting::{Setting, options, product, search, wanted, x86};
use std::collections::{BTreeMap, HashSet};
use store::{Outcome, TIMED};
use tune::{Form, Run, Trial};

fn judge(t: &Trial) -> Outcome {
    match cost_ns(&t.point) % 3 {
        0 => crashed(),
        _ => timed(cost_ns(&t.point)),
    }
}

/// A run of so many trials: the traces that the evaluator saw, what the store knew of the
/// others, and the best.
fn run(
    setting: &Setting,
    run_id: &str,
    evaluator: FakeEvaluator,
    trials: u64,
) -> (Vec<String>, u64, Option<f64>) {
    let options = options(trials);
    let mut run = Run::new(setting.log(), &options).unwrap();
    let seen = evaluator.seen.clone();
    run.add_evaluator(Box::new(evaluator));
    let s = setting.of_program(&wanted(run_id, "product"), &product(), &x86(), &options);
    run.add_searches(vec![s]);
    search(&mut run);
    let seen = seen.lock().unwrap();
    let traces = seen.iter().flat_map(|b| &b.trials).map(|t| t.trace.clone());
    let s = &run.searches[0];
    assert_eq!(s.trials, trials);
    (traces.collect(), s.cached, s.best_cost())
}

/// Measures, as far as the store can tell.
fn fake_timed() -> FakeEvaluator {
    FakeEvaluator::new(TIMED, Form::Schedule, 4, |_, t| judge(t))
}

#[test]
fn what_was_measured_is_not_measured_again() {
    let setting = Setting::new();
    let (first, cached, best) = run(&setting, "first", fake_timed(), 14);
    assert_eq!((first.len(), cached), (14, 0));
    let (second, cached, best_again) = run(&setting, "second", fake_timed(), 11);
    assert_eq!(second.len(), 11);
    let known: HashSet<&String> = first.iter().collect();
    assert!(second.iter().all(|trace| !known.contains(trace)));
    assert_eq!(cached, 14, "with the same seed it comes by all of them");
    // The known times count.
    assert!(best_again <= best);
    // As one run that was not cut off.
    let whole = Setting::new();
    let (all, _, best_of_all) = run(&whole, "whole", fake_timed(), 25);
    assert_eq!(all, [first, second].concat());
    assert_eq!(best_again, best_of_all);
    // The log says what was told, the known ones included.
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    for (_, e) in setting.events("second") {
        if let store::EventKind::Tell(t) = e {
            assert_eq!(t.evaluator, TIMED);
            *told.entry(t.outcome).or_default() += 1;
        }
    }
    let failed = told.remove("illegal").unwrap_or(0);
    assert_eq!(told.values().sum::<u64>(), 25, "and {failed} illegal ones");
    assert_eq!(setting.records("second").len(), 11);
}

#[test]
fn times_do_not_answer_who_scores() {
    let setting = Setting::new();
    run(&setting, "first", fake_timed(), 12);
    let scores = FakeEvaluator::new("fake-scores", Form::Schedule, 4, |_, t| {
        scored("steps", 1e9 + cost_ns(&t.point) as f64)
    });
    let (seen, cached, best) = run(&setting, "second", scores, 12);
    assert_eq!((seen.len(), cached), (12, 0));
    assert!(best.unwrap() >= 1e9);
    // Nor the other way round.
    let (seen, cached, _) = run(&setting, "third", fake_timed(), 12);
    assert_eq!((seen.len(), cached), (12, 12));
}
