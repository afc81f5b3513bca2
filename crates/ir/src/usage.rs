//! Who accesses a program's buffers, and where the memory of each is.

use crate::program::{Block, BlockId, BufferId, IterKind, LoopId, Node, Program};

/// The accesses to one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks that write it, in execution order.
    pub producers: Vec<BlockId>,
    /// Blocks that load it (accumulator read-back aside), in execution order.
    pub consumers: Vec<BlockId>,
    /// The deepest loop that encloses every access, outside those over which a
    /// block reduces into it; `None` for the root. An intermediate is allocated
    /// there: its contents live for one iteration of that loop and are private
    /// to it.
    pub site: Option<LoopId>,
}

impl Program {
    /// The accesses to every buffer of the arena, by its index.
    ///
    /// One pass over the body: whoever asks about several buffers asks here.
    pub fn usage(&self) -> Vec<Usage> {
        let mut all = vec![Usage::default(); self.buffer_ids().count()];
        let mut common: Vec<Option<Vec<LoopId>>> = vec![None; all.len()];
        self.walk(&self.body, &mut |n, path| {
            let Node::Block(b) = n else { return };
            let block = self.block(b);
            let written = block.written();
            let read = block.reads();
            for buffer in &written {
                all[buffer.index()].producers.push(b);
            }
            for buffer in &read {
                all[buffer.index()].consumers.push(b);
            }
            for buffer in &read {
                if !written.contains(buffer) {
                    share(&mut common[buffer.index()], path);
                }
            }
            if !written.is_empty() {
                // Matters where nothing reads what is reduced: else readers are outside.
                let end = path.iter().position(|l| self.carries_over(block, *l));
                for buffer in &written {
                    share(
                        &mut common[buffer.index()],
                        &path[..end.unwrap_or(path.len())],
                    );
                }
            }
        });
        for (usage, path) in all.iter_mut().zip(common) {
            usage.site = path.and_then(|p| p.last().copied());
        }
        all
    }

    /// Whether what a block wrote in one iteration of a loop is needed in another one.
    fn carries_over(&self, block: &Block, l: LoopId) -> bool {
        let var = self.loop_(l).var;
        let mut iters = block.iters.iter().filter(|i| i.kind != IterKind::Spatial);
        iters.any(|i| i.binding.uses_var(var))
    }

    /// Blocks that write a buffer, in execution order.
    pub fn producers(&self, buffer: BufferId) -> Vec<BlockId> {
        let blocks = self.block_ids().into_iter();
        blocks
            .filter(|b| self.block(*b).writes_to(buffer))
            .collect()
    }

    /// Blocks that load a buffer (accumulator read-back aside), in execution order.
    pub fn consumers(&self, buffer: BufferId) -> Vec<BlockId> {
        let blocks = self.block_ids().into_iter();
        blocks
            .filter(|b| self.block(*b).loads_from(buffer))
            .collect()
    }

    /// Buffers that the body or the parameter list mentions, in arena order.
    pub fn live_buffers(&self) -> Vec<BufferId> {
        let mut live = vec![false; self.buffer_ids().count()];
        for p in &self.params {
            live[p.index()] = true;
        }
        for b in self.block_ids() {
            let block = self.block(b);
            for b in block.written().into_iter().chain(block.reads()) {
                live[b.index()] = true;
            }
        }
        self.buffer_ids().filter(|b| live[b.index()]).collect()
    }
}

impl Block {
    /// Distinct buffers loaded, in order of first appearance.
    pub fn reads(&self) -> Vec<BufferId> {
        let mut out = Vec::new();
        for e in self.statement() {
            e.visit_loads(&mut |b, _| {
                if !out.contains(&b) {
                    out.push(b);
                }
            });
        }
        out
    }

    pub fn loads_from(&self, buffer: BufferId) -> bool {
        let mut found = false;
        for e in self.statement() {
            e.visit_loads(&mut |b, _| found |= b == buffer);
        }
        found
    }

    /// Distinct buffers written, in order of first appearance.
    pub fn written(&self) -> Vec<BufferId> {
        let mut out = Vec::new();
        for w in &self.writes {
            if !out.contains(&w.buffer) {
                out.push(w.buffer);
            }
        }
        out
    }

    pub fn writes_to(&self, buffer: BufferId) -> bool {
        self.writes.iter().any(|w| w.buffer == buffer)
    }

    /// Every index and value of the statement.
    pub(crate) fn statement(&self) -> impl Iterator<Item = &crate::Expr> {
        self.writes
            .iter()
            .flat_map(|w| w.indices.iter().chain([&w.value]))
    }
}

/// Shortens `common` to the leading loops that it shares with `path`.
fn share(common: &mut Option<Vec<LoopId>>, path: &[LoopId]) {
    match common {
        None => *common = Some(path.to_vec()),
        Some(c) => {
            let same = c.iter().zip(path).take_while(|(a, b)| a == b).count();
            c.truncate(same);
        }
    }
}
