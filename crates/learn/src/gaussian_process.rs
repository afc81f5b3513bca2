//! A Gaussian process: `signal² exp(-d²/2) + noise²`, with `d²` the sum of `(difference / length)²` over the
//! features (Rasmussen and Williams, 2006, algorithms 2.1 and 5.1).
//!
//! Features and targets are standardised inside. Signal, lengths and noise maximise the likelihood
//! of the targets: BFGS climbs in their logarithms, from the middle and from random places.

use crate::cholesky::Cholesky;
use crate::climb::climbed;
use crate::saved::{LoadError, Model, Reader, Writer};
use crate::scale::Scale;
use crate::{Unfit, columns, dot, targets};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Bounds of the logarithms of signal, noise and lengths, for standardised numbers.
const BOUNDS: (f64, f64) = (-9.0, 7.0);
/// Of the signal's variance, what is added to the diagonal so that equal rows can be factored.
const JITTER: f64 = 1e-10;

/// How the kernel is found.
#[derive(Clone, Debug, PartialEq)]
pub struct GaussianSettings {
    /// A length for each feature, instead of one for all.
    pub length_each: bool,
    /// Climbs from random places, besides the one from signal 1, lengths √features and noise 0.1.
    pub restarts: usize,
    /// Rows that the kernel is fitted to at most, drawn at random; each step of a climb takes time by the
    /// cube of their number. Predictions use all rows.
    pub kernel_rows: usize,
    pub seed: u64,
}

/// A kernel for standardised features and targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    pub signal: f64,
    pub noise: f64,
    /// One length for all features.
    pub length: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GaussianProcess {
    features: Vec<Scale>,
    target: Scale,
    /// Logarithms of signal, of noise, and of one length or of one for each feature.
    kernel: Vec<f64>,
    /// Standardised, and divided by the lengths.
    rows: Vec<Vec<f64>>,
    /// Standardised.
    y: Vec<f64>,
    factor: Cholesky,
    /// The inverse covariance times the targets.
    alpha: Vec<f64>,
}

/// What is known about the function at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// The standard deviation of the function, without the noise of an observation.
    pub deviation: f64,
}

impl GaussianProcess {
    /// Finds the kernel and takes the rows as observations. Takes time by the cube of their number.
    pub fn fitted(
        rows: &[Vec<f64>],
        y: &[f64],
        settings: &GaussianSettings,
    ) -> Result<GaussianProcess, Unfit> {
        let n = columns(rows)?;
        targets(rows.len(), y)?;
        let lengths = if settings.length_each { n } else { 1 };
        let mut model = GaussianProcess::empty(rows, y, vec![0.0; 2 + lengths]);
        let mut rng = Pcg64Mcg::seed_from_u64(settings.seed);
        let mut order: Vec<usize> = (0..rows.len()).collect();
        if rows.len() > settings.kernel_rows {
            order.shuffle(&mut rng);
            order.truncate(settings.kernel_rows.max(2));
        }
        let scaled = |i: &usize| Scale::scaled_row(&model.features, &rows[*i]);
        let some: Vec<Vec<f64>> = order.iter().map(scaled).collect();
        let some_y: Vec<f64> = order.iter().map(|i| model.target.scaled(y[*i])).collect();
        let middle = 0.5 * (n as f64).ln();
        let mut best = (f64::NEG_INFINITY, vec![]);
        for climb in 0..=settings.restarts {
            let mut start = vec![middle; model.kernel.len()];
            (start[0], start[1]) = (0.0, 0.1f64.ln());
            if climb > 0 {
                start
                    .iter_mut()
                    .for_each(|s| *s += rng.random_range(-2.0..2.0));
            }
            let end = climbed(&|kernel| likelihood(&some, &some_y, kernel), start, BOUNDS);
            if end.0 > best.0 || climb == 0 {
                best = end;
            }
        }
        model.kernel = best.1;
        model.take(rows, y);
        Ok(model)
    }

