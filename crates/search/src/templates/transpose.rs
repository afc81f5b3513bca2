//! Data that changes its order: transposes and conversions of layouts.
//!
//! Neighbours in what is read are no neighbours in what is written. A tile has a cache line
//! along either one: its vectors go along what is written, and its rows, which are
//! unrolled, along what is read, so that code generation can load vectors along the rows
//! and transpose them in registers. *transpose.write* has the next tile along what is
//! written, *transpose.read* along what is read.

use super::Templates;
use super::threads::is_even;
use crate::draft::{Draft, REST, Written, given};
use crate::nests::{AxisLoop, Nest};
use ir::names::image;
use ir::{BlockId, CpuTarget, DType, Expr, ExprKind, LoopId, Program, VarId};

/// Bytes of a cache line.
const LINE: i64 = 64;
/// Lines that a thread writes one after another, where the first and the last one may be
/// another thread's as well: with fewer the threads wait for lines. Chosen by hand.
const OWN_LINES: i64 = 32;
/// So many iterations for each thread are shared evenly enough.
const MANY: i64 = 16;
/// A tile with fewer elements along an axis is no work for shuffles.
const FEWEST: i64 = 4;

/// Sketches for a program of one block that only moves data, if the innermost
/// axis of what it reads is not that of what it writes; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let [nest] = all else {
        return;
    };
    let Some(tile) = Tile::of(program, nest, target) else {
        return;
    };
    let rows = extent(&tile.read);
    // Vectors along an axis that does not fill them would be stored in parts.
    let vectors_read = tile.lanes < FEWEST && rows >= FEWEST;
    let mut orders = vec![
        ("transpose.write", Next::Written),
        ("transpose.read", Next::Read),
    ];
    if vectors_read {
        orders = vec![("transpose.scatter", Next::Scattered)];
    }
    for (name, next) in orders {
        found.write(Draft::new(name, program), |d| {
            write(d, nest, &tile, next, target)
        });
    }
}

/// Schedules one nest of several, if it copies whole tiles to another order. Whether it is.
pub(super) fn schedule(d: &mut Draft, nest: &Nest, target: &CpuTarget) -> Written<bool> {
    let program = d.program().clone();
    let Some(tile) = Tile::of(&program, nest, target).filter(|_| is_copy(&program, nest)) else {
        return Ok(false);
    };
    let whole = tile.line == LINE / dtype(&program, nest.block).size() as i64
        && tile.lanes == target.lanes(dtype(&program, nest.block));
    if whole {
        write(d, nest, &tile, Next::Written, target)?;
    }
    Ok(whole)
}

/// Whether each element is made of those that are read at places that the loops say.
fn is_copy(program: &Program, nest: &Nest) -> bool {
    let block = program.block(nest.block);
    let plain = |at: &[Expr]| {
        at.iter()
            .all(|e| e.as_var().is_some() || e.as_int().is_some())
    };
    let mut loads = block.loads().into_iter();
    let [w] = &block.writes[..] else {
        return false;
    };
    let chooses = |e: &Expr| matches!(e.kind(), ExprKind::Select(..));
    plain(&w.indices)
        && loads.all(|(_, at)| plain(&at))
        && !w.value.any(&chooses)
        && block.runs_where().is_none()
}

fn extent(chain: &[&AxisLoop]) -> i64 {
    chain.iter().map(|l| l.extent).product()
}

/// The two axes of a tile.
struct Tile<'a> {
    /// Loops that are one along what is read, outermost first.
    read: Vec<&'a AxisLoop>,
    /// The same along what is written.
    written: Vec<&'a AxisLoop>,
    /// Elements along what is read.
    line: i64,
    /// Elements along what is written.
    lanes: i64,
}

impl<'a> Tile<'a> {
    /// The tile of a nest whose innermost axis of what it reads is not that of what it writes.
    fn of(program: &Program, nest: &'a Nest, target: &CpuTarget) -> Option<Tile<'a>> {
        let [read, written] = innermost(program, nest)?.map(|l| chain(program, nest, l));
        let element = dtype(program, nest.block);
        Some(Tile {
            line: (LINE / element.size() as i64).min(extent(&read)),
            lanes: target.lanes(element).min(extent(&written)),
            read,
            written,
        })
    }
}

/// Along what the tile after this one lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Written,
    Read,
    /// Along what is read, as are the vectors: their elements are stored one by one.
    Scattered,
}

