//! Q-learning over neighbours (FlexTensor: Zheng and others, ASPLOS 2020): from good points that were answered, a network chooses
//! along which decision to go, and learns from what the step gained.
//!
//! Constants are those of the authors' code, github.com/pku-liang/FlexTensor, where nothing else is said. Ours: one
//! network for all decisions and sketches, Adam instead of AdaDelta, training when the memory has grown by a
//! fifth, and what a step gains as a share of the greater cost.

use super::Strategy;
use super::asked::Asked;
use super::places::{place, stepped, widest, width};
use crate::context::{Context, Told};
use crate::space::{Point, Space};
use learn::{Activation, Perceptron};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{HashMap, VecDeque};
use store::Outcome;

/// Three hidden layers of this width.
const HIDDEN: usize = 64;
/// Chance of a random direction: at first, its decay with each answer, and at least.
const RANDOM: f64 = 0.8;
const FALL: f64 = 0.01;
const LEAST_RANDOM: f64 = 0.1;
/// How fast the chance of a point as a start falls with its distance from the best, as a share of the best.
const CHOOSY: f64 = 0.5;
/// What a gain is worth a step earlier.
const DISCOUNT: f64 = 0.9;
const EPOCHS: usize = 20;
const BATCH: usize = 32;
/// The latest steps that are learnt from.
const MEMORY: usize = 1000;
/// Adam's rate: ours.
const RATE: f64 = 1e-3;
/// Random points before the first step: ours.
const FIRST: usize = 12;
/// Starts that are tried for one point.
const STARTS: usize = 20;

pub struct QLearning {
    rng: Pcg64Mcg,
    asked: Asked,
    seed: u64,
    first: VecDeque<Point>,
    network: Option<Networks>,
    /// Answers with costs.
    known: Vec<(f64, Point)>,
    least: f64,
    /// Steps that wait for an answer, by the point that they lead to.
    taken: HashMap<Point, Taken>,
    memory: Vec<Memory>,
    /// Steps in the memory when it was last learnt from.
    learnt: usize,
}

struct Networks {
    /// What each direction is worth.
    worth: Perceptron,
    /// The same before the last training, which targets come from.
    before: Perceptron,
}

struct Taken {
    from: Point,
    cost: f64,
    direction: usize,
}

/// A step that was answered.
struct Memory {
    from: Point,
    direction: usize,
    to: Point,
    gain: f64,
}

impl QLearning {
    pub fn new(seed: u64) -> QLearning {
        QLearning {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            seed,
            first: VecDeque::new(),
            network: None,
            known: vec![],
            least: f64::INFINITY,
            taken: HashMap::new(),
            memory: vec![],
            learnt: 0,
        }
    }

    /// The defaults, and some random points.
    fn begin(&mut self, space: &Space) {
        self.first.extend(super::defaults(space));
        for _ in 0..FIRST {
            self.first.push_back(space.sample(&mut self.rng));
        }
        let widths = [
            width(space),
            HIDDEN,
            HIDDEN,
            HIDDEN,
            2 * widest(space).max(1),
        ];
        let worth = Perceptron::random(Activation::Relu, &widths, self.seed);
        self.network = Some(Networks {
            before: worth.clone(),
            worth,
        });
    }

    /// A point to start from: any, less likely the worse it is, or else the best.
    fn start(&mut self) -> Option<(f64, Point)> {
        let (cost, p) = self.known.choose(&mut self.rng)?;
        let worse = (cost - self.least) / self.least.abs().max(f64::MIN_POSITIVE);
        if self.rng.random::<f64>() <= (-CHOOSY * worse).exp() {
            return Some((*cost, p.clone()));
        }
        let best = self.known.iter().find(|(cost, _)| *cost <= self.least);
        best.cloned()
    }

