//! Data that changes its order: transposes and conversions of layouts.
//!
//! Neighbours in what is read are no neighbours in what is written, so either
//! one is walked along and the other in strides; a tile of both, a few cache
//! lines wide, uses every line that it touches whole. *transpose.write* has
//! vectors along what is written, *transpose.read* along what is read.

use super::Templates;
use super::registers::largest_divisor;
use crate::draft::{Draft, REST, Written};
use crate::nests::{AxisLoop, Nest};
use ir::{CpuTarget, DType, Expr, LoopId, Program, VarId};

/// Elements of a tile along each of the two axes, at most. Chosen by hand; not measured
/// apart.
const MOST: i64 = 64;

/// Sketches for a program of one block that only moves data, if the innermost
/// axis of what it reads is not that of what it writes; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let [nest] = all else {
        return;
    };
    let Some([read, written]) = innermost(program, nest) else {
        return;
    };
    let lanes = target.lanes(DType::F32);
    let mut orders = [
        ("transpose.write", [read, written]),
        ("transpose.read", [written, read]),
    ];
    // First what fills the vectors best.
    orders.sort_by_key(|(_, [_, along])| -largest_divisor(along.extent, lanes));
    for (name, axes) in orders {
        found.write(Draft::new(name, program), |d| write(d, nest, axes, target));
    }
}

/// The loops along which neighbours lie in memory: of what is read, and written.
fn innermost<'a>(program: &Program, nest: &'a Nest) -> Option<[&'a AxisLoop; 2]> {
    let block = program.block(nest.block);
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
    let along = |v: VarId| {
        let axis = &program.var(v).name;
        nest.spatial.iter().find(|l| l.axis == *axis)
    };
    (read != written).then_some([along(read)?, along(written)?])
}

/// Tiles of two axes, vectors along the second one.
fn write(
    d: &mut Draft,
    nest: &Nest,
    [strided, along]: [&AxisLoop; 2],
    target: &CpuTarget,
) -> Written<()> {
    let lanes = target.lanes(DType::F32);
    let rows = d.tile("strided", strided.extent, MOST, MOST);
    let vector = d.tile("vector", along.extent, lanes, lanes);
    let [s0, s1] = d.split(strided.id, [REST, rows.part(1).into()])?;
    let [a0, a1] = d.split(along.id, [REST, vector.part(1).into()])?;
    let outer = nest.spatial.iter().map(|l| match l.id {
        id if id == strided.id => s0,
        id if id == along.id => a0,
        id => id,
    });
    let outer: Vec<LoopId> = outer.collect();
    d.reorder(&[&outer[..], &[s1, a1]].concat())?;
    d.parallel(&outer, target.threads)?;
    d.run_parallel()?;
    d.vectorize_if_legal(a1);
    Ok(())
}