    /// Takes the rows as observations under a given kernel. Takes time by the cube of their number.
    pub fn with_kernel(
        rows: &[Vec<f64>],
        y: &[f64],
        kernel: Kernel,
    ) -> Result<GaussianProcess, Unfit> {
        columns(rows)?;
        targets(rows.len(), y)?;
        let logs = [kernel.signal, kernel.noise, kernel.length].map(f64::ln);
        let mut model = GaussianProcess::empty(rows, y, logs.to_vec());
        model.take(rows, y);
        Ok(model)
    }

    /// A process that is scaled for these rows, and has seen none.
    fn empty(rows: &[Vec<f64>], y: &[f64], kernel: Vec<f64>) -> GaussianProcess {
        GaussianProcess {
            features: Scale::of_columns(rows),
            target: Scale::of(y),
            kernel,
            rows: Vec::new(),
            y: Vec::new(),
            factor: Cholesky::default(),
            alpha: Vec::new(),
        }
    }

    /// Takes more observations and keeps the kernel. Each takes time by the square of the number of all.
    pub fn add(&mut self, rows: &[Vec<f64>], y: &[f64]) -> Result<(), Unfit> {
        let values = columns(rows)?;
        if values != self.features.len() {
            return Err(Unfit::Length {
                row: 0,
                values,
                expected: self.features.len(),
            });
        }
        targets(rows.len(), y)?;
        self.take(rows, y);
        Ok(())
    }

    fn take(&mut self, rows: &[Vec<f64>], y: &[f64]) {
        for (row, y) in rows.iter().zip(y) {
            self.push(self.placed(row), self.target.scaled(*y));
        }
        self.alpha = self.factor.solve(&self.y);
    }

    /// Takes a row. One that cannot be told from earlier rows adds nothing and is left out.
    fn push(&mut self, row: Vec<f64>, y: f64) {
        let mut covariances = self.covariances(&row);
        let signal = (2.0 * self.kernel[0]).exp();
        covariances.push(signal * (1.0 + JITTER) + (2.0 * self.kernel[1]).exp());
        if self.factor.push(&covariances, 0.0).is_some() {
            self.rows.push(row);
            self.y.push(y);
        }
    }

    /// A row, standardised and divided by the lengths.
    fn placed(&self, row: &[f64]) -> Vec<f64> {
        divided(&Scale::scaled_row(&self.features, row), &self.kernel[2..])
    }

    fn covariances(&self, row: &[f64]) -> Vec<f64> {
        let of = |other: &Vec<f64>| covariance(&self.kernel, row, other);
        self.rows.iter().map(of).collect()
    }

    /// The estimate at a row of as many features as the process was fitted to.
    pub fn predict(&self, row: &[f64]) -> Estimate {
        let covariances = self.covariances(&self.placed(row));
        let half = self.factor.half(&covariances);
        let variance = (2.0 * self.kernel[0]).exp() - dot(&half, &half);
        Estimate {
            mean: self.target.back(dot(&covariances, &self.alpha)),
            deviation: variance.max(0.0).sqrt() * self.target.deviation,
        }
    }

    /// The mean of [`GaussianProcess::predict`], in less time.
    pub fn mean(&self, row: &[f64]) -> f64 {
        let covariances = self.covariances(&self.placed(row));
        self.target.back(dot(&covariances, &self.alpha))
    }

    /// The standard deviation of an observation's noise, in units of the targets.
    pub fn noise(&self) -> f64 {
        self.kernel[1].exp() * self.target.deviation
    }

    /// For each feature, the distance over which the function changes, in the feature's units.
    pub fn lengths(&self) -> Vec<f64> {
        let logs = self.kernel[2..].iter().cycle();
        let pairs = self.features.iter().zip(logs);
        pairs.map(|(s, log)| log.exp() * s.deviation).collect()
    }
}

/// Divides by the exponentials of one logarithm or of one for each value.
fn divided(row: &[f64], logs: &[f64]) -> Vec<f64> {
    let pairs = row.iter().zip(logs.iter().cycle());
    pairs.map(|(v, log)| v / log.exp()).collect()
}

/// The covariance of the function at two rows that are divided by the lengths.
fn covariance(kernel: &[f64], a: &[f64], b: &[f64]) -> f64 {
    (2.0 * kernel[0] - 0.5 * crate::squared_distance(a, b)).exp()
}

