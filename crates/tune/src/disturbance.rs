//! What disturbs measuring while a run goes on: the frequency of the CPU, and
//! runners that fail.
//!
//! Owns what is said of it: events for the log, and warnings, each once. Records
//! hold the drift that their samples were taken at (`store::Conditions::drift`).

use crate::error::Result;
use crate::record;
use crate::run::Run;
use store::{Extra, Outcome, Reference};

/// Changes of the drift below this are not worth an event.
const TELLING: f64 = 0.01;

/// What was said so far.
#[derive(Debug, Default)]
pub struct Disturbances {
    /// The drift of the last event.
    logged: Option<f64>,
    /// Whether it was said that the drift is beyond its limit.
    warned: bool,
    pub warnings: Vec<String>,
}

/// The drift farthest from none among timed candidates, with the time of the
/// reference kernel.
fn farthest<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Option<(f64, u64)> {
    let of = |outcome: &Outcome| match outcome {
        Outcome::Timed { conditions: c, .. } => Some((c.drift?, c.reference_ns?)),
        _ => None,
    };
    let all = outcomes.into_iter().filter_map(of);
    all.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))
}

impl Disturbances {
    /// Takes note of a drift; whether it is worth an event.
    fn drift(&mut self, drift: f64, limit: f64) -> bool {
        if drift.abs() > limit && !self.warned {
            self.warned = true;
            let (by, than) = (100.0 * drift.abs(), 100.0 * limit);
            let how = if drift > 0.0 { "slower" } else { "faster" };
            self.warnings.push(format!(
                "the CPU ran {by:.1}% {how} than when the run began (--drift allows {than:.1}%); each candidate's record holds the change"
            ));
        }
        let telling = self.logged.is_none_or(|l| (drift - l).abs() > TELLING);
        if telling {
            self.logged = Some(drift);
        }
        telling
    }
}

impl Run<'_> {
    /// Notes what people should know of an evaluator.
    pub fn note_warnings(&mut self, evaluator: usize) {
        let new = self.evaluators[evaluator].take_warnings();
        self.disturbances.warnings.extend(new);
    }

    /// Notes how fast the CPU was when candidates of a search were measured.
    pub fn note_drift<'a>(
        &mut self,
        search: usize,
        outcomes: impl IntoIterator<Item = &'a Outcome>,
    ) -> Result<()> {
        let Some((drift, reference_ns)) = farthest(outcomes) else {
            return Ok(());
        };
        if self.disturbances.drift(drift, self.options.drift) {
            let reference = Reference {
                drift,
                reference_ns,
                extra: Extra::new(),
            };
            let event = record::run_event(&self.searches[search].run_id, reference);
            self.log.append(&[], &[event])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_is_warned_of_once_and_logged_when_it_changes() {
        let mut d = Disturbances::default();
        assert!(d.drift(0.0, 0.05), "the first");
        assert!(!d.drift(0.009, 0.05) && d.drift(0.04, 0.05));
        assert!(d.warnings.is_empty());
        assert!(d.drift(0.08, 0.05) && !d.drift(0.08, 0.05) && d.drift(-0.2, 0.05));
        assert_eq!(d.warnings.len(), 1);
        assert!(d.warnings[0].contains("8.0% slower"), "{:?}", d.warnings);
        let mut d = Disturbances::default();
        d.drift(-0.2, 0.05);
        assert!(d.warnings[0].contains("20.0% faster"), "{:?}", d.warnings);
    }
}
