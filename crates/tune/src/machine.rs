//! The machine this runs on: what targets are made from and records are keyed by.

use crate::threads::unpinned;
use ir::{Isa, Target};
use runtime::KernelTarget;
#[cfg(target_arch = "x86_64")]
use runtime::check_target;
use std::path::Path;
use std::thread::available_parallelism;

/// Facts read from the operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: usize,
    pub l1_bytes: u64,
    /// CPUs that share a first-level cache, and so on.
    pub l1_sharing: usize,
    pub l2_bytes: u64,
    pub l2_sharing: usize,
    pub llc_bytes: u64,
    pub llc_sharing: usize,
    pub isa: Isa,
}

/// One thread's measured limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// f32 multiply-add peak, 2 operations each.
    pub peak_gflops: f64,
    /// Read bandwidth of a buffer far larger than the caches.
    pub read_gb_per_s: f64,
}

/// A data cache of CPU 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cache {
    level: u32,
    bytes: u64,
    /// CPUs that share it.
    sharing: usize,
}

/// How many CPUs a list such as `0-3,8` names.
fn count_cpus(list: &str) -> Option<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some((last + 1).saturating_sub(first))
    };
    list.trim().split(',').map(range).sum()
}

/// Bytes of a cache as Linux writes it: `32K`, `1M`.
fn cache_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let n: u64 = digits.parse().ok()?;
    match unit {
        "" => Some(n),
        "K" => Some(n << 10),
        "M" => Some(n << 20),
        _ => None,
    }
}

/// The first, second and last data cache of CPU 0.
fn caches() -> [Option<Cache>; 3] {
    let folder = Path::new("/sys/devices/system/cpu/cpu0/cache");
    let mut found: Vec<Cache> = Vec::new();
    for i in 0..8 {
        let index = folder.join(format!("index{i}"));
        let read = |name: &str| std::fs::read_to_string(index.join(name)).ok();
        let Some(kind) = read("type") else { break };
        let level = read("level").and_then(|l| l.trim().parse().ok());
        let bytes = read("size").and_then(|s| cache_bytes(&s));
        if let (Some(level), Some(bytes)) = (level, bytes)
            && kind.trim() != "Instruction"
        {
            let shared = read("shared_cpu_list").and_then(|l| count_cpus(&l));
            found.push(Cache {
                level,
                bytes,
                sharing: shared.unwrap_or(1).max(1),
            });
        }
    }
    let at = |level| found.iter().find(|c| c.level == level).copied();
    [at(1), at(2), found.iter().max().copied()]
}

fn host_isa() -> Isa {
    #[cfg(target_arch = "x86_64")]
    {
        let runs = |isa: &Isa| check_target(&kernel_target(&Target::generic(*isa))).is_ok();
        let wider = [Isa::X86Avx512, Isa::X86Avx2];
        wider.into_iter().find(runs).unwrap_or(Isa::X86Sse2)
    }
    #[cfg(target_arch = "aarch64")]
    {
        Isa::AArch64Neon
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        Isa::RiscV64Rvv
    }
}

/// Dot products of bytes that this machine has beside its family's features,
/// by their LLVM names.
fn dot_features(isa: Isa) -> Vec<&'static str> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if isa == Isa::X86Avx512 && is_x86_feature_detected!("avx512vnni") {
            found.push("avx512vnni");
        }
        if isa == Isa::X86Avx2 && is_x86_feature_detected!("avxvnni") {
            found.push("avxvnni");
        }
    }
    #[cfg(target_arch = "aarch64")]
    if isa == Isa::AArch64Neon {
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            found.push("dotprod");
        }
        if std::arch::is_aarch64_feature_detected!("i8mm") {
            found.push("i8mm");
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _: Isa = isa;
    found
}

impl Machine {
    /// Reads the facts of this machine; what the system does not tell is the
    /// generic target's.
    pub fn host() -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = info
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(':'))
            .map_or_else(
                || std::env::consts::ARCH.to_string(),
                |(_, n)| n.trim().to_string(),
            );
        let isa = host_isa();
        let generic = Target::generic(isa);
        let cpus = unpinned(available_parallelism).map_or(1, usize::from);
        let found = caches();
        let bytes = |i: usize, generic: u64| found[i].map_or(generic, |c| c.bytes);
        let sharing = |i: usize, unknown: usize| found[i].map_or(unknown, |c| c.sharing);
        Machine {
            cpu,
            cpus,
            l1_bytes: bytes(0, generic.l1_bytes),
            l1_sharing: sharing(0, 1),
            l2_bytes: bytes(1, generic.l2_bytes),
            l2_sharing: sharing(1, 1),
            llc_bytes: bytes(2, generic.llc_bytes),
            llc_sharing: sharing(2, cpus),
            isa,
        }
    }

    /// The target for code that runs here with this many threads.
    pub fn target(&self, threads: u32) -> Target {
        let generic = Target::generic(self.isa);
        let own = dot_features(self.isa);
        let own: String = own.iter().map(|f| format!(",+{f}")).collect();
        Target {
            features: generic.features.clone() + &own,
            l1_bytes: self.l1_bytes,
            l2_bytes: self.l2_bytes,
            llc_bytes: self.llc_bytes,
            threads,
            ..generic
        }
    }

    pub fn description(&self) -> String {
        format!(
            "{}, {} CPUs, {}, L1 {} KiB, L2 {} KiB, last level {} KiB",
            self.cpu,
            self.cpus,
            self.isa.name(),
            self.l1_bytes >> 10,
            self.l2_bytes >> 10,
            self.llc_bytes >> 10
        )
    }

    /// Equal for machines whose measurements are comparable.
    pub fn fingerprint(&self) -> String {
        format!(
            "{:016x}",
            xxhash_rust::xxh3::xxh3_64(self.description().as_bytes())
        )
    }
}

/// The target in the form that compiled models hold.
pub fn kernel_target(t: &Target) -> KernelTarget {
    KernelTarget {
        triple: t.triple.clone(),
        cpu: t.cpu.clone(),
        features: t.features.clone(),
        vector_bits: t.vector_bits,
    }
}

/// The target in the form that the store keys records by.
pub fn target_key(t: &Target) -> store::TargetKey {
    store::TargetKey {
        triple: t.triple.clone(),
        cpu: t.cpu.clone(),
        features: t
            .features
            .split(',')
            .filter(|f| !f.is_empty())
            .map(String::from)
            .collect(),
        caches: [
            ("l1".to_string(), t.l1_bytes),
            ("l2".to_string(), t.l2_bytes),
            ("llc".to_string(), t.llc_bytes),
        ]
        .into(),
        threads: t.threads,
        extra: store::Extra::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count_cpus("0\n"), Some(1));
        assert_eq!(count_cpus("0-3"), Some(4));
        assert_eq!(count_cpus("0-1,8-9,12"), Some(5));
        assert_eq!(count_cpus(""), None);
        assert_eq!(count_cpus("all"), None);
    }
}
