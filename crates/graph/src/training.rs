//! A training step as a model: forward, loss, gradients in reverse, and the optimiser's update.
//!
//! Promises that the step is made of the operators that any model has, so that it is planned, tuned and compiled
//! like one. Its weights are states: inputs that keep from one inference to the next what an output gave
//! ([`crate::State`]).

mod dropout;
mod gradient;
mod normalisation;
mod update;

use crate::model::{Model, ModelError, Node, Origin, TensorType, ValueId};
use crate::ops::{Binary, GatherElements, Op, Reduce, ReduceKind, Reshape, Unary};
use dropout::Masks;
use gradient::{Gradients, Normalised};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tensor::{DType, Tensor};
use thiserror::Error;

/// Stochastic gradient descent with momentum, as PyTorch has it: the velocity is `momentum * velocity +
/// gradient`, and the weight loses `learning_rate * velocity`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    pub learning_rate: f32,
    pub momentum: f32,
    /// Times the weight, added to the gradient.
    pub weight_decay: f32,
}

/// The input of a training step that has the class of each row of a batch, i64 [N].
pub const LABELS: &str = "labels";
/// The output that has the mean cross-entropy of a batch, f32 [].
pub const LOSS: &str = "loss";
/// The output that has the logits of a batch before the update, f32 [N,classes].
pub const LOGITS: &str = "logits";

/// Behind the name of a convolution and a dot: the nodes of the gradients of its data and of its weights.
pub const DATA_GRADIENT: &str = "dx";
pub const WEIGHT_GRADIENT: &str = "taps";

/// Why a model has no training step.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum NotTrainable {
    #[error("{0}")]
    Model(#[from] ModelError),
    #[error("node `{node}`: {op} has no gradient here{why}")]
    Operator {
        node: String,
        op: &'static str,
        why: String,
    },
    #[error(
        "the first output is {found}; training takes f32[N,classes], which softmax and cross-entropy are computed of"
    )]
    Output { found: String },
    #[error(
        "the first output depends on no weight that is trained: on no f32 constant with axes, or on none that may change"
    )]
    NoWeights,
    #[error(
        "the model has an input or a weight `{name}`, which a training step has itself; rename it"
    )]
    Name { name: &'static str },
    #[error(
        "the model has states already; give the model that is to be trained, not a training step"
    )]
    States,
}

/// The training step of a classifier whose first output is logits [N,classes]: softmax with
/// cross-entropy of the mean over the batch, and an update of the f32 constants that have axes, but for those that are
/// named in `untrained`.
///
/// The step has the inputs of the model and [`LABELS`], and then its states: a weight and its velocity by the
/// name of the constant. Its first outputs are [`LOSS`] and [`LOGITS`]. Batch normalisations take the statistics of the batch, and
/// their running statistics are states as well. Dropouts drop other elements in each step, by the seed and by the
/// number of the step, which is a state; equal seeds give equal steps.
///
/// # Errors
/// If an operator on the way from a weight to the logits has no gradient here.
pub fn training_step(
    forward: &Model,
    sgd: Sgd,
    seed: u64,
    untrained: &BTreeSet<String>,
) -> Result<Model, NotTrainable> {
    if !forward.states().is_empty() {
        return Err(NotTrainable::States);
    }
    for name in [LABELS, LOSS, LOGITS] {
        let own = forward.find_value(name).map(|v| forward[v].origin());
        if matches!(own, Some(Origin::Input(_) | Origin::Constant(_))) {
            return Err(NotTrainable::Name { name });
        }
    }
    let forward = &forward.without_dead_code();
    let mut step = Step::new(forward, seed);
    step.forward(forward, untrained)?;
    let first = forward.outputs().first();
    let logits = first.and_then(|v| step.map.get(v).copied());
    let ty = logits.map(|v| step.model[v].ty().clone());
    let fits = |t: &TensorType| t.dtype == DType::F32 && t.rank() == 2 && !t.is_empty();
    let Some(logits) = logits.filter(|_| ty.as_ref().is_some_and(fits)) else {
        let found = ty.map_or("computed from no input".into(), |t| t.to_string());
        return Err(NotTrainable::Output { found });
    };
    let (loss, seed) = step.cross_entropy(logits)?;
    let nodes: Vec<Node> = step.model.nodes().map(|(_, n)| n.clone()).collect();
    let mut gradients = Gradients::new(&mut step.model, &step.weights, &step.normalised);
    gradients.add(logits, seed)?;
    for node in nodes.iter().rev() {
        gradients.through(node)?;
    }
    let found = gradients.finish();
    if !step.weights.iter().any(|w| found.contains_key(w)) {
        return Err(NotTrainable::NoWeights);
    }
    step.model.add_named_output(loss, LOSS);
    step.model.add_named_output(logits, LOGITS);
    step.update(&found, sgd)?;
    Ok(step.model)
}

