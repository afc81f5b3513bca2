//! Groups of steps that are not neighbours: a set of alternatives keeps a tensor from one step for a later one.

#![cfg(target_arch = "x86_64")]

mod c_object;

use bestof::Decisions;
use c_object::{built, param};
use runtime::{
    BoundKernel, BuildModelError, BuiltKernel, CompiledModel, FixedSelector, Gone, KernelId,
    KernelTarget, Model, ModelBuilder, ParamRole, Pool, Reason, Selectors, TensorId, TensorPlace,
    Variants,
};
use std::sync::Arc;
use tensor::{DType, Tensor};

const N: usize = 64;
const BYTES: u64 = 4 * N as u64;

/// The code of a kernel that fails where the first number is below 0.
const BELOW_0: i64 = -1;

/// y[i] = x[i] * `times` + `add`, computed as often as `repeat` says; it fails if `code` is not 0.
fn kernel(algorithm: &str, [times, add, repeat, code]: [i64; 4]) -> BuiltKernel {
    let source = format!(
        "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *x = args[0];
            volatile float *y = args[1];
            for (long r = 0; r < {repeat}; r++)
                for (long i = 0; i < {N}; i++) y[i] = x[i] * {times} + {add};
            return {code} == {BELOW_0} ? 7 * (x[0] < 0) : {code};
        }}"
    );
    let params = vec![
        param("x", ParamRole::Input, &[N as i64]),
        param("y", ParamRole::Output, &[N as i64]),
    ];
    BuiltKernel {
        algorithm: algorithm.into(),
        ..built(&source, params)
    }
}

fn bound<'a>(kernel: KernelId, x: TensorId, y: TensorId) -> BoundKernel<'a> {
    BoundKernel {
        kernel,
        bind: vec![("x", x), ("y", y)],
    }
}

fn builder() -> ModelBuilder {
    let pool = Arc::new(Pool::new(1).unwrap());
    ModelBuilder::new("test", KernelTarget::generic(), "tests", pool)
}

/// What kernels of a model take and give.
#[derive(Clone, Copy)]
struct Kernels {
    /// How often the second free alternative computes the first step, and the code of the first one.
    other: [i64; 2],
    /// How often the free alternative and the set compute the last step.
    repeat: [i64; 2],
    /// What the set gives in the first step and in the last.
    codes: [i64; 2],
}

const QUICK_SET: Kernels = Kernels {
    other: [30, 0],
    repeat: [400, 1],
    codes: [0, 0],
};

/// y = 12 x + 3, v = 2 (y + 1) = 24 x + 8, u = 6 x, of which the first step and the last are a group: the set writes
/// t = 3 x in the first step, and reads it in the last. Both steps are there twice, for equal inputs.
fn model(of: Kernels) -> CompiledModel {
    let mut b = builder();
    let x = b.add_input("x", DType::F32, &[N]);
    let free = b.add_kernel(kernel("free", [12, 3, 1, of.other[1]]));
    let other = b.add_kernel(kernel("other", [12, 3, of.other[0], 0]));
    let save = b.add_kernel(kernel("save", [3, 0, 1, 0]));
    let product = b.add_kernel(kernel("product", [4, 3, 1, of.codes[0]]));
    let next = b.add_kernel(kernel("next", [1, 1, 1, 0]));
    let twice = b.add_kernel(kernel("twice", [2, 0, 1, 0]));
    let last = b.add_kernel(kernel("last", [6, 0, of.repeat[0], 0]));
    let reads = b.add_kernel(kernel("reads", [2, 0, of.repeat[1], of.codes[1]]));
    let groups = [b.add_group(1), b.add_group(1)];
    let mut tensors = Vec::new();
    for at in 0..2 {
        let mut tensor = |name: &str| b.add_tensor(&format!("{name}{at}"), DType::F32, &[N]);
        tensors.push(["y", "t", "z", "v", "u"].map(&mut tensor));
    }
    for (group, [y, t, ..]) in groups.iter().zip(&tensors) {
        let set = [bound(save, x, *t), bound(product, *t, *y)];
        let choices = [&[bound(free, x, *y)][..], &[bound(other, x, *y)], &set];
        b.add_member(*group, "first", &[], &choices).unwrap();
    }
    for [y, _, z, v, _] in &tensors {
        b.add_step("next", &[], &[bound(next, *y, *z)]).unwrap();
        b.add_step("twice", &[], &[bound(twice, *z, *v)]).unwrap();
    }
    for (group, [_, t, _, v, u]) in groups.iter().zip(&tensors).rev() {
        let choices = [&[bound(last, x, *u)][..], &[bound(reads, *t, *u)]];
        b.add_member(*group, "last", &[], &choices).unwrap();
        b.mark_output(*v);
        b.mark_output(*u);
    }
    b.finish().unwrap()
}

