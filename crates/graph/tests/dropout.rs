//! Dropout in training steps: how much is dropped, and that masks depend on nothing but seed, layer and step.

use graph::ops::*;
use graph::{Keep, LABELS, Model, Sgd, State, evaluate, training_step};
use std::collections::BTreeSet;
use std::sync::Arc;
use tensor::{DType, Tensor};

const SGD: Sgd = Sgd {
    learning_rate: 0.0,
    momentum: 0.0,
    weight_decay: 0.0,
};

/// A step whose logits are two dropouts of ones, one after the other.
fn step(ratio: f32, seed: u64) -> Model {
    let mut model = Model::new("net", 0);
    let x = model.add_input("x", DType::F32, &[400, 500]);
    let one = Tensor::from_slice(&[1], &[1.0f32]);
    let weight = model.add_constant("weight", one);
    let x = model
        .add("scaled", Op::Binary(Binary::Mul), &[x, weight])
        .unwrap();
    let dropout = || Op::Dropout(Dropout { ratio });
    let x = model.add("first", dropout(), &[x]).unwrap();
    let x = model.add("second", dropout(), &[x]).unwrap();
    model.add_output(x);
    training_step(&model, SGD, seed, &BTreeSet::new()).unwrap()
}

/// Masks of both layers in some steps.
fn masks(step: &Model, steps: usize) -> Vec<[Vec<f64>; 2]> {
    let initial = |i: usize| step.states().iter().find(|s: &&State| s.input == i);
    let mut at: Vec<Arc<Tensor>> = (step.inputs().iter().enumerate())
        .map(|(i, v)| match (initial(i), step[*v].name()) {
            (Some(s), _) => s.initial.clone(),
            (None, LABELS) => Arc::new(Tensor::zeros(DType::I64, &[400])),
            (None, _) => Arc::new(Tensor::from_slice(&[400, 500], &[1.0f32; 200_000])),
        })
        .collect();
    let mut all = Vec::new();
    for _ in 0..steps {
        let found = evaluate(step, &at, Keep::All).unwrap();
        let mask = |name: &str| {
            let t = found.get(step.find_value(name).unwrap()).unwrap();
            (0..t.len()).map(|i| t.get_f64(i)).collect()
        };
        all.push([mask("first.mask"), mask("second.mask")]);
        let results = found.results();
        for s in step.states() {
            at[s.input] = results[s.output].clone();
        }
    }
    all
}

/// Share of elements at which both masks keep or both drop.
fn agreement(a: &[f64], b: &[f64]) -> f64 {
    let equal = a.iter().zip(b).filter(|(a, b)| a == b).count();
    equal as f64 / a.len() as f64
}

#[test]
fn the_share_of_the_ratio_is_dropped_and_the_mean_stays() {
    for ratio in [0.2f32, 0.5, 0.9] {
        for mask in &masks(&step(ratio, 3), 1)[0] {
            let dropped = mask.iter().filter(|m| **m == 0.0).count() as f64 / mask.len() as f64;
            // Six standard deviations of 200,000 draws.
            assert!((dropped - f64::from(ratio)).abs() < 0.007, "{dropped}");
            let kept = 1.0 / (1.0 - ratio);
            assert!(mask.iter().all(|m| *m == 0.0 || *m == f64::from(kept)));
        }
    }
    let all = &masks(&step(0.0, 3), 1)[0];
    assert!(all.iter().flatten().all(|m| *m == 1.0));
}

#[test]
fn masks_depend_on_seed_layer_step_and_position() {
    let first = masks(&step(0.5, 3), 2);
    assert_eq!(first, masks(&step(0.5, 3), 2));
    let other = masks(&step(0.5, 4), 1);
    let [a, b] = &first[0];
    let neighbours = |by: usize| agreement(&a[by..], &a[..a.len() - by]);
    for share in [
        agreement(a, b),
        agreement(a, &first[1][0]),
        agreement(a, &other[0][0]),
        neighbours(1),
        neighbours(500),
    ] {
        assert!((share - 0.5).abs() < 0.007, "{share}");
    }
}

#[test]
fn a_model_for_inference_passes_through() {
    let mut model = Model::new("net", 0);
    let x = model.add_input("x", DType::F32, &[3]);
    let dropout = Op::Dropout(Dropout { ratio: 0.5 });
    let y = model.add("drop", dropout, &[x]).unwrap();
    let y = model.add("relu", Op::Unary(Unary::Relu), &[y]).unwrap();
    model.add_output(y);
    let t = Arc::new(Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]));
    let found = evaluate(&model, std::slice::from_ref(&t), Keep::Outputs).unwrap();
    assert_eq!(found.results()[0], t);
    assert_eq!(graph::simplify(&model).nodes().count(), 1);
    let all = Op::Dropout(Dropout { ratio: 1.0 });
    let error = model.add("all", all, &[x]).unwrap_err().to_string();
    assert!(error.contains("a ratio of 1 is not in [0, 1)"), "{error}");
}
