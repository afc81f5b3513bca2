//! Flat code: structured statements over one-dimensional buffers.
//!
//! What is left after every scheduling decision has been carried out: loops
//! with constant extents, ifs, and stores whose operands are `ir::Expr` trees
//! with flat element offsets. A code generator needs to make no choice of its
//! own: vector lanes, registers, unrolling and memory are all explicit.
//!
//! Expressions are those of `ir`, with these readings: `Load(b, [offset])` has
//! exactly one index, an element offset into the memory of `b`; variables are
//! loop variables, or the lane variable of the statement. Buffer and variable
//! ids index `Code::buffers` and `Code::vars`.

pub mod interpret;
mod lanes;
mod scalar;
pub mod text;
pub mod verify;

pub use lanes::{LaneOffsets, LanePattern, lane_parts};

use ir::{BinaryOp, BufferId, DType, Expr, ExprKind, VarId};
use std::fmt;

/// A kernel, and the prepare entry that computes what depends on constants only.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    pub name: String,
    /// Names of variables, indexed by `VarId`.
    pub vars: Vec<String>,
    /// Indexed by `BufferId`.
    pub buffers: Vec<FlatBuffer>,
    /// Arguments of `kernel`, in order: the program's parameters that the kernel
    /// still uses (all inputs and outputs, constants that are read), then prepared buffers.
    pub params: Vec<BufferId>,
    /// Arguments of `prepare`, in order: all constants, then all prepared buffers.
    pub prepare_params: Vec<BufferId>,
    /// Outputs that callers may give the memory of an input, with that input.
    pub in_place: Vec<(BufferId, BufferId)>,
    pub kernel: Vec<Stmt>,
    /// Empty if nothing is prepared.
    pub prepare: Vec<Stmt>,
    /// Bytes shared by all workers.
    pub workspace_bytes: u64,
    /// Bytes of each worker, after the shared part.
    pub worker_workspace_bytes: u64,
    /// Every loop, indexed by its id.
    pub loops: Vec<LoopInfo>,
    /// Every load and store, indexed by its id.
    pub accesses: Vec<AccessInfo>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FlatBuffer {
    pub name: String,
    pub dtype: DType,
    /// Elements reachable, from offset 0 of the memory.
    pub elements: i64,
    /// The logical shape of a parameter (empty for others).
    pub shape: Vec<i64>,
    pub place: BufferPlace,
    /// Why a buffer of scope `register` has another place.
    pub spill: Option<SpillReason>,
}

/// What keeps a buffer out of the registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpillReason {
    /// Some accesses lie in a parallel loop, others outside of it.
    ParallelBorder,
    /// An offset depends on variables of loops that are not unrolled.
    Loops { offset: String, loops: Vec<String> },
    /// An offset is neither a constant nor a constant and the lane.
    Offset { offset: String },
    /// Accesses have different numbers of lanes.
    Lanes(u32, u32),
    /// The lanes from this offset on are not one register: the offset or the number of
    /// elements is no multiple of the lanes, or the offset lies outside.
    Alignment { offset: i64, lanes: u32 },
}

impl fmt::Display for SpillReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpillReason::ParallelBorder => {
                write!(f, "accessed inside and outside of a parallel loop")
            }
            SpillReason::Loops { offset, loops } => {
                let loops = loops.join(", ");
                write!(
                    f,
                    "{offset} depends on loops that are not unrolled: {loops}"
                )
            }
            SpillReason::Offset { offset } => write!(f, "the offset of {offset} is not constant"),
            SpillReason::Lanes(a, b) => write!(f, "accessed by {a} lanes and by {b}"),
            SpillReason::Alignment { offset, lanes } => {
                write!(
                    f,
                    "{lanes} lanes at offset {offset} are not one whole register"
                )
            }
        }
    }
}

/// The buffers of scope `register` that are not in registers, with the first
/// reason for each.
pub fn spilled_registers(code: &Code) -> Vec<(&str, &SpillReason)> {
    let buffers = code.buffers.iter();
    let spilled = buffers.filter_map(|b| b.spill.as_ref().map(|why| (b.name.as_str(), why)));
    spilled.collect()
}

/// Where a flat buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferPlace {
    Input,
    Constant,
    Output,
    /// Written by `prepare`, read by `kernel`.
    Prepared,
    /// At this byte offset of the shared workspace; 64-byte aligned.
    Workspace(u64),
    /// At this byte offset of the worker's own workspace; 64-byte aligned.
    WorkerWorkspace(u64),
    /// A small array on the stack.
    Stack,
    /// SSA values. Every access has a constant offset, a multiple of the lane
    /// count, and all accesses of the buffer have the same lane count.
    Register,
    /// Not part of this code (removed by a pass).
    Unused,
}

/// Identifies a loop in the side table, in block names and debug locations.
pub type FlatLoopId = u32;
/// Identifies a load or store likewise.
pub type AccessId = u32;

