//! Leading axes of matrix products become one: [1,128,768] [768,768] is a
//! product of two matrices, and equal batch axes are one.
//!
//! The result gets its shape back by a reshape, which then moves down past
//! operators that do not care about leading axes (element-wise ones, softmax
//! and layer normalisation over trailing axes), so that they keep fusing with
//! the product and become tasks that do not depend on how rows are counted.
//! Reshapes cost nothing. Values stay the same.

use crate::fuse::is_elementwise;
use graph::ops::{LayerNorm, Op, Reduce, Reshape, Softmax};
use graph::{Model, Node, Rewrite, Users, ValueId};
use std::convert::Infallible;
use tensor::Tensor;

/// The model with leading axes merged.
pub(crate) fn collapse(model: &Model) -> Model {
    let users = model.users();
    let collapsed = model.rewrite(|r, _, node| {
        let merges = |axis| users_merge(model, &users, node, axis);
        let new = match &node.op {
            Op::MatMul | Op::MatMulInteger => matmul(r, node),
            Op::Softmax(s) => rows(r, node, s.axis),
            Op::LayerNorm(l) if !l.statistics && merges(l.axis) => rows(r, node, l.axis),
            Op::Reduce(Reduce {
                axes,
                keepdims: true,
                ..
            }) if axes.len() == 1 => reduction(r, node, axes[0]),
            op if is_elementwise(op) && !matches!(op, Op::BatchNorm(_)) => elementwise(r, node),
            _ => None,
        };
        Ok::<_, Infallible>(new.map_or_else(|| r.copy(node), |v| vec![v]))
    });
    let Ok(model) = collapsed;
    model.without_dead_code()
}

const FITS: &str = "reshaped operands fit as the originals did";

/// `v` under another shape: what it was reshaped from, if that has the shape.
fn reshape(r: &mut Rewrite, v: ValueId, shape: &[usize]) -> ValueId {
    if r.target[v].shape() == shape {
        return v;
    }
    let name = r.target[v].name().to_string();
    if let Some(t) = r.target.constant(v) {
        let t = Tensor::clone(t).reshaped(shape);
        return r.target.add_constant(&name, t);
    }
    let producer = r.target.producer(v).map(|(n, _)| r.target[n].clone());
    if let Some((Op::Reshape(_), Some(source))) = producer.as_ref().map(|p| (&p.op, p.input(0))) {
        return reshape(r, source, shape);
    }
    let shape = shape.to_vec();
    let op = Op::Reshape(Reshape { shape });
    r.target.add(&name, op, &[v]).expect(FITS)
}

fn add(r: &mut Rewrite, node: &Node, op: Op, inputs: &[ValueId]) -> ValueId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    r.target.add_node(&node.name, op, &inputs).expect(FITS)[0]
}

/// The node's result in its own shape.
fn restore(r: &mut Rewrite, node: &Node, v: ValueId) -> ValueId {
    let shape = r.source[node.output()].shape().to_vec();
    reshape(r, v, &shape)
}

fn matmul(r: &mut Rewrite, node: &Node) -> Option<ValueId> {
    let inputs: Vec<ValueId> = r.operands(node).into_iter().flatten().collect();
    let (a, b) = (inputs[0], inputs[1]);
    let (sa, sb) = (r.target[a].shape().to_vec(), r.target[b].shape().to_vec());
    if sa.len() < 3 || sb.len() < 2 {
        return None;
    }
    let (lead, [m, k]) = (&sa[..sa.len() - 2], [sa[sa.len() - 2], sa[sa.len() - 1]]);
    let (other, n) = (&sb[..sb.len() - 2], sb[sb.len() - 1]);
    let batch: usize = lead.iter().product();
    let (left, right) = if other.iter().all(|d| *d == 1) && lead.len() >= other.len() {
        (vec![batch * m, k], vec![k, n])
    } else if lead == other && lead.len() > 1 {
        (vec![batch, m, k], vec![batch, k, n])
    } else {
        return None;
    };
    let (a, b) = (reshape(r, a, &left), reshape(r, b, &right));
    let y = add(r, node, node.op.clone(), &[a, b]);
    Some(restore(r, node, y))
}

/// Softmax or layer normalisation over the axes from `axis` on, or over `axis`:
/// everything before becomes rows.
fn rows(r: &mut Rewrite, node: &Node, axis: usize) -> Option<ValueId> {
    if axis < 2 {
        return None;
    }
    let mut inputs: Vec<ValueId> = r.operands(node).into_iter().flatten().collect();
    let shape = r.target[inputs[0]].shape().to_vec();
    let tail = &shape[axis..];
    if inputs[1..]
        .iter()
        .any(|v| r.target[*v].ty().rank() > tail.len())
    {
        return None;
    }
    let merged = [&[shape[..axis].iter().product()], tail].concat();
    inputs[0] = reshape(r, inputs[0], &merged);
    let op = match &node.op {
        Op::LayerNorm(l) => Op::LayerNorm(LayerNorm { axis: 1, ..*l }),
        _ => Op::Softmax(Softmax { axis: 1 }),
    };
    let y = add(r, node, op, &inputs);
    Some(restore(r, node, y))
}

