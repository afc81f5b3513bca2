//! Rule: tiles of a reduction of one operand, such as pooling.
//!
//! Nothing is used again by another axis, but neighbouring windows share elements. All
//! terms of a small window are one body: the rows of a tile then load what they share
//! once. Without windows a tile has several sums only so that they are independent.

use super::cost::TileSizes;
use super::lanes::Lanes;
use crate::analysis::{Access, Class, Reduction, Stride};
use crate::rates::{LATENCY, STARTS_A_CYCLE};
use crate::templates::registers::wanted_part;
use ir::CpuTarget;

/// Terms of a window that are one body, at most. Chosen by hand; not measured apart.
const MOST_TERMS: i64 = 64;
/// Axes of a tile beside the lanes.
const MOST_AXES: usize = 2;
/// Elements between those of neighbouring lanes up to which some loads and a shuffle
/// bring a vector.
const MOST_STRIDE: i64 = 4;
/// Loads that an unaligned one costs.
const UNALIGNED: f64 = 1.5;
/// Cycles of the test for one combination of a vector at a border.
const TEST: f64 = 1.0;
/// What a tile costs more that may be cut at the end of its axis: tests, or further code.
const CUT: f64 = 1.05;
/// Cycles to begin a tile and to end it.
const BEGIN: f64 = 8.0;

/// Lines of the cache that a core has on their way at a time: an order of magnitude. A tile of
/// `op:max_pool3d(c=128,d=16,h=56,w=56,q=2,r=2,s=2,stride=2)` reads 28 lines in 0.76 ms for the
/// whole, 56 in 1.04, 70 in 1.61 and 196 in 1.91; of `op:max_pool2d(c=64,h=224,w=224,r=2,s=2)` 28
/// in 0.15 ms, 52 in 0.29 and 112 in 0.58 (Zen 5, LLVM 22.1.8).
const LINES: f64 = 32.0;

/// Whether vectors along an axis are loaded by a few loads each.
pub fn is_readable(facts: &Reduction, lanes: usize) -> Result<(), String> {
    let [operand] = &facts.operands[..] else {
        return Ok(());
    };
    match operand.strides[lanes] {
        Stride::Elements(n) if n > MOST_STRIDE => {
            let name = &facts.axes[lanes].name;
            Err(format!("vectors along `{name}` would be gathered"))
        }
        _ => Ok(()),
    }
}

/// How many terms are one body; `None` if there are too many.
pub fn whole_terms(facts: &Reduction) -> Option<i64> {
    let reductions = facts.axes.iter().filter(|a| a.class == Class::Reduction);
    let terms = reductions.fold(1i64, |n, a| n.saturating_mul(a.extent));
    (facts.operands.len() == 1 && terms <= MOST_TERMS).then_some(terms)
}

/// The innermost axes along which windows overlap; if none do, the innermost axis.
pub fn axes(facts: &Reduction, lanes: &Lanes) -> Vec<usize> {
    let others: Vec<usize> = facts
        .spatial()
        .filter(|at| *at != lanes.at && facts.axes[*at].extent > 1)
        .collect();
    let overlap = |at: &&usize| facts.operands.iter().any(|o| overlaps(facts, o, **at));
    let windows: Vec<usize> = others.iter().filter(overlap).copied().collect();
    match windows.len() {
        0 => others.last().copied().into_iter().collect(),
        n => windows[n.saturating_sub(MOST_AXES)..].to_vec(),
    }
}

/// Whether the windows of neighbouring iterations have elements in common.
fn overlaps(facts: &Reduction, operand: &Access, at: usize) -> bool {
    operand.dims.iter().any(|d| {
        let Stride::Elements(step) = d.steps[at] else {
            return false;
        };
        let reach = |(axis, by): (usize, &Stride)| match by {
            Stride::Elements(n) if facts.axes[axis].class == Class::Reduction => {
                n.abs() * (facts.axes[axis].extent - 1)
            }
            _ => 0,
        };
        let window: i64 = d.steps.iter().enumerate().map(reach).sum();
        step != 0 && window >= step.abs()
    })
}

