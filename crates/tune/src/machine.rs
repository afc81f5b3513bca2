//! The machine this runs on: what targets are made from and records are keyed by.

use crate::threads::unpinned;
use ir::{ByteDot, CpuTarget, HalfDot, Isa, Target, TileDot, Vendor};
use runtime::check_target;
use serde_json::json;
use std::path::Path;
use std::sync::OnceLock;
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
    /// The part that one core can use, [`MOST_USABLE`] at most.
    pub llc_bytes: u64,
    pub llc_sharing: usize,
    pub vendor: Option<Vendor>,
    pub isa: Isa,
    pub byte_dot: Option<ByteDot>,
    pub half_dot: Option<HalfDot>,
    pub tile_dot: Option<TileDot>,
    /// LLVM's name of the processor, as [`CpuTarget::tune_cpu`].
    pub tune_cpu: Option<String>,
}

/// Bytes of a last-level cache that one core can use, at most: larger ones are shared by many cores, those of other
/// guests of the machine among them. A Xeon with 480 MiB reads 29 GB/s from 64 MiB, 20 from 128 and 16 from 256.
const MOST_USABLE: u64 = 64 << 20;

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
    /// Lines of a set, if the system tells.
    ways: Option<u64>,
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

/// Ways as Linux writes them, which writes 0 of a cache with lines anywhere and of one that it does not know.
fn ways_of(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|ways| *ways > 0)
}

/// Lines of a set of this machine's caches, where the system tells; none if the target has other caches. They are no part of
/// a target: keys of records have all its facts.
pub fn ways(target: &Target) -> Option<[Option<u64>; 3]> {
    static HOST: OnceLock<(Machine, [Option<u64>; 3])> = OnceLock::new();
    let (host, ways) = HOST.get_or_init(|| {
        let ways = caches().map(|c| c.and_then(|c| c.ways));
        (Machine::host(), ways)
    });
    let Target::Cpu(cpu) = target;
    let sizes = [cpu.l1_bytes, cpu.l2_bytes, cpu.llc_bytes];
    let here = target.triple() == host.isa.triple();
    (here && sizes == [host.l1_bytes, host.l2_bytes, host.llc_bytes]).then_some(*ways)
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
                ways: read("ways_of_associativity").and_then(|w| ways_of(&w)),
            });
        }
    }
    let at = |level| found.iter().find(|c| c.level == level).copied();
    [at(1), at(2), found.iter().max().copied()]
}

fn runs(target: &CpuTarget) -> bool {
    check_target(&build::kernel_target(&Target::Cpu(target.clone()))).is_ok()
}

/// The widest family that runs here.
fn host_isa() -> Isa {
    let all = Isa::ALL.into_iter().rev();
    let mut running = all.filter(|isa| runs(&CpuTarget::generic(*isa)));
    let baseline = || Isa::baseline(std::env::consts::ARCH);
    // Where not even the baseline is known to run, loading its code says why.
    running.next().or_else(baseline).unwrap_or(Isa::ALL[0])
}

/// What this machine has of instructions beside its family's: the first of `all` with which a target
/// of the family runs here.
fn host_addition<T: Copy>(isa: Isa, all: &[(T, Isa)], add: fn(&mut CpuTarget, T)) -> Option<T> {
    let here = |addition: T| {
        let mut with = CpuTarget::generic(isa);
        add(&mut with, addition);
        runs(&with)
    };
    let own = all.iter().filter(|(_, of)| *of == isa);
    own.map(|(addition, _)| *addition).find(|a| here(*a))
}

