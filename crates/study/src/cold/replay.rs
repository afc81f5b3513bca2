//! One search of the recorded candidates of a task.
//!
//! Candidates come in batches. What a rule drops costs only the looking and is asked for again, as in a run. When every recorded
//! candidate was asked for, those that were dropped are measured in their order, so that every search reaches every goal.
//!
//! The rules are those of the filter `cold`, but not the filter itself. Each candidate is looked at once for all searches, and the
//! control by chance draws from the same numbers. A filter would place every candidate anew in each of many searches.

use super::table::{Row, Table};
use super::{GOALS, Rule};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use search::{Context, Label, Point, Strategy, Told, label};
use store::Outcome;
use tune::filter::{Cold, ColdRule, FRACTION, PASSES, Promise};
use tune::{Error, Result};

/// Candidates of a batch, as many as a run with one builder asks for at a time, and how often dropped ones are asked for again within it.
pub(super) const BATCH: usize = 2;
const AGAIN: usize = 3;

/// What one search did.
pub struct Searched {
    /// Seconds until each goal.
    pub until: [f64; GOALS.len()],
    /// Of all candidates the share that was dropped, and of these the share that is cold or failed.
    pub dropped: f64,
    pub right: f64,
    /// The least latency of those that were kept, over the least of all; none if none was kept.
    pub kept: Option<f64>,
}

/// What asks for rows of a table.
enum Asker {
    /// An order of rows.
    Order(Vec<usize>),
    /// A strategy, whose points stand for the nearest rows that were not asked for.
    Strategy(Box<dyn Strategy + Send>),
}

/// The name of the order of the records, which is no strategy's name: those of one strategy follow those of another.
pub const RECORDED: &str = "recorded";

impl Asker {
    fn new(name: &str, rows: usize, rng: &mut Pcg64Mcg) -> Result<Asker> {
        let mut order: Vec<usize> = (0..rows).collect();
        match name {
            RECORDED => {}
            "random" => order.shuffle(rng),
            _ => {
                let found = search::strategy(name, rng.random());
                let none = || Error::new(format!("there is no strategy `{name}`"));
                return Ok(Asker::Strategy(found.ok_or_else(none)?));
            }
        }
        order.reverse();
        Ok(Asker::Order(order))
    }
}

/// By how much two points differ: at most 1 for each decision.
fn difference(a: &Point, b: &Point) -> f64 {
    if a.sketch != b.sketch {
        return f64::INFINITY;
    }
    let pairs = a.values.iter().zip(&b.values);
    let one = |(a, b): (&u64, &u64)| match a.abs_diff(*b) {
        0 => 0.0,
        steps => 1.0 - 1.0 / (1.0 + steps as f64),
    };
    pairs.map(one).sum()
}

struct Search<'a> {
    table: &'a Table,
    asker: Asker,
    /// Rows that were not asked for.
    left: Vec<usize>,
    /// Rows in the order of their answers, and the seconds so far.
    told: Vec<usize>,
    spent: f64,
    until: [Option<f64>; GOALS.len()],
}

impl Search<'_> {
    fn ask(&mut self, n: usize) -> Vec<usize> {
        let n = n.min(self.left.len());
        let asked = match &mut self.asker {
            Asker::Order(order) => order.split_off(order.len() - n).into_iter().rev().collect(),
            Asker::Strategy(strategy) => {
                let context = Context::of(&self.table.space);
                let mut left = self.left.clone();
                let mut take = |p: &Point| {
                    let far = |row: &usize| difference(p, &self.table.rows[*row].point);
                    let nearest =
                        (0..left.len()).min_by(|a, b| far(&left[*a]).total_cmp(&far(&left[*b])));
                    nearest.map(|at| left.swap_remove(at))
                };
                let mut asked: Vec<usize> = strategy
                    .ask(&context, n)
                    .iter()
                    .filter_map(&mut take)
                    .collect();
                // A strategy that has nothing more to ask for leaves the other rows in their order.
                if asked.is_empty() {
                    asked = left[..n].to_vec();
                }
                asked
            }
        };
        self.left.retain(|row| !asked.contains(row));
        self.spent += asked
            .iter()
            .map(|row| self.table.rows[*row].ask_s)
            .sum::<f64>();
        asked
    }

    fn tell(&mut self, row: usize, outcome: &Outcome, cost: Option<f64>) {
        if let Asker::Strategy(strategy) = &mut self.asker {
            strategy.tell(&Told {
                point: &self.table.rows[row].point,
                outcome,
                cost,
            });
        }
    }

    fn measure(&mut self, rows: Vec<usize>) {
        for row in rows {
            let r = &self.table.rows[row];
            self.spent += r.seconds;
            for (goal, until) in GOALS.iter().zip(&mut self.until) {
                if until.is_none()
                    && r.latency_ns
                        .is_some_and(|ns| ns <= goal * self.table.least_ns)
                {
                    *until = Some(self.spent);
                }
            }
            let outcome = Outcome::Scored {
                kind: "replayed".into(),
                value: r.latency_ns.unwrap_or(0.0),
            };
            self.tell(row, &outcome, r.latency_ns);
            self.told.push(row);
        }
    }

    fn least(&self) -> Option<f64> {
        let told = self
            .told
            .iter()
            .filter_map(|row| self.table.rows[*row].latency_ns);
        Some(told.reduce(f64::min)? / self.table.least_ns)
    }
}

