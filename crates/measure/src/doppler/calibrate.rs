//! The calibrator: how wrong parallel figures are, from a sample measured again
//! alone.
//!
//! Owns which candidates are re-measured, the error that follows, and the
//! correction of the others (DOPpler, section 4.1, Eq. 5). Pure; the caller
//! measures and provides random numbers. What follows for the degree of
//! parallelism is `react`'s.

use rand::Rng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

/// A candidate that was measured beside others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parallel {
    /// Time of a call on the device's clock.
    pub latency_ns: f64,
    /// What the worker's host saw between first launch and last completion,
    /// a launch: `latency_ns` and more.
    pub host_ns: f64,
}

impl Parallel {
    /// About 1 when nothing is in the way.
    pub fn ratio(&self) -> f64 {
        self.latency_ns / self.host_ns
    }
}

/// Constants of the calibrator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibratorConstants {
    /// Share of the good results that is measured again.
    pub zeta: f64,
    /// Modified z-score above which a ratio is an outlier.
    pub outlier: f64,
    /// Errors from here on are not corrected.
    pub hopeless: f64,
    /// Fewer than the share are measured again once the error is known to within
    /// this (95%) from earlier rounds; 0 never.
    pub precision: f64,
    /// Each candidate has a factor of its own, from pairs that were as much in
    /// the way of others as it; the paper has one a round.
    pub per_candidate: bool,
    /// The degree of parallelism follows the error that corrections leave; the
    /// paper's follows the error itself, which may be large and the same for all.
    pub corrected: bool,
}

impl CalibratorConstants {
    /// As the declarations in `constants` say.
    pub const PAPER: CalibratorConstants = CalibratorConstants {
        zeta: 0.2,
        outlier: 3.0,
        hopeless: 0.25,
        precision: 0.0,
        per_candidate: false,
        corrected: false,
    };
}

fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

/// Positions of values whose modified z-score exceeds `limit`, with a median
/// absolute deviation of its own on each side of the median; none of fewer
/// than three.
pub fn outliers(values: &[f64], limit: f64) -> Vec<usize> {
    if values.len() <= 2 {
        return vec![];
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let m = median(&sorted);
    let mad = |side: &dyn Fn(f64) -> bool| {
        let mut off: Vec<f64> = sorted
            .iter()
            .filter(|y| side(**y))
            .map(|y| (y - m).abs())
            .collect();
        off.sort_by(f64::total_cmp);
        median(&off)
    };
    let (left, right) = (mad(&|y| y <= m), mad(&|y| y >= m));
    let is_outlier = |y: f64| {
        let deviation = if y < m { left } else { right };
        y != m && 0.6745 * (y - m).abs() > limit * deviation
    };
    let all = values.iter().enumerate();
    all.filter(|(_, y)| is_outlier(**y))
        .map(|(i, _)| i)
        .collect()
}

/// What rounds of a task have shown so far: the latest pairs of any device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairHistory {
    pairs: Vec<Pair>,
}

/// Pairs that are remembered; what contention does changes with the candidates.
const REMEMBERED: usize = 64;
/// Fewer tell no variance.
const TELLING: usize = 8;
/// Of a normal distribution, for 95%.
const QUANTILE: f64 = 1.96;

impl PairHistory {
    pub fn add(&mut self, pair: Pair) {
        if self.pairs.len() == REMEMBERED {
            self.pairs.remove(0);
        }
        self.pairs.push(pair);
    }

    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Pairs that are still to be measured until the mean error is known to
    /// within `precision`; nothing where that cannot be told.
    pub fn missing(&self, precision: f64) -> Option<usize> {
        if precision <= 0.0 || self.pairs.len() < TELLING {
            return None;
        }
        let n = self.pairs.len() as f64;
        let mean = delta(&self.pairs)?;
        let squares = self.pairs.iter().map(|p| (p.error() - mean).powi(2));
        let variance = squares.sum::<f64>() / (n - 1.0);
        let wanted = QUANTILE * QUANTILE * variance / (precision * precision);
        Some((wanted - n).max(0.0).ceil() as usize)
    }
}

