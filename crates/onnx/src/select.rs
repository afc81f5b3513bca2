//! Importers of operators that choose elements by their values: the data decide how many.
//!
//! Where the operand is constant the result is, too. Else the result has as many elements as
//! there can be, and a count says how many are live (`live`).

use crate::indexing::counting;
use crate::live::{Chosen, Extent};
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{
    Binary, Combine, Concat, Cumulative, CumulativeKind, Gather, GatherElements, Op,
    ScatterElements, Slice, Suppress, TopK, Transpose, Unary,
};
use tensor::{DType, Tensor};

fn gathered(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    chosen: Chosen,
) -> Result<ValueId, Problem> {
    let y = n.emit(Op::Gather(Gather { axis }), &[x, chosen.positions])?;
    let count = chosen.count;
    let mut extents = n.live.extents(x).to_vec();
    extents.retain(|e| e.axis != axis);
    extents.push(Extent { axis, count });
    n.live.set(y, extents);
    Ok(y)
}

/// The parts along an axis, or the elements, where the condition holds.
pub(crate) fn compress(n: &mut NodeImport) -> Imported {
    let (x, condition) = (n.input(0)?, n.input(1)?);
    let (x, axis) = match n.attributes.optional_int("axis")? {
        Some(axis) => (x, n.axis(axis, n.ty(x).rank())?),
        None if n.ty(x).rank() == 1 => (x, 0),
        None if n.live.extents(x).is_empty() => (n.reshape(x, vec![n.ty(x).len()])?, 0),
        None => return Problem::unsupported("the data decide its operand's size along an axis"),
    };
    // Paddle's masked_select writes a condition of several axes, of which onnxruntime takes one element after the other.
    let condition = match n.ty(condition).rank() == 1 || !n.live.extents(condition).is_empty() {
        true => condition,
        false => n.reshape(condition, vec![n.ty(condition).len()])?,
    };
    let given = n.ty(condition);
    if given.rank() != 1 || given.len() > n.ty(x).shape[axis] {
        return Problem::unsupported(format!("its condition is {given} for {}", n.ty(x)));
    }
    if let Some(condition) = n.model.constant(condition).cloned() {
        if !n.live.extents(x).is_empty() {
            return Problem::unsupported("the data decide its operand's size");
        }
        let picks = (0..condition.len()).filter(|i| condition.get_i64(*i) != 0);
        let picks: Vec<i64> = picks.map(|i| i as i64).collect();
        let indices = Tensor::from_slice(&[picks.len()], &picks);
        let indices = n.model.add_result(&n.name, indices);
        return Ok(vec![n.emit(Op::Gather(Gather { axis }), &[x, indices])?]);
    }
    let chosen = n.nonzero(condition)?;
    Ok(vec![gathered(n, x, axis, chosen)?])
}

/// The positions of elements that are not zero, along each axis.
pub(crate) fn non_zero(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let strides = tensor::row_major_strides(&shape);
    if let Some(x) = n.model.constant(x).cloned() {
        let found: Vec<usize> = (0..x.len()).filter(|i| x.get_f64(*i) != 0.0).collect();
        let axis = |d: usize| found.iter().map(move |i| (i, d));
        let places: Vec<i64> = (0..shape.len())
            .flat_map(axis)
            .map(|(i, d)| (i / strides[d] % shape[d]) as i64)
            .collect();
        let out = Tensor::from_slice(&[shape.len(), found.len()], &places);
        return Ok(vec![n.model.add_result(&n.name, out)]);
    }
    if n.ty(x).is_empty() {
        return Ok(vec![n.filled(DType::I64, &[shape.len(), 0], 0.0)?]);
    }
    let (chosen, rows) = if shape.is_empty() {
        // A scalar has no coordinates, but a count all the same.
        let one = n.reshape(x, vec![1])?;
        (n.nonzero(one)?, n.filled(DType::I64, &[0, 1], 0.0)?)
    } else {
        let chosen = n.nonzero(x)?;
        let rows = coordinates(n, chosen.positions, &shape)?;
        (chosen, rows)
    };
    let count = chosen.count;
    n.live.set(rows, vec![Extent { axis: 1, count }]);
    Ok(vec![rows])
}

