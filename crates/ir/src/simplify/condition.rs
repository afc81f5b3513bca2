//! Rules for comparisons and logical connectives.

use super::rules::binary;
use super::sum::{Sum, is_index};
use crate::affine::Ranges;
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};

/// Positive terms on the left, negative on the right, constant folded into
/// one side, common factors divided out; `<=` becomes `<`.
pub(super) fn normalize_less(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (op, a, b) = binary(e)?;
    if !matches!(op, BinaryOp::Lt | BinaryOp::Le) || !(is_index(a) || is_index(b)) {
        return None;
    }
    if takes_bits(a) || takes_bits(b) {
        return None;
    }
    let s = Sum::of(a).add(&Sum::of(b), -1);
    if let Some(i) = s.bounds(r) {
        let limit = i64::from(op == BinaryOp::Le);
        if i.hi < limit {
            return Some(Expr::bool(true));
        }
        if i.lo >= limit {
            return Some(Expr::bool(false));
        }
    }
    // terms < right
    let right = i64::from(op == BinaryOp::Le).checked_sub(s.constant)?;
    let g = s.gcd().max(1);
    let right = right.checked_add(g - 1)?.div_euclid(g);
    let terms = Sum { constant: 0, ..s }.divided(g);
    let (positive, negative) = terms.partition(|k| k > 0);
    let negative = Sum::constant(0).add(&negative, -1);
    Some(if positive.terms.is_empty() {
        Expr::int(right.checked_neg()?).lt(negative.to_expr())
    } else if right >= 0 || negative.terms.is_empty() {
        positive
            .to_expr()
            .lt(negative.add(&Sum::constant(right), 1).to_expr())
    } else {
        positive
            .add(&Sum::constant(right.checked_neg()?), 1)
            .to_expr()
            .lt(negative.to_expr())
    })
}

/// Whether single bits are computed with: such numbers are no indices, and may be the greatest one, which has no next.
fn takes_bits(e: &Expr) -> bool {
    use BinaryOp::{BitAnd, BitOr, BitXor, Shl, Shr};
    e.any(&|e| {
        matches!(
            e.kind(),
            ExprKind::Binary(BitAnd | BitOr | BitXor | Shl | Shr, ..)
        )
    })
}

/// Terms on the left with a positive leading coefficient, constant on the right.
pub(super) fn normalize_equal(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (op, a, b) = binary(e)?;
    if !matches!(op, BinaryOp::Eq | BinaryOp::Ne) || !(is_index(a) || is_index(b)) {
        return None;
    }
    let s = Sum::of(a).add(&Sum::of(b), -1);
    let impossible = Some(Expr::bool(op == BinaryOp::Ne));
    if s.bounds(r).is_some_and(|i| i.lo > 0 || i.hi < 0) {
        return impossible;
    }
    let g = s.gcd();
    if g == 0 {
        return Some(Expr::bool((s.constant == 0) == (op == BinaryOp::Eq)));
    }
    if s.constant % g != 0 {
        return impossible;
    }
    let sign = if s.terms[0].1 < 0 { -g } else { g };
    let s = s.divided(sign);
    let right = Expr::int(s.constant.checked_neg()?);
    Some(Expr::binary(op, Sum { constant: 0, ..s }.to_expr(), right))
}

/// `x // c < n` is `x < n*c`, and `n < x // c` is `(n+1)*c <= x`.
pub(super) fn compare_quotient(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (a, b) = index_less(e)?;
    let s = Sum::of(a).add(&Sum::of(b), -1);
    let [(q, k)] = s.terms.as_slice() else {
        return None;
    };
    let (BinaryOp::FloorDiv, x, c) = binary(q)? else {
        return None;
    };
    let c = c.as_int().filter(|c| *c > 0)?;
    let magnitude = k.checked_abs()?;
    if *k > 0 {
        // The least integer that is not below.
        let n = s.constant.div_euclid(magnitude).checked_neg()?;
        Some(x.clone().lt(n.checked_mul(c)?))
    } else {
        let n = s.constant.div_euclid(magnitude).checked_add(1)?;
        Some(Expr::int(n.checked_mul(c)?).le(x))
    }
}

/// `g*a + b < n` is `a < m` when `b` is too small to matter.
pub(super) fn drop_low_terms(e: &Expr, r: &Ranges) -> Option<Expr> {
    let (a, b) = index_less(e)?;
    let s = Sum::of(a).add(&Sum::of(b), -1);
    let mut groups: Vec<i64> = s.terms.iter().map(|(_, k)| k.saturating_abs()).collect();
    groups.sort_unstable_by(|a, b| b.cmp(a));
    groups.dedup();
    for g in groups.into_iter().filter(|g| *g > 1) {
        let (high, low) = s.partition(|k| k % g == 0);
        if low.terms.is_empty() {
            continue;
        }
        // high < -low, hence a < -low // g rounded up, the same for all of low.
        let Some(b) = low.bounds(r) else { continue };
        let below = |v: i64| v.div_euclid(g).checked_neg();
        if let (Some(m), Some(n)) = (below(b.lo), below(b.hi))
            && m == n
        {
            return Some(high.divided(g).to_expr().lt(m));
        }
    }
    None
}

/// The operands of `<` on indices.
fn index_less(e: &Expr) -> Option<(&Expr, &Expr)> {
    match binary(e)? {
        (BinaryOp::Lt, a, b) if is_index(a) || is_index(b) => Some((a, b)),
        _ => None,
    }
}

