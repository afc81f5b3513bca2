//! prefetch{buffer, loop, distance}: fetch what the loads of a buffer under a
//! loop will touch some iterations later.

use crate::illegal::Illegal;
use crate::steps::{buffer_named, loop_named};
use ir::{Annotation, LoopKind, Node, Program, Scope};

pub(crate) const STEP: &str = "prefetch";

pub(crate) fn apply(
    program: &mut Program,
    buffer: &str,
    target: &str,
    distance: i64,
) -> Result<(), Illegal> {
    let b = buffer_named(program, STEP, buffer)?;
    let l = loop_named(program, STEP, target)?;
    let refuse = |why: String| Illegal::new(STEP, buffer, why);
    let under = program.blocks_under(&[Node::Loop(l)]);
    if !under.iter().any(|x| program.block(*x).reads().contains(&b)) {
        return Err(refuse(format!("it is not loaded under `{target}`")));
    }
    if distance < 1 {
        return Err(refuse(format!("a distance of {distance} is less than 1")));
    }
    if program.buffer(b).scope != Scope::Global {
        return Err(refuse("it is not in main memory".into()));
    }
    if !matches!(program.loop_(l).kind, LoopKind::Serial | LoopKind::Unrolled) {
        return Err(refuse(format!("`{target}` is neither serial nor unrolled")));
    }
    let annotations = &mut program.loop_mut(l).annotations;
    let known = |a: &Annotation| matches!(a, Annotation::Prefetch { buffer, .. } if *buffer == b);
    if annotations.iter().any(known) {
        return Err(refuse(format!("`{target}` prefetches it already")));
    }
    annotations.push(Annotation::Prefetch {
        buffer: b,
        distance,
    });
    Ok(())
}
