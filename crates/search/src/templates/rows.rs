//! Programs that work row by row: softmax, layer normalisation and their like.
//!
//! All blocks of a row are computed under one loop over the rows, so that what
//! passes between them stays in the nearest cache and memory is passed over
//! once. A reduction of a row has a partial result for each of some lanes, and
//! combines them at the row's end. Any row longer than a vector will do: what is
//! left over is computed apart.

use super::Templates;
use crate::draft::{DecidedPart, Draft, PART, REST, Written};
use crate::nests::{Nest, ids};
use ir::{BlockId, CpuTarget, DType, IterKind, LoopId, Program, Role, Scope};

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
    let lanes = target.lanes(DType::F32);
    let Some((last, inputs)) = recognise(program, all, lanes) else {
        return;
    };
    let Some((along, rows)) = last.spatial.split_last() else {
        return;
    };
    let rows = ids(rows);
    let Some(place) = rows.last().copied() else {
        return;
    };
    let widths: Vec<i64> = (0..)
        .map(|i| lanes << i)
        .take_while(|w| *w <= lanes * MOST_VECTORS && *w < along.extent)
        .collect();
    found.write(Draft::new("rows", program), |d| {
        let width = d.choose("width", &widths, default_width(&widths, along.extent));
        let width = width.value();
        let mut reductions = Vec::new();
        for (n, _) in inputs.iter().filter(|(_, part)| *part == Part::Reduction) {
            let [_, lane] = d.split(n.reduce[0].id, [REST, width.into()])?;
            let partial = d.rfactor(lane)?;
            let block = n.block;
            reductions.push(Reduction { block, partial });
        }
        for (n, _) in inputs.iter().rev() {
            d.compute_at(n.block, place)?;
            for r in reductions.iter().filter(|r| r.block == n.block) {
                d.compute_at(r.partial, place)?;
            }
        }
        // Rows are each worker's own before their parts are cut.
        d.parallel(&rows, target.threads)?;
        d.run_parallel()?;
        for (n, part) in &inputs {
            for r in reductions.iter().filter(|r| r.block == n.block) {
                r.write(d)?;
            }
            if let (Part::Elements, Some(l)) = (part, n.spatial.last()) {
                let [own] = d.along(n.block, [&l.axis])?;
                vectors(d, own, width)?;
            }
        }
        vectors(d, along.id, width)
    });
}

/// As many vectors as leave no elements over, else as many as there are.
fn default_width(widths: &[i64], cols: i64) -> i64 {
    let even = widths.iter().rev().find(|w| cols % **w == 0);
    let widest = widths.last().expect("one vector at least");
    *even.unwrap_or(widest)
}

/// The last block, and those that it is computed from.
fn recognise<'a>(
    program: &Program,
    all: &'a [Nest],
    lanes: i64,
) -> Option<(&'a Nest, Vec<(&'a Nest, Part)>)> {
    let (last, inputs) = all.split_last()?;
    let shape = last.shape();
    let (cols, rows) = shape.split_last()?;
    if *cols <= lanes || last.is_reduction || last.writes != 1 {
        return None;
    }
    let part = |n: &'a Nest| {
        let outputs = n.shape();
        let part = match &n.reduce[..] {
            [along] if n.is_reduction && along.extent == *cols && outputs == rows => {
                Part::Reduction
            }
            [] if !n.is_reduction && outputs == shape => Part::Elements,
            [] if !n.is_reduction && outputs == rows => Part::Scalar,
            _ => return None,
        };
        let [w] = &program.block(n.block).writes[..] else {
            return None;
        };
        let b = program.buffer(w.buffer);
        let own = b.role == Role::Intermediate && b.dtype == DType::F32;
        own.then_some((n, part))
    };
    let inputs: Vec<(&Nest, Part)> = inputs.iter().map(part).collect::<Option<_>>()?;
    let reduces = inputs.iter().any(|(_, part)| *part == Part::Reduction);
    (reduces && row_by_row(program, last, &inputs)).then_some((last, inputs))
}

/// Whether every block reads of the others only what they made of its own row.
fn row_by_row(program: &Program, last: &Nest, inputs: &[(&Nest, Part)]) -> bool {
    let all = || inputs.iter().map(|(n, _)| *n).chain([last]);
    let writes = |n: &Nest| program.block(n.block).writes[0].clone();
    all().all(|reader| {
        let block = program.block(reader.block);
        let own: Vec<_> = block.iters.iter().map(|i| (i.var, i.kind)).collect();
        let rows = writes(last).indices.len().saturating_sub(1);
        block.loads().iter().all(|(buffer, at)| {
            let made_here = all().any(|n| writes(n).buffer == *buffer);
            let of_row = |(i, e): (usize, &ir::Expr)| {
                let v = e.as_var();
                v.is_some_and(|v| own.get(i) == Some(&(v, IterKind::Spatial)))
            };
            !made_here || (at.len() >= rows && at[..rows].iter().enumerate().all(of_row))
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
