//! Training steps: gradients against finite differences, the optimiser against its definition.

use graph::ops::*;
use graph::{Keep, LABELS, LOSS, Model, NotTrainable, Sgd, ValueId, evaluate, training_step};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

/// A model under construction.
struct Net {
    model: Model,
    seed: u64,
}

impl Net {
    fn new(image: &[usize]) -> (Net, ValueId) {
        let mut model = Model::new("net", 0);
        let x = model.add_input("image", DType::F32, image);
        (Net { model, seed: 1 }, x)
    }

    fn weight(&mut self, name: &str, shape: &[usize], lo: f64, hi: f64) -> ValueId {
        self.seed += 1;
        let fill = Fill::Uniform { lo, hi };
        let t = fill_tensor(DType::F32, shape, fill, self.seed);
        self.model.add_constant(name, t)
    }

    fn add(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let name = op.name();
        self.model.add(name, op, inputs).unwrap()
    }

    fn conv(
        &mut self,
        x: ValueId,
        maps: usize,
        kernel: usize,
        stride: usize,
        pad: usize,
    ) -> ValueId {
        let channels = self.model[x].shape()[1];
        let w = self.weight("w", &[maps, channels, kernel, kernel], -0.5, 0.5);
        let b = self.weight("b", &[maps], -0.2, 0.2);
        let conv = Conv {
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pads: vec![(pad, pad); 2],
            groups: 1,
        };
        self.add(Op::Conv(conv), &[x, w, b])
    }

    fn pool(&mut self, x: ValueId, kernel: usize, stride: usize, pad: usize) -> ValueId {
        let pool = Pool {
            kind: PoolKind::Max { indices: None },
            kernel: vec![kernel; 2],
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pads: vec![(pad, pad); 2],
            ceil_mode: false,
        };
        self.add(Op::Pool(pool), &[x])
    }

    fn batch_norm(&mut self, x: ValueId) -> ValueId {
        let n = [self.model[x].shape()[1]];
        let inputs = [
            x,
            self.weight("scale", &n, 0.8, 1.2),
            self.weight("shift", &n, -0.1, 0.1),
            self.weight("mean", &n, -0.1, 0.1),
            self.weight("variance", &n, 0.8, 1.2),
        ];
        self.add(Op::BatchNorm(BatchNorm { epsilon: 1e-3 }), &inputs)
    }

    fn relu(&mut self, x: ValueId) -> ValueId {
        self.add(Op::Unary(Unary::Relu), &[x])
    }

    fn linear(&mut self, x: ValueId, maps: usize, trans_b: bool) -> ValueId {
        let depth = self.model[x].shape()[1];
        let shape = if trans_b {
            [maps, depth]
        } else {
            [depth, maps]
        };
        let w = self.weight("fc", &shape, -0.5, 0.5);
        let b = self.weight("fc.b", &[maps], -0.2, 0.2);
        let gemm = Gemm {
            alpha: 1.0,
            beta: 1.0,
            trans_a: false,
            trans_b,
        };
        self.add(Op::Gemm(gemm), &[x, w, b])
    }

    fn flatten(&mut self, x: ValueId) -> ValueId {
        let shape = self.model[x].shape();
        let shape = vec![shape[0], shape[1..].iter().product()];
        self.add(Op::Reshape(Reshape { shape }), &[x])
    }

    fn finish(mut self, logits: ValueId) -> Model {
        self.model.add_output(logits);
        self.model
    }
}

/// Convolutions of every kind that VGG and ResNet have, both kinds of pools, and a residual sum.
fn networks() -> Vec<Model> {
    let (mut n, x) = Net::new(&[3, 2, 8, 8]);
    let x = n.conv(x, 4, 3, 1, 1);
    let x = n.relu(x);
    let x = n.pool(x, 2, 2, 0);
    let x = n.flatten(x);
    let x = n.linear(x, 5, true);
    let x = n.relu(x);
    let x = n.linear(x, 4, false);
    let vgg = n.finish(x);

    let (mut n, x) = Net::new(&[2, 3, 9, 9]);
    let x = n.conv(x, 4, 3, 2, 1);
    let x = n.batch_norm(x);
    let x = n.relu(x);
    let x = n.pool(x, 3, 2, 1);
    let y = n.conv(x, 4, 3, 1, 1);
    let y = n.batch_norm(y);
    let x = n.add(Op::Binary(Binary::Add), &[y, x]);
    let x = n.conv(x, 5, 1, 2, 0);
    let mean = Reduce {
        kind: ReduceKind::Mean,
        axes: vec![2, 3],
        keepdims: true,
    };
    let x = n.add(Op::Reduce(mean), &[x]);
    let x = n.flatten(x);
    let x = n.linear(x, 4, true);
    let resnet = n.finish(x);

    // What exporters write for activations and scales.
    let (mut n, x) = Net::new(&[3, 6]);
    let w = n.weight("w", &[6, 5], -0.5, 0.5);
    let x = n.add(Op::MatMul, &[x, w]);
    let gain = n.weight("gain", &[5], 0.5, 1.5);
    let x = n.add(Op::Binary(Binary::Mul), &[x, gain]);
    let x = n.add(Op::Unary(Unary::Tanh), &[x]);
    let by = n.weight("by", &[3, 1], 0.5, 1.5);
    let x = n.add(Op::Binary(Binary::Div), &[x, by]);
    let x = n.add(Op::Transpose(Transpose { perm: vec![1, 0] }), &[x]);
    let x = n.add(Op::Unary(Unary::Sigmoid), &[x]);
    let x = n.add(Op::Transpose(Transpose { perm: vec![1, 0] }), &[x]);
    let elementwise = n.finish(x);
    vec![vgg, resnet, elementwise]
}

