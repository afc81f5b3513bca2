//! Reductions along axes.

use super::{OpError, Operands, check_axes, refuse};
use crate::model::TensorType;
use tensor::DType;

/// Reduces `axes` (ascending; none: every element is its own reduction).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    pub kind: ReduceKind,
    pub axes: Vec<usize>,
    /// Keeps reduced axes as 1.
    pub keepdims: bool,
}

/// What a reduction computes. Over nothing, `Sum` is 0, `Prod` 1, `Max` and
/// `Min` the type's smallest and largest value, `Mean` NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceKind {
    Sum,
    Mean,
    Prod,
    /// Takes bool too, as `Min`.
    Max,
    Min,
}

impl ReduceKind {
    pub fn name(self) -> &'static str {
        match self {
            ReduceKind::Sum => "reduce_sum",
            ReduceKind::Mean => "reduce_mean",
            ReduceKind::Prod => "reduce_prod",
            ReduceKind::Max => "reduce_max",
            ReduceKind::Min => "reduce_min",
        }
    }
}

impl Reduce {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        check_axes(&self.axes, x.rank())?;
        if x.dtype == DType::Bool && !matches!(self.kind, ReduceKind::Max | ReduceKind::Min) {
            return refuse("is not defined on bool");
        }
        Ok(TensorType {
            dtype: x.dtype,
            shape: reduced_shape(&x.shape, &self.axes, self.keepdims),
        })
    }
}

fn reduced_shape(shape: &[usize], axes: &[usize], keepdims: bool) -> Vec<usize> {
    let kept = |(d, n): (usize, &usize)| match (axes.contains(&d), keepdims) {
        (false, _) => Some(*n),
        (true, true) => Some(1),
        (true, false) => None,
    };
    shape.iter().enumerate().filter_map(kept).collect()
}

/// The i64 position of the largest or smallest element along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArgReduce {
    pub max: bool,
    pub axis: usize,
    pub keepdims: bool,
    /// The last of equal elements wins, not the first.
    pub last: bool,
}

impl ArgReduce {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        check_axes(&[self.axis], x.rank())?;
        if x.dtype == DType::Bool || x.shape[self.axis] == 0 {
            return refuse(format!("has no answer along axis {} of {x}", self.axis));
        }
        let shape = reduced_shape(&x.shape, &[self.axis], self.keepdims);
        Ok(TensorType {
            dtype: DType::I64,
            shape,
        })
    }
}
