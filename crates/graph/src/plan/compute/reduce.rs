//! Reductions along axes.

use super::{Axes, Env, Kind, Point};
use crate::ops::{ArgReduce, Reduce, ReduceKind};
use ir::{BinaryOp, BufferId, DType, Expr, ExprKind, ProgramBuilder, Reducer};

/// The axes that a reduction runs over, `r0`, `r1`, ... or as a pooling's.
fn reduced_axes(env: &Env, axes: &[usize]) -> Axes {
    let shape = env.operand_shape(0);
    let name = |i: usize| match env.layout.block() {
        Some(_) => ["r", "s"][i].to_string(),
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
    let acc = b.reduce("main", &axes.list(), &over.list(), reducer, |o, t| {
        let at = source_index(rank, &r.axes, r.keepdims, &o[..logical], t);
        match env.layout.block() {
            Some(_) => x.at_block(&at[0], &at[1], at[2..].to_vec(), &o[logical]),
            None => x.at(at),
        }
    });
    let group: i64 = over.0.iter().map(|a| a.1).product();
    let mean = |sum: Expr, _: &Point| sum / Expr::constant(group as f64, env.work());
    let result = match r.kind {
        ReduceKind::Mean => env.conclude(b, acc, &axes, Some(&mean)),
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

/// main reduces pairs of value and position; ties go to the first or last.
pub(super) fn arg_reduce(env: &Env, b: &mut ProgramBuilder, r: ArgReduce) -> (BufferId, Kind) {
    let x = env.operand(0);
    let dtype = super::work(env.operand_dtype(0));
    let axes = env.axes();
    let over = reduced_axes(env, &[r.axis]);
    let value = |i: u32| Expr::arg(i, dtype);
    let position = |i: u32| Expr::arg(i, DType::I64);
    let op = |o: BinaryOp, a: Expr, b: Expr| Expr::binary(o, a, b);
    let better = if r.max {
        op(BinaryOp::Lt, value(0), value(2))
    } else {
        op(BinaryOp::Lt, value(2), value(0))
    };
    let first = if r.last {
        op(BinaryOp::Lt, position(1), position(3))
    } else {
        op(BinaryOp::Lt, position(3), position(1))
    };
    let wins = better.or(op(BinaryOp::Eq, value(0), value(2)).and(first));
    let extreme = if r.max { Reducer::Max } else { Reducer::Min };
    let nowhere = if r.last { i64::MIN } else { i64::MAX };
    let reducer = Reducer::Tuple {
        combine: vec![
            Expr::select(&wins, value(2), value(0)),
            Expr::select(&wins, position(3), position(1)),
        ],
        identity: vec![
            extreme.identity(&[dtype])[0].clone(),
            ExprKind::Int(nowhere, DType::I64).into(),
        ],
    };
    let rank = x.shape().len();
    let outputs = b.block("main", &axes.list(), &over.list(), Some(reducer), |o, t| {
        let at = source_index(rank, &[r.axis], r.keepdims, o, t);
        vec![x.at(at), t[0].clone()]
    });
    let result = env.conclude(b, outputs[1], &axes, None);
    let group = x.shape()[r.axis];
    (result, kind(env, env.node.op.name(), group))
}
