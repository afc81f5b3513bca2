//! Importers of operators that sample images at computed places: regions and deformed windows.

mod crops;
mod largest;
mod near;

pub(crate) use self::crops::crop_and_resize;
use self::near::NEAR;
use crate::indexing::{counting, stretched};
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{
    Binary, Concat, Gather, GridSample, Interpolation, Op, Outside, Reduce, ReduceKind, Slice,
    Transpose, Unary,
};
use tensor::{DType, Tensor};

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
    (interpolation, outside): (Interpolation, Outside),
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
        interpolation,
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
    n.take_elements(&[bins, count])?;
    let at = |i: usize| (i / count) as f64 + ((i % count) as f64 + 0.5) / count as f64;
    let mut steps = Tensor::zeros(n.dtype(low), &[1, bins * count]);
    (0..bins * count).for_each(|i| steps.set_f64(i, at(i) / bins as f64));
    let steps = n.model.add_result(&n.name, steps);
    let offsets = n.binary(Binary::Mul, extent, steps)?;
    let places = n.binary(Binary::Add, low, offsets)?;
    let (places, inside) = within(n, places, size)?;
    Ok([places, inside])
}

/// Places cut to an image of `size` pixels along an axis, and whether each was within a pixel of it.
fn within(n: &mut NodeImport, places: ValueId, size: usize) -> Result<(ValueId, ValueId), Problem> {
    let above = with(n, Binary::GreaterOrEqual, places, -1.0)?;
    let below = with(n, Binary::LessOrEqual, places, size as f64)?;
    let inside = n.binary(Binary::And, above, below)?;
    let clip = Unary::Clip {
        min: Some(0.0),
        max: Some(size as f64 - 1.0),
    };
    Ok((n.unary(clip, places)?, inside))
}

/// What share a pixel has in a sample at `place`, of `size` pixels along an axis; none in one that is not within a pixel
/// of the image.
fn share_of(
    n: &mut NodeImport,
    [place, pixel]: [ValueId; 2],
    size: usize,
) -> Result<ValueId, Problem> {
    let (place, inside) = within(n, place, size)?;
    let distance = n.binary(Binary::Sub, place, pixel)?;
    let distance = n.unary(Unary::Abs, distance)?;
    let one = scalar(n, distance, 1.0)?;
    let share = n.binary(Binary::Sub, one, distance)?;
    let share = n.unary(Unary::Relu, share)?;
    let zero = scalar(n, share, 0.0)?;
    n.emit(Op::Where, &[inside, share, zero])
}

/// What a RoiAlign asks for.
struct Align {
    /// The image's shape: batch, channels, height and width.
    image: [usize; 4],
    regions: usize,
    /// Bins along y and x of a region.
    bins: [usize; 2],
    /// Samples of a bin along each axis; none if the size of a region says how many.
    ratio: Option<usize>,
    scale: f64,
    half_pixel: bool,
    /// A bin is the largest of its samples, not their mean.
    largest: bool,
}

impl Align {
    fn read(n: &NodeImport, image: ValueId, regions: ValueId) -> Result<Align, Problem> {
        let default = match n.opset {
            ..16 => "output_half_pixel",
            _ => "half_pixel",
        };
        let largest = match n.attributes.text("mode", "avg")?.as_str() {
            "avg" => false,
            "max" => true,
            other => return Problem::unsupported(format!("mode=`{other}`")),
        };
        let ratio = n.attributes.int("sampling_ratio", 0)?;
        let small = |v: i64| (1..1 << 12).contains(&v);
        if ratio != 0 && !small(ratio) {
            return Problem::unsupported(format!("sampling_ratio={ratio}"));
        }
        let rows = n.attributes.int("output_height", 1)?;
        let columns = n.attributes.int("output_width", 1)?;
        let ([batch, channels, height, width], [count, 4]) =
            (&n.shape(image)[..], &n.shape(regions)[..])
        else {
            return Problem::unsupported(format!("regions {} of {}", n.ty(regions), n.ty(image)));
        };
        if !small(rows) || !small(columns) || n.ty(image).is_empty() || *count == 0 {
            return Problem::unsupported(format!(
                "{count} regions of {rows} x {columns} of {}",
                n.ty(image)
            ));
        }
        let place = "coordinate_transformation_mode";
        let half_pixel = match n.attributes.text(place, default)?.as_str() {
            "half_pixel" => true,
            "output_half_pixel" => false,
            other => return Problem::unsupported(format!("{place}=`{other}`")),
        };
        Ok(Align {
            image: [*batch, *channels, *height, *width],
            regions: *count,
            bins: [rows as usize, columns as usize],
            ratio: (ratio != 0).then_some(ratio as usize),
            scale: f64::from(n.attributes.float("spatial_scale", 1.0)?),
            half_pixel,
            largest,
        })
    }

