//! What is known of a candidate once it was measured.
//!
//! Owns how the costs of several tries add up. What an outcome is belongs to `store`.

use crate::protocol::{PartTimes, Spent};
use serde::{Deserialize, Serialize};
use store::Outcome;

/// A measured candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// `Unanswered` when the candidate had no chance: the task has no expected
    /// output, or there is no runner.
    pub outcome: Outcome,
    /// The candidate's requests, as the parent saw them: what it cost, dead or
    /// alive, also where it was tried again in another runner. Setting up its
    /// task is not in it.
    pub whole: Spent,
    /// Parts of `whole` that a runner told; nothing if it died.
    pub parts: PartTimes,
}

impl Measured {
    /// Takes the outcome of another try; what both tries took is added.
    pub(crate) fn retried(&mut self, other: Measured) {
        self.outcome = other.outcome;
        self.whole += other.whole;
        self.parts += other.parts;
    }
}
