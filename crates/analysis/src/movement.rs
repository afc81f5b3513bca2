//! Cache lines that flat code moves into a cache (Tuna, Algorithm 2).
//!
//! Loops are visited from the inside. If what one iteration touches fits, a loop
//! moves what all its iterations touch, once. Otherwise each buffer decides: one that
//! stays in the cache between its uses moves what the loop touches of it; another
//! moves as much in every iteration. A buffer stays unless what one iteration touches of
//! it is larger than the cache, or what runs between two uses of it is. The paper counts
//! elements; here a line of any size is counted, and a line of one element gives the paper's
//! numbers.
//!
//! That is one form, of a cache that holds any lines together. The other one knows sets: a line
//! that is used again is still there if fewer lines than the set has ways came into its set
//! meanwhile. Each buffer spreads its lines evenly over the sets that its strides reach, and
//! buffers lie anywhere. So a share of the lines is found again, and the rest is moved again.
//! Example: a column of 64 lines, 4096 bytes apart, reaches one set of a cache of 64 sets and 8 ways.
//! None of it is found again, though it has an eighth of the cache's size.

use crate::footprint::{Access, Ranges, Touched, touched};
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
    /// Lines of a set; none of a cache that holds any lines together, as in the paper.
    pub ways: Option<u64>,
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

    /// Sets of a cache that has some.
    fn sets(&self) -> u64 {
        let set = self
            .cache
            .ways
            .map_or(1, |ways| ways * self.cache.line_bytes);
        (self.cache.bytes / set.max(1)).max(1)
    }

    fn touched(&self, buffer: BufferId, accesses: &[Access], more: &[(VarId, i64)]) -> Touched {
        let info = &self.code.buffers[buffer.index()];
        let element = info.dtype.size() as i64;
        let all = info.elements * element;
        let ranges = self.ranges.with(more);
        let cache = (self.cache.line_bytes as i64, self.sets() as i64);
        touched(accesses, &ranges, element, all, cache)
    }

    fn lines(&self, buffer: BufferId, accesses: &[Access], more: &[(VarId, i64)]) -> f64 {
        self.touched(buffer, accesses, more).lines
    }

    fn footprint(&self, uses: &Uses, more: &[(VarId, i64)]) -> f64 {
        uses.iter()
            .map(|(b, u)| self.lines(*b, &u.accesses, more))
            .sum()
    }

    /// Statements one after the other, run once.
    fn sequence(&mut self, stmts: &[Stmt]) -> Uses {
        // Statements without loops that follow each other are one part.
        let simple = |s: &Stmt| !matches!(s, Stmt::Loop(_) | Stmt::If { .. });
        let groups = stmts.chunk_by(|a, b| simple(a) && simple(b));
        let mut parts: Vec<Uses> = groups.map(|g| self.part(g)).collect();
        if parts.len() == 1 && self.cache.ways.is_some() {
            return parts.remove(0);
        }
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
            let again = parts.iter().filter_map(|p| p.get(&b));
            let again: f64 = again.map(|u| self.lines(b, &u.accesses, &[])).sum::<f64>() - touched;
            let found_again = match self.cache.ways {
                Some(ways) => self.found_again(b, &between(&parts, b), ways),
                None => {
                    let longest = longest_without(&parts, &sizes, b);
                    let all_stays = touched <= self.capacity() && longest <= self.capacity();
                    f64::from(u8::from(all_stays && all[&b].stays))
                }
            };
            let sum = all.entry(b).or_default();
            sum.stays &= found_again > 0.0;
            sum.moved = match self.cache.ways {
                Some(_) => (sum.moved - found_again * again.max(0.0)).max(touched.min(sum.moved)),
                None if sum.stays => touched,
                None => sum.moved,
            };
        }
        all
    }

    /// The share of a buffer's lines that are still there after what other parts touch.
    fn found_again(&self, buffer: BufferId, touched: &Uses, ways: u64) -> f64 {
        let sets = self.sets() as f64;
        // The numbers of lines that come into a set, and how likely they are.
        let mut likely = vec![1.0];
        let mut own = (1.0, 0.0);
        for (b, u) in touched {
            let Touched {
                lines,
                sets: reached,
            } = self.touched(*b, &u.accesses, &[]);
            let density = lines / reached;
            let (least, more) = (density.floor(), density.fract());
            if *b == buffer {
                own = (density.max(1.0).floor(), density.max(1.0).fract());
                continue;
            }
            let here = (reached / sets).min(1.0);
            let mut sum = vec![0.0; likely.len() + least as usize + 1];
            for (n, p) in likely.iter().enumerate() {
                sum[n] += p * (1.0 - here);
                sum[n + least as usize] += p * here * (1.0 - more);
                sum[n + least as usize + 1] += p * here * more;
            }
            sum.truncate(ways as usize + 1);
            likely = sum;
        }
        let within = |own: f64| -> f64 {
            let room = ways as f64 - own;
            match room < 0.0 {
                true => 0.0,
                false => likely.iter().take(room as usize + 1).sum(),
            }
        };
        (1.0 - own.1) * within(own.0) + own.1 * within(own.0 + 1.0)
    }

    /// A loop, a condition, or statements without.
    fn part(&mut self, group: &[Stmt]) -> Uses {
        if let [s @ (Stmt::Loop(_) | Stmt::If { .. })] = group {
            return self.nested(s);
        }
        let mut uses = Uses::new();
        for s in group {
            if let Stmt::Store(s) = s {
                self.store(s, &mut uses);
            }
        }
        let buffers: Vec<BufferId> = uses.keys().copied().collect();
        for b in buffers {
            let moved = self.lines(b, &uses[&b].accesses, &[]);
            uses.entry(b).or_default().moved = moved;
        }
        uses
    }

    fn nested(&mut self, s: &Stmt) -> Uses {
        match s {
            Stmt::Loop(l) => {
                let extent = match l.parallel && !self.cache.shared {
                    true => (l.extent + self.threads - 1) / self.threads,
                    false => l.extent,
                };
                let mut uses = self.repeated(l.var, extent, &l.body);
                if l.parallel && self.cache.shared && self.cache.ways.is_some() {
                    self.add_copies(&mut uses, self.threads.min(extent));
                }
                uses
            }
            Stmt::If {
                then, otherwise, ..
            } => {
                let both: Vec<Stmt> = then.iter().chain(otherwise).cloned().collect();
                self.sequence(&both)
            }
            Stmt::Store(_) | Stmt::Check { .. } | Stmt::Prefetch { .. } => Uses::new(),
        }
    }

    fn repeated(&mut self, var: VarId, extent: i64, body: &[Stmt]) -> Uses {
        // Another loop over the same variable may have been visited before.
        self.ranges.remove(var);
        let mut uses = self.sequence(body);
        let fits = self.footprint(&uses, &[]) <= self.capacity();
        let here = [(var, extent)];
        let n = extent as f64;
        let found: Vec<(BufferId, f64)> = uses
            .iter()
            .map(|(b, u)| {
                let touched = self.lines(*b, &u.accesses, &here);
                let moved = match self.cache.ways {
                    Some(ways) => {
                        let one = self.lines(*b, &u.accesses, &[]);
                        // Lines of one iteration that the one before touched as well.
                        let old = (one - (touched - one) / (n - 1.0).max(1.0)).max(0.0);
                        let lost = 1.0 - self.found_again(*b, &uses, ways);
                        n * (u.moved - one).max(0.0) + touched + (n - 1.0) * lost * old
                    }
                    None if fits || u.stays => touched,
                    None => u.moved * n,
                };
                (*b, moved)
            })
            .collect();
        for (b, moved) in found {
            uses.entry(b).or_default().moved = moved;
        }
        self.ranges.insert(var, extent);
        uses
    }

    /// Of buffers that each worker has a copy of, the lines of all copies.
    fn add_copies(&self, uses: &mut Uses, copies: i64) {
        for (b, u) in uses {
            if matches!(
                self.code.buffers[b.index()].place,
                BufferPlace::WorkerWorkspace(_)
            ) {
                u.moved *= copies as f64;
            }
        }
    }

    fn store(&mut self, s: &Store, uses: &mut Uses) {
        if let Some(lane) = s.lane {
            self.ranges.insert(lane.var, i64::from(lane.lanes));
        }
        let own = [(s.buffer, &s.offset)];
        let loads = s.loads_with_ids().into_iter().map(|(_, b, at)| (b, at));
        for (buffer, offset) in own.into_iter().chain(loads) {
            let place = self.code.buffers[buffer.index()].place;
            if matches!(place, BufferPlace::Register | BufferPlace::Unused) {
                continue;
            }
            let found: &mut Use = uses.entry(buffer).or_default();
            let access = Access::of(offset);
            if !found.accesses.contains(&access) {
                found.accesses.push(access);
            }
            found.stays = true;
        }
    }
}

/// What runs from one use of a buffer to the next: of the longest way, the part that uses it
/// and those that do not.
fn between(parts: &[Uses], buffer: BufferId) -> Uses {
    let with = |range: &[Uses]| {
        let mut all = Uses::new();
        for (b, u) in range.iter().flatten() {
            let sum: &mut Use = all.entry(*b).or_default();
            sum.accesses.extend(u.accesses.iter().cloned());
        }
        all
    };
    let uses: Vec<usize> = (0..parts.len())
        .filter(|i| parts[*i].contains_key(&buffer))
        .collect();
    let longest = uses.windows(2).max_by_key(|w| w[1] - w[0]);
    longest.map_or(Uses::new(), |w| with(&parts[w[0]..w[1]]))
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
