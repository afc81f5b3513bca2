//! Which nodes become one kernel.
//!
//! A group is an anchor and the element-wise nodes that follow it up to a point
//! that everything computed from the anchor passes through (its immediate
//! post-dominator), as long as shapes stay the anchor's. So diamonds fuse (a
//! GELU written out, x sigmoid(x)), and what leaves a group is its last value
//! only. A reduction computes what it alone reads of an element-wise group. Nodes that reshape are in no group.

use crate::compute::{Extent, extent};
use crate::fold::is_folded;
use crate::layout::is_alias;
use crate::moves::Moves;
use graph::ops::Op;
use graph::{Model, NodeId, ValueId};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The nodes of one kernel.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Of a chain along rows the last node.
    pub anchor: NodeId,
    /// Reductions and element-wise nodes along the same rows before the anchor, in
    /// topological order: their values stay inside the kernel.
    pub rows: Vec<NodeId>,
    /// Element-wise nodes before a reduction, in topological order: it computes their values where it reads them.
    pub terms: Vec<NodeId>,
    /// Element-wise nodes after the anchor, in topological order.
    pub chain: Vec<NodeId>,
    /// The product of whose rows the same kernel computes the softmax, which is the
    /// anchor's left operand.
    pub scores: Option<Box<Scores>>,
    /// What the kernel of an anchor that moves elements reads through.
    pub moves: Moves,
}

/// The first product of attention.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    pub group: Group,
    /// How many weights of a row are stored, in bf16, where both products are of tiles: those
    /// that are more than the scores are 0.
    pub in_tiles: Option<i64>,
}

impl Group {
    /// Of one node.
    pub fn alone(anchor: NodeId) -> Group {
        Group {
            anchor,
            rows: Vec::new(),
            terms: Vec::new(),
            chain: Vec::new(),
            scores: None,
            moves: Moves::default(),
        }
    }

    /// The values that the kernel reads for an operand of its anchor: the operand, or
    /// what the nodes before the anchor move to it.
    pub fn leaves(&self, model: &Model, v: ValueId) -> Vec<ValueId> {
        match model.producer(v) {
            Some((n, _)) if self.moves.nodes.contains(&n) => {
                let operands = model[n].inputs.iter().flatten();
                operands.flat_map(|v| self.leaves(model, *v)).collect()
            }
            _ => vec![v],
        }
    }

    /// The values that a reduction reads for the elements of its operand `x`: what its terms
    /// read in the shape of `x`, or `x`.
    pub fn sources(&self, model: &Model, x: ValueId) -> Vec<ValueId> {
        if self.terms.is_empty() {
            return vec![x];
        }
        let made = |v: &ValueId| {
            model
                .producer(*v)
                .is_some_and(|(n, _)| self.terms.contains(&n))
        };
        let read = self
            .terms
            .iter()
            .flat_map(|n| model[*n].inputs.iter().flatten().copied());
        read.filter(|v| !made(v) && model[*v].shape() == model[x].shape())
            .collect()
    }

    /// The anchor and its chain.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let rows = self.rows.iter().copied();
        rows.chain([self.anchor]).chain(self.chain.iter().copied())
    }

    pub fn last(&self) -> NodeId {
        self.chain.last().copied().unwrap_or(self.anchor)
    }

    pub fn outputs(&self, model: &Model) -> Vec<ValueId> {
        model[self.last()].outputs.clone()
    }

    /// The nodes whose values are computed element by element at the result's
    /// point: the chain, and an element-wise anchor.
    pub fn pointwise(&self, model: &Model) -> Vec<NodeId> {
        let skip = usize::from(!is_elementwise(&model[self.anchor].op) && self.rows.is_empty());
        self.nodes().skip(skip).collect()
    }

    /// What the point-wise nodes read from outside the group, in order.
    pub fn chain_operands(&self, model: &Model) -> Vec<ValueId> {
        let inside: HashSet<ValueId> = self
            .nodes()
            .flat_map(|n| model[n].outputs.iter().copied())
            .collect();
        let mut operands = Vec::new();
        for n in self.pointwise(model) {
            for v in model[n].inputs.iter().flatten() {
                if !inside.contains(v) && !operands.contains(v) {
                    operands.push(*v);
                }
            }
        }
        operands
    }
}

