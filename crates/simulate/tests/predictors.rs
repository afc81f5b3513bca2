//! Predictors: what they learn from samples that a formula made, their files, and what they refuse.

use analysis::Features;
use proptest::prelude::{Strategy, any, proptest};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use simulate::{
    FeatureSet, Hits, LevelCounts, METHODS, Means, Method, Metrics, Predictor, Sample, Statistics,
    TrainOptions, Window,
};

/// A candidate whose time is the sum of its instructions and of waits for missing lines.
fn sample(group: &str, scale: f64, rng: &mut Pcg64Mcg) -> Sample {
    let instructions = scale * rng.random_range(1e6..3e6);
    let accesses = instructions * rng.random_range(0.2..0.5);
    let mut level = |accesses: f64| {
        let misses = accesses * rng.random_range(0.01..0.3);
        let read = Hits {
            hits: (accesses - misses) as u64,
            misses: misses as u64,
            replacements: (misses * 0.9) as u64,
        };
        let write = Hits::default();
        (LevelCounts { read, write }, misses)
    };
    let (l1d, misses) = level(accesses);
    let (l2, far) = level(misses);
    let statistics = Statistics {
        simulator: "formula".into(),
        instructions,
        loads: accesses,
        stores: instructions * 0.05,
        branches: instructions * 0.02,
        l1d,
        shared: vec![l2],
        ..Statistics::default()
    };
    Sample {
        group: group.into(),
        kind: "conv2d".into(),
        cpu: "cortex-a72".into(),
        statistics,
        code: Some(Features {
            forks: instructions * 0.4,
            ..Features::default()
        }),
        time_ns: Some(0.5 * instructions + 6.0 * misses + 40.0 * far),
        proposed: "random".into(),
        ..Sample::default()
    }
}

fn samples(groups: &[(&str, f64)], each: usize, seed: u64) -> Vec<Sample> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let each = |(group, scale): &(&str, f64)| -> Vec<Sample> {
        (0..each).map(|_| sample(group, *scale, &mut rng)).collect()
    };
    groups.iter().flat_map(each).collect()
}

fn options(method: &str) -> TrainOptions {
    TrainOptions {
        method: Method::named(method).unwrap(),
        features: FeatureSet::Counts,
        validation: 0.2,
        seed: 1,
    }
}

fn trained(method: &str) -> Predictor {
    let all = samples(&[("small", 1.0), ("large", 40.0)], 150, 1);
    Predictor::train(&all.iter().collect::<Vec<_>>(), options(method)).unwrap()
}

fn metrics(of: &Predictor, unseen: &[Sample], window: Window) -> Metrics {
    let seen: Vec<&Sample> = unseen.iter().collect();
    let times: Vec<f64> = unseen.iter().filter_map(|s| s.time_ns).collect();
    Metrics::of(&times, &of.score(&seen, window).unwrap()).unwrap()
}

#[test]
fn every_method_orders_a_group_that_it_never_saw() {
    let unseen = samples(&[("new", 7.0)], 100, 2);
    for method in METHODS.iter().map(|m| m.name) {
        let predictor = trained(method);
        assert_eq!(predictor.about().samples, 300);
        assert_eq!(predictor.about().validation.len(), 2);
        for window in [Window::Dynamic, Window::Static(32)] {
            let of = metrics(&predictor, &unseen, window);
            assert!(of.r_top1 <= 8.0 && of.e_top1 <= 15.0, "{method}: {of:?}");
            assert!(of.q_low < 10.0, "{method}: {of:?}");
        }
    }
}

#[test]
fn files_keep_scores_and_say_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a72.json");
    let unseen = samples(&[("new", 7.0)], 20, 2);
    let seen: Vec<&Sample> = unseen.iter().collect();
    for method in ["linear", "log-trees", "trees"] {
        let predictor = trained(method);
        predictor.save(&path).unwrap();
        let loaded = Predictor::load(&path).unwrap();
        assert_eq!(loaded.about(), predictor.about());
        let scores = |p: &Predictor| p.score(&seen, Window::Dynamic).unwrap();
        assert_eq!(scores(&loaded), scores(&predictor));
    }
    let refused = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        let other = folder.path().join("other.json");
        std::fs::write(&other, text.replace(from, to)).unwrap();
        Predictor::load(&other).err().unwrap().to_string()
    };
    let said = refused("\"form\": 1", "\"form\": 2");
    assert!(
        said.contains("other.json: the predictor's file has form 2"),
        "{said}"
    );
    let said = refused("\"feature_version\": 1", "\"feature_version\": 9");
    assert!(
        said.contains("trained on version 9 of the features"),
        "{said}"
    );
    let said = refused("\"method\": \"trees\"", "\"method\": \"oracle\"");
    assert!(said.contains("`oracle`"), "{said}");
    let said = refused("\"cpu\"", "\"gpu\"");
    assert!(said.contains("not a saved predictor"), "{said}");
}

