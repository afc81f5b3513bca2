//! When to take another sample, and when to stop.
//!
//! Owns the rules of sampling. They never see a kernel, only a function that
//! runs it a number of times.

use crate::loaded::Stop;
use crate::noise::Noise;
use crate::protocol::Protocol;
use std::time::Instant;
use store::{median, median_interval};

const CONFIDENCE: f64 = 0.95;
/// Most calls that one sample averages.
const MAX_CALLS: u64 = 1_000_000;
/// A single sample this many times beyond clearly slow needs no second one.
const BEYOND_DOUBT: f64 = 4.0;
/// A run that fills this many samples needs no repetitions to fill one.
const LONG_SAMPLES: u64 = 10;

pub struct Samples {
    /// Nanoseconds a call, in the order taken.
    pub ns: Vec<u64>,
    pub calls: u64,
    /// Whether the outputs are worth another check.
    pub then_check: bool,
    /// Whether the first, cold run is the only sample.
    pub first_only: bool,
}

/// Samples a kernel whose first, cold run took `first_ns`. `batch` runs it so
/// many times and returns the nanoseconds. Of a kernel too long for the
/// deadline the first run is the only sample.
pub fn sample(
    p: &Protocol,
    best_ns: Option<u64>,
    first_ns: u64,
    deadline: Instant,
    noise: &Noise,
    mut batch: impl FnMut(u64) -> Result<u64, Stop>,
) -> Result<Samples, Stop> {
    let start = Instant::now();
    let slower = |ns: &[u64]| best_ns.is_some_and(|best| noise.is_slower(ns, best, p.lose));
    // Room for one more run, and for the last check.
    let fits = |ns: u64| {
        let left = deadline.saturating_duration_since(Instant::now());
        left.as_nanos() as u64 > ns.saturating_mul(2)
    };
    if !fits(first_ns) {
        return Ok(Samples {
            ns: vec![first_ns.max(1)],
            calls: 1,
            then_check: false,
            first_only: true,
        });
    }
    let hopeless = best_ns.is_some_and(|b| first_ns as f64 > BEYOND_DOUBT * slow_ns(p, b))
        && first_ns > LONG_SAMPLES * p.min_sample_ns;
    let calls = if hopeless {
        1
    } else {
        calls_per_sample(p, first_ns, &mut batch)?
    };
    let (mut ns, mut last) = (Vec::new(), first_ns);
    while !enough(p, &ns, best_ns, start.elapsed().as_nanos() as u64)
        && !slower(&ns)
        && (ns.is_empty() || fits(last))
    {
        last = batch(calls)?;
        ns.push(per_call(last, calls));
    }
    let lost = clearly_slow(p, &ns, best_ns) || slower(&ns);
    let then_check = !lost && fits(last / calls);
    Ok(Samples {
        ns,
        calls,
        then_check,
        first_only: false,
    })
}

/// Samples a kernel with warm constants, which no kernel is slower with: of one
/// that is clearly slow even so nothing else need be known. `None` of all others.
pub fn slow_even_warm(
    p: &Protocol,
    best_ns: Option<u64>,
    first_ns: u64,
    deadline: Instant,
    mut batch: impl FnMut(u64) -> Result<u64, Stop>,
) -> Result<Option<Samples>, Stop> {
    let slow = |ns: u64| best_ns.is_some_and(|b| ns as f64 > slow_ns(p, b));
    // The first run was cold; if that was fast enough, a warm one is.
    let left = deadline.saturating_duration_since(Instant::now());
    if !slow(first_ns) || left.as_nanos() as u64 <= first_ns.saturating_mul(4) {
        return Ok(None);
    }
    let long = first_ns > LONG_SAMPLES * p.min_sample_ns;
    let calls = if long {
        1
    } else {
        calls_per_sample(p, first_ns, &mut batch)?
    };
    let mut ns = Vec::new();
    while !clearly_slow(p, &ns, best_ns) {
        let sample = per_call(batch(calls)?, calls);
        if !slow(sample) {
            return Ok(None);
        }
        ns.push(sample);
    }
    Ok(Some(Samples {
        ns,
        calls,
        then_check: false,
        first_only: false,
    }))
}

