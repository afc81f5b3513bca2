//! Caches of processors by name: those that LLVM has scheduling models of, by its names.

use serde::{Deserialize, Serialize};

/// A cache as one core sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheLevel {
    pub bytes: u64,
    pub ways: u64,
}

/// A processor's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// LLVM's name.
    pub name: &'static str,
    /// A product with this core, if the simulator calls it by that.
    pub product: Option<&'static str>,
    /// How the target triples of its code begin.
    pub architecture: &'static str,
    /// Of data and of code.
    pub l1d: CacheLevel,
    pub l1i: CacheLevel,
    /// From the second level to the last one.
    pub outer: &'static [CacheLevel],
}

impl Core {
    /// The caches of data: the first, the second and the last level, where the last may be the second.
    pub fn data(&self) -> [CacheLevel; 3] {
        let last = self.outer.last().unwrap_or(&self.l1d);
        [self.l1d, *self.outer.first().unwrap_or(last), *last]
    }
}

/// The core of a name: LLVM's, or a product's.
pub fn core(name: &str) -> Option<&'static Core> {
    let named = |c: &&Core| c.name == name || c.product == Some(name);
    CORES.iter().find(named)
}

/// A cache of so many KiB and ways.
const fn kib(kib: u64, ways: u64) -> CacheLevel {
    CacheLevel {
        bytes: kib << 10,
        ways,
    }
}

const fn of(
    name: &'static str,
    architecture: &'static str,
    l1d: CacheLevel,
    l1i: CacheLevel,
    outer: &'static [CacheLevel],
) -> Core {
    Core {
        name,
        product: None,
        architecture,
        l1d,
        l1i,
        outer,
    }
}

const fn sold_as(product: &'static str, core: Core) -> Core {
    Core {
        product: Some(product),
        ..core
    }
}

const X86: &str = "x86_64";
const ARM: &str = "aarch64";
const RISCV: &str = "riscv64";

