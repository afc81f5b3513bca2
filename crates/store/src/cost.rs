//! What a strategy ranks candidates by.
//!
//! Owns the kinds of cost and their order. Promises that costs of different
//! kinds never compare: a score of one kind says nothing about a time, nor about
//! a score of another kind.

use std::cmp::Ordering;

use crate::outcome::Outcome;

/// The cost of a candidate. Lower is better.
#[derive(Clone, Debug, PartialEq)]
pub enum Cost {
    /// Nanoseconds a call.
    Time { ns: u64 },
    /// A score of the named kind.
    Score { kind: String, value: f64 },
}

impl Cost {
    /// The order of two costs, the better one first: less is better. `None` if they are of
    /// different kinds, or one is not a number.
    pub fn compare(&self, other: &Cost) -> Option<Ordering> {
        match (self, other) {
            (Cost::Time { ns }, Cost::Time { ns: other }) => Some(ns.cmp(other)),
            (
                Cost::Score { kind, value },
                Cost::Score {
                    kind: other_kind,
                    value: other,
                },
            ) if kind == other_kind => value.partial_cmp(other),
            _ => None,
        }
    }

    /// The cost as a number, to be set against others of its kind only.
    pub fn value(&self) -> f64 {
        match self {
            Cost::Time { ns } => *ns as f64,
            Cost::Score { value, .. } => *value,
        }
    }
}

impl Outcome {
    /// What the candidate is ranked by: the median of a timed one, or its score. `None` where
    /// it has neither, or its score is not a number.
    pub fn cost(&self) -> Option<Cost> {
        match self {
            Outcome::Scored { kind, value } if !value.is_nan() => Some(Cost::Score {
                kind: kind.clone(),
                value: *value,
            }),
            _ => self.median_ns().map(|ns| Cost::Time { ns }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Clock, Conditions};

    fn score(kind: &str, value: f64) -> Outcome {
        Outcome::Scored {
            kind: kind.into(),
            value,
        }
    }

    #[test]
    fn only_costs_of_one_kind_compare() {
        let timed = |ns| Outcome::Timed {
            samples_ns: vec![ns],
            clock: Clock::ThreadCpu,
            conditions: Conditions::unproven(1, 1),
        };
        let compare = |a: &Outcome, b: &Outcome| a.cost()?.compare(&b.cost()?);
        assert_eq!(compare(&timed(2), &timed(1)), Some(Ordering::Greater));
        let (low, high) = (score("static", -1.5), score("static", 1.0));
        assert_eq!(compare(&low, &high), Some(Ordering::Less));
        assert_eq!(compare(&low, &low), Some(Ordering::Equal));
        assert_eq!(compare(&low, &score("simulated", 1.0)), None);
        assert_eq!(compare(&low, &timed(1)), None);
        assert_eq!(compare(&timed(1), &low), None);
    }

    #[test]
    fn what_has_no_figure_has_no_cost() {
        let rejected = Outcome::Rejected {
            reason: "too large".into(),
        };
        assert_eq!(rejected.cost(), None);
        assert_eq!(score("static", f64::NAN).cost(), None);
        let endless = score("static", f64::INFINITY).cost().unwrap();
        assert_eq!(endless.value(), f64::INFINITY);
    }
}
