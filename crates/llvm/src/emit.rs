//! Statements to LLVM functions: loops, ifs, registers as SSA values, and
//! parallel loops outlined into tasks for the runtime's pool.
//!
//! An entry has the ABI `i32 entry(const Ctx*, void* const* args, void*
//! workspace)`. It and every parallel task only unpack pointers; the code
//! proper is an internal function that takes each buffer as a `noalias`
//! pointer, which is what lets LLVM keep values in registers across stores.

use crate::debug::DebugInfo;
use crate::raw::{BasicBlock, Builder, Cmp, ESTIMATES, Op, Type, Value};
use crate::tiles::{Region, Tiles};
use crate::value::Scope;
use ir::{BufferId, CpuTarget, Isa, VarId};
use lower::flat::{
    AccessId, BufferPlace, Code, FlatLoop, FlatLoopId, LaneOffsets, LanePattern, Stmt, Store,
    lane_parts,
};
use std::collections::{BTreeSet, HashMap};

/// State of the function being emitted.
struct Frame {
    function: Value,
    context: Value,
    workspace: Value,
    pointers: HashMap<BufferId, Value>,
    /// Enclosing loops outermost first, with the variables' values.
    vars: Vec<(VarId, Value)>,
    registers: HashMap<(BufferId, i64), Value>,
    tiles: Option<Tiles>,
}

pub struct Emitter<'a> {
    pub b: Builder,
    pub code: &'a Code,
    pub target: &'a CpuTarget,
    pub debug: Option<DebugInfo>,
    /// Buffers in memory, in the order in which functions take them.
    memory: Vec<BufferId>,
    /// Workspace buffers that share bytes with another: no `noalias` for them.
    overlapping: Vec<BufferId>,
    frame: Option<Frame>,
    name: String,
    /// The loop around what is emitted.
    inside: Option<FlatLoopId>,
    /// The statement being emitted, and its loads.
    statement: Option<AccessId>,
    loads: Vec<(AccessId, BufferId, ir::Expr)>,
    /// What loads of the statement being emitted give, where that is known already.
    pub ready: Vec<(BufferId, ir::Expr, Value)>,
    /// Statements being emitted whose sums are in tiles.
    pub region: Option<Region>,
}

const CTX_PARALLEL_FOR_OFFSET: i64 = 8;

fn round_up(bytes: u64) -> i64 {
    bytes.next_multiple_of(64) as i64
}