/// Calls that fill a sample, found by running warm. A call that takes the whole
/// sampling time is not worth a warm-up.
pub fn calls_per_sample(
    p: &Protocol,
    first_ns: u64,
    mut batch: impl FnMut(u64) -> Result<u64, Stop>,
) -> Result<u64, Stop> {
    if first_ns > p.max_ns {
        return Ok(1);
    }
    if first_ns > LONG_SAMPLES * p.min_sample_ns {
        batch(1)?;
        return Ok(1);
    }
    let mut calls = 1;
    loop {
        let mut ns = batch(calls)?.max(1);
        if calls == 1 {
            // The first run was one call too: a disturbance seldom hits both.
            ns = ns.min(first_ns.max(1));
        }
        let fill = p
            .min_sample_ns
            .saturating_mul(calls)
            .div_ceil(ns)
            .clamp(1, MAX_CALLS);
        // Long enough to tell how long a call takes.
        if ns >= p.min_sample_ns / 2 || calls == MAX_CALLS {
            return Ok(fill);
        }
        calls = fill.clamp(2 * calls, 10 * calls).min(MAX_CALLS);
    }
}

/// Nanoseconds a call, of so many calls that took so long together; at least 1.
pub fn per_call(ns: u64, calls: u64) -> u64 {
    (ns.saturating_add(calls / 2) / calls).max(1)
}

fn slow_ns(p: &Protocol, best_ns: u64) -> f64 {
    best_ns as f64 * p.slow_factor
}

/// Whether the samples leave no hope of beating the incumbent. One sample may
/// have been disturbed; two in a row rarely are.
fn clearly_slow(p: &Protocol, samples: &[u64], best_ns: Option<u64>) -> bool {
    let (Some(best), Some(fastest)) = (best_ns, samples.iter().min()) else {
        return false;
    };
    let bound = slow_ns(p, best)
        * if samples.len() == 1 {
            BEYOND_DOUBT
        } else {
            1.0
        };
    *fastest as f64 > bound
}

