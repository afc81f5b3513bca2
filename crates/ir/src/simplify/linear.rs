//! The canonical form of linear indices, which are most indices: what the rules give, in one walk.
//!
//! Only adding up applies to a sum of variables with constant factors, unless a range is a
//! point: then the variable is a constant.

use super::sum::Sum;
use crate::affine::Ranges;
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::VarId;
use tensor::DType;

/// Variables that a sum may have.
const MOST: usize = 16;

/// A sum of variables with factors, and a constant.
struct Linear {
    terms: [(VarId, i64); MOST],
    used: usize,
    constant: i64,
}

/// The canonical form of `e` if that is a sum, difference or product, linear, and none of its
/// variables has a known value.
pub(super) fn canonical(e: &Expr, r: &Ranges) -> Option<Expr> {
    let arithmetic = match e.kind() {
        ExprKind::Binary(op, ..) => matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul),
        ExprKind::Unary(op, _) => *op == UnaryOp::Neg,
        _ => false,
    };
    if !arithmetic || e.loads() {
        return None;
    }
    let mut linear = Linear {
        terms: [(VarId(0), 0); MOST],
        used: 0,
        constant: 0,
    };
    linear.add(e, 1)?;
    let known = |v: VarId| r.get(v).is_some_and(|i| i.lo == i.hi);
    let terms = &mut linear.terms[..linear.used];
    if terms.iter().any(|(v, _)| known(*v)) {
        return None;
    }
    terms.sort_unstable_by_key(|(v, _)| v.0);
    let terms = terms.iter().filter(|(_, k)| *k != 0);
    let sum = Sum {
        terms: terms.map(|(v, k)| (Expr::var(*v), *k)).collect(),
        constant: linear.constant,
    };
    Some(match sum.is(e) {
        true => e.clone(),
        false => sum.to_expr(),
    })
}

impl Linear {
    /// Adds `k` times `e`.
    fn add(&mut self, e: &Expr, k: i64) -> Option<()> {
        match e.kind() {
            ExprKind::Int(v, DType::I64) => {
                self.constant = self.constant.wrapping_add(v.wrapping_mul(k));
            }
            ExprKind::Var(v) => self.variable(*v, k)?,
            ExprKind::Unary(UnaryOp::Neg, a) => self.add(a, k.wrapping_neg())?,
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                self.add(a, k)?;
                self.add(b, k)?;
            }
            ExprKind::Binary(BinaryOp::Sub, a, b) => {
                self.add(a, k)?;
                self.add(b, k.wrapping_neg())?;
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.kind(), b.kind()) {
                (ExprKind::Int(c, DType::I64), _) => self.add(b, k.wrapping_mul(*c))?,
                (_, ExprKind::Int(c, DType::I64)) => self.add(a, k.wrapping_mul(*c))?,
                _ => return None,
            },
            _ => return None,
        }
        Some(())
    }

    fn variable(&mut self, v: VarId, k: i64) -> Option<()> {
        let known = self.terms[..self.used].iter_mut().find(|t| t.0 == v);
        match known {
            Some(t) => t.1 = t.1.wrapping_add(k),
            None => {
                *self.terms.get_mut(self.used)? = (v, k);
                self.used += 1;
            }
        }
        Some(())
    }
}
