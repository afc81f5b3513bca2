//! Gradients of batch normalisations by the statistics of the batch.
//!
//! The mean and the variance depend on every element, so an element's gradient has a share of two sums a channel: of
//! the gradients, and of their products with the centred elements. Each reader of the centred elements subtracts the
//! mean itself: kernels compute that where they read x, and no tensor of it is written.

use super::Gradients;
use crate::model::{ModelError, Node, ValueId};
use crate::ops::{Binary, Op, Reduce, ReduceKind, Reshape};

/// What the forward part of a training step computed of a batch normalisation. All but `x` and the parameters has an
/// element a channel, and the rank of `x`.
#[derive(Clone)]
pub(in crate::training) struct Normalised {
    pub x: ValueId,
    /// Parameters, each [C].
    pub scale: ValueId,
    pub shift: ValueId,
    pub mean: ValueId,
    /// 1 / sqrt(variance + epsilon).
    pub inverse: ValueId,
    /// `inverse` times the scale.
    pub factor: ValueId,
}

impl Gradients<'_> {
    /// To the parameters: the sums of dy (x - mean) inverse, and of dy. To x: factor (dy - (x - mean) slope - share),
    /// where the slope is the first sum times inverse / count, and the share the second one / count.
    pub(super) fn batch_norm(
        &mut self,
        node: &Node,
        n: &Normalised,
        dy: ValueId,
    ) -> Result<(), ModelError> {
        let shape = self.model[n.x].shape().to_vec();
        let sum = || {
            Op::Reduce(Reduce {
                kind: ReduceKind::Sum,
                axes: (0..shape.len()).filter(|d| *d != 1).collect(),
                keepdims: true,
            })
        };
        let (mul, sub) = (|| Op::Binary(Binary::Mul), || Op::Binary(Binary::Sub));
        let centred = self.node(node, "apart", sub(), &[n.x, n.mean])?;
        let product = self.node(node, "product", mul(), &[centred, dy])?;
        let products = self.node(node, "products", sum(), &[product])?;
        let along = self.node(node, "along", mul(), &[products, n.inverse])?;
        let total = self.node(node, "total", sum(), &[dy])?;
        for (what, parameter, gradient) in [("dscale", n.scale, along), ("dshift", n.shift, total)]
        {
            let shape = self.model[parameter].shape().to_vec();
            let flat = self.node(node, what, Op::Reshape(Reshape { shape }), &[gradient])?;
            self.add(parameter, flat)?;
        }
        if self.wants(Some(n.x)).is_none() {
            return Ok(());
        }
        let count = shape.iter().product::<usize>() / shape[1].max(1);
        let each = self.number(node, "each", 1.0 / count as f32);
        let share = self.node(node, "share", mul(), &[total, each])?;
        let steep = self.node(node, "steep", mul(), &[along, n.inverse])?;
        let slope = self.node(node, "slope", mul(), &[steep, each])?;
        // One chain: every product and difference follows the one before it.
        let centred = self.node(node, "centred", sub(), &[n.x, n.mean])?;
        let across = self.node(node, "across", mul(), &[centred, slope])?;
        let less = self.node(node, "less", sub(), &[dy, across])?;
        let rest = self.node(node, "rest", sub(), &[less, share])?;
        let dx = self.node(node, "dx", mul(), &[rest, n.factor])?;
        self.add(n.x, dx)
    }
}
