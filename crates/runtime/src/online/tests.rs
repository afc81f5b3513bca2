//! Selectors of one step: families, what is dropped, and what fails.

use super::*;

const ALONE: Circumstances = Circumstances {
    disturbed: false,
    uninterrupted: true,
    warm: false,
    rival: None,
};

fn node(names: &[&str]) -> Node {
    node_with(names, &Options::default())
}

fn node_with(names: &[&str], options: &Options) -> Node {
    let names: Vec<String> = names.iter().map(|n| (*n).to_string()).collect();
    let making = Making {
        options,
        known: None,
    };
    making.of_alternatives("step", &names).unwrap()
}

fn key() -> SelectionKey {
    SelectionKey {
        shape: vec![],
        threads: 1,
    }
}

#[test]
fn algorithms_that_differ_in_a_number_choose_among_themselves_first() {
    let n = node(&["im2row 1", "winograd2.a 2", "direct 3", "winograd4.b 4"]);
    assert_eq!(n.members.len(), 3);
    let Member::Nested {
        node: inner,
        family,
    } = &n.members[1]
    else {
        panic!("winograd is a selector of its own");
    };
    assert!(n.members[1].has(1) && n.members[1].has(3) && !n.members[1].has(0));
    assert_eq!(inner.members.len(), 2);
    assert_eq!(family, "winograd");
    let nanoseconds = [50, 40, 60, 20];
    let mut calls = vec![0; 4];
    for _ in 0..200 {
        let mut begun = Vec::new();
        let at = n.begin(&key(), &mut begun);
        calls[at] += 1;
        n.finish(&key(), begun, Duration::from_nanos(nanoseconds[at]), ALONE);
    }
    assert_eq!(n.decided(&key()), Some(3), "{calls:?}");
    let mut families = Vec::new();
    n.families(&key(), &mut families);
    assert_eq!(families, ["winograd"]);
    assert!(calls[3] > 150 && calls[0] >= 10, "{calls:?}");
}

#[test]
fn several_calls_are_a_family_if_they_differ_in_a_number_alone() {
    let n = node(&[
        "nest+winograd2+nest 1+2+3",
        "nest+direct+nest 1+4+3",
        "nest+winograd4+nest 1+5+3",
        "direct+winograd4 6+5",
    ]);
    let members: Vec<Vec<usize>> = n
        .members
        .iter()
        .map(|m| (0..4).filter(|at| m.has(*at)).collect())
        .collect();
    assert_eq!(members, [vec![0, 2], vec![1], vec![3]]);
    assert!(
        matches!(&n.members[0], Member::Nested { family, .. } if family == "nest+winograd+nest")
    );
}

#[test]
fn a_family_that_loses_is_decided_and_judged_by_its_best() {
    let n = node(&["im2row 1", "winograd2.a 2", "winograd4.b 3"]);
    let nanoseconds = [10, 40, 20];
    for _ in 0..100 {
        let mut begun = Vec::new();
        let at = n.begin(&key(), &mut begun);
        n.finish(&key(), begun, Duration::from_nanos(nanoseconds[at]), ALONE);
    }
    assert_eq!(n.decided(&key()), Some(0));
    assert!(n.all().iter().all(|s| s.decision(&key()).is_some()));
    let medians = n.selector.medians(&key());
    assert_eq!(medians[1], Some(Duration::from_nanos(20)));
    let tried = n.medians(&key()).into_iter().flatten();
    let tried: Vec<u128> = tried.map(|t| t.as_nanos()).collect();
    assert_eq!(tried, [10, 40, 20]);
}

#[test]
fn a_hopeless_family_is_dropped_after_a_call_of_each_member() {
    let n = node_with(
        &["direct 1", "winograd2.a 2", "winograd4.b 3"],
        &Options::early(),
    );
    // conv5_1 of VGG-16 at CIFAR-10's shapes.
    let (microseconds, mut calls) = ([780, 4050, 7810], [0; 3]);
    for _ in 0..20 {
        let mut begun = Vec::new();
        let at = n.begin(&key(), &mut begun);
        calls[at] += 1;
        n.finish(
            &key(),
            begun,
            Duration::from_micros(microseconds[at]),
            ALONE,
        );
    }
    assert_eq!(n.decided(&key()), Some(0));
    assert_eq!(calls[1..], [1, 1]);
    let medians = n.medians(&key());
    assert_eq!(medians[2], Some(Duration::from_micros(7810)));
}

#[test]
fn one_family_alone_and_points_of_one_algorithm_are_not_nested() {
    for names in [
        &["winograd2.a 1", "winograd4.a 2"][..],
        &["gemm.packed 1", "gemm.rows 2", "im2row 3"],
        &[" 1", " 2", " 3"],
    ] {
        let n = node(names);
        assert_eq!(n.members.len(), names.len());
    }
}

