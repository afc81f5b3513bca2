//! Spaces: sketches with open decisions, and the points in them.

use crate::draft::{DecidedPart, Refusal, Refused};
use crate::rules::DecidedTile;
use ir::Program;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use schedule::{Decision, Step, Trace};
use std::fmt;
use std::sync::Arc;

/// An upper bound on a sum of products of decided values: what is over it is
/// never proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub what: &'static str,
    pub terms: Vec<Product>,
    pub max: i64,
}

/// A factor times some decided values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    pub factor: i64,
    pub values: Vec<DecidedPart>,
}

/// A trace with open decisions, written by a template.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// Algorithm and variant, e.g. `direct.rows`.
    pub name: String,
    /// At their defaults.
    pub decisions: Vec<Decision>,
    pub steps: Vec<SketchStep>,
    pub limits: Vec<Limit>,
    /// Value numbers that the machine's facts suggest: every required step is
    /// legal there.
    pub default: Vec<u64>,
    /// Whether no step loses digits; what does is only for
    /// [`Accuracy::Relaxed`](crate::Accuracy::Relaxed).
    pub exact: bool,
    /// The register tile, where its costs can be predicted from what is decided.
    pub(crate) tile: Option<Arc<DecidedTile>>,
}

/// A step of a sketch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SketchStep {
    /// Legal wherever the limits hold.
    Required(Step),
    /// As `Required`, but left out where a decided number is 0.
    UnlessZero(Step, DecidedPart),
    /// Left out of candidates in which it is illegal: what decides that is no
    /// bound on decisions.
    Optional(Step),
}

impl SketchStep {
    pub fn step(&self) -> &Step {
        match self {
            SketchStep::Required(step)
            | SketchStep::UnlessZero(step, _)
            | SketchStep::Optional(step) => step,
        }
    }
}

/// The step's text, and before it when candidates have it.
impl fmt::Display for SketchStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SketchStep::Required(step) => step.fmt(f),
            SketchStep::UnlessZero(step, v) => {
                write!(f, "unless ${}.{} is 0: {step}", v.decision, v.part)
            }
            SketchStep::Optional(step) => write!(f, "if legal: {step}"),
        }
    }
}

/// A place in a space: the sketch, and one value number a decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    pub sketch: usize,
    pub values: Vec<u64>,
}

/// A point made concrete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub algorithm: String,
    pub trace: Trace,
}

/// All candidates of one program: the union of its sketches.
#[derive(Clone, Debug)]
pub struct Space {
    pub sketches: Vec<Sketch>,
    /// Sketches that could not be written: defects of their templates.
    pub refused: Vec<Refused>,
}

/// Draws after which sampling takes the sketch's default instead.
const MAX_DRAWS: usize = 500;

impl Sketch {
    /// Decisions without a program, such as the knobs of a recorded table: no step depends on
    /// them, and no values are illegal.
    pub fn of_knobs(name: &str, decisions: Vec<Decision>, default: Vec<u64>) -> Sketch {
        Sketch {
            name: name.into(),
            decisions,
            steps: vec![],
            limits: vec![],
            default,
            exact: true,
            tile: None,
        }
    }

    /// Random values, within the limits or not.
    fn draw(&self, rng: &mut impl Rng) -> Vec<u64> {
        let one = |d: &Decision| rng.random_range(0..d.cardinality());
        self.decisions.iter().map(one).collect()
    }

    fn holds(&self, values: &[u64]) -> bool {
        let decided = self
            .decisions
            .iter()
            .zip(values)
            .map(|(d, v)| d.kind.value_at(*v));
        let Some(decided) = decided.collect::<Option<Vec<_>>>() else {
            return false;
        };
        self.limits.iter().all(|l| {
            let terms = l.terms.iter().map(|t| {
                t.values.iter().fold(t.factor, |n, v| {
                    n.saturating_mul(decided[v.decision][v.part])
                })
            });
            terms.fold(0i64, i64::saturating_add) <= l.max
        })
    }

