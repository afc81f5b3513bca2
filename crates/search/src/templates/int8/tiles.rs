//! Products by tiles, on targets that add a product of two whole tiles in one instruction (AMX):
//! rows (or pixels of a line) of sums by vectors of columns (or maps).
//!
//! The nest of one product is a loop over rows and one over steps of the sum round the dot
//! product of a vector, which `llvm` finds and replaces. The sums are in memory of the worker's
//! own outside of the loops over terms, and in tiles inside of them.

use super::{Convolution, DotSum};
use crate::draft::{Decided, DecidedPart, Draft, REST, Written, given};
use crate::templates::gemm::{Packing, Shape};
use ir::names::image as names;
use ir::{BlockId, BufferId, DType, Expr, ExprKind, LoopId, Program, Scope, TileDot};
use schedule::Arg;

/// How many times as many products tiles add as vectors do that dot products of a lane fill: 16
/// rows of sums by 16 lanes in 16 cycles, where two vectors of 16 lanes start in one.
pub const PEAK_FACTOR: f64 = 8.0;
/// Cycles that a product of tiles takes beside one for each row, or for each step of the sum if
/// there are more: bf16 tiles of 7 to 14 rows and 8 steps take 11 to 17 (a Xeon with AMX).
const START: i64 = 3;
/// Rows of a product from which tiles are the default. Fewer leave most of a tile unused, and
/// the weights' way from memory takes longest.
const FEW_ROWS: i64 = 4;
/// Steps of a sum from which tiles are offered: of fewer most of a tile is unused.
const FEWEST_STEPS: i64 = 4;

/// Cycles in which a tile of 16 pixels is copied: an estimate from bandwidths.
const COPY: i64 = 100;
/// Maps for which a copy of an image pays that fills tiles: half of the products less save 16 cycles for
/// each 16 maps. Not measured apart.
const MANY_MAPS: i64 = 256;

/// How many times fewer cycles all pixels of an image together have to take than lines one by one:
/// the sums of all pixels wait in memory. Chosen by hand.
const SHORT_LINES: f64 = 1.2;
/// Bytes of the sums of an image's pixels that stay in the first-level cache beside the factors. Chosen
/// by hand.
const SUMS: i64 = 16 << 10;

/// Pairs of tiles of rows whose sums wait in memory, at most: of 32 columns, 32 KiB. Chosen by hand.
const MOST_GROUPS: i64 = 8;
/// Steps of a part of a panel: of 32 columns, 16 KiB. Chosen by hand: loops in C with parts of 64 to 256 steps
/// differ by a tenth.
const PART: i64 = 128;

/// The order of the loops of a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Panels of columns outside tiles of rows.
    Columns,
    Rows,
    /// As columns, but for all rows a part of the terms after the other: it stays in the
    /// first-level cache.
    Parts,
}

impl Order {
    pub fn word(self) -> &'static str {
        match self {
            Order::Columns => "columns",
            Order::Rows => "rows",
            Order::Parts => "parts",
        }
    }
}

/// How pixels become rows of tiles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Pixels of a line, of the image as it is.
    Lines,
    /// Of a copy with borders, in which the channels of a full tile follow each other.
    CopiedLines,
    /// Pixels of all lines one after the other, of an image that has nothing between them.
    Image,
    /// The same, of a copy that holds what each pixel of the result reads.
    Gathered,
}

impl Rows {
    /// Whether maps may be outside pixels or inside.
    pub fn has_orders(self) -> bool {
        matches!(self, Rows::Lines | Rows::CopiedLines)
    }

    pub fn word(self) -> &'static str {
        match self {
            Rows::Lines => "",
            Rows::CopiedLines => ".copied",
            Rows::Image => ".image",
            Rows::Gathered => ".gathered",
        }
    }
}

pub struct Tiles<'a> {
    sum: &'a DotSum<'a>,
    dot: TileDot,
}

impl<'a> DotSum<'a> {
    /// The same sum by tiles, if the target has them.
    pub fn tiles(&'a self) -> Option<Tiles<'a>> {
        let dot = self.target.tile_dot?;
        (self.lanes() == dot.lanes()).then_some(Tiles { sum: self, dot })
    }
}

impl Tiles<'_> {
    /// Whether a product has rows and steps enough.
    pub fn suit_product(&self, s: &Shape) -> bool {
        s.m() >= FEW_ROWS && self.steps(s.k()) >= FEWEST_STEPS
    }

