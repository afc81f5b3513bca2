//! Tuners of recorded tables, each on a machine of its own: a survey against all of them to their ends (Trimmer, section IV-C).
//!
//! Owns when the answers of finished searches come under a budget, and what the machines draw until then. Answers are
//! *replayed*. Joules are *modelled*: a machine keeps one CPU busy while its tuner works, and idles while it waits at a barrier. A machine
//! whose tuner is suspended or at its end is given back and draws nothing.

use crate::cold::GOALS;
use crate::row::mean;
pub use crate::saving::Saving;
use crate::saving::saving;
use crate::strategies::{Cell, Recording, median};
use measure::energy::PowerCurve;
use search::{Budget, Spending, Standing, SurveyRule, WholeModel};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::Range;
use tune::{Error, Result};

/// The budget that the others are compared with: every tuner to its end, all side by side.
pub const PARALLEL: &str = "parallel";
/// The budgets that are compared. Turns of `gradient` follow each other on one machine.
pub const BUDGETS: [&str; 3] = [PARALLEL, SURVEY, GRADIENT];
const SURVEY: &str = "survey";
const GRADIENT: &str = "gradient";

/// What all tables together are called.
pub const ALL: &str = "all tables";

/// A finished search, as a budget sees it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Number of its table among those of the group.
    pub table: usize,
    pub name: String,
    /// The median of the table over its least cost, which stands for the default implementation.
    pub start: f64,
    /// Of each answer the cost over the least of the table, if it has one, and the seconds of the search until then.
    pub answers: Vec<(Option<f64>, f64)>,
}

impl Job {
    fn seconds(&self, answers: usize) -> f64 {
        answers.checked_sub(1).map_or(0.0, |i| self.answers[i].1)
    }

    /// The number of the best of so many answers, if one has a cost.
    fn best(&self, answers: usize) -> Option<(usize, f64)> {
        let costs = self.answers[..answers].iter().enumerate();
        let costs = costs.filter_map(|(i, (cost, _))| Some((i, (*cost)?)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn standing(&self, number: usize, answers: usize) -> Standing {
        let best = self.best(answers);
        let since = best.map_or(answers, |(i, _)| answers - 1 - i);
        Standing {
            best: best.map(|(_, cost)| cost),
            guess: self.start,
            bound: 1.0,
            uses: 1,
            weight: 1.0,
            operations: 0.0,
            family: number,
            asked: answers as u64,
            trials: answers as u64,
            sketches: 1,
            since_best: since as u64,
            trial_ns: 1e9 * self.seconds(answers) / answers.max(1) as f64,
            open: answers < self.answers.len(),
        }
    }

    fn whole(&self, number: usize, answers: usize) -> WholeModel {
        let best = self.best(answers).map_or(self.start, |(_, cost)| cost);
        WholeModel {
            cost: best.min(self.start),
            searches: vec![number],
            suffices: false,
            work: self.seconds(answers),
        }
    }
}

/// Answers of jobs that come side by side.
#[derive(Clone, Debug, PartialEq)]
struct Round {
    parts: Vec<(usize, Range<usize>)>,
    /// Whether machines wait for the slowest at its end.
    waits: bool,
}

/// What becomes of the jobs of a group under a budget, and why it ended if it is a survey.
fn rounds(jobs: &[Job], name: &str, rule: SurveyRule) -> (Vec<Round>, Option<&'static str>) {
    if name == PARALLEL {
        let parts = jobs.iter().map(|j| 0..j.answers.len()).enumerate();
        let parts = parts.collect();
        let round = Round {
            parts,
            waits: false,
        };
        return (vec![round], None);
    }
    let mut budget = search::budget(name, rule).expect("these budgets exist");
    let (mut at, mut rounds) = (vec![0; jobs.len()], Vec::new());
    let batches = vec![rule.trials; jobs.len()];
    loop {
        let numbered = || jobs.iter().zip(&at).enumerate();
        let standings: Vec<Standing> = numbered().map(|(i, (j, n))| j.standing(i, *n)).collect();
        let waits = budget.survey().is_some();
        if let Some(survey) = budget.survey() {
            let models: Vec<WholeModel> = numbered().map(|(i, (j, n))| j.whole(i, *n)).collect();
            let spending = Spending {
                spent: models.iter().map(|m| m.work).sum(),
                fresh: at.iter().sum::<usize>() as u64,
                known: 0,
            };
            if let Some(end) = survey.measured(&models, spending, &standings).ended {
                return (rounds, Some(end.name()));
            }
        }
        let parts = turns(&mut *budget, &standings, &batches, waits);
        if parts.is_empty() {
            return (rounds, None);
        }
        let part = |(job, asks): (usize, usize)| {
            let from = at[job];
            at[job] = (from + asks).min(jobs[job].answers.len());
            (job, from..at[job])
        };
        let parts = parts.into_iter().map(part).collect();
        rounds.push(Round { parts, waits });
    }
}

/// The jobs of the next round and the answers that they may have: all of an epoch, or one.
fn turns(
    budget: &mut dyn Budget,
    standings: &[Standing],
    batches: &[usize],
    all: bool,
) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    while let Some(turn) = budget.turn(standings, batches) {
        parts.push((turn.search, turn.asks));
        if !all {
            break;
        }
    }
    parts
}

/// A moment at which a latency fell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moment {
    pub s: f64,
    /// Of all machines until then, under each curve.
    pub joules: [f64; 2],
    /// Least cost so far over the least of the table; of several tables the geometric mean.
    pub cost: f64,
}

/// What a tuner reached by the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reached {
    pub answers: usize,
    /// None before the first one.
    pub cost: Option<f64>,
    /// Whether it had a batch in the epoch.
    pub ran: bool,
}

