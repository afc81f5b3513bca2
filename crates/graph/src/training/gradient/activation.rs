//! Gradients of element-wise operators of one operand, and of softmax.

use super::{Gradients, refused};
use crate::model::{ModelError, Node, ValueId};
use crate::ops::{Binary, Gelu, Op, Reduce, ReduceKind, Softmax, Unary};
use crate::training::NotTrainable;
use std::f32::consts::PI;

impl Gradients<'_> {
    pub(super) fn unary(
        &mut self,
        node: &Node,
        u: Unary,
        x: ValueId,
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        let (y, mul) = (node.outputs[0], Op::Binary(Binary::Mul));
        let dx = match u {
            Unary::Neg => self.node(node, "dx", Op::Unary(Unary::Neg), &[dy])?,
            Unary::Relu => {
                let zero = self.number(node, "zero", 0.0);
                let open = self.node(node, "open", Op::Binary(Binary::Greater), &[y, zero])?;
                self.node(node, "dx", Op::Where, &[open, dy, zero])?
            }
            Unary::Exp => self.node(node, "dx", mul, &[dy, y])?,
            Unary::Log => self.node(node, "dx", Op::Binary(Binary::Div), &[dy, x])?,
            Unary::Sqrt => {
                let two = self.number(node, "two", 2.0);
                let twice = self.node(node, "twice", mul, &[y, two])?;
                self.node(node, "dx", Op::Binary(Binary::Div), &[dy, twice])?
            }
            // -y y.
            Unary::Reciprocal => {
                let square = self.node(node, "square", mul.clone(), &[y, y])?;
                let against = self.node(node, "against", mul, &[dy, square])?;
                self.node(node, "dx", Op::Unary(Unary::Neg), &[against])?
            }
            // y (1 - y), and 1 - y y.
            Unary::Sigmoid | Unary::Tanh => {
                let one = self.number(node, "one", 1.0);
                let (of, by) = match u {
                    Unary::Sigmoid => (y, y),
                    _ => (self.node(node, "square", mul.clone(), &[y, y])?, one),
                };
                let left = self.node(node, "left", Op::Binary(Binary::Sub), &[one, of])?;
                let slope = self.node(node, "slope", mul.clone(), &[left, by])?;
                self.node(node, "dx", mul, &[dy, slope])?
            }
            // dy inside of the bounds, as PyTorch's `relu6` has it.
            Unary::Clip { min, max } => {
                let mut dx = dy;
                for fits in self.bounds(node, y, min, max)? {
                    let zero = self.number(node, "zero", 0.0);
                    dx = self.node(node, "dx", Op::Where, &[fits, dx, zero])?;
                }
                dx
            }
            Unary::LeakyRelu { alpha } => {
                let zero = self.number(node, "zero", 0.0);
                let open = self.node(node, "open", Op::Binary(Binary::Greater), &[x, zero])?;
                let alpha = self.number(node, "alpha", alpha);
                let below = self.node(node, "below", mul, &[dy, alpha])?;
                self.node(node, "dx", Op::Where, &[open, dy, below])?
            }
            _ => {
                let slope = self.slope(node, u, x)?;
                self.node(node, "dx", mul, &[dy, slope])?
            }
        };
        Ok(self.add(x, dx)?)
    }

    /// By which dy is multiplied.
    fn slope(&mut self, node: &Node, u: Unary, x: ValueId) -> Result<ValueId, NotTrainable> {
        let slope = match u {
            Unary::HardSigmoid { alpha, .. } => self.hard_slope(node, node.outputs[0], alpha),
            Unary::HardSwish => self.hard_swish_slope(node, x),
            Unary::Erf => self.bell(node, x, 1.0, 2.0 / PI.sqrt()),
            Unary::Gelu(Gelu::Exact) => self.gelu_slope(node, x),
            Unary::Gelu(Gelu::Tanh) => self.gelu_tanh_slope(node, x),
            Unary::Sin => self.node(node, "cosine", Op::Unary(Unary::Cos), &[x]),
            Unary::Cos => {
                let sine = self.node(node, "sine", Op::Unary(Unary::Sin), &[x])?;
                self.node(node, "against", Op::Unary(Unary::Neg), &[sine])
            }
            Unary::Abs => self.node(node, "sign", Op::Unary(Unary::Sign), &[x]),
            _ => return Err(refused(node, "")),
        };
        Ok(slope?)
    }

    /// For each bound that there is, whether an element lies strictly on its inner side.
    fn bounds(
        &mut self,
        node: &Node,
        y: ValueId,
        min: Option<f64>,
        max: Option<f64>,
    ) -> Result<Vec<ValueId>, ModelError> {
        let mut fits = Vec::new();
        for (name, bound, compare) in [("min", min, Binary::Greater), ("max", max, Binary::Less)] {
            if let Some(bound) = bound {
                let limit = self.number(node, name, bound as f32);
                fits.push(self.node(node, "fits", Op::Binary(compare), &[y, limit])?);
            }
        }
        Ok(fits)
    }

    /// Of max(0, min(1, alpha x + beta)), by its result.
    fn hard_slope(&mut self, node: &Node, y: ValueId, alpha: f32) -> Result<ValueId, ModelError> {
        let zero = self.number(node, "zero", 0.0);
        let mut slope = self.number(node, "alpha", alpha);
        for fits in self.bounds(node, y, Some(0.0), Some(1.0))? {
            slope = self.node(node, "slope", Op::Where, &[fits, slope, zero])?;
        }
        Ok(slope)
    }

    /// Of x h(x), where h is the hard sigmoid: h + x h'.
    fn hard_swish_slope(&mut self, node: &Node, x: ValueId) -> Result<ValueId, ModelError> {
        let alpha = 1.0 / 6.0;
        let gate = Op::Unary(Unary::HardSigmoid { alpha, beta: 0.5 });
        let gate = self.node(node, "gate", gate, &[x])?;
        let slope = self.hard_slope(node, gate, alpha)?;
        let by_x = self.node(node, "by_x", Op::Binary(Binary::Mul), &[x, slope])?;
        self.node(node, "whole", Op::Binary(Binary::Add), &[gate, by_x])
    }

    /// factor exp(-scale x x).
    fn bell(
        &mut self,
        node: &Node,
        x: ValueId,
        scale: f32,
        factor: f32,
    ) -> Result<ValueId, ModelError> {
        let mul = || Op::Binary(Binary::Mul);
        let square = self.node(node, "square", mul(), &[x, x])?;
        let scale = self.number(node, "scale", -scale);
        let power = self.node(node, "power", mul(), &[square, scale])?;
        let exp = self.node(node, "exp", Op::Unary(Unary::Exp), &[power])?;
        let factor = self.number(node, "factor", factor);
        self.node(node, "bell", mul(), &[exp, factor])
    }

    /// Of x P(x), where P is the normal distribution: P + x p.
    fn gelu_slope(&mut self, node: &Node, x: ValueId) -> Result<ValueId, ModelError> {
        let mul = || Op::Binary(Binary::Mul);
        let density = self.bell(node, x, 0.5, 1.0 / (2.0 * PI).sqrt())?;
        let by_x = self.node(node, "by_x", mul(), &[x, density])?;
        let root = self.number(node, "root", 0.5f32.sqrt());
        let scaled = self.node(node, "scaled", mul(), &[x, root])?;
        let erf = self.node(node, "erf", Op::Unary(Unary::Erf), &[scaled])?;
        let (one, half) = (
            self.number(node, "one", 1.0),
            self.number(node, "half", 0.5),
        );
        let above = self.node(node, "above", Op::Binary(Binary::Add), &[erf, one])?;
        let share = self.node(node, "share", mul(), &[above, half])?;
        self.node(node, "whole", Op::Binary(Binary::Add), &[share, by_x])
    }

    /// Of x (1 + t) / 2, where t = tanh(root (x + cubic x^3)): (1 + t) / 2 + x (1 - t t) root (1 + 3 cubic x x) / 2.
    fn gelu_tanh_slope(&mut self, node: &Node, x: ValueId) -> Result<ValueId, ModelError> {
        let (mul, add) = (|| Op::Binary(Binary::Mul), || Op::Binary(Binary::Add));
        let (root, cubic) = ((2.0 / PI).sqrt(), 0.044_715);
        let (one, half) = (
            self.number(node, "one", 1.0),
            self.number(node, "half", 0.5),
        );
        let square = self.node(node, "square", mul(), &[x, x])?;
        // x root (1 + cubic x x), and its derivative.
        let [inner, steep] = [("inner", cubic), ("steep", 3.0 * cubic)].map(|(what, factor)| {
            let factor = self.number(node, "factor", root * factor);
            let root = self.number(node, "root", root);
            let by = self.node(node, "by", mul(), &[square, factor])?;
            self.node(node, what, add(), &[by, root])
        });
        let angle = self.node(node, "angle", mul(), &[inner?, x])?;
        let tanh = self.node(node, "tanh", Op::Unary(Unary::Tanh), &[angle])?;
        let above = self.node(node, "above", add(), &[tanh, one])?;
        let share = self.node(node, "share", mul(), &[above, half])?;
        // (1 - t t) / 2 is (1 + t) / 2 (1 - t).
        let below = self.node(node, "below", Op::Binary(Binary::Sub), &[one, tanh])?;
        let bend = self.node(node, "bend", mul(), &[share, below])?;
        let by_x = self.node(node, "by_x", mul(), &[bend, x])?;
        let along = self.node(node, "along", mul(), &[by_x, steep?])?;
        self.node(node, "whole", add(), &[share, along])
    }

    /// y (dy - sum(dy y)).
    pub(super) fn softmax(
        &mut self,
        node: &Node,
        s: Softmax,
        x: ValueId,
        dy: ValueId,
    ) -> Result<(), NotTrainable> {
        let (y, mul) = (node.outputs[0], || Op::Binary(Binary::Mul));
        let weighted = self.node(node, "weighted", mul(), &[dy, y])?;
        let sum = Reduce {
            kind: ReduceKind::Sum,
            axes: vec![s.axis],
            keepdims: true,
        };
        let sum = self.node(node, "sum", Op::Reduce(sum), &[weighted])?;
        let apart = self.node(node, "apart", Op::Binary(Binary::Sub), &[dy, sum])?;
        let dx = self.node(node, "dx", mul(), &[y, apart])?;
        Ok(self.add(x, dx)?)
    }
}
