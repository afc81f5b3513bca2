//! Integer facts about index expressions: intervals and linear forms.
//!
//! Everything here is sound for expressions whose values and intermediate
//! results fit in `i64`; interval ends saturate.

use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::VarId;
use std::collections::{BTreeMap, HashMap};

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

    pub fn union(self, o: Interval) -> Interval {
        Interval {
            lo: self.lo.min(o.lo),
            hi: self.hi.max(o.hi),
        }
    }
}

/// What values variables take.
#[derive(Clone, Debug, Default)]
pub struct Ranges(HashMap<VarId, Interval>);

impl Ranges {
    pub fn new() -> Ranges {
        Ranges::default()
    }

    /// `v` is in `lo..=hi`.
    pub fn set(&mut self, v: VarId, lo: i64, hi: i64) {
        self.0.insert(v, Interval { lo, hi });
    }

    /// `v` is in `0..extent`.
    pub fn set_extent(&mut self, v: VarId, extent: i64) {
        self.set(v, 0, (extent - 1).max(0));
    }

    pub fn get(&self, v: VarId) -> Option<Interval> {
        self.0.get(&v).copied()
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
            *self.terms.entry(*v).or_insert(0) += c * k;
        }
        self.terms.retain(|_, c| *c != 0);
        self.constant += other.constant * k;
        self
    }

    pub fn scale(&self, k: i64) -> Affine {
        Affine::default().add_scaled(self, k)
    }

    /// The linear form of `e`; `None` if it is not one.
    pub fn of(e: &Expr) -> Option<Affine> {
        match e.kind() {
            ExprKind::Int(v, _) => Some(Affine::constant(*v)),
            ExprKind::Var(v) => Some(Affine::var(*v)),
            ExprKind::Unary(UnaryOp::Neg, a) => Some(Affine::of(a)?.scale(-1)),
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                Some(Affine::of(a)?.add_scaled(&Affine::of(b)?, 1))
            }
            ExprKind::Binary(BinaryOp::Sub, a, b) => {
                Some(Affine::of(a)?.add_scaled(&Affine::of(b)?, -1))
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                let (a, b) = (Affine::of(a)?, Affine::of(b)?);
                match (a.terms.is_empty(), b.terms.is_empty()) {
                    (true, _) => Some(b.scale(a.constant)),
                    (_, true) => Some(a.scale(b.constant)),
                    _ => None,
                }
            }
            _ => None,
        }
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

/// All values that an integer or boolean expression can take; `None` if it
/// depends on data or on a variable without a range.
pub fn bounds(e: &Expr, r: &Ranges) -> Option<Interval> {
    if let Some(a) = Affine::of(e) {
        return affine_bounds(&a, r);
    }
    match e.kind() {
        ExprKind::Int(v, _) => Some(Interval::point(*v)),
        ExprKind::Var(v) => r.get(*v),
        ExprKind::Unary(UnaryOp::Neg, a) => {
            let a = bounds(a, r)?;
            Some(Interval {
                lo: a.hi.saturating_neg(),
                hi: a.lo.saturating_neg(),
            })
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
        ExprKind::Binary(op, a, b) => binary_bounds(*op, a, b, r),
        ExprKind::Select(c, a, b) => {
            let c = bounds(c, r).unwrap_or(Interval::BOOL);
            match (c.lo, c.hi) {
                (1, _) => bounds(a, r),
                (_, 0) => bounds(b, r),
                _ => Some(bounds(a, r)?.union(bounds(b, r)?)),
            }
        }
        _ => None,
    }
}

fn affine_bounds(a: &Affine, r: &Ranges) -> Option<Interval> {
    let mut out = Interval::point(a.constant);
    for (v, c) in &a.terms {
        let x = r.get(*v)?;
        let (p, q) = (x.lo.saturating_mul(*c), x.hi.saturating_mul(*c));
        out.lo = out.lo.saturating_add(p.min(q));
        out.hi = out.hi.saturating_add(p.max(q));
    }
    Some(out)
}

fn decided(truth: Option<bool>) -> Option<Interval> {
    Some(truth.map_or(Interval::BOOL, |t| Interval::point(i64::from(t))))
}

fn binary_bounds(op: BinaryOp, a: &Expr, b: &Expr, r: &Ranges) -> Option<Interval> {
    let (x, y) = match op {
        // One decided side decides a conjunction or disjunction whatever the other is.
        BinaryOp::And | BinaryOp::Or => {
            let x = bounds(a, r).unwrap_or(Interval::BOOL);
            let y = bounds(b, r).unwrap_or(Interval::BOOL);
            return Some(if op == BinaryOp::And {
                Interval {
                    lo: x.lo.min(y.lo),
                    hi: x.hi.min(y.hi),
                }
            } else {
                Interval {
                    lo: x.lo.max(y.lo),
                    hi: x.hi.max(y.hi),
                }
            });
        }
        _ => (bounds(a, r)?, bounds(b, r)?),
    };
    let difference = || match (Affine::of(a), Affine::of(b)) {
        (Some(a), Some(b)) => affine_bounds(&b.add_scaled(&a, -1), r),
        _ => Some(Interval {
            lo: y.lo.saturating_sub(x.hi),
            hi: y.hi.saturating_sub(x.lo),
        }),
    };
    match op {
        BinaryOp::Add => Some(Interval::corners(x, y, i64::saturating_add)),
        BinaryOp::Sub => Some(Interval::corners(x, y, i64::saturating_sub)),
        BinaryOp::Mul => Some(Interval::corners(x, y, i64::saturating_mul)),
        BinaryOp::Min => Some(Interval {
            lo: x.lo.min(y.lo),
            hi: x.hi.min(y.hi),
        }),
        BinaryOp::Max => Some(Interval {
            lo: x.lo.max(y.lo),
            hi: x.hi.max(y.hi),
        }),
        BinaryOp::FloorDiv if y.lo > 0 => Some(Interval::corners(x, y, i64::div_euclid)),
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
        BinaryOp::Lt => {
            let d = difference()?;
            decided(if d.lo > 0 {
                Some(true)
            } else if d.hi <= 0 {
                Some(false)
            } else {
                None
            })
        }
        BinaryOp::Le => {
            let d = difference()?;
            decided(if d.lo >= 0 {
                Some(true)
            } else if d.hi < 0 {
                Some(false)
            } else {
                None
            })
        }
        BinaryOp::Eq | BinaryOp::Ne => {
            let d = difference()?;
            let equal = if d.lo == 0 && d.hi == 0 {
                Some(true)
            } else if d.lo > 0 || d.hi < 0 {
                Some(false)
            } else {
                None
            };
            decided(equal.map(|e| e == (op == BinaryOp::Eq)))
        }
        _ => None,
    }
}
