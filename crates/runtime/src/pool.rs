//! The thread pool behind `parallel_for`, made for loops of tens of microseconds.
//!
//! Owns the worker threads. Promises: the caller takes part as worker 0; a
//! fork allocates nothing; a loop that starts inside another one (of this pool
//! or of another), or while another thread uses the pool, runs inline on its
//! caller, so there are never more running threads than the pool has. Models
//! that run at the same time in one process, each with a pool, share the CPUs:
//! see [`Pool::enter`]. A panic in a body aborts the process, since it cannot
//! cross the C ABI.
//!
//! Each worker has one cache line that only it and the forking thread touch.
//! A fork stores `WORK` there for each worker it needs, the worker takes it by
//! storing `RUNNING`, stores `IDLE` when done, and both sides spin for a bounded
//! time before they sleep on that word. A worker that a loop does not need is
//! not disturbed.
//!
//! Each worker has a part of the iterations, a [`Share`]. Who is done with its own
//! takes half of what another has left, unless the loop is so short that looking costs more:
//! beside other programs a worker may wait for a CPU far longer than its part takes, and
//! cores of one processor may differ in speed.

use crate::abi::{ABI_VERSION, Ctx, ParallelBody, chunk};
use crate::share::Share;
use rustix::thread::{CpuSet, futex, sched_setaffinity};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long an idle worker, or a caller that waits for its workers, spins
/// before it sleeps. It covers the gap between two kernels of a model, which is
/// shorter than the time to wake a sleeping thread; longer only burns energy.
pub const SPIN_NS: u64 = 100_000;

/// Upper bound of [`PoolOptions::threads`].
pub const MAX_THREADS: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Threads that run a loop, the caller included.
    pub threads: usize,
    /// See [`SPIN_NS`]; 0 sleeps at once.
    pub spin_ns: u64,
    /// The CPU of each worker, entry 0 being the caller's: it is not applied
    /// here, since the calling thread is the application's
    /// (see [`pin_current_thread`]).
    pub pin: Option<Vec<usize>>,
}

impl PoolOptions {
    /// No pinning; [`SPIN_NS`], or no spinning when there are more threads than CPUs.
    pub fn new(threads: usize) -> PoolOptions {
        PoolOptions {
            threads,
            spin_ns: if threads <= available_cpus() {
                SPIN_NS
            } else {
                0
            },
            pin: None,
        }
    }
}

#[derive(Debug, Error)]
pub enum PoolError {
    #[error("a pool of {0} threads is not possible; ask for 1 to {MAX_THREADS}")]
    Threads(usize),
    #[error("{threads} threads are to be pinned to {cpus} CPUs; name one CPU for each thread")]
    PinCount { threads: usize, cpus: usize },
    #[error("cannot pin a thread to CPU {cpu}: {source}; name a CPU that this process may use")]
    Pin { cpu: usize, source: io::Error },
    #[error("cannot start worker thread {worker}: {source}; ask for fewer threads")]
    Spawn { worker: usize, source: io::Error },
}

const IDLE: u32 = 0;
const WORK: u32 = 1;
const RUNNING: u32 = 2;
const EXIT: u32 = 3;

/// Spinning beyond this lets other threads of the same CPU go first: one of them
/// may be the thread that is waited for.
const COURTESY: Duration = Duration::from_micros(20);

/// A worker that was busy for less does not look for work of others: to look costs a cache line
/// of each.
const WORTH_LOOKING: Duration = Duration::from_micros(10);

/// The line shared by one worker and the forking thread. Two lines wide,
/// because processors prefetch neighbouring lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    state: AtomicU32,
    worker_sleeps: AtomicBool,
    caller_sleeps: AtomicBool,
}

#[derive(Clone, Copy)]
struct Job {
    ctx: *const Ctx,
    body: ParallelBody,
    env: *mut c_void,
    extent: i64,
    parts: i64,
    /// Iterations of one unit of a share.
    unit: i64,
}

