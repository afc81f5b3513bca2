//! Random ONNX models: small ones of every operator, changed in their parts.

use crate::harness::{Random, change_bytes, number};
use onnx::OPERATORS;
use onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto,
    tensor_shape_proto::{Dimension, dimension::Value},
    type_proto,
};
use prost::Message;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Written by `scripts/fuzz-corpus`.
const CORPUS: &[u8] = include_bytes!("../../corpus/nodes.onnxs");

const WORDS: [&str; 24] = [
    "",
    "NOTSET",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "reflect",
    "wrap",
    "edge",
    "constant",
    "linear",
    "nearest",
    "cubic",
    "bilinear",
    "add",
    "mul",
    "max",
    "none",
    "mean",
    "bidirectional",
    "reverse",
    "ij,jk->ik",
    "...i->i",
    "b...ij->bj",
    "\u{fffd}\0é",
];

pub struct Corpus {
    /// By operator.
    models: BTreeMap<String, Vec<ModelProto>>,
    /// Names of attributes.
    names: Vec<String>,
    operators: Vec<(String, String)>,
}

fn one_of<'a, T>(r: &mut Random, of: &'a [T]) -> Option<&'a T> {
    (!of.is_empty()).then(|| &of[r.random_range(0..of.len())])
}

impl Corpus {
    pub fn new() -> Corpus {
        let mut models: BTreeMap<String, Vec<ModelProto>> = BTreeMap::new();
        let mut names = BTreeSet::new();
        let mut rest = CORPUS;
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let (model, after) = after.split_at(u32::from_le_bytes(*len) as usize);
            rest = after;
            let mut model = ModelProto::decode(model).expect("a model of the corpus");
            let graph = model.graph.as_mut().expect("a graph");
            // What outputs are declared as is compared last, and would stop most changes.
            graph.output.iter_mut().for_each(|o| o.r#type = None);
            for node in &graph.node {
                names.extend(node.attribute.iter().map(|a| a.name().to_string()));
            }
            let operator = graph.node.last().expect("a node").op_type().to_string();
            models.entry(operator).or_default().push(model);
        }
        let operators = OPERATORS.iter().map(|o| (o.domain.into(), o.name.into()));
        Corpus {
            models,
            names: names.into_iter().collect(),
            operators: operators.collect(),
        }
    }

    /// Operators of the importer without a model here.
    pub fn missing(&self) -> Vec<&str> {
        let known = |name: &&str| !self.models.contains_key(*name);
        OPERATORS.iter().map(|o| o.name).filter(known).collect()
    }

    /// Every model, as it is.
    pub fn all(&self) -> impl Iterator<Item = &ModelProto> {
        self.models.values().flatten()
    }

    fn base(&self, r: &mut Random) -> ModelProto {
        let keys: Vec<&String> = self.models.keys().collect();
        let key = keys[r.random_range(0..keys.len())];
        one_of(r, &self.models[key]).expect("a model").clone()
    }

    pub fn random(&self, r: &mut Random) -> Vec<u8> {
        let mut model = self.base(r);
        if r.random_ratio(1, 8) {
            let second = self.base(r);
            join(&mut model, second);
        }
        for _ in 0..r.random_range(1..6) {
            self.change(r, &mut model);
        }
        if r.random_ratio(1, 12) {
            nest(r, &mut model);
        }
        let mut bytes = model.encode_to_vec();
        if r.random_ratio(1, 8) {
            change_bytes(r, &mut bytes);
        }
        bytes
    }

    fn change(&self, r: &mut Random, model: &mut ModelProto) {
        match r.random_range(0..20) {
            0 => {
                if let Some(set) = model.opset_import.first_mut() {
                    set.version = Some(number(r));
                }
                return;
            }
            1 => {
                if let Some(set) = model.opset_import.first_mut() {
                    set.version = Some(r.random_range(7..27));
                }
                return;
            }
            _ => {}
        }
        let Some(graph) = &mut model.graph else {
            return;
        };
        match r.random_range(0..12) {
            0..5 => self.change_node(r, graph),
            5..7 => change_initializer(r, graph),
            7..9 => change_input(r, graph),
            9 => to_constant(r, graph),
            10 => to_input(r, graph),
            _ => {
                if let Some(node) = one_of(r, &graph.node).cloned() {
                    graph.node.push(node);
                }
            }
        }
    }

