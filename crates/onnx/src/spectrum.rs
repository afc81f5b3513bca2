//! Importers of Fourier transforms: products with matrices of cosines and sines.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Concat, Gather, Op, Pad, PadMode, Slice, Transpose};
use std::f64::consts::TAU;
use tensor::{DType, Tensor};

/// Elements of one matrix, at most.
const LARGEST: usize = 1 << 24;

#[derive(Clone, Copy)]
struct Transform {
    length: usize,
    inverse: bool,
    onesided: bool,
}

impl Transform {
    /// Frequencies of half a spectrum.
    fn half(self) -> usize {
        self.length / 2 + 1
    }
}

/// A matrix [rows, columns] of `value` at (row, column, angle of a full turn's share).
fn matrix(
    n: &mut NodeImport,
    dtype: DType,
    [rows, columns]: [usize; 2],
    length: usize,
    value: impl Fn(usize, usize, f64) -> f64,
) -> Result<ValueId, Problem> {
    let size = rows.saturating_mul(columns);
    if size > LARGEST {
        return Problem::unsupported(format!(
            "a transform of {length} elements is a product with a matrix of {rows} x {columns}, \
             which is too large"
        ));
    }
    n.take_elements(&[rows, columns])?;
    let mut out = Tensor::zeros(dtype, &[rows, columns]);
    for i in 0..size {
        let (row, column) = (i / columns, i % columns);
        // The angle's multiple stays below a turn, so no digits are lost.
        let turn = (row * column % length) as f64 / length as f64;
        out.set_f64(i, value(row, column, TAU * turn));
    }
    Ok(n.model.add_result(&n.name, out))
}

/// Part `i` along the last axis, which goes.
fn component(n: &mut NodeImport, x: ValueId, i: usize) -> Result<ValueId, Problem> {
    let mut shape = n.shape(x);
    let last = shape.len() - 1;
    let mut cut = Slice {
        starts: vec![0; shape.len()],
        steps: vec![1; shape.len()],
        sizes: shape.clone(),
    };
    cut.starts[last] = i;
    cut.sizes[last] = 1;
    let x = match shape[last] {
        1 => x,
        _ => n.emit(Op::Slice(cut), &[x])?,
    };
    shape.pop();
    n.reshape(x, shape)
}

/// `x` [.., length, 1 or 2] as [.., frequencies, 1 or 2].
fn transformed(n: &mut NodeImport, x: ValueId, t: Transform) -> Result<ValueId, Problem> {
    let shape = n.shape(x);
    let dtype = n.dtype(x);
    let real = shape[shape.len() - 1] == 1;
    let (len, rank) = (t.length, shape.len());
    // Half a spectrum becomes what it is the spectrum of: real numbers.
    let to_real = t.inverse && t.onesided;
    let rows = if to_real { t.half() } else { len };
    let columns = if t.onesided && !t.inverse {
        t.half()
    } else {
        len
    };
    let share = if t.inverse { 1.0 / len as f64 } else { 1.0 };
    let weight = move |row: usize| match to_real && row > 0 && 2 * row != len {
        true => 2.0 * share,
        false => share,
    };
    let sign = if t.inverse { 1.0 } else { -1.0 };
    let cosines = matrix(n, dtype, [rows, columns], len, |r, _, a| {
        weight(r) * a.cos()
    })?;
    let sines = matrix(n, dtype, [rows, columns], len, |r, _, a| {
        sign * weight(r) * a.sin()
    })?;
    let re = component(n, x, 0)?;
    let product = |n: &mut NodeImport, x, m| n.emit(Op::MatMul, &[x, m]);
    let (mut out_re, mut out_im) = (product(n, re, cosines)?, None);
    if !to_real {
        out_im = Some(product(n, re, sines)?);
    }
    if !real {
        let im = component(n, x, 1)?;
        let turned = product(n, im, sines)?;
        out_re = n.binary(Binary::Sub, out_re, turned)?;
        if let Some(from_re) = out_im {
            let kept = product(n, im, cosines)?;
            out_im = Some(n.binary(Binary::Add, from_re, kept)?);
        }
    }
    let mut shape = n.shape(out_re);
    shape.push(1);
    let re = n.reshape(out_re, shape.clone())?;
    match out_im {
        None => Ok(re),
        Some(im) => {
            let im = n.reshape(im, shape)?;
            n.emit(Op::Concat(Concat { axis: rank - 1 }), &[re, im])
        }
    }
}

/// `x` with `length` elements along an axis: cut, or filled with zeros.
fn of_length(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    length: usize,
) -> Result<ValueId, Problem> {
    let mut pads = vec![(0, 0); n.ty(x).rank()];
    pads[axis].1 = length as i64 - n.ty(x).shape[axis] as i64;
    if pads[axis].1 == 0 {
        return Ok(x);
    }
    let mode = PadMode::Constant(0.0);
    n.emit(Op::Pad(Pad { mode, pads }), &[x])
}