    /// Whether a convolution has pixels in a line, and channels in a block, enough.
    pub fn suit_convolution(&self, c: &Convolution) -> bool {
        let steps = self.block_steps(c) * self.taps_in_tile(c);
        c.x.extent >= FEW_ROWS && (FEWEST_STEPS..=self.dot.rows()).contains(&steps)
    }

    /// Steps of the channels of a block.
    fn block_steps(&self, c: &Convolution) -> i64 {
        c.channels.extent / self.sum.dot.terms
    }

    /// Taps of a line whose steps one tile takes, if they follow each other and the image has few
    /// channels: the most that fit and divide all; else one.
    fn taps_in_tile(&self, c: &Convolution) -> i64 {
        let taps = c.neighbours.filter(|_| c.channel_blocks.extent == 1);
        let taps = taps.unwrap_or(1);
        let fit = |n: &i64| taps % n == 0 && n * self.block_steps(c) <= self.dot.rows();
        (1..=taps).rev().find(fit).unwrap_or(1)
    }

    /// Steps of a tile of the right side: the most that divide those of the sum.
    fn steps(&self, k: i64) -> i64 {
        let all = k / self.sum.dot.terms;
        let divides = |s: &i64| all % s == 0;
        let most = self.dot.rows().min(all);
        (1..=most).rev().find(divides).unwrap_or(1)
    }

    /// Rows that a tile may have, where there are `n`. A single row left over is no tile.
    fn row_options(&self, n: i64) -> Vec<i64> {
        let all = 2..=self.dot.rows().min(n);
        all.filter(|rows| n % rows != 1).collect()
    }

    /// Rows of a tile to begin with, where there are `n` and a tile has `steps` steps: those that
    /// take the fewest cycles.
    fn rows(&self, n: i64, steps: i64) -> i64 {
        let cycles = |rows: &i64| {
            let tiles = (n + rows - 1) / rows;
            (tiles * (START + steps.max(*rows)), n % rows)
        };
        let options = self.row_options(n).into_iter().rev();
        options.min_by_key(cycles).unwrap_or(1)
    }

    /// Tiles of rows by tiles of columns that the sums are kept in, where there are so many at most:
    /// as square as can be, since each loads one tile for a row and one for a column.
    fn sums(&self, rows: i64, columns: i64) -> (i64, i64) {
        let all = [(2, 2), (1, 4), (4, 1), (1, 3), (3, 1), (1, 2), (2, 1)];
        let fit = |(r, c): &(i64, i64)| *r <= rows && *c <= columns;
        all.into_iter().find(fit).unwrap_or((1, 1))
    }

    /// Lets a sketch propose only as many sums as tiles hold beside one of each side.
    pub fn limit(&self, d: &mut Draft, rows: &[DecidedPart], columns: DecidedPart, each: i64) {
        let sums = [rows, &[columns]].concat();
        d.limit("tiles", &[(1, &sums)], (self.dot.tiles() - 2) * each);
    }

    /// Orders of the loops of a product, the likely best first. Long panels of columns pass through the
    /// first-level cache once for each tile of rows, and parts of them stay.
    pub fn orders(&self, s: &Shape) -> Vec<Order> {
        let steps = s.k() / self.sum.dot.terms;
        let panel = 4 * steps * 2 * self.sum.lanes();
        let rows = self.rows(s.m(), self.steps(s.k()));
        let is_long = panel > self.sum.target.l1_bytes as i64 / 2;
        match is_long && s.m() > 2 * 2 * rows {
            true => vec![Order::Parts, Order::Columns, Order::Rows],
            false => vec![Order::Columns, Order::Rows, Order::Parts],
        }
    }