#[repr(align(128))]
struct Shared {
    ctx: Ctx,
    /// The CPUs of this process when the pool was made, or its threads if those
    /// are more: what all running models have together.
    cpus: usize,
    spin: Duration,
    slots: Vec<Slot>,
    /// What is left of the loop for each thread, the caller first.
    shares: Vec<Share>,
    busy: AtomicBool,
    failure: AtomicI32,
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: `job` is written only by the thread that holds `busy`, before it
// stores `WORK` (release) in the slots of the workers that may read it, and not
// again before all of these are `IDLE`. A worker reads it only between taking
// `WORK` (acquire) and storing `IDLE`. The pointers in `ctx` and `job` are
// passed on, never followed here, except `ctx.pool`, which points at this value.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

thread_local! {
    /// The pool that this thread belongs to, and as which worker. A caller is
    /// worker 0 of its pool while it runs its part, and another worker while it runs that one's.
    static WORKER_OF: Cell<(*const Shared, i32)> = const { Cell::new((std::ptr::null(), 0)) };
}

/// Models of this process that are running now; see [`Pool::enter`].
static MODELS: AtomicUsize = AtomicUsize::new(0);

/// CPUs this process may use.
fn available_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Says that a model runs on a pool, until it is dropped.
#[must_use]
pub struct Running(());

impl Drop for Running {
    fn drop(&mut self) {
        MODELS.fetch_sub(1, Relaxed);
    }
}

/// A pool of persistent worker threads; dropping it ends them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool with the defaults of [`PoolOptions::new`].
    pub fn new(threads: usize) -> Result<Pool, PoolError> {
        Pool::with_options(&PoolOptions::new(threads))
    }

    pub fn with_options(options: &PoolOptions) -> Result<Pool, PoolError> {
        let threads = options.threads;
        if threads == 0 || threads > MAX_THREADS {
            return Err(PoolError::Threads(threads));
        }
        if let Some(pin) = &options.pin
            && pin.len() != threads
        {
            return Err(PoolError::PinCount {
                threads,
                cpus: pin.len(),
            });
        }
        let mut pool = Pool::without_workers(options);
        for worker in 1..threads {
            let cpu = options.pin.as_ref().map(|pin| pin[worker]);
            pool.workers.push(spawn(&pool.shared, worker, cpu)?);
        }
        Ok(pool)
    }

    /// A pool none of whose workers has come yet.
    fn without_workers(options: &PoolOptions) -> Pool {
        let threads = options.threads;
        let shared = Arc::new_cyclic(|weak: &std::sync::Weak<Shared>| Shared {
            ctx: Ctx {
                abi_version: ABI_VERSION,
                threads: threads as u32,
                parallel_for: pool_parallel_for,
                pool: weak.as_ptr().cast(),
            },
            cpus: available_cpus().max(threads),
            spin: Duration::from_nanos(options.spin_ns),
            slots: (1..threads).map(|_| Slot::default()).collect(),
            shares: (0..threads).map(|_| Share::default()).collect(),
            busy: AtomicBool::new(false),
            failure: AtomicI32::new(0),
            job: UnsafeCell::new(None),
        });
        Pool {
            shared,
            workers: Vec::with_capacity(threads - 1),
        }
    }

    pub fn threads(&self) -> usize {
        self.shared.slots.len() + 1
    }

    /// Tells every pool of this process that one more model runs. While several
    /// do, a loop of each takes no more threads than its share of the CPUs, at
    /// least its caller: an application that runs a model in each of its threads
    /// keeps as many threads busy as there are CPUs, not the product.
    pub fn enter(&self) -> Running {
        MODELS.fetch_add(1, Relaxed);
        Running(())
    }

    /// The context to pass to kernels; valid as long as the pool.
    pub fn ctx(&self) -> &Ctx {
        &self.shared.ctx
    }

