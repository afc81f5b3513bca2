//! A device that exists in tests only: latency, contention and failure are
//! functions of what runs beside a candidate, and time passes as they say.

use measure::{Assignment, Dispatch, Measured, PartTimes, RANKING, Ranking, Round, Spent};
use std::time::Duration;
use store::{Clock, Conditions, Outcome, Stage};

/// When a candidate fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    Never,
    Always,
    /// With any other candidate beside it.
    Beside,
    /// It never ends.
    Hangs,
}

#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Of a launch, alone.
    pub ns: u64,
    /// Share that each candidate beside it adds to that.
    pub contention: f64,
    pub fails: Fails,
}

/// A candidate that nothing disturbs.
pub fn calm(ns: u64) -> Candidate {
    Candidate {
        ns,
        contention: 0.0,
        fails: Fails::Never,
    }
}

pub struct FakeDevice {
    pub devices: usize,
    pub capacity: u32,
    /// Devices leave each other alone.
    pub independent: bool,
    /// Every round as it was asked for.
    pub rounds: Vec<(Vec<Assignment>, Round)>,
    now: Duration,
    end: Option<Duration>,
}

const LAUNCHES: u64 = 60;

impl FakeDevice {
    pub fn new(devices: usize, capacity: u32) -> FakeDevice {
        FakeDevice {
            devices,
            capacity,
            independent: false,
            rounds: vec![],
            now: Duration::ZERO,
            end: None,
        }
    }

    /// Whether a time is too late to begin.
    fn is_over(&self, time: Duration) -> bool {
        self.end.is_some_and(|end| time >= end)
    }
}

/// The outcome of a candidate that had no time left.
fn unanswered() -> Outcome {
    Outcome::Unanswered {
        reason: "the time for it was over".into(),
    }
}

fn measured(outcome: Outcome, time: Duration) -> Measured {
    Measured {
        outcome,
        whole: Spent {
            wall_ns: time.as_nanos() as u64,
            cpu_ns: 0,
        },
        parts: PartTimes::default(),
    }
}

fn crashed() -> Outcome {
    Outcome::Crashed {
        stage: Stage::Run,
        signal: Some(11),
        stderr: String::new(),
    }
}

/// What a ranking says of a candidate that had so many turns, and what it took.
fn rank_one(c: &Candidate, turns: u32, ranking: &Ranking) -> (Outcome, Duration) {
    match c.fails {
        Fails::Always => return (crashed(), Duration::from_nanos(c.ns)),
        Fails::Hangs => {
            let limit_ms = ranking.each.as_millis() as u64;
            let stage = Stage::Run;
            return (Outcome::TimedOut { stage, limit_ms }, ranking.each);
        }
        // Nothing is beside it.
        Fails::Never | Fails::Beside => {}
    }
    let timed = Outcome::Timed {
        samples_ns: vec![c.ns; turns as usize],
        clock: Clock::HostMonotonic,
        conditions: Conditions {
            isolated: true,
            overlap: false,
            measurer: Some(RANKING.into()),
            ..Conditions::unproven(1, 1)
        },
    };
    (timed, Duration::from_nanos(c.ns) * turns)
}

fn measure(c: &Candidate, width: u32, several: bool, round: &Round) -> (Outcome, Duration) {
    let fails = match c.fails {
        Fails::Never => false,
        Fails::Always => true,
        Fails::Beside => width > 1,
        Fails::Hangs => {
            let limit_ms = round.each.as_millis() as u64;
            let stage = Stage::Run;
            return (Outcome::TimedOut { stage, limit_ms }, round.each);
        }
    };
    let slower = 1.0 + c.contention * f64::from(width - 1);
    let ns = (c.ns as f64 * slower) as u64;
    let took = Duration::from_nanos(ns * LAUNCHES);
    if fails {
        return (crashed(), took);
    }
    let timed = Outcome::Timed {
        samples_ns: vec![ns],
        clock: Clock::ThreadCpu,
        conditions: Conditions {
            isolated: round.quiet && width == 1 && !several,
            measurer: Some(round.measurer.name().into()),
            latency_ns: Some(ns),
            span_ns: Some(ns * LAUNCHES),
            launches: Some(LAUNCHES),
            ..Conditions::unproven(1, width)
        },
    };
    (timed, took)
}

impl Dispatch<[Candidate]> for FakeDevice {
    fn devices(&self) -> usize {
        self.devices
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn independent(&self) -> bool {
        self.independent
    }

    fn round(
        &mut self,
        batch: &[Candidate],
        assignments: &[Assignment],
        round: &Round,
    ) -> Vec<Measured> {
        self.rounds.push((assignments.to_vec(), *round));
        let of = |device: usize| assignments.iter().filter(|a| a.device == device).count() as u32;
        let width = |device: usize| of(device).min(round.dp).min(self.capacity);
        let all = assignments.len() as u32;
        let several = !self.independent && (0..self.devices).any(|d| of(d) > 0 && of(d) < all);
        let mut took = vec![Duration::ZERO; self.devices];
        let mut outcomes = Vec::new();
        for a in assignments {
            if self.is_over(self.now + took[a.device]) {
                outcomes.push(measured(unanswered(), Duration::ZERO));
                continue;
            }
            let (outcome, time) = measure(&batch[a.candidate], width(a.device), several, round);
            took[a.device] += time / width(a.device);
            outcomes.push(measured(outcome, time));
        }
        self.now += took.into_iter().max().unwrap_or_default();
        outcomes
    }

    fn rank(
        &mut self,
        batch: &[Candidate],
        candidates: &[usize],
        ranking: &Ranking,
    ) -> Vec<Measured> {
        let limit = self.now + ranking.each * candidates.len() as u32;
        let a_turn: Duration = candidates
            .iter()
            .map(|c| Duration::from_nanos(batch[*c].ns))
            .sum();
        let fits = |turn: &u32| {
            let begins = self.now + a_turn * *turn;
            begins <= limit && !self.is_over(begins)
        };
        let turns = (0..ranking.turns).take_while(fits).count() as u32;
        let mut outcomes = Vec::new();
        for c in candidates {
            let (outcome, time) = match turns {
                0 => (unanswered(), Duration::ZERO),
                _ => rank_one(&batch[*c], turns, ranking),
            };
            self.now += time;
            outcomes.push(measured(outcome, time));
        }
        outcomes
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn end_by(&mut self, end: Option<Duration>) {
        self.end = end;
    }
}
