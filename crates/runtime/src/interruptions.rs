//! Whether the process lost a processor to another program while a call ran.

/// How often the threads of the process have lost their processors so far; none if the system does not say so.
pub(crate) fn interruptions() -> Option<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: there is room for the answer, and zeros are a valid value of it.
    let usage = unsafe {
        match libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) {
            0 => usage.assume_init(),
            _ => return None,
        }
    };
    Some(usage.ru_nivcsw)
}
