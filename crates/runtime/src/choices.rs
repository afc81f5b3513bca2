//! Choices among the alternatives of a model's steps: which ones there are, and what is left of a model
//! once they are made.

use crate::constants::{Constant, gathered};
use crate::derived::Derivation;
use crate::lifetimes::{place_activations, root};
use crate::model::{
    Alternative, Call, CompiledModel, KernelId, Manifest, ModelStep, TensorId, TensorPlace,
};
use std::collections::{BTreeMap, BTreeSet};

/// An alternative for each step, the same in every inference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedChoice {
    /// The algorithm; empty for the first alternatives.
    pub algorithm: String,
    /// Steps with several alternatives, one of which has the algorithm.
    pub steps: usize,
    /// By [`StepId::index`](crate::StepId::index).
    pub alternatives: Vec<usize>,
}

/// The word of an algorithm's name without what follows it: `winograd4` of `winograd4.rows 1f`.
pub(crate) fn word(name: &str) -> &str {
    name.split(['.', ' ']).next().unwrap_or_default()
}

impl CompiledModel {
    /// The algorithm of an alternative without what tells its variants apart: `direct` of `direct.rows`,
    /// and `direct+gemm` of two calls. Empty if the compiler gave it no name.
    ///
    /// # Panics
    /// If the alternative is of another model and out of range here.
    pub fn algorithm(&self, of: &Alternative) -> String {
        let words = of.calls.iter().map(|c| word(&self.kernel(c).algorithm));
        words.collect::<Vec<&str>>().join("+")
    }

    /// The steps that have several alternatives.
    pub fn steps_with_choice(&self) -> impl Iterator<Item = &ModelStep> {
        let steps = self.manifest.steps.iter();
        steps.filter(|s| s.alternatives.len() > 1)
    }

    /// The first alternatives of all steps. Then for each algorithm that a step with a choice has, in the
    /// order of their names: the first alternatives with it, and those of steps without it. A group runs a set
    /// if its first step has the algorithm in that set alone.
    pub fn fixed_choices(&self) -> Vec<FixedChoice> {
        let first = FixedChoice {
            algorithm: String::new(),
            steps: self.steps_with_choice().count(),
            alternatives: vec![0; self.manifest.steps.len()],
        };
        let mut names: BTreeSet<String> = BTreeSet::new();
        for (at, step) in self.manifest.steps.iter().enumerate() {
            let begins = self.manifest.groups.iter().any(|g| g.begins_with(at));
            let count = match begins {
                true => step.alternatives.len(),
                false => self.free_alternatives(at),
            };
            if step.alternatives.len() > 1 {
                let all = step.alternatives[..count].iter();
                names.extend(all.map(|a| self.algorithm(a)));
            }
        }
        names.remove("");
        let all = names.into_iter().map(|name| self.with_algorithm(name));
        [first].into_iter().chain(all).collect()
    }

    /// The first alternatives with an algorithm, where steps have it.
    fn with_algorithm(&self, algorithm: String) -> FixedChoice {
        let count = self.manifest.steps.len();
        let mut found: Vec<Option<usize>> = vec![None; count];
        let has = |a: &Alternative| self.algorithm(a) == algorithm;
        for (at, step) in self.manifest.steps.iter().enumerate() {
            let free = &step.alternatives[..self.free_alternatives(at)];
            found[at] = free.iter().position(has);
        }
        for steps in self.manifest.groups.iter().map(|g| &g.steps) {
            let first = steps[0].index();
            let all = &self.manifest.steps[first].alternatives;
            let set = all[self.free_alternatives(first)..].iter().position(has);
            if let (None, Some(set)) = (found[first], set) {
                for at in steps.iter().map(|s| s.index()) {
                    found[at] = Some(self.free_alternatives(at) + set);
                }
            }
        }
        let with_choice =
            |(at, _): &(usize, &Option<usize>)| self.manifest.steps[*at].alternatives.len() > 1;
        let of = found.iter().enumerate().filter(with_choice);
        FixedChoice {
            steps: of.filter(|(_, a)| a.is_some()).count(),
            alternatives: found.iter().map(|a| a.unwrap_or(0)).collect(),
            algorithm,
        }
    }

    /// The model with one alternative a step: the chosen ones, by [`StepId::index`](crate::StepId::index),
    /// and the first of steps beyond the end.
    ///
    /// Kernels that no step has any more are gone, and so are their constants, prepared ones included, and
    /// the tensors between their calls. Ids of tensors and steps stay as they are; a tensor without bytes is
    /// [`TensorPlace::Discarded`]. Activations have new places, as fewer are needed.
    /// Constants are copied, so that memory of this model that nobody else needs is free when it is dropped.
    ///
    /// # Panics
    /// If a step does not have so many alternatives, or the steps of a group do not run the same set.
    #[must_use]
    pub fn with_choices(&self, choices: &[usize]) -> CompiledModel {
        let mut left = self.sharing_choices(choices);
        left.constants = gathered(left.constants);
        left
    }

