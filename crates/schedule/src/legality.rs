//! Legality: the checks that several steps share, each written once.

use crate::nest::path;
use crate::recover::{Access, same_iteration};
use ir::affine::Ranges;
use ir::region::{self, block_accesses, bound, program_ranges};
use ir::{
    Axis, Block, BlockId, BufferId, Expr, IterKind, LoopId, LoopKind, Node, Program, Role, Scope,
    Usage, VarId,
};

/// Whether the loop is serial still.
pub(crate) fn serial(p: &Program, l: LoopId) -> Result<(), String> {
    match p.loop_(l).kind {
        LoopKind::Serial => Ok(()),
        LoopKind::Parallel => Err("it is parallel".into()),
        LoopKind::Vectorized => Err("it is vectorized".into()),
        LoopKind::Unrolled => Err("it is unrolled".into()),
        LoopKind::Bound(_) => Err("it is bound to a hardware axis".into()),
    }
}

/// Whether a variable occurs in the binding of an iteration variable of that kind.
pub(crate) fn feeds(block: &Block, v: VarId, kind: IterKind) -> bool {
    let mut iters = block.iters.iter().filter(|i| i.kind == kind);
    iters.any(|i| i.binding.uses_var(v))
}

/// Whether a block may run at another moment: its instances have no order of their own, and no block whose instances
/// do writes what it accesses.
pub(crate) fn settled(p: &Program, b: BlockId) -> Result<(), String> {
    let block = p.block(b);
    if block.is_ordered() {
        return Err("its iterations run in order".into());
    }
    let in_order = |x: &BufferId| p.producers(*x).iter().any(|q| p.block(*q).is_ordered());
    let written = block.writes.iter().map(|w| w.buffer);
    match block.reads().into_iter().chain(written).find(in_order) {
        Some(x) => Err(format!("`{}` is updated in order", p.buffer(x).name)),
        None => Ok(()),
    }
}

/// Whether the buffer is an intermediate that lives inside one iteration of the loop.
pub(crate) fn lives_inside(p: &Program, usage: &[Usage], buffer: BufferId, l: LoopId) -> bool {
    let site = match p.buffer(buffer).role {
        Role::Intermediate => usage[buffer.index()].site,
        _ => None,
    };
    site.is_some_and(|s| s == l || path(p, Node::Loop(s)).contains(&l))
}

/// Whether the iterations of a loop, with the loops around it standing still,
/// neither write elements that others access nor take part in one reduction.
pub(crate) fn independent(p: &Program, l: LoopId) -> Result<(), String> {
    let var = p.loop_(l).var;
    let blocks = p.blocks_under(&[Node::Loop(l)]);
    let usage = p.usage();
    let r = program_ranges(p);
    let around: Vec<VarId> = path(p, Node::Loop(l))
        .iter()
        .map(|l| p.loop_(*l).var)
        .collect();
    let mut written: Vec<BufferId> = Vec::new();
    for b in &blocks {
        let block = p.block(*b);
        if feeds(block, var, IterKind::Reduce) {
            return Err(format!("it is a reduction loop of `{}`", block.name));
        }
        if feeds(block, var, IterKind::Ordered) {
            return Err(format!("`{}` goes on in it", block.name));
        }
        for w in &block.writes {
            if !written.contains(&w.buffer) && !lives_inside(p, &usage, w.buffer, l) {
                written.push(w.buffer);
            }
        }
    }
    for buffer in written {
        let accesses = accesses(p, &blocks, buffer, &r);
        for (i, a) in accesses.iter().enumerate().filter(|(_, a)| a.writes) {
            for (j, b) in accesses.iter().enumerate() {
                let done = b.writes && j < i;
                let pair = match &a.own {
                    Some(own) if i == j => [own, own],
                    _ => [&a.indices, &b.indices],
                };
                if !done && !same_iteration(pair[0], pair[1], var, &around, &r) {
                    let name = &p.buffer(buffer).name;
                    return Err(match (i == j, a.block == b.block) {
                        (true, _) => {
                            format!("several iterations may write one element of `{name}`")
                        }
                        (false, _) => format!(
                            "`{}` may touch elements of `{name}` that `{}` writes in other iterations",
                            p.block(b.block).name,
                            p.block(a.block).name
                        ),
                    });
                }
            }
        }
    }
    Ok(())
}

