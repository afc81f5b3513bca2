//! Arithmetic on scalars: every operation rounds or wraps to its type once.

use crate::expr::{BinaryOp, UnaryOp};
use tensor::DType;

/// The error function.
pub fn erf(x: f64) -> f64 {
    libm::erf(x)
}

/// `v` rounded to a float type, ties to even, overflow to infinity.
pub(super) fn round(v: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(v as f32),
        DType::F16 => round_to_format(v, 11, -14, 65504.0),
        DType::BF16 => round_to_format(v, 8, -126, f64::from(f32::from_bits(0x7f7f_0000))),
        _ => v,
    }
}

/// Rounds to a binary format of `precision` significant bits, least normal
/// exponent `min_exponent` and largest value `max`.
fn round_to_format(v: f64, precision: i32, min_exponent: i32, max: f64) -> f64 {
    if v == 0.0 || !v.is_finite() {
        return v;
    }
    if v.abs() >= 2.0 * max {
        return f64::INFINITY.copysign(v);
    }
    let exponent = ((v.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let unit = power_of_two(exponent.max(min_exponent) - (precision - 1));
    let rounded = (v / unit).round_ties_even() * unit;
    if rounded.abs() > max {
        f64::INFINITY.copysign(v)
    } else {
        rounded.copysign(v)
    }
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// `v` modulo two to the width of an integer type. Values of u64 are held as their bits.
pub(super) fn wrap(v: i64, dtype: DType) -> i64 {
    match dtype {
        DType::I8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::I32 => i64::from(v as i32),
        DType::I16 => i64::from(v as i16),
        DType::U16 => i64::from(v as u16),
        DType::U32 => i64::from(v as u32),
        _ => v,
    }
}

pub(super) fn int_unary(op: UnaryOp, a: i64, dtype: DType) -> i64 {
    match op {
        UnaryOp::Neg => wrap(a.wrapping_neg(), dtype),
        UnaryOp::Abs => wrap(a.wrapping_abs(), dtype),
        UnaryOp::Not => i64::from(a == 0),
        _ => a,
    }
}

pub(super) fn float_unary(op: UnaryOp, a: f64, dtype: DType) -> f64 {
    let v = match op {
        UnaryOp::Neg => return -a,
        UnaryOp::Abs => return a.abs(),
        UnaryOp::Not => f64::from(u8::from(a == 0.0)),
        UnaryOp::Exp => libm::exp(a),
        UnaryOp::Log => libm::log(a),
        UnaryOp::Sqrt => a.sqrt(),
        UnaryOp::Rsqrt => 1.0 / a.sqrt(),
        UnaryOp::Tanh => libm::tanh(a),
        UnaryOp::Erf => erf(a),
        UnaryOp::Sin => libm::sin(a),
        UnaryOp::Cos => libm::cos(a),
        UnaryOp::Tan => libm::tan(a),
        UnaryOp::Asin => libm::asin(a),
        UnaryOp::Acos => libm::acos(a),
        UnaryOp::Atan => libm::atan(a),
        UnaryOp::Sinh => libm::sinh(a),
        UnaryOp::Cosh => libm::cosh(a),
        UnaryOp::Asinh => libm::asinh(a),
        UnaryOp::Acosh => libm::acosh(a),
        UnaryOp::Atanh => libm::atanh(a),
        UnaryOp::Round => a.round_ties_even(),
        UnaryOp::Floor => a.floor(),
        UnaryOp::Ceil => a.ceil(),
        UnaryOp::Bits => unreachable!("its result is an integer"),
    };
    round(v, dtype)
}

/// Arithmetic on integers; on bool only `Min` and `Max`. `None` is division by zero.
pub(super) fn int_binary(op: BinaryOp, a: i64, b: i64, dtype: DType) -> Option<i64> {
    let v = match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::Pow => int_power(a, b)?,
        BinaryOp::Div if b != 0 => a.wrapping_div(b),
        BinaryOp::FloorDiv if b != 0 => floor_div(a, b),
        BinaryOp::FloorMod if b != 0 => a.wrapping_sub(floor_div(a, b).wrapping_mul(b)),
        BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod => return None,
        op if op.is_bitwise() => op.bits(a, b, dtype),
        _ => i64::from(int_compare(op, a, b)),
    };
    Some(wrap(v, dtype))
}

fn floor_div(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    let inexact = quotient.wrapping_mul(b) != a;
    quotient - i64::from(inexact && (a < 0) != (b < 0))
}

fn int_power(base: i64, exponent: i64) -> Option<i64> {
    if exponent < 0 {
        return match base {
            0 => None,
            1 => Some(1),
            -1 => Some(if exponent % 2 == 0 { 1 } else { -1 }),
            _ => Some(0),
        };
    }
    let (mut square, mut rest, mut power) = (base, exponent, 1i64);
    while rest > 0 {
        if rest & 1 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    Some(power)
}

pub(super) fn float_binary(op: BinaryOp, a: f64, b: f64, dtype: DType) -> f64 {
    let v = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Min => return if a < b || a.is_nan() { a } else { b },
        BinaryOp::Max => return if a > b || a.is_nan() { a } else { b },
        BinaryOp::Pow => libm::pow(a, b),
        BinaryOp::FloorDiv => round(a / b, dtype).floor(),
        BinaryOp::FloorMod => a - round(round(a / b, dtype).floor() * b, dtype),
        _ => f64::from(u8::from(float_compare(op, a, b))),
    };
    round(v, dtype)
}

/// `Eq`, `Ne`, `Lt` or `Le`.
pub(super) fn int_compare(op: BinaryOp, a: i64, b: i64) -> bool {
    match op {
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        BinaryOp::Lt => a < b,
        _ => a <= b,
    }
}

/// `Eq`, `Ne`, `Lt` or `Le`.
pub(super) fn float_compare(op: BinaryOp, a: f64, b: f64) -> bool {
    match op {
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        BinaryOp::Lt => a < b,
        _ => a <= b,
    }
}

/// To an integer type: towards zero, saturating, NaN to 0; to bool: not zero.
pub(super) fn float_to_int(v: f64, dtype: DType) -> i64 {
    match dtype {
        DType::Bool => i64::from(v != 0.0),
        DType::I8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::I32 => i64::from(v as i32),
        DType::I16 => i64::from(v as i16),
        DType::U16 => i64::from(v as u16),
        DType::U32 => i64::from(v as u32),
        DType::U64 => v as u64 as i64,
        _ => v as i64,
    }
}

/// To an integer type: wrapping; to bool: not zero.
pub(super) fn int_to_int(v: i64, dtype: DType) -> i64 {
    match dtype {
        DType::Bool => i64::from(v != 0),
        _ => wrap(v, dtype),
    }
}

/// Rounded once, ties to even.
pub(super) fn int_to_float(v: i64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => v as f64,
        DType::F32 => f64::from(v as f32),
        _ => {
            // More bits than an f64 holds: the lowest kept one stands for those
            // dropped, so that rounding again cannot meet a false tie.
            let magnitude = v.unsigned_abs();
            let kept = (magnitude >> 11 | u64::from(magnitude & 0x7ff != 0)) << 11;
            let exact = if magnitude >> 53 == 0 {
                magnitude
            } else {
                kept
            };
            round((exact as f64).copysign(v as f64), dtype)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_round_once_to_even() {
        let f16 = |v| round(v, DType::F16);
        // One unit in the last place of 1.0 is 2^-10.
        let unit = power_of_two(-10);
        assert_eq!(f16(1.0 + unit / 2.0), 1.0);
        assert_eq!(f16(1.0 + unit * 1.5), 1.0 + 2.0 * unit);
        // Just above the tie, by less than f32 can tell.
        assert_eq!(f16(1.0 + unit / 2.0 + power_of_two(-50)), 1.0 + unit);
        assert_eq!(f16(65519.9), 65504.0);
        assert_eq!(f16(65520.0), f64::INFINITY);
        assert_eq!(f16(-1e300), f64::NEG_INFINITY);
        // Subnormals are multiples of 2^-24.
        assert_eq!(f16(power_of_two(-25)), 0.0);
        assert_eq!(f16(power_of_two(-25) * 1.01), power_of_two(-24));
        assert_eq!(f16(3.4 * power_of_two(-24)), 3.0 * power_of_two(-24));
        assert!(f16(-1e-300).is_sign_negative() && f16(-1e-300) == 0.0);
        assert!(f16(f64::NAN).is_nan());
        let bf16 = |v| round(v, DType::BF16);
        assert_eq!(bf16(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(bf16(1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(bf16(f64::from(f32::MAX)), f64::INFINITY);
        assert_eq!(bf16(power_of_two(-133)), power_of_two(-133));
    }

    #[test]
    fn every_half_is_its_own_rounding_and_neighbours_share_the_midpoint() {
        for dtype in [DType::F16, DType::BF16] {
            let mut bits = 0u16;
            let value = |bits: u16| {
                let t = tensor::Tensor::from_bytes(dtype, &[1], &bits.to_le_bytes());
                t.unwrap().get_f64(0)
            };
            while value(bits + 1).is_finite() {
                let (a, b) = (value(bits), value(bits + 1));
                assert_eq!(round(a, dtype), a);
                let even = if bits & 1 == 0 { a } else { b };
                let middle = (a + b) / 2.0;
                assert_eq!(round(middle, dtype), even, "{dtype} {a} {b}");
                assert_eq!(round(-middle, dtype), -even);
                assert_eq!(round(middle + (b - a) * 1e-6, dtype), b);
                assert_eq!(round(middle - (b - a) * 1e-6, dtype), a);
                bits += 1;
            }
        }
    }

    #[test]
    fn integers_become_floats_in_one_rounding() {
        // 2^60 + half a unit of bf16 + 1: up, though f64 drops the 1.
        let v = (1i64 << 60) + (1 << 52) + 1;
        assert_eq!(int_to_float(v, DType::BF16), (1u64 << 60 | 1 << 53) as f64);
        assert_eq!(int_to_float(v - 1, DType::BF16), (1u64 << 60) as f64);
        assert_eq!(
            int_to_float(-v, DType::BF16),
            -((1u64 << 60 | 1 << 53) as f64)
        );
        assert_eq!(int_to_float(0, DType::F16), 0.0);
        let v = (1i64 << 60) + (1 << 36) + 1;
        assert_eq!(int_to_float(v, DType::F32), (1u64 << 60 | 1 << 37) as f64);
    }

    #[test]
    fn integer_division_and_powers() {
        let f = |op, a, b| int_binary(op, a, b, DType::I64);
        for (a, b) in [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3)] {
            let floor = (a as f64 / b as f64).floor() as i64;
            assert_eq!(f(BinaryOp::FloorDiv, a, b), Some(floor));
            assert_eq!(f(BinaryOp::FloorMod, a, b), Some(a - b * floor));
            assert_eq!(f(BinaryOp::Div, a, b), Some(a / b));
        }
        assert_eq!(f(BinaryOp::FloorDiv, i64::MIN, -1), Some(i64::MIN));
        assert_eq!(f(BinaryOp::FloorMod, i64::MIN, -1), Some(0));
        for op in [BinaryOp::Div, BinaryOp::FloorDiv, BinaryOp::FloorMod] {
            assert_eq!(f(op, 1, 0), None);
        }
        assert_eq!(int_binary(BinaryOp::Div, -128, -1, DType::I8), Some(-128));
        assert_eq!(int_binary(BinaryOp::Mul, 16, 16, DType::U8), Some(0));
        assert_eq!(f(BinaryOp::Pow, 3, 5), Some(243));
        assert_eq!(f(BinaryOp::Pow, 2, -1), Some(0));
        assert_eq!(f(BinaryOp::Pow, -1, -3), Some(-1));
        assert_eq!(f(BinaryOp::Pow, 0, -1), None);
        assert_eq!(int_binary(BinaryOp::Pow, 2, 8, DType::I8), Some(0));
    }
}
