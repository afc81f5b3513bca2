//! The pools that run compiled models here: how many threads, on which CPUs,
//! and how long they wait awake.
//!
//! Settings come from the environment (`TUNESMITH_PIN`, `TUNESMITH_SPIN_US`)
//! unless a flag says otherwise. Both are knobs that change when a kernel runs,
//! never its code.

use crate::error::{Error, Result};
use runtime::{Pool, PoolOptions, pin_current_thread};
use std::panic::resume_unwind;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Which CPUs the threads of a pool stay on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// Where the system puts them.
    Off,
    /// One CPU a thread, different cores first.
    Cores,
    /// The CPU of each thread, the caller's first; fewer threads use the first ones.
    Cpus(Vec<usize>),
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Pin, String> {
        match text {
            "off" => Ok(Pin::Off),
            "cores" => Ok(Pin::Cores),
            _ => {
                let cpus: Option<Vec<usize>> = text.split(',').map(|c| c.parse().ok()).collect();
                cpus.map(Pin::Cpus)
                    .ok_or_else(|| format!("`{text}` is not off, cores, or CPUs such as 0,2"))
            }
        }
    }
}

/// How the threads of a pool behave; `None` is the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadSettings {
    pub pin: Option<Pin>,
    /// How long a thread that waits spins before it sleeps.
    pub spin: Option<Duration>,
}

impl ThreadSettings {
    /// What the environment says.
    ///
    /// # Errors
    /// If a variable has a value that its knob does not take.
    pub fn from_environment() -> Result<ThreadSettings> {
        ThreadSettings::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<ThreadSettings> {
        let bad = |name: &str, why: String| {
            Error::new(format!("{name}: {why}")).help("unset it, or see `tunesmith knobs`")
        };
        let pin = get("TUNESMITH_PIN").map(|t| t.parse().map_err(|e| bad("TUNESMITH_PIN", e)));
        let spin = get("TUNESMITH_SPIN_US").map(|t| {
            let us: std::result::Result<u64, _> = t.parse();
            us.map(Duration::from_micros)
                .map_err(|_| bad("TUNESMITH_SPIN_US", format!("`{t}` is not a count")))
        });
        Ok(ThreadSettings {
            pin: pin.transpose()?,
            spin: spin.transpose()?,
        })
    }

    /// These settings, those of `fallback` where they say nothing.
    pub fn or(self, fallback: ThreadSettings) -> ThreadSettings {
        ThreadSettings {
            pin: self.pin.or(fallback.pin),
            spin: self.spin.or(fallback.spin),
        }
    }

    /// How long a thread of so many that waits spins before it sleeps.
    pub fn spin(&self, threads: usize) -> Duration {
        let default = || Duration::from_nanos(unpinned(|| PoolOptions::new(threads).spin_ns));
        self.spin.unwrap_or_else(default)
    }

    /// The settings for one of several pools of so many threads that run at once: each has CPUs of its own.
    ///
    /// # Errors
    /// If they are to be pinned and there are too few CPUs.
    pub fn part(&self, threads: usize, at: usize, of: usize) -> Result<ThreadSettings> {
        if of == 1 {
            return Ok(self.clone());
        }
        let all = threads * of;
        let cpus = match self.pin.as_ref().unwrap_or(&Pin::Off) {
            Pin::Off => return Ok(self.clone()),
            Pin::Cores => cores(all, process_cpus(), siblings)?,
            Pin::Cpus(cpus) if cpus.len() < all => {
                return Err(Error::new(format!(
                    "--pin names {} CPUs for {all} threads",
                    cpus.len()
                ))
                .help("name one for each thread of all streams"));
            }
            Pin::Cpus(cpus) => cpus.clone(),
        };
        let own = cpus[at * threads..(at + 1) * threads].to_vec();
        Ok(ThreadSettings {
            pin: Some(Pin::Cpus(own)),
            spin: self.spin,
        })
    }

    /// A pool; the calling thread, its worker 0, is pinned as well, and stays so.
    ///
    /// # Errors
    /// If the pool is impossible, or a CPU is not this process's to use.
    pub fn pool(&self, threads: usize) -> Result<Arc<Pool>> {
        let pin = match self.pin.as_ref().unwrap_or(&Pin::Off) {
            Pin::Off => None,
            Pin::Cpus(cpus) => Some(cpus.get(..threads).unwrap_or(cpus).to_vec()),
            Pin::Cores => Some(cores(threads, process_cpus(), siblings)?),
        };
        let fail = |e: runtime::PoolError| Error::new(e.to_string());
        let first = pin.as_ref().and_then(|p| p.first().copied());
        let options = PoolOptions {
            threads,
            spin_ns: self.spin(threads).as_nanos() as u64,
            pin,
        };
        let pool = unpinned(|| Pool::with_options(&options)).map_err(fail)?;
        if let Some(cpu) = first {
            pin_current_thread(cpu).map_err(fail)?;
        }
        Ok(Arc::new(pool))
    }
}

/// The CPUs that this process may use; the first call is before any thread is pinned.
fn process_cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(allowed_cpus)
}

/// Lets the calling thread run on all CPUs of the process. Threads and processes that
/// a pinned thread starts are pinned as it is.
pub fn unpin_current_thread() {
    // SAFETY: an all-zero set is valid, indices are below its size, and the call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in process_cpus() {
            libc::CPU_SET(*cpu, &mut set);
        }
        // Where the system refuses, the thread stays where it is.
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// What `f` gives on a thread that is not pinned, as are the threads that it starts.
pub fn unpinned<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let run = || {
        unpin_current_thread();
        f()
    };
    std::thread::scope(|s| s.spawn(run).join()).unwrap_or_else(|p| resume_unwind(p))
}

