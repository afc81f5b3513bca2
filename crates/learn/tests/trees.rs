//! Boosted trees: what they learn, what they promise, what they refuse.

use learn::{EarlyStop, Examples, Objective, TreeSettings, Trees, Unfit, kendall};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn table(rows: usize, columns: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let row = |rng: &mut Pcg64Mcg| (0..columns).map(|_| rng.random_range(-1.0..1.0)).collect();
    (0..rows).map(|_| row(&mut rng)).collect()
}

fn settings(objective: Objective) -> TreeSettings {
    TreeSettings {
        rate: 0.1,
        ..TreeSettings::simulators(objective, 7)
    }
}

fn truth(row: &[f64]) -> f64 {
    100.0 + if row[0] > 0.25 { 3.0 } else { 0.0 } + 2.0 * row[1] * row[1] + row[2]
}

fn targets(rows: &[Vec<f64>]) -> Vec<f64> {
    rows.iter().map(|r| truth(r)).collect()
}

/// The squared error over that of the mean.
fn left_over(trees: &Trees, rows: &[Vec<f64>], y: &[f64]) -> f64 {
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let spread: f64 = y.iter().map(|y| (y - mean).powi(2)).sum();
    let found = trees.predict_batch(rows);
    found
        .iter()
        .zip(y)
        .map(|(p, y)| (p - y).powi(2))
        .sum::<f64>()
        / spread
}

#[test]
fn a_known_function_is_learnt_and_its_features_are_named() {
    let (rows, fresh) = (table(1500, 6, 1), table(400, 6, 2));
    let y = targets(&rows);
    let trees =
        Trees::fitted(&Examples::of(&rows, &y), &settings(Objective::SquaredError)).unwrap();
    let left = left_over(&trees, &fresh, &targets(&fresh));
    assert!(left < 0.02, "{left}");
    let importance = trees.importance();
    let noise = importance[3..].iter().copied().fold(0.0, f64::max);
    assert!(
        importance[..3].iter().all(|i| *i > 20.0 * noise),
        "{importance:?}"
    );
    for (row, found) in fresh.iter().zip(trees.predict_batch(&fresh)) {
        assert_eq!(trees.predict(row).to_bits(), found.to_bits());
    }
}

#[test]
fn one_split_is_the_one_that_the_definition_gives() {
    let rows: Vec<Vec<f64>> = [1.0, 2.0, 3.0, 10.0].map(|v| vec![v]).to_vec();
    let y = [0.0, 0.0, 0.0, 8.0];
    let stump = TreeSettings {
        rounds: 1,
        depth: 1,
        rate: 0.5,
        row_share: 1.0,
        column_share: 1.0,
        lambda: 1.0,
        ..TreeSettings::simulators(Objective::SquaredError, 0)
    };
    let trees = Trees::fitted(&Examples::of(&rows, &y), &stump).unwrap();
    // The mean is 2; derivatives are 2, 2, 2 and -6; leaves are half of -6/4 and of 6/2.
    assert_eq!(trees.predict_batch(&rows), [1.25, 1.25, 1.25, 3.5]);
    assert_eq!(trees.predict(&[6.4]), 1.25);
    assert_eq!(trees.predict(&[6.6]), 3.5);
    // 36/4 + 36/2 - 0.
    assert_eq!(trees.importance(), [27.0]);
    let with = |change: fn(&mut TreeSettings)| {
        let mut changed = stump.clone();
        change(&mut changed);
        Trees::fitted(&Examples::of(&rows, &y), &changed)
            .unwrap()
            .predict_batch(&rows)
    };
    assert_eq!(with(|s| s.gamma = 27.5), [2.0; 4]);
    // The best split that leaves two rows on each side: derivatives 4 and -4.
    assert_eq!(with(|s| s.min_child_weight = 2.0)[3], 2.0 + 0.5 * 4.0 / 3.0);
    // Alpha takes 2 of each sum: 4/4 and 4/2.
    assert_eq!(with(|s| s.alpha = 2.0), [1.5, 1.5, 1.5, 3.0]);
}

#[test]
fn ranking_orders_within_groups_of_different_scales() {
    let (rows, fresh) = (table(800, 5, 3), table(200, 5, 4));
    let groups: Vec<usize> = (0..rows.len()).map(|r| [3, 70, 12, 5][r % 4]).collect();
    // Groups differ by factors and offsets that no feature tells.
    let scaled = |rows: &[Vec<f64>]| -> Vec<f64> {
        let scale = [(1.0, 0.0), (1e5, -3e6), (1e-3, 50.0), (30.0, 1e4)];
        let y = rows.iter().enumerate();
        y.map(|(r, row)| scale[r % 4].0 * truth(row) + scale[r % 4].1)
            .collect()
    };
    let y = scaled(&rows);
    let of = |objective| {
        let examples = Examples {
            groups: Some(&groups),
            ..Examples::of(&rows, &y)
        };
        let trees = Trees::fitted(&examples, &settings(objective)).unwrap();
        let (found, wanted) = (trees.predict_batch(&fresh), scaled(&fresh));
        let every =
            |of: &[f64], g: usize| of.iter().skip(g).step_by(4).copied().collect::<Vec<f64>>();
        let taus = (0..4).map(|g| kendall(&every(&found, g), &every(&wanted, g)).unwrap());
        taus.sum::<f64>() / 4.0
    };
    let (ranking, squares) = (of(Objective::PairwiseRanking), of(Objective::SquaredError));
    assert!(ranking > 0.88, "{ranking}");
    assert!(squares < ranking - 0.1, "{squares} {ranking}");
}

