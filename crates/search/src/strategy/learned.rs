//! What strategies learn of answers: models of points as numbers, made by the [`Learner`] of the search.
//!
//! Two models are made. The *draft* knows decisions and the cost that rules predict, which takes microseconds a point.
//! The *judge* knows what the lowered program of a point tells as well ([`Context::columns`]), which takes about a
//! millisecond a point; it is there where these are. Strategies search on the draft, and the judge sorts the
//! best that they found (draft, then verify: Pruner, ASPLOS 2025).
//!
//! Answers of similar tasks are learned from before there are own ones. Their weight falls as own answers come, and
//! it is as large as their model ranks the own answers well: nothing where it misleads.

use super::encoder::Encoder;
use super::learner::{Fitted, Learner};
use crate::context::{Context, Forecast};
use crate::cost::{Asked, CostModel, Predicted};
use crate::space::Point;
use learn::{Examples, spearman};
use std::collections::HashMap;

/// Answers before the first model.
const LEAST: usize = 16;
/// A model is made anew when the answers have grown by this share (MetaSchedule).
const GROWTH: f64 = 0.2;
/// Own answers with which those of similar tasks weigh half.
const HALF: f64 = 32.0;
/// Own answers that say whether similar tasks mislead. Until then the model of these stands alone.
const VALIDATING: usize = 8;

/// Answers as a model learns from them.
#[derive(Clone, Debug, Default)]
struct Table {
    rows: Vec<Vec<f64>>,
    /// Behind the rows, where they were read.
    columns: Vec<Option<Vec<f64>>>,
    /// The throughput over the best one of the task; 0 of failures.
    y: Vec<f64>,
}

impl Table {
    /// Rows with so many columns behind them.
    fn rows(&self, width: usize) -> Vec<Vec<f64>> {
        let pairs = self.rows.iter().zip(&self.columns);
        pairs.map(|(r, c)| joined(r, c.as_deref(), width)).collect()
    }
}

/// A row with its columns, which are NaN where they are missing.
fn joined(row: &[f64], columns: Option<&[f64]>, width: usize) -> Vec<f64> {
    let mut all = row.to_vec();
    if width > 0 {
        match columns {
            Some(columns) => all.extend_from_slice(columns),
            None => all.resize(row.len() + width, f64::NAN),
        }
    }
    all
}

#[derive(Clone, Debug)]
struct Models {
    encoder: Encoder,
    draft: Fitted,
    /// With the number of columns.
    judge: Option<(Fitted, usize)>,
}

