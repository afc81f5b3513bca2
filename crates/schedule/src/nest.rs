//! Nests: taking a block out of the loop tree and giving it loops of its own.
//!
//! What the steps that move or create blocks share. A rebuilt nest has one
//! serial loop per iteration variable, named `block.axis`, extent 1 included,
//! so that names are predictable; a predicate keeps every variable inside its
//! domain where the bounds do not prove it. Of legality only `change` knows
//! anything: what holds for the program after every such step.

use crate::legality::within_scope;
use ir::affine::{Affine, Interval, Ranges, bounds};
use ir::region::{RegionDim, program_ranges};
use ir::simplify::{prove, simplify};
use ir::{
    BinaryOp, Block, BlockId, BufferId, Expr, ExprKind, Iter, IterKind, LoopId, Node, Program,
    Role, Scope, Usage, VarId, Write,
};

/// The loops around a node of the body, outermost first.
pub(crate) fn path(p: &Program, node: Node) -> Vec<LoopId> {
    p.path_to(node).expect("the node is in the body")
}

/// The loops around a loop of the body and the loop itself.
pub(crate) fn path_through(p: &Program, l: LoopId) -> Vec<LoopId> {
    let mut loops = path(p, Node::Loop(l));
    loops.push(l);
    loops
}

/// The loops of a block to which a step has just given a nest of its own, one for
/// each of its iteration variables in their order.
pub fn own_loops(p: &Program, b: BlockId) -> Vec<LoopId> {
    let mut loops = p.path_to(Node::Block(b)).unwrap_or_default();
    let outer = loops.len().saturating_sub(p.block(b).iters.len());
    loops.split_off(outer)
}

/// The loop that a nest of a block's own has along an axis, wherever it stands
/// by now; `None` once another step has replaced it.
pub fn loop_along(p: &Program, b: BlockId, axis: &str) -> Option<LoopId> {
    let name = axis_loop(&p.block(b).name, axis);
    let loops = p.path_to(Node::Block(b))?.into_iter();
    loops.into_iter().find(|l| p.loop_(*l).name == name)
}

/// What the loop along an axis is called in a nest of the block's own.
fn axis_loop(block: &str, axis: &str) -> String {
    format!("{block}.{axis}")
}

/// The leading loops that two paths share.
pub(crate) fn common(a: &[LoopId], b: &[LoopId]) -> Vec<LoopId> {
    let both = a.iter().zip(b);
    both.take_while(|(x, y)| x == y).map(|(x, _)| *x).collect()
}

/// The child of `parent` that is `node` or holds it, with its position;
/// `None` if the node is not under `parent`.
pub(crate) fn child_with(p: &Program, parent: Option<LoopId>, node: Node) -> Option<(usize, Node)> {
    let path = p.path_to(node)?;
    let depth = match parent {
        None => 0,
        Some(l) => path.iter().position(|x| *x == l)? + 1,
    };
    let child = path.get(depth).map_or(node, |l| Node::Loop(*l));
    let at = p.children(parent).iter().position(|n| *n == child)?;
    Some((at, child))
}

/// Makes a change if it leaves all private memory private, and takes no block
/// away from the loop that computes its input anew in every iteration: what is
/// left there would write elements more than once.
pub(crate) fn change<T>(
    program: &mut Program,
    make: impl FnOnce(&mut Program) -> Result<T, String>,
) -> Result<T, String> {
    let mut next = program.clone();
    let made = make(&mut next)?;
    let (before, after) = (program.usage(), next.usage());
    for b in next.buffer_ids() {
        let buffer = next.buffer(b);
        if buffer.role != Role::Intermediate {
            continue;
        }
        if buffer.scope != Scope::Global {
            within_scope(&next, &after[b.index()], buffer.scope)
                .map_err(|why| format!("`{}` would be shared: {why}", buffer.name))?;
        }
        if let Some(before) = before.get(b.index())
            && let Some(site) = before.site
            && leaves((program, before), (&next, &after[b.index()]), site)
        {
            let site = &program.loop_(site).name;
            return Err(format!(
                "`{}` is computed in each iteration of `{site}`, which its consumer would leave",
                buffer.name
            ));
        }
    }
    *program = next;
    Ok(made)
}

/// Whether a buffer no longer lives inside the loop, where its producers stayed.
fn leaves(before: (&Program, &Usage), after: (&Program, &Usage), site: LoopId) -> bool {
    let inside = |l: LoopId| path_through(after.0, l).contains(&site);
    if after.1.site.is_some_and(inside) {
        return false;
    }
    let paths = |(p, usage): (&Program, &Usage)| {
        let producers = usage.producers.iter();
        let paths = producers.map(|b| path(p, Node::Block(*b)));
        paths.collect::<Vec<_>>()
    };
    paths(before) == paths(after)
}

