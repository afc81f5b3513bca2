//! What a run tells whoever watches it.

use crate::energy::JoulesSoFar;
use crate::progress::TaskProgress;
use std::time::Duration;

/// Is told what a run does. Each method may do nothing.
pub trait Observer {
    /// What the run does from now on, such as `building the default model`.
    fn stage(&mut self, _what: &str) {}

    /// The share of the work that is done, 0 to 1, and what is done now.
    fn part(&mut self, _done: f64, _what: &str) {}

    /// A finding that is worth keeping in sight.
    fn note(&mut self, _text: &str) {}

    /// The figures of this moment.
    fn status(&mut self, _status: &Status<'_>) {}
}

/// The figures of one moment of a search.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    /// Since the command began.
    pub elapsed: Duration,
    /// Share of the budget that is spent, 0 to 1.
    pub spent: f64,
    /// Time left, where the budget is one of time.
    pub left: Option<Duration>,
    /// Candidates are read and nothing is run: trials are candidates that were read, and the time
    /// left is that for reading.
    pub reading: bool,
    pub trials: u64,
    pub trials_per_s: f64,
    pub failures: u64,
    /// Sum of the kernels of all models: of the defaults, and of the best so far. Without
    /// models the first is 0.
    pub start_ms: f64,
    pub model_ms: f64,
    pub tasks: usize,
    /// Those of which a candidate has an answer.
    pub tasks_measured: usize,
    /// The costliest first, a few of them.
    pub costliest: &'a [TaskProgress<'a>],
    /// Of the command, as they were read within the last second; none if nothing counts them.
    pub joules: Option<JoulesSoFar>,
    /// CPUs that other programs take, if that is worth a notice.
    pub others: Option<f64>,
    /// The task that was asked last.
    pub task: &'a str,
    pub task_best_ms: Option<f64>,
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}
