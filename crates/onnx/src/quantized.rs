//! Importers of quantised operators, each by the definition in the ONNX
//! operator documentation.
//!
//! Products are of the bytes themselves; zero points are taken off their sums:
//! the sum of (a - p)(b - q) is that of ab, less p times the sum of b, less q
//! times the sum of (a - p). With constant weights and q = 0 that is one
//! constant a column or map.

use crate::narrow::Narrow;
use crate::narrowing::narrowed;
use crate::node::{Imported, NodeImport, Problem};
use crate::windows;
use graph::ValueId;
use graph::ops::{Binary, Conv, ConvInteger, Expand, Op, Reduce, ReduceKind, Slice, Unary};
use tensor::DType;

/// Input `i` if it is a zero point that can change anything.
pub(crate) fn zero_point(n: &NodeImport, i: usize) -> Option<ValueId> {
    let v = n.optional(i)?;
    match n.model.constant(v) {
        Some(t) if (0..t.len()).all(|i| t.get_i64(i) == 0) => None,
        _ => Some(v),
    }
}

fn sum(n: &mut NodeImport, x: ValueId, axes: Vec<usize>) -> Result<ValueId, Problem> {
    let x = n.cast(x, DType::I32)?;
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes,
        keepdims: true,
    };
    n.emit(Op::Reduce(sum), &[x])
}

/// `y` less `p` times `of`.
fn less(n: &mut NodeImport, y: ValueId, p: ValueId, of: ValueId) -> Result<ValueId, Problem> {
    let p = n.cast(p, DType::I32)?;
    let product = n.binary(Binary::Mul, of, p)?;
    n.binary(Binary::Sub, y, product)
}

/// The sum over k of (a - p)(b - q).
pub(crate) fn product(
    n: &mut NodeImport,
    [a, b]: [ValueId; 2],
    [p, q]: [Option<ValueId>; 2],
) -> Result<ValueId, Problem> {
    let mut y = n.emit(Op::MatMulInteger, &[a, b])?;
    let (a_rank, b_rank) = (n.shape(a).len(), n.shape(b).len());
    // One a row; a vector on the right leaves no columns beside the rows.
    let p = match p {
        Some(p) if n.shape(p).len() == 1 && n.shape(p) != [1] && b_rank > 1 => {
            let rows = n.shape(p)[0];
            Some(n.reshape(p, vec![rows, 1])?)
        }
        p => p,
    };
    if let Some(p) = p {
        let mut columns = sum(n, b, vec![b_rank.saturating_sub(2)])?;
        if a_rank == 1 || b_rank == 1 {
            let mut shape = n.shape(columns);
            shape.remove(b_rank.saturating_sub(2));
            columns = n.reshape(columns, shape)?;
        }
        y = less(n, y, p, columns)?;
    }
    if let Some(q) = q {
        let depth = n.shape(a)[a_rank - 1];
        let mut rows = sum(n, a, vec![a_rank - 1])?;
        if let Some(p) = p {
            let depth = n.filled(DType::I32, &[], depth as f64)?;
            rows = less(n, rows, p, depth)?;
        }
        if a_rank == 1 || b_rank == 1 {
            let mut shape = n.shape(rows);
            shape.remove(a_rank - 1);
            rows = n.reshape(rows, shape)?;
        }
        y = less(n, y, q, rows)?;
    }
    Ok(y)
}

pub(crate) fn matmul_integer(n: &mut NodeImport) -> Imported {
    let operands = [n.input(0)?, n.input(1)?];
    let zero_points = [zero_point(n, 2), zero_point(n, 3)];
    Ok(vec![product(n, operands, zero_points)?])
}

/// A value a map, at [1, M, 1, ..]; anything of one element stays.
fn by_map(n: &mut NodeImport, v: ValueId, rank: usize) -> Result<ValueId, Problem> {
    match n.shape(v)[..] {
        [maps] => {
            let mut shape = vec![1; rank];
            shape[1] = maps;
            n.reshape(v, shape)
        }
        [] => Ok(v),
        ref shape => Problem::unsupported(format!("a scale or zero point of shape {shape:?}")),
    }
}

fn ones(n: &mut NodeImport, like: ValueId) -> Result<ValueId, Problem> {
    let shape = n.shape(like);
    n.filled(DType::U8, &shape, 1.0)
}

