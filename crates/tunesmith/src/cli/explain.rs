//! `explain`: where the time of a model goes, and which limit stops it.

use super::explain_choices::{self, Choices};
use super::explain_predict::{self, Predicted, predictions};
use super::explain_text::{self, Shown};
use super::machine_option::MachineOption;
use super::model_args::{ModelArgs, StoreArgs, check_runs_here, say, warn};
use super::parse::{parse_count, parse_duration};
use super::pool_args::{PoolArgs, only_one};
use super::score_args::{ScoreArgs, Scoring};
use super::trace::Trace;
use super::{explain_graph, explain_html, explain_picture, output};
use crate::check::of_model;
use crate::compile::compile_plan;
use crate::explain::{
    CallFacts, Layer, Profile, Roofline, StepFacts, Times, facts, footprint, layers, profiles,
};
use ir::Target;
use output::{GRAPH, GRAPH_PICTURE, Kind, Output, PAGE, TRACE};
use plan::Plan;
use runtime::{CompiledModel, Pool, Variants};
use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tune::ceiling::{Ceiling, ceiling};
use tune::compile::accuracy_of;
use tune::kernels::Origins;
use tune::known::Lookup;
use tune::machine::Machine;
use tune::saved::{Saved, keep_columns};
use tune::{Error, Result};

/// Explain where a model's time goes: algorithm, schedule, rates and the limit of every layer
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith explain resnet18 --threads 1\n  tunesmith explain resnet18 --threads 2 --artifact resnet18.tsm --scaling --sort time\n\nThe roofline of a layer is the longest of three times: its operations at the multiply-add peak,\nits bytes at the bandwidth of their memory, and one parallel loop. The peak, the bandwidths and\nthe loop are measured on this machine. In the table, `time` is a layer's share of the model's\ntime, `peak` and `bw` are its shares of the peak and of the bandwidth, `roof` is its roofline as a\nshare of its time, and `eff` is its parallel efficiency."
)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    machine: MachineOption,
    #[command(flatten)]
    pool: PoolArgs,
    /// Use no tuning records, only default schedules
    #[arg(long)]
    defaults: bool,
    /// Explain this compiled model instead of compiling one
    #[arg(long, value_name = "FILE")]
    artifact: Option<PathBuf>,
    /// Decisions of a compiled model with alternatives, from bench or run: explain what they chose; further files say what
    /// the first does not
    #[arg(long, value_name = "FILE")]
    decisions: Vec<PathBuf>,
    /// Also run on one thread, and show the parallel efficiency of every layer
    #[arg(long)]
    scaling: bool,
    /// The compiled model that --scaling runs on one thread [default: the --artifact; without one, the model compiled for one thread]
    #[arg(long, value_name = "FILE", requires = "scaling")]
    one_thread: Option<PathBuf>,
    /// Order of the layers: run or time
    #[arg(long, default_value = "run", value_parser = ["run", "time"])]
    sort: String,
    /// Print the costliest layers only, and the sums of the others in one line
    #[arg(long, value_name = "N", value_parser = parse_count::<usize>)]
    top: Option<usize>,
    /// Print one line with the sums for all layers of equal task and schedule
    #[arg(long)]
    merge: bool,
    /// Print a second line for each layer: its name, its whole schedule, and the time of its kernel alone
    #[arg(long)]
    details: bool,
    /// Also read the kernels, and print what a static score predicts of every layer, term by term
    #[arg(long)]
    predict: bool,
    #[command(flatten)]
    score: ScoreArgs,
    /// How long to measure
    #[arg(long, value_parser = parse_duration, default_value = "3s")]
    time: Duration,
    /// Also write the figures as a page for browsers, with a picture of the roofline
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Also write the steps as a graph, with their shares of the time: a picture (.svg), or text for
    /// Graphviz (.dot)
    #[arg(long, value_name = "FILE.svg")]
    graph: Option<PathBuf>,
    /// Also write the steps with their median times for a viewer of traces such as ui.perfetto.dev
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    fn shown(&self) -> Shown {
        Shown {
            merge: self.merge,
            by_time: self.sort == "time",
            top: self.top,
            details: self.details,
        }
    }

    /// Takes the settings of the compiled model, if one is given.
    ///
    /// # Errors
    /// If a flag contradicts them, or the compiled model for one thread was made with others.
    pub fn take_settings(&mut self) -> Result<()> {
        self.model.take_settings(self.artifact.as_deref())?;
        let (Some(single), true) = (&self.one_thread, self.artifact.is_some()) else {
            return Ok(());
        };
        let taken = self.model.clone().take_settings(Some(single));
        taken.map_err(|e| {
            let artifact = self.artifact.as_deref().unwrap_or(single).display();
            Error::new(format!(
                "--one-thread and --artifact {artifact} were compiled with other settings: {e}"
            ))
            .help("compile both with the same settings but for --threads")
        })
    }

    /// Refuses a target that does not run here, and options that need others.
    fn check(&self, target: &Target) -> Result<()> {
        check_runs_here(target).map_err(|e| {
            e.help("`tunesmith tasks` with --target and --machine NAME lists what another machine measured; `compile` makes a model for the target")
        })?;
        if self.scaling && target.threads() == 1 {
            return Err(Error::new("--scaling compares several threads with one")
                .help("give --threads 2 or more"));
        }
        if !self.decisions.is_empty() && self.artifact.is_none() && self.model.artifact().is_none()
        {
            return Err(Error::new("--decisions are those of a compiled model")
                .help("name it with --artifact FILE"));
        }
        Ok(())
    }

    /// Whether the graph is a picture.
    fn draws(&self) -> bool {
        let ending = self.graph.as_ref().and_then(|g| g.extension());
        ending.is_some_and(|e| e.eq_ignore_ascii_case("svg"))
    }
}

