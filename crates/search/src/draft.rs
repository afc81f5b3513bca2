//! Writing a sketch: every step is applied to the program as it stands, with
//! the decisions at their defaults, and gives the loops and blocks that it made.
//!
//! A template that is illegal at its default so fails where it is written. What
//! other values need is said by limits.

use crate::rules::DecidedTile;
use crate::space::{Limit, Product, Sketch, SketchStep};
use crate::templates::is_even;
use ir::{Block, BlockId, BufferId, LoopId, Node, Program, Scope};
use schedule::{
    Arg, Decision, DecisionKind, Factor, Illegal, LoopArg, Made, Step, loop_along, own_loops,
};
use std::fmt;
use std::sync::Arc;

/// As many iterations as are left.
pub const REST: Factor = Factor::Rest;

/// A template that cannot be written for a program: a step is illegal at the
/// defaults of the decisions, or needs what the program has not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sketch}: {why}")]
pub struct Refused {
    /// Of the sketch.
    pub sketch: String,
    pub why: Refusal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Names the step, the loop, block or buffer, and the reason.
    Step(Illegal),
    /// A block has no loop along an axis, or a step made nothing.
    Missing(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Step(illegal) => illegal.fmt(f),
            Refusal::Missing(what) => f.write_str(what),
        }
    }
}

pub type Written<T> = Result<T, Refused>;

/// A decision of the sketch that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided(usize);

/// One number of a decision's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecidedPart {
    pub decision: usize,
    pub part: usize,
}

impl Decided {
    pub fn part(self, part: usize) -> DecidedPart {
        DecidedPart {
            decision: self.0,
            part,
        }
    }

    /// The number that a choice is.
    pub fn value(self) -> DecidedPart {
        self.part(0)
    }
}

impl From<DecidedPart> for Arg {
    fn from(p: DecidedPart) -> Arg {
        Arg::Decision {
            id: p.decision,
            part: p.part,
        }
    }
}

impl From<DecidedPart> for Factor {
    fn from(p: DecidedPart) -> Factor {
        Factor::Arg(p.into())
    }
}

/// The axis over partial results that `rfactor` makes.
pub const PART: &str = "part";

/// A factor that is given.
pub fn given(factor: i64) -> Factor {
    Factor::Arg(Arg::Lit(factor))
}

/// A sketch being written.
pub struct Draft {
    name: String,
    program: Program,
    decisions: Vec<Decision>,
    default: Vec<u64>,
    steps: Vec<SketchStep>,
    limits: Vec<Limit>,
    /// Loops to run in parallel once everything has its place.
    parallel: Vec<LoopId>,
    tile: Option<DecidedTile>,
}

impl Draft {
    /// Of a sketch with that name for an unscheduled program.
    pub fn new(name: impl Into<String>, program: &Program) -> Draft {
        Draft {
            name: name.into(),
            program: program.clone(),
            decisions: vec![],
            default: vec![],
            steps: vec![],
            limits: vec![],
            parallel: vec![],
            tile: None,
        }
    }

    pub fn block(&self, b: BlockId) -> &Block {
        self.program.block(b)
    }

    /// The first buffer that a block writes.
    pub fn output(&self, b: BlockId) -> BufferId {
        self.program.block(b).writes[0].buffer
    }

    /// The loops along some axes of a block that has a nest of its own.
    pub fn along<const N: usize>(&self, b: BlockId, axes: [&str; N]) -> Written<[LoopId; N]> {
        let mut found = [LoopId(0); N];
        for (slot, axis) in found.iter_mut().zip(axes) {
            *slot = loop_along(&self.program, b, axis).ok_or_else(|| {
                let block = &self.program.block(b).name;
                self.missing(format!("`{block}` has no loop along `{axis}`"))
            })?;
        }
        Ok(found)
    }

    /// The loops of a block of partial results that has a nest of its own: over
    /// the terms, and over the lanes that keep one result each.
    pub fn partial_loops(&self, partial: BlockId) -> Written<[LoopId; 2]> {
        let block = self.program.block(partial);
        let Some(terms) = block.reduce_iters().next() else {
            let name = &block.name;
            return Err(self.missing(format!("`{name}` reduces nothing")));
        };
        self.along(partial, [&self.program.var(terms.var).name, PART])
    }