/// The sum over windows of (x - p)(w - q), where windows reach outside of x
/// counting nothing.
fn windows_sum(
    n: &mut NodeImport,
    conv: Conv,
    [x, w]: [ValueId; 2],
    [p, q]: [Option<ValueId>; 2],
) -> Result<ValueId, Problem> {
    let rank = n.shape(x).len();
    let constant = p.and_then(|p| n.model.constant(p).cloned());
    // Outside of x are zero points, which count nothing.
    let known = constant.filter(|t| t.len() == 1).map(|t| t.get_i64(0));
    let op = |outside: i64| {
        let conv = conv.clone();
        Op::ConvInteger(ConvInteger {
            conv,
            outside,
            centred: false,
        })
    };
    if let (Some(outside), None, true) = (known, q, n.shape(x)[1] == conv.groups) {
        // Each channel has a sum of its own: the zero point is as well taken off before.
        let centred = ConvInteger {
            conv: conv.clone(),
            outside,
            centred: true,
        };
        return n.emit(Op::ConvInteger(centred), &[x, w]);
    }
    // Of ones in place of x: how many taps count.
    let counting = op(i64::from(known.is_some()));
    let mut y = n.emit(op(known.unwrap_or(0)), &[x, w])?;
    // Sums of weights; at borders not of all of them.
    let whole = known.is_some() || conv.pads.iter().all(|p| *p == (0, 0));
    let p = match p {
        Some(p) => Some(by_map(n, p, rank)?),
        None => None,
    };
    if let Some(p) = p {
        let weights = if whole {
            let maps = n.shape(w)[0];
            let of_map = sum(n, w, (1..rank).collect())?;
            let flat = n.reshape(of_map, vec![maps])?;
            by_map(n, flat, rank)?
        } else {
            let everywhere = ones(n, x)?;
            n.emit(counting.clone(), &[everywhere, w])?
        };
        y = less(n, y, p, weights)?;
    }
    if let Some(q) = q {
        let q = by_map(n, q, rank)?;
        let taps = ones(n, w)?;
        let mut pixels = n.emit(op(known.unwrap_or(0)), &[x, taps])?;
        if let Some(p) = p {
            let everywhere = ones(n, x)?;
            let count = n.emit(counting, &[everywhere, taps])?;
            pixels = less(n, pixels, p, count)?;
        }
        y = less(n, y, q, pixels)?;
    }
    Ok(y)
}

pub(crate) fn conv_integer(n: &mut NodeImport) -> Imported {
    let conv = windows::conv_attributes(n, 1)?;
    let operands = [n.input(0)?, n.input(1)?];
    let zero_points = [zero_point(n, 2), zero_point(n, 3)];
    Ok(vec![windows_sum(n, conv, operands, zero_points)?])
}

/// What quantised numbers are: the type that holds them, and the least and the greatest one.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    dtype: DType,
    range: (f64, f64),
}

impl Steps {
    fn of(dtype: DType) -> Result<Steps, Problem> {
        let range = match dtype {
            DType::U8 => (0.0, 255.0),
            DType::I8 => (-128.0, 127.0),
            other => return Problem::unsupported(format!("quantising to {other}")),
        };
        Ok(Steps { dtype, range })
    }

    fn of_narrow(narrow: &Narrow) -> Result<Steps, Problem> {
        match narrow.range() {
            // Numbers of 32 bits are no sums of f32.
            Some(range) if narrow.carrier != DType::I64 => Ok(Steps {
                dtype: narrow.carrier,
                range,
            }),
            _ => Problem::unsupported(format!("quantising to {}", narrow.name)),
        }
    }

    /// Those of a value, such as a zero point.
    pub(crate) fn like(n: &NodeImport, v: ValueId) -> Result<Steps, Problem> {
        match n.narrow.get(&v) {
            Some(narrow) => Steps::of_narrow(narrow),
            None => Steps::of(n.dtype(v)),
        }
    }
}

/// round(x) + zero point, clipped to the range of its type. `x` is f32.
fn saturated(
    n: &mut NodeImport,
    x: ValueId,
    zero_point: Option<ValueId>,
    to: Steps,
) -> Result<ValueId, Problem> {
    let (min, max) = to.range;
    let mut y = n.unary(Unary::Round, x)?;
    if let Some(z) = zero_point {
        let z = n.cast(z, DType::F32)?;
        y = n.binary(Binary::Add, y, z)?;
    }
    let clip = Unary::Clip {
        min: Some(min),
        max: Some(max),
    };
    let y = n.unary(clip, y)?;
    n.cast(y, to.dtype)
}

