//! set_scope{buffer, scope}: choose the memory of an intermediate.
//!
//! Memory private to a worker, a block of threads or a thread must not be
//! accessed by several of them. Whether a buffer fits is left to lowering.

use crate::illegal::Illegal;
use crate::legality::within_scope;
use crate::steps::buffer_named;
use ir::{Program, Role, Scope};

pub(crate) const STEP: &str = "set_scope";

pub(crate) fn apply(program: &mut Program, buffer: &str, scope: Scope) -> Result<(), Illegal> {
    let b = buffer_named(program, STEP, buffer)?;
    let refuse = |why: String| Illegal::new(STEP, buffer, why);
    if program.buffer(b).role != Role::Intermediate {
        return Err(refuse("a parameter stays in main memory".into()));
    }
    within_scope(program, &program.usage()[b.index()], scope).map_err(refuse)?;
    program.buffer_mut(b).scope = scope;
    Ok(())
}
