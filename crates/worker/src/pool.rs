//! The parent's side: one thread and one child process a slot.

use crate::child::Limits;
use crate::frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
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
    /// The child's allocator gave up.
    OutOfMemory { stderr: String },
    /// The deadline passed; the child was killed.
    TimedOut { limit: Duration },
    /// No child could be started.
    NotStarted { reason: String },
}

/// The answer to the request with this id.
#[derive(Debug)]
pub struct Answer<Reply> {
    pub id: u64,
    pub result: Result<Reply, Death>,
    /// From handing the request to the child to its answer.
    pub wall: Duration,
}

#[derive(Debug, Error)]
pub enum PoolError {
    #[error("cannot start the worker thread: {0}")]
    Thread(std::io::Error),
}

struct Job<Request> {
    id: u64,
    request: Request,
    limit: Duration,
}

struct Queue<Request> {
    jobs: VecDeque<Job<Request>>,
    /// Slots that take no job until `resume`.
    paused: bool,
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
}

impl<Request, Reply> Pool<Request, Reply>
where
    Request: Serialize + Send + 'static,
    Reply: DeserializeOwned + Send + 'static,
{
    /// Children start with their first request.
    pub fn new(command: &CommandLine, size: usize, limits: Limits) -> Result<Self, PoolError> {
        let queue = Queue {
            jobs: VecDeque::new(),
            paused: false,
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

    /// Queues a request. The limit counts from when a child gets it.
    pub fn submit(&mut self, id: u64, request: Request, limit: Duration) {
        self.shared
            .lock()
            .jobs
            .push_back(Job { id, request, limit });
        self.pending += 1;
        self.shared.changed.notify_one();
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
}

struct Slot {
    command: CommandLine,
    cpu: Option<usize>,
    limits: Limits,
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
            drop(queue);
            let start = Instant::now();
            let result = self.answer(&job);
            let answer = Answer {
                id: job.id,
                result,
                wall: start.elapsed(),
            };
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
    ) -> Result<Reply, Death> {
        let deadline = Instant::now() + job.limit;
        // A child that died while idle gets one replacement before the request fails.
        for attempt in 0..2 {
            let mut running = match self.child.take() {
                Some(r) => r,
                None => self.start().map_err(|e| Death::NotStarted {
                    reason: e.to_string(),
                })?,
            };
            let input = running.input.as_mut().expect("kept until the child ends");
            if frame::write(input, &job.request).is_err() {
                if attempt == 0 {
                    running.kill();
                    continue;
                }
                return Err(running.death());
            }
            if !wait_readable(&running.output, deadline) {
                running.kill();
                return Err(Death::TimedOut { limit: job.limit });
            }
            return match frame::read(&mut running.output) {
                Ok(Some(reply)) => {
                    self.child = Some(running);
                    Ok(reply)
                }
                Ok(None) | Err(_) => Err(running.death()),
            };
        }
        unreachable!("the second attempt returns")
    }

    fn start(&self) -> std::io::Result<Running> {
        let mut child = Command::new(&self.command.program)
            .args(&self.command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
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
        let mut running = Running {
            input: child.stdin.take(),
            output: child.stdout.take().expect("piped"),
            stderr: Some(std::thread::spawn(move || tail(stderr))),
            child,
        };
        let input = running.input.as_mut().expect("piped");
        if let Err(e) = frame::write(input, &self.limits) {
            running.kill();
            return Err(e);
        }
        Ok(running)
    }
}

impl Running {
    /// Ends the child and waits for it, so that none is left behind.
    fn kill(mut self) {
        // It may have ended already; waiting reaps it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.join_stderr();
    }

    fn join_stderr(&mut self) -> String {
        self.stderr
            .take()
            .and_then(|t| t.join().ok())
            .unwrap_or_default()
    }

    /// Why the child stopped answering.
    fn death(mut self) -> Death {
        drop(self.input.take());
        // It closed its output: it is ending, or broke the protocol and is ended.
        let give_up = Instant::now() + Duration::from_secs(2);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                _ => {
                    let _ = self.child.kill();
                    break self.child.wait().ok();
                }
            }
        };
        let stderr = self.join_stderr();
        if stderr.contains("memory allocation of") || stderr.contains("out of memory") {
            return Death::OutOfMemory { stderr };
        }
        let signal = status.and_then(|s| s.signal());
        let code = status.and_then(|s| s.code());
        Death::Crashed {
            signal,
            code,
            stderr,
        }
    }
}

fn tail(mut stderr: ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0u8; 4096];
    while let Ok(n) = stderr.read(&mut chunk) {
        if n == 0 {
            break;
        }
        kept.extend_from_slice(&chunk[..n]);
        let excess = kept.len().saturating_sub(STDERR_BYTES);
        kept.drain(..excess);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Whether data (or the end of the stream) arrives before the deadline.
fn wait_readable(output: &ChildStdout, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
