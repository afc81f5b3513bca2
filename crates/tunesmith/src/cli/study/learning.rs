//! `study learn`: models of strategies, judged on the records of a store.

use super::points::workloads;
use crate::cli::model_args::StoreArgs;
use crate::cli::parse::{parse_count, parse_threads};
use crate::cli::progress::Progress;
use crate::cli::table::Table;
use crate::cli::{print_json, print_line};
use ir::Target;
use serde_json::{Value, json};
use store::Store;
use study::learning::{Answered, Given, Model, rank};
use tune::known::Requirements;
use tune::machine::target_key;
use tune::similar::{Wanted, answers, similar};
use tune::{AnswerPlace, Error, Observer, Result, Subject};

/// How well the models of strategies rank candidates that they have not seen, by the records of a store: with and
/// without what lowered programs tell, with and without answers of similar tasks, and by each learner. The learner `random` shows what
/// chance gives
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study learn\n  tunesmith study learn --store tuned.sqlite --seeds 3 --json"
)]
pub struct Args {
    /// Models that were tuned, of whose tasks an older version stored no programs
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
    /// Threads of the kernels
    #[arg(long, default_value_t = 1, value_parser = parse_threads::<u32>)]
    threads: u32,
    /// Random divisions of each task's answers
    #[arg(long, default_value_t = 2, value_parser = parse_count::<u64>)]
    seeds: u64,
    /// Most answers of each task
    #[arg(long, default_value_t = 400, value_parser = parse_count::<usize>)]
    answers: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The store, with the programs of the models' tasks.
fn store(a: &Args) -> Result<Store> {
    if a.models.is_empty() {
        return a.store.existing();
    }
    let store = a.store.write()?;
    let target = crate::cli::host()?.machine.target(a.threads);
    for program in workloads(&a.models, &target, Requirements::of_knobs().accuracy)? {
        for (task, _) in &program.tasks {
            store.put_task(&tune::task_record(task))?;
        }
    }
    Ok(store)
}

/// All tasks of the store that were measured here.
fn answered(a: &Args, store: &Store) -> Result<Vec<Answered>> {
    let host = crate::cli::host()?;
    let target: Target = host.machine.target(a.threads);
    let place = AnswerPlace {
        target: target_key(&target).text(),
        machine: host.machine.fingerprint(),
    };
    let requirements = Requirements::of_knobs();
    let mut found = Vec::new();
    for t in store.tasks()? {
        let wanted = Wanted {
            task: &t.key,
            subject: None,
            place: &place,
            allowed: requirements.allowed(),
            tolerance: requirements.tolerance,
            until: None,
        };
        let Some(own) = answers(store, &t, &target, a.answers, &wanted)?.0 else {
            continue;
        };
        let subject = Subject::new(&own.program, &target, &target, t.flops);
        let wanted = Wanted {
            subject: Some(&subject),
            ..wanted
        };
        found.push(Answered {
            title: format!("{} {}", t.op, t.key),
            similar: similar(store, &wanted)?.tasks.to_vec(),
            own,
        });
    }
    Ok(found)
}

pub fn run(a: &Args) -> Result<()> {
    let tasks = answered(a, &store(a)?)?;
    let mut progress = Progress::new("study", a.json);
    let models = rank(&tasks, a.seeds, &mut |share, what| {
        progress.part(share, what)
    });
    progress.finish();
    if models.iter().all(|m| m.rankings.is_empty()) {
        return Err(
            Error::new("no task of the store has enough answers of this machine")
                .help("tune more, or name another store with --store"),
        );
    }
    if a.json {
        let models: Vec<Value> = models
            .iter()
            .map(|m| json!({"model": m, "means": means(m)}))
            .collect();
        return print_json(&json!({"study": {"kind": "judged"}, "models": models}));
    }
    let mut t = Table::new(&[
        "learner",
        "knows",
        "own answers",
        "similar tasks",
        "rankings",
        "Spearman",
        "recall of 10",
        "first",
        "best of 10",
    ]);
    for m in models.iter().filter(|m| !m.rankings.is_empty()) {
        t.row(row(m));
    }
    t.print()?;
    print_line(
        "Means over tasks and seeds; geometric means of the last two, which are times over the least one. All models rank the same answers, none of which they were given. Models of similar tasks are judged on tasks that have some.",
    )
}

fn means(m: &Model) -> Value {
    json!({
        "spearman": m.mean(|r| r.spearman),
        "recall_10": m.mean(|r| r.recall),
        "first": m.geometric(|r| r.first),
        "best_of_10": m.geometric(|r| r.best_of_10),
    })
}

fn row(m: &Model) -> Vec<String> {
    let yes = |on: bool| if on { "yes" } else { "no" }.to_string();
    let mut row = match m.given {
        None => vec!["-".into(), "predicted cost".into(), "-".into(), "-".into()],
        Some(Given {
            own,
            similar,
            loops,
            learner,
        }) => {
            let known = if loops {
                "decisions and loops"
            } else {
                "decisions"
            };
            vec![
                learner.name().into(),
                known.into(),
                own.to_string(),
                yes(similar),
            ]
        }
    };
    row.extend([
        m.rankings.len().to_string(),
        format!("{:.3}", m.mean(|r| r.spearman)),
        format!("{:.3}", m.mean(|r| r.recall)),
        format!("{:.3}", m.geometric(|r| r.first)),
        format!("{:.3}", m.geometric(|r| r.best_of_10)),
    ]);
    row
}
