//! Modelled devices: where the time of measuring goes, with more of everything
//! than there is.
//!
//! Owns a discrete-event model of a host with some CPUs and of devices that run
//! one kernel after another. The policies that measure for real run on it
//! unchanged; only time is computed. Its parameters are shares of what a
//! candidate takes, each with its source. Nothing it says is a measurement.

use measure::{
    Assignment, Constants, Dispatch, Measured, Measurer, PartTimes, Policy, RANKING, Ranking,
    Round, Spent, TaskState,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::time::Duration;
use store::{Clock, Conditions, Outcome, Stage};

/// What is modelled. Times are of one candidate, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parameters {
    /// CPUs of the host.
    pub cpus: u32,
    pub devices: u32,
    /// Of all launches, on a device that runs one kernel after another.
    pub kernel_s: f64,
    /// CPU time for loading, data and launching.
    pub host_s: f64,
    /// CPU time for a process and its context.
    pub start_s: f64,
    /// Share that each candidate beside it adds to a kernel's own time.
    pub contention: f64,
    /// Kernels take from this share less to this share more.
    pub spread: f64,
}

/// One parameter, for lists and sweeps.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub doc: &'static str,
    pub source: &'static str,
    pub get: fn(&Parameters) -> f64,
    pub set: fn(&mut Parameters, f64),
}

/// Seconds of a candidate when all is serial. The paper has none; that 64 kernels
/// of its largest program take 20 s (section 4.2) bounds them by 0.31 each.
const CANDIDATE_S: f64 = 0.5;
/// Share of measuring in all tuning time, when all is serial (section 2.4).
pub const MEASURING: f64 = 0.516;
/// Share of kernels in measuring: devices were busy for 19% of tuning (section
/// 2.4).
const KERNEL: f64 = 0.19 / MEASURING;

/// Serial measuring on the paper's platform A.
pub const PAPER: Parameters = Parameters {
    cpus: 32,
    devices: 1,
    kernel_s: CANDIDATE_S * KERNEL,
    host_s: CANDIDATE_S * (1.0 - KERNEL) / 2.0,
    start_s: CANDIDATE_S * (1.0 - KERNEL) / 2.0,
    contention: 0.0,
    spread: 0.5,
};

/// What is swept from half to double.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "cpus",
        doc: "CPUs of the host",
        source: "DOPpler, table 1, platform A",
        get: |p| f64::from(p.cpus),
        set: |p, v| p.cpus = v.round() as u32,
    },
    Parameter {
        name: "kernel",
        doc: "seconds of a candidate's launches",
        source: "DOPpler, section 2.4: GPU 19% busy, measuring 51.6% of tuning; of 0.5 s a candidate, assumed",
        get: |p| p.kernel_s,
        set: |p, v| p.kernel_s = v,
    },
    Parameter {
        name: "host",
        doc: "CPU seconds of loading, data and launching",
        source: "half of what kernels leave; the paper does not divide it",
        get: |p| p.host_s,
        set: |p, v| p.host_s = v,
    },
    Parameter {
        name: "start",
        doc: "CPU seconds of a process and its context",
        source: "the other half",
        get: |p| p.start_s,
        set: |p, v| p.start_s = v,
    },
    Parameter {
        name: "spread",
        doc: "how far kernels differ from their mean, either way",
        source: "assumed",
        get: |p| p.spread,
        set: |p, v| p.spread = v.min(1.0),
    },
];

/// Launches of a candidate: DOPpler, section 5.1.
const LAUNCHES: u64 = 60;
/// Candidates of a batch: DOPpler, section 5.1.
const BATCH: usize = 64;
/// Time-out where it does not adapt: DOPpler, section 3.3.
const LIMIT: Duration = Duration::from_secs(3);

/// Devices and a host that exist in a study only.
struct Modelled {
    p: Parameters,
    /// Workers a device has.
    workers: u32,
    now_s: f64,
    cpu_s: f64,
    device_s: f64,
    /// When all measuring ends.
    end_s: f64,
}

