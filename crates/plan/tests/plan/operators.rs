//! Every other operator's program against its reference.

use crate::judge::{Operand, input, inputs, judge_both, judge_on, planned, single, typed, weight};
use graph::Model;
use graph::ops::*;
use plan::{LayoutPolicy, PlanOptions, plan};
use tensor::{DType, Tensor};

#[test]
fn matrix_products() {
    for (a, b, kind, batch) in [
        (&[5, 7][..], &[7, 3][..], "matmul", None),
        (&[7], &[7, 3], "matmul", None),
        (&[5, 7], &[7], "matmul", None),
        (&[7], &[7], "matmul", None),
        (&[2, 5, 7], &[7, 3], "matmul", None),
        (&[2, 3, 5, 7], &[1, 7, 3], "matmul", None),
        (&[2, 5, 7], &[7], "batch_matmul", Some(2)),
        (&[2, 5, 7], &[2, 7, 4], "batch_matmul", Some(2)),
        (&[2, 3, 5, 7], &[2, 3, 7, 4], "batch_matmul", Some(6)),
        (&[2, 1, 5, 7], &[3, 7, 2], "batch_matmul", Some(6)),
        (&[3, 7], &[2, 1, 7, 2], "batch_matmul", Some(2)),
        (&[7], &[2, 7, 2], "batch_matmul", Some(2)),
    ] {
        let plan = judge_both(&single(Op::MatMul, &[input(a), input(b)]));
        assert_eq!(plan.tasks[0].op, kind, "{a:?} {b:?}");
        assert_eq!(plan.tasks[0].args.get("b").copied(), batch, "{a:?} {b:?}");
        assert_eq!(plan.tasks[0].args["k"], 7);
    }
    let plan = judge_both(&single(Op::MatMul, &[input(&[5, 7]), weight(&[7, 3], 1)]));
    assert_eq!(plan.tasks[0].op, "dense");
    assert_eq!(plan.tasks[0].flops, 2.0 * 5.0 * 7.0 * 3.0);
}

#[test]
fn general_matrix_products() {
    for (trans_a, trans_b, alpha, beta) in [
        (false, false, 1.0, 1.0),
        (true, false, 0.5, 1.0),
        (false, true, 1.0, -2.0),
        (true, true, 1.0, 1.0),
    ] {
        let gemm = Gemm {
            alpha,
            beta,
            trans_a,
            trans_b,
        };
        let swap = |on: bool, s: [usize; 2]| if on { [s[1], s[0]] } else { s };
        let (a, b) = (swap(trans_a, [4, 6]), swap(trans_b, [6, 5]));
        for c in [None, Some(&[5][..]), Some(&[4, 1]), Some(&[])] {
            let mut operands = vec![input(&a), weight(&b, 3)];
            operands.extend(c.map(|c| weight(c, 4)));
            judge_both(&single(Op::Gemm(gemm.clone()), &operands));
        }
    }
    let gemm = Gemm {
        alpha: 1.0,
        beta: 1.0,
        trans_a: false,
        trans_b: false,
    };
    let ints = [
        typed(DType::I32, &[2, 3]),
        typed(DType::I32, &[3, 2]),
        typed(DType::I32, &[2]),
    ];
    judge_both(&single(Op::Gemm(gemm), &ints));
}

