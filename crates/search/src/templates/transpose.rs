//! Data that changes its order: transposes and conversions of layouts.
//!
//! Neighbours in what is read are no neighbours in what is written, so either
//! one is walked along and the other in strides; a tile of both, a few cache
//! lines wide, uses every line that it touches whole. *transpose.write* has
//! vectors along what is written, *transpose.read* along what is read.

use super::im2row::largest_divisor;
use crate::draft::{Draft, Nest};
use crate::space::Sketch;
use ir::{CpuTarget, DType, Expr, Program, VarId};

/// Elements of a tile along each of the two axes, at most.
const MOST: i64 = 64;

/// Sketches for a program of one block that only moves data, if the innermost
/// axis of what it reads is not that of what it writes; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget) -> Vec<Sketch> {
    let [nest] = all else {
        return vec![];
    };
    let Some([read, written]) = innermost(program, nest) else {
        return vec![];
    };
    let lanes = target.lanes(DType::F32);
    let mut orders = [
        ("transpose.write", [read.as_str(), written.as_str()]),
        ("transpose.read", [written.as_str(), read.as_str()]),
    ];
    // First what fills the vectors best.
    orders.sort_by_key(|(_, [_, along])| -largest_divisor(extent(nest, along), lanes));
    let sketch = |(name, axes)| {
        let mut d = Draft::default();
        write(&mut d, nest, axes, target);
        d.finish(name)
    };
    orders.into_iter().map(sketch).collect()
}

fn extent(nest: &Nest, axis: &str) -> i64 {
    nest.extent(axis).expect("an axis with a loop")
}

/// The axes along which neighbours lie in memory: of what is read, and written.
fn innermost(program: &Program, nest: &Nest) -> Option<[String; 2]> {
    let block = program.block(nest.id);
    let [w] = &block.writes[..] else {
        return None;
    };
    let loads = block.loads();
    let [(_, indices)] = &loads[..] else {
        return None;
    };
    if block.is_reduction() {
        return None;
    }
    let long = block.iters.iter().filter(|i| i.extent > 1);
    let vars: Vec<VarId> = long.map(|i| i.var).collect();
    let uses = |e: &&Expr| vars.iter().any(|v| e.uses_var(*v));
    let used_last = |indices: &[Expr]| {
        let last = indices.iter().rev().find(uses)?;
        let mut used = vars.iter().filter(|v| last.uses_var(**v));
        // A blocked channel is read along by its last axis.
        used.next_back().copied()
    };
    let (read, written) = (used_last(indices)?, used_last(&w.indices)?);
    let name = |v: VarId| program.var(v).name.clone();
    let has_loop = |v: VarId| nest.extent(&name(v)).is_some();
    let apart = read != written && has_loop(read) && has_loop(written);
    apart.then(|| [name(read), name(written)])
}

/// Tiles of two axes, vectors along the second one.
fn write(d: &mut Draft, nest: &Nest, [strided, along]: [&str; 2], target: &CpuTarget) {
    let lanes = target.lanes(DType::F32);
    let rows = d.tile("strided", extent(nest, strided), MOST, MOST);
    let vector = d.tile("vector", extent(nest, along), lanes, lanes);
    let [strided, along] = [strided, along].map(|axis| format!("{}.{axis}", nest.block));
    d.line(format!("split {strided} [_, ${rows}.1]"));
    d.line(format!("split {along} [_, ${vector}.1]"));
    let outer: Vec<String> = nest
        .spatial
        .iter()
        .map(|(l, _)| match *l == strided || *l == along {
            true => format!("{l}.0"),
            false => l.clone(),
        })
        .collect();
    let inner = [format!("{strided}.1"), format!("{along}.1")];
    d.line(format!("reorder {} {}", outer.join(" "), inner.join(" ")));
    d.parallel(&outer, target.threads);
    d.run_parallel();
    d.line(format!("try vectorize {}", inner[1]));
}
