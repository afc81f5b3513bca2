//! Reductions.

use super::widen::{floats, from_floats, from_integers, integers};
use crate::ops::{ArgReduce, Reduce, ReduceKind};
use tensor::{DType, Tensor, row_major_strides};

/// For every element in row-major order, the position of its reduction.
fn targets(shape: &[usize], axes: &[usize]) -> impl Iterator<Item = usize> {
    let kept: Vec<usize> = shape
        .iter()
        .enumerate()
        .map(|(d, n)| if axes.contains(&d) { 1 } else { *n })
        .collect();
    let strides = row_major_strides(&kept);
    let steps: Vec<usize> = (0..shape.len())
        .map(|d| if axes.contains(&d) { 0 } else { strides[d] })
        .collect();
    let shape = shape.to_vec();
    let (mut index, mut at) = (vec![0usize; shape.len()], 0);
    let count: usize = shape.iter().product();
    (0..count).map(move |_| {
        let now = at;
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            at += steps[d];
            if index[d] < shape[d] {
                break;
            }
            at -= steps[d] * shape[d];
            index[d] = 0;
        }
        now
    })
}

/// The smallest value of an integer type or bool.
pub(super) fn lowest(dtype: DType) -> i64 {
    if dtype.is_signed() {
        i64::MIN >> (64 - dtype.bits())
    } else {
        0
    }
}

fn highest(dtype: DType) -> i64 {
    match dtype {
        DType::Bool => 1,
        DType::U8 => 255,
        _ => i64::MAX >> (64 - dtype.bits()),
    }
}

pub(super) fn reduce(r: &Reduce, x: &Tensor, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let targets = targets(x.shape(), &r.axes);
    let group: usize = r.axes.iter().map(|a| x.shape()[*a]).product();
    if x.dtype().is_float() || r.kind == ReduceKind::Mean {
        let start = match r.kind {
            ReduceKind::Sum | ReduceKind::Mean => 0.0,
            ReduceKind::Prod => 1.0,
            ReduceKind::Max => f64::NEG_INFINITY,
            ReduceKind::Min => f64::INFINITY,
        };
        let mut out = vec![start; count];
        for (t, v) in targets.zip(floats(x)) {
            let o = &mut out[t];
            match r.kind {
                ReduceKind::Sum | ReduceKind::Mean => *o += v,
                ReduceKind::Prod => *o *= v,
                ReduceKind::Max if v > *o || v.is_nan() => *o = v,
                ReduceKind::Min if v < *o || v.is_nan() => *o = v,
                ReduceKind::Max | ReduceKind::Min => {}
            }
        }
        if r.kind == ReduceKind::Mean {
            out.iter_mut().for_each(|o| *o /= group as f64);
        }
        return from_floats(x.dtype(), shape, &out);
    }
    let start = match r.kind {
        ReduceKind::Sum | ReduceKind::Mean => 0,
        ReduceKind::Prod => 1,
        ReduceKind::Max => lowest(x.dtype()),
        ReduceKind::Min => highest(x.dtype()),
    };
    let mut out = vec![start; count];
    for (t, v) in targets.zip(integers(x)) {
        let o = &mut out[t];
        *o = match r.kind {
            ReduceKind::Sum | ReduceKind::Mean => o.wrapping_add(v),
            ReduceKind::Prod => o.wrapping_mul(v),
            ReduceKind::Max => v.max(*o),
            ReduceKind::Min => v.min(*o),
        };
    }
    from_integers(x.dtype(), shape, &out)
}

pub(super) fn arg_reduce(r: ArgReduce, x: &Tensor, shape: &[usize]) -> Tensor {
    let step: usize = x.shape()[r.axis + 1..].iter().product();
    let n = x.shape()[r.axis];
    let positions: Vec<i64> = if x.dtype().is_float() {
        arg_positions(r, &floats(x), n, step)
    } else {
        arg_positions(r, &integers(x), n, step)
    };
    Tensor::from_slice(shape, &positions)
}

fn arg_positions<T: PartialOrd + Copy>(r: ArgReduce, x: &[T], n: usize, step: usize) -> Vec<i64> {
    let lines = x.len() / n;
    let line = |l: usize| {
        let first = l / step * n * step + l % step;
        let mut best = 0;
        for i in 1..n {
            let (v, b) = (x[first + i * step], x[first + best * step]);
            // NaN is before everything, and equal to NaN.
            let (v_nan, b_nan) = (v.partial_cmp(&v).is_none(), b.partial_cmp(&b).is_none());
            let better = if r.max { v > b } else { v < b } || v_nan && !b_nan;
            if better || r.last && (v == b || v_nan && b_nan) {
                best = i;
            }
        }
        best as i64
    };
    (0..lines).map(line).collect()
}
