//! Rule: constants, and operands that another rule lets be copied, are laid out in the
//! order in which the loops read them.
//!
//! Each dimension goes where the loop that walks along it stands: loops over tiles,
//! terms, then rows of the tile and lanes. A constant is packed once, before the first
//! call; another operand in each call (`copies`).

use super::lanes::Lanes;
use super::tile::Tile;
use super::{Packed, Plan};
use crate::analysis::{Access, Class, Dim, Stride};
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
    for (dim, along) in operand.dims.iter().enumerate() {
        match used(along)[..] {
            [] => ranks.push((0, 0)),
            [(at, Stride::Elements(1))] => match tile.inner_of(at, lanes) {
                None => ranks.push(rank(at)),
                Some((factor, has_lanes)) => {
                    tiles.push((dim, factor));
                    ranks.extend([(0, at), (if has_lanes { 3 } else { 2 }, at)]);
                }
            },
            // Blocks of channels, or steps of taps and a phase.
            [(a, by_a), (b, by_b)] => {
                let extent = |inner: usize, by: Stride| match by {
                    Stride::Elements(1) => Some(axes[inner].extent),
                    Stride::Elements(_) => None,
                    Stride::Unknown => along.remainder,
                };
                let (outer, inner, step) = match (by_a, by_b) {
                    (Stride::Elements(n), by) if extent(b, by) == Some(n) => (a, b, n),
                    (by, Stride::Elements(n)) if extent(a, by) == Some(n) => (b, a, n),
                    _ => return None,
                };
                tiles.push((dim, Arg::Lit(step)));
                ranks.extend([rank(outer), rank(inner)]);
            }
            _ => return None,
        }
    }
    Some(Layout { tiles, ranks })
}

/// Axes that a dimension is indexed by, with what one iteration adds.
fn used(d: &Dim) -> Vec<(usize, Stride)> {
    let all = d.steps.iter().copied().enumerate();
    all.filter(|(_, s)| s.is_used()).collect()
}
