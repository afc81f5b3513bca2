//! Importers of operators that are written out in smaller ones, each by the
//! definition in the ONNX operator documentation.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, LayerNorm, Op, PoolKind, Reduce, ReduceKind, Unary};
use tensor::DType;

pub(crate) fn scalar(n: &mut NodeImport, like: ValueId, value: f32) -> Result<ValueId, Problem> {
    n.filled(n.dtype(like), &[], f64::from(value))
}

/// `yes` where x is above `limit`, else `no`.
pub(crate) fn above(
    n: &mut NodeImport,
    x: ValueId,
    limit: f32,
    (yes, no): (ValueId, ValueId),
) -> Result<ValueId, Problem> {
    let limit = scalar(n, x, limit)?;
    let condition = n.binary(Binary::Greater, x, limit)?;
    n.emit(Op::Where, &[condition, yes, no])
}

/// exp(x) - 1.
pub(crate) fn exp_minus_1(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let power = n.unary(Unary::Exp, x)?;
    let one = scalar(n, x, 1.0)?;
    n.binary(Binary::Sub, power, one)
}

pub(crate) fn scaled(n: &mut NodeImport, x: ValueId, by: f32) -> Result<ValueId, Problem> {
    if by == 1.0 {
        return Ok(x);
    }
    let by = scalar(n, x, by)?;
    n.binary(Binary::Mul, x, by)
}

/// x if x > 0, else alpha (exp(x) - 1).
pub(crate) fn elu(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 1.0)?;
    let x = n.input(0)?;
    let below = exp_minus_1(n, x)?;
    let below = scaled(n, below, alpha)?;
    Ok(vec![above(n, x, 0.0, (x, below))?])
}

/// gamma x if x > 0, else gamma alpha (exp(x) - 1).
pub(crate) fn selu(n: &mut NodeImport) -> Imported {
    let gamma = n.attributes.float("gamma", 1.050_701)?;
    let alpha = n.attributes.float("alpha", 1.673_263_2)?;
    let x = n.input(0)?;
    let below = exp_minus_1(n, x)?;
    let below = scaled(n, below, alpha)?;
    let chosen = above(n, x, 0.0, (x, below))?;
    Ok(vec![scaled(n, chosen, gamma)?])
}

/// max(0, x) + min(0, alpha (exp(x / alpha) - 1)).
pub(crate) fn celu(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 1.0)?;
    let x = n.input(0)?;
    let divisor = scalar(n, x, alpha)?;
    let quotient = n.binary(Binary::Div, x, divisor)?;
    let below = exp_minus_1(n, quotient)?;
    let below = scaled(n, below, alpha)?;
    Ok(vec![above(n, x, 0.0, (x, below))?])
}

/// How far the rows [m, k] and [n, k] are apart: [m, n].
pub(crate) fn distances(n: &mut NodeImport) -> Imported {
    let (a, b) = (n.input(0)?, n.input(1)?);
    let (&[rows, width], &[columns, other]) = (&n.shape(a)[..], &n.shape(b)[..]) else {
        return Problem::unsupported(format!("its operands are {} and {}", n.ty(a), n.ty(b)));
    };
    let squares = match n.attributes.text("metric", "sqeuclidean")?.as_str() {
        "euclidean" => false,
        "sqeuclidean" => true,
        metric => return Problem::unsupported(format!("metric=`{metric}`")),
    };
    let a = n.reshape(a, vec![rows, 1, width])?;
    let b = n.reshape(b, vec![1, columns, other])?;
    let apart = n.binary(Binary::Sub, a, b)?;
    let square = n.binary(Binary::Mul, apart, apart)?;
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![2],
        keepdims: false,
    };
    let sum = n.emit(Op::Reduce(sum), &[square])?;
    match squares {
        true => Ok(vec![sum]),
        false => Ok(vec![n.unary(Unary::Sqrt, sum)?]),
    }
}

/// x if x > alpha, else 0.
pub(crate) fn thresholded_relu(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 1.0)?;
    let x = n.input(0)?;
    let zero = scalar(n, x, 0.0)?;
    Ok(vec![above(n, x, alpha, (x, zero))?])
}

