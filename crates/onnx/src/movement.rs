//! Importers of operators that move elements.

use crate::moving;
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{
    Concat, Expand, Gather, Op, Pad, PadMode, Slice, Split, Transpose, broadcast_shape,
};
use tensor::{DType, Tensor};

fn sizes(values: &[i64], what: &str) -> Result<Vec<usize>, Problem> {
    let sizes: Option<Vec<usize>> = values.iter().map(|v| usize::try_from(*v).ok()).collect();
    sizes.map_or_else(
        || Problem::unsupported(format!("its {what} is {values:?}")),
        Ok,
    )
}

fn required(values: Option<Vec<i64>>, what: &str) -> Result<Vec<i64>, Problem> {
    values.map_or_else(|| Problem::unsupported(format!("it has no {what}")), Ok)
}

pub(crate) fn concat(n: &mut NodeImport) -> Imported {
    let inputs = n.all_inputs()?;
    let rank = n.ty(n.input(0)?).rank();
    let Some(axis) = n.attributes.optional_int("axis")? else {
        return Problem::unsupported("it has no axis");
    };
    let axis = n.axis(axis, rank)?;
    if let [x] = inputs[..] {
        return Ok(vec![x]);
    }
    Ok(vec![n.emit(Op::Concat(Concat { axis }), &inputs)?])
}

pub(crate) fn split(n: &mut NodeImport) -> Imported {
    if crate::moving::splits(n) {
        return crate::moving::split(n);
    }
    let x = n.input(0)?;
    let shape = n.shape(x);
    let axis = n.axis(n.attributes.int("axis", 0)?, shape.len())?;
    let outputs = n.proto.output.len();
    let sizes = match (
        n.ints_by_opset("split", 1, 12)?,
        n.attributes.optional_int("num_outputs")?,
    ) {
        (Some(given), _) => sizes(&given, "split")?,
        (None, num) => {
            let count = num.unwrap_or(outputs as i64);
            if count < 1 || count != outputs as i64 {
                return Problem::unsupported(format!("{count} parts for {outputs} outputs"));
            }
            let size = shape[axis].div_ceil(outputs);
            if num.is_none() && !shape[axis].is_multiple_of(outputs) {
                return Problem::unsupported(format!(
                    "{} elements do not split into {outputs} equal parts",
                    shape[axis]
                ));
            }
            let mut sizes = vec![size; outputs];
            let Some(last) = shape[axis].checked_sub(size * (outputs - 1)) else {
                return Problem::unsupported(format!(
                    "{} elements in {outputs} parts",
                    shape[axis]
                ));
            };
            sizes[outputs - 1] = last;
            sizes
        }
    };
    if sizes.len() < outputs {
        return Problem::unsupported(format!("{} sizes for {outputs} outputs", sizes.len()));
    }
    n.emit_all(Op::Split(Split { axis, sizes }), &[Some(x)])
}

/// The first element, the number of elements and the step of a slice along an axis.
pub(crate) fn taken(dim: usize, start: i64, end: i64, step: i64) -> (usize, usize, i64) {
    let (size, wide) = (i128::from(dim as u64), i128::from(step));
    let resolve = |v: i64, low: i128, high: i128| {
        let v = i128::from(v);
        (if v < 0 { v + size } else { v }).max(low).min(high)
    };
    // Backwards a start stays on an element, and only an end may lie before the first one.
    let (start, end) = match step > 0 {
        true => (resolve(start, 0, size), resolve(end, 0, size)),
        false => (resolve(start, 0, size - 1), resolve(end, -1, size - 1)),
    };
    let span = (end - start) * wide.signum();
    let count = match span > 0 {
        true => (span + wide.abs() - 1) / wide.abs(),
        false => 0,
    };
    let start = if count == 0 { 0 } else { start as usize };
    // A step that is never taken would only risk overflow.
    (start, count as usize, if count <= 1 { 1 } else { step })
}