fn input() -> Tensor {
    let values: Vec<f32> = (0..N).map(|i| i as f32).collect();
    Tensor::from_slice(&[N], &values)
}

fn assert_right(model: &mut Model) {
    let of = |times: f32, add: f32| {
        let values: Vec<f32> = (0..N).map(|i| times * i as f32 + add).collect();
        Tensor::from_slice(&[N], &values)
    };
    let [v, u] = [of(24.0, 8.0), of(6.0, 0.0)];
    let found = model.run(&[("x", &input())]).unwrap();
    assert_eq!(found, [v.clone(), u.clone(), v, u]);
}

fn loaded(model: CompiledModel) -> Model {
    let pool = Arc::new(Pool::new(1).unwrap());
    Model::new(Arc::new(model), pool).unwrap()
}

/// Written to a file and read again.
fn reread(model: &CompiledModel) -> CompiledModel {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    model.save(&path).unwrap();
    CompiledModel::load(&path).unwrap()
}

fn selectors(variants: &Variants, known: Option<&Arc<bestof::Decisions>>) -> Selectors {
    Selectors::new(variants, &bestof::Options::default(), known).unwrap()
}

/// Runs with a choice made online until it is made; the decided alternatives.
fn decided(m: &mut Model) -> (Selectors, Vec<Option<usize>>) {
    let variants = m.variants().clone();
    let selectors = selectors(&variants, None);
    m.set_selector(Some(selectors.online()));
    for _ in 0..400 {
        assert_right(m);
    }
    assert!(selectors.are_decided());
    let chosen = selectors.decided(0, |step| variants.selection_key(0, step, 1));
    (selectors, chosen)
}

/// By step: first, first, next, twice, next, twice, last, last.
fn fixed(first: [usize; 2], last: [usize; 2]) -> Vec<usize> {
    vec![first[0], first[1], 0, 0, 0, 0, last[1], last[0]]
}

#[test]
fn all_sets_give_the_same_answer() {
    let compiled = reread(&model(QUICK_SET));
    assert_eq!(compiled.groups(), model(QUICK_SET).groups());
    let free: Vec<usize> = (0..8).map(|at| compiled.free_alternatives(at)).collect();
    assert_eq!(free, [2, 2, 1, 1, 1, 1, 1, 1]);
    for (first, last) in [
        ([0, 0], [0, 0]),
        ([1, 2], [0, 1]),
        ([2, 1], [1, 0]),
        ([2, 2], [1, 1]),
    ] {
        let mut m = loaded(reread(&compiled));
        let alternatives = fixed(first, last);
        let left = compiled.with_choices(&alternatives);
        m.set_selector(Some(Box::new(FixedSelector { alternatives })));
        assert_right(&mut m);
        for (at, first) in first.iter().enumerate() {
            let kept = left.tensor_named(&format!("t{at}")).unwrap();
            let gone = left.tensor(kept).place == TensorPlace::Discarded;
            assert_eq!(gone, *first < 2);
        }
        assert!(left.groups().is_empty());
        assert_right(&mut loaded(reread(&left)));
    }
}

#[test]
fn what_a_set_keeps_has_memory_until_its_last_step() {
    let compiled = model(QUICK_SET);
    let place = |name: &str| compiled.tensor(compiled.tensor_named(name).unwrap()).place;
    let between = ["t1", "y0", "z0", "v0", "y1", "z1", "v1", "u0", "u1"];
    assert!(between.iter().all(|other| place(other) != place("t0")));
    let without = compiled.with_choices(&[]);
    assert!(without.arena_bytes() + BYTES <= compiled.arena_bytes());
}

