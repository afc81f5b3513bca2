//! Operators on bytes that ONNX Runtime's quantiser writes, against their formulas.

mod build_onnx;

use build_onnx::{file, float, import, int, known, node, undeclared};
use graph::{Keep, Model, evaluate, simplify};
use onnx::proto::{AttributeProto, GraphProto, OperatorSetIdProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

const U8: i32 = 2;

fn bytes(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::U8, shape, Fill::Integers { lo: 0, hi: 255 }, seed)
}

fn constant(name: &str, t: &Tensor) -> TensorProto {
    let ints = t.dtype().is_int();
    let values = 0..t.len();
    TensorProto {
        name: Some(name.into()),
        dims: t.shape().iter().map(|n| *n as i64).collect(),
        data_type: Some(match t.dtype() {
            DType::U8 => U8,
            DType::I32 => 6,
            _ => 1,
        }),
        int32_data: values
            .clone()
            .filter(|_| ints)
            .map(|i| t.get_i64(i) as i32)
            .collect(),
        float_data: values
            .filter(|_| !ints)
            .map(|i| t.get_f64(i) as f32)
            .collect(),
        ..Default::default()
    }
}

fn scale(s: f32) -> Tensor {
    Tensor::from_slice(&[], &[s])
}

fn zero(z: u8) -> Tensor {
    Tensor::from_slice(&[], &[z])
}

/// The result of an operator of com.microsoft whose operand number `input` is an input and
/// whose others are constants.
fn run(op: &str, attributes: Vec<AttributeProto>, operands: &[&Tensor], input: usize) -> Vec<f64> {
    let names: Vec<String> = (0..operands.len()).map(|i| format!("v{i}")).collect();
    let used: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut node = node(op, &used, &["y"], attributes);
    node.domain = Some("com.microsoft".into());
    let shape: Vec<i64> = operands[input].shape().iter().map(|n| *n as i64).collect();
    let others = (0..operands.len()).filter(|i| *i != input);
    let mut proto = file(
        17,
        GraphProto {
            name: Some("g".into()),
            node: vec![node],
            input: vec![known(&names[input], U8, &shape)],
            output: vec![undeclared("y")],
            initializer: others.map(|i| constant(&names[i], operands[i])).collect(),
            ..Default::default()
        },
    );
    proto.opset_import.push(OperatorSetIdProto {
        domain: Some("com.microsoft".into()),
        version: Some(1),
    });
    let m = import(&proto).unwrap();
    m.verify().unwrap();
    let given = Arc::new(operands[input].clone());
    let y = evaluate(&m, &[given], Keep::Outputs).unwrap().outputs();
    (0..y[0].len()).map(|i| y[0].get_f64(i)).collect()
}

fn stored(x: f64, scale: f64, zero: f64) -> f64 {
    ((x / scale).round_ties_even() + zero).clamp(0.0, 255.0)
}

fn close(found: &[f64], expected: &[f64], step: f64) {
    assert_eq!(found.len(), expected.len());
    let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    assert!(apart.clone().all(|d| d <= step), "{found:?}\n{expected:?}");
    assert!(apart.filter(|d| *d > 1e-3).count() * 10 <= found.len());
}

#[test]
fn sums_and_products_of_two_scales() {
    let (a, b) = (bytes(&[2, 3, 4], 1), bytes(&[3, 1], 2));
    let others = [
        scale(0.02),
        zero(131),
        scale(0.05),
        zero(7),
        scale(0.11),
        zero(60),
    ];
    let [sa, za, sb, zb, sy, zy] = &others;
    let value = |i: usize| {
        let (x, y) = (a.get_f64(i), b.get_f64(i / 4 % 3));
        ((x - 131.0) * 0.02, (y - 7.0) * 0.05)
    };
    for (op, f) in [
        ("QLinearAdd", (|x, y| x + y) as fn(f64, f64) -> f64),
        ("QLinearMul", |x, y| x * y),
    ] {
        let found = run(op, vec![], &[&a, sa, za, &b, sb, zb, sy, zy], 0);
        let all = (0..24).map(value);
        let expected: Vec<f64> = all.map(|(x, y)| stored(f(x, y), 0.11, 60.0)).collect();
        close(&found, &expected, 1.0);
    }
}

