//! A network of fully connected layers, trained by Adam (Kingma and Ba, 2015).
//!
//! Hidden layers are rectified, the output is one number. Features and targets are
//! standardised inside.

use crate::{Unfit, columns, dot, targets};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// How a network is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// Passes over all rows.
    pub epochs: usize,
    /// Rows of one step.
    pub batch: usize,
    pub rate: f64,
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    layers: Vec<Layer>,
    features: Vec<Scale>,
    target: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    mean: f64,
    deviation: f64,
}

impl Scale {
    fn of(values: &[f64]) -> Scale {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let deviation = variance.sqrt();
        Scale {
            mean,
            // A constant column carries nothing.
            deviation: if deviation > 0.0 { deviation } else { 1.0 },
        }
    }

    fn scaled(self, v: f64) -> f64 {
        (v - self.mean) / self.deviation
    }

    fn back(self, v: f64) -> f64 {
        v * self.deviation + self.mean
    }
}

/// A row of weights for each output; the last weight is the bias.
#[derive(Clone, Debug, PartialEq)]
struct Layer {
    weights: Vec<Vec<f64>>,
}

impl Layer {
    fn random(inputs: usize, outputs: usize, rng: &mut Pcg64Mcg) -> Layer {
        let bound = (6.0 / inputs as f64).sqrt();
        let row = |rng: &mut Pcg64Mcg| {
            let mut row: Vec<f64> = (0..inputs)
                .map(|_| rng.random_range(-bound..bound))
                .collect();
            row.push(0.0);
            row
        };
        Layer {
            weights: (0..outputs).map(|_| row(rng)).collect(),
        }
    }

    fn apply(&self, input: &[f64], rectify: bool) -> Vec<f64> {
        let sum = |row: &Vec<f64>| dot(row, input) + row[input.len()];
        let sums = self.weights.iter().map(sum);
        sums.map(|v| if rectify { v.max(0.0) } else { v }).collect()
    }
}

const DECAY: (f64, f64) = (0.9, 0.999);
const SMALL: f64 = 1e-8;

/// Adam's running means of the gradient and of its square, shaped like the weights.
struct Adam {
    first: Vec<Layer>,
    second: Vec<Layer>,
    steps: i32,
}

impl Network {
    /// Trains on rows of features and their targets.
    pub fn trained(rows: &[Vec<f64>], y: &[f64], training: &Training) -> Result<Network, Unfit> {
        let n = columns(rows)?;
        targets(rows.len(), y)?;
        let column = |j: usize| rows.iter().map(|r| r[j]).collect::<Vec<f64>>();
        let mut rng = Pcg64Mcg::seed_from_u64(training.seed);
        let mut widths = vec![n];
        widths.extend(training.hidden.iter().map(|w| (*w).max(1)));
        widths.push(1);
        let pairs = widths.windows(2);
        let mut network = Network {
            layers: pairs.map(|w| Layer::random(w[0], w[1], &mut rng)).collect(),
            features: (0..n).map(|j| Scale::of(&column(j))).collect(),
            target: Scale::of(y),
        };
        let inputs: Vec<Vec<f64>> = rows.iter().map(|r| network.scaled(r)).collect();
        let wanted: Vec<f64> = y.iter().map(|y| network.target.scaled(*y)).collect();
        let mut adam = Adam {
            first: zeros(&network.layers),
            second: zeros(&network.layers),
            steps: 0,
        };
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for _ in 0..training.epochs {
            order.shuffle(&mut rng);
            for batch in order.chunks(training.batch.max(1)) {
                let mut gradient = zeros(&network.layers);
                for row in batch {
                    let share = 1.0 / batch.len() as f64;
                    network.add_gradient(&inputs[*row], wanted[*row], share, &mut gradient);
                }
                adam.step(&mut network.layers, &gradient, training.rate);
            }
        }
        Ok(network)
    }

    /// The prediction for one row of as many features as it was trained with.
    pub fn predict(&self, row: &[f64]) -> f64 {
        assert_eq!(row.len(), self.features.len(), "features of a row");
        let outputs = self.outputs(&self.scaled(row));
        self.target.back(outputs[self.layers.len()][0])
    }

    fn scaled(&self, row: &[f64]) -> Vec<f64> {
        row.iter()
            .zip(&self.features)
            .map(|(v, s)| s.scaled(*v))
            .collect()
    }

    /// The input, and what each layer makes of it.
    fn outputs(&self, input: &[f64]) -> Vec<Vec<f64>> {
        let mut all = vec![input.to_vec()];
        for (i, layer) in self.layers.iter().enumerate() {
            let hidden = i + 1 < self.layers.len();
            all.push(layer.apply(&all[i], hidden));
        }
        all
    }

    /// Adds `share` of the gradient of half the squared error.
    fn add_gradient(&self, input: &[f64], wanted: f64, share: f64, gradient: &mut [Layer]) {
        let outputs = self.outputs(input);
        let mut error = vec![(outputs[self.layers.len()][0] - wanted) * share];
        for i in (0..self.layers.len()).rev() {
            let input = &outputs[i];
            for (row, e) in gradient[i].weights.iter_mut().zip(&error) {
                for (g, v) in row.iter_mut().zip(input.iter().chain([&1.0])) {
                    *g += e * v;
                }
            }
            let weights = &self.layers[i].weights;
            let through = |j: usize| -> f64 {
                let sum = weights.iter().zip(&error).map(|(row, e)| row[j] * e).sum();
                // Of a rectified output that is 0 nothing comes back.
                if i > 0 && input[j] <= 0.0 { 0.0 } else { sum }
            };
            error = (0..input.len()).map(through).collect();
        }
    }
}

fn zeros(layers: &[Layer]) -> Vec<Layer> {
    let zero = |l: &Layer| Layer {
        weights: l.weights.iter().map(|row| vec![0.0; row.len()]).collect(),
    };
    layers.iter().map(zero).collect()
}

impl Adam {
    fn step(&mut self, layers: &mut [Layer], gradient: &[Layer], rate: f64) {
        self.steps += 1;
        let unbiased = |decay: f64| 1.0 - decay.powi(self.steps);
        let (first_share, second_share) = (unbiased(DECAY.0), unbiased(DECAY.1));
        for (l, layer) in layers.iter_mut().enumerate() {
            for (r, row) in layer.weights.iter_mut().enumerate() {
                for (w, weight) in row.iter_mut().enumerate() {
                    let g = gradient[l].weights[r][w];
                    let first = &mut self.first[l].weights[r][w];
                    let second = &mut self.second[l].weights[r][w];
                    *first = DECAY.0 * *first + (1.0 - DECAY.0) * g;
                    *second = DECAY.1 * *second + (1.0 - DECAY.1) * g * g;
                    let size = (*second / second_share).sqrt() + SMALL;
                    *weight -= rate * (*first / first_share) / size;
                }
            }
        }
    }
}
