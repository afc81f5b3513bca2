//! In place: which outputs of a program may have the memory of an input.
//!
//! An output may overwrite an input whose elements each are read by the one
//! instance that writes the output's element of the same index: it has read
//! before it writes, and nobody reads later. Sound, not complete; seen on the
//! scheduled program, since a schedule may compute an element twice or copy an
//! input when part of it is overwritten.

use crate::nest::path;
use crate::recover::{Access, same_iteration};
use ir::affine::{Interval, Ranges, bounds};
use ir::region::{bound, program_ranges};
use ir::simplify::simplify;
use ir::{BlockId, BufferId, Expr, Node, Program, Role, Usage, VarId};

/// Pairs of an output and an input that may share one memory, in the order of
/// the parameters. An output or input may be in several pairs; of any one of
/// them only one may be made use of.
pub fn in_place(p: &Program) -> Vec<(BufferId, BufferId)> {
    let usage = p.usage();
    let ranges = program_ranges(p);
    let of = |role| p.params.iter().filter(move |b| p.buffer(**b).role == role);
    let mut pairs = Vec::new();
    for output in of(Role::Output) {
        let alike = |input: &&BufferId| {
            let (a, b) = (p.buffer(*output), p.buffer(**input));
            a.dtype == b.dtype && a.shape == b.shape && a.view.is_none() && b.view.is_none()
        };
        let inputs: Vec<BufferId> = of(Role::Input).filter(alike).copied().collect();
        if inputs.is_empty() || !written_once(p, &usage[output.index()], &ranges) {
            continue;
        }
        for input in inputs {
            let readers = &usage[input.index()].consumers;
            if readers.is_empty() {
                continue;
            }
            if readers
                .iter()
                .all(|b| reads_what_it_writes(p, *b, input, *output, &ranges))
            {
                pairs.push((*output, input));
            }
        }
    }
    pairs
}

/// Whether every element of an output is written by one instance of one block
/// at most, and read by none.
fn written_once(p: &Program, usage: &Usage, r: &Ranges) -> bool {
    let indices: Option<Vec<(BlockId, Vec<Expr>)>> = usage
        .producers
        .iter()
        .map(|b| Some((*b, write_of(p, *b)?)))
        .collect();
    let Some(indices) = indices else { return false };
    let apart = |a: &[Expr], b: &[Expr]| {
        let mut spans = a.iter().zip(b).map(|(a, b)| (bounds(a, r), bounds(b, r)));
        spans.any(|(a, b)| matches!((a, b), (Some(a), Some(b)) if disjoint(a, b)))
    };
    usage.consumers.is_empty()
        && indices.iter().all(|(b, at)| one_instance(p, *b, at, r))
        && indices.iter().enumerate().all(|(i, (_, a))| {
            let mut later = indices[i + 1..].iter();
            later.all(|(_, b)| apart(a, b))
        })
}

fn disjoint(a: Interval, b: Interval) -> bool {
    a.hi < b.lo || b.hi < a.lo
}

/// The indices, over loop variables, of the write of a block; `None` if it has
/// several, which are not stored at once, or reduces.
fn write_of(p: &Program, b: BlockId) -> Option<Vec<Expr>> {
    let block = p.block(b);
    match block.writes.as_slice() {
        [w] if block.reduction.is_none() && block.tensor.is_none() => {
            Some(w.indices.iter().map(|i| bound(block, i)).collect())
        }
        _ => None,
    }
}

/// Whether no two iterations of the loops around a block touch one element there.
fn one_instance(p: &Program, b: BlockId, at: &[Expr], r: &Ranges) -> bool {
    let access = Access::new(at, r);
    let vars: Vec<VarId> = path(p, Node::Block(b))
        .iter()
        .map(|l| p.loop_(*l).var)
        .collect();
    (0..vars.len()).all(|i| same_iteration(&access, &access, vars[i], &vars[..i], r))
}

/// Whether the block loads the input only at the index where it writes the output.
fn reads_what_it_writes(
    p: &Program,
    b: BlockId,
    input: BufferId,
    output: BufferId,
    r: &Ranges,
) -> bool {
    let block = p.block(b);
    let Some(write) = block.writes.iter().find(|w| w.buffer == output) else {
        return false;
    };
    let standing = |v: VarId| {
        let range = r.get(v)?;
        (range.lo == range.hi).then(|| Expr::int(range.lo))
    };
    let over_loops = |at: &[Expr]| -> Vec<Expr> {
        let bound = at.iter().map(|i| bound(block, i).substitute(&standing));
        bound.map(|i| simplify(&i, r)).collect()
    };
    let written = over_loops(&write.indices);
    let mut loads = block.loads().into_iter().filter(|(x, _)| *x == input);
    loads.all(|(_, at)| over_loops(&at) == written)
}
