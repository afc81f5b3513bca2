//! What one of two ways saves over the other, in the geometric mean.
//!
//! Owns the mean of differences of logarithms, and its standard error.

use serde::Serialize;

/// A difference of logarithms over tasks or searches: the mean, and its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Saving {
    /// The share of joules that is saved in the geometric mean; negative if more are needed.
    pub share: f64,
    /// That share one standard error lower and higher.
    pub low: f64,
    pub high: f64,
}

/// From differences of logarithms, one for each task or search.
pub fn saving(differences: &[f64]) -> Saving {
    let n = differences.len() as f64;
    let middle = differences.iter().sum::<f64>() / n;
    let squares: f64 = differences.iter().map(|d| (d - middle).powi(2)).sum();
    let error = (squares / (n - 1.0).max(1.0) / n).sqrt();
    let share = |log: f64| -log.exp_m1();
    Saving {
        share: share(middle),
        low: share(middle + error),
        high: share(middle - error),
    }
}
