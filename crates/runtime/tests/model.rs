//! Building and running models of kernels written in C.

#![cfg(target_arch = "x86_64")]

mod c_object;

use c_object::{built, param};
use runtime::{
    BoundKernel, BuildModelError, BuiltKernel, Choice, CompiledModel, FixedSelector, KernelFailure,
    KernelTarget, Model, ModelBuilder, ParamRole, Pool, RunError, SelectionKey, Selector, StepId,
    TensorId, TensorPlace,
};
use std::sync::{Arc, Mutex};
use tensor::{DType, Fill, Tensor, fill_tensor};

const M: usize = 6;
const K: usize = 8;
const N: usize = 12;

/// y = x * w with w packed to [N/4][K][4] by the prepare entry; rows are split
/// over the workers, and each worker keeps a row in its own part of the
/// workspace.
const DENSE: &str = "
enum { M = 6, K = 8, N = 12 };
typedef struct { void *const *args; char *workspace; } Env;
static int rows(const Ctx *ctx, void *env, long begin, long end, int worker) {
    const Env *e = env;
    const float *x = e->args[0], *packed = e->args[1];
    float *y = e->args[2], *row = (float *)(e->workspace + 64 + worker * 64);
    for (long i = begin; i < end; i++) {
        for (long j = 0; j < N; j++) row[j] = 0;
        for (long k = 0; k < K; k++)
            for (long j = 0; j < N; j++)
                row[j] += x[i * K + k] * packed[(j / 4 * K + k) * 4 + j % 4];
        for (long j = 0; j < N; j++) y[i * N + j] = row[j];
    }
    return 0;
}
int kernel(const Ctx *ctx, void *const *args, void *workspace) {
    Env env = {args, workspace};
    *(long *)workspace = 1;
    return ctx->parallel_for(ctx, rows, &env, M);
}
int prepare(const Ctx *ctx, void *const *args, void *workspace) {
    const float *w = args[0];
    float *packed = args[1];
    for (long k = 0; k < K; k++)
        for (long j = 0; j < N; j++)
            packed[(j / 4 * K + k) * 4 + j % 4] = w[k * N + j];
    return 0;
}
";

fn dense() -> BuiltKernel {
    let packed = param("packed", ParamRole::Prepared, &[3, 8, 4]);
    let params = vec![
        param("x", ParamRole::Input, &[6, 8]),
        packed.clone(),
        param("y", ParamRole::Output, &[6, 12]),
    ];
    BuiltKernel {
        prepare_entry: Some("prepare".into()),
        prepare_params: vec![param("w", ParamRole::Constant, &[8, 12]), packed],
        workspace_bytes: 8,
        worker_workspace_bytes: 48,
        ..built(DENSE, params)
    }
}

/// The same without packing and threads, reading the constant as it is.
fn plain_dense() -> BuiltKernel {
    let source = "
    int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *x = args[0], *w = args[1];
        float *y = args[2];
        for (long i = 0; i < 6; i++)
            for (long j = 0; j < 12; j++) {
                float sum = 0;
                for (long k = 0; k < 8; k++) sum += x[i * 8 + k] * w[k * 12 + j];
                y[i * 12 + j] = sum;
            }
        return 0;
    }";
    let params = vec![
        param("x", ParamRole::Input, &[6, 8]),
        param("w", ParamRole::Constant, &[8, 12]),
        param("y", ParamRole::Output, &[6, 12]),
    ];
    built(source, params)
}

/// y = max(x, 0) + bias, element by element.
fn relu_bias(n: i64) -> BuiltKernel {
    let source = format!(
        "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *x = args[0], *bias = args[1];
            float *y = args[2];
            for (long i = 0; i < {n}; i++) y[i] = (x[i] > 0 ? x[i] : 0) + bias[i];
            return 0;
        }}"
    );
    let params = vec![
        param("x", ParamRole::Input, &[n]),
        param("bias", ParamRole::Constant, &[n]),
        param("y", ParamRole::Output, &[n]),
    ];
    built(&source, params)
}

