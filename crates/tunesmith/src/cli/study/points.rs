//! `study rank` and `study spread`: random points of operators, measured, and known ones beside them.

use crate::cli::knobs::{default, doc};
use crate::cli::model_args::StoreArgs;
use crate::cli::parse::{parse_count, parse_threads, parse_time};
use crate::cli::progress::Progress;
use crate::cli::score_args::scoring_cpu;
use crate::cli::table::Table;
use crate::cli::{print_json, print_line};
use crate::titles::fitted;
use build::ReadOptions;
use ir::Target;
use measure::{Constants, Policy};
use onnx::ImportOptions;
use search::{Accuracy, Allowed, Candidate, SpaceKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use store::RecordPlace;
use study::{MODELS, MeasuredTask, PointOptions, Points, Prediction, Workload};
use tune::calibration::times;
use tune::known::Requirements;
use tune::machine::{Machine, target_key};
use tune::scored_caches::Caches;
use tune::{Error, MeasureSettings, Result};

#[derive(clap::Args)]
pub struct PointArgs {
    /// ONNX files, built-in models (see `models`), or operators as op:NAME(argument=value,...); of
    /// an operator the task with most work
    #[arg(required = true)]
    models: Vec<String>,
    /// Points of each task that are different kernels, the default with them
    #[arg(long, default_value_t = 100, value_parser = parse_count::<usize>)]
    points: usize,
    /// Threads of the kernels
    #[arg(long, default_value_t = 1, value_parser = parse_threads::<u32>)]
    threads: u32,
    #[arg(long, help = doc("accuracy"), value_name = "strict|relaxed", default_value = default("accuracy"))]
    accuracy: Accuracy,
    #[arg(long, help = doc("space"), value_name = "rules|templates|all", default_value = default("space"))]
    space: SpaceKind,
    #[arg(long, help = doc("run-limit"), value_parser = parse_time, default_value = default("run-limit"))]
    limit: Duration,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl PointArgs {
    fn allowed(&self) -> Allowed {
        Allowed {
            accuracy: self.accuracy,
            space: self.space,
        }
    }
}

/// Width of a task in a table.
const TITLE: usize = 72;

/// How well predicted costs rank the measured times of random points: the analytic cost of the
/// decisions, and the static score of the machine code
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study rank 'op:conv1d(c=80,w=3000,k=384,s=3,pad=1)' --points 200\n  tunesmith study rank resnet18 --space rules --top 5 --json"
)]
pub struct RankArgs {
    #[command(flatten)]
    points: PointArgs,
    /// Also measure so many of the best known candidates of each task, which the store has
    #[arg(long, value_name = "N", value_parser = parse_count::<usize>)]
    best: Option<usize>,
    #[command(flatten)]
    store: StoreArgs,
    /// Recall and ratio are of so many of the fastest points
    #[arg(long, default_value_t = 10, value_parser = parse_count::<usize>)]
    top: usize,
    /// The processor whose cycles the static score counts, by LLVM's name [default: this machine's]
    #[arg(long, value_name = "CPU")]
    score_cpu: Option<String>,
}

/// Best, median and worst of random points, and the place of the default among them
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study spread 'op:matmul(m=512,n=512,k=512)' --points 300\n  tunesmith study spread resnet18 --space templates --json"
)]
pub struct SpreadArgs {
    #[command(flatten)]
    points: PointArgs,
}

/// What is read of each candidate beside its time.
enum Read {
    Nothing,
    /// For this processor, or for the usual one.
    Code(Option<String>),
}

/// All tasks of models, and of operators the one with most work.
pub fn workloads(models: &[String], target: &Target, accuracy: Accuracy) -> Result<Vec<Workload>> {
    let mut programs = Vec::new();
    for name in models {
        let source = crate::source::load(name, &ImportOptions::default())?;
        let plan = source.plan(target, accuracy, &[])?;
        match name.starts_with("op:") {
            true => programs.extend(Workload::main_task(name, &plan)),
            false => programs.push(Workload::whole(name, &plan, target, accuracy)),
        }
    }
    Ok(programs)
}

/// Candidates are measured one at a time, with nothing beside them.
pub const ALONE: MeasureSettings = MeasureSettings {
    policy: Policy::Serial,
    batch: 1,
    devices: 1,
    core_set: Vec::new(),
    oversubscribe: 1,
    constants: Constants::PAPER,
    lose: 0.0,
};

/// Candidates that a store knows, by the keys of tasks.
type KnownCandidates = BTreeMap<String, Vec<Candidate>>;

/// The best known candidates of each task that were measured here and that the space may have.
fn known(a: &RankArgs) -> Result<KnownCandidates> {
    let Some(best) = a.best else {
        return match a.store.store {
            Some(_) => Err(
                Error::new("--store has no effect here: no records are taken")
                    .help("say with --best how many of each task to take"),
            ),
            None => Ok(BTreeMap::new()),
        };
    };
    let store = a.store.existing()?;
    let host = crate::cli::host()?;
    let target = host.machine.target(a.points.threads);
    let (of_target, machine) = (target_key(&target).text(), host.machine.fingerprint());
    let allowed = a.points.allowed();
    let mut found = BTreeMap::new();
    let programs = workloads(&a.points.models, &target, allowed.accuracy)?;
    for (task, _) in programs.iter().flat_map(|p| &p.tasks) {
        let place = RecordPlace {
            task: &task.key,
            target: &of_target,
            machine: &machine,
        };
        let sketches = search::space(&task.program, &target, allowed).sketches;
        let known = times(&store, &place, Requirements::of_knobs().tolerance)?.timed;
        let candidates = known.into_iter().map(|t| t.candidate);
        let candidates = candidates.filter(|c| {
            let in_space = sketches.iter().any(|s| s.name == c.algorithm);
            in_space && allowed.accuracy.allows(&c.trace)
        });
        found.insert(task.key.clone(), candidates.take(best).collect());
    }
    Ok(found)
}

