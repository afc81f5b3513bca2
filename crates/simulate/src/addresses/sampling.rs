//! Walking a share of the iterations of outer loops, and what that says of all of them.
//!
//! The first iterations are walked and counted as they are. The others are divided into strata. Of each, one iteration
//! at a random place is counted for the whole stratum. The one before it is walked, too, and not counted: it
//! brings the lines that the counted one expects. Two neighbouring strata are expected to cost the same, so
//! their difference estimates the error (the collapsed strata of survey sampling).
//!
//! Lines that only skipped iterations would have brought are missing. Then more lines seem to be touched for the first
//! time than the buffers have. The surplus ([`Estimate::surplus`]) are accesses that would have found their lines
//! in some level.

use super::terms::State;
use super::{Addresses, Node, NotFollowed};
use crate::cache::{Caches, LevelCounts};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Iterations at the begin that are counted as they are.
const FIRST: i64 = 2;
/// Iterations that are walked in each stratum: one to bring lines, and one to count.
const WALKED: i64 = 2;
/// Strata that outer loops are combined for, and the fewest that an estimate is made of.
const STRATA: i64 = 32;
const LEAST_STRATA: i64 = 6;
/// Accesses of an iteration, at least: fewer bring no lines worth the name.
const LEAST_ACCESSES: f64 = 512.0;

/// Counts of data in all levels, the first one first, that may stand for more than was walked.
pub type Counts = Vec<f64>;

/// Events of [`LevelCounts`], in the order of [`counts`].
pub const EVENTS: [&str; 6] = [
    "read.hits",
    "read.misses",
    "read.replacements",
    "write.hits",
    "write.misses",
    "write.replacements",
];

/// What a walk of a share of the iterations found.
#[derive(Debug)]
pub struct Estimate {
    pub counts: Counts,
    /// The variance of each count.
    pub variances: Counts,
    /// Of the sum of the counts times the weights.
    pub variance_of_sum: f64,
    /// First touches of lines in the estimate beyond the lines that there are.
    pub surplus: f64,
    /// The lines of all buffers that are accessed.
    pub lines: u64,
    /// Accesses that were walked, those not counted included, over the estimate of all.
    pub walked: f64,
}

/// The counts of levels as one row.
pub fn counts(levels: &[LevelCounts]) -> Counts {
    let of = |l: &LevelCounts| {
        [l.read, l.write].map(|h| [h.hits as f64, h.misses as f64, h.replacements as f64])
    };
    levels.iter().flat_map(of).flatten().collect()
}

/// Loops that are walked as one, as each has nothing but the next one in it.
struct Combined<'n> {
    loops: Vec<(usize, i64)>,
    body: &'n [Node],
}

impl<'n> Combined<'n> {
    /// Combines a loop with those in it until there are `wanted` iterations.
    fn of(var: usize, extent: i64, body: &'n [Node], wanted: i64) -> Combined<'n> {
        let mut all = Combined {
            loops: vec![(var, extent)],
            body,
        };
        while let [
            Node::Loop {
                var, extent, body, ..
            },
        ] = all.body
        {
            if all.iterations() >= wanted || accesses(body) < LEAST_ACCESSES {
                break;
            }
            all.loops.push((*var, *extent));
            all.body = body;
        }
        all
    }

    fn iterations(&self) -> i64 {
        self.loops.iter().map(|l| l.1).product()
    }

    /// Makes the accesses of one iteration.
    fn run(&self, mut iteration: i64, state: &mut State<'_>, caches: &mut Caches) {
        for (var, extent) in self.loops.iter().rev() {
            state.set(*var, iteration % extent);
            iteration /= extent;
        }
        self.body.iter().for_each(|n| n.run(state, caches));
    }
}

/// Accesses of nodes if all conditions hold.
fn accesses(nodes: &[Node]) -> f64 {
    let of = |n: &Node| match n {
        Node::Loop { extent, body, .. } => *extent as f64 * accesses(body),
        Node::If {
            then, otherwise, ..
        } => accesses(then).max(accesses(otherwise)),
        Node::Check(..) => 0.0,
        Node::Touch(_) | Node::Lanes(_) => 1.0,
    };
    nodes.iter().map(of).sum()
}

impl Addresses {
    /// Makes the accesses of about one in `one_in` iterations of outer loops. `weights` are those of the sum whose
    /// variance is wanted, one a count. Equal kernels give equal estimates.
    ///
    /// # Errors
    /// If an index is out of bounds.
    pub fn sample(
        &self,
        caches: &mut Caches,
        one_in: u32,
        weights: &[f64],
    ) -> Result<Estimate, NotFollowed> {
        caches.count_new_lines();
        let mut walk = Walk {
            one_in: i64::from(one_in.max(1)),
            weights,
            random: Pcg64Mcg::seed_from_u64(0),
            before: vec![0.0; weights.len()],
            new_lines: (0.0, 0.0),
            found: Estimate {
                counts: vec![0.0; weights.len()],
                variances: vec![0.0; weights.len()],
                variance_of_sum: 0.0,
                surplus: 0.0,
                lines: self.lines,
                walked: 1.0,
            },
            caches,
            state: State::new(&self.sums),
        };
        walk.nodes(&self.nodes);
        walk.state.ended()?;
        walk.count(1.0);
        let all = |counts: &Counts| -> f64 {
            // Of the first level.
            [0, 1, 3, 4].iter().map(|i| counts[*i]).sum()
        };
        walk.found.surplus = (walk.new_lines.1 - self.lines as f64).max(0.0);
        walk.found.walked = all(&walk.before) / all(&walk.found.counts).max(1.0);
        Ok(walk.found)
    }
}

struct Walk<'w> {
    one_in: i64,
    weights: &'w [f64],
    random: Pcg64Mcg,
    /// The counts of the caches when they were last added.
    before: Counts,
    /// New lines when they were last added, and the estimate of all.
    new_lines: (f64, f64),
    found: Estimate,
    caches: &'w mut Caches,
    state: State<'w>,
}

