//! `simulate collect`: candidates are simulated, and timed here or on a board. Samples are written task by task, so
//! what a stopped run has measured is kept.

use super::board;
use super::model_args::{check_runs_here, say};
use super::parse::{parse_count, parse_time};
use super::progress::Progress;
use super::signals;
use super::simulate::named;
use super::simulator_args::ExternalArgs;
use super::ssh::{Board, BoardArgs};
use super::study::points::{ALONE, workloads};
use super::table::Table;
use crate::titles::{fitted, short};
use build::ReadOptions;
use ir::Target;
use search::{Accuracy, Allowed, SpaceKind};
use simulate::{Sample, Statistics};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::slice::from_ref;
use std::time::Duration;
use study::{MeasuredPoint, MeasuredTask, PointOptions, Points, Workload};
use tune::known::Requirements;
use tune::scorer::Simulator;
use tune::{Error, Host, Result, Stop};

/// Width of a task in a table.
const TITLE: usize = 48;

/// Simulate candidates of operators, and time them where this machine runs the target; one JSON object a line
#[derive(clap::Args)]
pub struct CollectArgs {
    /// Built-in models (see `models`), ONNX files, or operators as op:NAME(argument=value,...); of an
    /// operator the task with most work
    #[arg(required = true)]
    models: Vec<String>,
    /// Candidates of each task that are different kernels: half of them random, half proposed by
    /// evolutionary search on the static score
    #[arg(long, default_value_t = 100, value_parser = parse_count::<usize>)]
    points: usize,
    /// Instruction set of the kernels, such as x86-avx2 or aarch64-neon [default: this machine's]
    #[arg(long)]
    target: Option<String>,
    /// The processor whose caches are simulated, such as ryzen-5800x or cortex-a72 [default: one with the target's]
    #[arg(long, value_name = "NAME")]
    cpu: Option<String>,
    #[command(flatten)]
    external: ExternalArgs,
    #[command(flatten)]
    board: BoardArgs,
    /// Simulate only
    #[arg(long, conflicts_with = "board")]
    no_time: bool,
    /// Time that a kernel may take to be measured on this machine [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    limit: Option<Duration>,
    /// How often this machine times each candidate: all of them in turn, then all again, and up to four times as often those whose two least times differ by over 2%. The least time counts. Operands stay in the caches [default: 3]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize>)]
    rounds: Option<usize>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File of samples; samples are added to what it has
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Who proposes each half of the candidates.
const PROPOSERS: [&str; 2] = ["random", "evolutionary"];

/// Time of a kernel where `--limit` says nothing.
const LIMIT: Duration = Duration::from_secs(10);

/// Rounds where `--rounds` says nothing.
const ROUNDS: usize = 3;

/// What samples are made with.
struct Collecting<'a> {
    args: &'a CollectArgs,
    host: Host,
    target: Target,
    simulator: Simulator,
    /// Whether kernels are timed on this machine.
    timed: bool,
    stop: Stop,
}

pub fn collect(a: &CollectArgs) -> Result<ExitCode> {
    let stop = Stop::default();
    let host = super::host()?;
    let target = match &a.target {
        Some(name) => named(name)?,
        None => host.machine.target(1),
    };
    let timed = !a.no_time && !a.board.is_given() && check_runs_here(&target).is_ok();
    let of_timing = [
        ("--limit", a.limit.is_some()),
        ("--rounds", a.rounds.is_some()),
    ];
    if let Some((flag, _)) = of_timing.iter().find(|(_, given)| *given && !timed) {
        let why = format!("{flag} has no effect here: no kernel is timed on this machine");
        return Err(Error::new(why).help("leave it out; --board-limit is for kernels on a board"));
    }
    let cpu = a.cpu.as_deref();
    let external = a.external.simulator(cpu, None, &target)?;
    let simulator = match external {
        Some(external) => external,
        None => a.external.own(cpu, &target)?,
    };
    let mut progress = Progress::new("simulate", a.json);
    let speak = progress.speaker();
    let watched = signals::watch(stop.clone(), move || speak(board::STOPPING))?;
    let collecting = Collecting {
        host: Host {
            workers: host.workers.stopped_by(&stop),
            ..host
        },
        args: a,
        target,
        simulator,
        timed,
        stop,
    };
    let all = collecting.all(&mut progress);
    progress.finish();
    report(a, &all?)?;
    Ok(watched.exit_code())
}