/// Positions [n] in the elements of a shape as [axes, n].
fn coordinates(n: &mut NodeImport, at: ValueId, shape: &[usize]) -> Result<ValueId, Problem> {
    let strides = tensor::row_major_strides(shape);
    let count = n.ty(at).len();
    let mut rows = Vec::new();
    for (d, size) in shape.iter().enumerate() {
        let mut row = at;
        if strides[d] > 1 {
            let stride = n.number(strides[d] as i64);
            row = n.binary(Binary::Div, row, stride)?;
        }
        if d > 0 {
            let size = n.number(*size as i64);
            row = n.binary(Binary::Mod, row, size)?;
        }
        rows.push(n.reshape(row, vec![1, count])?);
    }
    match rows[..] {
        [row] => Ok(row),
        _ => n.emit(Op::Concat(Concat { axis: 0 }), &rows),
    }
}

/// The boxes of each class that no better one overlaps, those of one class behind those of another.
pub(crate) fn non_max_suppression(n: &mut NodeImport) -> Imported {
    let (boxes, scores) = (n.input(0)?, n.input(1)?);
    let shape = n.shape(scores);
    let [batch, classes, count] = shape[..] else {
        return Problem::unsupported(format!("its scores are {}", n.ty(scores)));
    };
    // Where the data decide how many, all boxes are the bound.
    let limit = n.optional(2);
    let open = limit.filter(|v| n.model.constant(*v).is_none());
    let most = match open {
        Some(_) => count,
        None => {
            let most = n.constant_scalar(2, "number of boxes")?.unwrap_or(0.0);
            (most.max(0.0) as usize).min(count)
        }
    };
    let most = most.min(n.wanted.unwrap_or(usize::MAX));
    if most == 0 || n.ty(scores).is_empty() {
        let none = Tensor::zeros(DType::I64, &[0, 3]);
        return Ok(vec![n.model.add_result(&n.name, none)]);
    }
    let none = n.filled(n.dtype(scores), &[], f64::NEG_INFINITY)?;
    // Minus infinity is for boxes that are out.
    let lowest = f64::from(f32::MIN);
    let finite = Unary::Clip {
        min: Some(lowest),
        max: None,
    };
    let mut held = n.unary(finite, scores)?;
    if let Some(threshold) = n.optional(4) {
        let threshold = n.reshape(threshold, vec![])?;
        let above = n.binary(Binary::Greater, scores, threshold)?;
        held = n.emit(Op::Where, &[above, held, none])?;
    }
    // Boxes and images that are not live are out, as are classes.
    let of_boxes = n.live.extents(boxes).iter().filter(|e| e.axis < 2);
    let of_boxes = of_boxes.map(|e| Extent {
        axis: 2 * e.axis,
        ..*e
    });
    let mut known: Vec<Extent> = n.live.extents(scores).to_vec();
    for e in of_boxes.collect::<Vec<_>>() {
        if known.iter().all(|own| own.axis != e.axis) {
            known.push(e);
        }
    }
    for e in known {
        let live = n.is_live(e, &shape)?;
        held = n.emit(Op::Where, &[live, held, none])?;
    }
    if n.shape(boxes) != [batch, count, 4] {
        return Problem::unsupported(format!("its boxes are {}", n.ty(boxes)));
    }
    let suppress = Suppress {
        threshold: n.constant_scalar(3, "overlap")?.unwrap_or(0.0) as f32,
        centred: n.attributes.flag("center_point_box", false)?,
        most,
    };
    let picks = n.emit(Op::Suppress(suppress), &[held, boxes])?;
    let all = batch * classes * most;
    n.take_elements(&[all, 2])?;
    let zero = n.number(0);
    let before = n.binary(Binary::Less, picks, zero)?;
    let mut taken = n.unary(Unary::Not, before)?;
    if let Some(count) = open {
        let count = n.reshape(count, vec![])?;
        let wanted = n.is_live(Extent { axis: 2, count }, &[batch, classes, most])?;
        taken = n.binary(Binary::And, taken, wanted)?;
    }
    let taken = n.reshape(taken, vec![all])?;
    let picks = n.reshape(picks, vec![all, 1])?;
    let chosen = n.positions(taken)?;
    // Batch and class of each pick are known.
    let row = |i: usize| [i / (classes * most), i / most % classes];
    let owners: Vec<i64> = (0..all).flat_map(row).map(|v| v as i64).collect();
    let owners = Tensor::from_slice(&[all, 2], &owners);
    let owners = n.model.add_result(&n.name, owners);
    let rows = n.emit(Op::Concat(Concat { axis: 1 }), &[owners, picks])?;
    Ok(vec![gathered(n, rows, 0, chosen)?])
}

