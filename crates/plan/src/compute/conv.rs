//! Convolutions.
//!
//! Weights keep the model's layout (OIHW); schedules pack them.

use super::{Access, Axes, Env, Kind, LastStep, Point, Window, guarded, sizes, work};
use crate::layout::{Grouping, blocks};
use graph::ops::{Conv, ConvInteger};
use ir::names::{AxisName, MAIN, image};
use ir::{BufferId, Expr, ProgramBuilder, Reducer};
use tensor::DType;

/// What windows read outside of an image, and whether it is taken off every element.
#[derive(Clone, Copy)]
pub(super) struct Outside {
    value: i64,
    centred: bool,
}

impl Outside {
    /// Of an image that is padded with zeros.
    pub const ZERO: Outside = Outside {
        value: 0,
        centred: false,
    };

    pub fn of(c: &ConvInteger) -> Outside {
        Outside {
            value: c.outside,
            centred: c.centred,
        }
    }
}

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

/// The axes over the taps of windows.
fn taps(windows: &[Window]) -> impl Iterator<Item = (String, i64)> {
    let (_, names) = axis_names(windows.len());
    names.into_iter().zip(windows.iter().map(|w| w.taps))
}

/// The pixel that a tap of windows reads for an output, and when the image has it.
fn pixel(windows: &[Window], output: &[Expr], tap: &[Expr]) -> (Vec<Expr>, Vec<Expr>) {
    let along = windows.iter().zip(output.iter().zip(tap));
    let at: Vec<Expr> = along.map(|(w, (o, t))| w.position(o, t)).collect();
    let inside = windows.iter().zip(&at).flat_map(|(w, at)| w.inside(at));
    let inside = inside.collect();
    (at, inside)
}

/// An element of an image as a factor; where it is not inside it is `outside`.
fn image_factor(env: &Env, inside: Vec<Expr>, element: Expr, outside: Outside) -> Expr {
    image_factor_in(env, env.work(), inside, (element, outside))
}

/// The same in the type that terms are summed in.
fn image_factor_in(
    env: &Env,
    sums: DType,
    inside: Vec<Expr>,
    (element, outside): (Expr, Outside),
) -> Expr {
    let zero = Expr::constant(0.0, sums);
    if outside.value == 0 {
        return guarded(inside, env.factor_in(sums, 0, element), zero);
    }
    if outside.centred {
        let centre = Expr::constant(outside.value as f64, sums);
        return guarded(inside, env.factor_in(sums, 0, element) - centre, zero);
    }
    let outside = Expr::constant(outside.value as f64, work(env.operand_dtype(0)));
    env.factor_in(sums, 0, guarded(inside, element, outside))
}

/// A weight as a factor; where `known` does not hold it is 0, and so is the padding of a
/// packed weight, which needs no guard of its own.
pub(super) fn weight_factor(env: &Env, known: Vec<Expr>, weight: Expr) -> Expr {
    weight_factor_in(env, env.work(), known, weight)
}

fn weight_factor_in(env: &Env, sums: DType, known: Vec<Expr>, weight: Expr) -> Expr {
    let none = Expr::constant(0.0, work(env.operand_dtype(1)));
    env.factor_in(sums, 1, guarded(known, weight, none))
}

/// The type in which a convolution of groups sums terms along these axes. Sums of few products of bytes are exact in f32, whose
/// multiply-adds are faster than products of i32: CPUs have none of bytes for lanes that each have a channel of their
/// own. QLinearConv of 144 channels of 56x56 with 3x3 taps takes 0.44 ms with i32 and 128 outside, and 0.17 ms in f32 with
/// 128 taken off before (a Xeon with AMX).
fn type_of_sums(env: &Env, reduce: &Axes) -> DType {
    let terms: i64 = reduce.list().iter().map(|(_, extent)| extent).product();
    let is_byte = |i: usize| matches!(env.operand_dtype(i), DType::U8 | DType::I8);
    let weight = match env.operand_dtype(1) {
        DType::I8 => 128,
        _ => 255,
    };
    // An i8 from which its zero point was taken off needs as many bits as a u8.
    let product = (is_byte(0) && is_byte(1)).then_some(255 * weight);
    match product {
        Some(product) if env.work() == DType::I32 && terms * product <= 1 << 24 => DType::F32,
        _ => env.work(),
    }
}

