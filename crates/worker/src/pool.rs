//! The parent's side: one thread and one child process a slot.

use crate::child::{ChildLimits, CpuTime, NOTE_MARK};
use crate::frame::{self, Until};
use crate::stop::{LINGER, Stop};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How a child is started.
#[derive(Clone, Debug)]
pub struct CommandLine {
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Pin child `i` to this CPU, if there is an `i`th entry.
    pub cpus: Vec<usize>,
    /// Ends what its children work on when it is asked for, until [`Pool::end_by`] is called.
    pub stop: Stop,
}

/// Why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Death {
    /// The child ended: by a signal, or with an exit code.
    Crashed {
        signal: Option<i32>,
        code: Option<i32>,
        stderr: String,
    },
    /// The child's allocator gave up, or the system ended it for want of memory.
    OutOfMemory {
        /// Whether the system did.
        killed: bool,
        stderr: String,
    },
    /// The deadline passed and the child was killed, or it had used up its CPU time.
    TimedOut { limit: Duration },
    /// No child could be started.
    NotStarted { reason: String },
    /// The time of all requests was over ([`Pool::end_by`]), which says nothing of this one.
    Withdrawn,
}

/// Signals that a process does not cause itself, short of asking for them.
pub const OUTSIDE_SIGNALS: [i32; 5] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGKILL,
    libc::SIGTERM,
];

impl Death {
    /// Whether something else ended the child, as far as can be told.
    pub fn from_outside(&self) -> bool {
        match self {
            Death::Crashed { signal, .. } => signal.is_some_and(|s| OUTSIDE_SIGNALS.contains(&s)),
            Death::OutOfMemory { killed, .. } => *killed,
            Death::TimedOut { .. } | Death::NotStarted { .. } | Death::Withdrawn => false,
        }
    }
}

/// The answer to the request with this id.
#[derive(Debug)]
pub struct Answer<Reply> {
    pub id: u64,
    pub result: Result<Reply, Death>,
    /// From handing the request to the child to its answer.
    pub wall: Duration,
    /// CPU time that the child used for this request, of all its threads, up to
    /// its reply or its end. Of a first request that the child died of, the
    /// start of the child is in it; nothing if none could be started.
    pub cpu: Duration,
    /// What a child that died last said it was doing with [`note`](crate::note);
    /// empty if it lived or never said.
    pub note: String,
    /// Requests that this child had answered before.
    pub earlier: u64,
}

/// Time that a request may take, from when a child is there to get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit {
    /// On the wall, after which the parent kills the child.
    pub wall: Duration,
    /// Of all threads of the child, after which, and up to two seconds more, the
    /// system ends it: also where its parent cannot, or wakes too late.
    pub cpu: Duration,
}

impl TimeLimit {
    /// What so many threads can use in this time.
    pub fn of_threads(wall: Duration, threads: u32) -> TimeLimit {
        TimeLimit {
            wall,
            cpu: wall.saturating_mul(threads.max(1)),
        }
    }
}

#[derive(Debug, Error)]
pub enum PoolError {
    #[error("cannot start the worker thread: {0}")]
    Thread(std::io::Error),
}

struct Job<Request> {
    id: u64,
    request: Request,
    limit: TimeLimit,
    /// Whether a child that answered others before is to be replaced first.
    fresh: bool,
    /// Whether another child may answer where something else ended the first.
    retry: bool,
}

struct Queue<Request> {
    jobs: VecDeque<Job<Request>>,
    /// Slots that take no job until `resume`.
    paused: bool,
    /// When all requests end.
    end: Option<Instant>,
    /// Whether the stop had been asked for when that was set.
    end_knows_stop: bool,
    running: usize,
    closed: bool,
}

struct Shared<Request> {
    queue: Mutex<Queue<Request>>,
    changed: Condvar,
}

