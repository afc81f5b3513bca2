//! Attention by rows with both products in tiles: a product, the softmax of its rows, which are
//! stored in bf16, and a product with these weights, for a few tiles of rows at a time.
//!
//! The right operands lie in panels of columns, two terms of a column side by side.

use super::tiles::Tiles;
use super::{Dot, DotSum};
use crate::draft::{Decided, Draft, REST, Written, given};
use crate::nests::{Nest, ids};
use crate::templates::attention::{Softmax, row_widths, share_heads};
use crate::templates::gemm::{Packing, Shape};
use crate::templates::registers::Registers;
use crate::templates::{Templates, nest};
use ir::names::{KEYS, LOGITS, MAIN, OUT, SCORES, VALUES};
use ir::{CpuTarget, LoopId, Program, Scope};

/// Vectors of columns of a panel, at most.
const MOST_VECTORS: i64 = 4;

/// The blocks of attention in tiles.
struct Form<'a> {
    /// The first and the second product, each with what follows it.
    sums: [DotSum<'a>; 2],
    shapes: [Shape; 2],
    softmax: Softmax<'a>,
    /// The right operands.
    rights: [&'a Nest; 2],
    out: &'a Nest,
    /// Copies of operands, which are made before.
    copies: Vec<&'a Nest>,
    target: &'a CpuTarget,
}

/// Decisions of one product.
struct Panel {
    columns: Decided,
    steps: Decided,
}

/// The sketch of a program of attention in tiles; none for others.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Some(form) = Form::of(program, all, target) else {
        return;
    };
    let [Some(first), Some(second)] = form.sums.each_ref().map(DotSum::tiles) else {
        return;
    };
    let draft = Draft::new("attention.tiles", program);
    found.write(draft, |d| form.write(d, [&first, &second]));
}

