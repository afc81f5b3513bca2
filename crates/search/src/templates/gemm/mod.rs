//! Matrix products: a register tile of rows and vectors of columns, the right
//! operand packed into panels of one tile's width.
//!
//! Columns that are no multiple of a tile are padded: the packed operand holds
//! zeros there, and only what leaves the registers is masked. Rows that are no
//! multiple are cut off into a loop of their own. One column is left to `dots`, few
//! rows with a right operand from memory to `stream` too.

mod dots;
mod shape;
mod stream;
mod tile;

use super::{epilogue, main_sum, others};
use crate::draft::{Draft, Nest};
use crate::space::Sketch;
use ir::{CpuTarget, DType, Program};
use shape::Packing;
pub use shape::Shape;
use tile::Tiles;

/// Most multiply-adds in one unrolled body.
const MAX_UNROLLED: i64 = 128;
/// Elements of k in one unrolled body by default.
const UNROLLED: i64 = 2;
/// A split of the work between threads that is no worse counts as balanced.
const BALANCED: f64 = 0.93;
/// Tiles of rows that must use a panel before packing it in every call pays.
const REUSED: i64 = 24;
/// Iterations of the innermost loop to fetch ahead.
const DISTANCES: [i64; 3] = [0, 8, 32];

/// Which tiles follow each other, and which are shared out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// All row tiles of a panel of columns; panels are shared out.
    Columns,
    /// All panels for a tile of rows; tiles of rows are shared out.
    Rows,
    /// As `Columns`, but single tiles are shared out.
    Tiles,
}

/// Sketches for a program whose `main` is [.., m, n] = sum over k of a product; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget) -> Vec<Sketch> {
    let Some(main) = main_sum(all) else {
        return vec![];
    };
    let Some(shape) = Shape::of(program, main) else {
        return vec![];
    };
    let out = epilogue(all, main);
    let scheme = |packing: Option<Packing>, order| Scheme {
        main,
        out,
        target,
        shape: &shape,
        packing,
        order,
        tiles: Tiles::of(&shape, target, packing.is_some(), order == Order::Tiles),
    };
    let finished = |scheme: &Scheme, name, write: &dyn Fn(&mut Draft)| {
        let mut d = Draft::default();
        write(&mut d);
        let mut handled = vec!["main"];
        handled.extend(scheme.out.map(|_| "out"));
        others(&mut d, all, &handled, target);
        d.finish(name)
    };
    if shape.n == 1 {
        let (block, lanes) = (program.block(main.id), target.lanes(DType::F32));
        let contiguous = dots::has_contiguous_rows(program, block, shape.k, lanes);
        let rows = shape.rows.as_ref().filter(|_| contiguous);
        let scheme = scheme(None, Order::Rows);
        let dots = |m: &str| finished(&scheme, "gemm.dots", &|d| scheme.write_dots(d, m));
        return rows.map(|(m, _)| dots(m)).into_iter().collect();
    }
    let mut found = Vec::new();
    let streamed = stream::streams(&shape, target).map(|streams| {
        let mut d = Draft::default();
        scheme(None, Order::Rows).write_streams(&mut d, &streams);
        others(&mut d, all, &["main"], target);
        d.finish("gemm.stream")
    });
    for packing in packings(&shape, target) {
        for order in orders(&shape, target, |o| scheme(packing, o).tiles) {
            let scheme = scheme(packing, order);
            found.push(finished(&scheme, scheme.name(), &|d| scheme.write(d)));
        }
    }
    let first = stream::from_memory(&shape, target);
    let at = if first { 0 } else { found.len() };
    found.splice(at..at, streamed);
    found
}

/// Ways to lay the right operand out, the best first.
fn packings(shape: &Shape, target: &CpuTarget) -> Vec<Option<Packing>> {
    let Some(p) = shape.packing else {
        return vec![None];
    };
    let rows = Tiles::of(shape, target, false, false).default.0;
    if p.each_call && !p.transposed && shape.m() <= REUSED * rows {
        vec![None, Some(p)]
    } else {
        vec![Some(p), None]
    }
}

