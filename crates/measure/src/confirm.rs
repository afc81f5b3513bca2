//! Measuring again what looks better than everything before.
//!
//! Owns which candidates of a batch are measured a second time, and what both measurements say together. The
//! least of many noisy figures is too good more often than not, and a search follows it. So a
//! candidate that would become the incumbent is measured once more, alone.

use crate::dispatch::{Assignment, Dispatch, Round};
use crate::measured::Measured;
use crate::measurer::Measurer;
use crate::policy::Policy;
use store::Outcome;

impl Measurer {
    /// Measures candidates of a measured batch again as long as the least of the batch is less than `best_ns` and was
    /// measured once. Without `best_ns` the least of the batch is what would become the incumbent.
    ///
    /// The samples of both measurements count alike, so the median is that of both. Samples that were taken beside other
    /// candidates are replaced. A candidate that fails the second time has failed; one that has no time for it keeps
    /// its first outcome.
    pub fn confirm<B: ?Sized>(
        &self,
        dispatch: &mut (impl Dispatch<B> + ?Sized),
        batch: &B,
        outcomes: &mut [Measured],
        best_ns: Option<u64>,
        quiet: &mut dyn FnMut(bool),
    ) {
        let alone = self.policy == Policy::Doppler;
        let round = Round {
            dp: 1,
            limit: self.limit,
            each: self.limit,
            quiet: alone,
            fresh: self.policy == Policy::SerialSpawn,
            host_clock: self.policy == Policy::Naive,
            retry: true,
            // What is to be confirmed is not given up.
            slower: None,
            measurer: self.policy,
        };
        let mut confirmed = vec![false; outcomes.len()];
        while let Some(candidate) = least(outcomes, best_ns).filter(|c| !confirmed[*c]) {
            confirmed[candidate] = true;
            let assignment = Assignment {
                candidate,
                device: candidate % dispatch.devices(),
            };
            if alone {
                quiet(true);
            }
            let again = dispatch.round(batch, &[assignment], &round);
            if alone {
                quiet(false);
            }
            again
                .into_iter()
                .for_each(|again| outcomes[candidate].confirmed(again));
        }
    }
}

/// The candidate of the least time, if that is less than the best before.
fn least(outcomes: &[Measured], best_ns: Option<u64>) -> Option<usize> {
    let timed = outcomes.iter().enumerate();
    let timed = timed.filter_map(|(i, m)| Some((m.outcome.median_ns()?, i)));
    let (ns, i) = timed.min()?;
    best_ns.is_none_or(|best| ns < best).then_some(i)
}

impl Measured {
    /// Takes what a second measurement says.
    fn confirmed(&mut self, mut again: Measured) {
        if matches!(again.outcome, Outcome::Unanswered { .. }) {
            return;
        }
        if let (
            Outcome::Timed {
                samples_ns: first,
                clock: first_clock,
                conditions: before,
            },
            Outcome::Timed {
                samples_ns,
                clock,
                conditions,
            },
        ) = (&self.outcome, &mut again.outcome)
        {
            if (before.dp, before.scale) == (1, None) && first_clock == clock {
                samples_ns.splice(0..0, first.iter().copied());
            }
            // What its round was like is still true.
            conditions.round_dp = before.round_dp;
            conditions.delta = before.delta;
            let beside = self.outcome.median_ns().filter(|_| before.dp > 1);
            let taken = |ns: u64| (ns as f64 / before.scale.unwrap_or(1.0)).round() as u64;
            conditions.parallel_ns = before.parallel_ns.or(beside.map(taken));
        }
        self.retried(again);
    }
}
