//! Precision: products and convolutions with weights on bf16.
//!
//! A f32 model keeps its inputs, outputs and everything else in f32. A convolution or a
//! product whose right operand is a constant gets both factors rounded to bf16, 8 bits of
//! their 24; sums stay in f32 where the result is cast back at once, which this writes.
//! So weights take half the bytes, and targets with dot products of bf16 use them.

use crate::model::{Model, Node, Rewrite, ValueId};
use crate::ops::{Binary, Gemm, Op, Reshape};
use crate::simplify::simplify;
use std::collections::HashMap;
use std::convert::Infallible;
use tensor::{DType, Tensor};

/// Terms of a dot product of bf16: with an odd number of channels nothing is gained.
const TERMS: usize = 2;

/// Rounds the factors of products with weights to bf16. A model that has none stays as it is.
pub fn products_of_bf16(model: &Model) -> Model {
    let mut narrow = HashMap::new();
    let Ok(model) = simplify(model).rewrite(|r, _, node| {
        let mut pass = Pass {
            name: &node.name,
            r,
            narrow: &mut narrow,
        };
        Ok::<_, Infallible>(match pass.narrowed(node) {
            Some(value) => vec![value],
            None => pass.r.copy(node),
        })
    });
    model
}

/// One node's turn. Values are those of the new model.
struct Pass<'p, 'r> {
    name: &'p str,
    r: &'p mut Rewrite<'r>,
    /// Values that were rounded before.
    narrow: &'p mut HashMap<ValueId, ValueId>,
}

impl Pass<'_, '_> {
    fn narrowed(&mut self, node: &Node) -> Option<ValueId> {
        let inputs = self.r.operands(node);
        let operand = |i: usize| inputs.get(i).copied().flatten();
        let (x, w) = (operand(0)?, operand(1)?);
        let is_f32 = |me: &Self, v: ValueId| me.r.target[v].dtype() == DType::F32;
        let weights = self.r.target.constant(w)?;
        let (rank, first) = (weights.shape().len(), weights.shape().first().copied());
        let terms = match &node.op {
            Op::Conv(c) if c.groups == 1 => weights.shape().get(1).copied(),
            Op::MatMul if rank == 2 => first,
            Op::Gemm(_) => first,
            _ => None,
        };
        if terms? % TERMS != 0 || !is_f32(self, x) || !is_f32(self, w) {
            return None;
        }
        let factors = [self.rounded(x), self.rounded(w)];
        match &node.op {
            Op::Gemm(g) => Some(self.gemm(g, factors, operand(2))),
            op => {
                let product = self.product(op.clone(), factors);
                Some(match operand(2) {
                    Some(bias) => self.with_bias(product, bias),
                    None => product,
                })
            }
        }
    }

    fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let value = self.r.target.add(self.name, op, operands);
        value.expect("a product takes operands of the types and shapes that it had")
    }

    /// A value in bf16; a constant at once.
    fn rounded(&mut self, v: ValueId) -> ValueId {
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
