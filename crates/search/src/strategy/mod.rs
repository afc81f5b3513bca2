//! Strategies: who proposes the next points. They only see ranks.

mod annealing;
mod ansor;
mod asked;
mod bayesian;
mod droplet;
mod encoder;
mod evolution;
mod evolutionary;
mod funnel;
mod genetic;
mod grid;
mod kernel_tuner;
mod kernel_tuner_annealing;
mod kernel_tuner_genetic;
mod learned;
mod learner;
mod places;
mod q_learning;
mod random;
mod reinforcement;

pub use annealing::Annealing;
pub use ansor::Ansor;
pub use bayesian::Bayesian;
pub use droplet::Droplet;
pub use evolution::EvolutionStrategies;
pub use evolutionary::Evolutionary;
pub use funnel::Funnel;
pub use genetic::Genetic;
pub use grid::Grid;
pub use kernel_tuner_annealing::KernelTunerAnnealing;
pub use kernel_tuner_genetic::KernelTunerGenetic;
pub use learned::{Learned, LearnedCosts};
pub use learner::Learner;
pub use q_learning::QLearning;
pub use random::Random;
pub use reinforcement::Reinforcement;

use crate::context::{Context, Forecast, Told};
use crate::space::{Point, Space};

/// Proposes points and learns from their costs.
pub trait Strategy {
    /// Up to `n` points within the limits that were not asked before; fewer when the space runs out.
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point>;

    /// What became of a point. Points that the strategy did not ask for may be told too: the
    /// best that earlier runs found.
    fn tell(&mut self, told: &Told<'_>);

    /// A point that was told before has another cost now. It is no new answer: it replaces the earlier cost wherever
    /// the strategy keeps that.
    fn revise(&mut self, point: &Point, cost: f64);

    /// What models it fits to answers: by [`Context::learner`], and with [`Context::columns`] where these are; none of a
    /// strategy that fits none.
    fn learned(&self) -> Option<&Learned> {
        None
    }

    /// What its model said of points before they were measured.
    fn forecasts(&self) -> &[Forecast] {
        self.learned().map_or(&[], Learned::forecasts)
    }

    /// Whether it looks at [`Context::similar`]. These are looked up before it is asked, as it may be asked on a thread
    /// of its own, where no store is.
    fn reads_similar(&self) -> bool {
        self.learned().is_some()
    }
}

/// The default of every sketch.
fn defaults(space: &Space) -> Vec<Point> {
    let default = |(sketch, s): (usize, &crate::space::Sketch)| Point {
        sketch,
        values: s.default.clone(),
    };
    space.sketches.iter().enumerate().map(default).collect()
}

/// Makes a strategy from a seed.
pub type MakeStrategy = fn(u64) -> Box<dyn Strategy + Send>;

/// Every strategy: its name, and what makes one.
pub const STRATEGIES: [(&str, MakeStrategy); 15] = [
    ("annealing", |seed| Box::new(Annealing::new(seed))),
    ("ansor", |seed| Box::new(Ansor::new(seed))),
    ("bayesian", |seed| Box::new(Bayesian::new(seed))),
    ("droplet", |seed| Box::new(Droplet::new(seed))),
    ("evolutionary", |seed| Box::new(Evolutionary::new(seed))),
    ("es", |seed| Box::new(EvolutionStrategies::new(seed))),
    ("funnel", |seed| Box::new(Funnel::new(seed))),
    ("genetic", |seed| Box::new(Genetic::new(seed))),
    ("grid", |seed| Box::new(Grid::new(seed))),
    ("kernel-tuner-annealing", |seed| {
        Box::new(KernelTunerAnnealing::new(seed))
    }),
    ("kernel-tuner-genetic", |seed| {
        Box::new(KernelTunerGenetic::new(seed))
    }),
    ("q-learning", |seed| Box::new(QLearning::new(seed))),
    ("random", |seed| Box::new(Random::new(seed))),
    ("reinforcement", |seed| Box::new(Reinforcement::new(seed))),
    ("reinforcement-plain", |seed| {
        Box::new(Reinforcement::plain(seed))
    }),
];

/// Names of the strategies, for the command line.
pub fn strategy_names() -> [&'static str; STRATEGIES.len()] {
    STRATEGIES.map(|(name, _)| name)
}

/// A strategy by name, seeded; `None` if there is none of that name.
pub fn strategy(name: &str, seed: u64) -> Option<Box<dyn Strategy + Send>> {
    let (_, make) = STRATEGIES.iter().find(|(known, _)| *known == name)?;
    Some(make(seed))
}
