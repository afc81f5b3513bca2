//! Integer facts about index expressions: intervals, linear forms, and what a
//! condition says about variables.
//!
//! Everything here is sound for expressions whose values and intermediate
//! results fit in `i64`; interval ends saturate. Narrower integers, which
//! wrap, have no bounds and no linear form.

use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::VarId;
use std::collections::BTreeMap;
use tensor::DType;

/// All integers from `lo` to `hi`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    pub lo: i64,
    pub hi: i64,
}

impl Interval {
    pub const fn point(v: i64) -> Interval {
        Interval { lo: v, hi: v }
    }

    pub const BOOL: Interval = Interval { lo: 0, hi: 1 };

    fn corners(a: Interval, b: Interval, f: impl Fn(i64, i64) -> i64) -> Interval {
        let c = [f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)];
        let lo = c.iter().copied().fold(i64::MAX, i64::min);
        Interval {
            lo,
            hi: c.iter().copied().fold(i64::MIN, i64::max),
        }
    }

    /// Of `k` times the values.
    pub fn scaled(self, k: i64) -> Interval {
        let (p, q) = (self.lo.saturating_mul(k), self.hi.saturating_mul(k));
        Interval {
            lo: p.min(q),
            hi: p.max(q),
        }
    }

    fn plus(self, o: Interval) -> Interval {
        Interval {
            lo: self.lo.saturating_add(o.lo),
            hi: self.hi.saturating_add(o.hi),
        }
    }

    pub fn union(self, o: Interval) -> Interval {
        Interval {
            lo: self.lo.min(o.lo),
            hi: self.hi.max(o.hi),
        }
    }
}

/// What values variables take.
///
/// A table by variable: variables are numbered from 0, and steps look ranges up
/// more often than anything else.
#[derive(Clone, Debug, Default)]
pub struct Ranges(Vec<Option<Interval>>);

impl Ranges {
    pub fn new() -> Ranges {
        Ranges::default()
    }

    /// With room for so many variables.
    pub fn with_capacity(variables: usize) -> Ranges {
        Ranges(Vec::with_capacity(variables))
    }

    /// `v` is in `lo..=hi`.
    pub fn set(&mut self, v: VarId, lo: i64, hi: i64) {
        if self.0.len() <= v.index() {
            self.0.resize(v.index() + 1, None);
        }
        self.0[v.index()] = Some(Interval { lo, hi });
    }

    /// `v` is in `0..extent`.
    pub fn set_extent(&mut self, v: VarId, extent: i64) {
        self.set(v, 0, (extent - 1).max(0));
    }

    pub fn get(&self, v: VarId) -> Option<Interval> {
        self.0.get(v.index()).copied().flatten()
    }

    /// The ranges where a condition has the given value, as far as intervals of
    /// single variables say it; `None` if it says nothing new. A condition that
    /// cannot have the value says nothing.
    pub fn assuming(&self, condition: &Expr, holds: bool) -> Option<Ranges> {
        let mut learned = Vec::new();
        learn(condition, holds, self, &mut learned);
        let mut narrowed: Option<Ranges> = None;
        for (v, new) in learned {
            let out = narrowed.as_ref().unwrap_or(self);
            let Some(old) = out.get(v) else { continue };
            let (lo, hi) = (old.lo.max(new.lo), old.hi.min(new.hi));
            if lo > hi {
                return None;
            }
            if (lo, hi) != (old.lo, old.hi) {
                narrowed.get_or_insert_with(|| self.clone()).set(v, lo, hi);
            }
        }
        narrowed
    }

    /// Ranges of every loop variable of a program's body.
    pub fn of_loops(program: &crate::program::Program) -> Ranges {
        let mut r = Ranges::new();
        for l in program.loop_ids() {
            let l = program.loop_(l);
            r.set_extent(l.var, l.extent);
        }
        r
    }
}

/// `sum of coefficient * variable + constant`; no zero coefficients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Affine {
    pub terms: BTreeMap<VarId, i64>,
    pub constant: i64,
}

impl Affine {
    pub fn constant(c: i64) -> Affine {
        Affine {
            terms: BTreeMap::new(),
            constant: c,
        }
    }

    pub fn var(v: VarId) -> Affine {
        Affine {
            terms: [(v, 1)].into(),
            constant: 0,
        }
    }

