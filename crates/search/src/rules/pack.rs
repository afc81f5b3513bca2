//! Rule: constants, and operands that another rule lets be copied, are laid out in the
//! order in which the loops read them.
//!
//! Each dimension goes where the loop that walks along it stands: loops over tiles,
//! terms, then rows of the tile and lanes. A constant is packed once, before the first
//! call; another operand in each call (`copies`).

use super::copies::{PAGE_BYTES, PAGES};
use super::lanes::Lanes;
use super::tile::Tile;
use super::{Packed, Plan};
use crate::analysis::{Access, Axis, Class, Dim, Reduction, Stride};
use crate::draft::{Draft, Written};
use ir::Role;
use schedule::Arg;

const RULE: &str = "pack";

/// Where a part of a dimension goes: with loops over tiles (0), terms (1), loops inside the
/// tile (2) or lanes (3); then by axis.
type Rank = (u8, usize);

/// How a constant is packed.
struct Layout {
    /// Dimensions to cut, and by what.
    tiles: Vec<(usize, Arg)>,
    /// Of the parts that result.
    ranks: Vec<Rank>,
}

pub fn operands(
    d: &mut Draft,
    plan: &mut Plan,
    lanes: &Lanes,
    tile: &Tile,
) -> Written<Vec<Packed>> {
    let mut packed = Vec::new();
    let (mut done, mut left) = (Vec::new(), Vec::new());
    for (at, operand) in plan.facts.operands.iter().enumerate() {
        if operand.role != Role::Constant && !lanes.copied.contains(&at) {
            continue;
        }
        let Some(layout) = layout(plan, operand, lanes, tile) else {
            left.push(operand.name.clone());
            continue;
        };
        let mut order: Vec<usize> = (0..layout.ranks.len()).collect();
        order.sort_by_key(|i| layout.ranks[*i]);
        let copier = d.pack(operand.buffer, &layout.tiles, &order)?;
        let buffer = d.output(copier);
        let last = operand.dims.len() - 1;
        let read_last = layout
            .source_of(&order)
            .iter()
            .rposition(|dim| *dim == last);
        packed.push(Packed {
            buffer,
            copier,
            operand: at,
            along: read_last.unwrap_or(order.len() - 1),
            dims: order.len(),
        });
        done.push(d.program().buffer(buffer).name.clone());
    }
    match (done.is_empty(), left.is_empty()) {
        (false, _) => plan.applied(RULE, done.join(", ")),
        (true, true) => plan.passed(RULE, "no operand is a constant or copied"),
        (true, false) => plan.passed(
            RULE,
            format!("{} is read in no regular order", left.join(", ")),
        ),
    }
    Ok(packed)
}

impl Layout {
    /// The dimension of the operand that each dimension of the copy is of, which has the
    /// parts in some order.
    fn source_of(&self, order: &[usize]) -> Vec<usize> {
        let dims = self.ranks.len() - self.tiles.len();
        let cut = |dim: &usize| self.tiles.iter().any(|(d, _)| d == dim);
        let parts: Vec<usize> = (0..dims)
            .flat_map(|dim| vec![dim; 1 + usize::from(cut(&dim))])
            .collect();
        order.iter().map(|i| parts[*i]).collect()
    }
}

/// The layout that follows the loops; `None` where a dimension follows them in no regular
/// way.
fn layout(plan: &Plan, operand: &Access, lanes: &Lanes, tile: &Tile) -> Option<Layout> {
    let axes = &plan.facts.axes;
    let rank = |at: usize| -> Rank {
        match axes[at].class {
            Class::Reduction => (1, at),
            _ if at == lanes.at && !tile.is_panel() => (3, at),
            _ => (0, at),
        }
    };
    let (mut tiles, mut ranks) = (Vec::new(), Vec::new());
    let whole_rows = keeps_rows(plan, operand, lanes);
    for (dim, along) in operand.dims.iter().enumerate() {
        let rows = dim + 1 == operand.dims.len() && whole_rows;
        match used(axes, along)[..] {
            [] => ranks.push((0, 0)),
            [(at, Stride::Elements(1))] if rows => ranks.push((2, at)),
            [(at, Stride::Elements(1))] => match tile.inner_of(at, lanes) {
                None => ranks.push(rank(at)),
                Some((factor, has_lanes)) => {
                    tiles.push((dim, factor));
                    ranks.extend([(0, at), (if has_lanes { 3 } else { 2 }, at)]);
                }
            },
            // Backwards, such as the taps of a transposed convolution.
            [(at, Stride::Elements(-1))] if tile.inner_of(at, lanes).is_none() => {
                ranks.push(rank(at));
            }
            // Blocks of channels, also of groups, or steps of taps and a phase.
            ref several => {
                let (inner, step, outer) = innermost(axes, along, several)?;
                tiles.push((dim, Arg::Lit(step)));
                let outer = outer.into_iter().map(rank).min()?;
                ranks.extend([outer, rank(inner)]);
            }
        }
    }
    Some(Layout { tiles, ranks })
}

/// The axis along which a dimension moves by single elements, how many these are, and the
/// other axes, which move by multiples of so many.
fn innermost(axes: &[Axis], d: &Dim, used: &[(usize, Stride)]) -> Option<(usize, i64, Vec<usize>)> {
    used.iter().find_map(|(inner, by)| {
        let step = match by {
            Stride::Elements(1) => axes[*inner].extent,
            Stride::Elements(_) => return None,
            Stride::Unknown => d.remainder?,
        };
        let others = used.iter().filter(|(at, _)| at != inner);
        let whole = |(_, s): &&(usize, Stride)| matches!(s, Stride::Elements(n) if n % step == 0);
        let least = others.clone().filter_map(|(_, s)| match s {
            Stride::Elements(n) => Some(*n),
            Stride::Unknown => None,
        });
        let fits = others.clone().all(|o| whole(&o)) && least.min() == Some(step);
        fits.then(|| (*inner, step, others.map(|(at, _)| *at).collect()))
    })
}

/// Whether rows stay whole: they are copied in whole vectors then, where those of a tile are
/// no multiple of one. What a batch reads is on few pages, however its rows lie.
fn keeps_rows(plan: &Plan, operand: &Access, lanes: &Lanes) -> bool {
    let part = |a: &Axis| match a.class {
        Class::Batch => 1,
        _ => a.extent,
    };
    let part: Vec<i64> = plan.facts.axes.iter().map(part).collect();
    let bytes = plan.facts.footprint(operand, &part) * operand.element_bytes;
    let broadcast = !operand.strides[lanes.at].is_used();
    operand.role != Role::Constant && broadcast && bytes <= PAGES * PAGE_BYTES
}

/// Whether a copy of an operand can follow the loops: each of its dimensions moves with one
/// axis, or with the blocks of several. Along terms it may move backwards. A scalar has no
/// dimension that could follow.
pub fn follows(facts: &Reduction, operand: &Access) -> bool {
    let regular = |along: &Dim| match used(&facts.axes, along)[..] {
        [] | [(_, Stride::Elements(1))] => true,
        [(at, Stride::Elements(-1))] => facts.axes[at].class == Class::Reduction,
        ref several => innermost(&facts.axes, along, several).is_some(),
    };
    !operand.dims.is_empty() && operand.dims.iter().all(regular)
}

/// Axes that a dimension is indexed by, with what one iteration adds. The single tap of a 1x1 convolution moves nothing.
fn used(axes: &[Axis], d: &Dim) -> Vec<(usize, Stride)> {
    let all = d.steps.iter().copied().enumerate();
    all.filter(|(at, s)| s.is_used() && axes[*at].extent > 1)
        .collect()
}
