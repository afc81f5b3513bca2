//! What every operator computes, in plain Rust: f64 accumulation, no schedule,
//! threads over outputs. Judges compiled code, folds constants and runs the
//! ONNX node tests. Results do not depend on the number of threads.
//!
//! A result is rounded once, to the element type of the operator's output;
//! integers wrap.

mod contract;
mod contraction;
mod conv;
mod cumulative;
mod elementwise;
mod erf;
mod evaluate;
mod index;
mod linear;
mod movement;
mod norm;
mod parallel;
mod pool;
mod reduce;
mod resize;
mod sample;
mod select;
mod top_k;
mod widen;

pub use evaluate::{EvalError, Evaluated, Keep, evaluate, evaluate_from};

use crate::model::TensorType;
use crate::ops::{Op, OpError, refuse};
use tensor::Tensor;

/// Applies `op` to operands given in its order.
///
/// # Errors
/// If the shape rule refuses the operands, or a value does: an index out of
/// range, an integer division by zero.
pub fn apply(op: &Op, operands: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
    let types: Vec<_> = operands.iter().map(|t| t.map(TensorType::of)).collect();
    let types: Vec<_> = types.iter().map(Option::as_ref).collect();
    let outputs = op.infer(&types)?;
    if outputs.iter().all(TensorType::is_empty) {
        return Ok(outputs
            .iter()
            .map(|t| Tensor::zeros(t.dtype, &t.shape))
            .collect());
    }
    let Some(Some(x)) = operands.first() else {
        return refuse("operand 0 is missing");
    };
    let given: Vec<&Tensor> = operands.iter().flatten().copied().collect();
    let optional = |i: usize| operands.get(i).copied().flatten();
    let shape = &outputs[0].shape;
    Ok(match op {
        Op::Identity | Op::Dropout(_) => vec![(*x).clone()],
        Op::Unary(u) => vec![elementwise::unary(*u, x)],
        Op::Binary(b) => vec![elementwise::binary(*b, x, given[1], shape)?],
        Op::Where => vec![elementwise::select(given[0], given[1], given[2], shape)],
        Op::Cast(to) => vec![elementwise::cast(x, *to)],
        Op::Lookup => vec![elementwise::lookup(x, given[1])],
        Op::Conv(c) => vec![conv::conv(c, x, given[1], optional(2), shape)],
        Op::ConvInteger(c) => vec![conv::conv_integer(c, x, given[1], shape)],
        Op::Col2Im(c) => vec![conv::col2im(c, x, shape)],
        Op::ConvTranspose(c) => vec![conv::conv_transpose(c, x, given[1], optional(2), shape)],
        Op::MatMul => vec![linear::matmul(x, given[1], shape)],
        Op::MatMulInteger => vec![linear::matmul_integer(x, given[1], shape)],
        Op::MatMulBlocks(m) => vec![linear::matmul_blocks(*m, &given, shape)],
        Op::Gemm(g) => vec![linear::gemm(g, x, given[1], optional(2), shape)],
        Op::Contract(c) => vec![contract::contract(c, x, given[1], shape)],
        Op::BatchNorm(b) => vec![norm::batch_norm(*b, x, &given[1..])],
        Op::LayerNorm(l) => norm::layer_norm(*l, x, given[1], optional(2)),
        Op::Lrn(l) => vec![norm::lrn(*l, x)],
        Op::Softmax(s) => vec![norm::softmax(*s, x)],
        Op::Pool(p) => pool::pool(p, x, shape),
        Op::MaxPoolGradient(g) => vec![pool::gradient(&g.pool, x, given[1], shape)],
        Op::Resize(r) => vec![resize::resize(r, x, shape)],
        Op::Reduce(r) => vec![reduce::reduce(r, x, shape)],
        Op::ArgReduce(r) => vec![reduce::arg_reduce(*r, x, shape)],
        Op::Cumulative(c) => vec![cumulative::cumulative(*c, x)],
        Op::Concat(c) => vec![movement::concat(*c, &given, shape)],
        Op::Split(s) => movement::split(s, x),
        Op::Slice(s) => vec![movement::slice(s, x)],
        Op::Pad(p) => vec![movement::pad(p, x, shape)],
        Op::Reshape(r) => vec![(*x).clone().reshaped(&r.shape)],
        Op::Transpose(t) => vec![movement::transpose(t, x)],
        Op::Expand(_) => vec![movement::broadcast(x, shape)],
        Op::Gather(g) => vec![movement::gather(*g, x, given[1], shape)?],
        Op::GatherElements(g) => vec![index::gather_elements(*g, x, given[1])?],
        Op::GatherNd(g) => vec![index::gather_nd(*g, x, given[1], shape)?],
        Op::ScatterElements(s) => vec![index::scatter_elements(*s, x, given[1], given[2])?],
        Op::ScatterNd(s) => vec![index::scatter_nd(*s, x, given[1], given[2])?],
        Op::TopK(t) => vec![top_k::top_k(*t, x, shape)],
        Op::Positions => vec![select::positions(x)],
        Op::Suppress(s) => vec![select::suppress(*s, x, given[1])],
        Op::GridSample(g) => vec![sample::grid_sample(*g, x, given[1], shape)],
    })
}
