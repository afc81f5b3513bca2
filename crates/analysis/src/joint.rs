//! Joint parsing of flat code and machine code (Tuna, Algorithm 1): the loops of
//! both are matched, and every instruction gets a count.
//!
//! A machine loop is the flat loop whose id the branch back carries; nesting and the
//! constant that the branch compares with confirm it. Extents give trip counts,
//! conditions give counts of statements, and the flow of control spreads both over
//! the blocks. What no id or count decides is named, never dropped.

use crate::classes::{Class, moves_by_stack, moves_memory};
use crate::executions::Executions;
use crate::graph::{Graph, MachineLoop};
use crate::paths::{Known, Paths, paths};
use crate::pipeline::{Cycles, cycles};
use crate::regions::{Region, regions};
use llvm::{Control, Instruction, MachineFunction, SchedulingModel};
use lower::flat::{AccessId, AccessInfo, BufferPlace, Code, FlatLoopId};
use std::collections::{BTreeSet, HashMap};

/// What runs in one call of an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    pub model: SchedulingModel,
    pub functions: Vec<FunctionReport>,
    /// Of each flat loop, by id.
    pub fates: Vec<Fate>,
    /// How often what is executed is executed.
    pub executions: Executions,
}

/// What became of a flat loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Matched(LoopMatch),
    /// It runs once or never, so it has no branch back.
    NoLoop,
    /// Of the other entry.
    OtherEntry,
    /// No machine loop has its id, or several have.
    Unmatched,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopMatch {
    /// Indices into [`Analysis::functions`] and the loops of its graph.
    pub function: usize,
    pub machine: usize,
    /// Whether the loops around both agree.
    pub nested_alike: bool,
    /// Whether the constant that ends the machine loop agrees with the extent, if there is one.
    pub bound_agrees: Option<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FunctionReport {
    pub name: String,
    /// The parallel loop that the function runs a part of, if it is made for one.
    pub parallel: Option<FlatLoopId>,
    pub calls: f64,
    pub bytes: u32,
    pub graph: Graph,
    /// Of each loop of the graph.
    pub ids: Vec<Option<FlatLoopId>>,
    pub blocks: Vec<BlockReport>,
    /// Blocks whose count nothing decides: paths through them are as good as others.
    pub guessed: Vec<usize>,
    /// Blocks whose stores or loops are on no path of an iteration that has them, or on the path
    /// of one that does not.
    pub broken: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BlockReport {
    /// Bytes from the start of the function, and of its instructions.
    pub offset: u32,
    pub bytes: u32,
    pub runs: f64,
    /// Bounds of the runs, which differ where nothing decides them.
    pub least: f64,
    pub most: f64,
    /// Of one run.
    pub counts: Counts,
    pub cycles: Cycles,
}

/// Numbers of instructions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    classes: [f64; Class::ALL.len()],
    /// Instructions that read memory, and that write it.
    pub loads: f64,
    pub stores: f64,
    /// Instructions of any class in loops that store what no register holds, or load it again.
    pub spills: f64,
}

impl Counts {
    pub fn of(instructions: &[Instruction]) -> Counts {
        let mut counts = Counts::default();
        for i in instructions {
            let class = Class::of(i);
            counts.classes[class as usize] += 1.0;
            if class != Class::Prefetch {
                let [loads, stores] = moves_memory(i);
                counts.loads += f64::from(u8::from(loads));
                counts.stores += f64::from(u8::from(stores));
            }
        }
        counts
    }

    pub fn of_class(&self, class: Class) -> f64 {
        self.classes[class as usize]
    }

    pub fn instructions(&self) -> f64 {
        self.classes.iter().sum()
    }

    /// Adds `times` as much as `other`.
    pub fn add(&mut self, other: &Counts, times: f64) {
        for (sum, n) in self.classes.iter_mut().zip(other.classes) {
            *sum += times * n;
        }
        self.loads += times * other.loads;
        self.stores += times * other.stores;
        self.spills += times * other.spills;
    }
}

/// One entry of a kernel, and how it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// `kernel` or `prepare`.
    pub name: &'a str,
    /// Parts that a parallel loop is divided into.
    pub threads: u32,
}

