//! k-means: Lloyd's rounds from centres that are chosen as k-means++ does.

use crate::{Unfit, columns, squared_distance};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Rounds after which the centres are taken as they are.
const MOST_ROUNDS: usize = 300;

#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    pub centres: Vec<Vec<f64>>,
    /// For each row, the index of its nearest centre.
    pub of_row: Vec<usize>,
    /// Sum of squared distances between rows and their centres.
    pub inertia: f64,
}

/// Divides rows into at most `k` clusters, fewer if there are fewer distinct rows.
pub fn k_means(rows: &[Vec<f64>], k: usize, seed: u64) -> Result<Clusters, Unfit> {
    columns(rows)?;
    if k == 0 {
        return Err(Unfit::Empty);
    }
    let mut centres = first_centres(rows, k, &mut Pcg64Mcg::seed_from_u64(seed));
    let mut of_row = assigned(rows, &centres);
    for _ in 0..MOST_ROUNDS {
        for (c, centre) in centres.iter_mut().enumerate() {
            let own: Vec<&Vec<f64>> = (0..rows.len())
                .filter(|r| of_row[*r] == c)
                .map(|r| &rows[r])
                .collect();
            // Without rows a centre stays.
            for (d, value) in centre.iter_mut().enumerate().filter(|_| !own.is_empty()) {
                *value = own.iter().map(|r| r[d]).sum::<f64>() / own.len() as f64;
            }
        }
        let next = assigned(rows, &centres);
        if next == of_row {
            break;
        }
        of_row = next;
    }
    let distances = rows.iter().zip(&of_row);
    let inertia = distances
        .map(|(r, c)| squared_distance(r, &centres[*c]))
        .sum();
    Ok(Clusters {
        centres,
        of_row,
        inertia,
    })
}

/// A random row, then rows far from all centres so far, more likely the farther.
fn first_centres(rows: &[Vec<f64>], k: usize, rng: &mut Pcg64Mcg) -> Vec<Vec<f64>> {
    let mut centres = vec![rows[rng.random_range(0..rows.len())].clone()];
    while centres.len() < k {
        let distance = |r: &Vec<f64>| {
            let all = centres.iter().map(|c| squared_distance(r, c));
            all.fold(f64::INFINITY, f64::min)
        };
        let distances: Vec<f64> = rows.iter().map(distance).collect();
        let total: f64 = distances.iter().sum();
        if total <= 0.0 {
            break;
        }
        let mut rest = rng.random::<f64>() * total;
        let passed = |d: &f64| {
            rest -= d;
            rest < 0.0 && *d > 0.0
        };
        let last = distances.iter().rposition(|d| *d > 0.0).unwrap_or(0);
        let chosen = distances.iter().position(passed).unwrap_or(last);
        centres.push(rows[chosen].clone());
    }
    centres
}

fn assigned(rows: &[Vec<f64>], centres: &[Vec<f64>]) -> Vec<usize> {
    let nearest = |r: &Vec<f64>| {
        let distances = centres.iter().map(|c| squared_distance(r, c)).enumerate();
        let best = distances.min_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(0, |b| b.0)
    };
    rows.iter().map(nearest).collect()
}
