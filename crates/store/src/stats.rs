//! Order statistics of latency samples.
//!
//! Owns the one definition of "the latency" of a candidate (the median), of
//! its uncertainty, and of how two latencies that were measured in pairs differ. Makes no assumption on the distribution of samples. All
//! functions take samples in any order and leave them as they are.

use serde::{Deserialize, Serialize};

/// A closed interval of sample values with the confidence it really has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: u64,
    pub high: u64,
    /// Probability that the interval covers the true median; at least what was
    /// asked for, since order statistics come in steps.
    pub coverage: f64,
}

/// Two ways to compute the same, compared in pairs of runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    pub pairs: usize,
    /// Median latency of the second less that of the first, in percent:
    /// negative if the second is faster.
    pub latency_percent: f64,
    /// Probability of that, or of more, if neither were faster.
    pub p: f64,
}

impl Paired {
    /// From the logarithm of second over first latency of every pair.
    pub fn of(differences: &[f64]) -> Paired {
        Paired {
            pairs: differences.len(),
            latency_percent: 100.0 * median_of(differences).exp_m1(),
            p: signed_rank_below_zero(differences),
        }
    }
}

/// The smallest sample, or `None` without samples.
pub fn min(samples: &[u64]) -> Option<u64> {
    samples.iter().copied().min()
}

/// The median, rounded down between the two middle samples of an even count;
/// `None` without samples.
pub fn median(samples: &[u64]) -> Option<u64> {
    let sorted = sorted(samples);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(sorted[sorted.len() / 2 - 1].midpoint(upper))
}

