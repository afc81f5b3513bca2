//! What scores are made of: the cycles of which processor, and the rates of counts.
//!
//! Promises that evaluators, filters and choosers score alike.

use crate::error::{Error, Result};
use crate::options::Options;
use analysis::{Features, Score};
use ir::Target;

/// Scores what builders read.
#[derive(Clone, Debug)]
pub struct Scorer {
    /// The processor whose cycles count, by LLVM's name.
    pub cpu: String,
    /// What each count costs.
    pub rates: Score,
}

impl Scorer {
    /// As the options say; by default the cycles are those of the target's usual processor.
    pub fn of(options: &Options, target: &Target) -> Scorer {
        let asked = options.score_cpu.clone();
        Scorer {
            cpu: asked.unwrap_or_else(|| llvm::scoring_cpu(target)),
            rates: options.rates,
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
        let kind = self.rates.kind(&self.cpu);
        match from_memory {
            true => format!("{kind} from memory"),
            false => kind,
        }
    }

    /// Predicted cycles of one call, lower is better.
    pub fn score(&self, features: &Features, from_memory: bool) -> f64 {
        match from_memory {
            true => self.rates.cycles_from_memory(features),
            false => self.rates.cycles(features),
        }
    }
}
