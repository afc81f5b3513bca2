//! Loops whose accesses step by constants, or by entries of tables that do: what a few iterations access is made out once
//! and used again.
//!
//! The lines that some iterations touch depend on where each [`Base`] lies within its line, on which conditions hold,
//! and on nothing else. A [`Plan`] is kept for each such case. Where entries of tables step, it is one iteration's.

use super::plan::{Plan, Planner, Quick};
use super::terms::{Number, Part, Range, State, Sums};
use super::{Lanes, Node, Touch};
use crate::cache::{Access, Caches, LINE};

/// Accesses of an iteration, at most, for which inner loops are written out.
const WRITTEN_OUT: usize = 512;
/// Iterations of an inner loop that is written out, at most.
const SHORT: i64 = 32;
/// Accesses of a plan, about, and the most iterations of one.
const PLANNED: i64 = 2048;
const ITERATIONS: i64 = 64;
/// Cases of a loop that have plans, at most. What data decide may be another case each time.
const CASES: usize = 1024;

/// The body of a loop as a list.
#[derive(Debug)]
pub(super) struct Straight {
    /// Which of such loops it is.
    number: usize,
    bases: Vec<Base>,
    guards: Vec<(Range, i64)>,
    /// What decides beside guards which accesses are made.
    tests: Vec<Term>,
    /// Variables of other loops. Some accesses are made only where all of a list are 0.
    only_at_first: Vec<Vec<usize>>,
    masks: Vec<Mask>,
    rows: Vec<Row>,
    /// Iterations of a plan.
    planned: i64,
    /// Cases that have plans, at most.
    pub(super) cases: usize,
}

/// Where addresses begin: a sum, and multiples of what is none.
#[derive(Debug)]
struct Base {
    sum: usize,
    terms: Vec<(Term, i64)>,
    /// What an iteration adds to the sum.
    step: i64,
}

/// What is no sum, and what iterations add to its index.
#[derive(Debug)]
struct Term {
    part: Part,
    /// By variables of inner loops that are written out.
    more: i64,
    step: i64,
}

/// An access.
#[derive(Debug)]
struct Row {
    base: usize,
    constant: i64,
    bytes: u64,
    access: Access,
    when: When,
}

/// When an access is made: numbers of what the loop lists.
#[derive(Debug)]
struct When {
    /// Which guards must hold, or must not.
    guards: Vec<(usize, bool)>,
    tests: Vec<(usize, bool)>,
    /// Only in the first iteration.
    first: bool,
    only_at_first: Option<usize>,
    mask: Option<usize>,
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
    /// The iterations in which each guard holds.
    guards: Vec<(i64, i64)>,
    case: Vec<i64>,
    /// Of the bases.
    lines: Vec<i64>,
    /// Of each loop, by case.
    plans: Vec<Quick<Vec<i64>, Plan>>,
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
    /// None if something in the body does not step by constants.
    pub(super) fn of(
        body: &[Node],
        (var, extent): (usize, i64),
        number: usize,
        sums: &Sums,
    ) -> Option<Straight> {
        let mut all = Lister {
            var,
            sums,
            around: vec![],
            tested: vec![],
            outer: vec![],
            found: Straight {
                number,
                bases: vec![],
                guards: vec![],
                tests: vec![],
                only_at_first: vec![],
                masks: vec![],
                rows: vec![],
                planned: 0,
                cases: CASES,
            },
        };
        all.nodes(body)?;
        let mut found = all.found;
        let terms = found.bases.iter().flat_map(|b| &b.terms).map(|t| &t.0);
        let steps = terms.chain(&found.tests).any(|t| t.step != 0);
        let planned = (PLANNED / found.rows.len().max(1) as i64).clamp(1, ITERATIONS);
        found.planned = match planned >= extent {
            _ if steps => 1,
            true => extent,
            // Bases come back to the same places of their lines.
            false => 1 << planned.ilog2(),
        };
        Some(found)
    }

