//! Moving elements: all of these copy whole elements and compute nothing.

use crate::ops::{Concat, Gather, OpError, Pad, PadMode, Slice, Split, Transpose, refuse};
use tensor::{Tensor, row_major_strides};

/// Element (i0, i1, ..) of the result is element `start + sum i * stride` of `x`.
fn strided(x: &Tensor, shape: &[usize], start: i64, strides: &[i64]) -> Tensor {
    let mut out = Tensor::zeros(x.dtype(), shape);
    let (from, to) = (x.bytes(), out.bytes_mut());
    match x.dtype().size() {
        1 => strided_chunks::<1>(from, to, shape, start, strides),
        2 => strided_chunks::<2>(from, to, shape, start, strides),
        4 => strided_chunks::<4>(from, to, shape, start, strides),
        _ => strided_chunks::<8>(from, to, shape, start, strides),
    }
    out
}

fn strided_chunks<const N: usize>(
    from: &[u8],
    to: &mut [u8],
    shape: &[usize],
    start: i64,
    strides: &[i64],
) {
    let ((from, _), (to, _)) = (from.as_chunks::<N>(), to.as_chunks_mut::<N>());
    if to.is_empty() {
        return;
    }
    let outer = shape.len().saturating_sub(1);
    let (width, step) = shape.last().map_or((1, 0), |n| (*n, strides[outer]));
    let (mut at, mut index) = (start, vec![0usize; outer]);
    for row in to.chunks_mut(width) {
        let mut i = at;
        for o in row {
            *o = from[i as usize];
            i += step;
        }
        for d in (0..outer).rev() {
            index[d] += 1;
            at += strides[d];
            if index[d] < shape[d] {
                break;
            }
            at -= strides[d] * shape[d] as i64;
            index[d] = 0;
        }
    }
}

fn signed_strides(shape: &[usize]) -> Vec<i64> {
    row_major_strides(shape)
        .into_iter()
        .map(|s| s as i64)
        .collect()
}

/// Strides that read `shape` as if it were the larger `target`: 0 along
/// repeated axes.
pub(super) fn broadcast_strides(shape: &[usize], target: &[usize]) -> Vec<i64> {
    let mut strides = vec![0; target.len()];
    let lead = target.len() - shape.len();
    for (d, s) in signed_strides(shape).into_iter().enumerate() {
        if shape[d] != 1 {
            strides[lead + d] = s;
        }
    }
    strides
}

pub(super) fn broadcast(x: &Tensor, shape: &[usize]) -> Tensor {
    if x.shape() == shape {
        return x.clone();
    }
    strided(x, shape, 0, &broadcast_strides(x.shape(), shape))
}

pub(super) fn transpose(t: &Transpose, x: &Tensor) -> Tensor {
    let strides = signed_strides(x.shape());
    let shape: Vec<_> = t.perm.iter().map(|d| x.shape()[*d]).collect();
    let strides: Vec<_> = t.perm.iter().map(|d| strides[*d]).collect();
    strided(x, &shape, 0, &strides)
}

pub(super) fn slice(s: &Slice, x: &Tensor) -> Tensor {
    let strides = signed_strides(x.shape());
    if s.sizes.contains(&0) {
        return Tensor::zeros(x.dtype(), &s.sizes);
    }
    let start = s
        .starts
        .iter()
        .zip(&strides)
        .map(|(i, s)| *i as i64 * s)
        .sum();
    let strides: Vec<_> = strides.iter().zip(&s.steps).map(|(a, b)| a * b).collect();
    strided(x, &s.sizes, start, &strides)
}

pub(super) fn split(s: &Split, x: &Tensor) -> Vec<Tensor> {
    let strides = signed_strides(x.shape());
    let mut start = 0;
    let mut part = |n: &usize| {
        let mut shape = x.shape().to_vec();
        shape[s.axis] = *n;
        let out = strided(x, &shape, start, &strides);
        start += *n as i64 * strides[s.axis];
        out
    };
    s.sizes.iter().map(&mut part).collect()
}

