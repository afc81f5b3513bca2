//! Element-wise operators.

use super::erf::erf;
use super::movement::broadcast;
use super::parallel::pieces;
use super::widen::{floats, from_floats, from_integers, integers};
use crate::ops::{Binary, Gelu, OpError, Unary, refuse};
use tensor::{DType, Tensor};

pub(super) fn unary(u: Unary, x: &Tensor) -> Tensor {
    if x.dtype().is_float() {
        let mut values = floats(x);
        pieces(&mut values, 1 << 12, |_, piece| {
            piece.iter_mut().for_each(|v| *v = unary_float(u, *v))
        });
        return from_floats(x.dtype(), x.shape(), &values);
    }
    let values: Vec<i64> = integers(x)
        .into_iter()
        .map(|v| unary_integer(u, v))
        .collect();
    from_integers(x.dtype(), x.shape(), &values)
}

/// `x` is of u8.
pub(super) fn lookup(x: &Tensor, table: &Tensor) -> Tensor {
    let mut found = Tensor::zeros(table.dtype(), x.shape());
    let size = table.dtype().size();
    for (to, at) in found.bytes_mut().chunks_exact_mut(size).zip(x.bytes()) {
        let from = usize::from(*at) * size;
        to.copy_from_slice(&table.bytes()[from..from + size]);
    }
    found
}

fn unary_float(u: Unary, x: f64) -> f64 {
    match u {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign if x > 0.0 => 1.0,
        Unary::Sign if x < 0.0 => -1.0,
        Unary::Sign => x,
        Unary::Relu if x < 0.0 => 0.0,
        Unary::Relu => x,
        Unary::Clip { min, max } => {
            let x = if min.is_some_and(|m| x < m) {
                min.unwrap_or(x)
            } else {
                x
            };
            if max.is_some_and(|m| x > m) {
                max.unwrap_or(x)
            } else {
                x
            }
        }
        Unary::LeakyRelu { alpha } if x < 0.0 => f64::from(alpha) * x,
        Unary::LeakyRelu { .. } => x,
        Unary::Sigmoid => sigmoid(x),
        Unary::HardSigmoid { alpha, beta } => {
            (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0)
        }
        Unary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::Tanh => x.tanh(),
        // In f64 by the C library, which reduces angles of any size by as many digits of pi as
        // matter; a test has the sine of 1e22.
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Asinh => x.asinh(),
        Unary::Acosh => acosh(x),
        Unary::Atanh => x.atanh(),
        Unary::Gelu(Gelu::Exact) => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Unary::Gelu(Gelu::Tanh) => {
            let scale = (2.0 / std::f64::consts::PI).sqrt();
            0.5 * x * (1.0 + (scale * (x + 0.044715 * x * x * x)).tanh())
        }
        Unary::Erf => erf(x),
        Unary::Sqrt => x.sqrt(),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Not => unreachable!("the shape rule refuses it on floats"),
    }
}