    /// Panels of columns outside tiles of rows, or inside, or parts of their terms outside rows.
    pub fn write_product(
        &self,
        d: &mut Draft,
        s: &Shape,
        packing: Packing,
        order: Order,
    ) -> Written<()> {
        let of = self.sum;
        let lanes = of.lanes();
        let Some(m) = &s.rows else {
            return Err(d.missing("the product has no rows".into()));
        };
        let tile = self.product_tile(d, s, m.extent);
        let [columns, rows, row_tiles, steps] = tile.map(Decided::value);
        let result = of.keep(d, Scope::Local)?;
        d.pad(s.columns.id, columns)?;
        let fours = packing.fours(columns, of.dot.terms);
        let copier = d.pack(s.right, &fours.0, &fours.1)?;
        let [n0, panel] = d.split(s.columns.id, [REST, columns.into()])?;
        let [vectors, lane] = d.split(panel, [REST, given(lanes)])?;
        let [k0, term] = d.split(s.terms.id, [REST, given(of.dot.terms)])?;
        let [first, step] = d.split(k0, [REST, steps.into()])?;
        let [m0, tile, row] = d.split(m.id, [REST, row_tiles.into(), rows.into()])?;
        let batch: Vec<LoopId> = s.batch.iter().map(|l| l.id).collect();
        let inner = [tile, vectors, row, step, lane, term];
        let (place, init, groups) = match order {
            Order::Columns | Order::Rows => {
                let outer = match order {
                    Order::Columns => [&batch[..], &[n0, m0]].concat(),
                    _ => [&batch[..], &[m0, n0]].concat(),
                };
                d.reorder(&[&outer[..], &[first], &inner].concat())?;
                (of.share(d, &outer, outer.len() - 1)?, first, m0)
            }
            Order::Parts => {
                let [block, part] = self.parts(d, s);
                let [blocks, m0] = d.split(m0, [REST, block.value().into()])?;
                let [parts, first] = d.split(first, [REST, part.value().into()])?;
                let outer = [&batch[..], &[blocks, n0]].concat();
                d.reorder(&[&outer[..], &[parts, m0, first], &inner].concat())?;
                let shared = d.parallel(&outer, of.target.threads)?;
                (shared.unwrap_or(n0), parts, m0)
            }
        };
        let own = d.reverse_compute_at(result, place)?;
        let last = of.main.spatial.len() - 1;
        let [vectors_out, lanes_out] = d.split(own[last], [REST, given(lanes)])?;
        d.vectorize(lanes_out)?;
        d.unroll(vectors_out)?;
        of.instructions(d, lane, &[tile, vectors], init)?;
        if packing.each_call {
            of.pack_each_call(d, packing, copier)?;
        }
        d.run_parallel()?;
        d.attempt_partition(groups);
        Ok(())
    }

    /// Columns of a panel, rows of a tile, tiles of rows, and steps of a tile.
    fn product_tile(&self, d: &mut Draft, s: &Shape, m: i64) -> [Decided; 4] {
        let lanes = self.sum.lanes();
        let rows = self.rows(m, self.steps(s.k()));
        let vectors = (s.n() + lanes - 1) / lanes;
        let (r, v) = self.sums((m + rows - 1) / rows, vectors);
        let steps = self.choose_steps(d, "steps", s);
        let rows = d.choose("rows", &self.row_options(m), rows);
        let tiles = d.choose("row_tiles", &[1, 2, 3, 4], r);
        let widths = (1..=4).filter(|w| *w <= vectors).map(|w| w * lanes);
        let columns = d.choose("columns", &widths.collect::<Vec<i64>>(), v * lanes);
        self.limit(d, &[tiles.value()], columns.value(), lanes);
        [columns, rows, tiles, steps]
    }

    /// Steps of a tile of a product.
    pub fn choose_steps(&self, d: &mut Draft, name: &str, s: &Shape) -> Decided {
        let all = s.k() / self.sum.dot.terms;
        let divides = |n: &i64| all % n == 0 && *n >= FEWEST_STEPS;
        let options: Vec<i64> = (1..=self.dot.rows()).filter(divides).collect();
        match options.is_empty() {
            true => d.choose(name, &[1], 1),
            false => d.choose(name, &options, self.steps(s.k())),
        }
    }

    /// Rows of a tile, and tiles of rows.
    pub fn choose_rows(&self, d: &mut Draft, s: &Shape) -> (Decided, Decided) {
        let rows = self.rows(s.m(), self.steps(s.k()));
        let (r, _) = self.sums((s.m() + rows - 1) / rows, 2);
        let rows = d.choose("rows", &self.row_options(s.m()), rows);
        (rows, d.choose("row_tiles", &[1, 2, 3, 4], r))
    }

    /// Groups of tiles of rows whose sums wait in memory, and tiles of steps of a part.
    fn parts(&self, d: &mut Draft, s: &Shape) -> [Decided; 2] {
        let steps = self.steps(s.k());
        let rows = 2 * self.rows(s.m(), steps);
        let groups = (s.m() + rows - 1) / rows;
        // Rows that are left over would be tested for in all blocks.
        let even = |n: &i64| groups % n == 0 && s.m() % rows == 0;
        let few: Vec<i64> = (MOST_GROUPS / 2..=MOST_GROUPS).filter(even).collect();
        let mut options = [few, vec![groups]].concat();
        options.dedup();
        let wanted = if groups <= MOST_GROUPS {
            groups
        } else {
            options[options.len().saturating_sub(2)]
        };
        let block = d.choose("block", &options, wanted);
        let all = s.k() / self.sum.dot.terms / steps;
        let options: Vec<i64> = (1..=all).filter(|p| all % p == 0).collect();
        let part = d.choose("part", &options, PART / steps);
        [block, part]
    }

