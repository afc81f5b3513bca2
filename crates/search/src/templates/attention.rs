//! Attention by rows: a product, the softmax of its rows, and a product with these
//! weights, for a few rows at a time, whose scores stay in the nearest caches.
//!
//! Both products have register tiles as `gemm` has; the first one's right operand is in
//! panels, and the second one's where its rows are no whole vectors. A tile of rows of
//! one head is computed whole before the next one begins; threads share these tiles.

use super::gemm::{Packing, Shape};
use super::registers::{Registers, limit_unrolled, products_a_load, wanted_part};
use super::{Templates, nest};
use crate::draft::{Decided, DecidedPart, Draft, REST, Written, given};
use crate::nests::{AxisLoop, Nest, ids};
use ir::names::{LOGITS, MAIN, OUT, SCORES};
use ir::{BlockId, CpuTarget, LoopId, Program, Scope};

/// Multiply-adds in one unrolled body, at most. Chosen by hand; not measured apart.
const MOST_UNROLLED: i64 = 128;
/// Rows and vectors of a register tile, at most.
const MOST: (i64, i64) = (14, 4);
/// Register tiles of rows in a tile of rows: the right operands pass through the caches
/// once for all of them.
const TIMES: [i64; 4] = [1, 2, 4, 8];
/// Rows of a tile to begin with, at least, where their scores fit the second-level cache.
const ROWS: i64 = 16;
/// Part of the threads' time that heads of equal size must fill to be shared whole.
const BALANCED: f64 = 0.93;
/// Vectors side by side in a pass over a row of scores: most, and by default.
const SIDE_BY_SIDE: (i64, i64) = (8, 4);

/// The sketch of a program of attention; none for others.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Some(form) = Form::of(program, all, target) else {
        return;
    };
    found.write(Draft::new("attention", program), |d| form.write(d));
}

/// The blocks of attention.
struct Form<'a> {
    target: &'a CpuTarget,
    scores: &'a Nest,
    logits: Option<&'a Nest>,
    softmax: Softmax<'a>,
    main: &'a Nest,
    out: &'a Nest,
    /// Copies of operands, which are made before.
    copies: Vec<&'a Nest>,
    /// Of the first and of the second product.
    shapes: [Shape; 2],
    /// How the right operand of the second product is packed, if it is.
    packing: Option<Packing>,
}

/// Decisions of attention.
struct Decisions {
    /// Rows of a register tile, and such tiles in a tile of rows.
    rows: Decided,
    times: Decided,
    /// Columns of the register tiles of both products.
    columns: [Decided; 2],
    /// Terms of both products in one unrolled body.
    unroll: [Decided; 2],
    /// Elements side by side in a pass over a row.
    width: Decided,
}