pub(crate) fn slice(n: &mut NodeImport) -> Imported {
    if moving::concerns(n) {
        return moving::slice(n);
    }
    let x = n.input(0)?;
    let shape = n.shape(x);
    let rank = shape.len();
    let starts = required(n.ints_by_opset("starts", 1, 9)?, "starts")?;
    let ends = required(n.ints_by_opset("ends", 2, 9)?, "ends")?;
    let axes = n
        .ints_by_opset("axes", 3, 9)?
        .unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if n.opset < 10 {
        None
    } else {
        n.constant_ints(4, "steps")?
    };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Problem::unsupported("starts, ends, axes and steps differ in length");
    }
    let mut slice = Slice {
        starts: vec![0; rank],
        steps: vec![1; rank],
        sizes: shape.clone(),
    };
    for i in 0..starts.len() {
        let d = n.axis(axes[i], rank)?;
        if steps[i] == 0 {
            return Problem::unsupported("a step is 0");
        }
        (slice.starts[d], slice.sizes[d], slice.steps[d]) =
            taken(shape[d], starts[i], ends[i], steps[i]);
    }
    if slice.sizes == shape && slice.steps.iter().all(|s| *s == 1) {
        return Ok(vec![x]);
    }
    Ok(vec![n.emit(Op::Slice(slice), &[x])?])
}

pub(crate) fn pad(n: &mut NodeImport) -> Imported {
    let mut x = n.input(0)?;
    let rank = n.ty(x).rank();
    let given = required(n.ints_by_opset("pads", 1, 10)?, "pads")?;
    let computed = match n.opset < 11 {
        true => None,
        false => n.optional(2).filter(|v| n.model.constant(*v).is_none()),
    };
    let value = if n.opset < 11 {
        Some(f64::from(n.attributes.float("value", 0.0)?))
    } else if computed.is_some() {
        None
    } else {
        n.constant_scalar(2, "padding value")?
    };
    let mode = match n.attributes.text("mode", "constant")?.as_str() {
        "constant" => PadMode::Constant(value.unwrap_or(0.0)),
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        "wrap" => PadMode::Wrap,
        other => return Problem::unsupported(format!("mode=`{other}`")),
    };
    let axes = if n.opset < 18 {
        None
    } else {
        n.constant_ints(3, "axes")?
    };
    let axes = axes.unwrap_or_else(|| (0..rank as i64).collect());
    if given.len() != 2 * axes.len() {
        return Problem::unsupported(format!("{} pads for {} axes", given.len(), axes.len()));
    }
    let mut pads = vec![(0, 0); rank];
    for (i, axis) in axes.iter().enumerate() {
        pads[n.axis(*axis, rank)?] = (given[i], given[axes.len() + i]);
    }
    let is_cut = pads.iter().any(|(before, after)| *before < 0 || *after < 0);
    // What is cut off is not there to be repeated.
    if is_cut && !matches!(mode, PadMode::Constant(_)) {
        let cut = Pad {
            mode: PadMode::Constant(0.0),
            pads: pads.iter().map(|(b, a)| (*b.min(&0), *a.min(&0))).collect(),
        };
        x = n.emit(Op::Pad(cut), &[x])?;
        pads = pads.iter().map(|(b, a)| (*b.max(&0), *a.max(&0))).collect();
    }
    let pad = Op::Pad(Pad { mode, pads });
    let y = n.emit(pad.clone(), &[x])?;
    match computed {
        Some(value) if matches!(mode, PadMode::Constant(_)) => {
            let one = n.filled(DType::Bool, &n.shape(x), 1.0)?;
            let is_inside = n.emit(pad, &[one])?;
            let value = n.reshape(value, vec![])?;
            Ok(vec![n.emit(Op::Where, &[is_inside, y, value])?])
        }
        _ => Ok(vec![y]),
    }
}

pub(crate) fn reshape(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let allow_zero = n.attributes.flag("allowzero", false)?;
    let given = required(n.constant_ints(1, "shape")?, "shape")?;
    let mut target = Vec::with_capacity(given.len());
    for (d, v) in given.iter().enumerate() {
        target.push(match v {
            0 if !allow_zero => match shape.get(d) {
                Some(n) => *n as i64,
                None => return Problem::unsupported(format!("shape {given:?} copies axis {d}")),
            },
            v => *v,
        });
    }
    if let Some(open) = target.iter().position(|v| *v == -1) {
        target[open] = 1;
        let others = sizes(&target, "shape")?
            .iter()
            .try_fold(1usize, |n, d| n.checked_mul(*d));
        let count: usize = shape.iter().product();
        target[open] = match others {
            Some(others) if others > 0 && count.is_multiple_of(others) => (count / others) as i64,
            _ => return Problem::unsupported(format!("{shape:?} does not reshape to {given:?}")),
        };
    }
    let target = sizes(&target, "shape")?;
    Ok(vec![n.reshape(x, target)?])
}