    /// The loop directly around a block.
    pub fn innermost(&self, b: BlockId) -> Written<LoopId> {
        let loops = self.program.path_to(Node::Block(b)).unwrap_or_default();
        let name = &self.program.block(b).name;
        let last = loops.last().copied();
        last.ok_or_else(|| self.missing(format!("`{name}` has no loop")))
    }

    /// The loops of a block that packs a buffer along some of its dimensions.
    pub fn packed_along<const N: usize>(
        &self,
        copier: BlockId,
        dims: [usize; N],
    ) -> Written<[LoopId; N]> {
        let axes = dims.map(schedule::numbered_axis);
        self.along(copier, axes.each_ref().map(String::as_str))
    }

    /// The program as the steps so far have made it.
    pub fn program(&self) -> &Program {
        &self.program
    }

    pub fn missing(&self, what: String) -> Refused {
        Refused {
            sketch: self.name.clone(),
            why: Refusal::Missing(what),
        }
    }

    fn loop_name(&self, l: LoopId) -> String {
        self.program.loop_(l).name.clone()
    }

    fn loop_names(&self, loops: &[LoopId]) -> Vec<String> {
        loops.iter().map(|l| self.loop_name(*l)).collect()
    }

    fn block_name(&self, b: BlockId) -> String {
        self.program.block(b).name.clone()
    }

    fn buffer_name(&self, b: BufferId) -> String {
        self.program.buffer(b).name.clone()
    }

    fn require(&mut self, step: Step) -> Written<Made> {
        match step.apply(&mut self.program, &self.decisions) {
            Ok(made) => {
                self.steps.push(SketchStep::Required(step));
                Ok(made)
            }
            Err(illegal) => Err(Refused {
                sketch: self.name.clone(),
                why: Refusal::Step(illegal),
            }),
        }
    }

    fn require_loops(&mut self, step: Step) -> Written<Vec<LoopId>> {
        match self.require(step)? {
            Made::Loops(loops) => Ok(loops),
            made => Err(self.missing(format!("a step made {made:?} instead of loops"))),
        }
    }

    fn require_block(&mut self, step: Step) -> Written<BlockId> {
        match self.require(step)? {
            Made::Blocks(blocks) if !blocks.is_empty() => Ok(blocks[0]),
            made => Err(self.missing(format!("a step made {made:?} instead of a block"))),
        }
    }

    /// A step that candidates go without where it is illegal, whatever decides that.
    fn attempt(&mut self, step: Step) {
        // Illegal at the default, it may be legal for other values.
        let _ = step.apply(&mut self.program, &self.decisions);
        self.steps.push(SketchStep::Optional(step));
    }

    /// A step that no candidate has if it is illegal here: decisions do not
    /// change whether it is.
    fn require_if_legal(&mut self, step: Step) {
        if step.apply(&mut self.program, &self.decisions).is_ok() {
            self.steps.push(SketchStep::Required(step));
        }
    }

    /// Cuts a loop; the parts, outermost first.
    pub fn split<const N: usize>(
        &mut self,
        l: LoopId,
        factors: [Factor; N],
    ) -> Written<[LoopId; N]> {
        let step = Step::Split {
            loop_: self.loop_name(l),
            factors: factors.to_vec(),
        };
        let parts = self.require_loops(step)?;
        let found = parts.try_into();
        found.map_err(|parts: Vec<_>| self.missing(format!("{} of {N} parts", parts.len())))
    }

    /// One loop of a loop and its only child.
    pub fn fuse(&mut self, outer: LoopId, inner: LoopId) -> Written<LoopId> {
        let step = Step::Fuse {
            outer: self.loop_name(outer),
            inner: self.loop_name(inner),
        };
        Ok(self.require_loops(step)?[0])
    }

    pub fn reorder(&mut self, loops: &[LoopId]) -> Written<()> {
        let loops = self.loop_names(loops);
        self.require(Step::Reorder { loops }).map(drop)
    }

    pub fn reorder_if_legal(&mut self, loops: &[LoopId]) {
        let loops = self.loop_names(loops);
        self.require_if_legal(Step::Reorder { loops });
    }

    pub fn unroll(&mut self, l: LoopId) -> Written<()> {
        let loop_ = self.loop_name(l);
        self.require(Step::Unroll { loop_ }).map(drop)
    }

    pub fn vectorize(&mut self, l: LoopId) -> Written<()> {
        let loop_ = self.loop_name(l);
        self.require(Step::Vectorize { loop_ }).map(drop)
    }

