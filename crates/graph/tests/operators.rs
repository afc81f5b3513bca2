//! What each operator computes, against hand-computed values, a direct
//! definition, or a law it obeys.

mod applied;

use applied::{all, f32s, i64s, refused, run, whole};
use graph::ops::*;
use tensor::{DType, Fill, Tensor, compare, fill_tensor};

fn unary(u: Unary, x: &[f32]) -> Vec<f32> {
    run(Op::Unary(u), &[&f32s(&[x.len()], x)])
        .as_slice::<f32>()
        .to_vec()
}

fn binary(b: Binary, x: &Tensor, y: &Tensor) -> Tensor {
    run(Op::Binary(b), &[x, y])
}

#[test]
fn unary_floats() {
    let nan = f32::NAN;
    assert_eq!(unary(Unary::Relu, &[-1.0, 0.0, 2.0]), [0.0, 0.0, 2.0]);
    assert!(unary(Unary::Relu, &[nan])[0].is_nan());
    let clip = Unary::Clip {
        min: Some(-1.0),
        max: Some(1.0),
    };
    assert_eq!(unary(clip, &[-3.0, 0.5, 3.0]), [-1.0, 0.5, 1.0]);
    assert_eq!(
        unary(
            Unary::Clip {
                min: None,
                max: None
            },
            &[-3.0]
        ),
        [-3.0]
    );
    assert!(unary(clip, &[nan])[0].is_nan());
    assert_eq!(
        unary(Unary::LeakyRelu { alpha: 0.5 }, &[-2.0, 2.0]),
        [-1.0, 2.0]
    );
    let hard = Unary::HardSigmoid {
        alpha: 0.5,
        beta: 0.25,
    };
    assert_eq!(unary(hard, &[-1.0, 0.5, 2.0]), [0.0, 0.5, 1.0]);
    assert_eq!(
        unary(Unary::HardSwish, &[-4.0, 3.0, -1.5]),
        [0.0, 3.0, -0.375]
    );
    assert_eq!(
        unary(Unary::Round, &[0.5, 1.5, 2.5, -0.5]),
        [0.0, 2.0, 2.0, -0.0]
    );
    assert_eq!(unary(Unary::Floor, &[-1.5]), [-2.0]);
    assert_eq!(unary(Unary::Ceil, &[-1.5]), [-1.0]);
    assert_eq!(unary(Unary::Sign, &[-3.0, 0.0, 7.0]), [-1.0, 0.0, 1.0]);
    assert_eq!(unary(Unary::Sqrt, &[9.0]), [3.0]);
    assert_eq!(unary(Unary::Reciprocal, &[4.0]), [0.25]);
    assert_eq!(unary(Unary::Neg, &[4.0]), [-4.0]);
    assert_eq!(unary(Unary::Abs, &[-4.0]), [4.0]);
    assert_eq!(unary(Unary::Exp, &[0.0, 1.0]), [1.0, std::f32::consts::E]);
    assert_eq!(
        unary(Unary::Log, &[1.0, 2.0]),
        [0.0, std::f32::consts::LN_2]
    );
    assert_eq!(
        unary(Unary::Sigmoid, &[0.0, 200.0, -200.0])[..2],
        [0.5, 1.0]
    );
    assert_eq!(unary(Unary::Tanh, &[0.0, 50.0]), [0.0, 1.0]);
    assert_eq!(unary(Unary::Erf, &[1.0]), [0.842_700_8]);
    assert_eq!(
        unary(Unary::Gelu(Gelu::Exact), &[1.0, -1.0]),
        [0.841_344_8, -0.158_655_26]
    );
    assert_eq!(
        unary(Unary::Gelu(Gelu::Tanh), &[1.0, -1.0]),
        [0.841_192, -0.158_808_01]
    );
}

