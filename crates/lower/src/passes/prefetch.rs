//! Prefetch annotations become prefetch statements at the start of the loop.
//!
//! One for each cache line that the loads of the buffer under the loop start
//! in, `distance` iterations ahead: copies made by unrolling and lanes that
//! share a line share the prefetch. What inner loops touch is covered up to a
//! limit of lines per iteration.

use crate::LowerError;
use crate::nest::{For, Nest, Stmt, has_load, loads, walk};
use ir::affine::Affine;
use ir::{Annotation, BinaryOp, BufferId, CpuTarget, Expr, ExprKind, VarId};
use std::collections::BTreeMap;

/// Prefetches of one buffer in one iteration.
const MAX_LINES: usize = 8;
/// Points of the inner loops that are looked at.
const MAX_POINTS: i64 = 512;

pub(crate) fn prefetch(nest: &mut Nest, target: &CpuTarget) -> Result<(), LowerError> {
    let line = target.cache_line_bytes.max(1) as i64;
    nest.map_entries(|nest, stmts| {
        let size = |b: BufferId| nest.program.buffer(b).dtype.size() as i64;
        stmts
            .into_iter()
            .map(|s| annotated(s, &|b| (line / size(b)).max(1)))
            .collect()
    });
    Ok(())
}

fn annotated(s: Stmt, line: &impl Fn(BufferId) -> i64) -> Stmt {
    let all =
        |list: Vec<Stmt>| -> Vec<Stmt> { list.into_iter().map(|s| annotated(s, line)).collect() };
    match s {
        Stmt::For(mut l) => {
            let mut body = Vec::new();
            for a in &l.annotations {
                if let Annotation::Prefetch { buffer, distance } = a {
                    body.extend(lines(&l, *buffer, *distance, line(*buffer)));
                }
            }
            body.extend(all(std::mem::take(&mut l.body)));
            Stmt::For(For { body, ..l })
        }
        Stmt::If { cond, then } => Stmt::If {
            cond,
            then: all(then),
        },
        other => other,
    }
}

/// Lines whose offsets differ by constants.
struct Fetched {
    fixed: Vec<Expr>,
    terms: BTreeMap<VarId, i64>,
    lines: Vec<i64>,
}

/// The prefetches of one buffer in one iteration of `l`, `line` elements apart.
fn lines(l: &For, buffer: BufferId, distance: i64, line: i64) -> Vec<Stmt> {
    let mut found: Vec<Fetched> = Vec::new();
    let mut out = Vec::new();
    let loops = loop_extents(l);
    walk(&l.body, &mut Vec::new(), &mut |s, _| {
        if out.len() == MAX_LINES {
            return;
        }
        let mut of_it = false;
        for e in s.exprs() {
            e.visit_loads(&mut |b, _| of_it |= b == buffer);
        }
        if !of_it {
            return;
        }
        let inner = with_lanes(&loops, s);
        let moves = |v: &VarId| *v == l.var || inner.contains_key(v);
        for e in s.exprs() {
            // An index that is loaded may be none where nothing guards it.
            let of_buffer =
                |(b, offset): &(BufferId, &[Expr])| *b == buffer && !has_load(&offset[0]);
            for (_, offset) in loads(e).into_iter().filter(of_buffer) {
                let fixed = fixed_part(&offset[0], &moves);
                let Some(moving) = affine_part(&offset[0], &fixed) else {
                    continue;
                };
                let ahead = moving.terms.get(&l.var).copied().unwrap_or(0) * distance;
                let (terms, constants) = touched(&moving, &inner);
                let same = |f: &Fetched| f.fixed == fixed && f.terms == terms;
                let known = found.iter().position(same).unwrap_or_else(|| {
                    found.push(Fetched {
                        fixed,
                        terms,
                        lines: vec![],
                    });
                    found.len() - 1
                });
                let fetched = &mut found[known];
                for constant in constants {
                    let at = (constant + ahead).div_euclid(line);
                    if out.len() < MAX_LINES && !fetched.lines.contains(&at) {
                        fetched.lines.push(at);
                        let moved = Affine {
                            terms: fetched.terms.clone(),
                            constant: at * line,
                        };
                        let offset = fetched.fixed.iter().fold(moved.to_expr(), |sum, e| sum + e);
                        out.push(Stmt::Prefetch { buffer, offset });
                    }
                }
            }
        }
    });
    out
}

/// The summands that are not affine and in which no variable moves: quotients
/// and remainders of a fused loop. What they are does not matter.
fn fixed_part(e: &Expr, moves: &impl Fn(&VarId) -> bool) -> Vec<Expr> {
    if Affine::of(e).is_some() {
        return vec![];
    }
    match e.kind() {
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            let mut parts = fixed_part(a, moves);
            parts.extend(fixed_part(b, moves));
            parts
        }
        _ if e.vars().iter().any(moves) => vec![],
        _ => vec![e.clone()],
    }
}

/// The sum without those summands; `None` if it is not affine.
fn affine_part(e: &Expr, fixed: &[Expr]) -> Option<Affine> {
    match fixed {
        [] => Affine::of(e),
        _ => Affine::of(&e.rewrite(&mut |e| fixed.contains(e).then(|| Expr::int(0)))),
    }
}

/// Extents of the loops under `l`.
fn loop_extents(l: &For) -> BTreeMap<VarId, i64> {
    let mut out = BTreeMap::new();
    walk(&l.body, &mut Vec::new(), &mut |s, _| {
        if let Stmt::For(inner) = s {
            out.insert(inner.var, inner.extent);
        }
    });
    out
}

/// The extents of loops, and of the statement's lanes.
fn with_lanes(loops: &BTreeMap<VarId, i64>, s: &Stmt) -> BTreeMap<VarId, i64> {
    let mut out = loops.clone();
    if let Stmt::Assign(a) = s {
        out.extend(a.lane.map(|lane| (lane.var, i64::from(lane.lanes))));
    }
    out
}

/// The offsets that the inner variables run through, as terms over the others
/// and the constants. The widest steps stay at 0 when there are too many points.
fn touched(offset: &Affine, inner: &BTreeMap<VarId, i64>) -> (BTreeMap<VarId, i64>, Vec<i64>) {
    let mut outside = offset.terms.clone();
    outside.retain(|v, _| !inner.contains_key(v));
    let inside = offset.terms.iter().filter(|(v, _)| inner.contains_key(v));
    let mut steps: Vec<(i64, i64)> = inside.map(|(v, c)| (*c, inner[v])).collect();
    steps.sort_by_key(|(c, _)| c.abs());
    let mut constants = vec![offset.constant];
    for (step, extent) in steps {
        if constants.len() as i64 * extent > MAX_POINTS {
            break;
        }
        constants = (0..extent)
            .flat_map(|i| constants.iter().map(move |c| c + i * step))
            .collect();
    }
    constants.sort_unstable();
    (outside, constants)
}
