//! Rule: threads share the loops over tiles, outermost first, as many of them as give
//! every thread several tiles; the innermost one stays a loop of its own where it can.

use super::{Plan, TileLoops};
use crate::draft::{Draft, Written};
use ir::LoopId;

const RULE: &str = "threads";
/// Parts for each thread with which sharing further loops gains nothing: a thread with one
/// part more than others works a sixteenth longer.
const PARTS: i64 = 16;
/// Fewer parts for each thread are enough where all threads get as many: threads that other
/// work holds up leave theirs to others. Chosen by hand.
const EVEN_PARTS: i64 = 4;

/// The outermost loops over tiles as one, if threads share them.
#[derive(Default)]
pub struct Shared {
    /// How many of the loops.
    pub count: usize,
    pub fused: Option<LoopId>,
}

impl Shared {
    /// The loop that runs the iterations of one of the loops over tiles.
    pub fn loop_of(&self, l: LoopId, outer: &[LoopId]) -> LoopId {
        let is_shared = outer[..self.count].contains(&l);
        self.fused.filter(|_| is_shared).unwrap_or(l)
    }
}

/// The loop in which a tile's results leave the registers, and what is shared.
pub fn share(d: &mut Draft, plan: &mut Plan, loops: &TileLoops) -> Written<(LoopId, Shared)> {
    let outer = loops.outer();
    let Some(innermost) = outer.last().copied() else {
        return Err(d.missing("no loop is outside the tile".into()));
    };
    let threads = plan.target.threads;
    if threads <= 1 {
        plan.passed(RULE, "one thread");
        return Ok((innermost, Shared::default()));
    }
    let (mut parts, workers) = (1, i64::from(threads));
    let enough = |l: &LoopId| {
        parts *= d.program().loop_(*l).extent;
        let even = parts % workers == 0 && parts >= EVEN_PARTS * workers;
        even || parts >= PARTS * workers
    };
    let found = outer.iter().position(enough);
    let shared = found.map_or(outer.len(), |at| at + 1);
    let names = outer[..shared]
        .iter()
        .map(|l| d.program().loop_(*l).name.clone());
    let names: Vec<String> = names.collect();
    plan.applied(RULE, format!("share {}", names.join(" ")));
    let fused = d.parallel(&outer[..shared], threads)?;
    let place = match fused {
        Some(f) if shared == outer.len() => f,
        _ => innermost,
    };
    let count = shared;
    Ok((place, Shared { count, fused }))
}
