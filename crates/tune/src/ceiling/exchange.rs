//! How far apart the CPUs of two threads are.

use crate::threads::unpin_current_thread;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TRIPS: u64 = 2_000;
const BATCHES: u64 = 5;
/// Two threads that share a CPU would take a time slice for each trip.
const LIMIT: Duration = Duration::from_millis(50);

/// A line of the cache that holds nothing else, nor does the one fetched with it.
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    fn put(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Whether it holds the value before the deadline.
    fn wait(&self, value: u64, deadline: Instant) -> bool {
        loop {
            if (0..1000).any(|_| self.0.load(Ordering::Acquire) == value) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
        }
    }
}

/// Nanoseconds that a cache line takes to another thread and back: tens where their CPUs
/// share a cache, hundreds where they do not, and the hypervisor or the scheduler may
/// change which. None with one thread, or where no CPU was free for the other.
pub fn exchange_ns(threads: usize) -> Option<f64> {
    if threads < 2 {
        return None;
    }
    let line = Line(AtomicU64::new(0));
    let deadline = Instant::now() + LIMIT;
    let answer = |trip| {
        let asked = line.wait(2 * trip + 1, deadline);
        line.put(2 * trip + 2);
        asked
    };
    let ask = |trip| {
        line.put(2 * trip + 1);
        line.wait(2 * trip + 2, deadline)
    };
    thread::scope(|s| {
        s.spawn(|| {
            unpin_current_thread();
            (0..BATCHES * TRIPS).all(answer)
        });
        let batch = |b| {
            let start = Instant::now();
            let whole = (b * TRIPS..(b + 1) * TRIPS).all(ask);
            whole.then(|| start.elapsed().as_nanos() as f64 / TRIPS as f64)
        };
        // One that the other thread was not yet there for says nothing.
        (0..BATCHES).map_while(batch).min_by(f64::total_cmp)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_exchanges_nothing_and_two_end_in_time() {
        assert_eq!(exchange_ns(1), None);
        let start = Instant::now();
        assert!(exchange_ns(2).is_none_or(|ns| ns > 1.0));
        assert!(start.elapsed().as_secs() < 60);
    }
}
