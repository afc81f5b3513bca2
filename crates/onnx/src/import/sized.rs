//! Nodes with operands whose size the data decide (`live`): which of their results are live.
//!
//! Operators that mix elements along such an axis have a rule here; of others `apart` must prove that they do not. An
//! operand is masked where the operator would mix what is live with what is not, so that results never depend on what lies
//! beyond a count.

use super::{apart, complete, placed, sampled, summed, timed};
use crate::live::{Extent, Range};
use crate::moving;
use crate::node::{Imported, NodeImport, Problem};
use crate::operators::Operator;
use graph::ValueId;
use graph::ops::{Binary, Concat, Gather, Op};
use std::sync::Arc;
use tensor::{DType, Tensor};

/// Operators whose result at an index is made of their operands' elements there.
pub(super) const ELEMENTWISE: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Div",
    "Dropout",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Where",
    "Xor",
];

/// Integers from which sizes are computed, in ways that never fall where an operand rises.
const OF_SIZES: &[&str] = &[
    "Add",
    "Cast",
    "Concat",
    "Flatten",
    "Gather",
    "Identity",
    "Max",
    "Min",
    "Mul",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Reshape",
    "Slice",
    "Squeeze",
    "Sum",
    "Unsqueeze",
    "Where",
];

/// Whether a node needs more than its operator's importer.
pub(super) fn concerns(n: &NodeImport) -> bool {
    n.inputs.iter().flatten().any(|v| n.live.concerns(*v))
}

/// Finds bounds of an operand that is the size of the result, where the data decide it.
pub(super) fn find_bounds(n: &mut NodeImport, operator: &Operator) {
    let place = match operator.name {
        _ if !operator.domain.is_empty() => return,
        "ConstantOfShape" => 0,
        "Expand" | "Range" | "Tile" | "TopK" => 1,
        "Split" if n.opset > 12 => 1,
        "Resize" if n.opset > 10 => 3,
        _ => return,
    };
    if let Some(sizes) = n.inputs.get(place).copied().flatten() {
        n.find_range(sizes);
    }
}

/// As [`complete`], of a node that [`concerns`]: by its operator's rule, or by a proof where that does not take its form.
pub(super) fn import(n: &mut NodeImport, operator: &Operator) -> Imported {
    if n.inputs
        .iter()
        .flatten()
        .any(|v| !n.live.extents(*v).is_empty())
    {
        apart::fit(n, operator)?;
    }
    let inputs = n.inputs.clone();
    let refused = match by_rule(n, operator) {
        Err(Problem::Unsupported(why)) => why,
        imported => return imported,
    };
    n.inputs = inputs;
    n.at_bounds = false;
    let live = n.inputs.iter().flatten();
    let proven = match live.copied().any(|v| !n.live.extents(v).is_empty()) {
        true => apart::import(n, operator),
        false => Problem::unsupported(""),
    };
    match proven {
        Err(Problem::Unsupported(_)) => Problem::unsupported(refused),
        imported => imported,
    }
}