/// log(exp(x) + 1) as max(x, 0) + log(1 + exp(-|x|)), which never overflows.
pub(crate) fn soft_plus(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let size = n.unary(Unary::Abs, x)?;
    let negative = n.unary(Unary::Neg, size)?;
    let power = n.unary(Unary::Exp, negative)?;
    let one = scalar(n, x, 1.0)?;
    let sum = n.binary(Binary::Add, power, one)?;
    let log = n.unary(Unary::Log, sum)?;
    let positive = n.unary(Unary::Relu, x)?;
    n.binary(Binary::Add, positive, log)
}

pub(crate) fn softplus(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    Ok(vec![soft_plus(n, x)?])
}

/// x tanh(softplus(x)).
pub(crate) fn mish(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let soft = soft_plus(n, x)?;
    let gate = n.unary(Unary::Tanh, soft)?;
    Ok(vec![n.binary(Binary::Mul, x, gate)?])
}

/// x sigmoid(alpha x).
pub(crate) fn swish(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 1.0)?;
    let x = n.input(0)?;
    let inner = scaled(n, x, alpha)?;
    let gate = n.unary(Unary::Sigmoid, inner)?;
    Ok(vec![n.binary(Binary::Mul, x, gate)?])
}

/// x is not equal to itself.
pub(crate) fn is_nan(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let same = n.binary(Binary::Equal, x, x)?;
    Ok(vec![n.unary(Unary::Not, same)?])
}

/// Whether no element of any operand is infinite or no number.
pub(crate) fn is_all_finite(n: &mut NodeImport) -> Imported {
    let (nan, infinite) = (
        n.attributes.flag("isnan_only", false)?,
        n.attributes.flag("isinf_only", false)?,
    );
    let mut all: Option<ValueId> = None;
    for x in n.all_inputs()? {
        let same = n.binary(Binary::Equal, x, x)?;
        let size = n.unary(Unary::Abs, x)?;
        let infinity = scalar(n, x, f32::INFINITY)?;
        let is_it = n.binary(Binary::Equal, size, infinity)?;
        let bounded = n.unary(Unary::Not, is_it)?;
        let good = match (nan, infinite) {
            (true, false) => same,
            (false, true) => bounded,
            _ => n.binary(Binary::And, same, bounded)?,
        };
        let good = n.cast(good, DType::I32)?;
        let reduce = Reduce {
            kind: ReduceKind::Min,
            axes: (0..n.ty(x).rank()).collect(),
            keepdims: false,
        };
        let least = n.emit(Op::Reduce(reduce), &[good])?;
        all = Some(match all {
            None => least,
            Some(others) => n.binary(Binary::Min, others, least)?,
        });
    }
    match all {
        Some(all) => Ok(vec![n.cast(all, DType::Bool)?]),
        None => Problem::unsupported("it has no operands"),
    }
}

/// x is one of the infinities that are looked for.
pub(crate) fn is_inf(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let mut found = None;
    for (flag, sign) in [("detect_positive", 1.0), ("detect_negative", -1.0)] {
        if n.attributes.flag(flag, true)? {
            let infinity = scalar(n, x, sign * f32::INFINITY)?;
            let is_it = n.binary(Binary::Equal, x, infinity)?;
            found = Some(match found {
                Some(other) => n.binary(Binary::Or, other, is_it)?,
                None => is_it,
            });
        }
    }
    match found {
        Some(found) => Ok(vec![found]),
        None => Ok(vec![n.filled(DType::Bool, &n.shape(x), 0.0)?]),
    }
}

/// x + bias below -lambd, x - bias above lambd, else 0.
pub(crate) fn shrink(n: &mut NodeImport) -> Imported {
    let lambd = n.attributes.float("lambd", 0.5)?;
    let bias = n.attributes.float("bias", 0.0)?;
    let x = n.input(0)?;
    let shift = scalar(n, x, bias)?;
    let lowered = n.binary(Binary::Sub, x, shift)?;
    let raised = n.binary(Binary::Add, x, shift)?;
    let zero = scalar(n, x, 0.0)?;
    let upper = above(n, x, lambd, (lowered, zero))?;
    let limit = scalar(n, x, -lambd)?;
    let is_below = n.binary(Binary::Less, x, limit)?;
    Ok(vec![n.emit(Op::Where, &[is_below, raised, upper])?])
}

