//! A Gaussian process whose kernel Bayesian optimisation finds.

use super::{Choices, Method, Regressor};
use learn::{GaussianProcess, Kernel};

pub(super) const METHOD: Method = Method {
    name: "gaussian-process",
    doc: "a Gaussian process with a constant, one length and white noise",
    parameters: &["signal", "noise", "length"],
    choices: Choices::Logarithms(&[(-2.0, 3.0), (-5.0, 0.0), (-0.5, 4.0)]),
    fit: |t, parameters, _| {
        let kernel = Kernel {
            signal: parameters[0],
            noise: parameters[1],
            length: parameters[2],
        };
        let process = GaussianProcess::with_kernel(&t.rows, &t.labels, kernel)?;
        Ok(Box::new(process))
    },
    load: |text, version| Ok(Box::new(learn::load::<GaussianProcess>(text, version)?)),
};

impl Regressor for GaussianProcess {
    /// The mean alone: the solve that its deviation needs takes far longer.
    fn predict(&self, row: &[f64]) -> f64 {
        self.mean(row)
    }

    fn text(&self, feature_version: u32) -> String {
        learn::save(self, feature_version)
    }
}
