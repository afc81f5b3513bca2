//! Schedules: steps that change how a program runs, not what it computes.
//!
//! Owns the steps (one file each, under `steps`), what makes them legal, the
//! traces that are lists of steps with open decisions, their text form and
//! their replay. A step refuses (`Illegal`) or applies whole; it never changes
//! the layout of a parameter. Searching for good decisions, lowering and
//! generating code are left to other crates.

mod cook_toom;
mod decision;
mod illegal;
mod in_place;
pub mod intrinsics;
mod legality;
mod nest;
mod rebind;
mod recover;
mod step;
pub mod steps;
mod text;
mod trace;
mod written;

pub use decision::{Decision, DecisionKind, HERE};
pub use illegal::Illegal;
pub use in_place::in_place;
pub use nest::{loop_along, numbered_axis, own_loops};
pub use step::{Arg, Factor, LoopArg, Made, Step};
pub use steps::cache_read::SUFFIX_READ;
pub use steps::partition::{SUFFIX_AFTER, SUFFIX_BEFORE};
pub use text::{ParseError, parse, print};
pub use trace::{ReplayError, Trace, replay};

#[cfg(test)]
mod data_tests;
