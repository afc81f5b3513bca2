//! Transposed convolutions, plain or in channel blocks, by phases.
//!
//! Along an axis of stride S an output position is y0 * S + p. To the phase p contribute
//! only the taps r = r0 * S + (p + pad) mod S, from row y0 + floor((p + pad) / S) - r0 of
//! the operand, so no term of the sum `main` is zero because of the stride. Of a phase with
//! fewer taps than others the last steps are guarded like rows outside the image, and so
//! skipped. With a dilation D that has the divisor g in common with S, the taps are
//! r = r0 * S / g + f, where f * D = p + pad modulo S, and phases for which g does not divide
//! p + pad have none.
//!
//! Without a stride the taps are counted from the last one, so that the sum is a convolution
//! with mirrored weights.
//!
//! `main` has the axes y0 and p. In blocks `out` has them too, and writes at y0 * S + p, if
//! the result ends with a last phase; of others, and of a plain image, whose elements along the last axis are to be written together, it has the
//! axes of the result and reads `main` at [y / S, y mod S]. Axes of stride 1 have no phases,
//! nor have those of images of more than three spatial axes, whose taps are tested. Weights
//! keep the model's layout (IOHW); schedules pack them.

use super::conv::{
    axis_names, bias, block_args, channel_sums, group_channel, lists, pad_args, plain_maps, shapes,
    weight_factor, window_args,
};
use super::pool::row_major;
use super::{Access, Axes, Env, Kind, LastStep, guarded, sizes};
use crate::layout::blocks;
use graph::ops::{Col2Im, ConvTranspose, Pool};
use ir::names::{MAIN, image};
use ir::{BufferId, DType, Expr, ProgramBuilder, Reducer};

pub(super) fn conv_transpose(
    env: &Env,
    b: &mut ProgramBuilder,
    c: &ConvTranspose,
) -> (BufferId, Kind) {
    let upsamplings = upsamplings(env, c);
    let rank = upsamplings.len();
    let block = env.layout.block();
    let (x, w) = (env.operand(0), env.operand(1));
    let (own_maps, depth) = (w.shape()[1], x.shape()[1] / c.groups as i64);
    let depthwise = block.is_some() && c.groups > 1 && (own_maps, depth) == (1, 1);
    let axes = match block {
        Some(_) if depthwise => env.axes(),
        Some(_) => env.named_axes(image::blocked_maps(rank)),
        None => env.named_axes(plain_maps(rank)),
    };
    let sum_axes = SumAxes::of(&upsamplings, block.is_some());
    let taps = upsamplings.iter().map(Upsampling::tap_axis);
    let reduce = match depthwise {
        true => Axes::new(taps),
        false => channel_sums(x, depth, taps),
    };
    let zero = Expr::constant(0.0, env.work());
    let sum = |o: &[Expr], t: &[Expr]| {
        let channels = match block {
            Some(block) if depthwise => own_channel(env, block, o),
            Some(block) => blocked_channels(env, c, block, o, t),
            None => Channels {
                of_operand: group_channel(c.groups, &o[1], own_maps, depth, &t[0]),
                split: None,
                map: match c.groups {
                    1 => o[1].clone(),
                    _ => o[1].clone().floor_mod(own_maps),
                },
                known: vec![],
            },
        };
        let mut at = vec![];
        let mut inside = vec![];
        let mut known = channels.known;
        let mut weight = vec![channels.of_operand.clone(), channels.map];
        let places = sum_axes.places(o);
        let taps = &t[usize::from(!depthwise)..];
        for (u, (place, tap)) in upsamplings.iter().zip(places.iter().zip(taps)) {
            let source = u.source(place, tap);
            inside.extend(source.inside);
            known.extend(source.known);
            at.push(source.row);
            weight.push(source.tap);
        }
        let value = match &channels.split {
            Some((co, ci)) => x.at_block(&o[0], co, at, ci),
            None => x.at([&[o[0].clone(), channels.of_operand], &at[..]].concat()),
        };
        let weight = weight_factor(env, known, w.at(weight));
        guarded(inside, env.factor(0, value), zero.clone()) * weight
    };
    let acc = b.reduce(
        MAIN.as_str(),
        &sum_axes.axes(&axes).list(),
        &reduce.list(),
        Reducer::Sum,
        sum,
    );
    let add_bias = bias(env);
    let add_bias = add_bias.as_ref().map(|f| f as LastStep);
    let scatters = block.is_some() && sum_axes.ends_whole();
    let result = match (sum_axes.has_phases(), scatters) {
        (true, true) => {
            let own = sum_axes.axes(&axes);
            env.conclude_into(b, acc, &own, &|at| sum_axes.position(at), add_bias)
        }
        (true, false) => env.conclude_at(b, acc, &axes, &|at| sum_axes.index(at), add_bias),
        (false, _) => env.conclude(b, acc, &axes, add_bias),
    };
    (result, kind(env, c))
}