/// The smallest sample that at least `percent` per cent of the samples do not
/// exceed (nearest rank); 0 gives the minimum, 100 the maximum. `None` without
/// samples or when `percent` is outside 0..=100.
pub fn percentile(samples: &[u64], percent: f64) -> Option<u64> {
    if !(0.0..=100.0).contains(&percent) {
        return None;
    }
    let sorted = sorted(samples);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The narrowest symmetric pair of order statistics that covers the median with
/// probability at least `confidence` (0 to 1, exclusive), by the sign test: the
/// number of samples below the median is binomial(n, 1/2) whatever the
/// distribution. `None` when there are too few samples for that confidence
/// (fewer than 6 at 0.95).
pub fn median_interval(samples: &[u64], confidence: f64) -> Option<Interval> {
    if samples.is_empty() || !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let sorted = sorted(samples);
    let (k, coverage) = median_ranks(sorted.len(), confidence)?;
    Some(Interval {
        low: sorted[k],
        high: sorted[sorted.len() - 1 - k],
        coverage,
    })
}

/// The largest `k` such that of `n` ordered samples those at `k` and `n - 1 - k`, counted from
/// 0, enclose the median with this confidence; and the confidence that they have.
fn median_ranks(n: usize, confidence: f64) -> Option<(usize, f64)> {
    // They miss when at most k samples fall on one side: twice the binomial's tail up to k.
    let (mut ln_term, mut tail) = (-(n as f64) * std::f64::consts::LN_2, 0.0);
    let mut best = None;
    for k in 0..n.div_ceil(2) {
        tail += ln_term.exp();
        let coverage = 1.0 - 2.0 * tail;
        if coverage < confidence {
            break;
        }
        best = Some((k, coverage));
        ln_term += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    best
}

/// Groups of rounds whose medians an interval is made of, where there are as many rounds twice.
const GROUPS: usize = 20;

/// Bounds of the median of differences that were taken one after the other. What disturbs a
/// machine lasts longer than a round, so rounds that follow each other are no independent
/// witnesses: of many rounds, the medians of [`GROUPS`] groups of neighbours are taken, and the
/// bounds are order statistics of these, as in [`median_interval`]. `None` of fewer than six.
pub fn median_bounds(differences: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let n = differences.len();
    let medians: Vec<f64> = match n >= 2 * GROUPS {
        true => {
            let group = |i: usize| &differences[i * n / GROUPS..(i + 1) * n / GROUPS];
            (0..GROUPS).map(|i| median_of(group(i))).collect()
        }
        false => differences.to_vec(),
    };
    bounds_of_medians(medians, confidence)
}

/// Bounds of the median that lies behind medians which are independent witnesses of it.
pub fn bounds_of_medians(mut medians: Vec<f64>, confidence: f64) -> Option<(f64, f64)> {
    medians.sort_by(f64::total_cmp);
    let (k, _) = median_ranks(medians.len(), confidence)?;
    Some((medians[k], medians[medians.len() - 1 - k]))
}

/// The median; 0 of nothing.
pub fn median_of(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n => f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
    }
}

/// Probability of differences as much below zero as these, or more, if their
/// distribution were symmetric about zero: Wilcoxon's signed-rank test, one
/// sided, with the normal approximation and a continuity correction. 1 where
/// no difference says anything.
///
/// Source: F. Wilcoxon, Individual comparisons by ranking methods, 1945.
pub fn signed_rank_below_zero(differences: &[f64]) -> f64 {
    let mut told: Vec<f64> = differences
        .iter()
        .copied()
        .filter(|d| *d != 0.0 && !d.is_nan())
        .collect();
    if told.is_empty() {
        return 1.0;
    }
    told.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let n = told.len() as f64;
    let (mut above, mut ties, mut at) = (0.0, 0.0, 0);
    while at < told.len() {
        let size = told[at].abs();
        let equal = told[at..].iter().take_while(|d| d.abs() == size).count();
        let rank = at as f64 + (equal as f64 + 1.0) / 2.0;
        let positive = told[at..at + equal].iter().filter(|d| **d > 0.0).count();
        above += rank * positive as f64;
        ties += (equal as f64).powi(3) - equal as f64;
        at += equal;
    }
    let mean = n * (n + 1.0) / 4.0;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - ties / 48.0;
    normal_cdf((above - mean + 0.5) / variance.sqrt())
}

/// The standard normal distribution function, to 7.5e-8: Abramowitz and
/// Stegun, Handbook of Mathematical Functions, 26.2.17.
fn normal_cdf(z: f64) -> f64 {
    const B: [f64; 5] = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let polynomial = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let upper = density * polynomial;
    if z > 0.0 { 1.0 - upper } else { upper }
}

fn sorted(samples: &[u64]) -> Vec<u64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_extreme_counts() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7]), Some(7));
        assert_eq!(median(&[9, 1, 5]), Some(5));
        assert_eq!(median(&[4, 1, 2, 9]), Some(3));
        assert_eq!(median(&[u64::MAX, u64::MAX - 2]), Some(u64::MAX - 1));
        assert_eq!(min(&[3, 2, 8]), Some(2));
        assert_eq!(min(&[]), None);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let samples: Vec<u64> = (1..=10).rev().collect();
        let at = |p| percentile(&samples, p);
        assert_eq!([at(0.0), at(10.0), at(11.0)], [Some(1), Some(1), Some(2)]);
        assert_eq!(
            [at(50.0), at(90.0), at(100.0)],
            [Some(5), Some(9), Some(10)]
        );
        assert_eq!([at(-1.0), at(100.1), at(f64::NAN)], [None; 3]);
        assert_eq!(percentile(&[], 50.0), None);
    }

    /// Ranks and coverages from the published sign-test tables.
    #[test]
    fn intervals_match_the_sign_test_tables() {
        let ranks = |n: u64, confidence| {
            let samples: Vec<u64> = (1..=n).rev().collect();
            median_interval(&samples, confidence).map(|i| (i.low, i.high))
        };
        assert_eq!(ranks(5, 0.95), None);
        assert_eq!(ranks(6, 0.95), Some((1, 6)));
        assert_eq!(ranks(10, 0.95), Some((2, 9)));
        assert_eq!(ranks(20, 0.95), Some((6, 15)));
        assert_eq!(ranks(60, 0.95), Some((22, 39)));
        assert_eq!(ranks(10, 0.99), Some((1, 10)));
        let ten: Vec<u64> = (1..=10).collect();
        let coverage = median_interval(&ten, 0.95).unwrap().coverage;
        assert!((coverage - 0.978_515_625).abs() < 1e-12, "{coverage}");
    }

    #[test]
    fn bounds_enclose_the_median_of_rounds_in_a_row() {
        assert_eq!(median_bounds(&[1.0; 5], 0.95), None);
        assert_eq!(
            median_bounds(&[3.0, 1.0, 2.0, 6.0, 5.0, 4.0], 0.95),
            Some((1.0, 6.0))
        );
        // A disturbance of a tenth of the time moves two groups of twenty, and no bound.
        let mut rounds: Vec<f64> = (0..400).map(|i| f64::from(i % 7) / 1e3).collect();
        rounds[100..140].fill(9.0);
        let (low, high) = median_bounds(&rounds, 0.95).unwrap();
        assert!(low <= 3e-3 && (3e-3..0.01).contains(&high), "{low} {high}");
        // Rounds that drift say so: the bounds of many are no narrower than of the groups.
        let drift: Vec<f64> = (0..1000).map(|i| f64::from(i) / 1e3).collect();
        let (low, high) = median_bounds(&drift, 0.95).unwrap();
        assert!(high - low > 0.4, "{low} {high}");
    }

    #[test]
    fn signed_ranks_match_the_tables() {
        // Published critical values, one-sided: with n = 20 a rank sum of 60
        // has the probability 0.047, one of 43 the probability 0.0096.
        let with_sum = |n: u32, sum: u32| {
            let mut left = sum;
            let mut all = Vec::new();
            for rank in (1..=n).rev() {
                let positive = rank <= left;
                left -= if positive { rank } else { 0 };
                all.push(f64::from(rank) * if positive { 1.0 } else { -1.0 });
            }
            signed_rank_below_zero(&all)
        };
        assert!(
            (with_sum(20, 60) - 0.047).abs() < 0.002,
            "{}",
            with_sum(20, 60)
        );
        assert!(
            (with_sum(20, 43) - 0.0096).abs() < 0.0015,
            "{}",
            with_sum(20, 43)
        );
        // Half of the ranks says nothing.
        assert!((with_sum(20, 105) - 0.5).abs() < 0.02);
        assert!(with_sum(20, 210) > 0.9999);
        assert!((signed_rank_below_zero(&[-1.0; 12]) - 0.000_25).abs() < 0.000_1);
        assert_eq!(signed_rank_below_zero(&[]), 1.0);
        assert_eq!(signed_rank_below_zero(&[0.0, f64::NAN]), 1.0);
    }

    #[test]
    fn many_samples_do_not_underflow_and_bad_confidence_is_refused() {
        let samples: Vec<u64> = (0..20_001).collect();
        let interval = median_interval(&samples, 0.95).unwrap();
        assert!(
            interval.low > 9_800 && interval.high < 10_200,
            "{interval:?}"
        );
        assert!(
            interval.coverage >= 0.95 && interval.coverage < 0.96,
            "{interval:?}"
        );
        assert_eq!(median_interval(&samples, 1.0), None);
        assert_eq!(median_interval(&[], 0.5), None);
        assert_eq!(median_interval(&[3], 0.5), None);
    }
}
