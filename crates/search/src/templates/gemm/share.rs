//! How threads share a product: which parts they get, and in what order each goes through its own.

use super::shape::Shape;
use super::tile::Tiles;
use crate::rates::{STARTS_A_CYCLE, bytes_a_cycle};
use ir::CpuTarget;

/// A split of the work between threads that is no worse counts as balanced. Chosen by hand;
/// not measured apart.
const BALANCED: f64 = 0.93;

/// The part of its second-level cache that a thread has for data which it reads again. Chosen by hand; not measured
/// apart.
const KEPT: f64 = 0.5;

/// The part of the time of bringing operands that computing does not hide. Chosen by hand; not measured apart.
const NOT_HIDDEN: f64 = 0.5;

/// Groups come first if another order takes longer than them by this factor: on a machine whose
/// last-level cache is fast, `op:dense(m=197,n=3072,k=768)` takes 6% longer in groups of 17 tiles on two threads (Zen 5),
/// though these bring less.
const WORTH_GROUPS: f64 = 1.06;

/// Cycles for a line of a result beyond the second-level cache where the next tile writes other rows, and no prefetcher
/// of the processor follows: `op:matmul(m=4096,k=64,n=4096)` takes 20.0 ms in panels and 11.8 in rows (a Xeon with AMX).
const LINE_APART: f64 = 28.0;

/// Panels come first for one thread if rows are not faster than them by this factor. Chosen by hand; not measured apart.
const WORTH_ROWS: f64 = 1.03;

/// Which tiles follow each other, and which are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All row tiles of a panel of columns; panels are shared out.
    Columns,
    /// All panels for a tile of rows; tiles of rows are shared out.
    Rows,
    /// Some row tiles of a panel, a group; groups of all panels are shared out.
    Tiles,
}

/// The orders worth trying, those first that take the least time by count.
pub fn orders(shape: &Shape, target: &CpuTarget, tiles: &Tiles) -> Vec<Order> {
    if shape.m() == 1 {
        return vec![Order::Columns, Order::Rows];
    }
    let shared = Shared {
        shape,
        target,
        tile: tiles.default,
    };
    let alone = target.threads <= 1;
    let cycles = |order: Order| match order {
        Order::Rows if alone => WORTH_ROWS * shared.cycles(order),
        Order::Tiles => WORTH_GROUPS * shared.cycles(order),
        Order::Columns | Order::Rows => shared.cycles(order),
    };
    let mut orders = vec![Order::Columns, Order::Rows];
    if !alone {
        orders.push(Order::Tiles);
    }
    orders.sort_by(|a, b| cycles(*a).total_cmp(&cycles(*b)));
    orders
}

/// Numbers of row tiles in a group that differ in how many groups they give, and the one that takes the
/// least time by count.
pub fn groups(shape: &Shape, target: &CpuTarget, tiles: &Tiles) -> (Vec<i64>, i64) {
    let shared = Shared {
        shape,
        target,
        tile: tiles.default,
    };
    let mut options: Vec<i64> = shared.groups().collect();
    let cycles = |group: &i64| shared.cycles_in_groups(*group);
    let best = options.iter().copied();
    // Of equals the largest: it reads a panel the fewest times.
    let best = best.min_by(|a, b| cycles(a).total_cmp(&cycles(b)).then(b.cmp(a)));
    options.sort_unstable();
    (options, best.unwrap_or(1))
}

/// A product that threads share in tiles of so many rows and columns.
struct Shared<'a> {
    shape: &'a Shape,
    target: &'a CpuTarget,
    tile: (i64, i64),
}

