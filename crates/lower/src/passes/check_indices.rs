//! An index that is itself loaded is checked before it is used.
//!
//! A `Check` goes before each assignment (or if) with such a load, true where
//! the load is not reached: on the other side of a select, or after a deciding
//! operand of `and` and `or`. Indices over loop variables only are in range by
//! the program's own promises, and one with bounds (`min(max(i, 0), n - 1)`) by these.

use crate::LowerError;
use crate::nest::{For, Nest, Stmt, conjunction, has_load, is_byte_of, walk};
use ir::affine::{Ranges, bounds};
use ir::{BinaryOp, Expr, ExprKind, Program, UnaryOp};

/// What the kernel returns when an index is out of bounds.
pub(crate) const OUT_OF_BOUNDS: i32 = 1;

pub(crate) fn check_indices(nest: &mut Nest) -> Result<(), LowerError> {
    let ranges = nest.ranges();
    nest.map_entries(|nest, stmts| {
        let mut any = false;
        walk(&stmts, &mut Vec::new(), &mut |s, _| {
            any |= s.exprs().into_iter().any(has_loaded_index);
            any |= matches!(s, Stmt::Assign(a) if a.indices.iter().any(has_load));
        });
        match any {
            true => checked((&nest.program, &ranges), stmts),
            false => stmts,
        }
    });
    Ok(())
}

/// The program, and the ranges of its variables.
type Known<'a> = (&'a Program, &'a Ranges);

fn checked(p: Known<'_>, stmts: Vec<Stmt>) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for s in stmts {
        let mut checks = Vec::new();
        for e in s.exprs().into_iter().filter(|e| has_loaded_index(e)) {
            collect(p, e, &mut Vec::new(), &mut checks);
        }
        if let Stmt::Assign(a) = &s {
            require(p, a.buffer, &a.indices, &[], &mut checks);
        }
        out.append(&mut checks);
        out.push(match s {
            Stmt::For(mut l) => {
                let body = std::mem::take(&mut l.body);
                Stmt::For(For {
                    body: checked(p, body),
                    ..l
                })
            }
            Stmt::If { cond, then } => Stmt::If {
                cond,
                then: checked(p, then),
            },
            other => other,
        });
    }
    out
}

fn has_loaded_index(e: &Expr) -> bool {
    let mut found = false;
    e.visit_loads(&mut |_, indices| found |= indices.iter().any(has_load));
    found
}

/// Checks of the loads in `e`, an inner load before the one that it indexes
/// and a condition before what it guards.
fn collect(p: Known<'_>, e: &Expr, context: &mut Vec<Expr>, out: &mut Vec<Stmt>) {
    let not = |e: &Expr| Expr::unary(UnaryOp::Not, e);
    let guarded: Vec<(Expr, &Expr)> = match e.kind() {
        ExprKind::Select(c, a, b) => vec![(c.clone(), a), (not(c), b)],
        ExprKind::Binary(BinaryOp::And, a, b) => vec![(a.clone(), b)],
        ExprKind::Binary(BinaryOp::Or, a, b) => vec![(not(a), b)],
        _ => vec![],
    };
    let unguarded = e.children().count() - guarded.len();
    for c in e.children().take(unguarded) {
        collect(p, c, context, out);
    }
    for (condition, e) in guarded {
        context.push(condition);
        collect(p, e, context, out);
        context.pop();
    }
    if let ExprKind::Load(buffer, indices) = e.kind() {
        require(p, *buffer, indices, context, out);
    }
}

/// Whether arithmetic on what is loaded may leave the range of its type: kernels wrap round there, and bounds do not.
fn may_wrap(e: &Expr, ranges: &Ranges) -> bool {
    let arithmetic = matches!(
        e.kind(),
        ExprKind::Unary(UnaryOp::Neg, _)
            | ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, ..)
    );
    let within = || bounds(e, ranges).is_some_and(|i| i.lo > i64::MIN && i.hi < i64::MAX);
    match e.kind() {
        ExprKind::Load(..) => false,
        _ if arithmetic && has_load(e) && !within() => true,
        _ => e.children().any(|c| may_wrap(c, ranges)),
    }
}

/// Loaded indices of one access lie in their dimensions, if the context holds.
fn require(
    (p, ranges): Known<'_>,
    buffer: ir::BufferId,
    indices: &[Expr],
    context: &[Expr],
    out: &mut Vec<Stmt>,
) {
    let shape = &p.buffer(buffer).shape;
    let known = |i: &Expr, n: i64| {
        bounds(i, ranges).is_some_and(|i| 0 <= i.lo && i.hi < n) && !may_wrap(i, ranges)
    };
    let inside = indices
        .iter()
        .zip(shape)
        .filter(|(i, n)| has_load(i) && !is_byte_of(p, buffer, i) && !known(i, **n))
        .map(|(i, n)| i.clone().ge(0).and(i.clone().lt(*n)));
    let Some(inside) = conjunction(inside) else {
        return;
    };
    let cond = match conjunction(context.iter().cloned()) {
        Some(c) => Expr::unary(UnaryOp::Not, c).or(inside),
        None => inside,
    };
    let check = Stmt::Check {
        cond,
        code: OUT_OF_BOUNDS,
    };
    if !out.contains(&check) {
        out.push(check);
    }
}
