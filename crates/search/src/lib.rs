//! Which candidates to try: spaces of schedules, and strategies that walk them.
//!
//! Owns the hand-written templates, the rules that read a program, the sketches that both
//! write step by step on the program, the limits within which every step of a sketch is legal, and
//! ask/tell strategies. Pure and seeded: nothing here builds or
//! measures, and equal seeds and tells give equal asks.

mod accuracy;
mod analysis;
mod budget;
mod context;
mod cost;
mod draft;
mod kind;
mod label;
mod nests;
mod rates;
pub use rates::STARTS_A_CYCLE;
mod rules;
mod space;
mod strategy;
mod templates;

pub use accuracy::{Accuracy, UnknownAccuracy, is_exact};
pub use analysis::text as analysis_text;
pub use budget::{
    BUDGETS, Budget, Epoch, Gradient, MakeBudget, ModelEpoch, Promise, RoundRobin, Sequential,
    Spending, Standing, Survey, SurveyEnd, SurveyRule, Turn, WholeModel, budget, budget_names,
    untried,
};
pub use context::{Context, Forecast, ReadColumns, SimilarTask, Told};
pub use cost::{Analytic, Asked, CostModel, Predicted, Subject};
pub use draft::{DecidedPart, Refusal, Refused};
pub use kind::{Allowed, SpaceKind, UnknownSpaceKind};
pub use label::{Label, Labelled, label};
pub use rules::{name_for_people, text as rules_text};
pub use space::{Candidate, Limit, Point, Product, Sketch, SketchStep, Space};
pub use strategy::{
    Evolutionary, Learned, LearnedCosts, Learner, MakeStrategy, Random, STRATEGIES, Strategy,
    strategy, strategy_names,
};
pub use templates::{DefaultCandidate, default_candidate, fallback, peak_factor, space};
