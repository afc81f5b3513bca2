//! Rule: threads share the terms of few results.
//!
//! Where there are fewer tiles of results than threads, each thread sums a part of the
//! terms. The partial results are a program of their own for all other rules: their `part`
//! is one more axis of the output, the outermost one. What adds them up is little work, and
//! one thread does it.

use super::lanes;
use crate::analysis::{Axis, Class, Reduction, Stride};
use crate::draft::{Draft, REST, Written, given};
use crate::nests::{Nest, nests};
use crate::rates::{LATENCY, STARTS_A_CYCLE};
use crate::templates::is_even;
use ir::{BlockId, CpuTarget, DType, LoopId};

/// Terms of a part: fewer are not worth partial results.
const FEWEST_TERMS: i64 = 256;
/// Cycles of one thread from which on sharing pays: a few times what waking threads takes.
/// Chosen by hand.
const WORTH_IT: f64 = 50e3;

/// The loop over terms that threads share, if results leave too many of them idle.
pub fn wanted(facts: &Reduction, target: &CpuTarget) -> Option<LoopId> {
    let (lanes, _) = lanes::choose(facts, &[]).ok()?;
    let width = target.lanes(DType::F32).max(1);
    let vectors = |at: usize| match facts.axes[at].extent {
        extent if at == lanes => (extent + width - 1) / width,
        extent => extent,
    };
    let vectors = facts.spatial().map(vectors).fold(1, i64::saturating_mul);
    // As many sums as hide the latency of one are a tile.
    let tiles = (vectors / (LATENCY * STARTS_A_CYCLE)).max(1);
    let threads = i64::from(target.threads);
    let shared = tiles >= threads && (is_even(tiles, target.threads) || tiles >= 4 * threads);
    if threads <= 1 || shared {
        return None;
    }
    let of_terms = |a: &&Axis| a.class == Class::Reduction && a.whole;
    let all = facts.axes.iter().filter(of_terms);
    let axis = all.max_by_key(|a| a.extent)?;
    let at = facts.axes.iter().position(|a| a.id == axis.id)?;
    // A part is an axis that moves every operand.
    let moves = |at: usize| {
        facts
            .operands
            .iter()
            .all(|o| o.strides[at] != Stride::Elements(0))
    };
    let terms = facts.points()
        / facts
            .spatial()
            .map(|at| facts.axes[at].extent)
            .product::<i64>();
    let sums = vectors as f64 * terms as f64 / STARTS_A_CYCLE as f64;
    let is_plain = moves(at) && !facts.is_guarded(at);
    (is_plain && axis.extent / threads >= FEWEST_TERMS && sums >= WORTH_IT).then_some(axis.id)
}

/// Cuts the terms into a part for each thread; the block of the partial results and all
/// nests as they are then. In memory the part is the outermost axis of the results.
pub fn cut(d: &mut Draft, terms: LoopId, target: &CpuTarget) -> Written<(BlockId, Vec<Nest>)> {
    let [part, _] = d.split(terms, [given(i64::from(target.threads)), REST])?;
    let partial = d.rfactor(part)?;
    let results = d.output(partial);
    let rank = d.program().buffer(results).shape.len();
    let order: Vec<usize> = std::iter::once(rank - 1).chain(0..rank - 1).collect();
    d.lay_out(results, &[], &order)?;
    Ok((partial, nests(d.program())))
}
