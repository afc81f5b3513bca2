//! A device that exists in tests only: latency, contention and failure are
//! functions of what runs beside a candidate, and time passes as they say.

use measure::{Assignment, Dispatch, Measured, Parts, Round, Spent};
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
        }
    }
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
        let crashed = Outcome::Crashed {
            stage: Stage::Run,
            signal: Some(11),
            stderr: String::new(),
        };
        return (crashed, took);
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

    fn round(&mut self, batch: &[Candidate], jobs: &[Assignment], round: &Round) -> Vec<Measured> {
        self.rounds.push((jobs.to_vec(), *round));
        let of = |device: usize| jobs.iter().filter(|j| j.device == device).count() as u32;
        let width = |device: usize| of(device).min(round.dp).min(self.capacity);
        let several =
            !self.independent && (1..self.devices).any(|d| of(d) > 0 && of(d) < jobs.len() as u32);
        let mut took = vec![Duration::ZERO; self.devices];
        let mut outcomes = Vec::new();
        for j in jobs {
            let (outcome, time) = measure(&batch[j.candidate], width(j.device), several, round);
            took[j.device] += time / width(j.device);
            outcomes.push(Measured {
                outcome,
                whole: Spent {
                    wall_ns: time.as_nanos() as u64,
                    cpu_ns: 0,
                },
                parts: Parts::default(),
            });
        }
        self.now += took.into_iter().max().unwrap_or_default();
        outcomes
    }

    fn now(&self) -> Duration {
        self.now
    }
}