/// The jobs of a group under a budget.
#[derive(Clone, Debug, Serialize)]
pub struct Surveyed {
    pub budget: &'static str,
    pub filters: Vec<String>,
    /// The table, or all of them.
    pub tables: String,
    pub seed: u64,
    pub tuners: Vec<String>,
    /// From the start to the end, which is the last one.
    pub moments: Vec<Moment>,
    pub answers: usize,
    /// Why a survey ended.
    pub ended: Option<&'static str>,
    /// Of each epoch of a survey each tuner.
    pub epochs: Vec<Vec<Reached>>,
}

impl Surveyed {
    fn last(&self) -> &Moment {
        self.moments
            .last()
            .expect("it has its start and its end at least")
    }

    /// Joules until a latency, under each curve; none if it was not reached.
    pub fn joules_to(&self, cost: f64) -> Option<[f64; 2]> {
        let reached = self.moments.iter().find(|m| m.cost <= cost * (1.0 + 1e-12));
        reached.map(|m| m.joules)
    }
}

/// The moments of rounds; the last one is their end.
fn moments(jobs: &[Job], rounds: &[Round], curves: &[PowerCurve; 2]) -> Vec<Moment> {
    let tables = jobs.iter().map(|j| j.table + 1).max().unwrap_or(0);
    let start = |t: usize| jobs.iter().find(|j| j.table == t).map_or(1.0, |j| j.start);
    let mut best: Vec<f64> = (0..tables).map(start).collect();
    let cost = |best: &[f64]| best.iter().map(|c| c.ln()).sum::<f64>() / best.len().max(1) as f64;
    let mut all = vec![Moment {
        s: 0.0,
        joules: [0.0; 2],
        cost: cost(&best).exp(),
    }];
    let (mut before_s, mut before_j) = (0.0, [0.0; 2]);
    for round in rounds {
        let begun = |(job, part): &(usize, Range<usize>)| jobs[*job].seconds(part.start);
        let taken = |p: &(usize, Range<usize>)| jobs[p.0].seconds(p.1.end) - begun(p);
        let length = round.parts.iter().map(taken).fold(0.0, f64::max);
        let joules = |s: f64| -> [f64; 2] {
            let one = |curve: &PowerCurve, before: f64| {
                let part = |p: &(usize, Range<usize>)| {
                    let waited = if round.waits {
                        (s - taken(p)).max(0.0)
                    } else {
                        0.0
                    };
                    curve.watts(1.0) * s.min(taken(p)) + curve.idle_w() * waited
                };
                before + round.parts.iter().map(part).sum::<f64>()
            };
            [one(&curves[0], before_j[0]), one(&curves[1], before_j[1])]
        };
        let mut events: Vec<(f64, usize, f64)> = Vec::new();
        for p in &round.parts {
            let job = &jobs[p.0];
            let answers = job.answers[p.1.clone()].iter();
            events.extend(answers.filter_map(|(c, s)| Some((s - begun(p), job.table, (*c)?))));
        }
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (s, table, found) in events {
            if found < best[table] {
                best[table] = found;
                all.push(Moment {
                    s: before_s + s,
                    joules: joules(s),
                    cost: cost(&best).exp(),
                });
            }
        }
        (before_s, before_j) = (before_s + length, joules(length));
    }
    all.push(Moment {
        s: before_s,
        joules: before_j,
        cost: cost(&best).exp(),
    });
    all
}