fn by_rule(n: &mut NodeImport, operator: &Operator) -> Imported {
    let name = operator.name;
    let live = |n: &NodeImport, i: usize| {
        let v = n.inputs.get(i).copied().flatten();
        v.is_some_and(|v| !n.live.extents(v).is_empty())
    };
    let any = (0..n.inputs.len()).any(|i| live(n, i));
    match name {
        "Unique" if any => complete(n, operator.import),
        "LSTM" | "GRU" | "RNN" | "DynamicQuantizeLSTM" if any => timed::recurrent(n, operator),
        _ if !operator.domain.is_empty() && any => refuse(n),
        _ if !operator.domain.is_empty() => complete(n, operator.import),
        "ConstantOfShape" | "Expand" if !live(n, 0) => shaped(n, operator),
        "Range" if !any => range(n, operator),
        "TopK" => top_k(n, operator),
        "Resize" if sampled::concerns(n) => sampled::resize(n, operator),
        "Tile" => placed::tile(n, operator),
        "Slice" if any || moving::concerns(n) => moving::slice(n),
        "Reshape" if any => reshaped(n, operator),
        _ if !any && OF_SIZES.contains(&name) => of_sizes(n, operator),
        "Equal" if !any => equal_sizes(n, operator),
        _ if !any => complete(n, operator.import),
        "Shape" => shape(n, operator),
        "Size" => size(n, operator),
        "NonZero" | "Compress" | "NonMaxSuppression" | "SequenceConstruct" | "SequenceInsert" => {
            complete(n, operator.import)
        }
        "Squeeze" | "Unsqueeze" | "Flatten" => reshaped(n, operator),
        "Transpose" => transposed(n, operator),
        "Concat" => concat(n, operator),
        "Split" => moving::split(n),
        "Expand" => placed::expand(n, operator),
        "Gather" | "GatherND" | "GatherElements" => gather(n, operator),
        "Pad" => placed::pad(n, operator),
        "Scatter" | "ScatterElements" => placed::scatter(n),
        "ScatterND" => placed::scatter_tuples(n, operator),
        "ReverseSequence" => timed::reversed(n, operator),
        "CumSum" => summed::running(n, operator),
        "Softmax" | "LogSoftmax" => shares(n, operator),
        "ArgMax" | "ReduceMax" | "ReduceLogSumExp" => {
            summed::reduced(n, operator, f64::NEG_INFINITY)
        }
        "ArgMin" | "ReduceMin" => summed::reduced(n, operator, f64::INFINITY),
        "ReduceProd" => summed::reduced(n, operator, 1.0),
        "ReduceSum" | "ReduceL1" | "ReduceL2" | "ReduceSumSquare" | "ReduceLogSum" => {
            summed::reduced(n, operator, 0.0)
        }
        "DynamicQuantizeLinear" => summed::quantised(n, operator),
        "ReduceMean" => summed::mean(n, operator),
        "GlobalAveragePool" | "GlobalMaxPool" => summed::pooled(n, operator),
        "MatMul" | "Gemm" => summed::product(n, operator),
        "RoiAlign" if !live(n, 0) => {
            let regions = n.input(1)?;
            let extents = n.live.extents(regions).to_vec();
            // Regions that are not live lie outside every image, where nothing is sampled.
            n.inputs[1] = Some(n.masked(regions, &[0], -1e6)?);
            let batch = n.input(2)?;
            n.inputs[2] = Some(n.masked(batch, &[0], 0.0)?);
            let values = complete(n, operator.import)?;
            set_all(n, values, &extents)
        }
        _ if ELEMENTWISE.contains(&name) => elementwise(n, operator),
        _ => refuse(n),
    }
}

pub(super) fn refuse<T>(n: &NodeImport) -> Result<T, Problem> {
    let given = n.inputs.iter().flatten();
    let sized = given.filter(|v| !n.live.extents(**v).is_empty());
    let names: Vec<String> = sized
        .map(|v| format!("`{}` ({} at most)", n.model[*v].name(), n.ty(*v)))
        .collect();
    Problem::unsupported(format!(
        "the data decide the size of its operand {}, which this operator does not take; export \
         the model without what follows that operand, and apply it to the model's outputs",
        names.join(" and ")
    ))
}

/// Sets what is live of a result. A value that is an operand, too, gets a node of its own.
pub(super) fn set(
    n: &mut NodeImport,
    v: ValueId,
    extents: Vec<Extent>,
) -> Result<ValueId, Problem> {
    let known = n.live.extents(v);
    let same = known.len() == extents.len() && known.iter().all(|e| extents.contains(e));
    if same {
        return Ok(v);
    }
    let v = match n.inputs.contains(&Some(v)) {
        true => n.emit(Op::Identity, &[v])?,
        false => v,
    };
    n.live.set(v, extents);
    Ok(v)
}

