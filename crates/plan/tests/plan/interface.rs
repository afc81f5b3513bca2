//! A plan takes and gives what the model does, under the model's names: `judge`
//! compares them for every model here and elsewhere.

use crate::build_onnx::{F32, I64, Size, file, import_with, int, known, node, undeclared, value};
use crate::judge::{judge_both, random};
use graph::ops::{Binary, Conv, Op, Reshape, Split, Transpose, Unary};
use graph::{Model, ValueId};
use onnx::ImportOptions;
use onnx::proto::GraphProto;
use plan::TensorKind;
use tensor::{DType, Tensor};

fn named(m: &mut Model, name: &str, op: Op, inputs: &[ValueId]) -> ValueId {
    m.add(name, op, inputs).unwrap()
}

fn relu() -> Op {
    Op::Unary(Unary::Relu)
}

fn conv(m: &mut Model, name: &str, x: ValueId) -> ValueId {
    let w = m.add_constant("w", random(&[8, 8, 1, 1], 1));
    named(m, name, Op::Conv(Conv::unit(2)), &[x, w])
}

/// What is written in blocks and converted, and read by others.
#[test]
fn outputs_in_blocks() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[1, 8, 3, 3]);
    let y = conv(&mut m, "y", x);
    m.add_output(y);
    judge_both(&m);
    let z = named(&mut m, "z", relu(), &[y]);
    let last = conv(&mut m, "last", z);
    for v in [last, z] {
        m.add_output(v);
    }
    let plan = judge_both(&m);
    assert!(plan.conversions > 0, "{plan}");
}

#[test]
fn one_value_under_several_names() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[1, 8, 3, 3]);
    let y = conv(&mut m, "y", x);
    let same = ["first", "second"].map(|name| named(&mut m, name, Op::Identity, &[y]));
    let shape = vec![8, 9];
    let flat = named(&mut m, "flat", Op::Reshape(Reshape { shape }), &[same[0]]);
    for v in [same[0], y, same[1], flat] {
        m.add_output(v);
    }
    let plan = judge_both(&m);
    // Three of the four are the fourth's memory.
    assert_eq!(plan.steps.len() - plan.conversions, 1, "{plan}");
}

#[test]
fn inputs_that_are_outputs_or_are_not_read() {
    let mut m = Model::new("m", 0);
    let names = ["x", "unread", "y"];
    let [x, _, y] = names.map(|name| m.add_input(name, DType::I64, &[2, 3]));
    let same = named(&mut m, "same", Op::Identity, &[x]);
    let shape = vec![6];
    let flat = named(&mut m, "flat", Op::Reshape(Reshape { shape }), &[y]);
    let kept = named(&mut m, "kept", Op::Cast(DType::I64), &[y]);
    for v in [same, y, flat, kept] {
        m.add_output(v);
    }
    let plan = judge_both(&m);
    assert!(plan.steps.is_empty(), "{plan}");
}

#[test]
fn constant_outputs() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[2]);
    let c = m.add_constant("c", Tensor::from_slice(&[2], &[1.0f32, 2.0]));
    let folded = named(&mut m, "folded", Op::Binary(Binary::Add), &[c, c]);
    let again = named(&mut m, "again", Op::Identity, &[folded]);
    // A node may bear the name of another's result.
    let y = named(&mut m, "y", Op::Binary(Binary::Mul), &[x, folded]);
    m.rename(y, "z");
    m.rename(c, "y");
    for v in [again, c, folded, y] {
        m.add_output(v);
    }
    let plan = judge_both(&m);
    let constant = |id: &&plan::PlanTensorId| {
        let root = plan.place(**id).0;
        matches!(plan.tensor(root).kind, TensorKind::Constant(_))
    };
    assert_eq!(plan.outputs.iter().filter(constant).count(), 3, "{plan}");
}

/// Names stay where nodes go, are merged, or change shape.
#[test]
fn outputs_of_nodes_that_are_rewritten() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[2, 3, 4]);
    let w = m.add_constant("w", random(&[4, 4], 2));
    let product = named(&mut m, "product", Op::MatMul, &[x, w]);
    let active = named(&mut m, "active", relu(), &[product]);
    let perm = vec![0, 2, 1];
    let turned = named(
        &mut m,
        "turned",
        Op::Transpose(Transpose { perm: perm.clone() }),
        &[active],
    );
    let back = named(&mut m, "back", Op::Transpose(Transpose { perm }), &[turned]);
    let last = named(&mut m, "last", Op::MatMul, &[back, w]);
    for v in [back, last, product, turned] {
        m.add_output(v);
    }
    judge_both(&m);
}

#[test]
fn types_and_shapes_of_outputs() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F64, &[]);
    let i = m.add_input("i", DType::I64, &[3]);
    let less = named(&mut m, "less", Op::Binary(Binary::Less), &[x, x]);
    let root = named(&mut m, "root", relu(), &[x]);
    let narrow = named(&mut m, "narrow", Op::Cast(DType::I32), &[i]);
    let sizes = vec![0, 3];
    let parts = m.add_node("parts", Op::Split(Split { axis: 0, sizes }), &[Some(i)]);
    let parts = parts.unwrap();
    for v in [less, root, narrow, parts[0], parts[1]] {
        m.add_output(v);
    }
    judge_both(&m);
}

#[test]
fn imported_models() {
    let graph = GraphProto {
        name: Some("g".into()),
        node: vec![
            node("Dropout", &["x"], &["dropped"], vec![]),
            node("Identity", &["x"], &["same"], vec![]),
            node("Relu", &["dropped"], &["active"], vec![]),
            node(
                "Cast",
                &["active"],
                &["cast"],
                vec![int("to", i64::from(F32))],
            ),
            node("Shape", &["x"], &["shape"], vec![]),
        ],
        input: vec![
            value("x", F32, &[Size::Named("N"), Size::Known(2)]),
            known("unread", I64, &[]),
        ],
        output: ["cast", "x", "dropped", "same", "active", "shape"]
            .map(undeclared)
            .to_vec(),
        ..Default::default()
    };
    let options = ImportOptions {
        batch: Some(3),
        ..ImportOptions::default()
    };
    let m = import_with(&file(19, graph), &options).unwrap();
    let names = |all: &[ValueId]| {
        all.iter()
            .map(|v| m[*v].name().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(m.inputs()), ["x", "unread"]);
    assert_eq!(
        names(m.outputs()),
        ["cast", "x", "dropped", "same", "active", "shape"]
    );
    judge_both(&m);
}
