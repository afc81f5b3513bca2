//! `bench`: the latency distribution of a compiled model, or of a model that is compiled in memory.

use super::bench_compare::{Feed, Rival};
use super::bench_energy::InferenceEnergy;
use super::bench_figures::{Figures, Summary, print};
use super::bench_inputs::Inputs;
use super::bench_instances::{Amount, at_once, timed, warm};
use super::bench_online::{self, Measured};
use super::compile::Written;
use super::energy_args::MachineArgs;
use super::keys::SignArgs;
use super::knobs::{default, doc};
use super::machine_option::MachineOption;
use super::model_args::{ModelArgs, StoreArgs, check_runs_here, key_value, read_tensor, warn};
use super::output::{ARTIFACT, Output, TRACE};
use super::parse::{parse_count, parse_duration};
use super::pool_args::PoolArgs;
use super::table::Table;
use super::trace::Trace;
use crate::compile::{compile_plan, join};
use crate::explain::{Profile, profiles};
use crate::online::{DecisionFile, decided};
use crate::source::names_file;
use measure::energy::MachineFile;
use runtime::{CompiledModel, Model, Variants};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tune::ceiling::exchange_ns;
use tune::energy::Account;
use tune::kernels::Origins;
use tune::latency::Latencies;
use tune::machine::Machine;
use tune::{Error, Result};

/// Measure the latency and the throughput of a compiled model, or of a model, at each of its sizes
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith bench resnet18.tsm --threads 1 --json\n  tunesmith bench resnet18 --batch 8 --runs 100\n  tunesmith bench model.onnx --streams 4 --threads 1\n  tunesmith bench model.onnx --threads 1 --compare onnxruntime\n  tunesmith compile vgg16 --keep-alternatives 3 --out vgg16.tsm\n  tunesmith bench vgg16.tsm --select each --decisions vgg16.decisions\n  tunesmith bench vgg16.tsm --select online --out decided.tsm\n\nA model that is not compiled yet is compiled in memory, with the best schedules that the store knows."
)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    machine: MachineOption,
    /// Use no tuning records, only default schedules
    #[arg(long)]
    defaults: bool,
    #[command(flatten)]
    pub pool: PoolArgs,
    #[arg(long, help = doc("select"), default_value = default("select"), value_parser = ["first", "online", "each"])]
    select: String,
    /// Keep what --select online decides in this file, and start from it; further files, of other runs or shipped with the
    /// model, say what this one does not
    #[arg(long, value_name = "FILE")]
    decisions: Vec<PathBuf>,
    /// Write the model without the alternatives that lost: a smaller file, and less memory when it runs
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    sign: SignArgs,
    /// How long to measure
    #[arg(long, value_parser = parse_duration, default_value = "3s")]
    time: Duration,
    /// Measure exactly so many inferences, of each stream, instead of for a time
    #[arg(long, value_name = "N", value_parser = parse_count::<usize>, conflicts_with = "time")]
    runs: Option<usize>,
    /// Inferences that are not measured, before those that are
    #[arg(long, value_name = "N", default_value = "1")]
    pub warm_up: usize,
    /// The value of an input (.npy, or .pb for an ONNX tensor); all others are random
    #[arg(long = "input", value_name = "NAME=FILE")]
    inputs: Vec<String>,
    /// Run so many instances at once, each with --threads threads and memory of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count::<usize>)]
    pub streams: usize,
    /// Also run the ONNX file in this program, in turns, on equal inputs and with as many threads
    #[arg(long, value_name = "PROGRAM", value_parser = ["onnxruntime"])]
    compare: Option<String>,
    /// The Python that has the program [default: $PYTHON, or python3]
    #[arg(long, value_name = "PATH", requires = "compare")]
    python: Option<PathBuf>,
    /// Also print the time of every step
    #[arg(long, conflicts_with = "json")]
    profile: bool,
    /// Also run on one thread, and show the parallel efficiency of every step
    #[arg(long, conflicts_with = "json")]
    scaling: bool,
    /// Also write one inference, step by step, for a viewer of traces such as ui.perfetto.dev
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    energy: MachineArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Of each instance.
    pub fn threads(&self) -> usize {
        let given = self.model.threads().map(|n| n as usize);
        given.unwrap_or_else(|| Machine::host().cpus)
    }

    pub fn amount(&self) -> Amount {
        match self.runs {
            Some(n) => Amount::Runs(n),
            None => Amount::Time(self.time),
        }
    }
}

