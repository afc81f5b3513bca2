//! Which nodes have a tensor expression.

use crate::compute;
use graph::ops::{Op, Reduce, ReduceKind};
use graph::{Model, Node, ValueId};
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
pub(crate) fn unsupported(model: &Model) -> Vec<Unsupported> {
    let nodes = model.nodes().filter_map(|(_, node)| {
        Some(Unsupported {
            node: node.name.clone(),
            op: node.op.name(),
            reason: reason(model, node)?,
        })
    });
    nodes.collect()
}

fn reason(model: &Model, node: &Node) -> Option<String> {
    let empty = |v: &&ValueId| model[**v].ty().is_empty();
    let mut results = node.outputs.iter();
    let mut operands = node.inputs.iter().flatten();
    let found = match &node.op {
        // Empty parts are left out, as long as something is left.
        Op::Concat(_) => results.find(empty),
        Op::Split(_) => operands.find(empty),
        _ => operands.chain(results).find(empty),
    };
    if let Some(v) = found {
        let v = &model[*v];
        return Some(format!("`{}` is empty ({})", v.name(), v.ty()));
    }
    let dtype = node.input(0).map_or(DType::F32, |v| model[v].dtype());
    match &node.op {
        Op::Reduce(Reduce {
            kind: ReduceKind::Mean,
            ..
        }) if !dtype.is_float() => Some(format!("a mean of {dtype} has no kernel")),
        op => {
            compute::unsupported_elementwise(op, dtype).map(|what| format!("{what} has no kernel"))
        }
    }
}