impl<'a> Emitter<'a> {
    pub fn new(
        b: Builder,
        code: &'a Code,
        target: &'a CpuTarget,
        debug: Option<DebugInfo>,
    ) -> Emitter<'a> {
        let in_memory = |p: BufferPlace| {
            !matches!(
                p,
                BufferPlace::Register | BufferPlace::Stack | BufferPlace::Unused
            )
        };
        let memory: Vec<BufferId> = (0..code.buffers.len() as u32)
            .map(BufferId)
            .filter(|b| in_memory(code.buffers[b.index()].place))
            .collect();
        let overlapping = overlapping(code, &memory);
        let name = String::new();
        Emitter {
            b,
            code,
            target,
            debug,
            memory,
            overlapping,
            frame: None,
            name,
            inside: None,
            statement: None,
            loads: vec![],
            ready: vec![],
            region: None,
        }
    }

    fn frame(&mut self) -> &mut Frame {
        self.frame.as_mut().expect("inside a function")
    }

    fn frame_ref(&self) -> &Frame {
        self.frame.as_ref().expect("inside a function")
    }

    pub fn tiles(&mut self) -> &mut Option<Tiles> {
        &mut self.frame().tiles
    }

    pub fn function(&self) -> Value {
        self.frame_ref().function
    }

    pub fn new_block(&self, name: &str) -> BasicBlock {
        self.b.append_block(self.function(), name)
    }

    pub fn loop_var(&self, v: VarId) -> Value {
        let found = self
            .frame_ref()
            .vars
            .iter()
            .rev()
            .find(|(var, _)| *var == v);
        found
            .unwrap_or_else(|| panic!("variable {} outside its loop", v.0))
            .1
    }

    /// Nesting depth of a loop variable, 1 for the outermost.
    pub fn depth_of(&self, v: VarId) -> usize {
        let at = self.frame_ref().vars.iter().position(|(var, _)| *var == v);
        at.map_or(usize::MAX, |i| i + 1)
    }

    pub fn pointer(&mut self, buffer: BufferId) -> Value {
        if let Some(p) = self.frame_ref().pointers.get(&buffer) {
            return *p;
        }
        let info = &self.code.buffers[buffer.index()];
        assert_eq!(
            info.place,
            BufferPlace::Stack,
            "buffer {} has no memory",
            info.name
        );
        let t = self.memory_type(info.dtype);
        let p = self
            .b
            .entry_alloca(self.function(), t, info.elements as u64, 64);
        self.frame().pointers.insert(buffer, p);
        p
    }

    /// The id of a load of the statement.
    fn load_id(&self, buffer: BufferId, offset: &ir::Expr) -> Option<AccessId> {
        let same = |l: &&(AccessId, BufferId, ir::Expr)| l.1 == buffer && l.2 == *offset;
        self.loads.iter().find(same).map(|l| l.0)
    }

    /// Where the lanes of a load of the statement lie, if the distances are constants.
    pub fn pattern(&self, buffer: BufferId, offset: &ir::Expr) -> Option<&'a LanePattern> {
        let id = self.load_id(buffer, offset)?;
        match &self.code.accesses[id as usize].offsets {
            LaneOffsets::Pattern(p) => Some(p),
            _ => None,
        }
    }

    /// Whether two buffers may share bytes.
    pub fn may_meet(&self, a: BufferId, b: BufferId) -> bool {
        self.overlapping.contains(&a) && self.overlapping.contains(&b)
    }

    /// The SSA value of a register; zero before its first write.
    pub fn register(&mut self, buffer: BufferId, at: i64, lanes: u32) -> Value {
        if let Some(v) = self.frame_ref().registers.get(&(buffer, at)) {
            return *v;
        }
        let scalar = self.value_type(self.code.buffers[buffer.index()].dtype);
        self.b.zero(self.b.vector_type(scalar, lanes))
    }

    pub fn set_register(&mut self, buffer: BufferId, at: i64, v: Value) {
        self.frame().registers.insert((buffer, at), v);
    }

    /// Emits the entry `name` that takes `params`.
    pub fn entry(&mut self, name: &str, params: &[BufferId], body: &[Stmt]) {
        self.name = name.to_string();
        let (ptr, i32_type) = (self.b.ptr_type(), self.b.int_type(32));
        let t = self.b.function_type(i32_type, &mut [ptr, ptr, ptr]);
        let f = self.b.add_function(name, t, false);
        self.function_attributes(f);
        let block = self.b.append_block(f, "entry");
        self.b.position_at_end(block);
        self.locate_outside(f);
        let (context, args, workspace) =
            (self.b.param(f, 0), self.b.param(f, 1), self.b.param(f, 2));
        let mut pointers = HashMap::new();
        for (i, p) in params.iter().enumerate() {
            let at = self.b.gep(ptr, args, self.index(i as i64));
            pointers.insert(*p, self.b.load(ptr, at, 8));
        }
        let worker = self.index(0);
        self.workspace_pointers(workspace, worker, &mut pointers);
        let mut values = vec![context, workspace];
        values.extend(
            self.memory
                .iter()
                .map(|m| self.pointer_or_null(&pointers, *m)),
        );
        let (inner, inner_type) = self.code_function(&format!("{name}.code"), &[], None, body);
        self.b.position_at_end(block);
        self.locate_outside(f);
        let r = self.b.call(inner_type, inner, &mut values);
        self.b.ret(r);
    }

    fn pointer_or_null(&self, pointers: &HashMap<BufferId, Value>, b: BufferId) -> Value {
        pointers
            .get(&b)
            .copied()
            .unwrap_or_else(|| self.b.zero(self.b.ptr_type()))
    }

    fn function_attributes(&self, f: Value) {
        self.b.add_attribute(f, u32::MAX, "nounwind");
        let width = self.target.vector_bits.max(128).to_string();
        self.b
            .add_string_attribute(f, "prefer-vector-width", &width);
        // Its estimates have 14 bits, so that one step suffices; those of AVX2 have 12.
        if self.target.isa == Isa::X86Avx512 {
            let (name, value) = ESTIMATES;
            self.b.add_string_attribute(f, name, value);
        }
        // The name decides the order of instructions. The target machine's level
        // and features decide which instructions there are: LLVM applies them
        // after what the name implies.
        if let Some(name) = &self.target.tune_cpu {
            self.b.add_string_attribute(f, "tune-cpu", name);
        }
        if let Some(d) = &self.debug {
            d.attach(f, &self.name);
        }
    }

    /// Instructions from here on belong to `function` and to no loop.
    fn locate_outside(&mut self, function: Value) {
        self.inside = None;
        self.enter_function(function);
        self.locate();
    }

    fn enter_function(&mut self, function: Value) {
        self.statement = None;
        if let Some(d) = &mut self.debug {
            d.enter(function);
        }
    }

    /// Adds the buffers in workspace that `pointers` has not yet.
    fn workspace_pointers(
        &self,
        workspace: Value,
        worker: Value,
        pointers: &mut HashMap<BufferId, Value>,
    ) {
        let byte = self.b.int_type(8);
        let shared = round_up(self.code.workspace_bytes);
        let each = round_up(self.code.worker_workspace_bytes);
        let own = self.b.op(Op::Mul, worker, self.index(each));
        let own = self.b.gep(byte, workspace, own);
        for m in &self.memory {
            let (base, offset) = match self.code.buffers[m.index()].place {
                _ if pointers.contains_key(m) => continue,
                BufferPlace::Workspace(o) => (workspace, o as i64),
                BufferPlace::WorkerWorkspace(o) => (own, shared + o as i64),
                _ => continue,
            };
            pointers.insert(*m, self.b.gep(byte, base, self.index(offset)));
        }
    }

    /// An internal function `(ctx, workspace, memory..., outer vars..., [begin, end])`
    /// around `body`; with `over`, `body` is run for that variable in `begin..end`.
    fn code_function(
        &mut self,
        name: &str,
        outer: &[VarId],
        over: Option<&FlatLoop>,
        body: &[Stmt],
    ) -> (Value, Type) {
        let (ptr, i32_type, i64_type) =
            (self.b.ptr_type(), self.b.int_type(32), self.b.int_type(64));
        let mut types = vec![ptr; 2 + self.memory.len()];
        types.resize(
            types.len() + outer.len() + if over.is_some() { 2 } else { 0 },
            i64_type,
        );
        let t = self.b.function_type(i32_type, &mut types);
        let f = self.b.add_function(name, t, true);
        self.function_attributes(f);
        let mut pointers = HashMap::new();
        for (i, m) in self.memory.iter().enumerate() {
            let at = 2 + i as u32;
            pointers.insert(*m, self.b.param(f, at));
            if !self.overlapping.contains(m) {
                self.b.add_attribute(f, at + 1, "noalias");
            }
        }
        let first_var = 2 + self.memory.len() as u32;
        let vars: Vec<(VarId, Value)> = outer
            .iter()
            .enumerate()
            .map(|(i, v)| (*v, self.b.param(f, first_var + i as u32)))
            .collect();
        let saved = self.frame.replace(Frame {
            function: f,
            context: self.b.param(f, 0),
            workspace: self.b.param(f, 1),
            pointers,
            vars,
            registers: HashMap::new(),
            tiles: None,
        });
        let entry = self.b.append_block(f, "entry");
        self.b.position_at_end(entry);
        self.locate_outside(f);
        match over {
            None => self.stmts(body),
            Some(l) => {
                let begin = self.b.param(f, first_var + outer.len() as u32);
                let end = self.b.param(f, first_var + outer.len() as u32 + 1);
                let some = self.b.cmp(Cmp::Slt, begin, end);
                let (run, done) = self.branch(some);
                self.b.position_at_end(run);
                self.counted_loop(l, begin, end, body);
                self.b.branch(done);
                self.b.position_at_end(done);
            }
        }
        self.release_tiles(self.frame_ref().tiles.as_ref());
        self.b.ret(self.b.const_int(i32_type, 0));
        self.frame = saved;
        if let Some(outer) = self.frame.as_ref().map(|f| f.function) {
            self.locate_outside(outer);
        }
        (f, t)
    }

    pub fn stmts(&mut self, mut stmts: &[Stmt]) {
        self.forget_factors();
        while let Some((s, later)) = stmts.split_first() {
            let together = match self.products_of_tiles(stmts) {
                0 => self.transposed(stmts),
                products => products,
            };
            match together {
                0 => stmts = later,
                done => {
                    stmts = &stmts[done..];
                    continue;
                }
            }
            match s {
                Stmt::Loop(l) if l.parallel => self.parallel_loop(l),
                Stmt::Loop(l) => {
                    let (begin, end) = (self.index(0), self.index(l.extent));
                    if l.extent == 1 {
                        self.frame().vars.push((l.var, begin));
                        self.stmts(&l.body);
                        self.frame().vars.pop();
                    } else if l.extent > 1 {
                        self.counted_loop(l, begin, end, &l.body);
                    }
                }
                Stmt::If {
                    cond,
                    then,
                    otherwise,
                } => self.if_stmt(cond, then, otherwise),
                Stmt::Store(s) => self.store_stmt(s),
                Stmt::Check { cond, code } => {
                    self.begin_other();
                    let c = self.expr(cond, &mut Scope::new(None)).value;
                    let (ok, fail) = self.branch(c);
                    self.b.position_at_end(fail);
                    self.b
                        .ret(self.b.const_int(self.b.int_type(32), i64::from(*code)));
                    self.b.position_at_end(ok);
                }
                Stmt::Prefetch { buffer, offset } => {
                    self.begin_other();
                    self.prefetch(*buffer, offset);
                }
            }
        }
        self.forget_factors();
    }

    /// What is emitted next is part of no store.
    pub fn begin_other(&mut self) {
        self.statement = None;
        self.loads.clear();
        self.locate();
    }

    pub fn store_stmt(&mut self, s: &Store) {
        self.locate_statement(s);
        let owned = |(id, b, at): (AccessId, BufferId, &ir::Expr)| (id, b, at.clone());
        self.loads = match s.lane.is_some() || self.debug.is_some() {
            true => s.loads_with_ids().into_iter().map(owned).collect(),
            false => vec![],
        };
        if self.dot_product(s) {
            return;
        }
        if self.combine_lanes(s) {
            return;
        }
        let mut scope = Scope::new(s.lane);
        if let Some(mask) = &s.mask {
            let mut m = self.expr(mask, &mut scope).value;
            if let Some(lane) = s.lane {
                m = self.widen(m, lane.lanes);
            }
            scope = Scope::masked(s.lane, m);
        }
        let v = self.expr(&s.value, &mut scope);
        self.store(s.buffer, &s.offset, v, &mut scope);
    }

    /// Branches on `cond` to two new blocks, which the caller fills.
    pub fn branch(&self, cond: Value) -> (BasicBlock, BasicBlock) {
        let (then, otherwise) = (self.new_block("then"), self.new_block("else"));
        self.b.branch_if(cond, then, otherwise);
        (then, otherwise)
    }

    /// The value of one of two computations, chosen by a scalar condition.
    pub fn branch_value(
        &mut self,
        cond: Value,
        sides: [&mut dyn FnMut(&mut Self) -> Value; 2],
    ) -> Value {
        let (yes, no) = self.branch(cond);
        let join = self.new_block("join");
        let mut incoming = Vec::new();
        for (block, f) in [yes, no].into_iter().zip(sides) {
            self.b.position_at_end(block);
            let v = f(self);
            incoming.push((v, self.b.current_block()));
            self.b.branch(join);
        }
        self.b.position_at_end(join);
        let phi = self.b.phi(self.b.type_of(incoming[0].0));
        for (v, from) in incoming {
            self.b.add_incoming(phi, v, from);
        }
        phi
    }

    fn if_stmt(&mut self, cond: &ir::Expr, then: &[Stmt], otherwise: &[Stmt]) {
        self.begin_other();
        let c = self.expr(cond, &mut Scope::new(None)).value;
        let (yes, no) = self.branch(c);
        let join = self.new_block("endif");
        let before = self.frame_ref().registers.clone();
        let mut ends = Vec::new();
        for (block, body) in [(yes, then), (no, otherwise)] {
            self.frame().registers = before.clone();
            self.b.position_at_end(block);
            self.stmts(body);
            let registers = std::mem::take(&mut self.frame().registers);
            ends.push((registers, self.b.current_block()));
            self.b.branch(join);
        }
        self.b.position_at_end(join);
        let keys: BTreeSet<(BufferId, i64)> =
            ends.iter().flat_map(|(r, _)| r.keys().copied()).collect();
        let mut merged = HashMap::new();
        for key in keys {
            let values: Vec<Option<Value>> =
                ends.iter().map(|(r, _)| r.get(&key).copied()).collect();
            if values[0] == values[1] {
                merged.insert(key, values[0].expect("one side has the key"));
                continue;
            }
            let t = self
                .b
                .type_of(values[0].or(values[1]).expect("one side has the key"));
            let phi = self.b.phi(t);
            for (v, (_, from)) in values.iter().zip(&ends) {
                self.b
                    .add_incoming(phi, v.unwrap_or_else(|| self.b.zero(t)), *from);
            }
            merged.insert(key, phi);
        }
        self.frame().registers = merged;
    }

    /// A loop from `begin` to `end`, which is larger; registers that the body
    /// writes become phis of the header.
    fn counted_loop(&mut self, l: &FlatLoop, begin: Value, end: Value, body: &[Stmt]) {
        let name = format!("L{}.{}", l.id, self.code.loops[l.id as usize].name);
        let header = self.new_block(&name);
        let from = self.b.current_block();
        let around = self.inside.replace(l.id);
        self.locate();
        self.b.branch(header);
        self.b.position_at_end(header);
        let i = self.b.phi(self.b.int_type(64));
        self.b.add_incoming(i, begin, from);
        let mut carried = BTreeSet::new();
        written_registers(self.code, body, &mut carried);
        let mut phis = Vec::new();
        for (buffer, at, lanes) in carried {
            let initial = self.register(buffer, at, lanes);
            let phi = self.b.phi(self.b.type_of(initial));
            self.b.add_incoming(phi, initial, from);
            self.set_register(buffer, at, phi);
            phis.push((buffer, at, lanes, phi));
        }
        self.frame().vars.push((l.var, i));
        let exit = self.new_block(&format!("{name}.end"));
        let ending = l.ending();
        let ended = ending.as_ref().map(|ending| {
            self.begin_other();
            let c = self.expr(&ending.condition, &mut Scope::new(None)).value;
            let (go_on, from) = (self.new_block("then"), self.b.current_block());
            self.b.branch_if(c, go_on, exit);
            self.b.position_at_end(go_on);
            from
        });
        self.stmts(ending.as_ref().map_or(body, |e| &e.body));
        self.frame().vars.pop();
        self.locate();
        let next = self.b.op(Op::Add, i, self.index(1));
        let latch = self.b.current_block();
        self.b.add_incoming(i, next, latch);
        let mut last = Vec::new();
        for (buffer, at, lanes, phi) in &phis {
            let v = self.register(*buffer, *at, *lanes);
            self.b.add_incoming(*phi, v, latch);
            last.push(v);
        }
        let more = self.b.cmp(Cmp::Slt, next, end);
        self.b.branch_if(more, header, exit);
        self.b.position_at_end(exit);
        if let Some(from) = ended {
            for ((buffer, at, _, before), v) in phis.into_iter().zip(last) {
                let left = self.b.phi(self.b.type_of(v));
                self.b.add_incoming(left, before, from);
                self.b.add_incoming(left, v, latch);
                self.set_register(buffer, at, left);
            }
        }
        self.inside = around;
        self.locate();
    }

    /// Instructions from here on are bookkeeping of the loop around.
    fn locate(&self) {
        if let Some(d) = &self.debug {
            self.b.set_debug_location(d.location(self.inside, None));
        }
    }

    /// Instructions from here on belong to a statement.
    pub fn locate_statement(&mut self, s: &Store) {
        self.statement = Some(s.id);
        self.locate_access(s.id);
    }

    fn locate_access(&self, id: AccessId) {
        if let Some(d) = &self.debug {
            self.b.set_debug_location(d.location(self.inside, Some(id)));
        }
    }

    /// Instructions that `emit` makes belong to a load of the statement.
    pub fn located_load<T>(
        &mut self,
        buffer: BufferId,
        offset: &ir::Expr,
        emit: impl FnOnce(&mut Self) -> T,
    ) -> T {
        if self.debug.is_none() {
            return emit(self);
        }
        if let Some(id) = self.load_id(buffer, offset) {
            self.locate_access(id);
        }
        let value = emit(self);
        match self.statement {
            Some(id) => self.locate_access(id),
            None => self.locate(),
        }
        value
    }

    fn parallel_loop(&mut self, l: &FlatLoop) {
        let here = self.b.current_block();
        let around = self.inside;
        let outer: Vec<(VarId, Value)> = self.frame_ref().vars.clone();
        let outer_vars: Vec<VarId> = outer.iter().map(|(v, _)| *v).collect();
        let name = format!("{}.L{}", self.name, l.id);
        let (inner, inner_type) = self.code_function(&name, &outer_vars, Some(l), &l.body);
        let task = self.task_function(&name, outer.len(), inner, inner_type);
        self.b.position_at_end(here);
        self.enter_function(self.function());
        self.inside = around;
        self.locate();

        // The environment: workspace, the shared buffers' pointers, the outer variables.
        let (ptr, word, i32_type) = (self.b.ptr_type(), self.b.int_type(64), self.b.int_type(32));
        let params = self.parameters();
        let slots = 1 + params.len() + outer.len();
        let env = self.b.entry_alloca(self.function(), word, slots as u64, 8);
        let mut values = vec![self.frame_ref().workspace];
        for p in &params {
            values.push(self.pointer(*p));
        }
        values.extend(outer.iter().map(|(_, v)| *v));
        for (i, v) in values.into_iter().enumerate() {
            let at = self.b.gep(word, env, self.index(i as i64));
            self.b.store(v, at, 8);
        }
        let context = self.frame_ref().context;
        let byte = self.b.int_type(8);
        let at = self
            .b
            .gep(byte, context, self.index(CTX_PARALLEL_FOR_OFFSET));
        let parallel_for = self.b.load(ptr, at, 8);
        let t = self.b.function_type(i32_type, &mut [ptr, ptr, ptr, word]);
        let args = &mut [context, task, env, self.index(l.extent)];
        let status = self.b.call(t, parallel_for, args);
        let ok = self.b.cmp(Cmp::Eq, status, self.b.zero(i32_type));
        let (then, fail) = self.branch(ok);
        self.b.position_at_end(fail);
        self.b.ret(status);
        self.b.position_at_end(then);
        self.forget_tiles();
    }

    /// Buffers that a task shares with its caller, and so gets the pointers of: they alias
    /// nothing else, and one that were derived anew would. A worker's own are derived.
    fn parameters(&self) -> Vec<BufferId> {
        let outside = |p: BufferPlace| !matches!(p, BufferPlace::WorkerWorkspace(_));
        let all = self.memory.iter().copied();
        all.filter(|m| outside(self.code.buffers[m.index()].place))
            .collect()
    }

    /// `i32 task(ctx, env, begin, end, worker)`: unpacks `env` and calls `inner`.
    fn task_function(&mut self, name: &str, vars: usize, inner: Value, inner_type: Type) -> Value {
        let (ptr, word, i32_type) = (self.b.ptr_type(), self.b.int_type(64), self.b.int_type(32));
        let t = self
            .b
            .function_type(i32_type, &mut [ptr, ptr, word, word, i32_type]);
        let f = self.b.add_function(&format!("{name}.task"), t, true);
        self.function_attributes(f);
        let block = self.b.append_block(f, "entry");
        self.b.position_at_end(block);
        self.locate_outside(f);
        let (context, env) = (self.b.param(f, 0), self.b.param(f, 1));
        let slot = |me: &Self, i: usize, t: Type| {
            let at = me.b.gep(word, env, me.index(i as i64));
            me.b.load(t, at, 8)
        };
        let workspace = slot(self, 0, ptr);
        let params = self.parameters();
        let mut pointers = HashMap::new();
        for (i, p) in params.iter().enumerate() {
            pointers.insert(*p, slot(self, 1 + i, ptr));
        }
        let worker = self
            .b
            .convert(crate::raw::Conv::SExt, self.b.param(f, 4), word);
        self.workspace_pointers(workspace, worker, &mut pointers);
        let mut args = vec![context, workspace];
        args.extend(
            self.memory
                .iter()
                .map(|m| self.pointer_or_null(&pointers, *m)),
        );
        args.extend((0..vars).map(|i| slot(self, 1 + params.len() + i, word)));
        args.extend([self.b.param(f, 2), self.b.param(f, 3)]);
        let r = self.b.call(inner_type, inner, &mut args);
        self.b.ret(r);
        f
    }
}

