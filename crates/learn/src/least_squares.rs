//! Non-negative least squares, by the active sets of Lawson and Hanson.

use crate::cholesky::Cholesky;
use crate::saved::{LoadError, Model, Reader, Writer};
use crate::{Unfit, columns, dot, targets};

/// Of the largest product of a column with the targets: what counts as zero.
const TOLERANCE: f64 = 1e-10;

/// A linear model without a constant: one factor for each feature.
#[derive(Clone, Debug, PartialEq)]
pub struct Coefficients(pub Vec<f64>);

impl Coefficients {
    /// The prediction for one row of as many features as there are factors.
    pub fn predict(&self, row: &[f64]) -> f64 {
        assert_eq!(row.len(), self.0.len(), "features of a row");
        dot(row, &self.0)
    }
}

impl Model for Coefficients {
    const KIND: &'static str = "coefficients";

    fn write(&self, to: &mut Writer) {
        to.numbers("factors", self.0.iter().copied());
    }

    fn read(from: &mut Reader<'_>) -> Result<Coefficients, LoadError> {
        from.numbers("factors").map(Coefficients)
    }
}

/// The factors `x >= 0`, one for each column, that make `|rows * x - y|` smallest.
///
/// Columns are scaled to equal lengths inside, so their units do not matter. Of
/// columns that depend on each other some get the factor 0.
pub fn non_negative_least_squares(rows: &[Vec<f64>], y: &[f64]) -> Result<Vec<f64>, Unfit> {
    let n = columns(rows)?;
    targets(rows.len(), y)?;
    let column = |j: usize| -> Vec<f64> { rows.iter().map(|r| r[j]).collect() };
    let lengths: Vec<f64> = (0..n).map(|j| dot(&column(j), &column(j)).sqrt()).collect();
    let table: Vec<Vec<f64>> = (0..n)
        .map(|j| {
            let scale = if lengths[j] > 0.0 {
                1.0 / lengths[j]
            } else {
                0.0
            };
            column(j).iter().map(|v| v * scale).collect()
        })
        .collect();
    let gram: Vec<Vec<f64>> = (0..n)
        .map(|i| (0..n).map(|j| dot(&table[i], &table[j])).collect())
        .collect();
    let products: Vec<f64> = table.iter().map(|c| dot(c, y)).collect();
    let solution = active_sets(&gram, &products);
    let unscaled = solution.iter().zip(&lengths);
    Ok(unscaled
        .map(|(x, l)| if *l > 0.0 { x / l } else { 0.0 })
        .collect())
}

/// The smallest of `x' gram x / 2 - products' x` over `x >= 0`.
fn active_sets(gram: &[Vec<f64>], products: &[f64]) -> Vec<f64> {
    let n = products.len();
    let largest = products.iter().fold(0.0, |a: f64, p| a.max(p.abs()));
    let mut x = vec![0.0; n];
    let mut free = vec![false; n];
    // Each round frees one column; a column that cannot be solved for stays at 0.
    let mut useless = vec![false; n];
    for _ in 0..3 * n {
        let gradient = |j: usize| products[j] - dot(&gram[j], &x);
        let candidates = (0..n).filter(|j| !free[*j] && !useless[*j]);
        let best = candidates.max_by(|a, b| gradient(*a).total_cmp(&gradient(*b)));
        let Some(entering) = best.filter(|j| gradient(*j) > TOLERANCE * largest) else {
            break;
        };
        free[entering] = true;
        loop {
            let Some(wanted) = solve(gram, products, &free) else {
                free[entering] = false;
                useless[entering] = true;
                break;
            };
            let blocked = (0..n).filter(|j| free[*j] && wanted[*j] <= 0.0);
            let share = |j: usize| {
                if x[j] > 0.0 {
                    x[j] / (x[j] - wanted[j])
                } else {
                    0.0
                }
            };
            let steps = blocked.map(|j| (share(j), j));
            let step = steps.min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((step, leaving)) = step else {
                x = wanted;
                break;
            };
            for j in 0..n {
                x[j] += step * (wanted[j] - x[j]);
            }
            x[leaving] = 0.0;
            free[leaving] = false;
            useless[leaving] |= leaving == entering;
        }
    }
    x
}

/// The solution of the free columns' equations, 0 for others; `None` if they depend on each other.
fn solve(gram: &[Vec<f64>], products: &[f64], free: &[bool]) -> Option<Vec<f64>> {
    let used: Vec<usize> = (0..free.len()).filter(|j| free[*j]).collect();
    let mut factor = Cholesky::default();
    for (i, row) in used.iter().enumerate() {
        let row: Vec<f64> = used[..=i].iter().map(|j| gram[*row][*j]).collect();
        factor.push(&row, TOLERANCE)?;
    }
    let wanted: Vec<f64> = used.iter().map(|j| products[*j]).collect();
    let mut full = vec![0.0; free.len()];
    for (j, x) in used.into_iter().zip(factor.solve(&wanted)) {
        full[j] = x;
    }
    Some(full)
}
