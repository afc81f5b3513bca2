//! What a file says about the types of its values, against what they are.

use crate::narrow::Narrow;
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
    allows(declared, shape, &[])
}

/// Along `open` axes every size is allowed.
fn allows(declared: &TensorShapeProto, shape: &[usize], open: &[usize]) -> bool {
    let fits = |(axis, d): (usize, &Dimension)| {
        open.contains(&axis) || size(d).is_none_or(|v| v as u64 == shape[axis] as u64)
    };
    declared.dim.len() == shape.len() && declared.dim.iter().enumerate().all(fits)
}

/// Whether a declared shape leaves a size open.
pub(crate) fn is_open(info: &ValueInfoProto) -> bool {
    let shape = tensor(info).and_then(|t| t.shape.as_ref());
    shape.is_some_and(|s| s.dim.iter().any(|d| size(d).is_none()))
}

/// In what a declaration contradicts its value.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Contradiction {
    ElementType,
    Shape,
}

/// The declared type, if a value of type `ty` contradicts it, and in what. What is not
/// declared allows anything, and so does every size along `open` axes. `narrow` is the type
/// that the value stands for, if no tensor has it.
pub(crate) fn contradicted(
    info: &ValueInfoProto,
    ty: &TensorType,
    narrow: Option<&Narrow>,
    open: &[usize],
) -> Option<(Contradiction, String)> {
    let declared = tensor(info)?;
    let (type_fits, mut text) = match declared.elem_type() {
        0 => (true, ty.dtype.to_string()),
        n if narrow.is_some_and(|t| t.number == n) => {
            (true, narrow.map_or(String::new(), |t| t.name.into()))
        }
        n => match element_type(n) {
            Ok(dtype) => (narrow.is_none() && dtype == ty.dtype, dtype.to_string()),
            Err(name) => (false, name),
        },
    };
    let shape = declared.shape.as_ref();
    let found = match type_fits {
        false => Contradiction::ElementType,
        true if shape.is_none_or(|s| allows(s, &ty.shape, open)) => return None,
        true => Contradiction::Shape,
    };
    if let Some(shape) = shape {
        let name = |d: &Dimension| match &d.value {
            Some(Dim::DimParam(name)) if !name.is_empty() => name.clone(),
            _ => size(d).map_or("?".into(), |n| n.to_string()),
        };
        let dims: Vec<_> = shape.dim.iter().map(name).collect();
        let _ = write!(text, "[{}]", dims.join(","));
    }
    Some((found, text))
}