/// Every value gets the same extents.
pub(super) fn set_all(n: &mut NodeImport, values: Vec<ValueId>, extents: &[Extent]) -> Imported {
    let set = |v| set(n, v, extents.to_vec());
    values.into_iter().map(set).collect()
}

fn minimum(n: &mut NodeImport, a: ValueId, b: i64) -> Result<ValueId, Problem> {
    let b = n.number(b);
    n.binary(Binary::Min, a, b)
}

/// Between what a value's elements lie: also of a constant.
fn known_range(n: &NodeImport, v: ValueId) -> Option<Range> {
    n.live.range(v).cloned().or_else(|| {
        let t = n.model.constant(v)?.clone();
        let (low, high) = (t.clone(), t);
        Some(Range { low, high })
    })
}

/// Sizes are compared when the model is read, where they can be equal nowhere: exporters ask
/// whether one is -1.
fn equal_sizes(n: &mut NodeImport, operator: &Operator) -> Imported {
    let values = complete(n, operator.import)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let (Some(a), Some(b)) = (known_range(n, a), known_range(n, b)) else {
        return Ok(values);
    };
    let count = n.ty(values[0]).len();
    let at = |t: &Tensor, i: usize| t.get_i64(if t.len() == 1 { 0 } else { i });
    let whole = |r: &Range| r.low.dtype().is_int() && (r.low.len() == 1 || r.low.len() == count);
    let apart = |i: usize| at(&a.high, i) < at(&b.low, i) || at(&b.high, i) < at(&a.low, i);
    match whole(&a) && whole(&b) && (0..count).all(apart) {
        true => Ok(vec![n.filled(DType::Bool, &n.shape(values[0]), 0.0)?]),
        false => Ok(values),
    }
}

/// Integers computed from counts: also what the least and the largest counts give.
fn of_sizes(n: &mut NodeImport, operator: &Operator) -> Imported {
    let values = complete(n, operator.import)?;
    let ranges = n.inputs.iter().map(|v| v.map(|v| known_range(n, v)));
    let Some(ranges) = ranges
        .map(Option::unwrap_or_default)
        .collect::<Option<Vec<_>>>()
    else {
        return Ok(values);
    };
    let negative = |t: &Tensor| (0..t.len()).any(|i| t.get_i64(i) < 0);
    let rises =
        !matches!(operator.name, "Mul" | "ReduceProd") || !ranges.iter().any(|r| negative(&r.low));
    let integers = n.dtype(values[0]).is_int();
    if !rises || !integers {
        return Ok(values);
    }
    let actual = n.inputs.clone();
    let at = |n: &mut NodeImport, pick: fn(&Range) -> &Arc<Tensor>| {
        let bound = |r: &Range| Some(n.model.add_result(&n.name, pick(r).clone()));
        n.inputs = ranges.iter().map(bound).collect();
        let bounds = complete(n, operator.import);
        n.inputs.clone_from(&actual);
        bounds
    };
    let (low, high) = (at(n, |r| &r.low)?, at(n, |r| &r.high)?);
    let mut results = Vec::new();
    for (v, (low, high)) in values.iter().zip(low.into_iter().zip(high)) {
        let constant = |v| n.model.constant(v).cloned();
        results.push(match (constant(low), constant(high)) {
            // A part of a shape that no count is in.
            (Some(low), Some(high)) if low == high => n.model.add_result(&n.name, low),
            (Some(low), Some(high)) => {
                n.live.set_range(*v, Range { low, high });
                *v
            }
            _ => *v,
        });
    }
    Ok(results)
}

