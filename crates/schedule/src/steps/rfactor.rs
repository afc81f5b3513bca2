//! rfactor{loop}: reduce over all other reduction loops first, keeping one
//! partial result per iteration of the loop, and combine those afterwards.
//!
//! The block `{block}.rf` takes over the nest: the loop is one of its spatial
//! axes, `part`, the last dimension of the buffer(s) `{output}.rf`; every other
//! reduction loop is a reduction axis of extent its own. Where a tail excludes
//! a point the partial result takes the reducer's identity, so that each one is
//! always defined. The original block then reduces over `part` alone, in loops
//! of its own after the nest. Reassociates: float results may differ in rounding.

use crate::illegal::Illegal;
use crate::nest::{
    before_consumers, change, child_with, conjuncts, insert_after, iteration_tests,
    live_block_name, live_name, path, path_through, renest, whole_dim,
};
use crate::steps::loop_named;
use crate::written::written_box;
use ir::region::{RegionDim, bound, program_ranges, span};
use ir::simplify::{prove, simplify};
use ir::{
    Block, BlockId, BufferId, DType, Expr, Iter, IterKind, LoopId, Node, Program, Reduction, Role,
    VarId, Write,
};

pub(crate) const STEP: &str = "rfactor";

struct Plan {
    block: BlockId,
    /// The reduction loops of the nest other than the factored one.
    others: Vec<LoopId>,
    /// Tests over loop variables that stay on the nest.
    spatial_tests: Vec<Expr>,
    /// Tests over loop variables whose failure means the identity.
    tail_tests: Vec<Expr>,
    parent: Option<LoopId>,
    after: Node,
}

/// Gives the block of the partial results.
pub(crate) fn apply(program: &mut Program, target: &str) -> Result<BlockId, Illegal> {
    let l = loop_named(program, STEP, target)?;
    let refuse = |why| Illegal::new(STEP, target, why);
    let plan = plan(program, l).map_err(refuse)?;
    let spans = final_spans(program, &plan);
    let at = plan.parent.map_or(vec![], |l| path_through(program, l));
    let tests = iteration_tests(program, &[plan.block], &at);
    change(program, |next| {
        let partial = add_buffers(next, plan.block, next.loop_(l).extent);
        let rf = partial_block(next, &plan, l, &partial);
        next.replace_node(Node::Block(plan.block), &[Node::Block(rf)]);
        combine_partials(next, plan.block, l, &partial);
        let nest = renest(next, plan.block, &spans, &tests);
        let after = match plan.after {
            Node::Block(b) if b == plan.block => Node::Block(rf),
            other => other,
        };
        insert_after(next, plan.parent, after, nest);
        Ok(rf)
    })
    .map_err(refuse)
}

fn plan(p: &Program, l: LoopId) -> Result<Plan, String> {
    let [b] = p.blocks_under(&[Node::Loop(l)])[..] else {
        return Err("there is not exactly one block under it".into());
    };
    let block = p.block(b);
    let name = &block.name;
    if !block.reduction.as_ref().is_some_and(|r| r.init) {
        return Err(format!(
            "`{name}` is not a reduction that initialises its own accumulators"
        ));
    }
    if block.tensor.is_some() {
        return Err(format!("`{name}` is tensorized"));
    }
    let loops = path(p, Node::Block(b));
    let feeds = |l: LoopId, kind: IterKind| {
        let mut iters = block.iters.iter().filter(|i| i.kind == kind);
        iters.any(|i| i.binding.uses_var(p.loop_(l).var))
    };
    let is_reduction = |l: &LoopId| feeds(*l, IterKind::Reduce);
    if !is_reduction(&l) {
        return Err(format!("it does not reduce in `{name}`"));
    }
    let reducing: Vec<LoopId> = loops.iter().copied().filter(is_reduction).collect();
    if let Some(mixed) = reducing.iter().find(|l| feeds(**l, IterKind::Spatial)) {
        let mixed = &p.loop_(*mixed).name;
        return Err(format!("`{mixed}` enumerates both outputs and terms"));
    }
    let uses = |e: &Expr, l: &LoopId| e.uses_var(p.loop_(*l).var);
    let (tail_tests, spatial_tests): (Vec<Expr>, Vec<Expr>) = conjuncts(block.predicate.as_ref())
        .into_iter()
        .cloned()
        .partition(|t| reducing.iter().any(|l| uses(t, l)));
    let own = |v: VarId| reducing.iter().any(|l| p.loop_(*l).var == v);
    if tail_tests.iter().any(|t| !t.vars().into_iter().all(own)) {
        return Err(format!(
            "the predicate of `{name}` ties outputs to terms in one test"
        ));
    }
    let (parent, after) = place(p, b, &reducing)?;
    let others = reducing.into_iter().filter(|x| *x != l).collect();
    Ok(Plan {
        block: b,
        others,
        spatial_tests,
        tail_tests,
        parent,
        after,
    })
}