impl Shared<'_> {
    fn cycles(&self, order: Order) -> f64 {
        let (panels, tiles) = (self.panels(), self.row_tiles());
        let [panel, row_tile, left, right] = self.bytes();
        match order {
            Order::Columns => {
                let own = self.own(panels);
                let again = self.again(left, own);
                let computed = self.time(own as f64 * tiles as f64, own as f64 * panel + again);
                computed + self.written_apart(own as f64 * tiles as f64)
            }
            Order::Rows => {
                let own = self.own(tiles);
                let again = self.again(right, own);
                self.time(own as f64 * panels as f64, own as f64 * row_tile + again)
            }
            Order::Tiles => {
                let all = self.groups().map(|g| self.cycles_in_groups(g));
                all.fold(f64::INFINITY, f64::min)
            }
        }
    }

    /// Groups are outside panels: parts of a thread that follow each other read the same rows.
    fn cycles_in_groups(&self, group: i64) -> f64 {
        let [panel, row_tile, ..] = self.bytes();
        let groups = parts(self.row_tiles(), group);
        let own = self.own(groups * self.panels());
        let own_groups = parts(own, self.panels());
        let again = self.again(group as f64 * row_tile, own) * own_groups as f64;
        let tiles = own as f64 * group as f64;
        let computed = self.time(tiles, own as f64 * panel + again);
        computed
            + if group > 1 {
                self.written_apart(tiles)
            } else {
                0.0
            }
    }

    /// Cycles for the lines of so many tiles of a result, each of which is followed by the tile below it.
    fn written_apart(&self, tiles: f64) -> f64 {
        let (rows, columns) = self.tile;
        if self.panels() == 1 || self.shape.is_written_near(1, self.target) {
            return 0.0;
        }
        let line = self.target.cache_line_bytes.max(1) as i64 / self.shape.bytes();
        tiles * (rows * parts(columns, line)) as f64 * LINE_APART
    }

    /// Row tiles of a group: the fewest that give as many groups.
    fn groups(&self) -> impl Iterator<Item = i64> {
        let tiles = self.row_tiles();
        (1..=tiles).filter(move |g| *g == 1 || parts(tiles, *g) != parts(tiles, g - 1))
    }

    fn panels(&self) -> i64 {
        parts(self.shape.n(), self.tile.1)
    }

    fn row_tiles(&self) -> i64 {
        parts(self.shape.m(), self.tile.0)
    }

    /// Bytes of a panel, of a tile of rows of the left operand, and of both operands.
    fn bytes(&self) -> [f64; 4] {
        let s = self.shape;
        let of = |rows: i64| (rows * s.k()) as f64 * s.bytes() as f64;
        [of(self.tile.1), of(self.tile.0), of(s.m()), of(s.n())]
    }

    /// How many of so many parts of a matrix the thread with the most has, of all matrices.
    fn own(&self, of_matrix: i64) -> i64 {
        parts(
            self.shape.matrices() * of_matrix,
            i64::from(self.target.threads),
        )
    }

    /// Bytes of an operand that is read so many times.
    fn again(&self, bytes: f64, times: i64) -> f64 {
        let kept = bytes <= KEPT * self.target.l2_bytes as f64;
        bytes * if kept { 1.0 } else { times as f64 }
    }

    /// Cycles of the thread with the most work: it computes, and brings operands into its second-level cache.
    fn time(&self, tiles: f64, brought: f64) -> f64 {
        let (rows, columns) = self.tile;
        let lanes = self.shape.lanes(self.target);
        let vectors = (columns / lanes * rows * self.shape.k()) as f64;
        let all = (self.shape.matrices() * self.panels() * self.row_tiles()) as f64;
        let balanced = all / f64::from(self.target.threads) / BALANCED;
        let computed = tiles.max(balanced) * vectors / STARTS_A_CYCLE as f64;
        let [.., right] = self.bytes();
        let beyond = right.max(self.target.l2_bytes as f64 + 1.0);
        computed + NOT_HIDDEN * brought / bytes_a_cycle(beyond, 1.0, self.target)
    }
}

/// How many parts of so many there are, the last one cut.
fn parts(all: i64, of: i64) -> i64 {
    (all + of - 1) / of
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nests::AxisLoop;
    use ir::names::{AxisName, product};
    use ir::{BufferId, DType, Isa, LoopId};

    /// The first order of a product of so many rows, columns and terms, and the row tiles of its groups.
    fn first(m: i64, n: i64, k: i64, threads: u32) -> (Order, i64) {
        let along = |axis: AxisName, extent| AxisLoop {
            id: LoopId(0),
            axis: axis.into(),
            extent,
        };
        let shape = Shape {
            batch: vec![],
            rows: Some(along(product::ROW, m)),
            columns: along(product::COLUMN, n),
            terms: along(product::TERM, k),
            right: BufferId(0),
            element: DType::F32,
            packing: None,
        };
        let target = CpuTarget {
            threads,
            l2_bytes: 1 << 20,
            llc_bytes: 32 << 20,
            ..CpuTarget::generic(Isa::X86Avx512)
        };
        let tiles = Tiles::of(&shape, &target, true);
        let (_, group) = groups(&shape, &target, &tiles);
        (orders(&shape, &target, &tiles)[0], group)
    }

    /// 12 panels of 33 row tiles: alone, neither occupies 16 threads.
    #[test]
    fn many_threads_share_groups_of_a_product_with_few_panels() {
        let (order, group) = first(197, 768, 3072, 16);
        assert_eq!(order, Order::Tiles);
        // A group is large enough that a panel serves several tiles, and small enough that no thread idles.
        assert!((5..=11).contains(&group), "{group}");
    }

    #[test]
    fn threads_share_whole_panels_where_there_are_enough() {
        assert_eq!(first(64, 50257, 768, 16).0, Order::Columns);
        assert_eq!(first(197, 3072, 768, 2).0, Order::Columns);
    }

    /// The result is beyond the second-level cache of 1 MiB: 4 MiB, and 256 KiB of the second product.
    #[test]
    fn a_result_from_memory_is_written_row_by_row() {
        assert_eq!(first(1024, 1024, 64, 1).0, Order::Rows);
        assert_eq!(first(256, 256, 64, 1).0, Order::Columns);
        assert_eq!(first(4096, 4096, 64, 2).0, Order::Rows);
    }

    /// A right operand that stays in the second-level cache is read once, and each row as well.
    #[test]
    fn threads_share_rows_of_a_tall_product() {
        assert_eq!(first(3136, 256, 64, 2).0, Order::Rows);
    }
}
