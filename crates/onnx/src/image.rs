//! Importers of operators that sample, cut and assemble images.

use crate::node::{Imported, NodeImport, Problem};
use graph::ops::{
    Binary, Col2Im, Expand, GridSample, Interpolation, Op, Outside, Pad, PadMode, Slice,
};
use tensor::{DType, Tensor};

pub(crate) fn grid_sample(n: &mut NodeImport) -> Imported {
    let (x, grid) = (n.input(0)?, n.input(1)?);
    let interpolation = match n.attributes.text("mode", "linear")?.as_str() {
        "nearest" => Interpolation::Nearest,
        "linear" | "bilinear" => Interpolation::Linear,
        "cubic" | "bicubic" => Interpolation::Cubic,
        other => return Problem::unsupported(format!("mode=`{other}`")),
    };
    let outside = match n.attributes.text("padding_mode", "zeros")?.as_str() {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        other => return Problem::unsupported(format!("padding_mode=`{other}`")),
    };
    let sample = GridSample {
        interpolation,
        outside,
        align_corners: n.attributes.flag("align_corners", false)?,
    };
    Ok(vec![n.emit(Op::GridSample(sample), &[x, grid])?])
}

/// The coordinates from -1 to 1 of an axis of `count` pixels.
fn coordinate(i: usize, count: usize, align_corners: bool) -> f64 {
    match (align_corners, count) {
        (true, 1) => 0.0,
        (true, _) => -1.0 + 2.0 * i as f64 / (count - 1) as f64,
        (false, _) => -1.0 + (2 * i + 1) as f64 / count as f64,
    }
}

/// The points of a grid, each with a one behind it, times the map of each image.
///
/// The sum is written out: a product of matrices would have vectors of as many lanes as the grid has axes. What the
/// innermost axis adds is the same for all rows of points, and made first.
pub(crate) fn affine_grid(n: &mut NodeImport) -> Imported {
    let theta = n.input(0)?;
    let align_corners = n.attributes.flag("align_corners", false)?;
    let size = n.constant_ints(1, "size")?.unwrap_or_default();
    let sizes: Option<Vec<usize>> = size.iter().map(|v| usize::try_from(*v).ok()).collect();
    let (shape, dtype) = (n.shape(theta), n.dtype(theta));
    let sizes = match sizes {
        Some(s) if matches!(s.len(), 4 | 5) && shape == [s[0], s.len() - 2, s.len() - 1] => s,
        _ => return Problem::unsupported(format!("size {size:?} with maps {}", n.ty(theta))),
    };
    let pixels = &sizes[2..];
    let axes = pixels.len();
    n.take_elements(&[pixels, &[axes + 1]].concat())?;
    let work = match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let theta = n.cast(theta, work)?;
    // Entry `k` of all rows of the maps: once, and for each point of a row of points.
    let one = [&sizes[..1], &vec![1; axes], &[axes]].concat();
    let mut row = one.clone();
    row[axes] = pixels[axes - 1];
    let entries = |n: &mut NodeImport, k: usize| {
        let cut = Slice {
            starts: vec![0, 0, k],
            steps: vec![1; 3],
            sizes: vec![sizes[0], axes, 1],
        };
        let column = n.emit(Op::Slice(cut), &[theta])?;
        let column = n.reshape(column, one.clone())?;
        n.emit(Op::Expand(Expand { shape: row.clone() }), &[column])
    };
    let mut sum = entries(n, axes)?;
    // The innermost axis comes first.
    for k in 0..axes {
        let axis = axes - 1 - k;
        let mut shape = vec![1; axes + 2];
        shape[1 + axis] = pixels[axis];
        let mut places = Tensor::zeros(work, &shape);
        let at = |i| coordinate(i, pixels[axis], align_corners);
        (0..pixels[axis]).for_each(|i| places.set_f64(i, at(i)));
        let places = n.model.add_result(&n.name, places);
        let factors = entries(n, k)?;
        let part = n.binary(Binary::Mul, places, factors)?;
        sum = n.binary(Binary::Add, part, sum)?;
    }
    Ok(vec![n.cast(sum, dtype)?])
}

/// Cuts off or adds as much at both ends, one more at the end if it is odd.
pub(crate) fn center_crop_pad(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let wanted = n.constant_ints(1, "shape")?.unwrap_or_default();
    let axes = match n.attributes.ints("axes")? {
        Some(axes) => axes
            .iter()
            .map(|a| n.axis(*a, shape.len()))
            .collect::<Result<_, _>>()?,
        None => (0..shape.len()).collect::<Vec<_>>(),
    };
    if wanted.len() != axes.len() || wanted.iter().any(|v| !(0..1 << 40).contains(v)) {
        return Problem::unsupported(format!("shape {wanted:?} for axes {axes:?}"));
    }
    let mut pads = vec![(0, 0); shape.len()];
    for (axis, wanted) in axes.iter().zip(wanted) {
        let more = wanted - shape[*axis] as i64;
        pads[*axis] = (more / 2, more - more / 2);
    }
    let mode = PadMode::Constant(0.0);
    Ok(vec![n.emit(Op::Pad(Pad { mode, pads }), &[x])?])
}

/// A list attribute of positive numbers.
fn numbers(n: &NodeImport, name: &str, count: usize, default: i64) -> Result<Vec<i64>, Problem> {
    let values = match n.attributes.ints(name)? {
        Some(values) => values.to_vec(),
        None => vec![default; count],
    };
    if values.len() != count || values.iter().any(|v| !(default..1 << 20).contains(v)) {
        return Problem::unsupported(format!("{name}={values:?}, where {count} sizes are needed"));
    }
    Ok(values)
}

pub(crate) fn col2im(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let image = n.constant_ints(1, "image shape")?.unwrap_or_default();
    let window = n.constant_ints(2, "block shape")?.unwrap_or_default();
    let axes = image.len();
    let strides = numbers(n, "strides", axes, 1)?;
    let dilations = numbers(n, "dilations", axes, 1)?;
    let pads = numbers(n, "pads", 2 * axes, 0)?;
    let positive = |v: &i64| (1..1 << 20).contains(v);
    if window.len() != axes || axes == 0 || !image.iter().chain(&window).all(positive) {
        return Problem::unsupported(format!("image shape {image:?} with block shape {window:?}"));
    }
    let sizes = |v: &[i64]| v.iter().map(|v| *v as usize).collect::<Vec<_>>();
    let (before, after) = pads.split_at(axes);
    let pads = sizes(before).into_iter().zip(sizes(after));
    let op = Col2Im {
        image: sizes(&image),
        window: sizes(&window),
        strides: sizes(&strides),
        dilations: sizes(&dilations),
        pads: pads.collect(),
    };
    Ok(vec![n.emit(Op::Col2Im(op), &[x])?])
}
