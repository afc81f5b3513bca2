//! Selection by index.

use super::{OpError, Operands, check_axes, refuse};
use crate::model::TensorType;

/// NumPy `take` along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    pub axis: usize,
}

impl Gather {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(2)?;
        let (x, indices) = (inputs.get(0)?, inputs.indices(1)?);
        check_axes(&[self.axis], x.rank())?;
        let shape = [
            &x.shape[..self.axis],
            &indices.shape,
            &x.shape[self.axis + 1..],
        ]
        .concat();
        Ok(TensorType {
            dtype: x.dtype,
            shape,
        })
    }
}

/// Element [i.., j, k..] is that of the operand at [i.., indices[i.., j, k..], k..], where the
/// axis has j.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatherElements {
    pub axis: usize,
}

impl GatherElements {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(2)?;
        let (x, indices) = (inputs.get(0)?, inputs.indices(1)?);
        check_elements(x, indices, self.axis)?;
        Ok(TensorType::new(x.dtype, &indices.shape))
    }
}

/// Checks that `indices` have the axes of `x`, none but `axis` larger than there.
pub(super) fn check_elements(
    x: &TensorType,
    indices: &TensorType,
    axis: usize,
) -> Result<(), OpError> {
    check_axes(&[axis], x.rank())?;
    let within = |d: usize| d == axis || indices.shape[d] <= x.shape[d];
    if indices.rank() != x.rank() || !(0..x.rank()).all(within) {
        return refuse(format!(
            "indices {indices} are not within {x} beside axis {axis}"
        ));
    }
    Ok(())
}

/// After `batch` axes that operand and indices share, each row of the indices is a position
/// along the operand's next axes, and selects what lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatherNd {
    pub batch: usize,
}

impl GatherNd {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(2)?;
        let (x, indices) = (inputs.get(0)?, inputs.indices(1)?);
        let depth = check_positions(x, indices, self.batch)?;
        let outer = &indices.shape[..indices.rank() - 1];
        let shape = [outer, &x.shape[self.batch + depth..]].concat();
        Ok(TensorType {
            dtype: x.dtype,
            shape,
        })
    }
}

/// How many axes of `x` a row of `indices` is a position along, after `batch` shared ones.
pub(super) fn check_positions(
    x: &TensorType,
    indices: &TensorType,
    batch: usize,
) -> Result<usize, OpError> {
    let shared = indices.rank() > batch && x.shape.get(..batch) == indices.shape.get(..batch);
    match indices.shape.last() {
        Some(depth) if shared && *depth >= 1 && batch + depth <= x.rank() => Ok(*depth),
        _ => refuse(format!(
            "indices {indices} are no positions in {x} after {batch} shared axes"
        )),
    }
}
