//! decompose_reduction{block, loop}: initialise the accumulators in a nest of
//! its own, before a loop, instead of in the reduction's first instances.
//!
//! The block `{block}.init` runs in copies of those loops from the given one
//! inwards that enumerate outputs: a loop `{block}.x` is copied as
//! `{block}.init.x`. Everything that is reduced must be reduced under the loop,
//! and each output in one iteration of the loops around it.

use crate::illegal::Illegal;
use crate::legality::feeds;
use crate::nest::{insert_before, live_name, path};
use crate::rebind::open;
use crate::recover::{Access, same_iteration};
use crate::steps::{block_named, loop_named};
use ir::region::program_ranges;
use ir::simplify::simplify;
use ir::{
    Block, BlockId, Expr, Iter, IterKind, LoopId, LoopKind, Node, Program, Scope, VarId, Write,
};

pub(crate) const STEP: &str = "decompose_reduction";

struct Plan {
    /// The loops to copy, outermost first.
    spatial: Vec<LoopId>,
    /// Variables of the loops that reduce.
    reduce: Vec<VarId>,
}

/// Gives the block that initialises.
pub(crate) fn apply(program: &mut Program, block: &str, target: &str) -> Result<BlockId, Illegal> {
    let b = block_named(program, STEP, block)?;
    let l = loop_named(program, STEP, target)?;
    let plan = plan(program, b, l).map_err(|why| Illegal::new(STEP, block, why))?;
    let mut by_copy: Vec<(VarId, Expr)> = Vec::new();
    for v in &plan.reduce {
        by_copy.push((*v, Expr::int(0)));
    }
    let mut loops: Vec<LoopId> = Vec::new();
    for s in &plan.spatial {
        let old = program.loop_(*s).clone();
        let prefix = format!("{block}.");
        let axis = old.name.strip_prefix(&prefix).unwrap_or(&old.name);
        let mut name = live_name(program, &format!("{block}.init.{axis}"));
        while loops.iter().any(|l| program.loop_(*l).name == name) {
            name = live_name(program, &format!("{name}_1"));
        }
        let copy = program.new_loop(name, old.extent, vec![]);
        program.loop_mut(copy).kind = old.kind;
        by_copy.push((old.var, Expr::var(program.loop_(copy).var)));
        loops.push(copy);
    }
    let init = init_block(program, b, &by_copy, &loops);
    let mut node = Node::Block(init);
    for copy in loops.into_iter().rev() {
        program.loop_mut(copy).body.push(node);
        node = Node::Loop(copy);
    }
    let parent = path(program, Node::Loop(l)).last().copied();
    insert_before(program, parent, Node::Loop(l), node);
    if let Some(r) = &mut program.block_mut(b).reduction {
        r.init = false;
    }
    Ok(init)
}

fn plan(p: &Program, b: BlockId, l: LoopId) -> Result<Plan, String> {
    let block = p.block(b);
    let target = &p.loop_(l).name;
    if !block.reduction.as_ref().is_some_and(|r| r.init) {
        return Err("it is not a reduction that initialises its own accumulators".into());
    }
    if block.tensor.is_some() {
        return Err("it is tensorized: decompose it before".into());
    }
    for w in &block.writes {
        if p.producers(w.buffer) != [b] {
            let name = &p.buffer(w.buffer).name;
            return Err(format!("`{name}` has other producers"));
        }
    }
    let around = path(p, Node::Block(b));
    let Some(at) = around.iter().position(|x| *x == l) else {
        return Err(format!("it is not under `{target}`"));
    };
    let (outside, inside) = around.split_at(at);
    let feeds = |l: &LoopId, kind| feeds(block, p.loop_(*l).var, kind);
    if let Some(o) = outside.iter().find(|l| feeds(l, IterKind::Reduce)) {
        let name = &p.loop_(*o).name;
        return Err(format!("it reduces over `{name}`, outside `{target}`"));
    }
    let (reduce, spatial): (Vec<LoopId>, Vec<LoopId>) =
        inside.iter().partition(|l| feeds(l, IterKind::Reduce));
    if let Some(mixed) = reduce.iter().find(|l| feeds(l, IterKind::Spatial)) {
        let name = &p.loop_(*mixed).name;
        return Err(format!("`{name}` enumerates both outputs and terms"));
    }
    let private =
        |l: &&LoopId| matches!(p.loop_(**l).kind, LoopKind::Parallel | LoopKind::Bound(_));
    let local = |w: &Write| p.buffer(w.buffer).scope != Scope::Global;
    if let Some(l) = inside.iter().find(private)
        && block.writes.iter().any(local)
    {
        let name = &p.loop_(*l).name;
        return Err(format!("iterations of `{name}` would share private memory"));
    }
    let var = |l: &LoopId| p.loop_(*l).var;
    let plan = Plan {
        reduce: reduce.iter().map(var).collect(),
        spatial,
    };
    check_once(p, block, &plan, outside)?;
    Ok(plan)
}

