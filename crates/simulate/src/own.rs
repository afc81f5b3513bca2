//! The simulator of our own: counts from the machine code, addresses from the flat code.
//!
//! Nothing decodes or executes instructions of the target. The machine code tells how often each
//! instruction runs ([`analysis::analyse`]), and which accesses of the flat code it still makes:
//! instructions carry their ids. [`Addresses`] makes these accesses in their order, and [`Caches`] tells which find
//! their lines. Lines of spilled registers are used once or twice in an iteration ([`Frame`]). What the machine
//! code accesses beside these is counted as hits of the first level.

use crate::addresses::{Addresses, EVENTS, Made, NotFollowed};
use crate::cache::{Access, CacheSetting, Caches, Geometry, LINE};
use crate::frame::{Frame, spilled};
use crate::statistics::{Sampled, Statistics, miss_costs};
use analysis::{Analysis, Class, MachineLoop};
use ir::{BufferId, Expr};
use llvm::MachineFunction;
use lower::flat::{AccessId, BufferPlace, Code, FlatLoopId, Stmt, Store};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Standard deviations on each side of an interval that holds 95% of a normal distribution.
const DEVIATIONS: f64 = 1.96;

/// A kernel: its flat code, its machine code with identity, and what was found in both.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    pub code: &'a Code,
    pub functions: &'a [MachineFunction],
    pub analysis: &'a Analysis,
}

/// What one call on one core does, with empty caches at its begin. With `one_in`, about one in so many iterations of
/// the outer loops stands for all of them ([`Sampled`]).
///
/// # Errors
/// If the addresses are not followed ([`NotFollowed`]).
pub fn simulate(
    kernel: Kernel<'_>,
    setting: &CacheSetting,
    one_in: Option<u32>,
) -> Result<Statistics, NotFollowed> {
    let counts = kernel.analysis.counts();
    let frame = Frame::of(kernel);
    let addresses = Addresses::of(kernel.code, &made(kernel), &frame)?;
    let code_lines = |bytes: u32| u64::from(bytes).div_ceil(LINE);
    let functions = kernel.analysis.functions.iter();
    let others = [functions.map(|f| code_lines(f.bytes)).sum(), frame.span()];
    let mut caches = Caches::of_lines(setting, addresses.data_lines(), &others);
    fetches(kernel, setting, &mut caches);
    let sampled = match one_in {
        None => {
            addresses.run(&mut caches)?;
            None
        }
        Some(one_in) => Some(sample(&addresses, &mut caches, setting, one_in)?),
    };
    let [data, _] = caches.first();
    let rest = |all: f64, simulated: u64| (all.round() as u64).saturating_sub(simulated);
    caches.count_hits(rest(counts.loads, data.read.accesses()), Access::Read);
    caches.count_hits(rest(counts.stores, data.write.accesses()), Access::Write);
    Ok(Statistics {
        instructions: counts.instructions(),
        loads: counts.loads,
        stores: counts.stores,
        branches: counts.of_class(Class::Control),
        sampled,
        ..Statistics::of_caches(&caches, concat!("tunesmith ", env!("CARGO_PKG_VERSION")))
    })
}

