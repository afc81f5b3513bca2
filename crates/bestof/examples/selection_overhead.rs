//! What a decided call costs beyond a direct one: `cargo run --release -p bestof --example selection_overhead`.

use bestof::{BestOf, Options};
use std::hint::black_box;
use std::time::Instant;

const CALLS: u32 = 2_000_000;

type Work = fn(u64) -> u64;

fn work(x: u64) -> u64 {
    black_box(x).wrapping_mul(3)
}

/// Nanoseconds of a call: the least of nine runs.
fn ns(call: impl Fn(u64) -> u64) -> f64 {
    let one = || {
        let begin = Instant::now();
        for i in 0..CALLS {
            black_box(call(u64::from(i)));
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    (0..9).map(|_| one()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let functions: [(&str, Work); 2] = [("a", work), ("b", work)];
    let selector = BestOf::new("work", functions, Options::default()).expect("options in range");
    let key = (64usize, 56usize, 56usize, 1usize);
    let call = |x| selector.call(&key, |f| f(x));
    while selector.decision(&key).is_none() {
        call(1);
    }
    let direct = black_box(work as Work);
    println!("direct call       {:6.2} ns", ns(direct));
    println!("decided call      {:6.2} ns", ns(call));
    for threads in [2, 8] {
        let each = std::thread::scope(|s| {
            let all: Vec<_> = (0..threads).map(|_| s.spawn(|| ns(call))).collect();
            let all: Vec<f64> = all.into_iter().map(|t| t.join().expect("it ran")).collect();
            all.into_iter().fold(0.0, f64::max)
        });
        println!("{threads} threads, slowest {each:6.2} ns");
    }
}
