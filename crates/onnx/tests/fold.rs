//! How much the computation of constants may take, whatever a file asks for.

mod build_onnx;

use build_onnx::{F32, import, int, int64s, node, one_node, undeclared};
use graph::{Model, simplify};
use onnx::proto::{ModelProto, NodeProto, TensorProto};
use prost::Message;

/// Adds nodes of constants in front of y = x + `last`.
fn model(nodes: Vec<NodeProto>, last: &str, constants: Vec<TensorProto>) -> ModelProto {
    let mut m = one_node(
        13,
        &[1],
        node("Add", &["x", last], &["y"], vec![]),
        constants,
    );
    let graph = m.graph.as_mut().unwrap();
    graph.node.splice(0..0, nodes);
    m
}

fn constant_bytes(m: &Model) -> usize {
    m.constants().map(|(_, t)| t.bytes().len()).sum()
}

fn scalar(name: &str) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![1],
        data_type: Some(F32),
        float_data: vec![1.0],
        ..Default::default()
    }
}

/// Node by node, `step` makes `v{i + 1}` from `v{i}`.
fn chain(length: usize, step: impl Fn(&str, &str) -> NodeProto) -> Vec<NodeProto> {
    let name = |i: usize| format!("v{i}");
    (0..length).map(|i| step(&name(i), &name(i + 1))).collect()
}

#[test]
fn chains_that_double_stop() {
    let concat = |x: &str, y: &str| node("Concat", &[x, x], &[y], vec![int("axis", 0)]);
    let tile = |x: &str, y: &str| node("Tile", &[x, "two"], &[y], vec![]);
    for nodes in [chain(33, concat), chain(33, tile)] {
        let proto = model(nodes, "v33", vec![scalar("v0"), int64s("two", &[2])]);
        assert!(proto.encode_to_vec().len() < 4096);
        let m = import(&proto).unwrap();
        m.verify().unwrap();
        assert_eq!(m[m.outputs()[0]].shape(), [1 << 33]);
        let s = simplify(&m);
        for m in [&m, &s] {
            assert!(constant_bytes(m) <= 64 << 20, "{}", constant_bytes(m));
        }
        assert!(s.nodes().len() > 1);
    }
}

#[test]
fn many_results_share_one_allowance() {
    let sizes = int64s("sizes", &[1 << 22]);
    let mut nodes: Vec<_> = (0..100)
        .map(|i| node("ConstantOfShape", &["sizes"], &[&*format!("c{i}")], vec![]))
        .collect();
    let operands: Vec<_> = (0..100).map(|i| format!("c{i}")).collect();
    let operands: Vec<_> = operands.iter().map(String::as_str).collect();
    nodes.push(node("Concat", &operands, &["all"], vec![int("axis", 0)]));
    let mut proto = model(nodes, "all", vec![sizes]);
    let outputs = operands.iter().map(|o| undeclared(o));
    proto.graph.as_mut().unwrap().output.extend(outputs);
    let m = import(&proto).unwrap();
    let s = simplify(&m);
    for m in [&m, &s] {
        assert!(constant_bytes(m) <= 256 << 20, "{}", constant_bytes(m));
        assert!(m.nodes().len() > 50);
    }
}

#[test]
fn products_that_take_long_are_left() {
    let side = 1 << 12;
    let size = int64s("size", &[side, side]);
    let nodes = vec![
        node("ConstantOfShape", &["size"], &["a"], vec![]),
        node("MatMul", &["a", "a"], &["b"], vec![]),
    ];
    let s = simplify(&import(&model(nodes, "b", vec![size])).unwrap());
    assert!(s.nodes().any(|(_, n)| n.op == graph::Op::MatMul));
}

/// The weights of a model may all change their form, several times.
#[test]
fn weights_are_folded_whole() {
    let rows = 1 << 12;
    let weights = TensorProto {
        name: Some("w".into()),
        dims: vec![rows, 64],
        data_type: Some(3),
        raw_data: Some(vec![1; rows as usize * 64].into()),
        ..Default::default()
    };
    let nodes = vec![
        node("DequantizeLinear", &["w", "scale"], &["f"], vec![]),
        node("Transpose", &["f"], &["t"], vec![]),
    ];
    let mut scale = scalar("scale");
    scale.dims.clear();
    // Bytes are not dequantised before products of them are recognised.
    let m = simplify(&import(&model(nodes, "t", vec![weights, scale])).unwrap());
    assert_eq!(m.nodes().len(), 1);
    // What they were before is gone.
    assert_eq!(constant_bytes(&m), rows as usize * 64 * 4);
}

#[test]
fn shapes_do_not_come_from_what_is_too_much() {
    let nodes = vec![
        node("ConstantOfShape", &["sizes"], &["long"], vec![]),
        node("ReduceProd", &["long"], &["size"], vec![int("keepdims", 1)]),
        node("Cast", &["size"], &["shape"], vec![int("to", 7)]),
        node("ConstantOfShape", &["shape"], &["c"], vec![]),
    ];
    let proto = model(nodes, "c", vec![int64s("sizes", &[1 << 32])]);
    let error = import(&proto).unwrap_err().to_string();
    assert!(
        error.contains("node `the ConstantOfShape` (ConstantOfShape): its shape comes from `shape`, which is too much"),
        "{error}"
    );
    let range = node("Range", &["a", "b", "a"], &["c"], vec![]);
    let single = |name: &str, v: i64| TensorProto {
        dims: vec![],
        ..int64s(name, &[v])
    };
    let proto = model(vec![range], "c", vec![single("a", 1), single("b", 1 << 30)]);
    let error = import(&proto).unwrap_err().to_string();
    assert!(
        error.contains("beyond the limit of 268435456 bytes of constants computed"),
        "{error}"
    );
}
