//! What a tile costs before anything is measured: cycles by the rates of multiply-adds
//! and loads, and by the bandwidth of the cache that each operand comes from.
//!
//! An operand comes from the smallest cache that holds what is read of it until it is
//! read again. Example: the weights of one panel are read again by the next rows, so they
//! come from the first-level cache if all terms of the panel fit there.

use super::Plan;
use super::copies::PAGE_BYTES;
use super::lanes::Lanes;
use super::order::Order;
use super::surround::{self, Surrounded};
use super::window;
use crate::analysis::{Access, Axis, Class, Dim, Reduction, Stride};
use crate::draft::DecidedPart;
use crate::rates::{EXPOSED, LATENCY, SHARE, STARTS_A_CYCLE, bytes_a_cycle, lines_together};
use crate::templates::registers::wanted_part;
use ir::{CpuTarget, Role};

/// Loads that cost as much as one multiply-add beside the busiest unit: of two tiles that
/// keep the units equally busy, the one with fewer loads is a little faster.
const LOADS: f64 = 16.0;

/// What a tile costs more that may be cut at the end of its axis: tests, or further code.
const CUT: f64 = 1.05;

/// Cycles of one test for a border: an order of magnitude.
const TEST: f64 = 1.0;

/// Tests that take as long as a mask for a vector: its lanes' positions are compared with
/// both ends (an order of magnitude).
const MASK: f64 = 6.0;

/// Cycles that a row of a copy takes beside its vectors, and a vector beside its loads, the
/// tests of its border included: orders of magnitude.
const ROW: f64 = 4.0;
const COPIED: f64 = 4.0;

/// Sizes of a tile: along its axes, and in vectors along the lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileSizes {
    pub rows: Vec<i64>,
    pub vectors: i64,
}

/// What decides the costs of the tiles of a sketch.
#[derive(Clone, Debug)]
pub struct TileCost {
    facts: Reduction,
    lanes: Lanes,
    order: Order,
    target: CpuTarget,
    /// Axes of a tile beside the lanes, by position.
    axes: Vec<usize>,
    surrounded: Vec<Surrounded>,
}

/// A copy of an operand that is made in a loop over tiles.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    /// How many of the loops over tiles are outside it.
    pub depth: usize,
    /// Of one call.
    cycles: f64,
}

/// A tile whose sizes are decided by a point.
#[derive(Clone, Debug)]
pub struct DecidedTile {
    pub cost: TileCost,
    pub rows: Vec<DecidedPart>,
    pub vectors: DecidedPart,
    /// The decided number for each vector.
    pub unit: i64,
}

impl DecidedTile {
    /// Predicted cycles of one call where decided numbers are so.
    pub fn cycles(&self, decided: impl Fn(DecidedPart) -> i64) -> f64 {
        let sizes = TileSizes {
            rows: self.rows.iter().map(|r| decided(*r)).collect(),
            vectors: decided(self.vectors) / self.unit,
        };
        let TileCost { facts, lanes, .. } = &self.cost;
        self.cost.cycles(&sizes) * facts.points() as f64 / lanes.width as f64
    }
}

impl TileCost {
    pub(super) fn new(plan: &Plan, lanes: &Lanes, axes: &[usize]) -> TileCost {
        TileCost {
            facts: plan.facts.clone(),
            lanes: lanes.clone(),
            order: plan.order,
            target: plan.target.clone(),
            axes: axes.to_vec(),
            surrounded: plan.surrounded.clone(),
        }
    }

