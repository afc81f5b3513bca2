//! The samples of a region's bins that may lie within a pixel of a pixel, along one axis.
//!
//! A bin has as many samples as it has pixels, rounded up. A region may be larger than the image, so nothing
//! bounds their number. But only a few of them lie within a pixel of any one pixel, and only these are looked at:
//! two of a bin of at least [`NEAR`] samples are more than 5/6 of a pixel apart.

use super::{Align, scalar, share_of, with};
use crate::indexing::counting;
use crate::node::{NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Op, Unary};

/// Samples within a pixel of any one pixel, at most.
pub(super) const NEAR: usize = 6;

/// Values that broadcast to [regions, bins, size].
pub(super) struct Near {
    /// Of a bin: where it starts, the distance of its samples, their number, and that number or 1 if there are none.
    start: ValueId,
    step: ValueId,
    pub count: ValueId,
    pub divisor: ValueId,
    /// The first sample that may be near a pixel.
    first: ValueId,
    pixel: ValueId,
    pub zero: ValueId,
    /// Pixels.
    pub size: usize,
}

impl Align {
    /// Between the ends of each region.
    pub(super) fn near(
        &self,
        n: &mut NodeImport,
        [low, high]: [ValueId; 2],
        axis: usize,
    ) -> Result<Near, Problem> {
        let (bins, size, dtype) = (self.bins[axis], self.image[2 + axis], n.dtype(low));
        n.take_elements(&[self.regions, bins, size, NEAR])?;
        let mut extent = n.binary(Binary::Sub, high, low)?;
        if !self.half_pixel {
            extent = with(n, Binary::Max, extent, 1.0)?;
        }
        let of_region = vec![self.regions, 1, 1];
        let (low, extent) = (
            n.reshape(low, of_region.clone())?,
            n.reshape(extent, of_region)?,
        );
        let bin = with(n, Binary::Div, extent, bins as f64)?;
        let count = n.unary(Unary::Ceil, bin)?;
        let divisor = with(n, Binary::Max, count, 1.0)?;
        let step = n.binary(Binary::Div, bin, divisor)?;
        let index = counting(n, bins, 1, 3, 0)?;
        let index = n.cast(index, dtype)?;
        let start = n.binary(Binary::Mul, index, bin)?;
        let start = n.binary(Binary::Add, low, start)?;
        let pixel = counting(n, size, 2, 3, 0)?;
        let pixel = n.cast(pixel, dtype)?;
        // The first sample that may be within a pixel of this one, and no later one than leaves `NEAR` of them.
        let before = with(n, Binary::Sub, pixel, 1.0)?;
        let before = n.binary(Binary::Sub, before, start)?;
        let apart = with(n, Binary::Max, step, 0.5)?;
        let first = n.binary(Binary::Div, before, apart)?;
        let first = with(n, Binary::Sub, first, 0.5)?;
        let first = n.unary(Unary::Floor, first)?;
        let last = with(n, Binary::Sub, count, NEAR as f64)?;
        let first = n.binary(Binary::Min, first, last)?;
        let first = with(n, Binary::Max, first, 0.0)?;
        Ok(Near {
            start,
            step,
            count,
            divisor,
            first,
            pixel,
            zero: scalar(n, first, 0.0)?,
            size,
        })
    }
}

impl Near {
    /// Where a sample is, by its number in the bin.
    pub fn place(&self, n: &mut NodeImport, sample: ValueId) -> Result<ValueId, Problem> {
        let middle = with(n, Binary::Add, sample, 0.5)?;
        let offset = n.binary(Binary::Mul, middle, self.step)?;
        n.binary(Binary::Add, self.start, offset)
    }

    /// The share of each pixel in the `i`-th sample that may be near it; 0 if there is no such sample.
    pub fn share(&self, n: &mut NodeImport, i: usize) -> Result<ValueId, Problem> {
        let sample = with(n, Binary::Add, self.first, i as f64)?;
        let exists = n.binary(Binary::Less, sample, self.count)?;
        let place = self.place(n, sample)?;
        let share = share_of(n, [place, self.pixel], self.size)?;
        n.emit(Op::Where, &[exists, share, self.zero])
    }
}
