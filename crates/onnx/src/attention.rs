//! Importers of attention, written out as the two products and the softmax that `plan` makes
//! one kernel of, and of rotary embeddings.

use crate::composite::scalar;
use crate::indexing::{counting, stretched};
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{
    Binary, Concat, Gather, Op, Pad, PadMode, Reduce, ReduceKind, Slice, Softmax, Transpose, Unary,
};
use tensor::{DType, Tensor};

pub(crate) fn transposed(
    n: &mut NodeImport,
    x: ValueId,
    perm: &[usize],
) -> Result<ValueId, Problem> {
    let perm = perm.to_vec();
    n.emit(Op::Transpose(Transpose { perm }), &[x])
}

/// [batch, rows, heads * size] as [batch, heads, rows, size].
pub(crate) fn heads(n: &mut NodeImport, x: ValueId, heads: usize) -> Result<ValueId, Problem> {
    let shape = n.shape(x);
    match shape[..] {
        [_, _, _, _] => Ok(x),
        [batch, rows, all] if heads > 0 && all.is_multiple_of(heads) => {
            let apart = n.reshape(x, vec![batch, rows, heads, all / heads])?;
            transposed(n, apart, &[0, 2, 1, 3])
        }
        _ => Problem::unsupported(format!("{heads} heads of {}", n.ty(x))),
    }
}

/// The inverse of [`heads`].
pub(crate) fn joined_heads(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let shape = n.shape(x);
    let x = transposed(n, x, &[0, 2, 1, 3])?;
    n.reshape(x, vec![shape[0], shape[2], shape[1] * shape[3]])
}

/// What comes before the rows of a cache.
pub(crate) fn appended(
    n: &mut NodeImport,
    past: Option<ValueId>,
    new: ValueId,
) -> Result<ValueId, Problem> {
    match past {
        None => Ok(new),
        Some(past) if n.ty(past).is_empty() => Ok(new),
        Some(past) => n.emit(Op::Concat(Concat { axis: 2 }), &[past, new]),
    }
}

/// How scores become weights.
pub(crate) struct Weighting {
    pub scale: f64,
    /// Scores are bounded by it smoothly, unless it is 0.
    pub softcap: f32,
    /// Added to the scores [batch, heads, rows, columns], to which it broadcasts.
    pub bias: Option<ValueId>,
    /// Whether rows of the bias may be minus infinity throughout: they give zeros.
    pub may_mask_rows: bool,
    /// The type in which the softmax is computed.
    pub precision: Option<DType>,
    /// Which scores are wanted beside the result: 0 the products, 1 after the bound, 2 after
    /// the bias, 3 the weights.
    pub shown: Option<i64>,
}

/// The result [batch, heads, rows, size] of attention, and the scores that are wanted.
pub(crate) fn attend(
    n: &mut NodeImport,
    [q, k, v]: [ValueId; 3],
    how: &Weighting,
) -> Result<(ValueId, Option<ValueId>), Problem> {
    let (q_shape, k_shape, v_shape) = (n.shape(q), n.shape(k), n.shape(v));
    let ([batch, all, rows, size], [kb, kv, columns, ks]) = (fixed(n, q)?, fixed(n, k)?);
    let fits = kb == batch && ks == size && kv > 0 && all.is_multiple_of(kv);
    if !fits || v_shape.len() != 4 || v_shape[..3] != k_shape[..3] || batch * rows * columns == 0 {
        return Problem::unsupported(format!(
            "queries {q_shape:?}, keys {k_shape:?} and values {v_shape:?}"
        ));
    }
    // Queries of several heads share keys: an axis of its own then.
    let (shared, dtype) = (all / kv, n.dtype(q));
    let grouped = |n: &mut NodeImport, x: ValueId, heads: usize| {
        let [b, _, r, s] = fixed(n, x)?;
        match shared {
            1 => Ok(x),
            _ => n.reshape(x, vec![b, kv, heads / kv, r, s]),
        }
    };
    let (q, k, v) = (grouped(n, q, all)?, grouped(n, k, kv)?, grouped(n, v, kv)?);
    let rank = n.ty(k).rank();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 1, rank - 2);
    let k = transposed(n, k, &perm)?;
    let mut scores = n.emit(Op::MatMul, &[q, k])?;
    if how.scale != 1.0 {
        let scale = n.filled(dtype, &[], how.scale)?;
        scores = n.binary(Binary::Mul, scores, scale)?;
    }
    let mut shown = [scores; 4];
    if how.softcap > 0.0 {
        let cap = scalar(n, scores, how.softcap)?;
        let share = n.binary(Binary::Div, scores, cap)?;
        let bounded = n.unary(Unary::Tanh, share)?;
        scores = n.binary(Binary::Mul, bounded, cap)?;
    }
    shown[1] = scores;
    let bias = match how.bias {
        Some(bias) if shared > 1 => Some(grouped_bias(n, bias, kv, shared)?),
        bias => bias,
    };
    if let Some(bias) = bias {
        scores = n.binary(Binary::Add, scores, bias)?;
    }
    shown[2] = scores;
    let precise = n.cast(scores, how.precision.unwrap_or(dtype))?;
    let weights = n.emit(Op::Softmax(Softmax { axis: rank - 1 }), &[precise])?;
    let weights = n.cast(weights, dtype)?;
    let product = n.emit(Op::MatMul, &[weights, v])?;
    let masked = match bias {
        Some(bias) if how.may_mask_rows => Some(masked_rows(n, bias)?),
        _ => None,
    };
    // Zeros after the product: rows of weights meet nothing else in it.
    let result = cleared(n, product, masked)?;
    let shown = match how.shown {
        Some(3) => Some(cleared(n, weights, masked)?),
        Some(which) => shown.get(which as usize).copied(),
        None => None,
    };
    let size = v_shape[3];
    let result = n.reshape(result, vec![batch, all, rows, size])?;
    let shown = shown.map(|s| n.reshape(s, vec![batch, all, rows, columns]));
    Ok((result, shown.transpose()?))
}

