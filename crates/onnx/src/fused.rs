//! Importers of operators that others fused: those of the domain com.microsoft, and their
//! like in the standard. Each is written out in what it was fused from, because `plan` fuses
//! for itself.

use crate::attention::{Weighting, appended, attend, columns, heads, joined_heads, transposed};
use crate::composite::by_mean_square;
use crate::indexing::{counting, stretched};
use crate::node::{Imported, NodeImport, Problem};
use crate::windows;
use graph::ValueId;
use graph::ops::{
    Binary, Combine, Concat, Conv, Gather, Gelu, LayerNorm, Op, Reduce, ReduceKind,
    ScatterElements, Slice, Unary,
};
use tensor::DType;

pub(crate) fn bias_gelu(n: &mut NodeImport) -> Imported {
    biased(n, Gelu::Exact)
}

pub(crate) fn fast_gelu(n: &mut NodeImport) -> Imported {
    biased(n, Gelu::Tanh)
}

fn biased(n: &mut NodeImport, gelu: Gelu) -> Imported {
    let x = n.input(0)?;
    let sum = match n.optional(1) {
        Some(bias) => n.binary(Binary::Add, x, bias)?,
        None => x,
    };
    Ok(vec![n.unary(Unary::Gelu(gelu), sum)?])
}

/// x sigmoid(alpha x).
pub(crate) fn gated(n: &mut NodeImport, x: ValueId, alpha: f32) -> Result<ValueId, Problem> {
    let inner = crate::composite::scaled(n, x, alpha)?;
    let gate = n.unary(Unary::Sigmoid, inner)?;
    n.binary(Binary::Mul, x, gate)
}

pub(crate) fn quick_gelu(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 1.702)?;
    let x = n.input(0)?;
    Ok(vec![gated(n, x, alpha)?])
}

pub(crate) fn swiglu(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 1.0)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    if n.ty(a) != n.ty(b) {
        return Problem::unsupported(format!("its operands are {} and {}", n.ty(a), n.ty(b)));
    }
    let gate = gated(n, a, alpha)?;
    Ok(vec![n.binary(Binary::Mul, gate, b)?])
}

/// alpha A B. Each is read with its first axis behind those of the batch, and then as a transpose of its last axes, if so
/// said.
pub(crate) fn fused_matmul(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 1.0)?;
    let mut operands = [n.input(0)?, n.input(1)?];
    for (x, name) in operands.iter_mut().zip(["A", "B"]) {
        let rank = n.ty(*x).rank();
        let is_turned = n.attributes.flag(&format!("trans{name}"), false)?;
        let moves_batch = n.attributes.flag(&format!("transBatch{name}"), false)?;
        if rank < 2 {
            continue;
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        if moves_batch {
            perm[..rank - 1].rotate_left(1);
        }
        if is_turned {
            perm.swap(rank - 1, rank - 2);
        }
        if is_turned || moves_batch {
            *x = transposed(n, *x, &perm)?;
        }
    }
    let product = n.emit(Op::MatMul, &operands)?;
    Ok(vec![crate::composite::scaled(n, product, alpha)?])
}

/// A convolution, perhaps plus a tensor, and an activation.
pub(crate) fn fused_conv(n: &mut NodeImport) -> Imported {
    let mut y = windows::conv(n)?[0];
    if let Some(z) = n.optional(3) {
        y = n.binary(Binary::Add, y, z)?;
    }
    let given = n.attributes.floats("activation_params")?.unwrap_or(&[]);
    let parameter = |i: usize, default: f32| given.get(i).copied().unwrap_or(default);
    let bound = |i: usize| given.get(i).map(|v| f64::from(*v));
    let activation = match n.attributes.text("activation", "")?.as_str() {
        "" => return Ok(vec![y]),
        "Relu" => Unary::Relu,
        "Tanh" => Unary::Tanh,
        "Sigmoid" => Unary::Sigmoid,
        "LeakyRelu" => Unary::LeakyRelu {
            alpha: parameter(0, 0.01),
        },
        "HardSigmoid" => Unary::HardSigmoid {
            alpha: parameter(0, 0.2),
            beta: parameter(1, 0.5),
        },
        "Clip" => Unary::Clip {
            min: bound(0),
            max: bound(1),
        },
        other => return Problem::unsupported(format!("activation=`{other}`")),
    };
    Ok(vec![n.unary(activation, y)?])
}

