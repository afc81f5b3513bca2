//! Importers of normalisations and softmax.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{BatchNorm, Binary, LayerNorm, Lrn, Op, Reduce, ReduceKind, Softmax, Unary};

pub(crate) fn batch_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    let momentum = n.attributes.float("momentum", 0.9)?;
    if n.attributes.flag("training_mode", false)? {
        return batch_statistics(n, epsilon, momentum);
    }
    if (1..5).any(|i| n.wants(i)) {
        return Problem::unsupported("it is in training mode");
    }
    if !n.attributes.flag("spatial", true)? {
        return of_each_element(n, epsilon);
    }
    let inputs = [
        n.input(0)?,
        n.input(1)?,
        n.input(2)?,
        n.input(3)?,
        n.input(4)?,
    ];
    Ok(vec![n.emit(Op::BatchNorm(BatchNorm { epsilon }), &inputs)?])
}

/// Of operator set 7 and 8 without `spatial`: every element of an image has its own statistics, scale and bias.
fn of_each_element(n: &mut NodeImport, epsilon: f32) -> Imported {
    let x = n.input(0)?;
    let element = n.shape(x).split_off(1);
    let parameter = |n: &NodeImport, i: usize| {
        let v = n.input(i)?;
        match n.shape(v) == element {
            true => Ok(v),
            false => Problem::unsupported(format!(
                "spatial=0, and its operand {i} is {} with images {element:?}",
                n.ty(v)
            )),
        }
    };
    let (scale, bias) = (parameter(n, 1)?, parameter(n, 2)?);
    let (mean, variance) = (parameter(n, 3)?, parameter(n, 4)?);
    let epsilon = n.filled(n.dtype(variance), &[], f64::from(epsilon))?;
    let variance = n.binary(Binary::Add, variance, epsilon)?;
    let deviation = n.unary(Unary::Sqrt, variance)?;
    let scale = n.binary(Binary::Div, scale, deviation)?;
    let from_mean = n.binary(Binary::Sub, x, mean)?;
    let y = n.binary(Binary::Mul, from_mean, scale)?;
    Ok(vec![n.binary(Binary::Add, y, bias)?])
}

/// With the mean and variance of its operand, as weights are standardised by; then the given
/// ones with a share of these.
fn batch_statistics(n: &mut NodeImport, epsilon: f32, momentum: f32) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    if shape.len() < 2 || n.ty(x).is_empty() {
        return Problem::unsupported(format!("its operand is {}", n.ty(x)));
    }
    let mean_of = |n: &mut NodeImport, x: ValueId, keepdims: bool| {
        let axes = (0..shape.len()).filter(|d| *d != 1).collect();
        let kind = ReduceKind::Mean;
        let reduce = Reduce {
            kind,
            axes,
            keepdims,
        };
        n.emit(Op::Reduce(reduce), &[x])
    };
    let mean = mean_of(n, x, true)?;
    let from_mean = n.binary(Binary::Sub, x, mean)?;
    let square = n.binary(Binary::Mul, from_mean, from_mean)?;
    let variance = mean_of(n, square, false)?;
    let mean = n.reshape(mean, vec![shape[1]])?;
    let given = [n.input(3)?, n.input(4)?];
    let inputs = match n.training {
        // A training step takes the statistics of the batch, and moves the given ones.
        true => [x, n.input(1)?, n.input(2)?, given[0], given[1]],
        false => [x, n.input(1)?, n.input(2)?, mean, variance],
    };
    let mut results = vec![n.emit(Op::BatchNorm(BatchNorm { epsilon }), &inputs)?];
    for (i, (old, new)) in given.into_iter().zip([mean, variance]).enumerate() {
        if !n.wants(1 + i) {
            results.push(old);
            continue;
        }
        let share = |n: &mut NodeImport, v: ValueId, by: f32| {
            let by = n.filled(n.dtype(v), &[], f64::from(by))?;
            n.binary(Binary::Mul, v, by)
        };
        let (old, new) = (share(n, old, momentum)?, share(n, new, 1.0 - momentum)?);
        results.push(n.binary(Binary::Add, old, new)?);
    }
    Ok(results)
}

pub(crate) fn layer_norm(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    let axis = n.axis(n.attributes.int("axis", -1)?, rank)?;
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    if n.attributes.int("stash_type", 1)? != 1 {
        return Problem::unsupported("stash_type is not 1 (f32)");
    }
    let statistics = n.wants(1) || n.wants(2);
    let inputs = [Some(x), Some(n.input(1)?), n.optional(2)];
    let present = if inputs[2].is_some() { 3 } else { 2 };
    n.emit_all(
        Op::LayerNorm(LayerNorm {
            axis,
            epsilon,
            statistics,
        }),
        &inputs[..present],
    )
}

pub(crate) fn lrn(n: &mut NodeImport) -> Imported {
    let size = n.attributes.int("size", 0)?;
    let Some(size) = usize::try_from(size)
        .ok()
        .filter(|s| (1..1 << 20).contains(s))
    else {
        return Problem::unsupported(format!("size={size}"));
    };
    let lrn = Lrn {
        size,
        alpha: n.attributes.float("alpha", 1e-4)?,
        beta: n.attributes.float("beta", 0.75)?,
        bias: n.attributes.float("bias", 1.0)?,
    };
    let x = n.input(0)?;
    Ok(vec![n.emit(Op::Lrn(lrn), &[x])?])
}

/// Applies `f` along one axis: the named one, or before operator set 13 all
/// axes from it on taken together.
fn along_axis(
    n: &mut NodeImport,
    f: impl Fn(&mut NodeImport, ValueId, usize) -> Result<ValueId, Problem>,
) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let axis = n
        .attributes
        .int("axis", if n.opset < 13 { 1 } else { -1 })?;
    if n.opset < 13 && axis == shape.len() as i64 {
        let column = n.reshape(x, vec![shape.iter().product(), 1])?;
        let y = f(n, column, 1)?;
        return Ok(vec![n.reshape(y, shape)?]);
    }
    let axis = n.axis(axis, shape.len())?;
    if n.opset >= 13 || shape[axis + 1..].iter().all(|d| *d == 1) {
        return Ok(vec![f(n, x, axis)?]);
    }
    let (outer, inner) = shape.split_at(axis);
    let rows = n.reshape(x, vec![outer.iter().product(), inner.iter().product()])?;
    let y = f(n, rows, 1)?;
    Ok(vec![n.reshape(y, shape.clone())?])
}

pub(crate) fn softmax(n: &mut NodeImport) -> Imported {
    along_axis(n, |n, x, axis| n.emit(Op::Softmax(Softmax { axis }), &[x]))
}

/// (x - max) - log(sum(exp(x - max))).
pub(crate) fn log_softmax(n: &mut NodeImport) -> Imported {
    along_axis(n, log_softmax_along)
}

pub(crate) fn log_softmax_along(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
) -> Result<ValueId, Problem> {
    let reduce = |kind| {
        Op::Reduce(Reduce {
            kind,
            axes: vec![axis],
            keepdims: true,
        })
    };
    let max = n.emit(reduce(ReduceKind::Max), &[x])?;
    let shifted = n.binary(Binary::Sub, x, max)?;
    let powers = n.unary(Unary::Exp, shifted)?;
    let sum = n.emit(reduce(ReduceKind::Sum), &[powers])?;
    let log = n.unary(Unary::Log, sum)?;
    n.binary(Binary::Sub, shifted, log)
}