/// A bias of `kv * shared` heads, or of one, as that of groups of heads that share keys.
fn grouped_bias(
    n: &mut NodeImport,
    bias: ValueId,
    kv: usize,
    shared: usize,
) -> Result<ValueId, Problem> {
    let mut shape = n.shape(bias);
    while shape.len() < 4 {
        shape.insert(0, 1);
    }
    let apart = match shape[1] == kv * shared {
        true => [kv, shared],
        false => [shape[1], 1],
    };
    shape.splice(1..2, apart);
    n.reshape(bias, shape)
}

/// Zeros in the rows that are masked.
fn cleared(n: &mut NodeImport, x: ValueId, masked: Option<ValueId>) -> Result<ValueId, Problem> {
    let Some(masked) = masked else {
        return Ok(x);
    };
    let zero = scalar(n, x, 0.0)?;
    n.emit(Op::Where, &[masked, zero, x])
}

fn fixed(n: &NodeImport, x: ValueId) -> Result<[usize; 4], Problem> {
    match <[usize; 4]>::try_from(n.shape(x)) {
        Ok(shape) => Ok(shape),
        Err(shape) => {
            Problem::unsupported(format!("an operand has shape {shape:?}, not four axes"))
        }
    }
}

/// Whether each row of a bias is minus infinity throughout.
fn masked_rows(n: &mut NodeImport, bias: ValueId) -> Result<ValueId, Problem> {
    let last = n.axis(-1, n.ty(bias).rank())?;
    let reduce = Reduce {
        kind: ReduceKind::Max,
        axes: vec![last],
        keepdims: true,
    };
    let largest = n.emit(Op::Reduce(reduce), &[bias])?;
    let none = scalar(n, bias, f32::NEG_INFINITY)?;
    n.binary(Binary::Equal, largest, none)
}

/// 0 where attention is allowed, else minus infinity.
pub(crate) fn permission(
    n: &mut NodeImport,
    allowed: ValueId,
    dtype: DType,
) -> Result<ValueId, Problem> {
    let zero = n.filled(dtype, &[], 0.0)?;
    let never = n.filled(dtype, &[], f64::NEG_INFINITY)?;
    n.emit(Op::Where, &[allowed, zero, never])
}

fn plus(n: &mut NodeImport, a: Option<ValueId>, b: ValueId) -> Result<ValueId, Problem> {
    match a {
        Some(a) => n.binary(Binary::Add, a, b),
        None => Ok(b),
    }
}

