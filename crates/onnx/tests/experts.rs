//! Tables and experts with packed weights, against their formulas.

mod build_onnx;

use build_onnx::{file, float, floats_of, import, int, known, node, proto, text, undeclared};
use graph::{Keep, evaluate};
use onnx::proto::{AttributeProto, GraphProto, OperatorSetIdProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

fn random(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::F32, shape, Fill::Normal { std: 0.8 }, seed)
}

fn bytes(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::U8, shape, Fill::Integers { lo: 0, hi: 255 }, seed)
}

fn constant(name: &str, t: &Tensor) -> TensorProto {
    match t.dtype() {
        DType::F32 => proto(name, t),
        dtype => TensorProto {
            name: Some(name.into()),
            dims: t.shape().iter().map(|n| *n as i64).collect(),
            data_type: Some(if dtype == DType::U8 { 2 } else { 6 }),
            int32_data: (0..t.len()).map(|i| t.get_i64(i) as i32).collect(),
            ..Default::default()
        },
    }
}

/// The result of a node of com.microsoft; operand `input` is an input, the others are constants.
fn run(op: &str, attributes: Vec<AttributeProto>, all: &[Option<&Tensor>], input: usize) -> Tensor {
    let names: Vec<String> = (0..all.len()).map(|i| format!("v{i}")).collect();
    let used = names.iter().zip(all);
    let used: Vec<&str> = used.map(|(n, t)| t.map_or("", |_| &n[..])).collect();
    let mut node = node(op, &used, &["y"], attributes);
    node.domain = Some("com.microsoft".into());
    let given = all[input].unwrap();
    let shape: Vec<i64> = given.shape().iter().map(|n| *n as i64).collect();
    let element = if given.dtype() == DType::F32 { 1 } else { 6 };
    let others = (0..all.len()).filter(|i| *i != input);
    let mut model = file(
        21,
        GraphProto {
            name: Some("g".into()),
            node: vec![node],
            input: vec![known(&names[input], element, &shape)],
            output: vec![undeclared("y")],
            initializer: others
                .filter_map(|i| Some(constant(&names[i], all[i]?)))
                .collect(),
            ..Default::default()
        },
    );
    model.opset_import.push(OperatorSetIdProto {
        domain: Some("com.microsoft".into()),
        version: Some(1),
    });
    let m = import(&model).unwrap();
    m.verify().unwrap();
    let y = evaluate(&m, &[Arc::new(given.clone())], Keep::Outputs).unwrap();
    y.outputs()[0].as_ref().clone()
}

fn near(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() < 1e-4 * (1.0 + e.abs()), "{i}: {a}, not {e}");
    }
}

/// Number `i` of so many bits in a row of bytes.
fn number(row: &[f64], bits: usize, i: usize) -> f64 {
    let byte = row[i * bits / 8] as usize;
    (byte >> (i * bits % 8) & ((1 << bits) - 1)) as f64
}

#[test]
fn rows_of_a_packed_table_are_gathered() {
    const ROWS: usize = 5;
    const WIDTH: usize = 32;
    for bits in [4, 8] {
        for has_zeros in [false, true] {
            let table = bytes(&[ROWS, WIDTH * bits / 8], 1);
            let scales = random(&[ROWS, 2], 2);
            let zeros = bytes(&[ROWS, (2 * bits).div_ceil(8)], 3);
            let indices = Tensor::from_slice(&[2, 2], &[4i32, 0, 0, 2]);
            let operands = [Some(&table), Some(&indices), Some(&scales), Some(&zeros)];
            let operands = &operands[..if has_zeros { 4 } else { 3 }];
            let attributes = vec![
                int("bits", bits as i64),
                int("block_size", 16),
                int("gather_axis", 0),
                int("quantize_axis", 1),
            ];
            let y = run("GatherBlockQuantized", attributes, operands, 1);
            assert_eq!(y.shape(), [2, 2, WIDTH]);
            let [t, s, z] = [&table, &scales, &zeros].map(floats_of);
            let row = |of: &[f64], r: usize| of[r * of.len() / ROWS..][..of.len() / ROWS].to_vec();
            let expected = [4, 0, 0, 2].iter().flat_map(|r| {
                let (t, s, z) = (row(&t, *r), row(&s, *r), row(&z, *r));
                (0..WIDTH).map(move |i| {
                    let zero = match has_zeros {
                        true => number(&z, bits, i / 16),
                        false => f64::from(1 << (bits - 1)),
                    };
                    (number(&t, bits, i) - zero) * s[i / 16]
                })
            });
            near(&floats_of(&y), &expected.collect::<Vec<_>>());
        }
    }
}

const EXPERTS: usize = 3;
const ROWS: usize = 4;
const WIDTH: usize = 8;
const INNER: usize = 6;
const K: usize = 2;

