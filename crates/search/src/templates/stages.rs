//! Reductions of one image one after the other, each along an axis of its own: windows that
//! are reduced axis by axis, and interpolation.
//!
//! What a stage needs of the one before is computed where the axis that it reduces begins,
//! so that it stays in the nearest cache. Every stage has vectors along the innermost axis,
//! and its sums in registers.

use super::{Templates, epilogue, main_sum, others};
use crate::draft::{Draft, REST, Written, given};
use crate::nests::{AxisLoop, Nest};
use ir::{BlockId, BufferId, CpuTarget, DType, LoopId, Program, Role, Scope};
use schedule::{Arg, own_loops};

/// Terms that are one body, at most.
const MOST_TERMS: i64 = 64;
/// Terms of all vectors of a row that are written out, at most: where the lanes of each lie is
/// then known when the code is made.
const MOST_WRITTEN_OUT: i64 = 128;
/// Bytes of a stage that are computed together by default: a part of the nearest cache.
const NEAR_BYTES: i64 = 1 << 14;
/// Parts for each thread with which sharing further loops gains nothing.
const PARTS: i64 = 4;

/// The stages of a program, the last one `main`, and what follows that.
struct Chain<'a> {
    stages: Vec<Stage<'a>>,
    out: Option<&'a Nest>,
}

struct Stage<'a> {
    nest: &'a Nest,
    /// The axis that the next stage reduces, by its position.
    next: usize,
}

/// The sketch of a program of several stages; none for others.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    if let Some(chain) = recognise(program, all) {
        found.write(Draft::new("stages", program), |d| {
            write(d, all, &chain, target)
        });
    }
}

fn recognise<'a>(program: &Program, all: &'a [Nest]) -> Option<Chain<'a>> {
    let main = main_sum(all)?;
    let mut stages: Vec<Stage> = Vec::new();
    let mut reader = main;
    while let Some((nest, next)) = all.iter().find_map(|n| before(program, n, reader)) {
        stages.insert(0, Stage { nest, next });
        reader = nest;
    }
    let last = stages.last()?.next;
    stages.push(Stage {
        nest: main,
        next: last,
    });
    // Stages go inwards: what the next one reads again is inside the loops that they share.
    let inwards = stages.windows(2).all(|s| s[0].next <= s[1].next);
    // Of a single result along its axis little of the stage before is needed.
    let several = main.spatial.get(last).is_some_and(|l| l.extent > 1);
    (inwards && several && stages[0].next > 0).then_some(Chain {
        stages,
        out: epilogue(all, main),
    })
}

/// A reduction that `reader` alone reads, at its own index but for one axis: the axis.
fn before<'a>(program: &Program, n: &'a Nest, reader: &Nest) -> Option<(&'a Nest, usize)> {
    if !n.is_reduction || n.writes != 1 || n.block == reader.block {
        return None;
    }
    let buffer: BufferId = program.block(n.block).writes[0].buffer;
    let read = program.block(reader.block);
    let own: Vec<_> = read.spatial_iters().map(|i| i.var).collect();
    let alone = program.consumers(buffer) == [reader.block];
    if !alone || program.buffer(buffer).role != Role::Intermediate {
        return None;
    }
    let loads = read.loads();
    let mut places = loads.iter().filter(|(b, _)| *b == buffer);
    let (_, at) = places.next()?;
    let others = |d: &usize| at[*d].as_var() != own.get(*d).copied();
    let changed: Vec<usize> = (0..at.len()).filter(others).collect();
    match (&changed[..], places.next()) {
        ([axis], None) if at.len() == own.len() => Some((n, *axis)),
        _ => None,
    }
}

fn write(d: &mut Draft, all: &[Nest], chain: &Chain, target: &CpuTarget) -> Written<()> {
    let Some((last, first)) = chain.stages.split_last() else {
        return Err(d.missing("there is no stage".into()));
    };
    let results = chain.stages.iter().map(|s| hold(d, s.nest, chain, target));
    let results: Vec<BlockId> = results.collect::<Written<_>>()?;
    let result = results[first.len()];
    let mut outer = own_loops(d.program(), result);
    if let Some(s) = first.last() {
        let at = s.next - 1;
        outer[at] = together(d, s.nest, (outer[at], at))?;
    }
    // What is shared is outside the place of every stage.
    let most = first.iter().map(|s| s.next).min().unwrap_or(0);
    if let Some((shared, count)) = share(d, &outer[..most], target)? {
        outer[..count].fill(shared);
    }
    let mut rows = vec![in_vectors(d, (last.nest, result), &outer, target)?];
    for (s, result) in first.iter().zip(&results).rev() {
        d.compute_at(*result, outer[s.next - 1])?;
        let own = own_loops(d.program(), *result);
        if let (Some(l), Some(whole)) = (own.last(), s.nest.spatial.last()) {
            d.pad_if_legal(*l, lanes(target, whole.extent));
        }
        rows.push(in_vectors(d, (s.nest, *result), &own, target)?);
    }
    d.run_parallel()?;
    for (vectors, terms) in rows {
        write_out(d, vectors, terms)?;
    }
    let handled = chain.stages.iter().map(|s| s.nest.block);
    let handled: Vec<BlockId> = handled.chain(chain.out.map(|o| o.block)).collect();
    others(d, all, &handled, target)
}

