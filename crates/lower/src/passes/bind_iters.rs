//! Blocks become assignments over loop variables.
//!
//! Bindings are substituted, predicates become ifs, and so does the condition of an ordered
//! block without which it changes nothing. A reduction says what
//! it does: `out = combine(out, term)`, after `out = identity` where all
//! reduction variables are 0. A tuple is evaluated into temporaries before any
//! of it is stored. A tensorized block becomes loops over its inner domain,
//! reduction loops outside, spatial loops unrolled inside, the last spatial one
//! in lanes if its extent allows it. A few terms of a sum of integers, whose
//! order does not matter, or of products of bf16, whose instructions have an order of
//! their own, are one statement: a code generator sees the dot product that it is.

use crate::LowerError;
use crate::nest::{Assign, For, Nest, Stmt, Storage, conjuncts, guarded, loads};
use ir::affine::Ranges;
use ir::simplify::simplify;
use ir::{
    Annotation, BinaryOp, Block, BlockId, BufferId, DType, Expr, ExprKind, IterKind, LoopId,
    LoopKind, Node, Program, Reducer, Role, Scope, VarId, Write,
};

/// The widest inner loop of a tensorized block that becomes lanes.
const MAX_TENSOR_LANES: i64 = 64;
/// Sums of up to so many terms become one statement.
const MAX_TENSOR_TERMS: i64 = 4;
/// Spatial points of a tensorized block are unrolled up to this number.
const MAX_TENSOR_UNROLL: i64 = 32;

pub(crate) fn bind_iters(program: &Program) -> Result<Nest, LowerError> {
    check_kinds(program)?;
    let usage = program.usage();
    let sites = program.buffer_ids().zip(usage.iter().map(|u| u.site));
    let mut nest = Nest {
        program: program.clone(),
        storage: sites.map(|(b, site)| storage(program, b, site)).collect(),
        prepare: vec![],
        kernel: vec![],
        workspace_bytes: 0,
        worker_workspace_bytes: 0,
    };
    let mut binder = Binder {
        source: program,
        nest: &mut nest,
        lanes: vec![],
    };
    let kernel = binder.nodes(&program.body);
    nest.kernel = kernel;
    Ok(nest)
}

fn check_kinds(program: &Program) -> Result<(), LowerError> {
    for l in program.loop_ids() {
        if let LoopKind::Bound(axis) = program.loop_(l).kind {
            return Err(LowerError::BoundLoop {
                loop_name: program.loop_(l).name.clone(),
                axis: axis.word(),
            });
        }
    }
    for b in program.live_buffers() {
        let buffer = program.buffer(b);
        if matches!(buffer.scope, Scope::Shared | Scope::Warp) {
            return Err(LowerError::GpuScope {
                buffer: buffer.name.clone(),
                scope: buffer.scope.word(),
            });
        }
        if let Some(view) = &buffer.view {
            let reach = buffer.shape.iter().zip(&view.strides);
            let first = view.offset + reach.map(|(n, s)| ((n - 1) * s).min(0)).sum::<i64>();
            if first < 0 {
                return Err(LowerError::View {
                    buffer: buffer.name.clone(),
                    first,
                });
            }
        }
    }
    Ok(())
}

fn storage(program: &Program, b: BufferId, site: Option<LoopId>) -> Storage {
    let buffer = program.buffer(b);
    let site = match buffer.role {
        Role::Intermediate => site,
        _ => None,
    };
    let is_parallel = |l: &LoopId| program.loop_(*l).kind == LoopKind::Parallel;
    let worker_private = site.is_some_and(|l| {
        is_parallel(&l)
            || program
                .path_to(Node::Loop(l))
                .is_some_and(|path| path.iter().any(is_parallel))
    });
    Storage {
        site: site.map(|l| program.loop_(l).var),
        worker_private,
        temporary: false,
        shape: buffer.shape.clone(),
        strides: vec![],
        offset: 0,
        elements: 0,
        place: None,
        spill: None,
    }
}

