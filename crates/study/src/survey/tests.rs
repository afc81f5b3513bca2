//! Budgets on searches whose moments and joules are known by hand.

use super::*;

fn job(name: &str, answers: &[(f64, f64)]) -> Job {
    Job {
        table: 0,
        name: name.into(),
        start: 40.0,
        answers: answers.iter().map(|(c, s)| (Some(*c), *s)).collect(),
    }
}

/// A busy CPU draws 10 W and 5 W, an idle machine 2 W and nothing.
fn curves() -> [PowerCurve; 2] {
    let curve = |name, points: [(f64, f64); 2]| PowerCurve::new(name, points.to_vec()).unwrap();
    [
        curve("a", [(0.0, 2.0), (1.0, 10.0)]),
        curve("b", [(0.0, 0.0), (1.0, 5.0)]),
    ]
}

#[test]
fn machines_work_side_by_side_and_wait_at_barriers_only() {
    let two = [
        job("a", &[(4.0, 1.0), (2.0, 3.0)]),
        job("b", &[(3.0, 2.0), (1.0, 6.0)]),
    ];
    let moment = |s, a, b, cost: f64| Moment {
        s,
        joules: [a, b],
        cost,
    };
    let near = |found: Vec<Moment>, expected: &[Moment]| {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (f, e) in found.iter().zip(expected) {
            let pairs = [
                (f.s, e.s),
                (f.joules[0], e.joules[0]),
                (f.joules[1], e.joules[1]),
            ];
            let pairs = pairs.into_iter().chain([(f.cost, e.cost)]);
            assert!(
                pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-9),
                "{f:?} {e:?}"
            );
        }
    };
    let (parallel, ended) = rounds(&two, PARALLEL, SurveyRule::PAPER);
    assert_eq!(ended, None);
    near(
        moments(&two, &parallel, &curves()),
        &[
            moment(0.0, 0.0, 0.0, 40.0),
            moment(1.0, 20.0, 10.0, 4.0),
            moment(2.0, 40.0, 20.0, 3.0),
            moment(3.0, 60.0, 30.0, 2.0),
            // The first has ended, and its machine is given back.
            moment(6.0, 90.0, 45.0, 1.0),
            moment(6.0, 90.0, 45.0, 1.0),
        ],
    );
    let both = |from: usize| Round {
        parts: vec![(0, from..from + 1), (1, from..from + 1)],
        waits: true,
    };
    near(
        moments(&two, &[both(0), both(1)], &curves()),
        &[
            moment(0.0, 0.0, 0.0, 40.0),
            moment(1.0, 20.0, 10.0, 4.0),
            // The first waits for a second.
            moment(2.0, 32.0, 15.0, 3.0),
            moment(4.0, 72.0, 35.0, 2.0),
            moment(6.0, 96.0, 45.0, 1.0),
            moment(6.0, 96.0, 45.0, 1.0),
        ],
    );
}

/// One that gains with every answer, and one that finds the same again and again; an answer takes a second.
fn gaining_and_flat() -> [Job; 2] {
    let answers = |of: fn(u32) -> f64| -> Vec<(f64, f64)> {
        (1..=20).map(|n| (of(n), f64::from(n))).collect()
    };
    [
        job("gaining", &answers(|n| 21.0 - f64::from(n))),
        job("flat", &answers(|_| 30.0)),
    ]
}

fn surveyed(budget: &'static str) -> Surveyed {
    let rule = SurveyRule::PAPER.with("trials=2,patience=1").unwrap();
    let jobs = gaining_and_flat();
    let (rounds, ended) = rounds(&jobs, budget, rule);
    Surveyed {
        budget,
        filters: vec![],
        tables: "t".into(),
        seed: 1,
        tuners: jobs.iter().map(|j| j.name.clone()).collect(),
        moments: moments(&jobs, &rounds, &curves()),
        answers: rounds
            .iter()
            .flat_map(|r| &r.parts)
            .map(|p| p.1.len())
            .sum(),
        ended,
        epochs: epochs(&jobs, &rounds),
    }
}

#[test]
fn the_tuner_that_gains_nothing_is_suspended_and_its_joules_are_saved() {
    let survey = surveyed(SURVEY);
    // The first epoch has no rate before it, and the second has a rate of 0.
    let ran: Vec<[bool; 2]> = survey.epochs.iter().map(|e| [e[0].ran, e[1].ran]).collect();
    assert_eq!(ran[..2], [[true; 2]; 2]);
    assert_eq!(ran[2..], [[true, false]; 8]);
    assert_eq!((survey.answers, survey.ended), (24, Some("exhausted")));
    assert_eq!(survey.epochs[9][0].cost, Some(1.0));
    let all = [surveyed(PARALLEL), survey, surveyed(GRADIENT)];
    let found = compared(&all);
    let [parallel, survey, gradient] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((parallel.answers, gradient.answers), (40.0, 40.0));
    assert_eq!(parallel.saved[0].share, 0.0);
    for (found, expected) in [(parallel.joules[0], 400.0), (survey.joules[0], 240.0)] {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
    for saved in [survey.saved, survey.saved_at_equal_latency] {
        for curve in saved {
            assert!((curve.share - 0.4).abs() < 1e-9, "{curve:?}");
        }
    }
    // The last answer of the one is 1, and the least of the table.
    let (reached, used) = survey.to[4];
    let [one, two] = used.unwrap();
    assert!(reached == 1 && (one - 240.0).abs() < 1e-9 && (two - 120.0).abs() < 1e-9);
    assert!(gradient.final_cost <= 1.0 + 1e-9);
}

#[test]
fn turns_of_gradient_follow_each_other_without_gaps() {
    let jobs = gaining_and_flat();
    let (rounds, ended) = rounds(&jobs, GRADIENT, SurveyRule::PAPER.with("trials=3").unwrap());
    assert_eq!(ended, None);
    let mut at = [0, 0];
    for round in &rounds {
        let [(job, part)] = &round.parts[..] else {
            panic!("{round:?}")
        };
        assert_eq!((part.start, round.waits), (at[*job], false));
        at[*job] = part.end;
    }
    assert_eq!(at, [20, 20]);
}