/// What a rule knows before a batch.
enum Judge<'a> {
    Keep,
    Chance(f64),
    /// Chance, and the order of corrected predictions.
    Ordered(f64, Promise),
    Bad,
    /// The answers of the search and whether they are bad.
    Neighbours(usize, Vec<(&'a Row, bool)>),
    Promise(f64, Promise),
}

impl<'a> Judge<'a> {
    fn new(rule: &Rule, s: &Search<'a>) -> Result<Judge<'a>> {
        let known = &s.told[..Cold::known_of(s.told.len())];
        let rows = known.iter().map(|row| &s.table.rows[*row]);
        let promise = || {
            let timed = rows.clone();
            Promise::of(timed.filter_map(|r| Some((r.at.clone(), r.predicted, r.latency_ns?.ln()))))
        };
        Ok(match rule {
            Rule::None => Judge::Keep,
            Rule::Chance(share) => Judge::Chance(*share),
            Rule::Ordered(share) => Judge::Ordered(*share, promise()),
            Rule::Oracle => Judge::Bad,
            Rule::Cold(ColdRule::Neighbours(least)) => {
                let costs: Vec<Option<f64>> = rows.clone().map(|r| r.latency_ns).collect();
                let labels =
                    label(&costs, FRACTION, PASSES).map_err(|e| Error::new(e.to_string()))?;
                let bad = labels.labels.into_iter().map(|l| l != Label::Hot);
                Judge::Neighbours(*least, rows.zip(bad).collect())
            }
            Rule::Cold(ColdRule::Above(most)) => Judge::Promise(*most, promise()),
            Rule::Cold(ColdRule::Best(_)) => Judge::Promise(f64::INFINITY, promise()),
        })
    }

    fn drops(&self, r: &Row, rng: &mut Pcg64Mcg) -> bool {
        match self {
            Judge::Keep => false,
            Judge::Chance(share) | Judge::Ordered(share, _) => rng.random_bool(*share),
            Judge::Bad => r.bad,
            Judge::Neighbours(least, told) => {
                rng.random_bool(ColdRule::Neighbours(*least).looks())
                    && r.known
                        .with(&r.at, told.iter().map(|(t, bad)| (&t.at[..], *bad)))
                        >= *least
            }
            Judge::Promise(most, promise) => {
                let above = promise.above_fastest(&r.at, r.predicted);
                rng.random_bool(ColdRule::Above(*most).looks())
                    && above.is_some_and(|above| above > *most)
            }
        }
    }

    /// Puts those first that are predicted to be fast, as the filter does.
    fn sort(&self, rows: &[Row], batch: &mut [usize]) {
        if !matches!(self, Judge::Keep | Judge::Chance(_) | Judge::Bad) {
            batch.sort_by(|a, b| self.score(&rows[*a]).total_cmp(&self.score(&rows[*b])));
        }
    }

    fn score(&self, r: &Row) -> f64 {
        match self {
            Judge::Promise(_, promise) | Judge::Ordered(_, promise) => {
                let above = promise.above_fastest(&r.at, r.predicted);
                above.unwrap_or(r.predicted)
            }
            _ => r.predicted,
        }
    }
}

/// Searches a table once.
///
/// # Errors
/// If there is no such strategy.
pub fn search(table: &Table, strategy: &str, rule: &Rule, seed: u64) -> Result<Searched> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let asker = Asker::new(strategy, table.rows.len(), &mut rng)?;
    let mut s = Search {
        table,
        asker,
        left: (0..table.rows.len()).collect(),
        told: vec![],
        spent: 0.0,
        until: [None; GOALS.len()],
    };
    let mut dropped: Vec<usize> = Vec::new();
    let skipped = Outcome::Skipped {
        filter: Cold::NAME.into(),
    };
    while !s.left.is_empty() {
        let judge = Judge::new(rule, &s)?;
        let mut batch = Vec::new();
        for _ in 0..=AGAIN {
            if batch.len() == BATCH {
                break;
            }
            let mut asked = s.ask((BATCH - batch.len()) * rule.pool());
            s.spent += rule.look_s(table) * asked.len() as f64;
            judge.sort(&table.rows, &mut asked);
            let most = asked.len().div_ceil(rule.pool());
            for (place, row) in asked.into_iter().enumerate() {
                match place >= most || judge.drops(&table.rows[row], &mut rng) {
                    true => {
                        s.tell(row, &skipped, None);
                        dropped.push(row);
                    }
                    false => batch.push(row),
                }
            }
        }
        judge.sort(&table.rows, &mut batch);
        s.measure(batch);
    }
    let kept = s.least();
    let bad = dropped.iter().filter(|row| table.rows[**row].bad).count();
    let share = dropped.len() as f64 / table.rows.len() as f64;
    let right = bad as f64 / dropped.len().max(1) as f64;
    s.measure(dropped);
    Ok(Searched {
        until: s
            .until
            .map(|until| until.expect("the least latency is within every goal")),
        dropped: share,
        right,
        kept,
    })
}