    /// The least and the greatest place of all regions, along y and along x.
    fn ends(&self, n: &mut NodeImport, regions: ValueId) -> Result<[[ValueId; 2]; 2], Problem> {
        let mut corners = with(n, Binary::Mul, regions, self.scale)?;
        if self.half_pixel {
            corners = with(n, Binary::Sub, corners, 0.5)?;
        }
        // A region is x, y of one corner and of the other.
        let mut corner = |i: usize| {
            let cut = Slice {
                starts: vec![0, i],
                steps: vec![1, 1],
                sizes: vec![self.regions, 1],
            };
            n.emit(Op::Slice(cut), &[corners])
        };
        Ok([[corner(1)?, corner(3)?], [corner(0)?, corner(2)?]])
    }

    /// Where the samples of all regions are along y and along x, and whether each is inside.
    fn places(
        &self,
        n: &mut NodeImport,
        regions: ValueId,
        ratio: usize,
    ) -> Result<[[ValueId; 2]; 2], Problem> {
        let ends = self.ends(n, regions)?;
        let mut along = |axis: usize| {
            let bins = (self.bins[axis], ratio);
            samples(n, ends[axis], bins, self.image[2 + axis], self.half_pixel)
        };
        Ok([along(0)?, along(1)?])
    }

    /// Along one axis, what share each pixel has in the mean of a bin's samples:
    /// [regions, bins, size].
    fn shares(
        &self,
        n: &mut NodeImport,
        ends: [ValueId; 2],
        axis: usize,
    ) -> Result<ValueId, Problem> {
        let near = self.near(n, ends, axis)?;
        let mut sum = near.zero;
        for i in 0..NEAR {
            let share = near.share(n, i)?;
            sum = n.binary(Binary::Add, sum, share)?;
        }
        n.binary(Binary::Div, sum, near.divisor)
    }

    /// The means of samples whose number the regions' sizes say: a product along y with the shares of the pixels, and one
    /// along x. A pixel that is not finite spoils means that it has no share in.
    fn means(
        &self,
        n: &mut NodeImport,
        image: ValueId,
        [regions, batch]: [ValueId; 2],
    ) -> Result<ValueId, Problem> {
        let ([batches, channels, height, width], count) = (self.image, self.regions);
        let [rows, columns] = self.bins;
        let [along_y, along_x] = self.ends(n, regions)?;
        let (mut y, x) = (self.shares(n, along_y, 0)?, self.shares(n, along_x, 1)?);
        if batches > 1 {
            // The images lie below each other, and a region has a share in its own only.
            let number = counting(n, batches, 2, 4, 0)?;
            let batch = n.cast(batch, DType::I64)?;
            let batch = n.reshape(batch, vec![count, 1, 1, 1])?;
            let own = n.binary(Binary::Equal, number, batch)?;
            let all = n.reshape(y, vec![count, rows, 1, height])?;
            let zero = scalar(n, y, 0.0)?;
            y = n.emit(Op::Where, &[own, all, zero])?;
        }
        let y = n.reshape(y, vec![count * rows, batches * height])?;
        let image = transposed(n, image, &[0, 2, 1, 3])?;
        let image = n.reshape(image, vec![batches * height, channels * width])?;
        let of_rows = n.emit(Op::MatMul, &[y, image])?;
        let of_rows = n.reshape(of_rows, vec![count, rows * channels, width])?;
        let x = transposed(n, x, &[0, 2, 1])?;
        let bins = n.emit(Op::MatMul, &[of_rows, x])?;
        let bins = n.reshape(bins, vec![count, rows, channels, columns])?;
        transposed(n, bins, &[0, 2, 1, 3])
    }

