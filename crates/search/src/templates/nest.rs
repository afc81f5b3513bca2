//! The general nest schedule: vectors over the innermost spatial axis,
//! reductions outside them, accumulators in registers.

use super::registers::{IN_FLIGHT, Registers, largest_divisor};
use super::threads::own_rows;
use super::{Templates, transpose, widths};
use crate::draft::{Draft, PART, REST, Refused, Written, given};
use crate::nests::{AxisLoop, Nest, ids};
use crate::space::Sketch;
use ir::affine::Affine;
use ir::{CpuTarget, DType, Expr, ExprKind, LoopId, Program, Scope, VarId};

/// Rows of a tile, at most. Chosen by hand; not measured apart.
const MOST_ROWS: i64 = 16;

/// Parts for each thread with which the innermost loop need not be shared.
const PARTS: i64 = 4;
/// Values, or vectors of them, that go on side by side: by default, and at most. Chosen by hand.
const SIDE_BY_SIDE: i64 = 8;
const MOST_BESIDE: i64 = 32;
/// Runs of values that go on together fit the first-level cache so many times: it also keeps what they go on from, and
/// what they read.
const RUNS: i64 = 4;
/// Values of a row that a thread has at least where the data say which row: threads that meet in a row write lines next to
/// each other. `op:scatter_add(table=500,rows=5000,cols=300)` takes 1.7 to 2.9 ms where two threads have half of the columns
/// each, and 1.0 ms compiled for one thread; `op:scatter_add(table=4096,rows=512,cols=768)` 0.7 ms and 1.1 ms (a Xeon with
/// AMX). Chosen between the two.
const APART: i64 = 256;
/// Vectors of a row that are written out, at most.
const MOST_WRITTEN_OUT: i64 = 32;

/// How far the general schedule goes.
pub struct Style {
    /// Unroll a second spatial axis, so that several accumulators are live.
    pub tile: bool,
    /// Vectors over the reduction, combined at the end, where no other axis is contiguous.
    pub rfactor: bool,
    /// Several sums of a vector of results, combined at the end, where there are few results.
    pub parts: bool,
}

impl Style {
    pub const PLAIN: Style = Style {
        tile: false,
        rfactor: false,
        parts: false,
    };
    const ROWS: Style = Style {
        rfactor: true,
        ..Style::PLAIN
    };
    const TILED: Style = Style {
        tile: true,
        ..Style::PLAIN
    };
    const PARTS: Style = Style {
        parts: true,
        ..Style::PLAIN
    };
}

/// Sketches that schedule every nest alone.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let rows = all.iter().any(|n| row_reduction(program, n, target));
    let few = all.iter().any(|n| few_results(program, n, target));
    let ordered = all.iter().any(|n| !n.ordered.is_empty());
    let styles: &[(&str, Style)] = if ordered {
        &[("nest.tiled", Style::TILED), ("nest", Style::PLAIN)]
    } else if rows {
        &[("nest.rows", Style::ROWS), ("nest", Style::PLAIN)]
    } else if few {
        &[("nest.sums", Style::PARTS), ("nest", Style::PLAIN)]
    } else {
        &[("nest", Style::PLAIN), ("nest.tiled", Style::TILED)]
    };
    for (name, style) in styles {
        found.write(Draft::new(*name, program), |d| {
            all.iter().try_for_each(|n| schedule(d, n, target, style))
        });
    }
}

/// The fallback rule.
pub fn plain(program: &Program, all: &[Nest], target: &CpuTarget) -> Result<Sketch, Refused> {
    let mut d = Draft::new("fallback", program);
    for n in all {
        schedule(&mut d, n, target, &Style::PLAIN)?;
    }
    d.finish()
}

fn lanes(target: &CpuTarget) -> i64 {
    target.lanes(DType::F32)
}

/// A reduction over the last axis only, as in softmax and layer normalisation.
fn row_reduction(p: &Program, n: &Nest, target: &CpuTarget) -> bool {
    n.is_reduction
        && n.writes == 1
        && n.reduce.len() == 1
        && lanes(target) > 1
        && n.reduce[0].extent % lanes(target) == 0
        && n.reduce[0].extent > lanes(target)
        && n.spatial
            .iter()
            .rfind(|l| l.extent > 1)
            .is_some_and(|l| lies_across(p, n, (&n.reduce[0], l)))
}