/// Where scales and zero points lie: one a place of `axis`, or of so many places of it if `block` is not 0.
#[derive(Clone, Copy)]
pub(crate) struct Along {
    axis: i64,
    block: usize,
}

impl Along {
    pub(crate) fn axis(axis: i64) -> Along {
        Along { axis, block: 0 }
    }

    /// One value for so many elements in a row.
    pub(crate) fn blocks(axis: usize, block: usize) -> Along {
        let axis = axis as i64;
        Along { axis, block }
    }

    fn attributes(n: &NodeImport) -> Result<Along, Problem> {
        let block = n.attributes.int("block_size", 0)?;
        Ok(Along {
            axis: n.attributes.int("axis", 1)?,
            block: usize::try_from(block)
                .map_err(|_| Problem::Unsupported(format!("block_size={block}")))?,
        })
    }
}

/// A scale or zero point of each block along an axis, once for each of its places.
fn of_blocks(
    n: &mut NodeImport,
    v: ValueId,
    along: Along,
    like: &[usize],
) -> Result<ValueId, Problem> {
    let axis = n.axis(along.axis, like.len())?;
    let block = along.block.min(like[axis].max(1));
    let mut shape = n.shape(v);
    let mut expected = like.to_vec();
    expected[axis] = like[axis].div_ceil(block);
    if shape != expected {
        return Problem::unsupported(format!(
            "scales or zero points of shape {shape:?} for blocks of {} along axis {axis} of {like:?}",
            along.block
        ));
    }
    shape.insert(axis + 1, 1);
    let apart = n.reshape(v, shape.clone())?;
    shape[axis + 1] = block;
    let repeated = n.emit(Op::Expand(Expand { shape }), &[apart])?;
    expected[axis] *= block;
    let all = n.reshape(repeated, expected.clone())?;
    match expected == like {
        true => Ok(all),
        false => {
            let first = Slice {
                starts: vec![0; like.len()],
                steps: vec![1; like.len()],
                sizes: like.to_vec(),
            };
            n.emit(Op::Slice(first), &[all])
        }
    }
}

/// A scale or zero point with one value along an axis (or one for all, or one a block), shaped
/// to broadcast to a tensor of this shape.
fn along(n: &mut NodeImport, v: ValueId, along: Along, like: &[usize]) -> Result<ValueId, Problem> {
    if along.block > 0 {
        return of_blocks(n, v, along, like);
    }
    let axis = along.axis;
    let shape = n.shape(v);
    match shape[..] {
        [] => Ok(v),
        [1] => n.reshape(v, vec![]),
        [count] => {
            let axis = n.axis(axis, like.len())?;
            if count != like[axis] {
                return Problem::unsupported(format!(
                    "{count} scales or zero points along an axis of {}",
                    like[axis]
                ));
            }
            let mut shape = vec![1; like.len()];
            shape[axis] = count;
            n.reshape(v, shape)
        }
        _ => Problem::unsupported(format!("scales of shape {shape:?}: blocks")),
    }
}

pub(crate) fn quantize_linear(n: &mut NodeImport) -> Imported {
    let along = Along::attributes(n)?;
    let saturate = n.attributes.flag("saturate", true)?;
    // Quotients are of f32, which is 1.
    let precision = n.attributes.int("precision", 0)?;
    if ![0, 1].contains(&precision) {
        return Problem::unsupported(format!("precision={precision}"));
    }
    let (x, scale) = (n.input(0)?, n.input(1)?);
    let output = i32::try_from(n.attributes.int("output_dtype", 0)?).unwrap_or(-1);
    let like = n.optional(2).and_then(|z| n.narrow.get(&z).copied());
    if let Some(kind) = like.or(Narrow::of(output)).filter(|k| k.range().is_none()) {
        let quotient = scaled_down(n, x, scale, along)?;
        return Ok(vec![narrowed(n, quotient, kind, saturate)?]);
    }
    let (to, narrow) = match n.optional(2) {
        Some(z) => (Steps::like(n, z)?, n.narrow.get(&z).copied()),
        None => match (output, Narrow::of(output)) {
            (0 | 2, _) => (Steps::of(DType::U8)?, None),
            (3, _) => (Steps::of(DType::I8)?, None),
            (_, Some(narrow)) => (Steps::of_narrow(narrow)?, Some(narrow)),
            _ => return Problem::unsupported(format!("output_dtype={output}")),
        },
    };
    let zero_point = zero_point(n, 2);
    let y = quantized(n, x, (scale, zero_point), along, to)?;
    n.narrow.extend(narrow.map(|kind| (y, kind)));
    Ok(vec![y])
}

