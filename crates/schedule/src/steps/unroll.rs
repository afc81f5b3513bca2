//! unroll{loop}: repeat the body of a loop instead of looping.

use crate::illegal::Illegal;
use crate::legality::serial;
use crate::nest::path_through;
use crate::steps::loop_named;
use ir::{LoopId, LoopKind, Node, Program};

pub(crate) const STEP: &str = "unroll";

/// Copies of a block that unrolling may make: code beyond that only costs.
const MOST_COPIES: i64 = 4096;

pub(crate) fn apply(program: &mut Program, target: &str) -> Result<(), Illegal> {
    let l = loop_named(program, STEP, target)?;
    let refuse = |why: String| Illegal::new(STEP, target, why);
    serial(program, l).map_err(refuse)?;
    let copies = copies(program, l);
    if copies > MOST_COPIES {
        return Err(refuse(format!(
            "a block would be repeated {copies} times, more than {MOST_COPIES}"
        )));
    }
    program.loop_mut(l).kind = LoopKind::Unrolled;
    Ok(())
}

/// How often a block under the loop would be repeated.
fn copies(p: &Program, l: LoopId) -> i64 {
    let through = path_through(p, l);
    let mut most = 0;
    p.walk(&[Node::Loop(l)], &mut |n, inner| {
        if matches!(n, Node::Block(_)) {
            let unrolled = through
                .iter()
                .chain(inner.iter().filter(|x| **x != l))
                .map(|x| p.loop_(*x))
                .filter(|x| x.kind == LoopKind::Unrolled)
                .fold(p.loop_(l).extent, |n, x| n.saturating_mul(x.extent));
            most = most.max(unrolled);
        }
    });
    most
}
