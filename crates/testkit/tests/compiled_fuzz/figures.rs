//! What a run of pairs covered.

use crate::judge::{Outcome, Pair};
use schedule::Step;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Default)]
pub struct Figures {
    pairs: usize,
    /// Accepted steps of every trace.
    lengths: Vec<usize>,
    accepted: BTreeMap<&'static str, usize>,
    /// Accepted instructions for products of bytes.
    dots: usize,
    several_blocks: usize,
    uneven: usize,
    compiled: usize,
    moved: usize,
    masked: usize,
    in_place: usize,
    bound: usize,
    too_large: usize,
}

/// What 10 000 pairs must reach: accepted steps in the middle trace, acceptances
/// of every kind of step, and the share of programs with a property.
const MEDIAN: usize = 6;
const ACCEPTED: usize = 300;
const OF_PAIRS: usize = 10_000;

impl Figures {
    pub fn add(&mut self, pair: &Pair, outcome: Outcome) {
        self.pairs += 1;
        self.lengths.push(pair.trace.steps.len());
        for step in &pair.trace.steps {
            *self.accepted.entry(step.name()).or_default() += 1;
            let dot = |s: &Step| matches!(s, Step::Tensorize { intrinsic, .. } if intrinsic.starts_with("dot4"));
            self.dots += usize::from(dot(step));
        }
        let raw = &pair.raw;
        self.several_blocks += usize::from(raw.block_ids().len() >= 2);
        let uneven = |l: &ir::LoopId| raw.loop_(*l).extent > 1 && raw.loop_(*l).extent % 2 == 1;
        self.uneven += usize::from(raw.loop_ids().iter().any(uneven));
        match outcome {
            Outcome::Compiled {
                moved,
                masked,
                in_place,
            } => {
                self.in_place += usize::from(in_place);
                self.masked += usize::from(masked);
                self.compiled += 1;
                self.moved += usize::from(moved);
            }
            Outcome::Bound => self.bound += 1,
            Outcome::TooLarge => self.too_large += 1,
            Outcome::NoPlace => {}
        }
    }

    fn median(&self) -> usize {
        let mut lengths = self.lengths.clone();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied().unwrap_or(0)
    }

    fn accepted(&self, kind: &str) -> usize {
        self.accepted.get(kind).copied().unwrap_or(0)
    }

    /// Fewer pairs than `OF_PAIRS` must reach half of their share of
    /// acceptances: rare kinds vary.
    pub fn check(&self) {
        let wanted = match self.pairs >= OF_PAIRS {
            true => ACCEPTED * self.pairs / OF_PAIRS,
            false => ACCEPTED * self.pairs / (2 * OF_PAIRS),
        };
        for kind in schedule::steps::STEPS {
            let n = self.accepted(kind.name);
            assert!(n >= wanted, "`{}`: {n} of {wanted}", kind.name);
        }
        assert!(3 * self.dots >= wanted, "dot products: {}", self.dots);
        for (what, n) in [("masks", self.masked), ("in place", self.in_place)] {
            assert!(20 * n >= self.pairs, "{what}: {n} of {}", self.pairs);
        }
        assert!(self.median() >= MEDIAN, "{}", self.median());
        for (what, n) in [
            ("two blocks or more", self.several_blocks),
            ("an extent that does not divide", self.uneven),
            ("machine code", self.compiled),
        ] {
            assert!(2 * n >= self.pairs, "{what}: {n} of {}", self.pairs);
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} pairs agree", self.pairs)?;
        writeln!(
            f,
            "{} compiled: {} with masked lanes, {} in place, {} with GPU loops or memories moved to the \
             CPU",
            self.compiled, self.masked, self.in_place, self.moved
        )?;
        writeln!(
            f,
            "{} for a GPU only: interpreted; {} too large when unrolled",
            self.bound, self.too_large
        )?;
        writeln!(f, "{} accepted steps in the middle trace", self.median())?;
        writeln!(
            f,
            "{} programs with two blocks or more, {} with an extent that does not divide",
            self.several_blocks, self.uneven
        )?;
        writeln!(f, "{} dot products of bytes", self.dots)?;
        for kind in schedule::steps::STEPS {
            writeln!(
                f,
                "{:24} {:6} accepted",
                kind.name,
                self.accepted(kind.name)
            )?;
        }
        Ok(())
    }
}
