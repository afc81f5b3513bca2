//! A small file takes little memory and time: inputs that once took all of it, and the limits
//! that they meet.

mod build_onnx;

use build_onnx::{
    F32, I64, file, import, import_with, int, int64s, ints, known, node, one_node, scalar,
    undeclared,
};
use graph::{Limit, simplify};
use onnx::proto::OperatorSetIdProto;
use onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use onnx::{ImportError, ImportOptions};

fn graph_attribute(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        g: Some(g),
        r#type: Some(5),
        ..Default::default()
    }
}

/// A loop round these nodes.
fn repeated(level: usize, nodes: Vec<NodeProto>, outputs: Vec<ValueInfoProto>) -> NodeProto {
    let named = |name: &str| undeclared(&format!("{name}{level}"));
    let body = GraphProto {
        name: Some("body".into()),
        node: nodes,
        input: vec![named("i"), named("on")],
        output: [vec![named("on")], outputs].concat(),
        ..Default::default()
    };
    node(
        "Loop",
        &["trips", ""],
        &[],
        vec![graph_attribute("body", body)],
    )
}

fn model(nodes: Vec<NodeProto>, trips: i64) -> ModelProto {
    let zero = TensorProto {
        name: Some("zero".into()),
        data_type: Some(F32),
        float_data: vec![0.0],
        ..Default::default()
    };
    let graph = GraphProto {
        name: Some("g".into()),
        node: nodes,
        input: vec![known("x", F32, &[3])],
        output: vec![undeclared("x")],
        initializer: vec![scalar("trips", trips), zero],
        ..Default::default()
    };
    file(16, graph)
}