/// Whether the one element-wise operator behind a node, if there is just one reader, can have the axes before `axis`
/// merged as well. Else the reshape would keep it from being computed with the node: a scale for each channel has no
/// element for each image.
fn users_merge(model: &Model, users: &Users, node: &Node, axis: usize) -> bool {
    let y = node.output();
    let [(reader, _)] = users.of(y) else {
        return true;
    };
    let (shape, reader) = (model[y].shape(), &model[*reader]);
    let computed = is_elementwise(&reader.op) && model[reader.output()].shape() == shape;
    let rows = shape[..axis].iter().product();
    let mut operands = reader.inputs.iter().flatten();
    let merge = operands.all(|v| merged_shape(model[*v].shape(), shape, axis, rows).is_some());
    !computed || users.is_output(y) || merge
}

/// Moves the reshape of an operand that split its first axis past the node, if
/// the other operands can be seen with that axis merged too.
fn elementwise(r: &mut Rewrite, node: &Node) -> Option<ValueId> {
    let inputs: Vec<ValueId> = r.operands(node).into_iter().collect::<Option<_>>()?;
    let shape = r.source[node.output()].shape().to_vec();
    let (lead, source) = inputs.iter().find_map(|v| split_rows(r, *v, &shape))?;
    // A table has no axes of the result.
    let along = match node.op {
        Op::Lookup => &inputs[..1],
        _ => &inputs[..],
    };
    let mut merged = Vec::new();
    for v in along {
        merged.push(merged_shape(r.target[*v].shape(), &shape, lead, source)?);
    }
    let mut operands: Vec<ValueId> = along
        .iter()
        .zip(&merged)
        .map(|(v, s)| reshape(r, *v, s))
        .collect();
    operands.extend(&inputs[along.len()..]);
    let y = add(r, node, node.op.clone(), &operands);
    Some(restore(r, node, y))
}

/// Moves the reshape of an operand that split its first axis past a reduction of the last one.
fn reduction(r: &mut Rewrite, node: &Node, axis: usize) -> Option<ValueId> {
    let x = r.operands(node)[0]?;
    let shape = r.target[x].shape().to_vec();
    let (lead, rows) = split_rows(r, x, &shape)?;
    let (Op::Reduce(reduce), true) = (&node.op, axis + 1 == shape.len() && axis >= lead) else {
        return None;
    };
    let source = [&[rows], &shape[lead..]].concat();
    let axes = vec![source.len() - 1];
    let x = reshape(r, x, &source);
    let op = Op::Reduce(Reduce {
        axes,
        ..reduce.clone()
    });
    let y = add(r, node, op, &[x]);
    Some(restore(r, node, y))
}

/// If `v` has this shape by a reshape that split the first axis of its source:
/// how many axes that became, and its size.
fn split_rows(r: &Rewrite, v: ValueId, shape: &[usize]) -> Option<(usize, usize)> {
    let (producer, _) = r.target.producer(v)?;
    let node = &r.target[producer];
    let (Op::Reshape(_), Some(source)) = (&node.op, node.input(0)) else {
        return None;
    };
    let from = r.target[source].shape();
    if r.target[v].shape() != shape || from.is_empty() || from.len() >= shape.len() {
        return None;
    }
    let lead = shape.len() - (from.len() - 1);
    let rows: usize = shape[..lead].iter().product();
    (from[1..] == shape[lead..] && from[0] == rows).then_some((lead, rows))
}

/// An operand's shape with the result's first `lead` axes merged to `rows`, if
/// the operand has all of them or none.
fn merged_shape(
    operand: &[usize],
    shape: &[usize],
    lead: usize,
    rows: usize,
) -> Option<Vec<usize>> {
    let trailing = shape.len() - lead;
    let Some(own) = operand.len().checked_sub(trailing).filter(|n| *n > 0) else {
        return Some(operand.to_vec());
    };
    let (leading, tail) = operand.split_at(own);
    // Axes that the operand has not are of one element there.
    let (missing, present) = shape[..lead].split_at(lead.checked_sub(own)?);
    let merged = if leading.iter().all(|d| *d == 1) {
        1
    } else if leading == present && missing.iter().all(|d| *d == 1) {
        rows
    } else {
        return None;
    };
    Some([&[merged], tail].concat())
}