fn builder(threads: usize) -> ModelBuilder {
    let pool = Arc::new(Pool::new(threads).unwrap());
    ModelBuilder::new("test", KernelTarget::generic(), "tests", pool)
}

fn integers(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::F32, shape, Fill::Integers { lo: -3, hi: 3 }, seed)
}

fn expected_dense(x: &Tensor, w: &Tensor) -> Tensor {
    let mut y = Tensor::zeros(DType::F32, &[M, N]);
    for i in 0..M {
        for j in 0..N {
            let sum = (0..K)
                .map(|k| x.get_f64(i * K + k) * w.get_f64(k * N + j))
                .sum();
            y.set_f64(i * N + j, sum);
        }
    }
    y
}

fn expected_relu_bias(x: &Tensor, bias: &Tensor) -> Tensor {
    let mut y = x.clone();
    for i in 0..x.len() {
        y.set_f64(i, x.get_f64(i).max(0.0) + bias.get_f64(i));
    }
    y
}

/// Two dense layers on one input, with the same weights and different biases.
struct Mlp {
    compiled: Arc<CompiledModel>,
    x: Tensor,
    expected: [Tensor; 2],
    hidden: [TensorId; 2],
}

fn mlp() -> Mlp {
    let mut b = builder(2);
    let (dense, relu) = (b.add_kernel(dense()), b.add_kernel(relu_bias(72)));
    assert_eq!(b.add_kernel(relu_bias(72)), relu, "equal kernels are one");
    let x = integers(&[M, K], 1);
    let w = integers(&[K, N], 2);
    let input = b.add_input("x", DType::F32, &[M, K]);
    let (mut hidden, mut expected) = (Vec::new(), Vec::new());
    for layer in 0..2u64 {
        let bias = integers(&[72], 3 + layer);
        let weights = b.add_constant("w", w.clone());
        let bias_id = b.add_constant("bias", bias.clone());
        let h = b.add_tensor(&format!("hidden{layer}"), DType::F32, &[M, N]);
        let flat = b
            .add_view("flat", h, 0, DType::F32, &[M * N], None)
            .unwrap();
        let y = b.add_tensor(&format!("y{layer}"), DType::F32, &[M * N]);
        let bind = vec![("x", input), ("w", weights), ("y", h)];
        b.add_step(
            &format!("dense{layer}"),
            &[6, 8],
            &[BoundKernel {
                kernel: dense,
                bind,
            }],
        )
        .unwrap();
        let bind = vec![("x", flat), ("bias", bias_id), ("y", y)];
        b.add_step(
            &format!("relu{layer}"),
            &[],
            &[BoundKernel { kernel: relu, bind }],
        )
        .unwrap();
        b.mark_output(y);
        hidden.push(h);
        let product = expected_dense(&x, &w).reshaped(&[M * N]);
        expected.push(expected_relu_bias(&product, &bias));
    }
    let compiled = Arc::new(b.finish().unwrap());
    let expected = expected.try_into().unwrap();
    Mlp {
        compiled,
        x,
        expected,
        hidden: [hidden[0], hidden[1]],
    }
}

#[test]
fn a_model_computes_what_its_kernels_say() {
    let mlp = mlp();
    for threads in [1, 2, 5] {
        let pool = Arc::new(Pool::new(threads).unwrap());
        let mut model = Model::new(Arc::clone(&mlp.compiled), pool).unwrap();
        for _ in 0..3 {
            assert_eq!(model.run(&[("x", &mlp.x)]).unwrap(), mlp.expected);
        }
        let threads = model.pool().ctx().threads;
        assert_eq!(
            mlp.compiled.workspace_bytes(threads),
            64 + 64 * u64::from(threads)
        );
    }
}

/// `relu_bias` that may write over x.
fn relu_bias_in_place(n: i64) -> BuiltKernel {
    BuiltKernel {
        in_place: vec![(2, 0)],
        ..relu_bias(n)
    }
}

