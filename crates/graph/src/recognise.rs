//! Operators that exporters write out in smaller ones, found again: layer
//! normalisation, the Gaussian error linear unit, and powers by constants.
//!
//! Matches the forms that PyTorch and TensorFlow exporters write, in any order
//! of commutative operands. What it does not recognise stays as it is.

use crate::model::{Model, Node, ValueId};
use crate::ops::{Binary, Gelu, LayerNorm, Op, Reduce, ReduceKind, Unary, broadcast_shape};
use std::convert::Infallible;

/// What a node, with nodes before it, computes.
struct Found {
    op: Op,
    inputs: Vec<ValueId>,
}

/// Replaces recognised groups. The nodes they consisted of are left for
/// dead-code removal.
pub(crate) fn recognise(model: &Model) -> Model {
    let graph = Graph { model };
    let Ok(model) = model.rewrite(|r, _, node| {
        let found = graph
            .layer_norm(node)
            .or_else(|| graph.gelu(node))
            .or_else(|| graph.power(node))
            // Constants of a higher rank make the result one of a higher rank.
            .filter(|f| model[f.inputs[0]].ty() == model[node.output()].ty());
        let Some(found) = found else {
            return Ok::<_, Infallible>(r.copy(node));
        };
        let inputs: Vec<_> = found.inputs.iter().map(|v| Some(r.value(*v))).collect();
        let outputs = r.target.add_node(&node.name, found.op, &inputs);
        Ok(outputs.expect("a recognised operator takes the operands it was found with"))
    });
    model
}

struct Graph<'a> {
    model: &'a Model,
}

