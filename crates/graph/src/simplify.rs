//! Rewrites that every model gets before tasks are split from it: constants
//! folded, no-ops dropped, written-out operators recognised, affine maps folded into
//! convolutions, indices of whole rows and in a row recognised, products split whose columns are read in parts, dead code gone.
//!
//! Promises that the outputs stay the same up to the rounding of folded
//! weights, whose arithmetic is f64. Chooses no layouts and fuses no kernels.

use crate::columns::split_columns;
use crate::even::without_even_indices;
use crate::model::{Model, Node, NodeId, Rewrite, TensorType, Users, ValueId};
use crate::ops::{BatchNorm, Binary, Op, PadMode, Slice, Transpose};
use crate::packed::products_of_packed;
use crate::quantised::{Requantised, products_of_bytes};
use crate::recognise::recognise;
use crate::whole_rows::gathers_of_parts;
use std::convert::Infallible;
use tensor::{DType, Tensor};

/// Folds what is constant and drops what does nothing; scales of products of bytes are folded.
pub fn simplify(model: &Model) -> Model {
    simplify_as(model, Requantised::Folded)
}

/// [`simplify`], with the bytes of a certain rule.
pub fn simplify_as(model: &Model, requantised: Requantised) -> Model {
    let model = model.clone().folded_to_bytes();
    let model = products_of_bytes(&model, requantised).without_dead_code();
    let model = products_of_packed(&model).without_dead_code().folded();
    let model = without_even_indices(&gathers_of_parts(&model));
    let model = drop_no_ops(&model).folded();
    let model = recognise(&model);
    let model = fold_padding(&model.without_dead_code());
    let model = fold_affine(&model.without_dead_code());
    let model = split_columns(&model.without_dead_code());
    model.without_dead_code()
}

fn unfailing(model: Result<Model, Infallible>) -> Model {
    let Ok(model) = model;
    model
}

/// Removes nodes that pass their operand through. What moves elements of what the same kind of
/// node moved, or of one part of a concatenation, reads the source.
fn drop_no_ops(model: &Model) -> Model {
    unfailing(model.rewrite(|r, _, node| {
        let Some(mut x) = node.input(0).map(|v| r.value(v)) else {
            return Ok(r.copy(node));
        };
        let mut op = node.op.clone();
        let mut merged = false;
        while let Some((whole, source)) = read_through(&r.target, &op, x) {
            (op, x, merged) = (whole, source, true);
        }
        if passes_through(&op, r.target[x].ty(), node.inputs.len()) {
            return Ok(vec![x]);
        }
        match merged {
            true => {
                let all = r.target.add(&node.name, op, &[x]);
                Ok(vec![all.expect("a merged node fits")])
            }
            false => Ok(r.copy(node)),
        }
    }))
}

/// The operator that makes of a source what `op` makes of `x`, and the source: what `x` is made
/// of, or the one part of a concatenation that is read.
fn read_through(model: &Model, op: &Op, x: ValueId) -> Option<(Op, ValueId)> {
    let before = &model[model.producer(x)?.0];
    let source = before.input(0)?;
    match (op, &before.op) {
        (Op::Reshape(_), Op::Reshape(_)) => Some((op.clone(), source)),
        (Op::Transpose(new), Op::Transpose(old)) => {
            let perm = new.perm.iter().map(|d| old.perm[*d]).collect();
            Some((Op::Transpose(Transpose { perm }), source))
        }
        (Op::Slice(new), Op::Slice(old)) => {
            let start = |d: usize| old.starts[d] as i64 + new.starts[d] as i64 * old.steps[d];
            let axes = 0..new.starts.len();
            let starts = axes.clone().map(|d| usize::try_from(start(d)));
            let slice = Slice {
                starts: starts.collect::<Result<_, _>>().ok()?,
                steps: axes.map(|d| old.steps[d] * new.steps[d]).collect(),
                sizes: new.sizes.clone(),
            };
            Some((Op::Slice(slice), source))
        }
        (Op::Slice(slice), Op::Concat(c)) => {
            let first = slice.starts[c.axis] as i64;
            let last = first + (slice.sizes[c.axis] as i64 - 1) * slice.steps[c.axis];
            let mut start = 0;
            for part in before.inputs.iter().flatten() {
                let end = start + model[*part].shape()[c.axis] as i64;
                if first >= start && last >= start && first < end && last < end {
                    let mut slice = slice.clone();
                    slice.starts[c.axis] -= start as usize;
                    return Some((Op::Slice(slice), *part));
                }
                start = end;
            }
            None
        }
        _ => None,
    }
}

