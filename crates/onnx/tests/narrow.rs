//! Element types that no tensor here has: constants of them, what may read them, and what may not.

mod build_onnx;

use build_onnx::{F32, I64, file, import, int, known, node, outputs, text, undeclared};
use graph::{Keep, evaluate, simplify};
use onnx::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::Tensor;

const I16: i32 = 5;
const U32: i32 = 12;
const U4: i32 = 21;
const I4: i32 = 22;
const F8: i32 = 17;

fn raw(name: &str, data_type: i32, dims: &[i64], bytes: &[u8]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        data_type: Some(data_type),
        dims: dims.to_vec(),
        raw_data: Some(bytes.to_vec().into()),
        ..Default::default()
    }
}

fn scale(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    build_onnx::floats(name, dims, values)
}

fn model(nodes: Vec<NodeProto>, constants: Vec<TensorProto>) -> ModelProto {
    file(
        21,
        GraphProto {
            name: Some("g".into()),
            node: nodes,
            initializer: constants,
            output: vec![undeclared("y")],
            ..Default::default()
        },
    )
}

fn values(m: &ModelProto) -> Vec<f64> {
    build_onnx::floats_of(&outputs(m)[0])
}

#[test]
fn constants_are_read_under_casts_and_movements() {
    let cast = || node("Cast", &["k"], &["y"], vec![int("to", F32.into())]);
    let of = |t: TensorProto| values(&model(vec![cast()], vec![t]));
    assert_eq!(
        of(raw("k", I16, &[2], &[0xff, 0xff, 0x39, 0x30])),
        [-1.0, 12345.0]
    );
    assert_eq!(of(raw("k", I4, &[3], &[0x8f, 0x07])), [-1.0, -8.0, 7.0]);
    assert_eq!(of(raw("k", F8, &[2], &[0x38, 0xc4])), [1.0, -3.0]);
    let listed = TensorProto {
        name: Some("k".into()),
        data_type: Some(U32),
        dims: vec![1],
        uint64_data: vec![4_000_000_000],
        ..Default::default()
    };
    assert_eq!(of(listed), [4e9]);
    let flip = node("Transpose", &["k"], &["t"], vec![]);
    let cast = node("Cast", &["t"], &["y"], vec![int("to", F32.into())]);
    let k = raw("k", U4, &[2, 3], &[0x10, 0x32, 0x54]);
    let y = values(&model(vec![flip, cast], vec![k]));
    assert_eq!(y, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
}

#[test]
fn numbers_of_blocks_have_the_scales_of_their_blocks() {
    // Five rows in blocks of 2: the last block has one.
    let attributes = vec![int("axis", 0), int("block_size", 2)];
    let dequantize = node("DequantizeLinear", &["k", "s", "z"], &["y"], attributes);
    let k = raw("k", U4, &[5, 1], &[0x21, 0x43, 0x05]);
    let z = raw("z", U4, &[3, 1], &[0x01, 0x02]);
    let s = scale("s", &[3, 1], &[1.0, 10.0, 100.0]);
    let y = values(&model(vec![dequantize], vec![k, s, z]));
    assert_eq!(y, [0.0, 1.0, 30.0, 40.0, 300.0]);
}

/// Numbers of 4 bits in blocks, along either axis, are read packed once the model is simplified.
#[test]
fn products_read_weights_of_4_bits_packed() {
    const TERMS: i64 = 32;
    const COLUMNS: i64 = 16;
    for turned in [false, true] {
        let axis = i64::from(turned);
        let [shape, blocks] = match turned {
            false => [[TERMS, COLUMNS], [2, COLUMNS]],
            true => [[COLUMNS, TERMS], [COLUMNS, 2]],
        };
        let of_blocks = blocks[0] * blocks[1];
        let packed: Vec<u8> = (0..TERMS * COLUMNS / 2)
            .map(|i| (i * 37 % 251) as u8)
            .collect();
        let points: Vec<u8> = (0..of_blocks / 2).map(|i| (i * 29 % 253) as u8).collect();
        let steps: Vec<f32> = (0..of_blocks).map(|i| 0.1 + i as f32 * 0.01).collect();
        let attributes = vec![int("axis", axis), int("block_size", 16)];
        let mut nodes = vec![node(
            "DequantizeLinear",
            &["k", "s", "z"],
            &["d"],
            attributes,
        )];
        let gemm = vec![int("transB", 1)];
        nodes.push(match turned {
            false => node("MatMul", &["x", "d"], &["y"], vec![]),
            true => node("Gemm", &["x", "d"], &["y"], gemm),
        });
        let constants = vec![
            raw("k", U4, &shape, &packed),
            raw("z", U4, &blocks, &points),
            scale("s", &blocks, &steps),
        ];
        let mut m = model(nodes, constants);
        m.graph.as_mut().unwrap().input = vec![known("x", F32, &[2, TERMS])];
        let model = import(&m).unwrap();
        let simple = simplify(&model);
        let ops: Vec<_> = simple.nodes().map(|(_, n)| n.op.name()).collect();
        assert_eq!(ops, ["matmul_blocks"]);
        let x: Vec<f32> = (0..2 * TERMS).map(|i| (i % 7) as f32 - 3.0).collect();
        let x = [Arc::new(Tensor::from_slice(&[2, TERMS as usize], &x))];
        let values = |m| {
            let outputs = evaluate(m, &x, Keep::Outputs).unwrap().outputs();
            build_onnx::floats_of(&outputs[0])
        };
        let (found, expected) = (values(&simple), values(&model));
        assert!(expected.iter().any(|y| y.abs() > 1.0));
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() < 1e-4, "{found:?}\n{expected:?}");
        }
    }
}