/// The three processors of the simulators' paper (Table I), and processors of today, from their makers' manuals. Shares of a
/// last-level cache are those of the smallest unit that is sold: eight cores of Zen 4, 32 MiB; of eight cores of Intel's
/// servers. Where a maker leaves sizes to its customers, they are those of a usual server or board.
pub const CORES: &[Core] = &[
    sold_as(
        "ryzen-5800x",
        of(
            "znver3",
            X86,
            kib(32, 8),
            kib(32, 8),
            &[kib(512, 8), kib(32768, 16)],
        ),
    ),
    of("cortex-a72", ARM, kib(32, 2), kib(48, 3), &[kib(1024, 16)]),
    of(
        "sifive-u74",
        RISCV,
        kib(32, 8),
        kib(32, 8),
        &[kib(2048, 16)],
    ),
    sold_as(
        "epyc-zen4",
        of(
            "znver4",
            X86,
            kib(32, 8),
            kib(32, 8),
            &[kib(1024, 8), kib(32768, 16)],
        ),
    ),
    of(
        "neoverse-v2",
        ARM,
        kib(64, 4),
        kib(64, 4),
        &[kib(2048, 8), kib(32768, 16)],
    ),
    of(
        "spacemit-x60",
        RISCV,
        kib(32, 4),
        kib(32, 4),
        &[kib(512, 16)],
    ),
    of(
        "znver1",
        X86,
        kib(32, 8),
        kib(64, 4),
        &[kib(512, 8), kib(8192, 16)],
    ),
    of(
        "znver2",
        X86,
        kib(32, 8),
        kib(32, 8),
        &[kib(512, 8), kib(16384, 16)],
    ),
    of(
        "znver5",
        X86,
        kib(48, 12),
        kib(32, 8),
        &[kib(1024, 16), kib(32768, 16)],
    ),
    of(
        "haswell",
        X86,
        kib(32, 8),
        kib(32, 8),
        &[kib(256, 8), kib(20480, 20)],
    ),
    of(
        "broadwell",
        X86,
        kib(32, 8),
        kib(32, 8),
        &[kib(256, 8), kib(20480, 20)],
    ),
    of(
        "skylake",
        X86,
        kib(32, 8),
        kib(32, 8),
        &[kib(256, 4), kib(8192, 16)],
    ),
    of(
        "skylake-avx512",
        X86,
        kib(32, 8),
        kib(32, 8),
        &[kib(1024, 16), kib(11264, 11)],
    ),
    of(
        "cascadelake",
        X86,
        kib(32, 8),
        kib(32, 8),
        &[kib(1024, 16), kib(11264, 11)],
    ),
    of(
        "icelake-server",
        X86,
        kib(48, 12),
        kib(32, 8),
        &[kib(1280, 20), kib(12288, 12)],
    ),
    of(
        "sapphirerapids",
        X86,
        kib(48, 12),
        kib(32, 8),
        &[kib(2048, 16), kib(15360, 15)],
    ),
    of(
        "graniterapids",
        X86,
        kib(48, 12),
        kib(64, 16),
        &[kib(2048, 16), kib(32768, 16)],
    ),
    of(
        "neoverse-n1",
        ARM,
        kib(64, 4),
        kib(64, 4),
        &[kib(1024, 8), kib(32768, 16)],
    ),
    of(
        "neoverse-n2",
        ARM,
        kib(64, 4),
        kib(64, 4),
        &[kib(1024, 8), kib(32768, 16)],
    ),
    of(
        "neoverse-v1",
        ARM,
        kib(64, 4),
        kib(64, 4),
        &[kib(1024, 8), kib(32768, 16)],
    ),
    of("cortex-a53", ARM, kib(32, 4), kib(32, 2), &[kib(512, 16)]),
    of(
        "cortex-a55",
        ARM,
        kib(32, 4),
        kib(32, 4),
        &[kib(128, 4), kib(1024, 16)],
    ),
    of("cortex-a57", ARM, kib(32, 2), kib(48, 3), &[kib(2048, 16)]),
    of(
        "cortex-a76",
        ARM,
        kib(64, 4),
        kib(64, 4),
        &[kib(512, 8), kib(2048, 16)],
    ),
    of(
        "cortex-a510",
        ARM,
        kib(32, 4),
        kib(32, 4),
        &[kib(256, 8), kib(2048, 16)],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_core_has_a_name_of_its_own_and_caches_that_grow() {
        let mut names = BTreeSet::new();
        for c in CORES {
            assert!(
                [Some(c.name), c.product]
                    .into_iter()
                    .flatten()
                    .all(|n| names.insert(n))
            );
            assert_eq!(core(c.name), Some(c));
            let levels = [&[c.l1d], c.outer].concat();
            assert!(
                levels.windows(2).all(|w| w[0].bytes < w[1].bytes),
                "{}",
                c.name
            );
            for level in [&levels[..], &[c.l1i]].concat() {
                // Sets of whole lines, a power of two.
                let sets = level.bytes / 64 / level.ways;
                assert_eq!(sets * 64 * level.ways, level.bytes, "{}", c.name);
                assert!(sets.is_power_of_two(), "{} {level:?}", c.name);
            }
        }
        assert_eq!(core("ryzen-5800x"), core("znver3"));
        assert_eq!(core("no-such-cpu"), None);
    }

    #[test]
    fn the_last_level_may_be_the_second() {
        let [l1, l2, last] = core("cortex-a72").expect("in the table").data();
        assert_eq!((l1, l2, last), (kib(32, 2), kib(1024, 16), kib(1024, 16)));
    }

    #[test]
    fn llvm_has_a_model_of_every_core() {
        for c in CORES {
            let isas = ir::Isa::ALL.into_iter().rev();
            let isa = isas
                .into_iter()
                .find(|i| i.triple().starts_with(c.architecture));
            let target = ir::Target::generic(isa.expect("a family of the architecture"));
            assert_eq!(
                llvm::check_scoring_cpu(&target, c.name),
                Ok(()),
                "{}",
                c.name
            );
        }
    }
}
