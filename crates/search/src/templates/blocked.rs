//! Convolutions and windows on blocked layouts: rows of output pixels times
//! blocks of channels in registers, weights packed in the order they are read.

use super::registers::{
    IN_FLIGHT, LARGE_TILE, MOST_UNROLLED, Registers, limit_unrolled, products_a_load, wanted_part,
};
use super::threads::{own_rows, param_bytes};
use super::{Templates, epilogue, main_sum, others};
use crate::analysis::{Reduction, Stride};
use crate::draft::{Decided, DecidedPart, Draft, REST, Written, given};
use crate::nests::{Nest, ids};
use crate::rates::{EXPOSED, SHARE, STARTS_A_CYCLE, bytes_a_cycle};
use crate::space::Sketch;
use ir::names::{AxisName, image};
use ir::{BlockId, BufferId, CpuTarget, Expr, ExprKind, LoopId, Program, Role, Scope};
use schedule::{Arg, Decision};

/// Multiply-adds in the body of the innermost loop by default, if taps allow. Chosen by
/// hand; not measured apart.
const WANTED_UNROLLED: i64 = 64;

/// Multiply-adds in one unrolled body where each channel of a group has a shuffle: of 4
/// channels for a row of 14 pixels by 5 taps. Masks are then constants, and one load serves
/// the channels. With 336 a convolution of 28x28 in groups of 8 takes a quarter longer than
/// with 168 (Zen 5).
const MOST_SHUFFLED: i64 = 288;

/// Pixels that the windows of a row of shuffled results read, at most: all are in registers.
const MOST_READ: i64 = 18;

/// Most rows of a tile. Chosen by hand; not measured apart.
const MAX_ROWS: i64 = 8;

/// Narrower tiles than this divide the row: what is left over would take as long as
/// a whole tile. Chosen by hand; not measured apart.
const MIN_CUT: i64 = 4;

/// What a vector of weights from the second-level cache costs, in multiply-adds. 14 pixels by
/// 2 blocks of maps reach 97 to 104% of the peak, 14 by 1 reach 90 to 98%, 7 by 4 and 4 by 4
/// reach 82 to 96% (four 3x3 convolutions of ResNet-50, Zen 5).
const WEIGHTS: f64 = 0.3;

/// What a line of an image that the first-level cache does not hold costs, in multiply-adds: an order of magnitude.
/// `op:conv2d(c=288,h=35,w=35,k=384,stride=2,pad=0)` takes 2.59 ms with 17 pixels by one block, and 2.30 with 9 by
/// three (Zen 5, LLVM 22.1.8).
const LINE: f64 = 0.08;

/// Blocks of weights that so few tiles share are fetched ahead. Chosen by hand; not
/// measured apart.
const FEW_TILES: i64 = 8;

/// What a tile costs to begin and to end, in the time of one of its multiply-adds: an order of
/// magnitude.
const BEGIN: f64 = 16.0;

/// Columns of a tile that share elements, at most, where no operand is broadcast from memory.
/// Chosen by hand; not measured apart.
const FEW_COLUMNS: i64 = 4;

/// The gain of a tile of several parts of rows is divided by this: one row of pixels is
/// preferred where both load about as little. Chosen by hand; not measured apart.
const SEVERAL_ROWS: f64 = 1.2;

/// Rows outside blocks of maps come first where they are predicted to save this part of the multiply-adds' time.
const NOTICED: f64 = 0.05;

