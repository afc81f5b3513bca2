//! `Slice` and `Split` where the data decide where parts start or end. The elements are gathered from computed
//! positions, as many as there can be, and a count says how many of them are live.

use crate::indexing::counting;
use crate::live::{Extent, Range};
use crate::movement::taken;
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Gather, Op, Slice};
use std::ops::RangeInclusive;
use tensor::{DType, Tensor};

/// Whether a `Slice` is for [`slice`]: its starts or its ends are computed.
pub(crate) fn concerns(n: &NodeImport) -> bool {
    let computed = |i: usize| {
        let v = n.inputs.get(i).copied().flatten();
        v.is_some_and(|v| n.model.constant(v).is_none())
    };
    n.opset >= 10 && (computed(1) || computed(2))
}

/// Integers that a node's operand holds, of which some may be computed.
struct Places {
    value: ValueId,
    len: usize,
    range: Option<Range>,
}

impl Places {
    fn of(n: &mut NodeImport, i: usize, role: &str) -> Result<Places, Problem> {
        let v = n.input(i)?;
        let ty = n.ty(v).clone();
        if !ty.dtype.is_int() || ty.rank() != 1 || !n.live.extents(v).is_empty() {
            return Problem::unsupported(format!(
                "its {role} are {ty}, and must be a vector of integers of a size that the data \
                 do not decide"
            ));
        }
        let range = n.live.range(v).cloned();
        let (value, len) = (n.cast(v, DType::I64)?, ty.len());
        Ok(Places { value, len, range })
    }

    /// Those of a `Slice`: an attribute before operator set 10.
    fn of_slice(n: &mut NodeImport, i: usize, role: &str) -> Result<Places, Problem> {
        if n.opset >= 10 {
            return Places::of(n, i, role);
        }
        let given = n.attributes.ints(role)?.unwrap_or(&[]);
        let (len, given) = (given.len(), Tensor::from_slice(&[given.len()], given));
        let value = n.model.add_result(&n.name, given);
        let range = None;
        Ok(Places { value, len, range })
    }

    /// The least and the largest that the element at `i` can be.
    fn bounds(&self, n: &NodeImport, i: usize) -> [i64; 2] {
        match (self.known(n, i), &self.range) {
            (Some(known), _) => [known, known],
            (None, Some(range)) => [range.low.get_i64(i), range.high.get_i64(i)],
            (None, None) => [i64::MIN, i64::MAX],
        }
    }

    /// The element at `i`, if it is known.
    fn known(&self, n: &NodeImport, i: usize) -> Option<i64> {
        let (mut v, mut at) = (self.value, i);
        loop {
            if let Some(t) = n.model.constant(v) {
                return Some(t.get_i64(at));
            }
            let (node, _) = n.model.producer(v)?;
            let node = &n.model[node];
            match &node.op {
                Op::Identity | Op::Cast(_) => v = node.input(0)?,
                Op::Concat(_) => {
                    for part in 0.. {
                        v = node.input(part)?;
                        let len = n.ty(v).len();
                        if at < len {
                            break;
                        }
                        at -= len;
                    }
                }
                _ => return None,
            }
        }
    }

    fn at(&self, n: &mut NodeImport, i: usize) -> Result<ValueId, Problem> {
        if let Some(known) = self.known(n, i) {
            return Ok(n.number(known));
        }
        let at = n.number(i as i64);
        n.emit(Op::Gather(Gather { axis: 0 }), &[self.value, at])
    }
}

/// How far behind `start` an `end` lies, if it is `start` and a constant.
fn distance(n: &NodeImport, start: ValueId, end: ValueId, i: usize) -> Option<i64> {
    let (node, _) = n.model.producer(end)?;
    let node = &n.model[node];
    let (a, b) = (node.input(0)?, node.input(1)?);
    let sum = matches!(node.op, Op::Binary(Binary::Add));
    let other = match sum {
        true if a == start => b,
        true if b == start => a,
        _ => return None,
    };
    let t = n.model.constant(other)?;
    Some(t.get_i64(if t.len() == 1 { 0 } else { i }))
}

/// A place along an axis of `size` elements, as a number between `low` and `size + high`.
fn resolved(
    n: &mut NodeImport,
    place: ValueId,
    size: ValueId,
    [low, high]: [i64; 2],
) -> Result<ValueId, Problem> {
    let known = n.model.constant(place).map(|t| t.get_i64(0));
    let place = match known {
        Some(0..) => place,
        Some(_) => n.binary(Binary::Add, place, size)?,
        None => {
            let zero = n.number(0);
            let from_end = n.binary(Binary::Add, place, size)?;
            let negative = n.binary(Binary::Less, place, zero)?;
            n.emit(Op::Where, &[negative, from_end, place])?
        }
    };
    let high = n.number(high);
    let high = n.binary(Binary::Add, size, high)?;
    let low = n.number(low);
    let place = n.binary(Binary::Max, place, low)?;
    n.binary(Binary::Min, place, high)
}