    /// Runs the loop, whose variable is 0 and stays so.
    pub(super) fn run(&self, extent: i64, state: &mut State<'_>, caches: &mut Caches) {
        let mut scratch = std::mem::take(&mut state.scratch);
        if scratch.plans.len() <= self.number {
            scratch.plans.resize_with(self.number + 1, Quick::default);
        }
        scratch.cuts.clear();
        scratch.cuts.extend([0, extent]);
        for mask in &self.masks {
            mask.cuts(extent, state, &mut scratch.cuts);
        }
        if scratch.cuts.len() > 2 {
            scratch.cuts.sort_unstable();
            scratch.cuts.dedup();
        }
        scratch.guards.clear();
        let guards = self.guards.iter();
        let guards = guards.map(|(g, step)| within(state.sums[g.sum], *step, g, extent));
        scratch.guards.extend(guards);
        for n in 1..scratch.cuts.len() {
            let (mut from, to) = (scratch.cuts[n - 1], scratch.cuts[n]);
            while from < to {
                let iterations = self.planned.min(to - from);
                self.find(from, iterations, state, &mut scratch);
                let plans = &mut scratch.plans[self.number];
                match plans.get(&scratch.case) {
                    Some(plan) => plan.run(&scratch.lines, caches),
                    None if plans.len() < self.cases => {
                        let mut planner = Planner::new(caches);
                        self.each(&scratch.case, |base, line, access| {
                            planner.touch(base as u32, line, access);
                        });
                        let plan = planner.end();
                        plan.run(&scratch.lines, caches);
                        plans.insert(scratch.case.clone(), plan);
                    }
                    None => self.each(&scratch.case, |base, line, access| {
                        caches.line((scratch.lines[base] + line) as u64, access);
                    }),
                }
                from += iterations;
            }
        }
        state.scratch = scratch;
    }

    /// Finds the case of so many iterations from one on, between whose masks nothing changes, and the lines of the
    /// bases. A case lists the iterations, whether the first is that of the loop, the places of the bases in their
    /// lines, the iterations in which guards hold, which tests do, which variables are 0, and the lanes of masks.
    fn find(&self, from: i64, iterations: i64, state: &State<'_>, s: &mut Scratch) {
        s.case.clear();
        s.lines.clear();
        s.case.extend([iterations, i64::from(from == 0)]);
        for base in &self.bases {
            let at = base.at(from, state);
            s.lines.push(at.div_euclid(LINE as i64));
            s.case.push(at.rem_euclid(LINE as i64));
        }
        for (first, end) in &s.guards {
            let (first, end) = ((first - from).max(0), (end - from).min(iterations));
            s.case
                .extend(if first < end { [first, end] } else { [0, 0] });
        }
        for test in &self.tests {
            s.case.push(i64::from(test.at(from, state) != 0));
        }
        for vars in &self.only_at_first {
            let first = vars.iter().all(|v| state.vars[*v] == 0);
            s.case.push(i64::from(first));
        }
        for mask in &self.masks {
            let (first, end) = mask.lanes(from, state);
            s.case.extend([first, end]);
        }
    }

    /// The accesses of a case, in order: their bases, and how far from the lines of these the accessed lines are.
    fn each(&self, case: &[i64], mut touch: impl FnMut(usize, i64, Access)) {
        let (head, case) = case.split_at(2);
        let (places, case) = case.split_at(self.bases.len());
        let (guards, case) = case.split_at(2 * self.guards.len());
        let (tests, case) = case.split_at(self.tests.len());
        let (at_first, lanes) = case.split_at(self.only_at_first.len());
        for n in 0..head[0] {
            let holds = |g: usize| (guards[2 * g]..guards[2 * g + 1]).contains(&n);
            for row in &self.rows {
                let when = &row.when;
                let made = when.guards.iter().all(|(g, is)| holds(*g) == *is)
                    && when.tests.iter().all(|(t, is)| (tests[*t] != 0) == *is)
                    && (!when.first || (n == 0 && head[1] != 0))
                    && when.only_at_first.is_none_or(|v| at_first[v] != 0);
                let (first, end) = match when.mask {
                    None => (0, 1),
                    Some(mask) => (lanes[2 * mask], lanes[2 * mask + 1]),
                };
                if !made || first >= end {
                    continue;
                }
                let at = places[row.base] + row.constant + self.bases[row.base].step * n;
                let bytes = row.bytes.max(1) as i64;
                let line = |at: i64| at.div_euclid(LINE as i64);
                for line in line(at + first * bytes)..=line(at + end * bytes - 1) {
                    touch(row.base, line, row.access);
                }
            }
        }
    }
}

impl Base {
    /// In an iteration.
    #[inline]
    fn at(&self, n: i64, state: &State<'_>) -> i64 {
        let at = state.sums[self.sum].wrapping_add(self.step.wrapping_mul(n));
        let terms = self.terms.iter();
        terms.fold(at, |at, (term, k)| {
            at.wrapping_add(term.at(n, state).wrapping_mul(*k))
        })
    }

    fn is(&self, other: &Base) -> bool {
        let mut both = self.terms.iter().zip(&other.terms);
        self.sum == other.sum
            && self.terms.len() == other.terms.len()
            && both.all(|((a, j), (b, k))| a.is(b) && j == k)
    }
}

impl Term {
    /// In an iteration.
    #[inline]
    fn at(&self, n: i64, state: &State<'_>) -> i64 {
        self.part.at_entry(self.more + self.step * n, state)
    }

