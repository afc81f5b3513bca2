//! Products of bytes with sums in i32, and of bf16 with sums in f32: matrix products and
//! convolutions on blocked layouts, by dot products of four neighbouring bytes, or of two
//! neighbouring bf16 where the target has them.
//!
//! Weights are packed so that one vector holds the terms of one dot product for
//! every lane of the result; those of the other operand are the same
//! for all lanes. A register tile is rows (or pixels) by vectors, as with
//! floats; `tensorize` puts the lanes and the terms into one instruction.

pub mod attention;
mod tiles;

use super::registers::{MOST_UNROLLED, Registers, limit_unrolled, products_a_load, wanted_part};
use super::{Templates, epilogue, main_sum, others};
use crate::draft::{Decided, DecidedPart, Draft, REST, Written, given};
use crate::nests::{AxisLoop, Nest, nests};
use crate::templates::blocked::factor_load;
use crate::templates::gemm::{Packing, Shape};
use ir::affine::Affine;
use ir::names::image;
use ir::{
    BinaryOp, BlockId, BufferId, CpuTarget, DType, Expr, ExprKind, LoopId, Program, Role, Scope,
    Target,
};
use schedule::Arg;

/// Dot products in the lanes of a vector (ADR 0009).
struct Dot {
    /// Of `schedule::intrinsics`.
    intrinsic: String,
    /// Products that a lane adds in one instruction.
    terms: i64,
    /// What names of sketches begin with.
    name: &'static str,
    /// Whether one instruction of the target takes the factors as they are.
    is_direct: bool,
    /// Whether the target has an instruction for it at all.
    is_native: bool,
}
/// Vectors of results side by side in a tile, at most. Chosen by hand; not measured apart.
const MOST_VECTORS: i64 = 4;
/// Most rows of pixels in a tile. Chosen by hand; not measured apart.
const MOST_LINES: i64 = 4;

/// Sketches for a program whose `main` sums products that the target has dot products for;
/// else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Some(main) = main_sum(all) else {
        return;
    };
    let Some(dot) = dot(program, main, target) else {
        return;
    };
    let out = epilogue(all, main);
    let sum = DotSum {
        main,
        out,
        target,
        registers: Registers::without(target, if dot.is_direct { 1 } else { EMULATED }),
        dot,
    };
    let is_conv = main.extent(image::MAP_LANE).is_some();
    let convolution = sum.convolution(program).filter(|_| is_conv);
    let product = sum.product(program).filter(|_| !is_conv);
    if let Some(tiles) = sum.tiles() {
        let (convolution, product) = (convolution.as_ref(), product.as_ref());
        let convolution = convolution.filter(|c| tiles.suit_convolution(c));
        let product = product.filter(|(s, _)| tiles.suit_product(s));
        let ways = convolution.map_or(vec![], |c| tiles.ways(program, c));
        let mut write = |name, write: &dyn Fn(&mut Draft) -> Written<()>| {
            found.write(Draft::new(name, program), |d| {
                write(d)?;
                others(d, all, &sum.handled(), target)
            });
        };
        let prefix = format!("{}.tiles", sum.dot.name);
        let mut orders = [("columns", true), ("rows", false)];
        if convolution.is_some_and(|c| tiles.is_far(program, c)) {
            orders.reverse();
        }
        for (order, first) in orders {
            // All pixels of an image have one order.
            let ways = ways.iter().filter(|w| first || w.has_orders());
            for (way, c) in ways.zip(convolution.iter().cycle()) {
                let name = format!("{prefix}.{order}{}", way.word());
                write(name, &|d| tiles.write_convolution(d, c, (*way, first)));
            }
        }
        if let Some((s, packing)) = product {
            for order in tiles.orders(s) {
                let name = format!("{prefix}.{}", order.word());
                write(name, &|d| tiles.write_product(d, s, *packing, order));
            }
        }
    }
    for (order, first) in [("columns", true), ("rows", false)] {
        let name = format!("{}.{order}", sum.dot.name);
        let write = |d: &mut Draft| {
            match (&convolution, &product) {
                (Some(c), _) => sum.write_convolution(d, c, first)?,
                (_, Some((s, packing))) => sum.write_product(d, s, *packing, first)?,
                _ => {}
            }
            others(d, all, &sum.handled(), target)
        };
        if convolution.is_some() || product.is_some() {
            found.write(Draft::new(name, program), write);
        }
    }
}