/// The constants that a training step may train, and their shapes: f32 with axes, read by a node, and no running statistics.
pub fn trainable(model: &Model) -> BTreeMap<&str, &[usize]> {
    let operands = model.nodes().flat_map(|(_, node)| {
        let weights = node.inputs.iter().enumerate();
        weights.filter_map(|(slot, v)| v.filter(|_| !is_statistic(&node.op, slot)))
    });
    let constants = operands.filter_map(|v| model.constant(v).map(|t| (v, t)));
    constants
        .filter(|(_, t)| may_train(t))
        .map(|(v, t)| (model[v].name(), t.shape()))
        .collect()
}

fn may_train(t: &Tensor) -> bool {
    t.dtype() == DType::F32 && !t.shape().is_empty()
}

/// Whether an operand is a running mean or variance.
fn is_statistic(op: &Op, slot: usize) -> bool {
    matches!(op, Op::BatchNorm(_)) && slot > 2
}

fn constant(model: &Model, v: ValueId) -> &Arc<Tensor> {
    match model[v].origin() {
        Origin::Constant(t) => t,
        _ => unreachable!("nodes stand in topological order"),
    }
}

/// A training step while it is made.
struct Step {
    model: Model,
    /// What the values of the forward model became.
    map: HashMap<ValueId, ValueId>,
    /// Values that are trained, in the order in which nodes read them first.
    weights: Vec<ValueId>,
    /// What each state begins with, by its input.
    states: HashMap<ValueId, Arc<Tensor>>,
    labels: ValueId,
    /// Running statistics, and what they become.
    statistics: Vec<(ValueId, ValueId)>,
    /// Batch normalisations, by their results.
    normalised: HashMap<ValueId, Normalised>,
    masks: Masks,
}

impl Step {
    fn new(forward: &Model, seed: u64) -> Step {
        let mut model = Model::new(&format!("{}.train", forward.name), forward.opset);
        let mut map = HashMap::new();
        for v in forward.inputs() {
            let value = &forward[*v];
            map.insert(
                *v,
                model.add_input(value.name(), value.dtype(), value.shape()),
            );
        }
        let batch = forward
            .outputs()
            .first()
            .map_or(1, |v| forward[*v].shape().first().copied().unwrap_or(1));
        let labels = model.add_input(LABELS, DType::I64, &[batch]);
        Step {
            model,
            map,
            weights: vec![],
            states: HashMap::new(),
            labels,
            statistics: vec![],
            normalised: HashMap::new(),
            masks: Masks::new(seed),
        }
    }

    /// Copies the nodes; weights and running statistics become states.
    fn forward(
        &mut self,
        forward: &Model,
        untrained: &BTreeSet<String>,
    ) -> Result<(), NotTrainable> {
        for (_, node) in forward.nodes() {
            let mut inputs = Vec::new();
            for (slot, v) in node.inputs.iter().enumerate() {
                let Some(v) = v else {
                    inputs.push(None);
                    continue;
                };
                let new = match is_statistic(&node.op, slot) {
                    true => self.statistic(forward, *v),
                    false => self.operand(forward, *v, untrained),
                };
                inputs.push(Some(new));
            }
            let outputs = match &node.op {
                Op::BatchNorm(b) => vec![self.batch_norm(&node.name, *b, &inputs)?],
                Op::LayerNorm(l) if !l.statistics => {
                    vec![self.layer_norm(&node.name, *l, &inputs)?]
                }
                Op::Dropout(d) => vec![self.dropout(&node.name, *d, &inputs)?],
                op => self.model.add_node(&node.name, op.clone(), &inputs)?,
            };
            self.map.extend(node.outputs.iter().copied().zip(outputs));
        }
        Ok(())
    }

