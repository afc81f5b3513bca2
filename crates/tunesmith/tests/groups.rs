//! Training steps whose forward convolutions can keep columns for their weight gradients.

use graph::Model as GraphModel;
use graph::ops::{Conv, Gemm, Op, Pool as Pooling, PoolKind, Reshape, Unary};
use graph::{Sgd, ValueId};
use plan::LayoutPolicy;
use runtime::{FixedSelector, TensorPlace};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Fill, fill_tensor};
use tune::kernels::{Origins, kernels};
use tune::known::Lookup;
use tune::saved::keep_columns;
use tunesmith::{
    CompiledModel, DType, Host, Machine, Model, Options, Pool, Precision, Request, Requirements,
    Silent, Source, StopRule, Store, Target, Tensor, Workers, check, compile_plan, decided,
    selectors,
};

/// For the columns of both convolutions.
const ROOM: u64 = 1 << 20;
const THREADS: usize = 1;
const IMAGES: [usize; 4] = [2, 3, 10, 10];

/// Two convolutions, the second of which has a stride, and a linear layer.
fn source() -> Source {
    let mut m = GraphModel::new("net", 17);
    let x = m.add_input("image", DType::F32, &IMAGES);
    let conv = |m: &mut GraphModel, x: ValueId, name: &str, [c, k, stride]: [usize; 3]| {
        let fill = Fill::Uniform { lo: -0.3, hi: 0.3 };
        let w = fill_tensor(DType::F32, &[k, c, 3, 3], fill, k as u64);
        let w = m.add_constant(&format!("{name}.w"), w);
        let conv = Conv {
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pads: vec![(1, 1); 2],
            groups: 1,
        };
        let y = m.add(name, Op::Conv(conv), &[x, w]).unwrap();
        let relu = format!("{name}.relu");
        m.add(&relu, Op::Unary(Unary::Relu), &[y]).unwrap()
    };
    let x = conv(&mut m, x, "conv0", [3, 16, 1]);
    let pool = Pooling {
        kind: PoolKind::Max { indices: None },
        kernel: vec![2; 2],
        strides: vec![2; 2],
        dilations: vec![1; 2],
        pads: vec![(0, 0); 2],
        ceil_mode: false,
    };
    let x = m.add("pool", Op::Pool(pool), &[x]).unwrap();
    let x = conv(&mut m, x, "conv1", [16, 32, 2]);
    let shape = vec![2, 32 * 9];
    let x = m.add("flat", Op::Reshape(Reshape { shape }), &[x]).unwrap();
    let fill = Fill::Uniform { lo: -0.1, hi: 0.1 };
    let w = m.add_constant("fc.w", fill_tensor(DType::F32, &[288, 4], fill, 5));
    let b = m.add_constant("fc.b", fill_tensor(DType::F32, &[4], fill, 6));
    let gemm = Gemm {
        alpha: 1.0,
        beta: 1.0,
        trans_a: false,
        trans_b: false,
    };
    let x = m.add("fc", Op::Gemm(gemm), &[x, w, b]).unwrap();
    m.add_output(x);
    let sgd = Sgd {
        learning_rate: 0.01,
        momentum: 0.9,
        weight_decay: 0.0,
    };
    let source = Source {
        name: "net".into(),
        model: m,
        layouts: LayoutPolicy::Blocked,
        dims: vec![],
        precision: Precision::Model,
        untrained: Default::default(),
        settings: Default::default(),
        notes: vec![],
    };
    source.trained(sgd, 1).unwrap()
}

fn compiled(source: &Source, target: &Target, room: u64, pool: &Arc<Pool>) -> CompiledModel {
    let program = Path::new(env!("CARGO_BIN_EXE_tunesmith"));
    let host = Host {
        machine: Machine::host(),
        workers: Workers::of_program(program).unwrap(),
    };
    let requirements = Requirements::of_knobs();
    let plan = source.plan(target, requirements.accuracy, &[]).unwrap();
    let from = Origins {
        count: 3,
        columns_bytes: room,
        ..Origins::of(requirements, None)
    };
    let model = compile_plan(plan, target, &host, &from, pool)
        .unwrap()
        .model;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    model.save(&path).unwrap();
    CompiledModel::load(&path).unwrap()
}

