//! The operators of a model: typed attributes and the shape rule of each.
//!
//! An operator family is a file here (attributes, shape rule), a file in
//! `reference/` (what it computes) and importers in crate `onnx`. Shapes are static,
//! so attributes are resolved: axes are non-negative, padding is explicit, and
//! what decides a shape is never an operand. Composite ONNX operators (Flatten,
//! GlobalAveragePool, variadic Sum, …) are imported in terms of these.

mod contract;
mod conv;
mod cumulative;
mod elementwise;
mod gather;
mod linear;
mod movement;
mod norm;
mod pool;
mod reduce;
mod resize;
mod sample;
mod scatter;
mod select;
mod top_k;

pub use contract::Contract;
pub use conv::{Col2Im, Conv, ConvInteger, ConvTranspose};
pub use cumulative::{Cumulative, CumulativeKind};
pub use elementwise::{BYTES, Binary, Dropout, Gelu, Unary, broadcast_shape};
pub use gather::{Gather, GatherElements, GatherNd};
pub use linear::{Gemm, MatMulBlocks};
pub use movement::{Concat, Expand, Pad, PadMode, Reshape, Slice, Split, Transpose};
pub use norm::{BatchNorm, LayerNorm, Lrn, Softmax};
pub use pool::{IndexOrder, MaxPoolGradient, Pool, PoolKind};
pub use reduce::{ArgReduce, Reduce, ReduceKind};
pub use resize::{Filter, Line, Resize, Rounding, Sampling, Scale};
pub use sample::{GridSample, Interpolation, Outside};
pub use scatter::{Combine, ScatterElements, ScatterNd};
pub use select::Suppress;
pub use top_k::TopK;

use crate::model::TensorType;
use tensor::DType;
use thiserror::Error;

/// Why an operator refuses its operands or attributes.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{0}")]
pub struct OpError(pub String);

pub(crate) fn refuse<T>(message: impl Into<String>) -> Result<T, OpError> {
    Err(OpError(message.into()))
}

/// An operator with its attributes. The operands of each are listed in order;
/// `?` marks an optional one.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// x.
    Identity,
    /// x. A training step drops elements; other models pass it through.
    Dropout(Dropout),
    /// x.
    Unary(Unary),
    /// a, b; NumPy broadcasting.
    Binary(Binary),
    /// condition (bool), a, b; NumPy broadcasting.
    Where,
    /// x. To bool: whether it is not zero. Float to integer: towards zero, through
    /// `i64`, where NaN gives 0 and what does not fit saturates; a narrower type
    /// takes the low bits, so that 300 is 44 as an `i8`, and infinities are -1 and 0.
    Cast(DType),
    /// x (u8), table [256]: the element of the table at each element of x.
    Lookup,
    /// x [N,C,spatial..], weight [M,C/groups,kernel..], bias? [M].
    Conv(Conv),
    /// x [N,C,spatial..], weight [M,C/groups,kernel..], each i8 or u8; sums in i32.
    ConvInteger(ConvInteger),
    /// x [N,C,spatial..], weight [C,M/groups,kernel..], bias? [M].
    ConvTranspose(ConvTranspose),
    /// x [N,C * taps,windows].
    Col2Im(Col2Im),
    /// a, b; NumPy `matmul`.
    MatMul,
    /// a, b, each i8 or u8; NumPy `matmul` with sums in i32.
    MatMulInteger,
    /// x [M,K] (f32), packed [blocks,bytes,N] (u8), scales [blocks,N] (f32), zeros (u8) of that
    /// shape or [1,1].
    MatMulBlocks(MatMulBlocks),
    /// a, b, c?.
    Gemm(Gemm),
    /// a, b.
    Contract(Contract),
    /// x [N,C,..], scale, bias, mean, variance, each [C].
    BatchNorm(BatchNorm),
    /// x, scale, bias?.
    LayerNorm(LayerNorm),
    /// x [N,C,..].
    Lrn(Lrn),
    /// x.
    Softmax(Softmax),
    /// x [N,C,spatial..].
    Pool(Pool),
    MaxPoolGradient(MaxPoolGradient),
    /// x.
    Resize(Resize),
    /// x.
    Reduce(Reduce),
    /// x.
    ArgReduce(ArgReduce),
    /// x.
    Cumulative(Cumulative),
    /// One or more operands.
    Concat(Concat),
    /// x.
    Split(Split),
    /// x.
    Slice(Slice),
    /// x.
    Pad(Pad),
    /// x.
    Reshape(Reshape),
    /// x.
    Transpose(Transpose),
    /// x.
    Expand(Expand),
    /// x, indices (i32 or i64; negative ones count from the end).
    Gather(Gather),
    /// x, indices as those of `Gather`, of the rank of x.
    GatherElements(GatherElements),
    /// x, indices as those of `Gather`, whose last axis is of positions.
    GatherNd(GatherNd),
    /// x, indices as those of `GatherElements`, updates of their shape.
    ScatterElements(ScatterElements),
    /// x, indices as those of `GatherNd`, updates.
    ScatterNd(ScatterNd),
    /// x.
    TopK(TopK),
    /// x [N] (bool): the i64 positions of true elements in order, then 0 as often as there
    /// are others.
    Positions,
    /// scores [batch,classes,N], boxes [batch,N,4].
    Suppress(Suppress),
    /// x [N,C,spatial..], grid [N,points..,spatial axes], the innermost axis first.
    GridSample(GridSample),
}

