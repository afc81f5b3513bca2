//! No schedule twice.

use super::{Filter, Past, Verdict};
use crate::trial::{Form, Trial};
use schedule::Step;
use search::{Candidate, Context};
use std::collections::HashSet;

/// Drops candidates whose schedule the search had before. Points differ and schedules do not
/// where a decision belongs to an optional step that is illegal for this program.
#[derive(Debug, Default)]
pub struct Distinct {
    seen: HashSet<Vec<Step>>,
}

impl Distinct {
    pub const NAME: &str = "distinct";
}

/// The steps alone: values of decisions that no step uses make no difference.
fn steps(candidate: &Candidate) -> Option<Vec<Step>> {
    candidate.trace.decided_steps().ok()
}

impl Filter for Distinct {
    fn name(&self) -> &'static str {
        Distinct::NAME
    }

    fn form(&self) -> Form {
        Form::Schedule
    }

    fn judge(&mut self, _: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        let mut one = |t: &Trial| {
            let steps = t.candidate.as_ref().and_then(steps);
            match steps.is_none_or(|steps| self.seen.insert(steps)) {
                true => Verdict::Keep { score: 0.0 },
                false => Verdict::Drop {
                    why: "its schedule came before".into(),
                },
            }
        };
        trials.iter().map(&mut one).collect()
    }

    fn go_on(&mut self, context: &Context<'_>, past: &Past) {
        let Some(program) = context.program else {
            return;
        };
        let candidates = past
            .kept
            .iter()
            .filter_map(|(p, _)| context.space.candidate(program, p).ok());
        self.seen
            .extend(candidates.filter_map(|candidate| steps(&candidate)));
    }
}
