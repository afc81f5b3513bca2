//! What predictors see of a candidate (Instruction-accurate simulators, section III-C).
//!
//! Shares of counts do not depend on the size of a shape. Beside each share stands its distance from
//! the mean of the group, so that a predictor compares candidates of a group with each other.

use crate::cache::LevelCounts;
use crate::sample::Sample;
use crate::statistics::Statistics;

/// The version of the list of features. It changes whenever a feature changes its meaning or its place.
pub const FEATURE_VERSION: u32 = 1;

/// Means over candidates of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Means {
    shares: Vec<f64>,
    instructions: f64,
    static_score: f64,
}

/// 0 where the divisor is 0: nothing was accessed, or nobody of the window had such an event.
fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// `(v - mean) / mean`.
pub(crate) fn normalised(v: f64, mean: f64) -> f64 {
    ratio(v - mean, mean)
}

/// Loads, stores and branches over instructions; hits, misses and replacements over the accesses of their
/// cache, for reads and for writes.
fn shares(of: &Statistics) -> Vec<f64> {
    let kinds = [of.loads, of.stores, of.branches];
    let mut all: Vec<f64> = kinds.map(|n| ratio(n, of.instructions)).to_vec();
    for LevelCounts { read, write } in [&of.l1d, &of.l1i].into_iter().chain(&of.shared) {
        for of in [read, write] {
            let accesses = (of.hits + of.misses) as f64;
            let counts = [of.hits, of.misses, of.replacements];
            all.extend(counts.map(|n| ratio(n as f64, accesses)));
        }
    }
    all
}

impl Means {
    /// Means over these samples of a group, which must have caches of equally many levels.
    pub fn of(samples: &[&Sample]) -> Means {
        let n = samples.len() as f64;
        let table: Vec<Vec<f64>> = samples.iter().map(|s| shares(&s.statistics)).collect();
        let columns = table.first().map_or(0, Vec::len);
        let mean = |j: usize| table.iter().map(|row| row[j]).sum::<f64>() / n;
        let over = |of: fn(&Sample) -> f64| ratio(samples.iter().map(|s| of(s)).sum(), n);
        Means {
            shares: (0..columns).map(mean).collect(),
            instructions: over(|s| s.statistics.instructions),
            static_score: over(|s| s.static_score.unwrap_or_default()),
        }
    }

    /// The features of a sample: all shares, all shares normalised by the group, total instructions over their
    /// mean, the same normalised, and the static score normalised, where asked for.
    pub fn features(&self, sample: &Sample, static_score: bool) -> Vec<f64> {
        let mut all = shares(&sample.statistics);
        let pairs: Vec<f64> = all
            .iter()
            .zip(&self.shares)
            .map(|(v, m)| normalised(*v, *m))
            .collect();
        all.extend(pairs);
        let instructions = sample.statistics.instructions;
        all.push(ratio(instructions, self.instructions));
        all.push(normalised(instructions, self.instructions));
        if static_score {
            let score = sample.static_score.unwrap_or_default();
            all.push(normalised(score, self.static_score));
        }
        all
    }
}

/// Which samples of a group give the means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The first so many, as long as the group is tuned.
    Static(usize),
    /// All that were seen so far. Samples that were scored before get new scores.
    Dynamic,
}

impl Window {
    /// The means for samples of a group in the order in which they came.
    pub fn means(self, seen: &[&Sample]) -> Means {
        match self {
            Window::Static(first) => Means::of(&seen[..first.min(seen.len())]),
            Window::Dynamic => Means::of(seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Hits;

    fn sample(instructions: f64, loads: f64, misses: u64, score: f64) -> Sample {
        let read = Hits {
            hits: 10 - misses,
            misses,
            replacements: 0,
        };
        Sample {
            statistics: Statistics {
                instructions,
                loads,
                l1d: LevelCounts {
                    read,
                    write: Hits::default(),
                },
                ..Statistics::default()
            },
            static_score: Some(score),
            ..Sample::default()
        }
    }

    #[test]
    fn features_are_shares_and_distances_from_means() {
        let (a, b) = (sample(100.0, 20.0, 1, 3.0), sample(300.0, 120.0, 3, 5.0));
        let means = Means::of(&[&a, &b]);
        let features = means.features(&a, true);
        // Three shares of instructions, two caches with reads and writes of three counts.
        let n = 3 + 2 * 2 * 3;
        assert_eq!(features.len(), 2 * n + 2 + 1);
        assert_eq!(features[0], 0.2);
        assert_eq!(features[3..6], [0.9, 0.1, 0.0]);
        let near =
            |at: usize, v: f64| assert!((features[at] - v).abs() < 1e-12, "{at} {features:?}");
        // The mean share of loads is 0.3, that of hits is 0.8, that of misses 0.2.
        near(n, (0.2 - 0.3) / 0.3);
        near(n + 3, (0.9 - 0.8) / 0.8);
        near(n + 4, (0.1 - 0.2) / 0.2);
        near(n + 5, 0.0);
        near(2 * n, 0.5);
        near(2 * n + 1, -0.5);
        near(2 * n + 2, -0.25);
        assert_eq!(means.features(&a, false).len(), 2 * n + 2);
    }

    #[test]
    fn a_static_window_stands_and_a_dynamic_one_moves() {
        let all = [1.0, 3.0, 8.0].map(|n| sample(n, 0.0, 0, 0.0));
        let seen: Vec<&Sample> = all.iter().collect();
        assert_eq!(Window::Static(2).means(&seen).instructions, 2.0);
        assert_eq!(Window::Static(9).means(&seen).instructions, 4.0);
        assert_eq!(Window::Dynamic.means(&seen[..2]).instructions, 2.0);
        assert_eq!(Window::Dynamic.means(&seen).instructions, 4.0);
        assert_eq!(Window::Dynamic.means(&[]).instructions, 0.0);
    }
}