impl Op {
    /// A stable lower-case name for text forms.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Identity => "identity",
            Op::Dropout(_) => "dropout",
            Op::Unary(u) => u.name(),
            Op::Binary(b) => b.name(),
            Op::Where => "where",
            Op::Cast(_) => "cast",
            Op::Lookup => "lookup",
            Op::Conv(_) => "conv",
            Op::ConvInteger(_) => "conv_integer",
            Op::ConvTranspose(_) => "conv_transpose",
            Op::Col2Im(_) => "col2im",
            Op::MatMul => "matmul",
            Op::MatMulInteger => "matmul_integer",
            Op::MatMulBlocks(_) => "matmul_blocks",
            Op::Gemm(_) => "gemm",
            Op::Contract(_) => "contract",
            Op::BatchNorm(_) => "batch_norm",
            Op::LayerNorm(_) => "layer_norm",
            Op::Lrn(_) => "lrn",
            Op::Softmax(_) => "softmax",
            Op::MaxPoolGradient(_) => "max_pool_gradient",
            Op::Pool(Pool {
                kind: PoolKind::Max { .. },
                ..
            }) => "max_pool",
            Op::Pool(Pool {
                kind: PoolKind::Average { .. },
                ..
            }) => "average_pool",
            Op::Resize(_) => "resize",
            Op::Reduce(r) => r.kind.name(),
            Op::ArgReduce(ArgReduce { max: true, .. }) => "arg_max",
            Op::ArgReduce(ArgReduce { max: false, .. }) => "arg_min",
            Op::Cumulative(c) => c.kind.name(),
            Op::Concat(_) => "concat",
            Op::Split(_) => "split",
            Op::Slice(_) => "slice",
            Op::Pad(_) => "pad",
            Op::Reshape(_) => "reshape",
            Op::Transpose(_) => "transpose",
            Op::Expand(_) => "expand",
            Op::Gather(_) => "gather",
            Op::GatherElements(_) => "gather_elements",
            Op::GatherNd(_) => "gather_nd",
            Op::ScatterElements(_) => "scatter_elements",
            Op::ScatterNd(_) => "scatter_nd",
            Op::TopK(_) => "top_k",
            Op::Positions => "positions",
            Op::Suppress(_) => "suppress",
            Op::GridSample(_) => "grid_sample",
        }
    }

    /// The shape rule: output types from operand types.
    ///
    /// # Errors
    /// Says which operand or attribute does not fit, and why.
    pub fn infer(&self, operands: &[Option<&TensorType>]) -> Result<Vec<TensorType>, OpError> {
        self.keep_stored(operands)?;
        let outputs = self.apply_rule(Operands(operands))?;
        for t in &outputs {
            if !t.is_possible() {
                return refuse(format!("its result {t} is too large"));
            }
        }
        Ok(outputs)
    }

    /// Refuses to compute with elements that are only stored.
    fn keep_stored(&self, operands: &[Option<&TensorType>]) -> Result<(), OpError> {
        let mut types = operands.iter().flatten().map(|t| t.dtype);
        let whole = |d: DType| !d.is_float();
        match self {
            Op::Cast(to) if to.is_stored_only() => match types.find(|d| !whole(*d)) {
                Some(d) => refuse(format!("casts only integers to {to}, not {d}")),
                None => Ok(()),
            },
            Op::Cast(to) if whole(*to) => Ok(()),
            Op::Identity
            | Op::Where
            | Op::Concat(_)
            | Op::Split(_)
            | Op::Slice(_)
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Expand(_)
            | Op::Gather(_) => Ok(()),
            _ => match types.find(|d| d.is_stored_only()) {
                Some(d) => refuse(format!("is not defined on {d}")),
                None => Ok(()),
            },
        }
    }

    fn apply_rule(&self, inputs: Operands) -> Result<Vec<TensorType>, OpError> {
        let one = |r: Result<TensorType, OpError>| r.map(|t| vec![t]);
        match self {
            Op::Identity => one(inputs.exactly(1)?.get(0).cloned()),
            Op::Dropout(d) => one(d.infer(inputs)),
            Op::Unary(u) => one(u.infer(inputs)),
            Op::Binary(b) => one(b.infer(inputs)),
            Op::Where => one(elementwise::infer_where(inputs)),
            Op::Cast(to) => inputs
                .exactly(1)?
                .get(0)
                .map(|t| vec![TensorType::new(*to, &t.shape)]),
            Op::Lookup => one(elementwise::infer_lookup(inputs)),
            Op::Conv(c) => one(c.infer(inputs)),
            Op::ConvInteger(c) => one(c.infer(inputs)),
            Op::ConvTranspose(c) => one(c.infer(inputs)),
            Op::Col2Im(c) => one(c.infer(inputs)),
            Op::MatMul => one(linear::infer_matmul(inputs)),
            Op::MatMulInteger => one(linear::infer_matmul_integer(inputs)),
            Op::MatMulBlocks(m) => one(m.infer(inputs)),
            Op::Gemm(g) => one(g.infer(inputs)),
            Op::Contract(c) => one(c.infer(inputs)),
            Op::BatchNorm(b) => one(b.infer(inputs)),
            Op::LayerNorm(l) => l.infer(inputs),
            Op::Lrn(l) => one(l.infer(inputs)),
            Op::Softmax(s) => one(s.infer(inputs)),
            Op::Pool(p) => p.infer(inputs),
            Op::MaxPoolGradient(g) => one(g.infer(inputs)),
            Op::Resize(r) => one(r.infer(inputs)),
            Op::Reduce(r) => one(r.infer(inputs)),
            Op::ArgReduce(r) => one(r.infer(inputs)),
            Op::Cumulative(c) => one(c.infer(inputs)),
            Op::Concat(c) => one(c.infer(inputs)),
            Op::Split(s) => s.infer(inputs),
            Op::Slice(s) => one(s.infer(inputs)),
            Op::Pad(p) => one(p.infer(inputs)),
            Op::Reshape(r) => one(r.infer(inputs)),
            Op::Transpose(t) => one(t.infer(inputs)),
            Op::Expand(e) => one(e.infer(inputs)),
            Op::Gather(g) => one(g.infer(inputs)),
            Op::GatherElements(g) => one(g.infer(inputs)),
            Op::GatherNd(g) => one(g.infer(inputs)),
            Op::ScatterElements(s) => one(s.infer(inputs)),
            Op::ScatterNd(s) => one(s.infer(inputs)),
            Op::TopK(t) => one(t.infer(inputs)),
            Op::Positions => one(select::infer_positions(inputs)),
            Op::Suppress(s) => one(s.infer(inputs)),
            Op::GridSample(g) => one(g.infer(inputs)),
        }
    }
}

