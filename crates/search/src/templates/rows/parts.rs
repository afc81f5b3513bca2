//! Few long rows: threads share parts of every row.
//!
//! A thread reduces its part of a row to one partial result, and what combines the partial
//! results of a row comes after all of its parts. So every pass over the rows has a shared
//! loop of its own, and what passes between them is in memory: this is worth it only where
//! whole rows leave threads without work for longer than it takes to wake them.

use super::{MOST_VECTORS, Part, Rows, default_width, one_loop};
use crate::draft::{DecidedPart, Draft, REST, Written, given};
use crate::nests::{Nest, ids};
use ir::{CpuTarget, LoopId, Scope};
use schedule::own_loops;

/// Elements that threads without a row could compute: from so many on parts of rows pay.
/// They take a few times as long as waking threads. Chosen by hand.
const WORTH_IT: i64 = 8192;

/// In how many parts rows are to be cut for all threads to get as many, if that is worth it.
pub fn wanted(rows: &Rows, target: &CpuTarget) -> Option<i64> {
    let threads = i64::from(target.threads);
    let count = rows.count();
    let idle = (threads - count % threads) % threads;
    let is_long = rows.cols >= threads * MOST_VECTORS * rows.lanes;
    // While each of the others has its last row.
    let worth_it = idle.saturating_mul(rows.cols) / threads >= WORTH_IT;
    (idle > 0 && is_long && worth_it).then(|| threads / greatest_divisor(count, threads))
}

fn greatest_divisor(a: i64, b: i64) -> i64 {
    match b {
        0 => a,
        _ => greatest_divisor(b, a % b),
    }
}

/// A pass over all rows: the loop that threads share, and the one over a part's vectors.
type Pass = (LoopId, LoopId);

pub fn write(d: &mut Draft, rows: &Rows, target: &CpuTarget, parts: i64) -> Written<()> {
    let widths: Vec<i64> = (0..)
        .map(|i| rows.lanes << i)
        .take_while(|w| *w <= rows.lanes * MOST_VECTORS)
        .collect();
    let width = d.choose("width", &widths, default_width(&widths, rows.cols / parts));
    let width = width.value();
    let mut passes = Vec::new();
    for (n, part) in &rows.parts {
        match part {
            Part::Scalar => {}
            Part::Reduction => passes.push(reduce(d, n, target, (parts, width))?),
            Part::Elements => passes.push(elements(d, (n, rows), target, (parts, width))?),
        }
    }
    d.run_parallel()?;
    for (shared, vectors) in passes {
        // The last part of a row is shorter, and its last vector is cut.
        d.attempt_partition(shared);
        d.attempt_partition(vectors);
        d.attempt_partition_copies(vectors);
    }
    Ok(())
}

/// Partial results of parts, each of them of the lanes of vectors.
fn reduce(
    d: &mut Draft,
    n: &Nest,
    target: &CpuTarget,
    (parts, width): (i64, DecidedPart),
) -> Written<Pass> {
    let terms = one_loop(d, &ids(&n.reduce))?;
    let [part, vectors, lane] = d.split(terms, [given(parts), REST, width.into()])?;
    let of_part = d.rfactor(part)?;
    let of_lanes = d.rfactor(lane)?;
    d.reverse_compute_at(of_part, part)?;
    d.set_scope(d.output(of_lanes), Scope::Register)?;
    d.vectorize(lane)?;
    d.decompose_reduction(of_lanes, vectors)?;
    let own = own_loops(d.program(), of_part);
    let Some(lanes) = own.last().copied() else {
        return Err(d.missing("partial results of lanes have no loop".into()));
    };
    d.decompose_reduction(of_part, lanes)?;
    d.unroll(lanes)?;
    let shared = share(d, ids(&n.spatial), part, target)?;
    Ok((shared, vectors))
}

fn elements(
    d: &mut Draft,
    (n, rows): (&Nest, &Rows),
    target: &CpuTarget,
    (parts, width): (i64, DecidedPart),
) -> Written<Pass> {
    let mut outer = ids(&n.spatial);
    let along = outer.split_off(outer.len() - rows.cols_axes);
    let along = one_loop(d, &along)?;
    let [part, vectors, lane] = d.split(along, [given(parts), REST, width.into()])?;
    d.vectorize(lane)?;
    let shared = share(d, outer, part, target)?;
    Ok((shared, vectors))
}

/// The parts of all rows as one loop, which is to be shared.
fn share(
    d: &mut Draft,
    mut rows: Vec<LoopId>,
    part: LoopId,
    target: &CpuTarget,
) -> Written<LoopId> {
    rows.push(part);
    let shared = d.parallel(&rows, target.threads)?;
    shared.ok_or_else(|| d.missing("there is one thread".into()))
}
