//! How often each block of a function runs: every iteration takes the path that makes the
//! accesses it makes.
//!
//! The blocks of a loop, its inner loops each taken as one, have no cycle. Of all paths through
//! them an iteration takes the one with most of what it does and least of what it does not.
//! Copies of an access that LLVM made in several blocks are thus told apart. Where several paths are as
//! good, nothing decides between them: each is taken as often.

use crate::chains::{Chain, Ways, chain};
use crate::executions::Executions;
use crate::graph::Graph;
use crate::regions::{Alike, Item, Region, What};
use llvm::{Instruction, MachineFunction, RegisterUnit};
use lower::flat::{AccessId, BufferPlace, Code, FlatLoopId, LaneOffsets};
use std::collections::{BTreeSet, HashMap};

/// What is known of a function before.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub code: &'a Code,
    pub executions: &'a Executions,
    pub regions: &'a HashMap<Option<FlatLoopId>, Region>,
    pub graph: &'a Graph,
    pub instructions: &'a MachineFunction,
    /// The flat loop of each machine loop.
    pub ids: &'a [Option<FlatLoopId>],
    /// The parallel loop that the function runs a part of.
    pub parallel: Option<FlatLoopId>,
    pub calls: f64,
}

impl<'a> Known<'a> {
    fn of_block(&self, block: usize) -> &'a [Instruction] {
        &self.instructions.instructions[self.graph.blocks[block].instructions.clone()]
    }
}

/// How often a block runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Runs {
    pub expected: f64,
    /// What is certain, and what is possible.
    pub least: f64,
    pub most: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paths {
    /// Of each block.
    pub runs: Vec<Runs>,
    /// Blocks whose count nothing decides.
    pub guessed: Vec<usize>,
    /// Blocks whose stores or loops are on no path of an iteration that has them, or on the path of
    /// one that does not.
    pub broken: Vec<usize>,
}

/// Counts that differ by less are equal.
const TOLERANCE: f64 = 1e-6;

// What counts for or against a path: an inner loop that begins; a store that is not part of the iteration; a store
// or a load in memory; an instruction that is a part of an access. LLVM never adds stores, may make loads earlier
// than they are asked for, and moves other instructions freely. A store that is part of the iteration may be on
// another path: where LLVM makes one instruction of two, neither's id remains.
const LOOP: i64 = 1 << 44;
const FOREIGN_STORE: i64 = 1 << 28;
const STORE: i64 = 1 << 12;
const LOAD: i64 = 1 << 7;
/// Against a path: a test that goes elsewhere than its part of a condition says.
const TEST: i64 = 1 << 6;
const OTHER: i64 = 1;

pub fn paths(known: Known<'_>) -> Paths {
    let mut out = Counting {
        known,
        runs: vec![Runs::default(); known.graph.blocks.len()],
        broken: BTreeSet::new(),
        certain: true,
    };
    if known.graph.blocks.is_empty() {
        return Paths::default();
    }
    let empty = Region::default();
    let matched = known.parallel.filter(|id| known.ids.contains(&Some(*id)));
    // The body of a parallel loop that is no machine loop is run by each call.
    let outside = match (known.parallel, matched) {
        (Some(id), None) => known.regions.get(&Some(id)),
        (Some(_), Some(_)) => None,
        (None, _) => known.regions.get(&None),
    };
    let alike = match outside {
        Some(region) => region.iterations(known.code, known.executions, known.calls),
        None => once(known.calls),
    };
    let mut top = outside.unwrap_or(&empty).clone();
    top.items.extend(matched.map(Item::certain_loop));
    out.scope(None, &top, &alike);
    let far = |r: &Runs| r.most - r.least > TOLERANCE * r.most.max(1.0);
    for (l, id) in known.ids.iter().enumerate() {
        let header = out.runs[known.graph.loops[l].header];
        out.certain = match id {
            Some(id) => known.executions.is_certain(*id),
            None => !far(&header),
        };
        match id.and_then(|id| known.regions.get(&Some(id))) {
            Some(region) => {
                let alike = region.iterations(known.code, known.executions, known.calls);
                out.scope(Some(l), region, &alike);
            }
            None => out.scope(Some(l), &empty, &once(header.expected)),
        }
    }
    let blocks = known.graph.order.iter().copied();
    Paths {
        guessed: blocks.filter(|b| far(&out.runs[*b])).collect(),
        runs: out.runs,
        broken: out.broken.into_iter().collect(),
    }
}

