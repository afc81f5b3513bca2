//! `study simulate`: predictors of scores, judged on simulated and timed samples.

use crate::cli::output::{Output, PICTURE};
use crate::cli::parse::{parse_count, parse_duration};
use crate::cli::table::Table;
use crate::cli::{print_json, print_line};
use ::simulate::{FeatureSet, METHODS, Method, Metrics, Sample};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use study::plots::predicted_orders;
use study::predictors::{
    BoardTiming, Figures, Options, Parallel, STATIC_SCORE, TIMED_AGAIN, compare, parallel,
};
use tune::{Error, Result};

/// How well predictors of scores order samples that were simulated and timed
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study simulate samples.jsonl --plot orders.svg\n  tunesmith study simulate samples.jsonl --leave-out 'conv2d(1,28,28,256)' --predictors gaussian-process\n  tunesmith study simulate samples.jsonl --features reading --window 64 --json"
)]
pub struct Args {
    /// Files of samples, one JSON object a line
    #[arg(required = true, value_name = "SAMPLES.jsonl")]
    files: Vec<PathBuf>,
    /// Predictors to compare
    #[arg(long, value_delimiter = ',', value_parser = METHODS.map(|m| m.name),
        default_values = METHODS.map(|m| m.name))]
    predictors: Vec<String>,
    /// counts: what the simulator counted; score: the static score as well; reading: and all else that reading the code
    /// tells
    #[arg(long, value_parser = FeatureSet::ALL.map(FeatureSet::name), default_value = FeatureSet::Counts.name())]
    features: String,
    /// Judge this group alone, by predictors that learned from it and by others that did not
    #[arg(long, value_name = "GROUP")]
    leave_out: Option<String>,
    /// Also normalise by the first so many samples of a test, and by all of them, as if the group were new
    #[arg(long, value_name = "SAMPLES", value_parser = parse_count::<usize>)]
    window: Option<usize>,
    /// Random splits of each group into samples to learn from and a fifth to test
    #[arg(long, default_value_t = 10, value_parser = parse_count::<u64>)]
    splits: u64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Pause of a board before each run of a candidate, for the number of simulators that replace one
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    cooldown: Duration,
    /// Runs of each candidate on a board
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, default_value_t = 15)]
    runs: u32,
    /// Draw the measured times in predicted order
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: &Args) -> Result<()> {
    let plot = match &a.plot {
        Some(path) => Some(Output::new(path, PICTURE, a.files.clone())?),
        None => None,
    };
    let mut samples = Vec::new();
    for path in &a.files {
        let read = Sample::read_file(path).map_err(|e| {
            Error::new(e.to_string()).help("give files that `tunesmith simulate collect` wrote")
        })?;
        samples.extend(read);
    }
    let options = Options {
        methods: a
            .predictors
            .iter()
            .filter_map(|n| Method::named(n))
            .collect(),
        features: FeatureSet::named(&a.features).expect("the command line knows the names"),
        splits: a.splits,
        window: a.window,
        leave_out: a.leave_out.clone(),
        seed: a.seed,
    };
    let figures = compare(&samples, &options).map_err(|e| Error::new(e.to_string()))?;
    if let Some(plot) = plot {
        plot.write_bytes(predicted_orders(&figures)?.as_bytes())?;
    }
    let board = BoardTiming {
        cooldown_s: a.cooldown.as_secs_f64(),
        runs: a.runs,
    };
    let parallel = parallel(&samples, board);
    if a.json {
        let study = json!({"kind": "predicted", "features": a.features, "splits": a.splits, "seed": a.seed});
        return print_json(&json!({"study": study, "figures": figures, "simulators": parallel}));
    }
    let mut rest = figures.as_slice();
    while let Some(first) = rest.first() {
        let same =
            |f: &&Figures| (&f.case.cpu, &f.case.kind) == (&first.case.cpu, &first.case.kind);
        let (own, others) = rest.split_at(rest.iter().take_while(same).count());
        print(own)?;
        rest = others;
    }
    print_line(
        "Medians over splits. E_top1: how much faster the fastest sample is than the one of least score. R_top1: the part of the order that has the fastest sample. Q_low, Q_high: the mean drop to the next sample, in each half of the order.",
    )?;
    print_parallel(&parallel)
}

/// How many simulators replace a board, where samples have both times.
fn print_parallel(all: &[Parallel]) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let mut t = Table::new(&[
        "group",
        "processor",
        "samples",
        "simulation s",
        "run s",
        "K",
    ]);
    for p in all {
        t.row(vec![
            p.group.clone(),
            p.cpu.clone(),
            p.samples.to_string(),
            format!("{:.3}", p.simulation_s),
            format!("{:.6}", p.measured_s),
            p.simulators.to_string(),
        ]);
    }
    t.print()?;
    print_line(
        "K: simulators side by side that take no longer for a candidate than one board with its pauses (--cooldown, --runs)",
    )
}

/// The column of the number of samples, which a mean over groups lacks.
const TESTED: usize = 4;

/// The table of one processor and type of kernel: all groups, and means over groups.
fn print(figures: &[Figures]) -> Result<()> {
    let Some(first) = figures.first().map(|f| &f.case) else {
        return Ok(());
    };
    print_line(&format!("{} on {}", first.kind, first.cpu))?;
    let mut groups: Vec<&str> = figures.iter().map(|f| f.case.group.as_str()).collect();
    groups.dedup();
    for (number, group) in (1..).zip(&groups) {
        print_line(&format!("{number}: {group}"))?;
    }
    let mut t = Table::new(&[
        "group",
        "predictor",
        "learned from the group",
        "means of",
        "tested",
        "E_top1",
        "R_top1",
        "Q_low",
        "Q_high",
    ]);
    for f in figures {
        let number = groups.iter().position(|g| *g == f.case.group);
        let number = number.map_or("-".into(), |i| (i + 1).to_string());
        t.row(row(number, f, &f.median));
    }
    if groups.len() > 1 {
        for f in figures.iter().filter(|f| f.case.group == first.group) {
            let key = |f: &Figures| (f.case.method.clone(), f.case.included, f.case.means);
            let all: Vec<Metrics> = figures
                .iter()
                .filter(|g| key(g) == key(f))
                .map(|g| g.median)
                .collect();
            if let Some(mean) = Metrics::mean(&all) {
                let mut cells = row("mean".into(), f, &mean);
                cells[TESTED] = "-".into();
                t.row(cells);
            }
        }
    }
    t.print()
}

fn row(group: String, f: &Figures, of: &Metrics) -> Vec<String> {
    let learned = match (f.case.method.as_str(), f.case.included) {
        (STATIC_SCORE | TIMED_AGAIN, _) => "-",
        (_, true) => "yes",
        (_, false) => "no",
    };
    let percent = |v: f64| format!("{v:.2}%");
    vec![
        group,
        f.case.method.clone(),
        learned.into(),
        f.case.means.to_string(),
        f.tested.to_string(),
        percent(of.e_top1),
        percent(of.r_top1),
        percent(of.q_low),
        percent(of.q_high),
    ]
}
