//! The rules, each a function from a node with simplified operands to its
//! replacement. Every rule is fuzzed alone by name.

use super::condition::{
    absorb_logical, compare_quotient, drop_low_terms, lean_left, merge_limits, negate_comparison,
    normalize_equal, normalize_less, push_not,
};
use super::select::{merge_selects, select_known};
use super::sum::{self, Sum, gcd, is_index, known_type, order};
use crate::affine::{Ranges, bounds};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use tensor::DType;

pub type Rule = fn(&Expr, &Ranges) -> Option<Expr>;

/// Tried in this order; earlier ones make the later ones' patterns canonical.
pub const RULES: &[(&str, Rule)] = &[
    ("fold_constants", fold_constants),
    ("decide_by_range", decide_by_range),
    ("canonical_sum", canonical_sum),
    ("rejoin_div_mod", rejoin_div_mod),
    ("divide_sum", divide_sum),
    ("divide_by_grouping", divide_by_grouping),
    ("divide_quotient", divide_quotient),
    ("divide_remainder", divide_remainder),
    ("remainder_of_sum", remainder_of_sum),
    ("remainder_by_grouping", remainder_by_grouping),
    ("remainder_of_remainder", remainder_of_remainder),
    ("truncate_is_floor", truncate_is_floor),
    ("absolute_of_known_sign", absolute_of_known_sign),
    ("choose_extreme", choose_extreme),
    ("order_extreme", order_extreme),
    ("normalize_less", normalize_less),
    ("compare_quotient", compare_quotient),
    ("drop_low_terms", drop_low_terms),
    ("normalize_equal", normalize_equal),
    ("negate_comparison", negate_comparison),
    ("push_not", push_not),
    ("lean_left", lean_left),
    ("absorb_logical", absorb_logical),
    ("merge_limits", merge_limits),
    ("select_known", select_known),
    ("merge_selects", merge_selects),
    ("drop_cast", drop_cast),
    ("drop_high_bits", drop_high_bits),
    ("float_identity", float_identity),
];

/// The rules that may change a node. On arithmetic that is no index, which unrolled code is
/// made of, most rules do nothing.
pub fn rules_for(e: &Expr) -> &'static [(&'static str, Rule)] {
    const OF_NUMBERS: &[(&str, Rule)] = &[
        ("fold_constants", fold_constants),
        ("float_identity", float_identity),
    ];
    let arithmetic = match e.kind() {
        ExprKind::Binary(op, ..) => !op.is_comparison() && !op.is_logical(),
        _ => false,
    };
    match arithmetic && !is_index(e) {
        true => OF_NUMBERS,
        false => RULES,
    }
}

pub(super) fn binary(e: &Expr) -> Option<(BinaryOp, &Expr, &Expr)> {
    match e.kind() {
        ExprKind::Binary(op, a, b) => Some((*op, a, b)),
        _ => None,
    }
}

/// Operators on constants, where the result is defined. Floating-point
/// arithmetic is folded for `f32` and `f64` only, in that precision.
fn fold_constants(e: &Expr, _: &Ranges) -> Option<Expr> {
    match e.kind() {
        ExprKind::Binary(op, a, b) => match (a.kind(), b.kind()) {
            (ExprKind::Int(x, d), ExprKind::Int(y, _)) => fold_integers(*op, *x, *y, *d),
            (ExprKind::Float(x, d), ExprKind::Float(y, _)) => {
                fold_floats(*op, f64::from_bits(*x), f64::from_bits(*y), *d)
            }
            _ => None,
        },
        ExprKind::Unary(UnaryOp::Not, a) => Some(Expr::bool(a.as_int()? == 0)),
        ExprKind::Unary(UnaryOp::Neg, a) => match a.kind() {
            ExprKind::Int(v, d) if d.is_int() => Some(wrapped(v.wrapping_neg(), *d)),
            ExprKind::Float(v, d) => {
                Some(ExprKind::Float((-f64::from_bits(*v)).to_bits(), *d).into())
            }
            _ => None,
        },
        ExprKind::Cast(to, a) => match a.kind() {
            ExprKind::Int(v, from) if to == from => Some(wrapped(*v, *to)),
            ExprKind::Int(v, from) if from.is_int() && to.is_int() => Some(wrapped(*v, *to)),
            ExprKind::Int(v, DType::Bool) if to.is_int() => Some(wrapped(*v, *to)),
            ExprKind::Int(v, _) if to.is_float() && v.unsigned_abs() < 1 << 53 => {
                exactly(*v as f64, *to)
            }
            ExprKind::Float(v, _) if to.is_float() => exactly(f64::from_bits(*v), *to),
            _ => None,
        },
        _ => None,
    }
}

