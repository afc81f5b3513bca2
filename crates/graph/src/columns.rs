//! Products whose columns are read in parts become one product a part: the queries, keys
//! and values of attention, or the two halves of a gated network, that one matrix of
//! weights makes.
//!
//! What lies between (sums and products with constants, reshapes, transposes) is done a
//! part. Values stay the same, no element is computed twice, and nothing is copied apart.

use crate::model::{Model, Node, NodeId, Rewrite, Users, ValueId};
use crate::ops::{Binary, Op, Reshape, Slice};
use crate::reference::apply;
use std::convert::Infallible;
use tensor::Tensor;

/// A product of fewer columns wastes vectors.
const FEWEST_COLUMNS: usize = 32;

/// A range of an axis.
#[derive(Clone, Copy)]
struct Part {
    axis: usize,
    start: usize,
    size: usize,
}

/// The model with a product for each part of columns that is read.
pub(crate) fn split_columns(model: &Model) -> Model {
    let users = model.users();
    let Ok(model) = model.rewrite(|r, id, node| {
        let all = made_apart(model, &users, r, id, node);
        Ok::<_, Infallible>(all.unwrap_or_else(|| r.copy(node)))
    });
    model
}

/// The results of a node that takes parts, each from products of its own.
fn made_apart(
    model: &Model,
    users: &Users,
    r: &mut Rewrite,
    id: NodeId,
    node: &Node,
) -> Option<Vec<ValueId>> {
    let parts = parts(model, id)?;
    let x = node.input(0)?;
    let mut read = Vec::new();
    for (reader, _) in users.of(x) {
        read.extend(self::parts(model, *reader)?);
    }
    let extent = model[x].shape()[parts[0].axis];
    let same = read
        .iter()
        .all(|p| p.axis == parts[0].axis && p.size < extent);
    if users.is_output(x) || !same || read.iter().map(|p| p.size).sum::<usize>() > extent {
        return None;
    }
    // Either all parts are possible or none: the smallest one tells.
    let smallest = *read.iter().min_by_key(|p| p.size)?;
    if parts.iter().all(|p| p.size != smallest.size) {
        columns(model, users, r, x, smallest, true)?;
    }
    let mut made = Vec::new();
    for (part, result) in parts.iter().zip(&node.outputs) {
        let v = columns(model, users, r, x, *part, true)?;
        made.push(reshape(r, v, model[*result].shape()));
    }
    Some(made)
}

/// The ranges of one axis that a node takes; all of them together where it is a split.
fn parts(model: &Model, id: NodeId) -> Option<Vec<Part>> {
    let node = &model[id];
    let shape = model[node.input(0)?].shape();
    match &node.op {
        Op::Split(s) => {
            let mut start = 0;
            let part = |size: &usize| {
                start += size;
                let (axis, size) = (s.axis, *size);
                Part {
                    axis,
                    start: start - size,
                    size,
                }
            };
            Some(s.sizes.iter().map(part).collect())
        }
        Op::Slice(s) => {
            let mut cut = (0..shape.len()).filter(|d| s.sizes[*d] != shape[*d]);
            let axis = cut.next()?;
            let whole = cut.next().is_none() && s.steps.iter().all(|step| *step == 1);
            let (start, size) = (s.starts[axis], s.sizes[axis]);
            (whole && size > 0).then(|| vec![Part { axis, start, size }])
        }
        _ => None,
    }
}

fn reshape(r: &mut Rewrite, v: ValueId, shape: &[usize]) -> ValueId {
    if r.target[v].shape() == shape {
        return v;
    }
    let name = r.target[v].name().to_string();
    let op = Op::Reshape(Reshape {
        shape: shape.to_vec(),
    });
    r.target
        .add(&name, op, &[v])
        .expect("a part has as many elements")
}

