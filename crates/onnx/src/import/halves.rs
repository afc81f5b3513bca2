//! Operators of halves that are written out in several operators.

use crate::node::{Imported, NodeImport, is_half};
use std::collections::HashMap;
use tensor::DType;

/// An operator of halves that is written out in several operators, in f32: only its results,
/// of these types, are rounded to halves.
pub(super) fn in_f32(
    n: &mut NodeImport,
    import: fn(&mut NodeImport) -> Imported,
    types: &[DType],
) -> Imported {
    let given = n.inputs.clone();
    let mut wide = HashMap::new();
    for v in given.iter().flatten().copied() {
        if is_half(n.dtype(v)) && !wide.contains_key(&v) {
            wide.insert(v, n.widened(v, DType::F32)?);
        }
    }
    n.inputs = given
        .iter()
        .map(|v| v.map(|v| *wide.get(&v).unwrap_or(&v)))
        .collect();
    let results = import(n);
    n.inputs = given;
    let mut values = results?;
    for (i, (v, to)) in values.iter_mut().zip(types).enumerate() {
        if n.wants(i) {
            *v = match wide.iter().find(|(_, wide)| *wide == v) {
                // An operand that is passed through.
                Some((narrow, _)) => *narrow,
                None => n.cast(*v, *to)?,
            };
        }
    }
    Ok(values)
}
