//! Programs that work row by row: softmax, layer normalisation and their like.
//!
//! All blocks of a row are computed under one loop over the rows, so that what
//! passes between them stays in the nearest cache and memory is passed over
//! once. A reduction of a row has a partial result for each of some lanes, and
//! combines them at the row's end. Any row longer than a vector will do: what is
//! left over is computed apart.

use crate::draft::{Draft, Nest};
use crate::space::Sketch;
use ir::{CpuTarget, DType, IterKind, Program, Role};

/// Vectors side by side, at most: independent chains of operations.
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
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget) -> Vec<Sketch> {
    let lanes = target.lanes(DType::F32);
    let Some((last, inputs)) = recognise(program, all, lanes) else {
        return vec![];
    };
    let Some(((along, cols), rows)) = last.spatial.split_last() else {
        return vec![];
    };
    let rows: Vec<String> = rows.iter().map(|(l, _)| l.clone()).collect();
    let Some(place) = rows.last() else {
        return vec![];
    };
    let mut d = Draft::default();
    let widths: Vec<i64> = (0..)
        .map(|i| lanes << i)
        .take_while(|w| *w <= lanes * MOST_VECTORS && *w < *cols)
        .collect();
    let width = d.choose("width", &widths, default_width(&widths, *cols));
    for (n, _) in inputs.iter().filter(|(_, part)| *part == Part::Reduction) {
        let along = &n.reduce[0].0;
        d.line(format!("split {along} [_, ${width}]"));
        d.line(format!("rfactor {along}.1"));
    }
    for (n, part) in inputs.iter().rev() {
        d.line(format!("compute_at {} {place}", n.block));
        if *part == Part::Reduction {
            d.line(format!("compute_at {}.rf {place}", n.block));
        }
    }
    // Rows are each worker's own before their parts are cut.
    d.parallel(&rows, target.threads);
    d.run_parallel();
    for (n, part) in &inputs {
        match (part, n.spatial.last()) {
            (Part::Reduction, _) => reduction(&mut d, n),
            (Part::Elements, Some((along, _))) => vectors(&mut d, along, width),
            _ => {}
        }
    }
    vectors(&mut d, along, width);
    vec![d.finish("rows")]
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
    let extents = |n: &Nest| n.spatial.iter().map(|(_, e)| *e).collect::<Vec<_>>();
    let shape = extents(last);
    let (cols, rows) = shape.split_last()?;
    if *cols <= lanes || last.is_reduction || last.writes != 1 {
        return None;
    }
    let part = |n: &'a Nest| {
        let outputs = extents(n);
        let part = match &n.reduce[..] {
            [(_, along)] if n.is_reduction && along == cols && outputs == rows => Part::Reduction,
            [] if !n.is_reduction && outputs == shape => Part::Elements,
            [] if !n.is_reduction && outputs == rows => Part::Scalar,
            _ => return None,
        };
        let [w] = &program.block(n.id).writes[..] else {
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
    let writes = |n: &Nest| program.block(n.id).writes[0].clone();
    all().all(|reader| {
        let block = program.block(reader.id);
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

/// Partial results in registers, one a lane.
fn reduction(d: &mut Draft, n: &Nest) {
    let (block, along) = (&n.block, &n.reduce[0].0);
    let axis = along.strip_prefix(&format!("{block}.")).unwrap_or(along);
    let (outer, lane) = (format!("{block}.rf.{axis}.0"), format!("{block}.rf.part"));
    d.line(format!("reorder {outer} {lane}"));
    d.line(format!("set_scope {block}.rf register"));
    d.line(format!("vectorize {lane}"));
    d.line(format!("decompose_reduction {block}.rf {outer}"));
    d.line(format!("decompose_reduction {block} {block}.part"));
    d.line(format!("unroll {block}.part"));
    d.line(format!("try partition {outer}"));
}

fn vectors(d: &mut Draft, along: &str, width: usize) {
    d.line(format!("split {along} [_, ${width}]"));
    d.line(format!("vectorize {along}.1"));
    d.line(format!("try partition {along}.0"));
}
