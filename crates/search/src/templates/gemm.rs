//! Matrix products: a register tile of rows and vectors of columns, the right
//! operand packed into panels of one tile's width.

use super::blocked::factor_load;
use super::others;
use crate::draft::{Draft, Nest};
use crate::space::Sketch;
use ir::{BinaryOp, DType, ExprKind, Program, Role, Target};

/// Most multiply-adds in one unrolled body.
const MAX_UNROLLED: i64 = 128;

/// Sketches for a program whose `main` is [.., m, n] = sum over k of a product; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &Target) -> Vec<Sketch> {
    let Some(main) = all
        .iter()
        .find(|n| n.block == "main" && n.is_reduction && n.writes == 1)
    else {
        return vec![];
    };
    let Some(shape) = Shape::of(program, main) else {
        return vec![];
    };
    let lanes = target.lanes(DType::F32);
    let out = all.iter().find(|n| {
        let extents = |n: &Nest| n.spatial.iter().map(|s| s.1).collect::<Vec<_>>();
        n.block == "out" && n.reduce.is_empty() && n.writes == 1 && extents(n) == extents(main)
    });
    if shape.n < lanes || shape.n % lanes != 0 {
        return vec![];
    }
    let mut out_sketches = Vec::new();
    let packs: &[bool] = if shape.can_pack {
        &[true, false]
    } else {
        &[false]
    };
    for pack in packs {
        for rows_outer in [false, true] {
            let name = match (pack, rows_outer) {
                (true, false) => "gemm.packed.columns",
                (true, true) => "gemm.packed.rows",
                (false, false) => "gemm.columns",
                (false, true) => "gemm.rows",
            };
            let mut d = Draft::default();
            let scheme = Scheme {
                main,
                out,
                target,
                shape: &shape,
                pack: *pack,
                rows_outer,
            };
            scheme.write(&mut d);
            let mut handled = vec!["main"];
            handled.extend(out.map(|_| "out"));
            others(&mut d, all, &handled, target);
            out_sketches.push(d.finish(name));
        }
    }
    out_sketches
}

struct Shape {
    /// Batch loops, then m (if there is one), n, k.
    batch: Vec<String>,
    rows: Option<(String, i64)>,
    n_loop: String,
    n: i64,
    k_loop: String,
    k: i64,
    right: String,
    /// The right operand's dimensions are (k, n) or, if so, (n, k).
    transposed: bool,
    can_pack: bool,
    /// The right operand is no constant: packing it is part of every call.
    packs_each_call: bool,
}

impl Shape {
    fn of(program: &Program, main: &Nest) -> Option<Shape> {
        let [(k_loop, k)] = &main.reduce[..] else {
            return None;
        };
        let (n_loop, n) = main.spatial.last()?.clone();
        if n_loop != "main.n" {
            return None;
        }
        let at = main.spatial.iter().position(|(l, _)| l == "main.m");
        let rows = at.map(|i| main.spatial[i].clone());
        let batch = main.spatial.iter().map(|s| s.0.clone());
        let batch = batch.filter(|l| l != "main.m" && l != "main.n").collect();
        let block = program.block(main.id);
        let ExprKind::Binary(BinaryOp::Mul, _, b) = block.writes[0].value.kind() else {
            return None;
        };
        let (buffer, indices) = factor_load(b)?;
        let var = |axis: &str| {
            block
                .iters
                .iter()
                .find(|i| program.var(i.var).name == axis)
                .map(|i| i.var)
        };
        let (nv, kv) = (var("n")?, var("k")?);
        let last = indices.last()?.as_var()?;
        let transposed = last == kv;
        if !transposed && last != nv {
            return None;
        }
        let info = program.buffer(buffer);
        let can_pack = indices.len() == 2
            && matches!(info.role, Role::Constant | Role::Input)
            && !matches!(b.kind(), ExprKind::Select(..));
        Some(Shape {
            batch,
            rows,
            n_loop,
            n,
            k_loop: k_loop.clone(),
            k: *k,
            right: info.name.clone(),
            transposed,
            can_pack,
            packs_each_call: info.role == Role::Input,
        })
    }
}

struct Scheme<'a> {
    main: &'a Nest,
    out: Option<&'a Nest>,
    target: &'a Target,
    shape: &'a Shape,
    pack: bool,
    /// Row tiles outside column tiles, or inside.
    rows_outer: bool,
}

/// Loops and decisions of the register tile.
struct Tile {
    /// Row loops outside and inside the tile with the decision, unless there is one row.
    rows: Option<(String, String, usize)>,
    /// Column loops: tiles, vectors of a tile, lanes; and the decision.
    columns: [String; 3],
    vectors: usize,
}