pub(crate) fn dft(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let rank = shape.len();
    let axis = match n.opset {
        ..20 => n.attributes.int("axis", 1)?,
        _ => n.constant_scalar(2, "axis")?.map_or(-2, |a| a as i64),
    };
    let axis = n.axis(axis, rank)?;
    let (inverse, onesided) = (
        n.attributes.flag("inverse", false)?,
        n.attributes.flag("onesided", false)?,
    );
    let fits = rank >= 2 && axis + 1 < rank && matches!(shape[rank - 1], 1 | 2);
    if !fits || n.ty(x).is_empty() {
        return Problem::unsupported(format!("axis {axis} of {}", n.ty(x)));
    }
    let own = match inverse && onesided {
        true => 2 * (shape[axis] - 1),
        false => shape[axis],
    };
    let length = n
        .constant_scalar(1, "length")?
        .map_or(own as f64, f64::trunc);
    if !(1.0..1e9).contains(&length) {
        return Problem::unsupported(format!("its length is {length}"));
    }
    let t = Transform {
        length: length as usize,
        inverse,
        onesided,
    };
    let read = if inverse && onesided {
        t.half()
    } else {
        t.length
    };
    let x = of_length(n, x, axis, read)?;
    // The transformed axis last but one.
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(axis, rank - 2);
    let swap = |n: &mut NodeImport, x| match axis + 2 == rank {
        true => Ok(x),
        false => n.emit(Op::Transpose(Transpose { perm: perm.clone() }), &[x]),
    };
    let x = swap(n, x)?;
    let y = transformed(n, x, t)?;
    Ok(vec![swap(n, y)?])
}

/// Half a spectrum of real numbers along the last axis.
pub(crate) fn rfft(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    one_sided(n)?;
    let mut shape = n.shape(x);
    let length = shape.last().copied().unwrap_or(0);
    if length == 0 || length % 2 == 1 {
        return Problem::unsupported(format!(
            "an even length is needed, and its input is {}",
            n.ty(x)
        ));
    }
    shape.push(1);
    let x = n.reshape(x, shape)?;
    let transform = Transform {
        length,
        inverse: false,
        onesided: true,
    };
    Ok(vec![transformed(n, x, transform)?])
}

/// The inverse of [`rfft`].
pub(crate) fn irfft(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    one_sided(n)?;
    let shape = n.shape(x);
    let [.., half, 2] = shape[..] else {
        return Problem::unsupported(format!("its input is {}", n.ty(x)));
    };
    if half < 2 {
        return Problem::unsupported(format!("its input is {}", n.ty(x)));
    }
    let transform = Transform {
        length: 2 * (half - 1),
        inverse: true,
        onesided: true,
    };
    let y = transformed(n, x, transform)?;
    let shape = n.shape(y);
    Ok(vec![n.reshape(y, shape[..shape.len() - 1].to_vec())?])
}

fn one_sided(n: &NodeImport) -> Result<(), Problem> {
    let axes = n.attributes.int("signal_ndim", 1)?;
    if !n.attributes.flag("onesided", true)? || n.attributes.flag("normalized", false)? || axes != 1
    {
        return Problem::unsupported("it is normalised, of two sides or of several axes");
    }
    Ok(())
}

/// Products of complex numbers, whose parts lie along the last axis; of the conjugate of the second if so said.
fn complex_product(n: &mut NodeImport, conjugate: bool) -> Imported {
    let (a, b) = (n.input(0)?, n.input(1)?);
    if n.shape(a).last() != Some(&2) || n.shape(b).last() != Some(&2) {
        return Problem::unsupported(format!("its operands are {} and {}", n.ty(a), n.ty(b)));
    }
    let mut parts = Vec::new();
    for x in [a, b] {
        for i in 0..2 {
            parts.push(component(n, x, i)?);
        }
    }
    let product =
        |n: &mut NodeImport, i: usize, j: usize| n.binary(Binary::Mul, parts[i], parts[j]);
    let (rr, ii) = (product(n, 0, 2)?, product(n, 1, 3)?);
    let (ri, ir) = (product(n, 0, 3)?, product(n, 1, 2)?);
    let (of_real, of_imaginary) = match conjugate {
        true => (Binary::Add, Binary::Sub),
        false => (Binary::Sub, Binary::Add),
    };
    let mut results = [n.binary(of_real, rr, ii)?, n.binary(of_imaginary, ir, ri)?];
    let mut shape = n.shape(results[0]);
    let axis = shape.len();
    shape.push(1);
    for x in &mut results {
        *x = n.reshape(*x, shape.clone())?;
    }
    Ok(vec![n.emit(Op::Concat(Concat { axis }), &results)?])
}

