//! Convolutions as matrix products, on blocked layouts: rows of gathered data,
//! borders included, times panels of weights.
//!
//! *im2row* gathers the whole image first; *ConvGEMM* gathers the rows of a
//! tile of pixels while they stay in the core's own cache, for all maps.

use super::{main_sum, others};
use crate::draft::{Draft, Nest};
use crate::space::Sketch;
use ir::{BufferId, CpuTarget, DType, IterKind, Program, Role};

/// Most multiply-adds in the unrolled body of the products.
const MAX_UNROLLED: i64 = 256;

/// Sketches for a program whose `main` is a convolution of several taps that
/// writes [n, channel block, y, x, channel]; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget) -> Vec<Sketch> {
    let Some(main) = main_sum(all) else {
        return vec![];
    };
    let blocked = main.spatial.len() == 5 && main.spatial[4].1 == target.lanes(DType::F32);
    let taps = ["r", "s"].map(|t| main.extent(t));
    let [Some(r), Some(s)] = taps else {
        return vec![];
    };
    // One tap gathers nothing; without channels to sum over there is no product.
    let sums = |c: &str| main.reduce.iter().any(|(l, _)| *l == format!("main.{c}"));
    let channels = sums("ci") || sums("c");
    if !blocked || r * s == 1 || !channels {
        return vec![];
    }
    let Some([data, weights]) = operands(program, main) else {
        return vec![];
    };
    let scheme = Scheme {
        main,
        target,
        has_out: all.iter().any(|n| n.block == "out" && n.spatial.len() == 5),
        pixels: pixels(program, main, data),
        data: program.buffer(data).name.clone(),
        weights: program.buffer(weights).name.clone(),
    };
    [("convgemm", true), ("im2row", false)]
        .into_iter()
        .map(|(name, in_tile)| {
            let mut d = Draft::default();
            scheme.write(&mut d, in_tile);
            others(&mut d, all, &["main", "out"], target);
            d.finish(name)
        })
        .collect()
}

/// The input and the constant that `main` multiplies.
fn operands(program: &Program, main: &Nest) -> Option<[BufferId; 2]> {
    let loads = program.block(main.id).loads();
    let of = |wanted: &dyn Fn(Role) -> bool, dims: Option<usize>| {
        let mut found = loads
            .iter()
            .filter(|(b, i)| wanted(program.buffer(*b).role) && dims.is_none_or(|d| i.len() == d))
            .map(|(b, _)| *b)
            .collect::<Vec<BufferId>>();
        found.dedup();
        match found[..] {
            [one] => Some(one),
            _ => None,
        }
    };
    let data = of(&|r| r != Role::Constant, None)?;
    let weights = of(&|r| r == Role::Constant, Some(4))?;
    Some([data, weights])
}

/// The spatial axes along which `main` reads its data, those of maps too if
/// maps are in groups.
fn pixels(program: &Program, main: &Nest, data: BufferId) -> Vec<String> {
    let block = program.block(main.id);
    let loads = block.loads();
    let read = |v| {
        let mut of_data = loads.iter().filter(|(b, _)| *b == data);
        of_data.any(|(_, indices)| indices.iter().any(|i| i.uses_var(v)))
    };
    let spatial = block.iters.iter().filter(|i| i.kind == IterKind::Spatial);
    spatial
        .filter(|i| read(i.var))
        .map(|i| program.var(i.var).name.clone())
        .collect()
}

struct Scheme<'a> {
    main: &'a Nest,
    target: &'a CpuTarget,
    has_out: bool,
    /// Axes of the gathered data, outermost first, without those of sums.
    pixels: Vec<String>,
    data: String,
    weights: String,
}

