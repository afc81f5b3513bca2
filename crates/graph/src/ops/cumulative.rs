//! Sums and products along an axis up to each element.

use super::{OpError, Operands, check_axes};
use crate::model::TensorType;

/// For each element the sum or product of those before it along an axis and, unless it is
/// `exclusive`, of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cumulative {
    pub kind: CumulativeKind,
    pub axis: usize,
    /// The element itself is left out: the first result is that of nothing.
    pub exclusive: bool,
    /// Elements come from the last to the first.
    pub reverse: bool,
}

/// What is accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CumulativeKind {
    Sum,
    Prod,
}

impl CumulativeKind {
    pub fn name(self) -> &'static str {
        match self {
            CumulativeKind::Sum => "cumulative_sum",
            CumulativeKind::Prod => "cumulative_prod",
        }
    }

    /// The result of nothing.
    pub fn identity(self) -> f64 {
        match self {
            CumulativeKind::Sum => 0.0,
            CumulativeKind::Prod => 1.0,
        }
    }
}

impl Cumulative {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.number(0)?;
        check_axes(&[self.axis], x.rank())?;
        Ok(x.clone())
    }
}
