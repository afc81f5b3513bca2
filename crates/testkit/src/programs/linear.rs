//! Matrix products.

use super::{Generator, product};
use ir::{Expr, Reducer};
use rand::Rng;

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
