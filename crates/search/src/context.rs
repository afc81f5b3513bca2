//! What a strategy or a filter may know of a search.

use crate::space::{Point, Space};
use ir::{Program, Target};
use store::{Outcome, Record};

/// What is known of a task when its search asks for candidates.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub space: &'a Space,
    /// The task's program; none where the space is that of a recorded table.
    pub program: Option<&'a Program>,
    /// What candidates are compiled for; none where the space is that of a recorded table.
    pub target: Option<&'a Target>,
    /// Records of the task that other runs made on this target and machine, fastest first.
    pub known: &'a [Record],
    /// The fastest records of similar tasks there, the most similar task's first.
    pub similar: &'a [Record],
}

/// What became of a point.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    pub point: &'a Point,
    pub outcome: &'a Outcome,
    /// What the search ranks points by, lower is better: nanoseconds, or scores of one kind.
    /// None of a candidate that failed.
    pub cost: Option<f64>,
}
