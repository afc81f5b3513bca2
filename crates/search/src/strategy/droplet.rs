//! Coordinate descent round the incumbent (Droplet search, Canesche and others 2024; TVM's `droplet_tuner.py`): all
//! neighbours along one decision each are asked for, the search moves to the best of them if it is better than the
//! incumbent, and otherwise its steps grow until the whole neighbourhood is known.
//!
//! Every sketch has a descent of its own that begins at its default. The sketch whose best is the best
//! of all is asked for twice as often as the others together. Where a descent has ended, or
//! waits for answers, points are drawn at random.

use super::Strategy;
use super::asked::Asked;
use crate::context::{Context, Told};
use crate::space::{Point, Space};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{HashSet, VecDeque};

/// Steps along a decision before a descent ends.
const MOST_STEP: u64 = 3;
/// By how much a neighbour has to be better: what noise may be.
const BETTER: f64 = 0.99;

pub struct Droplet {
    rng: Pcg64Mcg,
    asked: Asked,
    descents: Vec<Descent>,
    turn: usize,
}

/// The descent of one sketch.
#[derive(Default)]
struct Descent {
    /// Asked for next.
    waiting: VecDeque<Point>,
    /// Asked for and not answered.
    open: HashSet<Point>,
    /// The point round which neighbours are asked for; none before the first answer.
    centre: Option<Point>,
    /// The best answer so far, and its cost.
    best: Option<(f64, Point)>,
    step: u64,
}

impl Descent {
    fn cost(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |b| b.0)
    }

    /// Fills what is asked for next: neighbours of the best, or of the same point further away, or
    /// nothing where the descent has ended.
    fn advance(&mut self, space: &Space, sketch: usize, asked: &mut Asked) {
        let Some((_, best)) = &self.best else {
            return;
        };
        if self.centre.as_ref() != Some(best) {
            self.centre = Some(best.clone());
            self.step = 1;
        } else {
            self.step += 1;
        }
        let (centre, decisions) = (best.clone(), &space.sketches[sketch].decisions);
        while self.waiting.is_empty() && self.step <= MOST_STEP {
            for (d, decision) in decisions.iter().enumerate() {
                let value = centre.values[d];
                let near = [value.checked_sub(self.step), value.checked_add(self.step)];
                for value in near.into_iter().flatten() {
                    if value < decision.cardinality() {
                        let mut p = centre.clone();
                        p.values[d] = value;
                        self.waiting.extend(asked.take(space, p));
                    }
                }
            }
            if self.waiting.is_empty() {
                self.step += 1;
            }
        }
    }
}

impl Droplet {
    pub fn new(seed: u64) -> Droplet {
        Droplet {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            descents: vec![],
            turn: 0,
        }
    }

    /// The sketch that is asked for next.
    fn sketch(&mut self) -> usize {
        self.turn += 1;
        let n = self.descents.len();
        // The defaults first.
        if let Some(new) = self
            .descents
            .iter()
            .position(|d| d.best.is_none() && !d.waiting.is_empty())
        {
            return new;
        }
        let best = (0..n).min_by(|a, b| {
            self.descents[*a]
                .cost()
                .total_cmp(&self.descents[*b].cost())
        });
        match self.turn % 3 {
            0 => self.rng.random_range(0..n),
            _ => best.unwrap_or(0),
        }
    }

    fn next(&mut self, space: &Space) -> Option<Point> {
        let sketch = self.sketch();
        let descent = &mut self.descents[sketch];
        // Only all answers tell where to go on.
        if descent.waiting.is_empty() && descent.open.is_empty() {
            descent.advance(space, sketch, &mut self.asked);
        }
        let next = descent.waiting.pop_front();
        descent.open.extend(next.clone());
        next.or_else(|| self.asked.fresh(space, &mut self.rng))
    }
}

impl Strategy for Droplet {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let space = context.space;
        if self.descents.is_empty() {
            for (sketch, s) in space.sketches.iter().enumerate() {
                let values = s.default.clone();
                let default = self.asked.take(space, Point { sketch, values });
                self.descents.push(Descent {
                    waiting: default.into_iter().collect(),
                    ..Descent::default()
                });
            }
        }
        let mut out = Vec::new();
        while out.len() < n
            && let Some(p) = self.next(space)
        {
            out.push(p);
        }
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        let Some(descent) = self.descents.get_mut(told.point.sketch) else {
            return;
        };
        descent.open.remove(told.point);
        let cost = told.cost.filter(|c| c.is_finite());
        if let Some(cost) = cost.filter(|c| *c < BETTER * descent.cost()) {
            descent.best = Some((cost, told.point.clone()));
        }
    }

    /// The best keeps its place, with its new cost, until another point is better by as much as always.
    fn revise(&mut self, point: &Point, cost: f64) {
        let Some(descent) = self.descents.get_mut(point.sketch) else {
            return;
        };
        match &mut descent.best {
            Some((best, p)) if p == point => *best = cost,
            Some((best, _)) if cost >= BETTER * *best => {}
            other => *other = Some((cost, point.clone())),
        }
    }
}
