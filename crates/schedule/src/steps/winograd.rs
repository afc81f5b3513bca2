//! winograd{block, tile}: compute a convolution by minimal filtering.
//!
//! The block sums products of data and weights over windows of `r x s` taps.
//! Its outputs are cut into tiles of `m x m`; a tile needs `m + r - 1` by
//! `m + s - 1` elements of data. For a block `main` with the spatial variables
//! y and x, the reduction variables r and s and any others there are then
//!
//! | block | computes |
//! |---|---|
//! | `main.g` | rows of the weight transform `[e, s, sums.., maps..]` |
//! | `main.u` | transformed weights `[e, f, sums.., maps..]` |
//! | `main.d` | data with its borders `[.., y, x, ..]`: zeros where the data's guards fail |
//! | `main.b` | rows of the data transform `[e, j, .., ty, tx, ..]` |
//! | `main.v` | transformed data `[e, f, .., ty, tx, ..]` |
//! | `main.m` | products summed over the other reduction variables `[e, f, .., ty, tx, ..]` |
//! | `main.p` | rows of the output transform `[dy, f, .., ty, tx, ..]` |
//! | `main` | the outputs, a sum over f |
//!
//! Where there are no points for as many taps, but the window axis has few outputs, as in the gradient of a
//! convolution's weights, the roles change: all outputs are one tile, and the taps are cut into parts of `m`. `tr` and
//! `ts` count the parts; they are sums like any other.
//!
//! `main.g` and `main.u` depend on constants only where the weights do.
//! Exact in real arithmetic; in floating point the error grows with the tile
//! (see [`crate::Step::is_exact`]). Lavin and Gray 2015, eq. 12.

use crate::cook_toom::{Filtering, Matrix, filtering};
use crate::illegal::Illegal;
use crate::nest::{guarded_inside, insert_after, is_padded, live_name, path, renest, whole_domain};
use crate::steps::block_named;
use ir::affine::Affine;
use ir::region::program_ranges;
use ir::{
    BinaryOp, Block, BlockId, Buffer, BufferId, DType, Expr, ExprKind, Iter, IterKind, Node,
    Program, Reducer, Reduction, Role, Scope, VarId, Write,
};

pub(crate) const STEP: &str = "winograd";

/// Gives the blocks `g`, `u`, `d`, `b`, `v`, `m` and `p`, in this order.
pub(crate) fn apply(
    program: &mut Program,
    block: &str,
    tile: i64,
) -> Result<[BlockId; 7], Illegal> {
    let b = block_named(program, STEP, block)?;
    let mut conv = Conv::of(program, b, tile).map_err(|why| Illegal::new(STEP, block, why))?;
    conv.cut_taps(program);
    Ok(conv.rewrite(program))
}

/// A convolution of two window axes, and what its tiles need.
struct Conv {
    block: BlockId,
    name: String,
    dtype: DType,
    /// All spatial variables.
    order: Vec<VarId>,
    /// Without y and x, in the block's order; y and x.
    spatial: Vec<Axis>,
    window: [Axis; 2],
    /// Without r and s; r and s.
    reduce: Vec<Axis>,
    taps: [Axis; 2],
    data: Expr,
    weights: Expr,
    sizes: [Sizes; 2],
}

/// Along a window axis.
struct Sizes {
    /// Of a tile.
    outputs: i64,
    /// Of a part: all, or some of many.
    taps: i64,
    filtering: Filtering,
}

#[derive(Clone)]
struct Axis {
    var: VarId,
    name: String,
    extent: i64,
}