/// The orders of tiles worth trying, the best balanced first.
fn orders(shape: &Shape, target: &CpuTarget, tiles: impl Fn(Order) -> Tiles) -> Vec<Order> {
    let mut orders = vec![Order::Columns, Order::Rows];
    if target.threads <= 1 {
        return orders;
    }
    if shape.m() > 1 {
        orders.push(Order::Tiles);
    }
    let missing = |o: &Order| {
        let (t, c) = tiles(*o).default;
        let batch: i64 = shape.batch.iter().map(|b| b.1).product();
        let (rows, panels) = (shape.m() / t, (shape.n + c - 1) / c);
        let chunks = match o {
            Order::Columns => batch * panels,
            Order::Rows => batch * rows.max(1),
            Order::Tiles => batch * panels * rows,
        };
        let threads = i64::from(target.threads);
        let rounds = (chunks + threads - 1) / threads * threads;
        let balance = chunks as f64 / rounds as f64;
        // What is balanced is equally good; the rest in tenths.
        ((BALANCED - balance).max(0.0) * 10.0).ceil() as i64
    };
    orders.sort_by_key(missing);
    orders
}

struct Scheme<'a> {
    main: &'a Nest,
    out: Option<&'a Nest>,
    target: &'a CpuTarget,
    shape: &'a Shape,
    packing: Option<Packing>,
    order: Order,
    tiles: Tiles,
}

/// Loops of the register tile.
struct Tile {
    /// Loops over tiles of rows and over the rows of one, if there are any.
    rows: Option<(String, String)>,
    /// Loops over panels, over the vectors of one, and over their lanes.
    columns: [String; 3],
}

