//! Random traces: legal ones, with every kind of step.
//!
//! A trace grows by *moves*, each a short sequence of steps that a schedule
//! would make together (a split and a reorder before a tensorize, say), with
//! arguments drawn from the program as it is. A step that is refused ends its
//! move; what was accepted stays. What must come before all others does
//! (`filtering`): the moves go on with the blocks that it makes.

use crate::filtering;
use ir::{Axis, BlockId, BufferId, LoopId, LoopKind, Node, Program, Role, Scope};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use schedule::{Arg, Decision, DecisionKind, Factor, HERE, Illegal, LoopArg, Step, Trace};

/// A step that would leave more block instances than this is not kept.
pub const MOST_INSTANCES: i64 = 400_000;

/// Blocks of a program beyond which loops are no longer partitioned.
const MOST_BLOCKS: usize = 24;

/// A step that was tried.
#[derive(Clone, Copy, Debug)]
pub struct Tried<'a> {
    pub step: &'a Step,
    pub result: &'a Result<(), Illegal>,
    pub before: &'a Program,
    pub after: &'a Program,
}

/// A random trace of at most `max_steps` steps and the program that it makes
/// of `program`; the same for the same arguments.
pub fn random_trace(program: &Program, seed: u64, max_steps: usize) -> (Trace, Program) {
    observed_trace(program, seed, max_steps, &mut |_| {})
}

/// As `random_trace`; `seen` gets every step that was tried, refused ones too.
pub fn observed_trace(
    program: &Program,
    seed: u64,
    max_steps: usize,
    seen: &mut dyn FnMut(Tried<'_>),
) -> (Trace, Program) {
    let mut g = Growing {
        rng: Pcg64Mcg::seed_from_u64(seed),
        p: program.clone(),
        trace: Trace::default(),
        max_steps,
        seen,
    };
    if g.rng.random_bool(0.9) {
        let mut rng = Pcg64Mcg::seed_from_u64(g.rng.random());
        filtering::steps(program, &mut rng, &mut |step| g.step(step));
    }
    for round in 0..max_steps * 4 {
        if g.trace.steps.len() >= max_steps {
            break;
        }
        // What fixes the kind of a loop comes late: few steps are legal after it.
        let late = 2 * round >= max_steps;
        let moves = if late && g.rng.random_bool(0.5) {
            FINISHING
        } else {
            SHAPING
        };
        let next = moves.choose(&mut g.rng).expect("the list is not empty");
        // `None`: the program has no place for the move, or a step was refused.
        let _ended: Option<()> = next(&mut g);
    }
    (g.trace, g.p)
}

type Move = fn(&mut Growing<'_>) -> Option<()>;

const SHAPING: &[Move] = &[
    split,
    tile,
    fuse,
    reorder,
    partition,
    partition_tail,
    compute_at,
    reverse_compute_at,
    compute_inline,
    reverse_compute_inline,
    cache_read,
    reindex,
    surround,
    cache_write,
    rfactor,
    decompose,
    pack,
    // Rarely is there a place for it.
    tensorize,
    tensorize,
    tensorize,
    pad,
];

const FINISHING: &[Move] = &[
    unroll,
    vectorize,
    parallel,
    bind,
    set_scope,
    widen,
    prefetch,
    annotate,
    decompose,
    partition,
    partition_shared,
];

struct Growing<'a> {
    rng: Pcg64Mcg,
    p: Program,
    trace: Trace,
    max_steps: usize,
    seen: &'a mut dyn FnMut(Tried<'_>),
}

