//! Ansor's search (Zheng et al. 2020, section 5; constants of TVM's `sketch_policy.py` and `sketch_policy.cc`): each
//! round, random points and the best answers evolve on a learned model, and the best that were met are asked
//! for with a share of random ones.
//!
//! A gene is a decision here. The mutations are Ansor's, by its weights: of a tile size one prime factor moves to
//! another loop, or another size is drawn where there is a list of them; unrolling, the location of a computation and
//! parallel granularity are drawn anew. The paper's crossover takes the steps of each node from one of two
//! parents, and TVM has no code for it. Here each decision is taken so, with a share of our own. Until there are
//! answers to learn from, TVM's scores are random numbers, and points are random here. Defaults have no part.

use super::Strategy;
use super::asked::Asked;
use super::learned::Learned;
use crate::context::{Context, Told};
use crate::space::{Point, Space};
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use schedule::{Decision, DecisionKind};
use std::collections::{HashSet, VecDeque};

const POPULATION: usize = 2048;
const GENERATIONS: usize = 4;
/// Random points that a population begins with, at least.
const SAMPLED: usize = 50;
/// The share of a population that the best answers may be.
const MEASURED: f64 = 0.2;
/// The share of children that are mutated, and ours of those that are crossed; the others are copies.
const MUTATED: f64 = 0.85;
const CROSSED: f64 = 0.05;
/// Points of a round, of which one in twenty is random.
const ROUND: usize = 64;
const RANDOM: f64 = 0.05;
/// Draws of a mutation within the limits.
const RETRIES: usize = 20;

pub struct Ansor {
    rng: Pcg64Mcg,
    asked: Asked,
    learned: Learned,
    /// What is left of this round.
    round: VecDeque<Point>,
}

/// What a mutation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    TileSize,
    Unrolling,
    Location,
    Granularity,
}

impl Change {
    /// With Ansor's weights on CPUs.
    const ALL: [(Change, f64); 4] = [
        (Change::TileSize, 0.90),
        (Change::Unrolling, 0.04),
        (Change::Location, 0.05),
        (Change::Granularity, 0.01),
    ];

    /// What changing this decision is. Most lists of numbers are sizes of tiles, and those of a recorded table
    /// may be anything.
    fn of(decision: &Decision) -> Change {
        let named = |part: &str| decision.name.contains(part);
        match &decision.kind {
            DecisionKind::ComputeLocation { .. } => Change::Location,
            DecisionKind::Categorical { .. } if named("unroll") => Change::Unrolling,
            DecisionKind::Categorical { .. } if named("parallel") => Change::Granularity,
            DecisionKind::PerfectTile { .. } | DecisionKind::Categorical { .. } => Change::TileSize,
        }
    }
}

impl Ansor {
    pub fn new(seed: u64) -> Ansor {
        Ansor {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            learned: Learned::new(seed),
            round: VecDeque::new(),
        }
    }

    /// The points of the next round; none before there is a model.
    fn next_round(&mut self, context: &Context<'_>) -> Vec<Point> {
        if !self.learned.update(context) {
            return vec![];
        }
        let space = context.space;
        let mut population: Vec<Point> =
            (0..SAMPLED).map(|_| space.sample(&mut self.rng)).collect();
        let random = (RANDOM * ROUND as f64) as usize;
        let sampled: Vec<Point> = population[..random].to_vec();
        let measured = (MEASURED * POPULATION as f64) as usize;
        population.extend(self.learned.best(measured));
        let mut best = self.evolve(context, population, 2 * ROUND);
        self.learned.verify(context, &mut best, 2 * ROUND);
        let good = best.into_iter().map(|(_, p)| p).take(ROUND - random);
        good.chain(sampled).collect()
    }

