//! Evaluators: they say how good candidates are.
//!
//! Owns the one interface between the loop and whatever answers: devices that
//! measure, and tables of earlier answers. The loop hands over whole batches,
//! which own their parts, and polls for answers. So an evaluator may answer on the
//! caller's thread, on its own threads or from another machine. An evaluator knows
//! nothing of strategies, budgets and the store.

mod core_set;
mod reading;
mod recorded;
mod timed;

pub use core_set::{CoreSet, Inbox};
pub use reading::Reading;
pub use recorded::{Recorded, space_of};
pub use timed::{MeasureSettings, Timed, known_states};

use crate::trial::{Answer, AnswerPlace, EarlierTrial, Form, Trial};
use build::ReadOptions;
use ir::{Program, Target};
use measure::TaskData;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::EventKind;

/// Trials of one task that are evaluated together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its number in the run; the reply repeats it.
    pub number: u64,
    /// Position of the search in the run.
    pub search: usize,
    /// Key of the task.
    pub task: Arc<str>,
    /// The task's program, and what candidates are for; none of a table.
    pub program: Option<Arc<Program>>,
    pub target: Option<Arc<Target>>,
    /// Where the search wants answers for.
    pub place: Arc<AnswerPlace>,
    /// What code is measured with; only for evaluators that take [`Form::Code`] and need it.
    pub data: Option<Arc<TaskData>>,
    /// Of the search; equal seeds and answers give equal batches.
    pub seed: u64,
    pub trials: Vec<Trial>,
    /// The least cost so far, for giving up early what is clearly worse.
    pub best: Option<f64>,
    /// Bytes of copies that constants rotate through, so that they are as near as in the
    /// model; 0 for none.
    pub rotate_bytes: u64,
    /// Most time for sampling one candidate, where the usual rules would take longer.
    pub sampling: Duration,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Reply {
    /// That of the batch.
    pub number: u64,
    /// One a trial. Trials without an answer are taken as [`store::Outcome::Unanswered`], and
    /// people are told.
    pub answers: Vec<Answer>,
    /// Trials of earlier batches whose answers are others now, as the evaluator compares candidates with each
    /// other: scores of the same kind.
    pub revised: Vec<Answer>,
    /// What the evaluator did, for the log of the run.
    pub events: Vec<EventKind>,
    /// What making the task's data took, if it was made for this batch.
    pub setup: Option<Duration>,
    /// What the batch took as a whole, where its trials were evaluated side by side on this
    /// machine: the budget then counts asking and building, and of this each trial's share.
    /// None where the answers say what each took: the budget counts that alone, so that
    /// equal answers give equal runs.
    pub took: Option<Duration>,
}

/// Longer than a batch takes that this crate's limits on candidates end.
const SILENCE: Duration = Duration::from_secs(3600);

/// Says how good candidates are. The costs that it answers a search with are of one kind.
pub trait Evaluator {
    /// The name that records have of it: [`store::Record::evaluator`]. What the store knows by
    /// an evaluator of [`store::MEASURING`] is not asked for again; such a name needs
    /// [`Form::Schedule`] at least, as it is by the schedule that candidates are found again.
    fn name(&self) -> &'static str;

    /// The form in which it takes candidates.
    fn form(&self) -> Form;

    /// Whether batches of code come with their data, for which the plain schedule of every task
    /// is built first. Asked of evaluators that take [`Form::Code`] only.
    fn needs_data(&self) -> bool {
        true
    }

    /// What builders are to read off code. Evaluators that take [`Form::Read`] say so.
    fn reads_for(&self) -> Option<ReadOptions> {
        None
    }

    /// The kind of the scores that it answers a task with; none if it answers with times.
    fn score_kind(&self, task: &str) -> Option<String>;

    /// Candidates of a task that are best handed over together; at least 1.
    fn batch(&self) -> usize;

    /// Takes a batch. Its answers come from [`Evaluator::poll`].
    fn submit(&mut self, batch: Batch);

    /// The next reply; called while a batch has none. Replies may come in any order. An
    /// evaluator without threads of its own evaluates the oldest batch now, however long that
    /// takes; others wait so long. None if no batch was answered.
    /// `quiet(true)` silences what else the run does on this machine, `quiet(false)` ends
    /// that.
    fn poll(&mut self, wait: Duration, quiet: &mut dyn FnMut(bool)) -> Option<Reply>;

    /// Takes what the runs that a search goes on from had logged as [`store::Seen`], in that order, before the first batch
    /// of the task. `kind` is the name of the task's program.
    fn go_on(&mut self, _task: &Arc<str>, _kind: &str, _earlier: &[EarlierTrial]) {}

    /// How long it may say nothing while it has batches. Those are lost then: their trials are
    /// taken as unanswered, and people are told.
    fn silence(&self) -> Duration {
        SILENCE
    }

    /// Ranks the trials of a batch: evaluates them once more, as exactly as it can, such as
    /// alone and in turns. None if the evaluator can say no more than it said.
    fn rank(&mut self, _batch: Batch, _turns: u32) -> Option<Reply> {
        None
    }

    /// Nothing is evaluated beyond this; `None` for no end. What is not evaluated by then is
    /// answered as [`store::Outcome::Unanswered`].
    fn end_by(&mut self, _end: Option<Instant>) {}

    /// What people should know of it, since this was last asked.
    fn take_warnings(&mut self) -> Vec<String> {
        vec![]
    }

    /// Batches that it is handed before it has answered one, at most. Others wait in the run, and are told what was best
    /// when they are handed over.
    fn most_batches(&self) -> usize {
        usize::MAX
    }

    /// Whether [`Evaluator::poll`] has something to tell at once.
    fn is_answered(&self) -> bool {
        false
    }

    /// Whether it measures on this machine while the run does other things. Without [`crate::Options::overlap`] the run
    /// builds nothing meanwhile, and it measures nothing alone before all of its batches are answered.
    fn is_beside(&self) -> bool {
        false
    }

    /// Whether it still answers. What no longer does is handed no more batches, where another one answers alike.
    fn works(&self) -> bool {
        true
    }
}
