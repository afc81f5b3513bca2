//! Random search without repetition.

use super::Strategy;
use crate::context::{Context, Told};
use crate::space::Point;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::HashSet;

/// Draws after which a space counts as exhausted.
const MAX_DRAWS: usize = 200;

pub struct Random {
    rng: Pcg64Mcg,
    asked: HashSet<Point>,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: HashSet::new(),
        }
    }
}

impl Strategy for Random {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let mut out = Vec::new();
        let mut draws = 0;
        while out.len() < n && draws < MAX_DRAWS * n {
            draws += 1;
            let p = context.space.sample(&mut self.rng);
            if self.asked.insert(p.clone()) {
                out.push(p);
            }
        }
        out
    }

    fn tell(&mut self, _: &Told<'_>) {}
}
