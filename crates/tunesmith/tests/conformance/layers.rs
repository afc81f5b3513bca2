//! `check` looks at every step, and sees what is wrong in one of them.

use crate::compiled;
use graph::ops::{Binary, Conv, Op, Softmax, Unary};
use graph::{Model, TensorType, ValueId, builtin};
use llvm::Compiler;
use plan::{LayoutPolicy, Plan};
use runtime::{CompiledModel, Pool, TensorId};
use search::{Accuracy, Space, space};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};
use tune::compile::{assemble, defaults};
use tunesmith::{Agreement, Machine, Precision, Requirements, Source, check};

const SEED: u64 = 5;
const THREADS: u32 = 2;

/// A product over three axes, which a plan merges into two, a softmax and
/// another product; `weights` is the seed of the last one's.
fn chain(weights: u64) -> Model {
    let mut m = Model::new("chain", 17);
    let drawn = |shape: &[usize], seed| {
        let fill = Fill::Uniform { lo: -1.0, hi: 1.0 };
        fill_tensor(DType::F32, shape, fill, seed)
    };
    let x = m.add_input("x", DType::F32, &[2, 5, 12]);
    let first = m.add_constant("first", drawn(&[12, 16], 1));
    let last = m.add_constant("last", drawn(&[16, 7], weights));
    let y = m.add("y", Op::MatMul, &[x, first]).unwrap();
    let y = m.add("relu", Op::Unary(Unary::Relu), &[y]).unwrap();
    let softmax = Op::Softmax(Softmax { axis: 2 });
    let y = m.add("softmax", softmax, &[y]).unwrap();
    let y = m.add("z", Op::MatMul, &[y, last]).unwrap();
    m.add_output(y);
    m
}

struct Compiled {
    source: Source,
    plan: Plan,
    model: Arc<CompiledModel>,
    pool: Arc<Pool>,
}

fn compile(model: Model, layouts: LayoutPolicy) -> Compiled {
    compile_as(model, layouts, Accuracy::Relaxed, "")
}

/// Every task by its default, or by an algorithm whose name has this part where there is one.
fn compile_as(model: Model, layouts: LayoutPolicy, accuracy: Accuracy, part: &str) -> Compiled {
    let source = Source {
        name: "model".into(),
        model,
        layouts,
        dims: vec![],
        precision: Precision::Model,
        untrained: Default::default(),
        settings: Default::default(),
        notes: vec![],
    };
    let target = Machine::host().target(THREADS);
    let plan = source.plan(&target, accuracy, &[]).unwrap();
    let compiler = Compiler::new(&target).unwrap();
    let pool = Arc::new(Pool::new(THREADS as usize).unwrap());
    let mut candidates = defaults(&plan.tasks, &target, accuracy).unwrap().candidates;
    for (task, candidate) in plan.tasks.iter().zip(&mut candidates) {
        let sketches = space(&task.program, &target, accuracy).sketches.into_iter();
        let named = sketches.filter(|s| !part.is_empty() && s.name.contains(part));
        let alone = Space::of(named.take(1).collect());
        if !alone.sketches.is_empty() {
            let point = alone.default_point();
            *candidate = alone.candidate(&task.program, &point).unwrap();
        }
    }
    let kernels = compiled::kernels(&plan, &candidates, &compiler).unwrap();
    let model = Arc::new(assemble(&plan, &kernels, &target, accuracy, &pool).unwrap());
    Compiled {
        source,
        plan,
        model,
        pool,
    }
}

/// The compiled model against the references of `source`.
fn report(source: &Source, model: &Arc<CompiledModel>, pool: &Arc<Pool>) -> Agreement {
    let target = Machine::host().target(THREADS);
    let mut running = runtime::Model::new(model.clone(), pool.clone()).unwrap();
    let tolerance = Requirements::of_knobs().tolerance;
    check(source, &target, &mut running, SEED, tolerance).unwrap()
}

/// Every step, and every output once more.
fn compared(plan: &Plan) -> usize {
    plan.steps.len() + plan.outputs.len()
}

#[test]
fn every_step_is_compared() {
    let c = compile(chain(2), LayoutPolicy::Blocked);
    let r = report(&c.source, &c.model, &c.pool);
    assert_eq!(r.layers.len(), compared(&c.plan));
    assert!(c.plan.steps.len() >= 3 && r.ok, "{r:?}");

    let model = builtin::builtin("squeezenet1.1", 1).unwrap();
    let c = compile(model, LayoutPolicy::Blocked);
    let r = report(&c.source, &c.model, &c.pool);
    assert_eq!(r.layers.len(), compared(&c.plan));
    assert!(r.ok);
}

