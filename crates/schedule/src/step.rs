//! Step: one change of a program, as data.

use crate::decision::{Decision, DecisionKind, HERE};
use crate::illegal::Illegal;
use crate::steps::{
    annotate, bind, cache_read, cache_write, compute_at, compute_inline, decompose_reduction, fuse,
    name_of, pack, pad, parallel, partition, prefetch, reindex, reorder, reverse_compute_at,
    reverse_compute_inline, rfactor, set_scope, split, surround, tensorize, unroll, vectorize,
    widen, winograd,
};
use ir::{Axis, BlockId, LoopId, Program, Scope};

/// An integer argument: given, or left to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    Lit(i64),
    /// Part `part` of the value of the trace's decision `id`.
    Decision {
        id: usize,
        part: usize,
    },
}

/// One factor of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Factor {
    /// As many iterations as are needed, rounded up. At most one of a split.
    Rest,
    Arg(Arg),
}

/// A loop argument: named, or left to a `ComputeLocation` decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LoopArg {
    Name(String),
    Decision(usize),
}

/// One change of a program. Loops, blocks and buffers are referred to by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Replaces a loop by a nest of `loop.0`, `loop.1`, ..., outermost first.
    Split {
        loop_: String,
        factors: Vec<Factor>,
    },
    /// Replaces a loop and its only child by one loop, `outer&inner`.
    Fuse {
        outer: String,
        inner: String,
    },
    /// Puts loops of one chain into the given order, outermost first.
    Reorder {
        loops: Vec<String>,
    },
    /// Separates the iterations in which border conditions hold for sure.
    Partition {
        loop_: String,
    },
    Unroll {
        loop_: String,
    },
    Vectorize {
        loop_: String,
    },
    Parallel {
        loop_: String,
    },
    Bind {
        loop_: String,
        axis: Axis,
    },
    ComputeAt {
        block: String,
        loop_: LoopArg,
    },
    ReverseComputeAt {
        block: String,
        loop_: LoopArg,
    },
    ComputeInline {
        block: String,
    },
    ReverseComputeInline {
        block: String,
    },
    CacheRead {
        block: String,
        buffer: String,
        scope: Scope,
    },
    /// `index` counts the buffers that the block writes.
    CacheWrite {
        block: String,
        index: usize,
        scope: Scope,
    },
    SetScope {
        buffer: String,
        scope: Scope,
    },
    /// The buffer holds elements of the type that its readers cast them to.
    Widen {
        buffer: String,
    },
    Rfactor {
        loop_: String,
    },
    DecomposeReduction {
        block: String,
        loop_: String,
    },
    /// `tiles` are (dimension, factor); `order` permutes the dimensions that result.
    Pack {
        buffer: String,
        tiles: Vec<(usize, Arg)>,
        order: Vec<usize>,
    },
    Tensorize {
        loop_: String,
        intrinsic: String,
    },
    Prefetch {
        buffer: String,
        loop_: String,
        distance: Arg,
    },
    /// Code generation unrolls the loop by this factor; 1 takes that back.
    Annotate {
        loop_: String,
        unroll_by: Arg,
    },
    /// The axis and the dimension that the loop runs along grow to a multiple.
    Pad {
        loop_: String,
        multiple: Arg,
    },
    /// `block` reads a gathered copy of `buffer`, indexed by its own variables.
    Reindex {
        block: String,
        buffer: String,
    },
    /// `block` reads a copy of `buffer` that has a border.
    Surround {
        block: String,
        buffer: String,
    },
    /// Minimal filtering instead of the sum over windows that `block` is.
    Winograd {
        block: String,
        tile: Arg,
    },
}