impl<Request> Shared<Request> {
    fn lock(&self) -> MutexGuard<'_, Queue<Request>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fixed number of child processes that share one queue of requests.
pub struct Pool<Request, Reply> {
    shared: Arc<Shared<Request>>,
    answers: Receiver<Answer<Reply>>,
    threads: Vec<JoinHandle<()>>,
    pending: usize,
    stop: Stop,
}

impl<Request, Reply> Pool<Request, Reply>
where
    Request: Serialize + Send + 'static,
    Reply: DeserializeOwned + Send + 'static,
{
    /// Children start with their first request.
    pub fn new(command: &CommandLine, size: usize, limits: ChildLimits) -> Result<Self, PoolError> {
        let queue = Queue {
            jobs: VecDeque::new(),
            paused: false,
            end: None,
            end_knows_stop: false,
            running: 0,
            closed: false,
        };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
        });
        let (sender, answers) = channel();
        let mut pool = Pool {
            shared,
            answers,
            threads: vec![],
            pending: 0,
            stop: command.stop.clone(),
        };
        for i in 0..size {
            let mut slot = Slot {
                command: command.clone(),
                cpu: command.cpus.get(i).copied(),
                limits,
                child: None,
            };
            let (shared, sender) = (pool.shared.clone(), sender.clone());
            let thread = std::thread::Builder::new()
                .name(format!("worker {i}"))
                .spawn(move || slot.run(&shared, &sender));
            pool.threads.push(thread.map_err(PoolError::Thread)?);
        }
        Ok(pool)
    }

    /// Queues a request.
    pub fn submit(&mut self, id: u64, request: Request, limit: TimeLimit) {
        self.push(Job {
            id,
            request,
            limit,
            fresh: false,
            retry: false,
        });
    }

    /// Queues a request that needs nothing of what its child did before: where
    /// something else ends that child, another gets it, once.
    pub fn submit_stateless(&mut self, id: u64, request: Request, limit: TimeLimit) {
        self.push(Job {
            id,
            request,
            limit,
            fresh: false,
            retry: true,
        });
    }

    /// Queues a request for a child that has answered no other.
    pub fn submit_fresh(&mut self, id: u64, request: Request, limit: TimeLimit) {
        self.push(Job {
            id,
            request,
            limit,
            fresh: true,
            retry: false,
        });
    }

    fn push(&mut self, job: Job<Request>) {
        self.shared.lock().jobs.push_back(job);
        self.pending += 1;
        self.shared.changed.notify_all();
    }

    /// Requests without an answer yet.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// The next answer, or `None` if nothing is pending or the wait is over.
    pub fn next(&mut self, wait: Duration) -> Option<Answer<Reply>> {
        if self.pending == 0 {
            return None;
        }
        match self.answers.recv_timeout(wait) {
            Ok(answer) => {
                self.pending -= 1;
                Some(answer)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("slots live as long as the pool"),
        }
    }

    /// Drops queued requests and returns their ids; running ones go on.
    pub fn clear(&mut self) -> Vec<u64> {
        let dropped: Vec<u64> = self.shared.lock().jobs.drain(..).map(|j| j.id).collect();
        self.pending -= dropped.len();
        dropped
    }

    /// No request that begins from here on runs beyond `end`: the child is killed, and what
    /// has not begun by then never does. Both are answered with [`Death::Withdrawn`]. So are
    /// requests when a stop is asked for ([`CommandLine::stop`]), until this is called again:
    /// what runs then ends within [`LINGER`].
    pub fn end_by(&mut self, end: Option<Instant>) {
        let mut queue = self.shared.lock();
        (queue.end, queue.end_knows_stop) = (end, self.stop.is_asked());
    }

    /// Lets running requests finish and starts none until `resume`.
    pub fn pause(&mut self) {
        let mut queue = self.shared.lock();
        queue.paused = true;
        while queue.running > 0 {
            queue = self
                .shared
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn resume(&mut self) {
        self.shared.lock().paused = false;
        self.shared.changed.notify_all();
    }
}

impl<Request, Reply> Drop for Pool<Request, Reply> {
    fn drop(&mut self) {
        {
            let mut queue = self.shared.lock();
            queue.closed = true;
            queue.jobs.clear();
        }
        self.shared.changed.notify_all();
        for t in self.threads.drain(..) {
            // A slot's panic was already printed by its thread.
            let _ = t.join();
        }
    }
}

/// Last bytes of standard error that are kept.
const STDERR_BYTES: usize = 4096;

struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    stderr: Option<JoinHandle<String>>,
    answered: u64,
    /// CPU time of the child's life at its last reply.
    cpu_ns: u64,
    /// The system's count of processes ended for memory when this one started.
    oom_kills: u64,
}

struct Slot {
    command: CommandLine,
    cpu: Option<usize>,
    limits: ChildLimits,
    child: Option<Running>,
}

impl Slot {
    fn run<Request: Serialize, Reply: DeserializeOwned>(
        &mut self,
        shared: &Shared<Request>,
        answers: &Sender<Answer<Reply>>,
    ) {
        loop {
            let mut queue = shared.lock();
            let job = loop {
                if queue.closed {
                    drop(queue);
                    if let Some(running) = self.child.take() {
                        running.kill();
                    }
                    return;
                }
                if !queue.paused
                    && let Some(job) = queue.jobs.pop_front()
                {
                    break job;
                }
                queue = shared
                    .changed
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            queue.running += 1;
            let (end, knows_stop) = (queue.end, queue.end_knows_stop);
            drop(queue);
            let stop = self.command.stop.clone();
            let end = || match stop.asked().filter(|_| !knows_stop) {
                Some(asked) => Some(end.unwrap_or(asked + LINGER).min(asked + LINGER)),
                None => end,
            };
            let mut answer = self.answer(&job, &end);
            if job.retry && answer.result.as_ref().is_err_and(Death::from_outside) {
                answer = self.answer(&job, &end);
            }
            shared.lock().running -= 1;
            shared.changed.notify_all();
            if answers.send(answer).is_err() {
                return;
            }
        }
    }

    fn answer<Request: Serialize, Reply: DeserializeOwned>(
        &mut self,
        job: &Job<Request>,
        end: &dyn Fn() -> Option<Instant>,
    ) -> Answer<Reply> {
        let answer = |result, start: Instant, cpu, note, earlier| Answer {
            id: job.id,
            result,
            wall: start.elapsed(),
            cpu,
            note,
            earlier,
        };
        let none = Duration::ZERO;
        let start = Instant::now();
        let over = || end().is_some_and(|end| Instant::now() >= end);
        if over() {
            return answer(Err(Death::Withdrawn), start, none, String::new(), 0);
        }
        let mut running = match self.child_for(job.fresh) {
            Ok(running) => running,
            Err(e) => {
                let reason = e.to_string();
                let death = Err(Death::NotStarted { reason });
                return answer(death, start, none, String::new(), 0);
            }
        };
        let start = Instant::now();
        let earlier = running.answered;
        let deadline = || {
            let deadline = start + job.limit.wall;
            end().map_or(deadline, |end| end.min(deadline))
        };
        let error = match running.exchange(job, &deadline) {
            Ok((cpu, reply)) => {
                running.answered += 1;
                running.cpu_ns = cpu.after_ns;
                self.child = Some(running);
                let cpu = Duration::from_nanos(cpu.after_ns.saturating_sub(cpu.before_ns));
                return answer(Ok(reply), start, cpu, String::new(), earlier);
            }
            Err(e) => e,
        };
        let note = running.note();
        let (death, cpu) = if error.kind() == io::ErrorKind::TimedOut {
            let death = match start.elapsed() < job.limit.wall && over() {
                true => Death::Withdrawn,
                false => Death::TimedOut {
                    limit: job.limit.wall,
                },
            };
            (death, running.kill())
        } else {
            running.death(&error, job.limit.cpu)
        };
        answer(Err(death), start, cpu, note, earlier)
    }

    /// The living child, or a new one.
    fn child_for(&mut self, fresh: bool) -> io::Result<Running> {
        if let Some(mut running) = self.child.take() {
            // A child may have died while idle, which no request is to blame for.
            let alive = matches!(running.child.try_wait(), Ok(None));
            if alive && !(fresh && running.answered > 0) {
                return Ok(running);
            }
            running.kill();
        }
        self.start()
    }

    fn start(&self) -> io::Result<Running> {
        let oom_kills = oom_kills();
        let mut child = Command::new(&self.command.program)
            .args(&self.command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The signals of a terminal are its parent's, which ends it.
            .process_group(0)
            .spawn()?;
        if let (Some(cpu), Some(pid)) =
            (self.cpu, rustix::process::Pid::from_raw(child.id() as i32))
        {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            // Best effort: an absent CPU leaves the child unpinned.
            let _ = rustix::thread::sched_setaffinity(Some(pid), &set);
        }
        let stderr = child.stderr.take().expect("piped");
        let running = Running {
            input: child.stdin.take(),
            output: child.stdout.take().expect("piped"),
            stderr: Some(std::thread::spawn(move || tail(stderr))),
            child,
            answered: 0,
            cpu_ns: 0,
            oom_kills,
        };
        match running.greet(&self.limits) {
            Ok(()) => Ok(running),
            Err(e) => {
                running.kill();
                Err(e)
            }
        }
    }
}

impl Running {
    fn greet(&self, limits: &ChildLimits) -> io::Result<()> {
        let input = self.input.as_ref().expect("kept until the child ends");
        frame::set_nonblocking(input)?;
        frame::set_nonblocking(&self.output)?;
        // It fits into an empty pipe, so nothing waits for the child to start.
        let deadline = Instant::now();
        frame::write(
            &mut Until {
                pipe: input,
                deadline: &|| deadline,
            },
            limits,
        )
    }

    /// Sends a request and reads its reply. A reply to another request is an error:
    /// nothing that follows it can be trusted.
    fn exchange<Request: Serialize, Reply: DeserializeOwned>(
        &mut self,
        job: &Job<Request>,
        deadline: &dyn Fn() -> Instant,
    ) -> io::Result<(CpuTime, Reply)> {
        let allowed_ns = u64::try_from(job.limit.cpu.as_nanos()).unwrap_or(u64::MAX);
        let input = self.input.as_ref().expect("kept until the child ends");
        frame::write(
            &mut Until {
                pipe: input,
                deadline,
            },
            &(job.id, allowed_ns, &job.request),
        )?;
        let answer = frame::read::<(u64, CpuTime, Reply)>(&mut Until {
            pipe: &self.output,
            deadline,
        })?;
        let (id, cpu, reply) = answer.ok_or(io::ErrorKind::UnexpectedEof)?;
        if id != job.id {
            let wrong = format!("request {} was answered with the reply to {id}", job.id);
            return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
        }
        Ok((cpu, reply))
    }

    /// What the child last said it was doing. It can be read until the child
    /// has been waited for.
    fn note(&self) -> String {
        let name = std::fs::read(format!("/proc/{}/comm", self.child.id())).unwrap_or_default();
        let note = name.strip_prefix(NOTE_MARK).unwrap_or_default();
        String::from_utf8_lossy(note).trim_end().to_owned()
    }

    /// Whether the child has ended, or waits until it has; either way it can
    /// still be asked about.
    fn ended(&self, wait: bool) -> bool {
        let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) else {
            return true;
        };
        let mut options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        options.set(WaitIdOptions::NOHANG, !wait);
        loop {
            match waitid(WaitId::Pid(pid), options) {
                Ok(status) => return status.is_some(),
                Err(rustix::io::Errno::INTR) => {}
                // There is no such child any more.
                Err(_) => return true,
            }
        }
    }

    /// CPU time since the last reply of a child that has ended and was not yet
    /// waited for: only then is the system's count complete.
    fn last_cpu(&self) -> Duration {
        let mut total = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: both calls only write to what they are given here; the child
        // has not been waited for, so its id names no other process.
        let read = unsafe {
            let mut clock: libc::clockid_t = 0;
            libc::clock_getcpuclockid(self.child.id() as libc::pid_t, &raw mut clock) == 0
                && libc::clock_gettime(clock, &raw mut total) == 0
        };
        if !read {
            return Duration::ZERO;
        }
        let total = Duration::new(total.tv_sec as u64, total.tv_nsec as u32);
        total.saturating_sub(Duration::from_nanos(self.cpu_ns))
    }

    /// Ends the child and waits for it, so that none is left behind; the CPU
    /// time it took since its last reply.
    fn kill(mut self) -> Duration {
        // It may have ended already; waiting reaps it either way.
        let _ = self.child.kill();
        self.ended(true);
        let cpu = self.last_cpu();
        let _ = self.child.wait();
        self.join_stderr();
        cpu
    }

    fn join_stderr(&mut self) -> String {
        self.stderr
            .take()
            .and_then(|t| t.join().ok())
            .unwrap_or_default()
    }

    /// Why the child stopped answering, and the CPU time it took since its last
    /// reply; `error` is what the parent saw of it, `cpu_limit` what it might use.
    fn death(mut self, error: &io::Error, cpu_limit: Duration) -> (Death, Duration) {
        drop(self.input.take());
        // It closed its output: it is ending, or broke the protocol and is ended.
        let give_up = Instant::now() + Duration::from_secs(2);
        let mut nap = Duration::from_micros(50);
        // One that answered something else is not waited for, and not asked why.
        let astray = error.kind() == io::ErrorKind::InvalidData;
        while !astray && !self.ended(false) && Instant::now() < give_up {
            std::thread::sleep(nap);
            nap = (2 * nap).min(Duration::from_millis(5));
        }
        let by_itself = !astray && self.ended(false);
        if !by_itself {
            let _ = self.child.kill();
            self.ended(true);
        }
        let cpu = self.last_cpu();
        let status = self.child.wait();
        let stderr = self.join_stderr();
        let broken = || Death::Crashed {
            signal: None,
            code: None,
            stderr: format!("the worker broke its protocol: {error}\n{stderr}"),
        };
        let death = match status {
            Ok(status) if by_itself => self.end(status, &stderr, cpu_limit),
            _ => broken(),
        };
        (death, cpu)
    }

    /// What the status of a child that ended by itself means.
    fn end(&self, status: ExitStatus, stderr: &str, cpu_limit: Duration) -> Death {
        let (signal, code) = (status.signal(), status.code());
        if signal == Some(libc::SIGXCPU) {
            return Death::TimedOut { limit: cpu_limit };
        }
        let stderr = stderr.to_owned();
        let killed = signal == Some(libc::SIGKILL) && oom_kills() > self.oom_kills;
        let gave_up = stderr.contains("memory allocation of") || stderr.contains("out of memory");
        if killed || gave_up {
            return Death::OutOfMemory { killed, stderr };
        }
        Death::Crashed {
            signal,
            code,
            stderr,
        }
    }
}

/// How many processes the system has ended for want of memory; 0 where it does not say.
fn oom_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// The last bytes of what the child prints, read until it ends.
fn tail(mut stderr: ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0u8; 4096];
    loop {
        match stderr.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => {
                kept.extend_from_slice(&chunk[..n]);
                let excess = kept.len().saturating_sub(STDERR_BYTES);
                kept.drain(..excess);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}
