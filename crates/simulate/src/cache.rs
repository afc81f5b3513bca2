//! Caches: which accesses of a program find their lines.
//!
//! A cache has sets of lines, and each set replaces the line that was used least recently. An access
//! looks for its line in the first level, and in each next level until one has it; every level that
//! did not have the line takes it. A write takes its line like a read (write-allocate). Lines that are
//! written back are not counted. An access that crosses the end of a line is one access to each line.

use serde::{Deserialize, Serialize};
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

/// A cache whose contents change with each access.
#[derive(Clone, Debug)]
struct Level {
    /// Lines of each set, the one used last first. [`EMPTY`] ones come last.
    lines: Vec<u64>,
    sets: u64,
    ways: usize,
    counts: LevelCounts,
}

/// Lines are kept with 1 added, so that memory of a large level that is never touched is never written.
const EMPTY: u64 = 0;

impl Level {
    fn new(g: Geometry) -> Level {
        Level {
            lines: vec![EMPTY; (g.sets * g.ways) as usize],
            sets: g.sets.max(1),
            ways: g.ways as usize,
            counts: LevelCounts::default(),
        }
    }

    fn set(&mut self, line: u64) -> &mut [u64] {
        let set = match self.sets.is_power_of_two() {
            true => line & (self.sets - 1),
            false => line % self.sets,
        };
        let from = set as usize * self.ways;
        &mut self.lines[from..from + self.ways]
    }

    /// Whether the line is there; if it is not, it comes, and the line that left for it is given.
    #[inline]
    fn touch(&mut self, line: u64, access: Access) -> Result<(), Option<u64>> {
        let set = self.set(line);
        // Lines before the one that is found go one place back.
        let mut carried = line + 1;
        let mut found = false;
        for place in set {
            std::mem::swap(place, &mut carried);
            if carried == line + 1 {
                found = true;
                break;
            }
        }
        let of = match access {
            Access::Write => &mut self.counts.write,
            Access::Read | Access::Fetch => &mut self.counts.read,
        };
        if found {
            of.hits += 1;
            return Ok(());
        }
        of.misses += 1;
        let left = (carried != EMPTY).then(|| carried - 1);
        of.replacements += u64::from(left.is_some());
        Err(left)
    }

    fn drop_line(&mut self, line: u64) {
        let set = self.set(line);
        if let Some(at) = set.iter().position(|l| *l == line + 1) {
            set[at..].rotate_left(1);
            set[set.len() - 1] = EMPTY;
        }
    }
}

/// The caches of one core, empty at first.
#[derive(Clone, Debug)]
pub struct Caches {
    l1d: Level,
    l1i: Level,
    shared: Vec<Level>,
    inclusive: bool,
    /// Lines that no level had, since somebody wants to know which were new.
    touched: Option<HashSet<u64>>,
}

impl Caches {
    pub fn new(setting: &CacheSetting) -> Caches {
        Caches {
            l1d: Level::new(setting.l1d),
            l1i: Level::new(setting.l1i),
            shared: setting.shared.iter().copied().map(Level::new).collect(),
            inclusive: setting.inclusive,
            touched: None,
        }
    }

    /// An access to the bytes from `address` on.
    #[inline]
    pub fn access(&mut self, address: u64, bytes: u64, access: Access) {
        let end = address.saturating_add(bytes.max(1) - 1);
        let (first, last) = (address / LINE, end / LINE);
        for line in first..=last {
            self.line(line, access);
        }
    }

    /// An access within the line of this number.
    #[inline]
    pub fn line(&mut self, line: u64, access: Access) {
        let first = match access {
            Access::Fetch => &mut self.l1i,
            Access::Read | Access::Write => &mut self.l1d,
        };
        if first.touch(line, access).is_err() {
            self.miss(line, access);
        }
    }

    /// Looks in the levels behind the first.
    fn miss(&mut self, line: u64, access: Access) {
        for at in 0..self.shared.len() {
            match self.shared[at].touch(line, access) {
                Ok(()) => return,
                Err(Some(left)) if self.inclusive => {
                    self.l1d.drop_line(left);
                    self.l1i.drop_line(left);
                    self.shared[..at].iter_mut().for_each(|l| l.drop_line(left));
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

    /// Whether lines that are accessed in turns stay in the first level, wherever they are: so many that one set has
    /// room for them.
    pub(crate) fn keeps(&self, lines: u64) -> bool {
        !self.inclusive && lines <= self.l1d.ways as u64
    }

    /// Misses of data in the first level.
    pub(crate) fn misses_of_data(&self) -> u64 {
        self.l1d.counts.read.misses + self.l1d.counts.write.misses
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
        let levels = std::iter::once(&mut self.l1d).chain(&mut self.shared);
        for (level, counts) in levels.zip(counts.chunks(6)) {
            let hits = |of: &[f64]| Hits {
                hits: of[0].round() as u64,
                misses: of[1].round() as u64,
                replacements: of[2].round() as u64,
            };
            level.counts = LevelCounts {
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