/// All threads against one.
#[derive(Serialize)]
pub struct Scaling {
    pub one_thread: Times,
    pub speedup: f64,
    pub efficiency: f64,
    /// The speed-up of the rooflines.
    pub roofline_speedup: f64,
}

#[derive(Serialize)]
pub struct Explanation {
    pub model: String,
    pub target: String,
    pub threads: u32,
    pub accuracy: String,
    pub rounds: usize,
    pub latency: Times,
    /// Sum of the steps' medians, with the clock between them.
    pub steps_ms: f64,
    pub roofline_ms: f64,
    pub of_roofline: f64,
    pub gflop: f64,
    pub gflops_per_s: f64,
    pub mbytes: f64,
    /// What one inference touches of constants and activations.
    pub footprint_mbytes: f64,
    pub ceiling: Ceiling,
    /// Nanoseconds that a cache line took from one thread to another and back, before
    /// and after, where they say that CPUs moved from one cache to another.
    pub moved_ns: Option<[f64; 2]>,
    pub scaling: Option<Scaling>,
    pub layers: Vec<Layer>,
    /// Of a compiled model whose steps have alternatives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Choices>,
    /// What a static score says, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub predicted: Vec<Predicted>,
    /// Where its rates come from: `usual`, or a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<String>,
}

/// A compiled model with the pool it runs on.
struct Subject {
    compiled: Arc<CompiledModel>,
    pool: Arc<Pool>,
}

/// What is explained: a model's plan and name with its compiled model. Of an artifact alone
/// there is no plan.
struct Explained {
    name: String,
    plan: Option<Plan>,
    /// The columns that steps of the plan can keep; the tasks of that are in the plan.
    saved: Vec<Saved>,
    subject: Subject,
    choices: Option<Choices>,
}

