//! `records label`: which candidates were hot, cold or failed, and what each kind took.

use super::energy_text::joules;
use super::html::{Page, Points, scatter};
use super::knobs::{default, doc};
use super::output::{Output, PAGE};
use super::parse::parse_share;
use super::records::{Opened, Selection};
use super::table::Table;
use search::{Label, label};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use store::{MEASURING, Outcome, Record};
use tune::energy::Energy;
use tune::{Error, Result};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    select: Selection,
    #[arg(long, help = doc("fraction"), default_value = default("fraction"), value_parser = parse_share)]
    fraction: f64,
    #[arg(long, help = doc("passes"), default_value = default("passes"), value_parser = clap::value_parser!(u32).range(..=100))]
    passes: u32,
    /// Also write a page for browsers, with a picture of each task's candidates
    #[arg(long, value_name = "FILE.html")]
    plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Whose latencies are set against each other: task, target, machine, strategy.
type Group = (String, String, String, String);

/// What one candidate took.
pub(super) struct Taken {
    pub latency_ns: Option<f64>,
    pub outcome: &'static str,
    pub wall_s: f64,
    /// Above idle, under each curve; none where its run did not count them.
    pub joules: Option<[f64; 2]>,
    estimated: bool,
}

/// Candidates of one label.
#[derive(Clone, Debug, Default, Serialize)]
struct Kind {
    candidates: u64,
    /// Of finding, building, loading, measuring and checking them.
    wall_s: f64,
    /// Above idle, under each curve, or twice by a counter.
    joules: [f64; 2],
}

impl Kind {
    fn add(&mut self, other: &Kind) {
        self.candidates += other.candidates;
        self.wall_s += other.wall_s;
        for (sum, more) in self.joules.iter_mut().zip(other.joules) {
            *sum += more;
        }
    }
}

/// The candidates of a task.
#[derive(Clone, Debug, Default, Serialize)]
struct Labels {
    task: String,
    key: String,
    strategy: String,
    target: String,
    machine: String,
    /// By the names of labels.
    kinds: BTreeMap<&'static str, Kind>,
    failures: BTreeMap<&'static str, u64>,
    /// Candidates whose runs did not count joules.
    without_joules: u64,
    estimated: bool,
    #[serde(skip)]
    picture: String,
}

impl Labels {
    fn all(&self) -> Kind {
        let mut all = Kind::default();
        self.kinds.values().for_each(|kind| all.add(kind));
        all
    }

    fn add(&mut self, other: &Labels) {
        for (name, kind) in &other.kinds {
            self.kinds.entry(name).or_default().add(kind);
        }
        for (outcome, n) in &other.failures {
            *self.failures.entry(outcome).or_default() += n;
        }
        self.without_joules += other.without_joules;
        self.estimated |= other.estimated;
    }

    /// The share of a label in what `of` counts, such as `26%`; under both curves if they differ.
    fn shares(&self, label: Label, of: &[fn(&Kind) -> f64]) -> String {
        let all = self.all();
        let kind = self.kinds.get(label.name()).cloned().unwrap_or_default();
        let share = |of: &fn(&Kind) -> f64| match of(&all) > 0.0 {
            true => format!("{:.0}%", 100.0 * of(&kind) / of(&all)),
            false => "-".into(),
        };
        let mut shares: Vec<String> = of.iter().map(share).collect();
        shares.dedup();
        shares.join(" or ")
    }
}

const JOULES: [fn(&Kind) -> f64; 2] = [|k| k.joules[0], |k| k.joules[1]];

/// What runs said of the joules of a second of CPU time, under each curve, and whether that is
/// estimated.
pub(super) type Rates = BTreeMap<String, ([f64; 2], bool)>;

pub(super) fn rates(o: &Opened) -> Rates {
    let of_run = |(id, run): (&String, &store::Run)| {
        let energy = Energy::of_run(run)?;
        let rate = |i: usize| energy.by.get(i).map(|m| m.joules_per_cpu_s);
        let first = rate(0)?;
        Some((
            id.clone(),
            ([first, rate(1).unwrap_or(first)], energy.estimated),
        ))
    };
    o.runs.iter().filter_map(of_run).collect()
}

