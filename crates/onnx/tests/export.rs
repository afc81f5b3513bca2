//! Exported models mean the same when they are read back.

use graph::builtin::builtin;
use graph::ops::*;
use graph::{Keep, Model, evaluate};
use onnx::{ExportError, ImportOptions, export, import_bytes};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, compare, fill_tensor};

fn model(op: Op, operands: &[(DType, &[usize])]) -> Model {
    let mut m = Model::new("single", 0);
    let inputs: Vec<_> = operands
        .iter()
        .map(|(d, s)| Some(m.add_input("x", *d, s)))
        .collect();
    for v in m.add_node("node", op, &inputs).unwrap() {
        m.add_output(v);
    }
    m
}

fn round_trip(op: Op, operands: &[(DType, &[usize])]) {
    let m = model(op.clone(), operands);
    let back = import_bytes(&export(&m).unwrap(), None, &ImportOptions::default()).unwrap();
    let inputs: Vec<_> = operands
        .iter()
        .enumerate()
        .map(|(i, (d, s))| {
            let fill = match d {
                d if d.is_float() => Fill::Uniform { lo: 0.1, hi: 2.0 },
                DType::Bool => Fill::Integers { lo: 0, hi: 1 },
                _ => Fill::Integers { lo: 1, hi: 2 },
            };
            Arc::new(fill_tensor(*d, s, fill, i as u64))
        })
        .collect();
    let expected = evaluate(&m, &inputs, Keep::Outputs).unwrap().outputs();
    let actual = evaluate(&back, &inputs, Keep::Outputs).unwrap().outputs();
    assert_eq!(actual.len(), expected.len(), "{op:?}");
    for (a, e) in actual.iter().zip(&expected) {
        assert_eq!((a.dtype(), a.shape()), (e.dtype(), e.shape()), "{op:?}");
        assert!(compare(a, e).within(1e-6), "{op:?}");
    }
}

const F: DType = DType::F32;
const I: DType = DType::I64;
const B: DType = DType::Bool;

#[test]
fn functions_of_angles() {
    use Unary::*;
    for u in [
        Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh,
    ] {
        round_trip(Op::Unary(u), &[(F, &[2, 3])]);
    }
}

#[test]
fn element_wise_operators() {
    use Unary::*;
    let clip = |min, max| Clip { min, max };
    for u in [
        Neg,
        Abs,
        Sign,
        Relu,
        clip(None, None),
        clip(Some(0.5), None),
        clip(None, Some(1.0)),
        clip(Some(0.5), Some(1.0)),
        LeakyRelu { alpha: 0.3 },
        Sigmoid,
        HardSigmoid {
            alpha: 0.3,
            beta: 0.2,
        },
        HardSwish,
        Tanh,
        Gelu(graph::ops::Gelu::Exact),
        Gelu(graph::ops::Gelu::Tanh),
        Erf,
        Sqrt,
        Exp,
        Log,
        Reciprocal,
        Floor,
        Ceil,
        Round,
    ] {
        round_trip(Op::Unary(u), &[(F, &[2, 3])]);
    }
    round_trip(Op::Unary(Not), &[(B, &[3])]);
    use Binary::*;
    for b in [
        Add,
        Sub,
        Mul,
        Div,
        Pow,
        Min,
        Max,
        Equal,
        Less,
        LessOrEqual,
        Greater,
        GreaterOrEqual,
        Fmod,
    ] {
        round_trip(Op::Binary(b), &[(F, &[2, 3]), (F, &[3])]);
        round_trip(Op::Binary(b), &[(I, &[2, 3]), (I, &[3])]);
    }
    round_trip(Op::Binary(Mod), &[(I, &[3]), (I, &[3])]);
    for b in [And, Or, Xor] {
        round_trip(Op::Binary(b), &[(B, &[4]), (B, &[4])]);
    }
    round_trip(Op::Where, &[(B, &[2, 1]), (F, &[3]), (F, &[])]);
    for d in [
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I8,
        DType::U8,
        DType::I32,
        I,
        B,
    ] {
        round_trip(Op::Cast(d), &[(F, &[3])]);
    }
    round_trip(Op::Identity, &[(F, &[3])]);
}