fn once(times: f64) -> Vec<Alike> {
    vec![Alike::unconditional(times, false)]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Block(usize),
    Loop(usize),
}

#[derive(Clone, Copy, Default)]
struct Ends {
    /// To the header, and out of the loop or function.
    again: bool,
    out: bool,
}

/// A part of what a region does that is in a node.
struct Part {
    item: usize,
    lane: Option<usize>,
    /// One instruction makes the access for all lanes: it is made if any lane is.
    of_any: bool,
    weight: i64,
}

/// The blocks of a loop or function without those of inner loops, which are nodes as well.
struct Scope {
    nodes: Vec<Node>,
    next: Vec<Vec<usize>>,
    ends: Vec<Ends>,
    parts: Vec<Vec<Part>>,
    /// Whether a node has a store in memory of which no access is known.
    unnamed: Vec<bool>,
    chains: Vec<Chain>,
}

/// The best paths to one kind of end.
struct Best {
    score: i64,
    /// Of each node, the share of the best paths that it is on.
    shares: Vec<f64>,
}

struct Counting<'a> {
    known: Known<'a>,
    runs: Vec<Runs>,
    broken: BTreeSet<usize>,
    /// Whether the number of iterations is certain.
    certain: bool,
}

impl Counting<'_> {
    fn scope(&mut self, machine: Option<usize>, region: &Region, alike: &[Alike]) {
        let scope = Scope::of(&self.known, machine, region, alike);
        let nothing = scope.best(region, &Alike::unconditional(0.0, true), |e| e.out);
        for a in alike {
            let ended = scope.best(region, a, |e| e.out);
            let again = scope.best(region, a, |e| e.again);
            let (path, beside) = match (machine.is_some(), a.last) {
                (false, _) => (ended, None),
                (true, false) => (again.or(ended), None),
                // The loop may be left by its header when it comes once more.
                (true, true) => match (ended, again, &nothing) {
                    (Some(e), Some(b), Some(n)) if b.score + n.score > e.score => {
                        (Some(b), Some(n))
                    }
                    (Some(e), ..) => (Some(e), None),
                    (None, b, _) => (b, None),
                },
            };
            let Some(path) = path else {
                continue;
            };
            for (n, node) in scope.nodes.iter().enumerate() {
                let block = match node {
                    Node::Block(b) => *b,
                    Node::Loop(l) if self.known.ids[*l].is_some() => continue,
                    Node::Loop(l) => self.known.graph.loops[*l].header,
                };
                for share in [Some(path.shares[n]), beside.map(|b| b.shares[n])] {
                    self.runs[block].add(share.unwrap_or(0.0), a.times, self.certain);
                }
            }
            self.check(&scope, region, a, &path);
        }
    }

    /// Names blocks whose stores or loops do not fit an iteration and its path.
    fn check(&mut self, scope: &Scope, region: &Region, a: &Alike, path: &Best) {
        let mut found: HashMap<(usize, Option<usize>), (f64, Vec<usize>)> = HashMap::new();
        for (n, parts) in scope.parts.iter().enumerate() {
            for p in parts.iter().filter(|p| p.weight >= STORE) {
                let block = match scope.nodes[n] {
                    Node::Block(b) => b,
                    Node::Loop(l) => self.known.graph.loops[l].header,
                };
                let entry = found.entry((p.item, p.lane)).or_default();
                entry.0 += path.shares[n];
                entry.1.push(block);
            }
        }
        let passes = |n: usize| path.shares[n] > TOLERANCE && scope.unnamed[n];
        let passes_unnamed = (0..scope.nodes.len()).any(passes);
        for ((item, lane), (share, blocks)) in found {
            let item = &region.items[item];
            let may_be_unnamed = passes_unnamed && matches!(item.what, What::Access(_));
            let expected = match lane {
                Some(lane) => item.lane_done(lane, a),
                None => item.done(a).filter(|done| !done || item.lanes() == 0),
            };
            // Two accesses that LLVM made one instruction have the id of one, maybe in two blocks.
            let wrong = expected.is_some_and(|done| match done {
                true => share < 1.0 - TOLERANCE && !may_be_unnamed,
                false => share > TOLERANCE,
            });
            if wrong {
                self.broken.extend(blocks);
            }
        }
    }
}