/// Whether every result element depends on one element of each operand, up to
/// broadcasting, at the same index.
pub(crate) fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast(_) | Op::Lookup | Op::BatchNorm(_)
    )
}

/// The largest expression of a group: a chain is cut before it would be larger.
/// Values that are used twice appear twice in it, and programs are read and
/// walked by recursion.
const LIMIT: Extent = Extent {
    nodes: 256,
    depth: 64,
};

/// All groups of a model without dead code, in execution order.
pub(crate) fn fuse(model: &Model) -> Vec<Group> {
    let graph = PostDominators::of(model);
    let mut taken = vec![false; model.nodes().len()];
    let mut groups = Vec::new();
    for (id, _) in model.nodes() {
        if let Some(group) = along_rows(model, &graph, &taken, id) {
            group.nodes().for_each(|n| taken[n.index()] = true);
            groups.push(group);
        }
    }
    for (id, node) in model.nodes() {
        if taken[id.index()] || is_alias(model, id) {
            continue;
        }
        taken[id.index()] = true;
        let mut group = Group::alone(id);
        if node.outputs.len() == 1 {
            grow(model, &graph, &mut taken, &mut group);
            absorb_operands(model, &graph, &mut taken, &mut group);
        }
        groups.push(group);
    }
    // A group runs when its last node does: all it reads is made by then.
    groups.sort_by_key(Group::last);
    into_reductions(model, groups)
}

/// Lets reductions compute the element-wise groups that they alone read. Example: the squares of an L2 norm.
fn into_reductions(model: &Model, groups: Vec<Group>) -> Vec<Group> {
    let users = model.users();
    let reductions: HashSet<NodeId> = groups
        .iter()
        .filter(|g| g.rows.is_empty() && reads_terms(model, g.anchor))
        .map(|g| g.anchor)
        .collect();
    let reader = |g: &Group| {
        let &[v] = &g.outputs(model)[..] else {
            return None;
        };
        let one_term = |n: NodeId| {
            let op = &model[n].op;
            is_elementwise(op) && !matches!(op, Op::Lookup | Op::BatchNorm(_))
        };
        let fits = g.rows.is_empty() && g.nodes().all(one_term) && !is_folded(model, &users, v);
        match users.of(v) {
            [(n, _)] if fits && !users.is_output(v) => reductions.get(n).copied(),
            _ => None,
        }
    };
    let (terms, mut others): (Vec<Group>, Vec<Group>) =
        groups.into_iter().partition(|g| reader(g).is_some());
    for g in terms {
        let reduction = others.iter_mut().find(|r| reader(&g) == Some(r.anchor));
        let reduction = reduction.expect("the reader has a group");
        reduction.terms = g.nodes().collect();
    }
    others
}

/// Whether a node is a reduction that may compute its terms.
fn reads_terms(model: &Model, n: NodeId) -> bool {
    let node = &model[n];
    let x = node.input(0).filter(|_| matches!(node.op, Op::Reduce(_)));
    x.is_some_and(|x| !model[x].ty().is_empty())
}

fn grow(model: &Model, graph: &PostDominators, taken: &mut [bool], group: &mut Group) {
    let shape = model[model[group.anchor].output()].shape();
    let mut extents = HashMap::new();
    let mut measure = |n: NodeId| {
        let leaf = |v| extents.get(&v).copied().unwrap_or(Extent::LEAF);
        let extent = extent(model, &model[n], leaf);
        extents.insert(model[n].output(), extent);
        extent
    };
    if is_elementwise(&model[group.anchor].op) {
        measure(group.anchor);
    }
    while let Some(end) = graph.parent(group.last()) {
        let Some(region) = graph.between(group.last(), end) else {
            return;
        };
        let fits = |n: &NodeId| {
            let node = &model[*n];
            !taken[n.index()] && is_elementwise(&node.op) && model[node.output()].shape() == shape
        };
        if !region.iter().all(fits) {
            return;
        }
        if !region.iter().all(|n| measure(*n).fits(LIMIT)) {
            return;
        }
        region.iter().for_each(|n| taken[n.index()] = true);
        group.chain.extend(region);
    }
}