/// x over the sum of |x|, or the root of the sum of squares, along an axis; 0 where that is 0.
pub(crate) fn lp_normalization(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let axis = n.axis(n.attributes.int("axis", -1)?, n.ty(x).rank())?;
    let p = n.attributes.int("p", 2)?;
    let norm = norm(n, x, vec![axis], p)?;
    let quotient = n.binary(Binary::Div, x, norm)?;
    let zero = scalar(n, x, 0.0)?;
    let is_zero = n.binary(Binary::Equal, norm, zero)?;
    Ok(vec![n.emit(Op::Where, &[is_zero, zero, quotient])?])
}

/// |x|^p.
fn powers(n: &mut NodeImport, x: ValueId, p: i64) -> Result<ValueId, Problem> {
    match p {
        1 => n.unary(Unary::Abs, x),
        2 => n.binary(Binary::Mul, x, x),
        3.. => {
            let size = n.unary(Unary::Abs, x)?;
            let p = scalar(n, x, p as f32)?;
            n.binary(Binary::Pow, size, p)
        }
        _ => Problem::unsupported(format!("p={p}, where 1 is the least")),
    }
}

/// x^(1/p).
fn root(n: &mut NodeImport, x: ValueId, p: i64) -> Result<ValueId, Problem> {
    match p {
        1 => Ok(x),
        2 => n.unary(Unary::Sqrt, x),
        _ => {
            let p = n.filled(n.dtype(x), &[], 1.0 / p as f64)?;
            n.binary(Binary::Pow, x, p)
        }
    }
}

/// The p-norm over some axes, which are kept.
fn norm(n: &mut NodeImport, x: ValueId, axes: Vec<usize>, p: i64) -> Result<ValueId, Problem> {
    let terms = powers(n, x, p)?;
    let reduce = Reduce {
        kind: ReduceKind::Sum,
        axes,
        keepdims: true,
    };
    let sum = n.emit(Op::Reduce(reduce), &[terms])?;
    root(n, sum, p)
}

pub(crate) fn global_lp_pool(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let p = n.attributes.int("p", 2)?;
    let axes = (2..n.ty(x).rank()).collect();
    Ok(vec![norm(n, x, axes, p)?])
}

/// The root of the sum of the powers in each window: the mean with padding counted, times the
/// size of the window. Windows that end beyond the padding get more of it.
pub(crate) fn lp_pool(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let p = n.attributes.int("p", 2)?;
    let kind = PoolKind::Average {
        count_include_pad: true,
    };
    let mut pool = crate::windows::pool_attributes(n, kind)?;
    let shape = n.shape(x);
    let windows = Op::Pool(pool.clone()).infer(&[Some(n.ty(x))])?;
    for d in 0..pool.kernel.len() {
        let last = windows[0].shape[2 + d].saturating_sub(1) * pool.strides[d];
        let end = last + (pool.kernel[d] - 1) * pool.dilations[d] + 1;
        let (before, after) = pool.pads[d];
        pool.pads[d].1 = after + end.saturating_sub(shape[2 + d] + before + after);
    }
    pool.ceil_mode = false;
    let count = pool.kernel.iter().product::<usize>() as f64;
    let terms = powers(n, x, p)?;
    let mean = n.emit(Op::Pool(pool), &[terms])?;
    let count = n.filled(n.dtype(x), &[], count)?;
    let sum = n.binary(Binary::Mul, mean, count)?;
    Ok(vec![root(n, sum, p)?])
}

/// (x - mean) / (standard deviation + 1e-9) over some axes.
pub(crate) fn mean_variance_norm(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    let given = n.attributes.ints("axes")?.unwrap_or(&[0, 2, 3]);
    let mut axes = given
        .iter()
        .map(|a| n.axis(*a, rank))
        .collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    let reduce = Op::Reduce(Reduce {
        kind: ReduceKind::Mean,
        axes,
        keepdims: true,
    });
    let mean = n.emit(reduce.clone(), &[x])?;
    let centred = n.binary(Binary::Sub, x, mean)?;
    let square = n.binary(Binary::Mul, centred, centred)?;
    let variance = n.emit(reduce, &[square])?;
    let deviation = n.unary(Unary::Sqrt, variance)?;
    let least = n.filled(n.dtype(x), &[], 1e-9)?;
    let divisor = n.binary(Binary::Add, deviation, least)?;
    Ok(vec![n.binary(Binary::Div, centred, divisor)?])
}

/// A layer normalisation over the axes from 2 on, then a scale and bias a channel.
pub(crate) fn instance_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    let x = n.input(0)?;
    let normal = normalised(n, x, 2, epsilon)?;
    channel_affine(n, normal)
}

