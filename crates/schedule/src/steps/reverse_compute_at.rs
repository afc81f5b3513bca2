//! reverse_compute_at{block, loop}: consume what a loop produces in the same
//! iteration.
//!
//! The consumer gets new loops over the box that its producers complete in one
//! iteration. Legal only if the boxes of all iterations cut what is consumed
//! into disjoint parts, so that every instance of the consumer still runs once:
//! the producers' loops inside must fill the box exactly, their predicates may
//! only cut off what lies outside their domain, and their reductions must end
//! inside the loop.

use crate::illegal::Illegal;
use crate::legality::settled;
use crate::nest::{
    change, child_with, common, detach, exactly_within, insert_after, inside_vector,
    iteration_tests, path, path_through, renest, whole_dim, whole_domain,
};
use crate::steps::{block_named, loop_named};
use crate::written::{completed, written_box};
use ir::affine::Affine;
use ir::region::{Access, RegionDim, accessed, block_accesses, bound, program_ranges, span};
use ir::simplify::simplify;
use ir::{Block, BlockId, BufferId, Expr, Iter, IterKind, LoopId, Node, Program, VarId};

pub(crate) const STEP: &str = "reverse_compute_at";

struct Plan {
    spans: Vec<RegionDim>,
    tests: Vec<Expr>,
    /// The child of the loop after which the nest is put.
    after: Node,
}

pub(crate) fn apply(program: &mut Program, block: &str, target: &str) -> Result<(), Illegal> {
    let c = block_named(program, STEP, block)?;
    let l = loop_named(program, STEP, target)?;
    let refuse = |why| Illegal::new(STEP, block, why);
    let plan = plan(program, c, l).map_err(refuse)?;
    change(program, |next| {
        detach(next, Node::Block(c));
        let nest = renest(next, c, &plan.spans, &plan.tests);
        insert_after(next, Some(l), plan.after, nest);
        Ok(())
    })
    .map_err(refuse)
}

fn plan(p: &Program, c: BlockId, l: LoopId) -> Result<Plan, String> {
    settled(p, c)?;
    let consumer = p.block(c);
    let target = &p.loop_(l).name;
    let at = path_through(p, l);
    let old = path(p, Node::Block(c));
    if consumer.tensor.is_some() {
        return Err("it is tensorized: move it before tensorizing".into());
    }
    if consumer.reduction.as_ref().is_some_and(|r| !r.init) {
        return Err("another block initialises its accumulators".into());
    }
    if old.contains(&l) {
        return Err(format!("it is under `{target}` already"));
    }
    if inside_vector(p, l) {
        return Err(format!("`{target}` is inside a vectorized loop"));
    }
    for w in &consumer.writes {
        if p.producers(w.buffer) != [c] {
            let name = &p.buffer(w.buffer).name;
            return Err(format!("its output `{name}` has other producers"));
        }
    }
    let shared = common(&at, &old);
    let now = current(p, c, &shared)?;
    let mut spans: Option<Vec<RegionDim>> = None;
    let mut after: Option<(usize, Node)> = None;
    let mut tests = iteration_tests(p, &[c], &shared);
    for input in consumer.reads() {
        let Some(last) = locate(p, input, l, &at, &shared)? else {
            continue;
        };
        let found = consumed(p, c, input, &at, &shared, &now)?;
        if spans.as_ref().is_some_and(|s| *s != found) {
            return Err(format!(
                "`{target}` produces different parts of its inputs in one iteration"
            ));
        }
        spans = Some(found);
        after = later(after, last);
        tests.extend(iteration_tests(p, &p.producers(input), &at));
    }
    match (spans, after) {
        (Some(spans), Some((_, after))) => Ok(Plan {
            spans,
            tests,
            after,
        }),
        _ => Err(format!("no block under `{target}` produces its inputs")),
    }
}

/// What each variable of the consumer covers in one iteration of the loops
/// that it shares with its new place: a box, or an error.
fn current(p: &Program, c: BlockId, shared: &[LoopId]) -> Result<Vec<RegionDim>, String> {
    let block = p.block(c);
    if shared.is_empty() {
        return Ok(whole_domain(block));
    }
    let r = program_ranges(p);
    written_box(p, c, block.writes[0].buffer, shared, &r)?;
    let outer: Vec<VarId> = shared.iter().map(|l| p.loop_(*l).var).collect();
    let moves = |v: VarId| !outer.contains(&v);
    let covered = |i: &Iter| {
        let d = span(&bound(block, &Expr::var(i.var)), &moves, &r);
        d.map_or_else(
            || Ok(whole_dim(i.extent)),
            |d| exactly_within(&d, i.extent, &r),
        )
    };
    block.iters.iter().map(covered).collect()
}

