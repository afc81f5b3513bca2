//! `check`: a compiled model against the references.

use super::keys::VerifyArgs;
use super::model_args::{ModelArgs, StoreArgs, check_runs_here, warn};
use super::table::{Table, or_unknown};
use crate::check::check;
use crate::compile::compile_plan;
use runtime::{ConstantMemory, Model, Pool};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tune::Result;

/// Compare a compiled model with the reference operators, layer by layer
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith check vgg16\n  tunesmith check model.onnx --artifact model.tsm"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Use no tuning records, only default schedules
    #[arg(long)]
    defaults: bool,
    /// Check this compiled model instead of compiling one
    #[arg(long, value_name = "FILE")]
    artifact: Option<PathBuf>,
    #[command(flatten)]
    verify: VerifyArgs,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let host = super::host()?;
    let target = a.model.resolve_target(&host.machine)?;
    check_runs_here(&target)?;
    let source = a.model.source()?;
    let pool = Arc::new(Pool::new(target.threads() as usize)?);
    let compiled = match &a.artifact {
        Some(path) => a.verify.load(path, ConstantMemory::default())?,
        None => {
            let store = a.store.read_unless(a.defaults)?;
            let store = store.as_ref();
            let plan = source.plan_for(&host.machine, &target, store)?;
            let compiled =
                compile_plan(plan, &target, &host, store, a.model.requirements(), &pool)?;
            warn(&compiled.warnings);
            compiled.model
        }
    };
    let mut model = Model::new(Arc::new(compiled), pool)?;
    let report = check(&source, &target, &mut model, a.seed, a.model.tolerance)?;
    if a.json {
        super::print_json(&report)?;
    } else {
        let mut t = Table::new(&["step", "tensor", "relative error", "max / rms", ""]);
        for l in &report.layers {
            let verdict = match (l.ok, l.non_finite) {
                (true, _) if l.subnormal => "ok, subnormal".into(),
                (true, _) => "ok".into(),
                (false, 0) => "WRONG".into(),
                (false, n) => format!("WRONG, {n} not finite"),
            };
            t.row(vec![
                l.step.clone(),
                l.tensor.clone(),
                format!("{:.1e}", l.rel_err),
                format!("{:.1e}", l.max_over_rms),
                verdict,
            ]);
        }
        t.print()?;
        super::print_line(&format!(
            "{}: {} tensors, accuracy {}, largest relative error {:.1e} (allowed {:.1e}), largest element error {:.1e} of the RMS",
            if report.ok { "ok" } else { "WRONG" },
            report.layers.len(),
            or_unknown(&report.accuracy),
            report.max_rel_err,
            report.tolerance,
            report.max_over_rms
        ))?;
    }
    Ok(if report.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
