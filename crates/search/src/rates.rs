//! Rates of a core that no target says of itself: what a cycle starts, and what it brings
//! from each level of the memory. Predictions of cost are made of them.

use ir::{CpuTarget, Vendor};

/// Cycles from the start of a multiply-add to its result: four on Skylake and Zen 4
/// (Agner Fog, Instruction tables).
pub const LATENCY: i64 = 4;

/// Multiply-adds of vectors, and loads of a vector or of an element to broadcast, that
/// start in a cycle at most (Skylake and Zen 4, same tables).
pub const STARTS_A_CYCLE: i64 = 2;

/// Bytes that a cycle brings from main memory of a constant that lies in the order in which it is
/// read: one core reads 43 GB/s at 4.3 GHz (Zen 5, `tunesmith doctor`).
pub const STREAMED: f64 = 10.0;

/// Bytes that a cycle brings from the second-level cache, the last-level one, and main
/// memory: orders of magnitude, chosen by hand.
const BYTES_A_CYCLE: [f64; 3] = [32.0, 16.0, 6.0];

/// Bytes that a cycle brings from the last-level cache of Intel's servers: one core reads 29 to 35 GB/s
/// at 3.5 GHz (a Xeon with AMX).
const LLC_OF_INTEL: f64 = 8.0;

/// Bytes that a cycle brings from their second-level cache: one core reads 138 to 170 GB/s, and starts 240 GFLOP/s of f32,
/// which is about 3.7 GHz (`tunesmith explain`, the same Xeon). The number is near the upper end of that.
const L2_OF_INTEL: f64 = 45.0;

/// The share of a cache that an operand may fill: the others need the rest.
pub const SHARE: f64 = 0.75;

/// The share of a transfer from a farther cache that computing does not hide.
pub const EXPOSED: f64 = 0.5;

/// Bytes of one way of a first-level cache: a page, as a core looks lines up before it has
/// translated their addresses. So are 32 KiB in 8 ways, of Intel's cores up to Skylake and of
/// AMD's from Zen to Zen 4, and 48 KiB in 12 ways, of Zen 5 (their optimization manuals).
const WAY_BYTES: i64 = 4096;

/// Lines of a first-level cache that share a set.
pub fn ways(target: &CpuTarget) -> i64 {
    (target.l1_bytes as i64 / WAY_BYTES).max(1)
}

/// Lines that a first-level cache holds together, where each is so many bytes from the
/// one before: lines that are a multiple of its sets apart share a set.
pub fn lines_together(apart: i64, target: &CpuTarget) -> i64 {
    let line = target.cache_line_bytes.max(1) as i64;
    let (mut a, mut b) = (WAY_BYTES, apart.abs() % WAY_BYTES);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    WAY_BYTES / a.max(line) * ways(target)
}

/// Bytes that a cycle brings of data of so many bytes that are read again and again, when
/// the share `usable` of a cache is theirs; the first level does not count.
pub fn bytes_a_cycle(bytes: f64, usable: f64, target: &CpuTarget) -> f64 {
    let [l2, llc, memory] = BYTES_A_CYCLE;
    let (l2, llc) = match target.vendor {
        Some(Vendor::Intel) => (L2_OF_INTEL, LLC_OF_INTEL),
        _ => (l2, llc),
    };
    let fits = |cache: u64| bytes <= usable * cache as f64;
    match () {
        () if fits(target.l2_bytes) => l2,
        () if fits(target.llc_bytes) => llc,
        () => memory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::Isa;

    #[test]
    fn lines_a_page_apart_fill_one_set() {
        let target = CpuTarget::generic(Isa::X86Avx512);
        assert_eq!(lines_together(4096, &target), 8);
        assert_eq!(lines_together(2048, &target), 16);
        assert!(lines_together(4 * (768 + 16), &target) > 32);
    }

    #[test]
    fn data_comes_from_the_nearest_level_that_holds_it() {
        let target = CpuTarget::generic(Isa::X86Avx512);
        let rate = |bytes: u64, usable| bytes_a_cycle(bytes as f64, usable, &target);
        assert_eq!(rate(target.l2_bytes, 1.0), BYTES_A_CYCLE[0]);
        assert_eq!(rate(target.l2_bytes, 0.5), BYTES_A_CYCLE[1]);
        assert_eq!(rate(target.llc_bytes, 1.0), BYTES_A_CYCLE[1]);
        assert_eq!(rate(target.llc_bytes + 1, 1.0), BYTES_A_CYCLE[2]);
    }
}
