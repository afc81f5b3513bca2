//! The Gaussian process: noise that it finds, what it interpolates, what it knows it does not know.

use learn::{GaussianProcess, GaussianSettings, Kernel, Unfit};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn settings(length_each: bool) -> GaussianSettings {
    GaussianSettings {
        length_each,
        restarts: 3,
        kernel_rows: 200,
        seed: 1,
    }
}

fn table(rows: usize, columns: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let row = |rng: &mut Pcg64Mcg| (0..columns).map(|_| rng.random_range(-3.0..3.0)).collect();
    (0..rows).map(|_| row(&mut rng)).collect()
}

/// A number of mean 0 and deviation 1: twelve uniform ones, summed.
fn normal(rng: &mut Pcg64Mcg) -> f64 {
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}

fn truth(row: &[f64]) -> f64 {
    1000.0 + 50.0 * row[0].sin()
}

fn largest_error(model: &GaussianProcess, rows: &[Vec<f64>]) -> f64 {
    let errors = rows
        .iter()
        .map(|r| (model.predict(r).mean - truth(r)).abs());
    errors.fold(0.0, f64::max)
}

#[test]
fn without_noise_it_interpolates() {
    let rows = table(40, 1, 1);
    let y: Vec<f64> = rows.iter().map(|r| truth(r)).collect();
    let model = GaussianProcess::fitted(&rows, &y, &settings(false)).unwrap();
    assert!(largest_error(&model, &rows) < 0.05);
    assert!(largest_error(&model, &[vec![0.5], vec![-1.3], vec![2.2]]) < 0.5);
    assert!(model.noise() < 0.1, "{}", model.noise());
    // Far away nothing is known: the mean and the signal.
    let (near, far) = (model.predict(&[0.0]), model.predict(&[60.0]));
    assert!(
        far.deviation > 20.0 && near.deviation < 0.5,
        "{near:?} {far:?}"
    );
}

#[test]
fn noise_is_found_and_smoothed() {
    let rows = table(200, 1, 2);
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let y: Vec<f64> = rows
        .iter()
        .map(|r| truth(r) + 10.0 * normal(&mut rng))
        .collect();
    let model = GaussianProcess::fitted(&rows, &y, &settings(false)).unwrap();
    assert!((8.5..11.5).contains(&model.noise()), "{}", model.noise());
    let places: Vec<Vec<f64>> = (-25..=25).map(|i| vec![f64::from(i) * 0.1]).collect();
    assert!(largest_error(&model, &places) < 8.0);
    // Errors are about as large as the deviations say.
    let scaled = places.iter().map(|r| {
        let found = model.predict(r);
        ((found.mean - truth(r)) / found.deviation).powi(2)
    });
    let mean = scaled.sum::<f64>() / places.len() as f64;
    assert!((0.1..4.0).contains(&mean), "{mean}");
    assert_eq!(
        model,
        GaussianProcess::fitted(&rows, &y, &settings(false)).unwrap()
    );
}

#[test]
fn lengths_tell_features_that_matter() {
    let mut rows = table(120, 4, 4);
    // Units do not matter.
    rows.iter_mut().for_each(|r| r[1] *= 1e6);
    let y: Vec<f64> = rows.iter().map(|r| truth(r)).collect();
    let each = GaussianProcess::fitted(&rows, &y, &settings(true)).unwrap();
    let lengths = each.lengths();
    assert!((0.5..4.0).contains(&lengths[0]), "{lengths:?}");
    assert!(
        lengths[1] > 1e7 && lengths[2] > 10.0 && lengths[3] > 10.0,
        "{lengths:?}"
    );
    let one = GaussianProcess::fitted(&rows, &y, &settings(false)).unwrap();
    let fresh: Vec<Vec<f64>> = table(100, 4, 5)
        .into_iter()
        .map(|r| vec![r[0], 1e6 * r[1], r[2], r[3]])
        .collect();
    assert!(largest_error(&each, &fresh) < 0.2 * largest_error(&one, &fresh));
}

#[test]
fn more_observations_are_taken_without_a_new_fit() {
    let rows = table(60, 2, 6);
    let y: Vec<f64> = rows.iter().map(|r| truth(r)).collect();
    let mut model = GaussianProcess::fitted(&rows[..20], &y[..20], &settings(false)).unwrap();
    let (noise, before) = (model.noise(), largest_error(&model, &rows));
    model.add(&rows[20..], &y[20..]).unwrap();
    assert_eq!(model.noise(), noise);
    assert!(largest_error(&model, &rows) < 0.1 * before);
    // An observation once more changes next to nothing.
    let again = model.predict(&rows[3]);
    model.add(&rows[3..4], &y[3..4]).unwrap();
    assert!((model.predict(&rows[3]).mean - again.mean).abs() < 0.1);
}

#[test]
fn a_kernel_is_fitted_to_few_rows_and_predictions_use_all() {
    let rows = table(300, 1, 7);
    let y: Vec<f64> = rows.iter().map(|r| truth(r)).collect();
    let few = GaussianSettings {
        kernel_rows: 30,
        ..settings(false)
    };
    let model = GaussianProcess::fitted(&rows, &y, &few).unwrap();
    assert!(largest_error(&model, &rows) < 0.05);
}

#[test]
fn tables_with_faults_are_refused_and_constant_ones_are_not() {
    let rows = table(5, 2, 8);
    let of = |rows: &[Vec<f64>], y: &[f64]| GaussianProcess::fitted(rows, y, &settings(false));
    assert_eq!(of(&[], &[]), Err(Unfit::Empty));
    assert!(matches!(of(&rows, &[1.0]), Err(Unfit::Length { .. })));
    assert_eq!(
        of(&[vec![f64::NAN]], &[1.0]),
        Err(Unfit::NotFinite { row: 0 })
    );
    let mut model = of(&rows, &[3.0; 5]).unwrap();
    assert!((model.predict(&rows[1]).mean - 3.0).abs() < 1e-9);
    let before = model.clone();
    assert!(matches!(
        model.add(&[vec![1.0]], &[1.0]),
        Err(Unfit::Length { .. })
    ));
    assert_eq!(model, before);
    let same = of(&vec![vec![1.0]; 6], &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]).unwrap();
    assert!((same.predict(&[1.0]).mean - 2.0).abs() < 0.1);
}

#[test]
fn a_given_kernel_is_kept() {
    let rows = table(40, 1, 3);
    let y: Vec<f64> = rows.iter().map(|r| truth(r)).collect();
    let kernel = Kernel {
        signal: 1.0,
        noise: 0.01,
        length: 0.5,
    };
    let model = GaussianProcess::with_kernel(&rows, &y, kernel).unwrap();
    for (row, y) in rows.iter().zip(&y) {
        assert!((model.predict(row).mean - y).abs() < 2.0, "{row:?} {y}");
    }
    let deviation = |v: &dyn Fn(usize) -> f64| {
        let mean = (0..40).map(v).sum::<f64>() / 40.0;
        ((0..40).map(|i| (v(i) - mean).powi(2)).sum::<f64>() / 40.0).sqrt()
    };
    let (of_rows, of_y) = (deviation(&|i| rows[i][0]), deviation(&|i| y[i]));
    assert!((model.lengths()[0] / of_rows - 0.5).abs() < 1e-9);
    assert!((model.noise() / of_y - 0.01).abs() < 1e-9);
}
