//! bind{loop, axis}: run one iteration of a loop per index of a hardware axis.

use crate::illegal::Illegal;
use crate::legality::{concurrent, serial};
use crate::nest::path;
use crate::steps::loop_named;
use ir::{Axis, LoopId, LoopKind, Node, Program};

pub(crate) const STEP: &str = "bind";

pub(crate) fn apply(program: &mut Program, target: &str, axis: Axis) -> Result<(), Illegal> {
    let l = loop_named(program, STEP, target)?;
    check(program, l, axis).map_err(|why| Illegal::new(STEP, target, why))?;
    program.loop_mut(l).kind = LoopKind::Bound(axis);
    Ok(())
}

fn check(p: &Program, l: LoopId, axis: Axis) -> Result<(), String> {
    serial(p, l)?;
    let outside = path(p, Node::Loop(l));
    let mut inside = Vec::new();
    p.walk(&[Node::Loop(l)], &mut |n, _| {
        if let Node::Loop(inner) = n {
            inside.push(inner);
        }
    });
    for x in outside.iter().chain(&inside) {
        let x = p.loop_(*x);
        match x.kind {
            LoopKind::Bound(a) if a == axis => {
                return Err(format!("it is nested with `{}` of the same axis", x.name));
            }
            LoopKind::Parallel => {
                return Err(format!("it is nested with the parallel loop `{}`", x.name));
            }
            _ => {}
        }
    }
    let is_thread = |k: LoopKind| matches!(k, LoopKind::Bound(a) if !is_block(a));
    let is_grid = |k: LoopKind| matches!(k, LoopKind::Bound(a) if is_block(a));
    let wrong = match is_block(axis) {
        true => outside.iter().find(|x| is_thread(p.loop_(**x).kind)),
        false => inside.iter().find(|x| is_grid(p.loop_(**x).kind)),
    };
    if let Some(x) = wrong {
        let name = &p.loop_(*x).name;
        return Err(format!(
            "blocks of threads would be inside threads with `{name}`"
        ));
    }
    concurrent(p, l, LoopKind::Bound(axis))
}

fn is_block(axis: Axis) -> bool {
    matches!(axis, Axis::BlockX | Axis::BlockY | Axis::BlockZ)
}
