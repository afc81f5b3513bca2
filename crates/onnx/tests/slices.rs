//! `Slice` against the reading of its specification, on all small numbers.

mod build_onnx;

use build_onnx::{F32, file, import, int64s, known, node, undeclared};
use graph::{Keep, evaluate, simplify};
use onnx::proto::{GraphProto, ModelProto};
use std::sync::Arc;
use tensor::Tensor;

/// Start, end and step.
type Span = [i64; 3];

/// The elements that a slice takes: "`start` is clamped into [0, dim] and `end` into [0, dim] for
/// positive stepping; for negative stepping `start` into [0, dim-1] and `end` into [-1, dim-1]".
fn sliced(x: &[f32], [start, end, step]: Span) -> Vec<f32> {
    let dim = x.len() as i64;
    let from_front = |v: i64| if v < 0 { v + dim } else { v };
    let (mut i, end) = match step > 0 {
        true => (
            from_front(start).max(0).min(dim),
            from_front(end).max(0).min(dim),
        ),
        false => (
            from_front(start).max(0).min(dim - 1),
            from_front(end).max(-1).min(dim - 1),
        ),
    };
    let mut taken = Vec::new();
    while if step > 0 { i < end } else { i > end } {
        taken.push(x[i as usize]);
        i += step;
    }
    taken
}

/// Slices one after another of a vector.
fn model(dim: usize, spans: &[Span]) -> ModelProto {
    let (mut nodes, mut constants) = (Vec::new(), vec![int64s("axes", &[0])]);
    let name = |i: usize| if i == 0 { "x".into() } else { format!("x{i}") };
    for (i, span) in spans.iter().enumerate() {
        let names = ["start", "end", "step"].map(|n| format!("{n}{i}"));
        for (name, value) in names.iter().zip(span) {
            constants.push(int64s(name, &[*value]));
        }
        let [start, end, step] = &names;
        let inputs = [&name(i), start, end, "axes", step];
        nodes.push(node("Slice", &inputs, &[&name(i + 1)], vec![]));
    }
    let graph = GraphProto {
        node: nodes,
        input: vec![known("x", F32, &[dim as i64])],
        output: vec![undeclared(&name(spans.len()))],
        initializer: constants,
        ..Default::default()
    };
    file(13, graph)
}

fn check(dim: usize, spans: &[Span]) {
    let x: Vec<f32> = (1..=dim).map(|v| v as f32).collect();
    let expected = spans.iter().fold(x.clone(), |x, span| sliced(&x, *span));
    let imported = import(&model(dim, spans)).unwrap();
    let input = [Arc::new(Tensor::from_slice(&[dim], &x))];
    for m in [&imported, &simplify(&imported)] {
        let y = evaluate(m, &input, Keep::Outputs).unwrap().outputs();
        assert_eq!(y[0].as_slice::<f32>(), expected, "{spans:?} of {x:?}");
    }
}

#[test]
fn a_start_before_the_first_element_is_the_first() {
    assert_eq!(sliced(&[1.0, 2.0, 3.0, 4.0], [-6, -20, -1]), [1.0]);
    check(4, &[[-6, -20, -1]]);
}

#[test]
fn all_small_slices() {
    for dim in 0..=5 {
        for start in -8..=8 {
            for end in -8..=8 {
                for step in [-3, -2, -1, 1, 2, 3] {
                    check(dim, &[[start, end, step]]);
                }
            }
        }
    }
}

#[test]
fn slices_of_slices() {
    let mut spans = Vec::new();
    for start in [-8, -2, 0, 1, 8] {
        for end in [-8, -1, 3, 8] {
            spans.extend([-2, -1, 1, 2].map(|step| [start, end, step]));
        }
    }
    for first in &spans {
        for second in &spans {
            check(5, &[*first, *second]);
        }
    }
}
