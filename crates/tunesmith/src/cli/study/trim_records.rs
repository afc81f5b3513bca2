//! `study trim records`: the figures of Trimmer's study of costs, of the runs and candidates of a store.

use super::trim::chain_name;
use crate::cli::energy_text::joules;
use crate::cli::records::{Opened, Selection};
use crate::cli::records_label::{Rates, Taken, rates, taken};
use crate::cli::table::Table;
use crate::cli::{print_json, print_line};
use learn::pearson;
use search::{Label, label};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use tune::energy::{Energy, Metered};
use tune::filter::{FRACTION, PASSES};
use tune::{Error, Result};

/// Figures of a store's records, under both curves of power: what cold and failed candidates of each operator took, with and without filters; how many trials
/// came before one within 5% of the best; and how latency and time go with energy
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith study trim records\n  tunesmith study trim records --model resnet18 --store tuned.sqlite --json\n  tunesmith records label --plot labels.html"
)]
pub struct Args {
    #[command(flatten)]
    select: Selection,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A candidate is near the best if it is within so many times its latency.
const NEAR: f64 = 1.05;

/// Fewer pairs than these have no correlation.
const LEAST_PAIRS: usize = 3;

/// The phases that make the model, rather than search.
const COMPILING: [&str; 2] = ["defaults", "model"];

/// Candidates of one search, in the order of trials: its task, target, machine, strategy and filters.
type Group = ([String; 4], Vec<String>);

/// What candidates of one label are of all.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Part {
    candidates: u64,
    wall_s: f64,
    /// Above idle, under each curve.
    joules: [f64; 2],
}

/// The searches of an operator by a strategy under filters.
#[derive(Debug, Serialize)]
struct Operator {
    op: String,
    strategy: String,
    filters: Vec<String>,
    searches: usize,
    /// Hot, cold and failed candidates.
    parts: [Part; 3],
    /// How often which failure.
    failures: BTreeMap<&'static str, u64>,
    /// Of each search that has a latency the number of its first candidate near its best, and of all its candidates.
    near: Vec<(usize, usize)>,
}

impl Operator {
    fn add(&mut self, all: &[Taken]) -> Result<()> {
        let costs: Vec<Option<f64>> = all.iter().map(|t| t.latency_ns).collect();
        let found = label(&costs, FRACTION, PASSES).map_err(|e| Error::new(e.to_string()))?;
        self.searches += 1;
        self.near.extend(first_near(&costs).map(|n| (n, all.len())));
        for (t, label) in all.iter().zip(found.labels) {
            let part = &mut self.parts[place(label)];
            part.candidates += 1;
            part.wall_s += t.wall_s;
            let more = t.joules.unwrap_or_default();
            part.joules = [0, 1].map(|c| part.joules[c] + more[c]);
            if label == Label::Failed {
                *self.failures.entry(t.outcome).or_default() += 1;
            }
        }
        Ok(())
    }

    /// The share of a label in what `of` counts; none of nothing.
    fn share(&self, label: Label, of: impl Fn(&Part) -> f64) -> Option<f64> {
        let all: f64 = self.parts.iter().map(&of).sum();
        (all > 0.0).then(|| of(&self.parts[place(label)]) / all)
    }
}

fn place(label: Label) -> usize {
    Label::ALL.iter().position(|l| *l == label).unwrap_or(0)
}

/// The number, from 1, of the first cost near the least.
fn first_near(costs: &[Option<f64>]) -> Option<usize> {
    let least = costs.iter().flatten().copied().reduce(f64::min)?;
    let near = |c: &Option<f64>| c.is_some_and(|c| c <= NEAR * least);
    Some(1 + costs.iter().position(near)?)
}

/// How numbers go with joules, under each curve.
#[derive(Debug, Serialize)]
struct Correlation {
    what: &'static str,
    /// What Trimmer found.
    paper: f64,
    pairs: usize,
    pearson: Option<[f64; 2]>,
}

fn correlation(what: &'static str, paper: f64, pairs: &[(f64, [f64; 2])]) -> Correlation {
    let (a, joules): (Vec<f64>, Vec<[f64; 2]>) = pairs.iter().copied().unzip();
    let under = |curve: usize| pearson(&a, &joules.iter().map(|j| j[curve]).collect::<Vec<f64>>());
    let both = under(0)
        .zip(under(1))
        .filter(|_| pairs.len() >= LEAST_PAIRS);
    Correlation {
        what,
        paper,
        pairs: pairs.len(),
        pearson: both.map(|(a, b)| [a, b]),
    }
}

