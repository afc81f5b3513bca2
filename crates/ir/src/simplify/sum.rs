//! Index expressions as sums of integer multiples of atoms.

use crate::affine::{Ranges, bounds};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use tensor::DType;

/// `sum of coefficient * atom + constant`. Atoms are distinct, in a canonical
/// order, and are not sums themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    pub terms: Vec<(Expr, i64)>,
    pub constant: i64,
}

/// Whether the expression is known to be an index (`i64`). A bare load is not:
/// its type is unknown here.
pub fn is_index(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Int(_, d) => *d == DType::I64,
        ExprKind::Var(_) => true,
        ExprKind::Cast(d, _) => *d == DType::I64,
        ExprKind::Unary(_, a) => is_index(a),
        ExprKind::Binary(op, a, b) => {
            !op.is_comparison() && !op.is_logical() && (is_index(a) || is_index(b))
        }
        ExprKind::Select(_, a, b) => is_index(a) || is_index(b),
        _ => false,
    }
}

/// A total order of atoms: variables first, by id, then by text.
fn order(e: &Expr) -> (u32, String) {
    match e.as_var() {
        Some(v) => (v.0, String::new()),
        None => (u32::MAX, format!("{e:?}")),
    }
}

impl Sum {
    pub fn constant(c: i64) -> Sum {
        Sum {
            terms: vec![],
            constant: c,
        }
    }

    /// The sum that `e`, an index, is.
    pub fn of(e: &Expr) -> Sum {
        let mut s = Sum::constant(0);
        s.collect(e, 1);
        s.normalize();
        s
    }

    fn collect(&mut self, e: &Expr, k: i64) {
        match e.kind() {
            ExprKind::Int(v, _) => self.constant = self.constant.wrapping_add(v.wrapping_mul(k)),
            ExprKind::Unary(UnaryOp::Neg, a) => self.collect(a, k.wrapping_neg()),
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                self.collect(a, k);
                self.collect(b, k);
            }
            ExprKind::Binary(BinaryOp::Sub, a, b) => {
                self.collect(a, k);
                self.collect(b, k.wrapping_neg());
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
                (Some(c), _) => self.collect(b, k.wrapping_mul(c)),
                (_, Some(c)) => self.collect(a, k.wrapping_mul(c)),
                _ => self.terms.push((e.clone(), k)),
            },
            _ => self.terms.push((e.clone(), k)),
        }
    }

    fn normalize(&mut self) {
        let mut keyed: Vec<_> = self.terms.drain(..).map(|t| (order(&t.0), t)).collect();
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, (e, k)) in keyed {
            match self.terms.last_mut() {
                Some((last, c)) if *last == e => *c = c.wrapping_add(k),
                _ => self.terms.push((e, k)),
            }
        }
        self.terms.retain(|(_, k)| *k != 0);
    }

    pub fn add(mut self, other: &Sum, k: i64) -> Sum {
        self.terms.extend(
            other
                .terms
                .iter()
                .map(|(e, c)| (e.clone(), c.wrapping_mul(k))),
        );
        self.constant = self.constant.wrapping_add(other.constant.wrapping_mul(k));
        self.normalize();
        self
    }

    /// Terms for which `f` holds, without the constant, and the rest with it.
    pub fn partition(&self, f: impl Fn(i64) -> bool) -> (Sum, Sum) {
        let (yes, no): (Vec<_>, Vec<_>) = self.terms.iter().cloned().partition(|(_, k)| f(*k));
        (
            Sum {
                terms: yes,
                constant: 0,
            },
            Sum {
                terms: no,
                constant: self.constant,
            },
        )
    }

    /// Every coefficient and the constant divided by `d`, which divides them.
    pub fn divided(&self, d: i64) -> Sum {
        let terms = self.terms.iter().map(|(e, k)| (e.clone(), k / d)).collect();
        Sum {
            terms,
            constant: self.constant / d,
        }
    }

    /// Greatest common divisor of the coefficients, 0 if there are none.
    pub fn gcd(&self) -> i64 {
        self.terms.iter().fold(0, |g, (_, k)| gcd(g, *k))
    }

    pub fn to_expr(&self) -> Expr {
        let mut out: Option<Expr> = None;
        for (e, k) in &self.terms {
            let t = if *k == 1 { e.clone() } else { e * *k };
            out = Some(match out {
                None => t,
                Some(o) => o + t,
            });
        }
        match out {
            None => Expr::int(self.constant),
            Some(o) if self.constant == 0 => o,
            Some(o) => o + self.constant,
        }
    }

    pub fn bounds(&self, r: &Ranges) -> Option<crate::affine::Interval> {
        let mut out = crate::affine::Interval::point(self.constant);
        for (e, k) in &self.terms {
            let b = bounds(e, r)?;
            let (p, q) = (b.lo.saturating_mul(*k), b.hi.saturating_mul(*k));
            out.lo = out.lo.saturating_add(p.min(q));
            out.hi = out.hi.saturating_add(p.max(q));
        }
        Some(out)
    }

    /// Replaces `k*c*(x // c) + k*(x % c)` by `k*x`.
    pub fn rejoin(&mut self) -> bool {
        for i in 0..self.terms.len() {
            let (e, k) = &self.terms[i];
            let ExprKind::Binary(BinaryOp::FloorMod, x, c) = e.kind() else {
                continue;
            };
            let Some(c) = c.as_int() else { continue };
            let whole = x.clone().floor_div(c);
            let partner = self.terms.iter().position(|(q, kq)| {
                k.checked_mul(c) == Some(*kq) && (*q == whole || same_quotient(q, x, c))
            });
            let Some(j) = partner else { continue };
            let (x, k) = (x.clone(), *k);
            self.terms.remove(i.max(j));
            self.terms.remove(i.min(j));
            let joined = Sum::of(&x);
            *self = std::mem::replace(self, Sum::constant(0)).add(&joined, k);
            return true;
        }
        false
    }
}

/// Whether `q` is what `x // c` was simplified to: a quotient of a quotient.
fn same_quotient(q: &Expr, x: &Expr, c: i64) -> bool {
    let ExprKind::Binary(BinaryOp::FloorDiv, y, d) = q.kind() else {
        return false;
    };
    let ExprKind::Binary(BinaryOp::FloorDiv, z, e) = x.kind() else {
        return false;
    };
    matches!((d.as_int(), e.as_int()), (Some(d), Some(e)) if y == z && e.checked_mul(c) == Some(d))
}

pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}
