//! Filters in a run: what is dropped, in which order the others come, what is logged.

use crate::fakes::{FakeEvaluator, FakeFilter, SpiedStrategy, cost_ns, timed};
use crate::setting::{Setting, options, product, search, small_product, wanted, x86};
use std::collections::HashSet;
use store::EventKind;
use tune::filter::Verdict;
use tune::{Form, Options, Run, State};

fn with(filters: &[&str], trials: u64) -> Options {
    Options {
        filters: filters.iter().map(ToString::to_string).collect(),
        ..options(trials)
    }
}

#[test]
fn a_dropped_trial_is_skipped_logged_and_told_and_no_failure() {
    for form in [Form::Point, Form::Schedule] {
        let options = options(12);
        let setting = Setting::new();
        let mut run = Run::new(setting.log(), &options).unwrap();
        let evaluator = FakeEvaluator::new("fake-times", form, 4, |_, t| timed(cost_ns(&t.point)));
        let seen = evaluator.seen.clone();
        run.add_evaluator(Box::new(evaluator));
        let mut s = setting.of_program(&wanted("run", "task"), &product(), &x86(), &options);
        let spy = SpiedStrategy::spy(&mut s);
        s.filters.push(Box::new(FakeFilter {
            form,
            verdict: |t| match t.number % 3 {
                0 => Verdict::Drop { why: String::new() },
                _ => Verdict::Keep { score: 0.0 },
            },
        }));
        run.add_searches(vec![s]);
        search(&mut run);
        let s = &run.searches[0];
        let dropped = s.skipped["fake-filter"];
        assert_eq!(s.skipped.len(), 1);
        assert!(
            dropped >= 4 && !s.failures.contains_key("skipped"),
            "{form:?}"
        );
        assert_eq!((s.trials, s.told), (12, 12), "a dropped trial is none");
        let seen = seen.lock().unwrap();
        let mut evaluated = seen.iter().flat_map(|b| &b.trials);
        assert!(evaluated.all(|t| t.number % 3 != 0));

        let heard = spy.lock().unwrap();
        let skipped = heard.told.iter().filter(|t| t.1 == "skipped");
        assert!(skipped.clone().all(|t| t.2.is_none()));
        assert_eq!(skipped.count() as u64, dropped);
        let (mut asks, mut tells, mut listed) = (HashSet::new(), HashSet::new(), Vec::new());
        for (task, event) in setting.events("run") {
            assert_eq!(task.as_deref(), Some("task"));
            match event {
                EventKind::Ask(ask) => assert!(asks.insert(ask.trial)),
                EventKind::Tell(tell) if tell.outcome == "skipped" => {
                    assert!(asks.contains(&tell.trial), "asked before told");
                    tells.insert(tell.trial);
                }
                EventKind::Skipped(s) => {
                    assert_eq!(
                        (s.filter.as_str(), s.count),
                        ("fake-filter", s.trials.len() as u64)
                    );
                    listed.extend(s.trials);
                }
                _ => {}
            }
        }
        assert_eq!(tells.len() as u64, dropped);
        assert_eq!(listed.iter().copied().collect::<HashSet<_>>(), tells);
        assert!(listed.iter().all(|n| n % 3 == 0));
        let records = setting.records("run");
        assert!(records.iter().all(|r| r.trial % 3 != 0));
    }
}

#[test]
fn what_is_dropped_is_asked_for_again_within_the_same_turn() {
    let options = options(24);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let evaluator = FakeEvaluator::new("fake-times", Form::Point, 8, |_, t| {
        timed(cost_ns(&t.point))
    });
    let seen = evaluator.seen.clone();
    run.add_evaluator(Box::new(evaluator));
    let mut s = setting.of_knobs(&wanted("run", "task"), &[40, 40], &options);
    s.filters.push(Box::new(FakeFilter {
        form: Form::Point,
        verdict: |t| match t.number % 2 {
            0 => Verdict::Drop { why: String::new() },
            _ => Verdict::Keep { score: 0.0 },
        },
    }));
    run.add_searches(vec![s]);
    search(&mut run);
    // Half of every ask is dropped, and yet no batch is half empty: of 8 four are missing, then two, then one.
    let seen = seen.lock().unwrap();
    assert!(
        seen.iter().all(|b| b.trials.len() >= 7),
        "{:?}",
        seen.iter().map(|b| b.trials.len()).collect::<Vec<_>>()
    );
    assert!(run.searches[0].skipped["fake-filter"] >= 20);
}

#[test]
fn batches_come_in_the_order_of_scores() {
    let options = options(24);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let evaluator = FakeEvaluator::new("fake-times", Form::Point, 8, |_, t| {
        timed(cost_ns(&t.point))
    });
    let seen = evaluator.seen.clone();
    run.add_evaluator(Box::new(evaluator));
    let mut s = setting.of_knobs(&wanted("run", "task"), &[20, 20], &options);
    s.filters.push(Box::new(FakeFilter {
        form: Form::Point,
        verdict: |t| Verdict::Keep {
            score: -(t.number as f64),
        },
    }));
    run.add_searches(vec![s]);
    search(&mut run);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().any(|b| b.trials.len() > 2));
    for b in seen.iter() {
        let numbers: Vec<u64> = b.trials.iter().map(|t| t.number).rev().collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
}

