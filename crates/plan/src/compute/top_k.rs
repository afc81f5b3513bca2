//! Order along an axis.

use super::{Env, Kind, Point};
use graph::ops::TopK;
use ir::names::MAIN;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder, Reducer, UnaryOp};

/// `rank` counts for each element those before it; `main` finds the one of each rank. Both
/// compare every element with every other, and all at once.
pub(super) fn top_k(env: &Env, b: &mut ProgramBuilder, t: TopK) -> (BufferId, Kind) {
    let x = env.operand(0);
    let shape = x.shape().to_vec();
    let (n, float) = (shape[t.axis], env.operand_dtype(0).is_float());
    let nan = |e: &Expr| Expr::binary(BinaryOp::Ne, e, e);
    let above = |a: &Expr, b: &Expr| {
        let larger = b.clone().lt(a);
        if !float {
            return larger;
        }
        larger.or(nan(a).and(Expr::unary(UnaryOp::Not, nan(b))))
    };
    let count = |v: Expr| v.cast(DType::I32);
    let with = |o: &[Expr], i: &Expr| {
        let mut at = o.to_vec();
        at[t.axis] = i.clone();
        at
    };
    let names: Vec<String> = (0..shape.len()).map(|d| format!("i{d}")).collect();
    let all: Vec<(&str, i64)> = names.iter().map(String::as_str).zip(shape).collect();
    let rank = b.reduce("rank", &all, &[("r0", n)], Reducer::Sum, |o, r| {
        let (own, other) = (x.at(o.to_vec()), x.at(with(o, &r[0])));
        let (better, worse) = match t.largest {
            true => (above(&other, &own), above(&own, &other)),
            false => (above(&own, &other), above(&other, &own)),
        };
        let before = r[0].clone().lt(&o[t.axis]);
        let equal = Expr::unary(UnaryOp::Not, worse).and(before);
        let constant = |v| Expr::constant(v, DType::I32);
        Expr::select(better.or(equal), constant(1.0), constant(0.0))
    });
    let axes = env.axes();
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &[("r0", n)],
        Reducer::Sum,
        |o, r| {
            let found = Expr::load(rank, with(o, &r[0])).equals(count(o[t.axis].clone()));
            Expr::select(found, count(r[0].clone()), Expr::constant(0.0, DType::I32))
        },
    );
    let post = |position: Expr, _: &Point| position.cast(DType::I64);
    let result = env.conclude(b, acc, &axes, Some(&post));
    let kind = super::movement::kind(env);
    (result, kind.arg("axis", t.axis).arg("of", n))
}
