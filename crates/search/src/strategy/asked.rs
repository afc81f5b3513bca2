//! What a strategy has asked for, so that no point is asked for twice.

use crate::space::{Point, Space};
use rand::Rng;
use std::collections::{HashSet, VecDeque};

/// Random draws after which the points of a small space are gone through one by one.
const DRAWS: usize = 200;
/// Most points of a sketch that are gone through.
const SMALL: u64 = 1 << 16;

#[derive(Clone, Debug, Default)]
pub struct Asked(HashSet<Point>);

impl Asked {
    /// The point, if it is within the limits and new.
    pub fn take(&mut self, space: &Space, p: Point) -> Option<Point> {
        let new = space.within_limits(&p) && self.0.insert(p.clone());
        new.then_some(p)
    }

    /// Whether the point was not asked for.
    pub fn is_new(&self, p: &Point) -> bool {
        !self.0.contains(p)
    }

    /// A random point that is new; none where the space seems exhausted, which is certain of small
    /// spaces.
    pub fn fresh(&mut self, space: &Space, rng: &mut impl Rng) -> Option<Point> {
        let drawn = (0..DRAWS).find_map(|_| self.take(space, space.sample(rng)));
        drawn.or_else(|| self.left(space, rng))
    }

    /// Fills `out` up to `n` points with what is planned, one in so many with a random point instead if a number is given; with
    /// random points where the plan has no new one.
    pub fn fill(
        &mut self,
        out: &mut Vec<Point>,
        n: usize,
        plan: &mut VecDeque<Point>,
        random_one_in: impl Into<Option<u32>>,
        (space, rng): (&Space, &mut impl Rng),
    ) {
        let random_one_in = random_one_in.into();
        while out.len() < n {
            let random = random_one_in.is_some_and(|many| rng.random_ratio(1, many));
            let planned = if random { None } else { plan.pop_front() };
            let new = planned.and_then(|p| self.take(space, p));
            match new.or_else(|| self.fresh(space, rng)) {
                Some(p) => out.push(p),
                None => break,
            }
        }
    }

    /// A new point of a small sketch, from a random place on.
    fn left(&mut self, space: &Space, rng: &mut impl Rng) -> Option<Point> {
        let first = rng.random_range(0..space.sketches.len());
        let sketches = (first..space.sketches.len()).chain(0..first);
        for sketch in sketches {
            let size = space.sketches[sketch].cardinality();
            if size > SMALL {
                continue;
            }
            let begin = rng.random_range(0..size.max(1));
            let found = (begin..size)
                .chain(0..begin)
                .find_map(|index| self.take(space, space.at(sketch, index)));
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