fn layer_norm(
    n: &mut NodeImport,
    [x, scale]: [ValueId; 2],
    shift: Option<ValueId>,
    epsilon: f32,
) -> Imported {
    let norm = LayerNorm {
        axis: n.ty(x).rank().saturating_sub(1),
        epsilon,
        statistics: n.wants(1) || n.wants(2),
    };
    let operands = [Some(x), Some(scale), shift];
    let present = if shift.is_some() { 3 } else { 2 };
    n.emit_all(Op::LayerNorm(norm), &operands[..present])
}

/// The layer normalisation of a sum, which is the fourth output.
pub(crate) fn skip_layer_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-12)?;
    let (x, skip) = (n.input(0)?, n.input(1)?);
    let mut sum = n.binary(Binary::Add, x, skip)?;
    if let Some(bias) = n.optional(4) {
        sum = n.binary(Binary::Add, sum, bias)?;
    }
    let (scale, shift) = (n.input(2)?, n.optional(3));
    let mut results = layer_norm(n, [sum, scale], shift, epsilon)?;
    results.resize(3, results[0]);
    results.push(sum);
    Ok(results)
}

/// Also under the standard domain, where ONNX Runtime's optimiser writes it.
pub(crate) fn simplified_layer_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-5)?;
    n.attributes.ignore(&["stash_type"]);
    let (x, scale) = (n.input(0)?, n.input(1)?);
    let rank = n.ty(x).rank();
    let axis = n.axis(n.attributes.int("axis", -1)?, rank)?;
    let [y, root] = by_mean_square(n, [x, scale], axis, epsilon)?;
    match n.wants(1) {
        true => Ok(vec![y, n.unary(Unary::Reciprocal, root)?]),
        false => Ok(vec![y]),
    }
}

/// [`gemm`](crate::linear::gemm) and an activation.
pub(crate) fn fused_gemm(n: &mut NodeImport) -> Imported {
    let y = crate::linear::gemm(n)?[0];
    activated(n, y)
}

/// [`fused_matmul`] and an activation.
pub(crate) fn fused_matmul_activation(n: &mut NodeImport) -> Imported {
    let y = fused_matmul(n)?[0];
    n.attributes.ignore(&["activation_axis"]);
    activated(n, y)
}

/// A product, perhaps plus a bias, and the approximate Gelu of it.
pub(crate) fn gemm_fast_gelu(n: &mut NodeImport) -> Imported {
    let mut y = crate::linear::matmul(n)?[0];
    if let Some(bias) = n.optional(2) {
        y = n.binary(Binary::Add, y, bias)?;
    }
    Ok(vec![n.unary(Unary::Gelu(Gelu::Tanh), y)?])
}

/// The activation that the attributes name.
fn activated(n: &mut NodeImport, y: ValueId) -> Imported {
    let alpha = n.attributes.optional_float("activation_alpha")?;
    let beta = n.attributes.optional_float("activation_beta")?;
    n.attributes.ignore(&["activation_gamma"]);
    let activation = match n.attributes.text("activation", "")?.as_str() {
        "" => return Ok(vec![y]),
        "Relu" => Unary::Relu,
        "Tanh" => Unary::Tanh,
        "Sigmoid" => Unary::Sigmoid,
        "LeakyRelu" => Unary::LeakyRelu {
            alpha: alpha.unwrap_or(0.01),
        },
        "HardSigmoid" => Unary::HardSigmoid {
            alpha: alpha.unwrap_or(0.2),
            beta: beta.unwrap_or(0.5),
        },
        other => return Problem::unsupported(format!("activation=`{other}`")),
    };
    Ok(vec![n.unary(activation, y)?])
}

pub(crate) fn skip_simplified_layer_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-12)?;
    let (x, skip, scale) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let mut sum = n.binary(Binary::Add, x, skip)?;
    if let Some(bias) = n.optional(3) {
        sum = n.binary(Binary::Add, sum, bias)?;
    }
    if n.wants(1) || n.wants(2) {
        return Problem::unsupported("its statistics are read");
    }
    let last = n.ty(sum).rank().saturating_sub(1);
    let [y, _] = by_mean_square(n, [sum, scale], last, epsilon)?;
    Ok(vec![y, y, y, sum])
}

/// How many tokens a mask leaves of each row; none without one.
pub(crate) fn tokens(
    n: &mut NodeImport,
    mask: Option<ValueId>,
    batch: usize,
) -> Result<ValueId, Problem> {
    let Some(mask) = mask else {
        return n.filled(DType::I32, &[batch], 0.0);
    };
    let mask = n.cast(mask, DType::I32)?;
    let reduce = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![1],
        keepdims: false,
    };
    n.emit(Op::Reduce(reduce), &[mask])
}