/// The two best experts of each row, with weights that are softmaxes over them or over all.
fn routed(logits: &[f64], normalised: bool) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..EXPERTS).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let counted = if normalised { K } else { EXPERTS };
    let sum: f64 = order[..counted].iter().map(|e| logits[*e].exp()).sum();
    let weight = |e: &usize| (*e, logits[*e].exp() / sum);
    order[..K].iter().map(weight).collect()
}

/// W x + b of an expert, of weights [experts, results, terms].
fn layer(weights: &[f64], bias: &[f64], expert: usize, x: &[f64]) -> Vec<f64> {
    let results = bias.len() / EXPERTS;
    let of = |r: usize| {
        let row = &weights[(expert * results + r) * x.len()..][..x.len()];
        let products = row.iter().zip(x).map(|(w, x)| w * x);
        products.sum::<f64>() + bias[expert * results + r]
    };
    (0..results).map(of).collect()
}

fn expected(
    x: &[f64],
    logits: &[f64],
    layers: [[&[f64]; 2]; 2],
    (act, normalised): (&str, bool),
) -> Vec<f64> {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut out = vec![0.0; ROWS * WIDTH];
    for row in 0..ROWS {
        let x = &x[row * WIDTH..][..WIDTH];
        for (e, weight) in routed(&logits[row * EXPERTS..][..EXPERTS], normalised) {
            let inner = layer(layers[0][0], layers[0][1], e, x);
            let inner: Vec<f64> = match act {
                "swiglu" => inner
                    .chunks(2)
                    .map(|pair| {
                        let (gate, linear) = (pair[0].min(0.9), pair[1].clamp(-0.9, 0.9));
                        gate * sigmoid(1.7 * gate) * (linear + 1.0)
                    })
                    .collect(),
                _ => inner.iter().map(|x| x * sigmoid(*x)).collect(),
            };
            let y = layer(layers[1][0], layers[1][1], e, &inner);
            for (i, y) in y.iter().enumerate() {
                out[row * WIDTH + i] += weight * y;
            }
        }
    }
    out
}

fn attributes(act: &str) -> Vec<AttributeProto> {
    let mut all = vec![int("k", K as i64), text("activation_type", act)];
    if act == "swiglu" {
        all.extend([
            int("normalize_routing_weights", 1),
            int("swiglu_fusion", 1),
            float("activation_alpha", 1.7),
            float("activation_beta", 1.0),
            float("swiglu_limit", 0.9),
        ]);
    }
    all
}

#[test]
fn the_best_experts_of_each_row_are_mixed() {
    for (act, first) in [("silu", INNER), ("swiglu", 2 * INNER)] {
        let (x, logits) = (random(&[ROWS, WIDTH], 1), random(&[ROWS, EXPERTS], 2));
        let (w1, b1) = (
            random(&[EXPERTS, first, WIDTH], 3),
            random(&[EXPERTS, first], 4),
        );
        let (w2, b2) = (
            random(&[EXPERTS, WIDTH, INNER], 5),
            random(&[EXPERTS, WIDTH], 6),
        );
        let operands = [&x, &logits, &w1, &b1, &w2, &b2].map(Some);
        let y = run("MoE", attributes(act), &operands, 0);
        let [w1, b1, w2, b2] = [&w1, &b1, &w2, &b2].map(floats_of);
        let layers = [[&w1[..], &b1[..]], [&w2[..], &b2[..]]];
        let expected = expected(
            &floats_of(&x),
            &floats_of(&logits),
            layers,
            (act, act == "swiglu"),
        );
        near(&floats_of(&y), &expected);
    }
}

/// Weights of 4 bits, a scale for each of a layer's results.
#[test]
fn experts_may_be_packed() {
    let (x, logits) = (random(&[ROWS, WIDTH], 1), random(&[ROWS, EXPERTS], 2));
    let (p1, p2) = (
        bytes(&[EXPERTS, INNER, WIDTH / 2], 3),
        bytes(&[EXPERTS, WIDTH, INNER / 2], 4),
    );
    let (s1, s2) = (random(&[EXPERTS, INNER], 5), random(&[EXPERTS, WIDTH], 6));
    let operands = [&x, &logits, &p1, &s1, &s1, &p2, &s2, &s2].map(Some);
    let y = run("QMoE", attributes("silu"), &operands, 0);
    let [p1, p2, s1, s2] = [&p1, &p2, &s1, &s2].map(floats_of);
    let weights = |packed: &[f64], scales: &[f64]| -> Vec<f64> {
        let whole = (0..packed.len() * 2).map(|i| number(packed, 4, i) - 8.0);
        let terms = packed.len() * 2 / scales.len();
        whole
            .enumerate()
            .map(|(i, w)| w * scales[i / terms])
            .collect()
    };
    let (w1, w2) = (weights(&p1, &s1), weights(&p2, &s2));
    let layers = [[&w1[..], &s1[..]], [&w2[..], &s2[..]]];
    near(
        &floats_of(&y),
        &expected(&floats_of(&x), &floats_of(&logits), layers, ("silu", true)),
    );
}