/// x -> relu -> h0 -> relu -> h1 -> relu -> y, and what is read again at the end, if anything.
fn chain(kernel: BuiltKernel, again: Option<usize>) -> (CompiledModel, Tensor, Tensor) {
    let (x, bias) = (integers(&[64], 1), integers(&[64], 2));
    let mut b = builder(1);
    let kernel = b.add_kernel(kernel);
    let bias_id = b.add_constant("bias", bias.clone());
    let mut from = b.add_input("x", DType::F32, &[64]);
    let mut expected = x.clone();
    let mut all = Vec::new();
    let step = |b: &mut ModelBuilder, name: &str, x: TensorId| {
        let y = b.add_tensor(name, DType::F32, &[64]);
        let bind = vec![("x", x), ("bias", bias_id), ("y", y)];
        b.add_step(name, &[], &[BoundKernel { kernel, bind }])
            .unwrap();
        y
    };
    for name in ["h0", "h1", "y"] {
        from = step(&mut b, name, from);
        expected = expected_relu_bias(&expected, &bias);
        all.push(from);
    }
    if let Some(i) = again {
        let last = step(&mut b, "again", all[i]);
        b.mark_output(last);
    }
    b.mark_output(from);
    (b.finish().unwrap(), x, expected)
}

#[test]
fn an_output_takes_the_memory_of_an_input_that_nobody_reads_again() {
    let (apart, x, expected) = chain(relu_bias(64), None);
    let (shared, ..) = chain(relu_bias_in_place(64), None);
    // The model's own input is the caller's: only h1 and y have the memory of h0.
    assert_eq!((apart.arena_bytes(), apart.steps_in_place()), (3 * 256, 0));
    assert_eq!(
        (shared.arena_bytes(), shared.steps_in_place()),
        (2 * 256, 2)
    );
    let pool = || Arc::new(Pool::new(1).unwrap());
    let mut model = Model::new(Arc::new(shared), pool()).unwrap();
    for _ in 0..2 {
        assert_eq!(model.run(&[("x", &x)]).unwrap()[0], expected);
    }
    // h0 is read at the end: h1 does not overwrite it.
    let (kept, ..) = chain(relu_bias_in_place(64), Some(0));
    assert_eq!(kept.steps_in_place(), 2);
    let mut model = Model::new(Arc::new(kept), pool()).unwrap();
    assert_eq!(model.run(&[("x", &x)]).unwrap()[1], expected);
}

#[test]
fn what_another_argument_reads_too_is_not_overwritten() {
    let source = "int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *a = args[0], *b = args[1];
        float *y = args[2];
        for (long i = 0; i < 64; i++) y[i] = a[i] + b[63 - i];
        return 0;
    }";
    let params = vec![
        param("a", ParamRole::Input, &[64]),
        param("b", ParamRole::Input, &[64]),
        param("y", ParamRole::Output, &[64]),
    ];
    let kernel = BuiltKernel {
        in_place: vec![(2, 0)],
        ..built(source, params)
    };
    for (second, wanted) in [("x", 1), ("h", 0)] {
        let mut b = builder(1);
        let relu = b.add_kernel(relu_bias(64));
        let mirror = b.add_kernel(kernel.clone());
        let bias = b.add_constant("bias", integers(&[64], 2));
        let x = b.add_input("x", DType::F32, &[64]);
        let h = b.add_tensor("h", DType::F32, &[64]);
        let y = b.add_tensor("y", DType::F32, &[64]);
        let bind = vec![("x", x), ("bias", bias), ("y", h)];
        b.add_step("relu", &[], &[BoundKernel { kernel: relu, bind }])
            .unwrap();
        let other = if second == "x" { x } else { h };
        let bind = vec![("a", h), ("b", other), ("y", y)];
        b.add_step(
            "mirror",
            &[],
            &[BoundKernel {
                kernel: mirror,
                bind,
            }],
        )
        .unwrap();
        b.mark_output(y);
        assert_eq!(b.finish().unwrap().steps_in_place(), wanted, "{second}");
    }
}

