//! Wall and CPU time of what a thread does.

use measure::Spent;
use std::time::Instant;

/// Times what this thread does.
pub struct Watch {
    start: Instant,
    cpu_ns: u64,
}

impl Watch {
    pub fn start() -> Watch {
        Watch {
            start: Instant::now(),
            cpu_ns: thread_cpu_ns(),
        }
    }

    pub fn spent(&self) -> Spent {
        let cpu_ns = thread_cpu_ns() - self.cpu_ns;
        Spent {
            wall_ns: self.start.elapsed().as_nanos() as u64,
            cpu_ns,
        }
    }
}

fn thread_cpu_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to what it is given, which lives until it returns.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    assert_eq!(failed, 0, "every thread has a clock of its own");
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
