//! How well the model of a search foretold what was measured.

use learn::{spearman, top_recall};
use search::Forecast;
use serde::Serialize;

/// The fastest points that are looked for among as many of best forecast.
const TOP: usize = 10;
/// Fewest forecasts that say anything: of fewer any order has a third of these among its first ones.
const FEWEST: usize = 3 * TOP;

/// What a strategy's model said of points before they were measured, against what was measured then. Points of a
/// search are more alike than random ones, so their order is harder to tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelQuality {
    pub forecasts: usize,
    /// Rank correlation (Spearman).
    pub spearman: f64,
    /// The share of the ten fastest that is among the ten of best forecast.
    pub recall_10: f64,
    /// The share that a model without any knowledge would have there on average.
    pub recall_10_by_chance: f64,
    /// The cost of the point of best forecast over the least cost of all.
    pub regret: f64,
}

impl ModelQuality {
    /// `None` of a strategy without a model, or of few forecasts.
    pub fn of(forecasts: &[Forecast]) -> Option<ModelQuality> {
        if forecasts.len() < FEWEST {
            return None;
        }
        let foretold: Vec<f64> = forecasts.iter().map(|f| -f.score).collect();
        let costs: Vec<f64> = forecasts.iter().map(|f| f.cost).collect();
        let first = forecasts
            .iter()
            .max_by(|a, b| a.score.total_cmp(&b.score))?;
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        Some(ModelQuality {
            forecasts: forecasts.len(),
            spearman: spearman(&foretold, &costs).unwrap_or(0.0),
            recall_10: top_recall(&foretold, &costs, TOP)?,
            recall_10_by_chance: TOP as f64 / forecasts.len() as f64,
            regret: first.cost / least,
        })
    }

    /// The means over several searches, the geometric one of regrets; `None` of none.
    pub fn mean<'a>(of: impl Iterator<Item = &'a ModelQuality>) -> Option<ModelQuality> {
        let all: Vec<&ModelQuality> = of.collect();
        let n = all.len() as f64;
        let mean = |f: fn(&ModelQuality) -> f64| all.iter().map(|q| f(q)).sum::<f64>() / n;
        (n > 0.0).then(|| ModelQuality {
            forecasts: all.iter().map(|q| q.forecasts).sum(),
            spearman: mean(|q| q.spearman),
            recall_10: mean(|q| q.recall_10),
            recall_10_by_chance: mean(|q| q.recall_10_by_chance),
            regret: mean(|q| q.regret.ln()).exp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_judged_by_order_and_by_its_first_choice() {
        let of_costs = |last: i32, score: fn(f64) -> f64| {
            let costs = (1..=last).map(f64::from);
            let all: Vec<Forecast> = costs
                .map(|cost| Forecast {
                    score: score(cost),
                    cost,
                })
                .collect();
            ModelQuality::of(&all)
        };
        let of = |score| of_costs(40, score);
        assert_eq!(
            of_costs(29, |cost| 1.0 / cost),
            None,
            "chance gives more than a third"
        );
        let right = of(|cost| 1.0 / cost).unwrap();
        assert_eq!(
            (right.spearman, right.recall_10, right.regret),
            (1.0, 1.0, 1.0)
        );
        assert_eq!(right.recall_10_by_chance, 0.25);
        let wrong = of(|cost| cost).unwrap();
        assert_eq!(
            (wrong.spearman, wrong.recall_10, wrong.regret),
            (-1.0, 0.0, 40.0)
        );
        let both = ModelQuality::mean([&right, &wrong].into_iter()).unwrap();
        assert_eq!(
            (both.forecasts, both.spearman, both.recall_10),
            (80, 0.0, 0.5)
        );
        assert_eq!(both.recall_10_by_chance, 0.25);
        assert!((both.regret - 40f64.sqrt()).abs() < 1e-12);
        assert_eq!(ModelQuality::mean([].into_iter()), None);
        assert_eq!(ModelQuality::of(&[]), None);
    }
}
