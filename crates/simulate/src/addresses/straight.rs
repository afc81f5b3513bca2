//! Loops whose accesses all step by constants: where conditions change is known before the loop runs.
//!
//! The iterations are cut where a condition or the lanes of a mask change. Between two cuts each access steps
//! on. Iterations that access the same lines as the one before, all of which are there, are counted and not made.

use super::terms::{Number, Part, Range, State, Sums};
use super::{Lanes, Node, Touch};
use crate::cache::{Access, Caches, LINE};

/// Accesses of an iteration, at most, for which inner loops are written out.
const WRITTEN_OUT: usize = 128;
/// Iterations of an inner loop that is written out, at most.
const SHORT: i64 = 16;

/// The body of a loop as a list.
#[derive(Debug)]
pub(super) struct Straight {
    guards: Vec<(Range, i64)>,
    rows: Vec<Row>,
}

/// An access.
#[derive(Debug)]
struct Row {
    sum: usize,
    constant: i64,
    /// By how much an iteration changes the address.
    step: i64,
    bytes: u64,
    access: Access,
    /// Of most rows nothing, and those are fast to look through.
    special: Option<Box<Special>>,
}

/// When an access is made, and what else its address is made of.
#[derive(Debug, Default)]
struct Special {
    /// What is no sum, and stays while the loop runs.
    parts: Vec<(Part, i64)>,
    /// Which guards must hold, or must not.
    guards: Vec<(usize, bool)>,
    /// Only in the first iteration.
    first: bool,
    /// Variables of other loops that must be 0.
    only_at_first: Vec<usize>,
    mask: Option<Mask>,
}

/// Lanes next to each other that are accessed where sums are in ranges: `step` is what an iteration adds to a sum,
/// and `lane` what a lane adds.
#[derive(Debug)]
struct Mask {
    lanes: i64,
    ranges: Vec<OfLane>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OfLane {
    pub(super) range: Range,
    step: i64,
    pub(super) lane: i64,
}

impl OfLane {
    pub(super) fn of(range: Range, lane_var: usize, sums: &Sums) -> OfLane {
        OfLane {
            range,
            step: 0,
            lane: sums.step(range.sum, lane_var),
        }
    }
}

/// What runs of such loops use again.
#[derive(Default)]
pub(super) struct Scratch {
    cuts: Vec<i64>,
    holds: Vec<bool>,
    steps: Vec<Step>,
}

/// An access that steps on.
struct Step {
    at: i64,
    by: i64,
    bytes: u64,
    access: Access,
}

/// The numbers `n` in `0..extent` for which `value + n * step` is in the range, as the first and the one after the last.
pub(super) fn within(value: i64, step: i64, range: &Range, extent: i64) -> (i64, i64) {
    let (lo, hi) = (
        range.lo.saturating_sub(value),
        range.hi.saturating_sub(value),
    );
    let (first, last) = match step {
        0 if lo <= 0 && hi >= 0 => return (0, extent),
        0 => return (0, 0),
        1 => (lo, hi),
        _ if step > 0 => (ceil(lo, step), hi.div_euclid(step)),
        _ => (
            ceil(hi.saturating_neg(), -step),
            lo.saturating_neg().div_euclid(-step),
        ),
    };
    let (first, end) = (first.max(0), last.saturating_add(1).min(extent));
    if first < end { (first, end) } else { (0, 0) }
}

/// `a / b` rounded up, where `b` is positive.
fn ceil(a: i64, b: i64) -> i64 {
    -(a.saturating_neg().div_euclid(b))
}

impl Straight {
    /// None if the accesses of the body do not step by constants.
    pub(super) fn of(body: &[Node], var: usize, sums: &Sums) -> Option<Straight> {
        let mut all = Lister {
            var,
            sums,
            around: vec![],
            outer: vec![],
            found: Straight {
                guards: vec![],
                rows: vec![],
            },
        };
        all.nodes(body)?;
        Some(all.found)
    }