impl Runs {
    fn add(&mut self, share: f64, times: f64, certain: bool) {
        self.expected += share * times;
        if certain && share > 1.0 - TOLERANCE {
            self.least += times;
        }
        if share > TOLERANCE {
            self.most += times;
        }
    }
}

impl Scope {
    fn of(known: &Known<'_>, machine: Option<usize>, region: &Region, alike: &[Alike]) -> Scope {
        let graph = known.graph;
        let inside = |b: usize| machine.is_none_or(|l| graph.loops[l].blocks.contains(&b));
        let mut nodes = Vec::new();
        let mut index: HashMap<usize, usize> = HashMap::new();
        for b in graph.order.iter().copied().filter(|b| inside(*b)) {
            if graph.innermost(b) == machine {
                index.insert(b, nodes.len());
                nodes.push(Node::Block(b));
            }
            let begins =
                |l: &usize| graph.loops[*l].header == b && graph.loops[*l].parent == machine;
            if let Some(l) = (0..graph.loops.len()).find(begins) {
                graph.loops[l].blocks.iter().for_each(|b| {
                    index.insert(*b, nodes.len());
                });
                nodes.push(Node::Loop(l));
            }
        }
        let header = machine.map(|l| graph.loops[l].header);
        let mut next = Vec::new();
        let mut ends = Vec::new();
        for (n, node) in nodes.iter().enumerate() {
            let targets: Vec<usize> = match node {
                Node::Block(b) => graph.blocks[*b].next.clone(),
                Node::Loop(l) => {
                    let own = &graph.loops[*l].blocks;
                    let all = own.iter().flat_map(|b| &graph.blocks[*b].next);
                    all.copied().filter(|t| !own.contains(t)).collect()
                }
            };
            let mut end = Ends {
                again: false,
                out: targets.is_empty(),
            };
            let mut to = BTreeSet::new();
            for t in targets {
                match index.get(&t) {
                    _ if Some(t) == header => end.again = true,
                    None => end.out = true,
                    Some(t) if *t > n => {
                        to.insert(*t);
                    }
                    Some(_) => {}
                }
            }
            next.push(to.into_iter().collect());
            ends.push(end);
        }
        let parts = parts(known, &nodes, region, alike);
        let unnamed = |i: &Instruction| i.stores && !i.uses_stack && i.of_access.is_none();
        let unnamed = nodes.iter().map(|node| match node {
            Node::Block(b) => known.of_block(*b).iter().any(unnamed),
            Node::Loop(_) => false,
        });
        let mut scope = Scope {
            unnamed: unnamed.collect(),
            nodes,
            next,
            ends,
            parts,
            chains: vec![],
        };
        scope.chains = scope.chains(known, machine, region, alike);
        scope
    }

    fn weight(&self, node: usize, region: &Region, a: &Alike) -> i64 {
        let of = |p: &Part| {
            let item = &region.items[p.item];
            let done = match p.lane {
                Some(lane) => item.lane_done(lane, a),
                None if p.of_any && item.any_lane_done(a) => Some(true),
                None => any_lane(item, a),
            };
            let against = if p.weight == STORE {
                FOREIGN_STORE
            } else {
                p.weight
            };
            done.map_or(0, |done| if done { p.weight } else { -against })
        };
        self.parts[node].iter().map(of).sum()
    }

