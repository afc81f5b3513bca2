//! A candidate on its way from a strategy to its answer.

use build::Read;
use measure::{PartTimes, Spent};
use runtime::BuiltKernel;
use search::{Asked, Candidate, Point};
use std::sync::Arc;
use store::Outcome;

/// The form in which filters and evaluators take a candidate. Each form has all that the
/// forms before it have, but for [`Form::Read`]: of code only what somebody takes in that form was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A point: the values of the decisions, which strategies see.
    Point,
    /// A schedule for the task's program.
    Schedule,
    /// What reading the machine code told. What was read is no kernel yet: it is built again for that.
    Read,
    /// Machine code.
    Code,
}

/// A candidate of a search.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Position of its search in the run.
    pub search: usize,
    /// Its number in its search, from 0, in the order of asking.
    pub number: u64,
    /// The earlier run that asked for it, in whose search it has this number; none of this run's candidates.
    pub run: Option<Arc<str>>,
    pub point: Point,
    /// From [`Form::Schedule`] on.
    pub candidate: Option<Candidate>,
    /// The candidate's trace as text; empty before [`Form::Schedule`].
    pub trace: String,
    /// From [`Form::Code`] on.
    pub kernel: Option<Arc<BuiltKernel>>,
    /// The filter that would drop it, if it is evaluated all the same: see [`crate::Options::audit`].
    pub audited: Option<&'static str>,
    /// From [`Form::Read`] on, where a filter or the evaluator takes that form.
    pub read: Option<Arc<Read>>,
    /// Its part of the CPU time that the strategy took to propose points.
    pub proposing_cpu_ns: u64,
    /// What asking for the candidate, and replaying its trace, took.
    pub asking: Spent,
    /// What building it took, all builds together.
    pub building: Spent,
}

impl Trial {
    /// A point that was just asked for.
    pub fn new(search: usize, number: u64, point: Point) -> Trial {
        Trial {
            search,
            number,
            run: None,
            point,
            candidate: None,
            trace: String::new(),
            kernel: None,
            read: None,
            audited: None,
            proposing_cpu_ns: 0,
            asking: Spent::default(),
            building: Spent::default(),
        }
    }

    /// What models of costs are asked about it.
    pub fn asked(&self) -> Asked<'_, Read> {
        Asked {
            point: &self.point,
            read: self.read.as_deref(),
        }
    }
}

/// A candidate that an earlier run asked for, with the score that it had in the end.
#[derive(Clone, Debug)]
pub struct EarlierTrial {
    pub trial: Trial,
    pub score: Option<f64>,
}

/// Where an answer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPlace {
    /// [`store::TargetKey::text`].
    pub target: String,
    /// [`store::MachineKey::fingerprint`].
    pub machine: String,
}

/// What an evaluator says of a trial. Its cost is that of the outcome
/// ([`store::Outcome::cost`]); the device is in the outcome's conditions.
#[derive(Clone, Debug)]
pub struct Answer {
    pub trial: Trial,
    pub outcome: Outcome,
    /// What the answer took, and the parts of that which are known.
    pub spent: Spent,
    pub parts: PartTimes,
    pub place: Arc<AnswerPlace>,
}
