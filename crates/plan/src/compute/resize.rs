//! Resizing by interpolation, plain or in channel blocks.
//!
//! The weights of the neighbours depend on the position along one axis only, so they are
//! blocks of their own, `weights0`, `weights1`, ..., and each axis is a sum of products of
//! its own, the outermost first.

use super::conv::axis_names;
use super::stages::{self, Stage, Term};
use super::{Axes, Env, Kind, Point};
use graph::ops::{Filter, Resize, Sampling};
use ir::names::image;
use ir::{BufferId, Expr, ProgramBuilder, Reducer};

/// One axis along which several neighbours are added.
struct Sampled {
    /// Of the operand.
    axis: usize,
    sampling: Sampling,
    /// The first neighbour, counted from the floor of the position.
    first: i64,
    taps: i64,
    /// Elements of the operand.
    extent: i64,
}

impl Sampled {
    /// The element of the operand that neighbour `tap` is, if it is inside.
    fn at(&self, r: &Resize, i: &Expr, tap: &Expr) -> Expr {
        let line = r.base(&self.sampling);
        let scaled = i * line.by() + line.plus();
        scaled.floor_div(line.over()) + tap + self.first
    }

    fn clamped(&self, at: Expr) -> Expr {
        at.max(0).min(self.extent - 1)
    }
}

pub(super) fn resize(env: &Env, b: &mut ProgramBuilder, r: &Resize) -> (BufferId, Kind) {
    let x = env.operand(0);
    let sampled: Vec<Sampled> = r
        .axes
        .iter()
        .enumerate()
        .filter_map(|(axis, s)| {
            let sampling = (*s)?;
            let (first, taps) = r.taps(&sampling);
            Some(Sampled {
                axis,
                sampling,
                first,
                taps: taps as i64,
                extent: x.shape()[axis],
            })
        })
        .collect();
    let kind = kind(env, r, &sampled);
    let element = |index: Vec<Expr>, p: &Point| match &p.split {
        Some((block, lane)) => x.at_block(&index[0], block, index[2..].to_vec(), lane),
        None => x.at(index),
    };
    if matches!(r.filter, Filter::Nearest(_)) || sampled.is_empty() {
        let result = env.map(b, |p| {
            let mut index = p.index.clone();
            for s in &sampled {
                index[s.axis] = s.clamped(s.at(r, &p.index[s.axis], &Expr::int(0)));
            }
            beyond(env, r, &sampled, element(index, p), p)
        });
        return (result, kind);
    }
    let weights: Vec<BufferId> = sampled
        .iter()
        .enumerate()
        .map(|(i, s)| weights(env, b, r, s, i))
        .collect();
    let axes = image_axes(env);
    let stages = sampled.iter().enumerate().map(|(i, s)| Stage {
        axis: s.axis,
        tap: (format!("t{i}"), s.taps),
    });
    let stages: Vec<Stage> = stages.collect();
    let acc = stages::reduce(env, b, (&axes, &stages), Reducer::Sum, |i, o, t| {
        let s = &sampled[i];
        Term {
            at: s.clamped(s.at(r, o, t)),
            inside: vec![],
            factor: Some(Expr::load(weights[i], [t.clone(), o.clone()])),
        }
    });
    let post = |sum: Expr, p: &Point| beyond(env, r, &sampled, sum, p);
    let post = r.beyond.map(|_| &post as super::LastStep<'_>);
    (env.conclude(b, acc, &axes, post), kind)
}

/// The value at a point, or what stands for positions beyond the operand.
fn beyond(env: &Env, r: &Resize, sampled: &[Sampled], value: Expr, p: &Point) -> Expr {
    let Some(other) = r.beyond else {
        return value;
    };
    let other = Expr::constant(f64::from(other), env.work());
    sampled.iter().fold(value, |value, s| {
        let line = s.sampling.position;
        let scaled = &p.index[s.axis] * line.by() + line.plus();
        let inside = scaled.clone().ge(0);
        let inside = inside.and(scaled.le((s.extent - 1) * line.over()));
        Expr::select(inside, value, other.clone())
    })
}

/// The weights of the neighbours [neighbours, elements of the result].
fn weights(env: &Env, b: &mut ProgramBuilder, r: &Resize, s: &Sampled, at: usize) -> BufferId {
    let work = env.work();
    let number = |x: f64| Expr::constant(x, work);
    let line = s.sampling.position;
    let axes = [("t", s.taps), ("i", s.sampling.size as i64)];
    let raw = |i: &Expr, t: &Expr| {
        let rest = (i * line.by() + line.plus()).floor_mod(line.over());
        let rest = rest.cast(work) * number(1.0 / line.over() as f64);
        let distance = (t + s.first).cast(work) - rest;
        let weight = filter(
            r.filter,
            distance * number(r.narrowing(&s.sampling)),
            &number,
        );
        if !r.exclude_outside {
            return weight;
        }
        let neighbour = s.at(r, i, t);
        let inside = neighbour.clone().ge(0).and(neighbour.lt(s.extent));
        Expr::select(inside, weight, number(0.0))
    };
    if !r.normalises() {
        return b.compute(&format!("weights{at}"), &axes, |o| raw(&o[1], &o[0]));
    }
    let unscaled = b.compute(&format!("unscaled{at}"), &axes, |o| raw(&o[1], &o[0]));
    let (terms, rows) = ([axes[0]], [axes[1]]);
    let sum = b.reduce(&format!("sum{at}"), &rows, &terms, Reducer::Sum, |o, t| {
        Expr::load(unscaled, [t, o].concat())
    });
    b.compute(&format!("weights{at}"), &axes, |o| {
        Expr::load(unscaled, o) / Expr::load(sum, &o[1..])
    })
}

/// [`Filter::weight`] of a distance.
fn filter(filter: Filter, distance: Expr, number: &dyn Fn(f64) -> Expr) -> Expr {
    let x = distance.clone().max(number(0.0) - distance);
    match filter {
        Filter::Nearest(_) => number(1.0),
        Filter::Linear => (number(1.0) - x).max(number(0.0)),
        Filter::Cubic { a } => {
            let a = f64::from(a);
            let near = ((&x * number(a + 2.0) - number(a + 3.0)) * &x) * &x + number(1.0);
            let far = ((&x - number(5.0)) * &x + number(8.0)) * &x * number(a) - number(4.0 * a);
            let far = Expr::select(x.clone().lt(number(2.0)), far, number(0.0));
            Expr::select(x.le(number(1.0)), near, far)
        }
    }
}

/// The axes of the result; those of images by their names.
fn image_axes(env: &Env) -> Axes {
    if env.layout.block().is_some() || !(3..=5).contains(&env.shape.len()) {
        return env.axes();
    }
    let (spatial, _) = axis_names(env.shape.len() - 2);
    let image = [image::BATCH, image::CHANNEL].map(String::from);
    env.named_axes(image.into_iter().chain(spatial))
}

fn kind(env: &Env, r: &Resize, sampled: &[Sampled]) -> Kind {
    let word = match r.filter {
        Filter::Nearest(_) => "nearest",
        Filter::Linear => "linear",
        Filter::Cubic { .. } => "cubic",
    };
    let mut kind = Kind::new(format!("resize_{word}"));
    for (d, n) in env.operand(0).shape().iter().enumerate() {
        kind = kind.arg(&format!("d{d}"), *n);
    }
    for s in sampled {
        kind = kind.arg(&format!("to{}", s.axis), s.sampling.size);
    }
    match env.layout.block() {
        Some(block) => kind.arg("block", block),
        None => kind,
    }
}
