//! Convolutions by minimal filtering, on blocked layouts.
//!
//! Two forms. *Fused*: for a block of tiles at a time, data are transformed,
//! multiplied and transformed back while they are in the core's own cache;
//! blocks of tiles run in parallel. *Staged*: each transform is a pass over
//! the whole image, so that transformed weights are read once a call; for
//! small images with many channels, whose weights are most of the traffic.

use super::im2row::largest_divisor;
use super::{main_sum, others};
use crate::draft::{Draft, Nest};
use crate::space::Sketch;
use ir::{CpuTarget, DType, Program};

/// Most multiply-adds in the unrolled body of the products.
const MAX_UNROLLED: i64 = 256;

/// Outputs of a tile each way. Larger ones multiply less and round more.
const TILES: [i64; 3] = [4, 2, 6];

/// Sketches for a program whose `main` is a convolution of stride 1 that
/// writes [n, channel block, y, x, channel], the likely best first; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget) -> Vec<Sketch> {
    let Some(main) = main_sum(all) else {
        return vec![];
    };
    let blocked = main.spatial.len() == 5 && main.spatial[4].1 == target.lanes(DType::F32);
    if !blocked || main.extent("co").is_none() || main.extent("ci").is_none() {
        return vec![];
    }
    let has_out = all.iter().any(|n| n.block == "out" && n.spatial.len() == 5);
    let mut sketches = Vec::new();
    for tile in TILES {
        let mut rewritten = program.clone();
        let step = schedule::Step::Winograd {
            block: "main".into(),
            tile: schedule::Arg::Lit(tile),
        };
        if step.apply(&mut rewritten, &[]).is_err() {
            continue;
        }
        let form = Form {
            main,
            target,
            has_out,
            tile,
            input: input(&rewritten),
        };
        let order = if form.weights_weigh() {
            ["staged", "fused"]
        } else {
            ["fused", "staged"]
        };
        for name in order {
            let mut d = Draft::default();
            d.line(step.to_string());
            match name {
                "fused" => form.fused(&mut d),
                _ => form.staged(&mut d),
            }
            others(&mut d, all, &["main", "out"], target);
            sketches.push(d.finish(&format!("winograd{tile}.{name}")));
        }
    }
    sketches
}

/// The buffer that tiles of data are read from.
fn input(rewritten: &Program) -> Option<String> {
    let reads = |b| rewritten.block(b).name == "main.d";
    let block = rewritten.block_ids().into_iter().find(|b| reads(*b))?;
    let (buffer, _) = rewritten.block(block).loads().into_iter().next()?;
    Some(rewritten.buffer(buffer).name.clone())
}

struct Form<'a> {
    main: &'a Nest,
    target: &'a CpuTarget,
    has_out: bool,
    tile: i64,
    input: Option<String>,
}

/// Decisions of the register tile of the products.
struct Registers {
    /// Blocks of output channels.
    maps: usize,
    unroll: usize,
}