    /// Runs the loop, whose variable is 0 and stays so.
    pub(super) fn run(&self, extent: i64, state: &mut State<'_>, caches: &mut Caches) {
        let mut scratch = std::mem::take(&mut state.scratch);
        scratch.cuts.clear();
        scratch.cuts.extend([0, extent]);
        for (g, step) in &self.guards {
            let (a, b) = within(state.sums[g.sum], *step, g, extent);
            scratch.cuts.extend([a, b]);
        }
        for r in self.rows.iter().filter_map(|r| r.special.as_ref()) {
            if r.first {
                scratch.cuts.push(1.min(extent));
            }
            if let Some(mask) = &r.mask {
                mask.cuts(extent, state, &mut scratch.cuts);
            }
        }
        if scratch.cuts.len() > 2 {
            scratch.cuts.sort_unstable();
            scratch.cuts.dedup();
        }
        for n in 1..scratch.cuts.len() {
            let (from, to) = (scratch.cuts[n - 1], scratch.cuts[n]);
            scratch.holds.clear();
            let of_guards = self.guards.iter().map(|(g, step)| {
                let value = state.sums[g.sum].wrapping_add(step.wrapping_mul(from));
                (g.lo..=g.hi).contains(&value)
            });
            scratch.holds.extend(of_guards);
            scratch.steps.clear();
            let made = self
                .rows
                .iter()
                .filter_map(|r| r.at(from, state, &scratch.holds));
            scratch.steps.extend(made);
            if !scratch.steps.is_empty() {
                make(&mut scratch.steps, to - from, caches);
            }
        }
        state.scratch = scratch;
    }
}

impl Row {
    /// From this iteration on.
    #[inline]
    fn at(&self, n: i64, state: &State<'_>, holds: &[bool]) -> Option<Step> {
        let step = Step {
            at: state.sums[self.sum] + self.constant + self.step * n,
            by: self.step,
            bytes: self.bytes,
            access: self.access,
        };
        match &self.special {
            None => Some(step),
            Some(special) => special.at(step, n, state, holds),
        }
    }

    fn special(&mut self) -> &mut Special {
        self.special
            .get_or_insert_with(|| Box::new(Special::default()))
    }
}

impl Special {
    fn is_needed(&self) -> bool {
        let lists = [
            self.parts.len(),
            self.guards.len(),
            self.only_at_first.len(),
        ];
        lists != [0; 3] || self.first || self.mask.is_some()
    }

    /// The step of a row, with what this adds.
    fn at(&self, mut step: Step, n: i64, state: &State<'_>, holds: &[bool]) -> Option<Step> {
        if (self.first && n > 0)
            || self.guards.iter().any(|(g, is)| holds[*g] != *is)
            || self.only_at_first.iter().any(|v| state.vars[*v] != 0)
        {
            return None;
        }
        for (part, k) in &self.parts {
            step.at = step.at.wrapping_add(part.at(state).wrapping_mul(*k));
        }
        if let Some(mask) = &self.mask {
            let (first, end) = mask.lanes(n, state);
            step.at += first * step.bytes as i64;
            step.bytes *= (end - first) as u64;
        }
        (step.bytes > 0).then_some(step)
    }
}

impl Mask {
    fn lanes(&self, n: i64, state: &State<'_>) -> (i64, i64) {
        lanes(&self.ranges, n, self.lanes, state)
    }