/// Analyses an entry of an object that was compiled from `code` with identity.
pub fn analyse(
    code: &Code,
    functions: &[MachineFunction],
    model: &SchedulingModel,
    entry: Entry<'_>,
) -> Analysis {
    let executions = Executions::of(code);
    let body = match entry.name {
        "prepare" => &code.prepare,
        _ => &code.kernel,
    };
    let mut fates = Vec::new();
    for (info, id) in code.loops.iter().zip(0..) {
        fates.push(match () {
            () if info.prepare != (entry.name == "prepare") => Fate::OtherEntry,
            () if info.extent <= 1 || executions.begins(id) == 0.0 => Fate::NoLoop,
            () => Fate::Unmatched,
        });
    }
    let mut joint = Joint {
        code,
        executions,
        regions: regions(body),
        entry,
        fates,
        found: vec![],
    };
    for f in functions {
        if let Some(calls) = joint.calls(&f.name) {
            joint.function(f, calls, model);
        }
    }
    Analysis {
        model: model.clone(),
        functions: joint.found,
        fates: joint.fates,
        executions: joint.executions,
    }
}

impl Analysis {
    /// Of a flat loop, all of them.
    pub fn iterations(&self, code: &Code, id: FlatLoopId) -> f64 {
        self.executions.begins(id) * code.loops[id as usize].extent as f64
    }

    /// Of all functions.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for b in self.functions.iter().flat_map(|f| &f.blocks) {
            sum.add(&b.counts, b.runs);
        }
        sum
    }

    /// Of all functions on one core: each block run alone, and each repeated.
    pub fn cycles(&self) -> Cycles {
        let blocks = self.functions.iter().flat_map(|f| &f.blocks);
        let sum = |of: fn(&Cycles) -> f64| blocks.clone().map(|b| b.runs * of(&b.cycles)).sum();
        Cycles {
            alone: sum(|c| c.alone),
            repeated: sum(|c| c.repeated),
        }
    }

    /// Machine loops that no flat loop was found for: function, and offset of the header.
    pub fn unknown_loops(&self) -> Vec<(&str, u32)> {
        let of = |f: &'_ FunctionReport| -> Vec<u32> {
            let loops = f.graph.loops.iter().zip(&f.ids);
            let unknown = loops.filter(|(_, id)| id.is_none());
            unknown.map(|(l, _)| f.blocks[l.header].offset).collect()
        };
        let all = self.functions.iter();
        all.flat_map(|f| of(f).into_iter().map(|at| (f.name.as_str(), at)))
            .collect()
    }
}

struct Joint<'a> {
    code: &'a Code,
    executions: Executions,
    regions: HashMap<Option<FlatLoopId>, Region>,
    entry: Entry<'a>,
    fates: Vec<Fate>,
    found: Vec<FunctionReport>,
}

