//! Caches: which accesses of a program find their lines.
//!
//! A cache has sets of lines, and each set replaces the line that was used least recently. An access
//! looks for its line in the first level, and in each next level until one has it; every level that
//! did not have the line takes it. A write takes its line like a read (write-allocate). Lines that are
//! written back are not counted. An access that crosses the end of a line is one access to each line.

mod sets;

use serde::{Deserialize, Serialize};
use sets::{EMPTY, First, Sets};
use std::collections::HashSet;

/// Bytes of a line, in every level.
pub const LINE: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    pub sets: u64,
    pub ways: u64,
}

impl Geometry {
    pub const fn bytes(self) -> u64 {
        self.sets * self.ways * LINE
    }
}

/// The caches of one core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSetting {
    pub l1d: Geometry,
    pub l1i: Geometry,
    /// From the second level to the last one; they hold data and code.
    pub shared: Vec<Geometry>,
    /// Whether a line that a level replaces also leaves the levels before it.
    pub inclusive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Fetch,
}

/// Of the accesses of one kind to one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hits {
    pub hits: u64,
    pub misses: u64,
    /// Misses that took the place of another line.
    pub replacements: u64,
}

impl Hits {
    pub fn accesses(self) -> u64 {
        self.hits + self.misses
    }
}

/// Of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelCounts {
    /// Reads of data, and fetches of code.
    pub read: Hits,
    pub write: Hits,
}

/// Lines by numbers of 32 bits, so that sets are small. [`EMPTY`] is for none.
#[derive(Clone, Debug)]
struct Numbers {
    /// Blocks of [`BLOCK`] lines behind the near ones, in the order of their first access.
    far: Vec<u64>,
    last: (u64, u32),
}

/// Lines of 256 MiB.
const BLOCK: u64 = 1 << 22;
/// Blocks from address 0 on. As many others are numbered when they are touched first.
const NEAR: u64 = 512;

impl Numbers {
    #[inline(always)]
    fn of(&mut self, line: u64) -> u32 {
        match line < NEAR * BLOCK {
            true => line as u32 + 1,
            false => self.of_far(line),
        }
    }

    #[cold]
    fn of_far(&mut self, line: u64) -> u32 {
        let block = line / BLOCK;
        if self.last.0 != block {
            let known = self.far.iter().position(|b| *b == block);
            let at = known.unwrap_or_else(|| {
                self.far.push(block);
                self.far.len() - 1
            });
            let most = NEAR as usize - 1;
            assert!(at < most, "a program of more than {most} blocks of 256 MiB");
            self.last = (block, (NEAR as u32 + at as u32) * BLOCK as u32);
        }
        self.last.1 + (line % BLOCK) as u32 + 1
    }

    fn line(&self, number: u32) -> u64 {
        let at = u64::from(number - 1);
        match (at / BLOCK).checked_sub(NEAR) {
            None => at,
            Some(far) => self.far[far as usize] * BLOCK + at % BLOCK,
        }
    }
}

/// A cache whose contents change with each access. Only those behind the first level may be other than sets.
#[derive(Clone, Debug)]
struct Level<L> {
    lines: L,
    counts: LevelCounts,
}

impl<L> Level<L> {
    fn new(lines: L) -> Level<L> {
        Level {
            lines,
            counts: LevelCounts::default(),
        }
    }
}

#[derive(Clone, Debug)]
enum Lines {
    Sets(Sets),
    /// There is room for all: which of the data are there, a bit each, and which others.
    All(Vec<u64>, HashSet<u64>),
}

impl Lines {
    /// As [`Sets::touch`].
    fn touch(&mut self, line: u64, number: u32) -> Result<(), u32> {
        let is_new = match self {
            Lines::Sets(sets) => return sets.touch(line, number),
            Lines::All(data, others) => match data.get_mut((line / 64) as usize) {
                Some(bits) => {
                    let bit = 1 << (line % 64);
                    let is_new = *bits & bit == 0;
                    *bits |= bit;
                    is_new
                }
                None => others.insert(line),
            },
        };
        if is_new { Err(EMPTY) } else { Ok(()) }
    }

    fn drop_line(&mut self, line: u64, number: u32) {
        match self {
            Lines::Sets(sets) => sets.drop_line(line, number),
            Lines::All(data, others) => match data.get_mut((line / 64) as usize) {
                Some(bits) => *bits &= !(1 << (line % 64)),
                None => {
                    others.remove(&line);
                }
            },
        }
    }
}