/// A figure of a run under each curve, or twice by a counter.
fn under(e: &Energy, of: impl Fn(&Metered) -> f64) -> Option<[f64; 2]> {
    let first = of(e.by.first()?);
    Some([first, e.by.get(1).map_or(first, of)])
}

/// Over runs whose joules were counted: latency with the joules of compiling the model, and time with all joules.
fn correlations(runs: &[&store::Run]) -> [Correlation; 2] {
    let (mut latency, mut time) = (Vec::new(), Vec::new());
    for run in runs {
        let Some(e) = Energy::of_run(run) else {
            continue;
        };
        time.extend(under(&e, |m| m.joules).map(|j| (e.wall_s, j)));
        let compiling = |m: &Metered| COMPILING.iter().filter_map(|p| m.phases.get(*p)).sum();
        let ms = run
            .summary
            .get("latency_after_ms")
            .and_then(serde_json::Value::as_f64);
        latency.extend(ms.zip(under(&e, compiling)));
    }
    [
        correlation(
            "latency of a model with joules of compiling it",
            0.9987,
            &latency,
        ),
        correlation("time of a run with its joules", 0.9880, &time),
    ]
}

/// Of the joules above idle of runs with filters the share that filters took, under each curve.
fn filter_share(runs: &[&store::Run]) -> Option<[f64; 2]> {
    let mut sums = [[0.0; 2]; 2];
    for run in runs.iter().filter(|r| !filters(r).is_empty()) {
        let Some(e) = Energy::of_run(run) else {
            continue;
        };
        let filter = under(&e, |m| m.phases.get("filter").copied().unwrap_or(0.0));
        let all = under(&e, |m| m.phases.values().sum());
        for (sum, more) in sums.iter_mut().zip([filter, all]) {
            *sum = [0, 1].map(|c| sum[c] + more.map_or(0.0, |m| m[c]));
        }
    }
    let [filter, all] = sums;
    (all[0] > 0.0).then(|| [0, 1].map(|c| filter[c] / all[c]))
}

fn filters(run: &store::Run) -> Vec<String> {
    let names = run.options.get("filters").and_then(|f| f.as_array());
    let names = names.into_iter().flatten();
    names
        .filter_map(|n| Some(n.as_str()?.to_string()))
        .collect()
}

/// The operators of a store, those that took the most time first, and the runs of what was selected.
fn operators<'o>(
    select: &Selection,
    o: &'o Opened,
    rates: &Rates,
) -> Result<(Vec<Operator>, Vec<&'o store::Run>)> {
    let mut groups: BTreeMap<Group, Vec<Taken>> = BTreeMap::new();
    let mut runs = BTreeMap::new();
    select.visit(o, |r| {
        let run = o.runs.get(&r.run_id);
        runs.extend(run.map(|run| (&run.run_id, run)));
        if let Some(taken) = taken(&r, rates) {
            let group = [r.task, r.target, r.machine, r.strategy];
            let of = groups.entry((group, run.map_or(vec![], filters)));
            of.or_default().push(taken);
        }
    })?;
    let mut all: Vec<Operator> = Vec::new();
    for (([task, _, _, strategy], filters), taken) in groups {
        let op = o.title(&task);
        let op = op.split('(').next().unwrap_or(&op);
        let same = |k: &Operator| (&k.op[..], &k.strategy, &k.filters) == (op, &strategy, &filters);
        let at = all.iter().position(same).unwrap_or_else(|| {
            all.push(Operator {
                op: op.into(),
                strategy: strategy.clone(),
                filters: filters.clone(),
                searches: 0,
                parts: Default::default(),
                failures: BTreeMap::new(),
                near: vec![],
            });
            all.len() - 1
        });
        all[at].add(&taken)?;
    }
    let time = |k: &Operator| k.parts.iter().map(|p| p.wall_s).sum::<f64>();
    all.sort_by(|a, b| time(b).total_cmp(&time(a)));
    Ok((all, runs.into_values().collect()))
}

