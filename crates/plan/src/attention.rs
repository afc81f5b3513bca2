//! Which products, softmaxes and products become one kernel: attention.
//!
//! Owns the pattern (a product, what follows it element by element, a softmax over
//! its rows, and a product with these weights on the left) and the rule that says
//! where one kernel is cheaper than three. Promises that nothing else reads what the
//! kernel keeps to itself. Leaves the program to `compute`.

use crate::compute::work;
use crate::fold::past_reshape;
use crate::fuse::{Group, Scores};
use graph::ops::Op;
use graph::{Model, NodeId, Users, ValueId};
use ir::{CpuTarget, TileDot};
use std::collections::HashMap;
use tensor::DType;

/// The groups with attention as one group each where that pays.
pub(crate) fn fuse(model: &Model, groups: &[Group], target: &CpuTarget) -> Vec<Group> {
    let users = model.users();
    let by_last: HashMap<NodeId, usize> = (0..groups.len())
        .map(|at| (groups[at].last(), at))
        .collect();
    let mut fused: Vec<Option<Group>> = groups.iter().cloned().map(Some).collect();
    for (at, group) in groups.iter().enumerate() {
        let Some([scores, softmax]) = weights(model, &users, groups, &by_last, group) else {
            continue;
        };
        let in_tiles = tiled(model, [&groups[scores], group], target);
        if in_tiles.is_none() && !pays(model, &groups[scores], target) {
            continue;
        }
        if let Some(fused) = &mut fused[at] {
            let group = groups[scores].clone();
            fused.scores = Some(Box::new(Scores { group, in_tiles }));
        }
        fused[scores] = None;
        fused[softmax] = None;
    }
    fused.into_iter().flatten().collect()
}

/// Second-level caches that the scores of all heads fill before one kernel is faster than
/// three. On a 2-CPU AMD EPYC with 1 MiB a core, the scores of 12 heads of 256 rows (3.1 MB)
/// are faster in one on one and two threads; those of 197 rows (1.9 MB) on one thread only.
const CACHES: usize = 2;

/// Whether the scores of all heads leave the second-level cache between kernels.
fn pays(model: &Model, scores: &Group, target: &CpuTarget) -> bool {
    let result = &model[model[scores.last()].output()];
    let elements: usize = result.shape().iter().product();
    elements * result.dtype().size() > CACHES * target.l2_bytes as usize
}

/// Rows and terms of products of tiles, at least. Chosen by hand.
const FEWEST: [usize; 2] = [4, 16];

/// The weights of a row that are stored where both products are of bf16 and have tiles, whose
/// steps are the fewest that as few tiles hold.
fn tiled(model: &Model, products: [&Group; 2], target: &CpuTarget) -> Option<i64> {
    let dot = target.tile_dot?;
    let factors = products.map(|g| &model[g.anchor].inputs);
    let mut types = factors.into_iter().flatten().flatten();
    if !types.all(|v| model[*v].dtype() == DType::BF16) {
        return None;
    }
    let queries = model[factors[0][0]?].shape();
    let [.., rows, terms] = queries else {
        return None;
    };
    let is_large = *rows >= FEWEST[0] && *terms >= FEWEST[1] && terms % 2 == 0;
    let weights = model[factors[1][0]?].shape().last()?;
    (is_large && *weights >= FEWEST[1]).then(|| filled(*weights as i64, dot))
}

/// The terms of so many tiles of equal steps as `n` terms need.
fn filled(n: i64, dot: TileDot) -> i64 {
    const TERMS: i64 = 2;
    let (steps, most) = ((n + TERMS - 1) / TERMS, dot.rows());
    let tiles = (steps + most - 1) / most;
    (steps + tiles - 1) / tiles * tiles * TERMS
}

/// The groups that make the left operand of a group's product as attention does:
/// the scores, and their softmax.
fn weights(
    model: &Model,
    users: &Users,
    groups: &[Group],
    by_last: &HashMap<NodeId, usize>,
    group: &Group,
) -> Option<[usize; 2]> {
    let left = product(model, group)?;
    let softmax = *by_last.get(&source(model, users, left)?)?;
    let node = &model[groups[softmax].anchor];
    let Op::Softmax(s) = node.op else {
        return None;
    };
    let x = node.input(0)?;
    // Weights are kept as they are; those of tiles are rounded anyway.
    let is_rounded = |n: &NodeId| matches!(model[*n].op, Op::Cast(DType::F16 | DType::BF16));
    let is_whole = groups[softmax].chain.iter().all(is_rounded);
    if !is_whole || s.axis + 1 != model[x].ty().rank() {
        return None;
    }
    let scores = *by_last.get(&source(model, users, x)?)?;
    product(model, &groups[scores])?;
    let (made, read) = (model[groups[scores].last()].output(), left);
    let (made, read) = (model[made].shape(), model[read].shape());
    let same = |at: usize| made[made.len() - at] == read[read.len() - at];
    let along: Vec<_> = (0..read.len()).map(Some).collect();
    let whole = same(1) && same(2) && past_reshape(made, read, &along).is_some();
    // Without broadcasting, every row of weights is used once.
    let result = model[model[group.anchor].output()].shape();
    let once = result[..result.len() - 1] == read[..read.len() - 1];
    (whole && once && model[x].shape().last() == made.last()).then_some([scores, softmax])
}

/// The left operand of a group's product of matrices that are computed in f32.
fn product(model: &Model, group: &Group) -> Option<ValueId> {
    let node = &model[group.anchor];
    if node.op != Op::MatMul {
        return None;
    }
    let in_f32 = |v: ValueId| work(model[v].dtype()) == DType::F32;
    let matrix = |v: &ValueId| in_f32(*v) && model[*v].ty().rank() > 1;
    let fits = node.inputs.iter().flatten().all(matrix);
    let result = model[group.last()].output();
    let fits = fits && in_f32(result) && !model[result].ty().is_empty();
    fits.then(|| node.input(0)).flatten()
}

/// The node that makes a value, up to its shape, if nothing else reads the value.
fn source(model: &Model, users: &Users, v: ValueId) -> Option<NodeId> {
    if users.is_output(v) || users.of(v).len() != 1 {
        return None;
    }
    let (producer, _) = model.producer(v)?;
    match (&model[producer].op, model[producer].input(0)) {
        (Op::Reshape(_), Some(x)) => source(model, users, x),
        _ => Some(producer),
    }
}
