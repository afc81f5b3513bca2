//! Reductions along axes.

use super::conv::axis_names;
use super::{Axes, Env, Kind, Point};
use graph::ops::{ArgReduce, Reduce, ReduceKind};
use ir::names::MAIN;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder, Reducer};

/// The axes that a reduction runs over, `r0`, `r1`, ... or as a pooling's.
fn reduced_axes(env: &Env, axes: &[usize]) -> Axes {
    let shape = env.operand_shape(0);
    let (_, taps) = axis_names(axes.len());
    let name = |i: usize| match env.layout.block() {
        Some(_) => taps[i].clone(),
        None => format!("r{i}"),
    };
    Axes::new(axes.iter().enumerate().map(|(i, a)| (name(i), shape[*a])))
}

/// The operand's index from the result's and the reduced ones.
fn source_index(rank: usize, axes: &[usize], keepdims: bool, o: &[Expr], t: &[Expr]) -> Vec<Expr> {
    let mut kept = o.iter();
    let mut reduced = t.iter();
    (0..rank)
        .map(|d| {
            if !axes.contains(&d) {
                return kept.next().expect("an axis a kept dimension").clone();
            }
            if keepdims {
                kept.next();
            }
            reduced.next().expect("an axis a reduced dimension").clone()
        })
        .collect()
}

pub(super) fn reduce(env: &Env, b: &mut ProgramBuilder, r: &Reduce) -> (BufferId, Kind) {
    let x = env.operand(0);
    let axes = env.axes();
    let over = reduced_axes(env, &r.axes);
    let reducer = match r.kind {
        ReduceKind::Sum | ReduceKind::Mean => Reducer::Sum,
        ReduceKind::Prod => Reducer::Prod,
        ReduceKind::Max => Reducer::Max,
        ReduceKind::Min => Reducer::Min,
    };
    let rank = x.shape().len();
    let logical = env.shape.len();
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &over.list(),
        reducer,
        |o, t| {
            let at = source_index(rank, &r.axes, r.keepdims, &o[..logical], t);
            match env.layout.block() {
                Some(_) => x.load(&env.point(&[&at[..], &o[logical..]].concat())),
                None if env.work() == DType::Bool => x.at(at).cast(DType::U8),
                None => x.at(at),
            }
        },
    );
    let group: i64 = over.0.iter().map(|a| a.1).product();
    let mean = |sum: Expr, _: &Point| sum / Expr::constant(group as f64, env.work());
    let holds = |any: Expr, _: &Point| any.cast(DType::Bool);
    let result = match r.kind {
        ReduceKind::Mean => env.conclude(b, acc, &axes, Some(&mean)),
        _ if env.work() == DType::Bool => env.conclude(b, acc, &axes, Some(&holds)),
        _ => env.conclude(b, acc, &axes, None),
    };
    (result, kind(env, r.kind.name(), group))
}

fn kind(env: &Env, name: &str, group: i64) -> Kind {
    let kind = Kind::new(name)
        .arg("outer", env.shape.iter().product::<i64>())
        .arg("reduced", group);
    match env.layout.block() {
        Some(block) => kind.arg("block", block),
        None => kind,
    }
}

/// Whether a value is the best one, or NaN: that is the best wherever there is one, and
/// equal to nothing.
pub(super) fn is_best(value: Expr, best: Expr, dtype: DType) -> Expr {
    let equal = value.clone().equals(best);
    if dtype.is_float() {
        equal.or(Expr::binary(BinaryOp::Ne, &value, &value))
    } else {
        equal
    }
}

/// `best` reduces the values, `main` the positions that have the best one.
pub(super) fn arg_reduce(env: &Env, b: &mut ProgramBuilder, r: ArgReduce) -> (BufferId, Kind) {
    let x = env.operand(0);
    let axes = env.axes();
    let over = reduced_axes(env, &[r.axis]);
    let group = x.shape()[r.axis];
    let value =
        |o: &[Expr], t: &[Expr]| x.at(source_index(x.shape().len(), &[r.axis], r.keepdims, o, t));
    let extreme = if r.max { Reducer::Max } else { Reducer::Min };
    let best = b.reduce("best", &axes.list(), &over.list(), extreme, value);
    let (pick, none) = if r.last {
        (Reducer::Max, -1)
    } else {
        (Reducer::Min, group)
    };
    // As narrow as the elements are: a vector has more lanes of it.
    let narrow = if group <= i64::from(i32::MAX) {
        DType::I32
    } else {
        DType::I64
    };
    let acc = b.reduce(MAIN.as_str(), &axes.list(), &over.list(), pick, |o, t| {
        let is_best = is_best(value(o, t), Expr::load(best, o), env.operand_dtype(0));
        let none = Expr::constant(none as f64, narrow);
        Expr::select(is_best, t[0].clone().cast(narrow), none)
    });
    let wide = |position: Expr, _: &Point| position.cast(DType::I64);
    let result = env.conclude(b, acc, &axes, Some(&wide));
    (result, kind(env, env.node.op.name(), group))
}