/// Whether an operator of so many operands makes of its first one what that is.
fn passes_through(op: &Op, ty: &TensorType, operands: usize) -> bool {
    match op {
        Op::Identity | Op::Dropout(_) => true,
        Op::Cast(to) => *to == ty.dtype,
        Op::Reshape(s) => s.shape == ty.shape,
        Op::Expand(e) => e.shape == ty.shape,
        Op::Transpose(t) => t.perm.iter().copied().eq(0..t.perm.len()),
        Op::Slice(s) => s.sizes == ty.shape && s.steps.iter().all(|step| *step > 0),
        Op::Pad(p) => p.pads.iter().all(|p| *p == (0, 0)),
        Op::Concat(_) => operands == 1,
        Op::Split(s) => s.sizes.len() == 1,
        Op::Reduce(reduce) => reduce.axes.is_empty(),
        _ => false,
    }
}

/// Moves zero padding of the spatial axes into the convolution that reads it.
fn fold_padding(model: &Model) -> Model {
    let users = model.users();
    unfailing(model.rewrite(|r, id, node| {
        let padded = match (&node.op, node.input(0).and_then(|v| model.producer(v))) {
            (Op::Conv(conv), Some((pad, _))) if reads_alone(&users, model, pad, id) => {
                spatial_padding(&model[pad].op).map(|pads| (conv.clone(), pads, pad))
            }
            _ => None,
        };
        let Some((mut conv, pads, pad)) = padded else {
            return Ok(r.copy(node));
        };
        for (p, (before, after)) in conv.pads.iter_mut().zip(pads) {
            *p = (p.0 + before, p.1 + after);
        }
        let mut inputs = r.operands(node);
        inputs[0] = r.operands(&model[pad])[0];
        Ok(r.target
            .add_node(&node.name, Op::Conv(conv), &inputs)
            .expect("the padding fits"))
    }))
}

fn reads_alone(users: &Users, model: &Model, producer: NodeId, reader: NodeId) -> bool {
    model[producer].outputs.len() == 1 && users.sole(model[producer].output()) == Some(reader)
}

/// The spatial padding, if it is zeros and nothing else is padded or cut off.
fn spatial_padding(op: &Op) -> Option<Vec<(usize, usize)>> {
    let Op::Pad(pad) = op else { return None };
    let outer_untouched = pad.pads.iter().take(2).all(|p| *p == (0, 0));
    if pad.mode != PadMode::Constant(0.0) || !outer_untouched {
        return None;
    }
    let size = |v: i64| usize::try_from(v).ok();
    pad.pads
        .iter()
        .skip(2)
        .map(|p| Some((size(p.0)?, size(p.1)?)))
        .collect()
}

/// scale x + shift, an entry a channel (axis 1).
struct Affine {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

/// Folds inference batch normalisation, and products and sums with a constant a
/// channel, into the weights and bias of the convolution before them. Batch
/// normalisation elsewhere becomes a product and a sum.
fn fold_affine(model: &Model) -> Model {
    let users = model.users();
    unfailing(model.rewrite(|r, id, node| {
        let Some((x, affine)) = affine_of(r, node) else {
            return Ok(r.copy(node));
        };
        let old = node
            .inputs
            .iter()
            .flatten()
            .find(|v| model.constant(**v).is_none());
        let alone = old.and_then(|v| users.sole(*v)) == Some(id);
        if alone && let Some(folded) = fold_into(r, node, x, &affine) {
            return Ok(vec![folded]);
        }
        if matches!(node.op, Op::BatchNorm(_)) {
            return Ok(vec![scale_and_shift(r, node, x, &affine)]);
        }
        Ok(r.copy(node))
    }))
}

/// The operand and map of a node that is affine a channel, with constants.
fn affine_of(r: &mut Rewrite, node: &Node) -> Option<(ValueId, Affine)> {
    let inputs: Vec<_> = r.operands(node).into_iter().collect::<Option<_>>()?;
    let constant = |v: ValueId| r.target.constant(v).map(|t| (**t).clone());
    match &node.op {
        Op::BatchNorm(BatchNorm { epsilon }) => {
            let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|i| constant(inputs[i]));
            let (scale, bias, mean, variance) = (scale?, bias?, mean?, variance?);
            let scale: Vec<f64> = (0..scale.len())
                .map(|c| scale.get_f64(c) / (variance.get_f64(c) + f64::from(*epsilon)).sqrt())
                .collect();
            let shift = scale.iter().enumerate();
            let shift = shift
                .map(|(c, s)| bias.get_f64(c) - mean.get_f64(c) * s)
                .collect();
            Some((inputs[0], Affine { scale, shift }))
        }
        Op::Binary(op @ (Binary::Add | Binary::Sub | Binary::Mul | Binary::Div)) => {
            let (x, t, x_first) = match (constant(inputs[0]), constant(inputs[1])) {
                (None, Some(t)) => (inputs[0], t, true),
                (Some(t), None) => (inputs[1], t, false),
                _ => return None,
            };
            // Else nothing is folded, and the values of channels may be very many.
            constant_convolution(r, x)?;
            let ty = r.target[x].ty();
            if !ty.dtype.is_float() || ty.shape != r.source[node.output()].shape() {
                return None;
            }
            let values = per_channel(&t, &ty.shape)?;
            let ones = vec![1.0; values.len()];
            let zeros = vec![0.0; values.len()];
            let each = |f: fn(f64) -> f64| values.iter().map(|v| f(*v)).collect::<Vec<f64>>();
            let affine = match (op, x_first) {
                (Binary::Add, _) => Affine {
                    scale: ones,
                    shift: values,
                },
                (Binary::Sub, true) => Affine {
                    scale: ones,
                    shift: each(|v| -v),
                },
                (Binary::Mul, _) => Affine {
                    scale: values,
                    shift: zeros,
                },
                (Binary::Div, true) => Affine {
                    scale: each(|v| 1.0 / v),
                    shift: zeros,
                },
                _ => return None,
            };
            Some((x, affine))
        }
        _ => None,
    }
}