    /// So many of the points that were met and not asked for, the best first.
    fn evolve(
        &mut self,
        context: &Context<'_>,
        mut population: Vec<Point>,
        n: usize,
    ) -> Vec<(f64, Point)> {
        let mut met: Vec<(f64, Point)> = Vec::new();
        let mut seen: HashSet<Point> = HashSet::new();
        for generation in 0..=GENERATIONS {
            let scores = self.learned.scores(context, &population);
            for (p, score) in population.iter().zip(&scores) {
                if self.asked.is_new(p) && seen.insert(p.clone()) {
                    met.push((*score, p.clone()));
                }
            }
            if generation < GENERATIONS {
                population = self.children(context.space, &population, &scores);
            }
        }
        met.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        met.truncate(n);
        met
    }

    /// A population of children, of parents by chance in proportion to their scores.
    fn children(&mut self, space: &Space, parents: &[Point], scores: &[f64]) -> Vec<Point> {
        let by_score = WeightedIndex::new(scores.iter().map(|s| s.max(0.0))).ok();
        let mut children = Vec::with_capacity(POPULATION);
        while children.len() < POPULATION {
            let mut parent = || {
                let at = match &by_score {
                    Some(weights) => weights.sample(&mut self.rng),
                    None => self.rng.random_range(0..parents.len()),
                };
                &parents[at]
            };
            let (a, b) = (parent(), parent());
            let what: f64 = self.rng.random();
            children.push(if what < MUTATED {
                mutated(space, a, &mut self.rng)
            } else if what < MUTATED + CROSSED && a.sketch == b.sketch {
                space.cross(a, b, &mut self.rng)
            } else {
                a.clone()
            });
        }
        children
    }
}

/// The point with one decision changed; the point itself where nothing else is within the limits.
///
/// A kind of change that the sketch does not have is none, as in Ansor.
fn mutated(space: &Space, p: &Point, rng: &mut impl Rng) -> Point {
    let decisions = &space.sketches[p.sketch].decisions;
    let open = |change: Change| -> Vec<usize> {
        let of = |d: &Decision| d.cardinality() > 1 && Change::of(d) == change;
        (0..decisions.len())
            .filter(|d| of(&decisions[*d]))
            .collect()
    };
    let choices: Vec<(Vec<usize>, f64)> = Change::ALL
        .iter()
        .map(|(change, weight)| (open(*change), *weight))
        .filter(|(open, _)| !open.is_empty())
        .collect();
    let Ok(by_weight) = WeightedIndex::new(choices.iter().map(|c| c.1)) else {
        return p.clone();
    };
    for _ in 0..RETRIES {
        let open = &choices[by_weight.sample(rng)].0;
        let at = open[rng.random_range(0..open.len())];
        let d = &decisions[at];
        let values = match d.kind {
            DecisionKind::PerfectTile { .. } => d.kind.neighbours(p.values[at]),
            _ => (0..d.cardinality())
                .filter(|v| *v != p.values[at])
                .collect(),
        };
        let Some(value) = values.choose(rng) else {
            continue;
        };
        let mut child = p.clone();
        child.values[at] = *value;
        if space.within_limits(&child) {
            return child;
        }
    }
    p.clone()
}

