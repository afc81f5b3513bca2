//! What a running model lets go once its steps have decided.

#![cfg(target_arch = "x86_64")]

mod c_object;

use bestof::Options;
use c_object::{built, param};
use runtime::{
    BoundKernel, BuiltKernel, CompiledModel, ConstantMemory, Dim, KernelTarget, Model,
    ModelBuilder, ParamRole, Pool, Selectors, Variants,
};
use std::sync::{Arc, Mutex, PoisonError};
use tensor::{DType, Tensor};

const N: usize = 1024;
/// Elements of the constant that the losing alternative prepares.
const PREPARED: usize = 8 << 20;
const PREPARED_BYTES: u64 = 4 * PREPARED as u64;
/// More inferences than deciding takes.
const MANY: usize = 200;

/// y = x * w, so often that it loses, by a large constant that the prepare entry makes.
fn slow(rows: usize) -> BuiltKernel {
    let source = format!(
        "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *x = args[0], *r = args[1];
            volatile float *y = args[2];
            for (long t = 0; t < 300; t++)
                for (long i = 0; i < {rows} * {N}; i++) y[i] = x[i] * r[i % {N}];
            return 0;
        }}
        int prepare(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *w = args[0];
            float *r = args[1];
            for (long i = 0; i < {PREPARED}; i++) r[i] = w[i % {N}];
            return 0;
        }}"
    );
    let prepared = param("r", ParamRole::Prepared, &[PREPARED as i64]);
    let params = vec![
        param("x", ParamRole::Input, &[rows as i64, N as i64]),
        prepared.clone(),
        param("y", ParamRole::Output, &[rows as i64, N as i64]),
    ];
    BuiltKernel {
        algorithm: "slow".into(),
        prepare_entry: Some("prepare".into()),
        prepare_params: vec![param("w", ParamRole::Constant, &[N as i64]), prepared],
        prepare_hash: 41,
        workspace_bytes: 1 << 20,
        ..built(&source, params)
    }
}

/// y = x * w.
fn quick(rows: usize) -> BuiltKernel {
    let source = format!(
        "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *x = args[0], *w = args[1];
            float *y = args[2];
            for (long i = 0; i < {rows} * {N}; i++) y[i] = x[i] * w[i % {N}];
            return 0;
        }}"
    );
    let params = vec![
        param("x", ParamRole::Input, &[rows as i64, N as i64]),
        param("w", ParamRole::Constant, &[N as i64]),
        param("y", ParamRole::Output, &[rows as i64, N as i64]),
    ];
    BuiltKernel {
        algorithm: "quick".into(),
        ..built(&source, params)
    }
}

fn values(shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i: usize| 1.0 + (i % 7) as f32).collect();
    Tensor::from_slice(shape, &values)
}

/// y = 2 x. As a state, x begins with 1, 2 .. 7, 1 .. and becomes y.
fn model(rows: usize, derives: bool, is_state: bool) -> CompiledModel {
    let pool = Arc::new(Pool::new(1).unwrap());
    let mut b = ModelBuilder::new("test", KernelTarget::generic(), "tests", pool);
    if derives {
        b.derive_at_load();
    }
    let kernels = [b.add_kernel(slow(rows)), b.add_kernel(quick(rows))];
    let x = b.add_input("x", DType::F32, &[rows, N]);
    let w = b.add_constant("w", Tensor::from_slice(&[N], &[2f32; N]));
    let y = b.add_tensor("y", DType::F32, &[rows, N]);
    let bound = |kernel| BoundKernel {
        kernel,
        bind: vec![("x", x), ("w", w), ("y", y)],
    };
    b.add_step("s", &[], &kernels.map(bound)).unwrap();
    b.release(w);
    b.mark_output(y);
    if is_state {
        b.add_state(0, 0, values(&[rows, N]));
    }
    b.finish().unwrap()
}

fn selectors(variants: &Variants) -> Selectors {
    Selectors::new(variants, &Options::default(), None).unwrap()
}

/// A model that chooses as these selectors say.
fn choosing(variants: &Arc<Variants>, of: &Selectors) -> Model {
    let pool = Arc::new(Pool::new(1).unwrap());
    let mut model = Model::of(variants.clone(), pool).unwrap();
    model.set_selector(Some(of.online()));
    model
}

fn run(model: &mut Model, rows: usize) -> Tensor {
    let x = values(&[rows, N]);
    model.run(&[("x", &x)]).unwrap().remove(0)
}

