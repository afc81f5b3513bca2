//! What this machine can do: multiply-add peak and memory bandwidth, measured.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// One thread's measured limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// f32 multiply-add peak, 2 operations each.
    pub peak_gflops: f64,
    /// Read bandwidth of a buffer far larger than the caches.
    pub read_gb_per_s: f64,
}

/// The best of several short runs: what disturbs a run only slows it.
fn best_rate(mut run: impl FnMut() -> f64, time: Duration) -> f64 {
    let start = Instant::now();
    let mut best = 0.0f64;
    while start.elapsed() < time {
        let t = Instant::now();
        let work = run();
        best = best.max(work / t.elapsed().as_secs_f64());
    }
    best
}

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64 as x;

    pub const STEPS: usize = 200_000;

    /// 12 independent chains of 16 lanes; returns the operations done.
    #[target_feature(enable = "avx512f")]
    pub fn fma512(acc: &mut [f32; 16]) -> f64 {
        let (a, b) = (x::_mm512_set1_ps(1.000_001), x::_mm512_set1_ps(1e-9));
        let mut c = [x::_mm512_set1_ps(acc[0]); 12];
        for _ in 0..STEPS {
            for v in &mut c {
                *v = x::_mm512_fmadd_ps(*v, a, b);
            }
        }
        let sum = c.into_iter().reduce(|p, q| x::_mm512_add_ps(p, q));
        if let Some(s) = sum {
            acc[0] = x::_mm512_reduce_add_ps(s);
        }
        (STEPS * 12 * 16 * 2) as f64
    }

    /// 12 independent chains of 8 lanes.
    #[target_feature(enable = "avx2,fma")]
    pub fn fma256(acc: &mut [f32; 16]) -> f64 {
        let (a, b) = (x::_mm256_set1_ps(1.000_001), x::_mm256_set1_ps(1e-9));
        let mut c = [x::_mm256_set1_ps(acc[0]); 12];
        for _ in 0..STEPS {
            for v in &mut c {
                *v = x::_mm256_fmadd_ps(*v, a, b);
            }
        }
        let sum = c.into_iter().reduce(|p, q| x::_mm256_add_ps(p, q));
        if let Some(s) = sum {
            acc[0] = x::_mm_cvtss_f32(x::_mm256_castps256_ps128(s));
        }
        (STEPS * 12 * 8 * 2) as f64
    }
}

/// Independent scalar chains, which the compiler turns into what the baseline has.
fn multiply_add(acc: &mut [f32; 16]) -> f64 {
    const STEPS: usize = 200_000;
    let mut c = [black_box(acc[0]); 64];
    for _ in 0..STEPS {
        for v in &mut c {
            *v = *v * 1.000_001 + 1e-9;
        }
    }
    acc[0] = c.iter().sum();
    (STEPS * 64 * 2) as f64
}

fn peak_gflops(time: Duration) -> f64 {
    let mut acc = [1.0f32; 16];
    let rate = best_rate(
        || {
            #[cfg(target_arch = "x86_64")]
            {
                if is_x86_feature_detected!("avx512f") {
                    // SAFETY: the feature was just detected.
                    return unsafe { kernels::fma512(&mut acc) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the features were just detected.
                    return unsafe { kernels::fma256(&mut acc) };
                }
            }
            multiply_add(&mut acc)
        },
        time,
    );
    black_box(acc);
    rate / 1e9
}

fn read_gb_per_s(time: Duration) -> f64 {
    let data = vec![1u64; (256 << 20) / 8];
    let rate = best_rate(
        || {
            let mut sums = [0u64; 8];
            for chunk in data.chunks_exact(8) {
                for (s, v) in sums.iter_mut().zip(chunk) {
                    *s = s.wrapping_add(*v);
                }
            }
            black_box(sums);
            (data.len() * 8) as f64
        },
        time,
    );
    rate / 1e9
}

/// Measures for about half a second.
pub fn limits() -> Limits {
    Limits {
        peak_gflops: peak_gflops(Duration::from_millis(200)),
        read_gb_per_s: read_gb_per_s(Duration::from_millis(300)),
    }
}
