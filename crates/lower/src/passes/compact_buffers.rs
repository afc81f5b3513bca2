//! An intermediate shrinks to what one iteration of its allocation site touches.
//!
//! Every index is rebased to the start of that region. A buffer that lives for
//! one iteration of a vectorized loop gets a further dimension for the lanes,
//! which all run at once. Parameters keep their shape.

use crate::LowerError;
use crate::nest::{Nest, Stmt, walk};
use ir::affine::Ranges;
use ir::region::{RegionDim, hull, span};
use ir::simplify::simplify;
use ir::{BufferId, Expr, LoopKind, Role, VarId};
use std::collections::BTreeMap;

/// How the indices of one buffer change.
struct Rebase {
    mins: Vec<Expr>,
    lane: Option<VarId>,
}

pub(crate) fn compact_buffers(nest: &mut Nest) -> Result<(), LowerError> {
    let ranges = nest.ranges();
    let paths = loop_paths(nest);
    let mut rebase: BTreeMap<BufferId, Rebase> = BTreeMap::new();
    for (b, accesses) in accesses(nest) {
        let storage = nest.storage(b);
        let outside: Vec<VarId> = match storage.site.and_then(|s| paths.get(&s)) {
            Some((path, _)) => path.clone(),
            None => vec![],
        };
        let dims = region(&accesses, &nest.program.buffer(b).shape, &outside, &ranges);
        let mut shape: Vec<i64> = dims.iter().map(|d| d.extent).collect();
        let lane = storage.site.and_then(|s| Some((s, paths.get(&s)?.1?)));
        shape.extend(lane.map(|(_, lanes)| lanes));
        nest.storage_mut(b).shape = shape;
        let mins = dims.into_iter().map(|d| d.min).collect();
        rebase.insert(
            b,
            Rebase {
                mins,
                lane: lane.map(|l| l.0),
            },
        );
    }
    for s in nest.prepare.iter_mut().chain(&mut nest.kernel) {
        s.map_accesses(&mut |b, indices| Some(rebased(rebase.get(&b)?, indices, &ranges)));
    }
    Ok(())
}

/// For every loop variable: the loop variables up to and including it, and its
/// extent if the loop is vectorized.
fn loop_paths(nest: &Nest) -> BTreeMap<VarId, (Vec<VarId>, Option<i64>)> {
    let mut out = BTreeMap::new();
    for stmts in [&nest.prepare, &nest.kernel] {
        walk(stmts, &mut Vec::new(), &mut |s, path| {
            if let Stmt::For(l) = s {
                let mut path = path.to_vec();
                path.push(l.var);
                let lanes = (l.kind == LoopKind::Vectorized).then_some(l.extent);
                out.insert(l.var, (path, lanes));
            }
        });
    }
    out
}

/// The index lists of all loads and stores of every buffer that may shrink.
fn accesses(nest: &Nest) -> BTreeMap<BufferId, Vec<Vec<Expr>>> {
    let mut out: BTreeMap<BufferId, Vec<Vec<Expr>>> = BTreeMap::new();
    let mut add = |b: BufferId, indices: &[Expr]| {
        let fixed = nest.program.buffer(b).role != Role::Intermediate;
        if fixed || nest.storage(b).temporary {
            return;
        }
        let list = out.entry(b).or_default();
        if !list.iter().any(|i| i == indices) {
            list.push(indices.to_vec());
        }
    };
    for stmts in [&nest.prepare, &nest.kernel] {
        walk(stmts, &mut Vec::new(), &mut |s, _| {
            if let Stmt::Assign(a) = s {
                add(a.buffer, &a.indices);
            }
            for e in s.exprs() {
                e.visit_loads(&mut add);
            }
        });
    }
    out
}

/// The box that all accesses stay in while the variables `outside` stand still.
fn region(
    accesses: &[Vec<Expr>],
    shape: &[i64],
    outside: &[VarId],
    ranges: &Ranges,
) -> Vec<RegionDim> {
    let relaxed = |v: VarId| !outside.contains(&v);
    let dimension = |d: usize| {
        let mut spans = accesses.iter().map(|i| span(&i[d], &relaxed, ranges));
        let first = spans.next()??;
        spans.try_fold(first, |a, b| hull(&a, &b?, ranges))
    };
    let of = |(d, n): (usize, &i64)| {
        let whole = RegionDim {
            min: Expr::int(0),
            extent: (*n).max(1),
        };
        match dimension(d) {
            None => whole,
            // A guarded access may reach over the border; what is touched does not.
            Some(r) => match r.min.as_int() {
                Some(lo) => {
                    let end = lo.saturating_add(r.extent).min(*n);
                    let lo = lo.clamp(0, (n - 1).max(0));
                    RegionDim {
                        min: Expr::int(lo),
                        extent: (end - lo).max(1),
                    }
                }
                None if r.extent >= *n => whole,
                None => r,
            },
        }
    };
    shape.iter().enumerate().map(of).collect()
}

/// The indices of an access to a buffer that starts elsewhere.
fn rebased(r: &Rebase, indices: &[Expr], ranges: &Ranges) -> Vec<Expr> {
    let moved = indices
        .iter()
        .zip(&r.mins)
        .map(|(i, min)| match min.as_int() {
            Some(0) => i.clone(),
            _ => simplify(&(i - min), ranges),
        });
    moved.chain(r.lane.map(Expr::var)).collect()
}
