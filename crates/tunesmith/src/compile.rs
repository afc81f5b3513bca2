//! Compiling: a model with the best known kernels, or default ones. Nothing is measured.

use ir::Target;
use plan::Plan;
use runtime::{CompiledModel, Dim, Inconsistent, Pool, Variants};
use std::sync::Arc;
use store::Store;
use tune::compile::{Warning, assemble_last};
use tune::kernels::{Kernels, Origins, kernels};
use tune::known::{Elsewhere, Lookup, Requirements};
use tune::source::Source;
use tune::{Error, Host, Result};

/// Puts a variant of a model to those that are there; the first makes them.
///
/// # Errors
/// If it is no variant of the same model.
pub fn join(
    variants: Option<Variants>,
    source: &[Dim],
    model: Arc<CompiledModel>,
) -> Result<Variants> {
    let why = |e: Inconsistent| Error::new(format!("the variants do not fit together: {e}"));
    match variants {
        None => Variants::new(source.to_vec(), model).map_err(why),
        Some(mut variants) => {
            variants.add(&model).map_err(why)?;
            Ok(variants)
        }
    }
}

/// Compiles a model at several sizes into the variants of one artifact, which share equal
/// kernels and constants.
///
/// # Errors
/// As [`compile`], or if the sources are no variants of one model.
pub fn compile_variants(
    sources: Vec<Source>,
    target: &Target,
    host: &Host,
    store: Option<&Store>,
    requirements: Requirements,
) -> Result<Variants> {
    let pool = Arc::new(Pool::new(target.threads() as usize)?);
    let mut variants = None;
    for source in sources {
        let dims = source.artifact_dims();
        let plan = source.plan_for(&host.machine, target, requirements.accuracy, store)?;
        drop(source);
        let compiled = compile_plan(plan, target, host, &Origins::of(requirements, store), &pool)?;
        variants = Some(join(variants, &dims, Arc::new(compiled.model))?);
    }
    variants.ok_or_else(|| Error::new("no variant of the model was given"))
}

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
    /// Tasks whose schedule was chosen by reading; none without a chooser.
    pub read: usize,
    /// Columns that steps can keep, for which the model has room until they have decided.
    pub columns_bytes: u64,
    /// Default schedules that are not the intended ones.
    pub warnings: Vec<Warning>,
    /// Where else there are measured schedules, if the store has none for this target and machine.
    pub elsewhere: Option<Elsewhere>,
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
    let plan = source.plan_for(&host.machine, target, requirements.accuracy, store)?;
    drop(source);
    let pool = Arc::new(Pool::new(target.threads() as usize)?);
    compile_plan(plan, target, host, &Origins::of(requirements, store), &pool)
}

/// [`compile`] of a plan of the model; the pool prepares its constants. Of steps with several kernels
/// the first one runs unless a selector says otherwise.
///
/// # Errors
/// As [`compile`].
pub fn compile_plan(
    mut plan: Plan,
    target: &Target,
    host: &Host,
    from: &Origins<'_>,
    pool: &Arc<Pool>,
) -> Result<Compiled> {
    let Kernels {
        kernels,
        stretched,
        tuned,
        other_toolchain,
        read,
        warnings,
    } = kernels(&mut plan, host, target, from)?;
    let accuracy = from.requirements.accuracy;
    let tasks = plan.tasks.len();
    let elsewhere = match from.store.filter(|_| tuned == 0) {
        None => None,
        Some(store) => {
            let machine = from.machine(host);
            let lookup = Lookup::new(store, &plan, target, &machine, from.requirements);
            Some(lookup.elsewhere()?)
        }
    };
    let derive = from.derive_at_load;
    let model = assemble_last(plan, &kernels, &stretched, target, accuracy, pool, derive)?;
    Ok(Compiled {
        model,
        tasks,
        tuned,
        other_toolchain,
        read,
        columns_bytes: stretched.columns_bytes(),
        warnings,
        elsewhere,
    })
}
