//! Importers of Resize and Upsample: how each axis is sampled.

use crate::import::cropped::{self, Wanted};
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Filter, Line, Op, Resize, Rounding, Sampling, Scale, Unary};
use tensor::DType;

/// One axis of the operand, of which something else is asked than to keep it.
struct Axis {
    at: usize,
    extent: usize,
    size: usize,
    scale: Scale,
    /// Where the result begins and ends, as parts of the operand.
    crop: (f32, f32),
}

/// How a position of the result becomes one of the operand.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    /// The middle of a pixel of the result, without the half that `HalfPixel` takes off.
    TfHalfPixel,
    AlignCorners,
    Asymmetric,
    TfCropAndResize,
}

impl Coordinates {
    const NAMED: [(&str, Coordinates); 7] = [
        ("half_pixel", Coordinates::HalfPixel),
        ("half_pixel_symmetric", Coordinates::HalfPixelSymmetric),
        ("pytorch_half_pixel", Coordinates::PytorchHalfPixel),
        ("tf_half_pixel_for_nn", Coordinates::TfHalfPixel),
        ("align_corners", Coordinates::AlignCorners),
        ("asymmetric", Coordinates::Asymmetric),
        ("tf_crop_and_resize", Coordinates::TfCropAndResize),
    ];
    /// Those that a position between two sizes can have, for export.
    const WRITTEN: [&str; 3] = ["half_pixel", "align_corners", "asymmetric"];

    fn of(word: &str) -> Option<Coordinates> {
        let found = Coordinates::NAMED.iter().find(|(name, _)| *name == word);
        found.map(|(_, c)| *c)
    }
}

const ROUNDINGS: [(&str, Rounding); 4] = [
    ("round_prefer_floor", Rounding::HalfDown),
    ("round_prefer_ceil", Rounding::HalfUp),
    ("floor", Rounding::Floor),
    ("ceil", Rounding::Ceil),
];

/// A factor that ONNX gives; positive. Exporters round a quotient of sizes, or a decimal: the simplest fraction that
/// rounds to the factor is what they mean, and positions that fall on an element stay there.
fn scale(factor: f32) -> Option<Scale> {
    let (over, under) = fraction(factor).filter(|(over, _)| *over > 0)?;
    let (mut whole, mut rest) = (over, under);
    let (mut last, mut now) = ((0, 1), (1, 0));
    // Convergents of the continued fraction, of which the first with that value is taken.
    while rest > 0 {
        let digit = whole / rest;
        (last, now) = (now, (digit * now.0 + last.0, digit * now.1 + last.1));
        (whole, rest) = (rest, whole % rest);
        if (now.0 as f64 / now.1 as f64) as f32 == factor {
            break;
        }
    }
    let (over, under) = now;
    Some(Scale { over, under })
}

/// The floor of so many elements scaled, multiplied in f32 as ONNX Runtime does: exporters compute the scale as a quotient of
/// sizes, whose exact product may lie a little below the size that they want. ONNX's shape inference takes that product.
fn scaled(extent: usize, factor: f32) -> Option<usize> {
    let size = (extent as f32 * factor).floor();
    // Larger ones are no longer exact.
    (size < (1u64 << 24) as f32).then_some(size as usize)
}

/// A number that is a fraction with a denominator of at most 2^40; `None` for others.
fn fraction(x: f32) -> Option<(i128, i128)> {
    let scaled = f64::from(x) * (1u64 << 40) as f64;
    (scaled.fract() == 0.0 && scaled.abs() < (1u64 << 62) as f64)
        .then_some((scaled as i128, 1 << 40))
}

impl Axis {
    fn sampling(&self, coordinates: Coordinates) -> Result<Sampling, Problem> {
        let Scale { over, under } = self.scale;
        let (extent, size) = (self.extent as i128, self.size as i128);
        // The result's length before it is rounded down, times `under`.
        let length = extent * over;
        let position = match coordinates {
            Coordinates::PytorchHalfPixel if length <= under => Line::new(0, 0, 1),
            Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => self.scale.half_pixel(),
            Coordinates::HalfPixelSymmetric => {
                let shift = extent * over - size * under;
                Line::new(2 * under, shift + under - over, 2 * over)
            }
            Coordinates::TfHalfPixel => Line::new(2 * under, under, 2 * over),
            Coordinates::Asymmetric => self.scale.asymmetric(),
            Coordinates::AlignCorners => self.scale.align_corners(self.extent),
            Coordinates::TfCropAndResize => self.cropped()?,
        };
        Ok(Sampling {
            size: self.size,
            position,
            scale: self.scale.value(),
        })
    }

