//! A run that is cut off and begun again.

use crate::fakes::{FakeEvaluator, Shared, cost_ns, crashed, scored, timed};
use crate::setting::{Setting, Wanted, options, product, search, small_product, wanted, x86};
use search::{Context, Point, Space, Strategy, Told};
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Conditions, EventKind, Outcome, TIMED};
use tune::compile::Builders;
use tune::evaluator::{Batch, Evaluator, Reply};
use tune::filter::{Filter, Past, Verdict};
use tune::{Form, Options, Proposer, Run, Search, Silent, Trial, Workers};
use worker::{CommandLine, Stop};

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

/// Asks what `random` asks, and notes the similar tasks that it is shown.
struct Curious {
    inner: Box<dyn Strategy + Send>,
    seen: Shared<String>,
}

impl Strategy for Curious {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let tasks = context.similar().iter().map(|t| t.key.clone());
        *self.seen.lock().unwrap() = tasks.collect();
        self.inner.ask(context, n)
    }

    fn tell(&mut self, told: &Told<'_>) {
        self.inner.tell(told);
    }

    fn revise(&mut self, point: &Point, cost: f64) {
        self.inner.revise(point, cost);
    }

    fn reads_similar(&self) -> bool {
        true
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
            s.strategy = Proposer::new(Box::new(Curious { inner, seen }));
        }
        run.add_searches(vec![s]);
        search(&mut run);
        assert_eq!(run.searches[0].similar.get().is_some(), curious, "{task}");
    }
    assert_eq!(*seen.lock().unwrap(), ["a", "b"]);
}

/// Answers by a function of the decisions, and is cut off with its run when it is handed one batch more.
struct Mortal {
    inner: FakeEvaluator,
    left: usize,
}

impl Evaluator for Mortal {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn form(&self) -> Form {
        self.inner.form()
    }

    fn score_kind(&self, task: &str) -> Option<String> {
        self.inner.score_kind(task)
    }

    fn batch(&self) -> usize {
        self.inner.batch()
    }

    fn submit(&mut self, batch: Batch) {
        assert!(self.left > 0, "killed");
        self.left -= 1;
        self.inner.submit(batch);
    }

    fn poll(&mut self, wait: Duration, quiet: &mut dyn FnMut(bool)) -> Option<Reply> {
        self.inner.poll(wait, quiet)
    }
}

/// Who proposes and drops candidates, and in which space.
#[derive(Clone, Copy, Debug)]
struct Asker<'a> {
    strategy: &'a str,
    filters: &'a [&'a str],
    search: fn(&Setting, &Wanted<'_>, &Options) -> Search,
    /// Batches after which the first and the second run are killed.
    killed_after: (usize, usize),
}

/// Of a table.
fn of_table<'a>(strategy: &'a str, filters: &'a [&'a str]) -> Asker<'a> {
    Asker {
        strategy,
        filters,
        search: |setting, wanted, options| setting.of_knobs(wanted, &[9, 8, 7], options),
        killed_after: (7, 5),
    }
}

/// The points that are answered in a run of so many trials, which is killed after so many batches and goes on from
/// earlier runs; and those that filters drop.
fn answered(
    setting: &Setting,
    asker: Asker<'_>,
    (run_id, earlier): (&str, &[String]),
    (trials, batches): (u64, usize),
) -> (Vec<Point>, Vec<Point>) {
    let Asker {
        strategy, filters, ..
    } = asker;
    let options = Options {
        filters: filters.iter().map(ToString::to_string).collect(),
        audit: 0.2,
        ..options(trials)
    };
    let mut run = Run::new(setting.log(), &options).unwrap();
    let inner = FakeEvaluator::of_points();
    let seen = inner.seen.clone();
    let left = batches;
    run.add_evaluator(Box::new(Mortal { inner, left }));
    let wanted = Wanted {
        strategy,
        ..wanted(run_id, "table")
    };
    let mut s = (asker.search)(setting, &wanted, &options);
    let goes_on = s.go_on(&setting.store, earlier).unwrap();
    assert_eq!(goes_on, !earlier.is_empty(), "{strategy}");
    run.add_searches(vec![s]);
    let whole = catch_unwind(AssertUnwindSafe(|| search(&mut run)));
    assert_eq!(whole.is_ok(), batches == usize::MAX, "{strategy}");
    let seen = seen.lock().unwrap();
    let trials = seen.iter().flat_map(|b| &b.trials);
    let points = trials.map(|t| t.point.clone()).collect();
    (points, dropped(setting, run_id))
}

