//! Suspending, resuming, exhaustion.

use crate::fakes::FakeEvaluator;
use crate::setting::{Setting, options, search, wanted};
use tune::{Run, State};

#[test]
fn a_suspended_search_is_not_asked_until_it_is_resumed() {
    let options = options(1_000);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    run.add_evaluator(Box::new(FakeEvaluator::of_points()));
    let a = setting.of_knobs(&wanted("a", "first"), &[3, 4], &options);
    let b = setting.of_knobs(&wanted("b", "second"), &[5, 2], &options);
    run.add_searches(vec![a, b]);
    run.searches[0].suspend();
    search(&mut run);
    let states = |run: &Run<'_>| -> Vec<(State, u64)> {
        run.searches.iter().map(|s| (s.state, s.trials)).collect()
    };
    let first = [(State::Suspended, 0), (State::Exhausted, 10)];
    assert_eq!(states(&run), first);
    assert!(setting.events("a").is_empty());
    run.searches[0].resume();
    search(&mut run);
    let both = [(State::Exhausted, 12), (State::Exhausted, 10)];
    assert_eq!(states(&run), both);
    // What is exhausted stays so, and the run is over.
    for s in &mut run.searches {
        s.suspend();
        s.resume();
    }
    search(&mut run);
    assert_eq!((states(&run), run.trials), (both.to_vec(), 22));
}

#[test]
fn a_search_goes_on_where_it_was_suspended() {
    let options = options(18);
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    run.add_evaluator(Box::new(FakeEvaluator::of_points()));
    let a = setting.of_knobs(&wanted("a", "small"), &[4], &options);
    let b = setting.of_knobs(&wanted("b", "large"), &[40, 40], &options);
    run.add_searches(vec![a]);
    search(&mut run);
    run.add_searches(vec![b]);
    search(&mut run);
    assert_eq!(run.searches[0].trials, 4);
    assert_eq!(run.searches[1].trials, 14);
    assert_eq!(run.searches[1].state, State::Open);
}
