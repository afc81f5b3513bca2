//! Columns of images that the forward pass of a training step keeps for the weight gradient.
//!
//! Owns which layers can keep them, and the tasks of that. A convolution by im2row gathers the windows of its image
//! into a matrix, and multiplies it with the weights. The weight gradient multiplies the same matrix with the
//! gradient of the result. So the two steps are a group of the model, one set of which is: gather and multiply, and
//! later multiply with what was gathered. Each of these three is a task like any other, of which no step of the plan is.
//! Promises that both programs read the same matrix: their gathered values are equal as expressions, or the layer is
//! left out.

use crate::stretches::Stretch;
use graph::WEIGHT_GRADIENT;
use ir::names::MAIN;
use ir::region::program_ranges;
use ir::simplify::simplify;
use ir::{Block, BlockId, BufferId, Expr, ExprKind, Node, Program, Role, VarId};
use plan::{Plan, PlanStep, PlanTensorId};
use schedule::{Step, Trace};
use std::collections::{BTreeMap, HashMap};
use tensor::DType;

/// The algorithm of kernels that gather columns.
const COLUMNS: &str = "columns";

/// Two steps of a plan, the first of which can keep columns for the second.
#[derive(Clone, Debug)]
pub struct Saved {
    pub steps: [usize; 2],
    pub columns: Columns,
    /// What each step calls where columns are kept.
    pub calls: [Vec<Part>; 2],
}

impl Saved {
    /// What a step of the plan calls, if it is one of these two.
    pub fn calls_of(&self, step: usize) -> Option<&[Part]> {
        let at = self.steps.iter().position(|s| *s == step)?;
        Some(&self.calls[at])
    }

    /// The algorithm of a task's kernels in the name of a choice; none where it is their own.
    pub(crate) fn algorithm(&self, task: usize) -> Option<&'static str> {
        (self.calls[0][0].task == task).then_some(COLUMNS)
    }
}

/// The tensor between both steps.
#[derive(Clone, Debug)]
pub struct Columns {
    pub dtype: DType,
    pub shape: Vec<usize>,
}

impl Columns {
    pub fn bytes(&self) -> u64 {
        (self.shape.iter().product::<usize>() * self.dtype.size()) as u64
    }
}

/// A task of the plan that a step may call.
#[derive(Clone, Debug)]
pub struct Part {
    pub task: usize,
    /// In the order of the program's parameters; none is the columns.
    pub operands: Vec<Option<PlanTensorId>>,
}

/// A program whose first block gathers an operand of its sum.
struct Gathered {
    program: Program,
    matrix: BufferId,
    gatherer: BlockId,
}

impl Gathered {
    fn of(program: &Program, operand: BufferId) -> Option<Gathered> {
        let reindex = Step::Reindex {
            block: MAIN.into(),
            buffer: program.buffer(operand).name.clone(),
        };
        let trace = Trace {
            steps: vec![reindex],
            decisions: vec![],
        };
        let gathered = schedule::replay(program, &trace).ok()?;
        let matrix = gathered
            .buffer_ids()
            .find(|b| b.index() == program.buffer_ids().count())?;
        let [gatherer] = gathered.producers(matrix)[..] else {
            return None;
        };
        Some(Gathered {
            program: gathered,
            matrix,
            gatherer,
        })
    }

    fn block(&self) -> &Block {
        self.program.block(self.gatherer)
    }

    /// The program that gathers, or that which reads what was gathered.
    fn part(&self, gathers: bool) -> Option<Program> {
        let mut p = self.program.clone();
        let own = |n: &Node| p.blocks_under(&[*n]).contains(&self.gatherer);
        let body: Vec<Node> = p
            .body
            .iter()
            .copied()
            .filter(|n| own(n) == gathers)
            .collect();
        p.body = body;
        let mut used = Vec::new();
        for b in p.block_ids() {
            used.extend(p.block(b).writes.iter().map(|w| w.buffer));
            used.extend(p.block(b).loads().into_iter().map(|(b, _)| b));
        }
        p.params.retain(|b| used.contains(b));
        let (role, at) = match gathers {
            true => (Role::Output, p.params.len()),
            false => (Role::Input, 0),
        };
        p.buffer_mut(self.matrix).role = role;
        p.params.insert(at, self.matrix);
        // What is not used any more is not printed.
        ir::text::parse(&ir::text::print(&p)).ok()
    }

