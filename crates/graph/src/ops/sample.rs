//! Sampling of images at given points.

use super::{OpError, Operands, refuse};
use crate::model::TensorType;

/// The image at points of a grid, whose coordinates are from -1 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GridSample {
    pub interpolation: Interpolation,
    pub outside: Outside,
    /// -1 and 1 are the centres of the outermost pixels, not their outer edges.
    pub align_corners: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// Ties to the even pixel.
    Nearest,
    Linear,
    /// The largest of the products that [`Linear`](Interpolation::Linear) adds up.
    Largest,
    /// R. G. Keys' convolution with a = -3/4.
    Cubic,
}

/// What lies outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outside {
    Zeros,
    /// The nearest pixel.
    Border,
    /// The image, mirrored at its outermost centres if corners are aligned, else at its edges.
    Reflection,
}

impl GridSample {
    /// How many pixels a sample is made of along an axis.
    pub fn taps(self) -> usize {
        match self.interpolation {
            Interpolation::Nearest => 1,
            Interpolation::Linear | Interpolation::Largest => 2,
            Interpolation::Cubic => 4,
        }
    }

    /// Where coordinate `c` of a grid is along `n` pixels: `c * scale + shift`.
    pub fn place(self, n: usize) -> (f64, f64) {
        let n = n as f64;
        let scale = if self.align_corners { n - 1.0 } else { n };
        (scale / 2.0, (n - 1.0) / 2.0)
    }

    /// How a place outside the image is moved before its pixels are found. A cubic sample keeps its place, and only
    /// its pixels are moved, as ONNX Runtime and PyTorch do.
    pub fn place_outside(self) -> Outside {
        match self.interpolation {
            Interpolation::Nearest | Interpolation::Linear | Interpolation::Largest => self.outside,
            Interpolation::Cubic => Outside::Zeros,
        }
    }

    /// Between which places an axis of `n` pixels is mirrored.
    pub fn mirrors(self, n: usize) -> (f64, f64) {
        let edge = if self.align_corners { 0.0 } else { 0.5 };
        (-edge, n as f64 - 1.0 + edge)
    }

    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(2)?;
        let (x, grid) = (inputs.float(0)?, inputs.float(1)?);
        let spatial = x.rank().saturating_sub(2);
        let fits = spatial > 0
            && grid.rank() == x.rank()
            && grid.shape[0] == x.shape[0]
            && grid.shape[x.rank() - 1] == spatial;
        if !fits {
            return refuse(format!("its grid {grid} does not fit {x}"));
        }
        let shape = [&x.shape[..2], &grid.shape[1..=spatial]].concat();
        if x.is_empty() && !shape.contains(&0) {
            return refuse(format!("{x} has no pixel to sample"));
        }
        Ok(TensorType {
            dtype: x.dtype,
            shape,
        })
    }
}
