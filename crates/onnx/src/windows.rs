//! Importers of convolutions and pooling.

use crate::attention::transposed;
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{
    Binary, Combine, Conv, ConvTranspose, Gather, IndexOrder, Op, Pad, PadMode, Pool, PoolKind,
    Reduce, ReduceKind, ScatterNd,
};
use tensor::Tensor;

/// Larger strides, dilations, kernels and groups are refused.
const LIMIT: i64 = 1 << 20;

/// A list attribute of so many entries: as many as there are spatial axes, or twice that.
fn list(n: &NodeImport, name: &str, count: usize, default: i64) -> Result<Vec<usize>, Problem> {
    let Some(values) = n.attributes.ints(name)? else {
        return Ok(vec![default as usize; count]);
    };
    if values.len() != count {
        let given = values.len();
        return Problem::unsupported(format!(
            "{name}={values:?} is of length {given} and not {count}"
        ));
    }
    let range = i64::from(default > 0)..LIMIT;
    if let Some(v) = values.iter().find(|v| !range.contains(v)) {
        let (least, most) = (range.start, LIMIT - 1);
        return Problem::unsupported(format!(
            "{name}={values:?} has {v}, which is not from {least} to {most}"
        ));
    }
    Ok(values.iter().map(|v| *v as usize).collect())
}

fn spatial_shape(n: &NodeImport) -> Result<Vec<usize>, Problem> {
    let shape = n.shape(n.input(0)?);
    if shape.len() < 3 {
        return Problem::unsupported(format!(
            "its input has shape {shape:?}, without spatial axes"
        ));
    }
    Ok(shape[2..].to_vec())
}

/// Attributes that convolutions and pooling share.
struct Window {
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    pads: Vec<(usize, usize)>,
}

