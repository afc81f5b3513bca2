//! Evolution strategies (Tuna, Algorithm 4): for each sketch a normal distribution over its
//! decisions, whose mean moves along the draws that cost little.
//!
//! A decision is one coordinate: 0 is its first value and 1 its last one. With the mean `theta`, draws
//! `theta + sigma * eps` of a population of n and their fitness F, `theta` becomes
//! `theta + alpha / (n * sigma) * sum F * eps`. F is the rank of a draw, from -1/2 for the
//! costliest to 1/2 for the cheapest. A draw outside of the limits ranks as the costliest.

use super::Strategy;
use crate::context::{Context, Told};
use crate::space::{Point, Sketch, Space};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::f64::consts::TAU;

/// Draws of a sketch whose costs move its mean together.
const POPULATION: usize = 16;
/// The deviation of draws, and the step of the mean, in coordinates.
const SIGMA: f64 = 0.2;
const ALPHA: f64 = 0.2;
/// Draws for each point asked after which points are drawn at random, as the distributions give what
/// was asked before; and after which a space counts as exhausted.
const OWN_DRAWS: usize = 50;
const MAX_DRAWS: usize = 400;

pub struct EvolutionStrategies {
    rng: Pcg64Mcg,
    /// What was asked, with its cost once that is told; infinite if it has none.
    costs: HashMap<Point, Option<f64>>,
    sketches: Vec<Distribution>,
}

/// Of one sketch.
struct Distribution {
    /// The mean.
    theta: Vec<f64>,
    drawn: Vec<Draw>,
    /// The least cost of its points so far.
    best: f64,
}

struct Draw {
    values: Vec<u64>,
    eps: Vec<f64>,
}

impl Distribution {
    /// Around the default of a sketch.
    fn around(sketch: &Sketch) -> Distribution {
        let values = sketch.decisions.iter().zip(&sketch.default);
        Distribution {
            theta: values
                .map(|(d, v)| coordinate(*v, d.cardinality()))
                .collect(),
            drawn: vec![],
            best: f64::INFINITY,
        }
    }

    /// Moves the mean by draws and their costs.
    fn step(&mut self, costs: &[f64]) {
        let n = costs.len();
        let scale = ALPHA / (n as f64 * SIGMA);
        for (draw, fitness) in self.drawn.iter().zip(fitness(costs)) {
            for (theta, eps) in self.theta.iter_mut().zip(&draw.eps) {
                *theta += scale * fitness * eps;
            }
        }
        self.theta.iter_mut().for_each(|t| *t = t.clamp(0.0, 1.0));
        self.drawn.clear();
    }
}

/// The ranks of negated costs, from -1/2 to 1/2; equal costs have equal ranks.
fn fitness(costs: &[f64]) -> Vec<f64> {
    let most = costs.len().saturating_sub(1).max(1) as f64;
    let rank = |cost: &f64| {
        let less = costs.iter().filter(|c| *c < cost).count();
        let same = costs.iter().filter(|c| *c == cost).count();
        0.5 - (less as f64 + (same - 1) as f64 / 2.0) / most
    };
    costs.iter().map(rank).collect()
}

fn coordinate(value: u64, cardinality: u64) -> f64 {
    match cardinality {
        0 | 1 => 0.0,
        n => value as f64 / (n - 1) as f64,
    }
}

/// A standard normal number (Box and Muller).
fn normal(rng: &mut Pcg64Mcg) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
}

impl EvolutionStrategies {
    pub fn new(seed: u64) -> EvolutionStrategies {
        EvolutionStrategies {
            rng: Pcg64Mcg::seed_from_u64(seed),
            costs: HashMap::new(),
            sketches: vec![],
        }
    }

    /// A sketch to draw from: those without a cost first, then likelier the better its best is.
    fn sketch(&mut self) -> usize {
        let new = |d: &Distribution| d.best.is_infinite() && d.drawn.is_empty();
        if let Some(at) = self.sketches.iter().position(new) {
            return at;
        }
        let mut order: Vec<usize> = (0..self.sketches.len()).collect();
        order.sort_by(|a, b| self.sketches[*a].best.total_cmp(&self.sketches[*b].best));
        let weight = |place: usize| 1.0 / (1.0 + place as f64).powi(2);
        let total: f64 = (0..order.len()).map(weight).sum();
        let mut at = self.rng.random_range(0.0..total);
        for (place, sketch) in order.iter().enumerate() {
            at -= weight(place);
            if at <= 0.0 {
                return *sketch;
            }
        }
        order[0]
    }

    /// Draws a point; the default of a sketch that has none yet.
    fn draw(&mut self, space: &Space) -> Point {
        let sketch = self.sketch();
        let of = &space.sketches[sketch];
        let theta = &self.sketches[sketch].theta;
        let first =
            self.sketches[sketch].drawn.is_empty() && self.sketches[sketch].best.is_infinite();
        let eps: Vec<f64> = match first {
            true => vec![0.0; theta.len()],
            false => theta.iter().map(|_| normal(&mut self.rng)).collect(),
        };
        let decode = |((t, e), d): ((&f64, &f64), &schedule::Decision)| {
            let last = d.cardinality().saturating_sub(1) as f64;
            ((t + SIGMA * e).clamp(0.0, 1.0) * last).round() as u64
        };
        let values: Vec<u64> = match first {
            true => of.default.clone(),
            false => theta
                .iter()
                .zip(&eps)
                .zip(&of.decisions)
                .map(decode)
                .collect(),
        };
        let draw = Draw {
            values: values.clone(),
            eps,
        };
        self.sketches[sketch].drawn.push(draw);
        Point { sketch, values }
    }

