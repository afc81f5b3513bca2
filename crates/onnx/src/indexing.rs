//! Importers of operators that select, place or order elements by index.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{
    ArgReduce, Binary, Combine, Concat, Expand, Gather, GatherElements, GatherNd, Op,
    ScatterElements, ScatterNd, TopK,
};
use tensor::{DType, Tensor};

pub(crate) fn gather_elements(n: &mut NodeImport) -> Imported {
    let (x, indices) = (n.input(0)?, n.input(1)?);
    let axis = n.axis(n.attributes.int("axis", 0)?, n.ty(x).rank())?;
    let op = Op::GatherElements(GatherElements { axis });
    Ok(vec![n.emit(op, &[x, indices])?])
}

pub(crate) fn gather_nd(n: &mut NodeImport) -> Imported {
    let (x, indices) = (n.input(0)?, n.input(1)?);
    let batch = n.attributes.int("batch_dims", 0)?;
    let Ok(mut batch) = usize::try_from(batch) else {
        return Problem::unsupported(format!("batch_dims={batch}"));
    };
    let mut positions = indices;
    while let Some(rest) = behind_own_row(n, [x, positions], batch)? {
        (positions, batch) = (rest, batch + 1);
    }
    let op = Op::GatherNd(GatherNd { batch });
    Ok(vec![n.emit(op, &[x, positions])?])
}

/// What is left of positions without their first index, if that is the number of the row along the
/// axis behind the `batch` ones that operand and positions share: then they share this axis, too.
/// Exporters join the numbers of the rows with an index that they compute for each.
fn behind_own_row(
    n: &mut NodeImport,
    [x, positions]: [ValueId; 2],
    batch: usize,
) -> Result<Option<ValueId>, Problem> {
    let (own, shape) = (n.shape(x), n.shape(positions));
    let Some((_, outer)) = shape.split_last() else {
        return Ok(None);
    };
    if batch >= outer.len() || own.get(..=batch) != outer.get(..=batch) {
        return Ok(None);
    }
    let Some((node, _)) = n.model.producer(positions) else {
        return Ok(None);
    };
    let node = &n.model[node];
    let parts: Vec<ValueId> = node.inputs.iter().copied().flatten().collect();
    let joined = matches!(node.op, Op::Concat(c) if c.axis == outer.len());
    let (Some((first, rest)), true) = (parts.split_first(), joined) else {
        return Ok(None);
    };
    let is_row = |t: &Tensor| {
        let inner: usize = outer[batch + 1..].iter().product();
        let row = |i: usize| (i / inner % outer[batch]) as i64;
        t.shape().last() == Some(&1) && (0..t.len()).all(|i| t.get_i64(i) == row(i))
    };
    if rest.is_empty() || !n.model.constant(*first).is_some_and(|t| is_row(t)) {
        return Ok(None);
    }
    Ok(Some(match rest {
        [rest] => *rest,
        rest => n.emit(Op::Concat(Concat { axis: outer.len() }), rest)?,
    }))
}

pub(crate) fn combine(n: &NodeImport) -> Result<Combine, Problem> {
    Ok(match n.attributes.text("reduction", "none")?.as_str() {
        "none" => Combine::Replace,
        "add" => Combine::Add,
        "mul" => Combine::Mul,
        "max" => Combine::Max,
        "min" => Combine::Min,
        other => return Problem::unsupported(format!("reduction=`{other}`")),
    })
}

/// Indices that are the same for all elements within a position of the axis, with one element for
/// each position: exporters spread indices of rows over what is in the rows.
pub(crate) fn row_indices(n: &NodeImport, indices: ValueId, axis: usize) -> Option<ValueId> {
    let (node, _) = n.model.producer(indices)?;
    let node = &n.model[node];
    let source = node.input(0)?;
    let (from, to) = (n.shape(source), n.shape(indices));
    let rows = from.len() == to.len()
        && (0..to.len()).all(|d| match d == axis {
            true => from[d] == to[d],
            false => from[d] == 1,
        });
    (matches!(node.op, Op::Expand(_)) && rows).then_some(source)
}

/// `x` with updates at indices along an axis; the indices broadcast to the updates.
pub(crate) fn scattered_along(
    n: &mut NodeImport,
    [x, indices, updates]: [ValueId; 3],
    (axis, combine): (usize, Combine),
) -> Imported {
    let (own, given, shape) = (n.shape(x), n.shape(indices), n.shape(updates));
    let whole = axis == 0 && !own.is_empty() && own[1..] == shape[1..];
    if whole && given.len() == own.len() && given[1..].iter().all(|d| *d == 1) {
        let rows = n.reshape(indices, vec![given[0], 1])?;
        return scattered(n, Op::ScatterNd(ScatterNd { combine }), [x, rows, updates]);
    }
    let indices = match given == shape {
        true => indices,
        false => stretched(n, indices, &shape)?,
    };
    let op = Op::ScatterElements(ScatterElements { axis, combine });
    scattered(n, op, [x, indices, updates])
}

