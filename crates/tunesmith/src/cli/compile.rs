//! `compile`: the best known schedules, or defaults; no measuring.

use super::executable;
use super::keys::SignArgs;
use super::knobs::{default, doc, with_default};
use super::machine_option::MachineOption;
use super::model_args::{ModelArgs, StoreArgs, check_runs_here, warn, warn_of_types};
use super::output::{ARTIFACT, EXECUTABLE, OBJECT, Output};
use super::parse::{parse_count, parse_megabytes, parse_time};
use super::plan_facts::PlanFacts;
use super::score_args::ScoreArgs;
use crate::c_object::c_object;
use crate::compile::{Compiled, compile_plan, join};
use ir::Target;
use runtime::{Model, Pool, SigningKey, Variants};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::STATIC;
use tune::chooser::Chooser;
use tune::compile::Warning;
use tune::kernels::Origins;
use tune::layouts::Costs;
use tune::scorer::Scorer;
use tune::{Error, Host, Result, StopRule};

/// What tasks run that nothing was measured of, unless candidates are read.
const BY_DEFAULT: &str = "default";

/// Compile a model with the best known schedules; where none is known, with defaults derived from the machine
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith compile model.onnx --threads 4 --out model.tsm\n  tunesmith compile bert.onnx --batch 1,8 --dim seq=32,64,128 --pad batch\n  tunesmith compile mobilenet-v2 --target aarch64-neon --emit executable\n  tunesmith compile mobilenet-v2 --emit c --out net.o"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Use no tuning records, only default schedules
    #[arg(long)]
    defaults: bool,
    #[command(flatten)]
    machine: MachineOption,
    #[arg(long, help = doc("choose"), value_name = "default|static", default_value = default("choose"), value_parser = [BY_DEFAULT, STATIC])]
    choose: String,
    #[arg(long, help = with_default("choose-time"), value_parser = parse_time)]
    choose_time: Option<Duration>,
    #[command(flatten)]
    score: ScoreArgs,
    #[arg(long, help = doc("keep-alternatives"), default_value = default("keep-alternatives"), value_parser = parse_count::<usize>)]
    keep_alternatives: usize,
    #[arg(long, help = doc("keep-columns"), value_name = "MB", default_value = default("keep-columns"), value_parser = parse_megabytes)]
    keep_columns: u64,
    #[arg(long, value_name = "ALGORITHM,...", value_delimiter = ',', conflicts_with = "keep_alternatives", help = doc("alternatives"))]
    alternatives: Vec<String>,
    /// Leave constants out of the file that kernels read in another form: they are made of the weights whenever the
    /// model is loaded, which takes time and both in memory
    #[arg(long)]
    derive_at_load: bool,
    /// What is written: a compiled model for `run`; a program of one thread for the target that needs neither this
    /// one nor a library; or an object file of one thread with a header, to be linked into a C program
    #[arg(long, value_enum, default_value_t = Emit::Artifact)]
    emit: Emit,
    /// With --emit c: the C compiler for the target
    #[arg(long, value_name = "PROGRAM", default_value = "cc")]
    cc: String,
    /// The file for the compiled model [default: NAME.tsm, NAME for an executable, NAME.o for C]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    sign: SignArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What a compiled model becomes.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Emit {
    Artifact,
    Executable,
    C,
}

#[derive(Serialize)]
struct Summary {
    model: String,
    /// Those of its dimensions that have names, such as `batch=1 seq=32`.
    #[serde(skip_serializing_if = "String::is_empty")]
    sizes: String,
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
    /// Tasks whose schedule was chosen by reading instead of the default.
    read_tasks: Option<usize>,
    /// Columns that steps can keep: the arena has room for them until the steps have decided.
    columns_bytes: u64,
    /// The arena if all steps decide for their first alternatives.
    first_arena_bytes: u64,
    /// Default schedules that are not the intended ones.
    warnings: Vec<Warning>,
    #[serde(flatten)]
    written: Option<Written>,
    #[serde(flatten)]
    plan: PlanFacts,
}

/// An artifact that was written.
#[derive(Clone, Serialize)]
pub struct Written {
    pub artifact: String,
    /// Of the file.
    pub bytes: u64,
    #[serde(flatten)]
    pub derived: Option<Derived>,
}

/// What a file leaves out.
#[derive(Clone, Serialize)]
pub struct Derived {
    /// Of constants that are made when the model is loaded.
    derived_bytes: u64,
    /// What that took here.
    derive_ms: f64,
}

/// Who reads candidates, if they are to be read: each variant for its part of the time.
fn chooser<'a>(
    a: &Args,
    host: &'a Host,
    target: &'a Target,
    variants: usize,
) -> Result<Option<Chooser<'a>>> {
    if a.choose != STATIC {
        let advice = "give --choose static with it";
        a.score.refuse(advice)?;
        if a.choose_time.is_some() {
            return Err(
                Error::new("--choose-time has no effect here: no candidates are read").help(advice),
            );
        }
        return Ok(None);
    }
    let scoring = a.score.scoring(&a.store, &host.machine, target)?;
    let usual = Chooser::new(host, target, a.model.requirements());
    let time = match a.choose_time {
        Some(time) => time,
        None => parse_time(default("choose-time")).map_err(Error::new)?,
    };
    Ok(Some(Chooser {
        scorer: Scorer::of_cycles(scoring.cpu, scoring.rates, target),
        stop: StopRule::Time(time / variants.max(1) as u32),
        ..usual
    }))
}

