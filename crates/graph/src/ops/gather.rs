//! Selection by index.

use super::{OpError, Operands, check_axes, refuse};
use crate::model::TensorType;
use tensor::DType;

/// NumPy `take` along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    pub axis: usize,
}

impl Gather {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(2)?;
        let (x, indices) = (inputs.get(0)?, inputs.get(1)?);
        check_axes(&[self.axis], x.rank())?;
        if !matches!(indices.dtype, DType::I32 | DType::I64) {
            return refuse(format!("its indices are {indices}, not i32 or i64"));
        }
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
