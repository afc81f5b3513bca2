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
//!
//! The code is read once, to a tree of what each part accesses. Caches of one line size are visited
//! together.

use crate::accesses::{Accesses, Extents, Forms, Gathered};
use crate::footprint::{Counter, Size, Touched};
use ir::{BufferId, Expr, VarId};
use lower::flat::{BufferPlace, Code, Stmt, Store};
use std::collections::BTreeMap;
use std::rc::Rc;

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

impl Cache {
    fn capacity(&self) -> f64 {
        (self.bytes / self.line_bytes.max(1)) as f64
    }

    /// Sets of a cache that has some.
    pub fn sets(&self) -> u64 {
        let set = self.ways.map_or(1, |ways| ways * self.line_bytes);
        (self.bytes / set.max(1)).max(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Movement {
    /// Lines that are moved in.
    pub lines: f64,
    /// Lines that are touched at all.
    pub footprint: f64,
    /// Of the lines, those that stores bring into few sets, one after the other: each by its share
    /// ([`CROWD`]). Of a cache with ways.
    pub crowded: f64,
}

/// Lines stored one after the other wait for each other if they come into fewer sets than this: the sets evict
/// what was stored before, line by line. A line counts as 1 where all come into one set, and as nothing from
/// this number on. Measured on a core of family 26 (ADR 0034).
const CROWD: f64 = 8.0;
/// Lines stored one after the other that can wait for each other.
const STORED_TOGETHER: f64 = 32.0;

/// Of one call of the entry with these statements, by `threads` threads.
pub fn movement(code: &Code, stmts: &[Stmt], cache: Cache, threads: u32) -> Movement {
    let [moved] = Accessed::of(code, stmts).movements([cache], threads);
    moved
}

/// What a piece of code accesses.
pub(crate) struct Accessed<'a> {
    code: &'a Code,
    forms: Forms,
    root: Sequence,
}

/// The accesses of a part, by buffers in the order of their ids.
type Uses = Rc<Vec<(BufferId, Accesses)>>;

/// A loop, a condition, or statements without.
enum Part {
    Plain {
        /// Variables of lanes and their numbers.
        lanes: Vec<(VarId, i64)>,
        uses: Uses,
        /// The buffers that are stored to.
        stored: Vec<BufferId>,
    },
    Loop {
        var: VarId,
        extent: i64,
        parallel: bool,
        body: Sequence,
    },
    If(Sequence),
}

/// Statements one after the other, run once.
struct Sequence {
    parts: Vec<Part>,
    uses: Uses,
    /// What runs from one use of a buffer to the next, of the longest way: the part that uses it and
    /// those that do not, from and to a part. One for each buffer that several parts use.
    ways: BTreeMap<BufferId, (usize, usize)>,
    /// What several parts of a way access together.
    between: BTreeMap<(usize, usize), Uses>,
}

impl Part {
    fn uses(&self) -> &Uses {
        match self {
            Part::Plain { uses, .. } => uses,
            Part::Loop { body, .. } | Part::If(body) => &body.uses,
        }
    }
}

fn merged<'u>(parts: impl IntoIterator<Item = &'u Uses>) -> Uses {
    let mut all: BTreeMap<BufferId, Gathered> = BTreeMap::new();
    for (buffer, accesses) in parts.into_iter().flat_map(|uses| uses.iter()) {
        all.entry(*buffer).or_default().extend(accesses);
    }
    finished(all)
}

fn finished(all: BTreeMap<BufferId, Gathered>) -> Uses {
    let one = |(buffer, gathered): (_, Gathered)| (buffer, gathered.finish());
    Rc::new(all.into_iter().map(one).collect())
}

/// Reads statements.
struct Reading<'a> {
    code: &'a Code,
    forms: Forms,
}