#[test]
fn operators_of_one_operand() {
    let x = bytes(&[1, 2, 3, 4], 3);
    let others = [scale(0.03), zero(120), scale(0.02), zero(9)];
    let [sx, zx, sy, zy] = &others;
    let operands = [&x, sx, zx, sy, zy];
    let value = |i: usize| (x.get_f64(i) - 120.0) * 0.03;
    let of = |f: &dyn Fn(f64) -> f64| -> Vec<f64> {
        (0..24).map(|i| stored(f(value(i)), 0.02, 9.0)).collect()
    };
    let leaky = run("QLinearLeakyRelu", vec![float("alpha", 0.25)], &operands, 0);
    close(&leaky, &of(&|v| if v < 0.0 { v / 4.0 } else { v }), 1.0);
    let sigmoid = run("QLinearSigmoid", vec![], &operands, 0);
    close(&sigmoid, &of(&|v| 1.0 / (1.0 + (-v).exp())), 1.0);
    let mean = run("QLinearGlobalAveragePool", vec![], &operands, 0);
    let means = [0, 12].map(|c| (c..c + 12).map(value).sum::<f64>() / 12.0);
    close(&mean, &means.map(|m| stored(m, 0.02, 9.0)), 1.0);
}

#[test]
fn parts_of_their_own_scales() {
    let (a, b) = (bytes(&[2, 3], 4), bytes(&[2, 2], 5));
    let others = [
        scale(0.1),
        zero(3),
        scale(0.02),
        zero(100),
        scale(0.3),
        zero(1),
    ];
    let [sy, zy, sa, za, sb, zb] = &others;
    let operands = [sy, zy, &a, sa, za, &b, sb, zb];
    let found = run("QLinearConcat", vec![int("axis", 1)], &operands, 2);
    let of = |t: &Tensor, i: usize, s: f64, z: f64| stored((t.get_f64(i) - z) * s, 0.1, 3.0);
    let expected: Vec<f64> = (0..2)
        .flat_map(|r| {
            let left = (0..3).map(move |c| r * 3 + c);
            let right = (0..2).map(move |c| r * 2 + c);
            let left = left.map(|i| of(&a, i, 0.02, 100.0));
            left.chain(right.map(|i| of(&b, i, 0.3, 1.0)))
                .collect::<Vec<_>>()
        })
        .collect();
    close(&found, &expected, 1.0);
}

#[test]
fn products_with_a_scale_a_column() {
    let (rows, terms, columns) = (3, 8, 4);
    let (a, b) = (bytes(&[rows, terms], 6), bytes(&[columns, terms], 7));
    let c: Vec<i32> = vec![900, -4000, 0, 77];
    let c = Tensor::from_slice(&[columns], &c);
    let scales = Tensor::from_slice(&[columns], &[0.01f32, 0.02, 0.03, 0.04]);
    let zeros = Tensor::from_slice(&[columns], &[128u8, 120, 0, 255]);
    let (sa, za) = (scale(0.05), zero(90));
    let operands = [&a, &sa, &za, &b, &scales, &zeros, &c];
    let attributes = || vec![float("alpha", 0.5), int("transB", 1)];
    let found = run("QGemm", attributes(), &operands, 0);
    let expected: Vec<f64> = (0..rows * columns)
        .map(|i| {
            let (m, n) = (i / columns, i % columns);
            let sum: f64 = (0..terms)
                .map(|k| {
                    let b = b.get_f64(n * terms + k) - zeros.get_f64(n);
                    (a.get_f64(m * terms + k) - 90.0) * b
                })
                .sum();
            (sum + c.get_f64(n)) * 0.05 * scales.get_f64(n) * 0.5
        })
        .collect();
    close(&found, &expected, 1e-3);
    let (sy, zy) = (scale(0.9), zero(100));
    let quantised = [&operands[..], &[&sy, &zy]].concat();
    let found = run("QGemm", attributes(), &quantised, 0);
    let expected: Vec<f64> = expected.iter().map(|y| stored(*y, 0.9, 100.0)).collect();
    close(&found, &expected, 1.0);
}

