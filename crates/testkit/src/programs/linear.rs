//! Matrix products.

use super::{Generator, product};
use ir::{DType, Expr, Reducer};
use rand::Rng;
use rand::seq::IndexedRandom;

pub(super) fn matmul(g: &mut Generator, name: &str) {
    let a = g.operand(2..=3);
    let dtype = a.arithmetic();
    let (k, outer) = a.shape.split_last().expect("the rank is at least 2");
    let (k, points) = (*k, a.shape.iter().product::<i64>());
    let most = (g.options.max_points / points).max(1);
    let transposed = g.rng.random_bool(0.5);
    let fits = |s: &&super::Source| {
        let columns = s.shape.get(usize::from(!transposed));
        s.shape.len() == 2
            && s.shape[usize::from(transposed)] == k
            && columns.is_some_and(|n| *n <= most)
    };
    let known = g
        .tensors
        .iter()
        .filter(|s| s.id != a.id)
        .rfind(fits)
        .cloned();
    let b = match known {
        Some(b) if g.rng.random_bool(0.5) => b,
        _ => {
            let n = g.extent().min(most);
            let shape = if transposed { [n, k] } else { [k, n] };
            g.param(dtype, &shape)
        }
    };
    let n = b.shape[usize::from(!transposed)];
    let axes: Vec<i64> = outer.iter().copied().chain([n]).collect();
    g.block(name, &axes, &[k], Some(Reducer::Sum), |_, s, r| {
        let (column, row) = s.split_last().expect("there is the last axis");
        let mut left = row.to_vec();
        left.push(r[0].clone());
        let mut right: Vec<Expr> = vec![r[0].clone(), column.clone()];
        if transposed {
            right.reverse();
        }
        vec![product(a.load(left), b.load_as(dtype, right), k, dtype)]
    });
}

/// Rows by panels of columns, four bytes of the sum side by side for each column.
pub(super) fn bytes(g: &mut Generator, name: &str) {
    if !g.options.integers {
        return matmul(g, name);
    }
    let types = [
        (DType::I8, DType::I8),
        (DType::U8, DType::I8),
        (DType::U8, DType::U8),
    ];
    let (left, right) = *types.choose(&mut g.rng).expect("a pair");
    let lanes = *[4, 8, 16].choose(&mut g.rng).expect("a width");
    let steps = g.rng.random_range(1..=3);
    let panels = g.rng.random_range(1..=3);
    let rows = g.rng.random_range(1..=6);
    let rows = (g.options.max_points / (panels * lanes * steps * 4)).clamp(1, rows);
    let a = g.stored(left, &[rows, steps, 4]);
    let b = g.stored(right, &[panels, steps, lanes, 4]);
    let axes = [rows, panels, lanes];
    g.block(name, &axes, &[steps, 4], Some(Reducer::Sum), |_, s, r| {
        let a = a.load([s[0].clone(), r[0].clone(), r[1].clone()]);
        let b = b.load([s[1].clone(), r[0].clone(), s[2].clone(), r[1].clone()]);
        vec![product(a, b, 4 * steps, DType::I32)]
    });
}
