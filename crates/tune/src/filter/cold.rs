//! Candidates that look like cold ones are dropped (Trimmer, Algorithm 1).
//!
//! A candidate is *cold* if it takes longer than the trend of its search at that time
//! ([`search::label`]). A network learns costs from the decisions; what its second
//! layer gives out says which candidates are alike. A new candidate is dropped if most of its nearest
//! known ones are cold or failed. A network that was trained before on other tasks knows more: with it, a candidate is
//! dropped if it is predicted to be slower than the fastest one ([`Promise`]), unless Trimmer's rule is asked for. How often it is looked at falls with every network: at first most
//! candidates are bad, and later the strategy knows better.

use super::draws::Draws;
use super::promise::Promise;
use super::rule::ColdRule;
use super::trained::{Decided, Facts, Trained};
use super::{Filter, Verdict};
use crate::trial::{Form, Trial};
use crate::watch::Watch;
use learn::{EmbeddedNetwork, Mixed, NamedRow};
use search::{Context, Label, Point, Space, Told, label};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use store::Outcome;

/// Told candidates before the first network; those before predictions of a network that was trained before are corrected for the first
/// time; and the growth after which the next one is made.
const LEAST_TOLD: usize = 32;
const LEAST_CORRECTED: usize = 8;
const GROWTH: f64 = 0.2;
/// Nearest known candidates, and how many of them have to be bad. Trimmer asks for all of them, and does not say how
/// many there are (ADR 0041).
pub(crate) const NEAREST: usize = 10;
pub(crate) const LEAST_BAD: usize = 8;
/// How labels are made: the observations that a line of the trend is fitted to, and its robust passes.
pub const FRACTION: f64 = 2.0 / 3.0;
pub const PASSES: u32 = 3;
/// By how much less often a candidate is looked at under each next network, and how often at least.
const LOOKS_FALL: f64 = 0.7;
const LEAST_LOOKS: f64 = 0.05;
/// Values of a decision that are told apart.
const MOST_VALUES: usize = 256;

#[derive(Debug)]
pub struct Cold {
    draws: Draws,
    seed: u64,
    /// In the order in which they were told, with the cost; none of one that failed.
    told: Vec<(Point, Option<f64>)>,
    network: Option<Known>,
    /// A network that was trained before on other searches, and what is known of this one.
    trained: Option<(Arc<Trained>, Arc<Facts>)>,
    /// What such a network has dropped.
    rule: ColdRule,
    /// Told candidates before it does anything.
    least: usize,
    /// How many told candidates the next network waits for, and how many networks were due before.
    next: usize,
    due: i32,
    learning_cpu_ns: u64,
}

/// Where a known candidate is.
#[derive(Clone, Debug)]
pub struct Place {
    /// Of length 1, or empty.
    pub at: Vec<f64>,
    pub bad: bool,
    /// For people.
    pub name: String,
}

/// What places candidates.
#[derive(Debug)]
enum Placing {
    /// A network of this search.
    Own {
        columns: Columns,
        network: EmbeddedNetwork,
    },
    Trained(Arc<Trained>, Arc<Facts>),
}

impl Placing {
    /// Where a candidate is, and what puts those first that are predicted to be fast: the same for all if the network is of this search.
    fn look(&self, p: &Point, space: &Space) -> (Vec<f64>, f64) {
        match self {
            Placing::Own { columns, network } => (direction(network.place(&columns.row(p))), 0.0),
            Placing::Trained(trained, facts) => trained.look(&row(facts, p, space)),
        }
    }
}

/// What is said of a candidate to a network that was trained before.
fn row(facts: &Facts, p: &Point, space: &Space) -> NamedRow {
    let decisions = space.decisions(p);
    let choice = |(d, index): (&'_ schedule::Decision, &u64)| Decided {
        name: d.name.clone(),
        index: *index,
        value: d.value.clone(),
    };
    let choices = decisions.iter().zip(&p.values).map(choice);
    facts.row(&space.sketches[p.sketch].name, choices)
}

/// A network and what it says of told candidates.
#[derive(Debug)]
enum Known {
    /// Where each of them is, and of how many bad nearest ones a candidate is dropped.
    Placed {
        placing: Placing,
        places: Vec<Place>,
        least_bad: usize,
    },
    /// How its predictions are to be corrected, and above how many deviations it has a candidate dropped.
    Predicted {
        trained: Arc<Trained>,
        facts: Arc<Facts>,
        promise: Promise,
        most: f64,
    },
}

