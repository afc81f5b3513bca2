//! Several variants in one artifact: what they share, which one inputs select, and padding.

#![cfg(target_arch = "x86_64")]

mod c_object;

use c_object::{built, param};
use runtime::{
    BoundKernel, BuiltKernel, CompiledModel, ConstantMemory, Dim, KernelTarget, LoadError, Model,
    ModelBuilder, OutputRows, Padding, ParamRole, Pool, RunError, Variants,
};
use std::path::Path;
use std::sync::Arc;
use tensor::{DType, Tensor};

const COLUMNS: usize = 512;

/// y[i][j] = x[i][j] * reversed a[j], for so many rows.
fn kernel(rows: usize) -> BuiltKernel {
    let source = format!(
        "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
        const float *x = args[0], *b = args[1];
        float *y = args[2];
        for (long i = 0; i < {rows} * 512; i++) y[i] = x[i] * b[i % 512];
        return 0;
    }}
    int prepare(const Ctx *ctx, void *const *args, void *workspace) {{
        const float *a = args[0];
        float *b = args[1];
        for (long i = 0; i < 512; i++) b[i] = a[511 - i];
        return 0;
    }}"
    );
    let (a, b) = (
        param("a", ParamRole::Constant, &[512]),
        param("b", ParamRole::Prepared, &[512]),
    );
    let shape = [rows as i64, 512];
    let params = vec![
        param("x", ParamRole::Input, &shape),
        b.clone(),
        param("y", ParamRole::Output, &shape),
    ];
    BuiltKernel {
        target: KernelTarget::generic(),
        prepare_entry: Some("prepare".into()),
        prepare_params: vec![a, b],
        ..built(&source, params)
    }
}

fn variant(rows: usize) -> CompiledModel {
    let pool = Arc::new(Pool::new(1).unwrap());
    let mut b = ModelBuilder::new("rows", KernelTarget::generic(), "test", pool);
    let kernel = b.add_kernel(kernel(rows));
    let x = b.add_input("x", DType::F32, &[rows, COLUMNS]);
    let values: Vec<f32> = (0..COLUMNS).map(|i| i as f32).collect();
    let a = b.add_constant("a", Tensor::from_slice(&[COLUMNS], &values));
    let y = b.add_tensor("y", DType::F32, &[rows, COLUMNS]);
    let bind = vec![("x", x), ("a", a), ("y", y)];
    b.add_step("s", &[], &[BoundKernel { kernel, bind }])
        .unwrap();
    b.mark_output(y);
    b.finish().unwrap()
}

fn dim(padded: bool) -> Dim {
    let rows = OutputRows { axis: 0, each: 1 };
    let (outputs, zeros) = (vec![Some(rows)], vec![]);
    Dim {
        name: "batch".into(),
        inputs: vec![(0, 0)],
        padding: padded.then_some(Padding { outputs, zeros }),
    }
}

fn variants(sizes: &[usize], padded: bool) -> Variants {
    let first = Arc::new(variant(sizes[0]));
    let mut all = Variants::new(vec![dim(padded)], first).unwrap();
    for size in &sizes[1..] {
        all.add(&variant(*size)).unwrap();
    }
    all
}

fn input(rows: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * COLUMNS).map(|i| (i % 97) as f32).collect();
    Tensor::from_slice(&[rows, COLUMNS], &values)
}

fn check(model: &mut Model, rows: usize) {
    let x = input(rows);
    let y = model.run(&[("x", &x)]).unwrap().remove(0);
    let expected = x.as_slice::<f32>().iter().enumerate();
    let expected: Vec<f32> = expected
        .map(|(i, x)| x * (COLUMNS - 1 - i % COLUMNS) as f32)
        .collect();
    assert_eq!(y, Tensor::from_slice(&[rows, COLUMNS], &expected));
}

fn running(variants: Variants) -> Model {
    let pool = Arc::new(Pool::new(1).unwrap());
    Model::of(Arc::new(variants), pool).unwrap()
}

fn refusal(model: &mut Model, shape: &[usize]) -> RunError {
    let x = Tensor::zeros(DType::F32, shape);
    model.run(&[("x", &x)]).map(|_| ()).unwrap_err()
}

fn saved(variants: &Variants, path: &Path) -> u64 {
    variants.save(path).unwrap()
}

