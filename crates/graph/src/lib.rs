//! Models as graphs of typed operators: the graph itself, every operator with
//! its shape rule and plain reference, the simplifier and the built-in models.
//!
//! Promises that a [`Model`] is always bound (every shape is a list of
//! numbers), in topological order and free of shape-deciding operands: what
//! decides a shape is an attribute. Leaves files, tensor programs, schedules and
//! code to others.

pub mod builtin;
mod columns;
mod even;
mod model;
pub mod ops;
mod packed;
mod precision;
mod quantised;
mod recognise;
pub mod reference;
mod rows;
mod simplify;
mod tables;
mod training;
mod whole_rows;

pub use even::EvenIndices;
pub use model::{
    Exceeded, Limit, Limits, Mark, Model, ModelError, Node, NodeId, Origin, Rewrite, State,
    TensorType, Users, Value, ValueId,
};
pub use ops::{Op, OpError};
pub use precision::{Narrowed, products_of_bf16};
pub use quantised::{Requantised, products_of_bytes};
pub use reference::{EvalError, Evaluated, Keep, evaluate, evaluate_from};
pub use rows::{NamedDim, Padded, Rows, padded, rows_apart, with_rows};
pub use simplify::{simplify, simplify_as};
pub use training::{
    DATA_GRADIENT, LABELS, LOGITS, LOSS, NotTrainable, Sgd, WEIGHT_GRADIENT, trainable,
    training_step,
};
