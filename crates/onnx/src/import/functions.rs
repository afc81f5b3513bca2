//! Functions that a model defines: their bodies take the place of the nodes that call them.

use crate::error::ImportError;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
};
use crate::versions::standard_domain;
use prost::Message;
use std::collections::HashMap;

/// The most bytes of a file that calls may become.
const MOST_BYTES: usize = 1 << 28;
/// The most functions that call one another.
const MOST_DEPTH: usize = 64;

type Key = (String, String, String);

/// Writes out all calls of functions in a graph. The model then imports the operator sets of these functions, too.
///
/// # Errors
/// If a function calls itself, the graph becomes too large, or a function is written in another operator set than the model.
pub(super) fn inline(model: &mut ModelProto, graph: &mut GraphProto) -> Result<(), ImportError> {
    let key = |f: &FunctionProto| {
        let domain = standard_domain(f.domain()).to_string();
        (domain, f.name().to_string(), f.overload().to_string())
    };
    let sets = model.opset_import.iter();
    let mut inliner = Inliner {
        functions: model.functions.iter().map(|f| (key(f), f)).collect(),
        sets: sets
            .map(|s| (standard_domain(s.domain()), s.version()))
            .collect(),
        calls: 0,
        bytes: 0,
    };
    inliner.graph(graph, 0)?;
    let set = |(domain, version): (&str, i64)| OperatorSetIdProto {
        domain: Some(domain.to_string()),
        version: Some(version),
    };
    let new: Vec<_> = inliner
        .sets
        .into_iter()
        .skip(model.opset_import.len())
        .map(set)
        .collect();
    model.opset_import.extend(new);
    Ok(())
}

struct Inliner<'a> {
    functions: HashMap<Key, &'a FunctionProto>,
    /// The versions of operator sets: the model's, then those that only functions name.
    sets: Vec<(&'a str, i64)>,
    calls: usize,
    bytes: usize,
}

impl<'a> Inliner<'a> {
    fn graph(&mut self, graph: &mut GraphProto, depth: usize) -> Result<(), ImportError> {
        graph.node = self.nodes(std::mem::take(&mut graph.node), depth)?;
        Ok(())
    }

    fn nodes(
        &mut self,
        nodes: Vec<NodeProto>,
        depth: usize,
    ) -> Result<Vec<NodeProto>, ImportError> {
        let mut all = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            for inner in node.attribute.iter_mut().filter_map(|a| a.g.as_mut()) {
                self.graph(inner, depth)?;
            }
            match self.called(&node) {
                Some(function) => all.extend(self.body(function, &node, depth)?),
                None => all.push(node),
            }
        }
        Ok(all)
    }

    fn called(&self, node: &NodeProto) -> Option<&'a FunctionProto> {
        let domain = standard_domain(node.domain()).to_string();
        let name = node.op_type().to_string();
        let key = (domain, name, node.overload().to_string());
        self.functions.get(&key).copied()
    }

    /// The nodes of a function, with the call's values, attributes and names.
    fn body(
        &mut self,
        function: &'a FunctionProto,
        call: &NodeProto,
        depth: usize,
    ) -> Result<Vec<NodeProto>, ImportError> {
        if depth >= MOST_DEPTH {
            return Err(ImportError::Invalid(format!(
                "function `{}` calls itself, or more than {MOST_DEPTH} functions call one another",
                function.name()
            )));
        }
        self.calls += 1;
        let prefix = format!("{}/{}/", function.name(), self.calls);
        let mut names = HashMap::new();
        for (i, formal) in function.input.iter().enumerate() {
            names.insert(
                formal.clone(),
                call.input.get(i).cloned().unwrap_or_default(),
            );
        }
        let mut copies = Vec::new();
        for (formal, actual) in function.output.iter().zip(&call.output) {
            match names.get(formal) {
                _ if actual.is_empty() => {}
                // A function may give its operand, or a value twice.
                Some(known) => copies.push(NodeProto {
                    input: vec![known.clone()],
                    output: vec![actual.clone()],
                    op_type: Some("Identity".into()),
                    ..NodeProto::default()
                }),
                None => {
                    names.insert(formal.clone(), actual.clone());
                }
            }
        }
        self.bytes += function.encoded_len();
        if self.bytes > MOST_BYTES {
            return Err(ImportError::Invalid(format!(
                "its functions become more than {MOST_BYTES} bytes when their calls are written out"
            )));
        }
        for own in &function.opset_import {
            let (domain, version) = (standard_domain(own.domain()), own.version());
            match self.sets.iter().find(|s| s.0 == domain) {
                None => self.sets.push((domain, version)),
                Some((_, other)) if *other != version => {
                    return Err(ImportError::Invalid(format!(
                        "function `{}` is written in version {version} of the operator set `{domain}`, and the model in \
                         {other}; inline it with onnx.inliner, and convert the model with onnx.version_converter",
                        function.name()
                    )));
                }
                Some(_) => {}
            }
        }
        let mut nodes = function.node.clone();
        for node in &mut nodes {
            rename(node, &names, &prefix);
            resolve(node, function, call);
        }
        nodes.extend(copies);
        self.nodes(nodes, depth + 1)
    }
}

/// Gives the values of a function's node the names that they have in the graph; the graphs of a node, too.
fn rename(node: &mut NodeProto, names: &HashMap<String, String>, prefix: &str) {
    let new = |name: &mut String| match names.get(name) {
        Some(actual) => name.clone_from(actual),
        None if name.is_empty() => {}
        None => name.insert_str(0, prefix),
    };
    node.input.iter_mut().chain(&mut node.output).for_each(new);
    if let Some(name) = &mut node.name {
        name.insert_str(0, prefix);
    }
    for graph in node.attribute.iter_mut().filter_map(|a| a.g.as_mut()) {
        let infos = graph.input.iter_mut().chain(&mut graph.output);
        for info in infos.chain(&mut graph.value_info) {
            info.name.as_mut().map(new);
        }
        for constant in &mut graph.initializer {
            constant.name.as_mut().map(new);
        }
        for node in &mut graph.node {
            rename(node, names, prefix);
        }
    }
}

/// Gives attributes that refer to one of the function the value of the call, or the function's default. Without
/// either they are left out.
fn resolve(node: &mut NodeProto, function: &FunctionProto, call: &NodeProto) {
    let value = |name: &str| {
        let given = call.attribute.iter().chain(&function.attribute_proto);
        given.into_iter().find(|a| a.name() == name)
    };
    node.attribute = std::mem::take(&mut node.attribute)
        .into_iter()
        .filter_map(|a| match a.ref_attr_name() {
            "" => Some(a),
            of_function => Some(AttributeProto {
                name: a.name.clone(),
                ..value(of_function)?.clone()
            }),
        })
        .collect();
    let graphs = node.attribute.iter_mut().filter_map(|a| a.g.as_mut());
    for inner in graphs.flat_map(|g| &mut g.node) {
        resolve(inner, function, call);
    }
}
