//! The runner process: loads built code into guarded memory, checks its runs
//! against the expected output, and times it.
//!
//! Owns the state between requests: the data of a few tasks and the threads.
//! Promises one reply a request while the process lives; that it lives is the
//! parent's business.

use crate::cycles::Cycles;
use crate::loaded::{CycleClock, LoadOptions, Loaded, Stop};
use crate::noise::Noise;
use crate::oracle;
use crate::protocol::{
    Activity, ExpectedFile, KernelReport, PartTimes, Protocol, Reply, Request, SampleFacts, Spent,
    TaskData, TaskKey, Verdict,
};
use crate::reference;
use crate::sampling::{TurnOrder, calls_per_sample, per_call, sample, slow_even_warm};
use crate::task::Task;
use runtime::{BuiltKernel, Ctx, Pool, PoolOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::rc::Rc;
use std::time::{Duration, Instant};
use worker::cpu_ns;

/// Tasks whose data a runner keeps: those that are tuned in turns, and the
/// fresh data on which finalists are checked.
const KEPT_TASKS: usize = 24;
/// Fewer are kept when they take more than this.
const KEPT_BYTES: usize = 2 << 30;

/// Names the sources of the code on both sides of a runner's pipes. A program
/// of another identity cannot be its parent.
pub const IDENTITY: &str = env!("TUNESMITH_RUNNER_SOURCES");
/// Asks a program that is a runner and nothing else for its identity.
pub const IDENTITY_FLAG: &str = "--identity";

/// The runner process: answers requests until its input ends.
pub fn serve() -> std::io::Result<()> {
    let mut runner = Runner::default();
    worker::serve(move |request: Request| {
        let reply = runner.answer(request);
        Activity::Idle.tell(0);
        reply
    })
}

#[derive(Default)]
struct Runner {
    /// The one used last is at the end.
    tasks: Vec<Task>,
    threads: Option<Threads>,
    /// Where the process may run when nothing is pinned.
    cpus: Option<CpuSet>,
    /// Counts the cycles of this thread; `Some(None)` where that cannot be.
    cycles: Option<Option<Rc<Cycles>>>,
    noise: Noise,
}

struct Threads {
    count: u32,
    pin: Vec<usize>,
    pinned: bool,
    pool: Pool,
}

/// One candidate to measure.
struct Candidate<'a> {
    kernel: &'a BuiltKernel,
    protocol: &'a Protocol,
    best_ns: Option<u64>,
    reference: bool,
    cycle_ns: Option<f64>,
    /// When the request came.
    start: Instant,
}

/// Times a part of a request.
struct Stopwatch {
    start: Instant,
    cpu_ns: u64,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch {
            start: Instant::now(),
            cpu_ns: cpu_ns(),
        }
    }

    fn spent(&self) -> Spent {
        let cpu_ns = cpu_ns() - self.cpu_ns;
        Spent {
            wall_ns: self.start.elapsed().as_nanos() as u64,
            cpu_ns,
        }
    }
}

impl Runner {
    fn answer(&mut self, request: Request) -> Reply {
        let start = Instant::now();
        match request {
            Request::Data(data, file) => Reply::Data(self.keep(&data, file.as_ref())),
            Request::Measure {
                task,
                kernel,
                protocol,
                best_ns,
                reference,
                cycle_ns,
            } => {
                if !self.use_task(task) {
                    return Reply::NoData;
                }
                let mut parts = PartTimes::default();
                let candidate = Candidate {
                    kernel: &kernel,
                    protocol: &protocol,
                    best_ns,
                    reference,
                    cycle_ns,
                    start,
                };
                let mut verdict = self.measure(&candidate, &mut parts);
                if matches!(verdict, Ok(Verdict::Timed { at, .. }) if self.missed_cycles(&protocol, at))
                {
                    // Its samples are of two clocks.
                    self.cycles = Some(None);
                    verdict = self.measure(&candidate, &mut parts);
                }
                if matches!(verdict, Err(Verdict::OutOfMemory(_))) && self.tasks.len() > 1 {
                    // Other tasks' data is no candidate's fault.
                    self.tasks.drain(..self.tasks.len() - 1);
                    verdict = self.measure(&candidate, &mut parts);
                }
                Reply::Measured(KernelReport {
                    verdict: verdict.unwrap_or_else(|stop| stop),
                    parts,
                })
            }
            Request::Rank {
                task,
                kernels,
                protocol,
                turns,
            } => {
                if !self.use_task(task) {
                    return Reply::NoData;
                }
                Reply::Ranked(self.rank(&kernels, &protocol, turns, start))
            }
        }
    }

