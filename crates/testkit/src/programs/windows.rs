//! Convolutions and pooling: windows over one or two axes.

use super::pointwise::elementwise;
use super::{Generator, MAX_VALUE, inside, product, tame};
use crate::filtering::EXACT_GROWTH;
use ir::{Expr, Reducer};
use rand::Rng;
use rand::seq::IndexedRandom;

/// How a window moves over one axis.
struct Window {
    extent: i64,
    taps: i64,
    stride: i64,
    dilation: i64,
    /// Before and after; less than the reach of the window, so that every
    /// window holds an element.
    pad: i64,
    out: i64,
}

impl Window {
    fn draw(g: &mut Generator, extent: i64, dilated: bool) -> Window {
        let dilation = if dilated {
            g.rng.random_range(1..=2)
        } else {
            1
        };
        let stride = g.rng.random_range(1..=2);
        let mut taps = g.rng.random_range(1..=3);
        let mut pad = g.rng.random_range(0..=(taps - 1) * dilation);
        if extent + 2 * pad <= (taps - 1) * dilation {
            (taps, pad) = (1, 0);
        }
        let out = (extent + 2 * pad - (taps - 1) * dilation - 1) / stride + 1;
        Window {
            extent,
            taps,
            stride,
            dilation,
            pad,
            out,
        }
    }

    /// Of a convolution that minimal filtering is for, where the extent allows one.
    fn filter(g: &mut Generator, extent: i64) -> Window {
        let mut taps = *[2, 3, 3, 3, 5].choose(&mut g.rng).expect("some taps");
        let mut pad = g.rng.random_range(0..=taps / 2);
        if extent + 2 * pad < taps {
            (taps, pad) = (1, 0);
        }
        Window {
            extent,
            taps,
            stride: 1,
            dilation: 1,
            pad,
            out: extent + 2 * pad - taps + 1,
        }
    }

    /// Whether an element depends on the sum of output and tap only.
    fn slides(&self) -> bool {
        self.stride == self.dilation && self.taps > 1
    }

    /// The position of a tap, and whether it is inside, if that may fail.
    fn at(&self, o: &Expr, tap: &Expr) -> (Expr, Option<Expr>) {
        let scaled = |e: &Expr, k: i64| if k == 1 { e.clone() } else { e.clone() * k };
        let e = scaled(o, self.stride) + scaled(tap, self.dilation);
        if self.pad == 0 {
            return (e, None);
        }
        let e = e - self.pad;
        let guard = inside(&e, self.extent);
        (e, Some(guard))
    }
}

fn positions(windows: &[Window], o: &[Expr], taps: &[Expr]) -> (Vec<Expr>, Option<Expr>) {
    let mut guard: Option<Expr> = None;
    let mut indices = Vec::new();
    for ((w, o), tap) in windows.iter().zip(o).zip(taps) {
        let (index, inside) = w.at(o, tap);
        indices.push(index);
        guard = match (guard, inside) {
            (Some(a), Some(b)) => Some(a.and(b)),
            (a, b) => a.or(b),
        };
    }
    (indices, guard)
}

fn guarded(guard: Option<Expr>, value: Expr, otherwise: Expr) -> Expr {
    match guard {
        Some(g) => Expr::select(g, value, otherwise),
        None => value,
    }
}

pub(super) fn conv(g: &mut Generator, name: &str) {
    let filter = g.rng.random_bool(0.5);
    let x = g.operand(if filter { 3..=3 } else { 2..=3 });
    let dtype = x.arithmetic();
    let rank = x.shape.len();
    let last = g.rng.random_bool(0.5);
    let each = !filter && g.rng.random_bool(0.3);
    let channel_axis = if last { rank - 1 } else { 0 };
    let channels = x.shape[channel_axis];
    let extents = (0..rank).filter(|d| *d != channel_axis).map(|d| x.shape[d]);
    let extents: Vec<i64> = extents.collect();
    let window = |e: &i64| match filter {
        true => Window::filter(g, *e),
        false => Window::draw(g, *e, true),
    };
    let windows: Vec<Window> = extents.iter().map(window).collect();
    // Room for the sums of minimal filtering.
    let growth = match windows[..] {
        [ref y, ref x] if y.slides() && x.slides() => EXACT_GROWTH,
        _ => 1,
    };
    let out: Vec<i64> = windows.iter().map(|w| w.out).collect();
    let taps: Vec<i64> = windows.iter().map(|w| w.taps).collect();
    let points = channels * out.iter().chain(&taps).product::<i64>();
    if !g.fits(points) {
        return elementwise(g, name);
    }
    // One filter a channel, or one a pair of channels.
    let filters = match each {
        true => channels,
        false => g.extent().min(g.options.max_points / points).max(1),
    };
    let per_filter: &[i64] = if each { &[] } else { &[channels] };
    let shape = [&[filters], per_filter, &taps].concat();
    let w = g.param(dtype, &shape);
    let axes = match last {
        true => [&out[..], &[filters]].concat(),
        false => [&[filters], &out[..]].concat(),
    };
    let reduce = [per_filter, &taps].concat();
    g.block(name, &axes, &reduce, Some(Reducer::Sum), |_, s, r| {
        let (filter, o) = match last {
            true => (&s[rank - 1], &s[..rank - 1]),
            false => (&s[0], &s[1..]),
        };
        let (channel, tap) = match each {
            true => (filter, r),
            false => (&r[0], &r[1..]),
        };
        let (mut indices, guard) = positions(&windows, o, tap);
        indices.insert(channel_axis, channel.clone());
        let weight: Vec<Expr> = [filter].into_iter().chain(r).cloned().collect();
        let terms = growth * reduce.iter().product::<i64>();
        let limit = ((MAX_VALUE / terms) as f64).sqrt() as i64;
        let (value, bound) = tame(x.load(indices), limit, dtype);
        let value = guarded(guard, value, Expr::constant(0.0, dtype));
        vec![product(
            (value, bound),
            w.load_as(dtype, weight),
            terms,
            dtype,
        )]
    });
}

pub(super) fn pool(g: &mut Generator, name: &str) {
    let x = g.operand(1..=3);
    let dtype = x.arithmetic();
    let rank = x.shape.len();
    let outer = rank - g.rng.random_range(1..=rank.min(2));
    let windows: Vec<Window> = x.shape[outer..]
        .iter()
        .map(|e| Window::draw(g, *e, false))
        .collect();
    let taps: Vec<i64> = windows.iter().map(|w| w.taps).collect();
    let out = windows.iter().map(|w| w.out);
    let axes: Vec<i64> = x.shape[..outer].iter().copied().chain(out).collect();
    if !g.fits(axes.iter().chain(&taps).product()) {
        return elementwise(g, name);
    }
    let reducers = [Reducer::Max, Reducer::Sum, Reducer::Min];
    let reducer = reducers.choose(&mut g.rng).expect("some reducers").clone();
    g.block(name, &axes, &taps, Some(reducer.clone()), |_, s, r| {
        let (inner, guard) = positions(&windows, &s[outer..], r);
        let indices: Vec<Expr> = s[..outer].iter().cloned().chain(inner).collect();
        let (value, bound) = match reducer {
            Reducer::Sum => tame(
                x.load(indices),
                MAX_VALUE / taps.iter().product::<i64>(),
                dtype,
            ),
            _ => x.load(indices),
        };
        let outside = reducer.identity(&[dtype]).remove(0);
        vec![(guarded(guard, value, outside), bound)]
    });
}
