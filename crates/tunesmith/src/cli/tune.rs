//! `tune`: searches schedules for every task of a model.

use super::model_args::{ModelArgs, StoreArgs, check_runs_here, warn};
use super::output::{ARTIFACT, Output};
use super::parse::{parse_count, parse_duration, parse_share, parse_threads, parse_time};
use super::progress::Progress;
use super::table::{Table, ms};
use measure::{Constants, Policy};
use tune::Result;
use tune::{Budget, Options, Report, Settings, TaskSummary, check_options, tune};

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Tune a model: search, measure, and write the tuned model
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith tune resnet18\n  tunesmith tune model.onnx --batch 1 --time 5m\n  tunesmith tune 'op:matmul(m=1024,n=1024,k=1024)' --threads 1 --trials 200 --json"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Time for the whole command, the compiled model included
    #[arg(long, value_parser = parse_time, default_value = "1m", conflicts_with = "trials")]
    time: Duration,
    /// Stop after this many executed candidates instead
    #[arg(long, value_parser = parse_count::<u64>)]
    trials: Option<u64>,
    /// Search only sketches whose names begin with one of these, and all of a task that has none; `tasks --json` lists them
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',')]
    algorithms: Vec<String>,
    /// evolutionary or random
    #[arg(long, default_value = "evolutionary")]
    strategy: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The tuned model [default: NAME.tsm]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Build the next candidates while one is measured: on, off, or auto (on if a CPU is left for it)
    #[arg(long, default_value = "auto", value_parser = ["on", "off", "auto"])]
    overlap: String,
    /// Rotate constants through copies, so that they are as cold as in the model: on or off
    #[arg(long, default_value = "on", value_parser = ["on", "off"])]
    rotate: String,
    /// Builder processes [default: CPUs minus kernel threads, at least 1]
    #[arg(long, value_parser = parse_threads::<usize>)]
    builders: Option<usize>,
    /// Time for choosing layouts, and again for the last choices, by whole-model latency [default: a tenth of --time, at most 30s; 3s with --trials]
    #[arg(long, value_parser = parse_duration)]
    in_model_time: Option<Duration>,
    /// Time after which a builder is killed
    #[arg(long, value_parser = parse_time, default_value = "20s")]
    build_limit: Duration,
    /// Time after which a runner is killed; doppler's rounds go by eta and iota of --doppler instead
    #[arg(long, value_parser = parse_time, default_value = "10s")]
    run_limit: Duration,
    /// How candidates are measured: one at a time (serial, serial-spawn), several (naive, doppler), or
    /// auto: doppler with --overlap off where kernels leave a CPU, else serial
    #[arg(long, value_name = "auto|serial|serial-spawn|naive|doppler", default_value = "auto",
        value_parser = parse_policy)]
    measure: Asked,
    /// Candidates of a task that are measured together, by naive and doppler
    #[arg(long, default_value_t = BATCH, value_parser = parse_count::<usize>)]
    measure_batch: usize,
    /// Sets that the CPUs are divided into, each a device of its own
    #[arg(long, default_value_t = 1, value_parser = parse_threads::<usize>)]
    devices: usize,
    /// Single-threaded kernels that share a CPU, by naive and doppler
    #[arg(long, default_value_t = 1, value_parser = parse_threads::<u32>)]
    oversubscribe: u32,
    /// Share of candidates as fast as the best that may be given up early
    #[arg(long, default_value_t = 0.0, value_parser = parse_share)]
    lose: f64,
    /// Share of a task's measured candidates that is ranked alone at the end, at least one
    #[arg(long, default_value_t = 0.01, value_parser = parse_share)]
    rank: f64,
    /// Share by which the CPU's speed may change before the run warns of it
    #[arg(long, default_value_t = 0.05, value_parser = parse_share)]
    drift: f64,
    /// Constants of doppler to change; `knobs` lists them with their defaults
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = parse_constants, default_value = "",
        hide_default_value = true)]
    doppler: Constants,
}

/// Candidates of a batch: DOPpler, section 5.1.
const BATCH: usize = 64;

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

/// The policy that takes the least time: side by side where no builder needs the CPUs
/// that a kernel leaves (`bench/FIGURES.md`, measuring side by side).
fn quickest(overlap: bool, left: usize, threads: u32) -> Policy {
    match !overlap && left >= threads as usize {
        true => Policy::Doppler,
        false => Policy::Serial,
    }
}

/// DOPpler's constants with changes.
pub fn parse_constants(changes: &str) -> std::result::Result<Constants, String> {
    Constants::PAPER.with(changes)
}

/// Default time for the last choices where the budget is no time, and the most.
const IN_MODEL_TRIALS: Duration = Duration::from_secs(3);
const IN_MODEL_MOST: Duration = Duration::from_secs(30);

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