#[test]
fn a_released_constant_is_dropped_unless_a_step_reads_it_as_it_is() {
    for (kernel, kept) in [(dense(), false), (plain_dense(), true)] {
        let mut b = builder(1);
        let kernel = b.add_kernel(kernel);
        let value = Arc::new(integers(&[K, N], 2));
        let (held, equal) = (Arc::downgrade(&value), (*value).clone());
        let x = b.add_input("x", DType::F32, &[M, K]);
        let (w, same) = (b.add_constant("w", value), b.add_constant("same", equal));
        let y = b.add_tensor("y", DType::F32, &[M, N]);
        let bind = vec![("x", x), ("w", w), ("y", y)];
        b.add_step("dense", &[], &[BoundKernel { kernel, bind }])
            .unwrap();
        b.release(w);
        assert!(held.upgrade().is_some(), "an equal one may be used");
        b.release(same);
        assert_eq!(held.upgrade().is_some(), kept);
        b.release(y);
        b.mark_output(y);
        assert_eq!(b.finish().unwrap().constant_bytes(), (K * N * 4) as u64);
    }
}

#[test]
fn memory_and_constants_are_shared() {
    let compiled = mlp().compiled;
    // x, one hidden tensor at a time, y0 and y1.
    let (x, hidden) = (M * K * 4, M * N * 4);
    let padded = |n: usize| n.next_multiple_of(64) as u64;
    assert_eq!(compiled.arena_bytes(), padded(x) + 3 * padded(hidden));
    // The packed weights once, two biases, and no plain weights.
    assert_eq!(compiled.constant_bytes(), (K * N * 4 + 2 * 72 * 4) as u64);
    let weights = compiled.tensor_named("w").unwrap();
    assert_eq!(compiled.tensor(weights).place, TensorPlace::Discarded);
    assert!(compiled.tensor_named("dense0.packed").is_some());
    assert!(
        compiled.tensor_named("dense1.packed").is_none(),
        "prepared twice"
    );
}

#[test]
fn inputs_stay_and_outputs_are_read_in_place() {
    let mlp = mlp();
    let mut model = Model::new(mlp.compiled, Arc::new(Pool::new(2).unwrap())).unwrap();
    model.input_mut(0).copy_from_slice(mlp.x.bytes());
    for _ in 0..3 {
        model.invoke().unwrap();
        assert_eq!(model.output(0), mlp.expected[0].bytes());
        assert_eq!(model.output_tensor(1), mlp.expected[1]);
    }
    assert_eq!(model.invoke_profiled().unwrap().len(), 4);
    assert_eq!(model.output(0), mlp.expected[0].bytes());
}

#[test]
fn every_step_can_be_observed() {
    let mlp = mlp();
    let mut model = Model::new(mlp.compiled, Arc::new(Pool::new(1).unwrap())).unwrap();
    model.input_mut(0).copy_from_slice(mlp.x.bytes());
    let mut seen = Vec::new();
    model
        .invoke_observed(|model, step| {
            for id in model.compiled().step_outputs(step) {
                seen.push((step.index(), id, model.tensor(id).unwrap()));
            }
        })
        .unwrap();
    let order: Vec<usize> = seen.iter().map(|(step, ..)| *step).collect();
    assert_eq!(order, [0, 1, 2, 3]);
    assert_eq!((seen[0].1, seen[2].1), (mlp.hidden[0], mlp.hidden[1]));
    assert_eq!(seen[0].2, seen[2].2);
    assert_eq!(
        (&seen[1].2, &seen[3].2),
        (&mlp.expected[0], &mlp.expected[1])
    );
}