/// Adds the bias of the map at a point, as the last step of the operator.
pub(super) fn bias<'a>(env: &'a Env) -> Option<impl Fn(Expr, &Point) -> Expr + 'a> {
    let bias = env.optional(2)?;
    Some(move |sum: Expr, p: &Point| sum + bias.at(vec![p.index[1].clone()]))
}

fn with_bias(env: &Env, b: &mut ProgramBuilder, acc: BufferId, axes: &Axes) -> BufferId {
    if b.program().buffer(acc).dtype != env.work() {
        let whole = |sum: Expr, _: &Point| sum.cast(env.work());
        return env.conclude(b, acc, axes, Some(&whole));
    }
    let bias = bias(env);
    env.conclude(b, acc, axes, bias.as_ref().map(|f| f as LastStep))
}

/// A convolution of an image that is `outside` where windows reach over its border.
pub(super) fn conv(
    env: &Env,
    b: &mut ProgramBuilder,
    c: &Conv,
    outside: Outside,
) -> (BufferId, Kind) {
    let result = match env.layout.block() {
        Some(block) => {
            let channels = [env.operand_shape(0)[1], env.shape[1]].map(|n| n as usize);
            match Grouping::of(c.groups, channels[0], channels[1], block) {
                Some(Grouping::Depthwise) => depthwise_blocked(env, b, c, (block, outside)),
                Some(Grouping::Narrow { depth, .. }) if env.fills_groups => {
                    filled_blocks(env, b, c, (block, depth, outside))
                }
                Some(Grouping::Narrow { depth, maps }) => {
                    let lanes = NarrowGroups { block, depth, maps };
                    narrow_blocked(env, b, c, (lanes, outside))
                }
                _ => blocked(env, b, c, (block, outside)),
            }
        }
        None if env.operand(0).layout().block().is_some() => few_maps(env, b, c, outside),
        None => plain(env, b, c, outside),
    };
    (result, conv_kind(env, c))
}

/// main [n, ko, spatial.., ki] = sum over co, kernel axes, ci, or over c, kernel axes if
/// the operand is plain.
fn blocked(
    env: &Env,
    b: &mut ProgramBuilder,
    c: &Conv,
    (block, outside): (i64, Outside),
) -> BufferId {
    let windows = windows(env, c);
    let rank = windows.len();
    let axes = env.named_axes(image::blocked_maps(rank));
    let (x, w) = (env.operand(0), env.operand(1));
    // Of one group, whose channels fill whole blocks if there are several.
    let (channels, maps) = (w.shape()[1], env.shape[1]);
    let in_block = x.layout().block();
    let group_blocks = (
        maps / c.groups as i64 / block,
        channels / in_block.unwrap_or(block),
    );
    let reduce = channel_sums(x, channels, taps(&windows));
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Sum,
        |o, t| {
            let k = &o[1] * block + &o[2 + rank];
            let (at, inside) = pixel(&windows, &o[2..], &t[1..]);
            let (value, channel) = if let Some(in_block) = in_block {
                let co = match c.groups {
                    1 => t[0].clone(),
                    _ => o[1].clone().floor_div(group_blocks.0) * group_blocks.1 + &t[0],
                };
                let value = x.at_block(&o[0], &co, at, &t[1 + rank]);
                (value, &t[0] * in_block + &t[1 + rank])
            } else {
                let at = [&[o[0].clone(), t[0].clone()], &at[..]].concat();
                (x.at(at), t[0].clone())
            };
            let mut known = Vec::new();
            if maps % block != 0 {
                known.push(k.clone().lt(maps));
            }
            if in_block.is_some_and(|b| channels % b != 0) {
                known.push(channel.clone().lt(channels));
            }
            let weight = w.at([&[k, channel], &t[1..1 + rank]].concat());
            let weight = weight_factor(env, known, weight);
            image_factor(env, inside, value, outside) * weight
        },
    );
    with_bias(env, b, acc, &axes)
}

/// The axes of a sum over channels of `x` and taps: blocks, taps, lanes, or channels, taps
/// where `x` is plain.
pub(super) fn channel_sums(
    x: &Access,
    channels: i64,
    taps: impl Iterator<Item = (String, i64)>,
) -> Axes {
    match x.layout().block() {
        Some(block) => {
            let outer = (image::CHANNEL_BLOCK.into(), blocks(channels, block));
            let lanes = (image::CHANNEL_LANE.into(), block);
            Axes::new([outer].into_iter().chain(taps).chain([lanes]))
        }
        None => Axes::new([(image::CHANNEL.into(), channels)].into_iter().chain(taps)),
    }
}