#[test]
fn contractions() {
    for (equation, a, b) in [
        ("mk,kn->mn", &[5, 7][..], &[7, 3][..]),
        ("abcd,cbe->aed", &[2, 3, 4, 5], &[4, 3, 6]),
        ("bhid,bhjd->bhij", &[2, 3, 4, 5], &[2, 3, 6, 5]),
        ("km,nk->nm", &[5, 3], &[4, 5]),
        ("i,i->", &[7], &[7]),
        ("i,j->ji", &[3], &[4]),
        ("ij,ij->ij", &[3, 4], &[3, 4]),
        ("ij,k->i", &[3, 4], &[5]),
        ("Bb,bB->Bb", &[2, 3], &[3, 2]),
    ] {
        let contract = || Op::Contract(Contract::parse(equation).unwrap());
        for dtype in [DType::F32, DType::F16, DType::I32] {
            judge_both(&single(contract(), &[typed(dtype, a), typed(dtype, b)]));
        }
        judge_both(&single(contract(), &[input(a), weight(b, 1)]));
    }
    let contract = Op::Contract(Contract::parse("abcd,cbe->aed").unwrap());
    let plan = judge_both(&single(
        contract,
        &[input(&[2, 3, 4, 5]), input(&[4, 3, 6])],
    ));
    let task = &plan.tasks[0];
    assert_eq!((&task.op[..], task.args["e"]), ("contract", 6));
    assert_eq!(task.flops, 2.0 * 720.0);
    let text = ir::text::print(&task.program);
    assert!(
        text.contains("main.c in 0..4") && text.contains("c: reduce 4"),
        "{text}"
    );
}

#[test]
fn a_contraction_takes_its_chain_and_one_operand_twice() {
    let mut model = Model::new("chain", 0);
    let x = model.add_input("x", DType::F32, &[3, 4]);
    let contract = Op::Contract(Contract::parse("ik,jk->ij").unwrap());
    let y = model.add("gram", contract, &[x, x]).unwrap();
    let y = model.add("relu", Op::Unary(Unary::Relu), &[y]).unwrap();
    model.add_output(y);
    let plan = judge_both(&model);
    assert_eq!(plan.steps.len(), 1);
}

#[test]
fn element_wise_operators() {
    let unary = [
        Unary::Neg,
        Unary::Abs,
        Unary::Sign,
        Unary::Relu,
        Unary::Clip {
            min: Some(-0.5),
            max: None,
        },
        Unary::Clip {
            min: Some(-0.5),
            max: Some(1.0),
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
        Unary::Exp,
        Unary::Reciprocal,
        Unary::Floor,
        Unary::Ceil,
        Unary::Round,
    ];
    for u in unary {
        for dtype in [DType::F32, DType::F64, DType::F16] {
            judge_both(&single(Op::Unary(u), &[typed(dtype, &[3, 5])]));
        }
        if u.takes_integers() {
            judge_both(&single(Op::Unary(u), &[typed(DType::I32, &[3, 5])]));
        }
    }
    judge_both(&single(Op::Unary(Unary::Not), &[typed(DType::Bool, &[4])]));
    for u in [Unary::Sqrt, Unary::Log] {
        let model = single(Op::Unary(u), &[input(&[3])]);
        judge_on(
            &model,
            LayoutPolicy::Plain,
            vec![Tensor::from_slice(&[3], &[0.5f32, 1.0, 9.0])],
        );
    }
}

#[test]
fn operators_of_two_and_three_operands() {
    use Binary::*;
    let shapes: [[&[usize]; 2]; 4] = [
        [&[2, 3], &[2, 3]],
        [&[2, 3], &[3]],
        [&[2, 1], &[1, 3]],
        [&[], &[2]],
    ];
    for b in [
        Add,
        Sub,
        Mul,
        Div,
        Min,
        Max,
        Equal,
        Less,
        LessOrEqual,
        Greater,
        GreaterOrEqual,
    ] {
        for [x, y] in shapes {
            judge_both(&single(Op::Binary(b), &[input(x), input(y)]));
        }
    }
    for b in [Add, Sub, Mul, Min, Max, Equal, Less, GreaterOrEqual, Pow] {
        judge_both(&single(
            Op::Binary(b),
            &[typed(DType::I64, &[4]), typed(DType::I64, &[4])],
        ));
    }
    let signed = |v: &[i32]| Operand::Constant(Tensor::from_slice(&[v.len()], v));
    for b in [Div, Mod, Fmod] {
        let model = single(
            Op::Binary(b),
            &[typed(DType::I32, &[4]), signed(&[3, -3, 2, -7])],
        );
        let x = Tensor::from_slice(&[4], &[7, 7, -5, -6]);
        judge_on(&model, LayoutPolicy::Plain, vec![x]);
    }
    for b in [And, Or, Xor, Equal] {
        judge_both(&single(
            Op::Binary(b),
            &[typed(DType::Bool, &[8]), typed(DType::Bool, &[8])],
        ));
    }
    let where_ = [typed(DType::Bool, &[2, 1]), input(&[3]), input(&[2, 3])];
    judge_both(&single(Op::Where, &where_));
    let model = single(Op::Binary(Pow), &[input(&[3]), weight(&[3], 1)]);
    let positive = Tensor::from_slice(&[3], &[0.5f32, 1.5, 2.5]);
    judge_on(&model, LayoutPolicy::Plain, vec![positive]);
}

/// As IEEE 754 has it: where a root of minus infinity has no value, a power is infinite, and that
/// of -0 has no sign.
#[test]
fn powers_that_are_roots() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = Tensor::from_slice(&[6], &[-inf, -0.0, -2.0, 4.0, inf, nan]);
    for (exponent, of_four) in [(0.5f32, 2.0f32), (0.75, 8.0f32.sqrt())] {
        let exponent = Operand::Constant(Tensor::from_slice(&[], &[exponent]));
        let model = single(Op::Binary(Binary::Pow), &[input(&[6]), exponent]);
        let y = planned(&model, LayoutPolicy::Plain)
            .interpret(std::slice::from_ref(&x))
            .unwrap();
        let y = y[0].as_slice::<f32>();
        assert_eq!(y[..2], [inf, 0.0], "{y:?}");
        assert!(y[1].is_sign_positive() && y[2].is_nan() && y[5].is_nan());
        assert!((y[3] - of_four).abs() < 1e-6 && y[4] == inf, "{y:?}");
    }
}

