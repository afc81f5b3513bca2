//! Simplification of integer and boolean expressions under ranges.
//!
//! `simplify` applies the named rules of `rules::RULES` bottom-up until none
//! applies. Index arithmetic ends in one canonical form, a sum of terms with
//! the constant last, so that equal indices have equal expressions. Promises:
//! the value never changes for variables within their ranges, nothing that
//! was guarded becomes unguarded, and floating-point values keep every bit.

pub mod rules;
mod sum;

use crate::affine::{Interval, Ranges, bounds};
use crate::expr::Expr;

/// A node is rewritten at most this often; the rules shrink or reorder, so
/// this is a backstop, not a tuning knob.
const MAX_STEPS_PER_NODE: usize = 16;

/// The canonical equivalent of `e` for variables within `r`.
pub fn simplify(e: &Expr, r: &Ranges) -> Expr {
    let mut node = e.map_children(|c| simplify(c, r));
    for _ in 0..MAX_STEPS_PER_NODE {
        let next = rules::RULES
            .iter()
            .find_map(|(_, rule)| rule(&node, r).filter(|n| *n != node));
        let Some(next) = next else { break };
        // A rule may build new operands; canonical ones are only walked.
        node = next.map_children(|c| simplify(c, r));
    }
    node
}

/// Whether a condition holds for all variables within `r`.
pub fn prove(e: &Expr, r: &Ranges) -> bool {
    bounds(e, r) == Some(Interval::point(1)) || simplify(e, r).as_int() == Some(1)
}
