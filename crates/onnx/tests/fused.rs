//! Operators that others fused, against their formulas.

mod build_onnx;

use build_onnx::{float, floats_of, import, int, node, one_node, proto, text};
use graph::{Keep, evaluate};
use onnx::proto::{AttributeProto, ModelProto, OperatorSetIdProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

fn random(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::F32, shape, Fill::Normal { std: 0.8 }, seed)
}

/// A model of one node of com.microsoft that reads `x` and constants.
fn model(
    op: &str,
    x: &Tensor,
    outputs: &[&str],
    attributes: Vec<AttributeProto>,
    constants: &[(&str, TensorProto)],
) -> ModelProto {
    let inputs: Vec<&str> = std::iter::once("x")
        .chain(constants.iter().map(|c| c.0))
        .collect();
    let mut node = node(op, &inputs, outputs, attributes);
    node.domain = Some("com.microsoft".into());
    let shape: Vec<i64> = x.shape().iter().map(|n| *n as i64).collect();
    let given = constants.iter().filter(|c| !c.0.is_empty());
    let given = given.map(|c| c.1.clone()).collect();
    let mut model = one_node(17, &shape, node, given);
    model.opset_import.push(OperatorSetIdProto {
        domain: Some("com.microsoft".into()),
        version: Some(1),
    });
    model
}

fn run(model: &ModelProto, x: &Tensor) -> Vec<Vec<f64>> {
    let m = import(model).unwrap();
    m.verify().unwrap();
    let results = evaluate(&m, &[Arc::new(x.clone())], Keep::Outputs)
        .unwrap()
        .outputs();
    results.iter().map(|t| floats_of(t)).collect()
}

fn near(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() < 2e-5, "{i}: {a}, not {e}");
    }
}

/// Softmax of scaled products over heads side by side in [rows, heads * size], for queries
/// that may look at keys up to their own place if `causal`, and at the first `valid` ones.
fn attention(q: &[f64], k: &[f64], v: &[f64], size: usize, causal: bool, valid: usize) -> Vec<f64> {
    const HEADS: usize = 2;
    let width = HEADS * size;
    let rows = q.len() / width;
    let keys = k.len() / width;
    let mut out = vec![0.0; q.len()];
    for head in 0..HEADS {
        for r in 0..rows {
            let at = |x: &[f64], row: usize, j: usize| x[row * width + head * size + j];
            let allowed = |c: usize| c < valid && (!causal || c <= r + keys - rows);
            let score = |c: usize| {
                let products = (0..size).map(|j| at(q, r, j) * at(k, c, j));
                products.sum::<f64>() / (size as f64).sqrt() + if allowed(c) { 0.0 } else { -1e4 }
            };
            let scores: Vec<f64> = (0..keys).map(score).collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let powers: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let sum: f64 = powers.iter().sum();
            for j in 0..size {
                let terms = (0..keys).map(|c| powers[c] / sum * at(v, c, j));
                out[r * width + head * size + j] = terms.sum();
            }
        }
    }
    out
}

#[test]
fn heads_side_by_side_attend() {
    let (keys, size) = (5, 4);
    let width = 2 * size;
    let (k, v) = (random(&[1, keys, width], 2), random(&[1, keys, width], 3));
    let mask = TensorProto {
        name: Some("mask".into()),
        dims: vec![1],
        data_type: Some(6),
        int32_data: vec![4],
        ..Default::default()
    };
    for (rows, causal) in [(3, false), (5, true)] {
        let x = random(&[1, rows, width], 1);
        let attributes = vec![
            int("num_heads", 2),
            int("unidirectional", i64::from(causal)),
        ];
        let constants = [
            ("k", proto("k", &k)),
            ("v", proto("v", &v)),
            ("", proto("", &k)),
            ("mask", mask.clone()),
        ];
        let model = model("MultiHeadAttention", &x, &["y"], attributes, &constants);
        let expected = attention(
            &floats_of(&x),
            &floats_of(&k),
            &floats_of(&v),
            size,
            causal,
            4,
        );
        near(&run(&model, &x)[0], &expected);
    }
}

#[test]
fn one_operand_attends_to_itself() {
    let (rows, inputs, size) = (4, 5, 3);
    let width = 2 * size;
    let x = random(&[1, rows, inputs], 1);
    let (w, b) = (random(&[inputs, 3 * width], 2), random(&[3 * width], 3));
    let project = |part: usize| -> Vec<f64> {
        let element = |i: usize| {
            let (r, c) = (i / width, part * width + i % width);
            let terms =
                (0..inputs).map(|j| x.get_f64(r * inputs + j) * w.get_f64(j * 3 * width + c));
            terms.sum::<f64>() + b.get_f64(c)
        };
        (0..rows * width).map(element).collect()
    };
    let attributes = vec![int("num_heads", 2), int("unidirectional", 1)];
    let constants = [("w", proto("w", &w)), ("b", proto("b", &b))];
    let model = model("Attention", &x, &["y"], attributes, &constants);
    let expected = attention(&project(0), &project(1), &project(2), size, true, rows);
    near(&run(&model, &x)[0], &expected);
}