    /// Whether every element of the result is that of the operand at the same place.
    fn is_kept(&self, s: &Sampling) -> bool {
        s.size == self.extent && s.position == Line::new(1, 0, 1) && s.scale == 1.0
    }

    fn cropped(&self) -> Result<Line, Problem> {
        let Scale { over, under } = self.scale;
        let last = self.extent as i128 - 1;
        let (Some((start, unit)), Some((end, _))) = (fraction(self.crop.0), fraction(self.crop.1))
        else {
            return Problem::unsupported(format!("its region is {:?}", self.crop));
        };
        let length = self.extent as i128 * over;
        Ok(if length == under {
            Line::new(0, (end - start) * last, 2 * unit)
        } else {
            // Both numbers of a fraction have some 40 digits at most: products fit.
            let (by, steps) = ((end - start) * last, length - under);
            Line::new(by * under, start * last * steps, unit * steps)
        })
    }
}

pub(crate) fn resize(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    // Until operator set 10: the operand and scales only, and fewer attributes.
    let old = n.opset < 11;
    let (scales_at, given_axes) = if old { (1, None) } else { (2, axes(n)?) };
    let coordinates = if old {
        Coordinates::Asymmetric
    } else {
        coordinates(n)?
    };
    let filter = filter(n, old)?;
    // Exporters write them beside modes that do not use them.
    n.attributes
        .ignore(&["cubic_coeff_a", "nearest_mode", "keep_aspect_ratio_policy"]);
    let shape = n.shape(x);
    let axes = given_axes.unwrap_or_else(|| (0..shape.len()).collect());
    let sizes = if old {
        None
    } else {
        n.constant_ints(3, "sizes")?.filter(|s| !s.is_empty())
    };
    let scales = floats(n, scales_at, "scales")?.filter(|s| !s.is_empty());
    let wanted = match (scales, sizes) {
        (Some(scales), None) => by_scales(n, &shape, &axes, &scales)?,
        (None, Some(sizes)) => by_sizes(n, &shape, &axes, &sizes)?,
        (Some(_), Some(_)) => return Problem::unsupported("it has both scales and sizes"),
        (None, None) => return Problem::unsupported("it has neither scales nor sizes"),
    };
    let beyond = n.attributes.float("extrapolation_value", 0.0)?;
    let antialias = !old && n.attributes.flag("antialias", false)?;
    let exclude_outside = !old && n.attributes.flag("exclude_outside", false)?;
    if coordinates == Coordinates::TfCropAndResize && cropped::concerns(n) {
        let wanted = (&axes[..], &wanted[..]);
        return of_computed_region(n, filter, wanted, antialias || exclude_outside, beyond);
    }
    let regions = match coordinates {
        Coordinates::TfCropAndResize => regions(n, axes.len())?,
        // The operand may be there all the same.
        _ => {
            n.optional(1);
            vec![(0.0, 1.0); axes.len()]
        }
    };
    let mut op = Resize {
        filter,
        axes: vec![None; shape.len()],
        antialias,
        exclude_outside,
        beyond: (coordinates == Coordinates::TfCropAndResize).then_some(beyond),
    };
    let all = axes.iter().zip(wanted).zip(regions);
    let mut fewer = Vec::new();
    for ((at, (size, scale)), crop) in all {
        let axis = Axis {
            at: *at,
            extent: shape[*at],
            size,
            scale,
            crop,
        };
        let sampling = axis.sampling(coordinates)?;
        if axis.is_kept(&sampling) {
            continue;
        }
        op.axes[axis.at] = Some(sampling);
        if scale.over < scale.under {
            fewer.push(axis.at);
        }
    }
    match op.filter {
        Filter::Nearest(_) if old => nearest_of_set_10(n, op, &fewer),
        _ => emit(n, x, op),
    }
}