#[test]
fn unary_integers_and_bool() {
    let x = Tensor::from_slice(&[3], &[-128i8, -1, 5]);
    assert_eq!(
        run(Op::Unary(Unary::Neg), &[&x]).as_slice::<i8>(),
        [-128, 1, -5]
    );
    assert_eq!(
        run(Op::Unary(Unary::Abs), &[&x]).as_slice::<i8>(),
        [-128, 1, 5]
    );
    assert_eq!(
        run(Op::Unary(Unary::Relu), &[&x]).as_slice::<i8>(),
        [0, 0, 5]
    );
    let clip = Unary::Clip {
        min: Some(-2.0),
        max: Some(2.0),
    };
    assert_eq!(run(Op::Unary(clip), &[&x]).as_slice::<i8>(), [-2, -1, 2]);
    let b = Tensor::from_bools(&[2], &[true, false]);
    assert_eq!(
        run(Op::Unary(Unary::Not), &[&b]),
        Tensor::from_bools(&[2], &[false, true])
    );
    assert!(refused(Op::Unary(Unary::Exp), &[&x]).contains("not defined on i8"));
    assert!(refused(Op::Unary(Unary::Neg), &[&b]).contains("not defined on bool"));
}

#[test]
fn binary_floats_broadcast() {
    let x = f32s(&[2, 1], &[1.0, 10.0]);
    let y = f32s(&[3], &[1.0, 2.0, 4.0]);
    assert_eq!(
        binary(Binary::Add, &x, &y),
        f32s(&[2, 3], &[2.0, 3.0, 5.0, 11.0, 12.0, 14.0])
    );
    assert_eq!(
        binary(Binary::Sub, &x, &y),
        f32s(&[2, 3], &[0.0, -1.0, -3.0, 9.0, 8.0, 6.0])
    );
    assert_eq!(
        binary(Binary::Mul, &x, &y),
        f32s(&[2, 3], &[1.0, 2.0, 4.0, 10.0, 20.0, 40.0])
    );
    assert_eq!(
        binary(Binary::Div, &x, &y),
        f32s(&[2, 3], &[1.0, 0.5, 0.25, 10.0, 5.0, 2.5])
    );
    assert_eq!(
        binary(Binary::Max, &x, &y),
        f32s(&[2, 3], &[1.0, 2.0, 4.0, 10.0, 10.0, 10.0])
    );
    assert_eq!(
        binary(Binary::Min, &x, &y),
        f32s(&[2, 3], &[1.0, 1.0, 1.0, 1.0, 2.0, 4.0])
    );
    let less = binary(Binary::Less, &x, &y);
    assert_eq!(
        less,
        Tensor::from_bools(&[2, 3], &[false, true, true, false, false, false])
    );
    let nan = f32s(&[1], &[f32::NAN]);
    for op in [Binary::Min, Binary::Max] {
        assert!(
            binary(op, &y, &nan)
                .as_slice::<f32>()
                .iter()
                .all(|v| v.is_nan())
        );
    }
    for op in [
        Binary::Equal,
        Binary::Less,
        Binary::LessOrEqual,
        Binary::GreaterOrEqual,
    ] {
        assert_eq!(binary(op, &nan, &nan), Tensor::from_bools(&[1], &[false]));
    }
    assert!(refused(Op::Binary(Binary::Add), &[&f32s(&[2], &[0.0; 2]), &y]).contains("broadcast"));
}

#[test]
fn binary_integers() {
    let x = i64s(&[4], &[7, -7, 7, -7]);
    let y = i64s(&[4], &[2, 2, -2, -2]);
    assert_eq!(binary(Binary::Div, &x, &y), i64s(&[4], &[3, -3, -3, 3]));
    assert_eq!(binary(Binary::Mod, &x, &y), i64s(&[4], &[1, 1, -1, -1]));
    assert_eq!(binary(Binary::Fmod, &x, &y), i64s(&[4], &[1, -1, 1, -1]));
    assert_eq!(
        binary(
            Binary::Pow,
            &i64s(&[4], &[3, -2, 0, 5]),
            &i64s(&[4], &[4, 3, 0, 1])
        ),
        i64s(&[4], &[81, -8, 1, 5])
    );
    // Beyond what f64 holds exactly.
    let big = i64s(&[1], &[(1 << 53) + 1]);
    assert_eq!(binary(Binary::Add, &big, &i64s(&[1], &[0])), big);
    assert_eq!(
        binary(Binary::Greater, &big, &i64s(&[1], &[1 << 53])),
        Tensor::from_bools(&[1], &[true])
    );
    let u = Tensor::from_slice(&[1], &[250u8]);
    let six = Tensor::from_slice(&[1], &[6u8]);
    assert_eq!(binary(Binary::Add, &u, &six).as_slice::<u8>(), [0]);
    assert!(refused(Op::Binary(Binary::Div), &[&x, &i64s(&[1], &[0])]).contains("zero"));
    assert!(refused(Op::Binary(Binary::Add), &[&x, &u]).contains("different types"));
}

