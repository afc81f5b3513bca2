//! Products with one column: a sum along each row, vectors over its terms.
//!
//! Each row has a vector of partial sums, added up at the end; as many rows
//! together as hide the latency of a multiply-add read the right operand once.

use super::Tiling;
use crate::draft::PART;
use crate::draft::{Draft, REST, Written, given};
use crate::nests::{AxisLoop, ids};
use crate::templates::registers::IN_FLIGHT;
use ir::names::product;
use ir::{BinaryOp, Block, ExprKind, Program, Scope};

/// Rows of a tile by default: enough multiply-adds in flight, and rows that
/// lie a page apart still fit one set of the first-level cache.
const ROWS: i64 = IN_FLIGHT;

/// Whether the left operand of `main` can be read in vectors along `k`, of
/// which there are whole ones.
pub fn has_contiguous_rows(program: &Program, main: &Block, k: i64, lanes: i64) -> bool {
    let ExprKind::Binary(BinaryOp::Mul, left, _) = main.writes[0].value.kind() else {
        return false;
    };
    let element = match left.kind() {
        ExprKind::Cast(_, element) => element,
        _ => left,
    };
    let ExprKind::Load(_, indices) = element.kind() else {
        return false;
    };
    let last = indices.last().and_then(|i| i.as_var());
    let along = last.is_some_and(|v| program.var(v).name == product::TERM.as_str());
    along && k % lanes == 0
}

impl Tiling<'_> {
    pub fn write_dots(&self, d: &mut Draft, m: &AxisLoop) -> Written<()> {
        let (s, tiles, main) = (self.shape, &self.tiles, self.main.block);
        let rows = d.choose("rows", &tiles.rows, ROWS);
        let [tile, row] = d.split(m.id, [REST, rows.value().into()])?;
        let [k0, lane] = d.split(s.terms.id, [REST, given(tiles.lanes)])?;
        let mut outer = ids(&s.batch);
        outer.push(tile);
        let inner = [k0, s.columns.id, row, lane];
        d.reorder(&[&outer[..], &inner].concat())?;
        // Partial sums take the loops over; what adds them up has its own.
        let partial = d.rfactor(lane)?;
        let place = d.parallel(&outer, self.target.threads)?.unwrap_or(tile);
        d.reverse_compute_at(main, place)?;
        d.set_scope(d.output(partial), Scope::Register)?;
        d.vectorize(lane)?;
        d.unroll(row)?;
        d.decompose_reduction(partial, k0)?;
        let result = self.keep_in_registers(d)?;
        d.reverse_compute_at(result, place)?;
        let [part, m] = d.along(main, [PART, product::ROW.as_str()])?;
        d.decompose_reduction(main, part)?;
        d.unroll(part)?;
        d.unroll(m)?;
        let [m] = d.along(result, [product::ROW.as_str()])?;
        d.unroll(m)?;
        d.run_parallel()?;
        d.attempt_partition(place);
        Ok(())
    }
}
