//! The simulator of our own: counts from the machine code, addresses from the flat code.
//!
//! Nothing decodes or executes instructions of the target. The machine code tells how often each
//! instruction runs ([`analysis::analyse`]), and which accesses of the flat code it still makes:
//! instructions carry their ids. [`Addresses`] makes these accesses in their order, and [`Caches`] tells which find
//! their lines. What the machine code accesses beside them, such as spilled registers, is counted as hits
//! of the first level.

use crate::addresses::{Addresses, DependsOnData, Made};
use crate::cache::{Access, CacheSetting, Caches, LINE};
use crate::statistics::Statistics;
use analysis::{Analysis, Class};
use llvm::MachineFunction;
use lower::flat::{AccessId, Code, FlatLoopId, Stmt, Store};
use std::collections::HashMap;

/// A kernel: its flat code, its machine code with identity, and what was found in both.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    pub code: &'a Code,
    pub functions: &'a [MachineFunction],
    pub analysis: &'a Analysis,
}

/// What one call on one core does, with empty caches at its begin.
///
/// # Errors
/// If data decide which addresses are accessed.
pub fn simulate(kernel: Kernel<'_>, setting: &CacheSetting) -> Result<Statistics, DependsOnData> {
    let counts = kernel.analysis.counts();
    let addresses = Addresses::of(kernel.code, &made(kernel))?;
    let mut caches = Caches::new(setting);
    fetches(kernel, setting, &mut caches);
    addresses.run(&mut caches);
    let [data, _] = caches.first();
    let rest = |all: f64, simulated: u64| (all.round() as u64).saturating_sub(simulated);
    caches.count_hits(rest(counts.loads, data.read.accesses()), Access::Read);
    caches.count_hits(rest(counts.stores, data.write.accesses()), Access::Write);
    Ok(Statistics {
        instructions: counts.instructions(),
        loads: counts.loads,
        stores: counts.stores,
        branches: counts.of_class(Class::Control),
        ..Statistics::of_caches(&caches, concat!("tunesmith ", env!("CARGO_PKG_VERSION")))
    })
}

/// How the machine code makes the accesses of the flat code.
fn made(kernel: Kernel<'_>) -> HashMap<AccessId, Made> {
    let runs = Runs::of(kernel);
    let mut statements = Vec::new();
    let mut loops = Vec::new();
    gather(&kernel.code.kernel, &mut loops, &mut statements);
    let mut made = HashMap::new();
    for (s, around) in &statements {
        for id in &s.loads {
            made.extend(
                runs.made(kernel, *id, runs.loads.get(id), around)
                    .map(|m| (*id, m)),
            );
        }
        made.extend(
            runs.made(kernel, s.id, runs.stores.get(&s.id), around)
                .map(|m| (s.id, m)),
        );
    }
    // An instruction that computes and loads at once has the id of its statement. Its load is one that
    // no other instruction makes, for this statement or for an equal load of another.
    let mut known: Vec<_> = Vec::new();
    for (s, _) in &statements {
        let loads = s.loads_with_ids().into_iter();
        known.extend(
            loads
                .filter(|(id, ..)| made.contains_key(id))
                .map(|(_, b, at)| (b, at.clone())),
        );
    }
    let known: std::collections::HashSet<_> = known.into_iter().collect();
    for (s, around) in &statements {
        let Some(folded) = runs.loads.get(&s.id) else {
            continue;
        };
        let unseen = s.loads_with_ids().into_iter();
        let unseen = unseen
            .filter(|(id, b, at)| !made.contains_key(id) && !known.contains(&(*b, (*at).clone())));
        let unseen: Vec<AccessId> = unseen.map(|(id, ..)| id).collect();
        let each = folded / unseen.len().max(1) as f64;
        for id in unseen {
            made.extend(runs.made(kernel, id, Some(&each), around).map(|m| (id, m)));
        }
    }
    made
}