/// The first step is asked for its group, so no selector can mix sets.
#[test]
fn later_steps_follow_the_first() {
    let mut m = loaded(model(QUICK_SET));
    let alternatives = fixed([2, 2], [0, 0]);
    m.set_selector(Some(Box::new(FixedSelector { alternatives })));
    assert_right(&mut m);
}

#[test]
#[should_panic(expected = "the selector chose 1 of 1")]
fn no_set_begins_at_a_later_step() {
    let mut m = loaded(model(QUICK_SET));
    let alternatives = fixed([0, 0], [0, 1]);
    m.set_selector(Some(Box::new(FixedSelector { alternatives })));
    let _ = m.run(&[("x", &input())]);
}

#[test]
#[should_panic(expected = "the steps of a group run sets")]
fn choices_of_different_sets_are_refused() {
    let _ = model(QUICK_SET).with_choices(&fixed([2, 0], [0, 0]));
}

#[test]
fn equal_groups_decide_together_by_the_time_of_all_steps() {
    let mut m = loaded(model(QUICK_SET));
    let (_, chosen) = decided(&mut m);
    let all = fixed([2, 2], [1, 1]).into_iter().map(Some);
    let only = |at: usize| [2, 3, 4, 5].contains(&at);
    let all = all.enumerate().map(|(at, a)| a.filter(|_| !only(at)));
    assert_eq!(chosen, all.collect::<Vec<_>>());
    let slow_set = Kernels {
        repeat: [1, 400],
        ..QUICK_SET
    };
    let mut m = loaded(model(slow_set));
    let (selectors, chosen) = decided(&mut m);
    assert_eq!([chosen[0], chosen[1]], [Some(0); 2]);
    assert_eq!([chosen[6], chosen[7]], [Some(0); 2]);
    let key = m.variants().selection_key(0, 0, 1);
    let times = selectors.group_medians(0, 0, &key);
    assert!(times[0].unwrap() < times[1].unwrap(), "{times:?}");
    assert_eq!(selectors.medians(0, 0, &key).len(), 3);
    // Decided models need no selectors.
    let choices: Vec<usize> = chosen.iter().map(|c| c.unwrap_or(0)).collect();
    assert_right(&mut loaded(m.compiled().with_choices(&choices)));
}

#[test]
fn decisions_about_groups_survive_the_program() {
    let mut m = loaded(model(QUICK_SET));
    let (first, chosen) = decided(&mut m);
    let mut kept = bestof::Decisions::new();
    first.save(&mut kept);
    let again = Arc::new(Variants::from(Arc::new(reread(&model(QUICK_SET)))));
    let second = selectors(&again, Some(&Arc::new(kept)));
    let mut m = Model::of(again.clone(), m.pool().clone()).unwrap();
    m.set_selector(Some(second.online()));
    assert_right(&mut m);
    let key = |step: usize| again.selection_key(0, step, 1);
    assert_eq!(second.decided(0, key), chosen);
}

/// The first step of such a model, alone.
fn apart(of: Kernels) -> CompiledModel {
    let mut b = builder();
    let x = b.add_input("x", DType::F32, &[N]);
    let free = b.add_kernel(kernel("free", [12, 3, 1, of.other[1]]));
    let other = b.add_kernel(kernel("other", [12, 3, of.other[0], 0]));
    let y = b.add_tensor("y", DType::F32, &[N]);
    b.add_step("alone", &[], &[bound(free, x, y), bound(other, x, y)])
        .unwrap();
    b.mark_output(y);
    b.finish().unwrap()
}

