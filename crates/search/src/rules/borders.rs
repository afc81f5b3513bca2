//! Rule: tiles without borders run without tests.
//!
//! A loop over tiles is separated into its interior and its ends, if it has an interior:
//! the one along the lanes, where vectors would be loaded or stored under a mask;
//! otherwise the innermost one along which an operand is guarded; and the innermost one
//! along which the last tile is cut, where each row of the tile would be tested. Where
//! windows are much longer than the results along an axis, the loops over the terms of a window
//! are separated instead of those over tiles. Each further loop would multiply the code again. Loops that threads share are one loop: it is
//! separated once for each of the chosen ones among them.

use super::threads::Shared;
use super::tile::Tile;
use super::{Plan, TileLoops, cost};
use crate::analysis::Class;
use crate::draft::Draft;
use ir::LoopId;

const RULE: &str = "borders";

pub fn separate(
    d: &mut Draft,
    plan: &mut Plan,
    tile: &Tile,
    (loops, shared): (&TileLoops, &Shared),
) {
    let one = plan.facts.operands.len() == 1;
    // Where much is computed, rows along an outer axis are tested outside the terms: no
    // other loop stands in for one that is whole.
    let separable = |l: &LoopId| !one || d.program().loop_(*l).extent > 1;
    let standing: Vec<(usize, LoopId)> = loops
        .outer
        .iter()
        .rev()
        .copied()
        .filter(|(_, l)| separable(l))
        .collect();
    let first =
        |test: &dyn Fn(usize) -> bool| standing.iter().find(|(at, _)| test(*at)).map(|(_, l)| *l);
    let cuts = |at: usize| tile.cuts.contains(&at);
    let guarded = |at: usize| plan.facts.is_guarded(at);
    let lanes = first(&|at| at == tile.lanes && (guarded(at) || cuts(at)));
    let windows = long_windows(plan, loops);
    let mut chosen: Vec<LoopId> = match one {
        // Tests cost as much as the little that is computed.
        true => lanes
            .into_iter()
            .chain(first(&|at| at != tile.lanes && guarded(at)))
            .collect(),
        false if !windows.is_empty() => lanes.into_iter().collect(),
        false => lanes.or_else(|| first(&guarded)).into_iter().collect(),
    };
    chosen.extend(first(&cuts).filter(|l| !chosen.contains(l)));
    if chosen.is_empty() && windows.is_empty() {
        plan.passed(RULE, "no loop of its own has borders or cuts a tile");
        return;
    }
    let names: Vec<String> = chosen
        .iter()
        .chain(&windows)
        .map(|l| d.program().loop_(*l).name.clone())
        .collect();
    // Inside first: the copies of an outer loop then have the parts of the inner one.
    for l in windows.iter().rev() {
        d.attempt_partition(*l);
    }
    for (_, l) in standing.iter().filter(|(_, l)| chosen.contains(l)) {
        d.attempt_partition(shared.loop_of(*l, &loops.outer()));
    }
    plan.applied(
        RULE,
        format!(
            "{}: interior and ends, where there is an interior",
            names.join(", ")
        ),
    );
}

/// The loops over terms of windows that are much longer than the results, outermost first.
fn long_windows(plan: &Plan, loops: &TileLoops) -> Vec<LoopId> {
    let facts = &plan.facts;
    let long = cost::all_long_windows(facts);
    let axes = facts.axes.iter().enumerate();
    let terms = axes.filter(|(_, a)| a.class == Class::Reduction);
    let found = terms
        .zip(&loops.terms)
        .filter(|((t, _), _)| long.contains(t));
    found.map(|(_, l)| *l).collect()
}