/// Which of the good results of one device are measured again: outliers
/// first, the rest drawn at random; no more than `missing` where it is given,
/// but for the outliers and the two without which there is no error.
pub fn sample(
    good: &[Parallel],
    c: &CalibratorConstants,
    missing: Option<usize>,
    rng: &mut impl Rng,
) -> Vec<usize> {
    let ratios: Vec<f64> = good.iter().map(Parallel::ratio).collect();
    let mut chosen = outliers(&ratios, c.outlier);
    let share = (c.zeta * good.len() as f64).ceil() as usize;
    let share = missing.map_or(share, |m| share.min(m));
    let size = share.max(chosen.len()).max(2).min(good.len());
    let mut rest: Vec<usize> = (0..good.len()).filter(|i| !chosen.contains(i)).collect();
    rest.shuffle(rng);
    chosen.extend(rest.into_iter().take(size.saturating_sub(chosen.len())));
    chosen.truncate(size);
    chosen
}

/// A candidate that was measured beside others and alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// [`Parallel::ratio`] of the former.
    pub ratio: f64,
    pub parallel_ns: f64,
    pub alone_ns: f64,
}

impl Pair {
    /// Relative difference of the two.
    pub fn error(&self) -> f64 {
        (self.alone_ns - self.parallel_ns).abs() / self.parallel_ns.max(1.0)
    }

    /// How wrong the parallel latency still is when multiplied by a factor.
    fn residual_error(&self, factor: f64) -> f64 {
        (self.alone_ns - self.parallel_ns * factor).abs() / self.alone_ns.max(1.0)
    }
}

/// Delta, the mean error of a sample; unknown with fewer than two.
pub fn delta(pairs: &[Pair]) -> Option<f64> {
    let sum: f64 = pairs.iter().map(Pair::error).sum();
    (pairs.len() >= 2).then(|| sum / pairs.len() as f64)
}

/// Pairs without which a candidate has no factor of its own.
const FEWEST: usize = 3;
/// Least difference of ratios that means anything.
const RESOLUTION: f64 = 0.01;

/// The factor for a candidate of this ratio: what turned the parallel latencies
/// of pairs into the isolated ones, near ratios weighing more.
pub fn factor(pairs: &[Pair], ratio: f64) -> Option<f64> {
    if pairs.len() < FEWEST {
        return None;
    }
    let mut ratios: Vec<f64> = pairs.iter().map(|p| p.ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let middle = median(&ratios);
    let off: f64 = ratios.iter().map(|r| (r - middle).abs()).sum();
    let near = (off / ratios.len() as f64).max(RESOLUTION);
    let (mut sum, mut weights) = (0.0, 0.0);
    for p in pairs {
        let away = (p.ratio - ratio) / near;
        let weight = 1.0 / (1.0 + away * away);
        sum += weight * p.alone_ns / p.parallel_ns.max(1.0);
        weights += weight;
    }
    Some(sum / weights)
}

/// What is left of the errors of pairs when each is corrected by the others: means,
/// uncorrected, by one factor for all (the paper's, from the errors' sizes, and one
/// from the errors with their signs), and by a factor each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResidualErrors {
    pub uncorrected: f64,
    pub uniform: f64,
    pub signed: f64,
    pub per_candidate: f64,
}

impl ResidualErrors {
    /// What is left by the correction in use.
    pub fn by(&self, c: &CalibratorConstants) -> f64 {
        if c.per_candidate {
            self.per_candidate
        } else {
            self.uniform
        }
    }
}