#[test]
fn windows_and_products() {
    let conv = Conv {
        strides: vec![2, 1],
        dilations: vec![1, 2],
        pads: vec![(1, 2), (0, 1)],
        groups: 2,
    };
    round_trip(
        Op::Conv(conv),
        &[(F, &[1, 4, 6, 6]), (F, &[6, 2, 3, 2]), (F, &[6])],
    );
    let transposed = ConvTranspose {
        strides: vec![3, 2],
        dilations: vec![1, 2],
        pads: vec![(1, 0), (2, -1)],
        output_padding: vec![2, 0],
        groups: 2,
    };
    round_trip(
        Op::ConvTranspose(transposed),
        &[(F, &[1, 4, 3, 3]), (F, &[4, 3, 3, 2]), (F, &[6])],
    );
    let kinds = [
        PoolKind::Max { indices: None },
        PoolKind::Max {
            indices: Some(IndexOrder::RowMajor),
        },
        PoolKind::Max {
            indices: Some(IndexOrder::ColumnMajor),
        },
        PoolKind::Average {
            count_include_pad: true,
        },
        PoolKind::Average {
            count_include_pad: false,
        },
    ];
    for kind in kinds {
        for ceil_mode in [false, true] {
            let pool = Pool {
                kind,
                kernel: vec![3, 2],
                strides: vec![2, 3],
                dilations: vec![1, 1],
                pads: vec![(1, 0), (1, 1)],
                ceil_mode,
            };
            round_trip(Op::Pool(pool), &[(F, &[1, 2, 6, 7])]);
        }
    }
    round_trip(Op::MatMul, &[(F, &[2, 3, 4]), (F, &[4, 5])]);
    let gemm = Gemm {
        alpha: 0.5,
        beta: 2.0,
        trans_a: true,
        trans_b: true,
    };
    let contract = Contract::parse("abcd,cbe->aed").unwrap();
    round_trip(
        Op::Contract(contract),
        &[(F, &[2, 3, 4, 5]), (F, &[4, 3, 6])],
    );
    round_trip(Op::Gemm(gemm), &[(F, &[4, 3]), (F, &[5, 4]), (F, &[5])]);
}

#[test]
fn resizing() {
    let scale = Scale::between(4, 7);
    for (filter, position) in [
        (Filter::Nearest(Rounding::HalfUp), scale.half_pixel()),
        (Filter::Linear, scale.align_corners(4)),
        (Filter::Cubic { a: -0.5 }, scale.asymmetric()),
    ] {
        let sampling = Sampling {
            size: 7,
            position,
            scale: scale.value(),
        };
        let resize = Resize {
            filter,
            axes: vec![None, Some(sampling)],
            antialias: false,
            exclude_outside: true,
            beyond: None,
        };
        round_trip(Op::Resize(resize), &[(F, &[3, 4])]);
    }
}

#[test]
fn normalisations_and_reductions() {
    let c: (DType, &[usize]) = (F, &[3]);
    round_trip(
        Op::BatchNorm(BatchNorm { epsilon: 0.1 }),
        &[(F, &[2, 3, 4]), c, c, c, c],
    );
    for statistics in [false, true] {
        let norm = LayerNorm {
            axis: 1,
            epsilon: 0.1,
            statistics,
        };
        round_trip(
            Op::LayerNorm(norm),
            &[(F, &[2, 3, 4]), (F, &[3, 4]), (F, &[3, 4])],
        );
    }
    let lrn = Lrn {
        size: 3,
        alpha: 0.1,
        beta: 0.5,
        bias: 2.0,
    };
    round_trip(Op::Lrn(lrn), &[(F, &[1, 5, 2])]);
    round_trip(Op::Softmax(Softmax { axis: 1 }), &[(F, &[2, 3, 4])]);
    use ReduceKind::*;
    for kind in [Sum, Mean, Prod, Max, Min] {
        for (axes, keepdims) in [(vec![0, 2], true), (vec![1], false), (vec![], true)] {
            let reduce = Reduce {
                kind,
                axes,
                keepdims,
            };
            round_trip(Op::Reduce(reduce), &[(F, &[2, 3, 4])]);
        }
    }
    for (max, last) in [(true, false), (false, true)] {
        let arg = ArgReduce {
            max,
            axis: 1,
            keepdims: max,
            last,
        };
        round_trip(Op::ArgReduce(arg), &[(F, &[2, 3])]);
    }
}