impl Conv {
    fn of(p: &Program, b: BlockId, tile: i64) -> Result<Conv, String> {
        let block = p.block(b);
        let sum = block.reduction.as_ref();
        if !sum.is_some_and(|r| r.reducer == Reducer::Sum && r.init) || block.tensor.is_some() {
            return Err("it is not a sum that initialises its own accumulators".into());
        }
        let [write] = &block.writes[..] else {
            return Err("it writes more than one buffer".into());
        };
        let dtype = p.buffer(write.buffer).dtype;
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(format!(
                "it sums {dtype}, and the transforms need fractions"
            ));
        }
        if !own_loops(p, b) {
            return Err("it no longer has its own loops: this step comes first".into());
        }
        let ExprKind::Binary(BinaryOp::Mul, left, right) = write.value.kind() else {
            return Err("it does not sum products".into());
        };
        let axes = |kind: IterKind| -> Vec<Axis> {
            let all = block.iters.iter().filter(|i| i.kind == kind);
            all.map(|i| Axis {
                var: i.var,
                name: p.var(i.var).name.clone(),
                extent: i.extent,
            })
            .collect()
        };
        let (spatial, reduce) = (axes(IterKind::Spatial), axes(IterKind::Reduce));
        let pairs = |data: &Expr, weights: &Expr| windows(&spatial, &reduce, data, weights);
        let (data, weights, found) = match (pairs(left, right), pairs(right, left)) {
            (found, _) if found.len() == 2 => (left, right, found),
            (_, found) if found.len() == 2 => (right, left, found),
            _ => return Err("it has not exactly two window axes of stride 1".into()),
        };
        // The last tiles read more than the outputs need.
        let padded = |e: &Expr| matches!(e.kind(), ExprKind::Load(b, _) if is_padded(p, *b));
        if data.any(&padded) {
            return Err("its data are packed with padding, which tiles would read".into());
        }
        let size = |i: usize| {
            let (window, taps) = (found[i].0.extent, found[i].1.extent);
            Sizes::of(window, taps, tile)
        };
        let left_of = |all: &[Axis], used: [&Axis; 2]| -> Vec<Axis> {
            let free = all.iter().filter(|a| used.iter().all(|u| u.var != a.var));
            free.cloned().collect()
        };
        Ok(Conv {
            block: b,
            name: block.name.clone(),
            dtype,
            order: spatial.iter().map(|a| a.var).collect(),
            spatial: left_of(&spatial, [&found[0].0, &found[1].0]),
            reduce: left_of(&reduce, [&found[0].1, &found[1].1]),
            window: [found[0].0.clone(), found[1].0.clone()],
            taps: [found[0].1.clone(), found[1].1.clone()],
            data: data.clone(),
            weights: weights.clone(),
            sizes: [size(0)?, size(1)?],
        })
    }

    /// Makes many taps parts, and one part of them the taps. The last part may reach past the weights: zeros there.
    fn cut_taps(&mut self, p: &mut Program) {
        for (taps, sizes) in self.taps.iter_mut().zip(&self.sizes) {
            let (all, each) = (taps.extent, sizes.taps);
            if all == each {
                continue;
            }
            let name = format!("t{}", taps.name);
            let part = p.add_var(&name);
            let own = p.add_var(&taps.name);
            let tap = Expr::var(part) * each + Expr::var(own);
            let map = [(taps.var, tap.clone())];
            self.data = put(&self.data, &map);
            self.weights = put(&self.weights, &map);
            if all % each != 0 {
                let inside = tap.lt(all);
                let zero = Expr::constant(0.0, self.dtype);
                self.weights = Expr::select(inside, self.weights.clone(), zero);
            }
            self.reduce.push(Axis {
                var: part,
                name,
                extent: (all + each - 1) / each,
            });
            taps.var = own;
            taps.extent = each;
        }
    }

    /// Elements of a tile of data along a window axis.
    fn size(&self, axis: usize) -> i64 {
        let sizes = &self.sizes[axis];
        sizes.outputs + sizes.taps - 1
    }

    fn tiles(&self, axis: usize) -> i64 {
        let outputs = self.sizes[axis].outputs;
        (self.window[axis].extent + outputs - 1) / outputs
    }

    /// `t{axis}` with the number of tiles.
    fn tile_axis(&self, axis: usize) -> (String, i64) {
        (format!("t{}", self.window[axis].name), self.tiles(axis))
    }

    /// The axes among `all` that an operand depends on.
    fn used(all: &[Axis], operand: &Expr) -> Vec<Axis> {
        let used = all.iter().filter(|a| operand.uses_var(a.var));
        used.cloned().collect()
    }

    fn rewrite(&self, p: &mut Program) -> [BlockId; 7] {
        let home = path(p, Node::Block(self.block))[0];
        let ([g, u], weights) = self.weights(p);
        let d = self.borders(p);
        let ([b, v], transformed) = self.transformed(p, d.1);
        let m = self.products(p, weights, transformed);
        let rows = self.output_rows(p, m.1);
        let nest = |p: &mut Program, block| {
            let spans = whole_domain(p.block(block));
            renest(p, block, &spans, &[])
        };
        let blocks = [g, u, d.0, b, v, m.0, rows.0];
        let nests = blocks.map(|block| nest(p, block));
        p.replace_node(Node::Loop(home), &nests);
        self.outputs(p, rows.1);
        let last = nest(p, self.block);
        insert_after(p, None, nests[nests.len() - 1], last);
        blocks
    }

    /// `g[e, s, ..] = sum over r of G[e, r] w(.., r, s)` and
    /// `u[e, f, ..] = sum over s of G[f, s] g[e, s, ..]`.
    fn weights(&self, p: &mut Program) -> ([BlockId; 2], BufferId) {
        // Sums first: maps are neighbours.
        let own = [&self.reduce[..], &self.spatial].concat();
        let own = Conv::used(&own, &self.weights);
        let mut n = Part::new(self, "g");
        let e = n.axis(p, "e", self.size(0));
        let s = n.axis(p, &self.taps[1].name, self.taps[1].extent);
        let vars = n.copies(p, &own);
        let r = n.reduce(p, &self.taps[0].name, self.taps[0].extent);
        let mut map = renamed(&own, &vars);
        map.push((self.taps[0].var, r.clone()));
        map.push((self.taps[1].var, s.clone()));
        let w = put(&self.weights, &map);
        let term = self.term(&self.sizes[0].filtering.filter, &e, &r, w);
        let (first, g) = n.finish(p, self.dtype, &[&[e, s][..], &vars].concat(), term);

        let mut n = Part::new(self, "u");
        let [e, f] = [0, 1].map(|i| n.axis(p, ["e", "f"][i], self.size(i)));
        let vars = n.copies(p, &own);
        let s = n.reduce(p, &self.taps[1].name, self.taps[1].extent);
        let load = Expr::load(g, [&[e.clone(), s.clone()][..], &vars].concat());
        let term = self.term(&self.sizes[1].filtering.filter, &f, &s, load);
        let (second, u) = n.finish(p, self.dtype, &[&[e, f][..], &vars].concat(), term);
        ([first, second], u)
    }

    /// `d[.., y, x, ..]`: what the tiles read, borders included.
    fn borders(&self, p: &mut Program) -> (BlockId, BufferId) {
        let own = [&self.spatial[..], &self.reduce].concat();
        let own = Conv::used(&own, &self.data);
        let before = own
            .iter()
            .take_while(|a| self.spatial.iter().any(|s| s.var == a.var));
        let split = before.count();
        let mut n = Part::new(self, "d");
        let mut vars = n.copies(p, &own[..split]);
        let extent = |i: usize| self.tiles(i) * self.sizes[i].outputs + self.taps[i].extent - 1;
        let at = [0, 1].map(|i| n.axis(p, &self.window[i].name, extent(i)));
        let rest = n.copies(p, &own[split..]);
        let indices = [&vars[..], &at, &rest].concat();
        vars.extend(rest);
        let mut map = renamed(&own, &vars);
        for (i, at) in at.iter().enumerate() {
            // Data depends on y + r only.
            map.push((self.window[i].var, at.clone()));
            map.push((self.taps[i].var, Expr::int(0)));
        }
        let data = put(&self.data, &map);
        let mut r = program_ranges(p);
        for i in &n.iters {
            r.set(i.var, 0, i.extent - 1);
        }
        // The last tiles reach past what the outputs need.
        let data = guarded_inside(p, &data, &r);
        n.finish(p, self.dtype, &indices, data)
    }

    /// `b[e, j, ..] = sum over i of B[e, i] d[.., y = m ty + i, x = m tx + j, ..]`
    /// and `v[e, f, ..] = sum over j of B[f, j] b[e, j, ..]`.
    fn transformed(&self, p: &mut Program, d: BufferId) -> ([BlockId; 2], BufferId) {
        let own = [&self.spatial[..], &self.reduce].concat();
        let own = Conv::used(&own, &self.data);
        let split = own
            .iter()
            .filter(|a| self.spatial.iter().any(|s| s.var == a.var))
            .count();
        let tiles = [self.tile_axis(0), self.tile_axis(1)];
        let mut n = Part::new(self, "b");
        let [e, j] = [0, 1].map(|i| n.axis(p, ["e", "j"][i], self.size(i)));
        let lead = n.copies(p, &own[..split]);
        let t = [0, 1].map(|i| n.axis(p, &tiles[i].0, tiles[i].1));
        let rest = n.copies(p, &own[split..]);
        let i = n.reduce(p, "i", self.size(0));
        let first = |axis: usize| &t[axis] * self.sizes[axis].outputs;
        let at = [first(0) + &i, first(1) + &j];
        let load = Expr::load(d, [&lead[..], &at, &rest].concat());
        let term = self.term(&self.sizes[0].filtering.data, &e, &i, load);
        let indices = [&[e, j][..], &lead, &t, &rest].concat();
        let (first, b) = n.finish(p, self.dtype, &indices, term);

        let mut n = Part::new(self, "v");
        let [e, f] = [0, 1].map(|i| n.axis(p, ["e", "f"][i], self.size(i)));
        let lead = n.copies(p, &own[..split]);
        let t = [0, 1].map(|i| n.axis(p, &tiles[i].0, tiles[i].1));
        let rest = n.copies(p, &own[split..]);
        let j = n.reduce(p, "j", self.size(1));
        let load = Expr::load(b, [&[e.clone(), j.clone()][..], &lead, &t, &rest].concat());
        let term = self.term(&self.sizes[1].filtering.data, &f, &j, load);
        let indices = [&[e, f][..], &lead, &t, &rest].concat();
        let (second, v) = n.finish(p, self.dtype, &indices, term);
        ([first, second], v)
    }

    /// `m[e, f, ..] = sum over the other reduction variables of v u`.
    fn products(&self, p: &mut Program, u: BufferId, v: BufferId) -> (BlockId, BufferId) {
        let mut n = Part::new(self, "m");
        let [e, f] = [0, 1].map(|i| n.axis(p, ["e", "f"][i], self.size(i)));
        let (all, t) = self.tiled(p, &mut n);
        let sums: Vec<Expr> = self
            .reduce
            .iter()
            .map(|a| n.reduce(p, &a.name, a.extent))
            .collect();
        let (outputs, terms) = (self.spatial.iter().zip(&all), self.reduce.iter().zip(&sums));
        let lead = |operand: &Expr| -> [Vec<Expr>; 2] {
            let vars = |(a, v): (&Axis, &Expr)| operand.uses_var(a.var).then(|| v.clone());
            let lead = outputs.clone().filter_map(vars).collect();
            [lead, terms.clone().filter_map(vars).collect()]
        };
        let at = [e.clone(), f.clone()];
        let ([maps, sums], [images, channels]) = (lead(&self.weights), lead(&self.data));
        let data = [&at[..], &images, &t, &channels].concat();
        let weights = [&at[..], &sums, &maps].concat();
        let value = Expr::load(v, data) * Expr::load(u, weights);
        let indices = [&[e, f][..], &self.in_order(&all, &t)].concat();
        n.finish(p, self.dtype, &indices, value)
    }

    /// Axes of outputs in the block's order, with tiles for y and x: the
    /// variables of the others, and those of the tiles.
    fn tiled(&self, p: &mut Program, n: &mut Part) -> (Vec<Expr>, [Expr; 2]) {
        let (mut all, mut tiles) = (Vec::new(), Vec::new());
        for v in &self.order {
            match self.window.iter().position(|w| w.var == *v) {
                Some(i) => {
                    let (name, extent) = self.tile_axis(i);
                    tiles.push(n.axis(p, &name, extent));
                }
                None => {
                    let axis = self.spatial.iter().find(|a| a.var == *v);
                    let axis = axis.expect("every other variable is listed");
                    all.push(n.axis(p, &axis.name, axis.extent));
                }
            }
        }
        let tiles = tiles.try_into().expect("there are two window axes");
        (all, tiles)
    }

    /// The block's order: `others` with `window` in the places of y and x.
    fn in_order(&self, others: &[Expr], window: &[Expr; 2]) -> Vec<Expr> {
        let of = |axes: &[Axis], vars: &[Expr], v: VarId| {
            let at = axes.iter().position(|a| a.var == v);
            at.map(|i| vars[i].clone())
        };
        let one = |v: &VarId| {
            of(&self.spatial, others, *v)
                .or_else(|| of(&self.window, window, *v))
                .expect("every variable is one or the other")
        };
        self.order.iter().map(one).collect()
    }

    /// `p[dy, f, ..] = sum over e of A[dy, e] m[e, f, ..]`.
    fn output_rows(&self, p: &mut Program, m: BufferId) -> (BlockId, BufferId) {
        let mut n = Part::new(self, "p");
        let dy = n.axis(
            p,
            &format!("d{}", self.window[0].name),
            self.sizes[0].outputs,
        );
        let f = n.axis(p, "f", self.size(1));
        let (all, t) = self.tiled(p, &mut n);
        let e = n.reduce(p, "e", self.size(0));
        let place = self.in_order(&all, &t);
        let load = Expr::load(m, [&[e.clone(), f.clone()][..], &place].concat());
        let term = self.term(&self.sizes[0].filtering.output, &dy, &e, load);
        n.finish(p, self.dtype, &[&[dy, f][..], &place].concat(), term)
    }

    /// Makes the block the sum over f of `A[dx, f] p[dy, f, ..]`.
    fn outputs(&self, p: &mut Program, rows: BufferId) {
        let f = p.add_var("f");
        let window = [0, 1].map(|i| Expr::var(self.window[i].var));
        let t = [0, 1].map(|i| window[i].clone().floor_div(self.sizes[i].outputs));
        let [dy, dx] = [0, 1].map(|i| window[i].clone().floor_mod(self.sizes[i].outputs));
        let others: Vec<Expr> = self.spatial.iter().map(|a| Expr::var(a.var)).collect();
        let place = self.in_order(&others, &t);
        let load = Expr::load(rows, [&[dy, Expr::var(f)][..], &place].concat());
        let value = self.term(&self.sizes[1].filtering.output, &dx, &Expr::var(f), load);
        let extent = self.size(1);
        let block = p.block_mut(self.block);
        block.iters.retain(|i| i.kind == IterKind::Spatial);
        block.iters.push(Iter {
            var: f,
            extent,
            kind: IterKind::Reduce,
            binding: Expr::int(0),
        });
        block.writes[0].value = value;
    }

    /// `matrix[row, column] * x`, nothing where the entry is 0.
    fn term(&self, matrix: &Matrix, row: &Expr, column: &Expr, x: Expr) -> Expr {
        let constant = |v: f64| Expr::constant(v, self.dtype);
        let mut factor = constant(1.0);
        let mut zero = Expr::bool(false);
        for (i, entries) in matrix.iter().enumerate() {
            for (j, entry) in entries.iter().enumerate() {
                let number = |n: usize| Expr::int(n as i64);
                let here = row
                    .clone()
                    .equals(number(i))
                    .and(column.clone().equals(number(j)));
                match entry.value() {
                    0.0 => zero = zero.or(here),
                    1.0 => {}
                    v => factor = Expr::select(here, constant(v), factor),
                }
            }
        }
        // The neutral element of addition: x + 0 would turn -0 into 0.
        Expr::select(zero, constant(-0.0), factor * x)
    }
}

