//! What an evaluator was handed and has not answered.
//!
//! Owns which trials a reply leaves without an answer, and when what has no reply is lost.

use crate::evaluator::Reply;
use crate::trial::{Answer, AnswerPlace, Trial};
use measure::{PartTimes, Spent};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Outcome;

/// A batch without a reply.
pub struct OpenBatch {
    pub number: u64,
    pub search: usize,
    pub place: Arc<AnswerPlace>,
    pub trials: Vec<Trial>,
}

/// The batches that one evaluator has.
#[derive(Default)]
pub struct Outstanding {
    batches: Vec<OpenBatch>,
    /// When it last had nothing to do, or replied.
    heard: Option<Instant>,
}

impl Outstanding {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Trials in its batches.
    pub fn trials(&self) -> usize {
        self.batches.iter().map(|b| b.trials.len()).sum()
    }

    /// Takes note of a batch that it is handed.
    pub fn add(&mut self, batch: OpenBatch) {
        if self.batches.is_empty() {
            self.heard = Some(Instant::now());
        }
        self.batches.push(batch);
    }

    /// The batch of a reply; none if it has none, such as one that was lost before.
    pub fn take(&mut self, reply: &Reply) -> Option<OpenBatch> {
        self.heard = Some(Instant::now());
        let at = self.batches.iter().position(|b| b.number == reply.number)?;
        Some(self.batches.remove(at))
    }

    /// All of its batches, if it has said nothing for so long.
    pub fn take_lost(&mut self, silence: Duration) -> Vec<OpenBatch> {
        match self.heard.is_some_and(|heard| heard.elapsed() >= silence) {
            true => std::mem::take(&mut self.batches),
            false => vec![],
        }
    }
}

impl OpenBatch {
    /// Its trials with their answers, in its order, and the numbers of those that have none.
    /// Answers to other trials are left out.
    pub fn answered(self, answers: Vec<Answer>) -> (Vec<Answer>, Vec<u64>) {
        let by_number = |a: Answer| (a.trial.number, a);
        let mut answers: HashMap<u64, Answer> = answers.into_iter().map(by_number).collect();
        let mut missing = Vec::new();
        let one = |trial: Trial| match answers.remove(&trial.number) {
            Some(answer) => answer,
            None => {
                missing.push(trial.number);
                Answer {
                    outcome: Outcome::Unanswered {
                        reason: "the evaluator gave no answer".into(),
                    },
                    spent: Spent::default(),
                    parts: PartTimes::default(),
                    place: self.place.clone(),
                    trial,
                }
            }
        };
        let all = self.trials.into_iter().map(one).collect();
        (all, missing)
    }
}