/// The deepest loop that the block shares with a consumer, and its child with the block.
fn place(p: &Program, b: BlockId, reducing: &[LoopId]) -> Result<(Option<LoopId>, Node), String> {
    let mut home = Vec::new();
    for w in &p.block(b).writes {
        let name = &p.buffer(w.buffer).name;
        if p.producers(w.buffer) != [b] {
            return Err(format!("`{name}` has other producers"));
        }
        let shared = before_consumers(p, b, w.buffer);
        if shared.len() > home.len() {
            home = shared;
        }
    }
    if let Some(l) = home.iter().find(|l| reducing.contains(l)) {
        let name = &p.loop_(*l).name;
        return Err(format!("the result is consumed inside `{name}`"));
    }
    let r = program_ranges(p);
    for w in p.block(b).writes.iter().filter(|_| !home.is_empty()) {
        written_box(p, b, w.buffer, &home, &r)?;
    }
    let parent = home.last().copied();
    let (_, after) = child_with(p, parent, Node::Block(b)).expect("under its own ancestor");
    Ok((parent, after))
}

/// Per iteration variable of the final block (the spatial ones, then `part`)
/// what one iteration of its place covers.
fn final_spans(p: &Program, plan: &Plan) -> Vec<RegionDim> {
    let block = p.block(plan.block);
    let r = program_ranges(p);
    let outer = plan.parent.map_or(vec![], |l| path_through(p, l));
    let free: Vec<VarId> = outer.iter().map(|l| p.loop_(*l).var).collect();
    let moves = |v: VarId| !free.contains(&v);
    let spatial = block.spatial_iters().map(|i| {
        let covered = span(&bound(block, &Expr::var(i.var)), &moves, &r);
        covered.unwrap_or_else(|| whole_dim(i.extent))
    });
    // `renest` limits the last to the extent of `part`.
    spatial.chain([whole_dim(i64::MAX)]).collect()
}

fn add_buffers(p: &mut Program, b: BlockId, parts: i64) -> Vec<BufferId> {
    let outputs: Vec<BufferId> = p.block(b).writes.iter().map(|w| w.buffer).collect();
    let mut partial = Vec::new();
    for o in outputs {
        let mut buffer = p.buffer(o).clone();
        buffer.name = live_name(p, &format!("{}.rf", buffer.name));
        buffer.shape.push(parts);
        buffer.role = Role::Intermediate;
        buffer.view = None;
        partial.push(p.add_buffer(buffer));
    }
    partial
}

