//! Which nodes that move elements have no kernel: their readers read through them.
//!
//! A chain of nodes that only move elements (reshapes, transposes, slices, splits,
//! concatenations) is one kernel, whose indices are composed. Owns which chains those
//! are, and where the result lies in blocks of channels: where it is read in blocks, and
//! every vector of it comes from one pixel and few blocks. Other chains keep rows whole.
//! Leaves the program to `compute`.

use crate::fold::is_folded;
use crate::fuse::Group;
use crate::layout::{Choice, Layout, blocks, fits_blocks, is_image};
use crate::views::{joined, parts};
use graph::ops::{Op, Slice};
use graph::{Model, NodeId, Users, ValueId};
use std::collections::{HashMap, HashSet};

/// What a kernel reads through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    /// Before the anchor, in topological order.
    pub nodes: Vec<NodeId>,
    /// Whether the result and all that is read are in blocks of channels.
    pub blocked: bool,
}

/// Elements of a row that is copied whole, at least.
const FEWEST_IN_A_ROW: usize = 8;
/// Blocks that a vector is shuffled from, at most.
const MOST_BLOCKS: usize = 4;
/// Nodes of a chain behind each other, and elements that one of its result may be, at most:
/// indices are composed by recursion, and each may be read.
const LONGEST: usize = 8;
const MOST_ELEMENTS: usize = 24;

/// The groups with chains of moves as one group each, given the layouts that were chosen
/// for the groups without.
pub(crate) fn fuse(
    model: &Model,
    groups: &[Group],
    choices: &[Choice],
    block: Option<i64>,
    plain: &[String],
) -> Vec<Group> {
    let mut chains = Chains::of(model, groups, choices, block);
    chains.plain = plain;
    for (id, _) in model.nodes() {
        if chains.moves.contains(&id) && !chains.is_inner(id) {
            chains.end(id);
        }
    }
    let inner = chains.without_kernels();
    let ended = chains.ended;
    let mut fused: Vec<Group> = Vec::new();
    for group in groups.iter().filter(|g| !inner.contains(&g.anchor)) {
        let moves = ended.get(&group.anchor).cloned().unwrap_or_default();
        fused.push(Group {
            moves,
            ..group.clone()
        });
    }
    let anchors: HashSet<NodeId> = fused.iter().map(|g| g.anchor).collect();
    for (anchor, moves) in ended {
        if !anchors.contains(&anchor) && !inner.contains(&anchor) {
            fused.push(Group {
                moves,
                ..Group::alone(anchor)
            });
        }
    }
    fused.sort_by_key(Group::last);
    fused
}

/// Whether every element of a node's results is one of its operands'.
pub(crate) fn is_move(op: &Op) -> bool {
    matches!(
        op,
        Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Split(_) | Op::Concat(_)
    )
}

struct Chains<'a> {
    model: &'a Model,
    users: Users,
    block: Option<i64>,
    /// Names of nodes whose results stay plain.
    plain: &'a [String],
    /// Nodes that may be part of a chain.
    moves: HashSet<NodeId>,
    /// The groups of the nodes that have any.
    groups: HashMap<NodeId, &'a Group>,
    /// Values in blocks, and values that somebody reads in blocks.
    in_blocks: HashSet<ValueId>,
    wanted: HashSet<ValueId>,
    /// Nodes that a chain was looked for that ends with them.
    decided: HashSet<NodeId>,
    /// What the last nodes of chains read through.
    ended: HashMap<NodeId, Moves>,
}