/// A long reduction to one vector of results or less: each term would wait for the one before it.
fn few_results(p: &Program, n: &Nest, target: &CpuTarget) -> bool {
    let inside = |l: &&AxisLoop| l.extent > 1;
    let results: i64 = n.spatial.iter().map(|l| l.extent).product();
    n.is_reduction
        && n.writes == 1
        && n.reduce.len() == 1
        && n.reduce[0].extent % SIDE_BY_SIDE == 0
        && n.reduce[0].extent >= SIDE_BY_SIDE * SIDE_BY_SIDE
        && (2..=lanes(target)).contains(&results)
        && n.spatial
            .iter()
            .rfind(inside)
            .is_some_and(|l| lies_inside(p, n, l))
}

/// Whether elements that a block loads lie side by side along an axis. Where the data say which elements, they do not.
fn lies_inside(p: &Program, n: &Nest, axis: &AxisLoop) -> bool {
    let var = variable(p, n, axis);
    let inside = |at: &Vec<Expr>| at.last().is_some_and(|e| uses(e, var) && !e.loads());
    p.block(n.block).loads().iter().any(|(_, at)| inside(at))
}

/// Whether elements that a block loads lie side by side along an axis, and rows of them behind each other along another.
fn lies_across(p: &Program, n: &Nest, (inner, outer): (&AxisLoop, &AxisLoop)) -> bool {
    let [inner, outer] = [inner, outer].map(|l| variable(p, n, l));
    let across = |at: &Vec<Expr>| {
        at.split_last().is_some_and(|(last, others)| {
            uses(last, inner) && others.iter().any(|e| uses(e, outer))
        })
    };
    p.block(n.block).loads().iter().any(|(_, at)| across(at))
}

fn uses(e: &Expr, var: Option<VarId>) -> bool {
    var.is_some_and(|v| e.uses_var(v))
}

/// The iteration variable of an axis.
fn variable(p: &Program, n: &Nest, axis: &AxisLoop) -> Option<VarId> {
    let mut vars = p.block(n.block).iters.iter().map(|i| i.var);
    vars.find(|v| p.var(*v).name == axis.axis)
}

/// Schedules one nest that still has its own loops.
pub fn schedule(d: &mut Draft, n: &Nest, target: &CpuTarget, style: &Style) -> Written<()> {
    if !n.ordered.is_empty() {
        return ordered(d, n, target, style);
    }
    if style.rfactor && row_reduction(d.program(), n, target) {
        return rows(d, n, target);
    }
    if style.parts && few_results(d.program(), n, target) {
        return parts(d, n, target);
    }
    let is_reduction = n.is_reduction && !n.reduce.is_empty();
    // The innermost axis with more than one element carries the vectors.
    let Some(at) = n.spatial.iter().rposition(|l| l.extent > 1) else {
        if is_reduction {
            d.decompose_reduction_if_legal(n.block, n.reduce[0].id);
        }
        return Ok(());
    };
    if short_rows(d, n, at, target)? || transpose::schedule(d, n, target)? {
        return Ok(());
    }
    let along = &n.spatial[at];
    let width = match (widths::lanes(d.program(), n, along, target), is_reduction) {
        // A part of a vector of sums would be several.
        (wide, true) if along.extent < wide => along.extent.min(lanes(target)),
        (wide, true) => wide,
        // Parts of a vector that are no power of two would be several.
        (wide, false) => wide.min((along.extent as u64).next_power_of_two() as i64),
    };
    let border = Border::of(d, n, along, width);
    let [vectors, lane] = d.split(along.id, [REST, given(width)])?;
    let mut outer = ids(&n.spatial);
    outer[at] = vectors;
    let own = at == 4 && !n.is_reduction && give_rows(d, n, target, &mut outer)?;
    let mut tile = None;
    if style.tile
        && n.is_reduction
        && let Some(second) = second(d, n, at)
    {
        tile = Some(tile_second(d, n, target, (second, &mut outer))?);
    }
    let order = [&outer[..], &ids(&n.reduce), &Vec::from_iter(tile), &[lane]].concat();
    if order.len() > 1 {
        d.reorder(&order)?;
    }
    let innermost = outer[outer.len() - 1];
    // The loop that the accumulators live in stays a loop of its own.
    let parts: i64 = n.spatial[..at].iter().map(|l| l.extent).product();
    let many = parts >= PARTS * i64::from(target.threads);
    let alone = n.is_reduction || border != Border::None && many && at + 1 == outer.len();
    let keep = usize::from(alone && outer.len() > 1);
    let shared = if own { 1 } else { outer.len() - keep };
    let fused = d.parallel(&outer[..shared], target.threads)?;
    let place = match fused {
        Some(f) if shared == outer.len() => f,
        _ => innermost,
    };
    if n.is_reduction && n.writes == 1 {
        keep_sums(d, n, at, place)?;
    }
    d.vectorize_if_legal(lane);
    if let Some(t) = tile {
        d.unroll(t)?;
    }
    if is_reduction {
        d.decompose_reduction(n.block, n.reduce[0].id)?;
    }
    let stands = fused.is_none() || keep > 0 || own;
    if !n.is_reduction && stands {
        d.run_parallel()?;
        border.separate(d, vectors)?;
    }
    Ok(())
}

