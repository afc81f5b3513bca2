//! Files that fix the batch, as exporters write them: each row of another batch is computed as
//! the file computes it alone.

mod build_onnx;

use build_onnx::{
    F32, file, floats, import_with, int, int64s, ints, known, node, text, undeclared,
};
use graph::{Keep, Model, evaluate};
use onnx::ImportOptions;
use onnx::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

/// A file from x, whose first axis is the batch, to y.
fn from_x(shape: &[i64], nodes: Vec<NodeProto>, constants: Vec<TensorProto>) -> ModelProto {
    let graph = GraphProto {
        name: Some("g".into()),
        node: nodes,
        input: vec![known("x", F32, shape)],
        output: vec![undeclared("y")],
        initializer: constants,
        ..Default::default()
    };
    file(17, graph)
}

fn with_batch(m: &ModelProto, batch: Option<usize>) -> Result<Model, String> {
    let options = ImportOptions {
        batch,
        ..ImportOptions::default()
    };
    let m = import_with(m, &options).map_err(|e| e.to_string())?;
    m.verify().unwrap();
    Ok(m)
}

fn run(m: &Model, x: &Arc<Tensor>) -> Arc<Tensor> {
    let all = evaluate(m, std::slice::from_ref(x), Keep::Outputs).unwrap();
    all.outputs().remove(0)
}

/// The rows of a tensor along its first axis.
fn rows(t: &Tensor, count: usize) -> Vec<Vec<f32>> {
    let all = t.as_slice::<f32>();
    all.chunks_exact(all.len() / count)
        .map(<[f32]>::to_vec)
        .collect()
}

/// Holds several batches against the file, which gets one row after the other.
fn check(m: &ModelProto) {
    let own = with_batch(m, None).unwrap();
    let shape = own[own.inputs()[0]].shape();
    for batch in [1, 2, 3, 8] {
        let large = with_batch(m, Some(batch)).unwrap();
        let mut sized = shape.to_vec();
        sized[0] = batch;
        let uniform = Fill::Uniform { lo: -1.0, hi: 1.0 };
        let x = Arc::new(fill_tensor(DType::F32, &sized, uniform, 7));
        let y = run(&large, &x);
        for (own_row, found) in rows(&x, batch).into_iter().zip(rows(&y, batch)) {
            let alone = own_row.repeat(shape[0]);
            let expected = run(&own, &Arc::new(Tensor::from_slice(shape, &alone)));
            assert_eq!(
                found,
                rows(&expected, shape[0])[0],
                "batch {batch}\n{large}"
            );
        }
    }
}

fn weights(name: &str, shape: &[i64]) -> TensorProto {
    let count: i64 = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i * 7 % 11) as f32 / 11.0).collect();
    floats(name, shape, &values)
}

fn reshape(x: &str, shape: &str, y: &str) -> NodeProto {
    node("Reshape", &[x, shape], &[y], vec![])
}

fn transpose(x: &str, perm: &[i64], y: &str) -> NodeProto {
    node("Transpose", &[x], &[y], vec![ints("perm", perm)])
}

#[test]
fn a_reshape_may_count_the_rows() {
    let shape = int64s("s", &[1, 2, 2]);
    let nodes = vec![
        reshape("x", "s", "z"),
        node("Softmax", &["z"], &["y"], vec![int("axis", 1)]),
    ];
    check(&from_x(&[1, 4], nodes, vec![shape]));
    let shape = int64s("s", &[2, 12]);
    check(&from_x(
        &[2, 3, 4],
        vec![reshape("x", "s", "y")],
        vec![shape],
    ));
}

/// Heads are merged with the batch, and a constant has one of its matrices for each head.
#[test]
fn rows_may_be_merged_with_heads() {
    let nodes = vec![
        reshape("x", "split", "h"),
        transpose("h", &[0, 2, 1, 3], "t"),
        reshape("t", "merged", "q"),
        transpose("q", &[0, 2, 1], "k"),
        node("MatMul", &["q", "k"], &["scores"], vec![]),
        node("Add", &["scores", "bias"], &["biased"], vec![]),
        node("Softmax", &["biased"], &["p"], vec![int("axis", 2)]),
        node("MatMul", &["p", "q"], &["o"], vec![]),
        reshape("o", "apart", "a"),
        transpose("a", &[0, 2, 1, 3], "b"),
        reshape("b", "all", "y"),
    ];
    let constants = vec![
        int64s("split", &[1, 3, 2, 4]),
        int64s("merged", &[2, 3, 4]),
        weights("bias", &[2, 3, 3]),
        int64s("apart", &[1, 2, 3, 4]),
        int64s("all", &[1, 3, 8]),
    ];
    check(&from_x(&[1, 3, 8], nodes, constants));
}

/// Where the batch is the second axis, merging it with the first puts each row in several places.
#[test]
fn rows_may_be_merged_with_the_axis_before_them() {
    let nodes = vec![
        transpose("x", &[1, 0, 2], "t"),
        reshape("t", "flat", "f"),
        node("MatMul", &["f", "w"], &["m"], vec![]),
        reshape("m", "apart", "a"),
        transpose("a", &[1, 0, 2], "y"),
    ];
    let constants = vec![
        int64s("flat", &[3, 4]),
        weights("w", &[4, 5]),
        int64s("apart", &[3, 1, 5]),
    ];
    check(&from_x(&[1, 3, 4], nodes, constants));
}

