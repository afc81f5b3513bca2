//! What a file says about the types of its values, against what they are.

use super::proto::tensor_shape_proto::Dimension;
use super::proto::tensor_shape_proto::dimension::Value as Dim;
use super::proto::{TensorShapeProto, ValueInfoProto, type_proto};
use super::tensors::dtype_of;
use crate::model::TensorType;
use std::fmt::Write;

fn size(d: &Dimension) -> Option<i64> {
    match d.value {
        Some(Dim::DimValue(n)) if n >= 0 => Some(n),
        _ => None,
    }
}

/// Whether a declaration leaves a size open.
pub(super) fn is_open(info: &ValueInfoProto) -> bool {
    let shape = tensor(info).and_then(|t| t.shape.as_ref());
    shape.is_some_and(|s| s.dim.iter().any(|d| size(d).is_none()))
}

fn tensor(info: &ValueInfoProto) -> Option<&type_proto::Tensor> {
    info.r#type.as_ref()?.tensor_type.as_ref()
}

pub(super) fn shape_allows(declared: &TensorShapeProto, shape: &[usize]) -> bool {
    let allows = |(d, n): (&Dimension, &usize)| size(d).is_none_or(|v| v as u64 == *n as u64);
    declared.dim.len() == shape.len() && declared.dim.iter().zip(shape).all(allows)
}

/// The declared type, if a value of type `ty` contradicts it. What is not
/// declared allows anything, and so do all sizes unless `sizes` matter.
pub(super) fn contradicted(info: &ValueInfoProto, ty: &TensorType, sizes: bool) -> Option<String> {
    let declared = tensor(info)?;
    let dtype = match declared.elem_type() {
        0 => Ok(ty.dtype),
        n => dtype_of(n),
    };
    let fits = declared.shape.as_ref().is_none_or(|s| match sizes {
        true => shape_allows(s, &ty.shape),
        false => s.dim.len() == ty.shape.len(),
    });
    if fits && dtype.as_ref().is_ok_and(|d| *d == ty.dtype) {
        return None;
    }
    let mut text = dtype.map_or_else(
        |_| format!("type {}", declared.elem_type()),
        |d| d.to_string(),
    );
    if let Some(shape) = &declared.shape {
        let name = |d: &Dimension| match &d.value {
            Some(Dim::DimParam(name)) if !name.is_empty() => name.clone(),
            _ => size(d).map_or("?".into(), |n| n.to_string()),
        };
        let dims: Vec<_> = shape.dim.iter().map(name).collect();
        let _ = write!(text, "[{}]", dims.join(","));
    }
    Some(text)
}
