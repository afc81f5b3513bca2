//! `records train-cold`: the network of the filter `cold`, of all that a store knows.

use super::knobs::default;
use super::model_args::StoreArgs;
use super::output::{NETWORK, Output};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Store;
use tune::filter::Cold;
use tune::filter::trained::{Example, Trained, examples};
use tune::{Error, Result};

/// The network beside a store.
const FILE: &str = "cold.network";
/// Of ten tasks, those that are trained on; of the others the first is for choosing between networks, and the rest for
/// figures (Trimmer, section IV-B: 7:1:2).
const TRAINED: usize = 7;
const CHOOSING: usize = 1;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The file for the network [default: cold.network beside the store]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[arg(long, help = "Seed of the network and of the division of tasks", default_value = default("seed"))]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What a network says of tasks that it was not trained on.
#[derive(Debug, Default, Serialize)]
struct Figures {
    tasks: usize,
    candidates: usize,
    /// Root of the mean squared error of logarithms of latencies over their search's mean, and the same of always
    /// predicting that mean.
    error: f64,
    error_of_mean: f64,
    /// Candidates that are cold or failed, and those that the filter would drop.
    bad: usize,
    dropped: usize,
    /// Of the dropped ones the share that is bad, and of the bad ones the share that is dropped.
    precision: Option<f64>,
    recall: Option<f64>,
}

fn figures(trained: &Trained, held_out: &[&Example]) -> Figures {
    let tasks: BTreeSet<&str> = held_out.iter().map(|e| e.task.as_str()).collect();
    let (mut f, mut squares, mut of_mean, mut right, mut timed) =
        (Figures::default(), 0.0, 0.0, 0, 0);
    (f.tasks, f.candidates) = (tasks.len(), held_out.len());
    for e in held_out {
        if let Some(cost) = e.cost {
            let error = trained.network.predict(&e.row) - cost;
            squares += error * error;
            of_mean += cost * cost;
            timed += 1;
        }
        let dropped = trained.is_cold(&e.row);
        f.bad += usize::from(e.bad);
        f.dropped += usize::from(dropped);
        right += usize::from(dropped && e.bad);
    }
    let root = |sum: f64| (sum / timed.max(1) as f64).sqrt();
    let share = |of: usize| (of > 0).then(|| right as f64 / of as f64);
    (f.error, f.error_of_mean) = (root(squares), root(of_mean));
    (f.precision, f.recall) = (share(f.dropped), share(f.bad));
    f
}

/// The tasks in a seeded order, each with its number of ten.
fn parts(all: &[Example], seed: u64) -> BTreeMap<String, usize> {
    let tasks: BTreeSet<&String> = all.iter().map(|e| &e.task).collect();
    let mut tasks: Vec<&String> = tasks.into_iter().collect();
    tasks.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    let n = tasks.len();
    // Of a few tasks one is held out, too, but for the only one.
    let number = |i: usize| if n == 1 { 0 } else { ((i + 1) * 10 - 1) / n };
    let tasks = tasks.into_iter().enumerate();
    tasks.map(|(i, task)| (task.clone(), number(i))).collect()
}

pub fn run(a: &Args) -> Result<()> {
    let store = a.store.existing()?;
    let mut out = a.store.path()?.with_file_name(FILE);
    if let Some(path) = &a.out {
        out.clone_from(path);
    }
    let output = Output::new(&out, NETWORK, a.store.files()?)?;
    let all = examples(&store)?;
    let part = parts(&all, a.seed);
    let (own, others): (Vec<Example>, Vec<Example>) =
        all.into_iter().partition(|e| part[&e.task] < TRAINED);
    let trained = Trained::train(&own, a.seed)?;
    let (choosing, held_out): (Vec<&Example>, Vec<&Example>) = others
        .iter()
        .partition(|e| part[&e.task] < TRAINED + CHOOSING);
    let [own, choosing, held_out] =
        [own.iter().collect(), choosing, held_out].map(|of| figures(&trained, &of));
    output.write_bytes(trained.text().as_bytes())?;
    if a.json {
        let all = serde_json::json!({"trained": own, "choosing": choosing, "held_out": held_out});
        return super::print_json(&all);
    }
    for (name, f) in [
        ("trained on", &own),
        ("for choosing", &choosing),
        ("held out", &held_out),
    ] {
        super::print_line(&line(name, f))?;
    }
    super::print_line(&format!("written to {}", out.display()))
}

fn line(name: &str, f: &Figures) -> String {
    let share = |v: Option<f64>| v.map_or("-".into(), |v| format!("{:.0}%", 100.0 * v));
    let bad = share((f.candidates > 0).then(|| f.bad as f64 / f.candidates as f64));
    format!(
        "{name}: {} candidates of {} tasks, {bad} of them cold or failed; error {:.2} of log latency ({:.2} for the mean); \
         {} dropped, precision {}, recall {}",
        f.candidates,
        f.tasks,
        f.error,
        f.error_of_mean,
        f.dropped,
        share(f.precision),
        share(f.recall)
    )
}

/// The network that the filters of a run use: that of the flag, else that beside the store.
///
/// # Errors
/// If the flag's file cannot be read, a file is no such network, or no filter would use it.
pub fn network(
    asked: Option<&Path>,
    filters: &[String],
    at: &StoreArgs,
    store: &Store,
) -> Result<Option<Arc<Trained>>> {
    if !filters.iter().any(|f| f == Cold::NAME) {
        return match asked {
            None => Ok(None),
            Some(_) => Err(
                Error::new("--cold-network has no effect without the filter cold")
                    .help("give --filter cold with it"),
            ),
        };
    }
    let beside = at.path()?.with_file_name(FILE);
    let path = asked.unwrap_or(&beside);
    if asked.is_none() && !path.exists() {
        return Ok(None);
    }
    let fail = |why: &dyn std::fmt::Display| {
        Error::new(format!("{}: {why}", path.display()))
            .help("`tunesmith records train-cold` writes such a file")
    };
    let text = std::fs::read_to_string(path).map_err(|e| fail(&e))?;
    let trained = Trained::of_text(&text, &examples(store)?).map_err(|e| fail(&e))?;
    Ok(Some(Arc::new(trained)))
}
