//! How searches converge: the least cost so far after equal answers and after equal seconds, and scores over the budget.
//!
//! Owns the mean of a strategy's searches at each moment, and how far its seeds are apart there. A seed stands for its
//! searches of all tables.

use crate::area::budgets;
use crate::row::mean;
use crate::strategies::{Cell, Kind, kinds};
use serde::Serialize;
use std::collections::BTreeMap;

/// Moments of a curve, at most.
pub(crate) const MOMENTS: usize = 100;

/// A strategy under a chain of filters at one moment of its searches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Answers, a share of the seconds of the table's shortest search, or a share of its rows.
    pub at: f64,
    pub mean: f64,
    /// Of the means of each seed the least and the greatest.
    pub least: f64,
    pub greatest: f64,
}

/// How the searches of a strategy under a chain of filters went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    pub strategy: String,
    pub filters: Vec<String>,
    pub points: Vec<CurvePoint>,
}

/// All curves of a study.
#[derive(Clone, Debug, Serialize)]
pub struct Curves {
    /// The least cost so far over the least of the table (geometric means), after equal answers.
    pub answers: Vec<Curve>,
    /// The same after equal seconds, as far as every search of a table went: what the answers took when they were recorded, and what
    /// the search itself took here. Nothing of tables without times.
    pub seconds: Vec<Curve>,
    /// As [`crate::area`] scores searches, after equal shares of the rows, as far as every search went.
    pub scores: Vec<Curve>,
}

impl Curves {
    pub fn of(cells: &[Cell]) -> Curves {
        Curves {
            answers: over_answers(cells),
            seconds: over_seconds(cells),
            scores: over_budget(cells),
        }
    }

    /// Whether no search has a second answer after one with a cost: there is no line then.
    pub fn are_empty(&self) -> bool {
        !self.answers.iter().any(Curve::is_line)
    }
}

impl Curve {
    pub fn is_line(&self) -> bool {
        self.points.len() > 1
    }

    pub fn name(&self) -> String {
        let parts = std::iter::once(&self.strategy).chain(&self.filters);
        parts.map(String::as_str).collect::<Vec<_>>().join("+")
    }

    /// Of values that each search has at each moment; a moment at which a search has none is left out. `back` undoes what
    /// was done to values whose mean is not the plain one.
    pub(crate) fn of<S>(
        (strategy, filters): (&str, &[String]),
        own: &[S],
        seed: impl Fn(&S) -> u64,
        moments: &[f64],
        value: impl Fn(&S, usize) -> Option<f64>,
        back: fn(f64) -> f64,
    ) -> Curve {
        let point = |(i, at): (usize, &f64)| {
            let mut seeds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            for c in own {
                seeds.entry(seed(c)).or_default().push(value(c, i)?);
            }
            let of_seeds = seeds.values().filter_map(|v| mean(v.iter().copied()));
            let of_seeds: Vec<f64> = of_seeds.collect();
            Some(CurvePoint {
                at: *at,
                mean: back(mean(seeds.values().flatten().copied())?),
                least: back(of_seeds.iter().copied().reduce(f64::min)?),
                greatest: back(of_seeds.iter().copied().reduce(f64::max)?),
            })
        };
        Curve {
            strategy: strategy.into(),
            filters: filters.to_vec(),
            points: moments.iter().enumerate().filter_map(point).collect(),
        }
    }

    fn of_kind(
        (strategy, filters, own): &Kind<'_>,
        moments: &[f64],
        value: impl Fn(&Cell, usize) -> Option<f64>,
        back: fn(f64) -> f64,
    ) -> Curve {
        let value = |c: &&Cell, i: usize| value(c, i);
        Curve::of((strategy, filters), own, |c| c.seed, moments, value, back)
    }
}

/// The least cost so far over the least of the table, after each answer; infinite before the first cost.
fn regrets(c: &Cell) -> Vec<f64> {
    let Some(scale) = c.optimum() else {
        return vec![];
    };
    let mut least = f64::INFINITY;
    let after = c.costs.iter().map(|cost| {
        least = cost.map_or(least, |c| c.min(least));
        least / scale
    });
    after.collect()
}

/// The value of a search after so many of its answers; one that ended keeps what it found.
fn after(regrets: &[f64], answers: usize) -> Option<f64> {
    let last = regrets.len().checked_sub(1)?;
    let regret = regrets[answers.checked_sub(1)?.min(last)];
    regret.is_finite().then(|| regret.ln())
}

fn over_answers(cells: &[Cell]) -> Vec<Curve> {
    let most = cells.iter().map(|c| c.costs.len()).max().unwrap_or(0);
    let steps = most.min(MOMENTS);
    let moment = |i: usize| ((i + 1) * most).div_ceil(steps.max(1)) as f64;
    let moments: Vec<f64> = (0..steps).map(moment).collect();
    let curve = |kind: Kind<'_>| {
        let all: Vec<Vec<f64>> = kind.2.iter().map(|c| regrets(c)).collect();
        let value = |c: &Cell, i: usize| {
            let of_cell = kind.2.iter().position(|own| std::ptr::eq(*own, c))?;
            after(&all[of_cell], moments[i] as usize)
        };
        Curve::of_kind(&kind, &moments, value, f64::exp)
    };
    kinds(cells).into_iter().map(curve).collect()
}

