//! Trace: a schedule as steps and decisions, and its replay.

use crate::decision::Decision;
use crate::illegal::Illegal;
use crate::step::Step;
use ir::Program;

/// A schedule: steps in order, and the decisions that their arguments refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trace {
    pub steps: Vec<Step>,
    pub decisions: Vec<Decision>,
}

/// A trace that a program does not admit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step_index} of the trace, `{step}`, is refused: {illegal}")]
pub struct ReplayError {
    /// From 0.
    pub step_index: usize,
    /// The refused step in the text form.
    pub step: String,
    pub illegal: Illegal,
}

/// The program that a trace makes of a program.
pub fn replay(program: &Program, trace: &Trace) -> Result<Program, ReplayError> {
    let mut p = program.clone();
    for (step_index, step) in trace.steps.iter().enumerate() {
        step.apply(&mut p, &trace.decisions)
            .map_err(|illegal| ReplayError {
                step_index,
                step: step.to_string(),
                illegal,
            })?;
    }
    Ok(p)
}
