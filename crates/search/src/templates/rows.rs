//! Programs that work row by row: softmax, layer normalisation and their like.
//!
//! All blocks of a row are computed under one loop over the rows, so that what
//! passes between them stays in the nearest cache and memory is passed over
//! once. A reduction of a row has a partial result for each of some lanes, and
//! combines them at the row's end. Any row longer than a vector will do: what is
//! left over is computed apart.

use super::Templates;
use crate::analysis::{Class, Stride};
use crate::draft::{DecidedPart, Draft, PART, REST, Written};
use crate::nests::{Nest, ids};
use ir::{BlockId, CpuTarget, IterKind, LoopId, Program, Role, Scope};
use schedule::own_loops;

/// Vectors side by side, at most: independent chains of operations. Chosen by hand; not
/// measured apart.
const MOST_VECTORS: i64 = 4;

/// What a block does with a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// One result for each element.
    Elements,
    /// One result from all elements.
    Reduction,
    /// One result from other results.
    Scalar,
}

/// The sketch of a program whose every block works on the rows of its last one;
/// none for others.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Some(rows) = recognise(program, all, target) else {
        return;
    };
    let loops = rows.loops();
    let Some(place) = loops.last().copied() else {
        return;
    };
    let widths: Vec<i64> = (0..)
        .map(|i| rows.lanes << i)
        .take_while(|w| *w <= rows.lanes * MOST_VECTORS && *w < rows.cols)
        .collect();
    found.write(Draft::new("rows", program), |d| {
        let width = d.choose("width", &widths, default_width(&widths, rows.cols));
        let width = width.value();
        let mut reductions = Vec::new();
        for (n, _) in rows
            .parts
            .iter()
            .filter(|(_, part)| *part == Part::Reduction)
        {
            let last = n
                .reduce
                .last()
                .ok_or_else(|| d.missing(format!("`{}` reduces nothing", n.name)))?;
            let [_, lane] = d.split(last.id, [REST, width.into()])?;
            let partial = d.rfactor(lane)?;
            let block = n.block;
            reductions.push(Reduction { block, partial });
        }
        // The combination of the last block's partial results has loops of its own.
        let (own, place) = match rows.last_part() {
            Part::Reduction => {
                let mut own = own_loops(d.program(), rows.last().block);
                own.pop();
                let place = own.last().copied();
                let place = place.ok_or_else(|| d.missing("there is no loop over rows".into()))?;
                (own, place)
            }
            _ => (loops, place),
        };
        for (n, _) in rows.parts.iter().rev() {
            if n.block != rows.last().block {
                d.compute_at(n.block, place)?;
            }
            for r in reductions.iter().filter(|r| r.block == n.block) {
                d.compute_at(r.partial, place)?;
            }
        }
        // Rows are each worker's own before their parts are cut.
        d.parallel(&own, target.threads)?;
        d.run_parallel()?;
        for (n, part) in &rows.parts {
            for r in reductions.iter().filter(|r| r.block == n.block) {
                r.write(d)?;
            }
            if let (Part::Elements, Some(l)) = (part, n.spatial.last()) {
                let own = match n.block == rows.last().block {
                    true => l.id,
                    false => d.along(n.block, [l.axis.as_str()])?[0],
                };
                vectors(d, own, width)?;
            }
        }
        Ok(())
    });
}

/// As many vectors as leave no elements over, else as many as there are.
fn default_width(widths: &[i64], cols: i64) -> i64 {
    let even = widths.iter().rev().find(|w| cols % **w == 0);
    let widest = widths.last().expect("one vector at least");
    *even.unwrap_or(widest)
}

/// A program that works row by row.
struct Rows<'a> {
    /// Every block with what it does, in order.
    parts: Vec<(&'a Nest, Part)>,
    /// Elements of a row.
    cols: i64,
    /// Elements of a vector.
    lanes: i64,
}

impl<'a> Rows<'a> {
    fn last(&self) -> &'a Nest {
        self.parts[self.parts.len() - 1].0
    }

    fn last_part(&self) -> Part {
        self.parts[self.parts.len() - 1].1
    }

    /// The last block's loops over rows.
    fn loops(&self) -> Vec<LoopId> {
        let mut loops = ids(&self.last().spatial);
        if self.last_part() == Part::Elements {
            loops.pop();
        }
        loops
    }
}

/// Extents without those of 1 at the end: axes that a reduction kept.
fn trimmed(shape: &[i64]) -> &[i64] {
    let kept = shape.iter().rposition(|n| *n != 1).map_or(0, |at| at + 1);
    &shape[..kept]
}