pub fn run(a: &Args) -> Result<ExitCode> {
    let begun = Instant::now();
    let host = super::host()?;
    let machine = &host.machine;
    let target = a.model.resolve_target(machine)?;
    check_runs_here(machine, &target)?;
    let left = machine.cpus.saturating_sub(target.threads as usize);
    let overlap = a.overlap == "on" || a.overlap == "auto" && left > 0;
    let spare = if overlap { left } else { machine.cpus };
    let options = Options {
        begun,
        budget: a.trials.map_or(Budget::Time(a.time), Budget::Trials),
        strategy: a.strategy.clone(),
        seed: a.seed,
        overlap,
        builders: a.builders.unwrap_or(spare).max(1),
        rotate: a.rotate == "on",
        accuracy: a.model.accuracy,
        algorithms: a.algorithms.clone(),
        tolerance: a.model.tolerance,
        build_limit: a.build_limit,
        run_limit: a.run_limit,
        measure: Settings {
            policy: a
                .measure
                .unwrap_or_else(|| quickest(overlap, left, target.threads)),
            batch: a.measure_batch,
            devices: a.devices,
            oversubscribe: a.oversubscribe,
            constants: a.doppler,
            lose: a.lose,
        },
        rank: a.rank,
        drift: a.drift,
        in_model: a.in_model_time.unwrap_or(match a.trials {
            Some(_) => IN_MODEL_TRIALS,
            None => (a.time / 10).min(IN_MODEL_MOST),
        }),
    };
    check_options(&options)?;
    let store = a.store.write()?;
    let source = a.model.source()?;
    let named = artifact_path(a.out.as_deref(), &source.name);
    let inputs = [a.model.files(), a.store.files()?].concat();
    let out = Output::new(&named, ARTIFACT, inputs)?;
    let mut progress = Progress::new(a.json);
    let mut tuned = tune(&source, &host, &target, &store, &options, &mut progress)?;
    let help = "the records are in the store: `compile` with another --out FILE makes the same";
    out.save(&tuned.model).map_err(|e| e.help(help))?;
    tuned.report.model.clone_from(&source.name);
    tuned.report.artifact = Some(out.path().display().to_string());
    warn(&tuned.report.warnings);
    for disturbance in &tuned.report.disturbances {
        eprintln!("warning: {disturbance}");
    }
    if a.json {
        super::print_json(&tuned.report)?;
    } else {
        print(&tuned.report)?;
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
        "sum of kernels {:.2} ms; {} candidates run at {:.1}/s, {} known already, {:.0} s, {:.0} CPU-s",
        r.kernels_ms, r.trials, r.trials_per_s, r.cached, r.wall_s, r.cpu_s
    ))?;
    if r.in_model.tasks > 0 && r.kept_default.is_none() {
        let total = r.in_model.total.map_or(String::new(), |t| {
            format!(" ({:+.2}% latency, p {:.3})", t.latency_percent, t.p)
        });
        super::print_line(&format!(
            "inside the model: {} of {} tasks with several candidates near the best chose another{total}",
            r.in_model.changed, r.in_model.tasks
        ))?;
    }
    notes(r)
}

/// What else a reader should know of a run.
fn notes(r: &Report) -> Result<()> {
    if let Some(gain) = &r.kept_default {
        super::print_line(&format!(
            "the defaults together are faster than the candidates that are best alone ({:+.2}% latency, p {:.3}) and are kept",
            gain.latency_percent, gain.p
        ))?;
    }
    if !r.layouts.plain.is_empty() {
        let gain = match &r.layouts.total {
            Some(total) => format!("{:+.1}% latency", total.latency_percent),
            None => "as an earlier run decided".into(),
        };
        super::print_line(&format!(
            "layouts: {} steps in blocks, {} kept plain ({gain})",
            r.layouts.blocked,
            r.layouts.plain.len()
        ))?;
    }
    if let (Some(time), 0) = (r.time_s, r.trials + r.cached) {
        super::print_line(&format!(
            "no candidate was measured: building and running the default model took {:.1} s of the \
             {time:.1} s, and finishing the run takes the rest; give more --time",
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
            "{untuned} tasks were not measured by this run: they keep the best that is known, or the \
             default schedule; give more --time"
        ))?;
    }
    if !r.failures.is_empty() {
        let all: Vec<String> = r.failures.iter().map(|(k, n)| format!("{k} {n}")).collect();
        super::print_line(&format!("without a time: {}", all.join(", ")))?;
    }
    if let Some(a) = &r.artifact {
        super::print_line(&format!("written to {a}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_measured_at_once_where_neither_builders_nor_threads_need_the_cpus() {
        let of = |overlap, left, threads| quickest(overlap, left, threads).name();
        assert_eq!(of(false, 1, 1), "doppler");
        assert_eq!(of(true, 1, 1), "serial");
        assert_eq!(of(false, 0, 1), "serial");
        assert_eq!(of(false, 2, 4), "serial");
        assert_eq!(of(false, 4, 4), "doppler");
    }
}
