//! Importers of operators that sample images at computed places: regions and deformed windows.

use crate::indexing::stretched;
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{
    Binary, Concat, GridSample, Interpolation, Op, Outside, Reduce, ReduceKind, Slice, Transpose,
    Unary,
};
use tensor::Tensor;

fn scalar(n: &mut NodeImport, like: ValueId, value: f64) -> Result<ValueId, Problem> {
    n.filled(n.dtype(like), &[], value)
}

/// `op` of `x` and a number.
fn with(n: &mut NodeImport, op: Binary, x: ValueId, value: f64) -> Result<ValueId, Problem> {
    let value = scalar(n, x, value)?;
    n.binary(op, x, value)
}

fn transposed(n: &mut NodeImport, x: ValueId, perm: &[usize]) -> Result<ValueId, Problem> {
    let perm = perm.to_vec();
    n.emit(Op::Transpose(Transpose { perm }), &[x])
}

/// Elements `start..start + size` along the last axis.
fn part(n: &mut NodeImport, x: ValueId, start: usize, step: i64) -> Result<ValueId, Problem> {
    let shape = n.shape(x);
    let last = shape.len() - 1;
    let mut slice = Slice {
        starts: vec![0; shape.len()],
        steps: vec![1; shape.len()],
        sizes: shape.clone(),
    };
    slice.starts[last] = start;
    slice.sizes[last] = (shape[last] - start).div_ceil(step as usize);
    slice.steps[last] = if slice.sizes[last] > 1 { step } else { 1 };
    n.emit(Op::Slice(slice), &[x])
}

/// The image [n,c,h,w] at places [n,points.., 1] in pixels along y and along x.
fn sampled(
    n: &mut NodeImport,
    image: ValueId,
    [y, x]: [ValueId; 2],
    outside: Outside,
) -> Result<ValueId, Problem> {
    let shape = n.shape(image);
    // A grid's -1 and 1 are the edges of the image.
    let mut place = |at: ValueId, size: usize| {
        let from_centre = with(n, Binary::Sub, at, (size as f64 - 1.0) / 2.0)?;
        with(n, Binary::Mul, from_centre, 2.0 / size as f64)
    };
    let (y, x) = (place(y, shape[2])?, place(x, shape[3])?);
    let axis = n.ty(y).rank() - 1;
    let grid = n.emit(Op::Concat(Concat { axis }), &[x, y])?;
    let sample = GridSample {
        interpolation: Interpolation::Linear,
        outside,
        align_corners: false,
    };
    n.emit(Op::GridSample(sample), &[image, grid])
}

/// Along one axis of all regions: where samples are [regions, bins * samples], whether each is
/// within a pixel of the image, and the places cut to it.
fn samples(
    n: &mut NodeImport,
    [low, high]: [ValueId; 2],
    (bins, count): (usize, usize),
    size: usize,
    half_pixel: bool,
) -> Result<[ValueId; 2], Problem> {
    let mut extent = n.binary(Binary::Sub, high, low)?;
    if !half_pixel {
        extent = with(n, Binary::Max, extent, 1.0)?;
    }
    let at = |i: usize| (i / count) as f64 + ((i % count) as f64 + 0.5) / count as f64;
    let mut steps = Tensor::zeros(n.dtype(low), &[1, bins * count]);
    (0..bins * count).for_each(|i| steps.set_f64(i, at(i) / bins as f64));
    let steps = n.model.add_result(&n.name, steps);
    let offsets = n.binary(Binary::Mul, extent, steps)?;
    let places = n.binary(Binary::Add, low, offsets)?;
    let above = with(n, Binary::GreaterOrEqual, places, -1.0)?;
    let below = with(n, Binary::LessOrEqual, places, size as f64)?;
    let inside = n.binary(Binary::And, above, below)?;
    let clip = Unary::Clip {
        min: Some(0.0),
        max: Some(size as f64 - 1.0),
    };
    Ok([n.unary(clip, places)?, inside])
}

