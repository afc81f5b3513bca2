//! How the element offsets of an access vary over the lanes of its statement.
//!
//! Promises that what is recorded holds for every run of the statement. Which
//! instructions an access becomes is left to the code generator.

use super::Lane;
use ir::affine::{Affine, Ranges, bounds};
use ir::interpret::{Scalar, evaluate};
use ir::{BinaryOp, Expr, ExprKind, VarId};
use std::ops::Range;

/// Where the lanes of one access lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneOffsets {
    /// All lanes access one element, or the statement has no lanes.
    Uniform,
    /// The offset is affine in the lane with factor 1 (`lane_parts`).
    Consecutive,
    /// The distances between the lanes' elements are constants.
    Pattern(LanePattern),
    /// Nothing is known before the statement runs.
    Arbitrary,
}

/// Lane `i` accesses element `base + distances[i]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanePattern {
    /// The same for all lanes; without a constant term.
    pub base: Expr,
    pub distances: Vec<i64>,
    /// Distances from the base that lie in the buffer whenever the access is
    /// evaluated, also where a mask leaves lanes out. They include those of all
    /// lanes. Accesses whose constants differ by less than the step of the
    /// distances have the same range, so that they can share loads. `None` if the
    /// ranges of the loops do not prove that.
    pub readable: Option<Range<i64>>,
    /// Distances from the base that lie in the buffer wherever the element of one lane
    /// does: those of an aligned block that holds all lanes, where the buffer is such
    /// blocks. `None` if no block of at most the number of lanes holds them.
    pub block: Option<Range<i64>>,
}

impl LanePattern {
    /// From the smallest distance to the largest. The elements between lie in the
    /// buffer if no lane is left out.
    pub fn span(&self) -> Range<i64> {
        let (low, high) = self.extremes();
        low..high + 1
    }

    fn extremes(&self) -> (i64, i64) {
        let all = || self.distances.iter().copied();
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }

    /// The range that `block` may be, in a buffer of `elements` elements.
    fn aligned_block(&self, elements: i64) -> Option<Range<i64>> {
        let (low, high) = self.extremes();
        let size = self.distances.len() as i64;
        let first = low.div_euclid(size) * size;
        let single = high < first.checked_add(size)?;
        let aligned = elements % size == 0 && is_multiple(&self.base, size);
        (single && aligned).then_some(first..first + size)
    }

    /// The range that `readable` may be, if `elements` elements have it.
    fn proven(&self, elements: i64, ranges: &Ranges) -> Option<Range<i64>> {
        let base = bounds(&self.base, ranges)?;
        let (low, high) = self.extremes();
        let step = self
            .distances
            .iter()
            .fold(0, |g, d| gcd(g, d.wrapping_sub(low)))
            .max(1);
        let first = low.div_euclid(step) * step;
        let end = high.div_euclid(step) * step + step;
        let wider = [first..end, first..high + 1, low..high + 1];
        wider.into_iter().find(|r| {
            let from = base.lo.checked_add(r.start);
            let to = base.hi.checked_add(r.end);
            from.is_some_and(|f| f >= 0) && to.is_some_and(|t| t <= elements)
        })
    }
}

impl LaneOffsets {
    /// Of an access at `offset` in a buffer of so many elements, where the
    /// variables of `ranges` have these ranges.
    pub fn of(offset: &Expr, lane: Option<Lane>, elements: i64, ranges: &Ranges) -> LaneOffsets {
        let Some(lane) = lane.filter(|l| offset.uses_var(l.var)) else {
            return LaneOffsets::Uniform;
        };
        if lane_stride(offset, lane.var) == Some(1) {
            return LaneOffsets::Consecutive;
        }
        let Some(Parts { base, distances }) = parts(offset, lane) else {
            return LaneOffsets::Arbitrary;
        };
        let mut pattern = LanePattern {
            base: base.unwrap_or(Expr::int(0)),
            distances,
            readable: None,
            block: None,
        };
        pattern.readable = pattern.proven(elements, ranges);
        pattern.block = pattern.aligned_block(elements);
        LaneOffsets::Pattern(pattern)
    }
}

/// The stride that [`lane_parts`] gives.
fn lane_stride(e: &Expr, lane: VarId) -> Option<i64> {
    if !e.uses_var(lane) {
        return Some(0);
    }
    match e.kind() {
        ExprKind::Var(_) => Some(1),
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            Some(lane_stride(a, lane)? + lane_stride(b, lane)?)
        }
        ExprKind::Binary(BinaryOp::Sub, a, b) => {
            Some(lane_stride(a, lane)? - lane_stride(b, lane)?)
        }
        ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
            (Some(k), _) => Some(lane_stride(b, lane)? * k),
            (_, Some(k)) => Some(lane_stride(a, lane)? * k),
            _ => None,
        },
        _ => None,
    }
}