/// Vectors of several rows that are shorter than a vector, where all rows lie behind each other or are the same one.
/// Whether it could.
fn short_rows(d: &mut Draft, n: &Nest, at: usize, target: &CpuTarget) -> Written<bool> {
    let (width, extent) = (lanes(target), n.spatial[at].extent);
    if at == 0 || extent >= width || width % extent != 0 {
        return Ok(false);
    }
    let (rows, row) = (&n.spatial[at - 1], &n.spatial[at]);
    let vars = [rows, row].map(|l| variable(d.program(), n, l));
    let plain = |at: &[Expr], vars: &[Option<VarId>]| {
        let (others, last) = at.split_at(at.len().saturating_sub(vars.len()));
        last.iter().map(Expr::as_var).eq(vars.iter().copied())
            && !others.iter().any(|e| vars.iter().any(|v| uses(e, *v)))
    };
    let block = d.block(n.block);
    let behind = block.writes.iter().all(|w| plain(&w.indices, &vars))
        && block.loads().iter().all(|(_, at)| {
            let same = plain(at, &vars[1..]) && !at.iter().any(|e| uses(e, vars[0]));
            let neither = !at.iter().any(|e| vars.iter().any(|v| uses(e, *v)));
            plain(at, &vars) || same || neither
        });
    if n.is_reduction || !behind || rows.extent * extent % width != 0 {
        return Ok(false);
    }
    let fused = d.fuse(rows.id, row.id)?;
    let [vectors, lane] = d.split(fused, [REST, given(width)])?;
    let outer = [&ids(&n.spatial[..at - 1])[..], &[vectors]].concat();
    d.reorder_if_legal(&[&outer[..], &ids(&n.spatial[at + 1..]), &[lane]].concat());
    d.parallel(&outer, target.threads)?;
    d.vectorize_if_legal(lane);
    d.run_parallel()?;
    Ok(true)
}

/// What is different at the ends of the innermost axis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Border {
    None,
    /// The last vector is not whole, or some elements are tests apart.
    Ends,
    /// Elements come from several operands.
    Parts,
    /// Elements are read at indices that step unevenly.
    Uneven,
}

