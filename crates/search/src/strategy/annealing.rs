//! Simulated annealing on a model of boosted trees (AutoTVM, `sa_model_optimizer.py` and `model_based_tuner.py`): 128
//! chains walk through the space for as long as the model says that they climb, the best points they met
//! are a plan of 64, of which a diverse part is asked for, and one point in twenty is drawn at random.

use super::Strategy;
use super::asked::Asked;
use super::learned::Learned;
use crate::context::{Context, Told};
use crate::space::{Point, Space};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{HashMap, HashSet, VecDeque};

const CHAINS: usize = 128;
/// Steps of each chain. AutoTVM takes up to 500 and stops after 50 without a new best point.
const STEPS: usize = 500;
const PATIENCE: usize = 50;
/// Points of a plan.
const PLAN: usize = 64;
/// One point in so many is drawn at random.
const RANDOM_ONE_IN: u32 = 20;
/// Points that the plan is chosen from, as a multiple of it, so that it is diverse.
const WIDER: usize = 2;

pub struct Annealing {
    rng: Pcg64Mcg,
    asked: Asked,
    learned: Learned,
    plan: VecDeque<Point>,
    /// Where the chains are: they go on from one plan to the next.
    chains: Vec<Point>,
    begun: bool,
}

impl Annealing {
    pub fn new(seed: u64) -> Annealing {
        Annealing {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            learned: Learned::new(seed),
            plan: VecDeque::new(),
            chains: vec![],
            begun: false,
        }
    }

    /// The best points that chains meet, the best first; none before there is a model.
    fn walk(&mut self, context: &Context<'_>) -> Vec<(f64, Point)> {
        let space = context.space;
        while self.chains.len() < CHAINS {
            self.chains.push(space.sample(&mut self.rng));
        }
        let mut scores = self.learned.scores(context, &self.chains);
        let mut met: HashMap<Point, f64> = HashMap::new();
        let (mut best, mut without) = (f64::NEG_INFINITY, 0);
        for step in 0..STEPS {
            // Linear from 1 to 0, in units of the spread of scores.
            let temperature = 1.0 - step as f64 / STEPS as f64;
            let next: Vec<Point> = self
                .chains
                .iter()
                .map(|p| space.mutate(p, &mut self.rng))
                .collect();
            let of_next = self.learned.scores(context, &next);
            let moves = self
                .chains
                .iter_mut()
                .zip(next)
                .zip(&mut scores)
                .zip(of_next);
            for (((chain, p), score), new) in moves {
                if self.asked.is_new(&p) {
                    met.insert(p.clone(), new);
                }
                let climbs = ((new - *score) / temperature.max(1e-9)).exp();
                if self.rng.random::<f64>() < climbs {
                    (*chain, *score) = (p, new);
                }
            }
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            without = if top > best { 0 } else { without + 1 };
            best = best.max(top);
            if without > PATIENCE {
                break;
            }
        }
        let mut met: Vec<(f64, Point)> = met.into_iter().map(|(p, s)| (s, p)).collect();
        met.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        met.truncate(WIDER * PLAN);
        met
    }

    fn plan(&mut self, context: &Context<'_>) {
        if !self.learned.update(context) {
            return;
        }
        let mut met = self.walk(context);
        self.learned.verify(context, &mut met, WIDER * PLAN);
        self.plan = diverse(context.space, met, PLAN).into();
    }
}

/// So many of the points, greedily: each adds its score and the decided values that none before it has
/// (AutoTVM's submodular choice).
fn diverse(space: &Space, mut from: Vec<(f64, Point)>, n: usize) -> Vec<Point> {
    let most = from.iter().map(|p| p.0.abs()).fold(1e-9, f64::max);
    let mut seen: HashSet<(usize, usize, u64)> = HashSet::new();
    let mut chosen = Vec::new();
    while chosen.len() < n && !from.is_empty() {
        let worth = |(score, p): &(f64, Point)| {
            let decisions = space.sketches[p.sketch].decisions.len().max(1);
            let new = p.values.iter().enumerate();
            let new = new.filter(|(d, v)| !seen.contains(&(p.sketch, *d, **v)));
            score / most + new.count() as f64 / decisions as f64
        };
        let best = (0..from.len()).max_by(|a, b| worth(&from[*a]).total_cmp(&worth(&from[*b])));
        let (_, p) = from.remove(best.unwrap_or(0));
        for (d, v) in p.values.iter().enumerate() {
            seen.insert((p.sketch, d, *v));
        }
        chosen.push(p);
    }
    chosen
}

impl Strategy for Annealing {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let mut out = Vec::new();
        if !self.begun {
            self.begun = true;
            let defaults = super::defaults(context.space).into_iter();
            out.extend(defaults.filter_map(|p| self.asked.take(context.space, p)));
            out.truncate(n);
        }
        if self.plan.is_empty() {
            self.plan(context);
        }
        let from = (context.space, &mut self.rng);
        self.asked
            .fill(&mut out, n, &mut self.plan, RANDOM_ONE_IN, from);
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
