//! Building small ONNX models for tests, here and of crate `plan`.

#![allow(dead_code, reason = "each test file uses a part of this")]

use graph::{Keep, Model, ValueId, evaluate};
use onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto,
    tensor_shape_proto::{Dimension, dimension},
    type_proto,
};
use onnx::{ImportError, ImportOptions, import_bytes};
use prost::Message;
use std::sync::Arc;
use tensor::Tensor;

pub const F32: i32 = 1;
pub const I64: i32 = 7;

pub enum Size {
    Known(i64),
    Named(&'static str),
    Open,
}

pub fn value(name: &str, elem_type: i32, shape: &[Size]) -> ValueInfoProto {
    let dim = shape
        .iter()
        .map(|s| Dimension {
            value: match s {
                Size::Known(n) => Some(dimension::Value::DimValue(*n)),
                Size::Named(n) => Some(dimension::Value::DimParam(n.to_string())),
                Size::Open => None,
            },
        })
        .collect();
    let shape = Some(TensorShapeProto { dim });
    let tensor_type = Some(type_proto::Tensor {
        elem_type: Some(elem_type),
        shape,
    });
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { tensor_type }),
        ..Default::default()
    }
}

pub fn known(name: &str, elem_type: i32, shape: &[i64]) -> ValueInfoProto {
    let shape: Vec<_> = shape.iter().map(|n| Size::Known(*n)).collect();
    value(name, elem_type, &shape)
}

/// A value of which the file says nothing but the name.
pub fn undeclared(name: &str) -> ValueInfoProto {
    ValueInfoProto {
        name: Some(name.into()),
        ..Default::default()
    }
}

pub fn node(
    op: &str,
    inputs: &[&str],
    outputs: &[&str],
    attribute: Vec<AttributeProto>,
) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        name: Some(format!("the {op}")),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        attribute,
        ..Default::default()
    }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        i: Some(i),
        r#type: Some(2),
        ..Default::default()
    }
}

pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        ints: ints.to_vec(),
        r#type: Some(7),
        ..Default::default()
    }
}

pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        f: Some(f),
        r#type: Some(1),
        ..Default::default()
    }
}

pub fn text(name: &str, s: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        s: Some(s.into()),
        r#type: Some(3),
        ..Default::default()
    }
}

pub fn int64s(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![values.len() as i64],
        data_type: Some(I64),
        int64_data: values.to_vec(),
        ..Default::default()
    }
}

/// One number without axes.
pub fn scalar(name: &str, value: i64) -> TensorProto {
    TensorProto {
        dims: vec![],
        ..int64s(name, &[value])
    }
}

pub fn floats(name: &str, shape: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: shape.to_vec(),
        data_type: Some(F32),
        float_data: values.to_vec(),
        ..Default::default()
    }
}

/// A tensor of f32 as a constant of a file.
pub fn proto(name: &str, t: &Tensor) -> TensorProto {
    let shape: Vec<i64> = t.shape().iter().map(|n| *n as i64).collect();
    floats(name, &shape, t.as_slice::<f32>())
}

pub fn file(opset: i64, graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: None,
            version: Some(opset),
        }],
        graph: Some(graph),
        ..Default::default()
    }
}

/// A model of one node that reads `x` (f32) and constants, and makes `y`.
pub fn one_node(
    opset: i64,
    shape: &[i64],
    node: NodeProto,
    constants: Vec<TensorProto>,
) -> ModelProto {
    let outputs = node.output.iter().map(|o| undeclared(o)).collect();
    file(
        opset,
        GraphProto {
            name: Some("g".into()),
            node: vec![node],
            input: vec![known("x", F32, shape)],
            output: outputs,
            initializer: constants,
            ..Default::default()
        },
    )
}

pub fn import(model: &ModelProto) -> Result<Model, ImportError> {
    import_with(model, &ImportOptions::default())
}

pub fn import_with(model: &ModelProto, options: &ImportOptions) -> Result<Model, ImportError> {
    import_bytes(&model.encode_to_vec(), None, options)
}

/// Imports and runs, each input being 0, 1, 2, …
pub fn outputs(model: &ModelProto) -> Vec<Arc<Tensor>> {
    let m = import(model).unwrap();
    m.verify().unwrap();
    let ramp = |v: &ValueId| {
        let shape = m[*v].shape();
        let count: usize = shape.iter().product();
        let ramp: Vec<f32> = (0..count).map(|i| i as f32).collect();
        Arc::new(Tensor::from_slice(shape, &ramp))
    };
    let inputs: Vec<_> = m.inputs().iter().map(ramp).collect();
    evaluate(&m, &inputs, Keep::Outputs).unwrap().outputs()
}

pub fn output(model: &ModelProto) -> (Vec<usize>, Vec<f32>) {
    let y = outputs(model).remove(0);
    (y.shape().to_vec(), y.as_slice::<f32>().to_vec())
}

/// All elements.
pub fn floats_of(t: &Tensor) -> Vec<f64> {
    (0..t.len()).map(|i| t.get_f64(i)).collect()
}
