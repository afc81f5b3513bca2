//! fuse{outer, inner}: make one loop, `outer&inner`, of a loop and its only child.

use crate::illegal::Illegal;
use crate::legality::serial;
use crate::nest::live_name;
use crate::rebind::substitute;
use crate::steps::loop_named;
use ir::{Annotation, Expr, LoopId, Node, Program};

pub(crate) const STEP: &str = "fuse";

/// Gives the fused loop.
pub(crate) fn apply(program: &mut Program, outer: &str, inner: &str) -> Result<LoopId, Illegal> {
    let o = loop_named(program, STEP, outer)?;
    let i = loop_named(program, STEP, inner)?;
    serial(program, o).map_err(|why| Illegal::new(STEP, outer, why))?;
    serial(program, i).map_err(|why| Illegal::new(STEP, inner, why))?;
    if program.children(Some(o)) != [Node::Loop(i)] {
        let why = format!("`{inner}` is not its only child");
        return Err(Illegal::new(STEP, outer, why));
    }
    let width = program.loop_(i).extent;
    let Some(extent) = program.loop_(o).extent.checked_mul(width) else {
        return Err(Illegal::new(STEP, outer, "the extents overflow"));
    };
    let name = live_name(program, &format!("{outer}&{inner}"));
    let body = program.loop_(i).body.clone();
    let fused = program.new_loop(name, extent, body);
    program.loop_mut(fused).annotations = annotations(program, o, i);
    let (f, o_var, i_var) = (
        Expr::var(program.loop_(fused).var),
        program.loop_(o).var,
        program.loop_(i).var,
    );
    program.replace_node(Node::Loop(o), &[Node::Loop(fused)]);
    substitute(program, &[Node::Loop(fused)], &|v| {
        if v == o_var {
            Some(f.clone().floor_div(width))
        } else if v == i_var {
            Some(f.clone().floor_mod(width))
        } else {
            None
        }
    });
    Ok(fused)
}

/// The inner loop's, and the outer one's prefetches at the same distance in elements.
fn annotations(p: &Program, outer: LoopId, inner: LoopId) -> Vec<Annotation> {
    let mut all = p.loop_(inner).annotations.clone();
    for a in &p.loop_(outer).annotations {
        let Annotation::Prefetch { buffer, distance } = a else {
            continue;
        };
        let known =
            |x: &Annotation| matches!(x, Annotation::Prefetch { buffer: b, .. } if b == buffer);
        if !all.iter().any(known) {
            all.push(Annotation::Prefetch {
                buffer: *buffer,
                distance: distance.saturating_mul(p.loop_(inner).extent),
            });
        }
    }
    all
}
