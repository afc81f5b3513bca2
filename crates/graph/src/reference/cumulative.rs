//! Sums and products along an axis up to each element.

use super::widen::{floats, from_floats, from_integers, integers};
use crate::ops::{Cumulative, CumulativeKind};
use tensor::Tensor;

pub(super) fn cumulative(c: Cumulative, x: &Tensor) -> Tensor {
    if x.dtype().is_float() {
        let combine = |a: f64, b: f64| match c.kind {
            CumulativeKind::Sum => a + b,
            CumulativeKind::Prod => a * b,
        };
        let values = along(c, x.shape(), &floats(x), c.kind.identity(), combine);
        return from_floats(x.dtype(), x.shape(), &values);
    }
    let combine = |a: i64, b: i64| match c.kind {
        CumulativeKind::Sum => a.wrapping_add(b),
        CumulativeKind::Prod => a.wrapping_mul(b),
    };
    let identity = c.kind.identity() as i64;
    let values = along(c, x.shape(), &integers(x), identity, combine);
    from_integers(x.dtype(), x.shape(), &values)
}

fn along<T: Copy>(
    c: Cumulative,
    shape: &[usize],
    x: &[T],
    identity: T,
    combine: impl Fn(T, T) -> T,
) -> Vec<T> {
    let step: usize = shape[c.axis + 1..].iter().product();
    let n = shape[c.axis];
    let mut out = x.to_vec();
    for line in 0..x.len() / n {
        let first = line / step * n * step + line % step;
        let mut so_far = identity;
        for i in 0..n {
            let at = first + step * if c.reverse { n - 1 - i } else { i };
            let before = so_far;
            so_far = combine(so_far, x[at]);
            out[at] = if c.exclusive { before } else { so_far };
        }
    }
    out
}