#[test]
fn wrong_inputs_are_named() {
    let mlp = mlp();
    let mut model = Model::new(mlp.compiled, Arc::new(Pool::new(1).unwrap())).unwrap();
    let x = &mlp.x;
    assert!(matches!(model.run(&[]), Err(RunError::MissingInput { name, .. }) if name == "x"));
    assert!(matches!(
        model.run(&[("x", x), ("z", x)]),
        Err(RunError::UnknownInput { name, known }) if name == "z" && known == "x"
    ));
    assert!(matches!(
        model.run(&[("x", x), ("x", x)]),
        Err(RunError::DuplicateInput { name }) if name == "x"
    ));
    let flat = x.clone().reshaped(&[M * K]);
    assert!(matches!(
        model.run(&[("x", &flat)]),
        Err(RunError::InputShape { given, expected, .. }) if given == [48] && expected == "[6, 8]"
    ));
    let whole = Tensor::zeros(DType::I32, &[M, K]);
    assert!(matches!(
        model.run(&[("x", &whole)]),
        Err(RunError::InputType {
            given: DType::I32,
            expected: DType::F32,
            ..
        })
    ));
}

/// Alternates, and notes what it was told.
#[derive(Clone, Default)]
struct Alternating(Arc<Mutex<Vec<(StepId, SelectionKey, usize)>>>);

impl Selector for Alternating {
    fn select(&mut self, _: StepId, _: &SelectionKey, alternatives: usize) -> Choice {
        Choice {
            alternative: self.0.lock().unwrap().len() % alternatives,
            timed: true,
        }
    }

    fn finished(&mut self, step: StepId, key: &SelectionKey, alternative: usize, _: u64) {
        self.0
            .lock()
            .unwrap()
            .push((step, key.clone(), alternative));
    }
}

#[test]
fn a_selector_chooses_among_alternatives() {
    let mut b = builder(1);
    let packed = b.add_kernel(dense());
    let plain = b.add_kernel(plain_dense());
    let wrong = b.add_kernel(BuiltKernel {
        code: c_object::compile(
            "int kernel(const Ctx *c, void *const *a, void *w) { *(float *)a[1] = 77; return 0; }",
        ),
        params: vec![
            param("x", ParamRole::Input, &[6, 8]),
            param("y", ParamRole::Output, &[6, 12]),
        ],
        ..plain_dense()
    });
    let x = integers(&[M, K], 1);
    let w = integers(&[K, N], 2);
    let input = b.add_input("x", DType::F32, &[M, K]);
    let weights = b.add_constant("w", w.clone());
    let y = b.add_tensor("y", DType::F32, &[M, N]);
    let bind = vec![("x", input), ("w", weights), ("y", y)];
    let choices = [
        BoundKernel {
            kernel: packed,
            bind: bind.clone(),
        },
        BoundKernel {
            kernel: plain,
            bind,
        },
        BoundKernel {
            kernel: wrong,
            bind: vec![("x", input), ("y", y)],
        },
    ];
    let step = b.add_step("dense", &[6, 8, 12], &choices).unwrap();
    b.mark_output(y);
    let pool = Arc::new(Pool::new(2).unwrap());
    let mut model = Model::new(Arc::new(b.finish().unwrap()), pool).unwrap();
    let expected = expected_dense(&x, &w);
    let first = |model: &mut Model| {
        let y = model.run(&[("x", &x)]).unwrap().remove(0);
        (y == expected, y.get_f64(0) == 77.0)
    };
    assert_eq!(first(&mut model), (true, false));
    model.set_selector(Some(Box::new(FixedSelector {
        alternatives: vec![2],
    })));
    assert_eq!(first(&mut model), (false, true));
    let selector = Alternating::default();
    model.set_selector(Some(Box::new(selector.clone())));
    let results: Vec<_> = (0..4).map(|_| first(&mut model).0).collect();
    assert_eq!(results, [true, true, false, true]);
    let key = SelectionKey {
        shape: vec![6, 8, 12],
        threads: 2,
    };
    let told = selector.0.lock().unwrap().clone();
    assert_eq!(told, [0, 1, 2, 0].map(|choice| (step, key.clone(), choice)));
}

