//! Constants that a file leaves out and that are made when a model is made ready to run.

#![cfg(target_arch = "x86_64")]

mod c_object;

use c_object::{built, param};
use runtime::{
    BoundKernel, BuiltKernel, CompiledModel, ConstantMemory, Dim, KernelTarget, LoadError, Model,
    ModelBuilder, ParamRole, Pool, Variants,
};
use std::path::Path;
use std::sync::Arc;
use tensor::{DType, Tensor};

const N: usize = 4096;
const BYTES: u64 = N as u64 * 4;

/// y[j, i] = x[j, i] * w[i], by a constant of twice the size, which the prepare entry makes. The entry fails on 13 threads.
fn reversed(rows: usize) -> BuiltKernel {
    let source = "
    int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *x = args[0], *r = args[1];
        float *y = args[2];
        for (long j = 0; j < ROWS; j++)
            for (long i = 0; i < 4096; i++) y[j * 4096 + i] = x[j * 4096 + i] * (r[4095 - i] - r[4096 + i]);
        return 0;
    }
    int prepare(const Ctx *ctx, void *const *args, void *workspace) {
        const float *w = args[0];
        float *r = args[1];
        if (ctx->threads == 13) return 3;
        for (long i = 0; i < 4096; i++) r[i] = 3 * w[4095 - i], r[4096 + i] = 2 * w[i];
        return 0;
    }";
    let source = &source.replace("ROWS", &rows.to_string());
    let prepared = param("r", ParamRole::Prepared, &[2 * N as i64]);
    let params = vec![
        param("x", ParamRole::Input, &[rows as i64, N as i64]),
        prepared.clone(),
        param("y", ParamRole::Output, &[rows as i64, N as i64]),
    ];
    BuiltKernel {
        algorithm: "reversed".into(),
        prepare_entry: Some("prepare".into()),
        prepare_params: vec![param("w", ParamRole::Constant, &[N as i64]), prepared],
        // Entries of any number of rows make the same.
        prepare_hash: 77,
        ..built(source, params)
    }
}

/// The same by the constant as it is.
fn plain() -> BuiltKernel {
    let source = "
    int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *x = args[0], *w = args[1];
        float *y = args[2];
        for (long i = 0; i < 4096; i++) y[i] = x[i] * w[i];
        return 0;
    }";
    let params = vec![
        param("x", ParamRole::Input, &[1, N as i64]),
        param("w", ParamRole::Constant, &[N as i64]),
        param("y", ParamRole::Output, &[1, N as i64]),
    ];
    built(source, params)
}

fn values(shape: &[usize], first: f32) -> Tensor {
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i: usize| first + i as f32).collect();
    Tensor::from_slice(shape, &values)
}

/// A step with both ways or with the first of them, whose weights nobody else uses.
fn model(ways: usize, derives: bool) -> CompiledModel {
    model_of(1, ways, derives)
}

fn model_of(rows: usize, ways: usize, derives: bool) -> CompiledModel {
    let pool = Arc::new(Pool::new(1).unwrap());
    let mut b = ModelBuilder::new("test", KernelTarget::generic(), "tests", pool);
    if derives {
        b.derive_at_load();
    }
    let kernels = [b.add_kernel(reversed(rows)), b.add_kernel(plain())];
    let x = b.add_input("x", DType::F32, &[rows, N]);
    let w = b.add_constant("w", values(&[N], 1.0));
    let y = b.add_tensor("y", DType::F32, &[rows, N]);
    let bind = vec![("x", x), ("w", w), ("y", y)];
    let bound = |kernel| BoundKernel {
        kernel,
        bind: bind.clone(),
    };
    b.add_step(
        "s",
        &[],
        &kernels[..ways]
            .iter()
            .copied()
            .map(bound)
            .collect::<Vec<_>>(),
    )
    .unwrap();
    b.release(w);
    b.mark_output(y);
    b.finish().unwrap()
}

fn run(compiled: CompiledModel) -> Tensor {
    let pool = Arc::new(Pool::new(2).unwrap());
    let mut model = Model::new(Arc::new(compiled), pool).unwrap();
    model
        .run(&[("x", &values(&[1, N], 3.0))])
        .unwrap()
        .remove(0)
}

fn constant_lengths(model: &CompiledModel) -> Vec<(usize, bool)> {
    let all = model
        .constants()
        .map(|(bytes, prepared)| (bytes.len(), prepared));
    all.collect()
}