fn too_large(model: &ModelProto) {
    let error = import(model).unwrap_err();
    assert!(matches!(error, ImportError::TooLarge { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("--limit values=NUMBER"), "{said}");
}

#[test]
fn loops_in_loops_meet_one_limit() {
    // With a node, without one, and with one that is known when the model is read.
    for inner in [
        vec![node("Neg", &["x"], &["y"], vec![])],
        vec![],
        vec![node("Neg", &["zero"], &["y"], vec![])],
    ] {
        let mut nodes = inner;
        for level in 0..3 {
            nodes = vec![repeated(level, nodes, vec![])];
        }
        too_large(&model(nodes, 4000));
    }
    too_large(&model(vec![repeated(0, vec![], vec![])], i64::MAX));
    // Results that take no node count as well.
    let many = vec![undeclared("zero"); 2000];
    too_large(&model(vec![repeated(0, vec![], many)], 100_000));
}

#[test]
fn a_limit_can_be_raised_and_lowered() {
    let add = node("Neg", &["x"], &["y"], vec![]);
    let small = model(vec![repeated(0, vec![add], vec![])], 100);
    import(&small).unwrap();
    let mut options = ImportOptions::default();
    options.limits.set(Limit::Values, 300);
    let error = import_with(&small, &options).unwrap_err().to_string();
    assert!(
        error.contains("the Loop") && error.contains("limit of 300 values"),
        "{error}"
    );
    options.limits.set(Limit::Values, 1000);
    import_with(&small, &options).unwrap();
}

#[test]
fn the_constants_of_a_body_are_made_once() {
    let mut value = scalar("", 0);
    value.dims = vec![100_000];
    value.int64_data = vec![1; 100_000];
    let attribute = AttributeProto {
        name: Some("value".into()),
        t: Some(value.clone()),
        r#type: Some(4),
        ..Default::default()
    };
    let nodes = vec![
        node("Constant", &[], &["c"], vec![attribute]),
        node("Gather", &["x", "c"], &["y"], vec![]),
        node("Gather", &["x", "own"], &["z"], vec![]),
    ];
    let mut looped = repeated(0, nodes, vec![]);
    value.name = Some("own".into());
    looped.attribute[0].g.as_mut().unwrap().initializer = vec![value];
    let m = import(&model(vec![looped], 500)).unwrap();
    let bytes: usize = m.constants().map(|(_, t)| t.bytes().len()).sum();
    assert!(bytes < 4 * 800_000, "{bytes}");
}

#[test]
fn long_names_count() {
    let name = "n".repeat(1 << 20);
    let nodes = vec![NodeProto {
        name: Some(name.clone()),
        ..node("Neg", &["x"], &["y"], vec![])
    }];
    too_large(&model(vec![repeated(0, nodes, vec![])], 4000));
}

#[test]
fn long_sequences_are_not_written_out() {
    let rnn = node("RNN", &["x", "w", "r"], &["y"], vec![int("hidden_size", 1)]);
    let ones = |name: &str| TensorProto {
        name: Some(name.into()),
        dims: vec![1, 1, 1],
        data_type: Some(F32),
        float_data: vec![1.0],
        ..Default::default()
    };
    too_large(&one_node(
        14,
        &[1 << 36, 1, 1],
        rnn,
        vec![ones("w"), ones("r")],
    ));
}

#[test]
fn sizes_beside_a_zero_do_not_overflow() {
    let shape = [1 << 20, 1 << 31, 3, 0];
    let max = node("Max", &["x"], &["y"], vec![]);
    let error = import(&one_node(13, &shape, max, vec![])).unwrap_err();
    assert!(error.to_string().contains("has shape"), "{error}");
    let empty = TensorProto {
        name: Some("c".into()),
        dims: shape.to_vec(),
        data_type: Some(F32),
        ..Default::default()
    };
    let constant = node("Max", &["c"], &["y"], vec![]);
    let error = import(&one_node(13, &[1], constant, vec![empty])).unwrap_err();
    assert!(error.to_string().contains("dimensions"), "{error}");
}

#[test]
fn a_bias_without_axes_is_refused() {
    let mut attention = node(
        "MultiHeadAttention",
        &["x", "x", "x", "bias"],
        &["y"],
        vec![int("num_heads", 1)],
    );
    attention.domain = Some("com.microsoft".into());
    let bias = TensorProto {
        name: Some("bias".into()),
        data_type: Some(F32),
        float_data: vec![0.0],
        ..Default::default()
    };
    let mut model = one_node(17, &[1, 4, 4], attention, vec![bias]);
    model.opset_import.push(OperatorSetIdProto {
        domain: Some("com.microsoft".into()),
        version: Some(1),
    });
    let error = import(&model).unwrap_err();
    assert!(error.to_string().contains("outside rank 0"), "{error}");
}

/// Refused, or imported without what it asks for.
fn cheap(opset: i64, dtype: i32, shape: &[i64], node: NodeProto, constants: Vec<TensorProto>) {
    let mut model = one_node(opset, shape, node, constants);
    model.graph.as_mut().unwrap().input[0] = known("x", dtype, shape);
    if let Ok(m) = import(&model) {
        simplify(&m);
    }
}

#[test]
fn sizes_do_not_become_memory() {
    let far = 1i64 << 34;
    // Positions along an axis.
    cheap(
        14,
        F32,
        &[far, 2],
        node("Trilu", &["x"], &["y"], vec![]),
        vec![],
    );
    cheap(
        13,
        F32,
        &[far],
        node("Hardmax", &["x"], &["y"], vec![int("axis", 0)]),
        vec![],
    );
    let values = TensorProto {
        name: Some("values".into()),
        dims: vec![2],
        data_type: Some(F32),
        float_data: vec![0.0, 1.0],
        ..Default::default()
    };
    let one_hot = node("OneHot", &["x", "depth", "values"], &["y"], vec![]);
    cheap(13, I64, &[2], one_hot, vec![scalar("depth", far), values]);
    cheap(
        13,
        F32,
        &[1 << 18, 1 << 18],
        node("EyeLike", &["x"], &["y"], vec![]),
        vec![],
    );
    // A grid whose number of points overflows.
    let size = int64s("size", &[1, 1, 1 << 40, 1 << 40]);
    let grid = node("AffineGrid", &["x", "size"], &["y"], vec![]);
    cheap(20, F32, &[1, 2, 3], grid, vec![size]);
    // Columns of very many channels, and windows whose number of elements overflows.
    let columns = vec![int64s("image", &[1]), int64s("block", &[1])];
    let col2im = node("Col2Im", &["x", "image", "block"], &["y"], vec![]);
    cheap(18, F32, &[1, far, 1], col2im.clone(), columns);
    let beyond = [1 << 19; 4];
    let columns = vec![int64s("image", &beyond), int64s("block", &beyond)];
    cheap(18, F32, &[1, 4, 1], col2im, columns);
    // An image whose number of elements overflows.
    let shape = [1, 1, 2, 2, 2, 2];
    let places = TensorProto {
        dims: shape.to_vec(),
        ..int64s("places", &[0; 16])
    };
    let windows = vec![ints("kernel_shape", &[1; 4]), ints("strides", &beyond)];
    let unpool = node("MaxUnpool", &["x", "places"], &["y"], windows);
    cheap(18, F32, &shape, unpool, vec![places]);
    // One value for very many channels.
    let two = TensorProto {
        name: Some("two".into()),
        data_type: Some(F32),
        float_data: vec![2.0],
        ..Default::default()
    };
    cheap(
        14,
        F32,
        &[1, far],
        node("Mul", &["x", "two"], &["y"], vec![]),
        vec![two],
    );
    let bounds = vec![scalar("a", 0), scalar("b", i64::MAX), scalar("d", 1)];
    cheap(
        11,
        F32,
        &[1],
        node("Range", &["a", "b", "d"], &["y"], vec![]),
        bounds,
    );
    let window = node("HannWindow", &["size"], &["y"], vec![]);
    cheap(17, F32, &[1], window, vec![scalar("size", 1 << 40)]);
}
