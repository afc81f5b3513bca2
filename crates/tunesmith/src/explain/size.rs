//! What a task has to touch and to compute, read from its program.
//!
//! Lower bounds, for rooflines: an element counts once however often it is
//! read, and of algorithms that compute something else than the definition
//! only the largest part counts.

use ir::affine::Affine;
use ir::{Block, BufferId, Expr, ExprKind, Program, Role};
use schedule::{Step, Trace};
use std::collections::{BTreeSet, HashSet};
use tensor::DType;

/// Values of one index beyond which its whole dimension counts.
const MAX_VALUES: usize = 1 << 16;

/// Elements of a parameter that the program touches: less than it has where
/// strides leave some out, or where rows are picked by an index.
pub fn touched_elements(program: &Program, buffer: BufferId) -> i64 {
    let shape = &program.buffer(buffer).shape;
    let all: i64 = shape.iter().product();
    let mut seen = HashSet::new();
    let mut touched = 0i64;
    for id in program.block_ids() {
        let block = program.block(id);
        if block.writes_to(buffer) {
            return all;
        }
        for (of, indices) in block.loads() {
            if of == buffer && seen.insert((id, indices.clone())) {
                let dims = indices.iter().zip(shape);
                let count = dims.map(|(e, size)| values(block, e, *size));
                touched = touched.saturating_add(count.fold(1, i64::saturating_mul));
            }
        }
    }
    touched.min(all)
}

fn extent_of(block: &Block, var: ir::VarId) -> i64 {
    let iter = block.iters.iter().find(|i| i.var == var);
    iter.map_or(1, |i| i.extent)
}

/// How many values within `0..size` an index of a block takes.
fn values(block: &Block, index: &Expr, size: i64) -> i64 {
    if index.any(&|e| matches!(e.kind(), ExprKind::Load(..))) {
        // One value for each combination of the variables that pick it.
        let mut vars = BTreeSet::new();
        index.visit(&mut |e| {
            if let ExprKind::Var(v) = e.kind() {
                vars.insert(v.0);
            }
        });
        let extents = block.iters.iter().filter(|i| vars.contains(&i.var.0));
        return extents
            .map(|i| i.extent)
            .fold(1, i64::saturating_mul)
            .min(size);
    }
    let Some(linear) = Affine::of(index) else {
        return size;
    };
    let mut reached: BTreeSet<i64> = [linear.constant].into();
    for (var, coefficient) in &linear.terms {
        let extent = extent_of(block, *var);
        if reached.len().saturating_mul(extent as usize) > MAX_VALUES {
            return size;
        }
        let steps = |at: &i64| {
            let at = *at;
            (0..extent).map(move |i| at + i * coefficient)
        };
        reached = reached.iter().flat_map(steps).collect();
    }
    // Borders are guarded: what lies outside is not read.
    reached.range(0..size).count() as i64
}

/// Whether an algorithm computes with other operations than its definition.
pub fn is_winograd(trace: &Trace) -> bool {
    let winograd = |s: &Step| matches!(s, Step::Winograd { .. });
    trace.steps.iter().any(winograd)
}

/// Floating-point operations that a call executes at least: those of the
/// definition, or under an algorithm that multiplies less those of the largest
/// block of what it makes of the program.
pub fn executed_flops(program: &Program, trace: &Trace, defined: f64) -> f64 {
    if !is_winograd(trace) {
        return defined;
    }
    let Ok(scheduled) = schedule::replay(program, trace) else {
        return defined;
    };
    let prepared = prepared(&scheduled);
    let blocks = scheduled.block_ids().into_iter();
    let largest = blocks
        .map(|b| scheduled.block(b))
        .filter(|b| b.writes.iter().all(|w| !prepared.contains(&w.buffer)))
        .map(|b| block_flops(&scheduled, b))
        .fold(0.0, f64::max);
    if largest > 0.0 {
        largest.min(defined)
    } else {
        defined
    }
}

/// Buffers that depend on constants only.
fn prepared(program: &Program) -> HashSet<BufferId> {
    let mut known: HashSet<BufferId> = program
        .buffer_ids()
        .filter(|b| program.buffer(*b).role == Role::Constant)
        .collect();
    loop {
        let before = known.len();
        for id in program.block_ids() {
            let block = program.block(id);
            let reads = block.reads();
            let constant = !reads.is_empty() && reads.iter().all(|r| known.contains(r));
            if constant {
                known.extend(block.writes.iter().map(|w| w.buffer));
            }
        }
        if known.len() == before {
            return known;
        }
    }
}

