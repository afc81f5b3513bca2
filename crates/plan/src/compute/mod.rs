//! Operators as tensor expressions: one file a family.
//!
//! Every program reads its operands in the layouts that were chosen for them
//! and writes one result. The anchor is the block `main` (reductions of several
//! blocks name theirs after what they compute); what follows it element by
//! element is the block `out`. Without a chain, `main` writes the result, and
//! an anchor that only moves elements takes the chain into `main`. Everything
//! is in global memory under serial loops.
//!
//! Half precision is computed in f32: loads widen, the store rounds.

mod attention;
mod contract;
mod conv;
mod conv_transpose;
mod cumulative;
mod digits;
mod elementwise;
mod index;
mod matmul;
mod merge;
mod moved;
mod movement;
mod norm;
mod pool;
mod reduce;
mod resize;
mod rows;
mod sample;
mod select;
mod stages;
mod suppress;
mod terms;
mod top_k;
mod tournament;
mod window;
mod winners;

use super::fold::Fold;
use super::fuse::{Group, is_elementwise};
use super::layout::{Choice, Layout};
use graph::ops::Op;
use graph::{EvenIndices, Model, Node, Users, ValueId};
use ir::names::{MAIN, OUT, image};
use ir::tensor_expression::AxisExtent;
use ir::{BufferId, Expr, Program, ProgramBuilder};
use moved::Moved;
use std::collections::{BTreeMap, HashMap};
use tensor::DType;
use terms::Computed;
use window::Window;

pub(super) use elementwise::{Extent, extent, unsupported as unsupported_elementwise};
pub(super) use movement::layout_transform;

/// A program with what is said about it beside.
pub(super) struct Built {
    pub program: Program,
    /// The values behind the parameters, without the result, in order.
    pub operands: Vec<(ValueId, Layout)>,
    pub kind: Kind,
}

/// What a program is, for people, tables and schedule templates.
#[derive(Debug)]
pub(super) struct Kind {
    pub op: String,
    pub args: BTreeMap<String, i64>,
    /// Floating-point operations, where the operator defines them.
    pub flops: Option<f64>,
}

impl Kind {
    pub fn new(op: impl Into<String>) -> Kind {
        Kind {
            op: op.into(),
            args: BTreeMap::new(),
            flops: None,
        }
    }

    pub fn arg(mut self, name: &str, value: impl TryInto<i64>) -> Kind {
        let value = value.try_into().ok().expect("sizes fit 63 bits");
        self.args.insert(name.to_string(), value);
        self
    }

    pub fn flops(mut self, flops: f64) -> Kind {
        self.flops = Some(flops);
        self
    }
}

/// The program of output `output` of a group.
pub(super) fn build(
    model: &Model,
    users: &Users,
    group: &Group,
    choice: &Choice,
    output: usize,
) -> Built {
    if let Some(scores) = &group.scores {
        return attention::attention(model, users, group, scores, choice);
    }
    let mut builder = ProgramBuilder::new(model[group.anchor].op.name());
    let (env, operands) = Env::new(
        (model, users),
        (group, choice, output),
        operand_names(&model[group.anchor].op),
        Declared::default(),
        &mut builder,
    );
    let (result, kind) = match group.rows.is_empty() {
        true => anchor(&env, &mut builder),
        false => rows::rows(&env, &mut builder),
    };
    let mut program = builder.finish(&[result]);
    if let Op::Conv(_) | Op::ConvTranspose(_) = &env.node.op {
        // A depthwise convolution is another type of kernel.
        program.name.clone_from(&kind.op);
    }
    Built {
        program: match joins_axes(&env) {
            true => merge::merged(program),
            false => program,
        },
        operands,
        kind,
    }
}

/// Whether axes that lie behind each other become one: where templates and rules do not need
/// the axes of an image apart.
fn joins_axes(env: &Env) -> bool {
    match &env.node.op {
        Op::Conv(c) => env.layout == Layout::Plain && c.groups == 1,
        Op::Contract(_) => true,
        Op::Transpose(_) => env.layout == Layout::Plain && env.group.moves.nodes.is_empty(),
        op => is_elementwise(op) && env.group.rows.is_empty(),
    }
}