    /// The axes of a tile with its sizes along them.
    fn along<'a>(&'a self, s: &'a TileSizes) -> impl DoubleEndedIterator<Item = (usize, i64)> {
        self.axes.iter().copied().zip(s.rows.iter().copied())
    }

    /// Predicted cycles of a tile for each vector of products that is wanted.
    pub fn cycles(&self, s: &TileSizes) -> f64 {
        let facts = &self.facts;
        let lanes = &self.lanes;
        if facts.operands.len() == 1 {
            return window::cycles(facts, lanes, &self.axes, &self.target, s);
        }
        let tile = self.tile(s);
        let sums = facts.axes.iter().filter(|a| a.class == Class::Reduction);
        let terms = sums.map(|a| a.extent).product::<i64>() as f64;
        let products = (s.rows.iter().product::<i64>() * s.vectors) as f64;
        let loads: f64 = facts.operands.iter().map(|o| self.loads(s, o)).sum();
        let starts = STARTS_A_CYCLE as f64;
        let busy = products.max(loads) / starts;
        let busy = busy.max(LATENCY as f64) + self.tests(s) * TEST;
        let operands = facts.operands.iter();
        let moved: f64 = operands.map(|o| self.transfer(o, &tile)).sum();
        let crowded = facts.operands.iter().enumerate();
        let crowded = crowded.map(|(i, o)| self.crowded(s, (i, o))).sum::<f64>() * terms;
        let moved = moved + crowded;
        let part = |(at, n): (usize, i64)| wanted_part(facts.axes[at].extent, n);
        let of_rows: f64 = self.along(s).map(part).product();
        let cut = |(at, n): (usize, i64)| facts.axes[at].extent % n != 0;
        let slowed = if self.along(s).any(cut) { CUT } else { 1.0 };
        let wanted = of_rows * wanted_part(lanes.extent, s.vectors * lanes.width) / slowed;
        let anywhere = |_: usize| true;
        let copies = self.surrounded.iter();
        let copied: f64 = copies.map(|c| self.copying(s, c, &anywhere).cycles).sum();
        let vectors = facts.points() as f64 / lanes.width as f64;
        let all = (busy + loads / LOADS) * terms + moved * EXPOSED;
        all * self.inside(s) / (products * terms * wanted) + copied / vectors
    }

    /// The cheapest place for a copy of an operand, of those that are `allowed`: fewer loops
    /// outside copy less in all, more of them keep the copy in a near cache.
    pub fn copying(
        &self,
        s: &TileSizes,
        copy: &Surrounded,
        allowed: &dyn Fn(usize) -> bool,
    ) -> Copying {
        let facts = &self.facts;
        let o = &facts.operands[copy.operand];
        let tile = self.tile(s);
        let mut outer: Vec<usize> = facts.spatial().collect();
        outer.sort_by_key(|at| (self.order.rank(facts, &self.lanes, *at), *at));
        let mut inside: Vec<i64> = facts.axes.iter().map(|a| a.extent).collect();
        let mut times = 1.0;
        let mut best = Copying {
            depth: 0,
            cycles: f64::INFINITY,
        };
        for depth in 0..=outer.len() {
            if depth > 0 {
                let at = outer[depth - 1];
                times *= ((inside[at] + tile[at] - 1) / tile[at]) as f64;
                inside[at] = tile[at];
            }
            let cycles = times * self.copy_cycles(o, copy, &inside);
            if allowed(depth) && cycles < best.cycles {
                best = Copying { depth, cycles };
            }
        }
        best
    }

    /// Cycles to copy what a box of iterations reads, and to read it back once.
    fn copy_cycles(&self, o: &Access, copy: &Surrounded, inside: &[i64]) -> f64 {
        let spans = self.facts.spans(o, inside);
        let elements: i64 = spans.iter().product();
        let last = spans.last().copied().unwrap_or(1);
        let vectors = (last + self.lanes.width - 1) / self.lanes.width;
        let loads = match copy.contiguous {
            true => copy.stride,
            false => self.lanes.width,
        };
        let row = ROW + vectors as f64 * (COPIED + loads as f64);
        let bytes = (elements * o.element_bytes) as f64;
        let far = match bytes <= SHARE * self.target.l1_bytes as f64 {
            true => 0.0,
            false => bytes / bytes_a_cycle(bytes, SHARE, &self.target),
        };
        (elements / last.max(1)) as f64 * row + 2.0 * far * EXPOSED
    }

    /// Iterations of each axis in a tile; of terms all.
    fn tile(&self, s: &TileSizes) -> Vec<i64> {
        let whole = |a: &Axis| match a.class {
            Class::Reduction => a.extent,
            _ => 1,
        };
        let mut tile: Vec<i64> = self.facts.axes.iter().map(whole).collect();
        for (at, n) in self.along(s) {
            tile[at] = n;
        }
        tile[self.lanes.at] = (s.vectors * self.lanes.width).min(self.lanes.extent);
        tile
    }

    /// The part of the terms that are inside their operand along the axes of which a tile has
    /// one row: that row is tested outside the terms, and those beyond the border are skipped.
    fn inside(&self, s: &TileSizes) -> f64 {
        let facts = &self.facts;
        let several = |at: &usize| self.along(s).any(|(a, n)| a == *at && n > 1);
        let alone = facts
            .spatial()
            .filter(|at| *at != self.lanes.at && !several(at));
        let inside = alone.filter(|at| facts.is_guarded(*at)).map(|at| {
            let (over, taps) = (over_border(facts, at), taps(facts, at));
            // Example: windows of five lack two terms in the first row, and one in the next.
            let first = ((taps - 1) / 2).min(beyond(facts, at));
            let lacking = (first * (over + 1)) as f64;
            1.0 - lacking / (facts.axes[at].extent * taps).max(1) as f64
        });
        inside.map(|part| part.max(0.5)).product()
    }

    /// Tests for borders in a tile for one term. One row alone is tested outside the terms.
    /// Of several rows each is tested, except along an axis that is whole, or separated into
    /// its interior and its ends: there only those that windows reach over the border from.
    /// Rows along the axes further inside are tested for every one of these.
    fn tests(&self, s: &TileSizes) -> f64 {
        let facts = &self.facts;
        let guarded = |at: usize| facts.is_guarded(at);
        let innermost = self.axes.iter().copied().rev().find(|at| guarded(*at));
        let (mut all, mut times) = (0.0, 1.0);
        for (at, n) in self.along(s) {
            let tiles = (facts.axes[at].extent + n - 1) / n;
            // The ends of long windows are code of their own, in which tests are constants.
            let none = tiles == 1 && !long_windows(facts, at).is_empty();
            if n > 1 && guarded(at) && !none {
                let ends = 2 * over_border(facts, at).min(n);
                let ends = ends.min(n * tiles) as f64 / tiles as f64;
                let some = tiles == 1 || Some(at) == innermost;
                all += times * if some { ends } else { n as f64 };
            }
            times *= n as f64;
        }
        all + self.masks(s)
    }

    /// The cost of masks, in tests: vectors are loaded under one at the ends of a row. Where
    /// one tile is the whole row the masks are constants.
    fn masks(&self, s: &TileSizes) -> f64 {
        let lanes = &self.lanes;
        let tile = s.vectors * lanes.width;
        let share = match (lanes.extent + tile - 1) / tile {
            1 => return 0.0,
            tiles => (2.0 / tiles as f64).min(1.0),
        };
        let guarded = self.facts.operands.iter().filter(|o| o.guards[lanes.at]);
        let vectors = guarded.map(|o| {
            let used = self.along(s).filter(|(at, _)| o.strides[*at].is_used());
            used.map(|(_, n)| n).product::<i64>() * s.vectors
        });
        vectors.sum::<i64>() as f64 * share * MASK
    }

    /// Whether a tile reads lines of an operand from memory that fit in the first-level cache
    /// together, and other lines once it has all terms of some. One miss after the other is
    /// waited for then, unless some terms of all lines come first.
    /// `conv2d_transpose` of 8 x 96 images of 112 x 112 to 16 maps takes 5.3 ms if lines are
    /// read to their end, and 2.5 ms otherwise (Zen 5, LLVM 22.1.8).
    pub fn waits_for_lines(&self, s: &TileSizes) -> bool {
        let facts = &self.facts;
        let terms = || {
            let axes = facts.axes.iter().enumerate();
            axes.filter(|(_, a)| a.class == Class::Reduction && a.extent > 1)
        };
        let Some((last, _)) = terms().next_back() else {
            return false;
        };
        let whole: Vec<i64> = facts.axes.iter().map(|a| a.extent).collect();
        let bytes = |o: &Access, box_: &[i64]| (facts.footprint(o, box_) * o.element_bytes) as u64;
        let far = |o: &Access, at: usize| match o.strides[at] {
            Stride::Elements(n) => n.abs() * o.element_bytes >= PAGE_BYTES,
            Stride::Unknown => false,
        };
        let waits = |(i, o): (usize, &Access)| {
            o.role == Role::Input
                && !self.lanes.copied.contains(&i)
                && o.strides[self.lanes.at] == Stride::Elements(0)
                && o.strides[last] == Stride::Elements(1)
                && terms().any(|(at, _)| far(o, at))
                && bytes(o, &whole) > self.target.llc_bytes
                && bytes(o, &self.tile(s)) <= self.target.l1_bytes / 2
        };
        let guarded = (0..facts.axes.len()).any(|at| facts.is_guarded(at));
        !guarded && facts.operands.iter().enumerate().any(waits)
    }

    /// Loads of an operand for one term.
    fn loads(&self, s: &TileSizes, o: &Access) -> f64 {
        let lanes = &self.lanes;
        let used = self.along(s).filter(|(at, _)| o.strides[*at].is_used());
        let count: i64 = used.map(|(_, n)| n).product();
        let vectors = s.vectors as f64;
        let each = match o.strides[lanes.at] {
            Stride::Elements(0) => 1.0,
            // A window moves off the lines of the cache: a wide load takes two of them.
            Stride::Elements(1) if surround::is_window_along(&self.facts, o, lanes.at) => {
                1.5 * vectors
            }
            // A vector of a few loads is shuffled, and windows do not align it.
            Stride::Elements(n) if n > 1 && lanes.packed.is_empty() => {
                (n.min(lanes.width) as f64 * 1.5 + 1.0) * vectors
            }
            _ => vectors,
        };
        count as f64 * each
    }

    /// Cycles for one term in which lines come again from the second-level cache: the rows
    /// of the tile read an operand along lines of their own, and these push each other out
    /// of their sets before the next terms are read.
    fn crowded(&self, s: &TileSizes, (at, o): (usize, &Access)) -> f64 {
        let facts = &self.facts;
        let packed = o.role == Role::Constant || self.lanes.copied.contains(&at);
        let next = |at: usize| {
            facts.axes[at].class == Class::Reduction && o.strides[at] == Stride::Elements(1)
        };
        let along_terms = (0..facts.axes.len()).any(next);
        if packed || !along_terms || o.strides[self.lanes.at].is_used() {
            return 0.0;
        }
        let used = || self.along(s).filter(|(at, _)| o.strides[*at].is_used());
        let lines: i64 = used().map(|(_, n)| n).product();
        let apart = used().filter(|(_, n)| *n > 1).map(|(at, _)| o.strides[at]);
        let together = apart.map(|stride| match stride {
            Stride::Elements(n) => lines_together(n * o.element_bytes, &self.target),
            Stride::Unknown => lines,
        });
        if lines <= together.min().unwrap_or(lines) {
            return 0.0;
        }
        let bytes = lines as f64 * self.target.cache_line_bytes as f64;
        bytes / bytes_a_cycle(0.0, SHARE, &self.target)
    }

    /// Cycles in which all terms' part of an operand comes from where it is.
    fn transfer(&self, o: &Access, tile: &[i64]) -> f64 {
        let facts = &self.facts;
        let bytes = |box_: &[i64]| (facts.footprint(o, box_) * o.element_bytes) as f64;
        // The loop directly round the tile; what does not use it is read again at once.
        let passes = |at: &usize| facts.axes[*at].extent > tile[*at];
        let rank = |at: &usize| (self.order.rank(facts, &self.lanes, *at), *at);
        let innermost = facts.spatial().filter(passes).max_by_key(rank);
        let mut until = tile.to_vec();
        if let Some(at) = innermost.filter(|at| o.strides[*at].is_used()) {
            until[at] = facts.axes[at].extent;
        }
        let held = bytes(&until);
        if held <= SHARE * self.target.l1_bytes as f64 {
            return 0.0;
        }
        bytes(tile) / bytes_a_cycle(held, SHARE, &self.target)
    }
}