fn shape(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    let bound = complete(n, operator.import)?[0];
    let all = n.shape(x);
    let (start, _) = crate::shapes::span(n, all.len())?;
    let Some(high) = n.model.constant(bound).cloned() else {
        return refuse(n);
    };
    let (mut parts, mut low) = (Vec::new(), Tensor::clone(&high));
    for i in 0..high.len() {
        parts.push(match n.live.count(x, start + i) {
            Some(count) => {
                low.set_i64(i, 0);
                n.as_vector(count)?
            }
            None => {
                let size = Tensor::from_slice(&[1], &[high.get_i64(i)]);
                n.model.add_result(&n.name, size)
            }
        });
    }
    let value = match parts[..] {
        [] => return Ok(vec![bound]),
        [one] => one,
        _ => n.emit(Op::Concat(Concat { axis: 0 }), &parts)?,
    };
    let low = Arc::new(low);
    n.live.set_range(value, Range { low, high });
    Ok(vec![value])
}

fn size(n: &mut NodeImport, operator: &Operator) -> Imported {
    complete(n, operator.import)?;
    let x = n.input(0)?;
    let (shape, extents) = (n.shape(x), n.live.extents(x).to_vec());
    let others = (0..shape.len()).filter(|d| extents.iter().all(|e| e.axis != *d));
    let others: usize = others.map(|d| shape[d]).product();
    let mut value = n.number(others as i64);
    for e in extents {
        value = n.binary(Binary::Mul, value, e.count)?;
    }
    let all = |v: usize| Arc::new(Tensor::from_slice(&[], &[v as i64]));
    let (low, high) = (all(0), all(shape.iter().product()));
    n.live.set_range(value, Range { low, high });
    Ok(vec![value])
}

/// The axes whose size comes from an element of the last operand that the data decide: of a
/// result of `rank` axes.
pub(super) fn sizes_of(
    n: &mut NodeImport,
    given: ValueId,
    rank: usize,
) -> Result<Vec<Extent>, Problem> {
    let Some(Range { low, high }) = n.live.range(given).cloned() else {
        return Ok(Vec::new());
    };
    let mut extents = Vec::new();
    for i in (0..high.len()).filter(|i| low.get_i64(*i) != high.get_i64(*i)) {
        let at = n.number(i as i64);
        let count = n.emit(Op::Gather(Gather { axis: 0 }), &[given, at])?;
        let mut count = n.cast(count, DType::I64)?;
        if low.get_i64(i) < 0 {
            let none = n.number(0);
            count = n.binary(Binary::Max, count, none)?;
        }
        let axis = rank - high.len() + i;
        extents.push(Extent { axis, count });
    }
    Ok(extents)
}

/// A result whose shape is an operand.
fn shaped(n: &mut NodeImport, operator: &Operator) -> Imported {
    n.at_bounds = true;
    let y = complete(n, operator.import)?[0];
    let given = n.inputs.last().copied().flatten();
    let rank = n.ty(y).rank();
    let extents = match given {
        Some(given) => sizes_of(n, given, rank)?,
        None => Vec::new(),
    };
    // All elements are equal: a node of its own keeps what is live of equal values apart.
    let y = n.emit(Op::Identity, &[y])?;
    Ok(vec![set(n, y, extents)?])
}

/// 0, 1, ... up to a count.
fn range(n: &mut NodeImport, operator: &Operator) -> Imported {
    let (start, limit, delta) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let is = |n: &NodeImport, v: ValueId, value: i64| {
        let t = n.model.constant(v);
        t.is_some_and(|t| t.dtype() == DType::I64 && t.len() == 1 && t.get_i64(0) == value)
    };
    if !is(n, start, 0) || !is(n, delta, 1) || n.dtype(limit) != DType::I64 {
        return complete(n, operator.import);
    }
    n.at_bounds = true;
    let y = complete(n, operator.import)?[0];
    let y = n.emit(Op::Identity, &[y])?;
    let mut count = n.reshape(limit, vec![])?;
    if n.live.range(limit).is_some_and(|r| r.low.get_i64(0) < 0) {
        let none = n.number(0);
        count = n.binary(Binary::Max, count, none)?;
    }
    Ok(vec![set(n, y, vec![Extent { axis: 0, count }])?])
}

