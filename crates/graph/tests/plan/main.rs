//! Plans: every operator's program against its reference, by the interpreter,
//! and what fusion and layouts make of models.

mod builtin;
mod convolutions;
mod fusion;
mod judge;
mod operators;
