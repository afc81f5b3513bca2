//! The iterations of a vectorized loop become lanes.
//!
//! The lanes run in step: an inner loop or an if that does not depend on the
//! lane stays, conditions that do become the mask of every statement below.
//! A statement that lanes cannot express (several lanes store to one element,
//! an index is loaded by a lane-dependent index, a check) is written out once
//! for each lane. An extent that is no power of two is cut into several lane
//! groups of the largest power of two that divides it.
//!
//! An unrolled loop that combines neighbouring elements into one runs in lanes
//! too: such a statement combines its lanes in any order, as a reduction may.

use crate::LowerError;
use crate::flat::{Lane, combined};
use crate::nest::{
    Assign, For, Nest, Stmt, conjunction, conjuncts, guarded, has_load, is_byte_of, loads,
};
use ir::affine::Affine;
use ir::{BufferId, Expr, ExprKind, LoopKind, Program, VarId};

/// Wider loops are cut into groups of this many lanes.
const MAX_LANES: i64 = 64;
/// Fewer elements are combined one by one.
const MIN_COMBINED: i64 = 4;

pub(crate) fn vectorize(nest: &mut Nest) -> Result<(), LowerError> {
    nest.map_entries(|nest, stmts| {
        let p = &nest.program;
        stmts.into_iter().flat_map(|s| in_lanes(p, s)).collect()
    });
    Ok(())
}

fn in_lanes(p: &Program, s: Stmt) -> Vec<Stmt> {
    match s {
        Stmt::For(mut l) => {
            let body: Vec<Stmt> = std::mem::take(&mut l.body)
                .into_iter()
                .flat_map(|s| in_lanes(p, s))
                .collect();
            if l.kind == LoopKind::Unrolled && combines_neighbours(&body, l.var, l.extent) {
                return groups(p, &body, l.var, l.extent);
            }
            if l.kind != LoopKind::Vectorized {
                return vec![Stmt::For(For { body, ..l })];
            }
            if has_lanes(&body) {
                // A tensorized block brought its own lanes; these run one by one.
                return vec![Stmt::For(For {
                    body,
                    kind: LoopKind::Unrolled,
                    ..l
                })];
            }
            groups(p, &body, l.var, l.extent)
        }
        Stmt::If { cond, then } => guarded(
            conjuncts(&cond),
            then.into_iter().flat_map(|s| in_lanes(p, s)).collect(),
        ),
        other => vec![other],
    }
}

fn has_lanes(stmts: &[Stmt]) -> bool {
    let mut found = false;
    crate::nest::walk(stmts, &mut Vec::new(), &mut |s, _| {
        found |= matches!(s, Stmt::Assign(Assign { lane: Some(_), .. }));
    });
    found
}

/// Whether iterations only add (multiply, ...) one of several consecutive
/// elements each to the same one.
fn combines_neighbours(body: &[Stmt], var: VarId, extent: i64) -> bool {
    let [Stmt::Assign(a)] = body else {
        return false;
    };
    let Some((_, term)) = combined(&a.value, a.buffer, &a.indices) else {
        return false;
    };
    let ExprKind::Load(_, at) = term.kind() else {
        return false;
    };
    let consecutive = Affine::of(&at[0]).is_some_and(|at| at.coefficient(var) == 1);
    let alone = a.lane.is_none() && a.mask.is_none() && !a.indices[0].uses_var(var);
    alone && consecutive && lanes_of(extent) >= MIN_COMBINED
}

fn lanes_of(extent: i64) -> i64 {
    (1i64 << extent.trailing_zeros()).min(MAX_LANES)
}