#[test]
fn decisions_that_do_not_hold_in_a_group_or_outside_of_one_are_said() {
    let found = |model: CompiledModel, known: &Decisions| {
        let variants = Variants::from(Arc::new(model));
        let all = selectors(&variants, Some(&Arc::new(known.clone())));
        all.gone().to_vec()
    };
    let gone = |step: &str, reason| Gone {
        step: step.into(),
        algorithm: "free".into(),
        reason,
    };
    let of = Kernels {
        codes: [7, 0],
        ..QUICK_SET
    };
    let (grouped, chosen) = decided(&mut loaded(model(of)));
    assert_eq!(chosen[0], Some(0));
    let mut known = Decisions::new();
    grouped.save(&mut known);
    assert_eq!(found(apart(of), &known), [gone("alone", Reason::NoGroup)]);
    assert_eq!(found(model(of), &known), []);

    let variants = Arc::new(Variants::from(Arc::new(apart(of))));
    let alone = selectors(&variants, None);
    let mut m = Model::of(variants, Arc::new(Pool::new(1).unwrap())).unwrap();
    m.set_selector(Some(alone.online()));
    for _ in 0..100 {
        m.run(&[("x", &input())]).unwrap();
    }
    let mut known = Decisions::new();
    alone.save(&mut known);
    assert_eq!(known.len(), 1);
    assert_eq!(found(model(of), &known), [gone("first", Reason::InGroup)]);
    assert_eq!(found(apart(of), &known), []);
    // What is decided anew is no longer missed, and decisions on other kernels are about something else.
    let both = {
        let mut both = known.clone();
        grouped.save(&mut both);
        both
    };
    assert_eq!(found(model(of), &both), []);
    let mut others = Decisions::new();
    for (name, key, d) in known.iter() {
        others.put(name, key, "free 0123456789abcdef", d.samples, d.median);
    }
    assert_eq!(found(model(of), &others), []);
}

/// Whether its first step fails or its last, and before the decision or behind it.
#[test]
fn a_set_that_fails_leaves_its_steps_to_run_apart() {
    for codes in [[7, 0], [0, 7]] {
        let of = Kernels { codes, ..QUICK_SET };
        let mut m = loaded(model(of));
        let (_, chosen) = decided(&mut m);
        assert_eq!([chosen[0], chosen[6]], [Some(0); 2]);
    }
}

#[test]
fn a_group_decides_again_when_what_ran_apart_fails() {
    let of = Kernels {
        other: [4000, BELOW_0],
        repeat: [1, 400],
        ..QUICK_SET
    };
    let mut m = loaded(model(of));
    let (selectors, chosen) = decided(&mut m);
    assert_eq!([chosen[0], chosen[6]], [Some(0); 2]);
    let mut values = [1f32; N];
    values[0] = -1.0;
    // The second free alternative runs in its place, and takes longer than the set.
    m.run(&[("x", &Tensor::from_slice(&[N], &values))]).unwrap();
    for _ in 0..100 {
        assert_right(&mut m);
    }
    let variants = m.variants().clone();
    let chosen = selectors.decided(0, |step| variants.selection_key(0, step, 1));
    assert_eq!([chosen[0], chosen[6]], [Some(2), Some(1)]);
}

#[test]
fn what_a_set_keeps_is_for_its_own_steps() {
    let mut b = builder();
    let x = b.add_input("x", DType::F32, &[N]);
    let one = b.add_kernel(kernel("one", [1, 0, 1, 0]));
    let mut tensor = |name| b.add_tensor(name, DType::F32, &[N]);
    let [y, t, z, u] = ["y", "t", "z", "u"].map(&mut tensor);
    let group = b.add_group(1);
    let set = [bound(one, x, t), bound(one, t, y)];
    // Without a free alternative there is nothing to fall back to.
    let none = b.add_member(group, "first", &[], &[&set]);
    assert!(matches!(none, Err(BuildModelError::Sets { .. })));
    // What free alternatives write is for all.
    let differs = b.add_member(group, "first", &[], &[&[bound(one, x, z)], &set]);
    assert!(matches!(differs, Err(BuildModelError::Outputs { .. })));
    b.add_member(group, "first", &[], &[&[bound(one, x, y)], &set])
        .unwrap();
    let read = b.add_step("reads", &[], &[bound(one, t, z)]);
    assert!(matches!(read, Err(BuildModelError::Role { .. })));
    let free = b.add_member(
        group,
        "free",
        &[],
        &[&[bound(one, t, u)], &[bound(one, t, u)]],
    );
    assert!(matches!(free, Err(BuildModelError::Role { .. })));
    let written = b.add_step("writes", &[], &[bound(one, x, t)]);
    assert!(matches!(written, Err(BuildModelError::Kept { .. })));
    b.add_member(
        group,
        "last",
        &[],
        &[&[bound(one, x, u)], &[bound(one, t, u)]],
    )
    .unwrap();
    b.mark_output(u);
    assert!(b.finish().is_ok());
}
