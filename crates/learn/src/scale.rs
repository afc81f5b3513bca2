//! Standardised columns: the mean 0 and the deviation 1.

use crate::saved::{LoadError, Reader, Writer};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub mean: f64,
    pub deviation: f64,
}

impl Scale {
    pub fn of(values: &[f64]) -> Scale {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let deviation = variance.sqrt();
        Scale {
            mean,
            // A constant column carries nothing.
            deviation: if deviation > 0.0 { deviation } else { 1.0 },
        }
    }

    pub fn scaled(self, v: f64) -> f64 {
        (v - self.mean) / self.deviation
    }

    pub fn back(self, v: f64) -> f64 {
        v * self.deviation + self.mean
    }

    /// For each column of a table, without the values that are missing; one that misses all carries nothing.
    pub fn of_columns(rows: &[Vec<f64>]) -> Vec<Scale> {
        let column = |j: usize| {
            let known = rows.iter().map(|r| r[j]).filter(|v| !v.is_nan());
            match known.collect::<Vec<f64>>() {
                none if none.is_empty() => Scale::of(&[0.0]),
                known => Scale::of(&known),
            }
        };
        let columns = rows.first().map_or(0, Vec::len);
        (0..columns).map(column).collect()
    }

    /// A row of as many values as there are scales.
    pub fn scaled_row(scales: &[Scale], row: &[f64]) -> Vec<f64> {
        assert_eq!(row.len(), scales.len(), "features of a row");
        let pairs = row.iter().zip(scales);
        pairs.map(|(v, s)| s.scaled(*v)).collect()
    }

    pub fn write(scales: &[Scale], to: &mut Writer) {
        to.numbers("means", scales.iter().map(|s| s.mean));
        to.numbers("deviations", scales.iter().map(|s| s.deviation));
    }

    pub fn read(from: &mut Reader<'_>) -> Result<Vec<Scale>, LoadError> {
        let means = from.numbers("means")?;
        let deviations = from.numbers_of("deviations", means.len())?;
        let pairs = means.into_iter().zip(deviations);
        Ok(pairs
            .map(|(mean, deviation)| Scale { mean, deviation })
            .collect())
    }
}