/// Images from columns: the sum over the taps of a phase alone, since the columns hold the
/// products.
pub(super) fn col2im(env: &Env, b: &mut ProgramBuilder, c: &Col2Im) -> (BufferId, Kind) {
    let (windows, rank) = (sizes(&c.windows().unwrap_or_default()), c.image.len());
    let (_, taps) = axis_names(rank);
    let upsamplings: Vec<Upsampling> = taps
        .into_iter()
        .enumerate()
        .map(|(d, tap)| Upsampling {
            phased: phased(rank, d, c.strides[d]),
            tap,
            size: windows[d],
            count: c.image[d] as i64,
            taps: c.window[d] as i64,
            stride: c.strides[d] as i64,
            dilation: c.dilations[d] as i64,
            pad: c.pads[d].0 as i64,
        })
        .collect();
    let axes = env.named_axes(plain_maps(rank));
    let sum_axes = SumAxes::of(&upsamplings, false);
    let x = env.operand(0);
    let taps = Axes::new(upsamplings.iter().map(Upsampling::tap_axis));
    let zero = Expr::constant(0.0, env.work());
    let sum = |o: &[Expr], t: &[Expr]| {
        let (mut inside, mut row, mut column) = (vec![], o[1].clone(), Expr::int(0));
        for (u, (place, tap)) in upsamplings.iter().zip(sum_axes.places(o).iter().zip(t)) {
            let source = u.source(place, tap);
            inside.extend(source.inside);
            row = row * u.taps + source.tap;
            column = column * u.size + source.row;
        }
        let value = env.factor(0, x.at(vec![o[0].clone(), row, column]));
        guarded(inside, value, zero.clone())
    };
    let (own, reducer) = (sum_axes.axes(&axes), Reducer::Sum);
    let acc = b.reduce(MAIN.as_str(), &own.list(), &taps.list(), reducer, sum);
    let result = match sum_axes.has_phases() {
        true => env.conclude_at(b, acc, &axes, &|at| sum_axes.index(at), None),
        false => env.conclude(b, acc, &axes, None),
    };
    let shape = [&[env.shape[0], env.shape[1]], &windows[..]].concat();
    let (window, strides) = (sizes(&c.window), sizes(&c.strides));
    let pads: Vec<(i64, i64)> = c.pads.iter().map(|p| (p.0 as i64, p.1 as i64)).collect();
    let kind = window_args(Kind::new("col2im"), &shape, &window, &strides, &pads);
    let kind = lists(kind, &[("dilation", &sizes(&c.dilations))]);
    (result, kind)
}

