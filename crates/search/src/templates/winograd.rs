//! Convolutions by minimal filtering, on blocked layouts.
//!
//! Two forms. *Fused*: for a block of tiles at a time, data are transformed,
//! multiplied and transformed back while they are in the core's own cache;
//! blocks of tiles run in parallel. *Staged*: each transform is a pass over
//! the whole image, so that transformed weights are read once a call; for
//! small images with many channels, whose weights are most of the traffic.
//!
//! Transformed weights are up to four times as many as those of the program. On a small
//! image with many channels the memory takes longer to bring them than the core to
//! multiply. So tiles are sorted by what products and weights take.

use super::blocked::has_constant_weights;
use super::registers::{
    IN_FLIGHT, ImageTile, LARGE_TILE, MOST_UNROLLED, Registers, largest_divisor, limit_unrolled,
};
use super::{Templates, main_sum, others};
use crate::draft::{Decided, DecidedPart, Draft, REST, Written, given};
use crate::nests::Nest;
use crate::rates::{EXPOSED, SHARE, STARTS_A_CYCLE, STREAMED, bytes_a_cycle};
use ir::names::{AxisName, OUT, image};
use ir::{BlockId, BufferId, CpuTarget, DType, LoopId, Program, Scope, Vendor};
use schedule::Arg;

/// Outputs of a tile each way: larger ones multiply less and round more (Lavin and Gray
/// 2015, section 4.3), so those of 6 come last. See `schedule`'s step.
const TILES: [i64; 3] = [4, 2, 6];

/// Tiles of six outputs are first where they take less than this part of the cycles of the others: their transforms
/// are longer, and they round more. Chosen by hand.
const GAIN_OF_SIX: f64 = 0.85;

/// Most blocks of maps of a tile in registers.
const MOST_MAPS: i64 = 4;

/// Fewest pixels of all images for which it pays to transform weights that are no constants: a transform writes and
/// reads 36 numbers for 9, and saves about 7 multiply-adds a pixel. Chosen by hand: with 512 channels and maps, 1024
/// pixels (64 images of 4x4) take 15.3 ms with tiles of 4 and 6.9 ms in the plain form, 1568 (2 of 28x28) take 22.6 ms
/// and 30.2 ms (Zen 5; two threads and one).
const LEAST_PIXELS: i64 = 1100;

/// Cycles in which a loop that threads share begins and ends: an order of magnitude.
const FORK: f64 = 5000.0;

/// The staged form is first where threads take less than this part of the fused form's time. Chosen by hand.
const SURELY: f64 = 0.9;

/// Sketches for a program whose `main` is a convolution of stride 1 that
/// writes [n, channel block, y, x, channel], the likely best first; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Some((main, sizes)) = convolution(all, target) else {
        return;
    };
    for tile in sizes.tiles(target) {
        if !has_form(program, main, tile) {
            continue;
        }
        let form = Form {
            main: main.block,
            out: all
                .iter()
                .find(|n| n.is(OUT) && n.spatial.len() == 5)
                .map(|n| n.block),
            target,
            sizes,
            tile,
        };
        let order = if form.is_staged() {
            ["staged", "fused"]
        } else {
            ["fused", "staged"]
        };
        for name in order {
            found.write(Draft::new(format!("winograd{tile}.{name}"), program), |d| {
                match name {
                    "fused" => form.fused(d)?,
                    _ => form.staged(d)?,
                }
                let handled: Vec<BlockId> =
                    [Some(form.main), form.out].into_iter().flatten().collect();
                others(d, all, &handled, target)
            });
        }
    }
}

/// Whether the step gives a sum a form with such tiles: it knows which sums have one.
pub(super) fn has_form(program: &Program, main: &Nest, tile: i64) -> bool {
    let step = schedule::Step::Winograd {
        block: main.name.clone(),
        tile: Arg::Lit(tile),
    };
    step.apply(&mut program.clone(), &[]).is_ok()
}

/// Whether products and weights of some tile take less time than those of the plain form.
pub fn is_worth_while(all: &[Nest], target: &CpuTarget) -> bool {
    convolution(all, target)
        .is_some_and(|(_, s)| s.cycles(s.tiles(target)[0], target) < s.cycles(1, target))
}

