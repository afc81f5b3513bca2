//! Control flow whose course is known when a model is read.

mod build_onnx;

use build_onnx::{F32, file, import, known, node, outputs, scalar, undeclared};
use graph::{Keep, evaluate};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::Tensor;

fn graph(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    GraphProto {
        name: Some("body".into()),
        node: nodes,
        input: inputs.iter().map(|i| undeclared(i)).collect(),
        output: outputs.iter().map(|o| undeclared(o)).collect(),
        ..Default::default()
    }
}

fn attribute(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        g: Some(g),
        r#type: Some(5),
        ..Default::default()
    }
}

fn truth(name: &str, holds: bool) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        data_type: Some(9),
        int32_data: vec![i32::from(holds)],
        ..Default::default()
    }
}

fn model(nodes: Vec<NodeProto>, outputs: &[&str], constants: Vec<TensorProto>) -> ModelProto {
    file(
        16,
        GraphProto {
            name: Some("g".into()),
            node: nodes,
            input: vec![known("x", F32, &[3])],
            output: outputs.iter().map(|o| undeclared(o)).collect(),
            initializer: constants,
            ..Default::default()
        },
    )
}

/// The results on 0, 1, 2.
fn results(model: &ModelProto) -> Vec<(Vec<usize>, Vec<f32>)> {
    let all = outputs(model);
    let each = all
        .iter()
        .map(|t| (t.shape().to_vec(), t.as_slice::<f32>().to_vec()));
    each.collect()
}

#[test]
fn the_branch_of_a_known_condition_is_taken() {
    for (holds, expected) in [(true, [0.0, 2.0, 4.0]), (false, [0.0, 1.0, 4.0])] {
        // Both branches call their result alike, and hide a name from outside.
        let double = graph(&[], vec![node("Add", &["x", "x"], &["z"], vec![])], &["z"]);
        let square = graph(&[], vec![node("Mul", &["x", "x"], &["z"], vec![])], &["z"]);
        let graphs = vec![
            attribute("then_branch", double),
            attribute("else_branch", square),
        ];
        let nodes = vec![
            node("Neg", &["x"], &["z"], vec![]),
            node("If", &["c"], &["chosen"], graphs),
            node("Abs", &["z"], &["size"], vec![]),
        ];
        let m = model(nodes, &["chosen", "size"], vec![truth("c", holds)]);
        let results = results(&m);
        assert_eq!(results[0].1, expected);
        assert_eq!(results[1].1, [0.0, 1.0, 2.0]);
    }
}

#[test]
fn a_loop_of_known_length_is_written_out() {
    // state = state + x, collected; four times, or as long as the iteration is less than 2.
    for (limit, rows) in [(9, 4), (2, 3)] {
        let body = graph(
            &["i", "going", "state"],
            vec![
                node("Add", &["state", "x"], &["next"], vec![]),
                node("Less", &["i", "limit"], &["on"], vec![]),
            ],
            &["on", "next", "next"],
        );
        let nodes = vec![node(
            "Loop",
            &["trips", "", "x"],
            &["last", "all"],
            vec![attribute("body", body)],
        )];
        let constants = vec![scalar("trips", 4), scalar("limit", limit)];
        let results = results(&model(nodes, &["last", "all"], constants));
        assert_eq!(results[0].1[1], (rows + 1) as f32);
        assert_eq!(results[1].0, [rows, 3]);
        let column: Vec<f32> = results[1].1.iter().skip(1).step_by(3).copied().collect();
        let expected: Vec<f32> = (0..rows).map(|r| (r + 2) as f32).collect();
        assert_eq!(column, expected);
    }
}

#[test]
fn a_scan_collects_along_its_axes() {
    for (backwards, expected) in [(0, [0.0, 1.0, 3.0]), (1, [2.0, 3.0, 3.0])] {
        let body = graph(
            &["sum", "element"],
            vec![node("Add", &["sum", "element"], &["next"], vec![])],
            &["next", "next"],
        );
        let attributes = vec![
            attribute("body", body),
            build_onnx::int("num_scan_inputs", 1),
            build_onnx::ints("scan_input_directions", &[backwards]),
        ];
        let zero = TensorProto {
            dims: vec![],
            name: Some("zero".into()),
            data_type: Some(F32),
            float_data: vec![0.0],
            ..Default::default()
        };
        let nodes = vec![node("Scan", &["zero", "x"], &["total", "all"], attributes)];
        let results = results(&model(nodes, &["total", "all"], vec![zero]));
        assert_eq!(results[0].1, [3.0]);
        assert_eq!(results[1].1, expected);
    }
}

