//! Halves that one element is read of for all lanes.
//!
//! A vector of halves is loaded and converted in about the time of a load. A single element
//! takes as many instructions, where one of f32 would be an operand of the multiply-add. So
//! what is read so again and again is converted once, into a copy in f32, and templates see
//! a program that reads the copy.

use super::Templates;
use crate::draft::Draft;
use crate::nests::{Nest, nests};
use crate::space::SketchStep;
use ir::{Block, BufferId, DType, Program, Role, VarId};

/// A program that reads copies in f32, and the steps that make it.
pub struct Widened {
    pub program: Program,
    steps: Vec<SketchStep>,
}

impl Widened {
    /// `None` if no operand is to be converted.
    pub fn of(program: &Program) -> Option<Widened> {
        let mut d = Draft::new("", program);
        for n in nests(program).iter().filter(|n| n.is_reduction) {
            for buffer in operands(program, n) {
                d.widen(n.block, buffer).ok()?;
            }
        }
        let program = d.program().clone();
        let steps = d.finish().ok()?.steps;
        (!steps.is_empty()).then_some(Widened { program, steps })
    }

    /// Sketches for the program before these steps.
    pub fn before(&self, mut found: Templates) -> Templates {
        for sketch in &mut found.sketches {
            sketch.steps.splice(0..0, self.steps.iter().cloned());
        }
        found
    }
}

/// Operands of halves that a block reads one element of for all lanes.
fn operands(program: &Program, n: &Nest) -> Vec<BufferId> {
    let block = program.block(n.block);
    let Some(lane) = lane(program, block, n) else {
        return vec![];
    };
    let points: i64 = block.iters.iter().map(|i| i.extent).product();
    let mut found: Vec<BufferId> = Vec::new();
    for (buffer, _) in block.loads() {
        let info = program.buffer(buffer);
        let half = matches!(info.dtype, DType::F16 | DType::BF16) && info.role == Role::Input;
        let elements: i64 = info.shape.iter().product();
        // Each point is a lane of a conversion.
        let again = points > elements;
        let loads = block.loads();
        let mut own = loads.iter().filter(|(b, _)| *b == buffer);
        let broadcast = own.all(|(_, at)| !at.iter().any(|e| e.uses_var(lane)));
        if half && again && broadcast && !found.contains(&buffer) {
            found.push(buffer);
        }
    }
    found
}

/// The variable along which the results of a block are in vectors.
fn lane(program: &Program, block: &Block, n: &Nest) -> Option<VarId> {
    let lane = n.spatial.iter().rfind(|l| l.extent > 1)?;
    let mut iters = block.iters.iter();
    iters
        .find(|i| program.var(i.var).name == lane.axis)
        .map(|i| i.var)
}