    /// Blocks of channels that fill the steps of a tile, if an image is copied so that they follow
    /// each other at each pixel.
    pub fn grouped(&self, c: &Convolution) -> i64 {
        let most = self.dot.rows() * self.sum.dot.terms / c.channels.extent;
        let divides = |n: &i64| c.channel_blocks.extent % n == 0;
        (1..=most).rev().find(divides).unwrap_or(1)
    }

    /// Ways to make rows of pixels, the likely best first. Images that have a border are copied, and
    /// those whose channels are summed so often that full tiles gain more than the copy takes.
    /// Short lines fill a part of a tile only; all lines of an image fill all but the last.
    pub fn ways(&self, program: &Program, c: &Convolution) -> Vec<Rows> {
        let maps = c.maps_of_group * c.lane.extent;
        let has_border = guarded(program, self.sum.main.block, c.weights).is_some();
        let is_alone = !has_border && c.is_one_tap && !c.steps_over;
        let lines = match () {
            () if has_border => vec![Rows::CopiedLines],
            () if self.grouped(c) == 1 || c.steps_over => vec![Rows::Lines],
            () if maps >= MANY_MAPS && !self.is_far(program, c) => {
                vec![Rows::CopiedLines, Rows::Lines]
            }
            () => vec![Rows::Lines, Rows::CopiedLines],
        };
        let height = c.y.map_or(1, |y| y.extent);
        let pixels = height * c.x.extent;
        let sums = pixels * c.lane.extent * DType::F32.size() as i64;
        let image = match () {
            // Few channels fill tiles with the taps of a line.
            () if sums > SUMS || self.taps_in_tile(c) > 1 || c.y.is_none() => vec![],
            () if is_alone => vec![Rows::Image, Rows::Gathered],
            () => vec![Rows::Gathered],
        };
        let steps = self.block_steps(c);
        let in_lines = height * self.cycles(c.x.extent, steps * self.grouped(c));
        let in_image = self.cycles(pixels, steps * self.grouped(c));
        let saved = (in_lines - in_image) * c.maps_of_group;
        let is_saved = saved * self.dot.rows() > pixels * COPY;
        match in_image as f64 * SHORT_LINES < in_lines as f64 && (is_alone || is_saved) {
            true => [image, lines].concat(),
            false => [lines, image].concat(),
        }
    }

    /// Whether an image leaves the second-level cache: blocks of maps outside of pixels read it from
    /// beyond once for each block.
    pub fn is_far(&self, program: &Program, c: &Convolution) -> bool {
        let image = program.buffer(c.image);
        let elements: i64 = image.shape.iter().product();
        elements * image.dtype.size() as i64 > self.sum.target.l2_bytes as i64
    }

    /// Cycles of the fewest tiles that have so many rows.
    fn cycles(&self, rows: i64, steps: i64) -> i64 {
        let tile = self.rows(rows, steps);
        (rows + tile - 1) / tile * (START + steps.max(tile))
    }

    /// Blocks of maps outside pixels, or inside.
    pub fn write_convolution(
        &self,
        d: &mut Draft,
        c: &Convolution,
        (rows, maps_first): (Rows, bool),
    ) -> Written<()> {
        let groups = self.copy(d, c, rows)?;
        self.sum.pack_weights(d, c, groups)?;
        match rows {
            Rows::Lines | Rows::CopiedLines => self.write_lines(d, c, groups, maps_first),
            Rows::Image | Rows::Gathered => self.write_image(d, c, groups),
        }
    }

