//! Convolutions.
//!
//! Weights keep the model's layout (OIHW, or IOHW of a transposed convolution);
//! schedules pack them.

use super::{Axes, Env, Kind, Window, guarded, sizes, work};
use crate::layout::blocks;
use graph::ops::{Conv, ConvTranspose};
use ir::names::{AxisName, MAIN, image};
use ir::{BufferId, Expr, ProgramBuilder, Reducer};

/// Names of spatial axes and of kernel axes, the last `n` of each.
pub(super) fn axis_names(n: usize) -> (Vec<String>, Vec<String>) {
    let names = |few: [AxisName; 3], many: &str| -> Vec<String> {
        match few.len().checked_sub(n) {
            Some(skip) => few[skip..].iter().map(ToString::to_string).collect(),
            None => (0..n).map(|d| format!("{many}{d}")).collect(),
        }
    };
    (
        names([image::DEPTH, image::ROW, image::COLUMN], "x"),
        names([image::TAP_DEPTH, image::TAP_ROW, image::TAP_COLUMN], "s"),
    )
}

fn windows(env: &Env, c: &Conv) -> Vec<Window> {
    let (x, w) = (env.operand_shape(0), env.operand_shape(1));
    (0..c.strides.len())
        .map(|d| Window {
            size: x[2 + d],
            count: env.shape[2 + d],
            taps: w[2 + d],
            stride: c.strides[d] as i64,
            dilation: c.dilations[d] as i64,
            pad: c.pads[d].0 as i64,
        })
        .collect()
}

/// The axes over the taps of two windows.
fn taps(windows: &[Window]) -> ((&'static str, i64), (&'static str, i64)) {
    let along = |axis: AxisName, i: usize| (axis.as_str(), windows[i].taps);
    (along(image::TAP_ROW, 0), along(image::TAP_COLUMN, 1))
}

/// The pixel that a tap of two windows reads for an output, and when the image has it.
fn pixel(windows: &[Window], output: &[Expr], tap: &[Expr]) -> ([Expr; 2], Vec<Expr>) {
    let at = [0, 1].map(|i| windows[i].position(&output[i], &tap[i]));
    let inside = [windows[0].inside(&at[0]), windows[1].inside(&at[1])].concat();
    (at, inside)
}

/// A weight as a factor; where `known` does not hold it is 0, and so is the padding of a
/// packed weight, which needs no guard of its own.
fn weight_factor(env: &Env, known: Vec<Expr>, weight: Expr) -> Expr {
    let none = Expr::constant(0.0, work(env.operand_dtype(1)));
    env.factor(1, guarded(known, weight, none))
}

/// The bias of the map at a point, as the last step of the operator.
fn with_bias(env: &Env, b: &mut ProgramBuilder, acc: BufferId, axes: &Axes) -> BufferId {
    let Some(bias) = env.optional(2) else {
        return env.conclude(b, acc, axes, None);
    };
    let post = |sum: Expr, p: &super::Point| sum + bias.at(vec![p.index[1].clone()]);
    env.conclude(b, acc, axes, Some(&post))
}

pub(super) fn conv(env: &Env, b: &mut ProgramBuilder, c: &Conv) -> (BufferId, Kind) {
    let result = match env.layout.block() {
        Some(block) if is_depthwise(env, c) => depthwise_blocked(env, b, c, block),
        Some(block) => blocked(env, b, c, block),
        None => plain(env, b, c),
    };
    (result, conv_kind(env, c))
}

/// main [n, ko, y, x, ki] = sum over co, r, s, ci, or over c, r, s if the
/// operand is plain.
fn blocked(env: &Env, b: &mut ProgramBuilder, c: &Conv, block: i64) -> BufferId {
    let axes = env.named_axes(image::BLOCKED_MAPS);
    let windows = windows(env, c);
    let (x, w) = (env.operand(0), env.operand(1));
    // Of one group, whose channels fill whole blocks if there are several.
    let (channels, maps) = (w.shape()[1], env.shape[1]);
    let group_blocks = (maps / c.groups as i64 / block, channels / block);
    let (r, s) = taps(&windows);
    let zero = Expr::constant(0.0, env.work());
    let in_blocks = x.layout().block().is_some();
    let reduce = if in_blocks {
        vec![
            (image::CHANNEL_BLOCK.as_str(), blocks(channels, block)),
            r,
            s,
            (image::CHANNEL_LANE.as_str(), block),
        ]
    } else {
        vec![(image::CHANNEL.as_str(), channels), r, s]
    };
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce,
        Reducer::Sum,
        |o, t| {
            let k = &o[1] * block + &o[4];
            let ([y, x_], inside) = pixel(&windows, &o[2..4], &t[1..3]);
            let (value, channel) = if in_blocks {
                let co = match c.groups {
                    1 => t[0].clone(),
                    _ => o[1].clone().floor_div(group_blocks.0) * group_blocks.1 + &t[0],
                };
                let value = x.at_block(&o[0], &co, vec![y, x_], &t[3]);
                (value, &t[0] * block + &t[3])
            } else {
                (x.at(vec![o[0].clone(), t[0].clone(), y, x_]), t[0].clone())
            };
            let mut known = Vec::new();
            if maps % block != 0 {
                known.push(k.clone().lt(maps));
            }
            if in_blocks && channels % block != 0 {
                known.push(channel.clone().lt(channels));
            }
            let weight = w.at(vec![k, channel, t[1].clone(), t[2].clone()]);
            let weight = weight_factor(env, known, weight);
            guarded(inside, env.factor(0, value), zero.clone()) * weight
        },
    );
    with_bias(env, b, acc, &axes)
}