impl Scheme<'_> {
    fn name(&self) -> &'static str {
        match (self.packing.is_some(), self.order) {
            (true, Order::Columns) => "gemm.packed.columns",
            (true, Order::Rows) => "gemm.packed.rows",
            (true, Order::Tiles) => "gemm.packed.tiles",
            (false, Order::Columns) => "gemm.columns",
            (false, Order::Rows) => "gemm.rows",
            (false, Order::Tiles) => "gemm.tiles",
        }
    }

    fn write(&self, d: &mut Draft) {
        let (s, target) = (self.shape, self.target);
        let (rows, columns, unroll, ahead) = self.decide(d);
        let result = self.keep_in_registers(d);
        d.line(format!("pad {} ${columns}", s.n_loop));
        if let Some(p) = self.packing {
            let layout = p.arguments(&format!("${columns}"));
            d.line(format!("pack {} {layout}", s.right));
        }
        let tile = self.split(d, rows, columns);
        d.line(format!("split {} [_, ${unroll}]", s.k_loop));
        let (k0, k1) = (format!("{}.0", s.k_loop), format!("{}.1", s.k_loop));
        let [n0, n1, n2] = &tile.columns;
        let mut outer: Vec<String> = s.batch.iter().map(|b| b.0.clone()).collect();
        match &tile.rows {
            Some((m0, _)) if self.order == Order::Rows => outer.extend([m0.clone(), n0.clone()]),
            Some((m0, _)) => outer.extend([n0.clone(), m0.clone()]),
            None => outer.push(n0.clone()),
        }
        let mut order = outer.clone();
        order.extend([k0.clone(), k1.clone()]);
        order.extend(tile.rows.iter().map(|(_, m1)| m1.clone()));
        order.extend([n1.clone(), n2.clone()]);
        d.line(format!("reorder {}", order.join(" ")));
        let inside = usize::from(tile.rows.is_some() && self.order != Order::Tiles);
        let shared = &outer[..outer.len() - inside];
        let fused = d.parallel(shared, target.threads);
        let panel = fused.unwrap_or_else(|| shared[shared.len() - 1].clone());
        let place = if inside == 1 || target.threads <= 1 {
            outer[outer.len() - 1].clone()
        } else {
            panel.clone()
        };
        self.leave_registers(d, result, &place, tile.rows.is_some());
        d.line(format!("vectorize {n2}"));
        d.line(format!("unroll {n1}"));
        d.line(format!("unroll {k1}"));
        if let Some((_, m1)) = &tile.rows {
            d.line(format!("unroll {m1}"));
        }
        d.line(format!("decompose_reduction main {k0}"));
        if let Some(distance) = ahead {
            let suffix = self.packing.map_or("", |_| ".pack");
            // A distance of 0 is no prefetch, which the step refuses.
            d.line(format!("try prefetch {}{suffix} {k0} ${distance}", s.right));
        }
        self.pack_each_call(d, &panel);
        d.run_parallel();
        if let (Some((m0, _)), true) = (&tile.rows, self.order != Order::Tiles) {
            d.line(format!("try partition {m0}"));
        }
    }

    /// Sums are registers; the block that takes them from there.
    fn keep_in_registers(&self, d: &mut Draft) -> &'static str {
        if self.out.is_some() {
            d.line("set_scope main register");
            "out"
        } else {
            d.line("cache_write main 0 register");
            "main.out"
        }
    }

    /// Decisions for rows and columns of a tile, for unrolling, and for how far
    /// ahead the right operand is fetched, if it comes from memory.
    fn decide(&self, d: &mut Draft) -> (Option<usize>, usize, usize, Option<usize>) {
        let (s, t) = (self.shape, &self.tiles);
        let columns = d.choose("columns", &t.columns, t.default.1);
        let rows = s
            .rows
            .as_ref()
            .map(|_| d.choose("rows", &t.rows, t.default.0));
        let divisors: Vec<i64> = (1..=8).filter(|u| s.k % u == 0).collect();
        let unroll = d.choose("unroll_k", &divisors, UNROLLED);
        let bytes = s.k * s.n * DType::F32.size() as i64;
        let copied = self.packing.is_some_and(|p| p.each_call);
        let far = bytes > self.target.l2_bytes as i64 && !copied;
        let ahead = far.then(|| d.choose("prefetch", &DISTANCES, 0));
        if let Some(rows) = rows {
            let budget = (t.registers - 1) * t.lanes;
            let used: [(i64, &[(usize, usize)]); 2] =
                [(1, &[(rows, 0), (columns, 0)]), (1, &[(columns, 0)])];
            d.limit("registers", &used, budget);
        }
        let body: Vec<(usize, usize)> = rows
            .into_iter()
            .chain([columns, unroll])
            .map(|decision| (decision, 0))
            .collect();
        d.limit("unrolled code", &[(1, &body)], MAX_UNROLLED * t.lanes);
        (rows, columns, unroll, ahead)
    }

    /// Splits columns into panels of vectors, and rows into tiles that need not
    /// divide: a predicate cuts the last one.
    fn split(&self, d: &mut Draft, rows: Option<usize>, columns: usize) -> Tile {
        let (s, n) = (self.shape, &self.shape.n_loop);
        d.line(format!("split {n} [_, ${columns}]"));
        d.line(format!("split {n}.1 [_, {}]", self.tiles.lanes));
        let rows = s.rows.as_ref().zip(rows).map(|((m, _), decision)| {
            d.line(format!("split {m} [_, ${decision}]"));
            (format!("{m}.0"), format!("{m}.1"))
        });
        Tile {
            rows,
            columns: [format!("{n}.0"), format!("{n}.1.0"), format!("{n}.1.1")],
        }
    }

    /// Packing as part of a call: a panel where it is used, if it is used once.
    fn pack_each_call(&self, d: &mut Draft, panel: &str) {
        let Some(p) = self.packing.filter(|p| p.each_call) else {
            return;
        };
        let copy = format!("{}.pack", self.shape.right);
        let inner = format!("{copy}.ax{}", p.dims);
        if self.order == Order::Columns && self.shape.rows.is_some() {
            d.line(format!("compute_at {copy} {panel}"));
            d.line(format!("set_scope {copy} local"));
        } else if self.target.threads > 1 {
            d.line(format!("try parallel {copy}.ax0"));
        }
        d.line(format!("split {inner} [_, {}]", self.tiles.lanes));
        if p.transposed {
            // A vector's columns lie apart: cache lines of no more than these
            // are in use while the terms go by.
            let terms = format!("{copy}.ax{}", p.dims - 1);
            d.line(format!("try reorder {inner}.0 {terms} {inner}.1"));
        }
        d.line(format!("try vectorize {inner}.1"));
    }

    /// The block that writes the accumulators out under `place`.
    fn leave_registers(&self, d: &mut Draft, result: &str, place: &str, has_rows: bool) {
        let from = self.out.unwrap_or(self.main);
        d.line(format!("reverse_compute_at {result} {place}"));
        let axis = |i: usize| {
            let l = &from.spatial[i].0;
            format!("{result}.{}", l.rsplit('.').next().unwrap_or(l))
        };
        let last = from.spatial.len() - 1;
        d.line(format!("split {} [_, {}]", axis(last), self.tiles.lanes));
        d.line(format!("vectorize {}.1", axis(last)));
        d.line(format!("unroll {}.0", axis(last)));
        if has_rows {
            d.line(format!("unroll {}", axis(last - 1)));
        }
    }
}