    pub fn vectorize_if_legal(&mut self, l: LoopId) {
        let loop_ = self.loop_name(l);
        self.require_if_legal(Step::Vectorize { loop_ });
    }

    pub fn attempt_vectorize(&mut self, l: LoopId) {
        let loop_ = self.loop_name(l);
        self.attempt(Step::Vectorize { loop_ });
    }

    pub fn parallel_if_legal(&mut self, l: LoopId) {
        let loop_ = self.loop_name(l);
        self.require_if_legal(Step::Parallel { loop_ });
    }

    pub fn attempt_partition(&mut self, l: LoopId) {
        let loop_ = self.loop_name(l);
        self.attempt(Step::Partition { loop_ });
    }

    /// The same for the copies that partitions make of a loop, where they do.
    pub fn attempt_partition_copies(&mut self, l: LoopId) {
        for suffix in [schedule::SUFFIX_BEFORE, schedule::SUFFIX_AFTER] {
            let loop_ = format!("{}{suffix}", self.loop_name(l));
            self.attempt(Step::Partition { loop_ });
        }
    }

    pub fn unroll_by(&mut self, l: LoopId, factor: impl Into<Arg>) -> Written<()> {
        let step = Step::Annotate {
            loop_: self.loop_name(l),
            unroll_by: factor.into(),
        };
        self.require(step).map(drop)
    }

    /// The same for the copies that partitions make of a loop, where they do.
    pub fn attempt_unroll_copies_by(&mut self, l: LoopId, factor: Arg) {
        for suffix in [schedule::SUFFIX_BEFORE, schedule::SUFFIX_AFTER] {
            self.attempt(Step::Annotate {
                loop_: format!("{}{suffix}", self.loop_name(l)),
                unroll_by: factor,
            });
        }
    }

    /// Fetches what a loop loads of a buffer so many iterations ahead, if the
    /// loop loads of it: not at all where the distance is 0.
    pub fn prefetch_if_legal(&mut self, buffer: BufferId, l: LoopId, distance: DecidedPart) {
        let step = |distance| Step::Prefetch {
            buffer: self.buffer_name(buffer),
            loop_: self.loop_name(l),
            distance,
        };
        let (one, decided) = (step(Arg::Lit(1)), step(distance.into()));
        if one.apply(&mut self.program.clone(), &[]).is_err() {
            return;
        }
        // At the default the distance may be 0, which the step refuses.
        let _ = decided.apply(&mut self.program, &self.decisions);
        self.steps.push(SketchStep::UnlessZero(decided, distance));
    }

    pub fn compute_at(&mut self, b: BlockId, l: LoopId) -> Written<()> {
        let step = Step::ComputeAt {
            block: self.block_name(b),
            loop_: LoopArg::Name(self.loop_name(l)),
        };
        self.require(step).map(drop)
    }

    /// The loops that the block has there, one an axis.
    pub fn reverse_compute_at(&mut self, b: BlockId, l: LoopId) -> Written<Vec<LoopId>> {
        let step = Step::ReverseComputeAt {
            block: self.block_name(b),
            loop_: LoopArg::Name(self.loop_name(l)),
        };
        self.require(step)?;
        Ok(own_loops(&self.program, b))
    }

    /// Lets a block write registers; the block that takes the results from there.
    pub fn keep_in_registers(&mut self, b: BlockId) -> Written<BlockId> {
        self.keep(b, Scope::Register)
    }

    /// Keeps what a block writes in a place of that scope; the block that takes it out.
    pub fn keep(&mut self, b: BlockId, scope: Scope) -> Written<BlockId> {
        self.require_block(Step::CacheWrite {
            block: self.block_name(b),
            index: 0,
            scope,
        })
    }

    pub fn set_scope(&mut self, buffer: BufferId, scope: Scope) -> Written<()> {
        let step = Step::SetScope {
            buffer: self.buffer_name(buffer),
            scope,
        };
        self.require(step).map(drop)
    }

    /// The block that copies a buffer, in the type that a block computes in, before it.
    pub fn widen(&mut self, b: BlockId, buffer: BufferId) -> Written<BlockId> {
        let copier = self.require_block(Step::CacheRead {
            block: self.block_name(b),
            buffer: self.buffer_name(buffer),
            scope: Scope::Global,
        })?;
        let copy = self.buffer_name(self.output(copier));
        self.require(Step::Widen { buffer: copy })?;
        Ok(copier)
    }