/// The gradient of a maximum pool: the windows that an element is in are the taps of its phase.
pub(super) fn max_pool(env: &Env, b: &mut ProgramBuilder, p: &Pool) -> (BufferId, Kind) {
    let (x, positions, rank) = (env.operand(0), env.operand(1), p.kernel.len());
    let (_, taps) = axis_names(rank);
    let upsampling = |(d, tap): (usize, String)| Upsampling {
        phased: phased(rank, d, p.strides[d]),
        tap,
        size: x.shape()[2 + d],
        count: env.shape[2 + d],
        taps: p.kernel[d] as i64,
        stride: p.strides[d] as i64,
        dilation: p.dilations[d] as i64,
        pad: p.pads[d].0 as i64,
    };
    let upsamplings: Vec<Upsampling> = taps.into_iter().enumerate().map(upsampling).collect();
    let in_blocks = env.layout.block().is_some();
    let axes = match in_blocks {
        true => env.axes(),
        false => env.named_axes(plain_maps(rank)),
    };
    let sum_axes = SumAxes::of(&upsamplings, in_blocks);
    let steps = Axes::new(upsamplings.iter().map(Upsampling::tap_axis));
    let kernel = sizes(&p.kernel);
    let zero = Expr::constant(0.0, env.work());
    let sum = |o: &[Expr], t: &[Expr]| {
        let (mut inside, mut at, mut tap) = (vec![], vec![], vec![]);
        for (u, (place, step)) in upsamplings.iter().zip(sum_axes.places(o).iter().zip(t)) {
            let source = u.source(place, step);
            inside.extend(source.inside);
            at.push(source.row);
            tap.push(source.tap);
        }
        let element = |v: &Access| match in_blocks {
            true => v.at_block(&o[0], &o[1], at.clone(), &o[o.len() - 1]),
            false => v.at([&o[..2], &at].concat()),
        };
        let own = row_major(&tap, &kernel).cast(DType::I32);
        let is_own = element(positions).equals(own);
        let value = Expr::select(is_own, element(x), zero.clone());
        guarded(inside, value, zero.clone())
    };
    let (own, reducer) = (sum_axes.axes(&axes), Reducer::Sum);
    let acc = b.reduce(MAIN.as_str(), &own.list(), &steps.list(), reducer, sum);
    let result = match (sum_axes.has_phases(), in_blocks && sum_axes.ends_whole()) {
        (true, true) => env.conclude_into(b, acc, &own, &|at| sum_axes.position(at), None),
        (true, false) => env.conclude_at(b, acc, &axes, &|at| sum_axes.index(at), None),
        (false, _) => env.conclude(b, acc, &axes, None),
    };
    let pads: Vec<(i64, i64)> = p.pads.iter().map(|p| (p.0 as i64, p.1 as i64)).collect();
    let kind = Kind::new(format!("max_pool_gradient{rank}d"));
    let kind = window_args(kind, &env.shape, &kernel, &sizes(&p.strides), &pads);
    (result, block_args(env, kind))
}

/// The position of an axis among those that have names of phases; none if it has no phases.
fn phased(rank: usize, d: usize, stride: usize) -> Option<usize> {
    let named = (image::PHASES.len() + d).checked_sub(rank);
    named.filter(|_| rank <= image::PHASES.len() && stride > 1)
}

/// Where a term of a sum is, as to channels.
struct Channels {
    /// Of the operand, counted over all groups.
    of_operand: Expr,
    /// The same as block and lane, if the operand is in blocks.
    split: Option<(Expr, Expr)>,
    /// Within the group.
    map: Expr,
    /// When the model's weights hold both.
    known: Vec<Expr>,
}

/// The only channel of a map, which is its group.
fn own_channel(env: &Env, block: i64, o: &[Expr]) -> Channels {
    let (co, lane) = (&o[1], &o[o.len() - 1]);
    let channel = co * block + lane;
    let known = match env.shape[1] % block {
        0 => vec![],
        _ => vec![channel.clone().lt(env.shape[1])],
    };
    Channels {
        of_operand: channel,
        split: Some((co.clone(), lane.clone())),
        map: Expr::int(0),
        known,
    }
}