/// Answers of a search, and the models of them.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    points: Vec<Point>,
    /// Of each point; infinite of one that failed.
    costs: Vec<f64>,
    /// What was read of each point, as far as that was done.
    columns: Vec<Option<Vec<f64>>>,
    /// Answers of similar tasks; none before they were looked up.
    similar: Option<Table>,
    /// A model of these alone.
    prior: Option<Models>,
    /// Answers that the models were made of.
    learnt: usize,
    models: Option<Models>,
    /// What models said of points that were asked for, until these are answered.
    open: HashMap<Point, f64>,
    forecasts: Vec<Forecast>,
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
        if let (Some(score), Some(cost)) = (self.open.remove(point), cost) {
            self.forecasts.push(Forecast { score, cost });
        }
        self.points.push(point.clone());
        self.costs.push(cost.unwrap_or(f64::INFINITY));
    }

    /// Replaces the cost of a point. Models learn it when they are next made anew.
    pub fn revise(&mut self, point: &Point, cost: f64) {
        if let Some(at) = self.points.iter().position(|p| p == point) {
            self.costs[at] = cost;
        }
    }

    /// Makes the models anew if there is enough that they do not know; whether there are models.
    ///
    /// They predict throughput over the best throughput, in which failures are 0: a regression, weighted towards
    /// the fast.
    pub fn update(&mut self, context: &Context<'_>) -> bool {
        if self.similar.is_none() {
            self.look_up(context);
        }
        let due = self.points.len() as f64 >= (1.0 + GROWTH) * self.learnt as f64;
        let first = if self.prior.is_some() {
            VALIDATING
        } else {
            LEAST
        };
        if self.points.len() < first || !due {
            return self.models.is_some();
        }
        let new = &self.points[self.columns.len()..];
        self.columns.extend(context.columns_of(new));
        let encoder = Encoder::of(context.space);
        let own = self.table(encoder.rows(context, &self.points));
        let agreement = self.agreement(&own);
        let share = agreement * HALF / (HALF + own.y.len() as f64);
        let enough = self.points.len() >= LEAST || share > 0.0;
        self.models = enough
            .then(|| self.fitted(context.learner, &encoder, &own, share))
            .flatten();
        self.learnt = self.points.len();
        self.models.is_some()
    }

    /// Answers that the models know.
    pub fn answers_learnt(&self) -> usize {
        self.learnt
    }

    fn table(&self, rows: Vec<Vec<f64>>) -> Table {
        Table {
            rows,
            columns: self.columns.clone(),
            y: throughputs(&self.costs),
        }
    }

    /// Takes the answers of similar tasks, and begins with a model of them.
    fn look_up(&mut self, context: &Context<'_>) {
        let encoder = Encoder::of(context.space);
        let mut all = Table::default();
        for task in context.similar() {
            let rows = encoder.rows_of(context.space, task);
            let columns = match context.columns {
                Some(read) => read(&task.subject(), &task.points),
                None => vec![None; task.points.len()],
            };
            let y = throughputs(&task.costs);
            for ((row, columns), y) in rows.into_iter().zip(columns).zip(y) {
                if let Some(row) = row {
                    all.rows.push(row);
                    all.columns.push(columns);
                    all.y.push(y);
                }
            }
        }
        if all.y.len() >= LEAST {
            self.prior = fit(context.learner, &encoder, &[(&all, 1.0)], self.seed);
            self.models = self.prior.clone();
        }
        self.similar = Some(all);
    }

    /// How well the model of similar tasks ranks own answers; 0 where it ranks them no better than chance.
    fn agreement(&self, own: &Table) -> f64 {
        let Some(prior) = &self.prior else {
            return 0.0;
        };
        let predicted = match &prior.judge {
            Some((judge, width)) => judge.predict(&own.rows(*width)),
            None => prior.draft.predict(&own.rows(0)),
        };
        spearman(&predicted, &own.y).unwrap_or(0.0).max(0.0)
    }

    fn fitted(
        &self,
        learner: Learner,
        encoder: &Encoder,
        own: &Table,
        share: f64,
    ) -> Option<Models> {
        match &self.similar {
            Some(similar) if share > 0.0 && self.prior.is_some() => {
                fit(learner, encoder, &[(own, 1.0), (similar, share)], self.seed)
            }
            _ => fit(learner, encoder, &[(own, 1.0)], self.seed),
        }
    }

    /// What the draft thinks of each point, higher is better; 0 of all without a model.
    pub fn scores(&self, context: &Context<'_>, points: &[Point]) -> Vec<f64> {
        match &self.models {
            Some(m) => m.draft.predict(&m.encoder.rows(context, points)),
            None => vec![0.0; points.len()],
        }
    }

    /// What the best model there is thinks of each point: the judge if there is one.
    pub fn judged(&self, context: &Context<'_>, points: &[Point]) -> Vec<f64> {
        let Some((m, (judge, width))) = self
            .models
            .as_ref()
            .and_then(|m| Some((m, m.judge.as_ref()?)))
        else {
            return self.scores(context, points);
        };
        let rows = m.encoder.rows(context, points);
        let pairs = rows.iter().zip(context.columns_of(points));
        let rows: Vec<Vec<f64>> = pairs
            .map(|(r, c)| joined(r, c.as_deref(), *width))
            .collect();
        judge.predict(&rows)
    }

    /// The first `n` of drafts in the order of the judge; the others follow as they were. Nothing changes where
    /// there is no judge.
    pub fn verify(&self, context: &Context<'_>, drafts: &mut [(f64, Point)], n: usize) {
        if self.models.as_ref().is_none_or(|m| m.judge.is_none()) {
            return;
        }
        let n = n.min(drafts.len());
        let points: Vec<Point> = drafts[..n].iter().map(|(_, p)| p.clone()).collect();
        for (draft, score) in drafts.iter_mut().zip(self.judged(context, &points)) {
            draft.0 = score;
        }
        drafts[..n].sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    }

    /// Notes what the models say of points that are asked for, so that it can be set against what is measured.
    pub fn forecast(&mut self, context: &Context<'_>, points: &[Point]) {
        if self.models.is_some() && !points.is_empty() {
            let scores = self.judged(context, points);
            self.open.extend(points.iter().cloned().zip(scores));
        }
    }

    /// Forecasts of points that have a cost, in the order of their answers.
    pub fn forecasts(&self) -> &[Forecast] {
        &self.forecasts
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

/// What answers of a task say of its other points. Costs are negative throughputs over the best one.
pub struct LearnedCosts<'a> {
    pub learned: &'a mut Learned,
    pub context: &'a Context<'a>,
}

impl LearnedCosts<'_> {
    /// Learns what was told, if that is much more than was learnt before.
    pub fn update(&mut self) {
        self.learned.update(self.context);
    }
}

impl CostModel for LearnedCosts<'_> {
    fn predict(&self, asked: &[Asked<'_>]) -> Vec<Predicted> {
        if self.learned.models.is_none() {
            return vec![Err("too few answers to learn from".into()); asked.len()];
        }
        let points: Vec<Point> = asked.iter().map(|a| a.point.clone()).collect();
        let throughputs = self.learned.judged(self.context, &points);
        throughputs.into_iter().map(|t| Ok(-t)).collect()
    }

    fn tell(&mut self, point: &Point, cost: Option<f64>) {
        self.learned.add(point, cost);
    }
}

/// Throughputs over the best one; 0 of failures.
fn throughputs(costs: &[f64]) -> Vec<f64> {
    let best = costs.iter().copied().fold(f64::INFINITY, f64::min);
    costs.iter().map(|c| best.min(f64::MAX) / c).collect()
}

/// Models of tables, each of which weighs as much as its factor says.
fn fit(learner: Learner, encoder: &Encoder, tables: &[(&Table, f64)], seed: u64) -> Option<Models> {
    let y: Vec<f64> = tables
        .iter()
        .flat_map(|(t, _)| t.y.iter().copied())
        .collect();
    let weight = |(t, share): &(&Table, f64)| {
        let share = *share;
        t.y.iter().map(|y| share * (0.1 + y)).collect::<Vec<f64>>()
    };
    let weights: Vec<f64> = tables.iter().flat_map(weight).collect();
    let model = |width: usize| {
        let rows: Vec<Vec<f64>> = tables.iter().flat_map(|(t, _)| t.rows(width)).collect();
        let examples = Examples {
            weights: Some(&weights),
            ..Examples::of(&rows, &y)
        };
        learner.fitted(&examples, seed).ok()
    };
    let widths = tables.iter().flat_map(|(t, _)| t.columns.iter().flatten());
    let judge = match widths.map(Vec::len).next() {
        Some(width) => model(width).map(|m| (m, width)),
        None => None,
    };
    Some(Models {
        encoder: encoder.clone(),
        draft: model(0)?,
        judge,
    })
}
