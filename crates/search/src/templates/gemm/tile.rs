//! The register tile of a matrix product: what fits, and what to begin with.

use super::shape::Shape;
use crate::rates::{LATENCY, STARTS_A_CYCLE, STREAMED, bytes_a_cycle, lines_together};
use crate::templates::is_even;
use crate::templates::registers::{Registers, products_a_load, spills};
use ir::CpuTarget;

/// Vectors of columns in a tile of several rows, and in one of a single row. Chosen by hand; not measured apart.
const MOST_VECTORS: [i64; 2] = [6, 16];
/// Bytes in whose time a short run of another row begins. Chosen by hand; not measured apart.
const RUN_BYTES: i64 = 128;
/// Factor of the time of a tile that masks cut at the end of rows in memory: it makes
/// widths that divide the columns come first. Chosen by hand; not measured apart.
const MASKED: f64 = 1.5;
/// Factor of the time of rows that fill their sets to the last ways. Chosen by hand; not measured apart.
const CROWDED: f64 = 1.03;
/// Part of its multiply-adds' time that a load costs beside them: it tells apart tiles that
/// take equally many cycles by count. Chosen by hand; not measured apart.
const LOAD: f64 = 0.1;

/// The tiles of a product on a target.
pub struct Tiles {
    pub lanes: i64,
    pub registers: Registers,
    /// Widths in columns, multiples of the lanes.
    pub columns: Vec<i64>,
    pub rows: Vec<i64>,
    /// Whether columns of a panel follow each other in memory.
    packed: bool,
    /// Rows and columns to begin with.
    pub default: (i64, i64),
}

impl Tiles {
    pub fn of(shape: &Shape, target: &CpuTarget, packed: bool) -> Tiles {
        let lanes = shape.lanes(target);
        let registers = Registers::of(target);
        let m = shape.m();
        let vectors = (shape.n() + lanes - 1) / lanes;
        let sensible = |t: &i64| m % t == 0 || m > 4 * t || *t == m;
        let rows: Vec<i64> = (1..=registers.most_rows().min(m))
            .filter(sensible)
            .collect();
        let most = MOST_VECTORS[usize::from(m == 1)].min(i64::from(target.vector_registers) / 2);
        let columns: Vec<i64> = (1..=most.min(vectors)).map(|v| v * lanes).collect();
        let mut tiles = Tiles {
            lanes,
            registers,
            columns,
            rows,
            packed,
            default: (1, lanes),
        };
        tiles.default = tiles.best(shape, target);
        tiles
    }

    /// The tile that takes the fewest cycles by count; of equals the one with
    /// the most multiply-adds a load.
    fn best(&self, shape: &Shape, target: &CpuTarget) -> (i64, i64) {
        // Rows of the left operand that the first-level cache holds together.
        let most_rows = lines_together(shape.k() * shape.bytes(), target);
        let mut best = self.default;
        let mut least = f64::INFINITY;
        for c in &self.columns {
            for t in self.rows.iter().filter(|t| **t <= most_rows || **t == 1) {
                // One register to spare: the scheduler loads ahead.
                let v = c / self.lanes;
                if !Registers::without(target, 2).fit(*t, v) || spills(*t, v) {
                    continue;
                }
                let loads = 1.0 + LOAD / products_a_load(*t, v);
                let crowded = if t + 2 > most_rows { CROWDED } else { 1.0 };
                let whole = self.packed || shape.n() % c == 0;
                let masked = if whole { 1.0 } else { MASKED };
                let cost = self.cycles(shape, target, *t, *c) * loads * crowded * masked;
                if cost < least {
                    (best, least) = ((*t, *c), cost);
                }
            }
        }
        best
    }