/// `v` as a constant of a float type that holds it without rounding.
fn exactly(v: f64, d: DType) -> Option<Expr> {
    let e = Expr::constant(v, d);
    (e.as_float() == Some(v)).then_some(e)
}

/// `v` wrapped to the integer type `d`.
fn wrapped(v: i64, d: DType) -> Expr {
    let v = match d {
        DType::I8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::I32 => i64::from(v as i32),
        DType::I16 => i64::from(v as i16),
        DType::U16 => i64::from(v as u16),
        DType::U32 => i64::from(v as u32),
        _ => v,
    };
    ExprKind::Int(v, d).into()
}

fn fold_integers(op: BinaryOp, x: i64, y: i64, d: DType) -> Option<Expr> {
    let v = match op {
        BinaryOp::Add => x.wrapping_add(y),
        BinaryOp::Sub => x.wrapping_sub(y),
        BinaryOp::Mul => x.wrapping_mul(y),
        BinaryOp::Div => x.checked_div(y)?,
        BinaryOp::FloorDiv => floor_div(x, y)?,
        BinaryOp::FloorMod => x.wrapping_sub(floor_div(x, y)?.wrapping_mul(y)),
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::And => x & y,
        BinaryOp::Or => x | y,
        BinaryOp::Eq => return Some(Expr::bool(x == y)),
        BinaryOp::Ne => return Some(Expr::bool(x != y)),
        BinaryOp::Lt => return Some(Expr::bool(x < y)),
        BinaryOp::Le => return Some(Expr::bool(x <= y)),
        BinaryOp::Pow => return None,
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor | BinaryOp::Shl | BinaryOp::Shr => {
            op.bits(x, y, d)
        }
    };
    Some(wrapped(v, d))
}

fn floor_div(x: i64, y: i64) -> Option<i64> {
    let q = x.checked_div(y)?;
    Some(if x % y != 0 && (x < 0) != (y < 0) {
        q - 1
    } else {
        q
    })
}

fn fold_floats(op: BinaryOp, x: f64, y: f64, d: DType) -> Option<Expr> {
    let arithmetic = |op: fn(f64, f64) -> f64, op32: fn(f32, f32) -> f32| match d {
        DType::F64 => Some(Expr::constant(op(x, y), d)),
        DType::F32 => Some(Expr::constant(f64::from(op32(x as f32, y as f32)), d)),
        _ => None,
    };
    match op {
        BinaryOp::Add => arithmetic(|a, b| a + b, |a, b| a + b),
        BinaryOp::Sub => arithmetic(|a, b| a - b, |a, b| a - b),
        BinaryOp::Mul => arithmetic(|a, b| a * b, |a, b| a * b),
        BinaryOp::Div => arithmetic(|a, b| a / b, |a, b| a / b),
        BinaryOp::Lt => Some(Expr::bool(x < y)),
        BinaryOp::Le => Some(Expr::bool(x <= y)),
        BinaryOp::Eq => Some(Expr::bool(x == y)),
        BinaryOp::Ne => Some(Expr::bool(x != y)),
        _ => None,
    }
}

/// An integer or boolean that can only have one value.
fn decide_by_range(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (op, a, b) = binary(e)?;
    if op.is_comparison() {
        if !is_index(a) && !is_index(b) {
            return None;
        }
    } else if op.is_logical() || !is_index(e) {
        return None;
    }
    let v = bounds(e, r)?;
    let one = v.lo == v.hi;
    one.then(|| {
        if op.is_comparison() {
            Expr::bool(v.lo == 1)
        } else {
            Expr::int(v.lo)
        }
    })
}

/// Sums and products of indices in canonical order.
fn canonical_sum(e: &Expr, _: &Ranges) -> Option<Expr> {
    let arithmetic = match e.kind() {
        ExprKind::Binary(op, ..) => matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul),
        ExprKind::Unary(op, _) => *op == UnaryOp::Neg,
        _ => false,
    };
    let sum = (arithmetic && is_index(e)).then(|| Sum::of(e))?;
    (!sum.is(e)).then(|| sum.to_expr())
}

/// `(x // c) * c + x % c` is `x`, and with `(x // c) % d` it is `x % (c*d)`.
fn rejoin_div_mod(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (op, ..) = binary(e)?;
    if op != BinaryOp::Add || !is_index(e) || !has_remainder(e) {
        return None;
    }
    let mut s = Sum::of(e);
    s.rejoin().then(|| s.to_expr())
}

