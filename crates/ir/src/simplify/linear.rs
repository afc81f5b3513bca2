//! The canonical form of sums, which are most indices: what the rules give, in one walk.
//!
//! Only adding up applies to a sum of variables and simple quotients with constant factors,
//! unless a range is a point: then the variable is a constant.

use super::sum::{Sum, by_constant, is_index};
use crate::affine::Ranges;
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::VarId;
use tensor::DType;

/// Variables that a sum may have.
const MOST: usize = 16;

/// A sum of variables and quotients with factors, and a constant.
struct Linear<'a> {
    variables: [(VarId, i64); MOST],
    used: usize,
    quotients: Vec<(Expr, i64)>,
    constant: i64,
    simple: &'a mut dyn FnMut(&Expr) -> Expr,
}

/// What [`simplify`](super::simplify) gives for `e` if that is a sum, difference or product to
/// which only adding up applies. `simple` gives the simplest form of its quotients and
/// remainders under the same ranges, which the caller may know.
pub fn simplify_sum(
    e: &Expr,
    r: &Ranges,
    simple: &mut dyn FnMut(&Expr) -> Expr,
) -> Option<Expr> {
    let arithmetic = match e.kind() {
        ExprKind::Binary(op, ..) => matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul),
        ExprKind::Unary(op, _) => *op == UnaryOp::Neg,
        _ => false,
    };
    if !arithmetic || e.loads() {
        return None;
    }
    let mut linear = Linear {
        variables: [(VarId(0), 0); MOST],
        used: 0,
        quotients: vec![],
        constant: 0,
        simple,
    };
    linear.add(e, 1)?;
    let known = |v: VarId| r.get(v).is_some_and(|i| i.lo == i.hi);
    let variables = &mut linear.variables[..linear.used];
    if variables.iter().any(|(v, _)| known(*v)) {
        return None;
    }
    variables.sort_unstable_by_key(|(v, _)| v.0);
    let variables = variables.iter().filter(|(_, k)| *k != 0);
    let mut sum = Sum {
        terms: variables.map(|(v, k)| (Expr::var(*v), *k)).collect(),
        constant: linear.constant,
    };
    if !linear.quotients.is_empty() {
        sum.terms.append(&mut linear.quotients);
        sum.normalize();
        let is_remainder = |(e, _): &(Expr, i64)| by_constant(e, BinaryOp::FloorMod).is_some();
        if sum.terms.iter().any(is_remainder) && sum.clone().rejoin() {
            return None;
        }
    }
    Some(match sum.is(e) {
        true => e.clone(),
        false => sum.to_expr(),
    })
}

impl Linear<'_> {
    /// Adds `k` times `e`.
    fn add(&mut self, e: &Expr, k: i64) -> Option<()> {
        match e.kind() {
            ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, ..) if is_index(e) => {
                let e = (self.simple)(e);
                self.add_simple(&e, k)
            }
            _ => self.add_sum(e, k, Linear::add),
        }
    }

    /// Adds `k` times `e`, whose quotients are simple.
    fn add_simple(&mut self, e: &Expr, k: i64) -> Option<()> {
        match e.kind() {
            ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, ..) => {
                self.quotients.push((e.clone(), k));
                Some(())
            }
            _ => self.add_sum(e, k, Linear::add_simple),
        }
    }

    /// Adds `k` times `e`, the summands of which `add` adds.
    fn add_sum(
        &mut self,
        e: &Expr,
        k: i64,
        add: fn(&mut Self, &Expr, i64) -> Option<()>,
    ) -> Option<()> {
        match e.kind() {
            ExprKind::Int(v, DType::I64) => {
                self.constant = self.constant.wrapping_add(v.wrapping_mul(k));
            }
            ExprKind::Var(v) => self.variable(*v, k)?,
            ExprKind::Unary(UnaryOp::Neg, a) => add(self, a, k.wrapping_neg())?,
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                add(self, a, k)?;
                add(self, b, k)?;
            }
            ExprKind::Binary(BinaryOp::Sub, a, b) => {
                add(self, a, k)?;
                add(self, b, k.wrapping_neg())?;
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.kind(), b.kind()) {
                (ExprKind::Int(c, DType::I64), _) => add(self, b, k.wrapping_mul(*c))?,
                (_, ExprKind::Int(c, DType::I64)) => add(self, a, k.wrapping_mul(*c))?,
                _ => return None,
            },
            _ => return None,
        }
        Some(())
    }

    fn variable(&mut self, v: VarId, k: i64) -> Option<()> {
        let known = self.variables[..self.used].iter_mut().find(|t| t.0 == v);
        match known {
            Some(t) => t.1 = t.1.wrapping_add(k),
            None => {
                *self.variables.get_mut(self.used)? = (v, k);
                self.used += 1;
            }
        }
        Some(())
    }
}