    /// Each bin of its samples: `values` is [1, channels, regions * samples along y, samples
    /// along x].
    fn of_samples(
        &self,
        n: &mut NodeImport,
        values: ValueId,
        ratio: usize,
    ) -> Result<ValueId, Problem> {
        let [rows, columns] = self.bins;
        let by_bin = vec![self.image[1], self.regions, rows, ratio, columns, ratio];
        let values = n.reshape(values, by_bin)?;
        let reduce = Reduce {
            kind: match self.largest {
                true => ReduceKind::Max,
                false => ReduceKind::Mean,
            },
            axes: vec![3, 5],
            keepdims: false,
        };
        let bins = n.emit(Op::Reduce(reduce), &[values])?;
        transposed(n, bins, &[1, 0, 2, 3])
    }
}

/// Every bin of a region is the mean of some samples of the image. The images of a batch lie
/// below each other for that: a sample is within its own. Where the regions' sizes say how many samples there
/// are, a mean is written as products, which need no bound of that number.
pub(crate) fn roi_align(n: &mut NodeImport) -> Imported {
    let (image, regions, batch) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let align = Align::read(n, image, regions)?;
    let Some(ratio) = align.ratio else {
        return Ok(vec![match align.largest {
            true => align.largest_products(n, image, [regions, batch])?,
            false => align.means(n, image, [regions, batch])?,
        }]);
    };
    let ([batches, channels, height, width], count) = (align.image, align.regions);
    let [[y, y_inside], [x, x_inside]] = align.places(n, regions, ratio)?;
    let batch = n.cast(batch, n.dtype(y))?;
    let batch = n.reshape(batch, vec![count, 1])?;
    let first = with(n, Binary::Mul, batch, height as f64)?;
    let y = n.binary(Binary::Add, y, first)?;
    let [rows, columns] = align.bins.map(|bins| bins * ratio);
    // Samples outside the image are zeros.
    let far = scalar(n, y, -4.0)?;
    let y = n.emit(Op::Where, &[y_inside, y, far])?;
    let x = n.emit(Op::Where, &[x_inside, x, far])?;
    let mut spread = |v: ValueId, along: [usize; 3]| {
        let v = n.reshape(v, along.to_vec())?;
        let v = stretched(n, v, &[count, rows, columns])?;
        n.reshape(v, vec![1, count * rows, columns, 1])
    };
    let (y, x) = (
        spread(y, [count, rows, 1])?,
        spread(x, [count, 1, columns])?,
    );
    let below = match batches {
        1 => image,
        _ => transposed(n, image, &[1, 0, 2, 3])?,
    };
    let below = n.reshape(below, vec![1, channels, batches * height, width])?;
    // The operator's definition of the largest samples takes the largest of the four products that a mean's add up.
    let interpolation = match align.largest {
        true => Interpolation::Largest,
        false => Interpolation::Linear,
    };
    let values = sampled(n, below, [y, x], (interpolation, Outside::Zeros))?;
    Ok(vec![align.of_samples(n, values, ratio)?])
}

/// Along one axis of regions [regions, 1], which bins [bins] have which pixels:
/// [regions, bins, size].
fn pixels_of_bins(
    n: &mut NodeImport,
    [low, high]: [ValueId; 2],
    (bins, size): (usize, usize),
) -> Result<ValueId, Problem> {
    let regions = n.shape(low)[0];
    let extent = n.binary(Binary::Sub, high, low)?;
    let extent = with(n, Binary::Add, extent, 1.0)?;
    let extent = with(n, Binary::Max, extent, 1.0)?;
    let each = with(n, Binary::Div, extent, bins as f64)?;
    let dtype = n.dtype(low);
    let edge = |n: &mut NodeImport, first: i64, round: Unary| {
        let bin = counting(n, bins, 1, 2, first)?;
        let bin = n.cast(bin, dtype)?;
        let from = n.binary(Binary::Mul, bin, each)?;
        let from = n.unary(round, from)?;
        let at = n.binary(Binary::Add, from, low)?;
        n.reshape(at, vec![regions, bins, 1])
    };
    let (start, end) = (edge(n, 0, Unary::Floor)?, edge(n, 1, Unary::Ceil)?);
    let pixel = counting(n, size, 2, 3, 0)?;
    let pixel = n.cast(pixel, dtype)?;
    let after = n.binary(Binary::GreaterOrEqual, pixel, start)?;
    let before = n.binary(Binary::Less, pixel, end)?;
    n.binary(Binary::And, after, before)
}

