//! Scalar arithmetic of the flat interpreter: each operation rounds or wraps
//! to its type, as `ir::expr` says.

use ir::{BinaryOp, DType, Expr, UnaryOp};
use tensor::Tensor;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// Integers and bool, within the range of the type.
    Int(i64, DType),
    /// Already rounded to the type.
    Float(f64, DType),
}

impl Value {
    pub fn dtype(self) -> DType {
        match self {
            Value::Int(_, d) | Value::Float(_, d) => d,
        }
    }

    pub fn is_true(self) -> bool {
        matches!(self, Value::Int(v, _) if v != 0)
    }

    pub fn as_i64(self) -> Option<i64> {
        match self {
            Value::Int(v, DType::I64) => Some(v),
            _ => None,
        }
    }
}

pub(crate) fn read(t: &Tensor, i: usize) -> Value {
    match t.dtype().is_float() {
        true => Value::Float(t.get_f64(i), t.dtype()),
        false => Value::Int(t.get_i64(i), t.dtype()),
    }
}

pub(crate) fn write(t: &mut Tensor, i: usize, v: Value) {
    match v {
        Value::Int(v, _) => t.set_i64(i, v),
        Value::Float(v, _) => t.set_f64(i, v),
    }
}

fn float(v: f64, d: DType) -> Value {
    let rounded = match d {
        DType::F64 => v,
        _ => Expr::constant(v, d).as_float().unwrap_or(v),
    };
    Value::Float(rounded, d)
}

fn int(v: i64, d: DType) -> Value {
    let wrapped = match d {
        DType::I8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::I32 => i64::from(v as i32),
        DType::Bool => i64::from(v != 0),
        _ => v,
    };
    Value::Int(wrapped, d)
}

/// Of a single-precision value the elementary functions are those of `f32`.
fn elementary(op: UnaryOp, v: f64, d: DType) -> f64 {
    let single = d != DType::F64;
    macro_rules! of {
        ($f:ident) => {
            if single {
                f64::from((v as f32).$f())
            } else {
                v.$f()
            }
        };
    }
    match op {
        UnaryOp::Exp => of!(exp),
        UnaryOp::Log => of!(ln),
        UnaryOp::Tanh => of!(tanh),
        UnaryOp::Sqrt => v.sqrt(),
        UnaryOp::Rsqrt => 1.0 / v.sqrt(),
        UnaryOp::Erf => erf(v),
        UnaryOp::Round => v.round_ties_even(),
        UnaryOp::Floor => v.floor(),
        UnaryOp::Ceil => v.ceil(),
        UnaryOp::Neg => -v,
        UnaryOp::Abs => v.abs(),
        UnaryOp::Not => f64::from(u8::from(v == 0.0)),
    }
}

/// The error function: its series near 0, a continued fraction of the
/// complement elsewhere (Abramowitz and Stegun 7.1.5, 7.1.14).
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a > 6.0 {
        return if a.is_nan() { x } else { x.signum() };
    }
    if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-18 * sum.abs() {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        return (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    let fraction = (1..=60).rev().fold(a, |f, k| a + f64::from(k) / 2.0 / f);
    let complement = (-a * a).exp() / fraction / std::f64::consts::PI.sqrt();
    (1.0 - complement).copysign(x)
}

pub(crate) fn unary(op: UnaryOp, a: Value) -> Value {
    match a {
        Value::Float(v, d) => float(elementary(op, v, d), d),
        Value::Int(v, d) => match op {
            UnaryOp::Neg => int(v.wrapping_neg(), d),
            UnaryOp::Abs => int(v.wrapping_abs(), d),
            UnaryOp::Not => int(i64::from(v == 0), d),
            _ => int(elementary(op, v as f64, DType::F64) as i64, d),
        },
    }
}

/// `None` on integer division by zero.
pub(crate) fn binary(op: BinaryOp, a: Value, b: Value) -> Option<Value> {
    let truth = |v: bool| Some(Value::Int(i64::from(v), DType::Bool));
    match (a, b) {
        (Value::Float(a, d), Value::Float(b, _)) => {
            let v = match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Mul => a * b,
                BinaryOp::Div => a / b,
                BinaryOp::FloorDiv => (a / b).floor(),
                BinaryOp::FloorMod => a - (a / b).floor() * b,
                BinaryOp::Min => a.min(b),
                BinaryOp::Max => a.max(b),
                BinaryOp::Pow if d == DType::F64 => a.powf(b),
                BinaryOp::Pow => f64::from((a as f32).powf(b as f32)),
                BinaryOp::Eq => return truth(a == b),
                BinaryOp::Ne => return truth(a != b),
                BinaryOp::Lt => return truth(a < b),
                BinaryOp::Le => return truth(a <= b),
                BinaryOp::And | BinaryOp::Or => return None,
            };
            Some(float(v, d))
        }
        (Value::Int(a, d), Value::Int(b, _)) => {
            let divides = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod);
            if divides && b == 0 {
                return None;
            }
            let floor_div = |a: i64, b: i64| {
                let q = a.wrapping_div(b);
                if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) {
                    q - 1
                } else {
                    q
                }
            };
            let v = match op {
                BinaryOp::Add => a.wrapping_add(b),
                BinaryOp::Sub => a.wrapping_sub(b),
                BinaryOp::Mul => a.wrapping_mul(b),
                BinaryOp::Div => a.wrapping_div(b),
                BinaryOp::FloorDiv => floor_div(a, b),
                BinaryOp::FloorMod => a.wrapping_sub(floor_div(a, b).wrapping_mul(b)),
                BinaryOp::Min => a.min(b),
                BinaryOp::Max => a.max(b),
                BinaryOp::Pow => (a as f64).powf(b as f64) as i64,
                BinaryOp::Eq => return truth(a == b),
                BinaryOp::Ne => return truth(a != b),
                BinaryOp::Lt => return truth(a < b),
                BinaryOp::Le => return truth(a <= b),
                BinaryOp::And => i64::from(a != 0 && b != 0),
                BinaryOp::Or => i64::from(a != 0 || b != 0),
            };
            Some(int(v, d))
        }
        _ => None,
    }
}

pub(crate) fn cast(to: DType, a: Value) -> Value {
    match a {
        Value::Int(v, _) if to.is_float() => float(v as f64, to),
        Value::Int(v, _) => int(v, to),
        Value::Float(v, _) if to.is_float() => float(v, to),
        Value::Float(v, _) => match to {
            DType::Bool => int(i64::from(v != 0.0), to),
            DType::I8 => int(i64::from(v as i8), to),
            DType::U8 => int(i64::from(v as u8), to),
            DType::I32 => int(i64::from(v as i32), to),
            _ => int(v as i64, to),
        },
    }
}
