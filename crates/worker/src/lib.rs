//! Worker processes: a pool of child processes that each answer one request at
//! a time over pipes.
//!
//! Owns spawning, framing, deadlines, and the replacement of a child that
//! died, hung or broke the protocol. Promises that every submitted request
//! gets exactly one answer, matched by id, and that no child outlives the
//! pool. What requests mean is left to `build` and `measure`.

mod child;
mod frame;
mod pool;

pub use child::{Limits, note, serve};
pub use pool::{Answer, CommandLine, Death, Pool, PoolError};
