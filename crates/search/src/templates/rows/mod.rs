//! Programs that work row by row: softmax, layer normalisation, reductions of contiguous
//! elements, and chains of them.
//!
//! All blocks of a row are computed under one loop over the rows, so that what
//! passes between them stays in the nearest cache and memory is passed over
//! once. A reduction of a row has a partial result for each of some lanes, and
//! combines them at the row's end. Any row longer than a vector will do: what is
//! left over is computed apart. Several contiguous axes make one row. Where there are
//! fewer rows than would keep all threads busy, they share parts of rows (`parts`).

mod parts;

use super::Templates;
use crate::analysis::{Access, Class, Stride};
use crate::draft::{DecidedPart, Draft, PART, REST, Written};
use crate::nests::{AxisLoop, Nest, ids};
use ir::{BlockId, BufferId, CpuTarget, DType, IterKind, LoopId, Node, Program, Role, Scope};
use schedule::own_loops;

/// Vectors side by side, at most: independent chains of operations. Chosen by hand; not
/// measured apart.
const MOST_VECTORS: i64 = 4;
/// Rows of so many vectors are written out. Chosen by hand: 8 take 6% less time so (AMD
/// EPYC, AVX-512, `softmax(rows=1536,cols=128)`).
const MOST_WRITTEN_OUT: i64 = 16;
/// Iterations that the next row is fetched before one row's time.
const MOST_AHEAD: i64 = 12;

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
    if let Some(parts) = parts::wanted(&rows, target) {
        found.write(Draft::new("rows.parts", program), |d| {
            parts::write(d, &rows, target, parts)
        });
    }
    let loops = rows.loops();
    let Some(place) = loops.last().copied() else {
        return;
    };
    let widths: Vec<i64> = (0..)
        .map(|i| rows.lanes << i)
        .take_while(|w| *w <= rows.lanes * MOST_VECTORS && *w < rows.cols)
        .collect();
    found.write(Draft::new("rows", program), |d| {
        let default = default_width(&widths, rows.cols);
        let width = d.choose("width", &widths, default).value();
        let mut reductions = Vec::new();
        for (n, _) in rows.of(Part::Reduction) {
            let terms = one_loop(d, &ids(&n.reduce))?;
            let [_, lane] = d.split(terms, [REST, width.into()])?;
            let partial = d.rfactor(lane)?;
            let block = n.block;
            reductions.push(Reduction { block, partial });
        }
        let last = rows.last().block;
        // The combination of the last block's partial results has loops of its own.
        let (own, place) = match rows.last_part() {
            Part::Reduction => {
                let mut own = own_loops(d.program(), last);
                own.pop();
                let place = own.last().copied();
                let place = place.ok_or_else(|| d.missing("there is no loop over rows".into()))?;
                (own, place)
            }
            _ => (loops, place),
        };
        for (n, _) in rows.parts.iter().rev() {
            if n.block != last {
                d.compute_at(n.block, place)?;
            }
            for r in reductions.iter().filter(|r| r.block == n.block) {
                d.compute_at(r.partial, place)?;
            }
        }
        // Rows are each worker's own before their parts are cut.
        d.parallel(&own, target.threads)?;
        d.run_parallel()?;
        let mut passes = Vec::new();
        for (n, part) in &rows.parts {
            let loop_ = match part {
                Part::Scalar => continue,
                Part::Reduction => {
                    let found = reductions.iter().find(|r| r.block == n.block);
                    let own = found.ok_or_else(|| d.missing("no partial results".into()))?;
                    own.write(d, &rows)?
                }
                Part::Elements => {
                    let mut own = match n.block == last {
                        true => ids(&n.spatial),
                        false => own_loops(d.program(), n.block),
                    };
                    let own = own.split_off(own.len() - rows.cols_axes);
                    let along = one_loop(d, &own)?;
                    vectors(d, along, width, &rows)?
                }
            };
            passes.push(loop_);
        }
        fetch_next_row(d, &rows, target, (&passes, default));
        Ok(())
    });
}

/// One loop of a chain of loops along a row.
fn one_loop(d: &mut Draft, loops: &[LoopId]) -> Written<LoopId> {
    let Some((first, others)) = loops.split_first() else {
        return Err(d.missing("a row has no loop".into()));
    };
    others.iter().try_fold(*first, |fused, l| d.fuse(fused, *l))
}

/// The last pass over a row of an operand that no cache holds fetches the next row, while
/// it computes; over the only row what comes next of it.
fn fetch_next_row(
    d: &mut Draft,
    rows: &Rows,
    target: &CpuTarget,
    (passes, width): (&[LoopId], i64),
) {
    let bytes = |b: &BufferId| {
        let b = d.program().buffer(*b);
        b.shape.iter().product::<i64>() * b.dtype.size() as i64
    };
    let inputs = d.program().params.iter().copied();
    let inputs = inputs.filter(|b| d.program().buffer(*b).role == Role::Input);
    let Some(buffer) = inputs.max_by_key(bytes) else {
        return;
    };
    let reads = |l: LoopId| {
        let blocks = d.program().blocks_under(&[Node::Loop(l)]);
        let mut loads = blocks.iter().flat_map(|b| d.program().block(*b).loads());
        loads.any(|(b, _)| b == buffer)
    };
    let last = passes.iter().rev().copied().find(|l| reads(*l));
    let (Some(pass), true) = (last, bytes(&buffer) > target.l2_bytes as i64) else {
        return;
    };
    let each = (rows.cols + width - 1) / width;
    if each <= 1 || rows.is_short() {
        return;
    }
    // Behind the only row lies nothing that is wanted.
    let row = if rows.count() == 1 { 0 } else { each };
    let distances = match row {
        0 => vec![0, MOST_AHEAD, 32],
        _ => vec![0, row, row + MOST_AHEAD, 2 * row],
    };
    let distance = d.choose("ahead", &distances, row + MOST_AHEAD);
    d.prefetch_if_legal(buffer, pass, distance.value());
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
    /// Elements of a row, and axes along it.
    cols: i64,
    cols_axes: usize,
    /// Elements of a vector.
    lanes: i64,
}

