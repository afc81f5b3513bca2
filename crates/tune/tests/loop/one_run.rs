//! Two programs, targets, strategies and evaluators in one run.

use crate::fakes::{FakeEvaluator, Heard, Judge, SpiedStrategy, cost_ns, scored, timed};
use crate::setting::{Setting, Wanted, neon, options, other_product, product, search, wanted, x86};
use std::sync::{Arc, Mutex};
use store::{Cost, Outcome, Record};
use tune::machine::target_key;
use tune::{Form, Options, Run, Silent};

const TRIALS: u64 = 60;
/// (run, task, strategy, position of the evaluator).
const SEARCHES: [(&str, &str, &str, usize); 4] = [
    ("a", "product", "evolutionary", 0),
    ("b", "product", "random", 1),
    ("c", "small", "random", 0),
    ("d", "small", "evolutionary", 1),
];

fn mixed(setting: &Setting, options: &Options) -> Vec<(tune::Search, Arc<Mutex<Heard>>)> {
    let one = |(run_id, task, strategy, evaluator)| {
        let wanted = Wanted {
            strategy,
            evaluator,
            ..wanted(run_id, task)
        };
        let program = if task == "product" {
            product()
        } else {
            other_product()
        };
        let target = if evaluator == 0 { x86() } else { neon() };
        let mut search = setting.of_program(&wanted, &program, &target, options);
        let heard = SpiedStrategy::spy(&mut search);
        (search, heard)
    };
    SEARCHES.into_iter().map(one).collect()
}

/// The records of a search, what its strategy heard, and its least cost.
type Searched = (Vec<Record>, Arc<Mutex<Heard>>, Option<f64>);

/// The second evaluator: by scores, or by times.
fn second(scores: bool) -> FakeEvaluator {
    let judge: Judge = match scores {
        true => |_, t| scored("steps", -(cost_ns(&t.point) as f64)),
        false => |_, t| timed(20_000 - cost_ns(&t.point)),
    };
    let mut evaluator = FakeEvaluator::new("fake-scores", Form::Schedule, 3, judge);
    evaluator.score_kind = scores.then_some("steps");
    evaluator
}

/// A run of them all.
fn run(options: &Options, scores: bool) -> Vec<Searched> {
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), options).unwrap();
    let times = |_: &_, t: &tune::Trial| timed(cost_ns(&t.point));
    let times = FakeEvaluator::new("fake-times", Form::Point, 4, times);
    assert_eq!(run.add_evaluator(Box::new(times)), 0);
    assert_eq!(run.add_evaluator(Box::new(second(scores))), 1);
    let (searches, heard): (Vec<_>, Vec<_>) = mixed(&setting, options).into_iter().unzip();
    assert_eq!(run.add_searches(searches), 0..4);
    search(&mut run);
    assert_eq!(run.trials, TRIALS);
    let best = run.searches.iter().map(|s| s.best_cost());
    let records = SEARCHES.map(|(run_id, ..)| setting.records(run_id));
    let records = records.into_iter().zip(heard).zip(best);
    records.map(|((r, h), b)| (r, h, b)).collect()
}

fn point(r: &Record) -> search::Point {
    let values: Vec<u64> = r.decisions.iter().map(|d| d.index).collect();
    search::Point {
        sketch: values[0] as usize,
        values: values[1..].to_vec(),
    }
}

#[test]
fn every_answer_is_told_to_the_search_that_asked() {
    let options = Options {
        budget: "round-robin".into(),
        ..options(TRIALS)
    };
    for ((records, heard, best), (_, task, strategy, evaluator)) in
        run(&options, true).into_iter().zip(SEARCHES)
    {
        let heard = heard.lock().unwrap();
        assert!(records.len() >= 12, "{task}: {}", records.len());
        let target = if evaluator == 0 { x86() } else { neon() };
        let mut told = Vec::new();
        for r in &records {
            assert_eq!((r.task.as_str(), r.strategy.as_str()), (task, strategy));
            assert_eq!(r.target, target_key(&target).text());
            assert_eq!(r.evaluator, ["fake-times", "fake-scores"][evaluator]);
            let ns = cost_ns(&point(r)) as f64;
            let expected = match evaluator {
                0 => Cost::Time { ns: ns as u64 },
                _ => Cost::Score {
                    kind: "steps".into(),
                    value: -ns,
                },
            };
            assert_eq!(r.outcome.cost(), Some(expected.clone()));
            told.push((point(r), r.outcome.label(), Some(expected.value())));
        }
        let asked: Vec<&search::Point> = heard.asked.iter().collect();
        let answered: Vec<&search::Point> = heard.told.iter().map(|(p, ..)| p).collect();
        assert_eq!(asked, answered, "each once, in the order of asking");
        // What was illegal was told, and has no record.
        let legal = heard
            .told
            .iter()
            .filter(|(_, label, _)| *label != "rejected");
        assert_eq!(legal.cloned().collect::<Vec<_>>(), told);
        let least = told.iter().filter_map(|t| t.2).reduce(f64::min);
        assert_eq!(best, least);
    }
}

