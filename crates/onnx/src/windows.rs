//! Importers of convolutions and pooling.

use crate::node::{Imported, NodeImport, Problem};
use graph::ops::{Conv, ConvTranspose, IndexOrder, Op, Pool, PoolKind, Reduce, ReduceKind};

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
    let input = spatial_shape(n)?;
    let spatial = input.len();
    let kernel = weight_kernel(n, 1, spatial)?;
    if kernel.len() != spatial || kernel.iter().any(|k| !(1..LIMIT as usize).contains(k)) {
        return Problem::unsupported(format!("kernel {kernel:?} with {spatial} spatial axes"));
    }
    let strides = list(n, "strides", spatial, 1)?;
    let dilations = list(n, "dilations", spatial, 1)?;
    let output_padding = list(n, "output_padding", spatial, 0)?;
    let explicit = list(n, "pads", 2 * spatial, 0)?;
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
    let inputs = [Some(n.input(0)?), Some(n.input(1)?), n.optional(2)];
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