impl Sizes {
    /// For so many outputs and taps, with tiles of `tile`.
    fn of(outputs: i64, taps: i64, tile: i64) -> Result<Sizes, String> {
        if tile < 2 || taps < 2 {
            return Err("tiles have at least 2 outputs, filters at least 2 taps".into());
        }
        let of = |outputs: i64, taps: i64| {
            let filtering = filtering(outputs as usize, taps as usize)?;
            Some(Sizes {
                outputs,
                taps,
                filtering,
            })
        };
        let cut = || of(outputs, tile).filter(|_| outputs > 1 && taps > tile);
        of(tile, taps)
            .or_else(cut)
            .ok_or_else(|| format!("no points for tiles of {tile} and {taps} taps"))
    }
}

/// A block being made.
struct Part {
    name: String,
    iters: Vec<Iter>,
}

impl Part {
    fn new(conv: &Conv, part: &str) -> Part {
        Part {
            name: format!("{}.{part}", conv.name),
            iters: vec![],
        }
    }

    fn add(&mut self, p: &mut Program, name: &str, extent: i64, kind: IterKind) -> Expr {
        let var = p.add_var(name);
        self.iters.push(Iter {
            var,
            extent,
            kind,
            binding: Expr::int(0),
        });
        Expr::var(var)
    }