    /// The block of partial results.
    pub fn rfactor(&mut self, l: LoopId) -> Written<BlockId> {
        let loop_ = self.loop_name(l);
        self.require_block(Step::Rfactor { loop_ })
    }

    /// The block that initialises.
    pub fn decompose_reduction(&mut self, b: BlockId, l: LoopId) -> Written<BlockId> {
        let step = self.decomposition(b, l);
        self.require_block(step)
    }

    pub fn decompose_reduction_if_legal(&mut self, b: BlockId, l: LoopId) {
        let step = self.decomposition(b, l);
        self.require_if_legal(step);
    }

    fn decomposition(&self, b: BlockId, l: LoopId) -> Step {
        Step::DecomposeReduction {
            block: self.block_name(b),
            loop_: self.loop_name(l),
        }
    }

    /// Packs a parameter; the block that copies it.
    pub fn pack(
        &mut self,
        buffer: BufferId,
        tiles: &[(usize, Arg)],
        order: &[usize],
    ) -> Written<BlockId> {
        let step = self.packing(buffer, tiles, order);
        self.require_block(step)
    }

    /// Changes the layout of an intermediate.
    pub fn lay_out(
        &mut self,
        buffer: BufferId,
        tiles: &[(usize, Arg)],
        order: &[usize],
    ) -> Written<()> {
        let step = self.packing(buffer, tiles, order);
        self.require(step).map(drop)
    }

    fn packing(&self, buffer: BufferId, tiles: &[(usize, Arg)], order: &[usize]) -> Step {
        Step::Pack {
            buffer: self.buffer_name(buffer),
            tiles: tiles.to_vec(),
            order: order.to_vec(),
        }
    }

    pub fn pad(&mut self, l: LoopId, multiple: impl Into<Arg>) -> Written<()> {
        let step = Step::Pad {
            loop_: self.loop_name(l),
            multiple: multiple.into(),
        };
        self.require(step).map(drop)
    }

    pub fn pad_if_legal(&mut self, l: LoopId, multiple: i64) {
        let step = Step::Pad {
            loop_: self.loop_name(l),
            multiple: Arg::Lit(multiple),
        };
        self.require_if_legal(step);
    }

    /// The block that gathers.
    pub fn reindex(&mut self, b: BlockId, buffer: BufferId) -> Written<BlockId> {
        self.require_block(Step::Reindex {
            block: self.block_name(b),
            buffer: self.buffer_name(buffer),
        })
    }

    /// The block that copies with a border.
    pub fn surround(&mut self, b: BlockId, buffer: BufferId) -> Written<BlockId> {
        self.require_block(Step::Surround {
            block: self.block_name(b),
            buffer: self.buffer_name(buffer),
        })
    }

    pub fn tensorize(&mut self, l: LoopId, intrinsic: &str) -> Written<()> {
        let step = Step::Tensorize {
            loop_: self.loop_name(l),
            intrinsic: intrinsic.into(),
        };
        self.require(step).map(drop)
    }

    /// The blocks that the step lists.
    pub fn winograd(&mut self, b: BlockId, tile: i64) -> Written<[BlockId; 7]> {
        let step = Step::Winograd {
            block: self.block_name(b),
            tile: Arg::Lit(tile),
        };
        match self.require(step)? {
            Made::Blocks(blocks) => {
                let found = blocks.try_into();
                found.map_err(|b: Vec<_>| self.missing(format!("{} of 7 blocks", b.len())))
            }
            made => Err(self.missing(format!("a step made {made:?} instead of blocks"))),
        }
    }

    fn decide(&mut self, name: &str, kind: DecisionKind, default: u64) -> Decided {
        let value = kind.value_at(default).expect("the default is a value");
        self.decisions.push(Decision {
            name: name.into(),
            kind,
            value,
        });
        self.default.push(default);
        Decided(self.decisions.len() - 1)
    }

    /// A two-part tile whose inner factor is the largest divisor up to `wanted`.
    pub fn tile(&mut self, name: &str, extent: i64, max_inner: i64, wanted: i64) -> Decided {
        let kind = DecisionKind::PerfectTile {
            extent,
            parts: 2,
            max_innermost: max_inner,
        };
        let default = (0..kind.cardinality())
            .filter(|i| tile_inner(&kind, *i) <= wanted)
            .max_by_key(|i| tile_inner(&kind, *i));
        self.decide(name, kind, default.unwrap_or(0))
    }