    /// Where the lanes change.
    fn cuts(&self, extent: i64, state: &State<'_>, cuts: &mut Vec<i64>) {
        for r in self.ranges.iter().filter(|r| r.step != 0) {
            let of_lane = |lane: i64| {
                let value = state.sums[r.range.sum].wrapping_add(r.lane.wrapping_mul(lane));
                within(value, r.step, &r.range, extent)
            };
            for lane in 0..self.lanes {
                let (a, b) = of_lane(lane);
                cuts.extend([a, b]);
            }
        }
    }
}

/// The lanes whose sums are all in their ranges, in an iteration.
pub(super) fn lanes(ranges: &[OfLane], n: i64, lanes: i64, state: &State<'_>) -> (i64, i64) {
    let mut both = (0, lanes);
    for r in ranges {
        let value = state.sums[r.range.sum].wrapping_add(r.step.wrapping_mul(n));
        let (a, b) = within(value, r.lane, &r.range, lanes);
        both = (both.0.max(a), both.1.min(b));
    }
    if both.0 < both.1 { both } else { (0, 0) }
}

/// Makes the accesses of so many iterations.
fn make(steps: &mut [Step], mut iterations: i64, caches: &mut Caches) {
    let once = |steps: &mut [Step], caches: &mut Caches| {
        for s in steps {
            caches.access(s.at as u64, s.bytes, s.access);
            s.at += s.by;
        }
    };
    // Longer steps leave a line too soon.
    if iterations == 1 || steps.iter().any(|s| s.by.unsigned_abs() > LINE / 2) {
        for _ in 0..iterations {
            once(steps, caches);
        }
        return;
    }
    while iterations > 0 {
        let alike = steps.iter().map(Step::on_its_lines);
        let mut alike = alike.min().unwrap_or(1).min(iterations);
        iterations -= alike;
        let lines: u64 = steps.iter().map(Step::lines).sum();
        let stay = caches.keeps(lines);
        while alike > 0 {
            let before = caches.misses_of_data();
            once(steps, caches);
            alike -= 1;
            if alike > 0 && (stay || caches.misses_of_data() == before) {
                for s in &mut *steps {
                    // It is one iteration further already.
                    let lines = s.lines_before();
                    caches.count_hits(lines * alike as u64, s.access);
                    s.at += s.by * alike;
                }
                alike = 0;
            }
        }
    }
}

impl Step {
    #[inline]
    fn lines_at(&self, at: i64) -> u64 {
        let end = at as u64 + self.bytes.max(1) - 1;
        end / LINE - at as u64 / LINE + 1
    }

    #[inline]
    fn lines(&self) -> u64 {
        self.lines_at(self.at)
    }

    #[inline]
    fn lines_before(&self) -> u64 {
        self.lines_at(self.at - self.by)
    }

    /// Iterations, this one included, that access the same lines.
    #[inline]
    fn on_its_lines(&self) -> i64 {
        let line = LINE as i64;
        let (first, last) = (self.at, self.at + self.bytes.max(1) as i64 - 1);
        let more = |room: i64, by: i64| match by.count_ones() {
            1 => room >> by.trailing_zeros(),
            _ => room / by,
        };
        match self.by {
            0 => i64::MAX,
            by if by > 0 => {
                let room = line - 1 - (first % line).max(last % line);
                1 + more(room, by)
            }
            by => 1 + more((first % line).min(last % line), -by),
        }
    }
}

/// Lists the accesses of a body.
struct Lister<'s> {
    var: usize,
    sums: &'s Sums,
    /// Guards around the current node.
    around: Vec<(usize, bool)>,
    /// Variables of inner loops that are written out, and their values.
    outer: Vec<(usize, i64)>,
    found: Straight,
}