/// The largest pixel of each bin of some regions, and 0 for a bin without pixels.
pub(crate) fn max_roi_pool(n: &mut NodeImport) -> Imported {
    let (image, regions) = (n.input(0)?, n.input(1)?);
    let scale = f64::from(n.attributes.float("spatial_scale", 1.0)?);
    let [rows, columns] = list(n, "pooled_shape", [0; 2])?;
    let ([_, channels, height, width], [count, 5]) = (&n.shape(image)[..], &n.shape(regions)[..])
    else {
        return Problem::unsupported(format!("regions {} of {}", n.ty(regions), n.ty(image)));
    };
    let (channels, height, width, count) = (*channels, *height, *width, *count);
    if rows == 0 || columns == 0 || count == 0 || n.ty(image).is_empty() {
        return Problem::unsupported(format!(
            "{count} regions of {rows} x {columns} of {}",
            n.ty(image)
        ));
    }
    n.take_elements(&[count, rows.max(columns), height.max(width)])?;
    let column = |n: &mut NodeImport, i: usize| {
        let cut = Slice {
            starts: vec![0, i],
            steps: vec![1, 1],
            sizes: vec![count, 1],
        };
        n.emit(Op::Slice(cut), &[regions])
    };
    let batch = column(n, 0)?;
    let corner = |n: &mut NodeImport, i: usize| {
        let place = column(n, i)?;
        let place = with(n, Binary::Mul, place, scale)?;
        // To the nearest pixel; halves away from 0.
        let size = n.unary(Unary::Abs, place)?;
        let size = with(n, Binary::Add, size, 0.5)?;
        let size = n.unary(Unary::Floor, size)?;
        let sign = n.unary(Unary::Sign, place)?;
        n.binary(Binary::Mul, size, sign)
    };
    let along_x = [corner(n, 1)?, corner(n, 3)?];
    let along_y = [corner(n, 2)?, corner(n, 4)?];
    let of_x = pixels_of_bins(n, along_x, (columns, width))?;
    let of_y = pixels_of_bins(n, along_y, (rows, height))?;
    let batch = n.cast(batch, DType::I64)?;
    let batch = n.reshape(batch, vec![count])?;
    let images = n.emit(Op::Gather(Gather { axis: 0 }), &[image, batch])?;
    let none = scalar(n, images, f64::NEG_INFINITY)?;
    let largest = |n: &mut NodeImport, x: ValueId, axis: usize| {
        let reduce = Reduce {
            kind: ReduceKind::Max,
            axes: vec![axis],
            keepdims: false,
        };
        n.emit(Op::Reduce(reduce), &[x])
    };
    // Along y, then along x.
    let x = n.reshape(images, vec![count, channels, 1, height, width])?;
    let inside = n.reshape(of_y, vec![count, 1, rows, height, 1])?;
    let x = n.emit(Op::Where, &[inside, x, none])?;
    let x = largest(n, x, 3)?;
    let x = n.reshape(x, vec![count, channels, rows, 1, width])?;
    let inside = n.reshape(of_x, vec![count, 1, 1, columns, width])?;
    let x = n.emit(Op::Where, &[inside, x, none])?;
    let x = largest(n, x, 4)?;
    let empty = n.binary(Binary::Equal, x, none)?;
    let zero = scalar(n, x, 0.0)?;
    Ok(vec![n.emit(Op::Where, &[empty, zero, x])?])
}

/// A list of sizes, one for each of `default`.
fn list<const N: usize>(
    n: &NodeImport,
    name: &str,
    default: [usize; N],
) -> Result<[usize; N], Problem> {
    let Some(values) = n.attributes.ints(name)? else {
        return Ok(default);
    };
    let sizes = values.iter().map(|v| usize::try_from(*v).ok());
    match sizes
        .collect::<Option<Vec<_>>>()
        .map(<[usize; N]>::try_from)
    {
        Some(Ok(sizes)) => Ok(sizes),
        _ => Problem::unsupported(format!("{name}={values:?}")),
    }
}

/// What a DeformConv asks for.
struct Windows {
    /// The image's shape: batch, channels, height and width.
    image: [usize; 4],
    /// Maps that it makes.
    maps: usize,
    /// Channels that a map reads.
    depth: usize,
    kernel: [usize; 2],
    /// Windows along y and x.
    out: [usize; 2],
    groups: usize,
    /// Groups of channels whose taps have places of their own.
    parts: usize,
}

