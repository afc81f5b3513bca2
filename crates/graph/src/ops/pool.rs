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
    /// With `indices`, a second output holds the position of each maximum: i64 in the flattened input, or i32 in
    /// its window.
    Max { indices: Option<IndexOrder> },
    /// The divisor counts padding (but never what lies beyond it) or not.
    Average { count_include_pad: bool },
}

/// How the position of a maximum is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexOrder {
    RowMajor,
    ColumnMajor,
    /// Row-major in its window; the number of taps if a window has no element.
    Window,
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
        if let PoolKind::Max {
            indices: Some(order),
        } = self.kind
        {
            let dtype = match order {
                IndexOrder::Window => DType::I32,
                IndexOrder::RowMajor | IndexOrder::ColumnMajor => DType::I64,
            };
            outputs.push(TensorType::new(dtype, &shape));
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

/// The gradient of a maximum pool: an element has the sum of what the windows have that it is the maximum of.
/// The operands are the gradients of the windows and the positions that the pool gives ([`IndexOrder::Window`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaxPoolGradient {
    /// The spatial axes of the image.
    pub image: Vec<usize>,
    pub pool: Pool,
}

impl MaxPoolGradient {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(2)?;
        let (dy, positions) = (inputs.float(0)?, inputs.get(1)?);
        if dy.rank() < 2 || positions.dtype != DType::I32 || positions.shape != dy.shape {
            return refuse(format!("{positions} are no positions of {dy}"));
        }
        let image = TensorType::new(dy.dtype, &[&dy.shape[..2], &self.image].concat());
        let windows = self.pool.infer(Operands(&[Some(&image)]))?;
        if windows[0].shape != dy.shape {
            return refuse(format!("{dy} does not fit the windows of {image}"));
        }
        Ok(image)
    }
}