/// What there is up to each element along the first axis, added up; without the element itself if `exclusive`.
fn running_sum(n: &mut NodeImport, x: ValueId, exclusive: bool) -> Result<ValueId, Problem> {
    let sum = Cumulative {
        kind: CumulativeKind::Sum,
        axis: 0,
        exclusive,
        reverse: false,
    };
    n.emit(Op::Cumulative(sum), &[x])
}

/// Elements at the places along the first axis that an order of all of them gives: the inverse of a gather by it.
fn put_back(n: &mut NodeImport, order: ValueId, x: ValueId) -> Result<ValueId, Problem> {
    let none = n.filled(n.dtype(x), &n.shape(x), 0.0)?;
    let scatter = Op::ScatterElements(ScatterElements {
        axis: 0,
        combine: Combine::Replace,
    });
    n.emit(scatter, &[none, order, x])
}

/// The positions of a vector's elements in ascending order; the first of equal ones first.
fn ascending(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let order = TopK {
        axis: 0,
        k: n.ty(x).len(),
        largest: false,
    };
    n.emit(Op::TopK(order), &[x])
}

pub(crate) fn unique(n: &mut NodeImport) -> Imported {
    let sorted = n.attributes.flag("sorted", true)?;
    Ok(different(n, sorted)?.to_vec())
}

/// The different elements as they come, where each element is among them, and how often each occurs.
pub(crate) fn microsoft_unique(n: &mut NodeImport) -> Imported {
    let [values, _, inverse, counts] = different(n, false)?;
    Ok(vec![values, inverse, counts])
}

/// How many parts along an axis are live, or elements without one; none if all are.
fn live_parts(
    n: &mut NodeImport,
    x: ValueId,
    axis: Option<usize>,
) -> Result<Option<ValueId>, Problem> {
    let within = n.ty(x).len() / n.shape(x).first().copied().unwrap_or(1).max(1);
    match (n.live.extents(x), axis) {
        ([], _) => Ok(None),
        ([e], Some(axis)) if e.axis == axis => Ok(Some(e.count)),
        ([Extent { axis: 0, count }], None) => {
            let (count, within) = (*count, n.number(within as i64));
            Ok(Some(n.binary(Binary::Mul, count, within)?))
        }
        _ => Problem::unsupported("the data decide its operand's size along another axis"),
    }
}

