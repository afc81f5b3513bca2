//! LOESS: at every place a line through the nearest observations (Cleveland, 1979).

use crate::{Unfit, targets};

/// The smoothed value at each of `at`, from the observations `(x, y)`.
///
/// `span` is the share of the observations that a line is fitted to, weighted by the
/// tricube of their distance; at least two places are used. Where these are one place,
/// the mean of its values is given.
pub fn loess(x: &[f64], y: &[f64], span: f64, at: &[f64]) -> Result<Vec<f64>, Unfit> {
    if x.is_empty() {
        return Err(Unfit::Empty);
    }
    targets(x.len(), x)?;
    targets(x.len(), y)?;
    targets(at.len(), at)?;
    let share = (span.clamp(0.0, 1.0) * x.len() as f64).ceil() as usize;
    let count = share.clamp(2.min(x.len()), x.len());
    Ok(at
        .iter()
        .map(|place| smoothed(x, y, count, *place))
        .collect())
}

fn smoothed(x: &[f64], y: &[f64], count: usize, place: f64) -> f64 {
    let mut distances: Vec<f64> = x.iter().map(|x| (x - place).abs()).collect();
    let mut sorted = distances.clone();
    sorted.sort_by(f64::total_cmp);
    // The farthest of the nearest has the weight 0, so the next larger distance is the reach.
    let last = sorted[count - 1];
    let reach = sorted.iter().copied().find(|d| *d > last);
    let reach = reach.unwrap_or(last * (1.0 + 1e-9)).max(f64::MIN_POSITIVE);
    for d in &mut distances {
        let near = (1.0 - (*d / reach).min(1.0).powi(3)).max(0.0);
        *d = near.powi(3);
    }
    let weights = distances;
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
