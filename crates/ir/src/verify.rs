//! The promises that a well-formed program keeps.
//!
//! `verify` lists every broken one; the steps of a schedule and the passes of
//! lowering may rely on all of them and must keep them. Each check is one
//! function of `PROMISES`; `ids` comes before all others, which look up what
//! it found to exist. What a promise cannot decide (an index that is not
//! affine, a predicate) it lets pass: the interpreter and the checks of
//! lowering see those.

mod buffers;
mod ids;
mod loops;
mod statements;
mod types;
mod variables;

use crate::program::{BlockId, BufferId, LoopId, Node, Program};
use tensor::DType;

/// A promise that a program breaks, with the names of those involved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("{place} mentions {kind} {id}, but there are only {count}")]
    UnknownId {
        place: String,
        kind: &'static str,
        id: u32,
        count: usize,
    },
    #[error("{node} occurs more than once in the body")]
    Repeated { node: String },
    #[error("two {kind}s are named `{name}`")]
    DuplicateName { kind: &'static str, name: String },
    #[error("loop `{name}` has a variable named `{var}`; they share one name")]
    LoopVariableName { name: String, var: String },
    #[error("variable `{var}` belongs to two loops, or to a loop and a block, or twice to a block")]
    SharedVariable { var: String },
    #[error("{place} has extent {extent}; extents are at least 1")]
    Extent { place: String, extent: i64 },
    #[error("buffer `{buffer}` has more bytes than an i64 counts")]
    TooLarge { buffer: String },
    #[error("view of `{buffer}`: {reason}")]
    View {
        buffer: String,
        reason: &'static str,
    },
    #[error("parameter list: `{buffer}` {reason}")]
    ParameterList {
        buffer: String,
        reason: &'static str,
    },
    #[error("parameter `{buffer}` is not in global memory")]
    ParameterScope { buffer: String },
    #[error("{place} uses `{var}`, which is not a variable there")]
    OutOfScope { place: String, var: String },
    #[error("{place} holds a load or a reducer's argument; only loop variables may occur")]
    NotAnIndex { place: String },
    #[error("{place}: `{expr}` is {found}, expected {expected}")]
    Type {
        place: String,
        expr: String,
        expected: String,
        found: DType,
    },
    #[error("{place}: the constant `{expr}` is not a value of its type")]
    Constant { place: String, expr: String },
    #[error("{place}: `{expr}` is not an argument of the block's tuple reducer")]
    Argument { place: String, expr: String },
    #[error("{place} uses variables or buffers; a reducer is closed")]
    OpenReducer { place: String },
    #[error(
        "block `{block}` has {writes} writes, but {combine} combined and {identity} start values"
    )]
    Arity {
        block: String,
        writes: usize,
        combine: usize,
        identity: usize,
    },
    #[error("{place}: `{buffer}` of rank {rank} has {indices} indices")]
    Rank {
        place: String,
        buffer: String,
        rank: usize,
        indices: usize,
    },
    #[error("block `{block}` writes nothing")]
    WritesNothing { block: String },
    #[error("block `{block}` has several writes to `{buffer}`")]
    WritesTwice { block: String, buffer: String },
    #[error("block `{block}` writes the parameter `{buffer}`, which is not an output")]
    ReadOnly { block: String, buffer: String },
    #[error("no block writes the output `{buffer}`")]
    NeverWritten { buffer: String },
    #[error("block `{block}` reduces over `{var}`, which is in an index of its write")]
    ReduceIndex { block: String, var: String },
    #[error("block `{block}` has no reducer for its reduce variable `{var}`")]
    NoReducer { block: String, var: String },
    #[error(
        "block `{block}` writes the same element of `{buffer}` for all values of the spatial `{var}`"
    )]
    SpatialUnused {
        block: String,
        buffer: String,
        var: String,
    },
    #[error("block `{block}` loads `{buffer}`, which it writes")]
    OwnOutput { block: String, buffer: String },
    #[error(
        "block `{block}` has a reducer, and `{var}` is ordered; an ordered block loads what it wrote"
    )]
    ReducesInOrder { block: String, var: String },
    #[error(
        "block `{block}` runs in order, but its accesses to `{buffer}` are not apart for all values of the spatial `{var}`"
    )]
    OrderedAcross {
        block: String,
        buffer: String,
        var: String,
    },
    #[error("block `{block}` does not initialise `{buffer}`, nor does an earlier block")]
    NoInit { block: String, buffer: String },
    #[error("block `{block}` loads `{buffer}`, which no earlier block writes")]
    ReadBeforeWrite { block: String, buffer: String },
    #[error(
        "block `{block}` writes {lo}..={hi} in dimension {dim} of `{buffer}`, which has {extent}"
    )]
    OutOfBounds {
        block: String,
        buffer: String,
        dim: usize,
        lo: i64,
        hi: i64,
        extent: i64,
    },
    #[error(
        "block `{block}` binds `{var}` to {lo}..={hi} without a predicate; its extent is {extent}"
    )]
    OutOfDomain {
        block: String,
        var: String,
        lo: i64,
        hi: i64,
        extent: i64,
    },
    #[error("loop `{name}` is empty")]
    EmptyLoop { name: String },
    #[error("vectorized loop `{outer}` holds loop `{inner}`; it may hold blocks only")]
    LoopInVectorized { outer: String, inner: String },
    #[error("parallel loop `{inner}` is inside parallel loop `{outer}`")]
    ParallelInParallel { outer: String, inner: String },
    #[error("loops `{outer}` and `{inner}`, one inside the other, are bound to one axis")]
    BoundTwice { outer: String, inner: String },
    #[error(
        "loop `{name}` runs its iterations together, but block `{block}` reduces over it, or goes on, in `{var}`"
    )]
    ReduceAcross {
        name: String,
        block: String,
        var: String,
    },
    #[error(
        "iterations of loop `{name}` run together, and block `{block}` writes the same elements of `{buffer}` in all"
    )]
    SharedWrite {
        name: String,
        block: String,
        buffer: String,
    },
    #[error(
        "`{buffer}` is private to a worker, but shared by the iterations of parallel loop `{name}`"
    )]
    PrivateShared { buffer: String, name: String },
    #[error("annotation of loop `{name}`: {reason}")]
    Annotation { name: String, reason: &'static str },
}

