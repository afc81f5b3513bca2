//! What `Options::early` promises, with recorded times of layers of VGG-16 at CIFAR-10's shapes.

use bestof::{BestOf, Circumstances, Decisions, Options, Status};
use std::time::Duration;

/// Times of the first call and of later ones, in microseconds.
type Recorded = (u64, u64);

struct Layer {
    selector: BestOf<u32, ()>,
    times: Vec<Recorded>,
    calls: Vec<usize>,
}

impl Layer {
    fn new(times: &[Recorded], options: Options) -> Layer {
        let named = (0..times.len()).map(|i| (format!("a{i}"), ()));
        Layer {
            selector: BestOf::new("layer", named, options).unwrap(),
            times: times.to_vec(),
            calls: vec![0; times.len()],
        }
    }

    fn call(&mut self, how: Circumstances) {
        let begun = self.selector.begin(&1);
        let at = begun.alternative();
        let (first, later) = self.times[at];
        let us = if self.calls[at] == 0 { first } else { later };
        self.calls[at] += 1;
        self.selector
            .finish_under(begun, Duration::from_micros(us), how);
    }

    fn decide(&mut self, how: Circumstances) -> &str {
        for _ in 0..100 {
            self.call(how);
        }
        self.selector.decision(&1).unwrap()
    }

    fn samples(&self) -> Vec<usize> {
        let report = self.selector.report().keys.remove(0);
        report.alternatives.iter().map(|a| a.samples).collect()
    }
}

const ALONE: Circumstances = Circumstances {
    disturbed: false,
    uninterrupted: true,
    warm: false,
    rival: None,
};
const UNKNOWN: Circumstances = Circumstances {
    uninterrupted: false,
    ..ALONE
};

/// conv5_1: direct, im2row, winograd2, winograd4.
const CONV5_1: [Recorded; 4] = [(900, 780), (1900, 1150), (5200, 4050), (8700, 7810)];

#[test]
fn what_is_far_slower_is_dropped_after_one_call_or_two() {
    let mut layer = Layer::new(&CONV5_1, Options::early());
    (0..6).for_each(|_| layer.call(ALONE));
    assert_eq!(layer.calls, [2, 2, 1, 1]);
    assert_eq!(layer.selector.decision(&1), Some("a0"));
    let report = layer.selector.report().keys.remove(0);
    let dropped = &report.alternatives[3];
    assert_eq!((dropped.status, dropped.samples), (Status::Pruned, 0));
    // The report still says what its only call took.
    assert_eq!(dropped.median, Some(Duration::from_micros(8700)));
    assert_eq!(layer.selector.medians(&1)[3], dropped.median);
}

#[test]
fn the_paper_tries_everything_in_complete_rounds() {
    let mut layer = Layer::new(&CONV5_1, Options::default());
    layer.decide(ALONE);
    // The last of them is 10.01 times slower than the default.
    assert_eq!(layer.samples(), [10, 10, 10, 4]);
}

#[test]
fn a_cold_first_call_drops_nothing_that_is_fast_later() {
    let mut layer = Layer::new(&[(1000, 1000), (2400, 940)], Options::early());
    assert_eq!(layer.decide(ALONE), "a1");
    assert_eq!(layer.samples(), [4, 3]);
}

#[test]
fn one_call_whose_memory_was_there_is_like_later_ones() {
    let warm = Circumstances {
        warm: true,
        ..ALONE
    };
    let mut layer = Layer::new(&CONV5_1, Options::early());
    (0..5).for_each(|_| layer.call(warm));
    assert_eq!(layer.calls, [2, 1, 1, 1]);
    assert_eq!(layer.selector.decision(&1), Some("a0"));
}

#[test]
fn one_call_that_another_program_may_have_interrupted_drops_nothing() {
    let times = [(500, 500), (4200, 450)];
    let mut layer = Layer::new(&times, Options::early());
    assert_eq!(layer.decide(UNKNOWN), "a1");
    // A call that is longer than an interruption is enough.
    let mut layer = Layer::new(&CONV5_1, Options::early());
    (0..6).for_each(|_| layer.call(UNKNOWN));
    assert_eq!(layer.calls, [2, 2, 1, 1]);
}

#[test]
fn times_that_are_near_get_all_rounds() {
    let mut layer = Layer::new(&[(1000, 1000), (1030, 1030), (980, 980)], Options::early());
    // The default is within the margin.
    assert_eq!(layer.decide(ALONE), "a0");
    // The second one is 1.051 times slower than the third.
    assert_eq!(layer.samples(), [10, 4, 10]);
}

#[test]
fn the_default_is_dropped_as_well() {
    let mut layer = Layer::new(&[(8700, 7800), (1000, 800)], Options::early());
    assert_eq!(layer.decide(ALONE), "a1");
    assert_eq!(layer.samples(), [2, 2]);
}

#[test]
fn a_call_in_which_an_inner_selector_tries_drops_nothing() {
    let mut layer = Layer::new(&CONV5_1, Options::early());
    let disturbed = Circumstances {
        disturbed: true,
        ..ALONE
    };
    (0..40).for_each(|_| layer.call(disturbed));
    let report = layer.selector.report().keys.remove(0);
    let active = |a: &bestof::AlternativeReport| a.status == Status::Active;
    assert!(report.alternatives.iter().all(active), "{report:?}");
}