/// The value of each channel of `shape`, if `t` varies with the channel only.
fn per_channel(t: &Tensor, shape: &[usize]) -> Option<Vec<f64>> {
    let channels = *shape.get(1)?;
    let lead = shape.len().checked_sub(t.rank())?;
    let varies = |d: usize| d >= lead && t.shape()[d - lead] != 1;
    if (0..shape.len()).any(|d| d != 1 && varies(d)) {
        return None;
    }
    let value = |c: usize| t.get_f64(if t.len() == 1 { 0 } else { c });
    (t.len() == 1 || t.len() == channels).then(|| (0..channels).map(value).collect())
}

/// The convolution with constant weights that makes `x`.
fn constant_convolution<'a>(r: &'a Rewrite, x: ValueId) -> Option<&'a Node> {
    let (producer, _) = r.target.producer(x)?;
    let conv = r.target.node(producer);
    let constant = conv.input(1).and_then(|w| r.target.constant(w)).is_some();
    (constant && matches!(conv.op, Op::Conv(_) | Op::ConvTranspose(_))).then_some(conv)
}

/// Scales the weights and bias of the convolution that makes `x`.
fn fold_into(r: &mut Rewrite, node: &Node, x: ValueId, affine: &Affine) -> Option<ValueId> {
    let conv = constant_convolution(r, x)?.clone();
    let name = r.target[conv.input(1)?].name().to_string();
    let weight = r.target.constant(conv.input(1)?)?.clone();
    let bias = match conv.input(2) {
        Some(b) => Some(r.target.constant(b)?.clone()),
        None => None,
    };
    let taps: usize = weight.shape()[2..].iter().product();
    let row = weight.shape()[1] * taps;
    // Output channels a group, and the weight's rows a group.
    let (maps, rows) = match &conv.op {
        Op::ConvTranspose(c) => (weight.shape()[1], weight.shape()[0] / c.groups),
        _ => (1, 1),
    };
    let channel = |i: usize| i / row / rows * maps + i / taps % maps;
    let scaled = fold_weight(&weight, |i| affine.scale[channel(i)]);
    let shift = |c: usize| {
        let old = bias.as_ref().map_or(0.0, |b| b.get_f64(c));
        old * affine.scale[c] + affine.shift[c]
    };
    let shifts: Vec<f64> = (0..affine.scale.len()).map(shift).collect();
    let bias = vector(scaled.dtype(), &shifts, &[shifts.len()]);
    let weight = r.target.add_constant(&name, scaled);
    let bias_name = format!("{}.bias", conv.name);
    let bias = r.target.add_constant(&bias_name, bias);
    let inputs = [conv.inputs[0], Some(weight), Some(bias)];
    let outputs = r.target.add_node(&node.name, conv.op.clone(), &inputs);
    Some(outputs.expect("folding keeps every shape")[0])
}

fn fold_weight(weight: &Tensor, scale: impl Fn(usize) -> f64) -> Tensor {
    let mut scaled = Tensor::zeros(weight.dtype(), weight.shape());
    for i in 0..weight.len() {
        scaled.set_f64(i, weight.get_f64(i) * scale(i));
    }
    scaled
}

/// These values in this shape.
pub(crate) fn vector(dtype: DType, values: &[f64], shape: &[usize]) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape);
    for (i, v) in values.iter().enumerate() {
        t.set_f64(i, *v);
    }
    t
}

fn scale_and_shift(r: &mut Rewrite, node: &Node, x: ValueId, affine: &Affine) -> ValueId {
    let ty = r.target[x].ty().clone();
    let part = |r: &mut Rewrite, what: &str, values: &[f64]| {
        let mut shape = vec![1; ty.rank() - 1];
        shape[0] = values.len();
        let t = vector(ty.dtype, values, &shape);
        r.target.add_constant(&format!("{}.{what}", node.name), t)
    };
    let scale = part(r, "scale", &affine.scale);
    let shift = part(r, "shift", &affine.shift);
    let mul = format!("{}.mul", node.name);
    let scaled = r.target.add(&mul, Op::Binary(Binary::Mul), &[x, scale]);
    let scaled = scaled.expect("a value a channel broadcasts");
    let sum = r
        .target
        .add(&node.name, Op::Binary(Binary::Add), &[scaled, shift]);
    sum.expect("a value a channel broadcasts")
}
