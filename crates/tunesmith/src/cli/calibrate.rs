//! `calibrate`: fits the rates of static scores to this machine, by the user's own records.

use super::ADVANCED;
use super::knobs::with_default;
use super::model_args::{ModelArgs, StoreArgs, check_runs_here};
use super::output::{Output, RATES};
use super::parse::parse_count;
use super::progress::Progress;
use super::score_args::{rates_path, scoring_cpu};
use super::table::Table;
use analysis::{Rates, Reached, Score};
use build::ReadOptions;
use ir::Target;
use plan::{Plan, Task};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::slice::from_ref;
use store::{RecordPlace, Store};
use study::scores::{FEWEST, GHZ, Judged, Scored, by_rates, fitted, left_out};
use tune::calibration::{TimedCandidate, distinct, spread, times};
use tune::compile::{Builders, defaults};
use tune::machine::target_key;
use tune::scored_caches::Caches;
use tune::{Error, Host, Observer, Result, unix_ms};

/// Fit the rates of static scores to this machine, by the times that tuning measured here
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith calibrate resnet18 --threads 1\n  tunesmith calibrate model.onnx second.onnx --threads 4 --points 100 --out server.json\n\nThe models are those that were tuned: the store keeps times and schedules of their tasks, and builders\nread the code once more. Every task is left out of a fit once, and judges that fit. The fitted rates are\nwritten if they rank the tasks that were left out no worse than the usual rates do. Then `tune`,\n`compile --choose static`, `explain --predict` and `dump --stage machine` use them."
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// More models whose tasks were tuned
    #[arg(value_name = "MODEL")]
    more: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
    /// Most candidates of each task, spread over their times
    #[arg(long, default_value_t = 60, value_parser = parse_count::<usize>)]
    points: usize,
    /// Fewest timed candidates of a task that counts
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, default_value_t = FEWEST, value_parser = parse_count::<usize>)]
    least_points: usize,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "CPU", help = with_default("score-cpu"))]
    score_cpu: Option<String>,
    /// Write the fitted rates even if the usual ones rank better, or if nothing judges them
    #[arg(long)]
    force: bool,
    /// The file for the rates [default: beside the store, where every command finds those of this machine]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write all points that were read, the defaults among them, as `study static` reads them
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "FILE")]
    points_out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A task that rates are fitted on.
#[derive(Serialize)]
struct CountedTask {
    task: String,
    key: String,
    points: usize,
}

