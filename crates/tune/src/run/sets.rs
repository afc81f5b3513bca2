//! Evaluators that answer alike and work at the same time: core sets of this machine, or machines of a kind.
//!
//! Owns which of them evaluates the candidates of which search, and what each did. Sets are dealt to the models that have a
//! next batch, so a set is not idle because its model was suspended. When models are suspended is the budget's decision.

use super::{Run, TaskSearch};
use crate::compile::Builders;
use crate::error::Result;
use crate::evaluator::Evaluator;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// One of several evaluators that answer alike.
#[derive(Clone, Debug, Serialize)]
pub struct CoreSetUse {
    /// Which it is, such as the CPUs `0-3`.
    pub name: String,
    /// Candidates that it evaluated.
    pub candidates: u64,
    /// How long it evaluated them, and the share of the search that this was.
    pub busy_s: f64,
    pub share: f64,
    /// Whether it still answers.
    pub works: bool,
}

/// Its part of a run.
pub struct Set {
    name: String,
    /// Position of its evaluator, and of the first one that answers alike.
    pub(super) evaluator: usize,
    first: usize,
    candidates: u64,
    busy: Duration,
}

impl<'a> Run<'a> {
    /// Adds an evaluator that works beside others; its position. With `first` it answers as that one does, which was added
    /// so before.
    pub fn add_set(
        &mut self,
        name: String,
        evaluator: Box<dyn Evaluator + 'a>,
        first: Option<usize>,
    ) -> usize {
        let evaluator = self.add_evaluator(evaluator);
        self.sets.push(Set {
            name,
            evaluator,
            first: first.unwrap_or(evaluator),
            candidates: 0,
            busy: Duration::ZERO,
        });
        evaluator
    }

    /// The first of the evaluators that answer as this one does.
    pub fn first_alike(&self, evaluator: usize) -> usize {
        let set = self.sets.iter().find(|s| s.evaluator == evaluator);
        set.map_or(evaluator, |s| s.first)
    }

    /// Deals the sets that work to the models that have a next batch. Where these are fewer than the sets, each has several
    /// sets, which share its tasks.
    pub(super) fn deal_sets(&mut self, runs: &[bool]) {
        let firsts: BTreeSet<usize> = self.sets.iter().map(|s| s.first).collect();
        let models = self.models();
        for first in firsts {
            let alike = self.sets.iter().filter(|s| s.first == first);
            let working = alike.map(|s| s.evaluator);
            let working: Vec<usize> = working.filter(|e| self.evaluators[*e].works()).collect();
            let own = |tasks: &Vec<TaskSearch>| -> Vec<usize> {
                let searches = tasks.iter().map(|t| t.search);
                let is_own = |s: &usize| self.first_alike(self.searches[*s].evaluator) == first;
                searches.filter(is_own).collect()
            };
            let running = models.iter().zip(runs).filter(|(_, runs)| **runs);
            let running: Vec<Vec<usize>> = running.map(|(tasks, _)| own(tasks)).collect();
            if working.is_empty() {
                continue;
            }
            let mut dealt = BTreeSet::new();
            for (i, searches) in running.iter().enumerate() {
                let of_model = working.iter().skip(i % working.len());
                let of_model: Vec<usize> = of_model.step_by(running.len()).copied().collect();
                for (at, search) in searches.iter().enumerate() {
                    // Models may have it in common.
                    if dealt.insert(*search) {
                        self.searches[*search].evaluator = of_model[at % of_model.len()];
                    }
                }
            }
        }
    }

    /// Deals the sets anew where one of them no longer works.
    pub(super) fn replace_set(&mut self, evaluator: usize) {
        let Some(set) = self.sets.iter().find(|s| s.evaluator == evaluator) else {
            return;
        };
        if self.evaluators[evaluator].works() {
            return;
        }
        let warning = format!(
            "the core set {} stopped; the candidates that it had are lost, and others take its tasks",
            set.name
        );
        if !self.disturbances.warnings.contains(&warning) {
            self.disturbances.warnings.push(warning);
        }
        let runs = |model: usize| {
            let last = self.epochs.get(model).and_then(|e| e.last());
            last.is_none_or(|e| e.runs)
        };
        let runs: Vec<bool> = (0..self.models().len()).map(runs).collect();
        self.deal_sets(&runs);
    }

    /// The names of the sets that the tasks of each model are on; nothing where there are none.
    pub(super) fn sets_of_models(&self) -> Vec<Vec<String>> {
        let of_model = |tasks: &Vec<TaskSearch>| {
            let on = |s: &&Set| {
                let is = |t: &TaskSearch| self.searches[t.search].evaluator == s.evaluator;
                tasks.iter().any(is)
            };
            self.sets
                .iter()
                .filter(on)
                .map(|s| s.name.clone())
                .collect()
        };
        self.models().iter().map(of_model).collect()
    }

    /// Notes what a set did.
    pub(super) fn note_set(&mut self, evaluator: usize, candidates: usize, took: Option<Duration>) {
        if let Some(set) = self.sets.iter_mut().find(|s| s.evaluator == evaluator) {
            set.candidates += candidates as u64;
            set.busy += took.unwrap_or_default();
        }
    }

    /// What the sets did.
    pub fn set_use(&self) -> Vec<CoreSetUse> {
        let search_s = self.tuning.as_secs_f64().max(1e-9);
        let one = |s: &Set| CoreSetUse {
            name: s.name.clone(),
            candidates: s.candidates,
            busy_s: s.busy.as_secs_f64(),
            share: s.busy.as_secs_f64() / search_s,
            works: self.evaluators[s.evaluator].works(),
        };
        self.sets.iter().map(one).collect()
    }

    /// Whether an evaluator measures on this machine now, beside what the run does.
    pub(super) fn measures_beside(&self) -> bool {
        let all = self.evaluators.iter().zip(&self.outstanding);
        all.into_iter().any(|(e, o)| e.is_beside() && !o.is_empty())
    }

    /// Whether one that does has an answer.
    pub(super) fn is_answered_beside(&self) -> bool {
        let all = self.evaluators.iter().zip(&self.outstanding);
        all.into_iter()
            .any(|(e, o)| e.is_answered() && !o.is_empty())
    }

    /// Takes what is being measured beside the run, so that it measures alone from here on.
    pub(super) fn settle(&mut self, mut builders: Option<&mut Builders>) -> Result<()> {
        while self.measures_beside() {
            self.collect_answers(builders.as_deref_mut())?;
        }
        Ok(())
    }
}