/// One category for the sketch, and one for each decision by its name.
#[derive(Clone, Debug)]
struct Columns {
    /// Of each sketch the category of each decision.
    of: Vec<Vec<usize>>,
    cardinalities: Vec<usize>,
}

impl Columns {
    fn of(space: &Space) -> Columns {
        let mut named: HashMap<&str, usize> = HashMap::new();
        let mut cardinalities = vec![space.sketches.len()];
        let mut of = Vec::new();
        for s in &space.sketches {
            let mut columns = Vec::new();
            for d in &s.decisions {
                let column = *named.entry(&d.name).or_insert_with(|| {
                    cardinalities.push(0);
                    cardinalities.len() - 1
                });
                // One more for sketches that do not have the decision.
                let values = 1 + (d.cardinality() as usize).min(MOST_VALUES);
                cardinalities[column] = cardinalities[column].max(values);
                columns.push(column);
            }
            of.push(columns);
        }
        Columns { of, cardinalities }
    }

    fn row(&self, p: &Point) -> Mixed {
        let mut categories: Vec<usize> = self.cardinalities.iter().map(|n| n - 1).collect();
        categories[0] = p.sketch;
        for (column, value) in self.of[p.sketch].iter().zip(&p.values) {
            categories[*column] = (*value as usize).min(MOST_VALUES - 1);
        }
        Mixed {
            categories,
            numbers: vec![],
        }
    }
}

impl Known {
    /// Learns from told candidates; none if too few of them have a cost.
    fn of(told: &[(Point, Option<f64>)], space: &Space, seed: u64, least: usize) -> Option<Known> {
        let columns = Columns::of(space);
        let timed = told
            .iter()
            .filter_map(|(p, cost)| Some((columns.row(p), (*cost)?.ln())));
        let (rows, costs): (Vec<Mixed>, Vec<f64>) = timed.unzip();
        if rows.len() < least {
            return None;
        }
        let network = EmbeddedNetwork::trained(&rows, &columns.cardinalities, &costs, seed).ok()?;
        Known::placed(Placing::Own { columns, network }, told, space, LEAST_BAD)
    }

    fn placed(
        placing: Placing,
        told: &[(Point, Option<f64>)],
        space: &Space,
        least_bad: usize,
    ) -> Option<Known> {
        let costs: Vec<Option<f64>> = told.iter().map(|(_, cost)| *cost).collect();
        let labels = label(&costs, FRACTION, PASSES).ok()?.labels;
        let places = told.iter().zip(labels).enumerate();
        let place = |(n, ((p, _), label)): (usize, (&(Point, _), Label))| Place {
            at: placing.look(p, space).0,
            bad: label != Label::Hot,
            name: format!("answer {n}"),
        };
        let places = places.map(place).collect();
        Some(Known::Placed {
            placing,
            places,
            least_bad,
        })
    }

    /// With a network that was trained before, on answers of this search.
    fn predicted(
        (trained, facts): (&Arc<Trained>, &Arc<Facts>),
        told: &[(Point, Option<f64>)],
        space: &Space,
        most: f64,
    ) -> Known {
        let timed = told.iter().filter_map(|(p, cost)| {
            let (at, predicted) = trained.look(&row(facts, p, space));
            Some((at, predicted, (*cost)?.ln()))
        });
        Known::Predicted {
            trained: trained.clone(),
            facts: facts.clone(),
            promise: Promise::of(timed),
            most,
        }
    }