#[test]
fn where_and_cast() {
    let c = Tensor::from_bools(&[2, 1], &[true, false]);
    let (x, y) = (f32s(&[2], &[1.0, 2.0]), f32s(&[], &[9.0]));
    assert_eq!(
        run(Op::Where, &[&c, &x, &y]),
        f32s(&[2, 2], &[1.0, 2.0, 9.0, 9.0])
    );
    let x = f32s(&[4], &[-1.7, 0.0, 0.4, 300.0]);
    assert_eq!(
        run(Op::Cast(DType::I32), &[&x]).as_slice::<i32>(),
        [-1, 0, 0, 300]
    );
    assert_eq!(
        run(Op::Cast(DType::U8), &[&x]).as_slice::<u8>(),
        [255, 0, 0, 44]
    );
    assert_eq!(
        run(Op::Cast(DType::Bool), &[&x]),
        Tensor::from_bools(&[4], &[true, false, true, true])
    );
    assert_eq!(
        run(Op::Cast(DType::F64), &[&x]).as_slice::<f64>()[0],
        f64::from(-1.7f32)
    );
    // 2049 is halfway between neighbours in f16 and rounds to even.
    let half = run(Op::Cast(DType::F16), &[&f32s(&[1], &[2049.0])]);
    assert_eq!(half.get_f64(0), 2048.0);
}

#[test]
fn matmul_of_every_rank() {
    let a = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let b = f32s(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let v = f32s(&[3], &[1.0, 1.0, 2.0]);
    assert_eq!(
        run(Op::MatMul, &[&a, &b]),
        f32s(&[2, 2], &[4.0, 5.0, 10.0, 11.0])
    );
    assert_eq!(run(Op::MatMul, &[&a, &v]), f32s(&[2], &[9.0, 21.0]));
    assert_eq!(run(Op::MatMul, &[&v, &b]), f32s(&[2], &[3.0, 3.0]));
    assert_eq!(run(Op::MatMul, &[&v, &v]), f32s(&[], &[6.0]));
    assert!(refused(Op::MatMul, &[&a, &a]).contains("inner dimension"));

    // Batches broadcast: every pair equals the product of its slices.
    let (a, b) = (whole(&[2, 1, 3, 4], 1), whole(&[5, 4, 2], 2));
    let out = run(Op::MatMul, &[&a, &b]);
    assert_eq!(out.shape(), [2, 5, 3, 2]);
    let part = |t: &Tensor, i: usize, shape: [usize; 2]| {
        let n = shape[0] * shape[1];
        f32s(&shape, &t.as_slice::<f32>()[i * n..(i + 1) * n])
    };
    for (i, j) in (0..2).flat_map(|i| (0..5).map(move |j| (i, j))) {
        let want = run(Op::MatMul, &[&part(&a, i, [3, 4]), &part(&b, j, [4, 2])]);
        assert_eq!(part(&out, i * 5 + j, [3, 2]), want);
    }
    // Integers wrap in their own type.
    let x = Tensor::from_slice(&[1, 2], &[100i8, 100]);
    let y = Tensor::from_slice(&[2, 1], &[1i8, 1]);
    assert_eq!(run(Op::MatMul, &[&x, &y]).as_slice::<i8>(), [-56]);
}

#[test]
fn gemm_transposes_scales_and_adds() {
    let (a, b) = (whole(&[5, 7], 1), whole(&[7, 6], 2));
    let flip = |t: &Tensor| run(Op::Transpose(Transpose { perm: vec![1, 0] }), &[t]);
    let product = run(Op::MatMul, &[&a, &b]);
    let c = whole(&[6], 3);
    for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
        let gemm = Gemm {
            alpha: 0.5,
            beta: 2.0,
            trans_a,
            trans_b,
        };
        let a = if trans_a { flip(&a) } else { a.clone() };
        let b = if trans_b { flip(&b) } else { b.clone() };
        let out = run(Op::Gemm(gemm), &[&a, &b, &c]);
        for i in 0..out.len() {
            let want = 0.5 * product.get_f64(i) + 2.0 * c.get_f64(i % 6);
            assert_eq!(out.get_f64(i), want);
        }
    }
}