#[test]
fn views_read_and_write_parts_of_a_tensor() {
    let fill = |value: f32, shape: &[i64], row: i64| {
        let source = format!(
            "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
                const float *x = args[0];
                float *y = args[1];
                for (long i = 0; i < 2; i++)
                    for (long j = 0; j < 3; j++) y[i * {row} + j] = x[i * 3 + j] + {value};
                return 0;
            }}"
        );
        let x = param("x", ParamRole::Input, &[2, 3]);
        built(&source, vec![x, param("y", ParamRole::Output, shape)])
    };
    let mut b = builder(1);
    let x = b.add_input("x", DType::F32, &[2, 3]);
    // Two halves of the columns of one tensor, and a row of it as a view of a view.
    let both = b.add_tensor("both", DType::F32, &[2, 6]);
    let left = b
        .add_view("left", both, 0, DType::F32, &[2, 3], Some(&[6, 1]))
        .unwrap();
    let right = b
        .add_view("right", both, 12, DType::F32, &[2, 3], Some(&[6, 1]))
        .unwrap();
    let rows = b
        .add_view("rows", both, 24, DType::F32, &[6], None)
        .unwrap();
    let tail = b.add_view("tail", rows, 8, DType::F32, &[4], None).unwrap();
    let (one, two) = (
        b.add_kernel(fill(10.0, &[2, 3], 6)),
        b.add_kernel(fill(20.0, &[2, 3], 6)),
    );
    let choice = |kernel, x, y| BoundKernel {
        kernel,
        bind: vec![("x", x), ("y", y)],
    };
    b.add_step("left", &[], &[choice(one, x, left)]).unwrap();
    b.add_step("right", &[], &[choice(two, x, right)]).unwrap();
    for output in [both, tail] {
        b.mark_output(output);
    }
    let compiled = Arc::new(b.finish().unwrap());
    let mut model = Model::new(compiled, Arc::new(Pool::new(1).unwrap())).unwrap();
    let x = Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let outputs = model.run(&[("x", &x)]).unwrap();
    let both = [
        11f32, 12.0, 13.0, 21.0, 22.0, 23.0, 14.0, 15.0, 16.0, 24.0, 25.0, 26.0,
    ];
    assert_eq!(outputs[0], Tensor::from_slice(&[2, 6], &both));
    assert_eq!(outputs[1], Tensor::from_slice(&[4], &both[8..]));
    let right = model.tensor(right).unwrap();
    assert_eq!(
        right,
        Tensor::from_slice(&[2, 3], &[21f32, 22.0, 23.0, 24.0, 25.0, 26.0])
    );
}

#[test]
fn a_step_may_read_and_write_disjoint_parts_of_one_tensor() {
    let mut b = builder(1);
    let relu = b.add_kernel(relu_bias(4));
    let bias = b.add_constant("bias", Tensor::zeros(DType::F32, &[4]));
    let t = b.add_tensor("t", DType::F32, &[2, 4]);
    let x = b.add_input("x", DType::F32, &[4]);
    let mut view = |offset, strides: Option<&[usize]>| {
        let shape: &[usize] = if strides.is_some() { &[2, 2] } else { &[4] };
        b.add_view("v", t, offset, DType::F32, shape, strides)
            .unwrap()
    };
    let (top, bottom, middle) = (view(0, None), view(16, None), view(8, None));
    let (left, right) = (view(0, Some(&[4, 1])), view(8, Some(&[4, 1])));
    let mut step = |x, y| {
        let bind = vec![("x", x), ("bias", bias), ("y", y)];
        b.add_step("s", &[], &[BoundKernel { kernel: relu, bind }])
            .is_ok()
    };
    assert!(step(x, top) && step(top, bottom) && step(left, right));
    assert!(!step(top, middle) && !step(middle, bottom) && !step(left, left));
    assert!(!step(top, right), "a row and columns that cross it");
}