/// Whether each call transforms weights for few pixels: without a constant there is no `prepare`.
pub fn has_few_pixels(program: &Program, all: &[Nest], target: &CpuTarget) -> bool {
    convolution(all, target).is_some_and(|(main, s)| {
        let pixels = s.images * s.rows * s.columns;
        !has_constant_weights(program, main) && pixels < LEAST_PIXELS
    })
}

/// The convolution on blocked layouts that a program is about.
fn convolution<'a>(all: &'a [Nest], target: &CpuTarget) -> Option<(&'a Nest, Sizes)> {
    let lanes = target.lanes(DType::F32);
    let blocked = |n: &&Nest| n.spatial.len() == 5 && n.spatial[4].extent == lanes;
    let main = main_sum(all).filter(blocked)?;
    Some((main, Sizes::of(main)?))
}

/// The extents of a convolution's axes.
#[derive(Clone, Copy)]
struct Sizes {
    images: i64,
    rows: i64,
    columns: i64,
    map_blocks: i64,
    map_lanes: i64,
    channel_blocks: i64,
    channel_lanes: i64,
    taps: [i64; 2],
}

impl Sizes {
    fn of(main: &Nest) -> Option<Sizes> {
        Some(Sizes {
            images: main.extent(image::BATCH)?,
            rows: main.extent(image::ROW)?,
            columns: main.extent(image::COLUMN)?,
            map_blocks: main.extent(image::MAP_BLOCK)?,
            map_lanes: main.extent(image::MAP_LANE)?,
            channel_blocks: main.extent(image::CHANNEL_BLOCK)?,
            channel_lanes: main.extent(image::CHANNEL_LANE)?,
            taps: [
                main.extent(image::TAP_ROW)?,
                main.extent(image::TAP_COLUMN)?,
            ],
        })
    }

    /// [`TILES`], but the cheaper one of the first two in front, or the largest where it gains enough.
    fn tiles(&self, target: &CpuTarget) -> [i64; 3] {
        let [four, two, six] = TILES;
        let cycles = |tile: i64| self.cycles(tile, target);
        let by_cost = match cycles(two) < cycles(four) {
            true => [two, four, six],
            false => TILES,
        };
        match cycles(six) < GAIN_OF_SIX * cycles(by_cost[0]) {
            true => [six, by_cost[0], by_cost[1]],
            false => by_cost,
        }
    }

    /// Cycles of the products with tiles of so many outputs each way, and of their weights, which come
    /// from memory as in a model that is larger than the caches. One output each way is the plain
    /// form: it fetches weights ahead, and its products hide them unless each broadcast is an
    /// instruction of its own. Transforms of data are left out:
    /// with many channels they are a small part. Example: 512 channels of 7x7 take 0.91 ms with
    /// tiles of 2 and 0.73 ms in the plain form (Zen 5, weights from memory, LLVM 22.1.8).
    fn cycles(&self, tile: i64, target: &CpuTarget) -> f64 {
        let [rows, columns] = self.tile_counts(tile);
        let weights = self.weights(tile);
        let products = weights * self.images * rows * columns;
        let a_cycle = STARTS_A_CYCLE * self.map_lanes * i64::from(target.threads);
        let slowed = if tile == 1 {
            1.0
        } else {
            self.slowed(tile, target)
        };
        let computed = products as f64 / a_cycle as f64 * slowed;
        let brought = (weights * DType::F32.size() as i64) as f64 / STREAMED;
        match tile {
            1 if target.isa.has_broadcast_operands() => computed.max(brought),
            _ => computed + brought,
        }
    }

    /// How many times as long the products take as multiply-adds that follow each other without a pause: a tile in
    /// registers with few sums waits for loads or for its own sums. Tiles divide, so a prime number of them leaves one.
    fn slowed(&self, tile: i64, target: &CpuTarget) -> f64 {
        let inner = self.register_tile(tile, target);
        let rows = inner.lines * inner.columns;
        let maps = largest_divisor(self.map_blocks, inner.maps.min(MOST_MAPS));
        let busy = (rows * maps).max(rows + maps).max(IN_FLIGHT);
        busy as f64 / (rows * maps) as f64
    }

