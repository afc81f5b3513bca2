//! Plans a model, checks every program and compares results with the reference.

use graph::{Keep, Model, Op, TensorType, ValueId, evaluate};
use ir::{Isa, Target};
use plan::{LayoutPolicy, Plan, PlanTensorId, TensorKind, plan};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, compare, fill_tensor};

/// What the steps of a plan do.
pub fn kinds(plan: &Plan) -> Vec<&str> {
    let tasks = plan.steps.iter().map(|s| plan.tasks[s.task].op.as_str());
    tasks.collect()
}

/// Four f32 lanes: blocks of four channels.
pub fn target() -> Target {
    Target::generic(Isa::X86Sse2)
}

pub fn planned(model: &Model, layouts: LayoutPolicy) -> Plan {
    let plan = plan(model, &target(), &layouts.into()).unwrap();
    check_structure(&plan);
    check_interface(model, &plan);
    plan
}

/// Inputs and outputs are the model's, in order: names, types and shapes.
fn check_interface(model: &Model, plan: &Plan) {
    let wanted = |all: &[ValueId]| -> Vec<_> {
        let said = |v: &ValueId| (model[*v].name().to_string(), model[*v].ty().clone());
        all.iter().map(said).collect()
    };
    let given = |all: &[PlanTensorId]| -> Vec<_> {
        let said = |id: &PlanTensorId| {
            let t = plan.tensor(*id);
            let shape: Vec<usize> = t.shape.iter().map(|n| *n as usize).collect();
            (t.name.clone(), TensorType::new(t.dtype, &shape))
        };
        all.iter().map(said).collect()
    };
    assert_eq!(given(&plan.inputs), wanted(model.inputs()), "{plan}");
    assert_eq!(given(&plan.outputs), wanted(model.outputs()), "{plan}");
    let names: HashSet<_> = plan.tensors.iter().map(|t| &t.name).collect();
    assert_eq!(names.len(), plan.tensors.len(), "{plan}");
}

/// What has been written of a tensor that is no alias: runs of elements.
#[derive(Default)]
struct Written(Vec<Range<i64>>);

impl Written {
    fn write(&mut self, run: Range<i64>) {
        let apart = |r: &Range<i64>| r.end <= run.start || run.end <= r.start;
        assert!(self.0.iter().all(apart), "{run:?} is written again");
        self.0.push(run);
    }

    fn holds(&self, run: Range<i64>) -> bool {
        let inside = |r: &Range<i64>| r.end.min(run.end) - r.start.max(run.start);
        self.0.iter().map(inside).filter(|n| *n > 0).sum::<i64>() == run.end - run.start
    }
}

/// The shape with axes that follow each other merged to the extents of `merged`, as far as
/// they agree.
fn unsplit(shape: &[i64], merged: &[i64]) -> Vec<i64> {
    let mut rest = shape.iter().copied();
    let joined = merged.iter().map(|n| {
        // A scalar is a row of one element.
        let mut extent = rest.next().unwrap_or(1);
        while extent < *n {
            extent *= rest.next().unwrap_or(*n + 1);
        }
        extent
    });
    let joined: Vec<i64> = joined.collect();
    joined.into_iter().chain(rest).collect()
}