fn over_seconds(cells: &[Cell]) -> Vec<Curve> {
    let mut shortest: BTreeMap<&str, f64> = BTreeMap::new();
    for c in cells {
        let last = c.seconds.last().copied().unwrap_or(0.0);
        let of_table = shortest.entry(&c.table).or_insert(last);
        *of_table = of_table.min(last);
    }
    if shortest.values().any(|s| *s <= 0.0) {
        return vec![];
    }
    let moment = |i: usize| (i + 1) as f64 / MOMENTS as f64;
    let moments: Vec<f64> = (0..MOMENTS).map(moment).collect();
    let curve = |kind: Kind<'_>| {
        let all: Vec<Vec<f64>> = kind.2.iter().map(|c| regrets(c)).collect();
        let value = |c: &Cell, i: usize| {
            let of_cell = kind.2.iter().position(|own| std::ptr::eq(*own, c))?;
            let until = moments[i] * shortest.get(&*c.table)?;
            after(&all[of_cell], c.seconds.partition_point(|s| *s <= until))
        };
        Curve::of_kind(&kind, &moments, value, f64::exp)
    };
    kinds(cells).into_iter().map(curve).collect()
}

fn over_budget(cells: &[Cell]) -> Vec<Curve> {
    let moments: Vec<f64> = budgets().collect();
    let value = |c: &Cell, i: usize| c.scores.get(i).copied();
    let curve = |kind: Kind<'_>| Curve::of_kind(&kind, &moments, value, |score| score);
    kinds(cells).into_iter().map(curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trimmed::Trimmed;

    /// A search of a table whose least cost is 2.
    fn cell(table: &str, seed: u64, costs: &[Option<f64>], seconds: &[f64]) -> Cell {
        let least = costs.iter().flatten().copied().reduce(f64::min);
        Cell {
            table: table.into(),
            strategy: "random".into(),
            filters: vec![],
            seed,
            answered: costs.len() as u64,
            missing: 0,
            skipped: 0,
            regret: vec![(costs.len() as u64, least.map(|l| l / 2.0))],
            scores: vec![],
            trimmed: Trimmed::default(),
            costs: costs.to_vec(),
            seconds: seconds.to_vec(),
            wall_s: 1.0,
        }
    }

    fn near(found: &CurvePoint, [at, mean, least, greatest]: [f64; 4]) {
        let of = [found.at, found.mean, found.least, found.greatest];
        let off = |(a, b): (f64, f64)| (a - b).abs() > 1e-9;
        let off = of.into_iter().zip([at, mean, least, greatest]).any(off);
        assert!(!off, "{found:?}");
    }

    #[test]
    fn means_are_over_searches_and_the_spread_is_that_of_seeds() {
        let cells = [
            cell("a", 1, &[None, Some(8.0), Some(4.0)], &[]),
            cell("b", 1, &[Some(8.0), Some(2.0), Some(9.0)], &[]),
            // It ended early.
            cell("a", 2, &[Some(16.0)], &[]),
            cell("b", 2, &[Some(16.0), Some(16.0), Some(4.0)], &[]),
        ];
        let curves = Curves::of(&cells);
        assert!(curves.seconds.is_empty() && !curves.are_empty());
        let points = &curves.answers[0].points;
        // One search has no cost after the first answer.
        assert_eq!(points.len(), 2);
        // Costs of 4, 1, 8 and 8 times the least: seed 1 has 2, seed 2 has 8.
        near(&points[0], [2.0, 4.0, 2.0, 8.0]);
        // 2, 1, 8 and 2.
        near(&points[1], [3.0, 32f64.powf(0.25), 2f64.sqrt(), 4.0]);
    }

    #[test]
    fn equal_seconds_are_those_that_every_search_has() {
        let quick = cell("a", 1, &[Some(8.0), Some(4.0), Some(2.0)], &[1.0, 2.0, 4.0]);
        let slow = cell("a", 2, &[Some(4.0), Some(2.0)], &[3.0, 6.0]);
        let curves = Curves::of(&[quick, slow]);
        let points = &curves.seconds[0].points;
        let (first, last) = (points.first().unwrap(), points.last().unwrap());
        // At three seconds the quick one has 4 and the slow one its first.
        near(first, [0.75, 2.0, 2.0, 2.0]);
        near(last, [1.0, 2f64.sqrt(), 1.0, 2.0]);
    }

    #[test]
    fn a_quick_table_ends_no_search_of_another() {
        let quick = cell("a", 1, &[Some(2.0), Some(2.0)], &[1.0, 2.0]);
        let long = cell("b", 1, &[Some(8.0), Some(2.0)], &[100.0, 200.0]);
        let curves = Curves::of(&[quick, long]);
        near(
            curves.seconds[0].points.last().unwrap(),
            [1.0, 1.0, 1.0, 1.0],
        );
        let untimed = cell("c", 1, &[Some(8.0), Some(2.0)], &[]);
        assert!(Curves::of(&[untimed]).seconds.is_empty());
    }

    #[test]
    fn one_answer_is_no_line() {
        assert!(Curves::of(&[cell("a", 1, &[Some(4.0)], &[2.0])]).are_empty());
        assert!(Curves::of(&[cell("a", 1, &[None, None], &[])]).are_empty());
        assert!(Curves::of(&[]).are_empty());
    }
}
