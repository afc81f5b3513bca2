//! A network of fully connected layers, trained by Adam (Kingma and Ba, 2015).
//!
//! The output is one number. Features and targets are standardised inside.

use crate::saved::{LoadError, Model, Reader, Writer};
use crate::scale::Scale;
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
    /// Adam's rate.
    pub rate: f64,
    pub seed: u64,
}

/// What a hidden layer makes of its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The sum, or 0 if it is negative.
    Relu,
    Tanh,
    /// The sum itself.
    None,
}

const ACTIVATIONS: [(Activation, &str); 3] = [
    (Activation::Relu, "relu"),
    (Activation::Tanh, "tanh"),
    (Activation::None, "none"),
];

/// What training minimises, on standardised targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Half the squared error.
    Squared,
    /// The absolute error.
    Absolute,
}

/// What a network and its training are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    pub activation: Activation,
    pub loss: Loss,
    /// Epochs without a smaller training loss after which the rate is divided by ten; never, where `None`. The
    /// factor and the least progress, 1e-4 of the loss, are those of PyTorch's `ReduceLROnPlateau`.
    pub patience: Option<usize>,
}

impl Design {
    /// What [`Network::trained`] uses: rectified layers, squared errors, a constant rate.
    pub const RECTIFIED: Design = Design {
        activation: Activation::Relu,
        loss: Loss::Squared,
        patience: None,
    };

    /// The paper on instruction-accurate simulators, whose network has layers of 128, 128, 64, 32
    /// and 16. The patience is PyTorch's default.
    pub const SIMULATORS: Design = Design {
        activation: Activation::Tanh,
        loss: Loss::Absolute,
        patience: Some(10),
    };
}

#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    activation: Activation,
    layers: Vec<Layer>,
    features: Vec<Scale>,
    target: Scale,
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

impl Loss {
    fn of(self, error: f64) -> f64 {
        match self {
            Loss::Squared => 0.5 * error * error,
            Loss::Absolute => error.abs(),
        }
    }

    fn slope(self, error: f64) -> f64 {
        match self {
            Loss::Squared => error,
            Loss::Absolute if error == 0.0 => 0.0,
            Loss::Absolute => error.signum(),
        }
    }
}

/// Lowers the rate when the loss stands still.
pub(crate) struct Plateau {
    pub rate: f64,
    patience: Option<usize>,
    least: f64,
    waited: usize,
}

impl Plateau {
    pub fn new(rate: f64, patience: Option<usize>) -> Plateau {
        Plateau {
            rate,
            patience,
            least: f64::INFINITY,
            waited: 0,
        }
    }

    pub fn epoch(&mut self, loss: f64) {
        let Some(patience) = self.patience else {
            return;
        };
        if loss < self.least * (1.0 - 1e-4) {
            self.least = loss;
            self.waited = 0;
            return;
        }
        self.waited += 1;
        if self.waited > patience {
            self.rate *= 0.1;
            self.waited = 0;
        }
    }
}

const DECAY: (f64, f64) = (0.9, 0.999);
const SMALL: f64 = 1e-8;

/// Adam's running means of the gradient and of its square, shaped like the weights.
pub(crate) struct Adam {
    first: Vec<Layer>,
    second: Vec<Layer>,
    steps: i32,
}

impl Network {
    /// Trains on rows of features and their targets, by [`Design::RECTIFIED`].
    pub fn trained(rows: &[Vec<f64>], y: &[f64], training: &Training) -> Result<Network, Unfit> {
        Network::designed(rows, y, training, Design::RECTIFIED)
    }

    /// Trains a network of this design on rows of features and their targets.
    pub fn designed(
        rows: &[Vec<f64>],
        y: &[f64],
        training: &Training,
        design: Design,
    ) -> Result<Network, Unfit> {
        let n = columns(rows)?;
        targets(rows.len(), y)?;
        let mut rng = Pcg64Mcg::seed_from_u64(training.seed);
        let mut widths = vec![n];
        widths.extend(training.hidden.iter().map(|w| (*w).max(1)));
        widths.push(1);
        let mut layer = |w: &[usize]| Layer::random(design.activation, w[0], w[1], &mut rng);
        let mut network = Network {
            activation: design.activation,
            layers: widths.windows(2).map(&mut layer).collect(),
            features: Scale::of_columns(rows),
            target: Scale::of(y),
        };
        let scaled = |r: &Vec<f64>| Scale::scaled_row(&network.features, r);
        let inputs: Vec<Vec<f64>> = rows.iter().map(scaled).collect();
        let wanted: Vec<f64> = y.iter().map(|y| network.target.scaled(*y)).collect();
        let mut adam = Adam::new(&network.layers);
        let mut plateau = Plateau::new(training.rate, design.patience);
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for _ in 0..training.epochs {
            order.shuffle(&mut rng);
            let mut sum = 0.0;
            for batch in order.chunks(training.batch.max(1)) {
                let mut gradient = zeros(&network.layers);
                let share = 1.0 / batch.len() as f64;
                for row in batch {
                    let outputs = network.outputs(&inputs[*row]);
                    let error = outputs[network.layers.len()][0] - wanted[*row];
                    sum += design.loss.of(error);
                    let slope = design.loss.slope(error) * share;
                    back(
                        &network.layers,
                        network.activation,
                        &outputs,
                        slope,
                        &mut gradient,
                    );
                }
                adam.step(&mut network.layers, &gradient, plateau.rate);
            }
            plateau.epoch(sum / rows.len() as f64);
        }
        Ok(network)
    }

