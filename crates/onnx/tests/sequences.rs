//! Sequences of tensors, of which nothing is left in a model.

mod build_onnx;

use build_onnx::{F32, file, import, int, int64s, known, node, scalar, undeclared};
use graph::{Keep, evaluate};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::Tensor;

fn model(nodes: Vec<NodeProto>, outputs: &[&str], constants: Vec<TensorProto>) -> ModelProto {
    file(
        17,
        GraphProto {
            name: Some("g".into()),
            node: nodes,
            input: vec![known("x", F32, &[4, 3])],
            output: outputs.iter().map(|o| undeclared(o)).collect(),
            initializer: constants,
            ..Default::default()
        },
    )
}

fn results(model: &ModelProto) -> Vec<(Vec<usize>, Vec<f64>)> {
    let m = import(model).unwrap();
    m.verify().unwrap();
    let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let x = Arc::new(Tensor::from_slice(&[4, 3], &x));
    let all = evaluate(&m, &[x], Keep::Outputs).unwrap().outputs();
    let found = |t: &Arc<Tensor>| (t.shape().to_vec(), build_onnx::floats_of(t));
    all.iter().map(found).collect()
}

/// As the exporter writes a Python list that a loop fills.
#[test]
fn a_loop_fills_a_sequence() {
    let body = GraphProto {
        name: Some("body".into()),
        input: ["i", "go", "list"].map(undeclared).to_vec(),
        node: vec![
            node("Gather", &["x", "i"], &["row"], vec![]),
            node("SequenceInsert", &["list", "row"], &["longer"], vec![]),
            node("Identity", &["go"], &["going"], vec![]),
        ],
        output: ["going", "longer"].map(undeclared).to_vec(),
        ..Default::default()
    };
    let attribute = AttributeProto {
        name: Some("body".into()),
        g: Some(body),
        r#type: Some(5),
        ..Default::default()
    };
    let nodes = vec![
        node("SequenceEmpty", &[], &["none"], vec![]),
        node("Loop", &["three", "", "none"], &["rows"], vec![attribute]),
        node("SequenceAt", &["rows", "last"], &["third"], vec![]),
        node("SequenceLength", &["rows"], &["count"], vec![]),
        node("SequenceErase", &["rows", "zero"], &["fewer"], vec![]),
        node(
            "SequenceInsert",
            &["fewer", "third", "zero"],
            &["turned"],
            vec![],
        ),
        node(
            "ConcatFromSequence",
            &["turned"],
            &["all"],
            vec![int("axis", 0), int("new_axis", 1)],
        ),
    ];
    let constants = vec![scalar("three", 3), scalar("last", -1), scalar("zero", 0)];
    let r = results(&model(nodes, &["third", "count", "all"], constants));
    assert_eq!(r[0], (vec![3], vec![6., 7., 8.]));
    assert_eq!(r[1], (vec![], vec![3.0]));
    let rows = [6., 7., 8., 3., 4., 5., 6., 7., 8.];
    assert_eq!(r[2], (vec![3, 3], rows.to_vec()));
}

#[test]
fn a_tensor_is_split_into_a_sequence() {
    let at =
        |sequence: &str, output: &str| node("SequenceAt", &[sequence, "one"], &[output], vec![]);
    let nodes = vec![
        node(
            "SplitToSequence",
            &["x"],
            &["rows"],
            vec![int("keepdims", 0)],
        ),
        at("rows", "row"),
        node("SplitToSequence", &["x", "three"], &["parts"], vec![]),
        at("parts", "rest"),
        node(
            "SplitToSequence",
            &["x", "sizes"],
            &["columns"],
            vec![int("axis", 1)],
        ),
        at("columns", "column"),
    ];
    let constants = vec![
        scalar("one", 1),
        scalar("three", 3),
        int64s("sizes", &[2, 1]),
    ];
    let r = results(&model(nodes, &["row", "rest", "column"], constants));
    assert_eq!(r[0], (vec![3], vec![3., 4., 5.]));
    assert_eq!(r[1], (vec![1, 3], vec![9., 10., 11.]));
    assert_eq!(r[2], (vec![4, 1], vec![2., 5., 8., 11.]));
}

