//! Steps with alternatives of several kernels, which have tensors of their own between them.

#![cfg(target_arch = "x86_64")]

mod c_object;

use c_object::{built, param};
use runtime::{
    BoundKernel, BuildModelError, BuiltKernel, CompiledModel, FixedSelector, KernelId,
    KernelTarget, Model, ModelBuilder, ParamRole, Pool, Selectors, TensorId, TensorPlace, Variants,
};
use std::sync::Arc;
use tensor::{DType, Tensor};

const N: usize = 64;
const BYTES: u64 = 4 * N as u64;

/// y[i] = x[i] * w[i] + `add`; it fails behind what it wrote if `code` is not 0.
fn scaled(algorithm: &str, add: i64, code: i64) -> BuiltKernel {
    let source = format!(
        "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *x = args[0], *w = args[1];
            float *y = args[2];
            for (long i = 0; i < {N}; i++) y[i] = x[i] * w[i] + {add};
            return {code};
        }}"
    );
    let params = vec![
        param("x", ParamRole::Input, &[N as i64]),
        param("w", ParamRole::Constant, &[N as i64]),
        param("y", ParamRole::Output, &[N as i64]),
    ];
    BuiltKernel {
        algorithm: algorithm.into(),
        ..built(&source, params)
    }
}

fn bound<'a>(kernel: KernelId, x: TensorId, w: TensorId, y: TensorId) -> BoundKernel<'a> {
    BoundKernel {
        kernel,
        bind: vec![("x", x), ("w", w), ("y", y)],
    }
}

fn builder() -> ModelBuilder {
    let pool = Arc::new(Pool::new(1).unwrap());
    ModelBuilder::new("test", KernelTarget::generic(), "tests", pool)
}

fn constant(value: f32) -> Tensor {
    Tensor::from_slice(&[N], &[value; N])
}

/// y = 12 x + 3: by one kernel, by two with a tensor between them (the second of which returns `code`), and by
/// three with two tensors. Then z = y + 1.
fn model(code: i64) -> CompiledModel {
    let mut b = builder();
    let x = b.add_input("x", DType::F32, &[N]);
    let mut tensor = |name| b.add_tensor(name, DType::F32, &[N]);
    let [y, z, t, u, v] = ["y", "z", "t", "u", "v"].map(&mut tensor);
    let [one, two, three, twelve] =
        [1.0, 2.0, 3.0, 12.0].map(|value| b.add_constant(&format!("{value}"), constant(value)));
    let four = b.add_constant("4", constant(4.0));
    let add3 = b.add_kernel(scaled("add.rows", 3, 0));
    let last = b.add_kernel(scaled("last", 3, code));
    let times = b.add_kernel(scaled("times.packed", 0, 0));
    let add1 = b.add_kernel(scaled("next", 1, 0));
    let alternatives = [
        &[bound(times, x, three, t), bound(last, t, four, y)][..],
        &[bound(add3, x, twelve, y)],
        &[
            bound(times, x, two, u),
            bound(times, u, two, v),
            bound(add3, v, three, y),
        ],
    ];
    b.add_stretch("first", &[], &alternatives).unwrap();
    b.add_step("second", &[], &[bound(add1, y, one, z)])
        .unwrap();
    b.mark_output(z);
    b.finish().unwrap()
}

fn input() -> Tensor {
    let values: Vec<f32> = (0..N).map(|i| i as f32).collect();
    Tensor::from_slice(&[N], &values)
}

fn expected() -> Tensor {
    let values: Vec<f32> = (0..N).map(|i| 12.0 * i as f32 + 4.0).collect();
    Tensor::from_slice(&[N], &values)
}

fn loaded(model: CompiledModel) -> Model {
    let pool = Arc::new(Pool::new(1).unwrap());
    Model::new(Arc::new(model), pool).unwrap()
}

fn run(model: &mut Model) -> Tensor {
    model.run(&[("x", &input())]).unwrap().remove(0)
}

/// Written to a file and read again.
fn reread(model: &CompiledModel) -> CompiledModel {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    model.save(&path).unwrap();
    CompiledModel::load(&path).unwrap()
}

fn place(model: &CompiledModel, name: &str) -> TensorPlace {
    model.tensor(model.tensor_named(name).unwrap()).place
}

#[test]
fn every_alternative_gives_the_same_answer() {
    let compiled = reread(&model(0));
    let step = &compiled.steps()[0];
    let calls: Vec<usize> = step.alternatives.iter().map(|a| a.calls.len()).collect();
    assert_eq!(calls, [2, 1, 3]);
    let names: Vec<String> = step
        .alternatives
        .iter()
        .map(|a| compiled.algorithm(a))
        .collect();
    assert_eq!(names, ["times+last", "add", "times+times+add"]);
    let choices = compiled.fixed_choices();
    let choices: Vec<_> = choices
        .iter()
        .map(|c| (&*c.algorithm, c.alternatives[0]))
        .collect();
    let all = [
        ("", 0),
        ("add", 1),
        ("times+last", 0),
        ("times+times+add", 2),
    ];
    assert_eq!(choices, all);
    let mut m = loaded(compiled);
    assert_eq!(run(&mut m), expected());
    for at in 0..3 {
        m.set_selector(Some(Box::new(FixedSelector {
            alternatives: vec![at],
        })));
        assert_eq!(run(&mut m), expected(), "alternative {at}");
        assert_eq!(m.invoke_profiled().unwrap().len(), 2);
    }
}

