//! Models that keep other layouts of neighbouring steps as alternatives of one step.

use graph::Model as GraphModel;
use graph::ops::{Binary, Conv, Op, Softmax, Unary};
use plan::LayoutPolicy;
use runtime::FixedSelector;
use std::path::Path;
use std::sync::Arc;
use tensor::{Fill, fill_tensor};
use tune::kernels::Origins;
use tune::layouts::Costs;
use tunesmith::{
    CompiledModel, DType, Host, Machine, Model, Pool, Precision, Requirements, Source, Target,
    Workers, check, compile_plan, decided, selectors,
};

const THREADS: usize = 1;

/// Two convolutions of 16 channels, a softmax between them, which has no blocks, and a sum round the second one.
fn source() -> Source {
    let mut m = GraphModel::new("chain", 17);
    let mut x = m.add_input("x", DType::F32, &[1, 16, 10, 12]);
    for layer in 0..2 {
        let w = fill_tensor(
            DType::F32,
            &[16, 16, 3, 3],
            Fill::Uniform { lo: -0.1, hi: 0.1 },
            layer,
        );
        let w = m.add_constant(&format!("w{layer}"), w);
        let conv = Conv {
            strides: vec![1; 2],
            dilations: vec![1; 2],
            pads: vec![(1, 1); 2],
            groups: 1,
        };
        let y = m
            .add(&format!("conv{layer}"), Op::Conv(conv), &[x, w])
            .unwrap();
        let name = format!("relu{layer}");
        let y = m.add(&name, Op::Unary(Unary::Relu), &[y]).unwrap();
        let softmax = Op::Softmax(Softmax { axis: 3 });
        x = match layer {
            1 => m.add("sum", Op::Binary(Binary::Add), &[x, y]).unwrap(),
            _ => m.add("softmax", softmax, &[y]).unwrap(),
        };
    }
    m.add_output(x);
    Source {
        name: "chain".into(),
        model: m,
        layouts: LayoutPolicy::Blocked,
        dims: vec![],
        precision: Precision::Model,
        untrained: Default::default(),
        settings: Default::default(),
        notes: vec![],
    }
}

fn compiled(source: &Source, target: &Target, host: &Host, pool: &Arc<Pool>) -> CompiledModel {
    let requirements = Requirements::of_knobs();
    let accuracy = requirements.accuracy;
    let plan = source.plan(target, accuracy, &[]).unwrap();
    let stretches = source
        .stretches(&plan, target, accuracy, &Costs::of_bytes(), 3)
        .unwrap();
    let from = Origins {
        count: 4,
        stretches: &stretches,
        ..Origins::of(requirements, None)
    };
    compile_plan(plan, target, host, &from, pool).unwrap().model
}

#[test]
fn every_layout_of_a_stretch_gives_the_answer_of_the_model() {
    let machine = Machine::host();
    let target = machine.target(THREADS as u32);
    let program = Path::new(env!("CARGO_BIN_EXE_tunesmith"));
    let host = Host {
        machine,
        workers: Workers::of_program(program).unwrap(),
    };
    let pool = Arc::new(Pool::new(THREADS).unwrap());
    let (source, tolerance) = (source(), Requirements::of_knobs().tolerance);
    let model = compiled(&source, &target, &host, &pool);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    model.save(&path).unwrap();
    let model = Arc::new(CompiledModel::load(&path).unwrap());
    let several = |a: &runtime::Alternative| a.calls.len() > 1;
    let stretches = model.steps().iter();
    let stretches =
        stretches.filter(|s| s.alternatives.len() > 1 && s.alternatives.iter().any(several));
    assert!(stretches.count() > 0, "{:?}", model.steps());
    let most = model.steps().iter().map(|s| s.alternatives.len()).max();
    let most = most.unwrap();
    assert!(most <= 4, "{most}");

    let fixed = |at: usize| -> Vec<usize> {
        let steps = model.steps().iter();
        steps.map(|s| at.min(s.alternatives.len() - 1)).collect()
    };
    for at in 0..most {
        let mut running = Model::new(model.clone(), pool.clone()).unwrap();
        running.set_selector(Some(Box::new(FixedSelector {
            alternatives: fixed(at),
        })));
        let of_all = outputs(&mut running);
        let left = Arc::new(model.with_choices(&fixed(at)));
        assert!(left.arena_bytes() <= model.arena_bytes());
        let mut alone = Model::new(left, pool.clone()).unwrap();
        let found = check(&source, &target, &mut alone, 3, tolerance).unwrap();
        assert!(found.ok, "alternative {at}: {:?}", found.layers);
        assert_eq!(of_all, outputs(&mut alone), "alternative {at}");
    }
    chosen_online(&model, &pool);
}

fn outputs(model: &mut Model) -> Vec<u8> {
    let x = fill_tensor(
        DType::F32,
        &[1, 16, 10, 12],
        Fill::Uniform { lo: -1.0, hi: 1.0 },
        9,
    );
    model.run(&[("x", &x)]).unwrap()[0].bytes().to_vec()
}

/// Decides while it runs, and what is left runs as decided.
fn chosen_online(model: &Arc<CompiledModel>, pool: &Arc<Pool>) {
    let mut running = Model::new(model.clone(), pool.clone()).unwrap();
    let variants = running.variants().clone();
    let chosen = selectors(&variants, None).unwrap();
    running.set_selector(Some(chosen.online()));
    for _ in 0..300 {
        outputs(&mut running);
    }
    assert!(chosen.are_decided());
    let left = decided(&variants, 0, &chosen, THREADS as u32).unwrap();
    assert!(left.steps().iter().all(|s| s.alternatives.len() == 1));
    let mut left = Model::new(Arc::new(left), pool.clone()).unwrap();
    assert_eq!(outputs(&mut left), outputs(&mut running));
}