/// Values of all inputs: seeded data, labels, and what states begin with.
fn inputs(step: &Model) -> Vec<Arc<Tensor>> {
    let mut all = Vec::new();
    for (i, v) in step.inputs().iter().enumerate() {
        let state = step.states().iter().find(|s| s.input == i);
        all.push(match state {
            Some(s) => s.initial.clone(),
            None if step[*v].name() == LABELS => {
                let n = step[*v].shape()[0];
                let labels: Vec<i64> = (0..n as i64).map(|i| (3 * i + 1) % 2).collect();
                Arc::new(Tensor::from_slice(&[n], &labels))
            }
            None => {
                let fill = Fill::Uniform { lo: -1.0, hi: 1.0 };
                Arc::new(fill_tensor(DType::F32, step[*v].shape(), fill, 9))
            }
        });
    }
    all
}

fn outputs(step: &Model, inputs: &[Arc<Tensor>]) -> HashMap<String, Arc<Tensor>> {
    let found = evaluate(step, inputs, Keep::Outputs).unwrap();
    let names = step.outputs().iter().map(|v| step[*v].name().to_string());
    names.zip(found.results()).collect()
}

fn loss(step: &Model, inputs: &[Arc<Tensor>]) -> f64 {
    outputs(step, inputs)[LOSS].get_f64(0)
}

const PLAIN: Sgd = Sgd {
    learning_rate: 1.0,
    momentum: 0.0,
    weight_decay: 0.0,
};

fn step_of(model: &Model, sgd: Sgd) -> Result<Model, NotTrainable> {
    training_step(model, sgd, 5, &BTreeSet::new())
}

#[test]
fn gradients_are_those_of_finite_differences() {
    for model in networks() {
        let step = step_of(&model, PLAIN).unwrap();
        step.verify().unwrap();
        let at = inputs(&step);
        let next = outputs(&step, &at);
        let mut compared = 0;
        for s in step.states() {
            let v = step.inputs()[s.input];
            let name = step[v].name().to_string();
            // Statistics and velocities have no gradient.
            if ["mean", "variance", "velocity"]
                .iter()
                .any(|n| name.contains(n))
            {
                continue;
            }
            let moved = &next[&format!("{name}.next")];
            for i in (0..s.initial.len()).step_by(1 + s.initial.len() / 7) {
                let value = s.initial.get_f64(i);
                let gradient = value - moved.get_f64(i);
                let by = 3e-3;
                let with = |d: f64| {
                    let mut changed = at.clone();
                    let mut t = (*s.initial).clone();
                    t.set_f64(i, value + d);
                    changed[s.input] = Arc::new(t);
                    loss(&step, &changed)
                };
                let expected = (with(by) - with(-by)) / (2.0 * by);
                let near = (gradient - expected).abs() <= 2e-3 + 0.02 * expected.abs();
                assert!(near, "{name} at {i}: {gradient} and {expected}\n{step}");
                compared += 1;
            }
        }
        assert!(compared >= 10, "{compared}");
    }
}

#[test]
fn the_loss_is_the_mean_cross_entropy() {
    let (mut n, x) = Net::new(&[2, 3]);
    let w = n.weight("w", &[3, 3], 0.0, 1e-30);
    let x = n.add(Op::MatMul, &[x, w]);
    let step = step_of(&n.finish(x), PLAIN).unwrap();
    // Equal logits.
    let found = loss(&step, &inputs(&step));
    assert!((found - 3f64.ln()).abs() < 1e-6, "{found}");
}

#[test]
fn a_weight_moves_as_momentum_and_decay_say() {
    let sgd = Sgd {
        learning_rate: 0.1,
        momentum: 0.9,
        weight_decay: 0.01,
    };
    let model = &networks()[0];
    let plain = step_of(model, PLAIN).unwrap();
    let step = step_of(model, sgd).unwrap();
    let mut at = inputs(&step);
    let mut velocity = 0.0;
    for _ in 0..3 {
        // The gradient at this weight, of the step that has no momentum.
        let named: HashMap<&str, &Arc<Tensor>> = step
            .inputs()
            .iter()
            .map(|v| step[*v].name())
            .zip(&at)
            .collect();
        let of_plain: Vec<Arc<Tensor>> = plain
            .inputs()
            .iter()
            .map(|v| named[plain[*v].name()].clone())
            .collect();
        let weight = named["fc"].get_f64(3);
        let gradient = weight - outputs(&plain, &of_plain)["fc.next"].get_f64(3);
        let next = outputs(&step, &at);
        velocity = 0.9 * velocity + gradient + 0.01 * weight;
        let found = next["fc.next"].get_f64(3);
        assert!((found - (weight - 0.1 * velocity)).abs() < 1e-5);
        for s in step.states() {
            at[s.input] = next[step[step.outputs()[s.output]].name()].clone();
        }
    }
}

