//! `tune`: searches schedules for every task of a model.

use super::keys::SignArgs;
use super::knobs::{default, doc, kind, with_default};
use super::model_args::{ModelArgs, StoreArgs, check_runs_here, warn};
use super::output::{ARTIFACT, Output};
use super::parse::{parse_count, parse_duration, parse_share, parse_threads, parse_time};
use super::progress::Progress;
use super::table::{Table, ms};
use measure::{Constants, Policy};
use std::collections::BTreeSet;
use tune::Result;
use tune::source::Source;
use tune::{
    CpuDivision, MeasureSettings, Options, Report, Request, StopRule, TaskSummary, tune_all,
};

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Tune models: search, measure, and write the tuned models
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith tune resnet18\n  tunesmith tune model.onnx --batch 1 --time 5m\n  tunesmith tune resnet18 mobilenet-v2 --time 5m\n  tunesmith tune 'op:matmul(m=1024,n=1024,k=1024)' --threads 1 --trials 200 --json"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// More models, tuned in the same run
    #[arg(value_name = "MODEL")]
    more: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
    #[arg(long, value_parser = parse_time, help = doc("time"), default_value = default("time"),
        conflicts_with = "trials")]
    time: Duration,
    #[arg(long, value_parser = parse_count::<u64>, help = doc("trials"))]
    trials: Option<u64>,
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',', help = doc("algorithms"))]
    algorithms: Vec<String>,
    #[arg(long, help = doc("strategy"), value_name = kind("strategy"), default_value = default("strategy"))]
    strategy: String,
    #[arg(long, help = doc("budget"), value_name = kind("budget"), default_value = default("budget"))]
    budget: String,
    #[arg(long, help = doc("filter"), value_name = "NAME,...", value_delimiter = ',')]
    filter: Vec<String>,
    #[arg(long, help = doc("seed"), default_value = default("seed"))]
    seed: u64,
    /// The file for the tuned model; with several models, a folder for them [default: NAME.tsm]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    #[command(flatten)]
    sign: SignArgs,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    #[arg(long, help = doc("overlap"), default_value = default("overlap"), value_parser = ["on", "off", "auto"])]
    overlap: String,
    #[arg(long, help = doc("rotate"), default_value = default("rotate"), value_parser = ["on", "off"])]
    rotate: String,
    #[arg(long, help = with_default("builders"), value_parser = parse_threads::<usize>)]
    builders: Option<usize>,
    #[arg(long, help = with_default("in-model-time"), value_parser = parse_duration)]
    in_model_time: Option<Duration>,
    #[arg(long, help = doc("build-limit"), value_parser = parse_time, default_value = default("build-limit"))]
    build_limit: Duration,
    #[arg(long, help = doc("run-limit"), value_parser = parse_time, default_value = default("run-limit"))]
    run_limit: Duration,
    #[arg(long, help = doc("measure"), value_name = "auto|serial|serial-spawn|naive|doppler",
        default_value = default("measure"), value_parser = parse_policy)]
    measure: Asked,
    #[arg(long, help = doc("measure-batch"), default_value = default("measure-batch"),
        value_parser = parse_count::<usize>)]
    measure_batch: usize,
    #[arg(long, help = doc("devices"), default_value = default("devices"), value_parser = parse_threads::<usize>)]
    devices: usize,
    #[arg(long, help = doc("oversubscribe"), default_value = default("oversubscribe"),
        value_parser = parse_threads::<u32>)]
    oversubscribe: u32,
    #[arg(long, help = doc("lose"), default_value = default("lose"), value_parser = parse_share)]
    lose: f64,
    #[arg(long, help = doc("rank"), default_value = default("rank"), value_parser = parse_share)]
    rank: f64,
    #[arg(long, help = doc("drift"), default_value = default("drift"), value_parser = parse_share)]
    drift: f64,
    #[arg(long, help = doc("doppler"), value_name = "NAME=VALUE,...", value_parser = parse_constants,
        default_value = "", hide_default_value = true)]
    doppler: Constants,
}

/// A policy; none for `auto`.
type Asked = Option<Policy>;

fn parse_policy(name: &str) -> std::result::Result<Asked, String> {
    match name {
        "auto" => Ok(None),
        _ => Policy::named(name).map(Some).ok_or_else(|| {
            let names = Policy::ALL.map(Policy::name).join(", ");
            format!("use auto or one of: {names}")
        }),
    }
}

/// DOPpler's constants with changes.
pub fn parse_constants(changes: &str) -> std::result::Result<Constants, String> {
    Constants::PAPER.with(changes)
}