/// The dot product that the target's vectors hold, by the types of the factors.
fn dot(program: &Program, main: &Nest, target: &CpuTarget) -> Option<Dot> {
    let value = &program.block(main.block).writes[0].value;
    let ExprKind::Binary(BinaryOp::Mul, a, b) = value.kind() else {
        return None;
    };
    let of = |e: &Expr| Some(program.buffer(factor_load(e)?.0).dtype);
    let types = [of(a)?, of(b)?];
    let bytes = |d: &DType| matches!(d, DType::I8 | DType::U8);
    let kind = match types {
        [DType::BF16, DType::BF16] if target.half_dot.is_some() => "dot2.bf16bf16f32",
        [DType::I8, DType::I8] => "dot4.i8i8i32",
        [DType::U8, DType::U8] => "dot4.u8u8i32",
        _ if types.iter().all(bytes) => "dot4.u8i8i32",
        _ => return None,
    };
    let intrinsic = match target.lanes(DType::I32) {
        16 => kind.to_string(),
        n @ (4 | 8) => format!("{kind}x{n}"),
        _ => return None,
    };
    Some(match bytes(&types[0]) {
        true => Dot {
            intrinsic,
            terms: 4,
            name: "int8",
            is_direct: target
                .byte_dot
                .is_some_and(|d| d.is_direct(types[0] != types[1])),
            is_native: target.byte_dot.is_some(),
        },
        false => Dot {
            intrinsic,
            terms: 2,
            name: "bf16",
            is_direct: true,
            is_native: true,
        },
    })
}

/// How many times the f32 multiply-adds a target does for a program in the same
/// time: sums of products of bytes and of bf16 have instructions of their own on some.
pub fn peak_factor(program: &Program, target: &Target) -> f64 {
    let Target::Cpu(target) = target;
    let all = nests(program);
    let found = main_sum(&all).and_then(|main| dot(program, main, target));
    let found = found.filter(|d| d.is_native);
    let factor = |d: Dot| match target.tile_dot {
        Some(_) => tiles::PEAK_FACTOR * d.terms as f64,
        None => d.terms as f64,
    };
    found.map_or(1.0, factor)
}

/// Registers that a dot product of several instructions needs for its parts, the one
/// for what is broadcast included. Chosen by hand; not measured apart.
const EMULATED: i64 = 6;

/// A sum of products by dot products.
struct DotSum<'a> {
    main: &'a Nest,
    out: Option<&'a Nest>,
    target: &'a CpuTarget,
    dot: Dot,
    /// Those for accumulators and weights: the others hold what is broadcast, and what an
    /// instruction is made of that the target has not.
    registers: Registers,
}

/// The image that a block reads, if what it takes outside of it needs a copy: it is not 0,
/// or terms of floats, of which none can be left out.
fn bordered(program: &Program, block: BlockId) -> Option<BufferId> {
    let value = &program.block(block).writes[0].value;
    let ExprKind::Binary(BinaryOp::Mul, image, _) = value.kind() else {
        return None;
    };
    // What is 0 outside is cast first: a factor of 0 drops all terms of bytes.
    let inner = match image.kind() {
        ExprKind::Cast(_, inner) => inner,
        _ if factor_load(image).is_some_and(|(b, _)| program.buffer(b).dtype == DType::BF16) => {
            image
        }
        _ => return None,
    };
    let guarded = matches!(inner.kind(), ExprKind::Select(..));
    factor_load(inner).filter(|_| guarded).map(|(b, _)| b)
}

/// Blocks of maps, one after the other, that a convolution sums the same channels for, of which
/// it reads the block `channels`.
fn maps_of_group(program: &Program, block: BlockId, channels: &Expr, maps: &AxisLoop) -> i64 {
    let mut iters = program.block(block).iters.iter();
    let Some(map) = iters.find(|i| program.var(i.var).name == maps.axis) else {
        return maps.extent;
    };
    let is_map = |e: &Expr| *e == Expr::var(map.var);
    if !channels.any(&is_map) {
        return maps.extent;
    }
    let mut found = 1;
    channels.visit(&mut |e| {
        if let ExprKind::Binary(BinaryOp::FloorDiv, a, by) = e.kind()
            && is_map(a)
        {
            found = by.as_int().unwrap_or(1);
        }
    });
    found
}

