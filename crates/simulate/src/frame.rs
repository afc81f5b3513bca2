//! What the machine code keeps on the stack beside arrays of the flat code: spilled registers.
//!
//! Each is in a line that is used again and again, so it takes a place of its set from the lines of buffers.

use crate::cache::LINE;
use crate::own::Kernel;
use analysis::FunctionReport;
use llvm::{Address, Instruction};
use lower::flat::{BufferPlace, Code, FlatLoopId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The end of the stack: a page boundary far from the data, as executables have one.
const END: i64 = 1 << 45;
/// Bytes behind a frame: saved registers and the frames of the callers, about.
const CALLERS: i64 = 128;
/// What stack pointers are multiples of, on all targets.
const ALIGNMENT: i64 = 16;

/// Lines of the frame by the loop that uses them in each iteration, outside of its inner loops.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    loops: HashMap<FlatLoopId, BTreeMap<i64, Uses>>,
}

/// How often instructions use a line in an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Uses {
    pub loads: f64,
    pub stores: f64,
}

impl Frame {
    pub fn of(kernel: Kernel<'_>) -> Frame {
        let mut frame = Frame::default();
        for report in &kernel.analysis.functions {
            if let Some(f) = kernel.functions.iter().find(|f| f.name == report.name) {
                frame.function(kernel.code, report, &f.instructions);
            }
        }
        frame
    }

    /// Addresses of the lines that a loop uses in each iteration.
    pub(crate) fn lines(&self, id: FlatLoopId) -> impl Iterator<Item = (i64, Uses)> {
        let lines = self.loops.get(&id).into_iter().flatten();
        lines.map(|(line, uses)| (line * LINE as i64, *uses))
    }

    /// How many lines lie between the first and the last line that a loop uses, both included.
    pub(crate) fn span(&self) -> u64 {
        let lines = || self.loops.values().flat_map(|l| l.keys().copied());
        let span = lines().max().zip(lines().min());
        span.map_or(0, |(last, first)| (last - first) as u64 + 1)
    }

    /// How many lines loops use.
    pub(crate) fn len(&self) -> u64 {
        let lines: BTreeSet<i64> = self
            .loops
            .values()
            .flat_map(|l| l.keys().copied())
            .collect();
        lines.len() as u64
    }

    fn function(&mut self, code: &Code, report: &FunctionReport, all: &[Instruction]) {
        let ends = all.iter().filter_map(|i| spilled(code, i));
        let Some(end) = ends.map(|a| a.displacement + i64::from(a.bytes)).max() else {
            return;
        };
        let pointer = (END - CALLERS - end).div_euclid(ALIGNMENT) * ALIGNMENT;
        let line = |at: i64| (pointer + at).div_euclid(LINE as i64);
        for (n, (block, found)) in report.graph.blocks.iter().zip(&report.blocks).enumerate() {
            let loops = &report.graph.loops;
            let mut around = report.graph.innermost(n);
            while let Some(l) = around.filter(|l| report.ids[*l].is_none()) {
                around = loops[l].parent;
            }
            let Some((l, id)) = around.and_then(|l| Some((l, report.ids[l]?))) else {
                continue;
            };
            let each = found.runs / report.blocks[loops[l].header].runs.max(1.0);
            for i in &all[block.instructions.clone()] {
                let Some(a) = spilled(code, i) else {
                    continue;
                };
                let last = a.displacement + i64::from(a.bytes.max(1)) - 1;
                for line in line(a.displacement)..=line(last) {
                    let lines = self.loops.entry(id).or_default();
                    let uses = lines.entry(line).or_default();
                    uses.loads += if i.loads { each } else { 0.0 };
                    uses.stores += if i.stores { each } else { 0.0 };
                }
            }
        }
    }
}

/// Where an instruction accesses the stack, if it is for other than an array of the flat code.
pub(crate) fn spilled(code: &Code, i: &Instruction) -> Option<Address> {
    let access = i.of_access.and_then(|id| code.accesses.get(id as usize));
    let array = access.is_some_and(|a| code.buffers[a.buffer.index()].place == BufferPlace::Stack);
    i.address
        .filter(|a| i.uses_stack && (i.loads || i.stores) && a.index.is_none() && !array)
}