/// One promise or a group of them: reports what is broken.
type Promise = fn(&Body<'_>, &mut Vec<Broken>);

const PROMISES: &[Promise] = &[
    buffers::names,
    buffers::sizes,
    buffers::views,
    buffers::parameters,
    loops::names,
    loops::shape,
    loops::kinds,
    loops::annotations,
    variables::owners,
    variables::scopes,
    variables::domains,
    types::expressions,
    statements::writes,
    statements::iterations,
    statements::order,
    statements::bounds_hold,
    loops::together,
    loops::private,
];

/// Every broken promise, ids before all others: while an id means nothing or
/// the body is not a tree, nothing else is looked at.
pub fn verify(program: &Program) -> Vec<Broken> {
    let mut broken = ids::check(program);
    if broken.is_empty() {
        let body = Body::new(program);
        for promise in PROMISES {
            promise(&body, &mut broken);
        }
    }
    broken
}

/// A program whose ids exist and whose body is a tree, with the places of its nodes.
struct Body<'a> {
    p: &'a Program,
    /// In execution order, with the loops around, outermost first.
    blocks: Vec<(BlockId, Vec<LoopId>)>,
    loops: Vec<(LoopId, Vec<LoopId>)>,
}

impl<'a> Body<'a> {
    fn new(p: &'a Program) -> Body<'a> {
        let (mut blocks, mut loops) = (vec![], vec![]);
        p.walk(&p.body, &mut |node, path| match node {
            Node::Block(b) => blocks.push((b, path.to_vec())),
            Node::Loop(l) => loops.push((l, path.to_vec())),
        });
        Body { p, blocks, loops }
    }

    fn buffer(&self, id: BufferId) -> String {
        self.p.buffer(id).name.clone()
    }

    fn loop_(&self, id: LoopId) -> String {
        self.p.loop_(id).name.clone()
    }
}

/// Every name that an earlier one equals.
fn repeated<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut seen = std::collections::HashSet::new();
    names.filter(|n| !seen.insert(*n)).collect()
}