#[test]
fn movement() {
    let x: (DType, &[usize]) = (F, &[3, 4]);
    round_trip(Op::Concat(Concat { axis: 1 }), &[x, x]);
    round_trip(
        Op::Split(Split {
            axis: 1,
            sizes: vec![1, 0, 3],
        }),
        &[x],
    );
    for (starts, steps, sizes) in [
        (vec![1, 0], vec![1, 3], vec![2, 2]),
        (vec![2, 3], vec![-1, -2], vec![3, 2]),
        (vec![0, 2], vec![1, 1], vec![0, 1]),
    ] {
        round_trip(
            Op::Slice(Slice {
                starts,
                steps,
                sizes,
            }),
            &[x],
        );
    }
    for mode in [PadMode::Constant(1.5), PadMode::Reflect, PadMode::Edge] {
        let pads = vec![(1, 0), (-1, 2)];
        round_trip(Op::Pad(Pad { mode, pads }), &[x]);
    }
    round_trip(Op::Reshape(Reshape { shape: vec![2, 6] }), &[x]);
    round_trip(Op::Reshape(Reshape { shape: vec![5, 0] }), &[(F, &[0, 3])]);
    round_trip(Op::Transpose(Transpose { perm: vec![1, 0] }), &[x]);
    round_trip(
        Op::Expand(Expand {
            shape: vec![2, 3, 4],
        }),
        &[(F, &[3, 1])],
    );
    round_trip(Op::Gather(Gather { axis: 0 }), &[x, (I, &[2, 2])]);
    round_trip(Op::Lookup, &[(DType::U8, &[2, 3]), (F, &[256])]);
    let rows = (F, &[4, 5][..]);
    let picks = (I, &[3, 2][..]);
    round_trip(
        Op::GatherElements(GatherElements { axis: 1 }),
        &[rows, picks],
    );
    round_trip(Op::GatherNd(GatherNd { batch: 0 }), &[rows, picks]);
    for combine in [Combine::Replace, Combine::Add, Combine::Mul] {
        let elements = ScatterElements { axis: 0, combine };
        round_trip(Op::ScatterElements(elements), &[rows, picks, (F, &[3, 2])]);
        round_trip(
            Op::ScatterNd(ScatterNd { combine }),
            &[rows, picks, (F, &[3])],
        );
    }
    for largest in [false, true] {
        let (axis, k) = (1, 3);
        round_trip(Op::TopK(TopK { axis, k, largest }), &[rows]);
        let sum = Cumulative {
            kind: CumulativeKind::Sum,
            axis,
            exclusive: largest,
            reverse: !largest,
        };
        round_trip(Op::Cumulative(sum), &[rows]);
    }
    let sample = GridSample {
        interpolation: Interpolation::Cubic,
        outside: Outside::Reflection,
        align_corners: true,
    };
    round_trip(
        Op::GridSample(sample),
        &[(F, &[2, 3, 4, 5]), (F, &[2, 3, 2, 2])],
    );
}