/// Without updates the operand is the result.
fn scattered(n: &mut NodeImport, op: Op, inputs: [ValueId; 3]) -> Imported {
    if n.ty(inputs[1]).is_empty() {
        let types: Vec<_> = inputs.iter().map(|v| Some(n.ty(*v))).collect();
        op.infer(&types)?;
        return Ok(vec![inputs[0]]);
    }
    Ok(vec![n.emit(op, &inputs)?])
}

pub(crate) fn scatter_elements(n: &mut NodeImport) -> Imported {
    let rank = n.ty(n.input(0)?).rank();
    let axis = n.axis(n.attributes.int("axis", 0)?, rank)?;
    let combine = combine(n)?;
    let (x, indices, updates) = (n.input(0)?, n.input(1)?, n.input(2)?);
    match row_indices(n, indices, axis).filter(|_| n.shape(indices) == n.shape(updates)) {
        Some(rows) => scattered_along(n, [x, rows, updates], (axis, combine)),
        None => {
            let op = Op::ScatterElements(ScatterElements { axis, combine });
            scattered(n, op, [x, indices, updates])
        }
    }
}

pub(crate) fn scatter_nd(n: &mut NodeImport) -> Imported {
    let combine = combine(n)?;
    let inputs = [n.input(0)?, n.input(1)?, n.input(2)?];
    scattered(n, Op::ScatterNd(ScatterNd { combine }), inputs)
}

/// `k` is an attribute before operator set 10. The result is sorted, whatever `sorted` says.
pub(crate) fn top_k(n: &mut NodeImport) -> Imported {
    n.attributes.ignore(&["sorted"]);
    let x = n.input(0)?;
    let axis = n.axis(n.attributes.int("axis", -1)?, n.ty(x).rank())?;
    let k = match n.opset {
        ..10 => n.attributes.optional_int("k")?,
        _ => n
            .constant_ints(1, "number of elements")?
            .and_then(|k| match k[..] {
                [k] => Some(k),
                _ => None,
            }),
    };
    let Some(k) = k.and_then(|k| usize::try_from(k).ok()) else {
        return Problem::unsupported("its number of elements is not one non-negative number");
    };
    let largest = n.attributes.flag("largest", true)?;
    let positions = n.emit(Op::TopK(TopK { axis, k, largest }), &[x])?;
    let op = Op::GatherElements(GatherElements { axis });
    Ok(vec![n.emit(op, &[x, positions])?, positions])
}

/// 0, 1, .. along one axis of a tensor of this rank, plus `first`.
pub(crate) fn counting(
    n: &mut NodeImport,
    count: usize,
    axis: usize,
    rank: usize,
    first: i64,
) -> Result<ValueId, Problem> {
    n.take_elements(&[count])?;
    let values: Vec<i64> = (0..count as i64).map(|i| first.saturating_add(i)).collect();
    let mut shape = vec![1; rank];
    shape[axis] = count;
    let places = Tensor::from_slice(&shape, &values);
    Ok(n.model.add_result(&n.name, places))
}

/// A value broadcast to a shape.
pub(crate) fn stretched(
    n: &mut NodeImport,
    x: ValueId,
    shape: &[usize],
) -> Result<ValueId, Problem> {
    let shape = shape.to_vec();
    n.emit(Op::Expand(Expand { shape }), &[x])
}

/// Where `x` has its largest element along an axis, the first of several: whether each is.
pub(crate) fn hardmax(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let default = if n.opset < 13 { 1 } else { -1 };
    let axis = n.axis(n.attributes.int("axis", default)?, shape.len())?;
    if n.ty(x).is_empty() {
        return Ok(vec![x]);
    }
    // Before operator set 13 the axes from this one on are one.
    let (rows, axis) = match n.opset {
        ..13 => {
            let (outer, inner) = shape.split_at(axis);
            let flat = vec![outer.iter().product(), inner.iter().product()];
            (n.reshape(x, flat)?, 1)
        }
        _ => (x, axis),
    };
    let arg = ArgReduce {
        max: true,
        axis,
        keepdims: true,
        last: false,
    };
    let best = n.emit(Op::ArgReduce(arg), &[rows])?;
    let (extent, rank) = (n.ty(rows).shape[axis], n.ty(rows).rank());
    let places = counting(n, extent, axis, rank, 0)?;
    let is_best = n.binary(Binary::Equal, best, places)?;
    let result = n.cast(is_best, n.dtype(x))?;
    Ok(vec![n.reshape(result, shape)?])
}

