//! What a block completes in one iteration of a loop around it.
//!
//! A hull may be larger than what was really written: parts of fused rows are
//! no box, tails leave holes. These functions answer only if the box is exact
//! (up to the border of the domain, and unless `iteration_tests` exclude the
//! whole iteration) and its values are final, because the
//! steps that read the box element by element would otherwise read what is not
//! there yet.

use crate::nest::{at_most_zero, conjuncts, exactly_within, iteration_tests, path};
use ir::affine::{Affine, Ranges, bounds};
use ir::region::{Access, RegionDim, accessed, block_accesses, bound, span};
use ir::simplify::{prove, simplify};
use ir::{BinaryOp, BlockId, BufferId, Expr, ExprKind, IterKind, LoopId, Node, Program, VarId};

/// The box that all producers of a buffer complete in one iteration of the last
/// of the loops `at`, all of which enclose them; an error says why it is none.
pub(crate) fn completed(
    p: &Program,
    buffer: BufferId,
    at: &[LoopId],
    r: &Ranges,
) -> Result<Vec<RegionDim>, String> {
    let name = &p.buffer(buffer).name;
    let mut parts: Vec<Vec<RegionDim>> = Vec::new();
    let mut tests: Option<Vec<Expr>> = None;
    for q in p.producers(buffer) {
        let of_q = iteration_tests(p, &[q], at);
        if *tests.get_or_insert_with(|| of_q.clone()) != of_q {
            return Err(format!(
                "the producers of `{name}` do not run in the same iterations"
            ));
        }
        let part = written_box(p, q, buffer, at, r)
            .map_err(|why| format!("`{name}`, produced by `{}`: {why}", p.block(q).name))?;
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    let nodes = p.children(at.last().copied());
    let hull = accessed(p, nodes, buffer, at, Access::Writes)
        .ok_or_else(|| format!("nothing writes `{name}` there"))?;
    let volume = |d: &[RegionDim]| d.iter().map(|d| d.extent).product::<i64>();
    let total: i64 = parts.iter().map(|d| volume(d)).sum();
    let shape = &p.buffer(buffer).shape;
    let box_: Vec<RegionDim> = match &parts[..] {
        [one] => one.clone(),
        _ => hull.dims,
    };
    let dims = box_.iter().zip(shape);
    let box_: Result<Vec<RegionDim>, String> =
        dims.map(|(d, n)| exactly_within(d, *n, r)).collect();
    let box_ = box_.map_err(|why| format!("`{name}`: {why}"))?;
    if parts.len() > 1 && (!disjoint(&parts, r) || total != volume(&box_)) {
        return Err(format!(
            "the producers of `{name}` do not fill one box in an iteration"
        ));
    }
    Ok(box_)
}

fn disjoint(parts: &[Vec<RegionDim>], r: &Ranges) -> bool {
    let apart = |a: &RegionDim, b: &RegionDim| prove(&(&a.min + a.extent).le(&b.min), r);
    parts.iter().enumerate().all(|(i, a)| {
        parts[..i].iter().all(|b| {
            let dims = a.iter().zip(b);
            dims.into_iter().any(|(x, y)| apart(x, y) || apart(y, x))
        })
    })
}

/// The box that one producer writes in one iteration, not cut at the buffer's
/// border, if its loops inside fill it exactly and finish its reductions.
pub(crate) fn written_box(
    p: &Program,
    q: BlockId,
    buffer: BufferId,
    at: &[LoopId],
    r: &Ranges,
) -> Result<Vec<RegionDim>, String> {
    let block = p.block(q);
    let free: Vec<VarId> = at.iter().map(|l| p.loop_(*l).var).collect();
    let moves = |v: VarId| !free.contains(&v);
    let indices = block_accesses(block, buffer, Access::Writes).remove(0);
    let mut dims = Vec::new();
    for i in &indices {
        let d = span(&bound(block, i), &moves, r);
        dims.push(d.ok_or("its writes cannot be analysed")?);
    }
    let mut points: i64 = 1;
    for l in path(p, Node::Block(q)) {
        let l = p.loop_(l);
        let feeds = |kind: IterKind| {
            let mut iters = block.iters.iter().filter(|i| i.kind == kind);
            iters.any(|i| i.binding.uses_var(l.var))
        };
        let (spatial, reduce) = (feeds(IterKind::Spatial), feeds(IterKind::Reduce));
        if l.extent == 1 {
            continue;
        }
        if free.contains(&l.var) {
            if reduce {
                return Err(format!("its reduction over `{}` is not finished", l.name));
            }
            continue;
        }
        if spatial == reduce {
            return Err(format!("`{}` is not either spatial or a reduction", l.name));
        }
        if spatial {
            points = points.saturating_mul(l.extent);
        }
    }
    for (_, extent, kind) in block.tensor.iter().flat_map(|t| &t.iters) {
        if *kind == IterKind::Spatial {
            points = points.saturating_mul(*extent);
        }
    }
    let volume = dims.iter().fold(1i64, |n, d| n.saturating_mul(d.extent));
    if points != volume {
        return Err("what one iteration writes is not a box".into());
    }
    check_predicate(p, q, at, r)?;
    Ok(dims)
}

/// Whether `given <= 0` proves `wanted <= 0`, both linear: in whole numbers
/// `a * wanted <= b * given + rest` does if `rest`, bounded by the ranges, is
/// below `a`.
fn follows(given: &Expr, wanted: &Expr, r: &Ranges) -> bool {
    let (Some(d), Some(t)) = (Affine::of(given), Affine::of(wanted)) else {
        return false;
    };
    t.terms.iter().any(|(v, of_t)| {
        let of_d = d.coefficient(*v);
        if of_d.signum() != of_t.signum() {
            return false;
        }
        let (a, b) = (of_d.abs(), of_t.abs());
        let rest = t.scale(a).add_scaled(&d, -b).to_expr();
        bounds(&rest, r).is_some_and(|i| i.hi < a)
    })
}

/// Whether the predicate only excludes points outside the spatial domain,
/// points of the reduction, or whole iterations of the loops `at`.
fn check_predicate(p: &Program, q: BlockId, at: &[LoopId], r: &Ranges) -> Result<(), String> {
    let block = p.block(q);
    if block.predicate.is_none() {
        return Ok(());
    }
    let mut domain = Vec::new();
    for i in block.spatial_iters() {
        let value = simplify(&i.binding, r);
        let mut inside = |v: &Expr, extent: i64| {
            domain.push(at_most_zero(&Expr::int(0).le(v), r));
            domain.push(at_most_zero(&v.clone().lt(extent), r));
        };
        inside(&value, i.extent);
        if let ExprKind::Binary(BinaryOp::FloorDiv, a, c) = value.kind()
            && let Some(c) = c.as_int()
        {
            inside(a, i.extent * c);
        }
    }
    let spatial = |v: VarId| block.spatial_iters().any(|i| i.binding.uses_var(v));
    let whole = iteration_tests(p, &[q], at);
    for test in conjuncts(block.predicate.as_ref()) {
        let form = at_most_zero(test, r);
        let known = whole.contains(test)
            || form.is_some_and(|t| {
                domain
                    .iter()
                    .flatten()
                    .any(|d| *d == t || follows(d, &t, r))
            });
        if !known && test.vars().into_iter().any(spatial) {
            return Err("its predicate excludes points inside its domain".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::follows;
    use ir::affine::Ranges;
    use ir::{Expr, VarId};

    #[test]
    fn bounds_follow_from_finer_and_coarser_ones_and_no_others() {
        let v = |i: u32| Expr::var(VarId(i));
        let mut r = Ranges::new();
        for (i, n) in [2, 3, 2].into_iter().enumerate() {
            r.set(VarId(i as u32), 0, n - 1);
        }
        // 6 v0 + 2 v1 + v2 <= 9 says the same as 3 v0 + v1 <= 4.
        let fine = v(0) * 6 + v(1) * 2 + v(2) - 9;
        let coarse = v(0) * 3 + v(1) - 4;
        assert!(follows(&fine, &coarse, &r) && follows(&coarse, &fine, &r));
        // 3 v0 + v1 <= 3 says more.
        let tight = v(0) * 3 + v(1) - 3;
        assert!(follows(&tight, &coarse, &r) && !follows(&coarse, &tight, &r));
        assert!(!follows(&fine, &tight, &r));
    }
}
