//! What some iterations do to the first level, each line once.
//!
//! A line that is used again soon is still there: as long as the lines in use have room in their sets, only the first
//! use of each can miss, and only the last ones decide which line leaves next. Where they have no more room, a new
//! [`Window`] begins. The rest of the uses are counted as hits.

use crate::cache::{Access, Caches};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are few integers, which nobody chooses to collide.
pub(super) type Quick<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;

/// Integers, each mixed with those before.
#[derive(Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words
            .iter()
            .for_each(|w| self.write_u64(u64::from_ne_bytes(*w)));
        rest.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        // An odd factor whose bits look random: 2^64 over the golden ratio.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_i64(&mut self, word: i64) {
        self.write_u64(word as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// The lines that some iterations use, relative to bases that move by whole lines.
#[derive(Debug, Default)]
pub(super) struct Plan {
    lines: Vec<Line>,
    windows: Vec<Window>,
}

/// The uses of a line in a window.
#[derive(Clone, Copy, Debug)]
struct Line {
    base: u32,
    /// How many lines are used last after it.
    last: u32,
    /// From the line of the base on.
    at: i64,
    /// The first one.
    access: Access,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    lines: u32,
    /// Uses beside the first ones.
    reads: u64,
    writes: u64,
}

impl Plan {
    /// Makes the accesses. `lines` are those of the bases.
    pub(super) fn run(&self, lines: &[i64], caches: &mut Caches) {
        let mut rest = &self.lines[..];
        for window in &self.windows {
            let (now, later) = rest.split_at(window.lines as usize);
            caches.pass(window.lines);
            for line in now {
                let at = lines[line.base as usize] + line.at;
                caches.first_use(at as u64, line.last, line.access);
            }
            caches.count_hits(window.reads, Access::Read);
            caches.count_hits(window.writes, Access::Write);
            rest = later;
        }
    }
}

/// A plan that is made.
pub(super) struct Planner {
    made: Plan,
    sets: u64,
    ways: usize,
    window: Window,
    /// Lines of the window by base and place: which they are, and their last use.
    known: Quick<(u32, i64), (usize, usize)>,
    /// How many lines of a base are in each set, and in the fullest one. Where the sets of other bases lie is not known.
    in_sets: Quick<(u32, u64), usize>,
    fullest: Quick<u32, usize>,
    uses: usize,
}

impl Planner {
    pub(super) fn new(caches: &Caches) -> Planner {
        let (sets, ways) = caches.kept();
        Planner {
            made: Plan::default(),
            sets,
            ways,
            window: Window::default(),
            known: Quick::default(),
            in_sets: Quick::default(),
            fullest: Quick::default(),
            uses: 0,
        }
    }

    /// A use of the line that lies so far from the line of the base.
    pub(super) fn touch(&mut self, base: u32, at: i64, access: Access) {
        self.uses += 1;
        if let Some((_, last)) = self.known.get_mut(&(base, at)) {
            *last = self.uses;
            match access {
                Access::Write => self.window.writes += 1,
                Access::Read | Access::Fetch => self.window.reads += 1,
            }
            return;
        }
        if !self.has_room(base, at) {
            self.end_window();
            self.has_room(base, at);
        }
        self.known
            .insert((base, at), (self.made.lines.len(), self.uses));
        self.window.lines += 1;
        self.made.lines.push(Line {
            base,
            last: 0,
            at,
            access,
        });
    }

    /// Takes a place for a line; whether the fullest sets of all bases have room in one.
    fn has_room(&mut self, base: u32, at: i64) -> bool {
        // A base moves all its lines by as many sets.
        let set = at.rem_euclid(self.sets as i64) as u64;
        let lines = self.in_sets.entry((base, set)).or_default();
        *lines += 1;
        let fullest = self.fullest.entry(base).or_default();
        *fullest = (*fullest).max(*lines);
        self.fullest.values().sum::<usize>() <= self.ways
    }

    fn end_window(&mut self) {
        let mut last: Vec<(usize, usize)> = self.known.drain().map(|(_, l)| l).collect();
        last.sort_unstable_by_key(|(_, last)| std::cmp::Reverse(*last));
        for (rank, (line, _)) in (0..).zip(last) {
            self.made.lines[line].last = rank;
        }
        self.made.windows.push(std::mem::take(&mut self.window));
        self.in_sets.clear();
        self.fullest.clear();
    }

    pub(super) fn end(mut self) -> Plan {
        if self.window.lines > 0 {
            self.end_window();
        }
        self.made
    }
}