/// A convolution of blocked images.
struct Convolution<'a> {
    batch: LoopId,
    maps: &'a AxisLoop,
    /// Blocks of maps, one after the other, that sum the same channels: those of a group.
    maps_of_group: i64,
    /// Absent of images of one line.
    y: Option<&'a AxisLoop>,
    x: &'a AxisLoop,
    lane: &'a AxisLoop,
    /// Blocks of input channels, and the channels of one.
    channel_blocks: &'a AxisLoop,
    channels: &'a AxisLoop,
    /// Along lines last.
    taps: Vec<LoopId>,
    image: BufferId,
    weights: BufferId,
    /// Whether the image has far more pixels than there are results.
    steps_over: bool,
    is_one_tap: bool,
    /// Taps along a line that read neighbouring pixels, if they do.
    neighbours: Option<i64>,
    /// Whether the last block of channels, or of maps, has more than there are.
    is_padded: bool,
    /// Whether blocks hold several groups, and weights between them are 0.
    fills_groups: bool,
    /// The image, if it is not 0 outside of its borders.
    bordered: Option<BufferId>,
}

impl Convolution<'_> {
    /// Loops over groups of lines and over those of a tile, if there are lines.
    fn split_lines(&self, d: &mut Draft, lines: Option<Decided>) -> Written<[Vec<LoopId>; 2]> {
        let (Some(y), Some(lines)) = (self.y, lines) else {
            return Ok([vec![], vec![]]);
        };
        let [y0, y1] = d.split(y.id, [REST, lines.value().into()])?;
        Ok([vec![y0], vec![y1]])
    }

    /// The loops over tiles: blocks of maps outside of lines of pixels, or inside.
    fn outer(&self, [k0, x0]: [LoopId; 2], y0: &[LoopId], maps_first: bool) -> Vec<LoopId> {
        match maps_first {
            true => [&[self.batch, k0], y0, &[x0]].concat(),
            false => [&[self.batch], y0, &[k0, x0]].concat(),
        }
    }
}