pub(super) fn concat(c: Concat, parts: &[&Tensor], shape: &[usize]) -> Tensor {
    let mut out = Tensor::zeros(parts[0].dtype(), shape);
    let run = |s: &[usize]| s[c.axis..].iter().product::<usize>() * parts[0].dtype().size();
    let outer: usize = shape[..c.axis].iter().product();
    let mut at = 0;
    for o in 0..outer {
        for p in parts {
            let n = run(p.shape());
            out.bytes_mut()[at..at + n].copy_from_slice(&p.bytes()[o * n..(o + 1) * n]);
            at += n;
        }
    }
    out
}

/// Source position of padded position `i` along an axis of `n` elements.
fn pad_source(mode: PadMode, i: i64, n: i64) -> Option<i64> {
    match mode {
        PadMode::Constant(_) => (0..n).contains(&i).then_some(i),
        PadMode::Edge => Some(i.clamp(0, n - 1)),
        PadMode::Wrap => Some(i.rem_euclid(n)),
        PadMode::Reflect if n == 1 => Some(0),
        PadMode::Reflect => {
            let i = i.rem_euclid(2 * (n - 1));
            Some(if i < n { i } else { 2 * (n - 1) - i })
        }
    }
}

pub(super) fn pad(p: &Pad, x: &Tensor, shape: &[usize]) -> Tensor {
    let mut out = Tensor::zeros(x.dtype(), shape);
    let strides = row_major_strides(x.shape());
    let sources: Vec<Vec<Option<usize>>> = (0..shape.len())
        .map(|d| {
            let (n, before) = (x.shape()[d] as i64, p.pads[d].0);
            (0..shape[d] as i64)
                .map(|i| pad_source(p.mode, i - before, n).map(|i| i as usize * strides[d]))
                .collect()
        })
        .collect();
    let size = x.dtype().size();
    for o in 0..out.len() {
        let (mut rest, mut from) = (o, Some(0));
        for d in (0..shape.len()).rev() {
            from = from.and_then(|f: usize| Some(f + sources[d][rest % shape[d]]?));
            rest /= shape[d];
        }
        match (from, p.mode) {
            (Some(i), _) => {
                let element = &x.bytes()[i * size..(i + 1) * size];
                out.bytes_mut()[o * size..(o + 1) * size].copy_from_slice(element);
            }
            (None, PadMode::Constant(v)) => out.set_f64(o, v),
            (None, _) => unreachable!("only constant padding lies outside"),
        }
    }
    out
}

pub(super) fn gather(
    g: Gather,
    x: &Tensor,
    indices: &Tensor,
    shape: &[usize],
) -> Result<Tensor, OpError> {
    let n = x.shape()[g.axis] as i64;
    let mut picks = Vec::with_capacity(indices.len());
    for i in 0..indices.len() {
        let index = indices.get_i64(i);
        let pick = if index < 0 { index + n } else { index };
        if !(0..n).contains(&pick) {
            return refuse(format!(
                "index {index} is outside axis {} of {n} elements",
                g.axis
            ));
        }
        picks.push(pick as usize);
    }
    Ok(gather_axis(x, g.axis, &picks).reshaped(shape))
}

/// The elements at some positions of an axis, in their order.
pub(super) fn gather_axis(x: &Tensor, axis: usize, picks: &[usize]) -> Tensor {
    let mut shape = x.shape().to_vec();
    let extent = std::mem::replace(&mut shape[axis], picks.len());
    let outer: usize = shape[..axis].iter().product();
    let run = shape[axis + 1..].iter().product::<usize>() * x.dtype().size();
    let mut out = Tensor::zeros(x.dtype(), &shape);
    if run == 0 {
        return out;
    }
    let mut to = out.bytes_mut().chunks_mut(run);
    for o in 0..outer {
        for pick in picks {
            let from = (o * extent + pick) * run;
            if let Some(to) = to.next() {
                to.copy_from_slice(&x.bytes()[from..from + run]);
            }
        }
    }
    out
}
