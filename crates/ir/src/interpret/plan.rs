//! Programs compiled for execution: loops and blocks with their expressions,
//! and where each buffer is allocated.

use super::InterpretError;
use super::code::{Access, Code, Compiler, Int};
use crate::expr::Expr;
use crate::program::{Block, BlockId, BufferId, IterKind, LoopId, LoopKind, Node, Program, Role};
use std::collections::HashMap;
use tensor::DType;

pub(super) enum Step {
    Loop(LoopPlan),
    Block(BlockPlan),
}

pub(super) struct LoopPlan {
    pub id: LoopId,
    pub var: usize,
    pub extent: i64,
    /// Whether iterations are checked not to meet.
    pub together: bool,
    /// Buffers that live for one iteration.
    pub allocates: Vec<BufferId>,
    pub body: Vec<Step>,
}

pub(super) struct BlockPlan {
    pub id: BlockId,
    pub predicate: Option<Int>,
    pub iters: Vec<IterPlan>,
    /// Variable and extent of each point dimension of an intrinsic.
    pub points: Vec<(usize, i64)>,
    pub writes: Vec<(Access, Code)>,
    pub reduction: Option<ReductionPlan>,
}

pub(super) struct IterPlan {
    pub var: usize,
    pub extent: i64,
    pub binding: Int,
}

pub(super) struct ReductionPlan {
    pub init: bool,
    /// The variables that are 0 where the accumulators are set.
    pub vars: Vec<usize>,
    pub identity: Vec<Code>,
    /// Over arguments: accumulators, then terms.
    pub combine: Vec<Code>,
}

pub(super) struct Plan {
    pub steps: Vec<Step>,
    /// For each buffer, how many loops that run together are around its allocation.
    pub depths: Vec<usize>,
    /// Whether any loop's iterations are checked.
    pub together: bool,
}

pub(super) fn compile(program: &Program, check_races: bool) -> Result<Plan, InterpretError> {
    let mut sites: HashMap<LoopId, Vec<BufferId>> = HashMap::new();
    let usage = program.usage();
    for b in program.live_buffers() {
        if program.params.contains(&b) {
            continue;
        }
        if let Some(l) = usage[b.index()].site {
            sites.entry(l).or_default().push(b);
        }
    }
    let mut builder = Builder {
        program,
        check_races,
        sites,
        together: 0,
        any: false,
        depths: vec![0; program.buffer_ids().count()],
    };
    let steps = builder.nodes(&program.body)?;
    Ok(Plan {
        steps,
        depths: builder.depths,
        together: builder.any,
    })
}

/// How errors name a block.
pub(super) fn place(program: &Program, id: BlockId) -> String {
    format!("block `{}`", program.block(id).name)
}

struct Builder<'a> {
    program: &'a Program,
    check_races: bool,
    sites: HashMap<LoopId, Vec<BufferId>>,
    /// Loops around whose iterations run together.
    together: usize,
    any: bool,
    depths: Vec<usize>,
}

impl Builder<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<Vec<Step>, InterpretError> {
        let mut steps = Vec::with_capacity(nodes.len());
        for n in nodes {
            steps.push(match n {
                Node::Loop(l) => Step::Loop(self.loop_(*l)?),
                Node::Block(b) => Step::Block(self.block(*b)?),
            });
        }
        Ok(steps)
    }

    fn loop_(&mut self, id: LoopId) -> Result<LoopPlan, InterpretError> {
        let program = self.program;
        let l = program.loop_(id);
        let serial = matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled);
        let together = self.check_races && !serial;
        self.together += usize::from(together);
        self.any |= together;
        let allocates = self.sites.remove(&id).unwrap_or_default();
        for b in &allocates {
            self.depths[b.index()] = self.together;
        }
        let body = self.nodes(&l.body)?;
        self.together -= usize::from(together);
        Ok(LoopPlan {
            id,
            var: l.var.index(),
            extent: l.extent,
            together,
            allocates,
            body,
        })
    }

    fn block(&self, id: BlockId) -> Result<BlockPlan, InterpretError> {
        let program = self.program;
        let block = program.block(id);
        let compiler = Compiler::new(program, place(program, id));
        let predicate = block.predicate.as_ref();
        let predicate = predicate
            .map(|e| compiler.int(e, DType::Bool))
            .transpose()?;
        let mut iters = Vec::with_capacity(block.iters.len());
        for i in &block.iters {
            iters.push(IterPlan {
                var: i.var.index(),
                extent: i.extent,
                binding: compiler.int(&i.binding, DType::I64)?,
            });
        }
        let points = block.tensor.iter().flat_map(|t| &t.iters);
        let points: Vec<(usize, i64)> = points.map(|(v, n, _)| (v.index(), *n)).collect();
        let known = iters.iter().map(|i| (i.var, i.extent));
        let compiler = compiler.with_extents(known.chain(points.iter().copied()).collect());
        let mut writes = Vec::with_capacity(block.writes.len());
        for w in &block.writes {
            let buffer = program.buffer(w.buffer);
            if matches!(buffer.role, Role::Input | Role::Constant) {
                return Err(InterpretError::IllFormed {
                    place: place(program, id),
                    reason: format!("it writes the parameter `{}`", buffer.name),
                });
            }
            let access = compiler.access(w.buffer, &w.indices)?;
            writes.push((access, compiler.typed(&w.value, buffer.dtype)?));
        }
        Ok(BlockPlan {
            id,
            predicate,
            iters,
            points,
            writes,
            reduction: self.reduction(id, block)?,
        })
    }

    fn reduction(
        &self,
        id: BlockId,
        block: &Block,
    ) -> Result<Option<ReductionPlan>, InterpretError> {
        let Some(reduction) = &block.reduction else {
            return Ok(None);
        };
        let program = self.program;
        let dtypes = block.writes.iter();
        let dtypes: Vec<DType> = dtypes.map(|w| program.buffer(w.buffer).dtype).collect();
        let arg = |base: usize| {
            let args = dtypes.iter().enumerate();
            args.map(|(i, d)| Expr::arg((base + i) as u32, *d))
                .collect::<Vec<Expr>>()
        };
        let args = [&dtypes[..], &dtypes[..]].concat();
        let compiler = Compiler::new(program, place(program, id)).with_args(args);
        let reducer = &reduction.reducer;
        if let crate::Reducer::Tuple { combine, identity } = reducer
            && (combine.len() != dtypes.len() || identity.len() != dtypes.len())
        {
            return Err(InterpretError::IllFormed {
                place: place(program, id),
                reason: "its reducer has not one value a write".into(),
            });
        }
        let compile = |exprs: Vec<Expr>| {
            let typed = exprs.iter().zip(&dtypes);
            typed
                .map(|(e, d)| compiler.typed(e, *d))
                .collect::<Result<Vec<Code>, InterpretError>>()
        };
        let inner = block.tensor.iter().flat_map(|t| &t.iters);
        let inner = inner.filter(|i| i.2 == IterKind::Reduce).map(|i| i.0);
        let vars = block.reduce_iters().map(|i| i.var).chain(inner);
        let vars = vars.map(|v| v.index()).collect();
        let combine = match reducer {
            // Already over the arguments.
            crate::Reducer::Tuple { combine, .. } => combine.clone(),
            _ => reducer.combine(&arg(0), &arg(dtypes.len())),
        };
        Ok(Some(ReductionPlan {
            init: reduction.init,
            vars,
            identity: compile(reducer.identity(&dtypes))?,
            combine: compile(combine)?,
        }))
    }
}