/// What each tuner reached by the end of each round.
fn epochs(jobs: &[Job], rounds: &[Round]) -> Vec<Vec<Reached>> {
    let mut at = vec![0; jobs.len()];
    let one = |round: &Round| {
        let mut ran = vec![false; jobs.len()];
        for (job, part) in &round.parts {
            (at[*job], ran[*job]) = (part.end, true);
        }
        let jobs = jobs.iter().zip(&at).zip(ran);
        let reached = |((job, answers), ran): ((&Job, &usize), bool)| Reached {
            answers: *answers,
            cost: job.best(*answers).map(|(_, cost)| cost),
            ran,
        };
        jobs.map(reached).collect()
    };
    rounds.iter().map(one).collect()
}

/// The jobs of a table or of all, of one seed and chain of filters.
fn jobs(tables: &[&Recording], cells: &[&Cell]) -> Result<Vec<Job>> {
    let mut all = Vec::new();
    for (table, r) in tables.iter().enumerate() {
        let least = r.table.best().and_then(|(_, row)| row.outcome.cost());
        let least = least.map_or(f64::NAN, |c| c.value());
        for c in cells.iter().filter(|c| c.table == r.name) {
            if c.seconds.len() != c.costs.len() {
                let why = format!("{}: its answers have no times", r.name);
                return Err(Error::new(why)
                    .help("joules are modelled by times: name tables whose rows have them"));
            }
            let costs = c.costs.iter().map(|cost| cost.map(|c| c / least));
            all.push(Job {
                table,
                name: match tables.len() {
                    1 => c.strategy.clone(),
                    _ => format!("{} {}", r.name, c.strategy),
                },
                start: median(&r.table) / least,
                answers: costs.zip(c.seconds.iter().copied()).collect(),
            });
        }
    }
    Ok(all)
}

/// Replays the budgets on finished searches: each table alone, and where there are several, all of them as one cluster.
///
/// # Errors
/// If the answers of a table have no times.
pub fn survey(
    recordings: &[Recording],
    cells: &[Cell],
    rule: SurveyRule,
    curves: &[PowerCurve; 2],
) -> Result<Vec<Surveyed>> {
    let mut groups: Vec<(String, Vec<&Recording>)> = recordings
        .iter()
        .map(|r| (r.name.clone(), vec![r]))
        .collect();
    if recordings.len() > 1 {
        groups.push((ALL.into(), recordings.iter().collect()));
    }
    let mut chains: Vec<&Vec<String>> = Vec::new();
    for c in cells {
        if !chains.contains(&&c.filters) {
            chains.push(&c.filters);
        }
    }
    let seeds: BTreeSet<u64> = cells.iter().map(|c| c.seed).collect();
    let mut all = Vec::new();
    for (name, tables) in &groups {
        for (chain, seed) in chains
            .iter()
            .flat_map(|c| seeds.iter().map(move |s| (c, s)))
        {
            let own = |c: &&Cell| c.filters == **chain && c.seed == *seed;
            let own: Vec<&Cell> = cells.iter().filter(own).collect();
            let jobs = jobs(tables, &own)?;
            for budget in BUDGETS {
                let (rounds, ended) = rounds(&jobs, budget, rule);
                let answers = rounds.iter().flat_map(|r| &r.parts);
                all.push(Surveyed {
                    budget,
                    filters: (*chain).clone(),
                    tables: name.clone(),
                    seed: *seed,
                    tuners: jobs.iter().map(|j| j.name.clone()).collect(),
                    moments: moments(&jobs, &rounds, curves),
                    answers: answers.map(|(_, part)| part.len()).sum(),
                    ended,
                    epochs: match budget == SURVEY {
                        true => epochs(&jobs, &rounds),
                        false => vec![],
                    },
                });
            }
        }
    }
    Ok(all)
}

