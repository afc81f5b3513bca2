//! What a file says about the types of its values, against what they are.

use crate::proto::tensor_shape_proto::Dimension;
use crate::proto::tensor_shape_proto::dimension::Value as Dim;
use crate::proto::{TensorShapeProto, ValueInfoProto, type_proto};
use crate::tensors::element_type;
use graph::TensorType;
use std::fmt::Write;

fn size(d: &Dimension) -> Option<i64> {
    match d.value {
        Some(Dim::DimValue(n)) if n >= 0 => Some(n),
        _ => None,
    }
}

fn tensor(info: &ValueInfoProto) -> Option<&type_proto::Tensor> {
    info.r#type.as_ref()?.tensor_type.as_ref()
}

pub(crate) fn shape_allows(declared: &TensorShapeProto, shape: &[usize]) -> bool {
    let allows = |(d, n): (&Dimension, &usize)| size(d).is_none_or(|v| v as u64 == *n as u64);
    declared.dim.len() == shape.len() && declared.dim.iter().zip(shape).all(allows)
}

/// The declared type, if a value of type `ty` contradicts it. What is not
/// declared allows anything, and so does every shape unless `shapes` count.
pub(crate) fn contradicted(info: &ValueInfoProto, ty: &TensorType, shapes: bool) -> Option<String> {
    let declared = tensor(info)?;
    let (type_fits, mut text) = match declared.elem_type() {
        0 => (true, ty.dtype.to_string()),
        n => match element_type(n) {
            Ok(dtype) => (dtype == ty.dtype, dtype.to_string()),
            Err(name) => (false, name),
        },
    };
    let shape = declared.shape.as_ref();
    let shape_fits = !shapes || shape.is_none_or(|s| shape_allows(s, &ty.shape));
    if type_fits && shape_fits {
        return None;
    }
    if let Some(shape) = shape {
        let name = |d: &Dimension| match &d.value {
            Some(Dim::DimParam(name)) if !name.is_empty() => name.clone(),
            _ => size(d).map_or("?".into(), |n| n.to_string()),
        };
        let dims: Vec<_> = shape.dim.iter().map(name).collect();
        let _ = write!(text, "[{}]", dims.join(","));
    }
    Some(text)
}
