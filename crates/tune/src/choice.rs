//! Tuning does no harm: the tuned model is the result only where it is surely faster than the
//! defaults as a whole, whatever measurements of single kernels promised. Where time suffices
//! for a few runs only, the tuned model has to win them.

use crate::default_model::{PROFILING, Size};
use crate::error::Result;
use crate::factorial::SIGNIFICANT;
use crate::latency::{Latencies, MIN_PAIRS, few, undisturbed};
use crate::layouts::profile;
use crate::record;
use crate::report::{Gain, Report};
use crate::run::Run;
use runtime::{BuiltKernel, Model};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Compared, Extra, Paired};

/// Inferences of a model that a comparison needs to be significant.
const RUNS: u32 = 2 * (MIN_PAIRS as u32 + 1);

/// Rounds that have bounds, and the time in which they are run whatever is left.
const FEWEST: usize = 6;
const QUICK: Duration = Duration::from_secs(1);

/// How much faster a tuned model has to be at least, where there are few rounds.
const FEW: f64 = 1.02;

/// Bounds of a gain that are further away from it than this are wide, and take more rounds: at most
/// so many times the time that was asked for.
const WIDE: f64 = 1.03;
const PATIENCE: u32 = 10;

/// The defaults against the tuned kernels, as whole models.
pub struct Choice {
    pub default: bool,
    default_latencies: Latencies,
    /// Of the defaults against the tuned kernels.
    against: Paired,
    /// The tuned model against the defaults; none if they are the same.
    gain: Option<Gain>,
}

impl Choice {
    /// What a comparison takes that leaves no doubt, where so much time is asked for.
    pub fn takes(size: &Size, asked: Duration) -> Duration {
        asked.max(RUNS * size.inference)
    }

    /// Compares them for `asked`, or in as many rounds of `round` as `left` says that there is
    /// time for; where that does not hold two, by the steps of the default model, as they were
    /// when it was new, and the tuned one's taken alike. There is no tuned model where its
    /// kernels are the defaults.
    pub fn between(
        default: &mut Model,
        step_ns: &[u64],
        tuned: Option<&mut Model>,
        [asked, round]: [Duration; 2],
        left: &dyn Fn() -> Duration,
    ) -> Result<Choice> {
        let rounds = usize::try_from(left().as_nanos() / round.as_nanos().max(1));
        let rounds = rounds.unwrap_or(usize::MAX);
        // What is quick is compared even if the time is over: profiles of different minutes
        // are no comparison.
        let rounds = match round * FEWEST as u32 <= QUICK {
            true => rounds.max(FEWEST + 1),
            false => rounds,
        };
        let steps = |ns: &[u64]| Latencies {
            samples_ns: vec![ns.iter().sum()],
        };
        let begin = Instant::now();
        let mut more = || begin.elapsed() < asked && left() > round;
        let latencies = match tuned {
            Some(tuned) if rounds > MIN_PAIRS => {
                let mut models = [default, tuned];
                let mut all = undisturbed(&mut models, MIN_PAIRS, &mut more)?;
                let gain = |all: &[Latencies]| Choice::of(all).gain;
                while gain(&all).is_some_and(|g| g.is_wide(WIDE))
                    && begin.elapsed() < PATIENCE * asked
                    && left() > round
                {
                    let until = begin.elapsed() + asked / 2;
                    let mut more = || begin.elapsed() < until && left() > round;
                    let again = undisturbed(&mut models, 1, &mut more)?;
                    for (all, again) in all.iter_mut().zip(again) {
                        all.samples_ns.extend(again.samples_ns);
                    }
                }
                all
            }
            None if rounds > MIN_PAIRS => undisturbed(&mut [default], MIN_PAIRS, &mut more)?,
            Some(tuned) if rounds > 1 => {
                // Its first run meets cold memory.
                tuned.invoke()?;
                few(&mut [default, tuned], rounds - 1)?
            }
            Some(tuned) => vec![steps(step_ns), steps(&profile(tuned, PROFILING)?)],
            None => vec![steps(step_ns)],
        };
        Ok(Choice::of(&latencies))
    }

