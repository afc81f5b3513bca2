//! What no schedule of a task can beat on a machine.

use crate::machine::Limits;

/// Multiply-adds that inexact algorithms save, at most: F(6x6, 3x3) does 8 * 8 for 6 * 6 * 3 * 3.
const INEXACT_SAVES: f64 = 324.0 / 64.0;

/// Nanoseconds that `flops` operations on `bytes` of operands take at least.
pub fn bound_ns(flops: f64, bytes: f64, inexact: bool, limits: &Limits, threads: u32) -> f64 {
    let threads = f64::from(threads);
    let saved = if inexact { INEXACT_SAVES } else { 1.0 };
    let compute = flops / (limits.peak_gflops * threads * saved);
    compute.max(bytes / (limits.read_gb_per_s * threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_larger_of_compute_and_memory() {
        let limits = Limits {
            peak_gflops: 100.0,
            read_gb_per_s: 20.0,
        };
        assert_eq!(bound_ns(1e6, 1e3, false, &limits, 1), 1e4);
        assert_eq!(bound_ns(1e6, 1e3, false, &limits, 2), 5e3);
        assert_eq!(bound_ns(1e6, 1e3, true, &limits, 1), 1e4 / INEXACT_SAVES);
        assert_eq!(bound_ns(1e6, 1e6, true, &limits, 1), 5e4);
    }
}
