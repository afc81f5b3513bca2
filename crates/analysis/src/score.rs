//! A cost of what was read: a roofline of the core and of the memory.
//!
//! A core computes while caches bring the next data, so the longer
//! of both counts whole, and of the shorter one a share that does not overlap.

use crate::features::Features;
use serde::Serialize;

/// Rates of a machine, in cycles of a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Cycles to bring a line into the first-level cache, the second-level one and the last-level
    /// one, from the level behind each.
    pub line: [f64; 3],
    /// The share of a block's cycles alone in its cost; the rest is its cycles among many runs.
    pub alone: f64,
    /// Cycles of an instruction in a loop that spills a register or loads it again, beside those of the pipeline:
    /// what is loaded waits for what was stored.
    pub stack: f64,
    /// Cycles to wake threads and to wait for them.
    pub fork: f64,
    /// The share of the shorter one of computing and of bringing data that the longer one does
    /// not hide.
    pub exposed: f64,
}

impl Score {
    /// Rates of a server core. Those but `fork` were chosen among 48 combinations by the ratio of the
    /// best ten on 30 operators (ADR 0034); `fork` is an order of magnitude.
    pub const USUAL: Score = Score {
        line: [2.0, 1.0, 1.0],
        alone: 0.05,
        stack: 1.0,
        fork: 5000.0,
        exposed: 0.5,
    };

    /// Predicted cycles of one call. Costs of candidates whose machine code was read compare, and
    /// those of candidates whose loops alone were read.
    pub fn cycles(&self, f: &Features) -> f64 {
        self.terms(f).sum(self.exposed)
    }

    /// What the predicted cycles are made of.
    pub fn terms(&self, f: &Features) -> Terms {
        let moved = f.lines.iter().zip(self.line).map(|(n, cycles)| n * cycles);
        let machine = f.machine.as_ref();
        Terms {
            pipeline: machine.map_or(0.0, |m| m.repeated + self.alone * (m.alone - m.repeated)),
            stack: machine.map_or(0.0, |m| self.stack * m.spills),
            data: moved.sum(),
            forks: f.forks * self.fork,
        }
    }
}

/// Parts of a cost, in cycles of a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Terms {
    /// Of the instructions by the scheduling model.
    pub pipeline: f64,
    /// That results wait in the stack.
    pub stack: f64,
    /// Of lines that caches bring.
    pub data: f64,
    /// Of waking threads and waiting for them.
    pub forks: f64,
}

impl Terms {
    fn sum(&self, exposed: f64) -> f64 {
        let core = self.pipeline + self.stack;
        core.max(self.data) + exposed * core.min(self.data) + self.forks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::MachineFeatures;

    fn features(repeated: f64, lines: f64) -> Features {
        Features {
            lines: [lines, 0.0, 0.0],
            machine: Some(MachineFeatures {
                alone: repeated,
                repeated,
                ..MachineFeatures::default()
            }),
            ..Features::default()
        }
    }

    #[test]
    fn the_longer_of_computing_and_moving_counts_whole() {
        let cost = |repeated, lines| Score::USUAL.cycles(&features(repeated, lines));
        assert_eq!(cost(100.0, 0.0), 100.0);
        assert_eq!(cost(100.0, 10.0), 100.0 + 0.5 * 20.0);
        assert_eq!(cost(100.0, 200.0), 400.0 + 0.5 * 100.0);
    }

    #[test]
    fn spills_and_waking_threads_cost() {
        let mut f = features(100.0, 0.0);
        let machine = f.machine.as_mut().unwrap();
        machine.spills = 7.0;
        f.forks = 2.0;
        assert_eq!(Score::USUAL.cycles(&f), 107.0 + 2.0 * Score::USUAL.fork);
    }

    #[test]
    fn loops_alone_have_a_cost() {
        let f = Features {
            machine: None,
            ..features(0.0, 10.0)
        };
        assert_eq!(Score::USUAL.cycles(&f), 20.0);
    }
}
