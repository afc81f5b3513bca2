//! `simulate`: what candidates do on a processor that is not here, and samples that predictors learn from.

use super::board;
use super::model_args::check_runs_here;
use super::parse::{parse_count, parse_time};
use super::progress::Progress;
use super::simulator_args::ExternalArgs;
use super::ssh::BoardArgs;
use super::study::points::{ALONE, workloads};
use super::table::Table;
use build::ReadOptions;
use ir::{Isa, Target};
use search::{Accuracy, Allowed, SpaceKind};
use simulate::{
    Emulator, EmulatorError, Method, Predictor, Sample, Statistics, TrainOptions, by_group,
    timed_once,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use store::STATIC;
use study::{MeasuredPoint, MeasuredTask, PointOptions, Points};
use tune::known::Requirements;
use tune::scorer::Simulator;
use tune::{Error, Observer, Result};

/// Simulate candidates, and collect what predictors of their times learn from
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith simulate collect 'op:conv2d(c=64,h=56,w=56,k=64)' --points 200 --out samples.jsonl\n  tunesmith simulate collect 'op:matmul(m=256,n=256,k=256)' --target aarch64-neon --cpu cortex-a72 --out a72.jsonl\n  tunesmith study simulate samples.jsonl"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Collect(CollectArgs),
    Train(TrainArgs),
    Import(board::ImportArgs),
    Count(CountArgs),
}

