//! vectorize{loop}: run all iterations of an innermost loop in vector lanes.
//!
//! Lanes run at once: they must not depend on each other, and no buffer may
//! live inside one.

use crate::illegal::Illegal;
use crate::legality::{independent, serial};
use crate::nest::inside_vector;
use crate::steps::loop_named;
use ir::{LoopId, LoopKind, Node, Program, Role};

pub(crate) const STEP: &str = "vectorize";

/// Lanes beyond any vector register file.
const MOST_LANES: i64 = 1024;

pub(crate) fn apply(program: &mut Program, target: &str) -> Result<(), Illegal> {
    let l = loop_named(program, STEP, target)?;
    check(program, l).map_err(|why| Illegal::new(STEP, target, why))?;
    program.loop_mut(l).kind = LoopKind::Vectorized;
    Ok(())
}

fn check(p: &Program, l: LoopId) -> Result<(), String> {
    serial(p, l)?;
    if inside_vector(p, l) {
        return Err("it is inside a vectorized loop".into());
    }
    if p.loop_(l).extent > MOST_LANES {
        return Err(format!("it has more than {MOST_LANES} iterations"));
    }
    for n in p.children(Some(l)) {
        match n {
            Node::Loop(inner) => {
                return Err(format!("it encloses the loop `{}`", p.loop_(*inner).name));
            }
            Node::Block(b) if p.block(*b).tensor.is_some() => {
                return Err(format!("`{}` is tensorized", p.block(*b).name));
            }
            Node::Block(_) => {}
        }
    }
    let usage = p.usage();
    let inside = |b: &ir::BufferId| {
        p.buffer(*b).role == Role::Intermediate && usage[b.index()].site == Some(l)
    };
    if let Some(b) = p.buffer_ids().find(inside) {
        return Err(format!("`{}` lives inside it", p.buffer(b).name));
    }
    independent(p, l)
}
