//! Operators whose results' sizes the data decide, and what follows them.

mod build_onnx;

use build_onnx::{F32, file, floats, import, int, int64s, known, node, undeclared};
use graph::ops::Op;
use graph::{Keep, evaluate, simplify};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::Tensor;

fn model(
    shape: &[i64],
    nodes: Vec<NodeProto>,
    outputs: &[&str],
    constants: Vec<TensorProto>,
) -> ModelProto {
    file(
        17,
        GraphProto {
            name: Some("g".into()),
            node: nodes,
            input: vec![known("x", F32, shape)],
            output: outputs.iter().map(|o| undeclared(o)).collect(),
            initializer: constants,
            ..Default::default()
        },
    )
}

/// The results on these inputs, which simplifying does not change.
fn results(model: &ModelProto, x: &Tensor) -> Vec<Arc<Tensor>> {
    let m = import(model).unwrap();
    let simple = simplify(&m);
    for m in [&m, &simple] {
        m.verify().unwrap();
    }
    let run = |m| {
        let inputs = [Arc::new(x.clone())];
        evaluate(m, &inputs, Keep::Outputs).unwrap().results()
    };
    let (plain, simplified) = (run(&m), run(&simple));
    assert_eq!(plain, simplified);
    plain
}

fn is(t: &Tensor, shape: &[usize], values: &[f64]) {
    let own: Vec<f64> = (0..t.len()).map(|i| t.get_f64(i)).collect();
    assert_eq!((t.shape(), &own[..]), (shape, values));
}

/// Elements of `x` above 1: as a detector keeps its scores.
fn kept() -> (Vec<NodeProto>, Vec<TensorProto>) {
    let nodes = vec![
        node("Greater", &["x", "one"], &["above"], vec![]),
        node("NonZero", &["above"], &["places"], vec![]),
        node("Transpose", &["places"], &["rows"], vec![]),
        node("GatherND", &["x", "rows"], &["kept"], vec![]),
    ];
    (nodes, vec![floats("one", &[], &[1.0])])
}

#[test]
fn what_is_chosen_is_counted_and_reduced_alone() {
    let (mut nodes, constants) = kept();
    let keepdims = || vec![int("keepdims", 0)];
    nodes.push(node("Neg", &["kept"], &["negative"], vec![]));
    nodes.push(node("ReduceMax", &["negative"], &["most"], keepdims()));
    nodes.push(node("ReduceSum", &["kept"], &["sum"], keepdims()));
    nodes.push(node("Shape", &["kept"], &["size"], vec![]));
    let outputs = ["kept", "places", "most", "sum", "size"];
    let file = model(&[6], nodes, &outputs, constants);
    let x = Tensor::from_slice(&[6], &[3.0f32, 0.0, 2.0, 1.0, 5.0, -7.0]);
    let r = results(&file, &x);
    is(&r[0], &[3], &[3.0, 2.0, 5.0]);
    is(&r[1], &[1, 3], &[0.0, 2.0, 4.0]);
    is(&r[2], &[], &[-2.0]);
    is(&r[3], &[], &[10.0]);
    is(&r[4], &[1], &[3.0]);
    let none = results(&file, &Tensor::from_slice(&[6], &[0.0f32; 6]));
    is(&none[0], &[0], &[]);
    is(&none[4], &[1], &[0.0]);
}

#[test]
fn the_best_of_what_is_chosen_as_many_as_there_are() {
    let (mut nodes, mut constants) = kept();
    constants.push(int64s("four", &[4]));
    constants.push(int64s("minus", &[-1]));
    nodes.extend([
        node("Shape", &["kept"], &["size"], vec![]),
        node("Concat", &["size", "four"], &["both"], vec![int("axis", 0)]),
        node("ReduceMin", &["both"], &["k"], vec![int("keepdims", 1)]),
        node("TopK", &["kept", "k"], &["best", "order"], vec![]),
        node("Gather", &["kept", "order"], &["again"], vec![]),
        node("Gather", &["kept", "minus"], &["last"], vec![]),
        node("ConstantOfShape", &["k"], &["zeros"], vec![]),
    ]);
    let outputs = ["best", "again", "last", "zeros"];
    let file = model(&[6], nodes, &outputs, constants);
    let r = results(
        &file,
        &Tensor::from_slice(&[6], &[3.0f32, 0.0, 2.0, 1.0, 5.0, -7.0]),
    );
    is(&r[0], &[3], &[5.0, 3.0, 2.0]);
    assert_eq!(r[0], r[1]);
    is(&r[2], &[1], &[5.0]);
    is(&r[3], &[3], &[0.0; 3]);
    let all = Tensor::from_slice(&[6], &[3.0f32, 9.0, 2.0, 4.0, 5.0, 7.0]);
    is(&results(&file, &all)[0], &[4], &[9.0, 7.0, 5.0, 4.0]);
}

