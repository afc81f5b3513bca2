//! `explain`: where the time of a model goes, and which limit stops it.

use super::explain_predict::{self, Predicted, predictions};
use super::model_args::{ModelArgs, StoreArgs, check_runs_here, warn, warn_of_threads};
use super::parse::parse_duration;
use super::pool_args::{PoolArgs, model_of};
use super::score_args::{ScoreArgs, Scoring};
use super::screen::{self, cut, wrapped};
use super::table::{Table, or_unknown};
use super::{explain_html, output};
use crate::check::of_model;
use crate::compile::compile_plan;
use crate::explain::{
    CallFacts, Layer, Profile, Roofline, StepFacts, Times, facts, footprint, layers, profiles,
};
use ir::Target;
use output::{Output, PAGE};
use plan::Plan;
use runtime::{CompiledModel, Pool};
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
use tune::{Error, Result};

/// Explain where a model's time goes: algorithm, schedule, rates and the limit of every layer
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith explain resnet18 --threads 1\n  tunesmith explain resnet18 --threads 2 --artifact resnet18.tsm --scaling --sort time\n\nThe roofline of a layer is the longest of three times: its operations at the multiply-add peak,\nits bytes at the bandwidth of their memory, and one parallel loop. The peak, the bandwidths and\nthe loop are measured on this machine. In the table, `time` is a layer's share of the model's\ntime, `peak` and `bw` are its shares of the peak and of the bandwidth, `roof` is its roofline as a\nshare of its time, and `eff` is its parallel efficiency."
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    pool: PoolArgs,
    /// Use no tuning records, only default schedules
    #[arg(long)]
    defaults: bool,
    /// Explain this compiled model instead of compiling one
    #[arg(long, value_name = "FILE")]
    artifact: Option<PathBuf>,
    /// Also run on one thread, and show the parallel efficiency of every layer
    #[arg(long)]
    scaling: bool,
    /// The compiled model that --scaling runs on one thread [default: the --artifact; without one, the model compiled for one thread]
    #[arg(long, value_name = "FILE", requires = "scaling")]
    one_thread: Option<PathBuf>,
    /// Order of the layers: run or time
    #[arg(long, default_value = "run", value_parser = ["run", "time"])]
    sort: String,
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
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// All threads against one.
#[derive(Serialize)]
pub struct Scaling {
    one_thread: Times,
    speedup: f64,
    efficiency: f64,
    /// The speed-up of the rooflines.
    roofline_speedup: f64,
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
    subject: Subject,
}

