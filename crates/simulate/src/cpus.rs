//! Caches of named processors.

use crate::cache::{CacheSetting, Geometry};
use analysis::{CORES, CacheLevel, Core};

/// A processor: its name, the instruction set of its code, and its caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub name: &'static str,
    /// How the target triples of its code begin.
    pub architecture: &'static str,
    pub caches: CacheSetting,
}

fn geometry(level: CacheLevel) -> Geometry {
    Geometry {
        sets: level.bytes / crate::cache::LINE / level.ways,
        ways: level.ways,
    }
}

/// Those that a score counts caches of ([`analysis::CORES`]), by the names of products where they have some.
pub fn cpus() -> Vec<Cpu> {
    let cpu = |core: &Core| Cpu {
        name: core.product.unwrap_or(core.name),
        architecture: core.architecture,
        caches: CacheSetting {
            l1d: geometry(core.l1d),
            l1i: geometry(core.l1i),
            shared: core.outer.iter().copied().map(geometry).collect(),
            inclusive: false,
        },
    };
    CORES.iter().map(cpu).collect()
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
        // By LLVM's names where no product has one.
        assert!(of("znver3").is_none() && of("epyc-zen4").is_some());
        assert!(of("neoverse-n1").is_some());
    }
}