struct Binder<'a> {
    source: &'a Program,
    nest: &'a mut Nest,
    /// The vectorized loops around the current node.
    lanes: Vec<(VarId, i64)>,
}

impl Binder<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Vec<Stmt> {
        let mut out = Vec::new();
        for n in nodes {
            match n {
                Node::Loop(l) => out.extend(self.loop_(*l)),
                Node::Block(b) => out.extend(self.block(*b)),
            }
        }
        out
    }

    fn loop_(&mut self, id: LoopId) -> Option<Stmt> {
        let l = self.source.loop_(id);
        if l.extent <= 0 {
            return None;
        }
        let in_lanes = l.kind == LoopKind::Vectorized;
        if in_lanes {
            self.lanes.push((l.var, l.extent));
        }
        let body = self.nodes(&l.body);
        if in_lanes {
            self.lanes.pop();
        }
        Some(Stmt::For(For {
            name: l.name.clone(),
            var: l.var,
            extent: l.extent,
            kind: l.kind,
            annotations: l.annotations.clone(),
            body,
        }))
    }

    fn block(&mut self, id: BlockId) -> Vec<Stmt> {
        let block = self.source.block(id);
        let bind = |e: &Expr| {
            e.substitute(&|v| {
                block
                    .iters
                    .iter()
                    .find(|i| i.var == v)
                    .map(|i| i.binding.clone())
            })
        };
        let condition = block.runs_where();
        let value = |w: &Write| match w.value.kind() {
            ExprKind::Select(_, value, _) if condition.is_some() => bind(value),
            _ => bind(&w.value),
        };
        let writes: Vec<(BufferId, Vec<Expr>, Expr)> = block
            .writes
            .iter()
            .map(|w| (w.buffer, w.indices.iter().map(bind).collect(), value(w)))
            .collect();
        let mut out = Vec::new();
        let mut domain = tensor_loops(block);
        let writes = match self.terms(block, &domain) {
            Some(terms) => {
                domain.retain(|l| l.iter == IterKind::Spatial);
                let [(b, at, value)] = &writes[..] else {
                    unreachable!("a sum has one result");
                };
                vec![(*b, at.clone(), added(value, &terms))]
            }
            None => writes,
        };
        if let Some(reduction) = &block.reduction
            && reduction.init
        {
            let dtypes: Vec<DType> = writes
                .iter()
                .map(|w| self.source.buffer(w.0).dtype)
                .collect();
            let identity = reduction.reducer.identity(&dtypes);
            let stores = writes
                .iter()
                .zip(identity)
                .map(|((b, i, _), v)| assign(*b, i.clone(), v))
                .collect();
            let spatial: Vec<TensorLoop> = domain
                .iter()
                .filter(|l| l.iter == IterKind::Spatial)
                .cloned()
                .collect();
            out.extend(guarded(
                self.first_instance(block),
                self.wrap(block, &spatial, stores),
            ));
        }
        for l in domain.iter().filter(|l| l.kind == LoopKind::Vectorized) {
            self.lanes.push((l.var, l.extent));
        }
        let update = self.update(block, writes);
        self.lanes.truncate(
            self.lanes.len()
                - domain
                    .iter()
                    .filter(|l| l.kind == LoopKind::Vectorized)
                    .count(),
        );
        out.extend(self.wrap(block, &domain, update));
        let out = guarded(condition.map_or(vec![], |c| conjuncts(&bind(c))), out);
        match &block.predicate {
            Some(p) => guarded(conjuncts(p), out),
            None => out,
        }
    }

    /// The reduction loops whose terms are added in one statement, if they are.
    fn terms(&self, block: &Block, domain: &[TensorLoop]) -> Option<Vec<(VarId, i64)>> {
        let reduce = domain.iter().filter(|l| l.iter == IterKind::Reduce);
        let loops: Vec<(VarId, i64)> = reduce.map(|l| (l.var, l.extent)).collect();
        let count: i64 = loops.iter().map(|l| l.1).product();
        let sum = block.reduction.as_ref()?.reducer == Reducer::Sum;
        let in_lanes = domain.iter().any(|l| l.kind == LoopKind::Vectorized);
        let integers = self.source.buffer(block.writes[0].buffer).dtype.is_int();
        let loads = block.loads();
        let mut types = loads.iter().map(|(b, _)| self.source.buffer(*b).dtype);
        let halves = types.all(|d| d == DType::BF16);
        let few = (2..=MAX_TENSOR_TERMS).contains(&count);
        (sum && (integers || halves) && in_lanes && few).then_some(loops)
    }

    /// When the bound reduction variables are all 0.
    ///
    /// Every point of the domain is run once for each value of the loops that
    /// bind no iteration variable. So if the loops that bind the reduction
    /// variables bind nothing else, and give 0 where they are all 0, that is
    /// the one place.
    fn first_instance(&self, block: &Block) -> Vec<Expr> {
        let mut vars: Vec<VarId> = Vec::new();
        for i in block.reduce_iters() {
            for v in i.binding.vars() {
                if !vars.contains(&v) {
                    vars.push(v);
                }
            }
        }
        let zero = |e: &Expr| {
            let at = e.substitute(&|v| vars.contains(&v).then(|| Expr::int(0)));
            simplify(&at, &Ranges::new()).as_int() == Some(0)
        };
        let apart = block
            .spatial_iters()
            .all(|i| !vars.iter().any(|v| i.binding.uses_var(*v)));
        if apart && block.reduce_iters().all(|i| zero(&i.binding)) {
            vars.into_iter().map(|v| Expr::var(v).equals(0)).collect()
        } else {
            block
                .reduce_iters()
                .map(|i| i.binding.clone().equals(0))
                .collect()
        }
    }

    /// The stores of one instance: terms combined, and nothing stored before
    /// everything is evaluated.
    fn update(&mut self, block: &Block, writes: Vec<(BufferId, Vec<Expr>, Expr)>) -> Vec<Stmt> {
        let values: Vec<Expr> = writes.iter().map(|w| w.2.clone()).collect();
        let values = match &block.reduction {
            Some(r) => {
                let acc: Vec<Expr> = writes
                    .iter()
                    .map(|(b, i, _)| Expr::load(*b, i.clone()))
                    .collect();
                r.reducer.combine(&acc, &values)
            }
            None => values,
        };
        let written: Vec<BufferId> = writes.iter().map(|w| w.0).collect();
        let reads_back = |e: &Expr| loads(e).iter().any(|(b, _)| written.contains(b));
        let mut before = Vec::new();
        let mut stores = Vec::new();
        let last = writes.len() - 1;
        for (n, ((buffer, indices, _), value)) in writes.iter().zip(values).enumerate() {
            let mut kept = |binder: &mut Self, e: Expr, dtype: DType| {
                // The last value is evaluated at its store, which comes first.
                if last == 0 || !reads_back(&e) || e.as_int().is_some() {
                    return e;
                }
                let (t, at) = binder.temporary(&format!("{}.value", block.name), dtype);
                before.push(assign(t, at.clone(), e));
                Expr::load(t, at)
            };
            let indices = indices
                .iter()
                .map(|i| kept(self, i.clone(), DType::I64))
                .collect();
            let dtype = self.source.buffer(*buffer).dtype;
            let value = if n == last {
                value
            } else {
                kept(self, value, dtype)
            };
            stores.push(assign(*buffer, indices, value));
        }
        before.extend(stores.into_iter().rev());
        before
    }

    /// A temporary with one element for every lane of the loops around.
    fn temporary(&mut self, base: &str, dtype: DType) -> (BufferId, Vec<Expr>) {
        let shape: Vec<i64> = self.lanes.iter().map(|l| l.1).collect();
        let at = self.lanes.iter().map(|l| Expr::var(l.0)).collect();
        (self.nest.add_temporary(base, dtype, shape), at)
    }

    fn wrap(&self, block: &Block, loops: &[TensorLoop], body: Vec<Stmt>) -> Vec<Stmt> {
        loops.iter().rev().fold(body, |body, l| {
            vec![Stmt::For(For {
                name: format!("{}.{}", block.name, self.source.var(l.var).name),
                var: l.var,
                extent: l.extent,
                kind: l.kind,
                annotations: Vec::<Annotation>::new(),
                body,
            })]
        })
    }
}