/// Compiles the model, or loads it, for so many threads; loads an artifact that stands in the
/// place of a model.
fn explained(
    a: &Args,
    target: &Target,
    artifact: Option<&PathBuf>,
    store: Option<&Store>,
) -> Result<Explained> {
    let pool = a.pool.pool(target.threads() as usize)?;
    if let Some(path) = a.model.artifact() {
        let variants = a.pool.load(artifact.unwrap_or(&path))?;
        let compiled = variants.models()[a.model.variant(&variants)?].clone();
        return Ok(Explained {
            name: compiled.name().to_string(),
            plan: None,
            subject: Subject { compiled, pool },
        });
    }
    let source = a.model.source()?;
    let compiled = match artifact {
        Some(path) => {
            let compiled = model_of(&a.pool.load(path)?, &source)?;
            of_model(&source.model, &compiled)?;
            compiled
        }
        None => {
            let host = super::host()?;
            let plan = source.plan_for(&host.machine, target, a.model.accuracy, store)?;
            let requirements = a.model.requirements();
            let compiled = compile_plan(
                plan,
                target,
                &host,
                &Origins::of(requirements, store),
                &pool,
            )?;
            warn(&compiled.warnings);
            warn_of_threads(&source.name, target, &compiled.other_threads);
            Arc::new(compiled.model)
        }
    };
    let plan = source.plan(target, accuracy_of(&compiled), compiled.plain_steps())?;
    Ok(Explained {
        name: source.name,
        plan: Some(plan),
        subject: Subject { compiled, pool },
    })
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
    let machine = Machine::host().fingerprint();
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
    Ok(explained(a, &target, a.one_thread.as_ref(), store)?.subject)
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let machine = Machine::host();
    let target = a.model.resolve_target(&machine)?;
    check_runs_here(&target)?;
    if a.scaling && target.threads() == 1 {
        return Err(Error::new("--scaling compares several threads with one")
            .help("give --threads 2 or more"));
    }
    let scoring = scoring(a, &machine, &target)?;
    let html = html_output(a)?;
    let store = a
        .store
        .read_unless(a.defaults || a.model.artifact().is_some())?;
    let Explained {
        name,
        plan,
        subject,
    } = explained(a, &target, a.artifact.as_ref(), store.as_ref())?;
    let plan = plan.as_ref();
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
    let facts = facts(plan, &subject.compiled, &target);
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
    if let Some(html) = &html {
        html.write_bytes(explain_html::page(&report).as_bytes())?;
    }
    if a.json {
        super::print_json(&report)?;
    } else {
        super::print_text(&text(a, &mut report))?;
        if let Some(scoring) = &scoring {
            super::print_text(&explain_predict::text(scoring, &report.predicted))?;
        }
        if let Some(html) = &html {
            super::print_line(&format!("written to {}", html.path().display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How kernels are scored, if they are to be read.
fn scoring(a: &Args, machine: &Machine, target: &Target) -> Result<Option<Scoring>> {
    if a.predict {
        return a.score.scoring(&a.store, machine, target).map(Some);
    }
    a.score.refuse("give --predict with it")?;
    Ok(None)
}

/// The page that is asked for.
fn html_output(a: &Args) -> Result<Option<Output>> {
    let Some(path) = &a.html else {
        return Ok(None);
    };
    let mut inputs = [a.model.files(), a.store.files()?, a.score.files()].concat();
    inputs.extend(a.artifact.iter().chain(&a.one_thread).cloned());
    Output::new(path, PAGE, inputs).map(Some)
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

/// Width of the operator and algorithm columns.
const OPERATOR: usize = 28;
const ALGORITHM: usize = 19;
/// Characters of a full bar.
const BAR: f64 = 5.0;

/// A number in at most `width` characters where that is possible.
fn number(v: f64, width: usize) -> String {
    let digits = [3, 2, 1, 0].into_iter().map(|d| format!("{v:.d$}"));
    let mut last = String::new();
    for text in digits {
        if text.len() <= width {
            return text;
        }
        last = text;
    }
    last
}

fn percent(v: f64) -> String {
    format!("{:.0}%", 100.0 * v)
}

/// A bar of a share, in eighths of a character.
fn bar(share: f64, longest: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share / longest * BAR * 8.0).round() as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// The table of layers; the columns that matter less go first where it is narrow.
fn table(layers: &[Layer], scaling: bool, with_details: bool) -> Table {
    let mut header = vec![
        "#",
        "operator",
        "algorithm",
        "ms",
        "time",
        "",
        "GFLOP/s",
        "peak",
        "GB/s",
        "bw",
        "MB",
        "limit",
        "roof",
    ];
    header.extend(scaling.then_some("eff"));
    // Only a model tells how many operations a step has.
    let known = layers.iter().any(|l| l.task.is_some());
    let of_models = |name: &&str| {
        known || !matches!(*name, "GFLOP/s" | "peak" | "algorithm" | "limit" | "roof")
    };
    let shown: Vec<bool> = header.iter().map(of_models).collect();
    let keep = |cells: Vec<String>| {
        let all = cells.into_iter().zip(&shown);
        all.filter(|(_, shown)| **shown).map(|(c, _)| c).collect()
    };
    let header: Vec<&str> = header.into_iter().filter(of_models).collect();
    let mut t = Table::new(&header).dispensable(&["MB", "bw", "GB/s", "", "peak", "eff"]);
    let longest = layers.iter().map(|l| l.share).fold(0.0, f64::max);
    for l in layers {
        t.row(keep(row(l, longest, scaling)));
        if with_details {
            t.note(details(l));
        }
    }
    t
}

fn row(l: &Layer, longest: f64, scaling: bool) -> Vec<String> {
    let mark = if l.counted_as_direct { "*" } else { "" };
    let of_model = |text: String| match l.task {
        Some(_) => text,
        None => "-".into(),
    };
    let mut row = vec![
        l.index.to_string(),
        cut(&l.operator, OPERATOR),
        cut(&l.algorithm, ALGORITHM),
        number(l.time.median_ms, 7),
        percent(l.share),
        bar(l.share, longest),
        of_model(number(l.gflops_per_s, 5) + mark),
        of_model(percent(l.of_peak)),
        number(l.gb_per_s, 4),
        percent(l.of_bandwidth),
        number(l.mbytes, 4),
        limit_text(l),
        percent(l.of_roofline),
    ];
    row.extend(scaling.then(|| l.efficiency.map_or("-".into(), percent)));
    row
}

/// The limit, with the level of memory where that binds.
fn limit_text(l: &Layer) -> String {
    match (l.limit, l.level) {
        (crate::explain::Bound::Memory, "memory") => "DRAM".into(),
        (crate::explain::Bound::Memory, level) => level.into(),
        (limit, _) => limit.name().into(),
    }
}

fn details(l: &Layer) -> String {
    let alone = l
        .alone_ms
        .map_or(String::new(), |ms| format!("; alone {ms:.3} ms"));
    format!(
        "    {}: {}{alone}; min {:.3} ms; {} FLOP/B",
        l.name,
        if l.schedule.is_empty() {
            "no decisions"
        } else {
            &l.schedule
        },
        l.time.min_ms,
        number(l.intensity, 4)
    )
}

/// One layer for all with the same task and schedule: sums, and rates that follow.
fn merged(layers: &[Layer], threads: f64) -> Vec<Layer> {
    let mut out: Vec<(usize, Layer)> = Vec::new();
    for l in layers {
        let same = |o: &&mut (usize, Layer)| {
            l.task.is_some() && o.1.task == l.task && o.1.schedule == l.schedule
        };
        let Some((uses, sum)) = out.iter_mut().find(same) else {
            out.push((1, l.clone()));
            continue;
        };
        *uses += 1;
        sum.time.median_ms += l.time.median_ms;
        sum.time.min_ms += l.time.min_ms;
        sum.share += l.share;
        sum.gflop += l.gflop;
        sum.mbytes += l.mbytes;
        sum.roofline_ms += l.roofline_ms;
        sum.roofline.memory_ms += l.roofline.memory_ms;
        sum.one_thread_ms = sum.one_thread_ms.zip(l.one_thread_ms).map(|(a, b)| a + b);
    }
    let finish = |(uses, mut sum): (usize, Layer)| {
        if uses == 1 {
            return sum;
        }
        let ms = sum.time.median_ms;
        let before = sum.gflops_per_s;
        sum.gflops_per_s = sum.gflop / ms * 1e3;
        sum.gb_per_s = sum.mbytes / ms;
        sum.of_peak *= sum.gflops_per_s / before.max(f64::MIN_POSITIVE);
        sum.of_bandwidth = sum.roofline.memory_ms / ms;
        sum.of_roofline = sum.roofline_ms / ms;
        sum.efficiency = sum.one_thread_ms.map(|one| one / ms / threads);
        sum.operator = format!("{uses}x {}", sum.operator);
        sum.name = format!("{} and {} more", sum.name, uses - 1);
        sum
    };
    out.into_iter().map(finish).collect()
}

fn text(a: &Args, r: &mut Explanation) -> String {
    if a.merge {
        r.layers = merged(&r.layers, f64::from(r.threads));
    }
    if a.sort == "time" {
        r.layers
            .sort_by(|a, b| b.time.median_ms.total_cmp(&a.time.median_ms));
    }
    let scaling = r.scaling.is_some();
    let mut out = table(&r.layers, scaling, a.details).text();
    out += &schedules(&r.layers);
    out += "\n";
    let width = screen::bound().unwrap_or(usize::MAX);
    for line in summary(r).lines() {
        out += &wrapped(line, width, 4);
        out += "\n";
    }
    out
}

/// The longest line where the screen has no bound.
const WIDTH: usize = 200;
/// Numbers of layers that are named before they are counted.
const NAMED: usize = 6;

/// The decisions of every schedule, once each, with the layers it runs in.
fn schedules(layers: &[Layer]) -> String {
    let mut all: Vec<(&Layer, Vec<usize>)> = Vec::new();
    for l in layers.iter().filter(|l| !l.schedule.is_empty()) {
        let same = |o: &&mut (&Layer, Vec<usize>)| {
            o.0.algorithm == l.algorithm && o.0.schedule == l.schedule
        };
        match all.iter_mut().find(same) {
            Some((_, of)) => of.push(l.index),
            None => all.push((l, vec![l.index])),
        }
    }
    let mut out = String::new();
    for (l, of) in all {
        let algorithm = cut(&l.algorithm, ALGORITHM);
        let line = format!("{algorithm:<ALGORITHM$} {}: {}", numbers(&of), l.schedule);
        out += &cut(&line, screen::bound().unwrap_or(WIDTH));
        out += "\n";
    }
    match out.is_empty() {
        true => out,
        false => format!("\nschedule            layers: decisions\n{out}"),
    }
}

/// `2-5 8`, or the first few and how many more.
fn numbers(layers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &n in layers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => ranges.push((n, n)),
        }
    }
    let text = |&(from, to): &(usize, usize)| match to - from {
        0 => from.to_string(),
        _ => format!("{from}-{to}"),
    };
    let mut all: Vec<String> = ranges.iter().take(NAMED).map(text).collect();
    let more: usize = ranges.iter().skip(NAMED).map(|(a, b)| b - a + 1).sum();
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all.join(" ")
}

fn summary(r: &Explanation) -> String {
    let rate = match r.gflop > 0.0 {
        true => format!(
            ", {:.1} GFLOP/s of a peak of {:.0}",
            r.gflops_per_s, r.ceiling.peak_gflops
        ),
        false => String::new(),
    };
    let mut out = format!(
        "{}, {} threads, accuracy {}: {:.3} ms (min {:.3}){rate}\n",
        r.model,
        r.threads,
        or_unknown(&r.accuracy),
        r.latency.median_ms,
        r.latency.min_ms,
    );
    if r.layers.iter().any(|l| l.task.is_some()) {
        out += &limits(r);
    } else {
        out += "operations and limits are not known: a compiled model does not tell them; \
                `explain MODEL --artifact FILE` does\n";
    }
    out += &copies(&r.layers);
    let levels: Vec<String> = r
        .ceiling
        .levels
        .iter()
        .map(|l| format!("{} {:.0}", l.name, l.gb_per_s))
        .collect();
    out += &format!(
        "reads in GB/s: {}; an inference touches {:.1} MB; a parallel loop costs {:.1} us\n",
        levels.join(", "),
        r.footprint_mbytes,
        r.ceiling.fork_join.awake_us
    );
    if let Some([before, after]) = r.moved_ns {
        out += &format!(
            "CPUs moved meanwhile: a cache line took {before:.0} ns there and back, then {after:.0}; the rooflines use the better limits\n"
        );
    }
    if let Some(s) = &r.scaling {
        out += &format!(
            "one thread {:.3} ms: {:.2}x on {} threads ({} efficiency; the rooflines allow {:.2}x)\n",
            s.one_thread.median_ms,
            s.speedup,
            r.threads,
            percent(s.efficiency),
            s.roofline_speedup
        );
    }
    if r.layers.iter().any(|l| l.counted_as_direct) {
        out += "* counts the operations of a direct convolution; the algorithm executes fewer, and its roofline counts only those\n";
    }
    out
}

/// What the rooflines say of the whole model.
fn limits(r: &Explanation) -> String {
    let mut out = format!(
        "roofline {:.3} ms, {} of the time; sum of the steps, with reading the clock between them, {:.3} ms; {} rounds\n",
        r.roofline_ms,
        percent(r.of_roofline),
        r.steps_ms,
        r.rounds
    );
    for limit in ["compute", "memory", "overhead"] {
        let bound: Vec<&Layer> = r
            .layers
            .iter()
            .filter(|l| l.limit.name() == limit)
            .collect();
        let sum = |f: fn(&Layer) -> f64| bound.iter().fold(0.0, |sum, l| sum + f(l));
        if !bound.is_empty() {
            out += &format!(
                "  bound by {limit:<8} {:>3} layers, {:>9.3} ms, roofline {:>9.3} ms\n",
                bound.len(),
                sum(|l| l.time.median_ms),
                sum(|l| l.roofline_ms)
            );
        }
    }
    out
}

/// The layers that only move elements, with their shares of the time.
fn copies(layers: &[Layer]) -> String {
    let all: Vec<&Layer> = layers.iter().filter(|l| l.copies).collect();
    let share = all.iter().fold(0.0, |sum, l| sum + l.share);
    let mut out = String::new();
    if !all.is_empty() {
        out += &format!(
            "copies: {} layers, {:.1}% of the time\n",
            all.len(),
            100.0 * share
        );
    }
    for l in all {
        let line = format!(
            "  {:>5.1}% #{} {}: {}",
            100.0 * l.share,
            l.index,
            l.operator,
            l.name
        );
        out += &(cut(&line, screen::bound().unwrap_or(WIDTH)) + "\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_to_their_width() {
        let of = |v, w| number(v, w);
        assert_eq!(of(0.1234, 5), "0.123");
        assert_eq!(of(12.345, 5), "12.35");
        assert_eq!(of(604.94, 5), "604.9");
        assert_eq!(of(123_456.7, 5), "123457");
    }

    #[test]
    fn layers_of_a_schedule_are_ranges() {
        assert_eq!(numbers(&[7]), "7");
        assert_eq!(numbers(&[2, 3, 4, 8, 10, 11]), "2-4 8 10-11");
        assert_eq!(
            numbers(&[0, 2, 4, 6, 8, 10, 12, 13, 15]),
            "0 2 4 6 8 10 and 3 more"
        );
    }

    #[test]
    fn bars_are_shares_of_the_longest() {
        assert_eq!(bar(0.5, 0.5), "█████");
        assert_eq!(bar(0.1, 0.5), "█");
        assert_eq!(bar(0.05, 0.5), "▌");
        assert_eq!(bar(0.0, 0.5), "");
    }
}