#[test]
fn no_schedule_is_evaluated_twice_whatever_the_evaluator_takes() {
    for form in [Form::Point, Form::Schedule] {
        let options = with(&["distinct"], 10_000);
        let setting = Setting::new();
        let mut run = Run::new(setting.log(), &options).unwrap();
        let evaluator = FakeEvaluator::new("fake-times", form, 32, |_, t| timed(cost_ns(&t.point)));
        let seen = evaluator.seen.clone();
        run.add_evaluator(Box::new(evaluator));
        let s = setting.of_program(&wanted("run", "task"), &small_product(), &x86(), &options);
        // Every schedule is there twice.
        let mut twice = search::Space::clone(&s.space);
        twice.sketches.extend(s.space.sketches.clone());
        let s = setting.search(&wanted("run", "task"), &x86(), twice, s.subject, &options);
        run.add_searches(vec![s]);
        search(&mut run);
        let mut steps = HashSet::new();
        for t in seen.lock().unwrap().iter().flat_map(|b| &b.trials) {
            let candidate = t.candidate.as_ref().expect("the filter takes schedules");
            assert!(steps.insert(candidate.trace.decided_steps().unwrap()));
        }
        let s = &run.searches[0];
        assert!(s.skipped["distinct"] > 0);
        assert_eq!((s.state, s.trials), (State::Exhausted, steps.len() as u64));
    }
}

#[test]
fn what_is_near_slow_points_is_dropped_and_the_best_is_found() {
    let options = with(&["neighbours"], 1_000);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let slope = |_: &_, t: &tune::Trial| timed(10 + 10 * t.point.values[0] * t.point.values[0]);
    run.add_evaluator(Box::new(FakeEvaluator::new(
        "fake-slope",
        Form::Point,
        4,
        slope,
    )));
    let s = setting.of_knobs(&wanted("run", "task"), &[9, 9], &options);
    run.add_searches(vec![s]);
    search(&mut run);
    let s = &run.searches[0];
    let dropped = s.skipped["neighbours"];
    assert!(dropped > 9, "{dropped}");
    assert_eq!(s.trials + dropped, 81);
    assert_eq!(s.best_cost(), Some(10.0));
}

#[test]
fn the_chain_is_recorded_with_the_options_of_the_run() {
    let options = with(&["neighbours", "distinct"], 1);
    let setting = Setting::new();
    let s = setting.of_program(&wanted("run", "task"), &product(), &x86(), &options);
    let names: Vec<&str> = s.filters.iter().map(|f| f.name()).collect();
    assert_eq!(names, ["neighbours", "distinct"]);
    let stored = setting.store.run("run").unwrap().unwrap();
    assert_eq!(stored.options["filters"], serde_json::json!(names));
}

#[test]
fn a_table_has_no_schedules_for_a_filter() {
    let options = with(&["distinct"], 10);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    run.add_evaluator(Box::new(FakeEvaluator::of_points()));
    run.add_searches(vec![setting.of_knobs(
        &wanted("run", "table"),
        &[9, 9],
        &options,
    )]);
    let error = run.search(None, &mut tune::Silent).unwrap_err();
    assert!(
        error.to_string().contains("a filter needs schedules"),
        "{error}"
    );
}

#[test]
fn a_search_whose_candidates_are_all_dropped_is_given_up() {
    let options = options(10);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    run.add_evaluator(Box::new(FakeEvaluator::of_points()));
    let mut s = setting.of_knobs(&wanted("run", "task"), &[50, 50, 50], &options);
    s.filters.push(Box::new(FakeFilter {
        form: Form::Point,
        verdict: |_| Verdict::Drop { why: String::new() },
    }));
    run.add_searches(vec![s]);
    search(&mut run);
    let s = &run.searches[0];
    assert_eq!((s.state, s.trials), (State::Exhausted, 0));
    assert!(s.skipped["fake-filter"] < 50 * 50 * 50);
    let warnings = run.disturbances.warnings;
    assert!(
        warnings.iter().any(|w| w.contains("dropped by filters")),
        "{warnings:?}"
    );
}

#[test]
fn a_share_of_what_is_dropped_is_evaluated_all_the_same() {
    let options = Options {
        audit: 0.5,
        ..options(40)
    };
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let evaluator = FakeEvaluator::new("fake-times", Form::Point, 8, |_, t| {
        timed(cost_ns(&t.point))
    });
    run.add_evaluator(Box::new(evaluator));
    let mut s = setting.of_knobs(&wanted("run", "task"), &[40, 40], &options);
    s.filters.push(Box::new(FakeFilter {
        form: Form::Point,
        verdict: |t| match t.number % 2 {
            0 => Verdict::Drop { why: "even".into() },
            _ => Verdict::Keep { score: 0.0 },
        },
    }));
    run.add_searches(vec![s]);
    search(&mut run);
    let s = &run.searches[0];
    let audited = s.history.iter().filter(|h| h.1 == Some("fake-filter"));
    let audited = audited.count() as u64;
    let dropped = s.skipped["fake-filter"];
    assert!(audited > 5 && dropped > 5, "{audited} {dropped}");
    let (mut named, mut even) = (0, 0);
    for (_, event) in setting.events("run") {
        if let EventKind::Skipped(s) = event {
            assert!(s.reasons.iter().all(|why| why == "even"));
            assert_eq!(s.reasons.len(), s.trials.len());
            named += s.audited.len() as u64;
            even += s.audited.iter().filter(|n| *n % 2 == 0).count() as u64;
        }
    }
    assert_eq!((named, even), (audited, audited));
    let records = setting.records("run");
    let measured = records.iter().filter(|r| r.trial % 2 == 0).count() as u64;
    assert_eq!(measured, audited);
}