/// What corrections leave of the errors of these pairs; nothing where there are too few
/// pairs to learn from.
pub fn residual_errors(pairs: &[Pair], c: &CalibratorConstants) -> Option<ResidualErrors> {
    if pairs.len() <= FEWEST {
        return None;
    }
    let (mut uncorrected, mut uniform, mut signed, mut own) = (0.0, 0.0, 0.0, 0.0);
    for (i, p) in pairs.iter().enumerate() {
        let others: Vec<Pair> = [&pairs[..i], &pairs[i + 1..]].concat();
        uncorrected += p.residual_error(1.0);
        uniform += p.residual_error(scale(delta(&others), c).unwrap_or(1.0));
        signed += p.residual_error(signed_factor(&others));
        own += p.residual_error(factor(&others, p.ratio).unwrap_or(1.0));
    }
    let n = pairs.len() as f64;
    Some(ResidualErrors {
        uncorrected: uncorrected / n,
        uniform: uniform / n,
        signed: signed / n,
        per_candidate: own / n,
    })
}

/// What turned the parallel latencies of pairs into the isolated ones, mean.
fn signed_factor(pairs: &[Pair]) -> f64 {
    let factors = pairs.iter().map(|p| p.alone_ns / p.parallel_ns.max(1.0));
    factors.sum::<f64>() / pairs.len() as f64
}

