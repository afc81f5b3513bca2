//! Importers of gates and branches of language models that ONNX Runtime has operators for: each is computed in f32, as
//! its definition says, and rounded once.

use crate::attention::columns;
use crate::composite::{by_mean_square, scalar, soft_plus};
use crate::fused::gated;
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Op, Reduce, ReduceKind, Unary};
use tensor::DType;

/// The sum along an axis, which goes unless it is kept.
pub(crate) fn sum(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    keepdims: bool,
) -> Result<ValueId, Problem> {
    let reduce = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![axis],
        keepdims,
    };
    n.emit(Op::Reduce(reduce), &[x])
}

fn wide(n: &mut NodeImport, i: usize) -> Result<ValueId, Problem> {
    let x = n.input(i)?;
    n.cast(x, DType::F32)
}

/// x with its last axis in rows of `size` elements.
fn in_rows(n: &mut NodeImport, x: ValueId, size: usize) -> Result<ValueId, Problem> {
    let shape = n.shape(x);
    match shape.split_last() {
        Some((width, outer)) if size > 0 && width.is_multiple_of(size) => {
            n.reshape(x, [outer, &[width / size, size]].concat())
        }
        _ => Problem::unsupported(format!("rows of {size} in {}", n.ty(x))),
    }
}

/// x + y gate, of which the product is rounded.
pub(crate) fn gated_add(n: &mut NodeImport) -> Imported {
    let (x, y, gate) = (n.input(0)?, n.input(1)?, n.input(2)?);
    if n.optional(3).is_some() {
        return Problem::unsupported("it projects its gate (gate_weight)");
    }
    let product = n.binary(Binary::Mul, y, gate)?;
    Ok(vec![n.binary(Binary::Add, x, product)?])
}

/// x / sqrt(mean(x^2) + epsilon) scale by the activation of a gate, over rows as long as the scale.
pub(crate) fn gated_rms_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    let dtype = n.dtype(n.input(0)?);
    let (x, scale, gate) = (wide(n, 0)?, wide(n, 1)?, wide(n, 2)?);
    let shape = n.shape(x);
    let rows = in_rows(n, x, n.ty(scale).len())?;
    let axis = n.ty(rows).rank() - 1;
    let [normal, _] = by_mean_square(n, [rows, scale], axis, epsilon)?;
    let normal = n.reshape(normal, shape)?;
    let gate = match n.attributes.text("activation", "silu")?.as_str() {
        "silu" | "swish" => gated(n, gate, 1.0)?,
        "sigmoid" => n.unary(Unary::Sigmoid, gate)?,
        other => return Problem::unsupported(format!("activation=`{other}`")),
    };
    let y = n.binary(Binary::Mul, normal, gate)?;
    Ok(vec![n.cast(y, dtype)?])
}

/// z sigmoid(z), where z = scale x.
pub(crate) fn scaled_silu(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 1.0)?;
    let x = n.input(0)?;
    let scale = match n.optional(1) {
        Some(scale) => {
            let scale = n.reshape(scale, vec![])?;
            n.cast(scale, n.dtype(x))?
        }
        None => scalar(n, x, alpha)?,
    };
    let z = n.binary(Binary::Mul, x, scale)?;
    Ok(vec![gated(n, z, 1.0)?])
}

/// Rows [.., branches, size] of an operand whose last axis may hold all branches.
fn branches(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let shape = n.shape(x);
    let count = n.attributes.int("num_branches", 0)?;
    match (usize::try_from(count), shape.last()) {
        (Ok(0), _) if shape.len() > 1 => Ok(x),
        (Ok(count), Some(all)) if count > 0 && all.is_multiple_of(count) => {
            in_rows(n, x, all / count)
        }
        _ => Problem::unsupported(format!("num_branches={count} of {}", n.ty(x))),
    }
}