/// Rows of `rows`, which has as many as `kept`, by tuples of indices: its last row, the second
/// element of its first row, and rows that are chosen again.
#[test]
fn tuples_of_indices_choose_among_chosen_rows() {
    let (mut nodes, mut constants) = kept();
    let shaped = |name: &str, shape: [i64; 2], values: &[i64]| TensorProto {
        dims: shape.to_vec(),
        ..int64s(name, values)
    };
    constants.push(int64s("end", &[-1]));
    constants.push(shaped("minus", [1, 1], &[-1]));
    constants.push(shaped("pairs", [2, 2], &[-1, 1, 0, -1]));
    constants.push(floats("two", &[], &[2.0]));
    constants.push(floats("ones", &[1, 2], &[1.0, -1.0]));
    nodes.extend([
        node("Unsqueeze", &["kept", "end"], &["column"], vec![]),
        node("Mul", &["column", "ones"], &["table"], vec![]),
        node("GatherND", &["table", "minus"], &["last"], vec![]),
        node("GatherND", &["table", "pairs"], &["elements"], vec![]),
        node("Greater", &["kept", "two"], &["high"], vec![]),
        node("NonZero", &["high"], &["at"], vec![]),
        node("Transpose", &["at"], &["tuples"], vec![]),
        node("GatherND", &["table", "tuples"], &["again"], vec![]),
    ]);
    let file = model(&[5], nodes, &["last", "elements", "again"], constants);
    let r = results(
        &file,
        &Tensor::from_slice(&[5], &[3.0f32, 0.0, 2.0, 5.0, 1.0]),
    );
    is(&r[0], &[1, 2], &[5.0, -5.0]);
    is(&r[1], &[2], &[-5.0, -3.0]);
    is(&r[2], &[2, 2], &[3.0, -3.0, 5.0, -5.0]);
}

#[test]
fn concatenated_parts_lie_behind_each_other() {
    let (mut nodes, constants) = kept();
    let axis = || vec![int("axis", 0)];
    nodes.push(node("Concat", &["kept", "one1", "kept"], &["y"], axis()));
    let mut constants = constants;
    constants.push(floats("one1", &[1], &[1.0]));
    constants.push(int64s("first", &[1]));
    constants.push(int64s("end", &[4]));
    nodes.push(node("Slice", &["y", "first", "end"], &["z"], vec![]));
    let file = model(&[3], nodes, &["y", "z"], constants);
    let r = results(&file, &Tensor::from_slice(&[3], &[0.0f32, 3.0, 2.0]));
    is(&r[0], &[5], &[3.0, 2.0, 1.0, 3.0, 2.0]);
    is(&r[1], &[3], &[2.0, 1.0, 3.0]);
    let r = results(&file, &Tensor::from_slice(&[3], &[0.0f32; 3]));
    is(&r[0], &[1], &[1.0]);
    is(&r[1], &[0], &[]);
}