impl Walk<'_> {
    fn nodes(&mut self, nodes: &[Node]) {
        for n in nodes {
            match n {
                Node::Check(..) | Node::Touch(_) | Node::Lanes(_) => {
                    n.run(&mut self.state, self.caches)
                }
                Node::If {
                    cond,
                    then,
                    otherwise,
                } => match cond.holds(&self.state) {
                    false => self.nodes(otherwise),
                    true => self.nodes(then),
                },
                Node::Loop {
                    var, extent, body, ..
                } => self.loop_(n, *var, *extent, body),
            }
        }
    }

    /// Samples a loop with those directly in it, or walks it and samples the loops in its body.
    fn loop_(&mut self, node: &Node, var: usize, extent: i64, body: &[Node]) {
        if accesses(body) < LEAST_ACCESSES {
            return node.run(&mut self.state, self.caches);
        }
        let stratum = WALKED * self.one_in;
        let combined = Combined::of(var, extent, body, FIRST + STRATA * stratum);
        let strata = (combined.iterations() - FIRST) / stratum;
        if self.one_in > 1 && strata >= LEAST_STRATA {
            self.sample(&combined, strata);
        } else {
            for i in 0..extent {
                self.state.set(var, i);
                self.nodes(body);
            }
        }
        combined
            .loops
            .iter()
            .for_each(|(v, _)| self.state.set(*v, 0));
    }

    fn sample(&mut self, combined: &Combined<'_>, strata: i64) {
        let mut next = 0;
        while next < FIRST {
            combined.run(next, &mut self.state, self.caches);
            next += 1;
        }
        self.count(1.0);
        let rest = combined.iterations() - FIRST;
        let begin = |s: i64| FIRST + rest * s / strata;
        let mut last: Option<Counts> = None;
        for s in 0..strata {
            let within = begin(s)..begin(s + 1);
            let stands_for = within.end - within.start;
            let counted = self.random.random_range(within);
            for i in (counted - 1).max(next)..counted {
                combined.run(i, &mut self.state, self.caches);
            }
            self.count(0.0);
            combined.run(counted, &mut self.state, self.caches);
            next = counted + 1;
            let of_stratum = self.count(stands_for as f64);
            // An odd stratum at the end is compared with the one before, which then counts twice.
            let is_pair = s % 2 == 1 || s + 1 == strata;
            if let Some(last) = last.filter(|_| is_pair) {
                self.differ(&last, &of_stratum);
            }
            last = Some(of_stratum);
        }
    }

    /// Adds what was counted since the last time, times `stands_for`; what was added.
    fn count(&mut self, stands_for: f64) -> Counts {
        let now = counts(&self.caches.data());
        let added = now.iter().zip(&self.before);
        let added: Counts = added.map(|(n, b)| (n - b) * stands_for).collect();
        let sums = self.found.counts.iter_mut().zip(&added);
        sums.for_each(|(sum, a)| *sum += a);
        self.before = now;
        let new = self.caches.new_lines() as f64;
        self.new_lines.1 += (new - self.new_lines.0) * stands_for;
        self.new_lines.0 = new;
        added
    }

    /// Adds the squared difference of two strata to the variances.
    fn differ(&mut self, one: &Counts, other: &Counts) {
        let mut of_sum = 0.0;
        for (i, (a, b)) in one.iter().zip(other).enumerate() {
            self.found.variances[i] += (a - b).powi(2);
            of_sum += self.weights[i] * (a - b);
        }
        self.found.variance_of_sum += of_sum.powi(2);
    }
}