impl<'a> Form<'a> {
    fn of(program: &Program, all: &'a [Nest], target: &'a CpuTarget) -> Option<Form<'a>> {
        let named = |name: &str| all.iter().find(|n| n.name == name);
        let (scores, main) = (named(SCORES.as_str())?, named(MAIN.as_str())?);
        let logits = named(LOGITS.as_str());
        let shapes = [Shape::of(program, scores)?, Shape::of(program, main)?];
        let [first, second] = &shapes;
        first.packing?;
        let lanes = second.lanes(target);
        let whole = second.n() % lanes == 0 && second.packing.is_none_or(|p| !p.transposed);
        let packing = second.packing.filter(|_| !whole);
        let copies = all
            .iter()
            .filter(|n| n.name.ends_with(schedule::SUFFIX_READ));
        let form = Form {
            target,
            scores,
            logits,
            softmax: Softmax::of(all)?,
            main,
            out: named(OUT.as_str())?,
            copies: copies.collect(),
            shapes,
            packing,
        };
        let rows = form.shapes.iter().all(|s| s.rows.is_some());
        let fits = rows && form.shapes[0].n() >= lanes && (whole || packing.is_some());
        let own = all.len() - form.copies.len();
        (fits && own == 7 + usize::from(logits.is_some())).then_some(form)
    }

    fn lanes(&self) -> i64 {
        self.shapes[1].lanes(self.target)
    }

    /// Columns of a register tile of a product that can be chosen: without padding they
    /// divide the product's columns.
    fn columns(&self, at: usize) -> Vec<i64> {
        let n = self.shapes[at].n();
        let padded = at == 0 || self.packing.is_some();
        let vectors = (n + self.lanes() - 1) / self.lanes();
        let widths = (1..=MOST.1.min(vectors)).map(|v| v * self.lanes());
        widths.filter(|w| padded || n % w == 0).collect()
    }

    /// The rows and columns of the register tile to begin with, for the second product:
    /// of those that fit the one with the most products a load.
    fn tile(&self) -> (i64, i64) {
        let second = &self.shapes[1];
        let registers = Registers::without(self.target, 2);
        let gain = |(t, c): (i64, i64)| {
            let wanted = wanted_part(second.m(), t) * wanted_part(second.n(), c);
            products_a_load(t, c / self.lanes()) * wanted
        };
        let columns = self.columns(1);
        let all = (1..=MOST.0).flat_map(|t| columns.iter().map(move |c| (t, *c)));
        let fitting = all.filter(|(t, c)| registers.fit(*t, c / self.lanes()));
        let best = fitting.max_by(|a, b| gain(*a).total_cmp(&gain(*b)));
        best.unwrap_or((1, self.lanes()))
    }

    fn decide(&self, d: &mut Draft) -> Decisions {
        let (m, lanes) = (self.shapes[0].m(), self.lanes());
        let (t, c) = self.tile();
        let options: Vec<i64> = (1..=MOST.0.min(m)).collect();
        let rows = d.choose("rows", &options, t);
        let row_bytes = self.shapes[0].n() * self.shapes[0].bytes();
        // Scores and their powers, beside as much of the right operands.
        let most = (self.target.l2_bytes as i64 / 4 / row_bytes / t)
            .min(m / t)
            .max(1);
        let times = d.choose("times", &TIMES, most.min((ROWS + t - 1) / t));
        // No register tile of the first tile of rows lies outside the rows.
        let tile = [rows.value(), times.value()];
        d.limit("rows of a tile", &[(1, &tile)], m);
        let columns = [0, 1].map(|at| {
            let name = ["score_columns", "columns"][at];
            d.choose(name, &self.columns(at), c)
        });
        let unroll = [0, 1].map(|at| {
            let k = self.shapes[at].k();
            let divisors: Vec<i64> = (1..=8).filter(|u| k % u == 0).collect();
            d.choose(["unroll_scores", "unroll"][at], &divisors, 2)
        });
        let widths = row_widths(lanes, self.shapes[0].n());
        let width = d.choose("width", &widths, lanes.max(2) * SIDE_BY_SIDE.1);
        for at in [0, 1] {
            let (columns, unroll) = (columns[at].value(), unroll[at].value());
            let registers = Registers::of(self.target);
            registers.limit(d, &[rows.value()], columns, lanes);
            let body = [rows.value(), columns, unroll];
            limit_unrolled(d, 1, &body, MOST_UNROLLED * lanes);
        }
        Decisions {
            rows,
            times,
            columns,
            unroll,
            width,
        }
    }

    fn write(&self, d: &mut Draft) -> Written<()> {
        let decided = self.decide(d);
        for n in &self.copies {
            nest::schedule(d, n, self.target, &nest::Style::PLAIN)?;
        }
        let width = decided.width.value();
        let (outer, panels) = self.write_scores(d, &decided)?;
        let place = outer[outer.len() - 1];
        let column = self.softmax.write_under(d, place)?;
        self.write_main(d, &decided, place)?;
        let place = share_heads(d, &self.shapes[0].batch, &outer, self.target)?;
        let passes = self.softmax.passes(d, column, width)?;
        for l in passes.into_iter().chain([panels, place]) {
            d.attempt_partition(l);
        }
        Ok(())
    }

    /// The first product, whose results leave the registers tile by tile; the loops over
    /// heads and tiles of rows, and the one over panels.
    fn write_scores(&self, d: &mut Draft, decided: &Decisions) -> Written<(Vec<LoopId>, LoopId)> {
        let (s, block) = (&self.shapes[0], self.scores.block);
        let width = decided.columns[0].value();
        let result = match self.logits {
            Some(logits) => {
                d.set_scope(d.output(block), Scope::Register)?;
                logits.block
            }
            None => d.keep_in_registers(block)?,
        };
        d.pad(s.columns.id, width)?;
        self.pack(d, s, s.packing, width)?;
        let m = s.rows.as_ref().map_or(s.columns.id, |m| m.id);
        let (rows, times) = (decided.rows.value(), decided.times.value());
        let [m0, m1, m2] = d.split(m, [REST, times.into(), rows.into()])?;
        let [n0, panel] = d.split(s.columns.id, [REST, width.into()])?;
        let [n1, n2] = d.split(panel, [REST, given(self.lanes())])?;
        let [k0, k1] = d.split(s.terms.id, [REST, decided.unroll[0].value().into()])?;
        let mut outer = ids(&s.batch);
        outer.push(m0);
        let inner = [n0, m1, k0, k1, m2, n1, n2];
        d.reorder(&[&outer[..], &inner].concat())?;
        self.leave_registers(d, result, m1)?;
        self.unroll(d, block, k0, [k1, m2, n1], n2)?;
        Ok((outer, n0))
    }

    /// The second product and what follows it, under `place`.
    fn write_main(&self, d: &mut Draft, decided: &Decisions, place: LoopId) -> Written<()> {
        let (s, block) = (&self.shapes[1], self.main.block);
        let width = decided.columns[1].value();
        d.set_scope(d.output(block), Scope::Register)?;
        if self.packing.is_some() {
            d.pad(s.columns.id, width)?;
        }
        let own = d.reverse_compute_at(block, place)?;
        d.reverse_compute_at(self.out.block, place)?;
        self.pack(d, s, self.packing, width)?;
        let [.., m, n, k] = own[..] else {
            return Err(d.missing("weights have rows and columns".into()));
        };
        let [m0, m1] = d.split(m, [REST, decided.rows.value().into()])?;
        let [n0, panel] = d.split(n, [REST, width.into()])?;
        let [n1, n2] = d.split(panel, [REST, given(self.lanes())])?;
        let [k0, k1] = d.split(k, [REST, decided.unroll[1].value().into()])?;
        d.reorder(&[n0, m0, k0, k1, m1, n1, n2])?;
        self.leave_registers(d, self.out.block, m0)?;
        self.unroll(d, block, k0, [k1, m1, n1], n2)
    }

    /// Lays a right operand out in panels, if it is to be packed.
    fn pack(
        &self,
        d: &mut Draft,
        s: &Shape,
        packing: Option<Packing>,
        width: DecidedPart,
    ) -> Written<()> {
        let Some(p) = packing else {
            return Ok(());
        };
        let copier = d.pack(s.right, &p.tiles(width), &p.order())?;
        if !p.each_call {
            return Ok(());
        }
        let [terms, columns] = d.packed_along(copier, [p.dims - 1, p.dims])?;
        let [vectors, lane] = d.split(columns, [REST, given(self.lanes())])?;
        if p.transposed {
            d.reorder_if_legal(&[vectors, terms, lane]);
        }
        d.vectorize_if_legal(lane);
        d.share_panels(copier, p.dims, self.target.threads)?;
        Ok(())
    }

    /// The block that takes the results of a register tile, under the loop of tiles.
    fn leave_registers(&self, d: &mut Draft, result: BlockId, tiles: LoopId) -> Written<()> {
        let own = d.reverse_compute_at(result, tiles)?;
        let [.., rows, columns] = own[..] else {
            return Err(d.missing("a product has rows and columns".into()));
        };
        let [vectors, lane] = d.split(columns, [REST, given(self.lanes())])?;
        d.vectorize(lane)?;
        d.unroll(vectors)?;
        d.unroll(rows)
    }

    /// Unrolls the loops of a register tile round its vectors.
    fn unroll(
        &self,
        d: &mut Draft,
        block: BlockId,
        terms: LoopId,
        tile: [LoopId; 3],
        lane: LoopId,
    ) -> Written<()> {
        d.vectorize(lane)?;
        for l in tile {
            d.unroll(l)?;
        }
        d.decompose_reduction(block, terms).map(drop)
    }
}

