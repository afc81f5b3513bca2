//! Nodes that place elements of operands whose size the data decide: they spread, pad and scatter.

use super::apart::fitted;
use super::complete;
use super::sized::{refuse, set, set_all, sizes_of};
use crate::indexing;
use crate::live::Extent;
use crate::node::{Imported, NodeImport, Problem};
use crate::operators::Operator;
use graph::ValueId;
use graph::ops::{Binary, Concat, Gather, Op, Pad, PadMode, ScatterNd, Slice};
use tensor::{DType, Tensor};

/// What is live of the operand stays live, or is as many as the shape says; other sizes may come from the shape.
pub(super) fn expand(n: &mut NodeImport, operator: &Operator) -> Imported {
    let (mut x, given) = (n.input(0)?, n.input(1)?);
    n.at_bounds = true;
    let wanted = n.constant_ints(1, "shape")?.unwrap_or_default();
    let counted = sizes_of(n, given, wanted.len())?;
    for e in n.live.extents(x).to_vec() {
        let Some(axis) = (e.axis + wanted.len()).checked_sub(n.ty(x).rank()) else {
            continue;
        };
        if wanted[axis] > 1 && counted.iter().all(|e| e.axis != axis) {
            let size = usize::try_from(wanted[axis]).unwrap_or(usize::MAX);
            n.take_elements(&[size])?;
            x = fitted(n, x, e.axis, (size, true))?;
        }
    }
    n.inputs[0] = Some(x);
    let y = complete(n, operator.import)?[0];
    let (own, shape) = (n.shape(x), n.shape(y));
    let mut extents = Vec::new();
    for e in n.live.extents(x).to_vec() {
        let axis = e.axis + shape.len() - own.len();
        if own[e.axis] != shape[axis] {
            return refuse(n);
        }
        let count = e.count;
        extents.push(Extent { axis, count });
    }
    for e in sizes_of(n, given, shape.len())? {
        if extents.iter().all(|own: &Extent| own.axis != e.axis) {
            extents.push(e);
        }
    }
    Ok(vec![set(n, y, extents)?])
}

/// Updates that are not live go to an element behind the others, which is cut off then.
pub(super) fn scatter(n: &mut NodeImport) -> Imported {
    let (x, given, updates) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let shape = n.shape(x);
    let axis = n.axis(n.attributes.int("axis", 0)?, shape.len())?;
    let combine = indexing::combine(n)?;
    let fits = n.shape(given) == n.shape(updates) && !n.ty(given).is_empty();
    if !fits || n.ty(x).is_empty() || n.shape(given).len() != shape.len() {
        return refuse(n);
    }
    let mut dead = n.live.extents(given).to_vec();
    for e in n.live.extents(updates) {
        if dead.iter().all(|own| own.axis != e.axis) {
            dead.push(*e);
        }
    }
    let rows = match dead.iter().all(|e| e.axis == axis) {
        true => indexing::row_indices(n, given, axis),
        false => None,
    };
    let mut indices = rows.unwrap_or(given);
    let extent = match n.live.count(x, axis) {
        Some(count) => count,
        None => n.number(shape[axis] as i64),
    };
    indices = n.cast(indices, DType::I64)?;
    let zero = n.number(0);
    let from_end = n.binary(Binary::Add, indices, extent)?;
    let negative = n.binary(Binary::Less, indices, zero)?;
    indices = n.emit(Op::Where, &[negative, from_end, indices])?;
    let behind = n.number(shape[axis] as i64);
    let own = n.shape(indices);
    for e in dead {
        let live = n.is_live(e, &own)?;
        indices = n.emit(Op::Where, &[live, indices, behind])?;
    }
    let mut pads = vec![(0, 0); shape.len()];
    pads[axis].1 = 1;
    let mode = PadMode::Constant(0.0);
    let longer = n.emit(Op::Pad(Pad { mode, pads }), &[x])?;
    let y = indexing::scattered_along(n, [longer, indices, updates], (axis, combine))?[0];
    let cut = Slice {
        starts: vec![0; shape.len()],
        steps: vec![1; shape.len()],
        sizes: shape,
    };
    let y = n.emit(Op::Slice(cut), &[y])?;
    let extents = n.live.extents(x).to_vec();
    Ok(vec![set(n, y, extents)?])
}