/// Splits an offset into its value at lane 0 and its stride per lane; `None`
/// if it is not affine in the lane variable.
pub fn lane_parts(e: &Expr, lane: VarId) -> Option<(Expr, i64)> {
    if !e.uses_var(lane) {
        return Some((e.clone(), 0));
    }
    match e.kind() {
        ExprKind::Var(v) if *v == lane => Some((Expr::int(0), 1)),
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            let ((a, sa), (b, sb)) = (lane_parts(a, lane)?, lane_parts(b, lane)?);
            let base = match (a.as_int(), b.as_int()) {
                (Some(0), _) => b,
                (_, Some(0)) => a,
                _ => a + b,
            };
            Some((base, sa + sb))
        }
        ExprKind::Binary(BinaryOp::Sub, a, b) => {
            let ((a, sa), (b, sb)) = (lane_parts(a, lane)?, lane_parts(b, lane)?);
            Some((if b.as_int() == Some(0) { a } else { a - b }, sa - sb))
        }
        ExprKind::Binary(BinaryOp::Mul, a, b) => {
            let (factor, e) = match (a.as_int(), b.as_int()) {
                (Some(k), _) => (k, b),
                (_, Some(k)) => (k, a),
                _ => return None,
            };
            let (base, stride) = lane_parts(e, lane)?;
            let base = match base.as_int() {
                Some(v) => Expr::int(v * factor),
                None => base * factor,
            };
            Some((base, stride * factor))
        }
        _ => None,
    }
}

/// Whether every value of an index is a multiple of `of`, as far as its form says.
fn is_multiple(e: &Expr, of: i64) -> bool {
    if let Some(value) = e.as_int() {
        return value % of == 0;
    }
    match e.kind() {
        ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => {
            is_multiple(a, of) && is_multiple(b, of)
        }
        ExprKind::Binary(BinaryOp::Mul, a, b) => is_multiple(a, of) || is_multiple(b, of),
        _ => false,
    }
}

/// Of numbers that are not negative.
fn gcd(a: i64, b: i64) -> i64 {
    match b {
        0 => a,
        _ => gcd(b, a.wrapping_rem(b)),
    }
}

/// A sum of what is the same for all lanes and a constant for each.
struct Parts {
    base: Option<Expr>,
    distances: Vec<i64>,
}

fn parts(e: &Expr, lane: Lane) -> Option<Parts> {
    let lanes = lane.lanes as usize;
    if let Some(constant) = e.as_int() {
        let distances = vec![constant; lanes];
        return Some(Parts {
            base: None,
            distances,
        });
    }
    if !e.uses_var(lane.var) {
        return Some(Parts {
            base: Some(e.clone()),
            distances: vec![0; lanes],
        });
    }
    if e.vars() == [lane.var] {
        return of_lane_alone(e, lane);
    }
    let ExprKind::Binary(op, a, b) = e.kind() else {
        return None;
    };
    let (a, b) = (parts(a, lane)?, parts(b, lane)?);
    match op {
        BinaryOp::Add => a.with(b, |a, b| a + b, i64::checked_add),
        BinaryOp::Sub => a.with(b, |a, b| a - b, i64::checked_sub),
        BinaryOp::Mul => match (a.constant(), b.constant()) {
            (Some(k), _) => b.scaled(k),
            (_, Some(k)) => a.scaled(k),
            _ => None,
        },
        _ => None,
    }
}

fn of_lane_alone(e: &Expr, lane: Lane) -> Option<Parts> {
    if let Some(sum) = Affine::of(e) {
        let step = sum.coefficient(lane.var);
        let at = |i: u32| sum.constant.wrapping_add(step.wrapping_mul(i64::from(i)));
        return Some(Parts {
            base: None,
            distances: (0..lane.lanes).map(at).collect(),
        });
    }
    let at = |i: u32| match evaluate(e, &|_: VarId| i64::from(i)) {
        Ok(Scalar::I(v)) => Some(v),
        _ => None,
    };
    Some(Parts {
        base: None,
        distances: (0..lane.lanes).map(at).collect::<Option<_>>()?,
    })
}

impl Parts {
    fn constant(&self) -> Option<i64> {
        let first = *self.distances.first()?;
        let same = self.base.is_none() && self.distances.iter().all(|d| *d == first);
        same.then_some(first)
    }

