//! Regions: which box of a buffer a piece of a program touches.
//!
//! A region is one interval per dimension: a start over the variables of the
//! loops *outside* the piece, and a constant extent. It is always sound: every
//! element that an access can touch lies inside, wherever the start may lie
//! relative to the buffer (a guarded access may reach over its border). It is
//! exact for sums of distinct variables and for quotients and remainders that
//! stay intervals; what cannot be analysed (an index that is itself loaded)
//! gives the whole dimension. Owns no legality: callers decide what a region
//! means for them.

use crate::affine::{Ranges, bounds};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::{Block, BlockId, BufferId, LoopId, Node, Program, VarId};
use crate::simplify::simplify;

/// The interval `min ..= min + extent - 1` of one dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionDim {
    /// Simplified, over the variables of free loops.
    pub min: Expr,
    /// At least 1.
    pub extent: i64,
}

/// A box of a buffer, one interval per dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub dims: Vec<RegionDim>,
}

/// Which accesses of a block count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads; a reduction's read-back of its accumulator is not one.
    Reads,
    Writes,
    Both,
}

impl Access {
    fn reads(self) -> bool {
        self != Access::Writes
    }

    fn writes(self) -> bool {
        self != Access::Reads
    }
}

impl Region {
    pub fn extents(&self) -> Vec<i64> {
        self.dims.iter().map(|d| d.extent).collect()
    }

    /// Elements of the box.
    pub fn volume(&self) -> i64 {
        self.dims
            .iter()
            .fold(1, |n, d| i64::saturating_mul(n, d.extent))
    }
}

/// Ranges of every loop variable of the body, and of every iteration variable
/// (tensor ones too) of its blocks.
pub fn program_ranges(program: &Program) -> Ranges {
    let mut r = Ranges::with_capacity(program.var_count());
    program.walk(&program.body, &mut |n, _| add_ranges(program, n, &mut r));
    r
}

fn add_ranges(program: &Program, node: Node, r: &mut Ranges) {
    match node {
        Node::Loop(l) => {
            let l = program.loop_(l);
            r.set(l.var, 0, l.extent - 1);
        }
        Node::Block(b) => {
            let block = program.block(b);
            for i in &block.iters {
                r.set(i.var, 0, i.extent - 1);
            }
            for (v, extent, _) in block.tensor.iter().flat_map(|t| &t.iters) {
                r.set(*v, 0, extent - 1);
            }
        }
    }
}

/// The hull of what the blocks under `nodes` access of `buffer`, with the
/// variables of the `free` loops kept as symbols and every other loop relaxed
/// over its extent; `None` if they do not access it at all.
///
/// A dimension never extends over more than the buffer's own. Predicates and
/// conditions of selects are not used to shrink it, so a start may be negative
/// and an end may lie beyond the buffer where the access itself is guarded.
pub fn accessed(
    program: &Program,
    nodes: &[Node],
    buffer: BufferId,
    free: &[LoopId],
    access: Access,
) -> Option<Region> {
    let mut r = program_ranges(program);
    program.walk(nodes, &mut |n, _| add_ranges(program, n, &mut r));
    let mut kept = Vec::new();
    for l in free {
        add_ranges(program, Node::Loop(*l), &mut r);
        kept.push(program.loop_(*l).var);
    }
    let relaxed = |v: VarId| !kept.contains(&v);
    let shape = &program.buffer(buffer).shape;
    let mut hulls: Vec<Option<RegionDim>> = Vec::new();
    let mut found = false;
    for b in program.blocks_under(nodes) {
        for indices in block_accesses(program.block(b), buffer, access) {
            let dims = indices
                .iter()
                .map(|i| index_span(program, b, i, &relaxed, &r));
            hulls = if found {
                let both = hulls.into_iter().zip(dims);
                both.map(|(a, b)| hull(&a?, &b?, &r)).collect()
            } else {
                dims.collect()
            };
            found = true;
        }
    }
    if !found {
        return None;
    }
    let dims = hulls.into_iter().zip(shape);
    Some(Region {
        dims: dims.map(|(d, size)| clamp(d, *size)).collect(),
    })
}

