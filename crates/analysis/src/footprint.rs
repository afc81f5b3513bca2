//! How many cache lines accesses touch while some variables vary.
//!
//! An offset is a sum of terms with constant factors. A term that is no variable
//! (a quotient, a remainder, a loaded index) has as many values as its variables
//! have combinations; otherwise the count is exact where terms do not interleave.

use ir::affine::{Affine, Interval, bounds};
use ir::{BinaryOp, Expr, ExprKind, VarId};
use std::collections::BTreeMap;

/// The offset of an access: `sum of factor * term + constant`, in elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Access {
    terms: Vec<(Expr, i64)>,
    constant: i64,
}

/// Variables that vary, with their numbers of values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<VarId, i64>);

impl Ranges {
    pub fn insert(&mut self, var: VarId, extent: i64) {
        self.0.insert(var, extent);
    }

    pub fn remove(&mut self, var: VarId) {
        self.0.remove(&var);
    }

    pub fn with(&self, more: &[(VarId, i64)]) -> Ranges {
        let mut all = self.clone();
        all.0.extend(more.iter().copied());
        all
    }

    /// How many values a term has, at most.
    fn values(&self, term: &Expr) -> i64 {
        let varying = term.vars().into_iter().filter_map(|v| self.0.get(&v));
        let points = varying.fold(1_i64, |n, extent| n.saturating_mul((*extent).max(1)));
        let mut ranges = ir::affine::Ranges::new();
        for v in term.vars() {
            // What does not vary has some value, and which decides little.
            ranges.set_extent(v, self.0.get(&v).copied().unwrap_or(1));
        }
        let interval: Option<Interval> = bounds(term, &ranges);
        let width = interval.map_or(i64::MAX, |i| i.hi.saturating_sub(i.lo).saturating_add(1));
        points.min(width.max(1))
    }
}

impl Access {
    pub fn of(offset: &Expr) -> Access {
        let mut access = Access {
            terms: vec![],
            constant: 0,
        };
        access.add(offset, 1);
        access.terms.sort_by_key(|(_, factor)| *factor);
        access
    }

    fn add(&mut self, e: &Expr, factor: i64) {
        if let Some(linear) = Affine::of(e) {
            self.constant = self
                .constant
                .saturating_add(linear.constant.saturating_mul(factor));
            for (v, c) in &linear.terms {
                self.term(Expr::var(*v), c.saturating_mul(factor));
            }
            return;
        }
        match e.kind() {
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                self.add(a, factor);
                self.add(b, factor);
            }
            ExprKind::Binary(BinaryOp::Sub, a, b) => {
                self.add(a, factor);
                self.add(b, factor.saturating_neg());
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
                (Some(k), _) => self.add(b, factor.saturating_mul(k)),
                (_, Some(k)) => self.add(a, factor.saturating_mul(k)),
                _ => self.term(e.clone(), factor),
            },
            _ => self.term(e.clone(), factor),
        }
    }

    fn term(&mut self, term: Expr, factor: i64) {
        match self.terms.iter_mut().find(|(t, _)| *t == term) {
            Some((_, f)) => *f = f.saturating_add(factor),
            None => self.terms.push((term, factor)),
        }
    }

    /// Distances in bytes and numbers of the values that vary, the nearest first; and the
    /// terms that do not vary.
    fn shape(&self, ranges: &Ranges, element: i64) -> Shape<'_> {
        let mut steps = Vec::new();
        let mut fixed = Vec::new();
        for (term, factor) in &self.terms {
            match ranges.values(term) {
                1 => fixed.push((term, *factor)),
                n => steps.push((factor.saturating_abs().saturating_mul(element), n)),
            }
        }
        steps.sort_unstable();
        Shape { steps, fixed }
    }
}

#[derive(PartialEq)]
struct Shape<'a> {
    steps: Vec<(i64, i64)>,
    fixed: Vec<(&'a Expr, i64)>,
}

/// Accesses of one shape, which differ by constants: distances in bytes and numbers of the values
/// that vary, the constants among them, and how many constants there are.
struct Group {
    steps: Vec<(i64, i64)>,
    constants: usize,
    /// Lines of one of the accesses.
    one: f64,
}

/// What accesses to one buffer of `all` bytes touch of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Touched {
    pub lines: f64,
    /// Sets of the cache that the lines are in: few where they are a power of two apart.
    pub sets: f64,
}