    /// Runs `body(iterations, worker)` over `[0, extent)` as
    /// [`Ctx::parallel_for`] does, with its result.
    pub fn run<F>(&self, extent: i64, body: F) -> i32
    where
        F: Fn(Range<i64>, usize) -> i32 + Sync,
    {
        unsafe extern "C" fn call<F: Fn(Range<i64>, usize) -> i32 + Sync>(
            _: *const Ctx,
            env: *mut c_void,
            begin: i64,
            end: i64,
            worker: i32,
        ) -> i32 {
            // SAFETY: `env` is the closure below, which outlives the loop and is `Sync`.
            unsafe { (*env.cast::<F>())(begin..end, worker as usize) }
        }
        let env = (&raw const body).cast_mut().cast::<c_void>();
        // SAFETY: the context is this pool's; `call` matches `env`.
        unsafe { pool_parallel_for(self.ctx(), call::<F>, env, extent) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for slot in &self.shared.slots[..self.workers.len()] {
            slot.signal(EXIT);
        }
        fence(SeqCst);
        for (slot, worker) in self.shared.slots.iter().zip(self.workers.drain(..)) {
            slot.wake_worker();
            // A worker cannot panic: bodies abort instead.
            let _ = worker.join();
        }
    }
}

/// Keeps the calling thread on one CPU.
pub fn pin_current_thread(cpu: usize) -> Result<(), PoolError> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(PoolError::Pin {
            cpu,
            source: io::ErrorKind::InvalidInput.into(),
        });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|e| PoolError::Pin {
        cpu,
        source: e.into(),
    })
}

fn spawn(
    shared: &Arc<Shared>,
    worker: usize,
    cpu: Option<usize>,
) -> Result<JoinHandle<()>, PoolError> {
    let (sender, started) = std::sync::mpsc::channel();
    let shared = Arc::clone(shared);
    let run = move || {
        let pinned = cpu.map_or(Ok(()), pin_current_thread);
        let failed = pinned.is_err();
        let _ = sender.send(pinned);
        if !failed {
            work(&shared, worker);
        }
    };
    let handle = std::thread::Builder::new()
        .name(format!("worker-{worker}"))
        .spawn(run)
        .map_err(|source| PoolError::Spawn { worker, source })?;
    match started.recv() {
        Ok(Ok(())) => Ok(handle),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(PoolError::Spawn {
            worker,
            source: io::ErrorKind::Other.into(),
        }),
    }
}

fn work(shared: &Shared, worker: usize) {
    WORKER_OF.set((shared, worker as i32));
    let slot = &shared.slots[worker - 1];
    while slot.wait_for_work(shared.spin) {
        // SAFETY: `WORK` was stored after the job was written, and the job
        // stays until this worker stores `IDLE`.
        let job = unsafe { *shared.job.get() }.expect("a fork sets the job before it signals");
        run_part(shared, &job, worker);
        slot.finish();
    }
}

/// Runs the part of a worker, and then what others have left, as that worker.
fn run_part(shared: &Shared, job: &Job, worker: usize) {
    let (own, begun) = (&shared.shares[worker], Instant::now());
    loop {
        run_own(shared, job, worker);
        if begun.elapsed() < WORTH_LOOKING {
            return;
        }
        let parts = job.parts as usize;
        let others = (1..parts).map(|i| &shared.shares[(worker + i) % parts]);
        match others.filter_map(Share::take_back).next() {
            // Others may take of it in turn.
            Some(taken) => own.set(taken),
            None => return,
        }
    }
}

/// Runs what is left of the part of a worker, as that worker.
fn run_own(shared: &Shared, job: &Job, worker: usize) {
    while let Some(units) = shared.shares[worker].take_front() {
        let at = |unit: u32| (i64::from(unit) * job.unit).min(job.extent);
        let (begin, end) = (at(units.start), at(units.end));
        // SAFETY: the caller of `parallel_for` vouches for body and environment.
        let code = unsafe { (job.body)(job.ctx, job.env, begin, end, worker as i32) };
        if code != 0 {
            let _ = shared.failure.compare_exchange(0, code, Relaxed, Relaxed);
        }
    }
}