    /// What becomes of candidates. One that is not looked at is kept.
    fn judge(&self, candidates: &[(&Point, bool)], space: &Space) -> Vec<Verdict> {
        let verdict = |(why, score): (Option<String>, f64)| {
            why.map_or(Verdict::Keep { score }, |why| Verdict::Drop { why })
        };
        match self {
            Known::Placed {
                placing,
                places,
                least_bad,
            } => {
                let place = |(p, looked): &(&Point, bool)| {
                    let (at, score) = placing.look(p, space);
                    (if *looked { at } else { vec![] }, score)
                };
                let (at, scores): (Vec<Vec<f64>>, Vec<f64>) = candidates.iter().map(place).unzip();
                let before = match placing {
                    Placing::Own { .. } => at.iter().map(|_| vec![]).collect(),
                    Placing::Trained(trained, _) => trained.nearest(&at),
                };
                let whys = at.iter().zip(before).map(|(at, before)| {
                    bad_neighbours(&nearest(at, places.iter(), before)?, *least_bad)
                });
                whys.zip(scores).map(verdict).collect()
            }
            Known::Predicted {
                trained,
                facts,
                promise,
                most,
            } => {
                let one = |(p, looked): &(&Point, bool)| {
                    let (at, predicted) = trained.look(&row(facts, p, space));
                    let above = promise.above_fastest(&at, predicted);
                    let dropped = above.filter(|above| *looked && above > most);
                    let why = |above| format!("predicted {above:.1} deviations above the fastest");
                    verdict((dropped.map(why), above.unwrap_or(predicted)))
                };
                candidates.iter().map(one).collect()
            }
        }
    }
}

/// Of each `pool` that are kept, the one with the least score.
fn best_of(pool: usize, mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    if pool == 1 {
        return verdicts;
    }
    let score = |v: &Verdict| match v {
        Verdict::Keep { score } => *score,
        Verdict::Drop { .. } => f64::INFINITY,
    };
    let mut order: Vec<usize> = (0..verdicts.len()).collect();
    order.sort_by(|a, b| score(&verdicts[*a]).total_cmp(&score(&verdicts[*b])));
    for (place, at) in order.into_iter().enumerate() {
        if place >= verdicts.len().div_ceil(pool) {
            let why = format!("place {} of {} predictions", place + 1, verdicts.len());
            verdicts[at] = Verdict::Drop { why };
        }
    }
    verdicts
}

/// The names of the bad ones of a candidate's nearest known ones, if at least so many are.
fn bad_neighbours(nearest: &[(f64, &Place)], least: usize) -> Option<String> {
    (bad(nearest) >= least).then(|| {
        let mut text = "like".to_string();
        for (likeness, place) in nearest.iter().filter(|(_, k)| k.bad) {
            // Writing to a text does not fail.
            let _ = write!(text, " {} ({likeness:.3})", place.name);
        }
        text
    })
}

/// How many candidates the next network waits for.
fn after(known: usize, least: usize) -> usize {
    least.max(known + (known as f64 * GROWTH).ceil() as usize)
}

/// How many places are those of cold and failed candidates.
pub(crate) fn bad(nearest: &[(f64, &Place)]) -> usize {
    nearest.iter().filter(|(_, k)| k.bad).count()
}

/// The nearest places with their likeness, of known ones and the nearest ones of others; none if there are too few, or the own one is nowhere.
pub(crate) fn nearest<'a>(
    own: &[f64],
    known: impl Iterator<Item = &'a Place>,
    others: Vec<(f64, &'a Place)>,
) -> Option<Vec<(f64, &'a Place)>> {
    if own.is_empty() {
        return None;
    }
    let likeness = |at: &[f64]| own.iter().zip(at).map(|(a, b)| a * b).sum::<f64>();
    let known = known.filter(|k| !k.at.is_empty());
    let mut alike: Vec<(f64, &Place)> = known.map(|k| (likeness(&k.at), k)).collect();
    alike.extend(others);
    if alike.len() < NEAREST {
        return None;
    }
    alike.sort_by(|a, b| b.0.total_cmp(&a.0));
    alike.truncate(NEAREST);
    Some(alike)
}

/// The direction of what a network's second layer gives out; empty if that is 0.
pub(crate) fn direction(mut place: Vec<f64>) -> Vec<f64> {
    let length = place.iter().map(|v| v * v).sum::<f64>().sqrt();
    match length > 0.0 {
        true => place.iter_mut().for_each(|v| *v /= length),
        false => place.clear(),
    }
    place
}

impl Cold {
    pub const NAME: &str = "cold";
    /// How often a candidate is looked at under the first network of a search, or by its neighbours.
    pub const LOOKS: f64 = 0.9;

    /// For the search of a task with a seed. With a network that was trained before, the filter works from the
    /// first batch on, or from the first answers on, and the rule says what it drops. `least` answers are waited for, if it is given.
    pub fn new(
        task: &str,
        seed: u64,
        trained: Option<(Arc<Trained>, Arc<Facts>)>,
        rule: ColdRule,
        least: Option<usize>,
    ) -> Cold {
        let least = match trained {
            Some(_) => least.unwrap_or(0),
            // Nothing can be learnt from no answer.
            None => least.unwrap_or(LEAST_TOLD).max(1),
        };
        Cold {
            draws: Draws::new(Cold::NAME, task, seed),
            seed,
            told: vec![],
            network: None,
            least,
            next: least,
            trained,
            rule,
            due: 0,
            learning_cpu_ns: 0,
        }
    }

