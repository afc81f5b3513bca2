//! Precision: products and convolutions on bf16.
//!
//! A f32 model keeps its inputs, outputs and everything else in f32. A convolution or a
//! product whose right operand is a constant gets both factors rounded to bf16, 8 bits of
//! their 24; sums stay in f32 where the result is cast back at once, which this writes.
//! So weights take half the bytes, and targets with dot products of bf16 use them. Products of
//! two computed values are rounded too where the target gains from that.
//!
//! Reshapes and transposes between a value and a product move rounded numbers.

use crate::model::{Model, Node, NodeId, Rewrite, Users, ValueId};
use crate::ops::{Binary, Gemm, Op, Reshape};
use crate::quantised::Requantised;
use crate::simplify::simplify_as;
use std::collections::HashMap;
use std::convert::Infallible;
use tensor::{DType, Tensor};

/// Terms of a dot product of bf16: with an odd number of channels nothing is gained.
const TERMS: usize = 2;
/// Channels of an image, at most, that plans fill up to so many.
const FILLED: usize = 4;

/// Channels, and maps, of a block: groups of whole blocks are products of their own.
const BLOCK: usize = 16;
/// Channels of a group, at least, of which plans fill up a block with several.
const FEWEST_OF_GROUP: usize = 4;

/// Rows and terms of a product of two computed values, at least: fewer are not worth the
/// rounding. Chosen by hand.
const FEWEST: [usize; 2] = [4, 16];

/// Which products are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrowed {
    /// Those with a constant on the right.
    Weights,
    /// Those of two computed values as well, and convolutions in groups of a part of a block.
    All,
}

/// Rounds the factors of products to bf16. A model that has none stays as it is.
pub fn products_of_bf16(model: &Model, requantised: Requantised, which: Narrowed) -> Model {
    let mut narrow = HashMap::new();
    let model = simplify_as(model, requantised);
    let users = model.users();
    let Ok(model) = model.rewrite(|r, _, node| {
        let mut pass = Pass {
            name: &node.name,
            r,
            users: &users,
            which,
            narrow: &mut narrow,
        };
        let made = pass.narrowed(node).or_else(|| pass.added(node));
        Ok::<_, Infallible>(made.map_or_else(|| pass.r.copy(node), |value| vec![value]))
    });
    model
}

/// One node's turn.
struct Pass<'p, 'r> {
    name: &'p str,
    r: &'p mut Rewrite<'r>,
    /// Of the old model.
    users: &'p Users,
    which: Narrowed,
    /// Values of the new model that were rounded before.
    narrow: &'p mut HashMap<ValueId, ValueId>,
}

impl Pass<'_, '_> {
    fn narrowed(&mut self, node: &Node) -> Option<ValueId> {
        let (x, w) = (node.input(0)?, node.input(1)?);
        let source = self.r.source;
        if [x, w].map(|v| source[v].dtype()) != [DType::F32; 2] || !self.gains(node, x, w) {
            return None;
        }
        let factors = [self.rounded(x), self.rounded(w)];
        let third = node.input(2).map(|v| self.r.value(v));
        match &node.op {
            Op::Gemm(g) => Some(self.gemm(g, factors, third)),
            op => {
                let product = self.product(op.clone(), factors);
                Some(match third {
                    Some(bias) => self.with_bias(product, bias),
                    None => product,
                })
            }
        }
    }

    /// A sum of two values, of which those that nothing but convolutions and sums reads are the rounded ones: no kernel
    /// stores them in f32 as well. Sums of transformers stay: rounded, they triple the error of BERT and save 4%.
    fn added(&mut self, node: &Node) -> Option<ValueId> {
        if node.op != Op::Binary(Binary::Add) {
            return None;
        }
        let mut operands = [node.input(0)?, node.input(1)?].map(|v| (v, self.r.value(v)));
        let mut any = false;
        for (old, new) in &mut operands {
            let narrow = self.narrow.get(new).copied();
            if let Some(narrow) = narrow.filter(|_| self.is_for_convolutions(*old)) {
                *new = self.add(Op::Cast(DType::F32), &[narrow]);
                any = true;
            }
        }
        any.then(|| self.add(node.op.clone(), &operands.map(|(_, new)| new)))
    }

    /// Whether convolutions that are rounded, and sums, read a computed value, and nothing else does.
    fn is_for_convolutions(&self, v: ValueId) -> bool {
        let source = self.r.source;
        let is_either = |(n, _): &(NodeId, usize)| {
            let node = &source[*n];
            let factors = node.input(0).zip(node.input(1));
            let narrow = factors.is_some_and(|(x, w)| self.gains(node, x, w));
            narrow && matches!(node.op, Op::Conv(_)) || node.op == Op::Binary(Binary::Add)
        };
        let computed = source.producer(v).is_some();
        computed && !self.users.is_output(v) && self.users.of(v).iter().all(is_either)
    }