/// Along a new axis, whether the position is the index; no position is one outside the depth.
pub(crate) fn one_hot(n: &mut NodeImport) -> Imported {
    let (indices, values) = (n.input(0)?, n.input(2)?);
    let depth = n.constant_scalar(1, "depth")?.unwrap_or(-1.0);
    if !(1.0..1e9).contains(&depth) || n.ty(values).shape != [2] {
        return Problem::unsupported(format!("depth {depth}, values {}", n.ty(values)));
    }
    let mut shape = n.shape(indices);
    let axis = n.axis(n.attributes.int("axis", -1)?, shape.len() + 1)?;
    shape.insert(axis, 1);
    let indices = n.cast(indices, DType::I64)?;
    let indices = n.reshape(indices, shape.clone())?;
    let zero = n.filled(DType::I64, &[], 0.0)?;
    let extent = n.filled(DType::I64, &[], depth.trunc())?;
    let from_end = n.binary(Binary::Add, indices, extent)?;
    let is_negative = n.binary(Binary::Less, indices, zero)?;
    let indices = n.emit(Op::Where, &[is_negative, from_end, indices])?;
    let places = counting(n, depth as usize, axis, shape.len(), 0)?;
    let is_index = n.binary(Binary::Equal, indices, places)?;
    let value = |n: &mut NodeImport, i: f64| {
        let at = n.filled(DType::I64, &[], i)?;
        n.emit(Op::Gather(Gather { axis: 0 }), &[values, at])
    };
    let (off, on) = (value(n, 0.0)?, value(n, 1.0)?);
    Ok(vec![n.emit(Op::Where, &[is_index, on, off])?])
}

/// Zero but for ones on a diagonal: a constant.
pub(crate) fn eye_like(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let dtype = match n.attributes.optional_int("dtype")? {
        Some(d) => crate::tensors::dtype_of(i32::try_from(d).unwrap_or(0))
            .map_err(|e| Problem::Unsupported(e.to_string()))?,
        None => n.dtype(x),
    };
    let k = n.attributes.int("k", 0)?;
    let shape = n.shape(x);
    let [rows, columns] = shape[..] else {
        return Problem::unsupported(format!("its input has shape {shape:?}, not two axes"));
    };
    n.take_elements(&shape)?;
    let mut out = Tensor::zeros(dtype, &shape);
    for r in 0..rows {
        let column = usize::try_from((r as i64).saturating_add(k));
        if let Ok(c) = column
            && c < columns
        {
            out.set_f64(r * columns + c, 1.0);
        }
    }
    Ok(vec![n.model.add_result(&n.name, out)])
}

/// The part of each matrix on one side of a diagonal, and zeros.
pub(crate) fn trilu(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let upper = n.attributes.flag("upper", true)?;
    let computed = n.optional(1).filter(|v| n.model.constant(*v).is_none());
    let k = match computed {
        Some(_) => 0,
        None => match n.constant_ints(1, "diagonal")?.as_deref() {
            None => 0,
            Some([k]) => *k,
            Some(_) => return Problem::unsupported("its diagonal is not one number"),
        },
    };
    let shape = n.shape(x);
    let [.., rows, columns] = shape[..] else {
        return Problem::unsupported(format!("its input has shape {shape:?}, without matrices"));
    };
    if n.ty(x).is_empty() {
        return Ok(vec![x]);
    }
    // Diagonals outside the matrix are all alike, and sums with them do not overflow.
    let (least, most) = (-(rows as i64) - 1, columns as i64 + 1);
    let mut row = counting(n, rows, 0, 2, k.clamp(least, most))?;
    if let Some(k) = computed {
        let (least, most) = (n.number(least), n.number(most));
        let k = n.reshape(k, vec![])?;
        let k = n.binary(Binary::Max, k, least)?;
        let k = n.binary(Binary::Min, k, most)?;
        row = n.binary(Binary::Add, row, k)?;
    }
    let column = counting(n, columns, 1, 2, 0)?;
    let side = match upper {
        true => Binary::GreaterOrEqual,
        false => Binary::LessOrEqual,
    };
    let keeps = n.binary(side, column, row)?;
    let zero = n.filled(n.dtype(x), &[], 0.0)?;
    Ok(vec![n.emit(Op::Where, &[keeps, x, zero])?])
}

/// The first elements along the time axis, as many as each sequence has, in reverse order.
pub(crate) fn reverse_sequence(n: &mut NodeImport) -> Imported {
    let (x, lengths) = (n.input(0)?, n.input(1)?);
    let rank = n.ty(x).rank();
    let batch = n.axis(n.attributes.int("batch_axis", 1)?, rank)?;
    let time = n.axis(n.attributes.int("time_axis", 0)?, rank)?;
    if batch == time || n.ty(lengths).shape != [n.ty(x).shape[batch]] {
        return Problem::unsupported(format!(
            "batch_axis={batch}, time_axis={time} with lengths {} of {}",
            n.ty(lengths),
            n.ty(x)
        ));
    }
    let shape = n.shape(x);
    if n.ty(x).is_empty() {
        return Ok(vec![x]);
    }
    let mut along_batch = vec![1; shape.len()];
    along_batch[batch] = shape[batch];
    let lengths = n.cast(lengths, DType::I64)?;
    let lengths = n.reshape(lengths, along_batch)?;
    let forwards = counting(n, shape[time], time, shape.len(), 0)?;
    let last = counting(n, 1, time, shape.len(), -1)?;
    let last = n.binary(Binary::Add, lengths, last)?;
    let backwards = n.binary(Binary::Sub, last, forwards)?;
    let inside = n.binary(Binary::Less, forwards, lengths)?;
    let indices = n.emit(Op::Where, &[inside, backwards, forwards])?;
    let indices = stretched(n, indices, &shape)?;
    let op = Op::GatherElements(GatherElements { axis: time });
    Ok(vec![n.emit(op, &[x, indices])?])
}