/// The different elements: the first of each run of equal ones in order. Then their first places, the place of each
/// element among them, and how often each occurs.
fn different(n: &mut NodeImport, sorted: bool) -> Result<[ValueId; 4], Problem> {
    let x = n.input(0)?;
    let axis = match n.attributes.optional_int("axis")? {
        Some(axis) => Some(n.axis(axis, n.ty(x).rank())?),
        None => None,
    };
    if n.ty(x).is_empty() && axis.is_some_and(|a| n.shape(x)[a] > 0) {
        return Problem::unsupported(format!("its operand is {}", n.ty(x)));
    }
    if n.ty(x).is_empty() {
        let none = n.filled(DType::I64, &[0], 0.0)?;
        let values = match axis {
            Some(_) => x,
            None => n.reshape(x, vec![0])?,
        };
        return Ok([values, none, none, none]);
    }
    let live = live_parts(n, x, axis)?;
    let (whole, axis) = match axis {
        Some(axis) => (x, axis),
        None => (n.reshape(x, vec![n.ty(x).len()])?, 0),
    };
    let keys = part_keys(n, whole, axis)?;
    let count = n.ty(keys).len();
    let gather = |n: &mut NodeImport, x, at| n.emit(Op::Gather(Gather { axis: 0 }), &[x, at]);
    let (order, begins) = runs_in_order(n, keys, live)?;
    let chosen = n.positions(begins)?;
    let starts = chosen.positions;
    let mut results = [gather(n, order, starts)?, starts];
    // The run that each element is in.
    let ones = n.cast(begins, DType::I64)?;
    let runs = running_sum(n, ones, false)?;
    let one = n.number(1);
    let runs = n.binary(Binary::Sub, runs, one)?;
    let mut inverse = put_back(n, order, runs)?;
    // A run ends where the next one begins, the last at the end.
    let end = live.unwrap_or_else(|| n.number(count as i64));
    let end = n.as_vector(end)?;
    let next = match count {
        1 => end,
        _ => {
            let later = cut(n, starts, 1, count - 1)?;
            n.emit(Op::Concat(Concat { axis: 0 }), &[later, end])?
        }
    };
    let following = counting(n, count, 0, 1, 1)?;
    let has_next = n.binary(Binary::Less, following, chosen.count)?;
    let next = n.emit(Op::Where, &[has_next, next, end])?;
    results[1] = n.binary(Binary::Sub, next, starts)?;
    if !sorted {
        // The first element of each run as it comes, and how many firsts are before each.
        let is_first = put_back(n, order, begins)?;
        let firsts = n.positions(is_first)?.positions;
        let ones = n.cast(is_first, DType::I64)?;
        let before = running_sum(n, ones, true)?;
        let own_runs = gather(n, inverse, firsts)?;
        let own_first = gather(n, results[0], inverse)?;
        inverse = gather(n, before, own_first)?;
        results = [firsts, gather(n, results[1], own_runs)?];
    }
    let count = chosen.count;
    for result in results {
        n.live.set(result, vec![Extent { axis: 0, count }]);
    }
    if let Some(count) = live {
        n.live.set(inverse, vec![Extent { axis: 0, count }]);
    }
    let [firsts, counts] = results;
    let values = n.emit(Op::Gather(Gather { axis }), &[whole, firsts])?;
    n.live.set(values, vec![Extent { axis, count }]);
    Ok([values, firsts, inverse, counts])
}

/// The positions of a vector's elements in ascending order, and whether a run of equal ones begins at each. Only the first
/// elements may be live: the others come last, and begin none.
fn runs_in_order(
    n: &mut NodeImport,
    keys: ValueId,
    live: Option<ValueId>,
) -> Result<(ValueId, ValueId), Problem> {
    let gather = |n: &mut NodeImport, x, at| n.emit(Op::Gather(Gather { axis: 0 }), &[x, at]);
    let order = ascending(n, keys)?;
    let Some(count) = live else {
        let values = gather(n, keys, order)?;
        return Ok((order, begins(n, values)?));
    };
    let last = n.binary(Binary::GreaterOrEqual, order, count)?;
    let last = n.cast(last, DType::I64)?;
    let places = ascending(n, last)?;
    let order = gather(n, order, places)?;
    let values = gather(n, keys, order)?;
    let begins = begins(n, values)?;
    let size = n.ty(keys).len();
    let is_live = n.is_live(Extent { axis: 0, count }, &[size])?;
    Ok((order, n.binary(Binary::And, begins, is_live)?))
}

