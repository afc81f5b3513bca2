//! Evolutionary search: the defaults first, then children of the best seen,
//! with a share of fresh samples against premature convergence.

use super::Strategy;
use super::asked::Asked;
use crate::context::{Context, Told};
use crate::space::{Point, Space};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Best points that breed.
const PARENTS: usize = 16;
/// Points sampled at random before breeding starts.
const SEEDED: usize = 12;
/// Share of fresh samples afterwards, one in so many.
const FRESH_ONE_IN: u32 = 6;
const MAX_DRAWS: usize = 200;

pub struct Evolutionary {
    rng: Pcg64Mcg,
    asked: Asked,
    /// (cost, point), best first.
    best: Vec<(f64, Point)>,
    proposed: usize,
}

impl Evolutionary {
    pub fn new(seed: u64) -> Evolutionary {
        Evolutionary {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            best: Vec::new(),
            proposed: 0,
        }
    }

    /// Puts a point among the best, if it is one.
    fn keep(&mut self, point: &Point, cost: f64) {
        let at = self.best.partition_point(|(c, _)| *c <= cost);
        self.best.insert(at, (cost, point.clone()));
        self.best.truncate(4 * PARENTS);
    }

    fn draw(&mut self, space: &Space) -> Point {
        let sketches = space.sketches.len();
        if self.proposed < sketches {
            let values = space.sketches[self.proposed].default.clone();
            return Point {
                sketch: self.proposed,
                values,
            };
        }
        let early = self.proposed < sketches + SEEDED;
        if early || self.best.is_empty() || self.rng.random_ratio(1, FRESH_ONE_IN) {
            return space.sample(&mut self.rng);
        }
        // Low ranks are likelier: the minimum of two uniform draws.
        let n = self.best.len().min(PARENTS);
        let rank = |rng: &mut Pcg64Mcg| rng.random_range(0..n).min(rng.random_range(0..n));
        let a = self.best[rank(&mut self.rng)].1.clone();
        if self.rng.random_ratio(1, 3) {
            let b = self.best[rank(&mut self.rng)].1.clone();
            space.cross(&a, &b, &mut self.rng)
        } else {
            space.mutate(&a, &mut self.rng)
        }
    }
}

impl Strategy for Evolutionary {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let mut out = Vec::new();
        let mut draws = 0;
        while out.len() < n && draws < MAX_DRAWS * n {
            draws += 1;
            let p = self.draw(context.space);
            self.proposed += 1;
            out.extend(self.asked.take(context.space, p));
        }
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        if let Some(cost) = told.cost.filter(|c| c.is_finite()) {
            self.keep(told.point, cost);
        }
    }

    fn revise(&mut self, point: &Point, cost: f64) {
        self.best.retain(|(_, p)| p != point);
        self.keep(point, cost);
    }
}
