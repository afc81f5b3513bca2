//! NaN and infinities through compiled operators: what the references give, and
//! where operators choose among values, NaN if there is one.

use crate::compiled;
use crate::judge::settings;
use graph::ops::*;
use graph::{Keep, Model, evaluate};
use plan::{LayoutPolicy, plan};
use std::sync::Arc;
use tensor::{DType, Tensor};
use tune::compile::defaults;

const ROWS: usize = 9;
const COLUMNS: usize = 37;

/// Numbers, with a row for each place where a NaN or an infinity matters: nowhere,
/// first, last, in between, twice, everywhere.
fn values(dtype: DType, shape: &[usize]) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape);
    for i in 0..t.len() {
        let (row, column) = (i / COLUMNS, i % COLUMNS);
        let number = ((i * 31 % 67) as f64 - 33.0) / 8.0;
        let special = match (row, column) {
            (1, 0) | (2, 36) | (3, 17) | (4, 5 | 30) | (5, _) => f64::NAN,
            (6, 3) => f64::INFINITY,
            (6 | 7, 9) => f64::NEG_INFINITY,
            (8, 1) => -0.0,
            (8, 2) => 0.0,
            _ => number,
        };
        t.set_f64(i, special);
    }
    t
}

fn judge(op: Op, operands: &[Tensor]) {
    let what = format!("{op:?} on {}", operands[0].dtype());
    let mut m = Model::new("extreme", 0);
    let given = operands
        .iter()
        .map(|t| Some(m.add_input("x", t.dtype(), t.shape())));
    let given: Vec<_> = given.collect();
    for v in m.add_node("y", op, &given).unwrap() {
        m.add_output(v);
    }
    let inputs: Vec<_> = operands.iter().cloned().map(Arc::new).collect();
    let expected = evaluate(&m, &inputs, Keep::Outputs).unwrap().outputs();
    for setting in settings() {
        let target = setting.compiler.target();
        let plan = plan(&m, target, &LayoutPolicy::Blocked.into()).unwrap();
        let candidates = defaults(&plan.tasks, target, search::Accuracy::Relaxed).unwrap();
        let kernels = compiled::kernels(&plan, &candidates.candidates, &setting.compiler);
        let kernels = kernels.unwrap();
        let model = compiled::load(&plan, &kernels, &setting.compiler, &setting.pool);
        let outputs = compiled::run(&mut model.unwrap(), &inputs).unwrap();
        for (output, expected) in outputs.iter().zip(&expected) {
            for i in 0..expected.len() {
                let (a, e) = (output.get_f64(i), expected.get_f64(i));
                let near = a == e || (a - e).abs() <= 1e-5 * e.abs().max(1.0);
                let same = near || a.is_nan() && e.is_nan();
                assert!(same, "{what} at {i}: {a}, not {e}, for {}", target.name());
            }
        }
    }
}

fn for_floats(f: impl Fn(&dyn Fn(&[usize]) -> Tensor)) {
    for dtype in [DType::F32, DType::F64] {
        f(&|shape| values(dtype, shape));
    }
}

#[test]
fn element_wise_operators() {
    let limit = |v| Some(v);
    let unary = [
        Unary::Neg,
        Unary::Abs,
        Unary::Sign,
        Unary::Relu,
        Unary::Clip {
            min: limit(-1.0),
            max: limit(1.0),
        },
        Unary::Clip {
            min: None,
            max: limit(1.0),
        },
        Unary::LeakyRelu { alpha: 0.1 },
        Unary::Sigmoid,
        Unary::HardSigmoid {
            alpha: 0.2,
            beta: 0.5,
        },
        Unary::HardSwish,
        Unary::Tanh,
        Unary::Gelu(Gelu::Exact),
        Unary::Gelu(Gelu::Tanh),
        Unary::Erf,
        Unary::Sqrt,
        Unary::Exp,
        Unary::Log,
        Unary::Reciprocal,
        Unary::Floor,
        Unary::Ceil,
        Unary::Round,
    ];
    for_floats(|values| {
        let x = values(&[ROWS, COLUMNS]);
        for u in unary {
            judge(Op::Unary(u), std::slice::from_ref(&x));
        }
        let mut reversed = x.clone();
        for i in 0..x.len() {
            reversed.set_f64(i, x.get_f64(x.len() - 1 - i));
        }
        for b in [Binary::Max, Binary::Min] {
            judge(Op::Binary(b), &[x.clone(), reversed.clone()]);
        }
    });
}

#[test]
fn operators_that_choose() {
    for_floats(|values| {
        let x = || vec![values(&[ROWS, COLUMNS])];
        for kind in [ReduceKind::Max, ReduceKind::Min] {
            for axes in [vec![0], vec![1], vec![0, 1]] {
                let keepdims = true;
                judge(
                    Op::Reduce(Reduce {
                        kind,
                        axes,
                        keepdims,
                    }),
                    &x(),
                );
            }
        }
        for (max, last, axis) in [
            (true, false, 1),
            (false, false, 1),
            (true, true, 1),
            (true, false, 0),
        ] {
            let keepdims = false;
            judge(
                Op::ArgReduce(ArgReduce {
                    max,
                    axis,
                    keepdims,
                    last,
                }),
                &x(),
            );
        }
        judge(Op::Softmax(Softmax { axis: 1 }), &x());
        for indices in [None, Some(IndexOrder::RowMajor)] {
            let image = values(&[1, 1, ROWS, COLUMNS]);
            let pool = Pool {
                kind: PoolKind::Max { indices },
                kernel: vec![3, 2],
                strides: vec![1, 1],
                pads: vec![(1, 1), (0, 0)],
                dilations: vec![1, 1],
                ceil_mode: false,
            };
            judge(Op::Pool(pool), &[image]);
        }
    });
}

#[test]
fn conversions_to_integers() {
    let given = [
        (f64::NAN, [0i64; 4]),
        (f64::INFINITY, [-1, 255, -1, i64::MAX]),
        (f64::NEG_INFINITY, [0, 0, 0, i64::MIN]),
        (1e30, [-1, 255, -1, i64::MAX]),
        (300.0, [44, 44, 300, 300]),
        (-1.5, [-1, 255, -1, -1]),
        (f64::from(1u32 << 31), [0, 0, i64::from(i32::MIN), 1 << 31]),
    ];
    for dtype in [DType::F32, DType::F64] {
        let mut x = Tensor::zeros(dtype, &[given.len()]);
        for (i, (v, _)) in given.iter().enumerate() {
            x.set_f64(i, *v);
        }
        let to = [DType::I8, DType::U8, DType::I32, DType::I64];
        for (t, to) in to.into_iter().enumerate() {
            judge(Op::Cast(to), std::slice::from_ref(&x));
            let y = graph::reference::apply(&Op::Cast(to), &[Some(&x)]).unwrap();
            for (i, (v, wanted)) in given.iter().enumerate() {
                assert_eq!(y[0].get_i64(i), wanted[t], "{v} to {to}");
            }
        }
        judge(Op::Cast(DType::Bool), std::slice::from_ref(&x));
    }
}
