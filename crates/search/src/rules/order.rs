//! Rule: which loops over tiles are outside others.
//!
//! Operands that are read in vectors along the lanes make panels. Either all rows pass
//! while a panel stays in cache, or all panels pass while a row's data stays. Batch axes
//! are outside both; those whose iterations have unequally many terms are between the two,
//! so that threads that share outer loops get some of every iteration. Terms are inside: the
//! results of a tile are complete when its terms are. They are in the program's order, except
//! where a tile would wait for lines from memory.

use super::lanes::Lanes;
use super::{Packed, Plan, TileLoops};
use crate::analysis::{Access, Class, Reduction};
use crate::draft::{Draft, Written};
use ir::LoopId;

const RULE: &str = "order";
/// Iterations to fetch ahead; 0 fetches nothing.
const DISTANCES: [i64; 4] = [0, 16, 64, 256];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Panels outside rows.
    Panels,
    /// Rows outside panels.
    Rows,
}

impl Order {
    pub const ALL: [Order; 2] = [Order::Panels, Order::Rows];

    pub fn word(self) -> &'static str {
        match self {
            Order::Panels => "panels",
            Order::Rows => "rows",
        }
    }

    /// Where a loop over tiles stands: batch axes, then the outer ones of the two kinds.
    pub fn rank(self, facts: &Reduction, lanes: &Lanes, at: usize) -> u8 {
        let is_vector = |o: &&Access| o.strides[lanes.at].is_used();
        let mut vectors = facts.operands.iter().filter(is_vector);
        match (facts.axes[at].class, self) {
            (Class::Batch, _) if facts.is_uneven(at) => 2,
            (Class::Batch, _) => 0,
            (_, order) => {
                let of_panel = at == lanes.at || vectors.all(|o| o.strides[at].is_used());
                1 + 2 * u8::from(of_panel != (order == Order::Panels))
            }
        }
    }
}

pub fn reorder(d: &mut Draft, plan: &mut Plan, loops: &TileLoops) -> Written<()> {
    let all: Vec<LoopId> = [
        &loops.outer()[..],
        &loops.terms,
        &loops.inner,
        &[loops.lane],
    ]
    .concat();
    d.reorder(&all)?;
    let names = |loops: &[LoopId]| {
        let names = loops.iter().map(|l| d.program().loop_(*l).name.clone());
        names.collect::<Vec<_>>().join(" ")
    };
    let what = format!(
        "{} | {} | {} {}",
        names(&loops.outer()),
        names(&loops.terms),
        names(&loops.inner),
        names(&[loops.lane])
    );
    plan.applied(RULE, what);
    Ok(())
}

/// Packed constants come from memory once a call: the terms' innermost loop may fetch
/// them ahead.
pub fn prefetch(
    d: &mut Draft,
    plan: &mut Plan,
    packed: &[Packed],
    loops: &TileLoops,
) -> Written<()> {
    let far = |packed: &&Packed| {
        let b = d.program().buffer(packed.buffer);
        let bytes: i64 = b.shape.iter().product::<i64>() * b.dtype.size() as i64;
        bytes > plan.target.l2_bytes as i64
    };
    let (Some(p), Some(terms)) = (packed.iter().find(far), loops.terms.last()) else {
        plan.passed(
            "prefetch",
            "no packed constant is larger than the second-level cache",
        );
        return Ok(());
    };
    let distance = d.choose("prefetch", &DISTANCES, 0);
    d.prefetch_if_legal(p.buffer, *terms, distance.value());
    plan.applied("prefetch", d.program().buffer(p.buffer).name.clone());
    Ok(())
}
