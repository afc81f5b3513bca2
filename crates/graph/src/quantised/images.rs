//! Products of two quantised images that both change, such as the scores of attention.
//!
//! With zero points p and q,
//!
//!   sum of (a - p)(b - q) = sum of a b - q (sum of a) - p (sum of b) + terms p q,
//!
//! where the sums of a are those of rows, and the sums of b those of columns. Dot products take
//! u8 on the left and i8 on the right, four terms at a time.

use super::{Dequantised, Pass, UNSIGNED, filled};
use crate::model::ValueId;
use crate::ops::{Binary, Op, Pad, PadMode, Reduce, ReduceKind, Transpose};
use tensor::DType;

/// Terms of one dot product.
const FOUR: usize = 4;

/// One side of a product.
struct Side {
    q: ValueId,
    zero: f64,
    step: f64,
}

impl Pass<'_, '_> {
    /// The product of two dequantised values with a scale and a zero point each.
    pub(super) fn product_of_images(&mut self, a: ValueId, b: ValueId) -> Option<ValueId> {
        let (a, b) = (self.dequantised(a)?, self.dequantised(b)?);
        let ranks = [a.q, b.q].map(|v| self.r.target[v].ty().rank());
        let terms = *self.r.target[a.q].shape().last()?;
        let (mut a, mut b) = (self.side(&a)?, self.side(&b)?);
        if ranks.iter().any(|r| *r < 2) || terms == 0 || terms > MOST_TERMS {
            return None;
        }
        if self.r.target[a.q].dtype() == DType::I8 {
            a.q = self.changed(a.q, UNSIGNED, DType::U8);
            a.zero += UNSIGNED;
        }
        if self.r.target[b.q].dtype() == DType::U8 {
            b.q = self.changed(b.q, -UNSIGNED, DType::I8);
            b.zero -= UNSIGNED;
        }
        let axes = ranks.map(|r| r - 1);
        let wholes = [
            self.whole_fours(a.q, axes[0]),
            self.whole_fours(b.q, axes[1] - 1),
        ];
        let mut sum = self.add(Op::MatMulInteger, &wholes);
        if b.zero != 0.0 {
            let rows = self.sums(a.q, axes[0]);
            let rows = self.with_number(Binary::Mul, rows, -b.zero);
            let all = terms as f64 * a.zero * b.zero;
            let rows = self.with_number(Binary::Add, rows, all);
            sum = self.add(Op::Binary(Binary::Add), &[sum, rows]);
        }
        if a.zero != 0.0 {
            let columns = self.sums(b.q, axes[1] - 1);
            let columns = self.with_number(Binary::Mul, columns, -a.zero);
            sum = self.add(Op::Binary(Binary::Add), &[sum, columns]);
        }
        let float = self.add(Op::Cast(DType::F32), &[sum]);
        let step = self.constant(filled(DType::F32, &[], a.step * b.step));
        Some(self.add(Op::Binary(Binary::Mul), &[float, step]))
    }

    fn side(&self, d: &Dequantised) -> Option<Side> {
        let [zero, step] = self.whole(d)?;
        let (least, most) = super::range(self.r.target[d.q].dtype());
        (zero.fract() == 0.0 && (least..=most).contains(&zero)).then_some(Side {
            q: d.q,
            zero,
            step,
        })
    }

    fn with_number(&mut self, op: Binary, v: ValueId, number: f64) -> ValueId {
        let number = self.constant(filled(DType::I32, &[], number));
        self.add(Op::Binary(op), &[v, number])
    }

    /// The operator that gives a value, and its operand, if it only moves the value's elements.
    fn mover(&self, v: ValueId) -> Option<(Op, ValueId)> {
        let node = self.node(v)?;
        let moves = matches!(node.op, Op::Transpose(_) | Op::Reshape(_));
        moves.then_some((node.op.clone(), node.input(0)?))
    }

    /// Bytes with a number added to each, before they are moved: products read through moves.
    fn changed(&mut self, v: ValueId, by: f64, to: DType) -> ValueId {
        match self.mover(v) {
            Some((op, x)) => {
                let x = self.changed(x, by, to);
                self.add(op, &[x])
            }
            None => self.moved_by(v, by, to),
        }
    }

    /// Sums along an axis, which stays with one element.
    fn sums(&mut self, v: ValueId, axis: usize) -> ValueId {
        if let Some((Op::Transpose(Transpose { perm }), x)) = self.mover(v) {
            let sums = self.sums(x, perm[axis]);
            return self.add(Op::Transpose(Transpose { perm }), &[sums]);
        }
        let wide = self.add(Op::Cast(DType::I32), &[v]);
        let sum = Reduce {
            kind: ReduceKind::Sum,
            axes: vec![axis],
            keepdims: true,
        };
        self.add(Op::Reduce(sum), &[wide])
    }

    /// Bytes with zeros behind them up to whole dot products.
    fn whole_fours(&mut self, v: ValueId, axis: usize) -> ValueId {
        let ty = self.r.target[v].ty();
        let (rank, terms) = (ty.rank(), ty.shape[axis]);
        if terms % FOUR == 0 {
            return v;
        }
        let mut pads = vec![(0, 0); rank];
        pads[axis].1 = (terms.next_multiple_of(FOUR) - terms) as i64;
        let mode = PadMode::Constant(0.0);
        self.add(Op::Pad(Pad { mode, pads }), &[v])
    }
}

/// More terms could have a sum that is no i32: each is at most 255 x 255. What is in between
/// may wrap, and comes back.
const MOST_TERMS: usize = i32::MAX as usize / (255 * 255);