/// x / sqrt(mean(x^2) + epsilon), perhaps by a scale, along each branch.
pub(crate) fn branchwise_rms_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    let x = n.input(0)?;
    let (dtype, shape) = (n.dtype(x), n.shape(x));
    let x = n.cast(x, DType::F32)?;
    let rows = branches(n, x)?;
    let own = n.shape(rows);
    let axis = own.len() - 1;
    let scale = match n.optional(1) {
        None => scalar(n, rows, 1.0)?,
        Some(scale) => {
            let scale = n.cast(scale, DType::F32)?;
            match n.ty(scale).len() == own[axis] {
                true => n.reshape(scale, vec![own[axis]])?,
                false => n.reshape(scale, own[axis - 1..].to_vec())?,
            }
        }
    };
    let [y, _] = by_mean_square(n, [rows, scale], axis, epsilon)?;
    let y = n.reshape(y, shape)?;
    Ok(vec![n.cast(y, dtype)?])
}

/// The branches summed, each times its gate.
pub(crate) fn hyper_connection_pre_mix(n: &mut NodeImport) -> Imported {
    let scale = n.attributes.float("reduction_scale", 1.0)?;
    let x = n.input(0)?;
    let dtype = n.dtype(x);
    let x = n.cast(x, DType::F32)?;
    let rows = branches(n, x)?;
    let own = n.shape(rows);
    let axis = own.len() - 2;
    let mix = wide(n, 1)?;
    let outer: usize = own[..=axis].iter().product();
    let mix = match n.ty(mix).len() {
        len if len == outer => n.reshape(mix, [&own[..=axis], &[1]].concat())?,
        _ => n.reshape(mix, own.clone())?,
    };
    let product = n.binary(Binary::Mul, rows, mix)?;
    let mut y = sum(n, product, axis, false)?;
    if scale != 1.0 {
        let scale = scalar(n, y, scale)?;
        y = n.binary(Binary::Mul, y, scale)?;
    }
    Ok(vec![n.cast(y, dtype)?])
}

/// G sigmoid(alpha G) (L + beta), where G and L are cut to a limit.
pub(crate) fn swiglu(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("activation_alpha", 1.0)?;
    let beta = n.attributes.float("activation_beta", 0.0)?;
    let limit = n.attributes.float("limit", 0.0)?;
    let rounded = n.attributes.flag("round_activation", false)?;
    let gate = n.input(0)?;
    let dtype = n.dtype(gate);
    let gate = n.cast(gate, DType::F32)?;
    let (mut gate, mut linear) = match n.optional(1) {
        Some(linear) => (gate, n.cast(linear, DType::F32)?),
        None => {
            let width = n.shape(gate).last().copied().unwrap_or(0);
            if width == 0 || width % 2 == 1 {
                return Problem::unsupported(format!("halves of {}", n.ty(gate)));
            }
            let first = columns(n, gate, 0, 1, width / 2)?;
            (first, columns(n, gate, width / 2, 1, width / 2)?)
        }
    };
    if n.ty(gate) != n.ty(linear) {
        return Problem::unsupported(format!("{} and {}", n.ty(gate), n.ty(linear)));
    }
    if limit > 0.0 {
        let max = Some(f64::from(limit));
        gate = n.unary(Unary::Clip { min: None, max }, gate)?;
        let min = max.map(|m| -m);
        linear = n.unary(Unary::Clip { min, max }, linear)?;
    }
    let mut activated = gated(n, gate, alpha)?;
    if rounded {
        activated = n.cast(activated, dtype)?;
        activated = n.cast(activated, DType::F32)?;
    }
    if beta != 0.0 {
        let beta = scalar(n, linear, beta)?;
        linear = n.binary(Binary::Add, linear, beta)?;
    }
    let y = n.binary(Binary::Mul, activated, linear)?;
    Ok(vec![n.cast(y, dtype)?])
}