/// The channels of a term for blocks of maps; the groups are whole blocks if there are several.
fn blocked_channels(env: &Env, c: &ConvTranspose, block: i64, o: &[Expr], t: &[Expr]) -> Channels {
    let x = env.operand(0);
    let (channels, maps) = (x.shape()[1], env.shape[1]);
    let lane = &o[o.len() - 1];
    let k = &o[1] * block + lane;
    let mut known = Vec::new();
    if maps % block != 0 {
        known.push(k.clone().lt(maps));
    }
    if x.layout().block().is_none() {
        return Channels {
            of_operand: t[0].clone(),
            split: None,
            map: k,
            known,
        };
    }
    let groups = c.groups as i64;
    let (co, map) = if groups == 1 {
        (t[0].clone(), k)
    } else {
        let own_blocks = maps / groups / block;
        let co = o[1].clone().floor_div(own_blocks) * (channels / groups / block) + &t[0];
        (co, o[1].clone().floor_mod(own_blocks) * block + lane)
    };
    let ci = t[t.len() - 1].clone();
    let channel = &co * block + &ci;
    if channels % block != 0 {
        known.push(channel.clone().lt(channels));
    }
    Channels {
        of_operand: channel,
        split: Some((co, ci)),
        map,
        known,
    }
}

/// One spatial axis of a transposed convolution.
struct Upsampling {
    /// Its position among the axes that have names of phases; none if it has no phases.
    phased: Option<usize>,
    /// The axis over taps, if it has no phases.
    tap: String,
    /// Elements of the operand and of the result.
    size: i64,
    count: i64,
    taps: i64,
    stride: i64,
    dilation: i64,
    pad: i64,
}

/// What a term of the sum reads along an axis.
struct SourceRow {
    row: Expr,
    tap: Expr,
    /// When the operand has the row, and the weights the tap.
    inside: Vec<Expr>,
    known: Vec<Expr>,
}

fn upsamplings(env: &Env, c: &ConvTranspose) -> Vec<Upsampling> {
    let (x, w) = (env.operand_shape(0), env.operand_shape(1));
    let rank = c.strides.len();
    let (_, taps) = axis_names(rank);
    let one = |(d, tap): (usize, String)| Upsampling {
        phased: phased(rank, d, c.strides[d]),
        tap,
        size: x[2 + d],
        count: env.shape[2 + d],
        taps: w[2 + d],
        stride: c.strides[d] as i64,
        dilation: c.dilations[d] as i64,
        pad: c.pads[d].0,
    };
    taps.into_iter().enumerate().map(one).collect()
}

impl Upsampling {
    /// Positions of the result that a phase has.
    fn bases(&self) -> i64 {
        blocks(self.count, self.stride)
    }

    /// What stride and dilation have in common.
    fn common(&self) -> i64 {
        let mut pair = (self.stride, self.dilation);
        while pair.1 != 0 {
            pair = (pair.1, pair.0 % pair.1);
        }
        pair.0
    }

    /// Taps from one that a phase has to its next one.
    fn tap_stride(&self) -> i64 {
        self.stride / self.common()
    }

    /// Taps that a phase has, at most.
    fn tap_steps(&self) -> i64 {
        blocks(self.taps, self.tap_stride())
    }

    fn tap_axis(&self) -> (String, i64) {
        match self.phased {
            Some(i) => (image::TAP_STEPS[i].into(), self.tap_steps()),
            None => (self.tap.clone(), self.taps),
        }
    }

    /// `place` is the base and the phase, or the position in the result.
    fn source(&self, place: &[Expr], tap: &Expr) -> SourceRow {
        match place {
            [base, phase] => self.phased_source(base, phase, tap),
            [position] if self.stride == 1 => self.mirrored_source(position, tap),
            _ => self.tested_source(&place[0], tap),
        }
    }

