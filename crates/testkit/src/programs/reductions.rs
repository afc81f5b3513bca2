//! Reductions over axes of one tensor.

use super::pointwise::elementwise;
use super::{Generator, MAX_VALUE, Source, product, tame};
use ir::{DType, Expr, Reducer};
use rand::Rng;
use rand::seq::IndexedRandom;

/// A tensor's axes in two groups, at least one of them reduced.
struct Axes {
    reduced: Vec<bool>,
    spatial: Vec<i64>,
    reduce: Vec<i64>,
}

impl Axes {
    fn draw(g: &mut Generator, a: &Source) -> Axes {
        let rank = a.shape.len();
        let mut reduced: Vec<bool> = (0..rank).map(|_| g.rng.random_bool(0.5)).collect();
        reduced[g.rng.random_range(0..rank)] = true;
        Axes::of(a, reduced)
    }

    /// Reduces the axis `d` only.
    fn one(a: &Source, d: usize) -> Axes {
        Axes::of(a, (0..a.shape.len()).map(|x| x == d).collect())
    }

    fn of(a: &Source, reduced: Vec<bool>) -> Axes {
        let part = |r: bool| {
            let both = a.shape.iter().zip(&reduced);
            both.filter(|(_, x)| **x == r).map(|(e, _)| *e).collect()
        };
        Axes {
            spatial: part(false),
            reduce: part(true),
            reduced,
        }
    }

    fn indices(&self, s: &[Expr], r: &[Expr]) -> Vec<Expr> {
        let (mut s, mut r) = (s.iter(), r.iter());
        let index = |reduced: &bool| {
            let next = if *reduced { r.next() } else { s.next() };
            next.expect("one variable an axis").clone()
        };
        self.reduced.iter().map(index).collect()
    }

    fn terms(&self) -> i64 {
        self.reduce.iter().product()
    }
}

pub(super) fn reduce(g: &mut Generator, name: &str) {
    let a = g.operand(1..=4);
    let dtype = a.arithmetic();
    let axes = Axes::draw(g, &a);
    let reducers = [
        Reducer::Sum,
        Reducer::Sum,
        Reducer::Prod,
        Reducer::Min,
        Reducer::Max,
    ];
    let reducer = reducers.choose(&mut g.rng).expect("some reducers").clone();
    let other = match g.rng.random_bool(0.3) {
        true => Some(g.operand_shaped(&a.shape, dtype)),
        false => None,
    };
    let (spatial, reduce) = (axes.spatial.clone(), axes.reduce.clone());
    g.block(name, &spatial, &reduce, Some(reducer.clone()), |_, s, r| {
        let x = a.load(axes.indices(s, r));
        let y = other.map(|o| o.load_as(dtype, axes.indices(s, r)));
        let c = |v: f64| Expr::constant(v, dtype);
        let terms = axes.terms();
        let term = match (&reducer, y) {
            (Reducer::Prod, _) => (Expr::select(x.0.lt(c(0.0)), c(-1.0), c(1.0)), 1),
            (Reducer::Sum, Some(y)) => product(x, y, terms, dtype),
            (Reducer::Sum, None) => tame(x, MAX_VALUE / terms, dtype),
            (_, Some(y)) => (x.0.max(y.0), x.1.max(y.1)),
            (_, None) => x,
        };
        vec![term]
    });
}

pub(super) fn arg_reduce(g: &mut Generator, name: &str) {
    let a = g.operand(1..=4);
    let dtype = a.arithmetic();
    let d = g.rng.random_range(0..a.shape.len());
    let axes = Axes::one(&a, d);
    let largest = g.rng.random_bool(0.5);
    let value = |i| Expr::arg(i, dtype);
    let position = |i| Expr::arg(i, DType::I64);
    let better = match largest {
        true => value(0).lt(value(2)),
        false => value(2).lt(value(0)),
    };
    let earlier = value(0).equals(value(2)).and(position(3).lt(position(1)));
    let take = better.or(earlier);
    let worst = if largest { Reducer::Max } else { Reducer::Min };
    let reducer = Reducer::Tuple {
        combine: vec![
            Expr::select(take.clone(), value(2), value(0)),
            Expr::select(take, position(3), position(1)),
        ],
        identity: vec![worst.identity(&[dtype]).remove(0), Expr::int(i64::MAX)],
    };
    let extent = a.shape[d];
    let (spatial, reduce) = (axes.spatial.clone(), axes.reduce.clone());
    let outputs = g.block(name, &spatial, &reduce, Some(reducer), |_, s, r| {
        vec![a.load(axes.indices(s, r)), (r[0].clone(), extent)]
    });
    let found = g.tensors.iter_mut().find(|s| s.id == outputs[1]);
    found.expect("just added").index_below = Some(extent);
}

pub(super) fn two_sums(g: &mut Generator, name: &str) {
    let a = g.operand(1..=4);
    let dtype = a.arithmetic();
    let axes = Axes::draw(g, &a);
    let arg = |i| Expr::arg(i, dtype);
    let zero = Expr::constant(0.0, dtype);
    let reducer = Reducer::Tuple {
        combine: vec![arg(0) + arg(2), arg(1) + arg(3)],
        identity: vec![zero.clone(), zero],
    };
    let (spatial, reduce) = (axes.spatial.clone(), axes.reduce.clone());
    g.block(name, &spatial, &reduce, Some(reducer), |_, s, r| {
        let x = a.load(axes.indices(s, r));
        let sum = tame(x.clone(), MAX_VALUE / axes.terms(), dtype);
        vec![sum, product(x.clone(), x, axes.terms(), dtype)]
    });
}

pub(super) fn scan(g: &mut Generator, name: &str) {
    let a = g.operand(1..=3);
    let dtype = a.arithmetic();
    let d = g.rng.random_range(0..a.shape.len());
    let extent = a.shape[d];
    if !g.fits(a.shape.iter().product::<i64>() * extent) {
        return elementwise(g, name);
    }
    g.block(name, &a.shape, &[extent], Some(Reducer::Sum), |_, s, r| {
        let mut indices = s.to_vec();
        indices[d] = r[0].clone();
        let x = tame(a.load(indices), MAX_VALUE / extent, dtype);
        let zero = Expr::constant(0.0, dtype);
        vec![(Expr::select(r[0].clone().le(s[d].clone()), x.0, zero), x.1)]
    });
}