pub fn run(a: &Args) -> Result<ExitCode> {
    check(a)?;
    let (variants, which) = subject(a)?;
    let inputs = Inputs::read(&a.inputs, &variants.models()[0])?;
    let key = a.sign.key()?;
    let mut files = [a.model.files(), a.sign.files(), a.store.files()?].concat();
    files.extend(a.energy.files());
    files.extend(inputs.files().iter().chain(&a.decisions).cloned());
    let output = |path: &Option<PathBuf>, kind| {
        let new = |path: &PathBuf| Output::new(path, kind, files.clone());
        path.as_ref().map(new).transpose()
    };
    let (out, trace_file) = (output(&a.out, ARTIFACT)?, output(&a.trace, TRACE)?);
    let bench = Bench {
        a,
        variants: Arc::new(variants),
        inputs,
        machine: a.energy.read(&a.store, Machine::host().cpus)?,
    };
    let (mut summaries, mut left, mut steps) = (Vec::new(), None, String::new());
    let mut trace = Trace::default();
    // Each alone: the memory of another instance would push this one's out of the caches.
    for at in which {
        let (summary, model) = bench.measured(at)?;
        if let Some(model) = model {
            left = Some(join(left, bench.variants.dims(), Arc::new(model))?);
        }
        if a.profile || a.scaling {
            if !summary.sizes.is_empty() {
                steps += &format!("{}\n", summary.sizes);
            }
            steps += &bench.steps(at)?;
        }
        if a.trace.is_some() {
            let compiled = &bench.variants.models()[at];
            let mut model = warm(a, compiled, &bench.inputs, [0, 1])?;
            trace.add(&mut model, &summary.sizes)?;
        }
        summaries.push(summary);
    }
    if let Some(file) = &trace_file {
        trace.write(file)?;
    }
    let written = match (out, left) {
        (Some(out), Some(left)) => Some(Written {
            bytes: out.save(&left, key.as_ref())?,
            artifact: out.path().display().to_string(),
            derived: None,
        }),
        _ => None,
    };
    if a.json {
        print_json(summaries, written)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&summaries)?;
    super::print_text(&steps)?;
    if let Some(written) = written {
        super::print_line(&format!(
            "written to {} ({:.1} MB)",
            written.artifact,
            written.bytes as f64 / 1e6
        ))?;
    }
    if let Some(file) = &trace_file {
        super::print_line(&format!("trace written to {}", file.path().display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses flags that have no effect with each other.
fn check(a: &Args) -> Result<()> {
    let refuse = |what: &str, advice: &str| Err(Error::new(what).help(advice));
    if a.select != "first" {
        let others = [
            (a.runs.is_some(), "--runs"),
            (a.warm_up != 1, "--warm-up"),
            (!a.inputs.is_empty(), "--input"),
            (a.streams > 1, "--streams"),
            (a.compare.is_some(), "--compare"),
            (a.trace.is_some(), "--trace"),
        ];
        return match others.into_iter().find(|(given, _)| *given) {
            Some((_, flag)) => refuse(
                &format!("{flag} has no effect with --select {}", a.select),
                "leave one of them out",
            ),
            None => Ok(()),
        };
    }
    if !a.decisions.is_empty() {
        return refuse(
            "--decisions keeps what --select online or each decides",
            "add --select online",
        );
    }
    if a.out.is_some() {
        return refuse(
            "--out writes what --select online or each decides",
            "add --select online",
        );
    }
    if a.compare.is_none() {
        return Ok(());
    }
    if a.streams > 1 {
        return refuse(
            "--compare runs one instance of each program",
            "leave out --streams",
        );
    }
    match a.model.artifact().is_some() || !names_file(&a.model.model) {
        true => refuse(
            &format!(
                "--compare needs the ONNX file, and {} is none",
                a.model.model
            ),
            "give the model's file; `tunesmith models export NAME FILE` writes that of a built-in model",
        ),
        false => Ok(()),
    }
}

/// What is measured: the variants of an artifact that the flags choose, or the model at all sizes that they give.
fn subject(a: &Args) -> Result<(Variants, Vec<usize>)> {
    if let Some(path) = a.model.artifact() {
        a.machine.named_in(None)?;
        let variants = a.pool.load(&path)?;
        let which = a.model.which(&variants)?;
        return Ok((variants, which));
    }
    let sources = a.model.sources()?;
    let host = super::host()?;
    let target = a.model.resolve_target(&host.machine)?;
    check_runs_here(&target)?;
    let store = a.store.read_unless(a.defaults)?;
    let machine = a.machine.named_in(store.as_ref())?;
    let requirements = a.model.requirements();
    let pool = a.pool.pool(target.threads() as usize)?;
    let mut variants = None;
    for source in sources {
        let (name, dims) = (source.name.clone(), source.artifact_dims());
        let plan = source.plan_for(
            &host.machine,
            &target,
            requirements.accuracy,
            store.as_ref(),
        )?;
        drop(source);
        let origins = Origins {
            machine,
            ..Origins::of(requirements, store.as_ref())
        };
        let compiled = compile_plan(plan, &target, &host, &origins, &pool)?;
        warn(&compiled.warnings);
        if let Some(elsewhere) = &compiled.elsewhere {
            a.machine.warn_of_defaults(&name, &target, elsewhere);
        }
        variants = Some(join(variants, &dims, Arc::new(compiled.model))?);
    }
    let variants = variants.ok_or_else(|| Error::new("the model has no variant"))?;
    let all = (0..variants.models().len()).collect();
    Ok((variants, all))
}

fn print_json(mut summaries: Vec<Summary>, written: Option<Written>) -> Result<()> {
    if let [one] = summaries.as_mut_slice() {
        one.written = written;
        return super::print_json(one);
    }
    let mut all = serde_json::json!({ "variants": summaries });
    if let Some(written) = written {
        all["artifact"] = written.artifact.into();
        all["bytes"] = written.bytes.into();
    }
    super::print_json(&all)
}

/// What is measured, and how.
struct Bench<'a> {
    a: &'a Args,
    variants: Arc<Variants>,
    inputs: Inputs,
    machine: MachineFile,
}

impl Bench<'_> {
    /// The rows of an inference of a variant, where they are known.
    fn batch(&self, at: usize) -> Option<usize> {
        let named = self.variants.dims().iter().position(|d| d.name == "batch");
        match (named, self.a.model.batch.as_slice()) {
            (Some(dim), _) => Some(self.variants.sizes(at)[dim]),
            (None, [one]) => Some(*one),
            _ => None,
        }
    }

    /// Measures a variant; gives it without the alternatives that lost if that is to be written.
    fn measured(&self, at: usize) -> Result<(Summary, Option<CompiledModel>)> {
        let (a, batch) = (self.a, self.batch(at));
        let compiled = &self.variants.models()[at];
        if a.select != "first" {
            let (measured, left) = self.online(at)?;
            let mut summary = self.summary(at, Figures::in_turn(&measured.latencies, batch));
            summary.online = Some(measured.summary);
            return Ok((summary, left));
        }
        if a.streams > 1 {
            let taken = at_once(a, compiled, &self.inputs, &self.machine)?;
            let samples_ns = taken.samples_ns.concat();
            let all = Figures::new(&Latencies { samples_ns }, taken.wall, batch);
            let mut summary = self.summary(at, all);
            let of = |samples_ns| Figures::in_turn(&Latencies { samples_ns }, batch);
            summary.energy = Some(taken.energy);
            summary.streams = taken.samples_ns.into_iter().map(of).collect();
            return Ok((summary, None));
        }
        let mut model = warm(a, compiled, &self.inputs, [0, 1])?;
        if a.compare.is_none() {
            let account = Account::new(self.machine.clone());
            let samples_ns = timed(&mut model, a.amount())?;
            let energy = InferenceEnergy::of(&account.spent(), samples_ns.len());
            let figures = Figures::in_turn(&Latencies { samples_ns }, batch);
            let mut summary = self.summary(at, figures);
            summary.energy = Some(energy);
            return Ok((summary, None));
        }
        let mut rival = self.rival(&mut model)?;
        let (own, compared) = rival.compared(&mut model, a.amount(), batch)?;
        let mut summary = self.summary(at, Figures::in_turn(&own, batch));
        summary.compared = Some(compared);
        Ok((summary, None))
    }

    fn summary(&self, at: usize, figures: Figures) -> Summary {
        let (threads, compiled) = (self.a.threads(), &self.variants.models()[at]);
        Summary {
            model: compiled.name().to_string(),
            sizes: match self.variants.models().len() {
                1 => String::new(),
                _ => self.variants.label(at),
            },
            threads,
            accuracy: compiled.accuracy().to_string(),
            figures,
            streams: vec![],
            exchange_ns: exchange_ns(threads),
            energy: None,
            online: None,
            compared: None,
            written: None,
        }
    }

    /// The other program with the same model, threads and inputs.
    fn rival(&self, model: &mut Model) -> Result<Rival> {
        let mut feeds = Feed::of_inputs(model);
        // What is fixed at compile time is an input of the file.
        for text in &self.a.model.consts {
            let (name, file) = key_value(text)?;
            feeds.push(Feed::of(name, &read_tensor(Path::new(file))?));
        }
        let python = self.a.python.as_deref();
        Rival::start(python, &self.a.model.model, self.a.threads(), &feeds)
    }

    /// Decides among alternatives, and measures what was decided.
    fn online(&self, at: usize) -> Result<(Measured, Option<CompiledModel>)> {
        let a = self.a;
        let pool = a.pool.pool(a.threads())?;
        let compiled = &self.variants.models()[at];
        let kept = DecisionFile::of_files(&a.decisions, compiled, a.threads());
        let each = a.select == "each";
        let measured =
            bench_online::measured(&self.variants, at, &pool, a.time, each, kept.as_ref())?;
        let mut left = None;
        if a.out.is_some() {
            let model = decided(&self.variants, at, &measured.selectors, pool.ctx().threads);
            left = Some(model.map_err(|e| e.help("give more --time"))?);
        }
        Ok((measured, left))
    }

    /// The table of the steps of a variant.
    fn steps(&self, at: usize) -> Result<String> {
        let (a, compiled) = (self.a, &self.variants.models()[at]);
        let mut running = vec![(compiled.clone(), a.pool.pool(a.threads())?)];
        if a.scaling {
            running.push((compiled.clone(), a.pool.pool(1)?));
        }
        let taken = profiles(&running, a.time)?;
        Ok(steps_text(compiled, a.threads(), &taken))
    }
}

/// The time of every step, and with a second profile what one thread takes.
fn steps_text(compiled: &CompiledModel, threads: usize, taken: &[Profile]) -> String {
    let mut header = vec!["step", "ms", "share"];
    if taken.len() > 1 {
        header.extend(["one thread ms", "efficiency"]);
    }
    let mut t = Table::new(&header);
    let total: f64 = taken[0].steps.iter().map(|s| s.median_ms).sum();
    let efficiency = |one: f64, all: f64| format!("{:.0}%", 100.0 * one / all / threads as f64);
    for (i, s) in compiled.steps().iter().enumerate() {
        let ms = taken[0].steps[i].median_ms;
        let mut row = vec![
            s.name.clone(),
            format!("{ms:.3}"),
            format!("{:.1}%", 100.0 * ms / total),
        ];
        if let Some(single) = taken.get(1) {
            let one = single.steps[i].median_ms;
            row.extend([format!("{one:.3}"), efficiency(one, ms)]);
        }
        t.row(row);
    }
    let mut text = t.text();
    if let Some(single) = taken.get(1) {
        let (one, all) = (single.whole.median_ms, taken[0].whole.median_ms);
        text += &format!(
            "one thread {one:.3} ms: {:.2}x on {threads} threads, {} efficiency\n",
            one / all,
            efficiency(one, all)
        );
    }
    text
}
