//! Illegal: a schedule step refused.

use std::fmt;

/// Why a step was refused: a cheap value, no error of the user's. Nothing of
/// the program has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Illegal {
    /// The name of the step.
    pub step: &'static str,
    /// The loop, block or buffer that the step was to change.
    pub at: String,
    /// A clause about `at`.
    pub reason: String,
}

impl Illegal {
    pub fn new(step: &'static str, at: impl Into<String>, reason: impl Into<String>) -> Illegal {
        Illegal {
            step,
            at: at.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`: {}", self.step, self.at, self.reason)
    }
}

impl std::error::Error for Illegal {}