    /// Makes the network that is due. It knows the first candidates that were told, as many as it waited for. So it
    /// is the same whether the candidates were told one by one or at once, as to a run that goes on.
    fn learn(&mut self, space: &Space) {
        let mut due = None;
        while self.told.len() >= self.next {
            due = Some(self.next);
            self.next = self.after(self.next);
            self.due += 1;
        }
        let Some(known) = due else {
            return;
        };
        let watch = Watch::start();
        let told = &self.told[..known];
        let made = match (&self.trained, self.rule) {
            (Some((trained, facts)), ColdRule::Above(most)) => {
                Some(Known::predicted((trained, facts), told, space, most))
            }
            (Some((trained, facts)), ColdRule::Best(_)) => {
                let most = f64::INFINITY;
                Some(Known::predicted((trained, facts), told, space, most))
            }
            (Some((trained, facts)), ColdRule::Neighbours(least_bad)) => {
                let placing = Placing::Trained(trained.clone(), facts.clone());
                Known::placed(placing, told, space, least_bad)
            }
            (None, _) => Known::of(told, space, self.seed, self.least.min(LEAST_TOLD) / 2),
        };
        if let Some(made) = made {
            self.network = Some(made);
        }
        self.learning_cpu_ns += watch.spent().cpu_ns;
    }

    /// How many candidates the network after the one of so many waits for.
    fn after(&self, known: usize) -> usize {
        match self.trained {
            Some(_) => after(known, LEAST_CORRECTED),
            None => after(known, self.least),
        }
    }

    /// Of so many told candidates, those that a network which was trained before knows.
    pub fn known_of(told: usize) -> usize {
        let (mut known, mut next) = (0, LEAST_CORRECTED);
        while next <= told {
            known = next;
            next = after(known, LEAST_CORRECTED);
        }
        known
    }

    /// Whether it waits for answers.
    fn is_off(&self) -> bool {
        self.network.is_none() && self.told.len() < self.next
    }

    /// How often a candidate is looked at.
    fn looks(&self) -> f64 {
        // A network that was trained before stays the same.
        if self.trained.is_some() {
            return self.rule.looks();
        }
        let falls = (self.due - 1).max(0);
        (Cold::LOOKS * LOOKS_FALL.powi(falls)).max(LEAST_LOOKS)
    }
}

impl Filter for Cold {
    fn name(&self) -> &'static str {
        Cold::NAME
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn pool(&self) -> usize {
        // Without a network of other tasks nothing is predicted.
        match self.trained.is_some() && !self.is_off() {
            true => self.rule.pool(),
            false => 1,
        }
    }

    fn judge(&mut self, context: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        self.learn(context.space);
        let looks = self.looks();
        let looked = |t: &'_ Trial| self.draws.picks(&t.point, looks);
        let verdicts = match &self.network {
            Some(known) => {
                let candidates = trials.iter().map(|t| (&t.point, looked(t)));
                known.judge(&candidates.collect::<Vec<_>>(), context.space)
            }
            None => vec![Verdict::Keep { score: 0.0 }; trials.len()],
        };
        best_of(self.pool(), verdicts)
    }

    fn learning_cpu_ns(&self) -> u64 {
        self.learning_cpu_ns
    }

