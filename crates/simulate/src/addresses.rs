//! The addresses that a kernel touches, in order, without its arithmetic.
//!
//! Flat code is compiled to loops, conditions and accesses whose offsets are sums of multiples of loop
//! variables wherever that is so. Which accesses are made at all, and how often, is told by the machine code
//! (see [`crate::own`]): a load that the code generator moved out of a loop is made once a run of that loop.

mod contents;
mod plan;
mod sampling;
mod straight;
mod terms;
#[cfg(test)]
mod tests;

pub use sampling::EVENTS;

use crate::cache::{Access, Caches, LINE};
use crate::frame::Frame;
use contents::Contents;
use ir::{BinaryOp, Expr, ExprKind, VarId};
use llvm::pattern_loads;
use lower::flat::{
    AccessId, BufferPlace, Code, FlatLoopId, Lane, LaneOffsets, LanePattern, Stmt, Store,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use straight::{OfLane, Straight};
use terms::{Condition, Number, State, Sums};
use thiserror::Error;

/// Bytes of a page: buffers begin on pages.
const PAGE: u64 = 4096;

/// Why a kernel's addresses are not followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotFollowed {
    /// Elements of this buffer decide addresses or conditions, and are not known before the kernel runs.
    #[error("which addresses are accessed depends on what is in `{buffer}`")]
    DependsOnData { buffer: String },
    /// The kernel would fail.
    #[error(
        "an index in `{buffer}` is out of bounds, as simulated inputs hold whole numbers up to {}; take a larger shape",
        crate::executable::PERIOD - 1
    )]
    OutOfBounds { buffer: String },
}

/// How the machine code makes an access of flat code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Instructions that access memory, each time that the access is made.
    pub instructions: u32,
    /// Loops around it, from the innermost, in whose first iteration alone it is made.
    pub hoisted: u32,
}

/// A kernel's addresses as a program.
#[derive(Debug)]
pub struct Addresses {
    sums: Sums,
    /// Lines of the buffers that are accessed.
    lines: u64,
    /// The first lines of memory, which hold all buffers.
    data_lines: u64,
    nodes: Vec<Node>,
}

#[derive(Debug)]
enum Node {
    Loop {
        var: usize,
        extent: i64,
        body: Vec<Node>,
        /// The body as a list, if its accesses step by constants.
        straight: Option<Straight>,
    },
    If {
        cond: Condition,
        then: Vec<Node>,
        otherwise: Vec<Node>,
    },
    /// The kernel fails unless the condition holds, as an index in the buffer is out of bounds.
    Check(Condition, Arc<str>),
    Touch(Touch),
    Lanes(Lanes),
}

/// An access, by one instruction for each distance.
#[derive(Debug)]
struct Touch {
    at: Number,
    distances: Vec<i64>,
    bytes: u64,
    access: Access,
    /// Variables that are 0 whenever the access is made.
    only_at_first: Vec<usize>,
}

/// Elements of so many bytes whose addresses, and whether they are accessed, depend on the lane.
#[derive(Debug)]
struct Lanes {
    at: Number,
    var: usize,
    lanes: i64,
    mask: Option<Condition>,
    /// The ranges of the mask and the step of the address, if both are linear in the lane.
    linear: Option<(Vec<OfLane>, i64)>,
    bytes: u64,
    access: Access,
    only_at_first: Vec<usize>,
}

impl Addresses {
    /// Of a kernel with its parameters at page boundaries, one after the other. Accesses that `made` does
    /// not name are left out. Lines of the frame are used at the begin of an iteration, and at its end.
    pub fn of(
        code: &Code,
        made: &HashMap<AccessId, Made>,
        frame: &Frame,
    ) -> Result<Addresses, NotFollowed> {
        let (bases, end) = bases(code);
        let mut compiler = Compiler {
            code,
            made,
            frame,
            transposed: None,
            chosen: None,
            bases,
            loops: vec![],
            extents: HashMap::new(),
            contents: Contents::of(code),
            sums: Sums::new(code.vars.len()),
        };
        let mut nodes = compiler.stmts(&code.kernel)?;
        straighten(&mut nodes, &compiler.sums, &mut 0);
        Ok(Addresses {
            sums: compiler.sums,
            lines: lines(code, made) + frame.len(),
            data_lines: end.div_ceil(LINE),
            nodes,
        })
    }

    /// The first lines of memory, which hold all buffers.
    pub(crate) fn data_lines(&self) -> u64 {
        self.data_lines
    }

