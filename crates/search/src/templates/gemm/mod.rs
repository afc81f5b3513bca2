//! Matrix products: a register tile of rows and vectors of columns, the right
//! operand packed into panels of one tile's width.
//!
//! Columns that are no multiple of a tile are padded: the packed operand holds
//! zeros there, and only what leaves the registers is masked. Rows that are no
//! multiple are cut off into a loop of their own. One column is left to `dots`, few
//! rows with a right operand from memory to `stream` too.

mod dots;
mod shape;
mod share;
mod stream;
mod tile;

use super::registers::limit_unrolled;
use super::{Templates, epilogue, main_sum, others};
use crate::draft::{Decided, Draft, REST, Written, given};
use crate::nests::{Nest, ids};
use ir::{BlockId, CpuTarget, LoopId, Program, Scope};
pub use shape::{Packing, Shape};
use share::{Order, groups, orders};
use tile::Tiles;

/// Most multiply-adds in one unrolled body; beyond, only compile time grows
/// (see `registers::MOST_UNROLLED`). The number is chosen by hand.
const MAX_UNROLLED: i64 = 128;
/// Elements of k in one unrolled body by default: products with 2 to 4 are 10 to 15% faster
/// than with 1 (Zen 3, LLVM 22.1.8).
const UNROLLED: i64 = 2;
/// Multiply-adds in the body of one row of whole vectors by default: `op:batch_matmul(b=8,m=1,
/// k=64,n=1024)`, a tile of eight vectors, takes 24 us with 16 and 21 us with 64. Of vectors that
/// masks cut, `op:batch_matmul(b=12,m=1,k=64,n=200)` takes 2.5 us with 26 and 4.6 us with 52
/// (Zen 5, LLVM 22.1.8).
const WANTED_UNROLLED: i64 = 64;
/// Tiles of rows that must use a panel before packing it in every call pays. Chosen by
/// hand; not measured apart.
const REUSED: i64 = 24;
/// Rows for which copying a right operand with cut rows costs more than its masks: copying
/// takes about as long as two rows do.
const FEW_ROWS: i64 = 3;
/// Iterations of the innermost loop to fetch ahead, and those by default of an operand that
/// comes from memory in every call: `op:dense(m=64,n=50257,k=768)` takes 22.2 ms with 0 and
/// 19.6 ms with 32 (Zen 5, LLVM 22.1.8).
const DISTANCES: [i64; 3] = [0, 8, 32];
const FROM_MEMORY: i64 = 32;

/// Sketches for a program whose `main` is [.., m, n] = sum over k of a product; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Some(main) = main_sum(all) else {
        return;
    };
    let Some(shape) = Shape::of(program, main) else {
        return;
    };
    let out = epilogue(all, main);
    let tiling = |packing: Option<Packing>, order| Tiling {
        main,
        out,
        target,
        shape: &shape,
        packing,
        order,
        tiles: Tiles::of(&shape, target, packing.is_some()),
    };
    let write = |found: &mut Templates,
                 name,
                 handled: &[Option<&Nest>],
                 write: &dyn Fn(&mut Draft) -> Written<()>| {
        let handled: Vec<BlockId> = handled.iter().flatten().map(|n| n.block).collect();
        found.write(Draft::new(name, program), |d| {
            write(d)?;
            others(d, all, &handled, target)
        });
    };
    if shape.n() == 1 {
        let (block, lanes) = (program.block(main.block), shape.lanes(target));
        let contiguous = dots::has_contiguous_rows(program, block, shape.k(), lanes);
        if let Some(m) = shape.rows.as_ref().filter(|_| contiguous) {
            let dots = tiling(None, Order::Rows);
            write(found, "gemm.dots", &[Some(main), out], &|d| {
                dots.write_dots(d, m)
            });
        }
        return;
    }
    let streams = stream::streams(&shape, target);
    let stream = |found: &mut Templates| {
        if let Some(streams) = &streams {
            let rows = tiling(None, Order::Rows);
            write(found, "gemm.stream", &[Some(main)], &|d| {
                rows.write_streams(d, streams)
            });
        }
    };
    let first = stream::from_memory(&shape, target);
    if first {
        stream(found);
    }
    for packing in packings(&shape, target) {
        let tiles = Tiles::of(&shape, target, packing.is_some());
        for order in orders(&shape, target, &tiles) {
            let tiling = tiling(packing, order);
            write(found, tiling.name(), &[Some(main), out], &|d| {
                tiling.write(d)
            });
        }
    }
    if !first {
        stream(found);
    }
}