#[test]
fn columns_have_no_more_room_than_they_are_given() {
    let target = Machine::host().target(THREADS as u32);
    let pool = Arc::new(Pool::new(THREADS).unwrap());
    let source = source();
    let all = compiled(&source, &target, ROOM, &pool);
    let bytes = |model: &CompiledModel| -> Vec<u64> {
        let columns = ["conv0.columns", "conv1.columns"].map(|name| model.tensor_named(name));
        let columns = columns.into_iter().flatten();
        columns
            .map(|id| model.tensor(id).span_bytes().unwrap())
            .collect()
    };
    let least = *bytes(&all).iter().min().unwrap();
    let one = compiled(&source, &target, least, &pool);
    assert_eq!((bytes(&one), one.groups().len()), (vec![least], 1));
    assert!(one.arena_bytes() <= all.arena_bytes());
    let first = all.with_choices(&[]).arena_bytes();
    assert_eq!(
        (all.first_arena_bytes(), first <= one.arena_bytes()),
        (first, true)
    );
    assert_eq!(compiled(&source, &target, 0, &pool).groups().len(), 0);
}

/// A run tunes the kernels of columns like those of any task, and its records serve whoever compiles the model.
#[test]
fn what_keeps_columns_is_tuned() {
    let target = Machine::host().target(THREADS as u32);
    let source = source();
    let program = Path::new(env!("CARGO_BIN_EXE_tunesmith"));
    let host = Host {
        machine: Machine::host(),
        workers: Workers::of_program(program).unwrap(),
    };
    let mut options = Options::new(host.machine.cpus, THREADS as u32, StopRule::Trials(150));
    options.strategy = "random".into();
    (options.comparing, options.in_model) = (Duration::ZERO, Duration::ZERO);
    (options.alternatives, options.columns_bytes) = (2, ROOM);
    let store = Store::open_in_memory().unwrap();
    let request = Request {
        source: &source,
        target: &target,
        strategy: None,
    };
    let tuned = tune::tune(request, &host, &store, &options, &mut Silent).unwrap();
    let parts: Vec<&tune::TaskSummary> =
        tuned.report.tasks.iter().filter(|t| t.uses == 0).collect();
    // Of each layer one that gathers, and two products.
    assert_eq!(parts.len(), 6);
    for t in &parts {
        assert!(t.alone_ms.is_some(), "{t:?}");
    }
    // The budget decides how many each gets beyond its default.
    let trials: u64 = parts.iter().map(|t| t.trials).sum();
    assert!(trials > parts.len() as u64, "{parts:?}");
    assert_eq!(tuned.model.groups().len(), 2);

    let requirements = Requirements::of_knobs();
    let mut plan = source.plan(&target, requirements.accuracy, &[]).unwrap();
    let steps_alone = plan.tasks.len();
    let saved = keep_columns(&mut plan, &[], ROOM);
    assert_eq!((saved.len(), plan.tasks.len()), (2, steps_alone + 6));
    let fingerprint = host.machine.fingerprint();
    let lookup = Lookup::new(&store, &plan, &target, &fingerprint, requirements);
    let known = lookup.best_in_model().unwrap().split_off(steps_alone);
    let from = Origins {
        count: 2,
        columns_bytes: ROOM,
        ..Origins::of(requirements, Some(&store))
    };
    let built = kernels(&mut plan, &host, &target, &from).unwrap();
    assert_eq!(built.kernels.len(), steps_alone + 6);
    for (known, kernels) in known.iter().zip(&built.kernels[steps_alone..]) {
        let candidate = &known.as_ref().expect("it was tuned").candidate;
        assert_eq!(kernels.len(), 1);
        assert_eq!(kernels[0].schedule, schedule::print(&candidate.trace));
    }
}