/// A budget under a chain of filters on one table or on all, over seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    pub tables: String,
    pub budget: &'static str,
    pub filters: Vec<String>,
    pub searches: usize,
    pub answers: f64,
    /// In the geometric mean: final latency over the least, and joules under each curve.
    pub final_cost: f64,
    pub joules: [f64; 2],
    /// Of joules to the end, and until the latency that both this budget and `parallel` reach, under each curve.
    pub saved: [Saving; 2],
    pub saved_at_equal_latency: [Saving; 2],
    /// Of each goal the seeds that reached it, and their joules in the geometric mean.
    pub to: Vec<(usize, Option<[f64; 2]>)>,
}

/// What each budget under each chain saved over every tuner to its end without filters, or under the first chain.
pub fn compared(all: &[Surveyed]) -> Vec<Compared> {
    let mut kinds: Vec<Vec<&Surveyed>> = Vec::new();
    for s in all {
        let same = |k: &&mut Vec<&Surveyed>| {
            let of = |s: &Surveyed| (s.tables.clone(), s.budget, s.filters.clone());
            of(k[0]) == of(s)
        };
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.push(s),
            None => kinds.push(vec![s]),
        }
    }
    let base = |s: &Surveyed| {
        let same = |b: &&Surveyed| (&b.tables, b.seed, b.budget) == (&s.tables, s.seed, PARALLEL);
        all.iter().find(same).expect("every group has one")
    };
    kinds.iter().map(|kind| of_kind(kind, base)).collect()
}

fn of_kind<'a>(kind: &[&'a Surveyed], base: impl Fn(&Surveyed) -> &'a Surveyed) -> Compared {
    let first = kind[0];
    let geometric = |of: &dyn Fn(&Surveyed) -> f64| {
        mean(kind.iter().map(|s| of(s).ln())).map_or(f64::NAN, f64::exp)
    };
    let saved = |of: &dyn Fn(&Surveyed, &Surveyed) -> [f64; 2]| {
        [0, 1].map(|curve| {
            let one = |s: &&Surveyed| {
                let b = base(s);
                (of(s, b)[curve] / of(b, s)[curve]).ln()
            };
            saving(&kind.iter().map(one).collect::<Vec<f64>>())
        })
    };
    let equal = |s: &Surveyed, other: &Surveyed| {
        let worse = s.last().cost.max(other.last().cost);
        s.joules_to(worse).expect("it ends below this")
    };
    let to = |goal: f64| {
        let reached: Vec<[f64; 2]> = kind.iter().filter_map(|s| s.joules_to(goal)).collect();
        let curve = |c: usize| mean(reached.iter().map(|j| j[c].ln())).map(f64::exp);
        (reached.len(), curve(0).zip(curve(1)).map(|(a, b)| [a, b]))
    };
    Compared {
        tables: first.tables.clone(),
        budget: first.budget,
        filters: first.filters.clone(),
        searches: kind.len(),
        answers: mean(kind.iter().map(|s| s.answers as f64)).unwrap_or(0.0),
        final_cost: geometric(&|s| s.last().cost),
        joules: [0, 1].map(|curve| geometric(&|s| s.last().joules[curve])),
        saved: saved(&|s, _| s.last().joules),
        saved_at_equal_latency: saved(&equal),
        to: GOALS.map(to).to_vec(),
    }
}

#[cfg(test)]
mod tests;
