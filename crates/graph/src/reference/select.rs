//! Choosing elements by their values.

use super::widen::floats;
use crate::ops::Suppress;
use std::cmp::Ordering;
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

pub(super) fn suppress(s: Suppress, scores: &Tensor, boxes: &Tensor) -> Tensor {
    let (classes, count) = (scores.shape()[1], scores.shape()[2]);
    let boxes = floats(boxes);
    let mut out = Vec::new();
    for row in 0..scores.len() / count {
        let first = row / classes * count;
        let side = |i: usize| sides(s.centred, &boxes[(first + i) * 4..][..4]);
        let score = |i: usize| scores.get_f64(row * count + i);
        let mut order: Vec<usize> = (0..count).collect();
        order.retain(|i| score(*i) > f64::NEG_INFINITY);
        // Equal scores, 0 and -0 too, stay in their order. No score that is left is NaN.
        order.sort_by(|a, b| score(*b).partial_cmp(&score(*a)).unwrap_or(Ordering::Equal));
        let mut chosen: Vec<usize> = Vec::new();
        for i in order {
            let over = |c: &usize| overlap(side(i), side(*c)) > f64::from(s.threshold);
            if chosen.len() < s.most && !chosen.iter().any(over) {
                chosen.push(i);
            }
        }
        let mut chosen: Vec<i64> = chosen.into_iter().map(|i| i as i64).collect();
        chosen.resize(s.most, -1);
        out.extend(chosen);
    }
    Tensor::from_slice(&[scores.shape()[0], classes, s.most], &out)
}
