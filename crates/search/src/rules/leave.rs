//! Rule: sums are in registers while terms are added, and leave them at the tile, where
//! the block behind the reduction takes them. Every loop of the tile is unrolled, there
//! as in the sum: an index that is not constant would keep the sums in memory.

use super::lanes::Lanes;
use super::{Plan, TileLoops, window};
use crate::draft::{Draft, REST, Written, given};
use ir::{BlockId, LoopId, Scope};

const RULE: &str = "registers";

/// Lets the reduction write registers; the block that takes the sums from there.
pub fn hold(d: &mut Draft, plan: &Plan) -> Written<BlockId> {
    let main = plan.main.block;
    match plan.out {
        Some(out) => {
            d.set_scope(d.output(main), Scope::Register)?;
            Ok(out.block)
        }
        None => d.keep_in_registers(main),
    }
}

/// The sums of a tile leave the registers in the loop `place`.
pub fn registers(
    d: &mut Draft,
    plan: &mut Plan,
    lanes: &Lanes,
    loops: &TileLoops,
    (result, place): (BlockId, LoopId),
) -> Written<()> {
    let main = plan.main.block;
    let own = d.reverse_compute_at(result, place)?;
    let along = plan.main.spatial.iter().position(|l| l.id == lanes.axis);
    let along = along.filter(|at| *at < own.len());
    let along = along.ok_or_else(|| d.missing("the result has no axis for the lanes".into()))?;
    let [vectors, lane] = d.split(own[along], [REST, given(lanes.width)])?;
    let rows = own.iter().enumerate().filter(|(at, _)| *at != along);
    let rows: Vec<LoopId> = rows.map(|(_, l)| *l).collect();
    if along + 1 < own.len() {
        d.reorder(&[&rows[..], &[vectors, lane]].concat())?;
    }
    match d.program().block(result).is_reduction() {
        // The lanes of one result: lowering combines them.
        true => d.unroll(lane)?,
        false => d.vectorize(lane)?,
    }
    for l in [vectors].into_iter().chain(rows.into_iter().rev()) {
        d.unroll(l)?;
    }
    d.vectorize(loops.lane)?;
    for l in loops.inner.iter().rev() {
        d.unroll(*l)?;
    }
    if let Some(first) = loops.terms.first() {
        d.decompose_reduction(main, *first)?;
    }
    if window::whole_terms(&plan.facts).is_some() {
        for l in loops.terms.iter().rev() {
            d.unroll(*l)?;
        }
    }
    let name = d.program().block(result).name.clone();
    plan.applied(RULE, format!("sums leave them in `{name}`"));
    Ok(())
}