/// Where an artifact goes: as asked, or to a file named for the model.
pub fn artifact_path(asked: Option<&Path>, model: &str) -> PathBuf {
    if let Some(path) = asked {
        return path.to_path_buf();
    }
    let safe: String = model
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') {
                c
            } else {
                '_'
            }
        })
        .collect();
    PathBuf::from(format!("{}.tsm", safe.trim_matches('_')))
}

/// The options that the flags ask for.
fn options(a: &Args, begun: Instant, cpus: usize, threads: u32) -> Options {
    let stop = a.trials.map_or(StopRule::Time(a.time), StopRule::Trials);
    let mut options = Options::new(cpus, threads, stop);
    options.begun = begun;
    options.strategy.clone_from(&a.strategy);
    options.budget.clone_from(&a.budget);
    options.filters.clone_from(&a.filter);
    options.seed = a.seed;
    options.rotate = a.rotate == "on";
    options.accuracy = a.model.accuracy;
    options.space = a.model.space;
    options.algorithms.clone_from(&a.algorithms);
    options.tolerance = a.model.tolerance;
    (options.build_limit, options.run_limit) = (a.build_limit, a.run_limit);
    (options.rank, options.drift) = (a.rank, a.drift);
    options.in_model = a.in_model_time.unwrap_or(options.in_model);
    options.measure = MeasureSettings {
        policy: options.measure.policy,
        batch: a.measure_batch,
        devices: a.devices,
        oversubscribe: a.oversubscribe,
        constants: a.doppler,
        lose: a.lose,
    };
    let asked = CpuDivision {
        overlap: match a.overlap.as_str() {
            "auto" => None,
            on => Some(on == "on"),
        },
        builders: a.builders,
        policy: a.measure,
    };
    options.divide_cpus(cpus, threads, asked);
    options
}