fn dtype(program: &Program, block: BlockId) -> DType {
    let written = program.block(block).writes[0].buffer;
    program.buffer(written).dtype
}

/// The loops along which neighbours lie in memory: of what is read, and written.
fn innermost<'a>(program: &Program, nest: &'a Nest) -> Option<[&'a AxisLoop; 2]> {
    let block = program.block(nest.block);
    let [w] = &block.writes[..] else {
        return None;
    };
    if block.is_reduction() {
        return None;
    }
    let long = block.iters.iter().filter(|i| i.extent > 1);
    let vars: Vec<VarId> = long.map(|i| i.var).collect();
    let uses = |e: &&Expr| vars.iter().any(|v| e.uses_var(*v));
    let used_last = |indices: &[Expr]| {
        let last = indices.iter().rev().find(uses)?;
        let mut used = vars.iter().filter(|v| last.uses_var(**v));
        // A blocked channel is read along by its last axis.
        used.next_back().copied()
    };
    let written = used_last(&w.indices)?;
    // Other operands lie as what is written does.
    let mut others = block.loads().into_iter().filter_map(|(_, indices)| {
        let read = used_last(&indices)?;
        (read != written && indices.iter().any(|i| i.uses_var(written))).then_some(read)
    });
    let read = others.next()?;
    if others.any(|other| other != read) {
        return None;
    }
    let along = |v: VarId| {
        let axis = &program.var(v).name;
        nest.spatial.iter().find(|l| l.axis == *axis)
    };
    Some([along(read)?, along(written)?])
}

/// The loops that are one axis with `last` in everything that the block accesses, outermost
/// first: all rows of an image behind each other are one row.
fn chain<'a>(program: &Program, nest: &'a Nest, last: &'a AxisLoop) -> Vec<&'a AxisLoop> {
    let mut chain = vec![last];
    let block = program.block(nest.block);
    let var = |l: &AxisLoop| {
        let mut iters = block.iters.iter();
        iters
            .find(|i| program.var(i.var).name == l.axis)
            .map(|i| i.var)
    };
    let writes = block.writes.iter().map(|w| (w.buffer, w.indices.clone()));
    let accesses: Vec<_> = writes.chain(block.loads()).collect();
    while let Some(at) = nest.spatial.iter().position(|l| l.id == chain[0].id)
        && at > 0
        && let (outer, inner) = (&nest.spatial[at - 1], &nest.spatial[at])
        && let (Some(o), Some(i)) = (var(outer), var(inner))
        && accesses.iter().all(|(buffer, indices)| {
            let whole = program.buffer(*buffer).view.is_none();
            let shape = &program.buffer(*buffer).shape;
            let is = |e: Option<&Expr>, v: VarId| e.and_then(Expr::as_var) == Some(v);
            let uses = indices.iter().filter(|e| e.uses_var(o) || e.uses_var(i));
            let uses = uses.count();
            let follows = (1..indices.len()).any(|d| {
                let both = is(indices.get(d - 1), o) && is(indices.get(d), i);
                both && uses == 2 && shape[d] == inner.extent
            });
            uses == 0 || whole && follows
        })
    {
        chain.insert(0, outer);
    }
    chain
}