/// Near 1, where `f64::acosh` loses digits, by log(1 + t + sqrt(t (t + 2))) of t = x - 1.
fn acosh(x: f64) -> f64 {
    let t = x - 1.0;
    if t < 1.0 {
        (t + (t * (t + 2.0)).sqrt()).ln_1p()
    } else {
        x.acosh()
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn unary_integer(u: Unary, x: i64) -> i64 {
    match u {
        Unary::Neg => x.wrapping_neg(),
        Unary::Abs => x.wrapping_abs(),
        Unary::Sign => x.signum(),
        Unary::Relu => x.max(0),
        Unary::Clip { min, max } => {
            let x = min.map_or(x, |m| x.max(m as i64));
            max.map_or(x, |m| x.min(m as i64))
        }
        Unary::Not => i64::from(x == 0),
        _ => unreachable!("the shape rule refuses it on integers"),
    }
}

pub(super) fn binary(
    b: Binary,
    x: &Tensor,
    y: &Tensor,
    shape: &[usize],
) -> Result<Tensor, OpError> {
    let (x, y) = (&broadcast(x, shape), &broadcast(y, shape));
    if b.is_comparison() {
        return Ok(compare(b, x, y));
    }
    if x.dtype().is_float() {
        let (mut values, y) = (floats(x), floats(y));
        const PIECE: usize = 1 << 12;
        pieces(&mut values, PIECE, |i, piece| {
            for (v, y) in piece.iter_mut().zip(&y[i * PIECE..]) {
                *v = binary_float(b, *v, *y);
            }
        });
        return Ok(from_floats(x.dtype(), shape, &values));
    }
    let bits = x.dtype().bits() as i64;
    let pairs = integers(x).into_iter().zip(integers(y));
    let values: Vec<i64> = pairs
        .map(|(x, y)| binary_integer(b, x, y, bits))
        .collect::<Result<_, _>>()?;
    Ok(from_integers(x.dtype(), shape, &values))
}

pub(super) fn binary_float(b: Binary, x: f64, y: f64) -> f64 {
    match b {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Fmod => x % y,
        Binary::Mod => match x % y {
            r if r != 0.0 && (r < 0.0) != (y < 0.0) => r + y,
            r => r,
        },
        Binary::Pow => x.powf(y),
        Binary::Min if x.is_nan() || y.is_nan() => f64::NAN,
        Binary::Min => x.min(y),
        Binary::Max if x.is_nan() || y.is_nan() => f64::NAN,
        Binary::Max => x.max(y),
        _ => unreachable!("the shape rule refuses it on floats"),
    }
}

/// Of integers of so many bits.
pub(super) fn binary_integer(b: Binary, x: i64, y: i64, bits: i64) -> Result<i64, OpError> {
    Ok(match b {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::Div | Binary::Mod | Binary::Fmod if y == 0 => {
            return refuse("an integer is divided by zero");
        }
        Binary::Div => x.wrapping_div(y),
        Binary::Mod => match x.wrapping_rem(y) {
            r if r != 0 && (r < 0) != (y < 0) => r + y,
            r => r,
        },
        Binary::Fmod => x.wrapping_rem(y),
        Binary::Pow if y < 0 => (x as f64).powf(y as f64) as i64,
        Binary::Pow => (0..u64::BITS - y.leading_zeros())
            .rev()
            .fold(1i64, |p, bit| {
                let squared = p.wrapping_mul(p);
                if y >> bit & 1 == 1 {
                    squared.wrapping_mul(x)
                } else {
                    squared
                }
            }),
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
        Binary::And | Binary::BitAnd => x & y,
        Binary::Or | Binary::BitOr => x | y,
        Binary::Xor | Binary::BitXor => x ^ y,
        Binary::ShiftLeft if (0..bits).contains(&y) => x << y,
        Binary::ShiftLeft => 0,
        Binary::ShiftRight if (0..bits).contains(&y) => x >> y,
        Binary::ShiftRight => x >> 63,
        _ => unreachable!("comparisons are handled apart"),
    })
}

fn compare(b: Binary, x: &Tensor, y: &Tensor) -> Tensor {
    fn holds<T: PartialOrd>(b: Binary, x: &T, y: &T) -> bool {
        match b {
            Binary::Equal => x == y,
            Binary::Less => x < y,
            Binary::LessOrEqual => x <= y,
            Binary::Greater => x > y,
            Binary::GreaterOrEqual => x >= y,
            _ => unreachable!("not a comparison"),
        }
    }
    let values: Vec<bool> = if x.dtype().is_float() {
        floats(x)
            .iter()
            .zip(&floats(y))
            .map(|(x, y)| holds(b, x, y))
            .collect()
    } else {
        integers(x)
            .iter()
            .zip(&integers(y))
            .map(|(x, y)| holds(b, x, y))
            .collect()
    };
    Tensor::from_bools(x.shape(), &values)
}

pub(super) fn select(condition: &Tensor, x: &Tensor, y: &Tensor, shape: &[usize]) -> Tensor {
    let condition = broadcast(condition, shape);
    let (mut out, y) = (broadcast(x, shape), broadcast(y, shape));
    let size = out.dtype().size();
    for (i, _) in condition
        .bytes()
        .iter()
        .enumerate()
        .filter(|(_, c)| **c == 0)
    {
        let at = i * size..(i + 1) * size;
        out.bytes_mut()[at.clone()].copy_from_slice(&y.bytes()[at]);
    }
    out
}

pub(super) fn cast(x: &Tensor, to: DType) -> Tensor {
    if x.dtype() == to {
        return x.clone();
    }
    if x.dtype().is_float() {
        let integer = |v: f64| v as i64;
        return match to {
            // Through i64, so that what does not fit wraps as it does elsewhere.
            DType::I8 | DType::U8 | DType::I32 => {
                let values: Vec<_> = floats(x).into_iter().map(integer).collect();
                from_integers(to, x.shape(), &values)
            }
            _ => from_floats(to, x.shape(), &floats(x)),
        };
    }
    from_integers(to, x.shape(), &integers(x))
}
