//! Tensor expressions: programs built one computed tensor at a time.
//!
//! Each `compute` or `reduce` adds one buffer, one block and a perfect nest of
//! serial loops named `block.axis`, in axis order, reduction axes innermost.

use crate::expr::Expr;
use crate::program::{
    Block, Buffer, BufferId, Iter, IterKind, LoopId, Node, Program, Reducer, Reduction, Role,
    Scope, Write,
};
use tensor::DType;

/// Builds a program from tensor expressions.
pub struct ProgramBuilder {
    program: Program,
}

/// A named axis with its extent.
pub type AxisExtent<'a> = (&'a str, i64);

impl ProgramBuilder {
    pub fn new(name: impl Into<String>) -> ProgramBuilder {
        ProgramBuilder {
            program: Program::new(name),
        }
    }

    fn param(&mut self, name: &str, dtype: DType, shape: &[i64], role: Role) -> BufferId {
        let (name, shape) = (name.to_string(), shape.to_vec());
        let scope = Scope::Global;
        self.program.add_buffer(Buffer {
            name,
            dtype,
            shape,
            scope,
            role,
            view: None,
        })
    }

    pub fn input(&mut self, name: &str, dtype: DType, shape: &[i64]) -> BufferId {
        self.param(name, dtype, shape, Role::Input)
    }

    pub fn constant(&mut self, name: &str, dtype: DType, shape: &[i64]) -> BufferId {
        self.param(name, dtype, shape, Role::Constant)
    }

