//! The network of the filter `cold`, trained on what a store knows of many tasks, targets and models (Trimmer, section IV-B).
//!
//! Owns what is said of a candidate: its operator and arguments, its operations, its algorithm and decisions, its
//! target and machine; and which records are bad. It learns the logarithm of the latency over the mean of its
//! search's, as searches are told apart by their tasks anyway.

use super::cold::{FRACTION, LEAST_BAD, NEAREST, PASSES, Place, bad, direction, nearest};
use crate::error::{Error, Result};
use crate::record;
use crate::watch::Watch;
use learn::{Directions, LoadError, NamedNetwork, NamedRow};
use search::{Label, label};
use std::collections::{BTreeMap, HashMap};
use store::{Arg, MEASURING, Outcome, Record, RecordQuery, SpentByStage, Store, TargetKey, Task};

/// How rows are made; a network is of one version.
const VERSION: u32 = 2;

/// Candidates of a batch when a search is replayed.
const BATCH: usize = 16;

/// Nearest known candidates of which the filter `cold` counts the bad ones, and how many of these make it drop one.
pub const RULE: (usize, usize) = (NEAREST, LEAST_BAD);

/// What all candidates of a search have in common.
#[derive(Clone, Debug)]
pub struct Facts {
    pub task: Task,
    pub target: TargetKey,
    pub machine: String,
}

/// The choice of one decision.
pub struct Decided {
    pub name: String,
    pub index: u64,
    /// The integers that the index stands for; none if they are not known.
    pub value: Vec<i64>,
}

/// A word without white space.
fn word(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join("_")
}

impl Facts {
    /// What is said of a candidate: its algorithm and its choices.
    pub fn row(&self, algorithm: &str, choices: impl Iterator<Item = Decided>) -> NamedRow {
        let mut row = NamedRow::default();
        let mut say = |name: &str, text: &str| row.words.insert(word(name), word(text));
        say("op", &self.task.op);
        say("algorithm", algorithm);
        say("cpu", &self.target.cpu);
        say("machine", &self.machine);
        let log = |n: f64| n.abs().ln_1p();
        let mut count = |name: String, n: f64| row.numbers.insert(word(&name), log(n));
        for choice in choices {
            say(&format!("knob:{}", choice.name), &choice.index.to_string());
            for (i, n) in choice.value.iter().enumerate() {
                count(format!("knob:{}.{i}", choice.name), *n as f64);
            }
        }
        for (name, arg) in &self.task.args {
            if let Arg::Int(n) = arg {
                count(format!("arg:{name}"), *n as f64);
            }
        }
        count("flops".into(), self.task.flops);
        count("bytes".into(), self.task.bytes as f64);
        count("threads".into(), f64::from(self.target.threads));
        for (name, bytes) in &self.target.caches {
            count(format!("cache:{name}"), *bytes as f64);
        }
        for (name, fact) in &self.target.extra {
            if let Some(n) = fact.as_f64() {
                count(format!("target:{name}"), n);
            }
        }
        row
    }
}

/// A candidate that a store knows.
pub struct Example {
    pub row: NamedRow,
    /// Key of its task, and the number of its search.
    pub task: String,
    pub search: usize,
    /// Its run and number.
    pub name: String,
    /// Logarithm of its latency over the mean of its search's; none of one that failed.
    pub cost: Option<f64>,
    /// Whether it is cold or failed.
    pub bad: bool,
    /// Its algorithm and decisions, for those who replay its search.
    pub algorithm: String,
    pub decisions: Vec<store::Decision>,
    /// Target and machine.
    pub place: String,
    /// None of one that failed.
    pub latency_ns: Option<f64>,
    /// CPU time of getting its answer, and the part of that which passed before it was built.
    pub cpu_s: f64,
    pub search_s: f64,
}

/// A record's latency, if it tells one or a failure.
fn answer(r: &Record) -> Option<Option<f64>> {
    let answered = !matches!(
        r.outcome,
        Outcome::Scored { .. }
            | Outcome::Skipped { .. }
            | Outcome::Unanswered { .. }
            | Outcome::Unknown(_)
    );
    let counts = answered && !r.final_ && MEASURING.contains(&r.evaluator.as_str());
    counts.then(|| r.outcome.median_ns().map(|ns| ns as f64))
}

fn cpu_s(spent: &SpentByStage) -> f64 {
    let s = spent;
    let stages = [&s.search, &s.build, &s.load, &s.measure, &s.check];
    stages.iter().filter_map(|s| s.cpu_ns).sum::<u64>() as f64 / 1e9
}