fn is_depthwise(env: &Env, c: &Conv) -> bool {
    c.groups > 1 && env.operand_shape(1)[1] == 1
}

/// main [n, co, y, x, ci] = sum over r, s.
fn depthwise_blocked(env: &Env, b: &mut ProgramBuilder, c: &Conv, block: i64) -> BufferId {
    let axes = env.axes();
    let windows = windows(env, c);
    let (x, w) = (env.operand(0), env.operand(1));
    let channels = env.shape[1];
    let (r, s) = taps(&windows);
    let reduce = [r, s];
    let zero = Expr::constant(0.0, env.work());
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce,
        Reducer::Sum,
        |o, t| {
            let channel = &o[1] * block + &o[4];
            let ([y, x_], inside) = pixel(&windows, &o[2..4], &t[..2]);
            let value = x.at_block(&o[0], &o[1], vec![y, x_], &o[4]);
            let known = if channels % block != 0 {
                vec![channel.clone().lt(channels)]
            } else {
                vec![]
            };
            let weight = w.at(vec![channel, Expr::int(0), t[0].clone(), t[1].clone()]);
            let weight = weight_factor(env, known, weight);
            guarded(inside, env.factor(0, value), zero.clone()) * weight
        },
    );
    with_bias(env, b, acc, &axes)
}

/// main [n, k, spatial..] = sum over c, kernel axes; any rank, any grouping.
fn plain(env: &Env, b: &mut ProgramBuilder, c: &Conv) -> BufferId {
    let windows = windows(env, c);
    let (spatial, kernel) = axis_names(windows.len());
    let axes = env.named_axes(
        [image::BATCH, image::MAP]
            .map(String::from)
            .into_iter()
            .chain(spatial),
    );
    let (x, w) = (env.operand(0), env.operand(1));
    let depth = w.shape()[1];
    let maps = env.shape[1] / c.groups as i64;
    let taps = kernel
        .iter()
        .zip(&windows)
        .map(|(n, w)| (n.clone(), w.taps));
    let reduce = Axes::new(
        [(image::CHANNEL.to_string(), depth)]
            .into_iter()
            .chain(taps),
    );
    let zero = Expr::constant(0.0, env.work());
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Sum,
        |o, t| {
            let mut at = vec![
                o[0].clone(),
                group_channel(c.groups, &o[1], maps, depth, &t[0]),
            ];
            let mut inside = Vec::new();
            for (d, window) in windows.iter().enumerate() {
                let position = window.position(&o[2 + d], &t[1 + d]);
                inside.extend(window.inside(&position));
                at.push(position);
            }
            let weight = env.factor(1, w.at([&[o[1].clone()], t].concat()));
            guarded(inside, env.factor(0, x.at(at)), zero.clone()) * weight
        },
    );
    with_bias(env, b, acc, &axes)
}

/// Channel `c` of the group that map `k` belongs to.
fn group_channel(groups: usize, k: &Expr, maps: i64, depth: i64, c: &Expr) -> Expr {
    let group = match (groups, maps) {
        (1, _) => return c.clone(),
        (_, 1) => k.clone(),
        _ => k.clone().floor_div(maps),
    };
    if depth == 1 { group } else { group * depth + c }
}

/// main [n, k, spatial..] = sum over c, kernel axes of the elements whose
/// window starts divide by the stride.
pub(super) fn conv_transpose(
    env: &Env,
    b: &mut ProgramBuilder,
    c: &ConvTranspose,
) -> (BufferId, Kind) {
    let rank = c.strides.len();
    let (spatial, kernel) = axis_names(rank);
    let axes = env.named_axes(
        [image::BATCH, image::MAP]
            .map(String::from)
            .into_iter()
            .chain(spatial),
    );
    let (x, w) = (env.operand(0), env.operand(1));
    let maps = w.shape()[1];
    let depth = x.shape()[1] / c.groups as i64;
    let taps = kernel
        .iter()
        .zip(&w.shape()[2..])
        .map(|(n, t)| (n.clone(), *t));
    let reduce = Axes::new(
        [(image::CHANNEL.to_string(), depth)]
            .into_iter()
            .chain(taps),
    );
    let zero = Expr::constant(0.0, env.work());
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Sum,
        |o, t| {
            let channel = group_channel(c.groups, &o[1], maps, depth, &t[0]);
            let map = if c.groups == 1 {
                o[1].clone()
            } else {
                o[1].clone().floor_mod(maps)
            };
            let mut at = vec![o[0].clone(), channel.clone()];
            let mut inside = Vec::new();
            for d in 0..rank {
                let (stride, pad) = (c.strides[d] as i64, c.pads[d].0);
                let tap = &t[1 + d] * c.dilations[d] as i64;
                let shifted = &o[2 + d] - tap + pad;
                let source = if stride == 1 {
                    shifted.clone()
                } else {
                    shifted.clone().floor_div(stride)
                };
                if stride > 1 {
                    inside.push(shifted.floor_mod(stride).equals(0));
                }
                inside.push(Expr::int(0).le(&source));
                inside.push(source.clone().lt(x.shape()[2 + d]));
                at.push(source);
            }
            let weight = w.at([&[channel, map], &t[1..]].concat());
            guarded(inside, x.at(at), zero.clone()) * weight
        },
    );
    let result = with_bias(env, b, acc, &axes);
    (result, transpose_kind(env, c))
}