#[test]
fn a_loop_of_no_iteration_collects_nothing_of_a_known_shape() {
    let body = graph(
        &["i", "go", "v"],
        vec![
            node("Identity", &["go"], &["still"], vec![]),
            node("Add", &["v", "v"], &["next"], vec![]),
            node(
                "Concat",
                &["v", "v"],
                &["row"],
                vec![build_onnx::int("axis", 0)],
            ),
        ],
        &["still", "next", "row"],
    );
    let nodes = vec![node(
        "Loop",
        &["count", "go", "x"],
        &["last", "rows"],
        vec![attribute("body", body)],
    )];
    let constants = vec![scalar("count", 0), truth("go", true)];
    let y = results(&model(nodes, &["last", "rows"], constants));
    assert_eq!(y[0], (vec![3], vec![0.0, 1.0, 2.0]));
    assert_eq!(y[1], (vec![0, 6], vec![]));
}

#[test]
fn what_decides_the_course_is_named() {
    let body = graph(&["i", "c"], vec![], &["c"]);
    let nodes = vec![
        node("ReduceMax", &["x"], &["m"], vec![]),
        node("Cast", &["m"], &["trips"], vec![build_onnx::int("to", 7)]),
        node(
            "Loop",
            &["trips", "", "x"],
            &["y"],
            vec![attribute("body", body)],
        ),
    ];
    let message = import(&model(nodes, &["y"], vec![]))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("its number of iterations comes from input `x`"),
        "{message}"
    );
}

/// state = state + x while the sum of the state, 3 at first, is below a limit, at most 4 times.
#[test]
fn the_data_may_end_a_loop() {
    for (limit, runs) in [(1.0, 1), (7.0, 2), (9.0, 2), (100.0, 4)] {
        let body = graph(
            &["i", "going", "state"],
            vec![
                node("Add", &["state", "x"], &["next"], vec![]),
                node(
                    "ReduceSum",
                    &["next"],
                    &["sum"],
                    vec![build_onnx::int("keepdims", 0)],
                ),
                node("Less", &["sum", "limit"], &["on"], vec![]),
            ],
            &["on", "next", "next"],
        );
        let nodes = vec![node(
            "Loop",
            &["trips", "", "x"],
            &["last", "all"],
            vec![attribute("body", body)],
        )];
        let limit = build_onnx::floats("limit", &[], &[limit]);
        let m = model(nodes, &["last", "all"], vec![scalar("trips", 4), limit]);
        let m = import(&m).unwrap();
        m.verify().unwrap();
        let x = Arc::new(Tensor::from_slice(&[3], &[0f32, 1.0, 2.0]));
        let found = evaluate(&m, &[x], Keep::Outputs).unwrap().results();
        let row = |times: usize| [0.0, 1.0, 2.0].map(|x| x * (times + 1) as f64);
        assert_eq!(build_onnx::floats_of(&found[0]), row(runs));
        assert_eq!(found[1].shape(), [runs, 3]);
        let rows: Vec<f64> = (1..=runs).flat_map(row).collect();
        assert_eq!(build_onnx::floats_of(&found[1]), rows);
    }
}

/// A condition that is open before the first iteration, and constant in it.
#[test]
fn the_data_may_keep_a_loop_from_running() {
    for (limit, expected) in [(1.0, [0.0, 1.0, 2.0]), (9.0, [0.0, 3.0, 6.0])] {
        let body = graph(
            &["i", "going", "state"],
            vec![
                node("Add", &["state", "x"], &["next"], vec![]),
                node("Identity", &["going"], &["on"], vec![]),
            ],
            &["on", "next"],
        );
        let nodes = vec![
            node("ReduceSum", &["x"], &["sum"], vec![]),
            node("Less", &["sum", "limit"], &["first"], vec![]),
            node(
                "Loop",
                &["trips", "first", "x"],
                &["y"],
                vec![attribute("body", body)],
            ),
        ];
        let limit = build_onnx::floats("limit", &[1], &[limit]);
        let m = model(nodes, &["y"], vec![scalar("trips", 2), limit]);
        assert_eq!(results(&m)[0].1, expected);
    }
}

