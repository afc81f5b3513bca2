//! A thread's own cycles, where the system lets it count them.
//!
//! Owns the counter and the reasons for none. Promises that a count is whole, or
//! none: a counter that was elsewhere meanwhile says so. What is timed by it, and
//! what a cycle counts for, is the caller's.

use crate::cpu_time::thread_cpu_ns;
use crate::reference;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `PERF_COUNT_HW_CPU_CYCLES` of `PERF_TYPE_HARDWARE`, in user mode only.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    address: u64,
}

/// `PERF_TYPE_HARDWARE`, and its `PERF_COUNT_HW_CPU_CYCLES`.
const HARDWARE: u32 = 0;
const CPU_CYCLES: u64 = 0;
/// `pinned`, `exclude_kernel` and `exclude_hv`: on the CPU whenever the thread
/// is, or not at all.
const FLAGS: u64 = 1 << 2 | 1 << 5 | 1 << 6;
/// `TOTAL_TIME_ENABLED` and `TOTAL_TIME_RUNNING`.
const TIMES: u64 = 1 | 1 << 1;
/// Figures of the scale between two of which there may be so much, as a share.
const STEADY: f64 = 0.02;
/// How often that is looked at: other processes disturb it.
const TRIES: u32 = 20;
/// Nanoseconds a cycle of any CPU.
const PLAUSIBLE: std::ops::Range<f64> = 0.1..10.0;

/// The cycles that the thread which opened it takes in user mode.
pub(crate) struct Cycles {
    counter: OwnedFd,
    /// What a cycle took when that was looked at.
    own_ns: f64,
}

/// A state of the counter.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    cycles: u64,
    enabled_ns: u64,
    running_ns: u64,
}

impl Reading {
    /// The cycles since an earlier state, if all of them were counted: a counter
    /// may be shared, or be that of another kind of core.
    fn since(self, earlier: Reading) -> Option<u64> {
        let enabled = self.enabled_ns.checked_sub(earlier.enabled_ns)?;
        let running = self.running_ns.checked_sub(earlier.running_ns)?;
        let cycles = self.cycles.checked_sub(earlier.cycles)?;
        (enabled == running && cycles > 0).then_some(cycles)
    }
}

impl Cycles {
    /// # Errors
    /// Why this thread cannot count its cycles, and what to do about it.
    pub fn open() -> Result<Cycles, String> {
        Cycles::of(HARDWARE, CPU_CYCLES)
    }

    /// The counter of an event of this thread.
    fn of(kind: u32, config: u64) -> Result<Cycles, String> {
        let attributes = Attributes {
            kind,
            config,
            size: size_of::<Attributes>() as u32,
            read_format: TIMES,
            flags: FLAGS,
            ..Attributes::default()
        };
        // SAFETY: the structure is as long as it says, and outlives the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                0,
                -1,
                -1,
                0,
            )
        };
        if fd < 0 {
            return Err(reason(&io::Error::last_os_error()));
        }
        let mut cycles = Cycles {
            // SAFETY: the system just gave it, to nobody else.
            counter: unsafe { OwnedFd::from_raw_fd(fd as i32) },
            own_ns: f64::NAN,
        };
        let mut tries = 0;
        cycles.own_ns = loop {
            let scales: Option<Vec<f64>> = (0..5).map(|_| cycles.scale()).collect();
            let Some(scales) = scales else {
                return Err("the counter does not count; another user of it may hold it".into());
            };
            tries += 1;
            match steady(scales) {
                Err(_) if tries < TRIES => {}
                scale => break scale?,
            }
        };
        Ok(cycles)
    }

    /// What a cycle took when the counter was opened.
    pub fn own_ns(&self) -> f64 {
        self.own_ns
    }

    /// Its state, unless it counts no more.
    pub fn read(&self) -> Option<Reading> {
        let mut now = Reading::default();
        // SAFETY: an open descriptor, and room for what it gives.
        let read = unsafe {
            libc::read(
                self.counter.as_raw_fd(),
                (&raw mut now).cast(),
                size_of::<Reading>(),
            )
        };
        (read == size_of::<Reading>() as isize).then_some(now)
    }

    /// The cycles since an earlier state.
    pub fn since(&self, earlier: Reading) -> Option<u64> {
        self.read()?.since(earlier)
    }

    /// Nanoseconds a cycle of this thread takes now.
    fn scale(&self) -> Option<f64> {
        let (before, start_ns) = (self.read()?, thread_cpu_ns());
        reference::work();
        let ns = thread_cpu_ns() - start_ns;
        Some(ns as f64 / self.since(before)? as f64)
    }
}

