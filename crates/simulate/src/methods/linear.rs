//! Linear regression.

use super::{Choices, Method, Regressor};
use learn::Linear;

pub(super) const METHOD: Method = Method {
    name: "linear",
    doc: "linear regression, with a penalty of squared factors",
    parameters: &["penalty"],
    choices: Choices::Grid(&[&[1e-6], &[1e-4], &[1e-3], &[1e-2], &[1e-1]]),
    fit: |t, parameters, _| Ok(Box::new(Linear::fitted(&t.rows, &t.labels, parameters[0])?)),
    load: |text, version| Ok(Box::new(learn::load::<Linear>(text, version)?)),
};

impl Regressor for Linear {
    fn predict(&self, row: &[f64]) -> f64 {
        Linear::predict(self, row)
    }

    fn text(&self, feature_version: u32) -> String {
        learn::save(self, feature_version)
    }
}
