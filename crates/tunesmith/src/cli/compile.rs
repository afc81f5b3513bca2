//! `compile`: the best known schedules, or defaults; no measuring.

use super::model_args::{ModelArgs, StoreArgs, warn};
use super::output::{ARTIFACT, Output};
use super::plan_facts::PlanFacts;
use crate::compile::{Builders, Warning, assemble, assemble_last, defaults};
use crate::error::Result;
use crate::known::{Exactness, Lookup};
use crate::machine::Machine;
use ir::Target;
use plan::Plan;
use runtime::{BuiltKernel, CompiledModel, Pool};

use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::slice::from_ref;
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
    accuracy: String,
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

/// The kernel of every task of a plan, and where their schedules came from.
struct Kernels {
    kernels: Vec<BuiltKernel>,
    /// Tasks with a measured schedule.
    tuned: usize,
    /// Of those, the ones that another toolchain compiled when they were measured.
    other_toolchain: usize,
    /// Of the tasks that have a default.
    warnings: Vec<Warning>,
}

/// Compiles a plan with the best known schedules, or defaults; warns of defaults that are
/// not the intended ones.
pub fn compile(
    plan: &Plan,
    machine: &Machine,
    target: &Target,
    exactness: Exactness,
    store: Option<&Store>,
    pool: &Arc<Pool>,
) -> Result<CompiledModel> {
    let made = kernels(plan, machine, target, exactness, store)?;
    warn(&made.warnings);
    assemble(plan, &made.kernels, target, exactness.accuracy, pool)
}

/// The best known kernel of every task, or the default one.
fn kernels(
    plan: &Plan,
    machine: &Machine,
    target: &Target,
    exactness: Exactness,
    store: Option<&Store>,
) -> Result<Kernels> {
    let fingerprint = machine.fingerprint();
    let known = match store {
        Some(s) => Lookup::new(s, plan, target, &fingerprint, exactness).best_in_model()?,
        None => plan.tasks.iter().map(|_| None).collect(),
    };
    let (mut tuned, mut other_toolchain) = (0, 0);
    let (mut candidates, mut warnings) = (Vec::new(), Vec::new());
    for (task, known) in plan.tasks.iter().zip(known) {
        if let Some(k) = known {
            candidates.push(k.candidate);
            tuned += 1;
            other_toolchain += usize::from(!k.same_toolchain);
        } else {
            let default = defaults(from_ref(task), target, exactness.accuracy)?;
            candidates.extend(default.candidates);
            warnings.extend(default.warnings);
        }
    }
    let mut builders = Builders::new(target, machine.cpus)?;
    let built = builders.build_all(&plan.tasks, &candidates)?;
    Ok(Kernels {
        kernels: built.into_iter().map(|b| b.kernel).collect(),
        tuned,
        other_toolchain,
        warnings,
    })
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let machine = Machine::host();
    let target = a.model.resolve_target(&machine)?;
    let source = a.model.source()?;
    let named = super::tune::artifact_path(a.out.as_deref(), &source.name);
    let inputs = [a.model.files(), a.store.files()?].concat();
    let out = Output::new(&named, ARTIFACT, inputs)?;
    let store = a.store.read_unless(a.defaults)?;
    let plan = source.plan_for(&machine, &target, store.as_ref())?;
    let pool = Arc::new(Pool::new(target.threads as usize)?);
    let exactness = a.model.exactness();
    let made = kernels(&plan, &machine, &target, exactness, store.as_ref())?;
    warn(&made.warnings);
    let (tasks, facts) = (plan.tasks.len(), PlanFacts::new(&plan));
    // The plan has the only references to the constants now.
    let name = source.name;
    drop(source.model);
    let model = assemble_last(plan, &made.kernels, &target, exactness.accuracy, &pool)?;
    let bytes = out.save(&model)?;
    let summary = Summary {
        model: name,
        target: target.isa.name().into(),
        threads: target.threads,
        tasks,
        accuracy: exactness.accuracy.to_string(),
        tuned_tasks: made.tuned,
        other_toolchain_tasks: made.other_toolchain,
        warnings: made.warnings,
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
                "{} of the schedules were measured with another version of the compiler; tune again for times that hold",
                summary.other_toolchain_tasks
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