/// The sum of `term` over all values of the loops, under its own guard if
/// outside of that every term is 0.
fn added(term: &Expr, loops: &[(VarId, i64)]) -> Expr {
    if let Some((cond, bare)) = guarded_product(term, loops) {
        let zero: Expr = ExprKind::Int(0, DType::I32).into();
        return Expr::select(cond, added(&bare, loops), zero);
    }
    loops
        .iter()
        .fold(vec![term.clone()], |terms, (v, n)| {
            let at = |t: &Expr, i: i64| t.with_var(*v, &Expr::int(i));
            let all = terms.iter().flat_map(|t| (0..*n).map(move |i| at(t, i)));
            all.collect()
        })
        .into_iter()
        .reduce(|a, b| a + b)
        .expect("loops have iterations")
}

/// A condition that all terms share outside of which a factor of each is 0 (in
/// i32), and the product under it.
fn guarded_product(term: &Expr, loops: &[(VarId, i64)]) -> Option<(Expr, Expr)> {
    let ExprKind::Binary(BinaryOp::Mul, a, b) = term.kind() else {
        return None;
    };
    let side = |e: &Expr| match e.kind() {
        ExprKind::Select(c, x, zero) => {
            let shared = !loops.iter().any(|(v, _)| c.uses_var(*v));
            let is_zero = matches!(zero.kind(), ExprKind::Int(0, DType::I32));
            (shared && is_zero).then(|| (c.clone(), x.clone()))
        }
        _ => None,
    };
    match (side(a), side(b)) {
        (Some((c, a)), _) => Some((c, a * b)),
        (_, Some((c, b))) => Some((c, a * b)),
        _ => None,
    }
}