fn elementwise(n: &mut NodeImport, operator: &Operator) -> Imported {
    let values = complete(n, operator.import)?;
    let shape = n.shape(values[0]);
    let mut extents: Vec<Extent> = Vec::new();
    // What `CastLike` is like gives a type, and no elements.
    let read = match operator.name {
        "CastLike" => 1,
        _ => n.inputs.len(),
    };
    for v in n.inputs[..read].iter().copied().flatten() {
        let own = n.shape(v);
        let lead = shape.len() - own.len();
        for e in n.live.extents(v) {
            let axis = lead + e.axis;
            // Two counts along an axis are equal, or the model contradicts itself.
            if own[e.axis] != shape[axis] {
                return refuse(n);
            }
            if extents.iter().all(|e| e.axis != axis) {
                let count = e.count;
                extents.push(Extent { axis, count });
            }
        }
    }
    set_all(n, values, &extents)
}

fn transposed(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    let values = complete(n, operator.import)?;
    let place = |axis: usize| match n.attributes.ints("perm") {
        Ok(Some(perm)) => perm.iter().position(|p| *p == axis as i64).unwrap_or(axis),
        _ => rank - 1 - axis,
    };
    let moved = |e: &Extent| Extent {
        axis: place(e.axis),
        count: e.count,
    };
    let extents: Vec<Extent> = n.live.extents(x).iter().map(moved).collect();
    set_all(n, values, &extents)
}

/// A live axis stays one, or is the outermost and becomes one with what is within it.
fn reshaped(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    n.at_bounds = true;
    let y = complete(n, operator.import)?[0];
    let (from, to) = (n.shape(x), n.shape(y));
    let before = |shape: &[usize], d: usize| shape[..d].iter().product::<usize>();
    let mut extents = Vec::new();
    for e in n.live.extents(x).to_vec() {
        let outer = before(&from, e.axis);
        let place = (0..to.len())
            .rev()
            .find(|d| before(&to, *d) == outer && to[*d] == from[e.axis]);
        if let Some(axis) = place {
            let count = e.count;
            extents.push(Extent { axis, count });
            continue;
        }
        let joined = (0..to.len()).find(|d| before(&to, *d) == 1 && to[*d] > 1);
        match joined {
            Some(axis) if outer == 1 && to[axis] % from[e.axis] == 0 => {
                let within = n.number((to[axis] / from[e.axis]) as i64);
                let count = n.binary(Binary::Mul, e.count, within)?;
                extents.push(Extent { axis, count });
            }
            _ => return packed(n, x, y),
        }
    }
    Ok(vec![set(n, y, extents)?])
}

/// As [`reshaped`], of axes that become one though some but the first are live: their live elements are moved together.
fn packed(n: &mut NodeImport, x: ValueId, y: ValueId) -> Imported {
    let (from, to) = (n.shape(x), n.shape(y));
    let (mut d, mut extents, mut groups) = (0, Vec::new(), Vec::new());
    for (axis, size) in to.iter().enumerate() {
        let (first, mut joined) = (d, 1);
        while d < from.len() && joined * from[d] <= *size && (joined < *size || from[d] == 1) {
            joined *= from[d];
            d += 1;
        }
        if joined != *size {
            return refuse(n);
        }
        groups.push((axis, first..d));
    }
    if d != from.len() || n.ty(x).is_empty() {
        return refuse(n);
    }
    let mut y = y;
    for (axis, group) in groups {
        if group.clone().all(|d| n.live.count(x, d).is_none()) {
            continue;
        }
        let (count, places) = together(n, x, &from, group)?;
        y = n.emit(Op::Gather(Gather { axis }), &[y, places])?;
        extents.push(Extent { axis, count });
    }
    Ok(vec![set(n, y, extents)?])
}