#[test]
fn samples_that_do_not_fit_are_refused() {
    let all = samples(&[("a", 1.0), ("b", 2.0)], 10, 3);
    let said = |change: &dyn Fn(&mut Sample), options: TrainOptions| {
        let mut all = all.clone();
        change(&mut all[12]);
        let all: Vec<&Sample> = all.iter().collect();
        let error = Predictor::train(&all, options).err().unwrap();
        error.to_string()
    };
    let linear = options("linear");
    let other = said(&|s| s.cpu = "m1".into(), linear);
    assert!(
        other.contains("the processor m1 instead of cortex-a72"),
        "{other}"
    );
    let other = said(&|s| s.kind = "matmul".into(), linear);
    assert!(other.contains("the type of kernel matmul"), "{other}");
    let mut two = all.clone();
    two.iter_mut().for_each(|s| s.target = "x86-avx2".into());
    two[12].target = "x86-sse2".into();
    let two: Vec<&Sample> = two.iter().collect();
    let other = Predictor::train(&two, linear).err().unwrap().to_string();
    assert!(
        other.contains("the instruction set x86-sse2 instead of x86-avx2"),
        "{other}"
    );
    let other = said(&|s| s.statistics.shared.clear(), linear);
    assert!(
        other.contains("caches behind the first 0 instead of 1"),
        "{other}"
    );
    let other = said(&|s| s.time_ns = None, linear);
    assert!(
        other.contains("group b has samples without a measured time"),
        "{other}"
    );
    let with_reading = TrainOptions {
        features: FeatureSet::Reading,
        ..linear
    };
    let other = said(&|s| s.code = None, with_reading);
    assert!(
        other.contains("does not say what reading its code tells"),
        "{other}"
    );
    let none = Predictor::train(&[], linear).err().unwrap();
    assert_eq!(none.to_string(), "there are no samples");
}

#[test]
fn the_static_score_is_a_feature_where_asked_for() {
    // Only the static score tells these candidates apart.
    let mut all = samples(&[("a", 1.0)], 60, 4);
    let same = all[0].statistics.clone();
    for s in &mut all {
        s.statistics = same.clone();
        s.time_ns = s.static_score();
    }
    let refs: Vec<&Sample> = all.iter().collect();
    let with_reading = TrainOptions {
        features: FeatureSet::Reading,
        ..options("linear")
    };
    let predictor = Predictor::train(&refs, with_reading).unwrap();
    let of = metrics(&predictor, &all, Window::Dynamic);
    assert_eq!((of.e_top1, of.q_low, of.q_high), (0.0, 0.0, 0.0));
}

/// Counts of any kind, caches without accesses among them.
fn any_statistics() -> impl Strategy<Value = Statistics> {
    let counts = any::<[(u16, u16, u16); 6]>();
    let level = |[read, write]: [(u16, u16, u16); 2]| {
        let [read, write] = [read, write].map(|(hits, misses, replacements)| Hits {
            hits: hits.into(),
            misses: misses.into(),
            replacements: replacements.into(),
        });
        LevelCounts { read, write }
    };
    (any::<[u8; 4]>(), counts).prop_map(move |([i, l, s, b], c)| Statistics {
        instructions: i.into(),
        loads: l.into(),
        stores: s.into(),
        branches: b.into(),
        l1d: level([c[0], c[1]]),
        l1i: level([c[2], c[3]]),
        shared: vec![level([c[4], c[5]])],
        ..Statistics::default()
    })
}

proptest! {
    #[test]
    fn features_are_finite(all in proptest::collection::vec(any_statistics(), 1..8)) {
        let all: Vec<Sample> = all
            .into_iter()
            .map(|statistics| Sample { statistics, ..Sample::default() })
            .collect();
        let seen: Vec<&Sample> = all.iter().collect();
        let means = Means::of(&seen);
        for s in &seen {
            assert!(means.features(s, FeatureSet::Reading).iter().all(|v| v.is_finite()));
        }
    }
}
