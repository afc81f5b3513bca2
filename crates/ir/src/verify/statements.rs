//! Statements: what blocks write, reduce and read, and in which order.

use super::{Body, Broken};
use crate::affine::{Affine, Interval, Ranges, bounds};
use crate::expr::Expr;
use crate::program::{Block, BufferId, IterKind, Role, VarId};
use crate::simplify::simplify;
use std::collections::HashSet;

pub(super) fn writes(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let p = body.p;
    let mut written = HashSet::new();
    for (id, _) in &body.blocks {
        let b = p.block(*id);
        let block = || b.name.clone();
        if b.writes.is_empty() {
            broken.push(Broken::WritesNothing { block: block() });
        }
        for (i, w) in b.writes.iter().enumerate() {
            written.insert(w.buffer);
            let buffer = || body.buffer(w.buffer);
            if b.writes[..i].iter().any(|x| x.buffer == w.buffer) {
                let (block, buffer) = (block(), buffer());
                broken.push(Broken::WritesTwice { block, buffer });
            } else if matches!(p.buffer(w.buffer).role, Role::Input | Role::Constant) {
                let (block, buffer) = (block(), buffer());
                broken.push(Broken::ReadOnly { block, buffer });
            }
        }
        let own = |r: &BufferId| b.writes_to(*r) && !b.is_ordered();
        for buffer in b.reads().into_iter().filter(own) {
            broken.push(Broken::OwnOutput {
                block: block(),
                buffer: body.buffer(buffer),
            });
        }
    }
    for id in &p.params {
        if p.buffer(*id).role == Role::Output && !written.contains(id) {
            broken.push(Broken::NeverWritten {
                buffer: body.buffer(*id),
            });
        }
    }
}

/// All variables of a block with extent and kind.
fn points(b: &Block) -> impl Iterator<Item = (VarId, i64, IterKind)> + '_ {
    let tensor = b.tensor.iter().flat_map(|t| t.iters.iter().copied());
    b.iters
        .iter()
        .map(|i| (i.var, i.extent, i.kind))
        .chain(tensor)
}

/// Spatial variables tell the elements of a write apart; reduce variables do
/// not occur in its indices.
pub(super) fn iterations(body: &Body<'_>, broken: &mut Vec<Broken>) {
    for (id, _) in &body.blocks {
        let b = body.p.block(*id);
        for (v, extent, kind) in points(b) {
            let used = |w: &crate::Write| w.indices.iter().any(|i| i.uses_var(v));
            let names = || (b.name.clone(), body.p.var(v).name.clone());
            if kind == IterKind::Ordered {
                if b.reduction.is_some() {
                    let (block, var) = names();
                    broken.push(Broken::ReducesInOrder { block, var });
                }
                continue;
            }
            if kind == IterKind::Reduce {
                if b.reduction.is_none() {
                    let (block, var) = names();
                    broken.push(Broken::NoReducer { block, var });
                } else if b.writes.iter().any(used) {
                    let (block, var) = names();
                    broken.push(Broken::ReduceIndex { block, var });
                }
                continue;
            }
            for w in b.writes.iter().filter(|w| extent > 1 && !used(w)) {
                let (block, var) = names();
                broken.push(Broken::SpatialUnused {
                    block,
                    buffer: body.buffer(w.buffer),
                    var,
                });
            }
            for buffer in across(b, v).filter(|_| extent > 1) {
                let (block, var) = names();
                broken.push(Broken::OrderedAcross {
                    block,
                    buffer: body.buffer(buffer),
                    var,
                });
            }
        }
    }
}

/// The buffers that an ordered block accesses at elements which one value of a spatial variable may share with
/// another: those are apart if the variable alone is the index of one dimension, in all accesses of the same.
fn across(b: &Block, v: VarId) -> impl Iterator<Item = BufferId> {
    let loads = if b.is_ordered() { b.loads() } else { vec![] };
    let written = b.writes.iter().filter(|_| b.is_ordered());
    written.filter_map(move |w| {
        let own = loads.iter().filter(|(x, _)| *x == w.buffer);
        let mut all = own.map(|(_, at)| at).chain([&w.indices]);
        let is_var = |e: &Expr| *e == Expr::var(v);
        let apart = w.indices.iter().position(is_var);
        let shared = apart.is_none_or(|d| !all.all(|at| is_var(&at[d])));
        shared.then_some(w.buffer)
    })
}

/// In execution order, elements are written before they are loaded and
/// accumulators set before they are added to.
pub(super) fn order(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let p = body.p;
    let mut written: HashSet<BufferId> = HashSet::new();
    for (id, _) in &body.blocks {
        let b = p.block(*id);
        for r in b.reads() {
            let given = matches!(p.buffer(r).role, Role::Input | Role::Constant);
            // Loads of a block's own output are reported as such.
            if !given && !written.contains(&r) && (!b.writes_to(r) || b.is_ordered()) {
                broken.push(Broken::ReadBeforeWrite {
                    block: b.name.clone(),
                    buffer: body.buffer(r),
                });
            }
        }
        let accumulates = b.reduction.as_ref().is_some_and(|r| !r.init);
        for w in &b.writes {
            if accumulates && !written.contains(&w.buffer) {
                broken.push(Broken::NoInit {
                    block: b.name.clone(),
                    buffer: body.buffer(w.buffer),
                });
            }
        }
        written.extend(b.writes.iter().map(|w| w.buffer));
    }
}

/// The exact interval of an expression that is affine; `None` for all others.
fn reach(e: &Expr, ranges: &Ranges) -> Option<Interval> {
    let e = simplify(e, ranges);
    Affine::of(&e)?;
    bounds(&e, ranges)
}

/// Affine indices of writes stay inside the buffer, and affine bindings
/// without a predicate inside the domain.
pub(super) fn bounds_hold(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let p = body.p;
    for (id, path) in &body.blocks {
        let b = p.block(*id);
        let around = path.iter().map(|l| p.loop_(*l).extent);
        if around
            .chain(points(b).map(|i| i.1))
            .any(|extent| extent < 1)
        {
            continue;
        }
        let mut domain = Ranges::new();
        for (v, extent, _) in points(b) {
            domain.set(v, 0, extent - 1);
        }
        for w in &b.writes {
            let shape = &p.buffer(w.buffer).shape;
            for (dim, (index, extent)) in w.indices.iter().zip(shape).enumerate() {
                let Some(Interval { lo, hi }) = reach(index, &domain) else {
                    continue;
                };
                if lo < 0 || hi >= *extent {
                    broken.push(Broken::OutOfBounds {
                        block: b.name.clone(),
                        buffer: body.buffer(w.buffer),
                        dim,
                        lo,
                        hi,
                        extent: *extent,
                    });
                }
            }
        }
        if b.predicate.is_some() {
            continue;
        }
        let mut around = Ranges::new();
        for l in path {
            around.set(p.loop_(*l).var, 0, p.loop_(*l).extent - 1);
        }
        for i in &b.iters {
            let Some(Interval { lo, hi }) = reach(&i.binding, &around) else {
                continue;
            };
            if lo < 0 || hi >= i.extent {
                broken.push(Broken::OutOfDomain {
                    block: b.name.clone(),
                    var: p.var(i.var).name.clone(),
                    lo,
                    hi,
                    extent: i.extent,
                });
            }
        }
    }
}