impl LevelCounts {
    /// Counts what [`Sets::touch`] found; whether the line was there.
    #[inline(always)]
    fn count(&mut self, found: Result<(), u32>, access: Access) -> bool {
        let of = match access {
            Access::Write => &mut self.write,
            Access::Read | Access::Fetch => &mut self.read,
        };
        match found {
            Ok(()) => of.hits += 1,
            Err(left) => {
                of.misses += 1;
                of.replacements += u64::from(left != EMPTY);
            }
        }
        found.is_ok()
    }
}

/// The caches of one core, empty at first.
#[derive(Clone, Debug)]
pub struct Caches {
    l1d: Level<First>,
    l1i: Level<First>,
    shared: Vec<Level<Lines>>,
    inclusive: bool,
    numbers: Numbers,
    /// Lines that no level had, since somebody wants to know which were new.
    touched: Option<HashSet<u64>>,
}

impl Caches {
    pub fn new(setting: &CacheSetting) -> Caches {
        let sets = |g: Geometry| Level::new(Lines::Sets(Sets::new(g)));
        let shared = setting.shared.iter().copied();
        Caches {
            l1d: Level::new(First::new(setting.l1d)),
            l1i: Level::new(First::new(setting.l1i)),
            shared: shared.map(sets).collect(),
            inclusive: setting.inclusive,
            numbers: Numbers {
                far: vec![],
                last: (u64::MAX, 0),
            },
            touched: None,
        }
    }

    /// Caches for accesses to the first `data` lines, and to other runs of so many lines next to each other. Levels behind
    /// the first that have room for all of them keep no sets: what comes stays.
    pub fn of_lines(setting: &CacheSetting, data: u64, others: &[u64]) -> Caches {
        let mut caches = Caches::new(&CacheSetting {
            shared: vec![],
            ..setting.clone()
        });
        // Lines next to each other are in sets next to each other.
        let each = |sets: u64| {
            [&[data], others]
                .concat()
                .into_iter()
                .map(move |n| n.div_ceil(sets))
        };
        let has_room = |g: &Geometry| each(g.sets.max(1)).sum::<u64>() <= g.ways;
        let level = |g: &Geometry| match has_room(g) {
            true => Lines::All(vec![0; data.div_ceil(64) as usize], HashSet::new()),
            false => Lines::Sets(Sets::new(*g)),
        };
        caches.shared = setting
            .shared
            .iter()
            .map(|g| Level::new(level(g)))
            .collect();
        caches
    }

    /// An access to the bytes from `address` on.
    #[inline(always)]
    pub fn access(&mut self, address: u64, bytes: u64, access: Access) {
        let end = address.saturating_add(bytes.max(1) - 1);
        let (mut line, last) = (address / LINE, end / LINE);
        self.line(line, access);
        while line < last {
            line += 1;
            self.line(line, access);
        }
    }

    /// An access within the line of this number.
    #[inline(always)]
    pub fn line(&mut self, line: u64, access: Access) {
        let number = self.numbers.of(line);
        let first = match access {
            Access::Fetch => &mut self.l1i,
            Access::Read | Access::Write => &mut self.l1d,
        };
        first.lines.pass(1);
        let found = first.lines.touch(line, number, first.lines.now());
        if !first.counts.count(found, access) {
            self.miss(line, number, access);
        }
    }

    /// In how many sets the first level for data keeps how many lines each, whatever becomes of other levels.
    pub(crate) fn kept(&self) -> (u64, usize) {
        match self.inclusive {
            // What another level replaces leaves the first one.
            true => (1, 1),
            false => self.l1d.lines.room(),
        }
    }

    /// The first of several uses of a line of data. The last one will be the use of this number among those that
    /// [`Self::pass`] counts.
    #[inline(always)]
    pub(crate) fn first_use(&mut self, line: u64, last: u32, access: Access) {
        let number = self.numbers.of(line);
        let first = &mut self.l1d;
        let time = first.lines.now() - last;
        let found = first.lines.touch(line, number, time);
        if !first.counts.count(found, access) {
            self.miss(line, number, access);
        }
    }

    /// Last uses of so many lines of data, whose first ones follow.
    pub(crate) fn pass(&mut self, lines: u32) {
        self.l1d.lines.pass(lines);
    }

