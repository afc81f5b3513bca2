//! Caches of named processors.

use crate::cache::{CacheSetting, Geometry};

/// A processor: its name, the instruction set of its code, and its caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub name: &'static str,
    /// How the target triples of its code begin.
    pub architecture: &'static str,
    pub caches: CacheSetting,
}

/// A cache of so many KiB and ways.
const fn kib(kib: u64, ways: u64) -> Geometry {
    Geometry {
        sets: kib * 1024 / crate::cache::LINE / ways,
        ways,
    }
}

/// The three processors of the simulators' paper (Table I), and processors of today. Shares of a
/// last-level cache are those of the smallest unit that is sold: eight cores of Zen 4, 32 MiB.
pub fn cpus() -> Vec<Cpu> {
    let cpu = |name, architecture, l1d, l1i, shared: &[Geometry]| Cpu {
        name,
        architecture,
        caches: CacheSetting {
            l1d,
            l1i,
            shared: shared.to_vec(),
            inclusive: false,
        },
    };
    vec![
        cpu(
            "ryzen-5800x",
            "x86_64",
            kib(32, 8),
            kib(32, 8),
            &[kib(512, 8), kib(32768, 16)],
        ),
        cpu(
            "cortex-a72",
            "aarch64",
            kib(32, 2),
            kib(48, 3),
            &[kib(1024, 16)],
        ),
        cpu(
            "sifive-u74",
            "riscv64",
            kib(32, 8),
            kib(32, 8),
            &[kib(2048, 16)],
        ),
        cpu(
            "epyc-zen4",
            "x86_64",
            kib(32, 8),
            kib(32, 8),
            &[kib(1024, 8), kib(32768, 16)],
        ),
        cpu(
            "neoverse-v2",
            "aarch64",
            kib(64, 4),
            kib(64, 4),
            &[kib(2048, 8), kib(32768, 16)],
        ),
        cpu(
            "spacemit-x60",
            "riscv64",
            kib(32, 4),
            kib(32, 4),
            &[kib(512, 16)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_one_has_these_sets() {
        let of = |name| {
            cpus()
                .into_iter()
                .find(|c| c.name == name)
                .map(|c| c.caches)
        };
        let sets = |c: CacheSetting| {
            [
                vec![c.l1d.sets, c.l1i.sets],
                c.shared.iter().map(|g| g.sets).collect(),
            ]
            .concat()
        };
        assert_eq!(of("ryzen-5800x").map(sets), Some(vec![64, 64, 1024, 32768]));
        assert_eq!(of("cortex-a72").map(sets), Some(vec![256, 256, 1024]));
        assert_eq!(of("sifive-u74").map(sets), Some(vec![64, 64, 2048]));
    }
}
