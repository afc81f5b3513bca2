//! How often each block of a function runs: known counts, spread along the
//! edges, since as much leaves a block as enters it.

use crate::graph::Graph;
use std::collections::BTreeMap;

/// What is known of a function before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// How often the function is called.
    pub calls: f64,
    pub blocks: BTreeMap<usize, f64>,
    /// By the blocks that the edge goes from and to.
    pub edges: BTreeMap<(usize, usize), f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Of each block.
    pub counts: Vec<f64>,
    /// Blocks that nothing known decides: what leaves one was divided as evenly as what is known
    /// allows, or the loop that begins with it was taken to run once.
    pub guessed: Vec<usize>,
    /// Blocks of which more or less leaves or enters than is known; by guesses, or since what is
    /// known is wrong.
    pub broken: Vec<usize>,
}

struct Solver<'a> {
    graph: &'a Graph,
    /// Whether a block can be reached.
    reached: Vec<bool>,
    calls: f64,
    blocks: Vec<Option<f64>>,
    edges: BTreeMap<(usize, usize), f64>,
}

/// Counts that differ by less are equal.
const TOLERANCE: f64 = 1e-9;

pub fn flow(graph: &Graph, known: &Known) -> Flow {
    let mut reached = vec![false; graph.blocks.len()];
    graph.order.iter().for_each(|b| reached[*b] = true);
    let mut solver = Solver {
        graph,
        reached,
        calls: known.calls,
        blocks: vec![None; graph.blocks.len()],
        edges: known.edges.clone(),
    };
    for (b, count) in &known.blocks {
        solver.blocks[*b] = Some(*count);
    }
    let mut guessed = Vec::new();
    loop {
        while solver.spread() {}
        match solver.guess() {
            Some(block) => guessed.push(block),
            None => break,
        }
    }
    let broken = solver.broken();
    Flow {
        counts: solver.blocks.iter().map(|b| b.unwrap_or(0.0)).collect(),
        guessed,
        broken,
    }
}

impl Solver<'_> {
    fn edges_in(&self, b: usize) -> Vec<(usize, usize)> {
        let previous = self.graph.blocks[b].previous.iter();
        // Blocks that are never reached send nothing.
        let reached = previous.filter(|p| self.reached[**p]);
        reached.map(|p| (*p, b)).collect()
    }

    fn edges_out(&self, b: usize) -> Vec<(usize, usize)> {
        self.graph.blocks[b].next.iter().map(|n| (b, *n)).collect()
    }

    /// What enters a block apart from its edges.
    fn calls(&self, b: usize) -> f64 {
        if b == 0 { self.calls } else { 0.0 }
    }

    /// The sum of the known edges, and the others.
    fn sum(&self, edges: &[(usize, usize)]) -> (f64, Vec<(usize, usize)>) {
        let known: f64 = edges.iter().filter_map(|e| self.edges.get(e)).sum();
        let open = edges.iter().filter(|e| !self.edges.contains_key(e));
        (known, open.copied().collect())
    }

    /// Whether something new became known.
    fn spread(&mut self) -> bool {
        let mut changed = false;
        for b in self.graph.order.clone() {
            let (into, out) = (self.edges_in(b), self.edges_out(b));
            for (edges, extra) in [(into, self.calls(b)), (out, 0.0)] {
                let leaves = edges.is_empty() && b != 0;
                let (known, open) = self.sum(&edges);
                match (self.blocks[b], open.as_slice()) {
                    (None, []) if !leaves => self.blocks[b] = Some(known + extra),
                    (Some(count), [edge]) => {
                        self.edges.insert(*edge, (count - known - extra).max(0.0));
                    }
                    _ => continue,
                }
                changed = true;
            }
        }
        changed
    }

    /// How much may still enter a block.
    fn capacity(&self, b: usize) -> f64 {
        let known = self.sum(&self.edges_in(b)).0 + self.calls(b);
        self.blocks[b].map_or(f64::INFINITY, |count| (count - known).max(0.0))
    }

    /// Decides an edge that nothing decides, and says of which block: it gets an even share,
    /// or as much as may enter where it leads.
    fn guess(&mut self) -> Option<usize> {
        let order = &self.graph.order;
        for b in order {
            let (known, open) = self.sum(&self.edges_out(*b));
            let most = |e: &(usize, usize)| self.capacity(e.1);
            let least = open.iter().min_by(|x, y| most(x).total_cmp(&most(y)));
            if let (Some(count), Some(edge)) = (self.blocks[*b], least) {
                let each = (count - known).max(0.0) / open.len() as f64;
                self.edges.insert(*edge, each.min(most(edge)));
                return Some(*b);
            }
        }
        // A loop of which nothing is known: its way back is not taken.
        let unknown = order.iter().find(|b| self.blocks[**b].is_none()).copied()?;
        let (_, open) = self.sum(&self.edges_in(unknown));
        match open.is_empty() {
            true => self.blocks[unknown] = Some(0.0),
            false => self.edges.extend(open.into_iter().map(|e| (e, 0.0))),
        }
        Some(unknown)
    }

    fn broken(&self) -> Vec<usize> {
        let differs = |b: &&usize| {
            let count = self.blocks[**b].unwrap_or(0.0);
            let (into, out) = (self.edges_in(**b), self.edges_out(**b));
            let entering = self.sum(&into).0 + self.calls(**b);
            let leaving = match out.is_empty() {
                true => count,
                false => self.sum(&out).0,
            };
            let far = |x: f64| (x - count).abs() > TOLERANCE * count.max(1.0);
            far(entering) || far(leaving)
        };
        self.graph.order.iter().filter(differs).copied().collect()
    }
}
