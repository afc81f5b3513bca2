//! Nodes of iterations and branches that are computed though they may not run.
//!
//! Their results are dropped where they do not run. But an index outside its axis, or a division by zero, would end the
//! run. So these operands are what does no harm there. Nothing changes where bounds say that they never do harm.

use crate::node::{NodeImport, Problem};
use graph::ValueId;
use graph::ops::Op;

/// Changes the operand that may end a run, of a node that counts only where `runs` holds.
pub(super) fn guard(n: &mut NodeImport, name: &str, runs: ValueId) -> Result<(), Problem> {
    let operand = |i: usize| n.inputs.get(i).copied().flatten();
    let (Some(x), Some(given)) = (operand(0), operand(1)) else {
        return Ok(());
    };
    let shape = n.shape(x);
    let size = match name {
        "Gather" | "GatherElements" | "Scatter" | "ScatterElements" => {
            let axis = n.axis(n.attributes.int("axis", 0)?, shape.len())?;
            Some(shape[axis])
        }
        "GatherND" | "ScatterND" => shape.iter().copied().min(),
        "Div" | "Mod" => None,
        _ => return Ok(()),
    };
    let (is_harmless, instead) = match size {
        Some(size) => {
            let size = size as f64;
            (n.lies_within(given, -size, size - 1.0), 0.0)
        }
        None => {
            let apart = n.lies_within(given, 1.0, f64::MAX) || n.lies_within(given, f64::MIN, -1.0);
            (apart, 1.0)
        }
    };
    if !n.dtype(given).is_int() || is_harmless {
        return Ok(());
    }
    let instead = n.filled(n.dtype(given), &[], instead)?;
    let guarded = n.emit(Op::Where, &[runs, given, instead])?;
    let extents = n.live.extents(given).to_vec();
    n.live.set(guarded, extents);
    n.inputs[1] = Some(guarded);
    Ok(())
}