/// Whether a program is a product that would copy its right operand in every call only because
/// its rows are no multiple of a vector, although a panel of it stays in half the first-level
/// cache. Rules read such rows where they are, and write panels: results beyond the second-level cache are
/// better written row by row. `op:batch_matmul(b=12,m=785,k=64,n=785)` takes 12.2 ms by rules and 5.5 by the template,
/// with 197 rows and columns 0.39 and 0.41 (a Xeon with AMX).
pub fn copies_cut_rows(program: &Program, all: &[Nest], target: &CpuTarget) -> bool {
    let shape = main_sum(all).and_then(|main| Shape::of(program, main));
    shape.is_some_and(|s| {
        let copied = s.packing.is_some_and(|p| p.each_call && !p.transposed);
        let (_, columns) = Tiles::of(&s, target, false).default;
        let panel = s.k() * columns * s.bytes();
        let near = s.is_written_near(s.matrices(), target);
        copied && has_cut_rows(&s, target) && near && 2 * panel <= target.l1_bytes as i64
    })
}

/// Whether a row of the right operand that is no multiple of a vector is read so often that it is
/// copied: it would be loaded under a mask, and its vectors lie across the lines of the cache.
fn has_cut_rows(shape: &Shape, target: &CpuTarget) -> bool {
    shape.n() % shape.lanes(target) != 0 && shape.m() >= FEW_ROWS
}

/// Ways to lay the right operand out, the best first.
fn packings(shape: &Shape, target: &CpuTarget) -> Vec<Option<Packing>> {
    let Some(p) = shape.packing else {
        return vec![None];
    };
    let tiles = Tiles::of(shape, target, false);
    let fits = !has_cut_rows(shape, target);
    if p.each_call && !p.transposed && fits && shape.m() <= REUSED * tiles.default.0 {
        vec![None, Some(p)]
    } else {
        vec![Some(p), None]
    }
}

/// A product in one order of tiles.
struct Tiling<'a> {
    main: &'a Nest,
    out: Option<&'a Nest>,
    target: &'a CpuTarget,
    shape: &'a Shape,
    packing: Option<Packing>,
    order: Order,
    tiles: Tiles,
}

/// Decisions of a product.
struct Decisions {
    /// Rows and columns of a tile.
    rows: Option<Decided>,
    columns: Decided,
    /// Tiles of rows in a group, if threads share groups.
    group: Option<Decided>,
    unroll: Decided,
    /// How far ahead the right operand is fetched, if it comes from memory.
    ahead: Option<Decided>,
}

/// Loops of the register tile.
struct TileLoops {
    /// The loop over groups of tiles of rows, if threads share groups.
    groups: Option<LoopId>,
    /// Loops over tiles of rows and over the rows of one, if there are any.
    rows: Option<[LoopId; 2]>,
    /// Loops over panels, over the vectors of one, and over their lanes.
    columns: [LoopId; 3],
}

