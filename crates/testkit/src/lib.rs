//! What the integration tests of several crates share: the runner of file
//! tests, random programs, random arguments and random traces.
//!
//! Owns no product code and no expectations of its own. Everything is a
//! function of its arguments: the same seed gives the same program on every
//! machine.

pub mod args;
pub mod file_test;
pub mod filtering;
pub mod programs;
pub mod traces;
pub mod vectors;

pub use args::random_args;
pub use filtering::filtering_trace;
pub use programs::{Kind, Options, random_program};
pub use traces::random_trace;
