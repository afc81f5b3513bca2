//! LOESS: at every place a line through the nearest observations (Cleveland, 1979).

use crate::{Unfit, targets};

/// How observations are smoothed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smoothing {
    /// Share of the observations that a line is fitted to, from 0 to 1; at least two are used.
    pub fraction: f64,
    /// How often the lines are fitted again with less weight on observations far off them, so that
    /// outliers do not move them.
    pub passes: u32,
}

/// Median residuals within which a robust pass gives an observation weight.
const OUTLYING: f64 = 6.0;

/// The smoothed value at each of `at`, from the observations `(x, y)`.
///
/// Lines are weighted by the tricube of the distance, and after the first pass by the bisquare of
/// the residual. Where the observations are at one place, the mean of their values is given.
///
/// # Errors
/// If there are no observations, or values are not finite.
pub fn loess(x: &[f64], y: &[f64], by: Smoothing, at: &[f64]) -> Result<Vec<f64>, Unfit> {
    if x.is_empty() {
        return Err(Unfit::Empty);
    }
    targets(x.len(), x)?;
    targets(x.len(), y)?;
    targets(at.len(), at)?;
    let share = (by.fraction.clamp(0.0, 1.0) * x.len() as f64).ceil() as usize;
    let count = share.clamp(2.min(x.len()), x.len());
    let mut trust = vec![1.0; x.len()];
    for _ in 0..by.passes {
        let residual = |(i, x_i): (usize, &f64)| (y[i] - smoothed(x, y, &trust, count, *x_i)).abs();
        let residuals: Vec<f64> = x.iter().enumerate().map(residual).collect();
        let mut sorted = residuals.clone();
        let (_, middle, _) = sorted.select_nth_unstable_by(x.len() / 2, f64::total_cmp);
        let most = OUTLYING * *middle;
        if most <= 0.0 {
            // Lines through most of the observations cannot be improved.
            break;
        }
        let bisquare = |r: &f64| (1.0 - (r / most).min(1.0).powi(2)).powi(2);
        trust = residuals.iter().map(bisquare).collect();
    }
    let value = |place: &f64| smoothed(x, y, &trust, count, *place);
    Ok(at.iter().map(value).collect())
}

fn smoothed(x: &[f64], y: &[f64], trust: &[f64], count: usize, place: f64) -> f64 {
    let distances: Vec<f64> = x.iter().map(|x| (x - place).abs()).collect();
    let mut nearest = distances.clone();
    let (_, last, _) = nearest.select_nth_unstable_by(count - 1, f64::total_cmp);
    let last = *last;
    // The farthest of the nearest has the weight 0, so the next larger distance is the reach.
    let farther = distances.iter().copied().filter(|d| *d > last);
    let reach = farther.reduce(f64::min).unwrap_or(last * (1.0 + 1e-9));
    let reach = reach.max(f64::MIN_POSITIVE);
    let near = |d: &f64| (1.0 - (d / reach).min(1.0).powi(3)).powi(3);
    let mut weights: Vec<f64> = distances.iter().map(near).collect();
    let trusted: f64 = weights.iter().zip(trust).map(|(w, t)| w * t).sum();
    // Where all are outliers, they are all that is known.
    if trusted > 0.0 {
        weights.iter_mut().zip(trust).for_each(|(w, t)| *w *= t);
    }
    let total: f64 = weights.iter().sum();
    let mean = |v: &[f64]| v.iter().zip(&weights).map(|(v, w)| v * w).sum::<f64>() / total;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let (mut spread, mut common) = (0.0, 0.0);
    for ((x, y), w) in x.iter().zip(y).zip(&weights) {
        spread += w * (x - mean_x) * (x - mean_x);
        common += w * (x - mean_x) * (y - mean_y);
    }
    match spread > 1e-12 * total * (1.0 + mean_x * mean_x) {
        true => mean_y + common / spread * (place - mean_x),
        false => mean_y,
    }
}
