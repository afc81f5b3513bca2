//! Every buffer gets its place: register, stack or a stretch of workspace.
//!
//! Registers: scope `Register`, temporaries and other small buffers, if every
//! access has a constant offset and one lane count. What cannot be registers,
//! and scope `Local`, is a stack array if it is small. The rest lies in the
//! workspace, of the worker if it lives within a parallel loop; buffers whose
//! lifetimes are apart share bytes.

use crate::LowerError;
use crate::flat::{BufferPlace, Lane, SpillReason};
use crate::nest::{Assign, Entry, For, Nest, Stmt};
use ir::affine::Affine;
use ir::{BufferId, Expr, LoopKind, Role, Scope, VarId};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The largest stack array.
const MAX_STACK_BYTES: i64 = 4096;
/// All stack arrays of an entry together.
const MAX_STACK_TOTAL: i64 = 64 << 10;
/// Buffers up to this size become registers whatever their scope.
const MAX_TINY_BYTES: i64 = 256;
const ALIGN: u64 = 64;

/// One load or store.
struct Access {
    lanes: u32,
    offset: Expr,
    lane: Option<Lane>,
    /// Enclosing loops as node numbers, outermost first.
    path: Rc<[usize]>,
    /// The outermost parallel loop around.
    parallel: Option<usize>,
    at: usize,
}

#[derive(Default)]
struct Survey {
    /// Whether the place of each buffer is open.
    open: Vec<bool>,
    /// Of these buffers.
    accesses: BTreeMap<BufferId, Vec<Access>>,
    /// Variable and last position of each loop, by node number.
    vars: BTreeMap<usize, VarId>,
    ends: BTreeMap<usize, usize>,
    next: usize,
}

/// A buffer that wants workspace.
struct Request {
    buffer: BufferId,
    worker: bool,
    bytes: u64,
    /// Positions between which its contents matter.
    live: (usize, usize),
}

pub(crate) fn place_buffers(nest: &mut Nest) -> Result<(), LowerError> {
    let (mut shared, mut private) = (0, 0);
    for entry in [Entry::Prepare, Entry::Kernel] {
        let open = |b: BufferId| role_place(nest, b).is_none();
        let mut survey = Survey {
            open: nest.program.buffer_ids().map(open).collect(),
            ..Survey::default()
        };
        survey.stmts(nest.stmts(entry), &Rc::from([]), None);
        let mut requests = Vec::new();
        let mut stack_left = MAX_STACK_TOTAL;
        for (b, accesses) in &survey.accesses {
            let spill = spill(nest, *b, accesses);
            if spill.is_none() && may_be_registers(nest, *b) {
                nest.storage_mut(*b).place = Some(BufferPlace::Register);
                continue;
            }
            if nest.program.buffer(*b).scope == Scope::Register {
                nest.storage_mut(*b).spill = spill;
            }
            if may_be_stack(nest, *b, accesses, stack_left) {
                stack_left -= bytes(nest, *b);
                nest.storage_mut(*b).place = Some(BufferPlace::Stack);
            } else {
                requests.push(request(nest, &survey, *b, accesses));
            }
        }
        for worker in [false, true] {
            let bytes = allocate(nest, requests.iter().filter(|r| r.worker == worker));
            let total = if worker { &mut private } else { &mut shared };
            *total = bytes.max(*total);
        }
    }
    nest.workspace_bytes = shared;
    nest.worker_workspace_bytes = private;
    for b in nest.program.buffer_ids() {
        if nest.storage(b).place.is_none() {
            nest.storage_mut(b).place = Some(role_place(nest, b).unwrap_or(BufferPlace::Unused));
        }
    }
    // Registers have no address, and a stack array is in the cache already.
    nest.map_entries(|nest, mut stmts| {
        let distant = |b: BufferId| {
            let place = nest.storage(b).place;
            !matches!(
                place,
                Some(BufferPlace::Register | BufferPlace::Stack | BufferPlace::Unused)
            )
        };
        keep_prefetches_of(&mut stmts, &distant);
        stmts
    });
    Ok(())
}

