//! Budgets in a run: whose turn comes, and what the log says of it.

use crate::fakes::{FakeEvaluator, cost_ns, timed};
use crate::setting::{Setting, Wanted, options, search, wanted};
use search::SurveyRule;
use std::collections::HashMap;
use store::{EventKind, SurveyEpoch};
use tune::{Form, Objective, Options, Run, State};

const TASKS: [&str; 3] = ["cheap", "costly", "usual"];

/// A run of three searches: its events.
fn events(budget: &str, values: [&[i64]; 3], trials: u64) -> Vec<(Option<String>, EventKind)> {
    let with = |options| Options {
        budget: budget.into(),
        ..options
    };
    events_of(with, values, trials)
}

fn events_of(
    with: impl Fn(Options) -> Options,
    values: [&[i64]; 3],
    trials: u64,
) -> Vec<(Option<String>, EventKind)> {
    let options = with(options(trials));
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    run.add_evaluator(Box::new(FakeEvaluator::of_points()));
    let guesses = [1.0, 1e9, 1e3];
    let searches = TASKS
        .iter()
        .zip(guesses)
        .zip(values)
        .map(|((task, guess), values)| {
            let wanted = Wanted {
                guess,
                ..wanted("run", task)
            };
            setting.of_knobs(&wanted, values, &options)
        });
    run.add_searches(searches.collect());
    search(&mut run);
    let ended = run.searches.iter().all(|s| s.state == State::Exhausted);
    assert!(run.trials == trials || ended || options.budget == "survey");
    setting.events("run")
}

fn turns(events: &[(Option<String>, EventKind)]) -> Vec<(&str, u64)> {
    let turn = |(task, event): &'_ (Option<String>, EventKind)| match event {
        EventKind::Budget(b) => {
            let task = task.as_deref().unwrap();
            let named = TASKS[b.search as usize];
            assert_eq!(task, named);
            Some((named, b.asks))
        }
        _ => None,
    };
    events.iter().filter_map(turn).collect()
}

#[test]
fn round_robin_gives_each_open_search_a_batch_in_turn() {
    let large: &[i64] = &[30, 30];
    let events = events("round-robin", [large, &[6], large], 40);
    let turns = turns(&events);
    let reason = |e: &EventKind| match e {
        EventKind::Budget(b) => Some(b.reason.clone()),
        _ => None,
    };
    let mut reasons = events.iter().filter_map(|(_, e)| reason(e));
    assert!(reasons.all(|r| r == "round-robin"));
    let [cheap, costly, usual] = TASKS.map(|task| (task, 4));
    assert_eq!(turns[..6], [cheap, costly, usual, cheap, costly, usual]);
    // Six points in two turns; in the third the search is found to be exhausted.
    assert_eq!(turns.iter().filter(|t| t.0 == "costly").count(), 3);
    let asked = |task: &str| {
        let of = |e: &&(Option<String>, EventKind)| {
            e.0.as_deref() == Some(task) && matches!(e.1, EventKind::Ask(_))
        };
        events.iter().filter(of).count()
    };
    assert_eq!(TASKS.map(asked), [18, 6, 16]);
}

#[test]
fn the_gradient_goes_to_what_costs_most() {
    let events = events("gradient", [&[30, 30]; 3], 60);
    let turns = turns(&events);
    let [cheap, costly, usual] = TASKS.map(|task| (task, 4));
    assert_eq!(turns[..3], [cheap, costly, usual], "one turn each");
    assert!(turns.iter().all(|t| t.1 == 4));
    // They cost alike, so their turns are about as many.
    let of = |task: &str| turns.iter().filter(|t| t.0 == task).count();
    assert!(TASKS.iter().all(|t| (4..=6).contains(&of(t))), "{turns:?}");
}

#[test]
fn a_sequence_ends_one_search_before_it_begins_the_next() {
    let events = events("sequential", [&[5], &[30, 30], &[30]], 40);
    let tasks: Vec<&str> = turns(&events).iter().map(|t| t.0).collect();
    let costly = tasks.iter().position(|t| *t == "costly").unwrap();
    assert!(costly > 0 && tasks[..costly].iter().all(|t| *t == "cheap"));
    assert!(tasks[costly..].iter().all(|t| *t == "costly"));
}

#[test]
fn promise_tries_every_task_before_any_gets_a_tenth_ask() {
    let large: &[i64] = &[30, 30];
    let events = events("promise", [large; 3], 60);
    let mut asked: HashMap<&str, u64> = HashMap::new();
    let mut answered: HashMap<&str, u64> = HashMap::new();
    for (task, event) in &events {
        let task = task.as_deref().unwrap();
        match event {
            EventKind::Ask(ask) => {
                let n = asked.entry(task).or_default();
                *n += 1;
                if ask.trial >= 9 {
                    assert_eq!(answered.len(), 3, "{task} has its tenth ask");
                }
            }
            EventKind::Tell(_) => *answered.entry(task).or_default() += 1,
            _ => {}
        }
    }
    assert_eq!(asked.values().sum::<u64>(), 60);
    // A batch has four; no turn is longer.
    let turns = turns(&events);
    assert!(turns.iter().all(|(_, asks)| (1..=4).contains(asks)));
    assert_eq!(turns[0].0, "costly", "it promises most");
}

#[test]
fn a_single_search_needs_no_budget_events() {
    let options = options(12);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    run.add_evaluator(Box::new(FakeEvaluator::of_points()));
    run.add_searches(vec![setting.of_knobs(
        &wanted("run", "task"),
        &[9, 9],
        &options,
    )]);
    search(&mut run);
    let mut events = setting.events("run");
    assert!(
        !events
            .iter()
            .any(|(_, e)| matches!(e, EventKind::Budget(_)))
    );
    events.retain(|(_, e)| !matches!(e, EventKind::Draw(_)));
    assert_eq!(events.len(), 24, "an ask and a tell a trial");
}