/// Refuses to leave constants out where nothing makes them.
fn check_derives(a: &Args, target: &Target) -> Result<()> {
    match a.derive_at_load {
        true if a.emit != Emit::Artifact => {
            Err(Error::new("executables and objects hold all constants")
                .help("leave --derive-at-load out, or write an artifact"))
        }
        true => check_runs_here(target).map_err(|e| {
            e.help("leave --derive-at-load out: what makes the constants is code for this machine")
        }),
        false => Ok(()),
    }
}

/// Where the model goes, and its header if it is an object; and who signs it.
struct Destination {
    out: Output,
    header: Option<Output>,
    key: Option<SigningKey>,
}

fn destination(a: &Args, name: &str) -> Result<Destination> {
    let key = a.sign.key()?;
    let inputs = [
        a.model.files(),
        a.store.files()?,
        a.sign.files(),
        a.score.files(),
    ]
    .concat();
    let (named, kind) = match a.emit {
        Emit::Artifact => (super::tune::artifact_path(a.out.as_deref(), name), ARTIFACT),
        _ if key.is_some() => {
            return Err(Error::new("executables and objects have no signatures")
                .help("sign an artifact, or leave the key out"));
        }
        _ if a.keep_alternatives > 1 || !a.alternatives.is_empty() => {
            return Err(
                Error::new("executables and objects have one kernel for each step")
                    .help("leave --keep-alternatives and --alternatives out, or write an artifact"),
            );
        }
        Emit::Executable => {
            let usual = || super::tune::artifact_path(None, name).with_extension("");
            (a.out.clone().unwrap_or_else(usual), EXECUTABLE)
        }
        Emit::C => {
            let usual = || super::tune::artifact_path(None, name).with_extension("o");
            let out = a.out.clone().unwrap_or_else(usual);
            if out.extension().is_some_and(|e| e == "h") {
                return Err(
                    Error::new("the header gets this name, and the object needs another")
                        .help("give --out NAME.o; the header is written beside it"),
                );
            }
            (out, OBJECT)
        }
    };
    let header = match a.emit {
        Emit::C => Some(Output::new(
            &named.with_extension("h"),
            OBJECT,
            inputs.clone(),
        )?),
        _ => None,
    };
    let out = Output::new(&named, kind, inputs)?;
    Ok(Destination { out, header, key })
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let host = super::host()?;
    let target = match a.emit {
        Emit::Artifact => a.model.resolve_target(&host.machine)?,
        Emit::Executable | Emit::C => a.model.target_of_executable(&host.machine)?,
    };
    let sources = a.model.sources()?;
    warn_of_types(&sources[0], &target);
    check_derives(a, &target)?;
    let destination = destination(a, &sources[0].name)?;
    let store = a.store.read_unless(a.defaults)?;
    let machine = a.machine.named_in(store.as_ref())?;
    let pool = Arc::new(Pool::new(target.threads() as usize)?);
    let requirements = a.model.requirements();
    let accuracy = requirements.accuracy;
    let chooser = chooser(a, &host, &target, sources.len())?;
    let from = Origins {
        machine,
        chooser: chooser.as_ref(),
        count: a.keep_alternatives.max(1 + a.alternatives.len()),
        algorithms: &a.alternatives,
        columns_bytes: a.keep_columns,
        derive_at_load: a.derive_at_load,
        ..Origins::of(requirements, store.as_ref())
    };
    let (mut variants, mut summaries) = (None, Vec::new());
    for source in sources {
        let plan = source.plan_for(&host.machine, &target, accuracy, store.as_ref())?;
        // Whoever names algorithms wants these and no others.
        let others = a.keep_alternatives.saturating_sub(1);
        let stretches = source.stretches(&plan, &target, accuracy, &Costs::of_bytes(), others)?;
        let from = Origins {
            stretches: &stretches,
            ..from
        };
        let (facts, dims) = (PlanFacts::new(&plan), source.artifact_dims());
        let sizes = source.sizes();
        // The plan has the only references to the constants now, but for other variants.
        let name = source.name;
        drop(source.model);
        let Compiled {
            model,
            tasks,
            tuned,
            other_toolchain,
            read,
            columns_bytes,
            warnings,
            elsewhere,
        } = compile_plan(plan, &target, &host, &from, &pool)?;
        warn(&warnings);
        if let Some(elsewhere) = &elsewhere {
            a.machine.warn_of_defaults(&name, &target, elsewhere);
        }
        summaries.push(Summary {
            model: name,
            sizes,
            target: target.name().into(),
            threads: target.threads(),
            tasks,
            accuracy: model.accuracy().to_string(),
            space: requirements.space.to_string(),
            tuned_tasks: tuned,
            other_toolchain_tasks: other_toolchain,
            read_tasks: chooser.is_some().then_some(read),
            columns_bytes,
            first_arena_bytes: model.first_arena_bytes(),
            warnings,
            written: None,
            plan: facts.with_arena(&model),
        });
        variants = Some(join(variants, &dims, Arc::new(model))?);
    }
    let variants = variants.ok_or_else(|| Error::new("the model has no variant"))?;
    let written = write(a, &destination, &target, variants)?;
    print_all(a.json, summaries, written)?;
    Ok(ExitCode::SUCCESS)
}

