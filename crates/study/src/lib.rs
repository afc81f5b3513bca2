//! Studies of measuring: the same policies under conditions that are varied.
//!
//! Owns what is computed for a study; nothing here reaches the store. What comes
//! from a model says so (*modelled*).

mod cell;
mod families;
mod field;
pub mod measured;
pub mod model;
pub mod plots;
mod relate;
pub mod report;
mod row;
mod saved;
mod sweep;

pub use families::{FAMILIES, Family};
pub use measured::{Options, Outcome, Program, Study};
pub use row::Row;
pub use saved::Saved;
pub use sweep::{Sweep, Swept, Variant, variants};