impl Graph<'_> {
    fn node(&self, v: ValueId) -> Option<&Node> {
        self.model.producer(v).map(|(n, _)| self.model.node(n))
    }

    fn unary(&self, v: ValueId, op: Unary) -> Option<ValueId> {
        let node = self.node(v)?;
        if node.op == Op::Unary(op) {
            node.input(0)
        } else {
            None
        }
    }

    fn binary(&self, v: ValueId, op: Binary) -> Option<(ValueId, ValueId)> {
        let node = self.node(v)?;
        if node.op == Op::Binary(op) {
            Some((node.input(0)?, node.input(1)?))
        } else {
            None
        }
    }

    /// The operands of a commutative operator in both orders, or none.
    fn either(&self, v: ValueId, op: Binary) -> Vec<(ValueId, ValueId)> {
        self.binary(v, op)
            .map_or_else(Vec::new, |(a, b)| vec![(a, b), (b, a)])
    }

    fn scalar(&self, v: ValueId) -> Option<f64> {
        let t = self.model.constant(v)?;
        (t.len() == 1).then(|| t.get_f64(0))
    }

    /// Whether `v` is the constant `want`, as exporters round it.
    fn is(&self, v: ValueId, want: f64) -> bool {
        self.scalar(v)
            .is_some_and(|c| (c - want).abs() <= want.abs() * 1e-5)
    }

    /// x, if `v` is x^2.
    fn square(&self, v: ValueId) -> Option<ValueId> {
        if let Some((a, b)) = self.binary(v, Binary::Mul) {
            return (a == b).then_some(a);
        }
        let (x, exponent) = self.binary(v, Binary::Pow)?;
        (self.scalar(exponent) == Some(2.0)).then_some(x)
    }

    /// x, if `v` is its square root, or x^(1/2).
    fn root(&self, v: ValueId) -> Option<ValueId> {
        if let Some(x) = self.unary(v, Unary::Sqrt) {
            return Some(x);
        }
        let (x, exponent) = self.binary(v, Binary::Pow)?;
        (self.scalar(exponent) == Some(0.5)).then_some(x)
    }

    /// x, if `v` is x^3.
    fn cube(&self, v: ValueId) -> Option<ValueId> {
        if let Some((x, exponent)) = self.binary(v, Binary::Pow) {
            return (self.scalar(exponent) == Some(3.0)).then_some(x);
        }
        let mut forms = self.either(v, Binary::Mul).into_iter();
        forms.find_map(|(x, s)| (self.square(s) == Some(x)).then_some(x))
    }

    /// x and the first normalised axis, if `v` is the mean of x over its last axes.
    fn mean(&self, v: ValueId) -> Option<(ValueId, usize)> {
        let node = self.node(v)?;
        let Op::Reduce(Reduce {
            kind: ReduceKind::Mean,
            axes,
            keepdims: true,
        }) = &node.op
        else {
            return None;
        };
        let x = node.input(0)?;
        let first = *axes.first()?;
        axes.iter()
            .copied()
            .eq(first..self.model[x].ty().rank())
            .then_some((x, first))
    }

    /// (x - mean) / sqrt(variance + epsilon) scale + bias.
    fn layer_norm(&self, node: &Node) -> Option<Found> {
        let out = *node.outputs.first()?;
        for (scaled, bias) in self.either(out, Binary::Add) {
            for (normal, scale) in self.either(scaled, Binary::Mul) {
                let Some((x, axis, epsilon)) = self.normalised(normal) else {
                    continue;
                };
                let shape = self.model[x].shape();
                let fits = |v: ValueId| {
                    let t = self.model[v].shape();
                    t.len() <= shape.len() - axis
                        && broadcast_shape(t, shape).is_ok_and(|s| s == shape)
                };
                if fits(scale) && fits(bias) {
                    let op = Op::LayerNorm(LayerNorm {
                        axis,
                        epsilon,
                        statistics: false,
                    });
                    return Some(Found {
                        op,
                        inputs: vec![x, scale, bias],
                    });
                }
            }
        }
        None
    }

    /// x, the first normalised axis and epsilon, if `v` is x normalised.
    fn normalised(&self, v: ValueId) -> Option<(ValueId, usize, f32)> {
        let (centred, deviation) = self.binary(v, Binary::Div)?;
        let (x, mean) = self.binary(centred, Binary::Sub)?;
        let (of, axis) = self.mean(mean)?;
        let shifted = self.root(deviation)?;
        let forms = self.either(shifted, Binary::Add);
        let (variance, epsilon) = forms
            .into_iter()
            .find_map(|(v, e)| Some((v, self.scalar(e)?)))?;
        let (squares, variance_axis) = self.mean(variance)?;
        // Exporters may compute the difference twice.
        let base = self.square(squares)?;
        let same = base == centred || self.binary(base, Binary::Sub) == Some((x, mean));
        (of == x && variance_axis == axis && same).then_some((x, axis, epsilon as f32))
    }

    /// x/2 (1 + erf(..)) or x/2 (1 + tanh(..)), however the product is nested.
    fn gelu(&self, node: &Node) -> Option<Found> {
        let out = *node.outputs.first()?;
        for (p, q) in self.either(out, Binary::Mul) {
            let halves = |v: ValueId, want: ValueId| {
                self.either(v, Binary::Mul)
                    .iter()
                    .any(|(a, h)| *a == want && self.is(*h, 0.5))
            };
            let gates = |v: ValueId| self.gate(v).map(|(x, kind)| (v, x, kind));
            let direct = gates(q).filter(|(_, x, _)| halves(p, *x));
            let outside = || {
                let pairs = if self.is(q, 0.5) {
                    self.either(p, Binary::Mul)
                } else {
                    Vec::new()
                };
                pairs
                    .into_iter()
                    .find_map(|(x, g)| gates(g).filter(|(_, of, _)| *of == x))
            };
            let inside = || {
                let mut pairs = self.either(q, Binary::Mul).into_iter();
                pairs.find_map(|(g, h)| gates(g).filter(|(_, x, _)| *x == p && self.is(h, 0.5)))
            };
            if let Some((_, x, kind)) = direct.or_else(outside).or_else(inside) {
                return Some(Found {
                    op: Op::Unary(Unary::Gelu(kind)),
                    inputs: vec![x],
                });
            }
        }
        None
    }

    /// x, if `v` is 1 + erf(x / sqrt 2) or 1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)).
    fn gate(&self, v: ValueId) -> Option<(ValueId, Gelu)> {
        let mut forms = self.either(v, Binary::Add).into_iter();
        let inner = forms.find_map(|(inner, one)| self.is(one, 1.0).then_some(inner))?;
        if let Some(scaled) = self.unary(inner, Unary::Erf) {
            if let Some((x, by)) = self.binary(scaled, Binary::Div) {
                return self
                    .is(by, std::f64::consts::SQRT_2)
                    .then_some((x, Gelu::Exact));
            }
            let mut forms = self.either(scaled, Binary::Mul).into_iter();
            let scale = std::f64::consts::FRAC_1_SQRT_2;
            return forms.find_map(|(x, by)| self.is(by, scale).then_some((x, Gelu::Exact)));
        }
        let scaled = self.unary(inner, Unary::Tanh)?;
        let scale = (2.0 / std::f64::consts::PI).sqrt();
        let mut forms = self.either(scaled, Binary::Mul).into_iter();
        let sum = forms.find_map(|(sum, by)| self.is(by, scale).then_some(sum))?;
        let mut forms = self.either(sum, Binary::Add).into_iter();
        forms.find_map(|(x, cubic)| {
            let mut parts = self.either(cubic, Binary::Mul).into_iter();
            let matches = parts.any(|(c, by)| self.is(by, 0.044715) && self.cube(c) == Some(x));
            matches.then_some((x, Gelu::Tanh))
        })
    }

    /// x^2 and x^-1 of floats. Not x^(1/2), which is no root of -0 and minus infinity.
    fn power(&self, node: &Node) -> Option<Found> {
        let (x, exponent) = self.binary(*node.outputs.first()?, Binary::Pow)?;
        let value = self.model[x].ty();
        if !value.dtype.is_float() || self.model[node.output()].shape() != value.shape {
            return None;
        }
        let (op, inputs) = match self.scalar(exponent)? {
            2.0 => (Op::Binary(Binary::Mul), vec![x, x]),
            -1.0 => (Op::Unary(Unary::Reciprocal), vec![x]),
            _ => return None,
        };
        Some(Found { op, inputs })
    }
}