/// Removes the prefetches of other buffers.
fn keep_prefetches_of(stmts: &mut Vec<Stmt>, kept: &impl Fn(BufferId) -> bool) {
    stmts.retain_mut(|s| match s {
        Stmt::Prefetch { buffer, .. } => kept(*buffer),
        Stmt::For(For { body: inner, .. }) | Stmt::If { then: inner, .. } => {
            keep_prefetches_of(inner, kept);
            true
        }
        Stmt::Assign(_) | Stmt::Check { .. } => true,
    });
}

fn role_place(nest: &Nest, b: BufferId) -> Option<BufferPlace> {
    match nest.program.buffer(b).role {
        Role::Input => Some(BufferPlace::Input),
        Role::Constant => Some(BufferPlace::Constant),
        Role::Output => Some(BufferPlace::Output),
        Role::Intermediate => nest.storage(b).place,
    }
}

fn bytes(nest: &Nest, b: BufferId) -> i64 {
    nest.storage(b).elements * nest.program.buffer(b).dtype.size() as i64
}

fn may_be_registers(nest: &Nest, b: BufferId) -> bool {
    nest.program.buffer(b).scope == Scope::Register || bytes(nest, b) <= MAX_TINY_BYTES
}

/// The first reason why a buffer cannot be registers.
fn spill(nest: &Nest, b: BufferId, accesses: &[Access]) -> Option<SpillReason> {
    if crosses_border(accesses) {
        return Some(SpillReason::ParallelBorder);
    }
    let elements = nest.storage(b).elements;
    let lanes = accesses[0].lanes;
    for a in accesses {
        let Some(offset) = constant_part(&a.offset, a.lane) else {
            return Some(varying(nest, b, a));
        };
        if a.lanes != lanes {
            return Some(SpillReason::Lanes(lanes, a.lanes));
        }
        // An access beyond the end is one that a condition never lets run.
        if offset % i64::from(lanes) != 0 || !(0..elements).contains(&offset) {
            return Some(SpillReason::Alignment { offset, lanes });
        }
    }
    let last = elements - elements % i64::from(lanes);
    (last != elements).then_some(SpillReason::Alignment {
        offset: last,
        lanes,
    })
}

/// An offset that is not constant, with the loops that make it so.
fn varying(nest: &Nest, b: BufferId, a: &Access) -> SpillReason {
    let p = &nest.program;
    let var = |v: VarId| p.var(v).name.clone();
    let offset = crate::flat::text::expr(&a.offset, &var, &|b| p.buffer(b).name.clone());
    let offset = format!("{}[{offset}]", p.buffer(b).name);
    let of_loop = |v: &VarId| a.lane.is_none_or(|l| l.var != *v);
    let loops: Vec<String> = a
        .offset
        .vars()
        .into_iter()
        .filter(of_loop)
        .map(var)
        .collect();
    match loops.is_empty() {
        true => SpillReason::Offset { offset },
        false => SpillReason::Loops { offset, loops },
    }
}

/// Neither registers nor the stack are visible from both sides of a parallel loop's border.
fn crosses_border(accesses: &[Access]) -> bool {
    let parallel = accesses[0].parallel;
    accesses.iter().any(|a| a.parallel != parallel)
}

fn may_be_stack(nest: &Nest, b: BufferId, accesses: &[Access], stack_left: i64) -> bool {
    let scope = nest.program.buffer(b).scope;
    let inner = nest.storage(b).site.is_some() || nest.storage(b).temporary;
    let wants_stack = scope != Scope::Global || inner;
    let small = bytes(nest, b) <= MAX_STACK_BYTES.min(stack_left);
    wants_stack && small && !crosses_border(accesses)
}

