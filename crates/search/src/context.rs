//! What a strategy or a filter may know of a search.

use crate::cost::Subject;
use crate::space::{Point, Space};
use crate::strategy::Learner;
use ir::{Program, Target};
use store::{Outcome, Record};

/// Reads the lowered program of each point as a row of numbers, all of one length; none of a point that cannot be
/// lowered. Takes about a millisecond a point.
pub type ReadColumns<'a> = dyn Fn(&Subject<'_>, &[Point]) -> Vec<Option<Vec<f64>>> + 'a;

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
    /// Gives what [`Context::columns_of`] gives; none where models are to know decisions only.
    pub columns: Option<&'a ReadColumns<'a>>,
    /// What models of answers are made of.
    pub learner: Learner,
    /// Looks up what [`Context::similar`] gives; once a search, as that takes time.
    pub look_up_similar: &'a dyn Fn() -> &'a [SimilarTask],
}

/// What was measured of another task of the same operator, on the same target and machine.
#[derive(Clone, Debug)]
pub struct SimilarTask {
    pub key: String,
    pub program: Program,
    pub target: Target,
    pub space: Space,
    /// Points of that space.
    pub points: Vec<Point>,
    /// Of each point the time; infinite if it failed.
    pub costs: Vec<f64>,
}

impl SimilarTask {
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            program: &self.program,
            target: &self.target,
            space: &self.space,
        }
    }
}

impl<'a> Context<'a> {
    /// Of a space about which nothing else is known.
    pub fn of(space: &'a Space) -> Context<'a> {
        Context {
            space,
            program: None,
            target: None,
            known: &[],
            columns: None,
            learner: Learner::default(),
            look_up_similar: &|| &[],
        }
    }

    /// What costs are predicted of; none where the space is that of a recorded table.
    pub fn subject(&self) -> Option<Subject<'a>> {
        Some(Subject {
            program: self.program?,
            target: self.target?,
            space: self.space,
        })
    }

    /// What the lowered programs of points tell; nothing where models are to know decisions only.
    pub fn columns_of(&self, points: &[Point]) -> Vec<Option<Vec<f64>>> {
        match (self.columns, self.subject()) {
            (Some(read), Some(subject)) => read(&subject, points),
            _ => vec![None; points.len()],
        }
    }

    /// Similar tasks that were measured there, the most similar first. They are looked up when somebody
    /// first asks for them.
    pub fn similar(&self) -> &'a [SimilarTask] {
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

/// What a strategy's model said of a point, and what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Higher is better.
    pub score: f64,
    /// As [`Told::cost`].
    pub cost: f64,
}
