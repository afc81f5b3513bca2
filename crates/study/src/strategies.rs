//! Strategies, filters and budgets compared on recorded tables, without hardware.
//!
//! Owns how a table is searched again and again: every strategy under every chain of
//! filters, with several seeds. All answers are *replayed*: what a strategy finds is
//! a fact about the table, and the time that the search takes is this machine's.

use crate::area::{Baseline, answers, budgets};
use crate::finished::Finished;
use crate::row::mean;
use crate::trimmed::{Answered, Trimmed};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Extra, MEASURING, Outcome, RecordQuery, Store, Table, TargetKey};
use tune::evaluator::{Batch, Evaluator, Recorded, Reply, space_of};
use tune::filter::{Chance, Cold};
use tune::{
    AnswerPlace, Error, Form, Log, Observer, Options, Result, Run, Search, SearchParts, Silent,
    StopRule,
};

/// A table to be searched.
pub struct Recording {
    pub name: String,
    pub table: Arc<Table>,
}

/// What is compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub strategies: Vec<String>,
    /// Chains of filters, by name; the empty chain is none.
    pub chains: Vec<Vec<String>>,
    pub seeds: u64,
    pub length: Length,
    /// Share that the filter `chance` drops; none is the share that `cold` dropped in the same search, if it is compared.
    pub chance: Option<f64>,
}

/// Answered candidates of each search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Length {
    Trials(u64),
    /// Of the rows of its table.
    Share(f64),
}

/// One search of one table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub table: String,
    pub strategy: String,
    pub filters: Vec<String>,
    pub seed: u64,
    /// Candidates that had an answer, that had no row, and that filters dropped.
    pub answered: u64,
    pub missing: u64,
    pub skipped: u64,
    /// The least cost after so many answers, over the least cost of the table: 1 is the
    /// optimum. None where no answer was a cost.
    pub regret: Vec<(u64, Option<f64>)>,
    /// After each budget that it reached, as [`crate::area`] scores it.
    #[serde(default)]
    pub scores: Vec<f64>,
    pub trimmed: Trimmed,
    /// Cost of each answer in their order; none of failures.
    pub costs: Vec<Option<f64>>,
    /// Of each answer the seconds until then: what answers took when they were recorded, and what the search itself took.
    /// Nothing of a table without times.
    #[serde(default)]
    pub seconds: Vec<f64>,
    /// What the search itself took.
    pub wall_s: f64,
}

impl Cell {
    /// The least cost of the table, if an answer was a cost.
    pub(crate) fn optimum(&self) -> Option<f64> {
        let least = self.costs.iter().flatten().copied().reduce(f64::min)?;
        Some(least / self.regret.last()?.1?)
    }

    fn dropped_share(&self) -> f64 {
        let proposed = self.answered + self.missing + self.skipped;
        self.skipped as f64 / proposed.max(1) as f64
    }
}

/// Answers after which the best so far is noted.
const MARKS: [u64; 9] = [5, 10, 20, 50, 100, 200, 500, 1000, 2000];

/// Notes the costs of answers in their order.
struct Noted {
    recorded: Recorded,
    answered: Rc<RefCell<Vec<Answered>>>,
    /// Seconds of the search itself until each answer.
    searched: Rc<RefCell<Vec<f64>>>,
    begun: Instant,
}

impl Evaluator for Noted {
    fn name(&self) -> &'static str {
        self.recorded.name()
    }

    fn form(&self) -> Form {
        self.recorded.form()
    }

    fn score_kind(&self, task: &str) -> Option<String> {
        self.recorded.score_kind(task)
    }

    fn batch(&self) -> usize {
        self.recorded.batch()
    }

    fn submit(&mut self, batch: Batch) {
        self.recorded.submit(batch);
    }

    fn poll(&mut self, wait: Duration, quiet: &mut dyn FnMut(bool)) -> Option<Reply> {
        let reply = self.recorded.poll(wait, quiet)?;
        let answered = reply
            .answers
            .iter()
            .filter(|a| !matches!(a.outcome, Outcome::Unanswered { .. }));
        let answered = answered.map(|a| Answered {
            cost: a.outcome.cost().map(|c| c.value()),
            seconds: match a.spent.cpu_ns {
                0 => a.spent.wall_ns as f64 / 1e9,
                ns => ns as f64 / 1e9,
            },
        });
        let mut all = self.answered.borrow_mut();
        all.extend(answered);
        let until = self.begun.elapsed().as_secs_f64();
        self.searched.borrow_mut().resize(all.len(), until);
        Some(reply)
    }
}