/// Numbers of the type `to` with scales and zero points along an axis, or with one for all.
pub(crate) fn quantized(
    n: &mut NodeImport,
    x: ValueId,
    (scale, zero_point): (ValueId, Option<ValueId>),
    place: Along,
    to: Steps,
) -> Result<ValueId, Problem> {
    let like = n.shape(x);
    let y = scaled_down(n, x, scale, place)?;
    let zero_point = match zero_point {
        Some(z) => Some(along(n, z, place, &like)?),
        None => None,
    };
    saturated(n, y, zero_point, to)
}

/// Numbers by their scales, in f32.
fn scaled_down(
    n: &mut NodeImport,
    x: ValueId,
    scale: ValueId,
    place: Along,
) -> Result<ValueId, Problem> {
    let like = n.shape(x);
    let scale = along(n, scale, place, &like)?;
    let (x, scale) = (n.cast(x, DType::F32)?, n.cast(scale, DType::F32)?);
    n.binary(Binary::Div, x, scale)
}

pub(crate) fn dequantize_linear(n: &mut NodeImport) -> Imported {
    let along = Along::attributes(n)?;
    let (x, scale) = (n.input(0)?, n.input(1)?);
    let to = match n.attributes.int("output_dtype", 0)? {
        0 => n.dtype(scale),
        1 => DType::F32,
        10 => DType::F16,
        11 => DType::F64,
        16 => DType::BF16,
        other => return Problem::unsupported(format!("output_dtype={other}")),
    };
    if n.narrow.get(&x).is_some_and(|t| t.carrier == DType::I64) {
        return Problem::unsupported(format!("an input of type {}", n.narrow[&x].name));
    }
    if !n.dtype(x).is_int() && !n.narrow.contains_key(&x) {
        return Problem::unsupported(format!("an input of type {}", n.dtype(x)));
    }
    let zero_point = zero_point(n, 2);
    let y = dequantized(n, x, (scale, zero_point), along)?;
    Ok(vec![n.cast(y, to)?])
}

/// What numbers with scales and zero points along an axis, or with one for all, stand for.
pub(crate) fn dequantized(
    n: &mut NodeImport,
    x: ValueId,
    (scale, zero_point): (ValueId, Option<ValueId>),
    place: Along,
) -> Result<ValueId, Problem> {
    let like = n.shape(x);
    let zero_point = match zero_point {
        Some(z) => {
            // Bytes that became integers later would not be taken for constants.
            let z = n.widened(z, counted_in(n.dtype(x)))?;
            Some(along(n, z, place, &like)?)
        }
        None => None,
    };
    let scale = along(n, scale, place, &like)?;
    scaled(n, x, (scale, zero_point))
}

/// The type in which zero points are taken off numbers of a type.
fn counted_in(d: DType) -> DType {
    match d {
        DType::F32 => d,
        _ => DType::I32,
    }
}

/// (x - zero point) scale, where both broadcast to x and the zero point is an i32 or of x's type.
pub(crate) fn scaled(
    n: &mut NodeImport,
    mut x: ValueId,
    (scale, zero_point): (ValueId, Option<ValueId>),
) -> Result<ValueId, Problem> {
    let to = counted_in(n.dtype(x));
    if n.dtype(x) != to {
        // Bytes are not folded: products of them may stay products of bytes.
        let wide = n.model.add(&n.name, Op::Cast(to), &[x]);
        x = wide.map_err(|e| e.source)?;
    }
    if let Some(z) = zero_point {
        x = n.binary(Binary::Sub, x, z)?;
    }
    let (x, scale) = (n.cast(x, DType::F32)?, n.cast(scale, DType::F32)?);
    n.binary(Binary::Mul, x, scale)
}

/// y, its scale (range / 255, the range including 0) and zero point.
pub(crate) fn dynamic_quantize_linear(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    Ok(by_own_range(n, x)?.to_vec())
}

