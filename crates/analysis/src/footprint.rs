//! How many cache lines accesses touch while some variables vary.
//!
//! A term that is no variable (a quotient, a remainder, a loaded index) has as many values as its
//! variables have combinations; otherwise the count is exact where terms do not interleave.

use crate::accesses::{Accesses, Constants, Extents, Forms, Term, gcd};
use std::ops::Range;

/// What accesses to one buffer touch of some caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Touched<const N: usize> {
    pub lines: f64,
    /// Sets of each cache that the lines are in: few where they are a power of two apart.
    pub sets: [f64; N],
}

/// Sizes of a buffer, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub element: i64,
    pub all: i64,
}

/// Counts lines of a size, of caches with so many sets.
#[derive(Debug)]
pub(crate) struct Counter<const N: usize> {
    line: i64,
    sets: [i64; N],
    shapes: Shapes,
}

/// The sums of a buffer's accesses while some variables vary, in memory that is used again.
#[derive(Debug, Default)]
struct Shapes {
    /// Distances in bytes and numbers of the values that vary, the nearest first.
    steps: Vec<(i64, i64)>,
    /// Terms that do not vary, and their factors.
    fixed: Vec<(Term, i64)>,
    /// Of each sum its part of both, and the first sum that is alike.
    sums: Vec<Shape>,
    merged: Vec<(i64, i64)>,
}

#[derive(Debug)]
struct Shape {
    steps: Range<usize>,
    fixed: Range<usize>,
    alike: usize,
    /// Whether later ones are like it.
    joined: bool,
}

impl Shapes {
    fn fill(&mut self, accesses: &Accesses, forms: &Forms, extents: &Extents, element: i64) {
        self.steps.clear();
        self.fixed.clear();
        self.sums.clear();
        for (form, _) in accesses.forms() {
            let start = (self.steps.len(), self.fixed.len());
            for (term, factor) in forms.terms(*form) {
                match forms.values(*term, extents) {
                    1 => self.fixed.push((*term, *factor)),
                    n => {
                        let distance = factor.saturating_abs().saturating_mul(element);
                        self.steps.push((distance, n));
                    }
                }
            }
            self.steps[start.0..].sort_unstable();
            let (steps, fixed) = (start.0..self.steps.len(), start.1..self.fixed.len());
            let alike = self.sums.iter().position(|s| {
                self.steps[s.steps.clone()] == self.steps[steps.clone()]
                    && self.fixed[s.fixed.clone()] == self.fixed[fixed.clone()]
            });
            if let Some(first) = alike {
                self.sums[first].joined = true;
            }
            self.sums.push(Shape {
                joined: false,
                steps,
                fixed,
                alike: alike.unwrap_or(self.sums.len()),
            });
        }
    }

    /// The constants of all sums that are like one.
    fn constants(&self, accesses: &Accesses, of: usize) -> Constants {
        let sums = self.sums.iter().zip(accesses.forms());
        let alike = sums.filter(|(s, _)| s.alike == of);
        let all = alike.flat_map(|(_, (_, own))| own.sorted());
        Constants::of(all.copied().collect())
    }
}

impl<const N: usize> Counter<N> {
    pub fn new(line: i64, sets: [i64; N]) -> Counter<N> {
        Counter {
            line: line.max(1),
            sets: sets.map(|s| s.max(1)),
            shapes: Shapes::default(),
        }
    }

    /// What accesses to one buffer touch. Sums of one shape, which differ by constants, are
    /// one group.
    pub fn touched(
        &mut self,
        accesses: &Accesses,
        forms: &Forms,
        extents: &Extents,
        size: Size,
    ) -> Touched<N> {
        let Size { element, all } = size;
        let line = self.line;
        self.shapes.fill(accesses, forms, extents, element);
        let mut merged = std::mem::take(&mut self.shapes.merged);
        let mut sum = 0.0;
        let mut in_sets = [0.0; N];
        for (i, shape) in self.shapes.sums.iter().enumerate() {
            if shape.alike != i {
                continue;
            }
            let joined = shape.joined.then(|| self.shapes.constants(accesses, i));
            let constants = joined.as_ref().unwrap_or(&accesses.forms()[i].1);
            merged.clear();
            merged.extend_from_slice(&self.shapes.steps[shape.steps.clone()]);
            let one = repeated(&merged, element, line);
            let apart = constants.steps().iter();
            merged.extend(apart.map(|(step, n)| (step.saturating_mul(element), *n)));
            merged.sort_unstable();
            sum += repeated(&merged, element, line).min(one * constants.sorted().len() as f64);
            for (reached, sets) in in_sets.iter_mut().zip(self.sets) {
                *reached += reach(&merged, element, line, sets);
            }
        }
        self.shapes.merged = merged;
        let lines = sum.min((all as f64 / line as f64).ceil().max(1.0));
        let mut sets = in_sets;
        for (reached, sets) in sets.iter_mut().zip(self.sets) {
            *reached = reached.min(sets as f64).min(lines);
        }
        Touched { lines, sets }
    }
}

/// Sets that an element reaches which is repeated in steps of some distances, the nearest first.
fn reach(steps: &[(i64, i64)], element: i64, line: i64, sets: i64) -> f64 {
    let span = sets.saturating_mul(line);
    let mut run = element;
    let mut apart = 1.0;
    // The distance between places that the steps so far fall on.
    let mut grid = span;
    for (step, n) in steps {
        if *step <= run.max(line) {
            run = run.saturating_add(step.saturating_mul(n - 1));
        } else {
            // Multiples of the step fall on so many places before they repeat.
            apart *= (*n).min(span / gcd(span, *step).max(1)) as f64;
            grid = gcd(grid, *step);
            apart = f64::min(apart, (span / grid.max(1)) as f64);
        }
    }
    apart * (run as f64 / line as f64).ceil()
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