/// The mask as a bias of all columns: those that it lacks are not attended to.
fn mask_bias(
    n: &mut NodeImport,
    mask: ValueId,
    columns: usize,
    dtype: DType,
) -> Result<ValueId, Problem> {
    let shape = n.shape(mask);
    let mut mask = mask;
    let is_bool = n.dtype(mask) == DType::Bool;
    if let Some(own) = shape.last()
        && *own < columns
    {
        let mut pads = vec![(0, 0); shape.len()];
        pads[shape.len() - 1] = (0, (columns - own) as i64);
        let mode = PadMode::Constant(if is_bool { 0.0 } else { f64::NEG_INFINITY });
        mask = n.emit(Op::Pad(Pad { mode, pads }), &[mask])?;
    }
    match is_bool {
        true => permission(n, mask, dtype),
        false => n.cast(mask, dtype),
    }
}

/// Which keys a query may look at by their positions.
struct Reach {
    causal: bool,
    /// Keys before and after a query's own position, unless negative.
    left: i64,
    right: i64,
}

impl Reach {
    /// The bias by the distance of each key behind the query, `distance`.
    fn bias(&self, n: &mut NodeImport, distance: ValueId, d: DType) -> Result<ValueId, Problem> {
        let right = if self.causal { 0 } else { self.right };
        let mut allowed = None;
        for (limit, side) in [
            (self.left, Binary::LessOrEqual),
            (-right, Binary::GreaterOrEqual),
        ] {
            let open = match side {
                Binary::LessOrEqual => self.left < 0,
                _ => right < 0,
            };
            if open {
                continue;
            }
            let limit = n.filled(DType::I64, &[], limit as f64)?;
            let within = n.binary(side, distance, limit)?;
            allowed = Some(match allowed {
                Some(other) => n.binary(Binary::And, other, within)?,
                None => within,
            });
        }
        match allowed {
            Some(allowed) => permission(n, allowed, d),
            None => n.filled(d, &[], 0.0),
        }
    }

    fn limits(&self) -> bool {
        self.causal || self.left >= 0 || self.right >= 0
    }
}

/// The number of heads that an operand with three axes is of.
fn head_count(n: &NodeImport, x: ValueId, name: &str) -> Result<usize, Problem> {
    let given = n.attributes.optional_int(name)?;
    match (n.shape(x).len(), given) {
        (4, None) => Ok(n.shape(x)[1]),
        (4, Some(h)) if h as usize == n.shape(x)[1] => Ok(h as usize),
        (3, Some(h)) if h > 0 => Ok(h as usize),
        _ => Problem::unsupported(format!("{name}={given:?} with {}", n.ty(x))),
    }
}

/// What the mask, the positions and the lengths of the keys add to the scores, and whether
/// that may be minus infinity throughout a row.
fn all_bias(
    n: &mut NodeImport,
    past: Option<ValueId>,
    [batch, rows, columns]: [usize; 3],
    dtype: DType,
) -> Result<(Option<ValueId>, bool), Problem> {
    let reach = Reach {
        causal: n.attributes.flag("is_causal", false)?,
        left: n.attributes.int("left_window_size", -1)?,
        right: n.attributes.int("right_window_size", -1)?,
    };
    let mut bias = match n.optional(3) {
        Some(mask) => Some(mask_bias(n, mask, columns, dtype)?),
        None => None,
    };
    let mut may_mask_rows = bias.is_some();
    let lengths = n.optional(6);
    let row = counting(n, rows, 0, 2, 0)?;
    let column = counting(n, columns, 1, 2, 0)?;
    let lengths = match lengths {
        Some(lengths) if n.ty(lengths).shape == [batch] => {
            let lengths = n.cast(lengths, DType::I64)?;
            Some(n.reshape(lengths, vec![batch, 1, 1, 1])?)
        }
        Some(lengths) => {
            return Problem::unsupported(format!("its lengths are {}", n.ty(lengths)));
        }
        None => None,
    };
    if reach.limits() {
        // The position of a query among the keys.
        let (offset, earlier) = match (past, lengths) {
            (None, Some(lengths)) => {
                let rows = n.filled(DType::I64, &[], rows as f64)?;
                may_mask_rows = true;
                (n.binary(Binary::Sub, lengths, rows)?, 0)
            }
            (past, _) => {
                let earlier = past.map_or(0, |p| n.shape(p).get(2).copied().unwrap_or(0));
                (n.filled(DType::I64, &[], earlier as f64)?, earlier)
            }
        };
        // The last query's window may begin behind the last key.
        may_mask_rows |= reach.left >= 0 && earlier + rows > columns;
        let place = n.binary(Binary::Add, row, offset)?;
        let distance = n.binary(Binary::Sub, place, column)?;
        let own = reach.bias(n, distance, dtype)?;
        bias = Some(plus(n, bias, own)?);
    }
    if let Some(lengths) = lengths {
        may_mask_rows = true;
        let inside = n.binary(Binary::Less, column, lengths)?;
        let own = permission(n, inside, dtype)?;
        bias = Some(plus(n, bias, own)?);
    }
    Ok((bias, may_mask_rows))
}