/// Tiles of two axes, vectors along the second one.
fn write(d: &mut Draft, nest: &Nest, tile: &Tile, next: Next, target: &CpuTarget) -> Written<()> {
    let lanes = target.lanes(dtype(d.program(), nest.block));
    let (rows, vector) = match next {
        Next::Scattered => (tile.lanes, lanes.min(tile.line)),
        _ => (tile.line, tile.lanes),
    };
    let read = fused(d, &tile.read)?;
    let written = fused(d, &tile.written)?;
    let (rows_of, lanes_of) = match next {
        Next::Scattered => (written, read),
        _ => (read, written),
    };
    let [r0, r1] = d.split(rows_of, [REST, given(rows)])?;
    let [v0, v1] = d.split(lanes_of, [REST, given(vector)])?;
    let tiled = |l: &&AxisLoop| {
        let all = tile.read.iter().chain(&tile.written);
        all.into_iter().all(|t| t.id != l.id)
    };
    let at = |axis: &AxisLoop| nest.spatial.iter().position(|l| l.id == axis.id);
    let (of_read, of_written) = (at(tile.read[0]), at(tile.written[0]));
    let (of_rows, of_lanes) = match next {
        Next::Scattered => (of_written, of_read),
        _ => (of_read, of_written),
    };
    let tiled = nest.spatial.iter().filter(tiled);
    let mut outer: Vec<(Option<usize>, LoopId)> = tiled.map(|l| (at(l), l.id)).collect();
    match next {
        Next::Written => outer.extend([(of_rows, r0), (of_lanes, v0)]),
        Next::Read | Next::Scattered => outer.extend([(of_lanes, v0), (of_rows, r0)]),
    }
    let is_image = |chain: &[&AxisLoop]| chain.iter().any(|l| l.is(image::ROW));
    let written: i64 = tile.written.iter().map(|l| l.extent).product();
    let element = dtype(d.program(), nest.block).size() as i64;
    let part = written * element / i64::from(target.threads);
    let image = match (is_image(&tile.read), is_image(&tile.written)) {
        (true, _) => of_read,
        (_, true) if part >= OWN_LINES * LINE => of_written,
        _ => None,
    };
    let thread = share(d, (&mut outer, image), target)?;
    let mut outer: Vec<LoopId> = outer.into_iter().map(|(_, l)| l).collect();
    d.reorder(&[&Vec::from_iter(thread), &outer[..], &[r1, v1]].concat())?;
    if let Some(thread) = thread {
        d.parallel(&[thread], target.threads)?;
    } else if let Some((count, fused)) = d.share_copy(&outer, target.threads)? {
        outer.splice(..count, [fused]);
    }
    d.run_parallel()?;
    d.vectorize_if_legal(v1);
    d.unroll(r1)?;
    // Inside first: the copies of an outer loop then have the parts of the inner one.
    for l in outer.iter().rev() {
        d.attempt_partition(*l);
    }
    Ok(())
}

/// Cuts a loop into a part for each thread. Of those of which threads get about as many it
/// is the one over the rows of an image, which other steps share as well, else the outermost
/// one in what is written: parts of short rows would share lines of the cache. Loops have
/// the positions of their axes. The loop over threads goes outside all others: one that is
/// shared inside another one wakes the threads in each iteration.
fn share(
    d: &mut Draft,
    (outer, image): (&mut [(Option<usize>, LoopId)], Option<usize>),
    target: &CpuTarget,
) -> Written<Option<LoopId>> {
    let threads = i64::from(target.threads);
    let extent = |at: usize| d.program().loop_(outer[at].1).extent;
    let rows = |at: &usize| image.is_some() && outer[*at].0 == image;
    let rows = (0..outer.len())
        .find(rows)
        .filter(|at| is_even(extent(*at), target.threads));
    let even = |at: &usize| extent(*at) % threads == 0 || extent(*at) >= MANY * threads;
    let outermost = (0..outer.len()).filter(even).min_by_key(|at| outer[*at].0);
    let longest = (0..outer.len()).max_by_key(|at| extent(*at));
    // With few iterations the last thread may get none.
    let all_work = |at: &usize| {
        let n = extent(*at);
        n > (threads - 1) * ((n + threads - 1) / threads)
    };
    let found = rows.or(outermost).or(longest).filter(all_work);
    let Some(at) = found.filter(|_| threads > 1) else {
        return Ok(None);
    };
    let [thread, own] = d.split(outer[at].1, [given(threads), REST])?;
    outer[at].1 = own;
    Ok(Some(thread))
}

/// One loop of a chain of loops directly in each other.
fn fused(d: &mut Draft, chain: &[&AxisLoop]) -> Written<LoopId> {
    let mut all = chain.iter().map(|l| l.id);
    let first = all.next().unwrap_or(LoopId(0));
    all.try_fold(first, |outer, inner| d.fuse(outer, inner))
}