    /// Transformed weights for tiles of so many outputs each way.
    fn weights(&self, tile: i64) -> i64 {
        let taps: i64 = self.taps.iter().map(|r| r + tile - 1).product();
        let maps = self.map_blocks * self.map_lanes;
        taps * maps * self.channel_blocks * self.channel_lanes
    }

    /// Tiles of so many outputs each way that rows and columns have.
    fn tile_counts(&self, tile: i64) -> [i64; 2] {
        [self.rows, self.columns].map(|n| (n + tile - 1) / tile)
    }

    /// Two blocks of maps share each broadcast where they divide. With 64 channels of 56x56, seven tiles by
    /// two blocks take 0.285 ms, 14 by one 0.325 and 14 by two 0.309 (the best of each, Zen 5, LLVM 22.1.8). On a Xeon
    /// with AMX seven by two take 0.75 ms there, 14 by two 0.54.
    fn register_tile(&self, tile: i64, target: &CpuTarget) -> ImageTile {
        let registers = Registers::of(target);
        let [rows, columns] = self.tile_counts(tile);
        let wide = ImageTile::dividing(rows, columns, registers);
        let large = target.vendor == Some(Vendor::Intel) && registers.fit(LARGE_TILE / 2, 2);
        let half = if large { LARGE_TILE } else { registers.sums() } / 2;
        let columns = largest_divisor(columns, half);
        let lines = largest_divisor(rows, (half / columns).max(1));
        let shared = ImageTile {
            lines,
            columns,
            maps: 2,
        };
        match self.map_blocks % 2 == 0 && 2 * lines * columns >= IN_FLIGHT {
            true => shared,
            false => wide,
        }
    }
}

/// A convolution in the form of minimal filtering, for one size of tiles.
struct Form<'a> {
    main: BlockId,
    out: Option<BlockId>,
    target: &'a CpuTarget,
    sizes: Sizes,
    tile: i64,
}

/// A block that the step makes, and the buffer that it computes.
#[derive(Clone, Copy)]
pub(super) struct MadeBlock {
    pub block: BlockId,
    pub result: BufferId,
}

/// The blocks that the step makes, by the names in its documentation.
pub(super) struct MadeBlocks {
    pub g: MadeBlock,
    pub u: MadeBlock,
    pub d: MadeBlock,
    pub b: MadeBlock,
    pub v: MadeBlock,
    pub m: MadeBlock,
    pub p: MadeBlock,
}

impl MadeBlocks {
    pub fn of(d: &mut Draft, main: BlockId, tile: i64) -> Written<MadeBlocks> {
        let blocks = d.winograd(main, tile)?;
        let [g, u, data, b, v, m, p] = blocks.map(|block| MadeBlock {
            block,
            result: d.output(block),
        });
        Ok(MadeBlocks {
            g,
            u,
            d: data,
            b,
            v,
            m,
            p,
        })
    }

    /// The output transform, a tile and a block of maps at a time; `x` and `lane` are the loops of what leaves the
    /// registers.
    pub fn leave(&self, d: &mut Draft, main: BlockId, x: LoopId, lane: LoopId) -> Written<()> {
        transform(d, self.p, F, [E, IN_TILE_ROW], MAP_LANE)?;
        d.set_scope(self.p.result, Scope::Local)?;
        let [f, column, ki] = d.along(main, [F, image::COLUMN.as_str(), MAP_LANE])?;
        d.reorder(&[f, column, ki])?;
        d.vectorize(ki)?;
        d.unroll(f)?;
        d.unroll(column)?;
        d.decompose_reduction(main, f)?;
        d.unroll(x)?;
        d.vectorize(lane)
    }
}

/// Decisions of the register tile of the products.
struct ProductTile {
    /// Tiles along y and x.
    tiles: [DecidedPart; 2],
    /// Blocks of output channels.
    maps: Decided,
    unroll: Decided,
}

/// The loops of the outputs, as they leave the registers.
struct Outputs {
    batch: LoopId,
    maps: LoopId,
    y: LoopId,
    x: LoopId,
    lane: LoopId,
}