impl Scheme<'_> {
    fn extent(&self, axis: &str) -> i64 {
        self.main.extent(axis).expect("an axis of the template")
    }

    fn write(&self, d: &mut Draft, in_tile: bool) {
        let (rows, columns) = (self.extent("y"), self.extent("x"));
        let registers = i64::from(self.target.vector_registers);
        let accumulators = if registers >= 32 { 16 } else { 12 };
        let inner_x = largest_divisor(columns, accumulators);
        let inner_y = largest_divisor(rows, (accumulators / 2 / inner_x).clamp(1, 4));
        let maps = (accumulators / (inner_x * inner_y)).clamp(1, 4);
        let y = d.tiles("y", rows, &[rows / inner_y, inner_y], 4);
        let x = d.tiles("x", columns, &[columns / inner_x, inner_x], registers - 2);
        let k = d.tile("k", self.extent("ko"), 4, maps);
        let products: &[(usize, usize)] = &[(y, 1), (x, 1), (k, 1)];
        d.limit("registers", &[(1, products), (1, &[(k, 1)])], registers - 1);
        d.line(format!("reindex main {}", self.data));
        let gathered = format!("{}.reindex", self.data);
        for (axis, decision) in [("y", y), ("x", x), ("ko", k)] {
            d.line(format!("split main.{axis} [_, ${decision}.1]"));
        }
        let mut sums = self.sums();
        let unrolled = self.unroll(d, &mut sums, [(y, 1), (x, 1), (k, 1)]);
        self.pack(d, k);
        let outer = if in_tile {
            ["n", "y.0", "x.0", "ko.0"]
        } else {
            ["n", "ko.0", "y.0", "x.0"]
        };
        let outer = outer.map(|l| format!("main.{l}"));
        // Vectors of weights innermost: see `winograd`.
        let inner = ["y.1", "x.1", "ko.1", "ki"].map(|l| format!("main.{l}"));
        let order = [&outer[..], &sums, &inner].concat();
        d.line(format!("reorder {}", order.join(" ")));
        let result = if self.has_out {
            d.line("set_scope main register");
            "out"
        } else {
            d.line("cache_write main 0 register");
            "main.out"
        };
        // With one thread the nest stays as it is.
        let tile = d.parallel(&outer[..3], self.target.threads);
        let tile = tile.unwrap_or_else(|| outer[2].clone());
        d.line(format!("reverse_compute_at {result} {}", outer[3]));
        for axis in ["ko", "y", "x"] {
            d.line(format!("unroll {result}.{axis}"));
            d.line(format!("unroll main.{axis}.1"));
        }
        d.line(format!("vectorize {result}.ki"));
        d.line("vectorize main.ki");
        d.line(format!("unroll {unrolled}"));
        d.line(format!("decompose_reduction main {}", sums[0]));
        let lanes = sums_last(self.main);
        if in_tile {
            d.line(format!("compute_at {gathered} {tile}"));
            d.line(format!("set_scope {gathered} local"));
        } else {
            let all = self.pixels.iter().map(|a| format!("{gathered}.{a}"));
            d.parallel(&all.collect::<Vec<_>>(), self.target.threads);
        }
        d.line(format!("try vectorize {gathered}.{lanes}"));
    }

    /// Reduction loops, outermost first.
    fn sums(&self) -> Vec<String> {
        self.main.reduce.iter().map(|(l, _)| l.clone()).collect()
    }

    /// Splits the innermost sum for unrolling; the loop to unroll.
    fn unroll(&self, d: &mut Draft, sums: &mut Vec<String>, tile: [(usize, usize); 3]) -> String {
        let (last, extent) = self.main.reduce.last().expect("a reduction").clone();
        let options: Vec<i64> = (1..=8).filter(|u| extent % u == 0).collect();
        let u = d.choose("unroll_k", &options, 4);
        let body = [&tile[..], &[(u, 0)]].concat();
        d.limit("unrolled code", &[(1, &body)], MAX_UNROLLED);
        d.line(format!("split {last} [_, ${u}.0]"));
        sums.pop();
        sums.extend([format!("{last}.0"), format!("{last}.1")]);
        format!("{last}.1")
    }

    /// Weights [panel of maps, the sums in their order, vector, lane].
    fn pack(&self, d: &mut Draft, k: usize) {
        let (w, lanes) = (&self.weights, self.extent("ki"));
        match self.main.extent("ci") {
            // [ko, ki, co, ci, r, s], as the loops run.
            Some(ci) => {
                d.line(format!("pack {w} [0:{lanes}, 1:{ci}] [0, 2, 4, 5, 3, 1]"));
                d.line(format!("pack {w}.pack [0:${k}.1] [0, 2, 3, 4, 5, 1, 6]"));
            }
            None => {
                d.line(format!("pack {w} [0:{lanes}] [0, 2, 3, 4, 1]"));
                d.line(format!("pack {w}.pack [0:${k}.1] [0, 2, 3, 4, 1, 5]"));
            }
        }
    }
}

/// The axis of the innermost sum.
fn sums_last(main: &Nest) -> &str {
    let (last, _) = main.reduce.last().expect("a reduction");
    last.strip_prefix("main.").unwrap_or(last)
}

/// The largest divisor of `n` up to `most`.
pub fn largest_divisor(n: i64, most: i64) -> i64 {
    let divides = |d: &i64| n % d == 0;
    (1..=n.min(most)).filter(divides).max().unwrap_or(1)
}
