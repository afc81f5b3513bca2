//! A plan under its default schedules: what a run starts from, and falls back to.

use crate::compile::{Builders, Defaults, assemble, defaults};
use crate::error::Result;
use crate::latency::fill_inputs;
use crate::layouts::profile;
use crate::saved::{Saved, keep_columns};
use crate::stretches::Stretch;
use ir::Target;
use plan::Plan;
use runtime::{BuiltKernel, Model, Pool};
use search::Allowed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for further runs of a new model, whose first one met cold memory.
pub(crate) const PROFILING: Duration = Duration::from_millis(50);

/// Time for runs at the end of a search, even if none is left: small kernels are only fast when they are run often.
pub(crate) const LEAST_PROFILING: Duration = Duration::from_millis(10);

/// What models are made for.
#[derive(Clone, Copy)]
pub struct Making<'a> {
    pub target: &'a Target,
    pub allowed: Allowed,
    /// Of the inputs.
    pub seed: u64,
    pub pool: &'a Arc<Pool>,
}

impl Making<'_> {
    /// A model of one kernel a task, its inputs filled.
    ///
    /// # Errors
    /// As [`assemble`].
    pub fn model(&self, plan: &Plan, kernels: &[Arc<BuiltKernel>]) -> Result<Model> {
        let compiled = assemble(plan, kernels, self.target, self.allowed.accuracy, self.pool)?;
        let mut model = Model::new(Arc::new(compiled), self.pool.clone())?;
        fill_inputs(&mut model, self.seed);
        Ok(model)
    }
}

/// What a model takes, as its default schedules tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// Building the kernels of all tasks.
    pub building: Duration,
    /// Assembling the model, constants prepared.
    pub assembling: Duration,
    /// One inference.
    pub inference: Duration,
}

/// A plan, the default candidate of every task, built, and the model of them.
pub struct DefaultModel {
    pub plan: Arc<Plan>,
    pub defaults: Defaults,
    pub kernels: Vec<Arc<BuiltKernel>>,
    pub model: Model,
    /// The least time of every step.
    pub step_ns: Vec<u64>,
    pub size: Size,
    /// Building, assembling and running it.
    pub took: Duration,
}

impl DefaultModel {
    /// Builds, assembles and runs it.
    ///
    /// # Errors
    /// If a default schedule cannot be built or run.
    pub fn new(plan: Plan, builders: &mut Builders, making: &Making<'_>) -> Result<DefaultModel> {
        let start = Instant::now();
        let defaults = defaults(&plan.tasks, making.target, making.allowed)?;
        let kernels = builders.build_all(&plan.tasks, &defaults.candidates, making.target)?;
        let building = start.elapsed();
        let mut model = making.model(&plan, &kernels)?;
        let assembling = start.elapsed() - building;
        let step_ns = profile(&mut model, PROFILING)?;
        Ok(DefaultModel {
            plan: Arc::new(plan),
            defaults,
            kernels,
            model,
            size: Size {
                building,
                assembling,
                inference: Duration::from_nanos(step_ns.iter().sum()),
            },
            step_ns,
            took: start.elapsed(),
        })
    }

    /// Adds the tasks of columns that may be kept, with their default kernels. The model itself keeps none.
    ///
    /// # Errors
    /// If a default schedule cannot be built.
    pub fn keep_columns(
        &mut self,
        stretches: &[Stretch],
        room_bytes: u64,
        builders: &mut Builders,
        making: &Making<'_>,
    ) -> Result<Vec<Saved>> {
        let mut plan = (*self.plan).clone();
        let saved = keep_columns(&mut plan, stretches, room_bytes);
        let new = &plan.tasks[self.plan.tasks.len()..];
        let more = defaults(new, making.target, making.allowed)?;
        let kernels = builders.build_all(new, &more.candidates, making.target)?;
        self.kernels.extend(kernels);
        self.defaults.candidates.extend(more.candidates);
        self.defaults.warnings.extend(more.warnings);
        self.plan = Arc::new(plan);
        Ok(saved)
    }
}
