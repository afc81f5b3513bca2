//! How good a search is over its whole budget, as the auto-tuning community scores it.
//!
//! Owns the score of Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning": the
//! least cost of a search after each of many budgets is set against what random search is expected to have then.
//! A score of 0 is random search, 1 is the optimum, and less than 0 is worse than random. Budgets are
//! shares of the table's rows here, as the rows say nothing of the time that a search itself takes.

use store::Table;

/// Budgets that are looked at, and the first and the last of them as shares of the rows.
const BUDGETS: usize = 50;
const FIRST: f64 = 0.01;
pub const LAST: f64 = 0.20;

/// The budgets as shares of the rows.
pub fn budgets() -> impl Iterator<Item = f64> {
    let step = (LAST - FIRST) / (BUDGETS - 1) as f64;
    (0..BUDGETS).map(move |i| FIRST + step * i as f64)
}

/// Answers that a share of so many rows is.
pub fn answers(share: f64, rows: usize) -> u64 {
    // A share such as 20% of 50 rows is not quite the number that it is meant to be.
    ((share * rows as f64 - 1e-6).ceil() as u64).max(1)
}

/// What random search is expected to find in a table.
pub struct Baseline {
    /// Of the rows that have one, the least first.
    costs: Vec<f64>,
    rows: usize,
}

impl Baseline {
    /// None of a table without costs.
    pub fn of(table: &Table) -> Option<Baseline> {
        let costs = table.iter().filter_map(|(_, answer)| answer.outcome.cost());
        let costs: Vec<f64> = costs.map(|c| c.value()).collect();
        Baseline::new(costs, table.len())
    }

    fn new(mut costs: Vec<f64>, rows: usize) -> Option<Baseline> {
        costs.sort_by(f64::total_cmp);
        (!costs.is_empty()).then_some(Baseline { costs, rows })
    }

    fn worst(&self) -> f64 {
        self.costs[self.costs.len() - 1]
    }

    /// The expected least cost of so many different rows, drawn by chance. Rows without a cost count as the worst.
    fn expected(&self, drawn: u64) -> f64 {
        let (mut expected, mut none_better) = (0.0, 1.0);
        for (i, cost) in self.costs.iter().enumerate() {
            // No row up to this one is drawn if all are drawn of those behind it.
            let behind = (self.rows - i) as f64;
            let none = none_better * ((behind - drawn as f64) / behind).max(0.0);
            expected += (none_better - none) * cost;
            none_better = none;
        }
        expected + none_better * self.worst()
    }

    /// The score of a search after each budget that it reached, by the costs of its answers in their order.
    pub fn scores(&self, costs: &[Option<f64>]) -> Vec<f64> {
        let mut least = self.worst();
        let least: Vec<f64> = costs
            .iter()
            .map(|cost| {
                least = cost.map_or(least, |c| c.min(least));
                least
            })
            .collect();
        let score = |share: f64| {
            let drawn = answers(share, self.rows);
            let found = least.get(drawn as usize - 1)?;
            let expected = self.expected(drawn);
            // Above 0, as far as not every row is drawn.
            let possible = (expected - self.costs[0]).max(f64::MIN_POSITIVE);
            Some((expected - found) / possible)
        };
        budgets().map_while(score).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::seq::SliceRandom;
    use rand_pcg::Pcg64Mcg;

    fn baseline() -> Baseline {
        // A tenth has no cost.
        let costs = (0..900).map(|n| 1.0 + f64::from(n)).collect();
        Baseline::new(costs, 1000).unwrap()
    }

    #[test]
    fn expected_costs_are_those_of_all_draws() {
        let three = Baseline::new(vec![5.0, 1.0, 2.0], 3).unwrap();
        assert!((three.expected(1) - 8.0 / 3.0).abs() < 1e-12);
        // Of the three pairs two have the 1, and one has the 2.
        assert!((three.expected(2) - 4.0 / 3.0).abs() < 1e-12);
        assert!((three.expected(3) - 1.0).abs() < 1e-12);
        let failing = Baseline::new(vec![1.0, 4.0], 3).unwrap();
        assert!((failing.expected(1) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn random_search_scores_0_and_the_optimum_1() {
        let baseline = baseline();
        let best_first = vec![Some(1.0); 200];
        assert_eq!(baseline.scores(&best_first), vec![1.0; BUDGETS]);
        assert!(baseline.scores(&[None; 200]).iter().all(|s| *s < -1.0));
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut rows: Vec<Option<f64>> = baseline.costs.iter().copied().map(Some).collect();
        rows.resize(1000, None);
        let mut sum = 0.0;
        for _ in 0..2000 {
            rows.shuffle(&mut rng);
            let scores = baseline.scores(&rows[..200]);
            sum += scores.iter().sum::<f64>() / BUDGETS as f64;
        }
        assert!((sum / 2000.0).abs() < 0.05, "{}", sum / 2000.0);
    }

    #[test]
    fn a_search_that_ends_early_has_the_scores_that_it_reached() {
        let reached = baseline().scores(&[Some(1.0); 100]);
        let shares = budgets().filter(|share| answers(*share, 1000) <= 100);
        assert_eq!(reached.len(), shares.count());
        assert_eq!(answers(0.2, 50), 10);
        assert_eq!(answers(0.01, 10), 1);
    }
}
