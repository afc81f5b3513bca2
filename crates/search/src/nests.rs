//! The nests of a program that nothing was scheduled of: what templates
//! recognise programs by.

use ir::names::{AxisName, BlockName};
use ir::{BlockId, IterKind, LoopId, Node, Program};

/// One block of an unscheduled program with its own loops.
#[derive(Clone, Debug)]
pub struct Nest {
    pub block: BlockId,
    /// The block's.
    pub name: String,
    /// Outermost first.
    pub spatial: Vec<AxisLoop>,
    pub reduce: Vec<AxisLoop>,
    /// Those in which the block goes on: see [`IterKind::Ordered`].
    pub ordered: Vec<AxisLoop>,
    pub writes: usize,
    pub is_reduction: bool,
}

/// The loop over one axis of a block.
#[derive(Clone, Debug)]
pub struct AxisLoop {
    pub id: LoopId,
    /// The name of the block's iteration variable.
    pub axis: String,
    pub extent: i64,
}

/// The nests of an unscheduled program, in execution order.
pub fn nests(p: &Program) -> Vec<Nest> {
    p.block_ids().into_iter().map(|b| nest(p, b)).collect()
}

fn nest(p: &Program, b: BlockId) -> Nest {
    let block = p.block(b);
    let (mut spatial, mut reduce, mut ordered) = (Vec::new(), Vec::new(), Vec::new());
    for id in p.path_to(Node::Block(b)).unwrap_or_default() {
        let l = p.loop_(id);
        let mut iters = block.iters.iter().filter(|i| i.binding.uses_var(l.var));
        let iter = iters.next();
        let kind = iter.map_or(IterKind::Spatial, |i| i.kind);
        let found = AxisLoop {
            id,
            axis: iter.map_or_else(String::new, |i| p.var(i.var).name.clone()),
            extent: l.extent,
        };
        match kind {
            IterKind::Reduce => reduce.push(found),
            IterKind::Spatial => spatial.push(found),
            IterKind::Ordered => ordered.push(found),
        }
    }
    Nest {
        block: b,
        name: block.name.clone(),
        spatial,
        reduce,
        ordered,
        writes: block.writes.len(),
        is_reduction: block.is_reduction(),
    }
}

impl Nest {
    pub fn is(&self, name: BlockName) -> bool {
        self.name == name.as_str()
    }

    /// The loop over an axis.
    pub fn axis(&self, axis: AxisName) -> Option<&AxisLoop> {
        self.spatial.iter().chain(&self.reduce).find(|l| l.is(axis))
    }

    pub fn extent(&self, axis: AxisName) -> Option<i64> {
        self.axis(axis).map(|l| l.extent)
    }

    /// The extents of the spatial axes.
    pub fn shape(&self) -> Vec<i64> {
        self.spatial.iter().map(|l| l.extent).collect()
    }
}

impl AxisLoop {
    pub fn is(&self, axis: AxisName) -> bool {
        self.axis == axis.as_str()
    }
}

/// The ids of loops, in their order.
pub fn ids(loops: &[AxisLoop]) -> Vec<LoopId> {
    loops.iter().map(|l| l.id).collect()
}
