//! Tuning does no harm: where the whole model is faster with the defaults than with
//! what measurements of single kernels promised, the defaults are kept.

use super::factorial::SIGNIFICANT;
use super::record;
use super::report::Report;
use super::session::Session;
use crate::bench::{Latencies, MIN_PAIRS, Paired, undisturbed};
use crate::error::Result;
use build::Built;
use runtime::Model;
use std::time::Duration;
use store::NewEvent;

/// The kind of the event that says whether the defaults are kept.
pub const EVENT: &str = "compared";
/// Time for the comparison.
const TIME: Duration = Duration::from_secs(3);

/// The defaults against the tuned kernels, as whole models.
pub struct Choice {
    pub default: bool,
    latencies: [Latencies; 2],
    /// Of the defaults against the tuned kernels.
    gain: Paired,
}

impl Choice {
    pub fn between(default: &mut Model, tuned: &mut Model) -> Result<Choice> {
        let latencies = undisturbed(&mut [default, tuned], TIME, MIN_PAIRS)?;
        let latencies: [Latencies; 2] = latencies.try_into().expect("one for each model");
        Ok(Choice::of(latencies))
    }

    /// Of latencies of the defaults and of the tuned model, taken in turns.
    fn of(latencies: [Latencies; 2]) -> Choice {
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
        Choice {
            default: gain.latency_percent < 0.0 && gain.p < SIGNIFICANT,
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

impl Session<'_> {
    /// Stores the choice for those who compile the model; it holds for the kernels that
    /// were compared, one a task.
    pub fn keep_choice(&self, choice: &Choice, tuned: &[Built]) -> Result<()> {
        let code = tuned.iter().map(|b| record::code_hash(&b.kernel));
        let event = NewEvent {
            run_id: self.run_id.clone(),
            kind: EVENT.into(),
            task: None,
            payload: serde_json::json!({
                "plan": self.plan.key(),
                "target": self.target_text,
                "machine": self.machine,
                "accuracy": self.options.accuracy.name(),
                "code": code.collect::<Vec<_>>(),
                "default": choice.default,
                "gain": choice.gain,
            }),
        };
        self.store.append(&[], &[event])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_kept(default: &[u64], tuned: &[u64]) -> bool {
        let of = |ns: &[u64]| Latencies {
            samples_ns: ns.to_vec(),
        };
        Choice::of([of(default), of(tuned)]).default
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
    }
}
