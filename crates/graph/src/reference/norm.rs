//! Normalisations and softmax.

use super::movement::broadcast;
use super::parallel::pieces;
use super::widen::{floats, from_floats};
use crate::ops::{BatchNorm, LayerNorm, Lrn, Softmax};
use tensor::{DType, Tensor};

/// `parameters`: scale, bias, mean, variance.
pub(super) fn batch_norm(b: BatchNorm, x: &Tensor, parameters: &[&Tensor]) -> Tensor {
    let [scale, bias, mean, variance] = [0, 1, 2, 3].map(|i| floats(parameters[i]));
    let plane: usize = x.shape()[2..].iter().product();
    let mut values = floats(x);
    pieces(&mut values, plane.max(1), |i, piece| {
        let c = i % scale.len();
        let s = scale[c] / (variance[c] + f64::from(b.epsilon)).sqrt();
        piece
            .iter_mut()
            .for_each(|v| *v = (*v - mean[c]) * s + bias[c]);
    });
    from_floats(x.dtype(), x.shape(), &values)
}

pub(super) fn layer_norm(
    l: LayerNorm,
    x: &Tensor,
    scale: &Tensor,
    bias: Option<&Tensor>,
) -> Vec<Tensor> {
    let n: usize = x.shape()[l.axis..].iter().product();
    // Scale and bias may broadcast along the outer axes too.
    let scale = floats(&broadcast(scale, x.shape()));
    let bias = bias.map(|b| floats(&broadcast(b, x.shape())));
    let mut values = floats(x);
    let statistics = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / n as f64;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
        (mean, 1.0 / (variance + f64::from(l.epsilon)).sqrt())
    };
    let rows: Vec<(f64, f64)> = values.chunks(n.max(1)).map(statistics).collect();
    for (i, v) in values.iter_mut().enumerate() {
        let (mean, inverse) = rows[i / n];
        *v = (*v - mean) * inverse * scale[i] + bias.as_ref().map_or(0.0, |b| b[i]);
    }
    let mut out = vec![from_floats(x.dtype(), x.shape(), &values)];
    if l.statistics {
        let mut shape = x.shape().to_vec();
        shape[l.axis..].fill(1);
        let outer: usize = shape.iter().product();
        let mut rows = rows;
        rows.resize(outer, (f64::NAN, f64::NAN));
        let (means, inverses): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        out.push(from_floats(DType::F32, &shape, &means));
        out.push(from_floats(DType::F32, &shape, &inverses));
    }
    out
}

pub(super) fn lrn(l: Lrn, x: &Tensor) -> Tensor {
    let channels = x.shape()[1];
    let plane: usize = x.shape()[2..].iter().product();
    let values = floats(x);
    let (before, after) = ((l.size - 1) / 2, l.size / 2);
    let mut out = vec![0.0; values.len()];
    pieces(&mut out, plane.max(1), |map, out| {
        let (image, c) = (map / channels * channels, map % channels);
        let window = c.saturating_sub(before)..(c + after + 1).min(channels);
        for (p, o) in out.iter_mut().enumerate() {
            let sum: f64 = window
                .clone()
                .map(|c| values[(image + c) * plane + p].powi(2))
                .sum();
            let base = f64::from(l.bias) + f64::from(l.alpha) / l.size as f64 * sum;
            *o = values[map * plane + p] / base.powf(f64::from(l.beta));
        }
    });
    from_floats(x.dtype(), x.shape(), &out)
}

pub(super) fn softmax(s: Softmax, x: &Tensor) -> Tensor {
    let n = x.shape()[s.axis];
    let step: usize = x.shape()[s.axis + 1..].iter().product();
    let mut values = floats(x);
    pieces(&mut values, (n * step).max(1), |_, block| {
        for i in 0..step {
            let line = || (0..n).map(|k| k * step + i);
            let max = line().map(|k| block[k]).fold(f64::NEG_INFINITY, f64::max);
            let mut sum = 0.0;
            for k in line() {
                block[k] = (block[k] - max).exp();
                sum += block[k];
            }
            for k in line() {
                block[k] /= sum;
            }
        }
    });
    from_floats(x.dtype(), x.shape(), &values)
}
