//! Order along an axis.

use super::widen::{floats, integers};
use crate::ops::TopK;
use std::cmp::Ordering;
use tensor::Tensor;

pub(super) fn top_k(t: TopK, x: &Tensor, shape: &[usize]) -> Tensor {
    if x.dtype().is_float() {
        // NaN is larger than all others, and equal to NaN.
        let order = |a: &f64, b: &f64| match (a.is_nan(), b.is_nan()) {
            (false, false) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            (a, b) => a.cmp(&b),
        };
        return positions(t, x.shape(), &floats(x), shape, order);
    }
    positions(t, x.shape(), &integers(x), shape, i64::cmp)
}

fn positions<T>(
    t: TopK,
    from: &[usize],
    x: &[T],
    shape: &[usize],
    order: impl Fn(&T, &T) -> Ordering,
) -> Tensor {
    let step: usize = from[t.axis + 1..].iter().product();
    let n = from[t.axis];
    let mut out = vec![0i64; shape.iter().product()];
    for line in 0..x.len() / n {
        let (outer, inner) = (line / step, line % step);
        let value = |i: usize| &x[(outer * n + i) * step + inner];
        let mut all: Vec<usize> = (0..n).collect();
        // Stable: of equal ones the first stays first.
        all.sort_by(|a, b| match t.largest {
            true => order(value(*b), value(*a)),
            false => order(value(*a), value(*b)),
        });
        for (p, i) in all[..t.k].iter().enumerate() {
            out[(outer * t.k + p) * step + inner] = *i as i64;
        }
    }
    Tensor::from_slice(shape, &out)
}