    /// Copies the image; blocks of channels that follow each other at each pixel.
    fn copy(&self, d: &mut Draft, c: &Convolution, rows: Rows) -> Written<i64> {
        let of = self.sum;
        if matches!(rows, Rows::Lines | Rows::Image) {
            return Ok(1);
        }
        let bordered = match guarded(d.program(), of.main.block, c.weights) {
            Some(image) => Some(of.surround(d, image)?),
            None => None,
        };
        if guarded(d.program(), of.main.block, c.weights).is_some() {
            return Err(d.missing("a copy of the image with its border leaves a test".into()));
        }
        let image = bordered.map_or(c.image, |copier| d.output(copier));
        let groups = self.grouped(c);
        // Images by blocks of channels, lines, pixels and the channels of a block.
        let group = [(1, Arg::Lit(groups))];
        let lanes = 3 + c.taps.len();
        let order = [&[0, 1], &(3..lanes).collect::<Vec<_>>()[..], &[2, lanes]].concat();
        match bordered {
            _ if rows == Rows::Gathered => self.gather(d, image, groups)?,
            Some(_) if groups > 1 => d.lay_out(image, &group, &order)?,
            Some(_) => {}
            None => {
                let copier = d.pack(image, &group, &order)?;
                let own = schedule::own_loops(d.program(), copier);
                of.share_image(d, &own)?;
            }
        }
        Ok(groups)
    }

    /// Copies what each pixel of the result reads: by groups of channels and taps, then pixels.
    fn gather(&self, d: &mut Draft, image: BufferId, groups: i64) -> Written<()> {
        let of = self.sum;
        let copier = d.reindex(of.main.block, image)?;
        let block = d.block(copier);
        let axes = block
            .iters
            .iter()
            .map(|i| d.program().var(i.var).name.clone());
        let axes: Vec<String> = axes.collect();
        let channels = names::CHANNEL_BLOCK.as_str();
        // A dimension that is split in two moves those behind it on by one.
        let split = axes.iter().position(|n| n == channels);
        let split = split.filter(|_| groups > 1);
        let at = |name: &str| {
            let found = axes.iter().position(|n| n == name);
            found.map(|at| at + usize::from(split.is_some_and(|split| at > split)))
        };
        let outer = [
            channels,
            names::TAP_ROW.as_str(),
            names::TAP_COLUMN.as_str(),
        ];
        let inner = [names::ROW.as_str(), names::COLUMN.as_str()];
        let last = [split.map(|at| at + 1), at(names::CHANNEL_LANE.as_str())];
        let wanted = outer.iter().chain(&inner).map(|n| at(n)).chain(last);
        let wanted: Vec<usize> = wanted.flatten().collect();
        let dims = axes.len() + usize::from(split.is_some());
        let mut order: Vec<usize> = (0..dims).filter(|d| !wanted.contains(d)).collect();
        order.extend(wanted);
        let tiles = split.map(|at| (at, Arg::Lit(groups)));
        d.lay_out(d.output(copier), tiles.as_slice(), &order)?;
        let own = schedule::own_loops(d.program(), copier);
        of.share_image(d, &own)
    }

    /// Tiles of pixels in a line, of one line or of several.
    fn write_lines(
        &self,
        d: &mut Draft,
        c: &Convolution,
        groups: i64,
        maps_first: bool,
    ) -> Written<()> {
        let of = self.sum;
        let (lines, [tiles, pixels, maps]) = self.tile(d, c, groups);
        let result = of.keep(d, Scope::Local)?;
        let [y0, y1] = c.split_lines(d, lines)?;
        let [x0, tile, x1] =
            d.split(c.x.id, [REST, tiles.value().into(), pixels.value().into()])?;
        let [k0, k1] = d.split(c.maps.id, [REST, maps.value().into()])?;
        let outer = c.outer([k0, x0], &y0, maps_first);
        let (sums, inner) = self.terms(d, c, groups)?;
        let unrolled = [&y1[..], &[tile, k1]].concat();
        d.reorder(&[&outer[..], &sums, &unrolled, &[x1], &inner].concat())?;
        of.share(d, &outer, outer.len() - 1)?;
        let own = d.reverse_compute_at(result, x0)?;
        d.vectorize(own[own.len() - 1])?;
        of.instructions(d, c.lane.id, &unrolled, sums[0])?;
        d.run_parallel()?;
        d.attempt_partition(x0);
        Ok(())
    }

