//! The order of nodes. ONNX asks that a node stands behind those whose results it reads. Tools that add nodes at the
//! end of a graph, such as converters to f16, break this, and onnxruntime sorts the nodes. So they are sorted here.

use crate::proto::{GraphProto, NodeProto};
use std::collections::{HashMap, HashSet};

/// Puts nodes in front of those that read their results, also in graphs of nodes. All others stay
/// where they are. A graph with a circle stays as it is: the importer names what is missing.
pub(super) fn sort(graph: &mut GraphProto) {
    for node in &mut graph.node {
        for inner in node.attribute.iter_mut().filter_map(|a| a.g.as_mut()) {
            sort(inner);
        }
    }
    if let Some(order) = order(&graph.node) {
        let mut nodes: Vec<_> = std::mem::take(&mut graph.node)
            .into_iter()
            .map(Some)
            .collect();
        graph.node = order.iter().filter_map(|i| nodes[*i].take()).collect();
    }
}

/// None if the order may stay, or if there is none.
fn order(nodes: &[NodeProto]) -> Option<Vec<usize>> {
    let mut makers = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            makers.entry(output.as_str()).or_insert(i);
        }
    }
    let needs = |node: &NodeProto| -> Vec<usize> {
        let names = reads(node);
        names
            .iter()
            .filter_map(|n| makers.get(n).copied())
            .collect()
    };
    let needs: Vec<Vec<usize>> = nodes.iter().map(needs).collect();
    let in_order = |(i, own): (usize, &Vec<usize>)| own.iter().all(|maker| *maker < i);
    if needs.iter().enumerate().all(in_order) {
        return None;
    }
    placed(&needs)
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Placed,
}

/// Each after what it needs, as early as its number allows; None if something needs itself.
fn placed(needs: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut state = vec![State::New; needs.len()];
    let mut order = Vec::with_capacity(needs.len());
    for first in 0..needs.len() {
        // A chain of nodes may be longer than a stack of calls.
        let mut open = vec![(first, 0)];
        while let Some((i, next)) = open.pop() {
            if next == 0 && state[i] == State::Placed {
                continue;
            }
            state[i] = State::Open;
            let Some(need) = needs[i].get(next) else {
                state[i] = State::Placed;
                order.push(i);
                continue;
            };
            open.push((i, next + 1));
            match state[*need] {
                State::New => open.push((*need, 0)),
                State::Open => return None,
                State::Placed => {}
            }
        }
    }
    Some(order)
}

/// The names that a node reads, also those that its graphs read from outside.
fn reads(node: &NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> = node.input.iter().map(String::as_str).collect();
    for graph in node.attribute.iter().filter_map(|a| a.g.as_ref()) {
        let inputs = graph.input.iter().map(|v| v.name());
        let constants = graph.initializer.iter().map(|t| t.name());
        let made = graph
            .node
            .iter()
            .flat_map(|n| n.output.iter().map(String::as_str));
        let own: HashSet<&str> = inputs.chain(constants).chain(made).collect();
        let read = graph.node.iter().flat_map(reads);
        let read = read.chain(graph.output.iter().map(|v| v.name()));
        names.extend(read.filter(|name| !own.contains(name)));
    }
    names
}