impl Growing<'_> {
    /// Tries a step; `None` if it was refused or is too costly.
    fn step(&mut self, step: Step) -> Option<()> {
        if self.trace.steps.len() >= self.max_steps {
            return None;
        }
        let before = self.p.clone();
        let result = step.apply(&mut self.p, &self.trace.decisions).map(drop);
        if result.is_ok() && instances(&self.p) > MOST_INSTANCES {
            self.p = before;
            return None;
        }
        (self.seen)(Tried {
            step: &step,
            result: &result,
            before: &before,
            after: &self.p,
        });
        result.ok()?;
        self.trace.steps.push(step);
        Some(())
    }

    /// Adds a decision with a random value and gives its number.
    fn decide(&mut self, name: &str, kind: DecisionKind) -> Option<usize> {
        let first = Decision::new(name, kind)?;
        let rng = &mut self.rng;
        let drawn = first.sample(&mut |n| rng.random_range(0..n))?;
        self.trace.decisions.push(drawn);
        Some(self.trace.decisions.len() - 1)
    }

    fn one<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.choose(&mut self.rng).cloned()
    }

    fn name(&self, l: LoopId) -> String {
        self.p.loop_(l).name.clone()
    }

    fn block_name(&self, b: BlockId) -> String {
        self.p.block(b).name.clone()
    }

    fn loop_where(&mut self, f: impl Fn(&Program, LoopId) -> bool) -> Option<LoopId> {
        let mut loops = self.p.loop_ids();
        loops.retain(|l| f(&self.p, *l));
        self.one(&loops)
    }

    fn block_where(&mut self, f: impl Fn(&Program, BlockId) -> bool) -> Option<BlockId> {
        let mut blocks = self.p.block_ids();
        blocks.retain(|b| f(&self.p, *b));
        self.one(&blocks)
    }

    fn buffer_where(&mut self, f: impl Fn(&Program, BufferId) -> bool) -> Option<BufferId> {
        let mut buffers = self.p.live_buffers();
        buffers.retain(|b| f(&self.p, *b));
        self.one(&buffers)
    }

    /// A loop argument: mostly a name, else a decision between some loops.
    fn place(&mut self, loops: &[LoopId]) -> Option<LoopArg> {
        if self.rng.random_bool(0.8) {
            return self.one(loops).map(|l| LoopArg::Name(self.name(l)));
        }
        let mut names: Vec<String> = loops.iter().map(|l| self.name(*l)).collect();
        names.push(HERE.to_string());
        let kind = DecisionKind::ComputeLocation { loops: names };
        self.decide("place", kind).map(LoopArg::Decision)
    }

    fn scope(&mut self) -> Scope {
        let scopes = [
            Scope::Global,
            Scope::Local,
            Scope::Local,
            Scope::Register,
            Scope::Shared,
            Scope::Warp,
        ];
        *scopes.choose(&mut self.rng).expect("not empty")
    }
}

/// Block instances of one run, predicates aside.
fn instances(p: &Program) -> i64 {
    let mut all: i64 = 0;
    p.walk(&p.body, &mut |n, path| {
        if let Node::Block(b) = n {
            let tensor = p.block(b).tensor.iter().flat_map(|t| &t.iters);
            let points = path
                .iter()
                .map(|l| p.loop_(*l).extent)
                .chain(tensor.map(|t| t.1))
                .fold(1, i64::saturating_mul);
            all = all.saturating_add(points);
        }
    });
    all
}

fn is_serial(p: &Program, l: LoopId) -> bool {
    p.loop_(l).kind == LoopKind::Serial
}

fn path(p: &Program, b: BlockId) -> Vec<LoopId> {
    p.path_to(Node::Block(b)).unwrap_or_default()
}

/// The loops from `l` inwards, each the only child of the one before.
fn chain(p: &Program, l: LoopId) -> Vec<LoopId> {
    let mut loops = vec![l];
    while let [Node::Loop(next)] = p.children(loops.last().copied()) {
        loops.push(*next);
    }
    loops
}

/// Whether a loop enumerates terms of a reduction under it.
fn reduces(p: &Program, l: LoopId) -> bool {
    let var = p.loop_(l).var;
    p.blocks_under(&[Node::Loop(l)]).into_iter().any(|b| {
        let mut terms = p.block(b).reduce_iters();
        terms.any(|i| i.binding.uses_var(var))
    })
}

fn split(g: &mut Growing<'_>) -> Option<()> {
    let l = g.loop_where(|p, l| is_serial(p, l) && p.loop_(l).extent > 1)?;
    split_loop(g, l)
}

fn split_loop(g: &mut Growing<'_>, l: LoopId) -> Option<()> {
    let extent = g.p.loop_(l).extent;
    let parts = g.rng.random_range(2..=3);
    let loop_ = g.name(l);
    if g.rng.random_bool(0.3) {
        let kind = DecisionKind::PerfectTile {
            extent,
            parts,
            max_innermost: g.rng.random_range(1..=extent),
        };
        let id = g.decide("tile", kind)?;
        let factor = |part| Factor::Arg(Arg::Decision { id, part });
        let factors = (0..parts).map(factor).collect();
        return g.step(Step::Split { loop_, factors });
    }
    let most = (extent / 2).clamp(1, 8);
    let mut factors: Vec<Factor> = (0..parts)
        .map(|_| Factor::Arg(Arg::Lit(g.rng.random_range(1..=most))))
        .collect();
    let rest = if g.rng.random_bool(0.8) {
        0
    } else {
        g.rng.random_range(0..parts)
    };
    factors[rest] = Factor::Rest;
    g.step(Step::Split { loop_, factors })
}