impl Modelled {
    fn new(p: Parameters, workers: u32) -> Modelled {
        Modelled {
            p,
            workers,
            now_s: 0.0,
            cpu_s: 0.0,
            device_s: 0.0,
            end_s: f64::INFINITY,
        }
    }
}

/// The earliest of several servers.
fn earliest(free: &[f64]) -> usize {
    let by = |a: &usize, b: &usize| free[*a].total_cmp(&free[*b]);
    (0..free.len()).min_by(by).expect("there is a server")
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// A device in a round.
struct Lane {
    /// Positions of its assignments, and which is next.
    queue: Vec<usize>,
    next: usize,
    /// When each of its workers, and it itself, are free.
    workers: Vec<f64>,
    device: f64,
}

impl Modelled {
    /// Carries out one assignment that a worker takes at `start`; when it ends.
    fn run(
        &mut self,
        kernel_s: f64,
        start: f64,
        lane: &mut Lane,
        cpus: &mut [f64],
        round: (&Round, f64),
    ) -> (Measured, f64) {
        let (round, submitted) = round;
        if start >= self.end_s {
            return (measured(withdrawn(), 0.0), start);
        }
        let width = lane.workers.len() as u32;
        let begin_s = if round.fresh { self.p.start_s } else { 0.0 };
        let host_s = begin_s + self.p.host_s;
        let cpu = earliest(cpus);
        let launched = start.max(cpus[cpu]) + host_s;
        let beside = 1.0 + self.p.contention * f64::from(width - 1);
        let device_s = kernel_s * beside;
        let begun = launched.max(lane.device);
        let end = begun + device_s;
        let limit = (start + round.each.as_secs_f64()).min(submitted + round.limit.as_secs_f64());
        let ended = end.min(limit) > self.end_s;
        let limit = limit.min(self.end_s);
        cpus[cpu] = cpus[cpu].max(launched.min(limit));
        if end > limit {
            // Killed: the device is busy until then, if its turn had come.
            if begun < limit {
                lane.device = limit;
            }
            let outcome = match ended {
                true => withdrawn(),
                false => timed_out(round.each),
            };
            return (measured(outcome, limit - start), limit.max(start));
        }
        lane.device = end;
        self.cpu_s += host_s;
        self.device_s += device_s;
        let latency_ns = nanos(device_s / LAUNCHES as f64).max(1);
        let outcome = Outcome::Timed {
            samples_ns: vec![latency_ns],
            clock: Clock::Other("modelled".into()),
            conditions: Conditions {
                isolated: round.quiet && width == 1,
                measurer: Some(round.measurer.name().into()),
                latency_ns: Some(latency_ns),
                span_ns: Some(nanos(end - launched)),
                launches: Some(LAUNCHES),
                ..Conditions::unproven(1, width)
            },
        };
        (measured(outcome, end - start), end)
    }
}

/// The outcome of a candidate that had no time left.
fn withdrawn() -> Outcome {
    Outcome::Unanswered {
        reason: "the time for it was over".into(),
    }
}

fn timed_out(limit: Duration) -> Outcome {
    let limit_ms = limit.as_millis() as u64;
    Outcome::TimedOut {
        stage: Stage::Run,
        limit_ms,
    }
}

/// The outcome of a candidate that was ranked.
fn ranked(kernel_s: f64, turns: u32) -> Outcome {
    let latency_ns = nanos(kernel_s / LAUNCHES as f64).max(1);
    Outcome::Timed {
        samples_ns: vec![latency_ns; turns as usize],
        clock: Clock::Other("modelled".into()),
        conditions: Conditions {
            isolated: true,
            overlap: false,
            measurer: Some(RANKING.into()),
            latency_ns: Some(latency_ns),
            span_ns: Some(nanos(kernel_s * f64::from(turns))),
            launches: Some(LAUNCHES * u64::from(turns)),
            ..Conditions::unproven(1, 1)
        },
    }
}

fn measured(outcome: Outcome, took_s: f64) -> Measured {
    Measured {
        outcome,
        whole: Spent {
            wall_ns: nanos(took_s.max(0.0)),
            cpu_ns: 0,
        },
        parts: PartTimes::default(),
    }
}

/// Batches are the kernels' seconds.
impl Dispatch<[f64]> for Modelled {
    fn devices(&self) -> usize {
        self.p.devices as usize
    }

    fn capacity(&self) -> u32 {
        self.workers
    }

    /// They share the host's CPUs only, of which kernels take nothing.
    fn independent(&self) -> bool {
        true
    }

    fn round(&mut self, batch: &[f64], assignments: &[Assignment], round: &Round) -> Vec<Measured> {
        let submitted = self.now_s;
        let mut lanes: Vec<Lane> = (0..self.devices())
            .map(|device| {
                let own = (0..assignments.len()).filter(|i| assignments[*i].device == device);
                let queue: Vec<usize> = own.collect();
                let width = queue.len().min(round.dp.min(self.workers) as usize);
                Lane {
                    next: 0,
                    workers: vec![submitted; width],
                    device: submitted,
                    queue,
                }
            })
            .collect();
        let mut cpus = vec![submitted; self.p.cpus.max(1) as usize];
        let mut outcomes: Vec<Option<Measured>> = assignments.iter().map(|_| None).collect();
        // The worker that is free first takes the next assignment of its device.
        loop {
            let waiting = lanes.iter_mut().filter(|l| l.next < l.queue.len());
            let free = |l: &Lane| l.workers[earliest(&l.workers)];
            let Some(lane) = waiting.min_by(|a, b| free(a).total_cmp(&free(b))) else {
                break;
            };
            let at = lane.queue[lane.next];
            lane.next += 1;
            let worker = earliest(&lane.workers);
            let start = lane.workers[worker];
            let kernel_s = batch[assignments[at].candidate];
            let (done, end) = self.run(kernel_s, start, lane, &mut cpus, (round, submitted));
            lane.workers[worker] = end;
            self.now_s = self.now_s.max(end);
            outcomes[at] = Some(done);
        }
        let whole = |m: Option<Measured>| m.expect("every assignment was carried out");
        outcomes.into_iter().map(whole).collect()
    }

    /// Loads one candidate after the other, and then has all launched in turns. A turn of
    /// a candidate takes as long as all its launches in a round.
    fn rank(&mut self, batch: &[f64], candidates: &[usize], ranking: &Ranking) -> Vec<Measured> {
        let each_s = ranking.each.as_secs_f64();
        let deadline = (self.now_s + each_s * candidates.len() as f64).min(self.end_s);
        let kernel_s = |c: &usize| batch[*c];
        let fits = |c: &&usize| self.p.host_s + batch[**c] <= each_s;
        let turn_s: f64 = candidates.iter().filter(fits).map(kernel_s).sum();
        let late = candidates.len() - candidates.iter().filter(fits).count();
        let host_s = self.p.host_s * (candidates.len() - late) as f64;
        let loaded = self.now_s + host_s + each_s * late as f64;
        let turns = (1..=ranking.turns).take_while(|n| loaded + turn_s * f64::from(*n) <= deadline);
        let turns = turns.count() as u32;
        let one = |c: &usize| {
            let took_s = self.p.host_s + kernel_s(c) * f64::from(turns);
            match (fits(&c), turns) {
                _ if loaded > self.end_s => measured(withdrawn(), 0.0),
                (false, _) => measured(timed_out(ranking.each), each_s),
                (true, 0) if deadline == self.end_s => measured(withdrawn(), self.p.host_s),
                (true, 0) => measured(timed_out(ranking.each), each_s),
                (true, _) => measured(ranked(kernel_s(c), turns), took_s),
            }
        };
        let outcomes = candidates.iter().map(one).collect();
        self.cpu_s += host_s;
        self.device_s += turn_s * f64::from(turns);
        self.now_s = (loaded + turn_s * f64::from(turns)).min(deadline.max(self.now_s));
        outcomes
    }

    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.now_s)
    }

    fn end_by(&mut self, end: Option<Duration>) {
        self.end_s = end.map_or(f64::INFINITY, |end| end.as_secs_f64());
    }
}

