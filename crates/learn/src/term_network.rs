//! A sum of terms, each times a coefficient that a network predicts: the cost model of Adams et al. (Learning to Optimize
//! Halide with Tree Search and Random Programs, 2019, section 5).
//!
//! The terms are what someone knows to cost time. The network sees other features of the same row, and says what a unit
//! of each term costs there. No coefficient is negative, so a cost never falls as a term grows.

use crate::network::Training;
use crate::perceptron::{Activation, Adam, Layers};
use crate::scale::Scale;
use crate::{Unfit, columns, non_negative_least_squares, targets};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

/// Rows to learn from.
#[derive(Clone, Copy, Debug)]
pub struct TermRows<'a> {
    /// Of each row, the terms: none is negative, and one of each row is positive.
    pub terms: &'a [Vec<f64>],
    /// Of each row, what the network sees.
    pub features: &'a [Vec<f64>],
    /// Positive targets.
    pub y: &'a [f64],
    /// The least target among the rows that each row is compared with.
    pub best: &'a [f64],
}

/// Where an output is 0, a coefficient is its factor: the logarithm of e - 1.
const AT_FACTOR: f64 = 0.541_324_854_612_918;

/// How far from the mean a feature may be, in deviations. What is farther counts as this far: a network says nothing
/// of rows unlike any that it was trained with.
const FARTHEST: f64 = 4.0;

/// The least share of the targets, all rows together, that a term starts with. Else a term that no linear
/// fit needs would never have a coefficient.
const LEAST_SHARE: f64 = 0.01;

/// The last layer's first weights, of the usual ones: training begins near the linear fit.
const FIRST_WEIGHTS: f64 = 0.1;

#[derive(Clone, Debug, PartialEq)]
pub struct TermNetwork {
    layers: Layers,
    features: Vec<Scale>,
    /// Coefficients before the network has its say: those of a linear fit.
    factors: Vec<f64>,
}

fn softplus(v: f64) -> f64 {
    v.max(0.0) + (-v.abs()).exp().ln_1p()
}

fn sigmoid(v: f64) -> f64 {
    1.0 / (1.0 + (-v).exp())
}

/// Least squares of relative errors, and a share of the targets for each term.
fn linear_factors(rows: &TermRows<'_>) -> Result<Vec<f64>, Unfit> {
    let relative = |(terms, y): (&Vec<f64>, &f64)| terms.iter().map(|t| t / y).collect();
    let shares: Vec<Vec<f64>> = rows.terms.iter().zip(rows.y).map(relative).collect();
    let mut factors = non_negative_least_squares(&shares, &vec![1.0; shares.len()])?;
    for (j, factor) in factors.iter_mut().enumerate() {
        let mean = shares.iter().map(|s| s[j]).sum::<f64>() / shares.len() as f64;
        if mean > 0.0 {
            *factor = factor.max(LEAST_SHARE / mean);
        }
    }
    Ok(factors)
}

impl TermNetwork {
    /// Trains towards `best / y`, how near to the best each row is, by squared errors (the paper's loss). `pull` times
    /// the mean square of the network's outputs is added: the larger, the nearer the linear fit.
    ///
    /// # Errors
    /// If a table has faults, a term is negative, or a target or the terms of a row are not positive.
    pub fn trained(
        rows: &TermRows<'_>,
        training: &Training,
        pull: f64,
    ) -> Result<TermNetwork, Unfit> {
        let (terms, features) = (columns(rows.terms)?, columns(rows.features)?);
        for of_row in [rows.y, rows.best] {
            targets(rows.terms.len(), of_row)?;
        }
        targets(rows.features.len(), rows.y)?;
        let fits = |(t, (y, best)): (&Vec<f64>, (&f64, &f64))| {
            *y > 0.0 && *best > 0.0 && t.iter().all(|t| *t >= 0.0) && t.iter().any(|t| *t > 0.0)
        };
        let targets = rows.y.iter().zip(rows.best);
        if let Some(row) = rows.terms.iter().zip(targets).position(|r| !fits(r)) {
            return Err(Unfit::Sign { row });
        }
        let mut rng = Pcg64Mcg::seed_from_u64(training.seed);
        let mut widths = vec![features];
        widths.extend(training.hidden.iter().map(|w| (*w).max(1)));
        widths.push(terms);
        let mut layers = Layers::random(Activation::Relu, &widths, &mut rng);
        let last = layers.all.iter_mut().last().into_iter();
        last.flat_map(|l| l.weights.iter_mut().flatten())
            .for_each(|w| *w *= FIRST_WEIGHTS);
        let mut network = TermNetwork {
            layers,
            features: Scale::of_columns(rows.features),
            factors: linear_factors(rows)?,
        };
        network.descend(rows, training, pull, &mut rng);
        Ok(network)
    }

