//! Windowed pooling. Global pooling is a [`super::Reduce`].

use super::conv::window_count;
use super::{OpError, Operands, refuse};
use crate::model::TensorType;
use tensor::DType;

/// Pooling over the spatial axes of [N,C,spatial..]; one entry a spatial axis
/// in each list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    pub kind: PoolKind,
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Elements before and after that never win a maximum.
    pub pads: Vec<(usize, usize)>,
    /// Rounds the number of windows up; a window that would start in the end
    /// padding is dropped.
    pub ceil_mode: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// With `indices`, a second i64 output holds the position of each maximum
    /// in the flattened input.
    Max { indices: Option<IndexOrder> },
    /// The divisor counts padding (but never what lies beyond it) or not.
    Average { count_include_pad: bool },
}

/// How the spatial position of a maximum is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexOrder {
    RowMajor,
    ColumnMajor,
}

impl Pool {
    pub(super) fn infer(&self, inputs: Operands) -> Result<Vec<TensorType>, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        let spatial = self.kernel.len();
        let lists = [self.strides.len(), self.dilations.len(), self.pads.len()];
        if spatial == 0 || x.rank() != spatial + 2 || lists.iter().any(|n| *n != spatial) {
            return refuse(format!("{x} does not fit a window of {spatial} axes"));
        }
        let integers = matches!(self.kind, PoolKind::Max { .. }) && x.dtype.is_int();
        if !x.dtype.is_float() && !integers {
            return refuse(format!("is not defined on {}", x.dtype));
        }
        let mut shape = x.shape[..2].to_vec();
        for d in 0..spatial {
            shape.push(self.windows(d, x.shape[2 + d])?);
        }
        let mut outputs = vec![TensorType::new(x.dtype, &shape)];
        if matches!(self.kind, PoolKind::Max { indices: Some(_) }) {
            outputs.push(TensorType::new(DType::I64, &shape));
        }
        Ok(outputs)
    }

    fn windows(&self, d: usize, size: usize) -> Result<usize, OpError> {
        let (before, after) = self.pads[d];
        let (stride, padded) = (self.strides[d], size + before + after);
        let round = if self.ceil_mode {
            stride.saturating_sub(1)
        } else {
            0
        };
        let mut n = window_count(padded + round, self.kernel[d], self.dilations[d], stride)?;
        if self.ceil_mode && n > 0 && (n - 1) * stride >= size + before {
            n -= 1;
        }
        Ok(n)
    }
}
