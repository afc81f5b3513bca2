//! Products with few rows whose right operand comes from memory and cannot be
//! laid out before: it is read row by row as it lies, and the sums stay in the
//! first-level cache.
//!
//! Panels of columns, which the other orders read, touch another page with each
//! row, and no prefetcher of the processor follows them there.

use super::Tiling;
use super::shape::Shape;
use crate::draft::{Draft, REST, Written, given};
use crate::nests::ids;
use ir::CpuTarget;

/// Most rows of the left operand: their sums share the first-level cache with
/// the streams. Chosen by hand; not measured apart.
const MOST_ROWS: i64 = 2;
/// Streams read side by side: rows of the right operand for one update of the sums.
/// Offers and default are chosen by hand; not measured apart.
const STREAMS: [i64; 5] = [2, 4, 8, 12, 16];
const DEFAULT_STREAMS: i64 = 8;
/// Vectors of sums in one unrolled body, at most and by default. Chosen by hand; not
/// measured apart.
const MOST_VECTORS: i64 = 8;
const DEFAULT_VECTORS: i64 = 4;

/// What a product is streamed with.
pub struct Streams {
    /// Columns of each thread.
    panel: i64,
    columns: Vec<i64>,
    rows: Vec<i64>,
}

/// How to stream a product, if it is worth it and its columns divide.
pub fn streams(shape: &Shape, target: &CpuTarget) -> Option<Streams> {
    let lanes = shape.lanes(target);
    let element = shape.bytes();
    let packed_before = shape.packing.is_none_or(|p| !p.each_call || p.transposed);
    let far = shape.k() * shape.n() * element > target.l2_bytes as i64;
    let sums = shape.m() * shape.n() * element;
    if packed_before || !far || shape.m() > MOST_ROWS || 2 * sums > target.l2_bytes as i64 {
        return None;
    }
    let threads = i64::from(target.threads.max(1));
    let panel = (shape.n() % threads == 0).then_some(shape.n() / threads)?;
    let columns = (1..=MOST_VECTORS).map(|v| v * lanes);
    let streams = Streams {
        panel,
        columns: columns.filter(|c| panel % c == 0).collect(),
        rows: STREAMS.into_iter().filter(|u| shape.k() % u == 0).collect(),
    };
    let possible = !streams.columns.is_empty() && !streams.rows.is_empty();
    possible.then_some(streams)
}

/// Whether the right operand exceeds all caches.
pub fn from_memory(shape: &Shape, target: &CpuTarget) -> bool {
    shape.k() * shape.n() * shape.bytes() > target.llc_bytes as i64
}

impl Tiling<'_> {
    pub fn write_streams(&self, d: &mut Draft, streams: &Streams) -> Written<()> {
        let (s, lanes, threads) = (self.shape, self.tiles.lanes, self.target.threads);
        let columns = d.choose("columns", &streams.columns, DEFAULT_VECTORS * lanes);
        let rows = d.choose("streams", &streams.rows, DEFAULT_STREAMS);
        let mut shared = ids(&s.batch);
        let mut n = s.columns.id;
        if threads > 1 {
            let [thread, own] = d.split(n, [REST, given(streams.panel)])?;
            shared.push(thread);
            n = own;
        }
        let [panel, in_panel] = d.split(n, [REST, columns.value().into()])?;
        let [vector, lane] = d.split(in_panel, [REST, given(lanes)])?;
        let [k0, k1] = d.split(s.terms.id, [REST, rows.value().into()])?;
        let mut order = shared.clone();
        order.extend([k0, panel]);
        order.extend(s.rows.iter().map(|m| m.id));
        order.extend([k1, vector, lane]);
        d.reorder(&order)?;
        d.parallel(&shared, threads)?;
        d.vectorize(lane)?;
        d.unroll(vector)?;
        d.unroll(k1)?;
        d.decompose_reduction(self.main.block, k0)?;
        d.run_parallel()
    }
}