/// Adds to the chain what only the chain reads and is made of one tensor of the result's size alone. Examples: the
/// bytes of a shortcut, which the sum that ends the chain dequantises; a product with the cosines of positions, which
/// all heads share.
fn absorb_operands(model: &Model, graph: &PostDominators, taken: &mut [bool], group: &mut Group) {
    let anchor = group.anchor;
    let shape = model[model[anchor].output()].shape();
    let admits = |n: NodeId, _: &HashSet<ValueId>| {
        let node = &model[n];
        let moving = node.inputs.iter().flatten();
        let moving: Vec<_> = moving.filter(|v| model.constant(**v).is_none()).collect();
        let elements = |v: ValueId| model[v].ty().len();
        let whole = moving
            .iter()
            .filter(|v| elements(***v) == elements(node.output()));
        let one = moving.len() == 1 || whole.count() == 1;
        // What is made before the anchor had its turn to be fused.
        n > anchor
            && !taken[n.index()]
            && is_elementwise(&node.op)
            && one
            && model[node.output()].shape() == shape
    };
    let mut nodes: Vec<NodeId> = group.nodes().collect();
    let before = nodes.len();
    absorb(model, graph, &admits, &mut nodes, LIMIT.depth);
    let mut extents = HashMap::new();
    let fits = nodes.iter().all(|n| {
        let leaf = |v| extents.get(&v).copied().unwrap_or(Extent::LEAF);
        let own = match *n == anchor && !is_elementwise(&model[anchor].op) {
            true => Extent::LEAF,
            false => extent(model, &model[*n], leaf),
        };
        extents.insert(model[*n].output(), own);
        own.fits(LIMIT)
    });
    if fits && nodes.len() > before {
        nodes.iter().for_each(|n| taken[n.index()] = true);
        group.chain = nodes.into_iter().filter(|n| *n != anchor).collect();
    }
}

/// Nodes of a chain along rows, at most.
const MOST_OF_ROWS: usize = 32;

/// The reduction `start`, and everything computed from it up to a post-dominator, as
/// long as all reduces the same axes of the same shape, or is element-wise of that shape
/// or of one element a row. There is a group only if a row would be read again.
fn along_rows(
    model: &Model,
    graph: &PostDominators,
    taken: &[bool],
    start: NodeId,
) -> Option<Group> {
    let Op::Reduce(first) = &model[start].op else {
        return None;
    };
    let source = model[start].input(0)?;
    let shape = model[source].shape();
    let kept = shape.len().checked_sub(first.axes.len())?;
    // Further axes are those of an image, which may lie in blocks of channels.
    let along_row = first.axes.len() == 1 && first.axes[0] == kept && first.keepdims;
    if !along_row || shape[kept..].iter().product::<usize>() <= 1 {
        return None;
    }
    let of_rows = |v: ValueId| {
        let own = model[v].shape();
        own.len() == shape.len()
            && own[..kept] == shape[..kept]
            && own[kept..].iter().all(|n| *n == 1)
    };
    let fits = |n: &NodeId| {
        let node = &model[*n];
        let float = |v: &ValueId| model[*v].dtype().is_float();
        let one = node.outputs.len() == 1 && !taken[n.index()];
        one && node.inputs.iter().flatten().chain(&node.outputs).all(float)
            && match &node.op {
                Op::Reduce(r) => {
                    let own = node.input(0).map(|v| model[v].shape());
                    own == Some(shape) && r.axes == first.axes && r.keepdims
                }
                Op::BatchNorm(_) => false,
                op if is_elementwise(op) => {
                    let result = node.output();
                    model[result].shape() == shape || of_rows(result)
                }
                _ => false,
            }
    };
    if !fits(&start) {
        return None;
    }
    let mut nodes = vec![start];
    let mut end = start;
    while let Some(next) = graph.parent(end) {
        let Some(region) = graph.between(end, next) else {
            break;
        };
        if !region.iter().all(fits) || nodes.len() + region.len() > MOST_OF_ROWS {
            break;
        }
        nodes.extend(region);
        end = next;
    }
    let again =
        |n: &&NodeId| !of_rows(model[**n].output()) || matches!(model[**n].op, Op::Reduce(_));
    if nodes.len() < 2 || nodes[1..].iter().filter(again).count() == 0 {
        return None;
    }
    // No further operand is read for what is added.
    let adds_none = |n: NodeId, read: &HashSet<ValueId>| {
        let mut own = model[n].inputs.iter().flatten();
        own.all(|v| read.contains(v) || model.constant(*v).is_some())
            && is_elementwise(&model[n].op)
            && fits(&n)
    };
    absorb(model, graph, &adds_none, &mut nodes, MOST_OF_ROWS);
    let rows = nodes[..nodes.len() - 1].to_vec();
    Some(Group {
        rows,
        ..Group::alone(end)
    })
}

