//! Devices of this machine: persistent runner processes on leased CPUs.
//!
//! Owns the runners. Promises an outcome for every candidate of a round, each in
//! its place, whatever becomes of the runners: they are replaced when they die,
//! and one that cannot be started any more leaves its work to the others.

use crate::device::Device;
use crate::dispatch::{Assignment, Dispatch, Round};
use crate::expected::Shares;
use crate::protocol::{Parts, Protocol, Spent, TaskData};
use crate::serial::{Company, LONGEST, MeasureError, Measured, Serial};
use runtime::BuiltKernel;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use store::{Outcome, Stage};
use worker::CommandLine;

/// Starts that fail in a row before a runner is given up, if there are others.
const FAILED_STARTS: u32 = 3;

/// Kernels of one task.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub task: &'a TaskData,
    pub kernels: &'a [&'a BuiltKernel],
    /// Its limits, CPUs and clock are a round's.
    pub protocol: &'a Protocol,
    /// Median of the incumbent, for giving up early.
    pub best_ns: Option<u64>,
    /// Builders run meanwhile, unless a round is quiet.
    pub overlap: bool,
}

/// A runner and its CPUs.
struct Seat {
    runner: Serial,
    cpus: Vec<usize>,
}

struct Place {
    device: Device,
    seats: Vec<Seat>,
}

impl Place {
    /// The seats to use for so many candidates at once.
    fn seats(&mut self, wanted: usize) -> impl Iterator<Item = &mut Seat> {
        let works = |s: &Seat| s.runner.failed_starts() < FAILED_STARTS;
        let any = self.seats.iter().any(works);
        let usable = self.seats.iter_mut().filter(move |s| !any || works(s));
        usable.take(wanted)
    }
}

/// Devices of this machine.
pub struct Local {
    places: Vec<Place>,
    start: Instant,
}

/// What all seats of a round know.
struct Work<'a> {
    batch: &'a Batch<'a>,
    jobs: &'a [Assignment],
    round: &'a Round,
    began: Instant,
}

impl Local {
    /// A runner for each candidate that a device measures at once, started by
    /// `command`, which must end up in [`serve`](crate::serve).
    pub fn new(devices: Vec<Device>, command: &CommandLine) -> Result<Local, MeasureError> {
        let mut places = Vec::new();
        let shares = Arc::new(Shares::default());
        for device in devices {
            let mut seats = Vec::new();
            for i in 0..device.capacity() {
                seats.push(Seat {
                    runner: Serial::sharing(command, shares.clone())?,
                    cpus: device.lease(i),
                });
            }
            places.push(Place { device, seats });
        }
        Ok(Local {
            places,
            start: Instant::now(),
        })
    }

    /// Starts all runners and has them make the data of the batch's task, so
    /// that the first round need not. What fails fails again with a candidate.
    pub fn prepare(&mut self, batch: &Batch<'_>) {
        let all: Vec<Vec<usize>> = self
            .places
            .iter()
            .map(|p| (0..p.seats.len()).collect())
            .collect();
        self.load(batch, &all, u32::MAX);
    }

    /// A runner, and the CPUs to pin a kernel to that it measures alone.
    pub fn alone(&mut self) -> Option<(&mut Serial, &[usize])> {
        let seat = self.places.first_mut()?.seats(1).next()?;
        Some((&mut seat.runner, &seat.cpus))
    }

    /// Has the data of the batch's task in the runners of this round, so that
    /// no candidate waits for it. What fails here fails again with a candidate.
    fn load(&mut self, batch: &Batch<'_>, queues: &[Vec<usize>], dp: u32) {
        std::thread::scope(|scope| {
            for (place, queue) in self.places.iter_mut().zip(queues) {
                let width = queue.len().min(dp as usize);
                for seat in place.seats(width) {
                    if seat.runner.knows(batch.task) {
                        continue;
                    }
                    scope.spawn(move || {
                        let _ = seat.runner.load_task(batch.task, batch.protocol);
                    });
                }
            }
        });
    }
}