fn fuse(g: &mut Growing<'_>) -> Option<()> {
    let loops = |p: &Program, l: LoopId| -> Vec<LoopId> {
        let children = p.children(Some(l)).iter();
        children
            .filter_map(|n| match n {
                Node::Loop(inner) => Some(*inner),
                Node::Block(_) => None,
            })
            .collect()
    };
    let outer = g.loop_where(|p, l| is_serial(p, l) && !loops(p, l).is_empty())?;
    let inner = g.one(&loops(&g.p, outer))?;
    let (outer, inner) = (g.name(outer), g.name(inner));
    g.step(Step::Fuse { outer, inner })
}

fn reorder(g: &mut Growing<'_>) -> Option<()> {
    let mut loops = if g.rng.random_bool(0.9) {
        let l = g.loop_where(|p, l| chain(p, l).len() > 1)?;
        chain(&g.p, l)
    } else {
        let b = g.block_where(|p, b| path(p, b).len() > 1)?;
        path(&g.p, b)
    };
    loops.shuffle(&mut g.rng);
    let count = g.rng.random_range(2..=loops.len());
    let loops = loops[..count].iter().map(|l| g.name(*l)).collect();
    g.step(Step::Reorder { loops })
}

fn partition(g: &mut Growing<'_>) -> Option<()> {
    if g.p.block_ids().len() > MOST_BLOCKS {
        return None;
    }
    let mut loops = g.p.loop_ids();
    loops.shuffle(&mut g.rng);
    let names: Vec<String> = loops.iter().take(4).map(|l| g.name(*l)).collect();
    names
        .into_iter()
        .find_map(|loop_| g.step(Step::Partition { loop_ }))
}

/// Splits a loop into parts that do not divide it and cuts the tail off.
fn partition_tail(g: &mut Growing<'_>) -> Option<()> {
    if g.p.block_ids().len() > MOST_BLOCKS {
        return None;
    }
    let l = g.loop_where(|p, l| is_serial(p, l) && p.loop_(l).extent > 2)?;
    let loop_ = g.name(l);
    let most = g.p.loop_(l).extent.min(8);
    let inner = Factor::Arg(Arg::Lit(g.rng.random_range(2..=most)));
    let part = format!("{loop_}.{}", g.rng.random_range(0..2));
    g.step(Step::Split {
        loop_,
        factors: vec![Factor::Rest, inner],
    })?;
    g.step(Step::Partition { loop_: part })
}

/// Lets workers share the tiles of an axis, together with the loop around them where that
/// is legal, and cuts the tail off inside the shared loop.
fn partition_shared(g: &mut Growing<'_>) -> Option<()> {
    if g.p.block_ids().len() > MOST_BLOCKS {
        return None;
    }
    let l = g.loop_where(|p, l| is_serial(p, l) && p.loop_(l).extent > 2)?;
    let around = g.p.path_to(Node::Loop(l)).unwrap_or_default();
    let around = around.last().map(|l| g.name(*l));
    let loop_ = g.name(l);
    let most = g.p.loop_(l).extent.min(8);
    let inner = Factor::Arg(Arg::Lit(g.rng.random_range(2..=most)));
    let mut shared = format!("{loop_}.0");
    g.step(Step::Split {
        loop_,
        factors: vec![Factor::Rest, inner],
    })?;
    if let Some(outer) = around {
        let fused = format!("{outer}&{shared}");
        let inner = shared.clone();
        if g.step(Step::Fuse { outer, inner }).is_some() {
            shared = fused;
        }
    }
    let loop_ = shared.clone();
    g.step(Step::Parallel { loop_ })?;
    g.step(Step::Partition { loop_: shared })
}

fn compute_at(g: &mut Growing<'_>) -> Option<()> {
    let b = g.block_where(|p, b| {
        let mut writes = p.block(b).writes.iter();
        writes.any(|w| !p.consumers(w.buffer).is_empty())
    })?;
    let written = g.p.block(b).writes[0].buffer;
    let consumers = g.p.consumers(written);
    let consumer = g.one(&consumers)?;
    let loop_ = g.place(&path(&g.p, consumer))?;
    let block = g.block_name(b);
    g.step(Step::ComputeAt { block, loop_ })
}

