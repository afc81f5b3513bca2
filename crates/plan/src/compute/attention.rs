//! Attention: a product, a softmax of its rows, and a product with these weights.

use super::matmul::product;
use super::norm::{Powers, PowersOf, powers};
use super::{Access, Axes, Built, Declared, Env, Kind, LastStep, Point, guarded, work};
use crate::fold::past_reshape;
use crate::fuse::{Group, Scores};
use crate::layout::{Choice, Layout};
use graph::{Model, Users};
use ir::names::{BlockName, KEYS, LOGITS, MAIN, SCORES, VALUES};
use ir::{BufferId, DType, Expr, ExprKind, ProgramBuilder};

/// Blocks `scores`, `logits` (where something follows the product), `max`, `e`, `sum`,
/// `inverse`, `main` and `out`. Rows of weights stay sums of powers until `out`, which
/// multiplies a row by one over its sum. Of halves, all of them are in f32.
///
/// For tiles the blocks `keys` and `values` copy the right operands with zeros at their ends,
/// and `e` is of bf16. Logits of keys that are zeros are minus infinity.
pub(super) fn attention(
    model: &Model,
    users: &Users,
    group: &Group,
    scores: &Scores,
    choice: &Choice,
) -> Built {
    let mut b = ProgramBuilder::new("attention");
    let (of, nothing) = ((&scores.group, choice, 0), Declared::default());
    let (mut env, operands) = Env::new((model, users), of, &["Q", "K"], nothing, &mut b);
    let left = model[group.anchor].input(0);
    let left = left.expect("a product has a left operand");
    // What it is follows: it is no parameter.
    let unknown = Access::Literal(Expr::int(0));
    let declared = Declared {
        accesses: env
            .accesses
            .clone()
            .into_iter()
            .chain([(left, unknown)])
            .collect(),
        operands,
    };
    let of = (group, choice, 0);
    let (mut second, operands) = Env::new((model, users), of, &["", "V"], declared, &mut b);
    let terms = env.operand_shape(0).last().copied().unwrap_or(1);
    let last = env.shape.len() - 1;
    let n = env.shape[last];
    if let Some(stored) = scores.in_tiles {
        env.fill(&mut b, KEYS, 0, stored);
        second.fill(&mut b, VALUES, 1, stored);
        env.shape[last] = stored;
    }
    let (sums, axes) = product(&env, &mut b, SCORES);
    let logits = env.logits(&mut b, sums, &axes, n);
    let softmax = PowersOf {
        axes: &axes,
        axis: last,
        one: &Expr::constant(1.0, env.work()),
        rounded: scores.in_tiles.map(|_| DType::BF16),
    };
    let load = |at: Vec<Expr>| Expr::load(logits, at);
    let Powers { e, inverse } = powers(&mut b, &softmax, load);

    let mut read = model[left].shape().to_vec();
    let made: Vec<usize> = env.shape.iter().map(|n| *n as usize).collect();
    read.splice(read.len() - 1.., [made[last]]);
    let own: Vec<Option<usize>> = (0..read.len()).map(Some).collect();
    let own = past_reshape(&made, &read, &own).expect("the shapes differ by axes of extent 1");
    let access = Access::Buffer {
        buffer: e,
        dtype: b.program().buffer(e).dtype,
        work: env.work(),
        shape: read.iter().map(|n| *n as i64).collect(),
        layout: Layout::Plain,
        axes: Some(own.clone()),
    };
    let mut env = second;
    env.accesses.insert(left, access);
    let (sums, axes) = product(&env, &mut b, MAIN);
    let scaled = |sum: Expr, p: &Point| {
        let along = |a: &Option<usize>| a.map_or(Expr::int(0), |d| p.index[d].clone());
        sum * Expr::load(inverse, own[..last].iter().map(along).collect::<Vec<_>>())
    };
    let result = env.conclude(&mut b, sums, &axes, Some(&scaled as LastStep));

    let columns = env.shape[env.shape.len() - 1];
    Built {
        program: b.finish(&[result]),
        operands,
        kind: kind(&made[..last], n, [terms, columns]),
    }
}

/// Of so many rows of `n` scores, with so many terms of a score and columns of the result.
fn kind(rows: &[usize], n: i64, [terms, columns]: [i64; 2]) -> Kind {
    let m = rows[rows.len() - 1];
    let rows = rows.iter().product::<usize>();
    Kind::new("attention")
        .arg("b", rows / m)
        .arg("m", m)
        .arg("n", n)
        .arg("k", terms)
        .arg("v", columns)
        .flops(2.0 * (rows as i64 * n) as f64 * (terms + columns) as f64)
}

impl Env<'_> {
    /// What follows the scores, if anything does; that of scores beyond the first `n` of a row is
    /// minus infinity.
    fn logits(&self, b: &mut ProgramBuilder, scores: BufferId, axes: &Axes, n: i64) -> BufferId {
        let last = self.shape.len() - 1;
        let is_filled = n < self.shape[last];
        if self.follows_nothing() && !is_filled {
            return scores;
        }
        b.compute(LOGITS.as_str(), &axes.list(), |at| {
            let logit = self.follow_open(Expr::load(scores, at), &self.point(at));
            let beyond = Expr::constant(f64::NEG_INFINITY, self.work());
            let inside = is_filled.then(|| at[last].clone().lt(n));
            guarded(Vec::from_iter(inside), logit, beyond)
        })
    }

    /// A block that copies the right operand, matrices of bf16, with zeros along its last axis
    /// but `from_last` up to `extent`. The operand is read from there.
    fn fill(&mut self, b: &mut ProgramBuilder, name: BlockName, from_last: usize, extent: i64) {
        let matrices = self.operand(1);
        let mut shape = matrices.shape().to_vec();
        let at = shape.len() - 1 - from_last;
        let n = std::mem::replace(&mut shape[at], extent);
        let names: Vec<String> = (0..shape.len()).map(|d| format!("i{d}")).collect();
        let axes: Vec<(&str, i64)> = names
            .iter()
            .map(String::as_str)
            .zip(shape.clone())
            .collect();
        let dtype = DType::BF16;
        let buffer = b.compute(name.as_str(), &axes, |i| {
            let value = matrices.at(i.to_vec());
            let stored = match value.kind() {
                ExprKind::Cast(_, stored) => stored.clone(),
                _ => value.cast(dtype),
            };
            let inside = (n < extent).then(|| i[at].clone().lt(n));
            let zero = Expr::constant(0.0, dtype);
            guarded(Vec::from_iter(inside), stored, zero)
        });
        let filled = Access::Buffer {
            buffer,
            dtype,
            work: work(dtype),
            shape,
            layout: Layout::Plain,
            axes: None,
        };
        if let Some(v) = self.node.input(1) {
            self.accesses.insert(v, filled);
        }
    }
}