/// `wanted` are axes, and the size and scale of each.
fn of_computed_region(
    n: &mut NodeImport,
    filter: Filter,
    wanted: (&[usize], &[(usize, Scale)]),
    other_weights: bool,
    beyond: f32,
) -> Imported {
    if other_weights {
        return Problem::unsupported(
            "its region is computed; antialias and exclude_outside are not supported then",
        );
    }
    let wanted = wanted.0.iter().zip(wanted.1);
    let wanted: Vec<Wanted> = wanted
        .map(|(&axis, &(size, scale))| Wanted { axis, size, scale })
        .collect();
    cropped::resize(n, filter, &wanted, beyond)
}

/// Operator set 10 takes the element above along axes that get fewer elements, and the one below along others, as ONNX
/// Runtime does: its specification does not say.
fn nearest_of_set_10(n: &mut NodeImport, op: Resize, fewer: &[usize]) -> Imported {
    let mut x = n.input(0)?;
    for (rounding, becomes_less) in [(Rounding::Ceil, true), (Rounding::Floor, false)] {
        let mut one = op.clone();
        one.filter = Filter::Nearest(rounding);
        for (at, sampling) in one.axes.iter_mut().enumerate() {
            sampling.take_if(|_| fewer.contains(&at) != becomes_less);
        }
        x = emit(n, x, one)?[0];
    }
    Ok(vec![x])
}

/// Resize of operator set 7 and 9: positions are scaled, and the nearest one is below.
pub(crate) fn upsample(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let scales = if n.opset < 9 {
        n.attributes.floats("scales")?.map(<[f32]>::to_vec)
    } else {
        floats(n, 1, "scales")?
    };
    let Some(scales) = scales else {
        return Problem::unsupported("it has no scales");
    };
    let shape = n.shape(x);
    let all: Vec<usize> = (0..shape.len()).collect();
    let mut op = Resize {
        filter: filter(n, true)?,
        axes: vec![None; shape.len()],
        antialias: false,
        exclude_outside: false,
        beyond: None,
    };
    for (at, (size, scale)) in by_scales(n, &shape, &all, &scales)?.into_iter().enumerate() {
        let axis = Axis {
            at,
            extent: shape[at],
            size,
            scale,
            crop: (0.0, 1.0),
        };
        let sampling = axis.sampling(Coordinates::Asymmetric)?;
        if !axis.is_kept(&sampling) {
            op.axes[at] = Some(sampling);
        }
    }
    emit(n, x, op)
}

fn emit(n: &mut NodeImport, x: ValueId, op: Resize) -> Imported {
    if op.axes.iter().all(Option::is_none) {
        return Ok(vec![x]);
    }
    let dtype = n.dtype(x);
    if !dtype.is_float() && op.antialias && !matches!(op.filter, Filter::Nearest(_)) {
        return Ok(vec![rounded_means(n, x, &op)?]);
    }
    if dtype.is_float() || op.filter != Filter::Linear {
        return Ok(vec![n.emit(Op::Resize(op), &[x])?]);
    }
    // Means of integers are cut to integers. What rounding took off a whole number is added before.
    let wide = n.cast(x, DType::F64)?;
    let mean = n.emit(Op::Resize(op), &[wide])?;
    let sign = n.unary(Unary::Sign, mean)?;
    let little = n.filled(DType::F64, &[], 2f64.powi(-20))?;
    let little = n.binary(Binary::Mul, sign, little)?;
    let mean = n.binary(Binary::Add, mean, little)?;
    Ok(vec![n.cast(mean, dtype)?])
}