impl Step {
    /// The name in the text form and in refusals.
    pub fn name(&self) -> &'static str {
        name_of(self)
    }

    /// Whether the step only reorders and regroups the operations of the program.
    /// Others keep its meaning in real arithmetic, and round more.
    pub fn is_exact(&self) -> bool {
        !matches!(self, Step::Winograd { .. })
    }

    /// The step with the decided values in place of references to decisions; `None` where a
    /// block is decided to stay where it is.
    ///
    /// # Errors
    /// If a decision that the step refers to is missing.
    pub fn decided(&self, decisions: &[Decision]) -> Result<Option<Step>, Illegal> {
        let values = self.values(decisions);
        let mut decided = self.clone();
        match &mut decided {
            Step::Split { loop_, factors } => {
                for factor in factors {
                    if let Factor::Arg(arg) = factor {
                        *arg = values.literal(loop_, *arg)?;
                    }
                }
            }
            Step::ComputeAt { block, loop_ } | Step::ReverseComputeAt { block, loop_ } => {
                match values.place(block, loop_)?.map(str::to_string) {
                    Some(name) => *loop_ = LoopArg::Name(name),
                    None => return Ok(None),
                }
            }
            Step::Pack { buffer, tiles, .. } => {
                for (_, factor) in tiles {
                    *factor = values.literal(buffer, *factor)?;
                }
            }
            Step::Prefetch {
                loop_: at,
                distance: arg,
                ..
            }
            | Step::Annotate {
                loop_: at,
                unroll_by: arg,
            }
            | Step::Pad {
                loop_: at,
                multiple: arg,
            }
            | Step::Winograd {
                block: at,
                tile: arg,
            } => *arg = values.literal(at, *arg)?,
            Step::Fuse { .. }
            | Step::Reorder { .. }
            | Step::Partition { .. }
            | Step::Unroll { .. }
            | Step::Vectorize { .. }
            | Step::Parallel { .. }
            | Step::Bind { .. }
            | Step::ComputeInline { .. }
            | Step::ReverseComputeInline { .. }
            | Step::CacheRead { .. }
            | Step::CacheWrite { .. }
            | Step::SetScope { .. }
            | Step::Widen { .. }
            | Step::Rfactor { .. }
            | Step::DecomposeReduction { .. }
            | Step::Tensorize { .. }
            | Step::Reindex { .. }
            | Step::Surround { .. } => {}
        }
        Ok(Some(decided))
    }

    fn values<'a>(&self, decisions: &'a [Decision]) -> Values<'a> {
        Values {
            step: self.name(),
            decisions,
        }
    }

    /// Applies the step with the decided values. On `Err` nothing has changed.
    pub fn apply(&self, p: &mut Program, decisions: &[Decision]) -> Result<Made, Illegal> {
        let values = self.values(decisions);
        let nothing = |()| Made::Nothing;
        match self {
            Step::Split { loop_, factors } => {
                let factors = values.factors(loop_, factors)?;
                split::apply(p, loop_, &factors).map(Made::Loops)
            }
            Step::Fuse { outer, inner } => {
                fuse::apply(p, outer, inner).map(|l| Made::Loops(vec![l]))
            }
            Step::Reorder { loops } => reorder::apply(p, loops).map(nothing),
            Step::Partition { loop_ } => partition::apply(p, loop_).map(nothing),
            Step::Unroll { loop_ } => unroll::apply(p, loop_).map(nothing),
            Step::Vectorize { loop_ } => vectorize::apply(p, loop_).map(nothing),
            Step::Parallel { loop_ } => parallel::apply(p, loop_).map(nothing),
            Step::Bind { loop_, axis } => bind::apply(p, loop_, *axis).map(nothing),
            Step::ComputeAt { block, loop_ } => match values.place(block, loop_)? {
                Some(l) => compute_at::apply(p, block, l).map(nothing),
                None => Ok(Made::Nothing),
            },
            Step::ReverseComputeAt { block, loop_ } => match values.place(block, loop_)? {
                Some(l) => reverse_compute_at::apply(p, block, l).map(nothing),
                None => Ok(Made::Nothing),
            },
            Step::ComputeInline { block } => compute_inline::apply(p, block).map(nothing),
            Step::ReverseComputeInline { block } => {
                reverse_compute_inline::apply(p, block).map(nothing)
            }
            Step::CacheRead {
                block,
                buffer,
                scope,
            } => cache_read::apply(p, block, buffer, *scope).map(Made::block),
            Step::CacheWrite {
                block,
                index,
                scope,
            } => cache_write::apply(p, block, *index, *scope).map(Made::block),
            Step::SetScope { buffer, scope } => set_scope::apply(p, buffer, *scope).map(nothing),
            Step::Widen { buffer } => widen::apply(p, buffer).map(nothing),
            Step::Rfactor { loop_ } => rfactor::apply(p, loop_).map(Made::block),
            Step::DecomposeReduction { block, loop_ } => {
                decompose_reduction::apply(p, block, loop_).map(Made::block)
            }
            Step::Pack {
                buffer,
                tiles,
                order,
            } => {
                let copier = pack::apply(p, buffer, &values.tiles(buffer, tiles)?, order)?;
                Ok(copier.map_or(Made::Nothing, Made::block))
            }
            Step::Tensorize { loop_, intrinsic } => {
                tensorize::apply(p, loop_, intrinsic).map(nothing)
            }
            Step::Prefetch {
                buffer,
                loop_,
                distance,
            } => prefetch::apply(p, buffer, loop_, values.integer(loop_, *distance)?).map(nothing),
            Step::Annotate { loop_, unroll_by } => {
                annotate::apply(p, loop_, values.integer(loop_, *unroll_by)?).map(nothing)
            }
            Step::Pad { loop_, multiple } => {
                pad::apply(p, loop_, values.integer(loop_, *multiple)?).map(nothing)
            }
            Step::Reindex { block, buffer } => reindex::apply(p, block, buffer).map(Made::block),
            Step::Surround { block, buffer } => surround::apply(p, block, buffer).map(Made::block),
            Step::Winograd { block, tile } => {
                let blocks = winograd::apply(p, block, values.integer(block, *tile)?)?;
                Ok(Made::Blocks(blocks.to_vec()))
            }
        }
    }
}