/// Trials of a task of a second that is at its bound and of one of microseconds that is not, of
/// 200; the tasks belong to the models of these runs.
fn large_and_small(runs: [&str; 2]) -> [u64; 2] {
    let options = options(200);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let evaluator = FakeEvaluator::new("fake-times", Form::Point, 4, |batch, t| {
        match &*batch.task {
            "large" => timed(1_000_000_000),
            _ => timed(cost_ns(&t.point)),
        }
    });
    run.add_evaluator(Box::new(evaluator));
    let mut large = setting.of_knobs(&wanted(runs[0], "large"), &[30, 30], &options);
    large.bound = 1e9;
    let small = setting.of_knobs(&wanted(runs[1], "small"), &[30, 30], &options);
    run.add_searches(vec![large, small]);
    search(&mut run);
    [0, 1].map(|i| run.searches[i].trials)
}

#[test]
fn a_model_at_its_bound_leaves_trials_to_a_small_one() {
    let [large, small] = large_and_small(["a", "b"]);
    assert!(small > large && large >= 9, "{large} {small}");
    let [large, small] = large_and_small(["one", "one"]);
    assert!(large > 10 * small, "in one model: {large} {small}");
}

#[test]
fn tuners_take_turns_of_equal_length() {
    let trials = |budget: &str, trials: u64, grid: &[i64]| {
        let tuners = ["random", "grid"];
        let options = Options {
            budget: budget.into(),
            tuners: tuners.map(String::from).to_vec(),
            ..options(trials)
        };
        let setting = Setting::new();
        let mut run = Run::new(setting.log(), &options).unwrap();
        run.add_evaluator(Box::new(FakeEvaluator::of_points()));
        let of = |strategy, values: &[i64]| {
            TASKS.map(|task| {
                let wanted = Wanted {
                    strategy,
                    ..wanted(strategy, task)
                };
                setting.of_knobs(&wanted, values, &options)
            })
        };
        run.add_searches(of(tuners[0], &[30, 30]).into());
        run.add_searches(of(tuners[1], grid).into());
        search(&mut run);
        tuners.map(|tuner| {
            let own = run.searches.iter().filter(|s| s.strategy_name == tuner);
            own.map(|s| s.trials).collect::<Vec<u64>>()
        })
    };
    let sum = |of: &[u64]| of.iter().sum::<u64>();
    for budget in ["promise", "gradient", "round-robin", "sequential"] {
        // A batch has four.
        for n in [2, 6, 20, 90] {
            let [random, grid] = trials(budget, n, &[30, 30]);
            assert_eq!((sum(&random), sum(&grid)), (n / 2, n / 2), "{budget}");
        }
    }
    // Each begins its own sequence.
    let [random, grid] = trials("sequential", 20, &[30, 30]);
    assert_eq!((random, grid), (vec![10, 0, 0], vec![10, 0, 0]));
    // What one has nothing to try for, the other gets.
    let [random, grid] = trials("round-robin", 40, &[2]);
    assert_eq!((sum(&random), grid), (34, vec![2, 2, 2]));
}

#[test]
fn models_count_as_the_objective_says() {
    let weights = |objective: Objective, wanted_ns: &[f64]| -> Vec<f64> {
        let options = Options {
            objective,
            wanted_ns: wanted_ns.to_vec(),
            ..options(1)
        };
        let setting = Setting::new();
        let mut run = Run::new(setting.log(), &options).unwrap();
        run.add_evaluator(Box::new(FakeEvaluator::of_points()));
        let model = |(run_id, guess)| {
            let wanted = Wanted {
                guess,
                ..wanted(run_id, "task")
            };
            setting.of_knobs(&wanted, &[9], &options)
        };
        run.add_searches([("first", 4e6), ("second", 1e6)].map(model).into());
        run.standings().iter().map(|s| s.weight).collect()
    };
    assert_eq!(weights(Objective::Gains, &[]), [1.0, 4.0]);
    assert_eq!(weights(Objective::Sum, &[]), [1.0, 1.0]);
    assert_eq!(weights(Objective::Sum, &[1e6, 1e6]), [1.0, 0.0]);
}

#[test]
fn a_survey_has_epochs_of_one_batch_each_and_ends_when_it_gains_too_little() {
    let events = events_of(
        |options| Options {
            budget: "survey".into(),
            survey: SurveyRule {
                trials: 6,
                ..SurveyRule::PAPER
            },
            ..options
        },
        [&[30, 30]; 3],
        10_000,
    );
    let turns = turns(&events);
    let epochs: Vec<&SurveyEpoch> = events
        .iter()
        .filter_map(|(_, e)| match e {
            EventKind::SurveyEpoch(e) => Some(e),
            _ => None,
        })
        .collect();
    let all = TASKS.map(|task| (task, 6));
    assert_eq!(turns[..3], all, "one batch each");
    assert_eq!(turns[3..6], all);
    let numbers: Vec<usize> = epochs.iter().map(|e| e.epoch).collect();
    assert_eq!(numbers, (0..epochs.len()).collect::<Vec<_>>());
    // Every answer is told before the models are looked at.
    let spent: Vec<f64> = epochs.iter().take(3).map(|e| e.spent).collect();
    assert_eq!(spent, [0.0, 18.0, 36.0]);
    assert!(epochs.windows(2).all(|e| e[1].cost <= e[0].cost));
    let (last, others) = epochs.split_last().unwrap();
    assert!(last.ended.is_some() && !last.runs);
    assert!(others.iter().all(|e| e.ended.is_none()) && others[0].rate.is_none());
    assert!(turns.len() <= 3 * others.len());
}