/// The sum of embeddings, normalised; how many tokens each row has; and the sum itself.
pub(crate) fn embed_layer_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-12)?;
    n.attributes.ignore(&["mask_index_type"]);
    let ids = n.input(0)?;
    let [batch, rows] = n.shape(ids)[..] else {
        return Problem::unsupported(format!("its tokens are {}", n.ty(ids)));
    };
    let embed = |n: &mut NodeImport, table: ValueId, at: ValueId| {
        n.emit(Op::Gather(Gather { axis: 0 }), &[table, at])
    };
    let (words, places) = (n.input(2)?, n.input(3)?);
    let mut sum = embed(n, words, ids)?;
    let positions = match n.optional(8) {
        Some(positions) => positions,
        None => counting(n, rows, 1, 2, 0)?,
    };
    let place = embed(n, places, positions)?;
    sum = n.binary(Binary::Add, sum, place)?;
    if let (Some(segments), Some(table)) = (n.optional(1), n.optional(4)) {
        let segment = embed(n, table, segments)?;
        sum = n.binary(Binary::Add, sum, segment)?;
    }
    let mask = n.optional(7);
    let counts = tokens(n, mask, batch)?;
    let (scale, shift) = (n.input(5)?, n.input(6)?);
    let norm = LayerNorm {
        axis: 2,
        epsilon,
        statistics: false,
    };
    let y = n.emit(Op::LayerNorm(norm), &[sum, scale, shift])?;
    Ok(vec![y, counts, sum])
}

/// Which keys the mask of an operator of com.microsoft leaves, if it has one.
fn unpadded(
    n: &mut NodeImport,
    mask: ValueId,
    [batch, rows, total]: [usize; 3],
) -> Result<Option<ValueId>, Problem> {
    let own = n.shape(mask);
    let shape = match own[..] {
        // Ends of the keys, and then perhaps their starts.
        [b] if b == batch || b == 2 * batch => vec![b / batch, batch, 1, 1, 1],
        [b, c] if b == batch && c == total => vec![b, 1, 1, c],
        // ONNX Runtime takes such a mask for none.
        [b, 1] if b == batch || b == 1 => return Ok(None),
        [b, r, c] if b == batch && r == rows && c == total => vec![b, 1, r, c],
        _ => {
            return Problem::unsupported(format!(
                "its mask is {} for {batch} x {rows} x {total} scores",
                n.ty(mask)
            ));
        }
    };
    let mask = n.cast(mask, DType::I64)?;
    let mask = n.reshape(mask, shape)?;
    if own.len() > 1 {
        return Ok(Some(n.cast(mask, DType::Bool)?));
    }
    let column = counting(n, total, 3, 4, 0)?;
    let at = |n: &mut NodeImport, i: i64| {
        let i = n.number(i);
        n.emit(Op::Gather(Gather { axis: 0 }), &[mask, i])
    };
    let end = at(n, 0)?;
    let before_end = n.binary(Binary::Less, column, end)?;
    if own[0] == batch {
        return Ok(Some(before_end));
    }
    let start = at(n, 1)?;
    let from_start = n.binary(Binary::GreaterOrEqual, column, start)?;
    Ok(Some(n.binary(Binary::And, from_start, before_end)?))
}

/// What masks and attributes of com.microsoft add to scores of so many rows and columns, where
/// the first row has `earlier` keys before its own. Padding counts little, and the future
/// nothing: a row whose keys are all padding still sees none that come later.
fn bias(
    n: &mut NodeImport,
    [mask, added]: [Option<ValueId>; 2],
    [batch, rows, total]: [usize; 3],
    earlier: usize,
    dtype: DType,
) -> Result<Option<ValueId>, Problem> {
    let filter = n.attributes.float("mask_filter_value", -10000.0)?;
    let zero = n.filled(dtype, &[], 0.0)?;
    let mut own = None;
    if let Some(mask) = mask
        && let Some(allowed) = unpadded(n, mask, [batch, rows, total])?
    {
        let little = n.filled(dtype, &[], f64::from(filter))?;
        own = Some(n.emit(Op::Where, &[allowed, zero, little])?);
    }
    if n.attributes.flag("unidirectional", false)? {
        // ONNX Runtime's last row sees all keys, whatever there are; its devices differ.
        if total != earlier + rows {
            return Problem::unsupported(format!(
                "unidirectional=1 for {rows} queries and {} keys of their own",
                total - earlier
            ));
        }
        let row = counting(n, rows, 2, 4, earlier as i64)?;
        let column = counting(n, total, 3, 4, 0)?;
        let allowed = n.binary(Binary::LessOrEqual, column, row)?;
        // As in ONNX Runtime: a row of minus infinity throughout would have no weights.
        let never = n.filled(dtype, &[], lowest(dtype))?;
        own = Some(n.emit(Op::Where, &[allowed, own.unwrap_or(zero), never])?);
    }
    match (own, added) {
        (Some(own), Some(added)) => Ok(Some(n.binary(Binary::Add, own, added)?)),
        (own, added) => Ok(own.or(added)),
    }
}

