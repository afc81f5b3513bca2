//! `study static`: static scores, judged on recorded times.

use crate::cli::table::Table;
use crate::cli::{print_json, print_line};
use serde_json::{Value, json};
use std::path::PathBuf;
use study::doctor::Measured;
use study::scores::{GHZ, Judged, Scored, by_limits, fitted, judge, read, saved_time_ratios};
use tune::ceiling::ceiling;
use tune::machine::Machine;
use tune::threads::ThreadSettings;
use tune::{Error, Result};

/// How well static scores rank the points that `study rank --json` measured: the default score, the
/// same without one of its parts, and scores fitted on all other tasks
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study rank 'op:matmul(m=512,n=512,k=512)' 'op:conv2d(c=64,h=28,w=28,k=96)' --json > points.json\n  tunesmith study static points.json --tasks"
)]
pub struct Args {
    /// Files of `study rank --json`
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also print the default score's figures of every task
    #[arg(long)]
    tasks: bool,
    /// What `doctor --json` printed on the machine of the points [default: measure this machine, if no file
    /// names another one]
    #[arg(long, value_name = "FILE", conflicts_with = "learn")]
    machine: Option<PathBuf>,
    /// Judge nothing, but write trees that predict times over the default's, learned from all tasks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tasks", "json"])]
    learn: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: &Args) -> Result<()> {
    let mut tasks: Vec<Judged> = Vec::new();
    for path in &a.files {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
        tasks.extend(read(&text)?);
    }
    if let Some(path) = &a.learn {
        let written = std::fs::write(path, saved_time_ratios(&tasks)?);
        return written.map_err(|e| Error::new(format!("{}: {e}", path.display())));
    }
    tasks.retain(Judged::has_enough);
    let mut scores = judge(&tasks)?;
    let limits = limits(a, &tasks)?;
    if let Limited::By(machine, _) = &limits {
        scores.extend(by_limits(&machine.limits, &tasks));
    }
    if a.json {
        let kinds = scores.first().map(Scored::by_kind).unwrap_or_default();
        let kinds: Vec<Value> = kinds.iter().map(means).collect();
        let overall: Vec<Value> = scores.iter().map(means).collect();
        return print_json(&json!({
            "study": {"kind": "judged", "limits": limits.text()}, "means": overall, "kinds": kinds, "scores": scores,
        }));
    }
    table("score", &scores)?;
    if let Some(default) = scores.first() {
        table("kind, default score", &default.by_kind())?;
    }
    print_line(
        "Means over tasks; of first and gain geometric ones. Failed points rank with the slowest. Ratio: times of the fastest points over those of the points of least score. First: the point of least score over the best. Until 2%: points in the order of their scores until one is within 2% of the best. Gain: the default over what `compile --choose static` would take of these points.",
    )?;
    print_line(&limits.text())?;
    let rates = fitted(&tasks, GHZ)?;
    print_line(&format!(
        "Rates fitted on all tasks, in cycles at {GHZ} GHz: {rates:?}"
    ))?;
    match (a.tasks, scores.first()) {
        (true, Some(default)) => of_tasks(default),
        _ => Ok(()),
    }
}

/// Whose limits a score is made of.
enum Limited {
    /// A machine's, and whether the points are known to be of it.
    By(Measured, &'static str),
    /// The points are of this machine instead.
    Other(String),
}

impl Limited {
    fn text(&self) -> String {
        match self {
            Limited::By(m, whose) => format!(
                "Doctor's rates are of {} ({whose}): a cycle takes {:.3} ns, a line from each level behind \
                 a cache {:.2}, {:.2} and {:.2} ns.",
                m.name,
                m.limits.cycle_ns,
                m.limits.line_ns[0],
                m.limits.line_ns[1],
                m.limits.line_ns[2]
            ),
            Limited::Other(machine) => format!(
                "No score has doctor's rates, as the points are of another machine ({machine}): give \
                 what `doctor --json` prints there with --machine."
            ),
        }
    }
}

/// The limits of the machine that is given, or of this one if no points are known to be of another.
fn limits(a: &Args, tasks: &[Judged]) -> Result<Limited> {
    if let Some(path) = &a.machine {
        let of_file = |e: String| Error::new(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| of_file(e.to_string()))?;
        return Ok(Limited::By(Measured::read(&text)?, "the file given"));
    }
    let here = Machine::host();
    let description = here.description();
    let other = tasks.iter().filter_map(|t| t.machine.as_ref());
    if let Some(other) = other.clone().find(|m| **m != description) {
        return Ok(Limited::Other(other.clone()));
    }
    let whose = match tasks.iter().all(|t| t.machine.is_some()) {
        true => "this machine, as the points are",
        false => "this machine; some points do not name theirs",
    };
    let settings = ThreadSettings::from_environment()?;
    let mut ceilings = vec![ceiling(&here, 1, &settings)?];
    if here.cpus > 1 {
        ceilings.push(ceiling(&here, here.cpus, &settings)?);
    }
    Ok(Limited::By(Measured::here(&here, &ceilings)?, whose))
}

/// A score's means over its tasks.
fn means(s: &Scored) -> Value {
    json!({
        "name": s.score,
        "tasks": s.tasks.len(),
        "spearman": s.mean(|j| j.spearman),
        "ratio_10": s.mean(|j| j.ratio_10),
        "ratio_50": s.mean(|j| j.ratio_50),
        "until_near": s.mean(|j| j.until_near as f64),
        "share_within_5_percent": s.within_5() as f64 / s.tasks.len().max(1) as f64,
    })
}

/// A row a score, whose name is under `title`.
fn table(title: &str, scores: &[Scored]) -> Result<()> {
    let mut t = Table::new(&[
        title,
        "tasks",
        "Spearman",
        "ratio of 10",
        "ratio of 50",
        "best of 10 within 5%",
        "first",
        "until 2%",
        "gain",
    ]);
    for s in scores {
        t.row(row(s));
    }
    t.print()
}

fn row(s: &Scored) -> Vec<String> {
    vec![
        s.score.clone(),
        s.tasks.len().to_string(),
        format!("{:.2}", s.mean(|j| j.spearman)),
        format!("{:.3}", s.mean(|j| j.ratio_10)),
        format!("{:.3}", s.mean(|j| j.ratio_50)),
        format!("{} of {}", s.within_5(), s.tasks.len()),
        format!("{:.2}", s.geometric(|j| j.first)),
        format!("{:.1}", s.mean(|j| j.until_near as f64)),
        format!("{:.3}", s.geometric(|j| j.gain.unwrap_or(1.0))),
    ]
}

fn of_tasks(s: &Scored) -> Result<()> {
    let mut t = Table::new(&[
        "task",
        "points",
        "Spearman",
        "ratio of 10",
        "ratio of 50",
        "best of 10",
        "first",
        "until 2%",
        "gain",
    ]);
    for j in &s.tasks {
        t.row(vec![
            j.program.clone(),
            j.points.to_string(),
            format!("{:.2}", j.spearman),
            format!("{:.2}", j.ratio_10),
            format!("{:.2}", j.ratio_50),
            format!("{:.2}", j.best_of_10),
            format!("{:.2}", j.first),
            j.until_near.to_string(),
            j.gain.map_or("-".into(), |g| format!("{g:.2}")),
        ]);
    }
    t.print()
}