struct Touch {
    block: BlockId,
    writes: bool,
    indices: Access,
    /// As `indices`, and the bindings of the iteration variables that they tell: where a
    /// tile is cut, those are in a smaller range than the loops that they are bound to. Of
    /// writes only.
    own: Option<Access>,
}

/// Every access of the blocks to a buffer, over loop variables.
fn accesses(p: &Program, blocks: &[BlockId], buffer: BufferId, r: &Ranges) -> Vec<Touch> {
    let mut all = Vec::new();
    for b in blocks {
        let block = p.block(*b);
        let mut add = |writes: bool, indices: &[Expr]| {
            let bound: Vec<Expr> = indices.iter().map(|i| bound(block, i)).collect();
            let own = || [&bound[..], &told(block, indices, r)].concat();
            all.push(Touch {
                block: *b,
                writes,
                indices: Access::new(&bound, r),
                own: writes.then(|| Access::new(&own(), r)),
            });
        };
        for w in block.writes.iter().filter(|w| w.buffer == buffer) {
            add(true, &w.indices);
        }
        for indices in block_accesses(block, buffer, region::Access::Reads) {
            add(false, &indices);
        }
    }
    all
}

/// The bindings of a block's iteration variables that have one value for each value of
/// the indices.
fn told(block: &Block, indices: &[Expr], r: &Ranges) -> Vec<Expr> {
    let mut r = r.clone();
    for i in &block.iters {
        r.set(i.var, 0, i.extent - 1);
    }
    let at = Access::new(indices, &r);
    let iters = block.iters.iter();
    let told = iters.filter(|i| same_iteration(&at, &at, i.var, &[], &r));
    told.map(|i| i.binding.clone()).collect()
}

/// Whether the iterations of a loop may run at once as a loop of that kind:
/// they are independent, and no private memory is shared between them.
pub(crate) fn concurrent(p: &Program, l: LoopId, kind: LoopKind) -> Result<(), String> {
    let blocks = p.blocks_under(&[Node::Loop(l)]);
    let usage = p.usage();
    for b in p.buffer_ids() {
        let buffer = p.buffer(b);
        let u = &usage[b.index()];
        let touched = |x: &BlockId| u.producers.contains(x) || u.consumers.contains(x);
        if separates(kind, buffer.scope)
            && blocks.iter().any(touched)
            && !lives_inside(p, &usage, b, l)
        {
            return Err(format!(
                "`{}` is private memory that its iterations would share",
                buffer.name
            ));
        }
    }
    independent(p, l)
}

/// Whether all accesses to an intermediate, which `usage` is of, stay within what shares memory of
/// that scope.
pub(crate) fn within_scope(p: &Program, usage: &Usage, scope: Scope) -> Result<(), String> {
    let depth = usage.site.map_or(0, |s| path(p, Node::Loop(s)).len() + 1);
    for b in usage.producers.iter().chain(&usage.consumers) {
        let inner = &path(p, Node::Block(*b))[depth..];
        if let Some(l) = inner.iter().find(|l| separates(p.loop_(**l).kind, scope)) {
            let name = &p.loop_(*l).name;
            return Err(format!("iterations of `{name}` share it"));
        }
    }
    Ok(())
}

/// Whether iterations of a loop of that kind do not share memory of that scope.
fn separates(kind: LoopKind, scope: Scope) -> bool {
    let grid = |a| matches!(a, Axis::BlockX | Axis::BlockY | Axis::BlockZ);
    match (kind, scope) {
        (_, Scope::Global) => false,
        (LoopKind::Parallel, _) => true,
        (LoopKind::Bound(a), Scope::Shared) => grid(a),
        (LoopKind::Bound(a), Scope::Warp) => a != Axis::ThreadX,
        (LoopKind::Bound(_), Scope::Local | Scope::Register) => true,
        _ => false,
    }
}