    fn scaled(self, k: i64) -> Option<Parts> {
        let distances = self.distances.iter().map(|d| d.checked_mul(k));
        Some(Parts {
            distances: distances.collect::<Option<_>>()?,
            base: self.base.map(|b| b * k),
        })
    }

    fn with(
        self,
        other: Parts,
        bases: impl Fn(Expr, Expr) -> Expr,
        each: impl Fn(i64, i64) -> Option<i64>,
    ) -> Option<Parts> {
        let pairs = self.distances.iter().zip(&other.distances);
        let distances = pairs.map(|(a, b)| each(*a, *b)).collect::<Option<_>>()?;
        let base = match (self.base, other.base) {
            (a, None) => a,
            (None, Some(b)) => Some(bases(Expr::int(0), b)),
            (Some(a), Some(b)) => Some(bases(a, b)),
        };
        Some(Parts { base, distances })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Lane = Lane {
        var: VarId(0),
        lanes: 8,
    };

    fn lane() -> Expr {
        Expr::var(LANE.var)
    }

    /// An outer variable in `0..4`.
    fn outer() -> Expr {
        Expr::var(VarId(1))
    }

    fn of(offset: &Expr, elements: i64) -> LaneOffsets {
        let mut ranges = Ranges::new();
        ranges.set_extent(VarId(1), 4);
        LaneOffsets::of(offset, Some(LANE), elements, &ranges)
    }

    fn pattern(offset: &Expr, elements: i64) -> LanePattern {
        match of(offset, elements) {
            LaneOffsets::Pattern(p) => p,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn offsets_are_told_apart() {
        let any = 1000;
        assert_eq!(of(&(outer() * 8 + 3), any), LaneOffsets::Uniform);
        assert_eq!(of(&(outer() * 8 + lane()), any), LaneOffsets::Consecutive);
        let blocks = outer().floor_div(2) * 8 + lane();
        assert_eq!(of(&blocks, any), LaneOffsets::Consecutive);
        assert_eq!(of(&(outer() * lane()), any), LaneOffsets::Arbitrary);
        let crossing = (outer() + lane()).floor_div(4);
        assert_eq!(of(&crossing, any), LaneOffsets::Arbitrary);
        let indirect = Expr::load(ir::BufferId(0), [lane()]);
        assert_eq!(of(&indirect, any), LaneOffsets::Arbitrary);
    }

    #[test]
    fn distances_hold_the_constant_and_scale() {
        let p = pattern(&((outer() + lane().floor_div(4) * 2 - 1) * 3), 1000);
        assert_eq!(p.base, outer() * 3);
        assert_eq!(p.distances, [-3, -3, -3, -3, 3, 3, 3, 3]);
        let p = pattern(&(lane().floor_mod(4) + 5), 1000);
        assert_eq!(p.distances, [5, 6, 7, 8, 5, 6, 7, 8]);
        assert_eq!(p.span(), 5..9);
    }

    #[test]
    fn taps_of_one_step_share_what_is_readable_as_far_as_the_buffer_goes() {
        // Elements up to 3 * 16 + 14 + tap.
        let tap = |tap: i64, elements: i64| pattern(&(outer() * 16 + lane() * 2 + tap), elements);
        assert_eq!(tap(0, 64).readable, Some(0..16));
        assert_eq!(tap(1, 64).readable, Some(0..16));
        assert_eq!(tap(2, 66).readable, Some(2..18));
        assert_eq!(tap(2, 65).readable, Some(2..17));
        assert_eq!(tap(0, 63).readable, Some(0..15));
        assert_eq!(tap(0, 62).readable, None);
        assert_eq!(tap(-1, 64).readable, None);
    }

    #[test]
    fn lanes_of_one_block_may_read_all_of_it_where_the_buffer_is_blocks() {
        let in_groups = |tap: i64, step: i64| outer() * step + lane().floor_div(4) * 4 + tap;
        let block = |offset: Expr, elements: i64| pattern(&offset, elements).block;
        assert_eq!(block(in_groups(1, 8), 32), Some(0..8));
        assert_eq!(block(in_groups(-7, 16), 64), Some(-8..0));
        // The lanes straddle blocks, blocks begin anywhere, or the last one is cut.
        assert_eq!(block(in_groups(4, 8), 32), None);
        assert_eq!(block(in_groups(1, 4), 32), None);
        assert_eq!(block(in_groups(1, 8), 30), None);
    }
}
