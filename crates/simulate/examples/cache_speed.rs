//! How many accesses a second one core simulates: `cargo run --release -p simulate --example cache_speed`.
//!
//! The accesses are those of a product of matrices by panels: one operand in the first level, one that comes
//! from the second level, and one from the last level.

use simulate::{Access, Caches, cpus};
use std::time::Instant;

fn main() {
    for cpu in cpus() {
        let mut caches = Caches::new(&cpu.caches);
        let begin = Instant::now();
        let mut accesses = 0_u64;
        for _ in 0..3 {
            for column in 0..64_u64 {
                for row in 0..64_u64 {
                    for k in 0..512_u64 {
                        caches.access((1 << 20) + (column * 512 + k) * 64, 64, Access::Read);
                        caches.access((1 << 30) + (row * 512 + k) * 4, 4, Access::Read);
                    }
                    caches.access((1 << 32) + (row * 64 + column) * 64, 64, Access::Write);
                    accesses += 1025;
                }
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let misses: Vec<u64> = caches.shared().iter().map(|c| c.read.misses).collect();
        let rate = accesses as f64 / seconds / 1e6;
        println!(
            "{:<14} {rate:>6.0} M accesses/s, misses behind the first level {misses:?}",
            cpu.name
        );
    }
}
