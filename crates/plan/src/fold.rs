//! Transposes that are no kernels: matrix products read the source directly. So do sums of
//! bytes and their interpolation, which widen them where they are read, and convolutions over the batch.
//! Operators on indices read what is spread over more elements from before it is spread: a row of equal
//! indices then is one index, and the elements that it names are copied side by side.
//!
//! Owns which nodes those are, and how an operand's index becomes one of
//! the source. Promises that the innermost axis of a left operand stays
//! innermost, so that what was read along cache lines still is; right operands
//! are packed by the products anyway. Leaves what lies between (reshapes that
//! drop or add axes of extent 1) to aliases.

use graph::ops::{Op, ReduceKind};
use graph::{Model, Node, NodeId, Users, ValueId};
use tensor::DType;

/// A value as elements of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    pub source: ValueId,
    /// The axis of the value that runs along each axis of the source; `None`
    /// where the source has one element only.
    pub axes: Vec<Option<usize>>,
}

impl Fold {
    /// How to read an operand of an operator from before a node that has no kernel.
    pub fn of(model: &Model, users: &Users, op: &Op, operand: ValueId) -> Option<Fold> {
        match op {
            Op::MatMul | Op::MatMulInteger => Fold::of_factor(model, users, operand),
            Op::Reduce(_) | Op::Resize(_) => Fold::of_terms(model, users, operand),
            op if reads_spread(op, 1) => Fold::of_spread(model, users, operand),
            Op::Conv(_) if is_for_batch_sums(model, users, operand) => {
                let source = swapped_image(model, operand)?;
                let rank = model[operand].ty().rank();
                let axes = [1, 0].into_iter().chain(2..rank).map(Some).collect();
                Some(Fold { source, axes })
            }
            _ => None,
        }
    }

    /// How to read the terms of a sum, or of interpolation, from before they are widened.
    fn of_terms(model: &Model, users: &Users, operand: ValueId) -> Option<Fold> {
        let axes = (0..model[operand].ty().rank()).map(Some).collect();
        let (producer, _) = model.producer(operand)?;
        let source = model[producer].input(0)?;
        is_widened_for_sums(model, users, operand).then_some(Fold { source, axes })
    }

    /// How to read elements from before they are spread over more.
    fn of_spread(model: &Model, users: &Users, operand: ValueId) -> Option<Fold> {
        if !is_spread_for_indexing(model, users, operand) {
            return None;
        }
        let (producer, _) = model.producer(operand)?;
        let source = model[producer].input(0)?;
        let from = model[source].shape();
        let lead = model[operand].ty().rank() - from.len();
        let axis = |(d, n): (usize, &usize)| (*n != 1).then_some(lead + d);
        let axes = from.iter().enumerate().map(axis).collect();
        Some(Fold { source, axes })
    }

    /// How to read a factor of a matrix product from before its transpose.
    fn of_factor(model: &Model, users: &Users, operand: ValueId) -> Option<Fold> {
        let rank = model[operand].ty().rank();
        let mut axes: Vec<Option<usize>> = (0..rank).map(Some).collect();
        let mut v = operand;
        loop {
            let (producer, _) = model.producer(v)?;
            let node = &model[producer];
            let source = node.input(0)?;
            match &node.op {
                Op::Reshape(_) => {
                    axes = past_reshape(model[source].shape(), model[v].shape(), &axes)?;
                    v = source;
                }
                Op::Transpose(t) => {
                    let mut moved = vec![None; axes.len()];
                    for (axis, from) in axes.iter().zip(&t.perm) {
                        moved[*from] = *axis;
                    }
                    let fold = Fold {
                        source,
                        axes: moved,
                    };
                    return is_folded_transpose(model, users, v).then_some(fold);
                }
                _ => return None,
            }
        }
    }
}

/// Whether all readers of a value read what it is made of: then it has no
/// kernel and no memory.
pub(crate) fn is_folded(model: &Model, users: &Users, v: ValueId) -> bool {
    is_widened_for_sums(model, users, v)
        || is_folded_transpose(model, users, v)
        || is_for_batch_sums(model, users, v)
        || is_spread_for_indexing(model, users, v)
}

/// Whether an operator takes elements of an operand at single places: elements by indices, and where to put them. What
/// a scatter starts from is copied as a whole.
fn reads_spread(op: &Op, operand: usize) -> bool {
    match op {
        Op::Gather(_) | Op::GatherElements(_) | Op::GatherNd(_) => true,
        Op::ScatterElements(_) | Op::ScatterNd(_) => operand > 0,
        _ => false,
    }
}

/// Whether only operators on indices read a value, which spreads elements of another one over more.
fn is_spread_for_indexing(model: &Model, users: &Users, v: ValueId) -> bool {
    let Some((producer, _)) = model.producer(v) else {
        return false;
    };
    let node = &model[producer];
    let computed = |v: ValueId| model.constant(v).is_none() && !model[v].ty().is_empty();
    let spreads = matches!(node.op, Op::Expand(_)) && node.input(0).is_some_and(computed);
    let mut readers = users.of(v).iter();
    let empty = model[v].ty().is_empty() || users.is_output(v);
    spreads && !empty && readers.all(|(n, slot)| reads_spread(&model[*n].op, *slot))
}