#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    Loop(FlatLoop),
    /// Scalar condition.
    If {
        cond: Expr,
        then: Vec<Stmt>,
        otherwise: Vec<Stmt>,
    },
    Store(Store),
    /// The entry returns `code` at once if the scalar condition is false. A
    /// loaded index is checked before the statement that uses it (code 1: out
    /// of bounds).
    Check {
        cond: Expr,
        code: i32,
    },
    /// Fetches the cache line of one element; never faults.
    Prefetch {
        buffer: BufferId,
        offset: Expr,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct FlatLoop {
    pub id: FlatLoopId,
    pub var: VarId,
    pub extent: i64,
    /// Runs on the runtime's pool; never nested in another parallel loop.
    /// Registers and stack arrays are not shared between its outside and inside.
    pub parallel: bool,
    pub body: Vec<Stmt>,
}

/// How a loop ends by data.
pub struct Ending {
    /// The loop ends where it fails.
    pub condition: Expr,
    /// What an iteration does where it holds.
    pub body: Vec<Stmt>,
}

impl FlatLoop {
    /// A condition without which the loop ends: it loads what the data decide, and once it fails it fails for all later
    /// iterations, since the loop does nothing else that could change it.
    pub fn ending(&self) -> Option<Ending> {
        let [
            Stmt::If {
                cond,
                then,
                otherwise,
            },
        ] = &self.body[..]
        else {
            return None;
        };
        if self.parallel || !otherwise.is_empty() || !cond.loads() {
            return None;
        }
        let stays_false = |c: &Expr| match c.kind() {
            _ if !c.uses_var(self.var) => true,
            ExprKind::Binary(BinaryOp::Lt | BinaryOp::Le, a, b) => {
                !b.uses_var(self.var) && rises(a, self.var)
            }
            _ => false,
        };
        let all = crate::nest::conjuncts(cond);
        let (ends, rest): (Vec<Expr>, Vec<Expr>) =
            all.into_iter().partition(|c| c.loads() && stays_false(c));
        let body = match crate::nest::conjunction(rest) {
            Some(cond) => vec![Stmt::If {
                cond,
                then: then.clone(),
                otherwise: vec![],
            }],
            None => then.clone(),
        };
        let condition = crate::nest::conjunction(ends)?;
        Some(Ending { condition, body })
    }
}

/// Whether a sum never falls where the variable rises: it loads nothing.
fn rises(e: &Expr, var: VarId) -> bool {
    let affine = ir::affine::Affine::of(e);
    affine.is_some_and(|a| a.coefficient(var) >= 0)
}

/// `buffer[offset] = value`, for every lane if there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    pub id: AccessId,
    pub buffer: BufferId,
    /// Element offset. With a lane: affine in the lane variable, or arbitrary (a
    /// scatter); or the same for all lanes, whose terms are then combined
    /// ([`Store::combined`]) unless a mask leaves one lane only.
    pub offset: Expr,
    pub value: Expr,
    /// The statement runs for all values `0..lanes` of this variable at once.
    pub lane: Option<Lane>,
    /// Lane-dependent condition: only lanes where it holds are evaluated and stored.
    pub mask: Option<Expr>,
    /// Ids of the loads in `value`, then in `offset` and `mask`, in `Expr::visit` order.
    pub loads: Vec<AccessId>,
}

impl Store {
    /// The id, buffer and offset of every load, in the order of `loads`.
    pub fn loads_with_ids(&self) -> Vec<(AccessId, BufferId, &Expr)> {
        let exprs = [Some(&self.value), Some(&self.offset), self.mask.as_ref()];
        let found = exprs.into_iter().flatten().flat_map(crate::nest::loads);
        let ids = self.loads.iter().copied();
        ids.zip(found)
            .map(|(id, (b, at))| (id, b, &at[0]))
            .collect()
    }

    /// The operator and the term of a store that combines its lanes: all of
    /// them go into one element, in any order.
    pub fn combined(&self) -> Option<(BinaryOp, &Expr)> {
        self.lane
            .filter(|l| self.mask.is_none() && !self.offset.uses_var(l.var))?;
        combined(&self.value, self.buffer, std::slice::from_ref(&self.offset))
    }
}

/// `op` and `term` of `buffer[at] = buffer[at] op term`, where `op` is a sum,
/// product, minimum or maximum.
pub(crate) fn combined<'e>(
    value: &'e Expr,
    buffer: BufferId,
    at: &[Expr],
) -> Option<(BinaryOp, &'e Expr)> {
    let ExprKind::Binary(op, a, b) = value.kind() else {
        return None;
    };
    if !matches!(
        op,
        BinaryOp::Add | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max
    ) {
        return None;
    }
    let is_old = matches!(a.kind(), ExprKind::Load(x, i) if *x == buffer && i[..] == *at);
    let reads_back = |e: &Expr| matches!(e.kind(), ExprKind::Load(x, _) if *x == buffer);
    (is_old && !b.any(&reads_back)).then_some((*op, b))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub var: VarId,
    pub lanes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopInfo {
    /// Name of the program's loop it came from.
    pub name: String,
    pub parent: Option<FlatLoopId>,
    pub extent: i64,
    pub parallel: bool,
    /// In the prepare entry rather than the kernel.
    pub prepare: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessInfo {
    pub buffer: BufferId,
    pub is_store: bool,
    /// Innermost loop around it.
    pub parent: Option<FlatLoopId>,
    /// 1 if the offset is the same for all lanes of the statement.
    pub lanes: u32,
    pub offsets: LaneOffsets,
}