fn anchor(env: &Env, b: &mut ProgramBuilder) -> (BufferId, Kind) {
    if env.group.moves.blocked || !env.group.moves.nodes.is_empty() {
        return moved::moved(env, b);
    }
    match &env.node.op {
        Op::Conv(c) => conv::conv(env, b, c, conv::Outside::ZERO),
        Op::ConvInteger(c) => conv::conv(env, b, &c.conv, conv::Outside::of(c)),
        Op::ConvTranspose(c) => conv_transpose::conv_transpose(env, b, c),
        Op::Col2Im(c) => conv_transpose::col2im(env, b, c),
        Op::MatMul | Op::MatMulInteger => matmul::matmul(env, b),
        Op::MatMulBlocks(m) => matmul::matmul_blocks(env, b, *m),
        Op::Gemm(g) => matmul::gemm(env, b, g),
        Op::Contract(c) => contract::contract(env, b, c),
        Op::Pool(p) => pool::pool(env, b, p),
        Op::MaxPoolGradient(g) => conv_transpose::max_pool(env, b, &g.pool),
        Op::Resize(r) => resize::resize(env, b, r),
        Op::Reduce(r) => reduce::reduce(env, b, r),
        Op::ArgReduce(r) => reduce::arg_reduce(env, b, *r),
        Op::Softmax(s) => norm::softmax(env, b, *s),
        Op::LayerNorm(l) => norm::layer_norm(env, b, *l),
        Op::Lrn(l) => norm::lrn(env, b, *l),
        Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast(_) | Op::Lookup | Op::BatchNorm(_) => {
            elementwise::pointwise(env, b)
        }
        Op::Cumulative(c) => cumulative::cumulative(env, b, *c),
        Op::Concat(c) => movement::concat(env, b, *c),
        Op::Split(s) => movement::split(env, b, s),
        Op::Slice(s) => movement::slice(env, b, s),
        Op::Pad(p) => movement::pad(env, b, p),
        Op::Transpose(t) => movement::transpose(env, b, t),
        Op::Expand(_) => movement::expand(env, b),
        Op::Gather(g) => index::gather(env, b, *g),
        Op::GatherElements(g) => index::gather_elements(env, b, *g),
        Op::GatherNd(g) => index::gather_nd(env, b, *g),
        Op::ScatterElements(s) => index::scatter_elements(env, b, *s),
        Op::ScatterNd(s) => index::scatter_nd(env, b, *s),
        Op::TopK(t) => top_k::top_k(env, b, *t),
        Op::Positions => select::positions(env, b),
        Op::Suppress(s) => suppress::suppress(env, b, *s),
        Op::GridSample(g) => sample::grid_sample(env, b, *g),
        Op::Identity | Op::Dropout(_) | Op::Reshape(_) => unreachable!("aliases are in no group"),
    }
}

/// The type that values of an element type are computed in.
pub(super) fn work(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    }
}

/// One element index of a logical tensor, with the channel also split as the
/// result's layout splits it.
#[derive(Clone)]
struct Point {
    index: Vec<Expr>,
    /// Channel block, lane.
    split: Option<(Expr, Expr)>,
}

impl Point {
    /// From the axes of a result in this layout.
    fn of(layout: Layout, axes: &[Expr]) -> Point {
        let Layout::Blocked { block } = layout else {
            return Point {
                index: axes.to_vec(),
                split: None,
            };
        };
        let (lane, index) = axes.split_last().expect("a blocked result has lanes");
        let mut index = index.to_vec();
        let co = index[1].clone();
        index[1] = &co * block + lane;
        Point {
            index,
            split: Some((co, lane.clone())),
        }
    }

    /// A point that no axis of the result enumerates.
    fn plain(index: Vec<Expr>) -> Point {
        Point { index, split: None }
    }
}

/// How an operand is read.
#[derive(Clone)]
enum Access {
    Buffer {
        buffer: BufferId,
        dtype: DType,
        /// What its elements are computed in.
        work: DType,
        /// Logical.
        shape: Vec<i64>,
        layout: Layout,
        /// What runs along the buffer's axes, if it holds another value that the
        /// operand is a transpose of. The layout is that value's then.
        axes: Option<Vec<Option<usize>>>,
    },
    /// A constant of one element.
    Literal(Expr),
    /// Elements of other values that a node moves to this one.
    Moved(Moved),
    /// What a node computes of elements of other values.
    Computed(Computed),
}

