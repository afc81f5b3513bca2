//! Sampling of images at given points.

use super::{Axes, Env, Kind};
use graph::ops::{GridSample, Interpolation, Outside};
use ir::names::MAIN;
use ir::{BufferId, DType, Expr, ProgramBuilder, Reducer, UnaryOp};

/// Channels with which vectors go along them, at least.
const MANY_CHANNELS: i64 = 8;

/// The pixels [taps, n, points..] that samples are made of along an axis, -1 where zeros lie,
/// and their weights, which are 0 there.
struct Neighbours {
    pixels: BufferId,
    weights: BufferId,
}

/// Along each axis the neighbours of a point are the same for all channels: blocks `pixel0`,
/// `weight0`, ... Then `main` sums products, or takes the largest one.
pub(super) fn grid_sample(env: &Env, b: &mut ProgramBuilder, g: GridSample) -> (BufferId, Kind) {
    let x = env.operand(0);
    let sizes = x.shape()[2..].to_vec();
    let along: Vec<Neighbours> = (0..sizes.len())
        .map(|d| neighbours(env, b, g, d, sizes[d]))
        .collect();
    let axes = env.axes();
    let names: Vec<String> = (0..sizes.len()).map(|d| format!("t{d}")).collect();
    let taps: Vec<(&str, i64)> = names
        .iter()
        .map(|n| (n.as_str(), g.taps() as i64))
        .collect();
    // Where there are many channels, vectors go along them: all have the same pixels and weights.
    let inside = x.shape()[1] >= MANY_CHANNELS;
    let image = inside.then(|| channels_last(env, b));
    let zeros = g.outside == Outside::Zeros && !inside && has_many_points(env, g);
    let bordered = zeros.then(|| bordered(env, b));
    let alive = match g.outside {
        // A condition would take vectors along points apart.
        Outside::Zeros if !zeros => Some(rows_inside(env, b, &along, g.taps() as i64)),
        _ => None,
    };
    let main = match inside {
        true => Axes(rotated(&axes.0)),
        false => Axes(axes.0.clone()),
    };
    let acc = b.reduce(MAIN.as_str(), &main.list(), &taps, reducer(g), |o, t| {
        let o = match inside {
            true => &[&o[..1], &o[o.len() - 1..], &o[1..o.len() - 1]].concat(),
            false => o,
        };
        let at = |tap: &Expr| [std::slice::from_ref(tap), &o[..1], &o[2..]].concat();
        let pixels = along
            .iter()
            .zip(t)
            .map(|(n, t)| Expr::load(n.pixels, at(t)));
        let pixels: Vec<Expr> = pixels.collect();
        // Within the image by what is written here: the data need no check.
        let within = |(p, n): (&Expr, &i64)| match bordered {
            Some(_) => (p + 1).max(0).min(*n),
            None => p.clone().max(0).min(*n - 1),
        };
        let index = pixels.iter().zip(&sizes).map(within);
        let at_pixel = [&o[..2], &index.collect::<Vec<_>>()].concat();
        let value = match (image, bordered) {
            (Some(image), _) => Expr::load(image, rotated(&at_pixel)),
            (None, Some(image)) => Expr::load(image, at_pixel),
            (None, None) => x.at(at_pixel),
        };
        let weights = along
            .iter()
            .zip(t)
            .map(|(n, t)| Expr::load(n.weights, at(t)));
        // Zeros are chosen before they are weighted: a choice between sums would be a branch
        // for each lane.
        let value = match g.outside {
            Outside::Zeros if bordered.is_none() => {
                let inside = pixels.into_iter().map(|p| p.ge(0)).collect();
                super::guarded(inside, value, Expr::constant(0.0, env.work()))
            }
            Outside::Zeros | Outside::Border | Outside::Reflection => value,
        };
        let product = weights.fold(value, |v, w| v * w);
        // A row of points without any pixel is passed over, such as those of a region that
        // there is not.
        let row = [&o[..1], &o[2..o.len() - 1]].concat();
        let lives = alive
            .map(|b| Expr::load(b, row).ge(0))
            .into_iter()
            .collect();
        super::guarded(lives, product, Expr::constant(0.0, env.work()))
    });
    let result = match inside {
        true => env.conclude_at(b, acc, &axes, &|at| rotated(at), None),
        false => env.conclude(b, acc, &axes, None),
    };
    (result, kind_of(env, g))
}

