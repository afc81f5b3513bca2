//! What is left of a model once the alternatives of its steps are chosen.

#![cfg(target_arch = "x86_64")]

mod c_object;

use c_object::{built, param};
use runtime::{
    BoundKernel, BuiltKernel, CompiledModel, KernelTarget, Model, ModelBuilder, ParamRole, Pool,
};
use std::sync::Arc;
use tensor::{DType, Tensor};

const N: usize = 64;

/// y[i] = x[i] * w[i], by a constant that the prepare entry reverses.
fn reversed() -> BuiltKernel {
    let source = "
    int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *x = args[0], *r = args[1];
        float *y = args[2];
        for (long i = 0; i < 64; i++) y[i] = x[i] * r[63 - i];
        return 0;
    }
    int prepare(const Ctx *ctx, void *const *args, void *workspace) {
        const float *w = args[0];
        float *r = args[1];
        for (long i = 0; i < 64; i++) r[i] = w[63 - i];
        return 0;
    }";
    let prepared = param("r", ParamRole::Prepared, &[64]);
    let params = vec![
        param("x", ParamRole::Input, &[64]),
        prepared.clone(),
        param("y", ParamRole::Output, &[64]),
    ];
    BuiltKernel {
        algorithm: "reversed.rows".into(),
        prepare_entry: Some("prepare".into()),
        prepare_params: vec![param("w", ParamRole::Constant, &[64]), prepared],
        ..built(source, params)
    }
}

/// The same by the constant as it is.
fn plain() -> BuiltKernel {
    let source = "
    int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *x = args[0], *w = args[1];
        float *y = args[2];
        for (long i = 0; i < 64; i++) y[i] = x[i] * w[i];
        return 0;
    }";
    let params = vec![
        param("x", ParamRole::Input, &[64]),
        param("w", ParamRole::Constant, &[64]),
        param("y", ParamRole::Output, &[64]),
    ];
    BuiltKernel {
        algorithm: "plain".into(),
        ..built(source, params)
    }
}

/// A step with both ways, and one with the plain way alone.
fn model(w: &Tensor) -> CompiledModel {
    let pool = Arc::new(Pool::new(1).unwrap());
    let mut b = ModelBuilder::new("test", KernelTarget::generic(), "tests", pool);
    let both = [b.add_kernel(reversed()), b.add_kernel(plain())];
    let x = b.add_input("x", DType::F32, &[N]);
    let weights = b.add_constant("w", w.clone());
    let other = b.add_constant("other", values(2.0));
    let (y, z) = (
        b.add_tensor("y", DType::F32, &[N]),
        b.add_tensor("z", DType::F32, &[N]),
    );
    let bound = |kernel, x, w, y| BoundKernel {
        kernel,
        bind: vec![("x", x), ("w", w), ("y", y)],
    };
    let choices = both.map(|kernel| bound(kernel, x, weights, y));
    b.add_step("first", &[], &choices).unwrap();
    b.add_step("second", &[], &[bound(both[1], y, other, z)])
        .unwrap();
    b.mark_output(z);
    b.finish().unwrap()
}

fn values(first: f32) -> Tensor {
    let values: Vec<f32> = (0..N).map(|i| first + i as f32).collect();
    Tensor::from_slice(&[N], &values)
}

fn run(compiled: CompiledModel, x: &Tensor) -> Tensor {
    let pool = Arc::new(Pool::new(1).unwrap());
    let mut model = Model::new(Arc::new(compiled), pool).unwrap();
    model.run(&[("x", x)]).unwrap().remove(0)
}

#[test]
fn fixed_choices_are_the_first_alternatives_and_each_algorithm() {
    let choices: Vec<(String, usize, Vec<usize>)> = model(&values(1.0))
        .fixed_choices()
        .into_iter()
        .map(|c| (c.algorithm, c.steps, c.alternatives))
        .collect();
    let expected = [("", 0), ("plain", 1), ("reversed", 0)];
    let expected = expected.map(|(name, at)| (name.to_string(), 1, vec![at, 0]));
    assert_eq!(choices, expected);
}

#[test]
fn choices_that_are_made_leave_one_alternative_and_its_constants() {
    let (x, w) = (values(3.0), values(1.0));
    let bytes = (N * 4) as u64;
    assert_eq!(model(&w).constant_bytes(), 3 * bytes);
    let expected = run(model(&w), &x);
    for (choices, kernels) in [
        (&[][..], &["reversed.rows", "plain"][..]),
        (&[0, 0], &["reversed.rows", "plain"]),
        (&[1], &["plain"]),
    ] {
        let left = model(&w).with_choices(choices);
        let names: Vec<&str> = left.kernels().iter().map(|k| &*k.algorithm).collect();
        assert_eq!(names, kernels);
        assert!(left.steps().iter().all(|s| s.alternatives.len() == 1));
        assert_eq!(left.constant_bytes(), 2 * bytes);
        assert_eq!(left.fixed_choices()[0].steps, 0);
        // A file is only read if the model in it is consistent.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("left.tsm");
        left.save(&path).unwrap();
        assert_eq!(run(CompiledModel::load(&path).unwrap(), &x), expected);
    }
}

#[test]
#[should_panic(expected = "choice 2 of 2 for step 0")]
fn a_choice_that_a_step_does_not_have_is_a_bug() {
    let _ = model(&values(1.0)).with_choices(&[2]);
}