    fn descend(&mut self, rows: &TermRows<'_>, training: &Training, pull: f64, rng: &mut Pcg64Mcg) {
        let inputs: Vec<Vec<f64>> = rows.features.iter().map(|f| self.input(f)).collect();
        let mut adam = Adam::of(&self.layers);
        let mut order: Vec<usize> = (0..rows.y.len()).collect();
        for _ in 0..training.epochs {
            order.shuffle(rng);
            for batch in order.chunks(training.batch.max(1)) {
                let mut gradient = self.layers.zeros();
                for row in batch {
                    let outputs = self.layers.outputs(&inputs[*row]);
                    let last = &outputs[outputs.len() - 1];
                    let near = (rows.best[*row] / rows.y[*row], rows.best[*row]);
                    let slopes = self.slopes(&rows.terms[*row], last, near, pull);
                    let mean = slopes.into_iter().map(|s| s / batch.len() as f64);
                    self.layers
                        .add_gradient(&outputs, mean.collect(), &mut gradient);
                }
                adam.step(&mut self.layers, &gradient, training.rate);
            }
        }
    }

    /// How the loss of a row grows with each output. `near` is the best target over the row's, and the best target.
    fn slopes(&self, terms: &[f64], outputs: &[f64], near: (f64, f64), pull: f64) -> Vec<f64> {
        let coefficients = self.of_outputs(outputs);
        let cost: f64 = terms.iter().zip(&coefficients).map(|(t, c)| t * c).sum();
        // Of the squared difference of `best / cost` and `best / y`, by the cost.
        let by_cost = match cost > 0.0 {
            true => 2.0 * (near.1 / cost - near.0) * -near.1 / (cost * cost),
            false => 0.0,
        };
        let by_output = |j: usize| {
            let by_coefficient = self.factors[j] * sigmoid(outputs[j] + AT_FACTOR);
            by_cost * terms[j] * by_coefficient + pull * 2.0 * outputs[j] / outputs.len() as f64
        };
        (0..outputs.len()).map(by_output).collect()
    }

    fn input(&self, features: &[f64]) -> Vec<f64> {
        let scaled = Scale::scaled_row(&self.features, features).into_iter();
        scaled.map(|v| v.clamp(-FARTHEST, FARTHEST)).collect()
    }

    fn of_outputs(&self, outputs: &[f64]) -> Vec<f64> {
        let pairs = outputs.iter().zip(&self.factors);
        pairs.map(|(o, f)| f * softplus(o + AT_FACTOR)).collect()
    }

    /// What a unit of each term costs where these features are; none is negative.
    pub fn coefficients(&self, features: &[f64]) -> Vec<f64> {
        let outputs = self.layers.outputs(&self.input(features)).pop();
        self.of_outputs(&outputs.unwrap_or_default())
    }