    /// `self + k * other`.
    pub fn add_scaled(mut self, other: &Affine, k: i64) -> Affine {
        for (v, c) in &other.terms {
            let sum = self.terms.entry(*v).or_insert(0);
            *sum = sum.wrapping_add(c.wrapping_mul(k));
        }
        self.terms.retain(|_, c| *c != 0);
        self.constant = self.constant.wrapping_add(other.constant.wrapping_mul(k));
        self
    }

    pub fn scale(&self, k: i64) -> Affine {
        Affine::default().add_scaled(self, k)
    }

    /// The linear form of `e`; `None` if it is not one.
    pub fn of(e: &Expr) -> Option<Affine> {
        let mut sum = Affine::default();
        sum.add(e, 1)?;
        sum.terms.retain(|_, c| *c != 0);
        Some(sum)
    }

    /// Adds `k` times a linear form. Terms may get the coefficient 0.
    fn add(&mut self, e: &Expr, k: i64) -> Option<()> {
        match e.kind() {
            ExprKind::Int(v, DType::I64) => {
                self.constant = self.constant.wrapping_add(v.wrapping_mul(k));
            }
            ExprKind::Var(v) => {
                let sum = self.terms.entry(*v).or_insert(0);
                *sum = sum.wrapping_add(k);
            }
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
                _ => {
                    let (x, y) = (Affine::of(a)?, Affine::of(b)?);
                    match (x.terms.is_empty(), y.terms.is_empty()) {
                        (true, _) => self.add(b, k.wrapping_mul(x.constant))?,
                        (_, true) => self.add(a, k.wrapping_mul(y.constant))?,
                        _ => return None,
                    }
                }
            },
            _ => return None,
        }
        Some(())
    }

    pub fn to_expr(&self) -> Expr {
        let mut out: Option<Expr> = None;
        for (v, c) in &self.terms {
            let t = if *c == 1 {
                Expr::var(*v)
            } else {
                Expr::var(*v) * *c
            };
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

    pub fn coefficient(&self, v: VarId) -> i64 {
        self.terms.get(&v).copied().unwrap_or(0)
    }
}

/// All values that an index (`i64`) or boolean expression can take; `None` if
/// it depends on data or on a variable without a range.
pub fn bounds(e: &Expr, r: &Ranges) -> Option<Interval> {
    match e.kind() {
        ExprKind::Int(v, DType::I64 | DType::Bool) => Some(Interval::point(*v)),
        ExprKind::Var(v) => r.get(*v),
        ExprKind::Unary(UnaryOp::Neg, _)
        | ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, ..) => {
            Linear::of(&[(e, 1)], r)?.bounds(r)
        }
        ExprKind::Unary(UnaryOp::Abs, a) => {
            let a = bounds(a, r)?;
            let (x, y) = (a.lo.saturating_abs(), a.hi.saturating_abs());
            let lo = if a.lo <= 0 && a.hi >= 0 { 0 } else { x.min(y) };
            Some(Interval { lo, hi: x.max(y) })
        }
        ExprKind::Unary(UnaryOp::Not, a) => {
            let a = bounds(a, r)?;
            Some(Interval {
                lo: 1 - a.hi,
                hi: 1 - a.lo,
            })
        }
        ExprKind::Binary(op, a, b) if op.is_logical() => Some(logical_bounds(*op, a, b, r)),
        ExprKind::Binary(op, a, b) if op.is_comparison() => {
            let difference = Linear::of(&[(b, 1), (a, -1)], r)?.bounds(r)?;
            Some(comparison_bounds(*op, difference))
        }
        ExprKind::Binary(BinaryOp::Min | BinaryOp::Max, ..) => {
            let (lo, hi) = ends(e, r);
            Some(Interval { lo: lo?, hi: hi? })
        }
        ExprKind::Binary(BinaryOp::BitAnd, a, b) => {
            let sides = [a, b].into_iter().filter_map(|e| bounds(e, r));
            let hi = sides.filter(|i| i.lo >= 0).map(|i| i.hi).min()?;
            Some(Interval { lo: 0, hi })
        }
        ExprKind::Binary(op, a, b) => quotient_bounds(*op, bounds(a, r)?, bounds(b, r)?),
        ExprKind::Select(c, a, b) => {
            let c = bounds(c, r).unwrap_or(Interval::BOOL);
            match (c.lo, c.hi) {
                (1, _) => bounds(a, r),
                (_, 0) => bounds(b, r),
                _ => Some(bounds(a, r)?.union(bounds(b, r)?)),
            }
        }
        ExprKind::Cast(DType::I64, a) => bounds(a, r),
        _ => None,
    }
}