/// A store for replayed answers alone.
///
/// # Errors
/// If it holds anything that was measured.
pub fn replay_store(store: &Store) -> Result<()> {
    for evaluator in MEASURING {
        let measured = RecordQuery {
            evaluator: Some(evaluator),
            ..RecordQuery::default()
        };
        let mut any = false;
        store.visit_records(&measured, |_, _| {
            any = true;
            Ok(())
        })?;
        if any {
            return Err(Error::new("the store holds measured records")
                .help("replayed answers have a store of their own: name another file with --log"));
        }
    }
    Ok(())
}

/// Searches every table as the comparison says; what is finished already is not searched
/// again.
///
/// # Errors
/// If there is no such strategy or filter, or what is finished cannot be written.
pub fn compare(
    recordings: &[Recording],
    comparison: &Comparison,
    log: Option<&Store>,
    finished: &mut Finished<Cell>,
    observer: &mut dyn Observer,
) -> Result<()> {
    let of_table = comparison.strategies.len() * comparison.chains.len();
    let all = recordings.len() * of_table * comparison.seeds as usize;
    let mut done = 0;
    let mut chains = comparison.chains.clone();
    chains.sort_by_key(|chain| chain.iter().any(|name| name == Chance::NAME));
    for r in recordings {
        let Some((_, best)) = r.table.best() else {
            let why = format!("{}: no row of the table has a cost", r.name);
            return Err(Error::new(why).help("leave the table out"));
        };
        let best = best.outcome.cost().map_or(f64::NAN, |c| c.value());
        let baseline = Baseline::of(&r.table).expect("its best row has a cost");
        let scale = (best, median(&r.table), &baseline);
        for strategy in &comparison.strategies {
            for chain in &chains {
                for seed in 1..=comparison.seeds {
                    done += 1;
                    let what = format!("{}: {strategy} {} #{seed}", r.name, chain.join(","));
                    observer.part(done as f64 / all as f64, &what);
                    let same = |c: &Cell| {
                        (&c.table, &c.strategy, &c.filters, c.seed)
                            == (&r.name, strategy, chain, seed)
                    };
                    if !finished.entries.iter().any(same) {
                        let mut options = options(r, comparison, strategy, chain, seed);
                        let cold = finished.entries.iter().find(|c| {
                            let of_cold = c.filters == [Cold::NAME];
                            of_cold && (&c.table, &c.strategy, c.seed) == (&r.name, strategy, seed)
                        });
                        let share = comparison.chance.or(cold.map(Cell::dropped_share));
                        options.chance = share.unwrap_or(options.chance);
                        finished.add(cell(r, scale, &options, log)?)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn options(r: &Recording, c: &Comparison, strategy: &str, chain: &[String], seed: u64) -> Options {
    let trials = match c.length {
        Length::Trials(n) => n,
        Length::Share(share) => answers(share, r.table.len()),
    };
    Options {
        strategy: strategy.to_string(),
        filters: chain.to_vec(),
        seed,
        ..Options::new(1, 1, StopRule::Trials(trials))
    }
}

/// The median of a table's costs.
pub(crate) fn median(table: &Table) -> f64 {
    let costs = table.iter().filter_map(|(_, row)| row.outcome.cost());
    let mut costs: Vec<f64> = costs.map(|c| c.value()).collect();
    let middle = costs.len() / 2;
    costs.sort_by(f64::total_cmp);
    costs.get(middle).copied().unwrap_or(f64::NAN)
}

/// Searches a table once, whose least cost, median and baseline are given.
fn cell(
    r: &Recording,
    (best, median, baseline): (f64, f64, &Baseline),
    options: &Options,
    log: Option<&Store>,
) -> Result<Cell> {
    let target = TargetKey {
        triple: "recorded".into(),
        cpu: "-".into(),
        features: vec![],
        caches: Default::default(),
        threads: 1,
        extra: Extra::new(),
    };
    let place = AnswerPlace {
        target: target.text(),
        machine: "recorded".into(),
    };
    let key: Arc<str> = format!("table {}", r.name).into();
    let run_id = match log {
        Some(store) => begin(store, r, &key, &target, options)?,
        None => String::new(),
    };
    let mut run = Run::new(Log { store: log }, options)?;
    let answered = Rc::new(RefCell::new(Vec::new()));
    let searched = Rc::new(RefCell::new(Vec::new()));
    let start = Instant::now();
    let evaluator = run.add_evaluator(Box::new(Noted {
        recorded: Recorded::new([(key.clone(), r.table.clone())], place.clone()),
        answered: answered.clone(),
        searched: searched.clone(),
        begun: start,
    }));
    let parts = SearchParts {
        facts: None,
        title: r.name.clone(),
        run_id: run_id.clone().into(),
        key: key.to_string(),
        uses: 1,
        evaluator,
        place: Arc::new(place),
        subject: None,
        space: space_of(&r.table),
        strategy: options.strategy.clone(),
        seed: options.seed,
        rotate_bytes: 0,
        guess: best,
        bound: 0.0,
    };
    run.add_searches(vec![Search::new(parts, options)?]);
    run.search(None, &mut Silent)?;
    let wall_s = start.elapsed().as_secs_f64();
    let search = &run.searches[0];
    let missing = search.failures.get("unanswered").copied().unwrap_or(0);
    let answered = answered.borrow();
    let costs: Vec<Option<f64>> = answered.iter().map(|a| a.cost).collect();
    let cell = Cell {
        table: r.name.clone(),
        strategy: options.strategy.clone(),
        filters: options.filters.clone(),
        seed: options.seed,
        answered: search.trials,
        missing,
        skipped: search.skipped.values().sum(),
        regret: regret(&costs, best),
        scores: baseline.scores(&costs),
        trimmed: Trimmed::of(&answered, best, median)?,
        costs,
        seconds: seconds(&answered, &searched.borrow()),
        wall_s,
    };
    if let Some(store) = log {
        let summary = serde_json::json!({ "replayed": cell });
        store.end_run(&run_id, tune::unix_ms(), &summary)?;
    }
    Ok(cell)
}

/// The seconds until each answer, if the answers have times.
fn seconds(answered: &[Answered], searched: &[f64]) -> Vec<f64> {
    let mut answers = 0.0;
    let until = answered.iter().zip(searched).map(|(a, searched)| {
        answers += a.seconds;
        answers + searched
    });
    let until: Vec<f64> = until.collect();
    if answers > 0.0 { until } else { vec![] }
}

/// The least cost after so many answers over the least cost of all, at every mark and at the
/// end.
fn regret(costs: &[Option<f64>], best: f64) -> Vec<(u64, Option<f64>)> {
    let end = costs.len() as u64;
    let marks = MARKS.into_iter().filter(|m| *m < end).chain([end]);
    let least = |n: u64| {
        costs[..n as usize]
            .iter()
            .flatten()
            .copied()
            .reduce(f64::min)
    };
    marks.map(|n| (n, least(n).map(|c| c / best))).collect()
}

/// Begins the run of a cell in the store; its key.
fn begin(
    store: &Store,
    r: &Recording,
    key: &str,
    target: &TargetKey,
    options: &Options,
) -> Result<String> {
    store.put_task(&store::Task {
        key: key.to_string(),
        text: format!("; a recorded table: {}", r.table.source()),
        op: "table".into(),
        args: Default::default(),
        flops: 0.0,
        bytes: 0,
        extra: Extra::new(),
    })?;
    store.put_target(target)?;
    store.put_machine(&store::MachineKey {
        fingerprint: "recorded".into(),
        description: "answers are replayed from recorded tables".into(),
        extra: Extra::new(),
    })?;
    let started_unix_ms = tune::unix_ms();
    let chain = options.filters.join("+");
    let name = (&r.name, &options.strategy, options.seed);
    let run_id = format!(
        "{started_unix_ms}-replayed-{}-{}-{chain}-{}",
        name.0, name.1, name.2
    );
    store.begin_run(&store::Run {
        run_id: run_id.clone(),
        model: r.name.clone(),
        options: options.stored(1),
        strategy: options.strategy.clone(),
        seed: options.seed,
        started_unix_ms,
        ended_unix_ms: None,
        summary: serde_json::Value::Null,
        extra: Extra::new(),
    })?;
    Ok(run_id)
}

/// What a strategy under a chain of filters reached, over tables and seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub strategy: String,
    pub filters: Vec<String>,
    pub searches: usize,
    /// Geometric mean, at every mark that all searches reached, of the least cost over the
    /// optimum.
    pub regret: Vec<(u64, f64)>,
    /// The mean score after each budget that all searches reached, and the mean over all budgets if they reached all.
    pub scores: Vec<(f64, f64)>,
    pub score: Option<f64>,
    /// Share of searches that found the optimum.
    pub optimal: f64,
    /// Share of the proposed candidates that had no row, and that filters dropped.
    pub missing: f64,
    pub skipped: f64,
    /// Proposed candidates a second of search.
    pub answers_per_s: f64,
}

impl Summary {
    /// The score after the budget that is nearest to a share of the rows, if all searches reached that.
    pub fn score_at(&self, share: f64) -> Option<f64> {
        let far = |at: f64| (at - share).abs();
        let (i, _) = budgets()
            .enumerate()
            .min_by(|a, b| far(a.1).total_cmp(&far(b.1)))?;
        self.scores.get(i).map(|(_, score)| *score)
    }
}

/// A strategy, a chain and their searches.
pub(crate) type Kind<'a> = (&'a String, &'a Vec<String>, Vec<&'a Cell>);

/// Every strategy and chain, in the order in which they came.
pub(crate) fn kinds(cells: &[Cell]) -> Vec<Kind<'_>> {
    let mut kinds: Vec<Kind<'_>> = Vec::new();
    for c in cells {
        let own = |k: &&mut Kind<'_>| (k.0, k.1) == (&c.strategy, &c.filters);
        match kinds.iter_mut().find(own) {
            Some(kind) => kind.2.push(c),
            None => kinds.push((&c.strategy, &c.filters, vec![c])),
        }
    }
    kinds
}

/// One summary for each strategy and chain, in the order in which they came.
pub fn summaries(cells: &[Cell]) -> Vec<Summary> {
    let summary = |(strategy, filters, own): Kind<'_>| {
        let at = |mark: u64| -> Option<f64> {
            let one = |c: &&Cell| c.regret.iter().find(|(n, _)| *n == mark)?.1;
            let logs: Option<Vec<f64>> = own.iter().map(|c| Some(one(c)?.ln())).collect();
            Some(mean(logs?.into_iter())?.exp())
        };
        let mut marks: Vec<u64> = own
            .iter()
            .flat_map(|c| &c.regret)
            .map(|(n, _)| *n)
            .collect();
        marks.sort_unstable();
        marks.dedup();
        let score = |(i, share): (usize, f64)| {
            let all: Option<Vec<f64>> = own.iter().map(|c| c.scores.get(i).copied()).collect();
            Some((share, mean(all?.into_iter())?))
        };
        let scores: Vec<(f64, f64)> = budgets().enumerate().map_while(score).collect();
        let whole = scores.len() == budgets().count();
        let sum = |of: fn(&Cell) -> u64| own.iter().map(|c| of(c)).sum::<u64>() as f64;
        let proposed = sum(|c| c.answered + c.missing + c.skipped).max(1.0);
        let optimal = |c: &&&Cell| c.regret.last().is_some_and(|(_, r)| *r == Some(1.0));
        Summary {
            strategy: strategy.clone(),
            filters: filters.clone(),
            searches: own.len(),
            regret: marks
                .into_iter()
                .filter_map(|m| Some((m, at(m)?)))
                .collect(),
            score: mean(scores.iter().map(|(_, s)| *s)).filter(|_| whole),
            scores,
            optimal: own.iter().filter(optimal).count() as f64 / own.len() as f64,
            missing: sum(|c| c.missing) / proposed,
            skipped: sum(|c| c.skipped) / proposed,
            answers_per_s: proposed / own.iter().map(|c| c.wall_s).sum::<f64>().max(1e-9),
        }
    };
    kinds(cells).into_iter().map(summary).collect()
}