    fn change_node(&self, r: &mut Random, graph: &mut GraphProto) {
        let mut names: Vec<String> = graph.input.iter().map(|i| i.name().into()).collect();
        names.extend(graph.initializer.iter().map(|t| t.name().to_string()));
        names.extend(graph.node.iter().flat_map(|n| n.output.clone()));
        names.push(String::new());
        let count = graph.node.len();
        if count == 0 {
            return;
        }
        let node = &mut graph.node[r.random_range(0..count)];
        match r.random_range(0..12) {
            0..6 => self.change_attribute(r, node),
            6 | 7 => {
                let name = one_of(r, &names).expect("a name").clone();
                let at = r.random_range(0..=node.input.len());
                match node.input.get_mut(at) {
                    Some(input) => *input = name,
                    None => node.input.push(name),
                }
            }
            8 => drop(node.input.pop()),
            9 => node.output.push(format!("more{}", node.output.len())),
            10 => {
                let (domain, name) = one_of(r, &self.operators).expect("operators").clone();
                node.op_type = Some(name);
                node.domain = Some(domain);
            }
            _ => drop(node.attribute.pop()),
        }
    }

    fn change_attribute(&self, r: &mut Random, node: &mut NodeProto) {
        let count = node.attribute.len();
        if count == 0 || r.random_ratio(1, 8) {
            let name = one_of(r, &self.names).cloned();
            let mut a = AttributeProto {
                name,
                ..Default::default()
            };
            match r.random_range(0..4) {
                0 => (a.r#type, a.i) = (Some(2), Some(number(r))),
                1 => (a.r#type, a.f) = (Some(1), Some(float(r))),
                2 => (a.r#type, a.s) = (Some(3), Some(word(r))),
                _ => (a.r#type, a.ints) = (Some(7), vec![number(r), number(r)]),
            }
            return node.attribute.push(a);
        }
        let a = &mut node.attribute[r.random_range(0..count)];
        if let Some(i) = &mut a.i {
            *i = number(r);
        } else if let Some(f) = &mut a.f {
            *f = float(r);
        } else if let Some(s) = &mut a.s {
            *s = word(r);
        } else if let Some(t) = &mut a.t {
            change_tensor(r, t);
        } else if let Some(g) = &mut a.g {
            match r.random_range(0..3) {
                0 => change_initializer(r, g),
                1 => drop(g.output.pop()),
                _ => self.change_node(r, g),
            }
        } else if !a.ints.is_empty() {
            match r.random_range(0..6) {
                0 => a.ints.push(number(r)),
                1 => drop(a.ints.pop()),
                _ => {
                    let at = r.random_range(0..a.ints.len());
                    a.ints[at] = number(r);
                }
            }
        } else if !a.floats.is_empty() {
            let at = r.random_range(0..a.floats.len());
            a.floats[at] = float(r);
        } else if !a.strings.is_empty() {
            let at = r.random_range(0..a.strings.len());
            a.strings[at] = word(r);
        }
        if r.random_ratio(1, 16) {
            a.r#type = Some(r.random_range(0..16));
        }
    }
}

fn word(r: &mut Random) -> Vec<u8> {
    match r.random_range(0..8) {
        0 => vec![0xff, 0xfe, 0x00],
        1 => vec![b'a'; 1000],
        _ => one_of(r, &WORDS).expect("words").as_bytes().to_vec(),
    }
}

fn float(r: &mut Random) -> f32 {
    const ODD: [f32; 12] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1e-30,
        1e30,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    match r.random_range(0..3) {
        0 => r.random_range(-4.0..4.0),
        1 => number(r) as f32,
        _ => ODD[r.random_range(0..ODD.len())],
    }
}

/// A type that is supported, or another.
fn element_type(r: &mut Random) -> i32 {
    match r.random_range(0..6) {
        0 => r.random_range(-1..30),
        _ => [1, 2, 3, 6, 7, 9, 10, 11, 16][r.random_range(0..9)],
    }
}

fn size(r: &mut Random) -> i64 {
    match r.random_range(0..6) {
        0 => number(r),
        _ => r.random_range(0..6),
    }
}

fn random_tensor(r: &mut Random, name: &str, dims: Vec<i64>, data_type: i32) -> TensorProto {
    let count = dims.iter().map(|d| *d as u64).fold(1, u64::saturating_mul);
    let count = count.min(256) as usize;
    let mut t = TensorProto {
        name: Some(name.into()),
        dims,
        data_type: Some(data_type),
        ..Default::default()
    };
    match data_type {
        1 => t.float_data = (0..count).map(|_| float(r)).collect(),
        7 => t.int64_data = (0..count).map(|_| number(r)).collect(),
        6 => t.int32_data = (0..count).map(|_| number(r) as i32).collect(),
        11 => t.double_data = (0..count).map(|_| f64::from(float(r))).collect(),
        9 => t.int32_data = (0..count).map(|_| r.random_range(0..2)).collect(),
        3 => t.int32_data = (0..count).map(|_| r.random_range(-128..128)).collect(),
        _ => t.int32_data = (0..count).map(|_| r.random_range(0..256)).collect(),
    }
    t
}

/// A tensor of its own.
pub fn tensor(r: &mut Random) -> TensorProto {
    let dims = (0..r.random_range(0..4)).map(|_| size(r)).collect();
    let data_type = element_type(r);
    let mut t = random_tensor(r, "t", dims, data_type);
    if r.random() {
        change_tensor(r, &mut t);
    }
    t
}

fn change_tensor(r: &mut Random, t: &mut TensorProto) {
    match r.random_range(0..10) {
        0 => t.data_type = Some(element_type(r)),
        1 => t.dims.push(size(r)),
        2 => drop(t.dims.pop()),
        3 if !t.dims.is_empty() => {
            let at = r.random_range(0..t.dims.len());
            t.dims[at] = size(r);
        }
        4 if !t.float_data.is_empty() => {
            let at = r.random_range(0..t.float_data.len());
            t.float_data[at] = float(r);
        }
        5 => t.data_location = Some(r.random_range(0..3)),
        6 => {
            let dims = vec![size(r); r.random_range(0..3)];
            let name = t.name().to_string();
            let data_type = element_type(r);
            *t = random_tensor(r, &name, dims, data_type);
        }
        _ if !t.int64_data.is_empty() => {
            let at = r.random_range(0..t.int64_data.len());
            t.int64_data[at] = number(r);
        }
        _ => {
            if let Some(raw) = &t.raw_data
                && raw.len() >= 8
            {
                let mut raw = raw.to_vec();
                let at = r.random_range(0..raw.len() / 8) * 8;
                let value = match r.random_range(0..3) {
                    0 => u64::from(float(r).to_bits()) << 32 | u64::from(float(r).to_bits()),
                    _ => number(r) as u64,
                };
                raw[at..at + 8].copy_from_slice(&value.to_le_bytes());
                t.raw_data = Some(raw.into());
            }
        }
    }
}

fn change_initializer(r: &mut Random, graph: &mut GraphProto) {
    let count = graph.initializer.len();
    if count > 0 {
        let at = r.random_range(0..count);
        change_tensor(r, &mut graph.initializer[at]);
    }
}

fn change_input(r: &mut Random, graph: &mut GraphProto) {
    let count = graph.input.len();
    if count == 0 {
        return;
    }
    let input = &mut graph.input[r.random_range(0..count)];
    let Some(ty) = input.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()) else {
        return;
    };
    let shape = ty.shape.get_or_insert_default();
    let sized = |size| Dimension {
        value: Some(Value::DimValue(size)),
    };
    match r.random_range(0..8) {
        0 => ty.elem_type = Some(element_type(r)),
        1 => shape.dim.push(sized(size(r))),
        2 => drop(shape.dim.pop()),
        3 => {
            let rank = r.random_range(0..7);
            shape.dim = (0..rank).map(|_| sized(size(r))).collect();
        }
        _ if !shape.dim.is_empty() => {
            let at = r.random_range(0..shape.dim.len());
            shape.dim[at] = sized(size(r));
        }
        _ => ty.shape = None,
    }
}

/// An input gets a value.
fn to_constant(r: &mut Random, graph: &mut GraphProto) {
    let count = graph.input.len();
    if count == 0 {
        return;
    }
    let input = graph.input.remove(r.random_range(0..count));
    let ty = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let shape = ty.and_then(|t| t.shape.as_ref());
    let dims = shape.map_or(vec![], |s| {
        let dim = |d: &Dimension| match d.value {
            Some(Value::DimValue(n)) => n,
            _ => 1,
        };
        s.dim.iter().map(dim).collect()
    });
    let data_type = ty.map_or(1, type_proto::Tensor::elem_type);
    let t = random_tensor(r, input.name(), dims, data_type);
    graph.initializer.push(t);
}

/// A constant becomes an input.
fn to_input(r: &mut Random, graph: &mut GraphProto) {
    let count = graph.initializer.len();
    if count == 0 {
        return;
    }
    let t = graph.initializer.remove(r.random_range(0..count));
    let dim = t.dims.iter().map(|d| Dimension {
        value: Some(Value::DimValue(*d)),
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor_type = Some(type_proto::Tensor {
        elem_type: t.data_type,
        shape,
    });
    graph.input.push(ValueInfoProto {
        name: t.name,
        r#type: Some(TypeProto { tensor_type }),
        ..Default::default()
    });
}

/// Puts the nodes of another model behind those of the first, on whose results they work.
fn join(model: &mut ModelProto, second: ModelProto) {
    let (Some(first), Some(mut second)) = (&mut model.graph, second.graph) else {
        return;
    };
    let made = first.node.last().and_then(|n| n.output.first()).cloned();
    let rename = |name: &mut String| {
        if !name.is_empty() {
            name.insert_str(0, "b_");
        }
    };
    for node in &mut second.node {
        node.input.iter_mut().for_each(rename);
        node.output.iter_mut().for_each(rename);
    }
    // The first input is what the first model makes.
    if !second.input.is_empty()
        && let Some(made) = made
    {
        let mut input = second.input.remove(0).name().to_string();
        rename(&mut input);
        let all = second.node.iter_mut().flat_map(|n| &mut n.input);
        for name in all.filter(|n| **n == input) {
            name.clone_from(&made);
        }
    }
    let all = second.input.iter_mut().chain(&mut second.output);
    for info in all {
        let mut name = info.name().to_string();
        rename(&mut name);
        info.name = Some(name);
    }
    for t in &mut second.initializer {
        let mut name = t.name().to_string();
        rename(&mut name);
        t.name = Some(name);
    }
    first.node.extend(second.node);
    first.input.extend(second.input);
    first.initializer.extend(second.initializer);
    first.output.extend(second.output);
}

/// Puts the nodes in loops in loops.
fn nest(r: &mut Random, model: &mut ModelProto) {
    let Some(graph) = &mut model.graph else {
        return;
    };
    let trips = TensorProto {
        name: Some("trips".into()),
        data_type: Some(7),
        int64_data: vec![[2, 3, 1000, i64::MAX][r.random_range(0..4)]],
        ..Default::default()
    };
    for level in 0..r.random_range(1..5) {
        let named = |name: &str| ValueInfoProto {
            name: Some(format!("{name}{level}")),
            ..Default::default()
        };
        let mut results = vec![named("on")];
        let made = graph.output.clone();
        results.extend(made);
        let body = GraphProto {
            name: Some("body".into()),
            node: std::mem::take(&mut graph.node),
            input: vec![named("i"), named("on")],
            output: results,
            ..Default::default()
        };
        let attribute = AttributeProto {
            name: Some("body".into()),
            g: Some(body),
            r#type: Some(5),
            ..Default::default()
        };
        graph.node.push(NodeProto {
            op_type: Some("Loop".into()),
            input: vec!["trips".into(), String::new()],
            output: graph.output.iter().map(|o| o.name().to_string()).collect(),
            attribute: vec![attribute],
            ..Default::default()
        });
    }
    graph.initializer.push(trips);
}
