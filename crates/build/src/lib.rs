//! From a candidate to built code: replay the trace, lower, generate machine
//! code; in this process (`build`) or in persistent builder processes
//! (`BuilderPool`), with an object cache.
//!
//! Promises that a failure says in which stage it happened and leaves the
//! caller running. Knows nothing of how code is run or why it was chosen.

mod builder;
mod cache;
mod pipeline;
mod toolchain;

pub use builder::{BuildRequest, BuildResult, BuilderPool, Fault, serve};
pub use cache::ObjectCache;
pub use pipeline::{
    BuildFailure, BuildOptions, BuildStage, Built, Extras, Read, ReadOptions, build, built_kernel,
    kernel_target, read_columns, read_loops,
};
pub use toolchain::toolchain;