/// Sketches for a program whose `main` writes [n, channel block, y, x, channel]; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Some(main) = main_sum(all) else {
        return;
    };
    if !is_blocked_image(main) || main.reduce.is_empty() || !weights_lead_with_maps(program, main) {
        return;
    }
    let inner = main.spatial[4].extent;
    let lanes = target.lanes(ir::DType::F32);
    if inner != lanes && inner * 2 != lanes {
        return;
    }
    let out = epilogue(all, main);
    let is_conv = main.extent(image::MAP_LANE).is_some();
    // Weights that are no constants, as in training, are packed by no `prepare`: rules copy them.
    if is_conv && !has_constant_weights(program, main) {
        return;
    }
    let shuffled = is_conv && reads_lanes(program, main);
    // Each thread would read all weights, to keep activations from crossing over.
    let worth = param_bytes(program, true) <= param_bytes(program, false);
    let own_rows = own_rows(&main.shape(), target.threads).filter(|_| worth);
    let maps_outer = Windows {
        program,
        main,
        out,
        target,
        is_conv,
        shuffled,
        maps_outer: true,
        own_rows,
    };
    let rows_outer = Windows {
        maps_outer: false,
        ..maps_outer
    };
    let mut orders = [("direct.maps", maps_outer), ("direct.rows", rows_outer)];
    if maps_outer.gain_of_rows() > NOTICED {
        orders.reverse();
    }
    for (name, windows) in orders {
        found.write(Draft::new(name, program), |d| {
            windows.write(d)?;
            let handled: Vec<BlockId> = [Some(main), out]
                .into_iter()
                .flatten()
                .map(|n| n.block)
                .collect();
            others(d, all, &handled, target)
        });
    }
}

/// Elements up to which a shuffle moves within 128 bits, and needs no register for its mask.
const NEAR: i64 = 4;

/// Whether channels of a convolution in groups are shuffled over more than 128 bits: a body
/// with several channels then has masks in the registers that sums need. Rules, whose body has
/// one channel, come first: `op:grouped_conv2d(c=256,h=28,w=28,k=256,pad=1)` takes 124 us by
/// them and 152 by the template; with tiles of 28 columns, for which there are too few registers,
/// `op:grouped_conv2d(c=128,h=56,w=56,k=128,groups=16,pad=1)` takes 840 and 370 (Zen 5, LLVM 22.1.8).
pub fn shuffles_far(program: &Program, all: &[Nest], rules: &[Sketch]) -> bool {
    let narrow = |d: &Decision| d.name != "tile_x" || d.value[0] < MOST_READ;
    if !rules
        .first()
        .is_some_and(|s| s.decisions.iter().all(narrow))
    {
        return false;
    }
    let far = |main: &Nest| main.extent(image::CHANNEL).is_some_and(|n| n > NEAR);
    let main = main_sum(all).filter(|main| is_blocked_image(main) && far(main));
    main.is_some_and(|main| main.extent(image::MAP_LANE).is_some() && reads_lanes(program, main))
}

/// Whether a block computes a blocked image of two spatial axes.
fn is_blocked_image(main: &Nest) -> bool {
    let is = |axes: [AxisName; 5]| main.spatial.iter().zip(axes).all(|(l, axis)| l.is(axis));
    main.spatial.len() == 5 && (is(image::BLOCKED) || is(image::BLOCKED_MAPS))
}

/// Whether the maps are along the first axis of all weights: not so in transposed
/// convolutions.
pub fn weights_lead_with_maps(program: &Program, main: &Nest) -> bool {
    let block = program.block(main.block);
    let lane = main.spatial.last();
    let lane =
        (block.iters.iter()).find(|i| lane.is_some_and(|l| program.var(i.var).name == l.axis));
    let leads = |indices: &[Expr]| lane.is_some_and(|l| indices[0].uses_var(l.var));
    let weights = |b: BufferId| program.buffer(b).role == Role::Constant;
    let mut loads = block.loads().into_iter();
    loads.all(|(b, i)| !weights(b) || i.len() != 4 || leads(&i))
}

/// Whether an operand of four axes, which images in blocks are not, is constant.
pub fn has_constant_weights(program: &Program, main: &Nest) -> bool {
    let constant = |b: BufferId| program.buffer(b).role == Role::Constant;
    let mut loads = program.block(main.block).loads().into_iter();
    loads.any(|(b, i)| i.len() == 4 && constant(b))
}

/// Whether an operand that is no constant is read along the lanes.
fn reads_lanes(program: &Program, main: &Nest) -> bool {
    let block = program.block(main.block);
    let lane = main.spatial.last().map(|l| &l.axis);
    let lane = (block.iters.iter()).find(|i| Some(&program.var(i.var).name) == lane);
    let reads = |indices: &[Expr]| {
        indices
            .iter()
            .any(|e| lane.is_some_and(|l| e.uses_var(l.var)))
    };
    let mut loads = block.loads().into_iter();
    loads.any(|(b, i)| program.buffer(b).role != Role::Constant && reads(&i))
}

