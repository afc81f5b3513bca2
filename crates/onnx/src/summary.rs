//! What a model file says of itself, without importing the model: for people who were given the file.

use crate::import::ModelFile;
use crate::proto::tensor_shape_proto::dimension::Value as Dim;
use crate::proto::{TensorProto, ValueInfoProto};
use crate::tensors::element_type;
use std::collections::{BTreeMap, BTreeSet};

/// An input or output as the file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredTensor {
    pub name: String,
    /// The element type, or what else it is.
    pub ty: String,
    /// A size or a name for each dimension, `?` where there is neither; none where the rank is open.
    pub shape: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// The program that wrote the file, with its version; empty if it did not say.
    pub producer: String,
    /// Versions of operator sets by domain; the domain of standard operators is `ai.onnx`.
    pub opsets: BTreeMap<String, i64>,
    pub inputs: Vec<DeclaredTensor>,
    pub outputs: Vec<DeclaredTensor>,
    /// Nodes by operator, those of subgraphs left out.
    pub operators: BTreeMap<String, usize>,
    /// Elements of the weights, and their bytes by element type.
    pub weights: u64,
    pub weight_bytes: BTreeMap<String, u64>,
}

impl ModelFile {
    /// What the file says of itself.
    pub fn summary(&self) -> FileSummary {
        let (proto, graph) = (&self.proto, &self.graph);
        let constants: BTreeSet<&str> = graph.initializer.iter().map(TensorProto::name).collect();
        let inputs = graph.input.iter().filter(|i| !constants.contains(i.name()));
        let mut operators = BTreeMap::new();
        for node in &graph.node {
            *operators
                .entry(qualified(node.domain(), node.op_type()))
                .or_insert(0) += 1;
        }
        let (mut weights, mut weight_bytes) = (0, BTreeMap::new());
        for tensor in &graph.initializer {
            let elements = tensor
                .dims
                .iter()
                .map(|d| (*d).max(0) as u64)
                .product::<u64>();
            let (name, bits) = of_type(tensor.data_type());
            weights += elements;
            *weight_bytes.entry(name).or_insert(0) += elements.saturating_mul(bits).div_ceil(8);
        }
        let version = [proto.producer_name(), proto.producer_version()];
        let opset = |o: &crate::proto::OperatorSetIdProto| match o.domain() {
            "" => ("ai.onnx".to_string(), o.version()),
            domain => (domain.to_string(), o.version()),
        };
        FileSummary {
            producer: version.join(" ").trim().to_string(),
            opsets: proto.opset_import.iter().map(opset).collect(),
            inputs: inputs.map(declared).collect(),
            outputs: graph.output.iter().map(declared).collect(),
            operators,
            weights,
            weight_bytes,
        }
    }
}

fn qualified(domain: &str, op: &str) -> String {
    match domain {
        "" | "ai.onnx" => op.to_string(),
        domain => format!("{domain}.{op}"),
    }
}

/// The name of an element type, and the bits of an element; 0 where these vary.
fn of_type(number: i32) -> (String, u64) {
    match element_type(number) {
        Ok(dtype) => (dtype.to_string(), 8 * dtype.size() as u64),
        Err(name) => {
            let digits = |c: char| !c.is_ascii_digit();
            let mut numbers = name.split(digits).filter(|n| !n.is_empty());
            // As in uint16 and complex64; float8e4m3fn has 8 bits.
            let bits = numbers.next().and_then(|n| n.parse().ok());
            (name, bits.unwrap_or(0))
        }
    }
}

fn declared(info: &ValueInfoProto) -> DeclaredTensor {
    let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let size = |d: &crate::proto::tensor_shape_proto::Dimension| match &d.value {
        Some(Dim::DimValue(n)) => n.to_string(),
        Some(Dim::DimParam(name)) if !name.is_empty() => name.clone(),
        _ => "?".into(),
    };
    DeclaredTensor {
        name: info.name().to_string(),
        ty: tensor.map_or("not a tensor".into(), |t| of_type(t.elem_type()).0),
        shape: tensor
            .and_then(|t| t.shape.as_ref())
            .map(|s| s.dim.iter().map(size).collect()),
    }
}