/// Below and above what no value lies, as far as it is known: that of what the data decide may be known at one end.
fn ends(e: &Expr, r: &Ranges) -> (Option<i64>, Option<i64>) {
    let both = |x: Option<i64>, y: Option<i64>, f: fn(i64, i64) -> i64| Some(f(x?, y?));
    let either = |x: Option<i64>, y: Option<i64>, f: fn(i64, i64) -> i64| both(x, y, f).or(x).or(y);
    match e.kind() {
        ExprKind::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => {
            let (a, b) = (ends(a, r), ends(b, r));
            match op {
                BinaryOp::Min => (both(a.0, b.0, i64::min), either(a.1, b.1, i64::min)),
                _ => (either(a.0, b.0, i64::max), both(a.1, b.1, i64::max)),
            }
        }
        _ => match bounds(e, r) {
            Some(i) => (Some(i.lo), Some(i.hi)),
            None => (None, None),
        },
    }
}

/// All values of a sum of expressions times factors, and a constant.
pub(crate) fn sum_bounds(terms: &[(Expr, i64)], constant: i64, r: &Ranges) -> Option<Interval> {
    let mut sum = Linear {
        terms: Vec::with_capacity(terms.len()),
        rest: Interval::point(constant),
    };
    for (e, k) in terms {
        sum.add(e, *k, r)?;
    }
    sum.bounds(r)
}

/// A sum in which terms of one variable meet: the variables, and an interval
/// for all else.
struct Linear {
    terms: Vec<(VarId, i64)>,
    rest: Interval,
}

impl Linear {
    /// The sum of expressions times factors.
    fn of(scaled: &[(&Expr, i64)], r: &Ranges) -> Option<Linear> {
        let (terms, rest) = (Vec::new(), Interval::point(0));
        let mut out = Linear { terms, rest };
        for (e, k) in scaled {
            out.add(e, *k, r)?;
        }
        Some(out)
    }

    fn add(&mut self, e: &Expr, k: i64, r: &Ranges) -> Option<()> {
        match e.kind() {
            ExprKind::Var(v) => match self.terms.iter_mut().find(|t| t.0 == *v) {
                Some(t) => t.1 = t.1.wrapping_add(k),
                None => self.terms.push((*v, k)),
            },
            ExprKind::Unary(UnaryOp::Neg, a) => self.add(a, k.wrapping_neg(), r)?,
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                self.add(a, k, r)?;
                self.add(b, k, r)?;
            }
            ExprKind::Binary(BinaryOp::Sub, a, b) => {
                self.add(a, k, r)?;
                self.add(b, k.wrapping_neg(), r)?;
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.kind(), b.kind()) {
                (ExprKind::Int(c, DType::I64), _) => self.add(b, k.wrapping_mul(*c), r)?,
                (_, ExprKind::Int(c, DType::I64)) => self.add(a, k.wrapping_mul(*c), r)?,
                _ => {
                    let (a, b) = (bounds(a, r)?, bounds(b, r)?);
                    let product = Interval::corners(a, b, i64::saturating_mul);
                    self.rest = self.rest.plus(product.scaled(k));
                }
            },
            _ => self.rest = self.rest.plus(bounds(e, r)?.scaled(k)),
        }
        Some(())
    }

    fn bounds(&self, r: &Ranges) -> Option<Interval> {
        let mut terms = self.terms.iter().filter(|t| t.1 != 0);
        terms.try_fold(self.rest, |sum, (v, k)| {
            Some(sum.plus(r.get(*v)?.scaled(*k)))
        })
    }
}

/// One decided side decides a conjunction or disjunction whatever the other is.
fn logical_bounds(op: BinaryOp, a: &Expr, b: &Expr, r: &Ranges) -> Interval {
    let x = bounds(a, r).unwrap_or(Interval::BOOL);
    let y = bounds(b, r).unwrap_or(Interval::BOOL);
    if op == BinaryOp::And {
        Interval {
            lo: x.lo.min(y.lo),
            hi: x.hi.min(y.hi),
        }
    } else {
        Interval {
            lo: x.lo.max(y.lo),
            hi: x.hi.max(y.hi),
        }
    }
}