#[test]
fn a_run_of_so_many_trials_is_a_function_of_its_seed() {
    let records = |options: &Options| -> Vec<Vec<Record>> {
        let scores = options.budget == "round-robin";
        run(options, scores)
            .into_iter()
            .map(|(records, ..)| records)
            .collect()
    };
    for budget in search::budget_names() {
        let first = Options {
            budget: budget.into(),
            ..options(TRIALS)
        };
        let larger_machine = Options {
            builders: 30,
            begun: std::time::Instant::now(),
            ..first.clone()
        };
        assert_eq!(records(&first), records(&larger_machine), "{budget}");
    }
}

#[test]
fn a_cost_of_another_kind_is_no_cost() {
    let options = options(9);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    // Every third answer is a time, and looks like the least score.
    let judge = |_: &_, t: &tune::Trial| match t.number % 3 {
        1 => timed(1),
        _ => scored("steps", 100.0 + t.number as f64),
    };
    let evaluator = FakeEvaluator::new("fake-mixed", Form::Point, 4, judge);
    run.add_evaluator(Box::new(evaluator));
    let mut s = setting.of_knobs(&wanted("run", "task"), &[9, 9], &options);
    let heard = SpiedStrategy::spy(&mut s);
    run.add_searches(vec![s]);
    search(&mut run);
    let s = &run.searches[0];
    assert_eq!(s.best_cost(), Some(100.0));
    assert!(s.best.iter().all(|b| b.cost >= 100.0));
    assert_eq!(s.failures.values().sum::<u64>(), 3, "{:?}", s.failures);
    let heard = heard.lock().unwrap();
    let none = heard.told.iter().filter(|t| t.2.is_none()).count();
    assert_eq!(none, 3);
    // The records keep what was answered.
    let times = setting.records("run");
    let timed = |r: &&Record| matches!(r.outcome, Outcome::Timed { .. });
    assert_eq!(times.iter().filter(timed).count(), 3);
}

#[test]
fn a_budget_that_compares_costs_refuses_several_kinds() {
    for (budget, refuses) in [("promise", true), ("round-robin", false)] {
        let options = Options {
            budget: budget.into(),
            ..options(9)
        };
        let setting = Setting::new();
        let mut run = Run::new(setting.log(), &options).unwrap();
        run.add_evaluator(Box::new(FakeEvaluator::of_points()));
        run.add_evaluator(Box::new(second(true)));
        let (searches, _): (Vec<_>, Vec<_>) = mixed(&setting, &options).into_iter().unzip();
        run.add_searches(searches);
        let done = run.search(None, &mut Silent);
        assert_eq!(done.is_err(), refuses, "{budget}");
        let Err(refused) = done else { continue };
        let text = refused.to_string();
        for part in [
            "`promise`",
            "`fake-times` answers product with times",
            "`fake-scores` answers product with scores of the kind `steps`",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(refused.advice().unwrap().contains("round-robin"));
        assert_eq!((run.trials, setting.events("a").len()), (0, 0));
        // What is not open is not compared.
        for s in run.searches.iter_mut().filter(|s| s.evaluator == 1) {
            s.suspend();
        }
        search(&mut run);
        assert_eq!(run.trials, 9);
    }
}

#[test]
fn an_evaluator_gets_the_program_the_target_and_the_place() {
    let options = Options {
        budget: "round-robin".into(),
        ..options(16)
    };
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let evaluator = FakeEvaluator::new("fake-times", Form::Schedule, 4, |_, t| {
        timed(cost_ns(&t.point))
    });
    let seen = evaluator.seen.clone();
    run.add_evaluator(Box::new(evaluator));
    let a = setting.of_program(&wanted("a", "product"), &product(), &x86(), &options);
    let b = setting.of_program(&wanted("b", "product"), &product(), &neon(), &options);
    run.add_searches(vec![a, b]);
    search(&mut run);
    let seen = seen.lock().unwrap();
    for target in [x86(), neon()] {
        let of = |b: &&tune::evaluator::Batch| b.target.as_deref() == Some(&target);
        let batches: Vec<_> = seen.iter().filter(of).collect();
        assert!(!batches.is_empty());
        for b in batches {
            assert_eq!(b.place.target, target_key(&target).text());
            let program = b.program.as_deref().expect("it is no table");
            for t in &b.trials {
                let trace = &t.candidate.as_ref().expect("it was replayed").trace;
                let mut scheduled = program.clone();
                for step in &trace.steps {
                    step.apply(&mut scheduled, &trace.decisions).unwrap();
                }
            }
        }
    }
}

#[test]
fn expected_outputs_are_computed_by_code_for_the_host() {
    let options = options(1);
    let setting = Setting::new();
    let s = setting.of_program(&wanted("run", "product"), &product(), &neon(), &options);
    let subject = s.subject.as_ref().unwrap();
    let host = tune::machine::Machine::host().target(1);
    let (plain, target) = subject.plain().unwrap();
    assert_eq!(target, &host);
    assert_eq!(plain, search::fallback(&product(), &host).unwrap());
}
