//! `bench`: the latency distribution of a compiled model.

use super::model_args::parse_duration;
use super::table::{Table, or_unknown};
use crate::bench::{fill_inputs, interleaved};
use crate::error::Result;
use runtime::Model;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measure the latency of a compiled model
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tunesmith bench resnet18.tsm --threads 1 --json")]
pub struct Args {
    /// A compiled model (.tsm)
    artifact: PathBuf,
    /// Threads [default: all CPUs]
    #[arg(long)]
    threads: Option<usize>,
    /// Time to spend
    #[arg(long, value_parser = parse_duration, default_value = "3s")]
    time: Duration,
    /// Time of every step as well
    #[arg(long)]
    profile: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Summary {
    model: String,
    threads: usize,
    /// How exact the model says to be; empty if it does not say.
    accuracy: String,
    runs: usize,
    median_ms: f64,
    min_ms: f64,
    p90_ms: f64,
}

const MIN_ROUNDS: usize = 5;

pub fn run(a: &Args) -> Result<ExitCode> {
    let threads = a
        .threads
        .unwrap_or_else(|| crate::machine::Machine::host().cpus);
    let mut model = Model::load(&a.artifact, threads)?;
    fill_inputs(&mut model, 1);
    let l = interleaved(&mut [&mut model], a.time, MIN_ROUNDS)?.remove(0);
    let summary = Summary {
        model: model.compiled().name().to_string(),
        threads,
        accuracy: model.compiled().accuracy().to_string(),
        runs: l.samples_ns.len(),
        median_ms: l.median_ms(),
        min_ms: l.min_ms(),
        p90_ms: l.p90_ms(),
    };
    if a.json {
        super::print_json(&summary)?;
        return Ok(ExitCode::SUCCESS);
    }
    super::print_line(&format!(
        "{}: median {:.3} ms, min {:.3} ms, 90% {:.3} ms ({} runs, {} threads, accuracy {})",
        summary.model,
        summary.median_ms,
        summary.min_ms,
        summary.p90_ms,
        summary.runs,
        threads,
        or_unknown(&summary.accuracy)
    ))?;
    if a.profile {
        let steps = model.invoke_profiled()?;
        let total: u64 = steps.iter().sum();
        let mut t = Table::new(&["step", "ms", "share"]);
        for (s, ns) in model.compiled().steps().iter().zip(&steps) {
            let share = 100.0 * *ns as f64 / total as f64;
            t.row(vec![
                s.name.clone(),
                format!("{:.3}", *ns as f64 / 1e6),
                format!("{share:.1}%"),
            ]);
        }
        t.print();
    }
    Ok(ExitCode::SUCCESS)
}
