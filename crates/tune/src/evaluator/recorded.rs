//! Answers that were recorded earlier, replayed.
//!
//! Owns how a table becomes a space without a program, and how its rows answer
//! batches. A point without a row is unanswered: no answer is made up. Whoever shows
//! such answers says that they are *replayed*.

use super::{Batch, Evaluator, Reply};
use crate::trial::{Answer, AnswerPlace, Form, Trial};
use measure::{PartTimes, Spent};
use schedule::{Decision, DecisionKind};
use search::{Sketch, Space};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{Cost, Outcome, RECORDED, SpentByStage, Table};

/// Trials of a search that are answered together: enough that the log of a run, which is
/// written once a batch, takes little of a trial's time.
const BATCH: usize = 64;

/// The space of a table: one sketch, whose decisions are the knobs in their order. The options
/// of a decision are numbers of the knob's values.
pub fn space_of(table: &Table) -> Space {
    let decision = |knob: &store::TableKnob| Decision {
        name: knob.name.clone(),
        kind: DecisionKind::Categorical {
            options: (0..knob.values.len() as i64).collect(),
        },
        value: vec![0],
    };
    let decisions: Vec<Decision> = table.knobs().iter().map(decision).collect();
    // Nothing says which row was somebody's default, and the first values need have none.
    let first = table.iter().map(|(values, _)| values.to_vec()).min();
    let default = first.unwrap_or_else(|| vec![0; decisions.len()]);
    Space::of(vec![Sketch::of_knobs("table", decisions, default)])
}

/// Replays the answers of tables.
pub struct Recorded {
    /// By the keys of tasks.
    tables: HashMap<Arc<str>, Arc<Table>>,
    place: Arc<AnswerPlace>,
    waiting: VecDeque<Batch>,
}

impl Recorded {
    /// Answers the tasks of these keys, for a place.
    pub fn new(
        tables: impl IntoIterator<Item = (Arc<str>, Arc<Table>)>,
        place: AnswerPlace,
    ) -> Recorded {
        Recorded {
            tables: tables.into_iter().collect(),
            place: Arc::new(place),
            waiting: VecDeque::new(),
        }
    }
}

/// What an answer took when it was recorded.
fn took(spent: &SpentByStage) -> Spent {
    let stages = [&spent.build, &spent.load, &spent.measure, &spent.check];
    Spent {
        wall_ns: stages.iter().map(|s| s.wall_ns).sum(),
        cpu_ns: stages.iter().filter_map(|s| s.cpu_ns).sum(),
    }
}

impl Evaluator for Recorded {
    fn name(&self) -> &'static str {
        RECORDED
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn score_kind(&self, task: &str) -> Option<String> {
        let (_, best) = self.tables.get(task)?.best()?;
        match best.outcome.cost()? {
            Cost::Score { kind, .. } => Some(kind),
            Cost::Time { .. } => None,
        }
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn submit(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    fn poll(&mut self, _wait: Duration, _quiet: &mut dyn FnMut(bool)) -> Option<Reply> {
        let batch = self.waiting.pop_front()?;
        let table = self.tables.get(&batch.task);
        let answer = |trial: Trial| {
            let row = table.and_then(|t| t.answer(&trial.point.values));
            let missing = || Outcome::Unanswered {
                reason: "the table has no such row".into(),
            };
            Answer {
                outcome: row.map_or_else(missing, |row| row.outcome.clone()),
                spent: row.map(|row| took(&row.spent)).unwrap_or_default(),
                parts: PartTimes::default(),
                place: self.place.clone(),
                trial,
            }
        };
        Some(Reply {
            number: batch.number,
            answers: batch.trials.into_iter().map(answer).collect(),
            revised: vec![],
            events: vec![],
            setup: None,
            took: None,
        })
    }
}
