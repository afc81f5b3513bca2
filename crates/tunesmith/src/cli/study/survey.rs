//! `study trim survey`: tuners on machines of their own, surveyed, side by side to their ends, or in turns by gradient; replayed on recorded tables.

use super::strategies::{chain, recording};
use super::trim::chain_name;
use crate::cli::energy_text::joules;
use crate::cli::output::{Output, PICTURE, STRATEGIES as FIGURES};
use crate::cli::parse::parse_count;
use crate::cli::progress::Progress;
use crate::cli::table::Table;
use crate::cli::tune::parse_survey;
use crate::cli::{print_json, print_line};
use measure::energy::MachineFile;
use search::SurveyRule;
use serde_json::json;
use std::path::PathBuf;
use study::Finished;
use study::cold::GOALS;
use study::plots::surveys;
use study::strategies::{Cell, Comparison, Length, Recording, compare};
use study::survey::{Compared, PARALLEL, Saving, compared, survey};
use tune::{Error, Result};

/// Tuners on machines of their own, replayed on recorded tables: a survey, all side by side to their ends, and turns by gradient. Joules are modelled
/// under two curves of power
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study trim survey a_T4.json.gz b_T4.json.gz --plot survey.svg\n  tunesmith study trim survey a_T4.json.gz --tuners random,funnel --filters none,cold --trials 256 --out study"
)]
pub struct Args {
    /// Tables with times: T4 files (.json or .json.gz), exports of records (.jsonl), or stores
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// The task whose key starts with this, if an export or a store has several tasks
    #[arg(long)]
    task: Option<String>,
    /// Tuners: strategies, each of which has a machine for each table
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_values = ["evolutionary", "annealing", "genetic", "random"],
        value_parser = search::strategy_names())]
    tuners: Vec<String>,
    /// Chains of filters; a chain is none, a filter, or filters joined by +. All are compared with the first one
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CHAIN,...",
        default_value = "none"
    )]
    filters: Vec<String>,
    /// Searches of each table by each tuner, with the seeds 1, 2, ...
    #[arg(long, default_value_t = 5, value_parser = parse_count::<u64>)]
    seeds: u64,
    /// Answered candidates of each search, if nothing ends it earlier
    #[arg(long, default_value_t = 512, value_parser = parse_count::<u64>)]
    trials: u64,
    /// Changes to the survey, as --survey of tune takes them
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = parse_survey, default_value = "", hide_default_value = true)]
    survey: SurveyRule,
    /// What each machine draws, as watts over busy CPUs [default: usual power of a machine like this one]
    #[arg(long, value_name = "FILE")]
    machine_file: Option<PathBuf>,
    /// Draw what the tuners of each table reached by each batch in the first seed, and where they were suspended
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Folder for finished searches and the figures. The same command continues an interrupted study there
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What a machine draws: by the file, or usual power of one with as many CPUs as this.
fn machine(a: &Args) -> Result<(MachineFile, usize)> {
    let cpus = crate::cli::host()?.machine.cpus;
    let Some(path) = &a.machine_file else {
        return Ok((MachineFile::usual(cpus), cpus));
    };
    let fail = |why: String| {
        Error::new(format!("{}: {why}", path.display()))
            .help("docs/howto/energy-and-money.md shows such a file")
    };
    let text = std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
    Ok((MachineFile::parse(&text, cpus).map_err(fail)?, cpus))
}

