//! What a strategy or a filter may know of a search.

use crate::space::{Point, Space};
use ir::{Program, Target};
use store::{Outcome, Record};

/// What is known of a task when its search asks for candidates.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub space: &'a Space,
    /// The task's program; none where the space is that of a recorded table.
    pub program: Option<&'a Program>,
    /// What candidates are compiled for; none where the space is that of a recorded table.
    pub target: Option<&'a Target>,
    /// Records of the task that other runs made on this target and machine, fastest first.
    pub known: &'a [Record],
    /// Looks up what [`Context::similar`] gives; once a search, as that takes time.
    pub look_up_similar: &'a dyn Fn() -> &'a [Record],
}

impl<'a> Context<'a> {
    /// The fastest records of similar tasks there, the most similar task's first. They are
    /// looked up when somebody first asks for them.
    pub fn similar(&self) -> &'a [Record] {
        (self.look_up_similar)()
    }
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