pub(crate) fn attention(n: &mut NodeImport) -> Imported {
    let inputs = [n.input(0)?, n.input(1)?, n.input(2)?];
    let flat = n.ty(inputs[0]).rank() == 3;
    let (queries, keys) = (
        head_count(n, inputs[0], "q_num_heads")?,
        head_count(n, inputs[1], "kv_num_heads")?,
    );
    let dtype = n.dtype(inputs[0]);
    let q = heads(n, inputs[0], queries)?;
    let (k, v) = (heads(n, inputs[1], keys)?, heads(n, inputs[2], keys)?);
    let past = n.optional(4);
    let (k, v) = (appended(n, past, k)?, appended(n, n.optional(5), v)?);
    let [batch, _, rows, size] = fixed(n, q)?;
    let columns = fixed(n, k)?[2];
    let (bias, may_mask_rows) = all_bias(n, past, [batch, rows, columns], dtype)?;
    let precision = match n.attributes.optional_int("softmax_precision")? {
        Some(p) => Some(
            crate::tensors::dtype_of(i32::try_from(p).unwrap_or(0))
                .map_err(|e| Problem::Unsupported(e.to_string()))?,
        ),
        None => None,
    };
    let scale = n.attributes.optional_float("scale")?;
    let shown = n.attributes.int("qk_matmul_output_mode", 0)?;
    if !(0..4).contains(&shown) {
        return Problem::unsupported(format!("qk_matmul_output_mode={shown}"));
    }
    let how = Weighting {
        scale: scale.map_or(1.0 / (size as f64).sqrt(), f64::from),
        softcap: n.attributes.float("softcap", 0.0)?,
        bias,
        may_mask_rows,
        precision,
        shown: n.wants(3).then_some(shown),
    };
    let (mut y, shown) = attend(n, [q, k, v], &how)?;
    if flat {
        y = joined_heads(n, y)?;
    }
    Ok([vec![y, k, v], shown.into_iter().collect()].concat())
}

/// Elements `start`, `start + step`, .. of the last axis, `size` of them.
pub(crate) fn columns(
    n: &mut NodeImport,
    x: ValueId,
    start: usize,
    step: i64,
    size: usize,
) -> Result<ValueId, Problem> {
    let mut sizes = n.shape(x);
    let last = n.axis(-1, sizes.len())?;
    if sizes[last] == size {
        return Ok(x);
    }
    let (mut starts, mut steps) = (vec![0; sizes.len()], vec![1; sizes.len()]);
    (starts[last], steps[last], sizes[last]) = (start, step, size);
    let slice = Slice {
        starts,
        steps,
        sizes,
    };
    n.emit(Op::Slice(slice), &[x])
}

/// Pairs of each head's first elements rotated by angles that depend on the position.
pub(crate) fn rotary_embedding(n: &mut NodeImport) -> Imported {
    let (cosines, sines, positions) = (n.input(1)?, n.input(2)?, n.optional(3));
    rotary(n, [cosines, sines], positions)
}

/// [`rotary_embedding`] in the order of operands of com.microsoft.
pub(crate) fn microsoft_rotary_embedding(n: &mut NodeImport) -> Imported {
    // ONNX Runtime does not use the scale.
    n.attributes.ignore(&["is_packed_batching", "scale"]);
    let positions = n.input(1)?;
    let (cosines, sines) = (n.input(2)?, n.input(3)?);
    let x = n.input(0)?;
    let (batch, rows) = match n.shape(x)[..] {
        [batch, rows, _] | [batch, _, rows, _] => (batch, rows),
        _ => return Problem::unsupported(format!("its input is {}", n.ty(x))),
    };
    let positions = match n.shape(positions)[..] {
        [1] => {
            let first = n.cast(positions, DType::I64)?;
            let own = counting(n, rows, 0, 1, 0)?;
            let all = n.binary(Binary::Add, first, own)?;
            stretched(n, all, &[batch, rows])?
        }
        _ => positions,
    };
    rotary(n, [cosines, sines], Some(positions))
}

