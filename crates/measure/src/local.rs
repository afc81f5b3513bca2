//! Devices of this machine: persistent runner processes on leased CPUs.
//!
//! Owns the runners. Promises an outcome for every candidate of a round, each in
//! its place, whatever becomes of the runners: they are replaced when they die,
//! and one that cannot be started any more, or that everything dies in, leaves
//! its work to the others.

use crate::device::Device;
use crate::dispatch::{Assignment, Dispatch, Round};
use crate::expected::Shares;
use crate::protocol::{Parts, Protocol, Spent, TaskData};
use crate::serial::{Company, LONGEST, MeasureError, Measured, Serial};
use runtime::BuiltKernel;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use store::{Outcome, Stage};
use worker::CommandLine;

/// Starts that fail in a row before a runner is given up, if there are others.
const FAILED_STARTS: u32 = 3;
/// Different candidates in a row that a runner dies of before it is left out, if
/// there are others.
const DEATHS: u32 = 8;
/// Candidates that a device measures before such a runner may try again: so many
/// may have failed by themselves.
const LEFT_OUT: u64 = 256;

/// Kernels of one task.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub task: &'a TaskData,
    pub kernels: &'a [&'a BuiltKernel],
    /// Its limits, CPUs and clock are a round's.
    pub protocol: &'a Protocol,
    /// Median of the incumbent, as it is alone or corrected, for giving up early.
    pub best_ns: Option<u64>,
    /// Builders run meanwhile, unless a round is quiet.
    pub overlap: bool,
}

/// A runner and its CPUs.
struct Seat {
    runner: Serial,
    cpus: Vec<usize>,
    /// Left out until its device has measured so many candidates.
    out_until: Option<u64>,
    /// Whether it was told that it cannot be started.
    told: bool,
}

impl Seat {
    /// Whether it is of use, when its device has measured so many.
    fn works(&self, measured: u64) -> bool {
        let starts = self.runner.failed_starts() < FAILED_STARTS;
        starts && self.out_until.is_none_or(|until| measured >= until)
    }

    /// Whether it has shown that it is of no use.
    fn fails(&self) -> bool {
        self.runner.failed_starts() >= FAILED_STARTS || self.runner.deaths() >= DEATHS
    }

    /// Leaves it out, or takes it back, by what became of its candidates; what is
    /// to be said of that.
    fn judge(&mut self, measured: u64) -> Option<String> {
        let of = match self.cpus.as_slice() {
            [] => String::new(),
            cpus => format!(" on CPU {cpus:?}"),
        };
        if self.runner.failed_starts() >= FAILED_STARTS {
            let news = !std::mem::replace(&mut self.told, true);
            return news.then(|| format!("a runner{of} cannot be started any more"));
        }
        if self.runner.deaths() < DEATHS {
            self.out_until = None;
        } else if self.out_until.is_none_or(|until| measured >= until) {
            let again = self.out_until.replace(measured + LEFT_OUT).is_some();
            return (!again).then(|| {
                format!("a runner{of} died of {DEATHS} candidates in a row and is left out; they are measured by others")
            });
        }
        None
    }
}

struct Place {
    device: Device,
    seats: Vec<Seat>,
    /// Candidates that were measured.
    measured: u64,
}

impl Place {
    /// The seats to use for so many candidates at once, the most reliable first;
    /// and whether others than one of them are of use.
    fn seats(&mut self, wanted: usize) -> (Vec<&mut Seat>, bool) {
        let measured = self.measured;
        let working = self.seats.iter().filter(|s| s.works(measured)).count();
        let usable = |s: &&mut Seat| working == 0 || s.works(measured);
        let mut usable: Vec<&mut Seat> = self.seats.iter_mut().filter(usable).collect();
        usable.sort_by_key(|s| s.runner.deaths());
        usable.truncate(wanted);
        (usable, working > 1)
    }
}

/// Devices of this machine.
pub struct Local {
    places: Vec<Place>,
    start: Instant,
    warnings: Vec<String>,
    /// What making data before rounds took since it was last asked.
    setting_up: Option<Duration>,
}

/// What all seats of a round know.
struct Work<'a> {
    batch: &'a Batch<'a>,
    jobs: &'a [Assignment],
    round: &'a Round,
    began: Instant,
    /// Whether other devices have work at the same time.
    several: bool,
}

