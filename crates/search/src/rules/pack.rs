//! Rule: constants are laid out in the order in which the loops read them.
//!
//! Each dimension goes where the loop that walks along it stands: loops over tiles,
//! terms, then rows of the tile and lanes. Packing is done once, before the first call.

use super::lanes::Lanes;
use super::tile::Tile;
use super::{Packed, Plan};
use crate::analysis::{Access, Class, Dim, Stride};
use crate::draft::{Draft, Written};
use ir::Role;
use schedule::Arg;

const RULE: &str = "pack";

/// A part of a dimension, and where it goes.
struct Part {
    /// Loops over tiles (0), terms (1), inside the tile (2), lanes (3); then by axis.
    rank: (u8, usize),
}

pub fn constants(
    d: &mut Draft,
    plan: &mut Plan,
    lanes: &Lanes,
    tile: &Tile,
) -> Written<Vec<Packed>> {
    let mut packed = Vec::new();
    let (mut done, mut left) = (Vec::new(), Vec::new());
    for operand in &plan.facts.operands {
        if operand.role != Role::Constant {
            continue;
        }
        let Some((tiles, parts)) = layout(plan, operand, lanes, tile) else {
            left.push(operand.name.clone());
            continue;
        };
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|i| parts[*i].rank);
        let copier = d.pack(operand.buffer, &tiles, &order)?;
        let buffer = d.output(copier);
        packed.push(Packed { buffer });
        done.push(d.program().buffer(buffer).name.clone());
    }
    match (done.is_empty(), left.is_empty()) {
        (false, _) => plan.applied(RULE, done.join(", ")),
        (true, true) => plan.passed(RULE, "no operand is a constant"),
        (true, false) => plan.passed(
            RULE,
            format!("{} is read in no regular order", left.join(", ")),
        ),
    }
    Ok(packed)
}

/// Tiles of dimensions, and the parts that result.
fn layout(
    plan: &Plan,
    operand: &Access,
    lanes: &Lanes,
    tile: &Tile,
) -> Option<(Vec<(usize, Arg)>, Vec<Part>)> {
    let axes = &plan.facts.axes;
    let rank = |at: usize| match axes[at].class {
        Class::Reduction => (1, at),
        _ if at == lanes.at && !tile.is_panel() => (3, at),
        _ => (0, at),
    };
    let (mut tiles, mut parts) = (Vec::new(), Vec::new());
    for (dim, along) in operand.dims.iter().enumerate() {
        let used: Vec<(usize, Stride)> = used(along);
        match used[..] {
            [] => parts.push(Part { rank: (0, 0) }),
            [(at, Stride::Elements(1))] => {
                parts.push(Part { rank: rank(at) });
                if let Some((factor, last)) = tile.inner_of(at, lanes) {
                    tiles.push((dim, factor));
                    if let Some(p) = parts.last_mut() {
                        p.rank = (0, at);
                    }
                    parts.push(Part {
                        rank: (if last { 3 } else { 2 }, at),
                    });
                }
            }
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
                parts.push(Part { rank: rank(outer) });
                parts.push(Part { rank: rank(inner) });
            }
            _ => return None,
        }
    }
    Some((tiles, parts))
}

/// Axes that a dimension is indexed by, with what one iteration adds.
fn used(d: &Dim) -> Vec<(usize, Stride)> {
    let all = d.steps.iter().copied().enumerate();
    all.filter(|(_, s)| s.is_used()).collect()
}