    /// Makes all accesses.
    ///
    /// # Errors
    /// If an index is out of bounds.
    pub fn run(&self, caches: &mut Caches) -> Result<(), NotFollowed> {
        let mut state = State::new(&self.sums);
        for node in &self.nodes {
            node.run(&mut state, caches);
        }
        state.ended()
    }
}

/// Lines of the buffers that have an access which is made.
fn lines(code: &Code, made: &HashMap<AccessId, Made>) -> u64 {
    let used = made.keys().map(|id| code.accesses[*id as usize].buffer);
    let used: BTreeSet<usize> = used.map(|b| b.index()).collect();
    let of = |at: &usize| {
        let b = &code.buffers[*at];
        let bytes = b.elements.max(0) as u64 * b.dtype.size() as u64;
        match b.place {
            BufferPlace::Register | BufferPlace::Unused => 0,
            _ => bytes.div_ceil(LINE),
        }
    };
    used.iter().map(of).sum()
}

/// The address of each buffer, and where the last one ends. Those of a worker's own follow the shared workspace.
fn bases(code: &Code) -> (Vec<i64>, u64) {
    let mut next = PAGE;
    let mut take = |bytes: u64| {
        let at = next;
        next = (next + bytes).next_multiple_of(PAGE) + PAGE;
        at as i64
    };
    let shared = take(code.workspace_bytes);
    let worker = take(code.worker_workspace_bytes);
    let buffers = code.buffers.iter().map(|b| match b.place {
        BufferPlace::Workspace(at) => shared + at as i64,
        BufferPlace::WorkerWorkspace(at) => worker + at as i64,
        BufferPlace::Unused | BufferPlace::Register => 0,
        _ => take(b.elements.max(0) as u64 * b.dtype.size() as u64),
    });
    (buffers.collect(), next)
}

struct Compiler<'a> {
    code: &'a Code,
    made: &'a HashMap<AccessId, Made>,
    frame: &'a Frame,
    /// The distances of the lanes that the last statement loaded by rows, and the next lane.
    transposed: Option<(Vec<i64>, usize)>,
    /// The lanes that take a value that has the current load.
    chosen: Option<Expr>,
    bases: Vec<i64>,
    /// Around the current statement, outermost first.
    loops: Vec<(FlatLoopId, VarId)>,
    /// Of the variables of these loops.
    extents: HashMap<VarId, i64>,
    contents: Contents<'a>,
    sums: Sums,
}

