//! Searches that are made up, whose figures follow by hand.

use super::*;

/// A search of (code, ns, s) trials of one task that a model calls twice.
fn search(strategy: &str, seed: u64, trials: &[(&str, Option<u64>, f64)]) -> Searched {
    let trial = |&(code, ns, s): &(&str, Option<u64>, f64)| Trial {
        task: "t".into(),
        uses: 2,
        code: Some(code.into()),
        ns,
        s,
    };
    Searched {
        model: "m".into(),
        content: None,
        strategy: strategy.into(),
        start: "defaults".into(),
        seed,
        trials: trials.iter().map(trial).collect(),
        cpu_s: Parts {
            search: 1.0,
            build: 4.0,
            measure: 0.0,
        },
    }
}

fn near(found: Option<f64>, wanted: f64) {
    let found = found.unwrap();
    assert!((found - wanted).abs() < 1e-9, "{found} for {wanted}");
}

#[test]
fn equal_code_has_one_cost_and_searches_that_do_not_get_there_are_counted() {
    let searches = [
        search("random", 1, &[("a", Some(200), 1.0), ("b", Some(130), 2.0)]),
        search("random", 2, &[("a", Some(201), 1.0), ("c", None, 9.0)]),
        search("funnel", 1, &[("a", Some(202), 3.0), ("b", Some(100), 4.0)]),
        search("funnel", 2, &[("b", Some(101), 3.0), ("c", None, 4.0)]),
    ];
    let (outcomes, curves) = compared(&searches, 2, 1);
    let [random, funnel] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!((random.strategy.as_str(), random.searches), ("random", 2));
    let missed = Near {
        within: 0.02,
        trials: None,
        seconds: None,
        reached: 1,
    };
    assert_eq!(random.near[1], missed);
    let found = Near {
        trials: Some(1.5),
        seconds: Some(3.5),
        reached: 2,
        ..missed
    };
    assert_eq!(funnel.near[1], found);
    near(funnel.equal_trials.mean, 1.0);
    // 1 and 2 times the best.
    near(random.equal_trials.mean, 2f64.sqrt());
    near(random.equal_trials.spread, 2f64.ln() / 2f64.sqrt());
    // Seed 1 ends after 2 s, when `funnel` has no answer, and seed 2 after 4 s.
    near(random.equal_seconds.mean, 2f64.sqrt());
    assert_eq!(funnel.equal_seconds.mean, None);
    let at = |c: &Curve| -> Vec<(f64, f64)> { c.points.iter().map(|p| (p.at, p.mean)).collect() };
    assert_eq!(at(&curves.answers[1])[1], (2.0, 1.0));
    assert!(curves.seconds[1].points.is_empty());
    assert_eq!(curves.seconds[0].points.last().unwrap().greatest, 2.0);
}

#[test]
fn a_search_that_ran_out_of_candidates_does_not_end_the_others() {
    let curve =
        |s: &[f64]| -> Vec<Reached> { s.iter().map(|s| Reached { s: *s, ratio: 2.0 }).collect() };
    let (short, long, longer) = (curve(&[1.0]), curve(&[1.0, 4.0]), curve(&[2.0, 5.0]));
    assert_eq!(equal_seconds(&[&short, &long, &longer], 2), 4.0);
    assert_eq!(equal_seconds(&[&short, &long], 3), 4.0);
}

#[test]
fn a_model_is_near_once_all_its_tasks_are_measured() {
    let mut both = search("random", 1, &[("t", Some(5), 1.0), ("u", Some(7), 2.0)]);
    both.trials[1].task = "u".into();
    let points = Costs::of([&both].into_iter()).curve(&both);
    let wanted = [(1.0, f64::INFINITY), (2.0, 1.0)].map(|(s, ratio)| Reached { s, ratio });
    assert_eq!(points, wanted);
    assert_eq!(Near::of(&[&points], 0.02).trials, Some(2.0));
}

#[test]
fn the_spread_is_that_of_seeds_and_not_of_models() {
    let over = |all: &[(&'static str, &[f64])]| {
        Over::of(&all.iter().map(|(m, r)| (*m, r.to_vec())).collect())
    };
    let equal = over(&[("m", &[1.0, 1.0]), ("n", &[4.0, 4.0]), ("single", &[9.0])]);
    assert_eq!(equal.spread, Some(0.0));
    assert_eq!(over(&[("m", &[1.0]), ("n", &[4.0])]).spread, None);
    let e = std::f64::consts::E;
    // Of m the logarithms are 0 and 2: a sum of squares of 2 about 1, with two degrees of freedom in all.
    near(over(&[("m", &[1.0, e * e]), ("n", &[e, e])]).spread, 1.0);
}

#[test]
fn what_no_record_has_is_idle() {
    let one = search("es", 1, &[("a", Some(1), 1.0), ("b", Some(1), 5.0)]);
    let (outcomes, _) = compared(&[one], 2, 2);
    assert_eq!(outcomes[0].trials_per_s, 0.4);
    let wanted = Shares {
        search: 0.1,
        build: 0.4,
        measure: 0.0,
        idle: 0.5,
    };
    assert_eq!(outcomes[0].shares, wanted);
}

#[test]
fn curves_of_several_starts_say_from_where() {
    let mut random = search("es", 1, &[("a", Some(9), 1.0), ("b", Some(3), 2.0)]);
    random.start = "random".into();
    let defaults = search("es", 1, &[("b", Some(3), 1.0), ("b", Some(3), 2.0)]);
    let (outcomes, curves) = compared(&[random, defaults], 2, 2);
    assert_eq!(outcomes.len(), 2);
    let names: Vec<String> = curves.answers.iter().map(Curve::name).collect();
    assert_eq!(names, ["es from random", "es from defaults"]);
    let first: Vec<f64> = curves
        .answers
        .iter()
        .map(|c| c.points[0].mean.round())
        .collect();
    assert_eq!(first, [3.0, 1.0]);
}
