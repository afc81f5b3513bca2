//! Writing models as ONNX, operator set 17.
//!
//! Promises that importing the bytes gives a model that computes the same:
//! attributes become what the operator set wants them to be (attributes or
//! constant operands), and what the set lacks is written in other operators.
//! Nodes that cannot be written are all listed in one error.

use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, tensor_shape_proto, type_proto,
};
use crate::resize::words;
use crate::tensors::data_type;
use graph::ops::{
    Binary, Col2Im, Combine, Conv, ConvInteger, ConvTranspose, Cumulative, CumulativeKind, Filter,
    Gelu, GridSample, IndexOrder, Interpolation, LayerNorm, Op, Outside, Pad, PadMode, Pool,
    PoolKind, Reduce, ReduceKind, Resize, Slice, Unary,
};
use graph::{Model, Node, ValueId};
use prost::Message;
use std::collections::HashSet;
use std::fmt;
use tensor::{DType, Tensor};
use thiserror::Error;

const OPSET: i64 = 17;
/// The first file format version with that operator set.
const IR_VERSION: i64 = 8;
/// A protocol buffer cannot be larger.
const LARGEST: usize = i32::MAX as usize;

/// A node that operator set 17 has no form for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inexpressible {
    pub node: String,
    pub op: &'static str,
    pub reason: String,
}

impl fmt::Display for Inexpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({}): {}", self.node, self.op, self.reason)
    }
}

/// Why a model cannot be written.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error(
        "{} nodes cannot be expressed in ONNX operator set 17:{}",
        .0.len(),
        .0.iter().map(|n| format!("\n  {n}")).collect::<String>()
    )]
    Nodes(Vec<Inexpressible>),
    #[error(
        "the model has {bytes} bytes, and an ONNX file without external data holds at most {LARGEST}"
    )]
    TooLarge { bytes: usize },
}

/// The model as an ONNX file.
///
/// # Errors
/// If a node has no form in the operator set, or the file would be too large.
pub fn export(model: &Model) -> Result<Vec<u8>, ExportError> {
    let mut writer = Writer::new(model);
    let mut problems = Vec::new();
    for (_, node) in model.nodes() {
        if let Err(reason) = writer.node(node) {
            problems.push(Inexpressible {
                node: node.name.clone(),
                op: node.op.name(),
                reason,
            });
        }
    }
    if !problems.is_empty() {
        return Err(ExportError::Nodes(problems));
    }
    let proto = writer.finish();
    let bytes = proto.encoded_len();
    if bytes > LARGEST {
        return Err(ExportError::TooLarge { bytes });
    }
    Ok(proto.encode_to_vec())
}

struct Writer<'a> {
    model: &'a Model,
    graph: GraphProto,
    names: HashSet<String>,
}

type Written = Result<(), String>;

