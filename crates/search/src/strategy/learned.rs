//! What strategies learn of a search's own answers: points as numbers, and boosted trees on them.

use crate::context::Context;
use crate::cost::{Analytic, CostModel, Subject};
use crate::space::{Point, Space};
use learn::{EarlyStop, Examples, Objective, TreeSettings, Trees};
use std::collections::HashMap;

/// Answers before the first model.
const LEAST: usize = 16;
/// A model is made anew when the answers have grown by this share (MetaSchedule).
const GROWTH: f64 = 0.2;

/// Turns points of one space into rows of equal width.
///
/// A row has one column for each sketch, one for each part of each decision by its name, as a logarithm, and the
/// cost that rules predict. So equal decisions of different sketches are one column. What a point does not have
/// is NaN.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    /// Of each sketch the column of each decision's first part; parts follow each other.
    columns: Vec<Vec<usize>>,
    width: usize,
}

impl Encoder {
    pub fn of(space: &Space) -> Encoder {
        let mut named: HashMap<(&str, usize), usize> = HashMap::new();
        let mut width = space.sketches.len() + 1;
        let mut columns = Vec::new();
        for s in &space.sketches {
            let mut of_sketch = Vec::new();
            for d in &s.decisions {
                let parts = d.value.len();
                let first = *named.entry((&d.name, parts)).or_insert_with(|| {
                    width += parts;
                    width - parts
                });
                of_sketch.push(first);
            }
            columns.push(of_sketch);
        }
        Encoder { columns, width }
    }

    /// One row for each point.
    pub fn rows(&self, context: &Context<'_>, points: &[Point]) -> Vec<Vec<f64>> {
        let pairs = points.iter().zip(predicted(context, points));
        pairs
            .map(|(p, cost)| self.row(context.space, p, cost))
            .collect()
    }

    fn row(&self, space: &Space, p: &Point, predicted: Option<f64>) -> Vec<f64> {
        let sketches = space.sketches.len();
        let mut row = vec![f64::NAN; self.width];
        row[..sketches].fill(0.0);
        row[p.sketch] = 1.0;
        if let Some(cost) = predicted {
            row[sketches] = cost.max(1.0).ln();
        }
        let decisions = &space.sketches[p.sketch].decisions;
        for ((d, value), first) in decisions.iter().zip(&p.values).zip(&self.columns[p.sketch]) {
            for (part, v) in d
                .kind
                .value_at(*value)
                .unwrap_or_default()
                .into_iter()
                .enumerate()
            {
                row[first + part] = (1.0 + v.unsigned_abs() as f64).log2();
            }
        }
        row
    }
}

/// The costs that rules predict; none of other sketches, and none where there is no program.
pub fn predicted(context: &Context<'_>, points: &[Point]) -> Vec<Option<f64>> {
    match (context.program, context.target) {
        (Some(program), Some(target)) => {
            let subject = Subject {
                program,
                target,
                space: context.space,
            };
            Analytic.predict(&subject, points)
        }
        _ => vec![None; points.len()],
    }
}

/// Answers of a search, and the model of them.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    points: Vec<Point>,
    /// Of each point; infinite of one that failed.
    costs: Vec<f64>,
    /// Answers that the model was made of.
    learnt: usize,
    model: Option<(Encoder, Trees)>,
    seed: u64,
}

impl Learned {
    pub fn new(seed: u64) -> Learned {
        Learned {
            seed,
            ..Learned::default()
        }
    }

    pub fn add(&mut self, point: &Point, cost: Option<f64>) {
        let cost = cost.filter(|c| c.is_finite() && *c > 0.0);
        self.points.push(point.clone());
        self.costs.push(cost.unwrap_or(f64::INFINITY));
    }

    /// Makes the model anew if there is enough that it does not know; whether there is a model.
    ///
    /// It predicts throughput over the best throughput, in which failures are 0: a regression, weighted towards
    /// the fast.
    pub fn update(&mut self, context: &Context<'_>) -> bool {
        let due = self.points.len() as f64 >= (1.0 + GROWTH) * self.learnt as f64;
        if self.points.len() < LEAST || !due {
            return self.model.is_some();
        }
        let encoder = Encoder::of(context.space);
        let rows = encoder.rows(context, &self.points);
        let best = self.costs.iter().copied().fold(f64::INFINITY, f64::min);
        let y: Vec<f64> = self.costs.iter().map(|c| best.min(f64::MAX) / c).collect();
        let weights: Vec<f64> = y.iter().map(|y| 0.1 + y).collect();
        let settings = TreeSettings {
            rounds: 200,
            depth: 5,
            rate: 0.1,
            early_stop: Some(EarlyStop {
                validation: 0.0,
                patience: 20,
            }),
            ..TreeSettings::simulators(Objective::SquaredError, self.seed)
        };
        let examples = Examples {
            weights: Some(&weights),
            ..Examples::of(&rows, &y)
        };
        if let Ok(trees) = Trees::fitted(&examples, &settings) {
            self.model = Some((encoder, trees));
        }
        self.learnt = self.points.len();
        self.model.is_some()
    }

    /// What the model thinks of each point, higher is better; 0 of all without a model.
    pub fn scores(&self, context: &Context<'_>, points: &[Point]) -> Vec<f64> {
        match &self.model {
            Some((encoder, trees)) => trees.predict_batch(&encoder.rows(context, points)),
            None => vec![0.0; points.len()],
        }
    }

    /// The points with costs, the cheapest first.
    pub fn best(&self, n: usize) -> Vec<Point> {
        let mut order: Vec<usize> = (0..self.points.len())
            .filter(|i| self.costs[*i].is_finite())
            .collect();
        order.sort_by(|a, b| self.costs[*a].total_cmp(&self.costs[*b]));
        order.truncate(n);
        order.into_iter().map(|i| self.points[i].clone()).collect()
    }

    /// As [`Learned::best`], so many of each sketch.
    pub fn best_of_each(&self, n: usize) -> Vec<Point> {
        let mut taken: HashMap<usize, usize> = HashMap::new();
        let mut all = self.best(usize::MAX);
        all.retain(|p| {
            let of_sketch = taken.entry(p.sketch).or_default();
            *of_sketch += 1;
            *of_sketch <= n
        });
        all
    }

    /// All rows and the logarithms of their costs, without failures: what a Gaussian process is fitted to.
    pub fn observations(&self, context: &Context<'_>) -> (Encoder, Vec<Vec<f64>>, Vec<f64>) {
        let encoder = Encoder::of(context.space);
        let known = (0..self.points.len()).filter(|i| self.costs[*i].is_finite());
        let (points, costs): (Vec<Point>, Vec<f64>) = known
            .map(|i| (self.points[i].clone(), self.costs[i].ln()))
            .unzip();
        let rows = encoder.rows(context, &points);
        (encoder, rows, costs)
    }
}