/// Whether each output is computed once per iteration of the loops outside,
/// and starts where the reduction loops do.
fn check_once(p: &Program, block: &Block, plan: &Plan, outside: &[LoopId]) -> Result<(), String> {
    let r = program_ranges(p);
    let outputs: Vec<Expr> = block.spatial_iters().map(|i| i.binding.clone()).collect();
    let outputs = Access::new(&outputs, &r);
    let fixed: Vec<VarId> = outside.iter().map(|l| p.loop_(*l).var).collect();
    for l in &plan.spatial {
        let l = p.loop_(*l);
        if !same_iteration(&outputs, &outputs, l.var, &fixed, &r) {
            return Err(format!("iterations of `{}` may share outputs", l.name));
        }
    }
    let first = |v: VarId| plan.reduce.contains(&v).then(|| Expr::int(0));
    for i in block.reduce_iters() {
        if simplify(&i.binding.substitute(&first), &r).as_int() != Some(0) {
            let name = &p.var(i.var).name;
            return Err(format!("its axis `{name}` does not start at 0"));
        }
    }
    Ok(())
}

/// The block that stores the reducer's identity for what `b` reduces into, for
/// the `loops` that are not in the body yet.
fn init_block(p: &mut Program, b: BlockId, by_copy: &[(VarId, Expr)], loops: &[LoopId]) -> BlockId {
    let old = p.block(b).clone();
    let mut r = program_ranges(p);
    for l in loops {
        r.set(p.loop_(*l).var, 0, p.loop_(*l).extent - 1);
    }
    let put = |v: VarId| {
        by_copy
            .iter()
            .find(|(x, _)| *x == v)
            .map(|(_, e)| e.clone())
    };
    let mut own: Vec<(VarId, Expr)> = Vec::new();
    let mut iters = Vec::new();
    for i in old.spatial_iters() {
        let name = p.var(i.var).name.clone();
        let var = p.add_var(name);
        own.push((i.var, Expr::var(var)));
        iters.push(Iter {
            var,
            binding: simplify(&i.binding.substitute(&put), &r),
            ..i.clone()
        });
    }
    let at = |v: VarId| own.iter().find(|(x, _)| *x == v).map(|(_, e)| e.clone());
    let dtypes: Vec<ir::DType> = old
        .writes
        .iter()
        .map(|w| p.buffer(w.buffer).dtype)
        .collect();
    let identity = match &old.reduction {
        Some(reduction) => reduction.reducer.identity(&dtypes),
        None => vec![],
    };
    let writes = old.writes.iter().zip(identity).map(|(w, value)| Write {
        buffer: w.buffer,
        indices: w.indices.iter().map(|e| e.substitute(&at)).collect(),
        value,
    });
    let writes = writes.collect();
    let predicate = old.predicate.map(|e| e.substitute(&put));
    let name = live_name(p, &format!("{}.init", old.name));
    p.add_block(Block {
        name,
        iters,
        predicate: predicate.and_then(|e| open(&e, &r)),
        writes,
        reduction: None,
        tensor: None,
    })
}