/// Candidates of a device in a round, by their place in it.
type Queue = Mutex<VecDeque<usize>>;

fn lock(queue: &Queue) -> std::sync::MutexGuard<'_, VecDeque<usize>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the seats of a device share in a round.
#[derive(Clone, Copy)]
struct Table<'a> {
    queue: &'a Queue,
    /// Seats that take from it.
    width: u32,
    /// Whether a seat may leave its work to others.
    others: bool,
    device: Option<&'a str>,
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
                    out_until: None,
                    told: false,
                });
            }
            places.push(Place {
                device,
                seats,
                measured: 0,
            });
        }
        Ok(Local {
            places,
            start: Instant::now(),
            warnings: vec![],
            setting_up: None,
        })
    }

    /// What became known of runners since it was last asked for.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Nothing that begins from here on is measured beyond `end` ([`Serial::end_by`]).
    pub fn end_by(&mut self, end: Option<Instant>) {
        let seats = self.places.iter_mut().flat_map(|p| &mut p.seats);
        seats.for_each(|seat| seat.runner.end_by(end));
    }

    /// Starts all runners and has them make the data of the batch's task, so
    /// that the first round need not. What fails fails again with a candidate.
    pub fn prepare(&mut self, batch: &Batch<'_>) {
        let all: Vec<usize> = self.places.iter().map(|p| p.seats.len()).collect();
        self.load(batch, &all, u32::MAX);
    }

    /// A runner, and the CPUs to pin a kernel to that it measures alone.
    pub fn alone(&mut self) -> Option<(&mut Serial, &[usize])> {
        let seat = self.places.first_mut()?.seats(1).0.pop()?;
        Some((&mut seat.runner, &seat.cpus))
    }

    /// Has the data of the batch's task in the runners of this round, so that
    /// no candidate waits for it. What fails here fails again with a candidate.
    fn load(&mut self, batch: &Batch<'_>, candidates: &[usize], dp: u32) {
        let begin = Instant::now();
        let mut loads = false;
        std::thread::scope(|scope| {
            for (place, candidates) in self.places.iter_mut().zip(candidates) {
                let width = (*candidates).min(dp as usize);
                for seat in place.seats(width).0 {
                    if seat.runner.knows(batch.task) {
                        continue;
                    }
                    loads = true;
                    scope.spawn(move || {
                        let _ = seat.runner.load_task(batch.task, batch.protocol);
                    });
                }
            }
        });
        if loads {
            let before = self.setting_up.unwrap_or_default();
            self.setting_up = Some(before + begin.elapsed());
        }
    }

    /// What making data of tasks took before rounds, if any was made since this was last
    /// asked. A process that is new for a candidate makes its data by itself.
    pub fn take_setting_up(&mut self) -> Option<Duration> {
        self.setting_up.take()
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

    /// Caches and memory are the machine's.
    fn independent(&self) -> bool {
        self.places.len() < 2
    }

    fn round(&mut self, batch: &Batch<'_>, jobs: &[Assignment], round: &Round) -> Vec<Measured> {
        let mut queues: Vec<VecDeque<usize>> = vec![VecDeque::new(); self.places.len()];
        for (at, job) in jobs.iter().enumerate() {
            queues[job.device].push_back(at);
        }
        if !round.fresh {
            let candidates: Vec<usize> = queues.iter().map(VecDeque::len).collect();
            self.load(batch, &candidates, round.dp);
        }
        let queues: Vec<Queue> = queues.into_iter().map(Mutex::new).collect();
        let work = Work {
            batch,
            jobs,
            round,
            began: Instant::now(),
            several: jobs.iter().any(|j| j.device != jobs[0].device),
        };
        let mut outcomes: Vec<Option<Measured>> = jobs.iter().map(|_| None).collect();
        // What a seat leaves to others is taken when those are done. Each time
        // some seat has failed for good, and what the last ones do is final.
        while queues.iter().any(|q| !lock(q).is_empty()) {
            for (at, measured) in self.pass(&work, &queues) {
                outcomes[at] = Some(measured);
            }
        }
        let whole = |m: Option<Measured>| m.expect("every job is some seat's");
        outcomes.into_iter().map(whole).collect()
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Local {
    /// Has seats measure what is in the queues, by place in the round.
    fn pass(&mut self, work: &Work<'_>, queues: &[Queue]) -> Vec<(usize, Measured)> {
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (place, queue) in self.places.iter_mut().zip(queues) {
                let device = place.device.name.clone();
                let wanted = lock(queue).len().min(work.round.dp as usize);
                let (seats, others) = place.seats(wanted);
                let width = seats.len() as u32;
                for seat in seats {
                    let device = device.clone();
                    threads.push(scope.spawn(move || {
                        let device = device.as_deref();
                        let table = Table {
                            queue,
                            width,
                            others,
                            device,
                        };
                        seat.take(work, table)
                    }));
                }
            }
            for thread in threads {
                all.extend(thread.join().expect("a seat does not panic"));
            }
        });
        for (at, _) in &all {
            self.places[work.jobs[*at].device].measured += 1;
        }
        for place in &mut self.places {
            for seat in &mut place.seats {
                self.warnings.extend(seat.judge(place.measured));
            }
        }
        all
    }
}