/// What makes a sample of the products of pixels and weights.
fn reducer(g: GridSample) -> Reducer {
    match g.interpolation {
        Interpolation::Largest => Reducer::Max,
        Interpolation::Nearest | Interpolation::Linear | Interpolation::Cubic => Reducer::Sum,
    }
}

fn kind_of(env: &Env, g: GridSample) -> Kind {
    let word = match g.interpolation {
        Interpolation::Nearest => "nearest",
        Interpolation::Linear => "linear",
        Interpolation::Largest => "largest",
        Interpolation::Cubic => "cubic",
    };
    let mut kind = Kind::new(format!("grid_sample_{word}"));
    for (d, n) in env.operand(0).shape().iter().enumerate() {
        kind = kind.arg(&format!("d{d}"), *n);
    }
    for (d, n) in env.shape[2..].iter().enumerate() {
        kind = kind.arg(&format!("to{d}"), *n);
    }
    kind
}

/// With the second one behind all others.
fn rotated<T: Clone>(all: &[T]) -> Vec<T> {
    [&all[..1], &all[2..], &all[1..2]].concat()
}

/// Whether samples read more pixels than the image has: then a copy of the image costs less than a choice for each lane.
fn has_many_points(env: &Env, g: GridSample) -> bool {
    let count = |shape: &[i64]| shape.iter().product::<i64>();
    let pixels = &env.operand(0).shape()[2..];
    let taps = (g.taps() as i64).pow(pixels.len() as u32);
    count(&env.shape[2..]) * taps >= count(pixels)
}

/// The image behind one more pixel along each axis, a zero: pixel -1 of the image.
fn bordered(env: &Env, b: &mut ProgramBuilder) -> BufferId {
    let x = env.operand(0);
    let named = |(d, n): (usize, &i64)| (format!("i{d}"), n + i64::from(d >= 2));
    let axes = Axes::new(x.shape().iter().enumerate().map(named));
    b.compute("bordered", &axes.list(), |o| {
        let pixel: Vec<Expr> = o[2..].iter().map(|i| i - 1).collect();
        let inside = o[2..].iter().map(|i| i.clone().ge(1)).collect();
        let value = x.at([&o[..2], &pixel].concat());
        super::guarded(inside, value, Expr::constant(0.0, env.work()))
    })
}

/// The image with its channels as the last axis.
fn channels_last(env: &Env, b: &mut ProgramBuilder) -> BufferId {
    let x = env.operand(0);
    let named = |(d, n): (usize, &i64)| (format!("i{d}"), *n);
    let axes: Vec<(String, i64)> = x.shape().iter().enumerate().map(named).collect();
    let axes = Axes(rotated(&axes));
    b.compute("channels_last", &axes.list(), |o| {
        let (channel, others) = o.split_last().expect("an image has channels");
        x.at([&others[..1], std::slice::from_ref(channel), &others[1..]].concat())
    })
}

/// For each row of points [n, points.. but the last] the largest pixel that a sample of it is made
/// of, which is negative if there is none.
fn rows_inside(env: &Env, b: &mut ProgramBuilder, along: &[Neighbours], taps: i64) -> BufferId {
    let points = [&env.shape[..1], &env.shape[2..]].concat();
    let name = |d: usize| format!("i{d}");
    let (last, rows) = (
        points.len() - 1,
        Axes::new(
            points[..points.len() - 1]
                .iter()
                .enumerate()
                .map(|(d, n)| (name(d), *n)),
        ),
    );
    let over = (0..along.len()).map(|d| (format!("t{d}"), taps));
    let over = Axes::new(over.chain([(name(last), points[last])]));
    b.reduce(
        "inside",
        &rows.list(),
        &over.list(),
        Reducer::Max,
        |o, r| {
            let (at, taps) = r.split_last().expect("a row has points");
            let pixel = |(n, t): (&Neighbours, &Expr)| {
                let index = [std::slice::from_ref(t), o, std::slice::from_ref(at)].concat();
                Expr::load(n.pixels, index)
            };
            let pixels = along.iter().zip(taps).map(pixel);
            pixels.reduce(Expr::min).unwrap_or_else(|| Expr::int(0))
        },
    )
}

