//! Normalisations and softmax.

use super::{OpError, Operands, refuse};
use crate::model::TensorType;
use tensor::DType;

/// Inference batch normalisation: (x - mean) / sqrt(variance + epsilon) scale + bias,
/// a channel (axis 1) at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    pub epsilon: f32,
}

impl BatchNorm {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(5)?.float(0)?;
        let Some(&channels) = x.shape.get(1) else {
            return refuse(format!("{x} has no channel axis"));
        };
        for i in 1..5 {
            let p = inputs.float(i)?;
            if p.shape != [channels] {
                return refuse(format!("operand {i} is {p} where [{channels}] is needed"));
            }
        }
        Ok(x.clone())
    }
}

/// (x - mean) / sqrt(variance + epsilon) scale + bias, with mean and biased
/// variance over the axes from `axis` on; scale and bias broadcast to those axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    pub axis: usize,
    pub epsilon: f32,
    /// Also gives the mean and the inverse standard deviation, as f32, with the
    /// normalised axes kept as 1.
    pub statistics: bool,
}

impl LayerNorm {
    pub(super) fn infer(self, inputs: Operands) -> Result<Vec<TensorType>, OpError> {
        let x = inputs.at_most(3)?.float(0)?;
        if self.axis >= x.rank() {
            return refuse(format!("axis {} is not one of {x}", self.axis));
        }
        inputs.get(1)?;
        for p in (1..3).filter_map(|i| inputs.optional(i)) {
            if p.dtype != x.dtype || super::broadcast_shape(&p.shape, &x.shape)? != x.shape {
                return refuse(format!("{p} does not broadcast to {x}"));
            }
        }
        let mut outputs = vec![x.clone()];
        if self.statistics {
            let mut shape = x.shape.clone();
            shape[self.axis..].fill(1);
            outputs.extend([
                TensorType::new(DType::F32, &shape),
                TensorType::new(DType::F32, &shape),
            ]);
        }
        Ok(outputs)
    }
}

/// Local response normalisation over `size` channels (axis 1):
/// x / (bias + alpha / size * sum of squares)^beta.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lrn {
    pub size: usize,
    pub alpha: f32,
    pub beta: f32,
    pub bias: f32,
}

impl Lrn {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.float(0)?;
        if x.rank() < 2 || self.size == 0 {
            return refuse(format!(
                "{x} has no channel axis for a window of {}",
                self.size
            ));
        }
        Ok(x.clone())
    }
}

/// exp(x - max) / sum along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softmax {
    pub axis: usize,
}

impl Softmax {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.float(0)?;
        if self.axis >= x.rank() {
            return refuse(format!("axis {} is not one of {x}", self.axis));
        }
        Ok(x.clone())
    }
}
