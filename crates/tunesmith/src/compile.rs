//! Compiling: a model with the best known kernels, or default ones. Nothing is measured.

use ir::Target;
use plan::Plan;
use runtime::{CompiledModel, Pool};
use std::sync::Arc;
use store::Store;
use tune::compile::{Warning, assemble_last};
use tune::kernels::{Kernels, kernels};
use tune::known::Requirements;
use tune::source::Source;
use tune::{Host, Result};

/// A compiled model, and where its kernels come from.
pub struct Compiled {
    pub model: CompiledModel,
    /// Programs that the model was split into, equal ones counted once.
    pub tasks: usize,
    /// Tasks whose schedule came from measurements; the others have their default.
    pub tuned: usize,
    /// Of those, the ones that another version of the compiler made when they were measured:
    /// the schedule is the same, the code and its time may differ.
    pub other_toolchain: usize,
    /// Default schedules that are not the intended ones.
    pub warnings: Vec<Warning>,
}

/// Compiles a model for a target, with the best candidates that the store knows for it, or
/// without a store with the defaults. Measures nothing.
///
/// Takes the source, so that its weights are hardly ever in memory twice; to keep it, give a
/// clone, which shares the weights.
///
/// # Errors
/// If the model cannot be planned, the store cannot be read, workers cannot be started, or a
/// kernel cannot be built.
pub fn compile(
    source: Source,
    target: &Target,
    host: &Host,
    store: Option<&Store>,
    requirements: Requirements,
) -> Result<Compiled> {
    let plan = source.plan_for(&host.machine, target, store)?;
    drop(source);
    let pool = Arc::new(Pool::new(target.threads() as usize)?);
    compile_plan(plan, target, host, store, requirements, &pool)
}

/// [`compile`] of a plan of the model; the pool prepares its constants.
///
/// # Errors
/// As [`compile`].
pub fn compile_plan(
    plan: Plan,
    target: &Target,
    host: &Host,
    store: Option<&Store>,
    requirements: Requirements,
    pool: &Arc<Pool>,
) -> Result<Compiled> {
    let Kernels {
        kernels,
        tuned,
        other_toolchain,
        warnings,
    } = kernels(&plan, host, target, requirements, store)?;
    let tasks = plan.tasks.len();
    let model = assemble_last(plan, &kernels, target, requirements.accuracy, pool)?;
    Ok(Compiled {
        model,
        tasks,
        tuned,
        other_toolchain,
        warnings,
    })
}
