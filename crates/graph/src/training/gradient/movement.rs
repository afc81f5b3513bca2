//! Gradients of operators that move elements.

use super::{Gradients, refused};
use crate::model::{Node, ValueId};
use crate::ops::{Concat, Op, Pad, PadMode, Reshape, Slice, Split};
use crate::training::NotTrainable;
use tensor::Tensor;

impl Gradients<'_> {
    /// Each operand gets its part.
    pub(super) fn concat(
        &mut self,
        node: &Node,
        c: Concat,
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        let rank = self.model[dy].shape().len();
        let mut begin = 0;
        for v in node.inputs.iter().flatten() {
            let sizes = self.model[*v].shape().to_vec();
            let mut starts = vec![0; rank];
            starts[c.axis] = begin;
            begin += sizes[c.axis];
            if self.wants(Some(*v)).is_some() {
                let steps = vec![1; rank];
                let part = Op::Slice(Slice {
                    starts,
                    steps,
                    sizes,
                });
                let part = self.node(node, "part", part, &[dy])?;
                self.add(*v, part)?;
            }
        }
        Ok(())
    }

    /// Parts that nothing reads have zeros.
    pub(super) fn split(&mut self, node: &Node, s: &Split) -> Result<(), NotTrainable> {
        let parts: Vec<_> = node.outputs.iter().map(|v| self.found.get(v)).collect();
        if parts.iter().all(Option::is_none) {
            return Ok(());
        }
        let parts: Vec<Option<ValueId>> = parts.into_iter().map(Option::<&_>::copied).collect();
        let mut whole = Vec::new();
        for (output, part) in node.outputs.iter().zip(parts) {
            whole.push(part.unwrap_or_else(|| {
                let ty = self.model[*output].ty();
                let zeros = Tensor::zeros(ty.dtype, &ty.shape);
                let name = format!("{}.zeros", node.name);
                self.model.add_constant(&name, zeros)
            }));
        }
        let Some(x) = node.input(0) else {
            return Err(refused(node, ""));
        };
        let dx = self.node(node, "dx", Op::Concat(Concat { axis: s.axis }), &whole)?;
        Ok(self.add(x, dx)?)
    }

    /// Zeros where no element was taken.
    pub(super) fn slice(
        &mut self,
        node: &Node,
        s: &Slice,
        x: ValueId,
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        let image = self.model[x].shape().to_vec();
        if s.steps.iter().any(|step| *step < 1) {
            return Err(refused(node, " with a negative step"));
        }
        let mut spread = dy;
        if s.steps.iter().any(|step| *step > 1) {
            // [sizes..] to [sizes.., 1 each] to [sizes.., step each] to [sizes times steps..].
            let step = |d: usize| s.steps[d] as usize;
            let apart: Vec<usize> = s.sizes.iter().flat_map(|n| [*n, 1]).collect();
            let pads = (0..image.len()).flat_map(|d| [(0, 0), (0, step(d) as i64 - 1)]);
            let zeros = zeros(pads.collect());
            let joined = (0..image.len()).map(|d| s.sizes[d] * step(d)).collect();
            spread = self.node(
                node,
                "apart",
                Op::Reshape(Reshape { shape: apart }),
                &[spread],
            )?;
            spread = self.node(node, "steps", zeros, &[spread])?;
            spread = self.node(
                node,
                "joined",
                Op::Reshape(Reshape { shape: joined }),
                &[spread],
            )?;
        }
        let after =
            |d: usize| image[d] as i64 - s.starts[d] as i64 - s.sizes[d] as i64 * s.steps[d];
        let pads = (0..image.len()).map(|d| (s.starts[d] as i64, after(d)));
        let dx = self.node(node, "dx", zeros(pads.collect()), &[spread])?;
        Ok(self.add(x, dx)?)
    }

    /// Cuts off what was added, and adds zeros for what was cut off.
    pub(super) fn pad(
        &mut self,
        node: &Node,
        p: &Pad,
        x: ValueId,
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        if !matches!(p.mode, PadMode::Constant(_)) {
            return Err(refused(node, " unless it adds a constant"));
        }
        let back = zeros(p.pads.iter().map(|(b, a)| (-b, -a)).collect());
        let dx = self.node(node, "dx", back, &[dy])?;
        Ok(self.add(x, dx)?)
    }
}

/// An operator that adds this many zeros before and after each axis.
pub(super) fn zeros(pads: Vec<(i64, i64)>) -> Op {
    let mode = PadMode::Constant(0.0);
    Op::Pad(Pad { mode, pads })
}
