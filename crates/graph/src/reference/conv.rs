//! Convolution as a product of weights and gathered windows, and its transpose
//! as the same product scattered.

use super::contraction::Product;
use super::linear::wrapped_sums;
use super::widen::{floats, from_floats, read_strided};
use crate::ops::{Col2Im, Conv, ConvInteger, ConvTranspose};
use tensor::{DType, Tensor, row_major_strides};

/// Where the taps of each window lie in one spatial plane.
pub(super) struct Windows<'a> {
    /// Size of the plane the windows read.
    pub plane: &'a [usize],
    /// Number of windows along each axis.
    pub counts: &'a [usize],
    pub kernel: &'a [usize],
    pub strides: &'a [usize],
    pub dilations: &'a [usize],
    /// Where the first window starts: minus the padding before.
    pub origin: Vec<i64>,
}

impl Windows<'_> {
    /// Calls `visit(tap, coordinates)` for every tap of window `w` in row-major order.
    pub(super) fn visit(&self, w: usize, mut visit: impl FnMut(usize, &[i64])) {
        let rank = self.plane.len();
        let (mut rest, mut start) = (w, vec![0i64; rank]);
        for d in (0..rank).rev() {
            let at = rest % self.counts[d];
            rest /= self.counts[d];
            start[d] = (at * self.strides[d]) as i64 + self.origin[d];
        }
        let (mut tap, mut at) = (vec![0usize; rank], start.clone());
        for t in 0..self.kernel.iter().product() {
            visit(t, &at);
            for d in (0..rank).rev() {
                tap[d] += 1;
                at[d] += self.dilations[d] as i64;
                if tap[d] < self.kernel[d] {
                    break;
                }
                (tap[d], at[d]) = (0, start[d]);
            }
        }
    }

    /// The offset in the plane, if the coordinates lie in it.
    pub(super) fn offset(&self, at: &[i64]) -> Option<usize> {
        let mut offset = 0;
        for (&x, &n) in at.iter().zip(self.plane) {
            offset = offset * n + usize::try_from(x).ok().filter(|x| *x < n)?;
        }
        Some(offset)
    }

    /// The offsets of the taps of window `w`.
    pub(super) fn offsets(&self, w: usize) -> Vec<Option<usize>> {
        let mut offsets = Vec::with_capacity(self.kernel.iter().product());
        self.visit(w, |_, at| offsets.push(self.offset(at)));
        offsets
    }
}

pub(super) fn conv(
    c: &Conv,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    shape: &[usize],
) -> Tensor {
    from_floats(w.dtype(), shape, &sums(c, (x, 0.0), w, bias, shape))
}

/// Products of bytes. Their sums are far below 2^53, so f64 is exact.
pub(super) fn conv_integer(c: &ConvInteger, x: &Tensor, w: &Tensor, shape: &[usize]) -> Tensor {
    let outside = c.outside as f64;
    if c.centred {
        let mut centred = Tensor::zeros(DType::F64, x.shape());
        (0..x.len()).for_each(|i| centred.set_f64(i, x.get_f64(i) - outside));
        return wrapped_sums(shape, &sums(&c.conv, (&centred, 0.0), w, None, shape));
    }
    wrapped_sums(shape, &sums(&c.conv, (x, outside), w, None, shape))
}