/// Removes a node from the body, with the loops that this leaves empty.
pub(crate) fn detach(p: &mut Program, node: Node) {
    let mut node = node;
    for parent in path(p, node).into_iter().rev() {
        p.children_mut(Some(parent)).retain(|n| *n != node);
        if !p.children(Some(parent)).is_empty() {
            return;
        }
        node = Node::Loop(parent);
    }
    p.body.retain(|n| *n != node);
}

pub(crate) fn insert_before(p: &mut Program, parent: Option<LoopId>, sibling: Node, node: Node) {
    insert(p, parent, sibling, node, 0);
}

pub(crate) fn insert_after(p: &mut Program, parent: Option<LoopId>, sibling: Node, node: Node) {
    insert(p, parent, sibling, node, 1);
}

fn insert(p: &mut Program, parent: Option<LoopId>, sibling: Node, node: Node, offset: usize) {
    let siblings = p.children_mut(parent);
    let at = siblings.iter().position(|n| *n == sibling);
    siblings.insert(at.expect("a child of its parent") + offset, node);
}

/// `base`, or `base_1`, `base_2`, ... if a loop or block of the body or a
/// buffer has it. Unlike `Program::fresh_name` this gives the names of removed
/// loops away again.
pub(crate) fn live_name(p: &Program, base: &str) -> String {
    let taken = |n: &str| p.node_named(n).is_some() || p.buffer_named(n).is_some();
    free_name(base, taken)
}

/// `base`, or the first of `base_1`, `base_2`, ... that is not taken.
pub(crate) fn free_name(base: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut name = base.to_string();
    let mut i = 0;
    while taken(&name) {
        i += 1;
        name = format!("{base}_{i}");
    }
    name
}

/// Like `live_name`, for a block that shares its name with its output.
pub(crate) fn live_block_name(p: &Program, base: &str) -> String {
    if p.node_named(base).is_some() {
        live_name(p, base)
    } else {
        base.to_string()
    }
}

/// The whole domain of each iteration variable.
pub(crate) fn whole_domain(block: &Block) -> Vec<RegionDim> {
    let whole = |i: &Iter| whole_dim(i.extent);
    block.iters.iter().map(whole).collect()
}

pub(crate) fn whole_dim(extent: i64) -> RegionDim {
    RegionDim {
        min: Expr::int(0),
        extent,
    }
}

/// The part of an interval inside `0..size`, as far as its start is known.
pub(crate) fn within(d: &RegionDim, size: i64) -> RegionDim {
    match d.min.as_int() {
        Some(lo) => {
            let hi = (lo + d.extent).min(size);
            let lo = lo.clamp(0, size - 1);
            RegionDim {
                min: Expr::int(lo),
                extent: (hi - lo).max(1),
            }
        }
        None if d.extent >= size => whole_dim(size),
        None => d.clone(),
    }
}

/// As `within`, for who may not take more than the interval: an error if what
/// lies inside `0..size` differs between iterations in a way that no start and
/// extent say, or if it may be nothing.
pub(crate) fn exactly_within(d: &RegionDim, size: i64, r: &Ranges) -> Result<RegionDim, String> {
    let meets = |lo: i64| lo < size && lo + d.extent > 0;
    let covers = |i: Interval| i.hi <= 0 && i.lo + d.extent >= size;
    let known = match d.min.as_int() {
        Some(lo) => meets(lo),
        None => d.extent < size || bounds(&d.min, r).is_some_and(covers),
    };
    if !known {
        return Err("some iterations may lie wholly or partly outside the domain".into());
    }
    Ok(within(d, size))
}

/// The deepest loops that a block shares with one that reads `buffer`, which it
/// writes: what follows the block there comes before every reader.
pub(crate) fn before_consumers(p: &Program, b: BlockId, buffer: BufferId) -> Vec<LoopId> {
    let own = path(p, Node::Block(b));
    let shared = |c: &BlockId| common(&own, &path(p, Node::Block(*c)));
    let consumers = p.consumers(buffer);
    let deepest = consumers.iter().map(shared).max_by_key(Vec::len);
    deepest.unwrap_or_default()
}

