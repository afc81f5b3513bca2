//! Partition of a loop that workers share: it stays one loop, so that its iterations are
//! shared at once and not part after part.
//!
//! Such a loop is often several loops that were fused, and a condition depends on one digit
//! of its variable, such as `i % 4`. The body is copied inside the loop: once for the digits
//! with which all conditions on the digit hold, once for the first digit, and once for the
//! last. Each copy is under a test of the digit, which lowering moves round the whole copy.
//! Tests of terms that are skipped count only where each lane makes them: others are made
//! once for many sums. In the copies of one digit the digit is a constant. In the interior it is written with
//! its bounds, so that they show that the conditions hold.

use super::{Copier, SUFFIX_AFTER, SUFFIX_BEFORE, conditions, holds_in};
use crate::nest::path;
use crate::rebind::{replace_in_copies, restrict};
use ir::affine::{Interval, Ranges, bounds};
use ir::region::program_ranges;
use ir::simplify::simplify;
use ir::{BinaryOp, Expr, ExprKind, LoopId, LoopKind, Node, Program, VarId};
use std::ops::Range;

/// A part of a fused loop's variable.
struct Digit {
    value: Expr,
    extent: i64,
    /// The values with which all conditions on it hold.
    inside: Range<i64>,
}

/// Copies the body for the digit whose tests are made most often, if the loop is shared and
/// all but the first and the last value of the digit are inside.
pub(super) fn separate(p: &mut Program, l: LoopId) -> bool {
    if p.loop_(l).kind != LoopKind::Parallel {
        return false;
    }
    let Some(digit) = digit(p, l) else {
        return false;
    };
    let Digit {
        value,
        extent,
        inside,
    } = digit;
    let body = p.loop_(l).body.clone();
    // The value of the digit for each copy, and the test that it is so.
    let last = inside.end - 1;
    let bounded = value.clone().min(last).max(inside.start);
    let is_inside = Expr::int(inside.start)
        .le(&value)
        .and(value.clone().le(last));
    let mut parts = vec![(body, bounded, is_inside)];
    if inside.start > 0 {
        let copied = copy(p, l, SUFFIX_BEFORE);
        let test = value.clone().lt(inside.start);
        parts.insert(0, (copied, Expr::int(0), test));
    }
    if inside.end < extent {
        let copied = copy(p, l, SUFFIX_AFTER);
        let test = Expr::int(inside.end).le(&value);
        parts.push((copied, Expr::int(inside.end), test));
    }
    p.loop_mut(l).body = parts.iter().flat_map(|(nodes, ..)| nodes.clone()).collect();
    for (nodes, known, test) in parts {
        replace_in_copies(p, &nodes, &value, &known);
        restrict(p, &nodes, &test);
    }
    true
}

fn copy(p: &mut Program, l: LoopId, suffix: &str) -> Vec<Node> {
    let body = p.loop_(l).body.clone();
    let mut copier = Copier::new(p, l, suffix);
    body.into_iter().map(|n| copier.node(p, n)).collect()
}

/// The digit with an interior whose tests are made most often.
fn digit(p: &Program, l: LoopId) -> Option<Digit> {
    let r = program_ranges(p);
    let var = p.loop_(l).var;
    let tests = tests(p, l, &r);
    let mut known: Vec<Expr> = Vec::new();
    for test in &tests {
        let [value] = &digits(test, var)[..] else {
            continue;
        };
        if !known.contains(value) {
            known.push(value.clone());
        }
    }
    known.into_iter().find_map(|value| {
        let inside = inside(&value, var, &tests, &r)?;
        let extent = bounds(&value, &r)?.hi + 1;
        let is_inside = inside.start <= 1 && extent - inside.end <= 1;
        let is_part = !inside.is_empty() && inside != (0..extent);
        (is_inside && is_part).then_some(Digit {
            value,
            extent,
            inside,
        })
    })
}

/// Whether a test depends on more than a loop's variable: else it is made once an iteration.
fn is_inner(test: &Expr, var: VarId) -> bool {
    test.vars().iter().any(|v| *v != var)
}

/// The tests of which copies rid an iteration, as far as they depend on the loop's variable
/// itself rather than on another digit of it.
pub(super) fn tests_of_whole_loop(p: &Program, l: LoopId, r: &Ranges) -> Vec<Expr> {
    let var = p.loop_(l).var;
    let mut all = tests(p, l, r);
    all.retain(|test| digits(test, var)[..] == [Expr::var(var)]);
    all
}

/// The tests that are made inside an iteration of the loop, those first that are made most
/// often: of equally many those for each lane.
fn tests(p: &Program, l: LoopId, r: &Ranges) -> Vec<Expr> {
    let var = p.loop_(l).var;
    let mut found: Vec<(Expr, (i64, bool))> = Vec::new();
    for b in p.blocks_under(&[Node::Loop(l)]) {
        let around = path(p, Node::Block(b));
        let loops = around.iter().map(|l| p.loop_(*l));
        let (lanes, loops): (Vec<_>, Vec<_>) = loops.partition(|l| l.kind == LoopKind::Vectorized);
        let reduced = p.block(b).reduce_iters().map(|i| i.binding.vars());
        let reduced: Vec<VarId> = reduced.flatten().collect();
        let times = loops.iter().map(|l| l.extent);
        let times = times.fold(1, i64::saturating_mul);
        for test in conditions(p, &[b], var, r) {
            let of_lanes = lanes.iter().any(|l| test.uses_var(l.var));
            let of_terms = reduced.iter().any(|v| test.uses_var(*v));
            if !is_inner(&test, var) || of_terms && !of_lanes {
                continue;
            }
            match found.iter_mut().find(|(known, _)| *known == test) {
                Some((_, often)) => *often = (times, of_lanes).max(*often),
                None => found.push((test, (times, of_lanes))),
            }
        }
    }
    found.sort_by_key(|(_, often)| std::cmp::Reverse(*often));
    found.into_iter().map(|(test, _)| test).collect()
}

/// The parts of an expression that are digits of a variable, each once.
fn digits(e: &Expr, var: VarId) -> Vec<Expr> {
    fn add(e: &Expr, var: VarId, found: &mut Vec<Expr>) {
        if is_digit(e, var) {
            if !found.contains(e) {
                found.push(e.clone());
            }
            return;
        }
        e.children().for_each(|c| add(c, var, found));
    }
    let mut found = Vec::new();
    add(e, var, &mut found);
    found
}

fn is_digit(e: &Expr, var: VarId) -> bool {
    match e.kind() {
        ExprKind::Var(v) => *v == var,
        ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, a, by) => {
            by.as_int().is_some() && is_digit(a, var)
        }
        _ => false,
    }
}

/// The values of a digit with which all tests that depend on it alone hold for sure.
fn inside(value: &Expr, var: VarId, tests: &[Expr], r: &Ranges) -> Option<Range<i64>> {
    let Interval { lo: 0, hi } = bounds(value, r)? else {
        return None;
    };
    let extent = hi + 1;
    // The loop's variable stands for the digit, which is all that these tests use of it.
    let mut at = r.clone();
    at.set(var, 0, hi);
    let digit = Expr::var(var);
    let mut inside = 0..extent;
    for test in tests {
        if digits(test, var)[..] != [value.clone()] {
            continue;
        }
        let test = test.rewrite(&mut |part| (part == value).then(|| digit.clone()));
        let test = simplify(&test, &at);
        let Some(holds) = holds_in(&test, var, &inside, extent, &at) else {
            continue;
        };
        inside = inside.start.max(holds.start)..inside.end.min(holds.end);
    }
    Some(inside)
}