    fn tell(&mut self, told: &Told<'_>) {
        // That nobody answered says nothing of the candidate.
        if matches!(told.outcome, Outcome::Unanswered { .. }) {
            return;
        }
        let cost = told.cost.filter(|c| c.is_finite() && *c > 0.0);
        self.told.push((told.point.clone(), cost));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{context, space, trial};
    use super::*;

    /// Told all points of the table with an even second value: cold where the first value is odd.
    fn told(cost: impl Fn(u64) -> Option<f64>) -> Cold {
        let mut filter = Cold::new("task", 3, None, ColdRule::NEIGHBOURS, None);
        let outcome = Outcome::Scored {
            kind: "test".into(),
            value: 0.0,
        };
        for b in (0..8).step_by(2) {
            for a in 0..9 {
                filter.tell(&Told {
                    point: &trial(0, [a, b]).point,
                    outcome: &outcome,
                    cost: cost(a),
                });
            }
        }
        filter
    }

    /// Of 16 new candidates with an odd or an even first value, those that are dropped.
    fn dropped(filter: &mut Cold, odd: u64) -> usize {
        let space = space();
        let trials: Vec<Trial> = (0..16)
            .map(|n| trial(n, [odd + 2 * (n / 4), 1 + 2 * (n % 4)]))
            .collect();
        let verdicts = filter.judge(&context(&space), &trials);
        verdicts
            .into_iter()
            .filter(|v| matches!(v, Verdict::Drop { .. }))
            .count()
    }

    #[test]
    fn candidates_like_cold_or_failed_ones_are_dropped_most_of_the_time() {
        let odd = |a: u64| a % 2 == 1;
        let costs: [&dyn Fn(u64) -> Option<f64>; 2] = [
            &|a| Some(if odd(a) { 50.0 } else { 1.0 + a as f64 * 0.01 }),
            &|a| (!odd(a)).then_some(1.0 + a as f64 * 0.01),
        ];
        let mut cold = told(costs[0]);
        assert_eq!(cold.learning_cpu_ns(), 0);
        assert!(dropped(&mut cold, 1) >= 9);
        let learning_ns = cold.learning_cpu_ns();
        assert!(learning_ns > 0);
        assert!(dropped(&mut cold, 0) <= 2);
        // No further answer came, so it made no further network.
        assert_eq!(cold.learning_cpu_ns(), learning_ns);
        // What failed has no cost, and is near what failed by its sketch and decisions alone.
        let mut failed = told(costs[1]);
        assert!(dropped(&mut failed, 0) <= 4);
    }

    #[test]
    fn of_each_pool_the_candidate_with_the_least_score_is_kept() {
        let kept = |pool: usize, scores: &[f64]| -> Vec<usize> {
            let verdicts = scores.iter().map(|score| Verdict::Keep { score: *score });
            let verdicts = best_of(pool, verdicts.collect());
            let is_kept = |at: &usize| matches!(verdicts[*at], Verdict::Keep { .. });
            (0..scores.len()).filter(is_kept).collect()
        };
        assert_eq!(kept(4, &[3.0, 1.0, 2.0, 4.0, 0.5, 6.0, 7.0, 8.0]), [1, 4]);
        // A part of a pool is one.
        assert_eq!(kept(4, &[3.0, 1.0, 2.0, 4.0, 0.5]), [1, 4]);
        assert_eq!(kept(1, &[3.0, 1.0]), [0, 1]);
    }

    #[test]
    fn it_waits_for_as_many_answers_as_it_is_told_to() {
        let slow = |n: u64| if n % 2 == 1 { 50.0 } else { 1.0 };
        let waits = |least: Option<usize>, answers: u64| {
            let mut filter = Cold::new("task", 3, None, ColdRule::NEIGHBOURS, least);
            let outcome = Outcome::Scored {
                kind: "test".into(),
                value: 0.0,
            };
            for n in 0..answers {
                filter.tell(&Told {
                    point: &trial(0, [n % 9, n / 9 * 2 % 8]).point,
                    outcome: &outcome,
                    cost: Some(slow(n % 9)),
                });
            }
            dropped(&mut filter, 1);
            filter.network.is_none()
        };
        assert_eq!([31, 32].map(|n| waits(None, n)), [true, false]);
        assert_eq!([15, 16].map(|n| waits(Some(16), n)), [true, false]);
        assert_eq!(
            [33, 49, 50].map(|n| waits(Some(50), n)),
            [true, true, false]
        );
        assert!(waits(Some(0), 0));
    }

    #[test]
    fn few_told_candidates_drop_nothing_and_every_network_looks_less_often() {
        let mut filter = Cold::new("task", 1, None, ColdRule::NEIGHBOURS, None);
        assert_eq!(dropped(&mut filter, 1), 0);
        let looks = |due| {
            Cold {
                due,
                ..Cold::new("task", 1, None, ColdRule::NEIGHBOURS, None)
            }
            .looks()
        };
        assert_eq!(looks(1), 0.9);
        assert!((looks(2) - 0.63).abs() < 1e-9);
        assert_eq!(looks(40), LEAST_LOOKS);
    }
}