impl Joint<'_> {
    /// The parallel loop that a function runs a part of; names are those of `llvm`'s emitter.
    fn parallel(&self, function: &str) -> Option<FlatLoopId> {
        let rest = function.strip_prefix(self.entry.name)?.strip_prefix(".L")?;
        let id = rest.strip_suffix(".task").unwrap_or(rest).parse().ok()?;
        self.code
            .loops
            .get(id as usize)
            .filter(|l| l.parallel)
            .map(|_| id)
    }

    /// How often a function is called; `None` if it is not part of the entry.
    fn calls(&self, function: &str) -> Option<f64> {
        if let Some(id) = self.parallel(function) {
            let extent = self.code.loops[id as usize].extent;
            let parts = extent.min(i64::from(self.entry.threads.max(1)));
            return Some(self.executions.begins(id) * parts as f64);
        }
        let rest = function.strip_prefix(self.entry.name)?;
        ["", ".code"].contains(&rest).then_some(1.0)
    }

    fn function(&mut self, f: &MachineFunction, calls: f64, model: &SchedulingModel) {
        let graph = Graph::of(&f.instructions);
        let ids = self.ids(f, &graph);
        let parallel = self.parallel(&f.name);
        let Paths {
            runs,
            guessed,
            broken,
        } = paths(Known {
            code: self.code,
            executions: &self.executions,
            regions: &self.regions,
            graph: &graph,
            instructions: f,
            ids: &ids,
            parallel,
            calls,
        });
        let blocks = graph.blocks.iter().zip(&runs).enumerate();
        let blocks = blocks.map(|(n, (b, runs))| {
            let own = &f.instructions[b.instructions.clone()];
            let mut counts = Counts::of(own);
            if graph.innermost(n).is_some() {
                counts.spills = own.iter().filter(|i| self.spills(i)).count() as f64;
            }
            BlockReport {
                offset: own[0].offset,
                bytes: own.iter().map(|i| i.size).sum(),
                runs: runs.expected,
                least: runs.least,
                most: runs.most,
                counts,
                cycles: cycles(own, model),
            }
        });
        let blocks: Vec<BlockReport> = blocks.collect();
        self.found.push(FunctionReport {
            name: f.name.clone(),
            parallel,
            calls,
            bytes: blocks.iter().map(|b| b.bytes).sum(),
            blocks,
            graph,
            ids,
            guessed,
            broken,
        });
    }

    /// Whether an instruction of a loop uses the stack for other than an array of flat code.
    fn spills(&self, i: &Instruction) -> bool {
        let access = |id: AccessId| self.code.accesses.get(id as usize);
        let place = |a: &AccessInfo| self.code.buffers[a.buffer.index()].place;
        let array = i.of_access.and_then(access).map(place) == Some(BufferPlace::Stack);
        moves_by_stack(i) && !array
    }

    /// The flat loop of each machine loop; fates are updated.
    fn ids(&mut self, f: &MachineFunction, graph: &Graph) -> Vec<Option<FlatLoopId>> {
        let open = |id: &FlatLoopId| self.fates.get(*id as usize) == Some(&Fate::Unmatched);
        let named = graph
            .loops
            .iter()
            .map(|l| id_of_branch_back(f, graph, l).filter(open));
        let named: Vec<Option<FlatLoopId>> = named.collect();
        let unique = |id: &FlatLoopId| named.iter().filter(|n| **n == Some(*id)).count() == 1;
        let mut ids: Vec<_> = named.iter().map(|id| id.filter(unique)).collect();
        for (machine, id) in ids.iter_mut().enumerate().filter(|(_, id)| id.is_none()) {
            let all = bookkeeping(f, graph, machine).into_iter();
            let rest = all.filter(|i| open(i) && !named.contains(&Some(*i)));
            let rest: BTreeSet<FlatLoopId> = rest.collect();
            *id = rest.first().copied().filter(|_| rest.len() == 1);
        }
        for (machine, id) in ids.iter().enumerate() {
            let Some(id) = *id else {
                continue;
            };
            let parent = graph.loops[machine].parent.and_then(|p| ids[p]);
            let extent = self.code.loops[id as usize].extent;
            // Of a parallel loop an argument says where a part ends.
            let constant = !self.code.loops[id as usize].parallel;
            let bound = bound(f, graph, &graph.loops[machine]).filter(|_| constant);
            self.fates[id as usize] = Fate::Matched(LoopMatch {
                function: self.found.len(),
                machine,
                nested_alike: parent == self.around(id),
                // Of the next value or of this one, by `<` or by `<=`.
                bound_agrees: bound.map(|b| (extent - 2..=extent).contains(&b)),
            });
        }
        ids
    }

    /// The nearest loop around that machine code should have in the same function.
    fn around(&self, id: FlatLoopId) -> Option<FlatLoopId> {
        let info = &self.code.loops[id as usize];
        if info.parallel {
            return None;
        }
        let parent = info.parent?;
        match self.fates[parent as usize] {
            Fate::NoLoop if self.code.loops[parent as usize].parallel => None,
            Fate::NoLoop => self.around(parent),
            _ => Some(parent),
        }
    }
}

