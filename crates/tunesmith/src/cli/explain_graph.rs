//! `explain --graph`: the steps of a model as a graph, in the language of Graphviz.
//!
//! A node is a step, coloured by its share of the time. An edge is a tensor that one step writes and another reads.

use super::explain::Explanation;
use super::trace::shape;
use runtime::{CompiledModel, ParamRole, TensorId, TensorInfo, TensorPlace};

/// How every graph begins.
pub const START: &str = "digraph model {";

/// The graph of a model that was measured.
pub fn graph(r: &Explanation, compiled: &CompiledModel) -> String {
    let mut out = format!(
        "{START}\n  label={};\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n",
        quoted(&format!("{}, {:.3} ms", r.model, r.latency.median_ms))
    );
    let longest = r.layers.iter().map(|l| l.share).fold(0.0, f64::max);
    for l in &r.layers {
        let label = format!(
            "{}\n{}\n{:.3} ms, {:.1}%",
            l.operator,
            l.algorithm,
            l.time.median_ms,
            100.0 * l.share
        );
        // From white to red by the share, as hue, saturation and value.
        let colour = format!("0.03 {:.2} 1.0", l.share / longest.max(f64::MIN_POSITIVE));
        out += &format!(
            "  s{} [label={}, tooltip={}, fillcolor=\"{colour}\"];\n",
            l.index,
            quoted(&label),
            quoted(&l.name)
        );
    }
    for (i, info) in named_inputs(compiled) {
        let name = quoted(&info.name);
        out += &format!("  i{i} [label={name}, shape=ellipse, fillcolor=\"#ddddff\"];\n");
    }
    for e in edges(compiled) {
        let info = compiled.tensor(e.tensor);
        let label = quoted(&format!("{} {}", shape(&info.shape), info.dtype));
        let from = match e.from {
            Writer::Input(i) => format!("i{i}"),
            Writer::Step(s) => format!("s{s}"),
        };
        let name = quoted(&info.name);
        out += &format!("  {from} -> s{} [label={label}, tooltip={name}];\n", e.to);
    }
    out + "}\n"
}

/// What a caller hands in, states left out, by position.
pub fn named_inputs(compiled: &CompiledModel) -> impl Iterator<Item = (usize, &TensorInfo)> {
    let state = |i: usize| compiled.states().iter().any(|s| s.input == i);
    let inputs = compiled.inputs().iter().enumerate();
    let own = inputs.filter(move |(i, _)| !state(*i));
    own.map(|(i, id)| (i, compiled.tensor(*id)))
}

/// A text as Graphviz reads it, line ends included.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    Input(usize),
    Step(usize),
}

pub struct Edge {
    pub from: Writer,
    pub to: usize,
    /// As the reader sees it.
    pub tensor: TensorId,
}

/// Who writes what a step reads. What lies in another tensor is written by whoever writes that one.
pub fn edges(compiled: &CompiledModel) -> Vec<Edge> {
    let inputs = named_inputs(compiled).map(|(i, _)| (compiled.inputs()[i], Writer::Input(i)));
    let mut written: Vec<(TensorId, Writer)> = inputs.collect();
    let mut edges: Vec<Edge> = Vec::new();
    for (to, step) in compiled.steps().iter().enumerate() {
        for call in &step.alternatives[0].calls {
            let args = || compiled.kernel(call).params.iter().zip(&call.args);
            for (_, id) in args().filter(|(p, _)| p.role == ParamRole::Input) {
                let exact = written.iter().any(|(w, _)| w == id);
                let meets = |w: TensorId| match exact {
                    true => w == *id,
                    false => overlap(compiled, w, *id),
                };
                for (_, from) in written.iter().filter(|(w, _)| meets(*w)) {
                    let known = |e: &Edge| e.from == *from && e.to == to && e.tensor == *id;
                    if *from != Writer::Step(to) && !edges.iter().any(known) {
                        edges.push(Edge {
                            from: *from,
                            to,
                            tensor: *id,
                        });
                    }
                }
            }
            let outputs = args().filter(|(p, _)| p.role == ParamRole::Output);
            written.extend(outputs.map(|(_, id)| (*id, Writer::Step(to))));
        }
    }
    edges
}

/// Whether two tensors lie in the same one, and the bytes from the first to the last of each meet.
fn overlap(compiled: &CompiledModel, a: TensorId, b: TensorId) -> bool {
    let range = |id: TensorId| {
        let info = compiled.tensor(id);
        let (root, from) = match info.place {
            TensorPlace::View { root, byte_offset } => (root, byte_offset),
            _ => (id, 0),
        };
        (root, from, from + info.span_bytes().unwrap_or(0))
    };
    let ((root_a, from_a, to_a), (root_b, from_b, to_b)) = (range(a), range(b));
    root_a == root_b && from_a < to_b && from_b < to_a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_kind_are_quoted() {
        assert_eq!(quoted("a \"b\"\\c\nd"), r#""a \"b\"\\c\nd""#);
    }
}
