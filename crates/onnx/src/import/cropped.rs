//! `Resize` of a region that is computed when the model runs, as exporters write `tf.image.crop_and_resize`: one node for
//! each box.

use super::sampled::{Place, Sampled, at_places};
use crate::indexing::counting;
use crate::node::{Imported, NodeImport, Problem, is_half};
use graph::ValueId;
use graph::ops::{Binary, Concat, Filter, Gather, Op, Scale, Unary};
use tensor::DType;

/// One axis of which a region is asked for, its result's size, and the factor between both.
pub(crate) struct Wanted {
    pub(crate) axis: usize,
    pub(crate) size: usize,
    pub(crate) scale: Scale,
}

/// Whether the region is an operand whose numbers are not known.
pub(crate) fn concerns(n: &NodeImport) -> bool {
    let region = n.inputs.get(1).copied().flatten();
    region.is_some_and(|v| n.model.constant(v).is_none())
}

/// `beyond` is the result where its position is beyond the first or last element.
pub(crate) fn resize(
    n: &mut NodeImport,
    filter: Filter,
    wanted: &[Wanted],
    beyond: f32,
) -> Imported {
    let (x, region) = (n.input(0)?, n.input(1)?);
    let dtype = n.dtype(x);
    if n.shape(region) != [2 * wanted.len()] {
        let (ty, axes) = (n.ty(region), wanted.len());
        return Problem::unsupported(format!("its region is {ty} for {axes} axes"));
    }
    if n.ty(x).is_empty() || !dtype.is_float() && !matches!(filter, Filter::Nearest(_)) {
        let ty = n.ty(x);
        return Problem::unsupported(format!("its region is computed, and its operand is {ty}"));
    }
    let known = elements(n, region);
    let exact = if dtype == DType::F64 {
        dtype
    } else {
        DType::F32
    };
    let region = n.cast(region, exact)?;
    let mut y = match is_half(dtype) {
        true => n.cast(x, DType::F32)?,
        false => x,
    };
    let mut inside = Vec::new();
    for (i, w) in wanted.iter().enumerate() {
        let ends = [i, wanted.len() + i];
        let whole = known[ends[0]] == Some(0.0) && known[ends[1]] == Some(1.0);
        if whole && w.size == n.shape(x)[w.axis] && w.scale.over == w.scale.under {
            continue;
        }
        let [start, end] = ends.map(|e| number_at(n, region, e));
        let (own, fits) = along_axis(n, y, w, (start?, end?), filter)?;
        y = own;
        inside.push(fits);
    }
    let beyond = n.filled(n.dtype(y), &[], f64::from(beyond))?;
    // Only here: the next axis would mix the number with elements.
    for fits in inside {
        y = n.emit(Op::Where, &[fits, y, beyond])?;
    }
    Ok(vec![n.cast(y, dtype)?])
}

/// The numbers of a vector that are known: parts of a concatenation may be constant.
fn elements(n: &NodeImport, v: ValueId) -> Vec<Option<f64>> {
    if let Some(t) = n.model.constant(v) {
        return (0..t.len()).map(|i| Some(t.get_f64(i))).collect();
    }
    let unknown = vec![None; n.shape(v).iter().product()];
    let Some((node, _)) = n.model.producer(v) else {
        return unknown;
    };
    let node = &n.model[node];
    match node.op {
        Op::Concat(Concat { axis: 0 }) if n.ty(v).rank() == 1 => {
            let parts = node.inputs.iter().flatten();
            parts.flat_map(|part| elements(n, *part)).collect()
        }
        _ => unknown,
    }
}

/// One element of a vector, without axes.
fn number_at(n: &mut NodeImport, v: ValueId, at: usize) -> Result<ValueId, Problem> {
    let at = n.number(at as i64);
    n.emit(Op::Gather(Gather { axis: 0 }), &[v, at])
}

/// The operand sampled along an axis, and whether each position lies inside it.
fn along_axis(
    n: &mut NodeImport,
    x: ValueId,
    w: &Wanted,
    (start, end): (ValueId, ValueId),
    filter: Filter,
) -> Result<(ValueId, ValueId), Problem> {
    let (extent, rank, dtype) = (n.shape(x)[w.axis], n.ty(x).rank(), n.dtype(start));
    let last = n.filled(dtype, &[], (extent - 1) as f64)?;
    // The result's size before it is rounded down, less one.
    let steps = extent as f64 * w.scale.over as f64 / w.scale.under as f64 - 1.0;
    let position = if steps == 0.0 {
        let half = n.filled(dtype, &[], 0.5)?;
        let sum = n.binary(Binary::Add, start, end)?;
        let middle = n.binary(Binary::Mul, half, sum)?;
        let middle = n.binary(Binary::Mul, middle, last)?;
        n.reshape(middle, vec![1])?
    } else {
        // In onnxruntime's order, which makes the ends of a region exact: outside begins right there.
        let i = counting(n, w.size, 0, 1, 0)?;
        let i = n.cast(i, dtype)?;
        let length = n.binary(Binary::Sub, end, start)?;
        let steps = n.filled(dtype, &[], steps)?;
        let along = n.binary(Binary::Mul, i, length)?;
        let along = n.binary(Binary::Mul, along, last)?;
        let along = n.binary(Binary::Div, along, steps)?;
        let first = n.binary(Binary::Mul, start, last)?;
        n.binary(Binary::Add, first, along)?
    };
    let zero = n.filled(dtype, &[], 0.0)?;
    let after = n.binary(Binary::GreaterOrEqual, position, zero)?;
    let before = n.binary(Binary::LessOrEqual, position, last)?;
    let inside = n.binary(Binary::And, after, before)?;
    let mut shape = vec![1; rank];
    shape[w.axis] = w.size;
    let inside = n.reshape(inside, shape)?;
    // Positions far outside have no place as an integer.
    let position = n.binary(Binary::Max, position, zero)?;
    let position = n.binary(Binary::Min, position, last)?;
    let floor = n.unary(Unary::Floor, position)?;
    let place = Place {
        rest: n.binary(Binary::Sub, position, floor)?,
        floor: n.cast(floor, DType::I64)?,
        over: n.filled(dtype, &[], 1.0)?,
    };
    let sampled = Sampled {
        axis: w.axis,
        bound: w.size,
        size: n.number(w.size as i64),
        extent: n.number(extent as i64),
    };
    Ok((at_places(n, x, &sampled, &place, filter)?, inside))
}