impl Reading<'_> {
    fn sequence(&mut self, stmts: &[&Stmt]) -> Sequence {
        // Statements without loops that follow each other are one part.
        let simple = |s: &Stmt| !matches!(s, Stmt::Loop(_) | Stmt::If { .. });
        let groups = stmts.chunk_by(|a, b| simple(a) && simple(b));
        let parts: Vec<Part> = groups.map(|g| self.part(g)).collect();
        if let [one] = &parts[..] {
            return Sequence {
                uses: one.uses().clone(),
                parts,
                ways: BTreeMap::new(),
                between: BTreeMap::new(),
            };
        }
        let uses = merged(parts.iter().map(Part::uses));
        let mut sequence = Sequence {
            ways: longest_ways(&parts),
            uses,
            parts,
            between: BTreeMap::new(),
        };
        for (from, to) in sequence.ways.values().copied() {
            if to - from > 1 {
                let parts = sequence.parts[from..to].iter();
                let between = sequence.between.entry((from, to));
                between.or_insert_with(|| merged(parts.map(Part::uses)));
            }
        }
        sequence
    }

    fn part(&mut self, group: &[&Stmt]) -> Part {
        match group {
            [Stmt::Loop(l)] => Part::Loop {
                var: l.var,
                extent: l.extent,
                parallel: l.parallel,
                body: self.sequence(&l.body.iter().collect::<Vec<_>>()),
            },
            [
                Stmt::If {
                    then, otherwise, ..
                },
            ] => Part::If(self.sequence(&then.iter().chain(otherwise).collect::<Vec<_>>())),
            _ => {
                let (mut lanes, mut all) = (Vec::new(), BTreeMap::new());
                let mut stored = Vec::new();
                for s in group {
                    if let Stmt::Store(s) = s {
                        self.store(s, &mut all);
                        stored.push(s.buffer);
                        let lane = s.lane.map(|l| (l.var, i64::from(l.lanes)));
                        lanes.extend(lane.filter(|l| lanes.last() != Some(l)));
                    }
                }
                let uses = finished(all);
                Part::Plain {
                    lanes,
                    uses,
                    stored,
                }
            }
        }
    }

    fn store(&mut self, s: &Store, all: &mut BTreeMap<BufferId, Gathered>) {
        let mut access = |buffer: BufferId, offset: &Expr| {
            let place = self.code.buffers[buffer.index()].place;
            if !matches!(place, BufferPlace::Register | BufferPlace::Unused) {
                let (form, constant) = self.forms.of(offset);
                all.entry(buffer).or_default().add(form, constant);
            }
        };
        access(s.buffer, &s.offset);
        let exprs = [Some(&s.value), Some(&s.offset), s.mask.as_ref()];
        for e in exprs.into_iter().flatten() {
            e.visit_loads(&mut |buffer, at| access(buffer, &at[0]));
        }
    }
}

/// Of each buffer that several parts use.
fn longest_ways(parts: &[Part]) -> BTreeMap<BufferId, (usize, usize)> {
    // The last use of each buffer, and the longest way so far.
    let mut last: BTreeMap<BufferId, usize> = BTreeMap::new();
    let mut longest: BTreeMap<BufferId, (usize, usize)> = BTreeMap::new();
    for (here, part) in parts.iter().enumerate() {
        for (buffer, _) in part.uses().iter() {
            if let Some(from) = last.insert(*buffer, here) {
                let way = longest.entry(*buffer).or_insert((from, here));
                if here - from >= way.1 - way.0 {
                    *way = (from, here);
                }
            }
        }
    }
    longest
}

impl<'a> Accessed<'a> {
    pub fn of(code: &'a Code, stmts: &[Stmt]) -> Accessed<'a> {
        let mut reading = Reading {
            code,
            forms: Forms::new(code.vars.len()),
        };
        let root = reading.sequence(&stmts.iter().collect::<Vec<_>>());
        Accessed {
            code,
            forms: reading.forms,
            root,
        }
    }

    /// Of caches that have the same lines, and that are shared all or none.
    pub fn movements<const N: usize>(&self, caches: [Cache; N], threads: u32) -> [Movement; N] {
        let mut walk = self.walk(caches, threads);
        let all = walk.sequence(&self.root);
        let footprint = all.iter().map(|u| u.touched.lines).sum();
        std::array::from_fn(|c| Movement {
            lines: all.iter().map(|u| u.moved[c]).sum(),
            footprint,
            crowded: all.iter().map(|u| u.stored.lines(c)).sum(),
        })
    }

    /// Lines of a size that all threads together touch.
    pub fn footprint(&self, line_bytes: u64) -> f64 {
        let cache = Cache {
            bytes: u64::MAX,
            line_bytes,
            shared: true,
            ways: None,
        };
        let mut walk = self.walk([cache], 1);
        walk.vary(&self.root);
        let all = walk.touched(&self.root.uses);
        all.iter().map(|t| t.lines).sum()
    }

    fn walk<const N: usize>(&self, caches: [Cache; N], threads: u32) -> Walk<'_, N> {
        let line = caches.first().map_or(1, |c| c.line_bytes as i64);
        Walk {
            code: self.code,
            forms: &self.forms,
            caches,
            threads: i64::from(threads.max(1)),
            extents: Extents::new(self.code.vars.len()),
            counter: Counter::new(line, caches.map(|c| c.sets() as i64)),
            chances: Chances::default(),
        }
    }
}