impl Compiler<'_> {
    fn stmts(&mut self, stmts: &[Stmt]) -> Result<Vec<Node>, NotFollowed> {
        let mut nodes = Vec::new();
        for s in stmts {
            match s {
                Stmt::Loop(l) => {
                    self.loops.push((l.id, l.var));
                    let before = self.extents.insert(l.var, l.extent);
                    let mut body = self.stmts(&l.body)?;
                    if !body.is_empty() {
                        self.spilled(l.id, &mut body)?;
                    }
                    self.loops.pop();
                    match before {
                        Some(before) => self.extents.insert(l.var, before),
                        None => self.extents.remove(&l.var),
                    };
                    if body.is_empty() {
                        continue;
                    }
                    let (var, extent) = (l.var.index(), l.extent);
                    nodes.push(Node::Loop {
                        var,
                        extent,
                        body,
                        straight: None,
                    });
                }
                Stmt::If {
                    cond,
                    then,
                    otherwise,
                } => {
                    let (then, otherwise) = (self.stmts(then)?, self.stmts(otherwise)?);
                    if !then.is_empty() || !otherwise.is_empty() {
                        let cond = self.choice(cond)?;
                        match cond.always_holds() {
                            true => nodes.extend(then),
                            false => nodes.push(Node::If {
                                cond,
                                then,
                                otherwise,
                            }),
                        }
                    }
                }
                Stmt::Store(s) => self.store(s, &mut nodes)?,
                Stmt::Check { cond, .. } => nodes.extend(self.check(cond)),
                // Hints move lines earlier than they are needed; the lines are the same.
                Stmt::Prefetch { .. } => {}
            }
        }
        Ok(nodes)
    }

    /// Adds the uses of the frame in an iteration of a loop to its body. What is used more than once is used before and
    /// after inner loops.
    fn spilled(&mut self, id: FlatLoopId, body: &mut Vec<Node>) -> Result<(), NotFollowed> {
        let has_loops = body.iter().any(|n| matches!(n, Node::Loop { .. }));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (line, uses) in self.frame.lines(id) {
            let at = |sums: &mut Sums| {
                sums.number(&Expr::int(0), (1, line), &self.contents, &self.extents)
            };
            let node = |at, access| {
                Node::Touch(Touch {
                    at,
                    distances: vec![0],
                    bytes: 1,
                    access,
                    only_at_first: vec![],
                })
            };
            // Fewer uses are those of a condition that seldom holds.
            let (loads, stores) = (uses.loads >= 0.5, uses.stores >= 0.5);
            if loads || stores {
                let access = if stores { Access::Write } else { Access::Read };
                before.push(node(at(&mut self.sums)?, access));
            }
            if has_loops && loads && (stores || uses.loads >= 1.5) {
                after.push(node(at(&mut self.sums)?, Access::Read));
            }
        }
        body.splice(0..0, before);
        body.extend(after);
        Ok(())
    }

    /// The condition of an `if`. What data decide in it must hold whatever they are: the analysis of the machine code
    /// takes it to hold, and so do the counts of instructions.
    fn choice(&mut self, cond: &Expr) -> Result<Condition, NotFollowed> {
        if let ExprKind::Binary(BinaryOp::And, a, b) = cond.kind() {
            return Ok(self.choice(a)?.and(self.choice(b)?));
        }
        if !cond.loads() {
            return self.sums.condition(cond, &self.contents, &self.extents);
        }
        match self.contents.always(cond, true) {
            true => Ok(Condition::default()),
            false => Err(self.contents.decided_by(cond)),
        }
    }

    /// None if the check never fails, or if nobody knows. Then the accesses that it guards are not followed either.
    fn check(&mut self, cond: &Expr) -> Option<Node> {
        if self.contents.always(cond, true) {
            return None;
        }
        let condition = self
            .sums
            .condition(cond, &self.contents, &self.extents)
            .ok()?;
        Some(Node::Check(condition, self.contents.loaded(cond).into()))
    }

    fn store(&mut self, s: &Store, nodes: &mut Vec<Node>) -> Result<(), NotFollowed> {
        let mut ids = s.loads.iter();
        for e in [Some(&s.value), Some(&s.offset), s.mask.as_ref()]
            .into_iter()
            .flatten()
        {
            self.loads(e, s, &mut ids, nodes)?;
        }
        nodes.extend(self.touch(s.id, s, &s.offset, None)?);
        Ok(())
    }

    /// The loads of an expression in the order of `Expr::visit`; those of a side that is chosen run
    /// only if it is.
    fn loads<'i>(
        &mut self,
        e: &Expr,
        s: &Store,
        ids: &mut impl Iterator<Item = &'i AccessId>,
        nodes: &mut Vec<Node>,
    ) -> Result<(), NotFollowed> {
        if !e.loads() {
            return Ok(());
        }
        match e.kind() {
            ExprKind::Load(_, index) => {
                if let Some(id) = ids.next() {
                    nodes.extend(self.touch(*id, s, &index[0], Some(e))?);
                }
                self.loads(&index[0], s, ids, nodes)
            }
            ExprKind::Select(c, a, b)
                if !c.loads() && !s.lane.is_some_and(|l| c.uses_var(l.var)) =>
            {
                let (mut then, mut otherwise) = (vec![], vec![]);
                self.loads(a, s, ids, &mut then)?;
                self.loads(b, s, ids, &mut otherwise)?;
                if !then.is_empty() || !otherwise.is_empty() {
                    nodes.push(Node::If {
                        cond: self.sums.condition(c, &self.contents, &self.extents)?,
                        then,
                        otherwise,
                    });
                }
                Ok(())
            }
            ExprKind::Select(c, a, b) if !c.loads() && !b.loads() => {
                let before = self.chosen.clone();
                self.chosen = Some(match &before {
                    Some(around) => around.clone().and(c.clone()),
                    None => c.clone(),
                });
                let found = self.loads(a, s, ids, nodes);
                self.chosen = before;
                found
            }
            _ => {
                for child in e.children() {
                    self.loads(child, s, ids, nodes)?;
                }
                Ok(())
            }
        }
    }

    /// An access of a statement: of the load `e`, or of the store.
    fn touch(
        &mut self,
        id: AccessId,
        s: &Store,
        offset: &Expr,
        load: Option<&Expr>,
    ) -> Result<Option<Node>, NotFollowed> {
        let Some(made) = self.made.get(&id) else {
            return Ok(None);
        };
        let info = &self.code.accesses[id as usize];
        let buffer = &self.code.buffers[info.buffer.index()];
        if matches!(buffer.place, BufferPlace::Register | BufferPlace::Unused) {
            return Ok(None);
        }
        let bytes = buffer.dtype.size() as i64;
        let lane = s.lane.filter(|l| info.lanes > 1 || offset.uses_var(l.var));
        let mask = s.mask.as_ref().filter(|m| lane.is_some() && !m.loads());
        let access = match load {
            Some(_) => Access::Read,
            None => Access::Write,
        };
        let base = self.bases[info.buffer.index()];
        let around = self.loops.iter().rev().take(made.hoisted as usize);
        let only_at_first: Vec<usize> = around.map(|(_, v)| v.index()).collect();
        let each = |lane: Lane| (lane, mask);
        // What only some lanes load is loaded lane by lane, unless all of it may be read.
        let chosen = self.chosen.clone().filter(|_| load.is_some());
        let (offset, (distances, size)) = match (lane, &info.offsets) {
            (None, _) => (offset.clone(), together(1, bytes, made)),
            (Some(lane), _) if mask.is_some() => {
                return self.lanes(offset, each(lane), (base, bytes), access, only_at_first);
            }
            (Some(lane), LaneOffsets::Consecutive) => {
                // The lane's variable is 0 when no lane is looked at alone.
                (offset.clone(), together(i64::from(lane.lanes), bytes, made))
            }
            (Some(lane), LaneOffsets::Pattern(p)) if p.readable.is_none() && chosen.is_some() => {
                let lane = (lane, chosen.as_ref());
                return self.lanes(offset, lane, (base, bytes), access, only_at_first);
            }
            (Some(_), LaneOffsets::Pattern(p)) => {
                let masked = load.map(|_| s.mask.is_some());
                let lanes = self.of_pattern(p, bytes, made, masked);
                (p.base.clone() + p.span().start, lanes)
            }
            (Some(lane), _) => {
                return self.lanes(offset, each(lane), (base, bytes), access, only_at_first);
            }
        };
        let at = self
            .sums
            .number(&offset, (bytes, base), &self.contents, &self.extents)?;
        Ok(Some(Node::Touch(Touch {
            at,
            distances,
            bytes: size,
            access,
            only_at_first,
        })))
    }

    /// Distances in bytes of the accesses of a pattern from its element that comes first, and the bytes of each.
    /// `masked` is whether a load is; a store has none.
    fn of_pattern(
        &mut self,
        p: &LanePattern,
        bytes: i64,
        made: &Made,
        masked: Option<bool>,
    ) -> (Vec<i64>, u64) {
        let span = p.span();
        let from_first = |d: &i64| (d - span.start) * bytes;
        let all: Vec<i64> = p.distances.iter().map(from_first).collect();
        let instructions = made.instructions as usize;
        if instructions >= all.len() {
            return (all, bytes as u64);
        }
        // Wide loads, whose lanes are then put in order. They may read more than the lanes.
        let wide = masked.and_then(|masked| pattern_loads(p, masked, instructions));
        if let Some((starts, lanes)) = wide {
            let each = u64::from(lanes) * bytes as u64;
            return (starts.iter().map(from_first).collect(), each);
        }
        let spanned = (span.end - span.start) * bytes;
        match spanned > instructions as i64 * LINE as i64 {
            // Loads of further statements are those of the other lanes.
            true => (self.next_lanes(all, instructions), bytes as u64),
            false => together(span.end - span.start, bytes, made),
        }
    }

    /// The distances of the lanes that a statement loads where rows of several statements are transposed in
    /// registers: each of its loads has the elements of one lane for all of them.
    fn next_lanes(&mut self, all: Vec<i64>, loads: usize) -> Vec<i64> {
        let next = match &self.transposed {
            Some((last, next)) if *last == all => *next,
            _ => 0,
        };
        let lanes = (next..next + loads).map(|lane| all[lane % all.len()]);
        let lanes = lanes.collect();
        let next = (next + loads) % all.len();
        self.transposed = Some((all, next));
        lanes
    }

    /// Lanes that are looked at one by one.
    fn lanes(
        &mut self,
        offset: &Expr,
        (lane, mask): (Lane, Option<&Expr>),
        (base, bytes): (i64, i64),
        access: Access,
        only_at_first: Vec<usize>,
    ) -> Result<Option<Node>, NotFollowed> {
        let (var, lanes) = (lane.var.index(), i64::from(lane.lanes));
        let mut extents = self.extents.clone();
        extents.insert(lane.var, lanes);
        let at = self
            .sums
            .number(offset, (bytes, base), &self.contents, &extents)?;
        let mask = mask
            .map(|m| self.sums.condition(m, &self.contents, &extents))
            .transpose()?;
        let others = mask.as_ref().map_or(0, |m| m.others.len());
        let ranges = mask.iter().flat_map(|m| &m.ranges);
        let ranges = ranges.map(|r| OfLane::of(*r, var, &self.sums)).collect();
        let is_linear = others == 0 && !at.parts_change(var, &self.sums);
        let linear = is_linear.then(|| (ranges, self.sums.step(at.sum, var)));
        Ok(Some(Node::Lanes(Lanes {
            at,
            var,
            lanes,
            mask,
            linear,
            bytes: bytes as u64,
            access,
            only_at_first,
        })))
    }
}

