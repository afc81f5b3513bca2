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

/// How often both models are made anew, at most and at least if at all, and the part of the time asked
/// for that this may take. Where pages and code lie differs from one time to the next, and so may
/// latencies. Chosen by hand: six medians have bounds of 95%.
const MADE: [u32; 2] = [6, 12];
const MAKING: u32 = 2;

/// What a comparison may take.
pub struct Time<'a> {
    /// What is asked for.
    pub asked: Duration,
    /// One inference of each model.
    pub round: Duration,
    /// Making both models.
    pub making: Duration,
    /// What is left of the run.
    pub left: &'a dyn Fn() -> Duration,
}

impl Time<'_> {
    /// How often both models are made.
    fn times(&self) -> u32 {
        let [fewest, most] = MADE;
        let fit = (self.asked / MAKING).as_nanos() / self.making.as_nanos().max(1);
        let fit = u32::try_from(fit).unwrap_or(most).min(most);
        let rounds = self.asked >= self.round * 2 * fit;
        if fit >= fewest && rounds { fit } else { 1 }
    }
}

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

    /// Compares them for the time that is asked for, or in as many rounds as there is time left
    /// for; where that does not hold two, by the steps of the default model, as they were
    /// when it was new, and the tuned one's taken alike. There is no tuned model where its
    /// kernels are the defaults. `again` makes the defaults (0) or the tuned model (1) anew.
    pub fn between(
        default: &mut Model,
        step_ns: &[u64],
        tuned: Option<&mut Model>,
        again: &dyn Fn(usize) -> Result<Model>,
        time: &Time,
    ) -> Result<Choice> {
        let rounds = usize::try_from((time.left)().as_nanos() / time.round.as_nanos().max(1));
        let rounds = rounds.unwrap_or(usize::MAX);
        // What is quick is compared even if the time is over: profiles of different minutes
        // are no comparison.
        let rounds = match time.round * FEWEST as u32 <= QUICK {
            true => rounds.max(FEWEST + 1),
            false => rounds,
        };
        let steps = |ns: &[u64]| Latencies {
            samples_ns: vec![ns.iter().sum()],
        };
        let begin = Instant::now();
        let mut more = || begin.elapsed() < time.asked && (time.left)() > time.round;
        let latencies = match tuned {
            Some(tuned) if rounds > MIN_PAIRS => {
                return compared([default, tuned], again, time).map(|all| Choice::of(&all));
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
        Ok(Choice::of(&[latencies]))
    }

    /// Of latencies of the defaults and of the tuned model, taken in turns, for each time that
    /// the models were made.
    fn of(latencies: &[Vec<Latencies>]) -> Choice {
        let logs = |l: &Latencies| -> Vec<f64> {
            let ns = l.samples_ns.iter();
            ns.map(|ns| (*ns).max(1) as f64).map(f64::ln).collect()
        };
        let of_default = latencies.iter().filter_map(|of| of.first());
        let default_latencies = Latencies {
            samples_ns: of_default.flat_map(|l| l.samples_ns.clone()).collect(),
        };
        if latencies.iter().any(|of| of.len() < 2) {
            return Choice {
                default: false,
                against: Paired::of(&vec![0.0; default_latencies.samples_ns.len()]),
                default_latencies,
                gain: None,
            };
        }
        // Above 0 where the tuned model is faster.
        let faster = latencies.iter().map(|of| {
            let pairs = logs(&of[0]).into_iter().zip(logs(&of[1]));
            pairs.map(|(d, t)| d - t).collect::<Vec<f64>>()
        });
        let faster: Vec<Vec<f64>> = faster.collect();
        let gain = Gain::of(&faster);
        let faster = faster.concat();
        let slower: Vec<f64> = faster.iter().map(|f| -f).collect();
        let sure = match faster.len() < MIN_PAIRS {
            true => gain.low > FEW,
            false => Paired::of(&slower).p < SIGNIFICANT && gain.low > 1.0,
        };
        Choice {
            default: !sure,
            against: Paired::of(&faster),
            default_latencies,
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

/// Latencies of the defaults and of the tuned model, taken in turns, for each time that they are
/// made: longer than asked where the gain's bounds are wide.
fn compared(
    [default, tuned]: [&mut Model; 2],
    again: &dyn Fn(usize) -> Result<Model>,
    time: &Time,
) -> Result<Vec<Vec<Latencies>>> {
    let (begin, times) = (Instant::now(), time.times());
    let least = MIN_PAIRS.div_ceil(times as usize);
    // Making them is no comparison.
    let mut comparing = Duration::ZERO;
    let mut all: Vec<Vec<Latencies>> = vec![];
    loop {
        let made = all.len() as u32;
        let is_wide = || Choice::of(&all).gain.is_some_and(|g| g.is_wide(WIDE));
        let in_time = begin.elapsed() < PATIENCE * time.asked && (time.left)() > time.round;
        if made >= times && !(is_wide() && in_time) {
            return Ok(all);
        }
        if made > 0 && times > 1 && (time.left)() > time.making {
            *default = again(0)?;
            *tuned = again(1)?;
        }
        let start = Instant::now();
        let until = match times {
            1 if made > 0 => time.asked / 2,
            _ => (time.asked * (made + 1) / times).saturating_sub(comparing),
        };
        let mut more = || start.elapsed() < until && (time.left)() > time.round;
        all.push(undisturbed(&mut [default, tuned], least, &mut more)?);
        comparing += start.elapsed();
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
        Choice::of(&[vec![of(default), of(tuned)]]).default
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
        let same = Choice::of(&[vec![Latencies {
            samples_ns: faster.into(),
        }]]);
        assert!(!same.default && same.gain.is_none());
    }

    #[test]
    fn a_gain_has_bounds_of_the_rounds() {
        let of = |ns: &[u64]| Latencies {
            samples_ns: ns.to_vec(),
        };
        let default: Vec<u64> = (0..200).map(|i| 1500 + i % 7).collect();
        let tuned: Vec<u64> = (0..200).map(|i| 1000 + i % 5).collect();
        let gain = Choice::of(&[vec![of(&default), of(&tuned)]]).gain.unwrap();
        assert!(gain.low > 1.48 && gain.high < 1.52, "{gain:?}");
        assert!(
            gain.low <= gain.times && gain.times <= gain.high,
            "{gain:?}"
        );
        let few = Choice::of(&[vec![of(&default[..3]), of(&tuned[..3])]])
            .gain
            .unwrap();
        assert!(
            few.low < few.times && few.times < few.high,
            "what was met: {few:?}"
        );
    }

    #[test]
    fn models_that_are_made_anew_widen_the_bounds_by_what_differs_between_them() {
        let of = |ns: u64| Latencies {
            samples_ns: (0..50).map(|i| ns + i % 3).collect(),
        };
        let made = [1000, 1010, 990, 1020, 1005, 1015];
        let pairs = made.map(|ns| vec![of(1500), of(ns)]);
        let gain = Choice::of(&pairs).gain.unwrap();
        assert!(
            gain.low < 1500.0 / 1015.0 && gain.high > 1500.0 / 995.0,
            "{gain:?}"
        );
        let one = Choice::of(&pairs[..1]).gain.unwrap();
        assert!(
            one.high - one.low < gain.high - gain.low,
            "{one:?} {gain:?}"
        );
    }

    #[test]
    fn models_are_made_anew_where_that_takes_less_than_half_of_the_comparison() {
        let times = |making: u64, round: u64| {
            let time = Time {
                asked: Duration::from_secs(3),
                round: Duration::from_millis(round),
                making: Duration::from_millis(making),
                left: &|| Duration::MAX,
            };
            time.times()
        };
        assert_eq!([times(10, 5), times(200, 5), times(300, 5)], [12, 7, 1]);
        assert_eq!(times(10, 200), 1);
    }
}
