//! A cost of what was read: a sum of counts, each times a rate (Tuna, section 3).
//!
//! A roofline, of which the longer of computing and of bringing data counts whole, was tried and ranks no
//! better on operators that no rate was fitted to (ADR 0034).

use crate::features::Features;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Rates of a family of machines, in cycles of a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Of a cycle of blocks that are repeated, and of a cycle of blocks alone.
    pub repeated: f64,
    pub alone: f64,
    /// Of an instruction that loads: the model of the pipeline takes all loads to hit the first-level
    /// cache at full rate.
    pub load: f64,
    /// Of an instruction in a loop that spills a register or loads it again.
    pub spill: f64,
    /// Of a line that is brought into the first-level cache, the second-level one and the last-level
    /// one, from the level behind each.
    pub line: [f64; 3],
    /// Of a page that is touched.
    pub page: f64,
    /// Of a page that is touched and was not among the last ones.
    #[serde(default)]
    pub page_visit: f64,
    /// Of a line that stores bring into a crowded set, beside the rate of a line.
    #[serde(default)]
    pub crowded: f64,
    /// Of waking threads and waiting for them.
    pub fork: f64,
}

impl Score {
    /// Rates of server cores: the means of what least squares of relative times gave on 28 operators on two
    /// families of machines (`study static`, ADR 0034). They are scaled so that a sum is near the
    /// cycles of a core at 3.4 GHz. Four are chosen by hand: `fork`; the rate of the last-level cache,
    /// which the operators say nothing of, since hardly any is larger than that cache; and `page_visit` and
    /// `crowded`, of which the latter is what a small program measured (ADR 0034).
    pub const USUAL: Score = Score {
        repeated: 0.16,
        alone: 0.02,
        load: 0.30,
        spill: 0.27,
        line: [0.96, 0.94, 0.6],
        page: 13.0,
        page_visit: 2.0,
        crowded: 20.0,
        fork: 5000.0,
    };

    /// Cycles of a line that comes from memory: 64 bytes by a core that reads 22 GB/s, at 3.4 GHz.
    pub const MEMORY: f64 = 10.0;

    /// How many rates there are.
    pub const RATES: usize = 11;

    /// Every rate, in the order of the fields.
    pub fn all(&self) -> [f64; Score::RATES] {
        // Without `..`: a rate that is missing here would be missing in names.
        let Score {
            repeated,
            alone,
            load,
            spill,
            line: [l1, l2, last],
            page,
            page_visit,
            crowded,
            fork,
        } = *self;
        [
            repeated, alone, load, spill, l1, l2, last, page, page_visit, crowded, fork,
        ]
    }

    /// The rates to six digits: as many as a file keeps exactly.
    pub fn rounded(&self) -> Score {
        let round = |rate: f64| format!("{rate:.5e}").parse().unwrap_or(rate);
        let [
            repeated,
            alone,
            load,
            spill,
            l1,
            l2,
            last,
            page,
            page_visit,
            crowded,
            fork,
        ] = self.all().map(round);
        Score {
            repeated,
            alone,
            load,
            spill,
            line: [l1, l2, last],
            page,
            page_visit,
            crowded,
            fork,
        }
    }

    /// A short name that differs where rates differ; none of the usual rates.
    pub fn name(&self) -> Option<String> {
        let bytes = self.all().map(|rate| (rate + 0.0).to_le_bytes());
        let hash = xxh3_64(bytes.as_flattened());
        (*self != Score::USUAL).then(|| format!("{:08x}", hash >> 32))
    }

    /// What says which scores compare: those of one processor's cycles by the same rates.
    pub fn kind(&self, cpu: &str) -> String {
        match self.name() {
            None => format!("cycles {cpu}"),
            Some(name) => format!("cycles {cpu} rates {name}"),
        }
    }

    /// Predicted cycles of one call. Costs of candidates whose machine code was read compare, and
    /// those of candidates whose loops alone were read.
    pub fn cycles(&self, f: &Features) -> f64 {
        self.terms(f).sum()
    }