impl Access {
    /// The element that broadcasts to a point of the result, in the working type.
    fn load(&self, p: &Point) -> Expr {
        let lead = p.index.len() - self.shape().len();
        let sizes = self.shape().iter();
        let index = sizes
            .zip(&p.index[lead..])
            .map(|(n, i)| if *n == 1 { Expr::int(0) } else { i.clone() })
            .collect();
        let broadcast = self.shape().get(1) == Some(&1);
        let split = match &p.split {
            Some(_) | None if broadcast => Some((Expr::int(0), Expr::int(0))),
            split => split.clone(),
        };
        self.element(index, split)
    }

    /// The element at an index of the operand itself.
    fn at(&self, index: Vec<Expr>) -> Expr {
        self.element(index, None)
    }

    /// The element of a blocked operand at [n, co, spatial.., ci].
    fn at_block(&self, n: &Expr, co: &Expr, spatial: Vec<Expr>, ci: &Expr) -> Expr {
        let index = [vec![n.clone(), co.clone()], spatial].concat();
        self.element(index, Some((co.clone(), ci.clone())))
    }

    /// The element at a logical index; `split` is the channel as block and lane.
    fn element(&self, mut index: Vec<Expr>, split: Option<(Expr, Expr)>) -> Expr {
        match self {
            Access::Literal(e) => e.clone(),
            Access::Moved(m) => m.at(index),
            Access::Computed(c) => c.at(&Point { index, split }),
            Access::Buffer {
                buffer,
                dtype,
                work,
                layout,
                axes,
                ..
            } => {
                if let Some(axes) = axes {
                    let along = |a: &Option<usize>| a.map_or(Expr::int(0), |d| index[d].clone());
                    index = axes.iter().map(along).collect();
                }
                if let Layout::Blocked { block } = *layout {
                    let (co, ci) = split.unwrap_or_else(|| {
                        let lane = index[1].clone().floor_mod(block);
                        (index[1].clone().floor_div(block), lane)
                    });
                    index[1] = co;
                    index.push(ci);
                }
                widen(Expr::load(*buffer, index), *dtype, *work)
            }
        }
    }

    /// Logical.
    fn shape(&self) -> &[i64] {
        match self {
            Access::Buffer { shape, .. } => shape,
            Access::Moved(m) => &m.shape,
            Access::Computed(c) => &c.shape,
            Access::Literal(_) => &[],
        }
    }

    /// How the channels of the operand itself lie.
    fn layout(&self) -> Layout {
        match self {
            Access::Buffer {
                layout, axes: None, ..
            } => *layout,
            Access::Buffer { .. } | Access::Literal(_) | Access::Moved(_) | Access::Computed(_) => {
                Layout::Plain
            }
        }
    }
}

fn widen(e: Expr, dtype: DType, work: DType) -> Expr {
    match work == dtype {
        true => e,
        false => e.cast(work),
    }
}

/// An operator's own last step: from the accumulator at a point to its value.
type LastStep<'a> = &'a dyn Fn(Expr, &Point) -> Expr;

/// Parameters that a program has already, and values that it computes.
#[derive(Default)]
struct Declared {
    accesses: HashMap<ValueId, Access>,
    operands: Vec<(ValueId, Layout)>,
}

/// What the expressions of one group are built from.
struct Env<'a> {
    model: &'a Model,
    group: &'a Group,
    node: &'a Node,
    /// Position of the result among the anchor's outputs.
    output: usize,
    layout: Layout,
    fills_groups: bool,
    /// Logical shape of the result; that of a reduction to a scalar is [1].
    shape: Vec<i64>,
    dtype: DType,
    accesses: HashMap<ValueId, Access>,
}