/// Walks a share of the iterations, and has the caches count for all.
///
/// In a level that has room for all lines and replaced none, the surplus of new lines was there already. In other levels
/// nobody knows: it is in the margin.
fn sample(
    addresses: &Addresses,
    caches: &mut Caches,
    setting: &CacheSetting,
    one_in: u32,
) -> Result<Sampled, NotFollowed> {
    let levels: Vec<Geometry> = [&[setting.l1d], &setting.shared[..]].concat();
    let costs = miss_costs(setting.shared.len());
    let is_miss = |event: &str| event.ends_with("misses");
    let of_level = |cost: &f64| EVENTS.map(|e| if is_miss(e) { *cost } else { 0.0 });
    let weights: Vec<f64> = costs.iter().flat_map(of_level).collect();
    let mut found = addresses.sample(caches, one_in, &weights)?;
    let mut sampled = Sampled {
        walked: found.walked,
        margins: BTreeMap::new(),
    };
    let margin = |variance: f64| DEVIATIONS * variance.sqrt();
    let mut of_sum = margin(found.variance_of_sum);
    let rows = found.counts.chunks_mut(EVENTS.len());
    for (n, (((row, variances), level), cost)) in rows
        .zip(found.variances.chunks(EVENTS.len()))
        .zip(&levels)
        .zip(&costs)
        .enumerate()
    {
        let [_, read, replaced, _, write, also_replaced] = row else {
            unreachable!("a count for each event")
        };
        let lines = level.bytes() / LINE;
        let keeps_all = *replaced + *also_replaced == 0.0 && found.lines <= lines;
        let misses = (*read + *write).max(1.0);
        let surplus = found.surplus.min(misses);
        let shares = [*read / misses, *write / misses];
        if keeps_all {
            *read -= surplus * shares[0];
            *write -= surplus * shares[1];
        } else {
            of_sum += surplus * cost;
        }
        let name = match n {
            0 => "l1d".to_string(),
            _ => format!("l{}", n + 1),
        };
        for (at, (event, variance)) in EVENTS.iter().zip(variances).enumerate() {
            let unknown = match is_miss(event) && !keeps_all {
                true => surplus * shares[at / 3],
                false => 0.0,
            };
            let margin = margin(*variance) + unknown;
            sampled.margins.insert(format!("{name}.{event}"), margin);
        }
    }
    sampled.margins.insert("weighted".into(), of_sum);
    caches.count_data(&found.counts);
    Ok(sampled)
}

/// How the machine code makes the accesses of the flat code.
fn made(kernel: Kernel<'_>) -> HashMap<AccessId, Made> {
    let mut runs = Runs::of(kernel);
    let mut statements = Vec::new();
    gather(&kernel.code.kernel, &mut vec![], &mut statements);
    let mut found = Found {
        kernel,
        made: HashMap::new(),
        read: HashMap::new(),
    };
    for (s, around) in &statements {
        for load in s.loads_with_ids() {
            found.load(load, runs.loads.get(&load.0), around);
        }
        found.add(s.id, runs.stores.get(&s.id), around);
    }
    // An instruction that computes and loads at once has the id of its statement.
    for (s, around) in &statements {
        let open = found.open(s, around);
        let each = runs.loads.get(&s.id).map(|n| n / open.len() as f64);
        open.into_iter()
            .for_each(|load| found.load(load, each.as_ref(), around));
    }
    // One that was moved out of both sides of a condition has none.
    for (s, around) in &statements {
        let within = around.iter().rev().find(|l| runs.matched.contains(l));
        let Some(left) = within.and_then(|l| runs.anonymous.get_mut(l)) else {
            continue;
        };
        for load in found.open(s, around) {
            let executions = found.executions(load.0, around);
            if *left >= executions {
                *left -= executions;
                found.load(load, Some(&executions), around);
            }
        }
    }
    found.made
}

/// A load of a statement: its id, its buffer and its offset.
type Load<'c> = (AccessId, BufferId, &'c Expr);

/// Accesses whose instructions are found.
struct Found<'k> {
    kernel: Kernel<'k>,
    made: HashMap<AccessId, Made>,
    /// What is loaded, and where. An equal load needs no instruction of its own, if one of these is made as often.
    read: HashMap<(BufferId, Expr), Vec<Place>>,
}

/// Where a load of the flat code is.
#[derive(Clone, Copy)]
struct Place {
    innermost: Option<FlatLoopId>,
    executions: f64,
}

impl Place {
    /// Whether a load here leaves an equal load elsewhere without an instruction. In one loop, a load under a condition
    /// does so only for loads that are made no more often.
    fn stands_for(self, other: Place) -> bool {
        self.innermost != other.innermost || self.executions >= 0.99 * other.executions
    }
}