impl Scheme<'_> {
    fn write(&self, d: &mut Draft) {
        let (s, target) = (self.shape, self.target);
        if self.pack {
            self.pack_right(d);
        }
        let tile = self.tile(d);
        let unroll: Vec<i64> = [1, 2, 4].into_iter().filter(|u| s.k % u == 0).collect();
        let u = d.choose("unroll_k", &unroll, 2);
        let body: Vec<(usize, usize)> = tile
            .rows
            .iter()
            .map(|(.., t)| (*t, 0))
            .chain([(tile.vectors, 1), (u, 0)])
            .collect();
        d.limit("unrolled code", &[(1, &body)], MAX_UNROLLED);
        d.line(format!("split {} [_, ${u}.0]", s.k_loop));
        let (k0, k1) = (format!("{}.0", s.k_loop), format!("{}.1", s.k_loop));
        let [n0, n1, n2] = &tile.columns;
        let mut outer = s.batch.clone();
        match &tile.rows {
            Some((m0, ..)) if self.rows_outer => outer.extend([m0.clone(), n0.clone()]),
            Some((m0, ..)) => outer.extend([n0.clone(), m0.clone()]),
            None => outer.push(n0.clone()),
        }
        let mut order = outer.clone();
        order.extend([k0.clone(), k1.clone()]);
        order.extend(tile.rows.iter().map(|(_, m1, _)| m1.clone()));
        order.extend([n1.clone(), n2.clone()]);
        d.line(format!("reorder {}", order.join(" ")));
        let place = outer[outer.len() - 1].clone();
        let keep = (outer.len() - 1).max(1);
        let fused = d.parallel(&outer[..keep], target.threads);
        let place = if keep == outer.len() {
            fused.unwrap_or(place)
        } else {
            place
        };
        self.leave_registers(d, &place, tile.rows.is_some());
        d.line(format!("vectorize {n2}"));
        d.line(format!("unroll {n1}"));
        d.line(format!("unroll {k1}"));
        if let Some((_, m1, _)) = &tile.rows {
            d.line(format!("unroll {m1}"));
        }
        d.line(format!("decompose_reduction main {k0}"));
        if let Some((m0, ..)) = &tile.rows {
            d.run_parallel();
            d.line(format!("try partition {m0}"));
        }
    }

    /// Panels of one vector's width; at run time if the operand is no constant.
    fn pack_right(&self, d: &mut Draft) {
        let s = self.shape;
        let lanes = self.target.lanes(DType::F32);
        let (tile, order) = if s.transposed {
            (0, "[0, 2, 1]")
        } else {
            (1, "[1, 0, 2]")
        };
        d.line(format!("pack {} [{tile}:{lanes}] {order}", s.right));
        if s.packs_each_call {
            if self.target.threads > 1 {
                d.line(format!("try parallel {}.pack.ax0", s.right));
            }
            d.line(format!("try vectorize {}.pack.ax2", s.right));
        }
    }

    /// Splits columns into tiles of vectors, and rows into tiles that need not
    /// divide: a predicate cuts the last one.
    fn tile(&self, d: &mut Draft) -> Tile {
        let s = self.shape;
        let lanes = self.target.lanes(DType::F32);
        let registers = i64::from(self.target.vector_registers);
        let vectors = s.n / lanes;
        let (wanted_rows, wanted_vectors) =
            default_tile(s.rows.as_ref().map(|r| r.1), vectors, registers);
        let v = d.tile("vectors", vectors, 6, wanted_vectors);
        d.line(format!("split {} [${v}.0, ${v}.1, {lanes}]", s.n_loop));
        let columns = [0, 1, 2].map(|i| format!("{}.{i}", s.n_loop));
        let rows = s.rows.as_ref().map(|(m, extent)| {
            let sensible = |t: &i64| t <= extent && (extent % t == 0 || *extent > 4 * t);
            let options: Vec<i64> = (1..=registers - 2).filter(sensible).collect();
            let t = d.choose("rows", &options, wanted_rows);
            let accumulators: &[(usize, usize)] = &[(t, 0), (v, 1)];
            d.limit(
                "registers",
                &[(1, accumulators), (1, &[(v, 1)])],
                registers - 1,
            );
            d.line(format!("split {m} [_, ${t}.0]"));
            (format!("{m}.0"), format!("{m}.1"), t)
        });
        Tile {
            rows,
            columns,
            vectors: v,
        }
    }

    /// Accumulators in registers, and the block that writes them out under `place`.
    fn leave_registers(&self, d: &mut Draft, place: &str, has_rows: bool) {
        let lanes = self.target.lanes(DType::F32);
        let (from, result) = match self.out {
            Some(out) => {
                d.line("set_scope main register");
                (out, "out")
            }
            None => {
                d.line("cache_write main 0 register");
                (self.main, "main.out")
            }
        };
        d.line(format!("reverse_compute_at {result} {place}"));
        let axis = |i: usize| {
            let l = &from.spatial[i].0;
            format!("{result}.{}", l.rsplit('.').next().unwrap_or(l))
        };
        let last = from.spatial.len() - 1;
        d.line(format!("split {} [_, {lanes}]", axis(last)));
        d.line(format!("vectorize {}.1", axis(last)));
        d.line(format!("unroll {}.0", axis(last)));
        if has_rows {
            d.line(format!("unroll {}", axis(last - 1)));
        }
    }
}

/// Rows and vectors of the tile with the most multiply-adds a load, among
/// those whose accumulators hide the latency of a multiply-add and leave
/// registers for operands; rows that divide are preferred.
fn default_tile(rows: Option<i64>, vectors: i64, registers: i64) -> (i64, i64) {
    let most = if registers >= 32 { 16 } else { 12 };
    let mut best = (1, 1);
    let mut score = 0.0;
    for v in (1..=4).filter(|v| vectors % v == 0) {
        for t in 1..=rows.unwrap_or(1).min(most / v) {
            let divides = rows.is_none_or(|r| r % t == 0);
            let waste = if divides { 1.0 } else { 0.8 };
            let intensity = (t * v) as f64 / (t + v) as f64 * waste;
            if intensity > score {
                (best, score) = ((t, v), intensity);
            }
        }
    }
    best
}
