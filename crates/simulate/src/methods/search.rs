//! Bayesian optimisation with expected improvement (Frazier, 2018). The surrogate is a Gaussian process.

use learn::{Estimate, GaussianProcess, GaussianSettings, Unfit};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Points at random before there is a surrogate, and points that the surrogate proposes.
const RANDOM: usize = 6;
const PROPOSED: usize = 14;
/// Random points among which the surrogate looks for each proposal.
const POOL: usize = 256;

/// The parameters with the least error of those that were tried. Bounds are of their logarithms.
pub(super) fn least(
    bounds: &[(f64, f64)],
    error: &dyn Fn(&[f64]) -> Result<f64, Unfit>,
    seed: u64,
) -> Result<Vec<f64>, Unfit> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut point = || -> Vec<f64> {
        let within = |(lo, hi): &(f64, f64)| rng.random_range(*lo..*hi);
        bounds.iter().map(within).collect()
    };
    let at = |logs: &[f64]| -> Vec<f64> { logs.iter().map(|v| v.exp()).collect() };
    let (mut tried, mut errors) = (Vec::new(), Vec::new());
    for trial in 0..RANDOM + PROPOSED {
        let next = if trial < RANDOM {
            point()
        } else {
            let pool: Vec<Vec<f64>> = (0..POOL).map(|_| point()).collect();
            proposal(&tried, &errors, pool, seed)?
        };
        // The logarithm, since errors differ by magnitudes.
        errors.push(error(&at(&next))?.max(f64::MIN_POSITIVE).ln());
        tried.push(next);
    }
    let best = tried.iter().zip(&errors).min_by(|a, b| a.1.total_cmp(b.1));
    Ok(best.map_or(vec![], |(logs, _)| at(logs)))
}

/// The point of the pool that promises most.
fn proposal(
    tried: &[Vec<f64>],
    errors: &[f64],
    pool: Vec<Vec<f64>>,
    seed: u64,
) -> Result<Vec<f64>, Unfit> {
    let settings = GaussianSettings {
        length_each: false,
        restarts: 0,
        kernel_rows: RANDOM + PROPOSED,
        seed,
    };
    let surrogate = GaussianProcess::fitted(tried, errors, &settings)?;
    let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
    let promise = |p: &Vec<f64>| improvement(surrogate.predict(p), least);
    let best = pool
        .into_iter()
        .map(|p| (promise(&p), p))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    Ok(best.map_or(vec![], |(_, p)| p))
}

/// By how much an estimate is expected to be below the least error so far.
fn improvement(of: Estimate, least: f64) -> f64 {
    let gain = least - of.mean;
    if of.deviation <= 0.0 {
        return gain.max(0.0);
    }
    let z = gain / of.deviation;
    let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    gain * below(z) + of.deviation * density
}

/// The share of the normal distribution below `z`: the logistic form of Bowling et al. (2009), within 2e-4.
fn below(z: f64) -> f64 {
    1.0 / (1.0 + (-0.07056 * z * z * z - 1.5976 * z).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bowl_has_its_bottom_found() {
        let bowl = |p: &[f64]| Ok((p[0].ln() - 0.7).powi(2) + (p[1].ln() + 1.0).powi(2) + 0.01);
        let found = least(&[(-3.0, 3.0), (-3.0, 3.0)], &bowl, 1).unwrap();
        assert!((found[0].ln() - 0.7).abs() < 0.5, "{found:?}");
        assert!((found[1].ln() + 1.0).abs() < 0.5, "{found:?}");
    }

    #[test]
    fn improvement_counts_means_and_doubts() {
        let of = |mean, deviation| improvement(Estimate { mean, deviation }, 1.0);
        assert_eq!(of(0.5, 0.0), 0.5);
        assert_eq!(of(2.0, 0.0), 0.0);
        // Half the deviation lies below: its mean distance is the density at 0.
        assert!((of(1.0, 1.0) - 0.398_942).abs() < 1e-5);
        assert!(of(2.0, 1.0) > of(2.0, 0.5));
    }
}
