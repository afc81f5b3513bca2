//! The time of a run: what is left of it, and how much of it each part gets.
//!
//! A run with a budget of time is over when that time has passed since its command
//! began, artifact and all. So every part has an end of its own, and what follows the
//! search is set aside for it. A budget of energy is the time at which it will be used up at the power of
//! the run so far. A run with a budget of trials takes what it takes. A run that is
//! asked to stop has [`FINISHING`] left, whatever its budget.

use crate::default_model::Size;
use crate::energy::Account;
use crate::error::{Error, Result};
use crate::{Options, StopRule};
use std::sync::Arc;
use std::time::{Duration, Instant};
use worker::Stop;

/// Share of the budget within which the model's layouts are decided.
const LAYOUTS: f64 = 0.25;
/// Largest share for ranking finalists, and for comparing the whole models.
const RANKING: f64 = 0.15;
const COMPARING: f64 = 0.15;
/// Largest share for choosing finalists inside the model, whatever is asked for.
const CHOOSING: f64 = 0.5;
/// Largest share for running the plain model, which nothing else depends on.
const PLAIN: f64 = 0.05;
/// Sampling one candidate takes no larger share of what is left for the search, over
/// the tasks that have no measurement yet.
const SAMPLING: f64 = 1.0 / 16.0;

/// Time that a run still takes once it is asked to stop.
pub const FINISHING: Duration = Duration::from_millis(2000);

#[derive(Clone, Debug)]
enum Limit {
    None,
    Time(Duration),
    /// Joules, and who counts them.
    Energy(f64, Arc<Account>),
}

/// What a run's budget of time allows; nothing is limited where it has none.
#[derive(Clone, Debug)]
pub struct Clock {
    begun: Instant,
    limit: Limit,
    /// Models that share it.
    models: u32,
    stop: Stop,
}

impl Clock {
    /// Of a run whose command began then, and which may be asked to stop.
    pub fn new(begun: Instant, rule: StopRule, stop: Stop) -> Clock {
        let limit = match rule {
            StopRule::Time(time) => Limit::Time(time),
            StopRule::Trials(_) | StopRule::Energy(_) => Limit::None,
        };
        Clock {
            begun,
            limit,
            models: 1,
            stop,
        }
    }

    /// Of a run with these options.
    pub fn of(options: &Options) -> Clock {
        let clock = Clock::new(options.begun, options.stop, options.interrupt.clone());
        match (options.stop, &options.energy) {
            (StopRule::Energy(joules), Some(account)) => Clock {
                limit: Limit::Energy(joules, account.clone()),
                ..clock
            },
            _ => clock,
        }
    }

    /// The budget as a time.
    fn budget(&self) -> Option<Duration> {
        match &self.limit {
            Limit::None => None,
            Limit::Time(time) => Some(*time),
            Limit::Energy(joules, account) => Some(account.lasts(*joules)),
        }
    }

    /// Whether the run was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }

