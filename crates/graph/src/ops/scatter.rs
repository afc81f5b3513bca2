//! Copies with some elements replaced or combined with others, by index.

use super::gather::{check_elements, check_positions};
use super::{OpError, Operands, refuse};
use crate::model::TensorType;
use tensor::DType;

/// What becomes of an element that an update is for. Updates of the same element take
/// effect in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

impl Combine {
    fn check(self, x: &TensorType, updates: &TensorType) -> Result<(), OpError> {
        if updates.dtype != x.dtype {
            return refuse(format!("its updates are {updates}, and its operand is {x}"));
        }
        if x.dtype == DType::Bool && self != Combine::Replace {
            return refuse("combines no bool");
        }
        Ok(())
    }
}

/// The counterpart of [`super::GatherElements`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScatterElements {
    pub axis: usize,
    pub combine: Combine,
}

impl ScatterElements {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(3)?;
        let (x, indices, updates) = (inputs.get(0)?, inputs.indices(1)?, inputs.get(2)?);
        check_elements(x, indices, self.axis)?;
        self.combine.check(x, updates)?;
        if updates.shape != indices.shape {
            return refuse(format!("has indices {indices} for updates {updates}"));
        }
        Ok(x.clone())
    }
}

/// The counterpart of [`super::GatherNd`] without shared axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScatterNd {
    pub combine: Combine,
}

impl ScatterNd {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(3)?;
        let (x, indices, updates) = (inputs.get(0)?, inputs.indices(1)?, inputs.get(2)?);
        let depth = check_positions(x, indices, 0)?;
        self.combine.check(x, updates)?;
        let outer = &indices.shape[..indices.rank() - 1];
        let wanted = [outer, &x.shape[depth..]].concat();
        if updates.shape != wanted {
            return refuse(format!(
                "its updates are {updates}, where the shape {wanted:?} is needed"
            ));
        }
        Ok(x.clone())
    }
}
