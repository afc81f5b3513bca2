//! What becomes of kernels that are ranked together.
//!
//! Owns who is blamed for a failure, who is measured alone, and what each is
//! charged. Asking runners is left to `runner_process`.

use crate::measured::Measured;
use crate::protocol::{PartTimes, Spent};
use store::Outcome;

pub(crate) struct RankOutcomes {
    outcomes: Vec<Option<Outcome>>,
    whole: Vec<Spent>,
    parts: Vec<PartTimes>,
}

impl RankOutcomes {
    pub fn new(kernels: usize) -> RankOutcomes {
        RankOutcomes {
            outcomes: vec![None; kernels],
            whole: vec![Spent::default(); kernels],
            parts: vec![PartTimes::default(); kernels],
        }
    }

    /// Kernels without an outcome.
    pub fn undecided(&self) -> Vec<usize> {
        let all = 0..self.outcomes.len();
        all.filter(|i| self.outcomes[*i].is_none()).collect()
    }

    /// Charges these kernels what a request took: their own parts, and the rest evenly.
    fn charge(&mut self, of: &[usize], parts: &[PartTimes], spent: Spent) {
        let mut told = Spent::default();
        parts.iter().for_each(|p| told += p.sum());
        let n = of.len().max(1) as u64;
        for (k, i) in of.iter().enumerate() {
            self.whole[*i] += Spent {
                wall_ns: spent.wall_ns.saturating_sub(told.wall_ns) / n,
                cpu_ns: spent.cpu_ns.saturating_sub(told.cpu_ns) / n,
            };
            if let Some(parts) = parts.get(k) {
                self.whole[*i] += parts.sum();
                self.parts[*i] += *parts;
            }
        }
    }

    /// Keeps the outcomes of these kernels, whose request took so much; those to be
    /// measured alone, as the others took their memory.
    pub fn settle(
        &mut self,
        of: &[usize],
        judged: Vec<(Outcome, PartTimes)>,
        spent: Spent,
    ) -> Vec<usize> {
        let (outcomes, parts): (Vec<Outcome>, Vec<PartTimes>) = judged.into_iter().unzip();
        self.charge(of, &parts, spent);
        let mut alone = Vec::new();
        for (i, outcome) in of.iter().zip(outcomes) {
            if matches!(outcome, Outcome::OutOfMemory { .. }) && of.len() > 1 {
                alone.push(*i);
            } else {
                self.outcomes[*i] = Some(outcome);
            }
        }
        alone
    }

    /// Blames a failure on one of these kernels, if it is known which, or on what all
    /// of them need, which leaves them unanswered; those to be measured alone otherwise.
    pub fn fail(
        &mut self,
        of: &[usize],
        failure: (Outcome, Option<usize>),
        spent: Spent,
    ) -> Vec<usize> {
        self.charge(of, &[], spent);
        match failure {
            (outcome @ Outcome::Unanswered { .. }, _) => {
                for i in of {
                    self.outcomes[*i] = Some(outcome.clone());
                }
                vec![]
            }
            (outcome, Some(at)) if at < of.len() => {
                self.outcomes[of[at]] = Some(outcome);
                vec![]
            }
            _ => of.to_vec(),
        }
    }

    /// Takes the outcome of a kernel that was measured alone.
    pub fn replace(&mut self, kernel: usize, alone: Measured) {
        self.whole[kernel] += alone.whole;
        self.parts[kernel] += alone.parts;
        self.outcomes[kernel] = Some(alone.outcome);
    }

    /// Once none is left.
    pub fn measured(self) -> Vec<Measured> {
        let outcomes = self.outcomes.into_iter().flatten();
        let spent = self.whole.into_iter().zip(self.parts);
        let one = |(outcome, (whole, parts))| Measured {
            outcome,
            whole,
            parts,
        };
        outcomes.zip(spent).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Stage;

    fn spent(wall_ns: u64) -> Spent {
        Spent {
            wall_ns,
            cpu_ns: wall_ns / 2,
        }
    }

    #[test]
    fn what_lacked_memory_among_others_is_measured_alone() {
        let full = || Outcome::OutOfMemory { stage: Stage::Load };
        let unanswered = || Outcome::Unanswered { reason: "x".into() };
        let parts = |wall_ns| PartTimes {
            load: spent(wall_ns),
            ..PartTimes::default()
        };
        let mut ranks = RankOutcomes::new(4);
        let judged = vec![
            (full(), parts(0)),
            (unanswered(), parts(40)),
            (full(), parts(2)),
        ];
        let alone = ranks.settle(&[0, 2, 3], judged, spent(48));
        assert_eq!((alone, ranks.undecided()), (vec![0, 3], vec![0, 1, 3]));
        let none = vec![(full(), parts(0))];
        assert!(ranks.settle(&[3], none, spent(0)).is_empty());
        // It did not say whose fault it was: each for itself.
        assert_eq!(ranks.fail(&[0, 1], (full(), None), spent(20)), [0, 1]);
        assert_eq!(ranks.undecided(), [0, 1]);
        assert!(ranks.fail(&[0, 1], (full(), Some(1)), spent(0)).is_empty());
        assert!(ranks.fail(&[0], (unanswered(), None), spent(0)).is_empty());
        let measured = ranks.measured();
        let wall_ns: Vec<u64> = measured.iter().map(|m| m.whole.wall_ns).collect();
        assert_eq!(
            wall_ns,
            [12, 10, 42, 4],
            "its own, and its share of the rest"
        );
        let load_ns: Vec<u64> = measured.iter().map(|m| m.parts.load.wall_ns).collect();
        assert_eq!(load_ns, [0, 0, 40, 2]);
        let left = measured.iter().filter(|m| m.outcome == unanswered());
        assert_eq!(left.count(), 2);
    }
}