    /// Moves the mean of a sketch once a population of its draws has costs.
    fn step(&mut self, sketch: usize) {
        let of = &mut self.sketches[sketch];
        let costs = &self.costs;
        let cost = |d: &Draw| {
            let point = Point {
                sketch,
                values: d.values.clone(),
            };
            costs.get(&point).copied().flatten()
        };
        let known = of.drawn.iter().filter(|d| cost(d).is_some()).count();
        if known < POPULATION {
            return;
        }
        of.drawn.retain(|d| cost(d).is_some());
        let of_drawn: Vec<f64> = of.drawn.iter().filter_map(cost).collect();
        of.step(&of_drawn);
    }
}

impl Strategy for EvolutionStrategies {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let space = context.space;
        if self.sketches.is_empty() {
            self.sketches = space.sketches.iter().map(Distribution::around).collect();
        }
        let mut out = Vec::new();
        let mut draws = 0;
        while out.len() < n && draws < MAX_DRAWS * n {
            draws += 1;
            let point = match draws <= OWN_DRAWS * n {
                true => self.draw(space),
                false => space.sample(&mut self.rng),
            };
            let legal = space.within_limits(&point);
            if !self.costs.contains_key(&point) {
                let cost = (!legal).then_some(f64::INFINITY);
                self.costs.insert(point.clone(), cost);
                if legal {
                    out.push(point.clone());
                }
            }
            self.step(point.sketch);
        }
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        let cost = told.cost.filter(|c| c.is_finite());
        let cost = cost.unwrap_or(f64::INFINITY);
        self.costs.insert(told.point.clone(), Some(cost));
        let sketch = told.point.sketch;
        if let Some(of) = self.sketches.get_mut(sketch) {
            of.best = of.best.min(cost);
            self.step(sketch);
        }
    }

    fn revise(&mut self, point: &Point, cost: f64) {
        self.costs.insert(point.clone(), Some(cost));
        let of_sketch = self.costs.iter().filter(|(p, _)| p.sketch == point.sketch);
        let costs = of_sketch.filter_map(|(_, c)| *c);
        let best = costs.fold(f64::INFINITY, f64::min);
        if let Some(of) = self.sketches.get_mut(point.sketch) {
            of.best = best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedule::{Decision, DecisionKind};
    use store::Outcome;

    fn space(sketches: usize) -> Space {
        let decision = |name: &str| Decision {
            name: name.into(),
            kind: DecisionKind::Categorical {
                options: (0..101).collect(),
            },
            value: vec![0],
        };
        let one = |i: usize| {
            let decisions = vec![decision("a"), decision("b")];
            Sketch::of_knobs(&format!("s{i}"), decisions, vec![10, 90])
        };
        Space::of((0..sketches).map(one).collect())
    }

    fn search(
        space: &Space,
        trials: usize,
        cost: impl Fn(&Point) -> f64,
    ) -> (EvolutionStrategies, f64) {
        let mut es = EvolutionStrategies::new(7);
        let context = Context::of(space);
        let outcome = Outcome::Scored {
            kind: "test".into(),
            value: 0.0,
        };
        let mut best = f64::INFINITY;
        for _ in 0..trials / 8 {
            for point in es.ask(&context, 8) {
                let c = cost(&point);
                best = best.min(c);
                es.tell(&Told {
                    point: &point,
                    outcome: &outcome,
                    cost: Some(c),
                });
            }
        }
        (es, best)
    }

    #[test]
    fn fitness_is_the_rank_of_the_negated_cost() {
        assert_eq!(fitness(&[3.0, 1.0, f64::INFINITY]), [0.0, 0.5, -0.5]);
        assert_eq!(fitness(&[1.0, 1.0]), [0.0, 0.0]);
    }

    #[test]
    fn the_mean_moves_downhill() {
        let space = space(1);
        let mut d = Distribution::around(&space.sketches[0]);
        let before = d.theta[0];
        for eps in [-1.0, 1.0] {
            d.drawn.push(Draw {
                values: vec![],
                eps: vec![eps, 0.0],
            });
        }
        // What was drawn above costs less.
        d.step(&[9.0, 4.0]);
        assert!(d.theta[0] > before);
        assert_eq!(d.theta[1], 0.9);
    }

    #[test]
    fn a_bowl_is_searched_better_than_at_random() {
        let space = space(1);
        let bowl = |p: &Point| {
            let off = |v: u64, of: f64| (v as f64 - of).powi(2);
            off(p.values[0], 70.0) + off(p.values[1], 20.0)
        };
        let (es, best) = search(&space, 400, bowl);
        assert!(best <= 20.0, "{best}");
        let theta = &es.sketches[0].theta;
        assert!(
            (theta[0] - 0.7).abs() < 0.15 && (theta[1] - 0.2).abs() < 0.15,
            "{theta:?}"
        );
    }

    #[test]
    fn the_better_sketch_is_drawn_from_more_often() {
        let space = space(3);
        let cost = |p: &Point| match p.sketch {
            1 => 1.0,
            _ => 5.0,
        };
        let (es, _) = search(&space, 400, cost);
        let asked = |sketch| es.costs.keys().filter(|p| p.sketch == sketch).count();
        assert!(asked(1) > asked(0).max(asked(2)));
        assert!(asked(0) > 10 && asked(2) > 10);
    }
}
