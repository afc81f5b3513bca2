//! What this machine can do, measured: multiply-add peak, read bandwidth of every
//! level of its memory, and what a parallel loop costs.
//!
//! Every rate is the best of several short runs: what disturbs a run only slows
//! it. Rates for several threads are of all together, in loops of the same pool
//! that runs models.

mod exchange;
mod kernels;

pub use exchange::exchange_ns;

use crate::Result;
use crate::machine::{Limits, Machine};
use crate::threads::ThreadSettings;
use runtime::Pool;
use serde::Serialize;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tensor::{AlignedBytes, DType, Tensor};

/// A level of memory and how fast it is read.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    /// `L1`, `L2`, `L3` or `memory`.
    pub name: &'static str,
    /// What all threads together find room for; none for memory.
    pub bytes: Option<u64>,
    /// Of all threads together.
    pub gb_per_s: f64,
}

/// What an empty parallel loop takes, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ForkJoin {
    /// With workers that still spin, as between the kernels of a model.
    pub awake_us: f64,
    /// With workers that went to sleep, as at the start of an inference.
    pub asleep_us: f64,
}

/// The limits of so many threads together.
#[derive(Clone, Debug, Serialize)]
pub struct Ceiling {
    pub threads: usize,
    /// f32 multiply-add peak, 2 operations each.
    pub peak_gflops: f64,
    /// Fastest first; the last is memory.
    pub levels: Vec<Level>,
    pub fork_join: ForkJoin,
    /// Nanoseconds that a cache line takes from one thread to another and back.
    pub exchange_ns: Option<f64>,
}

impl Ceiling {
    /// The fastest level that has room for so many bytes.
    pub fn level_of(&self, bytes: f64) -> &Level {
        let fits = |l: &&Level| l.bytes.is_none_or(|room| bytes <= room as f64);
        let last = self.levels.last().expect("memory is always measured");
        self.levels.iter().find(fits).unwrap_or(last)
    }

    /// Milliseconds to read so many bytes, evenly, of a footprint that is touched
    /// again and again: every level holds as much of it as it has room for.
    pub fn read_ms(&self, bytes: f64, footprint: f64) -> f64 {
        let (mut ms, mut held) = (0.0, 0.0);
        for l in &self.levels {
            let room = l.bytes.map_or(f64::INFINITY, |b| b as f64).min(footprint);
            let share = if footprint > 0.0 {
                (room - held).max(0.0) / footprint
            } else {
                1.0
            };
            ms += bytes * share / l.gb_per_s / 1e6;
            held = room.max(held);
            if held >= footprint {
                break;
            }
        }
        ms
    }

    /// The better of two measurements of the same threads, limit by limit: what
    /// disturbs one only makes it worse.
    #[must_use]
    pub fn or_better(mut self, other: &Ceiling) -> Ceiling {
        self.peak_gflops = self.peak_gflops.max(other.peak_gflops);
        for (own, o) in self.levels.iter_mut().zip(&other.levels) {
            own.gb_per_s = own.gb_per_s.max(o.gb_per_s);
        }
        let (own, o) = (&mut self.fork_join, other.fork_join);
        own.awake_us = own.awake_us.min(o.awake_us);
        own.asleep_us = own.asleep_us.min(o.asleep_us);
        self
    }

    /// Read bandwidth of memory itself.
    pub fn memory_gb_per_s(&self) -> f64 {
        self.levels.last().map_or(f64::NAN, |l| l.gb_per_s)
    }
}

/// Bytes that are read for the bandwidth of memory, at least.
const MEMORY_BYTES: u64 = 256 << 20;
/// As many times what the last-level caches hold, if that is not too much to ask for.
const BEYOND_CACHES: u64 = 4;
const MOST_BYTES: u64 = 1 << 30;
/// Bytes a thread reads in one timed run at least: far longer than a fork.
const RUN_BYTES: u64 = 4 << 20;
const PASSES: usize = 3;
const PEAK_TIME: Duration = Duration::from_millis(60);
const LEVEL_TIME: Duration = Duration::from_millis(40);
const ASLEEP_TIME: Duration = Duration::from_millis(200);
const MEMORY_TIME: Duration = Duration::from_millis(100);

/// The best rate of runs that each do `work` units, over some time.
fn best_rate(work: f64, time: Duration, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = 0.0f64;
    while start.elapsed() < time {
        let t = Instant::now();
        run();
        best = best.max(work / t.elapsed().as_secs_f64());
    }
    best
}

