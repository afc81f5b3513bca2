//! Programs: loops and blocks over buffers, in arenas with typed ids.
//!
//! A *block* is one statement executed for every point of its iteration
//! domain. Its reads and writes are indexed by its own iteration variables
//! only; how the surrounding loops enumerate the domain is said by one
//! *binding* per variable. Steps change loops and bindings and leave the
//! statement alone, so what a block computes never depends on its schedule.
//!
//! Loops run from 0 to `extent - 1` by 1; extents are constants. A block
//! instance runs when its predicate holds. Names of loops, blocks and buffers
//! are unique in a program and survive edits, so that a schedule can refer to
//! them by name.

use crate::expr::{Expr, ExprKind};
use std::sync::Arc;
use tensor::DType;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident),*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            pub const fn index(self) -> usize { self.0 as usize }
        }
    )* };
}
id!(
    /// A loop variable or a block's iteration variable.
    VarId,
    BufferId,
    LoopId,
    BlockId
);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Var {
    pub name: String,
}

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Main memory: parameters, and intermediates shared by all workers.
    Global,
    /// Memory private to one worker (CPU) or thread (GPU).
    Local,
    /// Registers: every access must have constant indices after unrolling and vectorising.
    Register,
    /// GPU: memory of one thread block.
    Shared,
    /// GPU: registers of one warp.
    Warp,
}

impl Scope {
    /// All of them, with their words in texts.
    pub const WORDS: [(Scope, &'static str); 5] = [
        (Scope::Global, "global"),
        (Scope::Local, "local"),
        (Scope::Register, "register"),
        (Scope::Shared, "shared"),
        (Scope::Warp, "warp"),
    ];

    pub fn word(self) -> &'static str {
        Scope::WORDS[self as usize].1
    }
}

/// What a buffer is to the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Input,
    /// A parameter whose value is known when the model is compiled. What
    /// depends on constants only is computed once, by the prepare entry.
    Constant,
    Output,
    Intermediate,
}

/// How a parameter lies in its parent allocation, in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub strides: Vec<i64>,
    pub offset: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub scope: Scope,
    pub role: Role,
    /// `None`: dense, row-major. Only parameters have a view.
    pub view: Option<View>,
}

/// A hardware axis of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    BlockX,
    BlockY,
    BlockZ,
    ThreadX,
    ThreadY,
    ThreadZ,
}

