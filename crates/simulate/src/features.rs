//! What predictors see of a candidate (Instruction-accurate simulators, section III-C).
//!
//! Shares of counts do not depend on the size of a shape. Beside each share stands its distance from
//! the mean of the group, so that a predictor compares candidates of a group with each other.

use crate::cache::LevelCounts;
use crate::sample::Sample;
use crate::statistics::Statistics;
use analysis::{Class, Features, MachineFeatures, Score};
use serde::{Deserialize, Serialize};

/// The version of the list of features. It changes whenever a feature changes its meaning or its place.
pub const FEATURE_VERSION: u32 = 1;

/// What predictors see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureSet {
    /// What the simulator counted (the paper's).
    Counts,
    /// The static score as well.
    Score,
    /// And all else that reading the code tells, such as cycles and instructions of each class.
    Reading,
}

impl FeatureSet {
    pub const ALL: [FeatureSet; 3] = [FeatureSet::Counts, FeatureSet::Score, FeatureSet::Reading];

    pub const fn name(self) -> &'static str {
        match self {
            FeatureSet::Counts => "counts",
            FeatureSet::Score => "score",
            FeatureSet::Reading => "reading",
        }
    }

    pub fn named(name: &str) -> Option<FeatureSet> {
        FeatureSet::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// Means over candidates of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Means {
    shares: Vec<f64>,
    instructions: f64,
    read_shares: Vec<f64>,
    read_totals: Vec<f64>,
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

/// What reading tells of each instruction: how many are of each class, spilled registers, cycles.
fn read_shares(sample: &Sample) -> Vec<f64> {
    let none = MachineFeatures::default();
    let machine = sample.code.as_ref().and_then(|f| f.machine.as_ref());
    let m = machine.unwrap_or(&none);
    let class = |i| m.classes.get(i).copied().unwrap_or_default();
    let counts = (0..Class::ALL.len()).map(class);
    let counts = counts.chain([m.spills, m.repeated, m.alone]);
    let instructions = sample.statistics.instructions;
    counts.map(|n| ratio(n, instructions)).collect()
}

/// What reading tells of a whole call, the static score first.
fn read_totals(sample: &Sample) -> Vec<f64> {
    let none = Features::default();
    let f = sample.code.as_ref().unwrap_or(&none);
    let machine = |of: fn(&MachineFeatures) -> f64| f.machine.as_ref().map_or(0.0, of);
    let cycles = [machine(|m| m.repeated), machine(|m| m.alone)];
    let moved = [f.pages, f.page_visits, f.crowded, f.constants];
    let mut all = vec![Score::USUAL.cycles(f), machine(|m| m.hot_bytes)];
    all.extend(cycles.into_iter().chain(f.lines).chain(moved));
    all
}

/// The mean of each column; nothing without rows.
fn means(table: &[Vec<f64>]) -> Vec<f64> {
    let columns = table.first().map_or(0, Vec::len);
    let sum = |j: usize| table.iter().map(|row| row[j]).sum::<f64>();
    (0..columns).map(|j| sum(j) / table.len() as f64).collect()
}

/// Each value's distance from its mean.
fn distances<'a>(values: &'a [f64], means: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
    values.iter().zip(means).map(|(v, m)| normalised(*v, *m))
}

impl Means {
    /// Means over these samples of a group, which must have caches of equally many levels.
    pub fn of(samples: &[&Sample]) -> Means {
        let over = |of: fn(&Sample) -> Vec<f64>| {
            let table: Vec<Vec<f64>> = samples.iter().map(|s| of(s)).collect();
            means(&table)
        };
        let total: f64 = samples.iter().map(|s| s.statistics.instructions).sum();
        Means {
            shares: over(|s| shares(&s.statistics)),
            instructions: ratio(total, samples.len() as f64),
            read_shares: over(read_shares),
            read_totals: over(read_totals),
        }
    }

    /// The features of a sample: all shares, all shares normalised by the group, total instructions over their
    /// mean, and the same normalised. The static score normalised. Of what else reading tells, totals normalised, shares,
    /// and shares normalised.
    pub fn features(&self, sample: &Sample, set: FeatureSet) -> Vec<f64> {
        let mut all = shares(&sample.statistics);
        let normal: Vec<f64> = distances(&all, &self.shares).collect();
        all.extend(normal);
        let instructions = sample.statistics.instructions;
        all.push(ratio(instructions, self.instructions));
        all.push(normalised(instructions, self.instructions));
        let totals = read_totals(sample);
        let mut totals = distances(&totals, &self.read_totals);
        if set >= FeatureSet::Score {
            all.extend(totals.next());
        }
        if set >= FeatureSet::Reading {
            all.extend(totals);
            let read = read_shares(sample);
            all.extend(distances(&read, &self.read_shares));
            all.extend(read);
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
            code: Some(Features {
                forks: score,
                ..Features::default()
            }),
            ..Sample::default()
        }
    }

    #[test]
    fn features_are_shares_and_distances_from_means() {
        let (a, b) = (sample(100.0, 20.0, 1, 3.0), sample(300.0, 120.0, 3, 5.0));
        let means = Means::of(&[&a, &b]);
        let features = means.features(&a, FeatureSet::Reading);
        // Three shares of instructions, two caches with reads and writes of three counts.
        let n = 3 + 2 * 2 * 3;
        let (read, totals) = (read_shares(&a).len(), read_totals(&a).len());
        assert_eq!(features.len(), 2 * n + 2 + 2 * read + totals);
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
        // The score's mean is 4 forks.
        near(2 * n + 2, -0.25);
        let of = |set| means.features(&a, set);
        assert_eq!(of(FeatureSet::Counts), features[..2 * n + 2]);
        assert_eq!(of(FeatureSet::Score), features[..2 * n + 3]);
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
