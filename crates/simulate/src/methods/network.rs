//! The paper's network: layers of 128, 128, 64, 32, 16 and 1, tanh, absolute errors, Adam.

use super::{Choices, Method, Regressor};
use learn::{Design, Network, Training};

const HIDDEN: [usize; 5] = [128, 128, 64, 32, 16];
/// Rows of a step: the default of Keras.
const BATCH: usize = 32;

pub(super) const METHOD: Method = Method {
    name: "network",
    doc: "a network with layers of 128, 128, 64, 32, 16 and 1",
    parameters: &["rate", "epochs"],
    choices: Choices::Grid(&[&[1e-3, 40.0], &[3e-4, 40.0]]),
    fit: |t, parameters, seed| {
        let training = Training {
            hidden: HIDDEN.to_vec(),
            epochs: parameters[1] as usize,
            batch: BATCH,
            rate: parameters[0],
            seed,
        };
        let design = Design::SIMULATORS;
        let network = Network::designed(&t.rows, &t.labels, &training, design)?;
        Ok(Box::new(network))
    },
    load: |text, version| Ok(Box::new(learn::load::<Network>(text, version)?)),
};

impl Regressor for Network {
    fn predict(&self, row: &[f64]) -> f64 {
        Network::predict(self, row)
    }

    fn text(&self, feature_version: u32) -> String {
        learn::save(self, feature_version)
    }
}