/// What a part of the code does with one buffer.
#[derive(Clone, Debug)]
struct Use<const N: usize> {
    /// Once, with the variables that vary inside of the part.
    touched: Touched<N>,
    /// Lines that the part moves.
    moved: [f64; N],
    /// Whether lines are still there when the part runs again.
    stays: [bool; N],
    stored: Stored<N>,
}

/// What stores of a part bring into crowded sets.
#[derive(Clone, Copy, Debug)]
enum Stored<const N: usize> {
    /// The part does not store.
    Nothing,
    /// It stores too few lines to say.
    Few,
    Crowded([f64; N]),
}

impl<const N: usize> Stored<N> {
    fn lines(&self, cache: usize) -> f64 {
        match self {
            Stored::Crowded(lines) => lines[cache],
            Stored::Nothing | Stored::Few => 0.0,
        }
    }

    /// Of a part that stores and touches and moves this in all.
    fn of(touched: &Touched<N>, moved: &[f64; N]) -> Stored<N> {
        if touched.lines < STORED_TOGETHER {
            return Stored::Few;
        }
        let share = |sets: f64| ((CROWD - sets) / (CROWD - 1.0)).clamp(0.0, 1.0);
        Stored::Crowded(std::array::from_fn(|c| moved[c] * share(touched.sets[c])))
    }

    /// Of a loop around such a part, where the part alone moved `before`.
    fn repeated(&self, touched: &Touched<N>, before: &[f64; N], moved: &[f64; N]) -> Stored<N> {
        match self {
            Stored::Nothing => Stored::Nothing,
            Stored::Few => Stored::of(touched, moved),
            Stored::Crowded(lines) => Stored::Crowded(std::array::from_fn(|c| {
                lines[c] * moved[c] / before[c].max(1.0)
            })),
        }
    }

    /// Of this part and one that follows it.
    fn then(self, next: &Stored<N>) -> Stored<N> {
        match (self, next) {
            (Stored::Nothing, other) | (Stored::Few, other @ Stored::Crowded(_)) => *other,
            (Stored::Crowded(a), Stored::Crowded(b)) => {
                Stored::Crowded(std::array::from_fn(|c| a[c] + b[c]))
            }
            (own, _) => own,
        }
    }
}

struct Walk<'a, const N: usize> {
    code: &'a Code,
    forms: &'a Forms,
    caches: [Cache; N],
    threads: i64,
    /// Of variables that vary inside of what was visited.
    extents: Extents,
    counter: Counter<N>,
    chances: Chances,
}

