//! Convolutions and windows on blocked layouts: rows of output pixels times
//! blocks of channels in registers, weights packed in the order they are read.

use super::threads::{own_rows, param_bytes};
use super::{main_sum, others};
use crate::draft::{Draft, Nest};
use crate::space::Sketch;
use ir::{BufferId, CpuTarget, Expr, ExprKind, Program, Role};

/// Most multiply-adds in one unrolled body: compile time grows with it, run time does not fall.
const MAX_UNROLLED: i64 = 256;

/// Multiply-adds in the body of the innermost loop by default, if taps allow.
const WANTED_UNROLLED: i64 = 64;

/// Most rows of a tile.
const MAX_ROWS: i64 = 8;

/// Narrower tiles than this divide the row.
const MIN_CUT: i64 = 4;

/// Pixels that an output map is cut into few of. More fall into few sets of a
/// cache where rows are a power of two apart.
const LARGE_TILE: i64 = 28;

/// Blocks of weights that so few tiles share are fetched ahead.
const FEW_TILES: i64 = 8;

/// Sketches for a program whose `main` writes [n, channel block, y, x, channel]; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget) -> Vec<Sketch> {
    let Some(main) = main_sum(all) else {
        return vec![];
    };
    if main.spatial.len() != 5 || main.reduce.is_empty() {
        return vec![];
    }
    let inner = main.spatial[4].1;
    if inner != nest_lanes(target) && inner * 2 != nest_lanes(target) {
        return vec![];
    }
    let out = all.iter().find(|n| n.block == "out" && same_shape(n, main));
    let is_conv = main.extent("ki").is_some();
    // Each thread would read all weights, to keep activations from crossing over.
    let worth = param_bytes(program, true) <= param_bytes(program, false);
    let own_rows = own_rows(&main.spatial, target.threads).filter(|_| worth);
    [("direct.maps", true), ("direct.rows", false)]
        .into_iter()
        .map(|(name, maps_outer)| {
            let mut d = Draft::default();
            let scheme = Scheme {
                program,
                main,
                out,
                target,
                is_conv,
                maps_outer,
                own_rows,
            };
            scheme.write(&mut d);
            let mut handled = vec!["main"];
            handled.extend(out.map(|_| "out"));
            others(&mut d, all, &handled, target);
            d.finish(name)
        })
        .collect()
}

fn nest_lanes(target: &CpuTarget) -> i64 {
    target.lanes(ir::DType::F32)
}

fn same_shape(out: &Nest, main: &Nest) -> bool {
    let extents = |n: &Nest| n.spatial.iter().map(|s| s.1).collect::<Vec<_>>();
    out.reduce.is_empty() && out.writes == 1 && extents(out) == extents(main)
}

struct Scheme<'a> {
    program: &'a Program,
    main: &'a Nest,
    out: Option<&'a Nest>,
    target: &'a CpuTarget,
    is_conv: bool,
    /// Output channel blocks outside rows, or rows outside them.
    maps_outer: bool,
    /// Rows that each thread computes of all maps.
    own_rows: Option<i64>,
}

/// Decisions of the register tile.
struct Tile {
    y: usize,
    x: usize,
    maps: usize,
}

