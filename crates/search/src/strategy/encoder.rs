//! Points as rows of numbers, for models that learn from answers.

use crate::context::{Context, SimilarTask};
use crate::cost::{Analytic, Asked, CostModel, Subject};
use crate::space::{Point, Space};
use schedule::Decision;
use std::collections::HashMap;

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
        let one = |(p, cost): (&Point, Option<f64>)| {
            let decisions = &context.space.sketches[p.sketch].decisions;
            self.row(p.sketch, decisions, &p.values, cost)
        };
        pairs.map(one).collect()
    }

    /// One row for each answer of another task; none where this space has no sketch of that name with as many
    /// decisions. Decisions are matched by position, as their names may come from the axes of a program.
    pub fn rows_of(&self, space: &Space, other: &SimilarTask) -> Vec<Option<Vec<f64>>> {
        let same = |p: &Point| {
            let theirs = &other.space.sketches[p.sketch];
            let parts = |d: &[Decision]| d.iter().map(|d| d.value.len()).collect::<Vec<_>>();
            let alike = |s: &crate::space::Sketch| {
                s.name == theirs.name && parts(&s.decisions) == parts(&theirs.decisions)
            };
            space.sketches.iter().position(alike)
        };
        let costs = by_rules(other.subject(), &other.points);
        let pairs = other.points.iter().zip(costs);
        let one = |(p, cost): (&Point, Option<f64>)| {
            let decisions = &other.space.sketches[p.sketch].decisions;
            Some(self.row(same(p)?, decisions, &p.values, cost))
        };
        pairs.map(one).collect()
    }

    fn row(
        &self,
        sketch: usize,
        decisions: &[Decision],
        values: &[u64],
        cost: Option<f64>,
    ) -> Vec<f64> {
        let sketches = self.columns.len();
        let mut row = vec![f64::NAN; self.width];
        row[..sketches].fill(0.0);
        row[sketch] = 1.0;
        if let Some(cost) = cost {
            row[sketches] = cost.max(1.0).ln();
        }
        for ((d, value), first) in decisions.iter().zip(values).zip(&self.columns[sketch]) {
            let parts = d.kind.value_at(*value).unwrap_or_default();
            for (part, v) in parts.into_iter().enumerate() {
                row[first + part] = (1.0 + v.unsigned_abs() as f64).log2();
            }
        }
        row
    }
}

/// The costs that rules predict; none of other sketches, and none where there is no program.
pub fn predicted(context: &Context<'_>, points: &[Point]) -> Vec<Option<f64>> {
    match context.subject() {
        Some(subject) => by_rules(subject, points),
        None => vec![None; points.len()],
    }
}

fn by_rules(subject: Subject<'_>, points: &[Point]) -> Vec<Option<f64>> {
    let costs = Analytic(subject).predict(&Asked::all(points));
    costs.into_iter().map(Result::ok).collect()
}