/// What a step put into a program under a name that follows from its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// Nothing, or copies with the suffixes of [`Step::Partition`].
    Nothing,
    /// `split`: the parts, outermost first. `fuse`: one loop.
    Loops(Vec<LoopId>),
    /// The blocks, each in a nest of its own, in the order in which the step's
    /// documentation lists them.
    Blocks(Vec<BlockId>),
}

impl Made {
    fn block(b: BlockId) -> Made {
        Made::Blocks(vec![b])
    }
}

/// The decided values that a step may ask for.
struct Values<'a> {
    step: &'static str,
    decisions: &'a [Decision],
}

impl<'a> Values<'a> {
    fn integer(&self, at: &str, arg: Arg) -> Result<i64, Illegal> {
        let (id, part) = match arg {
            Arg::Lit(v) => return Ok(v),
            Arg::Decision { id, part } => (id, part),
        };
        let value = self.decisions.get(id).and_then(|d| d.value.get(part));
        value.copied().ok_or_else(|| {
            let reason = format!("the trace has no decision {id} with a part {part}");
            Illegal::new(self.step, at, reason)
        })
    }

    fn literal(&self, at: &str, arg: Arg) -> Result<Arg, Illegal> {
        self.integer(at, arg).map(Arg::Lit)
    }

    /// The factors of a split; `None` is what is left.
    fn factors(&self, at: &str, factors: &[Factor]) -> Result<Vec<Option<i64>>, Illegal> {
        let decided = |f: &Factor| match f {
            Factor::Rest => Ok(None),
            Factor::Arg(a) => self.integer(at, *a).map(Some),
        };
        factors.iter().map(decided).collect()
    }

    /// (dimension, factor) of a packed layout.
    fn tiles(&self, at: &str, tiles: &[(usize, Arg)]) -> Result<Vec<(usize, i64)>, Illegal> {
        let decided = |(dim, factor): &(usize, Arg)| Ok((*dim, self.integer(at, *factor)?));
        tiles.iter().map(decided).collect()
    }

    /// The loop to move a block to; `None` to leave it where it is.
    fn place(&self, block: &str, arg: &'a LoopArg) -> Result<Option<&'a str>, Illegal> {
        let id = match arg {
            LoopArg::Name(name) => return Ok(Some(name)),
            LoopArg::Decision(id) => *id,
        };
        let chosen = self.decisions.get(id).and_then(|d| match &d.kind {
            DecisionKind::ComputeLocation { loops } => {
                let at = usize::try_from(*d.value.first()?).ok()?;
                loops.get(at)
            }
            _ => None,
        });
        match chosen {
            Some(name) if name == HERE => Ok(None),
            Some(name) => Ok(Some(name)),
            None => {
                let reason = format!("the trace has no compute location in decision {id}");
                Err(Illegal::new(self.step, block, reason))
            }
        }
    }
}
