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

/// One step of suppressing boxes that overlap better ones: minus infinity for the chosen box
/// and for all boxes that overlap it by more than `threshold` (intersection over union), the
/// given score for the others. Nothing changes where the chosen box has minus infinity.
/// Operands are scores [batch, classes, n], boxes [batch, 4, n] and the chosen box of each
/// class, [batch, classes, 1].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suppress {
    pub threshold: f32,
    /// Boxes are centre x, centre y, width, height; else two opposite corners y, x, y, x.
    pub centred: bool,
}

impl Suppress {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(3)?;
        let (scores, boxes) = (inputs.float(0)?, inputs.get(1)?);
        let [batch, classes, count] = scores.shape[..] else {
            return refuse(format!("its scores are {scores}, not of three axes"));
        };
        inputs.expect(1, scores.dtype, &[batch, 4, count])?;
        inputs.expect(2, DType::I64, &[batch, classes, 1])?;
        if boxes.is_empty() {
            return refuse("there are no boxes");
        }
        Ok(scores.clone())
    }
}