/// Terms that windows have along an axis.
fn taps(facts: &Reduction, at: usize) -> i64 {
    let used = facts.operands.iter().filter(|o| o.guards[at]);
    let dims = used.flat_map(|o| &o.dims).filter(|d| d.steps[at].is_used());
    let terms = dims.map(|d| {
        let axes = facts.axes.iter().zip(&d.steps);
        let terms = axes.filter(|(a, step)| a.class == Class::Reduction && step.is_used());
        terms.map(|(a, _)| a.extent).product()
    });
    terms.max().unwrap_or(1)
}

/// The axes of terms that are much longer than an axis of results with whose iterations they make
/// a guarded index. Example: the pixels of an image for the 3 x 3 gradients of its weights.
fn long_windows(facts: &Reduction, at: usize) -> Vec<usize> {
    let guarded = facts.operands.iter().filter(|o| o.guards[at]);
    let dims = guarded.flat_map(|o| &o.dims);
    let dims: Vec<&Dim> = dims.filter(|d| d.steps[at].is_used()).collect();
    let is_long = |(t, axis): &(usize, &Axis)| {
        let of_window = dims.iter().any(|d| d.steps[*t].is_used());
        axis.class == Class::Reduction && axis.extent > 2 * facts.axes[at].extent && of_window
    };
    let all = facts.axes.iter().enumerate();
    all.filter(is_long).map(|(t, _)| t).collect()
}

