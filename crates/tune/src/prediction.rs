//! The prediction that whatever ranks candidates by reading ranks them by.
//!
//! Where trees know the time of a candidate over the default's ([`crate::time_ratio`]), it is that ratio. Elsewhere it is a score. Which one
//! holds is a property of the scorer and the target, so all candidates of a task have the same.

use crate::scorer::Scorer;
use crate::time_ratio::{knows, time_ratio};
use analysis::Score;
use build::Read;
use ir::{Program, Target};
use search::{Candidate, Point, Space};
use std::sync::Arc;

/// The default of a task as it was read: what its other candidates are compared with.
#[derive(Clone, Debug)]
pub struct DefaultRead {
    pub sketch: usize,
    pub read: Arc<Read>,
    /// Whether kernels find their constants in memory.
    pub from_memory: bool,
}

impl DefaultRead {
    /// The predicted time of a candidate over the default's. None if no machine code was read of one of them.
    pub fn time_ratio(&self, point: &Point, read: &Read) -> Option<f64> {
        time_ratio(
            &read.features,
            &self.read.features,
            self.from_memory,
            point.sketch == self.sketch,
        )
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