#[test]
fn quantised_numbers_of_16_bits_end_at_their_range() {
    let parts = ["x", "s", "z"];
    let nodes = vec![
        node("QuantizeLinear", &parts, &["q"], vec![]),
        node("DequantizeLinear", &["q", "s", "z"], &["y"], vec![]),
    ];
    let mut m = model(
        nodes,
        vec![scale("s", &[], &[0.5]), raw("z", I16, &[], &[0x0a, 0])],
    );
    m.graph.as_mut().unwrap().input = vec![known("x", F32, &[4])];
    let x = Tensor::from_slice(&[4], &[1.2f32, -1e6, 1e6, 100.0]);
    let model = import(&m).unwrap();
    let y = evaluate(&model, &[Arc::new(x)], Keep::Outputs).unwrap();
    let y = build_onnx::floats_of(&y.outputs()[0]);
    // round(1.2 / 0.5) is 2; the range is -32768 to 32767, of which the zero point 10 is taken.
    assert_eq!(y, [1.0, -16389.0, 16378.5, 100.0]);
}

#[test]
fn operators_that_compute_refuse_them_by_name() {
    let k = || raw("k", F8, &[1], &[1]);
    let add = node("Add", &["k", "k"], &["y"], vec![]);
    let e = import(&model(vec![add], vec![k()]))
        .unwrap_err()
        .to_string();
    assert!(
        e.contains("`k` is of type float8e4m3fn") && e.contains("cast it"),
        "{e}"
    );
    let pass = node("Identity", &["k"], &["y"], vec![]);
    let e = import(&model(vec![pass], vec![k()]))
        .unwrap_err()
        .to_string();
    assert!(e.contains("the output `y` is of type float8e4m3fn"), "{e}");
    // The cast's result is an i32, whatever held the 16 bits.
    let k = || raw("k", I16, &[1], &[0xff, 0x7f]);
    let cast = node("Cast", &["k"], &["c"], vec![int("to", 6)]);
    let add = node("Add", &["c", "c"], &["y"], vec![]);
    let y = outputs(&model(vec![cast, add], vec![k()]));
    assert_eq!(y[0].get_i64(0), 65_534);
    let short = import(&model(vec![], vec![raw("y", I16, &[2], &[1, 0])]));
    let e = short.unwrap_err().to_string();
    assert!(e.contains("needs 4 bytes, but there are 2"), "{e}");
}

