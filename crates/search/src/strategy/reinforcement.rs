//! Reinforcement learning with adaptive sampling (Chameleon: Ahn and others, ICLR 2020): an agent walks through the space
//! on what a model of boosted trees says, learns by proximal policy optimisation (Schulman and others, 2017) which
//! steps lead to better points, and of clusters of the best points that it met one each is asked for.
//!
//! Constants are those of the authors' code, github.com/anony-sub/chameleon, where nothing else is said. Ours: many
//! short walks at once instead of 128 long ones, half of which begin at the best answers; a cluster is
//! represented by the proposal next to its centre, and points that were asked for are no proposals, so none
//! needs to be replaced.

use super::Strategy;
use super::asked::Asked;
use super::learned::Learned;
use super::places::{place, stepped, widest, width};
use crate::context::{Context, Told};
use crate::space::{Point, Space};
use learn::{Activation, Perceptron, k_means};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{HashMap, VecDeque};

/// Widths of the hidden layers of both networks.
const HIDDEN: usize = 20;
const RATE: f64 = 1e-3;
/// Passes over the steps of one round of walks.
const EPOCHS: usize = 3;
const BATCH: usize = 32;
/// What a reward is worth a step earlier.
const DISCOUNT: f64 = 0.9;
/// The decay of generalised advantage estimation (Schulman and others, 2016).
const DECAY: f64 = 0.99;
const CLIP: f64 = 0.2;
const ENTROPY: f64 = 0.3;
/// Walks of a round, their steps, and the rounds before points are asked for: ours.
const WALKS: usize = 32;
const STEPS: usize = 16;
const ROUNDS: usize = 4;
/// Proposals that are divided into clusters: ours.
const PROPOSALS: usize = 128;
/// The number of clusters begins here, and doubles as long as the loss falls clearly.
const FEWEST: usize = 8;
const MOST: usize = 64;
/// The loss falls clearly if it falls by this factor.
const FALL: f64 = 2.5;
/// One point in so many is drawn at random (AutoTVM).
const RANDOM_ONE_IN: u32 = 20;
/// A decision goes down, stays or goes up.
const MOVES: usize = 3;

pub struct Reinforcement {
    rng: Pcg64Mcg,
    asked: Asked,
    learned: Learned,
    agent: Option<Agent>,
    plan: VecDeque<Point>,
    seed: u64,
    /// Whether proposals are clustered; otherwise the best are asked for.
    samples: bool,
    begun: bool,
}

impl Reinforcement {
    /// Chameleon: with adaptive sampling.
    pub fn new(seed: u64) -> Reinforcement {
        Reinforcement {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            learned: Learned::new(seed),
            agent: None,
            plan: VecDeque::new(),
            seed,
            samples: true,
            begun: false,
        }
    }

    /// The agent alone: its best proposals are asked for.
    pub fn plain(seed: u64) -> Reinforcement {
        Reinforcement {
            samples: false,
            ..Reinforcement::new(seed)
        }
    }

    fn plan(&mut self, context: &Context<'_>) {
        if !self.learned.update(context) {
            return;
        }
        let space = context.space;
        let mut agent = self
            .agent
            .take()
            .unwrap_or_else(|| Agent::new(space, self.seed));
        let mut met: HashMap<Point, f64> = HashMap::new();
        for _ in 0..ROUNDS {
            let mut starts = self.learned.best(WALKS / 2);
            while starts.len() < WALKS {
                starts.push(space.sample(&mut self.rng));
            }
            let walks = self.walk(context, &agent, starts, &mut met);
            agent.learn(&walks, &mut self.rng);
        }
        self.agent = Some(agent);
        let mut met: Vec<(f64, Point)> = met.into_iter().map(|(p, s)| (s, p)).collect();
        met.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        met.truncate(if self.samples { PROPOSALS } else { MOST });
        self.learned.verify(context, &mut met, PROPOSALS);
        let mut proposals: Vec<Point> = met.into_iter().map(|(_, p)| p).collect();
        if self.samples {
            let places: Vec<Vec<f64>> = proposals.iter().map(|p| place(space, p)).collect();
            let chosen = representatives(&places, self.rng.random());
            proposals = chosen.into_iter().map(|i| proposals[i].clone()).collect();
        }
        self.plan = proposals.into();
    }

    /// Walks from some points; what is new on the way is put down with its score.
    fn walk(
        &mut self,
        context: &Context<'_>,
        agent: &Agent,
        starts: Vec<Point>,
        met: &mut HashMap<Point, f64>,
    ) -> Vec<Walk> {
        let space = context.space;
        let mut walks: Vec<Walk> = starts.iter().map(|_| Walk::default()).collect();
        let mut points = starts;
        for _ in 0..STEPS {
            for (walk, p) in walks.iter_mut().zip(&mut points) {
                let (step, moves) = agent.step(space, p, &mut self.rng);
                walk.steps.push(step);
                // A step that would leave the limits is not taken.
                if let Some(next) = stepped(space, p, &moves) {
                    *p = next;
                }
            }
            let scores = self.learned.scores(context, &points);
            for ((walk, p), score) in walks.iter_mut().zip(&points).zip(scores) {
                walk.rewards.push(score);
                if self.asked.is_new(p) {
                    met.insert(p.clone(), score);
                }
            }
        }
        for (walk, p) in walks.iter_mut().zip(&points) {
            walk.rest = agent.worth(&place(space, p));
        }
        walks
    }
}