/// A layer normalisation of each group of channels, then a scale and bias a
/// channel (a group before operator set 21).
pub(crate) fn group_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    n.attributes.ignore(&["stash_type"]);
    let x = n.input(0)?;
    let shape = n.shape(x);
    let groups = n.attributes.int("num_groups", 0)?;
    let channels = shape.get(1).copied().unwrap_or(0);
    let groups = match usize::try_from(groups) {
        Ok(g) if g > 0 && channels > 0 && channels.is_multiple_of(g) => g,
        _ => return Problem::unsupported(format!("num_groups={groups} on shape {shape:?}")),
    };
    let grouped = [&[shape[0], groups, channels / groups], &shape[2..]].concat();
    let parts = n.reshape(x, grouped)?;
    let normal = normalised(n, parts, 2, epsilon)?;
    if n.opset < 21 {
        let affine = channel_affine(n, normal)?[0];
        return Ok(vec![n.reshape(affine, shape)?]);
    }
    let whole = n.reshape(normal, shape)?;
    channel_affine(n, whole)
}

pub(crate) fn normalised(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    epsilon: f32,
) -> Result<ValueId, Problem> {
    let shape = n.shape(x);
    if shape.len() <= axis {
        return Problem::unsupported(format!("its input has shape {shape:?}"));
    }
    let one = scalar(n, x, 1.0)?;
    n.emit(
        Op::LayerNorm(LayerNorm {
            axis,
            epsilon,
            statistics: false,
        }),
        &[x, one],
    )
}

/// Inputs 1 and 2 as a scale and a bias along axis 1 of `x`, without a scale of ones and a
/// bias of zeros: PyTorch writes a group normalisation with them, and a second affine after it.
fn channel_affine(n: &mut NodeImport, x: ValueId) -> Imported {
    let shape = n.shape(x);
    let axis = n.axis(1, shape.len())?;
    let mut channel = vec![1; shape.len() - 1];
    channel[0] = shape[axis];
    let mut y = x;
    for (i, op, identity) in [(1, Binary::Mul, 1.0), (2, Binary::Add, 0.0)] {
        let operand = n.input(i)?;
        let is_identity = n.model.constant(operand).is_some_and(|t| {
            t.shape() == [shape[1]] && (0..t.len()).all(|e| t.get_f64(e) == identity)
        });
        if !is_identity {
            let operand = n.reshape(operand, channel.clone())?;
            y = n.binary(op, y, operand)?;
        }
    }
    Ok(vec![y])
}

/// x / sqrt(mean(x^2) + epsilon) scale, over the axes from `axis` on.
pub(crate) fn rms_norm(n: &mut NodeImport) -> Imported {
    let (x, scale) = (n.input(0)?, n.input(1)?);
    let rank = n.ty(x).rank();
    let axis = n.axis(n.attributes.int("axis", -1)?, rank)?;
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    if n.attributes.int("stash_type", 1)? != 1 {
        return Problem::unsupported("stash_type is not 1 (f32)");
    }
    Ok(vec![by_mean_square(n, [x, scale], axis, epsilon)?[0]])
}

/// x / sqrt(mean(x^2) + epsilon) scale, the mean along all axes from `axis` on; and the square root.
pub(crate) fn by_mean_square(
    n: &mut NodeImport,
    [x, scale]: [ValueId; 2],
    axis: usize,
    epsilon: f32,
) -> Result<[ValueId; 2], Problem> {
    let dtype = n.dtype(x);
    let wide = match dtype {
        DType::F64 => dtype,
        _ => DType::F32,
    };
    let x = n.cast(x, wide)?;
    let square = n.binary(Binary::Mul, x, x)?;
    let reduce = Reduce {
        kind: ReduceKind::Mean,
        axes: (axis..n.ty(x).rank()).collect(),
        keepdims: true,
    };
    let mean = n.emit(Op::Reduce(reduce), &[square])?;
    let epsilon = scalar(n, x, epsilon)?;
    let shifted = n.binary(Binary::Add, mean, epsilon)?;
    let root = n.unary(Unary::Sqrt, shifted)?;
    let normal = n.binary(Binary::Div, x, root)?;
    let normal = n.cast(normal, dtype)?;
    Ok([n.binary(Binary::Mul, normal, scale)?, root])
}