    /// As [`CompiledModel::with_choices`], but with the constants of this model: nothing is copied.
    pub(crate) fn sharing_choices(&self, choices: &[usize]) -> CompiledModel {
        let mut manifest = self.chosen(choices);
        let constants = without_unused_constants(&mut manifest, &self.constants);
        drop_unused_kernels(&mut manifest);
        place_activations(&mut manifest);
        CompiledModel {
            manifest,
            constants,
        }
    }

    /// Whether the steps of each group run the same set, or each a free alternative.
    pub(crate) fn sets_agree(&self, choices: &[usize]) -> bool {
        self.manifest.groups.iter().all(|group| {
            let steps = group.steps.iter().map(|s| s.index());
            let sets = steps.map(|at| choices[at].checked_sub(self.free_alternatives(at)));
            sets.collect::<BTreeSet<Option<usize>>>().len() == 1
        })
    }

    /// [`CompiledModel::arena_bytes`] of the model with its first alternatives alone.
    pub fn first_arena_bytes(&self) -> u64 {
        let mut manifest = self.chosen(&[]);
        place_activations(&mut manifest);
        manifest.arena_bytes
    }

    /// With one alternative a step; all else is as it was.
    fn chosen(&self, choices: &[usize]) -> Manifest {
        let mut manifest = self.manifest.clone();
        let chosen = |at: usize| choices.get(at).copied().unwrap_or(0);
        for group in std::mem::take(&mut manifest.groups) {
            let steps = group.steps.iter().map(|s| s.index());
            let sets = steps.map(|at| chosen(at).checked_sub(self.free_alternatives(at)));
            let sets: BTreeSet<Option<usize>> = sets.collect();
            assert!(sets.len() < 2, "the steps of a group run sets {sets:?}");
        }
        for (at, step) in manifest.steps.iter_mut().enumerate() {
            let choice = chosen(at);
            let count = step.alternatives.len();
            assert!(choice < count, "choice {choice} of {count} for step {at}");
            step.alternatives.swap(0, choice);
            step.alternatives.truncate(1);
        }
        manifest
    }
}

/// Keeps the kernels that steps have or that make constants, and numbers them anew in their order.
fn drop_unused_kernels(manifest: &mut Manifest) {
    let calls = manifest.steps.iter().flat_map(ModelStep::calls);
    let making = manifest.derivations.iter().map(|d| d.kernel);
    let used: BTreeSet<KernelId> = calls.map(|c| c.kernel).chain(making).collect();
    let numbers = used.iter().zip(0..).map(|(old, new)| (*old, KernelId(new)));
    let new_ids: BTreeMap<KernelId, KernelId> = numbers.collect();
    let kept = used.iter().map(|id| manifest.kernels[id.index()].clone());
    manifest.kernels = kept.collect();
    let alternatives = manifest.steps.iter_mut().flat_map(|s| &mut s.alternatives);
    for Call { kernel, .. } in alternatives.flat_map(|a| &mut a.calls) {
        *kernel = new_ids[kernel];
    }
    for Derivation { kernel, .. } in &mut manifest.derivations {
        *kernel = new_ids[kernel];
    }
}

/// The constants that steps, outputs or states use, and those that they are derived from, numbered anew in the tensors.
/// The other tensors of constants have no place any more.
pub(crate) fn without_unused_constants(manifest: &mut Manifest, all: &[Constant]) -> Vec<Constant> {
    let root = |id: &TensorId| root(&manifest.tensors, *id).0;
    let args = manifest.steps.iter().flat_map(ModelStep::calls);
    let args = args.flat_map(|c| &c.args);
    let states = manifest.states.iter().map(|s| &s.initial);
    let used = args.chain(&manifest.outputs).chain(states);
    let used: BTreeSet<TensorId> = used.map(root).collect();
    let blob = |id: &TensorId| match manifest.tensors[id.index()].place {
        TensorPlace::Constant { blob } => Some(blob),
        _ => None,
    };
    let used_blobs: BTreeSet<u32> = used.iter().filter_map(blob).collect();
    let derivations = &mut manifest.derivations;
    derivations.retain(|d| d.outputs.iter().any(|blob| used_blobs.contains(blob)));
    let derived = derivations.iter().flat_map(|d| {
        let read = d.inputs.iter().map(|(blob, _)| *blob);
        read.chain(d.outputs.iter().copied())
    });
    let derived: BTreeSet<u32> = derived.collect();
    let mut new_ids: BTreeMap<u32, u32> = BTreeMap::new();
    let mut kept = Vec::new();
    for (i, tensor) in manifest.tensors.iter_mut().enumerate() {
        let TensorPlace::Constant { blob } = tensor.place else {
            continue;
        };
        if !used.contains(&TensorId(i as u32)) && !derived.contains(&blob) {
            tensor.place = TensorPlace::Discarded;
            continue;
        }
        let id = *new_ids.entry(blob).or_insert_with(|| {
            kept.push(all[blob as usize].clone());
            kept.len() as u32 - 1
        });
        tensor.place = TensorPlace::Constant { blob: id };
    }
    for derivation in &mut manifest.derivations {
        let read = derivation.inputs.iter_mut().map(|(blob, _)| blob);
        for blob in read.chain(&mut derivation.outputs) {
            *blob = new_ids[blob];
        }
    }
    kept
}
