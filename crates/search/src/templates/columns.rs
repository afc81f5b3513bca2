//! Programs that work along an axis other than the innermost one: a softmax of the channels
//! of an image.
//!
//! Some vectors of neighbouring columns are computed together, from the first block to the
//! last, so that what passes between the blocks stays in the nearest cache and what the
//! reductions give in registers.

use super::Templates;
use crate::draft::{Draft, REST, Written, given};
use crate::nests::{Nest, ids};
use ir::{BlockId, CpuTarget, Expr, LoopId, Program, Role, Scope, VarId};
use schedule::own_loops;

/// Vectors of columns that are computed together, at most: independent chains of operations.
const MOST_VECTORS: i64 = 4;

/// What a block does with a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// One result for each element.
    Elements,
    /// One result from all elements.
    Reduction,
    /// One result from other results.
    Scalar,
}

/// A program that works column by column.
struct Columns<'a> {
    parts: Vec<(&'a Nest, Part)>,
    /// The axis along a column, by its position in the last block.
    axis: usize,
}

/// The sketch of a program whose every block works on the columns of its last one; none
/// for others.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    if let Some(columns) = recognise(program, all, target) {
        found.write(Draft::new("columns", program), |d| {
            write(d, &columns, target)
        });
    }
}

fn recognise<'a>(program: &Program, all: &'a [Nest], target: &CpuTarget) -> Option<Columns<'a>> {
    let last = all.last()?;
    let shape = last.shape();
    let reduction = all.iter().find(|n| n.is_reduction)?;
    let [term] = &reduction.reduce[..] else {
        return None;
    };
    let kept = reduction.shape();
    let without = |axis: &usize| {
        let mut others = shape.clone();
        let extent = others.remove(*axis);
        extent == term.extent && others == kept
    };
    let axis = (0..shape.len().saturating_sub(1)).find(without)?;
    let lanes = target.lanes(
        program
            .buffer(program.block(last.block).writes[0].buffer)
            .dtype,
    );
    if last.is_reduction || shape[shape.len() - 1] < lanes {
        return None;
    }
    let part = |n: &'a Nest| {
        let own = n.shape();
        let part = match n.is_reduction {
            true if own == kept && n.reduce.len() == 1 && n.reduce[0].extent == term.extent => {
                Part::Reduction
            }
            false if own == shape => Part::Elements,
            false if own == kept => Part::Scalar,
            _ => return None,
        };
        let inner = n.block == last.block || is_own(program, n.block);
        (n.writes == 1 && inner && at_own_columns(program, (n, part), axis)).then_some((n, part))
    };
    let parts: Vec<(&Nest, Part)> = all.iter().map(part).collect::<Option<_>>()?;
    Some(Columns { parts, axis })
}

/// Whether a block writes an intermediate.
fn is_own(program: &Program, b: BlockId) -> bool {
    let buffer = program.buffer(program.block(b).writes[0].buffer);
    buffer.role == Role::Intermediate && buffer.dtype.is_float()
}

/// Whether a block reads of others only what they made of its own column.
fn at_own_columns(program: &Program, (n, part): (&Nest, Part), axis: usize) -> bool {
    let block = program.block(n.block);
    let mut others: Vec<VarId> = block.spatial_iters().map(|i| i.var).collect();
    if part == Part::Elements {
        others.remove(axis);
    }
    block.loads().iter().all(|(buffer, at)| {
        if program.buffer(*buffer).role != Role::Intermediate {
            return true;
        }
        let mut at: Vec<Option<VarId>> = at.iter().map(Expr::as_var).collect();
        if at.len() > others.len() {
            at.remove(axis);
        }
        at.len() == others.len() && at.iter().zip(&others).all(|(a, v)| *a == Some(*v))
    })
}

fn write(d: &mut Draft, columns: &Columns, target: &CpuTarget) -> Written<()> {
    let Some(((last, _), others)) = columns.parts.split_last() else {
        return Err(d.missing("there is no block".into()));
    };
    let lanes = target.lanes(d.program().buffer(d.output(last.block)).dtype);
    let mut outer = ids(&last.spatial);
    let along = outer.remove(columns.axis);
    let Some(columns_loop) = outer.pop() else {
        return Err(d.missing("there are no columns".into()));
    };
    let extent = d.program().loop_(columns_loop).extent;
    let options: Vec<i64> = (1..=MOST_VECTORS).filter(|v| v * lanes <= extent).collect();
    let even = options.iter().rev().find(|v| extent % (*v * lanes) == 0);
    let default = *even.unwrap_or(&options[options.len() - 1]);
    let count = d.choose("vectors", &options, default);
    let [place, vectors, lane] =
        d.split(columns_loop, [REST, count.value().into(), given(lanes)])?;
    outer.push(place);
    d.reorder(&[&outer[..], &[along, vectors, lane]].concat())?;
    let fused = d.parallel(&outer, target.threads)?.unwrap_or(place);
    for (n, _) in others.iter().rev() {
        d.compute_at(n.block, fused)?;
    }
    d.run_parallel()?;
    for (n, part) in others {
        schedule(d, (n, *part), lanes)?;
    }
    d.vectorize(lane)?;
    d.unroll(vectors)?;
    if target.threads <= 1 {
        d.attempt_partition(fused);
    }
    Ok(())
}

/// Vectors of columns in a block that has its place.
fn schedule(d: &mut Draft, (n, part): (&Nest, Part), lanes: i64) -> Written<()> {
    let mut own = own_loops(d.program(), n.block);
    let terms = own.split_off(n.spatial.len());
    let Some(columns) = own.last().copied() else {
        return Err(d.missing(format!("`{}` has no columns", n.name)));
    };
    let [vectors, lane] = d.split(columns, [REST, given(lanes)])?;
    if let Some(term) = terms.first().copied() {
        let order: Vec<LoopId> = [term, vectors, lane].to_vec();
        d.reorder(&order)?;
    }
    d.vectorize(lane)?;
    d.unroll(vectors)?;
    if part != Part::Elements {
        d.set_scope(d.output(n.block), Scope::Register)?;
    }
    if let Some(term) = terms.first().copied() {
        d.decompose_reduction(n.block, term)?;
    }
    Ok(())
}
