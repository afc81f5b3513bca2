//! The library in a program that does not serve as a worker: it is told which one does.

use std::path::Path;
use std::sync::Arc;
use tempfile::tempdir;
use tunesmith::{
    CompiledModel, DType, Host, ImportOptions, Machine, Model, Pool, Requirements, Tensor, Workers,
    check, compile, load,
};

const OP: &str = "op:dense(m=4,n=32,k=16,bias=yes)";

#[test]
fn a_program_of_the_same_sources_serves_and_its_models_run_here() {
    let machine = Machine::host();
    let target = machine.target(2);
    let program = Path::new(env!("CARGO_BIN_EXE_tunesmith"));
    let host = Host {
        machine,
        workers: Workers::of_program(program).unwrap(),
    };
    let source = load(OP, &ImportOptions::default()).unwrap();
    let requirements = Requirements::of_knobs();
    let compiled = compile(source.clone(), &target, &host, None, requirements).unwrap();
    let folder = tempdir().unwrap();
    let path = folder.path().join("dense.tsm");
    compiled.model.save(&path).unwrap();

    let loaded = CompiledModel::load(&path).unwrap();
    let mut model = Model::new(Arc::new(loaded), Arc::new(Pool::new(2).unwrap())).unwrap();
    let agreement = check(&source, &target, &mut model, 3, requirements.tolerance).unwrap();
    assert!(agreement.ok && !agreement.layers.is_empty());
    let other = load("op:dense(m=4,n=32,k=17)", &ImportOptions::default()).unwrap();
    let refused = check(&other, &target, &mut model, 3, requirements.tolerance).unwrap_err();
    assert!(
        refused.to_string().contains("compiled from another model"),
        "{refused}"
    );

    let wrong = Tensor::zeros(DType::F32, &[4, 17]);
    assert!(model.run(&[("x", &wrong)]).is_err());
}

#[test]
fn what_is_wrong_with_a_model_is_said_without_flags() {
    let sized = ImportOptions {
        batch: Some(8),
        ..ImportOptions::default()
    };
    for name in ["bert-base", OP, "resnet1800", "op:dense(size=4)"] {
        let refused = load(name, &sized).err().expect("it has no open sizes");
        let text = format!("{refused}; {}", refused.advice().expect("there is some"));
        assert!(!text.contains("--"), "{text}");
    }
}

#[test]
fn a_program_that_does_not_serve_is_refused_with_advice() {
    // A runner holds no compiler, so it cannot build.
    let runner = env!("CARGO_BIN_EXE_tunesmith-runner");
    for program in [runner, "/no/such/program"] {
        let refused = Workers::of_program(Path::new(program)).unwrap_err();
        assert!(refused.to_string().contains(program), "{refused}");
        let advice = refused.advice().unwrap();
        assert!(advice.contains("serve_worker_if_asked"), "{advice}");
    }
}