pub fn run(a: &Args) -> Result<()> {
    let o = Opened::new(&a.select.store)?;
    let rates = rates(&o);
    let (operators, runs) = operators(&a.select, &o, &rates)?;
    let (correlations, filter_share) = (correlations(&runs), filter_share(&runs));
    let estimated = rates.values().any(|(_, estimated)| *estimated);
    if a.json {
        return print_json(&json!({
            "operators": operators, "correlations": correlations, "filter_share": filter_share, "near": NEAR, "estimated": estimated,
        }));
    }
    let mut table = Table::new(&[
        "operator",
        "strategy",
        "filters",
        "tried",
        "cold",
        "failed",
        "time cold",
        "time failed",
        "J cold",
        "J failed",
        "J",
        "to 5%",
    ]);
    operators.iter().for_each(|k| table.row(row(k)));
    table.print()?;
    for c in &correlations {
        let found = c
            .pearson
            .map_or("too few".into(), |p| both(p, |p| format!("{p:.4}")));
        print_line(&format!(
            "{}: {found} ({} runs; Trimmer: {:.4})",
            c.what, c.pairs, c.paper
        ))?;
    }
    if let Some(share) = filter_share {
        let share = both(share, |s| format!("{:.1}%", 100.0 * s));
        print_line(&format!(
            "filters took {share} of the joules above idle of runs with filters (Trimmer: about 3%)"
        ))?;
    }
    print_line(
        "cold: slower than was usual when it was tried. Joules are those above idle. to 5%: the median, over searches, of the first candidate within 5% of the best of its \
         search, and of the candidates of a search (Trimmer: 87 of 500 of one operator). `records label --plot` draws the candidates.",
    )?;
    match estimated {
        true => print_line("joules are estimated under two curves of power, from CPU time"),
        false => Ok(()),
    }
}

/// A figure under each curve, once if both are the same.
fn both(of: [f64; 2], text: impl Fn(f64) -> String) -> String {
    let mut texts = of.map(text).to_vec();
    texts.dedup();
    texts.join(" or ")
}

fn median(mut of: Vec<usize>) -> Option<usize> {
    of.sort_unstable();
    of.get(of.len() / 2).copied()
}

fn row(k: &Operator) -> Vec<String> {
    let percent = |share: Option<f64>| share.map_or("-".into(), |s| format!("{:.0}%", 100.0 * s));
    let candidates: u64 = k.parts.iter().map(|p| p.candidates).sum();
    let mut row = vec![
        k.op.clone(),
        k.strategy.clone(),
        chain_name(&k.filters),
        candidates.to_string(),
    ];
    let kinds = [Label::Cold, Label::Failed];
    row.extend(kinds.map(|l| percent(k.share(l, |p| p.candidates as f64))));
    row.extend(kinds.map(|l| percent(k.share(l, |p| p.wall_s))));
    row.extend(kinds.map(|l| {
        let mut texts = [0, 1]
            .map(|c| percent(k.share(l, |p| p.joules[c])))
            .to_vec();
        texts.dedup();
        texts.join(" or ")
    }));
    let sum = |c: usize| k.parts.iter().map(|p| p.joules[c]).sum::<f64>();
    row.push(both([sum(0), sum(1)], joules));
    let numbers = median(k.near.iter().map(|n| n.0).collect());
    let of = median(k.near.iter().map(|n| n.1).collect());
    row.push(
        numbers
            .zip(of)
            .map_or("-".into(), |(n, of)| format!("{n} of {of}")),
    );
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_near_the_best_is_counted_from_1() {
        let costs = [None, Some(9.0), Some(2.09), Some(2.0), Some(2.2)];
        assert_eq!(first_near(&costs), Some(3));
        assert_eq!(first_near(&[None, None]), None);
    }

    #[test]
    fn correlations_need_three_pairs_and_are_of_each_curve() {
        let pairs = [(1.0, [2.0, 3.0]), (2.0, [4.0, 2.0]), (3.0, [6.0, 1.0])];
        let found = correlation("x", 1.0, &pairs).pearson.unwrap();
        assert!((found[0] - 1.0).abs() < 1e-12 && (found[1] + 1.0).abs() < 1e-12);
        assert!(correlation("x", 1.0, &pairs[..2]).pearson.is_none());
    }
}
