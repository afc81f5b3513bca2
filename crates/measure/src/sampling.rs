//! When to take another sample, and when to stop.

use crate::protocol::Protocol;
use std::time::Instant;
use store::{median, median_interval};

const CONFIDENCE: f64 = 0.95;

/// Whether sampling is over: enough samples and a tight interval, or clearly
/// slow, or out of time.
pub fn enough(p: &Protocol, samples: &[u64], best_ns: Option<u64>, elapsed_ns: u64) -> bool {
    let Some(fastest) = samples.iter().min() else {
        return false;
    };
    let n = samples.len() as u32;
    if let Some(best) = best_ns
        && *fastest as f64 > best as f64 * p.slow_factor
    {
        return true;
    }
    if n < p.min_samples {
        return false;
    }
    if n >= p.max_samples || elapsed_ns >= p.max_ns {
        return true;
    }
    let interval = median_interval(samples, CONFIDENCE);
    match (interval, median(samples)) {
        (Some(i), Some(m)) => (i.high - i.low) as f64 <= p.tight * m as f64,
        _ => false,
    }
}

/// The smallest non-zero step of the host's monotonic clock that was seen.
pub fn host_clock_resolution_ns() -> u64 {
    let step = || {
        let start = Instant::now();
        loop {
            let ns = start.elapsed().as_nanos() as u64;
            if ns > 0 {
                return ns;
            }
        }
    };
    (0..100).map(|_| step()).min().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_when_tight_slow_or_out_of_time_and_not_before() {
        let p = Protocol::new(1, 0);
        assert!(!enough(&p, &[], Some(1), 0));
        assert!(enough(&p, &[126], Some(100), 0), "clearly slow");
        assert!(!enough(&p, &[124], Some(100), 0));
        assert!(
            !enough(&p, &[100; 4], None, u64::MAX),
            "fewer than the least"
        );
        assert!(
            !enough(&p, &[100; 5], None, 0),
            "five cannot bound a median at 95%"
        );
        assert!(enough(&p, &[100; 6], None, 0), "tight");
        let wide = [100, 150, 90, 130, 110, 120, 140];
        assert!(!enough(&p, &wide, None, 0));
        assert!(enough(&p, &wide, None, p.max_ns), "out of time");
        assert!(
            enough(&p, &[90, 130].repeat(8), None, 0),
            "the most samples"
        );
    }
}