#[test]
fn a_failing_kernel_names_its_step() {
    let source = "int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *x = args[0];
        *(float *)args[1] = 0;
        return (int)x[0];
    }";
    let mut b = builder(1);
    let params = vec![
        param("x", ParamRole::Input, &[1]),
        param("y", ParamRole::Output, &[1]),
    ];
    let kernel = b.add_kernel(built(source, params));
    let (x, y) = (
        b.add_input("x", DType::F32, &[1]),
        b.add_tensor("y", DType::F32, &[1]),
    );
    b.add_step(
        "gather",
        &[],
        &[BoundKernel {
            kernel,
            bind: vec![("x", x), ("y", y)],
        }],
    )
    .unwrap();
    b.mark_output(y);
    let compiled = Arc::new(b.finish().unwrap());
    let mut model = Model::new(compiled, Arc::new(Pool::new(1).unwrap())).unwrap();
    let mut run = |code: f32| {
        model
            .run(&[("x", &Tensor::from_slice(&[1], &[code]))])
            .map(|_| ())
    };
    assert_eq!(run(0.0), Ok(()));
    for (code, failure) in [
        (1.0, KernelFailure::IndexOutOfBounds),
        (9.0, KernelFailure::Other(9)),
    ] {
        assert_eq!(
            run(code),
            Err(RunError::Kernel {
                step: "gather".into(),
                failure
            })
        );
    }
}

#[test]
fn wrong_bindings_are_refused() {
    let mut b = builder(1);
    let (relu, dense) = (b.add_kernel(relu_bias(4)), b.add_kernel(dense()));
    let x = b.add_input("x", DType::F32, &[4]);
    let bias = b.add_constant("bias", Tensor::zeros(DType::F32, &[4]));
    let y = b.add_tensor("y", DType::F32, &[4]);
    let z = b.add_tensor("z", DType::F32, &[4]);
    let long = b.add_tensor("long", DType::F32, &[5]);
    let whole = b.add_tensor("whole", DType::I32, &[4]);
    let wide = b.add_input("wide", DType::F32, &[M, K]);
    let product = b.add_tensor("product", DType::F32, &[M, N]);
    let mut step = |kernel, bind: Vec<(&str, TensorId)>| {
        b.add_step("step", &[], &[BoundKernel { kernel, bind }])
            .expect_err("a wrong binding")
    };
    let role = |error: BuildModelError| match error {
        BuildModelError::Role {
            tensor,
            param,
            reason,
            ..
        } => (tensor, param, reason),
        other => panic!("{other}"),
    };
    assert!(matches!(
        step(relu, vec![("x", x), ("bias", bias), ("y", y), ("w", x)]),
        BuildModelError::UnknownParam { param, .. } if param == "w"
    ));
    assert!(matches!(
        step(relu, vec![("x", x), ("y", y)]),
        BuildModelError::Unbound { param, .. } if param == "bias"
    ));
    assert!(matches!(
        step(dense, vec![("x", wide), ("y", product)]),
        BuildModelError::Unbound { param, .. } if param == "w"
    ));
    for wrong in [long, whole] {
        assert!(matches!(
            step(relu, vec![("x", x), ("bias", bias), ("y", wrong)]),
            BuildModelError::Mismatch { param, .. } if param == "y"
        ));
    }
    let reason = |e| role(e).2;
    assert!(reason(step(relu, vec![("x", y), ("bias", bias), ("y", z)])).contains("no earlier"));
    assert!(reason(step(relu, vec![("x", x), ("bias", x), ("y", z)])).contains("not a constant"));
    assert!(reason(step(relu, vec![("x", x), ("bias", bias), ("y", bias)])).contains("constant"));
    assert!(reason(step(relu, vec![("x", x), ("bias", bias), ("y", x)])).contains("input"));
}

#[test]
fn wrong_steps_are_refused() {
    let mut b = builder(1);
    let relu = b.add_kernel(relu_bias(4));
    let x = b.add_input("x", DType::F32, &[4]);
    let bias = b.add_constant("bias", Tensor::zeros(DType::F32, &[4]));
    let y = b.add_tensor("y", DType::F32, &[4]);
    let z = b.add_tensor("z", DType::F32, &[4]);
    let choice = |x, y| BoundKernel {
        kernel: relu,
        bind: vec![("x", x), ("bias", bias), ("y", y)],
    };
    b.add_step("first", &[], &[choice(x, y)]).unwrap();
    assert!(matches!(
        b.add_step("second", &[], &[choice(y, y)]),
        Err(BuildModelError::InPlace { tensor, .. }) if tensor == "y"
    ));
    let third = b.add_step("third", &[], &[choice(x, y), choice(x, z)]);
    assert!(matches!(third, Err(BuildModelError::Outputs { .. })));
    assert!(matches!(
        b.add_step("none", &[], &[]),
        Err(BuildModelError::NoAlternative { .. })
    ));
    b.mark_output(z);
    assert!(matches!(b.finish(), Err(BuildModelError::NeverWritten { tensor }) if tensor == "z"));
}