/// The logarithm of the targets' likelihood, without its constant, and its gradient by the kernel (equation 5.9).
fn likelihood(rows: &[Vec<f64>], y: &[f64], kernel: &[f64]) -> Option<(f64, Vec<f64>)> {
    let n = rows.len();
    let placed: Vec<Vec<f64>> = rows.iter().map(|r| divided(r, &kernel[2..])).collect();
    let noise = (2.0 * kernel[1]).exp();
    let (mut factor, mut table) = (Cholesky::default(), Vec::with_capacity(n));
    for (i, row) in placed.iter().enumerate() {
        let mut line: Vec<f64> = placed[..i]
            .iter()
            .map(|other| covariance(kernel, row, other))
            .collect();
        line.push((2.0 * kernel[0]).exp() * (1.0 + JITTER) + noise);
        factor.push(&line, 0.0)?;
        table.push(line);
    }
    let alpha = factor.solve(y);
    let inverse = factor.inverse();
    let value = -0.5 * (dot(y, &alpha) + factor.log_determinant());
    let mut gradient = vec![0.0; kernel.len()];
    let lengths = kernel.len() - 2;
    for i in 0..n {
        for j in 0..i {
            // Half of the trace, and each pair stands for two entries.
            let share = (alpha[i] * alpha[j] - inverse[i][j]) * table[i][j];
            gradient[0] += 2.0 * share;
            for (f, (a, b)) in placed[i].iter().zip(&placed[j]).enumerate() {
                gradient[2 + if lengths == 1 { 0 } else { f }] += share * (a - b) * (a - b);
            }
        }
        let share = alpha[i] * alpha[i] - inverse[i][i];
        gradient[0] += share * (table[i][i] - noise);
        gradient[1] += share * noise;
    }
    value.is_finite().then_some((value, gradient))
}

impl Model for GaussianProcess {
    const KIND: &'static str = "gaussian-process";

    fn write(&self, to: &mut Writer) {
        Scale::write(&self.features, to);
        Scale::write(&[self.target], to);
        to.numbers("kernel", self.kernel.iter().copied());
        to.numbers("targets", self.y.iter().copied());
        for row in &self.rows {
            to.numbers("row", row.iter().copied());
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<GaussianProcess, LoadError> {
        let features = Scale::read(from)?;
        let [target] = Scale::read(from)?[..] else {
            return Err(from.damaged("a process has one target"));
        };
        let kernel = from.numbers("kernel")?;
        if features.is_empty() || ![3, 2 + features.len()].contains(&kernel.len()) {
            return Err(from.damaged("a process has one length, or one for each feature"));
        }
        let targets = from.numbers("targets")?;
        let mut model = GaussianProcess {
            features,
            target,
            kernel,
            rows: Vec::new(),
            y: Vec::new(),
            factor: Cholesky::default(),
            alpha: Vec::new(),
        };
        for y in &targets {
            let row = from.numbers_of("row", model.features.len())?;
            model.push(row, *y);
        }
        if model.y.len() != targets.len() {
            return Err(from.damaged("rows of a process depend on each other"));
        }
        model.alpha = model.factor.solve(&model.y);
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_that_of_the_likelihood() {
        let rows: Vec<Vec<f64>> = (0..12)
            .map(|i| vec![f64::from(i) * 0.3, f64::from(i * i % 7)])
            .collect();
        let y: Vec<f64> = rows.iter().map(|r| r[0].sin() + 0.1 * r[1]).collect();
        for kernel in [vec![0.2, -1.0, 0.3], vec![-0.1, -0.5, 0.4, 1.1]] {
            let at = |i: usize, by: f64| {
                let mut moved = kernel.clone();
                moved[i] += by;
                likelihood(&rows, &y, &moved).unwrap().0
            };
            let (_, gradient) = likelihood(&rows, &y, &kernel).unwrap();
            for (i, g) in gradient.iter().enumerate() {
                let slope = (at(i, 1e-5) - at(i, -1e-5)) / 2e-5;
                assert!(
                    (g - slope).abs() < 1e-5 * (1.0 + slope.abs()),
                    "{i} {g} {slope}"
                );
            }
        }
    }
}