/// Lets threads share the heads, or tiles of rows of all heads where heads alone leave
/// threads idle; the loop over tiles of rows.
pub fn share_heads(
    d: &mut Draft,
    batch: &[AxisLoop],
    outer: &[LoopId],
    target: &CpuTarget,
) -> Written<LoopId> {
    let (place, heads) = (outer[outer.len() - 1], &outer[..outer.len() - 1]);
    let count: i64 = batch.iter().map(|b| b.extent).product();
    let even = wanted_part(count, i64::from(target.threads)) >= BALANCED;
    let place = match even && !heads.is_empty() {
        true => d.parallel(heads, target.threads)?.map(|_| place),
        false => d.parallel(outer, target.threads)?,
    };
    d.run_parallel()?;
    Ok(place.unwrap_or(outer[outer.len() - 1]))
}

/// The blocks of a softmax over rows of scores.
pub struct Softmax<'a> {
    max: &'a Nest,
    powers: &'a Nest,
    sum: &'a Nest,
    inverse: &'a Nest,
}

impl<'a> Softmax<'a> {
    pub fn of(all: &'a [Nest]) -> Option<Softmax<'a>> {
        let named = |name: &str| all.iter().find(|n| n.name == name);
        Some(Softmax {
            max: named("max")?,
            powers: named("e")?,
            sum: named("sum")?,
            inverse: named("inverse")?,
        })
    }

    /// Row by row under `place`, the loop over tiles of rows; the loop over a row's powers.
    pub fn write_under(&self, d: &mut Draft, place: LoopId) -> Written<LoopId> {
        d.reverse_compute_at(self.max.block, place)?;
        let own = d.reverse_compute_at(self.powers.block, place)?;
        let [.., row, column] = own[..] else {
            return Err(d.missing("scores have rows and columns".into()));
        };
        d.reverse_compute_at(self.sum.block, row)?;
        d.reverse_compute_at(self.inverse.block, row)?;
        d.compute_at(self.max.block, row)?;
        Ok(column)
    }

    /// Vectors in the passes over a row; the loops over these.
    pub fn passes(
        &self,
        d: &mut Draft,
        column: LoopId,
        width: DecidedPart,
    ) -> Written<Vec<LoopId>> {
        let mut passes = Vec::new();
        for n in [self.max, self.sum] {
            passes.push(reduce_row(d, n.block, width)?);
        }
        let [vectors, lane] = d.split(column, [REST, width.into()])?;
        d.vectorize(lane)?;
        passes.push(vectors);
        Ok(passes)
    }
}

/// Partial results of a row's reduction in registers, one a lane, and one result of
/// these; the loop over the vectors of a row.
fn reduce_row(d: &mut Draft, block: BlockId, width: DecidedPart) -> Written<LoopId> {
    let [terms] = d.along(block, ["r"])?;
    let [terms, lane] = d.split(terms, [REST, width.into()])?;
    let partial = d.rfactor(lane)?;
    d.reorder(&[terms, lane])?;
    d.set_scope(d.output(partial), Scope::Register)?;
    d.vectorize(lane)?;
    d.decompose_reduction(partial, terms)?;
    let [part] = d.along(block, [crate::draft::PART])?;
    d.decompose_reduction(block, part)?;
    d.unroll(part)?;
    Ok(terms)
}

/// Elements side by side in a pass over a row of `n`. One part of a row would be no partial
/// result.
pub fn row_widths(lanes: i64, n: i64) -> Vec<i64> {
    let least = lanes.max(2);
    let widths = (0..).map(|i| least << i);
    let fits = |w: &i64| *w <= least * SIDE_BY_SIDE.0 && *w <= n;
    widths.take_while(fits).collect()
}