impl Strategy for Ansor {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let mut out = Vec::new();
        if self.round.is_empty() {
            self.round = self.next_round(context).into();
        }
        let from = (context.space, &mut self.rng);
        self.asked.fill(&mut out, n, &mut self.round, None, from);
        self.learned.forecast(context, &out);
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        self.learned.add(told.point, told.cost);
    }

    fn revise(&mut self, point: &Point, cost: f64) {
        self.learned.revise(point, cost);
    }

    fn learned(&self) -> Option<&Learned> {
        Some(&self.learned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Sketch;
    use store::Outcome;

    fn decision(name: &str, kind: DecisionKind) -> Decision {
        let value = kind.value_at(0).unwrap();
        Decision {
            name: name.into(),
            kind,
            value,
        }
    }

    fn options() -> DecisionKind {
        DecisionKind::Categorical {
            options: (0..16).collect(),
        }
    }

    /// One decision of each kind that a mutation may change.
    fn mixed() -> Space {
        let tile = DecisionKind::PerfectTile {
            extent: 48,
            parts: 3,
            max_innermost: 16,
        };
        let loops = ["i", "j", "k"].map(String::from).to_vec();
        let decisions = vec![
            decision("tile", tile),
            decision("unroll_k", options()),
            decision("at", DecisionKind::ComputeLocation { loops }),
            decision("parallel", options()),
        ];
        Space::of(vec![Sketch::of_knobs("s", decisions, vec![0; 4])])
    }

    #[test]
    fn one_decision_is_mutated_by_the_weights_of_its_kind() {
        let space = mixed();
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut p = space.sample(&mut rng);
        let mut changed = [0; 4];
        for _ in 0..20_000 {
            let child = mutated(&space, &p, &mut rng);
            let other: Vec<usize> = (0..4)
                .filter(|d| child.values[*d] != p.values[*d])
                .collect();
            assert_eq!(other.len(), 1);
            changed[other[0]] += 1;
            if other[0] == 0 {
                let kind = &space.sketches[0].decisions[0].kind;
                assert!(kind.neighbours(p.values[0]).contains(&child.values[0]));
            }
            p = child;
        }
        for (n, expected) in changed.iter().zip([0.90, 0.04, 0.05, 0.01]) {
            let share = f64::from(*n) / 20_000.0;
            assert!((share - expected).abs() < 0.01, "{changed:?}");
        }
    }

    #[test]
    fn kinds_that_a_sketch_lacks_leave_their_weight_to_the_others() {
        let decisions = vec![
            decision("unroll", options()),
            decision("parallel", options()),
        ];
        let space = Space::of(vec![Sketch::of_knobs("s", decisions, vec![0; 2])]);
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let p = space.sample(&mut rng);
        let mut of_first = 0;
        for _ in 0..5_000 {
            let child = mutated(&space, &p, &mut rng);
            assert_ne!(child, p);
            of_first += usize::from(child.values[0] != p.values[0]);
        }
        assert!((3_800..4_200).contains(&of_first), "{of_first}");
    }

    #[test]
    fn a_round_is_the_best_by_the_model_and_three_random_points() {
        let decisions = (0..4).map(|i| decision(&format!("d{i}"), options()));
        let space = Space::of(vec![Sketch::of_knobs("s", decisions.collect(), vec![0; 4])]);
        let cost = |p: &Point| 1.0 + p.values.iter().sum::<u64>() as f64;
        let outcome = Outcome::Scored {
            kind: "test".into(),
            value: 0.0,
        };
        let mut ansor = Ansor::new(3);
        let context = Context::of(&space);
        let first = ansor.ask(&context, ROUND);
        for point in &first {
            ansor.tell(&Told {
                point,
                outcome: &outcome,
                cost: Some(cost(point)),
            });
        }
        let round = ansor.next_round(&context);
        assert_eq!(round.len(), ROUND);
        assert!(round.iter().all(|p| ansor.asked.is_new(p)));
        let (best, random) = round.split_at(ROUND - 3);
        let scores = ansor.learned.scores(&context, best);
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        let least = |of: &[Point]| of.iter().map(cost).fold(f64::INFINITY, f64::min);
        let mean = |of: &[Point]| of.iter().map(cost).sum::<f64>() / of.len() as f64;
        assert!(
            least(best) < least(&first),
            "{} {}",
            least(best),
            least(&first)
        );
        assert!(
            mean(best) < 0.6 * mean(random),
            "{} {}",
            mean(best),
            mean(random)
        );
    }

    #[test]
    fn children_of_worthless_parents_are_of_any() {
        let space = mixed();
        let mut ansor = Ansor::new(1);
        let parents: Vec<Point> = (0..4).map(|_| space.sample(&mut ansor.rng)).collect();
        assert_eq!(
            ansor.children(&space, &parents, &[0.0; 4]).len(),
            POPULATION
        );
        // One that is worth something has all children: those that were not mutated are its copies.
        let children = ansor.children(&space, &parents, &[0.0, 0.5, -1.0, 0.0]);
        let copies = children.iter().filter(|p| **p == parents[1]).count();
        let share = copies as f64 / POPULATION as f64;
        assert!((share - 0.15).abs() < 0.03, "{share}");
    }
}