/// The lowest finite number of a type of floats.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65504.0,
        DType::BF16 => f64::from(f32::from_bits(0xff7f_0000)),
        DType::F64 => f64::MIN,
        _ => f64::from(f32::MIN),
    }
}

/// Attention over heads side by side, with a cache perhaps: the result and the cache.
pub(crate) fn heads_attend(
    n: &mut NodeImport,
    qkv: [ValueId; 3],
    count: usize,
    masks: [Option<ValueId>; 2],
    past: [Option<ValueId>; 2],
) -> Result<[ValueId; 3], Problem> {
    let [q, k, v] = qkv;
    let dtype = n.dtype(q);
    let q = heads(n, q, count)?;
    let (k, v) = (heads(n, k, count)?, heads(n, v, count)?);
    let new = n.shape(k)[2];
    let (k, v) = (appended(n, past[0], k)?, appended(n, past[1], v)?);
    let (batch, rows, size) = match n.shape(q)[..] {
        [batch, _, rows, size] => (batch, rows, size),
        _ => return Problem::unsupported(format!("its queries are {}", n.ty(q))),
    };
    let total = n.shape(k)[2];
    let scale = match n.attributes.float("scale", 0.0)? {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => f64::from(scale),
    };
    let how = Weighting {
        scale,
        softcap: 0.0,
        bias: bias(n, masks, [batch, rows, total], total - new, dtype)?,
        may_mask_rows: false,
        precision: None,
        shown: None,
    };
    let (y, _) = attend(n, [q, k, v], &how)?;
    Ok([joined_heads(n, y)?, k, v])
}

fn num_heads(n: &NodeImport) -> Result<usize, Problem> {
    match n.attributes.int("num_heads", 0)? {
        count if (1..1 << 20).contains(&count) => Ok(count as usize),
        count => Problem::unsupported(format!("num_heads={count}")),
    }
}

pub(crate) fn multi_head_attention(n: &mut NodeImport) -> Imported {
    let count = num_heads(n)?;
    let (masks, past) = (
        [n.optional(4), n.optional(5)],
        [n.optional(6), n.optional(7)],
    );
    let qkv = [Some(n.input(0)?), n.optional(1), n.optional(2)];
    let qkv = unpacked(n, qkv, count)?;
    let bias = n.optional(3);
    let qkv = with_bias(n, qkv, bias)?;
    Ok(heads_attend(n, qkv, count, masks, past)?.to_vec())
}

/// Queries, keys and values of which all, or the last two, may lie beside each other in one operand
/// [batch, rows, heads, 3 or 2, size].
pub(crate) fn unpacked(
    n: &mut NodeImport,
    [q, k, v]: [Option<ValueId>; 3],
    count: usize,
) -> Result<[ValueId; 3], Problem> {
    let part = |n: &mut NodeImport, all: ValueId, i: usize, of: usize| match n.shape(all)[..] {
        [batch, rows, heads, parts, size] if heads == count && parts == of => {
            let slice = Slice {
                starts: vec![0, 0, 0, i, 0],
                steps: vec![1; 5],
                sizes: vec![batch, rows, heads, 1, size],
            };
            let own = n.emit(Op::Slice(slice), &[all])?;
            n.reshape(own, vec![batch, rows, heads * size])
        }
        _ => Problem::unsupported(format!("{of} operands of {count} heads in {}", n.ty(all))),
    };
    match (q, k, v) {
        (Some(q), Some(k), Some(v)) => Ok([q, k, v]),
        (Some(q), Some(kv), None) => Ok([q, part(n, kv, 0, 2)?, part(n, kv, 1, 2)?]),
        (Some(all), None, None) => {
            let mut own = |i| part(n, all, i, 3);
            Ok([own(0)?, own(1)?, own(2)?])
        }
        _ => Problem::unsupported("it has no queries, or values without keys"),
    }
}