#[test]
fn reductions() {
    let x = f32s(&[2, 3], &[1.0, 5.0, 3.0, -4.0, 0.0, 2.0]);
    let reduce = |kind, axes: &[usize], keepdims| {
        run(
            Op::Reduce(Reduce {
                kind,
                axes: axes.to_vec(),
                keepdims,
            }),
            &[&x],
        )
    };
    assert_eq!(
        reduce(ReduceKind::Sum, &[0], false),
        f32s(&[3], &[-3.0, 5.0, 5.0])
    );
    assert_eq!(
        reduce(ReduceKind::Mean, &[1], true),
        f32s(&[2, 1], &[3.0, -2.0 / 3.0])
    );
    assert_eq!(reduce(ReduceKind::Max, &[0, 1], false), f32s(&[], &[5.0]));
    assert_eq!(
        reduce(ReduceKind::Min, &[1], false),
        f32s(&[2], &[1.0, -4.0])
    );
    assert_eq!(
        reduce(ReduceKind::Prod, &[1], false),
        f32s(&[2], &[15.0, -0.0])
    );
    assert_eq!(reduce(ReduceKind::Sum, &[], false), x);
    let empty = Tensor::zeros(DType::I8, &[0, 2]);
    let over_nothing = |kind| {
        run(
            Op::Reduce(Reduce {
                kind,
                axes: vec![0],
                keepdims: false,
            }),
            &[&empty],
        )
    };
    assert_eq!(over_nothing(ReduceKind::Sum).as_slice::<i8>(), [0, 0]);
    assert_eq!(over_nothing(ReduceKind::Max).as_slice::<i8>(), [-128, -128]);
    assert_eq!(over_nothing(ReduceKind::Min).as_slice::<i8>(), [127, 127]);
    // f64 accumulation: in f32 the small number would vanish.
    let x = f32s(&[3], &[1e8, 1.0, -1e8]);
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![0],
        keepdims: false,
    };
    assert_eq!(run(Op::Reduce(sum), &[&x]), f32s(&[], &[1.0]));
}

#[test]
fn arg_reductions() {
    let x = f32s(&[2, 3], &[1.0, 5.0, 5.0, 2.0, 2.0, 0.0]);
    let arg = |max, axis, last| {
        run(
            Op::ArgReduce(ArgReduce {
                max,
                axis,
                keepdims: false,
                last,
            }),
            &[&x],
        )
    };
    assert_eq!(arg(true, 1, false), i64s(&[2], &[1, 0]));
    assert_eq!(arg(true, 1, true), i64s(&[2], &[2, 1]));
    assert_eq!(arg(false, 0, false), i64s(&[3], &[0, 1, 1]));
}

#[test]
fn softmax_along_any_axis() {
    let x = f32s(&[2, 2], &[0.0, 0.0, 1000.0, 0.0]);
    assert_eq!(
        run(Op::Softmax(Softmax { axis: 1 }), &[&x]),
        f32s(&[2, 2], &[0.5, 0.5, 1.0, 0.0])
    );
    assert_eq!(
        run(Op::Softmax(Softmax { axis: 0 }), &[&x]),
        f32s(&[2, 2], &[0.0, 0.5, 1.0, 0.5])
    );
    let x = fill_tensor(DType::F32, &[3, 4, 5], Fill::Normal { std: 2.0 }, 1);
    let moved = run(
        Op::Transpose(Transpose {
            perm: vec![0, 2, 1],
        }),
        &[&x],
    );
    let y = run(Op::Softmax(Softmax { axis: 2 }), &[&moved]);
    let y = run(
        Op::Transpose(Transpose {
            perm: vec![0, 2, 1],
        }),
        &[&y],
    );
    assert_eq!(run(Op::Softmax(Softmax { axis: 1 }), &[&x]), y);
}

