//! Running models through the references: whole ones, and from values that are known.

use crate::model::{Model, Node, NodeId, TensorType, ValueId};
use crate::ops::OpError;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tensor::{Crop, Tensor};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum EvalError {
    #[error("the model takes {expected} inputs ({names}) and {given} are given")]
    InputCount {
        expected: usize,
        given: usize,
        names: String,
    },
    #[error("input `{name}` is {expected} and a tensor {given} is given")]
    InputType {
        name: String,
        expected: TensorType,
        given: TensorType,
    },
    #[error("`{0}` is an input, and no tensor is given for it")]
    Unknown(String),
    #[error("node `{node}` ({op}): {source}")]
    Node {
        node: String,
        op: &'static str,
        source: OpError,
    },
}

/// Which values survive an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Graph outputs; everything else is dropped after its last use.
    Outputs,
    /// Everything.
    All,
}

/// The values of one evaluation.
#[derive(Clone, Debug)]
pub struct Evaluated {
    values: Vec<Option<Arc<Tensor>>>,
    outputs: Vec<ValueId>,
    crops: Vec<Crop>,
}

impl Evaluated {
    /// The value, if it was kept.
    pub fn get(&self, id: ValueId) -> Option<&Arc<Tensor>> {
        self.values[id.index()].as_ref()
    }

    /// Graph outputs in order.
    pub fn outputs(&self) -> Vec<Arc<Tensor>> {
        let kept = |v: &ValueId| self.get(*v).expect("outputs are always kept").clone();
        self.outputs.iter().map(kept).collect()
    }

    /// Graph outputs in order, cropped to what is result ([`Model::crops`]).
    pub fn results(&self) -> Vec<Arc<Tensor>> {
        let results = tensor::cropped(&self.outputs(), &self.crops);
        results.into_iter().map(Arc::new).collect()
    }
}

/// Runs `model` on inputs given in its order.
///
/// # Errors
/// If an input does not fit, or an operator refuses a value.
pub fn evaluate(model: &Model, inputs: &[Arc<Tensor>], keep: Keep) -> Result<Evaluated, EvalError> {
    let mut values: Vec<Option<Arc<Tensor>>> = vec![None; model.values().len()];
    bind_inputs(model, inputs, &mut values)?;
    for (v, t) in model.constants() {
        values[v.index()] = Some(t.clone());
    }
    let users = model.users();
    for (id, node) in model.nodes() {
        let operand = |v: &Option<ValueId>| {
            v.map(|v| {
                values[v.index()]
                    .as_deref()
                    .expect("a value lives until its last reader")
            })
        };
        let operands: Vec<_> = node.inputs.iter().map(operand).collect();
        let results = applied(node, &operands)?;
        for (v, t) in node.outputs.iter().zip(results) {
            values[v.index()] = Some(Arc::new(t));
        }
        if keep == Keep::Outputs {
            for &v in node.inputs.iter().flatten().chain(&node.outputs) {
                let done = users.of(v).last().is_none_or(|(last, _)| *last <= id);
                if done && !users.is_output(v) {
                    values[v.index()] = None;
                }
            }
        }
    }
    Ok(Evaluated {
        values,
        outputs: model.outputs().to_vec(),
        crops: model.crops().to_vec(),
    })
}

/// The value `v`, computed from `known` values and constants, with the nodes that it took.
///
/// # Errors
/// If an operator refuses a value, or an input is needed that is not known.
pub fn evaluate_from(
    model: &Model,
    known: &HashMap<ValueId, Arc<Tensor>>,
    v: ValueId,
) -> Result<(Arc<Tensor>, Vec<NodeId>), EvalError> {
    let mut values = known.clone();
    let mut needed = BTreeSet::new();
    let mut open = vec![v];
    while let Some(v) = open.pop() {
        if let Some(t) = model.constant(v) {
            values.insert(v, t.clone());
        }
        if values.contains_key(&v) {
            continue;
        }
        let Some((producer, _)) = model.producer(v) else {
            return Err(EvalError::Unknown(model[v].name().to_string()));
        };
        if needed.insert(producer) {
            open.extend(model[producer].inputs.iter().flatten());
        }
    }
    for id in &needed {
        let node = &model[*id];
        let operands: Vec<_> = node
            .inputs
            .iter()
            .map(|v| v.map(|v| &*values[&v]))
            .collect();
        let results = applied(node, &operands)?;
        for (v, t) in node.outputs.iter().zip(results) {
            // What is known stays as it is.
            values.entry(*v).or_insert_with(|| Arc::new(t));
        }
    }
    Ok((values[&v].clone(), needed.into_iter().collect()))
}

fn applied(node: &Node, operands: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    super::apply(&node.op, operands).map_err(|source| EvalError::Node {
        node: node.name.clone(),
        op: node.op.name(),
        source,
    })
}

fn bind_inputs(
    model: &Model,
    inputs: &[Arc<Tensor>],
    values: &mut [Option<Arc<Tensor>>],
) -> Result<(), EvalError> {
    if inputs.len() != model.inputs().len() {
        let names: Vec<_> = model.inputs().iter().map(|v| model[*v].name()).collect();
        return Err(EvalError::InputCount {
            expected: names.len(),
            given: inputs.len(),
            names: names.join(", "),
        });
    }
    for (&v, t) in model.inputs().iter().zip(inputs) {
        let given = TensorType::of(t);
        if &given != model[v].ty() {
            return Err(EvalError::InputType {
                name: model[v].name().to_string(),
                expected: model[v].ty().clone(),
                given,
            });
        }
        values[v.index()] = Some(t.clone());
    }
    Ok(())
}
