//! The canonical form of sums, which are most indices: what the rules give, in one walk.
//!
//! Only adding up applies to a sum of variables and simple quotients with constant factors,
//! unless a range is a point: then the variable is a constant.

use super::sum::{Sum, by_constant, is_index};
use crate::affine::Ranges;
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use tensor::DType;

/// Few sums have more terms.
const USUAL: usize = 8;

/// What [`simplify`](super::simplify) gives for `e` if that is a sum, difference or product to
/// which only adding up applies. `simple` gives the simplest form of its quotients and
/// remainders under the same ranges, which the caller may know.
pub fn simplify_sum(e: &Expr, r: &Ranges, simple: &mut impl FnMut(&Expr) -> Expr) -> Option<Expr> {
    let arithmetic = match e.kind() {
        ExprKind::Binary(op, ..) => matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul),
        ExprKind::Unary(op, _) => *op == UnaryOp::Neg,
        _ => false,
    };
    if !arithmetic || e.loads() {
        return None;
    }
    let mut sum = Sum {
        terms: Vec::with_capacity(USUAL),
        constant: 0,
    };
    add(&mut sum, e, 1, simple)?;
    let is_point = |(e, _): &(Expr, i64)| {
        let range = e.as_var().and_then(|v| r.get(v));
        range.is_some_and(|i| i.lo == i.hi)
    };
    if sum.terms.iter().any(is_point) {
        return None;
    }
    sum.normalize();
    let is_remainder = |(e, _): &(Expr, i64)| by_constant(e, BinaryOp::FloorMod).is_some();
    if sum.terms.iter().any(is_remainder) && sum.clone().rejoin() {
        return None;
    }
    Some(match sum.is(e) {
        true => e.clone(),
        false => sum.to_expr(),
    })
}

/// Adds `k` times `e`, whose quotients become simple.
fn add(sum: &mut Sum, e: &Expr, k: i64, simple: &mut impl FnMut(&Expr) -> Expr) -> Option<()> {
    match e.kind() {
        ExprKind::Int(v, DType::I64) => {
            sum.constant = sum.constant.wrapping_add(v.wrapping_mul(k));
        }
        ExprKind::Var(_) => sum.terms.push((e.clone(), k)),
        ExprKind::Unary(UnaryOp::Neg, a) => add(sum, a, k.wrapping_neg(), simple)?,
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            add(sum, a, k, simple)?;
            add(sum, b, k, simple)?;
        }
        ExprKind::Binary(BinaryOp::Sub, a, b) => {
            add(sum, a, k, simple)?;
            add(sum, b, k.wrapping_neg(), simple)?;
        }
        ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.kind(), b.kind()) {
            (ExprKind::Int(c, DType::I64), _) => add(sum, b, k.wrapping_mul(*c), simple)?,
            (_, ExprKind::Int(c, DType::I64)) => add(sum, a, k.wrapping_mul(*c), simple)?,
            _ => return None,
        },
        ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, ..) if is_index(e) => {
            sum.collect(&simple(e), k);
        }
        _ => return None,
    }
    Some(())
}
