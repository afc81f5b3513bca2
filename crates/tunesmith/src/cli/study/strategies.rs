//! `study strategies`: strategies and filters on recorded tables, or strategies by real searches, which `searches` runs.

use super::searches::{is_model, parse_strategy};
use super::{searches, trim};
use crate::cli::output::{Output, PAGE, PICTURE, STRATEGIES as FIGURES};
use crate::cli::parse::{parse_count, parse_share, parse_threads};
use crate::cli::progress::Progress;
use crate::cli::table::Table;
use crate::cli::{print_json, print_line};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{RecordQuery, Store};
use study::Finished;
use study::curves::{Curve, Curves};
use study::plots::{REPLAYED, convergence};
use study::strategies::{
    Cell, Comparison, Length, Recording, Summary, compare, replay_store, summaries,
};
use study::trimmed::trim_summaries;
use tune::filter::filter_names;
use tune::{Error, Result};

/// Compare strategies: by real searches of operators and models on this machine, or on recorded tables without hardware,
/// whose output says *replayed*
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study strategies 'op:matmul(m=64,n=64,k=64)' resnet18 --strategies funnel,random --out study\n  tunesmith study strategies --operators --start defaults,random --out study --curves curves.svg\n  tunesmith study strategies convolution_T4.json.gz --trials 200\n  tunesmith study strategies a_T4.json.gz b_T4.json.gz --filters none,neighbours --seeds 20 --out study\n  tunesmith study strategies tunesmith.sqlite --task 0c1f --filters none,cold,chance --seeds 3 --plot trim.html\n  tunesmith study strategies tunesmith.sqlite --task 0c1f --strategies random"
)]
pub struct Args {
    /// What is searched for real: operators as op:NAME(argument=value,...), built-in models or ONNX files. Or tables: T4 files
    /// (.json or .json.gz), exports of records (.jsonl), or stores
    #[arg(required_unless_present = "operators", value_name = "MODEL|TABLE")]
    pub subjects: Vec<String>,
    /// Real searches: also the twelve operators whose kernels gained the most by tuning
    #[arg(long)]
    pub operators: bool,
    /// Tables: the task whose key starts with this, if an export or a store has several tasks
    #[arg(long)]
    task: Option<String>,
    /// Strategies to compare [default: all; six of them in real searches]. In real searches a strategy may have
    /// additions, as in funnel+read+score: read (candidates are read for 3 s before any is measured), columns (models
    /// read lowered programs), network or noise (what models are made of), or a filter
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", value_parser = parse_strategy)]
    pub strategies: Vec<String>,
    /// Tables: chains of filters to compare; a chain is none, a filter, or filters joined by + [default: none]
    #[arg(long, value_delimiter = ',', value_name = "CHAIN,...")]
    filters: Vec<String>,
    /// Tables: share of candidates that the filter chance drops [default: what cold dropped in the same search, else 10%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    chance: Option<f64>,
    /// Searches of each model or table by each strategy, with the seeds 1, 2, ... [default: 3; 10 of tables]
    #[arg(long, value_parser = parse_count::<u64>)]
    pub seeds: Option<u64>,
    /// Answered candidates of each search [default: 64; 200 of tables]
    #[arg(long, value_parser = parse_count::<u64>)]
    pub trials: Option<u64>,
    /// Tables: answered candidates of each search as a share of the rows. Scores need 20%
    #[arg(long, value_parser = parse_share, conflicts_with = "trials")]
    share: Option<f64>,
    /// Real searches: begin with the default kernels, or with a random point of each sketch, or compare both [default: defaults]
    #[arg(long, value_delimiter = ',', value_name = "START,...", value_parser = ["defaults", "random"])]
    pub start: Vec<String>,
    /// Real searches: threads of the kernels [default: 1]
    #[arg(long, value_parser = parse_threads::<u32>)]
    pub threads: Option<u32>,
    /// Draw how the searches converge: after equal trials, after equal seconds (of tables that have times), and of tables the
    /// scores over the budget from 1% of the rows on; lines are means, bands reach from the best seed to the worst
    #[arg(long, value_name = "FILE.svg")]
    pub curves: Option<PathBuf>,
    /// Tables: a page with the hot, cold and failed candidates of the first seed of every search
    #[arg(long, value_name = "FILE.html")]
    plot: Option<PathBuf>,
    /// Tables: also log every ask and answer to this store, which holds replayed answers only
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Folder for finished searches and the figures. The same command continues an interrupted
    /// study there
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

const SEEDS: u64 = 10;
const TRIALS: u64 = 200;

/// Budgets whose scores are printed.
const SHARES: [f64; 4] = [0.01, 0.05, 0.10, 0.20];

/// The names of a chain of filters.
///
/// # Errors
/// If there is no such filter.
pub fn chain(text: &str) -> Result<Vec<String>> {
    if text == "none" {
        return Ok(vec![]);
    }
    let chain: Vec<String> = text.split('+').map(String::from).collect();
    let known = filter_names();
    match chain.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(chain),
        Some(name) => Err(Error::new(format!("there is no filter `{name}`"))
            .help(format!("use none or one of: {}", known.join(", ")))),
    }
}

