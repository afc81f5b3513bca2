//! Boosted trees that learn the logarithms of times, so that a tenth more time counts alike for fast candidates and slow ones.
//!
//! Fast candidates weigh more: which of them is the fastest is what tuning asks.

use super::{Choices, Method, Regressor};
use learn::{Examples, Objective, TreeSettings, Trees};

pub(super) const METHOD: Method = Method {
    name: "log-trees",
    doc: "boosted trees that learn logarithms of times, where fast candidates weigh more",
    parameters: &[],
    choices: Choices::Grid(&[&[]]),
    fit: |t, _, seed| {
        // A label is a time over its group's mean, less 1.
        let logs: Vec<f64> = t.labels.iter().map(|y| y.ln_1p()).collect();
        let weights: Vec<f64> = t.labels.iter().map(|y| 1.0 / (1.0 + y)).collect();
        let examples = Examples {
            weights: Some(&weights),
            ..Examples::of(&t.rows, &logs)
        };
        Ok(Box::new(LogTrees(Trees::fitted(
            &examples,
            &settings(seed),
        )?)))
    },
    load: |text, version| Ok(Box::new(LogTrees(learn::load::<Trees>(text, version)?))),
};

/// Those of the paper, but with deeper trees, fewer of them, and more bins (ADR 0040 has the comparison).
fn settings(seed: u64) -> TreeSettings {
    TreeSettings {
        rounds: 100,
        depth: 5,
        rate: 0.12,
        column_share: 0.4,
        bins: 255,
        ..TreeSettings::simulators(Objective::SquaredError, seed)
    }
}

/// Predicts logarithms.
struct LogTrees(Trees);

impl Regressor for LogTrees {
    fn predict(&self, row: &[f64]) -> f64 {
        self.0.predict(row).exp_m1()
    }

    fn text(&self, feature_version: u32) -> String {
        learn::save(&self.0, feature_version)
    }
}
