//! Index expressions as sums of integer multiples of atoms.

use crate::affine::{Interval, Ranges, sum_bounds};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use std::cmp::Ordering;
use tensor::DType;

/// `sum of coefficient * atom + constant`. Atoms are distinct, in a canonical
/// order, and are not sums themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    pub terms: Vec<(Expr, i64)>,
    pub constant: i64,
}

/// How deep `known_type` looks, so that long sums of loads cost no more than
/// their length.
const TYPE_DEPTH: u32 = 24;

/// The type of an expression, where it is known without the program: that of a
/// load is not.
pub fn known_type(e: &Expr) -> Option<DType> {
    type_within(e, TYPE_DEPTH)
}

fn type_within(e: &Expr, depth: u32) -> Option<DType> {
    let depth = depth.checked_sub(1)?;
    match e.kind() {
        ExprKind::Int(_, d)
        | ExprKind::Float(_, d)
        | ExprKind::Arg(_, d)
        | ExprKind::Cast(d, _) => Some(*d),
        ExprKind::Var(_) => Some(DType::I64),
        ExprKind::Load(..) => None,
        ExprKind::Unary(UnaryOp::Bits, _) => Some(DType::I32),
        ExprKind::Unary(_, a) => type_within(a, depth),
        ExprKind::Binary(op, ..) if op.is_comparison() || op.is_logical() => Some(DType::Bool),
        ExprKind::Binary(_, a, b) | ExprKind::Select(_, a, b) => {
            type_within(b, depth).or_else(|| type_within(a, depth))
        }
    }
}

/// Whether the expression is known to be an index (`i64`).
pub fn is_index(e: &Expr) -> bool {
    known_type(e) == Some(DType::I64)
}

/// A total order of atoms: variables first, by id, then by text, constants last.
pub fn order(e: &Expr) -> (bool, u32, String) {
    match e.kind() {
        ExprKind::Var(v) => (false, v.0, String::new()),
        kind => (
            matches!(kind, ExprKind::Int(..)),
            u32::MAX,
            format!("{e:?}"),
        ),
    }
}

/// Compares by [`order`], whose text is made for two atoms only that need it.
fn compare(a: &Expr, b: &Expr) -> Ordering {
    match (a.as_var(), b.as_var()) {
        (Some(x), Some(y)) => x.0.cmp(&y.0),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) if a == b => Ordering::Equal,
        (None, None) => order(a).cmp(&order(b)),
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

    /// Adds `k` times `e`. Atoms are neither ordered nor joined.
    pub fn collect(&mut self, e: &Expr, k: i64) {
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

    /// Atoms in order, each once.
    pub fn normalize(&mut self) {
        self.terms.sort_by(|a, b| compare(&a.0, &b.0));
        self.terms.dedup_by(|(e, k), (last, sum)| {
            let same = e == last;
            if same {
                *sum = sum.wrapping_add(*k);
            }
            same
        });
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

    /// Whether `e` is what [`Sum::to_expr`] gives, without making that.
    pub fn is(&self, e: &Expr) -> bool {
        let is_int = |e: &Expr, k: i64| *e.kind() == ExprKind::Int(k, DType::I64);
        let Some((first, others)) = self.terms.split_first() else {
            return is_int(e, self.constant);
        };
        let is_term = |e: &Expr, (atom, k): &(Expr, i64)| match e.kind() {
            _ if *k == 1 => e == atom,
            ExprKind::Binary(BinaryOp::Mul, a, b) => a == atom && is_int(b, *k),
            _ => false,
        };
        let mut rest = e;
        if self.constant != 0 {
            match rest.kind() {
                ExprKind::Binary(BinaryOp::Add, a, c) if is_int(c, self.constant) => rest = a,
                _ => return false,
            }
        }
        for term in others.iter().rev() {
            match rest.kind() {
                ExprKind::Binary(BinaryOp::Add, a, t) if is_term(t, term) => rest = a,
                _ => return false,
            }
        }
        is_term(rest, first)
    }

    pub fn bounds(&self, r: &Ranges) -> Option<Interval> {
        sum_bounds(&self.terms, self.constant, r)
    }

    /// Replaces `k*c*(x // c) + k*(x % c)` by `k*x`, and
    /// `k*c*((x // c) % d) + k*(x % c)` by `k*(x % (c*d))`.
    pub fn rejoin(&mut self) -> bool {
        for i in 0..self.terms.len() {
            let (e, k) = &self.terms[i];
            let remainder = by_constant(e, BinaryOp::FloorMod);
            let Some((x, c)) = remainder.filter(|(_, c)| *c > 1) else {
                continue;
            };
            let whole = x.clone().floor_div(c);
            let joined = |q: &Expr| {
                if *q == whole || same_quotient(q, x, c) {
                    return Some(x.clone());
                }
                let (q, d) = by_constant(q, BinaryOp::FloorMod)?;
                let same = *q == whole || same_quotient(q, x, c);
                Some(x.clone().floor_mod(c.checked_mul(d).filter(|_| same)?))
            };
            let high = k.checked_mul(c);
            let mut partners = self.terms.iter().enumerate();
            let found = partners.find_map(|(j, (q, kq))| {
                let joined = (high == Some(*kq)).then(|| joined(q))??;
                Some((j, joined))
            });
            let Some((j, joined)) = found else { continue };
            let k = *k;
            self.terms.remove(i.max(j));
            self.terms.remove(i.min(j));
            *self = std::mem::replace(self, Sum::constant(0)).add(&Sum::of(&joined), k);
            return true;
        }
        false
    }
}

/// The operands of `x op c` for a constant `c > 0`.
pub fn by_constant(e: &Expr, wanted: BinaryOp) -> Option<(&Expr, i64)> {
    match e.kind() {
        ExprKind::Binary(op, x, c) if *op == wanted => Some((x, c.as_int().filter(|c| *c > 0)?)),
        _ => None,
    }
}

/// Whether `q` is what `x // c` was simplified to: a quotient of a quotient.
fn same_quotient(q: &Expr, x: &Expr, c: i64) -> bool {
    let quotients = (
        by_constant(q, BinaryOp::FloorDiv),
        by_constant(x, BinaryOp::FloorDiv),
    );
    let (Some((y, d)), Some((z, e))) = quotients else {
        return false;
    };
    y == z && e.checked_mul(c) == Some(d)
}

pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}
