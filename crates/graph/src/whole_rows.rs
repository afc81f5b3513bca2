//! Gathers of single elements whose indices are the same for all elements within a position of the axis: they
//! gather whole parts of the operand, which [`Gather`] copies side by side, or which are a slice if the indices are in a row.
//!
//! Exporters spread indices of rows over what is in the rows. Owns how such indices are recognised, constant or spread by
//! [`Op::Expand`], and the rewrite of models. Indices that vary along further axes stay as they are.

use crate::model::{Model, Node, Rewrite, ValueId};
use crate::ops::{Gather, Op, Reshape};
use std::convert::Infallible;
use tensor::{Tensor, row_major_strides};

/// The model with gathers of parts instead of single elements.
pub(crate) fn gathers_of_parts(model: &Model) -> Model {
    let Ok(model) = model.rewrite(|r, _, node| {
        let made = part_indices(r, node);
        Ok::<_, Infallible>(made.map_or_else(|| r.copy(node), |v| vec![v]))
    });
    model
}

fn part_indices(r: &mut Rewrite, node: &Node) -> Option<ValueId> {
    let Op::GatherElements(g) = node.op else {
        return None;
    };
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let (own, shape) = (r.source[x].shape(), r.source[indices].shape());
    let whole = (0..own.len()).all(|d| d == g.axis || own[d] == shape[d]);
    let is_part = (0..own.len()).any(|d| d != g.axis && own[d] > 1);
    if !whole || !is_part || r.source[node.output()].ty().is_empty() {
        return None;
    }
    let count = shape[g.axis];
    let along = match r.source.constant(indices) {
        Some(t) => {
            let along = along_axis(t, g.axis)?;
            let name = r.source[indices].name().to_string();
            r.target.add_constant(&name, along)
        }
        None => {
            let (producer, _) = r.source.producer(indices)?;
            let spread = &r.source[producer];
            let from = r.source[spread.input(0)?].shape();
            let lead = shape.len().checked_sub(from.len())?;
            let one_index = |(d, n): (usize, &usize)| *n == 1 || lead + d == g.axis;
            let spreads = matches!(spread.op, Op::Expand(_));
            if !spreads || !from.iter().enumerate().all(one_index) {
                return None;
            }
            let source = r.operands(spread)[0]?;
            if r.target[source].ty().len() != count {
                return None;
            }
            let flat = Op::Reshape(Reshape { shape: vec![count] });
            let flat = r.target.add(&node.name, flat, &[source]);
            flat.expect("the elements are the same")
        }
    };
    let x = r.operands(node)[0]?;
    let gather = Op::Gather(Gather { axis: g.axis });
    let made = r.target.add(&node.name, gather, &[x, along]);
    Some(made.expect("the parts fit"))
}

/// The indices along an axis, if they vary along no other one.
fn along_axis(t: &Tensor, axis: usize) -> Option<Tensor> {
    let (count, stride) = (t.shape()[axis], row_major_strides(t.shape())[axis]);
    let along: Vec<i64> = (0..count).map(|i| t.get_i64(i * stride)).collect();
    let same = |i: usize| t.get_i64(i) == along[i / stride % count];
    let indices = Tensor::from_slice(&[count], &along);
    (0..t.len()).all(same).then_some(indices)
}