/// Whether sampling is over: enough samples and a tight interval, or clearly
/// slow, or out of time.
pub fn enough(p: &Protocol, samples: &[u64], best_ns: Option<u64>, elapsed_ns: u64) -> bool {
    let n = samples.len() as u32;
    if clearly_slow(p, samples, best_ns) || n > 0 && elapsed_ns >= p.most_ns {
        return true;
    }
    if n < p.min_samples.max(1) {
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

/// The order in which kernels of a ranking are sampled: another order every turn, so
/// that no kernel always runs after the same other one.
pub struct TurnOrder {
    order: Vec<usize>,
    state: u64,
}

impl TurnOrder {
    pub fn new(kernels: usize, seed: u64) -> TurnOrder {
        TurnOrder {
            order: (0..kernels).collect(),
            state: seed,
        }
    }

    /// Positions of all kernels, in the order of the next turn.
    pub fn next_turn(&mut self) -> &[usize] {
        for i in (1..self.order.len()).rev() {
            // SplitMix64.
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            self.order
                .swap(i, ((z ^ (z >> 31)) % (i as u64 + 1)) as usize);
        }
        &self.order
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
    use std::time::Duration;

    #[test]
    fn stops_when_tight_slow_or_out_of_time_and_not_before() {
        let p = Protocol::new(1, 0);
        assert!(!enough(&p, &[], Some(1), 0));
        assert!(!enough(&p, &[126], Some(100), 0), "one may be noise");
        assert!(enough(&p, &[126, 999], Some(100), 0), "clearly slow");
        assert!(enough(&p, &[501], Some(100), 0), "beyond doubt");
        assert!(!enough(&p, &[999, 124], Some(100), 0));
        assert!(
            !enough(&p, &[100; 4], None, p.max_ns),
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
        let hurried = Protocol { most_ns: 9, ..p };
        assert!(!enough(&hurried, &wide[..1], None, 8));
        assert!(enough(&hurried, &wide[..1], None, 9), "one is enough");
        assert!(!enough(&hurried, &[], None, 9), "one there is");
        let p = Protocol::new(1, 0);
        assert!(
            enough(&p, &[90, 130].repeat(8), None, 0),
            "the most samples"
        );
    }

    /// Samples a kernel of `call_ns` on a clock that stands still.
    fn sampled(call_ns: u64, best_ns: Option<u64>, left: Duration) -> (Samples, Vec<u64>) {
        let mut batches = Vec::new();
        let batch = |n| {
            batches.push(n);
            Ok(n * call_ns)
        };
        let p = Protocol::new(1, 0);
        let noise = Noise::default();
        let samples = sample(&p, best_ns, call_ns, Instant::now() + left, &noise, batch);
        (samples.unwrap(), batches)
    }

    const LONG: Duration = Duration::from_secs(1000);

    #[test]
    fn a_short_call_is_repeated_until_a_sample_is_filled() {
        for call_ns in [1, 7, 300, 9_000, 60_000, 99_999, 100_001] {
            let (s, _) = sampled(call_ns, None, LONG);
            let filled = s.calls * call_ns;
            assert!(
                (100_000..100_000 + call_ns).contains(&filled),
                "{call_ns}: {}",
                s.calls
            );
            assert_eq!(s.ns, vec![call_ns; 6]);
            assert!(s.then_check);
        }
        assert_eq!(
            sampled(5_000_000, None, LONG).1,
            [1; 7],
            "one warm-up, six samples"
        );
    }

    #[test]
    fn hopeless_and_clearly_slow_ones_cost_little() {
        let (s, batches) = sampled(10_000_000, Some(1_000_000), LONG);
        assert_eq!((s.ns.len(), batches.len(), s.then_check), (1, 1, false));
        let (s, _) = sampled(1_500_000, Some(1_000_000), LONG);
        assert_eq!((s.ns.len(), s.then_check), (2, false));
        // A short kernel's first run is cold, which says nothing.
        let p = Protocol::new(1, 0);
        let (noise, deadline) = (Noise::default(), Instant::now() + LONG);
        let s = sample(
            &p,
            Some(1_000),
            900_000,
            deadline,
            &noise,
            |n| Ok(n * 1_000),
        );
        assert_eq!(s.unwrap().ns, [1_000; 6]);
    }

    #[test]
    fn what_has_lost_by_all_that_is_known_of_noise_costs_little() {
        let mut noise = Noise::default();
        (0..40).for_each(|_| noise.learn(&[100, 100, 101, 100, 101, 100]));
        let of = |lose| {
            let p = Protocol {
                lose,
                ..Protocol::new(1, 0)
            };
            let deadline = Instant::now() + LONG;
            let batch = |n| Ok(n * 110_000);
            let s = sample(&p, Some(100_000), 110_000, deadline, &noise, batch).unwrap();
            (s.ns.len(), s.then_check)
        };
        assert_eq!(of(0.0), (6, true));
        assert_eq!(of(0.001), (2, false));
    }

    #[test]
    fn only_what_is_slow_when_warm_needs_no_more() {
        let p = Protocol::new(1, 0);
        let of = |first_ns: u64, call_ns: u64, best_ns| {
            let deadline = Instant::now() + LONG;
            let batch = |n| Ok(n * call_ns);
            let samples = slow_even_warm(&p, best_ns, first_ns, deadline, batch).unwrap();
            samples.map(|s| (s.ns, s.then_check))
        };
        let best = Some(100_000);
        assert_eq!(of(900_000, 200_000, best), Some((vec![200_000; 2], false)));
        assert_eq!(of(900_000, 900_000, best), Some((vec![900_000], false)));
        assert_eq!(of(900_000, 110_000, best), None, "cold only");
        assert_eq!(of(110_000, 110_000, best), None, "never slow");
        assert_eq!(of(900_000, 900_000, None), None, "nothing to beat");
        let too_late = slow_even_warm(&p, best, 900_000, Instant::now(), |_| Ok(900_000));
        assert!(too_late.unwrap().is_none());
    }

    #[test]
    fn a_kernel_too_long_to_repeat_has_its_first_run_as_sample() {
        let second = 1_000_000_000;
        let (s, batches) = sampled(second, None, Duration::from_millis(1500));
        assert_eq!(
            (s.ns, batches.len(), s.then_check),
            (vec![second], 0, false)
        );
        let (s, batches) = sampled(second, None, Duration::from_secs(30));
        assert_eq!((s.ns.len(), batches.len()), (6, 6), "no warm-up");
    }

    #[test]
    fn every_kernel_has_its_turn_and_its_neighbours_change() {
        let mut order = TurnOrder::new(4, 7);
        let mut pairs = std::collections::HashSet::new();
        for _ in 0..50 {
            let turn = order.next_turn().to_vec();
            pairs.extend(turn.windows(2).map(|w| (w[0], w[1])));
            let mut sorted = turn;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert_eq!(pairs.len(), 12, "every kernel ran after every other");
        assert!(TurnOrder::new(0, 7).next_turn().is_empty());
    }
}