/// The CPUs that this thread may run on.
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: an all-zero set is valid, and the call fills it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return Vec::new();
        }
        set
    };
    // SAFETY: the index is below the size of the set.
    (0..libc::CPU_SETSIZE as usize)
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
        .collect()
}

/// The CPUs that this process may use, those of different cores first.
pub fn cpus() -> Vec<usize> {
    let allowed = process_cpus();
    cores(allowed.len(), allowed, siblings).unwrap_or_else(|_| allowed.to_vec())
}

/// What names the core of a CPU; the CPU itself where that is not known.
pub(crate) fn siblings(cpu: usize) -> String {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    std::fs::read_to_string(path).map_or_else(|_| cpu.to_string(), |t| t.trim().to_string())
}

/// `threads` of the allowed CPUs, one a core while there are cores left.
fn cores(
    threads: usize,
    allowed: &[usize],
    core_of: impl Fn(usize) -> String,
) -> Result<Vec<usize>> {
    let (mut first, mut rest, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for cpu in allowed {
        let core = core_of(*cpu);
        if seen.contains(&core) {
            rest.push(*cpu);
        } else {
            seen.push(core);
            first.push(*cpu);
        }
    }
    first.extend(rest);
    if threads > first.len() {
        return Err(Error::new(format!(
            "{threads} threads cannot be pinned: this process may use {} CPUs",
            first.len()
        ))
        .help("ask for fewer --threads, or use --pin off"));
    }
    first.truncate(threads);
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_read_back() {
        assert_eq!("off".parse(), Ok(Pin::Off));
        assert_eq!("cores".parse(), Ok(Pin::Cores));
        assert_eq!("3,1".parse(), Ok(Pin::Cpus(vec![3, 1])));
        for bad in ["", "1,", "x", "-1"] {
            assert!(bad.parse::<Pin>().unwrap_err().contains(bad));
        }
    }

    #[test]
    fn variables_are_read_and_named_when_wrong() {
        let of = |pin: &'static str, spin: &'static str| {
            ThreadSettings::from_variables(move |name| match name {
                "TUNESMITH_PIN" => Some(pin.to_string()),
                "TUNESMITH_SPIN_US" => Some(spin.to_string()),
                other => panic!("no variable {other}"),
            })
        };
        let s = of("cores", "20").unwrap();
        assert_eq!(s.pin, Some(Pin::Cores));
        assert_eq!(s.spin, Some(Duration::from_micros(20)));
        assert!(
            of("cores", "x")
                .unwrap_err()
                .to_string()
                .contains("SPIN_US")
        );
        assert!(of("all", "1").unwrap_err().to_string().contains("PIN"));
        let flag = ThreadSettings {
            pin: Some(Pin::Off),
            spin: None,
        };
        let both = flag.or(s);
        assert_eq!(both.pin, Some(Pin::Off));
        assert_eq!(both.spin, Some(Duration::from_micros(20)));
    }

    #[test]
    fn pools_that_run_at_once_have_cpus_of_their_own() {
        let settings = |cpus: &[usize]| ThreadSettings {
            pin: Some(Pin::Cpus(cpus.to_vec())),
            spin: None,
        };
        let part = settings(&[4, 5, 6, 7]).part(2, 1, 2).unwrap();
        assert_eq!(part, settings(&[6, 7]));
        assert!(settings(&[4, 5, 6]).part(2, 1, 2).is_err());
        let off = ThreadSettings::default();
        assert_eq!(off.part(2, 1, 2).unwrap(), off);
    }

    #[test]
    fn different_cores_come_first() {
        let core = |cpu: usize| (cpu / 2).to_string();
        let of = |n| cores(n, &[0, 1, 2, 3], core).ok();
        assert_eq!(of(1), Some(vec![0]));
        assert_eq!(of(2), Some(vec![0, 2]));
        assert_eq!(of(3), Some(vec![0, 2, 1]));
        assert_eq!(of(5), None);
    }

    #[test]
    fn what_follows_a_pinned_pool_is_not_pinned() {
        let cpus = process_cpus().to_vec();
        let settings = ThreadSettings {
            pin: Some(Pin::Cores),
            spin: None,
        };
        // In a thread of its own: the caller is pinned.
        std::thread::spawn(move || {
            let all = crate::machine::Machine::host().cpus;
            settings.pool(1).unwrap();
            assert_eq!(allowed_cpus().len(), 1);
            assert_eq!(crate::machine::Machine::host().cpus, all);
            assert_eq!(unpinned(allowed_cpus), cpus);
            // Another pool finds as many CPUs as the first one.
            settings.pool(cpus.len()).unwrap();
            let free = ThreadSettings::default().pool(2).unwrap();
            // The caller may take the other part as well.
            let caller = std::thread::current().id();
            let code = free.run(2, |_, _| {
                i32::from(std::thread::current().id() != caller && allowed_cpus() != cpus)
            });
            assert_eq!(code, 0);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_pinned_pool_runs_where_it_should() {
        let cpu = allowed_cpus()[0];
        let settings = ThreadSettings {
            pin: Some(Pin::Cpus(vec![cpu, cpu])),
            spin: Some(Duration::ZERO),
        };
        // In a thread of its own: the caller is pinned.
        std::thread::spawn(move || {
            let pool = settings.pool(2).unwrap();
            let code = pool.run(2, |_, _| i32::from(allowed_cpus() != vec![cpu]));
            assert_eq!(code, 0);
        })
        .join()
        .unwrap();
    }
}
