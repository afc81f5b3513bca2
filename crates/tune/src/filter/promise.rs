//! How far a candidate is predicted to be from the fastest known one of its search.
//!
//! Owns the correction of predictions by the answers of a search. It knows no network and no point: candidates have a place
//! and a prediction, which is the logarithm of a latency up to a constant of the search.

/// Deviation of a prediction before a search has answers, and the number of answers that this guess weighs.
const DEVIATION: f64 = 0.4;
const GUESS_WEIGHT: f64 = 8.0;
/// How fast an answer counts less for candidates that are less alike: by e for this difference of likeness.
const REACH: f64 = 0.02;
/// Weight of no correction, beside those of the answers, which are at most 1 each.
const NO_CORRECTION: f64 = 1.0;

/// The answers of one search.
#[derive(Debug, Default)]
pub struct Promise {
    /// Of each answer that is a cost: its direction, and the logarithm of its cost less its prediction.
    residuals: Vec<(Vec<f64>, f64)>,
    mean: f64,
    deviation: f64,
    least: Option<f64>,
}

impl Promise {
    /// Of answers: their place, their prediction and the logarithm of their cost.
    pub fn of(answers: impl Iterator<Item = (Vec<f64>, f64, f64)>) -> Promise {
        let mut p = Promise::default();
        for (at, predicted, cost) in answers {
            p.residuals.push((at, cost - predicted));
            p.least = Some(p.least.map_or(cost, |l: f64| l.min(cost)));
        }
        let n = p.residuals.len() as f64;
        p.mean = p.residuals.iter().map(|(_, r)| r).sum::<f64>() / n.max(1.0);
        // What is left when each answer is predicted by the other ones.
        let left = |(i, (at, r)): (usize, &(Vec<f64>, f64))| r - p.correction(at, Some(i));
        let squares: f64 = p
            .residuals
            .iter()
            .enumerate()
            .map(left)
            .map(|e| e * e)
            .sum();
        let guess = GUESS_WEIGHT * DEVIATION * DEVIATION;
        p.deviation = ((guess + squares) / (GUESS_WEIGHT + n)).sqrt();
        p
    }

    /// What is added to a prediction at a place, by all answers but one.
    fn correction(&self, at: &[f64], but: Option<usize>) -> f64 {
        let (mut weights, mut sum) = (NO_CORRECTION, 0.0);
        for (i, (other, residual)) in self.residuals.iter().enumerate() {
            if Some(i) != but {
                let likeness: f64 = at.iter().zip(other).map(|(a, b)| a * b).sum();
                let weight = ((likeness - 1.0) / REACH).exp();
                weights += weight;
                sum += weight * (residual - self.mean);
            }
        }
        self.mean + sum / weights
    }

    /// By how many deviations the logarithm of a candidate's latency is predicted to be above that of the fastest answer; none without
    /// answers.
    pub fn above_fastest(&self, at: &[f64], predicted: f64) -> Option<f64> {
        let least = self.least?;
        Some((predicted + self.correction(at, None) - least) / self.deviation)
    }
}