/// The same along all axes of the results of products.
pub fn all_long_windows(facts: &Reduction) -> Vec<usize> {
    match facts.operands.len() {
        1 => Vec::new(),
        _ => facts
            .spatial()
            .flat_map(|at| long_windows(facts, at))
            .collect(),
    }
}

/// How many iterations of an axis windows reach over a border, about: half of what the
/// other loops of an index add, and no more than what all of them leave out of the buffer.
fn over_border(facts: &Reduction, at: usize) -> i64 {
    let used = facts.operands.iter().filter(|o| o.guards[at]);
    let dims = used.flat_map(|o| &o.dims).filter(|d| d.steps[at].is_used());
    let sides = dims.map(|d| match d.steps[at] {
        Stride::Elements(step) => half(elements_beyond(facts, d, at), step.abs().max(1)),
        Stride::Unknown => facts.axes[at].extent,
    });
    sides.max().unwrap_or(0)
}

/// The same in elements along the dimension of the window.
fn beyond(facts: &Reduction, at: usize) -> i64 {
    let used = facts.operands.iter().filter(|o| o.guards[at]);
    let dims = used.flat_map(|o| &o.dims).filter(|d| d.steps[at].is_used());
    let sides = dims.map(|d| half(elements_beyond(facts, d, at), 1));
    sides.max().unwrap_or(0)
}

/// Elements that the windows along an axis reach over both borders, about.
fn elements_beyond(facts: &Reduction, d: &Dim, at: usize) -> i64 {
    let reach = |(step, axis): (&Stride, &Axis)| match step {
        Stride::Elements(n) => n.abs() * (axis.extent - 1),
        Stride::Unknown => d.remainder.unwrap_or(1) - 1,
    };
    let reach = |i: usize| reach((&d.steps[i], &facts.axes[i]));
    let others: i64 = (0..facts.axes.len()).filter(|i| *i != at).map(reach).sum();
    others.min(others + reach(at) + 1 - d.size).max(0)
}

fn half(elements: i64, step: i64) -> i64 {
    (elements + 2 * step - 1) / (2 * step)
}