/// The index lists with which a block accesses a buffer, over its iteration variables.
pub fn block_accesses(block: &Block, buffer: BufferId, access: Access) -> Vec<Vec<Expr>> {
    let mut out = Vec::new();
    if access.reads() {
        for e in block.statement() {
            e.visit_loads(&mut |b, indices| {
                if b == buffer {
                    out.push(indices.to_vec());
                }
            });
        }
    }
    if access.writes() {
        let writes = block.writes.iter().filter(|w| w.buffer == buffer);
        out.extend(writes.map(|w| w.indices.clone()));
    }
    out
}

/// An expression over a block's iteration variables as one over loop (and
/// tensor) variables: its bindings put in.
pub fn bound(block: &Block, e: &Expr) -> Expr {
    e.substitute(&|v| {
        let iter = block.iters.iter().find(|i| i.var == v);
        iter.map(|i| i.binding.clone())
    })
}

/// The interval of one index of a block, by its bindings or by its domain,
/// whichever is smaller.
fn index_span(
    program: &Program,
    block: BlockId,
    index: &Expr,
    relaxed: &impl Fn(VarId) -> bool,
    r: &Ranges,
) -> Option<RegionDim> {
    let by_binding = span(&bound(program.block(block), index), relaxed, r);
    let by_domain = bounds(index, r).map(|i| constant_span(i.lo, i.hi));
    match (by_binding, by_domain) {
        (Some(a), Some(b)) if b.extent < a.extent => Some(b),
        (Some(a), _) => Some(a),
        (None, b) => b,
    }
}

fn constant_span(lo: i64, hi: i64) -> RegionDim {
    RegionDim {
        min: Expr::int(lo),
        extent: hi.saturating_sub(lo).saturating_add(1),
    }
}

/// The interval that an index expression sweeps while the `relaxed` variables
/// run over their ranges and the others stand still; `None` if it contains a
/// load or has no bounds.
pub fn span(e: &Expr, relaxed: &impl Fn(VarId) -> bool, r: &Ranges) -> Option<RegionDim> {
    span_of(&simplify(e, r), relaxed, r)
}

fn span_of(e: &Expr, relaxed: &impl Fn(VarId) -> bool, r: &Ranges) -> Option<RegionDim> {
    let moves = |n: &Expr| match n.kind() {
        ExprKind::Var(v) => relaxed(*v),
        ExprKind::Load(..) => true,
        _ => false,
    };
    if !e.any(&moves) {
        return Some(RegionDim {
            min: e.clone(),
            extent: 1,
        });
    }
    let structural = structural_span(e, relaxed, r);
    let constant = bounds(e, r).map(|i| constant_span(i.lo, i.hi));
    match (structural, constant) {
        (Some(s), Some(c)) if c.extent < s.extent => Some(c),
        (Some(s), _) => Some(s),
        (None, c) => c,
    }
}

fn structural_span(e: &Expr, relaxed: &impl Fn(VarId) -> bool, r: &Ranges) -> Option<RegionDim> {
    let sub = |e: &Expr| span_of(e, relaxed, r);
    match e.kind() {
        ExprKind::Unary(UnaryOp::Neg, a) => Some(scaled(&sub(a)?, -1, r)),
        ExprKind::Binary(BinaryOp::Add, a, b) => Some(sum(&sub(a)?, &sub(b)?, r)),
        ExprKind::Binary(BinaryOp::Sub, a, b) => Some(sum(&sub(a)?, &scaled(&sub(b)?, -1, r), r)),
        ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
            (_, Some(c)) => Some(scaled(&sub(a)?, c, r)),
            (Some(c), _) => Some(scaled(&sub(b)?, c, r)),
            _ => None,
        },
        ExprKind::Binary(BinaryOp::FloorDiv, a, b) => quotient(&sub(a)?, b.as_int()?, r),
        ExprKind::Binary(BinaryOp::FloorMod, a, b) => remainder(&sub(a)?, b.as_int()?, r),
        ExprKind::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => {
            let (a, b) = (sub(a)?, sub(b)?);
            let min = Expr::binary(*op, &a.min, &b.min);
            Some(RegionDim {
                min: simplify(&min, r),
                extent: a.extent.max(b.extent),
            })
        }
        ExprKind::Select(_, a, b) => hull(&sub(a)?, &sub(b)?, r),
        _ => None,
    }
}

