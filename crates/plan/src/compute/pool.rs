//! Windowed pooling, plain or in channel blocks.

use super::conv::axis_names;
use super::conv::window_args;
use super::reduce::is_best;
use super::stages::{self, Stage, Term};
use super::{Axes, Env, Kind, Point, Window, guarded, sizes, work};
use graph::ops::{IndexOrder, Pool, PoolKind};
use ir::names::{MAIN, image};
use ir::{BufferId, DType, Expr, ProgramBuilder, Reducer};

pub(super) fn pool(env: &Env, b: &mut ProgramBuilder, p: &Pool) -> (BufferId, Kind) {
    let x = env.operand(0);
    let windows: Vec<Window> = (0..p.kernel.len())
        .map(|d| Window {
            size: x.shape()[2 + d],
            count: env.shape[2 + d],
            taps: p.kernel[d] as i64,
            stride: p.strides[d] as i64,
            dilation: p.dilations[d] as i64,
            pad: p.pads[d].0 as i64,
        })
        .collect();
    let axes = pool_axes(env, windows.len());
    let (_, taps) = axis_names(windows.len());
    let reduce = Axes::new(
        windows
            .iter()
            .enumerate()
            .map(|(d, w)| (taps[d].clone(), w.taps)),
    );
    if let (PoolKind::Max { indices: Some(o) }, 1) = (p.kind, env.output) {
        let result = positions(env, b, &windows, &axes, &reduce, o);
        return (result, kind(env, p, "max_pool_positions"));
    }
    let reducer = match p.kind {
        PoolKind::Max { .. } => Reducer::Max,
        PoolKind::Average { .. } => Reducer::Sum,
    };
    let acc = match in_stages(&windows) {
        true => staged(env, b, &windows, &axes, reducer),
        false => joint(env, b, &windows, (&axes, &reduce), reducer),
    };
    let result = match p.kind {
        PoolKind::Max { .. } => env.conclude(b, acc, &axes, None),
        PoolKind::Average { count_include_pad } => {
            let post = |sum: Expr, point: &Point| {
                sum / divisor(p, &windows, count_include_pad, point, env.work())
            };
            env.conclude(b, acc, &axes, Some(&post))
        }
    };
    let name = match p.kind {
        PoolKind::Max { .. } => "max_pool",
        PoolKind::Average { .. } => "avg_pool",
    };
    (result, kind(env, p, name))
}

/// Windows of more terms are reduced one axis after the other: of 3 x 3 terms half of the
/// sizes that were measured took longer so (AMD EPYC, AVX-512).
const MOST_JOINT: i64 = 9;

/// Whether windows are reduced one axis after the other: every window is, or none.
fn in_stages(windows: &[Window]) -> bool {
    let several = windows.iter().filter(|w| w.taps > 1).count() > 1;
    let terms: i64 = windows.iter().map(|w| w.taps).product();
    several && terms > MOST_JOINT
}

/// The reduction of all terms of a window at once.
fn joint(
    env: &Env,
    b: &mut ProgramBuilder,
    windows: &[Window],
    (axes, reduce): (&Axes, &Axes),
    reducer: Reducer,
) -> BufferId {
    let x = env.operand(0);
    let outside = reducer.identity(&[env.work()])[0].clone();
    let (axes, reduce) = (axes.list(), reduce.list());
    b.reduce(MAIN.as_str(), &axes, &reduce, reducer, |o, t| {
        let mut at = Vec::new();
        let mut inside = Vec::new();
        for (d, w) in windows.iter().enumerate() {
            let position = w.position(&o[2 + d], &t[d]);
            inside.extend(w.inside(&position));
            at.push(position);
        }
        let value = if env.layout.block().is_some() {
            x.at_block(&o[0], &o[1], at, &o[o.len() - 1])
        } else {
            x.at([&o[..2], &at].concat())
        };
        guarded(inside, value, outside.clone())
    })
}

/// The same, one axis after the other.
fn staged(
    env: &Env,
    b: &mut ProgramBuilder,
    windows: &[Window],
    axes: &Axes,
    reducer: Reducer,
) -> BufferId {
    let (_, taps) = axis_names(windows.len());
    let stages = windows.iter().enumerate().map(|(d, w)| Stage {
        axis: 2 + d,
        tap: (taps[d].clone(), w.taps),
    });
    // A window of one element that moves with the result is no stage.
    let moves = |s: &Stage| {
        let w = &windows[s.axis - 2];
        w.taps > 1 || w.stride > 1 || w.size != w.count
    };
    let stages: Vec<Stage> = stages.filter(moves).collect();
    stages::reduce(env, b, (axes, &stages), reducer, |i, o, t| {
        let w = &windows[stages[i].axis - 2];
        let at = w.position(o, t);
        Term {
            inside: w.inside(&at),
            at,
            factor: None,
        }
    })
}

fn kind(env: &Env, p: &Pool, name: &str) -> Kind {
    let pads: Vec<(i64, i64)> = p.pads.iter().map(|p| (p.0 as i64, p.1 as i64)).collect();
    let kind = window_args(
        Kind::new(format!("{name}{}d", p.kernel.len())),
        env.operand(0).shape(),
        &sizes(&p.kernel),
        &sizes(&p.strides),
        &pads,
    );
    match env.layout.block() {
        Some(block) => kind.arg("block", block),
        None => kind,
    }
}