/// The parts of a program, each of which works on the rows of the first reduction.
fn recognise<'a>(program: &Program, all: &'a [Nest], target: &CpuTarget) -> Option<Rows<'a>> {
    let last = all.last()?;
    let first = all.iter().find(|n| n.is_reduction)?;
    let [along] = &first.reduce[..] else {
        return None;
    };
    let cols = along.extent;
    let outputs = first.shape();
    let rows = trimmed(&outputs);
    let part = |n: &'a Nest| {
        let shape = n.shape();
        let of_rows = trimmed(&shape) == rows;
        let part = match &n.reduce[..] {
            [along] if n.is_reduction && along.extent == cols && of_rows => Part::Reduction,
            [] if !n.is_reduction
                && shape.last() == Some(&cols)
                && trimmed(&shape[..shape.len() - 1]) == rows =>
            {
                Part::Elements
            }
            [] if !n.is_reduction && of_rows => Part::Scalar,
            _ => return None,
        };
        let [w] = &program.block(n.block).writes[..] else {
            return None;
        };
        let b = program.buffer(w.buffer);
        let own = b.role == Role::Intermediate && b.dtype.is_float();
        (own || n.block == last.block).then_some((n, part))
    };
    let parts: Vec<(&Nest, Part)> = all.iter().map(part).collect::<Option<_>>()?;
    let work = program
        .buffer(program.block(first.block).writes[0].buffer)
        .dtype;
    let lanes = target.lanes(work);
    let found = Rows { parts, cols, lanes };
    let contiguous = all
        .iter()
        .filter(|n| n.is_reduction)
        .all(|n| reads_rows(program, n));
    (cols > lanes && contiguous && row_by_row(program, &found)).then_some(found)
}

/// Whether a reduction reads every operand that moves with its terms contiguously.
fn reads_rows(program: &Program, n: &Nest) -> bool {
    let facts = crate::analysis::Reduction::of(program, n.block);
    facts.is_some_and(|f| {
        let terms = f.axes.iter().position(|a| a.class == Class::Reduction);
        terms.is_some_and(|at| {
            let strides = f.operands.iter().map(|o| o.strides[at]);
            strides.clone().any(|s| s == Stride::Elements(1))
                && strides
                    .clone()
                    .all(|s| matches!(s, Stride::Elements(0 | 1)))
        })
    })
}

/// Whether every block reads of the others only what they made of its own row.
fn row_by_row(program: &Program, found: &Rows) -> bool {
    let all = || found.parts.iter();
    let writes = |n: &Nest| program.block(n.block).writes[0].clone();
    all().all(|(reader, _)| {
        let block = program.block(reader.block);
        let own: Vec<_> = block.iters.iter().map(|i| (i.var, i.kind)).collect();
        block.loads().iter().all(|(buffer, at)| {
            let made = all().find(|(n, _)| writes(n).buffer == *buffer);
            let Some((maker, part)) = made else {
                return true;
            };
            let shape = maker.shape();
            let kept = match part {
                Part::Elements => trimmed(&shape[..shape.len() - 1]).len(),
                _ => trimmed(&shape).len(),
            };
            let of_row = |(i, e): (usize, &ir::Expr)| {
                let v = e.as_var();
                v.is_some_and(|v| own.get(i) == Some(&(v, IterKind::Spatial)))
            };
            at.len() >= kept && at[..kept].iter().enumerate().all(of_row)
        })
    })
}

/// A reduction of a row whose partial results are in a block of their own.
struct Reduction {
    block: BlockId,
    partial: BlockId,
}

impl Reduction {
    /// Partial results in registers, one a lane.
    fn write(&self, d: &mut Draft) -> Written<()> {
        let [terms, lane] = d.partial_loops(self.partial)?;
        d.reorder(&[terms, lane])?;
        d.set_scope(d.output(self.partial), Scope::Register)?;
        d.vectorize(lane)?;
        d.decompose_reduction(self.partial, terms)?;
        let [part] = d.along(self.block, [PART])?;
        d.decompose_reduction(self.block, part)?;
        d.unroll(part)?;
        d.attempt_partition(terms);
        Ok(())
    }
}

fn vectors(d: &mut Draft, along: LoopId, width: DecidedPart) -> Written<()> {
    let [vectors, lane] = d.split(along, [REST, width.into()])?;
    d.vectorize(lane)?;
    d.attempt_partition(vectors);
    Ok(())
}