/// The table in a file, named for the file, and where that is not enough for its folder too.
pub fn recording(path: &Path, task: Option<&str>, all: &[PathBuf]) -> Result<Recording> {
    let key = match task {
        Some(start) => Some(task_key(path, start)?),
        None => None,
    };
    let filter = RecordQuery {
        task: key.as_deref(),
        ..RecordQuery::default()
    };
    let table = store::Table::open(path, &filter)?;
    let name = |p: &Path| p.file_name().map(|n| n.to_string_lossy().into_owned());
    let short = name(path).unwrap_or_default();
    let alone = all
        .iter()
        .filter(|p| name(p).as_deref() == Some(&short))
        .count()
        == 1;
    let folder = path.parent().and_then(name);
    Ok(Recording {
        name: match folder {
            Some(folder) if !alone => format!("{folder}/{short}"),
            _ => short,
        },
        table: Arc::new(table),
    })
}

/// The key of the one task of a store that starts so; of other files the start itself.
fn task_key(path: &Path, start: &str) -> Result<String> {
    let Ok(store) = Store::open_to_read(path) else {
        return Ok(start.to_string());
    };
    let tasks = store.tasks()?;
    let mut keys = tasks
        .into_iter()
        .map(|t| t.key)
        .filter(|k| k.starts_with(start));
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(key),
        (None, _) => Err(
            Error::new(format!("no task has a key that starts with `{start}`"))
                .help("`records --json` lists the keys"),
        ),
        (Some(_), Some(_)) => {
            Err(Error::new(format!("several keys start with `{start}`"))
                .help("give more of the key"))
        }
    }
}