impl<'a> Form<'a> {
    fn of(program: &Program, all: &'a [Nest], target: &'a CpuTarget) -> Option<Form<'a>> {
        let named = |name: &str| all.iter().find(|n| n.name == name);
        let rights = [named(KEYS.as_str())?, named(VALUES.as_str())?];
        let (scores, main) = (named(SCORES.as_str())?, named(MAIN.as_str())?);
        let (logits, out) = (named(LOGITS.as_str()), named(OUT.as_str())?);
        let shapes = [Shape::of(program, scores)?, Shape::of(program, main)?];
        let product = |main, out| {
            Some(DotSum {
                main,
                out,
                target,
                registers: Registers::of(target),
                dot: super::dot(program, main, target)?,
            })
        };
        let copies = all
            .iter()
            .filter(|n| n.name.ends_with(schedule::SUFFIX_READ));
        Some(Form {
            sums: [product(scores, logits)?, product(main, Some(out))?],
            shapes,
            softmax: Softmax::of(all)?,
            rights,
            out,
            copies: copies.collect(),
            target,
        })
    }

    fn dot(&self) -> &Dot {
        &self.sums[0].dot
    }

    fn lanes(&self) -> i64 {
        self.sums[0].lanes()
    }

    fn write(&self, d: &mut Draft, tiles: [&Tiles<'_>; 2]) -> Written<()> {
        let scores = &self.shapes[0];
        let (rows, times) = tiles[0].choose_rows(d, scores);
        let names = [["score_columns", "score_steps"], ["columns", "steps"]];
        let [first, second] = [0, 1].map(|at| self.panel(d, tiles[at], at, names[at]));
        for (at, panel) in [&first, &second].into_iter().enumerate() {
            tiles[at].limit(d, &[times.value()], panel.columns.value(), self.lanes());
        }
        let options = row_widths(self.lanes(), scores.n());
        let width = d.choose("width", &options, 4 * self.lanes()).value();
        for n in &self.copies {
            nest::schedule(d, n, self.target, &nest::Style::PLAIN)?;
        }
        for (at, panel) in [&first, &second].into_iter().enumerate() {
            self.write_right(d, at, panel)?;
        }
        let tile = [rows, times];
        let outer = self.write_scores(d, &first, tile)?;
        let place = outer[outer.len() - 1];
        let column = self.softmax.write_under(d, place)?;
        self.write_main(d, &second, tile, place)?;
        let place = share_heads(d, &scores.batch, &outer, self.target)?;
        let passes = self.softmax.passes(d, column, width)?;
        for l in passes.into_iter().chain([place]) {
            d.attempt_partition(l);
        }
        Ok(())
    }

    fn panel(&self, d: &mut Draft, tiles: &Tiles<'_>, at: usize, names: [&str; 2]) -> Panel {
        let s = &self.shapes[at];
        let vectors = (s.n() + self.lanes() - 1) / self.lanes();
        let widths = (1..=MOST_VECTORS.min(vectors)).map(|v| v * self.lanes());
        let columns = d.choose(names[0], &widths.collect::<Vec<i64>>(), 2 * self.lanes());
        let steps = tiles.choose_steps(d, names[1], s);
        Panel { columns, steps }
    }

    /// The right operand of a product, in panels.
    fn write_right(&self, d: &mut Draft, at: usize, panel: &Panel) -> Written<()> {
        let (n, terms) = (self.rights[at], self.dot().terms);
        let [batch @ .., row, column] = &n.spatial[..] else {
            return Err(d.missing("a right operand has rows and columns".into()));
        };
        let columns = panel.columns.value();
        d.pad(column.id, columns)?;
        d.pad(self.shapes[at].columns.id, columns)?;
        let fours = Packing::of_rows(n.spatial.len()).fours(columns, terms);
        d.lay_out(self.shapes[at].right, &fours.0, &fours.1)?;
        let [pairs, term] = d.split(row.id, [REST, given(terms)])?;
        let [vectors, lane] = d.split(column.id, [REST, given(self.lanes())])?;
        let outer = [&ids(batch)[..], &[vectors, pairs]].concat();
        d.reorder(&[&outer[..], &[lane, term]].concat())?;
        let vector = d.fuse(lane, term)?;
        d.vectorize_if_legal(vector);
        d.share_copy(&outer, self.target.threads)?;
        d.attempt_partition(pairs);
        Ok(())
    }

    /// The first product, whose results leave tile by tile; the loops over heads and groups of
    /// tiles of rows.
    fn write_scores(
        &self,
        d: &mut Draft,
        panel: &Panel,
        [rows, times]: [Decided; 2],
    ) -> Written<Vec<LoopId>> {
        let (s, sum) = (&self.shapes[0], &self.sums[0]);
        let columns = panel.columns.value();
        let Some(m) = &s.rows else {
            return Err(d.missing("the product has no rows".into()));
        };
        let result = sum.keep(d, Scope::Local)?;
        let [m0, tile, row] = d.split(m.id, [REST, times.value().into(), rows.value().into()])?;
        let [n0, inner] = d.split(s.columns.id, [REST, columns.into()])?;
        let [vectors, lane] = d.split(inner, [REST, given(self.lanes())])?;
        let [k0, term] = d.split(s.terms.id, [REST, given(sum.dot.terms)])?;
        let [k0, step] = d.split(k0, [REST, panel.steps.value().into()])?;
        let mut outer = ids(&s.batch);
        outer.push(m0);
        let inner = [n0, k0, tile, vectors, row, step, lane, term];
        d.reorder(&[&outer[..], &inner].concat())?;
        let own = d.reverse_compute_at(result, n0)?;
        self.leave(d, own[own.len() - 1])?;
        sum.instructions(d, lane, &[tile, vectors], k0)?;
        Ok(outer)
    }

    /// The second product and what follows it, under `place`.
    fn write_main(
        &self,
        d: &mut Draft,
        panel: &Panel,
        [rows, times]: [Decided; 2],
        place: LoopId,
    ) -> Written<()> {
        let sum = &self.sums[1];
        let columns = panel.columns.value();
        d.set_scope(d.output(sum.main.block), Scope::Local)?;
        let own = d.reverse_compute_at(sum.main.block, place)?;
        d.reverse_compute_at(self.out.block, place)?;
        let [.., m, n, k] = own[..] else {
            return Err(d.missing("weights have rows and columns".into()));
        };
        let [m0, tile, row] = d.split(m, [REST, times.value().into(), rows.value().into()])?;
        let [n0, inner] = d.split(n, [REST, columns.into()])?;
        let [vectors, lane] = d.split(inner, [REST, given(self.lanes())])?;
        let [k0, term] = d.split(k, [REST, given(sum.dot.terms)])?;
        let [k0, step] = d.split(k0, [REST, panel.steps.value().into()])?;
        d.reorder(&[n0, m0, k0, tile, vectors, row, step, lane, term])?;
        let own = d.reverse_compute_at(self.out.block, m0)?;
        self.leave(d, own[own.len() - 1])?;
        sum.instructions(d, lane, &[tile, vectors], k0)
    }

    /// Whole vectors of what leaves a tile.
    fn leave(&self, d: &mut Draft, columns: LoopId) -> Written<()> {
        let [vectors, lane] = d.split(columns, [REST, given(self.lanes())])?;
        d.vectorize(lane)?;
        d.unroll(vectors)
    }
}