#[test]
fn the_step_that_is_wrong_is_named() {
    let right = compile(chain(2), LayoutPolicy::Plain);
    // The code has other weights than the model to judge by.
    let wrong = compile(chain(3), LayoutPolicy::Plain);
    let r = report(&right.source, &wrong.model, &wrong.pool);
    assert!(!r.ok);
    let steps: Vec<_> = r
        .layers
        .iter()
        .filter(|l| !l.ok)
        .map(|l| &*l.step)
        .collect();
    assert_eq!(steps, ["z", "output"]);
}

/// One infinite pixel, which `check` reads off an operand, spreads over a tile of Winograd only.
#[test]
fn winograd_is_named_where_it_spreads_an_infinite_value() {
    let mut m = Model::new("spread", 17);
    let fill = Fill::Uniform { lo: -1.0, hi: 1.0 };
    let drawn = |shape: &[usize], seed| fill_tensor(DType::F32, shape, fill, seed);
    let (w, mut huge) = (drawn(&[32, 32, 3, 3], 1), drawn(&[1, 32, 12, 12], 2));
    huge.as_mut_slice::<f32>()[70] = f32::INFINITY;
    let x = m.add_input("x", DType::F32, &[1, 32, 12, 12]);
    let (w, huge) = (m.add_constant("w", w), m.add_constant("huge", huge));
    let x = m.add("sum", Op::Binary(Binary::Add), &[x, huge]).unwrap();
    let x = m.add("softly", Op::Unary(Unary::Relu), &[x]).unwrap();
    let y = m.add("y", Op::Conv(Conv::unit(2)), &[x, w]).unwrap();
    m.add_output(y);
    for (accuracy, spreads) in [(Accuracy::Relaxed, true), (Accuracy::Strict, false)] {
        let c = compile_as(m.clone(), LayoutPolicy::Blocked, accuracy, "winograd");
        let r = report(&c.source, &c.model, &c.pool);
        let named = r.layers.iter().any(|l| !l.ok && l.cause.is_some());
        assert_eq!((named, r.ok), (spreads, !spreads), "{accuracy}: {r:?}");
    }
}

/// What a stranger asks of a file: names, order, types and shapes are the model's,
/// and every input is taken by its name.
#[test]
fn an_artifact_has_the_interface_of_its_model() {
    let mut m = Model::new("interface", 17);
    let x = m.add_input("x", DType::F32, &[1, 32, 3, 3]);
    let scalar = m.add_input("scalar", DType::F64, &[]);
    m.add_input("unread", DType::I64, &[2]);
    let fill = Fill::Uniform { lo: -1.0, hi: 1.0 };
    let w = m.add_constant("w", fill_tensor(DType::F32, &[64, 32, 1, 1], fill, 1));
    let y = m.add("y", Op::Conv(Conv::unit(2)), &[x, w]).unwrap();
    let same = m.add("same", Op::Identity, &[y]).unwrap();
    let read = m.add("read", Op::Unary(Unary::Relu), &[y]).unwrap();
    let less = Op::Binary(Binary::Less);
    let less = m.add("less", less, &[scalar, scalar]).unwrap();
    let shape = vec![0, 3];
    let none = m.add_constant("none", Tensor::zeros(DType::I32, &shape));
    for v in [y, same, read, less, none, scalar, w] {
        m.add_output(v);
    }
    let text = |name: &str, ty: &TensorType| format!("{name}: {ty}");
    let wanted = |all: &[ValueId]| -> Vec<String> {
        all.iter().map(|v| text(m[*v].name(), m[*v].ty())).collect()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    for layouts in [LayoutPolicy::Blocked, LayoutPolicy::Plain] {
        let c = compile(m.clone(), layouts);
        c.model.save(&path).unwrap();
        let loaded = Arc::new(CompiledModel::load(&path).unwrap());
        let given = |all: &[TensorId]| -> Vec<String> {
            let tensors = all.iter().map(|id| loaded.tensor(*id));
            let typed = tensors.map(|t| text(&t.name, &TensorType::new(t.dtype, &t.shape)));
            typed.collect()
        };
        assert_eq!(given(loaded.inputs()), wanted(m.inputs()));
        assert_eq!(given(loaded.outputs()), wanted(m.outputs()));
        let r = report(&c.source, &loaded, &c.pool);
        assert!(r.ok, "{r:?}");
        let mut running = runtime::Model::new(loaded, c.pool.clone()).unwrap();
        let inputs = [
            ("unread", Tensor::zeros(DType::I64, &[2])),
            ("scalar", fill_tensor(DType::F64, &[], fill, 2)),
            ("x", Tensor::zeros(DType::F32, &[1, 32, 3, 3])),
        ];
        let inputs = inputs.each_ref().map(|(name, t)| (*name, t));
        let outputs = running.run(&inputs).unwrap();
        assert_eq!(&outputs[5], inputs[1].1);
    }
}
