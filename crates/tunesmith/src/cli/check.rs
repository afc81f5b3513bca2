//! `check`: a compiled model against the references.

use super::executable::Runner;
use super::keys::VerifyArgs;
use super::machine_option::MachineOption;
use super::model_args::{ModelArgs, StoreArgs, check_runs_here, warn};
use super::table::{Table, or_unknown};
use crate::check::{Agreement, LayerAgreement, check, check_outputs};
use crate::compile::compile_plan;
use graph::builtin::MODELS;
use runtime::{ConstantMemory, Model, Pool, Variants};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tune::kernels::Origins;
use tune::source::Source;
use tune::{Error, Result};

/// Compile a model, or take its --artifact, and compare every step with the reference operators on what the step read
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith check vgg16\n  tunesmith check model.onnx --artifact model.tsm\n  tunesmith check mobilenet-v2 --target aarch64-neon"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    machine: MachineOption,
    /// Use no tuning records, only default schedules
    #[arg(long)]
    defaults: bool,
    /// Run the executable that `compile --emit executable` writes, here or in an emulator (qemu-user), and compare its
    /// outputs; nothing else is done for a target that cannot run here
    #[arg(long)]
    executable: bool,
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

impl Args {
    /// Takes the settings of the compiled model, if one is given. One that stands alone is compared with the built-in
    /// model that it is called after.
    ///
    /// # Errors
    /// If a flag contradicts them, or a compiled model of a file stands alone.
    pub fn take_settings(&mut self) -> Result<()> {
        if let (None, Some(path)) = (&self.artifact, self.model.artifact()) {
            self.model.model = builtin_of(&path)?;
            self.artifact = Some(path);
        }
        match &self.artifact {
            Some(path) => self.model.take_settings(Some(path)),
            None => Ok(()),
        }
    }
}

/// The name of the built-in model that an artifact was compiled from.
fn builtin_of(path: &Path) -> Result<String> {
    let variants = Variants::load(path)?;
    let name = variants.models()[0].name();
    let is_builtin = name.starts_with("op:") || MODELS.iter().any(|m| m.name == name);
    if is_builtin {
        return Ok(name.to_string());
    }
    let path = path.display();
    Err(Error::new(format!(
        "{path} is compiled, and `check` compares it with the model that it was made of, {name}"
    ))
    .help(format!(
        "give both: tunesmith check {name}.onnx --artifact {path}"
    )))
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let host = super::host()?;
    let usual = a.model.resolve_target(&host.machine)?;
    let in_another = a.executable || check_runs_here(&usual).is_err();
    let (target, runner) = match in_another {
        true => {
            let target = a.model.target_of_executable(&host.machine)?;
            let runner = Runner::of(&target)?;
            (target, Some(runner))
        }
        false => (usual, None),
    };
    let load = |path: &Path| a.verify.load(path, ConstantMemory::default());
    let variants = a.artifact.as_deref().map(load).transpose()?;
    // One after the other, as each has all weights.
    let sources: Box<dyn Iterator<Item = Result<(usize, Source)>>> = match &variants {
        Some(variants) => {
            let source = |at| Ok((at, a.model.source_of(variants, at)?));
            Box::new(a.model.which_beside(variants)?.into_iter().map(source))
        }
        None => Box::new(a.model.sources()?.into_iter().enumerate().map(Ok)),
    };
    let store = match variants {
        Some(_) => None,
        None => a.store.read_unless(a.defaults)?,
    };
    let machine = a.machine.named_in(store.as_ref())?;
    let pool = Arc::new(Pool::new(target.threads() as usize)?);
    let mut reports = Vec::new();
    for source in sources {
        let (at, source) = source?;
        let compiled = match &variants {
            Some(variants) => variants.models()[at].clone(),
            None => {
                let store = store.as_ref();
                let plan = source.plan_for(&host.machine, &target, a.model.accuracy(), store)?;
                let origins = Origins {
                    machine,
                    ..Origins::of(a.model.requirements(), store)
                };
                let compiled = compile_plan(plan, &target, &host, &origins, &pool)?;
                warn(&compiled.warnings);
                if let Some(elsewhere) = &compiled.elsewhere {
                    a.machine.warn_of_defaults(&source.name, &target, elsewhere);
                }
                Arc::new(compiled.model)
            }
        };
        let report = match &runner {
            Some(runner) => {
                let settings = (a.seed, a.model.tolerance);
                let run = |inputs: &[_]| runner.run(&target, &compiled, inputs);
                check_outputs(&source, &target, &compiled, settings, run)?
            }
            None => {
                let mut model = Model::new(compiled, pool.clone())?;
                check(&source, &target, &mut model, a.seed, a.model.tolerance)?
            }
        };
        if !a.json {
            print(&source.sizes(), &report)?;
        }
        reports.push((source.sizes(), report));
    }
    let ok = reports.iter().all(|(_, r)| r.ok);
    match (reports.as_slice(), a.json) {
        (_, false) => {}
        ([(_, report)], true) => super::print_json(report)?,
        (reports, true) => {
            let one = |(sizes, report): &(String, Agreement)| serde_json::json!({ "sizes": sizes, "report": report });
            let variants: Vec<_> = reports.iter().map(one).collect();
            super::print_json(&serde_json::json!({ "ok": ok, "variants": variants }))?;
        }
    }
    Ok(if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn print(sizes: &str, report: &Agreement) -> Result<()> {
    let mut t = Table::new(&["step", "tensor", "relative error", "max / rms", ""]);
    for l in &report.layers {
        let verdict = match (l.ok, l.non_finite) {
            _ if !l.judged => "not judged: the model rounds".into(),
            (true, _) if l.subnormal => "ok, subnormal".into(),
            (true, _) if l.cancels => "ok, terms cancel".into(),
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
    let judged = report.layers.iter().filter(|l| l.judged);
    let worst = judged.max_by(|a, b| {
        let error = |l: &LayerAgreement| (!l.ok, l.rel_err);
        error(a).partial_cmp(&error(b)).unwrap_or(Ordering::Equal)
    });
    if let Some(l) = worst {
        let cause = l.cause.map(|c| format!(": {c}")).unwrap_or_default();
        super::print_line(&format!(
            "worst step: {}, tensor {}{cause}",
            l.step, l.tensor
        ))?;
    }
    let sizes = match sizes {
        "" => String::new(),
        sizes => format!(", {sizes}"),
    };
    super::print_line(&format!(
        "{}{sizes}: {} tensors, accuracy {}, largest relative error {:.1e} (allowed {:.1e}), largest element error {:.1e} of the RMS",
        if report.ok { "ok" } else { "WRONG" },
        report.layers.len(),
        or_unknown(&report.accuracy),
        report.max_rel_err,
        report.tolerance,
        report.max_over_rms
    ))
}