fn write(a: &Args, to: &Destination, target: &Target, variants: Variants) -> Result<Written> {
    let out = &to.out;
    let derived_bytes = variants.derived_bytes();
    let bytes = match (a.emit, &to.header) {
        (Emit::C, Some(header)) => {
            let prefix = identifier(out.path());
            let made = c_object(executable::only(&variants)?, &prefix, &a.cc)?;
            out.write_bytes(&made.object)?;
            header.write_bytes(&made.header)?;
            made.object.len() as u64
        }
        (Emit::Executable, _) => executable::write(out, &executable::bytes(target, &variants)?)?,
        _ => out.save(&variants, to.key.as_ref())?,
    };
    drop(variants);
    let derived = match a.derive_at_load {
        true => Some(Derived {
            derived_bytes,
            derive_ms: derive_ms(out.path(), target)?,
        }),
        false => None,
    };
    let artifact = out.path().display().to_string();
    Ok(Written {
        artifact,
        bytes,
        derived,
    })
}

/// How long it takes to make what the file leaves out.
fn derive_ms(path: &Path, target: &Target) -> Result<f64> {
    let variants = Arc::new(Variants::load(path)?);
    let pool = Arc::new(Pool::new(target.threads() as usize)?);
    // The second time only what every model needs.
    let made = || -> Result<f64> {
        let begin = Instant::now();
        Model::of(variants.clone(), pool.clone())?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    let (first, second) = (made()?, made()?);
    Ok((first - second).max(0.0))
}

/// A C identifier of a file's name.
fn identifier(path: &Path) -> String {
    let name = path.file_stem().map(|s| s.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let fit = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(fit).collect();
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => name,
        false => format!("model_{name}"),
    }
}

fn print_all(json: bool, summaries: Vec<Summary>, written: Written) -> Result<()> {
    if json {
        return print_json(summaries, written);
    }
    summaries.iter().try_for_each(print)?;
    let several = match summaries.len() {
        1 => String::new(),
        n => format!("{n} variants "),
    };
    super::print_line(&format!(
        "{several}written to {} ({:.1} MB)",
        written.artifact,
        written.bytes as f64 / 1e6
    ))?;
    match &written.derived {
        Some(Derived {
            derived_bytes: 0, ..
        }) => super::print_line("no constants are made of others, so the file holds all"),
        Some(d) => super::print_line(&format!(
            "the file leaves out {:.1} MB of constants; making them took {:.0} ms here, and will whenever the model is loaded",
            d.derived_bytes as f64 / 1e6,
            d.derive_ms
        )),
        None => Ok(()),
    }
}

fn print_json(mut summaries: Vec<Summary>, written: Written) -> Result<()> {
    if let [one] = summaries.as_mut_slice() {
        one.written = Some(written);
        return super::print_json(one);
    }
    super::print_json(&serde_json::json!({
        "artifact": written.artifact,
        "bytes": written.bytes,
        "variants": summaries,
    }))
}

fn print(summary: &Summary) -> Result<()> {
    let sizes = match summary.sizes.as_str() {
        "" => String::new(),
        sizes => format!(" {sizes}"),
    };
    super::print_line(&format!(
        "{}{sizes}: {} tasks, {} with measured schedules, accuracy {}",
        summary.model, summary.tasks, summary.tuned_tasks, summary.accuracy,
    ))?;
    match summary.read_tasks {
        None => {}
        Some(0) => super::print_line(
            "no candidate that was read promises enough more than its default, so the defaults stay",
        )?,
        Some(n) => super::print_line(&format!(
            "{n} of the schedules were chosen by reading instead of the default"
        ))?,
    }
    super::print_line(&summary.plan.text())?;
    if summary.columns_bytes > 0 {
        super::print_line(&format!(
            "the arena has room for {:.2} MB of columns that convolutions may keep for their weight gradients (--keep-columns \
             limits them); with the first alternatives of all steps alone it has {:.2} MB",
            summary.columns_bytes as f64 / 1e6,
            summary.first_arena_bytes as f64 / 1e6,
        ))?;
    }
    if summary.other_toolchain_tasks > 0 {
        super::print_line(&format!(
            "{} of the schedules were measured with another version of the compiler; tune again to measure them with this version",
            summary.other_toolchain_tasks
        ))?;
    }
    Ok(())
}
