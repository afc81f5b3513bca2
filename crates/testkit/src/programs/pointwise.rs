//! Map blocks over one shape.

use super::{Bounded, Generator, MAX_VALUE, product, tame};
use ir::{DType, Expr, UnaryOp};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg64Mcg;

/// Two values in one.
pub(super) fn combine(rng: &mut Pcg64Mcg, a: Bounded, b: Bounded, dtype: DType) -> Bounded {
    let larger = a.1.max(b.1);
    match rng.random_range(0..6) {
        0 => {
            let (a, b) = (tame(a, MAX_VALUE / 2, dtype), tame(b, MAX_VALUE / 2, dtype));
            (a.0 + b.0, a.1 + b.1)
        }
        1 => {
            let (a, b) = (tame(a, MAX_VALUE / 2, dtype), tame(b, MAX_VALUE / 2, dtype));
            (a.0 - b.0, a.1 + b.1)
        }
        2 => product(a, b, 1, dtype),
        3 => (a.0.max(b.0), larger),
        4 => (a.0.min(b.0), larger),
        _ => (Expr::select(a.0.clone().lt(b.0.clone()), -a.0, b.0), larger),
    }
}

/// A function of one value.
fn decorate(rng: &mut Pcg64Mcg, (e, bound): Bounded, dtype: DType) -> Bounded {
    let c = |v: i64| Expr::constant(v as f64, dtype);
    match rng.random_range(0..7) {
        0 => (-e, bound),
        1 => (Expr::unary(UnaryOp::Abs, e), bound),
        2 => (e.max(c(0)), bound),
        3 => (e.max(c(-6)).min(c(6)), bound.min(6)),
        4 => {
            let (e, bound) = tame((e, bound), MAX_VALUE / 4, dtype);
            (e * c(3) - c(1), bound * 3 + 1)
        }
        5 => {
            let negative = e.clone().lt(c(0)).and(c(-3).le(e.clone()));
            (Expr::select(negative, c(2), e), bound.max(2))
        }
        _ => (e, bound),
    }
}

pub(super) fn elementwise(g: &mut Generator, name: &str) {
    let a = g.operand(0..=4);
    let dtype = a.arithmetic();
    let n = g.rng.random_range(0..=2);
    let others: Vec<_> = (0..n).map(|_| g.operand_shaped(&a.shape, dtype)).collect();
    g.map(name, &a.shape, |rng, s| {
        let mut value = a.load(s);
        for o in &others {
            value = combine(rng, value, o.load_as(dtype, s), dtype);
        }
        decorate(rng, value, dtype)
    });
}

pub(super) fn broadcast(g: &mut Generator, name: &str) {
    let a = g.operand(2..=4);
    let dtype = a.arithmetic();
    let rank = a.shape.len();
    // Which axes the other operand has, and whether it keeps the rest with extent 1.
    let kept: Vec<bool> = (0..rank).map(|_| g.rng.random_bool(0.4)).collect();
    let ones = g.rng.random_bool(0.5);
    let axes: Vec<usize> = (0..rank).filter(|d| ones || kept[*d]).collect();
    let shape: Vec<i64> = axes
        .iter()
        .map(|d| if kept[*d] { a.shape[*d] } else { 1 })
        .collect();
    let b = g.operand_shaped(&shape, dtype);
    g.map(name, &a.shape, |rng, s| {
        let index = |d: &usize| {
            if kept[*d] {
                s[*d].clone()
            } else {
                Expr::int(0)
            }
        };
        let indices: Vec<Expr> = axes.iter().map(index).collect();
        let value = combine(rng, a.load(s), b.load_as(dtype, indices), dtype);
        decorate(rng, value, dtype)
    });
}

pub(super) fn two_maps(g: &mut Generator, name: &str) {
    let a = g.operand(1..=4);
    let dtype = a.arithmetic();
    let b = g.operand_shaped(&a.shape, dtype);
    g.block(name, &a.shape, &[], None, |rng, s, _| {
        let (x, y) = (a.load(s), b.load_as(dtype, s));
        let first = combine(rng, x.clone(), y, dtype);
        vec![first, decorate(rng, x, dtype)]
    });
}

pub(super) fn convert(g: &mut Generator, name: &str) {
    let a = g.operand(0..=4);
    let dtype = a.arithmetic();
    let targets = match dtype {
        DType::F32 => [DType::I32, DType::I8],
        _ => [DType::F32, DType::I8],
    };
    let to = *targets.choose(&mut g.rng).expect("two targets");
    g.map(name, &a.shape, |rng, s| {
        let limit = if to == DType::I8 { 100 } else { MAX_VALUE };
        let (e, bound) = decorate(rng, a.load(s), dtype);
        let (e, bound) = tame((e, bound), limit, dtype);
        (e.cast(to), bound)
    });
}