impl Collecting<'_> {
    /// Writes the samples of all tasks, those of random candidates first.
    fn all(&self, progress: &mut Progress) -> Result<Vec<MeasuredTask>> {
        let a = self.args;
        let board = a.board.connect(&self.stop)?;
        let programs = workloads(&a.models, &self.target, Accuracy::Relaxed)?;
        let fail = |e: std::io::Error| {
            Error::new(format!("{}: {e}", a.out.display())).help("choose another file with --out")
        };
        let file = File::options().create(true).append(true).open(&a.out);
        let mut out = BufWriter::new(file.map_err(fail)?);
        let mut all = Vec::new();
        for (half, strategy) in PROPOSERS.into_iter().enumerate() {
            let options = self.options(half, strategy);
            for program in programs.iter().flat_map(each_task) {
                if options.points == 0 || self.stop.is_asked() {
                    break;
                }
                let mut points = Points {
                    host: &self.host,
                    target: &self.target,
                    options: &options,
                    observer: progress,
                };
                let Some(task) = self.task(&program, &mut points, board.as_ref())? else {
                    break;
                };
                let samples = task.points.iter();
                let samples = samples.filter_map(|p| sample(&task, p, &self.simulator, strategy));
                for sample in samples {
                    sample.write(&mut out).map_err(fail)?;
                }
                out.flush().map_err(fail)?;
                all.push(task);
            }
        }
        Ok(all)
    }

    /// The candidates that one of the proposers chooses.
    fn options(&self, half: usize, strategy: &'static str) -> PointOptions {
        PointOptions {
            points: (self.args.points + 1 - half) / 2,
            seed: self.args.seed + half as u64,
            allowed: Allowed {
                accuracy: Accuracy::Relaxed,
                space: SpaceKind::All,
            },
            strategy,
            known: BTreeMap::new(),
            timed: self.timed,
            rounds: self.args.rounds.unwrap_or(ROUNDS),
            as_executables: true,
            tolerance: Requirements::of_knobs().tolerance,
            limit: self.args.limit.unwrap_or(LIMIT),
            measure: ALONE,
            read: Some(ReadOptions {
                cpu: llvm::scoring_cpu(&self.target),
                ..self.simulator.asks()
            }),
        }
    }

    /// Simulates and times candidates of one task. After a stop, candidates without a time are left out, and
    /// nothing may be left.
    fn task(
        &self,
        program: &Workload,
        points: &mut Points<'_>,
        board: Option<&Board<'_>>,
    ) -> Result<Option<MeasuredTask>> {
        let mut task = match points.measure(from_ref(program)) {
            Err(_) if self.stop.is_asked() => return Ok(None),
            measured => measured?.pop(),
        };
        if let (Some(task), Some(board)) = (&mut task, board) {
            board::time_points(board, &self.target, &mut task.points)?;
        }
        if let Some(task) = task.as_mut().filter(|_| self.stop.is_asked()) {
            task.points.retain(|p| p.ns.is_some());
        }
        Ok(task)
    }
}

/// A workload of each task, so that its samples are written before the next one begins.
fn each_task(program: &Workload) -> impl Iterator<Item = Workload> {
    program.tasks.iter().map(|task| Workload {
        name: program.name.clone(),
        tasks: vec![task.clone()],
    })
}

/// What was counted of a candidate.
fn counted(p: &MeasuredPoint) -> Option<&Statistics> {
    p.statistics.as_ref()?.as_ref().ok()
}

/// How many candidates of a task could not be simulated, and why the first one could not.
fn unsimulated(t: &MeasuredTask) -> Option<(usize, &str)> {
    let all = t.points.iter();
    let mut reasons = all.filter_map(|p| p.statistics.as_ref()?.as_ref().err());
    let first = reasons.next()?;
    Some((1 + reasons.count(), first))
}

