//! The graph's own promises: names, order, rewriting, dead code.

use graph::ops::{Binary, Op, Reshape, Unary};
use graph::{Keep, Model, Origin, ValueId, evaluate};
use std::convert::Infallible;
use std::sync::Arc;
use tensor::{DType, Tensor};

const RELU: Op = Op::Unary(Unary::Relu);
const NEG: Op = Op::Unary(Unary::Neg);

/// x -> neg -> relu -> y, with a dead node and a dead constant.
fn small() -> (Model, [ValueId; 3]) {
    let mut m = Model::new("small", 0);
    let x = m.add_input("x", DType::F32, &[2]);
    let n = m.add("n", NEG, &[x]).unwrap();
    let dead = m.add_constant("unused", Tensor::from_slice(&[1], &[1.0f32]));
    m.add("dead", Op::Binary(Binary::Add), &[n, dead]).unwrap();
    let y = m.add("y", RELU, &[n]).unwrap();
    m.add_output(y);
    m.verify().unwrap();
    (m, [x, n, y])
}

#[test]
fn names_are_unique_and_found() {
    let mut m = Model::new("m", 0);
    let a = m.add_input("a", DType::F32, &[1]);
    let b = m.add("a", RELU, &[a]).unwrap();
    assert_eq!((m[a].name(), m[b].name()), ("a", "a_1"));
    m.rename(b, "b");
    assert_eq!((m.find_value("b"), m.find_value("a_1")), (Some(b), None));
    m.rename(b, "a");
    assert_eq!(m[b].name(), "a_1");
    m.add_output(b);
    m.verify().unwrap();
}

#[test]
fn a_refused_node_changes_nothing() {
    let (mut m, [x, ..]) = small();
    let before = m.to_string();
    let error = m
        .add("bad", Op::Reshape(Reshape { shape: vec![3] }), &[x])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "node `bad` (reshape): f32[2] has not as many elements as shape [3]"
    );
    assert_eq!(m.to_string(), before);
}

#[test]
fn users_and_producers() {
    let (m, [x, n, y]) = small();
    let users = m.users();
    assert_eq!(users.of(x).len(), 1);
    assert_eq!(users.of(n).len(), 2);
    assert_eq!(users.sole(x), m.find_node("n"));
    assert_eq!(users.sole(n), None);
    assert_eq!(users.sole(y), None);
    assert!(users.is_output(y));
    assert_eq!(m.producer(n), m.find_node("n").map(|id| (id, 0)));
    assert!(matches!(m[x].origin(), Origin::Input(0)));
}

#[test]
fn dead_code_goes_and_the_signature_stays() {
    let (m, _) = small();
    let clean = m.without_dead_code();
    clean.verify().unwrap();
    assert_eq!(clean.nodes().len(), 2);
    assert_eq!(clean.constants().count(), 0);
    assert_eq!(clean.inputs().len(), 1);
    assert_eq!(clean[clean.outputs()[0]].name(), "y");
}

#[test]
fn rewriting_keeps_output_names_and_separates_outputs() {
    // Two outputs that become one value, and one that becomes the input.
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[2]);
    let r = m.add("r", RELU, &[x]).unwrap();
    let a = m.add("a", Op::Identity, &[r]).unwrap();
    let b = m.add("b", Op::Identity, &[r]).unwrap();
    let c = m.add("c", Op::Identity, &[x]).unwrap();
    [a, b, c].into_iter().for_each(|v| m.add_output(v));
    let rewritten = m
        .rewrite(|r, _, node| {
            Ok::<_, Infallible>(match node.op {
                Op::Identity => vec![r.value(node.inputs[0].unwrap())],
                _ => r.copy(node),
            })
        })
        .unwrap();
    rewritten.verify().unwrap();
    let names: Vec<_> = rewritten
        .outputs()
        .iter()
        .map(|v| rewritten[*v].name())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(rewritten[rewritten.inputs()[0]].name(), "x");
    let input = [Arc::new(Tensor::from_slice(&[2], &[-1.0f32, 1.0]))];
    let outputs = |m: &Model| evaluate(m, &input, Keep::Outputs).unwrap().outputs();
    assert_eq!(outputs(&rewritten), outputs(&m));
}

#[test]
fn an_output_takes_its_name_from_a_temporary() {
    // The node that replaces `a` is named like the output `y`.
    let (m, _) = small();
    let rewritten = m
        .rewrite(|r, _, node| {
            let inputs = r.operands(node);
            if node.name == "n" {
                let twice = r.target.add_node("y", NEG, &inputs).unwrap();
                return Ok::<_, Infallible>(
                    r.target.add_node("z", RELU, &[Some(twice[0])]).unwrap(),
                );
            }
            Ok(r.copy(node))
        })
        .unwrap();
    rewritten.verify().unwrap();
    assert_eq!(rewritten[rewritten.outputs()[0]].name(), "y");
}

#[test]
fn evaluation_checks_inputs_and_keeps_what_is_asked() {
    let (m, [_, n, y]) = small();
    let x = Arc::new(Tensor::from_slice(&[2], &[-1.0f32, 1.0]));
    let all = evaluate(&m, std::slice::from_ref(&x), Keep::All).unwrap();
    assert_eq!(all.get(n).unwrap().as_slice::<f32>(), [1.0, -1.0]);
    let outputs = evaluate(&m, &[x], Keep::Outputs).unwrap();
    assert!(outputs.get(n).is_none());
    assert_eq!(outputs.get(y).unwrap().as_slice::<f32>(), [1.0, 0.0]);
    let error = evaluate(&m, &[], Keep::All).unwrap_err().to_string();
    assert_eq!(error, "the model takes 1 inputs (x) and 0 are given");
    let wrong = Arc::new(Tensor::from_slice(&[1], &[1i32]));
    let error = evaluate(&m, &[wrong], Keep::All).unwrap_err().to_string();
    assert_eq!(error, "input `x` is f32[2] and a tensor i32[1] is given");
}