#[test]
fn conversions_of_element_types() {
    let all = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::I64,
        DType::Bool,
    ];
    for from in all {
        for to in all {
            judge_both(&single(Op::Cast(to), &[typed(from, &[7])]));
        }
    }
    let model = single(Op::Cast(DType::I8), &[typed(DType::F32, &[3])]);
    let large = Tensor::from_slice(&[3], &[300.7f32, -129.0, 1.5]);
    judge_on(&model, LayoutPolicy::Plain, vec![large]);
}

/// Of rows of two elements most lanes would be idle.
#[test]
fn axes_that_all_operands_have_side_by_side_are_one() {
    let operands = [input(&[3, 4, 5, 2]), input(&[4, 1, 1])];
    let plan = judge_both(&single(Op::Binary(Binary::Mul), &operands));
    let p = &plan.tasks[0].program;
    assert_eq!(p.buffer(p.buffer_named("E0").unwrap()).shape, [3, 4, 10]);
}

#[test]
fn batch_normalisation_with_parameters_that_are_not_constant() {
    let op = Op::BatchNorm(BatchNorm { epsilon: 3.0 });
    let p = || input(&[3]);
    judge_both(&single(op, &[input(&[2, 3, 4]), p(), p(), p(), p()]));
}

#[test]
fn reductions() {
    use ReduceKind::*;
    for kind in [Sum, Mean, Prod, Max, Min] {
        for (axes, keepdims) in [
            (vec![1], true),
            (vec![0, 2], false),
            (vec![0, 1, 2], false),
            (vec![2], false),
        ] {
            let op = Op::Reduce(Reduce {
                kind,
                axes,
                keepdims,
            });
            judge_both(&single(op.clone(), &[input(&[3, 4, 2])]));
            if kind != Mean {
                judge_both(&single(op, &[typed(DType::I32, &[3, 4, 2])]));
            }
        }
    }
    for kind in [Max, Min] {
        let op = Op::Reduce(Reduce {
            kind,
            axes: vec![1],
            keepdims: false,
        });
        judge_both(&single(op, &[typed(DType::Bool, &[8, 2])]));
    }
    let half = Op::Reduce(Reduce {
        kind: Sum,
        axes: vec![0],
        keepdims: false,
    });
    judge_both(&single(half, &[typed(DType::F16, &[9])]));
}

