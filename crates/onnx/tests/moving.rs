//! `Slice` where the data decide its starts and ends, against the reading of its specification.

mod build_onnx;

use build_onnx::{F32, I64, file, floats, import, int, int64s, known, node, undeclared};
use graph::{Keep, evaluate, simplify};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use std::sync::Arc;
use tensor::Tensor;

/// The elements that a slice takes: "`start` is clamped into [0, dim] and `end` into [0, dim] for
/// positive stepping; for negative stepping `start` into [0, dim-1] and `end` into [-1, dim-1]".
fn sliced(x: &[f32], start: i64, end: i64, step: i64) -> Vec<f32> {
    let dim = x.len() as i64;
    let from_front = |v: i64| if v < 0 { v + dim } else { v };
    let (mut i, end) = match step > 0 {
        true => (
            from_front(start).clamp(0, dim),
            from_front(end).clamp(0, dim),
        ),
        false => (
            from_front(start).clamp(0, dim - 1),
            from_front(end).clamp(-1, dim - 1),
        ),
    };
    let mut taken = Vec::new();
    while if step > 0 { i < end } else { i > end } {
        taken.push(x[i as usize]);
        i += step;
    }
    taken
}

fn model(
    nodes: Vec<NodeProto>,
    input: Vec<ValueInfoProto>,
    outputs: &[&str],
    initializer: Vec<TensorProto>,
) -> ModelProto {
    let graph = GraphProto {
        node: nodes,
        input,
        output: outputs.iter().map(|o| undeclared(o)).collect(),
        initializer,
        ..Default::default()
    };
    file(18, graph)
}

/// The results, which simplifying does not change.
fn results(model: &ModelProto, inputs: &[Tensor]) -> Vec<Arc<Tensor>> {
    let m = import(model).unwrap();
    m.verify().unwrap();
    let inputs: Vec<_> = inputs.iter().cloned().map(Arc::new).collect();
    let run = |m| evaluate(m, &inputs, Keep::Outputs).unwrap().results();
    let (plain, simple) = (run(&m), run(&simplify(&m)));
    assert_eq!(plain, simple);
    plain
}

fn values(t: &Tensor) -> Vec<f32> {
    (0..t.len()).map(|i| t.get_f64(i) as f32).collect()
}

const X: [f32; 5] = [10.0, 11.0, 12.0, 13.0, 14.0];

#[test]
fn starts_and_ends_may_be_inputs() {
    for step in [1, 2, -1, -3] {
        let n = node(
            "Slice",
            &["x", "start", "end", "axes", "step"],
            &["y"],
            vec![],
        );
        let constants = vec![int64s("axes", &[-1]), int64s("step", &[step])];
        let given = [
            ("x", F32, &[1, 5][..]),
            ("start", I64, &[1]),
            ("end", I64, &[1]),
        ];
        let given = given.map(|(name, ty, shape)| known(name, ty, shape));
        let m = model(vec![n], given.to_vec(), &["y"], constants);
        for start in [-9, -5, -2, -1, 0, 1, 3, 5, 8, i64::MAX] {
            for end in [i64::MIN, -9, -6, -2, 0, 2, 4, 5, i64::MAX] {
                let x = Tensor::from_slice(&[1, 5], &X);
                let [s, e] = [start, end].map(|v| Tensor::from_slice(&[1], &[v]));
                let y = &results(&m, &[x, s, e])[0];
                let right = sliced(&X, start, end, step);
                assert_eq!(y.shape(), [1, right.len()], "[{start}:{end}:{step}]");
                assert_eq!(values(y), right, "[{start}:{end}:{step}]");
            }
        }
    }
}

