//! Spaces: sketches with open decisions, and the points in them.

use ir::Program;
use rand::Rng;
use schedule::{Decision, Step, Trace};

/// An upper bound on a sum of products of decided values: what is over it is
/// never proposed.
#[derive(Clone, Debug)]
pub struct Limit {
    pub what: &'static str,
    /// (factor, [(decision, part)]): `factor * product of parts`.
    pub terms: Vec<(i64, Vec<(usize, usize)>)>,
    pub max: i64,
}

/// A hand-written trace with open decisions.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// Algorithm and variant, e.g. `direct.rows`.
    pub name: String,
    pub decisions: Vec<Decision>,
    /// One step a line, in `schedule` text; `try STEP` is dropped where illegal.
    pub lines: Vec<String>,
    pub limits: Vec<Limit>,
    /// Value numbers that the machine's facts suggest.
    pub default: Vec<u64>,
    /// Whether no step loses digits; what does is only for
    /// [`Accuracy::Relaxed`](crate::Accuracy::Relaxed).
    pub exact: bool,
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
            lines: vec![],
            limits: vec![],
            default,
            exact: true,
        }
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
            let terms = l.terms.iter().map(|(factor, parts)| {
                parts
                    .iter()
                    .fold(*factor, |n, (d, p)| n.saturating_mul(decided[*d][*p]))
            });
            terms.fold(0i64, i64::saturating_add) <= l.max
        })
    }

    /// Number of points, legal or not.
    pub fn cardinality(&self) -> u64 {
        self.decisions
            .iter()
            .fold(1u64, |n, d| n.saturating_mul(d.cardinality()))
    }
}

impl Space {
    /// Number of points of all sketches, legal or not.
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
    pub fn is_legal(&self, p: &Point) -> bool {
        self.sketches[p.sketch].holds(&p.values)
    }

    /// A random legal point of one sketch.
    fn sample_in(&self, sketch: usize, rng: &mut impl Rng) -> Point {
        let s = &self.sketches[sketch];
        for _ in 0..MAX_DRAWS {
            let values: Vec<u64> = s
                .decisions
                .iter()
                .map(|d| rng.random_range(0..d.cardinality()))
                .collect();
            if s.holds(&values) {
                return Point { sketch, values };
            }
        }
        Point {
            sketch,
            values: s.default.clone(),
        }
    }

    /// A random legal point; sketches weigh as the logarithm of their size.
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

    /// A legal neighbour: one or two decisions take other values.
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
                values[d] = rng.random_range(0..s.decisions[d].cardinality());
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

    /// A legal mixture of two points of one sketch.
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
        if self.is_legal(&p) {
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
    /// # Errors
    /// The first step that is required and illegal.
    pub fn candidate(&self, program: &Program, p: &Point) -> Result<Candidate, String> {
        let sketch = &self.sketches[p.sketch];
        let decisions = self.decisions(p);
        let mut scheduled = program.clone();
        let mut steps = Vec::new();
        for line in &sketch.lines {
            let (optional, text) = match line.strip_prefix("try ") {
                Some(rest) => (true, rest),
                None => (false, line.as_str()),
            };
            let step: Step = text.parse().map_err(|e| format!("{}: {e}", sketch.name))?;
            match step.apply(&mut scheduled, &decisions) {
                Ok(()) => steps.push(step),
                Err(_) if optional => {}
                Err(illegal) => return Err(format!("{}: {illegal}", sketch.name)),
            }
        }
        Ok(Candidate {
            algorithm: sketch.name.clone(),
            trace: Trace { steps, decisions },
        })
    }
}