impl<'a> Env<'a> {
    /// Declares the parameters that are not declared yet: the anchor's operands, by
    /// these names, then those of the chain.
    fn new(
        (model, users): (&'a Model, &Users),
        (group, choice, output): (&'a Group, &Choice, usize),
        names: &[&str],
        declared: Declared,
        b: &mut ProgramBuilder,
    ) -> (Env<'a>, Vec<(ValueId, Layout)>) {
        let node = &model[group.anchor];
        let result = group.outputs(model)[output];
        let mut shape: Vec<i64> = model[result].shape().iter().map(|d| *d as i64).collect();
        // Then templates have a row to work on.
        if shape.is_empty() && matches!(node.op, Op::Reduce(_)) {
            shape.push(1);
        }
        let mut env = Env {
            model,
            group,
            node,
            output,
            layout: choice.output,
            fills_groups: choice.fills_groups,
            shape,
            dtype: model[result].dtype(),
            accesses: declared.accesses,
        };
        let mut operands = declared.operands;
        let pointwise = group.chain_operands(model);
        let own = if is_elementwise(&node.op) || !group.rows.is_empty() {
            &[]
        } else {
            &node.inputs[..]
        };
        for (i, v) in own.iter().enumerate() {
            let Some(v) = v.filter(|v| !model[*v].ty().is_empty()) else {
                continue;
            };
            if i == 1 && EvenIndices::of_gather(model, node).is_some() {
                continue;
            }
            let name = match names.get(i) {
                Some(name) if operands.len() == i => (*name).to_string(),
                _ => format!("X{}", i.max(operands.len())),
            };
            match Fold::of(model, users, &node.op, v) {
                Some(fold) => env.declare_folded((v, fold), &name, choice, b, &mut operands),
                None => env.declare(v, &name, choice, b, &mut operands),
            }
        }
        for v in pointwise {
            let name = format!("E{}", operands.len());
            match elementwise::literal(model, v) {
                Some(literal) if !env.accesses.contains_key(&v) => {
                    env.accesses.insert(v, Access::Literal(literal));
                }
                _ => env.declare(v, &name, choice, b, &mut operands),
            }
        }
        (env, operands)
    }

    fn declare(
        &mut self,
        v: ValueId,
        name: &str,
        choice: &Choice,
        b: &mut ProgramBuilder,
        operands: &mut Vec<(ValueId, Layout)>,
    ) {
        if self.accesses.contains_key(&v) {
            return;
        }
        if let Some((n, _)) = self.model.producer(v)
            && self.group.terms.contains(&n)
        {
            return self.declare_term(n, choice, b, operands);
        }
        if let Some((n, output)) = self.model.producer(v)
            && self.group.moves.nodes.contains(&n)
        {
            let sources: Vec<ValueId> = self.model[n].inputs.iter().flatten().copied().collect();
            for v in &sources {
                let name = match operands.len() {
                    0 => "X".into(),
                    i => format!("X{i}"),
                };
                self.declare(*v, &name, choice, b, operands);
            }
            let sources = sources.iter().map(|v| self.accesses[v].clone());
            let moved = Moved::of(self.model, (n, output), sources.collect());
            self.accesses.insert(v, Access::Moved(moved));
            return;
        }
        let value = &self.model[v];
        let layout = choice.read(v);
        let physical = layout.physical(value.shape());
        // In blocks it is what a step converts it to.
        let constant = self.model.constant(v).filter(|_| layout == Layout::Plain);
        let buffer = match constant {
            Some(_) => b.constant(name, value.dtype(), &physical),
            None => b.input(name, value.dtype(), &physical),
        };
        operands.push((v, layout));
        let access = Access::Buffer {
            buffer,
            dtype: value.dtype(),
            work: work(value.dtype()),
            shape: value.shape().iter().map(|d| *d as i64).collect(),
            layout,
            axes: None,
        };
        self.accesses.insert(v, access);
    }

    /// As [`Env::declare`], of the value that `v` is a transpose of.
    fn declare_folded(
        &mut self,
        (v, fold): (ValueId, Fold),
        name: &str,
        choice: &Choice,
        b: &mut ProgramBuilder,
        operands: &mut Vec<(ValueId, Layout)>,
    ) {
        if self.accesses.contains_key(&v) {
            return;
        }
        let source = &self.model[fold.source];
        let layout = choice.read(fold.source);
        let extents = layout.physical(source.shape());
        let access = Access::Buffer {
            buffer: b.input(name, source.dtype(), &extents),
            dtype: source.dtype(),
            work: work(self.model[v].dtype()),
            shape: self.model[v].shape().iter().map(|d| *d as i64).collect(),
            layout,
            axes: Some(fold.axes),
        };
        operands.push((fold.source, layout));
        self.accesses.insert(v, access);
    }

    /// Operand `i` of the anchor.
    fn operand(&self, i: usize) -> &Access {
        self.optional(i).expect("the operator has this operand")
    }

    /// As [`Env::operand`], if it is present and not empty.
    fn optional(&self, i: usize) -> Option<&Access> {
        self.node.input(i).and_then(|v| self.accesses.get(&v))
    }

    /// An element of operand `i` in the type that the result is computed in.
    fn factor(&self, i: usize, element: Expr) -> Expr {
        self.factor_in(self.work(), i, element)
    }

    /// An element of operand `i` in the type that terms are summed in.
    fn factor_in(&self, sums: DType, i: usize, element: Expr) -> Expr {
        match work(self.operand_dtype(i)) == sums {
            true => element,
            false => element.cast(sums),
        }
    }

    fn operand_dtype(&self, i: usize) -> DType {
        let v = self.node.input(i).expect("the operator has this operand");
        self.model[v].dtype()
    }

    /// Logical shape of the anchor's operand `i`.
    fn operand_shape(&self, i: usize) -> Vec<i64> {
        let v = self.node.input(i).expect("the operator has this operand");
        self.model[v].shape().iter().map(|d| *d as i64).collect()
    }

    fn is_constant(&self, i: usize) -> bool {
        self.node
            .input(i)
            .is_some_and(|v| self.model.constant(v).is_some())
    }

    /// The type that the anchor's result is computed in.
    fn work(&self) -> DType {
        work(self.model[self.node.outputs[self.output]].dtype())
    }

    /// The axes of the result, `i0`, `i1`, ... or those of an image in blocks.
    fn axes(&self) -> Axes {
        let names: Vec<String> = match self.layout {
            Layout::Plain => (0..self.shape.len()).map(|d| format!("i{d}")).collect(),
            Layout::Blocked { .. } => image::blocked(self.shape.len() - 2)
                .into_iter()
                .map(String::from)
                .collect(),
        };
        self.named_axes(names)
    }

    fn named_axes<S: Into<String>>(&self, names: impl IntoIterator<Item = S>) -> Axes {
        let shape: Vec<usize> = self.shape.iter().map(|d| *d as usize).collect();
        let extents = self.layout.physical(&shape);
        Axes::new(names.into_iter().map(Into::into).zip(extents))
    }

    fn point(&self, axes: &[Expr]) -> Point {
        Point::of(self.layout, axes)
    }

    /// The result at a point from the anchor's value there.
    fn follow(&self, anchor: Expr, p: &Point) -> Expr {
        self.store(self.follow_open(anchor, p), p)
    }

    /// As [`Env::follow`], not rounded to the result's type.
    fn follow_open(&self, anchor: Expr, p: &Point) -> Expr {
        let mut values = HashMap::new();
        if self.group.pointwise(self.model).len() == self.group.chain.len() {
            values.insert(self.node.outputs[self.output], anchor.clone());
        }
        let mut last = anchor;
        for n in self.group.pointwise(self.model) {
            let node = &self.model[n];
            // A table is read at an element of the operand before it.
            let read = match node.op {
                Op::Lookup => &node.inputs[..1],
                _ => &node.inputs[..],
            };
            let mut operands: Vec<Expr> = read
                .iter()
                .flatten()
                .enumerate()
                .map(|(i, v)| match (values.get(v), &node.op) {
                    (Some(e), _) => Expr::clone(e),
                    // A value a channel.
                    (None, Op::BatchNorm(_)) if i > 0 => {
                        self.accesses[v].load(&Point::plain(vec![p.index[1].clone()]))
                    }
                    (None, _) => self.accesses[v].load(p),
                })
                .collect();
            if let (Op::Lookup, Some(table)) = (&node.op, node.input(1)) {
                let at = operands[0].clone().cast(DType::I64);
                operands.push(self.accesses[&table].at(vec![at]));
            }
            let from = node.input(0).map_or(self.dtype, |v| self.model[v].dtype());
            last = elementwise::apply(&node.op, from, &operands);
            values.insert(node.output(), last.clone());
        }
        last
    }

    /// Whether a result is the anchor's value, or that in the type that it is computed in.
    fn follows_nothing(&self) -> bool {
        match self.group.chain[..] {
            [] => true,
            [n] => self.model[n].op == Op::Cast(self.work()),
            _ => false,
        }
    }

    /// Rounds to the result's type, and keeps tail channels at zero.
    fn store(&self, e: Expr, p: &Point) -> Expr {
        let e = match work(self.dtype) == self.dtype {
            true => e,
            false => e.cast(self.dtype),
        };
        match self.layout.block() {
            Some(block) if self.shape[1] % block != 0 => Expr::select(
                p.index[1].clone().lt(self.shape[1]),
                e,
                Expr::constant(0.0, self.dtype),
            ),
            _ => e,
        }
    }

    /// Finishes a reduction whose accumulator has the result's axes: the block
    /// `out` applies `post` (an operator's own last step) and the chain, if
    /// there is anything to apply.
    fn conclude(
        &self,
        b: &mut ProgramBuilder,
        accumulator: BufferId,
        axes: &Axes,
        post: Option<LastStep<'_>>,
    ) -> BufferId {
        let stored = b.program().buffer(accumulator).dtype;
        if post.is_none() && self.group.chain.is_empty() && stored == self.dtype {
            return accumulator;
        }
        self.conclude_at(b, accumulator, axes, &|at| at.to_vec(), post)
    }

    /// As [`Env::conclude`], of an accumulator that is read at `place` of the result's
    /// axes: there always is a block `out`.
    fn conclude_at(
        &self,
        b: &mut ProgramBuilder,
        accumulator: BufferId,
        axes: &Axes,
        place: &dyn Fn(&[Expr]) -> Vec<Expr>,
        post: Option<LastStep<'_>>,
    ) -> BufferId {
        b.compute(OUT.as_str(), &axes.list(), |s| {
            self.concluded(Expr::load(accumulator, place(s)), s, post)
        })
    }

    /// The result at a point from the anchor's sum there.
    fn concluded(&self, sum: Expr, at: &[Expr], post: Option<LastStep<'_>>) -> Expr {
        let p = self.point(at);
        let value = match post {
            Some(post) => post(sum, &p),
            None => sum,
        };
        self.follow(value, &p)
    }

    /// As [`Env::conclude`], of an accumulator whose axes are not those of the result:
    /// `place` is where the result has the value. There always is a block `out`.
    fn conclude_into(
        &self,
        b: &mut ProgramBuilder,
        accumulator: BufferId,
        axes: &Axes,
        place: &dyn Fn(&[Expr]) -> Vec<Expr>,
        post: Option<LastStep<'_>>,
    ) -> BufferId {
        let shape: Vec<usize> = self.shape.iter().map(|d| *d as usize).collect();
        let shape = self.layout.physical(&shape);
        b.compute_into(OUT.as_str(), &axes.list(), &shape, |s| {
            let at = place(s);
            let value = self.concluded(Expr::load(accumulator, s.to_vec()), &at, post);
            (at, value)
        })
    }

    /// A result that `value` gives point by point: one block.
    fn map(&self, b: &mut ProgramBuilder, value: impl Fn(&Point) -> Expr) -> BufferId {
        b.compute(MAIN.as_str(), &self.axes().list(), |s| {
            let p = self.point(s);
            self.follow(value(&p), &p)
        })
    }
}

/// What parameters are called; further operands are numbered.
fn operand_names(op: &Op) -> &'static [&'static str] {
    match op {
        Op::Conv(_) | Op::ConvInteger(_) | Op::ConvTranspose(_) => &["X", "W", "B"],
        Op::MatMul | Op::MatMulInteger | Op::Contract(_) => &["A", "B"],
        Op::MatMulBlocks(_) => &["A", "B", "scales", "zeros"],
        Op::Gemm(_) => &["A", "B", "C"],
        Op::LayerNorm(_) => &["X", "scale", "shift"],
        Op::Gather(_) | Op::GatherElements(_) | Op::GatherNd(_) => &["X", "I"],
        Op::ScatterElements(_) | Op::ScatterNd(_) => &["X", "I", "U"],
        Op::GridSample(_) => &["X", "G"],
        Op::MaxPoolGradient(_) => &["X", "I"],
        Op::Suppress(_) => &["X", "boxes"],
        Op::Pool(_)
        | Op::Col2Im(_)
        | Op::Resize(_)
        | Op::Reduce(_)
        | Op::ArgReduce(_)
        | Op::Cumulative(_)
        | Op::TopK(_)
        | Op::Positions
        | Op::Softmax(_)
        | Op::Lrn(_)
        | Op::Split(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Transpose(_)
        | Op::Expand(_) => &["X"],
        _ => &[],
    }
}

/// Named axes with extents.
#[derive(Clone)]
struct Axes(Vec<(String, i64)>);

impl Axes {
    fn new(axes: impl IntoIterator<Item = (String, i64)>) -> Axes {
        Axes(axes.into_iter().collect())
    }

    fn list(&self) -> Vec<AxisExtent<'_>> {
        self.0.iter().map(|(n, e)| (n.as_str(), *e)).collect()
    }
}

/// `value` where all conditions hold, else `other`.
fn guarded(conditions: Vec<Expr>, value: Expr, other: Expr) -> Expr {
    match conditions.into_iter().reduce(Expr::and) {
        Some(all) => Expr::select(all, value, other),
        None => value,
    }
}

fn sizes(list: &[usize]) -> Vec<i64> {
    list.iter().map(|n| *n as i64).collect()
}
