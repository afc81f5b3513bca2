//! Studies of measuring: the same policies under conditions that are varied.
//!
//! Owns what is computed for a study; nothing here reaches the store. What comes
//! from a model says so (*modelled*).

pub mod compare;
pub mod model;
