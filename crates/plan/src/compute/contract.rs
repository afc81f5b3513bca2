//! Contractions of two tensors.

use super::{Access, Env, Kind};
use graph::ops::Contract;
use ir::names::MAIN;
use ir::{BufferId, Expr, ProgramBuilder, Reducer};
use std::collections::HashMap;

/// main [result's letters] = sum over the other letters; every axis is called by its
/// letter. Without a letter to sum over, `main` is the product alone.
pub(super) fn contract(env: &Env, b: &mut ProgramBuilder, c: &Contract) -> (BufferId, Kind) {
    let (x, y) = (env.operand(0), env.operand(1));
    let letters = [(&c.left, x.shape()), (&c.right, y.shape())];
    let extents: HashMap<char, i64> = letters
        .iter()
        .flat_map(|(letters, shape)| letters.iter().copied().zip(shape.iter().copied()))
        .collect();
    let axes = env.named_axes(c.result.iter().map(char::to_string));
    let summed = c.summed();
    let product = |o: &[Expr], t: &[Expr]| {
        let spatial = c.result.iter().zip(o);
        let at: HashMap<&char, &Expr> = spatial.chain(summed.iter().zip(t)).collect();
        let element = |access: &Access, letters: &[char]| {
            access.at(letters.iter().map(|l| at[l].clone()).collect())
        };
        element(x, &c.left) * element(y, &c.right)
    };
    let result = if summed.is_empty() {
        b.compute(MAIN.as_str(), &axes.list(), |o| {
            env.follow(product(o, &[]), &env.point(o))
        })
    } else {
        let names: Vec<String> = summed.iter().map(char::to_string).collect();
        let terms: Vec<(&str, i64)> = names
            .iter()
            .zip(&summed)
            .map(|(name, l)| (name.as_str(), extents[l]))
            .collect();
        let acc = b.reduce(MAIN.as_str(), &axes.list(), &terms, Reducer::Sum, product);
        env.conclude(b, acc, &axes, None)
    };
    let mut kind = Kind::new("contract");
    for l in c.letters() {
        kind = kind.arg(&l.to_string(), extents[&l]);
    }
    let multiplications: f64 = extents.values().map(|n| *n as f64).product();
    let each = if summed.is_empty() { 1.0 } else { 2.0 };
    (result, kind.flops(each * multiplications))
}
