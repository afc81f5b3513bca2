//! Operands that are mostly constants where the data decide them: paddings, diagonals, axes; and
//! operators whose results' sizes the data decide, on operands without elements.

mod build_onnx;

use build_onnx::{F32, file, floats_of, import, int, int64s, known, node, undeclared};
use graph::{Keep, evaluate};
use onnx::proto::{GraphProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::Tensor;

const I64: i32 = 7;

/// The results `outputs` of one node on `x` and on `v`, one whole number.
fn run(node: NodeProto, x: &Tensor, v: f32, constants: Vec<TensorProto>) -> Vec<Arc<Tensor>> {
    let shape: Vec<i64> = x.shape().iter().map(|n| *n as i64).collect();
    let outputs = node.output.iter().map(|o| undeclared(o)).collect();
    let cast = build_onnx::node("Cast", &["v"], &["k"], vec![int("to", I64.into())]);
    let model = file(
        18,
        GraphProto {
            name: Some("g".into()),
            node: vec![cast, node],
            input: vec![known("x", F32, &shape), known("v", F32, &[])],
            output: outputs,
            initializer: constants,
            ..Default::default()
        },
    );
    let m = import(&model).unwrap();
    m.verify().unwrap();
    let inputs = [x.clone(), Tensor::from_slice(&[], &[v])].map(Arc::new);
    evaluate(&m, &inputs, Keep::Outputs).unwrap().results()
}

fn ramp(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (1..=count).map(|i| i as f32).collect();
    Tensor::from_slice(shape, &values)
}

#[test]
fn a_padding_value_may_be_computed() {
    let pad = node("Pad", &["x", "pads", "v"], &["y"], vec![]);
    let pads = int64s("pads", &[1, -1, 0, 1]);
    let y = run(pad, &ramp(&[2, 3]), 9.0, vec![pads]);
    assert_eq!(y[0].shape(), [3, 3]);
    let expected = [9.0, 9.0, 9.0, 2.0, 3.0, 9.0, 5.0, 6.0, 9.0];
    assert_eq!(floats_of(&y[0]), expected);
}

#[test]
fn a_diagonal_may_be_computed() {
    for k in [-100, -1, 0, 1, 100] {
        for upper in [0, 1] {
            let trilu = node("Trilu", &["x", "k"], &["y"], vec![int("upper", upper)]);
            let x = ramp(&[3, 4]);
            let y = run(trilu, &x, k as f32, vec![]);
            let expected = (0..12i64).map(|at| {
                let distance = at % 4 - at / 4;
                let keeps = match upper {
                    1 => distance >= k,
                    _ => distance <= k,
                };
                if keeps { (at + 1) as f64 } else { 0.0 }
            });
            assert_eq!(floats_of(&y[0]), expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_vector_has_one_axis_to_sum_along() {
    let sum = node("CumSum", &["x", "k"], &["y"], vec![]);
    let y = run(sum, &ramp(&[3]), 0.0, vec![]);
    assert_eq!(floats_of(&y[0]), [1.0, 3.0, 6.0]);
}

#[test]
fn nothing_is_found_in_nothing() {
    let y = run(
        node("NonZero", &["x"], &["y"], vec![]),
        &ramp(&[0, 3]),
        0.0,
        vec![],
    );
    assert_eq!(y[0].shape(), [2, 0]);
    let unique = node(
        "Unique",
        &["x"],
        &["y", "first", "inverse", "counts"],
        vec![],
    );
    let all = run(unique, &ramp(&[2, 0]), 0.0, vec![]);
    assert!(all.iter().all(|t| t.shape() == [0]));
}
