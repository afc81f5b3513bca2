//! parallel{loop}: share the iterations of a loop between workers.

use crate::illegal::Illegal;
use crate::legality::{concurrent, serial};
use crate::nest::path;
use crate::steps::loop_named;
use ir::{LoopId, LoopKind, Node, Program};

pub(crate) const STEP: &str = "parallel";

pub(crate) fn apply(program: &mut Program, target: &str) -> Result<(), Illegal> {
    let l = loop_named(program, STEP, target)?;
    check(program, l).map_err(|why| Illegal::new(STEP, target, why))?;
    program.loop_mut(l).kind = LoopKind::Parallel;
    Ok(())
}

fn check(p: &Program, l: LoopId) -> Result<(), String> {
    serial(p, l)?;
    let shared = |x: LoopKind| matches!(x, LoopKind::Parallel | LoopKind::Bound(_));
    let mut related = path(p, Node::Loop(l));
    p.walk(&[Node::Loop(l)], &mut |n, _| {
        if let Node::Loop(inner) = n {
            related.push(inner);
        }
    });
    if let Some(x) = related.iter().find(|x| shared(p.loop_(**x).kind)) {
        let name = &p.loop_(*x).name;
        return Err(format!("it is nested with the parallel loop `{name}`"));
    }
    concurrent(p, l, LoopKind::Parallel)
}