#[test]
fn tensors_of_different_alternatives_share_memory() {
    let compiled = model(0);
    // The input is kept, and y is alive with it. Beside them the largest alternative has two tensors, and
    // those of the other one are in the same place. The output takes their place as well.
    assert_eq!(compiled.arena_bytes(), 4 * BYTES);
    let (u, v) = (place(&compiled, "u"), place(&compiled, "v"));
    assert_ne!(u, v);
    assert!([u, v].contains(&place(&compiled, "t")));
    for name in ["x", "y"] {
        let other = place(&compiled, name);
        assert!(["t", "u", "v"].iter().all(|t| place(&compiled, t) != other));
    }
}

#[test]
fn a_tensor_between_kernels_is_not_read_from_outside() {
    let mut b = builder();
    let x = b.add_input("x", DType::F32, &[N]);
    let mut tensor = |name| b.add_tensor(name, DType::F32, &[N]);
    let [y, z, t] = ["y", "z", "t"].map(&mut tensor);
    let one = b.add_constant("1", constant(1.0));
    let times = b.add_kernel(scaled("times", 0, 0));
    let whole = [bound(times, x, one, y)];
    let two = [bound(times, x, one, t), bound(times, t, one, y)];
    // What the last call writes is for others: all alternatives have to write it.
    let other = [bound(times, x, one, t), bound(times, t, one, z)];
    let differs = b.add_stretch("s", &[], &[&whole, &other]);
    assert!(matches!(differs, Err(BuildModelError::Outputs { .. })));
    let none = b.add_stretch("s", &[], &[&whole, &[]]);
    assert!(matches!(none, Err(BuildModelError::NoAlternative { .. })));
    // The order of calls counts.
    let reversed = [bound(times, t, one, y), bound(times, x, one, t)];
    let unwritten = b.add_stretch("s", &[], &[&reversed]);
    assert!(matches!(unwritten, Err(BuildModelError::Role { .. })));
    b.add_stretch("s", &[], &[&whole, &two]).unwrap();
    let read = b.add_step("next", &[], &[bound(times, t, one, z)]);
    assert!(matches!(read, Err(BuildModelError::Role { .. })));
    b.mark_output(t);
    assert!(matches!(
        b.finish(),
        Err(BuildModelError::NeverWritten { tensor }) if tensor == "t"
    ));
}

fn selectors(variants: &Variants, known: Option<&Arc<bestof::Decisions>>) -> Selectors {
    Selectors::new(variants, &bestof::Options::default(), known).unwrap()
}

#[test]
fn a_second_call_that_fails_hands_over_to_the_next_alternative() {
    let mut m = loaded(model(7));
    let error = m.run(&[("x", &input())]).unwrap_err().to_string();
    assert!(error.contains("`first` failed"), "{error}");
    let variants = m.variants().clone();
    let selectors = selectors(&variants, None);
    m.set_selector(Some(selectors.online()));
    for _ in 0..40 {
        assert_eq!(run(&mut m), expected());
    }
    let key = |step: usize| variants.selection_key(0, step, 1);
    let decided = selectors.decided(0, key)[0].unwrap();
    assert!(decided > 0);
}

#[test]
fn decisions_hold_for_the_same_kernels_in_another_run() {
    let compiled = model(0);
    let again = Variants::from(Arc::new(reread(&compiled)));
    let mut m = loaded(compiled);
    let variants = m.variants().clone();
    let first = selectors(&variants, None);
    m.set_selector(Some(first.online()));
    for _ in 0..60 {
        assert_eq!(run(&mut m), expected());
    }
    let key = |step: usize| variants.selection_key(0, step, 1);
    let decided = first.decided(0, key);
    assert!(decided[0].is_some() && first.are_decided());
    let mut kept = bestof::Decisions::new();
    first.save(&mut kept);
    let kept = Arc::new(kept);
    let second = selectors(&again, Some(&kept));
    let mut m = Model::of(Arc::new(again), m.pool().clone()).unwrap();
    m.set_selector(Some(second.online()));
    run(&mut m);
    assert_eq!(second.decided(0, key), decided);
    // Nothing is known of other code.
    let other = Variants::from(Arc::new(model(7)));
    let third = selectors(&other, Some(&kept));
    let mut m = Model::of(Arc::new(other), m.pool().clone()).unwrap();
    m.set_selector(Some(third.online()));
    run(&mut m);
    assert_eq!(third.decided(0, key), [None, None]);
}

#[test]
fn alternatives_that_lost_take_no_memory() {
    let compiled = model(0);
    for (choice, kept, constants, arena) in [
        (0, &["t"][..], 3, 3),
        (1, &[], 2, 3),
        (2, &["u", "v"], 3, 4),
    ] {
        let left = reread(&compiled.with_choices(&[choice]));
        assert_eq!(run(&mut loaded(left)), expected());
        let left = compiled.with_choices(&[choice]);
        for name in ["t", "u", "v"] {
            let gone = place(&left, name) == TensorPlace::Discarded;
            assert_eq!(gone, !kept.contains(&name), "{name} of choice {choice}");
        }
        assert_eq!(left.constant_bytes(), constants * BYTES, "choice {choice}");
        assert_eq!(left.arena_bytes(), arena * BYTES, "choice {choice}");
    }
}

/// What was written over is no result of the step.
#[test]
fn what_a_step_leaves_are_tensors_that_hold_their_values() {
    let compiled = model(0);
    let mut m = loaded(compiled);
    m.input_mut(0).copy_from_slice(input().bytes());
    let mut seen = Vec::new();
    m.invoke_observed(|m, step| {
        let left = m.compiled().step_outputs(step);
        for id in left {
            let value = m.tensor(id).unwrap().get_f64(1);
            seen.push((m.compiled().tensor(id).name.clone(), value));
        }
    })
    .unwrap();
    let expected = [("t", 3.0), ("y", 15.0), ("z", 16.0)];
    assert_eq!(seen, expected.map(|(name, v)| (name.to_string(), v)));
}
