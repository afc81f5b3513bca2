//! `compile`: the best known schedules, or defaults; no measuring.

use super::host;
use super::keys::SignArgs;
use super::model_args::{ModelArgs, StoreArgs, warn};
use super::output::{ARTIFACT, Output};
use super::plan_facts::PlanFacts;
use crate::compile::{Compiled, compile_plan};
use runtime::Pool;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tune::Result;
use tune::compile::Warning;

/// Compile a model with the best known schedules; where none is known, with defaults derived from the machine
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tunesmith compile model.onnx --threads 4 --out model.tsm")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Use no tuning records, only default schedules
    #[arg(long)]
    defaults: bool,
    /// The file for the compiled model [default: NAME.tsm]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    sign: SignArgs,
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
    accuracy: String,
    space: String,
    /// Tasks whose schedule came from measurements.
    tuned_tasks: usize,
    /// Of those, the ones measured as another version of this program compiled
    /// them: the schedule is the same, the code and its time may differ.
    other_toolchain_tasks: usize,
    /// Default schedules that are not the intended ones.
    warnings: Vec<Warning>,
    artifact: String,
    bytes: u64,
    #[serde(flatten)]
    plan: PlanFacts,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let host = host()?;
    let target = a.model.resolve_target(&host.machine)?;
    let source = a.model.source()?;
    let named = super::tune::artifact_path(a.out.as_deref(), &source.name);
    let key = a.sign.key()?;
    let inputs = [a.model.files(), a.store.files()?, a.sign.files()].concat();
    let out = Output::new(&named, ARTIFACT, inputs)?;
    let store = a.store.read_unless(a.defaults)?;
    let plan = source.plan_for(&host.machine, &target, store.as_ref())?;
    let pool = Arc::new(Pool::new(target.threads() as usize)?);
    let facts = PlanFacts::new(&plan);
    // The plan has the only references to the constants now.
    let name = source.name;
    drop(source.model);
    let requirements = a.model.requirements();
    let Compiled {
        model,
        tasks,
        tuned,
        other_toolchain,
        warnings,
    } = compile_plan(plan, &target, &host, store.as_ref(), requirements, &pool)?;
    warn(&warnings);
    let bytes = out.save(&model, key.as_ref())?;
    let summary = Summary {
        model: name,
        target: target.name().into(),
        threads: target.threads(),
        tasks,
        accuracy: model.accuracy().to_string(),
        space: requirements.space.to_string(),
        tuned_tasks: tuned,
        other_toolchain_tasks: other_toolchain,
        warnings,
        artifact: out.path().display().to_string(),
        bytes,
        plan: facts.with_arena(&model),
    };
    if a.json {
        super::print_json(&summary)?;
    } else {
        super::print_line(&format!(
            "{}: {} tasks, {} with measured schedules, accuracy {}, written to {} ({:.1} MB)",
            summary.model,
            summary.tasks,
            summary.tuned_tasks,
            summary.accuracy,
            summary.artifact,
            summary.bytes as f64 / 1e6
        ))?;
        super::print_line(&summary.plan.text())?;
        if summary.other_toolchain_tasks > 0 {
            super::print_line(&format!(
                "{} of the schedules were measured with another version of the compiler; tune again to measure them with this version",
                summary.other_toolchain_tasks
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