/// A record as labels count it; none if it tells no latency and no failure.
pub(super) fn taken(r: &Record, rates: &Rates) -> Option<Taken> {
    let answered = !matches!(
        r.outcome,
        Outcome::Scored { .. }
            | Outcome::Skipped { .. }
            | Outcome::Unanswered { .. }
            | Outcome::Unknown(_)
    );
    if r.final_ || !answered || !MEASURING.contains(&r.evaluator.as_str()) {
        return None;
    }
    let s = &r.spent;
    let stages = [&s.search, &s.build, &s.load, &s.measure, &s.check];
    let cpu_ns: u64 = stages.iter().filter_map(|t| t.cpu_ns).sum();
    let rate = rates.get(&r.run_id);
    Some(Taken {
        latency_ns: r.outcome.median_ns().map(|ns| ns as f64),
        outcome: r.outcome.label(),
        wall_s: stages.iter().map(|t| t.wall_ns).sum::<u64>() as f64 / 1e9,
        joules: rate.map(|(each, _)| each.map(|j| j * cpu_ns as f64 / 1e9)),
        estimated: rate.is_some_and(|(_, estimated)| *estimated),
    })
}

/// Labels the candidates of a group, which are in the order of trials.
fn labels(a: &Args, o: &Opened, group: &Group, all: &[Taken]) -> Result<Labels> {
    let latencies: Vec<Option<f64>> = all.iter().map(|t| t.latency_ns).collect();
    let found = label(&latencies, a.fraction, a.passes).map_err(|e| Error::new(e.to_string()))?;
    let (task, target, machine, strategy) = group.clone();
    let mut labels = Labels {
        task: o.title(&task),
        key: task,
        strategy,
        target,
        machine,
        picture: picture(&latencies, &found),
        ..Labels::default()
    };
    for (taken, label) in all.iter().zip(&found.labels) {
        let one = Kind {
            candidates: 1,
            wall_s: taken.wall_s,
            joules: taken.joules.unwrap_or_default(),
        };
        labels.kinds.entry(label.name()).or_default().add(&one);
        labels.without_joules += u64::from(taken.joules.is_none());
        labels.estimated |= taken.estimated;
        if *label == Label::Failed {
            *labels.failures.entry(taken.outcome).or_default() += 1;
        }
    }
    Ok(labels)
}

/// Latencies over trials with the usual one; failures are at the lower end.
pub(super) fn picture(latencies: &[Option<f64>], found: &search::Labelled) -> String {
    let least = latencies
        .iter()
        .flatten()
        .copied()
        .fold(f64::INFINITY, f64::min);
    if least.is_infinite() {
        return String::new();
    }
    let ms = |ns: f64| ns / 1e6;
    let points = |(label, colour): (Label, &'static str)| {
        let own = found
            .labels
            .iter()
            .enumerate()
            .filter(|(_, l)| **l == label);
        let at = own.map(|(i, _)| (i as f64, ms(latencies[i].unwrap_or(least * 0.9))));
        Points {
            colour,
            at: at.collect(),
        }
    };
    let kinds = [
        (Label::Hot, "#2da44e"),
        (Label::Cold, "#1f6feb"),
        (Label::Failed, "#cf222e"),
    ];
    // A line may dip below every latency, where a logarithm has no place for it.
    let usual = found.usual.iter().map(|ns| ms(ns.max(least)));
    let line: Vec<(f64, f64)> = usual.enumerate().map(|(i, v)| (i as f64, v)).collect();
    scatter(&kinds.map(points), &line, ["trial", "ms"])
}

