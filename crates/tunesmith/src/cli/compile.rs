//! `compile`: the best known schedules, or defaults; no measuring.

use super::model_args::{ModelArgs, StoreArgs};
use crate::compile::{Builders, assemble, best_known, defaults};
use crate::error::Result;
use crate::machine::Machine;
use graph::plan::Plan;
use ir::Target;
use runtime::{CompiledModel, Pool};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use store::Store;

/// Compile a model with the best known schedules, or defaults derived from the machine
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tunesmith compile model.onnx --threads 4 --out model.tsm")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Use no records: defaults only
    #[arg(long)]
    defaults: bool,
    /// The compiled model [default: NAME.tsm]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Summary {
    model: String,
    target: String,
    threads: u32,
    tasks: usize,
    /// Tasks whose schedule came from measurements.
    tuned_tasks: usize,
    artifact: String,
    bytes: u64,
}

/// Compiles a plan; how many tasks had a measured schedule.
pub fn compile(
    plan: &Plan,
    machine: &Machine,
    target: &Target,
    store: Option<&Store>,
    pool: &Arc<Pool>,
) -> Result<(CompiledModel, usize)> {
    let mut candidates = defaults(&plan.tasks, target)?;
    let mut tuned = 0;
    if let Some(store) = store {
        let known = best_known(store, &plan.tasks, target, &machine.fingerprint())?;
        for (c, k) in candidates.iter_mut().zip(known) {
            if let Some((best, _)) = k {
                *c = best;
                tuned += 1;
            }
        }
    }
    let mut builders = Builders::new(target, machine.cpus)?;
    let built = builders.build_all(&plan.tasks, &candidates)?;
    let kernels: Vec<_> = built.into_iter().map(|b| b.kernel).collect();
    Ok((assemble(plan, &kernels, target, pool)?, tuned))
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let machine = Machine::host();
    let target = a.model.resolve_target(&machine)?;
    let source = a.model.source()?;
    let plan = source.plan(&target)?;
    let store = if a.defaults {
        None
    } else {
        Some(a.store.open()?)
    };
    let pool = Arc::new(Pool::new(target.threads as usize)?);
    let (model, tuned_tasks) = compile(&plan, &machine, &target, store.as_ref(), &pool)?;
    let out = a
        .out
        .clone()
        .unwrap_or_else(|| super::tune::artifact_name(&source.name));
    model.save(&out)?;
    let summary = Summary {
        model: source.name.clone(),
        target: target.isa.name().into(),
        threads: target.threads,
        tasks: plan.tasks.len(),
        tuned_tasks,
        artifact: out.display().to_string(),
        bytes: std::fs::metadata(&out)?.len(),
    };
    if a.json {
        super::print_json(&summary)?;
    } else {
        super::print_line(&format!(
            "{}: {} tasks, {} with measured schedules, written to {} ({:.1} MB)",
            summary.model,
            summary.tasks,
            summary.tuned_tasks,
            summary.artifact,
            summary.bytes as f64 / 1e6
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
