//! `study trim cold`: what the filter `cold` saves, replayed on the records of a store.

use crate::cli::model_args::StoreArgs;
use crate::cli::parse::parse_count;
use crate::cli::progress::Progress;
use crate::cli::table::Table;
use crate::cli::{print_json, print_line};
use serde_json::json;
use study::cold::{Compared, GOALS, Plan, RECORDED, Rule, Saving, compare};
use tune::Result;
use tune::filter::ColdRule;
use tune::filter::trained::examples;

/// Replay searches of recorded candidates with and without the filter cold, on tasks that its network was not trained on; the output
/// says *replayed* and *modelled*
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study trim cold --store tuned.sqlite\n  tunesmith study trim cold --store tuned.sqlite --choosing --rules neighbours=8,above=0,above=1"
)]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Strategies, whose points stand for the nearest recorded candidates; `recorded` is the order of the records
    #[arg(long, value_delimiter = ',', default_values = ["random", "genetic", "annealing", "evolutionary", RECORDED])]
    strategies: Vec<String>,
    /// Rules of the filter, as --cold-rule of tune names them; each is compared with none, and with chance at the same share
    #[arg(long, value_delimiter = ',', value_name = "RULE,...", value_parser = ColdRule::parse,
        default_values_t = [ColdRule::Neighbours(10), ColdRule::NEIGHBOURS, ColdRule::Above(1.0), ColdRule::Best(8)])]
    rules: Vec<ColdRule>,
    /// Searches of each task by each strategy under each rule
    #[arg(long, default_value_t = 20, value_parser = parse_count::<u64>)]
    seeds: u64,
    /// Seed of the network and of the division of tasks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave tasks with fewer records out
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = parse_count::<usize>)]
    least: usize,
    /// Replay the four fifths of the tasks on which rules are chosen, each fifth with a network of the other three; the last fifth
    /// is for figures
    #[arg(long)]
    choosing: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: &Args) -> Result<()> {
    let all = examples(&a.store.existing()?)?;
    let plan = Plan {
        rules: a
            .rules
            .iter()
            .map(|r| Rule::Cold(*r))
            .chain([Rule::Ordered(0.0), Rule::Oracle])
            .collect(),
        strategies: a.strategies.clone(),
        seeds: a.seeds,
        seed: a.seed,
        least_rows: a.least,
        choosing: a.choosing,
        cpus: crate::cli::host()?.machine.cpus,
    };
    let mut progress = Progress::new("study", a.json);
    let compared = compare(all, &plan, &mut progress);
    progress.finish();
    let compared = compared?;
    match a.json {
        true => print_json(&json!({
            "kind": ["replayed", "modelled"], "goals": GOALS, "cpus": plan.cpus,
            "seed": plan.seed, "choosing": plan.choosing, "least_rows": plan.least_rows, "compared": compared,
        })),
        false => print(&compared, &plan),
    }
}

fn rule(rule: Rule) -> String {
    match rule {
        Rule::None => "none".into(),
        Rule::Chance(_) => "chance".into(),
        Rule::Ordered(0.0) => "order alone".into(),
        Rule::Ordered(_) => "order, chance".into(),
        Rule::Oracle => "all that are cold".into(),
        Rule::Cold(rule) => rule.to_string(),
    }
}

fn saving(s: &Saving) -> String {
    format!("{:.0}% ±{:.0}", 100.0 * s.share, 50.0 * (s.high - s.low))
}

fn print(compared: &[Compared], plan: &Plan) -> Result<()> {
    let goals = GOALS.map(|goal| format!("to {goal}"));
    let mut columns = vec!["strategy", "rule", "dropped", "cold", "final", "look ms"];
    columns.extend(goals.iter().map(String::as_str));
    columns.extend(["all", "over chance"]);
    let mut table = Table::new(&columns);
    for c in compared {
        let mut row = vec![
            c.strategy.clone(),
            rule(c.rule),
            format!("{:.0}%", 100.0 * c.dropped),
            format!("{:.0}%", 100.0 * c.precision),
            format!("{:.3}", c.final_latency),
            format!("{:.2}", c.look_ms),
        ];
        row.extend(c.against_none.iter().map(saving));
        row.extend([&c.against_none_all, &c.against_chance_all].map(saving));
        table.row(row);
    }
    table.print()?;
    let tasks = compared.first().map_or(0, |c| c.tasks);
    print_line(&format!(
        "Replayed: {tasks} tasks that the networks were not trained on, {} searches of each. Modelled: joules saved until a latency is within so \
         many times the least one, in the geometric mean, ± one standard error over tasks.",
        plan.seeds
    ))?;
    print_line(
        "cold: of the dropped candidates. final: least latency of what is kept, over the least of all. over chance: where as many are dropped by chance. \
         order alone: nothing is dropped. order, chance: as many as above are dropped, by chance.",
    )
}