pub fn run(a: &Args) -> Result<()> {
    let o = Opened::new(&a.select.store)?;
    let rates = rates(&o);
    let mut groups: BTreeMap<Group, Vec<Taken>> = BTreeMap::new();
    a.select.visit(&o, |r| {
        if let Some(taken) = taken(&r, &rates) {
            let group = (r.task, r.target, r.machine, r.strategy);
            groups.entry(group).or_default().push(taken);
        }
    })?;
    let tasks = groups.iter().map(|(group, all)| labels(a, &o, group, all));
    let mut tasks: Vec<Labels> = tasks.collect::<Result<_>>()?;
    tasks.sort_by(|a, b| b.all().wall_s.total_cmp(&a.all().wall_s));
    let mut total = Labels {
        task: "all tasks".into(),
        ..Labels::default()
    };
    tasks.iter().for_each(|t| total.add(t));
    if let Some(path) = &a.plot {
        let out = Output::new(path, PAGE, a.select.store.files()?)?;
        out.write_bytes(page(&tasks, &total).as_bytes())?;
    }
    if a.json {
        return super::print_json(&serde_json::json!({
            "fraction": a.fraction, "passes": a.passes, "total": total, "tasks": tasks,
        }));
    }
    table(&o, &tasks, &total)?;
    for note in notes(&total) {
        super::print_line(&note)?;
    }
    Ok(())
}

const HEADER: [&str; 11] = [
    "task",
    "strategy",
    "tried",
    "hot",
    "cold",
    "failed",
    "time cold",
    "time failed",
    "J cold",
    "J failed",
    "J",
];

fn row(title: &str, l: &Labels) -> Vec<String> {
    let all = l.all();
    let candidates: &[fn(&Kind) -> f64] = &[|k| k.candidates as f64];
    let time: &[fn(&Kind) -> f64] = &[|k| k.wall_s];
    let mut row = vec![
        title.to_string(),
        l.strategy.clone(),
        all.candidates.to_string(),
    ];
    row.extend(Label::ALL.map(|label| l.shares(label, candidates)));
    let taken = [Label::Cold, Label::Failed];
    row.extend(taken.map(|label| l.shares(label, time)));
    row.extend(taken.map(|label| l.shares(label, &JOULES)));
    let mut used = all.joules.map(joules).to_vec();
    used.dedup();
    row.push(match l.without_joules < all.candidates {
        true => used.join(" or "),
        false => "-".into(),
    });
    row
}

fn table(o: &Opened, tasks: &[Labels], total: &Labels) -> Result<()> {
    let mut t = Table::new(&HEADER).dispensable(&["strategy", "hot", "J failed", "J cold"]);
    let titles = o.short_titles(tasks.iter().map(|l| &l.key));
    for l in tasks {
        t.row(row(&titles[&l.key], l));
    }
    t.row(row(&total.task, total));
    super::print_text(&t.text())
}

/// What a reader needs to know of the figures.
fn notes(total: &Labels) -> Vec<String> {
    let mut notes = vec![
        "cold: slower than was usual when it was tried, by a LOESS curve of each task, strategy and machine; \
         joules are those above idle"
            .to_string(),
    ];
    if total.estimated {
        notes.push("joules are estimated under two curves of power, from CPU time".into());
    }
    if total.without_joules > 0 {
        let n = total.without_joules;
        notes.push(format!(
            "{n} candidates are of runs that did not count joules"
        ));
    }
    let failures = total
        .failures
        .iter()
        .map(|(outcome, n)| format!("{n} {outcome}"));
    let failures: Vec<String> = failures.collect();
    if !failures.is_empty() {
        notes.push(format!("failed: {}", failures.join(", ")));
    }
    notes
}

fn page(tasks: &[Labels], total: &Labels) -> String {
    let mut page = Page::new("Hot, cold and failed candidates");
    for note in notes(total) {
        page.note(&note);
    }
    let all = tasks.iter().chain([total]);
    let rows: Vec<Vec<String>> = all.map(|l| row(&l.task, l)).collect();
    page.table(&HEADER, &rows);
    page.note(
        "Pictures: green is hot, blue is cold, red at the lower end failed; the line is what was usual.",
    );
    for l in tasks {
        page.heading(&format!("{} ({})", l.task, l.strategy));
        page.picture(&l.picture);
    }
    page.done()
}
