//! Statements become flat code: loops and accesses get their ids, in textual
//! order, and a row in the side tables. A load whose lanes lie in a constant
//! pattern is told from a gather here, where the ranges of all loops are final.

use super::place_buffers::access_lanes;
use super::simplify::narrowed;
use crate::flat::{AccessId, Stmt as FlatStmt};
use crate::flat::{
    AccessInfo, BufferPlace, Code, FlatBuffer, FlatLoop, FlatLoopId, LaneOffsets, LoopInfo, Store,
};
use crate::nest::{Assign, Entry, Nest, Stmt, walk};
use ir::affine::Ranges;
use ir::{BufferId, Expr, LoopKind, Role, VarId};

pub(crate) fn number(mut nest: Nest) -> Code {
    let mut loaded = vec![false; nest.storage.len()];
    walk(&nest.kernel, &mut Vec::new(), &mut |s, _| {
        for e in s.exprs() {
            e.visit_loads(&mut |b, _| loaded[b.index()] = true);
        }
    });
    let prepare = std::mem::take(&mut nest.prepare);
    let kernel = std::mem::take(&mut nest.kernel);
    let p = &nest.program;
    let buffers = p.buffer_ids().map(|b| {
        let (buffer, storage) = (p.buffer(b), nest.storage(b));
        FlatBuffer {
            name: buffer.name.clone(),
            dtype: buffer.dtype,
            elements: storage.elements,
            shape: match buffer.role {
                Role::Intermediate => vec![],
                _ => buffer.shape.clone(),
            },
            place: storage.place.unwrap_or(BufferPlace::Unused),
            spill: storage.spill.clone(),
        }
    });
    let buffers: Vec<FlatBuffer> = buffers.collect();
    let mut tables = Numbering {
        elements: buffers.iter().map(|b| b.elements).collect(),
        ranges: Ranges::new(),
        loops: vec![],
        accesses: vec![],
        entry: Entry::Prepare,
    };
    let prepare = tables.stmts(prepare, None, false);
    tables.entry = Entry::Kernel;
    let kernel = tables.stmts(kernel, None, false);
    let prepared = |b: &BufferId| buffers[b.index()].place == BufferPlace::Prepared;
    let prepared: Vec<BufferId> = p.buffer_ids().filter(prepared).collect();
    let constant = |b: &BufferId| p.buffer(*b).role == Role::Constant;
    let used = p
        .params
        .iter()
        .copied()
        .filter(|b| !constant(b) || loaded[b.index()]);
    Code {
        name: p.name.clone(),
        vars: (0..p.var_count())
            .map(|v| p.var(VarId(v as u32)).name.clone())
            .collect(),
        params: used.chain(prepared.iter().copied()).collect(),
        prepare_params: p
            .params
            .iter()
            .copied()
            .filter(constant)
            .chain(prepared)
            .collect(),
        buffers,
        in_place: vec![],
        kernel,
        prepare,
        workspace_bytes: nest.workspace_bytes,
        worker_workspace_bytes: nest.worker_workspace_bytes,
        loops: tables.loops,
        accesses: tables.accesses,
    }
}

struct Numbering {
    /// Of each buffer.
    elements: Vec<i64>,
    /// Of the variables in scope, as far as conditions around say.
    ranges: Ranges,
    loops: Vec<LoopInfo>,
    accesses: Vec<AccessInfo>,
    entry: Entry,
}

impl Numbering {
    fn stmts(
        &mut self,
        stmts: Vec<Stmt>,
        parent: Option<FlatLoopId>,
        in_parallel: bool,
    ) -> Vec<FlatStmt> {
        let number = |s: Stmt| match s {
            Stmt::For(l) => {
                let id = self.loops.len() as FlatLoopId;
                let parallel = l.kind == LoopKind::Parallel && !in_parallel;
                self.loops.push(LoopInfo {
                    name: l.name,
                    parent,
                    extent: l.extent,
                    parallel,
                    prepare: self.entry == Entry::Prepare,
                });
                self.ranges.set_extent(l.var, l.extent);
                let body = self.stmts(l.body, Some(id), in_parallel || parallel);
                FlatStmt::Loop(FlatLoop {
                    id,
                    var: l.var,
                    extent: l.extent,
                    parallel,
                    body,
                })
            }
            Stmt::If { cond, then } => {
                let inside = narrowed(&cond, &self.ranges);
                let outside = std::mem::replace(&mut self.ranges, inside);
                let then = self.stmts(then, parent, in_parallel);
                self.ranges = outside;
                FlatStmt::If {
                    cond,
                    then,
                    otherwise: vec![],
                }
            }
            Stmt::Assign(a) => FlatStmt::Store(self.store(a, parent)),
            Stmt::Check { cond, code } => FlatStmt::Check { cond, code },
            Stmt::Prefetch { buffer, offset } => FlatStmt::Prefetch { buffer, offset },
        };
        stmts.into_iter().map(number).collect()
    }

    fn store(&mut self, a: Assign, parent: Option<FlatLoopId>) -> Store {
        let mut add = |buffer: BufferId, offset: &Expr, is_store: bool| {
            let elements = self.elements[buffer.index()];
            self.accesses.push(AccessInfo {
                buffer,
                is_store,
                parent,
                lanes: access_lanes(offset, a.lane),
                offsets: LaneOffsets::of(offset, a.lane, elements, &self.ranges),
            });
            self.accesses.len() as AccessId - 1
        };
        let mut loads = Vec::new();
        let exprs = [Some(&a.value), Some(&a.indices[0]), a.mask.as_ref()];
        for e in exprs.into_iter().flatten() {
            e.visit_loads(&mut |b, offset| loads.push(add(b, &offset[0], false)));
        }
        Store {
            id: add(a.buffer, &a.indices[0], true),
            buffer: a.buffer,
            offset: a.indices.into_iter().next().expect("flattened"),
            value: a.value,
            lane: a.lane,
            mask: a.mask,
            loads,
        }
    }
}