/// Distances and bytes of the accesses of so many instructions to elements next to each other.
fn together(lanes: i64, bytes: i64, made: &Made) -> (Vec<i64>, u64) {
    let bytes = (lanes * bytes) as u64;
    let instructions = u64::from(made.instructions.max(1));
    let each = bytes.div_ceil(instructions);
    let distances = (0..instructions).map(|i| (i * each).min(bytes - each) as i64);
    (distances.collect(), each)
}

/// Finds the loops whose accesses step by constants, and numbers them. All sums are known by then.
fn straighten(nodes: &mut [Node], sums: &Sums, next: &mut usize) {
    for n in nodes {
        match n {
            Node::Loop {
                var,
                extent,
                body,
                straight,
            } => {
                straighten(body, sums, next);
                *straight = Straight::of(body, (*var, *extent), *next, sums);
                *next += usize::from(straight.is_some());
            }
            Node::If {
                then, otherwise, ..
            } => {
                straighten(then, sums, next);
                straighten(otherwise, sums, next);
            }
            Node::Check(..) | Node::Touch(_) | Node::Lanes(_) => {}
        }
    }
}

impl Node {
    fn run(&self, state: &mut State<'_>, caches: &mut Caches) {
        match self {
            Node::Touch(t) => t.run(state, caches),
            Node::Lanes(l) => l.run(state, caches),
            Node::Check(cond, buffer) => {
                if !cond.holds(state) {
                    state.outside.get_or_insert_with(|| buffer.clone());
                }
            }
            Node::If {
                cond,
                then,
                otherwise,
            } => {
                let side = if cond.holds(state) { then } else { otherwise };
                side.iter().for_each(|n| n.run(state, caches));
            }
            Node::Loop {
                extent,
                straight: Some(straight),
                ..
            } => straight.run(*extent, state, caches),
            Node::Loop {
                var, extent, body, ..
            } => {
                for i in 0..*extent {
                    state.set(*var, i);
                    body.iter().for_each(|n| n.run(state, caches));
                    if state.outside.is_some() {
                        break;
                    }
                }
                state.set(*var, 0);
            }
        }
    }
}