    /// Number of points, within the limits or not.
    pub fn cardinality(&self) -> u64 {
        self.decisions
            .iter()
            .fold(1u64, |n, d| n.saturating_mul(d.cardinality()))
    }
}

impl Space {
    /// Of some sketches.
    pub fn of(sketches: Vec<Sketch>) -> Space {
        Space {
            sketches,
            refused: vec![],
        }
    }

    /// Number of points of all sketches, within the limits or not.
    pub fn cardinality(&self) -> u64 {
        self.sketches
            .iter()
            .fold(0, |n, s| n.saturating_add(s.cardinality()))
    }

    /// The point that the machine's facts suggest.
    pub fn default_point(&self) -> Point {
        Point {
            sketch: 0,
            values: self.sketches[0].default.clone(),
        }
    }

    /// Whether a point keeps the limits of its sketch.
    pub fn within_limits(&self, p: &Point) -> bool {
        self.sketches[p.sketch].holds(&p.values)
    }

    /// Random points of one sketch within its limits; some may be equal.
    pub fn samples(&self, sketch: usize, count: usize, seed: u64) -> Vec<Point> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        (0..count)
            .map(|_| self.sample_in(sketch, &mut rng))
            .collect()
    }

    /// Puts a random point within the limits in the place of the default of each sketch.
    pub fn forget_defaults(&mut self, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        for sketch in 0..self.sketches.len() {
            self.sketches[sketch].default = self.sample_in(sketch, &mut rng).values;
        }
    }

    /// The share of a sketch's points that are within its limits, by so many random ones.
    pub fn share_within_limits(&self, sketch: usize, draws: usize, seed: u64) -> f64 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let s = &self.sketches[sketch];
        let within = (0..draws).filter(|_| s.holds(&s.draw(&mut rng))).count();
        within as f64 / draws.max(1) as f64
    }

    /// A random point of one sketch within its limits.
    fn sample_in(&self, sketch: usize, rng: &mut impl Rng) -> Point {
        let s = &self.sketches[sketch];
        for _ in 0..MAX_DRAWS {
            let values = s.draw(rng);
            if s.holds(&values) {
                return Point { sketch, values };
            }
        }
        Point {
            sketch,
            values: s.default.clone(),
        }
    }

    /// A random point within the limits; sketches weigh as the logarithm of their size.
    pub fn sample(&self, rng: &mut impl Rng) -> Point {
        let weight = |s: &Sketch| (s.cardinality() as f64).ln() + 0.1;
        let total: f64 = self.sketches.iter().map(weight).sum();
        let mut at = rng.random_range(0.0..total);
        for (i, s) in self.sketches.iter().enumerate() {
            at -= weight(s);
            if at <= 0.0 {
                return self.sample_in(i, rng);
            }
        }
        self.sample_in(self.sketches.len() - 1, rng)
    }

    /// The point of a number below the sketch's cardinality: the last decision changes fastest.
    pub fn at(&self, sketch: usize, mut index: u64) -> Point {
        let decisions = &self.sketches[sketch].decisions;
        let mut values = vec![0; decisions.len()];
        for (value, d) in values.iter_mut().zip(decisions).rev() {
            *value = index % d.cardinality().max(1);
            index /= d.cardinality().max(1);
        }
        Point { sketch, values }
    }

    /// A neighbour within the limits: one or two decisions take a value next to theirs, or,
    /// one time in ten, another sketch is drawn from.
    pub fn mutate(&self, p: &Point, rng: &mut impl Rng) -> Point {
        let s = &self.sketches[p.sketch];
        let open: Vec<usize> = (0..s.decisions.len())
            .filter(|d| s.decisions[*d].cardinality() > 1)
            .collect();
        if open.is_empty() || (self.sketches.len() > 1 && rng.random_ratio(1, 10)) {
            return self.sample(rng);
        }
        for _ in 0..MAX_DRAWS {
            let mut values = p.values.clone();
            for _ in 0..rng.random_range(1..=2) {
                let d = open[rng.random_range(0..open.len())];
                let near = s.decisions[d].kind.neighbours(values[d]);
                values[d] = near[rng.random_range(0..near.len())];
            }
            if values != p.values && s.holds(&values) {
                return Point {
                    sketch: p.sketch,
                    values,
                };
            }
        }
        self.sample(rng)
    }

    /// A mixture within the limits of two points of one sketch.
    pub fn cross(&self, a: &Point, b: &Point, rng: &mut impl Rng) -> Point {
        if a.sketch != b.sketch {
            return self.mutate(a, rng);
        }
        let pick = a.values.iter().zip(&b.values);
        let values: Vec<u64> = pick
            .map(|(x, y)| if rng.random() { *x } else { *y })
            .collect();
        let p = Point {
            sketch: a.sketch,
            values,
        };
        if self.within_limits(&p) {
            p
        } else {
            self.mutate(a, rng)
        }
    }

    /// The decisions of a point: its sketch's with the point's values.
    pub fn decisions(&self, p: &Point) -> Vec<Decision> {
        let s = &self.sketches[p.sketch];
        let mut decisions = s.decisions.clone();
        for (d, v) in decisions.iter_mut().zip(&p.values) {
            d.value = d
                .kind
                .value_at(*v)
                .expect("points are within their decisions");
        }
        decisions
    }

    /// The candidate at a point of the space of `program`: optional steps that
    /// are illegal here are left out.
    ///
    /// Steps are applied only as far as one is optional: the others are legal
    /// within the limits, and whoever builds the candidate replays its trace.
    ///
    /// # Errors
    /// A required step that was applied and is illegal: a limit is missing.
    pub fn candidate(&self, program: &Program, p: &Point) -> Result<Candidate, Refused> {
        let optional = |s: &SketchStep| matches!(s, SketchStep::Optional(_));
        let steps = &self.sketches[p.sketch].steps;
        let tried = steps.iter().rposition(optional).map_or(0, |i| i + 1);
        match tried {
            0 => self.applied(None, p, tried),
            _ => self.applied(Some(&mut program.clone()), p, tried),
        }
    }

    /// The candidate at a point of the space of `program`, and the program that its trace gives:
    /// for whoever needs both at once, since each step is applied once.
    ///
    /// # Errors
    /// A required step that is illegal: a limit is missing.
    pub fn scheduled(&self, program: &Program, p: &Point) -> Result<(Candidate, Program), Refused> {
        let mut scheduled = program.clone();
        let candidate = self.applied(Some(&mut scheduled), p, usize::MAX)?;
        Ok((candidate, scheduled))
    }

    /// The candidate at a point; its first `tried` steps are applied to a program, if there is one.
    fn applied(
        &self,
        mut scheduled: Option<&mut Program>,
        p: &Point,
        tried: usize,
    ) -> Result<Candidate, Refused> {
        let sketch = &self.sketches[p.sketch];
        let decisions = self.decisions(p);
        let mut steps = Vec::with_capacity(sketch.steps.len());
        for (i, s) in sketch.steps.iter().enumerate() {
            if let SketchStep::UnlessZero(_, v) = s
                && decisions[v.decision].value[v.part] == 0
            {
                continue;
            }
            if let Some(program) = scheduled.as_deref_mut().filter(|_| i < tried)
                && let Err(illegal) = s.step().apply(program, &decisions)
            {
                if matches!(s, SketchStep::Optional(_)) {
                    continue;
                }
                return Err(Refused {
                    sketch: sketch.name.clone(),
                    why: Refusal::Step(illegal),
                });
            }
            steps.push(s.step().clone());
        }
        Ok(Candidate {
            algorithm: sketch.name.clone(),
            trace: Trace { steps, decisions },
        })
    }
}
