//! Elements at positions that an operand gives: gathered, and scattered.
//!
//! A scattered result begins as a copy of the operand. Then updates take effect in their order. An update whose
//! index is outside the operand is for no element.

use super::movement::kind;
use super::{Axes, Env, Kind};
use graph::EvenIndices;
use graph::ops::{Combine, Gather, GatherElements, GatherNd, ScatterElements, ScatterNd};
use ir::names::MAIN;
use ir::{BufferId, DType, Expr, ProgramBuilder};

/// An index along an axis of `n` elements, where a negative one counts from the end.
fn position(env: &Env, operand: usize, index: Expr, n: i64) -> Expr {
    let index = match env.operand_dtype(operand) {
        DType::I64 => index,
        _ => index.cast(DType::I64),
    };
    Expr::select(index.clone().lt(0), &index + n, index)
}

/// Where an element along the axes of evenly stepping indices is.
fn even_place(even: &EvenIndices, axes: &[Expr]) -> Expr {
    let moved = axes.iter().zip(&even.steps).filter(|(_, step)| **step != 0);
    let moved = moved.map(|(i, step)| i * *step).reduce(|a, b| a + &b);
    moved.map_or_else(|| Expr::int(even.first), |moved| moved + even.first)
}

pub(super) fn gather(env: &Env, b: &mut ProgramBuilder, g: Gather) -> (BufferId, Kind) {
    let x = env.operand(0);
    let n = x.shape()[g.axis];
    let even = EvenIndices::of_gather(env.model, env.node);
    let rank = env.shape.len() + 1 - x.shape().len();
    let result = env.map(b, |p| {
        let along = &p.index[g.axis..g.axis + rank];
        let pick = match &even {
            Some(even) => even_place(even, along),
            None => position(env, 1, env.operand(1).at(along.to_vec()), n),
        };
        let (before, after) = (&p.index[..g.axis], &p.index[g.axis + rank..]);
        x.at([before, &[pick], after].concat())
    });
    (result, kind(env).arg("axis", g.axis).arg("of", n))
}

pub(super) fn gather_elements(
    env: &Env,
    b: &mut ProgramBuilder,
    g: GatherElements,
) -> (BufferId, Kind) {
    let (x, indices) = (env.operand(0), env.operand(1));
    let n = x.shape()[g.axis];
    let result = env.map(b, |p| {
        let mut at = p.index.clone();
        at[g.axis] = position(env, 1, indices.at(p.index.clone()), n);
        x.at(at)
    });
    (result, kind(env).arg("axis", g.axis).arg("of", n))
}

/// Where row `row` of the indices points, along the axes of `x` from `first` on.
fn row(env: &Env, row: &[Expr], first: usize) -> Vec<Expr> {
    let (x, indices) = (env.operand(0), env.operand(1));
    let depth = indices.shape()[indices.shape().len() - 1];
    (0..depth)
        .map(|j| {
            let index = indices.at([row, &[Expr::int(j)]].concat());
            position(env, 1, index, x.shape()[first + j as usize])
        })
        .collect()
}

pub(super) fn gather_nd(env: &Env, b: &mut ProgramBuilder, g: GatherNd) -> (BufferId, Kind) {
    let x = env.operand(0);
    let outer = env.operand(1).shape().len() - 1;
    let result = env.map(b, |p| {
        let picks = row(env, &p.index[..outer], g.batch);
        x.at([&p.index[..g.batch], &picks, &p.index[outer..]].concat())
    });
    (result, kind(env).arg("batch", g.batch))
}

/// A place of a result, and whether it is inside.
type Place = (Vec<Expr>, Expr);

/// Updates of elements, which come one after the other.
struct Updates<'a> {
    /// Axes of the result whose elements are updated apart, and those that updates follow each other along.
    axes: [Axes; 2],
    /// Where the update at a point of these axes goes, and whether it goes anywhere.
    goes: &'a dyn Fn(&[Expr], &[Expr]) -> Place,
    /// That update's value.
    value: &'a dyn Fn(&[Expr], &[Expr]) -> Expr,
}

