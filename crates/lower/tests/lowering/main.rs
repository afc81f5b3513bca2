//! Lowering, judged by the interpreters: flat code computes what the raw
//! program means, and has the shape that its schedule asked for.

mod conv;
mod files;
mod fuzz;
mod hand;
mod judge;
mod lanes;
mod matmul;
mod memory;
mod rows;
mod tensors;
mod traces;