/// winograd2 and winograd4 of conv5_1 are a family inside of the layer's selector, whose best takes 780 us.
#[test]
fn an_inner_selector_drops_what_the_outer_one_beats_and_does_not_save_that() {
    let beside = |us| Circumstances {
        rival: Some(Duration::from_micros(us)),
        ..ALONE
    };
    let saved = |layer: &Layer| {
        let mut decisions = Decisions::new();
        layer.selector.save(&mut decisions);
        decisions.len()
    };
    let mut family = Layer::new(&CONV5_1[2..], Options::early());
    family.call(beside(780));
    // The last one stays: the outer selector judges it.
    assert_eq!(family.selector.decision(&1), Some("a1"));
    assert_eq!((saved(&family), &family.calls), (0, &vec![1, 0]));
    let mut family = Layer::new(&CONV5_1[2..], Options::early());
    assert_eq!(family.decide(beside(3900)), "a0");
    assert_eq!(saved(&family), 1);
}

/// Calls of alternatives with these times, one after the other, from the first one on; the last time stays.
fn decided_by(times: &[&[u64]]) -> String {
    let named = (0..times.len()).map(|i| (format!("a{i}"), ()));
    let selector: BestOf<u32, ()> = BestOf::new("layer", named, Options::early()).unwrap();
    let mut calls = vec![0; times.len()];
    while selector.decision(&1).is_none() {
        let begun = selector.begin(&1);
        let at = begun.alternative();
        let us = times[at][calls[at].min(times[at].len() - 1)];
        calls[at] += 1;
        selector.finish_under(begun, Duration::from_micros(us), UNKNOWN);
    }
    selector.decision(&1).unwrap().to_string()
}

#[test]
fn the_default_stays_unless_another_is_better_by_the_margin() {
    assert_eq!(decided_by(&[&[1000], &[960]]), "a0");
    assert_eq!(decided_by(&[&[1000], &[940]]), "a1");
    // Without the default the fastest is taken, by any difference.
    assert_eq!(decided_by(&[&[2000], &[1000], &[990]]), "a2");
}

/// conv4_3 of VGG-16 in its weight gradient, beside another program: the median of the default is the greater one.
#[test]
fn a_default_that_was_disturbed_more_often_stays() {
    let disturbed = [
        1700, 1640, 2840, 2850, 2900, 2840, 2860, 2840, 2850, 1650, 2900,
    ];
    assert_eq!(decided_by(&[&disturbed, &[2790]]), "a0");
    // The same if it is not the default, and a third one is.
    assert_eq!(decided_by(&[&[2750], &disturbed]), "a1");
}

/// Equal layers share a selector, and come in the same order in each inference.
#[test]
fn no_alternative_always_meets_the_same_caller() {
    for callers in [2, 4] {
        let named = ["a0", "a1"].map(|n| (n, ()));
        let selector: BestOf<u32, ()> = BestOf::new("layer", named, Options::early()).unwrap();
        let mut met = vec![[0; 2]; callers];
        for call in 0.. {
            if selector.decision(&1).is_some() {
                break;
            }
            let begun = selector.begin(&1);
            met[call % callers][begun.alternative()] += 1;
            selector.finish_under(begun, Duration::from_micros(1000), ALONE);
        }
        let balanced = |m: &[i32; 2]| m[0].abs_diff(m[1]) <= 3 && m[0] > 0 && m[1] > 0;
        assert!(met.iter().all(balanced), "{met:?}");
    }
}

#[test]
fn what_conceded_is_tried_again_when_its_rival_is_gone() {
    let beside = Circumstances {
        rival: Some(Duration::from_micros(780)),
        ..ALONE
    };
    let mut family = Layer::new(&CONV5_1[2..], Options::early());
    family.call(beside);
    assert_eq!(family.selector.decision(&1), Some("a1"));
    assert!(family.selector.reopen_conceded(&1));
    assert_eq!(family.selector.decision(&1), None);
    assert_eq!(family.decide(ALONE), "a0");
    // What has lost to the family's own best stays out.
    assert!(!family.selector.reopen_conceded(&1));
    assert_eq!(family.selector.decision(&1), Some("a0"));
}

#[test]
fn what_has_changed_is_compared_again() {
    let mut layer = Layer::new(&[(1000, 1000), (800, 800)], Options::early());
    assert_eq!(layer.decide(ALONE), "a1");
    layer.times[1] = (2000, 2000);
    layer.selector.retry(&1, 1);
    assert_eq!(layer.selector.decision(&1), None);
    assert_eq!(layer.decide(ALONE), "a0");
    // What failed stays out.
    assert!(layer.selector.fail(&1, 1));
    layer.selector.retry(&1, 1);
    assert_eq!(layer.selector.decision(&1), Some("a0"));
}

#[test]
fn what_lost_to_an_alternative_that_fails_is_tried_again() {
    let mut layer = Layer::new(
        &[(1000, 1000), (5000, 3000), (9000, 9000)],
        Options::early(),
    );
    (0..4).for_each(|_| layer.call(ALONE));
    let status = |l: &Layer, at: usize| l.selector.report().keys[0].alternatives[at].status;
    assert_eq!(status(&layer, 1), Status::Pruned);
    assert!(layer.selector.fail(&1, 0));
    assert_eq!(layer.decide(ALONE), "a1");
}