    /// The prediction for one row of as many features as it was trained with.
    pub fn predict(&self, row: &[f64]) -> f64 {
        let outputs = self.outputs(&Scale::scaled_row(&self.features, row));
        self.target.back(outputs[self.layers.len()][0])
    }

    /// What a hidden layer, counted from 0, gives out for a row; `None` if there is no such layer.
    pub fn hidden(&self, row: &[f64], layer: usize) -> Option<Vec<f64>> {
        let mut outputs = self.outputs(&Scale::scaled_row(&self.features, row));
        (layer + 1 < self.layers.len()).then(|| outputs.swap_remove(layer + 1))
    }

    /// The input, and what each layer makes of it.
    fn outputs(&self, input: &[f64]) -> Vec<Vec<f64>> {
        run(&self.layers, self.activation, input)
    }
}

impl Model for Network {
    const KIND: &'static str = "network";

    fn write(&self, to: &mut Writer) {
        let name = ACTIVATIONS.iter().find(|(a, _)| *a == self.activation);
        to.word("activation", name.map_or("", |(_, name)| name));
        Scale::write(&self.features, to);
        Scale::write(&[self.target], to);
        to.counts("widths", self.layers.iter().map(|l| l.weights.len()));
        for row in self.layers.iter().flat_map(|l| &l.weights) {
            to.numbers("weights", row.iter().copied());
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Network, LoadError> {
        let name = from.word("activation")?;
        let known = ACTIVATIONS.iter().find(|(_, n)| *n == name);
        let (activation, _) = known.ok_or_else(|| from.damaged("the activation is unknown"))?;
        let features = Scale::read(from)?;
        let [target] = Scale::read(from)?[..] else {
            return Err(from.damaged("a network has one target"));
        };
        let widths = from.counts("widths")?;
        if widths.last() != Some(&1) || features.is_empty() {
            return Err(from.damaged("a network has features and one output"));
        }
        let mut inputs = features.len();
        let mut layers = Vec::new();
        for width in widths {
            let rows = (0..width).map(|_| from.numbers_of("weights", inputs + 1));
            let weights = rows.collect::<Result<_, _>>()?;
            layers.push(Layer { weights });
            inputs = width;
        }
        Ok(Network {
            activation: *activation,
            layers,
            features,
            target,
        })
    }
}

/// The input, and what each layer makes of it; the last layer gives its sums.
pub(crate) fn run(layers: &[Layer], activation: Activation, input: &[f64]) -> Vec<Vec<f64>> {
    let mut all = vec![input.to_vec()];
    for (i, layer) in layers.iter().enumerate() {
        let activation = match i + 1 < layers.len() {
            true => activation,
            false => Activation::None,
        };
        all.push(layer.apply(&all[i], activation));
    }
    all
}

/// Adds the gradient, given all outputs and the slope of the loss by the last one; gives the slopes by
/// the input.
pub(crate) fn back(
    layers: &[Layer],
    activation: Activation,
    outputs: &[Vec<f64>],
    slope: f64,
    gradient: &mut [Layer],
) -> Vec<f64> {
    let mut error = vec![slope];
    for i in (0..layers.len()).rev() {
        let input = &outputs[i];
        for (row, e) in gradient[i].weights.iter_mut().zip(&error) {
            for (g, v) in row.iter_mut().zip(input.iter().chain([&1.0])) {
                *g += e * v;
            }
        }
        let weights = &layers[i].weights;
        let through = |j: usize| -> f64 {
            let sum: f64 = weights.iter().zip(&error).map(|(row, e)| row[j] * e).sum();
            match i {
                0 => sum,
                _ => sum * activation.slope(input[j]),
            }
        };
        error = (0..input.len()).map(through).collect();
    }
    error
}

pub(crate) fn zeros(layers: &[Layer]) -> Vec<Layer> {
    let zero = |l: &Layer| Layer {
        weights: l.weights.iter().map(|row| vec![0.0; row.len()]).collect(),
    };
    layers.iter().map(zero).collect()
}

impl Adam {
    pub fn new(layers: &[Layer]) -> Adam {
        Adam {
            first: zeros(layers),
            second: zeros(layers),
            steps: 0,
        }
    }

    pub fn step(&mut self, layers: &mut [Layer], gradient: &[Layer], rate: f64) {
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
