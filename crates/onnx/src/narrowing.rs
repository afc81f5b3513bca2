//! Casts to element types that no tensor here has: integers wrap as their type does, and floats round as theirs does.
//!
//! The result is held in a wider type, as `narrow.rs` says, and marked. Types of fewer than 8 bits and scales of 8 bits are
//! refused.

use crate::narrow::{Narrow, OPEN_UINT64};
use crate::node::{NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Op, Unary};
use tensor::DType;

/// The numbers of an 8-bit float, as ONNX's documentation of `Cast` has them.
struct Float8 {
    mantissa_bits: i32,
    /// The exponent of the least normal number.
    least: i32,
    /// The exponent of the greatest number.
    greatest: i32,
    max: f64,
    /// What a number beyond `max` becomes if it is not to become `max`.
    beyond: f64,
    negative_zero: bool,
}

const fn float8(mantissa_bits: i32, exponents: (i32, i32), max: f64, finite: bool) -> Float8 {
    Float8 {
        mantissa_bits,
        least: exponents.0,
        greatest: exponents.1,
        max,
        beyond: if finite { f64::NAN } else { f64::INFINITY },
        negative_zero: true,
    }
}

/// A float without infinities and without a negative zero.
const fn unsigned_zero(mantissa_bits: i32, exponents: (i32, i32), max: f64) -> Float8 {
    Float8 {
        negative_zero: false,
        ..float8(mantissa_bits, exponents, max, true)
    }
}

fn float8_of(number: i32) -> Option<Float8> {
    Some(match number {
        17 => float8(3, (-6, 8), 448.0, true),
        18 => unsigned_zero(3, (-7, 7), 240.0),
        19 => float8(2, (-14, 15), 57344.0, false),
        20 => unsigned_zero(2, (-15, 15), 57344.0),
        _ => return None,
    })
}

/// `x` as a value of this type. A float beyond the greatest one becomes that one if `saturate` says so.
pub(crate) fn narrowed(
    n: &mut NodeImport,
    x: ValueId,
    kind: &'static Narrow,
    saturate: bool,
) -> Result<ValueId, Problem> {
    let (y, kind) = match (float8_of(kind.number), kind.number) {
        (Some(float), _) => {
            let x = widened(n, x, DType::F64)?;
            (rounded(n, x, &float, saturate)?, kind)
        }
        (None, 13) => unsigned_64(n, x, kind)?,
        (None, 4 | 5 | 12) => (wrapped(n, x, kind)?, kind),
        // The documentation rounds to such a number, where a cast to others cuts off.
        (None, 21 | 22 | 25 | 26) => {
            let x = match n.dtype(x).is_float() {
                true => n.unary(Unary::Round, x)?,
                false => x,
            };
            (wrapped(n, x, kind)?, kind)
        }
        _ => return Problem::unsupported(format!("a cast to {}", kind.name)),
    };
    // A result of its own: what it is marked as is not true of the operand.
    let y = match y == x {
        true => n.emit(Op::Identity, &[y])?,
        false => y,
    };
    n.narrow.insert(y, kind);
    Ok(y)
}

/// A value of a marked type cast to a type of this crate's tensors.
pub(crate) fn widened(n: &mut NodeImport, x: ValueId, to: DType) -> Result<ValueId, Problem> {
    let open = n
        .narrow
        .get(&x)
        .is_some_and(|k| std::ptr::eq(*k, &OPEN_UINT64));
    match (open && to.is_float(), n.dtype(x) == to) {
        (true, _) => float_of_unsigned(n, x, to),
        (false, true) => n.emit(Op::Identity, &[x]),
        (false, false) => n.cast(x, to),
    }
}

/// The low bits, read as the type reads them.
fn wrapped(n: &mut NodeImport, x: ValueId, kind: &Narrow) -> Result<ValueId, Problem> {
    let Some((low, high)) = kind.range() else {
        return Problem::unsupported(format!("a cast to {}", kind.name));
    };
    let x = n.cast(x, DType::I64)?;
    let mask = n.number((high - low) as i64);
    let low = n.number(low as i64);
    let from_low = n.binary(Binary::Sub, x, low)?;
    let bits = n.binary(Binary::BitAnd, from_low, mask)?;
    let y = n.binary(Binary::Add, bits, low)?;
    n.cast(y, kind.carrier)
}

