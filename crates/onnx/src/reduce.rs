//! Importers of reductions.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{ArgReduce, Binary, Op, Reduce, ReduceKind, Unary};
use tensor::DType;

/// The axes of a reduction (an attribute up to operator set `last`, an input
/// after it) and whether they are kept.
struct Axes {
    axes: Vec<usize>,
    keepdims: bool,
}

fn axes(n: &mut NodeImport, last: i64) -> Result<(ValueId, Axes), Problem> {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    let keepdims = n.attributes.flag("keepdims", true)?;
    let noop = n.attributes.flag("noop_with_empty_axes", false)?;
    let given = n.ints_by_opset("axes", 1, last)?.unwrap_or_default();
    let mut axes = given
        .iter()
        .map(|a| n.axis(*a, rank))
        .collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    if axes.is_empty() && !noop {
        axes = (0..rank).collect();
    }
    Ok((x, Axes { axes, keepdims }))
}

fn emit(n: &mut NodeImport, kind: ReduceKind, x: ValueId, a: &Axes) -> Result<ValueId, Problem> {
    let reduce = Reduce {
        kind,
        axes: a.axes.clone(),
        keepdims: a.keepdims,
    };
    n.emit(Op::Reduce(reduce), &[x])
}

fn plain(n: &mut NodeImport, kind: ReduceKind, last: i64) -> Imported {
    let (x, axes) = axes(n, last)?;
    Ok(vec![emit(n, kind, x, &axes)?])
}

pub(crate) fn sum(n: &mut NodeImport) -> Imported {
    plain(n, ReduceKind::Sum, 12)
}

/// A mean of integers is their sum by their number, cut to an integer.
pub(crate) fn mean(n: &mut NodeImport) -> Imported {
    let (x, axes) = axes(n, 17)?;
    let (dtype, shape) = (n.dtype(x), n.shape(x));
    if !dtype.is_int() {
        return Ok(vec![emit(n, ReduceKind::Mean, x, &axes)?]);
    }
    let count: usize = axes.axes.iter().map(|a| shape[*a]).product();
    if count == 0 {
        return Problem::unsupported("the mean of no integers");
    }
    let wide = n.cast(x, DType::I64)?;
    let sum = emit(n, ReduceKind::Sum, wide, &axes)?;
    let count = n.filled(DType::I64, &[], count as f64)?;
    let mean = n.binary(Binary::Div, sum, count)?;
    Ok(vec![n.cast(mean, dtype)?])
}

pub(crate) fn prod(n: &mut NodeImport) -> Imported {
    plain(n, ReduceKind::Prod, 17)
}

pub(crate) fn max(n: &mut NodeImport) -> Imported {
    plain(n, ReduceKind::Max, 17)
}

pub(crate) fn min(n: &mut NodeImport) -> Imported {
    plain(n, ReduceKind::Min, 17)
}

pub(crate) fn l1(n: &mut NodeImport) -> Imported {
    let (x, axes) = axes(n, 17)?;
    let size = n.unary(Unary::Abs, x)?;
    Ok(vec![emit(n, ReduceKind::Sum, size, &axes)?])
}

pub(crate) fn sum_square(n: &mut NodeImport) -> Imported {
    let (x, axes) = axes(n, 17)?;
    let square = n.binary(Binary::Mul, x, x)?;
    Ok(vec![emit(n, ReduceKind::Sum, square, &axes)?])
}

pub(crate) fn l2(n: &mut NodeImport) -> Imported {
    let (x, axes) = axes(n, 17)?;
    let wide = wide(n, x)?;
    let square = n.binary(Binary::Mul, wide, wide)?;
    let sum = emit(n, ReduceKind::Sum, square, &axes)?;
    let root = n.unary(Unary::Sqrt, sum)?;
    let dtype = n.dtype(x);
    Ok(vec![n.cast(root, dtype)?])
}

pub(crate) fn log_sum(n: &mut NodeImport) -> Imported {
    let (x, axes) = axes(n, 17)?;
    let wide = wide(n, x)?;
    let sum = emit(n, ReduceKind::Sum, wide, &axes)?;
    let log = n.unary(Unary::Log, sum)?;
    let dtype = n.dtype(x);
    Ok(vec![n.cast(log, dtype)?])
}

/// Integers as floats, so that a root or a logarithm of them is one; their results are cut to integers.
fn wide(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    match n.dtype(x).is_float() {
        true => Ok(x),
        false => n.cast(x, DType::F64),
    }
}

/// log(sum(exp(x - m))) + m, with m the maximum bounded to finite values, so
/// that neither an infinite nor an empty maximum gives inf - inf.
pub(crate) fn log_sum_exp(n: &mut NodeImport) -> Imported {
    let (x, a) = axes(n, 17)?;
    let kept = Axes {
        axes: a.axes.clone(),
        keepdims: true,
    };
    let max = emit(n, ReduceKind::Max, x, &kept)?;
    let limit = match n.dtype(max) {
        DType::F16 => 65504.0,
        // (2 - 2^-7) 2^127
        DType::BF16 => 3.389_531_389_251_535_5e38,
        DType::F64 => f64::MAX,
        _ => f64::from(f32::MAX),
    };
    let max = n.unary(
        Unary::Clip {
            min: Some(-limit),
            max: Some(limit),
        },
        max,
    )?;
    let shifted = n.binary(Binary::Sub, x, max)?;
    let powers = n.unary(Unary::Exp, shifted)?;
    let sum = emit(n, ReduceKind::Sum, powers, &kept)?;
    let log = n.unary(Unary::Log, sum)?;
    let result = n.binary(Binary::Add, log, max)?;
    if a.keepdims {
        return Ok(vec![result]);
    }
    let shape = n.shape(x);
    let rest = (0..shape.len())
        .filter(|d| !a.axes.contains(d))
        .map(|d| shape[d])
        .collect();
    Ok(vec![n.reshape(result, rest)?])
}

pub(crate) fn arg_max(n: &mut NodeImport) -> Imported {
    arg(n, true)
}

pub(crate) fn arg_min(n: &mut NodeImport) -> Imported {
    arg(n, false)
}

fn arg(n: &mut NodeImport, max: bool) -> Imported {
    let x = n.input(0)?;
    let arg = ArgReduce {
        max,
        axis: n.axis(n.attributes.int("axis", 0)?, n.ty(x).rank())?,
        keepdims: n.attributes.flag("keepdims", true)?,
        last: n.attributes.flag("select_last_index", false)?,
    };
    Ok(vec![n.emit(Op::ArgReduce(arg), &[x])?])
}
