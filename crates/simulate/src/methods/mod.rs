//! The learners that score candidates, one file each, and how their parameters are chosen.
//!
//! Parameters are chosen by the mean squared error on rows that a learner did not learn from.

mod gaussian;
mod linear;
mod log_trees;
mod network;
mod search;
mod trees;

use learn::{LoadError, Unfit};

/// A learner that was fitted.
pub trait Regressor: Send + Sync {
    /// The prediction for one row of features.
    fn predict(&self, row: &[f64]) -> f64;

    /// The text of [`learn::save`].
    fn text(&self, feature_version: u32) -> String;
}

type Fitted<E> = Result<Box<dyn Regressor>, E>;

/// Rows of features, and a label for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub rows: Vec<Vec<f64>>,
    pub labels: Vec<f64>,
}

/// A kind of learner.
pub struct Method {
    pub name: &'static str,
    pub doc: &'static str,
    /// The names of the parameters that are chosen.
    pub parameters: &'static [&'static str],
    choices: Choices,
    /// Fits to a table with parameters and a seed.
    fit: fn(&Table, &[f64], u64) -> Fitted<Unfit>,
    load: fn(&str, u32) -> Fitted<LoadError>,
}

/// Where parameters are sought.
enum Choices {
    /// Each of these. One alone is taken without a trial.
    Grid(&'static [&'static [f64]]),
    /// Logarithms between these bounds, by Bayesian optimisation.
    Logarithms(&'static [(f64, f64)]),
}

/// All methods. The first ones take the least time.
pub const METHODS: [Method; 5] = [
    linear::METHOD,
    trees::METHOD,
    log_trees::METHOD,
    gaussian::METHOD,
    network::METHOD,
];

impl Method {
    /// The method of this name.
    pub fn named(name: &str) -> Option<&'static Method> {
        METHODS.iter().find(|m| m.name == name)
    }

    /// The parameters whose learner, fitted to one table, has the least error on the other one.
    pub(crate) fn chosen(
        &self,
        learning: &Table,
        judging: &Table,
        seed: u64,
    ) -> Result<Vec<f64>, Unfit> {
        let error = |parameters: &[f64]| -> Result<f64, Unfit> {
            let fitted = (self.fit)(learning, parameters, seed)?;
            let pairs = judging.rows.iter().zip(&judging.labels);
            let squares = pairs.map(|(row, y)| (fitted.predict(row) - y).powi(2));
            Ok(squares.sum::<f64>() / judging.rows.len().max(1) as f64)
        };
        match self.choices {
            Choices::Grid([only]) => Ok(only.to_vec()),
            Choices::Grid(all) => {
                let mut least = (f64::INFINITY, vec![]);
                for parameters in all {
                    let error = error(parameters)?;
                    if error < least.0 || least.1.is_empty() {
                        least = (error, parameters.to_vec());
                    }
                }
                Ok(least.1)
            }
            Choices::Logarithms(bounds) => search::least(bounds, &error, seed),
        }
    }

    pub(crate) fn fitted(&self, table: &Table, parameters: &[f64], seed: u64) -> Fitted<Unfit> {
        (self.fit)(table, parameters, seed)
    }

    pub(crate) fn loaded(&self, text: &str, feature_version: u32) -> Fitted<LoadError> {
        (self.load)(text, feature_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(from: u32, to: u32) -> Table {
        let row = |i: u32| vec![f64::from(i % 17) * 0.1, f64::from(i % 11) * 0.2];
        let rows: Vec<Vec<f64>> = (from..to).map(row).collect();
        let labels = rows.iter().map(|r| r[0] - 0.4 * r[1] + 0.2).collect();
        Table { rows, labels }
    }

    #[test]
    fn every_method_learns_and_survives_its_text() {
        let (learning, judging) = (table(0, 120), table(120, 160));
        for method in METHODS {
            let parameters = match method.choices {
                Choices::Grid(all) => all[0].to_vec(),
                Choices::Logarithms(_) => method.chosen(&learning, &judging, 1).unwrap(),
            };
            assert_eq!(parameters.len(), method.parameters.len());
            let fitted = method.fitted(&learning, &parameters, 1).unwrap();
            let again = method.loaded(&fitted.text(7), 7).unwrap();
            for (row, y) in judging.rows.iter().zip(&judging.labels) {
                let p = fitted.predict(row);
                // Slow candidates may be further off.
                let off = (p - y).abs() / (1.0 + y.max(0.0));
                assert!(off < 0.2, "{} {row:?} {p} {y}", method.name);
                assert_eq!(again.predict(row), p);
            }
            assert!(method.loaded(&fitted.text(7), 8).is_err());
        }
    }

    #[test]
    fn the_grid_gives_the_least_error() {
        let (learning, judging) = (table(0, 120), table(120, 160));
        let chosen = linear::METHOD.chosen(&learning, &judging, 1).unwrap();
        assert_eq!(chosen, [1e-6]);
    }
}
