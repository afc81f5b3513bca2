//! Every learner against answers that are known.

use learn::{
    Activation, Design, Loss, Network, Smoothing, Training, Unfit, k_means, loess,
    non_negative_least_squares,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}

fn table(rows: usize, columns: usize, rng: &mut Pcg64Mcg) -> Vec<Vec<f64>> {
    let row = |rng: &mut Pcg64Mcg| (0..columns).map(|_| rng.random_range(-1.0..1.0)).collect();
    (0..rows).map(|_| row(rng)).collect()
}

fn times(rows: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    let product = |r: &Vec<f64>| r.iter().zip(x).map(|(a, b)| a * b).sum();
    rows.iter().map(product).collect()
}

#[test]
fn least_squares_find_factors_that_are_not_negative() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    for _ in 0..20 {
        let rows = table(30, 6, &mut rng);
        let x: Vec<f64> = (0..6).map(|i| f64::from(i % 3)).collect();
        let found = non_negative_least_squares(&rows, &times(&rows, &x)).unwrap();
        assert!(
            found.iter().zip(&x).all(|(a, b)| near(*a, *b, 1e-9)),
            "{found:?}"
        );
    }
}

#[test]
fn least_squares_meet_the_conditions_of_an_optimum() {
    // The gradient is 0 where a factor is free, and not positive where it is 0.
    let mut rng = Pcg64Mcg::seed_from_u64(2);
    let mut at_bound = 0;
    for _ in 0..40 {
        let mut rows = table(25, 8, &mut rng);
        // Units that differ by orders of magnitude.
        rows.iter_mut().for_each(|r| r[3] *= 1e6);
        let y: Vec<f64> = (0..25).map(|_| rng.random_range(-1.0..1.0)).collect();
        let x = non_negative_least_squares(&rows, &y).unwrap();
        let left: Vec<f64> = times(&rows, &x)
            .iter()
            .zip(&y)
            .map(|(p, y)| y - p)
            .collect();
        for j in 0..8 {
            let column: Vec<f64> = rows.iter().map(|r| r[j]).collect();
            let length = column.iter().map(|v| v * v).sum::<f64>().sqrt();
            let gradient = column.iter().zip(&left).map(|(a, b)| a * b).sum::<f64>() / length;
            assert!(x[j] >= 0.0 && gradient <= 1e-8, "{j} {} {gradient}", x[j]);
            assert!(x[j] == 0.0 || gradient >= -1e-8, "{j} {} {gradient}", x[j]);
            at_bound += usize::from(x[j] == 0.0);
        }
    }
    assert!(at_bound > 50, "{at_bound}");
}

#[test]
fn columns_that_depend_on_each_other_have_an_answer() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let mut rows = table(20, 3, &mut rng);
    let y = times(&rows, &[1.0, 2.0, 3.0]);
    // The same column again, one of zeros, and a sum.
    rows.iter_mut()
        .for_each(|r| r.extend([r[0], 0.0, r[1] + r[2]]));
    let x = non_negative_least_squares(&rows, &y).unwrap();
    let error: f64 = times(&rows, &x)
        .iter()
        .zip(&y)
        .map(|(a, b)| (a - b).abs())
        .sum();
    assert!(error < 1e-6, "{x:?}");
    assert_eq!(x[4], 0.0);
}

#[test]
fn clusters_that_lie_apart_are_found() {
    let mut rng = Pcg64Mcg::seed_from_u64(4);
    let centres = [[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]];
    let mut rows = Vec::new();
    for i in 0..90 {
        let c = centres[i % 3];
        rows.push(
            c.iter()
                .map(|v| v + rng.random_range(-1.0..1.0))
                .collect::<Vec<f64>>(),
        );
    }
    for seed in 0..5 {
        let found = k_means(&rows, 3, seed).unwrap();
        assert_eq!(found.centres.len(), 3);
        for i in 3..90 {
            assert_eq!(found.of_row[i], found.of_row[i % 3], "row {i}");
        }
        let nearest = |c: &[f64; 2]| {
            let near_by = |f: &&Vec<f64>| near(f[0], c[0], 0.5) && near(f[1], c[1], 0.5);
            found.centres.iter().filter(near_by).count()
        };
        assert!(
            centres.iter().all(|c| nearest(c) == 1),
            "{:?}",
            found.centres
        );
        assert!(found.inertia < 90.0, "{}", found.inertia);
    }
    assert_eq!(k_means(&rows, 3, 1), k_means(&rows, 3, 1));
}