/// Bytes, their scale and their zero point.
pub(crate) fn by_own_range(n: &mut NodeImport, x: ValueId) -> Result<[ValueId; 3], Problem> {
    let axes: Vec<usize> = (0..n.shape(x).len()).collect();
    let extreme = |n: &mut NodeImport, kind, clip| {
        let all = Reduce {
            kind,
            axes: axes.clone(),
            keepdims: false,
        };
        let v = n.emit(Op::Reduce(all), &[x])?;
        n.unary(clip, v)
    };
    let (zero, open) = (Some(0.0), None);
    let above = Unary::Clip {
        min: zero,
        max: open,
    };
    let below = Unary::Clip {
        min: open,
        max: zero,
    };
    let max = extreme(n, ReduceKind::Max, above)?;
    let min = extreme(n, ReduceKind::Min, below)?;
    let range = n.binary(Binary::Sub, max, min)?;
    let steps = n.filled(DType::F32, &[], 255.0)?;
    let scale = n.binary(Binary::Div, range, steps)?;
    // The specification divides zeros by a scale of zero; onnxruntime gives them a scale of one.
    let zero = n.filled(DType::F32, &[], 0.0)?;
    let one = n.filled(DType::F32, &[], 1.0)?;
    let is_zero = n.binary(Binary::Equal, range, zero)?;
    let scale = n.emit(Op::Where, &[is_zero, one, scale])?;
    let start = n.binary(Binary::Div, min, scale)?;
    let start = n.unary(Unary::Neg, start)?;
    let zero_point = saturated(n, start, None, Steps::of(DType::U8)?)?;
    let quotient = n.binary(Binary::Div, x, scale)?;
    let y = saturated(n, quotient, Some(zero_point), Steps::of(DType::U8)?)?;
    Ok([y, scale, zero_point])
}

/// The sums `acc` in the scale of the result: acc (a b / y) + zero point.
fn requantized(
    n: &mut NodeImport,
    acc: ValueId,
    [a, b, y]: [ValueId; 3],
    zero_point: Option<ValueId>,
    to: Steps,
) -> Result<ValueId, Problem> {
    let [a, b, y] = [
        n.cast(a, DType::F32)?,
        n.cast(b, DType::F32)?,
        n.cast(y, DType::F32)?,
    ];
    let scale = n.binary(Binary::Mul, a, b)?;
    let scale = n.binary(Binary::Div, scale, y)?;
    let acc = n.cast(acc, DType::F32)?;
    let scaled = n.binary(Binary::Mul, acc, scale)?;
    saturated(n, scaled, zero_point, to)
}

/// One value for all as a scalar.
fn scalar(n: &mut NodeImport, i: usize) -> Result<ValueId, Problem> {
    let v = n.input(i)?;
    if n.shape(v).iter().product::<usize>() != 1 {
        return Problem::unsupported(format!("input {i} of shape {:?}", n.shape(v)));
    }
    n.reshape(v, vec![])
}

pub(crate) fn qlinear_matmul(n: &mut NodeImport) -> Imported {
    let columns = n.input(4)?;
    // One scale for all columns, or one for each.
    let columns = match n.shape(columns)[..] {
        [count] if count > 1 && n.shape(n.input(3)?).last() == Some(&count) => columns,
        _ => scalar(n, 4)?,
    };
    let scales = [scalar(n, 1)?, columns, scalar(n, 6)?];
    let operands = [n.input(0)?, n.input(3)?];
    let zero_points = [zero_point(n, 2), zero_point(n, 5)];
    let acc = product(n, operands, zero_points)?;
    let (z, to) = (scalar(n, 7)?, Steps::like(n, n.input(7)?)?);
    Ok(vec![requantized(n, acc, scales, Some(z), to)?])
}

pub(crate) fn qlinear_conv(n: &mut NodeImport) -> Imported {
    let conv = windows::conv_attributes(n, 3)?;
    let operands = [n.input(0)?, n.input(3)?];
    let rank = n.shape(operands[0]).len();
    let zero_points = [zero_point(n, 2), zero_point(n, 5)];
    let mut acc = windows_sum(n, conv, operands, zero_points)?;
    if let Some(bias) = n.optional(8) {
        let bias = by_map(n, bias, rank)?;
        acc = n.binary(Binary::Add, acc, bias)?;
    }
    let (x, w, y) = (scalar(n, 1)?, n.input(4)?, scalar(n, 6)?);
    let w = match n.shape(w)[..] {
        [1] => n.reshape(w, vec![])?,
        _ => by_map(n, w, rank)?,
    };
    let (z, to) = (scalar(n, 7)?, Steps::like(n, n.input(7)?)?);
    Ok(vec![requantized(n, acc, [x, w, y], Some(z), to)?])
}