    fn axis(&mut self, p: &mut Program, name: &str, extent: i64) -> Expr {
        self.add(p, name, extent, IterKind::Spatial)
    }

    fn reduce(&mut self, p: &mut Program, name: &str, extent: i64) -> Expr {
        self.add(p, name, extent, IterKind::Reduce)
    }

    fn copies(&mut self, p: &mut Program, axes: &[Axis]) -> Vec<Expr> {
        let copy = |a: &Axis| self.axis(p, &a.name, a.extent);
        axes.iter().map(copy).collect()
    }

    /// The block and its buffer, whose dimensions are `indices`: each of the
    /// spatial variables once.
    fn finish(
        self,
        p: &mut Program,
        dtype: DType,
        indices: &[Expr],
        value: Expr,
    ) -> (BlockId, BufferId) {
        let name = live_name(p, &self.name);
        let extent = |e: &Expr| {
            let of = self.iters.iter().find(|i| e.as_var() == Some(i.var));
            of.expect("an axis of the block").extent
        };
        let buffer = p.add_buffer(Buffer {
            name: name.clone(),
            dtype,
            shape: indices.iter().map(extent).collect(),
            scope: Scope::Global,
            role: Role::Intermediate,
            view: None,
        });
        let sums = self.iters.iter().any(|i| i.kind == IterKind::Reduce);
        let block = p.add_block(Block {
            name,
            iters: self.iters,
            predicate: None,
            writes: vec![Write {
                buffer,
                indices: indices.to_vec(),
                value,
            }],
            reduction: sums.then_some(Reduction {
                reducer: Reducer::Sum,
                init: true,
            }),
            tensor: None,
        });
        (block, buffer)
    }
}