#[test]
fn there_are_no_more_clusters_than_distinct_rows() {
    let rows = vec![vec![1.0], vec![1.0], vec![2.0], vec![2.0]];
    let found = k_means(&rows, 4, 0).unwrap();
    assert_eq!((found.centres.len(), found.inertia), (2, 0.0));
}

/// Smoothing in one pass.
fn by(fraction: f64) -> Smoothing {
    Smoothing {
        fraction,
        passes: 0,
    }
}

#[test]
fn robust_passes_take_outliers_from_a_smoother() {
    let x: Vec<f64> = (0..60).map(f64::from).collect();
    let wave = |x: f64| 2.0 * x + (x * 1.7).sin();
    let mut y: Vec<f64> = x.iter().map(|x| wave(*x)).collect();
    for i in [5, 20, 21, 48] {
        y[i] += 1000.0;
    }
    let off = |passes| {
        let smoothing = Smoothing {
            fraction: 0.5,
            passes,
        };
        let smooth = loess(&x, &y, smoothing, &x).unwrap();
        let off = x.iter().zip(smooth).map(|(x, s)| (s - 2.0 * x).abs());
        off.fold(0.0, f64::max)
    };
    assert!(off(0) > 50.0 && off(3) < 1.0, "{} {}", off(0), off(3));
    // Lines that most observations lie on stay as they are.
    let mut line = x.clone();
    line[30] = 500.0;
    let exact = Smoothing {
        fraction: 0.1,
        passes: 5,
    };
    assert!(near(loess(&x, &line, exact, &[3.0]).unwrap()[0], 3.0, 1e-9));
}

#[test]
fn a_smoother_follows_lines_and_flattens_noise() {
    let x: Vec<f64> = (0..50).map(f64::from).collect();
    let line: Vec<f64> = x.iter().map(|x| 3.0 * x - 7.0).collect();
    let at = [0.0, 12.5, 49.0, 60.0];
    for (at, value) in at.iter().zip(loess(&x, &line, by(0.3), &at).unwrap()) {
        assert!(near(value, 3.0 * at - 7.0, 1e-9), "{at} {value}");
    }
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    let curve = |x: f64| (x / 8.0).sin();
    let noisy: Vec<f64> = x
        .iter()
        .map(|x| curve(*x) + rng.random_range(-0.3..0.3))
        .collect();
    let smooth = loess(&x, &noisy, by(0.25), &x).unwrap();
    let error = |y: &[f64]| {
        x.iter()
            .zip(y)
            .map(|(x, y)| (y - curve(*x)).powi(2))
            .sum::<f64>()
    };
    assert!(
        error(&smooth) < 0.5 * error(&noisy),
        "{} {}",
        error(&smooth),
        error(&noisy)
    );
    // Many observations at one place.
    assert_eq!(
        loess(&[1.0; 3], &[1.0, 2.0, 6.0], by(1.0), &[1.0]).unwrap(),
        [3.0]
    );
}

#[test]
fn a_network_learns_what_no_line_describes() {
    let mut rng = Pcg64Mcg::seed_from_u64(6);
    let training = Training {
        hidden: vec![24, 24],
        epochs: 200,
        batch: 16,
        rate: 3e-3,
        seed: 1,
    };
    let truth = |r: &[f64]| 1e6 * (r[0] * r[1] + r[2].abs());
    let rows = table(300, 3, &mut rng);
    let y: Vec<f64> = rows.iter().map(|r| truth(r)).collect();
    let network = Network::trained(&rows, &y, &training).unwrap();
    assert_eq!(network, Network::trained(&rows, &y, &training).unwrap());
    let fresh = table(200, 3, &mut rng);
    let wanted: Vec<f64> = fresh.iter().map(|r| truth(r)).collect();
    let mean = wanted.iter().sum::<f64>() / 200.0;
    let spread: f64 = wanted.iter().map(|w| (w - mean).powi(2)).sum();
    let missed = fresh
        .iter()
        .zip(&wanted)
        .map(|(r, w)| (network.predict(r) - w).powi(2));
    let share = missed.sum::<f64>() / spread;
    assert!(share < 0.05, "{share} of the variance is left");
}