/// Simulate candidates of operators, and time them where this machine runs the target; one JSON object a line
#[derive(clap::Args)]
struct CollectArgs {
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
    /// Time that a kernel may take to be measured
    #[arg(long, value_parser = parse_time, default_value = "10s")]
    limit: Duration,
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

pub fn run(a: &Args) -> Result<ExitCode> {
    match &a.command {
        Command::Collect(c) => collect(c),
        Command::Train(t) => train(t),
        Command::Import(i) => board::import(i),
        Command::Count(c) => count(c),
    }
}

/// Learn from timed samples how fast candidates of a type of kernel are
#[derive(clap::Args)]
struct TrainArgs {
    /// Files that `simulate collect` wrote
    #[arg(required = true)]
    samples: Vec<PathBuf>,
    /// The type of kernel that is learned, where the files have several
    #[arg(long)]
    kind: Option<String>,
    /// The processor that is learned, where the files have several
    #[arg(long)]
    cpu: Option<String>,
    /// What learns
    #[arg(long, default_value = "trees", value_parser = simulate::METHODS.map(|m| m.name))]
    method: String,
    /// Learn from counts alone, without the static score
    #[arg(long)]
    counts: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File of the predictor, for `tune --evaluate simulate --predictor`
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Keeps the samples of one type of kernel, or of one processor: the one that is asked for, or the only one.
fn only(
    samples: &mut Vec<&Sample>,
    flag: &str,
    asked: Option<&str>,
    of: fn(&Sample) -> &String,
) -> Result<()> {
    let found: BTreeSet<&str> = samples.iter().map(|s| of(s).as_str()).collect();
    let names: Vec<&str> = found.into_iter().collect();
    let wanted = match (asked, &names[..]) {
        (_, []) => {
            return Err(Error::new("the files have no timed samples").help(
                "collect some with `tunesmith simulate collect` on a machine that runs the target",
            ));
        }
        (Some(asked), names) if names.contains(&asked) => asked.to_string(),
        (None, [one]) => (*one).to_string(),
        _ => {
            let why = format!("the samples are of {}", names.join(", "));
            return Err(Error::new(why).help(format!("give one of these with {flag}")));
        }
    };
    samples.retain(|s| *of(s) == wanted);
    Ok(())
}

fn train(a: &TrainArgs) -> Result<ExitCode> {
    let mut all = Vec::new();
    for path in &a.samples {
        let read = Sample::read_file(path).map_err(|e| {
            Error::new(e.to_string()).help("give files that `tunesmith simulate collect` wrote")
        })?;
        all.extend(read);
    }
    let mut chosen = timed_once(&all);
    only(&mut chosen, "--kind", a.kind.as_deref(), |s| &s.kind)?;
    only(&mut chosen, "--cpu", a.cpu.as_deref(), |s| &s.cpu)?;
    // One candidate has nothing to be compared with.
    let groups: BTreeMap<&str, usize> = by_group(&chosen)
        .into_iter()
        .map(|(g, all)| (g, all.len()))
        .collect();
    chosen.retain(|s| groups[&*s.group] > 1);
    let options = TrainOptions {
        method: Method::named(&a.method).expect("the command line knows the names"),
        static_score: !a.counts,
        seed: a.seed,
        validation: 0.2,
    };
    let made = Predictor::train(&chosen, options).map_err(|e| {
        Error::new(e.to_string()).help("collect timed samples with `tunesmith simulate collect`")
    })?;
    made.save(&a.out)
        .map_err(|e| Error::new(e.to_string()).help("choose another file with --out"))?;
    if a.json {
        super::print_json(made.about())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["group", "E_top1 %", "R_top1 %", "Q_low %", "Q_high %"]);
    for (group, m) in &made.about().validation {
        let percent = |v: f64| format!("{v:.2}");
        table.row(vec![
            group.clone(),
            percent(m.e_top1),
            percent(m.r_top1),
            percent(m.q_low),
            percent(m.q_high),
        ]);
    }
    table.print()?;
    super::print_line(&format!(
        "{} learned from {} samples of {} on {}; the table is of a fifth of them, by a learner that did not see these\nwritten to {}",
        a.method,
        chosen.len(),
        made.about().kind,
        made.about().cpu,
        a.out.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Who proposes each half of the candidates.
const PROPOSERS: [&str; 2] = ["random", "evolutionary"];

fn collect(a: &CollectArgs) -> Result<ExitCode> {
    let host = super::host()?;
    let target = match &a.target {
        Some(name) => named(name)?,
        None => host.machine.target(1),
    };
    let cpu = a.cpu.as_deref();
    let external = a.external.simulator(cpu, None, &target)?;
    let simulator = match external {
        Some(external) => external,
        None => Simulator {
            sample_iterations: a.external.sample_iterations(),
            ..Simulator::named(cpu, &target)?
        },
    };
    let board = a.board.connect()?;
    let programs = workloads(&a.models, &target, Accuracy::Relaxed)?;
    let fail = |e: std::io::Error| {
        Error::new(format!("{}: {e}", a.out.display())).help("choose another file with --out")
    };
    let file = File::options().create(true).append(true).open(&a.out);
    let mut out = BufWriter::new(file.map_err(fail)?);
    let mut progress = Progress::new("simulate", a.json);
    let mut all: Vec<MeasuredTask> = Vec::new();
    for (half, strategy) in PROPOSERS.into_iter().enumerate() {
        let points = (a.points + 1 - half) / 2;
        if points == 0 {
            continue;
        }
        let options = PointOptions {
            points,
            seed: a.seed + half as u64,
            allowed: Allowed {
                accuracy: Accuracy::Relaxed,
                space: SpaceKind::All,
            },
            strategy,
            known: BTreeMap::new(),
            timed: !a.no_time && board.is_none() && check_runs_here(&target).is_ok(),
            tolerance: Requirements::of_knobs().tolerance,
            limit: a.limit,
            measure: ALONE,
            read: Some(ReadOptions {
                cpu: llvm::scoring_cpu(&target),
                ..simulator.asks()
            }),
        };
        let observer: &mut dyn Observer = &mut progress;
        let mut points = Points {
            host: &host,
            target: &target,
            options: &options,
            observer,
        };
        for mut task in points.measure(&programs)? {
            if let Some(board) = &board {
                board::time_points(board, &target, &mut task.points)?;
            }
            for p in &task.points {
                if let Some(sample) = sample(&task, p, &simulator, strategy) {
                    sample.write(&mut out).map_err(fail)?;
                }
            }
            out.flush().map_err(fail)?;
            all.push(task);
        }
    }
    progress.finish();
    report(a, &all)?;
    Ok(ExitCode::SUCCESS)
}

/// The generic target of a name.
fn named(name: &str) -> Result<Target> {
    let isa = Isa::ALL.into_iter().find(|i| i.name() == name);
    let isa = isa.ok_or_else(|| {
        let names: Vec<&str> = Isa::ALL.iter().map(|i| i.name()).collect();
        Error::new(format!("there is no target `{name}`"))
            .help(format!("give one of {}", names.join(", ")))
    })?;
    Ok(Target::generic(isa))
}

/// Count what an executable of `tune --export-to` does, in QEMU with the plugin of the crate `simulate`
#[derive(clap::Args)]
struct CountArgs {
    executable: PathBuf,
    /// Instruction set of the executable, such as aarch64-neon
    #[arg(long)]
    target: String,
    /// The processor whose caches are simulated, such as cortex-a72 [default: one with the target's]
    #[arg(long, value_name = "NAME")]
    cpu: Option<String>,
    /// The plugin: `cargo build --release --package simulate --example qemu_counts` makes
    /// target/release/examples/libqemu_counts.so
    #[arg(long, value_name = "FILE")]
    plugin: PathBuf,
    /// Time that the executable may take
    #[arg(long, value_parser = parse_time, default_value = "60s")]
    limit: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn count(a: &CountArgs) -> Result<ExitCode> {
    let target = named(&a.target)?;
    let caches = Simulator::named(a.cpu.as_deref(), &target)?.caches;
    let fail = |e: EmulatorError| Error::new(format!("{}: {e}", a.executable.display()));
    let emulator = Emulator::find(&target).map_err(fail)?;
    let counted = emulator.counts(&a.plugin, &a.executable, &caches, a.limit);
    let counted = counted.map_err(fail)?;
    if a.json {
        super::print_json(&counted)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["count", "number"]);
    for (name, number) in counted.named() {
        table.row(vec![name, format!("{number:.0}")]);
    }
    table.print()?;
    Ok(ExitCode::SUCCESS)
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
        sketch: p.sketch.clone(),
        trace: p.trace.clone(),
        statistics: p.statistics.clone()?,
        static_score: p.predicted.get(STATIC).copied(),
        time_ns: p.ns.map(|ns| ns as f64),
        simulation_ns: Some(p.read_ns as f64),
        proposed: proposed.into(),
    })
}

/// The share of accesses that was walked, and the relative margin of the weighted count: medians of the candidates
/// whose iterations were sampled.
fn sampled(t: &MeasuredTask) -> [Option<f64>; 2] {
    let all = t.points.iter().filter_map(|p| p.statistics.as_ref());
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
        let simulated = t.points.iter().filter(|p| p.statistics.is_some()).count();
        (t.points.len(), simulated, t.spread())
    };
    if a.json {
        let rows = all.iter().map(|t| {
            let (points, simulated, spread) = of(t);
            let [walked, margin] = sampled(t);
            serde_json::json!({ "task": t.task, "points": points, "simulated": simulated, "walked": walked, "margin": margin, "times": spread })
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
    ]);
    for t in all {
        let [walked, margin] = sampled(t);
        let percent = |v: Option<f64>| v.map_or("-".into(), |v| format!("{:.2}%", v * 100.0));
        let (points, simulated, spread) = of(t);
        let ms = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{:.3}", ns as f64 / 1e6));
        table.row(vec![
            t.task.clone(),
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
    if a.external.sample_iterations().is_some() {
        super::print_line(
            "walked: the share of accesses that was simulated. margin: half of the interval that holds the weighted count with 95%, as far as sampled iterations differ, over the count. Both are medians of candidates.",
        )?;
    }
    super::print_line(&format!("samples are in {}", a.out.display()))
}
