//! Windowed pooling.

use super::conv::Windows;
use super::parallel::pieces;
use super::reduce::lowest;
use super::widen::{floats, from_floats, from_integers, integers};
use crate::ops::{IndexOrder, Pool, PoolKind};
use tensor::{Tensor, row_major_strides};

pub(super) fn pool(p: &Pool, x: &Tensor, shape: &[usize]) -> Vec<Tensor> {
    let windows = windows(p, x.shape(), shape);
    match p.kind {
        PoolKind::Max { indices } => max(&windows, x, shape, indices),
        PoolKind::Average { count_include_pad } => {
            vec![average(p, &windows, x, shape, count_include_pad)]
        }
    }
}

/// Of an image, with so many windows.
fn windows<'a>(p: &'a Pool, image: &'a [usize], maps: &'a [usize]) -> Windows<'a> {
    Windows {
        plane: &image[2..],
        counts: &maps[2..],
        kernel: &p.kernel,
        strides: &p.strides,
        dilations: &p.dilations,
        origin: p.pads.iter().map(|p| -(p.0 as i64)).collect(),
    }
}

/// Each window gives its gradient to the element at its position.
pub(super) fn gradient(p: &Pool, dy: &Tensor, positions: &Tensor, shape: &[usize]) -> Tensor {
    let windows = windows(p, shape, dy.shape());
    let plane: usize = shape[2..].iter().product();
    let count: usize = dy.shape()[2..].iter().product();
    let (dy_values, positions) = (floats(dy), integers(positions));
    let mut out = vec![0.0; shape.iter().product()];
    for (w, (dy, position)) in dy_values.iter().zip(&positions).enumerate() {
        let offsets = windows.offsets(w % count);
        let offset = usize::try_from(*position)
            .ok()
            .and_then(|t| *offsets.get(t)?);
        if let Some(offset) = offset {
            out[w / count * plane + offset] += dy;
        }
    }
    from_floats(dy.dtype(), shape, &out)
}

/// Position in its plane of the winner of every window; the first of equals,
/// and the first NaN before everything.
fn winners<T: PartialOrd + Sync>(windows: &Windows, x: &[T], count: usize) -> Vec<Option<usize>> {
    let plane: usize = windows.plane.iter().product();
    let mut won = vec![None; count];
    let pixels: usize = windows.counts.iter().product();
    pieces(&mut won, pixels.max(1), |map, won| {
        let plane = &x[map * plane..][..plane];
        for (pixel, won) in won.iter_mut().enumerate() {
            let mut best: Option<usize> = None;
            windows.visit(pixel, |_, at| {
                if let Some(o) = windows.offset(at) {
                    let nan = |i: usize| plane[i].partial_cmp(&plane[i]).is_none();
                    let better = |b: usize| plane[o] > plane[b] || nan(o) && !nan(b);
                    if best.is_none_or(better) {
                        best = Some(o);
                    }
                }
            });
            *won = best;
        }
    });
    won
}

fn max(windows: &Windows, x: &Tensor, shape: &[usize], indices: Option<IndexOrder>) -> Vec<Tensor> {
    let count: usize = shape.iter().product();
    let plane: usize = windows.plane.iter().product();
    let pixels: usize = windows.counts.iter().product();
    let base = |i: usize| i / pixels.max(1) * plane;
    let (values, won) = if x.dtype().is_float() {
        let x = (floats(x), x.dtype());
        let won = winners(windows, &x.0, count);
        let best =
            |(i, w): (usize, &Option<usize>)| w.map_or(f64::NEG_INFINITY, |w| x.0[base(i) + w]);
        let values: Vec<f64> = won.iter().enumerate().map(best).collect();
        (from_floats(x.1, shape, &values), won)
    } else {
        let dtype = x.dtype();
        let x = integers(x);
        let won = winners(windows, &x, count);
        let lowest = lowest(dtype);
        let best = |(i, w): (usize, &Option<usize>)| w.map_or(lowest, |w| x[base(i) + w]);
        let values: Vec<i64> = won.iter().enumerate().map(best).collect();
        (from_integers(dtype, shape, &values), won)
    };
    let Some(order) = indices else {
        return vec![values];
    };
    if order == IndexOrder::Window {
        let taps: usize = windows.kernel.iter().product();
        let tap = |(i, w): (usize, &Option<usize>)| {
            let offsets = windows.offsets(i % pixels);
            let tap = w.and_then(|_| offsets.iter().position(|o| o == w));
            tap.unwrap_or(taps) as i32
        };
        let positions: Vec<i32> = won.iter().enumerate().map(tap).collect();
        return vec![values, Tensor::from_slice(shape, &positions)];
    }
    let position = |(i, w): (usize, &Option<usize>)| {
        base(i) as i64 + w.map_or(0, |w| reorder(w, windows.plane, order)) as i64
    };
    let positions: Vec<i64> = won.iter().enumerate().map(position).collect();
    vec![values, Tensor::from_slice(shape, &positions)]
}

fn reorder(offset: usize, plane: &[usize], order: IndexOrder) -> usize {
    if order == IndexOrder::RowMajor {
        return offset;
    }
    let (mut index, mut step) = (0, 1);
    for (stride, n) in row_major_strides(plane).into_iter().zip(plane) {
        index += offset / stride % n * step;
        step *= n;
    }
    index
}

fn average(p: &Pool, windows: &Windows, x: &Tensor, shape: &[usize], count_pad: bool) -> Tensor {
    let plane: usize = windows.plane.iter().product();
    let pixels: usize = windows.counts.iter().product();
    let values = floats(x);
    let mut out = vec![0.0; shape.iter().product()];
    let padded = |at: &[i64]| {
        let ends = windows
            .plane
            .iter()
            .zip(&p.pads)
            .map(|(n, pad)| (n + pad.1) as i64);
        at.iter().zip(ends).all(|(i, end)| *i < end)
    };
    pieces(&mut out, pixels.max(1), |map, out| {
        let plane = &values[map * plane..][..plane];
        for (pixel, out) in out.iter_mut().enumerate() {
            let (mut sum, mut count) = (0.0, 0u32);
            windows.visit(pixel, |_, at| {
                let offset = windows.offset(at);
                sum += offset.map_or(0.0, |o| plane[o]);
                count += u32::from(offset.is_some() || count_pad && padded(at));
            });
            *out = sum / f64::from(count);
        }
    });
    from_floats(x.dtype(), shape, &out)
}