/// Of `a op b`, given the bounds of `b - a`.
fn comparison_bounds(op: BinaryOp, difference: Interval) -> Interval {
    let Interval { lo, hi } = difference;
    let equal = (lo == 0 && hi == 0, lo > 0 || hi < 0);
    let (always, never) = match op {
        BinaryOp::Lt => (lo > 0, hi <= 0),
        BinaryOp::Le => (lo >= 0, hi < 0),
        BinaryOp::Eq => equal,
        _ => (equal.1, equal.0),
    };
    Interval {
        lo: i64::from(always),
        hi: i64::from(!never),
    }
}

/// Of the operators without a linear form.
fn quotient_bounds(op: BinaryOp, x: Interval, y: Interval) -> Option<Interval> {
    let one_sign = y.lo > 0 || y.hi < 0;
    match op {
        // A shift by less than 0, or by the width or more, gives 0.
        BinaryOp::Shr if x.lo >= 0 => Some(Interval {
            lo: if y.lo < 0 {
                0
            } else {
                op.bits(x.lo, y.hi, DType::I64)
            },
            hi: op.bits(x.hi, y.lo.max(0), DType::I64),
        }),
        // Monotonic in each operand while the divisor keeps its sign.
        BinaryOp::FloorDiv if one_sign => Some(Interval::corners(x, y, floor_div)),
        BinaryOp::Div if one_sign => Some(Interval::corners(x, y, i64::saturating_div)),
        BinaryOp::FloorMod if y.lo > 0 => {
            let one_block = y.lo == y.hi && x.lo.div_euclid(y.lo) == x.hi.div_euclid(y.lo);
            Some(if one_block {
                Interval {
                    lo: x.lo.rem_euclid(y.lo),
                    hi: x.hi.rem_euclid(y.lo),
                }
            } else {
                let hi = y.hi - 1;
                Interval {
                    lo: 0,
                    hi: if x.lo >= 0 { hi.min(x.hi) } else { hi },
                }
            })
        }
        _ => None,
    }
}

/// Rounded towards minus infinity; saturates.
fn floor_div(x: i64, y: i64) -> i64 {
    let q = x.saturating_div(y);
    let down = x.wrapping_rem(y) != 0 && (x < 0) != (y < 0);
    q - i64::from(down)
}

/// Intervals of variables in which `condition` has the value `holds`.
fn learn(condition: &Expr, holds: bool, r: &Ranges, out: &mut Vec<(VarId, Interval)>) {
    match condition.kind() {
        ExprKind::Unary(UnaryOp::Not, a) => learn(a, !holds, r, out),
        // True, both sides of a conjunction are; false, those of a disjunction.
        ExprKind::Binary(BinaryOp::And, a, b) if holds => {
            learn(a, true, r, out);
            learn(b, true, r, out);
        }
        ExprKind::Binary(BinaryOp::Or, a, b) if !holds => {
            learn(a, false, r, out);
            learn(b, false, r, out);
        }
        ExprKind::Binary(op, a, b) => match (op, holds) {
            (BinaryOp::Lt, true) => at_least(b, a, 1, r, out),
            (BinaryOp::Lt, false) => at_least(a, b, 0, r, out),
            (BinaryOp::Le, true) => at_least(b, a, 0, r, out),
            (BinaryOp::Le, false) => at_least(a, b, 1, r, out),
            (BinaryOp::Eq, true) | (BinaryOp::Ne, false) => {
                at_least(b, a, 0, r, out);
                at_least(a, b, 0, r, out);
            }
            _ => {}
        },
        _ => {}
    }
}

/// What `a - b >= low` says of each variable, the others being in their ranges.
fn at_least(a: &Expr, b: &Expr, low: i64, r: &Ranges, out: &mut Vec<(VarId, Interval)>) {
    let Some(difference) = Linear::of(&[(a, 1), (b, -1)], r) else {
        return;
    };
    for (v, k) in difference.terms.iter().filter(|t| t.1 != 0) {
        let others = Linear {
            terms: difference
                .terms
                .iter()
                .copied()
                .filter(|t| t.0 != *v)
                .collect(),
            rest: difference.rest,
        };
        // k * v >= need
        let need = others.bounds(r).and_then(|o| low.checked_sub(o.hi));
        let Some(need) = need else { continue };
        let (lo, hi) = match *k {
            k if k > 0 => (floor_div(need.saturating_add(k - 1), k), i64::MAX),
            k => (i64::MIN, floor_div(need, k)),
        };
        out.push((*v, Interval { lo, hi }));
    }
}
