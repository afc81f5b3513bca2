//! `tasks`: what a model is split into, and what is known of each part.

use super::machine_option::MachineOption;
use super::model_args::{ModelArgs, StoreArgs, warn};
use super::plan_facts::PlanFacts;
use super::screen::{self, wrapped};
use super::table::{Table, count, counted, ms};
use crate::titles::short;
use ir::Target;
use plan::Plan;
use tune::Result;
use tune::compile::{Warning, defaults};
use tune::known::{Lookup, Requirements};
use tune::machine::Machine;

use serde::Serialize;
use std::process::ExitCode;
use store::Store;

/// List the tasks of a model: sizes, search spaces, best known times
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith tasks resnet18 --threads 1\n  tunesmith tasks model.onnx --batch 1 --json"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    machine: MachineOption,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Sketch {
    name: String,
    decisions: usize,
    /// Points, legal or not.
    cardinality: u64,
}

#[derive(Serialize)]
struct Row {
    index: usize,
    task: String,
    key: String,
    op: String,
    uses: usize,
    gflop: f64,
    mbytes: f64,
    sketches: Vec<Sketch>,
    cardinality: u64,
    best_ms: Option<f64>,
    gflops_per_s: Option<f64>,
    algorithm: Option<String>,
}

#[derive(Serialize)]
struct TaskList {
    model: String,
    target: String,
    threads: u32,
    #[serde(flatten)]
    plan: PlanFacts,
    gflop: f64,
    /// Sum of the best known times over all steps; none while one is unknown.
    known_ms: Option<f64>,
    accuracy: String,
    space: String,
    /// Default schedules that are not the intended ones.
    warnings: Vec<Warning>,
    tasks: Vec<Row>,
}

fn rows(
    plan: &Plan,
    target: &Target,
    requirements: Requirements,
    machine: &str,
    store: &Store,
) -> Result<Vec<Row>> {
    let known = Lookup::new(store, plan, target, machine, requirements).best_of_all()?;
    let tasks = plan.tasks.iter().zip(plan.uses()).zip(known).enumerate();
    Ok(tasks
        .map(|(index, ((task, uses), best))| {
            let space = search::space(&task.program, target, requirements.allowed());
            let best_ns = best.as_ref().map(|k| k.ns);
            Row {
                index,
                task: task.title(),
                key: task.key.clone(),
                op: task.op.clone(),
                uses,
                gflop: task.flops / 1e9,
                mbytes: task.bytes / 1e6,
                cardinality: space.cardinality(),
                sketches: space
                    .sketches
                    .iter()
                    .map(|s| Sketch {
                        name: s.name.clone(),
                        decisions: s.decisions.len(),
                        cardinality: s.cardinality(),
                    })
                    .collect(),
                best_ms: best_ns.map(|ns| ns as f64 / 1e6),
                gflops_per_s: best_ns.map(|ns| task.flops / ns.max(1) as f64),
                algorithm: best.map(|k| k.candidate.algorithm),
            }
        })
        .collect())
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let machine = Machine::host();
    let target = a.model.resolve_target(&machine)?;
    let source = a.model.source()?;
    let store = a.store.read()?;
    let measured_on = a.machine.fingerprint(&store, &machine)?;
    let plan = source.plan_for(&machine, &target, a.model.accuracy(), Some(&store))?;
    let tasks = rows(&plan, &target, a.model.requirements(), &measured_on, &store)?;
    if tasks.iter().all(|t| t.best_ms.is_none()) {
        let lookup = Lookup::new(&store, &plan, &target, &measured_on, a.model.requirements());
        let elsewhere = lookup.elsewhere()?;
        a.machine
            .warn_of_defaults(&source.name, &target, &elsewhere);
    }
    let report = TaskList {
        model: source.name.clone(),
        target: target.name().into(),
        threads: target.threads(),
        plan: PlanFacts::new(&plan),
        // From 0, as the sum of nothing is -0.
        gflop: tasks
            .iter()
            .fold(0.0, |sum, t| sum + t.gflop * t.uses as f64),
        known_ms: tasks
            .iter()
            .try_fold(0.0, |sum, t| Some(sum + t.best_ms? * t.uses as f64)),
        accuracy: a.model.accuracy().to_string(),
        space: a.model.space.to_string(),
        warnings: defaults(&plan.tasks, &target, a.model.requirements().allowed())?.warnings,
        tasks,
    };
    warn(&report.warnings);
    if a.json {
        super::print_json(&report)?;
    } else {
        super::print_text(&text(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(r: &TaskList) -> String {
    let mut t = Table::new(&[
        "task",
        "key",
        "uses",
        "GFLOP",
        "MB",
        "sketches",
        "points",
        "best ms",
        "GFLOP/s",
        "algorithm",
    ])
    .dispensable(&[
        "sketches",
        "points",
        "key",
        "MB",
        "GFLOP/s",
        "GFLOP",
        "algorithm",
    ]);
    let titles: Vec<&str> = r.tasks.iter().map(|t| t.task.as_str()).collect();
    for (row, title) in r.tasks.iter().zip(short(&titles)) {
        t.row(vec![
            format!("{:>2} {title}", row.index),
            row.key.chars().take(8).collect(),
            row.uses.to_string(),
            format!("{:.4}", row.gflop),
            format!("{:.2}", row.mbytes),
            row.sketches.len().to_string(),
            count(row.cardinality),
            ms(row.best_ms),
            row.gflops_per_s
                .map_or("-".into(), |rate| format!("{rate:.1}")),
            row.algorithm.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    let measured = r.tasks.iter().filter(|t| t.best_ms.is_some()).count();
    let sum = r
        .known_ms
        .map_or(String::new(), |ms| format!(", {ms:.3} ms in all"));
    let summary = format!(
        "{}: {} tasks, {:.3} GFLOP; {measured} with a known time for {} and {}, accuracy {}{sum}",
        r.model,
        r.tasks.len(),
        r.gflop,
        r.target,
        counted(r.threads, "thread"),
        r.accuracy,
    );
    let width = screen::bound().unwrap_or(usize::MAX);
    format!(
        "{}\n{}\n{}\n",
        t.text(),
        wrapped(&summary, width, 2),
        wrapped(&r.plan.text(), width, 2)
    )
}