#[test]
fn constants_are_repeated_for_each_row() {
    let nodes = vec![
        node("Expand", &["token", "s"], &["tokens"], vec![]),
        node("Concat", &["tokens", "x"], &["y"], vec![int("axis", 1)]),
    ];
    let constants = vec![weights("token", &[1, 1, 4]), int64s("s", &[1, 1, 4])];
    check(&from_x(&[1, 3, 4], nodes, constants));
    for (op, inputs) in [("ConstantOfShape", &["s"][..]), ("Tile", &["w", "s"])] {
        let nodes = vec![
            node(op, inputs, &["c"], vec![]),
            node("Concat", &["c", "x"], &["y"], vec![int("axis", 1)]),
        ];
        let constants = vec![int64s("s", &[2, 3]), weights("w", &[1, 2])];
        check(&from_x(&[2, 4], nodes, constants));
    }
}

#[test]
fn slices_and_sizes_of_results_follow_the_rows() {
    let slice = node("Slice", &["x", "from", "to"], &["y"], vec![]);
    let ends = vec![int64s("from", &[0, 1]), int64s("to", &[1, 3])];
    check(&from_x(&[1, 4], vec![slice], ends));
    let mode = vec![text("mode", "nearest")];
    let resize = node("Resize", &["x", "", "", "sizes"], &["y"], mode);
    let sizes = int64s("sizes", &[1, 1, 4, 6]);
    check(&from_x(&[1, 1, 2, 3], vec![resize], vec![sizes]));
}

/// One row may be any axis of size 1: which one it is shows where results are put together.
#[test]
fn an_axis_of_one_is_chosen_by_what_reads_it() {
    let nodes = vec![
        node("Relu", &["x"], &["r"], vec![]),
        node("Unsqueeze", &["x", "first"], &["a"], vec![]),
        node("Unsqueeze", &["r", "first"], &["b"], vec![]),
        node("Concat", &["a", "b"], &["c"], vec![int("axis", 0)]),
        transpose("c", &[1, 0, 2], "y"),
    ];
    check(&from_x(&[1, 4], nodes, vec![int64s("first", &[0])]));
}

#[test]
fn positions_pick_from_their_own_row() {
    let positions = TensorProto {
        dims: vec![1, 2, 2],
        ..int64s("i", &[0, 3, 0, 1])
    };
    let nd = node("GatherND", &["x", "i"], &["y"], vec![]);
    check(&from_x(&[1, 4], vec![nd], vec![positions]));
    let gather = node("Gather", &["x", "i"], &["y"], vec![int("axis", 0)]);
    check(&from_x(&[1, 4], vec![gather], vec![int64s("i", &[0])]));
}

/// A file that picks the largest element of each row, where constants say which row that is.
fn largest(rows: &[i64]) -> ModelProto {
    let count = rows.len() as i64;
    let numbers = TensorProto {
        dims: vec![count, 1],
        ..int64s("rows", rows)
    };
    let keep = [int("axis", 1), int("keepdims", 1)];
    let nodes = vec![
        node("ArgMax", &["x"], &["at"], keep.to_vec()),
        node("Concat", &["rows", "at"], &["i"], vec![int("axis", -1)]),
        node("GatherND", &["x", "i"], &["y"], vec![]),
    ];
    from_x(&[count, 4], nodes, vec![numbers])
}

#[test]
fn computed_positions_pick_from_their_own_row() {
    check(&largest(&[0]));
    check(&largest(&[0, 1]));
    let said = refusal(&largest(&[0, 0]));
    assert!(said.contains("GatherND"), "{said}");
}

#[test]
fn resized_images_keep_an_axis_of_one() {
    let scales = floats("s", &[4], &[1.0, 1.0, 2.0, 2.0]);
    let mode = text("coordinate_transformation_mode", "align_corners");
    let attributes = vec![text("mode", "linear"), mode];
    let resize = node("Resize", &["x", "", "s"], &["y"], attributes);
    check(&from_x(&[1, 2, 3, 3], vec![resize], vec![scales]));
}

fn refusal(m: &ModelProto) -> String {
    with_batch(m, None).unwrap();
    with_batch(m, Some(4)).unwrap_err()
}

#[test]
fn a_node_that_mixes_rows_is_named() {
    for (op, attribute) in [
        ("Softmax", int("axis", 0)),
        ("ReduceMean", ints("axes", &[0])),
        ("ArgMax", int("axis", 0)),
    ] {
        let mut mixes = node(op, &["z"], &["y"], vec![attribute]);
        mixes.name = Some("culprit".into());
        let nodes = vec![reshape("x", "s", "z"), mixes];
        let said = refusal(&from_x(&[1, 4], nodes, vec![int64s("s", &[1, 2, 2])]));
        for words in [
            "node `culprit",
            "mixes rows",
            "dynamic_shapes={'x': {0: torch.export.Dim('batch')}}",
            "--dim x.1=4",
        ] {
            assert!(said.contains(words), "{op}: {said}");
        }
    }
}

/// A constant that is another for each row, and a reshape that cuts rows.
#[test]
fn rows_that_differ_are_refused() {
    let add = node("Add", &["x", "w"], &["y"], vec![]);
    let said = refusal(&from_x(&[2, 3], vec![add], vec![weights("w", &[2, 3])]));
    assert!(said.contains("node `the Add`"), "{said}");
    let shape = int64s("s", &[3, 2]);
    let said = refusal(&from_x(&[2, 3], vec![reshape("x", "s", "y")], vec![shape]));
    assert!(said.contains("node `the Reshape`"), "{said}");
}
