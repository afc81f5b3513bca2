//! What several models of a run are tuned for.
//!
//! Owns what a saved nanosecond of each model counts. How trials are divided by that is the budget's decision.

/// What the models of a run are tuned for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The geometric mean of their gains: an equal share of each model's time counts alike.
    Gains,
    /// The sum of their latencies: a nanosecond of each model counts alike.
    Sum,
}

impl Objective {
    pub const ALL: [Objective; 2] = [Objective::Gains, Objective::Sum];

    pub fn name(self) -> &'static str {
        match self {
            Objective::Gains => "gains",
            Objective::Sum => "sum",
        }
    }

    /// The objective of a name; none if there is none of that name.
    pub fn of_name(name: &str) -> Option<Objective> {
        Objective::ALL.into_iter().find(|o| o.name() == name)
    }

    /// What the cost of each model is multiplied by, given the costs of all and what is wanted of the first ones. A model that
    /// costs no more than wanted counts nothing, unless that is true of all.
    pub(crate) fn weights(self, costs: &[f64], wanted_ns: &[f64]) -> Vec<f64> {
        let costliest = costs.iter().copied().fold(0.0, f64::max);
        let suffices = |i: usize| wanted_ns.get(i).is_some_and(|wanted| costs[i] <= *wanted);
        let all_suffice = (0..costs.len()).all(suffices);
        let weight = |(i, cost): (usize, &f64)| match self {
            _ if suffices(i) && !all_suffice => 0.0,
            // Negative scores have no shares.
            Objective::Gains if *cost > 0.0 => costliest / cost,
            Objective::Gains | Objective::Sum => 1.0,
        };
        costs.iter().enumerate().map(weight).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_count_alike_or_nanoseconds_do() {
        let costs = [4e6, 1e6, -2.0];
        assert_eq!(Objective::Gains.weights(&costs, &[]), [1.0, 4.0, 1.0]);
        assert_eq!(Objective::Sum.weights(&costs, &[]), [1.0; 3]);
        for o in Objective::ALL {
            assert_eq!(Objective::of_name(o.name()), Some(o));
        }
        assert_eq!(Objective::of_name("mean"), None);
    }

    #[test]
    fn a_model_that_is_as_fast_as_wanted_counts_nothing() {
        let costs = [4e6, 1e6];
        let gains = |wanted: &[f64]| Objective::Gains.weights(&costs, wanted);
        assert_eq!(gains(&[4e6]), [0.0, 4.0]);
        assert_eq!(gains(&[3e6, 1e6]), [1.0, 0.0]);
        assert_eq!(gains(&[5e6, 5e6]), [1.0, 4.0], "more is welcome");
    }
}
