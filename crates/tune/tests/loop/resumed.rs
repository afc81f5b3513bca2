//! A run that is cut off and begun again.

use crate::fakes::{FakeEvaluator, Shared, cost_ns, crashed, scored, timed};
use crate::setting::{Setting, Wanted, options, product, search, wanted, x86};
use search::{Context, Point, Strategy, Told};
use std::collections::{BTreeMap, HashSet};
use store::{Clock, Conditions, Outcome, TIMED};
use tune::{Form, Options, Run, Trial};

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

/// Asks what `random` asks, and notes the tasks of the similar records that it is shown.
struct Curious {
    inner: Box<dyn Strategy + Send>,
    seen: Shared<String>,
}

impl Strategy for Curious {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let tasks = context.similar().iter().map(|r| r.task.clone());
        *self.seen.lock().unwrap() = tasks.collect();
        self.inner.ask(context, n)
    }

    fn tell(&mut self, told: &Told<'_>) {
        self.inner.tell(told);
    }
}

#[test]
fn similar_tasks_are_looked_up_when_somebody_asks_for_them() {
    let options = Options {
        filters: vec!["distinct".into(), "neighbours".into()],
        ..options(8)
    };
    let setting = Setting::new();
    let seen: Shared<String> = Shared::default();
    for (task, strategy) in [("a", "random"), ("b", "evolutionary"), ("c", "curious")] {
        let mut run = Run::new(setting.log(), &options).unwrap();
        let exact = |_: &_, t: &Trial| Outcome::Timed {
            samples_ns: vec![cost_ns(&t.point)],
            clock: Clock::ThreadCpu,
            conditions: Conditions {
                rel_l2: Some(0.0),
                ..Conditions::unproven(1, 1)
            },
        };
        let evaluator = FakeEvaluator::new(TIMED, Form::Schedule, 4, exact);
        run.add_evaluator(Box::new(evaluator));
        let curious = strategy == "curious";
        let wanted = Wanted {
            strategy: if curious { "random" } else { strategy },
            ..wanted(task, task)
        };
        let mut s = setting.of_program(&wanted, &product(), &x86(), &options);
        if curious {
            let inner = search::strategy("random", s.seed).unwrap();
            let seen = seen.clone();
            s.strategy = Box::new(Curious { inner, seen });
        }
        run.add_searches(vec![s]);
        search(&mut run);
        assert_eq!(run.searches[0].similar.get().is_some(), curious, "{task}");
    }
    assert_eq!(*seen.lock().unwrap(), ["a", "b"]);
}
