//! Strategies: who proposes the next points. They only see ranks.

mod evolutionary;
mod random;

pub use evolutionary::Evolutionary;
pub use random::Random;

use crate::space::{Point, Space};

/// Proposes points and learns from their costs.
pub trait Strategy {
    /// Up to `n` legal points that were not asked before; fewer when the space runs out.
    fn ask(&mut self, space: &Space, n: usize) -> Vec<Point>;

    /// The cost of an asked point, lower is better; `None` if it failed.
    fn tell(&mut self, point: &Point, cost: Option<f64>);
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