fn sample(
    task: &MeasuredTask,
    p: &MeasuredPoint,
    simulator: &Simulator,
    proposed: &str,
) -> Option<Sample> {
    Some(Sample {
        group: match task.program.starts_with("op:") {
            true => task.program.clone(),
            false => task.task.clone(),
        },
        kind: task.kind.clone(),
        cpu: simulator.name.clone(),
        target: simulator.target.clone(),
        sketch: p.sketch.clone(),
        trace: p.trace.clone(),
        statistics: counted(p)?.clone(),
        code: p.features.clone(),
        time_ns: p.ns.map(|ns| ns as f64),
        rounds_ns: p.rounds_ns.iter().map(|ns| *ns as f64).collect(),
        simulation_ns: Some(p.read_ns as f64),
        proposed: proposed.into(),
    })
}

/// The share of accesses that was walked, and the relative margin of the weighted count: medians of the candidates
/// whose iterations were sampled.
fn sampled(t: &MeasuredTask) -> [Option<f64>; 2] {
    let all = t.points.iter().filter_map(counted);
    let of = |s: &Statistics| {
        let sampled = s.sampled.as_ref()?;
        let margin = sampled.margins.get(Simulator::WEIGHTED)?;
        Some((sampled.walked, margin / s.weighted().max(1.0)))
    };
    let (walked, margins): (Vec<f64>, Vec<f64>) = all.filter_map(of).unzip();
    [walked, margins].map(|mut all| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    })
}

fn report(a: &CollectArgs, all: &[MeasuredTask]) -> Result<()> {
    let of = |t: &MeasuredTask| {
        let simulated = t.points.iter().filter_map(counted).count();
        (t.points.len(), simulated, t.spread())
    };
    if a.json {
        let rows = all.iter().map(|t| {
            let (points, simulated, spread) = of(t);
            let [walked, margin] = sampled(t);
            let unsimulated = unsimulated(t).map(|(n, why)| serde_json::json!({ "candidates": n, "first": why }));
            serde_json::json!({ "task": t.task, "points": points, "simulated": simulated, "unsimulated": unsimulated, "walked": walked, "margin": margin, "times": spread })
        });
        let tasks: Vec<serde_json::Value> = rows.collect();
        return super::print_json(&serde_json::json!({ "samples": a.out, "tasks": tasks }));
    }
    let mut table = Table::new(&[
        "task",
        "candidates",
        "simulated",
        "walked",
        "margin",
        "timed",
        "best ms",
        "median ms",
        "worst ms",
    ])
    .dispensable(&["margin", "walked", "worst ms", "simulated"])
    .cut_by("task", TITLE, fitted);
    let titles: Vec<&str> = all.iter().map(|t| t.task.as_str()).collect();
    for (t, title) in all.iter().zip(short(&titles)) {
        let [walked, margin] = sampled(t);
        let percent = |v: Option<f64>| v.map_or("-".into(), |v| format!("{:.2}%", v * 100.0));
        let (points, simulated, spread) = of(t);
        let ms = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{:.3}", ns as f64 / 1e6));
        table.row(vec![
            title,
            points.to_string(),
            simulated.to_string(),
            percent(walked),
            percent(margin),
            spread.as_ref().map_or(0, |s| s.points).to_string(),
            ms(spread.as_ref().map(|s| s.best_ns)),
            ms(spread.as_ref().map(|s| s.median_ns)),
            ms(spread.as_ref().map(|s| s.worst_ns)),
        ]);
    }
    table.print()?;
    for t in all {
        if let Some((n, why)) = unsimulated(t) {
            let points = t.points.len();
            say(&format!(
                "warning: {}: {n} of {points} candidates could not be simulated and have no samples; the first: {why}",
                t.task
            ));
        }
    }
    if all.iter().any(|t| sampled(t)[0].is_some()) {
        super::print_line(
            "walked: the share of accesses that was simulated. margin: half of the interval that holds the weighted count with 95%, as far as sampled iterations differ, over the count. Both are medians of candidates.",
        )?;
    }
    super::print_line(&format!("samples are in {}", a.out.display()))
}