fn conv_kind(env: &Env, c: &Conv) -> Kind {
    let (x, w) = (env.operand_shape(0), env.operand_shape(1));
    let depthwise = is_depthwise(env, c);
    let name = match (c.strides.len(), depthwise) {
        (n, true) => format!("depthwise_conv{n}d"),
        (n, false) if c.groups > 1 => format!("grouped_conv{n}d"),
        (n, false) => format!("conv{n}d"),
    };
    let outputs: i64 = env.shape.iter().product();
    let macs = outputs as f64 * w[1..].iter().product::<i64>() as f64;
    let mut kind = shapes(Kind::new(name), &x, &w, env.shape[1])
        .arg("groups", c.groups)
        .flops(2.0 * macs);
    kind = lists(
        kind,
        &[
            ("stride", &sizes(&c.strides)),
            ("dilation", &sizes(&c.dilations)),
        ],
    );
    let pads: Vec<(i64, i64)> = c.pads.iter().map(|p| (p.0 as i64, p.1 as i64)).collect();
    kind = pad_args(kind, &pads);
    if let Some(block) = env.layout.block() {
        kind = kind.arg("block", block);
        kind = kind.arg("in_block", env.operand(0).layout().block().unwrap_or(1));
    }
    kind
}

fn transpose_kind(env: &Env, c: &ConvTranspose) -> Kind {
    let (x, w) = (env.operand_shape(0), env.operand_shape(1));
    let inputs: i64 = x.iter().product();
    let macs = inputs as f64 * w[1..].iter().product::<i64>() as f64;
    let name = format!("conv{}d_transpose", c.strides.len());
    let kind = shapes(Kind::new(name), &x, &w, env.shape[1])
        .arg("groups", c.groups)
        .flops(2.0 * macs);
    let output: Vec<i64> = sizes(&c.output_padding);
    let kind = lists(
        kind,
        &[
            ("stride", &sizes(&c.strides)),
            ("dilation", &sizes(&c.dilations)),
            ("output_pad", &output),
        ],
    );
    pad_args(kind, &c.pads)
}

/// n, c, the spatial sizes (d, h, w), k and the kernel sizes (q, r, s).
fn shapes(kind: Kind, x: &[i64], w: &[i64], maps: i64) -> Kind {
    let (_, taps) = axis_names(x.len() - 2);
    let mut kind = kind.arg("n", x[0]).arg("c", x[1]).arg("k", maps);
    for (d, name) in size_names(x.len() - 2).iter().enumerate() {
        kind = kind.arg(name, x[2 + d]).arg(&taps[d], w[2 + d]);
    }
    kind
}

fn size_names(n: usize) -> Vec<String> {
    let few = ["d", "h", "w"];
    match few.len().checked_sub(n) {
        Some(skip) => few[skip..].iter().map(ToString::to_string).collect(),
        None => (0..n).map(|d| format!("w{d}")).collect(),
    }
}

fn lists(mut kind: Kind, lists: &[(&str, &[i64])]) -> Kind {
    for (name, values) in lists {
        for (axis, v) in size_names(values.len()).iter().zip(*values) {
            kind = kind.arg(&format!("{name}_{axis}"), *v);
        }
    }
    kind
}

fn pad_args(mut kind: Kind, pads: &[(i64, i64)]) -> Kind {
    for (axis, (before, after)) in size_names(pads.len()).iter().zip(pads) {
        kind = kind.arg(&format!("pad_{axis}"), *before);
        kind = kind.arg(&format!("pad_{axis}_end"), *after);
    }
    kind
}

/// The arguments of any windowed operator without weights.
pub(super) fn window_args(
    kind: Kind,
    x: &[i64],
    kernel: &[i64],
    strides: &[i64],
    pads: &[(i64, i64)],
) -> Kind {
    let kind = shapes(kind, x, &[&[1, 1], kernel].concat(), x[1]);
    pad_args(lists(kind, &[("stride", strides)]), pads)
}