    /// Tiles of pixels of all lines; the sums of all of them leave together.
    fn write_image(&self, d: &mut Draft, c: &Convolution, groups: i64) -> Written<()> {
        let of = self.sum;
        let Some(y) = c.y else {
            return Err(d.missing("the image has no lines".into()));
        };
        let count = y.extent * c.x.extent;
        let steps = groups * self.block_steps(c);
        let rows = self.rows(count, steps);
        let (r, k) = self.sums((count + rows - 1) / rows, c.maps_of_group);
        let rows = d.choose("rows", &self.row_options(count), rows);
        let tiles = d.choose("row_tiles", &[1, 2, 3, 4], r);
        let blocks: Vec<i64> = (1..=4).filter(|k| c.maps.extent % k == 0).collect();
        let maps = d.choose("k", &blocks, k);
        self.limit(d, &[tiles.value()], maps.value(), 1);
        let result = of.keep(d, Scope::Local)?;
        let [k0, k1] = d.split(c.maps.id, [REST, maps.value().into()])?;
        d.reorder(&[c.batch, k0, y.id, c.x.id, k1])?;
        let shared = d.parallel(&[c.batch, k0], of.target.threads)?;
        let own = d.reverse_compute_at(result, shared.unwrap_or(k0))?;
        d.vectorize(own[4])?;
        let pixels = d.fuse(y.id, c.x.id)?;
        let [p0, tile, p1] = d.split(pixels, [REST, tiles.value().into(), rows.value().into()])?;
        let (sums, inner) = self.terms(d, c, groups)?;
        let unrolled = [tile, k1];
        d.reorder(&[&[p0], &sums[..], &unrolled, &[p1], &inner].concat())?;
        of.instructions(d, c.lane.id, &unrolled, sums[0])?;
        d.run_parallel()?;
        d.attempt_partition(p0);
        Ok(())
    }

    /// The loops over groups of channels and taps, and those of a tile: the blocks of a group or
    /// the taps of a line, steps, lanes and the terms of a step.
    fn terms(
        &self,
        d: &mut Draft,
        c: &Convolution,
        groups: i64,
    ) -> Written<(Vec<LoopId>, [LoopId; 4])> {
        let [blocks, block] = d.split(c.channel_blocks.id, [REST, given(groups)])?;
        let [step, term] = d.split(c.channels.id, [REST, given(self.sum.dot.terms)])?;
        let [rows @ .., column] = &c.taps[..] else {
            return Err(d.missing("the convolution has no taps".into()));
        };
        Ok(match self.taps_in_tile(c) {
            1 => (
                [&[blocks], &c.taps[..]].concat(),
                [block, step, c.lane.id, term],
            ),
            taps => {
                let [column, tap] = d.split(*column, [REST, given(taps)])?;
                let sums = [&[blocks, block], rows, &[column]].concat();
                (sums, [tap, step, c.lane.id, term])
            }
        })
    }

    /// Lines, tiles of pixels in a line, their pixels, and blocks of maps.
    fn tile(&self, d: &mut Draft, c: &Convolution, groups: i64) -> (Option<Decided>, [Decided; 3]) {
        let [maps, width] = [c.maps, c.x].map(|l| l.extent);
        let height = c.y.map_or(1, |y| y.extent);
        let steps = groups * self.block_steps(c) * self.taps_in_tile(c);
        let pixels = self.rows(width, steps);
        let in_line = (width + pixels - 1) / pixels;
        let (rows, k) = self.sums(
            in_line.max(if height % 2 == 0 { 2 } else { 1 }),
            c.maps_of_group,
        );
        let (tiles, lines) = match in_line % rows {
            0 => (rows, 1),
            _ => (1, rows),
        };
        let blocks: Vec<i64> = (1..=4).filter(|k| maps % k == 0).collect();
        let heights: Vec<i64> = (1..=4).filter(|t| height % t == 0).collect();
        let lines = c.y.map(|_| d.choose("y", &heights, lines));
        let tiles = d.choose("x_tiles", &[1, 2, 3, 4], tiles);
        let pixels = d.choose("x", &self.row_options(width), pixels);
        let maps = d.choose("k", &blocks, k);
        let rows: Vec<DecidedPart> = lines.iter().chain([&tiles]).map(|d| d.value()).collect();
        self.limit(d, &rows, maps.value(), 1);
        (lines, [tiles, pixels, maps])
    }
}

/// The buffer other than the weights that a product reads under a condition.
fn guarded(program: &Program, block: BlockId, weights: BufferId) -> Option<BufferId> {
    fn of(e: &Expr, inside: bool, weights: BufferId) -> Option<BufferId> {
        let of = |e, inside| of(e, inside, weights);
        match e.kind() {
            ExprKind::Load(b, _) => (inside && *b != weights).then_some(*b),
            ExprKind::Cast(_, x) => of(x, inside),
            ExprKind::Select(_, x, _) => of(x, true),
            ExprKind::Binary(_, a, b) => of(a, inside).or_else(|| of(b, inside)),
            _ => None,
        }
    }
    of(&program.block(block).writes[0].value, false, weights)
}
