//! The promises of flat code, checked.

use super::{BufferPlace, Code, Lane, LaneOffsets, Stmt, Store};
use crate::passes::simplify::narrowed;
use ir::affine::Ranges;
use ir::{BinaryOp, BufferId, DType, Expr, ExprKind, VarId};
use std::collections::BTreeMap;

/// Every broken promise of `flat`; empty for well-formed code.
///
/// 1. Variables are bound by a loop or the lane around, buffers exist, are in
///    use, and are accessed with one offset.
/// 2. Types agree: stored values, conditions, both operands of an operator.
/// 3. Ids are dense: loop and access tables have one row for each, with its
///    parent, extent and kind.
/// 4. Parallel loops do not nest.
/// 5. A register buffer is accessed at constant offsets, multiples of its one
///    lane count, and on one side only of any parallel loop, as are stack arrays.
/// 6. Workspace offsets are aligned to 64 bytes and buffers lie inside.
/// 7. Lanes that store to one element are combined, or a mask picks one.
/// 8. The kernel writes no input, constant or prepared buffer and loads only its
///    parameters; prepare writes no parameter of the program.
/// 9. The lane offsets in the table are those of the code, and what they call
///    readable lies in the buffer.
pub fn verify_flat(code: &Code) -> Vec<String> {
    let mut v = Verifier {
        code,
        broken: vec![],
        scope: vec![],
        ranges: Ranges::new(),
        loops: 0,
        accesses: vec![false; code.accesses.len()],
        registers: BTreeMap::new(),
        homes: BTreeMap::new(),
        prepare: true,
        parallel: None,
    };
    v.stmts(&code.prepare, None);
    v.prepare = false;
    v.homes.clear();
    v.registers.clear();
    v.stmts(&code.kernel, None);
    if v.loops != code.loops.len() {
        v.say(format!(
            "{} loops but {} rows in the table",
            v.loops,
            code.loops.len()
        ));
    }
    if let Some(i) = v.accesses.iter().position(|seen| !seen) {
        v.say(format!("access {i} of the table is not in the code"));
    }
    v.workspace();
    v.broken
}

struct Verifier<'a> {
    code: &'a Code,
    broken: Vec<String>,
    scope: Vec<VarId>,
    /// Of the variables in scope, as far as conditions around say.
    ranges: Ranges,
    loops: usize,
    accesses: Vec<bool>,
    /// Lane count of each register buffer.
    registers: BTreeMap<BufferId, u32>,
    /// The parallel loop in which a register or stack buffer is accessed.
    homes: BTreeMap<BufferId, Option<u32>>,
    prepare: bool,
    parallel: Option<u32>,
}