/// Statements of the kernel with the loops around them, outermost first.
fn gather<'c>(
    stmts: &'c [Stmt],
    loops: &mut Vec<FlatLoopId>,
    found: &mut Vec<(&'c Store, Vec<FlatLoopId>)>,
) {
    for s in stmts {
        match s {
            Stmt::Loop(l) => {
                loops.push(l.id);
                gather(&l.body, loops, found);
                loops.pop();
            }
            Stmt::If {
                then, otherwise, ..
            } => {
                gather(then, loops, found);
                gather(otherwise, loops, found);
            }
            Stmt::Store(s) => found.push((s, loops.clone())),
            Stmt::Check { .. } | Stmt::Prefetch { .. } => {}
        }
    }
}

/// How often instructions access memory, by the ids that they carry.
struct Runs {
    loads: HashMap<AccessId, f64>,
    stores: HashMap<AccessId, f64>,
}

impl Runs {
    fn of(kernel: Kernel<'_>) -> Runs {
        let mut all = Runs {
            loads: HashMap::new(),
            stores: HashMap::new(),
        };
        for report in &kernel.analysis.functions {
            let Some(function) = kernel.functions.iter().find(|f| f.name == report.name) else {
                continue;
            };
            for (block, found) in report.graph.blocks.iter().zip(&report.blocks) {
                for i in &function.instructions[block.instructions.clone()] {
                    let Some(id) = i.of_access.filter(|_| Class::of(i) != Class::Prefetch) else {
                        continue;
                    };
                    if i.loads {
                        *all.loads.entry(id).or_default() += found.runs;
                    }
                    if i.stores {
                        *all.stores.entry(id).or_default() += found.runs;
                    }
                }
            }
        }
        all
    }

    /// How an access is made that instructions make so often.
    fn made(
        &self,
        kernel: Kernel<'_>,
        id: AccessId,
        runs: Option<&f64>,
        around: &[FlatLoopId],
    ) -> Option<Made> {
        let executions = &kernel.analysis.executions;
        let iterations = || {
            around
                .last()
                .map_or(1.0, |l| kernel.analysis.iterations(kernel.code, *l))
        };
        let each = runs.filter(|r| **r > 0.0)?
            / executions.of_access(id).unwrap_or_else(iterations).max(1.0);
        let mut made = Made {
            instructions: each.round().max(1.0) as u32,
            hoisted: 0,
        };
        // Loops that together have as many iterations as the access is made too seldom.
        let mut missing = 1.0 / each;
        for l in around.iter().rev() {
            let extent = kernel.code.loops[*l as usize].extent as f64;
            if missing < 0.75 * extent || missing < 1.5 {
                break;
            }
            missing /= extent;
            made.hoisted += 1;
        }
        Some(made)
    }
}

/// Counts the instruction fetches. Code comes in once. A loop that is larger than the cache comes again in each
/// iteration, as its first lines were replaced by its last ones.
fn fetches(kernel: Kernel<'_>, setting: &CacheSetting, caches: &mut Caches) {
    let mut at = 0;
    let mut again = 0.0;
    for f in &kernel.analysis.functions {
        for line in 0..u64::from(f.bytes).div_ceil(LINE) {
            caches.line(CODE / LINE + at + line, Access::Fetch);
        }
        at += u64::from(f.bytes).div_ceil(LINE);
        for l in f.graph.loops.iter().filter(|l| l.parent.is_none()) {
            let bytes: u64 = l.blocks.iter().map(|b| u64::from(f.blocks[*b].bytes)).sum();
            if bytes > setting.l1i.bytes() {
                again += f.blocks[l.header].runs * bytes.div_ceil(LINE) as f64;
            }
        }
    }
    caches.fetch_again(again as u64);
    let [_, code] = caches.first();
    let all = kernel.analysis.counts().instructions() as u64;
    caches.count_hits(all.saturating_sub(code.read.accesses()), Access::Fetch);
}

/// Where the code lies: far from the data.
const CODE: u64 = 1 << 46;