/// How many elements of some joined axes are live, and where each of these lies, in order.
fn together(
    n: &mut NodeImport,
    x: ValueId,
    from: &[usize],
    group: std::ops::Range<usize>,
) -> Result<(ValueId, ValueId), Problem> {
    let (zero, one) = (n.number(0), n.number(1));
    let bound: usize = from[group.clone()].iter().product();
    let mut rest = crate::indexing::counting(n, bound, 0, 1, 0)?;
    let (mut places, mut stride, mut count) = (zero, 1, one);
    for d in group.rev() {
        let size = n.live.count(x, d);
        let size = size.unwrap_or_else(|| n.number(from[d] as i64));
        count = n.binary(Binary::Mul, count, size)?;
        let some = n.binary(Binary::Max, size, one)?;
        let place = n.binary(Binary::Mod, rest, some)?;
        rest = n.binary(Binary::Div, rest, some)?;
        let step = n.number(stride);
        let place = n.binary(Binary::Mul, place, step)?;
        places = n.binary(Binary::Add, places, place)?;
        stride *= from[d] as i64;
    }
    // Beyond the count a place is any that there is: each part of it is below the axis' bound.
    Ok((count, places))
}

/// What is not live has no share. Before operator set 13 the axes from the operator's on are one.
fn shares(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    let (default, old) = if n.opset < 13 { (1, true) } else { (-1, false) };
    let axis = n.axis(n.attributes.int("axis", default)?, rank)?;
    let axes: Vec<usize> = (axis..if old { rank } else { axis + 1 }).collect();
    let extents = n.live.extents(x).to_vec();
    n.inputs[0] = Some(n.masked(x, &axes, f64::NEG_INFINITY)?);
    let values = complete(n, operator.import)?;
    set_all(n, values, &extents)
}

/// Positions that are not live point to element 0; negative ones count from the last that is
/// live.
fn gather(n: &mut NodeImport, operator: &Operator) -> Imported {
    let (x, given) = (n.input(0)?, n.input(1)?);
    let (own, picked) = (n.live.extents(x).to_vec(), n.live.extents(given).to_vec());
    let all: Vec<usize> = (0..n.ty(given).rank()).collect();
    let mut indices = n.masked(given, &all, 0.0)?;
    let (rank, depth) = (n.ty(x).rank(), n.ty(given).rank());
    let mut extents = Vec::new();
    if operator.name == "GatherND" {
        let first = n.attributes.int("batch_dims", 0)?.max(0) as usize;
        let after = first + n.shape(given).last().copied().unwrap_or(0);
        let apart = own.iter().any(|e| e.axis < first);
        if apart || picked.iter().any(|e| e.axis + 1 == depth) {
            return refuse(n);
        }
        let along = |axis: usize| n.live.count(x, axis);
        let counts: Vec<Option<ValueId>> = (first..after).map(along).collect();
        indices = from_ends(n, indices, &counts)?;
        extents = picked;
        let kept = own.iter().filter(|e| e.axis >= after);
        extents.extend(kept.map(|e| Extent {
            axis: e.axis - after + depth - 1,
            ..*e
        }));
    } else {
        let axis = n.axis(n.attributes.int("axis", 0)?, rank)?;
        if let Some(count) = n.live.count(x, axis) {
            indices = counted_back(n, indices, count)?;
        }
        let elements = operator.name == "GatherElements";
        for e in own.iter().filter(|e| e.axis != axis && !elements) {
            let shift = if e.axis > axis { depth - 1 } else { 0 };
            let axis = e.axis + shift;
            extents.push(Extent { axis, ..*e });
        }
        let shift = if elements { 0 } else { axis };
        let place = |e: &Extent| Extent {
            axis: e.axis + shift,
            ..*e
        };
        extents.extend(picked.iter().map(place));
    }
    n.inputs[1] = Some(indices);
    let y = complete(n, operator.import)?[0];
    Ok(vec![set(n, y, extents)?])
}

