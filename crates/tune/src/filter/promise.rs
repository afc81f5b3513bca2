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

#[cfg(test)]
mod tests {
    use super::*;

    /// In one direction or another.
    fn at(angle: f64) -> Vec<f64> {
        vec![angle.cos(), angle.sin()]
    }

    #[test]
    fn without_answers_nothing_is_said() {
        let promise = Promise::of(std::iter::empty());
        assert_eq!(promise.above_fastest(&at(0.0), 1.0), None);
    }

    #[test]
    fn predictions_are_corrected_by_what_they_have_in_common() {
        let answers = (0..20).map(|n| (at(0.0), f64::from(n) * 0.1, 7.0 + f64::from(n) * 0.1));
        let promise = Promise::of(answers);
        let above = |predicted| promise.above_fastest(&at(0.0), predicted).unwrap();
        assert!(above(0.0).abs() < 0.1 && above(1.0) > 2.0, "{}", above(1.0));
        assert!(above(-1.0) < -2.0);
    }

    #[test]
    fn answers_that_are_alike_correct_more() {
        // What is predicted to be alike is twice as slow in one direction.
        let answers = (0..20).map(|n| {
            let side = f64::from(n % 2);
            (at(side), 0.0, 3.0 + side)
        });
        let promise = Promise::of(answers);
        let above = |angle| promise.above_fastest(&at(angle), 0.0).unwrap();
        assert!(
            above(0.0) < 0.5 && above(1.0) > 1.5,
            "{} {}",
            above(0.0),
            above(1.0)
        );
    }

    #[test]
    fn wrong_predictions_count_less() {
        let of = |error: f64| {
            let wrong = move |n: i32| f64::from(n % 2 * 2 - 1) * error;
            Promise::of((0..40).map(move |n| (at(0.0), 1.0 + wrong(n), 1.0)))
        };
        let above = |p: Promise| p.above_fastest(&at(0.0), 2.0).unwrap();
        assert!(above(of(1.0)) < 0.5 * above(of(0.0)));
    }
}
