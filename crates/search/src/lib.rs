//! Which candidates to try: spaces of schedules, and strategies that walk them.
//!
//! Owns the hand-written templates, the legality limits that a target imposes
//! on them, and ask/tell strategies. Pure and seeded: nothing here builds or
//! measures, and equal seeds and tells give equal asks.

mod accuracy;
mod budget;
mod context;
mod draft;
mod space;
mod strategy;
mod templates;

pub use accuracy::{Accuracy, UnknownAccuracy, is_exact};
pub use budget::{BUDGETS, Budget, Promise, RoundRobin, Standing, Turn, budget, untried};
pub use context::{Context, Told};
pub use space::{Candidate, Limit, Point, Sketch, Space};
pub use strategy::{Evolutionary, Random, STRATEGIES, Strategy, strategy};
pub use templates::{DefaultCandidate, default_candidate, fallback, peak_factor, space};