    /// Makes the data of a task, unless it is here. Whether its expected outputs
    /// were put where there is a file for them.
    fn keep(&mut self, data: &TaskData, file: Option<&ExpectedFile>) -> Result<bool, String> {
        let to_fill = file.filter(|f| !f.complete);
        if self.use_task(data.key()) {
            let task = self.tasks.last().expect("it was just used");
            return Ok(to_fill.is_some_and(|f| oracle::publish(task, data, f)));
        }
        Activity::Data.tell(0);
        let too_many = |tasks: &[Task]| {
            tasks.len() >= KEPT_TASKS || tasks.iter().map(Task::bytes).sum::<usize>() > KEPT_BYTES
        };
        while !self.tasks.is_empty() && too_many(&self.tasks) {
            self.tasks.remove(0);
        }
        let task = oracle::task(data, file)?;
        let published = to_fill.is_some_and(|f| oracle::publish(&task, data, f));
        self.tasks.push(task);
        Ok(published)
    }

    /// Puts the data of a task last, if it is here.
    fn use_task(&mut self, key: TaskKey) -> bool {
        let Some(at) = self.tasks.iter().position(|t| t.key == key) else {
            return false;
        };
        self.tasks[at..].rotate_left(1);
        true
    }

    fn measure(
        &mut self,
        candidate: &Candidate<'_>,
        parts: &mut PartTimes,
    ) -> Result<Verdict, Stop> {
        let Candidate {
            kernel,
            protocol: p,
            best_ns,
            ..
        } = *candidate;
        self.use_threads(p)?;
        let count = self.counter(p).map(|counter| CycleClock {
            cycle_ns: candidate.cycle_ns.unwrap_or(counter.own_ns()),
            counter,
        });
        let threads = self.threads.as_ref().expect("set above");
        let task = self.tasks.last_mut().expect("the caller looked");
        let (ctx, deadline) = (threads.pool.ctx(), deadline(candidate.start, p.limit_ns));
        let (mut loaded, first_ns) = first_run(kernel, task, p, threads, 0, count, parts)?;
        let watch = Stopwatch::start();
        Activity::Run.tell(0);
        let reference_ns = candidate.reference.then(|| reference::time_ns(p.by_wall()));
        loaded.mark();
        let slow = slow_even_warm(p, best_ns, first_ns, deadline, |n| loaded.batch(ctx, n));
        parts.run += watch.spent();
        if let Some(samples) = slow? {
            return Ok(Verdict::Timed {
                samples_ns: samples.ns,
                at: SampleFacts {
                    reference_ns,
                    ..sample_facts(&loaded, threads, samples.calls)
                },
            });
        }
        rotate(&mut loaded, task, p, 0, parts)?;
        let watch = Stopwatch::start();
        Activity::Run.tell(0);
        loaded.mark();
        let batch = |n| loaded.batch(ctx, n);
        let mut sampled = sample(p, best_ns, first_ns, deadline, &self.noise, batch);
        let span = loaded.span();
        if sampled.as_ref().is_ok_and(|samples| samples.then_check)
            && let Err(stop) = last_run(&mut loaded, task, p, ctx, 0)
        {
            sampled = Err(stop);
        }
        parts.run += watch.spent();
        let samples = sampled?;
        self.noise.learn(&samples.ns);
        let at = sample_facts(&loaded, threads, samples.calls);
        Ok(Verdict::Timed {
            samples_ns: samples.ns,
            at: SampleFacts {
                span,
                reference_ns,
                first_only: samples.first_only,
                ..at
            },
        })
    }