#[test]
fn inputs_select_their_variant() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    saved(&variants(&[1, 4, 16], false), &path);
    for constants in [ConstantMemory::Memory, ConstantMemory::Mapped] {
        let loaded = Variants::load_with(&path, constants).unwrap();
        assert_eq!(loaded.dims(), [dim(false)]);
        let mut model = running(loaded);
        for (at, rows) in [(1, 4), (0, 1), (2, 16), (2, 16), (0, 1)] {
            check(&mut model, rows);
            assert_eq!(
                (model.variant(), model.variants().sizes(at)),
                (at, vec![rows])
            );
        }
        let before = model.variant();
        let said = refusal(&mut model, &[3, COLUMNS]).to_string();
        assert_eq!(
            said,
            "batch is 3; the model was compiled for batch=1, 4, 16"
        );
        let said = refusal(&mut model, &[4, 5]).to_string();
        assert_eq!(
            said,
            "input `x` has shape [4, 5]; the model takes [batch, 512]"
        );
        refusal(&mut model, &[4]);
        assert_eq!(model.variant(), before);
        check(&mut model, 1);
    }
}

#[test]
fn smaller_sizes_are_padded_to_the_next_variant() {
    let mut model = running(variants(&[2, 5], true));
    for rows in [1, 2, 3, 4, 5] {
        check(&mut model, rows);
        assert_eq!(model.variant(), usize::from(rows > 2));
    }
    let said = refusal(&mut model, &[6, COLUMNS]).to_string();
    assert!(
        said.contains("batch=2, 5; smaller ones are padded"),
        "{said}"
    );
    refusal(&mut model, &[0, COLUMNS]);
}

#[test]
fn a_file_says_which_inputs_are_padded_with_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    let padded = |input| {
        let mut dim = dim(true);
        dim.padding.as_mut().unwrap().zeros = vec![input];
        Variants::new(vec![dim], Arc::new(variant(4)))
    };
    let all = padded(0).unwrap();
    saved(&all, &path);
    let loaded = Variants::load(&path).unwrap();
    assert_eq!(loaded.dims(), all.dims());
    check(&mut running(loaded), 3);
    assert!(padded(1).is_err(), "there is no such input");
}

#[test]
fn equal_constants_and_kernels_are_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |sizes: &[usize]| {
        let path = dir.path().join(format!("{}.tsm", sizes.len()));
        let file = saved(&variants(sizes, false), &path);
        assert_eq!(file, std::fs::metadata(&path).unwrap().len());
        let loaded = Variants::load(&path).unwrap();
        // What was read can be written again, and is the same file.
        let again = dir.path().join("again.tsm");
        loaded.save(&again).unwrap();
        assert!(std::fs::read(&path).unwrap() == std::fs::read(again).unwrap());
        file
    };
    let (one, three) = (bytes(&[1]), bytes(&[1, 4, 16]));
    let constants = (COLUMNS * 4) as u64;
    let own = saved_code(&[4, 16]);
    assert!(
        three < one + own + constants,
        "{three} after {one} and {own}"
    );
}

/// About what variants add: their code and a part of the manifest.
fn saved_code(sizes: &[usize]) -> u64 {
    let code = sizes.iter().map(|n| kernel(*n).code.len() as u64 + 1024);
    code.sum()
}

#[test]
fn several_variants_are_not_one_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.tsm");
    saved(&variants(&[1, 4], false), &path);
    let refused = CompiledModel::load(&path).unwrap_err();
    assert!(matches!(
        refused,
        LoadError::SeveralVariants { count: 2, .. }
    ));
}

#[test]
fn variants_that_contradict_each_other_are_refused() {
    let mut all = variants(&[1, 4], false);
    assert!(all.add(&variant(4)).is_err(), "the size is there");
    assert_eq!(all.models().len(), 2);
    let no_dims = |dims| Variants::new(dims, Arc::new(variant(1)));
    let misplaced = |at| Dim {
        inputs: at,
        ..dim(false)
    };
    for at in [vec![], vec![(1, 0)], vec![(0, 2)]] {
        assert!(no_dims(vec![misplaced(at)]).is_err());
    }
    assert!(
        no_dims(vec![dim(false), dim(false)]).is_err(),
        "one name twice"
    );
    let mut fixed = no_dims(vec![]).unwrap();
    assert!(fixed.add(&variant(2)).is_err(), "no dimension has the size");
    let rows = OutputRows { axis: 0, each: 2 };
    let wrong = Dim {
        padding: Some(Padding {
            outputs: vec![Some(rows)],
            zeros: vec![],
        }),
        ..dim(true)
    };
    assert!(no_dims(vec![wrong]).is_err(), "outputs have other rows");
}

#[test]
fn sizes_are_found_by_name() {
    let all = variants(&[1, 4], false);
    let of = |name: &str, size| all.with_sizes(&[(name.into(), size)]);
    assert_eq!(of("batch", 4).unwrap(), [1]);
    assert_eq!(all.with_sizes(&[]).unwrap(), [0, 1]);
    assert_eq!(all.label(1), "batch=4");
    assert!(matches!(
        of("batch", 2),
        Err(RunError::NoVariant { given: 2, .. })
    ));
    let unknown = of("seq", 4).unwrap_err().to_string();
    assert!(unknown.contains("its dimensions are batch"), "{unknown}");
}
