//! Importers of the operators on bytes of com.microsoft that ONNX Runtime's quantiser writes:
//! their operands dequantised, the operator on floats, and its result quantised. Products of
//! such operands become products of bytes when the model is simplified.

use crate::indexing::counting;
use crate::node::{Imported, NodeImport, Problem};
use crate::quantized::{Along, Steps, dequantized, qlinear_conv, quantized, scaled, zero_point};
use crate::windows;
use graph::ValueId;
use graph::ops::{
    Binary, Concat, Gather, Gemm, LayerNorm, Op, PoolKind, Reduce, ReduceKind, Softmax, Unary,
};
use tensor::{DType, Tensor};

/// Operand `i`, whose scale and zero point follow it.
fn operand(n: &mut NodeImport, i: usize, axis: i64) -> Result<ValueId, Problem> {
    let (q, scale) = (n.input(i)?, n.input(i + 1)?);
    let zero_point = zero_point(n, i + 2);
    dequantized(n, q, (scale, zero_point), Along::axis(axis))
}

/// A result whose scale is input `i`, and its zero point the next one; of type `like` if it
/// has none.
fn result(n: &mut NodeImport, y: ValueId, i: usize, like: ValueId) -> Imported {
    let scale = n.input(i)?;
    let to = Steps::like(n, n.optional(i + 1).unwrap_or(like))?;
    let zero_point = zero_point(n, i + 1);
    Ok(vec![quantized(
        n,
        y,
        (scale, zero_point),
        Along::axis(1),
        to,
    )?])
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

/// An operator on images whose attribute says where their channels are.
fn by_channels(n: &mut NodeImport, import: fn(&mut NodeImport) -> Imported) -> Imported {
    match n.attributes.flag("channels_last", false)? {
        true => windows::with_channels_last(n, import),
        false => import(n),
    }
}

/// As ONNX's; its channels may be last, those of its weights are not.
pub(crate) fn conv(n: &mut NodeImport) -> Imported {
    by_channels(n, qlinear_conv)
}

pub(crate) fn average_pool(n: &mut NodeImport) -> Imported {
    by_channels(n, pool_of_means)
}

pub(crate) fn global_average_pool(n: &mut NodeImport) -> Imported {
    by_channels(n, pool_of_all)
}

fn pool_of_means(n: &mut NodeImport) -> Imported {
    let count_include_pad = n.attributes.flag("count_include_pad", false)?;
    let kind = PoolKind::Average { count_include_pad };
    let pool = windows::pool_attributes(n, kind)?;
    of_one(n, Op::Pool(pool))
}

fn pool_of_all(n: &mut NodeImport) -> Imported {
    let rank = n.shape(n.input(0)?).len();
    let mean = Reduce {
        kind: ReduceKind::Mean,
        axes: (2..rank).collect(),
        keepdims: true,
    };
    of_one(n, Op::Reduce(mean))
}

/// The axes that an attribute names, or all.
fn named_axes(n: &NodeImport, rank: usize) -> Result<Vec<usize>, Problem> {
    let given = n.attributes.ints("axes")?.unwrap_or(&[]);
    let mut axes = given
        .iter()
        .map(|a| n.axis(*a, rank))
        .collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    match axes.is_empty() {
        true => Ok((0..rank).collect()),
        false => Ok(axes),
    }
}

pub(crate) fn reduce_mean(n: &mut NodeImport) -> Imported {
    let rank = n.ty(n.input(0)?).rank();
    let mean = Reduce {
        kind: ReduceKind::Mean,
        axes: named_axes(n, rank)?,
        keepdims: n.attributes.flag("keepdims", true)?,
    };
    of_one(n, Op::Reduce(mean))
}

/// Sums of bytes, in i32.
pub(crate) fn reduce_sum(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes: named_axes(n, n.ty(x).rank())?,
        keepdims: n.attributes.flag("keepdims", true)?,
    };
    let x = n.cast(x, DType::I32)?;
    Ok(vec![n.emit(Op::Reduce(sum), &[x])?])
}