/// The factor for the latencies of candidates that were not measured again.
pub fn scale(delta: Option<f64>, c: &CalibratorConstants) -> Option<f64> {
    delta.filter(|d| *d < c.hopeless).map(|d| 1.0 - d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const PAPER: CalibratorConstants = CalibratorConstants::PAPER;

    fn rng() -> rand_pcg::Pcg64Mcg {
        rand_pcg::Pcg64Mcg::seed_from_u64(1)
    }

    fn results(ratios: &[f64]) -> Vec<Parallel> {
        let one = |r: &f64| Parallel {
            latency_ns: 100.0 * r,
            host_ns: 100.0,
        };
        ratios.iter().map(one).collect()
    }

    #[test]
    fn outliers_are_judged_by_their_own_side() {
        // Left of the median 10 values spread by 1, right of it by 10.
        let spread = [8.0, 9.0, 10.0, 20.0, 30.0];
        assert!(outliers(&spread, 3.0).is_empty());
        let mut low = spread.to_vec();
        low.extend([9.5, 9.0, 9.2, 3.0, 12.0, 18.0]);
        assert_eq!(outliers(&low, 3.0), [8]);
        assert!(outliers(&[1.0, 100.0], 3.0).is_empty());
        assert!(outliers(&[5.0; 9], 3.0).is_empty());
    }

    #[test]
    fn a_value_off_a_constant_rest_is_an_outlier() {
        assert_eq!(outliers(&[5.0, 5.0, 5.0, 5.0, 6.0], 3.0), [4]);
    }

    #[test]
    fn the_sample_has_outliers_first_and_at_least_two() {
        let sizes: Vec<usize> = [0, 1, 2, 5, 10, 64]
            .iter()
            .map(|n| sample(&results(&vec![1.0; *n]), &PAPER, None, &mut rng()).len())
            .collect();
        assert_eq!(sizes, [0, 1, 2, 2, 2, 13]);
        let mut ratios = vec![1.0; 20];
        (ratios[3], ratios[17]) = (0.2, 0.3);
        let chosen = sample(&results(&ratios), &PAPER, None, &mut rng());
        assert_eq!(&chosen[..2], &[3, 17]);
        assert_eq!(chosen.len(), 4);
        let mut unique = chosen.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 4);
    }

    #[test]
    fn delta_is_the_mean_relative_difference() {
        let pairs = [pair(1.0, 100.0, 90.0), pair(1.0, 200.0, 220.0)];
        assert_eq!(delta(&pairs[..1]), None);
        let d = delta(&pairs).expect("two pairs");
        assert!((d - 0.1).abs() < 1e-12);
    }

    fn pair(ratio: f64, parallel_ns: f64, alone_ns: f64) -> Pair {
        Pair {
            ratio,
            parallel_ns,
            alone_ns,
        }
    }

    #[test]
    fn a_factor_of_its_own_is_that_of_its_like() {
        // Those that were much in the way of others are a fifth too slow, the rest less.
        let pairs: Vec<Pair> = (0..10)
            .map(|i| match i % 2 {
                0 => pair(0.99, 105.0, 100.0),
                _ => pair(0.5, 120.0, 100.0),
            })
            .collect();
        // Its own kind weighs five times as much as the other.
        for (ratio, own, other) in [(0.99, 105.0, 120.0), (0.5, 120.0, 105.0)] {
            let expected = (100.0 / own + 0.2 * 100.0 / other) / 1.2;
            let found = factor(&pairs, ratio).expect("enough pairs");
            assert!((found - expected).abs() < 1e-9, "{found} of {expected}");
        }
        let l = residual_errors(&pairs, &PAPER).expect("enough pairs");
        assert!((l.uncorrected - 0.125).abs() < 1e-9, "{l:?}");
        let better = |l: f64, than: f64| l < 0.6 * than;
        assert!(better(l.uniform, l.uncorrected), "{l:?}");
        assert!(better(l.per_candidate, l.uniform), "{l:?}");
        let same = (l.signed - l.uniform).abs() < 1e-9;
        assert!(same, "all errors have one sign: {l:?}");
        assert_eq!(factor(&pairs[..2], 0.5), None);
        assert_eq!(residual_errors(&pairs[..3], &PAPER), None);
    }

    #[test]
    fn latencies_that_are_too_small_are_raised() {
        let pairs = [pair(1.0, 90.0, 99.0); 4];
        assert!(factor(&pairs, 1.0).is_some_and(|f| (f - 1.1).abs() < 1e-9));
        // The paper's factor has no sign, and makes them worse: 90 (1 - 1/10) for 99.
        assert!(scale(delta(&pairs), &PAPER).is_some_and(|s| (s - 0.9).abs() < 1e-9));
        let l = residual_errors(&pairs, &PAPER).expect("enough pairs");
        assert!((l.uncorrected - 9.0 / 99.0).abs() < 1e-9, "{l:?}");
        assert!((l.uniform - 18.0 / 99.0).abs() < 1e-9, "{l:?}");
        assert!(l.signed < 1e-9 && l.per_candidate < 1e-9, "{l:?}");
    }

    #[test]
    fn errors_that_are_too_large_are_not_corrected() {
        let factor = scale(Some(0.1), &PAPER).expect("a small error");
        assert!((factor - 0.9).abs() < 1e-12);
        assert_eq!(scale(Some(0.25), &PAPER), None);
        assert_eq!(scale(None, &PAPER), None);
    }

    fn with_error(error: f64) -> Pair {
        pair(1.0, 1000.0, 1000.0 * (1.0 + error))
    }

    #[test]
    fn a_known_error_needs_fewer_pairs_and_an_unsteady_one_more() {
        let known = |errors: &[f64]| {
            let mut k = PairHistory::default();
            errors.iter().for_each(|e| k.add(with_error(*e)));
            k
        };
        let steady = known(&[0.01, 0.02].repeat(8));
        assert_eq!(steady.missing(0.0), None, "the paper's share");
        assert_eq!(steady.missing(0.025), Some(0));
        assert_eq!(known(&[0.01; 7]).missing(0.025), None, "too few to tell");
        // A standard deviation of about 0.1 wants some 60 pairs.
        let missing = known(&[0.0, 0.2].repeat(8)).missing(0.025);
        assert!(
            missing.is_some_and(|m| (45..=55).contains(&m)),
            "{missing:?}"
        );
        let good = results(&[1.0; 64]);
        let sizes = [Some(0), Some(5), Some(99), None]
            .map(|missing| sample(&good, &PAPER, missing, &mut rng()).len());
        assert_eq!(sizes, [2, 5, 13, 13]);
    }

    #[test]
    fn old_pairs_are_forgotten() {
        let mut k = PairHistory::default();
        (0..200).for_each(|i| k.add(with_error(f64::from(i % 2))));
        assert!(k.missing(0.025) > Some(1000));
        (0..1000).for_each(|_| k.add(with_error(0.01)));
        assert_eq!(k.missing(0.025), Some(0));
    }
}