/// The later of two children by position.
fn later(a: Option<(usize, Node)>, b: (usize, Node)) -> Option<(usize, Node)> {
    match a {
        Some(a) if a.0 >= b.0 => Some(a),
        _ => Some(b),
    }
}

/// The last child of the loop that produces `input`; `None` if the input is
/// complete before the loop starts, wherever the consumer stands.
fn locate(
    p: &Program,
    input: BufferId,
    l: LoopId,
    at: &[LoopId],
    shared: &[LoopId],
) -> Result<Option<(usize, Node)>, String> {
    let name = &p.buffer(input).name;
    let mut last = None;
    let mut outside = false;
    for q in p.producers(input) {
        let with = common(at, &path(p, Node::Block(q)));
        if with.len() == at.len() {
            let child = child_with(p, Some(l), Node::Block(q)).expect("under the loop");
            last = later(last, child);
            continue;
        }
        outside = true;
        let level = with.last().copied();
        let order = |n: Node| child_with(p, level, n).map(|(at, _)| at);
        let before = order(Node::Block(q)) < order(Node::Loop(l));
        if with.len() > shared.len() || !before {
            let target = &p.loop_(l).name;
            return Err(format!(
                "its input `{name}` is not complete inside `{target}`"
            ));
        }
    }
    if last.is_some() && outside {
        return Err(format!(
            "parts of its input `{name}` are produced elsewhere"
        ));
    }
    Ok(last)
}

/// The values of each of the consumer's variables that read what one
/// iteration of the loop produces of `input`; `now` for variables that do not
/// read it.
fn consumed(
    p: &Program,
    c: BlockId,
    input: BufferId,
    at: &[LoopId],
    shared: &[LoopId],
    now: &[RegionDim],
) -> Result<Vec<RegionDim>, String> {
    let r = program_ranges(p);
    let name = &p.buffer(input).name;
    let consumer = p.block(c);
    let offsets = offsets(consumer, input, &p.buffer(input).shape)
        .ok_or_else(|| format!("it does not read `{name}` element by element"))?;
    let region = completed(p, input, at, &r)?;
    if let Some(outer) = shared.last() {
        let nodes = p.children(Some(*outer));
        let made = accessed(p, nodes, input, shared, Access::Writes);
        let used = accessed(p, &[Node::Block(c)], input, shared, Access::Reads);
        let (made, used) = (made.expect("it is written"), used.expect("it is read"));
        // What is padded is produced beyond the consumer's domain.
        let all = |(made, (used, (v, offset))): (&RegionDim, (&RegionDim, &(VarId, i64)))| {
            let whole = consumer.iters.iter().find(|i| i.var == *v);
            let whole = whole.map(|i| whole_dim(i.extent));
            let from_start = *offset == 0 && made.min == used.min && made.extent > used.extent;
            made == used || from_start && whole.is_some_and(|w| w == *used)
        };
        let used = used.dims.iter().zip(&offsets);
        if !made.dims.iter().zip(used).all(all) {
            let outer = &p.loop_(*outer).name;
            return Err(format!(
                "an iteration of `{outer}` produces more of `{name}` than it consumes"
            ));
        }
    }
    let mut spans = Vec::new();
    for (i, now) in consumer.iters.iter().zip(now) {
        let dim = offsets.iter().position(|(v, _)| *v == i.var);
        let span = match dim {
            None => now.clone(),
            Some(d) => RegionDim {
                min: simplify(&(&region[d].min - offsets[d].1), &r),
                extent: region[d].extent,
            },
        };
        let span = exactly_within(&span, i.extent, &r)?;
        if i.kind != IterKind::Spatial && span != whole_dim(i.extent) {
            return Err(format!(
                "it reduces over a part of `{name}` that one iteration does not produce whole"
            ));
        }
        spans.push(span);
    }
    Ok(spans)
}

/// Per dimension the variable and the constant in `variable + constant`, if all
/// loads of the buffer are indexed so, in the same way and never outside it.
fn offsets(block: &Block, buffer: BufferId, shape: &[i64]) -> Option<Vec<(VarId, i64)>> {
    let loads = block_accesses(block, buffer, Access::Reads);
    if loads.iter().any(|l| *l != loads[0]) {
        return None;
    }
    let mut out: Vec<(VarId, i64)> = Vec::new();
    for (index, size) in loads[0].iter().zip(shape) {
        let affine = Affine::of(index)?;
        let (v, factor) = affine.terms.iter().next()?;
        let iter = block.iters.iter().find(|i| i.var == *v)?;
        let offset = affine.constant;
        let once = affine.terms.len() == 1 && *factor == 1 && out.iter().all(|(x, _)| x != v);
        if !once || offset < 0 || offset + iter.extent > *size {
            return None;
        }
        out.push((*v, offset));
    }
    Some(out)
}