#[test]
fn views_outside_their_tensor_are_refused() {
    let mut b = builder(1);
    let x = b.add_tensor("x", DType::F32, &[4, 4]);
    let mut view = |offset, dtype, shape: &[usize], strides: Option<&[usize]>| {
        b.add_view("v", x, offset, dtype, shape, strides).is_ok()
    };
    assert!(view(0, DType::F32, &[16], None) && !view(0, DType::F32, &[17], None));
    assert!(view(32, DType::F32, &[8], None) && !view(36, DType::F32, &[8], None));
    assert!(view(0, DType::F32, &[4, 2], Some(&[4, 2])));
    assert!(view(4, DType::F32, &[4, 2], Some(&[4, 2])));
    assert!(
        !view(8, DType::F32, &[4, 2], Some(&[4, 2])),
        "ends past the last element"
    );
    assert!(
        !view(0, DType::F32, &[4, 2], Some(&[1])),
        "strides of another rank"
    );
    assert!(!view(2, DType::F32, &[1], None) && view(2, DType::F16, &[1], None));
    assert!(!view(u64::MAX - 3, DType::F32, &[1], None));
    assert!(!view(0, DType::F32, &[usize::MAX, usize::MAX], None));
}

#[test]
fn prepare_entries_that_fail_are_reported() {
    let try_prepare = |body: &str| {
        let mut b = builder(1);
        let source = format!(
            "int kernel(const Ctx *c, void *const *args, void *w) {{ return 0; }}
             int prepare(const Ctx *c, void *const *args, void *workspace) {{ {body} }}"
        );
        let packed = param("p", ParamRole::Prepared, &[3]);
        let kernel = b.add_kernel(BuiltKernel {
            prepare_entry: Some("prepare".into()),
            prepare_params: vec![param("w", ParamRole::Constant, &[3]), packed.clone()],
            prepare_workspace_bytes: 3,
            ..built(&source, vec![packed, param("y", ParamRole::Output, &[1])])
        });
        let w = b.add_constant("w", integers(&[3], 1));
        let y = b.add_tensor("y", DType::F32, &[1]);
        b.add_step(
            "s",
            &[],
            &[BoundKernel {
                kernel,
                bind: vec![("w", w), ("y", y)],
            }],
        )
        .map(|_| ())
    };
    try_prepare("((float *)args[1])[2] = 1; ((char *)workspace)[2] = 1; return 0;").unwrap();
    assert!(matches!(
        try_prepare("return 5;"),
        Err(BuildModelError::Prepare {
            failure: KernelFailure::Other(5),
            ..
        })
    ));
    for body in ["((float *)args[1])[3] = 1;", "((char *)args[1])[-1] ^= 1;"] {
        let error = try_prepare(&format!("{body} return 0;")).unwrap_err();
        assert!(
            matches!(error, BuildModelError::PrepareCanary { .. }),
            "{error}"
        );
    }
    let foreign = built(
        "double exp(double); int prepare(void) { return exp(1.5); }",
        Vec::new(),
    );
    let mut b = builder(1);
    let kernel = b.add_kernel(BuiltKernel {
        prepare_entry: Some("prepare".into()),
        ..foreign
    });
    assert!(matches!(
        b.add_step(
            "s",
            &[],
            &[BoundKernel {
                kernel,
                bind: Vec::new()
            }]
        ),
        Err(BuildModelError::Code { .. })
    ));
}
