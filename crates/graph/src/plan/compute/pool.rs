//! Windowed pooling, plain or in channel blocks.

use super::conv::window_args;
use super::{Axes, Env, Kind, Point, Window, guarded, sizes};
use crate::ops::{Pool, PoolKind};
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
    let reduce = Axes::new(
        windows
            .iter()
            .enumerate()
            .map(|(d, w)| (kernel_axis(d, windows.len()), w.taps)),
    );
    let reducer = match p.kind {
        PoolKind::Max { .. } => Reducer::Max,
        PoolKind::Average { .. } => Reducer::Sum,
    };
    let outside = reducer.identity(&[env.work()])[0].clone();
    let acc = b.reduce("main", &axes.list(), &reduce.list(), reducer, |o, t| {
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
    });
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
        PoolKind::Max { .. } => format!("max_pool{}d", windows.len()),
        PoolKind::Average { .. } => format!("avg_pool{}d", windows.len()),
    };
    let pads: Vec<(i64, i64)> = p.pads.iter().map(|p| (p.0 as i64, p.1 as i64)).collect();
    let kind = window_args(
        Kind::new(name),
        x.shape(),
        &sizes(&p.kernel),
        &sizes(&p.strides),
        &pads,
    );
    let kind = match env.layout.block() {
        Some(block) => kind.arg("block", block),
        None => kind,
    };
    (result, kind)
}

fn kernel_axis(d: usize, rank: usize) -> String {
    match rank {
        1..=3 => ["q", "r", "s"][3 - rank + d].to_string(),
        _ => format!("s{d}"),
    }
}

fn pool_axes(env: &Env, rank: usize) -> Axes {
    if env.layout.block().is_some() {
        return env.axes();
    }
    let spatial = (0..rank).map(|d| match rank {
        1..=3 => ["z", "y", "x"][3 - rank + d].to_string(),
        _ => format!("x{d}"),
    });
    env.named_axes(
        ["n".to_string(), "c".to_string()]
            .into_iter()
            .chain(spatial),
    )
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