/// Products of bytes without their zero points, in i32.
pub(crate) fn integer_product(n: &mut NodeImport) -> Imported {
    let mut operands = [n.input(0)?, n.input(2)?];
    for (x, i) in operands.iter_mut().zip([1, 3]) {
        *x = n.cast(*x, DType::I32)?;
        if let Some(z) = zero_point(n, i) {
            let z = n.reshape(z, vec![])?;
            let z = n.cast(z, DType::I32)?;
            *x = n.binary(Binary::Sub, *x, z)?;
        }
    }
    Ok(vec![n.binary(Binary::Mul, operands[0], operands[1])?])
}

/// Products of integers of 16 bits, summed in 32.
pub(crate) fn matmul_of_16(n: &mut NodeImport) -> Imported {
    let (a, b) = (n.input(0)?, n.input(1)?);
    let (a, b) = (n.cast(a, DType::I32)?, n.cast(b, DType::I32)?);
    Ok(vec![n.emit(Op::MatMul, &[a, b])?])
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

/// Embeddings, whose tables, scale and bias are bytes, added and normalised; and how many tokens each row has.
pub(crate) fn embed_layer_norm(n: &mut NodeImport) -> Imported {
    let epsilon = n.attributes.float("epsilon", 1e-12)?;
    let ids = n.input(0)?;
    let [batch, rows] = n.shape(ids)[..] else {
        return Problem::unsupported(format!("its tokens are {}", n.ty(ids)));
    };
    let bytes = |n: &mut NodeImport, q: ValueId, scale: usize, zero: usize| {
        let (scale, zero) = (n.input(scale)?, zero_point(n, zero));
        dequantized(n, q, (scale, zero), Along::axis(0))
    };
    let table = |n: &mut NodeImport, i: usize, at: ValueId, [scale, zero]: [usize; 2]| {
        let q = n.input(i)?;
        let q = n.emit(Op::Gather(Gather { axis: 0 }), &[q, at])?;
        bytes(n, q, scale, zero)
    };
    let mut sum = table(n, 2, ids, [8, 13])?;
    let places = counting(n, rows, 1, 2, 0)?;
    let place = table(n, 3, places, [9, 14])?;
    sum = n.binary(Binary::Add, sum, place)?;
    if let Some(segments) = n.optional(1) {
        let segment = table(n, 4, segments, [10, 15])?;
        sum = n.binary(Binary::Add, sum, segment)?;
    }
    let (gamma, beta) = (n.input(5)?, n.input(6)?);
    let (gamma, beta) = (bytes(n, gamma, 11, 16)?, bytes(n, beta, 12, 17)?);
    let norm = LayerNorm {
        axis: 2,
        epsilon,
        statistics: false,
    };
    let y = n.emit(Op::LayerNorm(norm), &[sum, gamma, beta])?;
    let mask = n.optional(7);
    Ok(vec![y, crate::fused::tokens(n, mask, batch)?])
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

/// A choice between bytes of two scales.
pub(crate) fn select(n: &mut NodeImport) -> Imported {
    let condition = n.input(0)?;
    let (a, b) = (operand(n, 1, 1)?, operand(n, 4, 1)?);
    let y = n.emit(Op::Where, &[condition, a, b])?;
    let like = n.input(1)?;
    result(n, y, 7, like)
}

/// Before operator set 13, all axes from the given one on are one axis.
pub(crate) fn softmax(n: &mut NodeImport) -> Imported {
    let x = operand(n, 0, 1)?;
    let opset = n.attributes.int("opset", 13)?;
    let shape = n.shape(x);
    let axis = n.axis(n.attributes.int("axis", -1)?, shape.len())?;
    let y = if opset < 13 {
        let rows = shape[..axis].iter().product();
        let columns = shape[axis..].iter().product();
        let flat = n.reshape(x, vec![rows, columns])?;
        let y = n.emit(Op::Softmax(Softmax { axis: 1 }), &[flat])?;
        n.reshape(y, shape)?
    } else {
        n.emit(Op::Softmax(Softmax { axis }), &[x])?
    };
    let like = n.input(0)?;
    result(n, y, 3, like)
}

/// Operands, their scales, and their zero points, then a bias: floats.
pub(crate) fn matmul_integer_to_float(n: &mut NodeImport) -> Imported {
    let (a, a_scale, a_zero) = (n.input(0)?, n.input(2)?, zero_point(n, 4));
    let (b, b_scale, b_zero) = (n.input(1)?, n.input(3)?, zero_point(n, 5));
    let y = product_of_bytes(n, (a, a_scale, a_zero), (b, b_scale, b_zero))?;
    plus_bias(n, y, 6)
}

/// Bytes, their scale and their zero point.
type Scaled = (ValueId, ValueId, Option<ValueId>);

/// The product of dequantised matrices. A constant scale is found later, when products of bytes are looked for; with a
/// scale that the data decide, bytes are multiplied here, and the sum is scaled.
fn product_of_bytes(n: &mut NodeImport, a: Scaled, b: Scaled) -> Result<ValueId, Problem> {
    let one = n.shape(a.1).iter().product::<usize>() == 1;
    if !one || n.model.constant(a.1).is_some() {
        let operand = |n: &mut NodeImport, (x, scale, zero): Scaled| {
            dequantized(n, x, (scale, zero), Along::axis(-1))
        };
        let (a, b) = (operand(n, a)?, operand(n, b)?);
        return n.emit(Op::MatMul, &[a, b]);
    }
    let sum = crate::quantized::product(n, [a.0, b.0], [a.2, b.2])?;
    let sum = n.emit(Op::Cast(DType::F32), &[sum])?;
    let scale = n.binary(Binary::Mul, a.1, b.1)?;
    n.binary(Binary::Mul, sum, scale)
}

/// Floats, quantised by their own range, and weights of bytes.
pub(crate) fn dynamic_quantize_matmul(n: &mut NodeImport) -> Imported {
    let (b, b_scale, b_zero) = (n.input(1)?, n.input(2)?, zero_point(n, 3));
    let [a, scale, zero] = crate::quantized::by_own_range(n, n.input(0)?)?;
    let y = product_of_bytes(n, (a, scale, Some(zero)), (b, b_scale, b_zero))?;
    plus_bias(n, y, 4)
}

fn plus_bias(n: &mut NodeImport, y: ValueId, i: usize) -> Imported {
    match n.optional(i) {
        Some(bias) => Ok(vec![n.binary(Binary::Add, y, bias)?]),
        None => Ok(vec![y]),
    }
}

/// Attention of one operand with itself, by a product of bytes for queries, keys and values.
pub(crate) fn attention(n: &mut NodeImport) -> Imported {
    let (x, x_scale, x_zero) = (n.input(0)?, n.input(3)?, zero_point(n, 6));
    let (w, w_scale, w_zero) = (n.input(1)?, n.input(4)?, zero_point(n, 7));
    let all = product_of_bytes(n, (x, x_scale, x_zero), (w, w_scale, w_zero))?;
    let all = plus_bias(n, all, 2)?[0];
    let (mask, past) = (n.optional(5), n.optional(8));
    crate::fused::packed_attention(n, all, [mask, None], past)
}

/// A product with weights of a few bits in blocks along the terms, each with a scale and a zero
/// point. They are dequantised as `DequantizeLinear` writes it.
pub(crate) fn matmul_n_bits(n: &mut NodeImport) -> Imported {
    let size = |name: &str| match n.attributes.int(name, 0) {
        Ok(v) if (1..1 << 31).contains(&v) => Ok(v as usize),
        Ok(v) => Problem::unsupported(format!("{name}={v}")),
        Err(e) => Err(e),
    };
    let (terms, maps, block) = (size("K")?, size("N")?, size("block_size")?);
    let bits = n.attributes.int("bits", 4)?;
    n.attributes.ignore(&["accuracy_level", "weight_prepacked"]);
    if !matches!(bits, 2 | 4 | 8) {
        return Problem::unsupported(format!("bits={bits}; export weights of 4 or 8 bits"));
    }
    let bits = bits as usize;
    let x = n.input(0)?;
    let (Some(packed), Some(scales)) = (n.constant(1, "weights")?, n.constant(2, "scales")?) else {
        return Problem::unsupported("its weights or scales are missing");
    };
    let zeros = n.constant(3, "zero points")?;
    let blocks = terms.div_ceil(block);
    let bytes = (block * bits).div_ceil(8);
    let zero_bytes = (blocks * bits).div_ceil(8);
    let fits = packed.dtype() == DType::U8
        && packed.len() == maps * blocks * bytes
        && scales.len() == maps * blocks
        && zeros.as_ref().is_none_or(|z| match z.dtype() {
            DType::U8 => z.len() == maps * zero_bytes,
            _ => z.len() == maps * blocks,
        });
    if !fits {
        return Problem::unsupported(format!(
            "weights {:?} and scales {:?} for K={terms}, N={maps}, block_size={block}",
            packed.shape(),
            scales.shape()
        ));
    }
    n.take_elements(&[terms, maps])?;
    let numbers = few_bits(&packed, bits, [maps, blocks * block]);
    let numbers = as_columns(DType::U8, [terms, maps], |k, map| {
        f64::from(numbers[map * blocks * block + k])
    });
    let blocks_of_terms = blocks_of_terms(n, [terms, blocks, block])?;
    let of_block = |k: usize, map: usize| map * blocks + blocks_of_terms[k];
    let shape = [terms, maps];
    let steps = as_columns(DType::F32, shape, |k, map| scales.get_f64(of_block(k, map)));
    let points = match &zeros {
        Some(z) if z.dtype() == DType::U8 => {
            let row = zero_bytes * 8 / bits;
            let points = few_bits(z, bits, [maps, row]);
            as_columns(DType::I32, shape, |k, map| {
                f64::from(points[map * row + blocks_of_terms[k]])
            })
        }
        Some(z) => as_columns(DType::F32, shape, |k, map| z.get_f64(of_block(k, map))),
        None => as_columns(DType::I32, [1, 1], |_, _| f64::from(1u8 << (bits - 1))),
    };
    let is_whole = points.dtype() == DType::I32;
    let constant = |t| n.model.add_result(&n.name, t);
    let [mut numbers, steps, points] = [numbers, steps, points].map(constant);
    if !is_whole {
        numbers = n.cast(numbers, DType::F32)?;
    }
    let weights = scaled(n, numbers, (steps, Some(points)))?;
    let weights = n.cast(weights, n.dtype(x))?;
    let y = n.emit(Op::MatMul, &[x, weights])?;
    plus_bias(n, y, 5)
}

/// The block whose scale each term has: the one that it lies in, or the one that g_idx names.
fn blocks_of_terms(
    n: &NodeImport,
    [terms, blocks, block]: [usize; 3],
) -> Result<Vec<usize>, Problem> {
    let Some(given) = n.constant_ints(4, "blocks of terms (g_idx)")? else {
        return Ok((0..terms).map(|k| k / block).collect());
    };
    let named = given.iter().map(|b| usize::try_from(*b).ok());
    let named: Option<Vec<usize>> = named.collect();
    match named {
        Some(named) if named.len() >= terms && named.iter().all(|b| *b < blocks) => Ok(named),
        _ => Problem::unsupported(format!("g_idx={given:?} of {blocks} blocks")),
    }
}

/// Numbers of so many bits, in rows of whole bytes, the first one in the low bits.
fn few_bits(packed: &Tensor, bits: usize, [rows, row]: [usize; 2]) -> Vec<u8> {
    let in_byte = 8 / bits;
    let row_bytes = packed.len() / rows;
    let number = |i: usize| {
        let (row, i) = (i / row, i % row);
        let byte = packed.get_i64(row * row_bytes + i / in_byte) as u8;
        byte >> (i % in_byte * bits) & (u8::MAX >> (8 - bits))
    };
    (0..rows * row).map(number).collect()
}

/// A matrix by its elements.
fn as_columns(
    dtype: DType,
    [rows, columns]: [usize; 2],
    of: impl Fn(usize, usize) -> f64,
) -> Tensor {
    let mut t = Tensor::zeros(dtype, &[rows, columns]);
    for i in 0..rows * columns {
        t.set_f64(i, of(i / columns, i % columns));
    }
    t
}