/// Adds nodes that only these nodes read and that `admits` takes, given all that is read, up
/// to `most`. Example: the squares of a norm whose operand the norm divides.
fn absorb(
    model: &Model,
    graph: &PostDominators,
    admits: &impl Fn(NodeId, &HashSet<ValueId>) -> bool,
    nodes: &mut Vec<NodeId>,
    most: usize,
) {
    let reads = |n: NodeId| model[n].inputs.iter().flatten().copied();
    loop {
        let read: HashSet<ValueId> = nodes.iter().flat_map(|n| reads(*n)).collect();
        let mut producers = read.iter().filter_map(|v| model.producer(*v));
        let found = producers.find(|(n, _)| {
            let inside = |n: &NodeId| nodes.contains(n);
            let own = model[*n]
                .outputs
                .iter()
                .any(|v| model.outputs().contains(v));
            !inside(n) && !own && graph.users[n.index()].iter().all(inside) && admits(*n, &read)
        });
        match found {
            Some((n, _)) if nodes.len() < most => nodes.push(n),
            _ => break,
        }
    }
    nodes.sort_unstable();
}

/// The post-dominator tree of the nodes; its root is the exit that graph
/// outputs lead to.
struct PostDominators {
    users: Vec<Vec<NodeId>>,
    /// `None` is the exit.
    parent: Vec<Option<NodeId>>,
}

impl PostDominators {
    fn of(model: &Model) -> PostDominators {
        let count = model.nodes().len();
        let mut users: Vec<BTreeSet<NodeId>> = vec![BTreeSet::new(); count];
        let mut exits = vec![false; count];
        for (id, node) in model.nodes() {
            for v in node.inputs.iter().flatten() {
                if let Some((producer, _)) = model.producer(*v) {
                    users[producer.index()].insert(id);
                }
            }
        }
        for v in model.outputs() {
            if let Some((producer, _)) = model.producer(*v) {
                exits[producer.index()] = true;
            }
        }
        let mut tree = PostDominators {
            users: users.into_iter().map(|u| u.into_iter().collect()).collect(),
            parent: vec![None; count],
        };
        let mut depth = vec![1usize; count];
        for (id, _) in model.nodes().rev() {
            let i = id.index();
            let mut users = tree.users[i].iter().copied();
            let first = users.next().filter(|_| !exits[i]);
            let parent = users.fold(first, |a, b| tree.common(&depth, a, Some(b)));
            tree.parent[i] = parent;
            depth[i] = parent.map_or(0, |p| depth[p.index()]) + 1;
        }
        tree
    }

    /// The nearest common ancestor.
    fn common(
        &self,
        depth: &[usize],
        mut a: Option<NodeId>,
        mut b: Option<NodeId>,
    ) -> Option<NodeId> {
        while a != b {
            let (x, y) = (a?, b?);
            if depth[x.index()] >= depth[y.index()] {
                a = self.parent[x.index()];
            } else {
                b = self.parent[y.index()];
            }
        }
        a
    }

    fn parent(&self, n: NodeId) -> Option<NodeId> {
        self.parent[n.index()]
    }

    /// The nodes on the ways from `start` to its post-dominator `end`, without
    /// `start`, in topological order; `None` if there are unreasonably many.
    fn between(&self, start: NodeId, end: NodeId) -> Option<Vec<NodeId>> {
        let mut seen = BTreeSet::new();
        let mut open = vec![start];
        while let Some(n) = open.pop() {
            for user in &self.users[n.index()] {
                if seen.insert(*user) && *user != end {
                    open.push(*user);
                }
            }
            if seen.len() > LIMIT.nodes {
                return None;
            }
        }
        Some(seen.into_iter().collect())
    }
}