/// Every element is written once before it is read, and tensors fit parameters.
fn check_structure(plan: &Plan) {
    let run = |id: PlanTensorId| {
        let (root, start) = plan.place(id);
        let end = start + plan.tensor(id).elements();
        assert!(end <= plan.tensor(root).elements());
        assert!(!matches!(plan.tensor(root).kind, TensorKind::Alias { .. }));
        (root, start..end)
    };
    let mut written: HashMap<PlanTensorId, Written> = HashMap::new();
    for id in plan.tensor_ids() {
        if matches!(
            plan.tensor(id).kind,
            TensorKind::Constant(_) | TensorKind::Input(_)
        ) {
            written.entry(id).or_default().write(run(id).1);
        }
    }
    for step in &plan.steps {
        let program = &plan.tasks[step.task].program;
        let args: Vec<_> = step.inputs.iter().chain(&step.outputs).collect();
        assert_eq!(args.len(), program.params.len(), "step {}", step.name);
        for (arg, param) in args.iter().zip(&program.params) {
            let (t, b) = (plan.tensor(**arg), program.buffer(*param));
            assert_eq!(
                (t.dtype, unsplit(&t.shape, &b.shape)),
                (b.dtype, b.shape.clone()),
                "step {}",
                step.name
            );
        }
        for input in &step.inputs {
            let (root, run) = run(*input);
            let holds = written.get(&root).is_some_and(|w| w.holds(run));
            assert!(
                holds,
                "step {} reads what is not written\n{plan}",
                step.name
            );
        }
        for output in &step.outputs {
            let (root, run) = run(*output);
            written.entry(root).or_default().write(run);
        }
    }
    for output in &plan.outputs {
        let (root, run) = run(*output);
        assert!(written[&root].holds(run));
    }
    for task in &plan.tasks {
        let broken = ir::verify::verify(&task.program);
        let text = ir::text::print(&task.program);
        assert!(broken.is_empty(), "{broken:?}\n{text}");
        // Builders get programs as text.
        let read = ir::text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(ir::text::print(&read), text);
    }
}

/// Inputs that suit every operator: floats around 0, small non-negative integers.
pub fn inputs(model: &Model) -> Vec<Tensor> {
    let value = |(i, v): (usize, &ValueId)| {
        let ty = model[*v].ty();
        let fill = match ty.dtype {
            d if d.is_float() => Fill::Uniform { lo: -2.0, hi: 2.0 },
            DType::Bool => Fill::Integers { lo: 0, hi: 1 },
            _ => Fill::Integers { lo: 0, hi: 3 },
        };
        fill_tensor(ty.dtype, &ty.shape, fill, 100 + i as u64)
    };
    model.inputs().iter().enumerate().map(value).collect()
}

pub fn judge(model: &Model, layouts: LayoutPolicy) -> Plan {
    judge_on(model, layouts, inputs(model))
}

pub fn judge_on(model: &Model, layouts: LayoutPolicy, inputs: Vec<Tensor>) -> Plan {
    let plan = planned(model, layouts);
    let actual = plan.interpret(&inputs).unwrap();
    let inputs: Vec<_> = inputs.into_iter().map(Arc::new).collect();
    let expected = evaluate(model, &inputs, Keep::Outputs).unwrap().outputs();
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(&expected) {
        assert_eq!((a.dtype(), a.shape()), (e.dtype(), e.shape()));
        let tolerance = match e.dtype() {
            DType::F32 | DType::F64 => 1e-5,
            DType::F16 | DType::BF16 => 1e-2,
            _ => 0.0,
        };
        let difference = compare(a, e);
        assert!(difference.within(tolerance), "{difference:?}\n{plan}");
    }
    plan
}

/// In both policies; gives the blocked plan.
pub fn judge_both(model: &Model) -> Plan {
    judge(model, LayoutPolicy::Plain);
    judge(model, LayoutPolicy::Blocked)
}

/// A model of one operator whose outputs are all graph outputs. Operands are
/// inputs, or constants where a tensor is given.
pub fn single(op: Op, operands: &[Operand]) -> Model {
    let mut m = Model::new("single", 0);
    let operands: Vec<_> = operands.iter().map(|o| Some(o.add(&mut m))).collect();
    for v in m.add_node("node", op, &operands).unwrap() {
        m.add_output(v);
    }
    m
}

pub enum Operand {
    Input(DType, Vec<usize>),
    Constant(Tensor),
}

impl Operand {
    fn add(&self, m: &mut Model) -> ValueId {
        match self {
            Operand::Input(dtype, shape) => m.add_input("x", *dtype, shape),
            Operand::Constant(t) => m.add_constant("c", t.clone()),
        }
    }
}

pub fn input(shape: &[usize]) -> Operand {
    Operand::Input(DType::F32, shape.to_vec())
}

pub fn typed(dtype: DType, shape: &[usize]) -> Operand {
    Operand::Input(dtype, shape.to_vec())
}

pub fn weight(shape: &[usize], seed: u64) -> Operand {
    Operand::Constant(random(shape, seed))
}

pub fn random(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::F32, shape, Fill::Normal { std: 0.5 }, seed)
}