    /// Looks in the levels behind the first.
    #[inline(never)]
    fn miss(&mut self, line: u64, number: u32, access: Access) {
        for at in 0..self.shared.len() {
            let level = &mut self.shared[at];
            let found = level.lines.touch(line, number);
            level.counts.count(found, access);
            match found {
                Ok(()) => return,
                Err(left) if self.inclusive && left != EMPTY => {
                    let line = self.numbers.line(left);
                    self.l1d.lines.drop_line(line, left);
                    self.l1i.lines.drop_line(line, left);
                    let before = self.shared[..at].iter_mut();
                    before.for_each(|l| l.lines.drop_line(line, left));
                }
                Err(_) => {}
            }
        }
        if let Some(touched) = &mut self.touched {
            touched.insert(line);
        }
    }

    /// Counts the lines that are touched for the first time, from now on.
    pub fn count_new_lines(&mut self) {
        self.touched = Some(HashSet::new());
    }

    /// Lines that were touched since they are counted.
    pub fn new_lines(&self) -> usize {
        self.touched.as_ref().map_or(0, HashSet::len)
    }

    /// Accesses that are known to find their lines in the first level, and to leave it as it is.
    pub fn count_hits(&mut self, hits: u64, access: Access) {
        match access {
            Access::Read => self.l1d.counts.read.hits += hits,
            Access::Write => self.l1d.counts.write.hits += hits,
            Access::Fetch => self.l1i.counts.read.hits += hits,
        }
    }

    /// Fetches that miss in the first level and find their lines in the second one, which replace others.
    pub fn fetch_again(&mut self, lines: u64) {
        let read = &mut self.l1i.counts.read;
        read.misses += lines;
        read.replacements += lines;
        if let Some(second) = self.shared.first_mut() {
            second.counts.read.hits += lines;
        }
    }

    /// Of the data and the code cache of the first level.
    pub fn first(&self) -> [LevelCounts; 2] {
        [self.l1d.counts, self.l1i.counts]
    }

    /// Takes these as the counts of all levels that hold data ([`crate::addresses::EVENTS`]), in place of what was counted.
    pub fn count_data(&mut self, counts: &[f64]) {
        let shared = self.shared.iter_mut().map(|l| &mut l.counts);
        let levels = std::iter::once(&mut self.l1d.counts).chain(shared);
        for (level, counts) in levels.zip(counts.chunks(6)) {
            let hits = |of: &[f64]| Hits {
                hits: of[0].round() as u64,
                misses: of[1].round() as u64,
                replacements: of[2].round() as u64,
            };
            *level = LevelCounts {
                read: hits(&counts[..3]),
                write: hits(&counts[3..]),
            };
        }
    }

    /// Of all levels that hold data, the first one first.
    pub fn data(&self) -> Vec<LevelCounts> {
        let shared = self.shared.iter().map(|l| l.counts);
        std::iter::once(self.l1d.counts).chain(shared).collect()
    }

    /// Of the levels behind the first.
    pub fn shared(&self) -> Vec<LevelCounts> {
        self.shared.iter().map(|l| l.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(inclusive: bool) -> Caches {
        let one = |ways| Geometry { sets: 1, ways };
        Caches::new(&CacheSetting {
            l1d: one(2),
            l1i: one(2),
            shared: vec![one(3)],
            inclusive,
        })
    }

    #[test]
    fn the_line_used_least_recently_leaves() {
        let mut caches = small(false);
        for line in [1, 2, 1, 3, 1, 2] {
            caches.line(line, Access::Read);
        }
        let [data, _] = caches.first();
        // 3 replaced 2, which comes back from the second level.
        let read = Hits {
            hits: 2,
            misses: 4,
            replacements: 2,
        };
        assert_eq!(data.read, read);
        assert_eq!(
            caches.shared()[0].read,
            Hits {
                hits: 1,
                misses: 3,
                replacements: 0
            }
        );
    }

    #[test]
    fn a_line_that_an_inclusive_level_replaces_leaves_the_first_level() {
        for (inclusive, hits) in [(false, 1), (true, 0)] {
            let mut caches = small(inclusive);
            // Code fills the second level, while 1 is used by no one else.
            caches.line(1, Access::Write);
            for line in [2, 3, 4] {
                caches.line(line, Access::Fetch);
            }
            caches.line(1, Access::Write);
            assert_eq!(caches.first()[0].write.hits, hits);
        }
    }

    #[test]
    fn an_access_touches_each_line_that_it_crosses() {
        let mut caches = small(false);
        caches.access(60, 8, Access::Read);
        caches.access(64, 64, Access::Read);
        assert_eq!(
            caches.first()[0].read,
            Hits {
                hits: 1,
                misses: 2,
                replacements: 0
            }
        );
    }
}
