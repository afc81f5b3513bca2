//! Constant indices that step evenly: what they gather is a slice, and rows that they assign are a part of
//! a concatenation.
//!
//! Exporters write slices along several axes, assignments to slices and unfolded windows with indices that
//! they compute from positions. Owns how such indices are recognised, and the rewrites of models. Gathers
//! by indices of several axes stay gathers: whoever computes them asks [`EvenIndices`] for the element's place.

use crate::model::{Model, Node, Rewrite, ValueId};
use crate::ops::{Combine, Concat, Op, Reshape, Slice};
use std::convert::Infallible;
use tensor::{Tensor, row_major_strides};

/// Indices into an axis: the first one, and what is added for each step along each of their own axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvenIndices {
    pub first: i64,
    pub steps: Vec<i64>,
}

impl EvenIndices {
    /// Of indices into an axis of `n` elements, where negative ones count from the end; none if they step
    /// unevenly, if there are none, or if one is outside.
    pub fn of(indices: &Tensor, n: usize) -> Option<EvenIndices> {
        let n = n as i64;
        let at = |i: usize| match indices.get_i64(i) {
            index if index < 0 => index + n,
            index => index,
        };
        if indices.is_empty() {
            return None;
        }
        let strides = row_major_strides(indices.shape());
        let axes = || indices.shape().iter().zip(&strides);
        let first = at(0);
        let step = |(extent, stride): (&usize, &usize)| match extent {
            1 => 0,
            _ => at(*stride) - first,
        };
        let even = EvenIndices {
            first,
            steps: axes().map(step).collect(),
        };
        let holds = |i: usize| {
            let along = axes().zip(&even.steps);
            let moved = along.map(|((extent, stride), step)| (i / stride % extent) as i64 * step);
            (0..n).contains(&at(i)) && at(i) == first + moved.sum::<i64>()
        };
        (0..indices.len()).all(holds).then_some(even)
    }

    /// Of the indices of a gather.
    pub fn of_gather(model: &Model, node: &Node) -> Option<EvenIndices> {
        let Op::Gather(g) = node.op else {
            return None;
        };
        let n = *model[node.input(0)?].shape().get(g.axis)?;
        EvenIndices::of(model.constant(node.input(1)?)?, n)
    }
}

/// The model with slices and concatenations instead of indices in a row.
pub(crate) fn without_even_indices(model: &Model) -> Model {
    let Ok(model) = model.rewrite(|r, _, node| {
        let made = match node.op {
            Op::Gather(_) => slice(r, node),
            Op::ScatterNd(s) if s.combine == Combine::Replace => assigned(r, node),
            _ => None,
        };
        Ok::<_, Infallible>(made.map_or_else(|| r.copy(node), |v| vec![v]))
    });
    model
}

/// What indices along one axis gather. They may have more axes, of extent 1, or none.
fn slice(r: &mut Rewrite, node: &Node) -> Option<ValueId> {
    let Op::Gather(g) = node.op else {
        return None;
    };
    let even = EvenIndices::of_gather(r.source, node)?;
    let indices = r.source[node.input(1)?].shape().iter();
    let mut long = indices.zip(&even.steps).filter(|(n, _)| **n > 1);
    let (size, step) = long.next().map_or((1, 1), |(n, step)| (*n, *step));
    if step == 0 || long.next().is_some() {
        return None;
    }
    let x = r.operands(node)[0]?;
    let part = part_along(r, node, (x, g.axis), (even.first as usize, step, size));
    let shape = r.source[node.output()].shape().to_vec();
    if r.target[part].shape() == shape {
        return Some(part);
    }
    let reshape = Op::Reshape(Reshape { shape });
    Some(
        r.target
            .add(&node.name, reshape, &[part])
            .expect("the elements are the same"),
    )
}

/// A copy of an operand, some of whose rows along the first axis are others.
fn assigned(r: &mut Rewrite, node: &Node) -> Option<ValueId> {
    let indices = r.source.constant(node.input(1)?)?;
    let rows = r.source[node.output()].shape()[0];
    let [size, 1] = indices.shape()[..] else {
        return None;
    };
    let even = EvenIndices::of(indices, rows)?;
    if size > 1 && even.steps[0] != 1 {
        return None;
    }
    let inputs = r.operands(node);
    let (x, updates) = (inputs[0]?, inputs[2]?);
    let first = even.first as usize;
    let mut parts = Vec::new();
    if first > 0 {
        parts.push(part_along(r, node, (x, 0), (0, 1, first)));
    }
    parts.push(updates);
    let behind = first + size;
    if behind < rows {
        parts.push(part_along(r, node, (x, 0), (behind, 1, rows - behind)));
    }
    if parts.len() == 1 {
        return Some(updates);
    }
    let concat = Op::Concat(Concat { axis: 0 });
    Some(
        r.target
            .add(&node.name, concat, &parts)
            .expect("the parts fit"),
    )
}

/// Elements along an axis: the first, the step and how many.
fn part_along(
    r: &mut Rewrite,
    node: &Node,
    (x, axis): (ValueId, usize),
    (first, step, size): (usize, i64, usize),
) -> ValueId {
    let mut sizes = r.target[x].shape().to_vec();
    let (mut starts, mut steps) = (vec![0; sizes.len()], vec![1; sizes.len()]);
    (starts[axis], steps[axis], sizes[axis]) = (first, step, size);
    let slice = Op::Slice(Slice {
        starts,
        steps,
        sizes,
    });
    r.target
        .add(&node.name, slice, &[x])
        .expect("the elements are inside")
}