/// How much of the variance a network leaves of a curve with some wild targets among the training rows.
fn left_by(design: Design, rate: f64) -> f64 {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let truth = |r: &[f64]| (3.0 * r[0]).sin() + r[1];
    let rows = table(400, 2, &mut rng);
    let wild = |i: usize| if i.is_multiple_of(10) { 30.0 } else { 0.0 };
    let y: Vec<f64> = (0..400).map(|i| truth(&rows[i]) + wild(i)).collect();
    let training = Training {
        hidden: vec![16, 16],
        epochs: 150,
        batch: 16,
        rate,
        seed: 2,
    };
    let network = Network::designed(&rows, &y, &training, design).unwrap();
    let fresh = table(200, 2, &mut rng);
    let wanted: Vec<f64> = fresh.iter().map(|r| truth(r)).collect();
    let mean = wanted.iter().sum::<f64>() / 200.0;
    let spread: f64 = wanted.iter().map(|w| (w - mean).powi(2)).sum();
    let missed = fresh.iter().zip(&wanted);
    missed
        .map(|(r, w)| (network.predict(r) - w).powi(2))
        .sum::<f64>()
        / spread
}

#[test]
fn absolute_errors_bear_wild_targets_and_squared_ones_do_not() {
    let absolute = left_by(Design::SIMULATORS, 3e-3);
    let squared = Design {
        loss: Loss::Squared,
        ..Design::SIMULATORS
    };
    assert!(absolute < 0.1, "{absolute}");
    assert!(left_by(squared, 3e-3) > 1.0);
    // Without activation a network is a line, which leaves most of the sine's curve.
    let line = Design {
        activation: Activation::None,
        ..Design::SIMULATORS
    };
    assert!(left_by(line, 3e-3) > absolute + 0.05);
}

#[test]
fn a_plateau_lowers_the_rate() {
    // A rate that is too great for steady progress.
    let constant = Design {
        patience: None,
        ..Design::SIMULATORS
    };
    let lowered = Design {
        patience: Some(3),
        ..Design::SIMULATORS
    };
    let (constant, lowered) = (left_by(constant, 0.05), left_by(lowered, 0.05));
    assert!(lowered < 0.7 * constant, "{lowered} {constant}");
}

#[test]
fn hidden_layers_are_given_on_request() {
    let mut rng = Pcg64Mcg::seed_from_u64(8);
    let rows = table(50, 3, &mut rng);
    let y = times(&rows, &[1.0, 2.0, 3.0]);
    let training = Training {
        hidden: vec![7, 5],
        epochs: 2,
        batch: 8,
        rate: 1e-3,
        seed: 3,
    };
    let network = Network::designed(&rows, &y, &training, Design::SIMULATORS).unwrap();
    let hidden = |layer| network.hidden(&rows[0], layer);
    assert_eq!(hidden(0).map(|h| h.len()), Some(7));
    let last = hidden(1).unwrap();
    assert!(last.len() == 5 && last.iter().all(|v| v.abs() < 1.0 && *v != 0.0));
    assert_eq!(hidden(2), None);
}

#[test]
fn tables_with_faults_are_refused() {
    let uneven = vec![vec![1.0, 2.0], vec![1.0]];
    let infinite = vec![vec![1.0], vec![f64::NAN]];
    let training = Training {
        hidden: vec![2],
        epochs: 1,
        batch: 1,
        rate: 0.1,
        seed: 0,
    };
    for (rows, y) in [
        (vec![], vec![]),
        (uneven, vec![1.0, 1.0]),
        (infinite, vec![1.0, 1.0]),
    ] {
        let expected = non_negative_least_squares(&rows, &y).unwrap_err();
        assert_eq!(k_means(&rows, 2, 0), Err(expected.clone()));
        assert_eq!(Network::trained(&rows, &y, &training), Err(expected));
    }
    let rows = vec![vec![1.0]; 2];
    assert!(matches!(
        non_negative_least_squares(&rows, &[1.0]),
        Err(Unfit::Length { .. })
    ));
    assert_eq!(
        loess(&[1.0], &[f64::INFINITY], by(0.5), &[]),
        Err(Unfit::NotFinite { row: 0 })
    );
    assert_eq!(loess(&[], &[], by(0.5), &[1.0]), Err(Unfit::Empty));
}