/// The files that the tuned models go to.
fn outputs(a: &Args, sources: &[Source]) -> Result<Vec<Output>> {
    let mut inputs = [a.model.files(), a.store.files()?, a.sign.files()].concat();
    inputs.extend(a.more.iter().map(PathBuf::from));
    let one = |source: &Source| {
        let path = match (&a.out, sources.len()) {
            (Some(folder), 2..) => folder.join(artifact_path(None, &source.name)),
            (out, _) => artifact_path(out.as_deref(), &source.name),
        };
        Output::new(&path, ARTIFACT, inputs.clone())
    };
    sources.iter().map(one).collect()
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let begun = Instant::now();
    let host = super::host()?;
    let machine = &host.machine;
    let target = a.model.resolve_target(machine)?;
    check_runs_here(&target)?;
    let options = options(a, begun, machine.cpus, target.threads());
    options.check()?;
    let store = a.store.write()?;
    let mut sources = vec![a.model.source()?];
    for name in &a.more {
        sources.push(a.model.source_named(name)?);
    }
    let key = a.sign.key()?;
    let outputs = outputs(a, &sources)?;
    let request = |source| Request {
        source,
        target: &target,
        strategy: None,
    };
    let requests: Vec<Request<'_>> = sources.iter().map(request).collect();
    let mut progress = Progress::new(a.json);
    let tuned = tune_all(&requests, &host, &store, &options, &mut progress);
    progress.finish();
    let mut tuned = tuned?;
    for ((t, source), out) in tuned.iter_mut().zip(&sources).zip(&outputs) {
        let help =
            "the records are in the store: `compile` with another --out FILE writes the same model";
        out.save(&t.model, key.as_ref()).map_err(|e| e.help(help))?;
        t.report.model.clone_from(&source.name);
        t.report.artifact = Some(out.path().display().to_string());
        warn(&t.report.warnings);
    }
    let reports: Vec<&Report> = tuned.iter().map(|t| &t.report).collect();
    for disturbance in reports
        .iter()
        .flat_map(|r| &r.disturbances)
        .collect::<BTreeSet<_>>()
    {
        eprintln!("warning: {disturbance}");
    }
    match (&reports[..], a.json) {
        ([report], true) => super::print_json(report)?,
        (reports, true) => super::print_json(&serde_json::json!({ "models": reports }))?,
        (reports, false) => reports.iter().try_for_each(|r| print(r))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What the whole model said of a task: nothing, that the best alone is kept,
/// or how much faster than that the chosen one makes it.
fn in_model(s: &TaskSummary) -> String {
    let Some(i) = &s.in_model else {
        return "-".into();
    };
    if !i.changed {
        return format!("kept, of {}", i.candidates);
    }
    let gains = i.tried.iter().map(|t| t.paired.latency_percent);
    format!("{:+.2}%", gains.fold(0.0, f64::min))
}

fn print(r: &Report) -> Result<()> {
    let mut t = Table::new(&[
        "task",
        "uses",
        "share",
        "before ms",
        "after ms",
        "GFLOP/s",
        "% peak",
        "trials",
        "algorithm",
        "in model",
    ]);
    for s in &r.tasks {
        let rate = s.gflops_per_s.unwrap_or(0.0);
        t.row(vec![
            s.task.clone(),
            s.uses.to_string(),
            format!("{:.1}%", 100.0 * s.share),
            ms(s.before_ms),
            ms(s.after_ms),
            format!("{rate:.1}"),
            s.of_peak
                .map_or("-".into(), |p| format!("{:.0}", 100.0 * p)),
            s.trials.to_string(),
            s.algorithm.clone().unwrap_or_else(|| "-".into()),
            in_model(s),
        ]);
    }
    t.print()?;
    super::print_text("\n")?;
    let errors = r.tasks.iter().filter_map(|t| t.rel_l2);
    let largest = errors
        .reduce(f64::max)
        .map(|e| format!("largest error {e:.0e}, "));
    let plain = r.latency_before_ms.map(|plain| {
        let gain = plain / r.latency_after_ms;
        format!("plain {plain:.2} ms, {gain:.1}x; ")
    });
    super::print_line(&format!(
        "{}: {:.2} ms ({}untuned default {:.2} ms, {:.2}x), {} threads, accuracy {} ({}{:.0e} allowed)",
        r.model,
        r.latency_after_ms,
        plain.unwrap_or_default(),
        r.latency_default_ms,
        r.latency_default_ms / r.latency_after_ms,
        r.threads,
        r.accuracy,
        largest.unwrap_or_default(),
        r.tolerance
    ))?;
    super::print_line(&format!(
        "sum of kernels {:.2} ms; {} candidates tried at {:.1}/s, {} known already, {:.0} s, {:.0} CPU-s",
        r.kernels_ms, r.trials, r.trials_per_s, r.cached, r.wall_s, r.cpu_s
    ))?;
    if r.in_model.tasks > 0 && r.kept_default.is_none() {
        let total = r.in_model.total.map_or(String::new(), |t| {
            format!(" ({:+.2}% latency, p {:.3})", t.latency_percent, t.p)
        });
        super::print_line(&format!(
            "{} of {} tasks switched kernel when timed inside the whole model{total}",
            r.in_model.changed, r.in_model.tasks
        ))?;
    }
    notes(r)
}

/// What else a reader should know of a run.
fn notes(r: &Report) -> Result<()> {
    if let Some(gain) = &r.kept_default {
        super::print_line(&format!(
            "the default model was faster as a whole than the tuned kernels ({:+.2}% latency, p {:.3}) and was kept",
            gain.latency_percent, gain.p
        ))?;
    }
    if !r.layouts.plain.is_empty() {
        let gain = match &r.layouts.total {
            Some(total) => format!("{:+.1}% latency", total.latency_percent),
            None => "as an earlier run decided".into(),
        };
        super::print_line(&format!(
            "layouts: {} steps in blocked layouts, {} kept in plain ones ({gain})",
            r.layouts.blocked,
            r.layouts.plain.len()
        ))?;
    }
    if let (Some(time), 0) = (r.time_s, r.trials + r.cached) {
        super::print_line(&format!(
            "no candidate was measured: of {time:.1} s, building and running the default model took \
             {:.1} s, and the rest is needed to finish the run; give more --time",
            r.default_s
        ))?;
    }
    if let Some(why) = &r.layouts.skipped {
        super::print_line(&format!(
            "other layouts were not tried: {why}; give more --time"
        ))?;
    }
    if let Some(why) = &r.in_model.skipped {
        super::print_line(&format!(
            "finalists were not compared inside the model: {why}; give more --time or --in-model-time"
        ))?;
    }
    let untuned = r.tasks.iter().filter(|t| t.algorithm.is_none()).count();
    if untuned > 0 {
        super::print_line(&format!(
            "{untuned} tasks were not measured by this run: they keep their best known schedule, or else \
             the default one; give more --time"
        ))?;
    }
    for (what, counts) in [
        ("candidates without a time", &r.failures),
        ("candidates dropped by filters", &r.skipped),
    ] {
        let all = counts.iter().filter(|(_, n)| **n > 0);
        let all: Vec<String> = all.map(|(k, n)| format!("{k} {n}")).collect();
        if !all.is_empty() {
            super::print_line(&format!("{what}: {}", all.join(", ")))?;
        }
    }
    if let Some(a) = &r.artifact {
        super::print_line(&format!("written to {a}"))?;
    }
    Ok(())
}