fn reverse_compute_at(g: &mut Growing<'_>) -> Option<()> {
    let produced = |p: &Program, b: BlockId| {
        let reads = p.block(b).reads();
        reads.into_iter().flat_map(|r| p.producers(r)).collect()
    };
    let b = g.block_where(|p, b| {
        let producers: Vec<BlockId> = produced(p, b);
        !producers.is_empty()
    })?;
    let producers: Vec<BlockId> = produced(&g.p, b);
    let producer = g.one(&producers)?;
    let loop_ = g.place(&path(&g.p, producer))?;
    let block = g.block_name(b);
    g.step(Step::ReverseComputeAt { block, loop_ })
}

fn compute_inline(g: &mut Growing<'_>) -> Option<()> {
    let b = g.block_where(|p, b| !p.block(b).is_reduction())?;
    let block = g.block_name(b);
    g.step(Step::ComputeInline { block })
}

fn reverse_compute_inline(g: &mut Growing<'_>) -> Option<()> {
    let alone = |p: &Program, b: BlockId, read: BufferId| {
        let made = |q: &BlockId| !p.block(*q).is_reduction() && p.block(*q).writes.len() == 1;
        p.buffer(read).role == Role::Intermediate
            && p.consumers(read) == [b]
            && p.producers(read).iter().all(made)
    };
    let b = g.block_where(|p, b| {
        let reads = p.block(b).reads();
        !p.block(b).is_reduction() && reads.into_iter().any(|r| alone(p, b, r))
    })?;
    let block = g.block_name(b);
    g.step(Step::ReverseComputeInline { block })
}

fn cache_read(g: &mut Growing<'_>) -> Option<()> {
    let b = g.block_where(|p, b| !p.block(b).reads().is_empty())?;
    let reads = g.p.block(b).reads();
    let read = g.one(&reads)?;
    let (block, buffer) = (g.block_name(b), g.p.buffer(read).name.clone());
    let scope = g.scope();
    g.step(Step::CacheRead {
        block,
        buffer,
        scope,
    })?;
    let copy = *g.p.block(b).reads().iter().find(|r| !reads.contains(r))?;
    let copier = *g.p.producers(copy).first()?;
    let loop_ = g.place(&path(&g.p, b))?;
    let block = g.block_name(copier);
    g.step(Step::ComputeAt { block, loop_ })
}

fn reindex(g: &mut Growing<'_>) -> Option<()> {
    copied(g, |block, buffer| Step::Reindex { block, buffer })
}

fn surround(g: &mut Growing<'_>) -> Option<()> {
    copied(g, |block, buffer| Step::Surround { block, buffer })
}

/// A step that lets a block read a copy of a buffer, and a place for the copier.
fn copied(g: &mut Growing<'_>, step: fn(String, String) -> Step) -> Option<()> {
    let b = g.block_where(|p, b| !p.block(b).reads().is_empty())?;
    let reads = g.p.block(b).reads();
    let read = g.one(&reads)?;
    let (block, buffer) = (g.block_name(b), g.p.buffer(read).name.clone());
    g.step(step(block, buffer))?;
    let copy = *g.p.block(b).reads().iter().find(|r| !reads.contains(r))?;
    let copier = *g.p.producers(copy).first()?;
    let loop_ = g.place(&path(&g.p, b))?;
    let block = g.block_name(copier);
    g.step(Step::ComputeAt { block, loop_ })
}

fn cache_write(g: &mut Growing<'_>) -> Option<()> {
    let b = g.block_where(|_, _| true)?;
    let index = g.rng.random_range(0..g.p.block(b).writes.len());
    let written = g.p.block(b).writes[index].buffer;
    let block = g.block_name(b);
    let scope = g.scope();
    g.step(Step::CacheWrite {
        block,
        index,
        scope,
    })?;
    let copier = *g.p.producers(written).first()?;
    let loop_ = g.place(&path(&g.p, b))?;
    let block = g.block_name(copier);
    g.step(Step::ReverseComputeAt { block, loop_ })
}

fn rfactor(g: &mut Growing<'_>) -> Option<()> {
    let l = g.loop_where(reduces)?;
    let loop_ = g.name(l);
    g.step(Step::Rfactor { loop_ })
}