/// The block that computes the partial results in the old nest.
fn partial_block(p: &mut Program, plan: &Plan, l: LoopId, partial: &[BufferId]) -> BlockId {
    let old = p.block(plan.block).clone();
    let mut new_iters = Vec::new();
    let mut by_old: Vec<(VarId, Expr)> = Vec::new();
    for i in old.spatial_iters() {
        let var = p.add_var(p.var(i.var).name.clone());
        by_old.push((i.var, Expr::var(var)));
        new_iters.push(Iter { var, ..i.clone() });
    }
    let part = part_axis(p, plan.block);
    let mut by_loop: Vec<(VarId, Expr)> = vec![(p.loop_(l).var, Expr::var(part))];
    new_iters.push(loop_iter(p, l, part, IterKind::Spatial));
    let prefix = format!("{}.", old.name);
    for o in &plan.others {
        let name = &p.loop_(*o).name;
        let axis = name.strip_prefix(&prefix).unwrap_or(name).to_string();
        let taken = new_iters.iter().any(|i: &Iter| p.var(i.var).name == axis);
        let var = p.add_var(if taken { format!("{axis}.k") } else { axis });
        by_loop.push((p.loop_(*o).var, Expr::var(var)));
        new_iters.push(loop_iter(p, *o, var, IterKind::Reduce));
    }
    let over_loops = |e: &Expr| put(e, &by_loop);
    for i in old.reduce_iters() {
        by_old.push((i.var, over_loops(&i.binding)));
    }
    let mut r = program_ranges(p);
    for i in &new_iters {
        r.set(i.var, 0, i.extent - 1);
    }
    let inside: Vec<Expr> = plan.tail_tests.iter().map(over_loops).collect();
    let inside = all(inside.into_iter().filter(|t| !prove(t, &r)));
    let reduction = old.reduction.clone().expect("checked: a reduction");
    let dtypes: Vec<DType> = partial.iter().map(|b| p.buffer(*b).dtype).collect();
    let identity = reduction.reducer.identity(&dtypes);
    let mut writes = Vec::new();
    for (i, w) in old.writes.iter().enumerate() {
        let over = |e: &Expr| simplify(&put(e, &by_old), &r);
        let mut indices: Vec<Expr> = w.indices.iter().map(over).collect();
        indices.push(Expr::var(part));
        let term = over(&w.value);
        writes.push(Write {
            buffer: partial[i],
            indices,
            value: match &inside {
                Some(test) => Expr::select(test, term, &identity[i]),
                None => term,
            },
        });
    }
    p.add_block(Block {
        name: live_block_name(p, &format!("{}.rf", old.name)),
        iters: new_iters,
        predicate: all(plan.spatial_tests.iter().cloned()),
        writes,
        reduction: Some(Reduction {
            init: true,
            ..reduction
        }),
        tensor: None,
    })
}

/// A variable `part`, or `part_1`, ... beside the axes that the block has.
fn part_axis(p: &mut Program, b: BlockId) -> VarId {
    let names: Vec<&str> = p
        .block(b)
        .iters
        .iter()
        .map(|i| &p.var(i.var).name[..])
        .collect();
    let mut name = "part".to_string();
    let mut i = 0;
    while names.contains(&&name[..]) {
        i += 1;
        name = format!("part_{i}");
    }
    p.add_var(name)
}

fn loop_iter(p: &Program, l: LoopId, var: VarId, kind: IterKind) -> Iter {
    let l = p.loop_(l);
    Iter {
        var,
        extent: l.extent,
        kind,
        binding: Expr::var(l.var),
    }
}

/// Makes the original block the reduction of the partial results over `part`.
fn combine_partials(p: &mut Program, b: BlockId, l: LoopId, partial: &[BufferId]) {
    let part = part_axis(p, b);
    let extent = p.loop_(l).extent;
    let block = p.block_mut(b);
    block.iters.retain(|i| i.kind == IterKind::Spatial);
    block.iters.push(Iter {
        var: part,
        extent,
        kind: IterKind::Reduce,
        binding: Expr::int(0),
    });
    for (w, partial) in block.writes.iter_mut().zip(partial) {
        let mut indices = w.indices.clone();
        indices.push(Expr::var(part));
        w.value = Expr::load(*partial, indices);
    }
}

fn put(e: &Expr, map: &[(VarId, Expr)]) -> Expr {
    e.substitute(&|v| map.iter().find(|(x, _)| *x == v).map(|(_, e)| e.clone()))
}

fn all(tests: impl Iterator<Item = Expr>) -> Option<Expr> {
    tests.reduce(Expr::and)
}