impl Machine {
    /// Reads the facts of this machine; what the system does not tell is the
    /// generic target's.
    pub fn host() -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let mut all = info.lines().filter_map(|l| l.split_once(':'));
            let (_, value) = all.find(|(field, _)| field.trim() == name)?;
            Some(value.trim().to_string())
        };
        let cpu = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_string());
        let vendor = match field("vendor_id").as_deref() {
            Some("AuthenticAMD") => Some(Vendor::Amd),
            Some("GenuineIntel") => Some(Vendor::Intel),
            _ => None,
        };
        let isa = host_isa();
        let generic = CpuTarget::generic(isa);
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
            llc_bytes: bytes(2, generic.llc_bytes).min(MOST_USABLE),
            llc_sharing: sharing(2, cpus),
            vendor,
            isa,
            byte_dot: host_addition(isa, &ByteDot::ALL.map(|d| (d, d.isa())), |t, d| {
                t.byte_dot = Some(d);
            }),
            half_dot: host_addition(isa, &HalfDot::ALL.map(|d| (d, d.isa())), |t, d| {
                t.half_dot = Some(d);
            }),
            tile_dot: host_addition(isa, &TileDot::ALL.map(|d| (d, d.isa())), |t, d| {
                t.tile_dot = Some(d);
            }),
            tune_cpu: llvm::host_cpu(),
        }
    }

    /// The target for code that runs here with this many threads.
    pub fn target(&self, threads: u32) -> Target {
        Target::Cpu(CpuTarget {
            byte_dot: self.byte_dot,
            half_dot: self.half_dot,
            tile_dot: self.tile_dot,
            vendor: self.vendor,
            l1_bytes: self.l1_bytes,
            l2_bytes: self.l2_bytes,
            llc_bytes: self.llc_bytes,
            threads,
            ..CpuTarget::generic(self.isa)
        })
    }

    /// As [`Machine::target`], with code scheduled for this very processor.
    pub fn tuned_target(&self, threads: u32) -> Target {
        let Target::Cpu(cpu) = self.target(threads);
        Target::Cpu(CpuTarget {
            tune_cpu: self.tune_cpu.clone(),
            ..cpu
        })
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

/// The target in the form that the store keys records by: all that changes a
/// schedule or its code.
pub fn target_key(t: &Target) -> store::TargetKey {
    let Target::Cpu(cpu) = t;
    // Without `..`: a fact that is missing here would be missing in the key.
    let CpuTarget {
        isa,
        tune_cpu,
        vendor,
        vector_bits,
        vector_registers,
        byte_dot,
        half_dot,
        tile_dot,
        l1_bytes,
        l2_bytes,
        llc_bytes,
        cache_line_bytes,
        threads,
    } = cpu;
    let caches = [
        ("l1", l1_bytes),
        ("l2", l2_bytes),
        ("llc", llc_bytes),
        ("line", cache_line_bytes),
    ];
    let facts = [
        ("isa", json!(isa.name())),
        ("fma", json!(isa.has_fma())),
        ("byte_dot", json!(byte_dot.map(ByteDot::name))),
        ("half_dot", json!(half_dot.map(HalfDot::name))),
        ("tile_dot", json!(tile_dot.map(TileDot::name))),
        ("vector_bits", json!(vector_bits)),
        ("vector_registers", json!(vector_registers)),
        ("tune_cpu", json!(tune_cpu)),
        ("vendor", json!(vendor.map(Vendor::name))),
    ];
    // What a target lacks is left out, so that a new optional fact leaves the
    // keys of targets without it as they are.
    let facts = facts.into_iter().filter(|(_, v)| !v.is_null());
    let features = t.features();
    let features = features.split(',').filter(|f| !f.is_empty());
    store::TargetKey {
        triple: t.triple().into(),
        cpu: t.level().into(),
        features: features.map(String::from).collect(),
        caches: caches.map(|(k, v)| (k.to_string(), *v)).into(),
        threads: *threads,
        extra: facts.map(|(k, v)| (k.to_string(), v)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count_cpus("0\n"), Some(1));
        assert_eq!(count_cpus("0-3"), Some(4));
        assert_eq!(count_cpus("0-1,8-9,12"), Some(5));
        assert_eq!(count_cpus(""), None);
        assert_eq!(count_cpus("all"), None);
    }

    #[test]
    fn ways_are_read_and_only_for_targets_with_this_machines_caches() {
        assert_eq!(ways_of("12\n"), Some(12));
        assert_eq!(ways_of("0\n"), None);
        assert_eq!(ways_of("full"), None);
        let target = Machine::host().target(2);
        assert_eq!(ways(&target), Some(caches().map(|c| c?.ways)));
        let Target::Cpu(facts) = target;
        let other = CpuTarget {
            l2_bytes: facts.l2_bytes * 2,
            ..facts
        };
        assert_eq!(ways(&Target::Cpu(other)), None);
    }

    #[test]
    fn each_fact_of_a_target_is_in_its_key() {
        let base = CpuTarget::generic(Isa::AArch64Neon);
        let change = |f: fn(&mut CpuTarget)| {
            let mut t = base.clone();
            f(&mut t);
            t
        };
        let mut all = vec![
            base.clone(),
            change(|t| t.isa = Isa::RiscV64Rvv),
            change(|t| t.tune_cpu = Some("neoverse-v2".into())),
            change(|t| t.vendor = Some(Vendor::Amd)),
            change(|t| t.vendor = Some(Vendor::Intel)),
            change(|t| t.vector_bits += 1),
            change(|t| t.vector_registers += 1),
            change(|t| t.byte_dot = Some(ByteDot::Neon)),
            change(|t| t.byte_dot = Some(ByteDot::NeonMixed)),
            change(|t| t.l1_bytes += 1),
            change(|t| t.l2_bytes += 1),
            change(|t| t.llc_bytes += 1),
            change(|t| t.cache_line_bytes += 1),
            change(|t| t.threads += 1),
        ];
        all.extend(Isa::ALL.map(CpuTarget::generic));
        let targets: HashSet<Target> = all.into_iter().map(Target::Cpu).collect();
        let keys: HashSet<String> = targets.iter().map(|t| target_key(t).text()).collect();
        assert_eq!(keys.len(), targets.len(), "{keys:?}");
    }

    #[test]
    fn the_host_runs_its_target_and_tuning_asks_for_no_instruction() {
        let machine = Machine::host();
        let target = machine.target(3);
        assert_eq!(target.threads(), 3);
        check_target(&build::kernel_target(&target)).unwrap();
        let plain = Machine {
            tune_cpu: None,
            ..machine
        };
        let plain = plain.target(3);
        assert_eq!(target.level(), plain.level());
        assert_eq!(target.features(), plain.features());
    }
}
