//! Boosted trees with the parameters that the paper's grid search found.

use super::{Choices, Method, Regressor};
use learn::{Examples, Objective, TreeSettings, Trees};

pub(super) const METHOD: Method = Method {
    name: "trees",
    doc: "300 boosted trees of depth 3",
    parameters: &[],
    choices: Choices::Grid(&[&[]]),
    fit: |t, _, seed| {
        let settings = TreeSettings::simulators(Objective::SquaredError, seed);
        let examples = Examples::of(&t.rows, &t.labels);
        Ok(Box::new(Trees::fitted(&examples, &settings)?))
    },
    load: |text, version| Ok(Box::new(learn::load::<Trees>(text, version)?)),
};

impl Regressor for Trees {
    fn predict(&self, row: &[f64]) -> f64 {
        Trees::predict(self, row)
    }

    fn text(&self, feature_version: u32) -> String {
        learn::save(self, feature_version)
    }
}