/// Heads in four axes, and which of them that of heads is. Of three axes the number of heads says how they lie, or
/// else the width of the angles, if all of a head is turned.
pub(crate) fn heads_inside(
    n: &mut NodeImport,
    x: ValueId,
    given: i64,
    width: Option<usize>,
) -> Result<(ValueId, usize), Problem> {
    let shape = n.shape(x);
    let count = match (shape.len(), given, width) {
        (4, ..) => shape[1],
        (3, 0, Some(width)) if width > 0 => shape[2] / (2 * width),
        (3, count, _) if count > 0 => count as usize,
        _ => return Problem::unsupported(format!("num_heads={given} of {}", n.ty(x))),
    };
    match shape[..] {
        [_, _, _, _] => Ok((x, 1)),
        [batch, rows, all] if count > 0 && all.is_multiple_of(count) => {
            Ok((n.reshape(x, vec![batch, rows, count, all / count])?, 2))
        }
        _ => Problem::unsupported(format!("{count} heads of {}", n.ty(x))),
    }
}

fn rotary(n: &mut NodeImport, caches: [ValueId; 2], positions: Option<ValueId>) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let given = n.attributes.int("num_heads", 0)?;
    let interleaved = n.attributes.flag("interleaved", false)?;
    let part = n.attributes.int("rotary_embedding_dim", 0)?;
    let width = n.shape(caches[0]).last().copied().unwrap_or(0);
    let apart = heads_inside(n, x, given, (part == 0).then_some(width))?;
    let part = match part {
        0 => fixed(n, apart.0)?[3],
        part => usize::try_from(part).unwrap_or(0),
    };
    let y = turned(n, apart, caches, positions, (part, interleaved))?;
    Ok(vec![n.reshape(y, shape)?])
}

/// Heads in four axes, of which axis 1 or 2 is that of heads: so many first elements of each are turned.
///
/// An element is multiplied by a cosine, and the other one of its pair by a sine, whose sign says which of the two it
/// is. With the pair as an axis the other element is the one at the other place along it. So each result has one formula,
/// and all of it is one kernel.
pub(crate) fn turned(
    n: &mut NodeImport,
    (apart, heads): (ValueId, usize),
    caches: [ValueId; 2],
    positions: Option<ValueId>,
    (turned, interleaved): (usize, bool),
) -> Result<ValueId, Problem> {
    let all = fixed(n, apart)?;
    let (batch, rows, size) = (all[0], all[3 - heads], all[3]);
    let half = turned / 2;
    if turned == 0 || turned % 2 == 1 || turned > size {
        return Problem::unsupported(format!("rotary_embedding_dim={turned} of heads of {size}"));
    }
    let pair = if interleaved { 4 } else { 3 };
    let mut angles = Vec::new();
    for cache in caches {
        let chosen = match positions {
            Some(p) => n.emit(Op::Gather(Gather { axis: 0 }), &[cache, p])?,
            None => cache,
        };
        if n.shape(chosen) != [batch, rows, half] {
            return Problem::unsupported(format!(
                "its angles are {}, where the shape {:?} is needed",
                n.ty(chosen),
                [batch, rows, half]
            ));
        }
        let mut shape = vec![batch, rows, half];
        shape.insert(heads, 1);
        shape.insert(pair, 1);
        angles.push(n.reshape(chosen, shape)?);
    }
    let rotated = columns(n, apart, 0, 1, turned)?;
    let mut pairs = vec![all[0], all[1], all[2], half];
    pairs.insert(pair, 2);
    let x = n.reshape(rotated, pairs.clone())?;
    let (mut starts, mut steps) = (vec![0; 5], vec![1; 5]);
    (starts[pair], steps[pair]) = (1, -1);
    let swap = Slice {
        starts,
        steps,
        sizes: pairs,
    };
    let other = n.emit(Op::Slice(swap), &[x])?;
    let mut signs = vec![1; 5 - pair];
    signs[0] = 2;
    let mut sign = Tensor::zeros(n.dtype(apart), &signs);
    sign.set_f64(0, -1.0);
    sign.set_f64(1, 1.0);
    let sign = n.model.add_result(&n.name, sign);
    let sines = n.binary(Binary::Mul, angles[1], sign)?;
    let across = n.binary(Binary::Mul, other, sines)?;
    let along = n.binary(Binary::Mul, x, angles[0])?;
    let y = n.binary(Binary::Add, along, across)?;
    let y = n.reshape(y, n.shape(rotated))?;
    if turned == size {
        return Ok(y);
    }
    let rest = columns(n, apart, turned, 1, size - turned)?;
    n.emit(Op::Concat(Concat { axis: 3 }), &[y, rest])
}