#[test]
fn suppression_chooses_as_many_boxes_as_are_read() {
    let boxes = [
        [0.0, 0.0, 2.0, 2.0],
        [0.0, 0.1, 2.0, 2.1],
        [5.0, 5.0, 6.0, 6.0],
        [8.0, 8.0, 9.0, 9.0],
    ];
    let constants = vec![
        floats("boxes", &[1, 4, 4], boxes.as_flattened()),
        int64s("all", &[i64::MAX]),
        floats("overlap", &[1], &[0.5]),
        int64s("zero", &[0]),
        int64s("two", &[2]),
    ];
    let nms = ["boxes", "x", "all", "overlap"];
    let nodes = vec![
        node("NonMaxSuppression", &nms, &["chosen"], vec![]),
        node("Gather", &["chosen", "two"], &["box"], vec![int("axis", 1)]),
        node("Slice", &["box", "zero", "two", "zero"], &["y"], vec![]),
    ];
    let x = Tensor::from_slice(&[1, 1, 4], &[0.9f32, 0.8, 0.3, 0.7]);
    let all = model(&[1, 1, 4], nodes.clone(), &["box"], constants.clone());
    is(&results(&all, &x)[0], &[3, 1], &[0.0, 3.0, 2.0]);
    let two = model(&[1, 1, 4], nodes, &["y"], constants);
    is(&results(&two, &x)[0], &[2, 1], &[0.0, 3.0]);
    let most = |m| {
        let m = import(m).unwrap();
        let found = m.nodes().find_map(|(_, node)| match &node.op {
            Op::Suppress(s) => Some(s.most),
            _ => None,
        });
        found.unwrap()
    };
    assert_eq!((most(&all), most(&two)), (4, 2));
}

#[test]
fn suppression_chooses_as_many_boxes_as_the_data_say() {
    let boxes: Vec<f32> = (0..4)
        .flat_map(|i| [i, i, i + 1, i + 1])
        .map(|v| v as f32)
        .collect();
    let constants = vec![
        floats("boxes", &[1, 4, 4], &boxes),
        floats("overlap", &[1], &[0.5]),
    ];
    let nodes = vec![
        node("ReduceMax", &["x"], &["top"], vec![int("keepdims", 0)]),
        node("Cast", &["top"], &["most"], vec![int("to", 7)]),
        node(
            "NonMaxSuppression",
            &["boxes", "x", "most", "overlap"],
            &["chosen"],
            vec![],
        ),
    ];
    let file = model(&[1, 2, 4], nodes, &["chosen"], constants);
    let chosen = |scores: [f32; 8]| {
        let x = Tensor::from_slice(&[1, 2, 4], &scores);
        results(&file, &x)[0].clone()
    };
    is(
        &chosen([2.5, 0.8, 0.3, 0.9, 0.1, 0.2, 0.4, 0.3]),
        &[4, 3],
        &[0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 1.0, 2.0, 0.0, 1.0, 3.0],
    );
    is(&chosen([-1.5; 8]), &[0, 3], &[]);
    let all = chosen([9.0; 8]);
    assert_eq!(all.shape(), [8, 3]);
}

#[test]
fn both_branches_of_an_open_condition_are_computed() {
    let branch = |op: &str, inputs: &[&str]| GraphProto {
        name: Some("branch".into()),
        node: vec![node(op, inputs, &["z"], vec![int("axis", 0)])],
        output: vec![undeclared("z")],
        ..Default::default()
    };
    let graph = |name: &str, g| AttributeProto {
        name: Some(name.into()),
        g: Some(g),
        r#type: Some(5),
        ..Default::default()
    };
    let graphs = vec![
        graph("then_branch", branch("Concat", &["x", "x"])),
        graph("else_branch", branch("Concat", &["x"])),
    ];
    let nodes = vec![
        node("ReduceMax", &["x"], &["most"], vec![int("keepdims", 0)]),
        node("Greater", &["most", "one"], &["c"], vec![]),
        node("If", &["c"], &["y"], graphs),
    ];
    let file = model(&[2], nodes, &["y"], vec![floats("one", &[], &[1.0])]);
    let r = results(&file, &Tensor::from_slice(&[2], &[0.0f32, 1.0]));
    is(&r[0], &[2], &[0.0, 1.0]);
    let r = results(&file, &Tensor::from_slice(&[2], &[0.0f32, 3.0]));
    is(&r[0], &[4], &[0.0, 3.0, 0.0, 3.0]);
}