    /// What counts the cycles of a kernel, if anything does.
    fn counter(&mut self, p: &Protocol) -> Option<Rc<Cycles>> {
        if p.by_wall() {
            return None;
        }
        let open = || Cycles::open().ok().map(Rc::new);
        self.cycles.get_or_insert_with(open).clone()
    }

    /// Whether samples were to be counted cycles and some are not.
    fn missed_cycles(&self, p: &Protocol, at: SampleFacts) -> bool {
        let counter = self.cycles.as_ref().is_some_and(Option::is_some);
        !p.by_wall() && counter && at.cycle_ns.is_none()
    }

    /// One report a kernel; those that pass are sampled in turns.
    fn rank(
        &mut self,
        kernels: &[BuiltKernel],
        p: &Protocol,
        turns: u32,
        start: Instant,
    ) -> Vec<KernelReport> {
        if let Err(verdict) = self.use_threads(p) {
            let refused = |_| KernelReport {
                verdict: verdict.clone(),
                parts: PartTimes::default(),
            };
            return kernels.iter().map(refused).collect();
        }
        let threads = self.threads.as_ref().expect("set above");
        let task = self.tasks.last_mut().expect("the caller looked");
        let ctx = threads.pool.ctx();
        let deadline = deadline(start, p.limit_ns.saturating_mul(kernels.len() as u64));
        let mut parts = vec![PartTimes::default(); kernels.len()];
        let mut entrants: Vec<Result<Entrant, Stop>> = Vec::new();
        for (i, kernel) in kernels.iter().enumerate() {
            let entrant = first_run(kernel, task, p, threads, i, None, &mut parts[i]);
            entrants.push(entrant.and_then(|(mut loaded, first_ns)| {
                rotate(&mut loaded, task, p, i, &mut parts[i])?;
                Activity::Run.tell(i);
                let watch = Stopwatch::start();
                let calls = calls_per_sample(p, first_ns, |n| loaded.batch(ctx, n));
                parts[i].run += watch.spent();
                Ok(Entrant {
                    loaded,
                    calls: calls?,
                    samples_ns: Vec::new(),
                })
            }));
        }
        let mut order = TurnOrder::new(kernels.len(), task.key.seed);
        let mut longest_turn = Duration::ZERO;
        for turn in 0..turns.max(1) {
            // Whole turns only, so that all have the same chances.
            let began = Instant::now();
            if turn > 0 && began + 2 * longest_turn > deadline {
                break;
            }
            for i in order.next_turn() {
                Activity::Run.tell(*i);
                let Ok(e) = &mut entrants[*i] else { continue };
                let watch = Stopwatch::start();
                match e.loaded.batch(ctx, e.calls) {
                    Ok(ns) => e.samples_ns.push(per_call(ns, e.calls)),
                    Err(stop) => entrants[*i] = Err(stop),
                }
                parts[*i].run += watch.spent();
            }
            longest_turn = longest_turn.max(began.elapsed());
        }
        let mut reports = Vec::new();
        for (i, (entrant, mut parts)) in entrants.into_iter().zip(parts).enumerate() {
            let watch = Stopwatch::start();
            let verdict = entrant.and_then(|e| e.judge(task, p, threads, i));
            parts.run += watch.spent();
            let verdict = verdict.unwrap_or_else(|stop| stop);
            reports.push(KernelReport { verdict, parts });
        }
        reports
    }

    /// Has as many threads as the protocol says, pinned if it says so and the
    /// system allows it.
    fn use_threads(&mut self, p: &Protocol) -> Result<(), Stop> {
        let same = |t: &Threads| t.count == p.threads && t.pin == p.pin;
        if self.threads.as_ref().is_some_and(same) {
            return Ok(());
        }
        self.threads = None;
        let anywhere = *self
            .cpus
            .get_or_insert_with(|| sched_getaffinity(None).unwrap_or_default());
        let mut options = PoolOptions::new(p.threads as usize);
        let mut made = None;
        if p.pin.len() == p.threads as usize
            && p.pin
                .first()
                .is_some_and(|cpu| runtime::pin_current_thread(*cpu).is_ok())
        {
            options.pin = Some(p.pin.clone());
            made = Pool::with_options(&options).ok();
        }
        let pinned = made.is_some();
        let pool = match made {
            Some(pool) => pool,
            None => {
                // New threads inherit where this one may run. Best effort: what
                // was allowed before is allowed again.
                let _ = sched_setaffinity(None, &anywhere);
                options.pin = None;
                Pool::with_options(&options).map_err(|e| Verdict::Refused(e.to_string()))?
            }
        };
        self.threads = Some(Threads {
            count: p.threads,
            pin: p.pin.clone(),
            pinned,
            pool,
        });
        Ok(())
    }
}