#[test]
fn positions_of_extremes() {
    let x = Tensor::from_slice(&[2, 4], &[1.0f32, 3.0, 3.0, -1.0, -2.0, -2.0, 5.0, 5.0]);
    for max in [true, false] {
        for last in [true, false] {
            for (axis, keepdims) in [(1, false), (0, true)] {
                let op = Op::ArgReduce(ArgReduce {
                    max,
                    axis,
                    keepdims,
                    last,
                });
                judge_on(
                    &single(op, &[input(&[2, 4])]),
                    LayoutPolicy::Plain,
                    vec![x.clone()],
                );
            }
        }
    }
}

#[test]
fn positions_beside_nan_are_of_the_operand() {
    let nan = f32::NAN;
    let x = Tensor::from_slice(&[4, 2], &[1.0, nan, nan, 1.0, nan, nan, 1.0, 1.0]);
    for max in [true, false] {
        for last in [true, false] {
            let op = Op::ArgReduce(ArgReduce {
                max,
                axis: 1,
                keepdims: false,
                last,
            });
            let model = single(op, &[input(&[4, 2])]);
            let plan = planned(&model, LayoutPolicy::Plain);
            let y = plan.interpret(std::slice::from_ref(&x)).unwrap().remove(0);
            let y = y.as_slice::<i64>();
            assert!(y.iter().all(|i| (0..2).contains(i)), "{y:?}");
            assert_eq!(y[3], i64::from(last));
        }
    }
}

#[test]
fn statistics_of_double_rows_are_single() {
    let op = Op::LayerNorm(LayerNorm {
        axis: 1,
        epsilon: 1e-5,
        statistics: true,
    });
    let scale = Operand::Constant(Tensor::from_slice(&[4], &[1.0f64, 2.0, 3.0, 4.0]));
    judge_both(&single(op, &[typed(DType::F64, &[3, 4]), scale]));
}

#[test]
fn softmax_and_normalisations() {
    for axis in 0..3 {
        judge_both(&single(Op::Softmax(Softmax { axis }), &[input(&[2, 5, 3])]));
    }
    judge_both(&single(Op::Softmax(Softmax { axis: 0 }), &[input(&[6])]));
    for (axis, statistics) in [(2, false), (1, true), (0, false)] {
        let op = Op::LayerNorm(LayerNorm {
            axis,
            epsilon: 1e-5,
            statistics,
        });
        let shape = [2, 3, 5];
        judge_both(&single(
            op.clone(),
            &[input(&shape), weight(&shape[axis..], 1)],
        ));
        judge_both(&single(
            op,
            &[input(&shape), weight(&shape[axis..], 1), weight(&[5], 2)],
        ));
    }
    for size in [1, 3, 4] {
        let op = Op::Lrn(Lrn {
            size,
            alpha: 0.1,
            beta: 0.75,
            bias: 1.5,
        });
        judge_both(&single(op, &[input(&[2, 5, 3])]));
    }
}