#[test]
fn one_axis_may_move_and_another_not() {
    let nodes = vec![
        node(
            "Concat",
            &["one", "start"],
            &["starts"],
            vec![int("axis", 0)],
        ),
        node("Add", &["starts", "two"], &["ends"], vec![]),
        node("Slice", &["x", "starts", "ends"], &["y"], vec![]),
        node("Slice", &["x", "starts", "far"], &["z"], vec![]),
    ];
    let constants = vec![
        int64s("one", &[1]),
        int64s("two", &[2]),
        int64s("far", &[i64::MAX, i64::MAX]),
    ];
    let given = vec![known("x", F32, &[4, 5]), known("start", I64, &[1])];
    let m = model(nodes, given, &["y", "z"], constants);
    let x: Vec<f32> = (0..20).map(|v| v as f32).collect();
    for (start, columns) in [
        (0, [0, 1].as_slice()),
        (3, &[3, 4]),
        (4, &[4]),
        (-2, &[]),
        (7, &[]),
    ] {
        let inputs = [
            Tensor::from_slice(&[4, 5], &x),
            Tensor::from_slice(&[1], &[start]),
        ];
        let got = results(&m, &inputs);
        let right: Vec<f32> = [1, 2]
            .iter()
            .flat_map(|r| columns.iter().map(move |c| (r * 5 + c) as f32))
            .collect();
        assert_eq!(got[0].shape(), [2, columns.len()], "{start}");
        assert_eq!(values(&got[0]), right, "{start}");
        let rest = sliced(&x[..5], start, i64::MAX, 1).len();
        assert_eq!(got[1].shape(), [3, rest], "{start}");
    }
}

/// A bag of rows between two of the given places, as exporters write `EmbeddingBag`.
fn bag(reduce: &str, attributes: Vec<AttributeProto>) -> ModelProto {
    let nodes = vec![
        node("Slice", &["places", "zero", "one"], &["from"], vec![]),
        node("Slice", &["places", "one", "two"], &["to"], vec![]),
        node("Slice", &["rows", "from", "to"], &["own"], vec![]),
        node(reduce, &["own", "zero"], &["y"], attributes),
    ];
    let constants = vec![
        floats(
            "rows",
            &[4, 2],
            &[1.0, 2.0, 30.0, 40.0, 500.0, -600.0, 7.0, 8.0],
        ),
        int64s("zero", &[0]),
        int64s("one", &[1]),
        int64s("two", &[2]),
    ];
    model(nodes, vec![known("places", I64, &[2])], &["y"], constants)
}

#[test]
fn rows_between_computed_places_are_reduced() {
    let cases = [
        ("ReduceSum", [1i64, 3], [530.0, -560.0]),
        ("ReduceSum", [2, 2], [0.0, 0.0]),
        ("ReduceMax", [1, 4], [500.0, 40.0]),
        ("ReduceMean", [1, 3], [265.0, -280.0]),
        ("ReduceMean", [0, 1], [1.0, 2.0]),
    ];
    for (reduce, places, right) in cases {
        let m = bag(reduce, vec![int("keepdims", 0)]);
        let y = &results(&m, &[Tensor::from_slice(&[2], &places)])[0];
        assert_eq!(
            (y.shape(), values(y)),
            (&[2][..], right.to_vec()),
            "{reduce} {places:?}"
        );
    }
    let empty = bag("ReduceMean", vec![]);
    let y = &results(&empty, &[Tensor::from_slice(&[2], &[2i64, 2])])[0];
    assert!(y.shape() == [1, 2] && values(y).iter().all(|v| v.is_nan()));
}

#[test]
fn starts_of_no_known_number_are_refused() {
    let nodes = vec![
        node("NonZero", &["x"], &["found"], vec![]),
        node("Reshape", &["found", "flat"], &["starts"], vec![]),
        node("Slice", &["x", "starts", "starts"], &["y"], vec![]),
    ];
    let constants = vec![int64s("flat", &[-1])];
    let m = model(nodes, vec![known("x", F32, &[5])], &["y"], constants);
    let said = import(&m).unwrap_err().to_string();
    assert!(said.contains("its starts are i64[5]"), "{said}");
}
