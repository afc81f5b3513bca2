//! Simplification of index and boolean expressions under ranges.
//!
//! `simplify` applies the named rules of `rules::RULES` bottom-up until none
//! applies. Index arithmetic ends in one canonical form, a sum of terms with
//! the constant last, so that equal indices have equal expressions. What a
//! condition guards is simplified as if the condition held.
//!
//! Promises: for variables within their ranges the value never changes as long
//! as no index overflows `i64`; nothing that was guarded becomes unguarded; and
//! floating-point values keep every bit. What is never needed may be dropped, a
//! load or a division that would be an error included.

mod condition;
mod linear;
pub mod rules;
mod select;
mod sum;

pub use linear::simplify_sum;
pub use sum::is_index;

use crate::affine::{Interval, Ranges, bounds};
use crate::expr::{BinaryOp, Expr, ExprKind};

/// A node is rewritten at most this often; the rules shrink or reorder, so
/// this is a backstop, not a tuning knob.
const MAX_STEPS_PER_NODE: usize = 16;

/// The canonical equivalent of `e` for variables within `r`.
pub fn simplify(e: &Expr, r: &Ranges) -> Expr {
    if let Some(canonical) = simplify_sum(e, r, &mut |quotient| simplify(quotient, r)) {
        return canonical;
    }
    let mut node = with_simple_operands(e, r);
    // No rule is about these, which are most nodes.
    if matches!(
        node.kind(),
        ExprKind::Int(..)
            | ExprKind::Float(..)
            | ExprKind::Var(_)
            | ExprKind::Arg(..)
            | ExprKind::Load(..)
    ) {
        return node;
    }
    for _ in 0..MAX_STEPS_PER_NODE {
        let next = rules::rules_for(&node)
            .iter()
            .find_map(|(_, rule)| rule(&node, r).filter(|n| *n != node));
        let Some(next) = next else { break };
        // A rule may build new operands; canonical ones are only walked.
        node = with_simple_operands(&next, r);
    }
    node
}

/// The operands simplified, each for what holds where it is evaluated.
fn with_simple_operands(e: &Expr, r: &Ranges) -> Expr {
    match e.kind() {
        ExprKind::Select(c, a, b) => {
            let c = simplify(c, r);
            match c.as_int() {
                Some(0) => return simplify(b, r),
                Some(_) => return simplify(a, r),
                None => {}
            }
            let (a, b) = (simplify_if(a, &c, true, r), simplify_if(b, &c, false, r));
            let kind = ExprKind::Select(c, a, b);
            same_or(e, kind)
        }
        ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
            let a = simplify(a, r);
            let decides = i64::from(*op == BinaryOp::Or);
            if a.as_int() == Some(decides) {
                return a;
            }
            let b = simplify_if(b, &a, *op == BinaryOp::And, r);
            same_or(e, ExprKind::Binary(*op, a, b))
        }
        _ => e.map_children(|c| simplify(c, r)),
    }
}

fn simplify_if(e: &Expr, condition: &Expr, holds: bool, r: &Ranges) -> Expr {
    match r.assuming(condition, holds) {
        Some(narrowed) => simplify(e, &narrowed),
        None => simplify(e, r),
    }
}

/// `kind`, sharing `e` if that is what it is.
fn same_or(e: &Expr, kind: ExprKind) -> Expr {
    if *e.kind() == kind {
        e.clone()
    } else {
        kind.into()
    }
}

/// Whether a condition holds for all variables within `r`.
pub fn prove(e: &Expr, r: &Ranges) -> bool {
    bounds(e, r) == Some(Interval::point(1)) || simplify(e, r).as_int() == Some(1)
}
