//! No schedule twice.

use super::{Filter, Verdict};
use crate::trial::{Form, Trial};
use schedule::Step;
use search::Context;
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

impl Filter for Distinct {
    fn name(&self) -> &'static str {
        Distinct::NAME
    }

    fn form(&self) -> Form {
        Form::Schedule
    }

    fn judge(&mut self, _: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        let mut one = |t: &Trial| {
            // The steps alone: values of decisions that no step uses make no difference.
            let candidate = t.candidate.as_ref();
            let steps = candidate.and_then(|c| c.trace.decided_steps().ok());
            match steps.is_none_or(|steps| self.seen.insert(steps)) {
                true => Verdict::Keep { score: 0.0 },
                false => Verdict::Drop {
                    why: "its schedule came before".into(),
                },
            }
        };
        trials.iter().map(&mut one).collect()
    }
}
