//! Rules for selects.

use super::condition::{flatten, may_fail};
use crate::affine::{Ranges, bounds};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use tensor::DType;

/// A select whose condition or choice does not matter.
pub(super) fn select_known(e: &Expr, r: &Ranges) -> Option<Expr> {
    let ExprKind::Select(c, a, b) = e.kind() else {
        return None;
    };
    match bounds(c, r).map(|i| (i.lo, i.hi)) {
        Some((1, 1)) => return Some(a.clone()),
        Some((0, 0)) => return Some(b.clone()),
        _ => {}
    }
    if a == b && !may_fail(c) {
        return Some(a.clone());
    }
    if let ExprKind::Unary(UnaryOp::Not, c) = c.kind() {
        return Some(Expr::select(c, b, a));
    }
    // A boolean that is constant on one side.
    let known = |e: &Expr| match e.kind() {
        ExprKind::Int(v, DType::Bool) => Some(*v == 1),
        _ => None,
    };
    let not_c = || Expr::unary(UnaryOp::Not, c);
    match (known(a), known(b)) {
        (_, Some(false)) => Some(c.clone().and(a)),
        (Some(true), _) => Some(c.clone().or(b)),
        (Some(false), _) => Some(not_c().and(b)),
        (_, Some(true)) => Some(not_c().or(a)),
        _ => None,
    }
}

/// A select inside a select that shares its condition or a value with it.
pub(super) fn merge_selects(e: &Expr, _: &Ranges) -> Option<Expr> {
    let ExprKind::Select(c, a, b) = e.kind() else {
        return None;
    };
    if let ExprKind::Select(d, x, y) = a.kind() {
        if follows(BinaryOp::And, c, d) {
            return Some(Expr::select(c, x, b));
        }
        if y == b {
            return Some(Expr::select(c.clone().and(d), x, b));
        }
    }
    if let ExprKind::Select(d, x, y) = b.kind() {
        if follows(BinaryOp::Or, c, d) {
            return Some(Expr::select(c, a, y));
        }
        if x == a {
            return Some(Expr::select(c.clone().or(d), a, y));
        }
    }
    None
}

/// Whether every operand of `d` under `op` is one of `c`: for `And`, `d` holds
/// where `c` does; for `Or`, it fails where `c` does.
fn follows(op: BinaryOp, c: &Expr, d: &Expr) -> bool {
    let (mut given, mut parts) = (Vec::new(), Vec::new());
    flatten(op, c, &mut given);
    flatten(op, d, &mut parts);
    parts.iter().all(|p| given.contains(p))
}