#[test]
fn different_rows_and_columns_are_found() {
    // Rows 0 and 2 are equal, and columns 1 and 3.
    let x = [
        2.0, 1.0, 0.0, 1.0, //
        0.0, 3.0, 5.0, 3.0, //
        2.0, 1.0, 0.0, 1.0,
    ];
    let x = Tensor::from_slice(&[3, 4], &x.map(|v| v as f32));
    let unique = |axis: i64, sorted: i64| {
        let outputs = ["y", "firsts", "inverse", "counts"];
        let attributes = vec![int("axis", axis), int("sorted", sorted)];
        let nodes = vec![node("Unique", &["x"], &outputs, attributes)];
        results(&model(&[3, 4], nodes, &outputs, vec![]), &x)
    };
    let r = unique(0, 1);
    is(&r[0], &[2, 4], &[0., 3., 5., 3., 2., 1., 0., 1.]);
    is(&r[1], &[2], &[1., 0.]);
    is(&r[2], &[3], &[1., 0., 1.]);
    is(&r[3], &[2], &[1., 2.]);
    let r = unique(-1, 0);
    is(&r[0], &[3, 3], &[2., 1., 0., 0., 3., 5., 2., 1., 0.]);
    is(&r[1], &[3], &[0., 1., 2.]);
    is(&r[2], &[4], &[0., 1., 2., 1.]);
    is(&r[3], &[3], &[1., 2., 1.]);
}

/// ONNX Runtime's has them as they come, and no first places.
#[test]
fn different_elements_are_found_as_they_come() {
    let x = Tensor::from_slice(&[5], &[3f32, 1.0, 3.0, 2.0, 1.0]);
    let outputs = ["y", "inverse", "counts"];
    let mut unique = node("Unique", &["x"], &outputs, vec![]);
    unique.domain = Some("com.microsoft".into());
    let mut model = model(&[5], vec![unique], &outputs, vec![]);
    model.opset_import.push(onnx::proto::OperatorSetIdProto {
        domain: Some("com.microsoft".into()),
        version: Some(1),
    });
    let r = results(&model, &x);
    is(&r[0], &[3], &[3., 1., 2.]);
    is(&r[1], &[5], &[0., 1., 0., 2., 1.]);
    is(&r[2], &[3], &[2., 2., 1.]);
}

#[test]
fn a_scalar_has_no_coordinates() {
    for (value, count) in [(0f32, 0), (2.0, 1)] {
        let x = Tensor::from_slice(&[], &[value]);
        let nodes = vec![node("NonZero", &["x"], &["y"], vec![])];
        is(
            &results(&model(&[], nodes, &["y"], vec![]), &x)[0],
            &[0, count],
            &[],
        );
    }
}

/// As an exporter puts regions of several levels together: into zeros, at places that the data
/// choose, with indices spread over what each region has.
#[test]
fn updates_that_are_not_live_change_nothing() {
    let (mut nodes, mut constants) = kept();
    constants.push(int64s("column", &[-1, 1]));
    constants.push(int64s("two", &[2]));
    constants.push(int64s("pair", &[6, 2]));
    constants.push(int64s("minus", &[-1]));
    constants.push(int64s("one_size", &[1]));
    nodes.extend([
        node("Squeeze", &["places"], &["flat"], vec![]),
        node("Reshape", &["flat", "column"], &["rows_of"], vec![]),
        node("Shape", &["flat"], &["count"], vec![]),
        node(
            "Concat",
            &["count", "two"],
            &["shape"],
            vec![int("axis", 0)],
        ),
        // Exporters ask whether a size is -1.
        node("Equal", &["shape", "minus"], &["open"], vec![]),
        node("Where", &["open", "one_size", "shape"], &["known"], vec![]),
        node("Expand", &["rows_of", "known"], &["spread"], vec![]),
        node("Reshape", &["kept", "column"], &["kept_column"], vec![]),
        node("Expand", &["kept_column", "known"], &["updates"], vec![]),
        node("ConstantOfShape", &["pair"], &["zeros"], vec![]),
        node(
            "ScatterElements",
            &["zeros", "spread", "updates"],
            &["y"],
            vec![int("axis", 0)],
        ),
    ]);
    let file = model(&[6], nodes, &["y"], constants);
    let x = Tensor::from_slice(&[6], &[0.0f32, 4.0, 2.0, 0.0, 0.0, 7.0]);
    let r = results(&file, &x);
    let expected = [0., 0., 4., 4., 2., 2., 0., 0., 0., 0., 7., 7.];
    is(&r[0], &[6, 2], &expected);
    let none = results(&file, &Tensor::from_slice(&[6], &[0.0f32; 6]));
    is(&none[0], &[6, 2], &[0.0; 12]);
}