    /// # Errors
    /// If the run was asked to stop, for what takes long and can be given up.
    pub fn goes_on(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(Error::stopped()),
            false => Ok(()),
        }
    }

    /// The time of the whole run, if it is limited.
    pub fn time(&self) -> Option<Duration> {
        let asked = self.stop.asked();
        let stopped = asked.map(|at| at.saturating_duration_since(self.begun) + FINISHING);
        match (self.budget(), stopped) {
            (Some(time), Some(stopped)) => Some(time.min(stopped)),
            (time, stopped) => time.or(stopped),
        }
    }

    /// The same time, of which each of so many models gets its part.
    #[must_use]
    pub fn shared_by(self, models: usize) -> Clock {
        let models = u32::try_from(models).unwrap_or(u32::MAX).max(1);
        Clock { models, ..self }
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// When the run ends, less what is set aside for what comes then.
    pub fn end(&self, aside: Duration) -> Option<Instant> {
        let time = self.time()?.saturating_sub(aside);
        Some(self.begun + time)
    }

    /// What is left until the run ends, less what is set aside.
    pub fn left(&self, aside: Duration) -> Duration {
        let until = |end: Instant| end.saturating_duration_since(Instant::now());
        self.end(aside).map_or(Duration::MAX, until)
    }

    fn share(&self, of: f64) -> Duration {
        let part = of / f64::from(self.models);
        let time = match self.is_stopped() {
            true => Some(FINISHING),
            false => self.budget(),
        };
        time.map_or(Duration::MAX, |t| t.mul_f64(part))
    }

    /// When layouts are decided, if that begins now.
    pub fn layouts_end(&self) -> Option<Instant> {
        let share = self.share(LAYOUTS).min(self.left(Duration::ZERO));
        self.time().map(|_| Instant::now() + share)
    }

    /// Time for comparing models, if all of it takes that long; enough for running one once.
    pub fn comparing(&self, all: Duration, size: &Size) -> Duration {
        all.min(self.share(COMPARING)).max(size.inference)
    }

    /// Time for ranking, if all of it takes that long.
    pub fn ranking(&self, all: Duration) -> Duration {
        all.min(self.share(RANKING))
    }

    /// Time for choosing finalists inside the model, if that may take so long; none if that
    /// is less than it needs.
    pub fn choosing(&self, all: Duration, least: Duration) -> Duration {
        let time = all.min(self.share(CHOOSING));
        let suffices = time >= least && !self.is_stopped();
        if suffices { time } else { Duration::ZERO }
    }

    /// Whether a plain model that takes so long is run.
    pub fn bears_plain(&self, inference: Duration) -> bool {
        inference <= self.share(PLAIN) && !self.is_stopped()
    }

    /// Most time for sampling one candidate, while so many tasks have no measurement.
    pub fn sampling(&self, left: Duration, unmeasured: usize) -> Duration {
        match self.time() {
            Some(_) => left.mul_f64(SAMPLING / unmeasured.max(1) as f64),
            None => Duration::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn of(seconds: u32) -> Clock {
        let rule = StopRule::Time(seconds * S);
        Clock::new(Instant::now(), rule, Stop::default())
    }

    #[test]
    fn a_budget_of_trials_limits_no_time() {
        let clock = Clock::new(Instant::now(), StopRule::Trials(1), Stop::default());
        assert_eq!((clock.end(S), clock.layouts_end()), (None, None));
        for allowed in [
            clock.left(1000 * S),
            clock.ranking(Duration::MAX),
            clock.sampling(S, 3),
        ] {
            assert_eq!(allowed, Duration::MAX);
        }
        assert!(clock.bears_plain(10_000 * S));
        assert_eq!(clock.comparing(3 * S, &Size::default()), 3 * S);
    }

    #[test]
    fn a_run_that_is_asked_to_stop_has_a_little_time_left() {
        for rule in [StopRule::Time(1000 * S), StopRule::Trials(1_000_000)] {
            let stop = Stop::default();
            let clock = Clock::new(Instant::now() - 100 * S, rule, stop.clone());
            assert!(!clock.is_stopped() && clock.left(S) > 800 * S);
            let asked = Instant::now();
            stop.ask();
            let left = clock.left(Duration::ZERO);
            assert!(
                left <= FINISHING && left + asked.elapsed() >= FINISHING,
                "{left:?}"
            );
            assert!(clock.ranking(100 * S) <= FINISHING.mul_f64(RANKING));
            assert_eq!(clock.choosing(S, S / 1000), Duration::ZERO);
            assert!(!clock.bears_plain(S / 1000));
        }
        // Nor does a stop make a run longer.
        let stop = Stop::default();
        let rule = StopRule::Time(100 * S);
        let clock = Clock::new(Instant::now() - 99 * S, rule, stop.clone());
        stop.ask();
        assert!(clock.left(Duration::ZERO) <= S);
    }

    #[test]
    fn what_is_set_aside_is_taken_from_the_end() {
        let clock = of(100);
        let whole = clock.end(Duration::ZERO).unwrap();
        assert_eq!(whole - clock.end(30 * S).unwrap(), 30 * S);
        assert!(clock.left(30 * S) <= 70 * S && clock.left(30 * S) > 60 * S);
        assert_eq!(clock.left(200 * S), Duration::ZERO);
        let rule = StopRule::Time(100 * S);
        let late = Clock::new(Instant::now() - 200 * S, rule, Stop::default());
        assert_eq!(late.left(Duration::ZERO), Duration::ZERO);
        assert!(late.layouts_end().unwrap() <= Instant::now());
    }

    #[test]
    fn parts_of_short_runs_are_short_and_slow_models_get_what_they_need() {
        let small = Size::default();
        assert_eq!(of(60).comparing(3 * S, &small), 3 * S);
        assert_eq!(of(10).comparing(3 * S, &small), S * 3 / 2);
        let slow = Size {
            inference: 2 * S,
            ..small
        };
        assert_eq!(of(10).comparing(3 * S, &slow), 2 * S);
        assert_eq!(of(100).ranking(5 * S), 5 * S);
        assert_eq!(of(10).ranking(5 * S), S * 3 / 2);
        assert_eq!(of(10).choosing(2 * S, S), 2 * S);
        assert_eq!(of(10).choosing(9 * S, S), 5 * S);
        assert_eq!(of(10).choosing(9 * S, 6 * S), Duration::ZERO);
        assert!(of(20).bears_plain(S) && !of(20).bears_plain(S * 11 / 10));
        assert_eq!(of(1).sampling(32 * S, 2), S);
        assert_eq!(of(1).sampling(32 * S, 0), 2 * S);
    }
}
