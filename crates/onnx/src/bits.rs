//! Importer of BitCast: the same bits, read as another type.

use crate::node::{Imported, NodeImport, Problem};
use crate::tensors::dtype_of;
use graph::ValueId;
use graph::ops::Op;
use tensor::{DType, Tensor};

/// The type that the file gives a value.
fn declared(n: &NodeImport, x: ValueId) -> Result<DType, Problem> {
    match n.narrow.get(&x) {
        None => Ok(n.dtype(x)),
        Some(narrow) => match narrow.stored() {
            Some(stored) => Ok(stored),
            None => Problem::unsupported(format!("an input of type {}", narrow.name)),
        },
    }
}

/// The elements of a constant as the file has them.
fn elements(t: &Tensor, dtype: DType) -> Tensor {
    if t.dtype() == dtype {
        return t.clone();
    }
    let mut own = Tensor::zeros(dtype, t.shape());
    (0..t.len()).for_each(|i| own.set_i64(i, t.get_i64(i)));
    own
}

/// Integers of one width are the same bits modulo two to that width, which a cast keeps. Bits of floats are read of
/// constants only.
pub(crate) fn bit_cast(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let number = i32::try_from(n.attributes.int("to", 0)?).unwrap_or(0);
    let to = dtype_of(number).map_err(|e| Problem::Unsupported(e.to_string()))?;
    let from = declared(n, x)?;
    if from.size() != to.size() {
        return Problem::unsupported(format!(
            "{to} has {} bits and its input {from} has {}",
            to.bits(),
            from.bits()
        ));
    }
    if let Some(t) = n.model.constant(x).cloned() {
        let t = elements(&t, from);
        let Some(read) = Tensor::from_bytes(to, t.shape(), t.bytes()) else {
            return Problem::unsupported(format!("{:?} as {to}", t.shape()));
        };
        return Ok(vec![n.model.add_result(&n.name, read)]);
    }
    if from == to {
        return Ok(vec![x]);
    }
    if from.is_float() || to.is_float() {
        return Problem::unsupported(format!(
            "it reads the bits of {from} as {to} while the model runs, which only integers allow here"
        ));
    }
    Ok(vec![n.emit(Op::Cast(to), &[x])?])
}