/// scale softplus(a + bias), and sigmoid(b).
pub(crate) fn linear_attention_gate(n: &mut NodeImport) -> Imported {
    let dtype = n.dtype(n.input(0)?);
    let (a, bias, scale) = (wide(n, 0)?, wide(n, 1)?, wide(n, 2)?);
    let shifted = n.binary(Binary::Add, a, bias)?;
    let soft = soft_plus(n, shifted)?;
    let decay = n.binary(Binary::Mul, soft, scale)?;
    let mut results = vec![n.cast(decay, dtype)?];
    if let Some(b) = n.optional(3) {
        let b = n.cast(b, DType::F32)?;
        let rate = n.unary(Unary::Sigmoid, b)?;
        results.push(n.cast(rate, dtype)?);
    }
    Ok(results)
}

/// A value for each branch, times a gate of how its key and query agree; and that normalised.
pub(crate) fn engram_gate(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    let dtype = n.dtype(n.input(0)?);
    let (key, query, value) = (wide(n, 0)?, wide(n, 1)?, wide(n, 2)?);
    let (key_scale, query_scale) = (wide(n, 3)?, wide(n, 4)?);
    let &[batch, rows, _, size] = &n.shape(key)[..] else {
        return Problem::unsupported(format!("its keys are {}", n.ty(key)));
    };
    let [key, _] = by_mean_square(n, [key, key_scale], 3, epsilon)?;
    let [query, _] = by_mean_square(n, [query, query_scale], 3, epsilon)?;
    let products = n.binary(Binary::Mul, key, query)?;
    let dot = sum(n, products, 3, true)?;
    let root = scalar(n, dot, (size as f32).sqrt())?;
    let dot = n.binary(Binary::Div, dot, root)?;
    let sign = n.unary(Unary::Sign, dot)?;
    let length = n.unary(Unary::Abs, dot)?;
    let least = scalar(n, dot, 1e-6)?;
    let length = n.binary(Binary::Max, length, least)?;
    let length = n.unary(Unary::Sqrt, length)?;
    let signed = n.binary(Binary::Mul, sign, length)?;
    let gate = n.unary(Unary::Sigmoid, signed)?;
    let value = n.reshape(value, vec![batch, rows, 1, size])?;
    let y = n.binary(Binary::Mul, gate, value)?;
    let mut results = vec![n.cast(y, dtype)?];
    if n.optional(5).is_some() {
        let scale = wide(n, 5)?;
        let [normal, _] = by_mean_square(n, [y, scale], 3, epsilon)?;
        results.push(n.cast(normal, dtype)?);
    }
    Ok(results)
}

/// The branches mixed with each other, and one more result added to each by its gate.
pub(crate) fn hyper_connection_post_mix(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let (dtype, shape) = (n.dtype(x), n.shape(x));
    let x = n.cast(x, DType::F32)?;
    let rows = branches(n, x)?;
    let own = n.shape(rows);
    let axis = own.len() - 2;
    let mixed = match n.optional(3) {
        None => rows,
        Some(mix) => {
            let mix = n.cast(mix, DType::F32)?;
            let mut perm: Vec<usize> = (0..own.len()).collect();
            perm.swap(axis, axis + 1);
            let mix = crate::attention::transposed(n, mix, &perm)?;
            n.emit(Op::MatMul, &[mix, rows])?
        }
    };
    let (new, gate) = (wide(n, 1)?, wide(n, 2)?);
    let new = n.reshape(new, [&own[..axis], &[1], &own[axis + 1..]].concat())?;
    let outer: usize = own[..=axis].iter().product();
    let gate = match n.ty(gate).len() {
        len if len == outer => n.reshape(gate, [&own[..=axis], &[1]].concat())?,
        _ => n.reshape(gate, own.clone())?,
    };
    let product = n.binary(Binary::Mul, gate, new)?;
    let y = n.binary(Binary::Add, mixed, product)?;
    let y = n.reshape(y, shape)?;
    Ok(vec![n.cast(y, dtype)?])
}