/// `not (a < b)` for indices is `b <= a`; `not (a == b)` is `a != b`.
pub(super) fn negate_comparison(e: &Expr, _: &Ranges) -> Option<Expr> {
    let ExprKind::Unary(UnaryOp::Not, a) = e.kind() else {
        return None;
    };
    if let ExprKind::Unary(UnaryOp::Not, x) = a.kind() {
        return Some(x.clone());
    }
    let (op, x, y) = binary(a)?;
    // With floats, NaN makes both a comparison and its opposite false.
    let index = is_index(x) || is_index(y);
    match op {
        BinaryOp::Lt if index => Some(y.clone().le(x)),
        BinaryOp::Le if index => Some(y.clone().lt(x)),
        BinaryOp::Eq => Some(Expr::binary(BinaryOp::Ne, x, y)),
        BinaryOp::Ne => Some(x.clone().equals(y)),
        _ => None,
    }
}

/// `not (a and b)` is `not a or not b`; the order of evaluation stays.
pub(super) fn push_not(e: &Expr, _: &Ranges) -> Option<Expr> {
    let ExprKind::Unary(UnaryOp::Not, x) = e.kind() else {
        return None;
    };
    let (op, a, b) = binary(x)?;
    let dual = match op {
        BinaryOp::And => BinaryOp::Or,
        BinaryOp::Or => BinaryOp::And,
        _ => return None,
    };
    let not = |e: &Expr| Expr::unary(UnaryOp::Not, e);
    Some(Expr::binary(dual, not(a), not(b)))
}

/// `a and (b and c)` is `(a and b) and c`, and so for `or`.
pub(super) fn lean_left(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (op, a, b) = binary(e)?;
    let (inner, x, y) = binary(b)?;
    (op.is_logical() && inner == op).then(|| Expr::binary(op, Expr::binary(op, a, x), y))
}

/// Of two comparisons of one sum, the stronger in a conjunction, the weaker in
/// a disjunction, where the first stood; and pairs that exclude or cover.
pub(super) fn merge_limits(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (op, ..) = binary(e)?;
    if !op.is_logical() {
        return None;
    }
    let mut parts = Vec::new();
    flatten(op, e, &mut parts);
    let last = parts.pop()?;
    // Earlier pairs were met at the nodes below.
    let (terms, limit) = limited(&last)?;
    for part in &mut parts {
        let Some((other, other_limit)) = limited(part) else {
            continue;
        };
        if other == terms {
            let kept = match op {
                BinaryOp::And => limit.min(other_limit),
                _ => limit.max(other_limit),
            };
            if kept == limit {
                *part = last;
            }
            return parts.into_iter().reduce(|x, y| Expr::binary(op, x, y));
        }
        // terms < limit and -terms < other_limit: -other_limit < terms < limit.
        if other.clone().add(&terms, 1).terms.is_empty() {
            let width = limit.checked_add(other_limit)?;
            let decided = match op {
                BinaryOp::And if width <= 1 => Some(false),
                BinaryOp::Or if width >= 1 => Some(true),
                _ => None,
            };
            if let Some(truth) = decided {
                return Some(Expr::bool(truth));
            }
        }
    }
    None
}

/// A comparison of indices as `terms < limit`.
fn limited(e: &Expr) -> Option<(Sum, i64)> {
    let (a, b) = index_less(e)?;
    let s = Sum::of(a).add(&Sum::of(b), -1);
    let limit = s.constant.checked_neg()?;
    let constant = 0;
    (!s.terms.is_empty()).then_some((Sum { constant, ..s }, limit))
}

/// `true and x`, `false or x`, repeated conjuncts; the order of evaluation stays.
pub(super) fn absorb_logical(e: &Expr, _: &Ranges) -> Option<Expr> {
    let (op, a, b) = binary(e)?;
    let neutral = match op {
        BinaryOp::And => 1,
        BinaryOp::Or => 0,
        _ => return None,
    };
    match (a.as_int(), b.as_int()) {
        (Some(v), _) => return Some(if v == neutral { b.clone() } else { a.clone() }),
        (_, Some(v)) if v == neutral => return Some(a.clone()),
        // The left side may fail where the right is false, but a value is a value.
        (_, Some(_)) if !may_fail(a) => return Some(b.clone()),
        _ => {}
    }
    let mut parts = Vec::new();
    flatten(op, a, &mut parts);
    let before = parts.len();
    let mut kept: Vec<Expr> = Vec::new();
    for p in parts {
        if !kept.contains(&p) {
            kept.push(p);
        }
    }
    let mut right = Vec::new();
    flatten(op, b, &mut right);
    let all = before + right.len();
    for p in right {
        if !kept.contains(&p) {
            kept.push(p);
        }
    }
    if kept.len() == all {
        return None;
    }
    kept.into_iter().reduce(|x, y| Expr::binary(op, x, y))
}

pub(super) fn flatten(op: BinaryOp, e: &Expr, out: &mut Vec<Expr>) {
    match e.kind() {
        ExprKind::Binary(o, a, b) if *o == op => {
            flatten(op, a, out);
            flatten(op, b, out);
        }
        _ => out.push(e.clone()),
    }
}

/// Whether evaluation can be an error: a load or a division.
pub(super) fn may_fail(e: &Expr) -> bool {
    e.any(&|e| match e.kind() {
        ExprKind::Load(..) => true,
        ExprKind::Binary(BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod, _, b) => {
            b.as_int().is_none_or(|v| v == 0)
        }
        _ => false,
    })
}