impl Border {
    fn of(d: &Draft, n: &Nest, along: &AxisLoop, width: i64) -> Border {
        let block = d.block(n.block);
        let mut iters = block.iters.iter();
        let Some(var) = iters.find(|i| d.program().var(i.var).name == along.axis) else {
            return Border::None;
        };
        let var = var.var;
        // Where the data say where elements lie, code of its own for a vector gains nothing.
        let is_uneven = |e: &Expr| e.uses_var(var) && Affine::of(e).is_none() && !e.loads();
        let loads = block.loads();
        if loads.iter().flat_map(|(_, at)| at).any(is_uneven) {
            return Border::Uneven;
        }
        let any = |test: &dyn Fn(&Expr) -> bool| block.writes.iter().any(|w| w.value.any(&test));
        let joins = |e: &Expr| match e.kind() {
            ExprKind::Select(c, a, b) => {
                c.uses_var(var) && !c.loads() && [a, b].iter().all(|e| e.loads() && e.uses_var(var))
            }
            _ => false,
        };
        if any(&joins) {
            return Border::Parts;
        }
        let tests = |e: &Expr| matches!(e.kind(), ExprKind::Select(c, ..) if c.uses_var(var));
        match along.extent % width != 0 || any(&tests) {
            true => Border::Ends,
            false => Border::None,
        }
    }

    /// Vectors of a short row that is uneven or of several parts have code of their own, in which
    /// it is known where their elements lie; of other rows the first and the last ones.
    fn separate(self, d: &mut Draft, vectors: LoopId) -> Written<()> {
        let short = d.program().loop_(vectors).extent <= MOST_WRITTEN_OUT;
        match self {
            Border::None => {}
            Border::Uneven | Border::Parts if short => d.unroll(vectors)?,
            Border::Ends | Border::Uneven | Border::Parts => d.attempt_partition(vectors),
        }
        Ok(())
    }
}

/// The axis before `at` along which sums share most of what they load; of equal ones the innermost.
fn second(d: &Draft, n: &Nest, at: usize) -> Option<usize> {
    let block = d.block(n.block);
    let loads = block.loads();
    let shared = |axis: &AxisLoop| {
        let mut vars = block.iters.iter().map(|i| i.var);
        let var = vars.find(|v| d.program().var(*v).name == axis.axis);
        let uses = |e: &Expr| var.is_some_and(|v| e.uses_var(v));
        let same = loads.iter().filter(|(_, at)| !at.iter().any(uses));
        same.count()
    };
    let axes = (0..at).filter(|i| n.spatial[*i].extent > 1);
    axes.max_by_key(|i| shared(&n.spatial[*i]))
}

/// Cuts a second axis into tiles, whose sums are formed side by side;
/// the loop over the rows of a tile.
fn tile_second(
    d: &mut Draft,
    n: &Nest,
    target: &CpuTarget,
    (at, outer): (usize, &mut [LoopId]),
) -> Written<LoopId> {
    let second: &AxisLoop = &n.spatial[at];
    // A vector of sums for each, one of data and one more.
    let most = Registers::of(target).most_rows().min(MOST_ROWS);
    let name = format!("tile_{}", n.name);
    let t = d.tile(&name, second.extent, most, IN_FLIGHT);
    let [tiles, rows] = d.split(second.id, [0, 1].map(|part| t.part(part).into()))?;
    if let Some(l) = outer.iter_mut().find(|l| **l == second.id) {
        *l = tiles;
    }
    Ok(rows)
}

/// Sums stay in registers until the loop `place` leaves them, in vectors along axis `at`.
fn keep_sums(d: &mut Draft, n: &Nest, at: usize, place: LoopId) -> Written<()> {
    let leaving = d.keep_in_registers(n.block)?;
    let own = d.reverse_compute_at(leaving, place)?;
    let vector = own[at];
    if at + 1 < own.len() {
        d.reorder(&[&own[at + 1..], &[vector]].concat())?;
    }
    d.vectorize_if_legal(vector);
    Ok(())
}

/// Puts a loop over threads, each with rows of its own, outside all others.
fn give_rows(
    d: &mut Draft,
    n: &Nest,
    target: &CpuTarget,
    outer: &mut Vec<LoopId>,
) -> Written<bool> {
    let Some(rows) = own_rows(&n.shape(), target.threads) else {
        return Ok(false);
    };
    let [thread, own] = d.split(outer[2], [REST, given(rows)])?;
    outer[2] = own;
    outer.insert(0, thread);
    Ok(true)
}