#[test]
fn small_groups_compare_all_pairs() {
    let rows = table(300, 5, 5);
    let y = targets(&rows);
    let groups: Vec<usize> = (0..rows.len()).map(|r| r / 5).collect();
    let examples = Examples {
        groups: Some(&groups),
        ..Examples::of(&rows, &y)
    };
    let trees = Trees::fitted(&examples, &settings(Objective::PairwiseRanking)).unwrap();
    let fresh = table(200, 5, 6);
    let tau = kendall(&trees.predict_batch(&fresh), &targets(&fresh)).unwrap();
    assert!(tau > 0.75, "{tau}");
}

#[test]
fn a_seed_decides_everything() {
    let rows = table(300, 8, 8);
    let y = targets(&rows);
    for objective in [Objective::SquaredError, Objective::PairwiseRanking] {
        let of = |seed| {
            let seeded = TreeSettings {
                rounds: 40,
                seed,
                early_stop: Some(EarlyStop {
                    validation: 0.2,
                    patience: 10,
                }),
                ..settings(objective)
            };
            Trees::fitted(&Examples::of(&rows, &y), &seeded).unwrap()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}

#[test]
fn missing_values_go_to_the_side_that_fits() {
    let mut rows = table(600, 3, 9);
    let y: Vec<f64> = (0..rows.len())
        .map(|r| match r % 3 {
            0 => 5.0,
            _ => f64::from(u8::from(rows[r][0] > 0.0)),
        })
        .collect();
    rows.iter_mut().step_by(3).for_each(|r| r[0] = f64::NAN);
    let trees =
        Trees::fitted(&Examples::of(&rows, &y), &settings(Objective::SquaredError)).unwrap();
    for (row, wanted) in [(f64::NAN, 5.0), (-0.5, 0.0), (0.5, 1.0)] {
        let found = trees.predict(&[row, 0.0, 0.0]);
        assert!((found - wanted).abs() < 0.1, "{row}: {found}");
    }
    // A column that is constant or missing.
    let rows: Vec<Vec<f64>> = (0..50)
        .map(|r| vec![if r % 2 == 0 { f64::NAN } else { 4.0 }])
        .collect();
    let y: Vec<f64> = (0..50).map(|r| f64::from(r % 2)).collect();
    let trees =
        Trees::fitted(&Examples::of(&rows, &y), &settings(Objective::SquaredError)).unwrap();
    assert!(trees.predict(&[f64::NAN]) < 0.01 && trees.predict(&[4.0]) > 0.99);
    // Values that were missing in no row of the training go with the majority.
    let rows: Vec<Vec<f64>> = (0..50).map(|r| vec![f64::from(u8::from(r < 40))]).collect();
    let y: Vec<f64> = rows.iter().map(|r| r[0]).collect();
    let trees =
        Trees::fitted(&Examples::of(&rows, &y), &settings(Objective::SquaredError)).unwrap();
    assert!(trees.predict(&[f64::NAN]) > 0.99);
}

#[test]
fn weights_count_as_copies_do() {
    let mut rows = table(200, 4, 10);
    // Few values, so that the bins do not depend on how often a row comes.
    rows.iter_mut()
        .flatten()
        .for_each(|v| *v = (*v * 5.0).round());
    let y = targets(&rows);
    let whole = TreeSettings {
        rounds: 30,
        row_share: 1.0,
        ..settings(Objective::SquaredError)
    };
    let weights: Vec<f64> = (0..200).map(|r| f64::from(r % 3)).collect();
    let weighed = Examples {
        weights: Some(&weights),
        ..Examples::of(&rows, &y)
    };
    let copies: Vec<usize> = (0..200).flat_map(|r| vec![r; r % 3]).collect();
    let copied: Vec<Vec<f64>> = copies.iter().map(|r| rows[*r].clone()).collect();
    let of_copied: Vec<f64> = copies.iter().map(|r| y[*r]).collect();
    let a = Trees::fitted(&weighed, &whole).unwrap();
    let b = Trees::fitted(&Examples::of(&copied, &of_copied), &whole).unwrap();
    for row in &rows {
        assert!((a.predict(row) - b.predict(row)).abs() < 1e-9);
    }
    // A row without weight may have any target.
    let mut wild = y.clone();
    (0..200).step_by(3).for_each(|r| wild[r] = 1e9);
    for objective in [Objective::SquaredError, Objective::PairwiseRanking] {
        let whole = TreeSettings {
            objective,
            ..whole.clone()
        };
        let wild = Examples {
            y: &wild,
            ..weighed
        };
        let found = Trees::fitted(&wild, &whole).unwrap();
        assert_eq!(found, Trees::fitted(&weighed, &whole).unwrap());
    }
}

#[test]
fn training_stops_when_the_validation_part_gains_nothing() {
    let rows = table(300, 5, 11);
    let mut rng = Pcg64Mcg::seed_from_u64(12);
    let y: Vec<f64> = rows
        .iter()
        .map(|r| r[0] + rng.random_range(-2.0..2.0))
        .collect();
    let (fresh, patience) = (table(500, 5, 13), 15);
    let wanted: Vec<f64> = fresh.iter().map(|r| r[0]).collect();
    for objective in [Objective::SquaredError, Objective::PairwiseRanking] {
        let of = |early_stop| {
            let deep = TreeSettings {
                rounds: 1000,
                depth: 6,
                early_stop,
                ..settings(objective)
            };
            Trees::fitted(&Examples::of(&rows, &y), &deep).unwrap()
        };
        let stopped = of(Some(EarlyStop {
            validation: 0.3,
            patience,
        }));
        assert!((1..300).contains(&stopped.count()), "{}", stopped.count());
        let whole = of(None);
        assert_eq!(whole.count(), 1000);
        let tau = |trees: &Trees| kendall(&trees.predict_batch(&fresh), &wanted).unwrap();
        assert!(
            tau(&stopped) > tau(&whole),
            "{} {}",
            tau(&stopped),
            tau(&whole)
        );
    }
}

#[test]
fn more_trees_correct_a_model_on_new_data() {
    let rows = table(800, 5, 14);
    let y = targets(&rows);
    let few = TreeSettings {
        rounds: 100,
        ..settings(Objective::SquaredError)
    };
    let mut trees = Trees::fitted(&Examples::of(&rows, &y), &few).unwrap();
    let before = trees.clone();
    // The same function, shifted and steeper in one feature.
    let fresh = table(400, 5, 15);
    let shifted: Vec<f64> = fresh.iter().map(|r| truth(r) + 5.0 + 2.0 * r[4]).collect();
    let examples = Examples::of(&fresh, &shifted);
    trees.fit_more(&examples, &few).unwrap();
    assert_eq!(trees.count(), 200);
    let (then, now) = (
        left_over(&before, &fresh, &shifted),
        left_over(&trees, &fresh, &shifted),
    );
    assert!(then > 1.0 && now < 0.05, "{then} {now}");
    let narrow = table(10, 4, 16);
    let refused = trees.fit_more(&Examples::of(&narrow, &[0.0; 10]), &few);
    assert!(matches!(refused, Err(Unfit::Length { .. })));
    assert_eq!(trees.count(), 200);
}

#[test]
fn settings_of_meta_schedule_fit_training_data_closely() {
    let rows = table(300, 6, 17);
    let y = targets(&rows);
    let settings = TreeSettings::meta_schedule(Objective::SquaredError, 1);
    let trees = Trees::fitted(&Examples::of(&rows, &y), &settings).unwrap();
    assert!(trees.count() < 2000, "{}", trees.count());
    assert!(left_over(&trees, &rows, &y) < 1e-3);
}

#[test]
fn examples_with_faults_are_refused() {
    let rows = vec![vec![1.0], vec![f64::NAN], vec![2.0]];
    let good = [1.0, 2.0, 3.0];
    let of = |examples: &Examples<'_>| {
        let settings = settings(Objective::PairwiseRanking);
        Trees::fitted(examples, &settings).err()
    };
    let examples = Examples::of(&rows, &good);
    assert_eq!(of(&examples), None);
    assert_eq!(of(&Examples::of(&[], &[])), Some(Unfit::Empty));
    assert!(matches!(
        of(&Examples::of(&rows, &good[..2])),
        Some(Unfit::Length { .. })
    ));
    let infinite = vec![vec![1.0], vec![f64::INFINITY], vec![2.0]];
    assert_eq!(
        of(&Examples::of(&infinite, &good)),
        Some(Unfit::NotFinite { row: 1 })
    );
    let weights = [1.0, 0.0, -1.0];
    let weights = Examples {
        weights: Some(&weights),
        ..examples
    };
    assert_eq!(of(&weights), Some(Unfit::Weight { row: 2 }));
    let groups = Examples {
        groups: Some(&[1, 2]),
        ..examples
    };
    assert!(matches!(of(&groups), Some(Unfit::Length { .. })));
}
