//! Convolutions and windows on blocked layouts: rows of output pixels times
//! blocks of channels in registers, weights packed in the order they are read.

use super::others;
use crate::draft::{Draft, Nest};
use crate::space::Sketch;
use ir::{BufferId, Expr, ExprKind, Program, Role, Target};

/// Most multiply-adds in one unrolled body: compile time grows with it, run time does not fall.
const MAX_UNROLLED: i64 = 256;

/// Sketches for a program whose `main` writes [n, channel block, y, x, channel]; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &Target) -> Vec<Sketch> {
    let Some(main) = all
        .iter()
        .find(|n| n.block == "main" && n.is_reduction && n.writes == 1)
    else {
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
            };
            scheme.write(&mut d);
            let mut handled = vec!["main"];
            handled.extend(out.map(|_| "out"));
            others(&mut d, all, &handled, target);
            d.finish(name)
        })
        .collect()
}

fn nest_lanes(target: &Target) -> i64 {
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
    target: &'a Target,
    is_conv: bool,
    /// Output channel blocks outside rows, or rows outside them.
    maps_outer: bool,
}

impl Scheme<'_> {
    fn write(&self, d: &mut Draft) {
        let (n, target) = (self.main, self.target);
        let name = |i: usize| n.spatial[i].0.clone();
        let (batch, maps, y, x, lane) = (name(0), name(1), name(2), name(3), name(4));
        self.pack_weights(d);
        let registers = i64::from(target.vector_registers);
        let (wanted_x, wanted_k) = self.default_tile(registers);
        let tx = d.tile("x", n.spatial[3].1, registers - 2, wanted_x);
        let tk = d.tile(
            "k",
            n.spatial[1].1,
            if self.is_conv { 4 } else { 1 },
            wanted_k,
        );
        d.limit(
            "registers",
            &[(1, &[(tx, 1), (tk, 1)]), (1, &[(tk, 1)])],
            registers - 1,
        );
        d.line(format!("split {x} [${tx}.0, ${tx}.1]"));
        d.line(format!("split {maps} [${tk}.0, ${tk}.1]"));
        let mut reduce: Vec<String> = n.reduce.iter().map(|(l, _)| l.clone()).collect();
        let taps = n.extent("s").unwrap_or(1);
        let unrolled = self.unroll_channels(d, &mut reduce, [(tx, 1), (tk, 1)], taps);
        let (x0, k0) = (format!("{x}.0"), format!("{maps}.0"));
        let outer = if self.maps_outer {
            vec![batch, k0, y, x0.clone()]
        } else {
            vec![batch, y, k0, x0.clone()]
        };
        let mut order = outer.clone();
        order.extend(reduce.iter().cloned());
        let inner = [format!("{maps}.1"), format!("{x}.1"), lane.clone()];
        order.extend(inner.iter().cloned());
        d.line(format!("reorder {}", order.join(" ")));
        d.parallel(&outer[..3], target.threads);
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
        d.line(format!("unroll {x}.1"));
        d.line(format!("unroll {maps}.1"));
        if let Some(u) = unrolled {
            d.line(format!("unroll {u}"));
        }
        d.line(format!("decompose_reduction main {}", reduce[0]));
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

    /// Splits the input channels of a block for unrolling; the loop to unroll.
    fn unroll_channels(
        &self,
        d: &mut Draft,
        reduce: &mut Vec<String>,
        tile: [(usize, usize); 2],
        taps: i64,
    ) -> Option<&'static str> {
        let Some(ci) = self.main.extent("ci").filter(|_| self.is_conv) else {
            d.limit("unrolled code", &[(taps, &tile)], MAX_UNROLLED);
            return None;
        };
        let options: Vec<i64> = [1, 2, 4, 8].into_iter().filter(|u| ci % u == 0).collect();
        let u = d.choose("unroll_ci", &options, if taps > 1 { 1 } else { 4 });
        d.line(format!("split main.ci [_, ${u}.0]"));
        d.limit(
            "unrolled code",
            &[(taps, &[tile[0], tile[1], (u, 0)])],
            MAX_UNROLLED,
        );
        reduce.retain(|l| l != "main.ci");
        reduce.extend(["main.ci.0".to_string(), "main.ci.1".to_string()]);
        Some("main.ci.1")
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
        d.line(format!("unroll {block}.{}", axis(3)));
        d.line(format!("unroll {block}.{}", axis(1)));
    }

    /// Enough independent accumulators to hide the latency of a multiply-add,
    /// few enough to leave registers for operands.
    fn default_tile(&self, registers: i64) -> (i64, i64) {
        let accumulators = if registers >= 32 { 16 } else { 12 };
        let width = self.main.spatial[3].1;
        let fits = |limit: i64| {
            (1..=limit.min(width))
                .rev()
                .find(|x| width % x == 0)
                .unwrap_or(1)
        };
        let x = fits(accumulators);
        if self.is_conv && x * 2 <= accumulators {
            (x, accumulators / x)
        } else {
            (x, 1)
        }
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

/// The buffer that a product's factor is loaded from, behind guards.
pub fn factor_load(e: &Expr) -> Option<(BufferId, &[Expr])> {
    match e.kind() {
        ExprKind::Load(b, i) => Some((*b, i)),
        ExprKind::Select(_, a, _) => factor_load(a),
        _ => None,
    }
}
