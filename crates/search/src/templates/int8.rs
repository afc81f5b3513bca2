//! Products of bytes with sums in i32: matrix products and convolutions on
//! blocked layouts, by dot products of four neighbouring bytes.
//!
//! Weights are packed so that one vector holds four bytes of the reduction for
//! every lane of the result; the four bytes of the other operand are the same
//! for all lanes. A register tile is rows (or pixels) by vectors, as with
//! floats; `tensorize` puts the lanes and the four bytes into one instruction.

use super::{epilogue, main_sum, others};
use crate::draft::{Draft, Nest, nests};
use crate::space::Sketch;
use crate::templates::blocked::factor_load;
use crate::templates::gemm::Shape;
use ir::{BinaryOp, CpuTarget, DType, Expr, ExprKind, Program, Role, Target};

/// Products that a lane adds in one instruction.
const TERMS: i64 = 4;
/// Most dot products in one unrolled body.
const MAX_UNROLLED: i64 = 256;
/// Vectors of results side by side in a tile.
const MOST_VECTORS: i64 = 4;
/// Most rows of pixels in a tile.
const MOST_LINES: i64 = 4;

/// Sketches for a program whose `main` sums products of bytes; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget) -> Vec<Sketch> {
    let Some(main) = main_sum(all) else {
        return vec![];
    };
    let Some(intrinsic) = intrinsic(program, main, target) else {
        return vec![];
    };
    let out = epilogue(all, main);
    let scheme = Scheme {
        program,
        main,
        out,
        target,
        registers: registers(target, &intrinsic),
        intrinsic,
    };
    let mut found = Vec::new();
    for (name, first) in [("int8.columns", true), ("int8.rows", false)] {
        let mut d = Draft::default();
        let written = if main.extent("ki").is_some() {
            scheme.convolution(&mut d, first)
        } else {
            scheme.product(&mut d, first)
        };
        if written.is_none() {
            return vec![];
        }
        let mut handled = vec!["main"];
        handled.extend(out.map(|_| "out"));
        others(&mut d, all, &handled, target);
        found.push(d.finish(name));
    }
    found
}

/// The dot product that the target's vectors hold, by the types of the factors.
fn intrinsic(program: &Program, main: &Nest, target: &CpuTarget) -> Option<String> {
    let value = &program.block(main.id).writes[0].value;
    let ExprKind::Binary(BinaryOp::Mul, a, b) = value.kind() else {
        return None;
    };
    let bytes = |e: &Expr| {
        let d = program.buffer(factor_load(e)?.0).dtype;
        matches!(d, DType::I8 | DType::U8).then_some(d)
    };
    let kind = match (bytes(a)?, bytes(b)?) {
        (DType::I8, DType::I8) => "dot4.i8i8i32",
        (DType::U8, DType::U8) => "dot4.u8u8i32",
        _ => "dot4.u8i8i32",
    };
    Some(match target.lanes(DType::I32) {
        16 => kind.to_string(),
        n @ (4 | 8) => format!("{kind}x{n}"),
        _ => return None,
    })
}

/// How many times the f32 multiply-adds a target does for a program in the same
/// time: sums of products of bytes have instructions of their own on some.
pub fn peak_factor(program: &Program, target: &Target) -> f64 {
    let Target::Cpu(target) = target;
    let all = nests(program);
    let of_bytes = main_sum(&all).is_some_and(|main| intrinsic(program, main, target).is_some());
    match target.byte_dot.is_some() && of_bytes {
        true => 4.0,
        false => 1.0,
    }
}

/// Registers for accumulators and weights: the others hold what is broadcast,
/// and what an instruction is made of that the target has not.
fn registers(target: &CpuTarget, intrinsic: &str) -> i64 {
    let mixed = intrinsic.contains("u8i8");
    let direct = target.byte_dot.is_some_and(|d| d.is_direct(mixed));
    i64::from(target.vector_registers) - if direct { 1 } else { 6 }
}

struct Scheme<'a> {
    program: &'a Program,
    main: &'a Nest,
    out: Option<&'a Nest>,
    target: &'a CpuTarget,
    intrinsic: String,
    registers: i64,
}