fn window(n: &NodeImport, kernel: Vec<usize>) -> Result<Window, Problem> {
    let input = spatial_shape(n)?;
    let spatial = input.len();
    if kernel.len() != spatial || kernel.iter().any(|k| !(1..LIMIT as usize).contains(k)) {
        return Problem::unsupported(format!("kernel {kernel:?} with {spatial} spatial axes"));
    }
    let strides = list(n, "strides", spatial, 1)?;
    let dilations = list(n, "dilations", spatial, 1)?;
    let explicit = list(n, "pads", 2 * spatial, 0)?;
    let auto = n.attributes.text("auto_pad", "NOTSET")?;
    let pads = (0..spatial)
        .map(|d| {
            let windows = input[d].div_ceil(strides[d]);
            let reach = (kernel[d] - 1) * dilations[d] + 1;
            let total = (windows.saturating_sub(1) * strides[d] + reach).saturating_sub(input[d]);
            Ok(match auto.as_str() {
                "NOTSET" | "" => (explicit[d], explicit[spatial + d]),
                "VALID" => (0, 0),
                "SAME_UPPER" => (total / 2, total - total / 2),
                "SAME_LOWER" => (total - total / 2, total / 2),
                other => return Problem::unsupported(format!("auto_pad=`{other}`")),
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(Window {
        kernel,
        strides,
        dilations,
        pads,
    })
}

fn groups(n: &NodeImport) -> Result<usize, Problem> {
    match n.attributes.int("group", 1)? {
        g if (1..LIMIT).contains(&g) => Ok(g as usize),
        g => Problem::unsupported(format!("group={g}")),
    }
}

/// The kernel of the weight, input `i`, which the attribute may repeat.
fn weight_kernel(n: &NodeImport, i: usize, spatial: usize) -> Result<Vec<usize>, Problem> {
    let shape = n.shape(n.input(i)?);
    let kernel = shape.get(2..).unwrap_or_default().to_vec();
    if n.attributes.ints("kernel_shape")?.is_some()
        && list(n, "kernel_shape", spatial, 1)? != kernel
    {
        return Problem::unsupported(format!("kernel_shape does not fit the weight {shape:?}"));
    }
    Ok(kernel)
}

/// The attributes of a convolution whose weight is input `weight`.
pub(crate) fn conv_attributes(n: &NodeImport, weight: usize) -> Result<Conv, Problem> {
    let spatial = spatial_shape(n)?.len();
    let Window {
        strides,
        dilations,
        pads,
        ..
    } = window(n, weight_kernel(n, weight, spatial)?)?;
    Ok(Conv {
        strides,
        dilations,
        pads,
        groups: groups(n)?,
    })
}

pub(crate) fn conv(n: &mut NodeImport) -> Imported {
    let conv = conv_attributes(n, 1)?;
    let inputs = [Some(n.input(0)?), Some(n.input(1)?), n.optional(2)];
    let present = if inputs[2].is_some() { 3 } else { 2 };
    n.emit_all(Op::Conv(conv), &inputs[..present])
}

pub(crate) fn conv_transpose(n: &mut NodeImport) -> Imported {
    let spatial = spatial_shape(n)?.len();
    let pads = list(n, "pads", 2 * spatial, 0)?;
    transposed_conv(n, &pads, 2)
}

/// As [`conv_transpose`], with padding that is an operand before the bias.
pub(crate) fn conv_transpose_with_pads(n: &mut NodeImport) -> Imported {
    let spatial = spatial_shape(n)?.len();
    let pads = match n.constant_ints(2, "padding")? {
        None => vec![0; 2 * spatial],
        Some(given)
            if given.len() == 2 * spatial && given.iter().all(|p| (0..LIMIT).contains(p)) =>
        {
            given.into_iter().map(|p| p as usize).collect()
        }
        Some(given) => {
            return Problem::unsupported(format!("padding {given:?} of {spatial} spatial axes"));
        }
    };
    transposed_conv(n, &pads, 3)
}

/// A transposed convolution whose bias is input `bias`.
fn transposed_conv(n: &mut NodeImport, explicit: &[usize], bias: usize) -> Imported {
    let input = spatial_shape(n)?;
    let spatial = input.len();
    let kernel = weight_kernel(n, 1, spatial)?;
    if kernel.len() != spatial || kernel.iter().any(|k| !(1..LIMIT as usize).contains(k)) {
        return Problem::unsupported(format!("kernel {kernel:?} with {spatial} spatial axes"));
    }
    let strides = list(n, "strides", spatial, 1)?;
    let dilations = list(n, "dilations", spatial, 1)?;
    let output_padding = list(n, "output_padding", spatial, 0)?;
    let auto = n.attributes.text("auto_pad", "NOTSET")?;
    let wanted = match n.attributes.ints("output_shape")? {
        Some(_) => Some(list(n, "output_shape", spatial, 1)?),
        None if auto.starts_with("SAME") => {
            Some((0..spatial).map(|d| input[d] * strides[d]).collect())
        }
        None => None,
    };
    let pads = (0..spatial)
        .map(|d| match &wanted {
            Some(wanted) => {
                let reach = (kernel[d] - 1) * dilations[d] + 1;
                let full = input[d].saturating_sub(1) * strides[d] + reach + output_padding[d];
                let total = full as i64 - wanted[d] as i64;
                // Missing elements are added after the others.
                let half = total.max(0) / 2;
                if auto == "SAME_UPPER" {
                    (half, total - half)
                } else {
                    (total.max(0) - half, total.min(0) + half)
                }
            }
            None if auto == "VALID" => (0, 0),
            None => (explicit[d] as i64, explicit[spatial + d] as i64),
        })
        .collect();
    if !matches!(
        auto.as_str(),
        "NOTSET" | "" | "VALID" | "SAME_UPPER" | "SAME_LOWER"
    ) {
        return Problem::unsupported(format!("auto_pad=`{auto}`"));
    }
    let conv = ConvTranspose {
        strides,
        dilations,
        pads,
        output_padding,
        groups: groups(n)?,
    };
    let inputs = [Some(n.input(0)?), Some(n.input(1)?), n.optional(bias)];
    let present = if inputs[2].is_some() { 3 } else { 2 };
    n.emit_all(Op::ConvTranspose(conv), &inputs[..present])
}

/// The attributes of a pooling.
pub(crate) fn pool_attributes(n: &NodeImport, kind: PoolKind) -> Result<Pool, Problem> {
    let spatial = spatial_shape(n)?.len();
    if n.attributes.ints("kernel_shape")?.is_none() {
        return Problem::unsupported("it has no kernel_shape");
    }
    let kernel = list(n, "kernel_shape", spatial, 1)?;
    let Window {
        kernel,
        strides,
        dilations,
        pads,
    } = window(n, kernel)?;
    let ceil_mode = n.attributes.flag("ceil_mode", false)?;
    Ok(Pool {
        kind,
        kernel,
        strides,
        dilations,
        pads,
        ceil_mode,
    })
}

fn pool(n: &mut NodeImport, kind: PoolKind) -> Imported {
    let x = n.input(0)?;
    let pool = pool_attributes(n, kind)?;
    n.emit_all(Op::Pool(pool), &[Some(x)])
}

pub(crate) fn max_pool(n: &mut NodeImport) -> Imported {
    let order = match n.attributes.int("storage_order", 0)? {
        0 => IndexOrder::RowMajor,
        _ => IndexOrder::ColumnMajor,
    };
    let indices = n.wants(1).then_some(order);
    pool(n, PoolKind::Max { indices })
}

/// Imports an operator on images whose channels are the last axis by its importer for those where they are the second.
pub(crate) fn with_channels_last(
    n: &mut NodeImport,
    import: impl FnOnce(&mut NodeImport) -> Imported,
) -> Imported {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    if rank < 3 {
        return Problem::unsupported(format!("its input is {}", n.ty(x)));
    }
    let first = [&[0, rank - 1][..], &(1..rank - 1).collect::<Vec<_>>()].concat();
    let last = [&[0][..], &(2..rank).collect::<Vec<_>>(), &[1]].concat();
    n.inputs[0] = Some(transposed(n, x, &first)?);
    let results = import(n)?;
    let turned = results.into_iter().map(|y| transposed(n, y, &last));
    turned.collect()
}

pub(crate) fn nhwc_max_pool(n: &mut NodeImport) -> Imported {
    with_channels_last(n, max_pool)
}

/// Each element back where the maximum of its window was, and zeros.
pub(crate) fn max_unpool(n: &mut NodeImport) -> Imported {
    let (x, places) = (n.input(0)?, n.input(1)?);
    let from = n.shape(x);
    let pool = pool_attributes(n, PoolKind::Max { indices: None })?;
    if n.shape(places) != from || n.ty(x).is_empty() {
        return Problem::unsupported(format!("places {} for {}", n.ty(places), n.ty(x)));
    }
    let mut shape = from[..2].to_vec();
    for d in 0..from.len() - 2 {
        let (before, after) = pool.pads[d];
        let reach = (from[2 + d] - 1) * pool.strides[d] + pool.kernel[d];
        match reach.checked_sub(before + after) {
            Some(extent) if extent > 0 => shape.push(extent),
            _ => return Problem::unsupported(format!("pads={:?} of windows", pool.pads)),
        }
    }
    // Places are counted in the shape that follows from the windows; a larger result has it
    // at its start.
    let wanted = match n.constant_ints(2, "output shape")? {
        None => shape.clone(),
        Some(sizes) => {
            let sizes = sizes.iter().map(|s| usize::try_from(*s).unwrap_or(0));
            let sizes: Vec<usize> = sizes.collect();
            let fits = sizes.len() == shape.len() && sizes.iter().zip(&shape).all(|(a, b)| a >= b);
            if !fits {
                return Problem::unsupported(format!("output shape {sizes:?} for {shape:?}"));
            }
            sizes
        }
    };
    n.take_elements(&shape)?;
    let y = match of_same_windows(n, places, &pool, &shape) {
        true => from_windows(n, [x, places], &pool, &shape)?,
        false => {
            let count = n.ty(x).len();
            let all = shape.iter().product();
            let zeros = n.filled(n.dtype(x), &[all], 0.0)?;
            let places = n.reshape(places, vec![count, 1])?;
            let x = n.reshape(x, vec![count])?;
            let scatter = Op::ScatterNd(ScatterNd {
                combine: Combine::Replace,
            });
            let y = n.emit(scatter, &[zeros, places, x])?;
            n.reshape(y, shape.clone())?
        }
    };
    if wanted == shape {
        return Ok(vec![y]);
    }
    let pads = shape.iter().zip(&wanted).map(|(a, b)| (0, (b - a) as i64));
    let pad = Pad {
        mode: PadMode::Constant(0.0),
        pads: pads.collect(),
    };
    Ok(vec![n.emit(Op::Pad(pad), &[y])?])
}

/// Whether places are those that a pooling with these windows found in an image of this shape.
fn of_same_windows(n: &NodeImport, places: ValueId, pool: &Pool, shape: &[usize]) -> bool {
    let Some((node, 1)) = n.model.producer(places) else {
        return false;
    };
    let node = &n.model[node];
    match &node.op {
        Op::Pool(p) => {
            let order = Some(IndexOrder::RowMajor);
            let same = p.kernel == pool.kernel && p.strides == pool.strides && p.pads == pool.pads;
            let plain = p.dilations.iter().all(|d| *d == 1);
            let image = node.input(0).map(|v| n.shape(v));
            p.kind == PoolKind::Max { indices: order }
                && same
                && plain
                && image.as_deref() == Some(shape)
        }
        _ => false,
    }
}

/// Each element of the result looks for its own place in the windows that have it.
fn from_windows(
    n: &mut NodeImport,
    [x, places]: [ValueId; 2],
    pool: &Pool,
    shape: &[usize],
) -> Result<ValueId, Problem> {
    let from = n.shape(x);
    let spatial = from.len() - 2;
    let all: usize = shape.iter().product();
    let own: Vec<i64> = (0..all as i64).collect();
    let own = n.model.add_result(&n.name, Tensor::from_slice(shape, &own));
    let mut choices = vec![Vec::new()];
    for d in 0..spatial {
        let windows = pool.kernel[d].div_ceil(pool.strides[d]);
        let longer = |c: &Vec<usize>| {
            let c = c.clone();
            (0..windows).map(move |w| [&c[..], &[w]].concat())
        };
        choices = choices.iter().flat_map(longer).collect();
    }
    let mut y = n.filled(n.dtype(x), shape, 0.0)?;
    // Of several updates of an element the last one counts.
    for choice in choices.into_iter().rev() {
        let (mut value, mut place) = (x, places);
        for (d, back) in choice.iter().enumerate() {
            // A window that there is not is another one, whose place is elsewhere, or it again.
            let window = |i: usize| {
                let last = (i + pool.pads[d].0) / pool.strides[d];
                last.saturating_sub(*back).min(from[2 + d] - 1) as i64
            };
            let picks: Vec<i64> = (0..shape[2 + d]).map(window).collect();
            let picks = Tensor::from_slice(&[picks.len()], &picks);
            let picks = n.model.add_result(&n.name, picks);
            let gather = Op::Gather(Gather { axis: 2 + d });
            value = n.emit(gather.clone(), &[value, picks])?;
            place = n.emit(gather, &[place, picks])?;
        }
        let is_own = n.binary(Binary::Equal, place, own)?;
        y = n.emit(Op::Where, &[is_own, value, y])?;
    }
    Ok(y)
}

pub(crate) fn average_pool(n: &mut NodeImport) -> Imported {
    let count_include_pad = n.attributes.flag("count_include_pad", false)?;
    pool(n, PoolKind::Average { count_include_pad })
}

fn global(n: &mut NodeImport, kind: ReduceKind) -> Imported {
    let axes = (2..2 + spatial_shape(n)?.len()).collect();
    let x = n.input(0)?;
    Ok(vec![n.emit(
        Op::Reduce(Reduce {
            kind,
            axes,
            keepdims: true,
        }),
        &[x],
    )?])
}

pub(crate) fn global_average_pool(n: &mut NodeImport) -> Imported {
    global(n, ReduceKind::Mean)
}

pub(crate) fn global_max_pool(n: &mut NodeImport) -> Imported {
    global(n, ReduceKind::Max)
}