/// Queries, keys and values plus a bias of them beside each other.
pub(crate) fn with_bias(
    n: &mut NodeImport,
    [q, k, v]: [ValueId; 3],
    bias: Option<ValueId>,
) -> Result<[ValueId; 3], Problem> {
    if n.ty(q).rank() != 3 || n.ty(k).rank() == 5 {
        return Problem::unsupported(format!("its queries are {}, its keys {}", n.ty(q), n.ty(k)));
    }
    let mut qkv = [q, k, v];
    if let Some(bias) = bias {
        let mut start = 0;
        for x in &mut qkv {
            let shape = n.shape(*x);
            // Keys and values with an axis of heads have no bias.
            let width = match shape.len() {
                3 => shape[2],
                _ => continue,
            };
            let own = columns(n, bias, start, 1, width)?;
            *x = n.binary(Binary::Add, *x, own)?;
            start += width;
        }
    }
    Ok(qkv)
}

/// Attention of one operand with itself, by one product for queries, keys and values.
pub(crate) fn microsoft_attention(n: &mut NodeImport) -> Imported {
    let (x, weights) = (n.input(0)?, n.input(1)?);
    let mut all = n.emit(Op::MatMul, &[x, weights])?;
    if let Some(bias) = n.optional(2) {
        all = n.binary(Binary::Add, all, bias)?;
    }
    let masks = [n.optional(3), n.optional(5)];
    let past = n.optional(4);
    packed_attention(n, all, masks, past)
}

/// Queries, keys and values beside each other in `all`; the result and, if it is wanted, the cache.
pub(crate) fn packed_attention(
    n: &mut NodeImport,
    all: ValueId,
    masks: [Option<ValueId>; 2],
    past: Option<ValueId>,
) -> Imported {
    let count = num_heads(n)?;
    if n.attributes.flag("do_rotary", false)?
        || n.attributes.flag("past_present_share_buffer", false)?
    {
        return Problem::unsupported("it rotates its operands, or shares the cache's memory");
    }
    n.attributes.ignore(&["rotary_embedding_dim"]);
    let shape = n.shape(all);
    let width = shape.last().copied().unwrap_or(0);
    let sizes = match n.attributes.ints("qkv_hidden_sizes")? {
        Some(&[q, k, v]) if q > 0 && q == k && v > 0 && (2 * q + v) as usize == width => {
            [q, k, v].map(|v| v as usize)
        }
        None if shape.len() == 3 && width.is_multiple_of(3) => [width / 3; 3],
        other => {
            return Problem::unsupported(format!("qkv_hidden_sizes={other:?} for {}", n.ty(all)));
        }
    };
    let q = columns(n, all, 0, 1, sizes[0])?;
    let k = columns(n, all, sizes[0], 1, sizes[1])?;
    let v = columns(n, all, sizes[0] + sizes[1], 1, sizes[2])?;
    let past = match past {
        None => [None; 2],
        Some(past) => {
            let mut halves = [None; 2];
            for (i, half) in halves.iter_mut().enumerate() {
                let at = n.filled(DType::I64, &[], i as f64)?;
                *half = Some(n.emit(Op::Gather(Gather { axis: 0 }), &[past, at])?);
            }
            halves
        }
    };
    let [y, k, v] = heads_attend(n, [q, k, v], count, masks, past)?;
    if !n.wants(1) {
        return Ok(vec![y]);
    }
    let mut present = [k, v];
    for x in &mut present {
        let shape = [&[1], &n.shape(*x)[..]].concat();
        *x = n.reshape(*x, shape)?;
    }
    Ok(vec![y, n.emit(Op::Concat(Concat { axis: 0 }), &present)?])
}

