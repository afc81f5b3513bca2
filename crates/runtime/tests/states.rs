//! Inputs that keep what an inference leaves for the next one.

#![cfg(target_arch = "x86_64")]

mod c_object;

use c_object::{built, param};
use runtime::{
    BoundKernel, BuiltKernel, CompiledModel, KernelTarget, Model, ModelBuilder, ParamRole, Pool,
};
use std::sync::Arc;
use tensor::{DType, Tensor};

/// y = a + b, element by element.
fn sum_of_two(n: i64) -> BuiltKernel {
    let source = format!(
        "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *a = args[0], *b = args[1];
            float *y = args[2];
            for (long i = 0; i < {n}; i++) y[i] = a[i] + b[i];
            return 0;
        }}"
    );
    let params = vec![
        param("a", ParamRole::Input, &[n]),
        param("b", ParamRole::Input, &[n]),
        param("y", ParamRole::Output, &[n]),
    ];
    built(&source, params)
}

fn builder() -> ModelBuilder {
    let pool = Arc::new(Pool::new(1).unwrap());
    ModelBuilder::new("test", KernelTarget::generic(), "tests", pool)
}

#[test]
fn a_state_keeps_what_an_inference_leaves_for_the_next() {
    let pool = Arc::new(Pool::new(1).unwrap());
    let mut b = builder();
    let x = b.add_input("x", DType::F32, &[3]);
    let w = b.add_input("w", DType::F32, &[3]);
    let next = b.add_tensor("next", DType::F32, &[3]);
    let kernel = b.add_kernel(sum_of_two(3));
    let bind = vec![("a", x), ("b", w), ("y", next)];
    b.add_step("add", &[], &[BoundKernel { kernel, bind }])
        .unwrap();
    b.mark_output(next);
    b.add_state(1, 0, Tensor::from_slice(&[3], &[10f32, 20.0, 30.0]));
    let compiled = b.finish().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.tsm");
    compiled.save(&path).unwrap();
    let loaded = CompiledModel::load(&path).unwrap();
    assert_eq!(loaded.states(), compiled.states());
    for compiled in [compiled, loaded] {
        let mut model = Model::new(Arc::new(compiled), pool.clone()).unwrap();
        let one = Tensor::from_slice(&[3], &[1f32; 3]);
        let mut run = |inputs: &[(&str, &Tensor)]| {
            let out = model.run(inputs).unwrap().remove(0);
            out.as_slice::<f32>().to_vec()
        };
        assert_eq!(run(&[("x", &one)]), [11.0, 21.0, 31.0]);
        assert_eq!(run(&[("x", &one)]), [12.0, 22.0, 32.0]);
        // Given, it is what it is given.
        assert_eq!(run(&[("w", &one), ("x", &one)]), [2.0; 3]);
        assert_eq!(run(&[("x", &one)]), [3.0; 3]);
        model.reset_states();
        model.invoke().unwrap();
        assert_eq!(model.output_tensor(0).as_slice::<f32>(), [11.0, 21.0, 31.0]);
    }
}

/// Models w' = x + w and y = w' + x, or y = w' + w, which reads the state when it has changed. The kernel may write over
/// its second operand.
fn updating(in_place: bool, reads_old: bool) -> CompiledModel {
    let mut b = builder();
    let x = b.add_input("x", DType::F32, &[3]);
    let w = b.add_input("w", DType::F32, &[3]);
    let next = b.add_tensor("next", DType::F32, &[3]);
    let y = b.add_tensor("y", DType::F32, &[3]);
    let pairs = if in_place { vec![(2, 1)] } else { vec![] };
    let kernel = b.add_kernel(BuiltKernel {
        in_place: pairs,
        ..sum_of_two(3)
    });
    for (name, [p, q, out]) in [
        ("update", [x, w, next]),
        ("y", [next, if reads_old { w } else { x }, y]),
    ] {
        let bind = vec![("a", p), ("b", q), ("y", out)];
        b.add_step(name, &[], &[BoundKernel { kernel, bind }])
            .unwrap();
    }
    b.mark_output(next);
    b.mark_output(y);
    b.add_state(1, 0, Tensor::from_slice(&[3], &[10f32, 20.0, 30.0]));
    b.finish().unwrap()
}

#[test]
fn a_state_is_updated_where_it_lies_if_no_later_step_reads_it() {
    for (in_place, reads_old) in [(false, false), (true, false), (true, true)] {
        let compiled = Arc::new(updating(in_place, reads_old));
        let shared = compiled.is_in_place(compiled.states()[0]);
        assert_eq!(shared, in_place && !reads_old);
        // A tensor of 12 bytes takes 64 of the arena.
        assert_eq!(compiled.arena_bytes(), if shared { 3 * 64 } else { 4 * 64 });
        let mut model = Model::new(compiled, Arc::new(Pool::new(1).unwrap())).unwrap();
        let one = Tensor::from_slice(&[3], &[1f32; 3]);
        for step in 1..4 {
            let found = model.run(&[("x", &one)]).unwrap();
            let old = 9.0 + step as f32;
            let other = if reads_old { old } else { 1.0 };
            assert_eq!(found[0].as_slice::<f32>()[0], old + 1.0);
            assert_eq!(found[1].as_slice::<f32>()[0], old + 1.0 + other);
        }
        model.reset_states();
        let found = model.run(&[("x", &one)]).unwrap();
        assert_eq!(found[0].as_slice::<f32>(), [11.0, 21.0, 31.0]);
    }
}

#[test]
fn a_state_of_another_type_is_refused() {
    let mut b = builder();
    let x = b.add_input("x", DType::F32, &[3]);
    b.mark_output(x);
    b.add_state(0, 0, Tensor::from_slice(&[2], &[1f32; 2]));
    let error = b.finish().unwrap_err().to_string();
    assert!(error.contains("the state of input 0"), "{error}");
}
