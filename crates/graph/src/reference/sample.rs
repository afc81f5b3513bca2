//! Sampling of images at given points.

use super::parallel::pieces;
use super::widen::{floats, from_floats};
use crate::ops::{GridSample, Interpolation, Outside};
use tensor::{Tensor, row_major_strides};

pub(super) fn grid_sample(g: GridSample, x: &Tensor, grid: &Tensor, shape: &[usize]) -> Tensor {
    let spatial = x.rank() - 2;
    let sizes = &x.shape()[2..];
    let strides = row_major_strides(sizes);
    let image: usize = sizes.iter().product();
    let points: usize = shape[2..].iter().product();
    let (pixels, coordinates) = (floats(x), floats(grid));
    let mut out = vec![0.0; shape.iter().product()];
    const PIECE: usize = 256;
    pieces(&mut out, PIECE, |piece, values| {
        for (i, value) in values.iter_mut().enumerate() {
            let at = piece * PIECE + i;
            let (channel, point) = (at / points, at % points);
            let point = (channel / shape[1] * points + point) * spatial;
            // The grid names the innermost axis first.
            let axes: Vec<Vec<(Option<usize>, f64)>> = (0..spatial)
                .map(|d| taps(g, coordinates[point + spatial - 1 - d], sizes[d]))
                .collect();
            let count = g.taps().pow(spatial as u32);
            let products = (0..count).map(|tap| {
                let (mut rest, mut weight, mut offset) = (tap, 1.0, Some(channel * image));
                for d in 0..spatial {
                    let (pixel, share) = axes[d][rest % g.taps()];
                    rest /= g.taps();
                    weight *= share;
                    offset = offset.zip(pixel).map(|(o, p)| o + p * strides[d]);
                }
                offset.map_or(0.0, |o| pixels[o] * weight)
            });
            *value = match g.interpolation {
                Interpolation::Largest => products.fold(f64::NEG_INFINITY, larger),
                _ => products.sum(),
            };
        }
    });
    from_floats(x.dtype(), shape, &out)
}

/// NaN if either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The pixels that a sample is made of along an axis of `n`, with their weights; none where
/// zeros lie.
fn taps(g: GridSample, coordinate: f64, n: usize) -> Vec<(Option<usize>, f64)> {
    let (scale, shift) = g.place(n);
    let mut place = coordinate * scale + shift;
    if g.interpolation == Interpolation::Nearest {
        place = place.round_ties_even();
    }
    let (low, high) = g.mirrors(n);
    match g.place_outside() {
        Outside::Zeros => {}
        Outside::Border => place = place.clamp(0.0, n as f64 - 1.0),
        Outside::Reflection => place = reflected(place, low, high),
    }
    let (first, weight): (f64, fn(f64) -> f64) = match g.interpolation {
        Interpolation::Nearest => (place, |_| 1.0),
        Interpolation::Linear | Interpolation::Largest => (place.floor(), |d| 1.0 - d),
        Interpolation::Cubic => (place.floor() - 1.0, cubic),
    };
    (0..g.taps())
        .map(|t| {
            let at = first + t as f64;
            let weight = weight((at - place).abs());
            let pixel = match g.outside {
                Outside::Zeros => at,
                Outside::Border => at.clamp(0.0, n as f64 - 1.0),
                Outside::Reflection => reflected(at, low, high).trunc(),
            };
            // NaN is nowhere.
            let inside = (0.0..n as f64).contains(&pixel);
            (inside.then_some(pixel as usize), weight)
        })
        .collect()
}

/// Mirrored at both ends until it lies between them.
fn reflected(place: f64, low: f64, high: f64) -> f64 {
    let span = high - low;
    if (low..=high).contains(&place) || span <= 0.0 {
        return place.clamp(low, high);
    }
    let folded = (place - low).rem_euclid(2.0 * span);
    low + if folded > span {
        2.0 * span - folded
    } else {
        folded
    }
}

/// R. G. Keys' kernel with a = -3/4 at a distance of at most 2.
fn cubic(d: f64) -> f64 {
    let a = -0.75;
    if d <= 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else {
        ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    }
}