impl Scheme<'_> {
    fn lanes(&self) -> i64 {
        self.target.lanes(DType::I32)
    }

    /// Panels of columns outside tiles of rows, or inside.
    fn product(&self, d: &mut Draft, columns_first: bool) -> Option<()> {
        let s = Shape::of(self.program, self.main)?;
        let packing = s.packing.filter(|p| p.dims == 2)?;
        if s.k % TERMS != 0 || !s.batch.is_empty() {
            return None;
        }
        let lanes = self.lanes();
        let vectors = (s.n + lanes - 1) / lanes;
        let widths: Vec<i64> = (1..=MOST_VECTORS.min(vectors)).collect();
        let most = (self.registers - 1).min(s.m());
        let rows: Vec<i64> = (1..=most)
            .filter(|t| s.m() % t == 0 || s.m() > 4 * t)
            .collect();
        let (v, t) = self.best(&widths, &rows, [vectors, s.m()]);
        let columns: Vec<i64> = widths.iter().map(|w| w * lanes).collect();
        let columns = d.choose("columns", &columns, v * lanes);
        let rows = s.rows.as_ref().map(|_| d.choose("rows", &rows, t));
        let steps = s.k / TERMS;
        let unrolls: Vec<i64> = (1..=8).filter(|u| steps % u == 0).collect();
        let unroll = d.choose("unroll_k", &unrolls, 2);
        let mut body = vec![(columns, 0)];
        body.extend(rows.map(|r| (r, 0)));
        let budget = self.registers * lanes;
        d.limit("registers", &[(1, &body), (1, &[(columns, 0)])], budget);
        body.push((unroll, 0));
        d.limit("unrolled code", &[(1, &body)], MAX_UNROLLED * lanes);

        let result = self.accumulate(d);
        let (n, k) = (&s.n_loop, &s.k_loop);
        d.line(format!("pad {n} ${columns}"));
        let layout = if packing.transposed {
            format!("[0:${columns}, 1:{TERMS}] [0, 2, 1, 3]")
        } else {
            format!("[0:{TERMS}, 1:${columns}] [2, 0, 3, 1]")
        };
        d.line(format!("pack {} {layout}", s.right));
        d.line(format!("split {n} [_, ${columns}]"));
        d.line(format!("split {n}.1 [_, {lanes}]"));
        d.line(format!("split {k} [_, {TERMS}]"));
        d.line(format!("split {k}.0 [_, ${unroll}]"));
        let mut outer = vec![format!("{n}.0")];
        let mut inner = vec![];
        if let Some(((m, _), decision)) = s.rows.as_ref().zip(rows) {
            d.line(format!("split {m} [_, ${decision}]"));
            outer.insert(usize::from(columns_first), format!("{m}.0"));
            inner.push(format!("{m}.1"));
        }
        inner.push(format!("{n}.1.0"));
        let unrolled = [vec![format!("{k}.0.1")], inner].concat();
        let lane = format!("{n}.1.1");
        let first = format!("{k}.0.0");
        let order = [
            outer.clone(),
            vec![first.clone()],
            unrolled.clone(),
            vec![lane.clone(), format!("{k}.1")],
        ];
        d.line(format!("reorder {}", order.concat().join(" ")));
        let place = self.share(d, &outer, outer.len() - 1);
        d.line(format!("reverse_compute_at {result} {place}"));
        let last = self.main.spatial.len() - 1;
        let axis = |i: usize| self.axis(&result, i);
        d.line(format!("split {} [_, {lanes}]", axis(last)));
        d.line(format!("vectorize {}.1", axis(last)));
        d.line(format!("unroll {}.0", axis(last)));
        if s.rows.is_some() {
            d.line(format!("unroll {}", axis(last - 1)));
        }
        self.instructions(d, &lane, &unrolled, &first);
        if packing.each_call && self.target.threads > 1 {
            d.line(format!("try parallel {}.pack.ax0", s.right));
        }
        d.run_parallel();
        if let Some((m, _)) = &s.rows {
            d.line(format!("try partition {m}.0"));
        }
        Some(())
    }

    /// Blocks of maps outside lines of pixels, or inside.
    fn convolution(&self, d: &mut Draft, maps_first: bool) -> Option<()> {
        let n = self.main;
        let (inner, ci) = (n.spatial.get(4)?.1, n.extent("ci")?);
        if inner != self.lanes() || ci % TERMS != 0 {
            return None;
        }
        let weights = self.program.block(n.id).loads().into_iter();
        let weights = weights
            .map(|(b, at)| (self.program.buffer(b), at.len()))
            .find(|(b, dims)| b.role == Role::Constant && *dims == 4)?
            .0;
        if weights.shape[1] % ci != 0 {
            // Where its last block ends is a test of every channel.
            return None;
        }
        // Maps, channels in fours, taps; then the fours of a block innermost.
        d.line(format!(
            "pack {} [0:{inner}, 1:{TERMS}] [0, 2, 4, 5, 1, 3]",
            weights.name
        ));
        if ci > TERMS {
            let fours = ci / TERMS;
            let pack = format!("{}.pack", weights.name);
            d.line(format!("pack {pack} [1:{fours}] [0, 1, 3, 4, 2, 5, 6]"));
        }
        let name = |i: usize| n.spatial[i].0.clone();
        let (batch, maps, y, x, lane) = (name(0), name(1), name(2), name(3), name(4));
        let [ty, tx, tk] = self.tile(d);
        let result = self.accumulate(d);
        d.line(format!("split {y} [_, ${ty}]"));
        d.line(format!("split {x} [_, ${tx}]"));
        d.line(format!("split {maps} [_, ${tk}]"));
        d.line(format!("split main.ci [_, {TERMS}]"));
        let (x0, k0) = (format!("{x}.0"), format!("{maps}.0"));
        let mut outer = vec![batch, format!("{y}.0"), x0.clone()];
        outer.insert(if maps_first { 1 } else { 2 }, k0);
        let reduce = ["main.co", "main.r", "main.s", "main.ci.0"].map(String::from);
        let tile = [y + ".1", x + ".1", maps + ".1"];
        let last = vec![lane.clone(), "main.ci.1".to_string()];
        let order = [&outer[..], &reduce, &tile, &last].concat();
        d.line(format!("reorder {}", order.join(" ")));
        self.share(d, &outer, 3);
        d.line(format!("reverse_compute_at {result} {x0}"));
        d.line(format!("vectorize {}", self.axis(&result, 4)));
        for i in [3, 2, 1] {
            d.line(format!("unroll {}", self.axis(&result, i)));
        }
        let unrolled = [&reduce[3..], &tile].concat();
        self.instructions(d, &lane, &unrolled, "main.co");
        d.run_parallel();
        d.line(format!("try partition {x0}"));
        Some(())
    }

    /// Lines, columns and blocks of maps of the tile.
    fn tile(&self, d: &mut Draft) -> [usize; 3] {
        let [maps, height, width] = [1, 2, 3].map(|i| self.main.spatial[i].1);
        let fours = self.main.extent("ci").unwrap_or(TERMS) / TERMS;
        let blocks: Vec<i64> = (1..=MOST_VECTORS).filter(|k| maps % k == 0).collect();
        let most = self.registers - 1;
        let whole = |n: i64| move |t: &i64| n % t == 0 || n > 4 * t;
        let columns: Vec<i64> = (1..=width.min(most)).filter(whole(width)).collect();
        let lines: Vec<i64> = (1..=height.min(MOST_LINES)).filter(whole(height)).collect();
        let (k, x) = self.best(&blocks, &columns, [maps, width]);
        // Short lines leave registers for several.
        let room = (self.registers - k) / (k * x);
        let y = lines.iter().rev().find(|y| height % *y == 0 && **y <= room);
        let y = d.choose("y", &lines, y.copied().unwrap_or(1));
        let x = d.choose("x", &columns, x);
        let k = d.choose("k", &blocks, k);
        let body: [(usize, usize); 3] = [(y, 0), (x, 0), (k, 0)];
        d.limit("registers", &[(1, &body), (1, &[(k, 0)])], self.registers);
        d.limit("unrolled code", &[(fours, &body)], MAX_UNROLLED);
        [y, x, k]
    }

    /// Vectors and rows with the most dot products a load, of tiles that leave
    /// little over at the ends: `whole` are all vectors and all rows.
    fn best(&self, vectors: &[i64], rows: &[i64], whole: [i64; 2]) -> (i64, i64) {
        let share = |n: i64, t: i64| n as f64 / ((n + t - 1) / t * t) as f64;
        let (mut best, mut most) = ((1, 1), 0.0);
        for v in vectors {
            for t in rows.iter().filter(|t| *t * v + v <= self.registers) {
                let gain = (t * v) as f64 / (t + v) as f64;
                let gain = gain.min(8.0) * share(whole[0], *v) * share(whole[1], *t);
                if gain > most {
                    (best, most) = ((*v, *t), gain);
                }
            }
        }
        best
    }

    /// Keeps the sums in registers; the block that takes them out.
    fn accumulate(&self, d: &mut Draft) -> String {
        match self.out {
            Some(out) => {
                d.line("set_scope main register");
                out.block.clone()
            }
            None => {
                d.line("cache_write main 0 register");
                "main.out".into()
            }
        }
    }

    /// Shares the first `count` loops between threads; the innermost of
    /// `outer`, by its name now.
    fn share(&self, d: &mut Draft, outer: &[String], count: usize) -> String {
        let last = &outer[outer.len() - 1];
        // A single loop is shared itself.
        let fused = d.parallel(&outer[..count.max(1)], self.target.threads);
        match fused {
            Some(fused) if outer.len() == 1 => fused,
            _ => last.clone(),
        }
    }

    /// An axis of the block that takes the sums out.
    fn axis(&self, result: &str, i: usize) -> String {
        let l = &self.out.unwrap_or(self.main).spatial[i].0;
        format!("{result}.{}", l.rsplit('.').next().unwrap_or(l))
    }

    /// One instruction for the lanes, copies for the loops round it; sums start
    /// before the loop `first`.
    fn instructions(&self, d: &mut Draft, lane: &str, unrolled: &[String], first: &str) {
        for l in unrolled.iter().rev() {
            d.line(format!("unroll {l}"));
        }
        d.line(format!("decompose_reduction main {first}"));
        let own = lane.strip_prefix("main.").unwrap_or(lane);
        d.line(format!("vectorize main.init.{own}"));
        d.line(format!("tensorize {lane} {}", self.intrinsic));
    }
}
