//! `space`: how large the spaces of a model's tasks are, and what random points of them
//! tell. `tasks` lists sizes at once; this command draws points and takes seconds.

use super::model_args::ModelArgs;
use super::parse::parse_count;
use super::table::{Table, count, counted};
use super::task_args::pick;
use crate::space_facts::{Samples, SketchFacts, SpaceFacts};
use serde::Serialize;
use std::process::ExitCode;
use tune::Result;
use tune::machine::Machine;

/// Print facts about search spaces: size, share of legal points, distinct kernels, time
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith space resnet18 --threads 1\n  tunesmith space 'op:conv1d(c=80,w=3000,k=384,s=3,pad=1)' --space rules --samples 200\n  tunesmith space model.onnx --task conv2d --json"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Which task: its number, the start of its key, or a part of its title [default: all tasks]
    #[arg(long)]
    task: Option<String>,
    /// Random points of each sketch
    #[arg(long, default_value_t = 50, value_parser = parse_count::<usize>)]
    samples: usize,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    index: usize,
    task: String,
    key: String,
    #[serde(flatten)]
    space: SpaceFacts,
}

#[derive(Serialize)]
struct Report {
    model: String,
    target: String,
    threads: u32,
    accuracy: String,
    space: String,
    samples: usize,
    seed: u64,
    tasks: Vec<Row>,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let machine = Machine::host();
    let target = a.model.resolve_target(&machine)?;
    let source = a.model.source()?;
    let plan = source.plan_for(&machine, &target, a.model.accuracy(), None)?;
    let wanted: Vec<usize> = match &a.task {
        Some(text) => vec![pick(&plan, text)?],
        None => (0..plan.tasks.len()).collect(),
    };
    let samples = Samples {
        count: a.samples,
        seed: a.seed,
    };
    let allowed = a.model.requirements().allowed();
    let row = |index: usize| {
        let task = &plan.tasks[index];
        Row {
            index,
            task: task.title(),
            key: task.key.clone(),
            space: SpaceFacts::of(task, &target, allowed, samples),
        }
    };
    let report = Report {
        model: source.name.clone(),
        target: target.name().into(),
        threads: target.threads(),
        accuracy: a.model.accuracy().to_string(),
        space: a.model.space.to_string(),
        samples: a.samples,
        seed: a.seed,
        tasks: wanted.into_iter().map(row).collect(),
    };
    match a.json {
        true => super::print_json(&report)?,
        false => {
            super::print_text(&rows(&report))?;
            super::print_line(&footer(&report))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each task, and below it one for each sketch.
fn rows(r: &Report) -> String {
    let mut t = Table::new(&[
        "task and sketches",
        "points",
        "in limits",
        "drawn",
        "differ",
        "legal",
        "kernels",
        "draw us",
        "make ms",
        "write ms",
    ])
    .dispensable(&["write ms", "make ms", "draw us", "in limits", "drawn"]);
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let sketch = |s: &SketchFacts| {
        vec![
            format!("     {}", s.name),
            count(s.points),
            percent(s.within_limits),
            s.drawn.to_string(),
            s.distinct_points.to_string(),
            percent(s.legal),
            s.kernels.to_string(),
            format!("{:.1}", s.draw_us),
            format!("{:.2}", s.make_ms),
            String::new(),
        ]
    };
    for row in &r.tasks {
        let mut line = vec![
            format!("{:>2} {}", row.index, row.task),
            count(row.space.points),
        ];
        line.resize(9, String::new());
        line.push(format!("{:.1}", row.space.write_ms));
        t.row(line);
        for s in &row.space.sketches {
            t.row(sketch(s));
        }
    }
    let mut text = t.text();
    for row in &r.tasks {
        let sketches = row.space.sketches.iter();
        let illegal = sketches.flat_map(|s| s.illegal.iter().map(|why| (&s.name, why)));
        for (name, why) in illegal {
            text += &format!("task {}, {name}, illegal: {why}\n", row.index);
        }
        for why in &row.space.refused {
            text += &format!("task {}, refused: {why}\n", row.index);
        }
    }
    text
}

/// What the facts are of.
fn footer(r: &Report) -> String {
    format!(
        "\n{}: {} and {}, accuracy {}, space {}; {} random points of each sketch, seed {}",
        r.model,
        r.target,
        counted(r.threads, "thread"),
        r.accuracy,
        r.space,
        r.samples,
        r.seed
    )
}