    /// The chains of tests before what is conditional: a loop, or an access in memory.
    fn chains(
        &self,
        known: &Known<'_>,
        machine: Option<usize>,
        region: &Region,
        alike: &[Alike],
    ) -> Vec<Chain> {
        let mut conditional = Vec::new();
        for (n, own) in self.parts.iter().enumerate() {
            for p in own.iter().filter(|p| p.lane.is_none() && p.weight >= LOAD) {
                let item = &region.items[p.item];
                conditional.extend((item.needs().len() > 1).then_some((n, item)));
            }
        }
        if conditional.is_empty() {
            return vec![];
        }
        let stays = |n: usize| !self.ends[n].again && !self.ends[n].out;
        let is_block = |n: usize| matches!(self.nodes[n], Node::Block(_));
        let ways = Ways::of(&self.next, |n| is_block(n) && stays(n));
        let written = written(known, machine);
        let fixed = |n: usize| match self.nodes[n] {
            Node::Block(b) => machine.is_some() && is_fixed(known.of_block(b), &written),
            Node::Loop(_) => false,
        };
        let mut found: Vec<Chain> = Vec::new();
        for (then, item) in conditional {
            let new = chain(&ways, then, (region, item, alike), fixed);
            found.extend(new.filter(|c| !found.contains(c)));
        }
        found
    }

    /// The best paths from the first node to an end of a kind, if there is any.
    fn best(&self, region: &Region, a: &Alike, ends: impl Fn(&Ends) -> bool) -> Option<Best> {
        let n = self.nodes.len();
        let weights: Vec<i64> = (0..n).map(|i| self.weight(i, region, a)).collect();
        let forbidden: BTreeSet<(usize, usize)> =
            self.chains.iter().flat_map(|c| c.forbidden(a)).collect();
        let against = |from, to| TEST * i64::from(forbidden.contains(&(from, to)));
        // Score and number of the best paths from each node to an end.
        let mut after: Vec<Option<(i64, f64)>> = vec![None; n];
        for i in (0..n).rev() {
            let mut best = ends(&self.ends[i]).then_some((0, 1.0));
            for to in &self.next[i] {
                let to_end = after[*to].map(|(score, ways)| (score - against(i, *to), ways));
                best = better(best, to_end);
            }
            after[i] = best.map(|(score, ways)| (score + weights[i], ways));
        }
        let score = after.first().copied().flatten()?.0;
        let mut shares = vec![0.0; n];
        shares[0] = 1.0;
        for i in 0..n {
            let Some((own, ways)) = after[i].filter(|_| shares[i] > 0.0) else {
                continue;
            };
            for to in &self.next[i] {
                let edge = weights[i] - against(i, *to);
                if let Some((_, w)) = after[*to].filter(|(s, _)| s + edge == own) {
                    shares[*to] += shares[i] * w / ways;
                }
            }
        }
        Some(Best { score, shares })
    }
}

fn better(a: Option<(i64, f64)>, b: Option<(i64, f64)>) -> Option<(i64, f64)> {
    match (a, b) {
        (Some(a), Some(b)) if a.0 == b.0 => Some((a.0, a.1 + b.1)),
        (Some(a), Some(b)) => Some(if a.0 > b.0 { a } else { b }),
        (a, b) => a.or(b),
    }
}

/// Whether any lane makes an access; `None` if some do and others do not.
fn any_lane(item: &Item, a: &Alike) -> Option<bool> {
    if item.lanes() == 0 || item.done(a) != Some(true) {
        return item.done(a);
    }
    let first = item.lane_done(0, a)?;
    let same = (1..item.lanes()).all(|l| item.lane_done(l, a) == Some(first));
    same.then_some(first)
}

/// What an instruction that is a part of an access counts.
fn weight(code: &Code, i: &Instruction, id: AccessId) -> i64 {
    let access = &code.accesses[id as usize];
    // Of values that memory holds, moves to and from the stack are registers saved there.
    let on_stack = code.buffers[access.buffer.index()].place == BufferPlace::Stack;
    match () {
        () if i.uses_stack && !on_stack => OTHER,
        () if access.is_store && i.stores => STORE,
        // Without a register in the address it reads a constant of the code.
        () if !access.is_store && i.loads && i.address.is_some() => LOAD,
        () => OTHER,
    }
}

