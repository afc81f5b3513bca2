//! Nodes of constants, computed.
//!
//! Promises that no more is computed than the model's limits allow, that results
//! which only folded nodes read are dropped after their last reader, and so are
//! constants that nothing else holds.

use super::limits::{Allowance, Exceeded};
use super::{Model, Node, Origin, TensorType, Value, ValueId};
use crate::ops::{Op, OpError, Pool, Sampling};
use crate::quantised::dequantises;
use crate::reference;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{DType, Tensor};

/// Elements that one element of a result is computed from, where they are read
/// again for others.
fn depth(op: &Op, operands: &[Option<&Tensor>]) -> u64 {
    let shape = |i: usize| {
        operands
            .get(i)
            .copied()
            .flatten()
            .map_or(&[][..], Tensor::shape)
    };
    let product = |sizes: &[usize]| sizes.iter().map(|n| *n as u64).fold(1, u64::saturating_mul);
    match op {
        Op::Conv(_) | Op::ConvInteger(_) => product(shape(1).get(1..).unwrap_or_default()),
        Op::ConvTranspose(_) => {
            let channels = shape(1).first().map_or(1, |n| *n as u64);
            channels.saturating_mul(product(shape(1).get(2..).unwrap_or_default()))
        }
        Op::Col2Im(c) => product(&c.window),
        Op::MatMul | Op::MatMulInteger | Op::MatMulBlocks(_) => {
            product(shape(0).last_chunk::<1>().map_or(&[], |k| k))
        }
        Op::Gemm(g) => shape(0)
            .get(usize::from(!g.trans_a))
            .map_or(1, |k| *k as u64),
        Op::Contract(c) => {
            let axes = c
                .left
                .iter()
                .zip(shape(0))
                .chain(c.right.iter().zip(shape(1)));
            let extents: HashMap<char, usize> = axes.map(|(l, n)| (*l, *n)).collect();
            let summed = c.summed();
            let summed: Vec<usize> = summed
                .iter()
                .filter_map(|l| extents.get(l).copied())
                .collect();
            product(&summed)
        }
        Op::Pool(Pool { kernel, .. }) => product(kernel),
        Op::MaxPoolGradient(g) => product(&g.pool.kernel),
        Op::Resize(r) => {
            let taps = |s: &Sampling| r.taps(s).1;
            product(&r.axes.iter().flatten().map(taps).collect::<Vec<_>>())
        }
        Op::Lrn(l) => l.size as u64,
        Op::GridSample(g) => (g.taps() as u64).saturating_pow(shape(0).len() as u32),
        _ => 1,
    }
}

/// The results of a node are computed, if they may be.
fn take_node(
    allowance: &mut Allowance,
    op: &Op,
    operands: &[Option<&Tensor>],
    results: &[TensorType],
) -> Result<(), Exceeded> {
    let elements = results.iter().map(|t| t.len() as u64);
    let elements = elements.fold(0, u64::saturating_add);
    allowance.take_node(elements, depth(op, operands))
}

impl Model {
    /// So many elements are computed as constants of this model.
    ///
    /// # Errors
    /// If its limits do not allow that; nothing counts as computed then.
    pub fn take_elements(&mut self, elements: u64) -> Result<(), Exceeded> {
        self.allowance.take(elements)
    }

    /// The results of an operator on constants. `None` if an operand is no
    /// constant, if a result has more than `largest` elements, or if the model may
    /// compute no more ([`Model::take_elements`]).
    ///
    /// # Errors
    /// If the operator refuses the operands or their values; nothing counts as
    /// computed then.
    pub fn compute(
        &mut self,
        op: &Op,
        inputs: &[Option<ValueId>],
        largest: usize,
    ) -> Result<Option<Vec<Tensor>>, OpError> {
        let value = |v: &Option<ValueId>| match v {
            Some(v) => self.constant(*v).map(|t| Some(&**t)),
            None => Some(None),
        };
        let Some(operands) = inputs.iter().map(value).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let types: Vec<_> = inputs.iter().map(|v| v.map(|v| self[v].ty())).collect();
        let results = op.infer(&types)?;
        let mut allowance = self.allowance;
        if results.iter().any(|t| t.len() > largest)
            || take_node(&mut allowance, op, &operands, &results).is_err()
        {
            return Ok(None);
        }
        let values = reference::apply(op, &operands)?;
        self.allowance = allowance;
        Ok(Some(values))
    }