/// Whether a term of a sum is a remainder.
fn has_remainder(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Binary(BinaryOp::FloorMod, ..) => true,
        ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, a, b) => {
            has_remainder(a) || has_remainder(b)
        }
        ExprKind::Unary(UnaryOp::Neg, a) => has_remainder(a),
        _ => false,
    }
}

/// The operands of `x op c` for an index `x` and a constant `c > 0`.
fn by_constant(e: &Expr, wanted: BinaryOp) -> Option<(&Expr, i64)> {
    sum::by_constant(e, wanted).filter(|_| is_index(e))
}

/// `(c*q + r) // c` is `q + r // c`, and `r // c` is known when `r` is in one block.
fn divide_sum(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (x, c) = by_constant(e, BinaryOp::FloorDiv)?;
    let s = Sum::of(x);
    let (mut whole, mut rest) = s.partition(|k| k % c == 0);
    let n = rest.constant.div_euclid(c);
    whole.constant += n * c;
    rest.constant -= n * c;
    let whole = whole.divided(c);
    if let Some(b) = rest.bounds(r)
        && b.lo.div_euclid(c) == b.hi.div_euclid(c)
    {
        return Some(whole.add(&Sum::constant(b.lo.div_euclid(c)), 1).to_expr());
    }
    if whole.terms.is_empty() && whole.constant == 0 {
        return None;
    }
    let quotient = Sum::of(&rest.to_expr().floor_div(c));
    Some(whole.add(&quotient, 1).to_expr())
}

/// `(g*a + b) // (g*d)` is `a // d` when `b` is in `[0, g)`.
fn divide_by_grouping(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (x, c) = by_constant(e, BinaryOp::FloorDiv)?;
    let (a, g, _) = grouped(&Sum::of(x), c, r)?;
    Some(a.to_expr().floor_div(c / g))
}

/// `s = g*a + b` with `g` dividing `c`, `1 < g < c`, and `b` in `[0, g)`: (a, g, b).
fn grouped(s: &Sum, c: i64, r: &Ranges) -> Option<(Sum, i64, Sum)> {
    let mut groups: Vec<i64> = s.terms.iter().map(|(_, k)| gcd(*k, c)).collect();
    groups.sort_unstable_by(|a, b| b.cmp(a));
    groups.dedup();
    for g in groups.into_iter().filter(|g| *g > 1 && *g < c) {
        let (mut a, mut b) = s.partition(|k| k % g == 0);
        let n = b.constant.div_euclid(g);
        a.constant += n * g;
        b.constant -= n * g;
        if b.bounds(r).is_some_and(|i| i.lo >= 0 && i.hi < g) {
            return Some((a.divided(g), g, b));
        }
    }
    None
}

/// `(x // a) // b` is `x // (a*b)`.
fn divide_quotient(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (x, c) = by_constant(e, BinaryOp::FloorDiv)?;
    let (y, d) = by_constant(x, BinaryOp::FloorDiv)?;
    Some(y.clone().floor_div(c.checked_mul(d)?))
}

/// `(x % (c*d)) // c` is `(x // c) % d`.
fn divide_remainder(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (x, c) = by_constant(e, BinaryOp::FloorDiv)?;
    let (y, d) = by_constant(x, BinaryOp::FloorMod)?;
    (d % c == 0).then(|| y.clone().floor_div(c).floor_mod(d / c))
}

/// `(c*q + r) % c` is `r % c`, and `r` shifted when `r` is in one block.
fn remainder_of_sum(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (x, c) = by_constant(e, BinaryOp::FloorMod)?;
    let s = Sum::of(x);
    let (whole, mut rest) = s.partition(|k| k % c == 0);
    rest.constant = rest.constant.rem_euclid(c);
    if let Some(b) = rest.bounds(r)
        && b.lo.div_euclid(c) == b.hi.div_euclid(c)
    {
        rest.constant -= b.lo.div_euclid(c) * c;
        return Some(rest.to_expr());
    }
    let changed = !whole.terms.is_empty() || rest.constant != s.constant;
    changed.then(|| rest.to_expr().floor_mod(c))
}

/// `(g*a + b) % (g*d)` is `g * (a % d) + b` when `b` is in `[0, g)`.
fn remainder_by_grouping(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (x, c) = by_constant(e, BinaryOp::FloorMod)?;
    let (a, g, b) = grouped(&Sum::of(x), c, r)?;
    let high = a.to_expr().floor_mod(c / g) * g;
    Some(Sum::of(&high).add(&b, 1).to_expr())
}

/// `(x % (c*d)) % c` is `x % c`.
fn remainder_of_remainder(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (x, c) = by_constant(e, BinaryOp::FloorMod)?;
    let (y, d) = by_constant(x, BinaryOp::FloorMod)?;
    (d % c == 0).then(|| y.clone().floor_mod(c))
}