/// Means of integers over wide filters, rounded to integers after each axis, the last one first: the specification leaves
/// the rounding open, and onnxruntime does so, as Pillow does.
fn rounded_means(n: &mut NodeImport, x: ValueId, op: &Resize) -> Result<ValueId, Problem> {
    let dtype = n.dtype(x);
    let (min, max) = match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        _ => return Problem::unsupported(format!("antialias of {dtype}")),
    };
    let half = n.filled(DType::F64, &[], 0.5)?;
    let mut y = n.cast(x, DType::F64)?;
    for axis in (0..op.axes.len()).rev().filter(|a| op.axes[*a].is_some()) {
        let mut one = op.clone();
        one.axes = vec![None; op.axes.len()];
        one.axes[axis] = op.axes[axis];
        y = n.emit(Op::Resize(one), &[y])?;
        // Halves go away from 0.
        let sign = n.unary(Unary::Sign, y)?;
        let size = n.unary(Unary::Abs, y)?;
        let size = n.binary(Binary::Add, size, half)?;
        let size = n.unary(Unary::Floor, size)?;
        y = n.binary(Binary::Mul, size, sign)?;
        let (min, max) = (Some(min), Some(max));
        y = n.unary(Unary::Clip { min, max }, y)?;
    }
    n.cast(y, dtype)
}

/// The words of ONNX for a resizing of a tensor of some shape: its mode, how positions are
/// transformed, and how they are rounded.
///
/// # Errors
/// Says why ONNX has no words for it.
pub(crate) fn words(r: &Resize, shape: &[usize]) -> Result<[&'static str; 3], String> {
    let sampled = || {
        r.axes
            .iter()
            .zip(shape)
            .filter_map(|(s, n)| Some(((*s)?, *n)))
    };
    let fits = |word: &&str| {
        sampled().all(|(s, extent)| {
            let axis = Axis {
                at: 0,
                extent,
                size: s.size,
                scale: Scale::between(extent, s.size),
                crop: (0.0, 1.0),
            };
            let coordinates = Coordinates::of(word).map(|c| axis.sampling(c));
            matches!(coordinates, Some(Ok(own)) if own == s)
        })
    };
    let Some(coordinates) = Coordinates::WRITTEN.into_iter().find(fits) else {
        return Err("its positions are none that follow from its sizes".into());
    };
    if r.beyond.is_some() {
        return Err("its region is none that follows from its sizes".into());
    }
    let (mode, rounding) = match r.filter {
        Filter::Nearest(rounding) => ("nearest", rounding),
        Filter::Linear => ("linear", Rounding::HalfDown),
        Filter::Cubic { .. } => ("cubic", Rounding::HalfDown),
    };
    let rounded = ROUNDINGS.iter().find(|(_, own)| *own == rounding);
    Ok([mode, coordinates, rounded.map_or("", |(word, _)| word)])
}

pub(crate) fn axes(n: &NodeImport) -> Result<Option<Vec<usize>>, Problem> {
    let Some(given) = n.attributes.ints("axes")? else {
        return Ok(None);
    };
    let rank = n.shape(n.input(0)?).len();
    let axes: Vec<usize> = given
        .iter()
        .map(|a| n.axis(*a, rank))
        .collect::<Result<_, _>>()?;
    if (1..axes.len()).any(|i| axes[..i].contains(&axes[i])) {
        return Problem::unsupported(format!("axes {given:?} repeat"));
    }
    Ok(Some(axes))
}

pub(crate) fn coordinates(n: &NodeImport) -> Result<Coordinates, Problem> {
    let word = n
        .attributes
        .text("coordinate_transformation_mode", "half_pixel")?;
    match Coordinates::of(&word) {
        Some(c) => Ok(c),
        None => Problem::unsupported(format!("coordinate_transformation_mode=`{word}`")),
    }
}

pub(crate) fn filter(n: &NodeImport, old: bool) -> Result<Filter, Problem> {
    let mode = n.attributes.text("mode", "nearest")?;
    Ok(match &mode[..] {
        "nearest" if old => Filter::Nearest(Rounding::Floor),
        "nearest" => Filter::Nearest(rounding(n)?),
        "linear" | "bilinear" => Filter::Linear,
        "cubic" if !old => Filter::Cubic {
            a: n.attributes.float("cubic_coeff_a", -0.75)?,
        },
        _ => return Problem::unsupported(format!("mode=`{mode}`")),
    })
}

fn rounding(n: &NodeImport) -> Result<Rounding, Problem> {
    let word = n.attributes.text("nearest_mode", "round_prefer_floor")?;
    match ROUNDINGS.iter().find(|(name, _)| *name == word) {
        Some((_, rounding)) => Ok(*rounding),
        None => Problem::unsupported(format!("nearest_mode=`{word}`")),
    }
}

