//! Worker processes: a pool of child processes that each answer one request at
//! a time over pipes.
//!
//! Owns spawning, framing, deadlines, and the replacement of a child that
//! died, hung or broke the protocol. Promises that every submitted request
//! gets exactly one answer, matched by id, that no child outlives the pool, and
//! that one which nobody can end, as its parent is stopped, ends by itself. What requests mean is left to `build` and `measure`.

mod child;
mod frame;
mod pool;
mod stop;

pub use child::{ChildLimits, cpu_ns, note, serve};
pub use pool::{Answer, CommandLine, Death, OUTSIDE_SIGNALS, Pool, PoolError, TimeLimit};
pub use stop::{LINGER, Stop};