impl Scheme<'_> {
    fn write(&self, d: &mut Draft) {
        let (n, target) = (self.main, self.target);
        let name = |i: usize| n.spatial[i].0.clone();
        let (batch, maps, mut y, x, lane) = (name(0), name(1), name(2), name(3), name(4));
        self.pack_weights(d);
        let tile = self.tile(d);
        let mut shared = vec![batch];
        if let Some(rows) = self.own_rows {
            d.line(format!("split {y} [_, {rows}]"));
            shared.push(format!("{y}.0"));
            y += ".1";
        }
        let Tile {
            y: ty,
            x: tx,
            maps: tk,
        } = tile;
        d.line(format!("split {y} [_, ${ty}.0]"));
        d.line(format!("split {x} [_, ${tx}.0]"));
        d.line(format!("split {maps} [${tk}.0, ${tk}.1]"));
        let mut reduce: Vec<String> = n.reduce.iter().map(|(l, _)| l.clone()).collect();
        let taps = n.extent("s").unwrap_or(1);
        let unrolled = self.unroll_channels(d, &mut reduce, &tile, taps);
        let (y0, x0, k0) = (format!("{y}.0"), format!("{x}.0"), format!("{maps}.0"));
        let inner = if self.maps_outer { [k0, y0] } else { [y0, k0] };
        let mut order = [&shared[..], &inner, std::slice::from_ref(&x0)].concat();
        if self.own_rows.is_none() {
            shared.extend(inner);
        }
        order.extend(reduce.iter().cloned());
        // Blocks of weights stay in registers while pixels go by: what is broadcast
        // lives as long as the blocks inside it, and a border is one test a pixel.
        let inner = [y.clone() + ".1", x.clone() + ".1", maps.clone() + ".1"];
        order.extend(inner.iter().cloned());
        order.push(lane.clone());
        d.line(format!("reorder {}", order.join(" ")));
        d.parallel(&shared, target.threads);
        let result = match self.out {
            Some(out) => {
                d.line("set_scope main register");
                out.block.clone()
            }
            None => {
                d.line("cache_write main 0 register");
                "main.out".to_string()
            }
        };
        d.line(format!("reverse_compute_at {result} {x0}"));
        self.spread(d, &result);
        d.line(format!("vectorize {lane}"));
        for l in inner.iter().rev().chain(&unrolled) {
            d.line(format!("unroll {l}"));
        }
        d.line(format!("decompose_reduction main {}", reduce[0]));
        if unrolled.is_some() {
            self.prefetch_weights(d);
        }
        if taps > 1 {
            let s = d.choose("unroll_s", &[1, taps], taps);
            d.line(format!("annotate main.s unroll_by ${s}.0"));
        }
        d.run_parallel();
        d.line(format!("try partition {x0}"));
        for border in ["main.s~lo", "main.s~hi"] {
            d.line(format!("try annotate {border} unroll_by {taps}"));
        }
    }

    /// Rows that tiles cut, and whether they must divide them: what a thread has of
    /// its own ends inside the output, where no tile may be cut off.
    fn rows(&self) -> (i64, bool) {
        match self.own_rows {
            Some(rows) => (rows, true),
            None => (self.main.spatial[2].1, false),
        }
    }

    /// Decides the tile that stays in registers.
    fn tile(&self, d: &mut Draft) -> Tile {
        let [maps, width] = [1, 3].map(|i| self.main.spatial[i].1);
        let wanted = self.default_tile();
        let (height, whole) = self.rows();
        let rows: Vec<i64> = (1..=height.min(MAX_ROWS))
            .filter(|t| height % t == 0 || !whole && height % t * 2 >= *t)
            .collect();
        let columns: Vec<i64> = (1..=width.min(self.most_pixels()))
            .filter(|t| width % t == 0 || (*t >= MIN_CUT && width % t * 2 >= *t))
            .collect();
        let y = d.choose("y", &rows, wanted[0]);
        let x = d.choose("x", &columns, wanted[1]);
        let maps = d.tile("k", maps, self.most_maps(), wanted[2]);
        let accumulators: &[(usize, usize)] = &[(y, 0), (x, 0), (maps, 1)];
        d.limit(
            "registers",
            &[(1, accumulators), (1, &[(maps, 1)])],
            self.registers() - 1,
        );
        Tile { y, x, maps }
    }

    fn registers(&self) -> i64 {
        i64::from(self.target.vector_registers)
    }

    /// Pixels of one block of channels, its weights and a broadcast fill the registers.
    fn most_pixels(&self) -> i64 {
        self.registers() - 2
    }

    /// Splits the input channels of a block for unrolling; the loop to unroll.
    fn unroll_channels(
        &self,
        d: &mut Draft,
        reduce: &mut Vec<String>,
        tile: &Tile,
        taps: i64,
    ) -> Option<String> {
        let body = [(tile.y, 0), (tile.x, 0), (tile.maps, 1)];
        let Some(ci) = self.main.extent("ci").filter(|_| self.is_conv) else {
            d.limit("unrolled code", &[(taps, &body)], MAX_UNROLLED);
            return None;
        };
        let options: Vec<i64> = [1, 2, 4, 8].into_iter().filter(|u| ci % u == 0).collect();
        let unrolled = taps * self.default_tile().iter().product::<i64>();
        let u = d.choose("unroll_ci", &options, WANTED_UNROLLED / unrolled);
        d.line(format!("split main.ci [_, ${u}.0]"));
        let body = [body[0], body[1], body[2], (u, 0)];
        d.limit("unrolled code", &[(taps, &body)], MAX_UNROLLED);
        reduce.retain(|l| l != "main.ci");
        reduce.extend(["main.ci.0".to_string(), "main.ci.1".to_string()]);
        Some("main.ci.1".into())
    }

    /// Weights come from main memory once a call. Where few tiles share a block
    /// of them, the multiply-adds of its first tile do not hide that.
    fn prefetch_weights(&self, d: &mut Draft) {
        let weights = self.program.block(self.main.id).loads().into_iter();
        let Some(name) = weights
            .map(|(b, _)| self.program.buffer(b))
            .find(|b| b.role == Role::Constant)
            .map(|b| b.name.clone())
        else {
            return;
        };
        let wanted = if self.is_small() { 64 } else { 0 };
        let distance = d.choose("prefetch", &[0, 16, 64, 256], wanted);
        // A distance of 0 is no prefetch, which the step refuses.
        d.line(format!("try prefetch {name}.pack main.ci.0 ${distance}.0"));
    }

    /// Vectorizes and unrolls the block that leaves the registers.
    fn spread(&self, d: &mut Draft, block: &str) {
        let axis = |i: usize| {
            let (from, loop_) = match self.out {
                Some(o) => ("out", &o.spatial[i].0),
                None => ("main", &self.main.spatial[i].0),
            };
            loop_
                .strip_prefix(&format!("{from}."))
                .unwrap_or(loop_)
                .to_string()
        };
        d.line(format!("vectorize {block}.{}", axis(4)));
        for i in [3, 2, 1] {
            d.line(format!("unroll {block}.{}", axis(i)));
        }
    }

    /// Rows, columns and blocks of channels of the tile. Where multiply-adds
    /// take a broadcast from memory, many pixels of one block, so that a weight
    /// is loaded few times; elsewhere the most multiply-adds a load. Whole
    /// tiles and long rows are preferred.
    fn default_tile(&self) -> [i64; 3] {
        let [maps, width] = [1, 3].map(|i| self.main.spatial[i].1);
        let (height, whole_rows) = self.rows();
        let broadcasts = self.target.isa.has_broadcast_operands();
        let is_plain = self.main.extent("ci").is_none();
        let most = match (self.is_conv, self.registers() >= 32) {
            (true, true) if broadcasts && !is_plain && self.is_small() => LARGE_TILE,
            (true, true) => 16,
            (true, false) => self.most_pixels(),
            (false, _) => 8,
        };
        // Neighbouring pixels share elements of a plain input, which the
        // compiler then keeps in registers of their own.
        let widest = match (is_plain, broadcasts) {
            (false, _) => most,
            (true, true) => 8,
            (true, false) => 4,
        };
        let share = |n: i64, t: i64| n as f64 / ((n + t - 1) / t * t) as f64;
        let (mut best, mut score) = ([1, 1, 1], (0.0, 0.0, 0.0));
        for x in (1..=widest.min(width)).rev() {
            let rows = if self.is_conv { MAX_ROWS } else { 1 };
            for y in 1..=rows.min(most / x).min(height) {
                let whole = share(height, y) * share(width, x);
                if (x < MIN_CUT || !self.is_conv) && width % x != 0 {
                    continue;
                }
                for k in 1..=self.most_maps().min(most / (x * y)) {
                    let spills = x * y * k + k >= self.registers();
                    let cut = height % y != 0;
                    if maps % k != 0 || spills || cut && (k > 1 || whole_rows) {
                        continue;
                    }
                    let (pixels, blocks) = ((x * y) as f64, k as f64);
                    let gain = if broadcasts {
                        pixels / blocks
                    } else {
                        pixels * blocks / (pixels + blocks)
                    };
                    let gain = gain * whole / if y > 1 { 1.2 } else { 1.0 };
                    // Eight chains hide the latency of a multiply-add.
                    let next = ((pixels * blocks).min(8.0), gain, whole);
                    if next > score {
                        (best, score) = ([y, x, k], next);
                    }
                }
            }
        }
        best
    }

    /// Most blocks of output channels in a tile.
    fn most_maps(&self) -> i64 {
        if self.is_conv { 4 } else { 1 }
    }

    /// Whether few of the largest tiles make an output map.
    fn is_small(&self) -> bool {
        self.main.spatial[2].1 * self.main.spatial[3].1 <= FEW_TILES * LARGE_TILE
    }

    /// Weights in the order in which the inner loops read them.
    fn pack_weights(&self, d: &mut Draft) {
        let block = self.program.block(self.main.id);
        for (b, indices) in block.loads() {
            if self.program.buffer(b).role != Role::Constant || indices.len() != 4 {
                continue;
            }
            let inner = self.main.spatial[4].1;
            let name = &self.program.buffer(b).name;
            if !self.is_conv {
                d.line(format!("pack {name} [0:{inner}] [0, 2, 3, 4, 1]"));
            } else if self.main.extent("ci").is_some() {
                let ci = self.main.extent("ci").unwrap_or(inner);
                d.line(format!(
                    "pack {name} [0:{inner}, 1:{ci}] [0, 2, 4, 5, 3, 1]"
                ));
            } else {
                d.line(format!("pack {name} [0:{inner}] [0, 2, 3, 4, 1]"));
            }
        }
    }
}

/// The buffer that a product's factor is loaded from, behind guards and casts.
pub fn factor_load(e: &Expr) -> Option<(BufferId, &[Expr])> {
    match e.kind() {
        ExprKind::Load(b, i) => Some((*b, i)),
        ExprKind::Select(_, a, _) | ExprKind::Cast(_, a) => factor_load(a),
        _ => None,
    }
}