/// Axes that the step names.
const E: &str = "e";
const F: &str = "f";
const I: &str = "i";
const J: &str = "j";
const TILE_ROW: &str = "ty";
const TILE_COLUMN: &str = "tx";
const IN_TILE_ROW: &str = "dy";
const BATCH: &str = image::BATCH.as_str();
const MAP_BLOCK: &str = image::MAP_BLOCK.as_str();
const MAP_LANE: &str = image::MAP_LANE.as_str();
const CHANNEL_BLOCK: &str = image::CHANNEL_BLOCK.as_str();
const CHANNEL_LANE: &str = image::CHANNEL_LANE.as_str();
const TAP_ROW: &str = image::TAP_ROW.as_str();
const TAP_COLUMN: &str = image::TAP_COLUMN.as_str();

impl Form<'_> {
    /// Tiles of rows and of columns.
    fn tile_counts(&self) -> [i64; 2] {
        self.sizes.tile_counts(self.tile)
    }

    fn registers(&self) -> Registers {
        Registers::of(self.target)
    }

    fn register_tile(&self) -> ImageTile {
        self.sizes.register_tile(self.tile, self.target)
    }

    /// `tiles` are the factors of the tiles in registers.
    fn decide(&self, d: &mut Draft, tiles: [DecidedPart; 2], wanted_maps: i64) -> ProductTile {
        let maps = d.tile("k", self.sizes.map_blocks, MOST_MAPS, wanted_maps);
        let fits = |u: &i64| self.sizes.channel_lanes % u == 0;
        let options: Vec<i64> = [1, 2, 4, 8].into_iter().filter(fits).collect();
        let unroll = d.choose("unroll_ci", &options, 4);
        self.registers().limit(d, &tiles, maps.part(1), 1);
        let body = [tiles[0], tiles[1], maps.part(1), unroll.value()];
        limit_unrolled(d, 1, &body, MOST_UNROLLED);
        ProductTile {
            tiles,
            maps,
            unroll,
        }
    }

    fn fused(&self, d: &mut Draft) -> Written<()> {
        let [rows, columns] = self.tile_counts();
        let inner = self.register_tile();
        let (lines, width) = (inner.lines, inner.columns);
        let shape = self.block_of_tiles(rows / lines, columns / width, inner);
        let y = d.tiles("y", rows, &[rows / lines / shape.0, shape.0, lines], 4);
        let wanted = [columns / width / shape.1, shape.1, width];
        let x = d.tiles("x", columns, &wanted, self.registers().most_rows());
        let share = self.most_bytes();
        let default = shape.0 * lines * shape.1 * width;
        let block = [y.part(1), y.part(2), x.part(1), x.part(2)];
        d.limit(
            "bytes of transformed tiles",
            &[(self.tile_bytes(), &block)],
            share.max(default * self.tile_bytes()),
        );
        let tile = self.decide(d, [y.part(2), x.part(2)], inner.maps);
        let (stages, o) = self.begin(d)?;
        let m = given(self.tile);
        let [y0, y1, y2, y3] = d.split(o.y, [REST, y.part(1).into(), y.part(2).into(), m])?;
        let [x0, x1, x2, x3] = d.split(o.x, [REST, x.part(1).into(), x.part(2).into(), m])?;
        d.reorder(&[o.batch, y0, x0, o.maps, y1, y2, x1, x2, y3, x3, o.lane])?;
        let blocks = d.parallel(&[o.batch, y0, x0], self.target.threads)?;
        let blocks = blocks.unwrap_or(x0);
        d.compute_at(self.main, y3)?;
        d.compute_at(stages.p.block, x2)?;
        d.compute_at(stages.m.block, blocks)?;
        d.compute_at(stages.v.block, blocks)?;
        self.products(d, &stages, &tile)?;
        self.data(d, &stages, [BATCH, TILE_ROW, CHANNEL_BLOCK, TILE_COLUMN])?;
        stages.leave(d, self.main, x3, o.lane)?;
        d.set_scope(stages.m.result, Scope::Local)?;
        d.set_scope(stages.v.result, Scope::Local)
    }

    fn staged(&self, d: &mut Draft) -> Written<()> {
        let [rows, columns] = self.tile_counts();
        let inner = self.register_tile();
        let y = d.tiles("y", rows, &[rows / inner.lines, inner.lines], 4);
        let wanted = [columns / inner.columns, inner.columns];
        let x = d.tiles("x", columns, &wanted, self.registers().most_rows());
        let tile = self.decide(d, [y.part(1), x.part(1)], inner.maps);
        let (stages, o) = self.begin(d)?;
        let [y0, y1] = d.split(o.y, [REST, given(self.tile)])?;
        let [x0, x1] = d.split(o.x, [REST, given(self.tile)])?;
        d.reorder(&[o.batch, o.maps, y0, x0, y1, x1, o.lane])?;
        let threads = self.target.threads;
        d.parallel(&[o.batch, o.maps, y0], threads)?;
        d.compute_at(self.main, y1)?;
        d.compute_at(stages.p.block, x0)?;
        let products = self.products(d, &stages, &tile)?;
        let outer = [BATCH, CHANNEL_BLOCK, TILE_ROW, TILE_COLUMN];
        let data = self.data(d, &stages, outer)?;
        stages.leave(d, self.main, x1, o.lane)?;
        d.parallel(&products, threads)?;
        d.parallel(&data[..3], threads)?;
        Ok(())
    }

    /// Whether a block of tiles is too small to read all weights for, or threads would wait for blocks and weights.
    fn is_staged(&self) -> bool {
        let [rows, columns] = self.tile_counts();
        let inner = self.register_tile();
        let few = rows * columns <= 2 * self.registers().sums();
        let (lines, outer) =
            self.block_of_tiles(rows / inner.lines, columns / inner.columns, inner);
        let fused = self.fused_cycles(lines * outer * inner.lines * inner.columns);
        few || self.target.threads > 1 && self.staged_cycles() < SURELY * fused
    }

    /// Of one tile's transformed data and products, over all channels.
    fn tile_bytes(&self) -> i64 {
        let s = &self.sizes;
        let taps = s.taps.map(|r| r + self.tile - 1);
        let channels = s.map_lanes * (s.map_blocks + s.channel_blocks);
        taps[0] * taps[1] * channels * DType::F32.size() as i64
    }

    /// Of transformed tiles that a block may have: beyond the last level they would come from memory twice.
    fn most_bytes(&self) -> i64 {
        self.target.llc_bytes as i64 / i64::from(self.target.threads.max(1))
    }

    /// Rows and columns of register tiles of a block with which the fused form takes the least time; of equal ones the
    /// largest.
    fn block_of_tiles(&self, rows: i64, columns: i64, inner: ImageTile) -> (i64, i64) {
        let divisors = |n: i64| (1..=n).filter(move |d| n % d == 0);
        let all =
            divisors(columns).flat_map(|outer| divisors(rows).map(move |lines| (lines, outer)));
        let tiles = |&(lines, outer): &(i64, i64)| lines * outer * inner.lines * inner.columns;
        let all = all.filter(|b| tiles(b) * self.tile_bytes() <= self.most_bytes());
        let cycles = |b: &(i64, i64)| self.fused_cycles(tiles(b));
        let larger = |a: &(i64, i64), b: &(i64, i64)| (b.0 * b.1, b.1).cmp(&(a.0 * a.1, a.1));
        let best = all.min_by(|a, b| cycles(a).total_cmp(&cycles(b)).then(larger(a, b)));
        best.unwrap_or((1, 1))
    }

    /// Cycles of the thread with the most blocks of so many tiles: of products, and of what comes from beyond its
    /// own cache. Each block reads all weights. What it transforms and multiplies is written and read again where half
    /// of that cache does not hold it.
    fn fused_cycles(&self, tiles: i64) -> f64 {
        let [rows, columns] = self.tile_counts();
        let blocks = self.sizes.images * rows * columns / tiles;
        let threads = i64::from(self.target.threads.max(1));
        let own = ((blocks + threads - 1) / threads) as f64;
        let (weights, block) = (self.weight_bytes(), (tiles * self.tile_bytes()) as f64);
        let l2 = self.target.l2_bytes as f64;
        let again = if block <= l2 / 2.0 { 0.0 } else { 2.0 * block };
        let held = weights + block <= SHARE * l2;
        let brought = weights / self.rate(if held { weights } else { weights + l2 });
        own * (self.computed(tiles) + EXPOSED * (brought + again / self.rate(block + l2)))
    }

    /// The same of the staged form, whose threads share the weights, and take what others transformed.
    fn staged_cycles(&self) -> f64 {
        let [rows, columns] = self.tile_counts();
        let tiles = self.sizes.images * rows * columns;
        let threads = f64::from(self.target.threads.max(1));
        let again = 2.0 * (tiles * self.tile_bytes()) as f64;
        let l2 = self.target.l2_bytes as f64;
        let moved = (self.weight_bytes() + again) / self.rate(again + l2);
        let loops = if threads > 1.0 { 2.0 * FORK } else { 0.0 };
        (self.computed(tiles) + EXPOSED * moved) / threads + loops
    }

    /// Cycles of the products of so many tiles.
    fn computed(&self, tiles: i64) -> f64 {
        let products = self.sizes.weights(self.tile) * tiles;
        products as f64 / (STARTS_A_CYCLE * self.sizes.map_lanes) as f64
    }

    fn weight_bytes(&self) -> f64 {
        (self.sizes.weights(self.tile) * DType::F32.size() as i64) as f64
    }

    fn rate(&self, bytes: f64) -> f64 {
        bytes_a_cycle(bytes, SHARE, self.target)
    }

    /// Outputs in registers until the last block takes them.
    fn begin(&self, d: &mut Draft) -> Written<(MadeBlocks, Outputs)> {
        let stages = MadeBlocks::of(d, self.main, self.tile)?;
        let last = match self.out {
            Some(out) => {
                d.set_scope(d.output(self.main), Scope::Register)?;
                out
            }
            None => d.keep_in_registers(self.main)?,
        };
        let [batch, maps, y, x, lane] = d.along(last, image::BLOCKED_MAPS.map(AxisName::as_str))?;
        let outputs = Outputs {
            batch,
            maps,
            y,
            x,
            lane,
        };
        Ok((stages, outputs))
    }

    /// Products of transformed data and weights: a matrix product for every
    /// element of the tiles. The loops over all but what is summed and the tile
    /// in registers, outermost first.
    fn products(&self, d: &mut Draft, s: &MadeBlocks, t: &ProductTile) -> Written<[LoopId; 4]> {
        let weights = [
            MAP_BLOCK,
            CHANNEL_BLOCK,
            CHANNEL_LANE,
            E,
            TAP_COLUMN,
            F,
            MAP_LANE,
        ];
        let weights = d.along(s.u.block, weights)?;
        d.reorder(&weights)?;
        d.compute_at(s.g.block, weights[2])?;
        transform(d, s.u, E, [TAP_COLUMN, F], MAP_LANE)?;
        transform(d, s.g, TAP_COLUMN, [TAP_ROW, E], MAP_LANE)?;
        d.set_scope(s.g.result, Scope::Local)?;
        let maps = t.maps.part(1);
        // Weights [e, f, panel of maps, co, ci, vector, lane].
        let order = [0, 1, 4, 2, 3, 5, 6];
        d.lay_out(s.u.result, &[(4, maps.into())], &order)?;
        let own = [
            E,
            F,
            BATCH,
            MAP_BLOCK,
            TILE_ROW,
            TILE_COLUMN,
            CHANNEL_BLOCK,
            CHANNEL_LANE,
            MAP_LANE,
        ];
        let [e, f, batch, ko, ty, tx, co, ci, ki] = d.along(s.m.block, own)?;
        let [ko0, ko1] = d.split(ko, [REST, maps.into()])?;
        let [ci0, ci1] = d.split(ci, [REST, t.unroll.value().into()])?;
        let [ty0, ty1] = d.split(ty, [REST, t.tiles[0].into()])?;
        let [tx0, tx1] = d.split(tx, [REST, t.tiles[1].into()])?;
        // Vectors of weights innermost: their loads stay in registers, and each
        // broadcast element of the data lives for one row of the tile only.
        d.reorder(&[e, f, batch, ko0, ty0, tx0, co, ci0, ci1, ty1, tx1, ko1, ki])?;
        let leaving = d.keep_in_registers(s.m.block)?;
        d.reverse_compute_at(leaving, tx0)?;
        let own = d.along(leaving, [MAP_BLOCK, TILE_ROW, TILE_COLUMN, MAP_LANE])?;
        d.vectorize(own[3])?;
        for l in &own[..3] {
            d.unroll(*l)?;
        }
        d.vectorize(ki)?;
        for l in [ty1, tx1, ko1, ci1] {
            d.unroll(l)?;
        }
        d.decompose_reduction(s.m.block, co)?;
        Ok([e, f, batch, ko0])
    }

    /// The data transform, a tile and a block of channels at a time: rows, then
    /// columns. The loops along `outer`.
    fn data(&self, d: &mut Draft, s: &MadeBlocks, outer: [&str; 4]) -> Written<[LoopId; 4]> {
        let outer = d.along(s.v.block, outer)?;
        let inner = d.along(s.v.block, [E, J, F, CHANNEL_LANE])?;
        d.reorder(&[outer, inner].concat())?;
        d.compute_at(s.b.block, outer[3])?;
        d.compute_at(s.d.block, outer[3])?;
        let [x, lane] = d.along(s.d.block, [image::COLUMN.as_str(), CHANNEL_LANE])?;
        d.vectorize(lane)?;
        self.prefetch(d, s, x);
        transform(d, s.v, E, [J, F], CHANNEL_LANE)?;
        transform(d, s.b, J, [I, E], CHANNEL_LANE)?;
        for stage in [s.b, s.d] {
            d.set_scope(stage.result, Scope::Local)?;
        }
        Ok(outer)
    }

    /// A tile is a few short rows, which no prefetcher of the processor follows: its
    /// data are asked for two tiles ahead.
    fn prefetch(&self, d: &mut Draft, s: &MadeBlocks, x: LoopId) {
        let input: Option<BufferId> = d.block(s.d.block).loads().first().map(|(b, _)| *b);
        let Some(input) = input else { return };
        let [rows, columns] = self.tile_counts();
        let image = rows * columns * self.tile * self.tile;
        let channels = self.sizes.channel_blocks * self.sizes.channel_lanes;
        let bytes = image * channels * DType::F32.size() as i64;
        let ahead = 2 * self.tile;
        let wanted = if bytes > self.target.l2_bytes as i64 {
            ahead
        } else {
            0
        };
        let distance = d.choose("prefetch", &[0, ahead], wanted);
        d.prefetch_if_legal(input, x, distance.value());
    }
}