#[test]
fn movement() {
    let x = || input(&[3, 4, 5]);
    judge_both(&single(
        Op::Concat(Concat { axis: 1 }),
        &[x(), input(&[3, 1, 5]), input(&[3, 2, 5])],
    ));
    judge_both(&single(
        Op::Split(Split {
            axis: 2,
            sizes: vec![2, 1, 2],
        }),
        &[x()],
    ));
    for (starts, steps, sizes) in [
        (vec![1, 0, 2], vec![1, 1, 1], vec![2, 4, 3]),
        (vec![2, 0, 4], vec![-1, 2, -2], vec![3, 2, 2]),
    ] {
        judge_both(&single(
            Op::Slice(Slice {
                starts,
                steps,
                sizes,
            }),
            &[x()],
        ));
    }
    for mode in [
        PadMode::Constant(1.5),
        PadMode::Edge,
        PadMode::Reflect,
        PadMode::Wrap,
    ] {
        let pads = vec![(1, 2), (-1, 0), (0, 3)];
        judge_both(&single(Op::Pad(Pad { mode, pads }), &[x()]));
    }
    judge_both(&single(
        Op::Transpose(Transpose {
            perm: vec![2, 0, 1],
        }),
        &[x()],
    ));
    judge_both(&single(
        Op::Expand(Expand {
            shape: vec![2, 3, 4],
        }),
        &[input(&[3, 1])],
    ));
    judge_both(&single(Op::Reshape(Reshape { shape: vec![60] }), &[x()]));
    judge_both(&single(Op::Identity, &[x()]));
}

#[test]
fn gather_takes_negative_indices_and_refuses_others_out_of_range() {
    for dtype in [DType::I32, DType::I64] {
        let model = single(
            Op::Gather(Gather { axis: 1 }),
            &[input(&[2, 4, 3]), typed(dtype, &[2, 2])],
        );
        let mut given = inputs(&model);
        for (i, v) in [0, -1, 3, -4].into_iter().enumerate() {
            given[1].set_i64(i, v);
        }
        judge_on(&model, LayoutPolicy::Plain, given.clone());
        given[1].set_i64(0, 4);
        let options = PlanOptions::from(LayoutPolicy::Plain);
        let plan = plan(&model, &crate::judge::target(), &options).unwrap();
        assert!(plan.interpret(&given).is_err());
    }
    judge_both(&single(
        Op::Gather(Gather { axis: 0 }),
        &[input(&[4, 3]), typed(DType::I64, &[])],
    ));
}

#[test]
fn empty_parts_are_left_out() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[2, 5]);
    let split = Split {
        axis: 1,
        sizes: vec![3, 0, 2],
    };
    let parts = m.add_node("split", Op::Split(split), &[Some(x)]).unwrap();
    let order = [parts[2], parts[1], parts[0]];
    let y = m
        .add("concat", Op::Concat(Concat { axis: 1 }), &order)
        .unwrap();
    m.add_output(y);
    judge_both(&m);
}

/// What has no elements, and what is made of nothing else, is a constant.
#[test]
fn values_without_elements_are_constants() {
    let nothing = || typed(DType::F32, &[0, 4]);
    let reduce = |kind| Reduce {
        kind,
        axes: vec![0],
        keepdims: true,
    };
    let split = Split {
        axis: 1,
        sizes: vec![0, 3],
    };
    let models = [
        single(Op::Unary(Unary::Relu), &[nothing()]),
        single(Op::Reduce(reduce(ReduceKind::Sum)), &[nothing()]),
        single(Op::Reduce(reduce(ReduceKind::Max)), &[nothing()]),
        single(Op::MatMul, &[typed(DType::F32, &[2, 0]), nothing()]),
        single(Op::Split(split), &[input(&[2, 3])]),
        single(Op::Identity, &[nothing()]),
    ];
    for model in models {
        judge_both(&model);
    }
}

#[test]
fn all_nodes_that_cannot_be_compiled_are_listed() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[2, 4]);
    for (name, op) in [("first", Binary::Mod), ("second", Binary::Fmod)] {
        let y = m.add(name, Op::Binary(op), &[x, x]).unwrap();
        m.add_output(y);
    }
    let options = PlanOptions::from(LayoutPolicy::Blocked);
    let message = plan(&m, &crate::judge::target(), &options)
        .unwrap_err()
        .to_string();
    for expected in ["2 of the model's nodes", "`first` (mod)", "`second` ("] {
        assert!(message.contains(expected), "{message}");
    }
}