    fn is(&self, other: &Term) -> bool {
        self.part.is(&other.part) && self.more == other.more
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

/// Lists the accesses of a body.
struct Lister<'s> {
    var: usize,
    sums: &'s Sums,
    /// Guards around the current node.
    around: Vec<(usize, bool)>,
    /// Tests around it.
    tested: Vec<(usize, bool)>,
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
                if !otherwise.is_empty() && cond.ranges.len() + cond.others.len() != 1 {
                    return None;
                }
                let (guards, tests) = (self.around.len(), self.tested.len());
                for r in &cond.ranges {
                    let guard = self.guard(r, 0);
                    self.around.push((guard, true));
                }
                for (part, is) in &cond.others {
                    let test = self.term(part)?;
                    let test = index_of(&mut self.found.tests, test, Term::is);
                    self.tested.push((test, *is));
                }
                self.nodes(then)?;
                let around = self.around[guards..].iter_mut();
                let tested = self.tested[tests..].iter_mut();
                around.chain(tested).for_each(|(_, is)| *is = !*is);
                self.nodes(otherwise)?;
                self.around.truncate(guards);
                self.tested.truncate(tests);
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

    /// A row for an access at a number, or nothing if it is never made. None if the number does not step by constants.
    fn row(
        &mut self,
        at: &Number,
        bytes: u64,
        access: Access,
        first: &[usize],
    ) -> Option<Option<Row>> {
        let written_out = |v: &usize| self.outer.iter().find(|(o, _)| o == v);
        if first.iter().filter_map(written_out).any(|(_, n)| *n > 0) {
            return Some(None);
        }
        let others = first
            .iter()
            .filter(|v| **v != self.var && written_out(v).is_none());
        let others: Vec<usize> = others.copied().collect();
        let lists = &mut self.found.only_at_first;
        let only_at_first = (!others.is_empty()).then(|| index_of(lists, others, Vec::eq));
        Some(Some(Row {
            base: self.base(at)?,
            constant: at.constant + self.added(at.sum),
            bytes,
            access,
            when: When {
                guards: self.around.clone(),
                tests: self.tested.clone(),
                first: first.contains(&self.var),
                only_at_first,
                mask: None,
            },
        }))
    }

    fn base(&mut self, at: &Number) -> Option<usize> {
        let terms = at.parts.iter().map(|(p, k)| Some((self.term(p)?, *k)));
        let base = Base {
            sum: at.sum,
            terms: terms.collect::<Option<_>>()?,
            step: self.sums.step(at.sum, self.var),
        };
        Some(index_of(&mut self.found.bases, base, Base::is))
    }

    fn term(&self, part: &Part) -> Option<Term> {
        let mut more = 0;
        for (var, n) in &self.outer {
            more += part.index_step(*var, self.sums)? * n;
        }
        Some(Term {
            part: part.clone(),
            more,
            step: part.index_step(self.var, self.sums)?,
        })
    }

    fn touch(&mut self, t: &Touch) -> Option<()> {
        for distance in &t.distances {
            let row = self.row(&t.at, t.bytes, t.access, &t.only_at_first)?;
            self.found.rows.extend(row.map(|row| Row {
                constant: row.constant + distance,
                ..row
            }));
        }
        Some(())
    }

    fn lanes(&mut self, l: &Lanes) -> Option<()> {
        let (ranges, step) = l.linear.as_ref()?;
        let aligned =
            LINE.is_multiple_of(l.bytes) && (l.at.constant.unsigned_abs()).is_multiple_of(l.bytes);
        if !aligned {
            return None;
        }
        let Some(mut row) = self.row(&l.at, l.bytes, l.access, &l.only_at_first)? else {
            return Some(());
        };
        if *step == l.bytes as i64 {
            let of_loop = |r: &OfLane| OfLane {
                range: self.shifted(&r.range, 0),
                step: self.sums.step(r.range.sum, self.var),
                lane: r.lane,
            };
            row.when.mask = Some(self.found.masks.len());
            self.found.masks.push(Mask {
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
            let row = self.row(&l.at, l.bytes, l.access, &l.only_at_first)?;
            self.around.truncate(before);
            if let Some(mut row) = row {
                row.constant += step * lane;
                self.found.rows.push(row);
            }
        }
        Some(())
    }
}

/// Where the list has the value, at its end if it had not.
fn index_of<T>(list: &mut Vec<T>, value: T, is: impl Fn(&T, &T) -> bool) -> usize {
    list.iter().position(|v| is(v, &value)).unwrap_or_else(|| {
        list.push(value);
        list.len() - 1
    })
}