impl Dispatch<Batch<'_>> for Local {
    fn devices(&self) -> usize {
        self.places.len()
    }

    fn capacity(&self) -> u32 {
        let of = |p: &Place| p.device.capacity();
        self.places.iter().map(of).min().unwrap_or(0)
    }

    fn round(&mut self, batch: &Batch<'_>, jobs: &[Assignment], round: &Round) -> Vec<Measured> {
        let mut queues: Vec<Vec<usize>> = vec![Vec::new(); self.places.len()];
        for (at, job) in jobs.iter().enumerate() {
            queues[job.device].push(at);
        }
        if !round.fresh {
            self.load(batch, &queues, round.dp);
        }
        let turns: Vec<AtomicUsize> = queues.iter().map(|_| AtomicUsize::new(0)).collect();
        let work = &Work {
            batch,
            jobs,
            round,
            began: Instant::now(),
        };
        let mut outcomes: Vec<Option<Measured>> = jobs.iter().map(|_| None).collect();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for ((place, queue), turn) in self.places.iter_mut().zip(&queues).zip(&turns) {
                let name = place.device.name.clone();
                let wanted = queue.len().min(round.dp as usize);
                let seats: Vec<&mut Seat> = place.seats(wanted).collect();
                let width = seats.len() as u32;
                for seat in seats {
                    let name = name.clone();
                    threads.push(
                        scope.spawn(move || seat.take(work, queue, turn, width, name.as_deref())),
                    );
                }
            }
            for thread in threads {
                let done = thread.join().expect("a seat does not panic");
                for (at, measured) in done {
                    outcomes[at] = Some(measured);
                }
            }
        });
        let whole = |m: Option<Measured>| m.expect("every job is some seat's");
        outcomes.into_iter().map(whole).collect()
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Seat {
    /// Measures what is next in the queue until nothing is left.
    fn take(
        &mut self,
        work: &Work<'_>,
        queue: &[usize],
        turn: &AtomicUsize,
        width: u32,
        device: Option<&str>,
    ) -> Vec<(usize, Measured)> {
        let Work { batch, round, .. } = *work;
        let company = Company {
            measurer: round.measurer,
            device,
            dp: width,
            overlap: batch.overlap && !round.quiet,
            isolated: width == 1 && (round.quiet || !batch.overlap),
        };
        let mut deadline = work.began + round.limit.min(LONGEST);
        let mut done = Vec::new();
        while let Some(&at) = queue.get(turn.fetch_add(1, Ordering::Relaxed)) {
            let queued = work.began.elapsed();
            let kernel = batch.kernels[work.jobs[at].candidate];
            if round.fresh {
                self.runner.renew();
            }
            // A replaced runner lacks the task, which is no candidate's time.
            let loading = Instant::now();
            let _ = self.runner.load_task(batch.task, batch.protocol);
            deadline += loading.elapsed();
            let left = deadline.saturating_duration_since(Instant::now());
            let measured = if left.is_zero() {
                never_begun(round.limit)
            } else {
                let protocol = Protocol {
                    pin: self.cpus.clone(),
                    limit_ns: left.min(round.each).as_nanos() as u64,
                    host_clock: round.host_clock,
                    ..batch.protocol.clone()
                };
                let runner = &mut self.runner;
                runner.measure_in(batch.task, kernel, &protocol, batch.best_ns, company)
            };
            done.push((at, timed_parts(measured, queued)));
        }
        done
    }
}

/// The outcome of a candidate whose round was over before its turn came.
fn never_begun(limit: Duration) -> Measured {
    Measured {
        outcome: Outcome::TimedOut {
            stage: Stage::Load,
            limit_ms: limit.as_millis() as u64,
        },
        whole: Spent::default(),
        parts: Parts::default(),
    }
}

/// Notes in a timed outcome how long it waited and how long loading took.
fn timed_parts(mut measured: Measured, queued: Duration) -> Measured {
    let load_ns = measured.parts.load.wall_ns;
    if let Outcome::Timed { conditions, .. } = &mut measured.outcome {
        conditions.queue_ns = Some(queued.as_nanos() as u64);
        conditions.load_ns = Some(load_ns);
    }
    measured
}
