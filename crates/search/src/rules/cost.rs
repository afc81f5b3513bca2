//! What a tile costs before anything is measured: cycles by the rates of multiply-adds
//! and loads, and by the bandwidth of the cache that each operand comes from.
//!
//! An operand comes from the smallest cache that holds what is read of it until it is
//! read again. Example: the weights of one panel are read again by the next rows, so they
//! come from the first-level cache if all terms of the panel fit there.

use super::Plan;
use super::lanes::Lanes;
use super::window;
use crate::analysis::{Access, Class, Stride};
use crate::templates::registers::{LATENCY, wanted_part};

/// Multiply-adds, and loads of a vector or of an element to broadcast, that start in a
/// cycle: on the larger cores of all targets.
const A_CYCLE: f64 = 2.0;
/// Bytes that a cycle brings from the second-level cache, the last-level one and memory:
/// orders of magnitude, as `templates::gemm::tile` has them.
const BYTES_A_CYCLE: [f64; 3] = [32.0, 16.0, 6.0];
/// The share of a cache that an operand may fill: the others need the rest.
const SHARE: f64 = 0.75;
/// Loads that cost as much as one multiply-add beside the busiest unit: of two tiles that
/// keep the units equally busy, the one with fewer loads is a little faster.
const LOADS: f64 = 16.0;

/// The share of a transfer from a farther cache that computing does not hide.
const EXPOSED: f64 = 0.5;

/// What a tile costs more that may be cut at the end of its axis: tests, or further code.
const CUT: f64 = 1.05;

/// Cycles of one test for a border: an order of magnitude.
const TEST: f64 = 1.0;

/// Sizes along the axes of a tile; `vectors` are along the lanes.
pub struct Sizes<'a> {
    pub axes: &'a [usize],
    pub rows: &'a [i64],
    pub vectors: i64,
}

/// Predicted cycles of a tile for each product that is wanted.
pub fn cycles(plan: &Plan, lanes: &Lanes, s: &Sizes) -> f64 {
    let facts = &plan.facts;
    if facts.operands.len() == 1 {
        return window::cycles(facts, lanes, s);
    }
    let mut tile: Vec<i64> = facts
        .axes
        .iter()
        .map(|a| {
            if a.class == Class::Reduction {
                a.extent
            } else {
                1
            }
        })
        .collect();
    for (at, n) in s.axes.iter().zip(s.rows) {
        tile[*at] = *n;
    }
    tile[lanes.at] = (s.vectors * lanes.width).min(lanes.extent);
    let reductions = facts.axes.iter().filter(|a| a.class == Class::Reduction);
    let terms = reductions.map(|a| a.extent).product::<i64>() as f64;
    let products = (s.rows.iter().product::<i64>() * s.vectors) as f64;
    let loads: f64 = facts.operands.iter().map(|o| loads(lanes, s, o)).sum();
    let busy = (products / A_CYCLE)
        .max(loads / A_CYCLE)
        .max(LATENCY as f64);
    let moved: f64 = facts
        .operands
        .iter()
        .map(|o| transfer(plan, lanes, o, &tile))
        .sum();
    let rows = s.axes.iter().zip(s.rows);
    let wanted: f64 = rows
        .map(|(at, n)| wanted_part(facts.axes[*at].extent, *n))
        .product();
    let cut = s
        .axes
        .iter()
        .zip(s.rows)
        .any(|(at, n)| facts.axes[*at].extent % n != 0);
    let slowed = if cut { CUT } else { 1.0 };
    let wanted = wanted * wanted_part(lanes.extent, s.vectors * lanes.width) / slowed;
    let busy = busy + tests(plan, s) * TEST;
    ((busy + loads / LOADS) * terms + moved * EXPOSED) / (products * terms * wanted)
}

/// Tests for borders in a tile for one term. Every row is tested, except in the interior of
/// the innermost guarded axis, and where one tile is the whole axis: there the tests are
/// decided when the code is made.
fn tests(plan: &Plan, s: &Sizes) -> f64 {
    let facts = &plan.facts;
    let guarded = |(at, _): &(&usize, &i64)| facts.is_guarded(**at);
    let mut axes = s.axes.iter().zip(s.rows).filter(guarded).rev();
    let Some((at, n)) = axes.next() else {
        return 0.0;
    };
    let tiles = (facts.axes[*at].extent + n - 1) / n;
    let tested = match tiles {
        1 => 0.0,
        tiles => 2.0 / tiles as f64 * *n as f64,
    };
    let whole = |(at, n): &(&usize, &i64)| **n == facts.axes[**at].extent;
    let others: i64 = axes.filter(|a| !whole(a)).map(|(_, n)| *n).product();
    let rows = if others > 1 { others as f64 } else { 0.0 };
    rows + tested * others as f64
}

/// Loads of an operand for one term.
fn loads(lanes: &Lanes, s: &Sizes, o: &Access) -> f64 {
    let used = s
        .axes
        .iter()
        .zip(s.rows)
        .filter(|(at, _)| o.strides[**at].is_used());
    let count: i64 = used.map(|(_, n)| *n).product();
    let vectors = s.vectors as f64;
    let each = match o.strides[lanes.at] {
        Stride::Elements(0) => 1.0,
        // A window moves off the lines of the cache: a wide load takes two of them.
        Stride::Elements(1) if o.guards[lanes.at] => 1.5 * vectors,
        Stride::Elements(n) if n > 1 && lanes.packed.is_empty() => {
            n.min(lanes.width) as f64 * vectors
        }
        _ => vectors,
    };
    count as f64 * each
}

/// Cycles in which all terms' part of an operand comes from where it is.
fn transfer(plan: &Plan, lanes: &Lanes, o: &Access, tile: &[i64]) -> f64 {
    let facts = &plan.facts;
    let bytes = |box_: &[i64]| (facts.footprint(o, box_) * o.element_bytes) as f64;
    // The loop directly round the tile; what does not use it is read again at once.
    let passes = |at: &usize| facts.axes[*at].extent > tile[*at];
    let innermost = facts
        .spatial()
        .filter(passes)
        .max_by_key(|at| (plan.order.rank(facts, lanes, *at), *at));
    let mut until = tile.to_vec();
    if let Some(at) = innermost.filter(|at| o.strides[*at].is_used()) {
        until[at] = facts.axes[at].extent;
    }
    let held = bytes(&until);
    let target = plan.target;
    let fits = |cache: u64| held <= SHARE * cache as f64;
    let [l2, llc, memory] = BYTES_A_CYCLE;
    let rate = match () {
        _ if fits(target.l1_bytes) => return 0.0,
        _ if fits(target.l2_bytes) => l2,
        _ if fits(target.llc_bytes) => llc,
        _ => memory,
    };
    bytes(tile) / rate
}
