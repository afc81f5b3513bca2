//! Rule: operands that are read through windows are copied with their border.
//!
//! The copy has what lies outside the operand as elements, so the loops that read it make
//! no tests. Its contiguous axis is that of the lanes, and where lanes lie some elements
//! apart the copy has those of each phase one after another: a vector is one load. It is
//! made where what is copied in all is little and what is read is near.

use super::cost::{TileCost, TileSizes};
use super::lanes::Lanes;
use super::threads::Shared;
use super::{Plan, TileLoops};
use crate::analysis::{Access, Axis, Class, Reduction, Stride};
use crate::draft::{Draft, REST, Written, given};
use ir::{BlockId, LoopId, Role, Scope};
use schedule::Arg;

const RULE: &str = "surround";

/// Distance of lanes beyond which the phases of a copy are no runs worth a vector.
const MOST_STRIDE: i64 = 8;

/// A copy with a border.
#[derive(Clone, Debug)]
pub struct Surrounded {
    /// The block that copies.
    copier: BlockId,
    /// Its position among the operands.
    pub operand: usize,
    /// The dimension of the operand that the copy is contiguous along, and how far apart
    /// its neighbours lie in the operand.
    along: usize,
    pub stride: i64,
    /// Whether the operand is contiguous along it, too.
    pub contiguous: bool,
}

/// Whether a copy with a border takes the place of an operand: it is read through windows,
/// or behind tests.
pub fn fits(facts: &Reduction, i: usize, lanes: usize) -> bool {
    let o = &facts.operands[i];
    let once = facts.operands.iter().filter(|p| p.buffer == o.buffer);
    let reads = o.guards.contains(&true) || is_window(facts, o);
    reads && o.role == Role::Input && once.count() == 1 && contiguous(o, lanes).is_some()
}

/// Whether an output axis and terms meet in an index.
pub fn is_window(facts: &Reduction, o: &Access) -> bool {
    facts.spatial().any(|at| is_window_along(facts, o, at))
}

/// Whether an axis meets terms in an index.
pub fn is_window_along(facts: &Reduction, o: &Access, at: usize) -> bool {
    let is_term = |(axis, step): (&Axis, &Stride)| axis.class == Class::Reduction && step.is_used();
    let mut dims = o.dims.iter().filter(|d| d.steps[at].is_used());
    dims.any(|d| facts.axes.iter().zip(&d.steps).any(is_term))
}

/// The dimension that vectors are read along, and the distance of their lanes in it.
fn contiguous(o: &Access, lanes: usize) -> Option<(usize, i64)> {
    let along = o.dims.iter().enumerate();
    let used: Vec<(usize, Stride)> = along
        .map(|(dim, d)| (dim, d.steps[lanes]))
        .filter(|(_, s)| s.is_used())
        .collect();
    match used[..] {
        [] => Some((o.dims.len().checked_sub(1)?, 1)),
        [(dim, Stride::Elements(n @ 1..=MOST_STRIDE))] => Some((dim, n)),
        _ => None,
    }
}

/// Lets the reduction read copies; they still stand before all loops.
pub fn copy(d: &mut Draft, plan: &mut Plan, lanes: &Lanes) -> Written<()> {
    let mut done = Vec::new();
    for operand in lanes.surrounded.clone() {
        let o = &plan.facts.operands[operand];
        let name = o.name.clone();
        let dims = o.dims.len();
        let Some((along, stride)) = contiguous(o, lanes.at) else {
            continue;
        };
        let copier = d.surround(plan.main.block, o.buffer)?;
        let others = (0..dims).filter(|dim| *dim != along);
        if stride > 1 {
            // Behind the dimension that is cut, all others have moved up by one.
            let place = |dim: usize| if dim > along { dim + 1 } else { dim };
            let order: Vec<usize> = others.map(place).chain([along + 1, along]).collect();
            d.lay_out(d.output(copier), &[(along, Arg::Lit(stride))], &order)?;
        } else if along + 1 < dims {
            let order: Vec<usize> = others.chain([along]).collect();
            d.lay_out(d.output(copier), &[], &order)?;
        }
        plan.surrounded.push(Surrounded {
            copier,
            operand,
            along,
            stride,
            contiguous: along + 1 == dims,
        });
        done.push(match stride {
            1 => name,
            n => format!("{name} in {n} phases"),
        });
    }
    match done.is_empty() {
        true => plan.passed(
            RULE,
            "no operand has windows or tests that a copy would pay for",
        ),
        false => plan.applied(RULE, done.join(", ")),
    }
    plan.look_again(d);
    Ok(())
}

/// Places the copies, and gives them vectors and threads; the loops over vectors, whose ends
/// are at borders.
pub fn schedule(
    d: &mut Draft,
    plan: &mut Plan,
    lanes: &Lanes,
    loops: &TileLoops,
    (tile, shared): ((&TileCost, &TileSizes), &Shared),
) -> Written<Vec<LoopId>> {
    let (mut places, mut rows) = (Vec::new(), Vec::new());
    for s in plan.surrounded.clone() {
        let (cost, sizes) = tile;
        // A loop that others have been fused with stands for all of them.
        let whole = |depth: usize| depth == 0 || depth >= shared.count;
        let depth = cost.copying(sizes, &s, &whole).depth;
        let place = match (depth, shared.fused) {
            (0, _) => None,
            (depth, Some(fused)) if depth == shared.count => Some(fused),
            (depth, _) => Some(loops.outer[depth - 1].1),
        };
        if let Some(l) = place {
            d.compute_at(s.copier, l)?;
            d.set_scope(d.output(s.copier), Scope::Local)?;
        }
        let own = schedule::own_loops(d.program(), s.copier);
        let along = own[s.along];
        let (row, phase) = match s.stride {
            1 => (along, None),
            n => {
                let [row, phase] = d.split(along, [REST, given(n)])?;
                (row, Some(phase))
            }
        };
        let [vectors, lane] = d.split(row, [REST, given(lanes.width)])?;
        let order: Vec<_> = phase.into_iter().chain([vectors, lane]).collect();
        let behind = own[s.along + 1..].iter().copied();
        d.reorder_if_legal(&behind.chain(order).collect::<Vec<_>>());
        d.vectorize_if_legal(lane);
        rows.push(vectors);
        if place.is_none() && plan.target.threads > 1 {
            let outside = match s.along {
                0 => own.get(1..).unwrap_or_default(),
                at => &own[..at],
            };
            d.share_copy(outside, plan.target.threads)?;
        }
        let name = plan.facts.operands[s.operand].name.clone();
        places.push(match place {
            Some(l) => format!("{name} in {}", d.program().loop_(l).name),
            None => format!("{name} before the loops"),
        });
    }
    if !places.is_empty() {
        plan.applied(RULE, places.join(", "));
    }
    Ok(rows)
}
