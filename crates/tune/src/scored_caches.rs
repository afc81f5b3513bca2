//! The caches that a static score counts lines of: those of the processor whose cycles count.
//!
//! They are no part of a target, so no key of a record has them. Readers of machine code are told
//! them ([`build::ReadOptions::levels`]).

use crate::machine;
use analysis::CacheLevel;
use ir::Target;

/// Caches of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caches {
    /// Of the machine that this runs on, whose sizes the target has.
    Host([CacheLevel; 3]),
    /// Of a core that [`analysis::core`] knows.
    Core([CacheLevel; 3]),
    /// The target's, as nobody knows the processor's.
    Target([CacheLevel; 3]),
}

impl Caches {
    /// Of the processor whose cycles count, by LLVM's name.
    pub fn of(cpu: &str, target: &Target) -> Caches {
        // The usual processor of a target may stand for a host that LLVM has no name of.
        let own = llvm::scoring_cpu(target) == cpu || llvm::host_cpu().as_deref() == Some(cpu);
        Caches::with(cpu, target, machine::ways(target).filter(|_| own))
    }

    /// `ways` are the host's, if both the target and the processor are.
    fn with(cpu: &str, target: &Target, ways: Option<[Option<u64>; 3]>) -> Caches {
        let Target::Cpu(facts) = target;
        let levels = analysis::levels(facts);
        if let Some(ways) = ways {
            return Caches::Host(std::array::from_fn(|i| CacheLevel {
                ways: ways[i].unwrap_or(levels[i].ways),
                ..levels[i]
            }));
        }
        let architecture = |c: &&analysis::Core| target.triple().starts_with(c.architecture);
        match analysis::core(cpu).filter(architecture) {
            Some(core) => Caches::Core(core.data()),
            None => Caches::Target(levels),
        }
    }

    pub fn levels(self) -> [CacheLevel; 3] {
        match self {
            Caches::Host(levels) | Caches::Core(levels) | Caches::Target(levels) => levels,
        }
    }
}

/// What people have to know of the caches of a score; none if they are the processor's own.
pub fn warning(cpu: &str, target: &Target) -> Option<String> {
    matches!(Caches::of(cpu, target), Caches::Target(_)).then(|| {
        format!(
            "warning: the caches of {cpu} are not known, so scores count lines of the caches of {}",
            target.name()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::{CpuTarget, Isa};

    fn kib(levels: [CacheLevel; 3]) -> [(u64, u64); 3] {
        levels.map(|l| (l.bytes >> 10, l.ways))
    }

    #[test]
    fn a_core_that_is_named_has_its_own_caches() {
        let target = Target::generic(Isa::AArch64Neon);
        let of = |cpu| kib(Caches::with(cpu, &target, None).levels());
        assert_eq!(of("cortex-a72"), [(32, 2), (1024, 16), (1024, 16)]);
        assert_eq!(of("neoverse-v2"), [(64, 4), (2048, 8), (32768, 16)]);
        let of = |cpu| Caches::with(cpu, &Target::generic(Isa::RiscV64Rvv), None);
        assert_eq!(kib(of("spacemit-x60").levels())[0], (32, 4));
        // No core of this architecture.
        assert!(matches!(of("cortex-a72"), Caches::Target(_)));
    }

    #[test]
    fn a_core_without_known_caches_has_the_targets_and_that_is_said() {
        let target = Target::generic(Isa::AArch64Neon);
        let Target::Cpu(facts) = &target;
        let found = Caches::of("exynos-m3", &target);
        assert_eq!(found, Caches::Target(analysis::levels(facts)));
        let said = warning("exynos-m3", &target).expect("a warning");
        assert!(said.contains("exynos-m3") && said.contains("aarch64-neon"));
        assert_eq!(warning("neoverse-v2", &target), None);
    }

    #[test]
    fn the_host_has_its_own_ways_whatever_its_core_is() {
        let target = Target::Cpu(CpuTarget {
            l1_bytes: 48 << 10,
            ..CpuTarget::generic(Isa::X86Avx512)
        });
        let ways = Some([Some(12), None, Some(11)]);
        let found = Caches::with("znver4", &target, ways);
        let Target::Cpu(facts) = &target;
        let usual = analysis::levels(facts);
        let expected = [(48, 12), (facts.l2_bytes >> 10, usual[1].ways)];
        assert_eq!(kib(found.levels())[..2], expected);
        assert_eq!(found.levels()[2].ways, 11);
        assert!(matches!(found, Caches::Host(_)));
    }

    #[test]
    fn scores_of_this_machine_count_its_caches() {
        let target = machine::Machine::host().target(1);
        let found = Caches::of(&llvm::scoring_cpu(&target), &target);
        assert!(matches!(found, Caches::Host(_)), "{found:?}");
        let Target::Cpu(facts) = &target;
        let bytes = found.levels().map(|l| l.bytes);
        assert_eq!(bytes, [facts.l1_bytes, facts.l2_bytes, facts.llc_bytes]);
        // Another processor's cycles come with its caches.
        let other = match llvm::host_cpu().as_deref() {
            Some("znver2") => "znver3",
            _ => "znver2",
        };
        if cfg!(target_arch = "x86_64") {
            let core = analysis::core(other).expect("in the table");
            assert_eq!(Caches::of(other, &target), Caches::Core(core.data()));
        }
    }
}
