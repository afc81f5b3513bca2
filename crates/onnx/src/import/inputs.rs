//! Inputs of a graph: initialisers that become inputs, and the inputs that decide a value.

use crate::error::ImportError;
use crate::proto::tensor_shape_proto::{Dimension, dimension::Value as Dim};
use crate::proto::type_proto::Tensor;
use crate::proto::{GraphProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto};
use graph::{Model, Origin, ValueId};
use std::collections::BTreeSet;

/// Takes the values of these initialisers away, which makes them inputs. Some files declare such an input beside its value:
/// the value is its default there.
///
/// # Errors
/// If there is no initialiser of such a name.
pub(super) fn open(graph: &mut GraphProto, names: &BTreeSet<String>) -> Result<(), ImportError> {
    for name in names {
        let Some(at) = graph.initializer.iter().position(|t| t.name() == name) else {
            return Err(ImportError::Unused {
                option: format!("--open-input {name}"),
                reason: "the file has no initialiser of that name".into(),
            });
        };
        let value = graph.initializer.remove(at);
        if !graph.input.iter().any(|i| i.name() == name) {
            graph.input.push(declared(&value));
        }
    }
    Ok(())
}

/// The input that has the type of a value.
fn declared(value: &TensorProto) -> ValueInfoProto {
    let dim = |size: &i64| Dimension {
        value: Some(Dim::DimValue(*size)),
    };
    ValueInfoProto {
        name: Some(value.name().into()),
        r#type: Some(TypeProto {
            tensor_type: Some(Tensor {
                elem_type: Some(value.data_type()),
                shape: Some(TensorShapeProto {
                    dim: value.dims.iter().map(dim).collect(),
                }),
            }),
        }),
        ..Default::default()
    }
}

/// Floating-point inputs of up to this many elements may be sizes and scales, which `--const` can give.
const MOST_GIVEN: usize = 16;

/// Whether an input is what the model computes with, as an image is: no one would make it a constant.
pub(super) fn is_data(model: &Model, input: &str) -> bool {
    let ty = model.find_value(input).map(|v| model[v].ty());
    ty.is_some_and(|ty| ty.dtype.is_float() && ty.len() > MOST_GIVEN)
}

/// The graph inputs that a value is computed from.
pub(super) fn deciding(model: &Model, value: ValueId) -> Vec<String> {
    let mut seen = BTreeSet::from([value]);
    let mut open = vec![value];
    while let Some(v) = open.pop() {
        if let Origin::Node(node, _) = model[v].origin() {
            for input in model[*node].inputs.iter().flatten() {
                if seen.insert(*input) {
                    open.push(*input);
                }
            }
        }
    }
    let inputs = model.inputs().iter().filter(|v| seen.contains(v));
    inputs.map(|v| model[*v].name().to_string()).collect()
}
