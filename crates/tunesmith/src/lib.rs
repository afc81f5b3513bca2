//! Tunesmith: finds fast implementations for the tensor programs of a model
//! and runs the result. The only stable API of the workspace.
//!
//! Owns the loop of ask, build, evaluate, store and tell, and the ways from a
//! model to a compiled one. The crates below know nothing of each other's
//! business; here is where they meet.

pub mod bench;
pub mod check;
pub mod cli;
pub mod compile;
pub mod default_model;
pub mod doctor;
pub mod error;
pub mod explain;
mod imported;
pub mod knobs;
pub mod known;
pub mod layouts;
pub mod machine;
pub mod source;
pub mod study;
pub mod threads;
pub mod tune;
mod watch;

pub use error::Error;