/// Compiles the model, or loads it, for so many threads; loads an artifact that stands in the
/// place of a model.
fn explained(
    a: &Args,
    target: &Target,
    artifact: Option<&PathBuf>,
    decisions: &[PathBuf],
    store: Option<&Store>,
) -> Result<Explained> {
    let pool = a.pool.pool(target.threads() as usize)?;
    if let Some(path) = a.model.artifact() {
        let variants = a.pool.load(artifact.unwrap_or(&path))?;
        let at = a.model.variant(&variants)?;
        let (compiled, choices) = chosen(decisions, &variants, at, target.threads())?;
        return Ok(Explained {
            name: compiled.name().to_string(),
            plan: None,
            saved: vec![],
            subject: Subject { compiled, pool },
            choices,
        });
    }
    let (source, compiled, choices) = match artifact {
        Some(path) => {
            let variants = a.pool.load(path)?;
            let at = only_one(&variants, &a.model.which_beside(&variants)?)?;
            let source = a.model.source_of(&variants, at)?;
            of_model(&source.model, &variants.models()[at])?;
            let (compiled, choices) = chosen(decisions, &variants, at, target.threads())?;
            (source, compiled, choices)
        }
        None => {
            let source = a.model.source()?;
            let host = super::host()?;
            let plan = source.plan_for(&host.machine, target, a.model.accuracy(), store)?;
            let requirements = a.model.requirements();
            let compiled = compile_plan(
                plan,
                target,
                &host,
                &Origins {
                    machine: a.machine.named_in(store)?,
                    ..Origins::of(requirements, store)
                },
                &pool,
            )?;
            warn(&compiled.warnings);
            if let Some(elsewhere) = &compiled.elsewhere {
                a.machine.warn_of_defaults(&source.name, target, elsewhere);
            }
            (source, Arc::new(compiled.model), None)
        }
    };
    let mut plan = source.plan(target, accuracy_of(&compiled), compiled.plain_steps())?;
    let saved = keep_columns(&mut plan, &[], u64::MAX);
    Ok(Explained {
        name: source.name,
        saved,
        plan: Some(plan),
        subject: Subject { compiled, pool },
        choices,
    })
}

/// A variant of an artifact with what is decided, or else with the first alternatives; and which alternatives there are.
fn chosen(
    decisions: &[PathBuf],
    variants: &Variants,
    at: usize,
    threads: u32,
) -> Result<(Arc<CompiledModel>, Option<Choices>)> {
    let compiled = variants.models()[at].clone();
    let decided = match decisions {
        [] => None,
        files => Some(explain_choices::decided(variants, at, threads, files)?),
    };
    let choices = explain_choices::choices(&compiled, decided.as_ref());
    let Some(decided) = decided else {
        return Ok((compiled, choices));
    };
    let decided: Vec<usize> = decided.into_iter().map(|at| at.unwrap_or(0)).collect();
    Ok((Arc::new(compiled.with_choices(&decided)), choices))
}

/// Times of kernels alone, by task key and schedule.
fn known_times(
    a: &Args,
    plan: Option<&Plan>,
    target: &Target,
    store: Option<&Store>,
) -> Result<HashMap<(String, String), f64>> {
    let (Some(store), Some(plan)) = (store, plan) else {
        return Ok(HashMap::new());
    };
    let machine = a.machine.fingerprint(store, &Machine::host())?;
    let lookup = Lookup::new(store, plan, target, &machine, a.model.requirements());
    let tasks = plan.tasks.iter().zip(lookup.best_of_all()?);
    Ok(tasks
        .filter_map(|(t, k)| {
            let k = k?;
            let key = (t.key.clone(), schedule::print(&k.candidate.trace));
            Some((key, k.ns as f64 / 1e6))
        })
        .collect())
}

