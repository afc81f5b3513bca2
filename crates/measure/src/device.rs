//! What a device is: a set of CPUs with a capacity.
//!
//! Owns how many candidates a device may measure at once, and which CPUs each of
//! them has to itself. Leaves finding the CPUs of a machine to the caller.

/// A set of CPUs for kernels of so many threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// For records, where there are several devices.
    pub name: Option<String>,
    /// CPUs by number, those of different cores first.
    pub cpus: Vec<usize>,
    /// Threads of a kernel.
    pub threads: u32,
    /// Whether kernels stay on CPUs of their own. Needed wherever anything else
    /// of the tuner runs beside them; a kernel that has the machine to itself
    /// may be left to the system.
    pub pinned: bool,
    /// Runners a lease. More than one shares its CPUs, which only the clock of a
    /// thread's own time can bear; kernels of several threads have no such
    /// clock, and never share.
    pub oversubscribe: u32,
    /// Whether others of the tuner measure on other CPUs of the machine meanwhile, so that no
    /// candidate of a round is measured isolated. A ranking begins when they have nothing to do.
    pub beside: bool,
}

impl Device {
    /// Kernels that have CPUs of their own at the same time.
    fn leases(&self) -> u32 {
        (self.cpus.len() as u32 / self.threads.max(1)).max(1)
    }

    /// Candidates that are measured at once, at most.
    pub fn capacity(&self) -> u32 {
        let shared = if self.threads == 1 {
            self.oversubscribe.max(1)
        } else {
            1
        };
        self.leases() * shared
    }

    /// CPUs of runner `runner`, one for each thread; none if it is not pinned or
    /// has more threads than there are.
    pub fn lease(&self, runner: u32) -> Vec<usize> {
        let threads = self.threads.max(1) as usize;
        if !self.pinned || self.cpus.len() < threads {
            return vec![];
        }
        let first = (runner % self.leases()) as usize * threads;
        self.cpus[first..first + threads].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(cpus: usize, threads: u32, oversubscribe: u32) -> Device {
        Device {
            name: None,
            cpus: (10..10 + cpus).collect(),
            threads,
            pinned: true,
            oversubscribe,
            beside: false,
        }
    }

    #[test]
    fn kernels_lease_as_many_cpus_as_they_have_threads() {
        let d = device(5, 2, 1);
        assert_eq!(d.capacity(), 2);
        assert_eq!(d.lease(0), [10, 11]);
        assert_eq!(d.lease(1), [12, 13]);
        let singles: Vec<usize> = (0..3).flat_map(|i| device(3, 1, 1).lease(i)).collect();
        assert_eq!(singles, [10, 11, 12]);
    }

    #[test]
    fn only_single_threads_share_their_cpu() {
        let d = device(2, 1, 3);
        assert_eq!(d.capacity(), 6);
        let cpus: Vec<usize> = (0..6).flat_map(|i| d.lease(i)).collect();
        assert_eq!(cpus, [10, 11, 10, 11, 10, 11]);
        assert_eq!(device(4, 2, 3).capacity(), 2);
    }

    #[test]
    fn there_is_always_room_for_one() {
        for (cpus, threads, lease) in [(1, 1, vec![10]), (2, 2, vec![10, 11])] {
            let d = device(cpus, threads, 1);
            assert_eq!((d.capacity(), d.lease(0)), (1, lease));
            let free = Device { pinned: false, ..d };
            assert_eq!((free.capacity(), free.lease(0)), (1, vec![]));
        }
        for (cpus, threads) in [(2, 8), (0, 1)] {
            let d = device(cpus, threads, 1);
            assert_eq!((d.capacity(), d.lease(0)), (1, vec![]));
        }
    }
}