/// `x` cast to a type and on to another, which is read as floats.
fn cast_twice(x: &Tensor, elem_type: i32, to: i32, on_to: i32, saturate: i64) -> Vec<f64> {
    let attributes = vec![int("to", to.into()), int("saturate", saturate)];
    let nodes = vec![
        node("Cast", &["x"], &["c"], attributes),
        node("Cast", &["c"], &["y"], vec![int("to", on_to.into())]),
    ];
    let mut m = model(nodes, vec![]);
    m.graph.as_mut().unwrap().input = vec![known("x", elem_type, &[x.len() as i64])];
    let model = import(&m).unwrap();
    let y = evaluate(&model, &[Arc::new(x.clone())], Keep::Outputs).unwrap();
    build_onnx::floats_of(&y.outputs()[0])
}

#[test]
fn integers_wrap_at_the_range_of_a_narrow_type() {
    const I64: i32 = 7;
    let cast = |to, values: &[i64], on_to| {
        let x = Tensor::from_slice(&[values.len()], values);
        cast_twice(&x, I64, to, on_to, 1)
    };
    let values = [-1, 40_000, 70_000, 1 << 31, 5 - (1 << 40)];
    assert_eq!(cast(I16, &values, F32), [-1.0, -25536.0, 4464.0, 0.0, 5.0]);
    assert_eq!(cast(4, &values, I64), [65535.0, 40000.0, 4464.0, 0.0, 5.0]);
    assert_eq!(
        cast(U32, &[-1, (1 << 33) + 7, 3], I64),
        [4_294_967_295.0, 7.0, 3.0]
    );
    // The last one is just above the middle between two floats.
    let large = [-1, -(1 << 62) - 1, 12, i64::MIN + (1 << 39) + (1 << 12)];
    assert_eq!(
        cast(13, &large, F32),
        [
            18_446_744_073_709_551_616.0,
            13_835_058_055_282_163_712.0,
            12.0,
            9_223_373_136_366_403_584.0
        ]
    );
    assert_eq!(cast(13, &[-7, 7], I64), [-7.0, 7.0]);
    let floats = Tensor::from_slice(&[3], &[1e19f32, -0.0, 40_000.75]);
    assert_eq!(
        cast_twice(&floats, F32, 13, F32, 1),
        [f64::from(1e19f32), 0.0, 40_000.0]
    );
    assert_eq!(cast_twice(&floats, F32, 4, F32, 1)[2], 40_000.0);
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Numbers, and what each is as a float8e4m3fn, float8e4m3fnuz, float8e5m2 and float8e5m2fnuz, of the package
/// ml_dtypes: it does not saturate.
const ROUNDED: [(f64, [f64; 4]); 20] = [
    (0.3, [0.3125, 0.3125, 0.3125, 0.3125]),
    (-0.3, [-0.3125, -0.3125, -0.3125, -0.3125]),
    (17.0, [16.0, 16.0, 16.0, 16.0]),
    (19.0, [20.0, 20.0, 20.0, 20.0]),
    (449.0, [448.0, NAN, 448.0, 448.0]),
    (464.0, [448.0, NAN, 448.0, 448.0]),
    (500.0, [NAN, NAN, 512.0, 512.0]),
    (1e9, [NAN, NAN, INF, NAN]),
    (-1e9, [NAN, NAN, -INF, NAN]),
    (INF, [NAN, NAN, INF, NAN]),
    (
        0.0009765625,
        [0.0, 0.0009765625, 0.0009765625, 0.0009765625],
    ),
    (
        0.00146484375,
        [0.001953125, 0.001953125, 0.00146484375, 0.00146484375],
    ),
    (
        0.0029296875,
        [0.00390625, 0.0029296875, 0.0029296875, 0.0029296875],
    ),
    (61439.0, [NAN, NAN, 57344.0, 57344.0]),
    (61440.0, [NAN, NAN, INF, NAN]),
    (247.0, [240.0, 240.0, 256.0, 256.0]),
    (248.0, [256.0, NAN, 256.0, 256.0]),
    (7.62939453125e-6, [0.0, 0.0, 0.0, 7.62939453125e-6]),
    (1.0625, [1.0, 1.0, 1.0, 1.0]),
    (-1.1875, [-1.25, -1.25, -1.25, -1.25]),
];

#[test]
fn floats_of_8_bits_round_to_even() {
    let x: Vec<f32> = ROUNDED.iter().map(|row| row.0 as f32).collect();
    let x = Tensor::from_slice(&[x.len()], &x);
    let kinds = [(17, 448.0), (18, 240.0), (19, 57344.0), (20, 57344.0)];
    for (i, (to, max)) in kinds.into_iter().enumerate() {
        let (open, cut) = (
            cast_twice(&x, F32, to, F32, 0),
            cast_twice(&x, F32, to, F32, 1),
        );
        for (j, (x, rounded)) in ROUNDED.into_iter().enumerate() {
            let expected = rounded[i];
            let same = open[j] == expected || open[j].is_nan() && expected.is_nan();
            assert!(same, "{x} to {to}: {}, not {expected}", open[j]);
            let saturated = match expected.is_finite() {
                true => expected,
                false => f64::copysign(max, x),
            };
            assert_eq!(cut[j], saturated, "{x} to {to}");
        }
    }
}

/// A scale of 0.5 doubles; 448 and 57344 are the greatest numbers of their types.
#[test]
fn floats_of_8_bits_are_quantised_to() {
    let x = [1.0f32, -0.3, 300.0, 40_000.0];
    for (kind, saturate, expected) in [
        (17, 1, [1.0, -0.3125, 224.0, 224.0]),
        (17, 0, [1.0, -0.3125, f64::NAN, f64::NAN]),
        (19, 1, [1.0, -0.3125, 320.0, 28_672.0]),
        (19, 0, [1.0, -0.3125, 320.0, f64::INFINITY]),
    ] {
        let nodes = vec![
            node(
                "QuantizeLinear",
                &["x", "s", "z"],
                &["q"],
                vec![int("saturate", saturate)],
            ),
            node("DequantizeLinear", &["q", "s"], &["y"], vec![]),
        ];
        let constants = vec![
            scale("x", &[4], &x),
            scale("s", &[], &[0.5]),
            raw("z", kind, &[], &[0]),
        ];
        let found = values(&model(nodes, constants));
        let same = |(a, e): (&f64, &f64)| a == e || a.is_nan() && e.is_nan();
        assert!(found.iter().zip(&expected).all(same), "{kind}: {found:?}");
    }
}

/// Integers keep their low bits, and floats are rounded to integers first, halves to even ones.
#[test]
fn numbers_of_4_bits_are_cast_to() {
    for (to, expected) in [(I4, [7.0, -8.0, -1.0, 2.0]), (U4, [7.0, 8.0, 15.0, 2.0])] {
        let nodes = vec![
            node("Cast", &["k"], &["n"], vec![int("to", to.into())]),
            node("Cast", &["n"], &["y"], vec![int("to", F32.into())]),
        ];
        let k = build_onnx::int64s("k", &[7, 8, -1, 18]);
        assert_eq!(values(&model(nodes.clone(), vec![k])), expected);
        let k = scale("k", &[3], &[3.7, 2.5, 0.4]);
        assert_eq!(values(&model(nodes, vec![k])), [4.0, 2.0, 0.0]);
    }
}

#[test]
fn rows_of_a_table_of_few_bits_are_gathered() {
    let bytes = [0x21, 0xf3, 0x8f, 0x07];
    let of = |kind: i32, zeros: Option<TensorProto>| {
        let attributes = vec![int("block_size", 2), int("quantize_axis", 1)];
        let names = ["t", "i", "s", "z"];
        let names = &names[..if zeros.is_some() { 4 } else { 3 }];
        let mut gather = node("GatherBlockQuantized", names, &["y"], attributes);
        gather.domain = Some("com.microsoft".into());
        let mut constants = vec![
            raw("t", kind, &[2, 4], &bytes),
            build_onnx::int64s("i", &[1, 0]),
            scale("s", &[2, 2], &[1.0, 2.0, 3.0, 4.0]),
        ];
        constants.extend(zeros);
        let mut model = model(vec![gather], constants);
        model.opset_import.push(onnx::proto::OperatorSetIdProto {
            domain: Some("com.microsoft".into()),
            version: Some(1),
        });
        values(&model)
    };
    assert_eq!(of(I4, None), [-3., -24., 28., 0., 1., 2., 6., -2.]);
    let zeros = raw("z", U4, &[2, 2], &[0x21, 0x43]);
    let expected = [36., 15., 12., -16., 0., 1., 2., 26.];
    assert_eq!(of(U4, Some(zeros)), expected);
}

/// One unsigned operand shifted by another, and combined with a mask.
fn shifted(data_type: i32, direction: &str, numbers: &[i64], by: &[i64]) -> Vec<i64> {
    let ty = || vec![int("to", data_type.into())];
    let nodes = vec![
        node("Cast", &["x"], &["u"], ty()),
        node("Cast", &["by"], &["s"], ty()),
        node(
            "BitShift",
            &["u", "s"],
            &["t"],
            vec![text("direction", direction)],
        ),
        node("BitwiseNot", &["u"], &["not"], vec![]),
        node("BitwiseXor", &["t", "not"], &["z"], vec![]),
        node("Cast", &["z"], &["y"], vec![int("to", I64.into())]),
    ];
    let graph = GraphProto {
        node: nodes,
        input: ["x", "by"]
            .map(|i| known(i, I64, &[numbers.len() as i64]))
            .to_vec(),
        output: vec![undeclared("y")],
        ..Default::default()
    };
    let m = import(&file(21, graph)).unwrap();
    let inputs = [numbers, by].map(|v| Arc::new(Tensor::from_slice(&[v.len()], v)));
    let run = |m| evaluate(m, &inputs, Keep::Outputs).unwrap().results();
    let (plain, simple) = (run(&m), run(&simplify(&m)));
    assert_eq!(plain, simple);
    plain[0].as_slice::<i64>().to_vec()
}

#[test]
fn bits_of_unsigned_numbers_keep_their_width() {
    let numbers = [0, 1, -1, 0x1234_5678_9abc_def0, i64::MIN, i64::MAX, 77];
    for by in [0i64, 1, 5, 15] {
        let all = [by; 7];
        for left in [false, true] {
            let name = if left { "LEFT" } else { "RIGHT" };
            let u16s = numbers
                .map(|v| v as u16)
                .map(|v| if left { v << by } else { v >> by } ^ !v);
            assert_eq!(
                shifted(4, name, &numbers, &all),
                u16s.map(i64::from),
                "{name} {by}"
            );
            let u32s = numbers
                .map(|v| v as u32)
                .map(|v| if left { v << by } else { v >> by } ^ !v);
            assert_eq!(
                shifted(U32, name, &numbers, &all),
                u32s.map(i64::from),
                "{name} {by}"
            );
            let u64s = numbers
                .map(|v| v as u64)
                .map(|v| if left { v << by } else { v >> by } ^ !v);
            assert_eq!(
                shifted(13, name, &numbers, &all),
                u64s.map(|v| v as i64),
                "{name} {by}"
            );
        }
    }
}

#[test]
fn large_constants_of_64_bits_keep_their_bits() {
    // As PyTorch's exporter writes `x >> 2` of an i64.
    let nodes = vec![
        node("BitwiseOr", &["k", "one"], &["z"], vec![]),
        node("Cast", &["z"], &["y"], vec![int("to", I64.into())]),
    ];
    let k = raw("k", 13, &[1], &0xc000_0000_0000_0000u64.to_le_bytes());
    let one = raw("one", 13, &[1], &1u64.to_le_bytes());
    let m = model(nodes, vec![k, one]);
    assert_eq!(outputs(&m)[0].as_slice::<i64>(), [-0x3fff_ffff_ffff_ffff]);
    // Numbers above what an i64 holds are compared as unsigned ones.
    let less = vec![node("Less", &["k", "one"], &["y"], vec![])];
    let constants = [
        raw("k", 13, &[1], &1u64.to_le_bytes()),
        raw("one", 13, &[1], &[0xff; 8]),
    ];
    let m = model(less, constants.to_vec());
    assert_eq!(outputs(&m)[0].get_i64(0), 1);
}