    /// Of latencies of the defaults and of the tuned model, taken in turns.
    fn of(latencies: &[Latencies]) -> Choice {
        let logs = |l: &Latencies| -> Vec<f64> {
            let ns = l.samples_ns.iter();
            ns.map(|ns| (*ns).max(1) as f64).map(f64::ln).collect()
        };
        let [default, tuned] = latencies else {
            let same = latencies.first().cloned().unwrap_or_default();
            return Choice {
                default: false,
                against: Paired::of(&vec![0.0; same.samples_ns.len()]),
                default_latencies: same,
                gain: None,
            };
        };
        let pairs = logs(default).into_iter().zip(logs(tuned));
        // Above 0 where the tuned model is faster.
        let faster: Vec<f64> = pairs.map(|(d, t)| d - t).collect();
        let slower: Vec<f64> = faster.iter().map(|f| -f).collect();
        let gain = Gain::of(&faster);
        let sure = match faster.len() < MIN_PAIRS {
            true => gain.low > FEW,
            false => Paired::of(&slower).p < SIGNIFICANT && gain.low > 1.0,
        };
        Choice {
            default: !sure,
            against: Paired::of(&faster),
            default_latencies: default.clone(),
            gain: Some(gain),
        }
    }

    pub fn fill(&self, report: &mut Report) {
        let default = &self.default_latencies;
        report.latency_default_ms = default.median_ms();
        report.changed = self.gain.is_some() && !self.default;
        // The gain is the median of ratios, so medians of both latencies have another ratio.
        let gain = self.gain.filter(|_| report.changed);
        report.latency_after_ms = report.latency_default_ms / gain.map_or(1.0, |g| g.times);
        report.kept_default = self.default.then_some(self.against);
        report.gain = self.gain;
    }
}

impl Run<'_> {
    /// Stores a choice that leaves no doubt for those who compile the model; it holds for
    /// the kernels that were compared, one a task.
    pub fn keep_choice(
        &self,
        job: usize,
        choice: &Choice,
        tuned: &[Arc<BuiltKernel>],
    ) -> Result<()> {
        if choice.against.pairs < MIN_PAIRS {
            // So few runs decide this model, and nothing for later ones.
            return Ok(());
        }
        let job = &self.jobs[job];
        let compared = Compared {
            plan: job.plan.key().to_string(),
            target: job.place.target.clone(),
            machine: job.place.machine.clone(),
            accuracy: self.options.accuracy.name().to_string(),
            space: self.options.space.name().to_string(),
            code: tuned.iter().map(|k| record::code_hash(k)).collect(),
            default: choice.default,
            gain: choice.against,
            extra: Extra::new(),
        };
        let event = record::run_event(&job.run_id, compared);
        self.log.append(&[], &[event])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_kept(default: &[u64], tuned: &[u64]) -> bool {
        let of = |ns: &[u64]| Latencies {
            samples_ns: ns.to_vec(),
        };
        Choice::of(&[of(default), of(tuned)]).default
    }

    #[test]
    fn only_a_tuned_model_that_is_surely_faster_is_taken() {
        let slower = [103, 105, 104, 103, 106, 104, 105, 107, 104, 103];
        let faster = [100, 101, 99, 100, 102, 100, 101, 100, 99, 101];
        assert!(default_kept(&faster, &slower));
        assert!(!default_kept(&slower, &faster));
        assert!(default_kept(&faster, &faster), "as fast is not faster");
        let noisy = [99, 104, 98, 103, 104, 99, 101, 97, 102, 100];
        assert!(default_kept(&faster, &noisy) && default_kept(&noisy, &faster));
        assert!(default_kept(&faster[..3], &slower[..3]));
        assert!(!default_kept(&slower[..3], &faster[..3]), "few, but won");
        // The same code is no choice.
        let same = Choice::of(&[Latencies {
            samples_ns: faster.into(),
        }]);
        assert!(!same.default && same.gain.is_none());
    }

    #[test]
    fn a_gain_has_bounds_of_the_rounds() {
        let of = |ns: &[u64]| Latencies {
            samples_ns: ns.to_vec(),
        };
        let default: Vec<u64> = (0..200).map(|i| 1500 + i % 7).collect();
        let tuned: Vec<u64> = (0..200).map(|i| 1000 + i % 5).collect();
        let gain = Choice::of(&[of(&default), of(&tuned)]).gain.unwrap();
        assert!(gain.low > 1.48 && gain.high < 1.52, "{gain:?}");
        assert!(
            gain.low <= gain.times && gain.times <= gain.high,
            "{gain:?}"
        );
        let few = Choice::of(&[of(&default[..3]), of(&tuned[..3])])
            .gain
            .unwrap();
        assert!(
            few.low < few.times && few.times < few.high,
            "what was met: {few:?}"
        );
    }
}
