//! What is near slow candidates is slow.

use super::draws::Draws;
use super::{Filter, Verdict};
use crate::trial::{Form, Trial};
use search::{Context, Point, Told};

/// Told points of a sketch before any of its candidates is dropped.
const LEAST_TOLD: usize = 16;
/// Told points, the nearest ones, that predict a cost.
const NEIGHBOURS: usize = 3;
/// A candidate is dropped if its predicted cost is this many times the median of the told ones.
const SLOW: f64 = 2.0;
/// Of the candidates that would be dropped, this share is kept: the prediction may be wrong.
const KEPT: f64 = 1.0 / 8.0;

/// Drops candidates whose nearest neighbours in the space are slow: a cost model of
/// nearest neighbours, on the numbers of decisions' values. It knows nothing of the program,
/// so it works on recorded tables too.
#[derive(Debug)]
pub struct Neighbours {
    /// (point, natural logarithm of its cost) of every told point.
    told: Vec<(Point, f64)>,
    /// Which of the candidates that would be dropped are kept.
    draws: Draws,
}

/// Distance of two points of a sketch: over the decisions, the sum of how far their values
/// are apart, as a share of the decision's range.
fn distance(a: &Point, b: &Point, ranges: &[f64]) -> f64 {
    let parts = a.values.iter().zip(&b.values).zip(ranges);
    parts.map(|((a, b), r)| a.abs_diff(*b) as f64 / r).sum()
}

impl Neighbours {
    pub const NAME: &str = "neighbours";

    /// For the search of a task with a seed.
    pub fn new(task: &str, seed: u64) -> Neighbours {
        Neighbours {
            told: vec![],
            draws: Draws::new(Neighbours::NAME, task, seed),
        }
    }

    /// The predicted logarithm of a point's cost over the median of those told of its sketch;
    /// none before enough were told.
    fn predict(&self, context: &Context<'_>, p: &Point) -> Option<f64> {
        let of_sketch = self.told.iter().filter(|(t, _)| t.sketch == p.sketch);
        let mut logs: Vec<f64> = of_sketch.clone().map(|(_, log)| *log).collect();
        if logs.len() < LEAST_TOLD {
            return None;
        }
        let middle = logs.len() / 2;
        let median = *logs.select_nth_unstable_by(middle, f64::total_cmp).1;
        let decisions = &context.space.sketches[p.sketch].decisions;
        let range = |d: &schedule::Decision| (d.cardinality().max(2) - 1) as f64;
        let ranges: Vec<f64> = decisions.iter().map(range).collect();
        let mut near: Vec<(f64, f64)> = of_sketch
            .map(|(t, log)| (distance(t, p, &ranges), *log))
            .collect();
        near.select_nth_unstable_by(NEIGHBOURS - 1, |a, b| a.0.total_cmp(&b.0));
        let near = &near[..NEIGHBOURS];
        Some(near.iter().map(|(_, log)| log).sum::<f64>() / NEIGHBOURS as f64 - median)
    }
}

impl Filter for Neighbours {
    fn name(&self) -> &'static str {
        Neighbours::NAME
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn judge(&mut self, context: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        let one = |t: &Trial| {
            let log = self.predict(context, &t.point).unwrap_or(0.0);
            if log <= SLOW.ln() {
                return Verdict::Keep { score: log };
            }
            match self.draws.picks(&t.point, KEPT) {
                true => Verdict::Keep { score: log },
                false => Verdict::Drop {
                    why: format!("predicted {:.2} times the median", log.exp()),
                },
            }
        };
        trials.iter().map(one).collect()
    }

    fn tell(&mut self, told: &Told<'_>) {
        if let Some(cost) = told.cost.filter(|c| c.is_finite() && *c > 0.0) {
            self.told.push((told.point.clone(), cost.ln()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{context, space, trial};
    use super::*;
    use store::Outcome;

    /// A filter that was told a plane of costs: 1 where `a` is small, 100 where it is large.
    fn told(points: u64) -> Neighbours {
        let mut filter = Neighbours::new("task", 1);
        let outcome = Outcome::Scored {
            kind: "test".into(),
            value: 0.0,
        };
        for n in 0..points {
            let point = trial(n, [n % 9, n / 9]).point;
            let cost = Some(if point.values[0] < 6 { 1.0 } else { 100.0 });
            filter.tell(&Told {
                point: &point,
                outcome: &outcome,
                cost,
            });
        }
        filter
    }

    #[test]
    fn candidates_among_slow_ones_are_dropped_but_for_a_few() {
        let space = space();
        let context = context(&space);
        let mut filter = told(18);
        let fast: Vec<_> = (0..20).map(|n| trial(n, [n % 4, 3])).collect();
        let keep = |v: &Verdict| matches!(v, Verdict::Keep { .. });
        assert!(filter.judge(&context, &fast).iter().all(keep));
        let slow: Vec<_> = (0..16).map(|n| trial(n, [7 + n % 2, n / 2])).collect();
        let verdicts = filter.judge(&context, &slow);
        let kept = verdicts.iter().filter(|v| keep(v)).count();
        assert!((1..=4).contains(&kept), "{kept}");
        let last = filter.judge(&context, &slow[8..]);
        assert_eq!(verdicts[8..], last, "what came before does not matter");
        let mixed = [trial(0, [8, 2]), trial(1, [0, 2])];
        let few = told(15).judge(&context, &mixed);
        assert_eq!(
            few,
            vec![Verdict::Keep { score: 0.0 }; 2],
            "too little is known"
        );
    }
}