/// The constant numbers of input `i`, if the input is present.
fn floats(n: &NodeImport, i: usize, role: &str) -> Result<Option<Vec<f32>>, Problem> {
    let Some(t) = n.constant(i, role)? else {
        return Ok(None);
    };
    if !t.dtype().is_float() {
        return Problem::unsupported(format!("its {role} are {}, not floating", t.dtype()));
    }
    Ok(Some((0..t.len()).map(|i| t.get_f64(i) as f32).collect()))
}

/// The starts of all axes, then their ends.
fn regions(n: &NodeImport, axes: usize) -> Result<Vec<(f32, f32)>, Problem> {
    let Some(given) = floats(n, 1, "region")? else {
        return Problem::unsupported("it has no region (roi)");
    };
    if given.len() != 2 * axes {
        return Problem::unsupported(format!(
            "{} numbers of a region of {axes} axes",
            given.len()
        ));
    }
    Ok((0..axes).map(|i| (given[i], given[axes + i])).collect())
}

fn by_scales(
    n: &mut NodeImport,
    shape: &[usize],
    axes: &[usize],
    scales: &[f32],
) -> Result<Vec<(usize, Scale)>, Problem> {
    if scales.len() != axes.len() {
        return Problem::unsupported(format!("{} scales for {} axes", scales.len(), axes.len()));
    }
    let wanted = axes
        .iter()
        .zip(scales)
        .map(|(at, factor)| Some((scaled(shape[*at], *factor)?, scale(*factor)?)));
    let Some(wanted) = wanted.collect::<Option<Vec<_>>>() else {
        return Problem::unsupported(format!("its scales are {scales:?}"));
    };
    for ((at, factor), (size, _)) in axes.iter().zip(scales).zip(&wanted) {
        let exact = (shape[*at] as f64 * f64::from(*factor)).floor();
        if exact != *size as f64 {
            let (extent, name) = (shape[*at], &n.name);
            n.notes.push(format!(
                "node `{name}` ({}) scales {extent} elements of axis {at} by {factor}: {size} are made, the product in f32 as of \
                 ONNX Runtime; ONNX's own shape inference rounds the exact product down, to {exact}",
                n.proto.op_type()
            ));
        }
    }
    Ok(wanted)
}

fn by_sizes(
    n: &NodeImport,
    shape: &[usize],
    axes: &[usize],
    sizes: &[i64],
) -> Result<Vec<(usize, Scale)>, Problem> {
    if sizes.len() != axes.len() {
        return Problem::unsupported(format!("{} sizes for {} axes", sizes.len(), axes.len()));
    }
    let extents = || axes.iter().map(|at| shape[*at]);
    let asked: Option<Vec<usize>> = sizes.iter().map(|s| usize::try_from(*s).ok()).collect();
    let Some(asked) = asked.filter(|_| extents().all(|n| n > 0)) else {
        return Problem::unsupported(format!("its sizes are {sizes:?} of shape {shape:?}"));
    };
    let scales = || {
        extents()
            .zip(&asked)
            .map(|(n, size)| Scale::between(n, *size))
    };
    let by_value = |a: &Scale, b: &Scale| (a.over * b.under).cmp(&(b.over * a.under));
    let policy = if n.opset < 18 {
        "stretch".into()
    } else {
        n.attributes.text("keep_aspect_ratio_policy", "stretch")?
    };
    let one = match &policy[..] {
        "stretch" => return Ok(asked.iter().copied().zip(scales()).collect()),
        "not_larger" => scales().min_by(by_value),
        "not_smaller" => scales().max_by(by_value),
        _ => return Problem::unsupported(format!("keep_aspect_ratio_policy=`{policy}`")),
    };
    let Some(one) = one else {
        return Ok(vec![]);
    };
    // A half goes up.
    let rounded = |n: usize| (2 * n as i128 * one.over + one.under) / (2 * one.under);
    Ok(extents().map(|n| (rounded(n) as usize, one)).collect())
}