impl<'a> Chains<'a> {
    fn of(
        model: &'a Model,
        groups: &'a [Group],
        choices: &[Choice],
        block: Option<i64>,
    ) -> Chains<'a> {
        let users = model.users();
        let candidate = |n: NodeId| {
            let node = &model[n];
            let folded = node.outputs.iter().any(|v| is_folded(model, &users, *v));
            let empty = |v: &ValueId| model[*v].ty().is_empty();
            let all = node.inputs.iter().flatten().chain(&node.outputs);
            is_move(&node.op) && !folded && !all.into_iter().any(empty)
        };
        let moves = model.nodes().map(|(n, _)| n).filter(|n| candidate(*n));
        let moves = moves.collect();
        let pairs = || groups.iter().zip(choices);
        let blocked = |l: Layout| l.block().is_some();
        let in_blocks = pairs().filter(|(_, c)| blocked(c.output));
        let in_blocks = in_blocks.flat_map(|(g, _)| g.outputs(model)).collect();
        let wanted = pairs().flat_map(|(_, c)| &c.reads);
        let wanted = wanted.filter(|(_, l)| blocked(**l)).map(|(v, _)| *v);
        Chains {
            model,
            block,
            plain: &[],
            moves,
            groups: groups.iter().map(|g| (g.anchor, g)).collect(),
            in_blocks,
            wanted: wanted.collect(),
            decided: HashSet::new(),
            ended: HashMap::new(),
            users,
        }
    }

    /// Whether only other moves read a node's results, and no element more often than
    /// once.
    fn is_inner(&self, n: NodeId) -> bool {
        if self.groups.get(&n).is_some_and(|g| !g.chain.is_empty()) {
            return false;
        }
        let outputs = &self.model[n].outputs;
        let elements = |v: ValueId| self.model[v].ty().len();
        let mut read = 0;
        for v in outputs {
            for (user, _) in self.users.of(*v) {
                if !self.moves.contains(user) {
                    return false;
                }
                read += match &self.model[*user].op {
                    Op::Slice(_) => elements(self.model[*user].output()),
                    _ => elements(*v),
                };
            }
        }
        let unread = |v: &ValueId| self.users.is_output(*v) || self.users.of(*v).is_empty();
        !outputs.iter().any(unread) && read <= outputs.iter().map(|v| elements(*v)).sum()
    }

    /// The nodes that all readers read through.
    fn without_kernels(&self) -> HashSet<NodeId> {
        let mut without: HashSet<NodeId> = HashSet::new();
        let inner = self.model.nodes().rev().map(|(n, _)| n);
        for n in inner.filter(|n| self.ended.values().any(|m| m.nodes.contains(n))) {
            let users = self.model[n].outputs.iter().flat_map(|v| self.users.of(*v));
            // A chain reads through a node also where the node has a kernel, or is a view, for
            // others; which then reads what its own chain does not.
            let through = |user: &NodeId| {
                let alive = self
                    .ended
                    .iter()
                    .filter(|(last, _)| !without.contains(last));
                let mut chains = alive.filter(|(_, moves)| moves.nodes.contains(user));
                let own = self.ended.get(user).is_some_and(|m| m.nodes.contains(&n));
                chains.all(|(_, m)| m.nodes.contains(&n)) && (own || without.contains(user))
            };
            if users.into_iter().all(|(user, _)| through(user)) {
                without.insert(n);
            }
        }
        without
    }

    /// What a node's kernel writes.
    fn written(&self, n: NodeId) -> Vec<ValueId> {
        match self.groups.get(&n) {
            Some(group) => group.outputs(self.model),
            None => self.model[n].outputs.clone(),
        }
    }

    fn reads(&self, n: NodeId) -> impl Iterator<Item = ValueId> {
        self.model[n].inputs.iter().flatten().copied()
    }

    /// The nodes before `last` that a chain may have, as long as `goes_on` from a node to
    /// one that it reads; none if they are too many.
    fn before(&self, last: NodeId, goes_on: &dyn Fn(NodeId, NodeId) -> bool) -> Vec<NodeId> {
        let (mut found, mut open) = (Vec::new(), vec![(last, 1)]);
        let mut elements = 0;
        while let Some((n, length)) = open.pop() {
            for v in self.reads(n) {
                let source = self.model.producer(v).map(|(source, _)| source);
                let inner = |s: &NodeId| self.moves.contains(s) && self.is_inner(*s);
                match source.filter(inner) {
                    Some(source) if length < LONGEST && goes_on(n, source) => {
                        found.push(source);
                        open.push((source, length + 1));
                    }
                    _ => elements += 1,
                }
            }
            if elements > MOST_ELEMENTS {
                return Vec::new();
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Decides on the chains that end with what a chain leaves over.
    fn end_before(&mut self, last: NodeId, nodes: &[NodeId]) {
        for n in nodes.iter().copied().chain([last]) {
            for v in self.reads(n).collect::<Vec<_>>() {
                let source = self.model.producer(v).map(|(source, _)| source);
                let left = source.filter(|s| self.moves.contains(s) && !nodes.contains(s));
                left.into_iter().for_each(|s| self.end(s));
            }
        }
    }

    /// Decides on the chain that ends with a node, and on those that it leaves over.
    fn end(&mut self, last: NodeId) {
        if !self.decided.insert(last) {
            return;
        }
        let layout = self
            .block
            .map_or(Layout::Plain, |block| Layout::Blocked { block });
        let views =
            |n: NodeId| self.reads(n).all(|v| is_image(self.model, v)) && self.is_view(n, layout);
        let nodes = self.before(last, &|_, n| !views(n));
        // What is too long is cut: what is before may then be in blocks.
        self.end_before(last, &nodes);
        if self.shuffles_blocks(last, &nodes) {
            self.in_blocks.extend(self.written(last));
            let blocked = true;
            self.ended.insert(last, Moves { nodes, blocked });
            return;
        }
        // A reshape at the end costs nothing by itself.
        let rows = |reader: NodeId, n: NodeId| self.keeps_rows(reader) && self.keeps_rows(n);
        let nodes = match self.is_reshape(last) {
            true => Vec::new(),
            false => self.before(last, &rows),
        };
        let moves = nodes.iter().any(|n| !self.is_reshape(*n));
        let nodes = if moves { nodes } else { Vec::new() };
        self.end_before(last, &nodes);
        if !nodes.is_empty() {
            let blocked = false;
            self.ended.insert(last, Moves { nodes, blocked });
        }
    }

    fn is_reshape(&self, n: NodeId) -> bool {
        matches!(self.model[n].op, Op::Reshape(_))
    }

    /// Whether a node leaves rows of some elements together.
    fn keeps_rows(&self, n: NodeId) -> bool {
        let node = &self.model[n];
        let result = self.model[node.outputs[0]].shape();
        let innermost = result.len().checked_sub(1);
        let Some(innermost) = innermost.filter(|d| result[*d] >= FEWEST_IN_A_ROW) else {
            return false;
        };
        match &node.op {
            Op::Transpose(t) => t.perm[innermost] == innermost,
            Op::Slice(s) => s.steps[innermost] == 1,
            Op::Concat(c) => c.axis != innermost && !self.is_view(n, Layout::Plain),
            _ => true,
        }
    }

    /// Whether a node costs nothing in a layout: its operands are written side by side as
    /// its result, or its results are read where the operand lies.
    fn is_view(&self, n: NodeId, layout: Layout) -> bool {
        let node = &self.model[n];
        let shape = |v: &ValueId| self.model[*v].shape();
        let dtype = self.model[node.outputs[0]].dtype();
        match &node.op {
            Op::Concat(c) => {
                let parts: Vec<ValueId> = self.reads(n).collect();
                let shapes: Vec<_> = parts.iter().map(shape).collect();
                let apart = |v: &ValueId| match self.model.producer(*v) {
                    Some((n, _)) => !is_move(&self.model[n].op) || self.is_view(n, layout),
                    None => false,
                };
                joined(c.axis, layout, &shapes, dtype).is_some() && parts.iter().all(apart)
            }
            Op::Split(_) => {
                let whole = self.reads(n).next();
                whole.is_some_and(|v| parts(&node.op, layout, shape(&v), dtype).is_some())
            }
            _ => false,
        }
    }

    /// Whether a chain, some result of which is read in blocks, makes vectors of channels
    /// of few vectors of what it reads, which is in blocks.
    fn shuffles_blocks(&self, last: NodeId, nodes: &[NodeId]) -> bool {
        let Some(block) = self.block else {
            return false;
        };
        let outputs = &self.model[last].outputs;
        let wanted = self.written(last).iter().any(|v| self.wanted.contains(v));
        let group = self.groups.get(&last);
        let fits = group.is_none_or(|g| g.nodes().all(|n| fits_blocks(self.model, n)));
        let fits = fits && !self.plain.contains(&self.model[last].name);
        let rank = self.model[outputs[0]].ty().rank();
        let leaf = |v: &ValueId| {
            let inner = self
                .model
                .producer(*v)
                .is_some_and(|(n, _)| nodes.contains(&n));
            inner || self.in_blocks.contains(v) && self.model[*v].ty().rank() == rank
        };
        let chain = || nodes.iter().copied().chain([last]);
        let blocked = chain().all(|n| self.reads(n).all(|v| leaf(&v)));
        let images = outputs.iter().all(|v| is_image(self.model, *v));
        // A reshape alone moves nothing.
        let moves = chain().any(|n| !self.is_reshape(n));
        let whole = |v: &ValueId| self.few_blocks(*v, last, nodes, block as usize);
        wanted && fits && images && blocked && moves && outputs.iter().all(whole)
    }

    /// Whether the lanes of every block of `v`, at the first and the last pixel and one
    /// beside the first, are in few blocks of one pixel.
    fn few_blocks(&self, v: ValueId, last: NodeId, nodes: &[NodeId], block: usize) -> bool {
        let shape = self.model[v].shape();
        let second: Vec<usize> = shape.iter().map(|n| 1.min(n - 1)).collect();
        let end: Vec<usize> = shape.iter().map(|n| n - 1).collect();
        let pixels = [vec![0; shape.len()], second, end];
        let channels = shape[1];
        let all_blocks = 0..blocks(channels as i64, block as i64) as usize;
        all_blocks.into_iter().all(|co| {
            pixels.iter().all(|pixel| {
                let mut sources: HashMap<ValueId, HashSet<usize>> = HashMap::new();
                let mut places = HashSet::new();
                for c in co * block..channels.min((co + 1) * block) {
                    let mut at = pixel.clone();
                    at[1] = c;
                    let (leaf, mut from) = self.source(v, at, last, nodes);
                    sources.entry(leaf).or_default().insert(from[1] / block);
                    from[1] = 0;
                    places.insert(from);
                }
                places.len() == 1 && sources.values().all(|b| b.len() <= MOST_BLOCKS)
            })
        })
    }

    /// The element that a chain moves to an index of `v`: of which value, and where.
    fn source(
        &self,
        mut v: ValueId,
        mut at: Vec<usize>,
        last: NodeId,
        nodes: &[NodeId],
    ) -> (ValueId, Vec<usize>) {
        while let Some((n, output)) = self.model.producer(v)
            && (n == last || nodes.contains(&n))
        {
            (v, at) = moved_from(self.model, n, output, &at);
        }
        (v, at)
    }
}

/// The operand, and the index of it, that a node moves to an index of one of its results.
fn moved_from(model: &Model, n: NodeId, output: usize, at: &[usize]) -> (ValueId, Vec<usize>) {
    let node = &model[n];
    let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    let mut index = at.to_vec();
    let mut operand = 0;
    match &node.op {
        Op::Transpose(t) => t.perm.iter().zip(at).for_each(|(d, i)| index[*d] = *i),
        Op::Slice(s) => index = sliced_from(s, at),
        Op::Split(s) => index[s.axis] += s.sizes[..output].iter().sum::<usize>(),
        Op::Concat(c) => {
            while index[c.axis] >= model[operands[operand]].shape()[c.axis] {
                index[c.axis] -= model[operands[operand]].shape()[c.axis];
                operand += 1;
            }
        }
        _ => {
            let strides = tensor::row_major_strides(model[node.output()].shape());
            let mut element: usize = at.iter().zip(&strides).map(|(i, s)| i * s).sum();
            let source = tensor::row_major_strides(model[operands[0]].shape());
            index = Vec::new();
            for s in source {
                index.push(element / s);
                element %= s;
            }
        }
    }
    (operands[operand], index)
}

fn sliced_from(s: &Slice, at: &[usize]) -> Vec<usize> {
    let axis = |(d, i): (usize, &usize)| {
        let i = s.starts[d] as i64 + *i as i64 * s.steps[d];
        usize::try_from(i).unwrap_or(0)
    };
    at.iter().enumerate().map(axis).collect()
}