/// The first of these options that was given, by its name.
fn given(options: &[(&'static str, bool)]) -> Option<&'static str> {
    options
        .iter()
        .find(|(_, given)| *given)
        .map(|(name, _)| *name)
}

pub fn run(a: &Args) -> Result<()> {
    let models = a.subjects.iter().filter(|s| is_model(s)).count();
    if models == 0 && !a.operators {
        return replay(a);
    }
    if let Some(table) = a.subjects.iter().find(|s| !is_model(s)) {
        let why = format!("`{table}` is no operator and no model, and others are");
        return Err(Error::new(why).help(
            "name operators (op:NAME), models of `models` and ONNX files, or recorded tables only",
        ));
    }
    let of_tables = [
        ("--task", a.task.is_some()),
        ("--filters", !a.filters.is_empty()),
        ("--chance", a.chance.is_some()),
        ("--share", a.share.is_some()),
        ("--plot", a.plot.is_some()),
        ("--log", a.log.is_some()),
    ];
    match given(&of_tables) {
        None => searches::run(a),
        Some(option) => Err(Error::new(format!("{option} is for recorded tables")).help(
            "leave it out; a strategy of a real search may have filters, as in funnel+score",
        )),
    }
}

/// Refuses options that mean nothing for tables.
fn check_replay(a: &Args) -> Result<()> {
    let of_searches = [
        ("--start", !a.start.is_empty()),
        ("--threads", a.threads.is_some()),
    ];
    if let Some(option) = given(&of_searches) {
        return Err(Error::new(format!("{option} is for real searches"))
            .help("leave it out, or name operators and models instead of tables"));
    }
    if let Some(name) = a.strategies.iter().find(|s| s.contains('+')) {
        return Err(
            Error::new(format!("`{name}`: additions are for real searches"))
                .help("name filters of searches of tables with --filters"),
        );
    }
    Ok(())
}

/// A store for replayed answers.
fn opened_log(path: &Path) -> Result<Store> {
    let store = Store::open(path)?;
    replay_store(&store)?;
    Ok(store)
}

/// Compares on recorded tables.
fn replay(a: &Args) -> Result<()> {
    check_replay(a)?;
    let tables: Vec<PathBuf> = a.subjects.iter().map(PathBuf::from).collect();
    let one = |path: &PathBuf| recording(path, a.task.as_deref(), &tables);
    let recordings: Vec<Recording> = tables.iter().map(one).collect::<Result<_>>()?;
    let trials = a.trials.unwrap_or(TRIALS);
    let comparison = Comparison {
        strategies: match a.strategies.is_empty() {
            true => search::strategy_names().map(String::from).to_vec(),
            false => a.strategies.clone(),
        },
        chains: match a.filters.is_empty() {
            true => vec![vec![]],
            false => a.filters.iter().map(|c| chain(c)).collect::<Result<_>>()?,
        },
        seeds: a.seeds.unwrap_or(SEEDS),
        length: a.share.map_or(Length::Trials(trials), Length::Share),
        chance: a.chance,
    };
    let curves = match &a.curves {
        Some(path) => Some(Output::new(path, PICTURE, tables.clone())?),
        None => None,
    };
    let rows: Vec<_> = recordings
        .iter()
        .map(|r| json!({"table": r.name, "rows": r.table.len()}))
        .collect();
    let header = json!({
        "kind": "replayed", "tables": rows, "trials": comparison.length, "chance": a.chance,
    });
    let mut finished: Finished<Cell> = match &a.out {
        Some(folder) => Finished::open(folder, &header)?,
        None => Finished::default(),
    };
    let log = a.log.as_deref().map(opened_log).transpose()?;
    let mut progress = Progress::new("study", a.json);
    let done = compare(
        &recordings,
        &comparison,
        log.as_ref(),
        &mut finished,
        &mut progress,
    );
    progress.finish();
    done?;
    let summaries = summaries(&finished.entries);
    let trimmed = trim_summaries(&finished.entries);
    let watts = trim::watts()?;
    let drawn = Curves::of(&finished.entries);
    let figures = json!({
        "kind": "replayed",
        "searches": finished.entries,
        "study": header,
        "summaries": summaries,
        "progress": drawn,
        "trimmed": trimmed,
        "modelled_watts": watts,
    });
    if let Some(path) = &a.plot {
        let out = Output::new(path, PAGE, tables.clone())?;
        out.write_bytes(trim::page(&finished.entries, &trimmed, &watts)?.as_bytes())?;
    }
    if let Some(folder) = &a.out {
        let out = Output::new(&folder.join("strategies.json"), FIGURES, tables.clone())?;
        out.write_bytes(figures.to_string().as_bytes())?;
    }
    if let Some(curves) = curves {
        curves.write_bytes(convergence(&drawn, REPLAYED)?.as_bytes())?;
    }
    match a.json {
        true => print_json(&figures),
        false => {
            print(&recordings, &summaries, &drawn.seconds)?;
            trim::print(&trimmed, &watts)
        }
    }
}

fn print(recordings: &[Recording], summaries: &[Summary], seconds: &[Curve]) -> Result<()> {
    for r in recordings {
        print_line(&format!("replayed: {}, {} rows", r.name, r.table.len()))?;
    }
    let mut marks: Vec<u64> = summaries
        .iter()
        .flat_map(|s| &s.regret)
        .map(|(n, _)| *n)
        .collect();
    marks.sort_unstable();
    marks.dedup();
    let after: Vec<String> = marks.iter().map(|n| format!("after {n}")).collect();
    let mut columns = vec!["strategy", "filters", "searches"];
    columns.extend(after.iter().map(String::as_str));
    let after_seconds = |s: &Summary| {
        let same = |c: &&Curve| (&c.strategy, &c.filters) == (&s.strategy, &s.filters);
        seconds.iter().find(same)?.points.last()
    };
    let timed = summaries.iter().any(|s| after_seconds(s).is_some());
    columns.extend(timed.then_some("equal s"));
    let scored = summaries.iter().any(|s| !s.scores.is_empty());
    let budgets: Vec<String> = SHARES
        .iter()
        .map(|s| format!("at {:.0}%", 100.0 * s))
        .collect();
    if scored {
        columns.push("score");
        columns.extend(budgets.iter().map(String::as_str));
    }
    columns.extend(["optimum", "no row", "dropped", "answers/s"]);
    let mut t = Table::new(&columns);
    for s in summaries {
        let at = |mark: &u64| s.regret.iter().find(|(n, _)| n == mark);
        let regret = marks
            .iter()
            .map(|m| at(m).map_or("-".into(), |(_, r)| format!("{r:.3}")));
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        let mut row = vec![
            s.strategy.clone(),
            trim::chain_name(&s.filters),
            s.searches.to_string(),
        ];
        row.extend(regret);
        if timed {
            row.push(after_seconds(s).map_or("-".into(), |p| format!("{:.3}", p.mean)));
        }
        if scored {
            let budgets = SHARES.iter().map(|share| s.score_at(*share));
            let scores = std::iter::once(s.score).chain(budgets);
            row.extend(scores.map(|s| s.map_or("-".into(), |s| format!("{s:.3}"))));
        }
        row.extend([percent(s.optimal), percent(s.missing), percent(s.skipped)]);
        row.push(format!("{:.0}", s.answers_per_s));
        t.row(row);
    }
    t.print()?;
    print_line(
        "After n: the least cost after n answers over the least cost of the table (geometric mean); 1 is the optimum.",
    )?;
    if timed {
        print_line(
            "Equal s: likewise after as many seconds as the shortest search of the table has: what the answers took when they were recorded, and what the search itself took here.",
        )?;
    }
    if scored {
        print_line(
            "Score: how far the least cost is on the way from what random search is expected to find (0) to the optimum (1), mean over budgets of 1% to 20% of the rows; at n%: after that budget.",
        )?;
    }
    Ok(())
}