/// Weights of few bits in blocks of 16 terms, the last block not whole, and rows of a sequence,
/// as exporters write them.
#[test]
fn weights_of_few_bits_are_dequantised() {
    let sizes = [(20, 3), (32, 16)];
    for ((terms, maps), bits) in sizes.iter().flat_map(|s| [(*s, 4usize), (*s, 8)]) {
        let block = 16;
        let per_byte = 8 / bits;
        let packed = bytes(&[maps, 2, block / per_byte], 5);
        let scales: Vec<f32> = (0..maps * 2).map(|i| 0.1 + i as f32 * 0.03).collect();
        let zeros = bytes(&[maps * 2 * bits / 8], 6);
        let x = bytes(&[1, 2, terms], 7);
        let operands = [
            &x,
            &packed,
            &Tensor::from_slice(&[maps * 2], &scales),
            &zeros,
        ];
        let attributes = vec![
            build_onnx::int("K", terms as i64),
            build_onnx::int("N", maps as i64),
            build_onnx::int("bits", bits as i64),
            build_onnx::int("block_size", block as i64),
        ];
        let part = |t: &Tensor, first: usize, i: usize| {
            let byte = t.get_i64(first + i / per_byte);
            (byte >> (i % per_byte * bits) & ((1 << bits) - 1)) as f64
        };
        let weight = |k: usize, m: usize| {
            let of = m * 2 + k / block;
            let zero = part(&zeros, m * 2 / per_byte, k / block);
            let value = part(&packed, of * block / per_byte, k % block);
            (value - zero) * f64::from(scales[of])
        };
        let mut expected = Vec::new();
        for r in 0..2 {
            for m in 0..maps {
                let term = |k: usize| x.get_f64(r * terms + k) * weight(k, m);
                expected.push((0..terms).map(term).sum::<f64>());
            }
        }
        let (found, simplified) = run_floats("MatMulNBits", attributes, &operands);
        let mut packed = simplified
            .nodes()
            .filter(|(_, n)| n.op.name() == "matmul_blocks");
        assert_eq!(packed.next().is_some(), maps == 16);
        let largest = expected.iter().fold(1.0, |m: f64, e| m.max(e.abs()));
        for (a, e) in found.iter().zip(&expected) {
            assert!((a - e).abs() < 1e-5 * largest, "{found:?}\n{expected:?}");
        }
    }
}

/// As [`run`], where the first operand is the input, as floats; and the simplified model.
fn run_floats(
    op: &str,
    attributes: Vec<AttributeProto>,
    operands: &[&Tensor],
) -> (Vec<f64>, Model) {
    let mut x = Tensor::zeros(DType::F32, operands[0].shape());
    (0..x.len()).for_each(|i| x.set_f64(i, operands[0].get_f64(i)));
    let names: Vec<String> = (0..operands.len()).map(|i| format!("v{i}")).collect();
    let used = names.iter().skip(1).map(String::as_str);
    let used: Vec<&str> = std::iter::once("x").chain(used).collect();
    let mut node = node(op, &used, &["y"], attributes);
    node.domain = Some("com.microsoft".into());
    let shape: Vec<i64> = x.shape().iter().map(|n| *n as i64).collect();
    let constants = (1..operands.len()).map(|i| constant(&names[i], operands[i]));
    let mut proto = build_onnx::one_node(17, &shape, node, constants.collect());
    proto.opset_import.push(OperatorSetIdProto {
        domain: Some("com.microsoft".into()),
        version: Some(1),
    });
    let m = import(&proto).unwrap();
    m.verify().unwrap();
    let x = [Arc::new(x)];
    let values = |m| {
        let outputs = evaluate(m, &x, Keep::Outputs).unwrap().outputs();
        build_onnx::floats_of(&outputs[0])
    };
    // Weights of few bits are packed then.
    let simplified = simplify(&m);
    let found = values(&m);
    for (a, b) in found.iter().zip(&values(&simplified)) {
        assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{a} and {b}");
    }
    (found, simplified)
}

/// Products of bytes and sums in floats: the operands' zero points are taken off.
#[test]
fn products_of_bytes_are_floats() {
    let (a, b) = (bytes(&[3, 8], 1), bytes(&[8, 4], 2));
    let (az, bz) = (7.0, 100.0);
    let bias: Vec<f32> = (0..4).map(|i| i as f32).collect();
    let operands = [
        &a,
        &b,
        &scale(0.02),
        &scale(0.01),
        &zero(az as u8),
        &zero(bz as u8),
        &Tensor::from_slice(&[4], &bias),
    ];
    let found = run("MatMulIntegerToFloat", vec![], &operands, 0);
    for r in 0..3 {
        for c in 0..4 {
            let term = |k: usize| (a.get_f64(r * 8 + k) - az) * (b.get_f64(k * 4 + c) - bz);
            let sum = (0..8).map(term).sum::<f64>() * 0.02 * 0.01 + f64::from(bias[c]);
            assert!((found[r * 4 + c] - sum).abs() < 1e-3, "{found:?}");
        }
    }
}