/// A kernel of a ranking.
struct Entrant<'k> {
    loaded: Loaded<'k>,
    calls: u64,
    samples_ns: Vec<u64>,
}

impl Entrant<'_> {
    /// What it is after its last sample.
    fn judge(
        mut self,
        task: &Task,
        p: &Protocol,
        threads: &Threads,
        index: usize,
    ) -> Result<Verdict, Stop> {
        last_run(&mut self.loaded, task, p, threads.pool.ctx(), index)?;
        Ok(Verdict::Timed {
            at: sample_facts(&self.loaded, threads, self.calls),
            samples_ns: self.samples_ns,
        })
    }
}

/// When sampling is to be over, so that the parent does not kill a runner
/// which only wanted one more sample.
fn deadline(start: Instant, limit_ns: u64) -> Instant {
    start + Duration::from_nanos(limit_ns - limit_ns / 8)
}

/// Loads a kernel and checks its first run; the nanoseconds that run took.
fn first_run<'k>(
    kernel: &'k BuiltKernel,
    task: &mut Task,
    p: &Protocol,
    threads: &Threads,
    index: usize,
    count: Option<CycleClock>,
    parts: &mut PartTimes,
) -> Result<(Loaded<'k>, u64), Stop> {
    let ctx = threads.pool.ctx();
    let options = LoadOptions {
        ctx,
        threads: threads.count,
        index,
        host_clock: p.host_clock,
    };
    Activity::Load.tell(index);
    let watch = Stopwatch::start();
    let loaded = Loaded::new(kernel, task, options);
    parts.load += watch.spent();
    let mut loaded = loaded?;
    loaded.count(count);
    let watch = Stopwatch::start();
    loaded.poison(0xff);
    Activity::Run.tell(index);
    let checked = loaded.batch(ctx, 1).and_then(|first_ns| {
        Activity::Check.tell(index);
        loaded.check_canaries()?;
        loaded.check_outputs(task, p.tolerance)?;
        Ok(first_ns)
    });
    parts.check += watch.spent();
    Ok((loaded, checked?))
}

/// Lets constants rotate, as a part of loading: candidates that are slow anyway
/// do without it.
fn rotate(
    loaded: &mut Loaded,
    task: &mut Task,
    p: &Protocol,
    index: usize,
    parts: &mut PartTimes,
) -> Result<(), Stop> {
    let watch = Stopwatch::start();
    Activity::Load.tell(index);
    let rotated = loaded.rotate(task, p.rotate_bytes);
    parts.load += watch.spent();
    rotated
}

/// Runs once more on poisoned outputs and a used workspace: what was timed is
/// what was checked, and a kernel that is right only the first time is wrong.
fn last_run(
    loaded: &mut Loaded,
    task: &Task,
    p: &Protocol,
    ctx: &Ctx,
    index: usize,
) -> Result<(), Stop> {
    loaded.poison(0);
    Activity::Run.tell(index);
    loaded.batch(ctx, 1)?;
    Activity::Check.tell(index);
    loaded.check_canaries()?;
    loaded
        .check_outputs(task, p.tolerance)
        .map_err(|stop| match stop {
            Verdict::Wrong(mut gap) => {
                gap.later = true;
                Verdict::Wrong(gap)
            }
            other => other,
        })
}

fn sample_facts(loaded: &Loaded, threads: &Threads, calls: u64) -> SampleFacts {
    SampleFacts {
        calls,
        first_only: false,
        copies: loaded.copies() as u32,
        rotated: loaded.rotated,
        pinned: threads.pinned,
        reference_ns: None,
        cycle_ns: loaded.cycle_ns(),
        rel_l2: loaded.rel_l2,
        span: loaded.span(),
    }
}
