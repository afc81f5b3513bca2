//! Map blocks that move elements: permutations, joins, parts, gathers.

use super::pointwise::elementwise;
use super::{Generator, MAX_ELEMENTS, Source};
use ir::{DType, Expr};
use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};

pub(super) fn transpose(g: &mut Generator, name: &str) {
    let a = g.operand(2..=4);
    let mut order: Vec<usize> = (0..a.shape.len()).collect();
    order.shuffle(&mut g.rng);
    let axes: Vec<i64> = order.iter().map(|d| a.shape[*d]).collect();
    g.map(name, &axes, |_, s| {
        let mut indices = s.to_vec();
        for (at, d) in order.iter().enumerate() {
            indices[*d] = s[at].clone();
        }
        a.load(indices)
    });
}

pub(super) fn concat(g: &mut Generator, name: &str) {
    let a = g.operand(1..=4);
    let dtype = a.arithmetic();
    let d = g.rng.random_range(0..a.shape.len());
    let mut shape = a.shape.clone();
    shape[d] = g.extent();
    if shape.iter().product::<i64>() > MAX_ELEMENTS {
        shape[d] = 1;
    }
    let mut axes = a.shape.clone();
    axes[d] += shape[d];
    if !g.fits(axes.iter().product()) {
        return elementwise(g, name);
    }
    let b = g.operand_shaped(&shape, dtype);
    g.map(name, &axes, |_, s| {
        let first = a.shape[d];
        let mut second = s.to_vec();
        second[d] = s[d].clone() - first;
        let (x, y) = (a.load(s), b.load_as(dtype, second));
        (Expr::select(s[d].clone().lt(first), x.0, y.0), x.1.max(y.1))
    });
}

pub(super) fn reshape(g: &mut Generator, name: &str) {
    let a = g.operand(1..=4);
    let rank = a.shape.len();
    let d = g.rng.random_range(0..rank);
    let factors = [2, 3, 4, 5].into_iter().filter(|f| a.shape[d] % f == 0);
    let factors: Vec<i64> = factors.collect();
    match (g.rng.random_range(0..3), factors.choose(&mut g.rng)) {
        (0, _) if d + 1 < rank => join(g, name, &a, d),
        (1, Some(factor)) if rank < 4 => split(g, name, &a, d, *factor),
        _ => roll(g, name, &a, d),
    }
}

/// Axes `d` and `d + 1` as one.
fn join(g: &mut Generator, name: &str, a: &Source, d: usize) {
    let inner = a.shape[d + 1];
    let mut axes = a.shape.clone();
    axes[d] *= inner;
    axes.remove(d + 1);
    g.map(name, &axes, |_, s| {
        let mut indices = s.to_vec();
        indices[d] = s[d].clone().floor_div(inner);
        indices.insert(d + 1, s[d].clone().floor_mod(inner));
        a.load(indices)
    });
}

/// Axis `d` as two.
fn split(g: &mut Generator, name: &str, a: &Source, d: usize, factor: i64) {
    let mut axes = a.shape.clone();
    axes[d] /= factor;
    axes.insert(d + 1, factor);
    g.map(name, &axes, |_, s| {
        let mut indices = s.to_vec();
        let inner = indices.remove(d + 1);
        indices[d] = s[d].clone() * factor + inner;
        a.load(indices)
    });
}

/// Axis `d` turned by some elements.
fn roll(g: &mut Generator, name: &str, a: &Source, d: usize) {
    let shift = g.rng.random_range(-5..=5);
    g.map(name, &a.shape, |_, s| {
        let mut indices = s.to_vec();
        indices[d] = (s[d].clone() + shift).floor_mod(a.shape[d]);
        a.load(indices)
    });
}

pub(super) fn slice(g: &mut Generator, name: &str) {
    let a = g.operand(1..=4);
    // A start and a step an axis; a negative step starts at the end.
    let mut parts = Vec::new();
    let mut axes = Vec::new();
    for extent in &a.shape {
        let step: i64 = *[1, 1, 2, 3, -1].choose(&mut g.rng).expect("some steps");
        let start = g.rng.random_range(0..=extent / 3);
        let reach = extent - start;
        parts.push((if step < 0 { extent - 1 - start } else { start }, step));
        axes.push((reach - 1) / step.abs() + 1);
    }
    g.map(name, &axes, |_, s| {
        let index = |(i, (start, step)): (&Expr, &(i64, i64))| match step {
            -1 => Expr::int(*start) - i,
            1 => i.clone() + *start,
            _ => i.clone() * *step + *start,
        };
        let indices: Vec<Expr> = s.iter().zip(&parts).map(index).collect();
        a.load(indices)
    });
}

pub(super) fn gather(g: &mut Generator, name: &str) {
    let a = g.operand(1..=3);
    let rows = a.shape[0];
    let inner = &a.shape[1..];
    let most = MAX_ELEMENTS.min(g.options.max_points) / inner.iter().product::<i64>();
    let (at, wild) = rows_to_take(g, rows, most, 4 - inner.len());
    let axes: Vec<i64> = at.shape.iter().chain(inner).copied().collect();
    g.map(name, &axes, |_, s| {
        let (which, rest) = s.split_at(at.shape.len());
        let row = at.load_as(DType::I64, which).0;
        let row = if wild { row.floor_mod(rows) } else { row };
        let indices: Vec<Expr> = [row].into_iter().chain(rest.iter().cloned()).collect();
        a.load(indices)
    });
}

/// At most `most` positions below `rows`, or (true) any numbers.
fn rows_to_take(g: &mut Generator, rows: i64, most: i64, max_rank: usize) -> (Source, bool) {
    let fits = |s: &&Source| {
        s.computed && s.shape.len() <= max_rank && s.shape.iter().product::<i64>() <= most
    };
    let known = g.tensors.iter().rev().filter(fits);
    let any = known.clone().next();
    let positions = known
        .clone()
        .find(|s| s.index_below.is_some_and(|b| b <= rows));
    match (positions, any) {
        (Some(s), _) if g.rng.random_bool(0.5) => return (s.clone(), false),
        (_, Some(s)) if g.rng.random_bool(0.3) => return (s.clone(), true),
        _ => {}
    }
    let rank = g.rng.random_range(1..=max_rank.min(2));
    let mut shape = g.shape(rank);
    while shape.iter().product::<i64>() > most {
        shape.iter_mut().for_each(|e| *e = (*e / 2).max(1));
    }
    let dtype = *[DType::I64, DType::I32]
        .choose(&mut g.rng)
        .expect("two types");
    let i = g.params;
    g.params += 1;
    let source = Source {
        id: g.builder.input(&format!("at{i}"), dtype, &shape),
        dtype,
        shape,
        bound: rows,
        index_below: Some(rows),
        computed: false,
    };
    (source, false)
}