/// Every bin of a region is the mean of some samples of the image. The images of a batch lie
/// below each other for that: a sample is within its own.
pub(crate) fn roi_align(n: &mut NodeImport) -> Imported {
    let (image, regions, batch) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let default = if n.opset < 16 {
        "output_half_pixel"
    } else {
        "half_pixel"
    };
    let mode = n.attributes.text("mode", "avg")?;
    let place = n
        .attributes
        .text("coordinate_transformation_mode", default)?;
    let (rows, columns) = (
        n.attributes.int("output_height", 1)?,
        n.attributes.int("output_width", 1)?,
    );
    let ratio = n.attributes.int("sampling_ratio", 0)?;
    let scale = n.attributes.float("spatial_scale", 1.0)?;
    let (shape, count) = (n.shape(image), n.shape(regions));
    let ([batches, channels, height, width], [count, 4]) = (&shape[..], &count[..]) else {
        return Problem::unsupported(format!("regions {} of {}", n.ty(regions), n.ty(image)));
    };
    let (batches, channels, height, width, count) = (*batches, *channels, *height, *width, *count);
    let small = |v: i64| (1..1 << 12).contains(&v);
    if mode != "avg" {
        return Problem::unsupported(format!("mode=`{mode}`; export it with mode `avg`"));
    }
    if !small(ratio) {
        return Problem::unsupported(format!(
            "sampling_ratio={ratio}: the regions' sizes decide how many samples it takes; export \
             it with a fixed number, such as 2"
        ));
    }
    if !small(rows) || !small(columns) || n.ty(image).is_empty() || count == 0 {
        return Problem::unsupported(format!(
            "{count} regions of {rows} x {columns} of {shape:?}"
        ));
    }
    let half_pixel = match place.as_str() {
        "half_pixel" => true,
        "output_half_pixel" => false,
        _ => return Problem::unsupported(format!("coordinate_transformation_mode=`{place}`")),
    };
    let (rows, columns, ratio) = (rows as usize, columns as usize, ratio as usize);
    let mut corners = with(n, Binary::Mul, regions, f64::from(scale))?;
    if half_pixel {
        corners = with(n, Binary::Sub, corners, 0.5)?;
    }
    let mut corner = |i: usize| {
        let cut = Slice {
            starts: vec![0, i],
            steps: vec![1, 1],
            sizes: vec![count, 1],
        };
        n.emit(Op::Slice(cut), &[corners])
    };
    let (x0, y0, x1, y1) = (corner(0)?, corner(1)?, corner(2)?, corner(3)?);
    let [y, y_inside] = samples(n, [y0, y1], (rows, ratio), height, half_pixel)?;
    let [x, x_inside] = samples(n, [x0, x1], (columns, ratio), width, half_pixel)?;
    let batch = n.cast(batch, n.dtype(y))?;
    let batch = n.reshape(batch, vec![count, 1])?;
    let first = with(n, Binary::Mul, batch, height as f64)?;
    let y = n.binary(Binary::Add, y, first)?;
    let (all_rows, all_columns) = (rows * ratio, columns * ratio);
    let by_region = [count, all_rows, all_columns];
    let mut spread = |v: ValueId, along: [usize; 3]| {
        let v = n.reshape(v, along.to_vec())?;
        let v = stretched(n, v, &by_region)?;
        Ok::<_, Problem>(v)
    };
    let (y, x) = (
        spread(y, [count, all_rows, 1])?,
        spread(x, [count, 1, all_columns])?,
    );
    let points = vec![1, count * all_rows, all_columns, 1];
    let (y, x) = (n.reshape(y, points.clone())?, n.reshape(x, points)?);
    let below = match batches {
        1 => image,
        _ => transposed(n, image, &[1, 0, 2, 3])?,
    };
    let below = n.reshape(below, vec![1, channels, batches * height, width])?;
    let values = sampled(n, below, [y, x], Outside::Border)?;
    let y_inside = n.reshape(y_inside, vec![count, all_rows, 1])?;
    let x_inside = n.reshape(x_inside, vec![count, 1, all_columns])?;
    let inside = n.binary(Binary::And, y_inside, x_inside)?;
    let inside = n.reshape(inside, vec![1, 1, count * all_rows, all_columns])?;
    let zero = scalar(n, values, 0.0)?;
    let values = n.emit(Op::Where, &[inside, values, zero])?;
    let values = n.reshape(values, vec![channels, count, rows, ratio, columns, ratio])?;
    let mean = Reduce {
        kind: ReduceKind::Mean,
        axes: vec![3, 5],
        keepdims: false,
    };
    let bins = n.emit(Op::Reduce(mean), &[values])?;
    Ok(vec![transposed(n, bins, &[1, 0, 2, 3])?])
}