/// The choices of a record. The sketch is no choice of these: the algorithm says it.
fn choices(r: &Record) -> Vec<Decided> {
    let trace = schedule::parse(&r.trace).unwrap_or_default();
    let of_record = r.decisions.iter().filter(|d| d.name != record::SKETCH);
    let value = |d: &store::Decision| {
        let known = trace
            .decisions
            .iter()
            .find(|of_trace| of_trace.name == d.name);
        known.map_or(vec![], |known| known.value.clone())
    };
    of_record
        .map(|d| Decided {
            name: d.name.clone(),
            index: d.index,
            value: value(d),
        })
        .collect()
}

fn labels(costs: &[Option<f64>]) -> Result<Vec<Label>> {
    let labelled = label(costs, FRACTION, PASSES);
    Ok(labelled.map_err(|e| Error::new(e.to_string()))?.labels)
}

/// All candidates that a store knows.
///
/// # Errors
/// If the store cannot be read.
pub fn examples(store: &Store) -> Result<Vec<Example>> {
    let tasks: HashMap<String, Task> = store
        .tasks()?
        .into_iter()
        .map(|t| (t.key.clone(), t))
        .collect();
    let targets = store.targets()?.into_iter().map(|t| (t.text(), t));
    let targets: HashMap<String, TargetKey> = targets.collect();
    let mut groups: BTreeMap<[String; 4], Vec<(Record, Option<f64>)>> = BTreeMap::new();
    for r in store.records_for(&RecordQuery::default())? {
        if let Some(latency) = answer(&r) {
            let group = [&r.task, &r.target, &r.machine, &r.strategy].map(Clone::clone);
            groups.entry(group).or_default().push((r, latency));
        }
    }
    let mut all = Vec::new();
    for (search, ([task, target, machine, _], records)) in groups.into_iter().enumerate() {
        let (Some(of_task), Some(target)) = (tasks.get(&task), targets.get(&target)) else {
            continue;
        };
        let facts = Facts {
            task: of_task.clone(),
            target: target.clone(),
            machine,
        };
        let costs: Vec<Option<f64>> = records.iter().map(|(_, ns)| *ns).collect();
        let labels = labels(&costs)?;
        let logs: Vec<f64> = costs.iter().flatten().map(|ns| ns.max(1.0).ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
        for ((r, ns), label) in records.iter().zip(labels) {
            all.push(Example {
                row: facts.row(&r.algorithm, choices(r).into_iter()),
                task: task.clone(),
                search,
                name: format!("{} {}", r.run_id, r.trial),
                cost: ns.map(|ns| ns.max(1.0).ln() - mean),
                bad: label != Label::Hot,
                algorithm: r.algorithm.clone(),
                decisions: r.decisions.clone(),
                place: format!("{} {}", r.target, r.machine),
                latency_ns: *ns,
                cpu_s: cpu_s(&r.spent),
                search_s: r.spent.search.cpu_ns.unwrap_or(0) as f64 / 1e9,
            });
        }
    }
    Ok(all)
}

/// The nearest ones of the candidates that a network was trained on.
#[derive(Clone, Debug)]
pub struct Known(Vec<(f64, bool)>);

impl Known {
    /// How many of the nearest ones are bad, answers of the search itself among them: their directions, and whether they are bad.
    pub fn with<'a>(&self, at: &[f64], own: impl Iterator<Item = (&'a [f64], bool)>) -> usize {
        let likeness = |other: &[f64]| at.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
        let own = own.map(|(other, bad)| (likeness(other), bad));
        let mut all: Vec<(f64, bool)> = self.0.iter().copied().chain(own).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.truncate(NEAREST);
        all.iter().filter(|(_, bad)| *bad).count()
    }
}

/// A trained network, and where it places what a store knows.
#[derive(Debug)]
pub struct Trained {
    pub network: NamedNetwork,
    places: Vec<Place>,
    /// Where these are.
    directions: Directions,
    /// CPU time of reading its text and placing what the store knows.
    pub loading_cpu_ns: u64,
}

impl Trained {
    /// Of a network and the candidates whose neighbours new ones may be.
    fn new(network: NamedNetwork, known: &[Example]) -> Trained {
        let mut trained = Trained {
            network,
            places: vec![],
            directions: Directions::default(),
            loading_cpu_ns: 0,
        };
        trained.places = known.iter().map(|e| trained.place(e)).collect();
        trained.directions = Directions::of(trained.places.iter().map(|p| &p.at[..]));
        trained
    }

    /// The network that ships with the program (ADR 0041).
    pub fn shipped() -> Trained {
        let text = include_str!("../../models/cold.network");
        Trained::of_text(text, &[]).expect("a network of this version ships with it")
    }