#[test]
fn products_and_activations() {
    let x = random(&[2, 3], 1);
    let b = random(&[4, 3], 2);
    let attributes = vec![int("transB", 1), float("alpha", 0.5)];
    let fused = model(
        "FusedMatMul",
        &x,
        &["y"],
        attributes,
        &[("b", proto("b", &b))],
    );
    let expected: Vec<f64> = (0..8)
        .map(|i| {
            let terms = (0..3).map(|j| x.get_f64(i / 4 * 3 + j) * b.get_f64(i % 4 * 3 + j));
            0.5 * terms.sum::<f64>()
        })
        .collect();
    near(&run(&fused, &x)[0], &expected);

    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    let quick = model("QuickGelu", &x, &["y"], vec![], &[]);
    let expected: Vec<f64> = floats_of(&x)
        .iter()
        .map(|v| v * sigmoid(f64::from(1.702f32) * v))
        .collect();
    near(&run(&quick, &x)[0], &expected);

    let image = random(&[1, 2, 3, 3], 4);
    let weight = random(&[1, 2, 1, 1], 5);
    let clip = AttributeProto {
        name: Some("activation_params".into()),
        floats: vec![-0.25, 0.25],
        r#type: Some(6),
        ..Default::default()
    };
    let attributes = vec![text("activation", "Clip"), clip];
    let conv = model(
        "FusedConv",
        &image,
        &["y"],
        attributes,
        &[("w", proto("w", &weight))],
    );
    let expected: Vec<f64> = (0..9)
        .map(|i| {
            let sum =
                image.get_f64(i) * weight.get_f64(0) + image.get_f64(9 + i) * weight.get_f64(1);
            sum.clamp(-0.25, 0.25)
        })
        .collect();
    near(&run(&conv, &image)[0], &expected);
}

#[test]
fn sums_are_normalised() {
    let (rows, width) = (3, 6);
    let x = random(&[1, rows, width], 1);
    let skip = random(&[1, rows, width], 2);
    let (scale, shift) = (random(&[width], 3), random(&[width], 4));
    let sum: Vec<f64> = (0..x.len())
        .map(|i| x.get_f64(i) + skip.get_f64(i))
        .collect();
    let row = |i: usize| &sum[i / width * width..(i / width + 1) * width];
    let mean = |v: &[f64]| v.iter().sum::<f64>() / width as f64;
    let constants = [
        ("skip", proto("skip", &skip)),
        ("scale", proto("scale", &scale)),
        ("shift", proto("shift", &shift)),
    ];
    let outputs = ["y", "", "", "sum"];
    let layer = model("SkipLayerNormalization", &x, &outputs, vec![], &constants);
    let mut layer = layer;
    layer
        .graph
        .as_mut()
        .unwrap()
        .output
        .retain(|o| !o.name().is_empty());
    let expected: Vec<f64> = (0..sum.len())
        .map(|i| {
            let middle = mean(row(i));
            let square: Vec<f64> = row(i).iter().map(|v| (v - middle).powi(2)).collect();
            let c = i % width;
            (sum[i] - middle) / mean(&square).sqrt() * scale.get_f64(c) + shift.get_f64(c)
        })
        .collect();
    let results = run(&layer, &x);
    near(&results[0], &expected);
    near(&results[1], &sum);

    let root = model(
        "SkipSimplifiedLayerNormalization",
        &x,
        &["y"],
        vec![],
        &constants[..2],
    );
    let expected: Vec<f64> = (0..sum.len())
        .map(|i| {
            let square: Vec<f64> = row(i).iter().map(|v| v * v).collect();
            sum[i] / mean(&square).sqrt() * scale.get_f64(i % width)
        })
        .collect();
    near(&run(&root, &x)[0], &expected);
}

/// An operand's first axis may stand before those of the batch: [rows, batch, terms].
#[test]
fn products_move_the_batch_axes() {
    let x = random(&[3, 2, 4], 1);
    let given = floats_of(&x);
    for moved in [false, true] {
        let other = random(if moved { &[4, 2, 5] } else { &[2, 4, 5] }, 2);
        let b = floats_of(&other);
        let attributes = vec![int("transBatchA", 1), int("transBatchB", moved.into())];
        let m = model(
            "FusedMatMul",
            &x,
            &["y"],
            attributes,
            &[("b", proto("b", &other))],
        );
        let mut expected = Vec::new();
        for at in 0..2 * 3 * 5 {
            let [batch, row, column] = [at / 15, at / 5 % 3, at % 5];
            let term = |k: usize| {
                let row_of_b = if moved { k * 2 + batch } else { batch * 4 + k };
                given[(row * 2 + batch) * 4 + k] * b[row_of_b * 5 + column]
            };
            expected.push((0..4).map(term).sum::<f64>());
        }
        near(&run(&m, &x)[0], &expected);
    }
}
