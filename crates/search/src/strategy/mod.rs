//! Strategies: who proposes the next points. They only see ranks.

mod evolutionary;
mod random;

pub use evolutionary::Evolutionary;
pub use random::Random;

use crate::context::{Context, Told};
use crate::space::Point;

/// Proposes points and learns from their costs.
pub trait Strategy {
    /// Up to `n` points within the limits that were not asked before; fewer when the space runs out.
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point>;

    /// What became of a point. Points that the strategy did not ask for may be told too: the
    /// best that earlier runs found.
    fn tell(&mut self, told: &Told<'_>);
}

/// Names of the strategies, for the command line.
pub const STRATEGIES: [&str; 2] = ["evolutionary", "random"];

/// A strategy by name, seeded; `None` if there is none of that name.
pub fn strategy(name: &str, seed: u64) -> Option<Box<dyn Strategy + Send>> {
    match name {
        "evolutionary" => Some(Box::new(Evolutionary::new(seed))),
        "random" => Some(Box::new(Random::new(seed))),
        _ => None,
    }
}
