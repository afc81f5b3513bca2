//! Prints the median time of an empty fork-join loop, with awake workers and
//! with workers that went to sleep.
//!
//! `cargo run --release -p runtime --example fork_join [THREADS...]`

use runtime::{Pool, PoolOptions};
use std::time::{Duration, Instant};

fn median_ns(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// Median time of a loop of one iteration a thread, `gap` apart.
fn fork_join_ns(pool: &Pool, rounds: usize, gap: Duration) -> u64 {
    let mut samples = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        if !gap.is_zero() {
            std::thread::sleep(gap);
        }
        let start = Instant::now();
        let code = pool.run(pool.threads() as i64, |range, worker| {
            std::hint::black_box((range, worker));
            0
        });
        samples.push(start.elapsed().as_nanos() as u64);
        assert_eq!(code, 0);
    }
    median_ns(samples)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut threads: Vec<usize> = std::env::args()
        .skip(1)
        .map(|a| a.parse())
        .collect::<Result<_, _>>()?;
    if threads.is_empty() {
        let cpus = std::thread::available_parallelism()?.get();
        threads = std::iter::successors(Some(1), |n| Some(n * 2))
            .take_while(|n| *n < cpus)
            .collect();
        threads.push(cpus);
    }
    println!(
        "{:>8} {:>16} {:>16}",
        "threads", "awake (ns)", "asleep (ns)"
    );
    for count in threads {
        let options = PoolOptions::new(count);
        let pool = Pool::with_options(&options)?;
        let awake = fork_join_ns(&pool, 20_000, Duration::ZERO);
        let sleep = Duration::from_nanos(options.spin_ns * 4).max(Duration::from_micros(100));
        let asleep = fork_join_ns(&pool, 500, sleep);
        println!("{count:>8} {awake:>16} {asleep:>16}");
    }
    Ok(())
}