impl<'a> Writer<'a> {
    fn new(model: &'a Model) -> Writer<'a> {
        let mut graph = GraphProto {
            name: Some(model.name.clone()),
            ..GraphProto::default()
        };
        graph.input = model
            .inputs()
            .iter()
            .map(|v| value_info(model, *v))
            .collect();
        graph.output = model
            .outputs()
            .iter()
            .map(|v| value_info(model, *v))
            .collect();
        for (v, t) in model.constants() {
            graph.initializer.push(tensor_proto(model[v].name(), t));
        }
        Writer {
            model,
            graph,
            names: model.values().map(|(_, v)| v.name().to_string()).collect(),
        }
    }

    fn finish(mut self) -> ModelProto {
        let reads = self.graph.node.iter().flat_map(|n| &n.input);
        let outputs = self.graph.output.iter().filter_map(|v| v.name.as_ref());
        let read: HashSet<&String> = reads.chain(outputs).collect();
        let is_read = |t: &TensorProto| t.name.as_ref().is_some_and(|n| read.contains(n));
        self.graph.initializer.retain(is_read);
        ModelProto {
            ir_version: Some(IR_VERSION),
            producer_name: Some("tunesmith".into()),
            graph: Some(self.graph),
            opset_import: vec![OperatorSetIdProto {
                domain: Some(String::new()),
                version: Some(OPSET),
            }],
            ..ModelProto::default()
        }
    }

    fn name(&self, v: ValueId) -> String {
        self.model[v].name().to_string()
    }

    fn fresh(&mut self, base: &str) -> String {
        let names = (0u64..).map(|i| format!("{base}.{i}"));
        let name = names.into_iter().find(|n| !self.names.contains(n));
        let name = name.expect("some number is free");
        self.names.insert(name.clone());
        name
    }

    fn constant(&mut self, base: &str, t: &Tensor) -> String {
        let name = self.fresh(base);
        self.graph.initializer.push(tensor_proto(&name, t));
        name
    }

    fn ints(&mut self, base: &str, values: &[i64]) -> String {
        self.constant(base, &Tensor::from_slice(&[values.len()], values))
    }

    fn scalar(&mut self, base: &str, dtype: DType, value: f64) -> String {
        let mut t = Tensor::zeros(dtype, &[]);
        t.set_f64(0, value);
        self.constant(base, &t)
    }

    fn push(
        &mut self,
        name: &str,
        op: &str,
        inputs: Vec<String>,
        outputs: Vec<String>,
        attribute: Vec<AttributeProto>,
    ) {
        self.graph.node.push(NodeProto {
            input: inputs,
            output: outputs,
            name: Some(name.to_string()),
            op_type: Some(op.to_string()),
            attribute,
            ..NodeProto::default()
        });
    }

    /// A helper node of one output, whose name it gives.
    fn part(&mut self, node: &Node, op: &str, inputs: &[&str]) -> String {
        let output = self.fresh(&node.name);
        let inputs = inputs.iter().map(ToString::to_string).collect();
        self.push(&output, op, inputs, vec![output.clone()], vec![]);
        output
    }

    fn node(&mut self, node: &Node) -> Written {
        let inputs = node.inputs.iter();
        let inputs: Vec<String> = inputs
            .map(|v| v.map_or(String::new(), |v| self.name(v)))
            .collect();
        let outputs: Vec<String> = node.outputs.iter().map(|v| self.name(*v)).collect();
        let dtype = node.input(0).map_or(DType::F32, |v| self.model[v].dtype());
        match &node.op {
            Op::Unary(u) => return self.unary(node, *u, inputs, outputs, dtype),
            Op::Reduce(r) if r.axes.is_empty() => {
                self.push(&node.name, "Identity", inputs, outputs, vec![]);
                return Ok(());
            }
            Op::Lookup => {
                let at = self.fresh(&node.name);
                let to = int("to", i64::from(data_type(DType::I32)));
                let x = vec![inputs[0].clone()];
                self.push(&at, "Cast", x, vec![at.clone()], vec![to]);
                let operands = vec![inputs[1].clone(), at];
                self.push(
                    &node.name,
                    "Gather",
                    operands,
                    outputs,
                    vec![int("axis", 0)],
                );
                return Ok(());
            }
            Op::LayerNorm(l) => {
                if let Some(scale) = self.channel_scale(node, l) {
                    return self.instance_norm(node, l.epsilon, scale, inputs, outputs);
                }
            }
            _ => {}
        }
        let mut inputs = inputs;
        self.operands(node, &mut inputs, dtype)?;
        let shape = node.input(0).map_or(&[][..], |v| self.model[v].shape());
        let (op, attributes) = operator(node, dtype, shape)?;
        let mut outputs = outputs;
        if matches!(node.op, Op::TopK(_)) {
            // The values come before their positions.
            outputs.insert(0, self.fresh(&node.name));
        }
        self.push(&node.name, op, inputs, outputs, attributes);
        Ok(())
    }

    /// Appends the operands that are attributes here.
    fn operands(&mut self, node: &Node, inputs: &mut Vec<String>, dtype: DType) -> Written {
        let base = &node.name;
        match &node.op {
            Op::Reshape(r) => inputs.push(self.ints(base, &sizes(&r.shape))),
            Op::Cumulative(c) => inputs.push(self.scalar(base, DType::I64, c.axis as f64)),
            Op::TopK(t) => inputs.push(self.ints(base, &[t.k as i64])),
            Op::Expand(e) => inputs.push(self.ints(base, &sizes(&e.shape))),
            Op::Split(s) => inputs.push(self.ints(base, &sizes(&s.sizes))),
            Op::Col2Im(c) => {
                inputs.push(self.ints(base, &sizes(&c.image)));
                inputs.push(self.ints(base, &sizes(&c.window)));
            }
            Op::Reduce(Reduce {
                kind: ReduceKind::Sum,
                axes,
                ..
            }) => inputs.push(self.ints(base, &sizes(axes))),
            Op::Slice(s) => {
                for list in slice_operands(s) {
                    inputs.push(self.ints(base, &list));
                }
            }
            Op::Resize(_) => {
                let result = self.model[node.output()].shape();
                let size = self.ints(base, &sizes(result));
                inputs.extend([String::new(), String::new(), size]);
            }
            Op::Pad(Pad { mode, pads }) => {
                let before = pads.iter().map(|p| p.0);
                let all: Vec<i64> = before.chain(pads.iter().map(|p| p.1)).collect();
                inputs.push(self.ints(base, &all));
                if let PadMode::Constant(v) = mode {
                    inputs.push(self.scalar(base, dtype, *v));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn unary(
        &mut self,
        node: &Node,
        u: Unary,
        mut inputs: Vec<String>,
        outputs: Vec<String>,
        dtype: DType,
    ) -> Written {
        let mut attributes = Vec::new();
        let op = match u {
            Unary::Gelu(kind) => {
                self.gelu(node, kind, &inputs[0], outputs, dtype);
                return Ok(());
            }
            Unary::Clip { min, max } => {
                for bound in [min, max] {
                    inputs.push(bound.map_or(String::new(), |v| self.scalar(&node.name, dtype, v)));
                }
                "Clip"
            }
            Unary::LeakyRelu { alpha } => {
                attributes.push(float("alpha", alpha));
                "LeakyRelu"
            }
            Unary::HardSigmoid { alpha, beta } => {
                attributes.extend([float("alpha", alpha), float("beta", beta)]);
                "HardSigmoid"
            }
            Unary::Neg => "Neg",
            Unary::Abs => "Abs",
            Unary::Sign => "Sign",
            Unary::Relu => "Relu",
            Unary::Sigmoid => "Sigmoid",
            Unary::HardSwish => "HardSwish",
            Unary::Tanh => "Tanh",
            Unary::Sin => "Sin",
            Unary::Cos => "Cos",
            Unary::Tan => "Tan",
            Unary::Asin => "Asin",
            Unary::Acos => "Acos",
            Unary::Atan => "Atan",
            Unary::Sinh => "Sinh",
            Unary::Cosh => "Cosh",
            Unary::Asinh => "Asinh",
            Unary::Acosh => "Acosh",
            Unary::Atanh => "Atanh",
            Unary::Erf => "Erf",
            Unary::Sqrt => "Sqrt",
            Unary::Exp => "Exp",
            Unary::Log => "Log",
            Unary::Reciprocal => "Reciprocal",
            Unary::Floor => "Floor",
            Unary::Ceil => "Ceil",
            Unary::Round => "Round",
            Unary::Not => "Not",
        };
        self.push(&node.name, op, inputs, outputs, attributes);
        Ok(())
    }

    /// The one constant that a normalisation over all axes from 2 on is scaled by: then it
    /// is an InstanceNormalization, for which runtimes have better kernels than for a layer
    /// normalisation whose scale broadcasts.
    fn channel_scale(&self, node: &Node, l: &LayerNorm) -> Option<f64> {
        let x = self.model[node.input(0)?].ty();
        let scale = self.model.constant(node.input(1)?)?;
        let fits = l.axis == 2 && x.rank() > 2 && scale.len() == 1;
        let has_kernel = matches!(x.dtype, DType::F16 | DType::F32 | DType::F64);
        let alone = node.input(2).is_none() && !l.statistics;
        (fits && has_kernel && alone).then(|| scale.get_f64(0))
    }

    fn instance_norm(
        &mut self,
        node: &Node,
        epsilon: f32,
        scale: f64,
        inputs: Vec<String>,
        outputs: Vec<String>,
    ) -> Written {
        let x = node.input(0).ok_or("its operand is missing")?;
        let ty = self.model[x].ty();
        let (dtype, channels) = (ty.dtype, ty.shape[1]);
        let mut inputs = inputs;
        inputs.truncate(1);
        for value in [scale, 0.0] {
            let mut all = Tensor::zeros(dtype, &[channels]);
            (0..channels).for_each(|c| all.set_f64(c, value));
            inputs.push(self.constant(&node.name, &all));
        }
        let attributes = vec![float("epsilon", epsilon)];
        self.push(
            &node.name,
            "InstanceNormalization",
            inputs,
            outputs,
            attributes,
        );
        Ok(())
    }

    /// The operator set has no GELU of its own.
    fn gelu(&mut self, node: &Node, kind: Gelu, x: &str, outputs: Vec<String>, dtype: DType) {
        let mut c = |v: f64| self.scalar(&node.name, dtype, v);
        let (one, half) = (c(1.0), c(0.5));
        let inner = match kind {
            Gelu::Exact => {
                let root = c(std::f64::consts::SQRT_2);
                let scaled = self.part(node, "Div", &[x, &root]);
                self.part(node, "Erf", &[&scaled])
            }
            Gelu::Tanh => {
                let (three, factor) = (c(3.0), c(0.044715));
                let scale = c((2.0 / std::f64::consts::PI).sqrt());
                let cube = self.part(node, "Pow", &[x, &three]);
                let cube = self.part(node, "Mul", &[&cube, &factor]);
                let sum = self.part(node, "Add", &[x, &cube]);
                let sum = self.part(node, "Mul", &[&sum, &scale]);
                self.part(node, "Tanh", &[&sum])
            }
        };
        let gate = self.part(node, "Add", &[&inner, &one]);
        let gated = self.part(node, "Mul", &[x, &gate]);
        self.push(&node.name, "Mul", vec![gated, half], outputs, vec![]);
    }
}

/// Starts, ends, axes, steps.
fn slice_operands(s: &Slice) -> [Vec<i64>; 4] {
    let axes: Vec<i64> = (0..s.starts.len() as i64).collect();
    let end = |d: usize| {
        let end = s.starts[d] as i64 + s.sizes[d] as i64 * s.steps[d];
        // A negative end would count from the back; this one lies before the front.
        if end < 0 { i64::MIN } else { end }
    };
    let ends = (0..s.starts.len()).map(end).collect();
    [sizes(&s.starts), ends, axes, s.steps.clone()]
}

/// Why an operator whose results have places to spare is not written.
const PADDED: &str = "ONNX has no operator that gives as many elements as there can be";

/// The ONNX operator and its attributes.
/// `shape` is that of the first operand.
fn operator(
    node: &Node,
    dtype: DType,
    shape: &[usize],
) -> Result<(&'static str, Vec<AttributeProto>), String> {
    let axis = |a: usize| vec![int("axis", a as i64)];
    Ok(match &node.op {
        Op::Identity | Op::Dropout(_) => ("Identity", vec![]),
        Op::Unary(_) | Op::Lookup => unreachable!("they are written apart"),
        Op::Binary(b) => binary(*b, dtype)?,
        Op::Where => ("Where", vec![]),
        Op::Cast(to) => ("Cast", vec![int("to", i64::from(data_type(*to)))]),
        Op::Conv(c) => ("Conv", conv(c)),
        Op::ConvInteger(c) => ("ConvInteger", conv_integer(c)?),
        Op::ConvTranspose(c) => ("ConvTranspose", conv_transpose(c)?),
        Op::Col2Im(c) => ("Col2Im", col2im(c)),
        Op::MatMul => ("MatMul", vec![]),
        Op::MatMulInteger => ("MatMulInteger", vec![]),
        Op::Gemm(g) => (
            "Gemm",
            vec![
                float("alpha", g.alpha),
                float("beta", g.beta),
                int("transA", i64::from(g.trans_a)),
                int("transB", i64::from(g.trans_b)),
            ],
        ),
        Op::Contract(c) => ("Einsum", vec![text("equation", &c.equation())]),
        Op::BatchNorm(b) => ("BatchNormalization", vec![float("epsilon", b.epsilon)]),
        Op::LayerNorm(l) => (
            "LayerNormalization",
            [axis(l.axis), vec![float("epsilon", l.epsilon)]].concat(),
        ),
        Op::Lrn(l) => (
            "LRN",
            vec![
                int("size", l.size as i64),
                float("alpha", l.alpha),
                float("beta", l.beta),
                float("bias", l.bias),
            ],
        ),
        Op::Softmax(s) => ("Softmax", axis(s.axis)),
        Op::Pool(p) => pool(p)?,
        Op::Resize(r) => ("Resize", resize(r, shape)?),
        Op::Reduce(r) => reduce(r),
        Op::ArgReduce(r) => (
            if r.max { "ArgMax" } else { "ArgMin" },
            vec![
                int("axis", r.axis as i64),
                int("keepdims", i64::from(r.keepdims)),
                int("select_last_index", i64::from(r.last)),
            ],
        ),
        Op::Cumulative(c) => cumulative(*c)?,
        Op::Concat(c) => ("Concat", axis(c.axis)),
        Op::Split(s) => ("Split", axis(s.axis)),
        Op::Slice(_) => ("Slice", vec![]),
        Op::Pad(p) => ("Pad", vec![text("mode", pad_mode(p.mode)?)]),
        Op::Reshape(_) => ("Reshape", vec![int("allowzero", 1)]),
        Op::Transpose(t) => ("Transpose", vec![ints("perm", sizes(&t.perm))]),
        Op::Expand(_) => ("Expand", vec![]),
        Op::Gather(g) => ("Gather", axis(g.axis)),
        Op::GatherElements(g) => ("GatherElements", axis(g.axis)),
        Op::GatherNd(g) => ("GatherND", vec![int("batch_dims", g.batch as i64)]),
        Op::ScatterElements(s) => {
            let reduction = text("reduction", combine(s.combine)?);
            ("ScatterElements", [axis(s.axis), vec![reduction]].concat())
        }
        Op::ScatterNd(s) => ("ScatterND", vec![text("reduction", combine(s.combine)?)]),
        Op::TopK(t) => {
            let largest = int("largest", i64::from(t.largest));
            ("TopK", [axis(t.axis), vec![largest]].concat())
        }
        Op::GridSample(g) => ("GridSample", grid_sample(*g, shape.len())?),
        Op::MatMulBlocks(_) => Err("export the model before its weights are packed")?,
        Op::Positions | Op::Suppress(_) => Err(PADDED)?,
        Op::MaxPoolGradient(_) => Err("ONNX has no gradients")?,
    })
}

fn cumulative(c: Cumulative) -> Result<(&'static str, Vec<AttributeProto>), String> {
    if c.kind == CumulativeKind::Prod {
        return Err(format!(
            "operator set {OPSET} has no product up to each element"
        ));
    }
    let flags = [("exclusive", c.exclusive), ("reverse", c.reverse)];
    let flags = flags.map(|(name, value)| int(name, i64::from(value)));
    Ok(("CumSum", flags.to_vec()))
}

fn binary(b: Binary, dtype: DType) -> Result<(&'static str, Vec<AttributeProto>), String> {
    Ok(match b {
        Binary::Add => ("Add", vec![]),
        Binary::Sub => ("Sub", vec![]),
        Binary::Mul => ("Mul", vec![]),
        Binary::Div => ("Div", vec![]),
        Binary::Mod if dtype.is_float() => {
            return Err("for floats, ONNX has only the remainder with the dividend's sign".into());
        }
        Binary::Mod => ("Mod", vec![]),
        Binary::Fmod => ("Mod", vec![int("fmod", 1)]),
        Binary::Pow => ("Pow", vec![]),
        Binary::Min => ("Min", vec![]),
        Binary::Max => ("Max", vec![]),
        Binary::Equal => ("Equal", vec![]),
        Binary::Less => ("Less", vec![]),
        Binary::LessOrEqual => ("LessOrEqual", vec![]),
        Binary::Greater => ("Greater", vec![]),
        Binary::GreaterOrEqual => ("GreaterOrEqual", vec![]),
        Binary::And => ("And", vec![]),
        Binary::Or => ("Or", vec![]),
        Binary::Xor => ("Xor", vec![]),
        Binary::ShiftLeft if dtype == DType::U8 => ("BitShift", vec![text("direction", "LEFT")]),
        Binary::ShiftRight if dtype == DType::U8 => ("BitShift", vec![text("direction", "RIGHT")]),
        Binary::BitAnd
        | Binary::BitOr
        | Binary::BitXor
        | Binary::ShiftLeft
        | Binary::ShiftRight => {
            return Err(format!("it has no operator for the bits of {dtype}"));
        }
    })
}

fn combine(c: Combine) -> Result<&'static str, String> {
    match c {
        Combine::Replace => Ok("none"),
        Combine::Add => Ok("add"),
        Combine::Mul => Ok("mul"),
        Combine::Max | Combine::Min => Err("it scatters no maximum or minimum".into()),
    }
}

fn grid_sample(g: GridSample, rank: usize) -> Result<Vec<AttributeProto>, String> {
    if rank != 4 {
        return Err("it samples images of two axes only".into());
    }
    let mode = match g.interpolation {
        Interpolation::Nearest => "nearest",
        Interpolation::Linear => "bilinear",
        Interpolation::Largest => return Err("it samples no largest products".into()),
        Interpolation::Cubic => "bicubic",
    };
    let padding = match g.outside {
        Outside::Zeros => "zeros",
        Outside::Border => "border",
        Outside::Reflection => "reflection",
    };
    Ok(vec![
        text("mode", mode),
        text("padding_mode", padding),
        int("align_corners", i64::from(g.align_corners)),
    ])
}

/// Befores, then afters.
fn pads(pads: &[(usize, usize)]) -> AttributeProto {
    let befores = pads.iter().map(|p| p.0 as i64);
    ints(
        "pads",
        befores.chain(pads.iter().map(|p| p.1 as i64)).collect(),
    )
}

fn conv(c: &Conv) -> Vec<AttributeProto> {
    vec![
        ints("strides", sizes(&c.strides)),
        ints("dilations", sizes(&c.dilations)),
        pads(&c.pads),
        int("group", c.groups as i64),
    ]
}

fn conv_integer(c: &ConvInteger) -> Result<Vec<AttributeProto>, String> {
    match c.outside {
        0 => Ok(conv(&c.conv)),
        value => Err(format!(
            "its image is {value} outside of its borders, which ONNX cannot express"
        )),
    }
}

fn col2im(c: &Col2Im) -> Vec<AttributeProto> {
    let before = c.pads.iter().map(|p| p.0 as i64);
    let after = c.pads.iter().map(|p| p.1 as i64);
    vec![
        ints("strides", sizes(&c.strides)),
        ints("dilations", sizes(&c.dilations)),
        ints("pads", before.chain(after).collect()),
    ]
}

fn conv_transpose(c: &ConvTranspose) -> Result<Vec<AttributeProto>, String> {
    let mut cuts = Vec::new();
    let mut extra = sizes(&c.output_padding);
    for (d, (before, after)) in c.pads.iter().enumerate() {
        let Ok(before) = usize::try_from(*before) else {
            return Err(
                "its negative padding would add elements in front, which ONNX cannot express"
                    .into(),
            );
        };
        extra[d] += (-after).max(0);
        if extra[d] > 0 && extra[d] >= (c.strides[d].max(c.dilations[d])) as i64 {
            return Err(
                "it adds at least as many elements as its stride, which ONNX does not allow".into(),
            );
        }
        cuts.push((before, (*after).max(0) as usize));
    }
    Ok(vec![
        ints("strides", sizes(&c.strides)),
        ints("dilations", sizes(&c.dilations)),
        pads(&cuts),
        ints("output_padding", extra),
        int("group", c.groups as i64),
    ])
}

fn resize(r: &Resize, shape: &[usize]) -> Result<Vec<AttributeProto>, String> {
    if r.antialias {
        return Err("it is anti-aliased, which a later operator set has".into());
    }
    let [mode, coordinates, rounding] = words(r, shape)?;
    let mut attributes = vec![
        text("mode", mode),
        text("coordinate_transformation_mode", coordinates),
        int("exclude_outside", i64::from(r.exclude_outside)),
    ];
    match r.filter {
        Filter::Nearest(_) => attributes.push(text("nearest_mode", rounding)),
        Filter::Cubic { a } => attributes.push(float("cubic_coeff_a", a)),
        Filter::Linear => {}
    }
    Ok(attributes)
}

fn pool(p: &Pool) -> Result<(&'static str, Vec<AttributeProto>), String> {
    let mut attributes = vec![
        ints("kernel_shape", sizes(&p.kernel)),
        ints("strides", sizes(&p.strides)),
        pads(&p.pads),
        int("ceil_mode", i64::from(p.ceil_mode)),
    ];
    match p.kind {
        PoolKind::Max { indices } => {
            attributes.push(ints("dilations", sizes(&p.dilations)));
            if indices == Some(IndexOrder::Window) {
                return Err("ONNX counts positions of maxima in the image".into());
            }
            if let Some(order) = indices {
                let order = i64::from(order == IndexOrder::ColumnMajor);
                attributes.push(int("storage_order", order));
            }
            Ok(("MaxPool", attributes))
        }
        PoolKind::Average { count_include_pad } => {
            if p.dilations.iter().any(|d| *d != 1) {
                return Err("average pooling with dilations needs operator set 19".into());
            }
            attributes.push(int("count_include_pad", i64::from(count_include_pad)));
            Ok(("AveragePool", attributes))
        }
    }
}

fn reduce(r: &Reduce) -> (&'static str, Vec<AttributeProto>) {
    let keepdims = int("keepdims", i64::from(r.keepdims));
    let axes = ints("axes", sizes(&r.axes));
    match r.kind {
        ReduceKind::Sum => ("ReduceSum", vec![keepdims]),
        ReduceKind::Mean => ("ReduceMean", vec![keepdims, axes]),
        ReduceKind::Prod => ("ReduceProd", vec![keepdims, axes]),
        ReduceKind::Max => ("ReduceMax", vec![keepdims, axes]),
        ReduceKind::Min => ("ReduceMin", vec![keepdims, axes]),
    }
}

fn pad_mode(mode: PadMode) -> Result<&'static str, String> {
    match mode {
        PadMode::Constant(_) => Ok("constant"),
        PadMode::Reflect => Ok("reflect"),
        PadMode::Edge => Ok("edge"),
        PadMode::Wrap => Err("wrap padding needs operator set 19".into()),
    }
}

fn sizes(list: &[usize]) -> Vec<i64> {
    list.iter().map(|n| *n as i64).collect()
}

// The numbers are AttributeProto.AttributeType.
fn attribute(name: &str, kind: i32) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_string()),
        r#type: Some(kind),
        ..AttributeProto::default()
    }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto {
        f: Some(f),
        ..attribute(name, 1)
    }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        i: Some(i),
        ..attribute(name, 2)
    }
}

fn text(name: &str, s: &str) -> AttributeProto {
    AttributeProto {
        s: Some(s.as_bytes().to_vec()),
        ..attribute(name, 3)
    }
}

fn ints(name: &str, ints: Vec<i64>) -> AttributeProto {
    AttributeProto {
        ints,
        ..attribute(name, 7)
    }
}

fn tensor_proto(name: &str, t: &Tensor) -> TensorProto {
    TensorProto {
        dims: sizes(t.shape()),
        data_type: Some(data_type(t.dtype())),
        name: Some(name.to_string()),
        raw_data: Some(t.bytes().to_vec().into()),
        ..TensorProto::default()
    }
}

fn value_info(model: &Model, v: ValueId) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let value = &model[v];
    let dim = |n: &usize| Dimension {
        value: Some(Value::DimValue(*n as i64)),
    };
    ValueInfoProto {
        name: Some(value.name().to_string()),
        r#type: Some(TypeProto {
            tensor_type: Some(type_proto::Tensor {
                elem_type: Some(data_type(value.dtype())),
                shape: Some(TensorShapeProto {
                    dim: value.shape().iter().map(dim).collect(),
                }),
            }),
        }),
        ..ValueInfoProto::default()
    }
}
