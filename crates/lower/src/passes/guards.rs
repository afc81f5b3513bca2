//! A term that is neutral where a condition fails is skipped there.
//!
//! In `acc = acc + T` (or `*`, `min`, `max`), if `T` becomes the neutral element
//! once a `select(c, x, constant)` in it takes its constant, the update goes
//! under `if c` and the select becomes `x`. For sums the constant may be deep in
//! the term: `select(c, x, 0) * w`, or `(select(c, x, z) - z) * w` with integers.
//! What this may change in floating point is said in the crate's documentation.
//!
//! A condition that differs between the lanes of a vector stays in its select: loads are
//! then masked, and the accumulator is updated whole. An update under a mask would keep
//! the other lanes of the accumulator, which takes a merge for each, and more registers.

use crate::LowerError;
use crate::nest::{Assign, For, Nest, Stmt, conjunction, conjuncts, guarded};
use ir::simplify::is_index;
use ir::{BinaryOp, DType, Expr, ExprKind, LoopKind, UnaryOp, VarId};

pub(crate) fn guards(nest: &mut Nest) -> Result<(), LowerError> {
    nest.map_entries(|_, stmts| split(stmts, &[]));
    Ok(())
}

/// `lanes` are the variables of the vectorized loops around.
fn split(stmts: Vec<Stmt>, lanes: &[VarId]) -> Vec<Stmt> {
    let one = |s: Stmt| match s {
        Stmt::For(mut l) => {
            let own = (l.kind == LoopKind::Vectorized).then_some(l.var);
            let lanes: Vec<VarId> = lanes.iter().copied().chain(own).collect();
            let body = split(std::mem::take(&mut l.body), &lanes);
            vec![Stmt::For(For { body, ..l })]
        }
        Stmt::If { cond, then } => guarded(conjuncts(&cond), split(then, lanes)),
        Stmt::Assign(a) => guard(a, lanes),
        other => vec![other],
    };
    stmts.into_iter().flat_map(one).collect()
}

fn guard(mut a: Assign, lanes: &[VarId]) -> Vec<Stmt> {
    let mut conds = Vec::new();
    while let Some((cond, value)) = guarded_update(&a, lanes) {
        conds.extend(cond);
        a.value = value;
    }
    guarded(conds, vec![Stmt::Assign(a)])
}

/// Conditions outside of which the update changes nothing, the same for all `lanes`, and
/// the value under them.
fn guarded_update(a: &Assign, lanes: &[VarId]) -> Option<(Vec<Expr>, Expr)> {
    let ExprKind::Binary(op, left, right) = a.value.kind() else {
        return None;
    };
    let is_self =
        |e: &Expr| matches!(e.kind(), ExprKind::Load(b, i) if *b == a.buffer && *i == a.indices);
    let (acc, term) = match (is_self(left), is_self(right)) {
        (true, _) => (left, right),
        (_, true) => (right, left),
        _ => return None,
    };
    let neutral: fn(&Expr) -> bool = match op {
        BinaryOp::Add => |e| is_value(e, 0.0),
        BinaryOp::Mul => |e| is_value(e, 1.0),
        BinaryOp::Max => |e| is_extreme(e, false),
        BinaryOp::Min => |e| is_extreme(e, true),
        _ => return None,
    };
    let (cond, bare) = selects(term).into_iter().find_map(|s| {
        let ExprKind::Select(c, x, otherwise) = s.kind() else {
            return None;
        };
        let vanishes = |constant: &Expr| neutral(&folded(&replaced(term, &s, constant)));
        let (cond, value, constant) = match () {
            () if vanishes(otherwise) => (c.clone(), x, otherwise),
            () if vanishes(x) => (negated(c), otherwise, x),
            () => return None,
        };
        let differs = |c: &Expr| lanes.iter().any(|l| c.uses_var(*l));
        let (by_lane, same): (Vec<Expr>, Vec<Expr>) =
            conjuncts(&cond).into_iter().partition(differs);
        let left = match conjunction(by_lane) {
            Some(c) => Expr::select(c, value.clone(), constant.clone()),
            None => value.clone(),
        };
        (!same.is_empty()).then(|| (same, replaced(term, &s, &left)))
    })?;
    let update = if is_self(left) {
        Expr::binary(*op, acc, bare)
    } else {
        Expr::binary(*op, bare, acc)
    };
    Some((cond, update))
}

/// Selects that are evaluated whenever the term is: not those inside the sides
/// of another, nor in an index.
fn selects(e: &Expr) -> Vec<Expr> {
    match e.kind() {
        ExprKind::Select(..) => vec![e.clone()],
        ExprKind::Load(..) => vec![],
        _ => e.children().flat_map(selects).collect(),
    }
}

fn replaced(e: &Expr, from: &Expr, to: &Expr) -> Expr {
    if e == from {
        return to.clone();
    }
    e.map_children(|c| replaced(c, from, to))
}

/// Where numbers are not indices neither comparison need hold: one may be no number.
fn negated(c: &Expr) -> Expr {
    match c.kind() {
        ExprKind::Unary(UnaryOp::Not, a) => a.clone(),
        ExprKind::Binary(BinaryOp::Lt, a, b) if is_index(a) || is_index(b) => b.clone().le(a),
        ExprKind::Binary(BinaryOp::Le, a, b) if is_index(a) || is_index(b) => b.clone().lt(a),
        _ => Expr::unary(UnaryOp::Not, c),
    }
}

/// Constant folding of what decides neutrality, with `0 * x = 0` for any `x`.
fn folded(e: &Expr) -> Expr {
    let zero = |e: &Expr| is_value(e, 0.0);
    e.rewrite(&mut |e| match e.kind() {
        ExprKind::Binary(BinaryOp::Mul, a, _) if zero(a) => Some(a.clone()),
        ExprKind::Binary(BinaryOp::Mul, _, b) if zero(b) => Some(b.clone()),
        ExprKind::Binary(BinaryOp::Sub, a, b) => {
            let (x, y) = (number(a)?, number(b)?);
            let dtype = constant_type(a)?;
            (x == y && x.is_finite()).then(|| Expr::constant(0.0, dtype))
        }
        ExprKind::Binary(BinaryOp::Add, a, b) if zero(a) && zero(b) => Some(a.clone()),
        ExprKind::Unary(UnaryOp::Neg, a) if zero(a) => Some(a.clone()),
        ExprKind::Cast(to, a) => {
            let x = number(a)?;
            let exact = x == 0.0 || (constant_type(a)?.is_int() && *to == DType::I32);
            exact.then(|| Expr::constant(x, *to))
        }
        _ => None,
    })
}

fn constant_type(e: &Expr) -> Option<DType> {
    match e.kind() {
        ExprKind::Int(_, d) | ExprKind::Float(_, d) => Some(*d),
        _ => None,
    }
}

fn number(e: &Expr) -> Option<f64> {
    e.as_float().or_else(|| {
        e.as_int()
            .filter(|v| v.unsigned_abs() < 1 << 31)
            .map(|v| v as f64)
    })
}

fn is_value(e: &Expr, v: f64) -> bool {
    number(e) == Some(v)
}

/// Whether a constant is the largest (or smallest) value of its type.
fn is_extreme(e: &Expr, largest: bool) -> bool {
    let Some(dtype) = constant_type(e) else {
        return false;
    };
    let reducer = if largest {
        ir::Reducer::Min
    } else {
        ir::Reducer::Max
    };
    reducer.identity(&[dtype])[0] == *e
}