fn is_depthwise(env: &Env, c: &Conv) -> bool {
    c.groups > 1 && env.operand_shape(1)[1] == 1
}

/// main [n, co, spatial.., ci] = sum over kernel axes.
fn depthwise_blocked(
    env: &Env,
    b: &mut ProgramBuilder,
    c: &Conv,
    (block, outside): (i64, Outside),
) -> BufferId {
    let axes = env.axes();
    let windows = windows(env, c);
    let (x, w) = (env.operand(0), env.operand(1));
    let channels = env.shape[1];
    let reduce = Axes::new(taps(&windows));
    let sums = type_of_sums(env, &reduce);
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Sum,
        |o, t| {
            let lane = &o[o.len() - 1];
            let channel = &o[1] * block + lane;
            let (at, inside) = pixel(&windows, &o[2..], t);
            let value = x.at_block(&o[0], &o[1], at, lane);
            let known = if channels % block != 0 {
                vec![channel.clone().lt(channels)]
            } else {
                vec![]
            };
            let weight = w.at([&[channel, Expr::int(0)], t].concat());
            let weight = weight_factor_in(env, sums, known, weight);
            image_factor_in(env, sums, inside, (value, outside)) * weight
        },
    );
    with_bias(env, b, acc, &axes)
}

/// Groups of so many channels and maps, whole ones of which fill blocks.
#[derive(Clone, Copy)]
struct NarrowGroups {
    block: i64,
    depth: i64,
    maps: i64,
}

impl NarrowGroups {
    /// Block and lane of channel `c` of the group that the map `ki` of block `ko` is in.
    fn channel(self, ko: &Expr, ki: &Expr, c: &Expr) -> (Expr, Expr) {
        let NarrowGroups { block, depth, maps } = self;
        let group = match maps {
            1 => Some(ki.clone()),
            _ if maps == block => None,
            _ => Some(ki.clone().floor_div(maps)),
        };
        let in_group = |first: Option<Expr>| match first {
            Some(first) if depth == 1 => first,
            Some(first) => first * depth + c,
            None => c.clone(),
        };
        if depth <= maps {
            // So many blocks of maps read parts of one block of channels.
            let parts = maps / depth;
            let lane = in_group(group);
            if parts == 1 {
                return (ko.clone(), lane);
            }
            let part = ko.clone().floor_mod(parts) * (block / parts);
            return (ko.clone().floor_div(parts), part + lane);
        }
        // A block of maps reads so many blocks of channels, of whole groups each.
        let (own_blocks, groups) = (depth / maps, block / depth);
        let first = ko * own_blocks;
        match group {
            Some(group) if groups == 1 => (first + group, c.clone()),
            Some(group) => {
                let lane = in_group(Some(group.clone().floor_mod(groups)));
                (first + group.floor_div(groups), lane)
            }
            None => (first, c.clone()),
        }
    }

    /// Whether the maps that fill up the last block would read beyond the channels' blocks.
    fn tail_is_outside(self, channels: i64, maps: i64) -> bool {
        self.depth > self.maps
            && blocks(maps, self.block) * self.depth / self.maps > blocks(channels, self.block)
    }
}

/// main [n, ko, spatial.., ki] = sum over c, kernel axes: a vector of maps reads one block
/// of channels, or parts of a few, in an order that does not change.
fn narrow_blocked(
    env: &Env,
    b: &mut ProgramBuilder,
    c: &Conv,
    (groups, outside): (NarrowGroups, Outside),
) -> BufferId {
    let windows = windows(env, c);
    let axes = env.named_axes(image::blocked_maps(windows.len()));
    let (x, w) = (env.operand(0), env.operand(1));
    let (channels, maps, block) = (x.shape()[1], env.shape[1], groups.block);
    let depth = [(image::CHANNEL.into(), groups.depth)];
    let reduce = Axes::new(depth.into_iter().chain(taps(&windows)));
    let sums = type_of_sums(env, &reduce);
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Sum,
        |o, t| {
            let lane = &o[o.len() - 1];
            let k = &o[1] * block + lane;
            let (at, mut inside) = pixel(&windows, &o[2..], &t[1..]);
            let (co, ci) = groups.channel(&o[1], lane, &t[0]);
            let value = x.at_block(&o[0], &co, at, &ci);
            let known = match maps % block {
                0 => vec![],
                _ => vec![k.clone().lt(maps)],
            };
            if groups.tail_is_outside(channels, maps) {
                inside.extend(known.iter().cloned());
            }
            let weight = w.at([&[k], t].concat());
            let weight = weight_factor_in(env, sums, known, weight);
            image_factor_in(env, sums, inside, (value, outside)) * weight
        },
    );
    with_bias(env, b, acc, &axes)
}

