//! Importers of sums and products along an axis up to each element.
//!
//! They are written out as sums with the same tensor shifted by 1, 2, 4, ...: as many
//! element-wise kernels as the extent has bits, each with all elements at once.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Op, Pad, PadMode};

pub(crate) fn sum(n: &mut NodeImport) -> Imported {
    cumulative(n, Binary::Add, 0.0)
}

pub(crate) fn prod(n: &mut NodeImport) -> Imported {
    cumulative(n, Binary::Mul, 1.0)
}

fn cumulative(n: &mut NodeImport, op: Binary, identity: f64) -> Imported {
    let x = n.input(0)?;
    let axis = match n.constant_ints(1, "axis")?.as_deref() {
        Some([axis]) => n.axis(*axis, n.ty(x).rank())?,
        _ => return Problem::unsupported("its axis is not one number"),
    };
    let reverse = n.attributes.flag("reverse", false)?;
    let mut y = x;
    if n.attributes.flag("exclusive", false)? {
        y = shifted(n, y, axis, 1, reverse, identity)?;
    }
    let extent = n.ty(x).shape[axis];
    let mut by = 1;
    while by < extent {
        let before = shifted(n, y, axis, by, reverse, identity)?;
        y = n.binary(op, y, before)?;
        by *= 2;
    }
    Ok(vec![y])
}

/// What is `by` elements before each element along an axis, or after it.
fn shifted(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    by: usize,
    reverse: bool,
    fill: f64,
) -> Result<ValueId, Problem> {
    let by = by.min(n.ty(x).shape[axis]) as i64;
    let mut pads = vec![(0, 0); n.ty(x).rank()];
    pads[axis] = if reverse { (-by, by) } else { (by, -by) };
    let mode = PadMode::Constant(fill);
    n.emit(Op::Pad(Pad { mode, pads }), &[x])
}