fn measured(a: &PointArgs, read: Read, known: KnownCandidates) -> Result<Vec<MeasuredTask>> {
    let host = crate::cli::host()?;
    let target = host.machine.target(a.threads);
    let read = match read {
        Read::Nothing => None,
        Read::Code(asked) => {
            let cpu = scoring_cpu(&target, asked)?;
            Some(ReadOptions {
                levels: Some(Caches::of(&cpu, &target).levels()),
                cpu,
                ..ReadOptions::default()
            })
        }
    };
    let programs = workloads(&a.models, &target, a.accuracy)?;
    let options = PointOptions {
        points: a.points,
        seed: a.seed,
        allowed: a.allowed(),
        known,
        tolerance: Requirements::of_knobs().tolerance,
        limit: a.limit,
        strategy: "random",
        timed: true,
        rounds: 1,
        as_executables: false,
        measure: ALONE,
        read,
    };
    let mut progress = Progress::new("study", a.json);
    let mut points = Points {
        host: &host,
        target: &target,
        options: &options,
        observer: &mut progress,
    };
    let measured = points.measure(&programs);
    progress.finish();
    measured
}

/// What every study of points says of itself.
fn header(a: &PointArgs) -> Value {
    json!({
        "kind": "measured",
        "machine": Machine::host().description(),
        "points": a.points,
        "threads": a.threads,
        "accuracy": a.accuracy.name(),
        "space": a.space.name(),
        "seed": a.seed,
    })
}

fn ratio(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| format!("{v:.2}"))
}

fn ms(ns: u64) -> String {
    format!("{:.4}", ns as f64 / 1e6)
}

pub fn rank(a: &RankArgs) -> Result<()> {
    let measured = measured(&a.points, Read::Code(a.score_cpu.clone()), known(a)?)?;
    let predictions = |t: &MeasuredTask| -> Vec<Prediction> {
        let models = MODELS.into_iter();
        models.filter_map(|m| t.prediction(m, a.top)).collect()
    };
    if a.points.json {
        let one = |t: &MeasuredTask| json!({"task": t, "counts": t.counts(), "predictions": predictions(t)});
        let tasks: Vec<Value> = measured.iter().map(one).collect();
        return print_json(&json!({"study": header(&a.points), "tasks": tasks}));
    }
    let recall = format!("recall of {}", a.top);
    let of_top = format!("ratio of {}", a.top);
    let mut t = Table::new(&[
        "task", "drawn", "known", "failed", "model", "points", "Spearman", "Kendall", &recall,
        &of_top, "chosen",
    ])
    .dispensable(&["Kendall", "failed", "known", "drawn"])
    .cut_by("task", TITLE, fitted);
    for task in &measured {
        let title = format!("{}: {}", task.program, task.task);
        let c = task.counts();
        let counts = [c.drawn, c.known, c.failed].map(|n| n.to_string());
        let mut of_task = [vec![title], counts.to_vec()].concat();
        for p in predictions(task) {
            let mut row = std::mem::replace(&mut of_task, vec![String::new(); 4]);
            row.extend([
                p.model.into(),
                p.points.to_string(),
                ratio(p.spearman),
                ratio(p.kendall),
                ratio(p.recall),
                format!("{:.2}", p.ratio),
                format!("{:.2}x", p.chosen_over_best),
            ]);
            t.row(row);
        }
    }
    t.print()?;
    print_line(
        "Drawn: the default and random points. Known: candidates of the store. Failed: those of both that failed or exceeded --limit; they rank with the slowest. Points: those with a predicted cost. Ratio: the times of the fastest points over those of the points of least predicted cost. Chosen: the time of the point of least predicted cost over the least time.",
    )
}

pub fn spread(a: &SpreadArgs) -> Result<()> {
    let measured = measured(&a.points, Read::Nothing, BTreeMap::new())?;
    if a.points.json {
        let one = |t: &MeasuredTask| json!({"task": t, "spread": t.spread()});
        let tasks: Vec<Value> = measured.iter().map(one).collect();
        return print_json(&json!({"study": header(&a.points), "tasks": tasks}));
    }
    let columns = [
        "task",
        "points",
        "best ms",
        "median ms",
        "worst ms",
        "default ms",
        "place",
    ];
    let mut t = Table::new(&columns).cut_by("task", TITLE, fitted);
    for task in &measured {
        let title = format!("{}: {}", task.program, task.task);
        let mut row = vec![title];
        match task.spread() {
            Some(s) => row.extend([
                s.points.to_string(),
                ms(s.best_ns),
                ms(s.median_ns),
                ms(s.worst_ns),
                s.default_ns.map_or("-".into(), ms),
                s.default_place.map_or("-".into(), |p| p.to_string()),
            ]),
            None => row.push("0".into()),
        }
        t.row(row);
    }
    t.print()?;
    print_line("Place: of the default among all points, 1 for the fastest.")
}
