//! Rule: the operand that is read through windows is gathered into a matrix of rows.
//!
//! What is left is a matrix product for all other rules. *im2row* gathers the whole operand
//! before the loops; *ConvGEMM* gathers the rows of a tile of results, for all columns. Borders
//! are elements of the matrix. Templates do the same for weights that are constants; these
//! sketches are for the convolutions of a training step, which has none.

use super::threads::Shared;
use super::{Plan, TileLoops, surround};
use crate::analysis::{Class, Reduction};
use crate::draft::{Draft, Written};
use ir::{BlockId, Role, Scope};

const RULE: &str = "gather";

/// Where the rows are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// All before the loops.
    Whole,
    /// Those of a tile in its loop.
    Tile,
}

impl Gather {
    pub const ALL: [Gather; 2] = [Gather::Tile, Gather::Whole];

    /// What the names of sketches begin with: the names that the literature has.
    pub fn word(self) -> &'static str {
        match self {
            Gather::Whole => "im2row",
            Gather::Tile => "convgemm",
        }
    }
}

/// The position of the operand to gather: the only one that is read through windows, if
/// several columns of results share its rows, and no operand is a constant.
pub fn operand(facts: &Reduction) -> Option<usize> {
    let constant = facts.operands.iter().any(|o| o.role == Role::Constant);
    let windows = facts.operands.iter().enumerate();
    let mut windows = windows.filter(|(_, o)| surround::is_window(facts, o));
    let (at, o) = windows.next()?;
    let reused = |axis: usize| {
        let a = &facts.axes[axis];
        a.class == Class::Reused && a.extent > 1 && !o.strides[axis].is_used()
    };
    let is_product = facts.operands.len() == 2 && facts.spatial().any(reused);
    (is_product && !constant && windows.next().is_none()).then_some(at)
}

/// Lets the reduction read the matrix; the block that gathers, still before all loops.
pub fn gather(d: &mut Draft, plan: &mut Plan) -> Written<BlockId> {
    let Some(at) = operand(&plan.facts) else {
        return Err(d.missing("no operand has windows to gather".into()));
    };
    let (buffer, name) = (
        plan.facts.operands[at].buffer,
        &plan.facts.operands[at].name,
    );
    plan.notes.push(super::Note {
        rule: RULE,
        applied: true,
        what: name.clone(),
    });
    let gatherer = d.reindex(plan.main.block, buffer)?;
    plan.look_again(d);
    Ok(gatherer)
}

/// Places the block that gathers, and gives it vectors and threads.
pub fn schedule(
    d: &mut Draft,
    plan: &Plan,
    loops: &TileLoops,
    shared: &Shared,
    (gather, gatherer): (Gather, BlockId),
) -> Written<()> {
    let matrix = d.output(gatherer);
    let rows = plan.facts.operands.iter().find(|o| o.buffer == matrix);
    let rows = rows.ok_or_else(|| d.missing("nothing reads the matrix".into()))?;
    let moves = |(at, _): &&(usize, ir::LoopId)| rows.strides[*at].is_used();
    let place = loops.outer.iter().rfind(moves).map(|(_, l)| *l);
    match (gather, place) {
        (Gather::Tile, Some(l)) => {
            d.compute_at(gatherer, shared.loop_of(l, &loops.outer()))?;
            d.set_scope(matrix, Scope::Local)?;
        }
        _ => {
            let own = schedule::own_loops(d.program(), gatherer);
            let outside = own.split_last().map_or(&[][..], |(_, outside)| outside);
            d.share_copy(outside, plan.target.threads)?;
        }
    }
    let own = schedule::own_loops(d.program(), gatherer);
    if let Some(last) = own.last() {
        d.vectorize_if_legal(*last);
    }
    Ok(())
}