/// Whether a block stands alone in a nest at the root, a plain loop for each variable.
fn own_loops(p: &Program, b: BlockId) -> bool {
    let loops = path(p, Node::Block(b));
    let block = p.block(b);
    let Some(first) = loops.first() else {
        return false;
    };
    let plain = |i: &Iter| {
        let mut loops = loops.iter();
        loops.any(|l| i.binding.as_var() == Some(p.loop_(*l).var) && p.loop_(*l).extent == i.extent)
    };
    block.predicate.is_none()
        && loops.len() == block.iters.len()
        && p.blocks_under(&[Node::Loop(*first)]) == [b]
        && block.iters.iter().all(plain)
}

/// Pairs of an output variable and a reduction variable, in the order of the
/// former: the data depend on their sum only, the weights on the latter only.
fn windows(spatial: &[Axis], reduce: &[Axis], data: &Expr, weights: &Expr) -> Vec<(Axis, Axis)> {
    let mut found = Vec::new();
    for y in spatial.iter().filter(|y| !weights.uses_var(y.var)) {
        for r in reduce.iter().filter(|r| weights.uses_var(r.var)) {
            if data.uses_var(y.var) && data.uses_var(r.var) && sums_only(data, y.var, r.var) {
                found.push((y.clone(), r.clone()));
            }
        }
    }
    // Otherwise a third variable would have to be the same in both operands.
    let window = |a: &Axis| found.iter().any(|(y, r)| y.var == a.var || r.var == a.var);
    let shared = |a: &&Axis| !window(a) && weights.uses_var(a.var) && data.uses_var(a.var);
    let mixed = spatial.iter().find(shared).is_some();
    if mixed { vec![] } else { found }
}

/// Whether an expression uses two variables in their sum only.
fn sums_only(e: &Expr, y: VarId, r: VarId) -> bool {
    if !e.uses_var(y) && !e.uses_var(r) {
        return true;
    }
    match Affine::of(e) {
        Some(a) => a.coefficient(y) == a.coefficient(r),
        None => e.as_var().is_none() && e.children().all(|child| sums_only(child, y, r)),
    }
}

fn renamed(axes: &[Axis], vars: &[Expr]) -> Vec<(VarId, Expr)> {
    let old = axes.iter().map(|a| a.var);
    old.zip(vars.iter().cloned()).collect()
}

fn put(e: &Expr, map: &[(VarId, Expr)]) -> Expr {
    e.substitute(&|v| map.iter().find(|(x, _)| *x == v).map(|(_, e)| e.clone()))
}
