//! Choosing elements by their values.

use super::widen::floats;
use crate::ops::{OpError, Suppress, refuse};
use tensor::Tensor;

pub(super) fn positions(x: &Tensor) -> Tensor {
    let mut found: Vec<i64> = (0..x.len() as i64)
        .filter(|i| x.get_i64(*i as usize) != 0)
        .collect();
    found.resize(x.len(), 0);
    Tensor::from_slice(x.shape(), &found)
}

/// Low and high end along x and along y.
fn sides(centred: bool, b: &[f64]) -> [(f64, f64); 2] {
    match centred {
        true => [0, 1].map(|i| (b[i] - b[i + 2] / 2.0, b[i] + b[i + 2] / 2.0)),
        false => [1, 0].map(|i| (b[i].min(b[i + 2]), b[i].max(b[i + 2]))),
    }
}

/// Intersection over union.
fn overlap(a: [(f64, f64); 2], b: [(f64, f64); 2]) -> f64 {
    let area = |s: [(f64, f64); 2]| (s[0].1 - s[0].0) * (s[1].1 - s[1].0);
    let common = |i: usize| (a[i].1.min(b[i].1) - a[i].0.max(b[i].0)).max(0.0);
    let both = common(0) * common(1);
    both / (area(a) + area(b) - both)
}

pub(super) fn suppress(
    s: Suppress,
    scores: &Tensor,
    boxes: &Tensor,
    best: &Tensor,
) -> Result<Tensor, OpError> {
    let (classes, count) = (scores.shape()[1], scores.shape()[2]);
    let boxes = floats(boxes);
    let mut out = scores.clone();
    for row in 0..scores.len() / count {
        let first = row / classes * count;
        let side = |i: usize| {
            let at = [0, 1, 2, 3].map(|k| boxes[first * 4 + k * count + i]);
            sides(s.centred, &at)
        };
        let best = match usize::try_from(best.get_i64(row)) {
            Ok(best) if best < count => best,
            _ => return refuse(format!("box {} of {count}", best.get_i64(row))),
        };
        if scores.get_f64(row * count + best) == f64::NEG_INFINITY {
            continue;
        }
        for i in 0..count {
            if i == best || overlap(side(best), side(i)) > f64::from(s.threshold) {
                out.set_f64(row * count + i, f64::NEG_INFINITY);
            }
        }
    }
    Ok(out)
}
