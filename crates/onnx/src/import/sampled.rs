//! `Resize` to sizes that the data decide, or along an axis of such a size.
//!
//! Each axis is sampled by itself. Where an element of the result lies in the operand is a fraction of integers, which is
//! computed when the model runs; its floor names the neighbours, and its rest their weights.

use super::complete;
use super::sized::{set, sizes_of};
use crate::indexing::counting;
use crate::live::Extent;
use crate::node::{Imported, NodeImport, Problem, is_half};
use crate::operators::Operator;
use crate::resize::{Coordinates, axes, coordinates, filter};
use graph::ValueId;
use graph::ops::{Binary, Filter, Gather, Op, Rounding};
use tensor::DType;

/// Whether a `Resize` has computed sizes, or samples along an axis whose size the data decide.
pub(super) fn concerns(n: &NodeImport) -> bool {
    let given = n.inputs.get(3).copied().flatten();
    n.opset > 10 && given.is_some_and(|sizes| n.live.range(sizes).is_some())
}

pub(super) fn resize(n: &mut NodeImport, operator: &Operator) -> Imported {
    let (x, given) = (n.input(0)?, n.input(3)?);
    let (coordinates, filter) = (coordinates(n)?, filter(n, false)?);
    let rank = n.ty(x).rank();
    let along = axes(n)?.unwrap_or_else(|| (0..rank).collect());
    let policy = match n.opset {
        ..18 => "stretch".into(),
        _ => n
            .attributes
            .text("keep_aspect_ratio_policy", "stretch")?
            .to_string(),
    };
    if n.attributes.flag("antialias", false)?
        || n.attributes.flag("exclude_outside", false)?
        || policy != "stretch"
        || coordinates == Coordinates::TfCropAndResize
    {
        return Problem::unsupported(
            "the data decide its sizes; antialias, exclude_outside, tf_crop_and_resize and a kept aspect ratio are not \
             supported then",
        );
    }
    if n.dtype(x).is_int() && !matches!(filter, Filter::Nearest(_)) {
        return Problem::unsupported("the data decide its sizes, and means are of integers");
    }
    if n.ty(x).is_empty() {
        return complete(n, operator.import);
    }
    n.at_bounds = true;
    let bounds = n.constant_ints(3, "sizes")?.unwrap_or_default();
    if bounds.len() != along.len() {
        return Problem::unsupported(format!("{} sizes for {} axes", bounds.len(), along.len()));
    }
    let counts = sizes_of(n, given, bounds.len())?;
    let dtype = n.dtype(x);
    let mut y = match is_half(dtype) {
        true => n.cast(x, DType::F32)?,
        false => x,
    };
    let mut extents = n.live.extents(x).to_vec();
    for (i, (axis, bound)) in along.iter().zip(bounds).enumerate() {
        let extent = n.shape(x)[*axis];
        let live = n.live.count(x, *axis);
        let size = counts.iter().find(|e| e.axis == i).map(|e| e.count);
        let Ok(bound) = usize::try_from(bound) else {
            return Problem::unsupported(format!("a size is {bound} at most"));
        };
        if bound == extent && live.is_none() && size.is_none() {
            continue;
        }
        let sampled = Sampled {
            axis: *axis,
            bound,
            size: size.unwrap_or_else(|| n.number(bound as i64)),
            extent: live.unwrap_or_else(|| n.number(extent as i64)),
        };
        y = along_axis(n, y, &sampled, (coordinates, filter))?;
        extents.retain(|e| e.axis != *axis);
        let axis = *axis;
        extents.extend(size.map(|count| Extent { axis, count }));
    }
    let y = n.cast(y, dtype)?;
    Ok(vec![set(n, y, extents)?])
}

/// One axis of a resizing.
pub(super) struct Sampled {
    pub(super) axis: usize,
    /// No more elements than these are in the result.
    pub(super) bound: usize,
    pub(super) size: ValueId,
    pub(super) extent: ValueId,
}

/// For each element of the result, a place in the operand: its floor (i64), and what is left of it as a fraction of two
/// numbers of one type.
pub(super) struct Place {
    pub(super) floor: ValueId,
    pub(super) rest: ValueId,
    pub(super) over: ValueId,
}

fn place(n: &mut NodeImport, s: &Sampled, coordinates: Coordinates) -> Result<Place, Problem> {
    let (one, two) = (n.number(1), n.number(2));
    let i = counting(n, s.bound, 0, 1, 0)?;
    let twice = n.binary(Binary::Mul, i, two)?;
    let middle = n.binary(Binary::Add, twice, one)?;
    let middle = n.binary(Binary::Mul, middle, s.extent)?;
    let (above, over) = match coordinates {
        Coordinates::AlignCorners => {
            let last = n.binary(Binary::Sub, s.extent, one)?;
            let steps = n.binary(Binary::Sub, s.size, one)?;
            (n.binary(Binary::Mul, i, last)?, steps)
        }
        Coordinates::Asymmetric => (n.binary(Binary::Mul, i, s.extent)?, s.size),
        Coordinates::TfHalfPixel => (middle, n.binary(Binary::Mul, s.size, two)?),
        _ => {
            let above = n.binary(Binary::Sub, middle, s.size)?;
            (above, n.binary(Binary::Mul, s.size, two)?)
        }
    };
    let above = match coordinates {
        Coordinates::PytorchHalfPixel => {
            let several = n.binary(Binary::Greater, s.size, one)?;
            let zero = n.number(0);
            n.emit(Op::Where, &[several, above, zero])?
        }
        _ => above,
    };
    // A result of one element, or of none, divides by nothing otherwise.
    let over = n.binary(Binary::Max, over, one)?;
    // Division cuts towards 0, and a place may lie up to one element before the first.
    let positive = n.binary(Binary::Add, above, over)?;
    let floor = n.binary(Binary::Div, positive, over)?;
    let whole = n.binary(Binary::Mul, floor, over)?;
    let rest = n.binary(Binary::Sub, positive, whole)?;
    let floor = n.binary(Binary::Sub, floor, one)?;
    Ok(Place { floor, rest, over })
}