/// Operand types as a shape rule sees them.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a>(&'a [Option<&'a TensorType>]);

impl<'a> Operands<'a> {
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn at_most(self, n: usize) -> Result<Operands<'a>, OpError> {
        if self.0.len() > n {
            return refuse(format!(
                "takes at most {n} operands and has {}",
                self.0.len()
            ));
        }
        Ok(self)
    }

    pub(crate) fn exactly(self, n: usize) -> Result<Operands<'a>, OpError> {
        if self.0.len() != n || self.0.iter().any(Option::is_none) {
            let have = self.0.iter().flatten().count();
            return refuse(format!("takes {n} operands and has {have}"));
        }
        Ok(self)
    }

    pub(crate) fn get(self, i: usize) -> Result<&'a TensorType, OpError> {
        match self.optional(i) {
            Some(t) => Ok(t),
            None => refuse(format!("operand {i} is missing")),
        }
    }

    pub(crate) fn optional(self, i: usize) -> Option<&'a TensorType> {
        self.0.get(i).copied().flatten()
    }

    /// Operand `i`, which must be of a floating type.
    pub(crate) fn float(self, i: usize) -> Result<&'a TensorType, OpError> {
        let t = self.get(i)?;
        if t.dtype.is_float() {
            Ok(t)
        } else {
            refuse(format!("operand {i} is {t}, not floating"))
        }
    }

    /// Operand `i`, which must be floating or of integers.
    pub(crate) fn number(self, i: usize) -> Result<&'a TensorType, OpError> {
        let t = self.get(i)?;
        if t.dtype.is_float() || t.dtype.is_int() {
            return Ok(t);
        }
        refuse(format!("is not defined on {}", t.dtype))
    }

    /// Operand `i`, which must be of bytes.
    pub(crate) fn byte(self, i: usize) -> Result<&'a TensorType, OpError> {
        let t = self.get(i)?;
        if matches!(t.dtype, DType::I8 | DType::U8) {
            Ok(t)
        } else {
            refuse(format!("operand {i} is {t}, not i8 or u8"))
        }
    }

    /// Operand `i`, which must be of indices.
    pub(crate) fn indices(self, i: usize) -> Result<&'a TensorType, OpError> {
        let t = self.get(i)?;
        if matches!(t.dtype, DType::I32 | DType::I64) {
            Ok(t)
        } else {
            refuse(format!("its indices are {t}, not i32 or i64"))
        }
    }

    /// Operand `i`, if present, which must be exactly this.
    pub(crate) fn expect(self, i: usize, dtype: DType, shape: &[usize]) -> Result<(), OpError> {
        match self.optional(i) {
            Some(t) if t.dtype != dtype || t.shape != shape => {
                let wanted = TensorType::new(dtype, shape);
                refuse(format!("operand {i} is {t} where {wanted} is needed"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks that `axes` ascend and name dimensions of a tensor of this rank.
pub(crate) fn check_axes(axes: &[usize], rank: usize) -> Result<(), OpError> {
    if axes.iter().any(|a| *a >= rank) || axes.windows(2).any(|w| w[0] >= w[1]) {
        return refuse(format!("axes {axes:?} do not ascend within rank {rank}"));
    }
    Ok(())
}
