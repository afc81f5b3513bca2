//! The machine this runs on: what targets are made from and records are keyed by.

use ir::{Isa, Target};
use std::path::Path;

/// Facts read from the operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: usize,
    pub l1_bytes: u64,
    pub l2_bytes: u64,
    pub llc_bytes: u64,
    pub isa: Isa,
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

/// Sizes of the first, second and last data cache of CPU 0.
fn caches() -> (Option<u64>, Option<u64>, Option<u64>) {
    let folder = Path::new("/sys/devices/system/cpu/cpu0/cache");
    let mut found: Vec<(u32, u64)> = Vec::new();
    for i in 0..8 {
        let index = folder.join(format!("index{i}"));
        let read = |name: &str| std::fs::read_to_string(index.join(name)).ok();
        let Some(kind) = read("type") else { break };
        let level = read("level").and_then(|l| l.trim().parse().ok());
        let bytes = read("size").and_then(|s| cache_bytes(&s));
        if let (Some(level), Some(bytes)) = (level, bytes)
            && kind.trim() != "Instruction"
        {
            found.push((level, bytes));
        }
    }
    let at = |level| found.iter().find(|(l, _)| *l == level).map(|(_, b)| *b);
    (at(1), at(2), found.iter().max().map(|(_, b)| *b))
}

fn host_isa() -> Isa {
    #[cfg(target_arch = "x86_64")]
    {
        let v4 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512cd");
        let v3 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        match (v4, v3) {
            (true, true) => Isa::X86Avx512,
            (_, true) => Isa::X86Avx2,
            _ => Isa::X86Sse2,
        }
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
        let (l1, l2, llc) = caches();
        Machine {
            cpu,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            l1_bytes: l1.unwrap_or(generic.l1_bytes),
            l2_bytes: l2.unwrap_or(generic.l2_bytes),
            llc_bytes: llc.unwrap_or(generic.llc_bytes),
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
