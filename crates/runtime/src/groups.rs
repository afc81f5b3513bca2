//! Choosing whether the steps of a group run apart or a set together.
//!
//! Owns the selector of a group, whose alternatives are: each step runs a free alternative, which its own selector
//! chooses; or all run one of the sets. A sample is what all steps took in one inference. The selectors of the steps
//! are inside of that of the group: while one of them tries alternatives, steps that run apart are no sample.

use crate::model::{CompiledModel, StepId};
use crate::run::SelectionKey;
use bestof::{Begun, BestOf, Circumstances};
use std::sync::Arc;
use std::time::Duration;

/// Position 0 is to run apart, and the sets follow. Equal groups share it.
pub(crate) type GroupSelector = BestOf<SelectionKey, ()>;

/// A group of a variant.
#[derive(Clone)]
pub(crate) struct Grouped {
    pub selector: Arc<GroupSelector>,
    /// The steps, and how many free alternatives each has.
    pub steps: Vec<(usize, usize)>,
}

/// What the steps of a group took so far in an inference that is to be a sample.
pub(crate) struct Open {
    begun: Begun,
    spent: Duration,
    how: Circumstances,
    steps: usize,
}

impl Open {
    /// Adds a step. `tries` says that its own selector is not decided.
    pub fn add(&mut self, took: Duration, tries: bool, how: Circumstances) {
        self.spent += took;
        self.how.disturbed |= tries;
        self.how.uninterrupted &= how.uninterrupted;
        self.how.warm &= how.warm;
        self.steps += 1;
    }
}

impl Grouped {
    pub fn new(model: &CompiledModel, group: usize, selector: Arc<GroupSelector>) -> Grouped {
        let steps = model.groups()[group].steps.iter().map(|s| s.index());
        let steps = steps.map(|at| (at, model.free_alternatives(at))).collect();
        Grouped { selector, steps }
    }

    pub fn begins_with(&self, step: StepId) -> bool {
        self.steps[0].0 == step.index()
    }

    pub fn ends_with(&self, step: StepId) -> bool {
        let last = self.steps.last();
        last.is_some_and(|(at, _)| *at == step.index())
    }

    /// The number of sets.
    pub fn sets(&self) -> usize {
        self.selector.alternatives() - 1
    }

    /// Begins an inference: the set that runs, if the steps do not run apart, and what is to be told of them.
    pub fn begin(&self, key: &SelectionKey) -> (Option<usize>, Option<Open>) {
        let begun = self.selector.begin(key);
        let set = begun.alternative().checked_sub(1);
        let open = begun.is_timed().then_some(Open {
            begun,
            spent: Duration::ZERO,
            how: Circumstances {
                uninterrupted: true,
                warm: true,
                ..Circumstances::default()
            },
            steps: 0,
        });
        (set, open)
    }

    /// The last step has run. A step that was not timed makes it no sample.
    pub fn finish(&self, open: Open) {
        if open.steps == self.steps.len() {
            self.selector.finish_under(open.begun, open.spent, open.how);
        }
    }

    pub fn is_decided(&self, key: &SelectionKey) -> bool {
        self.selector.decided_position(key).is_some()
    }

    /// The alternative that a step runs for what was decided; `own` is the choice of the step's own selector.
    pub fn decided(&self, step: usize, key: &SelectionKey, own: Option<usize>) -> Option<usize> {
        match self.selector.decided_position(key)? {
            0 => own,
            set => Some(self.free(step) + set - 1),
        }
    }

    /// The number of free alternatives of a step.
    pub fn free(&self, step: usize) -> usize {
        let of = self.steps.iter().find(|(at, _)| *at == step);
        of.map_or(0, |(_, free)| *free)
    }
}