impl<const N: usize> Walk<'_, N> {
    fn touched(&mut self, uses: &Uses) -> Vec<Touched<N>> {
        let one = |(buffer, accesses): &(BufferId, Accesses)| {
            let info = &self.code.buffers[buffer.index()];
            let element = info.dtype.size() as i64;
            let size = Size {
                element,
                all: info.elements * element,
            };
            self.counter
                .touched(accesses, self.forms, &self.extents, size)
        };
        uses.iter().map(one).collect()
    }

    fn extent(&self, extent: i64, parallel: bool) -> i64 {
        match parallel && !self.caches.iter().any(|c| c.shared) {
            true => (extent + self.threads - 1) / self.threads,
            false => extent,
        }
    }

    /// Lets all variables vary.
    fn vary(&mut self, sequence: &Sequence) {
        for part in &sequence.parts {
            match part {
                Part::Plain { lanes, .. } => {
                    lanes.iter().for_each(|(v, n)| self.extents.set(*v, *n));
                }
                Part::Loop {
                    var,
                    extent,
                    parallel,
                    body,
                } => {
                    self.vary(body);
                    self.extents.set(*var, self.extent(*extent, *parallel));
                }
                Part::If(body) => self.vary(body),
            }
        }
    }

    fn sequence(&mut self, sequence: &Sequence) -> Vec<Use<N>> {
        let parts = &sequence.parts;
        let one = |part: &Part| {
            let uses = self.part(part);
            (uses, self.extents.changes())
        };
        let mut found: Vec<(Vec<Use<N>>, u32)> = parts.iter().map(one).collect();
        let sets = self.caches.iter().all(|c| c.ways.is_some());
        if found.len() == 1 && sets {
            return found.remove(0).0;
        }
        let found: Vec<Vec<Use<N>>> = parts
            .iter()
            .zip(found)
            .map(|(part, (uses, changes))| self.as_now(part, uses, changes))
            .collect();
        let touched = self.touched(&sequence.uses);
        let mut all = Vec::with_capacity(touched.len());
        let mut between = BTreeMap::new();
        // Parts list their buffers in one order, so the next one of each part is looked at.
        let mut next = vec![0; parts.len()];
        for ((buffer, _), touched) in sequence.uses.iter().zip(touched) {
            let mut sum = Use {
                touched,
                moved: [0.0; N],
                stays: [true; N],
                stored: Stored::Nothing,
            };
            let mut again = Vec::new();
            for ((part, uses), next) in parts.iter().zip(&found).zip(&mut next) {
                if part.uses().get(*next).is_some_and(|(b, _)| b == buffer) {
                    let own = &uses[*next];
                    *next += 1;
                    sum.stored = sum.stored.then(&own.stored);
                    for c in 0..N {
                        sum.moved[c] += own.moved[c];
                        sum.stays[c] &= own.stays[c];
                    }
                    again.push(own.touched.lines);
                }
            }
            let again = again.iter().sum::<f64>() - touched.lines;
            let way = sequence.ways.get(buffer).copied();
            if let Some(way) = way.filter(|_| sets) {
                between
                    .entry(way)
                    .or_insert_with(|| self.between(sequence, way, &found));
            }
            let way = way.and_then(|way| between.get(&way));
            for c in 0..N {
                let found_again = match self.caches[c].ways {
                    Some(ways) => {
                        let touched = way.map_or(&[][..], Vec::as_slice);
                        self.chances
                            .found_again(*buffer, touched, c, (ways, self.caches[c].sets()))
                    }
                    None => {
                        let capacity = self.caches[c].capacity();
                        let longest = longest_without(parts, &found, *buffer);
                        let all_stays = touched.lines <= capacity && longest <= capacity;
                        f64::from(u8::from(all_stays && sum.stays[c]))
                    }
                };
                sum.stays[c] &= found_again > 0.0;
                let moved = sum.moved[c];
                sum.moved[c] = match self.caches[c].ways {
                    Some(_) => {
                        let least = touched.lines.min(moved);
                        (moved - found_again * again.max(0.0)).max(least)
                    }
                    None if sum.stays[c] => touched.lines,
                    None => moved,
                };
            }
            all.push(sum);
        }
        all
    }

    /// What a part does, read when variables had changed so often: another loop over one of them
    /// may have more or fewer iterations.
    fn as_now(&mut self, part: &Part, mut uses: Vec<Use<N>>, changes: u32) -> Vec<Use<N>> {
        if changes != self.extents.changes() {
            let touched = self.touched(part.uses());
            uses.iter_mut()
                .zip(touched)
                .for_each(|(u, t)| u.touched = t);
        }
        uses
    }

    /// What the parts of a way touch.
    fn between(
        &mut self,
        sequence: &Sequence,
        way: (usize, usize),
        found: &[Vec<Use<N>>],
    ) -> Vec<(BufferId, Touched<N>)> {
        let (uses, touched): (&Uses, Vec<Touched<N>>) = match sequence.between.get(&way) {
            Some(uses) => (uses, self.touched(uses)),
            None => {
                let own = found[way.0].iter().map(|u| u.touched);
                (sequence.parts[way.0].uses(), own.collect())
            }
        };
        let buffers = uses.iter().map(|(b, _)| *b);
        buffers.zip(touched).collect()
    }

    fn part(&mut self, part: &Part) -> Vec<Use<N>> {
        match part {
            Part::Plain {
                lanes,
                uses,
                stored,
            } => {
                lanes.iter().for_each(|(v, n)| self.extents.set(*v, *n));
                let one = |(touched, (buffer, _)): (Touched<N>, &(BufferId, Accesses))| {
                    let moved = [touched.lines; N];
                    Use {
                        moved,
                        touched,
                        stays: [true; N],
                        stored: match stored.contains(buffer) {
                            true => Stored::of(&touched, &moved),
                            false => Stored::Nothing,
                        },
                    }
                };
                let touched = self.touched(uses).into_iter();
                touched.zip(uses.iter()).map(one).collect()
            }
            Part::Loop {
                var,
                extent,
                parallel,
                body,
            } => {
                let extent = self.extent(*extent, *parallel);
                let mut uses = self.repeated(*var, extent, body);
                if *parallel {
                    self.add_copies(&body.uses, &mut uses, self.threads.min(extent));
                }
                uses
            }
            Part::If(body) => self.sequence(body),
        }
    }

    fn repeated(&mut self, var: VarId, extent: i64, body: &Sequence) -> Vec<Use<N>> {
        // Another loop over the same variable may have been visited before.
        let before = self.extents.hold(var);
        let mut uses = self.sequence(body);
        self.extents.set_from(var, extent, before);
        let touched = self.touched(&body.uses);
        let buffers = body.uses.iter().map(|(b, _)| *b);
        let once: Vec<_> = buffers.zip(uses.iter().map(|u| u.touched)).collect();
        let footprint: f64 = once.iter().map(|(_, t)| t.lines).sum();
        let n = extent as f64;
        for (u, ((buffer, one), touched)) in uses.iter_mut().zip(once.iter().zip(touched)) {
            let (one, lines) = (one.lines, touched.lines);
            let before = u.moved;
            u.touched = touched;
            for (c, cache) in self.caches.iter().enumerate() {
                u.moved[c] = match cache.ways {
                    Some(ways) => {
                        // Lines of one iteration that the one before touched as well.
                        let old = (one - (lines - one) / (n - 1.0).max(1.0)).max(0.0);
                        let size = (ways, cache.sets());
                        let lost = 1.0 - self.chances.found_again(*buffer, &once, c, size);
                        n * (u.moved[c] - one).max(0.0) + lines + (n - 1.0) * lost * old
                    }
                    None if footprint <= cache.capacity() || u.stays[c] => lines,
                    None => u.moved[c] * n,
                };
            }
            u.stored = u.stored.repeated(&u.touched, &before, &u.moved);
        }
        uses
    }

    /// Of buffers that each worker has a copy of, the lines of all copies.
    fn add_copies(&self, uses: &Uses, moved: &mut [Use<N>], copies: i64) {
        for ((b, _), u) in uses.iter().zip(moved) {
            let place = self.code.buffers[b.index()].place;
            if matches!(place, BufferPlace::WorkerWorkspace(_)) {
                for (moved, cache) in u.moved.iter_mut().zip(&self.caches) {
                    if cache.shared && cache.ways.is_some() {
                        *moved *= copies as f64;
                    }
                }
            }
        }
    }
}