/// Gives a block that is not in the body new loops over `spans` (one per
/// iteration variable, starts over the variables of loops that will enclose
/// it), and returns the outermost node, not yet inserted. Replaces bindings
/// and predicate; the predicate also gets `tests`, over those same variables.
pub(crate) fn renest(p: &mut Program, block: BlockId, spans: &[RegionDim], tests: &[Expr]) -> Node {
    let mut r = program_ranges(p);
    let name = p.block(block).name.clone();
    let iters = p.block(block).iters.clone();
    let mut loops: Vec<LoopId> = Vec::new();
    let mut predicate: Vec<Expr> = Vec::new();
    for (at, (iter, span)) in iters.iter().zip(spans).enumerate() {
        let span = within(span, iter.extent);
        let axis = axis_loop(&name, &p.var(iter.var).name);
        let mut loop_name = live_name(p, &axis);
        let mut i = 0;
        while loops.iter().any(|l| p.loop_(*l).name == loop_name) {
            i += 1;
            loop_name = live_name(p, &format!("{axis}_{i}"));
        }
        let l = p.new_loop(loop_name, span.extent, vec![]);
        let var = p.loop_(l).var;
        r.set(var, 0, span.extent - 1);
        loops.push(l);
        let binding = simplify(&(&span.min + var), &r);
        predicate.extend(domain_tests(&binding, iter.extent, &r));
        p.block_mut(block).iters[at].binding = binding;
    }
    for test in tests {
        let form = at_most_zero(test, &r);
        let same = |t: &Expr| t == test || (form.is_some() && at_most_zero(t, &r) == form);
        if !predicate.iter().any(same) && !prove(test, &r) {
            predicate.push(test.clone());
        }
    }
    p.block_mut(block).predicate = predicate.into_iter().reduce(Expr::and);
    let mut node = Node::Block(block);
    for l in loops.into_iter().rev() {
        p.loop_mut(l).body.push(node);
        node = Node::Loop(l);
    }
    node
}

/// The conditions under which `value` lies in `0..extent`, less those that the
/// ranges prove.
pub(crate) fn domain_tests(value: &Expr, extent: i64, r: &Ranges) -> Vec<Expr> {
    let tests = [Expr::int(0).le(value), value.clone().lt(Expr::int(extent))];
    tests.into_iter().filter(|t| !prove(t, r)).collect()
}

/// An operand with 0 for loads that would leave their buffers, where no guard
/// round them says that they do not.
pub(crate) fn guarded_inside(p: &Program, operand: &Expr, r: &Ranges) -> Expr {
    guard_loads(p, &simplify(operand, r), &[], r)
}

/// `known`: canonical forms of tests that hold.
fn guard_loads(p: &Program, e: &Expr, known: &[Expr], r: &Ranges) -> Expr {
    // From the outside in: a guard is known before what it guards is seen.
    match e.kind() {
        ExprKind::Select(test, value, other) => {
            let said = conjuncts(Some(test)).into_iter();
            let said = said.filter_map(|t| at_most_zero(t, r));
            let inner: Vec<Expr> = known.iter().cloned().chain(said).collect();
            let test = guard_loads(p, test, known, r);
            let value = guard_loads(p, value, &inner, r);
            let other = guard_loads(p, other, known, r);
            match value.kind() {
                // One guard where both give the same.
                ExprKind::Select(inside, load, zero) if *zero == other => {
                    Expr::select(test.and(inside), load, other)
                }
                _ => Expr::select(test, value, other),
            }
        }
        ExprKind::Load(b, indices) => {
            let guarded = |i: &Expr| guard_loads(p, i, known, r);
            let indices: Vec<Expr> = indices.iter().map(guarded).collect();
            let sizes = &p.buffer(*b).shape;
            let tests = indices
                .iter()
                .zip(sizes)
                .flat_map(|(i, n)| domain_tests(i, *n, r));
            let unsaid = |t: &Expr| at_most_zero(t, r).is_none_or(|t| !known.contains(&t));
            let inside = tests.filter(unsaid).reduce(Expr::and);
            let load = Expr::load(*b, indices);
            match inside {
                None => load,
                Some(inside) => {
                    let zero = Expr::constant(0.0, load.dtype(p));
                    Expr::select(inside, load, zero)
                }
            }
        }
        _ => e.map_children(|c| guard_loads(p, c, known, r)),
    }
}

/// The tests that a predicate is the conjunction of.
pub(crate) fn conjuncts(predicate: Option<&Expr>) -> Vec<&Expr> {
    let Some(e) = predicate else { return vec![] };
    match e.kind() {
        ExprKind::Binary(BinaryOp::And, a, b) => {
            let mut out = conjuncts(Some(a));
            out.extend(conjuncts(Some(b)));
            out
        }
        _ => vec![e],
    }
}

/// The tests over variables of the loops `at` that all of the blocks make:
/// where one fails, none of them runs in the whole iteration.
pub(crate) fn iteration_tests(p: &Program, blocks: &[BlockId], at: &[LoopId]) -> Vec<Expr> {
    let outer = |v: VarId| at.iter().any(|l| p.loop_(*l).var == v);
    let tests = |b: &BlockId| {
        let tests = conjuncts(p.block(*b).predicate.as_ref()).into_iter();
        let tests = tests.filter(|t| t.vars().into_iter().all(outer));
        tests.cloned().collect::<Vec<Expr>>()
    };
    let Some((first, others)) = blocks.split_first() else {
        return vec![];
    };
    let mut common = tests(first);
    for b in others {
        let of_b = tests(b);
        common.retain(|t| of_b.contains(t));
    }
    common
}

