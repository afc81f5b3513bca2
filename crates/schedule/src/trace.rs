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

impl Trace {
    /// The steps with the decided values in place of references to decisions: equal for traces
    /// that do the same to a program, whatever their decisions are called and offer.
    ///
    /// # Errors
    /// If a decision that a step refers to is missing.
    pub fn decided_steps(&self) -> Result<Vec<Step>, Illegal> {
        let decided = self.steps.iter().map(|s| s.decided(&self.decisions));
        decided.filter_map(Result::transpose).collect()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    fn decided(text: &str) -> Vec<String> {
        let steps = parse(text).unwrap().decided_steps().unwrap();
        steps.iter().map(Step::to_string).collect()
    }

    #[test]
    fn decided_steps_hold_values_and_no_references() {
        let text = "decision 0 tile perfect_tile(32, 2, max 8) = [4, 8]
            decision 1 place compute_location(i, \"j$0\", .) = 1
            decision 2 unroll categorical(1, 2, 4) = 4
            split i $0
            split j [_, $0.1, 3]
            compute_at c $1
            reverse_compute_at d k
            pack w [1:$0, 0:2] [0, 1, 2]
            prefetch w k $2
            annotate k unroll_by $2
            pad j $0.1
            winograd \"b$2\" $2
            parallel \"i$1\"";
        let values = [
            "split i [4, 8]",
            "split j [_, 8, 3]",
            "compute_at c \"j$0\"",
            "reverse_compute_at d k",
            "pack w [1:4, 0:2] [0, 1, 2]",
            "prefetch w k 4",
            "annotate k unroll_by 4",
            "pad j 8",
            "winograd \"b$2\" 4",
            "parallel \"i$1\"",
        ];
        assert_eq!(decided(text), values);
    }

    #[test]
    fn a_block_that_stays_where_it_is_has_no_step() {
        let text = "decision 0 place compute_location(i, .) = 1\ncompute_at c $0\nparallel i";
        assert_eq!(decided(text), ["parallel i"]);
    }

    #[test]
    fn names_and_offers_of_decisions_make_no_difference() {
        let one = "decision 0 a categorical(2, 4) = 4\nannotate i unroll_by $0";
        let other = "decision 0 x categorical(1) = 1\ndecision 1 b categorical(4, 8) = 4
            annotate i unroll_by $1";
        assert_eq!(decided(one), decided(other));
        assert_ne!(decided(one), decided("annotate i unroll_by 2"));
    }

    #[test]
    fn a_decision_that_is_missing_is_refused() {
        let step = Step::Pad {
            loop_: "i".into(),
            multiple: crate::step::Arg::Decision { id: 0, part: 0 },
        };
        let trace = Trace {
            steps: vec![step],
            decisions: vec![],
        };
        let refused = trace.decided_steps().unwrap_err();
        assert!(refused.to_string().contains("no decision 0"), "{refused}");
    }
}