    /// The first tap of a phase that is padded so, and how many rows beyond the base it reads.
    fn first(&self, padded: i64) -> (i64, i64) {
        let (every, common) = (self.tap_stride(), self.common());
        let (of, by) = (padded.div_euclid(common), self.dilation / common);
        let first = (0..every).find(|f| (of - f * by).rem_euclid(every) == 0);
        let first = first.unwrap_or(0);
        (first, (of - first * by).div_euclid(every))
    }

    fn phased_source(&self, base: &Expr, phase: &Expr, step: &Expr) -> SourceRow {
        let (stride, pad, every, common) =
            (self.stride, self.pad, self.tap_stride(), self.common());
        let by = self.dilation / common;
        let padded = if pad == 0 { phase.clone() } else { phase + pad };
        // Of a phase: what its first tap is, and how far its rows lie ahead of the base.
        let (first, ahead) = if self.dilation == 1 && pad.rem_euclid(stride) == 0 {
            (phase.clone(), Expr::int(pad.div_euclid(stride)))
        } else if self.dilation == 1 {
            let first = padded.clone().floor_mod(stride);
            (first, padded.clone().floor_div(stride))
        } else {
            // Whole where the phase has taps.
            let of = match common {
                1 => padded.clone(),
                _ => padded.clone().floor_div(common),
            };
            let inverse = (0..every).find(|i| i * by % every == 1 % every);
            let first = (of.clone() * inverse.unwrap_or(0)).floor_mod(every);
            let ahead = (of - first.clone() * by).floor_div(every);
            (first, ahead)
        };
        let tap = step * every + first;
        let back = if by == 1 { step.clone() } else { step * by };
        let row = match ahead.as_int() {
            Some(0) => base - back,
            _ => base + ahead - back,
        };
        let reach: Vec<i64> = (0..stride).map(|p| self.first(p + pad).1).collect();
        let least = reach.iter().min().copied().unwrap_or(0);
        let most = reach.iter().max().copied().unwrap_or(0);
        let mut inside = Vec::new();
        if common > 1 {
            inside.push(padded.floor_mod(common).equals(0));
        }
        if self.taps % every != 0 {
            inside.push(tap.clone().lt(self.taps));
        }
        if least < (self.tap_steps() - 1) * by {
            inside.push(Expr::int(0).le(&row));
        }
        if self.bases() - 1 + most >= self.size {
            inside.push(row.clone().lt(self.size));
        }
        let mut known = Vec::new();
        if self.taps % every != 0 {
            known.push(tap.clone().lt(self.taps));
        }
        SourceRow {
            row,
            tap,
            inside,
            known,
        }
    }

    /// Without a stride the taps are counted from the last one: the operand is read as by a
    /// convolution.
    fn mirrored_source(&self, position: &Expr, tap: &Expr) -> SourceRow {
        let before = (self.taps - 1) * self.dilation - self.pad;
        let row = position + tap * self.dilation - before;
        let mut inside = Vec::new();
        if before > 0 {
            inside.push(Expr::int(0).le(&row));
        }
        if self.count - 1 + self.pad >= self.size {
            inside.push(row.clone().lt(self.size));
        }
        SourceRow {
            row,
            tap: Expr::int(self.taps - 1) - tap,
            inside,
            known: vec![],
        }
    }

    /// Rows that the stride leaves out count as outside.
    fn tested_source(&self, position: &Expr, tap: &Expr) -> SourceRow {
        let shifted = position - tap * self.dilation + self.pad;
        let mut inside = Vec::new();
        let mut row = shifted.clone();
        if self.stride > 1 {
            row = shifted.clone().floor_div(self.stride);
            inside.push(shifted.floor_mod(self.stride).equals(0));
        }
        inside.push(Expr::int(0).le(&row));
        inside.push(row.clone().lt(self.size));
        SourceRow {
            row,
            tap: tap.clone(),
            inside,
            known: vec![],
        }
    }
}

/// What an axis of the sum is of a spatial axis of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Base,
    Phase,
}

