//! Operators on floats of 16 bits that are written out in several operators: only their results
//! are rounded to 16 bits.

mod build_onnx;

use build_onnx::{
    F32, I64, file, float, floats_of, import_with, int, ints, known, node, undeclared,
};
use graph::{Keep, evaluate};
use onnx::ImportOptions;
use onnx::proto::{AttributeProto, GraphProto, OperatorSetIdProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

const F16: i32 = 10;
const BF16: i32 = 16;

/// A node of one output.
struct Case {
    op: &'static str,
    domain: &'static str,
    opset: i64,
    attributes: Vec<AttributeProto>,
    operands: Vec<Tensor>,
    constants: Vec<TensorProto>,
}

fn case(op: &'static str, opset: i64, operands: Vec<Tensor>) -> Case {
    Case {
        op,
        domain: "",
        opset,
        attributes: Vec::new(),
        operands,
        constants: Vec::new(),
    }
}

fn microsoft(op: &'static str, operands: Vec<Tensor>) -> Case {
    Case {
        domain: "com.microsoft",
        ..case(op, 17, operands)
    }
}

impl Case {
    fn with(mut self, attribute: AttributeProto) -> Case {
        self.attributes.push(attribute);
        self
    }

    /// A constant operand behind the others.
    fn and(mut self, constant: TensorProto) -> Case {
        self.constants.push(constant);
        self
    }

    /// The results on operands of a type of floats, all of them constants if `folded`. Operands
    /// have values of that type.
    fn run(&self, elem_type: i32, operands: &[Tensor], folded: bool) -> Vec<Arc<Tensor>> {
        let names: Vec<String> = (0..operands.len()).map(|i| format!("x{i}")).collect();
        let constants = self.constants.iter().map(|c| c.name());
        let read: Vec<&str> = names.iter().map(String::as_str).chain(constants).collect();
        let mut node = node(self.op, &read, &["y"], self.attributes.clone());
        node.domain = Some(self.domain.into());
        let inputs = names.iter().zip(operands).map(|(name, t)| {
            let shape: Vec<i64> = t.shape().iter().map(|n| *n as i64).collect();
            let elem_type = if t.dtype().is_int() { I64 } else { elem_type };
            known(name, elem_type, &shape)
        });
        let graph = GraphProto {
            name: Some("g".into()),
            node: vec![node],
            input: inputs.collect(),
            output: vec![undeclared("y")],
            initializer: self.constants.clone(),
            ..Default::default()
        };
        let mut model = file(self.opset, graph);
        model.opset_import.push(OperatorSetIdProto {
            domain: Some("com.microsoft".into()),
            version: Some(1),
        });
        let operands: Vec<Arc<Tensor>> = operands.iter().cloned().map(Arc::new).collect();
        let mut options = ImportOptions::default();
        let mut given = operands.clone();
        if folded {
            options.consts = names.into_iter().zip(operands).collect();
            given.clear();
        }
        let m = import_with(&model, &options).unwrap_or_else(|e| panic!("{}: {e}", self.op));
        m.verify().unwrap();
        evaluate(&m, &given, Keep::Outputs).unwrap().outputs()
    }

    /// Checks that the results on halves are those on f32, rounded.
    fn check(&self) {
        for (elem_type, dtype) in [(F16, DType::F16), (BF16, DType::BF16)] {
            let narrow: Vec<Tensor> = self.operands.iter().map(|t| cast(t, dtype)).collect();
            let wide: Vec<Tensor> = narrow.iter().map(|t| cast(t, DType::F32)).collect();
            let want = cast(&self.run(F32, &wide, false)[0], dtype);
            for folded in [false, true] {
                let got = self.run(elem_type, &narrow, folded);
                assert_eq!(got[0].dtype(), dtype, "{}", self.op);
                let same = got[0].bytes() == want.bytes();
                assert!(
                    same,
                    "{} of {dtype}: {:?}, not {:?}",
                    self.op,
                    floats_of(&got[0]),
                    floats_of(&want)
                );
            }
        }
    }
}

fn cast(t: &Tensor, to: DType) -> Tensor {
    if t.dtype().is_int() {
        return t.clone();
    }
    let mut cast = Tensor::zeros(to, t.shape());
    (0..t.len()).for_each(|i| cast.set_f64(i, t.get_f64(i)));
    cast
}

fn within(bound: f64, shape: &[usize], seed: u64) -> Tensor {
    let (lo, hi) = (-bound, bound);
    fill_tensor(DType::F32, shape, Fill::Uniform { lo, hi }, seed)
}

fn half(elem_type: i32, x: &[f64], shape: &[usize]) -> Tensor {
    let dtype = if elem_type == F16 {
        DType::F16
    } else {
        DType::BF16
    };
    let mut t = Tensor::zeros(dtype, shape);
    x.iter().enumerate().for_each(|(i, x)| t.set_f64(i, *x));
    t
}

#[test]
fn squares_and_powers_do_not_overflow() {
    let x: Vec<f64> = (0..64)
        .map(|i| if i % 3 == 0 { -300.0 } else { 300.0 })
        .collect();
    // Their squares are no halves above 0.
    let small: Vec<f64> = x.iter().map(|x| x * 2.0f64.powi(-23)).collect();
    let shape = [1, 1, 8, 8];
    type Formula = fn(&[f64]) -> f64;
    let l2: Formula = |x| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let l3: Formula = |x| x.iter().map(|x| x.abs().powi(3)).sum::<f64>().cbrt();
    let all = |op| case(op, 13, vec![]);
    let window = |c: Case| c.with(ints("kernel_shape", &[8, 8]));
    let cases: Vec<(Case, Formula)> = vec![
        (all("ReduceL2"), l2),
        (all("GlobalLpPool"), l2),
        (all("GlobalLpPool").with(int("p", 3)), l3),
        (window(all("LpPool")), l2),
        (window(all("LpPool").with(int("p", 3))), l3),
        (all("ReduceLogSumExp"), |x| {
            let max = x.iter().copied().fold(f64::MIN, f64::max);
            max + x.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
        }),
    ];
    assert_eq!(l2(&x), 2400.0);
    for (c, formula) in cases {
        for (elem_type, digits) in [(F16, 11), (BF16, 8)] {
            for x in [&x, &small] {
                let x = half(elem_type, x, &shape);
                let want = formula(&floats_of(&x));
                let y = c.run(elem_type, &[x], false)[0].get_f64(0);
                let error = (y - want).abs() / want.abs();
                assert!(
                    error < 1.01 * 2.0f64.powi(-digits),
                    "{}: {y}, not {want}",
                    c.op
                );
            }
        }
    }
}

#[test]
fn normalisations_divide_by_what_no_half_holds() {
    let x: Vec<f64> = (0..64)
        .map(|i| if i % 3 == 0 { -300.0 } else { 300.0 })
        .collect();
    let norm = case("LpNormalization", 22, vec![]).with(int("axis", 3));
    for p in [1, 2] {
        let c = case("LpNormalization", 22, vec![])
            .with(int("axis", 3))
            .with(int("p", p));
        // The sum of 64 x 2000 is above all halves.
        let x: Vec<f64> = x.iter().map(|x| x * 2000.0 / 300.0).collect();
        let y = c.run(F16, &[half(F16, &x, &[1, 1, 1, 64])], false);
        let want = if p == 1 { 1.0 / 64.0 } else { 1.0 / 8.0 };
        assert!(floats_of(&y[0]).iter().all(|y| y.abs() == want), "p={p}");
    }
    let y = norm.run(F16, &[half(F16, &x, &[1, 1, 8, 8])], false);
    let want = half(F16, &[1.0 / 8.0f64.sqrt()], &[]).get_f64(0);
    assert!(floats_of(&y[0]).iter().all(|y| y.abs() == want));
    // 1e-9, which is added to a deviation of 0, is 0 as a half.
    let same = half(F16, &[300.0; 8], &[1, 2, 2, 2]);
    let y = case("MeanVarianceNormalization", 13, vec![]).run(F16, &[same], false);
    assert!(floats_of(&y[0]).iter().all(|y| *y == 0.0));
}

/// Of 2 x 3 pixels of 4 channels; of up to this size.
fn image(bound: f64) -> Tensor {
    within(bound, &[2, 4, 2, 3], 1)
}

#[test]
fn activations_round_once() {
    for bound in [1e-3, 1.0, 8.0, 300.0] {
        let x = || vec![image(bound)];
        let plain = [
            "Celu",
            "Elu",
            "Mish",
            "Selu",
            "Shrink",
            "Softplus",
            "Softsign",
            "ThresholdedRelu",
        ];
        for op in plain {
            case(op, 22, x()).check();
        }
        for op in ["Celu", "Elu", "ThresholdedRelu"] {
            case(op, 22, x()).with(float("alpha", 0.1)).check();
        }
        case("Swish", 24, x()).with(float("alpha", 1.702)).check();
        case("Shrink", 22, x()).with(float("bias", 0.1)).check();
        microsoft("QuickGelu", x()).check();
        microsoft("BiasGelu", vec![image(bound), within(bound, &[3], 2)]).check();
        microsoft("FastGelu", vec![image(bound), within(bound, &[3], 2)]).check();
        case("PRelu", 16, vec![image(bound), within(1.0, &[1], 2)]).check();
        let three = || vec![image(6e4), image(6e4), within(6e4, &[2, 4, 2, 3], 2)];
        case("Sum", 13, three()).check();
        case("Mean", 13, three()).check();
    }
}

#[test]
fn reductions_and_normalisations_round_once() {
    let one = |n: usize, seed| within(2.0, &[n], seed);
    for bound in [1e-3, 1.0, 300.0, 6e4] {
        let x = || vec![image(bound)];
        let affine = || vec![image(bound), one(4, 2), one(4, 3)];
        for op in [
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMean",
            "ReduceSum",
            "ReduceSumSquare",
            "GlobalLpPool",
            "GlobalAveragePool",
            "LRN",
            "LpNormalization",
            "MeanVarianceNormalization",
            "Softmax",
            "LogSoftmax",
        ] {
            let c = case(op, 13, x());
            if op == "LRN" {
                c.with(int("size", 3))
            } else {
                c
            }
            .check();
        }
        case("InstanceNormalization", 17, affine()).check();
        case("GroupNormalization", 21, affine())
            .with(int("num_groups", 2))
            .check();
        let norm = [one(4, 4), within(1.0, &[4], 5)].map(|t| {
            let mut t = t;
            (0..t.len()).for_each(|i| t.set_f64(i, t.get_f64(i).abs()));
            t
        });
        let [mean, variance] = norm;
        let all = [affine(), vec![mean, variance]].concat();
        case("BatchNormalization", 15, all).check();
        case("RMSNormalization", 23, vec![image(bound), one(3, 2)]).check();
        case(
            "LayerNormalization",
            17,
            vec![image(bound), one(3, 2), one(3, 3)],
        )
        .check();
        let rows = |seed| within(bound, &[2, 3, 4], seed);
        let skip = || vec![rows(1), rows(2), one(4, 3)];
        microsoft("SkipSimplifiedLayerNormalization", skip()).check();
        microsoft(
            "SkipLayerNormalization",
            [skip(), vec![one(4, 4), one(4, 5)]].concat(),
        )
        .check();
        case("SimplifiedLayerNormalization", 17, vec![rows(1), one(4, 3)]).check();
    }
}

#[test]
fn products_attention_and_recurrence_round_once() {
    let t = within;
    microsoft(
        "FusedMatMul",
        vec![t(300.0, &[3, 4], 1), t(300.0, &[4, 5], 2)],
    )
    .with(float("alpha", 0.01))
    .check();
    let gemm = vec![t(300.0, &[3, 4], 1), t(300.0, &[4, 5], 2), t(9.0, &[5], 3)];
    microsoft("FusedGemm", gemm)
        .with(float("alpha", 0.01))
        .check();
    let heads = |seed| t(30.0, &[1, 2, 3, 64], seed);
    case("Attention", 23, vec![heads(1), heads(2), heads(3)]).check();
    let rows = |seed| t(30.0, &[1, 3, 64], seed);
    microsoft("MultiHeadAttention", vec![rows(1), rows(2), rows(3)])
        .with(int("num_heads", 2))
        .check();
    let packed = vec![
        t(30.0, &[1, 3, 8], 1),
        t(30.0, &[8, 24], 2),
        t(1.0, &[24], 3),
    ];
    microsoft("Attention", packed)
        .with(int("num_heads", 2))
        .check();
    let angles = |seed| t(1.0, &[1, 3, 2], seed);
    let rotated = vec![t(6e4, &[1, 2, 3, 4], 1), angles(2), angles(3)];
    case("RotaryEmbedding", 23, rotated).check();
    for (op, gates) in [("RNN", 1), ("GRU", 3), ("LSTM", 4)] {
        let (w, r) = (t(9.0, &[1, gates * 2, 3], 2), t(1.0, &[1, gates * 2, 2], 3));
        case(op, 14, vec![t(300.0, &[4, 1, 3], 1), w, r])
            .with(int("hidden_size", 2))
            .check();
    }
    let classes = Tensor::from_slice(&[3], &[1i64, 0, 3]);
    for op in ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"] {
        case(op, 13, vec![t(6e4, &[3, 4], 1), classes.clone()]).check();
    }
    let state = vec![
        t(200.0, &[1, 2, 6], 1),
        t(300.0, &[2, 1, 3], 2),
        t(9.0, &[2], 3),
    ];
    case("CausalConvWithState", 26, state).check();
    case("SwiGLU", 26, vec![image(300.0), image(300.0)]).check();
}

#[test]
fn samplers_and_transforms_round_once() {
    let sizes = build_onnx::int64s("length", &[8]);
    let signal = within(6e3, &[1, 8, 1], 1);
    case("DFT", 17, vec![signal]).and(sizes).check();
    case("Det", 22, vec![within(300.0, &[2, 3, 3], 1)]).check();
    let regions = Tensor::from_slice(&[2, 4], &[0.0f32, 0.0, 1.5, 1.25, 0.5, 0.25, 2.0, 1.0]);
    let of = build_onnx::int64s("of", &[0, 1]);
    case("RoiAlign", 16, vec![image(6e4), regions])
        .with(int("sampling_ratio", 2))
        .and(of)
        .check();
    let grid = within(1.0, &[2, 3, 3, 2], 2);
    case("GridSample", 16, vec![image(6e4), grid]).check();
    case("CumSum", 14, vec![within(6e3, &[9], 1)])
        .and(build_onnx::scalar("axis", 0))
        .check();
    case("CumProd", 26, vec![within(30.0, &[9], 1)])
        .and(build_onnx::scalar("axis", 0))
        .check();
}