/// A vector that has the order of the parts along an axis, compared element by element. Elements
/// become their ranks among those at their place, and two ranks beside each other one number,
/// until each part has a single one.
fn part_keys(n: &mut NodeImport, x: ValueId, axis: usize) -> Result<ValueId, Problem> {
    let shape = n.shape(x);
    let count = shape[axis];
    let mut perm: Vec<usize> = (0..shape.len()).filter(|d| *d != axis).collect();
    perm.insert(0, axis);
    let x = match axis {
        0 => x,
        _ => n.emit(Op::Transpose(Transpose { perm }), &[x])?,
    };
    let mut keys = n.reshape(x, vec![count, n.ty(x).len() / count])?;
    while n.ty(keys).shape[1] > 1 {
        let ranks = column_ranks(n, keys)?;
        let width = n.ty(ranks).shape[1];
        let pairs = width / 2;
        let every = |first: usize, size: usize| {
            let slice = Slice {
                starts: vec![0, first],
                steps: vec![1, if size > 1 { 2 } else { 1 }],
                sizes: vec![count, size],
            };
            Op::Slice(slice)
        };
        let high = n.emit(every(0, pairs), &[ranks])?;
        let low = n.emit(every(1, pairs), &[ranks])?;
        let base = n.number(count as i64);
        let high = n.binary(Binary::Mul, high, base)?;
        keys = n.binary(Binary::Add, high, low)?;
        if width % 2 == 1 {
            let last = n.emit(every(width - 1, 1), &[ranks])?;
            keys = n.emit(Op::Concat(Concat { axis: 1 }), &[keys, last])?;
        }
    }
    n.reshape(keys, vec![count])
}

/// The rank of each element [n, columns] in its column; equal elements have one rank.
fn column_ranks(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let shape = n.shape(x);
    let (count, columns) = (shape[0], shape[1]);
    let ordered = |n: &mut NodeImport, x: ValueId| {
        let order = TopK {
            axis: 0,
            k: count,
            largest: false,
        };
        n.emit(Op::TopK(order), &[x])
    };
    let at = Op::GatherElements(GatherElements { axis: 0 });
    let order = ordered(n, x)?;
    let values = n.emit(at.clone(), &[x, order])?;
    let mut ranks = n.filled(DType::I64, &[1, columns], 0.0)?;
    if count > 1 {
        let rows = |first: usize| {
            Op::Slice(Slice {
                starts: vec![first, 0],
                steps: vec![1; 2],
                sizes: vec![count - 1, columns],
            })
        };
        let (later, earlier) = (n.emit(rows(1), &[values])?, n.emit(rows(0), &[values])?);
        let same = n.binary(Binary::Equal, later, earlier)?;
        let differs = n.unary(Unary::Not, same)?;
        let differs = n.cast(differs, DType::I64)?;
        ranks = n.emit(Op::Concat(Concat { axis: 0 }), &[ranks, differs])?;
        ranks = running_sum(n, ranks, false)?;
    }
    put_back(n, order, ranks)
}

/// Whether each element of an ordered vector differs from the one before it.
fn begins(n: &mut NodeImport, values: ValueId) -> Result<ValueId, Problem> {
    let count = n.ty(values).len();
    let first = n.filled(DType::Bool, &[1], 1.0)?;
    if count == 1 {
        return Ok(first);
    }
    let (later, earlier) = (cut(n, values, 1, count - 1)?, cut(n, values, 0, count - 1)?);
    let same = n.binary(Binary::Equal, later, earlier)?;
    let differs = n.unary(Unary::Not, same)?;
    n.emit(Op::Concat(Concat { axis: 0 }), &[first, differs])
}

/// Elements of a vector.
fn cut(n: &mut NodeImport, x: ValueId, start: usize, size: usize) -> Result<ValueId, Problem> {
    let slice = Slice {
        starts: vec![start],
        steps: vec![1],
        sizes: vec![size],
    };
    n.emit(Op::Slice(slice), &[x])
}