impl DotSum<'_> {
    /// The blocks that sketches schedule.
    fn handled(&self) -> Vec<BlockId> {
        let both = [Some(self.main), self.out].into_iter().flatten();
        both.map(|n| n.block).collect()
    }

    fn lanes(&self) -> i64 {
        self.target.lanes(DType::I32)
    }

    /// A product whose terms come in whole dot products.
    fn product(&self, program: &Program) -> Option<(Shape, Packing)> {
        let s = Shape::of(program, self.main)?;
        let packing = s.packing?;
        (s.k() % self.dot.terms == 0).then_some((s, packing))
    }

    /// Panels of columns outside tiles of rows, or inside.
    fn write_product(
        &self,
        d: &mut Draft,
        s: &Shape,
        packing: Packing,
        columns_first: bool,
    ) -> Written<()> {
        let lanes = self.lanes();
        let vectors = (s.n() + lanes - 1) / lanes;
        let widths: Vec<i64> = (1..=MOST_VECTORS.min(vectors)).collect();
        let most = self.registers.most_rows().min(s.m());
        let rows: Vec<i64> = (1..=most)
            .filter(|t| s.m() % t == 0 || s.m() > 4 * t)
            .collect();
        let (v, t) = self.best(&widths, &rows, [vectors, s.m()]);
        let columns: Vec<i64> = widths.iter().map(|w| w * lanes).collect();
        let columns = d.choose("columns", &columns, v * lanes).value();
        let rows = s.rows.as_ref().map(|m| (m.id, d.choose("rows", &rows, t)));
        let steps = s.k() / self.dot.terms;
        let unrolls: Vec<i64> = (1..=8).filter(|u| steps % u == 0).collect();
        let unroll = d.choose("unroll_k", &unrolls, 2).value();
        let tile_rows: Vec<_> = rows.iter().map(|(_, r)| r.value()).collect();
        self.registers.limit(d, &tile_rows, columns, lanes);
        let body = [&[columns], &tile_rows[..], &[unroll]].concat();
        limit_unrolled(d, 1, &body, MOST_UNROLLED * lanes);

        let result = self.keep_in_registers(d)?;
        d.pad(s.columns.id, columns)?;
        let fours = packing.fours(columns, self.dot.terms);
        let copier = d.pack(s.right, &fours.0, &fours.1)?;
        let [n0, panel] = d.split(s.columns.id, [REST, columns.into()])?;
        let [vectors, lane] = d.split(panel, [REST, given(lanes)])?;
        let [k0, term] = d.split(s.terms.id, [REST, given(self.dot.terms)])?;
        let [first, k1] = d.split(k0, [REST, unroll.into()])?;
        let batch = s.batch.iter().map(|l| l.id);
        let mut outer: Vec<LoopId> = batch.chain([n0]).collect();
        let mut unrolled = vec![k1];
        let mut row_tiles = None;
        if let Some((m, decision)) = rows {
            let [m0, m1] = d.split(m, [REST, decision.value().into()])?;
            outer.insert(s.batch.len() + usize::from(columns_first), m0);
            unrolled.push(m1);
            row_tiles = Some(m0);
        }
        unrolled.push(vectors);
        d.reorder(&[&outer[..], &[first], &unrolled, &[lane, term]].concat())?;
        let place = self.share(d, &outer, outer.len() - 1)?;
        let own = d.reverse_compute_at(result, place)?;
        let last = self.main.spatial.len() - 1;
        let [vectors, lanes_out] = d.split(own[last], [REST, given(lanes)])?;
        d.vectorize(lanes_out)?;
        d.unroll(vectors)?;
        if s.rows.is_some() {
            d.unroll(own[last - 1])?;
        }
        self.instructions(d, lane, &unrolled, first)?;
        if packing.each_call {
            self.pack_each_call(d, packing, copier)?;
        }
        d.run_parallel()?;
        if let Some(m0) = row_tiles {
            d.attempt_partition(m0);
        }
        Ok(())
    }

    /// Packing as part of a call: terms that follow each other in memory are copied
    /// together, others are interleaved in whole vectors.
    fn pack_each_call(&self, d: &mut Draft, packing: Packing, copier: BlockId) -> Written<()> {
        d.share_panels(copier, packing.dims, self.target.threads)?;
        let [columns, terms] = d.packed_along(copier, [packing.dims, packing.dims + 1])?;
        if packing.transposed {
            d.vectorize_if_legal(terms);
            return Ok(());
        }
        let [_, lanes] = d.split(columns, [REST, given(self.lanes())])?;
        let vector = d.fuse(lanes, terms)?;
        d.vectorize_if_legal(vector);
        Ok(())
    }

    /// A convolution whose channels come in whole dot products.
    fn convolution(&self, program: &Program) -> Option<Convolution<'_>> {
        let n = self.main;
        let (batch, maps, y, x, lane) = match &n.spatial[..] {
            [batch, maps, y, x, lane] => (batch, maps, Some(y), x, lane),
            [batch, maps, x, lane] => (batch, maps, None, x, lane),
            _ => return None,
        };
        let spatial = 1 + usize::from(y.is_some());
        let channels = n.axis(image::CHANNEL_LANE)?;
        if lane.extent != self.lanes() || channels.extent % self.dot.terms != 0 {
            return None;
        }
        let loads = program.block(n.block).loads();
        let mut dims = loads.iter().map(|(b, at)| (*b, at.len()));
        let constant = |b: BufferId| program.buffer(b).role == Role::Constant;
        let weights = dims
            .clone()
            .find(|(b, dims)| constant(*b) && *dims == 2 + spatial)?
            .0;
        let image = dims
            .find(|(b, dims)| *b != weights && *dims == 3 + spatial)?
            .0;
        let tap = n.axis(image::TAP_COLUMN)?;
        let neighbours = loads.iter().find(|(b, _)| *b == image).and_then(|(_, at)| {
            let mut iters = program.block(n.block).iters.iter();
            let var = iters.find(|i| program.var(i.var).name == tap.axis)?.var;
            let by = Affine::of(&at[1 + spatial])?.coefficient(var);
            (by == 1).then_some(tap.extent)
        });
        let read = &loads.iter().find(|(b, _)| *b == image)?.1;
        let maps_of_group = maps_of_group(program, n.block, &read[1], maps);
        let pixels: i64 = program.buffer(image).shape[2..2 + spatial].iter().product();
        let taps = [image::TAP_ROW, image::TAP_COLUMN];
        let taps = || taps[2 - spatial..].iter().map(|t| n.axis(*t));

        let bordered = bordered(program, n.block);
        if bordered.is_some_and(|image| !self.surrounds(program, image)) {
            return None;
        }
        let shape = &program.buffer(weights).shape;
        let of_weights = &loads.iter().find(|(b, _)| *b == weights)?.1;
        let fills_groups =
            of_weights[1].any(&|e| matches!(e.kind(), ExprKind::Binary(BinaryOp::FloorMod, ..)));
        let is_padded = shape[1] % channels.extent != 0 || shape[0] % lane.extent != 0;
        Some(Convolution {
            batch: batch.id,
            maps,
            maps_of_group,
            y,
            x,
            lane,
            channel_blocks: n.axis(image::CHANNEL_BLOCK)?,
            channels,
            taps: taps().map(|t| t.map(|t| t.id)).collect::<Option<_>>()?,
            image,
            weights,
            steps_over: pixels > 2 * y.map_or(1, |y| y.extent) * x.extent,
            neighbours,
            is_one_tap: taps().flatten().all(|t| t.extent == 1),
            is_padded,
            fills_groups,
            bordered,
        })
    }

    /// Whether a copy of an image with its border leaves no test to the reader.
    fn surrounds(&self, program: &Program, image: BufferId) -> bool {
        let mut d = Draft::new("", program);
        d.surround(self.main.block, image).is_ok()
            && bordered(d.program(), self.main.block).is_none()
    }

    /// Copies an image with its border, which a dot product cannot leave out.
    fn surround(&self, d: &mut Draft, image: BufferId) -> Written<BlockId> {
        let copier = d.surround(self.main.block, image)?;
        let own = schedule::own_loops(d.program(), copier);
        self.share_image(d, &own)?;
        Ok(copier)
    }

    /// Threads share the loops that copy an image, of which the last is over lanes.
    fn share_image(&self, d: &mut Draft, loops: &[LoopId]) -> Written<()> {
        let [outer @ .., _, lanes] = loops else {
            return Err(d.missing("the copy of the image has no rows".into()));
        };
        d.vectorize(*lanes)?;
        d.share_copy(outer, self.target.threads).map(drop)
    }

    /// Blocks of maps outside lines of pixels, or inside.
    fn write_convolution(&self, d: &mut Draft, c: &Convolution, maps_first: bool) -> Written<()> {
        if let Some(image) = c.bordered {
            self.surround(d, image)?;
        }
        self.pack_weights(d, c, 1)?;
        let (ty, tx, tk) = self.tile(d, c);
        let result = self.keep_in_registers(d)?;
        let [y0, y1] = c.split_lines(d, ty)?;
        let [x0, x1] = d.split(c.x.id, [REST, tx.value().into()])?;
        let [k0, k1] = d.split(c.maps.id, [REST, tk.value().into()])?;
        let [ci, term] = d.split(c.channels.id, [REST, given(self.dot.terms)])?;
        let outer = c.outer([k0, x0], &y0, maps_first);
        let lane = c.lane.id;
        let sums = [&[c.channel_blocks.id], &c.taps[..]].concat();
        let unrolled = [&[ci], &y1[..], &[x1, k1]].concat();
        d.reorder(&[&outer[..], &sums, &unrolled, &[lane, term]].concat())?;
        self.share(d, &outer, outer.len() - 1)?;
        let own = d.reverse_compute_at(result, x0)?;
        let [_, pixels @ .., lanes_out] = &own[..] else {
            return Err(d.missing("the results have no pixels".into()));
        };
        d.vectorize(*lanes_out)?;
        for l in pixels.iter().rev() {
            d.unroll(*l)?;
        }
        self.instructions(d, lane, &unrolled, c.channel_blocks.id)?;
        d.run_parallel()?;
        d.attempt_partition(x0);
        Ok(())
    }

    /// Weights by maps and channels in fours, then taps; then the fours of a group of blocks
    /// innermost.
    fn pack_weights(&self, d: &mut Draft, c: &Convolution, groups: i64) -> Written<()> {
        let tiles = [(0, Arg::Lit(c.lane.extent)), (1, Arg::Lit(self.dot.terms))];
        let taps = c.taps.len();
        if c.fills_groups {
            // By blocks of maps, their lanes, taps and channels.
            let whole = d.reindex(self.main.block, c.weights)?;
            let terms = [(2 + taps, Arg::Lit(self.dot.terms))];
            let of_taps: Vec<usize> = (2..2 + taps).collect();
            let order = [&[0], &of_taps[..], &[2 + taps, 1, 3 + taps]].concat();
            return d.lay_out(d.output(whole), &terms, &order);
        }
        let order = [&[0, 2], &(4..4 + taps).collect::<Vec<_>>()[..], &[1, 3]].concat();
        let weights = if c.is_padded {
            let whole = d.surround(self.main.block, c.weights)?;
            let whole = d.output(whole);
            d.lay_out(whole, &tiles, &order)?;
            whole
        } else {
            let copier = d.pack(c.weights, &tiles, &order)?;
            d.output(copier)
        };
        if groups * c.channels.extent > self.dot.terms {
            let fours = [(1, Arg::Lit(groups * c.channels.extent / self.dot.terms))];
            let of_taps: Vec<usize> = (3..3 + taps).collect();
            let order = [&[0, 1], &of_taps[..], &[2, 3 + taps, 4 + taps]].concat();
            d.lay_out(weights, &fours, &order)?;
        }
        Ok(())
    }

    /// Lines, columns and blocks of maps of the tile.
    fn tile(&self, d: &mut Draft, c: &Convolution) -> (Option<Decided>, Decided, Decided) {
        let [maps, width] = [c.maps, c.x].map(|l| l.extent);
        let height = c.y.map_or(1, |y| y.extent);
        let blocks: Vec<i64> = (1..=MOST_VECTORS).filter(|k| maps % k == 0).collect();
        let most = self.registers.most_rows();
        let whole = |n: i64| move |t: &i64| n % t == 0 || n > 4 * t;
        let columns: Vec<i64> = (1..=width.min(most)).filter(whole(width)).collect();
        let lines: Vec<i64> = (1..=height.min(MOST_LINES)).filter(whole(height)).collect();
        // Those of several groups share no pixel.
        let of_group = |k: &i64| c.maps_of_group % k == 0;
        let shared: Vec<i64> = blocks.iter().copied().filter(of_group).collect();
        let (k, x) = self.best(&shared, &columns, [maps, width]);
        // Short lines leave registers for several.
        let fits = |y: &&i64| height % **y == 0 && self.registers.fit(**y * x, k);
        let y = lines.iter().rev().find(fits);
        let y = y.copied().unwrap_or(1);
        let y = c.y.map(|_| d.choose("y", &lines, y));
        let x = d.choose("x", &columns, x);
        let k = d.choose("k", &blocks, k);
        let rows: Vec<DecidedPart> = y.iter().chain([&x]).map(|d| d.value()).collect();
        self.registers.limit(d, &rows, k.value(), 1);
        let fours = c.channels.extent / self.dot.terms;
        limit_unrolled(d, fours, &[&rows[..], &[k.value()]].concat(), MOST_UNROLLED);
        (y, x, k)
    }

    /// Vectors and rows with the most dot products a load, of tiles that leave
    /// little over at the ends: `whole` are all vectors and all rows.
    fn best(&self, vectors: &[i64], rows: &[i64], whole: [i64; 2]) -> (i64, i64) {
        let (mut best, mut most) = ((1, 1), 0.0);
        for v in vectors {
            for t in rows.iter().filter(|t| self.registers.fit(**t, *v)) {
                let gain = products_a_load(*t, *v);
                let gain = gain * wanted_part(whole[0], *v) * wanted_part(whole[1], *t);
                if gain > most {
                    (best, most) = ((*v, *t), gain);
                }
            }
        }
        best
    }

    /// Keeps the sums in registers; the block that takes them out.
    fn keep_in_registers(&self, d: &mut Draft) -> Written<BlockId> {
        self.keep(d, Scope::Register)
    }

    /// Keeps the sums in a place of a worker's own; the block that takes them out.
    fn keep(&self, d: &mut Draft, scope: Scope) -> Written<BlockId> {
        let main = self.main.block;
        match self.out {
            Some(out) => {
                d.set_scope(d.output(main), scope)?;
                Ok(out.block)
            }
            None => d.keep(main, scope),
        }
    }

    /// Shares the first `count` loops between threads; the innermost of
    /// `outer`, as it is now.
    fn share(&self, d: &mut Draft, outer: &[LoopId], count: usize) -> Written<LoopId> {
        let last = outer[outer.len() - 1];
        // A single loop is shared itself.
        let fused = d.parallel(&outer[..count.max(1)], self.target.threads)?;
        Ok(match fused {
            Some(fused) if outer.len() == 1 => fused,
            _ => last,
        })
    }

    /// One instruction for the lanes, copies for the loops round it; sums start
    /// before the loop `first`.
    fn instructions(
        &self,
        d: &mut Draft,
        lane: LoopId,
        unrolled: &[LoopId],
        first: LoopId,
    ) -> Written<()> {
        for l in unrolled.iter().rev() {
            d.unroll(*l)?;
        }
        let init = d.decompose_reduction(self.main.block, first)?;
        d.vectorize(d.innermost(init)?)?;
        d.tensorize(lane, &self.dot.intrinsic)
    }
}
