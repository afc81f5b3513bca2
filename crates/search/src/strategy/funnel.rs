//! Draft, then verify (Pruner, ASPLOS 2025; the evolution is that of Ansor and MetaSchedule): many candidates are evolved
//! on what a model predicts, and the best of them are asked for. Before there are answers to learn from, the
//! cost that rules predict drafts them.
//!
//! Three things are ours: points of one sketch are crossed, which Ansor and MetaSchedule only announce, every sketch
//! begins with its default, and a search that finds nothing better doubts its model: children of the best answers then
//! come between the drafts. What the model thinks well of may all be near one local optimum.

use super::Strategy;
use super::asked::Asked;
use super::encoder::predicted;
use super::learned::Learned;
use crate::context::{Context, Told};
use crate::space::{Point, Space};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{HashSet, VecDeque};

/// Points that are evolved at once. Ansor and MetaSchedule have 2,048; a quarter finds as good ones here, as answers come in
/// batches of a few points.
const POPULATION: usize = 512;
const GENERATIONS: usize = 4;
/// Drafts whose lowered programs are read, at least, where models know these.
const VERIFIED: usize = 24;
/// The best answers that a population begins with.
const INCUMBENTS: usize = 32;
/// And the best answers of each sketch.
const OF_EACH: usize = 4;
/// One draft in so many is the best of one sketch, the sketches in turns: what is best of a sketch that
/// answered little may be the best of all.
const OF_SKETCH_ONE_IN: usize = 3;
/// Children that are crossed, one in so many; the others are mutated.
const CROSSED_ONE_IN: u32 = 4;
/// One point asked for in so many is drawn at random.
const RANDOM_ONE_IN: u32 = 12;
/// Answers without a better one after which the model is doubted.
const STALE: usize = 48;
/// The best answers whose children are asked for then.
const PARENTS: usize = 16;
/// Random points between the defaults and the first model.
const SEEDED: usize = 12;
/// Drafts of one evolution, at least. What an ask leaves is for the next ones, until the model learns anew.
const DRAFTS: usize = 16;

pub struct Funnel {
    rng: Pcg64Mcg,
    asked: Asked,
    learned: Learned,
    first: VecDeque<Point>,
    /// The best drafts first, and the answers that their model knew.
    drafts: VecDeque<Point>,
    drafted_from: usize,
    begun: bool,
    /// The sketch whose turn it is.
    turn: usize,
    /// The least cost, and the answers since it came.
    best: f64,
    stale: usize,
}

impl Funnel {
    pub fn new(seed: u64) -> Funnel {
        Funnel {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            learned: Learned::new(seed),
            first: VecDeque::new(),
            drafts: VecDeque::new(),
            drafted_from: 0,
            begun: false,
            turn: 0,
            best: f64::INFINITY,
            stale: 0,
        }
    }

    /// The defaults, and random points that rules think well of. Where similar tasks were measured, their
    /// model drafts instead of rules.
    fn begin(&mut self, context: &Context<'_>) {
        self.first.extend(super::defaults(context.space));
        if self.learned.update(context) {
            return;
        }
        let drawn: Vec<Point> = (0..POPULATION)
            .map(|_| context.space.sample(&mut self.rng))
            .collect();
        let costs = predicted(context, &drawn);
        let (mut known, unknown): (Vec<_>, Vec<_>) =
            drawn.into_iter().zip(costs).partition(|(_, c)| c.is_some());
        known.sort_by(|a, b| a.1.unwrap_or(0.0).total_cmp(&b.1.unwrap_or(0.0)));
        // Rules know their own sketches only.
        let of_rules = known.into_iter().map(|(p, _)| p).take(SEEDED / 2);
        let others = unknown.into_iter().map(|(p, _)| p).take(SEEDED / 2);
        self.first.extend(of_rules.chain(others));
    }

    /// The best points of an evolution on the model, the best first.
    fn draft(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let space = context.space;
        let mut population = self.learned.best(INCUMBENTS);
        population.extend(self.learned.best_of_each(OF_EACH));
        while population.len() < POPULATION / 2 && !population.is_empty() {
            let parent = population[self.rng.random_range(0..population.len())].clone();
            population.push(space.mutate(&parent, &mut self.rng));
        }
        while population.len() < POPULATION {
            population.push(space.sample(&mut self.rng));
        }
        let mut met: Vec<(f64, Point)> = Vec::new();
        let mut seen: HashSet<Point> = HashSet::new();
        for generation in 0..=GENERATIONS {
            let scores = self.learned.scores(context, &population);
            for (p, score) in population.iter().zip(&scores) {
                if self.asked.is_new(p) && space.within_limits(p) && seen.insert(p.clone()) {
                    met.push((*score, p.clone()));
                }
            }
            if generation < GENERATIONS {
                population = self.children(space, &population, &scores);
            }
        }
        met.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        self.learned.verify(context, &mut met, VERIFIED.max(2 * n));
        let parents = self.learned.best(PARENTS);
        let mut drafts = Vec::new();
        while drafts.len() < n && !met.is_empty() {
            if self.stale >= STALE && self.rng.random() {
                drafts.push(self.child(space, &parents));
                continue;
            }
            let mut at = 0;
            if drafts.len() % OF_SKETCH_ONE_IN == OF_SKETCH_ONE_IN - 1 {
                self.turn = (self.turn + 1) % space.sketches.len();
                at = met
                    .iter()
                    .position(|(_, p)| p.sketch == self.turn)
                    .unwrap_or(0);
            }
            drafts.push(met.remove(at).1);
        }
        drafts
    }