/// The part of a value of the source, made as the value is; `None` if it does not come
/// from columns of a product alone. Only parts read the `outermost` value, and nothing
/// but the next node reads those behind it.
fn columns(
    model: &Model,
    users: &Users,
    r: &mut Rewrite,
    v: ValueId,
    part: Part,
    outermost: bool,
) -> Option<ValueId> {
    if !outermost && users.sole(v).is_none() {
        return None;
    }
    let (producer, _) = model.producer(v)?;
    let node = &model[producer];
    let add = |r: &mut Rewrite, op: Op, inputs: &[ValueId]| {
        let name = node.name.clone();
        r.target
            .add(&name, op, inputs)
            .expect("a part fits as the whole does")
    };
    match &node.op {
        Op::Transpose(t) => {
            let axis = t.perm[part.axis];
            let x = columns(
                model,
                users,
                r,
                node.input(0)?,
                Part { axis, ..part },
                false,
            )?;
            Some(add(r, node.op.clone(), &[x]))
        }
        Op::Reshape(to) => {
            let source = node.input(0)?;
            let (axis, each) = split_axis(model[source].shape(), &to.shape, part.axis)?;
            let (start, size) = (part.start * each, part.size * each);
            let x = columns(model, users, r, source, Part { axis, start, size }, false)?;
            let mut shape = to.shape.clone();
            shape[part.axis] = part.size;
            Some(reshape(r, x, &shape))
        }
        Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div) => {
            let shape = model[v].shape();
            let [a, b] = [node.input(0)?, node.input(1)?];
            let (data, constant) = match model.constant(a) {
                Some(_) => (b, a),
                None => (a, b),
            };
            let t = model.constant(constant)?.clone();
            let behind = shape.len() - part.axis;
            let fits = model[data].shape() == shape && t.rank() <= shape.len();
            let x = fits.then(|| columns(model, users, r, data, part, false))??;
            let t = constant_part(&t, behind, part);
            let name = model[constant].name().to_string();
            let c = r.target.add_constant(&name, t);
            Some(add(
                r,
                node.op.clone(),
                &if data == a { [x, c] } else { [c, x] },
            ))
        }
        Op::MatMul => {
            let weights = node.input(1)?;
            let t = model.constant(weights)?;
            let innermost = part.axis + 1 == model[v].ty().rank();
            if t.rank() != 2 || !innermost || part.size < FEWEST_COLUMNS {
                return None;
            }
            let t = sliced(t, Part { axis: 1, ..part });
            let name = model[weights].name().to_string();
            let x = r.value(node.input(0)?);
            let w = r.target.add_constant(&name, t);
            Some(add(r, Op::MatMul, &[x, w]))
        }
        _ => None,
    }
}

/// The axis of a reshape's source whose outermost digit an axis of its result is, and the
/// elements of the source's axis for one of the result's.
fn split_axis(from: &[usize], to: &[usize], axis: usize) -> Option<(usize, usize)> {
    let inner: usize = to[axis + 1..].iter().product();
    let mut behind = 1;
    for (d, n) in from.iter().enumerate().rev() {
        if *n > 1 && behind * n == inner * to[axis] && inner.is_multiple_of(behind) {
            return Some((d, inner / behind));
        }
        behind *= n;
    }
    None
}

/// The part of a constant whose axes from the part's on are the last `behind`; all of it
/// where it does not vary along that axis.
fn constant_part(t: &Tensor, behind: usize, part: Part) -> Tensor {
    match t.rank().checked_sub(behind).filter(|d| t.shape()[*d] != 1) {
        Some(axis) => sliced(t, Part { axis, ..part }),
        None => t.clone(),
    }
}

fn sliced(t: &Tensor, part: Part) -> Tensor {
    let mut sizes = t.shape().to_vec();
    sizes[part.axis] = part.size;
    let mut starts = vec![0; sizes.len()];
    starts[part.axis] = part.start;
    let steps = vec![1; sizes.len()];
    let op = Op::Slice(Slice {
        starts,
        steps,
        sizes,
    });
    let mut all = apply(&op, &[Some(t)]).expect("a part is inside");
    all.remove(0)
}
