//! What a simulator counts in one call of a kernel.

use crate::cache::{Caches, LevelCounts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a miss in the first level, in one between, and in the last one costs beside what it costs in the level
/// before, in instructions: orders of magnitude, chosen by hand.
const MISS: [f64; 3] = [4.0, 12.0, 60.0];

/// Counts of one call on one core. They are numbers of events, not of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// The simulator and its version.
    pub simulator: String,
    pub instructions: f64,
    /// Instructions that read memory, and that write it.
    pub loads: f64,
    pub stores: f64,
    /// Jumps, calls and returns included.
    pub branches: f64,
    pub l1d: LevelCounts,
    pub l1i: LevelCounts,
    /// From the second level to the last one.
    pub shared: Vec<LevelCounts>,
    /// What else a simulator of the user's tells, by its names.
    #[serde(default)]
    pub others: BTreeMap<String, f64>,
    /// How exact the counts of caches are, if iterations were sampled.
    #[serde(default)]
    pub sampled: Option<Sampled>,
}

/// Counts that some iterations of loops stand for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The share of the accesses that were walked.
    pub walked: f64,
    /// Half the width of the interval that holds a count with a probability of about 95%, by its name
    /// ([`Statistics::named`]). Differences between sampled iterations estimate it. To the margins of
    /// misses, accesses are added that may have missed only because iterations were skipped.
    pub margins: BTreeMap<String, f64>,
}

impl Statistics {
    /// The counts of caches; the others are 0.
    pub fn of_caches(caches: &Caches, simulator: &str) -> Statistics {
        let [l1d, l1i] = caches.first();
        Statistics {
            simulator: simulator.into(),
            l1d,
            l1i,
            shared: caches.shared(),
            ..Statistics::default()
        }
    }

    /// Instructions and misses of data in one number, for ranking where no predictor is at hand.
    pub fn weighted(&self) -> f64 {
        let misses = |l: &LevelCounts| (l.read.misses + l.write.misses) as f64;
        let costs = miss_costs(self.shared.len());
        let levels = std::iter::once(&self.l1d).chain(&self.shared);
        let misses = levels.zip(costs).map(|(l, cost)| misses(l) * cost);
        self.instructions + misses.sum::<f64>()
    }

    /// Every count by its name, such as `l1d.read.misses`, and [`Statistics::weighted`].
    pub fn named(&self) -> Vec<(String, f64)> {
        let mut all: Vec<(String, f64)> = vec![
            ("instructions".into(), self.instructions),
            ("loads".into(), self.loads),
            ("stores".into(), self.stores),
            ("branches".into(), self.branches),
            ("weighted".into(), self.weighted()),
        ];
        let shared = self
            .shared
            .iter()
            .zip(2..)
            .map(|(c, n)| (format!("l{n}"), c));
        let levels = [
            ("l1d".to_string(), &self.l1d),
            ("l1i".to_string(), &self.l1i),
        ];
        for (level, counts) in levels.into_iter().chain(shared) {
            for (kind, of) in [("read", counts.read), ("write", counts.write)] {
                let counts = [
                    ("hits", of.hits),
                    ("misses", of.misses),
                    ("replacements", of.replacements),
                ];
                all.extend(counts.map(|(name, n)| (format!("{level}.{kind}.{name}"), n as f64)));
            }
        }
        all.extend(self.others.iter().map(|(name, n)| (name.clone(), *n)));
        all
    }