    /// A child of points by chance.
    fn child(&mut self, space: &Space, parents: &[Point]) -> Point {
        let mut parent = || parents.choose(&mut self.rng);
        match (parent(), parent()) {
            (Some(a), Some(b)) if self.rng.random_ratio(1, CROSSED_ONE_IN) => {
                space.cross(a, b, &mut self.rng)
            }
            (Some(a), _) => space.mutate(a, &mut self.rng),
            _ => space.sample(&mut self.rng),
        }
    }

    /// As many children, of parents by chance in proportion to their scores.
    fn children(&mut self, space: &Space, parents: &[Point], scores: &[f64]) -> Vec<Point> {
        let weighed: Vec<(usize, f64)> = scores.iter().map(|s| s.max(1e-6)).enumerate().collect();
        let mut one = || {
            let mut parent = || {
                let chosen = weighed.choose_weighted(&mut self.rng, |w| w.1);
                &parents[chosen.map_or(0, |w| w.0)]
            };
            let (a, b) = (parent(), parent());
            match self.rng.random_ratio(1, CROSSED_ONE_IN) {
                true => space.cross(a, b, &mut self.rng),
                false => space.mutate(a, &mut self.rng),
            }
        };
        (0..POPULATION).map(|_| one()).collect()
    }
}

impl Strategy for Funnel {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        if !self.begun {
            self.begun = true;
            self.begin(context);
        }
        let mut out = Vec::new();
        while out.len() < n
            && let Some(p) = self.first.pop_front()
        {
            out.extend(self.asked.take(context.space, p));
        }
        let wanted = n - out.len();
        if wanted > 0 && self.learned.update(context) {
            let answers = self.learned.answers_learnt();
            if answers != self.drafted_from || self.drafts.len() < wanted {
                self.drafts = self.draft(context, wanted.max(DRAFTS)).into();
                self.drafted_from = answers;
            }
        }
        let from = (context.space, &mut self.rng);
        self.asked
            .fill(&mut out, n, &mut self.drafts, RANDOM_ONE_IN, from);
        self.learned.forecast(context, &out);
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        self.learned.add(told.point, told.cost);
        let better = told.cost.filter(|cost| *cost < self.best);
        self.stale = better.map_or(self.stale + 1, |_| 0);
        self.best = better.unwrap_or(self.best);
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
    use schedule::{Decision, DecisionKind};
    use store::Outcome;

    fn space() -> Space {
        let decision = |i: usize| Decision {
            name: format!("d{i}"),
            kind: DecisionKind::Categorical {
                options: (0..16).collect(),
            },
            value: vec![0],
        };
        let decisions = (0..4).map(decision).collect();
        Space::of(vec![Sketch::of_knobs("s", decisions, vec![0; 4])])
    }

    fn tell(funnel: &mut Funnel, point: &Point, cost: f64) {
        let outcome = Outcome::Scored {
            kind: "test".into(),
            value: cost,
        };
        funnel.tell(&Told {
            point,
            outcome: &outcome,
            cost: Some(cost),
        });
    }

    /// The least cost is that of the first answer.
    fn told(space: &Space) -> Funnel {
        let mut funnel = Funnel::new(3);
        for p in funnel.ask(&Context::of(space), 64) {
            let sum: u64 = p.values.iter().sum();
            tell(&mut funnel, &p, 1.0 + sum as f64);
        }
        assert!(funnel.learned.update(&Context::of(space)));
        funnel
    }

    #[test]
    fn children_come_between_the_drafts_when_nothing_better_is_found() {
        let space = space();
        let sure: HashSet<Point> = {
            let mut funnel = told(&space);
            funnel.stale = 0;
            funnel.draft(&Context::of(&space), 40).into_iter().collect()
        };
        let mut funnel = told(&space);
        assert!(funnel.stale >= STALE, "{}", funnel.stale);
        let doubting = funnel.draft(&Context::of(&space), 40);
        let drafts = doubting.iter().filter(|p| sure.contains(p)).count();
        assert!((10..=30).contains(&drafts), "{drafts} of 40");
    }

    #[test]
    fn a_better_answer_ends_the_doubt() {
        let space = space();
        let mut funnel = told(&space);
        let point = space.sketches[0].default.clone();
        let point = Point {
            sketch: 0,
            values: point,
        };
        tell(&mut funnel, &point, 0.5);
        assert_eq!(funnel.stale, 0);
        tell(&mut funnel, &point, 0.6);
        assert_eq!(funnel.stale, 1);
    }
}
