//! A network of fully connected layers, trained by Adam.
//!
//! The output is one number. Features and targets are standardised inside. A missing feature, NaN, counts as the mean
//! of its column.

use crate::perceptron::{Activation, Adam, Layer, Layers};
use crate::saved::{LoadError, Model, Reader, Writer};
use crate::scale::Scale;
use crate::{Examples, Unfit, columns};
use rand::SeedableRng;
use rand::seq::SliceRandom;
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
    layers: Layers,
    features: Vec<Scale>,
    target: Scale,
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

/// The weight of each row over their mean, so that Adam's rate means the same whatever the scale of weights.
fn mean_of_one(examples: &Examples<'_>) -> Vec<f64> {
    let n = examples.rows.len();
    let weights: Vec<f64> = (0..n).map(|row| examples.weight(row)).collect();
    let mean = weights.iter().sum::<f64>() / n as f64;
    match mean > 0.0 {
        true => weights.into_iter().map(|w| w / mean).collect(),
        false => weights,
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
        columns(rows)?;
        Network::fitted(&Examples::of(rows, y), training, design)
    }

    /// Trains a network of this design on examples, whose features may be missing and whose groups do not count.
    pub fn fitted(
        examples: &Examples<'_>,
        training: &Training,
        design: Design,
    ) -> Result<Network, Unfit> {
        let n = examples.checked()?;
        let (rows, y) = (examples.rows, examples.y);
        let weights = mean_of_one(examples);
        let mut rng = Pcg64Mcg::seed_from_u64(training.seed);
        let mut widths = vec![n];
        widths.extend(training.hidden.iter().map(|w| (*w).max(1)));
        widths.push(1);
        let mut network = Network {
            layers: Layers::random(design.activation, &widths, &mut rng),
            features: Scale::of_columns(rows),
            target: Scale::of(y),
        };
        let inputs: Vec<Vec<f64>> = rows.iter().map(|r| network.inputs(r)).collect();
        let wanted: Vec<f64> = y.iter().map(|y| network.target.scaled(*y)).collect();
        let mut adam = Adam::of(&network.layers);
        let mut plateau = Plateau::new(training.rate, design.patience);
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for _ in 0..training.epochs {
            order.shuffle(&mut rng);
            let mut sum = 0.0;
            for batch in order.chunks(training.batch.max(1)) {
                let mut gradient = network.layers.zeros();
                let share = 1.0 / batch.len() as f64;
                for row in batch {
                    let outputs = network.layers.outputs(&inputs[*row]);
                    let error = outputs[outputs.len() - 1][0] - wanted[*row];
                    sum += weights[*row] * design.loss.of(error);
                    let slopes = vec![weights[*row] * design.loss.slope(error) * share];
                    network.layers.add_gradient(&outputs, slopes, &mut gradient);
                }
                adam.step(&mut network.layers, &gradient, plateau.rate);
            }
            plateau.epoch(sum / rows.len() as f64);
        }
        Ok(network)
    }

    /// What the first layer is given.
    fn inputs(&self, row: &[f64]) -> Vec<f64> {
        let mut inputs = Scale::scaled_row(&self.features, row);
        for v in inputs.iter_mut().filter(|v| v.is_nan()) {
            *v = 0.0;
        }
        inputs
    }

    /// The prediction for one row of as many features as it was trained with.
    pub fn predict(&self, row: &[f64]) -> f64 {
        let outputs = self.layers.outputs(&self.inputs(row));
        self.target.back(outputs[outputs.len() - 1][0])
    }

    /// What a hidden layer, counted from 0, gives out for a row; `None` if there is no such layer.
    pub fn hidden(&self, row: &[f64], layer: usize) -> Option<Vec<f64>> {
        let mut outputs = self.layers.outputs(&self.inputs(row));
        (layer + 1 < self.layers.all.len()).then(|| outputs.swap_remove(layer + 1))
    }
}

impl Model for Network {
    const KIND: &'static str = "network";

    fn write(&self, to: &mut Writer) {
        let name = ACTIVATIONS
            .iter()
            .find(|(a, _)| *a == self.layers.activation);
        to.word("activation", name.map_or("", |(_, name)| name));
        Scale::write(&self.features, to);
        Scale::write(&[self.target], to);
        to.counts("widths", self.layers.all.iter().map(|l| l.weights.len()));
        for row in self.layers.all.iter().flat_map(|l| &l.weights) {
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
            layers: Layers {
                activation: *activation,
                all: layers,
            },
            features,
            target,
        })
    }
}