fn decompose(g: &mut Growing<'_>) -> Option<()> {
    let b = g.block_where(|p, b| p.block(b).reduction.as_ref().is_some_and(|r| r.init))?;
    let path = path(&g.p, b);
    let outermost = path.iter().find(|l| reduces(&g.p, **l)).copied();
    let l = match outermost {
        Some(l) if g.rng.random_bool(0.6) => l,
        _ => g.one(&path)?,
    };
    let (block, loop_) = (g.block_name(b), g.name(l));
    g.step(Step::DecomposeReduction { block, loop_ })
}

fn pack(g: &mut Growing<'_>) -> Option<()> {
    let b = g.buffer_where(|p, b| p.buffer(b).role != Role::Output)?;
    let shape = g.p.buffer(b).shape.clone();
    let mut tiles = Vec::new();
    for dim in 0..shape.len() {
        if g.rng.random_bool(0.5) {
            // A factor beyond the dimension pads it.
            let factor = g.rng.random_range(1..=8);
            tiles.push((dim, Arg::Lit(factor)));
        }
    }
    let mut order: Vec<usize> = (0..shape.len() + tiles.len()).collect();
    order.shuffle(&mut g.rng);
    let buffer = g.p.buffer(b).name.clone();
    g.step(Step::Pack {
        buffer,
        tiles,
        order,
    })
}

fn pad(g: &mut Growing<'_>) -> Option<()> {
    let l = g.loop_where(is_serial)?;
    let loop_ = g.name(l);
    let multiple = Arg::Lit(g.rng.random_range(2..=8));
    g.step(Step::Pad { loop_, multiple })
}

/// Tiles the loops round a block: splits some and puts all parts into one order.
fn tile(g: &mut Growing<'_>) -> Option<()> {
    let b = g.block_where(|_, _| true)?;
    for l in path(&g.p, b) {
        if is_serial(&g.p, l) && g.p.loop_(l).extent > 3 && g.rng.random_bool(0.6) {
            split_loop(g, l)?;
        }
    }
    let outermost = *path(&g.p, b).first()?;
    let mut loops = chain(&g.p, outermost);
    loops.shuffle(&mut g.rng);
    // Parts of the outputs outside, terms in the middle, is what tiling is for.
    if g.rng.random_bool(0.5) {
        loops.sort_by_key(|l| (g.p.loop_(*l).name.ends_with('1'), reduces(&g.p, *l)));
    }
    let loops = loops.iter().map(|l| g.name(*l)).collect();
    g.step(Step::Reorder { loops })
}

/// The loops that the last index of a block's write depends on.
fn contiguous(p: &Program, b: BlockId) -> Vec<LoopId> {
    let block = p.block(b);
    let last = block.writes[0].indices.last();
    let vars = last.map_or(vec![], ir::Expr::vars);
    let mut loops = path(p, b);
    loops.retain(|l| {
        let var = p.loop_(*l).var;
        let mut fed = block.iters.iter().filter(|i| i.binding.uses_var(var));
        fed.any(|i| vars.contains(&i.var)) && is_serial(p, *l)
    });
    loops
}

/// The name of the instructions that a block's terms may be products for, if
/// they are products of elements of two tensors; lanes aside.
fn products(p: &Program, b: BlockId) -> Option<&'static str> {
    use ir::DType::{F32, I8, I32, U8};
    let block = p.block(b);
    let loads = block.loads();
    let [(x, _), (y, _)] = loads.as_slice() else {
        return None;
    };
    let out = p.buffer(block.writes[0].buffer).dtype;
    match (out, p.buffer(*x).dtype, p.buffer(*y).dtype) {
        _ if !block.is_reduction() => None,
        (F32, ..) => Some("fma.f32"),
        (I32, I8, I8) => Some("dot4.i8i8i32"),
        (I32, U8, I8) => Some("dot4.u8i8i32"),
        (I32, U8, U8) => Some("dot4.u8u8i32"),
        _ => None,
    }
}

