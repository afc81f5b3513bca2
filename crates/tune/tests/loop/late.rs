//! Answers that come late, out of order, or not at all.

use crate::fakes::{
    FakeEvaluator, Fate, LateEvaluator, LossyEvaluator, SpiedStrategy, cost_ns, crashed, timed,
    unanswered,
};
use crate::setting::{Setting, options, product, search, wanted, x86};
use store::Outcome;
use tune::{Form, Options, Run, State};

#[test]
fn answers_on_another_thread_may_come_out_of_order() {
    let options = Options {
        overlap: true,
        budget: "round-robin".into(),
        ..options(40)
    };
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let late = LateEvaluator::new(|_, t| timed(cost_ns(&t.point)));
    let order = late.order.clone();
    run.add_evaluator(Box::new(late));
    let mut a = setting.of_knobs(&wanted("a", "first"), &[20, 20], &options);
    let mut b = setting.of_knobs(&wanted("b", "second"), &[30, 30], &options);
    let spies = [SpiedStrategy::spy(&mut a), SpiedStrategy::spy(&mut b)];
    run.add_searches(vec![a, b]);
    search(&mut run);
    let order = order.lock().unwrap();
    assert!(!order.is_sorted(), "{order:?}");
    let trials: Vec<u64> = run.searches.iter().map(|s| s.trials).collect();
    assert_eq!(run.trials, 40);
    assert!(trials.iter().all(|n| *n >= 16), "{trials:?}");
    for ((s, spy), run_id) in run.searches.iter().zip(spies).zip(["a", "b"]) {
        let records = setting.records(run_id);
        assert_eq!(records.len() as u64, s.trials);
        assert_eq!(s.told, s.trials);
        let spy = spy.lock().unwrap();
        assert_eq!(spy.told.len() as u64, s.trials);
        for (point, label, cost) in &spy.told {
            assert_eq!((*label, *cost), ("timed", Some(cost_ns(point) as f64)));
        }
        let mut numbers: Vec<u64> = records.iter().map(|r| r.trial).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..s.trials).collect::<Vec<_>>());
    }
}

#[test]
fn failures_are_trials_and_what_is_unanswered_is_none() {
    let options = options(20);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    run.add_evaluator(Box::new(LateEvaluator::new(|_, t| match t.number % 4 {
        0 => crashed(),
        1 => unanswered(),
        _ => timed(cost_ns(&t.point)),
    })));
    let mut s = setting.of_program(&wanted("run", "product"), &product(), &x86(), &options);
    let spy = SpiedStrategy::spy(&mut s);
    run.add_searches(vec![s]);
    search(&mut run);
    let s = &run.searches[0];
    assert_eq!((run.trials, s.trials, s.state), (20, 20, State::Open));
    let count = |label: &str| {
        let spy = spy.lock().unwrap();
        spy.told.iter().filter(|t| t.1 == label).count() as u64
    };
    assert_eq!(count("crashed-run") + count("timed"), 20);
    assert!(count("crashed-run") >= 6 && count("unanswered") >= 6);
    assert_eq!(s.failures["crashed-run"], count("crashed-run"));
    assert_eq!(s.failures["unanswered"], count("unanswered"));
    assert_eq!(s.told, 20 + count("unanswered"));
    assert!(s.skipped.is_empty());
    // Of a program, that too is recorded; it has no cost, and is not known of the candidate.
    let records = setting.records("run");
    let none = |r: &&store::Record| matches!(r.outcome, Outcome::Unanswered { .. });
    let unanswered = records.iter().filter(none);
    assert_eq!(unanswered.clone().count() as u64, count("unanswered"));
    assert!(unanswered.clone().all(|r| r.outcome.cost().is_none()));
}

#[test]
fn a_search_without_answers_is_given_up_and_others_go_on() {
    let options = options(30);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let deaf = FakeEvaluator::new("fake-deaf", Form::Point, 4, |batch, t| match &*batch.task {
        "deaf" => unanswered(),
        _ => timed(cost_ns(&t.point)),
    });
    run.add_evaluator(Box::new(deaf));
    let a = setting.of_program(&wanted("a", "deaf"), &product(), &x86(), &options);
    let b = setting.of_program(&wanted("b", "heard"), &product(), &x86(), &options);
    run.add_searches(vec![a, b]);
    search(&mut run);
    assert_eq!(run.searches[0].state, State::Exhausted);
    assert_eq!(run.searches[0].trials, 0);
    assert_eq!(run.searches[0].best_cost(), None);
    assert_eq!(run.searches[1].trials, 30);
}

/// A run of 20 trials on a space of knobs, or on a program, with such losses: its state, its
/// trials, the labels that the strategy heard in their order, and the warnings.
fn lossy(fate: fn(u64) -> Fate, program: bool) -> (State, u64, Vec<&'static str>, Vec<String>) {
    let options = options(20);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    run.add_evaluator(Box::new(LossyEvaluator::new(fate)));
    let wanted = wanted("run", "task");
    let mut s = match program {
        true => setting.of_program(&wanted, &product(), &x86(), &options),
        false => setting.of_knobs(&wanted, &[20, 20], &options),
    };
    let spy = SpiedStrategy::spy(&mut s);
    run.add_searches(vec![s]);
    search(&mut run);
    let s = &run.searches[0];
    assert_eq!(s.trials, run.trials);
    let spy = spy.lock().unwrap();
    assert_eq!(spy.told.len(), spy.asked.len(), "each was told");
    let labels: Vec<&str> = spy.told.iter().map(|t| t.1).collect();
    let timed = labels.iter().filter(|l| **l == "timed").count() as u64;
    assert_eq!(timed, s.trials);
    let told = setting
        .events("run")
        .into_iter()
        .filter_map(|(_, e)| match e {
            store::EventKind::Tell(t) => Some(t.outcome),
            _ => None,
        });
    assert_eq!(told.collect::<Vec<_>>(), labels);
    (s.state, s.trials, labels, run.disturbances.warnings.clone())
}

#[test]
fn a_lost_batch_holds_nothing_up() {
    for program in [true, false] {
        let second = |n| if n == 1 { Fate::Lost } else { Fate::Answered };
        let (state, trials, labels, warnings) = lossy(second, program);
        assert_eq!((state, trials), (State::Open, 20));
        let lost = labels.iter().filter(|l| **l == "unanswered").count();
        assert_eq!(lost, 4);
        assert_eq!(
            warnings,
            ["the evaluator `fake-lossy` gave no answer to 4 of a batch of 4 candidates of task"]
        );
    }
}

#[test]
fn missing_answers_of_a_reply_are_unanswered() {
    for program in [true, false] {
        let all = |_| Fate::Short(3);
        let (state, trials, labels, warnings) = lossy(all, program);
        assert_eq!((state, trials), (State::Open, 20));
        assert_eq!(
            labels[..5],
            ["unanswered", "timed", "timed", "timed", "unanswered"]
        );
        assert!(warnings[0].contains("no answer to 1 of a batch of 4"));
    }
}

#[test]
fn a_search_whose_batches_are_all_lost_is_given_up() {
    let fates: [fn(u64) -> Fate; 2] = [|_| Fate::Lost, |_| Fate::Short(0)];
    for (fate, program) in fates.into_iter().flat_map(|f| [(f, true), (f, false)]) {
        let (state, trials, labels, warnings) = lossy(fate, program);
        assert_eq!((state, trials), (State::Exhausted, 0));
        assert!(labels.iter().all(|l| *l == "unanswered"));
        assert!(warnings.last().unwrap().ends_with("the task is given up"));
    }
}
