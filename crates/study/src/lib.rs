//! Studies: policies of measuring under conditions that are varied, strategies by
//! real searches and on recorded tables, predictors of scores on simulated samples, and choosing while inferences run.
//!
//! Owns what is computed for a study; nothing here reaches a store of measurements. What
//! comes from a model says so (*modelled*), and so does what comes from a table
//! (*replayed*).

pub mod area;
mod cell;
pub mod cold;
pub mod curves;
pub mod doctor;
mod families;
mod field;
mod finished;
mod halide;
pub mod learning;
pub mod measured;
pub mod model;
pub mod plots;
mod points;
pub mod predictors;
mod relate;
pub mod report;
mod row;
mod saved;
mod saving;
pub mod scores;
pub mod searched;
pub mod select;
pub mod strategies;
pub mod survey;
mod sweep;
pub mod targets;
pub mod trimmed;
pub mod winners;

pub use families::{FAMILIES, Family, Tasks};
pub use finished::Finished;
pub use measured::{Findings, Study, StudyOptions, Workload};
pub use points::{
    Counts, MODELS, MeasuredPoint, MeasuredTask, PointOptions, Points, Prediction, Spread,
};
pub use row::Row;
pub use saved::Saved;
pub use sweep::{Sweep, Swept, Variant, variants};
