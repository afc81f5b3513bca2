//! Importers of what ONNX Runtime's optimiser writes for models that make images: normalised groups and convolutions
//! whose channels are last, and biases with what follows them.

use crate::attention::transposed;
use crate::composite::normalised;
use crate::fused::gated;
use crate::node::{Imported, NodeImport, Problem};
use crate::windows::{self, with_channels_last};
use graph::ValueId;
use graph::ops::{Binary, Gelu, Op, Softmax, Unary};
use tensor::DType;

pub(crate) fn group_norm(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    Ok(vec![of_groups(n, x)?])
}

/// The normalised groups of a sum, which is the second output.
pub(crate) fn skip_group_norm(n: &mut NodeImport) -> Imported {
    let (x, mut skip) = (n.input(0)?, n.input(3)?);
    let channels_last = n.attributes.flag("channels_last", true)?;
    let place = |shape: Vec<usize>| match (channels_last, shape.is_empty() || shape.len() > 2) {
        (_, true) => shape,
        (true, _) => [
            &shape[..shape.len() - 1],
            &[1, 1],
            &shape[shape.len() - 1..],
        ]
        .concat(),
        (false, _) => [&shape[..], &[1, 1]].concat(),
    };
    skip = n.reshape(skip, place(n.shape(skip)))?;
    let mut sum = n.binary(Binary::Add, x, skip)?;
    if let Some(bias) = n.optional(4) {
        let bias = n.reshape(bias, place(n.shape(bias)))?;
        sum = n.binary(Binary::Add, sum, bias)?;
    }
    Ok(vec![of_groups(n, sum)?, sum])
}

/// Groups of channels normalised, a scale and a bias a channel, and perhaps x sigmoid(x).
fn of_groups(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    let channels_last = n.attributes.flag("channels_last", true)?;
    let silu = match n.attributes.int("activation", 0)? {
        0 => false,
        1 => true,
        other => return Problem::unsupported(format!("activation={other}")),
    };
    let (dtype, groups) = (n.dtype(x), n.attributes.int("groups", 0)?);
    if n.ty(x).rank() != 4 {
        return Problem::unsupported(format!("its input is {}", n.ty(x)));
    }
    let mut y = n.cast(x, DType::F32)?;
    if channels_last {
        y = transposed(n, y, &[0, 3, 1, 2])?;
    }
    let shape = n.shape(y);
    let groups = match usize::try_from(groups) {
        Ok(g) if g > 0 && shape[1].is_multiple_of(g) => g,
        _ => return Problem::unsupported(format!("groups={groups} of {} channels", shape[1])),
    };
    let apart = vec![shape[0], groups, shape[1] / groups, shape[2], shape[3]];
    y = n.reshape(y, apart)?;
    y = normalised(n, y, 2, epsilon)?;
    y = n.reshape(y, shape.clone())?;
    for (i, op) in [(1, Binary::Mul), (2, Binary::Add)] {
        let operand = n.input(i)?;
        let operand = n.cast(operand, DType::F32)?;
        let operand = n.reshape(operand, vec![shape[1], 1, 1])?;
        y = n.binary(op, y, operand)?;
    }
    if silu {
        y = gated(n, y, 1.0)?;
    }
    if channels_last {
        y = transposed(n, y, &[0, 2, 3, 1])?;
    }
    n.cast(y, dtype)
}

/// x + bias + skip.
pub(crate) fn bias_add(n: &mut NodeImport) -> Imported {
    let (x, bias, skip) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let sum = n.binary(Binary::Add, x, bias)?;
    Ok(vec![n.binary(Binary::Add, sum, skip)?])
}

/// The first half of a sum times the Gelu of the second.
pub(crate) fn bias_split_gelu(n: &mut NodeImport) -> Imported {
    let (x, bias) = (n.input(0)?, n.input(1)?);
    let sum = n.binary(Binary::Add, x, bias)?;
    let width = n.shape(sum).last().copied().unwrap_or(0);
    if width == 0 || width % 2 == 1 {
        return Problem::unsupported(format!("its input is {}", n.ty(x)));
    }
    let half = width / 2;
    let left = crate::attention::columns(n, sum, 0, 1, half)?;
    let right = crate::attention::columns(n, sum, half, 1, half)?;
    let gate = n.unary(Unary::Gelu(Gelu::Exact), right)?;
    Ok(vec![n.binary(Binary::Mul, left, gate)?])
}

/// The softmax of a sum, along all axes from one on.
pub(crate) fn bias_softmax(n: &mut NodeImport) -> Imported {
    // The shapes tell where the bias is repeated.
    n.attributes.ignore(&["is_inner_broadcast"]);
    let (x, bias) = (n.input(0)?, n.input(1)?);
    let shape = n.shape(x);
    let axis = n.axis(n.attributes.int("axis", 1)?, shape.len())?;
    let sum = n.binary(Binary::Add, x, bias)?;
    if n.shape(sum) != shape {
        return Problem::unsupported(format!("a bias {} for {}", n.ty(bias), n.ty(x)));
    }
    let (outer, inner) = shape.split_at(axis);
    let rows = vec![outer.iter().product(), inner.iter().product()];
    let sum = n.reshape(sum, rows)?;
    let y = n.emit(Op::Softmax(Softmax { axis: 1 }), &[sum])?;
    Ok(vec![n.reshape(y, shape.clone())?])
}

/// x + bias + residual: nothing is dropped outside of training.
pub(crate) fn bias_dropout(n: &mut NodeImport) -> Imported {
    n.attributes.ignore(&["seed"]);
    let (x, bias) = (n.input(0)?, n.input(1)?);
    let mut y = n.binary(Binary::Add, x, bias)?;
    if let Some(residual) = n.optional(2) {
        y = n.binary(Binary::Add, y, residual)?;
    }
    n.optional(3);
    if n.constant_scalar(4, "training mode")?.unwrap_or(0.0) != 0.0 {
        return Problem::unsupported("it is in training mode");
    }
    let mut results = vec![y];
    if n.wants(1) {
        results.push(n.filled(DType::Bool, &n.shape(y), 1.0)?);
    }
    Ok(results)
}

/// A convolution of images whose channels are last; those of its weights are not.
pub(crate) fn conv(n: &mut NodeImport) -> Imported {
    with_channels_last(n, windows::conv)
}

/// As [`conv`], perhaps plus a tensor of such images, and an activation.
pub(crate) fn fused_conv(n: &mut NodeImport) -> Imported {
    if let Some(added) = n.optional(3) {
        let rank = n.ty(added).rank();
        if rank < 3 {
            return Problem::unsupported(format!("it adds {}", n.ty(added)));
        }
        let first = [&[0, rank - 1][..], &(1..rank - 1).collect::<Vec<_>>()].concat();
        n.inputs[3] = Some(transposed(n, added, &first)?);
    }
    with_channels_last(n, crate::fused::fused_conv)
}