/// The scale that all of several figures but the least and the most agree on.
fn steady(mut scales: Vec<f64>) -> Result<f64, String> {
    scales.sort_by(f64::total_cmp);
    let (least, most) = (scales[1], scales[scales.len() - 2]);
    if !PLAUSIBLE.contains(&least) || most > least * (1.0 + STEADY) {
        return Err(format!(
            "its cycles take from {least:.3} to {most:.3} ns, which no steady counter's do"
        ));
    }
    Ok(scales[scales.len() / 2])
}

/// Nanoseconds a cycle of this thread, if it can count them.
///
/// # Errors
/// Why it cannot, and what to do about it.
pub fn cycle_ns() -> Result<f64, String> {
    Cycles::open().map(|c| c.own_ns())
}

fn reason(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            match level.as_deref().map(str::trim) {
                Ok(level) if level.parse::<i32>().is_ok_and(|l| l <= 2) => format!(
                    "this process may not ask (perf_event_paranoid {level} would allow it); allow perf_event_open to its container"
                ),
                Ok(level) => format!(
                    "perf_event_paranoid is {level}; set it to 2 or less (sysctl kernel.perf_event_paranoid=2)"
                ),
                Err(_) => "this process may not ask; allow perf_event_open to it".into(),
            }
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "the machine has no such counter, or its hypervisor hides it".into()
        }
        Some(libc::ENOSYS) => "the system has no performance events".into(),
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_counted_or_it_is_said_why_not() {
        match Cycles::open() {
            Ok(c) => {
                let before = c.read().unwrap();
                reference::work();
                let ns = c.since(before).unwrap() as f64 * c.own_ns();
                assert!(PLAUSIBLE.contains(&c.own_ns()) && ns > 10_000.0, "{ns}");
            }
            Err(why) => none_on_this_machine(&why),
        }
    }

    fn refusal(code: i32) -> String {
        reason(&io::Error::from_raw_os_error(code))
    }

    /// Skips a test for want of a counter, if that is for a reason of the machine's and
    /// for no mistake in asking.
    fn none_on_this_machine(why: &str) {
        let denied = [libc::EACCES, libc::ENOENT, libc::ENOSYS].map(refusal);
        let unfit = ["does not count", "no steady counter"];
        let known = denied.iter().any(|d| d == why) || unfit.iter().any(|u| why.contains(u));
        assert!(known, "{why}");
        testkit::host::skipped(&format!("no counter: {why}"));
    }

    #[test]
    fn what_stands_in_the_way_is_said_with_what_to_do() {
        let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
        let level = level.ok().and_then(|l| l.trim().parse::<i32>().ok());
        let todo = match level {
            Some(3..) => "sysctl kernel.perf_event_paranoid=2",
            _ => "allow perf_event_open",
        };
        for code in [libc::EACCES, libc::EPERM] {
            assert!(refusal(code).contains(todo), "{}", refusal(code));
        }
        for code in [libc::ENOENT, libc::EOPNOTSUPP, libc::ENODEV] {
            assert!(refusal(code).contains("the machine has no such counter"));
        }
        assert!(refusal(libc::ENOSYS).contains("the system has no performance events"));
        assert!(refusal(libc::EINVAL).contains("Invalid argument"));
    }

    #[test]
    fn a_counter_that_every_system_has_counts() {
        // The thread's own time in nanoseconds: `PERF_COUNT_SW_TASK_CLOCK`.
        match Cycles::of(1, 1) {
            Ok(c) => {
                assert!((0.8..1.2).contains(&c.own_ns()), "{}", c.own_ns());
                let before = c.read().unwrap();
                reference::work();
                assert!(c.since(before).unwrap() > 10_000);
            }
            Err(why) => none_on_this_machine(&why),
        }
    }

    #[test]
    fn a_count_is_whole_or_none() {
        let at = |cycles, enabled_ns, running_ns| Reading {
            cycles,
            enabled_ns,
            running_ns,
        };
        let start = at(1000, 500, 400);
        assert_eq!(at(4000, 1500, 1400).since(start), Some(3000));
        assert_eq!(at(4000, 1500, 1399).since(start), None, "it was elsewhere");
        assert_eq!(
            at(1000, 1500, 1400).since(start),
            None,
            "no cycle in 1000 ns"
        );
        assert_eq!(at(999, 1500, 1400).since(start), None);
    }

    #[test]
    fn a_scale_is_steady_and_of_some_cpu() {
        assert_eq!(steady(vec![0.301, 0.3, 0.9, 0.303, 0.1]), Ok(0.301));
        for bad in [
            vec![0.3, 0.31, 0.3, 0.31, 0.3],
            vec![1e-3; 5],
            vec![20.0; 5],
            vec![f64::NAN; 5],
        ] {
            let text = format!("{bad:?}");
            assert!(steady(bad).is_err(), "{text}");
        }
    }
}