#[test]
fn what_takes_no_sequence_says_so() {
    let sequence = || node("SequenceConstruct", &["x", "x"], &["both"], vec![]);
    let refused = |nodes: Vec<NodeProto>, output: &str| {
        let model = model(nodes, &[output], vec![scalar("five", 5)]);
        import(&model).unwrap_err().to_string()
    };
    let read = refused(
        vec![sequence(), node("Relu", &["both"], &["y"], vec![])],
        "y",
    );
    assert!(read.contains("is a sequence of tensors"), "{read}");
    let output = refused(vec![sequence()], "both");
    assert!(output.contains("output `both` is a sequence"), "{output}");
    let beyond = node("SequenceAt", &["both", "five"], &["y"], vec![]);
    let beyond = refused(vec![sequence(), beyond], "y");
    assert!(beyond.contains("position 5 in a sequence of 2"), "{beyond}");
    let tensor = refused(
        vec![node("SequenceAt", &["x", "five"], &["y"], vec![])],
        "y",
    );
    assert!(tensor.contains("no sequence of tensors"), "{tensor}");
}

#[test]
fn an_optional_is_what_it_holds() {
    let nodes = vec![
        node("SequenceConstruct", &["x", "x"], &["list"], vec![]),
        node("Optional", &["list"], &["o"], vec![]),
        node("OptionalHasElement", &["o"], &["has"], vec![]),
        node("OptionalHasElement", &[], &["lacks"], vec![]),
        node("OptionalGetElement", &["o"], &["held"], vec![]),
        node("SequenceLength", &["held"], &["count"], vec![]),
    ];
    let found = results(&model(nodes, &["has", "lacks", "count"], vec![]));
    let one = |v: f64| (vec![], vec![v]);
    assert_eq!(found, [one(1.0), one(0.0), one(2.0)]);
}

/// A body for each tensor of a sequence, with the tensor at its place of another one, and one that all share.
#[test]
fn a_body_maps_sequences() {
    let body = GraphProto {
        name: Some("body".into()),
        input: ["a", "b", "all"].map(undeclared).to_vec(),
        node: vec![
            node("Mul", &["a", "b"], &["product"], vec![]),
            node("ReduceSum", &["all"], &["whole"], vec![int("keepdims", 0)]),
            node("Add", &["product", "whole"], &["sum"], vec![]),
            node("Identity", &["b"], &["second"], vec![]),
        ],
        output: ["sum", "second"].map(undeclared).to_vec(),
        ..Default::default()
    };
    let attribute = AttributeProto {
        name: Some("body".into()),
        g: Some(body),
        r#type: Some(5),
        ..Default::default()
    };
    let split =
        |to: &str, size: &str| node("SplitToSequence", &["x", size], &[to], vec![int("axis", 0)]);
    let map = |first: &str, second: &str, attribute: &AttributeProto| {
        let inputs = [first, second, "x"];
        node(
            "SequenceMap",
            &inputs,
            &["mapped", "seconds"],
            vec![attribute.clone()],
        )
    };
    let constants = vec![scalar("two", 2), scalar("three", 3)];
    let nodes = vec![
        split("pairs", "two"),
        map("pairs", "pairs", &attribute),
        node(
            "ConcatFromSequence",
            &["mapped"],
            &["y"],
            vec![int("axis", 0)],
        ),
        node(
            "ConcatFromSequence",
            &["seconds"],
            &["z"],
            vec![int("axis", 0)],
        ),
    ];
    let all = results(&model(nodes, &["y", "z"], constants.clone()));
    // The sum of 0 to 11 is 66.
    let squares: Vec<f64> = (0..12).map(|i| f64::from(i * i + 66)).collect();
    assert_eq!(all[0], (vec![4, 3], squares));
    assert_eq!(all[1].1, (0..12).map(f64::from).collect::<Vec<_>>());
    let nodes = vec![
        split("pairs", "two"),
        node("SequenceConstruct", &["x"], &["one"], vec![]),
        map("pairs", "one", &attribute),
    ];
    let e = import(&model(nodes, &["x"], constants)).unwrap_err();
    assert!(
        e.to_string().contains("its sequences have 2 and 1 tensors"),
        "{e}"
    );
}
