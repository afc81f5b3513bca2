//! Order statistics of latency samples.
//!
//! Owns the one definition of "the latency" of a candidate (the median) and of
//! its uncertainty. Makes no assumption on the distribution of samples. All
//! functions take samples in any order and leave them as they are.

/// A closed interval of sample values with the confidence it really has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: u64,
    pub high: u64,
    /// Probability that the interval covers the true median; at least what was
    /// asked for, since order statistics come in steps.
    pub coverage: f64,
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
    let n = sorted.len();
    // The pair (k, n-1-k), counted from 0, misses when at most k samples fall
    // on one side: twice the binomial's tail up to k.
    let (mut ln_term, mut tail) = (-(n as f64) * std::f64::consts::LN_2, 0.0);
    let mut best = None;
    for k in 0..n.div_ceil(2) {
        tail += ln_term.exp();
        let coverage = 1.0 - 2.0 * tail;
        if coverage < confidence {
            break;
        }
        best = Some(Interval {
            low: sorted[k],
            high: sorted[n - 1 - k],
            coverage,
        });
        ln_term += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    best
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