    /// Lets the program read a matrix that another one gathers of the same operand, if it can.
    fn read(&mut self, other: &Gathered, operands: [BufferId; 2]) -> Option<()> {
        let axes = matched(self, other, operands)?;
        let own: Vec<VarId> = self.block().iters.iter().map(|i| i.var).collect();
        let matrix = self.matrix;
        let read = |indices: &[Expr]| -> Expr {
            let at = |v: VarId| own.iter().position(|o| *o == v).map(|i| indices[i].clone());
            let indices: Vec<Expr> = axes.iter().map(|e| e.substitute(&at)).collect();
            Expr::load(matrix, indices)
        };
        for b in self.program.block_ids() {
            if b != self.gatherer {
                let block = self.program.block_mut(b);
                block.map_statement(|e| {
                    e.rewrite(&mut |e| match e.kind() {
                        ExprKind::Load(b, indices) if *b == matrix => Some(read(indices)),
                        _ => None,
                    })
                });
            }
        }
        let buffer = other.program.buffer(other.matrix);
        self.program
            .buffer_mut(matrix)
            .shape
            .clone_from(&buffer.shape);
        Some(())
    }
}

/// The indices of the one load of a buffer in a value.
fn indices(value: &Expr, of: BufferId) -> Option<Vec<Expr>> {
    let mut found = Vec::new();
    value.visit_loads(&mut |b, i| {
        if b == of {
            found.push(i.to_vec());
        }
    });
    found.dedup();
    match found.len() {
        1 => found.pop(),
        _ => None,
    }
}

/// Where the matrix of `other` has what `own` gathers: an index for each axis, over the axes of `own`.
fn matched(own: &Gathered, other: &Gathered, operands: [BufferId; 2]) -> Option<Vec<Expr>> {
    let (wanted, given) = (&own.block().writes[0].value, &other.block().writes[0].value);
    let [wanted_at, given_at] = [indices(wanted, operands[0])?, indices(given, operands[1])?];
    let shape = &other.program.buffer(operands[1]).shape;
    let extents = |g: &Gathered| -> HashMap<VarId, i64> {
        let iters = g.block().iters.iter();
        iters.map(|i| (i.var, i.extent)).collect()
    };
    let (own_extents, extents) = (extents(own), extents(other));
    let ranges = program_ranges(&own.program);
    let same = |a: &Expr, b: &Expr| simplify(a, &ranges) == simplify(b, &ranges);
    let mut found: BTreeMap<VarId, Expr> = BTreeMap::new();
    for ((given, wanted), size) in given_at.iter().zip(&wanted_at).zip(shape) {
        let vars = given.vars();
        match given.as_var() {
            Some(v) if extents[&v] == *size => _ = found.insert(v, wanted.clone()),
            _ => {
                let assigned = assignments(&vars, &wanted.vars(), [&extents, &own_extents]);
                let fits = |a: &BTreeMap<VarId, Expr>| {
                    same(&given.substitute(&|v| a.get(&v).cloned()), wanted)
                };
                found.extend(assigned.into_iter().find(fits)?);
            }
        }
    }
    let buffers = |e: &Expr| match e.kind() {
        ExprKind::Load(b, i) if *b == operands[1] => Some(Expr::load(operands[0], i.to_vec())),
        _ => None,
    };
    let given = given.rewrite(&mut |e| buffers(e));
    let moved = given.substitute(&|v| found.get(&v).cloned());
    let iters = other.block().iters.iter();
    let axes: Option<Vec<Expr>> = iters.map(|i| found.get(&i.var).cloned()).collect();
    axes.filter(|_| same(&moved, wanted))
}

/// The ways to give each variable another one of the same extent.
fn assignments(
    vars: &[VarId],
    to: &[VarId],
    extents: [&HashMap<VarId, i64>; 2],
) -> Vec<BTreeMap<VarId, Expr>> {
    let Some((first, rest)) = vars.split_first() else {
        return vec![BTreeMap::new()];
    };
    let mut found = Vec::new();
    for (at, v) in to.iter().enumerate() {
        if extents[0].get(first) != extents[1].get(v) {
            continue;
        }
        let left = [&to[..at], &to[at + 1..]].concat();
        for mut more in assignments(rest, &left, extents) {
            more.insert(*first, Expr::var(*v));
            found.push(more);
        }
    }
    found
}

/// The parameter of a step's program that a tensor is bound to.
fn parameter(plan: &Plan, step: &PlanStep, tensor: PlanTensorId) -> Option<BufferId> {
    let at = step.inputs.iter().position(|t| *t == tensor)?;
    plan.tasks[step.task].program.params.get(at).copied()
}

