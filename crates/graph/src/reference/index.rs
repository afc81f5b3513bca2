//! Elements at given positions.

use super::elementwise::{binary_float, binary_integer};
use super::widen::{floats, from_floats, from_integers, integers};
use crate::ops::{
    Binary, Combine, GatherElements, GatherNd, OpError, ScatterElements, ScatterNd, refuse,
};
use tensor::{Tensor, row_major_strides};

/// A position along an axis of `n` elements; a negative one counts from the end.
fn position(indices: &Tensor, i: usize, axis: usize, n: usize) -> Result<usize, OpError> {
    let index = indices.get_i64(i);
    let pick = if index < 0 { index + n as i64 } else { index };
    match usize::try_from(pick) {
        Ok(p) if p < n => Ok(p),
        _ => refuse(format!(
            "index {index} is outside axis {axis} of {n} elements"
        )),
    }
}

/// For each index, the offset of the element of `shape` that it names along `axis`.
fn element_offsets(shape: &[usize], indices: &Tensor, axis: usize) -> Result<Vec<usize>, OpError> {
    let strides = row_major_strides(shape);
    let own = row_major_strides(indices.shape());
    (0..indices.len())
        .map(|i| {
            let pick = position(indices, i, axis, shape[axis])?;
            let place = |d: usize| match d == axis {
                true => pick,
                false => i / own[d] % indices.shape()[d],
            };
            Ok((0..shape.len()).map(|d| place(d) * strides[d]).sum())
        })
        .collect()
}

/// For each row of indices, the offset of the part of `shape` that it names after `batch`
/// axes, which are also the first of the indices; and how large such a part is.
fn part_offsets(
    shape: &[usize],
    indices: &Tensor,
    batch: usize,
) -> Result<(Vec<usize>, usize), OpError> {
    let strides = row_major_strides(shape);
    let depth = indices.shape()[indices.rank() - 1];
    let rows = indices.len() / depth;
    let batches: usize = shape[..batch].iter().product();
    let whole: usize = shape[batch..].iter().product();
    let offset = |r: usize| {
        let mut at = r / (rows / batches).max(1) * whole;
        for (j, d) in (batch..batch + depth).enumerate() {
            at += position(indices, r * depth + j, d, shape[d])? * strides[d];
        }
        Ok(at)
    };
    let offsets = (0..rows).map(offset).collect::<Result<_, OpError>>()?;
    Ok((offsets, shape[batch + depth..].iter().product()))
}

/// Runs of `run` elements from these offsets on.
fn runs(x: &Tensor, offsets: &[usize], run: usize, shape: &[usize]) -> Tensor {
    let mut out = Tensor::zeros(x.dtype(), shape);
    let bytes = run * x.dtype().size();
    if bytes == 0 {
        return out;
    }
    for (to, from) in out.bytes_mut().chunks_mut(bytes).zip(offsets) {
        let from = from * x.dtype().size();
        to.copy_from_slice(&x.bytes()[from..from + bytes]);
    }
    out
}

pub(super) fn gather_elements(
    g: GatherElements,
    x: &Tensor,
    indices: &Tensor,
) -> Result<Tensor, OpError> {
    let offsets = element_offsets(x.shape(), indices, g.axis)?;
    Ok(runs(x, &offsets, 1, indices.shape()))
}

pub(super) fn gather_nd(
    g: GatherNd,
    x: &Tensor,
    indices: &Tensor,
    shape: &[usize],
) -> Result<Tensor, OpError> {
    let (offsets, run) = part_offsets(x.shape(), indices, g.batch)?;
    Ok(runs(x, &offsets, run, shape))
}

pub(super) fn scatter_elements(
    s: ScatterElements,
    x: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
) -> Result<Tensor, OpError> {
    let offsets = element_offsets(x.shape(), indices, s.axis)?;
    scattered(s.combine, x, &offsets, 1, updates)
}

pub(super) fn scatter_nd(
    s: ScatterNd,
    x: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
) -> Result<Tensor, OpError> {
    let (offsets, run) = part_offsets(x.shape(), indices, 0)?;
    scattered(s.combine, x, &offsets, run, updates)
}

/// `x` with run `i` of the updates combined into the elements from `offsets[i]` on. What
/// several updates are for is rounded once.
fn scattered(
    combine: Combine,
    x: &Tensor,
    offsets: &[usize],
    run: usize,
    updates: &Tensor,
) -> Result<Tensor, OpError> {
    let pairs = offsets
        .iter()
        .enumerate()
        .flat_map(|(i, at)| (0..run).map(move |j| (at + j, i * run + j)));
    let op = match combine {
        Combine::Replace => {
            let mut out = x.clone();
            let size = x.dtype().size();
            for (to, from) in pairs {
                let element = &updates.bytes()[from * size..(from + 1) * size];
                out.bytes_mut()[to * size..(to + 1) * size].copy_from_slice(element);
            }
            return Ok(out);
        }
        Combine::Add => Binary::Add,
        Combine::Mul => Binary::Mul,
        Combine::Max => Binary::Max,
        Combine::Min => Binary::Min,
    };
    // Floats in f64, rounded once at the end, as everywhere in the references.
    if x.dtype().is_float() {
        let (mut values, updates) = (floats(x), floats(updates));
        for (to, from) in pairs {
            values[to] = binary_float(op, values[to], updates[from]);
        }
        return Ok(from_floats(x.dtype(), x.shape(), &values));
    }
    let bits = x.dtype().bits() as i64;
    let (mut values, updates) = (integers(x), integers(updates));
    for (to, from) in pairs {
        values[to] = binary_integer(op, values[to], updates[from], bits)?;
    }
    Ok(from_integers(x.dtype(), x.shape(), &values))
}
