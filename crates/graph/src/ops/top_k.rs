//! Order along an axis.

use super::{OpError, Operands, check_axes, refuse};
use crate::model::TensorType;
use tensor::DType;

/// The i64 positions of the `k` largest or smallest elements along an axis, the best one
/// first; of equal ones the first is better. NaN is larger than all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopK {
    pub axis: usize,
    pub k: usize,
    pub largest: bool,
}

impl TopK {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        check_axes(&[self.axis], x.rank())?;
        inputs.number(0)?;
        if self.k > x.shape[self.axis] {
            return refuse(format!(
                "takes {} elements along axis {} of {x}",
                self.k, self.axis
            ));
        }
        let mut shape = x.shape.clone();
        shape[self.axis] = self.k;
        Ok(TensorType {
            dtype: DType::I64,
            shape,
        })
    }
}
