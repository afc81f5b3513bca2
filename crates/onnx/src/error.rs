//! Why a file cannot be imported.

use crate::TensorError;
use graph::{Exceeded, TensorType};
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ImportError {
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("not a whole ONNX model ({0}); the file is damaged or cut short")]
    Decode(String),
    #[error("the model is invalid: {0}")]
    Invalid(String),
    #[error(
        "the model is written in operator set {0}, and 7 is the oldest supported; convert it with \
         onnx.version_converter"
    )]
    OldOpset(i64),
    #[error(
        "the model is written in operator set {found}{}, and {newest} is the newest supported; \
         export the model for operator set {newest}, or convert it with onnx.version_converter",
        of(domain)
    )]
    NewOpset {
        /// Empty for the standard operators.
        domain: String,
        found: i64,
        newest: i64,
    },
    #[error(
        "the file has IR version {found}, and {newest} is the newest supported; export the model with an \
         older onnx package, or choose an older IR version in its exporter"
    )]
    NewFormat { found: i64, newest: i64 },
    #[error("the model has become too large at node `{node}` ({op}): {source}")]
    TooLarge {
        node: String,
        op: String,
        source: Exceeded,
    },
    #[error("{0}; correct the declaration")]
    Declared(Box<Declared>),
    #[error("{}", list("these dimensions have no size:", .0))]
    UnboundDims(Vec<UnboundDim>),
    #[error("{}", list("shapes depend on these operands, so their values must be known when the model is read:", .0))]
    NeededValues(Vec<NeededValue>),
    #[error("{}", list("these nodes are not supported:", &grouped(.0)))]
    Unsupported(Vec<UnsupportedNode>),
    #[error("tensor `{name}`: {source}")]
    Tensor { name: String, source: TensorError },
    #[error("{option} changes nothing: {reason}")]
    Unused { option: String, reason: String },
    #[error(
        "{option}: the file fixes the size as {fixed}, and the model for another does not follow \
         from it: {reason}. Export the model with an open size, as in torch.onnx.export(model, \
         args, file, dynamo=True, dynamic_shapes={{{axes}}}){elsewhere}"
    )]
    FixedSize {
        option: String,
        fixed: usize,
        /// The axes to leave open, as PyTorch's exporter takes them.
        axes: String,
        /// What to do if the batch is on another axis; nothing of an axis that was given.
        elsewhere: String,
        reason: String,
    },
    #[error("constant `{name}` (--const): {reason}")]
    Const { name: String, reason: String },
}

/// A value of the file that is not what it is declared as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    pub declared: String,
    pub actual: TensorType,
    /// The node that gives the value, unless it is an input or an initializer; and its operator.
    pub node: Option<(String, String)>,
}

impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Declared {
            name,
            declared,
            actual,
            node,
        } = self;
        write!(f, "`{name}` is declared as {declared} but is {actual}")?;
        match node {
            Some((node, op)) => write!(f, ", the result of node `{node}` ({op})"),
            None => Ok(()),
        }
    }
}

fn of(domain: &str) -> String {
    match domain {
        "" => String::new(),
        _ => format!(" of the domain {domain}"),
    }
}

fn list<T: fmt::Display>(head: &str, items: &[T]) -> String {
    items
        .iter()
        .fold(head.to_string(), |text, item| format!("{text}\n  {item}"))
}

/// Nodes that the same reason stops, in one line.
fn grouped(nodes: &[UnsupportedNode]) -> Vec<String> {
    let mut groups: Vec<Vec<&UnsupportedNode>> = Vec::new();
    for n in nodes {
        let same = |g: &&mut Vec<&UnsupportedNode>| {
            let first = g[0];
            (&first.op, &first.domain, &first.reason) == (&n.op, &n.domain, &n.reason)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(n),
            None => groups.push(vec![n]),
        }
    }
    groups.iter().map(|g| group(g)).collect()
}

/// Nodes of a group that are named.
const NAMED: usize = 3;

fn group(nodes: &[&UnsupportedNode]) -> String {
    let (first, n) = (nodes[0], nodes.len());
    if n == 1 {
        return first.to_string();
    }
    let named: Vec<String> = nodes
        .iter()
        .take(NAMED)
        .map(|n| format!("`{}`", n.node))
        .collect();
    let more = match n > NAMED {
        true => format!(" and {} more", n - NAMED),
        false => String::new(),
    };
    let UnsupportedNode { op, reason, .. } = first;
    let domain = of(&first.domain);
    format!(
        "{op}{domain} x{n}: {reason} (nodes {}{more})",
        named.join(", ")
    )
}

/// A dimension of a graph input without a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnboundDim {
    pub input: String,
    pub axis: usize,
    /// The dimension's symbolic name, if it has one.
    pub symbol: Option<String>,
}

impl UnboundDim {
    /// The name under which [`crate::ImportOptions::dims`] binds it.
    pub fn key(&self) -> String {
        self.symbol
            .clone()
            .unwrap_or_else(|| format!("{}.{}", self.input, self.axis))
    }
}

impl fmt::Display for UnboundDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnboundDim {
            input,
            axis,
            symbol,
        } = self;
        let symbol = symbol.as_ref().map_or(String::new(), |s| format!(" ({s})"));
        write!(
            f,
            "input `{input}`, dimension {axis}{symbol}: give it with --dim {}=SIZE",
            self.key()
        )?;
        if *axis == 0 {
            write!(f, " or --batch SIZE")
        } else {
            Ok(())
        }
    }
}

/// An operand that must be constant and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededValue {
    pub node: String,
    pub op: String,
    /// What the operand is for, e.g. `shape`.
    pub role: String,
    /// The graph inputs that it is computed from.
    pub inputs: Vec<String>,
}

impl fmt::Display for NeededValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NeededValue {
            node,
            op,
            role,
            inputs,
        } = self;
        let flags: Vec<_> = inputs.iter().map(|i| format!("--const {i}=FILE")).collect();
        let names: Vec<_> = inputs.iter().map(|i| format!("`{i}`")).collect();
        write!(
            f,
            "node `{node}` ({op}): its {role} comes from input {}: give its value with {}",
            names.join(", "),
            flags.join(" ")
        )
    }
}

/// A node, or a value of the file, that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedNode {
    pub node: String,
    pub op: String,
    /// Empty for the standard operators.
    pub domain: String,
    pub reason: String,
}

impl fmt::Display for UnsupportedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnsupportedNode {
            node,
            op,
            domain,
            reason,
        } = self;
        let domain = if domain.is_empty() {
            String::new()
        } else {
            format!(", domain {domain}")
        };
        write!(f, "node `{node}` ({op}{domain}): {reason}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_the_same_reason_are_one_line() {
        let node = |node: &str, op: &str, reason: &str| UnsupportedNode {
            node: node.into(),
            op: op.into(),
            domain: String::new(),
            reason: reason.into(),
        };
        let loops = ["a", "c", "d", "e"].map(|n| node(n, "Loop", "its trip count is not constant"));
        let mut nodes = loops.to_vec();
        nodes.insert(1, node("b", "Foo", "there is no such operator here"));
        let text = ImportError::Unsupported(nodes).to_string();
        assert_eq!(
            text,
            "these nodes are not supported:\n  \
             Loop x4: its trip count is not constant (nodes `a`, `c`, `d` and 1 more)\n  \
             node `b` (Foo): there is no such operator here"
        );
    }
}