#[test]
fn normalisations() {
    let x = f32s(&[1, 2, 2], &[1.0, 3.0, 10.0, 20.0]);
    let two = |a, b| f32s(&[2], &[a, b]);
    let bn = BatchNorm { epsilon: 0.0 };
    let out = run(
        Op::BatchNorm(bn),
        &[
            &x,
            &two(2.0, 1.0),
            &two(1.0, 0.0),
            &two(1.0, 10.0),
            &two(4.0, 25.0),
        ],
    );
    assert_eq!(out, f32s(&[1, 2, 2], &[1.0, 3.0, 0.0, 2.0]));

    let ln = LayerNorm {
        axis: 2,
        epsilon: 0.0,
        statistics: true,
    };
    let out = all(Op::LayerNorm(ln), &[&x, &two(1.0, 10.0), &two(0.5, 0.0)]);
    assert_eq!(out[0], f32s(&[1, 2, 2], &[-0.5, 10.0, -0.5, 10.0]));
    assert_eq!(out[1], f32s(&[1, 2, 1], &[2.0, 15.0]));
    assert_eq!(out[2], f32s(&[1, 2, 1], &[1.0, 0.2]));

    // size 3 with alpha 3: the sum of squares of the channel and its neighbours.
    let lrn = Lrn {
        size: 3,
        alpha: 3.0,
        beta: 1.0,
        bias: 1.0,
    };
    let x = f32s(&[1, 3, 1], &[1.0, 2.0, 3.0]);
    let out = run(Op::Lrn(lrn), &[&x]);
    assert_eq!(out, f32s(&[1, 3, 1], &[1.0 / 6.0, 2.0 / 15.0, 3.0 / 14.0]));
    // An even window reaches further up than down.
    let lrn = Lrn {
        size: 2,
        alpha: 2.0,
        beta: 1.0,
        bias: 1.0,
    };
    let out = run(Op::Lrn(lrn), &[&x]);
    assert_eq!(out, f32s(&[1, 3, 1], &[1.0 / 6.0, 2.0 / 14.0, 3.0 / 10.0]));
}

#[test]
fn slices_step_both_ways() {
    let x = whole(&[4, 5], 1);
    let slice = Slice {
        starts: vec![3, 0],
        steps: vec![-2, 3],
        sizes: vec![2, 2],
    };
    let out = run(Op::Slice(slice), &[&x]);
    let at = |r: usize, c: usize| x.as_slice::<f32>()[r * 5 + c];
    assert_eq!(
        out,
        f32s(&[2, 2], &[at(3, 0), at(3, 3), at(1, 0), at(1, 3)])
    );
    let outside = Slice {
        starts: vec![3, 0],
        steps: vec![-2, 1],
        sizes: vec![3, 5],
    };
    assert!(refused(Op::Slice(outside), &[&x]).contains("axis 0 leaves"));
}

#[test]
fn split_undoes_concat() {
    for axis in 0..3 {
        let mut shapes = vec![vec![2, 3, 4]; 3];
        for (i, s) in shapes.iter_mut().enumerate() {
            s[axis] = [1, 0, 5][i];
        }
        let parts: Vec<_> = shapes
            .iter()
            .enumerate()
            .map(|(i, s)| whole(s, i as u64))
            .collect();
        let operands: Vec<_> = parts.iter().collect();
        let joined = run(Op::Concat(Concat { axis }), &operands);
        let split = Split {
            axis,
            sizes: vec![1, 0, 5],
        };
        assert_eq!(all(Op::Split(split), &[&joined]), parts);
    }
    let (a, b) = (
        f32s(&[2, 1], &[1.0, 2.0]),
        f32s(&[2, 2], &[3.0, 4.0, 5.0, 6.0]),
    );
    let joined = run(Op::Concat(Concat { axis: 1 }), &[&a, &b]);
    assert_eq!(joined, f32s(&[2, 3], &[1.0, 3.0, 4.0, 2.0, 5.0, 6.0]));
}

