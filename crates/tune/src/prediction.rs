//! The models of costs ([`CostModel`]) that whatever ranks candidates by reading asks.
//!
//! Where trees know the time of a candidate over the default's ([`crate::time_ratio`]), it is that ratio ([`DefaultRead`]). Elsewhere it is
//! a score ([`Scores`]). Which one holds is a property of the scorer and the target, so all candidates of a task have the same.

use crate::scorer::{Scorer, Seen};
use crate::time_ratio::{knows, time_ratio};
use analysis::Score;
use build::Read;
use ir::{Program, Target};
use search::{Asked, Candidate, CostModel, Point, Predicted, Space};
use std::sync::Arc;

/// The default of a task as it was read: what its other candidates are compared with.
#[derive(Clone, Debug)]
pub struct DefaultRead {
    pub sketch: usize,
    pub read: Arc<Read>,
    /// Whether kernels find their constants in memory.
    pub from_memory: bool,
}

/// Why a candidate has no prediction.
const NOT_READ: &str = "the builder read nothing";

impl CostModel<Read> for DefaultRead {
    /// The predicted times over the default's.
    fn predict(&self, asked: &[Asked<'_, Read>]) -> Vec<Predicted> {
        let one = |asked: &Asked<'_, Read>| {
            let ratio = time_ratio(
                &asked.read.ok_or(NOT_READ)?.features,
                &self.read.features,
                self.from_memory,
                asked.point.sketch == self.sketch,
            );
            Ok(ratio.ok_or("no machine code was read")?)
        };
        asked.iter().map(one).collect()
    }
}

/// The scores of one task's candidates.
#[derive(Clone, Copy, Debug)]
pub struct Scores<'a> {
    pub scorer: &'a Scorer,
    /// The name of the task's program.
    pub kind: &'a str,
    /// Whether kernels find their constants in memory.
    pub from_memory: bool,
    /// Candidates that predictors compare others with.
    pub seen: &'a Seen,
}

impl CostModel<Read> for Scores<'_> {
    fn predict(&self, asked: &[Asked<'_, Read>]) -> Vec<Predicted> {
        let one = |asked: &Asked<'_, Read>| {
            let read = asked.read.ok_or(NOT_READ)?;
            let score = self
                .scorer
                .score(read, self.kind, self.from_memory, self.seen);
            Ok(score?)
        };
        asked.iter().map(one).collect()
    }
}

/// Whether the trees predict what this scorer scores: they learned beside the usual rates, on some processors.
pub fn is_learned(scorer: &Scorer, target: &Target) -> bool {
    scorer.simulator.is_none() && scorer.rates == Score::USUAL && knows(target)
}

/// Where in a space the default of its task is: at the default values of the sketch of its name.
/// None if that sketch is not in the space.
pub fn point_of_default(space: &Space, program: &Program, default: &Candidate) -> Option<Point> {
    let named = |s: &search::Sketch| s.name == default.algorithm;
    let sketch = space.sketches.iter().position(named)?;
    let values = space.sketches[sketch].default.clone();
    let point = Point { sketch, values };
    let found = space.candidate(program, &point).ok()?;
    (found == *default).then_some(point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::Isa;

    #[test]
    fn other_rates_and_other_processors_are_not_learned() {
        let x86 = Target::generic(Isa::X86Avx2);
        let usual = Scorer {
            cpu: "znver4".into(),
            levels: None,
            rates: Score::USUAL,
            simulator: None,
        };
        assert!(is_learned(&usual, &x86));
        assert!(!is_learned(&usual, &Target::generic(Isa::AArch64Neon)));
        let rates = Score {
            load: 2.0 * Score::USUAL.load,
            ..Score::USUAL
        };
        assert!(!is_learned(&Scorer { rates, ..usual }, &x86));
    }
}