    /// As [`Score::cycles`], where the constants are in no cache when the kernel begins, as in a model whose
    /// weights fill the last-level cache: each of their lines costs what a line from memory does as well. Computing
    /// hides little of that, as a sum over all caches says, too.
    pub fn cycles_from_memory(&self, f: &Features) -> f64 {
        self.cycles(f) + Score::MEMORY * f.constants
    }

    /// What the predicted cycles are made of.
    pub fn terms(&self, f: &Features) -> Terms {
        let moved = f.lines.iter().zip(self.line).map(|(n, cycles)| n * cycles);
        let pages = self.page * f.pages + self.page_visit * f.page_visits;
        let data = moved.sum::<f64>() + pages + self.crowded * f.crowded;
        let forks = self.fork * f.forks;
        let Some(m) = &f.machine else {
            return Terms {
                data,
                forks,
                ..Terms::default()
            };
        };
        Terms {
            pipeline: self.repeated * m.repeated + self.alone * m.alone,
            loads: self.load * m.loads,
            spills: self.spill * m.spills,
            data,
            forks,
        }
    }
}

/// Parts of a cost, in cycles of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Terms {
    /// Of the instructions by the scheduling model.
    pub pipeline: f64,
    pub loads: f64,
    pub spills: f64,
    /// Of lines that caches bring, the crowded ones among them, and of pages.
    pub data: f64,
    /// Of waking threads and waiting for them.
    pub forks: f64,
}

/// Of kernels that run one after the other.
impl std::iter::Sum for Terms {
    fn sum<I: Iterator<Item = Terms>>(all: I) -> Terms {
        all.fold(Terms::default(), |a, b| Terms {
            pipeline: a.pipeline + b.pipeline,
            loads: a.loads + b.loads,
            spills: a.spills + b.spills,
            data: a.data + b.data,
            forks: a.forks + b.forks,
        })
    }
}

impl Terms {
    fn sum(&self) -> f64 {
        self.pipeline + self.loads + self.spills + self.data + self.forks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::MachineFeatures;

    #[test]
    fn scores_of_other_rates_are_of_another_kind() {
        let other = Score {
            page: 6.0,
            ..Score::USUAL
        };
        assert_eq!(Score::USUAL.kind("znver3"), "cycles znver3");
        let kind = other.kind("znver3");
        assert!(kind.starts_with("cycles znver3 rates "), "{kind}");
        let third = Score { load: 6.0, ..other };
        assert_ne!(third.kind("znver3"), kind);
        assert_eq!(other.kind("znver3"), kind);
    }

    #[test]
    fn each_count_costs_its_rate() {
        let rates = Score {
            repeated: 1.0,
            alone: 0.1,
            load: 2.0,
            spill: 3.0,
            line: [4.0, 5.0, 6.0],
            page: 7.0,
            page_visit: 8.0,
            crowded: 9.0,
            fork: 100.0,
        };
        let machine = MachineFeatures {
            repeated: 10.0,
            alone: 20.0,
            loads: 2.0,
            spills: 3.0,
            ..MachineFeatures::default()
        };
        let f = Features {
            lines: [1.0, 2.0, 3.0],
            pages: 2.0,
            constants: 30.0,
            forks: 1.0,
            page_visits: 4.0,
            crowded: 5.0,
            machine: Some(machine),
        };
        let terms = rates.terms(&f);
        assert_eq!(
            (terms.pipeline, terms.loads, terms.spills),
            (12.0, 4.0, 9.0)
        );
        assert_eq!((terms.data, terms.forks), (46.0 + 32.0 + 45.0, 100.0));
        assert_eq!(rates.cycles(&f), 248.0);
        // Both count.
        assert_eq!(rates.cycles_from_memory(&f), 248.0 + 30.0 * Score::MEMORY);
        let loops = Features { machine: None, ..f };
        assert_eq!(rates.cycles(&loops), 223.0);
    }
}
