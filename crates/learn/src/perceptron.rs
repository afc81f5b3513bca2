//! Layers of weights: what they give out, the gradient of what is given out, and Adam's steps (Kingma and Ba, 2015).
//!
//! Owns nothing of losses and scales: whoever trains says how the loss grows with each output.

use crate::dot;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What a hidden layer makes of its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The sum, or 0 if it is negative.
    Relu,
    Tanh,
    /// The sum itself.
    None,
}

impl Activation {
    fn of(self, sum: f64) -> f64 {
        match self {
            Activation::Relu => sum.max(0.0),
            Activation::Tanh => sum.tanh(),
            Activation::None => sum,
        }
    }

    /// The slope, from what [`Activation::of`] gave.
    fn slope(self, output: f64) -> f64 {
        match self {
            Activation::Relu => f64::from(u8::from(output > 0.0)),
            Activation::Tanh => 1.0 - output * output,
            Activation::None => 1.0,
        }
    }
}

/// A row of weights for each output; the last weight is the bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layer {
    pub weights: Vec<Vec<f64>>,
}

impl Layer {
    /// Weights of He et al. (2015) for rectified layers, of Glorot and Bengio (2010) for others.
    pub fn random(
        activation: Activation,
        inputs: usize,
        outputs: usize,
        rng: &mut Pcg64Mcg,
    ) -> Layer {
        let fan = match activation {
            Activation::Relu => inputs,
            Activation::Tanh | Activation::None => inputs + outputs,
        };
        let bound = (6.0 / fan as f64).sqrt();
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

    fn apply(&self, input: &[f64], activation: Activation) -> Vec<f64> {
        let sum = |row: &Vec<f64>| dot(row, input) + row[input.len()];
        let sums = self.weights.iter().map(sum);
        sums.map(|v| activation.of(v)).collect()
    }
}

/// Layers one after the other. The last one gives out its sums.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layers {
    pub activation: Activation,
    pub all: Vec<Layer>,
}

impl Layers {
    /// Random layers of these widths, those of the input and the output among them.
    pub fn random(activation: Activation, widths: &[usize], rng: &mut Pcg64Mcg) -> Layers {
        let layer = |w: &[usize]| Layer::random(activation, w[0], w[1], rng);
        Layers {
            activation,
            all: widths.windows(2).map(layer).collect(),
        }
    }

    /// The input, and what each layer makes of it.
    pub fn outputs(&self, input: &[f64]) -> Vec<Vec<f64>> {
        let mut all = vec![input.to_vec()];
        for (i, layer) in self.all.iter().enumerate() {
            let hidden = i + 1 < self.all.len();
            let activation = if hidden {
                self.activation
            } else {
                Activation::None
            };
            all.push(layer.apply(&all[i], activation));
        }
        all
    }

    /// Adds the gradient, given all outputs and the slopes of the loss by the last ones; gives the slopes by the
    /// input.
    pub fn add_gradient(
        &self,
        outputs: &[Vec<f64>],
        slopes: Vec<f64>,
        gradient: &mut [Layer],
    ) -> Vec<f64> {
        let mut error = slopes;
        for i in (0..self.all.len()).rev() {
            let input = &outputs[i];
            for (row, e) in gradient[i].weights.iter_mut().zip(&error) {
                for (g, v) in row.iter_mut().zip(input.iter().chain([&1.0])) {
                    *g += e * v;
                }
            }
            let weights = &self.all[i].weights;
            let through = |j: usize| -> f64 {
                let sum: f64 = weights.iter().zip(&error).map(|(row, e)| row[j] * e).sum();
                match i {
                    0 => sum,
                    _ => sum * self.activation.slope(input[j]),
                }
            };
            error = (0..input.len()).map(through).collect();
        }
        error
    }

    pub fn zeros(&self) -> Vec<Layer> {
        let zero = |l: &Layer| Layer {
            weights: l.weights.iter().map(|row| vec![0.0; row.len()]).collect(),
        };
        self.all.iter().map(zero).collect()
    }
}

const DECAY: (f64, f64) = (0.9, 0.999);
const SMALL: f64 = 1e-8;

/// Adam's running means of the gradient and of its square, shaped like the weights.
#[derive(Clone, Debug)]
pub(crate) struct Adam {
    first: Vec<Layer>,
    second: Vec<Layer>,
    steps: i32,
}

