//! The interpreter on programs and expressions computed by hand.

mod memory;
mod programs;
mod scalars;

use ir::interpret::{InterpretError, run};
use ir::{DType, Expr, LoopKind, Program, ProgramBuilder, Reducer};
use tensor::{Element, Tensor};

fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(shape, values)
}

/// Runs on the inputs with outputs of zeros; gives the outputs.
fn outputs(p: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, InterpretError> {
    let mut args = inputs.to_vec();
    for id in &p.params[inputs.len()..] {
        let b = p.buffer(*id);
        let shape: Vec<usize> = b.shape.iter().map(|n| *n as usize).collect();
        args.push(Tensor::zeros(b.dtype, &shape));
    }
    let before = args.clone();
    let result = run(p, &mut args);
    if result.is_err() {
        assert_eq!(args, before, "an error leaves the arguments alone");
    }
    result.map(|()| args.split_off(inputs.len()))
}

fn output<T: Element>(p: &Program, inputs: &[Tensor]) -> Vec<T> {
    outputs(p, inputs).unwrap()[0].as_slice::<T>().to_vec()
}

fn matmul(m: i64, n: i64, k: i64) -> Program {
    let mut b = ProgramBuilder::new("matmul");
    let x = b.input("A", DType::F32, &[m, k]);
    let y = b.input("B", DType::F32, &[k, n]);
    let c = b.reduce(
        "C",
        &[("i", m), ("j", n)],
        &[("k", k)],
        Reducer::Sum,
        |s, r| {
            Expr::load(x, [s[0].clone(), r[0].clone()])
                * Expr::load(y, [r[0].clone(), s[1].clone()])
        },
    );
    b.finish(&[c])
}

fn matmul_inputs() -> [Tensor; 2] {
    [
        f32s(&[2, 3], &[1., 2., 3., 4., 5., 6.]),
        f32s(&[3, 2], &[7., 8., 9., 10., 11., 12.]),
    ]
}

const MATMUL: [f32; 4] = [58., 64., 139., 154.];

fn set_kind(p: &mut Program, name: &str, kind: LoopKind) {
    let l = p.loop_named(name).unwrap();
    p.loop_mut(l).kind = kind;
}
