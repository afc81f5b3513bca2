//! Nodes that sum or reduce over elements of operands whose size the data decide.

use super::complete;
use super::sized::{refuse, set, set_all};
use crate::live::Extent;
use crate::node::{Imported, NodeImport, Problem, is_half};
use crate::operators::Operator;
use graph::ValueId;
use graph::ops::{Binary, Op, Reduce, ReduceKind};
use tensor::DType;

/// The axes that a reduction takes away, and whether it keeps them with size 1.
fn reduced_axes(
    n: &NodeImport,
    operator: &Operator,
    rank: usize,
) -> Result<(Vec<usize>, bool), Problem> {
    let given = match operator.name {
        "ArgMax" | "ArgMin" => Some(vec![n.attributes.int("axis", 0)?]),
        _ => match n.attributes.ints("axes")? {
            Some(axes) => Some(axes.to_vec()),
            None if n.inputs.len() > 1 => n.constant_ints(1, "axes")?,
            None => None,
        },
    };
    let axes = given.unwrap_or_default().into_iter();
    let mut axes = axes
        .map(|a| n.axis(a, rank))
        .collect::<Result<Vec<_>, _>>()?;
    if axes.is_empty() && !n.attributes.flag("noop_with_empty_axes", false)? {
        axes = (0..rank).collect();
    }
    Ok((axes, n.attributes.flag("keepdims", true)?))
}

/// What is live of a reduction's result.
fn kept_extents(extents: &[Extent], axes: &[usize], keepdims: bool) -> Vec<Extent> {
    let kept = extents.iter().filter(|e| !axes.contains(&e.axis));
    let place = |e: &Extent| Extent {
        axis: match keepdims {
            true => e.axis,
            false => e.axis - axes.iter().filter(|a| **a < e.axis).count(),
        },
        count: e.count,
    };
    kept.map(place).collect()
}

/// A reduction, with an operand's elements that are not live set to what changes nothing.
pub(super) fn reduced(n: &mut NodeImport, operator: &Operator, fill: f64) -> Imported {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    let extents = n.live.extents(x).to_vec();
    let all: Vec<usize> = (0..rank).collect();
    n.inputs[0] = Some(n.masked(x, &all, fill)?);
    let y = complete(n, operator.import)?[0];
    let (axes, keepdims) = reduced_axes(n, operator, rank)?;
    let kept = kept_extents(&extents, &axes, keepdims);
    Ok(vec![set(n, y, kept)?])
}

/// A mean over elements of which the data decide the number.
pub(super) fn mean(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    if n.dtype(x).is_int() {
        return refuse(n);
    }
    let (axes, keepdims) = reduced_axes(n, operator, n.ty(x).rank())?;
    Ok(vec![mean_over(n, x, axes, keepdims)?])
}

/// The mean or the maximum of each channel of an image.
pub(super) fn pooled(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    let axes: Vec<usize> = (2..n.ty(x).rank()).collect();
    if operator.name == "GlobalAveragePool" && n.dtype(x).is_float() {
        return Ok(vec![mean_over(n, x, axes, true)?]);
    }
    let kept = kept_extents(n.live.extents(x), &axes, true);
    n.inputs[0] = Some(n.masked(x, &axes, f64::NEG_INFINITY)?);
    let values = complete(n, operator.import)?;
    set_all(n, values, &kept)
}

/// The range of the numbers holds 0, whatever they are: zeros do not change it.
pub(super) fn quantised(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    let extents = n.live.extents(x).to_vec();
    let all: Vec<usize> = (0..n.ty(x).rank()).collect();
    n.inputs[0] = Some(n.masked(x, &all, 0.0)?);
    let mut values = complete(n, operator.import)?;
    values[0] = set(n, values[0], extents)?;
    Ok(values)
}

fn mean_over(
    n: &mut NodeImport,
    x: ValueId,
    axes: Vec<usize>,
    keepdims: bool,
) -> Result<ValueId, Problem> {
    let (shape, dtype) = (n.shape(x), n.dtype(x));
    let extents = n.live.extents(x).to_vec();
    let masked = n.masked(x, &axes, 0.0)?;
    let wide = if is_half(dtype) { DType::F32 } else { dtype };
    let masked = n.cast(masked, wide)?;
    let mut number = n.number(1);
    for axis in &axes {
        let count = extents.iter().find(|e| e.axis == *axis).map(|e| e.count);
        let count = count.unwrap_or_else(|| n.number(shape[*axis] as i64));
        number = n.binary(Binary::Mul, number, count)?;
    }
    let kept = kept_extents(&extents, &axes, keepdims);
    let kind = ReduceKind::Sum;
    let reduce = Reduce {
        kind,
        axes,
        keepdims,
    };
    let sum = n.emit(Op::Reduce(reduce), &[masked])?;
    let number = n.cast(number, wide)?;
    let y = n.binary(Binary::Div, sum, number)?;
    let y = n.cast(y, dtype)?;
    set(n, y, kept)
}

/// Rows and columns of the result are those of the operands. Where the data decide how many
/// products are summed, the others are 0.
pub(super) fn product(n: &mut NodeImport, operator: &Operator) -> Imported {
    let turned = match operator.name {
        "Gemm" => ["transA", "transB"].map(|name| n.attributes.flag(name, false)),
        _ => [Ok(false), Ok(false)],
    };
    let mut kept = Vec::new();
    for (i, turned) in turned.into_iter().enumerate() {
        let (v, turned) = (n.input(i)?, turned?);
        let rank = n.ty(v).rank();
        let summed = match (i == 0) != turned {
            true => rank - 1,
            false => rank.saturating_sub(2),
        };
        let extents = n.live.extents(v).iter();
        let extents = extents.filter(|e| e.axis != summed).map(|e| (i, rank, *e));
        kept.extend(extents);
        n.inputs[i] = Some(n.masked(v, &[summed], 0.0)?);
    }
    let y = complete(n, operator.import)?[0];
    let mut others = n.inputs[2..].iter().flatten();
    if others.any(|c| !n.live.extents(*c).is_empty()) {
        return refuse(n);
    }
    let rank = n.ty(y).rank();
    // A vector has no row or column in the result.
    let is_matrix = |i: usize| n.inputs[i].is_some_and(|v| n.ty(v).rank() > 1);
    let (rows, columns) = (usize::from(is_matrix(0)), usize::from(is_matrix(1)));
    let mut extents: Vec<Extent> = Vec::new();
    for (i, own, e) in kept {
        let axis = match (e.axis + 2 < own, i) {
            (true, _) => e.axis + 2 + rank - own - rows - columns,
            (false, 0) => rank - 1 - columns,
            (false, _) => rank - 1,
        };
        let count = e.count;
        if extents.iter().all(|known| known.axis != axis) {
            extents.push(Extent { axis, count });
        }
    }
    Ok(vec![set(n, y, extents)?])
}

/// Sums up to an element, which those behind it do not change; in reverse they are 0.
pub(super) fn running(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    let extents = n.live.extents(x).to_vec();
    let all: Vec<usize> = (0..n.ty(x).rank()).collect();
    n.inputs[0] = Some(n.masked(x, &all, 0.0)?);
    let values = complete(n, operator.import)?;
    set_all(n, values, &extents)
}
