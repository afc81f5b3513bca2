//! Cycles of a block of instructions, by list scheduling on LLVM's model.
//!
//! Instructions are taken in order and begin as early as their operands, the
//! units they occupy and the width of the machine allow. A result is waited for. A
//! register that is read or written before makes wait for the earlier instruction's
//! begin, as in the paper (Tuna, section III-A3); for the steady state only on machines
//! that begin in order, since others rename registers. Machines that begin in order also write
//! results in order, but for those that LLVM's model exempts. On other machines an
//! instruction enters only if the queues of its units have room. Loads are taken to hit the first
//! cache. A load of what the block stored waits for the store, as far as addresses of equal
//! registers and constants tell; the data then takes as long as from the first cache.

use llvm::{Address, Definition, Instruction, RegisterUnit, SchedulingModel};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Instructions that the steady state is looked for in, about.
const SIMULATED: usize = 2048;
/// Repetitions, the bounds of how many.
const FEWEST: usize = 4;
const MOST: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cycles {
    /// From the first begin to the last result of one run alone: the paper's cost.
    pub alone: f64,
    /// For one run among many, where each begins before the last has ended.
    pub repeated: f64,
}

pub fn cycles(block: &[Instruction], model: &SchedulingModel) -> Cycles {
    if block.is_empty() {
        return Cycles {
            alone: 0.0,
            repeated: 0.0,
        };
    }
    let runs = (SIMULATED / block.len()).clamp(FEWEST, MOST);
    let stores = stores_before_loads(block);
    let alone = ends(block, &stores, Machine::new(model, false), 1);
    let renaming = Machine::new(model, model.micro_op_buffer > 1);
    let ends = ends(block, &stores, renaming, runs);
    let half = runs / 2;
    Cycles {
        alone: alone[0] as f64,
        repeated: (ends[runs - 1] - ends[half - 1]) as f64 / (runs - half) as f64,
    }
}

/// When the last result so far is there, after each of some runs one after the other. `stores`
/// are those that loads wait for.
fn ends(
    block: &[Instruction],
    stores: &[Option<usize>],
    mut machine: Machine<'_>,
    runs: usize,
) -> Vec<u64> {
    // When what each store wrote last can be loaded.
    let mut stored = vec![0; block.len()];
    let run = |_| {
        for (at, i) in block.iter().enumerate() {
            let begin = machine.issue(i, stores[at].map_or(0, |s| stored[s]));
            stored[at] = begin + u64::from(if i.loads { i.latency.max(1) } else { 1 });
        }
        machine.last_result
    };
    (0..runs).map(run).collect()
}

/// For each instruction the last store of a byte that it loads, if the address tells. A store that
/// does not come before it is one of the run before.
fn stores_before_loads(block: &[Instruction]) -> Vec<Option<usize>> {
    let mut found = vec![None; block.len()];
    let units = |a: &Address| [a.base, a.index].into_iter().flatten();
    let addresses = block.iter().filter(|i| i.stores).filter_map(|i| i.address);
    let mut of_addresses: Vec<RegisterUnit> = addresses.flat_map(|a| units(&a)).collect();
    of_addresses.sort_unstable();
    of_addresses.dedup();
    let mut stores: Vec<(usize, Address)> = Vec::new();
    for (at, i) in block.iter().enumerate().chain(block.iter().enumerate()) {
        if let Some(address) = i.address {
            let mut latest = stores.iter().rev();
            if i.loads {
                found[at] = latest.find(|s| s.1.overlaps(&address)).map(|s| s.0);
            }
            if i.stores {
                stores.retain(|s| s.1 != address);
                stores.push((at, address));
            }
        }
        for d in &i.definitions {
            if of_addresses.binary_search(&d.unit).is_ok() {
                stores.retain(|s| units(&s.1).all(|u| u != d.unit));
            }
        }
    }
    found
}

/// Something of each register unit. Units are numbered from 0.
struct ByUnit<T>(Vec<T>);

impl<T: Copy + Default> ByUnit<T> {
    fn of(&self, unit: RegisterUnit) -> T {
        self.0.get(unit as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, unit: RegisterUnit, value: T) {
        if self.0.len() <= unit as usize {
            self.0.resize(unit as usize + 1, T::default());
        }
        self.0[unit as usize] = value;
    }
}

struct Machine<'a> {
    model: &'a SchedulingModel,
    /// Whether a register that is written anew is another one.
    renames: bool,
    /// Cycle in which the next instruction may enter, and micro-operations that did.
    enter: u64,
    entered: u32,
    /// For each register unit, who wrote it last, and when the last reader began.
    written: ByUnit<Option<(u64, Definition)>>,
    read: ByUnit<u64>,
    /// Units in use, for each resource by cycle.
    used: Vec<Vec<u32>>,
    /// For each resource with a queue, when the instructions in it begin.
    queues: Vec<BinaryHeap<Reverse<u64>>>,
    /// When the micro-operations that still count against the buffer leave it, in order.
    leaving: std::collections::VecDeque<u64>,
    last_result: u64,
    /// The last result of instructions whose results are written in order.
    last_in_order: u64,
}