fn along_axis(
    n: &mut NodeImport,
    x: ValueId,
    s: &Sampled,
    (coordinates, filter): (Coordinates, Filter),
) -> Result<ValueId, Problem> {
    let p = place(n, s, coordinates)?;
    at_places(n, x, s, &p, filter)
}

/// The operand at places along an axis.
pub(super) fn at_places(
    n: &mut NodeImport,
    x: ValueId,
    s: &Sampled,
    p: &Place,
    filter: Filter,
) -> Result<ValueId, Problem> {
    match filter {
        Filter::Nearest(rounding) => {
            let up = match rounding {
                Rounding::Floor => return neighbour(n, x, s, p.floor),
                Rounding::Ceil => {
                    let zero = n.filled(n.dtype(p.rest), &[], 0.0)?;
                    n.binary(Binary::Greater, p.rest, zero)?
                }
                Rounding::HalfDown | Rounding::HalfUp => {
                    let two = n.filled(n.dtype(p.rest), &[], 2.0)?;
                    let twice = n.binary(Binary::Mul, p.rest, two)?;
                    let compare = match rounding {
                        Rounding::HalfUp => Binary::GreaterOrEqual,
                        _ => Binary::Greater,
                    };
                    n.binary(compare, twice, p.over)?
                }
            };
            let up = n.cast(up, DType::I64)?;
            let nearest = n.binary(Binary::Add, p.floor, up)?;
            neighbour(n, x, s, nearest)
        }
        Filter::Linear => weighted(n, x, s, p, 0, |n, t| {
            let one = n.filled(n.dtype(t), &[], 1.0)?;
            Ok(vec![n.binary(Binary::Sub, one, t)?, t])
        }),
        Filter::Cubic { a } => weighted(n, x, s, p, -1, |n, t| {
            let a = f64::from(a);
            // Keys' kernel at most one element away, and at most two.
            let near = [a + 2.0, -(a + 3.0), 0.0, 1.0];
            let far = [a, -5.0 * a, 8.0 * a, -4.0 * a];
            let taps = [
                (1.0, 1.0, far),
                (0.0, 1.0, near),
                (1.0, -1.0, near),
                (2.0, -1.0, far),
            ];
            let weight = |(plus, by, terms)| cubic(n, t, (plus, by), terms);
            taps.into_iter().map(weight).collect()
        }),
    }
}

/// A polynomial of `plus + by t`, the coefficient of the third power first.
fn cubic(
    n: &mut NodeImport,
    t: ValueId,
    (plus, by): (f64, f64),
    terms: [f64; 4],
) -> Result<ValueId, Problem> {
    let dtype = n.dtype(t);
    let plus = n.filled(dtype, &[], plus)?;
    let by = n.filled(dtype, &[], by)?;
    let d = n.binary(Binary::Mul, t, by)?;
    let d = n.binary(Binary::Add, d, plus)?;
    let mut value = n.filled(dtype, &[], terms[0])?;
    for term in &terms[1..] {
        let term = n.filled(dtype, &[], *term)?;
        value = n.binary(Binary::Mul, value, d)?;
        value = n.binary(Binary::Add, value, term)?;
    }
    Ok(value)
}

/// The sum of neighbours from `first` behind the floor on, each times its weight.
fn weighted(
    n: &mut NodeImport,
    x: ValueId,
    s: &Sampled,
    p: &Place,
    first: i64,
    weights: impl Fn(&mut NodeImport, ValueId) -> Result<Vec<ValueId>, Problem>,
) -> Result<ValueId, Problem> {
    let dtype = n.dtype(x);
    let (rest, over) = (n.cast(p.rest, dtype)?, n.cast(p.over, dtype)?);
    let t = n.binary(Binary::Div, rest, over)?;
    let mut shape = vec![1; n.ty(x).rank()];
    shape[s.axis] = s.bound;
    let mut sum = None;
    for (i, weight) in weights(n, t)?.into_iter().enumerate() {
        let offset = n.number(first + i as i64);
        let at = n.binary(Binary::Add, p.floor, offset)?;
        let own = neighbour(n, x, s, at)?;
        let weight = n.reshape(weight, shape.clone())?;
        let part = n.binary(Binary::Mul, own, weight)?;
        sum = Some(match sum {
            Some(sum) => n.binary(Binary::Add, sum, part)?,
            None => part,
        });
    }
    Ok(sum.expect("a filter has neighbours"))
}

/// Elements of `x` at places along the axis; outside it is its first or last one.
fn neighbour(n: &mut NodeImport, x: ValueId, s: &Sampled, at: ValueId) -> Result<ValueId, Problem> {
    let (zero, one) = (n.number(0), n.number(1));
    let last = n.binary(Binary::Sub, s.extent, one)?;
    let at = n.binary(Binary::Min, at, last)?;
    let at = n.binary(Binary::Max, at, zero)?;
    let axis = s.axis;
    n.emit(Op::Gather(Gather { axis }), &[x, at])
}
