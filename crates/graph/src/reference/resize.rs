//! Resizing by interpolation, one axis after the other.

use super::movement::gather_axis;
use super::widen::{floats, from_floats};
use crate::ops::{Filter, Resize, Sampling};
use tensor::Tensor;

pub(super) fn resize(r: &Resize, x: &Tensor, shape: &[usize]) -> Tensor {
    let sampled = || {
        r.axes
            .iter()
            .enumerate()
            .filter_map(|(d, s)| Some((d, (*s)?)))
    };
    if let (Filter::Nearest(_), None) = (r.filter, r.beyond) {
        return sampled().fold(x.clone(), |x, (d, s)| {
            let last = x.shape()[d] as i64 - 1;
            let line = r.base(&s);
            let from = (0..s.size).map(|i| line.at(i).0.clamp(0, last.max(0)) as usize);
            gather_axis(&x, d, &from.collect::<Vec<_>>())
        });
    }
    let (mut values, mut extents) = (floats(x), x.shape().to_vec());
    for (d, s) in sampled() {
        values = interpolate(r, &s, &values, &extents, d);
        extents[d] = s.size;
    }
    if let Some(beyond) = r.beyond {
        for (d, s) in sampled() {
            let last = x.shape()[d] as i64 - 1;
            let inner: usize = shape[d + 1..].iter().product();
            for (i, v) in values.iter_mut().enumerate() {
                let (floor, rest) = s.position.at(i / inner.max(1) % s.size.max(1));
                if floor < 0 || floor > last || floor == last && rest > 0.0 {
                    *v = f64::from(beyond);
                }
            }
        }
    }
    from_floats(x.dtype(), shape, &values)
}

/// The elements that one of the result is made of along an axis, and their weights.
fn neighbours(r: &Resize, s: &Sampling, i: usize, extent: usize) -> Vec<(usize, f64)> {
    let (first, taps) = r.taps(s);
    let (floor, rest) = r.base(s).at(i);
    let last = extent as i64 - 1;
    let mut found: Vec<(usize, f64)> = (0..taps as i64)
        .map(|t| {
            let at = floor + first + t;
            let inside = (0..=last).contains(&at);
            let distance = ((first + t) as f64 - rest) * r.narrowing(s);
            let counts = inside || !r.exclude_outside;
            let weight = if counts {
                r.filter.weight(distance)
            } else {
                0.0
            };
            (at.clamp(0, last) as usize, weight)
        })
        .collect();
    if r.normalises() {
        let sum: f64 = found.iter().map(|f| f.1).sum();
        found.iter_mut().for_each(|f| f.1 /= sum);
    }
    found
}

fn interpolate(r: &Resize, s: &Sampling, x: &[f64], shape: &[usize], d: usize) -> Vec<f64> {
    let inner: usize = shape[d + 1..].iter().product();
    let outer: usize = shape[..d].iter().product();
    let mut out = vec![0.0; outer * s.size * inner];
    for i in 0..s.size {
        for (at, weight) in neighbours(r, s, i, shape[d]) {
            for o in 0..outer {
                let from = &x[(o * shape[d] + at) * inner..][..inner];
                let to = &mut out[(o * s.size + i) * inner..][..inner];
                for (to, from) in to.iter_mut().zip(from) {
                    *to += weight * from;
                }
            }
        }
    }
    out
}