/// How many elements lie between two places that are on an axis.
fn between(
    n: &mut NodeImport,
    start: ValueId,
    end: ValueId,
    step: i64,
) -> Result<ValueId, Problem> {
    let mut span = match step > 0 {
        true => n.binary(Binary::Sub, end, start)?,
        false => n.binary(Binary::Sub, start, end)?,
    };
    let size = step.saturating_abs();
    if size > 1 {
        let rest = n.number(size - 1);
        span = n.binary(Binary::Add, span, rest)?;
        let size = n.number(size);
        span = n.binary(Binary::Div, span, size)?;
    }
    let zero = n.number(0);
    n.binary(Binary::Max, span, zero)
}

/// The most elements that a slice between places within bounds has, along an axis of so many elements at most.
fn most(start: [i64; 2], end: [i64; 2], step: i64, sizes: RangeInclusive<usize>) -> usize {
    // A slice grows as its first place falls and the other one rises, unless that changes from which end it counts.
    let (first, last) = match step > 0 {
        true => (start, end),
        false => (end, start),
    };
    let least = |[low, high]: [i64; 2]| [Some(low), (low < 0 && high >= 0).then_some(0)];
    let largest = |[low, high]: [i64; 2]| [Some(high), (low < 0 && high >= 0).then_some(-1)];
    let mut pairs = Vec::new();
    for a in least(first).into_iter().flatten() {
        for b in largest(last).into_iter().flatten() {
            pairs.push(if step > 0 { (a, b) } else { (b, a) });
        }
    }
    let all = sizes.flat_map(|size| pairs.iter().map(move |(a, b)| taken(size, *a, *b, step).1));
    all.max().unwrap_or(0)
}

/// One axis of a slice.
struct Cut {
    axis: usize,
    start: ValueId,
    end: ValueId,
    step: i64,
    /// No more elements than these are between start and end.
    most: usize,
}

/// The elements of `y` that are in a slice whose number the data decide.
fn cut(n: &mut NodeImport, y: ValueId, c: &Cut) -> Result<ValueId, Problem> {
    let (axis, shape) = (c.axis, n.shape(y));
    let dim = shape[axis];
    let size = n.live.count(y, axis);
    let size = size.unwrap_or_else(|| n.number(dim as i64));
    let (for_start, for_end) = match c.step > 0 {
        true => ([0, 0], [0, 0]),
        false => ([0, -1], [-1, -1]),
    };
    let known = n.model.constant(c.start).map(|t| t.get_i64(0));
    // A slice that starts behind its end has no element, also where it starts behind the axis.
    let fixed = known.filter(|start| *start >= 0 && c.step > 0);
    let start = match fixed {
        Some(_) => c.start,
        None => resolved(n, c.start, size, for_start)?,
    };
    let end = resolved(n, c.end, size, for_end)?;
    let count = between(n, start, end, c.step)?;
    let mut extents = n.live.extents(y).to_vec();
    let y = match fixed {
        Some(first) => {
            let first = usize::try_from(first).unwrap_or(dim).min(dim);
            let step = if c.most > 1 { c.step } else { 1 };
            along(n, y, axis, (first, c.most, step))?
        }
        None => {
            let places = counting(n, c.most, 0, 1, 0)?;
            let step = n.number(c.step);
            let places = n.binary(Binary::Mul, places, step)?;
            let places = n.binary(Binary::Add, places, start)?;
            let (first, last) = (n.number(0), n.number(dim as i64 - 1));
            let places = n.binary(Binary::Min, places, last)?;
            let places = n.binary(Binary::Max, places, first)?;
            n.emit(Op::Gather(Gather { axis }), &[y, places])?
        }
    };
    extents.retain(|e| e.axis != axis);
    extents.push(Extent { axis, count });
    n.live.set(y, extents);
    Ok(y)
}

/// So many elements along an axis, from one on and by a step.
fn along(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    (start, size, step): (usize, usize, i64),
) -> Result<ValueId, Problem> {
    let mut sizes = n.shape(x);
    let (mut starts, mut steps) = (vec![0; sizes.len()], vec![1; sizes.len()]);
    (starts[axis], sizes[axis], steps[axis]) = (start, size, step);
    let slice = Slice {
        starts,
        steps,
        sizes,
    };
    n.emit(Op::Slice(slice), &[x])
}

/// A slice of an operand whose size the data may decide, between places that may be computed.
pub(crate) fn slice(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    let starts = Places::of_slice(n, 1, "starts")?;
    let ends = Places::of_slice(n, 2, "ends")?;
    let axes = n.ints_by_opset("axes", 3, 9)?;
    let axes = axes.unwrap_or_else(|| (0..starts.len as i64).collect());
    let steps = match n.opset {
        ..10 => None,
        _ => n.constant_ints(4, "steps")?,
    };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len]);
    if [ends.len, axes.len(), steps.len()] != [starts.len; 3] {
        return Problem::unsupported("starts, ends, axes and steps differ in length");
    }
    let mut y = x;
    for (i, (axis, step)) in axes.iter().zip(&steps).enumerate() {
        let axis = n.axis(*axis, rank)?;
        if *step == 0 {
            return Problem::unsupported("a step is 0");
        }
        y = sliced(n, y, (axis, *step), [&starts, &ends], i)?;
    }
    Ok(vec![y])
}

