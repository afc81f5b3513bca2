//! Choosing elements by their values: as many as there are, within a bound.

use super::{OpError, Operands, refuse};
use crate::model::TensorType;
use tensor::DType;

/// The positions of the true elements of a vector, in order, then 0 as often as others are
/// false.
pub(super) fn infer_positions(inputs: Operands) -> Result<TensorType, OpError> {
    let x = inputs.exactly(1)?.get(0)?;
    if x.dtype != DType::Bool || x.rank() != 1 {
        return refuse(format!("takes a vector of bool, not {x}"));
    }
    Ok(TensorType::new(DType::I64, &x.shape))
}

/// The best boxes that no better one overlaps, in order: the best box of a class is chosen, then the best one of those
/// that overlap no chosen one by more than `threshold` (intersection over union), up to `most` of them. Of boxes with
/// equal scores the first one comes first; one whose score is minus infinity or no number is never chosen. Operands are
/// scores [batch, classes, n] and boxes [batch, n, 4]; the result [batch, classes, most] has -1 behind the last choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suppress {
    pub threshold: f32,
    /// Boxes are centre x, centre y, width, height; else two opposite corners y, x, y, x.
    pub centred: bool,
    pub most: usize,
}

impl Suppress {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(2)?;
        let scores = inputs.float(0)?;
        let [batch, classes, count] = scores.shape[..] else {
            return refuse(format!("its scores are {scores}, not of three axes"));
        };
        if scores.dtype == DType::F64 {
            return refuse("its scores are f64; cast scores and boxes to f32");
        }
        inputs.expect(1, scores.dtype, &[batch, count, 4])?;
        if scores.is_empty() || self.most == 0 {
            return refuse("there are no boxes, or none is wanted");
        }
        Ok(TensorType::new(DType::I64, &[batch, classes, self.most]))
    }
}
