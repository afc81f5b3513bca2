//! compute_at{block, loop}: compute what the consumers under a loop need
//! there, once per iteration.
//!
//! The block gets new loops over the hull of what its consumers read in one
//! iteration; where consumers' windows overlap between iterations the overlap
//! is computed again. Buffers keep their shape: lowering shrinks them to the
//! region that one iteration touches.

use crate::illegal::Illegal;
use crate::legality::settled;
use crate::nest::{
    change, child_with, common, detach, insert_before, inside_vector, iteration_tests, path,
    path_through, renest, whole_dim,
};
use crate::steps::{block_named, loop_named};
use ir::region::{Access, RegionDim, accessed, hull, program_ranges};
use ir::simplify::{prove, simplify};
use ir::{BinaryOp, Block, BlockId, Expr, ExprKind, IterKind, LoopId, Node, Program, Role, VarId};

pub(crate) const STEP: &str = "compute_at";

struct Plan {
    spans: Vec<RegionDim>,
    tests: Vec<Expr>,
    /// The child of the loop that the nest is put before.
    before: Node,
}

pub(crate) fn apply(program: &mut Program, block: &str, target: &str) -> Result<(), Illegal> {
    let b = block_named(program, STEP, block)?;
    let l = loop_named(program, STEP, target)?;
    let refuse = |why: &str| Illegal::new(STEP, block, why);
    check_block(program, b, l).map_err(|why| refuse(&why))?;
    let plan = plan(program, b, l).map_err(|why| refuse(&why))?;
    change(program, |next| {
        detach(next, Node::Block(b));
        let nest = renest(next, b, &plan.spans, &plan.tests);
        insert_before(next, Some(l), plan.before, nest);
        check_inputs(next, b)
    })
    .map_err(|why| refuse(&why))
}

/// Whether what the moved block reads of an input was produced in the same
/// iteration of the loops they share: tails of its consumers can ask for more
/// than the input's producers were made for.
fn check_inputs(p: &Program, b: BlockId) -> Result<(), String> {
    let r = program_ranges(p);
    let here = path(p, Node::Block(b));
    for input in p.block(b).reads() {
        let producers = p.producers(input).into_iter();
        let Some(shared) = producers
            .map(|q| common(&here, &path(p, Node::Block(q))))
            .min_by_key(Vec::len)
            .filter(|s| !s.is_empty())
        else {
            continue;
        };
        let nodes = p.children(shared.last().copied());
        let made = accessed(p, nodes, input, &shared, Access::Writes);
        let read = accessed(p, &[Node::Block(b)], input, &shared, Access::Reads);
        let (made, read) = (made.expect("it is written"), read.expect("it is read"));
        let inside = made.dims.iter().zip(&read.dims).all(|(m, d)| {
            let end = |d: &RegionDim| &d.min + d.extent;
            m == d || prove(&m.min.clone().le(&d.min), &r) && prove(&end(d).le(end(m)), &r)
        });
        if !inside {
            let name = &p.buffer(input).name;
            return Err(format!(
                "it would need more of `{name}` than is computed there: move it first"
            ));
        }
    }
    Ok(())
}

fn check_block(p: &Program, b: BlockId, l: LoopId) -> Result<(), String> {
    settled(p, b)?;
    let block = p.block(b);
    let target = &p.loop_(l).name;
    if block.tensor.is_some() {
        return Err("it is tensorized: move it before tensorizing".into());
    }
    if block.reduction.as_ref().is_some_and(|r| !r.init) {
        return Err("another block initialises its accumulators".into());
    }
    if path(p, Node::Block(b)).contains(&l) {
        return Err(format!("it is under `{target}` already"));
    }
    if inside_vector(p, l) {
        return Err(format!("`{target}` is inside a vectorized loop"));
    }
    let mut consumed = false;
    for w in &block.writes {
        let buffer = p.buffer(w.buffer);
        if buffer.role != Role::Intermediate {
            return Err(format!("`{}` is not an intermediate", buffer.name));
        }
        if p.producers(w.buffer) != [b] {
            return Err(format!("`{}` has other producers", buffer.name));
        }
        for c in p.consumers(w.buffer) {
            consumed = true;
            if !path(p, Node::Block(c)).contains(&l) {
                let name = &p.block(c).name;
                return Err(format!("its consumer `{name}` is not under `{target}`"));
            }
        }
    }
    if !consumed {
        return Err(format!("nothing under `{target}` reads it"));
    }
    Ok(())
}

