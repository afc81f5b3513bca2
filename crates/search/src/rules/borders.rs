//! Rule: tiles without borders run without tests.
//!
//! One loop over tiles is separated into its interior and its ends, if it has an
//! interior: the one along the lanes if vectors would be loaded or stored under a mask,
//! otherwise the innermost one along which an operand is guarded or the last tile is cut.
//! Each further loop would multiply the code.

use super::tile::Tile;
use super::{Plan, TileLoops};
use crate::draft::Draft;
use ir::LoopId;

const RULE: &str = "borders";

pub fn separate(d: &mut Draft, plan: &mut Plan, tile: &Tile, loops: &TileLoops) {
    // A loop that threads share has been fused.
    let stands = |l: &LoopId| d.program().path_to(ir::Node::Loop(*l)).is_some();
    let tested = |at: usize| plan.facts.is_guarded(at) || tile.cuts.contains(&at);
    let mut found = loops
        .outer
        .iter()
        .rev()
        .filter(|(at, l)| tested(*at) && stands(l));
    let lanes = found.clone().find(|(at, _)| *at == tile.lanes);
    let Some((_, chosen)) = lanes.or_else(|| found.next()).copied() else {
        plan.passed(RULE, "no loop of its own has borders or cuts a tile");
        return;
    };
    let name = d.program().loop_(chosen).name.clone();
    d.attempt_partition(chosen);
    plan.applied(
        RULE,
        format!("{name} in its interior and its ends, where it has one"),
    );
}
