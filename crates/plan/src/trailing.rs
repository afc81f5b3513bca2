//! Reductions over axes on both sides of one that is kept go in two stages.
//!
//! `reduce [n, c, h, w] over n, h, w` reads memory along h and w, but its results lie along c:
//! vectors along either would be in strides. Reducing h and w first is a reduction of contiguous
//! rows; few values are left to be reduced along n. Sums of floats may round otherwise.

use graph::ops::{Op, Reduce};
use graph::{Model, Node, Rewrite, ValueId};
use std::convert::Infallible;
use tensor::DType;

/// Elements of a row, at least: a vector on the widest CPUs.
const SHORTEST: usize = 16;

/// The model with such reductions in stages.
pub(crate) fn first(model: &Model) -> Model {
    let staged = model.rewrite(|r, _, node| {
        let new = match &node.op {
            Op::Reduce(reduce) => stages(r, node, reduce),
            _ => None,
        };
        Ok::<_, Infallible>(new.map_or_else(|| r.copy(node), |v| vec![v]))
    });
    let Ok(model) = staged;
    model
}

fn stages(r: &mut Rewrite, node: &Node, reduce: &Reduce) -> Option<ValueId> {
    let x = (*r.operands(node).first()?)?;
    let shape = r.target[x].shape();
    // Halves would be rounded between the stages.
    if matches!(r.target[x].dtype(), DType::F16 | DType::BF16) {
        return None;
    }
    let kept = (0..shape.len()).rposition(|axis| !reduce.axes.contains(&axis))?;
    let (outer, rows): (Vec<usize>, Vec<usize>) =
        reduce.axes.iter().partition(|axis| **axis < kept);
    let elements: usize = rows.iter().map(|axis| shape[*axis]).product();
    if outer.is_empty() || rows.is_empty() || elements < SHORTEST {
        return None;
    }
    let mut add = |axes: Vec<usize>, keepdims: bool, x: ValueId| {
        let kind = reduce.kind;
        let op = Op::Reduce(Reduce {
            kind,
            axes,
            keepdims,
        });
        let added = r.target.add_node(&node.name, op, &[Some(x)]);
        added.expect("fewer axes fit as all of them did")[0]
    };
    let partial = add(rows, reduce.keepdims, x);
    Some(add(outer, reduce.keepdims, partial))
}
