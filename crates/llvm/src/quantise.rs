//! Floats that are divided by a constant, rounded and made bytes.
//!
//! A division of a vector takes as long as ten multiplications and more. The product with the reciprocal, corrected twice by
//! what it leaves, is the same quotient: after one correction it is at most one last digit off, and one of these is made exact by
//! another (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990, theorem 3). That
//! holds where nothing overflows or is subnormal. Bytes need no more: smaller quotients round to zero, and larger ones are beyond
//! all bytes whatever their last digits are.

use crate::emit::Emitter;
use crate::math::Math;
use crate::raw::{Cmp, Value};
use crate::value::{Scope, Typed};
use ir::{BinaryOp, DType, Expr, ExprKind, UnaryOp};

/// Quotients of at least so much are no bytes, and have no digits behind the point.
const LARGE: f32 = (1 << 23) as f32;
/// Divisors between one over this and this have reciprocals that are normal numbers, as are remainders of quotients that
/// matter.
const FAR: f32 = (1u64 << 60) as f32;

impl Emitter<'_> {
    /// `e` as bytes, if it is `round(x / c)` or `round(x / c) + zero` in f32.
    pub fn quantised(&mut self, e: &Expr, to: DType, s: &mut Scope) -> Option<Typed> {
        let (rounded, zero) = match e.kind() {
            ExprKind::Binary(BinaryOp::Add, r, zero) => (r, Some(zero)),
            _ => (e, None),
        };
        let ExprKind::Unary(UnaryOp::Round, quotient) = rounded.kind() else {
            return None;
        };
        let ExprKind::Binary(BinaryOp::Div, x, by) = quotient.kind() else {
            return None;
        };
        let ExprKind::Float(_, DType::F32) = by.kind() else {
            return None;
        };
        let by = by.as_float()? as f32;
        let fits = self.target.isa.has_fma() && (FAR.recip()..=FAR).contains(&by);
        if !fits || to.size() != 1 || to == DType::Bool {
            return None;
        }
        let x = self.expr(x, s);
        let value = self.quotient(x.value, by);
        let mut y = self.unary(UnaryOp::Round, Typed { value, ..x });
        if let Some(zero) = zero {
            let zero = self.expr(zero, s);
            y = self.binary(BinaryOp::Add, y, zero);
        }
        Some(self.cast(y, to))
    }

    fn quotient(&self, x: Value, by: f32) -> Value {
        let m = Math::new(self, x, DType::F32);
        let [by, reciprocal] = [by, by.recip()].map(|v| m.c(f64::from(v)));
        let t = self.b.type_of(x);
        let fma = |a, b, c| self.b.intrinsic("llvm.fma", &mut [t], &mut [a, b, c]);
        let estimate = self.b.rounded_product(x, reciprocal);
        let corrected = |q| {
            let rest = fma(self.b.fneg(q), by, x);
            fma(rest, reciprocal, q)
        };
        let exact = corrected(corrected(estimate));
        let near = self
            .b
            .cmp(Cmp::FOlt, m.abs(estimate), m.c(f64::from(LARGE)));
        m.select(near, exact, estimate)
    }
}
