//! RoiAlign of largest samples whose number the regions' sizes say.
//!
//! A bin is the largest of products of a pixel with the shares that it has along y and x in some sample. Of a pixel that is
//! not negative the largest shares decide, of a negative one the least, along y and x apart: so the largest along y is
//! found first. A product is 0 where a sample is outside of the image, or exactly at a pixel: the next one has no share.

use super::near::NEAR;
use super::{Align, scalar, with};
use crate::node::{NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Gather, Op, Reduce, ReduceKind};
use tensor::DType;

/// Of the samples along one axis.
struct Shares {
    /// The least and the greatest positive share of each pixel: [regions, bins, size].
    least: ValueId,
    greatest: ValueId,
    /// Whether a product is 0: [regions, bins, 1].
    zero: ValueId,
    /// Whether there are samples: [regions, bins, 1].
    any: ValueId,
}

fn extreme(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    kind: ReduceKind,
    keepdims: bool,
) -> Result<ValueId, Problem> {
    let axes = vec![axis];
    let reduce = Reduce {
        kind,
        axes,
        keepdims,
    };
    n.emit(Op::Reduce(reduce), &[x])
}

impl Align {
    fn shares_of_largest(
        &self,
        n: &mut NodeImport,
        ends: [ValueId; 2],
        axis: usize,
    ) -> Result<Shares, Problem> {
        let near = self.near(n, ends, axis)?;
        let zero = near.zero;
        let far = scalar(n, zero, f64::INFINITY)?;
        let (mut least, mut greatest) = (far, zero);
        for i in 0..NEAR {
            let share = near.share(n, i)?;
            greatest = n.binary(Binary::Max, greatest, share)?;
            let is_part = n.binary(Binary::Greater, share, zero)?;
            let share = n.emit(Op::Where, &[is_part, share, far])?;
            least = n.binary(Binary::Min, least, share)?;
        }
        let whole = extreme(n, greatest, 2, ReduceKind::Max, true)?;
        let whole = with(n, Binary::GreaterOrEqual, whole, 1.0)?;
        let lowest = near.place(n, zero)?;
        let lowest = with(n, Binary::Less, lowest, -1.0)?;
        let last = with(n, Binary::Sub, near.count, 1.0)?;
        let highest = near.place(n, last)?;
        let highest = with(n, Binary::Greater, highest, near.size as f64)?;
        let outside = n.binary(Binary::Or, lowest, highest)?;
        let any = with(n, Binary::Greater, near.count, 0.0)?;
        Ok(Shares {
            least,
            greatest,
            zero: n.binary(Binary::Or, whole, outside)?,
            any,
        })
    }

    /// The largest products of `x` with the shares along one axis, of that axis.
    fn largest_along(
        &self,
        n: &mut NodeImport,
        x: ValueId,
        shares: &Shares,
        (shape, axis): (Vec<usize>, usize),
    ) -> Result<ValueId, Problem> {
        let (least, greatest) = (
            n.reshape(shares.least, shape.clone())?,
            n.reshape(shares.greatest, shape)?,
        );
        let negative = with(n, Binary::Less, x, 0.0)?;
        let share = n.emit(Op::Where, &[negative, least, greatest])?;
        let product = n.binary(Binary::Mul, x, share)?;
        let has_share = with(n, Binary::Greater, greatest, 0.0)?;
        let none = scalar(n, x, f64::NEG_INFINITY)?;
        let product = n.emit(Op::Where, &[has_share, product, none])?;
        extreme(n, product, axis, ReduceKind::Max, false)
    }

    pub(super) fn largest_products(
        &self,
        n: &mut NodeImport,
        image: ValueId,
        [regions, batch]: [ValueId; 2],
    ) -> Result<ValueId, Problem> {
        let ([_, channels, height, width], count) = (self.image, self.regions);
        let [rows, columns] = self.bins;
        let [along_y, along_x] = self.ends(n, regions)?;
        let y = self.shares_of_largest(n, along_y, 0)?;
        let x = self.shares_of_largest(n, along_x, 1)?;
        let batch = n.cast(batch, DType::I64)?;
        let batch = n.reshape(batch, vec![count])?;
        let images = n.emit(Op::Gather(Gather { axis: 0 }), &[image, batch])?;
        let images = n.reshape(images, vec![count, channels, 1, height, width])?;
        let of_y = (vec![count, 1, rows, height, 1], 3);
        let best = self.largest_along(n, images, &y, of_y)?;
        let best = n.reshape(best, vec![count, channels, rows, 1, width])?;
        let of_x = (vec![count, 1, 1, columns, width], 4);
        let best = self.largest_along(n, best, &x, of_x)?;
        let mut bins = |v: ValueId, of_rows: bool| {
            let [r, c] = if of_rows { [rows, 1] } else { [1, columns] };
            let v = match n.shape(v)[1] == r * c {
                true => v,
                // The number of samples is one for all bins of a region.
                false => return n.reshape(v, vec![count, 1, 1, 1]),
            };
            n.reshape(v, vec![count, 1, r, c])
        };
        let [y_zero, x_zero] = [bins(y.zero, true)?, bins(x.zero, false)?];
        let [y_any, x_any] = [bins(y.any, true)?, bins(x.any, false)?];
        let zero = n.binary(Binary::Or, y_zero, x_zero)?;
        let floor = with(n, Binary::Max, best, 0.0)?;
        let best = n.emit(Op::Where, &[zero, floor, best])?;
        let any = n.binary(Binary::And, y_any, x_any)?;
        let none = scalar(n, best, 0.0)?;
        n.emit(Op::Where, &[any, best, none])
    }
}
