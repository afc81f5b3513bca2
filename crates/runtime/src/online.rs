//! Choosing among the alternatives of steps while inferences run.
//!
//! Steps with the same alternatives, such as equal layers, share their decisions. A decided step costs
//! a look at a list more than one without alternatives, and no reading of a clock.

use crate::model::StepId;
use crate::run::{Choice, SelectionKey, Selector};
use crate::variants::Variants;
use bestof::{Begun, BestOf, Decisions, Options, Unfit};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// One for the steps that have the same alternatives; these are positions.
type OfSteps = Arc<BestOf<SelectionKey, usize>>;

/// The selectors of a model's steps, for models that run and for whoever asks what was decided.
#[derive(Clone)]
pub struct Selectors {
    all: Vec<OfSteps>,
    /// Of each step of each variant; none for steps without a choice.
    steps: Vec<Vec<Option<usize>>>,
}

impl Selectors {
    /// For the variants of a model. Problem sizes that decisions know start decided.
    ///
    /// Alternatives are named by the hashes of their code (hex), and selectors by the hash of these
    /// names. So a decision holds for any model that has the same kernels. Decisions are not watched,
    /// whatever [`Options::drift`] says: a decided step reads no clock.
    ///
    /// # Errors
    /// If an option is out of its range.
    pub fn new(
        variants: &Variants,
        options: &Options,
        known: Option<&Arc<Decisions>>,
    ) -> Result<Selectors, Unfit> {
        let mut found = Selectors {
            all: vec![],
            steps: vec![],
        };
        let mut positions: HashMap<Vec<String>, usize> = HashMap::new();
        for model in variants.models() {
            let mut of_model = Vec::new();
            for step in model.steps() {
                if step.alternatives.len() < 2 {
                    of_model.push(None);
                    continue;
                }
                let hash = |a: &crate::model::Alternative| {
                    let code = model.kernels()[a.kernel.index()].code_hash();
                    format!("{code:016x}")
                };
                let names: Vec<String> = step.alternatives.iter().map(hash).collect();
                let at = match positions.get(&names) {
                    Some(at) => *at,
                    None => {
                        let of_names = xxhash_rust::xxh3::xxh3_64(names.concat().as_bytes());
                        let alternatives = names.iter().cloned().zip(0..);
                        let one = BestOf::new(
                            &format!("{of_names:016x}"),
                            alternatives,
                            options.clone(),
                        )?;
                        found.all.push(Arc::new(match known {
                            Some(known) => one.starting_from(known.clone()),
                            None => one,
                        }));
                        positions.insert(names, found.all.len() - 1);
                        found.all.len() - 1
                    }
                };
                of_model.push(Some(at));
            }
            found.steps.push(of_model);
        }
        Ok(found)
    }

    /// A selector for a model of these variants, for [`crate::Model::set_selector`].
    pub fn online(&self) -> Box<dyn Selector> {
        let decided = self.steps.iter().map(|of| vec![None; of.len()]).collect();
        Box::new(Online {
            of: self.clone(),
            variant: 0,
            decided,
            begun: None,
        })
    }

    /// The alternative that was decided on for each step of a variant; none while alternatives are
    /// tried, and for steps without any.
    pub fn decided(
        &self,
        variant: usize,
        key: impl Fn(usize) -> SelectionKey,
    ) -> Vec<Option<usize>> {
        let one =
            |(step, at): (usize, &Option<usize>)| self.all[(*at)?].decided_position(&key(step));
        self.steps[variant].iter().enumerate().map(one).collect()
    }

    /// Whether every problem size that was met is decided.
    pub fn are_decided(&self) -> bool {
        let reports = self.all.iter().map(|s| s.report());
        let mut keys = reports.flat_map(|r| r.keys);
        keys.all(|k| k.decided.is_some())
    }

    /// Adds the decisions.
    pub fn save(&self, into: &mut Decisions) {
        self.all.iter().for_each(|s| s.save(into));
    }
}

struct Online {
    of: Selectors,
    variant: usize,
    /// Alternatives of steps that are decided, of each variant.
    decided: Vec<Vec<Option<usize>>>,
    /// The call that runs, if its time is wanted.
    begun: Option<Begun>,
}

impl Online {
    fn selector(&self, step: StepId) -> Option<&OfSteps> {
        let at = self.of.steps.get(self.variant)?.get(step.index())?;
        self.of.all.get((*at)?)
    }
}

impl Selector for Online {
    fn begins(&mut self, variant: usize) {
        self.variant = variant;
    }

    fn select(&mut self, step: StepId, key: &SelectionKey, _: usize) -> Choice {
        let decided = self
            .decided
            .get(self.variant)
            .and_then(|d| d.get(step.index()));
        if let Some(Some(alternative)) = decided
            && bestof::is_enabled()
        {
            return Choice {
                alternative: *alternative,
                timed: false,
            };
        }
        let Some(selector) = self.selector(step) else {
            return Choice {
                alternative: 0,
                timed: false,
            };
        };
        let begun = selector.begin(key);
        let choice = Choice {
            alternative: begun.alternative(),
            timed: begun.is_timed(),
        };
        if !choice.timed && bestof::is_enabled() {
            self.decided[self.variant][step.index()] = selector.decided_position(key);
        }
        self.begun = choice.timed.then_some(begun);
        choice
    }

    fn finished(&mut self, step: StepId, _: &SelectionKey, _: usize, time_ns: u64) {
        let begun = self.begun.take();
        if let (Some(selector), Some(begun)) = (self.selector(step), begun) {
            selector.finish(begun, Duration::from_nanos(time_ns));
        }
    }

    fn failed(&mut self, step: StepId, key: &SelectionKey, alternative: usize) -> Option<usize> {
        self.begun = None;
        *self.decided.get_mut(self.variant)?.get_mut(step.index())? = None;
        let selector = self.selector(step)?;
        // The next one runs instead, and nobody times it.
        let left = selector.fail(key, alternative);
        left.then(|| selector.begin(key).alternative())
    }

    fn ends(&mut self) {
        // A call that did not end is no sample.
        self.begun = None;
    }
}