/// One head of one row attends to itself: the result is its value.
#[test]
fn attention_of_bytes_projects_its_operand() {
    let (x, w) = (bytes(&[1, 1, 5], 1), bytes(&[5, 6], 2));
    let bias: Vec<f32> = (0..6).map(|i| i as f32).collect();
    let bias = Tensor::from_slice(&[6], &bias);
    let none = Tensor::from_slice(&[1], &[1i32]);
    let operands = [
        &x,
        &w,
        &bias,
        &scale(0.02),
        &scale(0.01),
        &none,
        &zero(9),
        &zero(120),
    ];
    let found = run(
        "QAttention",
        vec![build_onnx::int("num_heads", 1)],
        &operands,
        0,
    );
    for c in 0..2 {
        let term = |k: usize| (x.get_f64(k) - 9.0) * (w.get_f64(k * 6 + 4 + c) - 120.0);
        let sum = (0..5).map(term).sum::<f64>() * 0.02 * 0.01 + (4 + c) as f64;
        assert!((found[c] - sum).abs() < 1e-4, "{found:?}, not {sum}");
    }
}

/// Floats are quantised by their own range: 255 steps from the least to the largest.
#[test]
fn a_product_of_floats_by_bytes_is_quantised() {
    let x = Tensor::from_slice(&[1, 3], &[0u8, 51, 255]);
    let w = Tensor::from_slice(&[3, 1], &[1u8, 2, 3]);
    let operands = [&x, &w, &scale(0.5), &zero(1)];
    let (found, _) = run_floats("DynamicQuantizeMatMul", vec![], &operands);
    assert!(
        (found[0] - (51.0 * 0.5 + 255.0 * 1.0)).abs() < 1e-3,
        "{found:?}"
    );
}

/// A product of the standard operator whose right operand has a scale and a zero point for each column.
#[test]
fn columns_have_scales_of_their_own() {
    let (a, b) = (bytes(&[3, 4], 1), bytes(&[4, 5], 2));
    let scales = [0.01f32, 0.02, 0.03, 0.04, 0.05];
    let zeros = [120u8, 0, 255, 7, 128];
    let operands = [
        a.clone(),
        scale(0.05),
        zero(100),
        b.clone(),
        Tensor::from_slice(&[5], &scales),
        Tensor::from_slice(&[5], &zeros),
        scale(0.9),
        zero(128),
    ];
    let constants = operands[1..].iter().enumerate();
    let constants = constants.map(|(i, t)| constant(&format!("v{}", i + 1), t));
    let names: Vec<String> = (0..8).map(|i| format!("v{i}")).collect();
    let used: Vec<&str> = names.iter().map(String::as_str).collect();
    let m = import(&file(
        13,
        GraphProto {
            name: Some("g".into()),
            node: vec![node("QLinearMatMul", &used, &["y"], vec![])],
            input: vec![known("v0", U8, &[3, 4])],
            output: vec![undeclared("y")],
            initializer: constants.collect(),
            ..Default::default()
        },
    ))
    .unwrap();
    let y = evaluate(&m, &[Arc::new(a.clone())], Keep::Outputs)
        .unwrap()
        .outputs();
    for at in 0..15 {
        let (row, column) = (at / 5, at % 5);
        let term = |k: usize| {
            let left = a.get_i64(row * 4 + k) - 100;
            left * (b.get_i64(k * 5 + column) - i64::from(zeros[column]))
        };
        let sum = (0..4).map(term).sum::<i64>() as f64;
        let exact = sum * 0.05 * f64::from(scales[column]) / 0.9 + 128.0;
        let found = y[0].get_f64(at);
        assert!(
            (found - exact.clamp(0.0, 255.0)).abs() < 0.501,
            "{at}: {found}, not {exact}"
        );
    }
}