/// Lines of `line` bytes that accesses to one buffer of `all` bytes touch, of a cache of `sets` sets.
pub(crate) fn touched(
    accesses: &[Access],
    ranges: &Ranges,
    element: i64,
    all: i64,
    (line, sets): (i64, i64),
) -> Touched {
    let (line, sets) = (line.max(1), sets.max(1));
    let groups = groups(accesses, ranges, element, line);
    let lines = |g: &Group| {
        let all = repeated(&g.steps, element, line);
        all.min(g.one * g.constants as f64)
    };
    let sum: f64 = groups.iter().map(lines).sum();
    let in_sets: f64 = groups
        .iter()
        .map(|g| reached(&g.steps, element, line, sets))
        .sum();
    let lines = sum.min((all as f64 / line as f64).ceil().max(1.0));
    Touched {
        lines,
        sets: in_sets.min(sets as f64).min(lines),
    }
}

fn groups(accesses: &[Access], ranges: &Ranges, element: i64, line: i64) -> Vec<Group> {
    let mut shapes: Vec<(Shape<'_>, Vec<i64>)> = Vec::new();
    for a in accesses {
        let shape = a.shape(ranges, element);
        match shapes.iter_mut().find(|g| g.0 == shape) {
            Some((_, constants)) => constants.push(a.constant),
            None => shapes.push((shape, vec![a.constant])),
        }
    }
    let group = |(shape, mut constants): (Shape<'_>, Vec<i64>)| {
        constants.sort_unstable();
        constants.dedup();
        let mut steps = shape.steps;
        let one = repeated(&steps, element, line);
        let apart = constant_steps(&constants).into_iter();
        steps.extend(apart.map(|(step, n)| (step.saturating_mul(element), n)));
        steps.sort_unstable();
        Group {
            steps,
            constants: constants.len(),
            one,
        }
    };
    shapes.into_iter().map(group).collect()
}

/// Sorted numbers as steps and how often they are taken: 0, 1, 8, 9 are two of 1 and two of 8.
/// Of numbers without such a form, one step that reaches all of them.
fn constant_steps(constants: &[i64]) -> Vec<(i64, i64)> {
    let mut steps = Vec::new();
    let mut rest = constants.to_vec();
    while let [first, .., last] = rest[..] {
        let distance = |w: &[i64]| w[1].saturating_sub(w[0]);
        let Some(step) = rest.windows(2).map(distance).min() else {
            break;
        };
        let runs: Vec<&[i64]> = rest.chunk_by(|a, b| b.saturating_sub(*a) == step).collect();
        let n = runs[0].len();
        if n < 2 || runs.iter().any(|r| r.len() != n) {
            let step = rest.windows(2).map(distance).fold(0, gcd).max(1);
            steps.push((step, last.saturating_sub(first) / step + 1));
            break;
        }
        steps.push((step, n as i64));
        rest = runs.iter().map(|r| r[0]).collect();
    }
    steps
}

/// Sets that an element reaches which is repeated in steps of some distances, the nearest first.
fn reached(steps: &[(i64, i64)], element: i64, line: i64, sets: i64) -> f64 {
    let span = sets.saturating_mul(line);
    let mut run = element;
    let mut apart = 1.0;
    for (step, n) in steps {
        if *step <= run.max(line) {
            run = run.saturating_add(step.saturating_mul(n - 1));
        } else {
            // Multiples of the step fall on so many places before they repeat.
            apart *= (*n).min(span / gcd(span, *step).max(1)) as f64;
        }
    }
    apart * (run as f64 / line as f64).ceil()
}

fn gcd(a: i64, b: i64) -> i64 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

/// Lines of an element that is repeated in steps of some distances, the nearest first.
fn repeated(steps: &[(i64, i64)], element: i64, line: i64) -> f64 {
    // Bytes without gaps of a line, and how often such a run occurs apart.
    let mut run = element;
    let mut pieces = 1.0;
    // Runs in equal distances, of which later steps may fill the gaps.
    let (mut distance, mut number) = (0_i64, 1_i64);
    for (step, n) in steps.iter().copied() {
        if number == 1 && step <= run.max(line) {
            run = run.saturating_add(step.saturating_mul(n - 1));
        } else if number == 1 {
            (distance, number) = (step, n);
        } else if step % distance == 0 && step / distance <= number {
            number = number.saturating_add((step / distance).saturating_mul(n - 1));
        } else {
            pieces *= number as f64;
            (distance, number) = (step, n);
        }
    }
    pieces * number as f64 * (run as f64 / line as f64).ceil()
}
