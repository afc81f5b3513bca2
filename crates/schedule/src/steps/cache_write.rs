//! cache_write{block, buffer, scope}: let a block write a buffer of its own,
//! copied to the real one afterwards.
//!
//! The block writes `{buffer}.write`; the block `{block}.out`, with the same
//! axes, copies it. It follows the block's nest at the root, or in the deepest
//! loop that the block shares with one that reads the buffer, and is moved
//! inwards by `reverse_compute_at`. Blocks that read the buffer go on reading it.

use crate::illegal::Illegal;
use crate::legality::settled;
use crate::nest::{
    before_consumers, change, child_with, insert_after, iteration_tests, like, live_name,
    map_block, path_through, renest,
};
use crate::steps::block_named;
use crate::written::written_box;
use ir::region::{RegionDim, bound, program_ranges, span};
use ir::{BlockId, Expr, LoopId, Node, Program, Scope, VarId};

pub(crate) const STEP: &str = "cache_write";

/// `index` counts the buffers that the block writes.
/// Gives the block that copies.
pub(crate) fn apply(
    program: &mut Program,
    block: &str,
    index: usize,
    scope: Scope,
) -> Result<BlockId, Illegal> {
    let b = block_named(program, STEP, block)?;
    let refuse = |why| Illegal::new(STEP, block, why);
    let (parent, after) = place(program, b, index).map_err(refuse)?;
    let write = program.block(b).writes[index].clone();
    let spatial: Vec<_> = program.block(b).spatial_iters().cloned().collect();
    let spans = spans(program, b, parent);
    let at = parent.map_or(vec![], |l| path_through(program, l));
    let tests = iteration_tests(program, &[b], &at);
    if parent.is_some() {
        written_box(program, b, write.buffer, &at, &program_ranges(program)).map_err(refuse)?;
    }
    let buffer = program.buffer(write.buffer).name.clone();
    let axes: Vec<(String, i64)> = spatial
        .iter()
        .map(|i| (program.var(i.var).name.clone(), i.extent))
        .collect();
    let cache = live_name(program, &format!("{buffer}.write"));
    let name = live_name(program, &format!("{block}.out"));
    change(program, |next| {
        let cache = like(next, write.buffer, cache, scope);
        let copier = map_block(next, &name, &axes, write.buffer, |at| {
            let axis = |v: VarId| spatial.iter().position(|i| i.var == v);
            let put = |v: VarId| axis(v).map(|i| at[i].clone());
            let indices: Vec<Expr> = write.indices.iter().map(|e| e.substitute(&put)).collect();
            (indices.clone(), Expr::load(cache, indices))
        });
        next.block_mut(b).writes[index].buffer = cache;
        let nest = renest(next, copier, &spans, &tests);
        insert_after(next, parent, after, nest);
        Ok(copier)
    })
    .map_err(refuse)
}

fn place(p: &Program, b: BlockId, index: usize) -> Result<(Option<LoopId>, Node), String> {
    let block = p.block(b);
    let Some(write) = block.writes.get(index) else {
        let n = block.writes.len();
        return Err(format!("it writes {n} buffers: there is no output {index}"));
    };
    let buffer = p.buffer(write.buffer);
    if p.producers(write.buffer) != [b] {
        return Err(format!("`{}` has other producers", buffer.name));
    }
    if block.tensor.is_some() {
        return Err("it is tensorized".into());
    }
    settled(p, b)?;
    let reads_itself = block.reads().contains(&write.buffer);
    let loaded = write
        .indices
        .iter()
        .any(|e| e.any(&|e| matches!(e.kind(), ir::ExprKind::Load(..))));
    if reads_itself || loaded {
        return Err("its write depends on loaded indices or on its own output".into());
    }
    let home = before_consumers(p, b, write.buffer);
    let parent = home.last().copied();
    let (_, after) = child_with(p, parent, Node::Block(b)).expect("under its own ancestor");
    Ok((parent, after))
}

/// Per spatial variable, the values it takes in one iteration of `parent`.
fn spans(p: &Program, b: BlockId, parent: Option<LoopId>) -> Vec<RegionDim> {
    let block = p.block(b);
    let r = program_ranges(p);
    let free: Vec<VarId> = parent
        .map_or(vec![], |l| path_through(p, l))
        .iter()
        .map(|l| p.loop_(*l).var)
        .collect();
    let moves = |v: VarId| !free.contains(&v);
    block
        .spatial_iters()
        .map(|i| {
            span(&bound(block, &Expr::var(i.var)), &moves, &r)
                .unwrap_or_else(|| crate::nest::whole_dim(i.extent))
        })
        .collect()
}