fn neighbours(env: &Env, b: &mut ProgramBuilder, g: GridSample, axis: usize, n: i64) -> Neighbours {
    let grid = env.operand(1);
    let work = env.work();
    let number = |v: f64| Expr::constant(v, work);
    let (scale, shift) = g.place(n as usize);
    let mirrors = g.mirrors(n as usize);
    let last = number(n as f64 - 1.0);
    let clamped = |e: Expr| e.max(number(0.0)).min(last.clone());
    let points = Axes::new(
        [env.shape[0]]
            .iter()
            .chain(&env.shape[2..])
            .enumerate()
            .map(|(d, n)| (format!("i{d}"), *n)),
    );
    let spatial = grid.shape().len() - 2;
    // The grid names the innermost axis first.
    let entry = Expr::int((spatial - 1 - axis) as i64);
    let places = b.compute(&format!("place{axis}"), &points.list(), |o| {
        let coordinate = grid.at([o, std::slice::from_ref(&entry)].concat());
        let place = env.factor(1, coordinate) * number(scale) + number(shift);
        let place = match g.interpolation {
            Interpolation::Nearest => Expr::unary(UnaryOp::Round, place),
            _ => place,
        };
        match g.place_outside() {
            Outside::Zeros => place,
            Outside::Border => clamped(place),
            Outside::Reflection => reflected(place, mirrors, &number),
        }
    });
    let first = |place: &Expr| match g.interpolation {
        Interpolation::Nearest => place.clone(),
        Interpolation::Linear | Interpolation::Largest => Expr::unary(UnaryOp::Floor, place),
        Interpolation::Cubic => Expr::unary(UnaryOp::Floor, place) - number(1.0),
    };
    let of = |o: &[Expr]| {
        let (tap, point) = o.split_first().expect("a neighbour has its tap");
        let place = Expr::load(places, point);
        let at = first(&place) + tap.clone().cast(work);
        (at, place)
    };
    let mut axes = points;
    axes.0.insert(0, ("t".to_string(), g.taps() as i64));
    let pixels = b.compute(&format!("pixel{axis}"), &axes.list(), |o| {
        let (at, _) = of(o);
        let at = match g.outside {
            Outside::Zeros => at,
            Outside::Border => clamped(at),
            Outside::Reflection => reflected(at, mirrors, &number),
        };
        let whole = at.clone().cast(DType::I64).max(0).min(n - 1);
        let inside = number(0.0).le(&at).and(at.lt(number(n as f64)));
        Expr::select(inside, whole, Expr::int(-1))
    });
    let weights = b.compute(&format!("weight{axis}"), &axes.list(), |o| {
        let (at, place) = of(o);
        let inside = number(0.0).le(&at).and(at.clone().lt(number(n as f64)));
        let distance = Expr::unary(UnaryOp::Abs, at - place);
        let weight = match g.interpolation {
            Interpolation::Nearest => number(1.0),
            Interpolation::Linear | Interpolation::Largest => number(1.0) - distance,
            Interpolation::Cubic => cubic(distance, &number),
        };
        match g.outside {
            Outside::Zeros => Expr::select(inside, weight, number(0.0)),
            Outside::Border | Outside::Reflection => weight,
        }
    });
    Neighbours { pixels, weights }
}

/// Mirrored at both ends until it lies between them.
fn reflected(place: Expr, (low, high): (f64, f64), number: &dyn Fn(f64) -> Expr) -> Expr {
    let span = high - low;
    if span <= 0.0 {
        return place.max(number(low)).min(number(high));
    }
    let folded = (&place - number(low)).floor_mod(number(2.0 * span));
    let back = number(2.0 * span) - &folded;
    let mirrored = number(low) + folded.min(back);
    let between = number(low).le(&place).and(place.clone().le(number(high)));
    Expr::select(between, place, mirrored)
}

/// R. G. Keys' kernel with a = -3/4 at a distance of at most 2.
fn cubic(d: Expr, number: &dyn Fn(f64) -> Expr) -> Expr {
    let a = -0.75;
    let near = (&d * number(a + 2.0) - number(a + 3.0)) * &d * &d + number(1.0);
    let far = ((&d * number(a) - number(5.0 * a)) * &d + number(8.0 * a)) * &d - number(4.0 * a);
    Expr::select(d.le(number(1.0)), near, far)
}