unsafe extern "C" fn pool_parallel_for(
    ctx: *const Ctx,
    body: ParallelBody,
    env: *mut c_void,
    extent: i64,
) -> i32 {
    if extent <= 0 {
        return 0;
    }
    // SAFETY: `ctx` is a pool's context (or a copy with fewer threads), and the
    // caller keeps the pool alive.
    let (shared, threads) = unsafe { (&*(*ctx).pool.cast::<Shared>(), i64::from((*ctx).threads)) };
    let outer = WORKER_OF.get();
    if std::ptr::eq(outer.0, shared) {
        // A worker index beyond this context's belongs to another kernel's loop.
        let worker = Some(outer.1).filter(|w| i64::from(*w) < threads);
        let worker = worker.unwrap_or(0);
        // SAFETY: the caller vouches for body and environment.
        return unsafe { body(ctx, env, 0, extent, worker) };
    }
    let parts = if outer.0.is_null() {
        threads
            .min(shared.slots.len() as i64 + 1)
            .min(shared.share())
            .min(extent)
            .max(1)
    } else {
        // A worker of another pool: its siblings have the CPUs.
        1
    };
    if parts == 1
        || shared
            .busy
            .compare_exchange(false, true, Acquire, Relaxed)
            .is_err()
    {
        // SAFETY: as above.
        return unsafe { body(ctx, env, 0, extent, 0) };
    }
    let job = Job {
        ctx,
        body,
        env,
        extent,
        parts,
        // Shares count in 32 bits.
        unit: extent / i64::from(u32::MAX) + 1,
    };
    shared.share_out(&job);
    // SAFETY: `busy` is held, so no worker reads the job.
    unsafe { *shared.job.get() = Some(job) };
    shared.failure.store(0, Relaxed);
    let slots = &shared.slots[..parts as usize - 1];
    for slot in slots {
        slot.signal(WORK);
    }
    // Pairs with the fence in `wait_for_work`: either the worker sees the
    // signal before it sleeps, or this thread sees that it sleeps.
    fence(SeqCst);
    for slot in slots {
        slot.wake_worker();
    }
    WORKER_OF.set((shared, 0));
    run_part(shared, &job, 0);
    for (slot, worker) in slots.iter().zip(1..) {
        if slot.take(IDLE) {
            WORKER_OF.set((shared, worker as i32));
            run_own(shared, &job, worker);
        }
    }
    WORKER_OF.set(outer);
    for slot in slots {
        slot.wait_until_idle(shared.spin);
    }
    let code = shared.failure.load(Relaxed);
    shared.busy.store(false, Release);
    code
}

impl Shared {
    /// Gives each thread its part of a loop that has not begun.
    fn share_out(&self, job: &Job) {
        let units = (job.extent - 1) / job.unit + 1;
        for (share, part) in self.shares.iter().zip(0..job.parts) {
            let (begin, end) = chunk(units, job.parts, part);
            share.set(begin as u32..end as u32);
        }
    }

    /// Threads that a loop may take while other models run.
    fn share(&self) -> i64 {
        (self.cpus / MODELS.load(Relaxed).max(1)) as i64
    }
}

impl Slot {
    fn signal(&self, state: u32) {
        self.state.store(state, Release);
    }

    /// To be called after `signal` and a sequentially consistent fence.
    fn wake_worker(&self) {
        if self.worker_sleeps.load(Relaxed) {
            let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
        }
    }

    /// Takes the work that was signalled, unless another thread did.
    fn take(&self, then: u32) -> bool {
        let taken = self.state.compare_exchange(WORK, then, Acquire, Relaxed);
        taken.is_ok()
    }

    /// Waits for work and takes it; whether there is any, or the worker is to end.
    fn wait_for_work(&self, spin: Duration) -> bool {
        let signalled = || self.state.load(Relaxed) != IDLE;
        loop {
            if !spin_until(spin, signalled) {
                self.worker_sleeps.store(true, Relaxed);
                fence(SeqCst);
                while !signalled() {
                    let _ = futex::wait(&self.state, futex::Flags::PRIVATE, IDLE, None);
                }
                self.worker_sleeps.store(false, Relaxed);
            }
            if self.take(RUNNING) {
                return true;
            }
            if self.state.load(Acquire) == EXIT {
                return false;
            }
        }
    }