/// How much longer a tile takes that reads more lines from afar than are on their way at a time.
fn waiting(
    facts: &Reduction,
    lanes: &Lanes,
    (mut tile, vectors): (Vec<i64>, i64),
    target: &CpuTarget,
) -> f64 {
    tile[lanes.at] = (vectors * lanes.width).min(lanes.extent);
    let whole: Vec<i64> = facts.axes.iter().map(|a| a.extent).collect();
    let bytes = |o: &&Access| facts.footprint(o, &whole) * o.element_bytes;
    let far = (facts.operands.iter()).filter(|o| bytes(o) > target.l2_bytes as i64);
    let read: f64 = far.map(|o| lines(facts, o, &tile, target)).sum();
    (read / LINES).max(1.0)
}

/// Lines that a tile reads of an operand: of every run of elements that follow each other in
/// memory as many as it fills.
fn lines(facts: &Reduction, operand: &Access, tile: &[i64], target: &CpuTarget) -> f64 {
    let spans = facts.spans(operand, tile);
    let mut sizes = operand.dims.iter().zip(&spans);
    let run = sizes.rposition(|(dim, span)| *span < dim.size);
    let (runs, run) = spans.split_at(run.unwrap_or(0));
    let elements = run.iter().product::<i64>();
    let each = (elements * operand.element_bytes) as f64 / target.cache_line_bytes as f64;
    runs.iter().product::<i64>() as f64 * each.max(1.0)
}

/// Predicted cycles of a tile for each result that is wanted.
pub fn cycles(
    facts: &Reduction,
    lanes: &Lanes,
    axes: &[usize],
    target: &CpuTarget,
    s: &TileSizes,
) -> f64 {
    let along = || axes.iter().zip(&s.rows);
    let mut tile: Vec<i64> = facts
        .axes
        .iter()
        .map(|a| match a.class {
            Class::Reduction => a.extent,
            _ => 1,
        })
        .collect();
    let reductions = facts.axes.iter().filter(|a| a.class == Class::Reduction);
    let terms = reductions.map(|a| a.extent).product::<i64>() as f64;
    for (at, n) in along() {
        tile[*at] = *n;
    }
    let vectors = s.vectors as f64;
    let shared = whole_terms(facts).is_some();
    let rows = s.rows.iter().product::<i64>() as f64;
    let sums = rows * vectors;
    let loaded = facts.operands.iter().map(|o| {
        let elements = match shared {
            true => facts.footprint(o, &tile) as f64,
            false => terms * rows,
        };
        elements * vectors * load(facts, o, lanes)
    });
    let loads: f64 = loaded.sum();
    let combined = sums * terms;
    let chain = LATENCY as f64 * terms;
    let at_border = |at: usize, tile: i64| {
        let tiles = (facts.axes[at].extent + tile - 1) / tile;
        match tiles {
            _ if !facts.is_guarded(at) => 0.0,
            1 => 0.0,
            tiles => (2.0 / tiles as f64).min(1.0),
        }
    };
    let tests: f64 = at_border(lanes.at, s.vectors * lanes.width)
        + along().map(|(at, n)| at_border(*at, *n)).sum::<f64>();
    let wanted: f64 = along()
        .map(|(at, n)| wanted_part(facts.axes[*at].extent, *n))
        .product();
    let wanted = wanted * wanted_part(lanes.extent, s.vectors * lanes.width);
    let busy = (combined.max(loads) / STARTS_A_CYCLE as f64).max(chain);
    let cut = along().any(|(at, n)| facts.axes[*at].extent % n != 0);
    let slowed = if cut { CUT } else { 1.0 };
    let waiting = match shared {
        true => waiting(facts, lanes, (tile, s.vectors), target),
        false => 1.0,
    };
    (busy + tests * combined * TEST + BEGIN) * slowed * waiting / (sums * wanted)
}

/// Loads for a vector of an operand.
fn load(facts: &Reduction, operand: &Access, lanes: &Lanes) -> f64 {
    let windows = operand.dims.iter().any(|d| {
        d.steps[lanes.at].is_used()
            && facts
                .axes
                .iter()
                .zip(&d.steps)
                .any(|(a, s)| a.class == Class::Reduction && s.is_used())
    });
    match operand.strides[lanes.at] {
        Stride::Elements(n) if n.abs() > 1 => n.abs() as f64 * UNALIGNED + 1.0,
        Stride::Elements(_) if !windows => 1.0,
        _ => UNALIGNED,
    }
}