/// y = 2 x.
fn doubled(rows: usize, times: i32) -> Tensor {
    let shape = [rows, N];
    let all = values(&shape);
    let all: Vec<f32> = all
        .as_slice::<f32>()
        .iter()
        .map(|v| v * 2f32.powi(times))
        .collect();
    Tensor::from_slice(&shape, &all)
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Tests take turns, as they look at the memory of the process.
fn alone() -> impl Drop {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn what_lost_is_free_once_every_model_has_let_it_go() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    model(1, true, false).save(&path).unwrap();
    for memory in [ConstantMemory::Memory, ConstantMemory::Mapped] {
        let variants = Arc::new(Variants::load_with(&path, memory).unwrap());
        let selectors = selectors(&variants);
        let mut models = [0, 1].map(|_| choosing(&variants, &selectors));
        assert!(Arc::ptr_eq(models[0].variants(), models[1].variants()));
        assert_eq!(
            models[0].retire(&selectors).unwrap(),
            0,
            "nothing is decided"
        );
        for _ in 0..MANY {
            assert_eq!(run(&mut models[0], 1), doubled(1, 1));
        }
        assert!(selectors.are_decided());
        let (full, before) = (models[0].memory(), resident_bytes());
        assert!(full.constants >= PREPARED_BYTES, "{full:?}");
        let released = models[0].retire(&selectors).unwrap();
        let left = models[0].memory();
        assert_eq!(released, full.total() - left.total());
        assert!(released >= PREPARED_BYTES, "{full:?} {left:?}");
        assert!(left.workspace < full.workspace && left.code < full.code);
        assert_eq!(left.constants == 0, memory == ConstantMemory::Mapped);
        // The output is there still, and the other model runs on with all that it had.
        assert_eq!(models[0].output_tensor(0), doubled(1, 1));
        assert!(resident_bytes() + PREPARED_BYTES / 2 > before);
        for model in &mut models {
            assert_eq!(run(model, 1), doubled(1, 1));
        }
        assert_eq!(models[1].memory(), full);
        assert_eq!(models[1].retire(&selectors).unwrap(), released);
        let freed = before.saturating_sub(resident_bytes());
        assert!(freed > PREPARED_BYTES / 4 * 3, "{freed} bytes are free");
        // What is left is one for both, and nothing more is let go.
        assert!(Arc::ptr_eq(models[0].variants(), models[1].variants()));
        for model in &mut models {
            assert_eq!(model.retire(&selectors).unwrap(), 0);
            assert_eq!(run(model, 1), doubled(1, 1));
        }
        // Models that are made afterwards have all alternatives again, and start decided.
        let mut later = choosing(&variants, &selectors);
        assert_eq!(run(&mut later, 1), doubled(1, 1));
        assert_eq!(later.retire(&selectors).unwrap(), released);
    }
}

#[test]
fn constants_that_are_a_small_part_of_a_buffer_are_copied_out_of_it() {
    let _turn = alone();
    // Built constants lie in one buffer.
    let variants = Arc::new(Variants::from(Arc::new(model(1, false, false))));
    let selectors = selectors(&variants);
    let mut model = choosing(&variants, &selectors);
    drop(variants);
    for _ in 0..MANY {
        run(&mut model, 1);
    }
    let before = resident_bytes();
    assert!(model.retire(&selectors).unwrap() >= PREPARED_BYTES);
    assert!(model.memory().constants < 64 << 10, "{:?}", model.memory());
    let freed = before.saturating_sub(resident_bytes());
    assert!(freed > PREPARED_BYTES / 4 * 3, "{freed} bytes are free");
    assert_eq!(run(&mut model, 1), doubled(1, 1));
}

#[test]
fn states_go_on_where_they_were() {
    let _turn = alone();
    let variants = Arc::new(Variants::from(Arc::new(model(1, false, true))));
    let selectors = selectors(&variants);
    let mut model = choosing(&variants, &selectors);
    // Twice what it was, so there is an end.
    for _ in 0..MANY {
        model.reset_states();
        model.invoke().unwrap();
    }
    model.invoke().unwrap();
    assert_eq!(model.output_tensor(0), doubled(1, 2));
    assert!(model.retire(&selectors).unwrap() >= PREPARED_BYTES);
    assert_eq!(model.output_tensor(0), doubled(1, 2));
    model.invoke().unwrap();
    assert_eq!(model.output_tensor(0), doubled(1, 3));
    model.reset_states();
    model.invoke().unwrap();
    assert_eq!(model.output_tensor(0), doubled(1, 1));
}

#[test]
fn variants_that_have_not_decided_keep_their_alternatives() {
    let _turn = alone();
    let rows = Dim {
        name: "rows".into(),
        inputs: vec![(0, 0)],
        padding: None,
    };
    let first = Arc::new(model(1, false, false));
    let mut variants = Variants::new(vec![rows], first).unwrap();
    variants.add(&model(2, false, false)).unwrap();
    let variants = Arc::new(variants);
    let selectors = selectors(&variants);
    let mut running = choosing(&variants, &selectors);
    let choices = |m: &Model| {
        let models = m.variants().models().iter();
        models
            .map(|m| m.steps_with_choice().count())
            .collect::<Vec<_>>()
    };
    for _ in 0..MANY {
        run(&mut running, 2);
    }
    // The other variant's kernel has the same prepared constant.
    assert!(running.retire(&selectors).unwrap() < PREPARED_BYTES);
    assert_eq!(choices(&running), [1, 0]);
    for _ in 0..MANY {
        assert_eq!(run(&mut running, 1), doubled(1, 1));
    }
    assert_eq!(run(&mut running, 2), doubled(2, 1));
    assert!(running.retire(&selectors).unwrap() >= PREPARED_BYTES);
    assert_eq!(choices(&running), [0, 0]);
    for rows in [1, 2] {
        assert_eq!(run(&mut running, rows), doubled(rows, 1));
    }
}