/// main [n, ko, spatial.., ki] = sum over co, kernel axes, ci, of one block of channels, which the
/// groups of the maps `ko` have: weights of other groups' channels are 0.
fn filled_blocks(
    env: &Env,
    b: &mut ProgramBuilder,
    c: &Conv,
    (block, depth, outside): (i64, i64, Outside),
) -> BufferId {
    let windows = windows(env, c);
    let rank = windows.len();
    let axes = env.named_axes(image::blocked_maps(rank));
    let (x, w) = (env.operand(0), env.operand(1));
    let maps = env.shape[1];
    let reduce = channel_sums(x, block, taps(&windows));
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Sum,
        |o, t| {
            let (lane, channel) = (&o[2 + rank], &t[1 + rank]);
            let k = &o[1] * block + lane;
            let (at, inside) = pixel(&windows, &o[2..], &t[1..]);
            let value = x.at_block(&o[0], &(&o[1] + &t[0]), at, channel);
            let group = |e: &Expr| e.clone().floor_div(depth);
            let mut known = vec![group(lane).equals(group(channel))];
            if maps % block != 0 {
                known.push(k.clone().lt(maps));
            }
            let own = channel.clone().floor_mod(depth);
            let weight = w.at([&[k, own], &t[1..1 + rank]].concat());
            image_factor(env, inside, value, outside) * weight_factor(env, known, weight)
        },
    );
    with_bias(env, b, acc, &axes)
}

/// The axes of a plain image that is computed from all channels of another one.
pub(super) fn plain_maps(spatial: usize) -> Vec<String> {
    let (spatial, _) = axis_names(spatial);
    let outer = [image::BATCH, image::MAP].map(String::from);
    outer.into_iter().chain(spatial).collect()
}

/// main [n, k, spatial..] = sum over c, kernel axes; any rank, any grouping. Groups of
/// several maps have an axis of their own.
fn plain(env: &Env, b: &mut ProgramBuilder, c: &Conv, outside: Outside) -> BufferId {
    let windows = windows(env, c);
    let maps = env.shape[1] / c.groups as i64;
    if c.groups > 1 && maps > 1 {
        let groups = (c.groups as i64, maps);
        return plain_groups(env, b, &windows, (groups, outside));
    }
    let axes = env.named_axes(plain_maps(windows.len()));
    let (x, w) = (env.operand(0), env.operand(1));
    let depth = w.shape()[1];
    let reduce = channel_sums(x, depth, taps(&windows));
    let sums = match c.groups {
        1 => env.work(),
        _ => type_of_sums(env, &reduce),
    };
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Sum,
        |o, t| {
            let (pixel, inside) = pixel(&windows, &o[2..], &t[1..]);
            let channel = group_channel(c.groups, &o[1], maps, depth, &t[0]);
            let at = [&[o[0].clone(), channel], &pixel[..]].concat();
            let weight = env.factor_in(sums, 1, w.at([&[o[1].clone()], t].concat()));
            image_factor_in(env, sums, inside, (x.at(at), outside)) * weight
        },
    );
    with_bias(env, b, acc, &axes)
}

