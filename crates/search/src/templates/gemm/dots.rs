//! Products with one column: a sum along each row, vectors over its terms.
//!
//! Each row has a vector of partial sums, added up at the end; as many rows
//! together as hide the latency of a multiply-add read the right operand once.

use super::Scheme;
use crate::draft::Draft;
use ir::{BinaryOp, Block, ExprKind, Program};

/// Rows of a tile by default: enough multiply-adds in flight, and rows that
/// lie a page apart still fit one set of the first-level cache.
const ROWS: i64 = 8;

/// Whether the left operand of `main` can be read in vectors along `k`, of
/// which there are whole ones.
pub fn has_contiguous_rows(program: &Program, main: &Block, k: i64, lanes: i64) -> bool {
    let ExprKind::Binary(BinaryOp::Mul, left, _) = main.writes[0].value.kind() else {
        return false;
    };
    let ExprKind::Load(_, indices) = left.kind() else {
        return false;
    };
    let last = indices.last().and_then(|i| i.as_var());
    let along = last.is_some_and(|v| program.var(v).name == "k");
    along && k % lanes == 0
}

impl Scheme<'_> {
    pub fn write_dots(&self, d: &mut Draft, m: &str) {
        let (s, tiles) = (self.shape, &self.tiles);
        let (k, lanes) = (&s.k_loop, tiles.lanes);
        let rows = d.choose("rows", &tiles.rows, ROWS);
        d.line(format!("split {m} [_, ${rows}]"));
        d.line(format!("split {k} [_, {lanes}]"));
        let (tile, row) = (format!("{m}.0"), format!("{m}.1"));
        let (k0, lane) = (format!("{k}.0"), format!("{k}.1"));
        let mut outer: Vec<String> = s.batch.iter().map(|b| b.0.clone()).collect();
        outer.push(tile.clone());
        let inner = [&k0, &s.n_loop, &row, &lane].map(Clone::clone);
        d.line(format!(
            "reorder {}",
            [&outer[..], &inner].concat().join(" ")
        ));
        // Partial sums take the loops over; what adds them up has its own.
        d.line(format!("rfactor {lane}"));
        let place = d.parallel(&outer, self.target.threads).unwrap_or(tile);
        d.line(format!("reverse_compute_at main {place}"));
        d.line("set_scope main.rf register");
        d.line(format!("vectorize {lane}"));
        d.line(format!("unroll {row}"));
        d.line(format!("decompose_reduction main.rf {k0}"));
        let result = self.keep_in_registers(d);
        d.line(format!("reverse_compute_at {result} {place}"));
        d.line("decompose_reduction main main.part");
        d.line("unroll main.part");
        d.line("unroll main.m");
        d.line(format!("unroll {result}.m"));
        d.run_parallel();
        d.line(format!("try partition {place}"));
    }
}
