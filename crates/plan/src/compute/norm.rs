//! Normalisations and softmax: kernels of several blocks.

use super::elementwise::power;
use super::{Axes, Env, Kind, Point, guarded};
use graph::ops::{LayerNorm, Lrn, Softmax};
use ir::names::{MAIN, OUT};
use ir::{BufferId, DType, Expr, ProgramBuilder, Reducer, UnaryOp};

/// Blocks `max`, `e`, `sum`, `inverse`, `out`: one division a row.
pub(super) fn softmax(env: &Env, b: &mut ProgramBuilder, s: Softmax) -> (BufferId, Kind) {
    let x = env.operand(0);
    let axes = env.axes();
    let one = Expr::constant(1.0, super::work(env.operand_dtype(0)));
    let of = PowersOf {
        axes: &axes,
        axis: s.axis,
        one: &one,
        rounded: None,
    };
    let Powers { e, inverse } = powers(b, &of, |at| x.at(at));
    let result = b.compute(OUT.as_str(), &axes.list(), |at| {
        let value = Expr::load(e, at) * Expr::load(inverse, without(s.axis, at));
        env.follow(value, &env.point(at))
    });
    let n = x.shape()[s.axis];
    let rows = env.shape.iter().product::<i64>() / n;
    (
        result,
        Kind::new("softmax").arg("rows", rows).arg("cols", n),
    )
}

/// The parts of a softmax along an axis.
pub(super) struct Powers {
    /// The power of e of each element less the maximum.
    pub e: BufferId,
    /// One over the sum of these, without the axis.
    pub inverse: BufferId,
}

/// What a softmax is of.
pub(super) struct PowersOf<'a> {
    pub axes: &'a Axes,
    /// The one that is normalised.
    pub axis: usize,
    /// Of the elements' type.
    pub one: &'a Expr,
    /// The type that powers are stored in, if it is another one.
    pub rounded: Option<DType>,
}

/// Blocks `max`, `e`, `sum`, `inverse` over the elements `x`.
pub(super) fn powers(
    b: &mut ProgramBuilder,
    of: &PowersOf<'_>,
    x: impl Fn(Vec<Expr>) -> Expr,
) -> Powers {
    let (axes, axis) = (of.axes, of.axis);
    let others = axes.0.iter().enumerate().filter(|(d, _)| *d != axis);
    let outer = Axes::new(others.map(|(_, a)| a.clone()));
    let n = axes.0[axis].1;
    let whole = |o: &[Expr], r: &Expr| -> Vec<Expr> {
        [&o[..axis], std::slice::from_ref(r), &o[axis..]].concat()
    };
    let max = b.reduce("max", &outer.list(), &[("r", n)], Reducer::Max, |o, t| {
        x(whole(o, &t[0]))
    });
    let e = b.compute("e", &axes.list(), |at| {
        let shifted = x(at.to_vec()) - Expr::load(max, without(axis, at));
        let power = Expr::unary(UnaryOp::Exp, shifted);
        match of.rounded {
            Some(stored) => power.cast(stored),
            None => power,
        }
    });
    let dtype = of.one.dtype(b.program());
    let sum = b.reduce("sum", &outer.list(), &[("r", n)], Reducer::Sum, |o, t| {
        let power = Expr::load(e, whole(o, &t[0]));
        match of.rounded {
            Some(_) => power.cast(dtype),
            None => power,
        }
    });
    let inverse = b.compute("inverse", &outer.list(), |at| {
        of.one.clone() / Expr::load(sum, at)
    });
    Powers { e, inverse }
}

/// An index without one of its axes.
fn without(axis: usize, at: &[Expr]) -> Vec<Expr> {
    let kept = at.iter().enumerate().filter(|(d, _)| *d != axis);
    kept.map(|(_, e)| e.clone()).collect()
}

