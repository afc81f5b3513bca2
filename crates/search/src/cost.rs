//! Predicted cost: what a point costs before it is measured.
//!
//! Whatever predicts is a [`CostModel`]: rules by the register tile ([`Analytic`]), models of answers
//! ([`crate::LearnedCosts`]), and what is read of code, by `tune`.

use crate::space::{Point, Sketch, Space};
use ir::{Program, Target};
use std::borrow::Cow;

/// What points are predicted of.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub program: &'a Program,
    pub target: &'a Target,
    pub space: &'a Space,
}

/// A point whose cost is asked for, with what builders read of its code. `R` is `()` for models that take
/// points alone.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a, R = ()> {
    pub point: &'a Point,
    /// None where nothing was read.
    pub read: Option<&'a R>,
}

impl<'a> Asked<'a> {
    /// Points of which nothing has to be read.
    pub fn all(points: &'a [Point]) -> Vec<Asked<'a>> {
        let one = |point| Asked { point, read: None };
        points.iter().map(one).collect()
    }
}

/// The predicted cost of one call, or why the model knows none. Costs of one model order the points of its task: lower is
/// better.
pub type Predicted = Result<f64, Cow<'static, str>>;

/// Predicts the costs of points of one task, so that these can be compared. A model that learned is saved and loaded by [`learn::save`] and
/// [`learn::load`], or learns anew from the records of a store.
pub trait CostModel<R = ()> {
    /// One prediction for each point, in their order.
    fn predict(&self, asked: &[Asked<'_, R>]) -> Vec<Predicted>;

    /// Takes what a point costs; none if it failed. Models that do not learn leave it.
    fn tell(&mut self, _point: &Point, _cost: Option<f64>) {}
}

/// Knows the sketches of rules: the rates of a core's units and of its caches, applied to
/// what the loops of the register tile load and move. Its costs are cycles of all threads together.
#[derive(Clone, Copy)]
pub struct Analytic<'a>(pub Subject<'a>);

impl CostModel for Analytic<'_> {
    fn predict(&self, asked: &[Asked<'_>]) -> Vec<Predicted> {
        let Analytic(Subject { space, .. }) = self;
        let one = |asked: &Asked<'_>| {
            let tile = space.sketches[asked.point.sketch].tile.as_ref();
            let tile = tile.ok_or("no rule wrote the sketch")?;
            let decisions = space.decisions(asked.point);
            Ok(tile.cycles(|part| decisions[part.decision].value[part.part]))
        };
        asked.iter().map(one).collect()
    }
}

/// Of about equal costs the first counts: a share by which another has to be less.
pub(crate) const ALIKE: f64 = 0.02;

/// Makes a model for what its points are of.
pub(crate) type ModelFor = dyn for<'a> Fn(Subject<'a>) -> Box<dyn CostModel + 'a>;

/// Rules rank their sketches by the register tile.
pub(crate) const BY_TILE: &ModelFor = &|subject| Box::new(Analytic(subject));

/// The sketches, first the one whose default `model` predicts to cost least: less by the share
/// `by` than those before it.
pub(crate) fn cheapest_first(
    model: &ModelFor,
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
    let costs = model(subject).predict(&Asked::all(&points));
    let (mut first, mut least) = (0, f64::INFINITY);
    for (at, cost) in costs.into_iter().enumerate() {
        if let Some(cost) = cost.ok().filter(|c| *c < least * (1.0 - by)) {
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
    struct Named<'a>(Subject<'a>);

    impl CostModel for Named<'_> {
        fn predict(&self, asked: &[Asked<'_>]) -> Vec<Predicted> {
            let Named(Subject { space, .. }) = self;
            let name = |a: &Asked<'_>| {
                let cost = space.sketches[a.point.sketch].name.parse();
                cost.map_err(|_| "its name is no number".into())
            };
            asked.iter().map(name).collect()
        }
    }

    #[test]
    fn the_cheapest_comes_first_and_the_others_keep_their_order() {
        let order = |names: &[&str]| -> Vec<String> {
            let sketch = |n: &&str| Sketch::of_knobs(n, vec![], vec![]);
            let sketches = names.iter().map(sketch).collect();
            let program = ir::text::parse("program empty {\n}\n").unwrap();
            let target = Target::generic(ir::Isa::X86Avx2);
            let sorted =
                cheapest_first(&|s| Box::new(Named(s)), &program, &target, sketches, ALIKE);
            sorted.into_iter().map(|s| s.name).collect()
        };
        assert_eq!(order(&["5", "4", "3", "6"]), ["3", "5", "4", "6"]);
        assert_eq!(order(&["5", "4.95"]), ["5", "4.95"]);
        assert_eq!(order(&["unknown", "7"]), ["7", "unknown"]);
        assert_eq!(order(&["unknown", "none"]), ["unknown", "none"]);
    }
}
