//! Boxes of images, resized to one size: the first and the last samples of a box lie on its edges.

use super::{sampled, scalar, transposed, with};
use crate::indexing::{counting, stretched};
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Gather, Interpolation, Op, Outside, Slice, Unary};
use tensor::Tensor;

/// Where the samples of all boxes lie along an axis, in pixels: [boxes, count].
fn places(
    n: &mut NodeImport,
    [low, high]: [ValueId; 2],
    count: usize,
    size: usize,
) -> Result<ValueId, Problem> {
    let last = size as f64 - 1.0;
    if count == 1 {
        let both = n.binary(Binary::Add, low, high)?;
        return with(n, Binary::Mul, both, 0.5 * last);
    }
    let extent = n.binary(Binary::Sub, high, low)?;
    let step = with(n, Binary::Mul, extent, last / (count as f64 - 1.0))?;
    let numbers = counting(n, count, 1, 2, 0)?;
    let numbers = n.cast(numbers, n.dtype(low))?;
    let offsets = n.binary(Binary::Mul, numbers, step)?;
    let first = with(n, Binary::Mul, low, last)?;
    n.binary(Binary::Add, first, offsets)
}

pub(crate) fn crop_and_resize(n: &mut NodeImport) -> Imported {
    let (image, boxes, batch) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let outside = f64::from(n.attributes.float("extrapolation_value", 0.0)?);
    let interpolation = match n.attributes.text("mode", "bilinear")?.as_str() {
        "bilinear" => Interpolation::Linear,
        "nearest" => Interpolation::Nearest,
        other => return Problem::unsupported(format!("mode=`{other}`")),
    };
    let size = n.constant_ints(3, "crop size")?.unwrap_or_default();
    let (&[rows, columns], &[batches, channels, height, width], &[count, 4]) =
        (&size[..], &n.shape(image)[..], &n.shape(boxes)[..])
    else {
        return Problem::unsupported(format!(
            "{size:?} of boxes {} of {}",
            n.ty(boxes),
            n.ty(image)
        ));
    };
    let small = |v: i64| (1..1 << 16).contains(&v);
    if !small(rows) || !small(columns) || count == 0 || n.ty(image).is_empty() {
        return Problem::unsupported(format!("{size:?} of {count} boxes of {}", n.ty(image)));
    }
    let (rows, columns) = (rows as usize, columns as usize);
    let mut corner = |i: usize| {
        let cut = Slice {
            starts: vec![0, i],
            steps: vec![1, 1],
            sizes: vec![count, 1],
        };
        n.emit(Op::Slice(cut), &[boxes])
    };
    let (y_ends, x_ends) = ([corner(0)?, corner(2)?], [corner(1)?, corner(3)?]);
    let y = places(n, y_ends, rows, height)?;
    let x = places(n, x_ends, columns, width)?;
    let mut inside = Vec::new();
    let mut spread = Vec::new();
    for (place, own, size) in [
        (y, [count, rows, 1], height),
        (x, [count, 1, columns], width),
    ] {
        let from = with(n, Binary::GreaterOrEqual, place, 0.0)?;
        let to = with(n, Binary::LessOrEqual, place, size as f64 - 1.0)?;
        let within = n.binary(Binary::And, from, to)?;
        inside.push(n.reshape(within, [&own[..1], &[1], &own[1..]].concat())?);
        let place = match interpolation {
            // A half is rounded up, where the grid's samples are those of even numbers.
            Interpolation::Nearest => {
                let shifted = with(n, Binary::Add, place, 0.5)?;
                n.unary(Unary::Floor, shifted)?
            }
            _ => place,
        };
        let place = n.reshape(place, own.to_vec())?;
        let place = stretched(n, place, &[count, rows, columns])?;
        spread.push(n.reshape(place, vec![count, rows, columns, 1])?);
    }
    let how = (interpolation, Outside::Border);
    let values = match batches {
        1 => {
            let places = below_each_other(n, [spread[0], spread[1]], batch)?;
            let values = sampled(n, image, places, how)?;
            let values = n.reshape(values, vec![channels, count, rows, columns])?;
            transposed(n, values, &[1, 0, 2, 3])?
        }
        // An image for each box: numbers of rows of images below each other would have fewer digits behind the point.
        _ => {
            let images = n.emit(Op::Gather(Gather { axis: 0 }), &[image, batch])?;
            sampled(n, images, [spread[0], spread[1]], how)?
        }
    };
    let all = n.binary(Binary::And, inside[0], inside[1])?;
    let outside = scalar(n, values, outside)?;
    Ok(vec![n.emit(Op::Where, &[all, values, outside])?])
}

/// Samples of boxes of the only image [boxes, rows, columns, 1] as samples of one box [1, boxes * rows, columns, 1].
fn below_each_other(
    n: &mut NodeImport,
    [y, x]: [ValueId; 2],
    batch: ValueId,
) -> Result<[ValueId; 2], Problem> {
    let &[count, rows, columns, _] = &n.shape(y)[..] else {
        return Problem::unsupported(format!("its samples are {}", n.ty(y)));
    };
    // Nothing is added. A number of an image that there is not is an error all the same.
    let zero = Tensor::zeros(n.dtype(y), &[1]);
    let zero = n.model.add_result(&n.name, zero);
    let zeros = n.emit(Op::Gather(Gather { axis: 0 }), &[zero, batch])?;
    let zeros = n.reshape(zeros, vec![count, 1, 1, 1])?;
    let y = n.binary(Binary::Add, y, zeros)?;
    let shape = vec![1, count * rows, columns, 1];
    Ok([n.reshape(y, shape.clone())?, n.reshape(x, shape)?])
}