fn sum(a: &RegionDim, b: &RegionDim, r: &Ranges) -> RegionDim {
    RegionDim {
        min: simplify(&(&a.min + &b.min), r),
        extent: a.extent.saturating_add(b.extent) - 1,
    }
}

fn scaled(a: &RegionDim, c: i64, r: &Ranges) -> RegionDim {
    let reach = (a.extent - 1).saturating_mul(c);
    RegionDim {
        min: simplify(&(&a.min * c + reach.min(0)), r),
        extent: reach.saturating_abs().saturating_add(1),
    }
}

/// Bounds of `min % c`, at worst `0..c`.
fn phase(min: &Expr, c: i64, r: &Ranges) -> (i64, i64) {
    let m = simplify(&min.clone().floor_mod(c), r);
    match bounds(&m, r) {
        Some(i) => (i.lo.max(0), i.hi.min(c - 1)),
        None => (0, c - 1),
    }
}

fn quotient(a: &RegionDim, c: i64, r: &Ranges) -> Option<RegionDim> {
    if c <= 0 {
        return None;
    }
    let (_, hi) = phase(&a.min, c, r);
    Some(RegionDim {
        min: simplify(&a.min.clone().floor_div(c), r),
        extent: hi.saturating_add(a.extent - 1) / c + 1,
    })
}

fn remainder(a: &RegionDim, c: i64, r: &Ranges) -> Option<RegionDim> {
    if c <= 0 {
        return None;
    }
    let (_, hi) = phase(&a.min, c, r);
    if hi.saturating_add(a.extent) <= c {
        return Some(RegionDim {
            min: simplify(&a.min.clone().floor_mod(c), r),
            extent: a.extent,
        });
    }
    Some(constant_span(0, c - 1))
}

/// The smallest interval with a known start that holds both; `None` if their
/// distance has no bounds.
pub fn hull(a: &RegionDim, b: &RegionDim, r: &Ranges) -> Option<RegionDim> {
    let distance = simplify(&(&b.min - &a.min), r);
    if let Some(d) = distance.as_int() {
        let lo = d.min(0);
        return Some(RegionDim {
            min: simplify(&(&a.min + lo), r),
            extent: a.extent.max(d.saturating_add(b.extent)) - lo,
        });
    }
    let d = bounds(&distance, r)?;
    let mut extent = a.extent.max(b.extent);
    if d.hi >= 0 {
        extent = extent.max(d.hi.saturating_add(b.extent));
    }
    if d.lo < 0 {
        extent = extent.max(a.extent.saturating_sub(d.lo));
    }
    Some(RegionDim {
        min: simplify(&a.min.clone().min(&b.min), r),
        extent,
    })
}

/// Limits an interval to a dimension of `size` elements as far as its start is known.
fn clamp(d: Option<RegionDim>, size: i64) -> RegionDim {
    let whole = RegionDim {
        min: Expr::int(0),
        extent: size.max(1),
    };
    let Some(d) = d else { return whole };
    if let Some(lo) = d.min.as_int() {
        let hi = lo.saturating_add(d.extent).min(size);
        let lo = lo.clamp(0, (size - 1).max(0));
        return RegionDim {
            min: Expr::int(lo),
            extent: (hi - lo).max(1),
        };
    }
    if d.extent >= size { whole } else { d }
}

