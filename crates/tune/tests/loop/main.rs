//! The loop with evaluators that exist only here: what it asks, to whom it tells
//! the answers, what it logs, and when it ends. Nothing is built or measured.

mod budgets;
mod core_sets;
mod fakes;
mod filters;
mod late;
mod moving_window;
mod one_run;
mod recorded;
mod resumed;
mod revised;
mod setting;
mod states;
mod unbuilt;