/// The sums over windows of `x`, outside of which is `outside`.
fn sums(
    c: &Conv,
    (x, outside): (&Tensor, f64),
    w: &Tensor,
    bias: Option<&Tensor>,
    shape: &[usize],
) -> Vec<f64> {
    let windows = Windows {
        plane: &x.shape()[2..],
        counts: &shape[2..],
        kernel: &w.shape()[2..],
        strides: &c.strides,
        dilations: &c.dilations,
        origin: c.pads.iter().map(|p| -(p.0 as i64)).collect(),
    };
    let plane: usize = windows.plane.iter().product();
    let taps: usize = windows.kernel.iter().product();
    let pixels: usize = shape[2..].iter().product();
    let (channels, maps) = (w.shape()[1], w.shape()[0] / c.groups);
    let (x, bias) = (floats(x), bias.map(floats));
    let mut out = vec![0.0; shape.iter().product()];
    for n in 0..shape[0] {
        for g in 0..c.groups {
            let image = &x[(n * c.groups + g) * channels * plane..][..channels * plane];
            let first_map = g * maps;
            let result = &mut out[(n * shape[1] + first_map) * pixels..][..maps * pixels];
            let depth = channels * taps;
            Product {
                rows: maps,
                depth,
                columns: pixels,
            }
            .compute(
                |m, line| read_strided(w, (first_map + m) * depth, 1, line),
                |pixel, line| {
                    let offsets = windows.offsets(pixel);
                    for (line, image) in line.chunks_mut(taps).zip(image.chunks(plane.max(1))) {
                        for (v, offset) in line.iter_mut().zip(&offsets) {
                            *v = offset.map_or(outside, |o| image[o]);
                        }
                    }
                },
                |columns| {
                    for m in 0..maps {
                        let b = bias.as_ref().map_or(0.0, |b| b[first_map + m]);
                        let out = &mut result[m * pixels + columns.first..][..columns.width];
                        for (o, v) in out.iter_mut().zip(columns.row(m)) {
                            *o = v + b;
                        }
                    }
                },
            );
        }
    }
    out
}

pub(super) fn col2im(c: &Col2Im, x: &Tensor, shape: &[usize]) -> Tensor {
    let counts = c.windows().expect("the operator was checked");
    let windows = Windows {
        plane: &c.image,
        counts: &counts,
        kernel: &c.window,
        strides: &c.strides,
        dilations: &c.dilations,
        origin: c.pads.iter().map(|p| -(p.0 as i64)).collect(),
    };
    let plane: usize = c.image.iter().product();
    let (taps, columns) = (c.window.iter().product::<usize>(), x.shape()[2]);
    let values = floats(x);
    let mut out = vec![0.0; shape.iter().product()];
    let images = out.chunks_mut(plane.max(1));
    for (image, rows) in images.zip(values.chunks((taps * columns).max(1))) {
        for column in 0..columns {
            for (tap, offset) in windows.offsets(column).iter().enumerate() {
                let Some(offset) = offset else { continue };
                image[*offset] += rows[tap * columns + column];
            }
        }
    }
    from_floats(x.dtype(), shape, &out)
}

pub(super) fn conv_transpose(
    c: &ConvTranspose,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    shape: &[usize],
) -> Tensor {
    let windows = Windows {
        plane: &shape[2..],
        counts: &x.shape()[2..],
        kernel: &w.shape()[2..],
        strides: &c.strides,
        dilations: &c.dilations,
        origin: c.pads.iter().map(|p| -p.0).collect(),
    };
    let plane: usize = windows.plane.iter().product();
    let taps: usize = windows.kernel.iter().product();
    let pixels: usize = windows.counts.iter().product();
    let (channels, maps) = (w.shape()[0] / c.groups, w.shape()[1]);
    let mut out = vec![0.0; shape.iter().product()];
    if let Some(bias) = bias.map(floats) {
        for (i, map) in out.chunks_mut(plane.max(1)).enumerate() {
            map.fill(bias[i % bias.len()]);
        }
    }
    for n in 0..shape[0] {
        for g in 0..c.groups {
            let image = (n * c.groups + g) * channels * pixels;
            let weights = g * channels * maps * taps;
            let result = &mut out[(n * shape[1] + g * maps) * plane..][..maps * plane];
            let strides = row_major_strides(&[maps, taps]);
            Product {
                rows: maps * taps,
                depth: channels,
                columns: pixels,
            }
            .compute(
                |r, line| read_strided(w, weights + r, maps * taps, line),
                |pixel, line| read_strided(x, image + pixel, pixels, line),
                |columns| {
                    for j in 0..columns.width {
                        for (tap, offset) in windows.offsets(columns.first + j).iter().enumerate() {
                            let Some(offset) = offset else { continue };
                            for m in 0..maps {
                                result[m * plane + offset] += columns.row(m * strides[0] + tap)[j];
                            }
                        }
                    }
                },
            );
        }
    }
    from_floats(w.dtype(), shape, &out)
}