fn request(nest: &Nest, survey: &Survey, b: BufferId, accesses: &[Access]) -> Request {
    let inside = accesses.iter().all(|a| a.parallel.is_some());
    let common = accesses.iter().fold(&accesses[0].path[..], |c, a| {
        let n = c
            .iter()
            .zip(&a.path[..])
            .take_while(|(x, y)| x == y)
            .count();
        &c[..n]
    });
    // Contents live as long as an iteration of the site, also where all accesses are
    // in loops inside it: a sum is of all their iterations.
    let storage = nest.storage(b);
    let depth = match storage.site {
        _ if storage.temporary => common.len(),
        None => 0,
        Some(site) => {
            let at = common.iter().position(|node| survey.vars[node] == site);
            at.map_or(common.len(), |at| at + 1)
        }
    };
    let span = |a: &Access| match a.path.get(depth) {
        Some(node) => (*node, survey.ends[node]),
        None => (a.at, a.at),
    };
    let spans = accesses.iter().map(span);
    let live = spans
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        .expect("a surveyed buffer is accessed");
    Request {
        buffer: b,
        worker: inside && nest.storage(b).worker_private,
        bytes: (bytes(nest, b).max(1) as u64).next_multiple_of(ALIGN),
        live,
    }
}

/// Gives each request the lowest offset free during its life, large ones
/// first, and returns the bytes of all.
fn allocate<'a>(nest: &mut Nest, requests: impl Iterator<Item = &'a Request>) -> u64 {
    let mut requests: Vec<&Request> = requests.collect();
    requests.sort_by_key(|r| (std::cmp::Reverse(r.bytes), r.buffer));
    let mut placed: Vec<(&Request, u64)> = Vec::new();
    for r in requests {
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|(p, _)| p.live.0 <= r.live.1 && r.live.0 <= p.live.1)
            .map(|(p, offset)| (*offset, offset + p.bytes))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end) in taken {
            if start >= offset + r.bytes {
                break;
            }
            offset = end.max(offset);
        }
        placed.push((r, offset));
        nest.storage_mut(r.buffer).place = Some(match r.worker {
            true => BufferPlace::WorkerWorkspace(offset),
            false => BufferPlace::Workspace(offset),
        });
    }
    placed
        .iter()
        .map(|(r, offset)| offset + r.bytes)
        .max()
        .unwrap_or(0)
}

impl Survey {
    fn stmts(&mut self, stmts: &[Stmt], path: &Rc<[usize]>, parallel: Option<usize>) {
        for s in stmts {
            let at = self.next;
            self.next += 1;
            let lane = match s {
                Stmt::Assign(a) => a.lane,
                _ => None,
            };
            for e in s.exprs() {
                e.visit_loads(&mut |b, offset| {
                    self.access(b, &offset[0], lane, path, parallel, at);
                });
            }
            match s {
                Stmt::Assign(Assign {
                    buffer, indices, ..
                }) => {
                    self.access(*buffer, &indices[0], lane, path, parallel, at);
                }
                Stmt::If { then, .. } => self.stmts(then, path, parallel),
                Stmt::For(l) => {
                    let here = (l.kind == LoopKind::Parallel).then_some(at);
                    let inside = path.iter().copied().chain([at]).collect();
                    self.vars.insert(at, l.var);
                    self.stmts(&l.body, &inside, parallel.or(here));
                    self.ends.insert(at, self.next - 1);
                }
                _ => {}
            }
        }
    }

    fn access(
        &mut self,
        b: BufferId,
        offset: &Expr,
        lane: Option<Lane>,
        path: &Rc<[usize]>,
        parallel: Option<usize>,
        at: usize,
    ) {
        if !self.open[b.index()] {
            return;
        }
        let access = Access {
            lanes: access_lanes(offset, lane),
            offset: offset.clone(),
            lane,
            path: path.clone(),
            parallel,
            at,
        };
        self.accesses.entry(b).or_default().push(access);
    }
}

/// The lanes of an access: one if its offset is the same for all of them.
pub(crate) fn access_lanes(offset: &Expr, lane: Option<Lane>) -> u32 {
    lane.filter(|l| offset.uses_var(l.var))
        .map_or(1, |l| l.lanes)
}

/// The constant part of an offset that is otherwise nothing or the lane.
fn constant_part(offset: &Expr, lane: Option<Lane>) -> Option<i64> {
    let offset = Affine::of(offset)?;
    let alone = offset
        .terms
        .iter()
        .all(|(v, c)| *c == 1 && lane.is_some_and(|l| l.var == *v));
    alone.then_some(offset.constant)
}
