//! What a model keeps in memory, and how it lets go of alternatives that lost.
//!
//! Promises that a model gives the same answers before and after: inputs, states and outputs have their values.

use super::{Loaded, Model, address};
use crate::artifact::LoadError;
use crate::kernel::BuiltKernel;
use crate::mapping::Mapping;
use crate::model::CompiledModel;
use crate::online::Selectors;
use crate::variants::{Choices, Variants};
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes of memory that a model keeps. Other models may share its constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Activations.
    pub arena: u64,
    pub workspace: u64,
    /// Those in memory of the process, prepared ones included: none that lie in a mapped file.
    pub constants: u64,
    /// Objects, and their code where it runs.
    pub code: u64,
}

impl MemoryUse {
    pub fn total(self) -> u64 {
        self.arena + self.workspace + self.constants + self.code
    }
}

impl Model {
    pub fn memory(&self) -> MemoryUse {
        let code = |(kernel, code): &(Arc<BuiltKernel>, _)| {
            let objects = [Some(&kernel.code), kernel.prepare_code.as_ref()];
            let bytes: usize = objects.into_iter().flatten().map(Vec::len).sum();
            bytes as u64 + crate::elf::LoadedCode::memory_bytes(code)
        };
        MemoryUse {
            arena: self.arena.len() as u64,
            workspace: self.workspace.len() as u64,
            constants: self.variants.held_bytes(),
            code: self.code.iter().map(code).sum(),
        }
    }

    /// Lets go of the alternatives that lost, in each variant in which all steps have decided: their code, their
    /// constants, prepared ones included, and the memory that only they need. [`Model::variants`] has what is left. What
    /// is left of a variant asks no selector any more, so a kernel that fails from now on has no other one in its place. The
    /// bytes that the model keeps no longer; 0 if no variant has decided since the last time.
    ///
    /// Models that share variants share what is left of them. What was let go is free when no other model has it, and
    /// no caller the variants that the model was made of.
    ///
    /// # Errors
    /// If there is no memory for what is left beside what is there. Then nothing has changed.
    ///
    /// # Panics
    /// If the selectors are those of another model.
    pub fn retire(&mut self, selectors: &Selectors) -> Result<u64, LoadError> {
        let threads = self.pool.ctx().threads;
        let choices = choices(&self.variants, selectors, threads);
        if choices.iter().all(Option::is_none) {
            return Ok(0);
        }
        let before = self.memory();
        let variants = self.variants.left(choices);
        let Loaded {
            steps,
            arena,
            workspace,
        } = Loaded::new(&variants, &self.pool, &self.code)?;
        self.hand_over(&variants.models()[self.current], &arena);
        (self.steps, self.arena, self.workspace) = (steps, arena, workspace);
        self.variants = variants;
        let kernels = self.variants.models().iter().flat_map(|m| m.kernels());
        let kept: HashSet<*const BuiltKernel> = kernels.map(Arc::as_ptr).collect();
        self.code.retain(|(k, _)| kept.contains(&Arc::as_ptr(k)));
        self.code.shrink_to_fit();
        let mut models = self.variants.models().iter();
        if models.all(|m| m.steps_with_choice().next().is_none()) {
            self.selector = None;
        }
        Ok(before.total().saturating_sub(self.memory().total()))
    }

    /// Copies what inputs and outputs hold to where a model of the same tensors has them.
    fn hand_over(&self, to: &CompiledModel, arena: &Mapping) {
        let from = self.compiled();
        // Inputs last: one that is a state may lie where an output does, and may have been given another value since.
        for id in from.outputs().iter().chain(from.inputs()) {
            if let (super::TensorPlace::Arena { .. }, _) = to.root_place(*id) {
                let source = address(from, &self.arena, *id).expect("it is stored");
                let target = address(to, arena, *id).expect("it is stored");
                // SAFETY: both are the places of one dense tensor in two models, which are consistent; the target is in
                // an arena that nobody else uses.
                unsafe { std::ptr::copy_nonoverlapping(source, target, self.span(*id)) };
            }
        }
    }
}

/// What each variant has chosen, if all of its steps have decided and several alternatives are there.
fn choices(variants: &Variants, selectors: &Selectors, threads: u32) -> Vec<Choices> {
    let one = |(at, model): (usize, &Arc<CompiledModel>)| {
        model.steps_with_choice().next()?;
        let key = |step: usize| variants.selection_key(at, step, threads);
        let decided = selectors.decided(at, key).into_iter().zip(model.steps());
        let chosen = decided.map(|(chosen, step)| match step.alternatives.len() {
            1 => Some(0),
            _ => chosen,
        });
        // Another thread may open a group again while its steps are read.
        let chosen: Option<Vec<usize>> = chosen.collect();
        chosen.filter(|chosen| model.sets_agree(chosen))
    };
    variants.models().iter().enumerate().map(one).collect()
}