/// A convolution whose windows have a place for each tap: samples of the image, then a product.
pub(crate) fn deform_conv(n: &mut NodeImport) -> Imported {
    let (image, weight, offset) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (bias, mask) = (n.optional(3), n.optional(4));
    let list = |name: &str, default: Vec<i64>| -> Result<Vec<usize>, Problem> {
        let values = n
            .attributes
            .ints(name)?
            .map_or(default.clone(), <[i64]>::to_vec);
        let sizes: Option<Vec<usize>> = values.iter().map(|v| usize::try_from(*v).ok()).collect();
        match sizes {
            Some(sizes) if sizes.len() == default.len() => Ok(sizes),
            _ => Problem::unsupported(format!("{name}={values:?}")),
        }
    };
    let (strides, dilations) = (list("strides", vec![1; 2])?, list("dilations", vec![1; 2])?);
    let pads = list("pads", vec![0; 4])?;
    let groups = n.attributes.int("group", 1)?;
    let parts = n.attributes.int("offset_group", 1)?;
    let (shape, kernel, places) = (n.shape(image), n.shape(weight), n.shape(offset));
    let refused = || {
        Problem::unsupported(format!(
            "offsets {places:?} and weights {kernel:?} for {shape:?}, group={groups}, \
             offset_group={parts}"
        ))
    };
    let ([batch, channels, height, width], [maps, depth, kh, kw], [_, two, rows, columns]) =
        (&shape[..], &kernel[..], &places[..])
    else {
        return refused();
    };
    let given = n.attributes.ints("kernel_shape")?.map(<[i64]>::to_vec);
    let (Ok(groups), Ok(parts)) = (usize::try_from(groups), usize::try_from(parts)) else {
        return refused();
    };
    let taps = kh * kw;
    let fits = groups > 0
        && parts > 0
        && depth * groups == *channels
        && maps % groups == 0
        && channels % parts == 0
        && *two == parts * taps * 2
        && places[0] == *batch
        && given.is_none_or(|k| k == [*kh as i64, *kw as i64])
        && ![&shape, &kernel, &places].iter().any(|s| s.contains(&0));
    if !fits {
        return refused();
    }
    let images = n.reshape(
        image,
        vec![batch * parts, channels / parts, *height, *width],
    )?;
    // Offsets are y and x of each tap in turn.
    let offset = n.reshape(offset, vec![batch * parts, taps, 2, rows * columns])?;
    let offset = transposed(n, offset, &[0, 1, 3, 2])?;
    let dtype = n.dtype(offset);
    let mut place = |d: usize| {
        let moved = part(n, offset, d, 2)?;
        let mut regular = Tensor::zeros(dtype, &[1, taps, rows * columns, 1]);
        for i in 0..taps * rows * columns {
            let (tap, pixel) = (i / (rows * columns), i % (rows * columns));
            let (tap, window) = match d {
                0 => (tap / kw, pixel / columns),
                _ => (tap % kw, pixel % columns),
            };
            let at = (window * strides[d] + tap * dilations[d]) as f64;
            regular.set_f64(i, at - pads[d] as f64);
        }
        let regular = n.model.add_result(&n.name, regular);
        n.binary(Binary::Add, moved, regular)
    };
    let at = [place(0)?, place(1)?];
    let mut values = sampled(n, images, at, Outside::Zeros)?;
    if let Some(mask) = mask {
        let mask = n.reshape(mask, vec![batch * parts, 1, taps, rows * columns])?;
        values = n.binary(Binary::Mul, values, mask)?;
    }
    let columns_of = vec![*batch, groups, depth * taps, rows * columns];
    let values = n.reshape(values, columns_of)?;
    let weight = n.reshape(weight, vec![1, groups, maps / groups, depth * taps])?;
    let result = n.emit(Op::MatMul, &[weight, values])?;
    let mut result = n.reshape(result, vec![*batch, *maps, *rows, *columns])?;
    if let Some(bias) = bias {
        let bias = n.reshape(bias, vec![*maps, 1, 1])?;
        result = n.binary(Binary::Add, result, bias)?;
    }
    Ok(vec![result])
}

/// The determinants of small matrices, by their first rows.
pub(crate) fn det(n: &mut NodeImport) -> Imported {
    const LARGEST: usize = 4;
    let x = n.input(0)?;
    let shape = n.shape(x);
    let size = match shape[..] {
        [.., a, b] if a == b && (1..=LARGEST).contains(&a) => a,
        _ => {
            return Problem::unsupported(format!(
                "matrices {}; determinants are for up to {LARGEST} rows here",
                n.ty(x)
            ));
        }
    };
    let outer = shape[..shape.len() - 2].to_vec();
    let mut entries = Vec::new();
    for i in 0..size * size {
        let mut cut = Slice {
            starts: vec![0; shape.len()],
            steps: vec![1; shape.len()],
            sizes: shape.clone(),
        };
        let last = shape.len() - 1;
        (cut.starts[last - 1], cut.starts[last]) = (i / size, i % size);
        (cut.sizes[last - 1], cut.sizes[last]) = (1, 1);
        let entry = match size {
            1 => x,
            _ => n.emit(Op::Slice(cut), &[x])?,
        };
        entries.push(n.reshape(entry, outer.clone())?);
    }
    let columns: Vec<usize> = (0..size).collect();
    Ok(vec![minor(n, &entries, size, 0, &columns)?])
}

/// The determinant of the rows from `row` on, of some columns.
fn minor(
    n: &mut NodeImport,
    entries: &[ValueId],
    size: usize,
    row: usize,
    columns: &[usize],
) -> Result<ValueId, Problem> {
    if let [column] = columns {
        return Ok(entries[row * size + column]);
    }
    let mut sum: Option<ValueId> = None;
    for (i, column) in columns.iter().enumerate() {
        let mut rest = columns.to_vec();
        rest.remove(i);
        let below = minor(n, entries, size, row + 1, &rest)?;
        let term = n.binary(Binary::Mul, entries[row * size + column], below)?;
        sum = Some(match sum {
            None => term,
            Some(sum) if i % 2 == 1 => n.binary(Binary::Sub, sum, term)?,
            Some(sum) => n.binary(Binary::Add, sum, term)?,
        });
    }
    sum.map_or_else(|| Problem::unsupported("it has no columns"), Ok)
}