fn plan(p: &Program, b: BlockId, l: LoopId) -> Result<Plan, String> {
    let block = p.block(b);
    let child = |c: BlockId| child_with(p, Some(l), Node::Block(c));
    let consumers = block.writes.iter().flat_map(|w| p.consumers(w.buffer));
    let consumers: Vec<BlockId> = consumers.collect();
    let (first, before) = consumers
        .iter()
        .filter_map(|c| child(*c))
        .min_by_key(|(at, _)| *at)
        .expect("checked: a consumer is under the loop");
    for input in block.reads() {
        for (at, _) in p.producers(input).into_iter().filter_map(child) {
            if at >= first {
                let name = &p.buffer(input).name;
                return Err(format!(
                    "its first consumer there runs before its input `{name}` is complete"
                ));
            }
        }
    }
    let free = path_through(p, l);
    let mut spans: Vec<Option<RegionDim>> = vec![None; block.iters.len()];
    let r = program_ranges(p);
    for w in &block.writes {
        let Some(region) = accessed(p, p.children(Some(l)), w.buffer, &free, Access::Reads) else {
            continue;
        };
        for (span, iter) in spans.iter_mut().zip(&block.iters) {
            let needed = match iter.kind {
                IterKind::Spatial => needed(block, &w.indices, &region.dims, iter.var, &r),
                IterKind::Reduce | IterKind::Ordered => None,
            };
            let needed = needed.unwrap_or_else(|| whole_dim(iter.extent));
            *span = Some(match span.take() {
                None => needed,
                Some(s) => hull(&s, &needed, &r).unwrap_or_else(|| whole_dim(iter.extent)),
            });
        }
    }
    let spans = spans.into_iter().zip(&block.iters);
    Ok(Plan {
        spans: spans
            .map(|(s, i)| s.unwrap_or_else(|| whole_dim(i.extent)))
            .collect(),
        tests: iteration_tests(p, &consumers, &free),
        before,
    })
}

/// The values of an iteration variable that write the region: from the index
/// that is the variable itself, or from a quotient and its remainder (a packed
/// dimension). `None` if no index tells.
fn needed(
    block: &Block,
    indices: &[Expr],
    region: &[RegionDim],
    var: VarId,
    r: &ir::affine::Ranges,
) -> Option<RegionDim> {
    debug_assert!(block.iters.iter().any(|i| i.var == var));
    let at = |want: &dyn Fn(&Expr) -> bool| indices.iter().position(want).map(|i| &region[i]);
    if let Some(dim) = at(&|e| e.as_var() == Some(var)) {
        return Some(dim.clone());
    }
    let divided = |e: &Expr, op: BinaryOp| match e.kind() {
        ExprKind::Binary(o, a, c) if *o == op && a.as_var() == Some(var) => c.as_int(),
        _ => None,
    };
    let factor = indices
        .iter()
        .find_map(|e| divided(e, BinaryOp::FloorDiv))?;
    let quotient = at(&|e| divided(e, BinaryOp::FloorDiv) == Some(factor))?;
    let remainder = at(&|e| divided(e, BinaryOp::FloorMod) == Some(factor))?;
    let start = &quotient.min * factor;
    Some(if quotient.extent == 1 {
        RegionDim {
            min: simplify(&(start + &remainder.min), r),
            extent: remainder.extent,
        }
    } else {
        RegionDim {
            min: simplify(&start, r),
            extent: quotient.extent.checked_mul(factor)?,
        }
    })
}