impl Seat {
    /// Measures what is next in the queue until nothing is left, or until this
    /// seat shows that it had better leave that to others: then also what it
    /// died of last.
    fn take(&mut self, work: &Work<'_>, table: Table<'_>) -> Vec<(usize, Measured)> {
        let round = work.round;
        let mut deadline = work.began + round.limit.min(LONGEST);
        let mut done = Vec::new();
        loop {
            let Some(at) = lock(table.queue).pop_front() else {
                return done;
            };
            let queued = work.began.elapsed();
            let measured = self.measure(work, &table, at, &mut deadline);
            if !table.others || !self.fails() && self.runner.failed_starts() == 0 {
                done.push((at, timed_parts(measured, queued)));
                continue;
            }
            let mut left = vec![at];
            if self.runner.deaths() >= DEATHS {
                let died = |(_, m): &(usize, Measured)| failed(m);
                let alive = done
                    .iter()
                    .rposition(|d| !died(d))
                    .map_or(0, |last| last + 1);
                let first = alive.max((done.len() + 1).saturating_sub(DEATHS as usize));
                left.extend(done.drain(first..).map(|(at, _)| at));
            }
            lock(table.queue).extend(left);
            if self.fails() {
                return done;
            }
        }
    }

    /// Measures the candidate at a place of the round.
    fn measure(
        &mut self,
        work: &Work<'_>,
        table: &Table<'_>,
        at: usize,
        deadline: &mut Instant,
    ) -> Measured {
        let Work { batch, round, .. } = *work;
        let company = Company {
            measurer: round.measurer.name(),
            device: table.device,
            dp: table.width,
            overlap: batch.overlap && !round.quiet,
            isolated: table.width == 1 && !work.several && (round.quiet || !batch.overlap),
        };
        let kernel = batch.kernels[work.jobs[at].candidate];
        if round.fresh {
            self.runner.renew();
        }
        // A replaced runner lacks the task, which is no candidate's time: also
        // where it is replaced in between.
        self.runner.take_setting_up();
        let _ = self.runner.load_task(batch.task, batch.protocol);
        *deadline += self.runner.take_setting_up();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return never_begun(round.limit);
        }
        let protocol = Protocol {
            pin: self.cpus.clone(),
            limit_ns: left.min(round.each).as_nanos() as u64,
            host_clock: round.host_clock,
            ..batch.protocol.clone()
        };
        let bound = |(best, slower)| (best as f64 * slower) as u64;
        let best_ns = batch.best_ns.zip(round.slower).map(bound);
        let runner = &mut self.runner;
        let measured =
            runner.measure_in(batch.task, kernel, &protocol, best_ns, company, round.retry);
        *deadline += self.runner.take_setting_up();
        measured
    }
}

/// Whether a candidate ended its runner, or failed as if it had.
fn failed(m: &Measured) -> bool {
    use Outcome::{Crashed, OutOfMemory, TimedOut};
    matches!(
        m.outcome,
        Crashed { .. } | OutOfMemory { .. } | TimedOut { .. }
    )
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
