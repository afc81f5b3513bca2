//! Devices of this machine: persistent runner processes on leased CPUs.
//!
//! Owns the runners. Promises one outcome for every candidate of a round, in the order
//! of the candidates, whatever becomes of the runners. Runners that die are replaced.
//! A runner that cannot be started any more, or in which every candidate dies, leaves
//! its work to the others.

use crate::batch::KernelBatch;
use crate::device::Device;
use crate::dispatch::{Assignment, Dispatch, Ranking, Round};
use crate::expected::SharedFindings;
use crate::measured::Measured;
use crate::outcome::Circumstances;
use crate::protocol::{PartTimes, Protocol, Spent};
use crate::runner_process::{LONGEST, MeasureError, RunnerProcess};
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

/// A runner and its CPUs.
struct RunnerSlot {
    runner: RunnerProcess,
    cpus: Vec<usize>,
    /// Left out until its device has measured so many candidates.
    out_until: Option<u64>,
    /// Whether people were told that it cannot be started.
    told: bool,
}

impl RunnerSlot {
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
            let was_out = self.out_until.replace(measured + LEFT_OUT).is_some();
            return (!was_out).then(|| {
                format!("a runner{of} died of {DEATHS} candidates in a row and is left out; they are measured by others")
            });
        }
        None
    }
}

/// A device and its runners.
struct LocalDevice {
    device: Device,
    slots: Vec<RunnerSlot>,
    /// Candidates that were measured.
    measured: u64,
}

impl LocalDevice {
    /// The slots to use for so many candidates at once, the most reliable first;
    /// and whether others than one of them are of use.
    fn usable(&mut self, wanted: usize) -> (Vec<&mut RunnerSlot>, bool) {
        let measured = self.measured;
        let working = self.slots.iter().filter(|s| s.works(measured)).count();
        let usable = |s: &&mut RunnerSlot| working == 0 || s.works(measured);
        let mut usable: Vec<&mut RunnerSlot> = self.slots.iter_mut().filter(usable).collect();
        usable.sort_by_key(|s| s.runner.deaths());
        usable.truncate(wanted);
        (usable, working > 1)
    }
}

/// Devices of this machine.
pub struct LocalDevices {
    devices: Vec<LocalDevice>,
    start: Instant,
    warnings: Vec<String>,
    /// What making data before rounds took since it was last asked.
    setup_time: Option<Duration>,
}

/// What all slots of a round know.
struct RoundWork<'a> {
    batch: &'a KernelBatch,
    assignments: &'a [Assignment],
    round: &'a Round,
    began: Instant,
    /// Whether other devices have work at the same time.
    several: bool,
}

/// Candidates of a device in a round, by position of their assignment.
type Queue = Mutex<VecDeque<usize>>;

fn lock(queue: &Queue) -> std::sync::MutexGuard<'_, VecDeque<usize>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the slots of a device share in a round.
#[derive(Clone, Copy)]
struct DeviceWork<'a> {
    queue: &'a Queue,
    /// Slots that take from it.
    width: u32,
    /// Whether a slot may leave its work to others.
    others: bool,
    name: Option<&'a str>,
    /// Whether others of the tuner measure beside the device.
    beside: bool,
}

impl LocalDevices {
    /// A runner for each candidate that a device measures at once, started by
    /// `command`, which must end up in [`serve`](crate::serve).
    pub fn new(devices: Vec<Device>, command: &CommandLine) -> Result<LocalDevices, MeasureError> {
        let mut local = Vec::new();
        let findings = Arc::new(SharedFindings::default());
        for device in devices {
            let mut slots = Vec::new();
            for i in 0..device.capacity() {
                slots.push(RunnerSlot {
                    runner: RunnerProcess::sharing(command, findings.clone())?,
                    cpus: device.lease(i),
                    out_until: None,
                    told: false,
                });
            }
            local.push(LocalDevice {
                device,
                slots,
                measured: 0,
            });
        }
        Ok(LocalDevices {
            devices: local,
            start: Instant::now(),
            warnings: vec![],
            setup_time: None,
        })
    }

    /// Has the data of the batch's task in the runners of this round, so that
    /// no candidate waits for it. What fails here fails again with a candidate.
    fn load(&mut self, batch: &KernelBatch, candidates: &[usize], dp: u32) {
        let begin = Instant::now();
        let mut loads = false;
        std::thread::scope(|scope| {
            for (device, candidates) in self.devices.iter_mut().zip(candidates) {
                let width = (*candidates).min(dp as usize);
                for slot in device.usable(width).0 {
                    if slot.runner.holds(&batch.task) {
                        continue;
                    }
                    loads = true;
                    scope.spawn(move || {
                        let _ = slot.runner.load_task(&batch.task, &batch.protocol);
                    });
                }
            }
        });
        if loads {
            let before = self.setup_time.unwrap_or_default();
            self.setup_time = Some(before + begin.elapsed());
        }
    }
}

impl Dispatch<KernelBatch> for LocalDevices {
    fn devices(&self) -> usize {
        self.devices.len()
    }

    fn capacity(&self) -> u32 {
        let of = |d: &LocalDevice| d.device.capacity();
        self.devices.iter().map(of).min().unwrap_or(0)
    }

    /// Caches and memory are the machine's.
    fn independent(&self) -> bool {
        self.devices.len() < 2
    }

