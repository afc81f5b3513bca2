//! Nodes that stand in front of those whose results they read.

mod build_onnx;

use build_onnx::{file, floats, import, int, node, outputs, undeclared};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto};

fn model(node: Vec<NodeProto>) -> ModelProto {
    let graph = GraphProto {
        node,
        output: vec![undeclared("y")],
        initializer: vec![floats("c", &[2], &[3.0, -5.0])],
        ..Default::default()
    };
    file(17, graph)
}

fn values(model: &ModelProto) -> Vec<f64> {
    build_onnx::floats_of(&outputs(model)[0])
}

fn chain() -> [NodeProto; 4] {
    [
        node("Neg", &["c"], &["a"], vec![]),
        node("Relu", &["a"], &["b"], vec![]),
        node("Add", &["b", "a"], &["d"], vec![]),
        node("Mul", &["d", "c"], &["y"], vec![]),
    ]
}

#[test]
fn nodes_are_sorted() {
    // -c is [-3, 5], with its positive part [-3, 10], times c [-9, -50].
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 3, 0], [2, 0, 3, 1]] {
        let all = chain();
        let m = model(order.iter().map(|i| all[*i].clone()).collect());
        assert_eq!(values(&m), [-9.0, -50.0], "{order:?}");
    }
}

#[test]
fn what_the_graphs_of_nodes_read_is_made_first() {
    let branch = |nodes: Vec<NodeProto>| GraphProto {
        node: nodes,
        output: vec![undeclared("r")],
        ..Default::default()
    };
    let graph = |name: &str, g: GraphProto| AttributeProto {
        name: Some(name.into()),
        g: Some(g),
        r#type: Some(5),
        ..Default::default()
    };
    // The name `a` of the other branch is its own, and hides the outer one.
    let yes = branch(vec![
        node("Mul", &["q", "a"], &["r"], vec![]),
        node("Abs", &["a"], &["q"], vec![]),
    ]);
    let no = branch(vec![
        node("Relu", &["y0"], &["a"], vec![]),
        node("Neg", &["a"], &["r"], vec![]),
    ]);
    let attributes = vec![graph("then_branch", yes), graph("else_branch", no)];
    let m = model(vec![
        node("If", &["is"], &["y"], attributes),
        node("Neg", &["c"], &["a"], vec![]),
        node("ReduceMax", &["c"], &["most"], vec![int("keepdims", 0)]),
        node("Cast", &["most"], &["is"], vec![int("to", 9)]),
        node("Abs", &["c"], &["y0"], vec![]),
    ]);
    assert_eq!(values(&m), [-9.0, 25.0]);
}

#[test]
fn a_circle_is_named() {
    let mut nodes = chain();
    nodes[0].input[0] = "d".into();
    let said = import(&model(nodes.to_vec())).unwrap_err().to_string();
    assert!(
        said.contains("reads `d`, which nothing before it makes"),
        "{said}"
    );
}
