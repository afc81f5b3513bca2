//! annotate{loop, unroll_by}: let code generation unroll a serial loop by a factor.

use crate::illegal::Illegal;
use crate::legality::serial;
use crate::steps::loop_named;
use ir::{Annotation, Program};

pub(crate) const STEP: &str = "annotate";

/// Larger factors only cost code.
const MOST: i64 = 1024;

/// A factor of 1 takes the annotation back.
pub(crate) fn apply(program: &mut Program, target: &str, unroll_by: i64) -> Result<(), Illegal> {
    let l = loop_named(program, STEP, target)?;
    let refuse = |why: String| Illegal::new(STEP, target, why);
    serial(program, l).map_err(refuse)?;
    if !(1..=MOST).contains(&unroll_by) {
        return Err(refuse(format!("{unroll_by} is not in 1..={MOST}")));
    }
    let annotations = &mut program.loop_mut(l).annotations;
    annotations.retain(|a| !matches!(a, Annotation::UnrollBy(_)));
    if unroll_by > 1 {
        annotations.push(Annotation::UnrollBy(unroll_by));
    }
    Ok(())
}