    fn finish(&self) {
        self.state.store(IDLE, Release);
        // Pairs with the fence in `wait_until_idle`.
        fence(SeqCst);
        if self.caller_sleeps.load(Relaxed) {
            let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
        }
    }

    fn wait_until_idle(&self, spin: Duration) {
        let idle = || self.state.load(Acquire) == IDLE;
        if !spin_until(spin, idle) {
            self.caller_sleeps.store(true, Relaxed);
            fence(SeqCst);
            while !idle() {
                let _ = futex::wait(&self.state, futex::Flags::PRIVATE, RUNNING, None);
            }
            self.caller_sleeps.store(false, Relaxed);
        }
    }
}

/// Spins until `done`, at most about `limit`; whether it is done.
fn spin_until(limit: Duration, done: impl Fn() -> bool) -> bool {
    if done() {
        return true;
    }
    if limit.is_zero() {
        return false;
    }
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            std::hint::spin_loop();
            if done() {
                return true;
            }
        }
        let spun = start.elapsed();
        if spun >= limit {
            return false;
        }
        if spun >= COURTESY {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Far longer than any loop of these tests takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn the_caller_takes_what_workers_have_not_begun() {
        let pool = Pool::without_workers(&PoolOptions::new(3));
        for _ in 0..2 {
            let seen = Mutex::new(Vec::new());
            let code = pool.run(7, |range, worker| {
                let nested = pool.run(1, |_, nested| i32::from(nested != worker));
                seen.lock().expect("no panic").push((range, worker));
                nested
            });
            assert_eq!(code, 0, "a nested loop is of the same worker");
            let seen = seen.into_inner().expect("no panic");
            assert_eq!(iterations(seen.iter().map(|(range, _)| range)), all(7));
        }
    }

    fn iterations<'a>(ranges: impl Iterator<Item = &'a Range<i64>>) -> Vec<i64> {
        let mut all: Vec<i64> = ranges.cloned().flatten().collect();
        all.sort_unstable();
        all
    }

    fn all(extent: i64) -> Vec<i64> {
        (0..extent).collect()
    }

    /// The first iteration waits until all have run that whoever runs it has not taken with it.
    #[test]
    fn idle_threads_take_what_a_slow_one_has_left() {
        let pool = Pool::new(2).expect("two threads are possible");
        let (seen, others) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let begun = Instant::now();
        let code = pool.run(64, |range, _| {
            for i in range.clone() {
                match i {
                    // A worker takes the larger half of its part first: 16 iterations.
                    0 => while others.load(Acquire) < 48 && begun.elapsed() < PATIENCE {},
                    16.. => drop(others.fetch_add(1, Release)),
                    _ => {}
                }
                std::thread::sleep(Duration::from_micros(20));
            }
            seen.lock().expect("no panic").push(range);
            0
        });
        assert_eq!(code, 0);
        let seen = seen.into_inner().expect("no panic");
        assert_eq!(iterations(seen.iter()), all(64));
        assert!(begun.elapsed() < PATIENCE, "nobody took the others");
    }

    #[test]
    fn more_iterations_than_a_share_counts_run_in_units() {
        let pool = Pool::new(2).expect("two threads are possible");
        let extent = i64::from(u32::MAX) * 3 + 5;
        let (count, last) = (Mutex::new(0), Mutex::new(0));
        pool.run(extent, |range, _| {
            *count.lock().expect("no panic") += range.end - range.start;
            let mut last = last.lock().expect("no panic");
            *last = range.end.max(*last);
            0
        });
        assert_eq!(count.into_inner().expect("no panic"), extent);
        assert_eq!(last.into_inner().expect("no panic"), extent);
    }
}