/// The images whose first two axes change places for a convolution, if it is one over the
/// batch: that of its data, and that of its weights.
pub(crate) fn batch_sum(model: &Model, node: &Node) -> Option<[ValueId; 2]> {
    let is_whole = matches!(&node.op, Op::Conv(c) if c.groups == 1);
    if !is_whole || node.input(2).is_some() {
        return None;
    }
    let image = |slot: usize| swapped_image(model, node.input(slot)?);
    Some([image(0)?, image(1)?])
}

/// The image whose maps, places swapped, are the windows of a depthwise convolution of one
/// image: it makes the gradients of weights.
pub(crate) fn window_image(model: &Model, node: &Node) -> Option<ValueId> {
    let Op::Conv(c) = &node.op else {
        return None;
    };
    let [x, w] = [node.input(0)?, node.input(1)?].map(|v| model[v].shape());
    let is_depthwise = c.groups > 1 && x[..2] == [1, c.groups] && w[..2] == [c.groups, 1];
    let image = swapped_image(model, node.input(1)?)?;
    (is_depthwise && node.input(2).is_none()).then_some(image)
}

/// The image that a value is, but for the places of its first two axes.
fn swapped_image(model: &Model, v: ValueId) -> Option<ValueId> {
    let (producer, _) = model.producer(v)?;
    let source = model[producer].input(0)?;
    let is_computed = model.constant(source).is_none() && !model[v].ty().is_empty();
    (swaps_batch(&model[producer].op) && is_computed).then_some(source)
}

/// Whether an operator lets the first two axes of an image change places, and no others.
pub(crate) fn swaps_batch(op: &Op) -> bool {
    let Op::Transpose(t) = op else {
        return false;
    };
    t.perm.starts_with(&[1, 0]) && t.perm[2..].iter().copied().eq(2..t.perm.len())
}

/// Whether only convolutions for gradients of weights read a value, each as an image whose
/// first two axes change places.
fn is_for_batch_sums(model: &Model, users: &Users, v: ValueId) -> bool {
    let mut readers = users.of(v).iter();
    let sums = |(n, slot): &(NodeId, usize)| {
        let node = &model[*n];
        batch_sum(model, node).is_some() || *slot == 1 && window_image(model, node).is_some()
    };
    swapped_image(model, v).is_some() && !users.is_output(v) && readers.all(sums)
}

/// Whether a value is bytes as wider elements for what adds them alone: sums of i32, and interpolation.
fn is_widened_for_sums(model: &Model, users: &Users, v: ValueId) -> bool {
    let Some((producer, _)) = model.producer(v) else {
        return false;
    };
    let node = &model[producer];
    let bytes = |v: ValueId| matches!(model[v].dtype(), DType::I8 | DType::U8);
    let widens = node.input(0).is_some_and(bytes);
    let adds = |n: &NodeId| match (&node.op, &model[*n].op) {
        (Op::Cast(DType::I32), Op::Reduce(r)) => r.kind == ReduceKind::Sum,
        (Op::Cast(to), Op::Resize(_)) => to.is_float(),
        _ => false,
    };
    let (read, empty) = (users.of(v), model[v].ty().is_empty());
    widens && !empty && !users.is_output(v) && read.iter().all(|(n, _)| adds(n))
}

fn is_folded_transpose(model: &Model, users: &Users, v: ValueId) -> bool {
    let Some((producer, _)) = model.producer(v) else {
        return false;
    };
    let Op::Transpose(t) = &model[producer].op else {
        return false;
    };
    let innermost_stays = t.perm.last() == t.perm.len().checked_sub(1).as_ref();
    !model[v].ty().is_empty() && only_products_read(model, users, v, innermost_stays)
}

/// Whether only products read a value, as left operands only if it is `along_rows`.
fn only_products_read(model: &Model, users: &Users, v: ValueId, along_rows: bool) -> bool {
    if users.is_output(v) {
        return false;
    }
    users.of(v).iter().all(|(n, operand)| {
        let node = &model[*n];
        match &node.op {
            Op::MatMul | Op::MatMulInteger => *operand == 1 || along_rows,
            Op::Reshape(_) => {
                let result = node.output();
                let extents = |v: ValueId| without_ones(model[v].shape());
                extents(v).eq(extents(result))
                    && only_products_read(model, users, result, along_rows)
            }
            _ => false,
        }
    })
}

fn without_ones(shape: &[usize]) -> impl Iterator<Item = usize> {
    shape.iter().copied().filter(|n| *n != 1)
}

/// What runs along the axes of a reshape's source, given that of its result, if
/// they differ by axes of extent 1 only.
pub(crate) fn past_reshape(
    source: &[usize],
    result: &[usize],
    axes: &[Option<usize>],
) -> Option<Vec<Option<usize>>> {
    if !without_ones(source).eq(without_ones(result)) {
        return None;
    }
    let mut longer = axes.iter().zip(result).filter(|(_, n)| **n != 1);
    let axis = |n: &usize| {
        let next = (*n != 1).then(|| longer.next());
        next.flatten().and_then(|(axis, _)| *axis)
    };
    Some(source.iter().map(axis).collect())
}