/// main [n, k, spatial..] = sum over co, kernel axes, ci, of a few maps in one group.
fn few_maps(env: &Env, b: &mut ProgramBuilder, c: &Conv, outside: Outside) -> BufferId {
    let windows = windows(env, c);
    let rank = windows.len();
    let axes = env.named_axes(plain_maps(rank));
    let (x, w) = (env.operand(0), env.operand(1));
    let channels = w.shape()[1];
    let block = x.layout().block().expect("the operand is in blocks");
    let reduce = channel_sums(x, channels, taps(&windows));
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Sum,
        |o, t| {
            let (pixel, inside) = pixel(&windows, &o[2..], &t[1..]);
            let value = x.at_block(&o[0], &t[0], pixel, &t[1 + rank]);
            let channel = &t[0] * block + &t[1 + rank];
            let known = match channels % block {
                0 => vec![],
                _ => vec![channel.clone().lt(channels)],
            };
            let weight = w.at([&[o[1].clone(), channel], &t[1..1 + rank]].concat());
            image_factor(env, inside, value, outside) * weight_factor(env, known, weight)
        },
    );
    with_bias(env, b, acc, &axes)
}

/// main [n, g, k, spatial..] = sum over c, kernel axes, of the maps k of each group g;
/// `out` writes them where all maps of all groups lie one after another.
fn plain_groups(
    env: &Env,
    b: &mut ProgramBuilder,
    windows: &[Window],
    ((groups, maps), outside): ((i64, i64), Outside),
) -> BufferId {
    let (x, w) = (env.operand(0), env.operand(1));
    let depth = w.shape()[1];
    let mut axes = env.named_axes(plain_maps(windows.len())).0;
    axes[1].1 = maps;
    axes.insert(1, (image::GROUP.into(), groups));
    let axes = Axes::new(axes);
    let reduce = channel_sums(x, depth, taps(windows));
    let map = |o: &[Expr]| &o[1] * maps + &o[2];
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &reduce.list(),
        Reducer::Sum,
        |o, t| {
            let (pixel, inside) = pixel(windows, &o[3..], &t[1..]);
            let channel = &o[1] * depth + &t[0];
            let at = [&[o[0].clone(), channel], &pixel[..]].concat();
            let weight = env.factor(1, w.at([&[map(o)], t].concat()));
            image_factor(env, inside, x.at(at), outside) * weight
        },
    );
    let bias = bias(env);
    let post = bias.as_ref().map(|f| f as LastStep);
    let place = |o: &[Expr]| [&[o[0].clone(), map(o)], &o[3..]].concat();
    env.conclude_into(b, acc, &axes, &place, post)
}

/// Channel `c` of the group that map `k` belongs to.
pub(super) fn group_channel(groups: usize, k: &Expr, maps: i64, depth: i64, c: &Expr) -> Expr {
    let group = match (groups, maps) {
        (1, _) => return c.clone(),
        (_, 1) => k.clone(),
        _ => k.clone().floor_div(maps),
    };
    if depth == 1 { group } else { group * depth + c }
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
    block_args(env, pad_args(kind, &pads))
}

/// The blocks of the result and of operand 0, if one of them is in blocks.
pub(super) fn block_args(env: &Env, kind: Kind) -> Kind {
    let blocks = [env.layout, env.operand(0).layout()].map(|l| l.block());
    if blocks == [None, None] {
        return kind;
    }
    let [block, in_block] = blocks.map(|b| b.unwrap_or(1));
    kind.arg("block", block).arg("in_block", in_block)
}

/// n, c, the spatial sizes (d, h, w), k and the kernel sizes (q, r, s).
pub(super) fn shapes(kind: Kind, x: &[i64], w: &[i64], maps: i64) -> Kind {
    let (_, taps) = axis_names(x.len() - 2);
    let mut kind = kind.arg("n", x[0]).arg("c", x[1]).arg("k", maps);
    for (d, name) in size_names(x.len() - 2).iter().enumerate() {
        kind = kind.arg(name, x[2 + d]).arg(&taps[d], w[2 + d]);
    }
    kind
}

pub(super) fn size_names(n: usize) -> Vec<String> {
    let few = ["d", "h", "w"];
    match few.len().checked_sub(n) {
        Some(skip) => few[skip..].iter().map(ToString::to_string).collect(),
        None => (0..n).map(|d| format!("w{d}")).collect(),
    }
}

pub(super) fn lists(mut kind: Kind, lists: &[(&str, &[i64])]) -> Kind {
    for (name, values) in lists {
        for (axis, v) in size_names(values.len()).iter().zip(*values) {
            kind = kind.arg(&format!("{name}_{axis}"), *v);
        }
    }
    kind
}

pub(super) fn pad_args(mut kind: Kind, pads: &[(i64, i64)]) -> Kind {
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