/// The points that filters dropped in a run.
fn dropped(setting: &Setting, run_id: &str) -> Vec<Point> {
    let (mut asked, mut dropped) = (BTreeMap::new(), Vec::new());
    for (_, event) in setting.events(run_id) {
        match event {
            EventKind::Ask(a) => {
                let sketch = a.sketch as usize;
                let values = a.values;
                asked.insert(a.trial, Point { sketch, values });
            }
            EventKind::Skipped(s) => dropped.extend(s.trials.iter().map(|n| asked[n].clone())),
            _ => {}
        }
    }
    dropped
}

/// A run of so many trials, whole and killed twice, asks and drops the same; the points that it
/// asks, and those that it drops.
fn same_when_killed_twice(asker: Asker<'_>, trials: u64) -> (Vec<Point>, Vec<Point>) {
    const WHOLE: usize = usize::MAX;
    let setting = Setting::new();
    let all = answered(&setting, asker, ("whole", &[]), (trials, WHOLE));
    let setting = Setting::new();
    let (first, drops) = answered(&setting, asker, ("1", &[]), (trials, asker.killed_after.0));
    let runs = ["1".to_string()];
    let left = trials - first.len() as u64;
    let (second, more) = answered(&setting, asker, ("2", &runs), (left, asker.killed_after.1));
    let runs = ["1".to_string(), "2".to_string()];
    let left = left - second.len() as u64;
    let (third, last) = answered(&setting, asker, ("3", &runs), (left, WHOLE));
    assert_eq!([first, second, third].concat(), all.0, "{asker:?}");
    assert_eq!([drops, more, last].concat(), all.1, "{asker:?}");
    all
}

#[test]
fn a_run_that_is_killed_twice_asks_what_it_would_have_asked() {
    for strategy in search::strategy_names() {
        let (all, _) = same_when_killed_twice(of_table(strategy, &[]), 80);
        assert_eq!(all.len(), 80, "{strategy}");
    }
}

#[test]
fn filters_that_choose_by_chance_choose_the_same_when_a_run_was_killed() {
    for filters in [
        &["chance"][..],
        &["cold"],
        &["neighbours"],
        &["chance", "cold"],
    ] {
        let (_, drops) = same_when_killed_twice(of_table("evolutionary", filters), 120);
        assert_ne!(drops, [], "{filters:?}");
    }
}

#[test]
fn a_schedule_of_an_earlier_run_is_none_that_is_new() {
    // Every schedule is there twice.
    let search: fn(&Setting, &Wanted<'_>, &Options) -> Search = |setting, wanted, options| {
        let s = setting.of_program(wanted, &small_product(), &x86(), options);
        let mut twice = Space::clone(&s.space);
        twice.sketches.extend(s.space.sketches.clone());
        setting.search(wanted, &x86(), twice, s.subject, options)
    };
    let asker = Asker {
        strategy: "random",
        filters: &["distinct"],
        search,
        killed_after: (2, 2),
    };
    let (all, drops) = same_when_killed_twice(asker, 60);
    assert!(drops.len() > 5, "{} of {}", drops.len(), all.len());
}

/// Takes its time to ask what `random` asks, and notes all that it is asked and told.
struct Slow {
    inner: Box<dyn Strategy + Send>,
    heard: Shared<(&'static str, Vec<Point>)>,
}

impl Slow {
    fn put_into(search: &mut Search) -> Shared<(&'static str, Vec<Point>)> {
        let inner = search::strategy("random", search.seed).unwrap();
        let heard = Shared::default();
        let slow = Slow {
            inner,
            heard: Arc::clone(&heard),
        };
        search.strategy = Proposer::new(Box::new(slow));
        heard
    }
}

impl Strategy for Slow {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        std::thread::sleep(Duration::from_millis(5));
        let points = self.inner.ask(context, n);
        self.heard.lock().unwrap().push(("asked", points.clone()));
        points
    }