fn groups(p: &Program, body: &[Stmt], var: VarId, extent: i64) -> Vec<Stmt> {
    let lanes = lanes_of(extent);
    let mut out = Vec::new();
    for start in (0..extent).step_by(lanes as usize) {
        let at = match (lanes, start) {
            (1, _) => Some(Expr::int(start)),
            (_, 0) => None,
            _ => Some(Expr::var(var) + start),
        };
        let body: Vec<Stmt> = match &at {
            Some(at) => body.iter().map(|s| s.with_var(var, at)).collect(),
            None => body.to_vec(),
        };
        if lanes == 1 {
            out.extend(body);
        } else {
            let lane = Lane {
                var,
                lanes: lanes as u32,
            };
            out.extend(body.into_iter().flat_map(|s| laned(p, s, lane, &[])));
        }
    }
    out
}

/// One statement of the lane loop's body, run by the lanes where all of `mask` holds.
fn laned(p: &Program, s: Stmt, lane: Lane, mask: &[Expr]) -> Vec<Stmt> {
    match s {
        Stmt::For(mut l) => {
            let body = std::mem::take(&mut l.body);
            let body = body
                .into_iter()
                .flat_map(|s| laned(p, s, lane, mask))
                .collect();
            vec![Stmt::For(For { body, ..l })]
        }
        Stmt::If { cond, then } => {
            // What is loaded under a condition of lanes may be loaded under it only.
            let mut masked = !mask.is_empty();
            let is_mask = |c: &Expr| {
                masked |= c.uses_var(lane.var);
                c.uses_var(lane.var) || masked && has_load(c)
            };
            let (by_lane, scalar): (Vec<Expr>, Vec<Expr>) =
                conjuncts(&cond).into_iter().partition(is_mask);
            let mut mask = mask.to_vec();
            mask.extend(by_lane);
            let then: Vec<Stmt> = then
                .into_iter()
                .flat_map(|s| laned(p, s, lane, &mask))
                .collect();
            guarded(scalar, then)
        }
        Stmt::Assign(a) if fits(p, &a, mask, lane.var) || combines(&a, mask, lane.var) => {
            let mask = conjunction(mask.iter().cloned());
            vec![Stmt::Assign(Assign {
                lane: Some(lane),
                mask,
                ..a
            })]
        }
        other if mask.is_empty() && independent(&other, lane.var) => vec![other],
        other => (0..i64::from(lane.lanes))
            .flat_map(|i| {
                let i = Expr::int(i);
                let at = |e: &Expr| e.with_var(lane.var, &i);
                guarded(
                    mask.iter().map(at).collect(),
                    vec![other.with_var(lane.var, &i)],
                )
            })
            .collect(),
    }
}

/// Whether lanes can run the assignment in step.
fn fits(p: &Program, a: &Assign, mask: &[Expr], lane: VarId) -> bool {
    // Gathers in two steps are left to scalar code, where each index is checked
    // before it is used; bytes need no check.
    let two_steps = |offset: &Expr| {
        loads(offset)
            .iter()
            .any(|(_, index)| index.iter().any(|i| i.uses_var(lane)))
    };
    let gathers = |e: &Expr| {
        let steps = |b: BufferId, at: &Expr| two_steps(at) && !is_byte_of(p, b, at);
        loads(e)
            .iter()
            .any(|(b, at)| at.iter().any(|at| steps(*b, at)))
    };
    a.indices[0].uses_var(lane)
        && !a.indices.iter().any(two_steps)
        && !gathers(&a.value)
        && !mask.iter().any(gathers)
}

/// Whether the assignment puts the terms of all lanes into one element.
fn combines(a: &Assign, mask: &[Expr], lane: VarId) -> bool {
    let term = combined(&a.value, a.buffer, &a.indices);
    let terms_differ = term.is_some_and(|(_, t)| t.uses_var(lane));
    terms_differ && mask.is_empty() && !a.indices[0].uses_var(lane)
}

/// Whether running the statement once is the same as once for each lane.
fn independent(s: &Stmt, lane: VarId) -> bool {
    let repeats: Option<BufferId> = match s {
        Stmt::Assign(a) => Some(a.buffer).filter(|b| s.loaded().contains(b)),
        _ => None,
    };
    repeats.is_none() && !s.uses_var(lane)
}
