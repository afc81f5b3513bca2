//! What besides a kernel took time while it ran: other programs, and the system that gives memory.

/// Pages that the code and the stack of a kernel may take anew; they take some microseconds.
const FEW_PAGES: i64 = 16;

/// Counts of the process so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interruptions {
    /// How often its threads have lost their processors to others.
    switches: i64,
    /// Pages of memory that were missing.
    faults: i64,
}

impl Interruptions {
    /// None if the system does not say.
    pub fn now() -> Option<Interruptions> {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: there is room for the answer, and zeros are a valid value of it.
        let usage = unsafe {
            match libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) {
                0 => usage.assume_init(),
                _ => return None,
            }
        };
        Some(Interruptions {
            switches: usage.ru_nivcsw,
            faults: usage.ru_minflt + usage.ru_majflt,
        })
    }

    /// Nothing else ran since.
    pub fn none_until(self, later: Interruptions) -> bool {
        self.switches == later.switches
    }

    /// Memory was there since.
    pub fn is_warm_until(self, later: Interruptions) -> bool {
        later.faults - self.faults <= FEW_PAGES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_for_the_first_time_is_not_warm() {
        let before = Interruptions::now().unwrap();
        let after = Interruptions {
            faults: before.faults + FEW_PAGES + 1,
            ..before
        };
        assert!(!before.is_warm_until(after));
        assert!(before.is_warm_until(before) && before.none_until(before));
    }
}
