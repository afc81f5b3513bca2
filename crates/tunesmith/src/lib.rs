//! Tunesmith: finds fast implementations for the tensor programs of a model
//! and runs the result. The only stable API of the workspace.

pub mod check;
pub mod cli;
pub mod explain;
mod imported;
pub mod source;