    /// A tile of as many parts as `wanted` has, which is the default if it is a value.
    pub fn tiles(&mut self, name: &str, extent: i64, wanted: &[i64], max_inner: i64) -> Decided {
        let kind = DecisionKind::PerfectTile {
            extent,
            parts: wanted.len(),
            max_innermost: max_inner,
        };
        let default = kind.index_of(wanted).unwrap_or(0);
        self.decide(name, kind, default)
    }

    /// One of `options`, by default the largest up to `wanted`.
    pub fn choose(&mut self, name: &str, options: &[i64], wanted: i64) -> Decided {
        let best = options
            .iter()
            .filter(|o| **o <= wanted)
            .max()
            .unwrap_or(&options[0]);
        let default = options.iter().position(|o| o == best).unwrap_or(0);
        let kind = DecisionKind::Categorical {
            options: options.to_vec(),
        };
        self.decide(name, kind, default as u64)
    }

    /// Bounds a sum of products `factor * values...`.
    pub fn limit(&mut self, what: &'static str, terms: &[(i64, &[DecidedPart])], max: i64) {
        let product = |(factor, values): &(i64, &[DecidedPart])| Product {
            factor: *factor,
            values: values.to_vec(),
        };
        let terms = terms.iter().map(product).collect();
        self.limits.push(Limit { what, terms, max });
    }

    /// Lets [`crate::Analytic`] predict the costs of points by their register tile.
    pub fn predict(&mut self, tile: DecidedTile) {
        self.tile = Some(tile);
    }

    /// Fuses the loops, a perfect chain. The result becomes parallel with
    /// [`Draft::run_parallel`], at the latest at the end: a buffer is the
    /// iteration's own only once its readers are inside.
    pub fn parallel(&mut self, loops: &[LoopId], threads: u32) -> Written<Option<LoopId>> {
        let [first, others @ ..] = loops else {
            return Ok(None);
        };
        if threads <= 1 {
            return Ok(None);
        }
        let mut fused = *first;
        for l in others {
            fused = self.fuse(fused, *l)?;
        }
        self.parallel.push(fused);
        Ok(Some(fused))
    }

    /// Threads share what copies an operand, by as few of its outermost loops as give each thread about as much. How many
    /// these are, and the loop that they became; none if there is nothing to share.
    pub fn share_copy(
        &mut self,
        loops: &[LoopId],
        threads: u32,
    ) -> Written<Option<(usize, LoopId)>> {
        let parts = |count: usize| -> i64 {
            let shared = loops[..count].iter();
            shared.map(|l| self.program.loop_(*l).extent).product()
        };
        let mut counts = 1..=loops.len();
        let even = counts.find(|count| is_even(parts(*count), threads));
        let count = even.unwrap_or(loops.len());
        if parts(count) <= 1 {
            return Ok(None);
        }
        let shared = self.parallel(&loops[..count], threads)?;
        Ok(shared.map(|l| (count, l)))
    }

    /// The same for what packs an operand of so many dimensions into panels, which it shares.
    pub fn share_panels(&mut self, copier: BlockId, dims: usize, threads: u32) -> Written<()> {
        let outside = 0..dims - 1;
        let loops = outside.map(|dim| self.packed_along(copier, [dim]).map(|[l]| l));
        let loops = loops.collect::<Written<Vec<LoopId>>>()?;
        self.share_copy(&loops, threads).map(drop)
    }

    /// Loops that [`Draft::parallel`] fused run in parallel from here on: before
    /// partitions, whose parts are harder to tell apart.
    pub fn run_parallel(&mut self) -> Written<()> {
        for l in std::mem::take(&mut self.parallel) {
            let loop_ = self.loop_name(l);
            self.require(Step::Parallel { loop_ })?;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Written<Sketch> {
        self.run_parallel()?;
        let exact = self.steps.iter().all(|s| s.step().is_exact());
        Ok(Sketch {
            name: self.name,
            decisions: self.decisions,
            steps: self.steps,
            limits: self.limits,
            default: self.default,
            exact,
            tile: self.tile.map(Arc::new),
        })
    }
}

/// The innermost factor of a tile's value.
fn tile_inner(kind: &DecisionKind, index: u64) -> i64 {
    kind.value_at(index)
        .and_then(|v| v.last().copied())
        .expect("the index is below the cardinality")
}
