//! Scores by reading: nothing is run.
//!
//! Builders read the loops and the machine code of what they build. Here a score is made of what
//! they told. So candidates of any target are evaluated, on any machine.

use super::{Batch, Evaluator, Reply};
use crate::trial::{Answer, AnswerPlace, Form, Trial};
use analysis::Score;
use measure::{PartTimes, Spent};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::{Outcome, STATIC};

/// Trials of a search that are answered together: a score takes no time.
const BATCH: usize = 64;

/// Scores what builders have read.
pub struct Reading {
    /// LLVM's name of the processor whose cycles count.
    cpu: String,
    rates: Score,
    /// Whether constants come from memory ([`Score::cycles_from_memory`]).
    from_memory: bool,
    place: Arc<AnswerPlace>,
    waiting: VecDeque<Batch>,
}

impl Reading {
    /// By the cycles of a processor and these rates; the answers hold in a place. `from_memory` says whether
    /// kernels find their constants in memory.
    pub fn new(cpu: String, rates: Score, from_memory: bool, place: AnswerPlace) -> Reading {
        Reading {
            cpu,
            rates,
            from_memory,
            place: Arc::new(place),
            waiting: VecDeque::new(),
        }
    }

    fn kind(&self) -> String {
        let kind = self.rates.kind(&self.cpu);
        match self.from_memory {
            true => format!("{kind} from memory"),
            false => kind,
        }
    }

    fn answer(&self, trial: Trial) -> Answer {
        let outcome = match &trial.features {
            Some(features) => Outcome::Scored {
                kind: self.kind(),
                value: match self.from_memory {
                    true => self.rates.cycles_from_memory(features),
                    false => self.rates.cycles(features),
                },
            },
            None => Outcome::Unanswered {
                reason: "the builder read nothing".into(),
            },
        };
        Answer {
            trial,
            outcome,
            spent: Spent::default(),
            parts: PartTimes::default(),
            place: self.place.clone(),
        }
    }
}

impl Evaluator for Reading {
    fn name(&self) -> &'static str {
        STATIC
    }

    fn form(&self) -> Form {
        Form::Code
    }

    fn needs_data(&self) -> bool {
        false
    }

    fn reads_for(&self) -> Option<String> {
        Some(self.cpu.clone())
    }

    fn score_kind(&self, _task: &str) -> Option<String> {
        Some(self.kind())
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn submit(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    fn poll(&mut self, _wait: Duration, _quiet: &mut dyn FnMut(bool)) -> Option<Reply> {
        let batch = self.waiting.pop_front()?;
        let answers = batch.trials.into_iter().map(|t| self.answer(t));
        Some(Reply {
            number: batch.number,
            answers: answers.collect(),
            events: vec![],
            setup: None,
            took: None,
        })
    }
}
