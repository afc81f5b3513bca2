//! Candidates that cannot be built.

use crate::fakes::{FakeEvaluator, timed};
use crate::setting::{Setting, options, small_product, wanted, x86};
use std::path::PathBuf;
use tune::compile::Builders;
use tune::{Form, Run, Search, Silent, State, Workers};
use worker::CommandLine;

/// A run of five trials whose builders are this program: its search.
fn built_by(program: &str, args: &[&str]) -> Search {
    let command = CommandLine {
        program: PathBuf::from(program),
        args: args.iter().map(ToString::to_string).collect(),
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    let workers = Workers {
        builder: command.clone(),
        runner: command,
    };
    let options = options(5);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let never = FakeEvaluator::new("fake-times", Form::Code, 4, |_, _| timed(1));
    let seen = never.seen.clone();
    run.add_evaluator(Box::new(never));
    let mut s = setting.of_program(
        &wanted("run", "product"),
        &small_product(),
        &x86(),
        &options,
    );
    // Of a task whose plain schedule cannot be built nothing is tried.
    s.subject.as_mut().unwrap().oracle_asked = true;
    run.add_searches(vec![s]);
    let mut builders = Builders::new(&workers, 2).unwrap();
    run.search(Some(&mut builders), &mut Silent).unwrap();
    assert!(seen.lock().unwrap().is_empty());
    assert_eq!(run.trials, run.searches[0].trials);
    let records = setting.records("run");
    assert_eq!(records.len() as u64, run.searches[0].told);
    run.searches.remove(0)
}

#[test]
fn what_cannot_be_built_is_a_trial() {
    let s = built_by("sh", &["-c", "head -c 1 > /dev/null; exit 3"]);
    assert_eq!((s.trials, s.told, s.state), (5, 5, State::Open));
    assert_eq!(s.failures["crashed-build"], 5);
    assert_eq!(s.best_cost(), None);
}

#[test]
fn a_search_without_builders_is_given_up() {
    let s = built_by("/no/such/program", &[]);
    assert_eq!((s.trials, s.state), (0, State::Exhausted));
    assert_eq!(s.failures["unanswered"], s.told);
    assert!((3..10).contains(&s.told), "{}", s.told);
}
