//! Candidates that look like cold ones are dropped (Trimmer, Algorithm 1).
//!
//! A candidate is *cold* if it takes longer than the trend of its search at that time
//! ([`search::label`]). A network learns costs from the decisions; what its second
//! layer gives out says which candidates are alike. A new candidate is dropped if all of its nearest
//! known ones are cold or failed. How often it is looked at falls with every network: at first most
//! candidates are bad, and later the strategy knows better.

use super::{Filter, Verdict};
use crate::trial::{Form, Trial};
use learn::{EmbeddedNetwork, Mixed};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use search::{Context, Label, Point, Space, Told, label};
use std::collections::HashMap;
use store::Outcome;

/// Told candidates before the first network, and the growth after which the next one is made.
const LEAST_TOLD: usize = 32;
const GROWTH: f64 = 0.2;
/// Nearest known candidates that all have to be bad.
const NEAREST: usize = 5;
/// How labels are made: the observations that a line of the trend is fitted to, and its robust passes.
const FRACTION: f64 = 2.0 / 3.0;
const PASSES: u32 = 3;
/// How often a candidate is looked at under the first network, by how much less under each next one, and at least.
const LOOKS: f64 = 0.9;
const LOOKS_FALL: f64 = 0.7;
const LEAST_LOOKS: f64 = 0.05;
/// Values of a decision that are told apart.
const MOST_VALUES: usize = 256;

#[derive(Debug)]
pub struct Cold {
    rng: Pcg64Mcg,
    seed: u64,
    /// In the order in which they were told, with the cost; none of one that failed.
    told: Vec<(Point, Option<f64>)>,
    network: Option<Known>,
    /// Networks made so far.
    made: i32,
}

/// A network and what it says of told candidates.
#[derive(Debug)]
struct Known {
    columns: Columns,
    network: EmbeddedNetwork,
    /// Of each told candidate its place, of length 1 or empty, and whether it is bad.
    places: Vec<(Vec<f64>, bool)>,
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
    fn of(told: &[(Point, Option<f64>)], space: &Space, seed: u64) -> Option<Known> {
        let columns = Columns::of(space);
        let timed = told
            .iter()
            .filter_map(|(p, cost)| Some((columns.row(p), (*cost)?.ln())));
        let (rows, costs): (Vec<Mixed>, Vec<f64>) = timed.unzip();
        if rows.len() < LEAST_TOLD / 2 {
            return None;
        }
        let network = EmbeddedNetwork::trained(&rows, &columns.cardinalities, &costs, seed).ok()?;
        let costs: Vec<Option<f64>> = told.iter().map(|(_, cost)| *cost).collect();
        let labels = label(&costs, FRACTION, PASSES).ok()?.labels;
        let places = told.iter().zip(labels);
        let places = places.map(|((p, _), label)| {
            let place = place(&network, &columns.row(p));
            (place, label != Label::Hot)
        });
        Some(Known {
            places: places.collect(),
            columns,
            network,
        })
    }

    /// Whether all of a candidate's nearest known ones are bad.
    fn is_cold(&self, p: &Point) -> bool {
        let own = place(&self.network, &self.columns.row(p));
        if own.is_empty() {
            return false;
        }
        let likeness = |place: &[f64]| own.iter().zip(place).map(|(a, b)| a * b).sum::<f64>();
        let known = self.places.iter().filter(|(place, _)| !place.is_empty());
        let mut alike: Vec<(f64, bool)> =
            known.map(|(place, bad)| (likeness(place), *bad)).collect();
        if alike.len() < NEAREST {
            return false;
        }
        alike.select_nth_unstable_by(NEAREST - 1, |a, b| b.0.total_cmp(&a.0));
        alike[..NEAREST].iter().all(|(_, bad)| *bad)
    }
}

/// The direction of what the network's second layer gives out; empty if that is 0.
fn place(network: &EmbeddedNetwork, row: &Mixed) -> Vec<f64> {
    let mut place = network.place(row);
    let length = place.iter().map(|v| v * v).sum::<f64>().sqrt();
    match length > 0.0 {
        true => place.iter_mut().for_each(|v| *v /= length),
        false => place.clear(),
    }
    place
}

impl Cold {
    pub const NAME: &str = "cold";

    pub fn new(seed: u64) -> Cold {
        Cold {
            rng: Pcg64Mcg::seed_from_u64(seed),
            seed,
            told: vec![],
            network: None,
            made: 0,
        }
    }

    /// Makes the network anew if there is enough that it does not know.
    fn learn(&mut self, space: &Space) {
        let known = self.network.as_ref().map_or(0, |k| k.places.len());
        let enough = LEAST_TOLD.max((known as f64 * (1.0 + GROWTH)) as usize);
        if self.told.len() < enough {
            return;
        }
        if let Some(made) = Known::of(&self.told, space, self.seed) {
            self.network = Some(made);
            self.made += 1;
        }
    }

    /// How often a candidate is looked at.
    fn looks(&self) -> f64 {
        (LOOKS * LOOKS_FALL.powi((self.made - 1).max(0))).max(LEAST_LOOKS)
    }
}

impl Filter for Cold {
    fn name(&self) -> &'static str {
        Cold::NAME
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn judge(&mut self, context: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        self.learn(context.space);
        let looks = self.looks();
        let mut one = |t: &Trial| {
            let looked = self.rng.random_bool(looks);
            let known = self.network.as_ref().filter(|_| looked);
            match known.is_some_and(|k| k.is_cold(&t.point)) {
                true => Verdict::Drop { why: String::new() },
                false => Verdict::Keep { score: 0.0 },
            }
        };
        trials.iter().map(&mut one).collect()
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
        let mut filter = Cold::new(3);
        let outcome = Outcome::Scored {
            kind: "test".into(),
            value: 0.0,
        };
        for b in (0..9).step_by(2) {
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

    fn dropped(filter: &mut Cold, first: u64) -> usize {
        let space = space();
        let trials: Vec<Trial> = (0..40)
            .map(|n| trial(n, [first, 1 + 2 * (n % 4)]))
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
        assert!(dropped(&mut cold, 3) >= 30);
        assert!(dropped(&mut cold, 4) <= 4);
        // What failed has no cost, and is near what failed by its sketch and decisions alone.
        let mut failed = told(costs[1]);
        assert!(dropped(&mut failed, 4) <= 4);
    }

    #[test]
    fn few_told_candidates_drop_nothing_and_every_network_looks_less_often() {
        let mut filter = Cold::new(1);
        assert_eq!(dropped(&mut filter, 3), 0);
        let looks = |made| {
            Cold {
                made,
                ..Cold::new(1)
            }
            .looks()
        };
        assert_eq!(looks(1), 0.9);
        assert!((looks(2) - 0.63).abs() < 1e-9);
        assert_eq!(looks(40), LEAST_LOOKS);
    }
}
