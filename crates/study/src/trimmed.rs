//! What searches of a table spent on hot, cold and failed candidates, and until they were good enough.
//!
//! Owns the sums over the candidates of one search, in the order in which they were answered, and over several searches.
//! Seconds are CPU time where it is known, and wall time elsewhere. Joules above those of an idle machine are in proportion
//! to them on one machine.

use crate::row::mean;
use crate::strategies::{Cell, Kind, kinds};
use search::{Label, label};
use serde::{Deserialize, Serialize};
use tune::filter::{FRACTION, PASSES};
use tune::{Error, Result};

/// Costs over the least one of the table, for each of which the seconds are given.
pub const GOALS: [f64; 3] = [1.2, 1.1, 1.05];

/// An answered candidate.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// None if it failed.
    pub cost: Option<f64>,
    pub seconds: f64,
}

/// Hot, cold and failed candidates, in this order, and their seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trimmed {
    pub candidates: [u64; 3],
    pub seconds: [f64; 3],
    /// Candidates that cost more than the median of the table, or failed, and their seconds. About half are cold in every search, as
    /// its own trend says what is; these can be compared between searches.
    pub slow: (u64, f64),
    /// Of each goal the seconds until it was reached, if it was.
    pub until: [Option<f64>; GOALS.len()],
}

impl Trimmed {
    /// Of one search of a table with such a least cost and such a median.
    ///
    /// # Errors
    /// If a cost is not finite.
    pub fn of(answered: &[Answered], best: f64, median: f64) -> Result<Trimmed> {
        let costs: Vec<Option<f64>> = answered.iter().map(|a| a.cost).collect();
        let labels = label(&costs, FRACTION, PASSES).map_err(|e| Error::new(e.to_string()))?;
        let (mut t, mut spent) = (Trimmed::default(), 0.0);
        for (a, label) in answered.iter().zip(labels.labels) {
            let kind = match label {
                Label::Hot => 0,
                Label::Cold => 1,
                Label::Failed => 2,
            };
            spent += a.seconds;
            t.candidates[kind] += 1;
            t.seconds[kind] += a.seconds;
            if a.cost.is_none_or(|c| c > median) {
                t.slow = (t.slow.0 + 1, t.slow.1 + a.seconds);
            }
            for (goal, until) in GOALS.iter().zip(&mut t.until) {
                if until.is_none() && a.cost.is_some_and(|c| c <= goal * best) {
                    *until = Some(spent);
                }
            }
        }
        Ok(t)
    }
}

/// The searches of a strategy under a chain of filters.
#[derive(Clone, Debug, Serialize)]
pub struct TrimSummary {
    pub strategy: String,
    pub filters: Vec<String>,
    /// Shares of hot, cold and failed candidates, and of their seconds.
    pub candidates: [f64; 3],
    pub seconds: [f64; 3],
    /// Shares of slow candidates and of their seconds.
    pub slow: [f64; 2],
    /// Seconds of a search.
    pub search_s: f64,
    /// Of each goal the searches that reached it, and their mean seconds until then.
    pub until: [(usize, Option<f64>); GOALS.len()],
    pub searches: usize,
}

/// One summary for each strategy and chain, in the order in which they came.
pub fn trim_summaries(cells: &[Cell]) -> Vec<TrimSummary> {
    kinds(cells).into_iter().map(summary).collect()
}

fn summary((strategy, filters, own): Kind<'_>) -> TrimSummary {
    let all: Vec<&Trimmed> = own.iter().map(|c| &c.trimmed).collect();
    let shares = |of: &dyn Fn(&Trimmed, usize) -> f64| {
        let sums = [0, 1, 2].map(|kind| all.iter().map(|t| of(t, kind)).sum::<f64>());
        let sum: f64 = sums.iter().sum();
        sums.map(|s| s / sum.max(f64::MIN_POSITIVE))
    };
    let sum = |of: &dyn Fn(&Trimmed) -> f64| {
        all.iter()
            .map(|t| of(t))
            .sum::<f64>()
            .max(f64::MIN_POSITIVE)
    };
    let until = |goal: usize| {
        let reached: Vec<f64> = all.iter().filter_map(|t| t.until[goal]).collect();
        (reached.len(), mean(reached.into_iter()))
    };
    TrimSummary {
        strategy: strategy.clone(),
        filters: filters.clone(),
        candidates: shares(&|t, kind| t.candidates[kind] as f64),
        seconds: shares(&|t, kind| t.seconds[kind]),
        slow: [
            all.iter().map(|t| t.slow.0).sum::<u64>() as f64
                / sum(&|t| t.candidates.iter().sum::<u64>() as f64),
            all.iter().map(|t| t.slow.1).sum::<f64>() / sum(&|t| t.seconds.iter().sum()),
        ],
        search_s: mean(all.iter().map(|t| t.seconds.iter().sum())).unwrap_or(0.0),
        until: std::array::from_fn(until),
        searches: all.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_those_of_each_kind_and_until_goals_are_reached() {
        let answered = |cost| Answered { cost, seconds: 2.0 };
        let costs = [
            Some(4.0),
            Some(8.0),
            None,
            Some(4.0),
            Some(8.0),
            Some(2.1),
            Some(8.0),
        ];
        let t = Trimmed::of(&costs.map(answered), 2.0, 4.0).unwrap();
        assert_eq!(t.slow, (4, 8.0));
        assert_eq!((t.candidates[2], t.seconds[2]), (1, 2.0));
        assert_eq!(t.candidates.iter().sum::<u64>(), 7);
        assert!(t.candidates[0] >= 1 && t.candidates[1] >= 3, "{t:?}");
        assert_eq!(t.until, [Some(12.0), Some(12.0), Some(12.0)]);
        let never = Trimmed::of(&costs.map(answered), 1.0, 4.0).unwrap();
        assert_eq!(never.until, [None; 3]);
    }
}