impl Axis {
    /// All of them, with their words in texts and messages.
    pub const WORDS: [(Axis, &'static str); 6] = [
        (Axis::BlockX, "block.x"),
        (Axis::BlockY, "block.y"),
        (Axis::BlockZ, "block.z"),
        (Axis::ThreadX, "thread.x"),
        (Axis::ThreadY, "thread.y"),
        (Axis::ThreadZ, "thread.z"),
    ];

    pub fn word(self) -> &'static str {
        Axis::WORDS[self as usize].1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopKind {
    Serial,
    Parallel,
    Vectorized,
    Unrolled,
    Bound(Axis),
}

/// Facts attached to a loop that do not change what the program means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Annotation {
    /// Code generation unrolls a serial loop by this factor.
    UnrollBy(i64),
    /// On every iteration fetch what the loads of `buffer` under the loop will
    /// touch `distance` iterations later.
    Prefetch { buffer: BufferId, distance: i64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// Unique in the program; also the name of its variable.
    pub name: String,
    pub var: VarId,
    pub extent: i64,
    pub kind: LoopKind,
    pub annotations: Vec<Annotation>,
    pub body: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    Loop(LoopId),
    Block(BlockId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IterKind {
    /// Distinct values write distinct elements.
    Spatial,
    /// Values are combined by the block's reducer.
    Reduce,
    /// Values come in ascending order. A later one may load what an earlier one wrote, and write it anew. Where
    /// the statement writes may depend on the data.
    Ordered,
}

impl IterKind {
    /// All of them, with their words in texts.
    pub const WORDS: [(IterKind, &'static str); 3] = [
        (IterKind::Spatial, "spatial"),
        (IterKind::Reduce, "reduce"),
        (IterKind::Ordered, "ordered"),
    ];

    pub fn word(self) -> &'static str {
        IterKind::WORDS[self as usize].1
    }
}

/// One iteration variable of a block, with domain `0..extent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Iter {
    pub var: VarId,
    pub extent: i64,
    pub kind: IterKind,
    /// The variable's value, over loop variables.
    pub binding: Expr,
}

/// Stores `value` to one element. In a reduction block `value` is the term
/// that the reducer combines with the element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub buffer: BufferId,
    pub indices: Vec<Expr>,
    pub value: Expr,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reducer {
    Sum,
    Prod,
    Min,
    Max,
    /// Over tuples: `combine[i]` is accumulator `i` after the update, over
    /// `Arg(0..n)` (accumulators) and `Arg(n..2n)` (terms). Associative and commutative.
    Tuple {
        combine: Vec<Expr>,
        identity: Vec<Expr>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    pub reducer: Reducer,
    /// Whether the instance whose reduce variables are all 0 first sets the
    /// accumulators to the identity. False once an init block does it.
    pub init: bool,
}

/// The part of a tensorized block's domain that one intrinsic covers: the
/// block runs its statement for every point of `iters`, which have no binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorOp {
    /// Name in the table of declared intrinsics.
    pub intrinsic: String,
    /// (variable, extent, kind), outermost first.
    pub iters: Vec<(VarId, i64, IterKind)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Unique in the program.
    pub name: String,
    pub iters: Vec<Iter>,
    /// Over loop variables; `None` is always true.
    pub predicate: Option<Expr>,
    /// All values are evaluated before any is stored.
    pub writes: Vec<Write>,
    pub reduction: Option<Reduction>,
    pub tensor: Option<TensorOp>,
}

/// A program: parameters, and a forest of loops with blocks as leaves.
///
/// A clone shares all entries of the arenas until one of the two changes them: steps and lowering
/// work on clones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub name: String,
    vars: Vec<Arc<Var>>,
    buffers: Vec<Arc<Buffer>>,
    loops: Vec<Arc<Loop>>,
    blocks: Vec<Arc<Block>>,
    /// Parameters in argument order.
    pub params: Vec<BufferId>,
    pub body: Vec<Node>,
}

impl Reducer {
    /// The accumulators' start values, one per write.
    pub fn identity(&self, dtypes: &[DType]) -> Vec<Expr> {
        let extreme = |d: DType, largest: bool| -> Expr {
            let (lo, hi) = match d {
                DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
                DType::U8 => (0, i64::from(u8::MAX)),
                DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
                DType::I64 => (i64::MIN, i64::MAX),
                DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
                DType::U16 => (0, i64::from(u16::MAX)),
                DType::U32 => (0, i64::from(u32::MAX)),
                // Its bits: all of them are set in the largest one.
                DType::U64 => (0, -1),
                DType::Bool => (0, 1),
                _ => {
                    let v = if largest {
                        f64::INFINITY
                    } else {
                        f64::NEG_INFINITY
                    };
                    return Expr::constant(v, d);
                }
            };
            crate::expr::ExprKind::Int(if largest { hi } else { lo }, d).into()
        };
        match self {
            Reducer::Sum => dtypes.iter().map(|d| Expr::constant(0.0, *d)).collect(),
            Reducer::Prod => dtypes.iter().map(|d| Expr::constant(1.0, *d)).collect(),
            Reducer::Min => dtypes.iter().map(|d| extreme(*d, true)).collect(),
            Reducer::Max => dtypes.iter().map(|d| extreme(*d, false)).collect(),
            Reducer::Tuple { identity, .. } => identity.clone(),
        }
    }

    /// The accumulators after combining `acc` with `terms`.
    pub fn combine(&self, acc: &[Expr], terms: &[Expr]) -> Vec<Expr> {
        use crate::expr::BinaryOp;
        let op = match self {
            Reducer::Sum => BinaryOp::Add,
            Reducer::Prod => BinaryOp::Mul,
            Reducer::Min => BinaryOp::Min,
            Reducer::Max => BinaryOp::Max,
            Reducer::Tuple { combine, .. } => {
                let n = acc.len();
                let arg = |i: usize| {
                    if i < n {
                        acc[i].clone()
                    } else {
                        terms[i - n].clone()
                    }
                };
                return combine
                    .iter()
                    .map(|e| {
                        e.rewrite(&mut |e| match e.kind() {
                            ExprKind::Arg(i, _) => Some(arg(*i as usize)),
                            _ => None,
                        })
                    })
                    .collect();
            }
        };
        acc.iter()
            .zip(terms)
            .map(|(a, t)| Expr::binary(op, a, t))
            .collect()
    }
}

impl Block {
    /// Whether this block combines terms into its output.
    pub fn is_reduction(&self) -> bool {
        self.reduction.is_some()
    }

    pub fn reduce_iters(&self) -> impl Iterator<Item = &Iter> {
        self.iters.iter().filter(|i| i.kind == IterKind::Reduce)
    }

    /// Whether its instances run in an order of their own.
    pub fn is_ordered(&self) -> bool {
        self.iters.iter().any(|i| i.kind == IterKind::Ordered)
    }

    pub fn spatial_iters(&self) -> impl Iterator<Item = &Iter> {
        self.iters.iter().filter(|i| i.kind == IterKind::Spatial)
    }

    /// The condition of an ordered block without which each element that it writes keeps its value.
    pub fn runs_where(&self) -> Option<&Expr> {
        let ExprKind::Select(first, ..) = self.writes.first()?.value.kind() else {
            return None;
        };
        let keeps = |w: &Write| match w.value.kind() {
            ExprKind::Select(c, _, kept) => {
                c == first && *kept == Expr::load(w.buffer, w.indices.clone())
            }
            _ => false,
        };
        (self.is_ordered() && self.writes.iter().all(keeps)).then_some(first)
    }

    /// Every load in indices and values: (buffer, indices). The accumulators
    /// that a reduction reads back are not listed.
    pub fn loads(&self) -> Vec<(BufferId, Vec<Expr>)> {
        let mut out = Vec::new();
        for w in &self.writes {
            for e in w.indices.iter().chain([&w.value]) {
                e.visit_loads(&mut |b, i| out.push((b, i.to_vec())));
            }
        }
        out
    }

    /// Applies `f` to every index and value of the statement (not to bindings).
    pub fn map_statement(&mut self, mut f: impl FnMut(&Expr) -> Expr) {
        for w in &mut self.writes {
            for i in &mut w.indices {
                *i = f(i);
            }
            w.value = f(&w.value);
        }
    }
}

impl Program {
    pub fn new(name: impl Into<String>) -> Program {
        Program {
            name: name.into(),
            vars: vec![],
            buffers: vec![],
            loops: vec![],
            blocks: vec![],
            params: vec![],
            body: vec![],
        }
    }

    pub fn add_var(&mut self, name: impl Into<String>) -> VarId {
        self.vars.push(Arc::new(Var { name: name.into() }));
        VarId(self.vars.len() as u32 - 1)
    }

    /// Adds a buffer; parameters are also appended to `params`.
    pub fn add_buffer(&mut self, buffer: Buffer) -> BufferId {
        let id = BufferId(self.buffers.len() as u32);
        if buffer.role != Role::Intermediate {
            self.params.push(id);
        }
        self.buffers.push(Arc::new(buffer));
        id
    }

    /// Adds a loop that is not yet part of the body.
    pub fn add_loop(&mut self, l: Loop) -> LoopId {
        self.loops.push(Arc::new(l));
        LoopId(self.loops.len() as u32 - 1)
    }

    /// Adds a serial loop with a new variable, not yet part of the body.
    pub fn new_loop(&mut self, name: impl Into<String>, extent: i64, body: Vec<Node>) -> LoopId {
        let name = name.into();
        let var = self.add_var(name.clone());
        self.add_loop(Loop {
            name,
            var,
            extent,
            kind: LoopKind::Serial,
            annotations: vec![],
            body,
        })
    }

    /// Adds a block that is not yet part of the body.
    pub fn add_block(&mut self, b: Block) -> BlockId {
        self.blocks.push(Arc::new(b));
        BlockId(self.blocks.len() as u32 - 1)
    }

    pub fn var(&self, id: VarId) -> &Var {
        &self.vars[id.index()]
    }

    pub fn var_count(&self) -> usize {
        self.vars.len()
    }

    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    pub fn buffer_mut(&mut self, id: BufferId) -> &mut Buffer {
        Arc::make_mut(&mut self.buffers[id.index()])
    }

    pub fn buffer_ids(&self) -> impl Iterator<Item = BufferId> + use<> {
        (0..self.buffers.len() as u32).map(BufferId)
    }

    /// An arena entry; it may no longer be part of the body.
    pub fn loop_(&self, id: LoopId) -> &Loop {
        &self.loops[id.index()]
    }

    pub fn loop_mut(&mut self, id: LoopId) -> &mut Loop {
        Arc::make_mut(&mut self.loops[id.index()])
    }

    /// An arena entry; it may no longer be part of the body.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    pub fn block_mut(&mut self, id: BlockId) -> &mut Block {
        Arc::make_mut(&mut self.blocks[id.index()])
    }

    /// Loops of the arena, whether or not part of the body.
    pub fn loop_count(&self) -> usize {
        self.loops.len()
    }

    /// Blocks of the arena, whether or not part of the body.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Children of a loop, or of the root for `None`.
    pub fn children(&self, parent: Option<LoopId>) -> &[Node] {
        match parent {
            Some(l) => &self.loop_(l).body,
            None => &self.body,
        }
    }

    pub fn children_mut(&mut self, parent: Option<LoopId>) -> &mut Vec<Node> {
        match parent {
            Some(l) => &mut self.loop_mut(l).body,
            None => &mut self.body,
        }
    }

    /// Calls `f(node, enclosing loops outermost first)` for every node under
    /// `nodes`, parents first, in execution order.
    pub fn walk(&self, nodes: &[Node], f: &mut impl FnMut(Node, &[LoopId])) {
        fn go(
            p: &Program,
            nodes: &[Node],
            path: &mut Vec<LoopId>,
            f: &mut impl FnMut(Node, &[LoopId]),
        ) {
            for n in nodes {
                f(*n, path);
                if let Node::Loop(l) = n {
                    path.push(*l);
                    go(p, &p.loop_(*l).body, path, f);
                    path.pop();
                }
            }
        }
        go(self, nodes, &mut Vec::new(), f);
    }

    /// Blocks under `nodes`, in execution order.
    pub fn blocks_under(&self, nodes: &[Node]) -> Vec<BlockId> {
        let mut out = Vec::new();
        self.walk(nodes, &mut |n, _| {
            if let Node::Block(b) = n {
                out.push(b);
            }
        });
        out
    }

    /// All blocks of the body, in execution order.
    pub fn block_ids(&self) -> Vec<BlockId> {
        self.blocks_under(&self.body)
    }

    /// All loops of the body, parents first, in execution order.
    pub fn loop_ids(&self) -> Vec<LoopId> {
        let mut out = Vec::new();
        self.walk(&self.body, &mut |n, _| {
            if let Node::Loop(l) = n {
                out.push(l);
            }
        });
        out
    }

    /// The loops around a node, outermost first; `None` if it is not in the body.
    pub fn path_to(&self, node: Node) -> Option<Vec<LoopId>> {
        fn go(p: &Program, nodes: &[Node], node: Node, path: &mut Vec<LoopId>) -> bool {
            nodes.iter().any(|n| {
                if *n == node {
                    return true;
                }
                let Node::Loop(l) = n else { return false };
                path.push(*l);
                let found = go(p, &p.loop_(*l).body, node, path);
                if !found {
                    path.pop();
                }
                found
            })
        }
        let mut path = Vec::new();
        go(self, &self.body, node, &mut path).then_some(path)
    }

    /// The first node under `nodes`, parents first, in execution order, for which
    /// `f` holds.
    fn find(&self, nodes: &[Node], f: &impl Fn(Node) -> bool) -> Option<Node> {
        nodes.iter().find_map(|n| {
            if f(*n) {
                return Some(*n);
            }
            match n {
                Node::Loop(l) => self.find(&self.loop_(*l).body, f),
                Node::Block(_) => None,
            }
        })
    }

    /// The loop directly around a node: `Some(None)` for the root, `None` if absent.
    pub fn parent_of(&self, node: Node) -> Option<Option<LoopId>> {
        self.path_to(node).map(|p| p.last().copied())
    }

    /// The first loop or block with a name.
    pub fn node_named(&self, name: &str) -> Option<Node> {
        self.find(&self.body, &|n| match n {
            Node::Loop(l) => self.loop_(l).name == name,
            Node::Block(b) => self.block(b).name == name,
        })
    }

    pub fn loop_named(&self, name: &str) -> Option<LoopId> {
        let named = |n| matches!(n, Node::Loop(l) if self.loop_(l).name == name);
        match self.find(&self.body, &named)? {
            Node::Loop(l) => Some(l),
            Node::Block(_) => None,
        }
    }

    pub fn block_named(&self, name: &str) -> Option<BlockId> {
        let named = |n| matches!(n, Node::Block(b) if self.block(b).name == name);
        match self.find(&self.body, &named)? {
            Node::Block(b) => Some(b),
            Node::Loop(_) => None,
        }
    }

    pub fn buffer_named(&self, name: &str) -> Option<BufferId> {
        self.buffer_ids().find(|b| self.buffer(*b).name == name)
    }

    /// The loop of the body that owns a variable.
    pub fn loop_of_var(&self, v: VarId) -> Option<LoopId> {
        let owns = |n| matches!(n, Node::Loop(l) if self.loop_(l).var == v);
        match self.find(&self.body, &owns)? {
            Node::Loop(l) => Some(l),
            Node::Block(_) => None,
        }
    }

    /// Replaces `old` among its siblings by `new`.
    ///
    /// # Panics
    /// If `old` is not in the body.
    pub fn replace_node(&mut self, old: Node, new: &[Node]) {
        let parent = self.parent_of(old).expect("the node is in the body");
        let siblings = self.children_mut(parent);
        let at = siblings
            .iter()
            .position(|n| *n == old)
            .expect("a child of its parent");
        siblings.splice(at..=at, new.iter().copied());
    }

    /// A name not yet used by any loop, block or buffer of the arenas:
    /// `base`, else `base_1`, `base_2`, ...
    pub fn fresh_name(&self, base: &str) -> String {
        let taken = |n: &str| {
            self.loops.iter().any(|l| l.name == n)
                || self.blocks.iter().any(|b| b.name == n)
                || self.buffers.iter().any(|b| b.name == n)
        };
        if !taken(base) {
            return base.to_string();
        }
        (1..)
            .map(|i| format!("{base}_{i}"))
            .find(|n| !taken(n))
            .expect("names do not run out")
    }
}