#[cfg(test)]
mod tests {
    use super::{Access, RegionDim, accessed, program_ranges, span};
    use crate::affine::Ranges;
    use crate::expr::{BinaryOp, Expr, ExprKind};
    use crate::program::{LoopId, Node, Program, Reducer, VarId};
    use crate::tensor_expression::ProgramBuilder;
    use tensor::DType;

    fn eval(e: &Expr, at: &dyn Fn(VarId) -> i64) -> i64 {
        match e.kind() {
            ExprKind::Int(v, _) => *v,
            ExprKind::Var(v) => at(*v),
            ExprKind::Unary(_, a) => -eval(a, at),
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (eval(a, at), eval(b, at));
                match op {
                    BinaryOp::Add => a + b,
                    BinaryOp::Sub => a - b,
                    BinaryOp::Mul => a * b,
                    BinaryOp::FloorDiv => a.div_euclid(b),
                    BinaryOp::FloorMod => a.rem_euclid(b),
                    BinaryOp::Min => a.min(b),
                    BinaryOp::Max => a.max(b),
                    _ => panic!("{e:?}"),
                }
            }
            _ => panic!("{e:?}"),
        }
    }

    /// Checks a span by running over all values: sound everywhere, and exact
    /// (both ends met for some standing point) if asked.
    fn check(e: &Expr, extents: &[i64], moving: &[usize], exact: bool) -> RegionDim {
        let mut r = Ranges::new();
        for (i, n) in extents.iter().enumerate() {
            r.set(VarId(i as u32), 0, n - 1);
        }
        let relaxed = |v: VarId| moving.contains(&v.index());
        let s = span(e, &relaxed, &r).expect("bounded");
        let mut met = (false, false);
        for flat in 0..extents.iter().product::<i64>() {
            let mut rest = flat;
            let point: Vec<i64> = extents
                .iter()
                .map(|n| {
                    let v = rest % n;
                    rest /= n;
                    v
                })
                .collect();
            let at = |v: VarId| point[v.index()];
            let (value, min) = (eval(e, &at), eval(&s.min, &at));
            assert!(
                min <= value && value < min + s.extent,
                "{e:?} = {value} not in {s:?} at {point:?}"
            );
            assert!(!moving.iter().any(|m| s.min.uses_var(VarId(*m as u32))));
            met = (
                met.0 | (value == min),
                met.1 | (value == min + s.extent - 1),
            );
        }
        assert!(!exact || met == (true, true), "{e:?}: {s:?} is too wide");
        s
    }

    fn v(i: u32) -> Expr {
        Expr::var(VarId(i))
    }

    #[test]
    fn affine_spans_are_exact_with_either_sign() {
        let e = v(0) * 6 + v(1) * 2 - v(2) * 3 + 5;
        assert_eq!(check(&e, &[4, 3, 5], &[1, 2], true).extent, 4 + 12 + 1);
        assert_eq!(check(&e, &[4, 3, 5], &[0, 2], true).extent, 18 + 12 + 1);
        assert_eq!(check(&e, &[4, 3, 5], &[], true).extent, 1);
    }

    #[test]
    fn quotients_and_remainders_stay_intervals_where_they_are() {
        // One row of 7 is 7 inner steps: the fused index f = 14 f0 + f1.
        let f = v(0) * 14 + v(1);
        assert_eq!(
            check(&f.clone().floor_div(7), &[3, 14], &[1], true).extent,
            2
        );
        assert_eq!(
            check(&f.clone().floor_mod(7), &[3, 14], &[1], true).extent,
            7
        );
        // A tile that does not divide the row may straddle two rows.
        let f = v(0) * 4 + v(1);
        assert_eq!(
            check(&f.clone().floor_div(7), &[7, 4], &[1], true).extent,
            2
        );
        assert_eq!(check(&f.floor_mod(7), &[7, 4], &[1], true).extent, 7);
        // A tile that divides it never does.
        let f = v(0) * 4 + v(1);
        assert_eq!(
            check(&f.clone().floor_div(8), &[7, 4], &[1], true).extent,
            1
        );
        let s = check(&f.floor_mod(8), &[7, 4], &[1], true);
        assert_eq!(s.extent, 4);
    }

    #[test]
    fn min_and_max_are_bounded_by_their_sides() {
        let e = (v(0) * 4 + v(1)).min(Expr::int(9));
        assert_eq!(check(&e, &[3, 4], &[1], true).extent, 4);
        let e = (v(0) - v(1)).max(v(0) - 1);
        check(&e, &[3, 4], &[1], false);
    }

    fn conv() -> (Program, crate::program::BufferId) {
        let mut b = ProgramBuilder::new("conv");
        let x = b.input("x", DType::F32, &[12, 12]);
        let w = b.constant("w", DType::F32, &[3, 3]);
        let y = b.reduce(
            "y",
            &[("h", 10), ("w", 10)],
            &[("r", 3), ("s", 3)],
            Reducer::Sum,
            |o, k| {
                Expr::load(x, [&o[0] + &k[0], &o[1] + &k[1]])
                    * Expr::load(w, [k[0].clone(), k[1].clone()])
            },
        );
        (b.finish(&[y]), x)
    }

    fn region_at(p: &Program, x: crate::program::BufferId, at: &str) -> Vec<(Expr, i64)> {
        let l = p.loop_named(at).expect("the loop exists");
        let mut free: Vec<LoopId> = p.path_to(Node::Loop(l)).expect("in the body");
        free.push(l);
        let body = p.loop_(l).body.clone();
        let region = accessed(p, &body, x, &free, Access::Reads).expect("read there");
        region.dims.into_iter().map(|d| (d.min, d.extent)).collect()
    }

    #[test]
    fn a_window_slides_with_the_free_loops() {
        let (p, x) = conv();
        let var = |n: &str| Expr::var(p.loop_(p.loop_named(n).expect("exists")).var);
        assert_eq!(
            region_at(&p, x, "y.h"),
            vec![(var("y.h"), 3), (Expr::int(0), 12)]
        );
        assert_eq!(
            region_at(&p, x, "y.w"),
            vec![(var("y.h"), 3), (var("y.w"), 3)]
        );
        assert_eq!(accessed(&p, &p.body, x, &[], Access::Writes), None);
        let whole = accessed(&p, &p.body, x, &[], Access::Both).expect("read");
        assert_eq!((whole.extents(), whole.volume()), (vec![12, 12], 144));
        assert!(
            program_ranges(&p)
                .get(p.loop_(p.loop_ids()[0]).var)
                .is_some()
        );
    }

    #[test]
    fn padding_is_clipped_to_the_buffer_and_loaded_indices_give_the_whole_dimension() {
        let mut b = ProgramBuilder::new("p");
        let x = b.input("x", DType::F32, &[8]);
        let i = b.input("i", DType::I64, &[10]);
        let pad = b.compute("pad", &[("n", 10)], |o| {
            let inside = Expr::int(1).le(&o[0]).and(o[0].clone().lt(9));
            Expr::select(inside, Expr::load(x, [&o[0] - 1]), Expr::f32(0.0))
        });
        let y = b.compute("y", &[("n", 10), ("m", 2)], |o| {
            Expr::load(pad, [Expr::load(i, [o[0].clone()])])
        });
        let p = b.finish(&[y]);
        let whole = accessed(&p, &p.body, x, &[], Access::Reads).expect("read");
        assert_eq!(
            whole.dims,
            vec![RegionDim {
                min: Expr::int(0),
                extent: 8
            }]
        );
        let one = region_at(&p, x, "pad.n");
        assert_eq!(one[0].1, 1);
        let gathered = region_at(&p, pad, "y.n");
        assert_eq!(gathered, vec![(Expr::int(0), 10)]);
    }
}