#[test]
fn running_statistics_move_to_those_of_the_batch() {
    let (mut n, x) = Net::new(&[4, 2, 1, 1]);
    let x = n.batch_norm(x);
    let x = n.flatten(x);
    let step = step_of(&n.finish(x), PLAIN).unwrap();
    let at = inputs(&step);
    let next = outputs(&step, &at);
    let image: Vec<f64> = (0..4).map(|i| at[0].get_f64(2 * i)).collect();
    let mean = image.iter().sum::<f64>() / 4.0;
    // Of the sample: over 3.
    let variance = image.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 3.0;
    for (name, batch) in [("mean", mean), ("variance", variance)] {
        let input = step.inputs().iter().position(|v| step[*v].name() == name);
        let old = at[input.unwrap()].get_f64(0);
        let found = next[&format!("{name}.next")].get_f64(0);
        assert!((found - (0.9 * old + 0.1 * batch)).abs() < 1e-6, "{name}");
    }
}

#[test]
fn batch_normalisations_that_share_constants_have_states_of_their_own() {
    let (mut n, x) = Net::new(&[4, 2, 3, 3]);
    let ones = n.weight("ones", &[2], 1.0, 1.0 + 1e-9);
    let zeros = n.weight("zeros", &[2], 0.0, 1e-30);
    let norm = || Op::BatchNorm(BatchNorm { epsilon: 1e-3 });
    let x = n.add(norm(), &[x, ones, zeros, zeros, ones]);
    let x = n.add(norm(), &[x, ones, zeros, zeros, ones]);
    let x = n.flatten(x);
    let step = step_of(&n.finish(x), PLAIN).unwrap();
    // Two weights with velocities, and two statistics of each normalisation.
    let inputs: std::collections::BTreeSet<usize> = step.states().iter().map(|s| s.input).collect();
    assert_eq!((step.states().len(), inputs.len()), (8, 8));
}

#[test]
fn what_cannot_be_trained_is_named() {
    let (mut n, x) = Net::new(&[2, 3]);
    let w = n.weight("w", &[3, 4], -1.0, 1.0);
    let x = n.add(Op::MatMul, &[x, w]);
    let x = n.add(Op::Unary(Unary::Floor), &[x]);
    let refused = step_of(&n.finish(x), PLAIN).unwrap_err().to_string();
    assert!(refused.contains("`floor`"), "{refused}");

    let (mut n, x) = Net::new(&[2, 3]);
    let x = n.relu(x);
    let no_weights = step_of(&n.finish(x), PLAIN);
    assert_eq!(no_weights.unwrap_err(), NotTrainable::NoWeights);

    // Of a layer normalisation, the mean reaches the logits.
    let (mut n, x) = Net::new(&[2, 4]);
    let w = n.weight("w", &[2, 4], -1.0, 1.0);
    let x = n.add(Op::Binary(Binary::Mul), &[x, w]);
    let norm = Op::LayerNorm(LayerNorm {
        axis: 1,
        epsilon: 1e-3,
        statistics: true,
    });
    let parts = n.model.add_node("norm", norm, &[Some(x), Some(w)]).unwrap();
    let refused = step_of(&n.finish(parts[1]), PLAIN).unwrap_err().to_string();
    assert!(refused.contains("another output"), "{refused}");

    let (mut n, x) = Net::new(&[2, 3]);
    let w = n.weight(LABELS, &[3, 4], -1.0, 1.0);
    let x = n.add(Op::MatMul, &[x, w]);
    let refused = step_of(&n.finish(x), PLAIN).unwrap_err();
    assert_eq!(refused, NotTrainable::Name { name: LABELS });

    let (mut n, _) = Net::new(&[2, 3]);
    let constant = n.weight("c", &[2, 3], -1.0, 1.0);
    let refused = step_of(&n.finish(constant), PLAIN).unwrap_err();
    assert!(matches!(refused, NotTrainable::Output { .. }), "{refused}");

    let (mut n, x) = Net::new(&[2, 3, 4]);
    let w = n.weight("w", &[4], -1.0, 1.0);
    let x = n.add(Op::Binary(Binary::Mul), &[x, w]);
    let refused = step_of(&n.finish(x), PLAIN).unwrap_err();
    assert!(matches!(refused, NotTrainable::Output { .. }), "{refused}");

    let step = step_of(&networks()[0], PLAIN).unwrap();
    assert_eq!(step_of(&step, PLAIN).unwrap_err(), NotTrainable::States);
}