/// One operation for each float operator and each combination of a reduction.
fn block_flops(program: &Program, block: &Block) -> f64 {
    let points: f64 = block.iters.iter().map(|i| i.extent as f64).product();
    let mut operators = 0.0;
    for w in &block.writes {
        operators += f64::from(u8::from(block.is_reduction()));
        w.value.visit(&mut |e| {
            let float = |a: &Expr| matches!(a.dtype(program), DType::F32 | DType::F64);
            let counts = match e.kind() {
                ExprKind::Unary(_, a) => float(a),
                ExprKind::Binary(op, a, _) => !op.is_logical() && float(a),
                _ => false,
            };
            operators += f64::from(u8::from(counts));
        });
    }
    points * operators
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::{ByteDot, CpuTarget, Isa, Target};
    use plan::{LayoutPolicy, Plan, PlanOptions, plan};
    use search::Accuracy;

    fn planned(name: &str) -> (Plan, Target) {
        let target = Target::generic(Isa::X86Avx2);
        let model = graph::builtin::builtin(name, 1).unwrap();
        let options = PlanOptions::from(LayoutPolicy::Plain);
        (plan(&model, &target, &options).unwrap(), target)
    }

    fn touched(name: &str, param: usize) -> (i64, i64) {
        let (plan, _) = planned(name);
        let program = &plan.tasks[0].program;
        let buffer = program.params[param];
        let all = program.buffer(buffer).shape.iter().product();
        (touched_elements(program, buffer), all)
    }

    #[test]
    fn strides_leave_elements_out() {
        for pad in 0..2 {
            let conv = format!("op:conv2d(c=4,h=8,w=8,k=4,r=1,s=1,stride=2,pad={pad})");
            let (read, all) = touched(&conv, 0);
            assert_eq!((read, all), (4 * 4 * 4, 4 * 8 * 8), "pad {pad}");
        }
        // Windows that overlap leave none out, and borders are not read.
        let (read, all) = touched("op:conv2d(c=4,h=8,w=8,k=4,r=3,s=3,pad=1)", 0);
        assert_eq!(read, all);
        let (read, all) = touched("op:conv2d(c=4,h=8,w=8,k=4,r=1,s=1)", 1);
        assert_eq!((read, all), (16, 16));
    }

    #[test]
    fn picked_rows_count_instead_of_the_table() {
        let (plan, _) = planned("op:gather(table=1000,rows=7,cols=16)");
        let program = &plan.tasks[0].program;
        let large = program
            .params
            .iter()
            .find(|p| program.buffer(**p).shape == [1000, 16]);
        assert_eq!(touched_elements(program, *large.unwrap()), 7 * 16);
    }

    #[test]
    fn what_is_written_counts_whole() {
        let (plan, _) = planned("op:conv2d(c=4,h=8,w=8,k=4,r=1,s=1,stride=2,pad=0)");
        let program = &plan.tasks[0].program;
        let last = *program.params.last().unwrap();
        assert_eq!(touched_elements(program, last), 4 * 4 * 4);
    }

    #[test]
    fn minimal_filtering_executes_fewer_operations() {
        let target = Target::generic(Isa::X86Avx2);
        let model = graph::builtin::builtin("op:conv2d(c=16,h=16,w=16,k=16,r=3,s=3,pad=1)", 1);
        let options = PlanOptions::from(LayoutPolicy::Blocked);
        let plan = plan(&model.unwrap(), &target, &options).unwrap();
        let task = plan.tasks.iter().find(|t| t.op == "conv2d").unwrap();
        let space = search::space(&task.program, &target, Accuracy::Relaxed);
        let mut tried = 0;
        for (sketch, s) in space.sketches.iter().enumerate() {
            let values = s.default.clone();
            let point = search::Point { sketch, values };
            let Ok(c) = space.candidate(&task.program, &point) else {
                continue;
            };
            let executed = executed_flops(&task.program, &c.trace, task.flops);
            let family = s.name.split('.').next().unwrap();
            let tile: Option<i64> = family.strip_prefix("winograd").map(|t| t.parse().unwrap());
            // Tiles may reach beyond the image.
            let gain = tile.map_or(1.0, |m| {
                let products = (16 + m - 1) / m * (m + 2);
                (16.0 * 3.0 / products as f64).powi(2)
            });
            tried += i32::from(tile.is_some());
            let ratio = task.flops / executed;
            assert!((ratio - gain).abs() < 1e-9, "{}: {ratio}", s.name);
        }
        assert!(tried > 0);
    }

    #[test]
    fn bytes_have_a_peak_of_their_own_where_there_are_instructions() {
        let factor = |op: &str, isa: Isa, byte_dot: Option<ByteDot>| {
            let target = Target::Cpu(CpuTarget {
                byte_dot,
                ..CpuTarget::generic(isa)
            });
            let model = graph::builtin::builtin(op, 1).unwrap();
            let options = PlanOptions::from(LayoutPolicy::Plain);
            let plan = plan(&model, &target, &options).unwrap();
            search::peak_factor(&plan.tasks[0].program, &target)
        };
        let bytes = "op:dense(m=64,n=64,k=64,dtype=i8)";
        let vnni = Some(ByteDot::Avx512Vnni);
        assert_eq!(factor(bytes, Isa::X86Avx512, vnni), 4.0);
        assert_eq!(factor(bytes, Isa::X86Avx512, None), 1.0);
        assert_eq!(factor(bytes, Isa::X86Sse2, None), 1.0);
        assert_eq!(
            factor("op:dense(m=64,n=64,k=64)", Isa::X86Avx512, vnni),
            1.0
        );
    }
}