impl Windows {
    fn read(n: &NodeImport, [image, weight, offset]: [ValueId; 3]) -> Result<Windows, Problem> {
        let groups = n.attributes.int("group", 1)?;
        let parts = n.attributes.int("offset_group", 1)?;
        let refused = || {
            Problem::unsupported(format!(
                "offsets {} and weights {} for {}, group={groups}, offset_group={parts}",
                n.ty(offset),
                n.ty(weight),
                n.ty(image)
            ))
        };
        let (shape, kernel, places) = (n.shape(image), n.shape(weight), n.shape(offset));
        let ([batch, channels, height, width], [maps, depth, kh, kw], [of, two, rows, columns]) =
            (&shape[..], &kernel[..], &places[..])
        else {
            return refused();
        };
        let given = n.attributes.ints("kernel_shape")?;
        let (Ok(groups), Ok(parts)) = (usize::try_from(groups), usize::try_from(parts)) else {
            return refused();
        };
        let fits = groups > 0
            && parts > 0
            && depth.checked_mul(groups) == Some(*channels)
            && maps % groups == 0
            && channels % parts == 0
            && parts.checked_mul(kh * kw * 2) == Some(*two)
            && of == batch
            && given.is_none_or(|k| k == [*kh as i64, *kw as i64])
            && ![&shape, &kernel, &places].iter().any(|s| s.contains(&0));
        if !fits {
            return refused();
        }
        Ok(Windows {
            image: [*batch, *channels, *height, *width],
            maps: *maps,
            depth: *depth,
            kernel: [*kh, *kw],
            out: [*rows, *columns],
            groups,
            parts,
        })
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn pixels(&self) -> usize {
        self.out[0] * self.out[1]
    }

    /// Where the taps of all windows are along y and along x, each moved by its offset.
    fn places(&self, n: &mut NodeImport, offset: ValueId) -> Result<[ValueId; 2], Problem> {
        let strides = list(n, "strides", [1; 2])?;
        let dilations = list(n, "dilations", [1; 2])?;
        let pads = list(n, "pads", [0; 4])?;
        let (taps, pixels) = (self.taps(), self.pixels());
        // Offsets are y and x of each tap in turn.
        let offset = n.reshape(offset, vec![self.image[0] * self.parts, taps, 2, pixels])?;
        let offset = transposed(n, offset, &[0, 1, 3, 2])?;
        let mut along = |d: usize| {
            let moved = part(n, offset, d, 2)?;
            n.take_elements(&[taps, pixels])?;
            let mut regular = Tensor::zeros(n.dtype(offset), &[1, taps, pixels, 1]);
            for i in 0..taps * pixels {
                let (tap, pixel) = (i / pixels, i % pixels);
                let (tap, window) = match d {
                    0 => (tap / self.kernel[1], pixel / self.out[1]),
                    _ => (tap % self.kernel[1], pixel % self.out[1]),
                };
                let window = window as f64 * strides[d] as f64;
                let tap = tap as f64 * dilations[d] as f64;
                regular.set_f64(i, window + tap - pads[d] as f64);
            }
            let regular = n.model.add_result(&n.name, regular);
            n.binary(Binary::Add, moved, regular)
        };
        Ok([along(0)?, along(1)?])
    }
}

/// A convolution whose windows have a place for each tap: samples of the image, then a product.
pub(crate) fn deform_conv(n: &mut NodeImport) -> Imported {
    let (image, weight, offset) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (bias, mask) = (n.optional(3), n.optional(4));
    let windows = Windows::read(n, [image, weight, offset])?;
    let Windows {
        image: [batch, channels, height, width],
        maps,
        depth,
        out: [rows, columns],
        groups,
        parts,
        ..
    } = windows;
    let (taps, pixels) = (windows.taps(), windows.pixels());
    let images = n.reshape(image, vec![batch * parts, channels / parts, height, width])?;
    let places = windows.places(n, offset)?;
    let linear = (Interpolation::Linear, Outside::Zeros);
    let mut values = sampled(n, images, places, linear)?;
    if let Some(mask) = mask {
        let mask = n.reshape(mask, vec![batch * parts, 1, taps, pixels])?;
        values = n.binary(Binary::Mul, values, mask)?;
    }
    let values = n.reshape(values, vec![batch, groups, depth * taps, pixels])?;
    let weight = n.reshape(weight, vec![1, groups, maps / groups, depth * taps])?;
    let result = n.emit(Op::MatMul, &[weight, values])?;
    let mut result = n.reshape(result, vec![batch, maps, rows, columns])?;
    if let Some(bias) = bias {
        let bias = n.reshape(bias, vec![maps, 1, 1])?;
        result = n.binary(Binary::Add, result, bias)?;
    }
    Ok(vec![result])
}

/// A matrix of at most so many rows is written out in its entries.
const LARGEST_MATRIX: usize = 4;

/// The entries of small square matrices, by row and column.
fn entries(n: &mut NodeImport, x: ValueId) -> Result<Vec<Vec<ValueId>>, Problem> {
    let shape = n.shape(x);
    let size = match shape[..] {
        [.., a, b] if a == b && (1..=LARGEST_MATRIX).contains(&a) => a,
        _ => {
            return Problem::unsupported(format!(
                "matrices {}; it is for up to {LARGEST_MATRIX} rows here",
                n.ty(x)
            ));
        }
    };
    let last = shape.len() - 1;
    let mut entry = |row: usize, column: usize| {
        let mut cut = Slice {
            starts: vec![0; shape.len()],
            steps: vec![1; shape.len()],
            sizes: shape.clone(),
        };
        (cut.starts[last - 1], cut.starts[last]) = (row, column);
        (cut.sizes[last - 1], cut.sizes[last]) = (1, 1);
        let entry = match size {
            1 => x,
            _ => n.emit(Op::Slice(cut), &[x])?,
        };
        n.reshape(entry, shape[..last - 1].to_vec())
    };
    (0..size)
        .map(|row| (0..size).map(|column| entry(row, column)).collect())
        .collect()
}

/// The determinants of small matrices, by their first rows.
pub(crate) fn det(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let entries = entries(n, x)?;
    let all: Vec<usize> = (0..entries.len()).collect();
    Ok(vec![minor(n, &entries, &all, &all)?])
}

/// The inverses of small matrices: their cofactors by their determinants.
pub(crate) fn inverse(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let entries = entries(n, x)?;
    let size = entries.len();
    let all: Vec<usize> = (0..size).collect();
    let det = minor(n, &entries, &all, &all)?;
    let outer = n.shape(det);
    let but = |i: usize| -> Vec<usize> { all.iter().copied().filter(|j| *j != i).collect() };
    let mut cofactors = Vec::new();
    for (column, row) in (0..size * size).map(|i| (i / size, i % size)) {
        let cofactor = match size {
            1 => n.filled(n.dtype(x), &outer, 1.0)?,
            _ => minor(n, &entries, &but(row), &but(column))?,
        };
        let cofactor = match (row + column) % 2 {
            0 => cofactor,
            _ => n.unary(Unary::Neg, cofactor)?,
        };
        cofactors.push(n.reshape(cofactor, [&outer[..], &[1]].concat())?);
    }
    let axis = outer.len();
    let adjugate = n.emit(Op::Concat(Concat { axis }), &cofactors)?;
    let adjugate = n.reshape(adjugate, shape)?;
    let det = n.reshape(det, [&outer[..], &[1, 1]].concat())?;
    Ok(vec![n.binary(Binary::Div, adjugate, det)?])
}

/// The determinant of some rows and columns.
fn minor(
    n: &mut NodeImport,
    entries: &[Vec<ValueId>],
    rows: &[usize],
    columns: &[usize],
) -> Result<ValueId, Problem> {
    let (first, below) = match (rows, columns) {
        ([row], [column]) => return Ok(entries[*row][*column]),
        ([first, below @ ..], [_, ..]) => (*first, below),
        _ => return Problem::unsupported("it has no columns"),
    };
    let mut sum: Option<ValueId> = None;
    for (i, column) in columns.iter().enumerate() {
        let mut rest = columns.to_vec();
        rest.remove(i);
        let below = minor(n, entries, below, &rest)?;
        let term = n.binary(Binary::Mul, entries[first][*column], below)?;
        sum = Some(match sum {
            None => term,
            Some(sum) if i % 2 == 1 => n.binary(Binary::Sub, sum, term)?,
            Some(sum) => n.binary(Binary::Add, sum, term)?,
        });
    }
    sum.map_or_else(|| Problem::unsupported("it has no columns"), Ok)
}