impl<'a> Rows<'a> {
    fn of(&self, part: Part) -> impl Iterator<Item = &(&'a Nest, Part)> {
        self.parts.iter().filter(move |(_, p)| *p == part)
    }

    /// How many rows there are.
    fn count(&self) -> i64 {
        let shape = self.last().shape();
        let axes = match self.last_part() {
            Part::Elements => shape.len() - self.cols_axes,
            _ => shape.len(),
        };
        shape[..axes].iter().product()
    }

    /// Whether a row is so short that its loops are written out.
    fn is_short(&self) -> bool {
        self.cols <= MOST_WRITTEN_OUT * self.lanes
    }

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
            loops.truncate(loops.len() - self.cols_axes);
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
    let extents = |loops: &[AxisLoop]| loops.iter().map(|l| l.extent).collect::<Vec<i64>>();
    let row = extents(&first.reduce);
    let outputs = first.shape();
    let rows = trimmed(&outputs);
    let part = |n: &'a Nest| {
        let shape = n.shape();
        let of_rows = trimmed(&shape) == rows;
        let part = match n.is_reduction {
            true if of_rows && extents(&n.reduce) == row => Part::Reduction,
            false if n.reduce.is_empty() => {
                let of_elements = shape.strip_suffix(&row[..]);
                match of_elements.is_some_and(|s| trimmed(s) == rows) {
                    true => Part::Elements,
                    false if of_rows => Part::Scalar,
                    false => return None,
                }
            }
            _ => return None,
        };
        let [w] = &program.block(n.block).writes[..] else {
            return None;
        };
        let b = program.buffer(w.buffer);
        // Positions are counted in integers of the elements' width.
        let fits = b.dtype.is_float() || b.dtype == DType::I32;
        let own = b.role == Role::Intermediate && fits;
        (own || n.block == last.block).then_some((n, part))
    };
    let parts: Vec<(&Nest, Part)> = all.iter().map(part).collect::<Option<_>>()?;
    let work = program
        .buffer(program.block(first.block).writes[0].buffer)
        .dtype;
    // One part of a row would be no partial result.
    let lanes = target.lanes(work).max(2);
    let cols = row.iter().product();
    let found = Rows {
        parts,
        cols,
        cols_axes: row.len(),
        lanes,
    };
    let contiguous = all
        .iter()
        .filter(|n| n.is_reduction)
        .all(|n| reads_rows(program, n));
    (cols > lanes && contiguous && row_by_row(program, &found)).then_some(found)
}

/// Whether a reduction reads every operand that moves with its terms contiguously, all its
/// axes as one, and no row of them again for other results, as products of matrices do.
fn reads_rows(program: &Program, n: &Nest) -> bool {
    let Some(facts) = crate::analysis::Reduction::of(program, n.block) else {
        return false;
    };
    let terms = facts.axes.iter().enumerate();
    let terms: Vec<(usize, i64)> = terms
        .filter(|(_, a)| a.class == Class::Reduction)
        .map(|(at, a)| (at, a.extent))
        .collect();
    let is_along = |o: &Access| {
        let mut step = 1;
        terms.iter().rev().all(|(at, extent)| {
            let follows = o.strides[*at] == Stride::Elements(step);
            step *= extent;
            follows
        })
    };
    let is_apart = |o: &Access| terms.iter().all(|(at, _)| !o.strides[*at].is_used());
    let spatial: Vec<usize> = facts
        .spatial()
        .filter(|at| facts.axes[*at].extent > 1)
        .collect();
    let is_read_once = |o: &Access| spatial.iter().all(|at| o.strides[*at].is_used());
    let operands = || facts.operands.iter();
    operands().any(is_along) && operands().all(|o| is_along(o) && is_read_once(o) || is_apart(o))
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
                Part::Elements => trimmed(&shape[..shape.len() - found.cols_axes]).len(),
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
    /// Partial results in registers, one a lane; the loop over vectors of terms.
    fn write(&self, d: &mut Draft, rows: &Rows) -> Written<LoopId> {
        let [terms, lane] = d.partial_loops(self.partial)?;
        d.reorder(&[terms, lane])?;
        d.set_scope(d.output(self.partial), Scope::Register)?;
        d.vectorize(lane)?;
        d.decompose_reduction(self.partial, terms)?;
        let [part] = d.along(self.block, [PART])?;
        d.decompose_reduction(self.block, part)?;
        d.unroll(part)?;
        write_out(d, terms, rows)?;
        Ok(terms)
    }
}

/// The loop over vectors of a row.
fn vectors(d: &mut Draft, along: LoopId, width: DecidedPart, rows: &Rows) -> Written<LoopId> {
    let [vectors, lane] = d.split(along, [REST, width.into()])?;
    d.vectorize(lane)?;
    write_out(d, vectors, rows)?;
    Ok(vectors)
}

/// Of a short row every vector has code of its own; of others the last one, where it is
/// not whole.
fn write_out(d: &mut Draft, vectors: LoopId, rows: &Rows) -> Written<()> {
    match rows.is_short() {
        true => d.unroll(vectors),
        false => {
            d.attempt_partition(vectors);
            Ok(())
        }
    }
}