/// A position as one that is inside, and whether it was.
fn inside(position: Expr, n: i64) -> (Expr, Expr) {
    let is_inside = Expr::int(0).le(&position).and(position.clone().lt(n));
    (position.max(0).min(n - 1), is_inside)
}

fn scattered(env: &Env, b: &mut ProgramBuilder, combine: Combine, u: &Updates) -> BufferId {
    let (x, axes) = (env.operand(0), env.axes());
    let main = b.compute(MAIN.as_str(), &axes.list(), |o| x.at(o.to_vec()));
    let [apart, ordered] = &u.axes;
    b.update("updates", main, (&apart.list(), &ordered.list()), |o, t| {
        let (at, is_inside) = (u.goes)(o, t);
        let (old, new) = (Expr::load(main, at.clone()), (u.value)(o, t));
        let value = match combine {
            Combine::Replace => new,
            Combine::Add => &old + &new,
            Combine::Mul => &old * &new,
            Combine::Max => old.clone().max(new),
            Combine::Min => old.clone().min(new),
        };
        (at, Expr::select(is_inside, value, old))
    });
    env.conclude(b, main, &axes, None)
}

pub(super) fn scatter_elements(
    env: &Env,
    b: &mut ProgramBuilder,
    s: ScatterElements,
) -> (BufferId, Kind) {
    let (x, indices, updates) = (env.operand(0), env.operand(1), env.operand(2));
    let (n, count) = (x.shape()[s.axis], indices.shape()[s.axis]);
    let place = |o: &[Expr], t: &[Expr]| [&o[..s.axis], &[t[0].clone()], &o[s.axis..]].concat();
    let goes = |o: &[Expr], t: &[Expr]| {
        let mut at = place(o, t);
        let (own, is_inside) = inside(position(env, 1, indices.at(at.clone()), n), n);
        at[s.axis] = own;
        (at, is_inside)
    };
    let value = |o: &[Expr], t: &[Expr]| updates.at(place(o, t));
    let named = |d: usize| (format!("i{d}"), indices.shape()[d]);
    let apart = (0..indices.shape().len()).filter(|d| *d != s.axis);
    let updates = Updates {
        axes: [
            Axes::new(apart.map(named)),
            Axes::new([("u0".to_string(), count)]),
        ],
        goes: &goes,
        value: &value,
    };
    let result = scattered(env, b, s.combine, &updates);
    (result, kind(env).arg("axis", s.axis).arg("updates", count))
}

pub(super) fn scatter_nd(env: &Env, b: &mut ProgramBuilder, s: ScatterNd) -> (BufferId, Kind) {
    let (x, indices, updates) = (env.operand(0), env.operand(1), env.operand(2));
    let (depth, outer) = match indices.shape().split_last() {
        Some((depth, outer)) => (*depth as usize, outer),
        None => unreachable!("the shape rule wants an axis"),
    };
    let rank = outer.len();
    let named = |(i, n): (usize, &i64)| (format!("u{i}"), *n);
    // A single row has one update.
    let ordered = match rank {
        0 => Axes::new([("u0".to_string(), 1)]),
        _ => Axes::new(outer.iter().enumerate().map(named)),
    };
    let goes = |o: &[Expr], t: &[Expr]| {
        let picks = row(env, &t[..rank], 0).into_iter().zip(x.shape());
        let (mut at, tests): (Vec<Expr>, Vec<Expr>) = picks.map(|(p, n)| inside(p, *n)).unzip();
        at.extend_from_slice(o);
        let is_inside = tests.into_iter().reduce(Expr::and);
        (at, is_inside.unwrap_or_else(|| Expr::bool(true)))
    };
    let value = |o: &[Expr], t: &[Expr]| updates.at([&t[..rank], o].concat());
    let count = outer.iter().product::<i64>();
    let apart = (depth..x.shape().len()).map(|d| (format!("i{d}"), x.shape()[d]));
    let updates = Updates {
        axes: [Axes::new(apart), ordered],
        goes: &goes,
        value: &value,
    };
    let result = scattered(env, b, s.combine, &updates);
    (result, kind(env).arg("updates", count))
}
