//! The steps, one file each, and the table that lists them.
//!
//! Each file has one `apply` that makes all checks before any change.

pub(crate) mod annotate;
pub(crate) mod bind;
pub(crate) mod cache_read;
pub(crate) mod cache_write;
pub(crate) mod compute_at;
pub(crate) mod compute_inline;
pub(crate) mod decompose_reduction;
pub(crate) mod fuse;
pub(crate) mod pack;
pub(crate) mod pad;
pub(crate) mod parallel;
pub(crate) mod partition;
pub(crate) mod prefetch;
pub(crate) mod reindex;
pub(crate) mod reorder;
pub(crate) mod reverse_compute_at;
pub(crate) mod reverse_compute_inline;
pub(crate) mod rfactor;
pub(crate) mod set_scope;
pub(crate) mod split;
pub(crate) mod surround;
pub(crate) mod tensorize;
pub(crate) mod unroll;
pub(crate) mod vectorize;
pub(crate) mod widen;
pub(crate) mod winograd;

use crate::illegal::Illegal;
use crate::step::Step;
use ir::{BlockId, BufferId, LoopId, Program};

/// One kind of step.
#[derive(Clone, Copy, Debug)]
pub struct StepKind {
    pub name: &'static str,
    /// The arguments in the text form.
    pub usage: &'static str,
    pub doc: &'static str,
}

/// Writes [`STEPS`] and [`name_of`] from one row a variant of [`Step`]: the variant, its module,
/// whose `STEP` is the name, the arguments and the doc. A variant without a row does not compile.
macro_rules! table_of_steps {
    ($($variant:ident $module:ident: $usage:literal, $doc:literal;)*) => {
        /// Every kind of step.
        pub const STEPS: &[StepKind] = &[
            $(StepKind { name: $module::STEP, usage: $usage, doc: $doc },)*
        ];

        /// The name of a step's row.
        pub(crate) const fn name_of(step: &Step) -> &'static str {
            match step {
                $(Step::$variant { .. } => $module::STEP,)*
            }
        }
    };
}

table_of_steps! {
    Split split: "LOOP [FACTOR, ...]",
        "cut a loop into a nest, outermost factor first; `_` is what is left";
    Fuse fuse: "OUTER INNER",
        "make one loop of a loop and its only child";
    Reorder reorder: "LOOP LOOP ...",
        "put loops of one chain into this order, outermost first";
    Partition partition: "LOOP",
        "separate the iterations in which border conditions hold for sure";
    Unroll unroll: "LOOP",
        "repeat the body instead of looping";
    Vectorize vectorize: "LOOP",
        "run all iterations in the lanes of vectors";
    Parallel parallel: "LOOP",
        "share the iterations between workers";
    Bind bind: "LOOP AXIS",
        "run one iteration per index of a hardware axis";
    ComputeAt compute_at: "BLOCK LOOP",
        "compute what the consumers under a loop need in each iteration";
    ReverseComputeAt reverse_compute_at: "BLOCK LOOP",
        "consume what a loop produces in the same iteration";
    ComputeInline compute_inline: "BLOCK",
        "compute an element wherever it is read";
    ReverseComputeInline reverse_compute_inline: "BLOCK",
        "fold an elementwise consumer into its producer";
    CacheRead cache_read: "BLOCK BUFFER SCOPE",
        "let a block read a copy of a buffer";
    CacheWrite cache_write: "BLOCK INDEX SCOPE",
        "let a block write a buffer of its own, copied to the real one afterwards";
    SetScope set_scope: "BUFFER SCOPE",
        "choose the memory of an intermediate";
    Widen widen: "BUFFER",
        "keep an intermediate in the type that its readers cast it to";
    Rfactor rfactor: "LOOP",
        "keep one partial result per iteration of a reduction loop";
    DecomposeReduction decompose_reduction: "BLOCK LOOP",
        "initialise the accumulators in a nest of its own before a loop";
    Pack pack: "BUFFER [DIM:FACTOR, ...] [DIM, ...]",
        "change the layout of a constant or an intermediate";
    Pad pad: "LOOP MULTIPLE",
        "compute more of an intermediate than is read, so that its tiles are whole";
    Tensorize tensorize: "LOOP INTRINSIC",
        "let one instruction run the loops from this one inwards";
    Prefetch prefetch: "BUFFER LOOP DISTANCE",
        "fetch what a loop loads of a buffer some iterations ahead";
    Annotate annotate: "LOOP unroll_by FACTOR",
        "let code generation unroll a loop by a factor";
    Reindex reindex: "BLOCK BUFFER",
        "gather what a block reads of a buffer in the order of its iteration";
    Surround surround: "BLOCK BUFFER",
        "let a block read a copy of a buffer that has what it takes outside as elements";
    Winograd winograd: "BLOCK TILE",
        "compute a convolution by minimal filtering in tiles of TILE x TILE outputs";
}

/// The loop of the body with that name.
pub(crate) fn loop_named(p: &Program, step: &'static str, name: &str) -> Result<LoopId, Illegal> {
    p.loop_named(name)
        .ok_or_else(|| Illegal::new(step, name, "there is no such loop"))
}

/// The block of the body with that name.
pub(crate) fn block_named(p: &Program, step: &'static str, name: &str) -> Result<BlockId, Illegal> {
    p.block_named(name)
        .ok_or_else(|| Illegal::new(step, name, "there is no such block"))
}

/// The buffer with that name that the body or the parameter list mentions.
pub(crate) fn buffer_named(
    p: &Program,
    step: &'static str,
    name: &str,
) -> Result<BufferId, Illegal> {
    p.live_buffers()
        .into_iter()
        .find(|b| p.buffer(*b).name == name)
        .ok_or_else(|| Illegal::new(step, name, "there is no such buffer"))
}