/// Several iterations of the loop for which a stage is computed are computed together: what
/// has just been written is not at hand yet where vectors of it are read across others. The
/// loop over so many of them.
fn together(d: &mut Draft, stage: &Nest, (place, at): (LoopId, usize)) -> Written<LoopId> {
    let extent = d.program().loop_(place).extent;
    let each: i64 = stage.spatial[at + 1..].iter().map(|l| l.extent).product();
    let bytes = d.program().buffer(d.output(stage.block)).dtype.size() as i64 * each;
    let options: Vec<i64> = (1..=extent).filter(|n| extent % n == 0).collect();
    let wanted = (NEAR_BYTES / bytes.max(1)).max(1);
    let count = d.choose("together", &options, wanted);
    let [outer, _] = d.split(place, [REST, count.value().into()])?;
    Ok(outer)
}

/// Lets a stage write registers, whole vectors of them; the block that takes the sums.
fn hold(d: &mut Draft, nest: &Nest, chain: &Chain, target: &CpuTarget) -> Written<BlockId> {
    let out = chain.out.filter(|_| nest.is(ir::names::MAIN));
    let result = match out {
        Some(out) => {
            d.set_scope(d.output(nest.block), Scope::Register)?;
            out.block
        }
        None => d.keep_in_registers(nest.block)?,
    };
    let several = |l: &&AxisLoop| l.extent > lanes(target, l.extent);
    if let Some(last) = nest.spatial.last().filter(several) {
        d.pad(last.id, Arg::Lit(lanes(target, last.extent)))?;
    }
    Ok(result)
}

/// The outermost of these loops as one for all threads, and how many of them.
fn share(d: &mut Draft, loops: &[LoopId], target: &CpuTarget) -> Written<Option<(LoopId, usize)>> {
    let mut parts = 1;
    let enough = |l: &LoopId| {
        parts *= d.program().loop_(*l).extent;
        parts >= PARTS * i64::from(target.threads)
    };
    let count = loops
        .iter()
        .position(enough)
        .map_or(loops.len(), |at| at + 1);
    let shared = d.parallel(&loops[..count], target.threads)?;
    Ok(shared.map(|l| (l, count)))
}

/// Elements of a vector along an axis.
fn lanes(target: &CpuTarget, extent: i64) -> i64 {
    let most = target.lanes(DType::F32);
    most.min((extent as u64).next_power_of_two() as i64)
}

/// Vectors of a stage's result along its innermost loop; the sums of each are formed where
/// it is written. Gives the loop over vectors, and the terms of a sum.
fn in_vectors(
    d: &mut Draft,
    (nest, result): (&Nest, BlockId),
    loops: &[LoopId],
    target: &CpuTarget,
) -> Written<(LoopId, i64)> {
    let Some(last) = loops.last().copied() else {
        return Err(d.missing("a stage has no axis".into()));
    };
    let width = lanes(target, nest.spatial.last().map_or(1, |l| l.extent));
    let [vectors, lane] = d.split(last, [REST, given(width)])?;
    d.vectorize(lane)?;
    d.compute_at(nest.block, vectors)?;
    let mut own = own_loops(d.program(), nest.block);
    let terms = own.split_off(nest.spatial.len());
    let Some(lane) = own.last().copied() else {
        return Err(d.missing(format!("`{result:?}` has no axis")));
    };
    // A single vector is the whole axis.
    d.pad_if_legal(lane, width);
    d.reorder(&[&terms[..], &[lane]].concat())?;
    d.vectorize(lane)?;
    let count = nest.reduce.iter().map(|l| l.extent).product();
    if let Some(first) = terms.first() {
        d.decompose_reduction(nest.block, *first)?;
    }
    if count <= MOST_TERMS {
        for l in terms.iter().rev() {
            d.unroll(*l)?;
        }
    }
    Ok((vectors, count))
}

/// Of a short row every vector has code of its own; of others the first and the last ones.
fn write_out(d: &mut Draft, vectors: LoopId, terms: i64) -> Written<()> {
    match d.program().loop_(vectors).extent * terms <= MOST_WRITTEN_OUT {
        true => d.unroll(vectors),
        false => {
            d.attempt_partition(vectors);
            Ok(())
        }
    }
}