/// Indices, of which negative ones count from the end of so many elements; a scalar, or a value
/// for each index.
fn counted_back(n: &mut NodeImport, indices: ValueId, count: ValueId) -> Result<ValueId, Problem> {
    let zero = n.filled(n.dtype(indices), &[], 0.0)?;
    let count = n.cast(count, n.dtype(indices))?;
    let from_end = n.binary(Binary::Add, indices, count)?;
    let negative = n.binary(Binary::Less, indices, zero)?;
    n.emit(Op::Where, &[negative, from_end, indices])
}

/// Tuples of indices, one along each of some axes, as [`counted_back`] along those with a count.
fn from_ends(
    n: &mut NodeImport,
    indices: ValueId,
    counts: &[Option<ValueId>],
) -> Result<ValueId, Problem> {
    if counts.iter().all(Option::is_none) {
        return Ok(indices);
    }
    let sizes = counts.iter().map(|count| {
        let count = count.unwrap_or_else(|| n.number(0));
        n.as_vector(count)
    });
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    let sizes = match sizes[..] {
        [one] => one,
        _ => n.emit(Op::Concat(Concat { axis: 0 }), &sizes)?,
    };
    counted_back(n, indices, sizes)
}

/// Parts along a live axis are moved together: what is live comes first.
fn concat(n: &mut NodeImport, operator: &Operator) -> Imported {
    let parts: Vec<ValueId> = n.inputs.iter().flatten().copied().collect();
    let y = complete(n, operator.import)?[0];
    let rank = n.ty(y).rank();
    let axis = n.axis(n.attributes.int("axis", 0)?, rank)?;
    let mut extents: Vec<Extent> = Vec::new();
    // Parts have one size along other axes. So it is fixed for all where it is for one.
    let is_fixed = |d: usize| parts.iter().any(|v| n.live.count(*v, d).is_none());
    for v in &parts {
        for e in n.live.extents(*v).iter().filter(|e| e.axis != axis) {
            if !is_fixed(e.axis) && extents.iter().all(|own| own.axis != e.axis) {
                extents.push(*e);
            }
        }
    }
    let sizes: Vec<_> = parts
        .iter()
        .map(|v| (n.ty(*v).shape[axis], n.live.count(*v, axis)))
        .collect();
    if sizes.iter().all(|s| s.1.is_none()) {
        return Ok(vec![set(n, y, extents)?]);
    }
    let chosen = match sizes[..] {
        [_] => return Ok(vec![y]),
        _ => n.joined(sizes)?,
    };
    let y = n.emit(Op::Gather(Gather { axis }), &[y, chosen.positions])?;
    let count = chosen.count;
    extents.push(Extent { axis, count });
    Ok(vec![set(n, y, extents)?])
}

/// What is not live comes last in the order.
fn top_k(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    let axis = n.axis(n.attributes.int("axis", -1)?, n.ty(x).rank())?;
    let fill = match n.attributes.flag("largest", true)? {
        true => f64::NEG_INFINITY,
        false => f64::INFINITY,
    };
    n.inputs[0] = Some(n.masked(x, &[axis], fill)?);
    n.at_bounds = true;
    let values = complete(n, operator.import)?;
    let k = n.ty(values[0]).shape[axis] as i64;
    let mut extents = n.live.extents(x).to_vec();
    let own = n.live.count(x, axis);
    extents.retain(|e| e.axis != axis);
    let asked = n.inputs.get(1).copied().flatten();
    let count = match (asked.filter(|v| n.live.range(*v).is_some()), own) {
        (Some(asked), _) => Some(n.reshape(asked, vec![])?),
        (None, Some(own)) => Some(minimum(n, own, k)?),
        (None, None) => None,
    };
    extents.extend(count.map(|count| Extent { axis, count }));
    set_all(n, values, &extents)
}