#[derive(Clone)]
struct TensorLoop {
    var: VarId,
    extent: i64,
    iter: IterKind,
    kind: LoopKind,
}

/// The loops over the domain of a tensorized block, outermost first: reduction
/// loops, spatial loops, lanes. Moving a spatial loop inwards keeps the order
/// of the terms of every element.
fn tensor_loops(block: &Block) -> Vec<TensorLoop> {
    let Some(op) = &block.tensor else {
        return vec![];
    };
    let spatial = || op.iters.iter().filter(|i| i.2 == IterKind::Spatial);
    let lane = spatial().next_back().filter(|(v, n, _)| {
        let reads_lanes = block
            .writes
            .iter()
            .any(|w| w.indices.iter().any(|i| i.uses_var(*v)));
        (2..=MAX_TENSOR_LANES).contains(n) && n.count_ones() == 1 && reads_lanes
    });
    let rest: i64 = spatial()
        .filter(|i| Some(*i) != lane)
        .map(|i| i.1)
        .product();
    let kind = match rest {
        ..=MAX_TENSOR_UNROLL => LoopKind::Unrolled,
        _ => LoopKind::Serial,
    };
    let item = |i: &(VarId, i64, IterKind), kind| TensorLoop {
        var: i.0,
        extent: i.1,
        iter: i.2,
        kind,
    };
    let reduce = op.iters.iter().filter(|i| i.2 == IterKind::Reduce);
    let mut out: Vec<TensorLoop> = reduce.map(|i| item(i, LoopKind::Serial)).collect();
    out.extend(
        spatial()
            .filter(|i| Some(*i) != lane)
            .map(|i| item(i, kind)),
    );
    out.extend(lane.map(|i| item(i, LoopKind::Vectorized)));
    out
}

fn assign(buffer: BufferId, indices: Vec<Expr>, value: Expr) -> Stmt {
    Stmt::Assign(Assign {
        buffer,
        indices,
        value,
        lane: None,
        mask: None,
    })
}