#[test]
fn what_fails_is_dropped_from_the_selector_that_has_it() {
    let n = node(&["im2row 1", "winograd2 2", "winograd4 3"]);
    for (alternative, left) in [(1, true), (2, true), (0, false)] {
        assert_eq!(n.fail(&key(), alternative), left);
    }
    let n = node(&["im2row 1", "winograd2 2", "winograd4 3"]);
    assert!(n.fail(&key(), 0) && n.fail(&key(), 1));
    assert_eq!(n.begin(&key(), &mut Vec::new()), 2);
}

/// Each alternative takes so many microseconds, from the first call to the last one.
fn decide(n: &Node, microseconds: &[u64], calls: &mut [usize]) -> Option<usize> {
    for _ in 0..100 {
        let mut begun = Vec::new();
        let at = n.begin(&key(), &mut begun);
        calls[at] += 1;
        let time = Duration::from_micros(microseconds[at]);
        n.finish(&key(), begun, time, ALONE);
    }
    n.decided(&key())
}

#[test]
fn a_family_is_open_again_when_what_it_conceded_to_fails() {
    let names = ["direct 1", "winograd2.a 2", "winograd4.b 3", "im2row 4"];
    let n = node_with(&names, &Options::early());
    let microseconds = [780, 4050, 7810, 6000];
    let mut calls = [0; 4];
    assert_eq!(decide(&n, &microseconds, &mut calls), Some(0));
    assert_eq!(
        n.nested().next().map(|(_, f)| f.decided(&key())),
        Some(Some(2))
    );
    assert!(n.fail(&key(), 0));
    assert_eq!(n.decided(&key()), None);
    assert_eq!(decide(&n, &microseconds, &mut calls), Some(1));
}

#[test]
fn a_family_stays_decided_when_something_slower_fails() {
    let names = ["direct 1", "winograd2.a 2", "winograd4.b 3", "im2row 4"];
    let n = node_with(&names, &Options::early());
    let mut calls = [0; 4];
    assert_eq!(decide(&n, &[780, 4050, 7810, 6000], &mut calls), Some(0));
    assert!(n.fail(&key(), 3));
    assert_eq!(n.decided(&key()), Some(0));
    assert_eq!(
        n.nested().next().map(|(_, f)| f.decided(&key())),
        Some(Some(2))
    );
}

#[test]
fn a_family_whose_best_fails_is_compared_again() {
    let n = node(&["direct 1", "winograd2.a 2", "winograd4.b 3"]);
    let microseconds = [50, 80, 20];
    let mut calls = [0; 3];
    assert_eq!(decide(&n, &microseconds, &mut calls), Some(2));
    assert!(n.fail(&key(), 2));
    assert_eq!(decide(&n, &microseconds, &mut calls), Some(0));
}

/// A decision names the kernel alone, so that it holds whether or not there is a family to choose first.
#[test]
fn a_known_kernel_is_decided_with_any_others_beside_it() {
    let (options, text) = (Options::early(), format!("{:?}", key()));
    let mut known = Decisions::new();
    let time = Duration::from_micros(5);
    known.put("step", &text, "winograd4.b 3", 4, time);
    let known = Arc::new(known);
    let making = Making {
        options: &options,
        known: Some(&known),
    };
    for (names, decided) in [
        (&["direct 1", "winograd2.a 2", "winograd4.b 3"][..], Some(2)),
        (&["direct 1", "winograd4.b 3"], Some(1)),
        (&["winograd4.b 3", "winograd6.c 4", "im2row 5"], Some(0)),
        // The code has changed.
        (&["direct 1", "winograd4.b 4"], None),
    ] {
        let names: Vec<String> = names.iter().map(|n| (*n).to_string()).collect();
        let node = making.of_alternatives("step", &names).unwrap();
        assert_eq!(node.decided(&key()), decided, "{names:?}");
        let gone = making.gone("step", &names);
        assert_eq!(gone.is_some(), decided.is_none(), "{names:?}");
        let Some(at) = decided else {
            continue;
        };
        // What starts decided is saved as it was.
        assert_eq!(node.begin(&key(), &mut Vec::new()), at);
        let own = Own {
            step: "step".into(),
            node: Arc::new(node),
            names: names.into(),
            within: None,
        };
        let selectors = Selectors {
            all: vec![own],
            ..Selectors::default()
        };
        let mut saved = Decisions::new();
        selectors.save(&mut saved);
        assert_eq!(saved, *known);
    }
}
