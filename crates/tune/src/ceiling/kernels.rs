//! The loops that `doctor` times: independent multiply-adds, and reads of memory.
//!
//! Each exists for what the processor has, chosen when it runs. All are plain
//! functions of one thread; how often and on how many threads is `doctor`'s.

use std::hint::black_box;

/// Rounds of one call of [`multiply_adds`].
const STEPS: usize = 20_000;

/// Independent multiply-adds on the widest vectors; returns the operations done, 2 each.
pub fn multiply_adds(acc: &mut [f32; 16]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was just detected.
            return unsafe { x86::fma512(acc) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the features were just detected.
            return unsafe { x86::fma256(acc) };
        }
    }
    scalar_multiply_adds(acc)
}

/// Reads all of `data`; the sum keeps the compiler from skipping any.
pub fn read(data: &[i64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was just detected.
            return unsafe { x86::read512(data) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected.
            return unsafe { x86::read256(data) };
        }
    }
    scalar_read(data)
}

/// Independent scalar chains, which the compiler turns into what the baseline has.
fn scalar_multiply_adds(acc: &mut [f32; 16]) -> f64 {
    let mut c = [black_box(acc[0]); 64];
    for _ in 0..STEPS {
        for v in &mut c {
            *v = *v * 1.000_001 + 1e-9;
        }
    }
    acc[0] = c.iter().sum();
    (STEPS * 64 * 2) as f64
}

fn scalar_read(data: &[i64]) -> u64 {
    let mut sums = [0u64; 8];
    for chunk in data.chunks_exact(8) {
        for (s, v) in sums.iter_mut().zip(chunk) {
            *s = s.wrapping_add(*v as u64);
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::STEPS;
    use std::arch::x86_64 as x;

    /// 12 independent chains of 16 lanes.
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

    #[target_feature(enable = "avx512f")]
    pub fn read512(data: &[i64]) -> u64 {
        let mut sums = [x::_mm512_setzero_si512(); 8];
        // A pair of iterators is called for each vector where the crate is not optimised for speed.
        for chunk in data.chunks_exact(64) {
            let mut at = 0;
            for s in &mut sums {
                // SAFETY: 8 elements of 8 bytes from `at` on are in the chunk: `at` is below 64.
                let v = unsafe { x::_mm512_loadu_si512(chunk.as_ptr().add(at).cast()) };
                *s = x::_mm512_xor_si512(*s, v);
                at += 8;
            }
        }
        let all = sums.into_iter().reduce(|p, q| x::_mm512_xor_si512(p, q));
        all.map_or(0, |v| x::_mm512_reduce_add_epi64(v) as u64)
    }

    #[target_feature(enable = "avx2")]
    pub fn read256(data: &[i64]) -> u64 {
        let mut sums = [x::_mm256_setzero_si256(); 8];
        for chunk in data.chunks_exact(32) {
            let mut at = 0;
            for s in &mut sums {
                // SAFETY: 4 elements of 8 bytes from `at` on are in the chunk: `at` is below 32.
                let v = unsafe { x::_mm256_loadu_si256(chunk.as_ptr().add(at).cast()) };
                *s = x::_mm256_xor_si256(*s, v);
                at += 4;
            }
        }
        let all = sums.into_iter().reduce(|p, q| x::_mm256_xor_si256(p, q));
        let mut lanes = [0u64; 4];
        if let Some(v) = all {
            // SAFETY: the array has room for the vector.
            unsafe { x::_mm256_storeu_si256(lanes.as_mut_ptr().cast(), v) };
        }
        lanes.into_iter().fold(0, |a, b| a ^ b)
    }
}