    /// Whether a node is a product that takes less time on bf16.
    fn gains(&self, node: &Node, x: ValueId, w: ValueId) -> bool {
        let source = self.r.source;
        let shape = source[w].shape();
        if source.constant(w).is_none() {
            return self.which == Narrowed::All && self.is_of_two_values(node, x, w);
        }
        let terms = match &node.op {
            Op::Conv(c) if c.groups == 1 => shape.get(1).copied(),
            Op::Conv(c) => self.in_groups(shape, c.groups),
            Op::MatMul if shape.len() == 2 => shape.first().copied(),
            Op::Gemm(_) => shape.first().copied(),
            _ => None,
        };
        let is_image = matches!(&node.op, Op::Conv(_)) && shape.len() == 4;
        terms.is_some_and(|n| n % TERMS == 0 || is_image && n <= FILLED)
    }

    /// Whether a node is a product of two computed matrices that is large enough. Plans fill up
    /// the terms of attention's second product, which follows a softmax.
    fn is_of_two_values(&self, node: &Node, x: ValueId, w: ValueId) -> bool {
        let source = self.r.source;
        let ([.., rows, terms], [.., _, _]) = (source[x].shape(), source[w].shape()) else {
            return false;
        };
        let is_large = *rows >= FEWEST[0] && *terms >= FEWEST[1];
        let is_computed = node.op == Op::MatMul && source.constant(x).is_none();
        let is_even = terms % TERMS == 0 || self.is_softmax(x);
        is_computed && is_large && is_even
    }

    fn is_softmax(&self, v: ValueId) -> bool {
        let Some((producer, _)) = self.r.source.producer(v) else {
            return false;
        };
        let node = &self.r.source[producer];
        match &node.op {
            Op::Softmax(_) => self.users.sole(v).is_some(),
            Op::Reshape(_) => node.input(0).is_some_and(|v| self.is_softmax(v)),
            _ => false,
        }
    }

    /// The channels of a group, if its channels and its maps are whole blocks, or such a part of one
    /// as is filled up.
    fn in_groups(&self, weights: &[usize], groups: usize) -> Option<usize> {
        let (maps, channels) = (weights.first()? / groups, *weights.get(1)?);
        let is_whole = maps % BLOCK == 0 && channels % BLOCK == 0;
        let is_part =
            channels == maps && BLOCK.is_multiple_of(channels) && channels >= FEWEST_OF_GROUP;
        (is_whole || is_part && self.which == Narrowed::All).then_some(channels)
    }

    fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let value = self.r.target.add(self.name, op, operands);
        value.expect("a product takes operands of the types and shapes that it had")
    }

    /// A value of the old model in bf16; a constant at once. What only moves elements for this
    /// node moves rounded ones.
    fn rounded(&mut self, old: ValueId) -> ValueId {
        let source = self.r.source;
        let moved = source.producer(old).map(|(n, _)| &source[n]);
        let moved = moved.filter(|n| matches!(n.op, Op::Reshape(_) | Op::Transpose(_)));
        if let Some(node) = moved.filter(|_| self.users.sole(old).is_some())
            && let Some(from) = node.input(0)
        {
            let from = self.rounded(from);
            return self.add(node.op.clone(), &[from]);
        }
        let v = self.r.value(old);
        if let Some(narrow) = self.narrow.get(&v) {
            return *narrow;
        }
        let narrow = match self.r.target.constant(v).cloned() {
            Some(t) => {
                let mut rounded = Tensor::zeros(DType::BF16, t.shape());
                for i in 0..t.len() {
                    rounded.set_f64(i, t.get_f64(i));
                }
                let name = self.r.target[v].name().to_string();
                self.r.target.add_result(&name, rounded)
            }
            None => self.add(Op::Cast(DType::BF16), &[v]),
        };
        self.narrow.insert(v, narrow);
        narrow
    }

    /// In f32 again: what follows is one kernel with the product, whose sums are not rounded.
    fn product(&mut self, op: Op, factors: [ValueId; 2]) -> ValueId {
        let product = self.add(op, &factors);
        self.add(Op::Cast(DType::F32), &[product])
    }

    /// A bias of each map of a convolution, in f32.
    fn with_bias(&mut self, product: ValueId, bias: ValueId) -> ValueId {
        let mut shape = vec![1; self.r.target[product].shape().len()];
        shape[1] = self.r.target[product].shape()[1];
        let bias = self.add(Op::Reshape(Reshape { shape }), &[bias]);
        self.add(Op::Binary(Binary::Add), &[product, bias])
    }

    fn gemm(&mut self, g: &Gemm, factors: [ValueId; 2], addend: Option<ValueId>) -> ValueId {
        let product = Gemm {
            beta: 1.0,
            ..g.clone()
        };
        let product = self.product(Op::Gemm(product), factors);
        let Some(mut addend) = addend else {
            return product;
        };
        if g.beta != 1.0 {
            let mut beta = Tensor::zeros(DType::F32, &[]);
            beta.set_f64(0, f64::from(g.beta));
            let beta = self.r.target.add_result(self.name, beta);
            addend = self.add(Op::Binary(Binary::Mul), &[addend, beta]);
        }
        self.add(Op::Binary(Binary::Add), &[product, addend])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Conv;
    use crate::reference::{Keep, evaluate};
    use std::sync::Arc;
    use tensor::{Fill, compare, fill_tensor};

    fn filled(shape: &[usize], seed: u64) -> Tensor {
        fill_tensor(DType::F32, shape, Fill::Uniform { lo: -1.0, hi: 1.0 }, seed)
    }

    /// A convolution of `channels`, with a bias, and a dense layer on its pixels.
    fn model(channels: usize) -> Model {
        let mut m = Model::new("model", 17);
        let x = m.add_input("x", DType::F32, &[1, channels, 3, 4]);
        let w = m.add_constant("w", filled(&[6, channels, 1, 1], 1));
        let bias = m.add_constant("b", filled(&[6], 2));
        let y = m
            .add("conv", Op::Conv(Conv::unit(2)), &[x, w, bias])
            .unwrap();
        let shape = vec![6, 12];
        let y = m.add("flat", Op::Reshape(Reshape { shape }), &[y]).unwrap();
        let gemm = Gemm {
            alpha: 0.5,
            beta: 2.0,
            trans_a: false,
            trans_b: false,
        };
        let (w, c) = (filled(&[12, 5], 3), filled(&[5], 4));
        let (w, c) = (m.add_constant("w2", w), m.add_constant("c", c));
        let y = m.add("gemm", Op::Gemm(gemm), &[y, w, c]).unwrap();
        m.add_output(y);
        m
    }

    fn narrowed(m: &Model) -> Model {
        products_of_bf16(m, Requantised::Folded, Narrowed::All)
    }

    fn of_bf16(m: &Model) -> usize {
        let on_bf16 = |n: &&Node| {
            let product = matches!(n.op, Op::Conv(_) | Op::Gemm(_) | Op::MatMul);
            product && n.input(1).is_some_and(|w| m[w].dtype() == DType::BF16)
        };
        m.nodes().map(|(_, n)| n).filter(on_bf16).count()
    }

    #[test]
    fn products_with_weights_take_bf16_and_the_rest_stays() {
        assert_eq!(of_bf16(&narrowed(&model(4))), 2);
        // Of an odd number of channels there are no pairs, unless few are filled up.
        let count = |channels| of_bf16(&narrowed(&model(channels)));
        assert_eq!([count(3), count(5)], [2, 1]);
        let m = narrowed(&model(4));
        let types = |all: &[ValueId]| -> Vec<DType> { all.iter().map(|v| m[*v].dtype()).collect() };
        assert_eq!(types(m.inputs()), [DType::F32]);
        assert_eq!(types(m.outputs()), [DType::F32]);
    }

    #[test]
    fn sums_read_what_a_convolution_reads() {
        // What both read, and the casts to f32 beside those of products.
        let of = |is_output: bool| {
            let mut m = Model::new("model", 17);
            let x = m.add_input("x", DType::F32, &[1, 4, 3, 4]);
            let w = m.add_constant("w", filled(&[4, 4, 1, 1], 1));
            let conv = |m: &mut Model, x| m.add("conv", Op::Conv(Conv::unit(2)), &[x, w]).unwrap();
            let first = conv(&mut m, x);
            let second = conv(&mut m, first);
            let add = Op::Binary(Binary::Add);
            let y = m.add("sum", add, &[first, second]).unwrap();
            m.add_output(y);
            if is_output {
                m.add_output(first);
            }
            let m = narrowed(&m);
            let widened = |n: &&Node| n.op == Op::Cast(DType::F32);
            m.nodes().map(|(_, n)| n).filter(widened).count()
        };
        assert_eq!([of(false), of(true)], [3, 2]);
    }

    #[test]
    fn groups_of_whole_blocks_take_bf16_and_parts_of_one_where_they_are_filled() {
        let of = |groups: usize, depth: usize, which: Narrowed| {
            let mut m = Model::new("model", 17);
            let channels = groups * depth;
            let x = m.add_input("x", DType::F32, &[1, channels, 3, 4]);
            let w = m.add_constant("w", filled(&[channels, depth, 1, 1], 1));
            let conv = Conv {
                groups,
                ..Conv::unit(2)
            };
            let y = m.add("conv", Op::Conv(conv), &[x, w]).unwrap();
            m.add_output(y);
            of_bf16(&products_of_bf16(&m, Requantised::Folded, which))
        };
        let [weights, all] = [Narrowed::Weights, Narrowed::All];
        assert_eq!([of(3, 16, weights), of(2, 32, weights)], [1, 1]);
        assert_eq!([of(4, 8, weights), of(4, 8, all), of(8, 4, all)], [0, 1, 1]);
        // Depthwise, of few channels, and across blocks.
        assert_eq!([of(32, 1, all), of(8, 2, all), of(2, 24, all)], [0; 3]);
    }

    #[test]
    fn results_differ_by_the_rounding_of_factors() {
        let (f32s, halves) = (model(4), narrowed(&model(4)));
        let x = [Arc::new(filled(&[1, 4, 3, 4], 5))];
        let run = |m: &Model| evaluate(m, &x, Keep::Outputs).unwrap().outputs().remove(0);
        let error = compare(&run(&halves), &run(&f32s)).rel_l2;
        assert!(error > 1e-5 && error < 2.0f64.powi(-6), "{error}");
    }
}