    /// A count by its name: one of [`Statistics::named`], or one of [`Statistics::sums`].
    pub fn count(&self, name: &str) -> Option<f64> {
        let mut all = self.named().into_iter().chain(self.sums());
        all.find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// Reads and writes together by names such as `l2.misses`, and the last level's by names such as `llc_misses`.
    /// What a simulator of the user's calls so is its own.
    pub fn sums(&self) -> Vec<(String, f64)> {
        let levels = [("l1d".to_string(), &self.l1d), ("l1i".into(), &self.l1i)];
        let numbers = (2..).map(|n| format!("l{n}"));
        let shared = numbers.zip(&self.shared);
        let of = |of: &LevelCounts, prefix: String| {
            let LevelCounts { read, write } = of;
            [
                ("hits", read.hits + write.hits),
                ("misses", read.misses + write.misses),
                ("replacements", read.replacements + write.replacements),
            ]
            .map(|(event, n)| (format!("{prefix}{event}"), n as f64))
        };
        let mut all: Vec<_> = levels
            .into_iter()
            .chain(shared)
            .flat_map(|(level, counts)| of(counts, format!("{level}.")))
            .collect();
        all.extend(
            self.shared
                .last()
                .into_iter()
                .flat_map(|l| of(l, "llc_".into())),
        );
        all.retain(|(name, _)| !self.others.contains_key(name));
        all
    }

    /// Counts by their names ([`Statistics::named`]); those that are not named are 0.
    pub fn of_named(simulator: &str, numbers: Vec<(String, f64)>) -> Statistics {
        let mut all = Statistics {
            simulator: simulator.into(),
            ..Statistics::default()
        };
        for (name, value) in numbers {
            match all.count_mut(&name) {
                Some(Count::Real(count)) => *count = value,
                Some(Count::Whole(count)) => *count = value as u64,
                None => _ = all.others.insert(name, value),
            }
        }
        all
    }

    fn count_mut(&mut self, name: &str) -> Option<Count<'_>> {
        let of_kernel = match name {
            "instructions" => Some(&mut self.instructions),
            "loads" => Some(&mut self.loads),
            "stores" => Some(&mut self.stores),
            "branches" => Some(&mut self.branches),
            _ => None,
        };
        if let Some(count) = of_kernel {
            return Some(Count::Real(count));
        }
        let mut parts = name.split('.');
        let (level, access, event) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some()
            || !["read", "write"].contains(&access)
            || !["hits", "misses", "replacements"].contains(&event)
        {
            return None;
        }
        let level = match level {
            "l1d" => &mut self.l1d,
            "l1i" => &mut self.l1i,
            "l2" | "l3" => {
                let at = usize::from(level == "l3");
                let levels = self.shared.len().max(at + 1);
                self.shared.resize(levels, LevelCounts::default());
                &mut self.shared[at]
            }
            _ => return None,
        };
        let hits = match access {
            "read" => &mut level.read,
            _ => &mut level.write,
        };
        Some(Count::Whole(match event {
            "hits" => &mut hits.hits,
            "misses" => &mut hits.misses,
            _ => &mut hits.replacements,
        }))
    }
}

/// What a miss costs in [`Statistics::weighted`], in the first level and in each of the others.
pub fn miss_costs(shared: usize) -> Vec<f64> {
    let [first, between, last] = MISS;
    let of_shared = (1..=shared).map(|n| if n < shared { between } else { last });
    std::iter::once(first).chain(of_shared).collect()
}

/// A count of [`Statistics`].
enum Count<'s> {
    Real(&'s mut f64),
    Whole(&'s mut u64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Hits;

    #[test]
    fn a_miss_costs_more_in_a_farther_level() {
        let level = |misses| LevelCounts {
            read: Hits {
                misses,
                ..Hits::default()
            },
            write: Hits::default(),
        };
        let of = Statistics {
            instructions: 100.0,
            l1d: level(3),
            shared: vec![level(2), level(1)],
            ..Statistics::default()
        };
        assert_eq!(of.weighted(), 100.0 + 3.0 * 4.0 + 2.0 * 12.0 + 60.0);
        // The last level is the last one, however many there are.
        let two = Statistics {
            shared: vec![level(2)],
            ..of
        };
        assert_eq!(two.weighted(), 100.0 + 3.0 * 4.0 + 2.0 * 60.0);
    }

    #[test]
    fn reads_and_writes_are_added() {
        let hits = |hits, misses, replacements| Hits {
            hits,
            misses,
            replacements,
        };
        let mut of = Statistics {
            l1d: LevelCounts {
                read: hits(1, 2, 3),
                write: hits(10, 20, 30),
            },
            shared: vec![
                LevelCounts::default(),
                LevelCounts {
                    read: hits(4, 5, 6),
                    write: hits(40, 50, 60),
                },
            ],
            ..Statistics::default()
        };
        assert_eq!(of.count("l1d.misses"), Some(22.0));
        assert_eq!(of.count("l1d.read.misses"), Some(2.0));
        assert_eq!(of.count("l3.replacements"), Some(66.0));
        assert_eq!(of.count("llc_misses"), Some(55.0));
        assert_eq!(of.count("llc_hits"), Some(44.0));
        assert_eq!(of.count("l4.misses"), None);
        of.others.insert("llc_misses".into(), 7.0);
        assert_eq!(of.count("llc_misses"), Some(7.0));
        of.shared.pop();
        of.others.clear();
        assert_eq!(of.count("llc_misses"), Some(0.0));
    }

    #[test]
    fn counts_have_names() {
        let misses = Hits {
            hits: 3,
            misses: 2,
            replacements: 1,
        };
        let level = LevelCounts {
            read: Hits::default(),
            write: misses,
        };
        let of = Statistics {
            loads: 7.0,
            shared: vec![LevelCounts::default(), level],
            ..Statistics::default()
        };
        let named = of.named();
        let get = |name: &str| named.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
        assert_eq!(named.len(), 5 + 4 * 6);
        assert_eq!(get("loads"), Some(7.0));
        assert_eq!(get("l3.write.misses"), Some(2.0));
        let weighted = |(name, _): &(String, f64)| name == "weighted";
        let mut counts = named.clone();
        counts.retain(|c| !weighted(c));
        assert_eq!(Statistics::of_named("", counts), of);
    }
}
