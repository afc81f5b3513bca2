//! The general nest schedule: vectors over the innermost spatial axis,
//! reductions outside them, accumulators in registers.

use super::threads::own_rows;
use crate::draft::{Draft, Nest};
use crate::space::Sketch;
use ir::{CpuTarget, DType};

/// How far the general schedule goes.
pub struct Style {
    /// Unroll a second spatial axis, so that several accumulators are live.
    pub tile: bool,
    /// Vectors over the reduction, combined at the end, where no other axis is contiguous.
    pub rfactor: bool,
}

impl Style {
    pub const PLAIN: Style = Style {
        tile: false,
        rfactor: false,
    };
    const ROWS: Style = Style {
        tile: false,
        rfactor: true,
    };
    const TILED: Style = Style {
        tile: true,
        rfactor: false,
    };
}

/// Sketches that schedule every nest alone.
pub fn sketches(all: &[Nest], target: &CpuTarget) -> Vec<Sketch> {
    let mut out = Vec::new();
    let rows = all.iter().any(|n| row_reduction(n, target));
    let styles: &[(&str, Style)] = if rows {
        &[("nest.rows", Style::ROWS), ("nest", Style::PLAIN)]
    } else {
        &[("nest", Style::PLAIN), ("nest.tiled", Style::TILED)]
    };
    for (name, style) in styles {
        let mut d = Draft::default();
        for n in all {
            schedule(&mut d, n, target, style);
        }
        out.push(d.finish(name));
    }
    out
}

/// The fallback rule.
pub fn plain(all: &[Nest], target: &CpuTarget) -> Sketch {
    let mut d = Draft::default();
    for n in all {
        schedule(&mut d, n, target, &Style::PLAIN);
    }
    d.finish("fallback")
}

fn lanes(target: &CpuTarget) -> i64 {
    target.lanes(DType::F32)
}

/// A reduction over the last axis only, as in softmax and layer normalisation.
fn row_reduction(n: &Nest, target: &CpuTarget) -> bool {
    n.is_reduction
        && n.writes == 1
        && n.reduce.len() == 1
        && n.reduce[0].1 % lanes(target) == 0
        && n.reduce[0].1 > lanes(target)
        && n.spatial.iter().any(|(_, e)| *e > 1)
}

/// Schedules one nest that still has its own loops.
pub fn schedule(d: &mut Draft, n: &Nest, target: &CpuTarget, style: &Style) {
    if style.rfactor && row_reduction(n, target) {
        return rows(d, n, target);
    }
    let width = lanes(target);
    // The innermost axis with more than one element carries the vectors.
    let Some(at) = n.spatial.iter().rposition(|(_, e)| *e > 1) else {
        if n.is_reduction && !n.reduce.is_empty() {
            d.line(format!(
                "try decompose_reduction {} {}",
                n.block, n.reduce[0].0
            ));
        }
        return;
    };
    let (axis, extent) = &n.spatial[at];
    let inner = if *extent >= width { width } else { *extent };
    d.line(format!("split {axis} [_, {inner}]"));
    let mut outer: Vec<String> = n
        .spatial
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != at)
        .map(|(_, (l, _))| l.clone())
        .collect();
    outer.insert(at.min(outer.len()), format!("{axis}.0"));
    let own = at == 4 && !n.is_reduction && give_rows(d, n, target, &mut outer);
    let mut tile = None;
    if style.tile
        && n.is_reduction
        && let Some((second, extent)) = n.spatial[..at].iter().rev().find(|(_, e)| *e > 1)
    {
        // A vector of sums for each, one of data and one more.
        let most = i64::from(target.vector_registers) - 2;
        let t = d.tile(&format!("tile_{}", n.block), *extent, most.min(16), 8);
        d.line(format!("split {second} [${t}.0, ${t}.1]"));
        if let Some(l) = outer.iter_mut().find(|l| *l == second) {
            *l = format!("{second}.0");
        }
        tile = Some(format!("{second}.1"));
    }
    let vector = format!("{axis}.1");
    let mut order = outer.clone();
    order.extend(n.reduce.iter().map(|(l, _)| l.clone()));
    order.extend(tile.clone());
    order.push(vector.clone());
    if order.len() > 1 {
        d.line(format!("reorder {}", order.join(" ")));
    }
    let place = outer.last().cloned().unwrap_or_default();
    let parallel: Vec<String> = {
        // The loop that the accumulators live in stays a loop of its own.
        let keep = usize::from(n.is_reduction && outer.len() > 1);
        let all = outer.len() - keep;
        outer[..if own { 1 } else { all }].to_vec()
    };
    let fused = d.parallel(&parallel, target.threads);
    let place = match fused {
        Some(f) if parallel.last() == Some(&place) => f,
        _ => place,
    };
    if n.is_reduction && n.writes == 1 {
        keep_sums(d, n, at, &place);
    }
    d.line(format!("try vectorize {vector}"));
    if let Some(t) = tile {
        d.line(format!("unroll {t}"));
    }
    if n.is_reduction && !n.reduce.is_empty() {
        d.line(format!("decompose_reduction {} {}", n.block, n.reduce[0].0));
    }
}

/// Sums stay in registers until the loop `place` leaves them, in vectors along axis `at`.
fn keep_sums(d: &mut Draft, n: &Nest, at: usize, place: &str) {
    d.line(format!("cache_write {} 0 register", n.block));
    d.line(format!("reverse_compute_at {}.out {place}", n.block));
    let left = |(l, _): &(String, i64)| {
        let l = l.strip_prefix(&format!("{}.", n.block)).unwrap_or(l);
        format!("{}.out.{l}", n.block)
    };
    let vector = left(&n.spatial[at]);
    if at + 1 < n.spatial.len() {
        let inside: Vec<String> = n.spatial[at + 1..].iter().map(left).collect();
        d.line(format!("reorder {} {vector}", inside.join(" ")));
    }
    d.line(format!("try vectorize {vector}"));
}

/// Puts a loop over threads, each with rows of its own, outside all others.
fn give_rows(d: &mut Draft, n: &Nest, target: &CpuTarget, outer: &mut Vec<String>) -> bool {
    let Some(rows) = own_rows(&n.spatial, target.threads) else {
        return false;
    };
    let y = outer[2].clone();
    d.line(format!("split {y} [_, {rows}]"));
    outer[2] = format!("{y}.1");
    outer.insert(0, format!("{y}.0"));
    true
}

/// A reduction along contiguous rows: lanes reduce alone, then together.
fn rows(d: &mut Draft, n: &Nest, target: &CpuTarget) {
    let width = lanes(target);
    let (k, _) = &n.reduce[0];
    let rf = format!("{}.rf", n.block);
    let block = &n.block;
    d.line(format!("split {k} [_, {width}]"));
    d.line(format!("rfactor {k}.1"));
    // The partial results take over the nest; the block combines them after it.
    let outer: Vec<String> = n.spatial.iter().map(|(l, _)| l.clone()).collect();
    let place = outer.last().cloned().unwrap_or_default();
    d.line(format!("reverse_compute_at {block} {place}"));
    d.line(format!("set_scope {rf} register"));
    d.line(format!("vectorize {k}.1"));
    d.line(format!("decompose_reduction {rf} {k}.0"));
    d.line(format!("decompose_reduction {block} {block}.part"));
    d.line(format!("unroll {block}.part"));
    if target.threads > 1 {
        // Parallel rows; the innermost loop stays where it is.
        d.line(format!("try parallel {}", outer[0]));
    }
}
