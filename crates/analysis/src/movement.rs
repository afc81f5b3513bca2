//! Cache lines that flat code moves into a cache (Tuna, Algorithm 2).
//!
//! Loops are visited from the inside. If what one iteration touches fits, a loop
//! moves what all its iterations touch, once. Otherwise each buffer decides: one that
//! stays in the cache between its uses moves what the loop touches of it; another
//! moves as much in every iteration. A buffer stays unless what one iteration touches of
//! it is larger than the cache, or what runs between two uses of it is. The paper counts
//! elements; here a line of any size is counted, and a line of one element gives the paper's
//! numbers.

use crate::footprint::{Access, Ranges, lines};
use ir::{BufferId, VarId};
use lower::flat::{BufferPlace, Code, Stmt, Store};
use std::collections::BTreeMap;

/// One level of the memory hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    pub bytes: u64,
    pub line_bytes: u64,
    /// Whether all threads share it; else each has one, and the movement of one is counted.
    pub shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Movement {
    /// Lines that are moved in.
    pub lines: f64,
    /// Lines that are touched at all.
    pub footprint: f64,
}

/// Of one call of the entry with these statements, by `threads` threads.
pub fn movement(code: &Code, stmts: &[Stmt], cache: Cache, threads: u32) -> Movement {
    let mut walk = Walk {
        code,
        cache,
        threads: i64::from(threads.max(1)),
        ranges: Ranges::default(),
    };
    let touched = walk.sequence(stmts);
    Movement {
        lines: touched.values().map(|t| t.moved).sum(),
        footprint: walk.footprint(&touched, &[]),
    }
}

/// What a part of the code does with one buffer.
#[derive(Clone, Debug, Default)]
struct Use {
    accesses: Vec<Access>,
    /// Lines that the part moves.
    moved: f64,
    /// Whether lines are still there when the part runs again.
    stays: bool,
}

type Uses = BTreeMap<BufferId, Use>;

struct Walk<'a> {
    code: &'a Code,
    cache: Cache,
    threads: i64,
    /// Of variables that vary inside of what was visited, with their numbers of values.
    ranges: Ranges,
}

impl Walk<'_> {
    fn capacity(&self) -> f64 {
        (self.cache.bytes / self.cache.line_bytes.max(1)) as f64
    }

    fn lines(&self, buffer: BufferId, accesses: &[Access], more: &[(VarId, i64)]) -> f64 {
        let info = &self.code.buffers[buffer.index()];
        let element = info.dtype.size() as i64;
        let all = info.elements * element;
        let ranges = self.ranges.with(more);
        lines(
            accesses,
            &ranges,
            element,
            all,
            self.cache.line_bytes as i64,
        )
    }

    fn footprint(&self, uses: &Uses, more: &[(VarId, i64)]) -> f64 {
        uses.iter()
            .map(|(b, u)| self.lines(*b, &u.accesses, more))
            .sum()
    }

    /// Statements one after the other, run once.
    fn sequence(&mut self, stmts: &[Stmt]) -> Uses {
        let parts: Vec<Uses> = stmts.iter().map(|s| self.statement(s)).collect();
        let mut all = Uses::new();
        for (buffer, part) in parts.iter().flatten() {
            let sum: &mut Use = all.entry(*buffer).or_insert_with(|| Use {
                stays: true,
                ..Use::default()
            });
            sum.accesses.extend(part.accesses.iter().cloned());
            sum.moved += part.moved;
            sum.stays &= part.stays;
        }
        let sizes: Vec<f64> = parts.iter().map(|p| self.footprint(p, &[])).collect();
        let buffers: Vec<BufferId> = all.keys().copied().collect();
        for b in buffers {
            let touched = self.lines(b, &all[&b].accesses, &[]);
            let between = longest_without(&parts, &sizes, b);
            let found = all.entry(b).or_default();
            found.stays &= touched <= self.capacity() && between <= self.capacity();
            if found.stays {
                found.moved = touched;
            }
        }
        all
    }

    fn statement(&mut self, s: &Stmt) -> Uses {
        match s {
            Stmt::Loop(l) => {
                let extent = match l.parallel && !self.cache.shared {
                    true => (l.extent + self.threads - 1) / self.threads,
                    false => l.extent,
                };
                self.repeated(l.var, extent, &l.body)
            }
            Stmt::If {
                then, otherwise, ..
            } => {
                let both: Vec<Stmt> = then.iter().chain(otherwise).cloned().collect();
                self.sequence(&both)
            }
            Stmt::Store(s) => self.store(s),
            Stmt::Check { .. } | Stmt::Prefetch { .. } => Uses::new(),
        }
    }

    fn repeated(&mut self, var: VarId, extent: i64, body: &[Stmt]) -> Uses {
        // Another loop over the same variable may have been visited before.
        self.ranges.remove(var);
        let mut uses = self.sequence(body);
        let fits = self.footprint(&uses, &[]) <= self.capacity();
        let here = [(var, extent)];
        let buffers: Vec<BufferId> = uses.keys().copied().collect();
        for b in buffers {
            let touched = self.lines(b, &uses[&b].accesses, &here);
            let found = uses.entry(b).or_default();
            found.moved = match fits || found.stays {
                true => touched,
                false => found.moved * extent as f64,
            };
        }
        self.ranges.insert(var, extent);
        uses
    }

    fn store(&mut self, s: &Store) -> Uses {
        if let Some(lane) = s.lane {
            self.ranges.insert(lane.var, i64::from(lane.lanes));
        }
        let mut uses = Uses::new();
        let own = [(s.buffer, &s.offset)];
        let loads = s.loads_with_ids().into_iter().map(|(_, b, at)| (b, at));
        for (buffer, offset) in own.into_iter().chain(loads) {
            let place = self.code.buffers[buffer.index()].place;
            if matches!(place, BufferPlace::Register | BufferPlace::Unused) {
                continue;
            }
            let found: &mut Use = uses.entry(buffer).or_default();
            found.accesses.push(Access::of(offset));
            found.stays = true;
        }
        let buffers: Vec<BufferId> = uses.keys().copied().collect();
        for b in buffers {
            let moved = self.lines(b, &uses[&b].accesses, &[]);
            uses.entry(b).or_default().moved = moved;
        }
        uses
    }
}

/// The largest sum of sizes of consecutive parts that do not touch a buffer.
fn longest_without(parts: &[Uses], sizes: &[f64], buffer: BufferId) -> f64 {
    let (mut longest, mut run) = (0.0, 0.0);
    for (part, size) in parts.iter().zip(sizes) {
        run = match part.contains_key(&buffer) {
            true => 0.0,
            false => run + size,
        };
        longest = f64::max(longest, run);
    }
    longest
}