/// Brings a loop over outputs of a sum of products to the width of an
/// instruction and innermost, but for four bytes of a dot product, and lets the
/// instruction run it.
fn tensorize(g: &mut Growing<'_>) -> Option<()> {
    let lanes: i64 = [4, 8, 16].choose(&mut g.rng).copied()?;
    let fits = |p: &Program, l: &LoopId| p.loop_(*l).extent % lanes == 0;
    let b = g.block_where(|p, b| {
        products(p, b).is_some() && contiguous(p, b).iter().any(|l| fits(p, l))
    })?;
    let products = products(&g.p, b)?;
    let mut outputs = contiguous(&g.p, b);
    outputs.retain(|l| fits(&g.p, l));
    let l = *outputs.last()?;
    let mut loop_ = g.name(l);
    if g.p.loop_(l).extent > lanes {
        g.step(Step::Split {
            loop_: loop_.clone(),
            factors: vec![Factor::Rest, Factor::Arg(Arg::Lit(lanes))],
        })?;
        loop_.push_str(".1");
    }
    let l = g.p.loop_named(&loop_)?;
    let mut innermost = vec![l];
    if products.starts_with("dot4") {
        let mut terms = path(&g.p, b);
        terms.retain(|t| g.p.loop_(*t).extent == 4 && reduces(&g.p, *t));
        innermost.push(*terms.last()?);
    }
    let outer = path(&g.p, b).into_iter().find(|l| innermost.contains(l))?;
    let inside = chain(&g.p, outer);
    if inside != innermost {
        let mut loops = inside;
        loops.retain(|l| !innermost.contains(l));
        loops.extend(innermost);
        let loops = loops.iter().map(|l| g.name(*l)).collect();
        g.step(Step::Reorder { loops })?;
    }
    if g.rng.random_bool(0.5)
        && let Some(outermost) = path(&g.p, b).into_iter().find(|l| reduces(&g.p, *l))
    {
        let (block, loop_) = (g.block_name(b), g.name(outermost));
        let _either_way: Option<()> = g.step(Step::DecomposeReduction { block, loop_ });
    }
    let intrinsic = match (products, lanes) {
        ("fma.f32", _) => format!("fma.f32x{lanes}"),
        (_, 16) => products.to_string(),
        _ => format!("{products}x{lanes}"),
    };
    g.step(Step::Tensorize { loop_, intrinsic })
}

fn unroll(g: &mut Growing<'_>) -> Option<()> {
    let l = g.loop_where(|p, l| is_serial(p, l) && p.loop_(l).extent <= 8)?;
    let loop_ = g.name(l);
    g.step(Step::Unroll { loop_ })
}

fn vectorize(g: &mut Growing<'_>) -> Option<()> {
    let l = g.loop_where(|p, l| {
        let inner = |n: &Node| matches!(n, Node::Loop(_));
        is_serial(p, l) && !p.children(Some(l)).iter().any(inner)
    })?;
    let loop_ = g.name(l);
    g.step(Step::Vectorize { loop_ })
}

fn parallel(g: &mut Growing<'_>) -> Option<()> {
    let l = g.loop_where(is_serial)?;
    let loop_ = g.name(l);
    g.step(Step::Parallel { loop_ })
}

fn bind(g: &mut Growing<'_>) -> Option<()> {
    let l = g.loop_where(is_serial)?;
    let loop_ = g.name(l);
    let axes = [
        Axis::BlockX,
        Axis::BlockY,
        Axis::BlockZ,
        Axis::ThreadX,
        Axis::ThreadY,
        Axis::ThreadZ,
    ];
    let axis = g.one(&axes)?;
    g.step(Step::Bind { loop_, axis })
}

fn set_scope(g: &mut Growing<'_>) -> Option<()> {
    let b = g.buffer_where(|p, b| p.buffer(b).role == Role::Intermediate)?;
    let buffer = g.p.buffer(b).name.clone();
    let scope = g.scope();
    g.step(Step::SetScope { buffer, scope })
}

fn widen(g: &mut Growing<'_>) -> Option<()> {
    let b = g.buffer_where(|p, b| p.buffer(b).role == Role::Intermediate)?;
    let buffer = g.p.buffer(b).name.clone();
    g.step(Step::Widen { buffer })
}

fn prefetch(g: &mut Growing<'_>) -> Option<()> {
    let b = g.block_where(|p, b| !p.block(b).reads().is_empty())?;
    let read = g.one(&g.p.block(b).reads())?;
    let l = g.one(&path(&g.p, b))?;
    let (buffer, loop_) = (g.p.buffer(read).name.clone(), g.name(l));
    let distance = Arg::Lit(g.rng.random_range(1..=3));
    g.step(Step::Prefetch {
        buffer,
        loop_,
        distance,
    })
}

fn annotate(g: &mut Growing<'_>) -> Option<()> {
    let l = g.loop_where(is_serial)?;
    let loop_ = g.name(l);
    let options = vec![1, 2, 4, 16];
    let id = g.decide("unroll", DecisionKind::Categorical { options })?;
    let unroll_by = Arg::Decision { id, part: 0 };
    g.step(Step::Annotate { loop_, unroll_by })
}
