//! Random search without repetition.

use super::Strategy;
use super::asked::Asked;
use crate::context::{Context, Told};
use crate::space::Point;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

pub struct Random {
    rng: Pcg64Mcg,
    asked: Asked,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
        }
    }
}

impl Strategy for Random {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let fresh = |_| self.asked.fresh(context.space, &mut self.rng);
        (0..n).map_while(fresh).collect()
    }

    fn tell(&mut self, _: &Told<'_>) {}

    fn revise(&mut self, _: &Point, _: f64) {}
}