    fn round(
        &mut self,
        batch: &KernelBatch,
        assignments: &[Assignment],
        round: &Round,
    ) -> Vec<Measured> {
        let mut queues: Vec<VecDeque<usize>> = vec![VecDeque::new(); self.devices.len()];
        for (at, a) in assignments.iter().enumerate() {
            queues[a.device].push_back(at);
        }
        if !round.fresh {
            let candidates: Vec<usize> = queues.iter().map(VecDeque::len).collect();
            self.load(batch, &candidates, round.dp);
        }
        let queues: Vec<Queue> = queues.into_iter().map(Mutex::new).collect();
        let first = assignments.first().map(|a| a.device);
        let work = RoundWork {
            batch,
            assignments,
            round,
            began: Instant::now(),
            several: assignments.iter().any(|a| Some(a.device) != first),
        };
        let mut outcomes: Vec<Option<Measured>> = assignments.iter().map(|_| None).collect();
        // What a slot leaves to others is taken when those are done. Each time
        // some slot has failed for good, and what the last ones do is final.
        while queues.iter().any(|q| !lock(q).is_empty()) {
            for (at, measured) in self.pass(&work, &queues) {
                outcomes[at] = Some(measured);
            }
        }
        let whole = |m: Option<Measured>| m.expect("every assignment is some slot's");
        outcomes.into_iter().map(whole).collect()
    }

    /// By the most reliable runner of the first device, on its CPUs.
    fn rank(
        &mut self,
        batch: &KernelBatch,
        candidates: &[usize],
        ranking: &Ranking,
    ) -> Vec<Measured> {
        let device = self.devices.first_mut().expect("there is a device");
        let slot = device.usable(1).0.pop().expect("a device has a runner");
        let kernels: Vec<&BuiltKernel> = candidates.iter().map(|c| &*batch.kernels[*c]).collect();
        let protocol = Protocol {
            pin: slot.cpus.clone(),
            limit_ns: u64::try_from(ranking.each.as_nanos()).unwrap_or(u64::MAX),
            host_clock: true,
            ..batch.protocol.clone()
        };
        let runner = &mut slot.runner;
        runner.rank(&batch.task, &kernels, &protocol, ranking.turns)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn end_by(&mut self, end: Option<Duration>) {
        let end = end.and_then(|end| self.start.checked_add(end));
        let slots = self.devices.iter_mut().flat_map(|d| &mut d.slots);
        slots.for_each(|slot| slot.runner.end_by(end));
    }

    /// Starts all runners and has them make the data of the batch's task.
    fn prepare(&mut self, batch: &KernelBatch) {
        let all: Vec<usize> = self.devices.iter().map(|d| d.slots.len()).collect();
        self.load(batch, &all, u32::MAX);
    }

    /// What became known of runners.
    fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// A process that is new for a candidate makes its data by itself, and is not counted.
    fn take_setup_time(&mut self) -> Option<Duration> {
        self.setup_time.take()
    }
}

impl LocalDevices {
    /// Has slots measure what is in the queues; outcomes by position of their assignment.
    fn pass(&mut self, work: &RoundWork<'_>, queues: &[Queue]) -> Vec<(usize, Measured)> {
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (device, queue) in self.devices.iter_mut().zip(queues) {
                let (name, beside) = (device.device.name.clone(), device.device.beside);
                let wanted = lock(queue).len().min(work.round.dp as usize);
                let (slots, others) = device.usable(wanted);
                let width = slots.len() as u32;
                for slot in slots {
                    let name = name.clone();
                    threads.push(scope.spawn(move || {
                        let of_device = DeviceWork {
                            queue,
                            width,
                            others,
                            name: name.as_deref(),
                            beside,
                        };
                        slot.take(work, of_device)
                    }));
                }
            }
            for thread in threads {
                all.extend(thread.join().expect("a slot does not panic"));
            }
        });
        for (at, _) in &all {
            self.devices[work.assignments[*at].device].measured += 1;
        }
        for device in &mut self.devices {
            for slot in &mut device.slots {
                self.warnings.extend(slot.judge(device.measured));
            }
        }
        all
    }
}

impl RunnerSlot {
    /// Measures what is next in the queue until nothing is left, or until this
    /// slot shows that it had better leave that to others: then also what it
    /// died of last.
    fn take(&mut self, work: &RoundWork<'_>, device: DeviceWork<'_>) -> Vec<(usize, Measured)> {
        let round = work.round;
        let mut deadline = work.began + round.limit.min(LONGEST);
        let mut done = Vec::new();
        loop {
            let Some(at) = lock(device.queue).pop_front() else {
                return done;
            };
            let queued = work.began.elapsed();
            let measured = self.measure(work, &device, at, &mut deadline);
            if !device.others || !self.fails() && self.runner.failed_starts() == 0 {
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
            lock(device.queue).extend(left);
            if self.fails() {
                return done;
            }
        }
    }

    /// Measures the candidate of the assignment at a position of the round.
    fn measure(
        &mut self,
        work: &RoundWork<'_>,
        device: &DeviceWork<'_>,
        at: usize,
        deadline: &mut Instant,
    ) -> Measured {
        let RoundWork { batch, round, .. } = *work;
        let circumstances = Circumstances {
            measurer: round.measurer.name(),
            device: device.name,
            dp: device.width,
            overlap: batch.overlap && !round.quiet,
            isolated: device.width == 1
                && !work.several
                && !device.beside
                && (round.quiet || !batch.overlap),
        };
        let kernel = &batch.kernels[work.assignments[at].candidate];
        let runner = &mut self.runner;
        if round.fresh {
            runner.renew();
        }
        // A replaced runner lacks the task, which is no candidate's time: also
        // where it is replaced in between.
        runner.take_setup_time();
        let _ = runner.load_task(&batch.task, &batch.protocol);
        *deadline += runner.take_setup_time();
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
        let task = &batch.task;
        let measured =
            runner.measure_in(task, kernel, &protocol, best_ns, circumstances, round.retry);
        *deadline += runner.take_setup_time();
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
        parts: PartTimes::default(),
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