pub fn run(a: &Args) -> Result<()> {
    let (file, cpus) = machine(a)?;
    let one = |path: &PathBuf| recording(path, a.task.as_deref(), &a.tables);
    let recordings: Vec<Recording> = a.tables.iter().map(one).collect::<Result<_>>()?;
    let comparison = Comparison {
        strategies: a.tuners.clone(),
        chains: a.filters.iter().map(|c| chain(c)).collect::<Result<_>>()?,
        seeds: a.seeds,
        length: Length::Trials(a.trials),
        chance: None,
    };
    let picture = match &a.plot {
        Some(path) => Some(Output::new(path, PICTURE, a.tables.clone())?),
        None => None,
    };
    let rows = recordings.iter();
    let rows: Vec<_> = rows
        .map(|r| json!({"table": r.name, "rows": r.table.len()}))
        .collect();
    let header = json!({"kind": "replayed", "tables": rows, "trials": a.trials, "chance": null});
    let mut finished: Finished<Cell> = match &a.out {
        Some(folder) => Finished::open(folder, &header)?,
        None => Finished::default(),
    };
    let mut progress = Progress::new("study", a.json);
    let done = compare(&recordings, &comparison, None, &mut finished, &mut progress);
    progress.finish();
    done?;
    // A folder may hold searches of other tuners and filters.
    let cells = finished.entries.iter().filter(|c| {
        let known = a.tuners.contains(&c.strategy) && comparison.chains.contains(&c.filters);
        known && c.seed <= a.seeds
    });
    let cells: Vec<Cell> = cells.cloned().collect();
    let all = survey(&recordings, &cells, a.survey, &file.curves)?;
    let found = compared(&all);
    if let Some(out) = picture {
        out.write_bytes(surveys(&all)?.as_bytes())?;
    }
    let curves = file
        .curves
        .iter()
        .map(|c| json!({"name": c.name, "busy_w": c.watts(1.0), "idle_w": c.idle_w()}));
    let figures = json!({
        "kind": ["replayed", "modelled"], "goals": GOALS, "cpus": cpus, "curves": curves.collect::<Vec<_>>(),
        "study": header, "tuners": a.tuners, "compared": found, "runs": all,
    });
    if let Some(folder) = &a.out {
        let figures = json!({"kind": "replayed", "survey": figures});
        let out = Output::new(&folder.join("survey.json"), FIGURES, a.tables.clone())?;
        out.write_bytes(figures.to_string().as_bytes())?;
    }
    match a.json {
        true => print_json(&figures),
        false => print(a, &found, &file),
    }
}

/// A figure under each curve, once if both are the same.
fn both<T>(of: &[T], text: impl Fn(&T) -> String) -> String {
    let mut texts: Vec<String> = of.iter().map(text).collect();
    texts.dedup();
    texts.join(" or ")
}

fn saving(s: &Saving) -> String {
    format!("{:.0}% ±{:.0}", 100.0 * s.share, 50.0 * (s.high - s.low))
}

fn row(c: &Compared, chains: bool, base: bool) -> Vec<String> {
    let mut row = vec![c.tables.clone(), c.budget.into()];
    row.extend(chains.then(|| chain_name(&c.filters)));
    row.extend([
        format!("{:.0}", c.answers),
        format!("{:.3}", c.final_cost),
        both(&c.joules, |j| joules(*j)),
    ]);
    for saved in [&c.saved, &c.saved_at_equal_latency] {
        row.push(if base {
            "-".into()
        } else {
            both(saved, saving)
        });
    }
    row.extend(c.to.iter().map(|(reached, j)| {
        let used = j.map_or("-".into(), |j| both(&j, |j| joules(*j)));
        format!("{used} ({reached}/{})", c.searches)
    }));
    row
}

fn print(a: &Args, found: &[Compared], file: &MachineFile) -> Result<()> {
    let chains = a.filters.len() > 1;
    let goals = GOALS.map(|goal| format!("J to {goal}"));
    let mut columns = vec!["table", "budget"];
    columns.extend(chains.then_some("filters"));
    columns.extend(["answers", "final", "J", "saved", "saved at equal latency"]);
    columns.extend(goals.iter().map(String::as_str));
    let mut table = Table::new(&columns);
    let first = chain(&a.filters[0])?;
    for c in found {
        let base = c.budget == PARALLEL && c.filters == first;
        table.row(row(c, chains, base));
    }
    table.print()?;
    let [one, two] = &file.curves;
    print_line(&format!(
        "Replayed: {} seeds of each tuner, {} answers at most. Modelled: joules of all machines, under the curve {} or {}. A machine keeps one CPU busy while \
         its tuner works (J a second: {:.1} or {:.1}), idles while it waits at a barrier ({:.1} or {:.1}), and is given back when its tuner is suspended or at its end.",
        a.seeds,
        a.trials,
        one.name,
        two.name,
        one.watts(1.0),
        two.watts(1.0),
        one.idle_w(),
        two.idle_w(),
    ))?;
    print_line(
        "parallel: every tuner to its end, side by side. gradient: turns on one machine. saved: of the joules of parallel, ± one standard error over seeds; at equal \
         latency: until the worse of both final latencies. final: over the least of the table. The median row stands for the default implementation.",
    )
}