    /// Cycles for one element of k: of all tiles, the last ones with fewer rows.
    /// The first tile of a panel brings it from where the operand lies.
    fn cycles(&self, shape: &Shape, target: &CpuTarget, rows: i64, columns: i64) -> f64 {
        let v = columns / self.lanes;
        let element = shape.bytes();
        let one = |t: i64, bytes_a_cycle: f64| {
            let started = (t * v).max(t + v) as f64 / STARTS_A_CYCLE as f64;
            let computed = started.max(LATENCY as f64);
            let run = if self.packed { 0 } else { RUN_BYTES };
            computed.max((columns * element + run) as f64 / bytes_a_cycle)
        };
        let bytes = |columns: i64| (shape.k() * columns * element) as f64;
        let origin = match self.packed && shape.is_streamed(target) {
            true => STREAMED,
            false => bytes_a_cycle(bytes(shape.n()), 1.0, target),
        };
        // Half a cache is left to the other operand and to the result.
        let again = bytes_a_cycle(bytes(columns), 0.5, target).max(origin);
        let (m, panels) = (shape.m(), (shape.n() + columns - 1) / columns);
        let tail = if m % rows > 0 {
            one(m % rows, again)
        } else {
            0.0
        };
        let whole = one(rows, origin) + (m / rows - 1) as f64 * one(rows, again);
        let parts = shape.matrices() * panels * ((m + rows - 1) / rows);
        panels as f64 * (whole + tail) * idle(parts, target)
    }
}

/// The factor by which the thread with the most parts has more than its share, if threads wait for it for long.
fn idle(parts: i64, target: &CpuTarget) -> f64 {
    let threads = i64::from(target.threads.max(1));
    let most = (parts + threads - 1) / threads;
    match is_even(parts, target.threads.max(1)) {
        true => 1.0,
        false => (most * threads) as f64 / parts as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nests::AxisLoop;
    use ir::names::{AxisName, product};
    use ir::{BufferId, DType, Isa, LoopId};

    fn shape(m: i64, n: i64, k: i64) -> Shape {
        let along = |axis: AxisName, extent| AxisLoop {
            id: LoopId(0),
            axis: axis.into(),
            extent,
        };
        Shape {
            batch: vec![],
            rows: (m > 1).then(|| along(product::ROW, m)),
            columns: along(product::COLUMN, n),
            terms: along(product::TERM, k),
            right: BufferId(0),
            element: DType::F32,
            packing: None,
        }
    }

    #[test]
    fn defaults_fit_the_registers_and_fill_them_where_there_is_work() {
        for target in Isa::ALL.map(CpuTarget::generic) {
            for (m, n, k) in [
                (1, 1000, 512),
                (2, 64, 64),
                (100, 100, 100),
                (997, 997, 997),
            ] {
                let tiles = Tiles::of(&shape(m, n, k), &target, true);
                let (t, c) = tiles.default;
                let fits = tiles.registers.fit(t, c / tiles.lanes);
                assert!(fits, "{m}x{n}x{k} on {:?}", target.isa);
                assert!(tiles.rows.contains(&t) && tiles.columns.contains(&c));
                let accumulators = t * c / tiles.lanes;
                assert!(
                    m < 8 || 2 * accumulators >= i64::from(target.vector_registers),
                    "{t}x{c}"
                );
            }
        }
    }

    /// 1000 columns are 8 panels of 128, which half of 16 threads would wait for.
    #[test]
    fn a_row_has_panels_for_all_threads() {
        let target = CpuTarget {
            threads: 16,
            ..CpuTarget::generic(Isa::X86Avx512)
        };
        let one = shape(1, 1000, 2048);
        let (_, columns) = Tiles::of(&one, &target, true).default;
        assert_eq!(columns, 64);
        // With as many matrices as threads, no thread waits.
        let many = Shape {
            batch: vec![AxisLoop {
                id: LoopId(1),
                axis: "b0".into(),
                extent: 16,
            }],
            ..one
        };
        let (_, columns) = Tiles::of(&many, &target, true).default;
        assert!(columns > 64, "{columns}");
    }

    #[test]
    fn a_panel_beyond_the_cache_is_read_by_few_tiles() {
        let target = CpuTarget::generic(Isa::X86Avx512);
        let (few, _) = Tiles::of(&shape(16, 4096, 4096), &target, true).default;
        assert_eq!(16 / few, 2);
    }
}
