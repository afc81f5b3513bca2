//! Importers of the operators on bytes of com.microsoft that ONNX Runtime's quantiser writes:
//! their operands dequantised, the operator on floats, and its result quantised. Products of
//! such operands become products of bytes when the model is simplified.

use crate::node::{Imported, NodeImport, Problem};
use crate::quantized::{dequantized, quantized, zero_point};
use crate::windows;
use graph::ValueId;
use graph::ops::{Binary, Concat, Gemm, Op, PoolKind, Reduce, ReduceKind, Unary};
use tensor::DType;

/// Operand `i`, whose scale and zero point follow it.
fn operand(n: &mut NodeImport, i: usize, axis: i64) -> Result<ValueId, Problem> {
    let (q, scale) = (n.input(i)?, n.input(i + 1)?);
    let zero_point = zero_point(n, i + 2);
    dequantized(n, q, (scale, zero_point), axis)
}

/// A result whose scale is input `i`, and its zero point the next one; of type `like` if it
/// has none.
fn result(n: &mut NodeImport, y: ValueId, i: usize, like: ValueId) -> Imported {
    let scale = n.input(i)?;
    let to = n.dtype(n.optional(i + 1).unwrap_or(like));
    let zero_point = zero_point(n, i + 1);
    Ok(vec![quantized(n, y, (scale, zero_point), 1, to)?])
}

fn of_two(n: &mut NodeImport, op: Binary) -> Imported {
    let (a, b) = (operand(n, 0, 1)?, operand(n, 3, 1)?);
    let y = n.binary(op, a, b)?;
    let like = n.input(0)?;
    result(n, y, 6, like)
}

pub(crate) fn add(n: &mut NodeImport) -> Imported {
    of_two(n, Binary::Add)
}

pub(crate) fn mul(n: &mut NodeImport) -> Imported {
    of_two(n, Binary::Mul)
}

/// An operator of one operand; scale and zero point of the result are inputs 3 and 4.
fn of_one(n: &mut NodeImport, op: Op) -> Imported {
    let x = operand(n, 0, 1)?;
    let y = n.emit(op, &[x])?;
    let like = n.input(0)?;
    result(n, y, 3, like)
}

pub(crate) fn leaky_relu(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 0.01)?;
    of_one(n, Op::Unary(Unary::LeakyRelu { alpha }))
}

pub(crate) fn sigmoid(n: &mut NodeImport) -> Imported {
    of_one(n, Op::Unary(Unary::Sigmoid))
}

fn channels_first(n: &NodeImport) -> Result<(), Problem> {
    match n.attributes.int("channels_last", 0)? {
        0 => Ok(()),
        other => Problem::unsupported(format!("channels_last={other}")),
    }
}

pub(crate) fn average_pool(n: &mut NodeImport) -> Imported {
    channels_first(n)?;
    let count_include_pad = n.attributes.flag("count_include_pad", false)?;
    let kind = PoolKind::Average { count_include_pad };
    let pool = windows::pool_attributes(n, kind)?;
    of_one(n, Op::Pool(pool))
}

pub(crate) fn global_average_pool(n: &mut NodeImport) -> Imported {
    channels_first(n)?;
    let rank = n.shape(n.input(0)?).len();
    let mean = Reduce {
        kind: ReduceKind::Mean,
        axes: (2..rank).collect(),
        keepdims: true,
    };
    of_one(n, Op::Reduce(mean))
}

/// Scale and zero point of the result, then operands with theirs.
pub(crate) fn concat(n: &mut NodeImport) -> Imported {
    let mut parts = Vec::new();
    for i in (2..n.inputs.len()).step_by(3) {
        parts.push(operand(n, i, 1)?);
    }
    let Some(first) = parts.first() else {
        return Problem::unsupported("it has nothing to concatenate");
    };
    let axis = n.axis(n.attributes.int("axis", 0)?, n.shape(*first).len())?;
    let y = n.emit(Op::Concat(Concat { axis }), &parts)?;
    let like = n.input(2)?;
    result(n, y, 0, like)
}

/// alpha A' B' + C, where C is of sums of products; of floats without a scale of the result.
pub(crate) fn gemm(n: &mut NodeImport) -> Imported {
    let (trans_a, trans_b) = (
        n.attributes.flag("transA", false)?,
        n.attributes.flag("transB", false)?,
    );
    let alpha = n.attributes.float("alpha", 1.0)?;
    let (a, b) = (operand(n, 0, 1)?, operand(n, 3, i64::from(!trans_b))?);
    let mut inputs = vec![Some(a), Some(b)];
    if let Some(c) = n.optional(6) {
        let (a_scale, b_scale) = (n.input(1)?, n.input(4)?);
        let (a_scale, b_scale) = (n.cast(a_scale, DType::F32)?, n.cast(b_scale, DType::F32)?);
        let scale = n.binary(Binary::Mul, a_scale, b_scale)?;
        let alpha = n.filled(DType::F32, &[], f64::from(alpha))?;
        let scale = n.binary(Binary::Mul, scale, alpha)?;
        let c = n.cast(c, DType::F32)?;
        inputs.push(Some(n.binary(Binary::Mul, c, scale)?));
    }
    let beta = 1.0;
    let op = Gemm {
        alpha,
        beta,
        trans_a,
        trans_b,
    };
    let y = n.emit_all(Op::Gemm(op), &inputs)?[0];
    match n.optional(7) {
        Some(_) => {
            let like = n.input(0)?;
            result(n, y, 7, like)
        }
        None => Ok(vec![y]),
    }
}