/// Of places, the numbers of those next to the centres of clusters, in order. The number of clusters doubles as
/// long as the sum of squared distances falls clearly.
fn representatives(places: &[Vec<f64>], seed: u64) -> Vec<usize> {
    let doubled = |k: &usize| Some(2 * k).filter(|k| *k <= MOST);
    let mut best: Option<learn::Clusters> = None;
    for k in std::iter::successors(Some(FEWEST), doubled) {
        let Ok(clusters) = k_means(places, k, seed) else {
            break;
        };
        let clearly = |b: &learn::Clusters| clusters.inertia < b.inertia / FALL;
        if !best.as_ref().is_none_or(clearly) {
            break;
        }
        best = Some(clusters);
    }
    let distance =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum() };
    let nearest = |centre: &Vec<f64>| {
        let of = |i: &usize| distance(&places[*i], centre);
        (0..places.len()).min_by(|a, b| of(a).total_cmp(&of(b)))
    };
    let centres = best.map(|b| b.centres).unwrap_or_default();
    let mut chosen: Vec<usize> = centres.iter().filter_map(nearest).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

impl Strategy for Reinforcement {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        if !self.begun {
            self.begun = true;
            self.plan = super::defaults(context.space).into();
        }
        let mut out = Vec::new();
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

/// A policy, which says how likely each move of each decision is, and what it expects of places.
struct Agent {
    policy: Perceptron,
    value: Perceptron,
}

/// One step of a walk.
struct Step {
    place: Vec<f64>,
    /// For each decision of the point's sketch its move, below [`MOVES`].
    chosen: Vec<usize>,
    /// The logarithm of how likely all of these moves were.
    likely: f64,
    /// What was expected of the place.
    worth: f64,
}

#[derive(Default)]
struct Walk {
    steps: Vec<Step>,
    /// Of each step.
    rewards: Vec<f64>,
    /// What is expected of the place where the walk ends.
    rest: f64,
}

impl Walk {
    /// By how much each step was better than expected.
    fn advantages(&self) -> Vec<f64> {
        let mut advantages = vec![0.0; self.steps.len()];
        let (mut later, mut worth) = (0.0, self.rest);
        for (i, step) in self.steps.iter().enumerate().rev() {
            let surprise = self.rewards[i] + DISCOUNT * worth - step.worth;
            later = surprise + DISCOUNT * DECAY * later;
            worth = step.worth;
            advantages[i] = later;
        }
        advantages
    }
}

impl Agent {
    fn new(space: &Space, seed: u64) -> Agent {
        let network = |outputs: usize, seed: u64| {
            let widths = [width(space), HIDDEN, HIDDEN, outputs];
            Perceptron::random(Activation::Tanh, &widths, seed)
        };
        Agent {
            policy: network(MOVES * widest(space), seed),
            value: network(1, seed.wrapping_add(1)),
        }
    }

    fn worth(&self, place: &[f64]) -> f64 {
        self.value.outputs(place)[0]
    }

    /// What the policy does at a point.
    fn step(&self, space: &Space, p: &Point, rng: &mut Pcg64Mcg) -> (Step, Vec<i64>) {
        let place = place(space, p);
        let outputs = self.policy.outputs(&place);
        let mut draw = |logits: &[f64]| {
            let chances = chances(logits);
            let mut rest: f64 = rng.random();
            let passed = |c: &f64| {
                rest -= c;
                rest < 0.0
            };
            chances.iter().position(passed).unwrap_or(MOVES - 1)
        };
        let all = outputs.chunks_exact(MOVES).take(p.values.len());
        let chosen: Vec<usize> = all.map(&mut draw).collect();
        let moves = chosen.iter().map(|m| *m as i64 - 1).collect();
        let step = Step {
            likely: likely(&outputs, &chosen),
            worth: self.worth(&place),
            chosen,
            place,
        };
        (step, moves)
    }