    /// A step from a good point to a new one.
    fn step(&mut self, space: &Space) -> Option<Point> {
        let (cost, from) = self.start()?;
        let new: Vec<(usize, Point)> = (0..2 * from.values.len())
            .filter_map(|d| Some((d, toward(space, &from, d)?)))
            .filter(|(_, p)| self.asked.is_new(p))
            .collect();
        let random = (RANDOM * (-FALL * self.known.len() as f64).exp()).max(LEAST_RANDOM);
        let (direction, p) = match &self.network {
            Some(n) if self.rng.random::<f64>() > random => {
                let worth = n.worth.outputs(&place(space, &from));
                let by_worth =
                    |a: &&(usize, Point), b: &&(usize, Point)| worth[a.0].total_cmp(&worth[b.0]);
                new.iter().max_by(by_worth)?
            }
            _ => new.choose(&mut self.rng)?,
        };
        let taken = Taken {
            from,
            cost,
            direction: *direction,
        };
        let p = self.asked.take(space, p.clone())?;
        self.taken.insert(p.clone(), taken);
        Some(p)
    }

    /// Learns from the memory when it has grown by a fifth.
    fn learn(&mut self, space: &Space) {
        let due = 5 * self.memory.len() >= 6 * self.learnt.max(1);
        let Some(networks) = self.network.as_mut().filter(|_| due) else {
            return;
        };
        self.learnt = self.memory.len();
        let recent = &self.memory[self.memory.len().saturating_sub(MEMORY)..];
        let target = |m: &Memory| {
            let all = networks.before.outputs(&place(space, &m.to));
            let legal = (0..2 * m.to.values.len()).map(|d| all[d]);
            let best = legal.fold(f64::NEG_INFINITY, f64::max);
            m.gain + DISCOUNT * best
        };
        let targets: Vec<f64> = recent.iter().map(target).collect();
        let places: Vec<Vec<f64>> = recent.iter().map(|m| place(space, &m.from)).collect();
        let mut order: Vec<usize> = (0..recent.len()).collect();
        for _ in 0..EPOCHS {
            order.shuffle(&mut self.rng);
            for batch in order.chunks(BATCH) {
                let rows: Vec<&[f64]> = batch.iter().map(|i| &places[*i][..]).collect();
                networks.worth.descend(&rows, RATE, |row, outputs| {
                    let (i, mut slopes) = (batch[row], vec![0.0; outputs.len()]);
                    let direction = recent[i].direction;
                    slopes[direction] = outputs[direction] - targets[i];
                    slopes
                });
            }
        }
        networks.before = networks.worth.clone();
    }
}

/// The point next to another in a direction: each decision has one down and one up. None at the edges of the space.
fn toward(space: &Space, from: &Point, direction: usize) -> Option<Point> {
    let mut steps = vec![0; from.values.len()];
    steps[direction / 2] = if direction.is_multiple_of(2) { -1 } else { 1 };
    stepped(space, from, &steps).filter(|p| p != from)
}

impl Strategy for QLearning {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let space = context.space;
        if self.network.is_none() {
            self.begin(space);
        }
        self.learn(space);
        let mut out = Vec::new();
        while out.len() < n {
            let first = self.first.pop_front();
            let next = match first {
                Some(p) => self.asked.take(space, p),
                None => (0..STARTS).find_map(|_| self.step(space)),
            };
            match next.or_else(|| self.asked.fresh(space, &mut self.rng)) {
                Some(p) => out.push(p),
                None => break,
            }
        }
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        let taken = self.taken.remove(told.point);
        let cost = told.cost.filter(|c| c.is_finite());
        if let Some(cost) = cost {
            self.known.push((cost, told.point.clone()));
            self.least = self.least.min(cost);
        }
        // What nobody measured says nothing of the step; what failed lost everything.
        let unknown = matches!(
            told.outcome,
            Outcome::Skipped { .. } | Outcome::Unanswered { .. }
        );
        if let Some(t) = taken.filter(|_| !unknown) {
            let gain = |cost: f64| {
                let greater = cost.abs().max(t.cost.abs()).max(f64::MIN_POSITIVE);
                (t.cost - cost) / greater
            };
            self.memory.push(Memory {
                gain: cost.map_or(-1.0, gain),
                from: t.from,
                direction: t.direction,
                to: told.point.clone(),
            });
        }
    }

    /// What a step gained stays: both of its costs move.
    fn revise(&mut self, point: &Point, cost: f64) {
        if let Some((known, _)) = self.known.iter_mut().find(|(_, p)| p == point) {
            *known = cost;
        }
        let costs = self.known.iter().map(|(c, _)| *c);
        self.least = costs.fold(f64::INFINITY, f64::min);
    }
}
