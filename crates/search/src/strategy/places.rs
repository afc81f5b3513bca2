//! Points as places: every decision between 0 and 1, and steps along single decisions.

use crate::space::{Point, Space};

/// Decisions of the sketch that has the most.
pub fn widest(space: &Space) -> usize {
    let decisions = space.sketches.iter().map(|s| s.decisions.len());
    decisions.max().unwrap_or(0)
}

/// Numbers that a place has: one for each sketch, and one for each decision of the widest sketch.
pub fn width(space: &Space) -> usize {
    space.sketches.len() + widest(space)
}

/// The place of a point: 1 for its sketch, 0 for the others, then each decision's value number over its greatest.
pub fn place(space: &Space, p: &Point) -> Vec<f64> {
    let mut place = vec![0.0; width(space)];
    place[p.sketch] = 1.0;
    let decisions = &space.sketches[p.sketch].decisions;
    let own = &mut place[space.sketches.len()..];
    for ((at, value), d) in own.iter_mut().zip(&p.values).zip(decisions) {
        *at = *value as f64 / d.cardinality().saturating_sub(1).max(1) as f64;
    }
    place
}

/// The point after one step of each decision, by -1, 0 or 1; what would leave a decision's values stays. None if the
/// point is beyond the limits.
pub fn stepped(space: &Space, p: &Point, steps: &[i64]) -> Option<Point> {
    let decisions = &space.sketches[p.sketch].decisions;
    let step = |((value, step), d): ((&u64, &i64), &schedule::Decision)| {
        let next = value.saturating_add_signed(*step);
        next.min(d.cardinality().saturating_sub(1))
    };
    let values = p.values.iter().zip(steps).zip(decisions).map(step);
    let p = Point {
        sketch: p.sketch,
        values: values.collect(),
    };
    space.within_limits(&p).then_some(p)
}
