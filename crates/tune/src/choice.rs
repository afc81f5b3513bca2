//! Tuning does no harm: where the whole model is faster with the defaults than with
//! what measurements of single kernels promised, the defaults are kept. Where time
//! suffices for a few runs only, the tuned model has to win them.

use crate::default_model::{PROFILING, Size};
use crate::error::Result;
use crate::factorial::SIGNIFICANT;
use crate::latency::{Latencies, MIN_PAIRS, few, undisturbed};
use crate::layouts::profile;
use crate::record;
use crate::report::Report;
use crate::run::Run;
use runtime::{BuiltKernel, Model};
use std::sync::Arc;
use std::time::Duration;
use store::{Compared, Extra, Paired};

/// Time for the comparison, and the inferences of a model that it needs to be significant.
const TIME: Duration = Duration::from_secs(3);
const RUNS: u32 = 2 * (MIN_PAIRS as u32 + 1);

/// The defaults against the tuned kernels, as whole models.
pub struct Choice {
    pub default: bool,
    latencies: [Latencies; 2],
    /// Of the defaults against the tuned kernels.
    gain: Paired,
}

impl Choice {
    /// What a comparison takes that leaves no doubt.
    pub fn takes(size: &Size) -> Duration {
        TIME.max(RUNS * size.inference)
    }

    /// Compares them in as many rounds of `round` as `time` holds; where it does not hold two,
    /// by the steps of the default model, as they were when it was new, and the tuned one's
    /// taken alike. There is no tuned model where its kernels are the defaults.
    pub fn between(
        default: &mut Model,
        step_ns: &[u64],
        tuned: Option<&mut Model>,
        (time, round): (Duration, Duration),
    ) -> Result<Choice> {
        let rounds = usize::try_from(time.as_nanos() / round.as_nanos().max(1));
        let rounds = rounds.unwrap_or(usize::MAX);
        let steps = |ns: &[u64]| Latencies {
            samples_ns: vec![ns.iter().sum()],
        };
        let latencies = match tuned {
            Some(tuned) if rounds > MIN_PAIRS => {
                undisturbed(&mut [default, tuned], time.min(TIME), MIN_PAIRS)?
            }
            None if rounds > MIN_PAIRS => undisturbed(&mut [default], time.min(TIME), MIN_PAIRS)?,
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
        let of = |i: usize| latencies[i.min(latencies.len() - 1)].clone();
        let latencies = [of(0), of(1)];
        let [default, tuned] = &latencies;
        let logs = |l: &Latencies| -> Vec<f64> {
            let ns = l.samples_ns.iter();
            ns.map(|ns| (*ns).max(1) as f64).map(f64::ln).collect()
        };
        let differences: Vec<f64> = logs(default)
            .iter()
            .zip(logs(tuned))
            .map(|(d, t)| d - t)
            .collect();
        let gain = Paired::of(&differences);
        let sure = gain.p < SIGNIFICANT || gain.pairs < MIN_PAIRS;
        Choice {
            default: gain.latency_percent < 0.0 && sure,
            latencies,
            gain,
        }
    }

    pub fn fill(&self, report: &mut Report) {
        let [default, tuned] = &self.latencies;
        report.latency_default_ms = default.median_ms();
        report.latency_after_ms = if self.default { default } else { tuned }.median_ms();
        report.kept_default = self.default.then_some(self.gain);
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
        if choice.gain.pairs < MIN_PAIRS {
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
            gain: choice.gain,
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
    fn only_defaults_that_are_surely_faster_are_kept() {
        let slower = [103, 105, 104, 103, 106, 104, 105, 107, 104, 103];
        let faster = [100, 101, 99, 100, 102, 100, 101, 100, 99, 101];
        assert!(default_kept(&faster, &slower));
        assert!(!default_kept(&slower, &faster));
        assert!(!default_kept(&faster, &faster));
        let noisy = [99, 104, 98, 103, 104, 99, 101, 97, 102, 100];
        assert!(!default_kept(&faster, &noisy));
        assert!(default_kept(&faster[..3], &slower[..3]), "few, but won");
        assert!(!default_kept(&slower[..3], &faster[..3]));
        assert!(
            !Choice::of(&[Latencies {
                samples_ns: faster.into()
            }])
            .default
        );
    }
}