/// A slice along one axis, between the `i`-th places.
fn sliced(
    n: &mut NodeImport,
    x: ValueId,
    (axis, step): (usize, i64),
    [starts, ends]: [&Places; 2],
    i: usize,
) -> Result<ValueId, Problem> {
    let dim = n.shape(x)[axis];
    let live = n.live.count(x, axis).is_some();
    let mut extents = n.live.extents(x).to_vec();
    if let (Some(start), Some(end), false) = (starts.known(n, i), ends.known(n, i), live) {
        let y = along(n, x, axis, taken(dim, start, end, step))?;
        n.live.set(y, extents);
        return Ok(y);
    }
    if dim == 0 {
        return Ok(x);
    }
    let sizes = if live { 0 } else { dim }..=dim;
    let mut most = most(starts.bounds(n, i), ends.bounds(n, i), step, sizes);
    match distance(n, starts.value, ends.value, i) {
        Some(d) if step > 0 && d >= 0 => {
            let size = usize::try_from(step).unwrap_or(usize::MAX);
            most = most.min(usize::try_from(d).unwrap_or(dim).div_ceil(size));
        }
        _ => {}
    }
    if most == 0 {
        extents.retain(|e| e.axis != axis);
        let y = along(n, x, axis, (0, 0, 1))?;
        n.live.set(y, extents);
        return Ok(y);
    }
    let (start, end) = (starts.at(n, i)?, ends.at(n, i)?);
    let cut_out = Cut {
        axis,
        start,
        end,
        step,
        most,
    };
    cut(n, x, &cut_out)
}

/// Whether a `Split` is for [`split`]: the sizes of its parts are computed, or the size of the axis.
pub(crate) fn splits(n: &NodeImport) -> bool {
    let given = n.inputs.get(1).copied().flatten();
    n.opset > 12 && given.is_some_and(|v| n.model.constant(v).is_none())
}

/// The elements of `x` from `start` on along an axis, `most` at most, of which `count` are there.
fn part(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    (start, count, most): (ValueId, ValueId, usize),
) -> Result<ValueId, Problem> {
    let last = n.number(n.shape(x)[axis] as i64 - 1);
    let places = counting(n, most, 0, 1, 0)?;
    let places = n.binary(Binary::Add, places, start)?;
    let places = n.binary(Binary::Min, places, last)?;
    let mut extents = n.live.extents(x).to_vec();
    let y = n.emit(Op::Gather(Gather { axis }), &[x, places])?;
    extents.retain(|e| e.axis != axis);
    extents.push(Extent { axis, count });
    n.live.set(y, extents);
    Ok(y)
}

pub(crate) fn split(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let axis = n.axis(n.attributes.int("axis", 0)?, shape.len())?;
    let live = n.live.count(x, axis);
    let parts = n.proto.output.len();
    n.attributes.optional_int("num_outputs")?;
    if live.is_none() && !splits(n) {
        // Other axes are live, and stay so.
        let extents = n.live.extents(x).to_vec();
        let values = crate::movement::split(n)?;
        for v in values.iter().filter(|v| **v != x) {
            n.live.set(*v, extents.clone());
        }
        return Ok(values);
    }
    let size = live.unwrap_or_else(|| n.number(shape[axis] as i64));
    let zero = n.number(0);
    let mut sizes = Vec::new();
    if n.opset > 12 && n.inputs.get(1).copied().flatten().is_some() {
        let given = Places::of(n, 1, "sizes")?;
        if given.len != parts {
            return Problem::unsupported(format!("{} sizes for {parts} outputs", given.len));
        }
        let range = n.input(1).ok().and_then(|v| n.live.range(v).cloned());
        for i in 0..parts {
            let most = given
                .known(n, i)
                .or(range.as_ref().map(|r| r.high.get_i64(i)));
            let most = most.map_or(shape[axis], |most| {
                most.clamp(0, shape[axis] as i64) as usize
            });
            sizes.push((given.at(n, i)?, most));
        }
    } else if let Some(given) = n.ints_by_opset("split", 1, 12)? {
        let bound = shape[axis] as i64;
        for part in given {
            sizes.push((n.number(part), part.clamp(0, bound) as usize));
        }
    } else {
        // Equal parts, of which the last may be smaller.
        let (number, more) = (n.number(parts as i64), n.number(parts as i64 - 1));
        let each = n.binary(Binary::Add, size, more)?;
        let each = n.binary(Binary::Div, each, number)?;
        sizes = vec![(each, shape[axis].div_ceil(parts)); parts];
    }
    let (mut start, mut values) = (zero, Vec::new());
    for (own, most) in sizes {
        // What the axis has not is in no part, whatever sizes are asked.
        let left = n.binary(Binary::Sub, size, start)?;
        let count = n.binary(Binary::Min, own, left)?;
        let count = n.binary(Binary::Max, count, zero)?;
        values.push(part(n, x, axis, (start, count, most))?);
        start = n.binary(Binary::Add, start, count)?;
    }
    Ok(values)
}
