//! A fixed piece of work, whose time tells how fast the CPU runs.
//!
//! Owns it and how it is timed: a chain of steps that each wait for the one
//! before, in registers alone, so that neither caches nor a neighbour on the
//! same core change its cycles, only their frequency. How often it is timed and
//! what follows is the parent's.

use crate::cpu_time::thread_cpu_ns;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A shift, an exclusive or and a product each: five cycles on the CPUs of the
/// day, some 100,000 in all.
const STEPS: u64 = 20_000;
/// The fastest counts: nothing but the frequency makes it faster.
const TRIES: usize = 3;
/// Time between two figures of one runner, which take less than a hundredth of
/// that: some 25 us a try.
pub(crate) const EVERY: Duration = Duration::from_millis(20);

fn chain(steps: u64) -> u64 {
    let mut x = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..steps {
        x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    x
}

fn once(host_clock: bool) -> u64 {
    let (wall, own) = (Instant::now(), thread_cpu_ns());
    black_box(chain(STEPS));
    let own = thread_cpu_ns() - own;
    if host_clock {
        wall.elapsed().as_nanos() as u64
    } else {
        own
    }
}

/// Several times the work of the reference kernel.
pub(crate) fn work() {
    black_box(chain(8 * STEPS));
}

/// The time of the reference kernel on the wall, or of this thread: the clock of
/// the candidates, but for cycles, in which it never changes.
pub(crate) fn time_ns(host_clock: bool) -> u64 {
    (0..TRIES).map(|_| once(host_clock)).min().unwrap_or(0)
}

/// What a runner's reference kernel took at first and took last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reference {
    first_ns: u64,
    last_ns: u64,
    at: Instant,
    /// Whether the wall clock timed it.
    host_clock: bool,
}

impl Reference {
    /// The next figure of a runner; the first of its clock is what others are
    /// compared with.
    pub fn after(earlier: Option<Reference>, ns: u64, host_clock: bool) -> Reference {
        let same = earlier.filter(|r| r.host_clock == host_clock);
        Reference {
            first_ns: same.map_or(ns, |r| r.first_ns),
            last_ns: ns,
            at: Instant::now(),
            host_clock,
        }
    }

    /// Whether it is time for another.
    pub fn is_due(earlier: Option<Reference>, host_clock: bool) -> bool {
        earlier.is_none_or(|r| r.host_clock != host_clock || r.at.elapsed() >= EVERY)
    }

    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// The share by which it takes longer than at first.
    pub fn drift(&self) -> f64 {
        self.last_ns as f64 / self.first_ns.max(1) as f64 - 1.0
    }
}

/// The clocks of this thread, as the reference kernel shows them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadClock {
    /// The smallest step of a thread's own CPU time.
    pub resolution_ns: u64,
    /// The shortest time that it says passed between two readings.
    pub reading_ns: u64,
    /// The share of the wall time of undisturbed work that it leaves out.
    pub bias: f64,
    /// What the reference kernel takes, and the share by which it took longer
    /// half of the time.
    pub reference_ns: u64,
    pub reference_spread: f64,
}

/// Work that takes about a millisecond.
const LONG: u64 = 40 * STEPS;
const TIMES: usize = 40;

/// Looks at the clock by which single-threaded kernels are timed.
pub fn thread_clock() -> ThreadClock {
    let steps: Vec<(u64, u64)> = (0..100).map(|_| step()).collect();
    let least = |of: fn(&(u64, u64)) -> u64| steps.iter().map(of).min().unwrap_or(0);
    let references = (0..TIMES).map(|_| time_ns(false)).collect();
    let (reference_ns, reference_spread) = least_and_spread(references);
    let both = (0..TIMES).map(|_| {
        let (wall, own) = (Instant::now(), thread_cpu_ns());
        black_box(chain(LONG));
        let own = thread_cpu_ns() - own;
        own as f64 / wall.elapsed().as_nanos() as f64
    });
    // Whatever came between them only makes the wall time longer.
    let share = both.fold(0.0, f64::max);
    ThreadClock {
        resolution_ns: least(|s| s.0),
        reading_ns: least(|s| s.1),
        bias: 1.0 - share,
        reference_ns,
        reference_spread,
    }
}

/// The least of some times, and the share by which half of them are longer.
fn least_and_spread(mut ns: Vec<u64>) -> (u64, f64) {
    ns.sort_unstable();
    let (least, middle) = (ns[0], ns[ns.len() / 2]);
    (least, middle as f64 / least.max(1) as f64 - 1.0)
}

/// A step of a thread's own CPU time that is not zero, and the next one.
fn step() -> (u64, u64) {
    let start = thread_cpu_ns();
    let next = thread_cpu_ns() - start;
    let mut step = next;
    while step == 0 {
        step = thread_cpu_ns() - start;
    }
    (step, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_a_chain_that_nobody_shortens() {
        // A step is invertible: the whole chain is undone one by one.
        let mut x = chain(STEPS);
        let mut inverse = 1u64;
        for _ in 0..6 {
            let product = inverse.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(product));
        }
        for _ in 0..STEPS {
            let y = x.wrapping_mul(inverse);
            x = y ^ (y >> 29) ^ (y >> 58);
        }
        assert_eq!(x, 0x9e37_79b9_7f4a_7c15);
        // No CPU takes less than a cycle of 0.1 ns for a step.
        assert!(time_ns(false) > STEPS / 10);
    }

    #[test]
    fn drift_is_against_the_first_of_the_same_clock() {
        assert!(Reference::is_due(None, false));
        let first = Reference::after(None, 1000, false);
        assert_eq!((first.drift(), first.last_ns()), (0.0, 1000));
        let slower = Reference::after(Some(first), 1100, false);
        let faster = Reference::after(Some(slower), 900, false);
        assert!((slower.drift() - 0.1).abs() < 1e-9 && (faster.drift() + 0.1).abs() < 1e-9);
        // Not again at once; the system may hold this up once or twice.
        let due = || Reference::is_due(Some(Reference::after(None, 1000, false)), false);
        assert!((0..10).any(|_| !due()));
        assert!(Reference::is_due(Some(faster), true), "another clock");
        let other = Reference::after(Some(faster), 1300, true);
        assert_eq!(other.drift(), 0.0);
    }

    #[test]
    fn the_clock_is_looked_at() {
        let c = thread_clock();
        // A step that can be seen, and far finer than what is timed by it.
        assert!((1..c.reference_ns / 5).contains(&c.resolution_ns), "{c:?}");
        assert!(c.reading_ns <= c.resolution_ns, "{c:?}");
        // Some five cycles a step, of 0.1 to 10 ns each.
        let steps = STEPS as f64 * 5.0;
        let step_ns = c.reference_ns as f64 / steps;
        assert!((0.1..10.0).contains(&step_ns), "{c:?}");
        // One of 40 times nothing came between; and a thread has no more than all the time.
        assert!((-0.05..0.5).contains(&c.bias), "{c:?}");
        assert!(c.reference_spread.is_finite(), "{c:?}");
    }

    #[test]
    fn a_spread_is_of_the_middle_to_the_least() {
        assert_eq!(least_and_spread(vec![300, 100, 150, 110, 9000]), (100, 0.5));
        assert_eq!(least_and_spread(vec![100; 4]), (100, 0.0));
    }
}