    /// The program so far, for element types of expressions.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// `name[axes] = f(axes)`. The buffer has the block's name.
    pub fn compute(
        &mut self,
        name: &str,
        axes: &[AxisExtent<'_>],
        f: impl FnOnce(&[Expr]) -> Expr,
    ) -> BufferId {
        self.block(name, axes, &[], None, |s, _| vec![f(s)])[0]
    }

    /// `name[indices] = value` for all axes, where `f` gives both. The indices take every
    /// value of a buffer of that shape once, or updates write the elements that they leave.
    pub fn compute_into(
        &mut self,
        name: &str,
        axes: &[AxisExtent<'_>],
        shape: &[i64],
        f: impl FnOnce(&[Expr]) -> (Vec<Expr>, Expr),
    ) -> BufferId {
        let mut indices = Vec::new();
        let buffer = self.compute(name, axes, |s| {
            let (at, value) = f(s);
            indices = at;
            value
        });
        let p = &mut self.program;
        p.buffer_mut(buffer).shape = shape.to_vec();
        for block in p.producers(buffer) {
            p.block_mut(block).writes[0].indices = indices.clone();
        }
        buffer
    }

    /// `name[axes] = reduce over reduce_axes of f(axes, reduce_axes)`.
    pub fn reduce(
        &mut self,
        name: &str,
        axes: &[AxisExtent<'_>],
        reduce_axes: &[AxisExtent<'_>],
        reducer: Reducer,
        f: impl FnOnce(&[Expr], &[Expr]) -> Expr,
    ) -> BufferId {
        self.block(name, axes, reduce_axes, Some(reducer), |s, r| vec![f(s, r)])[0]
    }

    /// `buffer[indices] = value` for all values of the axes, those of the ordered ones one after the other; `f` gives
    /// both. The block has this name; earlier blocks have written the buffer.
    pub fn update(
        &mut self,
        name: &str,
        buffer: BufferId,
        (axes, ordered): (&[AxisExtent<'_>], &[AxisExtent<'_>]),
        f: impl FnOnce(&[Expr], &[Expr]) -> (Vec<Expr>, Expr),
    ) {
        self.updates(name, (axes, ordered), |spatial, ordered| {
            let (indices, value) = f(spatial, ordered);
            vec![Write {
                buffer,
                indices,
                value,
            }]
        });
    }

    /// [`update`](Self::update) of several buffers: all values are evaluated before any is stored.
    pub fn updates(
        &mut self,
        name: &str,
        (axes, ordered): (&[AxisExtent<'_>], &[AxisExtent<'_>]),
        f: impl FnOnce(&[Expr], &[Expr]) -> Vec<Write>,
    ) {
        let all = axes.iter().map(|a| (a, IterKind::Spatial));
        let all = all.chain(ordered.iter().map(|a| (a, IterKind::Ordered)));
        let (loops, iters) = self.loops(name, all);
        let vars: Vec<Expr> = iters.iter().map(|i| Expr::var(i.var)).collect();
        let (spatial, ordered) = vars.split_at(axes.len());
        let writes = f(spatial, ordered);
        self.nest((name, loops, iters), writes, None);
    }

    /// Several outputs from one block: a map (no reducer) or a tuple reduction.
    /// Output `i` is the buffer `name` for `i = 0`, else `name.i`.
    pub fn block(
        &mut self,
        name: &str,
        axes: &[AxisExtent<'_>],
        reduce_axes: &[AxisExtent<'_>],
        reducer: Option<Reducer>,
        f: impl FnOnce(&[Expr], &[Expr]) -> Vec<Expr>,
    ) -> Vec<BufferId> {
        let all = axes.iter().map(|a| (a, IterKind::Spatial));
        let all = all.chain(reduce_axes.iter().map(|a| (a, IterKind::Reduce)));
        let (loops, iters) = self.loops(name, all);
        let p = &mut self.program;
        let vars: Vec<Expr> = iters.iter().map(|i| Expr::var(i.var)).collect();
        let (spatial, reduce) = vars.split_at(axes.len());
        let values = f(spatial, reduce);
        let shape: Vec<i64> = axes.iter().map(|a| a.1).collect();
        let mut outputs = Vec::new();
        let mut writes = Vec::new();
        for (i, value) in values.into_iter().enumerate() {
            let buffer = p.add_buffer(Buffer {
                name: if i == 0 {
                    name.to_string()
                } else {
                    format!("{name}.{i}")
                },
                dtype: value.dtype(p),
                shape: shape.clone(),
                scope: Scope::Global,
                role: Role::Intermediate,
                view: None,
            });
            outputs.push(buffer);
            writes.push(Write {
                buffer,
                indices: spatial.to_vec(),
                value,
            });
        }
        let reduction = reducer.map(|reducer| Reduction {
            reducer,
            init: true,
        });
        self.nest((name, loops, iters), writes, reduction);
        outputs
    }

    /// A loop and an iteration variable for each axis.
    fn loops<'a>(
        &mut self,
        name: &str,
        axes: impl Iterator<Item = (&'a AxisExtent<'a>, IterKind)>,
    ) -> (Vec<LoopId>, Vec<Iter>) {
        let p = &mut self.program;
        let one = |((axis, extent), kind): (&AxisExtent<'_>, IterKind)| {
            let l = p.new_loop(format!("{name}.{axis}"), *extent, vec![]);
            let binding = Expr::var(p.loop_(l).var);
            let iter = Iter {
                var: p.add_var(*axis),
                extent: *extent,
                kind,
                binding,
            };
            (l, iter)
        };
        axes.map(one).unzip()
    }

    /// A block in its loops, behind all others.
    fn nest(
        &mut self,
        (name, loops, iters): (&str, Vec<LoopId>, Vec<Iter>),
        writes: Vec<Write>,
        reduction: Option<Reduction>,
    ) {
        let p = &mut self.program;
        let block = Block {
            name: name.to_string(),
            iters,
            predicate: None,
            writes,
            reduction,
            tensor: None,
        };
        let mut node = Node::Block(p.add_block(block));
        for l in loops.into_iter().rev() {
            p.loop_mut(l).body.push(node);
            node = Node::Loop(l);
        }
        p.body.push(node);
    }

    /// Marks `outputs` as the program's outputs, in argument order after the inputs.
    pub fn finish(mut self, outputs: &[BufferId]) -> Program {
        for o in outputs {
            self.program.buffer_mut(*o).role = Role::Output;
            self.program.params.push(*o);
        }
        self.program
    }
}