/// `x / y` of a positive divisor and a dividend that is not negative is `x // y`.
fn truncate_is_floor(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (BinaryOp::Div, x, y) = binary(e)? else {
        return None;
    };
    let floors = is_index(e) && bounds(x, r)?.lo >= 0 && bounds(y, r)?.lo > 0;
    floors.then(|| x.clone().floor_div(y))
}

/// `abs(x)` is `x` or `-x`.
fn absolute_of_known_sign(e: &Expr, r: &Ranges) -> Option<Expr> {
    let ExprKind::Unary(UnaryOp::Abs, x) = e.kind() else {
        return None;
    };
    match bounds(x, r)? {
        i if !is_index(x) || (i.lo < 0 && i.hi > 0) => None,
        i if i.lo >= 0 => Some(x.clone()),
        _ => Some(-x.clone()),
    }
}

/// min and max of indices whose order is known.
fn choose_extreme(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (op, a, b) = binary(e)?;
    if !matches!(op, BinaryOp::Min | BinaryOp::Max) || !is_index(e) {
        return None;
    }
    let d = Sum::of(b).add(&Sum::of(a), -1).bounds(r)?;
    let (small, large) = if d.lo >= 0 {
        (a, b)
    } else if d.hi <= 0 {
        (b, a)
    } else {
        return None;
    };
    Some(if op == BinaryOp::Min {
        small.clone()
    } else {
        large.clone()
    })
}

/// min and max of indices have their operands in canonical order; of floats
/// they do not commute.
fn order_extreme(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (op, a, b) = binary(e)?;
    let swaps = matches!(op, BinaryOp::Min | BinaryOp::Max) && is_index(e) && order(b) < order(a);
    swaps.then(|| Expr::binary(op, b, a))
}

/// A conversion to the type that the value has, or back to it.
fn drop_cast(e: &Expr, r: &Ranges) -> Option<Expr> {
    let ExprKind::Cast(to, a) = e.kind() else {
        return None;
    };
    if known_type(a) == Some(*to) {
        return Some(a.clone());
    }
    let ExprKind::Cast(narrow, x) = a.kind() else {
        return None;
    };
    if *to != DType::I64 || !is_index(x) {
        return None;
    }
    let (lo, hi) = match narrow {
        DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DType::U8 => (0, i64::from(u8::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => return None,
    };
    let held = bounds(x, r)?;
    (lo <= held.lo && held.hi <= hi).then(|| x.clone())
}

/// What changes only bits that a cast to a narrower integer leaves out.
fn drop_high_bits(e: &Expr, _: &Ranges) -> Option<Expr> {
    let is_integer = |d: DType| d.is_int() || d.is_stored_only();
    let ExprKind::Cast(to, whole) = e.kind() else {
        return None;
    };
    if !is_integer(*to) || to.bits() >= 64 {
        return None;
    }
    let low = (1i64 << to.bits()) - 1;
    let has_bits = |e: &Expr| known_type(e).is_some_and(|d| is_integer(d) && d.bits() >= to.bits());
    let (mut inner, mut added) = (whole, 0i64);
    let mut found = None;
    while has_bits(inner) {
        inner = match inner.kind() {
            ExprKind::Cast(_, x) if has_bits(x) => x,
            ExprKind::Binary(op, x, c) => match (op, c.as_int()) {
                (BinaryOp::BitAnd, Some(mask)) if mask & low == low => x,
                (BinaryOp::Add, Some(c)) => {
                    added = added.wrapping_add(c);
                    x
                }
                _ => break,
            },
            _ => break,
        };
        if added & low == 0 {
            found = Some(inner);
        }
    }
    found.map(|x| x.clone().cast(*to))
}

/// `x * 1`, `x / 1`, `x - 0` and `x + -0` keep every bit; `x + 0` would turn -0 into 0.
fn float_identity(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (op, a, b) = binary(e)?;
    let is = |e: &Expr, v: f64| e.as_float().is_some_and(|f| f.to_bits() == v.to_bits());
    match op {
        BinaryOp::Mul if is(b, 1.0) => Some(a.clone()),
        BinaryOp::Mul if is(a, 1.0) => Some(b.clone()),
        BinaryOp::Div if is(b, 1.0) => Some(a.clone()),
        BinaryOp::Sub if is(b, 0.0) => Some(a.clone()),
        BinaryOp::Add if is(b, -0.0) => Some(a.clone()),
        BinaryOp::Add if is(a, -0.0) => Some(b.clone()),
        _ => None,
    }
}
