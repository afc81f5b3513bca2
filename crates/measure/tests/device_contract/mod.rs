//! What every device promises to a run. Each implementation of `Dispatch` has a test
//! that calls [`check`].

use measure::{Assignment, Dispatch, Measured, Policy, RANKING, Ranking, Round};
use std::time::Duration;
use store::{Conditions, Outcome};
use testkit::host::undisturbed;

/// Positions in the batch that [`check`] wants.
const FAST: usize = 0;
const SLOW: usize = 1;
const CRASHES: usize = 2;
const HANGS: usize = 3;

/// Longer than anything takes that ends.
const EACH: Duration = Duration::from_secs(20);
/// Time for a candidate that does not end.
const SHORT: Duration = Duration::from_secs(1);

/// Checks the promises of `Dispatch` on a batch of four candidates: a fast one, one that
/// takes at least twice as long, one that crashes, and one that never ends.
pub fn check<B: ?Sized>(device: &mut dyn Dispatch<B>, batch: &B) {
    device.prepare(batch);
    a_round_answers_in_order(device, batch);
    a_quiet_candidate_is_alone(device, batch);
    a_ranking_answers_in_order(device, batch);
    what_hangs_costs_the_others_nothing(device, batch);
    nothing_is_measured_beyond_the_end(device, batch);
    assert_eq!(device.take_warnings(), [""; 0]);
}

fn round(dp: u32, quiet: bool) -> Round {
    Round {
        dp,
        limit: 10 * EACH,
        each: EACH,
        quiet,
        fresh: false,
        host_clock: false,
        retry: true,
        slower: None,
        measurer: Policy::Doppler,
    }
}

fn conditions(m: &Measured) -> &Conditions {
    match &m.outcome {
        Outcome::Timed { conditions, .. } => conditions,
        other => panic!("{other:?}"),
    }
}

fn samples(m: &Measured) -> Option<usize> {
    match &m.outcome {
        Outcome::Timed { samples_ns, .. } => Some(samples_ns.len()),
        _ => None,
    }
}

/// Checks that outcomes belong to these candidates.
fn belong(outcomes: &[Measured], candidates: &[usize]) {
    assert_eq!(outcomes.len(), candidates.len());
    let median = |candidate: usize| {
        let at = candidates.iter().position(|c| *c == candidate);
        outcomes[at.expect("it was asked for")].outcome.median_ns()
    };
    for (m, candidate) in outcomes.iter().zip(candidates) {
        let label = if *candidate == CRASHES {
            "crashed-run"
        } else {
            "timed"
        };
        assert_eq!(m.outcome.label(), label, "candidate {candidate}: {m:?}");
    }
    assert!(median(FAST) < median(SLOW), "{outcomes:?}");
}

fn a_round_answers_in_order<B: ?Sized>(device: &mut dyn Dispatch<B>, batch: &B) {
    let candidates = [SLOW, CRASHES, FAST, FAST, SLOW, CRASHES, FAST];
    let assignment = |(i, candidate): (usize, &usize)| Assignment {
        candidate: *candidate,
        device: i % device.devices(),
    };
    let assignments: Vec<Assignment> = candidates.iter().enumerate().map(assignment).collect();
    let (dp, began) = (device.capacity(), device.now());
    let outcomes = device.round(batch, &assignments, &round(dp, false));
    belong(&outcomes, &candidates);
    for m in outcomes.iter().filter(|m| samples(m).is_some()) {
        let c = conditions(m);
        assert_eq!(c.measurer.as_deref(), Some(Policy::Doppler.name()));
        assert!(c.dp <= dp, "{c:?}");
        let told = [c.latency_ns, c.span_ns, c.launches];
        assert!(told.iter().flatten().all(|n| *n > 0), "{c:?}");
        assert!(told.iter().all(Option::is_some), "{c:?}");
    }
    assert!(device.now() > began, "its clock goes on");
}

fn a_quiet_candidate_is_alone<B: ?Sized>(device: &mut dyn Dispatch<B>, batch: &B) {
    for number in 0..device.devices() {
        let one = Assignment {
            candidate: FAST,
            device: number,
        };
        let outcomes = device.round(batch, &[one, one], &round(1, true));
        for m in &outcomes {
            let c = conditions(m);
            assert!(c.isolated && c.dp == 1, "{c:?}");
        }
    }
}

fn a_ranking_answers_in_order<B: ?Sized>(device: &mut dyn Dispatch<B>, batch: &B) {
    let ranking = Ranking {
        turns: 5,
        each: EACH,
    };
    for candidates in [[SLOW, FAST, CRASHES], [CRASHES, SLOW, FAST]] {
        let outcomes = device.rank(batch, &candidates, &ranking);
        belong(&outcomes, &candidates);
    }
    let outcomes = device.rank(batch, &[SLOW, FAST], &ranking);
    for m in &outcomes {
        assert_eq!(samples(m), Some(5), "one a turn");
        let c = conditions(m);
        assert!(c.isolated && c.dp == 1 && !c.overlap, "{c:?}");
        assert_eq!(c.measurer.as_deref(), Some(RANKING));
    }
    assert!(device.rank(batch, &[], &ranking).is_empty());
}

fn what_hangs_costs_the_others_nothing<B: ?Sized>(device: &mut dyn Dispatch<B>, batch: &B) {
    let candidates = [HANGS, FAST];
    let assignments = candidates.map(|candidate| Assignment {
        candidate,
        device: 0,
    });
    let short = Round {
        each: SHORT,
        ..round(1, true)
    };
    let ranking = Ranking {
        turns: 3,
        each: SHORT,
    };
    for ranks in [false, true] {
        let measure = || match ranks {
            true => device.rank(batch, &candidates, &ranking),
            false => device.round(batch, &assignments, &short),
        };
        undisturbed(measure, |outcomes| {
            let labels: Vec<&str> = outcomes.iter().map(|m| m.outcome.label()).collect();
            matches!(labels[..], [first, "timed"] if first.starts_with("timed-out"))
        });
    }
}

fn nothing_is_measured_beyond_the_end<B: ?Sized>(device: &mut dyn Dispatch<B>, batch: &B) {
    let one = [Assignment {
        candidate: FAST,
        device: 0,
    }];
    let ranking = Ranking {
        turns: 2,
        each: EACH,
    };
    for (ends, label) in [(true, "unanswered"), (false, "timed")] {
        let end = device.now();
        device.end_by(ends.then_some(end));
        let outcomes = device.round(batch, &one, &round(1, true));
        assert_eq!(outcomes[0].outcome.label(), label);
        let outcomes = device.rank(batch, &[FAST], &ranking);
        assert_eq!(outcomes[0].outcome.label(), label);
    }
}
