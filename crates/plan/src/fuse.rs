//! Which nodes become one kernel.
//!
//! A group is an anchor and the element-wise nodes that follow it up to a point
//! that everything computed from the anchor passes through (its immediate
//! post-dominator), as long as shapes stay the anchor's. So diamonds fuse (a
//! GELU written out, x sigmoid(x)), and what leaves a group is its last value
//! only. Nodes that reshape are in no group.

use crate::compute::{Extent, extent};
use crate::layout::is_alias;
use graph::ops::Op;
use graph::{Model, NodeId, ValueId};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The nodes of one kernel.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub anchor: NodeId,
    /// Element-wise nodes after the anchor, in topological order.
    pub chain: Vec<NodeId>,
    /// The product of whose rows the same kernel computes the softmax, which is the
    /// anchor's left operand.
    pub scores: Option<Box<Group>>,
}

impl Group {
    /// The anchor and its chain.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        std::iter::once(self.anchor).chain(self.chain.iter().copied())
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
        let skip = usize::from(!is_elementwise(&model[self.anchor].op));
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
        Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast(_) | Op::BatchNorm(_)
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
    for (id, node) in model.nodes() {
        if taken[id.index()] || is_alias(model, id) {
            continue;
        }
        taken[id.index()] = true;
        let mut group = Group {
            anchor: id,
            chain: Vec::new(),
            scores: None,
        };
        if node.outputs.len() == 1 {
            grow(model, &graph, &mut taken, &mut group);
        }
        groups.push(group);
    }
    // A group runs when its last node does: all it reads is made by then.
    groups.sort_by_key(Group::last);
    groups
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
        let within = |e: Extent| e.nodes <= LIMIT.nodes && e.depth <= LIMIT.depth;
        if !region.iter().all(|n| within(measure(*n))) {
            return;
        }
        region.iter().for_each(|n| taken[n.index()] = true);
        group.chain.extend(region);
    }
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
