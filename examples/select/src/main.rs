//! A program that chooses among libraries and its own loops while it works.
//!
//! `cargo run --release` multiplies matrices by its own loops, by `matrixmultiply` and by `faer`, and
//! transposes 4-D arrays by two orders of loops and by `ndarray`. Each routine has one selector, and
//! each problem size gets its own winner. The tables compare the decided selector with every fixed
//! choice.

mod product;
mod transposition;

use bestof::BestOf;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Decides for each key, and prints what each fixed choice and the decided selector take.
/// `prepare` makes the data of a size, and gives the call that is timed.
fn compare<K: Clone + Debug + Eq + Hash, A: Copy>(
    title: &str,
    keys: &[K],
    alternatives: &[(&str, A)],
    selector: &BestOf<K, A>,
    prepare: impl Fn(&K) -> Box<dyn FnMut(A)>,
) {
    println!("\n{title}, microseconds a call (least of 15)");
    print!("{:<24}", "size");
    for (name, _) in alternatives {
        print!("{name:>16}");
    }
    println!("{:>16}  chosen", "selector");
    for key in keys {
        let mut call = prepare(key);
        while selector.decision(key).is_none() {
            selector.call(key, |a| call(*a));
        }
        let fixed: Vec<Duration> = alternatives
            .iter()
            .map(|(_, a)| least(|| call(*a)))
            .collect();
        let selected = least(|| selector.call(key, |a| call(*a)));
        print!("{:<24}", format!("{key:?}"));
        for time in fixed.iter().chain([&selected]) {
            print!("{:>16.2}", time.as_secs_f64() * 1e6);
        }
        println!("  {}", selector.decision(key).unwrap_or("none"));
    }
}

fn least(mut call: impl FnMut()) -> Duration {
    let timed = |_| {
        let begin = Instant::now();
        call();
        begin.elapsed()
    };
    (0..15).map(timed).min().unwrap_or_default()
}

fn main() -> Result<(), bestof::Unfit> {
    product::run()?;
    transposition::run()
}