/// The load that an instruction makes which has the id of its statement's store: arithmetic with an
/// operand in memory loses the load's own. `None` if more than one of the statement's loads may be meant.
/// `named` has the accesses of all instructions that load.
fn folded(
    code: &Code,
    named: &BTreeSet<AccessId>,
    region: &Region,
    i: &Instruction,
    store: usize,
) -> Option<usize> {
    let id_of = |item: &Item| match item.what {
        What::Access(id) => Some(id),
        What::Loop(_) => None,
    };
    let is_store = |id: AccessId| code.accesses[id as usize].is_store;
    if !i.loads || i.stores || i.uses_stack || i.address.is_none() {
        return None;
    }
    id_of(&region.items[store]).filter(|id| is_store(*id))?;
    let after = region.items.iter().enumerate().skip(store + 1);
    let loads = after.map_while(|(n, item)| {
        let id = id_of(item).filter(|id| !is_store(*id))?;
        Some((n, id))
    });
    // Where registers hold the buffer, nothing loads it.
    let in_memory = |id: AccessId| {
        let buffer = code.accesses[id as usize].buffer;
        code.buffers[buffer.index()].place != BufferPlace::Register
    };
    let mut unnamed = loads.filter(|(_, id)| !named.contains(id) && in_memory(*id));
    let (first, _) = unnamed.next()?;
    unnamed.next().is_none().then_some(first)
}

/// What of the region is in each node.
fn parts(known: &Known<'_>, nodes: &[Node], region: &Region, alike: &[Alike]) -> Vec<Vec<Part>> {
    let mut of_loop: HashMap<FlatLoopId, usize> = HashMap::new();
    let mut of_access: HashMap<AccessId, usize> = HashMap::new();
    for (i, item) in region.items.iter().enumerate() {
        match item.what {
            What::Loop(id) => of_loop.insert(id, i),
            What::Access(id) => of_access.insert(id, i),
        };
    }
    let mut parts: Vec<Vec<Part>> = Vec::new();
    let loading = known.instructions.instructions.iter().filter(|i| i.loads);
    let named: BTreeSet<AccessId> = loading.filter_map(|i| i.of_access).collect();
    // Where instructions that access memory are, in order, by access.
    let mut made: HashMap<usize, Vec<usize>> = HashMap::new();
    for (n, node) in nodes.iter().enumerate() {
        let mut own: HashMap<usize, i64> = HashMap::new();
        match node {
            Node::Loop(l) => {
                let item = known.ids[*l].and_then(|id| of_loop.get(&id));
                own.extend(item.map(|i| (*i, LOOP)));
            }
            Node::Block(b) => {
                for i in known.of_block(*b) {
                    let Some((id, item)) =
                        i.of_access.and_then(|id| Some((id, of_access.get(&id)?)))
                    else {
                        continue;
                    };
                    let weight = weight(known.code, i, id);
                    let folded = folded(known.code, &named, region, i, *item);
                    let (item, weight) = folded.map_or((*item, weight), |load| (load, LOAD));
                    if weight > OTHER {
                        made.entry(item).or_default().push(n);
                    }
                    let most = own.entry(item).or_default();
                    *most = weight.max(*most);
                }
            }
        }
        let uniform = |item: usize| match region.items[item].what {
            What::Access(id) => known.code.accesses[id as usize].offsets == LaneOffsets::Uniform,
            What::Loop(_) => false,
        };
        let part = |(item, weight)| Part {
            item,
            lane: None,
            of_any: uniform(item),
            weight,
        };
        parts.push(own.into_iter().map(part).collect());
    }
    for (item, at) in made {
        let lanes = lanes_in_order(known.code, &region.items[item], alike, &at);
        for (n, lane) in at.iter().zip(&lanes) {
            let weight = parts[*n]
                .iter()
                .find(|p| p.item == item)
                .map_or(0, |p| p.weight);
            let lane = Some(*lane);
            if !parts[*n].iter().any(|p| p.item == item && p.lane == lane) {
                parts[*n].push(Part {
                    item,
                    lane,
                    of_any: false,
                    weight,
                });
            }
        }
        if lanes.is_empty() && at.iter().all(|n| *n == at[0]) {
            let own = parts[at[0]].iter_mut();
            own.filter(|p| p.item == item).for_each(|p| p.of_any = true);
        }
        if !lanes.is_empty() {
            parts
                .iter_mut()
                .for_each(|own| own.retain(|p| p.item != item || p.lane.is_some()));
        }
    }
    parts
}