impl Lister<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Option<()> {
        nodes.iter().try_for_each(|n| self.node(n))
    }

    fn node(&mut self, node: &Node) -> Option<()> {
        match node {
            Node::Touch(t) => self.touch(t),
            Node::Lanes(l) => self.lanes(l),
            Node::If {
                cond,
                then,
                otherwise,
            } => {
                let one_side = otherwise.is_empty() || cond.ranges.len() == 1;
                if !cond.others.is_empty() || !one_side {
                    return None;
                }
                let before = self.around.len();
                for r in &cond.ranges {
                    let guard = self.guard(r, 0);
                    self.around.push((guard, true));
                }
                self.nodes(then)?;
                self.around[before..].iter_mut().for_each(|g| g.1 = false);
                self.nodes(otherwise)?;
                self.around.truncate(before);
                Some(())
            }
            Node::Loop {
                var, extent, body, ..
            } if *extent <= SHORT => {
                for n in 0..*extent {
                    self.outer.push((*var, n));
                    self.nodes(body)?;
                    self.outer.pop();
                    if self.found.rows.len() > WRITTEN_OUT {
                        return None;
                    }
                }
                Some(())
            }
            Node::Loop { .. } | Node::Check(..) => None,
        }
    }

    /// What the values of inner variables add to a sum.
    fn added(&self, sum: usize) -> i64 {
        let each = self.outer.iter();
        each.map(|(v, n)| self.sums.step(sum, *v) * n).sum()
    }

    /// The number of the guard that a range is, with so much added to its sum.
    fn guard(&mut self, range: &Range, more: i64) -> usize {
        let range = self.shifted(range, more);
        let known = self.found.guards.iter().position(|(r, _)| *r == range);
        known.unwrap_or_else(|| {
            let step = self.sums.step(range.sum, self.var);
            self.found.guards.push((range, step));
            self.found.guards.len() - 1
        })
    }

    fn shifted(&self, range: &Range, more: i64) -> Range {
        let added = self.added(range.sum) + more;
        let end = |end: i64| match end {
            i64::MIN | i64::MAX => end,
            end => end - added,
        };
        Range {
            sum: range.sum,
            lo: end(range.lo),
            hi: end(range.hi),
        }
    }

    /// A row for an access at a number; none if it is not made.
    fn row(&self, at: &Number, bytes: u64, access: Access, first: &[usize]) -> Option<Row> {
        let written_out = |v: &usize| self.outer.iter().find(|(o, _)| o == v);
        let never = first.iter().filter_map(written_out).any(|(_, n)| *n > 0);
        let others = first
            .iter()
            .filter(|v| **v != self.var && written_out(v).is_none());
        let special = Special {
            parts: at.parts.clone(),
            guards: self.around.clone(),
            first: first.contains(&self.var),
            only_at_first: others.copied().collect(),
            mask: None,
        };
        (!never).then(|| Row {
            sum: at.sum,
            constant: at.constant + self.added(at.sum),
            step: self.sums.step(at.sum, self.var),
            bytes,
            access,
            special: special.is_needed().then(|| Box::new(special)),
        })
    }

    fn touch(&mut self, t: &Touch) -> Option<()> {
        self.parts_stay(&t.at)?;
        for distance in &t.distances {
            if let Some(mut row) = self.row(&t.at, t.bytes, t.access, &t.only_at_first) {
                row.constant += distance;
                self.found.rows.push(row);
            }
        }
        Some(())
    }

    /// Whether what is no sum is the same in all iterations.
    fn parts_stay(&self, at: &Number) -> Option<()> {
        let mut vars = self.outer.iter().map(|o| o.0).chain([self.var]);
        (!vars.any(|v| at.parts_change(v, self.sums))).then_some(())
    }

    fn lanes(&mut self, l: &Lanes) -> Option<()> {
        let (ranges, step) = l.linear.as_ref()?;
        self.parts_stay(&l.at)?;
        let aligned =
            LINE.is_multiple_of(l.bytes) && (l.at.constant.unsigned_abs()).is_multiple_of(l.bytes);
        if !aligned {
            return None;
        }
        let Some(mut row) = self.row(&l.at, l.bytes, l.access, &l.only_at_first) else {
            return Some(());
        };
        if *step == l.bytes as i64 {
            let of_loop = |r: &OfLane| OfLane {
                range: self.shifted(&r.range, 0),
                step: self.sums.step(r.range.sum, self.var),
                lane: r.lane,
            };
            row.special().mask = Some(Mask {
                lanes: l.lanes,
                ranges: ranges.iter().map(of_loop).collect(),
            });
            self.found.rows.push(row);
            return Some(());
        }
        // Lanes of different lines are accesses of their own.
        if step.unsigned_abs() < LINE {
            return None;
        }
        let before = self.around.len();
        for lane in 0..l.lanes {
            for r in ranges {
                let guard = self.guard(&r.range, r.lane * lane);
                self.around.push((guard, true));
            }
            let row = self.row(&l.at, l.bytes, l.access, &l.only_at_first);
            self.around.truncate(before);
            if let Some(mut row) = row {
                row.constant += step * lane;
                self.found.rows.push(row);
            }
        }
        Some(())
    }
}