pub(crate) fn complex_mul(n: &mut NodeImport) -> Imported {
    complex_product(n, false)
}

pub(crate) fn complex_mul_conjugate(n: &mut NodeImport) -> Imported {
    complex_product(n, true)
}

/// Frames of a signal, each transformed under a window.
pub(crate) fn stft(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let step = n.constant_scalar(1, "frame step")?.unwrap_or(0.0);
    let window = n.optional(2);
    let length = n.constant_scalar(3, "frame length")?;
    let onesided = n.attributes.flag("onesided", true)?;
    let shape = n.shape(x);
    let length = length
        .or(window.map(|w| n.ty(w).len() as f64))
        .unwrap_or(0.0);
    let (batch, size, parts) = match shape[..] {
        [batch, size] => (batch, size, 1),
        [batch, size, parts @ (1 | 2)] => (batch, size, parts),
        _ => return Problem::unsupported(format!("its signal is {}", n.ty(x))),
    };
    let within = (1.0..=size as f64).contains(&length) && (1.0..1e9).contains(&step);
    let window_fits = window.is_none_or(|w| n.ty(w).len() as f64 == length);
    if !within || !window_fits || batch == 0 {
        return Problem::unsupported(format!(
            "frames of {length} elements every {step} of {}, window {}",
            n.ty(x),
            window.map_or("none".to_string(), |w| n.ty(w).to_string())
        ));
    }
    let (step, length) = (step as usize, length as usize);
    let frames = (size - length) / step + 1;
    n.take_elements(&[frames, length])?;
    let places: Vec<i64> = (0..frames * length)
        .map(|i| (i / length * step + i % length) as i64)
        .collect();
    let places = n
        .model
        .add_result(&n.name, Tensor::from_slice(&[frames, length], &places));
    let x = n.reshape(x, vec![batch, size, parts])?;
    let mut framed = n.emit(Op::Gather(Gather { axis: 1 }), &[x, places])?;
    if let Some(window) = window {
        let window = n.cast(window, n.dtype(x))?;
        let window = n.reshape(window, vec![length, 1])?;
        framed = n.binary(Binary::Mul, framed, window)?;
    }
    let t = Transform {
        length,
        inverse: false,
        onesided,
    };
    Ok(vec![transformed(n, framed, t)?])
}

/// The weights by which frequencies make up bands of equal width in mel.
pub(crate) fn mel_weight_matrix(n: &mut NodeImport) -> Imported {
    let mut given = [0.0; 5];
    let roles = [
        "number of bands",
        "transform's length",
        "sample rate",
        "lower edge",
        "upper edge",
    ];
    for (i, role) in roles.into_iter().enumerate() {
        given[i] = match n.constant_scalar(i, role)? {
            Some(v) => v,
            None => return Problem::unsupported(format!("it has no {role}")),
        };
    }
    let [bands, length, rate, low, high] = given;
    let dtype = match n.attributes.optional_int("output_datatype")? {
        Some(d) => crate::tensors::dtype_of(i32::try_from(d).unwrap_or(0))
            .map_err(|e| Problem::Unsupported(e.to_string()))?,
        None => DType::F32,
    };
    let sizes = (1.0..1e6).contains(&bands) && (1.0..1e6).contains(&length);
    if !(sizes && rate > 0.0 && low >= 0.0 && high.is_finite()) {
        return Problem::unsupported(format!("its operands are {given:?}"));
    }
    let (bands, bins) = (bands as usize, length as usize / 2 + 1);
    n.take_elements(&[bins, bands])?;
    let mel = |hz: f64| 2595.0 * (1.0 + hz / 700.0).log10();
    let hz = |mel: f64| 700.0 * (10f64.powf(mel / 2595.0) - 1.0);
    let step = (mel(high) - mel(low)) / (bands + 2) as f64;
    let edge = |i: usize| {
        let at = hz(mel(low) + step * i as f64);
        ((length + 1.0) * at / rate).floor()
    };
    let mut out = Tensor::zeros(dtype, &[bins, bands]);
    for band in 0..bands {
        let [from, centre, to] = [band, band + 1, band + 2].map(edge);
        for bin in 0..bins {
            let at = bin as f64;
            let weight = if from == centre {
                f64::from(u8::from(at == centre))
            } else if at >= from && at <= centre {
                (at - from) / (centre - from)
            } else {
                0.0
            };
            let falls = to > centre && at >= centre && at < to;
            let weight = if falls {
                (to - at) / (to - centre)
            } else {
                weight
            };
            out.set_f64(bin * bands + band, weight);
        }
    }
    Ok(vec![n.model.add_result(&n.name, out)])
}