/// For a test `a < b` or `a <= b` on integers the canonical form of what it
/// bounds by 0; `None` for other tests.
pub(crate) fn at_most_zero(test: &Expr, r: &Ranges) -> Option<Expr> {
    let test = simplify(test, r);
    let bounded = match test.kind() {
        ExprKind::Binary(BinaryOp::Lt, a, b) => a - b + 1,
        ExprKind::Binary(BinaryOp::Le, a, b) => a - b,
        _ => return None,
    };
    let e = simplify(&bounded, r);
    Some(Affine::of(&e).map_or(e, |a| a.to_expr()))
}

/// Whether an intermediate has elements that no block writes, because a
/// packed dimension was rounded up.
pub(crate) fn is_padded(p: &Program, buffer: BufferId) -> bool {
    let volume = |sizes: &mut dyn Iterator<Item = i64>| sizes.fold(1, i64::saturating_mul);
    let all = volume(&mut p.buffer(buffer).shape.iter().copied());
    let written = |b: &BlockId| volume(&mut p.block(*b).spatial_iters().map(|i| i.extent));
    p.buffer(buffer).role == Role::Intermediate
        && p.producers(buffer).iter().all(|b| written(b) < all)
}

/// The variables of an index list that is one distinct spatial iteration
/// variable of the block per dimension; `None` otherwise.
pub(crate) fn plain_vars(block: &Block, indices: &[Expr]) -> Option<Vec<VarId>> {
    let mut vars = Vec::new();
    for i in indices {
        let v = i.as_var()?;
        let spatial = block.spatial_iters().any(|i| i.var == v);
        if !spatial || vars.contains(&v) {
            return None;
        }
        vars.push(v);
    }
    Some(vars)
}

/// Puts `to` for every load of `from` in a block's statement.
pub(crate) fn redirect_loads(p: &mut Program, block: BlockId, from: BufferId, to: BufferId) {
    rewrite_loads(p, block, from, &mut |indices| {
        Expr::load(to, indices.to_vec())
    });
}

/// Puts `f(indices)` for every load of `buffer` in a block's statement.
pub(crate) fn rewrite_loads(
    p: &mut Program,
    block: BlockId,
    buffer: BufferId,
    f: &mut impl FnMut(&[Expr]) -> Expr,
) {
    p.block_mut(block)
        .map_statement(|e| e.map_loads(&mut |b, indices| (b == buffer).then(|| f(indices))));
}

/// A block `name` over axes `(name, extent)` that stores `value` to `to`, both
/// over the axes; not in the body and without loops (see `renest`).
pub(crate) fn map_block(
    p: &mut Program,
    name: &str,
    axes: &[(String, i64)],
    to: BufferId,
    statement: impl FnOnce(&[Expr]) -> (Vec<Expr>, Expr),
) -> BlockId {
    let mut iters = Vec::new();
    for (axis, extent) in axes {
        iters.push(Iter {
            var: p.add_var(axis.clone()),
            extent: *extent,
            kind: IterKind::Spatial,
            binding: Expr::int(0),
        });
    }
    let vars: Vec<Expr> = iters.iter().map(|i| Expr::var(i.var)).collect();
    let (indices, value) = statement(&vars);
    p.add_block(Block {
        name: name.to_string(),
        iters,
        predicate: None,
        writes: vec![Write {
            buffer: to,
            indices,
            value,
        }],
        reduction: None,
        tensor: None,
    })
}

/// An intermediate that copies the type and shape of another buffer.
pub(crate) fn like(p: &mut Program, buffer: BufferId, name: String, scope: Scope) -> BufferId {
    let mut copy = p.buffer(buffer).clone();
    copy.name = name;
    copy.scope = scope;
    copy.role = Role::Intermediate;
    copy.view = None;
    p.add_buffer(copy)
}

/// `ax0`, `ax1`, ... with the sizes of a shape.
pub(crate) fn numbered_axes(shape: &[i64]) -> Vec<(String, i64)> {
    let axes = shape.iter().enumerate();
    axes.map(|(i, n)| (numbered_axis(i), *n)).collect()
}

/// What the axis along a dimension of a copied buffer is called.
pub fn numbered_axis(dim: usize) -> String {
    format!("ax{dim}")
}

/// Whether a loop or one around it is vectorized: nothing can be placed in it.
pub(crate) fn inside_vector(p: &Program, l: LoopId) -> bool {
    path_through(p, l)
        .iter()
        .any(|l| p.loop_(*l).kind == ir::LoopKind::Vectorized)
}
