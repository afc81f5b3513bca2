//! Whether the system lets a thread count its own cycles.
//!
//! Owns the question and the reasons for no. Samples are read from other clocks.

use std::fs;
use std::io;

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

/// `exclude_kernel` and `exclude_hv`.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;

/// Cycles that this thread took for a short loop.
///
/// # Errors
/// Why it cannot count them, and what to do about it.
pub fn count_cycles() -> Result<u64, String> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        flags: USER_ONLY,
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
    let mut sum = 0u64;
    (0..100_000u64).for_each(|i| sum = std::hint::black_box(sum ^ i));
    let mut cycles = 0u64;
    // SAFETY: an open descriptor, and room for the eight bytes that a counter has.
    let read = unsafe {
        let read = libc::read(fd as i32, (&raw mut cycles).cast(), size_of::<u64>());
        libc::close(fd as i32);
        read
    };
    if read == 8 && cycles > 0 {
        Ok(cycles)
    } else {
        Err("the counter does not count; another user of it may hold it".into())
    }
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
        match count_cycles() {
            Ok(cycles) => assert!(cycles > 10_000, "{cycles}"),
            Err(e) => assert!(e.len() > 10, "{e}"),
        }
        let of = |code| reason(&io::Error::from_raw_os_error(code));
        assert!(of(libc::EACCES).contains("allow") || of(libc::EACCES).contains("set it to 2"));
        assert!(of(libc::ENOENT).contains("counter"));
        assert_ne!(of(libc::ENOSYS), of(libc::EINVAL));
    }
}