#[test]
fn a_normalisation_with_one_scale_is_one_of_instances() {
    for (scale, nodes) in [(1.0f32, 1), (1.5, 2)] {
        let mut m = Model::new("norm", 0);
        let x = m.add_input("x", F, &[2, 3, 4, 5]);
        let scale = m.add_constant("scale", Tensor::from_slice(&[], &[scale]));
        let norm = LayerNorm {
            axis: 2,
            epsilon: 0.1,
            statistics: false,
        };
        let y = m.add("norm", Op::LayerNorm(norm), &[x, scale]).unwrap();
        m.add_output(y);
        let bytes = export(&m).unwrap();
        let name = b"InstanceNormalization";
        assert!(bytes.windows(name.len()).any(|w| w == name));
        // Nothing reads the scale any longer.
        assert!(!bytes.windows(5).any(|w| w == b"scale"));
        let back = import_bytes(&bytes, None, &ImportOptions::default()).unwrap();
        assert_eq!(back.nodes().len(), nodes, "its scale and zeros");
        let inputs = random_inputs(&m);
        let expected = evaluate(&m, &inputs, Keep::Outputs).unwrap().outputs();
        let actual = evaluate(&back, &inputs, Keep::Outputs).unwrap().outputs();
        assert!(compare(&actual[0], &expected[0]).within(1e-6));
    }
}

fn random_inputs(model: &Model) -> Vec<Arc<Tensor>> {
    let value = |v: &graph::ValueId| {
        let ty = model[*v].ty();
        let fill = match ty.dtype {
            DType::F32 => Fill::Normal { std: 1.0 },
            _ => Fill::Integers { lo: 0, hi: 1 },
        };
        Arc::new(fill_tensor(ty.dtype, &ty.shape, fill, 5))
    };
    model.inputs().iter().map(value).collect()
}

#[test]
fn builtin_models() {
    for name in [
        "resnet18",
        "mobilenet-v2",
        "op:conv2d(bias=yes,activation=gelu)",
    ] {
        let model = builtin(name, 2).unwrap();
        let bytes = export(&model).unwrap();
        let back = import_bytes(&bytes, None, &ImportOptions::default()).unwrap();
        let inputs = random_inputs(&model);
        let expected = evaluate(&model, &inputs, Keep::Outputs).unwrap().outputs();
        let actual = evaluate(&back, &inputs, Keep::Outputs).unwrap().outputs();
        for (a, e) in actual.iter().zip(&expected) {
            assert!(tensor::compare(a, e).within(1e-6), "{name}");
        }
        let names = |m: &Model| {
            m.outputs()
                .iter()
                .map(|v| m[*v].name().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&model), names(&back));
    }
}

#[test]
fn nodes_without_a_form_are_all_listed() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", F, &[1, 1, 4, 4]);
    let wrap = Pad {
        mode: PadMode::Wrap,
        pads: vec![(0, 0), (0, 0), (1, 1), (1, 1)],
    };
    let padded = m.add("padded", Op::Pad(wrap), &[x]).unwrap();
    let rest = m
        .add("rest", Op::Binary(Binary::Mod), &[padded, padded])
        .unwrap();
    m.add_output(rest);
    let ExportError::Nodes(nodes) = export(&m).unwrap_err() else {
        panic!("another error")
    };
    let names: Vec<_> = nodes.iter().map(|n| n.node.as_str()).collect();
    assert_eq!(names, ["padded", "rest"]);
}

#[test]
fn names_and_constants_survive() {
    let mut m = Model::new("named", 0);
    let x = m.add_input("the input", F, &[2]);
    let c = m.add_constant("the constant", Tensor::from_slice(&[2], &[1.5f32, -2.0]));
    let y = m.add("sum", Op::Binary(Binary::Add), &[x, c]).unwrap();
    m.rename(y, "the output");
    m.add_output(y);
    let back = import_bytes(&export(&m).unwrap(), None, &ImportOptions::default()).unwrap();
    assert_eq!(back[back.inputs()[0]].name(), "the input");
    assert_eq!(back[back.outputs()[0]].name(), "the output");
    let c = back.find_value("the constant").unwrap();
    assert_eq!(back.constant(c).unwrap().as_slice::<f32>(), [1.5, -2.0]);
}
