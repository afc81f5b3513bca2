//! Functions that a model defines.

mod build_onnx;

use build_onnx::{file, float, import, node, output, undeclared};
use onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
};

fn call(function: &str, inputs: &[&str], outputs: &[&str], a: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        domain: Some("local".into()),
        ..node(function, inputs, outputs, a)
    }
}

fn function(name: &str, inputs: &[&str], outputs: &[&str], nodes: Vec<NodeProto>) -> FunctionProto {
    let names = |all: &[&str]| all.iter().map(|n| n.to_string()).collect();
    FunctionProto {
        name: Some(name.into()),
        domain: Some("local".into()),
        input: names(inputs),
        output: names(outputs),
        node: nodes,
        ..Default::default()
    }
}

fn model(nodes: Vec<NodeProto>, functions: Vec<FunctionProto>) -> ModelProto {
    let mut m = file(
        18,
        GraphProto {
            name: Some("g".into()),
            node: nodes,
            initializer: vec![build_onnx::floats("x", &[3], &[-2.0, 1.0, 3.0])],
            output: vec![undeclared("y")],
            ..Default::default()
        },
    );
    m.opset_import.push(OperatorSetIdProto {
        domain: Some("local".into()),
        version: Some(1),
    });
    m.functions = functions;
    m
}

#[test]
fn calls_nest_and_their_names_do_not_meet() {
    let square = vec![
        node("Mul", &["a", "a"], &["t"], vec![]),
        node("Neg", &["t"], &["b"], vec![]),
    ];
    let twice = vec![
        call("Square", &["a"], &["t"], vec![]),
        call("Square", &["t"], &["b"], vec![]),
    ];
    let functions = vec![
        function("Square", &["a"], &["b"], square),
        function("Twice", &["a"], &["b"], twice),
    ];
    // `t` is a name of the graph, too.
    let nodes = vec![
        call("Twice", &["x"], &["t"], vec![]),
        call("Square", &["x"], &["u"], vec![]),
        node("Add", &["t", "u"], &["y"], vec![]),
    ];
    let (_, y) = output(&model(nodes, functions));
    assert_eq!(y, [-16.0 - 4.0, -1.0 - 1.0, -81.0 - 9.0]);
}

#[test]
fn attributes_are_the_calls_or_the_functions_own() {
    let refers = AttributeProto {
        name: Some("alpha".into()),
        ref_attr_name: Some("slope".into()),
        r#type: Some(1),
        ..Default::default()
    };
    let mut leak = function(
        "Leak",
        &["a"],
        &["b"],
        vec![node("LeakyRelu", &["a"], &["b"], vec![refers])],
    );
    let run = |leak: &FunctionProto, a: Vec<AttributeProto>| {
        output(&model(
            vec![call("Leak", &["x"], &["y"], a)],
            vec![leak.clone()],
        ))
        .1
    };
    assert_eq!(run(&leak, vec![float("slope", 0.5)]), [-1.0, 1.0, 3.0]);
    // Without a value the operator's own default, 0.01, counts.
    assert_eq!(run(&leak, vec![]), [-0.02, 1.0, 3.0]);
    leak.attribute_proto = vec![float("slope", 0.25)];
    assert_eq!(run(&leak, vec![]), [-0.5, 1.0, 3.0]);
}

#[test]
fn an_operand_that_is_given_back_is_a_value_of_its_own() {
    let pass = function("Pass", &["a"], &["a"], vec![]);
    let nodes = vec![
        call("Pass", &["x"], &["p"], vec![]),
        node("Relu", &["p"], &["y"], vec![]),
    ];
    assert_eq!(output(&model(nodes, vec![pass])).1, [0.0, 1.0, 3.0]);
}

#[test]
fn what_never_ends_is_refused() {
    let loops = function(
        "Loops",
        &["a"],
        &["b"],
        vec![call("Loops", &["a"], &["b"], vec![])],
    );
    let calls = || vec![call("Loops", &["x"], &["y"], vec![])];
    let e = import(&model(calls(), vec![loops]))
        .unwrap_err()
        .to_string();
    assert!(e.contains("function `Loops` calls itself"), "{e}");
    // Thirty levels of two calls each are a thousand million nodes.
    let mut functions = vec![function(
        "L0",
        &["a"],
        &["b"],
        vec![node("Relu", &["a"], &["b"], vec![])],
    )];
    for i in 1..30 {
        let below = format!("L{}", i - 1);
        let body = vec![
            call(&below, &["a"], &["t"], vec![]),
            call(&below, &["t"], &["b"], vec![]),
        ];
        functions.push(function(&format!("L{i}"), &["a"], &["b"], body));
    }
    let e = import(&model(vec![call("L29", &["x"], &["y"], vec![])], functions)).unwrap_err();
    assert!(
        e.to_string()
            .contains("bytes when their calls are written out"),
        "{e}"
    );
    let mut other = function(
        "F",
        &["a"],
        &["b"],
        vec![node("Relu", &["a"], &["b"], vec![])],
    );
    other.opset_import.push(OperatorSetIdProto {
        domain: None,
        version: Some(17),
    });
    let e = import(&model(vec![call("F", &["x"], &["y"], vec![])], vec![other])).unwrap_err();
    assert!(
        e.to_string().contains("`F` is written in version 17"),
        "{e}"
    );
}
