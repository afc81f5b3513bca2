//! Operators that move elements without computing.

use super::{OpError, Operands, broadcast_shape, check_axes, refuse};
use crate::model::TensorType;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Concat {
    pub axis: usize,
}

impl Concat {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let first = inputs.get(0)?;
        check_axes(&[self.axis], first.rank())?;
        let mut out = first.clone();
        for i in 1..inputs.len() {
            let x = inputs.get(i)?;
            let fits = x.dtype == out.dtype
                && x.rank() == out.rank()
                && (0..x.rank()).all(|d| d == self.axis || x.shape[d] == out.shape[d]);
            if !fits {
                return refuse(format!(
                    "{x} does not continue {first} along axis {}",
                    self.axis
                ));
            }
            out.shape[self.axis] += x.shape[self.axis];
        }
        Ok(out)
    }
}

/// One output a size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Split {
    pub axis: usize,
    pub sizes: Vec<usize>,
}

impl Split {
    pub(super) fn infer(&self, inputs: Operands) -> Result<Vec<TensorType>, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        check_axes(&[self.axis], x.rank())?;
        let all = self
            .sizes
            .iter()
            .try_fold(0usize, |n, size| n.checked_add(*size));
        if all != Some(x.shape[self.axis]) {
            return refuse(format!(
                "sizes {:?} do not add up to axis {} of {x}",
                self.sizes, self.axis
            ));
        }
        let part = |n: &usize| {
            let mut t = x.clone();
            t.shape[self.axis] = *n;
            t
        };
        Ok(self.sizes.iter().map(part).collect())
    }
}

/// Along every axis `d`, elements `starts[d] + i * steps[d]` for `i < sizes[d]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    pub starts: Vec<usize>,
    pub steps: Vec<i64>,
    pub sizes: Vec<usize>,
}

impl Slice {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        let rank = x.rank();
        if [self.starts.len(), self.steps.len(), self.sizes.len()] != [rank; 3] {
            return refuse(format!("its attributes do not fit {x}"));
        }
        for d in (0..rank).filter(|d| self.sizes[*d] > 0) {
            let last = (self.sizes[d] as i64 - 1)
                .checked_mul(self.steps[d])
                .and_then(|n| n.checked_add(self.starts[d] as i64));
            let inside = |i: i64| (0..x.shape[d] as i64).contains(&i);
            if !inside(self.starts[d] as i64) || !last.is_some_and(inside) {
                return refuse(format!("axis {d} leaves {x}"));
            }
        }
        Ok(TensorType {
            dtype: x.dtype,
            shape: self.sizes.clone(),
        })
    }
}

/// Adds elements before and after along every axis; negative counts cut off.
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    pub mode: PadMode,
    pub pads: Vec<(i64, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    Constant(f64),
    /// Mirrored without repeating the edge.
    Reflect,
    /// The edge repeated.
    Edge,
    /// Periodic.
    Wrap,
}

/// Far beyond any tensor, and what can be added up.
const MOST_PADDING: u64 = 1 << 48;

impl Pad {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        if self.pads.len() != x.rank() {
            return refuse(format!("its pads do not fit {x}"));
        }
        let mut shape = Vec::with_capacity(x.rank());
        for (&n, &(before, after)) in x.shape.iter().zip(&self.pads) {
            if before.unsigned_abs().max(after.unsigned_abs()) > MOST_PADDING {
                return refuse(format!("pads ({before}, {after}) are too large"));
            }
            let size = (n as i64)
                .checked_add(before)
                .and_then(|s| s.checked_add(after));
            let size = size.and_then(|s| usize::try_from(s).ok());
            let Some(size) = size else {
                return refuse(format!(
                    "pads ({before}, {after}) leave nothing of {n} elements"
                ));
            };
            if n == 0 && size > 0 && !matches!(self.mode, PadMode::Constant(_)) {
                return refuse(format!("{x} has no element to repeat"));
            }
            shape.push(size);
        }
        Ok(TensorType {
            dtype: x.dtype,
            shape,
        })
    }
}

/// The same elements in row-major order under another shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reshape {
    pub shape: Vec<usize>,
}

impl Reshape {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        let out = TensorType::new(x.dtype, &self.shape);
        let count = self.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        if count != Some(x.len()) {
            return refuse(format!(
                "{x} has not as many elements as shape {:?}",
                self.shape
            ));
        }
        Ok(out)
    }
}

/// Axis `d` of the output is axis `perm[d]` of the operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transpose {
    pub perm: Vec<usize>,
}

impl Transpose {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        let mut sorted = self.perm.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.rank()) {
            return refuse(format!(
                "{:?} is not a permutation of the axes of {x}",
                self.perm
            ));
        }
        Ok(TensorType {
            dtype: x.dtype,
            shape: self.perm.iter().map(|d| x.shape[*d]).collect(),
        })
    }
}

/// Broadcasts the operand to exactly this shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expand {
    pub shape: Vec<usize>,
}

impl Expand {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        if broadcast_shape(&x.shape, &self.shape)? != self.shape {
            return refuse(format!("{x} does not broadcast to {:?}", self.shape));
        }
        Ok(TensorType::new(x.dtype, &self.shape))
    }
}
