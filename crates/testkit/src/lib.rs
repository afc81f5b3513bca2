//! What the integration tests of several crates share: the runner of file
//! tests, random programs, random arguments and random traces, how many of them
//! are wanted, and what this machine runs.
//!
//! Owns no product code and no expectations of its own. Everything but [`host`]
//! and [`setting`] is a function of its arguments: the same seed gives the same
//! program on every machine.

pub mod args;
pub mod contractions;
pub mod file_test;
pub mod filtering;
pub mod host;
pub mod programs;
pub mod traces;
pub mod vectors;

pub use args::random_args;
pub use contractions::{Window, contraction_args, random_contraction};
pub use filtering::filtering_trace;
pub use programs::{Distribution, Kind, random_program};
pub use traces::random_trace;

/// A count from the environment, or the usual one.
///
/// # Panics
/// If the variable is no number.
pub fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |v| v.parse().expect("a number"))
}