/// What there is on one thread to compare with.
fn one_thread_subject(
    a: &Args,
    target: &Target,
    subject: &Subject,
    store: Option<&Store>,
) -> Result<Subject> {
    let loaded = a.artifact.is_some() || a.model.artifact().is_some();
    if loaded && a.one_thread.is_none() {
        return Ok(Subject {
            compiled: subject.compiled.clone(),
            pool: a.pool.pool(1)?,
        });
    }
    let target = target.clone().with_threads(1);
    // Decisions are those of the threads that made them.
    Ok(explained(a, &target, a.one_thread.as_ref(), &[], store)?.subject)
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let machine = Machine::host();
    let target = a.model.resolve_target(&machine)?;
    a.check(&target)?;
    let scoring = scoring(a, &machine, &target)?;
    let files = Files::of(a)?;
    let store = a
        .store
        .read_unless(a.defaults || a.model.artifact().is_some())?;
    a.machine.named_in(store.as_ref())?;
    let Explained {
        name,
        plan,
        saved,
        subject,
        choices,
    } = explained(
        a,
        &target,
        a.artifact.as_ref(),
        &a.decisions,
        store.as_ref(),
    )?;
    let plan = plan.as_ref();
    let facts = facts(plan, &saved, &subject.compiled, &target);
    warn_of_unplanned(a, &name, &subject.compiled, &facts)?;
    let single = a
        .scaling
        .then(|| one_thread_subject(a, &target, &subject, store.as_ref()))
        .transpose()?;
    let (threads, settings) = (target.threads() as usize, a.pool.settings()?);
    let before = ceiling(&machine, threads, &settings)?;
    let running: Vec<_> = std::iter::once(&subject)
        .chain(&single)
        .map(|s| (s.compiled.clone(), s.pool.clone()))
        .collect();
    let taken = profiles(&running, a.time)?;
    let after = ceiling(&machine, threads, &settings)?;
    let moved_ns = moved_ns(&before, &after);
    let ceiling_n = after.or_better(&before);
    let known = known_times(a, plan, &target, store.as_ref())?;
    let alone = |c: &CallFacts<'_>| {
        let key = (c.task?.key.clone(), c.kernel.schedule.clone());
        known.get(&key).copied()
    };
    let layers = layers(
        &subject.compiled,
        &facts,
        &target,
        &taken[0],
        &ceiling_n,
        alone,
    );
    let mut report = report(
        &name, &target, &subject, &facts, &taken[0], layers, ceiling_n,
    );
    report.moved_ns = moved_ns;
    report.choices = choices;
    if let Some(single) = &single {
        let ceiling_1 = ceiling(&machine, 1, &settings)?;
        let roofline = roofline_ms(&facts, &subject.compiled, &ceiling_1);
        scale(&mut report, &single.compiled, &taken[1], roofline);
    }
    if let Some(scoring) = &scoring {
        let host = super::host()?;
        report.predicted = predictions(&host, &target, scoring, &facts, &report.layers)?;
        report.rates = Some(scoring.source.clone());
    }
    files.write(a, &report, &subject.compiled)?;
    if a.json {
        super::print_json(&report)?;
    } else {
        print(a, &mut report, scoring.as_ref())?;
        for file in files.html.iter().chain(&files.graph).chain(&files.trace) {
            super::print_line(&format!("written to {}", file.path().display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says on standard error that steps of an artifact are in no plan of the model beside it, so that little is known of them.
///
/// # Errors
/// If most steps are: the artifact is of another model then, or so old that the model says nothing of it.
fn warn_of_unplanned(
    a: &Args,
    model: &str,
    compiled: &CompiledModel,
    facts: &[StepFacts<'_>],
) -> Result<()> {
    let (Some(artifact), None) = (&a.artifact, a.model.artifact()) else {
        return Ok(());
    };
    let unknown = |f: &&StepFacts<'_>| f.calls.iter().any(|c| c.task.is_none());
    let count = facts.iter().filter(unknown).count();
    if 2 * count > facts.len() {
        let artifact = artifact.display();
        return Err(Error::new(format!(
            "{artifact} was compiled from another model than {model}, or by another version: {count} of its {} steps \
             are not planned for {model}; it calls its model {}",
            facts.len(),
            compiled.name()
        ))
        .help(format!(
            "give the model that it was compiled from, or leave the model out: tunesmith explain {artifact}"
        )));
    }
    if count > 0 {
        say(&format!(
            "warning: {count} of {} steps of {} are not planned for this model here, so their operations are not known; \
             another version made them, or the model has changed since",
            facts.len(),
            artifact.display()
        ));
    }
    Ok(())
}

/// What is written beside what is printed.
struct Files {
    html: Option<Output>,
    graph: Option<Output>,
    trace: Option<Output>,
}

impl Files {
    fn of(a: &Args) -> Result<Files> {
        Ok(Files {
            html: file(a, a.html.as_ref(), PAGE)?,
            graph: file(
                a,
                a.graph.as_ref(),
                if a.draws() { GRAPH_PICTURE } else { GRAPH },
            )?,
            trace: file(a, a.trace.as_ref(), TRACE)?,
        })
    }

    fn write(&self, a: &Args, report: &Explanation, compiled: &CompiledModel) -> Result<()> {
        if let Some(html) = &self.html {
            html.write_bytes(explain_html::page(report).as_bytes())?;
        }
        if let Some(graph) = &self.graph {
            let text = match a.draws() {
                true => explain_picture::picture(report, compiled),
                false => explain_graph::graph(report, compiled),
            };
            graph.write_bytes(text.as_bytes())?;
        }
        if let Some(trace) = &self.trace {
            let medians = report.layers.iter().map(|l| l.time.median_ms);
            let medians: Vec<u64> = medians.map(|ms| (ms * 1e6) as u64).collect();
            let mut steps = Trace::default();
            steps.add_steps(compiled, "", &medians);
            steps.write(trace)?;
        }
        Ok(())
    }
}

/// Prints the report for people.
fn print(a: &Args, report: &mut Explanation, scoring: Option<&Scoring>) -> Result<()> {
    super::print_text(&explain_text::text(&a.shown(), report))?;
    if let Some(choices) = &report.choices {
        super::print_text(&explain_choices::text(choices))?;
    }
    match scoring {
        Some(scoring) => super::print_text(&explain_predict::text(scoring, &report.predicted)),
        None => Ok(()),
    }
}

/// How kernels are scored, if they are to be read.
fn scoring(a: &Args, machine: &Machine, target: &Target) -> Result<Option<Scoring>> {
    if a.predict {
        return a.score.scoring(&a.store, machine, target).map(Some);
    }
    a.score.refuse("give --predict with it")?;
    Ok(None)
}

/// A file that is asked for beside what is printed.
fn file(a: &Args, path: Option<&PathBuf>, kind: Kind) -> Result<Option<Output>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let mut inputs = [a.model.files(), a.store.files()?, a.score.files()].concat();
    inputs.extend(
        [&a.artifact, &a.one_thread]
            .into_iter()
            .flatten()
            .chain(&a.decisions)
            .cloned(),
    );
    Output::new(path, kind, inputs).map(Some)
}

/// A cache line's time before and after if one is more than twice the other.
fn moved_ns(before: &Ceiling, after: &Ceiling) -> Option<[f64; 2]> {
    let (a, b) = (before.exchange_ns?, after.exchange_ns?);
    (a.max(b) > 2.0 * a.min(b)).then_some([a, b])
}

fn roofline_ms(facts: &[StepFacts<'_>], compiled: &CompiledModel, ceiling: &Ceiling) -> f64 {
    let footprint = footprint(compiled, facts);
    let one = |f: &StepFacts<'_>| -> Roofline { f.work.roofline(ceiling, footprint) };
    // From 0, as the sum of nothing is -0.
    facts.iter().fold(0.0, |sum, f| sum + one(f).ms())
}

fn report(
    model: &str,
    target: &Target,
    subject: &Subject,
    facts: &[StepFacts<'_>],
    taken: &Profile,
    layers: Vec<Layer>,
    ceiling: Ceiling,
) -> Explanation {
    let sum = |f: fn(&Layer) -> f64| layers.iter().map(f).fold(0.0, |a, b| a + b);
    let (gflop, roofline_ms) = (sum(|l| l.gflop), sum(|l| l.roofline_ms));
    Explanation {
        model: model.into(),
        target: target.name().into(),
        threads: target.threads(),
        accuracy: subject.compiled.accuracy().to_string(),
        rounds: taken.rounds,
        latency: taken.whole,
        steps_ms: sum(|l| l.time.median_ms),
        roofline_ms,
        of_roofline: roofline_ms / taken.whole.median_ms,
        gflop,
        gflops_per_s: gflop / taken.whole.median_ms * 1e3,
        mbytes: sum(|l| l.mbytes),
        footprint_mbytes: footprint(&subject.compiled, facts) / 1e6,
        ceiling,
        moved_ns: None,
        scaling: None,
        layers,
        choices: None,
        predicted: vec![],
        rates: None,
    }
}

/// Adds what one thread takes; steps meet by name.
fn scale(r: &mut Explanation, single: &CompiledModel, taken: &Profile, roofline_1: f64) {
    let threads = f64::from(r.threads);
    for l in &mut r.layers {
        let at = single.steps().iter().position(|s| s.name == l.name);
        let one = at.map(|i| taken.steps[i].median_ms);
        l.one_thread_ms = one;
        l.efficiency = one.map(|ms| ms / l.time.median_ms / threads);
    }
    let speedup = taken.whole.median_ms / r.latency.median_ms;
    r.scaling = Some(Scaling {
        one_thread: taken.whole,
        speedup,
        efficiency: speedup / threads,
        roofline_speedup: roofline_1 / r.roofline_ms,
    });
}