const TWO_TO_63: f64 = (1u64 << 63) as f64;

/// The 64 bits of an unsigned number in an i64. The type says whether the highest may be set.
fn unsigned_64(
    n: &mut NodeImport,
    x: ValueId,
    kind: &'static Narrow,
) -> Result<(ValueId, &'static Narrow), Problem> {
    let dtype = n.dtype(x);
    if !dtype.is_float() {
        let unsigned = match n.narrow.get(&x) {
            Some(of) if std::ptr::eq(*of, &OPEN_UINT64) => false,
            Some(of) => of.range().is_some_and(|(low, _)| low == 0.0),
            None => matches!(dtype, DType::U8 | DType::Bool),
        };
        let kind = if unsigned { kind } else { &OPEN_UINT64 };
        return Ok((n.cast(x, DType::I64)?, kind));
    }
    let x = n.cast(x, DType::F64)?;
    let half = n.filled(DType::F64, &[], TWO_TO_63)?;
    let all = n.filled(DType::F64, &[], 2.0 * TWO_TO_63)?;
    let high = n.binary(Binary::GreaterOrEqual, x, half)?;
    let below = n.binary(Binary::Sub, x, all)?;
    let signed = n.emit(Op::Where, &[high, below, x])?;
    Ok((n.cast(signed, DType::I64)?, &OPEN_UINT64))
}

/// The float nearest to the unsigned number that an i64 has the bits of.
fn float_of_unsigned(n: &mut NodeImport, x: ValueId, to: DType) -> Result<ValueId, Problem> {
    // Half of the number fits. Its last bit stands for the one that is lost, or a number just above the middle
    // between two floats would become the lower one.
    let one = n.number(1);
    let positive = n.number(i64::MAX);
    let half = n.binary(Binary::ShiftRight, x, one)?;
    let half = n.binary(Binary::BitAnd, half, positive)?;
    let lost = n.binary(Binary::BitAnd, x, one)?;
    let half = n.binary(Binary::BitOr, half, lost)?;
    let half = n.cast(half, to)?;
    let large = n.binary(Binary::Add, half, half)?;
    let small = n.cast(x, to)?;
    let zero = n.number(0);
    let negative = n.binary(Binary::Less, x, zero)?;
    n.emit(Op::Where, &[negative, large, small])
}

/// The nearest number of the type, of two the one whose last bit is 0. All steps are exact in f64.
fn rounded(
    n: &mut NodeImport,
    x: ValueId,
    float: &Float8,
    saturate: bool,
) -> Result<ValueId, Problem> {
    let x = n.cast(x, DType::F64)?;
    let size = n.unary(Unary::Abs, x)?;
    // The largest power of two that is no larger than the number; the least normal number below that.
    let mut power = n.filled(DType::F64, &[], 2f64.powi(float.least))?;
    let exponents = float.greatest - float.least;
    for bit in (0..=exponents.ilog2()).rev() {
        let factor = n.filled(DType::F64, &[], 2f64.powi(1 << bit))?;
        let larger = n.binary(Binary::Mul, power, factor)?;
        let fits = n.binary(Binary::GreaterOrEqual, size, larger)?;
        power = n.emit(Op::Where, &[fits, larger, power])?;
    }
    let steps = n.filled(DType::F64, &[], 2f64.powi(-float.mantissa_bits))?;
    let step = n.binary(Binary::Mul, power, steps)?;
    let count = n.binary(Binary::Div, x, step)?;
    let count = n.unary(Unary::Round, count)?;
    let mut y = n.binary(Binary::Mul, count, step)?;
    let beyond = if saturate { float.max } else { float.beyond };
    for sign in [1.0, -1.0] {
        let max = n.filled(DType::F64, &[], sign * float.max)?;
        let compare = if sign > 0.0 {
            Binary::Greater
        } else {
            Binary::Less
        };
        let outside = n.binary(compare, y, max)?;
        let instead = n.filled(DType::F64, &[], sign * beyond)?;
        y = n.emit(Op::Where, &[outside, instead, y])?;
    }
    if !float.negative_zero {
        let zero = n.filled(DType::F64, &[], 0.0)?;
        let is_zero = n.binary(Binary::Equal, y, zero)?;
        y = n.emit(Op::Where, &[is_zero, zero, y])?;
    }
    n.cast(y, DType::F32)
}
