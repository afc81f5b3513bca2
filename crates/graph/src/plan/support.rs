//! Which nodes have a tensor expression.

use super::compute;
use crate::model::{Model, Node};
use crate::ops::{Op, Pool, PoolKind, Reduce, ReduceKind};
use std::fmt;
use tensor::DType;

/// A node that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    pub node: String,
    pub op: &'static str,
    pub reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({}): {}", self.node, self.op, self.reason)
    }
}

/// Every node that cannot be compiled.
pub(super) fn unsupported(model: &Model) -> Vec<Unsupported> {
    model
        .nodes()
        .filter_map(|(_, node)| {
            Some(Unsupported {
                node: node.name.clone(),
                op: node.op.name(),
                reason: reason(model, node)?,
            })
        })
        .collect()
}

fn reason(model: &Model, node: &Node) -> Option<String> {
    let values = node.inputs.iter().flatten().chain(&node.outputs);
    let empty = values.map(|v| &model[*v]).find(|v| v.ty().is_empty());
    if let Some(v) = empty {
        return Some(format!("`{}` is empty ({})", v.name(), v.ty()));
    }
    let dtype = node.input(0).map_or(DType::F32, |v| model[v].dtype());
    match &node.op {
        Op::Pool(Pool {
            kind: PoolKind::Max { indices: Some(_) },
            ..
        }) => {
            let users = model.users();
            let positions = node.outputs[1];
            (!users.of(positions).is_empty() || users.is_output(positions))
                .then(|| "the positions of the maxima have no kernel".into())
        }
        Op::Reduce(Reduce { .. }) if dtype == DType::Bool => {
            Some("a reduction of bool has no kernel".into())
        }
        Op::Reduce(Reduce {
            kind: ReduceKind::Mean,
            ..
        }) if !dtype.is_float() => Some(format!("a mean of {dtype} has no kernel")),
        op => {
            compute::unsupported_elementwise(op, dtype).map(|what| format!("{what} has no kernel"))
        }
    }
}
