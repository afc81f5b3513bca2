//! Small learners on tables of numbers: least squares, linear regression, boosted trees, a Gaussian process,
//! a network, clusters, a smoother, rank correlation.
//!
//! Everything is a pure function of its arguments; what is random takes a seed. Rows
//! are observations, columns are features, all rows of a table have equal length. A
//! learner says [`Unfit`] for tables that it cannot learn from, before it changes anything.
//! Knows nothing of what the numbers mean.

mod cholesky;
mod climb;
mod clusters;
mod correlation;
mod directions;
mod embedded;
mod gaussian_process;
mod least_squares;
mod linear;
mod named;
mod network;
mod perceptron;
mod saved;
mod scale;
mod smoother;
mod term_network;
mod trees;

pub use clusters::{Clusters, k_means};
pub use correlation::{kendall, pearson, spearman, top_ratio, top_recall};
pub use directions::Directions;
pub use embedded::{EmbeddedNetwork, Mixed};
pub use gaussian_process::{Estimate, GaussianProcess, GaussianSettings, Kernel};
pub use least_squares::{Coefficients, non_negative_least_squares};
pub use linear::Linear;
pub use named::{NamedNetwork, NamedRow};
pub use network::{Design, Loss, Network, Training};
pub use perceptron::{Activation, Perceptron};
pub use saved::{LoadError, Model, load, save};
pub use smoother::{Smoothing, loess};
pub use term_network::{TermNetwork, TermRows};
pub use trees::{EarlyStop, Examples, Objective, TreeSettings, Trees};

use std::fmt;

/// Why a learner refuses a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// No rows or no columns.
    Empty,
    /// This row has so many values; so many were expected.
    Length {
        row: usize,
        values: usize,
        expected: usize,
    },
    /// A value of this row is infinite or no number.
    NotFinite { row: usize },
    /// The weight of this row is negative.
    Weight { row: usize },
    /// The target or the terms of this row are not positive.
    Sign { row: usize },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Empty => write!(f, "the table has no values; give at least one row"),
            Unfit::Length {
                row,
                values,
                expected,
            } => write!(f, "row {row} has {values} values instead of {expected}"),
            Unfit::NotFinite { row } => write!(f, "row {row} has a value that is not finite"),
            Unfit::Weight { row } => write!(f, "row {row} has a negative weight"),
            Unfit::Sign { row } => {
                write!(f, "row {row} has a target or terms that are not positive")
            }
        }
    }
}

impl std::error::Error for Unfit {}

/// The number of columns of a table without faults.
fn columns(rows: &[Vec<f64>]) -> Result<usize, Unfit> {
    let expected = rows.first().map_or(0, Vec::len);
    if expected == 0 {
        return Err(Unfit::Empty);
    }
    for (row, values) in rows.iter().enumerate() {
        if values.len() != expected {
            let values = values.len();
            return Err(Unfit::Length {
                row,
                values,
                expected,
            });
        }
        if !values.iter().all(|v| v.is_finite()) {
            return Err(Unfit::NotFinite { row });
        }
    }
    Ok(expected)
}

/// Checks that there is one finite target for each of `rows` rows.
fn targets(rows: usize, targets: &[f64]) -> Result<(), Unfit> {
    if targets.len() != rows {
        return Err(Unfit::Length {
            row: targets.len().min(rows),
            values: targets.len(),
            expected: rows,
        });
    }
    match targets.iter().position(|t| !t.is_finite()) {
        Some(row) => Err(Unfit::NotFinite { row }),
        None => Ok(()),
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}