fn derived_bytes(model: &CompiledModel) -> u64 {
    Variants::from(Arc::new(model.with_choices(&[]))).derived_bytes()
}

fn file_bytes(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

#[test]
fn a_file_has_what_constants_are_made_of_instead_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let [usual, derived, again] = ["usual", "derived", "again"].map(|n| folder.path().join(n));
    let expected = run(model(1, false));
    model(1, false).save(&usual).unwrap();
    let built = model(1, true);
    assert_eq!(derived_bytes(&built), 2 * BYTES);
    assert_eq!(constant_lengths(&built), [(N * 4, false), (N * 8, true)]);
    built.save(&derived).unwrap();
    assert_eq!(run(built), expected);
    assert!((file_bytes(&usual) - file_bytes(&derived)).abs_diff(BYTES) < 200);
    // Loading runs nothing.
    let loaded = CompiledModel::load(&derived).unwrap();
    assert_eq!(derived_bytes(&loaded), 2 * BYTES);
    assert_eq!(constant_lengths(&loaded), [(N * 4, false), (0, true)]);
    loaded.save(&again).unwrap();
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    assert_eq!(bytes(&again), bytes(&derived));
    assert_eq!(run(loaded), expected);
    let mapped = CompiledModel::load_with(&derived, ConstantMemory::Mapped).unwrap();
    assert_eq!(run(mapped), expected);
}

#[test]
fn both_are_smaller_where_the_weights_are_used_as_they_are_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    model(2, false).save(&path).unwrap();
    let usual = file_bytes(&path);
    model(2, true).save(&path).unwrap();
    assert!(usual - file_bytes(&path) > 2 * BYTES - 200);
    // Choosing keeps what the choice is made of, and no more.
    let expected = run(model(2, false));
    for (choice, made, constants) in [(0, 1, 2), (1, 0, 1)] {
        let chosen = CompiledModel::load(&path).unwrap().with_choices(&[choice]);
        assert_eq!(derived_bytes(&chosen), 2 * made * BYTES);
        assert_eq!(chosen.constants().count(), constants);
        let other = folder.path().join("chosen.tsm");
        chosen.save(&other).unwrap();
        assert_eq!(run(CompiledModel::load(&other).unwrap()), expected);
        assert_eq!(run(chosen), expected);
    }
}

#[test]
fn instances_of_one_model_share_what_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    model(1, true).save(&path).unwrap();
    let variants = Arc::new(Variants::load(&path).unwrap());
    let pool = Arc::new(Pool::new(1).unwrap());
    let models = [0, 1].map(|_| Model::of(variants.clone(), pool.clone()).unwrap());
    let made = |m: &Model| m.compiled().constants().nth(1).unwrap().0.as_ptr();
    assert_eq!(made(&models[0]), made(&models[1]));
}

#[test]
fn variants_share_what_is_made_of_the_same_constants() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    let dim = Dim {
        name: "rows".into(),
        inputs: vec![(0, 0)],
        padding: None,
    };
    let mut variants = Variants::new(vec![dim], Arc::new(model(1, true))).unwrap();
    variants.add(&model_of(2, 1, true)).unwrap();
    variants.save(&path).unwrap();
    // The weights, once.
    assert!(file_bytes(&path) < 2 * BYTES);
    let pool = Arc::new(Pool::new(1).unwrap());
    let mut model = Model::of(Arc::new(Variants::load(&path).unwrap()), pool).unwrap();
    let made = |m: &Arc<CompiledModel>| m.constants().nth(1).unwrap().0.as_ptr();
    let all = model.variants().models();
    assert_eq!(made(&all[0]), made(&all[1]));
    for rows in [1, 2] {
        let x = values(&[rows, N], 3.0);
        let y = model.run(&[("x", &x)]).unwrap().remove(0);
        let at = rows * N - 1;
        assert_eq!(y.get_f64(at), x.get_f64(at) * N as f64);
    }
}

#[test]
fn an_entry_that_fails_is_an_error_of_making_the_model_ready() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    model(1, true).save(&path).unwrap();
    let error = Model::load(&path, 13).err().unwrap();
    assert!(matches!(error, LoadError::Derived(_)), "{error}");
    Model::load(&path, 2).unwrap();
}