/// `best` reduces the values, `main` the row-major positions in their plane, or in their window,
/// that have the best one; `out` counts those of planes as asked for, over the whole operand.
fn positions(
    env: &Env,
    b: &mut ProgramBuilder,
    windows: &[Window],
    axes: &Axes,
    reduce: &Axes,
    order: IndexOrder,
) -> BufferId {
    let x = env.operand(0);
    let plane = &x.shape()[2..];
    let strides = row_major_strides(plane);
    let element = |o: &[Expr], at: &[Expr]| match env.layout.block() {
        Some(_) => x.at_block(&o[0], &o[1], at.to_vec(), &o[o.len() - 1]),
        None => x.at([&o[..2], at].concat()),
    };
    let place = |o: &[Expr], t: &[Expr]| {
        let at: Vec<Expr> = windows
            .iter()
            .enumerate()
            .map(|(d, w)| w.position(&o[2 + d], &t[d]))
            .collect();
        let inside = windows.iter().zip(&at).flat_map(|(w, at)| w.inside(at));
        (inside.collect::<Vec<_>>(), at)
    };
    let lowest = Reducer::Max.identity(&[work(env.operand_dtype(0))])[0].clone();
    let best = b.reduce(
        "best",
        &axes.list(),
        &reduce.list(),
        Reducer::Max,
        |o, t| {
            let (inside, at) = place(o, t);
            guarded(inside, element(o, &at), lowest.clone())
        },
    );
    let in_window = order == IndexOrder::Window;
    let taps: Vec<i64> = windows.iter().map(|w| w.taps).collect();
    let counted = |position: Expr| match in_window {
        true => position.cast(DType::I32),
        false => position,
    };
    let beyond: i64 = if in_window { &taps } else { plane }.iter().product();
    let beyond = counted(Expr::int(beyond));
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Min,
        |o, t| {
            let (inside, at) = place(o, t);
            let position = match in_window {
                true => row_major(t, &taps),
                false => row_major(&at, plane),
            };
            let (position, value) = (counted(position), element(o, &at));
            let is_best = is_best(value, Expr::load(best, o), env.operand_dtype(0));
            let position = Expr::select(is_best, position, &beyond);
            guarded(inside, position, beyond.clone())
        },
    );
    let count = |position: Expr, p: &Point| {
        let counted = match order {
            IndexOrder::RowMajor => position,
            IndexOrder::ColumnMajor => column_major(&position, plane, &strides),
            IndexOrder::Window => return position,
        };
        let map = &p.index[0] * x.shape()[1] + &p.index[1];
        map * plane.iter().product::<i64>() + counted
    };
    env.conclude(b, acc, axes, Some(&count))
}

/// The number of an element of a box.
pub(super) fn row_major(at: &[Expr], shape: &[i64]) -> Expr {
    let terms = at.iter().zip(row_major_strides(shape)).map(|(i, n)| i * n);
    terms.reduce(|a, b| a + b).expect("a box has axes")
}

fn row_major_strides(shape: &[i64]) -> Vec<i64> {
    let stride = |d: usize| shape[d + 1..].iter().product();
    (0..shape.len()).map(stride).collect()
}

fn column_major(position: &Expr, plane: &[i64], strides: &[i64]) -> Expr {
    let mut step = 1;
    let mut sum = Expr::int(0);
    for (n, stride) in plane.iter().zip(strides) {
        let digit = position.clone().floor_div(*stride).floor_mod(*n);
        sum = sum + digit * step;
        step *= n;
    }
    sum
}

fn pool_axes(env: &Env, rank: usize) -> Axes {
    if env.layout.block().is_some() {
        return env.axes();
    }
    let (spatial, _) = axis_names(rank);
    let image = [image::BATCH, image::CHANNEL].map(String::from);
    env.named_axes(image.into_iter().chain(spatial))
}

/// How many elements the window at a point averages over: a constant if no
/// window leaves the operand (or the padding, where that counts).
fn divisor(p: &Pool, windows: &[Window], count_pad: bool, point: &Point, dtype: DType) -> Expr {
    let mut constant = 1;
    let mut counts: Option<Expr> = None;
    for (d, w) in windows.iter().enumerate() {
        let before = if count_pad { 0 } else { w.pad };
        let end = w.size + if count_pad { p.pads[d].1 as i64 } else { 0 };
        let last = (w.count - 1) * w.stride + (w.taps - 1) * w.dilation - w.pad;
        if before == 0 && last < end {
            constant *= w.taps;
            continue;
        }
        // Taps t with 0 <= start + t * dilation < end.
        let start = &point.index[2 + d] * w.stride - w.pad;
        let taps_below = |limit: Expr| {
            let taps = if w.dilation == 1 {
                limit
            } else {
                (limit + (w.dilation - 1)).floor_div(w.dilation)
            };
            taps.min(w.taps)
        };
        let count = if before == 0 {
            taps_below(Expr::int(end) - start)
        } else {
            taps_below(Expr::int(end) - &start) - taps_below(Expr::int(0) - start).max(0)
        };
        counts = Some(match counts {
            Some(c) => c * count,
            None => count,
        });
    }
    let literal = Expr::constant(constant as f64, dtype);
    match counts {
        None => literal,
        Some(c) if constant == 1 => c.cast(dtype),
        Some(c) => c.cast(dtype) * literal,
    }
}