/// One dimension of a transform: for each iteration of `home`, all results
/// along `axes[1]` from all terms along `axes[0]`, in vectors.
pub(super) fn transform(
    d: &mut Draft,
    stage: MadeBlock,
    home: &str,
    axes: [&str; 2],
    lanes: &str,
) -> Written<()> {
    let [terms, results] = axes;
    let loops = d.along(stage.block, [home, terms, results, lanes])?;
    transform_along(d, stage.block, loops, [results, lanes])
}

/// The same with its loops, the outermost first; `leaving` are the axes of results and of lanes.
pub(super) fn transform_along(
    d: &mut Draft,
    b: BlockId,
    [home, term, result, lane]: [LoopId; 4],
    leaving: [&str; 2],
) -> Written<()> {
    d.reorder(&[home, term, result, lane])?;
    let out = d.keep_in_registers(b)?;
    d.reverse_compute_at(out, home)?;
    let [results_out, lanes_out] = d.along(out, leaving)?;
    innermost(d, out, lanes_out)?;
    d.vectorize(lane)?;
    d.vectorize(lanes_out)?;
    d.unroll(term)?;
    d.unroll(result)?;
    d.unroll(results_out)?;
    d.decompose_reduction(b, term).map(drop)
}

/// Moves a loop of a block inwards, past those of other axes.
pub(super) fn innermost(d: &mut Draft, b: BlockId, l: LoopId) -> Written<()> {
    let own = schedule::own_loops(d.program(), b);
    let inside = own.iter().skip_while(|o| **o != l).skip(1);
    let inside: Vec<LoopId> = inside.copied().collect();
    match inside.is_empty() {
        true => Ok(()),
        false => d.reorder(&[&inside[..], &[l]].concat()),
    }
}