/// Constants are put around what is live; other padding is gathered from it.
pub(super) fn pad(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    let mut y = complete(n, operator.import)?[0];
    let (own, shape) = (n.shape(x), n.shape(y));
    let mut extents = n.live.extents(x).to_vec();
    let made = n.model.producer(y).map(|(node, _)| n.model[node].clone());
    let pad = made.and_then(|node| match &node.op {
        Op::Pad(pad) if node.input(0) == Some(x) => Some(pad.clone()),
        _ => None,
    });
    let moves = |d: usize| match &pad {
        Some(pad) => pad.pads[d] != (0, 0),
        None => own[d] != shape[d],
    };
    let moved: Vec<usize> = extents.iter().map(|e| e.axis).collect();
    let moved: Vec<usize> = moved.into_iter().filter(|d| moves(*d)).collect();
    if moved.is_empty() {
        return Ok(vec![set(n, y, extents)?]);
    }
    let Some(pad) = pad else {
        return refuse(n);
    };
    let pads = pad.pads.clone();
    y = match pad.mode {
        PadMode::Constant(fill) => {
            let masked = n.masked(x, &moved, fill)?;
            n.emit(Op::Pad(pad), &[masked])?
        }
        mode => {
            let mut fixed = pad.pads;
            moved.iter().for_each(|d| fixed[*d] = (0, 0));
            let mut y = n.emit(Op::Pad(Pad { mode, pads: fixed }), &[x])?;
            for e in extents.iter().filter(|e| moved.contains(&e.axis)) {
                let size = [own[e.axis], shape[e.axis]];
                let places = mirrored(n, mode, e.count, (pads[e.axis].0, size))?;
                y = n.emit(Op::Gather(Gather { axis: e.axis }), &[y, places])?;
            }
            y
        }
    };
    let zero = n.number(0);
    for e in extents.iter_mut().filter(|e| moved.contains(&e.axis)) {
        let more = n.number(pads[e.axis].0 + pads[e.axis].1);
        let count = n.binary(Binary::Add, e.count, more)?;
        e.count = n.binary(Binary::Max, count, zero)?;
    }
    Ok(vec![set(n, y, extents)?])
}

/// Which of the first `count` elements each element of a padded axis is: `before` elements are put before them, and
/// sizes are the bounds of the axis and of the result.
fn mirrored(
    n: &mut NodeImport,
    mode: PadMode,
    count: ValueId,
    (before, [bound, size]): (i64, [usize; 2]),
) -> Result<ValueId, Problem> {
    let (zero, one) = (n.number(0), n.number(1));
    let place = indexing::counting(n, size, 0, 1, before.saturating_neg())?;
    let last = n.binary(Binary::Sub, count, one)?;
    let place = match mode {
        PadMode::Reflect => {
            let period = n.binary(Binary::Add, last, last)?;
            let period = n.binary(Binary::Max, period, one)?;
            let there = n.binary(Binary::Mod, place, period)?;
            let back = n.binary(Binary::Sub, period, there)?;
            n.binary(Binary::Min, there, back)?
        }
        PadMode::Wrap => {
            let some = n.binary(Binary::Max, count, one)?;
            n.binary(Binary::Mod, place, some)?
        }
        PadMode::Edge | PadMode::Constant(_) => n.binary(Binary::Min, place, last)?,
    };
    // Beyond the count a place is any that there is.
    let most = n.number(bound.saturating_sub(1) as i64);
    let place = n.binary(Binary::Min, place, most)?;
    n.binary(Binary::Max, place, zero)
}