#[test]
fn a_scan_of_operator_set_8_scans_each_sequence_of_a_batch() {
    // Of two sequences, sums that are collected; backwards or not.
    for (backwards, expected) in [(0, [0.0, 1.0, 3.0, 8.0]), (1, [1.0, 1.0, 5.0, 8.0])] {
        let body = graph(
            &["sum", "element"],
            vec![node("Add", &["sum", "element"], &["next"], vec![])],
            &["next", "next"],
        );
        let attributes = vec![
            attribute("body", body),
            build_onnx::int("num_scan_inputs", 1),
            build_onnx::ints("directions", &[backwards]),
        ];
        for lengths in [&[2, 2][..], &[2, 1], &[]] {
            let named = if lengths.is_empty() { "" } else { "lengths" };
            let scan = node(
                "Scan",
                &[named, "zero", "x"],
                &["total", "all"],
                attributes.clone(),
            );
            let zero = build_onnx::floats("zero", &[2], &[0.0, 0.0]);
            let constants = match lengths.is_empty() {
                true => vec![zero],
                false => vec![zero, build_onnx::int64s("lengths", lengths)],
            };
            let m = file(
                8,
                GraphProto {
                    name: Some("g".into()),
                    node: vec![scan],
                    input: vec![known("x", F32, &[2, 2])],
                    output: vec![undeclared("total"), undeclared("all")],
                    initializer: constants,
                    ..Default::default()
                },
            );
            if lengths == [2, 1] {
                let refused = import(&m).unwrap_err().to_string();
                assert!(refused.contains("lengths [2, 1]"), "{refused}");
                continue;
            }
            let m = import(&m).unwrap();
            let x = Tensor::from_slice(&[2, 2], &[0.0f32, 1.0, 3.0, 5.0]);
            let results = evaluate(&m, &[Arc::new(x)], Keep::Outputs).unwrap();
            let results = results.outputs();
            assert_eq!(results[0].shape(), [2]);
            assert_eq!(results[0].as_slice::<f32>(), [1.0, 8.0]);
            assert_eq!(results[1].shape(), [2, 2]);
            assert_eq!(results[1].as_slice::<f32>(), expected);
        }
    }
}

#[test]
fn branches_of_other_ranks_need_their_condition() {
    // The condition is of an integer that the user can give, or of an image.
    let branch = |shape: &str| {
        let nodes = vec![node("Reshape", &["x", shape], &["y"], vec![])];
        graph(&[], nodes, &["y"])
    };
    for (kind, size, needed) in [(build_onnx::I64, 1, true), (F32, 100, false)] {
        let nodes = vec![
            node(
                "ReduceMax",
                &["s"],
                &["most"],
                vec![build_onnx::int("keepdims", 0)],
            ),
            node("Cast", &["most"], &["c"], vec![build_onnx::int("to", 9)]),
            node(
                "If",
                &["c"],
                &["y"],
                vec![
                    attribute("then_branch", branch("flat")),
                    attribute("else_branch", branch("square")),
                ],
            ),
        ];
        let mut m = model(
            nodes,
            &["y"],
            vec![
                build_onnx::int64s("flat", &[-1]),
                build_onnx::int64s("square", &[3, 1]),
            ],
        );
        m.graph
            .as_mut()
            .unwrap()
            .input
            .push(known("s", kind, &[size]));
        let refused = import(&m).unwrap_err();
        match needed {
            true => assert!(
                matches!(refused, onnx::ImportError::NeededValues(_)),
                "{refused}"
            ),
            false => assert!(
                refused.to_string().contains("f32[3] and f32[3,1]"),
                "{refused}"
            ),
        }
    }
}
