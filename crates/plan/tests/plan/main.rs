//! Plans: every operator's program against its reference, by the interpreter,
//! and what fusion and layouts make of models.

mod batch_sums;
#[path = "../../../onnx/tests/build_onnx/mod.rs"]
mod build_onnx;
mod builtin;
mod channel_blocks;
mod columns;
mod convolutions;
mod fusion;
mod indexing;
mod interface;
mod judge;
mod long;
mod moves;
mod operators;
mod resize;