    /// Of a network as [`Trained::text`] gives it.
    ///
    /// # Errors
    /// If the text is no such network.
    pub fn of_text(text: &str, known: &[Example]) -> std::result::Result<Trained, LoadError> {
        let watch = Watch::start();
        let trained = Trained::new(learn::load(text, VERSION)?, known);
        Ok(Trained {
            loading_cpu_ns: watch.spent().cpu_ns,
            ..trained
        })
    }

    /// The network as text, without what the store knows.
    pub fn text(&self) -> String {
        learn::save(&self.network, VERSION)
    }

    /// Of each candidate of a search how many of its nearest known ones are bad. Candidates come in batches, and the answers of
    /// those before a batch are known, as they are in a run.
    ///
    /// # Errors
    /// If a cost is no number.
    pub fn bad_neighbours(&self, search: &[&Example]) -> Result<Vec<usize>> {
        let mut own: Vec<Place> = Vec::new();
        let mut counts = Vec::new();
        for batch in search.chunks(BATCH) {
            let at = batch
                .iter()
                .map(|e| direction(self.network.place(&e.row)))
                .collect::<Vec<_>>();
            for (at, before) in at.iter().zip(self.nearest(&at)) {
                let found = nearest(at, own.iter(), before);
                counts.push(found.map_or(0, |found| bad(&found)));
            }
            let told = &search[..counts.len()];
            let costs: Vec<Option<f64>> = told.iter().map(|e| Some(e.cost?.exp())).collect();
            let labels = labels(&costs)?;
            own.extend(batch.iter().map(|e| self.place(e)));
            for (place, label) in own.iter_mut().zip(labels) {
                place.bad = label != Label::Hot;
            }
        }
        Ok(counts)
    }

    /// The direction of a candidate, and the logarithm of its latency over the mean of its search, as predicted.
    pub fn look(&self, row: &NamedRow) -> (Vec<f64>, f64) {
        let (place, predicted) = self.network.look(row);
        (direction(place), predicted)
    }

    /// The nearest ones, with their likeness, of what the store knows: of each of some places, which are looked up together because that is faster.
    pub(crate) fn nearest(&self, at: &[Vec<f64>]) -> Vec<Vec<(f64, &Place)>> {
        let at: Vec<&[f64]> = at.iter().map(Vec::as_slice).collect();
        let place = |(likeness, at)| (likeness, &self.places[at]);
        let found = self.directions.nearest(&at, NEAREST).into_iter();
        found
            .map(|found| found.into_iter().map(place).collect())
            .collect()
    }

    /// Of each of some places the nearest ones of what the store knows.
    pub fn known(&self, at: &[Vec<f64>]) -> Vec<Known> {
        let bad = |found: Vec<(f64, &Place)>| found.into_iter().map(|(l, p)| (l, p.bad)).collect();
        self.nearest(at)
            .into_iter()
            .map(|found| Known(bad(found)))
            .collect()
    }

    fn place(&self, e: &Example) -> Place {
        Place {
            at: direction(self.network.place(&e.row)),
            bad: e.bad,
            name: e.name.clone(),
        }
    }