/// What a policy would take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub policy: Policy,
    pub max_dp: u32,
    pub parameters: Parameters,
    pub candidates: usize,
    /// Of measuring all of them.
    pub seconds: f64,
    /// Share of that time that the host's CPUs and the devices are busy.
    pub cpu_busy: f64,
    pub device_busy: f64,
    pub timed_out: usize,
    /// Mean degree of parallelism of the rounds, where there are any.
    pub mean_dp: Option<f64>,
}

/// Predicts how long a policy measures so many candidates, in batches, with at
/// most `max_dp` at once.
pub fn predict(
    policy: Policy,
    max_dp: u32,
    p: Parameters,
    candidates: usize,
    seed: u64,
) -> Prediction {
    let constants = Constants {
        max_dp,
        ..Constants::PAPER
    };
    let measurer = Measurer {
        policy,
        constants,
        naive_dp: max_dp,
        limit: LIMIT,
    };
    let mut modelled = Modelled::new(p, max_dp.max(1));
    let mut state = TaskState::new(&constants, seed);
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let (mut done, mut timed_out, mut rounds, mut dp) = (0, 0, 0u64, 0u64);
    while done < candidates {
        let n = (BATCH * p.devices as usize).min(candidates - done);
        let kernel = |_| p.kernel_s * (1.0 + p.spread * (2.0 * rng.random::<f64>() - 1.0));
        let batch: Vec<f64> = (0..n).map(kernel).collect();
        let result = measurer.measure(&mut modelled, &batch[..], n, &mut state, &mut |_| {});
        let late = |m: &&Measured| matches!(m.outcome, Outcome::TimedOut { .. });
        timed_out += result.outcomes.iter().filter(late).count();
        rounds += result.rounds.len() as u64;
        dp += result.rounds.iter().map(|r| u64::from(r.dp)).sum::<u64>();
        done += n;
    }
    let seconds = modelled.now_s;
    Prediction {
        policy,
        max_dp,
        parameters: p,
        candidates,
        seconds,
        cpu_busy: modelled.cpu_s / (seconds * f64::from(p.cpus)),
        device_busy: modelled.device_s / (seconds * f64::from(p.devices)),
        timed_out,
        mean_dp: (rounds > 0).then(|| dp as f64 / rounds as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal kernels, so that times are exact.
    const EVEN: Parameters = Parameters {
        cpus: 64,
        devices: 1,
        kernel_s: 0.1,
        host_s: 0.2,
        start_s: 0.3,
        contention: 0.0,
        spread: 0.0,
    };

    fn seconds(policy: Policy, max_dp: u32, p: Parameters) -> f64 {
        predict(policy, max_dp, p, 640, 1).seconds
    }

    #[test]
    fn serial_times_are_sums() {
        let serial = seconds(Policy::Serial, 1, EVEN);
        assert!((serial - 640.0 * 0.3).abs() < 1e-6, "{serial}");
        let spawn = seconds(Policy::SerialSpawn, 1, EVEN);
        assert!((spawn - 640.0 * 0.6).abs() < 1e-6, "{spawn}");
    }

    #[test]
    fn kernels_queue_for_the_device_and_hosts_for_cpus() {
        // A batch is the first candidate's host part and then all kernels.
        let naive = |p| predict(Policy::Naive, 64, p, 12, 1).seconds;
        assert!((naive(EVEN) - (0.2 + 12.0 * 0.1)).abs() < 1e-6);
        let few = Parameters { cpus: 1, ..EVEN };
        assert!((naive(few) - (12.0 * 0.2 + 0.1)).abs() < 1e-6);
        let devices = Parameters { devices: 4, ..EVEN };
        assert!((naive(devices) - (0.2 + 3.0 * 0.1)).abs() < 1e-6);
    }

    #[test]
    fn doppler_lies_between_the_device_and_serial() {
        let p = predict(Policy::Doppler, 64, EVEN, 6400, 1);
        let serial = seconds(Policy::Serial, 1, EVEN) * 10.0;
        assert!(p.seconds > 640.0 && p.seconds < 0.6 * serial, "{p:?}");
        assert!(p.mean_dp.is_some_and(|dp| dp > 50.0), "{p:?}");
        let contended = Parameters {
            contention: 0.1,
            ..EVEN
        };
        let c = predict(Policy::Doppler, 64, contended, 6400, 1);
        assert!(c.mean_dp < Some(4.0) && c.seconds > p.seconds, "{c:?}");
    }

    #[test]
    fn what_takes_too_long_is_ended_and_the_rest_goes_on() {
        let long = Parameters {
            kernel_s: 10.0,
            ..EVEN
        };
        let p = predict(Policy::Serial, 1, long, 5, 1);
        assert_eq!(p.timed_out, 5);
        assert!((p.seconds - 15.0).abs() < 1e-6, "{p:?}");
    }

    #[test]
    fn equal_seeds_predict_equally() {
        let of = |seed| predict(Policy::Doppler, 64, PAPER, 640, seed);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1).seconds, of(2).seconds);
    }

    /// Two kernels of 0.1 and 0.3 s, and one that takes longer than the limit of 1 s.
    const KERNELS: [f64; 3] = [0.3, 2.0, 0.1];

    fn ranking(turns: u32) -> Ranking {
        Ranking {
            turns,
            each: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_ranking_loads_all_and_then_launches_them_in_turns() {
        let mut modelled = Modelled::new(EVEN, 4);
        let outcomes = modelled.rank(&KERNELS, &[2, 1, 0], &ranking(3));
        let labels: Vec<&str> = outcomes.iter().map(|m| m.outcome.label()).collect();
        assert_eq!(labels, ["timed", "timed-out-run", "timed"]);
        let median = |i: usize| outcomes[i].outcome.median_ns();
        assert_eq!(median(0).zip(median(2)), Some((1_666_667, 5_000_000)));
        // Two are loaded, one is waited for, and three turns take 0.4 s each.
        let expected = 2.0 * 0.2 + 1.0 + 3.0 * 0.4;
        assert!((modelled.now_s - expected).abs() < 1e-9);
        // After 0.4 s for loading, two turns of 0.6 s end within 2 s.
        let outcomes = modelled.rank(&KERNELS, &[0, 0], &ranking(9));
        for m in &outcomes {
            let Outcome::Timed { samples_ns, .. } = &m.outcome else {
                panic!("{m:?}")
            };
            assert_eq!(samples_ns.len(), 2);
        }
    }

    #[test]
    fn nothing_is_measured_beyond_the_end() {
        let mut modelled = Modelled::new(EVEN, 1);
        modelled.end_by(Some(Duration::from_millis(400)));
        let assignments = [2, 2].map(|candidate| Assignment {
            candidate,
            device: 0,
        });
        let round = Round {
            dp: 1,
            limit: Duration::from_secs(9),
            each: Duration::from_secs(1),
            quiet: true,
            fresh: false,
            host_clock: false,
            retry: true,
            slower: None,
            measurer: Policy::Serial,
        };
        let labels = |outcomes: Vec<Measured>| -> Vec<String> {
            let label = |m: &Measured| m.outcome.label().to_string();
            outcomes.iter().map(label).collect()
        };
        let first = modelled.round(&KERNELS, &assignments, &round);
        assert_eq!(labels(first), ["timed", "unanswered"], "each takes 0.3 s");
        assert!((modelled.now_s - 0.4).abs() < 1e-9);
        assert_eq!(
            labels(modelled.rank(&KERNELS, &[0], &ranking(1))),
            ["unanswered"]
        );
        modelled.end_by(None);
        assert_eq!(
            labels(modelled.rank(&KERNELS, &[0], &ranking(1))),
            ["timed"]
        );
    }
}
