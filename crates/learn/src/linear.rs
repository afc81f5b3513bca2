//! Linear regression with a constant and a penalty of squared factors (ridge regression).

use crate::cholesky::Cholesky;
use crate::saved::{LoadError, Model, Reader, Writer};
use crate::scale::Scale;
use crate::{Unfit, columns, dot, targets};

/// A constant, and a factor of any sign for each feature. Features and targets are standardised inside.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    features: Vec<Scale>,
    target: Scale,
    factors: Vec<f64>,
}

impl Linear {
    /// Minimises the mean squared error plus `penalty` times the sum of squared factors, both of standardised
    /// numbers. Features may depend on each other: a penalty below 1e-9 counts as 1e-9.
    pub fn fitted(rows: &[Vec<f64>], y: &[f64], penalty: f64) -> Result<Linear, Unfit> {
        let n = columns(rows)?;
        targets(rows.len(), y)?;
        let (features, target) = (Scale::of_columns(rows), Scale::of(y));
        let scaled: Vec<Vec<f64>> = rows
            .iter()
            .map(|r| Scale::scaled_row(&features, r))
            .collect();
        let wanted: Vec<f64> = y.iter().map(|y| target.scaled(*y)).collect();
        let column = |j: usize| scaled.iter().map(|r| r[j]).collect::<Vec<f64>>();
        let table: Vec<Vec<f64>> = (0..n).map(column).collect();
        let ridge = penalty.max(1e-9) * rows.len() as f64;
        let mut factor = Cholesky::default();
        // A column that depends on earlier ones beyond the penalty's reach gets the factor 0.
        let mut used: Vec<usize> = Vec::with_capacity(n);
        for j in 0..n {
            let mut line: Vec<f64> = used.iter().map(|i| dot(&table[*i], &table[j])).collect();
            line.push(dot(&table[j], &table[j]) + ridge);
            if factor.push(&line, 0.0).is_some() {
                used.push(j);
            }
        }
        let products: Vec<f64> = used.iter().map(|j| dot(&table[*j], &wanted)).collect();
        let mut factors = vec![0.0; n];
        for (j, x) in used.into_iter().zip(factor.solve(&products)) {
            factors[j] = x;
        }
        Ok(Linear {
            features,
            target,
            factors,
        })
    }

    /// The prediction for one row of as many features as the model was fitted to.
    pub fn predict(&self, row: &[f64]) -> f64 {
        let scaled = Scale::scaled_row(&self.features, row);
        self.target.back(dot(&scaled, &self.factors))
    }
}

impl Model for Linear {
    const KIND: &'static str = "linear";

    fn write(&self, to: &mut Writer) {
        Scale::write(&self.features, to);
        Scale::write(&[self.target], to);
        to.numbers("factors", self.factors.iter().copied());
    }

    fn read(from: &mut Reader<'_>) -> Result<Linear, LoadError> {
        let features = Scale::read(from)?;
        let [target] = Scale::read(from)?[..] else {
            return Err(from.damaged("a linear model has one target"));
        };
        let factors = from.numbers_of("factors", features.len())?;
        Ok(Linear {
            features,
            target,
            factors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_signs_a_constant_and_twins() {
        let row = |i: u32| {
            let x = f64::from(i);
            vec![x, x * x, x, 4.0]
        };
        let rows: Vec<Vec<f64>> = (0..20).map(row).collect();
        let y: Vec<f64> = rows.iter().map(|r| 5.0 - 3.0 * r[0] + r[1]).collect();
        let model = Linear::fitted(&rows, &y, 0.0).unwrap();
        for (row, y) in rows.iter().zip(&y) {
            assert!((model.predict(row) - y).abs() < 1e-3, "{row:?} {y}");
        }
        let text = crate::save(&model, 1);
        assert_eq!(crate::load::<Linear>(&text, 1).unwrap(), model);
        let shrunk = Linear::fitted(&rows, &y, 1e6).unwrap();
        let mean = y.iter().sum::<f64>() / 20.0;
        assert!((shrunk.predict(&rows[19]) - mean).abs() < 1e-2);
    }
}