impl Verifier<'_> {
    fn say(&mut self, what: String) {
        self.broken.push(what);
    }

    fn name(&self, b: BufferId) -> &str {
        self.code
            .buffers
            .get(b.index())
            .map_or("?", |b| b.name.as_str())
    }

    fn workspace(&mut self) {
        for b in &self.code.buffers {
            let bytes = b.elements as u64 * b.dtype.size() as u64;
            let (at, total) = match b.place {
                BufferPlace::Workspace(at) => (at, self.code.workspace_bytes),
                BufferPlace::WorkerWorkspace(at) => (at, self.code.worker_workspace_bytes),
                _ => continue,
            };
            if at % 64 != 0 || at + bytes > total {
                let text = format!("`{}` lies at {at} of {total} workspace bytes", b.name);
                self.broken.push(text);
            }
        }
    }

    fn stmts(&mut self, stmts: &[Stmt], parent: Option<u32>) {
        for s in stmts {
            match s {
                Stmt::Loop(l) => {
                    let row = self.code.loops.get(l.id as usize);
                    let fits = row.is_some_and(|r| {
                        r.extent == l.extent
                            && r.parallel == l.parallel
                            && r.parent == parent
                            && r.prepare == self.prepare
                    });
                    if !fits || l.id as usize != self.loops {
                        self.say(format!("loop {} does not fit its row in the table", l.id));
                    }
                    self.loops += 1;
                    if l.extent < 1 {
                        self.say(format!("loop {} has extent {}", l.id, l.extent));
                    }
                    if l.parallel && self.parallel.is_some() {
                        self.say(format!("parallel loop {} lies in another", l.id));
                    }
                    let outer = self.parallel;
                    if l.parallel {
                        self.parallel = Some(l.id);
                    }
                    self.scope.push(l.var);
                    self.ranges.set_extent(l.var, l.extent);
                    self.stmts(&l.body, Some(l.id));
                    self.scope.pop();
                    self.parallel = outer;
                }
                Stmt::If {
                    cond,
                    then,
                    otherwise,
                } => {
                    self.condition(cond);
                    let inside = narrowed(cond, &self.ranges);
                    let outside = std::mem::replace(&mut self.ranges, inside);
                    self.stmts(then, parent);
                    self.ranges = outside;
                    self.stmts(otherwise, parent);
                }
                Stmt::Check { cond, code } => {
                    self.condition(cond);
                    if *code == 0 {
                        self.say("a check fails with code 0".into());
                    }
                }
                Stmt::Store(s) => self.store(s, parent),
                Stmt::Prefetch { buffer, offset } => {
                    self.expr(offset);
                    let info = self.code.buffers.get(buffer.index());
                    if let Some(b) = info
                        && matches!(b.place, BufferPlace::Register | BufferPlace::Unused)
                    {
                        self.say(format!("`{}` is prefetched and has no address", b.name));
                    }
                }
            }
        }
    }

    fn condition(&mut self, cond: &Expr) {
        if self.expr(cond) != DType::Bool {
            self.say(format!("condition {cond:?} is not bool"));
        }
        self.loads(cond, 1, None);
    }

    fn store(&mut self, s: &Store, parent: Option<u32>) {
        let lanes = s.lane.map_or(1, |l| l.lanes);
        self.scope.extend(s.lane.map(|l| l.var));
        if s.mask.is_some() && s.lane.is_none() {
            self.say(format!("store {} has a mask but no lanes", s.id));
        }
        let meet = s.lane.is_some_and(|l| !s.offset.uses_var(l.var));
        if meet && s.mask.is_none() && s.combined().is_none() {
            self.say(format!("the lanes of store {} meet in one element", s.id));
        }
        let (value, offset) = (self.expr(&s.value), self.expr(&s.offset));
        if let Some(b) = self.code.buffers.get(s.buffer.index())
            && b.dtype != value
        {
            self.say(format!("store {} puts {value} into `{}`", s.id, b.name));
        }
        if offset != DType::I64 {
            self.say(format!("the offset of store {} is {offset}", s.id));
        }
        if let Some(m) = &s.mask
            && self.expr(m) != DType::Bool
        {
            self.say(format!("the mask of store {} is not bool", s.id));
        }
        let exprs = [Some(&s.value), Some(&s.offset), s.mask.as_ref()];
        let loads = exprs.into_iter().flatten().flat_map(crate::nest::loads);
        if loads.count() != s.loads.len() {
            self.say(format!("store {} does not have one id a load", s.id));
        }
        let lane = s.lane.map(|l| l.var);
        for (id, b, at) in s.loads_with_ids() {
            self.row(id, b, false, parent);
            self.offsets(id, b, at, s.lane);
            self.access(b, at, lanes, lane);
        }
        self.row(s.id, s.buffer, true, parent);
        self.offsets(s.id, s.buffer, &s.offset, s.lane);
        self.access(s.buffer, &s.offset, lanes, lane);
        self.writable(s.buffer);
        if s.lane.is_some() {
            self.scope.pop();
        }
    }

    fn writable(&mut self, b: BufferId) {
        let bad = match self.code.buffers[b.index()].place {
            BufferPlace::Input | BufferPlace::Constant => true,
            BufferPlace::Prepared => !self.prepare,
            BufferPlace::Output => self.prepare,
            _ => false,
        };
        if bad {
            self.say(format!("`{}` is written", self.name(b)));
        }
    }

    fn offsets(&mut self, id: u32, b: BufferId, at: &Expr, lane: Option<Lane>) {
        let row = self.code.accesses.get(id as usize);
        let (Some(row), Some(buffer)) = (row, self.code.buffers.get(b.index())) else {
            return;
        };
        if row.offsets != LaneOffsets::of(at, lane, buffer.elements, &self.ranges) {
            self.say(format!("access {id} does not lie as the table says"));
        }
    }

    fn row(&mut self, id: u32, b: BufferId, is_store: bool, parent: Option<u32>) {
        let row = self.code.accesses.get(id as usize);
        let fits =
            row.is_some_and(|r| r.buffer == b && r.is_store == is_store && r.parent == parent);
        let seen = self.accesses.get_mut(id as usize);
        let fresh = seen.is_some_and(|seen| !std::mem::replace(seen, true));
        if !fits || !fresh {
            self.say(format!(
                "access {id} of `{}` does not fit the table",
                self.name(b)
            ));
        }
    }

    fn loads(&mut self, e: &Expr, lanes: u32, lane: Option<VarId>) {
        for (b, at) in crate::nest::loads(e) {
            self.access(b, &at[0], lanes, lane);
        }
    }

    fn access(&mut self, b: BufferId, offset: &Expr, lanes: u32, lane: Option<VarId>) {
        let Some(buffer) = self.code.buffers.get(b.index()) else {
            self.say(format!("buffer {} does not exist", b.0));
            return;
        };
        match buffer.place {
            BufferPlace::Unused => self.say(format!("`{}` is accessed but unused", self.name(b))),
            BufferPlace::Register | BufferPlace::Stack => {
                let home = *self.homes.entry(b).or_insert(self.parallel);
                if home != self.parallel {
                    let text = format!("`{}` crosses the border of a parallel loop", self.name(b));
                    self.say(text);
                }
            }
            BufferPlace::Input
            | BufferPlace::Constant
            | BufferPlace::Prepared
            | BufferPlace::Output => {
                let params = match self.prepare {
                    true => &self.code.prepare_params,
                    false => &self.code.params,
                };
                if !params.contains(&b) {
                    self.say(format!("`{}` is accessed but no parameter", self.name(b)));
                }
            }
            _ => {}
        }
        if buffer.place == BufferPlace::Register {
            let lanes = if lane.is_some_and(|l| offset.uses_var(l)) {
                lanes
            } else {
                1
            };
            let known = *self.registers.entry(b).or_insert(lanes);
            let affine = ir::affine::Affine::of(offset);
            let constant = affine.is_some_and(|a| {
                a.constant % i64::from(lanes) == 0
                    && a.constant + i64::from(lanes) <= buffer.elements
                    && a.terms.iter().all(|(v, c)| Some(*v) == lane && *c == 1)
            });
            if known != lanes || !constant {
                self.say(format!(
                    "register `{}` is accessed at {offset:?}",
                    self.name(b)
                ));
            }
        }
    }

    /// The type of an expression, having checked it.
    fn expr(&mut self, e: &Expr) -> DType {
        let types: Vec<DType> = e.children().map(|c| self.expr(c)).collect();
        match e.kind() {
            ExprKind::Int(_, d) | ExprKind::Float(_, d) => *d,
            ExprKind::Cast(d, _) => *d,
            ExprKind::Var(v) => {
                if !self.scope.contains(v) {
                    self.say(format!("variable {} is not bound", v.0));
                }
                DType::I64
            }
            ExprKind::Arg(..) => {
                self.say("an argument of a reducer is left".into());
                DType::F32
            }
            ExprKind::Load(b, i) => {
                if i.len() != 1 || types[0] != DType::I64 {
                    self.say(format!("load {e:?} has no single offset"));
                }
                self.code
                    .buffers
                    .get(b.index())
                    .map_or(DType::F32, |b| b.dtype)
            }
            ExprKind::Unary(op, _) => op.result(types[0]),
            ExprKind::Binary(op, ..) => {
                if types[0] != types[1] {
                    self.say(format!(
                        "operands of {e:?} are {} and {}",
                        types[0], types[1]
                    ));
                }
                match op {
                    _ if op.is_comparison() => DType::Bool,
                    BinaryOp::And | BinaryOp::Or => DType::Bool,
                    _ => types[0],
                }
            }
            ExprKind::Select(..) => {
                if types[0] != DType::Bool || types[1] != types[2] {
                    self.say(format!("select {e:?} has types {types:?}"));
                }
                types[1]
            }
        }
    }
}
