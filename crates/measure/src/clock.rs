//! The clocks that time a kernel's calls.
//!
//! Owns which clock a call is read from. What a cycle counts for is left to `cycles`.

use crate::cpu_time::thread_cpu_ns;
use crate::cycles::{Cycles, Reading};
use std::time::Instant;

/// The clock of a kernel's samples: CPU time does not count what preempts a
/// single thread, and its cycles not what the CPU's frequency does either;
/// several threads are only timed by the wall.
pub(crate) enum KernelClock {
    /// With the CPU time, for when the counter misses some.
    Cycles(Reading, u64),
    ThreadCpu(u64),
    Wall(Instant),
}

/// What calls took, on the clock that timed them.
pub(crate) enum KernelTime {
    Cycles(u64),
    Ns(u64),
}

impl KernelClock {
    /// `wall`: several threads run the kernel, or the caller wants the host's clock.
    pub fn start(wall: bool, counter: Option<&Cycles>) -> KernelClock {
        if wall {
            return KernelClock::Wall(Instant::now());
        }
        let own_ns = thread_cpu_ns();
        match counter.and_then(Cycles::read) {
            Some(start) => KernelClock::Cycles(start, own_ns),
            None => KernelClock::ThreadCpu(own_ns),
        }
    }

    /// What passed since the start, by the same counter.
    pub fn elapsed(&self, counter: Option<&Cycles>) -> KernelTime {
        match self {
            KernelClock::Cycles(start, own_ns) => {
                let cycles = counter.and_then(|c| c.since(*start));
                cycles.map_or_else(
                    || KernelTime::Ns(thread_cpu_ns() - own_ns),
                    KernelTime::Cycles,
                )
            }
            KernelClock::ThreadCpu(start) => KernelTime::Ns(thread_cpu_ns() - start),
            KernelClock::Wall(start) => KernelTime::Ns(start.elapsed().as_nanos() as u64),
        }
    }
}