/// Blocks `mean`, `variance`, `inverse`, `out`; the statistics are programs of their own.
pub(super) fn layer_norm(env: &Env, b: &mut ProgramBuilder, l: LayerNorm) -> (BufferId, Kind) {
    let x = env.operand(0);
    let shape = x.shape().to_vec();
    let (rows, row) = (
        axes_of(&shape[..l.axis], "i"),
        axes_of(&shape[l.axis..], "r"),
    );
    let n: i64 = shape[l.axis..].iter().product();
    let dtype = super::work(env.operand_dtype(0));
    let share = Expr::constant(1.0 / n as f64, dtype);
    let mean = b.reduce("mean", &rows.list(), &row.list(), Reducer::Sum, |o, t| {
        x.at([o, t].concat()) * &share
    });
    let outer: i64 = shape[..l.axis].iter().product();
    let name = ["layer_norm", "layer_norm_mean", "layer_norm_inverse"][env.output];
    let kind = Kind::new(name).arg("rows", outer).arg("cols", n);
    let row_of = |at: &[Expr]| at[..l.axis].to_vec();
    // Statistics of f64 are f32.
    let statistic = |e: Expr| {
        if env.work() == dtype {
            e
        } else {
            e.cast(env.work())
        }
    };
    if env.output == 1 {
        let load = |p: &Point| statistic(Expr::load(mean, row_of(&p.index)));
        return (env.map(b, load), kind);
    }
    let variance = b.reduce(
        "variance",
        &rows.list(),
        &row.list(),
        Reducer::Sum,
        |o, t| {
            let distance = x.at([o, t].concat()) - Expr::load(mean, o);
            &distance * &distance * &share
        },
    );
    let inverse = |at: &[Expr]| {
        let epsilon = Expr::constant(f64::from(l.epsilon), dtype);
        Expr::unary(UnaryOp::Rsqrt, Expr::load(variance, row_of(at)) + epsilon)
    };
    if env.output == 2 {
        return (env.map(b, |p| statistic(inverse(&p.index))), kind);
    }
    // A block of its own: the root and its division are done once a row.
    let scale = b.compute("inverse", &rows.list(), |at| inverse(at));
    let axes = env.axes();
    let result = b.compute(OUT.as_str(), &axes.list(), |at| {
        let p = env.point(at);
        let centred = x.at(at.to_vec()) - Expr::load(mean, row_of(at));
        let scaled = centred * Expr::load(scale, row_of(at)) * env.operand(1).load(&p);
        let value = match env.optional(2) {
            Some(shift) => scaled + shift.load(&p),
            None => scaled,
        };
        env.follow(value, &p)
    });
    (result, kind)
}

fn axes_of(shape: &[i64], prefix: &str) -> Axes {
    Axes::new(
        shape
            .iter()
            .enumerate()
            .map(|(d, n)| (format!("{prefix}{d}"), *n)),
    )
}

/// main sums the squares of neighbouring channels; `out` divides.
pub(super) fn lrn(env: &Env, b: &mut ProgramBuilder, l: Lrn) -> (BufferId, Kind) {
    let x = env.operand(0);
    let axes = env.axes();
    let dtype = env.work();
    let (size, channels) = (l.size as i64, x.shape()[1]);
    let before = (size - 1) / 2;
    let zero = Expr::constant(0.0, dtype);
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &[("s", size)],
        Reducer::Sum,
        |o, t| {
            let mut at = env.point(o).index;
            let channel = &at[1] + &t[0] - before;
            let mut inside = Vec::new();
            if before > 0 {
                inside.push(Expr::int(0).le(&channel));
            }
            if size > 1 {
                inside.push(channel.clone().lt(channels));
            }
            at[1] = channel;
            let value = x.at(at);
            guarded(inside, &value * &value, zero.clone())
        },
    );
    let post = |sum: Expr, p: &Point| {
        let constant = |v: f64| Expr::constant(v, dtype);
        let share = constant(f64::from(l.alpha) / l.size as f64);
        let spread = constant(f64::from(l.bias)) + sum * share;
        let divisor = power(dtype, &spread, &constant(f64::from(l.beta)));
        x.load(p) / divisor
    };
    let result = env.conclude(b, acc, &axes, Some(&post));
    let kind = Kind::new("lrn").arg("size", size).arg("c", channels);
    let kind = match env.layout.block() {
        Some(block) => kind.arg("block", block),
        None => kind,
    };
    (result, kind)
}
