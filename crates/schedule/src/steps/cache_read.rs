//! cache_read{block, buffer, scope}: let a block read a copy of a buffer.
//!
//! The copy is `{buffer}.read`, made by a block of that name whose loops are
//! `ax0`, `ax1`, ...: the whole buffer at the root or, if a loop encloses both
//! the producers and the block, what one iteration of that loop produces.

use crate::illegal::Illegal;
use crate::nest::{
    change, child_with, common, insert_before, is_padded, iteration_tests, like, live_name,
    map_block, numbered_axes, path, path_through, redirect_loads, renest, whole_dim,
};
use crate::steps::{block_named, buffer_named};
use crate::written::completed;
use ir::region::{RegionDim, program_ranges};
use ir::{BlockId, BufferId, Expr, LoopId, Node, Program, Scope};

pub(crate) const STEP: &str = "cache_read";

/// What names of copies, and of the blocks that make them, end in.
pub const SUFFIX_READ: &str = ".read";

/// Gives the block that copies.
pub(crate) fn apply(
    program: &mut Program,
    block: &str,
    buffer: &str,
    scope: Scope,
) -> Result<BlockId, Illegal> {
    let b = block_named(program, STEP, block)?;
    let source = buffer_named(program, STEP, buffer)?;
    let refuse = |why| Illegal::new(STEP, buffer, why);
    let (parent, before) = place(program, b, source).map_err(refuse)?;
    let spans = spans(program, source, parent).map_err(refuse)?;
    let at = parent.map_or(vec![], |l| path_through(program, l));
    let tests = iteration_tests(program, &program.producers(source), &at);
    let name = live_name(program, &format!("{buffer}{SUFFIX_READ}"));
    let axes = numbered_axes(&program.buffer(source).shape);
    change(program, |next| {
        let copy = like(next, source, name.clone(), scope);
        let copier = map_block(next, &name, &axes, copy, |at| {
            (at.to_vec(), Expr::load(source, at.to_vec()))
        });
        redirect_loads(next, b, source, copy);
        let nest = renest(next, copier, &spans, &tests);
        insert_before(next, parent, before, nest);
        Ok(copier)
    })
    .map_err(refuse)
}

/// The deepest loop round the block and all producers (the root for an input),
/// and its child with the block.
fn place(p: &Program, b: BlockId, source: BufferId) -> Result<(Option<LoopId>, Node), String> {
    let block = p.block(b);
    if !block.reads().contains(&source) {
        return Err(format!("`{}` does not read it", block.name));
    }
    if block.tensor.is_some() {
        return Err(format!("`{}` is tensorized", block.name));
    }
    if is_padded(p, source) {
        return Err("it is packed with padding, which a copy would read".into());
    }
    let producers = p.producers(source);
    let home = match producers.is_empty() {
        true => vec![],
        false => producers
            .iter()
            .map(|q| path(p, Node::Block(*q)))
            .fold(path(p, Node::Block(b)), |a, q| common(&a, &q)),
    };
    let parent = home.last().copied();
    let child = |b| child_with(p, parent, Node::Block(b)).expect("under its own ancestor");
    let (at, before) = child(b);
    if producers.iter().any(|q| child(*q).0 >= at) {
        return Err(format!(
            "`{}` starts before the buffer is complete",
            block.name
        ));
    }
    Ok((parent, before))
}

/// What the producers complete in one iteration of `parent`: at least what the
/// block reads there.
fn spans(p: &Program, source: BufferId, parent: Option<LoopId>) -> Result<Vec<RegionDim>, String> {
    let Some(l) = parent else {
        let shape = &p.buffer(source).shape;
        return Ok(shape.iter().map(|n| whole_dim(*n)).collect());
    };
    completed(p, source, &path_through(p, l), &program_ranges(p))
}