fn is_first(only_at_first: &[usize], state: &State<'_>) -> bool {
    only_at_first.iter().all(|v| state.vars[*v] == 0)
}

impl Touch {
    fn run(&self, state: &State<'_>, caches: &mut Caches) {
        if is_first(&self.only_at_first, state) {
            let at = self.at.at(state);
            for d in &self.distances {
                caches.access((at + d) as u64, self.bytes, self.access);
            }
        }
    }
}

impl Lanes {
    fn run(&self, state: &mut State<'_>, caches: &mut Caches) {
        if !is_first(&self.only_at_first, state) {
            return;
        }
        // Lanes of one line are one access.
        let mut line = u64::MAX;
        let mut lane_at = |at: u64| {
            if at / LINE != line {
                line = at / LINE;
                caches.access(at, self.bytes, self.access);
            }
        };
        if let Some((ranges, step)) = &self.linear {
            let (first, end) = straight::lanes(ranges, 0, self.lanes, state);
            let at = self.at.at(state);
            (first..end).for_each(|lane| lane_at((at + lane * step) as u64));
            return;
        }
        for lane in 0..self.lanes {
            state.set(self.var, lane);
            if self.mask.as_ref().is_none_or(|m| m.holds(state)) {
                lane_at(self.at.at(state) as u64);
            }
        }
        state.set(self.var, 0);
    }
}