/// The programs of both steps where columns are kept: those that gather, multiply, and multiply again.
fn programs(plan: &Plan, steps: [&PlanStep; 2]) -> Option<([Program; 3], Columns)> {
    let shared = steps[0].inputs.iter().find(|t| steps[1].inputs.contains(t));
    let operand = |step| parameter(plan, step, *shared?);
    let [first, last] = [operand(steps[0])?, operand(steps[1])?];
    let program = |step: &PlanStep| &plan.tasks[step.task].program;
    let forward = Gathered::of(program(steps[0]), first)?;
    let mut gradient = Gathered::of(program(steps[1]), last)?;
    gradient.read(&forward, [last, first])?;
    let matrix = forward.program.buffer(forward.matrix);
    let elements: i64 = matrix.shape.iter().product();
    let image: i64 = forward.program.buffer(first).shape.iter().product();
    if elements <= image {
        return None;
    }
    let columns = Columns {
        dtype: matrix.dtype,
        shape: matrix.shape.iter().map(|n| *n as usize).collect(),
    };
    let parts = [
        forward.part(true)?,
        forward.part(false)?,
        gradient.part(false)?,
    ];
    Some((parts, columns))
}

/// A part of a step, whose program becomes a task of the plan if it is none yet. The columns are the operand that the
/// step itself does not have.
fn part(plan: &mut Plan, step: usize, name: &str, program: Program) -> Part {
    let step = &plan.steps[step];
    let whole = &plan.tasks[step.task];
    let names = whole.program.params.iter();
    let bound: HashMap<&str, PlanTensorId> = names
        .map(|p| &*whole.program.buffer(*p).name)
        .zip(step.inputs.iter().chain(&step.outputs).copied())
        .collect();
    let names = program.params.iter().map(|p| &*program.buffer(*p).name);
    let operands = names.map(|n| bound.get(n).copied()).collect();
    let task = whole.part(name, program);
    Part {
        task: plan.add_task(task),
        operands,
    }
}

/// Which of these fit into so many bytes together, the smallest first.
fn fitting(all: &[u64], mut room: u64) -> Vec<bool> {
    let mut fits = vec![false; all.len()];
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|i| all[*i]);
    for i in order {
        let Some(rest) = room.checked_sub(all[i]) else {
            break;
        };
        (fits[i], room) = (true, rest);
    }
    fits
}

/// The layers of a plan that can keep columns. What they call then becomes tasks of the plan. Steps of stretches are left
/// out, and layers for whose columns there is no room.
pub fn keep_columns(plan: &mut Plan, stretches: &[Stretch], room_bytes: u64) -> Vec<Saved> {
    if room_bytes == 0 {
        return Vec::new();
    }
    let at: HashMap<&str, usize> = (0..).zip(&plan.steps).map(|(i, s)| (&*s.name, i)).collect();
    let free = |i: &usize| !stretches.iter().any(|s| s.steps.contains(i));
    let mut found = Vec::new();
    for (first, step) in plan.steps.iter().enumerate().filter(|(i, _)| free(i)) {
        let gradient = format!("{}.{WEIGHT_GRADIENT}", step.name);
        let last = at.get(&*gradient).copied();
        let Some(last) = last.filter(|i| free(i) && *i > first) else {
            continue;
        };
        if let Some((parts, columns)) = programs(plan, [step, &plan.steps[last]]) {
            found.push(([first, last], parts, columns));
        }
    }
    // All columns lie in memory at once, between the forward pass and the gradients.
    let bytes: Vec<u64> = found.iter().map(|(_, _, c)| c.bytes()).collect();
    let mut fits = fitting(&bytes, room_bytes).into_iter();
    found.retain(|_| fits.next() == Some(true));
    let mut saved = |(steps, [gather, multiply, again], columns): ([usize; 2], [Program; 3], _)| {
        let gather = part(plan, steps[0], COLUMNS, gather);
        let multiply = part(plan, steps[0], "product", multiply);
        let again = part(plan, steps[1], "product", again);
        Saved {
            steps,
            columns,
            calls: [vec![gather, multiply], vec![again]],
        }
    };
    found.into_iter().map(&mut saved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_columns_have_room_first() {
        assert_eq!(fitting(&[8, 2, 5, 2], 9), [false, true, true, true]);
        assert_eq!(fitting(&[8, 2, 5, 2], 8), [false, true, false, true]);
        assert_eq!(fitting(&[8, 2], 10), [true, true]);
        assert_eq!(fitting(&[1], 0), [false]);
    }
}