pub(crate) fn flatten(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let axis = n.attributes.int("axis", 1)?;
    let axis = if axis == shape.len() as i64 {
        shape.len()
    } else {
        n.axis(axis, shape.len())?
    };
    let (outer, inner) = shape.split_at(axis);
    Ok(vec![n.reshape(
        x,
        vec![outer.iter().product(), inner.iter().product()],
    )?])
}

pub(crate) fn squeeze(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let axes = match n.ints_by_opset("axes", 1, 12)? {
        Some(axes) => axes
            .iter()
            .map(|a| n.axis(*a, shape.len()))
            .collect::<Result<Vec<_>, _>>()?,
        None => (0..shape.len()).filter(|d| shape[*d] == 1).collect(),
    };
    if axes.iter().any(|a| shape[*a] != 1) {
        return Problem::unsupported(format!("axes {axes:?} of shape {shape:?} are not all 1"));
    }
    let rest = (0..shape.len())
        .filter(|d| !axes.contains(d))
        .map(|d| shape[d])
        .collect();
    Ok(vec![n.reshape(x, rest)?])
}

pub(crate) fn unsqueeze(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let mut shape = n.shape(x);
    let axes = required(n.ints_by_opset("axes", 1, 12)?, "axes")?;
    let rank = shape.len() + axes.len();
    let mut axes = axes
        .iter()
        .map(|a| n.axis(*a, rank))
        .collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|w| w[0] == w[1]) {
        return Problem::unsupported(format!("axes {axes:?} repeat"));
    }
    axes.iter().for_each(|a| shape.insert(*a, 1));
    Ok(vec![n.reshape(x, shape)?])
}

/// One axis of length 1 before axis `axis` of the result.
/// All stretches of so many elements along an axis; those of each lie along a last axis.
pub(crate) fn unfold(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let axis = n.axis(n.attributes.int("dim", -1)?, shape.len())?;
    let (size, step) = (n.attributes.int("size", 0)?, n.attributes.int("step", 1)?);
    if !(1..=shape[axis] as i64).contains(&size) || step < 1 {
        return Problem::unsupported(format!(
            "size={size} and step={step} along {} elements",
            shape[axis]
        ));
    }
    let (size, step) = (size as usize, step as usize);
    let count = (shape[axis] - size) / step + 1;
    n.take_elements(&[count, size])?;
    let places = (0..count * size).map(|i| (i / size * step + i % size) as i64);
    let places = Tensor::from_slice(&[count, size], &places.collect::<Vec<_>>());
    let places = n.model.add_result(&n.name, places);
    let y = n.emit(Op::Gather(Gather { axis }), &[x, places])?;
    let mut perm: Vec<usize> = (0..=shape.len()).collect();
    let own = perm.remove(axis + 1);
    perm.push(own);
    Ok(vec![n.emit(Op::Transpose(Transpose { perm }), &[y])?])
}

pub(crate) fn expand_dims(n: &mut NodeImport) -> Imported {
    n.opset = 13;
    unsqueeze(n)
}

/// Takes pads and the value as operands, as `Pad` of operator set 11 does.
pub(crate) fn microsoft_pad(n: &mut NodeImport) -> Imported {
    n.opset = 11;
    pad(n)
}

pub(crate) fn expand(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let given = required(n.constant_ints(1, "shape")?, "shape")?;
    let shape = broadcast_shape(&n.ty(x).shape, &sizes(&given, "shape")?)?;
    if shape == n.ty(x).shape {
        return Ok(vec![x]);
    }
    Ok(vec![n.emit(Op::Expand(Expand { shape }), &[x])?])
}

pub(crate) fn transpose(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    let perm = match n.attributes.ints("perm")? {
        Some(perm) => sizes(perm, "perm")?,
        None => (0..rank).rev().collect(),
    };
    transposed(n, x, perm).map(|y| vec![y])
}