/// What is live is repeated; the data may also decide how often.
pub(super) fn tile(n: &mut NodeImport, operator: &Operator) -> Imported {
    let (x, given) = (n.input(0)?, n.input(1)?);
    n.at_bounds = true;
    let mut y = complete(n, operator.import)?[0];
    let (own, shape) = (n.shape(x), n.shape(y));
    let repeats = sizes_of(n, given, own.len())?;
    let one = n.number(1);
    let mut extents = Vec::new();
    for axis in (0..own.len()).filter(|d| shape[*d] > 0) {
        let live = n.live.count(x, axis);
        let often = repeats.iter().find(|e| e.axis == axis).map(|e| e.count);
        if live.is_none() && often.is_none() {
            continue;
        }
        let size = live.unwrap_or_else(|| n.number(own[axis] as i64));
        if live.is_some() && shape[axis] > own[axis] {
            let some = n.binary(Binary::Max, size, one)?;
            let places = indexing::counting(n, shape[axis], 0, 1, 0)?;
            let places = n.binary(Binary::Mod, places, some)?;
            y = n.emit(Op::Gather(Gather { axis }), &[y, places])?;
        }
        let often = often.unwrap_or_else(|| n.number((shape[axis] / own[axis]) as i64));
        let count = n.binary(Binary::Mul, size, often)?;
        extents.push(Extent { axis, count });
    }
    Ok(vec![set(n, y, extents)?])
}

/// As [`scatter`], with tuples of indices: an operand that is live stays so.
pub(super) fn scatter_tuples(n: &mut NodeImport, operator: &Operator) -> Imported {
    let (x, given, updates) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (shape, own) = (n.shape(x), n.shape(given));
    let Some((depth, tuples)) = own.split_last() else {
        return refuse(n);
    };
    let (depth, rank) = (*depth, tuples.len());
    let whole = n.live.extents(given).iter().any(|e| e.axis == rank);
    if whole || n.ty(x).is_empty() || depth == 0 || depth > shape.len() {
        return refuse(n);
    }
    if n.ty(given).is_empty() {
        let extents = n.live.extents(x).to_vec();
        let values = complete(n, operator.import)?;
        return set_all(n, values, &extents);
    }
    let mut dead = n.live.extents(given).to_vec();
    for e in n.live.extents(updates) {
        if e.axis < rank && dead.iter().all(|own| own.axis != e.axis) {
            dead.push(*e);
        }
    }
    let combine = indexing::combine(n)?;
    let indices = n.cast(given, DType::I64)?;
    let sizes: Vec<ValueId> = (0..depth)
        .map(|d| match n.live.count(x, d) {
            Some(count) => n.as_vector(count),
            None => {
                let size = Tensor::from_slice(&[1], &[shape[d] as i64]);
                Ok(n.model.add_result(&n.name, size))
            }
        })
        .collect::<Result<_, _>>()?;
    let sizes = match sizes[..] {
        [one] => one,
        _ => n.emit(Op::Concat(Concat { axis: 0 }), &sizes)?,
    };
    let zero = n.number(0);
    let from_end = n.binary(Binary::Add, indices, sizes)?;
    let negative = n.binary(Binary::Less, indices, zero)?;
    let mut indices = n.emit(Op::Where, &[negative, from_end, indices])?;
    let mut behind = vec![0; depth];
    behind[0] = shape[0] as i64;
    let behind = n
        .model
        .add_result(&n.name, Tensor::from_slice(&[depth], &behind));
    for e in dead {
        let live = n.is_live(e, &own)?;
        indices = n.emit(Op::Where, &[live, indices, behind])?;
    }
    let mut pads = vec![(0, 0); shape.len()];
    pads[0].1 = 1;
    let mode = PadMode::Constant(0.0);
    let longer = n.emit(Op::Pad(Pad { mode, pads }), &[x])?;
    let scatter = Op::ScatterNd(ScatterNd { combine });
    let y = n.emit(scatter, &[longer, indices, updates])?;
    let cut = Slice {
        starts: vec![0; shape.len()],
        steps: vec![1; shape.len()],
        sizes: shape,
    };
    let y = n.emit(Op::Slice(cut), &[y])?;
    let extents = n.live.extents(x).to_vec();
    Ok(vec![set(n, y, extents)?])
}
