//! pad{loop, multiple}: let a block compute more of an intermediate than is
//! read, so that its tiles are whole.
//!
//! The loop is one that no step has changed yet: its variable is an axis of the
//! one block under it and a dimension of what that block writes. Loop, axis and
//! dimension grow to the next multiple. What the block loads along the axis is
//! 0 in the padding, which a packed operand has in memory (see `pack`). Of an
//! intermediate that is as large already it loads what is there. What it computes
//! in the padding nobody reads.

use crate::illegal::Illegal;
use crate::legality::serial;
use crate::steps::loop_named;
use ir::{BlockId, BufferId, Expr, ExprKind, IterKind, LoopId, Node, Program, Role, VarId};

pub(crate) const STEP: &str = "pad";

pub(crate) fn apply(program: &mut Program, target: &str, multiple: i64) -> Result<(), Illegal> {
    let l = loop_named(program, STEP, target)?;
    let found = check(program, l, multiple).map_err(|why| Illegal::new(STEP, target, why))?;
    let extent = program.loop_(l).extent;
    let padded = (extent + multiple - 1) / multiple * multiple;
    if padded > extent {
        grow(program, l, &found, padded);
    }
    Ok(())
}

/// What grows with a loop.
struct Padded {
    block: BlockId,
    axis: VarId,
    /// Buffers that the block writes, and their dimension of the axis.
    outputs: Vec<(BufferId, usize)>,
}

fn check(p: &Program, l: LoopId, multiple: i64) -> Result<Padded, String> {
    if multiple < 1 {
        return Err(format!("a multiple of {multiple} is less than 1"));
    }
    serial(p, l)?;
    let [b] = p.blocks_under(&[Node::Loop(l)])[..] else {
        return Err("there are several blocks under it".into());
    };
    let (block, var) = (p.block(b), p.loop_(l).var);
    let name = &block.name;
    if block.tensor.is_some() {
        return Err(format!("`{name}` is tensorized"));
    }
    if block.reduction.as_ref().is_some_and(|r| !r.init) {
        return Err(format!("another block initialises what `{name}` sums up"));
    }
    let mut users = block.iters.iter().filter(|i| i.binding.uses_var(var));
    let whole = match (users.next(), users.next()) {
        (Some(i), None) => Some(i),
        _ => None,
    };
    let predicated = block.predicate.as_ref().is_some_and(|e| e.uses_var(var));
    let whole = whole.filter(|i| {
        let all = i.binding.as_var() == Some(var) && i.extent == p.loop_(l).extent;
        all && i.kind == IterKind::Spatial && !predicated
    });
    let axis = whole
        .ok_or_else(|| format!("it is not a whole axis of `{name}`"))?
        .var;
    let mut outputs = Vec::new();
    for w in &block.writes {
        let dim = dimension(p, b, w.buffer, &w.indices, axis)?;
        outputs.push((w.buffer, dim));
    }
    Ok(Padded {
        block: b,
        axis,
        outputs,
    })
}

/// The dimension of an output that an axis runs along.
fn dimension(
    p: &Program,
    b: BlockId,
    output: BufferId,
    indices: &[Expr],
    axis: VarId,
) -> Result<usize, String> {
    let (block, buffer) = (p.block(b), p.buffer(output));
    let name = &buffer.name;
    if buffer.role != Role::Intermediate {
        return Err(format!(
            "`{name}` is no intermediate: its size is the task's"
        ));
    }
    if p.producers(output) != [b] || block.reads().contains(&output) {
        return Err(format!("other statements write or read `{name}` with it"));
    }
    let mut along = (0..indices.len()).filter(|d| indices[*d].uses_var(axis));
    match (along.next(), along.next()) {
        (Some(d), None) if indices[d].as_var() == Some(axis) => Ok(d),
        _ => Err(format!("it is not a dimension of `{name}`")),
    }
}

fn grow(p: &mut Program, l: LoopId, found: &Padded, padded: i64) {
    let extent = p.loop_(l).extent;
    p.loop_mut(l).extent = padded;
    for (buffer, dim) in &found.outputs {
        p.buffer_mut(*buffer).shape[*dim] += padded - extent;
    }
    let axis = found.axis;
    let zeros: Vec<(BufferId, Expr)> = p
        .block(found.block)
        .reads()
        .into_iter()
        .map(|b| (b, Expr::constant(0.0, p.buffer(b).dtype)))
        .collect();
    let has_padding = |b: BufferId, indices: &[Expr]| {
        let b = p.buffer(b);
        let mut along = indices
            .iter()
            .zip(&b.shape)
            .filter(|(i, _)| i.uses_var(axis));
        let held = |(i, n): (&Expr, &i64)| i.as_var() == Some(axis) && *n >= padded;
        b.role == Role::Intermediate && along.all(held)
    };
    let held: Vec<(BufferId, Vec<Expr>)> = p
        .block(found.block)
        .loads()
        .into_iter()
        .filter(|(b, indices)| has_padding(*b, indices))
        .collect();
    let block = p.block_mut(found.block);
    for i in block.iters.iter_mut().filter(|i| i.var == axis) {
        i.extent = padded;
    }
    let inside = Expr::var(axis).lt(extent);
    let guarded = |e: &Expr| {
        let ExprKind::Load(b, indices) = e.kind() else {
            return None;
        };
        let zero = &zeros.iter().find(|(z, _)| z == b)?.1;
        let along = indices.iter().any(|i| i.uses_var(axis));
        let is_held = |(held, at): &(BufferId, Vec<Expr>)| held == b && at == indices;
        let guard = along && !held.iter().any(is_held);
        guard.then(|| Expr::select(inside.clone(), e, zero))
    };
    // An index that is loaded is guarded with its load.
    block.map_statement(|e| e.rewrite(&mut |e| guarded(e)));
}