    fn operand(&mut self, forward: &Model, v: ValueId, untrained: &BTreeSet<String>) -> ValueId {
        if let Some(new) = self.map.get(&v) {
            return *new;
        }
        let (value, t) = (&forward[v], constant(forward, v));
        let new = match may_train(t) && !untrained.contains(value.name()) {
            true => {
                let new = self.state(value.name(), t);
                self.weights.push(new);
                new
            }
            false => self.model.add_constant(value.name(), t.clone()),
        };
        self.map.insert(v, new);
        new
    }

    /// Each batch normalisation has statistics of its own, though files keep equal constants once.
    fn statistic(&mut self, forward: &Model, v: ValueId) -> ValueId {
        let Origin::Constant(t) = forward[v].origin() else {
            return self.map[&v];
        };
        match may_train(t) {
            true => self.state(forward[v].name(), t),
            false => self.model.add_constant(forward[v].name(), t.clone()),
        }
    }

    /// An input that begins with a constant.
    fn state(&mut self, name: &str, initial: &Arc<Tensor>) -> ValueId {
        let new = self.model.add_input(name, DType::F32, initial.shape());
        self.states.insert(new, initial.clone());
        new
    }

    /// The loss, and its gradient with respect to the logits.
    fn cross_entropy(&mut self, logits: ValueId) -> Result<(ValueId, ValueId), NotTrainable> {
        let (n, classes) = match self.model[logits].shape() {
            [n, classes] => (*n, *classes),
            _ => unreachable!("logits are a matrix"),
        };
        let labels = self.labels;
        let m = &mut self.model;
        let rows = |kind| {
            Op::Reduce(Reduce {
                kind,
                axes: vec![1],
                keepdims: true,
            })
        };
        let most = m.add("loss.max", rows(ReduceKind::Max), &[logits])?;
        let below = m.add("loss.below", Op::Binary(Binary::Sub), &[logits, most])?;
        let exp = m.add("loss.exp", Op::Unary(Unary::Exp), &[below])?;
        let sum = m.add("loss.sum", rows(ReduceKind::Sum), &[exp])?;
        let log = m.add("loss.log", Op::Unary(Unary::Log), &[sum])?;
        let column = Op::Reshape(Reshape { shape: vec![n, 1] });
        let label = m.add("loss.label", column, &[labels])?;
        let own = Op::GatherElements(GatherElements { axis: 1 });
        let own = m.add("loss.own", own, &[below, label])?;
        let each = m.add("loss.each", Op::Binary(Binary::Sub), &[log, own])?;
        let mean = Reduce {
            kind: ReduceKind::Mean,
            axes: vec![0, 1],
            keepdims: false,
        };
        let loss = m.add("loss.mean", Op::Reduce(mean), &[each])?;
        let share = m.add("loss.softmax", Op::Binary(Binary::Div), &[exp, sum])?;
        let all: Vec<i64> = (0..classes as i64).collect();
        let all = m.add_constant("loss.classes", Tensor::from_slice(&[1, classes], &all));
        let is_own = m.add("loss.is_own", Op::Binary(Binary::Equal), &[label, all])?;
        let one = m.add_constant("loss.one", scalar(1.0));
        let zero = m.add_constant("loss.zero", scalar(0.0));
        let target = m.add("loss.target", Op::Where, &[is_own, one, zero])?;
        let error = m.add("loss.error", Op::Binary(Binary::Sub), &[share, target])?;
        let per_row = m.add_constant("loss.per_row", scalar(1.0 / n as f32));
        let seed = m.add("loss.gradient", Op::Binary(Binary::Mul), &[error, per_row])?;
        Ok((loss, seed))
    }
}

fn scalar(value: f32) -> Tensor {
    Tensor::from_slice(&[], &[value])
}
