//! Elements at positions that an operand gives: gathered, and scattered.
//!
//! A scattered result is written element by element: each looks through the updates for
//! those that are its own. So no two writes meet, and updates take effect in their order; the
//! work is that of all elements times all updates that could be theirs. An update whose index
//! is outside the operand is for no element.

use super::movement::kind;
use super::{Access, Axes, Env, Kind, Point};
use graph::ops::{Combine, Gather, GatherElements, GatherNd, ScatterElements, ScatterNd};
use ir::names::MAIN;
use ir::{BufferId, DType, Expr, ProgramBuilder, Reducer};

/// An index along an axis of `n` elements, where a negative one counts from the end.
fn position(env: &Env, operand: usize, index: Expr, n: i64) -> Expr {
    let index = match env.operand_dtype(operand) {
        DType::I64 => index,
        _ => index.cast(DType::I64),
    };
    Expr::select(index.clone().lt(0), &index + n, index)
}

pub(super) fn gather(env: &Env, b: &mut ProgramBuilder, g: Gather) -> (BufferId, Kind) {
    let (x, indices) = (env.operand(0), env.operand(1));
    let (rank, n) = (indices.shape().len(), x.shape()[g.axis]);
    let result = env.map(b, |p| {
        let index = indices.at(p.index[g.axis..g.axis + rank].to_vec());
        let pick = position(env, 1, index, n);
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

/// The updates that an element looks through.
struct Updates<'a> {
    axes: Axes,
    /// How many of the result's axes, the outermost ones, decide which updates are for an
    /// element.
    deciding: usize,
    /// Whether the update at a point of `axes` is for the element at a point of the result.
    is_for: &'a dyn Fn(&[Expr], &[Expr]) -> Expr,
    /// That update's value.
    value: &'a dyn Fn(&[Expr], &[Expr]) -> Expr,
}

/// `last` is the last update of each element, or -1; the result has it, or the operand.
fn replaced(env: &Env, b: &mut ProgramBuilder, u: &Updates) -> BufferId {
    let axes = env.axes();
    let extents: Vec<i64> = u.axes.0.iter().map(|a| a.1).collect();
    let last = b.reduce(
        "last",
        &axes.list()[..u.deciding],
        &u.axes.list(),
        Reducer::Max,
        |o, t| {
            let flat = t
                .iter()
                .zip(&extents)
                .fold(Expr::int(0), |at, (t, n)| at * *n + t);
            Expr::select((u.is_for)(o, t), flat, Expr::int(-1))
        },
    );
    b.compute(ir::names::OUT.as_str(), &axes.list(), |o| {
        let last = Expr::load(last, &o[..u.deciding]);
        let mut rest = last.clone().max(0);
        let mut at: Vec<Expr> = Vec::new();
        for n in extents.iter().rev() {
            at.push(rest.clone().floor_mod(*n));
            rest = rest.floor_div(*n);
        }
        at.reverse();
        let p = env.point(o);
        let value = Expr::select(
            last.ge(0),
            (u.value)(o, &at),
            env.operand(0).at(p.index.clone()),
        );
        env.follow(value, &p)
    })
}

fn scattered(env: &Env, b: &mut ProgramBuilder, combine: Combine, u: &Updates) -> BufferId {
    let x = env.operand(0);
    let number = |v: f64| Expr::constant(v, env.work());
    let reducer = match combine {
        Combine::Replace => return replaced(env, b, u),
        Combine::Add => Reducer::Sum,
        Combine::Mul => Reducer::Prod,
        Combine::Max => Reducer::Max,
        Combine::Min => Reducer::Min,
    };
    let axes = env.axes();
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &u.axes.list(),
        reducer,
        |o, t| {
            let none = match combine {
                Combine::Add => number(0.0),
                Combine::Mul => number(1.0),
                _ => x.at(o.to_vec()),
            };
            Expr::select((u.is_for)(o, t), (u.value)(o, t), none)
        },
    );
    let post = |all: Expr, p: &Point| match combine {
        Combine::Add => x.at(p.index.clone()) + all,
        Combine::Mul => x.at(p.index.clone()) * all,
        Combine::Max => x.at(p.index.clone()).max(all),
        _ => x.at(p.index.clone()).min(all),
    };
    env.conclude_at(b, acc, &axes, &|at| at.to_vec(), Some(&post))
}

pub(super) fn scatter_elements(
    env: &Env,
    b: &mut ProgramBuilder,
    s: ScatterElements,
) -> (BufferId, Kind) {
    let (x, indices, updates) = (env.operand(0), env.operand(1), env.operand(2));
    let (n, count) = (x.shape()[s.axis], indices.shape()[s.axis]);
    let shorter = |d: usize| d != s.axis && indices.shape()[d] < x.shape()[d];
    let place = |o: &[Expr], t: &[Expr]| -> Vec<Expr> {
        let axis = |(d, i): (usize, &Expr)| match d {
            d if d == s.axis => t[0].clone(),
            d if shorter(d) => i.clone().min(indices.shape()[d] - 1),
            _ => i.clone(),
        };
        o.iter().enumerate().map(axis).collect()
    };
    let is_for = |o: &[Expr], t: &[Expr]| {
        let index = position(env, 1, indices.at(place(o, t)), n);
        let inside = (0..o.len()).filter(|d| shorter(*d));
        inside.fold(index.equals(&o[s.axis]), |all, d| {
            o[d].clone().lt(indices.shape()[d]).and(all)
        })
    };
    let value = |o: &[Expr], t: &[Expr]| updates.at(place(o, t));
    let updates = Updates {
        axes: Axes::new([("u0".to_string(), count)]),
        deciding: x.shape().len(),
        is_for: &is_for,
        value: &value,
    };
    let result = scattered(env, b, s.combine, &updates);
    (result, kind(env).arg("axis", s.axis).arg("updates", count))
}

pub(super) fn scatter_nd(env: &Env, b: &mut ProgramBuilder, s: ScatterNd) -> (BufferId, Kind) {
    let (indices, updates): (&Access, &Access) = (env.operand(1), env.operand(2));
    let (depth, outer) = match indices.shape().split_last() {
        Some((depth, outer)) => (*depth as usize, outer),
        None => unreachable!("the shape rule wants an axis"),
    };
    let rank = outer.len();
    let named = |(i, n): (usize, &i64)| (format!("u{i}"), *n);
    // A single row has one update, and a reduction an axis.
    let axes = match rank {
        0 => Axes::new([("u0".to_string(), 1)]),
        _ => Axes::new(outer.iter().enumerate().map(named)),
    };
    let is_for = |o: &[Expr], t: &[Expr]| {
        let picks = row(env, &t[..rank], 0);
        let same = picks.into_iter().zip(o).map(|(p, i)| p.equals(i));
        same.reduce(Expr::and).unwrap_or_else(|| Expr::bool(true))
    };
    let value = |o: &[Expr], t: &[Expr]| updates.at([&t[..rank], &o[depth..]].concat());
    let count = outer.iter().product::<i64>();
    let updates = Updates {
        axes,
        deciding: depth.max(1).min(env.shape.len()),
        is_for: &is_for,
        value: &value,
    };
    let result = scattered(env, b, s.combine, &updates);
    (result, kind(env).arg("updates", count))
}