fn last<'f>(f: &'f MachineFunction, graph: &Graph, block: usize) -> &'f Instruction {
    &f.instructions[graph.blocks[block].instructions.end - 1]
}

/// The flat loop that the branches back to the header are part of.
fn id_of_branch_back(f: &MachineFunction, graph: &Graph, l: &MachineLoop) -> Option<FlatLoopId> {
    let of = |block: &usize| {
        let i = last(f, graph, *block);
        let branches = matches!(i.control, Control::Branch(_) | Control::Jump(_));
        i.in_loop.filter(|_| branches && i.of_access.is_none())
    };
    let mut ids = l.latches.iter().map(of);
    let first = ids.next()??;
    ids.all(|id| id == Some(first)).then_some(first)
}

/// The flat loops whose bookkeeping is in a loop and in none of its inner loops.
fn bookkeeping(f: &MachineFunction, graph: &Graph, machine: usize) -> Vec<FlatLoopId> {
    let blocks = graph.loops[machine].blocks.iter();
    let own = blocks.filter(|b| graph.innermost(**b) == Some(machine));
    let instructions = own.flat_map(|b| &f.instructions[graph.blocks[*b].instructions.clone()]);
    let ids = instructions.filter(|i| i.of_access.is_none());
    ids.filter_map(|i| i.in_loop).collect()
}

/// The constant that the branch back compares with.
fn bound(f: &MachineFunction, graph: &Graph, l: &MachineLoop) -> Option<i64> {
    let [latch] = l.latches[..] else {
        return None;
    };
    let range = graph.blocks[latch].instructions.clone();
    let branch = last(f, graph, latch);
    let uses = |i: &Instruction, by: &Instruction| {
        let units = i.definitions.iter().map(|d| d.unit);
        units
            .into_iter()
            .any(|unit| by.uses.iter().any(|u| u.unit == unit))
    };
    // Flags are set right before; without flags the branch itself compares.
    let body = &f.instructions[range.start..range.end - 1];
    let setter = body.iter().rev().find(|i| uses(i, branch));
    let compare = match setter {
        Some(i) if sets_flags(i, branch) => i,
        _ => branch,
    };
    if let Some(value) = compare.immediate.filter(|_| !std::ptr::eq(compare, branch)) {
        return Some(value);
    }
    constant_operand(f, graph, l, compare)
}

/// Whether all that a branch reads, instruction pointers aside, comes from one comparison.
fn sets_flags(i: &Instruction, branch: &Instruction) -> bool {
    branch
        .uses
        .iter()
        .all(|u| i.definitions.iter().any(|d| d.unit == u.unit))
}

/// The value of an operand that is a constant since before the loop.
fn constant_operand(
    f: &MachineFunction,
    graph: &Graph,
    l: &MachineLoop,
    compare: &Instruction,
) -> Option<i64> {
    let mut definitions: HashMap<u32, Vec<usize>> = HashMap::new();
    for (i, x) in f.instructions.iter().enumerate() {
        for d in &x.definitions {
            definitions.entry(d.unit).or_default().push(i);
        }
    }
    let inside = |at: usize| {
        l.blocks
            .iter()
            .any(|b| graph.blocks[*b].instructions.contains(&at))
    };
    let start = graph.blocks[l.header].instructions.start;
    compare.uses.iter().find_map(|u| {
        let all = definitions.get(&u.unit)?;
        if all.iter().any(|at| inside(*at)) {
            return None;
        }
        let before = all.iter().rev().find(|at| **at < start)?;
        let i = &f.instructions[*before];
        i.immediate.filter(|_| i.uses.is_empty() && !i.loads)
    })
}