impl Tiling<'_> {
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

    fn write(&self, d: &mut Draft) -> Written<()> {
        let (s, target, main) = (self.shape, self.target, self.main.block);
        let decided = self.decide(d);
        let result = self.keep_in_registers(d)?;
        let width = decided.columns.value();
        d.pad(s.columns.id, width)?;
        let copier = match self.packing {
            Some(p) => Some(d.pack(s.right, &p.tiles(width), &p.order())?),
            None => None,
        };
        let tile = self.split(d, &decided)?;
        let [k0, k1] = d.split(s.terms.id, [REST, decided.unroll.value().into()])?;
        let [n0, n1, n2] = tile.columns;
        let mut outer = ids(&s.batch);
        outer.extend(tile.groups);
        match tile.rows {
            Some([m0, _]) if self.order == Order::Rows => outer.extend([m0, n0]),
            Some([m0, _]) => outer.extend([n0, m0]),
            None => outer.push(n0),
        }
        let mut order = outer.clone();
        order.extend([k0, k1]);
        order.extend(tile.rows.map(|[_, m1]| m1));
        order.extend([n1, n2]);
        d.reorder(&order)?;
        let inside = usize::from(tile.rows.is_some());
        let shared = &outer[..outer.len() - inside];
        let fused = d.parallel(shared, target.threads)?;
        let panel = fused.unwrap_or(shared[shared.len() - 1]);
        let place = if inside == 1 || target.threads <= 1 {
            outer[outer.len() - 1]
        } else {
            panel
        };
        self.leave_registers(d, result, place, tile.rows.is_some())?;
        d.vectorize(n2)?;
        d.unroll(n1)?;
        d.unroll(k1)?;
        if let Some([_, m1]) = tile.rows {
            d.unroll(m1)?;
        }
        d.decompose_reduction(main, k0)?;
        if let Some(distance) = decided.ahead {
            let right = copier.map_or(s.right, |copier| d.output(copier));
            d.prefetch_if_legal(right, k0, distance.value());
        }
        if let (Some(p), Some(copier)) = (self.packing, copier) {
            self.pack_each_call(d, p, copier, panel)?;
        }
        d.run_parallel()?;
        if let Some([m0, _]) = tile.rows {
            if tile.groups.is_some() {
                d.attempt_partition(panel);
                d.attempt_partition_copies(m0);
            }
            d.attempt_partition(m0);
        }
        Ok(())
    }

    /// Sums are registers; the block that takes them from there.
    fn keep_in_registers(&self, d: &mut Draft) -> Written<BlockId> {
        let main = self.main.block;
        match self.out {
            Some(out) => {
                d.set_scope(d.output(main), Scope::Register)?;
                Ok(out.block)
            }
            None => d.keep_in_registers(main),
        }
    }

    fn decide(&self, d: &mut Draft) -> Decisions {
        let (s, t) = (self.shape, &self.tiles);
        let columns = d.choose("columns", &t.columns, t.default.1);
        let rows = s
            .rows
            .as_ref()
            .map(|_| d.choose("rows", &t.rows, t.default.0));
        let group = (self.order == Order::Tiles).then(|| {
            let (options, best) = groups(s, self.target, t);
            (d.choose("group", &options, best), best)
        });
        let divisors: Vec<i64> = (1..=8).filter(|u| s.k() % u == 0).collect();
        let wanted = match s.m() == 1 && s.n() % t.lanes == 0 {
            true => UNROLLED.max(WANTED_UNROLLED * t.lanes / t.default.1),
            false => UNROLLED,
        };
        let unroll = d.choose("unroll_k", &divisors, wanted);
        let bytes = s.k() * s.n() * s.bytes();
        let copied = self.packing.is_some_and(|p| p.each_call);
        let far = bytes > self.target.l2_bytes as i64 && !copied;
        let streamed = self.packing.is_some() && s.is_streamed(self.target);
        let from_memory = stream::from_memory(s, self.target);
        let distance = match from_memory || streamed {
            true => FROM_MEMORY,
            false => 0,
        };
        let ahead = far.then(|| d.choose("prefetch", &DISTANCES, distance));
        if let Some(rows) = rows {
            t.registers
                .limit(d, &[rows.value()], columns.value(), t.lanes);
            if let Some((group, best)) = group {
                let of_group = [group.value(), rows.value()];
                let most = s.m().max(best * t.default.0);
                d.limit("rows of a group", &[(1, &of_group)], most);
            }
        }
        let tile = rows.into_iter().chain([columns, unroll]);
        let body: Vec<_> = tile.map(Decided::value).collect();
        limit_unrolled(d, 1, &body, MAX_UNROLLED * t.lanes);
        Decisions {
            rows,
            columns,
            group: group.map(|(group, _)| group),
            unroll,
            ahead,
        }
    }

    /// Splits columns into panels of vectors, and rows into tiles that need not
    /// divide: a predicate cuts the last one.
    fn split(&self, d: &mut Draft, decided: &Decisions) -> Written<TileLoops> {
        let columns = decided.columns.value();
        let [n0, panel] = d.split(self.shape.columns.id, [REST, columns.into()])?;
        let [n1, n2] = d.split(panel, [REST, given(self.tiles.lanes)])?;
        let m = self.shape.rows.as_ref().zip(decided.rows);
        let (groups, rows) = match (m, decided.group) {
            (Some((m, rows)), Some(group)) => {
                let parts = [REST, group.value().into(), rows.value().into()];
                let [groups, m0, m1] = d.split(m.id, parts)?;
                (Some(groups), Some([m0, m1]))
            }
            (Some((m, rows)), None) => (None, Some(d.split(m.id, [REST, rows.value().into()])?)),
            (None, _) => (None, None),
        };
        Ok(TileLoops {
            groups,
            rows,
            columns: [n0, n1, n2],
        })
    }

    /// Packing as part of a call: a panel where it is used, if it is used once.
    fn pack_each_call(
        &self,
        d: &mut Draft,
        p: Packing,
        copier: BlockId,
        panel: LoopId,
    ) -> Written<()> {
        if !p.each_call {
            return Ok(());
        }
        if self.order == Order::Columns && self.shape.rows.is_some() {
            d.compute_at(copier, panel)?;
            d.set_scope(d.output(copier), Scope::Local)?;
        } else {
            d.share_panels(copier, p.dims, self.target.threads)?;
        }
        let [terms, columns] = d.packed_along(copier, [p.dims - 1, p.dims])?;
        let [vectors, lane] = d.split(columns, [REST, given(self.tiles.lanes)])?;
        if p.transposed {
            // A vector's columns lie apart: cache lines of no more than these
            // are in use while the terms go by.
            d.reorder_if_legal(&[vectors, terms, lane]);
        }
        d.vectorize_if_legal(lane);
        Ok(())
    }

    /// The block that writes the accumulators out under `place`.
    fn leave_registers(
        &self,
        d: &mut Draft,
        result: BlockId,
        place: LoopId,
        has_rows: bool,
    ) -> Written<()> {
        let own = d.reverse_compute_at(result, place)?;
        let columns = own[self.main.spatial.len() - 1];
        let [vectors, lane] = d.split(columns, [REST, given(self.tiles.lanes)])?;
        d.vectorize(lane)?;
        d.unroll(vectors)?;
        if has_rows {
            d.unroll(own[self.main.spatial.len() - 2])?;
        }
        Ok(())
    }
}
