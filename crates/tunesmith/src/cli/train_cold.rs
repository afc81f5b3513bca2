//! `records train-cold`: the network of the filter `cold`, of all that a store knows.

use super::knobs::default;
use super::model_args::StoreArgs;
use super::output::{NETWORK, Output};
use super::table::Table;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Store;
use tune::filter::trained::{Example, RULE, Trained, examples};
use tune::filter::{Cold, ColdRule};
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
    /// Candidates that are cold or failed.
    bad: usize,
    /// What the filter would do, by how many bad neighbours make it drop a candidate.
    rules: Vec<Rule>,
}

/// What would be dropped by one rule if every candidate were looked at.
#[derive(Clone, Debug, Serialize)]
struct Rule {
    bad_neighbours: usize,
    dropped: usize,
    /// Of the dropped ones the share that is bad, and of the bad ones the share that is dropped.
    precision: Option<f64>,
    recall: Option<f64>,
    /// By how much the best kept candidate of a search is slower than the best of all, as the mean of searches of which one is kept.
    lost: f64,
    /// Searches whose best candidate is dropped, of those with times.
    best_dropped: usize,
    searches: usize,
}

fn rule(least: usize, searches: &[(Vec<&Example>, Vec<usize>)]) -> Rule {
    let mut r = Rule {
        bad_neighbours: least,
        dropped: 0,
        precision: None,
        recall: None,
        lost: 0.0,
        best_dropped: 0,
        searches: 0,
    };
    let (mut right, mut bad, mut with_kept) = (0, 0, 0);
    for (search, counts) in searches {
        let (mut of_all, mut of_kept) = (f64::INFINITY, f64::INFINITY);
        for (e, count) in search.iter().zip(counts) {
            let dropped = *count >= least;
            r.dropped += usize::from(dropped);
            right += usize::from(dropped && e.bad);
            bad += usize::from(e.bad);
            let cost = e.cost.unwrap_or(f64::INFINITY);
            of_all = of_all.min(cost);
            of_kept = of_kept.min(if dropped { f64::INFINITY } else { cost });
        }
        r.searches += usize::from(of_all.is_finite());
        r.best_dropped += usize::from(of_kept > of_all);
        if of_kept.is_finite() {
            r.lost += (of_kept - of_all).exp_m1();
            with_kept += 1;
        }
    }
    let share = |of: usize| (of > 0).then(|| right as f64 / of as f64);
    (r.precision, r.recall) = (share(r.dropped), share(bad));
    r.lost /= f64::from(with_kept.max(1));
    r
}

fn figures(trained: &Trained, held_out: &[&Example]) -> Result<Figures> {
    let tasks: BTreeSet<&str> = held_out.iter().map(|e| e.task.as_str()).collect();
    let (mut squares, mut of_mean, mut timed) = (0.0, 0.0, 0);
    let mut searches: BTreeMap<usize, Vec<&Example>> = BTreeMap::new();
    for e in held_out {
        if let Some(cost) = e.cost {
            let error = trained.network.predict(&e.row) - cost;
            squares += error * error;
            of_mean += cost * cost;
            timed += 1;
        }
        searches.entry(e.search).or_default().push(e);
    }
    let searches = searches.into_values().map(|search| {
        let counts = trained.bad_neighbours(&search)?;
        Ok((search, counts))
    });
    let searches: Vec<_> = searches.collect::<Result<_>>()?;
    let (nearest, least) = RULE;
    let root = |sum: f64| (sum / timed.max(1) as f64).sqrt();
    Ok(Figures {
        tasks: tasks.len(),
        candidates: held_out.len(),
        error: root(squares),
        error_of_mean: root(of_mean),
        bad: held_out.iter().filter(|e| e.bad).count(),
        rules: (least - 2..=nearest)
            .rev()
            .map(|n| rule(n, &searches))
            .collect(),
    })
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
    let own: Vec<&Example> = own.iter().collect();
    let [own, choosing, held_out] = [&own, &choosing, &held_out].map(|of| figures(&trained, of));
    let (own, choosing, held_out) = (own?, choosing?, held_out?);
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
    super::print_line("")?;
    rules(&held_out)?;
    super::print_line(&format!("written to {}", out.display()))
}

fn percent(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| format!("{:.0}%", 100.0 * v))
}

fn share(of: usize, all: usize) -> Option<f64> {
    (all > 0).then(|| of as f64 / all as f64)
}

fn line(name: &str, f: &Figures) -> String {
    let rule = f.rules.iter().find(|r| r.bad_neighbours == RULE.1);
    format!(
        "{name}: {} candidates of {} tasks, {} of them cold or failed; error {:.2} of log latency ({:.2} for the mean); \
         {} dropped, precision {}, recall {}",
        f.candidates,
        f.tasks,
        percent(share(f.bad, f.candidates)),
        f.error,
        f.error_of_mean,
        rule.map_or(0, |r| r.dropped),
        percent(rule.and_then(|r| r.precision)),
        percent(rule.and_then(|r| r.recall))
    )
}

/// What other rules would do.
fn rules(f: &Figures) -> Result<()> {
    let mut table = Table::new(&[
        "bad neighbours",
        "dropped",
        "precision",
        "recall",
        "best kept slower by",
        "best dropped",
    ]);
    for r in &f.rules {
        let marked = if r.bad_neighbours == RULE.1 {
            " (of --cold-rule neighbours)"
        } else {
            ""
        };
        table.row(vec![
            format!("{} of {}{marked}", r.bad_neighbours, RULE.0),
            percent(share(r.dropped, f.candidates)),
            percent(r.precision),
            percent(r.recall),
            format!("{:.2}%", 100.0 * r.lost),
            format!("{} of {}", r.best_dropped, r.searches),
        ]);
    }
    table.print()?;
    super::print_line("The table is of the tasks held out, if every candidate were looked at.")
}

/// The network that the filters of a run use: that of the flag, else that beside the store, else the one that ships with the program. Only a
/// rule of neighbours looks at what the store knows.
///
/// # Errors
/// If the flag's file cannot be read, a file is no such network, or no filter would use it.
pub fn network(
    asked: Option<&Path>,
    (filters, rule): (&[String], ColdRule),
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
        return Ok(Some(Arc::new(Trained::shipped())));
    }
    let fail = |why: &dyn std::fmt::Display| {
        Error::new(format!("{}: {why}", path.display()))
            .help("`tunesmith records train-cold` writes such a file")
    };
    let text = std::fs::read_to_string(path).map_err(|e| fail(&e))?;
    let known = match rule {
        ColdRule::Neighbours(_) => examples(store)?,
        ColdRule::Above(_) | ColdRule::Best(_) => vec![],
    };
    let trained = Trained::of_text(&text, &known).map_err(|e| fail(&e))?;
    Ok(Some(Arc::new(trained)))
}