impl Adam {
    pub fn of(layers: &Layers) -> Adam {
        Adam {
            first: layers.zeros(),
            second: layers.zeros(),
            steps: 0,
        }
    }

    pub fn step(&mut self, layers: &mut Layers, gradient: &[Layer], rate: f64) {
        self.steps += 1;
        let unbiased = |decay: f64| 1.0 - decay.powi(self.steps);
        let (first_share, second_share) = (unbiased(DECAY.0), unbiased(DECAY.1));
        for (l, layer) in layers.all.iter_mut().enumerate() {
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

/// A network of any number of outputs that its user trains step by step. Inputs and outputs are taken as they
/// are, without scales.
#[derive(Clone, Debug)]
pub struct Perceptron {
    layers: Layers,
    adam: Adam,
}

impl Perceptron {
    /// Random weights. The widths are those of the input, the hidden layers and the output.
    pub fn random(activation: Activation, widths: &[usize], seed: u64) -> Perceptron {
        let layers = Layers::random(activation, widths, &mut Pcg64Mcg::seed_from_u64(seed));
        Perceptron {
            adam: Adam::of(&layers),
            layers,
        }
    }

    /// What it gives out for a row as wide as its input.
    pub fn outputs(&self, row: &[f64]) -> Vec<f64> {
        self.layers.outputs(row).pop().unwrap_or_default()
    }

    /// One step of Adam down the mean loss of some rows. `slopes` says of each row, given its number and the outputs, how
    /// the loss grows with each output.
    pub fn descend(
        &mut self,
        rows: &[&[f64]],
        rate: f64,
        mut slopes: impl FnMut(usize, &[f64]) -> Vec<f64>,
    ) {
        let mut gradient = self.layers.zeros();
        let share = 1.0 / rows.len().max(1) as f64;
        for (i, row) in rows.iter().enumerate() {
            let outputs = self.layers.outputs(row);
            let of_row = slopes(i, &outputs[outputs.len() - 1]);
            let of_row = of_row.into_iter().map(|s| s * share).collect();
            self.layers.add_gradient(&outputs, of_row, &mut gradient);
        }
        self.adam.step(&mut self.layers, &gradient, rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half the squared distance of the outputs from these.
    const WANTED: [f64; 2] = [0.3, -0.7];

    fn loss(layers: &Layers, input: &[f64]) -> f64 {
        let outputs = layers.outputs(input).pop().unwrap();
        let missed = outputs.iter().zip(WANTED).map(|(o, w)| (o - w).powi(2));
        0.5 * missed.sum::<f64>()
    }

    #[test]
    fn the_gradient_is_that_of_small_differences() {
        for activation in [Activation::Tanh, Activation::Relu, Activation::None] {
            let mut rng = Pcg64Mcg::seed_from_u64(3);
            let mut layers = Layers::random(activation, &[3, 4, 5, 2], &mut rng);
            let input = [0.4, -0.9, 0.2];
            let outputs = layers.outputs(&input);
            let slopes = outputs[3].iter().zip(WANTED).map(|(o, w)| o - w).collect();
            let mut gradient = layers.zeros();
            layers.add_gradient(&outputs, slopes, &mut gradient);
            for (l, of_layer) in gradient.iter().enumerate() {
                for (r, row) in of_layer.weights.iter().enumerate() {
                    for (w, found) in row.iter().enumerate() {
                        let mut moved = |by: f64| {
                            layers.all[l].weights[r][w] += by;
                            let loss = loss(&layers, &input);
                            layers.all[l].weights[r][w] -= by;
                            loss
                        };
                        let wanted = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                        assert!((found - wanted).abs() < 1e-6, "{activation:?} {l} {r} {w}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_perceptron_goes_where_its_user_says() {
        let mut p = Perceptron::random(Activation::Tanh, &[2, 8, 2], 1);
        let rows: [&[f64]; 2] = [&[0.0, 1.0], &[1.0, 0.0]];
        let wanted = [[1.0, -2.0], [-3.0, 0.5]];
        for _ in 0..2000 {
            p.descend(&rows, 1e-2, |i, o| {
                vec![o[0] - wanted[i][0], o[1] - wanted[i][1]]
            });
        }
        for (row, wanted) in rows.iter().zip(wanted) {
            let found = p.outputs(row);
            assert!((found[0] - wanted[0]).abs() < 0.01 && (found[1] - wanted[1]).abs() < 0.01);
        }
    }
}
