//! Attention: a product, a softmax of its rows, and a product with these weights.

use super::matmul::product;
use super::norm::{Powers, powers};
use super::{Access, Built, Declared, Env, Kind, LastStep, Point};
use crate::fold::past_reshape;
use crate::fuse::Group;
use crate::layout::{Choice, Layout};
use graph::{Model, Users};
use ir::names::{LOGITS, MAIN, SCORES};
use ir::{Expr, ProgramBuilder};

/// Blocks `scores`, `logits` (where something follows the product), `max`, `e`, `sum`,
/// `inverse`, `main` and `out`. Rows of weights stay sums of powers until `out`, which
/// multiplies a row by one over its sum. Of halves, all of them are in f32.
pub(super) fn attention(
    model: &Model,
    users: &Users,
    group: &Group,
    scores: &Group,
    choice: &Choice,
) -> Built {
    let mut b = ProgramBuilder::new("attention");
    let (of, nothing) = ((scores, choice, 0), Declared::default());
    let (env, operands) = Env::new((model, users), of, &["Q", "K"], nothing, &mut b);
    let (sums, axes) = product(&env, &mut b, SCORES);
    let logits = match env.group.chain.is_empty() {
        true => sums,
        false => b.compute(LOGITS.as_str(), &axes.list(), |at| {
            env.follow_open(Expr::load(sums, at), &env.point(at))
        }),
    };
    let one = Expr::constant(1.0, env.work());
    let last = env.shape.len() - 1;
    let load = |at: Vec<Expr>| Expr::load(logits, at);
    let Powers { e, inverse } = powers(&mut b, &axes, last, &one, load);

    let left = model[group.anchor]
        .input(0)
        .expect("a product has a left operand");
    let read = model[left].shape();
    let made: Vec<usize> = env.shape.iter().map(|n| *n as usize).collect();
    let own: Vec<Option<usize>> = (0..read.len()).map(Some).collect();
    let own = past_reshape(&made, read, &own).expect("the shapes differ by axes of extent 1");
    let access = Access::Buffer {
        buffer: e,
        dtype: env.work(),
        work: env.work(),
        shape: read.iter().map(|n| *n as i64).collect(),
        layout: Layout::Plain,
        axes: Some(own.clone()),
    };
    let terms = env.operand_shape(0).last().copied().unwrap_or(1);
    let declared = Declared {
        accesses: env.accesses.into_iter().chain([(left, access)]).collect(),
        operands,
    };
    let of = (group, choice, 0);
    let (env, operands) = Env::new((model, users), of, &["", "V"], declared, &mut b);
    let (sums, axes) = product(&env, &mut b, MAIN);
    let scaled = |sum: Expr, p: &Point| {
        let along = |a: &Option<usize>| a.map_or(Expr::int(0), |d| p.index[d].clone());
        sum * Expr::load(inverse, own[..last].iter().map(along).collect::<Vec<_>>())
    };
    let result = env.conclude(&mut b, sums, &axes, Some(&scaled as LastStep));

    let [m, n] = [made[last - 1], made[last]];
    let rows = made[..last].iter().product::<usize>();
    let columns = env.shape[env.shape.len() - 1];
    let kind = Kind::new("attention")
        .arg("b", rows / m)
        .arg("m", m)
        .arg("n", n)
        .arg("k", terms)
        .arg("v", columns)
        .flops(2.0 * (rows * n) as f64 * (terms + columns) as f64);
    Built {
        program: b.finish(&[result]),
        operands,
        kind,
    }
}
