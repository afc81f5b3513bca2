//! Images in blocks of channels whose channels change their places: shuffles, slices and
//! concatenations that do not end with a block.
//!
//! Which elements a vector of channels takes is known only for each block of channels. So
//! the loop over these is unrolled: code generation then makes each vector of a few loads
//! and shuffles with constant masks. Rows of pixels are outside, pixels inside.

use super::Templates;
use crate::draft::{Draft, Written};
use crate::nests::Nest;
use ir::names::image;
use ir::{CpuTarget, Expr, Program};

/// Blocks of channels that are unrolled, at most.
const MOST_BLOCKS: i64 = 64;

/// The sketch of a program of one block that changes places of channels; none for others.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let [nest] = all else {
        return;
    };
    let (Some(blocks), Some(lane)) = (nest.spatial.get(1), nest.spatial.last()) else {
        return;
    };
    let in_blocks = blocks.is(image::CHANNEL_BLOCK) && lane.is(image::CHANNEL_LANE);
    let few = blocks.extent <= MOST_BLOCKS;
    if in_blocks && few && nest.reduce.is_empty() && changes_lanes(program, nest) {
        found.write(Draft::new("channels", program), |d| write(d, nest, target));
    }
}

/// Whether what is loaded lies along the lane, but not at the same lane. An operand along
/// pixels, such as a plain image, is transposed instead.
fn changes_lanes(program: &Program, nest: &Nest) -> bool {
    let block = program.block(nest.block);
    let lane = nest.spatial.last().map(|l| &l.axis);
    let mut iters = block.iters.iter();
    let Some(lane) = iters.find(|i| Some(&program.var(i.var).name) == lane) else {
        return false;
    };
    let moves = |e: &Expr| e.uses_var(lane.var) && e.as_var() != Some(lane.var);
    let along = |indices: &[Expr]| indices.last().is_some_and(|e| e.uses_var(lane.var));
    let loads = block.loads();
    let mut indices = loads.iter().map(|(_, indices)| indices);
    indices.any(|all| along(all) && all.iter().any(moves))
}

fn write(d: &mut Draft, nest: &Nest, target: &CpuTarget) -> Written<()> {
    let all: Vec<_> = nest.spatial.iter().map(|l| l.id).collect();
    let [batch, blocks, rows @ .., pixels, lane] = &all[..] else {
        return Err(d.missing("an image has pixels".into()));
    };
    let shared = [&[*batch], rows].concat();
    d.reorder(&[&shared[..], &[*blocks, *pixels, *lane]].concat())?;
    d.parallel(&shared, target.threads)?;
    d.run_parallel()?;
    d.vectorize_if_legal(*lane);
    d.unroll(*blocks)
}
