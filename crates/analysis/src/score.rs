//! A cost of what was read: a roofline of the core and of the memory.
//!
//! No coefficient is fitted. A core computes while caches bring the next data, so the longer
//! of both counts whole, and of the shorter one a share that does not overlap.

use crate::features::Features;
use ir::CpuTarget;

/// Rates of a machine, in cycles of a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Cycles to bring a line into the first-level cache, the second-level one and the last-level
    /// one, from the level behind each.
    pub line: [f64; 3],
    /// Cycles to wake threads and to wait for them.
    pub fork: f64,
    /// The share of the shorter one of computing and of bringing data that the longer one does
    /// not hide.
    pub exposed: f64,
}

/// Bytes that a cycle brings from the second-level cache, the last-level one and memory: orders
/// of magnitude, chosen by hand.
const BYTES_A_CYCLE: [f64; 3] = [32.0, 16.0, 6.0];

impl Score {
    /// Rates of a server core.
    pub fn usual(target: &CpuTarget) -> Score {
        let line = target.cache_line_bytes as f64;
        Score {
            line: BYTES_A_CYCLE.map(|bytes| line / bytes),
            fork: 5000.0,
            exposed: 0.5,
        }
    }

    /// Predicted cycles of one call. Costs of candidates whose machine code was read compare, and
    /// those of candidates whose loops alone were read.
    pub fn cycles(&self, f: &Features) -> f64 {
        let core = f.machine.as_ref().map_or(0.0, |m| m.repeated);
        let moved = f.lines.iter().zip(self.line).map(|(n, cycles)| n * cycles);
        let data: f64 = moved.sum();
        core.max(data) + self.exposed * core.min(data) + f.forks * self.fork
    }
}