    /// The model with every node of constants replaced by its results, as far
    /// as the model may compute them ([`Model::take_elements`]). A node that refuses its values (an index out
    /// of range) stays, and fails when it is run. A value without elements is a
    /// constant, whatever makes it.
    pub fn folded(self) -> Model {
        self.folded_except(|_, _| false)
    }

    /// As [`Model::folded`], but constant bytes are not dequantised: products of them may
    /// become products of bytes.
    pub fn folded_to_bytes(self) -> Model {
        self.folded_except(dequantises)
    }

    fn folded_except(mut self, keep: impl Fn(&Node, &Model) -> bool) -> Model {
        let keep: Vec<bool> = self.nodes().map(|(_, n)| keep(n, &self)).collect();
        let mut known = self.take_constants();
        for (known, value) in known.iter_mut().zip(&self.values) {
            if value.ty().is_empty() {
                *known = Some(Arc::new(Tensor::zeros(value.dtype(), value.shape())));
            }
        }
        let users = self.users();
        let mut folded = vec![false; self.nodes.len()];
        let mut kept = users.is_output.clone();
        for (i, node) in self.nodes.iter().enumerate() {
            let results = match keep[i] {
                true => None,
                false => compute(node, &self.values, &known, &mut self.allowance),
            };
            match results {
                Some(results) => {
                    folded[i] = true;
                    for (v, t) in node.outputs.iter().zip(results) {
                        known[v.index()] = Some(Arc::new(t));
                    }
                }
                None => {
                    for v in node.inputs.iter().flatten() {
                        kept[v.index()] = true;
                    }
                }
            }
            for v in node.inputs.iter().flatten().chain(&node.outputs) {
                let read = users.of(*v).last();
                if !kept[v.index()] && read.is_none_or(|(last, _)| last.index() <= i) {
                    known[v.index()] = None;
                }
            }
        }
        let mut rewrite = self.start_rewrite(known);
        for (_, node) in self.nodes().filter(|(id, _)| !folded[id.index()]) {
            let mut new = rewrite.copy(node);
            for (v, new) in node.outputs.iter().zip(&mut new) {
                let (name, ty) = (&self[*v].name, self[*v].ty());
                if ty.is_empty() {
                    let nothing = Tensor::zeros(ty.dtype, &ty.shape);
                    *new = rewrite.target.add_constant(name, nothing);
                }
            }
            rewrite.bind_outputs(node, &new);
        }
        rewrite.finish()
    }

    /// The values of all constants, by id. What is left of them is empty.
    fn take_constants(&mut self) -> Vec<Option<Arc<Tensor>>> {
        let known = self.known();
        let nothing = Arc::new(Tensor::zeros(DType::F32, &[0]));
        for v in &mut self.values {
            if let Origin::Constant(t) = &mut v.origin {
                *t = nothing.clone();
            }
        }
        known
    }
}

/// The results of a node, if its operands are known and it may be computed.
fn compute(
    node: &Node,
    values: &[Value],
    known: &[Option<Arc<Tensor>>],
    allowance: &mut Allowance,
) -> Option<Vec<Tensor>> {
    let value = |v: &Option<ValueId>| match v {
        Some(v) => known[v.index()].as_deref().map(Some),
        None => Some(None),
    };
    let operands: Vec<_> = node.inputs.iter().map(value).collect::<Option<_>>()?;
    let results: Vec<_> = node
        .outputs
        .iter()
        .map(|v| values[v.index()].ty().clone())
        .collect();
    take_node(allowance, &node.op, &operands, &results).ok()?;
    reference::apply(&node.op, &operands).ok()
}