#[test]
fn padding_modes() {
    let x = i64s(&[4], &[1, 2, 3, 4]);
    let pad = |mode, before, after| {
        run(
            Op::Pad(Pad {
                mode,
                pads: vec![(before, after)],
            }),
            &[&x],
        )
        .as_slice::<i64>()
        .to_vec()
    };
    assert_eq!(pad(PadMode::Constant(7.0), 1, 2), [7, 1, 2, 3, 4, 7, 7]);
    assert_eq!(pad(PadMode::Constant(7.0), -1, 1), [2, 3, 4, 7]);
    assert_eq!(pad(PadMode::Reflect, 2, 2), [3, 2, 1, 2, 3, 4, 3, 2]);
    assert_eq!(pad(PadMode::Edge, 2, 1), [1, 1, 1, 2, 3, 4, 4]);
    assert_eq!(pad(PadMode::Wrap, 2, 1), [3, 4, 1, 2, 3, 4, 1]);
    let gone = Pad {
        mode: PadMode::Constant(0.0),
        pads: vec![(-3, -2)],
    };
    assert!(refused(Op::Pad(gone), &[&x]).contains("leave nothing"));
}

#[test]
fn transposes_expands_and_gathers() {
    let x = whole(&[2, 3, 4], 5);
    let out = run(
        Op::Transpose(Transpose {
            perm: vec![2, 0, 1],
        }),
        &[&x],
    );
    assert_eq!(out.shape(), [4, 2, 3]);
    for (i, j, k) in [(0, 0, 0), (1, 2, 3), (0, 1, 2)] {
        assert_eq!(
            out.get_f64((k * 2 + i) * 3 + j),
            x.get_f64((i * 3 + j) * 4 + k)
        );
    }
    let column = f32s(&[2, 1], &[1.0, 2.0]);
    let out = run(
        Op::Expand(Expand {
            shape: vec![2, 2, 3],
        }),
        &[&column],
    );
    assert_eq!(
        out,
        f32s(&[2, 2, 3], &[1.0, 1.0, 1.0, 2.0, 2.0, 2.0].repeat(2))
    );
    let table = f32s(&[3, 2], &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let rows = run(
        Op::Gather(Gather { axis: 0 }),
        &[&table, &i64s(&[2, 1], &[-1, 0])],
    );
    assert_eq!(rows, f32s(&[2, 1, 2], &[20.0, 21.0, 0.0, 1.0]));
    let columns = run(Op::Gather(Gather { axis: 1 }), &[&table, &i64s(&[], &[1])]);
    assert_eq!(columns, f32s(&[3], &[1.0, 11.0, 21.0]));
    let outside = refused(Op::Gather(Gather { axis: 0 }), &[&table, &i64s(&[1], &[3])]);
    assert!(outside.contains("index 3 is outside axis 0 of 3 elements"));
}

#[test]
fn sixteen_bit_floats_round_once() {
    for dtype in [DType::F16, DType::BF16] {
        let wide = fill_tensor(DType::F32, &[3, 40], Fill::Normal { std: 1.0 }, 9);
        let x = run(Op::Cast(dtype), &[&wide]);
        let exact = run(Op::Cast(DType::F32), &[&x]);
        let sum = |t: &Tensor| {
            run(
                Op::Reduce(Reduce {
                    kind: ReduceKind::Sum,
                    axes: vec![1],
                    keepdims: false,
                }),
                &[t],
            )
        };
        assert_eq!(sum(&x), run(Op::Cast(dtype), &[&sum(&exact)]));
    }
}

#[test]
fn sizes_that_overflow_are_refused() {
    let x = Tensor::zeros(DType::F32, &[1]);
    let huge = Expand {
        shape: vec![1 << 40, 1 << 40],
    };
    assert!(refused(Op::Expand(huge), &[&x]).contains("too large"));
    let none = Expand {
        shape: vec![1 << 40, 1 << 40, 0],
    };
    assert!(refused(Op::Expand(none), &[&x]).contains("too large"));
    assert!(compare(&x, &x).within(0.0));
}

/// Of 1e22, which f64 has exactly, 22 digits of pi and more decide the sine.
#[test]
fn references_reduce_large_angles_exactly() {
    use graph::ops::Unary;
    let of = |op| {
        let angle = tensor::Tensor::from_slice(&[1], &[1e22f64]);
        let results = graph::reference::apply(&graph::Op::Unary(op), &[Some(&angle)]).unwrap();
        results[0].get_f64(0)
    };
    for (found, expected) in [
        (of(Unary::Sin), -0.852_200_849_767_188_8),
        (of(Unary::Cos), 0.523_214_785_395_138_9),
        (of(Unary::Tan), -1.628_778_225_606_898),
    ] {
        assert!((found - expected).abs() < 1e-15, "{found}, not {expected}");
    }
}
