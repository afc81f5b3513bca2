//! The register tile of a matrix product: what fits, and what to begin with.

use super::shape::Shape;
use ir::{DType, Target};

/// Vectors of columns in a tile.
const MOST_VECTORS: i64 = 6;
/// Multiply-adds in flight that hide the latency of one.
const LATENCY: i64 = 4;
/// Cycles in which a vector comes from the second-level cache.
const PANEL_CYCLES: i64 = 2;
/// Ways of a first-level cache.
const WAYS: i64 = 8;

/// The tiles of a product on a target.
pub struct Tiles {
    pub lanes: i64,
    pub registers: i64,
    /// Widths in columns, multiples of the lanes.
    pub columns: Vec<i64>,
    pub rows: Vec<i64>,
    /// Rows and columns to begin with.
    pub default: (i64, i64),
}

impl Tiles {
    /// With `whole` rows, tiles of rows divide them.
    pub fn of(shape: &Shape, target: &Target, whole: bool) -> Tiles {
        let lanes = target.lanes(DType::F32);
        let registers = i64::from(target.vector_registers);
        let m = shape.m();
        let vectors = (shape.n + lanes - 1) / lanes;
        let sensible = |t: &i64| m % t == 0 || (!whole && m > 4 * t) || (!whole && *t == m);
        let rows: Vec<i64> = (1..=(registers - 2).min(m)).filter(sensible).collect();
        let columns: Vec<i64> = (1..=MOST_VECTORS.min(vectors)).map(|v| v * lanes).collect();
        let mut tiles = Tiles {
            lanes,
            registers,
            columns,
            rows,
            default: (1, lanes),
        };
        tiles.default = tiles.best(shape, target);
        tiles
    }

    /// Whether accumulators, a row of vectors and one broadcast fit.
    pub fn fits(&self, rows: i64, columns: i64) -> bool {
        rows * columns + columns <= (self.registers - 1) * self.lanes
    }

    /// The tile that takes the fewest cycles by count; of equals the one with
    /// the most multiply-adds a load.
    fn best(&self, shape: &Shape, target: &Target) -> (i64, i64) {
        let most_rows = rows_without_conflicts(shape.k, target);
        let mut best = self.default;
        let mut least = f64::INFINITY;
        for c in &self.columns {
            for t in self.rows.iter().filter(|t| **t <= most_rows || **t == 1) {
                // One register to spare: the scheduler loads ahead.
                let v = c / self.lanes;
                if !self.fits(*t, *c) || t * v + v + 2 > self.registers {
                    continue;
                }
                let loads = 1.0 + 0.1 * (t + v) as f64 / (t * v) as f64;
                let cost = cycles(shape, *t, *c, self.lanes) as f64 * loads;
                if cost < least {
                    (best, least) = ((*t, *c), cost);
                }
            }
        }
        best
    }
}

/// Cycles for one element of k: of all tiles, the last ones with fewer rows.
fn cycles(shape: &Shape, rows: i64, columns: i64, lanes: i64) -> i64 {
    let v = columns / lanes;
    let one = |t: i64| (t * v).max(LATENCY).max(v * PANEL_CYCLES).max((t + v) / 2);
    let (m, panels) = (shape.m(), (shape.n + columns - 1) / columns);
    let tail = if m % rows > 0 { one(m % rows) } else { 0 };
    panels * (m / rows * one(rows) + tail)
}

/// Rows of the left operand that a first-level cache holds together, with a
/// panel streaming by: rows that are a multiple of its sets apart share a set.
fn rows_without_conflicts(k: i64, target: &Target) -> i64 {
    let line = target.cache_line_bytes.max(1) as i64;
    let span = (target.l1_bytes as i64 / WAYS).max(line);
    let apart = k * DType::F32.size() as i64;
    let (mut a, mut b) = (span, apart % span);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    let sets = span / a.max(line);
    (sets * WAYS - 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::Isa;

    #[test]
    fn rows_a_page_apart_fill_one_set() {
        let target = Target::generic(Isa::X86Avx512);
        assert_eq!(rows_without_conflicts(1024, &target), 6);
        assert_eq!(rows_without_conflicts(512, &target), 14);
        assert!(rows_without_conflicts(768 + 16, &target) > 32);
    }
}