/// The registers that a loop writes.
fn written(known: &Known<'_>, machine: Option<usize>) -> BTreeSet<RegisterUnit> {
    let blocks = machine
        .into_iter()
        .flat_map(|l| &known.graph.loops[l].blocks);
    let instructions = blocks.flat_map(|b| known.of_block(*b));
    instructions
        .flat_map(|i| &i.definitions)
        .map(|d| d.unit)
        .collect()
}

/// Whether nothing that a loop writes decides where its block goes.
fn is_fixed(block: &[Instruction], written: &BTreeSet<RegisterUnit>) -> bool {
    let Some((branch, before)) = block.split_last() else {
        return false;
    };
    let mut read: BTreeSet<RegisterUnit> = branch.uses.iter().map(|u| u.unit).collect();
    for i in before.iter().rev() {
        if !i.definitions.iter().any(|d| read.contains(&d.unit)) {
            continue;
        }
        if i.loads {
            return false;
        }
        i.definitions.iter().for_each(|d| {
            read.remove(&d.unit);
        });
        read.extend(i.uses.iter().map(|u| u.unit));
    }
    read.is_disjoint(written)
}

/// The lane that each of the instructions of an access is of, if they are decided one by one.
/// LLVM decides lanes in order, each in a block of its own, with one instruction or several.
fn lanes_in_order(code: &Code, item: &Item, alike: &[Alike], at: &[usize]) -> Vec<usize> {
    if let What::Access(id) = item.what
        && code.accesses[id as usize].offsets == LaneOffsets::Uniform
    {
        return vec![];
    }
    let blocks: BTreeSet<usize> = at.iter().copied().collect();
    let all: Vec<usize> = (0..item.lanes()).collect();
    if blocks.len() == 1 && some_differ(item, alike) {
        return vec![];
    }
    let possible = |l: &usize| alike.iter().any(|a| item.lane_done(*l, a) != Some(false));
    let possible: Vec<usize> = all.iter().copied().filter(possible).collect();
    let apart = lanes_apart(code, item);
    for lanes in [all, possible, apart].into_iter().filter(|l| !l.is_empty()) {
        if blocks.len() == lanes.len() {
            let rank = |n: &usize| blocks.iter().position(|b| b == n).unwrap_or(0);
            return at.iter().map(|n| lanes[rank(n)]).collect();
        }
        if at.len().is_multiple_of(lanes.len()) && blocks.len() < lanes.len() {
            let each = at.len() / lanes.len();
            return (0..at.len()).map(|i| lanes[i / each]).collect();
        }
    }
    vec![]
}

/// The lane of each element of the two vectors that hold the elements of all lanes, where
/// these lie apart: LLVM decides elements that no lane takes as well. Their lane is none.
fn lanes_apart(code: &Code, item: &Item) -> Vec<usize> {
    let What::Access(id) = item.what else {
        return vec![];
    };
    let LaneOffsets::Pattern(pattern) = &code.accesses[id as usize].offsets else {
        return vec![];
    };
    let (span, n) = (pattern.span(), item.lanes() as i64);
    if n == 0 || span.end - span.start <= n || span.end - span.start > 2 * n {
        return vec![];
    }
    let mut lanes: Vec<usize> = Vec::new();
    for at in (span.start..span.start + n).chain(span.end - n..span.end) {
        let lane = pattern.distances.iter().position(|d| *d == at);
        let new = lane.filter(|lane| !lanes.contains(lane));
        lanes.push(new.unwrap_or(item.lanes()));
    }
    lanes
}

/// Whether lanes that may be made are made by different iterations.
fn some_differ(item: &Item, alike: &[Alike]) -> bool {
    let done = |a: &Alike| {
        (0..item.lanes())
            .filter(|l| item.lane_done(*l, a) == Some(true))
            .count()
    };
    let counts: BTreeSet<usize> = alike.iter().map(done).filter(|n| *n > 0).collect();
    counts.iter().any(|n| *n > 1)
}