/// The spatial axes of the sum, outermost first.
struct SumAxes<'a> {
    upsamplings: &'a [Upsampling],
    /// Of which upsampling.
    parts: Vec<(usize, Part)>,
}

impl SumAxes<'_> {
    /// The phase stands inside its base; outside it on the last axis of a plain image, so
    /// that neighbouring bases are neighbours in memory.
    fn of(upsamplings: &[Upsampling], in_blocks: bool) -> SumAxes<'_> {
        let rank = upsamplings.len();
        let parts = upsamplings.iter().enumerate().flat_map(|(d, u)| {
            let own = match u.phased {
                None => vec![Part::Whole],
                Some(_) if d + 1 == rank && !in_blocks => vec![Part::Phase, Part::Base],
                Some(_) => vec![Part::Base, Part::Phase],
            };
            own.into_iter().map(move |part| (d, part))
        });
        SumAxes {
            upsamplings,
            parts: parts.collect(),
        }
    }

    fn has_phases(&self) -> bool {
        self.parts.len() > self.upsamplings.len()
    }

    /// Whether the result ends with a last phase along every axis.
    fn ends_whole(&self) -> bool {
        let phased = self.upsamplings.iter().filter(|u| u.phased.is_some());
        phased.into_iter().all(|u| u.count % u.stride == 0)
    }

    /// The axes of the sum from those of the result.
    fn axes(&self, result: &Axes) -> Axes {
        let (outer, inner) = result.0.split_at(2);
        let spatial = self.parts.iter().map(|(d, part)| {
            let u = &self.upsamplings[*d];
            match (part, u.phased) {
                (Part::Base, Some(i)) => (image::BASES[i].into(), u.bases()),
                (Part::Phase, Some(i)) => (image::PHASES[i].into(), u.stride),
                _ => inner[*d].clone(),
            }
        });
        let lanes = &inner[self.upsamplings.len()..];
        let outer = outer.iter().cloned();
        Axes::new(outer.chain(spatial).chain(lanes.iter().cloned()))
    }

    /// Of every spatial axis of the result, where a point of the sum is: base and phase,
    /// or position.
    fn places(&self, o: &[Expr]) -> Vec<Vec<Expr>> {
        let at = |d: usize, wanted: Part| {
            let found = self.parts.iter().position(|p| *p == (d, wanted));
            found.map(|i| o[2 + i].clone())
        };
        let place = |d| {
            let parts = [Part::Whole, Part::Base, Part::Phase];
            parts.into_iter().filter_map(|part| at(d, part)).collect()
        };
        (0..self.upsamplings.len()).map(place).collect()
    }

    /// The point of the result that a point of the sum is written to, where the result ends
    /// with whole phases.
    fn position(&self, at: &[Expr]) -> Vec<Expr> {
        let (outer, lanes) = (&at[..2], &at[2 + self.parts.len()..]);
        let places = self.places(at);
        let spatial = places.into_iter().zip(self.upsamplings).map(|(place, u)| {
            let [base, phase] = &place[..] else {
                return place[0].clone();
            };
            base * u.stride + phase
        });
        let spatial: Vec<Expr> = spatial.collect();
        [outer, &spatial, lanes].concat()
    }

    /// The point of the sum that a point of the result reads.
    fn index(&self, at: &[Expr]) -> Vec<Expr> {
        let (outer, inner) = at.split_at(2);
        let spatial = self.parts.iter().map(|(d, part)| {
            let (position, stride) = (inner[*d].clone(), self.upsamplings[*d].stride);
            match part {
                Part::Whole => position,
                Part::Base => position.floor_div(stride),
                Part::Phase => position.floor_mod(stride),
            }
        });
        let lanes = &inner[self.upsamplings.len()..];
        let outer = outer.iter().cloned();
        outer.chain(spatial).chain(lanes.iter().cloned()).collect()
    }
}

fn kind(env: &Env, c: &ConvTranspose) -> Kind {
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
    block_args(env, pad_args(kind, &c.pads))
}
