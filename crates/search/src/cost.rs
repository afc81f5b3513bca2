//! Predicted cost: what a point costs before anything is measured.
//!
//! The default of a program is the point of the least predicted cost; a study says how
//! well predictions rank measured times.

use crate::space::{Point, Sketch, Space};
use ir::{Program, Target};

/// What points are predicted of.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub program: &'a Program,
    pub target: &'a Target,
    pub space: &'a Space,
}

/// Predicts the costs of points, so that points of one program can be compared.
pub trait CostModel {
    /// Of each point the predicted cost of one call, lower is better; `None` where the model
    /// knows nothing of the sketch.
    fn predict(&self, subject: &Subject<'_>, points: &[Point]) -> Vec<Option<f64>>;
}

/// Knows the sketches of rules: the rates of a core's units and of its caches, applied to
/// what the loops of the register tile load and move. Its costs are cycles of all threads together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analytic;

impl CostModel for Analytic {
    fn predict(&self, subject: &Subject<'_>, points: &[Point]) -> Vec<Option<f64>> {
        let one = |point: &Point| {
            let tile = subject.space.sketches[point.sketch].tile.as_ref()?;
            let decisions = subject.space.decisions(point);
            Some(tile.cycles(|part| decisions[part.decision].value[part.part]))
        };
        points.iter().map(one).collect()
    }
}

/// Of about equal costs the first counts: a share by which another has to be less.
pub(crate) const ALIKE: f64 = 0.02;

/// The sketches, first the one whose default is predicted to cost least: less by the share
/// `by` than those before it.
pub(crate) fn cheapest_first(
    model: &dyn CostModel,
    program: &Program,
    target: &Target,
    sketches: Vec<Sketch>,
    by: f64,
) -> Vec<Sketch> {
    let mut space = Space::of(sketches);
    let default = |(sketch, s): (usize, &Sketch)| Point {
        sketch,
        values: s.default.clone(),
    };
    let points: Vec<Point> = space.sketches.iter().enumerate().map(default).collect();
    let subject = Subject {
        program,
        target,
        space: &space,
    };
    let costs = model.predict(&subject, &points);
    let (mut first, mut least) = (0, f64::INFINITY);
    for (at, cost) in costs.into_iter().enumerate() {
        if let Some(cost) = cost.filter(|c| *c < least * (1.0 - by)) {
            (first, least) = (at, cost);
        }
    }
    if first > 0 {
        space.sketches[..=first].rotate_right(1);
    }
    space.sketches
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Costs what the sketch is called.
    struct Named;

    impl CostModel for Named {
        fn predict(&self, subject: &Subject<'_>, points: &[Point]) -> Vec<Option<f64>> {
            let name = |p: &Point| subject.space.sketches[p.sketch].name.parse().ok();
            points.iter().map(name).collect()
        }
    }

    #[test]
    fn the_cheapest_comes_first_and_the_others_keep_their_order() {
        let order = |names: &[&str]| -> Vec<String> {
            let sketch = |n: &&str| Sketch::of_knobs(n, vec![], vec![]);
            let sketches = names.iter().map(sketch).collect();
            let program = ir::text::parse("program empty {\n}\n").unwrap();
            let target = Target::generic(ir::Isa::X86Avx2);
            let sorted = cheapest_first(&Named, &program, &target, sketches, ALIKE);
            sorted.into_iter().map(|s| s.name).collect()
        };
        assert_eq!(order(&["5", "4", "3", "6"]), ["3", "5", "4", "6"]);
        assert_eq!(order(&["5", "4.95"]), ["5", "4.95"]);
        assert_eq!(order(&["unknown", "7"]), ["7", "unknown"]);
        assert_eq!(order(&["unknown", "none"]), ["unknown", "none"]);
    }
}