impl<'a> Machine<'a> {
    fn new(model: &'a SchedulingModel, renames: bool) -> Machine<'a> {
        Machine {
            model,
            renames,
            enter: 0,
            entered: 0,
            written: ByUnit(vec![]),
            read: ByUnit(vec![]),
            used: vec![vec![]; model.resources.len()],
            queues: vec![BinaryHeap::new(); model.resources.len()],
            leaving: Default::default(),
            last_result: 0,
            last_in_order: 0,
        }
    }

    /// The cycle in which an instruction of so many micro-operations enters.
    fn enters(&mut self, i: &Instruction, micro_ops: u32) -> u64 {
        let buffer = self.model.micro_op_buffer as usize;
        while buffer > 1 && self.leaving.len() + micro_ops as usize > buffer {
            let Some(left) = self.leaving.pop_front() else {
                break;
            };
            self.advance_to(left);
        }
        for b in &i.busy {
            let resource = b.resource as usize;
            let size = self.model.resources[resource].queue.unwrap_or(u32::MAX);
            while self.queues[resource].len() >= size as usize {
                let Some(Reverse(begun)) = self.queues[resource].pop() else {
                    break;
                };
                self.advance_to(begun);
            }
        }
        if self.entered > 0 && self.entered + micro_ops > self.model.issue_width {
            self.advance_to(self.enter + 1);
        }
        self.enter
    }

    /// Counts what enters in this cycle, and in those after it if it is more than one cycle's worth.
    fn count(&mut self, micro_ops: u32) {
        self.entered += micro_ops;
        while self.entered > self.model.issue_width {
            self.enter += 1;
            self.entered -= self.model.issue_width;
        }
    }

    /// As late as no result is written before one of an instruction that began earlier.
    fn written_in_order(&self, i: &Instruction) -> u64 {
        let first = i.definitions.iter().map(|d| d.latency).min();
        let first = u64::from(first.unwrap_or(i.latency));
        self.last_in_order.saturating_sub(first)
    }

    fn advance_to(&mut self, cycle: u64) {
        if cycle > self.enter {
            (self.enter, self.entered) = (cycle, 0);
        }
    }

    /// The cycle in which an instruction begins, `earliest` or later.
    fn issue(&mut self, i: &Instruction, earliest: u64) -> u64 {
        let micro_ops = i.micro_ops.max(1);
        let in_order = self.model.micro_op_buffer <= 1;
        if in_order && i.begins_cycle && self.entered > 0 {
            self.advance_to(self.enter + 1);
        }
        let mut ready = self.enters(i, micro_ops).max(earliest);
        if in_order && !i.retires_in_any_order {
            ready = ready.max(self.written_in_order(i));
        }
        for u in &i.uses {
            if let Some((begun, definition)) = &self.written.of(u.unit) {
                ready = ready.max(begun + u64::from(u.wait(definition)));
            }
        }
        for d in i.definitions.iter().filter(|_| !self.renames) {
            let earlier = self.written.of(d.unit).map_or(0, |w| w.0);
            ready = ready.max(earlier).max(self.read.of(d.unit));
        }
        let begin = self.begin(i, ready);
        // In order: nothing later begins before.
        if in_order {
            self.advance_to(begin);
        }
        self.count(micro_ops);
        if in_order && i.ends_cycle {
            self.entered = self.model.issue_width;
        }
        if !i.retires_in_any_order {
            self.last_in_order = self.last_in_order.max(begin + u64::from(i.latency));
        }
        for u in &i.uses {
            let read = self.read.of(u.unit).max(begin);
            self.read.set(u.unit, read);
        }
        for d in &i.definitions {
            self.written.set(d.unit, Some((begin, *d)));
            self.read.set(d.unit, 0);
        }
        let result = begin + u64::from(i.latency.max(1));
        self.last_result = self.last_result.max(result);
        let leaves = result.max(self.leaving.back().copied().unwrap_or(0));
        self.leaving
            .extend(std::iter::repeat_n(leaves, micro_ops as usize));
        let buffer = self.model.micro_op_buffer as usize;
        while self.leaving.len() > buffer.max(1) {
            self.leaving.pop_front();
        }
        begin
    }

    /// The first cycle from `ready` on in which all units are free, which are then taken.
    fn begin(&mut self, i: &Instruction, ready: u64) -> u64 {
        let mut begin = ready;
        while let Some(cycle) = self.occupied(i, begin) {
            begin = cycle;
        }
        for b in &i.busy {
            if self.model.resources[b.resource as usize].queue.is_some() {
                self.queues[b.resource as usize].push(Reverse(begin));
            }
            let used = &mut self.used[b.resource as usize];
            let (from, to) = (
                begin as usize + b.from as usize,
                begin as usize + b.to as usize,
            );
            if used.len() < to {
                used.resize(to, 0);
            }
            used[from.min(to)..to].iter_mut().for_each(|n| *n += 1);
        }
        begin
    }

    /// A later cycle to try if a unit is not free for an instruction that begins at `begin`.
    fn occupied(&self, i: &Instruction, begin: u64) -> Option<u64> {
        for b in &i.busy {
            let units = self.model.resources[b.resource as usize].units.max(1);
            let used = &self.used[b.resource as usize];
            for after in b.from..b.to {
                let at = begin as usize + after as usize;
                if used.get(at).is_some_and(|n| *n >= units) {
                    return Some(begin + 1);
                }
            }
        }
        None
    }
}