/// A convolution, or another reduction over windows, of blocked images.
#[derive(Clone, Copy)]
struct Windows<'a> {
    program: &'a Program,
    main: &'a Nest,
    out: Option<&'a Nest>,
    target: &'a CpuTarget,
    is_conv: bool,
    /// Each map of a vector reads a channel of its own: pixels pass a shuffle for each term.
    shuffled: bool,
    /// Output channel blocks outside rows, or rows outside them.
    maps_outer: bool,
    /// Rows that each thread computes of all maps.
    own_rows: Option<i64>,
}

/// Decisions of the register tile.
struct WindowTile {
    y: Decided,
    x: Decided,
    maps: Decided,
}

impl WindowTile {
    /// The number of sums that it holds, as factors.
    fn sums(&self) -> [DecidedPart; 3] {
        [self.y.value(), self.x.value(), self.maps.part(1)]
    }
}

impl Windows<'_> {
    fn write(&self, d: &mut Draft) -> Written<()> {
        let (n, target) = (self.main, self.target);
        let [batch, maps, mut y, x, lane] = [0, 1, 2, 3, 4].map(|i| n.spatial[i].id);
        let weights = self.pack_weights(d)?;
        let tile = self.tile(d);
        if let Some(weights) = weights {
            self.interleave(d, weights, &tile)?;
        }
        let mut shared = vec![batch];
        if let Some(rows) = self.own_rows {
            let [thread, own] = d.split(y, [REST, given(rows)])?;
            shared.push(thread);
            y = own;
        }
        let [y0, y1] = d.split(y, [REST, tile.y.value().into()])?;
        let [x0, x1] = d.split(x, [REST, tile.x.value().into()])?;
        let maps_of = [0, 1].map(|part| tile.maps.part(part).into());
        let [k0, k1] = d.split(maps, maps_of)?;
        let mut reduce = ids(&n.reduce);
        let taps = n.extent(image::TAP_COLUMN).unwrap_or(1);
        let channels = self.split_channels(d, &mut reduce, &tile, taps)?;
        let own_taps = n.axis(image::TAP_COLUMN).filter(|_| self.shuffled);
        let own_taps = own_taps.map(|l| l.id);
        let inner = if self.maps_outer { [k0, y0] } else { [y0, k0] };
        let mut order = [&shared[..], &inner, &[x0]].concat();
        if self.own_rows.is_none() {
            shared.extend(inner);
        }
        order.extend(&reduce);
        // Blocks of weights stay in registers while pixels go by: what is broadcast
        // lives as long as the blocks inside it, and a border is one test a pixel.
        order.extend([y1, x1]);
        // A pixel that is shuffled once goes through its taps at once.
        order.extend(own_taps);
        order.extend([k1, lane]);
        d.reorder(&order)?;
        d.parallel(&shared, target.threads)?;
        let result = match self.out {
            Some(out) => {
                d.set_scope(d.output(n.block), Scope::Register)?;
                out.block
            }
            None => d.keep_in_registers(n.block)?,
        };
        let leaving = d.reverse_compute_at(result, x0)?;
        d.vectorize(leaving[4])?;
        for axis in [3, 2, 1] {
            d.unroll(leaving[axis])?;
        }
        d.vectorize(lane)?;
        let tile_loops = [Some(k1), own_taps, Some(x1), Some(y1)];
        for l in tile_loops.into_iter().chain([channels.map(|c| c.inner)]) {
            l.map_or(Ok(()), |l| d.unroll(l))?;
        }
        d.decompose_reduction(n.block, reduce[0])?;
        let streamed = weights.filter(|_| !self.shuffled);
        if let (Some(channels), Some(weights)) = (channels, streamed) {
            self.prefetch(d, weights, channels.outer);
        }
        let taps_loop = n.axis(image::TAP_COLUMN).map(|l| l.id);
        let taps_loop = taps_loop.filter(|_| !self.shuffled);
        if let Some(l) = taps_loop.filter(|_| taps > 1) {
            let by = d.choose("unroll_s", &[1, taps], taps);
            d.unroll_by(l, by.value())?;
        }
        d.run_parallel()?;
        d.attempt_partition(x0);
        if let Some(l) = taps_loop {
            d.attempt_unroll_copies_by(l, Arg::Lit(taps));
        }
        Ok(())
    }

    /// Rows that tiles cut, and whether they must divide them: what a thread has of
    /// its own ends inside the output, where no tile may be cut off.
    fn rows(&self) -> (i64, bool) {
        match self.own_rows {
            Some(rows) => (rows, true),
            None => (self.main.spatial[2].extent, false),
        }
    }

    /// Decides the tile that stays in registers.
    fn tile(&self, d: &mut Draft) -> WindowTile {
        let maps = self.main.spatial[1].extent;
        let wanted = self.default_tile();
        let (height, whole) = self.rows();
        let rows: Vec<i64> = (1..=height.min(MAX_ROWS))
            .filter(|t| height % t == 0 || !whole && height % t * 2 >= *t)
            .collect();
        let columns = self.columns();
        let y = d.choose("y", &rows, wanted[0]);
        let x = d.choose("x", &columns, wanted[1]);
        let maps = d.tile("k", maps, self.most_maps(), wanted[2]);
        self.registers()
            .limit(d, &[y.value(), x.value()], maps.part(1), 1);
        WindowTile { y, x, maps }
    }

    /// Columns that a tile may have.
    fn columns(&self) -> Vec<i64> {
        let width = self.main.spatial[3].extent;
        let fits = |t: &i64| width % t == 0 || (*t >= MIN_CUT && width % t * 2 >= *t);
        let all = 1..=width.min(self.registers().most_rows());
        all.filter(fits).collect()
    }

    fn registers(&self) -> Registers {
        Registers::of(self.target)
    }

    /// Splits the input channels of a block, the inner ones for unrolling.
    fn split_channels(
        &self,
        d: &mut Draft,
        reduce: &mut Vec<LoopId>,
        tile: &WindowTile,
        taps: i64,
    ) -> Written<Option<Channels>> {
        let axis = match self.shuffled {
            true => image::CHANNEL,
            false => image::CHANNEL_LANE,
        };
        let channels = self.main.axis(axis);
        let Some(ci) = channels.filter(|_| self.is_conv) else {
            limit_unrolled(d, taps, &tile.sums(), MOST_UNROLLED);
            return Ok(None);
        };
        let fits = |u: &i64| ci.extent % u == 0;
        let options: Vec<i64> = [1, 2, 4, 8].into_iter().filter(fits).collect();
        let unrolled = taps * self.default_tile().iter().product::<i64>();
        let (wanted, most) = match self.shuffled {
            true => (MOST_SHUFFLED, MOST_SHUFFLED),
            false => (WANTED_UNROLLED, MOST_UNROLLED),
        };
        let u = d.choose("unroll_ci", &options, wanted / unrolled);
        let [outer, inner] = d.split(ci.id, [REST, u.value().into()])?;
        let body = [&tile.sums()[..], &[u.value()]].concat();
        limit_unrolled(d, taps, &body, most);
        let own = self.main.axis(image::TAP_COLUMN);
        let own = own.filter(|_| self.shuffled).map(|l| l.id);
        reduce.retain(|l| *l != ci.id && Some(*l) != own);
        match self.shuffled {
            true => reduce.insert(0, outer),
            false => reduce.push(outer),
        }
        reduce.push(inner);
        Ok(Some(Channels { outer, inner }))
    }

    /// Weights come from main memory once a call. Where few tiles share a block
    /// of them, the multiply-adds of its first tile do not hide that.
    fn prefetch(&self, d: &mut Draft, weights: BufferId, channels: LoopId) {
        let wanted = if self.is_small() { 64 } else { 0 };
        let distance = d.choose("prefetch", &[0, 16, 64, 256], wanted);
        d.prefetch_if_legal(weights, channels, distance.value());
    }

    /// Rows, columns and blocks of channels of the tile. Where multiply-adds
    /// take a broadcast from memory, as many pixels as leave a load or less to each
    /// multiply-add; elsewhere the most multiply-adds a load. Whole tiles and long rows
    /// are preferred. Short rows that are whole follow each other in memory, and a tile has
    /// several: `op:conv2d(c=960,h=7,w=7,k=160,r=1,s=1)` takes 59 us with two rows and 65 with
    /// one (Zen 5, LLVM 22.1.8).
    fn default_tile(&self) -> [i64; 3] {
        if !self.is_conv {
            return [1, self.default_columns(), 1];
        }
        let [maps, width] = [1, 3].map(|i| self.main.spatial[i].extent);
        let (height, whole_rows) = self.rows();
        let broadcasts = self.target.isa.has_broadcast_operands();
        let is_plain = self.main.extent(image::CHANNEL_LANE).is_none();
        let registers = self.registers();
        let taps = self.main.extent(image::TAP_COLUMN).unwrap_or(1);
        let most = match self.target.vector_registers >= 32 {
            true if broadcasts && !is_plain => LARGE_TILE,
            true => 16,
            false => registers.most_rows(),
        };
        // Neighbouring pixels share elements of a plain input, which the
        // compiler then keeps in registers of their own.
        let widest = match (is_plain, broadcasts) {
            _ if self.shuffled => self.widest_shuffled(most),
            (false, _) => most,
            (true, true) => 8,
            (true, false) => FEW_COLUMNS,
        };
        let (mut best, mut score) = ([1, 1, 1], (0.0, 0.0, 0.0));
        for x in (1..=widest.min(width)).rev() {
            let rows = if self.shuffled { 1 } else { MAX_ROWS };
            let line = LINE * self.lines_read(x);
            for y in 1..=rows.min(most / x).min(height) {
                // Rows of pixels that lack in the last tile are skipped, each by one branch.
                let parts = !broadcasts || x < width;
                let (wanted, mean) = match parts {
                    true => (wanted_part(height, y), y as f64),
                    false => (1.0, height as f64 / ((height + y - 1) / y) as f64),
                };
                let whole = wanted * wanted_part(width, x);
                if x < MIN_CUT && width % x != 0 {
                    continue;
                }
                for k in 1..=self.most_maps().min(most / (x * y)) {
                    let cut = height % y != 0;
                    let uncut = whole_rows || k > 1 && parts;
                    if maps % k != 0 || !registers.fit(x * y, k) || cut && uncut {
                        continue;
                    }
                    if taps * x * y * k > MOST_UNROLLED {
                        continue;
                    }
                    let products = products_a_load(x * y, k);
                    let brought = WEIGHTS / (x as f64 * mean) + line / k as f64;
                    let gain = match broadcasts {
                        true => 1.0 / ((1.0 / products).max(1.0) + brought),
                        false => products,
                    };
                    let gain = gain * whole / if y > 1 && parts { SEVERAL_ROWS } else { 1.0 };
                    let next = ((x * y * k).min(IN_FLIGHT) as f64, gain, whole);
                    if next > score {
                        (best, score) = ([y, x, k], next);
                    }
                }
            }
        }
        best
    }

    /// Columns of a tile each of whose terms is a vector of a window: those with which a row takes
    /// the least time. A tile takes a load of the weights beside those of its columns, hides the
    /// latency or waits for it, and costs something to begin; so does the last one with what
    /// is left over. What several windows read stays in registers beside the sums.
    /// `op:depthwise_conv2d(c=240,h=14,w=14,r=5,s=5)` takes 7.7 us in tiles of 14 columns, 8.7 in
    /// tiles of 7 and 10.0 in tiles of 8 (Zen 5, LLVM 22.1.8).
    fn default_columns(&self) -> i64 {
        let width = self.main.spatial[3].extent;
        let terms: i64 = self.main.reduce.iter().map(|l| l.extent).product();
        let tile = |n: i64| (n + 1).max(IN_FLIGHT) as f64 + BEGIN / terms as f64;
        let row = |n: i64| {
            let rest = if width % n > 0 { tile(width % n) } else { 0.0 };
            (width / n) as f64 * tile(n) + rest
        };
        let broadcasts = self.target.isa.has_broadcast_operands();
        let fits = |n: &i64| match broadcasts {
            true => n + self.shared(*n) <= self.registers().most_vectors(0),
            false => *n <= FEW_COLUMNS,
        };
        let taps = self.main.extent(image::TAP_COLUMN).unwrap_or(1);
        let all = self.columns().into_iter();
        let all = all.filter(|n| taps * n <= MOST_UNROLLED && fits(n));
        let best = all.min_by(|a, b| row(*a).total_cmp(&row(*b)));
        best.unwrap_or(1)
    }

    /// Elements of a row that the windows of so many columns read more than once.
    fn shared(&self, columns: i64) -> i64 {
        let read = self.windows_read(columns);
        let again = read.chunk_by(|a, b| a == b).filter(|same| same.len() > 1);
        again.count() as i64
    }

    /// What the windows of so many columns read of a row, in order; some of it more than once.
    fn windows_read(&self, columns: i64) -> Vec<i64> {
        let steps = [
            Some(&self.main.spatial[3]),
            self.main.axis(image::TAP_COLUMN),
        ];
        let [step, tap] = steps.map(|l| l.map_or(1, |l| self.step(l.id)));
        let taps = self.main.extent(image::TAP_COLUMN).unwrap_or(1);
        let window = |x: i64| (0..taps).map(move |s| x * step + s * tap);
        let mut read: Vec<i64> = (0..columns).flat_map(window).collect();
        read.sort_unstable();
        read
    }

    /// Lines of an image in blocks that the windows of so many columns read for each of their terms; none if the
    /// first-level cache holds the image.
    fn lines_read(&self, columns: i64) -> f64 {
        let in_blocks = self.main.extent(image::CHANNEL_LANE).is_some();
        if !in_blocks || self.image_bytes() <= self.target.l1_bytes as i64 {
            return 0.0;
        }
        let mut read = self.windows_read(columns);
        let terms = read.len();
        read.dedup();
        read.len() as f64 / terms as f64
    }

    /// What rows of tiles outside blocks of maps are predicted to save of the time of the multiply-adds. With blocks
    /// of maps outside, each tile's blocks read the whole image; with rows outside, each row of tiles reads all
    /// weights, and its part of the image stays in the core's own cache for all blocks.
    fn gain_of_rows(&self) -> f64 {
        if !self.is_conv || self.shuffled || self.own_rows.is_some() {
            return 0.0;
        }
        let n = self.main;
        let [images, maps, height] = [0, 1, 2].map(|i| n.spatial[i].extent);
        let [y, _, k] = self.default_tile();
        let parts = (images * ((height + y - 1) / y)) as f64;
        let again = (maps / k - 1) as f64;
        let image = self.image_bytes() as f64 * self.share_read();
        let weights = param_bytes(self.program, true);
        let rate = |bytes: f64| bytes_a_cycle(bytes, SHARE, self.target);
        let part = image / parts;
        let by_maps = again * image / rate(image) + weights / rate(weights);
        let by_rows = again * image / rate(part) + parts * weights / rate(weights + part);
        let terms = n.reduce.iter().map(|l| l.extent);
        let products = n.shape()[..4].iter().copied().chain(terms).product::<i64>();
        let computed = products as f64 / STARTS_A_CYCLE as f64;
        EXPOSED * (by_maps - by_rows) / computed
    }

    /// The part of the image that windows read.
    fn share_read(&self) -> f64 {
        let axes = [(2, image::TAP_ROW), (3, image::TAP_COLUMN)];
        let of = |(at, tap): (usize, AxisName)| {
            let taps = self.main.extent(tap).unwrap_or(1);
            let step = self.step(self.main.spatial[at].id);
            (taps as f64 / step as f64).min(1.0)
        };
        axes.map(of).iter().product()
    }

    /// Bytes of the operand that is no constant.
    fn image_bytes(&self) -> i64 {
        let loads = self.program.block(self.main.block).loads().into_iter();
        let buffers = loads.map(|(b, _)| self.program.buffer(b));
        let images = buffers.filter(|b| b.role != Role::Constant);
        let bytes = images.map(|b| b.shape.iter().product::<i64>() * b.dtype.size() as i64);
        bytes.max().unwrap_or(0)
    }

    /// Most pixels that leave registers for what their windows read, and for the weights of
    /// a row of taps.
    fn widest_shuffled(&self, most: i64) -> i64 {
        let taps = self.main.extent(image::TAP_COLUMN).unwrap_or(1);
        let left = self.registers().most_rows() - 2 * taps;
        let step = self.step(self.main.spatial[3].id);
        let read = (MOST_READ - taps) / step + 1;
        left.min(read).clamp(MIN_CUT, most)
    }

    /// Rows or columns of the operand from one iteration of a loop to the next.
    fn step(&self, loop_: LoopId) -> i64 {
        let Some(facts) = Reduction::of(self.program, self.main.block) else {
            return 1;
        };
        let column = facts.axes.iter().position(|a| a.id == loop_);
        let images = facts.operands.iter().filter(|o| o.role != Role::Constant);
        let mut dims = images.flat_map(|o| &o.dims);
        let step = column.and_then(|at| {
            dims.find_map(|d| match d.steps[at] {
                Stride::Elements(n) if n != 0 => Some(n),
                _ => None,
            })
        });
        step.unwrap_or(1)
    }

    /// Most blocks of output channels in a tile.
    fn most_maps(&self) -> i64 {
        if self.is_conv && !self.shuffled { 4 } else { 1 }
    }

    /// Whether few of the largest tiles make an output map.
    fn is_small(&self) -> bool {
        self.main.spatial[2].extent * self.main.spatial[3].extent <= FEW_TILES * LARGE_TILE
    }

    /// Lets the blocks of maps of a tile lie beside each other for every term: one stream, at whose end the next
    /// tile's begins. So what is fetched ahead is wanted next. Of two streams one ends where the other began, and the
    /// next block of the other one is not fetched: `op:conv2d(c=160,h=7,w=7,k=960,r=1,s=1)`
    /// takes 82 us in MobileNet-V2, and 61 with blocks that are alone in a tile (Zen 5, LLVM 22.1.8).
    fn interleave(&self, d: &mut Draft, weights: BufferId, tile: &WindowTile) -> Written<()> {
        if self.most_maps() == 1 {
            return Ok(());
        }
        // Packed: [block of maps, terms.., lane].
        let dims = d.program().buffer(weights).shape.len();
        let terms = (2..dims).chain([1, dims]);
        let order: Vec<usize> = [0].into_iter().chain(terms).collect();
        d.lay_out(weights, &[(0, tile.maps.part(1).into())], &order)
    }

    /// Weights in the order in which the inner loops read them; the packed ones
    /// that the block reads first.
    fn pack_weights(&self, d: &mut Draft) -> Written<Option<BufferId>> {
        let block = self.program.block(self.main.block);
        let inner = self.main.spatial[4].extent;
        let mut packed = None;
        for (b, indices) in block.loads() {
            if self.program.buffer(b).role != Role::Constant || indices.len() != 4 {
                continue;
            }
            let copier = match self.main.extent(image::CHANNEL_LANE) {
                Some(ci) if self.is_conv => {
                    let tiles = [(0, Arg::Lit(inner)), (1, Arg::Lit(ci))];
                    d.pack(b, &tiles, &[0, 2, 4, 5, 3, 1])?
                }
                _ => d.pack(b, &[(0, Arg::Lit(inner))], &[0, 2, 3, 4, 1])?,
            };
            packed = packed.or(Some(d.output(copier)));
        }
        Ok(packed)
    }
}

/// Loops over the input channels of a block.
#[derive(Clone, Copy)]
struct Channels {
    outer: LoopId,
    inner: LoopId,
}

/// The buffer that a product's factor is loaded from, behind guards and casts.
pub fn factor_load(e: &Expr) -> Option<(BufferId, &[Expr])> {
    match e.kind() {
        ExprKind::Load(b, i) => Some((*b, i)),
        ExprKind::Select(_, a, _) | ExprKind::Cast(_, a) => factor_load(a),
        _ => None,
    }
}