    /// The cost of a row with as many terms and features as the model was trained with.
    pub fn predict(&self, terms: &[f64], features: &[f64]) -> f64 {
        assert_eq!(terms.len(), self.factors.len(), "terms of a row");
        let coefficients = self.coefficients(features);
        terms.iter().zip(coefficients).map(|(t, c)| t * c).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dot;

    const TRAINING: Training = Training {
        hidden: vec![],
        epochs: 400,
        batch: 16,
        rate: 1e-2,
        seed: 1,
    };

    /// Two kinds of rows: in one a unit of the first term costs 1 and of the second 8, in the other it is the reverse. The
    /// feature says which, so no constant coefficients fit.
    fn regimes() -> (Vec<Vec<f64>>, Vec<Vec<f64>>, Vec<f64>) {
        let (mut terms, mut features, mut y) = (vec![], vec![], vec![]);
        for i in 0..120 {
            let t = vec![
                1.0 + f64::from(i * 7 % 13),
                1.0 + f64::from(i * 5 % 11),
                0.0,
            ];
            let kind = f64::from(i % 2);
            y.push(match i % 2 {
                0 => t[0] + 8.0 * t[1],
                _ => 8.0 * t[0] + t[1],
            });
            // The second feature says nothing.
            features.push(vec![kind, f64::from(i % 3)]);
            terms.push(t);
        }
        (terms, features, y)
    }

    #[test]
    fn coefficients_of_two_regimes_are_found_where_a_linear_form_cannot_fit() {
        let (terms, features, y) = regimes();
        let least = y.iter().copied().fold(f64::INFINITY, f64::min);
        let rows = TermRows {
            terms: &terms,
            features: &features,
            y: &y,
            best: &vec![least; y.len()],
        };
        let training = Training {
            hidden: vec![8],
            ..TRAINING
        };
        let model = TermNetwork::trained(&rows, &training, 0.0).unwrap();
        let error = |predicted: &dyn Fn(usize) -> f64| {
            let off = (0..y.len()).map(|i| (predicted(i) / y[i] - 1.0).abs());
            off.sum::<f64>() / y.len() as f64
        };
        let learned = error(&|i| model.predict(&terms[i], &features[i]));
        let linear = linear_factors(&rows).unwrap();
        let linear = error(&|i| dot(&terms[i], &linear));
        assert!(learned < 0.05 && linear > 0.3, "{learned} {linear}");
        for (kind, expected) in [(0.0, [1.0, 8.0]), (1.0, [8.0, 1.0])] {
            let found = model.coefficients(&[kind, 1.0]);
            for (f, e) in found.iter().zip(expected) {
                assert!((f - e).abs() < 0.15 * 8.0, "{kind}: {found:?}");
            }
        }
    }

    #[test]
    fn coefficients_are_never_negative_also_far_from_all_rows() {
        let (terms, features, y) = regimes();
        let rows = TermRows {
            terms: &terms,
            features: &features,
            y: &y,
            best: &y,
        };
        let training = Training {
            hidden: vec![4],
            epochs: 20,
            ..TRAINING
        };
        let model = TermNetwork::trained(&rows, &training, 0.01).unwrap();
        for kind in [-1e9, -3.0, 0.0, 0.5, 1.0, 7.0, 1e9] {
            let found = model.coefficients(&[kind, -kind]);
            assert!(
                found.iter().all(|c| *c >= 0.0 && c.is_finite()),
                "{found:?}"
            );
            // No row says anything of the third term.
            assert_eq!(found[2], 0.0);
        }
    }

    #[test]
    fn a_strong_pull_keeps_the_linear_fit() {
        let (terms, features, y) = regimes();
        let rows = TermRows {
            terms: &terms,
            features: &features,
            y: &y,
            best: &y,
        };
        let model = TermNetwork::trained(&rows, &TRAINING, 1e3).unwrap();
        let linear = linear_factors(&rows).unwrap();
        for (found, wanted) in model.coefficients(&[1.0, 2.0]).iter().zip(&linear) {
            assert!((found - wanted).abs() < 0.05 * wanted + 1e-12);
        }
    }

    #[test]
    fn the_slopes_are_those_of_small_differences() {
        let (terms, features, y) = regimes();
        let rows = TermRows {
            terms: &terms,
            features: &features,
            y: &y,
            best: &y,
        };
        let training = Training {
            epochs: 0,
            ..TRAINING
        };
        let model = TermNetwork::trained(&rows, &training, 0.3).unwrap();
        let (best, y, terms, outputs) = (20.0, 50.0, [3.0, 5.0, 0.0], [0.4, -0.7, 0.2]);
        let loss = |outputs: &[f64]| {
            let cost = dot(&terms, &model.of_outputs(outputs));
            let pulled = outputs.iter().map(|o| o * o).sum::<f64>() / 3.0;
            (best / cost - best / y).powi(2) + 0.3 * pulled
        };
        let found = model.slopes(&terms, &outputs, (best / y, best), 0.3);
        for (j, slope) in found.iter().enumerate() {
            let moved = |by: f64| {
                let mut outputs = outputs;
                outputs[j] += by;
                loss(&outputs)
            };
            let wanted = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slope - wanted).abs() < 1e-6, "{j}: {slope} {wanted}");
        }
    }

    #[test]
    fn rows_without_cost_are_refused() {
        let refused = |terms: Vec<f64>, y: f64| {
            let rows = TermRows {
                terms: &[vec![1.0, 2.0], terms],
                features: &[vec![0.0], vec![1.0]],
                y: &[1.0, y],
                best: &[1.0, 1.0],
            };
            TermNetwork::trained(&rows, &TRAINING, 0.1)
        };
        let sign = Err(Unfit::Sign { row: 1 });
        assert_eq!(refused(vec![0.0, 0.0], 1.0), sign);
        assert_eq!(refused(vec![-1.0, 2.0], 1.0), sign);
        assert_eq!(refused(vec![1.0, 2.0], 0.0), sign);
        assert!(matches!(refused(vec![1.0], 1.0), Err(Unfit::Length { .. })));
    }
}
