//! What reading a candidate tells, as numbers: of one call of its kernel.
//!
//! The numbers are facts of the code, not of time. [`crate::Score`] makes a cost of them.

use crate::classes::Class;
use crate::cores::CacheLevel;
use crate::joint::{Analysis, FunctionReport};
use crate::movement::{Accessed, Cache};
use ir::CpuTarget;
use lower::flat::{BufferPlace, Code, FlatBuffer, Stmt};
use serde::{Deserialize, Serialize};

/// Bytes of the pages that an operating system maps memory by (the usual size).
const PAGE: u64 = 4096;

/// Pages whose lines come at full speed: entries of the first-level buffer of address translations (64 to 96 on server cores).
/// Streams of prefetched lines end with their page as well.
const PAGES_AT_HAND: u64 = 64;

/// Fewest ways of the first-level, second-level and last-level cache: of AMD's cores from Zen to Zen 4 (their
/// optimization manuals). They are of caches of which nobody says the ways.
const WAYS: [u64; 3] = [8, 8, 16];

/// Facts that one call's costs follow from. Counts are of the thread that does most, unless a
/// field says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Features {
    /// Cache lines moved into the first-level, second-level and last-level cache (Tuna,
    /// Algorithm 2); the last one by all threads.
    pub lines: [f64; 3],
    /// Pages of memory that are touched at all, by all threads.
    pub pages: f64,
    /// Pages that are touched and were not among the last [`PAGES_AT_HAND`].
    #[serde(default)]
    pub page_visits: f64,
    /// Of the lines moved into the first-level cache, those that stores bring into few sets, one after
    /// the other ([`crate::Movement::crowded`]).
    #[serde(default)]
    pub crowded: f64,
    /// Cache lines of the constants that the kernel takes, prepared ones included.
    #[serde(default)]
    pub constants: f64,
    /// Parallel loops that begin: each wakes the threads and waits for them.
    pub forks: f64,
    /// What the machine code tells; none where only loops were read.
    pub machine: Option<MachineFeatures>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineFeatures {
    /// LLVM's name of the scheduling model that the cycles are of.
    pub model: String,
    /// Cycles if each block runs alone (the paper's), and if it is one of many runs.
    pub alone: f64,
    pub repeated: f64,
    /// Instructions of each class, in the order of [`Class::ALL`].
    pub classes: Vec<f64>,
    pub loads: f64,
    pub stores: f64,
    /// Instructions in loops that move a value to or from the stack since no register holds it.
    pub spills: f64,
    /// Bytes of code in blocks that run more than once.
    pub hot_bytes: f64,
    /// Blocks whose counts lie between bounds ([`crate::BlockReport::least`]), or disagree.
    pub doubtful: u32,
    pub blocks: u32,
}

/// The sizes of a target's caches, with the fewest ways that are usual.
pub fn levels(target: &CpuTarget) -> [CacheLevel; 3] {
    let bytes = [target.l1_bytes, target.l2_bytes, target.llc_bytes];
    std::array::from_fn(|i| CacheLevel {
        bytes: bytes[i],
        ways: WAYS[i],
    })
}

/// Caches for code of a target, the last one shared if there are threads to share it. The sets of each are a power of
/// two, so there may be more ways than `levels` say.
pub fn caches(target: &CpuTarget, levels: [CacheLevel; 3]) -> [Cache; 3] {
    let line_bytes = target.cache_line_bytes;
    let cache = |level: CacheLevel, shared: bool| {
        let bytes = level.bytes;
        let sets = (bytes / (level.ways * line_bytes).max(1)).max(1);
        let sets = 1 << sets.ilog2();
        Cache {
            bytes,
            line_bytes,
            shared,
            ways: Some((bytes / (sets * line_bytes).max(1)).max(1)),
        }
    };
    let [l1, l2, last] = levels;
    [
        cache(l1, false),
        cache(l2, false),
        cache(last, target.threads > 1),
    ]
}

