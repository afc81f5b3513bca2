//! What scores are made of: the cycles of which processor and the rates of counts, or what a simulator
//! counts.
//!
//! Promises that evaluators, filters and choosers score alike.

use crate::error::{Error, Result};
use crate::options::Options;
use analysis::Score;
use build::{Read, ReadOptions};
use ir::{CpuTarget, Target};
use simulate::{CacheSetting, Geometry, LINE};

/// Scores what builders read.
#[derive(Clone, Debug)]
pub struct Scorer {
    /// The processor whose cycles count, by LLVM's name.
    pub cpu: String,
    /// What each count costs.
    pub rates: Score,
    /// The simulator whose counts are the score; none for predicted cycles.
    pub simulator: Option<Simulator>,
}

/// A simulated processor, and which of its counts is the score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulator {
    /// The name of the processor, for people and in the kind of scores.
    pub name: String,
    pub caches: CacheSetting,
    /// A name of [`simulate::Statistics::named`].
    pub statistic: String,
}

impl Simulator {
    /// The statistic that counts if none is asked for.
    pub const WEIGHTED: &str = "weighted";

    /// A processor with the caches of a target.
    pub fn of(target: &Target) -> Simulator {
        let Target::Cpu(cpu) = target;
        Simulator {
            name: "target".into(),
            caches: caches(cpu),
            statistic: Simulator::WEIGHTED.into(),
        }
    }
}

/// The caches of a target, with the ways of usual ones.
fn caches(cpu: &CpuTarget) -> CacheSetting {
    let [l1, l2, last] = analysis::WAYS;
    let level = |bytes: u64, ways: u64| Geometry {
        sets: (bytes / LINE / ways).max(1),
        ways,
    };
    CacheSetting {
        l1d: level(cpu.l1_bytes, l1),
        l1i: level(cpu.l1_bytes, l1),
        shared: vec![level(cpu.l2_bytes, l2), level(cpu.llc_bytes, last)],
        inclusive: false,
    }
}

impl Scorer {
    /// As the options say; by default the cycles are those of the target's usual processor.
    pub fn of(options: &Options, target: &Target) -> Scorer {
        let asked = options.score_cpu.clone();
        Scorer {
            cpu: asked.unwrap_or_else(|| llvm::scoring_cpu(target)),
            rates: options.rates,
            simulator: options.simulator.clone(),
        }
    }

    /// What builders have to read.
    pub fn asks(&self) -> ReadOptions {
        ReadOptions {
            cpu: self.cpu.clone(),
            caches: self.simulator.as_ref().map(|s| s.caches.clone()),
        }
    }

    /// # Errors
    /// If LLVM has no scheduling model of the processor.
    pub fn check(&self, target: &Target) -> Result<()> {
        llvm::check_scoring_cpu(target, &self.cpu).map_err(|why| {
            Error::new(why).help("name a processor that LLVM has a model of with --score-cpu")
        })
    }

    /// What says which scores compare. `from_memory` says whether kernels find their constants in memory.
    pub fn kind(&self, from_memory: bool) -> String {
        if let Some(s) = &self.simulator {
            return format!("simulated {} {}", s.name, s.statistic);
        }
        let kind = self.rates.kind(&self.cpu);
        match from_memory {
            true => format!("{kind} from memory"),
            false => kind,
        }
    }

    /// What one call costs, lower is better.
    ///
    /// # Errors
    /// Why the candidate has no score.
    pub fn score(&self, read: &Read, from_memory: bool) -> std::result::Result<f64, String> {
        let Some(simulator) = &self.simulator else {
            return Ok(match from_memory {
                true => self.rates.cycles_from_memory(&read.features),
                false => self.rates.cycles(&read.features),
            });
        };
        let statistics = read.statistics.as_ref().ok_or("nothing was simulated")?;
        let named = statistics.as_ref().map_err(String::clone)?.named();
        let value = named
            .into_iter()
            .find(|(name, _)| *name == simulator.statistic);
        let missing = || format!("the simulator counts no `{}`", simulator.statistic);
        value.map(|(_, value)| value).ok_or_else(missing)
    }
}
