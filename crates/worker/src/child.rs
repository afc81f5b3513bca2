//! The child's side: limits on itself, and the loop that answers requests.

use crate::frame;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;

/// Limits that a child puts on itself before it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildLimits {
    /// Address space in bytes, or what the user allows where that is less; an
    /// allocation beyond it fails.
    pub address_space: Option<u64>,
    /// Whether it may write to files. A write by one that may not ends it; by one
    /// that may it fails, where the user's limit of file sizes is reached.
    pub writes_files: bool,
}

impl ChildLimits {
    fn apply(self) -> io::Result<()> {
        if let Some(bytes) = self.address_space {
            // The user's own limit may be lower, and cannot be raised.
            let bytes = bytes.min(limit(libc::RLIMIT_AS)?.rlim_cur);
            let limit = libc::rlimit {
                rlim_cur: bytes,
                rlim_max: bytes,
            };
            // SAFETY: a valid limit structure.
            if unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // A crash is an expected outcome here: no core files.
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: a valid limit structure; dying with the parent needs no cleanup.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // Whatever the parent ignores, running out of CPU time ends a child.
            libc::signal(libc::SIGXCPU, libc::SIG_DFL);
        }
        // When memory runs out the system shall end a worker, not its parent.
        // Best effort: a system may forbid it.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        let at_file_limit = match self.writes_files {
            true => libc::SIG_IGN,
            false => libc::SIG_DFL,
        };
        // SAFETY: neither disposition runs code of this process.
        unsafe { libc::signal(libc::SIGXFSZ, at_file_limit) };
        if !self.writes_files {
            // SAFETY: a valid limit structure.
            if unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &none) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

/// What this process may use now.
fn limit(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for a limit.
    if unsafe { libc::getrlimit(resource, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

/// Lets this process use so much more CPU time; the system ends it with
/// `SIGXCPU` soon after. The system counts whole seconds, so one is added.
fn allow_cpu(used_ns: u64, more_ns: u64) -> io::Result<()> {
    let wanted = used_ns.saturating_add(more_ns).div_ceil(1_000_000_000) + 1;
    let mut limit = limit(libc::RLIMIT_CPU)?;
    limit.rlim_cur = wanted.min(limit.rlim_max);
    // SAFETY: a valid limit structure.
    if unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Says what the child is doing, for the parent to read after its death (see
/// [`Answer::note`](crate::Answer::note)) and for people who list processes.
/// At most 14 bytes are kept. To be called on the thread that called [`serve`],
/// which is the process's main thread.
pub fn note(doing: &str) {
    let mut name = [0u8; 16];
    let text = NOTE_MARK.iter().chain(doing.as_bytes());
    for (to, from) in name[..15].iter_mut().zip(text) {
        *to = *from;
    }
    // The name of a process outlives it until its parent has waited for it.
    // SAFETY: a zero-terminated string of at most 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Tells a note from the name that a process is started with.
pub(crate) const NOTE_MARK: &[u8] = b"@";

/// Answers requests from standard input on standard output until the input
/// ends, each with the id of its request. Anything else that prints to standard
/// output goes to standard error.
pub fn serve<Request: DeserializeOwned, Reply: Serialize>(
    mut answer: impl FnMut(Request) -> Reply,
) -> io::Result<()> {
    let mut input = io::stdin().lock();
    // A stray print must not break the framing.
    let mut output = std::fs::File::from(rustix::io::dup(io::stdout())?);
    // SAFETY: both descriptors are open; the duplicate above keeps the pipe.
    if unsafe { libc::dup2(2, 1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let Some(limits) = frame::read::<ChildLimits>(&mut input)? else {
        return Ok(());
    };
    limits.apply()?;
    loop {
        // Waiting takes no CPU time.
        let before_ns = cpu_ns();
        let asked = frame::read::<(u64, u64, Request)>(&mut input)?;
        let Some((id, allowed_ns, request)) = asked else {
            return Ok(());
        };
        allow_cpu(before_ns, allowed_ns)?;
        let reply = answer(request);
        let after_ns = cpu_ns();
        let cpu = CpuTime {
            before_ns,
            after_ns,
        };
        frame::write(&mut output, &(id, cpu, reply))?;
    }
}

/// CPU time of the child's life so far, of all its threads, when it began to
/// read a request and when it had the reply.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CpuTime {
    pub before_ns: u64,
    pub after_ns: u64,
}

/// CPU time of this process so far, of all its threads.
pub fn cpu_ns() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    // Under a limit the system keeps a sum for the process, to which a thread
    // adds at every tick, and when its own clock is read.
    let _ = clock_gettime(ClockId::ThreadCPUTime);
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