fn peak_gflops(pool: &Pool) -> f64 {
    // A timed run of some milliseconds a thread.
    const CALLS: usize = 50;
    let mut acc = [1.0f32; 16];
    let work = kernels::multiply_adds(&mut acc) * (CALLS * pool.threads()) as f64;
    let rate = best_rate(work, PEAK_TIME, || {
        pool.run(pool.threads() as i64, |_, _| {
            let mut acc = [1.0f32; 16];
            for _ in 0..CALLS {
                kernels::multiply_adds(&mut acc);
            }
            black_box(acc);
            0
        });
    });
    rate / 1e9
}

/// A buffer of so many words for each thread; of fewer words where there is no memory for them.
fn buffers(threads: usize, words: usize) -> Vec<Tensor> {
    const LEAST: usize = 512;
    // Pages as large as those of a model's constants, and none that is only promised.
    let buffer = |_| {
        let data = AlignedBytes::try_zeroed(8 * words).ok()?;
        let mut words = Tensor::from_data(DType::I64, &[words], data)?;
        words.as_mut_slice::<i64>().fill(1);
        Some(words)
    };
    match (0..threads).map(buffer).collect() {
        None if words > LEAST => buffers(threads, words / 2),
        buffers => buffers.expect("there is memory for a page"),
    }
}

/// GB/s with which all threads together read, each its own `bytes` again and again.
fn read_gb_per_s(pool: &Pool, bytes: u64, time: Duration) -> f64 {
    let buffers = buffers(pool.threads(), (bytes / 8 / 64).max(1) as usize * 64);
    let words = buffers[0].len();
    let passes = (RUN_BYTES / bytes.max(1)).max(1);
    let work = (passes as usize * words * 8 * pool.threads()) as f64;
    let rate = best_rate(work, time, || {
        pool.run(pool.threads() as i64, |parts, _| {
            for data in &buffers[parts.start as usize..parts.end as usize] {
                for _ in 0..passes {
                    black_box(kernels::read(black_box(data.as_slice())));
                }
            }
            0
        });
    });
    rate / 1e9
}

/// Median time of an empty loop of one iteration a thread, `gap` apart.
fn fork_join_us(pool: &Pool, rounds: usize, gap: Duration) -> f64 {
    let samples: Vec<u64> = (0..rounds)
        .map(|_| {
            if !gap.is_zero() {
                std::thread::sleep(gap);
            }
            let start = Instant::now();
            pool.run(pool.threads() as i64, |range, worker| {
                black_box((range, worker));
                0
            });
            start.elapsed().as_nanos() as u64
        })
        .collect();
    store::median(&samples).map_or(f64::NAN, |ns| ns as f64 / 1e3)
}