    fn tell(&mut self, told: &Told<'_>) {
        let point = vec![told.point.clone()];
        self.heard.lock().unwrap().push(("told", point));
        self.inner.tell(told);
    }

    fn revise(&mut self, point: &Point, cost: f64) {
        self.inner.revise(point, cost);
    }
}

#[test]
fn a_strategy_that_proposed_while_answers_came_hears_the_same_again() {
    let options = Options {
        overlap: true,
        ..options(40)
    };
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let judge = |_: &_, t: &Trial| timed(cost_ns(&t.point));
    let evaluator = FakeEvaluator::new("fake-times", Form::Point, 1, judge);
    run.add_evaluator(Box::new(evaluator));
    let mut s = setting.of_knobs(&wanted("first", "table"), &[9, 8, 7], &options);
    let heard = Slow::put_into(&mut s);
    run.add_searches(vec![s]);
    // Runs have builders for asks aside; nobody calls them here.
    let command = CommandLine {
        program: "/no/such/program".into(),
        args: vec![],
        cpus: vec![],
        stop: Stop::default(),
    };
    let workers = Workers {
        builder: command.clone(),
        runner: command,
    };
    let mut builders = Builders::new(&workers, 1).unwrap();
    run.search(Some(&mut builders), &mut Silent).unwrap();
    assert_eq!(run.trials, 40);
    let all = heard.lock().unwrap().clone();
    assert_eq!(all.iter().filter(|(what, _)| *what == "told").count(), 40);
    // What was answered while it proposed.
    let late = setting.events("first").into_iter().map(|(_, e)| e);
    let late: Vec<EventKind> = late
        .filter(|e| matches!(e, EventKind::Draw(_) | EventKind::Tell(_)))
        .collect();
    let twice = |pair: &[EventKind]| pair.iter().all(|e| matches!(e, EventKind::Draw(_)));
    assert!(late.windows(2).any(twice), "it was asked ahead");

    let mut again = setting.of_knobs(&wanted("second", "table"), &[9, 8, 7], &options);
    let heard = Slow::put_into(&mut again);
    let goes_on = again.go_on(&setting.store, &["first".into()]).unwrap();
    assert!(goes_on);
    assert_eq!(*heard.lock().unwrap(), all);
}

/// Drops what scores much worse than the fastest one, as `score` does with what builders read.
#[derive(Default)]
struct Worse {
    scores: BTreeMap<Point, f64>,
    fastest: Option<(f64, f64)>,
}

impl Filter for Worse {
    fn name(&self) -> &'static str {
        "worse"
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn judge(&mut self, _: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        let mut one = |t: &Trial| {
            let score = (cost_ns(&t.point) % 97) as f64;
            if self.fastest.is_some_and(|(_, f)| score > 20.0 + f) {
                return Verdict::Drop { why: String::new() };
            }
            self.scores.insert(t.point.clone(), score);
            Verdict::Keep { score }
        };
        trials.iter().map(&mut one).collect()
    }

    fn tell(&mut self, told: &Told<'_>) {
        let score = self.scores.remove(told.point);
        if let (Some(cost), Some(score)) = (told.cost, score)
            && self.fastest.is_none_or(|(least, _)| cost < least)
        {
            self.fastest = Some((cost, score));
        }
    }

    fn go_on(&mut self, _: &Context<'_>, past: &Past) {
        self.scores.extend(past.kept.iter().cloned());
    }
}

#[test]
fn a_filter_that_learns_from_what_it_kept_goes_on_with_that() {
    let asker = Asker {
        search: |setting, wanted, options| {
            let mut s = setting.of_knobs(wanted, &[9, 8, 7], options);
            s.filters.push(Box::new(Worse::default()));
            s
        },
        ..of_table("evolutionary", &[])
    };
    let (_, drops) = same_when_killed_twice(asker, 80);
    assert!(drops.len() > 10, "{}", drops.len());
}