impl Found<'_> {
    /// Loads of a statement from memory that no instruction was found for.
    fn open<'c>(&self, s: &'c Store, around: &[FlatLoopId]) -> Vec<Load<'c>> {
        let mut open: Vec<Load<'c>> = Vec::new();
        for (id, buffer, at) in s.loads_with_ids() {
            let place = self.kernel.code.buffers[buffer.index()].place;
            let here = self.place(id, around);
            let equal = self.read.get(&(buffer, at.clone()));
            let covered = equal.is_some_and(|all| all.iter().any(|p| p.stands_for(here)));
            let known = self.made.contains_key(&id) || covered;
            let again = open.iter().any(|o| (o.1, o.2) == (buffer, at));
            if place != BufferPlace::Register && !known && !again {
                open.push((id, buffer, at));
            }
        }
        open
    }

    fn load(&mut self, (id, buffer, at): Load<'_>, runs: Option<&f64>, around: &[FlatLoopId]) {
        if self.add(id, runs, around) {
            let place = self.place(id, around);
            let equal = self.read.entry((buffer, at.clone())).or_default();
            equal.push(place);
        }
    }

    fn place(&self, id: AccessId, around: &[FlatLoopId]) -> Place {
        Place {
            innermost: around.last().copied(),
            executions: self.executions(id, around),
        }
    }

    /// Adds an access that instructions make so often; whether they do at all.
    fn add(&mut self, id: AccessId, runs: Option<&f64>, around: &[FlatLoopId]) -> bool {
        let Some(runs) = runs.filter(|r| **r > 0.0) else {
            return false;
        };
        let each = runs / self.executions(id, around).max(1.0);
        let mut made = Made {
            instructions: each.round().max(1.0) as u32,
            hoisted: 0,
        };
        // Loops that together have as many iterations as the access is made too seldom.
        let mut missing = 1.0 / each;
        for l in around.iter().rev() {
            let extent = self.kernel.code.loops[*l as usize].extent as f64;
            if missing < 0.75 * extent || missing < 1.5 {
                break;
            }
            missing /= extent;
            made.hoisted += 1;
        }
        self.made.insert(id, made);
        true
    }

    /// How often an access would be made where the flat code has it.
    fn executions(&self, id: AccessId, around: &[FlatLoopId]) -> f64 {
        let analysis = self.kernel.analysis;
        let iterations = || {
            around
                .last()
                .map_or(1.0, |l| analysis.iterations(self.kernel.code, *l))
        };
        analysis.executions.of_access(id).unwrap_or_else(iterations)
    }
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

/// How often instructions access memory.
#[derive(Default)]
struct Runs {
    /// By the ids that they carry.
    loads: HashMap<AccessId, f64>,
    stores: HashMap<AccessId, f64>,
    /// Of loads without one, by the loop that they are in.
    anonymous: HashMap<FlatLoopId, f64>,
    /// Loops that the machine code has.
    matched: HashSet<FlatLoopId>,
}

impl Runs {
    fn of(kernel: Kernel<'_>) -> Runs {
        let mut all = Runs::default();
        for report in &kernel.analysis.functions {
            let Some(function) = kernel.functions.iter().find(|f| f.name == report.name) else {
                continue;
            };
            all.matched.extend(report.ids.iter().flatten());
            for (n, (block, found)) in report.graph.blocks.iter().zip(&report.blocks).enumerate() {
                let within = report.graph.innermost(n).and_then(|l| report.ids[l]);
                for i in &function.instructions[block.instructions.clone()] {
                    // What a class is costs more than all else here.
                    let accesses = i.loads || i.stores;
                    let is_data = accesses && spilled(kernel.code, i).is_none();
                    if !is_data || matches!(Class::of(i), Class::Prefetch) {
                        continue;
                    }
                    match (i.of_access, within) {
                        (Some(id), _) if i.loads => *all.loads.entry(id).or_default() += found.runs,
                        (None, Some(l)) if i.loads && !i.uses_stack => {
                            *all.anonymous.entry(l).or_default() += found.runs;
                        }
                        _ => {}
                    }
                    if let Some(id) = i.of_access.filter(|_| i.stores) {
                        *all.stores.entry(id).or_default() += found.runs;
                    }
                }
            }
        }
        all
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
        let bytes = |l: &MachineLoop| -> u64 {
            l.blocks.iter().map(|b| u64::from(f.blocks[*b].bytes)).sum()
        };
        let larger = |l: &MachineLoop| bytes(l) > setting.l1i.bytes();
        for (at, l) in f.graph.loops.iter().enumerate().filter(|(_, l)| larger(l)) {
            let inner = f
                .graph
                .loops
                .iter()
                .any(|i| i.parent == Some(at) && larger(i));
            // What an inner loop replaces is counted there.
            if !inner {
                let comes_again = (f.blocks[l.header].runs - f.calls).max(0.0);
                again += comes_again * bytes(l).div_ceil(LINE) as f64;
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
