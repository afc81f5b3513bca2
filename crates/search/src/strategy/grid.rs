//! Every point by its number (AutoTVM's grid search): the last decision changes fastest, and sketches take
//! turns, since the first one alone may have more points than anybody asks for.

use super::Strategy;
use super::asked::Asked;
use crate::context::{Context, Told};
use crate::space::Point;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Numbers of one sketch that are passed over in one turn, since they are beyond its limits.
const MAX_SKIPS: usize = 20_000;

/// Promises that a seed changes nothing until the numbers are used up.
pub struct Grid {
    asked: Asked,
    /// The next number of each sketch.
    next: Vec<u64>,
    turn: usize,
    rng: Pcg64Mcg,
}

impl Grid {
    pub fn new(seed: u64) -> Grid {
        Grid {
            asked: Asked::default(),
            next: vec![],
            turn: 0,
            rng: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    /// The next point of the sketch whose turn it is.
    fn step(&mut self, context: &Context<'_>) -> Option<Point> {
        let space = context.space;
        self.turn = (self.turn + 1) % space.sketches.len();
        let size = space.sketches[self.turn].cardinality();
        for _ in 0..MAX_SKIPS {
            let index = self.next[self.turn];
            if index >= size {
                return None;
            }
            self.next[self.turn] += 1;
            let found = self.asked.take(space, space.at(self.turn, index));
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

impl Strategy for Grid {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let space = context.space;
        if self.next.is_empty() {
            self.next = vec![0; space.sketches.len()];
            self.turn = space.sketches.len() - 1;
        }
        let mut out = Vec::new();
        let mut without = 0;
        while out.len() < n && without < space.sketches.len() {
            match self.step(context) {
                Some(p) => {
                    out.push(p);
                    without = 0;
                }
                None => without += 1,
            }
        }
        // Within the limits there may be points beyond many that are not.
        while out.len() < n
            && let Some(p) = self.asked.fresh(space, &mut self.rng)
        {
            out.push(p);
        }
        out
    }

    fn tell(&mut self, _: &Told<'_>) {}

    fn revise(&mut self, _: &Point, _: f64) {}
}