/// A reduction along contiguous rows: lanes reduce alone, then together.
fn rows(d: &mut Draft, n: &Nest, target: &CpuTarget) -> Written<()> {
    let [terms, lane] = d.split(n.reduce[0].id, [REST, given(lanes(target))])?;
    let partial = d.rfactor(lane)?;
    // The partial results take over the nest; the block combines them after it.
    let outer = ids(&n.spatial);
    d.reverse_compute_at(n.block, outer[outer.len() - 1])?;
    d.set_scope(d.output(partial), Scope::Register)?;
    d.vectorize(lane)?;
    d.decompose_reduction(partial, terms)?;
    let [part] = d.along(n.block, [PART])?;
    d.decompose_reduction(n.block, part)?;
    d.unroll(part)?;
    if target.threads > 1 {
        // Parallel rows; the innermost loop stays where it is.
        d.parallel_if_legal(outer[0]);
    }
    Ok(())
}

/// A reduction to few results: several vectors of sums go on side by side. Where the results are less than a vector,
/// it has sums of several terms.
fn parts(d: &mut Draft, n: &Nest, target: &CpuTarget) -> Written<()> {
    let along = n.spatial.iter().rposition(|l| l.extent > 1);
    let at = along.expect("there are several results");
    let (results, terms) = (n.spatial[at].extent, n.reduce[0].extent);
    let whole = lanes(target);
    let width = whole.min((results as u64).next_power_of_two() as i64);
    let fills = width == results && terms % (SIDE_BY_SIDE * (whole / width)) == 0;
    let beside = if fills { whole / width } else { 1 };
    let [terms, part] = d.split(n.reduce[0].id, [REST, given(SIDE_BY_SIDE * beside)])?;
    let partial = d.rfactor(part)?;
    // The results of a part lie side by side.
    let sums = d.output(partial);
    let last = d.program().buffer(sums).shape.len() - 1;
    let order: Vec<usize> = (0..at).chain([last]).chain(at..last).collect();
    d.lay_out(sums, &[], &order)?;
    let [vectors, mut lane] = d.split(n.spatial[at].id, [REST, given(width)])?;
    let mut outer = ids(&n.spatial);
    outer[at] = vectors;
    d.reorder(&[&outer[..], &[terms, part, lane]].concat())?;
    let mut rows = part;
    if beside > 1 {
        let fused = d.fuse(part, lane)?;
        [rows, lane] = d.split(fused, [REST, given(whole)])?;
    }
    d.vectorize_if_legal(lane);
    d.unroll(rows)?;
    d.decompose_reduction(partial, terms)?;
    Ok(())
}

/// A block that goes on along some of its axes: threads share the others. Vectors go along the innermost of them if
/// its elements lie side by side, and several vectors are inside the ordered loops: then elements are visited as they
/// lie, and no vector waits for the one just before it. Else some of its values go on side by side. Where the block runs
/// on a condition that may fail for good, each value ends where its own fails. Updates of elements that the data name go along
/// the ordered axis where they lie so (`goes_along_order`).
/// Rows are read and written from one end to the other. `op:cumulative_sum(outer=1,n=4096,inner=256)` takes 0.42 ms with half
/// of each row and then the other half, and 0.28 ms with whole rows (a Xeon with AMX).
fn ordered(d: &mut Draft, n: &Nest, target: &CpuTarget, style: &Style) -> Written<()> {
    let Some(at) = n.spatial.iter().rposition(|l| l.extent > 1) else {
        return Ok(());
    };
    let along = &n.spatial[at];
    let mut outer = ids(&n.spatial);
    if ends_by_data(d.program(), n) || goes_along_order(d.program(), n, along) {
        d.parallel(&outer, target.threads)?;
        return d.run_parallel();
    }
    let mut inner = Vec::new();
    let width = match is_vector(d, n, along) {
        true => lanes(target).min((along.extent as u64).next_power_of_two() as i64),
        false => 1,
    };
    let [mut rest, lane] = d.split(along.id, [REST, given(width)])?;
    if style.tile {
        let others: i64 = n.spatial[..at].iter().map(|l| l.extent).product();
        let rows = width > 1 || lies_inside(d.program(), n, along);
        let most = match rows && width == 1 {
            true => along.extent / APART,
            false => along.extent,
        };
        let parts = Parts {
            fewest: ((i64::from(target.threads) - 1) / others + 1)
                .min(most)
                .max(1),
            longest: match rows {
                true => target.l1_bytes as i64 / RUNS / (width * DType::F32.size() as i64),
                false => 1,
            },
        };
        (rest, inner) = runs(d, &format!("beside_{}", n.name), rest, &parts)?;
    }
    outer[at] = rest;
    let order = [&outer[..], &ids(&n.ordered), &inner, &[lane]].concat();
    d.reorder(&order)?;
    d.parallel(&outer, target.threads)?;
    if width > 1 {
        d.vectorize_if_legal(lane);
    }
    if let Some(beside) = inner.last() {
        d.unroll(*beside)?;
    }
    d.run_parallel()
}