impl Form<'_> {
    fn extent(&self, axis: &str) -> i64 {
        self.main.extent(axis).expect("an axis of the template")
    }

    fn tiles(&self, axis: &str) -> i64 {
        (self.extent(axis) + self.tile - 1) / self.tile
    }

    /// The block that leaves the registers, and so sets the order.
    fn last(&self) -> &'static str {
        if self.has_out { "out" } else { "main.out" }
    }

    /// `rows` are the factors (decision, part) of the tiles in registers.
    fn registers(&self, d: &mut Draft, rows: [(usize, usize); 2], wanted_maps: i64) -> Registers {
        let maps = d.tile("k", self.extent("ko"), 4, wanted_maps);
        let ci = self.extent("ci");
        let options: Vec<i64> = [1, 2, 4, 8].into_iter().filter(|u| ci % u == 0).collect();
        let unroll = d.choose("unroll_ci", &options, 4);
        let products: &[(usize, usize)] = &[rows[0], rows[1], (maps, 1)];
        d.limit(
            "registers",
            &[(1, products), (1, &[(maps, 1)])],
            self.budget(),
        );
        let body = [rows[0], rows[1], (maps, 1), (unroll, 0)];
        d.limit("unrolled code", &[(1, &body)], MAX_UNROLLED);
        Registers { maps, unroll }
    }

    fn fused(&self, d: &mut Draft) {
        let (rows, columns) = (self.tiles("y"), self.tiles("x"));
        let inner = self.register_tile();
        let shape = self.block_of_tiles(rows / inner.0, columns / inner.1, inner);
        let most = i64::from(self.target.vector_registers) - 2;
        let wanted = [rows / inner.0 / shape.0, shape.0, inner.0];
        let y = d.tiles("y", rows, &wanted, 4);
        let wanted = [columns / inner.1 / shape.1, shape.1, inner.1];
        let x = d.tiles("x", columns, &wanted, most);
        // Beyond the last level a block would come from memory twice.
        let share = self.target.llc_bytes as i64 / i64::from(self.target.threads);
        let default = shape.0 * inner.0 * shape.1 * inner.1;
        d.limit(
            "bytes of transformed tiles",
            &[(self.tile_bytes(), &[(y, 1), (y, 2), (x, 1), (x, 2)])],
            share.max(default * self.tile_bytes()),
        );
        let maps = self.maps(inner);
        let registers = self.registers(d, [(y, 2), (x, 2)], maps);
        let last = self.begin(d);
        let m = self.tile;
        d.line(format!("split {last}.y [_, ${y}.1, ${y}.2, {m}]"));
        d.line(format!("split {last}.x [_, ${x}.1, ${x}.2, {m}]"));
        let order = [
            "n", "y.0", "x.0", "ko", "y.1", "y.2", "x.1", "x.2", "y.3", "x.3", "ki",
        ];
        self.reorder(d, last, &order);
        let outer = ["n", "y.0", "x.0"].map(|l| format!("{last}.{l}"));
        let blocks = d.parallel(&outer, self.target.threads);
        let blocks = blocks.unwrap_or_else(|| outer[2].clone());
        d.line(format!("compute_at main {last}.y.3"));
        d.line(format!("compute_at main.p {last}.x.2"));
        d.line(format!("compute_at main.m {blocks}"));
        d.line(format!("compute_at main.v {blocks}"));
        self.products(d, &registers, [(y, 2), (x, 2)]);
        self.data(d, &["n", "ty", "co", "tx"]);
        self.leave(d, &format!("{last}.x.3"));
        d.line("set_scope main.m local");
        d.line("set_scope main.v local");
    }

    fn staged(&self, d: &mut Draft) {
        let (rows, columns) = (self.tiles("y"), self.tiles("x"));
        let inner = self.register_tile();
        let most = i64::from(self.target.vector_registers) - 2;
        let y = d.tiles("y", rows, &[rows / inner.0, inner.0], 4);
        let x = d.tiles("x", columns, &[columns / inner.1, inner.1], most);
        let maps = self.maps(inner);
        let registers = self.registers(d, [(y, 1), (x, 1)], maps);
        let last = self.begin(d);
        let m = self.tile;
        d.line(format!("split {last}.y [_, {m}]"));
        d.line(format!("split {last}.x [_, {m}]"));
        let order = ["n", "ko", "y.0", "x.0", "y.1", "x.1", "ki"];
        self.reorder(d, last, &order);
        let outer = ["n", "ko", "y.0"].map(|l| format!("{last}.{l}"));
        d.parallel(&outer, self.target.threads);
        d.line(format!("compute_at main {last}.y.1"));
        d.line(format!("compute_at main.p {last}.x.0"));
        self.products(d, &registers, [(y, 1), (x, 1)]);
        self.data(d, &["n", "co", "ty", "tx"]);
        self.leave(d, &format!("{last}.x.1"));
        let outer = ["e", "f", "n", "ko.0"].map(|l| format!("main.m.{l}"));
        d.parallel(&outer, self.target.threads);
        let outer = ["n", "co", "ty"].map(|l| format!("main.v.{l}"));
        d.parallel(&outer, self.target.threads);
    }

    /// Whether a block of tiles is too small to read all weights for.
    fn weights_weigh(&self) -> bool {
        self.tiles("y") * self.tiles("x") <= 2 * self.accumulators()
    }

    /// Multiply-adds that hide their latency.
    fn accumulators(&self) -> i64 {
        if self.target.vector_registers >= 32 {
            16
        } else {
            12
        }
    }

    /// Registers for accumulators and vectors of weights: one is the data's.
    fn budget(&self) -> i64 {
        i64::from(self.target.vector_registers) - 1
    }

    /// Blocks of output channels in registers beside a tile.
    fn maps(&self, tile: (i64, i64)) -> i64 {
        let rows = tile.0 * tile.1;
        let most = (self.accumulators() / rows).min(self.budget() / (rows + 1));
        most.clamp(1, 4)
    }

    /// Rows and columns of tiles in registers.
    fn register_tile(&self) -> (i64, i64) {
        let most = self.accumulators();
        let columns = largest_divisor(self.tiles("x"), most);
        // Two rows of the product to every vector of weights at least.
        (
            largest_divisor(self.tiles("y"), (most / 2 / columns).clamp(1, 4)),
            columns,
        )
    }

    /// Of one tile's transformed data and products, over all channels.
    fn tile_bytes(&self) -> i64 {
        let taps = [self.extent("r"), self.extent("s")].map(|r| r + self.tile - 1);
        let channels = self.extent("ki") * (self.extent("ko") + self.extent("co"));
        taps[0] * taps[1] * channels * DType::F32.size() as i64
    }

    /// Rows and columns of register tiles whose transformed data and products
    /// take half the core's own cache.
    fn block_of_tiles(&self, rows: i64, columns: i64, inner: (i64, i64)) -> (i64, i64) {
        let bytes = self.tile_bytes() * inner.0 * inner.1;
        let most = (self.target.l2_bytes as i64 / 2 / bytes).max(1);
        let outer = largest_divisor(columns, most);
        let share = (rows / i64::from(self.target.threads)).max(1);
        (largest_divisor(rows, (most / outer).min(share)), outer)
    }

    /// Outputs in registers until the last block takes them.
    fn begin(&self, d: &mut Draft) -> &'static str {
        d.line(if self.has_out {
            "set_scope main register"
        } else {
            "cache_write main 0 register"
        });
        self.last()
    }

    fn reorder(&self, d: &mut Draft, block: &str, axes: &[&str]) {
        let loops: Vec<String> = axes.iter().map(|a| format!("{block}.{a}")).collect();
        d.line(format!("reorder {}", loops.join(" ")));
    }

    /// Products of transformed data and weights: a matrix product for every
    /// element of the tiles. `tile` has the factors of the tiles in registers.
    fn products(&self, d: &mut Draft, r: &Registers, tile: [(usize, usize); 2]) {
        let maps = r.maps;
        self.reorder(d, "main.u", &["ko", "co", "ci", "e", "s", "f", "ki"]);
        d.line("compute_at main.g main.u.ci");
        transform(d, "main.u", "e", ["s", "f"], "ki");
        transform(d, "main.g", "s", ["r", "e"], "ki");
        d.line("set_scope main.g local");
        // Weights [e, f, panel of maps, co, ci, vector, lane].
        d.line(format!("pack main.u [4:${maps}.1] [0, 1, 4, 2, 3, 5, 6]"));
        d.line(format!("split main.m.ko [_, ${maps}.1]"));
        d.line(format!("split main.m.ci [_, ${}.0]", r.unroll));
        for (axis, (decision, part)) in ["ty", "tx"].into_iter().zip(tile) {
            d.line(format!("split main.m.{axis} [_, ${decision}.{part}]"));
        }
        // Vectors of weights innermost: their loads stay in registers, and each
        // broadcast element of the data lives for one row of the tile only.
        let order = [
            "e", "f", "n", "ko.0", "ty.0", "tx.0", "co", "ci.0", "ci.1", "ty.1", "tx.1", "ko.1",
            "ki",
        ];
        self.reorder(d, "main.m", &order);
        d.line("cache_write main.m 0 register");
        d.line("reverse_compute_at main.m.out main.m.tx.0");
        d.line("vectorize main.m.out.ki");
        for axis in ["ko", "ty", "tx"] {
            d.line(format!("unroll main.m.out.{axis}"));
        }
        d.line("vectorize main.m.ki");
        for axis in ["ty.1", "tx.1", "ko.1", "ci.1"] {
            d.line(format!("unroll main.m.{axis}"));
        }
        d.line("decompose_reduction main.m main.m.co");
    }

    /// The data transform, a tile and a block of channels at a time: rows, then columns.
    fn data(&self, d: &mut Draft, outer: &[&str]) {
        let order = [outer, &["e", "j", "f", "ci"]].concat();
        self.reorder(d, "main.v", &order);
        let tile = format!("main.v.{}", outer[outer.len() - 1]);
        d.line(format!("compute_at main.b {tile}"));
        d.line(format!("compute_at main.d {tile}"));
        d.line("vectorize main.d.ci");
        self.prefetch(d);
        transform(d, "main.v", "e", ["j", "f"], "ci");
        transform(d, "main.b", "j", ["i", "e"], "ci");
        for b in ["main.b", "main.d"] {
            d.line(format!("set_scope {b} local"));
        }
    }

    /// A tile is a few short rows, which no prefetcher of the processor follows: its
    /// data are asked for two tiles ahead.
    fn prefetch(&self, d: &mut Draft) {
        let Some(input) = &self.input else { return };
        let image = self.tiles("y") * self.tiles("x") * self.tile * self.tile;
        let channels = self.extent("co") * self.extent("ci");
        let bytes = image * channels * DType::F32.size() as i64;
        let ahead = 2 * self.tile;
        let wanted = if bytes > self.target.l2_bytes as i64 {
            ahead
        } else {
            0
        };
        let distance = d.choose("prefetch", &[0, ahead], wanted);
        // A distance of 0 is no prefetch, which the step refuses.
        d.line(format!("try prefetch {input} main.d.x ${distance}.0"));
    }

    /// The output transform, a tile and a block of maps at a time.
    fn leave(&self, d: &mut Draft, x: &str) {
        transform(d, "main.p", "f", ["e", "dy"], "ki");
        d.line("set_scope main.p local");
        d.line("reorder main.f main.x main.ki");
        d.line("vectorize main.ki");
        d.line("unroll main.f");
        d.line("unroll main.x");
        d.line("decompose_reduction main main.f");
        d.line(format!("unroll {x}"));
        d.line(format!("vectorize {}.ki", self.last()));
    }
}

/// One dimension of a transform: for each iteration of `home`, all results
/// along `axes[1]` from all terms along `axes[0]`, in vectors.
fn transform(d: &mut Draft, block: &str, home: &str, axes: [&str; 2], lanes: &str) {
    let [terms, results] = axes;
    d.line(format!(
        "reorder {block}.{home} {block}.{terms} {block}.{results} {block}.{lanes}"
    ));
    d.line(format!("cache_write {block} 0 register"));
    d.line(format!("reverse_compute_at {block}.out {block}.{home}"));
    d.line(format!("vectorize {block}.{lanes}"));
    d.line(format!("vectorize {block}.out.{lanes}"));
    d.line(format!("unroll {block}.{terms}"));
    d.line(format!("unroll {block}.{results}"));
    d.line(format!("unroll {block}.out.{results}"));
    d.line(format!("decompose_reduction {block} {block}.{terms}"));
}
