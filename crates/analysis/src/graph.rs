//! The control flow of a function: basic blocks, edges and natural loops.

use llvm::{Control, Instruction};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Indices of its instructions.
    pub instructions: Range<usize>,
    /// Blocks that may come next, each once. A block without any leaves the function.
    pub next: Vec<usize>,
    pub previous: Vec<usize>,
}

/// The blocks from which a header comes again without leaving it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineLoop {
    pub header: usize,
    /// Blocks of the loop that go to the header.
    pub latches: Vec<usize>,
    pub blocks: BTreeSet<usize>,
    /// The smallest loop around, as an index into [`Graph::loops`].
    pub parent: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// In the order of the code.
    pub blocks: Vec<Block>,
    /// Blocks that can be reached, each before those that it alone leads to.
    pub order: Vec<usize>,
    /// An outer loop before its inner ones.
    pub loops: Vec<MachineLoop>,
}

impl Graph {
    pub fn of(instructions: &[Instruction]) -> Graph {
        let blocks = blocks(instructions);
        let order = reverse_postorder(&blocks);
        let loops = loops(&blocks, &order);
        Graph {
            blocks,
            order,
            loops,
        }
    }

    /// The smallest loop that a block is in.
    pub fn innermost(&self, block: usize) -> Option<usize> {
        self.loops.iter().rposition(|l| l.blocks.contains(&block))
    }
}

fn blocks(instructions: &[Instruction]) -> Vec<Block> {
    let places = instructions.iter().enumerate();
    let index: BTreeMap<i64, usize> = places.map(|(i, x)| (i64::from(x.offset), i)).collect();
    let target = |i: &Instruction| match i.control {
        Control::Jump(Some(to)) | Control::Branch(Some(to)) => index.get(&to).copied(),
        _ => None,
    };
    let ends = |i: &Instruction| !matches!(i.control, Control::Next | Control::Call);
    let mut starts = BTreeSet::from([0]);
    for (i, x) in instructions.iter().enumerate() {
        starts.extend(target(x));
        if ends(x) {
            starts.insert(i + 1);
        }
    }
    let starts: Vec<usize> = starts
        .into_iter()
        .filter(|s| *s < instructions.len())
        .collect();
    let number: BTreeMap<usize, usize> = starts.iter().enumerate().map(|(n, s)| (*s, n)).collect();
    let mut blocks: Vec<Block> = Vec::new();
    for (n, start) in starts.iter().enumerate() {
        let end = starts.get(n + 1).copied().unwrap_or(instructions.len());
        let last = &instructions[end - 1];
        let after = matches!(
            last.control,
            Control::Next | Control::Call | Control::Branch(_)
        );
        let mut next: Vec<usize> = Vec::new();
        next.extend(target(last).map(|t| number[&t]));
        next.extend(Some(n + 1).filter(|f| after && *f < starts.len() && !next.contains(f)));
        blocks.push(Block {
            instructions: *start..end,
            next,
            previous: vec![],
        });
    }
    for from in 0..blocks.len() {
        for to in blocks[from].next.clone() {
            blocks[to].previous.push(from);
        }
    }
    blocks
}

fn reverse_postorder(blocks: &[Block]) -> Vec<usize> {
    if blocks.is_empty() {
        return vec![];
    }
    let mut seen = BTreeSet::from([0]);
    let mut open = vec![(0, 0)];
    let mut order = Vec::new();
    while let Some((block, edge)) = open.pop() {
        match blocks[block].next.get(edge) {
            None => order.push(block),
            Some(to) => {
                open.push((block, edge + 1));
                if seen.insert(*to) {
                    open.push((*to, 0));
                }
            }
        }
    }
    order.reverse();
    order
}

/// The immediate dominator of every block that can be reached (Cooper, Harvey and Kennedy).
fn dominators(blocks: &[Block], order: &[usize]) -> Vec<Option<usize>> {
    let mut rank = vec![usize::MAX; blocks.len()];
    for (i, b) in order.iter().enumerate() {
        rank[*b] = i;
    }
    let mut dominator: Vec<Option<usize>> = vec![None; blocks.len()];
    let Some(first) = order.first() else {
        return dominator;
    };
    dominator[*first] = Some(*first);
    let mut changed = true;
    while changed {
        changed = false;
        for b in &order[1..] {
            let mut common: Option<usize> = None;
            for p in &blocks[*b].previous {
                if dominator[*p].is_none() {
                    continue;
                }
                let mut other = *p;
                let Some(mut here) = common else {
                    common = Some(other);
                    continue;
                };
                while here != other {
                    if rank[here] > rank[other] {
                        here = dominator[here].unwrap_or(*first);
                    } else {
                        other = dominator[other].unwrap_or(*first);
                    }
                }
                common = Some(here);
            }
            if dominator[*b] != common {
                dominator[*b] = common;
                changed = true;
            }
        }
    }
    dominator
}

fn loops(blocks: &[Block], order: &[usize]) -> Vec<MachineLoop> {
    let dominator = dominators(blocks, order);
    let dominates = |a: usize, b: usize| {
        let mut at = b;
        loop {
            if at == a {
                return true;
            }
            match dominator[at] {
                Some(up) if up != at => at = up,
                _ => return false,
            }
        }
    };
    let mut latches: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for b in order {
        for to in &blocks[*b].next {
            if dominates(*to, *b) {
                latches.entry(*to).or_default().push(*b);
            }
        }
    }
    let mut found: Vec<MachineLoop> = Vec::new();
    for (header, latches) in latches {
        let mut inside = BTreeSet::from([header]);
        let mut open = latches.clone();
        while let Some(b) = open.pop() {
            if inside.insert(b) {
                open.extend(&blocks[b].previous);
            }
        }
        found.push(MachineLoop {
            header,
            latches,
            blocks: inside,
            parent: None,
        });
    }
    found.sort_by_key(|l| (std::cmp::Reverse(l.blocks.len()), l.header));
    for i in 0..found.len() {
        let around = |l: &MachineLoop| l.blocks.contains(&found[i].header);
        found[i].parent = found[..i].iter().rposition(around);
    }
    found
}