/// How likely numbers of lines are that come into a set, in memory that is used again.
#[derive(Debug, Default)]
struct Chances {
    likely: Vec<f64>,
    sum: Vec<f64>,
}

impl Chances {
    /// The share of a buffer's lines that are still there after what is touched, of one of the
    /// caches, which has so many ways and sets.
    fn found_again<const N: usize>(
        &mut self,
        buffer: BufferId,
        touched: &[(BufferId, Touched<N>)],
        cache: usize,
        (ways, sets): (u64, u64),
    ) -> f64 {
        let sets = sets as f64;
        let most = ways as usize;
        self.likely.clear();
        self.likely.push(1.0);
        let mut own = (1.0, 0.0);
        for (b, t) in touched {
            let reached = t.sets[cache];
            let density = t.lines / reached;
            let (least, more) = (density.floor(), density.fract());
            if *b == buffer {
                own = (density.max(1.0).floor(), density.max(1.0).fract());
                continue;
            }
            let here = (reached / sets).min(1.0);
            let least = least as usize;
            let length = self.likely.len().saturating_add(least).saturating_add(1);
            self.sum.clear();
            self.sum.resize(length.min(most + 1), 0.0);
            // More lines than the set has ways leave nothing there.
            let mut add = |n: usize, p: f64| {
                if let Some(sum) = self.sum.get_mut(n) {
                    *sum += p;
                }
            };
            for (n, p) in self.likely.iter().enumerate() {
                add(n, p * (1.0 - here));
                add(n.saturating_add(least), p * here * (1.0 - more));
                add(n.saturating_add(least).saturating_add(1), p * here * more);
            }
            std::mem::swap(&mut self.likely, &mut self.sum);
        }
        let within = |own: f64| -> f64 {
            let room = ways as f64 - own;
            match room < 0.0 {
                true => 0.0,
                false => self.likely.iter().take(room as usize + 1).sum(),
            }
        };
        (1.0 - own.1) * within(own.0) + own.1 * within(own.0 + 1.0)
    }
}

/// The largest sum of lines of consecutive parts that do not touch a buffer.
fn longest_without<const N: usize>(parts: &[Part], found: &[Vec<Use<N>>], buffer: BufferId) -> f64 {
    let (mut longest, mut run) = (0.0, 0.0);
    for (part, uses) in parts.iter().zip(found) {
        run = match part.uses().iter().any(|(b, _)| *b == buffer) {
            true => 0.0,
            false => run + uses.iter().map(|u| u.touched.lines).sum::<f64>(),
        };
        longest = f64::max(longest, run);
    }
    longest
}