/// Registers written under `stmts`, not counting parallel loops: (buffer, offset, lanes).
fn written_registers(code: &Code, stmts: &[Stmt], out: &mut BTreeSet<(BufferId, i64, u32)>) {
    for s in stmts {
        match s {
            Stmt::Loop(l) if !l.parallel => written_registers(code, &l.body, out),
            Stmt::If {
                then, otherwise, ..
            } => {
                written_registers(code, then, out);
                written_registers(code, otherwise, out);
            }
            Stmt::Store(s) if code.buffers[s.buffer.index()].place == BufferPlace::Register => {
                let parts = match s.lane {
                    Some(lane) => lane_parts(&s.offset, lane.var),
                    None => Some((s.offset.clone(), 0)),
                };
                let (base, stride) = parts.expect("register offsets are affine in the lane");
                let at = base.as_int().expect("register offsets are constant");
                let lanes = s.lane.map_or(0, |l| if stride == 0 { 0 } else { l.lanes });
                out.insert((s.buffer, at, lanes));
            }
            _ => {}
        }
    }
}

fn overlapping(code: &Code, memory: &[BufferId]) -> Vec<BufferId> {
    let range = |b: BufferId| {
        let info = &code.buffers[b.index()];
        let bytes = info.elements as u64 * info.dtype.size() as u64;
        match info.place {
            BufferPlace::Workspace(o) => Some((false, o, o + bytes)),
            BufferPlace::WorkerWorkspace(o) => Some((true, o, o + bytes)),
            _ => None,
        }
    };
    let meets = |a: BufferId, b: BufferId| match (range(a), range(b)) {
        (Some((ka, a0, a1)), Some((kb, b0, b1))) => ka == kb && a0 < b1 && b0 < a1,
        _ => false,
    };
    let shares = |a: BufferId| code.in_place.iter().any(|(o, i)| *o == a || *i == a);
    let overlaps = |a: BufferId| memory.iter().any(|b| a != *b && meets(a, *b));
    let memory = memory.iter().copied();
    memory.filter(|a| shares(*a) || overlaps(*a)).collect()
}