    /// Makes steps that were better than expected more likely, and expects what came.
    fn learn(&mut self, walks: &[Walk], rng: &mut Pcg64Mcg) {
        let steps: Vec<&Step> = walks.iter().flat_map(|w| &w.steps).collect();
        let advantages: Vec<f64> = walks.iter().flat_map(Walk::advantages).collect();
        let n = advantages.len().max(1) as f64;
        let mean = advantages.iter().sum::<f64>() / n;
        let variance = advantages.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / n;
        let deviation = variance.sqrt().max(1e-9);
        let mut order: Vec<usize> = (0..steps.len()).collect();
        for _ in 0..EPOCHS {
            order.shuffle(rng);
            for batch in order.chunks(BATCH) {
                let rows: Vec<&[f64]> = batch.iter().map(|i| &steps[*i].place[..]).collect();
                self.policy.descend(&rows, RATE, |row, outputs| {
                    let i = batch[row];
                    slopes(outputs, steps[i], (advantages[i] - mean) / deviation)
                });
                self.value.descend(&rows, RATE, |row, outputs| {
                    let i = batch[row];
                    vec![outputs[0] - (steps[i].worth + advantages[i])]
                });
            }
        }
    }
}

/// The probabilities of one decision's moves.
fn chances(logits: &[f64]) -> [f64; MOVES] {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: [f64; MOVES] = std::array::from_fn(|i| (logits[i] - most).exp());
    let sum: f64 = powers.iter().sum();
    powers.map(|p| p / sum)
}

/// The logarithm of how likely moves are.
fn likely(outputs: &[f64], chosen: &[usize]) -> f64 {
    let all = outputs.chunks_exact(MOVES).zip(chosen);
    all.map(|(logits, m)| chances(logits)[*m].ln()).sum()
}

/// How the loss grows with each output of the policy: the clipped objective (equation 7 of the paper on proximal policy
/// optimisation), and a bonus for entropy.
fn slopes(outputs: &[f64], step: &Step, advantage: f64) -> Vec<f64> {
    let ratio = (likely(outputs, &step.chosen) - step.likely).exp();
    let clipped = match advantage > 0.0 {
        true => ratio > 1.0 + CLIP,
        false => ratio < 1.0 - CLIP,
    };
    let push = if clipped { 0.0 } else { advantage * ratio };
    let mut slopes = vec![0.0; outputs.len()];
    let all = outputs.chunks_exact(MOVES).zip(&step.chosen);
    for ((logits, chosen), slopes) in all.zip(slopes.chunks_exact_mut(MOVES)) {
        let chances = chances(logits);
        let logs = chances.map(|c| c.max(1e-10).ln());
        let entropy: f64 = -chances.iter().zip(logs).map(|(c, l)| c * l).sum::<f64>();
        for (m, slope) in slopes.iter_mut().enumerate() {
            let taken = f64::from(u8::from(m == *chosen));
            *slope = ENTROPY * chances[m] * (logs[m] + entropy) - push * (taken - chances[m]);
        }
    }
    slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss whose slopes [`slopes`] gives.
    fn loss(outputs: &[f64], step: &Step, advantage: f64) -> f64 {
        let ratio = (likely(outputs, &step.chosen) - step.likely).exp();
        let clipped = ratio.clamp(1.0 - CLIP, 1.0 + CLIP);
        let entropy = |logits: &[f64]| -> f64 { chances(logits).iter().map(|c| -c * c.ln()).sum() };
        let all = outputs.chunks_exact(MOVES).take(step.chosen.len());
        -(advantage * ratio).min(advantage * clipped) - ENTROPY * all.map(entropy).sum::<f64>()
    }

    #[test]
    fn slopes_are_those_of_the_loss() {
        let outputs = [0.3, -0.2, 0.8, -1.0, 0.1, 0.4, 0.5, 0.5, 0.5];
        // Two of three decisions: the third is another sketch's.
        let chosen = vec![2, 0];
        let now = likely(&outputs, &chosen);
        for (before, advantage) in [
            (0.1, 1.3),
            (0.1, -0.7),
            (-0.5, 2.0),
            (0.5, -2.0),
            (0.5, 1.0),
        ] {
            let step = Step {
                place: vec![],
                chosen: chosen.clone(),
                likely: now + before,
                worth: 0.0,
            };
            let found = slopes(&outputs, &step, advantage);
            for (i, found) in found.iter().enumerate() {
                let moved = |by: f64| {
                    let mut outputs = outputs;
                    outputs[i] += by;
                    loss(&outputs, &step, advantage)
                };
                let wanted = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                assert!((found - wanted).abs() < 1e-6, "{before} {advantage} {i}");
            }
        }
    }

    #[test]
    fn advantages_are_discounted_surprises() {
        let step = |worth| Step {
            place: vec![],
            chosen: vec![],
            likely: 0.0,
            worth,
        };
        let walk = Walk {
            steps: vec![step(1.0), step(2.0)],
            rewards: vec![0.5, 0.25],
            rest: 3.0,
        };
        let last = 0.25 + DISCOUNT * 3.0 - 2.0;
        let first = 0.5 + DISCOUNT * 2.0 - 1.0 + DISCOUNT * DECAY * last;
        assert_eq!(walk.advantages(), [first, last]);
    }

    #[test]
    fn there_are_as_many_representatives_as_clusters_lie_apart() {
        // So many clusters of four points, which are at equal distances from each other.
        let clusters = |n: usize| -> Vec<Vec<f64>> {
            let one = |i: usize| {
                let mut place = vec![0.0; 5];
                place[0] = (i / 4) as f64;
                place[1 + i % 4] = 1e-3;
                place
            };
            (0..4 * n).map(one).collect()
        };
        assert_eq!(representatives(&clusters(8), 1).len(), 8);
        assert_eq!(representatives(&clusters(32), 1).len(), 32);
        assert_eq!(
            representatives(&clusters(1), 1).len(),
            4,
            "no more than points"
        );
        assert!(representatives(&[], 1).is_empty());
    }
}
