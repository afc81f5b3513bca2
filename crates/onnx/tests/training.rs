//! Files that are exported in training mode: what a training step keeps of them, and what inference refuses.

mod build_onnx;

use build_onnx::{floats, import, import_with, int, node, one_node, proto};
use graph::ops::Dropout;
use graph::{Op, Origin, Sgd, training_step};
use onnx::proto::{AttributeProto, ModelProto, TensorProto};
use onnx::{BoundModel, ImportOptions, ModelFile};
use prost::Message;
use std::collections::BTreeSet;
use tensor::Tensor;

const SGD: Sgd = Sgd {
    learning_rate: 0.1,
    momentum: 0.0,
    weight_decay: 0.0,
};

/// For a training step.
fn training() -> ImportOptions {
    ImportOptions {
        training: true,
        ..ImportOptions::default()
    }
}

fn dropout(outputs: &[&str]) -> ModelProto {
    let active = TensorProto {
        name: Some("active".into()),
        dims: vec![],
        data_type: Some(9),
        raw_data: Some(vec![1].into()),
        ..Default::default()
    };
    let ratio = floats("ratio", &[], &[0.25]);
    let node = node("Dropout", &["x", "ratio", "active"], outputs, vec![]);
    one_node(13, &[2, 3], node, vec![ratio, active])
}

#[test]
fn active_dropouts_are_for_training_steps() {
    let error = import(&dropout(&["y"])).unwrap_err().to_string();
    assert!(error.contains("it is in training mode"), "{error}");
    let model = import_with(&dropout(&["y"]), &training()).unwrap();
    let ops: Vec<&Op> = model.nodes().map(|(_, n)| &n.op).collect();
    assert_eq!(ops, [&Op::Dropout(Dropout { ratio: 0.25 })]);
    let mut masked = dropout(&["y", "mask"]);
    let error = import_with(&masked, &training()).unwrap_err();
    assert!(error.to_string().contains("its mask is read"), "{error}");
    masked.graph.as_mut().unwrap().output.truncate(1);
    assert!(import_with(&masked, &training()).is_ok());
}

#[test]
fn a_step_moves_the_statistics_that_a_file_gives() {
    let names = ["scale", "shift", "mean", "variance"];
    let each = |name: &&str| proto(name, &Tensor::from_slice(&[2], &[1.0f32, 2.0]));
    let mode = vec![int("training_mode", 1)];
    let inputs = [&["x"], &names[..]].concat();
    let mut file = one_node(
        15,
        &[4, 2],
        node("BatchNormalization", &inputs, &["y", "m", "v"], mode),
        names.iter().map(each).collect(),
    );
    // Exporters name the moved statistics, and nothing reads them.
    file.graph.as_mut().unwrap().output.truncate(1);
    let model = import_with(&file, &training()).unwrap();
    let norm = model
        .nodes()
        .find(|(_, n)| matches!(n.op, Op::BatchNorm(_)));
    for v in &norm.unwrap().1.inputs[3..] {
        let origin = model[v.unwrap()].origin();
        assert!(matches!(origin, Origin::Constant(_)), "{origin:?}");
    }
    let step = training_step(&model, SGD, 0, &BTreeSet::new()).unwrap();
    let state = |s: &graph::State| step[step.inputs()[s.input]].name().to_string();
    let states: Vec<String> = step.states().iter().map(state).collect();
    let expected = [
        "scale",
        "scale.velocity",
        "shift",
        "shift.velocity",
        "mean",
        "variance",
    ];
    assert_eq!(states, expected);
}

/// What inference computes of weights once, a training step computes of those that it has.
#[test]
fn nothing_is_computed_of_weights_before_a_training_step() {
    let weight = floats("w", &[1, 2], &[1.0, 2.0]);
    let repeated = || TensorProto {
        name: Some("shape".into()),
        dims: vec![2],
        data_type: Some(7),
        int64_data: vec![3, 2],
        ..Default::default()
    };
    let expand = node("Expand", &["w", "shape"], &["y"], vec![]);
    let of_weight = one_node(13, &[1], expand, vec![weight, repeated()]);
    let fill = node("ConstantOfShape", &["shape"], &["y"], vec![]);
    let of_no_weight = one_node(13, &[1], fill, vec![repeated()]);
    for (file, trained) in [(of_weight, vec!["expand"]), (of_no_weight, vec![])] {
        let nodes = |m: graph::Model| m.nodes().map(|(_, n)| n.op.name()).collect::<Vec<_>>();
        assert_eq!(nodes(import(&file).unwrap()), [""; 0]);
        assert_eq!(nodes(import_with(&file, &training()).unwrap()), trained);
    }
}

/// Exporters write a state to begin with, or a table, as a node.
#[test]
fn constants_of_nodes_are_no_parameters() {
    let weight = floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let mut file = one_node(
        13,
        &[3, 2],
        node("Add", &["product", "offset"], &["y"], vec![]),
        vec![weight],
    );
    let offset = AttributeProto {
        name: Some("value".into()),
        r#type: Some(4),
        t: Some(floats("", &[1, 2], &[0.0, 0.0])),
        ..Default::default()
    };
    let before = [
        node("Constant", &[], &["offset"], vec![offset]),
        node("MatMul", &["x", "w"], &["product"], vec![]),
    ];
    file.graph.as_mut().unwrap().node.splice(0..0, before);
    let bound = |options: &ImportOptions| {
        let file = ModelFile::read(&file.encode_to_vec()).unwrap();
        file.import(options).unwrap()
    };
    assert!(bound(&ImportOptions::default()).untrained.is_empty());
    let BoundModel {
        model, untrained, ..
    } = bound(&training());
    assert_eq!(Vec::from_iter(&untrained), ["offset"]);
    let step = training_step(&model, SGD, 0, &untrained).unwrap();
    let states = step.states().iter();
    let states = states.map(|s| step[step.inputs()[s.input]].name());
    assert_eq!(Vec::from_iter(states), ["w", "w.velocity"]);
}