/// A few steps of training.
fn trained(model: &mut Model) -> Vec<Tensor> {
    model.reset_states();
    let fill = Fill::Uniform { lo: -1.0, hi: 1.0 };
    let x = fill_tensor(DType::F32, &IMAGES, fill, 9);
    let labels = Tensor::from_slice(&[2], &[1i64, 3]);
    let inputs = [("image", &x), ("labels", &labels)];
    let steps = (0..3).flat_map(|_| model.run(&inputs).unwrap());
    steps.collect()
}

#[test]
fn weight_gradients_read_what_the_forward_pass_gathered() {
    let target = Machine::host().target(THREADS as u32);
    let pool = Arc::new(Pool::new(THREADS).unwrap());
    let (source, tolerance) = (source(), Requirements::of_knobs().tolerance);
    let model = Arc::new(compiled(&source, &target, ROOM, &pool));
    let names = |at: usize| -> Vec<&str> {
        let steps = model.groups()[at].steps.iter();
        steps.map(|s| &*model.steps()[s.index()].name).collect()
    };
    assert_eq!(model.groups().len(), 2);
    assert_eq!(names(0), ["conv0", "conv0.taps"]);
    assert_eq!(names(1), ["conv1", "conv1.taps"]);

    let choices = model.fixed_choices();
    let columns = choices.iter().find(|c| c.algorithm.starts_with("columns"));
    let columns = columns.expect("an algorithm is that of the sets");
    for choice in [&choices[0], columns] {
        let alternatives = choice.alternatives.clone();
        let mut running = Model::new(model.clone(), pool.clone()).unwrap();
        let left = Arc::new(model.with_choices(&alternatives));
        running.set_selector(Some(Box::new(FixedSelector { alternatives })));
        let is_kept = |name: &str| {
            let id = left.tensor_named(name).unwrap();
            left.tensor(id).place != TensorPlace::Discarded
        };
        let own = choice.algorithm == columns.algorithm;
        assert_eq!(
            [is_kept("conv0.columns"), is_kept("conv1.columns")],
            [own; 2]
        );
        let mut alone = Model::new(left, pool.clone()).unwrap();
        assert_eq!(trained(&mut running), trained(&mut alone));
        let found = check(&source, &target, &mut alone, 3, tolerance).unwrap();
        assert!(found.ok, "{}: {:?}", choice.algorithm, found.layers);
    }
    chosen_online(&model, &pool);
}

/// Decides while it runs, and what is left runs as decided.
fn chosen_online(model: &Arc<CompiledModel>, pool: &Arc<Pool>) {
    let mut running = Model::new(model.clone(), pool.clone()).unwrap();
    let variants = running.variants().clone();
    let chosen = selectors(&variants, None).unwrap();
    running.set_selector(Some(chosen.online()));
    for _ in 0..150 {
        trained(&mut running);
    }
    assert!(chosen.are_decided());
    let rows = study::select::groups(&variants, 0, &chosen, THREADS as u32);
    let steps: Vec<&str> = rows.iter().map(|r| &*r.steps).collect();
    assert_eq!(steps, ["conv0 & conv0.taps", "conv1 & conv1.taps"]);
    for row in rows {
        assert_eq!(row.alternatives[0].algorithm, "apart");
        assert!(row.alternatives[1].algorithm.starts_with("columns+"));
        let times = row.alternatives.iter().map(|t| t.median_ms);
        assert!(times.into_iter().all(|t| t.is_some()));
    }
    let left = decided(&variants, 0, &chosen, THREADS as u32).unwrap();
    assert!(left.steps().iter().all(|s| s.alternatives.len() == 1));
    let mut left = Model::new(Arc::new(left), pool.clone()).unwrap();
    assert_eq!(trained(&mut left), trained(&mut running));
}