fn transposed(n: &mut NodeImport, x: ValueId, perm: Vec<usize>) -> Result<ValueId, Problem> {
    if perm.iter().copied().eq(0..n.ty(x).rank()) {
        return Ok(x);
    }
    n.emit(Op::Transpose(Transpose { perm }), &[x])
}

pub(crate) fn gather(n: &mut NodeImport) -> Imported {
    let (x, indices) = (n.input(0)?, n.input(1)?);
    let axis = n.axis(n.attributes.int("axis", 0)?, n.ty(x).rank())?;
    Ok(vec![n.emit(Op::Gather(Gather { axis }), &[x, indices])?])
}

/// Every axis gets a repeating axis before it.
/// Rows of a table by their numbers. What else the operator says is for training.
pub(crate) fn embedding(n: &mut NodeImport) -> Imported {
    let (table, rows) = (n.input(0)?, n.input(1)?);
    n.optional(2);
    n.optional(3);
    Ok(vec![
        n.emit(Op::Gather(Gather { axis: 0 }), &[table, rows])?,
    ])
}

pub(crate) fn tile(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let repeats = sizes(
        &required(n.constant_ints(1, "repeats")?, "repeats")?,
        "repeats",
    )?;
    if repeats.len() != shape.len() {
        return Problem::unsupported(format!("repeats {repeats:?} of shape {shape:?}"));
    }
    let pairs = || repeats.iter().zip(&shape);
    let apart = n.reshape(x, pairs().flat_map(|(_, n)| [1, *n]).collect())?;
    let expand = Expand {
        shape: pairs().flat_map(|(r, n)| [*r, *n]).collect(),
    };
    let repeated = n.emit(Op::Expand(expand), &[apart])?;
    let joined = pairs().map(|(r, n)| r.saturating_mul(*n)).collect();
    Ok(vec![n.reshape(repeated, joined)?])
}

/// The image shape of a block operator, and its block size.
fn blocks(n: &NodeImport) -> Result<([usize; 4], usize), Problem> {
    let shape = n.shape(n.input(0)?);
    let block = n.attributes.int("blocksize", 0)?;
    match (
        <[usize; 4]>::try_from(shape.clone()),
        usize::try_from(block),
    ) {
        (Ok(shape), Ok(block)) if (1..1 << 20).contains(&block) => Ok((shape, block)),
        _ => Problem::unsupported(format!("blocksize={block} on shape {shape:?}")),
    }
}

pub(crate) fn depth_to_space(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let ([batch, c, h, w], b) = blocks(n)?;
    if !c.is_multiple_of(b * b) {
        return Problem::unsupported(format!("{c} channels in blocks of {b}"));
    }
    let depth = c / (b * b);
    let (split, perm) = match n.attributes.text("mode", "DCR")?.as_str() {
        "DCR" => (vec![batch, b, b, depth, h, w], vec![0, 3, 4, 1, 5, 2]),
        "CRD" => (vec![batch, depth, b, b, h, w], vec![0, 1, 4, 2, 5, 3]),
        other => return Problem::unsupported(format!("mode=`{other}`")),
    };
    let x = n.reshape(x, split)?;
    let x = transposed(n, x, perm)?;
    Ok(vec![n.reshape(x, vec![batch, depth, h * b, w * b])?])
}

pub(crate) fn space_to_depth(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let ([batch, c, h, w], b) = blocks(n)?;
    let perm = match n.attributes.text("mode", "DCR")?.as_str() {
        "DCR" => vec![0, 3, 5, 1, 2, 4],
        "CRD" => vec![0, 1, 3, 5, 2, 4],
        other => return Problem::unsupported(format!("mode=`{other}`")),
    };
    if !h.is_multiple_of(b) || !w.is_multiple_of(b) {
        return Problem::unsupported(format!("{h} x {w} elements in blocks of {b}"));
    }
    let x = n.reshape(x, vec![batch, c, h / b, b, w / b, b])?;
    let x = transposed(n, x, perm)?;
    Ok(vec![n.reshape(x, vec![batch, c * b * b, h / b, w / b])?])
}