/// Whether an ordered block runs on a condition that no later iteration mends. A condition on the iteration itself, such as that
/// an update's index is inside, ends nothing.
fn ends_by_data(p: &Program, n: &Nest) -> bool {
    let condition = p.block(n.block).runs_where();
    let of_iteration = |c: &Expr| n.ordered.iter().any(|l| uses(c, variable(p, n, l)));
    condition.is_some_and(|c| !of_iteration(c))
}

/// Whether the data say where each iteration writes, and what it reads lies side by side along the ordered axis, not along the
/// axis `along`. Then values side by side gain nothing: an iteration waits for the one before it only where both write the same
/// element.
fn goes_along_order(p: &Program, n: &Nest, along: &AxisLoop) -> bool {
    let by_data = |w: &ir::Write| w.indices.iter().any(Expr::loads);
    let last = n.ordered.last().is_some_and(|l| lies_inside(p, n, l));
    p.block(n.block).writes.iter().all(by_data) && last && !lies_inside(p, n, along)
}

/// How an axis is cut whose values an ordered block goes on with apart.
struct Parts {
    /// How many parts there are at least, for threads.
    fewest: i64,
    /// Values or vectors of a part that the ordered loops go on with together, at most, or else only those side by side.
    longest: i64,
}

/// Cuts an axis: the loop outside the ordered ones, and those inside, of which the last one has values that go on side
/// by side.
fn runs(d: &mut Draft, name: &str, axis: LoopId, parts: &Parts) -> Written<(LoopId, Vec<LoopId>)> {
    let mut extent = d.program().loop_(axis).extent;
    let mut fewest = parts.fewest;
    let mut longest = ((extent + fewest - 1) / fewest).min(parts.longest);
    let (mut outside, mut rest) = (None, axis);
    if 2 * largest_divisor(extent, longest) < longest {
        let count = (extent + longest - 1) / longest;
        extent = (extent + count - 1) / count;
        (fewest, longest) = (1, extent);
        let cut = d.split(axis, [REST, given(extent)])?;
        (outside, rest) = (Some(cut[0]), cut[1]);
    }
    let side_by_side = SIDE_BY_SIDE.min((extent / fewest).max(1));
    let run = largest_divisor(extent, longest.max(side_by_side));
    let beside = largest_divisor(run, SIDE_BY_SIDE);
    let wanted = [extent / run, run / beside, beside];
    let tile = d.tiles(name, extent, &wanted, MOST_BESIDE);
    let [parts, run, beside] = d.split(rest, [0, 1, 2].map(|part| tile.part(part).into()))?;
    match outside {
        None => Ok((parts, vec![run, beside])),
        // The guard of the last part is outside the values side by side.
        Some(outside) => Ok((outside, vec![parts, run, beside])),
    }
}

/// Whether an ordered block writes elements side by side along an axis, and where does not depend on the data there.
fn is_vector(d: &Draft, n: &Nest, along: &AxisLoop) -> bool {
    let block = d.block(n.block);
    let mut iters = block.iters.iter().map(|i| i.var);
    let Some(var) = iters.find(|v| d.program().var(*v).name == along.axis) else {
        return false;
    };
    let lies = |w: &ir::Write| match w.indices.split_last() {
        Some((last, others)) => {
            last.as_var() == Some(var) && !others.iter().any(|e| e.uses_var(var))
        }
        None => false,
    };
    block.writes.iter().all(lies)
}
