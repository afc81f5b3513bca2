//! How many rows of a value are read, where only the first ones are.
//!
//! Suppression of boxes costs as much as boxes may be chosen, and exporters write that as all
//! of them before they keep the first hundred.

use crate::attributes::Attributes;
use crate::proto::{GraphProto, NodeProto, TensorProto};
use crate::tensors::tensor_from;
use std::collections::HashMap;

/// For each value of which not all rows (along the first axis) are read, how many are.
pub(super) fn wanted_rows(graph: &GraphProto) -> HashMap<String, usize> {
    let mut constants = HashMap::new();
    collect(graph, &mut constants);
    let mut rows = HashMap::new();
    of_graph(graph, &constants, &HashMap::new(), &mut rows);
    rows.retain(|_, n| *n < usize::MAX);
    rows
}

/// The short vectors of a graph and of those in it. Names that stand for several are none.
fn collect(graph: &GraphProto, constants: &mut HashMap<String, TensorProto>) {
    let small = |t: &&TensorProto| t.dims.iter().all(|d| *d <= 8) && t.dims.len() <= 1;
    for t in graph.initializer.iter().filter(small) {
        constants.insert(t.name().to_string(), t.clone());
    }
    for node in &graph.node {
        if let ("Constant", [name]) = (node.op_type(), &node.output[..])
            && let Ok(Some(t)) = Attributes::new(node).tensor("value")
            && small(&t)
            && constants.insert(name.clone(), t.clone()).is_some()
        {
            constants.remove(name);
        }
        let inner = node.attribute.iter().filter_map(|a| a.g.as_ref());
        inner.for_each(|g| collect(g, constants));
    }
}

type Rows = HashMap<String, usize>;

/// `outputs` says how many rows of the graph's outputs are read; of others all are.
fn of_graph(
    graph: &GraphProto,
    constants: &HashMap<String, TensorProto>,
    outputs: &Rows,
    rows: &mut Rows,
) {
    let all = |name: &str| outputs.get(name).copied().unwrap_or(usize::MAX);
    for output in &graph.output {
        read(rows, output.name(), all(output.name()));
    }
    for node in graph.node.iter().rev() {
        let result = node
            .output
            .iter()
            .map(|o| rows.get(o).copied().unwrap_or(0));
        let result = result.max().unwrap_or(usize::MAX);
        for (i, input) in node.input.iter().enumerate() {
            let count = if i == 0 {
                passes(node, constants, result).unwrap_or(usize::MAX)
            } else {
                usize::MAX
            };
            read(rows, input, count);
        }
        for attribute in &node.attribute {
            let Some(inner) = &attribute.g else { continue };
            let mut own = Rows::new();
            if node.op_type() == "If" {
                for (inside, outside) in inner.output.iter().zip(&node.output) {
                    let count = rows.get(outside).copied().unwrap_or(0);
                    own.insert(inside.name().to_string(), count);
                }
            }
            of_graph(inner, constants, &own, rows);
        }
    }
}

fn read(rows: &mut Rows, name: &str, count: usize) {
    let known = rows.entry(name.to_string()).or_insert(0);
    *known = (*known).max(count);
}

/// How many rows of its first operand a node reads of which `result` rows are read.
fn passes(
    node: &NodeProto,
    constants: &HashMap<String, TensorProto>,
    result: usize,
) -> Option<usize> {
    let ints = |i: usize| -> Option<Vec<i64>> {
        let t = tensor_from(constants.get(node.input.get(i)?)?.clone(), None).ok()?;
        Some((0..t.len()).map(|i| t.get_i64(i)).collect())
    };
    let attributes = Attributes::new(node);
    match node.op_type() {
        "Cast" | "Identity" => Some(result),
        "Gather" if attributes.int("axis", 0).ok()? > 0 => Some(result),
        "Squeeze" if !ints(1)?.iter().any(|a| *a <= 0) => Some(result),
        "Slice" => {
            let (starts, ends, axes) = (ints(1)?, ints(2)?, ints(3)?);
            let first = node.input.len() < 5 || ints(4)? == [1];
            match (&starts[..], &ends[..], &axes[..]) {
                ([0], [end], [0]) if first && *end >= 0 => {
                    Some(result.min(usize::try_from(*end).ok()?))
                }
                _ => None,
            }
        }
        _ => None,
    }
}