/// A convolution of each channel with what came before, and the last elements for the next. The operator of
/// com.microsoft may have its channels last, and its elements apart.
pub(crate) fn causal_conv(n: &mut NodeImport) -> Imported {
    let (mut x, weight, bias) = (n.input(0)?, n.input(1)?, n.optional(2));
    let activation = n.attributes.text("activation", "none")?;
    let channels_last = n.attributes.flag("channels_last", false)?;
    let (axes, apart) = (
        n.attributes.int("ndim", 1)?,
        n.attributes.int("dilation", 1)?,
    );
    for (name, default) in CAUSAL_OF_DEVICES {
        let given = n.attributes.int(name, default)?;
        if given != default {
            return Problem::unsupported(format!("{name}={given}"));
        }
    }
    if axes != 1 || !(1..1 << 16).contains(&apart) {
        return Problem::unsupported(format!("ndim={axes}, dilation={apart}"));
    }
    let mut past = n.optional(3);
    if channels_last && n.ty(x).rank() == 3 {
        x = transposed(n, x, &[0, 2, 1])?;
        past = match past {
            Some(past) if n.ty(past).rank() == 3 => Some(transposed(n, past, &[0, 2, 1])?),
            past => past,
        };
    }
    let (shape, kernel) = (n.shape(x), n.shape(weight));
    let refused =
        || Problem::unsupported(format!("its operands are {} and {}", n.ty(x), n.ty(weight)));
    let ([batch, channels, _], [_, 1, taps]) = (&shape[..], &kernel[..]) else {
        return refused();
    };
    if *taps == 0 {
        return refused();
    }
    let kept = (taps - 1) * apart as usize;
    let before = match past {
        Some(past) => past,
        None => n.filled(n.dtype(x), &[*batch, *channels, kept], 0.0)?,
    };
    let padded = match kept {
        0 => x,
        _ => n.emit(Op::Concat(Concat { axis: 2 }), &[before, x])?,
    };
    let conv = Conv {
        strides: vec![1],
        dilations: vec![apart as usize],
        pads: vec![(0, 0)],
        groups: *channels,
    };
    let operands = [Some(padded), Some(weight), bias];
    let present = if bias.is_some() { 3 } else { 2 };
    let y = n.emit_all(Op::Conv(conv), &operands[..present])?[0];
    let y = match activation.as_str() {
        "none" => y,
        "silu" | "swish" => gated(n, y, 1.0)?,
        other => return Problem::unsupported(format!("activation=`{other}`")),
    };
    let mut results = vec![y];
    if n.wants(1) {
        let mut sizes = n.shape(padded);
        let start = if kept == 0 { 0 } else { sizes[2] - kept };
        sizes[2] = kept;
        let slice = Slice {
            starts: vec![0, 0, start],
            steps: vec![1; 3],
            sizes,
        };
        results.push(n.emit(Op::Slice(slice), &[padded])?);
    }
    if channels_last {
        for y in &mut results {
            *y = transposed(n, *y, &[0, 2, 1])?;
        }
    }
    Ok(results)
}

/// Attributes of the causal convolution that the runtime has for other devices, or that keep several states, with the
/// values that leave it as it is.
const CAUSAL_OF_DEVICES: [(&str, i64); 6] = [
    ("state_window", 0),
    ("state_update_capacity", 0),
    ("state_channels_last", -1),
    ("state_length", 0),
    ("input_channel_offset", 0),
    ("input_channels", 0),
];

/// A cache with an update from each row's own position on.
pub(crate) fn tensor_scatter(n: &mut NodeImport) -> Imported {
    let (cache, update) = (n.input(0)?, n.input(1)?);
    let circular = match n.attributes.text("mode", "linear")?.as_str() {
        "linear" => false,
        "circular" => true,
        other => return Problem::unsupported(format!("mode=`{other}`")),
    };
    let (shape, own) = (n.shape(cache), n.shape(update));
    let rank = shape.len();
    let axis = n.axis(n.attributes.int("axis", -2)?, rank)?;
    let fits = |d: usize| own[d] == shape[d] || d == axis && own[d] < shape[d];
    if axis == 0 || own.len() != rank || !(0..rank).all(fits) {
        return Problem::unsupported(format!(
            "its update {} does not go into {} along axis {axis}",
            n.ty(update),
            n.ty(cache)
        ));
    }
    if n.ty(update).is_empty() {
        return Ok(vec![cache]);
    }
    let mut places = counting(n, own[axis], axis, rank, 0)?;
    if let Some(first) = n.optional(2) {
        let mut along = vec![1; rank];
        along[0] = shape[0];
        let first = n.cast(first, DType::I64)?;
        let first = n.reshape(first, along)?;
        places = n.binary(Binary::Add, places, first)?;
    }
    if circular {
        let extent = n.filled(DType::I64, &[], shape[axis] as f64)?;
        places = n.binary(Binary::Mod, places, extent)?;
    }
    let indices = stretched(n, places, &own)?;
    let scatter = ScatterElements {
        axis,
        combine: Combine::Replace,
    };
    Ok(vec![n.emit(
        Op::ScatterElements(scatter),
        &[cache, indices, update],
    )?])
}
