//! Rule: which axis carries vectors.
//!
//! The axis along which the output is contiguous. Each operand is then read in one of
//! three ways: contiguously (a vector a load), not at all along the axis (one element,
//! broadcast), or in strides. A constant that moves along the axis is packed; another operand is
//! read as it lies.

use super::tile::Tile;
use super::{Plan, copies};
use crate::analysis::{Reduction, Stride};
use crate::draft::{DecidedPart, Draft, Written};
use ir::{DType, LoopId, Role};
use schedule::Arg;

const RULE: &str = "lanes";

/// The axis of vectors.
#[derive(Clone, Debug)]
pub struct Lanes {
    pub axis: LoopId,
    /// Its position among the axes.
    pub at: usize,
    pub extent: i64,
    /// Elements of a vector.
    pub width: i64,
    /// Operands that are packed along the axis.
    pub packed: Vec<usize>,
    /// Operands, other than constants, that are packed in each call.
    pub copied: Vec<usize>,
    /// Operands that are copied with their border in each call.
    pub surrounded: Vec<usize>,
}

/// The position of the axis of vectors, and operands to pack; some are `copied` anyway.
pub fn choose(facts: &Reduction, copied: &[usize]) -> Result<(usize, Vec<usize>), String> {
    let contiguous =
        |at: &usize| facts.output.strides[*at] == Stride::Elements(1) && facts.axes[*at].extent > 1;
    let Some(at) = facts.spatial().find(contiguous) else {
        return Err("the output is contiguous along no axis".into());
    };
    let mut packed = Vec::new();
    for (i, operand) in facts.operands.iter().enumerate() {
        let moves = operand.strides[at].is_used();
        // Panels of a constant cost nothing, and are read from one end to the other.
        if moves && (operand.role == Role::Constant || copied.contains(&i)) {
            packed.push(i);
        }
    }
    Ok((at, packed))
}

pub fn rule(d: &mut Draft, plan: &mut Plan) -> Written<Lanes> {
    let copies::Chosen {
        packed: copied,
        surrounded,
    } = copies::choose(plan);
    let (at, packed) = choose(&plan.facts, &copied).map_err(|why| d.missing(why))?;
    let axis = &plan.facts.axes[at];
    let dtype = d.program().buffer(plan.facts.output.buffer).dtype;
    let most = plan.target.lanes(match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    });
    let lanes = Lanes {
        axis: axis.id,
        at,
        extent: axis.extent,
        width: most.min((axis.extent as u64).next_power_of_two() as i64),
        packed,
        copied,
        surrounded,
    };
    let how = plan.facts.operands.iter().enumerate().map(|(i, o)| {
        let way = match o.strides[at] {
            _ if lanes.packed.contains(&i) => "packed",
            _ if lanes.surrounded.contains(&i) => "copied",
            Stride::Elements(0) => "broadcast",
            Stride::Elements(1) => "contiguous",
            Stride::Elements(_) => "in strides",
            Stride::Unknown => "in a pattern",
        };
        format!("{} {way}", o.name)
    });
    let what = format!(
        "{} in vectors of {}: {}",
        axis.name,
        lanes.width,
        how.collect::<Vec<_>>().join(", ")
    );
    plan.applied(RULE, what);
    fill(d, plan, lanes)
}

/// A vector of sums is whole: a part of one would keep all of them in memory.
fn fill(d: &mut Draft, plan: &mut Plan, mut lanes: Lanes) -> Written<Lanes> {
    // Longer axes get whole tiles once these are decided. What is copied with a border is
    // copied for whole vectors.
    if lanes.extent >= lanes.width && lanes.surrounded.is_empty() {
        return Ok(lanes);
    }
    d.pad(lanes.axis, Arg::Lit(lanes.width))?;
    plan.look_again(d);
    let padded = plan.facts.axes[lanes.at].extent;
    plan.applied("fill", format!("{} to {padded} of vectors", lanes.extent));
    lanes.extent = padded;
    Ok(lanes)
}

/// Pads the axis to whole tiles, of the decided width.
pub fn whole_tiles(
    d: &mut Draft,
    plan: &mut Plan,
    lanes: &Lanes,
    tile: &Tile,
    width: DecidedPart,
) -> Written<()> {
    d.pad(lanes.axis, width)?;
    // The padding of a packed operand is in the copy: its loads have no tests.
    if tile.is_panel() {
        return Ok(());
    }
    plan.look_again(d);
    let padded = plan.facts.axes[lanes.at].extent;
    if padded > lanes.extent {
        plan.applied("fill", format!("{} to {padded} of tiles", lanes.extent));
    }
    Ok(())
}