/// Of the loops alone, with these caches: needs no code generator.
pub fn loops(code: &Code, target: &CpuTarget, levels: [CacheLevel; 3]) -> Features {
    let [l1, l2, last] = caches(target, levels);
    let accessed = Accessed::of(code, &code.kernel);
    let moved = match last.shared {
        true => {
            let [l1, l2] = accessed.movements([l1, l2], target.threads);
            let [last] = accessed.movements([last], target.threads);
            [l1, l2, last]
        }
        false => accessed.movements([l1, l2, last], target.threads),
    };
    let at_hand = Cache {
        bytes: PAGE * PAGES_AT_HAND,
        line_bytes: PAGE,
        shared: false,
        ways: Some(PAGES_AT_HAND),
    };
    let [visits] = accessed.movements([at_hand], target.threads);
    let mut forks = 0.0;
    count_forks(&code.kernel, 1.0, &mut forks);
    Features {
        lines: moved.map(|m| m.lines),
        pages: accessed.footprint(PAGE),
        page_visits: visits.lines,
        crowded: moved[0].crowded,
        constants: constant_bytes(code) / target.cache_line_bytes as f64,
        forks: if target.threads > 1 { forks } else { 0.0 },
        machine: None,
    }
}

fn constant_bytes(code: &Code) -> f64 {
    let params = code.params.iter().map(|b| &code.buffers[b.index()]);
    let constant =
        |b: &&FlatBuffer| matches!(b.place, BufferPlace::Constant | BufferPlace::Prepared);
    let bytes = |b: &FlatBuffer| b.elements as f64 * b.dtype.size() as f64;
    params.filter(constant).map(bytes).sum()
}

fn count_forks(stmts: &[Stmt], runs: f64, forks: &mut f64) {
    for s in stmts {
        match s {
            Stmt::Loop(l) if l.parallel => *forks += runs,
            Stmt::Loop(l) => count_forks(&l.body, runs * l.extent as f64, forks),
            Stmt::If {
                then, otherwise, ..
            } => {
                count_forks(then, runs, forks);
                count_forks(otherwise, runs, forks);
            }
            Stmt::Store(_) | Stmt::Check { .. } | Stmt::Prefetch { .. } => {}
        }
    }
}

/// Of the machine code, as `found` by [`crate::analyse`] for as many threads as the target has.
pub fn machine(code: &Code, found: &Analysis, target: &CpuTarget) -> MachineFeatures {
    let mut of = MachineFeatures {
        model: found.model.name.clone().unwrap_or_default(),
        classes: vec![0.0; Class::ALL.len()],
        ..MachineFeatures::default()
    };
    for f in &found.functions {
        let share = share(code, f, target.threads);
        for b in &f.blocks {
            let runs = b.runs * share;
            of.alone += runs * b.cycles.alone;
            of.repeated += runs * b.cycles.repeated;
            for (sum, class) in of.classes.iter_mut().zip(Class::ALL) {
                *sum += runs * b.counts.of_class(class);
            }
            of.loads += runs * b.counts.loads;
            of.stores += runs * b.counts.stores;
            of.spills += runs * b.counts.spills;
            if b.runs > 1.0 {
                of.hot_bytes += f64::from(b.bytes);
            }
        }
        of.blocks += f.blocks.len() as u32;
        of.doubtful += (f.guessed.len() + f.broken.len()) as u32;
    }
    of
}

/// The share of a function's runs that the thread with most of them has.
fn share(code: &Code, f: &FunctionReport, threads: u32) -> f64 {
    let Some(id) = f.parallel else {
        return 1.0;
    };
    let extent = code.loops[id as usize].extent.max(1) as f64;
    (extent / f64::from(threads.max(1))).ceil() / extent
}

impl MachineFeatures {
    pub fn of_class(&self, class: Class) -> f64 {
        self.classes.get(class as usize).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_have_a_power_of_two_of_sets() {
        let target = |l1_kib: u64| CpuTarget {
            l1_bytes: l1_kib << 10,
            l2_bytes: 1 << 20,
            llc_bytes: 96 << 20,
            ..CpuTarget::generic(ir::Isa::X86Avx2)
        };
        let of = |target: CpuTarget| caches(&target, levels(&target));
        let ways = |l1_kib| of(target(l1_kib)).map(|c| c.ways);
        assert_eq!(ways(32), [Some(8), Some(8), Some(24)]);
        // 64 sets, as a page has lines.
        assert_eq!(ways(48), [Some(12), Some(8), Some(24)]);
        // What is known counts.
        let two = CacheLevel {
            bytes: 32 << 10,
            ways: 2,
        };
        let [l1, _, _] = caches(&target(32), [two; 3]);
        assert_eq!((l1.ways, l1.sets()), (Some(2), 256));
    }
}