#[derive(Serialize)]
struct Calibration {
    target: String,
    threads: u32,
    score_cpu: String,
    tasks: Vec<CountedTask>,
    points: usize,
    /// How well each ranks; of the fitted rates on tasks that were left out, none where there is one
    /// task only.
    usual: Reached,
    fitted: Option<Reached>,
    /// Whether the fitted rates rank tasks that were left out at least as well as the usual ones.
    no_worse: bool,
    usual_rates: Score,
    fitted_rates: Score,
    /// `fitted` or `usual`.
    kept: &'static str,
    /// The file, if it was written.
    written: Option<String>,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let host = super::host()?;
    let target = a.model.resolve_target(&host.machine)?;
    check_runs_here(&target)?;
    let cpu = scoring_cpu(&target, a.score_cpu.clone())?;
    let store = a.store.existing()?;
    let own_path = rates_path(&a.store, &host.machine)?;
    let inputs = [a.model.files(), a.store.files()?].concat();
    let out = Output::new(a.out.as_ref().unwrap_or(&own_path), RATES, inputs)?;
    let plans = plans(a, &host, &target, &store)?;
    let tasks = distinct(plans.iter().flat_map(|p| &p.tasks));
    let timed = timed(a, &host, &target, &store, &tasks)?;
    let mut progress = Progress::new("calibrate", a.json);
    let read = read(&host, &target, &cpu, &timed, &mut progress);
    progress.finish();
    let read = read?;
    if let Some(path) = &a.points_out {
        let points = points(a, &plans, &read, &target)?.to_string();
        let written = std::fs::write(path, points);
        written.map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
    }
    let (counted, judged) = enough(a, read)?;
    let usual = by_rates("usual rates", &Score::USUAL, &judged);
    let others = left_out("fitted, each task left out", &judged)?;
    let rates = fitted(&judged, GHZ)?.rounded();
    let no_worse = others.as_ref().is_some_and(|o| o.ranks_no_worse(&usual));
    let mut report = Calibration {
        target: target.name().into(),
        threads: target.threads(),
        score_cpu: cpu,
        points: counted.iter().map(|t| t.points).sum(),
        tasks: counted,
        usual: reached(&usual),
        fitted: others.as_ref().map(reached),
        no_worse,
        usual_rates: Score::USUAL,
        fitted_rates: rates,
        kept: if no_worse || a.force {
            "fitted"
        } else {
            "usual"
        },
        written: None,
    };
    if report.kept == "fitted" {
        out.write_bytes(file(&report, &host).text().as_bytes())?;
        report.written = Some(out.path().display().to_string());
    }
    if a.json {
        super::print_json(&report)?;
    } else {
        print(
            &report,
            a,
            &own_path.display().to_string(),
            own_path.exists(),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The plans of all models at all sizes.
fn plans(a: &Args, host: &Host, target: &Target, store: &Store) -> Result<Vec<Plan>> {
    let mut plans = Vec::new();
    let mut sources = a.model.sources()?;
    for name in &a.more {
        sources.extend(a.model.sources_named(name)?);
    }
    for source in sources {
        plans.push(source.plan_for(&host.machine, target, a.model.accuracy(), Some(store))?);
    }
    Ok(plans)
}

/// Timed candidates of the tasks that have enough of them.
fn timed<'t>(
    a: &Args,
    host: &Host,
    target: &Target,
    store: &Store,
    tasks: &[&'t Task],
) -> Result<Vec<(&'t Task, Vec<TimedCandidate>)>> {
    let (of_target, machine) = (target_key(target).text(), host.machine.fingerprint());
    let (mut found, mut most, mut older) = (Vec::new(), 0, 0);
    for task in tasks {
        let place = RecordPlace {
            task: &task.key,
            target: &of_target,
            machine: &machine,
        };
        let known = times(store, &place, a.model.tolerance)?;
        most = most.max(known.timed.len());
        older += known.other_toolchain;
        if known.timed.len() >= a.least_points {
            found.push((*task, spread_with_default(a, task, target, known.timed)?));
        }
    }
    if found.is_empty() {
        return Err(too_few(
            a,
            &format!("at most {most} timed candidates"),
            older,
        ));
    }
    Ok(found)
}

/// Some candidates of a task, spread over their times, and its default if that was timed.
fn spread_with_default(
    a: &Args,
    task: &Task,
    target: &Target,
    timed: Vec<TimedCandidate>,
) -> Result<Vec<TimedCandidate>> {
    let default = defaults(from_ref(task), target, a.model.accuracy())?;
    let is_default = |t: &TimedCandidate| t.candidate == default.candidates[0];
    let default = timed.iter().find(|t| is_default(t)).cloned();
    let mut chosen = spread(timed, a.points);
    if let Some(default) = default.filter(|_| !chosen.iter().any(is_default)) {
        chosen.truncate(a.points.saturating_sub(1));
        chosen.push(default);
    }
    Ok(chosen)
}

/// That there is too little to fit on, and how to get more. `older` times are of code that another
/// version of the program compiled.
fn too_few(a: &Args, known: &str, older: usize) -> Error {
    let older = match older {
        0 => String::new(),
        n => format!(" ({n} more times are of another version of the compiler and do not count)"),
    };
    let threads = a
        .model
        .threads
        .map_or(String::new(), |n| format!(" --threads {n}"));
    Error::new(format!(
        "too few records of this machine: the tasks of {} have {known} each{older}, and a task needs {}",
        a.model.model, a.least_points
    ))
    .help(format!(
        "measure more first with `tunesmith tune '{}'{threads} --time 5m`, name the models that were \
         tuned, or lower --least-points",
        a.model.model
    ))
}

/// A task with what was read of its candidates, and their times.
struct ReadTask<'t> {
    task: &'t Task,
    points: Vec<(TimedCandidate, analysis::Features)>,
}

/// The points of all tasks as `study rank --json` has them.
fn points(a: &Args, plans: &[Plan], read: &[ReadTask<'_>], target: &Target) -> Result<Value> {
    let mut tasks = Vec::new();
    for r in read {
        let default = defaults(from_ref(r.task), target, a.model.accuracy())?;
        let is_default = |p: &(TimedCandidate, _)| p.0.candidate == default.candidates[0];
        let plan = plans
            .iter()
            .find(|p| p.tasks.iter().any(|t| t.key == r.task.key));
        let from_memory = plan.is_some_and(|p| p.bytes_between_uses() > target.llc_bytes());
        let points = r.points.iter().map(|(t, features)| {
            json!({"sketch": t.candidate.algorithm, "ns": t.ns, "features": features})
        });
        tasks.push(json!({"task": {
            "program": plan.map(|p| &p.name),
            "task": r.task.title(),
            "kind": r.task.program.name,
            "default": r.points.iter().position(is_default),
            "from_memory": from_memory,
            "points": points.collect::<Vec<_>>(),
        }}));
    }
    Ok(json!({ "tasks": tasks }))
}

/// Has builders read the candidates of all tasks.
fn read<'t>(
    host: &Host,
    target: &Target,
    cpu: &str,
    timed: &[(&'t Task, Vec<TimedCandidate>)],
    observer: &mut dyn Observer,
) -> Result<Vec<ReadTask<'t>>> {
    let of_task = |(task, all): &'_ (&'t Task, Vec<TimedCandidate>)| {
        let one = |t: &TimedCandidate| (*task, t.candidate.clone());
        all.iter().map(one).collect::<Vec<_>>()
    };
    let candidates: Vec<_> = timed.iter().flat_map(of_task).collect();
    let mut builders = Builders::new(&host.workers, host.machine.cpus)?;
    let asked = ReadOptions {
        cpu: cpu.into(),
        levels: Some(Caches::of(cpu, target).levels()),
        ..ReadOptions::default()
    };
    let features = builders.read_all(&candidates, target, &asked, &mut |done| {
        let what = format!("{done} of {} candidates read", candidates.len());
        observer.part(done as f64 / candidates.len() as f64, &what);
    });
    let mut features = features.into_iter();
    let tasks = timed.iter().map(|(task, all)| ReadTask {
        task,
        points: all
            .iter()
            .zip(features.by_ref())
            .filter_map(|(t, r)| Some((t.clone(), r?.features)))
            .collect(),
    });
    Ok(tasks.collect())
}

/// The tasks of which enough candidates could be read.
fn enough(a: &Args, read: Vec<ReadTask<'_>>) -> Result<(Vec<CountedTask>, Vec<Judged>)> {
    let (mut counted, mut judged) = (Vec::new(), Vec::new());
    let most = read.iter().map(|r| r.points.len()).max().unwrap_or(0);
    for r in read {
        if r.points.len() < a.least_points.min(a.points) {
            continue;
        }
        counted.push(CountedTask {
            task: r.task.title(),
            key: r.task.key.clone(),
            points: r.points.len(),
        });
        judged.push(Judged::new(
            r.task.title(),
            r.task.program.name.clone(),
            r.points.into_iter().map(|(t, f)| (f, t.ns)).collect(),
        ));
    }
    if judged.is_empty() {
        let known = format!("at most {most} timed candidates that can still be built");
        return Err(too_few(a, &known, 0));
    }
    Ok((counted, judged))
}

fn reached(s: &Scored) -> Reached {
    Reached {
        spearman: s.mean(|j| j.spearman),
        ratio_10: s.mean(|j| j.ratio_10),
        first: s.geometric(|j| j.first),
    }
}

fn file(c: &Calibration, host: &Host) -> Rates {
    Rates {
        machine: host.machine.fingerprint(),
        machine_name: host.machine.description(),
        score_cpu: c.score_cpu.clone(),
        threads: c.threads,
        tasks: c.tasks.len(),
        points: c.points,
        fitted_unix_ms: unix_ms(),
        reached: c.fitted,
        rates: c.fitted_rates,
    }
}

fn print(c: &Calibration, a: &Args, own_path: &str, own_is_there: bool) -> Result<()> {
    let mut t = Table::new(&[
        "rates",
        "tasks",
        "points",
        "Spearman",
        "ratio of 10",
        "first",
    ]);
    let mut row = |name: &str, r: &Reached| {
        t.row(vec![
            name.into(),
            c.tasks.len().to_string(),
            c.points.to_string(),
            format!("{:.3}", r.spearman),
            format!("{:.3}", r.ratio_10),
            format!("{:.2}", r.first),
        ]);
    };
    row("usual", &c.usual);
    if let Some(fitted) = &c.fitted {
        row("fitted, each task left out", fitted);
    }
    t.print()?;
    super::print_line(
        "Means over tasks; first: a geometric mean. Ratio: times of the ten fastest candidates over those of the ten of least score. First: the candidate of least score over the fastest.",
    )?;
    print_rates(&c.usual_rates, &c.fitted_rates)?;
    super::print_line(&verdict(c, a.force))?;
    match &c.written {
        Some(path) if path == own_path => super::print_line(&format!(
            "written to {path}: every command that reads for {} uses them from now on",
            c.score_cpu
        )),
        Some(path) => {
            super::print_line(&format!("written to {path}: use them with --rates {path}"))
        }
        None if own_is_there => super::print_line(&format!(
            "nothing was written; {own_path}, which an earlier `calibrate` wrote, stays in use"
        )),
        None => super::print_line("nothing was written"),
    }
}

/// Which rates are kept, and why.
fn verdict(c: &Calibration, force: bool) -> String {
    match (c.no_worse, c.fitted) {
        (true, _) => "kept the fitted rates: they rank the tasks that were left out no worse".into(),
        (false, _) if force => "kept the fitted rates, as --force says".into(),
        (false, None) => "kept the usual rates: all candidates are of one task, so nothing judges the fit. \
             Name more tuned models, or write the fitted rates with --force"
            .into(),
        _ => "kept the usual rates: the fitted ones rank the tasks that were left out worse. Tune more \
             tasks, or write the fitted rates with --force"
            .into(),
    }
}

/// Both rates, count by count.
fn print_rates(usual: &Score, fitted: &Score) -> Result<()> {
    let mut t = Table::new(&["cycles of", "usual", "fitted"]);
    let names: [&str; Score::RATES] = [
        "a cycle of repeated blocks",
        "a cycle of blocks alone",
        "a load",
        "a spill in a loop",
        "a line into the first-level cache",
        "a line into the second-level cache",
        "a line into the last-level cache",
        "a page",
        "a visit of a page",
        "a line stored into a crowded set",
        "waking threads",
    ];
    let shown = |rate: f64| format!("{rate:.4}");
    for ((name, usual), fitted) in names.into_iter().zip(usual.all()).zip(fitted.all()) {
        t.row(vec![name.into(), shown(usual), shown(fitted)]);
    }
    t.print()
}