/// The caches that so many threads have together, those that hold more than the one before.
fn caches(machine: &Machine, threads: u64) -> Vec<(&'static str, u64)> {
    let of = |bytes: u64, sharing: usize| {
        let instances = machine.cpus.div_ceil(sharing) as u64;
        bytes * instances.min(threads)
    };
    let all = [
        ("L1", of(machine.l1_bytes, machine.l1_sharing)),
        ("L2", of(machine.l2_bytes, machine.l2_sharing)),
        ("L3", of(machine.llc_bytes, machine.llc_sharing)),
    ];
    let mut larger: Vec<(&'static str, u64)> = Vec::new();
    for (name, bytes) in all {
        if larger.last().is_none_or(|(_, last)| bytes > *last) {
            larger.push((name, bytes));
        }
    }
    larger
}

/// Bytes that the caches cannot hold.
fn memory_bytes(caches: &[(&str, u64)]) -> u64 {
    let largest = caches.last().map_or(0, |c| c.1);
    (BEYOND_CACHES * largest).clamp(MEMORY_BYTES, MOST_BYTES)
}

/// Measures the limits of `threads` threads together, for about a second.
///
/// # Errors
/// If there can be no pool of so many threads.
pub fn ceiling(machine: &Machine, threads: usize, settings: &ThreadSettings) -> Result<Ceiling> {
    let pool = settings.pool(threads)?;
    let n = threads as u64;
    let caches = caches(machine, n);
    let memory_bytes = memory_bytes(&caches);
    let mut rates = vec![0.0f64; caches.len() + 1];
    let (mut peak, mut awake_us) = (0.0f64, f64::INFINITY);
    // Several passes: other work that keeps a CPU busy for a while spoils one.
    for _ in 0..PASSES {
        for (rate, (_, total)) in rates.iter_mut().zip(&caches) {
            // Three quarters of a cache: what else the core keeps there must not push data out.
            *rate = rate.max(read_gb_per_s(&pool, total / n / 4 * 3, LEVEL_TIME));
        }
        let memory = rates.last_mut().expect("one more than the caches");
        *memory = memory.max(read_gb_per_s(&pool, memory_bytes / n, MEMORY_TIME));
        peak = peak.max(peak_gflops(&pool));
        awake_us = awake_us.min(fork_join_us(&pool, 2_000, Duration::ZERO));
    }
    let names = caches.into_iter().map(|(name, bytes)| (name, Some(bytes)));
    let levels = names.chain([("memory", None)]).zip(rates);
    let sleep = (settings.spin(threads) * 4).max(Duration::from_micros(100));
    let sleeps = (ASLEEP_TIME.as_secs_f64() / sleep.as_secs_f64()).clamp(5.0, 50.0);
    Ok(Ceiling {
        threads,
        peak_gflops: peak,
        levels: levels
            .map(|((name, bytes), gb_per_s)| Level {
                name,
                bytes,
                gb_per_s,
            })
            .collect(),
        fork_join: ForkJoin {
            awake_us,
            asleep_us: fork_join_us(&pool, sleeps as usize, sleep),
        },
        exchange_ns: exchange_ns(threads),
    })
}

/// Measures one thread for about half a second.
pub fn limits(machine: &Machine) -> Limits {
    let pool = Pool::new(1).expect("a pool of the calling thread alone starts nothing");
    Limits {
        peak_gflops: peak_gflops(&pool),
        read_gb_per_s: read_gb_per_s(&pool, memory_bytes(&caches(machine, 1)), MEMORY_TIME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_on_one_core_share_its_caches() {
        // Two sockets of two cores, two threads a core.
        let machine = Machine {
            cpus: 8,
            l1_bytes: 32 << 10,
            l1_sharing: 2,
            l2_bytes: 1 << 20,
            l2_sharing: 2,
            llc_bytes: 4 << 20,
            llc_sharing: 4,
            ..Machine::host()
        };
        let of = |threads| {
            caches(&machine, threads)
                .iter()
                .map(|c| c.1)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(1), [32 << 10, 1 << 20, 4 << 20]);
        assert_eq!(of(2), [64 << 10, 2 << 20, 8 << 20]);
        assert_eq!(of(8), [128 << 10, 4 << 20, 8 << 20]);
        let small = Machine {
            llc_bytes: 1 << 20,
            ..machine
        };
        assert_eq!(caches(&small, 8).last(), Some(&("L2", 4 << 20)));
        let of = |bytes: u64| memory_bytes(&[("L3", bytes)]);
        assert_eq!(of(4 << 20), MEMORY_BYTES);
        assert_eq!(of(128 << 20), 512 << 20);
        assert_eq!(of(512 << 20), MOST_BYTES);
    }

    #[test]
    fn a_working_set_is_read_from_the_first_level_with_room() {
        let level = |name, bytes| Level {
            name,
            bytes,
            gb_per_s: 1.0,
        };
        let c = Ceiling {
            threads: 1,
            peak_gflops: 1.0,
            levels: vec![
                level("L1", Some(100)),
                level("L2", Some(1000)),
                level("memory", None),
            ],
            fork_join: ForkJoin {
                awake_us: 0.0,
                asleep_us: 0.0,
            },
            exchange_ns: None,
        };
        let names = [0.0, 100.0, 101.0, 1000.0, 1e9].map(|b| c.level_of(b).name);
        assert_eq!(names, ["L1", "L1", "L2", "L2", "memory"]);
        // Half of 2000 bytes are in caches: a twentieth in the first.
        let mut slow = c.clone();
        slow.levels[1].gb_per_s = 0.5;
        slow.levels[2].gb_per_s = 0.1;
        let ns = (0.05 * 100.0) + (0.45 * 100.0) / 0.5 + (0.5 * 100.0) / 0.1;
        assert!((slow.read_ms(100.0, 2000.0) * 1e6 - ns).abs() < 1e-9);
        assert!((slow.read_ms(50.0, 100.0) * 1e6 - 50.0).abs() < 1e-9);
        assert_eq!(slow.read_ms(0.0, 0.0), 0.0);
        let mut faster = c.clone();
        faster.levels[2].gb_per_s = 3.0;
        faster.fork_join.awake_us = 9.0;
        let both = faster.or_better(&c);
        assert_eq!(both.memory_gb_per_s(), 3.0);
        assert_eq!(both.fork_join.awake_us, 0.0);
    }

    #[test]
    fn reads_see_every_word() {
        let mut data = vec![0i64; 256];
        for at in 0..data.len() {
            data[at] = 1 << 20;
            assert_ne!(kernels::read(&data), 0, "word {at}");
            data[at] = 0;
        }
        assert_eq!(kernels::read(&data), 0);
    }
}