    /// Trains on candidates that have a latency.
    ///
    /// # Errors
    /// If there are none.
    pub fn train(examples: &[Example], seed: u64) -> Result<Trained> {
        let timed = examples
            .iter()
            .filter_map(|e| Some((e.row.clone(), e.cost?)));
        let (rows, costs): (Vec<NamedRow>, Vec<f64>) = timed.unzip();
        let network = NamedNetwork::trained(&rows, &costs, seed).map_err(|e| {
            Error::new(format!("the network cannot be trained: {e}"))
                .help("tune something first: candidates with a time are needed")
        })?;
        Ok(Trained::new(network, examples))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cold::Cold;
    use super::super::rule::ColdRule;
    use super::super::tests::{context, space, trial};
    use super::super::{Filter, Verdict};
    use super::*;
    use std::sync::Arc;

    fn facts(m: i64) -> Facts {
        Facts {
            task: Task {
                key: format!("matmul {m}"),
                text: String::new(),
                op: "matmul".into(),
                args: [("m".to_string(), Arg::Int(m))].into(),
                flops: m as f64,
                bytes: 1,
                extra: Default::default(),
            },
            target: TargetKey {
                triple: String::new(),
                cpu: "some cpu".into(),
                features: vec![],
                caches: Default::default(),
                threads: 1,
                extra: Default::default(),
            },
            machine: "a machine".into(),
        }
    }

    fn choice((name, index): (&str, u64)) -> Decided {
        Decided {
            name: name.into(),
            index,
            value: vec![index as i64],
        }
    }

    /// Of two tasks: candidates whose first decision is odd are slow.
    fn trained() -> Trained {
        let of_task = |m| {
            let facts = facts(m);
            let points = (0..9).flat_map(|a| (0..9).map(move |b| (a, b)));
            let example = |(a, b): (u64, u64)| Example {
                row: facts.row("table", [("a", a), ("b", b)].map(choice).into_iter()),
                task: facts.task.key.clone(),
                search: 0,
                name: format!("{m} {a} {b}"),
                cost: Some(if a % 2 == 1 { 2.0 } else { -2.0 } + b as f64 * 0.01),
                bad: a % 2 == 1,
                algorithm: "table".into(),
                decisions: vec![],
                place: String::new(),
                latency_ns: None,
                cpu_s: 0.0,
                search_s: 0.0,
            };
            points.map(example).collect::<Vec<_>>()
        };
        let all = [8, 64].into_iter().flat_map(of_task).collect::<Vec<_>>();
        Trained::train(&all, 1).unwrap()
    }

    #[test]
    fn a_trained_network_drops_in_the_first_batch_and_names_neighbours() {
        let other = Arc::new(facts(32));
        let mut filter = Cold::new(
            "task",
            3,
            Some((Arc::new(trained()), other)),
            ColdRule::NEIGHBOURS,
            None,
        );
        let space = space();
        let mut dropped = |a: u64| {
            let point = |n| [a + 2 * (n / 9), n % 9];
            let trials: Vec<_> = (0..36).map(|n| trial(n, point(n))).collect();
            let verdicts = filter.judge(&context(&space), &trials);
            let reasons = verdicts.into_iter().filter_map(|v| match v {
                Verdict::Drop { why } => Some(why),
                Verdict::Keep { .. } => None,
            });
            reasons.collect::<Vec<String>>()
        };
        let cold = dropped(1);
        assert!(cold.len() >= 27, "{}", cold.len());
        assert!(cold.iter().all(|why| why.starts_with("like ")), "{cold:?}");
        assert!(dropped(0).len() <= 4);
    }

    #[test]
    fn a_filter_that_waits_asks_for_no_pool_and_keeps_all() {
        let own = (Arc::new(trained()), Arc::new(facts(32)));
        let mut filter = Cold::new("task", 3, Some(own), ColdRule::Best(4), Some(2));
        let space = space();
        let trials: Vec<_> = (0..8).map(|n| trial(n, [n, 0])).collect();
        let kept = |filter: &mut Cold| {
            let pool = filter.pool();
            let verdicts = filter.judge(&context(&space), &trials);
            let kept = verdicts
                .iter()
                .filter(|v| matches!(v, Verdict::Keep { .. }));
            (pool, kept.count())
        };
        let outcome = Outcome::Scored {
            kind: "test".into(),
            value: 0.0,
        };
        for expected in [(1, 8), (1, 8), (4, 2)] {
            assert_eq!(kept(&mut filter), expected);
            filter.tell(&search::Told {
                point: &trial(0, [0, 1]).point,
                outcome: &outcome,
                cost: Some(1.0),
            });
        }
    }

    #[test]
    fn what_is_predicted_to_be_slower_than_the_fastest_answer_is_dropped() {
        let own = (Arc::new(trained()), Arc::new(facts(32)));
        let mut filter = Cold::new("task", 3, Some(own), ColdRule::Above(1.0), None);
        let space = space();
        let outcome = Outcome::Scored {
            kind: "test".into(),
            value: 0.0,
        };
        let dropped = |filter: &mut Cold, a: u64| {
            let trials: Vec<_> = (0..36)
                .map(|n| trial(n, [a + 2 * (n / 9), n % 9]))
                .collect();
            let verdicts = filter.judge(&context(&space), &trials);
            let drops = verdicts
                .iter()
                .filter(|v| matches!(v, Verdict::Drop { .. }));
            drops.count()
        };
        assert_eq!(dropped(&mut filter, 1), 0, "nothing is known of the task");
        for n in 0..16 {
            filter.tell(&search::Told {
                point: &trial(0, [n % 8, n / 8]).point,
                outcome: &outcome,
                cost: Some(if n % 2 == 1 { 55.0 } else { 1.0 }),
            });
        }
        assert!(dropped(&mut filter, 1) >= 27);
        assert!(dropped(&mut filter, 0) <= 4);
    }

    #[test]
    fn a_network_is_read_back_from_its_text() {
        let trained = trained();
        let read = Trained::of_text(&trained.text(), &[]).unwrap();
        assert_eq!(read.network, trained.network);
        assert!(read.places.is_empty());
    }
}
